// Takes locks of a cluster until it is told to stop, checks that nobody is in who must not
// be, and notes how long each answer took: `worker.mjs <name>`. See README.md.

import fs from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'

import { connect } from './clients.mjs'
import { Locks, NotHeld, TimedOut } from './rwlock.mjs'

const [name] = process.argv.slice(2)
const { RWLOCK_URL, RWLOCK_LOCKS, RWLOCK_MARKS: marks, RWLOCK_ANSWERS } = process.env
const { server, close } = await connect('node-redis', RWLOCK_URL, true)
const locks = new Locks(server, { name })
const answers = fs.openSync(RWLOCK_ANSWERS, 'w')

const note = (line) => fs.writeSync(answers, `${line}\n`)
const violation = (text) => note(`VIOLATION ${text}`)

async function write(lock, hold) {
  const mark = `${marks}/${lock}.writer`
  const token = `${marks}/${lock}.token`
  try {
    fs.closeSync(fs.openSync(mark, 'wx'))
  } catch {
    return violation(`${lock}: another writer beside ${name}`)
  }
  const readers = fs.readdirSync(marks).filter((file) => file.startsWith(`${lock}.reader.`))
  if (readers.length > 0) violation(`${lock}: ${readers} beside the writer ${name}`)
  const last = fs.existsSync(token) ? Number(fs.readFileSync(token, 'utf8')) : 0
  if (hold.token <= last) violation(`${lock}: token ${hold.token} after ${last}`)
  fs.writeFileSync(token, `${hold.token}`)
  await sleep(Math.random() * 3)
  fs.unlinkSync(mark)
}

async function read(lock) {
  const mark = `${marks}/${lock}.reader.${name}`
  fs.writeFileSync(mark, '')
  if (fs.existsSync(`${marks}/${lock}.writer`)) {
    violation(`${lock}: a writer beside the reader ${name}`)
  }
  await sleep(Math.random() * 3)
  fs.unlinkSync(mark)
}

const among = (list) => list[Math.floor(Math.random() * list.length)]
while (!fs.existsSync(`${marks}/stop`)) {
  const lock = among(RWLOCK_LOCKS.split(' '))
  const options = { waitMs: 60_000, leaseMs: 3000, session: Math.random() < 0.5 }
  const asked = Date.now()
  const begun = performance.now()
  let took
  let outcome = 'ok'
  try {
    if (Math.random() < 0.4) {
      await locks.withWriteLock(lock, { ...options, fence: true }, async (hold) => {
        took = performance.now() - begun
        await write(lock, hold)
      })
    } else {
      await locks.withReadLock(lock, options, async () => {
        took = performance.now() - begun
        await read(lock)
      })
    }
  } catch (error) {
    if (error instanceof TimedOut) outcome = 'timeout'
    else if (error instanceof NotHeld) outcome = 'lost'
    else throw error
  }
  note(`${asked} ${(took ?? performance.now() - begun).toFixed(1)} ${outcome}`)
}
locks.close()
close()
