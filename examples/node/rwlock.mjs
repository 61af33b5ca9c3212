// Read/write locks of a Redis or Valkey server with the rwlock module.
//
//     const locks = new Locks(nodeRedis(client), { name: 'nightly-report' })  // or ioredis(client)
//     await locks.withWriteLock('orders', { waitMs: 5000, fence: true }, async (hold) => {
//       await save(order, hold.token)
//     })
//     await locks.withReadLock('orders', async () => { … })
//
// Copy this file and node-redis.mjs or ioredis.mjs. Licence: that of the module, MIT.

import { AsyncLocalStorage } from 'node:async_hooks'
import { randomUUID } from 'node:crypto'
import { hostname } from 'node:os'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

/** The base of all errors of this file. */
export class LockError extends Error {
  get name() {
    return this.constructor.name
  }
}

/**
 * The lock was not granted in time. Its lease ends after `heldMs` ms, unless it is renewed.
 * 0: others are ahead in its queue. -1: it has no expiry. undefined: no server took the
 * request, and `cause` tells why.
 */
export class TimedOut extends LockError {
  constructor(what, heldMs, cause) {
    let why = `its lease ends in ${heldMs} ms, unless it is renewed`
    if (heldMs === 0) why = 'others are ahead in its queue'
    if (heldMs === -1) why = 'it is held without expiry'
    if (heldMs === undefined) why = `no server took the request (${cause.message})`
    super(`${what} was not granted in time: ${why}`, { cause })
    this.heldMs = heldMs
  }
}

/** Each owner would wait for another one. Release your holds, and start again. */
export class Deadlock extends LockError {}

/** The hold was lost. Another owner may have worked at the same time. */
export class NotHeld extends LockError {}

/** You released this hold before. */
export class AlreadyReleased extends LockError {}

/** The server has no rwlock module, or an older one without this command. */
export class NotLoaded extends LockError {}

// `await using` calls this method (Node.js 24, TypeScript 5.2).
const DISPOSE = Symbol.asyncDispose ?? Symbol.for('Symbol.asyncDispose')

/** A hold on one lock, or on several that were taken in one step. */
export class Hold {
  /** An AbortSignal that fires when the hold is lost. */
  signal
  #grants
  #released = false

  constructor(grants) {
    this.#grants = grants
    const signals = grants.map((grant) => grant.signal)
    this.signal = signals.length === 1 ? signals[0] : AbortSignal.any(signals)
  }

  get lost() {
    return this.signal.aborted
  }

  /** A request with this as its option `owner` enters the locks of this hold again. */
  get owner() {
    return this.#grants.at(-1).owner
  }

  /** The fencing token, if you asked for one. */
  get token() {
    return this.tokens.values().next().value
  }

  /** The fencing tokens of several locks: a Map from the lock to its token. */
  get tokens() {
    return new Map(this.#grants.flatMap((grant) => [...grant.tokens]))
  }

  /** Asks the server whether the hold still stands, and makes it last a lease longer. */
  async check() {
    this.#mustBeOpen()
    for (const grant of this.#grants) await grant.check()
  }

  /** From reading to writing, with no gap. Options: `waitMs` and `fence`, as in `write`. */
  async upgrade(options) {
    await this.#only('upgraded').upgrade(options)
  }

  /** From writing to reading, with no gap. */
  async downgrade() {
    await this.#only('downgraded').downgrade()
  }

  async release() {
    this.#mustBeOpen()
    this.#released = true
    await leaveAll(this.#grants)
  }

  async [DISPOSE]() {
    if (!this.#released) await this.release()
  }

  #mustBeOpen() {
    if (this.#released)
      throw new AlreadyReleased(`the hold on ${this.#grants.join(', ')} was released before`)
  }

  #only(done) {
    this.#mustBeOpen()
    const [grant, second] = this.#grants
    if (second || grant.kinds.size > 1)
      throw new LockError(`only a hold on one lock can be ${done}`)
    if (grant.depth > 1) throw new LockError(`${grant} was entered again: it cannot be ${done} now`)
    return grant
  }
}

/** The locks of a server or a cluster. */
export class Locks {
  #connections
  #program
  #grants = new Map() // by owner and lock; PENDING while a request is on its way
  #blocks = new AsyncLocalStorage() // the grants of the blocks around, innermost first

  /** `name`: the name of this job in the owners and connections that the server shows. */
  constructor(server, { name = basename(process.argv[1] ?? 'node') } = {}) {
    if (typeof server?.node !== 'function') {
      throw new TypeError(
        'give nodeRedis(client) or ioredis(client), not the client itself: new Locks(nodeRedis(client))',
      )
    }
    const plain = (text, length) => text.replace(/[^!-~]/g, '-').slice(0, length)
    this.#program = `${plain(name, 100)}@${plain(hostname(), 50)}:${process.pid}`
    this.#connections = new Connections(server, this.#program)
  }

  /**
   * Takes a write (exclusive) hold. `release` it.
   *
   * - waitMs: how long to wait at most. Not given: try once. Infinity: no limit
   * - leaseMs: how long the hold lasts after the server lost its session, or after the last
   *   renewal. Not given: 30 s
   * - session: true or not given: the hold lasts as long as its connection. false: a timer
   *   renews it
   * - fence: get a fencing token (write holds only)
   * - signal: an AbortSignal that ends the wait
   * - owner: `owner` of another hold, to enter its locks again
   */
  async write(lock, options) {
    return new Hold(await this.#take([], [lock], options))
  }

  /** Takes a read (shared) hold. `release` it. Options: as in `write`. */
  async read(lock, options) {
    return new Hold(await this.#take([lock], [], options))
  }

  /** Takes several locks in one step, or none of them: `{ read: […], write: […], …options }` */
  async all({ read = [], write = [], ...options }) {
    return new Hold(await this.#take(read, write, options))
  }

  /** Calls `work` with a write hold, and releases it. A nested call enters a lock again. */
  async withWriteLock(lock, options, work = options) {
    return this.#with(await this.#take([], [lock], options === work ? {} : options), work)
  }

  /** Calls `work` with a read hold, and releases it. A nested call enters a lock again. */
  async withReadLock(lock, options, work = options) {
    return this.#with(await this.#take([lock], [], options === work ? {} : options), work)
  }

  /** Calls `work` with a hold on several locks, and releases it. Options: as in `all`. */
  async withAll({ read = [], write = [], ...options }, work) {
    return this.#with(await this.#take(read, write, options), work)
  }

  /** Ends all timers, waits and connections, and with them the holds. Your client stays open. */
  close() {
    this.#connections.close()
    for (const grant of this.#grants.values()) {
      if (grant !== PENDING) grant.lose(new NotHeld(`${grant}: the Locks were closed`))
    }
  }

  async #with(grants, work) {
    const hold = new Hold(grants)
    let result
    try {
      result = await this.#blocks.run([...grants, ...(this.#blocks.getStore() ?? [])], work, hold)
    } catch (error) {
      // The caller wants the error of the work, not one that follows from it.
      await hold[DISPOSE]().catch(() => {})
      throw error
    }
    await hold[DISPOSE]()
    return result
  }

  /** The grants that cover these locks: those that the caller has already, and a new one. */
  async #take(
    read,
    write,
    { waitMs = 0, leaseMs = 30_000, session = true, fence, signal, owner, ...others } = {},
  ) {
    for (const option in others) throw new TypeError(`there is no option ${option}`)
    mustBeTimes(waitMs, leaseMs)
    const named = [...read, ...write]
    const twice = named.find((lock, i) => named.indexOf(lock) < i)
    if (twice !== undefined) throw new TypeError(`lock ${twice} is named twice`)
    const around = (this.#blocks.getStore() ?? []).filter((grant) => grant.depth > 0)
    const entered = (lock) =>
      owner ? this.#grants.get(`${owner} ${lock}`) : around.find((grant) => grant.kinds.has(lock))

    const grants = new Set()
    const missing = new Map()
    for (const lock of named) {
      const writes = write.includes(lock)
      const grant = entered(lock)
      if (!grant) {
        missing.set(lock, writes ? 'W' : 'R')
      } else if (grant === PENDING) {
        throw new LockError(`the owner of this hold asks for ${lock} already`)
      } else if (writes && grant.kinds.get(lock) === 'R') {
        throw new Deadlock(`you hold ${lock} for reading: upgrade that hold`)
      } else if (writes && fence && !grant.tokens.has(lock)) {
        throw new TypeError(`${lock} is held without a fencing token: ask for it in the outer call`)
      } else {
        grant.signal.throwIfAborted()
        grants.add(grant)
      }
    }

    for (const grant of grants) grant.depth += 1
    if (missing.size > 0) {
      owner ??= this.#ownerIn(around, missing)
      try {
        grants.add(await this.#acquire(owner, missing, { waitMs, leaseMs, session, fence, signal }))
      } catch (error) {
        await leaveAll(grants).catch(() => {})
        throw error
      }
    }
    return [...grants]
  }

  async #acquire(owner, kinds, { waitMs, leaseMs, session, fence, signal }) {
    const names = [...kinds.keys()].map((lock) => `${owner} ${lock}`)
    const forget = () => names.forEach((name) => this.#grants.delete(name))
    names.forEach((name) => this.#grants.set(name, PENDING))
    try {
      const grant = new Grant(this.#connections, owner, kinds, leaseMs, session, forget)
      await grant.acquire(waitMs, fence, signal)
      names.forEach((name) => this.#grants.set(name, grant))
      return grant
    } catch (error) {
      forget()
      throw error
    }
  }

  /** The server finds deadlocks by owner, so a nested request asks as the owner around it. */
  #ownerIn([inner], missing) {
    // Beside this call (Promise.all) the same owner may have a lock: they exclude each other.
    const beside =
      inner && [...missing.keys()].some((lock) => this.#grants.has(`${inner.owner} ${lock}`))
    return inner && !beside ? inner.owner : `${this.#program}:${randomUUID()}`
  }
}

const PENDING = Symbol('pending')

/** Else '5s' would try once, and '5000' would fail in a sum. */
function mustBeTimes(waitMs, leaseMs) {
  if (typeof waitMs !== 'number' || !(waitMs >= 0))
    throw new TypeError('waitMs is a number of milliseconds, 0 or more, or Infinity')
  if (!Number.isSafeInteger(leaseMs) || leaseMs < 1)
    throw new TypeError('leaseMs is a whole number of milliseconds, 1 or more')
}

/** Leaves each grant, and tells the first error. */
async function leaveAll(grants) {
  const ends = await Promise.allSettled([...grants].map((grant) => grant.leave()))
  const failed = ends.find((end) => end.status === 'rejected')
  if (failed) throw failed.reason
}

/** What the server granted to one request. All Holds that enter its locks share it. */
class Grant {
  depth = 1 // how many Holds share it
  tokens = new Map()
  #connections
  #leaseMs
  #session
  #forget
  #connection // to which a session is bound
  #lost = new AbortController()
  #end // when the lease ends, if nobody renews it
  #timer

  /** `kinds`: a Map from each lock to 'R' or 'W'. */
  constructor(connections, owner, kinds, leaseMs, session, forget) {
    Object.assign(this, { owner, kinds, locks: [...kinds.keys()] })
    this.#connections = connections
    this.#leaseMs = leaseMs
    this.#session = session
    this.#forget = forget
  }

  get signal() {
    return this.#lost.signal
  }

  toString() {
    return this.locks.join(', ')
  }

  async acquire(waitMs, fence, signal) {
    const [lock] = this.locks
    const named = (word, kind) => {
      const locks = this.locks.filter((lock) => this.kinds.get(lock) === kind)
      return locks.length ? [word, `${locks.length}`, ...locks] : []
    }
    const words =
      this.locks.length === 1
        ? [`RWLOCK.${this.kinds.get(lock)}LOCK`, lock, this.owner, `${this.#leaseMs}`]
        : [
            'RWLOCK.MLOCK',
            this.owner,
            `${this.#leaseMs}`,
            ...named('READ', 'R'),
            ...named('WRITE', 'W'),
          ]
    try {
      await this.#ask(words, waitMs, fence, { signal })
    } catch (error) {
      // The server may have granted it although no answer came.
      if (!this.#session && error.heldMs === undefined) this.#forsake()
      throw error
    }
    if (this.#connection) {
      this.#connection.onclose = () =>
        this.lose(new NotHeld(`the connection of ${this} was closed`))
    }
    // The server renews a session by itself. To ask shows also a hold that ended while its
    // connection stayed open: by FORCEUNLOCK, or by a failover.
    this.#timer = setInterval(() => this.#renew(), this.#leaseMs / 4)
    if (this.#connections.closed) this.lose(new NotHeld(`${this}: the Locks were closed`))
  }

  async upgrade({ waitMs = 0, fence } = {}) {
    const [lock] = this.locks
    mustBeTimes(waitMs, this.#leaseMs)
    this.signal.throwIfAborted()
    if (this.kinds.get(lock) === 'W') return
    const words = ['RWLOCK.UPGRADE', lock, this.owner, `${this.#leaseMs}`]
    await this.#ask(words, waitMs, fence, { connection: this.#connection }).catch((error) =>
      this.#failed(error),
    )
    this.kinds.set(lock, 'W')
  }

  async downgrade() {
    const [lock] = this.locks
    this.signal.throwIfAborted()
    if (this.kinds.get(lock) === 'R') return
    const words = ['RWLOCK.DOWNGRADE', lock, this.owner, `${this.#leaseMs}`]
    await this.#command(words).catch((error) => this.#failed(error))
    this.kinds.set(lock, 'R')
    this.tokens.clear()
  }

  async check() {
    this.signal.throwIfAborted()
    const asked = performance.now()
    const lease = `${this.#leaseMs}`
    const words =
      this.locks.length === 1
        ? ['RWLOCK.RENEW', ...this.locks, this.owner, lease]
        : ['RWLOCK.MRENEW', this.owner, lease, ...this.locks]
    const reply = await this.#command(words).catch((error) => this.#failed(error))
    if (Array.isArray(reply) && reply.includes(0)) {
      this.#failed(new NotHeld(`${this.locks[reply.indexOf(0)]} is not held any more`))
    }
    this.#end = asked + this.#leaseMs
  }

  lose(reason) {
    clearInterval(this.#timer)
    this.#lost.abort(reason)
  }

  /** One Hold less. The last one gives the locks back. */
  async leave() {
    this.depth -= 1
    if (this.depth > 0) return
    this.#forget()
    clearInterval(this.#timer)
    try {
      await this.#giveBack()
      if (this.#connection) this.#connections.keep(this.#connection)
    } catch (error) {
      this.#connection?.close() // the server gives a session back
      this.#forsake()
      this.#failed(
        passes(error) ? new NotHeld(`${this} could not be given back`, { cause: error }) : error,
      )
    }
  }

  async #giveBack() {
    for (let again = false; ; again = true) {
      this.signal.throwIfAborted()
      try {
        const reply = await this.#command(this.#unlock)
        if (!Array.isArray(reply) || !reply.includes(-1)) return
        throw new NotHeld(`${this.locks[reply.indexOf(-1)]} was not held any more`)
      } catch (error) {
        const inTime = performance.now() < this.#end && !this.signal.aborted
        // The lease has not ended: an earlier request got through, and its answer was lost.
        if (error instanceof NotHeld && again && inTime) return
        if (!passes(error) || !inTime) throw error
      }
      await sleep(100)
    }
  }

  get #unlock() {
    return this.locks.length === 1
      ? ['RWLOCK.UNLOCK', ...this.locks, this.owner, 'ALL']
      : ['RWLOCK.MUNLOCK', this.owner, 'ALL', `${this.locks.length}`, ...this.locks]
  }

  /** Sends a request that may wait. */
  async #ask(words, waitMs, fence, options) {
    words.push(...(this.#session ? ['SESSION'] : []), ...(fence ? ['FENCE'] : []))
    words.push('ONCE') // a request that is sent again after a lost answer counts once
    const { reply, connection } = await this.#connections.ask(
      `${this}`,
      this.locks[0],
      words,
      waitMs,
      options,
    )
    const granted = typeof reply !== 'number'
    if (connection !== this.#connection && !(granted && this.#session))
      this.#connections.keep(connection)
    if (!granted) throw new TimedOut(`${this}`, reply)
    this.#end = performance.now() + this.#leaseMs
    if (fence) {
      const [, ...tokens] = reply
      const written = this.locks.filter(
        (lock) => this.locks.length === 1 || this.kinds.get(lock) === 'W',
      )
      written.forEach((lock, i) => this.tokens.set(lock, Number(tokens[i])))
    }
    if (this.#session) this.#connection = connection
  }

  /** After a failover the hold may still stand, though nobody has it. */
  #forsake() {
    this.#connections.command(this.locks[0], this.#unlock).catch(() => {})
  }

  /** A command that does not wait. */
  async #command(words) {
    // While its server is away, the client may keep a command as long as it likes.
    const end = Math.max(this.#end ?? 0, performance.now() + 1000)
    return within(this.#connections.command(this.locks[0], words), end, this.signal)
  }

  #failed(error) {
    if (error instanceof NotHeld) this.lose(error)
    throw error
  }

  #renew() {
    // Two turns got no answer: there may be no time left for a third one.
    const ended = performance.now() > this.#end - this.#leaseMs * 0.3
    const late = () => this.lose(new NotHeld(`${this} could not be renewed in time`))
    // A process that stalled for a lease keeps a session all the same: ask first.
    if (ended && !this.#session) late()
    else this.check().catch(() => ended && late()) // else the next turn asks again
  }
}

/**
 * A request that waits blocks its connection, and a session lives and dies with its
 * connection. So both get connections of their own, made like that of your client but
 * without its timeouts. All else goes through your client.
 */
class Connections {
  #server
  #name
  #reached = false
  closed = false
  #open = new Set()
  #idle = new Map() // by address

  constructor(server, name) {
    this.#server = server
    this.#name = name
  }

  async command(lock, words) {
    try {
      return await this.#server.command(lock, words)
    } catch (error) {
      throw own(error)
    }
  }

  /** Sends the request until a server takes it or the time is up. */
  async ask(what, lock, words, waitMs, { signal, connection: bound }) {
    const end = performance.now() + waitMs
    const late = end + 800 // a server that hangs does not end the wait itself
    let moved = false
    for (;;) {
      const left = Math.max(1, Math.ceil(end - performance.now()))
      const wait = waitMs > 0 ? ['BLOCK', waitMs === Infinity ? '0' : `${left}`] : []
      let connection = bound
      try {
        connection ??= await this.#connection(lock, late, signal)
        const reply = await within(connection.send([...words, ...wait]), late, signal)
        return { reply, connection }
      } catch (failure) {
        const error = own(failure)
        // Once its connection is closed, the server forgets the waiter.
        if (connection && !(bound && answered(error))) connection.close()
        if (signal?.aborted || !passes(error)) throw error
        if (bound && !answered(error))
          throw new NotHeld(`the connection of ${what} was closed`, { cause: error })
        if (error instanceof Late) throw new TimedOut(what, undefined, error)
        // A server that was never reached may have another address.
        if (!this.#reached) throw error
        const isCluster = this.#server.isCluster
        moved = isCluster && !moved && /^(MOVED|ASK) /.test(error.message)
        if (performance.now() >= end && !moved)
          throw waitMs > 0 ? new TimedOut(what, undefined, error) : error
        if (!moved) await sleep(Math.min(100, left))
        // From a redirection the client of a cluster learns where the lock is now.
        if (isCluster)
          await within(
            this.command(lock, ['EXISTS', lock]),
            Math.min(late, performance.now() + 1000),
          ).catch(() => {})
      }
    }
  }

  keep(connection) {
    const idle = this.#idle.get(connection.address) ?? []
    this.#idle.set(connection.address, idle)
    connection.onclose = () => {}
    if (idle.length < 16) idle.push(connection)
    else connection.close()
  }

  close() {
    this.closed = true
    for (const connection of this.#open) connection.close()
    this.#idle.clear()
  }

  async #connection(lock, late, signal) {
    if (this.closed) throw new LockError('these Locks are closed')
    const { address, connect } = await within(this.#server.node(lock), late, signal)
    const idle = this.#idle.get(address) ?? []
    while (idle.length) {
      const connection = idle.pop()
      if (connection.isOpen()) return connection
    }
    const connection = { address, onclose: () => {} }
    const opening = connect(this.#name, () => {
      this.#open.delete(connection)
      connection.onclose()
    }).then((methods) => {
      this.#open.add(Object.assign(connection, methods))
      if (this.closed) connection.close()
    })
    try {
      await within(opening, late, signal)
    } catch (error) {
      opening.then(
        () => this.keep(connection),
        () => {},
      )
      throw error
    }
    this.#reached = true
    return connection
  }
}

class Late extends Error {}

/** The answer, unless the time is up or the signal fires before it. */
async function within(answer, end, signal) {
  let timer, stop
  const over = new Promise((_, reject) => {
    stop = () => reject(signal.reason)
    if (signal?.aborted) stop()
    signal?.addEventListener('abort', stop)
    const ms = Math.max(0, end - performance.now())
    if (ms < 2 ** 31) timer = setTimeout(() => reject(new Late('no answer came in time')), ms)
  })
  try {
    return await Promise.race([answer, over])
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', stop)
  }
}

/** Whether a server said this; otherwise the connection failed. */
const answered = (error) => /^[A-Z]{2,} /.test(error.message)

/** Whether the request may succeed when another server, or a new connection, takes over. */
function passes(error) {
  if (error instanceof LockError || error instanceof TypeError) return false
  const again = /^(UNBLOCKED|READONLY|LOADING|TRYAGAIN|MOVED|ASK|CLUSTERDOWN|MASTERDOWN) /
  return again.test(error.message) || !answered(error)
}

/** The error of this file that stands for an error of the server. */
function own(error) {
  const { message } = error
  if (message.startsWith('NOTHELD ')) return new NotHeld(message, { cause: error })
  if (message.startsWith('DEADLOCK ')) return new Deadlock(message, { cause: error })
  if (message.startsWith('ERR unknown command')) {
    return new NotLoaded(`the rwlock module is not loaded, or too old: ${message.split(',')[0]}`, {
      cause: error,
    })
  }
  return error
}
