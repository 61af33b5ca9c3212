// What the helper promises, with both libraries, against the server at RWLOCK_URL,
// which is no cluster.

import assert from 'node:assert/strict'
import { fork } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { after, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { Redis } from 'ioredis'
import { createClient } from 'redis'

import { connect } from './clients.mjs'
import { ioredis } from './ioredis.mjs'
import { nodeRedis } from './node-redis.mjs'
import { Deadlock, Locks, NotHeld, TimedOut } from './rwlock.mjs'

const url = process.env.RWLOCK_URL

if (process.argv[2] === 'hold') {
  const { server } = await connect(process.argv[3], url)
  await new Locks(server).write(process.argv[4])
  process.send('in')
} else {
  for (const library of ['node-redis', 'ioredis']) describe(library, () => tests(library))
}

function tests(library) {
  const opened = []
  const open = async () => {
    const connection = await connect(library, url)
    const locks = new Locks(connection.server)
    opened.push(locks, connection)
    return { ...connection, locks }
  }
  after(() => opened.forEach((one) => one.close()))

  const fresh = async () => {
    const { locks, command } = await open()
    const name = `test:${randomUUID()}`
    const inspect = async () => asMap(await command(name, 'RWLOCK.INSPECT', name))
    const waiters = async (count) => {
      const end = Date.now() + 10_000
      while ((await inspect()).waiters_total !== count) {
        assert.ok(Date.now() < end, 'it does not come')
        await sleep(5)
      }
    }
    return { name, locks, command, inspect, waiters }
  }

  test('a writer keeps others out, and tokens increase', async () => {
    const { name, locks, inspect, waiters } = await fresh()
    let first, next
    await locks.withWriteLock(name, { fence: true }, async (hold) => {
      first = hold.token
      assert.equal((await inspect()).mode, 'write')
      for (const wait of [0, 50]) {
        await assert.rejects(locks.write(name, { wait }), (error) => {
          return error instanceof TimedOut && error.milliseconds > 0
        })
      }
      next = locks.withWriteLock(name, { fence: true }, async (hold) => hold.token)
      await waiters(1)
    })
    assert.ok((await next) > first)
    assert.equal((await inspect()).mode, 'free')
  })

  test('a hold inside a hold names its owner', async () => {
    const { name, locks, inspect } = await fresh()
    await locks.withWriteLock(name, async ({ owner }) => {
      await Promise.all([
        locks.withWriteLock(name, { owner, wait: 0 }, async () => {}),
        locks.withReadLock(name, { owner, wait: 0 }, async () => {}),
      ])
      await assert.rejects(locks.write(name, { owner, fence: true }), TypeError)
      assert.equal((await inspect()).mode, 'write')
    })
    assert.equal((await inspect()).mode, 'free')
  })

  test('it is a resource that disposes of itself', async () => {
    const { name, locks, inspect } = await fresh()
    const hold = await locks.write(name)
    await hold[Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]()
    await hold.release()
    assert.equal((await inspect()).mode, 'free')
  })

  test('a lost hold is told', async () => {
    const { name, locks, command } = await fresh()
    const lose = async (hold) => {
      await hold.check()
      await command(name, 'RWLOCK.FORCEUNLOCK', name)
      await assert.rejects(hold.check(), NotHeld)
      assert.ok(hold.signal.aborted)
    }
    await assert.rejects(locks.withWriteLock(name, lose), NotHeld)
    const fail = async (hold) => {
      await lose(hold)
      throw new RangeError('its own')
    }
    await assert.rejects(locks.withWriteLock(name, fail), RangeError)
  })

  test('a session that ends is told', async () => {
    const { name, locks, command, inspect } = await fresh()
    const hold = await locks.write(name)
    const { session } = asMap((await inspect()).holders[0])
    await command(name, 'CLIENT', 'KILL', 'ID', `${session}`)
    if (!hold.signal.aborted) await once(hold.signal, 'abort')
    await assert.rejects(hold.release(), NotHeld)
  })

  test('a circle is told', async () => {
    const { name, locks, waiters } = await fresh()
    await locks.withReadLock(name, async ({ owner }) => {
      await assert.rejects(locks.write(name, { owner }), Deadlock)
    })
    await locks.withWriteLock(name, async (ann) => {
      const bob = await locks.write(`${name}2`)
      const waits = locks.write(name, { owner: bob.owner })
      await waiters(1)
      await assert.rejects(locks.write(`${name}2`, { owner: ann.owner }), Deadlock)
      await bob.release()
      waits.then((hold) => hold.release())
    })
  })

  test('a wait outlives the timeouts of the client, a broken connection and a failover', async () => {
    const { name, locks, command, inspect, waiters } = await fresh()
    const hasty = await impatient(library)
    const waiting = await locks.withReadLock(name, async () => {
      const waiting = { hold: hasty.locks.write(name) }
      await waiters(1)
      await sleep(600)
      const waiter = asMap((await inspect()).waiters[0])
      assert.ok(waiter.waited >= 600, 'it is the same wait')
      await command(name, 'CLIENT', 'KILL', 'ID', `${waiter.client}`)
      await waiters(0)
      await waiters(1)
      await command(name, 'REPLICAOF', '127.0.0.1', '1')
      await waiters(0)
      await sleep(300) // it is told READONLY meanwhile
      await command(name, 'REPLICAOF', 'NO', 'ONE')
      await waiters(1)
      return waiting
    })
    await (await waiting.hold).release()
    hasty.close()
  })

  test('a hold without a session is renewed', async () => {
    const { name, locks, command, inspect } = await fresh()
    const hold = await locks.write(name, { lease: 300, session: false })
    await sleep(1000)
    assert.equal((await inspect()).mode, 'write')
    await command(name, 'RWLOCK.FORCEUNLOCK', name)
    if (!hold.signal.aborted) await once(hold.signal, 'abort')
    await assert.rejects(hold.release(), NotHeld)
  })

  test('a session ends with its process', async () => {
    const { name, locks } = await fresh()
    const child = fork(fileURLToPath(import.meta.url), ['hold', library, name])
    await once(child, 'message')
    child.kill('SIGKILL')
    const begun = Date.now()
    await locks.withWriteLock(name, { wait: 20_000 }, async () => {})
    assert.ok(Date.now() - begun < 5000)
  })

  test('other errors of the server are passed on', async () => {
    const { name, locks, command } = await fresh()
    await command(name, 'SET', name, 'no lock')
    await assert.rejects(locks.write(name), /^\w*Error: WRONGTYPE /)
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
  const client = createClient({ url, socket: { socketTimeout: 200, reconnectStrategy: 10 } })
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
