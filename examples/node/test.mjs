// What the helper promises, with both libraries, on the server at RWLOCK_URL (no cluster),
// and on servers that the test starts itself: RWLOCK_SERVER with the module RWLOCK_MODULE.
// The rows are those of the table in ../README.md.

import assert from 'node:assert/strict'
import { AsyncResource } from 'node:async_hooks'
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createConnection } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { Redis } from 'ioredis'
import { createClient } from 'redis'

import { connect } from './clients.mjs'
import { ioredis } from './ioredis.mjs'
import { nodeRedis } from './node-redis.mjs'
import {
  AlreadyReleased,
  Deadlock,
  LockError,
  Locks,
  NotHeld,
  NotLoaded,
  TimedOut,
} from './rwlock.mjs'

const url = process.env.RWLOCK_URL
const module = process.env.RWLOCK_MODULE
const [, , role, library, name] = process.argv
/** Runs `work` as a part of the program that is in no block. */
const nowhere = new AsyncResource('nowhere')
const outside = (work) => nowhere.runInAsyncScope(work)
const DISPOSE = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')

if (role === 'hold') {
  const { server } = await connect(library, url)
  await new Locks(server).write(name)
  process.send('in')
} else if (role === 'close') {
  // Ends by itself, although it released nothing.
  const { server, close } = await connect(library, url)
  const locks = new Locks(server)
  const holds = [
    await locks.write(name),
    await locks.write(`${name}2`, { session: false, leaseMs: 900 }),
  ]
  const wait = locks.write(name, { waitMs: Infinity })
  locks.close()
  await assert.rejects(wait, LockError)
  for (const hold of holds) assert.ok(hold.lost)
  close()
} else {
  for (const library of ['node-redis', 'ioredis']) describe(library, () => tests(library))
}

function tests(library) {
  const opened = []
  after(() => opened.forEach((one) => one.close()))

  const open = async (at = url, options) => {
    const connection = await connect(library, at)
    const locks = new Locks(connection.server, options)
    opened.push(locks, connection)
    return { ...connection, locks }
  }
  let count = 0
  const fresh = async (at, options) => {
    const { locks, command } = await open(at, options)
    const name = `test:${process.pid}:${library}:${(count += 1)}`
    const inspect = async (lock = name) => asMap(await command(lock, 'RWLOCK.INSPECT', lock))
    const waiters = (number, lock = name) =>
      until(async () => (await inspect(lock)).waiters_total === number)
    return { name, locks, command, inspect, waiters }
  }

  test('row 1: without waitMs a request tries once, and Infinity waits', async () => {
    const { name, locks, waiters } = await fresh()
    let next
    await locks.withWriteLock(name, async () => {
      const begun = performance.now()
      await assert.rejects(
        outside(() => locks.write(name)),
        TimedOut,
      )
      assert.ok(performance.now() - begun < 500)
      await assert.rejects(
        outside(() => locks.write(name, { waitMs: 50 })),
        TimedOut,
      )
      next = outside(() => locks.write(name, { waitMs: Infinity }))
      await waiters(1)
    })
    await (await next).release()
    await assert.rejects(locks.write(name, { wait: 5000 }), TypeError)
  })

  test('row 1: a time that is no number of milliseconds is refused', async () => {
    const { name, locks, inspect } = await fresh()
    const wait = /^TypeError: waitMs is a number of milliseconds, 0 or more, or Infinity$/
    const lease = /^TypeError: leaseMs is a whole number of milliseconds, 1 or more$/
    for (const waitMs of ['5000', '5s', NaN, -1, -Infinity, null, 5n]) {
      await assert.rejects(locks.write(name, { waitMs }), wait)
      await assert.rejects(locks.all({ read: [name], waitMs }), wait)
      await assert.rejects(
        locks.withReadLock(name, { waitMs }, () => {}),
        wait,
      )
    }
    for (const leaseMs of ['5000', NaN, 0, 0.5, Infinity, null])
      await assert.rejects(locks.write(name, { leaseMs }), lease)
    await locks.withReadLock(name, { waitMs: 0.5, leaseMs: 1000 }, async (hold) => {
      await assert.rejects(hold.upgrade({ waitMs: '5000' }), wait)
      await hold.check()
    })
    assert.equal((await inspect()).mode, 'free')
  })

  test('row 1: a signal ends a wait, and the server forgets the waiter', async () => {
    const { name, locks, waiters } = await fresh()
    const hold = await locks.write(name)
    const ours = new AbortController()
    const wait = locks.write(name, { waitMs: Infinity, signal: ours.signal })
    await waiters(1)
    ours.abort(new RangeError('enough'))
    await assert.rejects(wait, RangeError)
    await waiters(0)
    await hold.release()
  })

  test('row 2: a session ends with its process', async () => {
    const { name, locks, inspect } = await fresh()
    const child = fork(fileURLToPath(import.meta.url), ['hold', library, name])
    await once(child, 'message')
    assert.ok(asMap((await inspect()).holders[0]).session > 0)
    child.kill('SIGKILL')
    const begun = performance.now()
    await locks.withWriteLock(name, { waitMs: 20_000 }, async () => {})
    assert.ok(performance.now() - begun < 5000)
  })

  test('row 2: a hold without a session is renewed, and outlives its connection', async () => {
    const { name, locks, inspect } = await fresh()
    const hold = await locks.write(name, { leaseMs: 300, session: false })
    assert.equal(asMap((await inspect()).holders[0]).session, 0)
    await sleep(1000) // longer than three leases
    assert.equal((await inspect()).mode, 'write')
    assert.ok(!hold.lost)
    await hold.release()
  })

  test('row 3: a nested call enters the lock again', async () => {
    const { name, locks, inspect } = await fresh()
    await locks.withWriteLock(name, async (outer) => {
      await locks.withWriteLock(name, async (inner) => assert.equal(inner.owner, outer.owner))
      await locks.withReadLock(name, async () => {})
      await locks.withAll({ read: [name], write: [`${name}2`] }, async () => {
        assert.equal((await inspect(`${name}2`)).mode, 'write')
      })
      assert.equal((await inspect(`${name}2`)).mode, 'free')
      assert.equal((await inspect()).mode, 'write')
    })
    assert.equal((await inspect()).mode, 'free')
    await locks.withReadLock(name, async () => {
      await assert.rejects(locks.write(name, { waitMs: Infinity }), Deadlock)
    })
  })

  test('row 3: the option owner enters the lock of a hold again', async () => {
    const { name, locks, inspect } = await fresh()
    const hold = await locks.write(name)
    const { owner } = hold
    const inner = await locks.read(name, { owner })
    await assert.rejects(locks.write(name, { owner, fence: true }), TypeError)
    await hold.release()
    assert.equal((await inspect()).mode, 'write')
    await inner.release()
    assert.equal((await inspect()).mode, 'free')
  })

  test('row 3: calls side by side in one block exclude each other', async () => {
    const { name, locks } = await fresh()
    let inside = 0
    const work = () =>
      locks.withWriteLock(`${name}2`, { waitMs: 10_000 }, async () => {
        assert.equal((inside += 1), 1)
        await sleep(20) // gives the others the time to come in
        inside -= 1
      })
    await locks.withWriteLock(name, () => Promise.all([work(), work(), work()]))
  })

  test('row 4: upgrade and downgrade', async () => {
    const { name, locks, inspect, waiters } = await fresh()
    for (const session of [true, false]) {
      await locks.withReadLock(name, { session }, async (hold) => {
        await outside(() =>
          locks.withReadLock(name, () => assert.rejects(hold.upgrade(), TimedOut)),
        )
        await hold.upgrade({ waitMs: 5000, fence: true })
        assert.ok(hold.token > 0)
        assert.equal((await inspect()).mode, 'write')
        const reader = outside(() => locks.withReadLock(name, { waitMs: 10_000 }, async () => {}))
        await waiters(1)
        await hold.downgrade()
        await reader
        assert.equal((await inspect()).mode, 'read')
        await hold.upgrade()
      })
      assert.equal((await inspect()).mode, 'free')
      await locks.withWriteLock(name, { session }, async (hold) => {
        await locks.withWriteLock(name, () => assert.rejects(hold.downgrade(), LockError))
        await hold.downgrade()
        assert.equal((await inspect()).mode, 'read')
        await hold.check()
      })
      assert.equal((await inspect()).mode, 'free')
    }
  })

  test('row 4: of two that upgrade one is told of the deadlock', async () => {
    const { name, locks, waiters } = await fresh()
    const [one, two] = [await locks.read(name), await locks.read(name)]
    const upgrade = one.upgrade({ waitMs: 10_000 })
    await waiters(1)
    await assert.rejects(two.upgrade({ waitMs: 10_000 }), Deadlock)
    await two.release()
    await upgrade
    await one.release()
  })

  test('row 5: several locks in one step', async () => {
    const { name, locks, inspect, waiters, command } = await fresh()
    const [a, b, c] = ['a', 'b', 'c'].map((letter) => `${name}:${letter}`)
    let next
    await locks.withAll({ read: [a], write: [b, c], fence: true }, async (hold) => {
      assert.deepEqual([...hold.tokens.keys()], [b, c])
      assert.ok(hold.tokens.get(b) > 0 && hold.tokens.get(c) > 0)
      assert.equal((await inspect(a)).mode, 'read')
      await hold.check()
      await assert.rejects(
        outside(() => locks.all({ write: [a, b] })),
        TimedOut,
      )
      next = outside(() => locks.all({ write: [a, b], waitMs: 10_000 }))
      await waiters(1, a)
      await locks.withWriteLock(b, async () => {})
    })
    await (await next).release()
    for (const lock of [a, b, c]) assert.equal((await inspect(lock)).mode, 'free')
    const lose = locks.withAll({ write: [a, b], session: false, leaseMs: 600 }, async (hold) => {
      await command(b, 'RWLOCK.FORCEUNLOCK', b)
      await until(() => hold.lost)
    })
    await assert.rejects(lose, NotHeld)
  })

  test('row 5: a lock that is named twice is refused', async () => {
    const { name, locks, inspect } = await fresh()
    const twice = new TypeError(`lock ${name} is named twice`)
    await assert.rejects(locks.all({ write: ['other', name, name] }), twice)
    await assert.rejects(locks.all({ read: [name], write: [name] }), twice)
    await locks.withWriteLock(name, async () => {
      await assert.rejects(locks.all({ read: [name, name] }), twice)
    })
    assert.equal((await inspect()).mode, 'free')
  })

  test('row 6: acquire and release, and await using', async () => {
    const { name, locks, inspect } = await fresh()
    const one = await locks.write(name)
    assert.equal((await inspect()).mode, 'write')
    await one.release()
    assert.equal((await inspect()).mode, 'free')
    const two = await locks.read(name)
    await two[DISPOSE]()
    assert.equal((await inspect()).mode, 'free')
    await locks.withWriteLock(name, (hold) => hold.release())
  })

  test('row 7: the server shows the name of the job', async () => {
    const { name, locks, inspect, command } = await fresh(url, { name: 'nightly report\n' })
    const hold = await locks.write(name)
    const holder = asMap((await inspect()).holders[0])
    assert.match(hold.owner, /^nightly-report-@[^ ]+:\d+:[^ ]+$/)
    assert.equal(holder.owner, hold.owner)
    assert.match(
      await command(name, 'CLIENT', 'LIST', 'ID', `${holder.session}`),
      / name=nightly-report-@/,
    )
    await hold.release()
    const long = new Locks((await open()).server, { name: 'x'.repeat(500) })
    opened.push(long)
    await long.withReadLock(name, async ({ owner }) => assert.ok(owner.length <= 200))
    const mine = await (await fresh()).locks.read(name)
    assert.match(mine.owner, /^test\.mjs@/)
    await mine.release()
  })

  test('row 8: a killed connection is noticed without asking', async () => {
    const { name, locks, command, inspect } = await fresh()
    const hold = await locks.write(name)
    const { session } = asMap((await inspect()).holders[0])
    const begun = performance.now()
    await command(name, 'CLIENT', 'KILL', 'ID', `${session}`)
    if (!hold.lost) await once(hold.signal, 'abort')
    assert.ok(performance.now() - begun < 1000)
    assert.ok(hold.lost && hold.signal.reason instanceof NotHeld)
    await assert.rejects(hold.release(), NotHeld)
  })

  test('row 8: a hold that ended while its connection is open is noticed', async () => {
    const { name, locks, command } = await fresh()
    for (const session of [true, false]) {
      const hold = await locks.write(name, { leaseMs: 600, session })
      await command(name, 'RWLOCK.FORCEUNLOCK', name)
      await until(() => hold.lost)
      await assert.rejects(hold.release(), NotHeld)
    }
  })

  test('row 8: at the end of a block a lost hold is an error, after an error of the block', async () => {
    const { name, locks, command } = await fresh()
    const lose = async (hold) => {
      await hold.check()
      await command(name, 'RWLOCK.FORCEUNLOCK', name)
      await assert.rejects(hold.check(), NotHeld)
      assert.ok(hold.lost)
    }
    await assert.rejects(locks.withWriteLock(name, lose), NotHeld)
    const fail = async (hold) => {
      await lose(hold)
      throw new RangeError('its own')
    }
    await assert.rejects(locks.withWriteLock(name, fail), RangeError)
  })

  test(
    'row 8: a lease that cannot be renewed is lost before it ends',
    { skip: !module },
    async () => {
      const own = await Server.start()
      const { name, locks } = await fresh(own.url)
      const hold = await locks.write(name, { leaseMs: 1500, session: false })
      const begun = performance.now()
      own.process.kill('SIGSTOP')
      await until(() => hold.lost)
      assert.ok(performance.now() - begun < 1500)
      own.process.kill('SIGCONT')
      await assert.rejects(hold.release(), NotHeld)
      await own.stop()
    },
  )

  test(
    'row 9: after a restart the old holder knows before the next one gets it',
    { skip: !module },
    async () => {
      const own = await Server.start()
      const { name, locks, waiters } = await fresh(own.url)
      const hold = await locks.write(name)
      const next = locks.write(name, { waitMs: 20_000 })
      await waiters(1)
      await own.stop()
      await own.start()
      const second = await next
      assert.ok(hold.lost)
      await assert.rejects(hold.release(), NotHeld)
      await second.check()
      await second.release()
      await own.stop()
    },
  )

  test('row 10: a wait ends in time while the server answers READONLY', async () => {
    const { name, locks, command, waiters } = await fresh()
    const holder = await locks.read(name)
    const wait = timed(locks.write(name, { waitMs: 1000 }))
    await waiters(1)
    await command(name, 'REPLICAOF', '127.0.0.1', '1')
    await wait
    await timed(locks.write(name, { waitMs: 1000 }))
    await command(name, 'REPLICAOF', 'NO', 'ONE')
    await holder.release()
  })

  test(
    'row 10: a wait ends in time while the server is away, hangs or loads',
    { skip: !module },
    async () => {
      const own = await Server.start()
      const { name, locks, command } = await fresh(own.url)
      await locks.withWriteLock(name, async () => {})
      own.process.kill('SIGSTOP')
      await timed(locks.write(name, { waitMs: 1000 }))
      await timed(locks.write(name, { waitMs: 1000, session: false }))
      own.process.kill('SIGCONT')

      const script = 'for i = 1, 300 do redis.call("SET", i, string.rep("x", 4096)) end'
      await command(name, 'EVAL', script, '0')
      await command(name, 'CONFIG', 'SET', 'rdbcompression', 'no')
      await command(name, 'SAVE')
      await own.stop()
      await timed(locks.write(name, { waitMs: 1000 }))
      await own.start(
        '--key-load-delay',
        '20000',
        '--loading-process-events-interval-bytes',
        '1024',
      )
      await timed(locks.write(name, { waitMs: 1000 }), /LOADING/)
      await own.stop()
    },
  )

  test('row 10: a wait goes on after a timeout of the client, a broken connection and a failover', async () => {
    const { name, locks, command, inspect, waiters } = await fresh()
    const hasty = await impatient(library)
    const holder = await locks.read(name)
    const waiting = hasty.locks.write(name, { waitMs: Infinity })
    await waiters(1)
    await sleep(600) // longer than the timeouts of that client
    const waiter = asMap((await inspect()).waiters[0])
    assert.ok(waiter.waited >= 600, 'it is the same wait')
    await command(name, 'CLIENT', 'KILL', 'ID', `${waiter.client}`)
    await until(async () => asMap((await inspect()).waiters[0])?.client > waiter.client)
    await command(name, 'REPLICAOF', '127.0.0.1', '1')
    await waiters(0)
    await sleep(300) // the server answers READONLY meanwhile
    await command(name, 'REPLICAOF', 'NO', 'ONE')
    await waiters(1)
    await holder.release()
    await (await waiting).release()
    hasty.close()
  })

  test('row 10: a release whose answer was lost is no lost hold', async () => {
    const { server } = await open()
    const { name } = await fresh()
    let lost = 0
    const command = async (lock, words) => {
      const reply = await server.command(lock, words)
      if (words[0] === 'RWLOCK.UNLOCK' && (lost += 1) === 1) throw new Error('the connection broke')
      return reply
    }
    const locks = new Locks({ ...server, command })
    opened.push(locks)
    await locks.withWriteLock(name, { session: false }, async () => {})
    assert.equal(lost, 1)
  })

  test('row 11: the client itself is refused', async () => {
    const { client } = await open()
    for (const wrong of [client, undefined, url])
      assert.throws(
        () => new Locks(wrong),
        /^TypeError: give nodeRedis\(client\) or ioredis\(client\), /,
      )
  })

  test('row 11: a wrong port fails at once', async () => {
    // Both clients of ioredis and node-redis would go on trying: only their options count here.
    const wrong = new URL(url)
    wrong.port = '1'
    const client =
      library === 'ioredis'
        ? new Redis(wrong.href, { lazyConnect: true })
        : createClient({ url: wrong.href })
    const locks = new Locks(library === 'ioredis' ? ioredis(client) : nodeRedis(client))
    for (const waitMs of [undefined, 5000]) {
      const begun = performance.now()
      await assert.rejects(locks.write('any', { waitMs }), /ECONNREFUSED/)
      assert.ok(performance.now() - begun < 1000)
    }
    locks.close()
  })

  test('row 12: after close nothing renews and the process can end', async () => {
    const { name, inspect } = await fresh()
    const child = fork(fileURLToPath(import.meta.url), ['close', library, name])
    const [code] = await once(child, 'exit', { signal: AbortSignal.timeout(10_000) })
    assert.equal(code, 0)
    for (const lock of [name, `${name}2`])
      await until(async () => (await inspect(lock)).mode === 'free')
    const { locks } = await open()
    locks.close()
    await assert.rejects(locks.write(name), LockError)
  })

  test('row 13: a second release is an error of its own', async () => {
    const { name, locks } = await fresh()
    const hold = await locks.write(name)
    await hold.release()
    await assert.rejects(hold.release(), AlreadyReleased)
    await assert.rejects(hold.check(), AlreadyReleased)
  })

  test('row 14: a server without the module is named', { skip: !module }, async () => {
    const own = await Server.start({ module: false })
    const { locks } = await open(own.url)
    await assert.rejects(locks.write('any', { waitMs: 5000 }), (error) => {
      return error instanceof NotLoaded && /the rwlock module is not loaded/.test(error.message)
    })
    await own.stop()
  })

  test('row 15: TimedOut tells how long the lock is held', async () => {
    const { name, locks, command } = await fresh()
    const hold = await locks.write(name, { leaseMs: 20_000 })
    for (const waitMs of [0, 50]) {
      await assert.rejects(locks.write(name, { waitMs }), (error) => {
        assert.ok(error.heldMs > 10_000 && error.heldMs <= 20_000)
        assert.ok(error.message.includes(`${error.heldMs} ms`))
        return error instanceof TimedOut
      })
    }
    await command(name, 'PERSIST', name)
    await assert.rejects(locks.write(name), { heldMs: -1, message: /without expiry/ })
    await hold.release()
  })

  test('row 16: a deadlock has its own type, and all errors one base', async () => {
    for (const type of [TimedOut, Deadlock, NotHeld, NotLoaded, AlreadyReleased]) {
      assert.ok(type.prototype instanceof LockError)
    }
    const { name, locks, waiters } = await fresh()
    await locks.withWriteLock(name, async () => {
      const bob = await outside(() => locks.write(`${name}2`))
      const waits = outside(() => locks.write(name, { owner: bob.owner, waitMs: Infinity }))
      await waiters(1)
      await assert.rejects(
        locks.withWriteLock(`${name}2`, { waitMs: Infinity }, async () => {}),
        Deadlock,
      )
      await bob.release()
      waits.then((hold) => hold.release())
    })
  })

  test('row 16: other errors of the server stay as they are', async () => {
    const { name, locks, command } = await fresh()
    await command(name, 'SET', name, 'no lock')
    await assert.rejects(locks.write(name), /^\w*Error: WRONGTYPE /)
  })

  test('row 17: fencing tokens increase', async () => {
    const { name, locks } = await fresh()
    let last = 0
    for (let round = 0; round < 3; round += 1) {
      await locks.withWriteLock(name, { fence: true }, async ({ token }) => {
        assert.ok(token > last)
        last = token
      })
    }
  })
}

async function until(condition) {
  const end = performance.now() + 10_000
  while (!(await condition())) {
    assert.ok(performance.now() < end, 'it does not come')
    await sleep(5)
  }
}

/** The wait of a second ends with TimedOut, not much earlier or later. */
async function timed(wait, cause) {
  const begun = performance.now()
  await assert.rejects(wait, (error) => {
    assert.ok(error instanceof TimedOut, error)
    if (cause) assert.match(error.message, cause)
    return true
  })
  const ms = performance.now() - begun
  assert.ok(ms > 700 && ms < 2000, `${ms} ms`)
}

/** A server of the test's own. */
class Server {
  static async start(options) {
    const server = new Server()
    server.module = options?.module ?? true
    server.port = Number(new URL(url).port)
    do server.port += 1
    while (await isOpen(server.port))
    server.folder = mkdtempSync(join(tmpdir(), 'rwlock-node-'))
    server.url = `redis://127.0.0.1:${server.port}`
    process.on('exit', () => {
      server.process?.kill('SIGKILL')
      rmSync(server.folder, { recursive: true, force: true })
    })
    await server.start()
    return server
  }

  async start(...words) {
    const { port, folder } = this
    if (this.module) words.push('--loadmodule', module)
    this.process = spawn(
      process.env.RWLOCK_SERVER ?? 'redis-server',
      ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder, '--save', '', ...words],
      { stdio: 'ignore' },
    )
    this.process.unref() // a test that fails does not stop it
    await until(() => isOpen(port))
  }

  async stop() {
    const { process } = this
    process.ref()
    process.kill('SIGKILL')
    await once(process, 'exit')
  }
}

function isOpen(port) {
  return new Promise((resolve) => {
    const socket = createConnection(port, '127.0.0.1')
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false))
    socket.on('connect', () => socket.destroy())
  })
}

/** A client with short timeouts of its own. */
async function impatient(library) {
  if (library === 'ioredis') {
    const client = new Redis(url, { commandTimeout: 200, socketTimeout: 200 })
    client.on('error', () => {})
    const locks = new Locks(ioredis(client))
    return { locks, close: () => (locks.close(), client.disconnect()) }
  }
  const client = createClient({
    url,
    socket: { socketTimeout: 200, reconnectStrategy: 10 },
    commandOptions: { timeout: 200 },
  })
  client.on('error', () => {})
  await client.connect()
  const locks = new Locks(nodeRedis(client))
  return { locks, close: () => (locks.close(), client.destroy()) }
}

/** A map of the server: an object, a Map, or a flat array. */
function asMap(reply) {
  if (!Array.isArray(reply)) return reply instanceof Map ? Object.fromEntries(reply) : reply
  return Object.fromEntries(reply.flatMap((name, i) => (i % 2 ? [] : [[name, reply[i + 1]]])))
}
