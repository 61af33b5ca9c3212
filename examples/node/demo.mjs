// Three readers and two writers, each a process, on one lock: `demo.mjs [ioredis]`.
// Prints what happens when.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

import { connect } from './clients.mjs'
import { Locks } from './rwlock.mjs'

const [library = 'node-redis', who] = process.argv.slice(2)

if (who) {
  const { server, close } = await connect(
    library,
    process.env.REDIS_URL ?? 'redis://127.0.0.1:6379',
  )
  const locks = new Locks(server, { name: who })
  process.send('ready')
  const [start] = await once(process, 'message')
  process.disconnect()
  const says = (what) =>
    console.log(`${String(Date.now() - start).padStart(5)} ms  ${who}  ${what}`)
  for (let round = 0; round < 2; round += 1) {
    says('asks')
    if (who.startsWith('writer')) {
      await locks.withWriteLock('demo', { waitMs: Infinity, fence: true }, async (hold) => {
        says(`WRITES, with token ${hold.token}`)
        await sleep(200)
        says('is done')
      })
    } else {
      await locks.withReadLock('demo', { waitMs: Infinity }, async () => {
        says('reads')
        await sleep(300)
        says('is done')
      })
    }
  }
  locks.close()
  close()
} else {
  const people = ['reader 1', 'reader 2', 'writer 1', 'reader 3', 'writer 2']
  const children = people.map((name) => fork(fileURLToPath(import.meta.url), [library, name]))
  const exits = children.map((child) => once(child, 'exit'))
  await Promise.all(children.map((child) => once(child, 'message')))
  const now = Date.now()
  for (const child of children) {
    child.send(now)
    await sleep(100) // so that they ask in this order
  }
  for (const [code] of await Promise.all(exits)) process.exitCode ||= code
}
