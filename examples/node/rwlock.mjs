// Read/write locks of a Redis or Valkey server with the rwlock module.
//
//     const locks = new Locks(nodeRedis(client))    // or ioredis(client)
//     await locks.withWriteLock('orders', { wait: 5000, fence: true }, async (hold) => {
//       await save(order, hold.token)
//     })
//     await locks.withReadLock('orders', async () => { … })
//
// Copy this file and node-redis.mjs or ioredis.mjs. Licence: that of the module, MIT.

import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

/** The lock could not be had, or was lost. */
export class LockError extends Error {
  get name() {
    return this.constructor.name
  }
}

/** It was not granted in time. `milliseconds`: how long others keep it at most (-1: no end). */
export class TimedOut extends LockError {
  constructor(lock, milliseconds) {
    super(`${lock} was not granted in time`)
    this.milliseconds = milliseconds
  }
}

/** Waiting for it would close a circle. Give back your own locks, and begin again. */
export class Deadlock extends LockError {}

/** The hold had ended before it was given back: somebody else may have worked meanwhile. */
export class NotHeld extends LockError {}

/** A hold that is yours. */
export class Hold {
  #shared
  #released = false

  constructor(shared) {
    this.#shared = shared
  }

  /** Pass it on as `owner` to lock inside a lock: re-entry and deadlocks go by it. */
  get owner() {
    return this.#shared.owner
  }

  /** The fencing token, if one was asked for. */
  get token() {
    return this.#shared.token
  }

  /** An AbortSignal that fires when the hold is known to be lost. */
  get signal() {
    return this.#shared.lost.signal
  }

  /** Asks the server whether the hold is still there, and makes it last a lease longer. */
  check() {
    return this.#shared.check()
  }

  async release() {
    if (this.#released) return
    this.#released = true
    await this.#shared.leave()
  }

  // For `await using hold = await locks.write(…)`, where the language has it.
  [Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')]() {
    return this.release()
  }
}

/** The locks of a server or a cluster. */
export class Locks {
  #server
  #reached = false
  #idle = new Map() // connections, by node
  #held = new Map() // promises of what is held, by owner, kind and lock

  /**
   * Who waits blocks its connection, and a session lives and dies with its
   * connection. So both get connections of their own, made like those of the
   * client but without its timeouts; all else goes through the client itself.
   */
  constructor(server) {
    this.#server = server
  }

  /** Runs `work` with a read (shared) hold. For the options see `write`. */
  withReadLock(lock, options, work = options) {
    return this.#with('R', lock, options, work)
  }

  /** Runs `work` with a write (exclusive) hold. For the options see `write`. */
  withWriteLock(lock, options, work = options) {
    return this.#with('W', lock, options, work)
  }

  /** Takes a read (shared) hold; `release` it. For the options see `write`. */
  read(lock, options) {
    return this.#hold('R', lock, options)
  }

  /**
   * Takes a write (exclusive) hold; `release` it.
   *
   * - wait: how many ms to wait at most. Nothing: for ever. 0: not at all
   * - lease: how many ms it outlives what keeps it alive
   * - session: true: the server keeps it alive as long as its connection is open, and no
   *   longer. false: a timer renews it
   * - fence: hand out a fencing token (write holds only)
   * - owner: that of a hold in which this one is taken. It is in already where that is in
   */
  write(lock, options) {
    return this.#hold('W', lock, options)
  }

  /** Closes the connections that are kept for later. The client stays open. */
  close() {
    for (const idle of this.#idle.values()) idle.forEach((connection) => connection.close())
    this.#idle.clear()
  }

  async #with(kind, lock, options, work) {
    const hold = await this.#hold(kind, lock, options === work ? {} : options)
    let result
    try {
      result = await work(hold)
    } catch (error) {
      // What went wrong inside is told rather than what follows from it.
      await hold.release().catch(() => {})
      throw error
    }
    await hold.release()
    return result
  }

  async #hold(kind, lock, { owner = randomUUID(), ...options } = {}) {
    const key = `${owner} ${kind} ${lock}`
    let entry = this.#held.get(key)
    if (!entry) {
      entry = { depth: 0, taken: this.#acquire(kind, lock, owner, options) }
      this.#held.set(key, entry)
    }
    entry.depth += 1
    const left = () => {
      entry.depth -= 1
      if (entry.depth === 0) this.#held.delete(key)
      return entry.depth === 0
    }
    try {
      const taken = await entry.taken
      if (options.fence && taken.token === undefined) {
        throw new TypeError(`${lock} is held without a fencing token: ask for it there`)
      }
      return new Hold({ ...taken, owner, leave: async () => left() && taken.release() })
    } catch (error) {
      left()
      throw error
    }
  }

  async #acquire(kind, lock, owner, { wait, lease = 30_000, session = true, fence = false }) {
    const until = wait === undefined ? Infinity : Date.now() + wait
    for (;;) {
      const left = until === Infinity ? 0 : Math.max(1, until - Date.now())
      const words = [`RWLOCK.${kind}LOCK`, lock, owner, `${lease}`]
      if (wait !== 0) words.push('BLOCK', `${left}`)
      if (session) words.push('SESSION')
      if (fence) words.push('FENCE')
      words.push('ONCE') // a request that is sent again after a lost reply counts once
      let connection, reply
      try {
        connection = await this.#connection(lock)
        this.#reached = true
        reply = await connection.send(words)
      } catch (error) {
        connection?.close() // leaves the queue
        // Who was never reached is not waited for: the address may be wrong.
        if (!this.#reached || !passes(error) || Date.now() >= until) throw own(error)
        await sleep(100)
        // The client itself learns the way to the server of this lock.
        await Promise.race([this.#server.command(lock, ['EXISTS', lock]).catch(() => {}), sleep(1000)])
        continue
      }
      if (typeof reply === 'number' || !session) this.#keep(connection)
      if (typeof reply === 'number') throw new TimedOut(lock, reply)
      const token = fence ? Number(reply[1]) : undefined
      return this.#taken(kind, lock, owner, lease, token, session ? connection : undefined)
    }
  }

  #taken(kind, lock, owner, lease, token, connection) {
    const lost = new AbortController()
    const command = (...words) =>
      this.#server.command(lock, words).catch((error) => {
        throw own(error)
      })
    const check = async () => {
      try {
        await command('RWLOCK.RENEW', lock, owner, `${lease}`)
      } catch (error) {
        if (error instanceof NotHeld) lost.abort(error)
        throw error
      }
    }
    let renewer
    if (connection) {
      connection.onclose = () => lost.abort(new NotHeld(`the connection of ${lock} was closed`))
    } else {
      let renewed = Date.now()
      renewer = setInterval(async () => {
        const asked = Date.now()
        try {
          await check()
          renewed = asked
        } catch (error) {
          // Another try in a third of a lease; but who heard of nothing for a whole
          // lease has to take the hold for lost.
          if (Date.now() - renewed >= lease) lost.abort(new NotHeld(`${lock} was not renewed`))
        }
      }, lease / 3)
    }
    const release = async () => {
      clearInterval(renewer)
      if (connection) connection.onclose = () => {}
      try {
        await command('RWLOCK.UNLOCK', lock, owner, kind === 'R' ? 'READ' : 'WRITE')
      } catch (error) {
        connection?.close() // the server gives it back
        throw error
      }
      if (connection) this.#keep(connection)
    }
    return { token, lost, check, release }
  }

  async #connection(lock) {
    const node = await this.#server.node(lock)
    const idle = this.#idle.get(node.name) ?? []
    while (idle.length) {
      const connection = idle.pop()
      if (connection.isOpen()) return connection
    }
    const connection = { node: node.name, onclose: () => {} }
    return Object.assign(connection, await node.connect(() => connection.onclose()))
  }

  #keep(connection) {
    const idle = this.#idle.get(connection.node) ?? []
    this.#idle.set(connection.node, idle)
    idle.push(connection)
  }
}

/** Whether it is over when another server has taken over. */
function passes(error) {
  const [word] = error.message.split(' ', 1)
  if (/^(UNBLOCKED|READONLY|LOADING|TRYAGAIN|MOVED|ASK|CLUSTERDOWN|MASTERDOWN)$/.test(word)) return true
  // What is no answer of a server says that the connection failed.
  return !/^[A-Z]{2,}$/.test(word) && !(error instanceof TypeError)
}

/** The error of this module that a server's error stands for. */
function own(error) {
  if (/^NOTHELD /.test(error.message)) return new NotHeld(error.message)
  if (/^DEADLOCK /.test(error.message)) return new Deadlock(error.message)
  return error
}
