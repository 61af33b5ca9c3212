// Takes locks for a while, in turns with the workers of all other languages, and checks
// that nobody else is in: `worker.mjs <node-redis or ioredis> <name>`. See ../README.md.

import { setTimeout as sleep } from 'node:timers/promises'

import { connect } from './clients.mjs'
import { Locks, TimedOut } from './rwlock.mjs'

const [library, name] = process.argv.slice(2)
const { RWLOCK_URL, RWLOCK_CLUSTER, RWLOCK_LOCKS, RWLOCK_SECONDS = '10' } = process.env
const { server, command, close } = await connect(library, RWLOCK_URL, Boolean(RWLOCK_CLUSTER))
const locks = new Locks(server, { name })
const counts = { reads: 0, writes: 0, timeouts: 0, violations: 0 }

function expect(holds, what) {
  if (holds) return
  counts.violations += 1
  console.error(`${name}: ${what}`)
}

async function write(lock) {
  const witness = (verb, key, ...words) => command(lock, verb, `{${lock}}:witness:${key}`, ...words)
  await locks.withWriteLock(lock, { waitMs: 5000, fence: true }, async (hold) => {
    expect((await witness('SET', 'w', name, 'NX')) === 'OK', `${lock}: another writer`)
    const readers = Number((await witness('GET', 'r')) ?? 0)
    expect(readers === 0, `${lock}: ${readers} readers beside a writer`)
    const last = Number((await witness('GET', 'token')) ?? 0)
    expect(hold.token > last, `${lock}: token ${hold.token} after ${last}`)
    await witness('SET', 'token', `${hold.token}`)
    await sleep(Math.random() * 3)
    await witness('DEL', 'w')
  })
  counts.writes += 1
}

async function read(lock) {
  await locks.withReadLock(lock, { waitMs: 5000 }, async () => {
    await command(lock, 'INCR', `{${lock}}:witness:r`)
    const writer = await command(lock, 'GET', `{${lock}}:witness:w`)
    expect(writer === null, `${lock}: the writer ${writer} beside a reader`)
    await sleep(Math.random() * 3)
    await command(lock, 'DECR', `{${lock}}:witness:r`)
  })
  counts.reads += 1
}

const among = (list) => list[Math.floor(Math.random() * list.length)]
const end = Date.now() + Number(RWLOCK_SECONDS) * 1000
while (Date.now() < end) {
  try {
    await among([write, read, read])(among(RWLOCK_LOCKS.trim().split(/\s+/)))
  } catch (error) {
    if (!(error instanceof TimedOut)) throw error
    counts.timeouts += 1
  }
}
locks.close()
close()
console.log(JSON.stringify({ name, library, ...counts }))
process.exitCode = counts.violations > 0 || counts.reads + counts.writes === 0 ? 1 : 0
