"""The option `linger` of rwlock.py: a process keeps a write lock until somebody else wants it.

    with locks.write("orders", wait=5, linger=10) as hold:
        save(order, hold.token)

To enter again asks no server. Needs `notify-keyspace-events Kd` on the server.
"""

import math
import os
import socket
import threading
import time
from contextlib import suppress

import redis
from rwlock import Deadlock, Hold, LockError, NotHeld, TimedOut, _milliseconds, _wait

# Somebody waits, or the hold ended: CLIENT KILL, FORCEUNLOCK, a lease that ran out.
_ENDS = ("rwlock.wait", "rwlock.release", "rwlock.expire")
_MOMENT = 0.05  # seconds in which another thread has given back


class Kept:
    """One use of a lock that the process keeps. It is like a Hold, without `upgrade` and
    `downgrade`. The thread that acquires it releases it. There is always a token."""

    __slots__ = ("_locks", "_name", "_linger", "_options", "_hold", "_used", "_on_lost", "wait")

    def __init__(self, locks, name, linger, wait=None, fence=True, on_lost=None, **options):
        self._locks, self._name, self._linger, self._options = locks, name, linger, options
        self._hold = self._used = None
        self._on_lost, self.wait = on_lost, _wait(wait)
        _milliseconds(options.get("lease", 30))

    def acquire(self):
        if self._hold:
            raise RuntimeError(f"{self._name} was acquired already: make another hold")
        locks = self._locks
        if locks._pid != os.getpid():
            locks._owner()  # a child of os.fork keeps nothing of its parent
        linger = locks._lingers.get(self._name)
        if not linger:
            linger = locks._lingers.setdefault(self._name, _Linger(locks, self._name))
        self._hold = linger.enter(self, self._linger, self._options)
        self._used = linger
        return self

    def release(self):
        """Give the lock back, or keep it. `NotHeld` says that the hold was lost."""
        used = self._expect()
        if used._pid == os.getpid():
            used.leave(self)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, failed, *_):
        # An error of the block is raised rather than one that follows from it.
        with suppress(*([LockError, redis.RedisError, RuntimeError] if failed else [])):
            self.release()

    def check(self):
        """Ask the server. `NotHeld` if the hold was lost."""
        self._expect()
        self._hold.check()

    @property
    def lost(self):
        return bool(self._hold) and self._hold.lost

    @property
    def owner(self):
        return self._hold and self._hold.owner

    @property
    def token(self):
        return self._hold and self._hold.token

    @property
    def tokens(self):
        return self._hold.tokens if self._hold else {}

    def _expect(self):
        if not self._used:
            raise RuntimeError(f"{self._name} is not held: it was given back, or never acquired")
        return self._used


class _Linger:
    """A lock that the process keeps. A thread that uses it, takes it or gives it back has
    `_use`: one at a time. Another thread listens to the key events of the lock, renews the
    hold that is kept, and gives it back."""

    def __init__(self, locks, name):
        self._locks, self._name, self._pid = locks, name, os.getpid()
        # Of no thread: who only keeps a lock must not be part of a deadlock.
        self._owner = f"{locks._owner()}:linger:{name}"
        self._use = threading.RLock()
        self._entered = []  # the uses: several if a thread enters again
        self._user = None  # its thread
        self._hold = None
        self._safe_until = 0  # of the hold; 0: it is not kept yet
        self._wanted = False  # give back as soon as nobody uses it
        self._heard = False  # this server does send key events
        self._ear = None  # the subscribed connection
        self._last = time.monotonic()
        self._linger = self._lease = 1

    def is_mine(self):
        return self._user == threading.get_ident()

    def enter(self, kept, linger, options):
        begun = time.monotonic()
        if not self._use.acquire(timeout=min(max(kept.wait, _MOMENT), threading.TIMEOUT_MAX)):
            raise TimedOut(self._name, round(self._lease * 1000))
        try:
            hold = self._hold
            if self._entered:  # by this thread
                if hold.lost:
                    raise NotHeld(f"{self._name}: this thread lost its hold. Release it first")
            else:
                self._linger = linger
                # The clock is asked again: this thread may have waited.
                if not hold or self._wanted or hold.lost or time.monotonic() >= hold.safe_until:
                    self._give_back()
                    hold = self._take(kept.wait, begun, options)
                self._user = threading.get_ident()
            self._entered.append(kept)
            return hold
        except BaseException:
            self._use.release()
            raise

    def leave(self, kept):
        if not self.is_mine():
            raise RuntimeError(f"{self._name}: with linger the thread that took it releases it")
        hold = self._hold
        try:
            self._entered.remove(kept)
            if not self._entered:
                self._user = None
                if not self._stays(hold):
                    self._hold = None
                    hold.release()
            if hold.lost:
                raise NotHeld(f"{self._name} was lost")
        finally:
            kept._used = None
            self._last = time.monotonic()
            self._use.release()
            # An event that came before this release found the lock in use.
            if self._wanted:
                self._give_back_unused()

    def close(self):
        # For the thread that listens: to `disconnect` would let it connect again.
        with suppress(AttributeError, OSError):
            self._ear._sock.shutdown(socket.SHUT_RDWR)

    def _take(self, wait, begun, options):
        locks = self._locks
        if any(self._name in hold._names for hold in locks._holds.get(locks._owner(), ())):
            raise Deadlock(f"{self._name}: this thread holds it without linger")
        self._lease = options.get("lease", 30)
        if not self._ear:
            self._subscribe(wait)
        if wait:
            wait = max(0.001, wait - (time.monotonic() - begun))
        hold = Hold(locks, [], [self._name], wait, fence=True, on_lost=self._tell, **options)
        hold.owner, hold._pid, hold.safe_until = self._owner, os.getpid(), 0
        self._hold = hold._take("RWLOCK.WLOCK", self._name, self._owner, hold._lease)
        return hold

    def _tell(self, hold):
        for kept in list(self._entered):
            if kept._on_lost:
                kept._on_lost(kept)

    def _stays(self, hold):
        """At the end of a use: whether the hold is kept."""
        if not hold.safe_until:
            # Who began to wait before INSPECT is seen by it, who came later is heard.
            self._wanted = False
            if not self._ear or not self._heard:
                return False
            try:
                self._renew(hold)
                if self._ask("RWLOCK.INSPECT", self._name, "COUNT", 1)["waiters_total"]:
                    return False
            except (LockError, redis.RedisError):
                return False  # the release finds out what is wrong
        return not self._wanted and not hold.lost

    def _renew(self, hold):
        asked = time.monotonic()
        hold._check()
        # A tenth of the lease is for clocks that differ.
        hold.safe_until = asked + self._lease * 0.9

    def _give_back(self):
        """Only with `_use`."""
        hold, self._hold = self._hold, None
        if hold:
            with suppress(LockError, redis.RedisError, RuntimeError):
                hold.release()

    def _give_back_unused(self):
        if self._use.acquire(blocking=False):  # else it is in use: `leave` looks again
            try:
                if self._wanted and not self._entered:
                    self._give_back()
            finally:
                self._use.release()

    def _ask(self, *words):
        reply, connection = self._locks._ask(_Question([self._name]), words)
        self._locks._keep(connection)
        if isinstance(reply, list):
            reply = dict(zip(reply[::2], reply[1::2]))
        return {_text(name): value for name, value in reply.items()}

    def _subscribe(self, wait):
        """Before the lock is taken. Without a subscription the lock is not kept."""
        ear = None
        try:
            try:
                setting = self._ask("CONFIG", "GET", "notify-keyspace-events")
                flags = _text(setting["notify-keyspace-events"])
                if "K" not in flags or not set("dA") & set(flags):
                    raise LockError("linger needs key events: CONFIG SET notify-keyspace-events Kd")
                self._heard = True
            except redis.ResponseError:
                self._heard = False  # forbidden: until the event of an own grant is heard
            ear = self._locks._connect(self._name, wait or math.inf)
            database = getattr(ear, "db", 0) or 0
            ear.send_command("SUBSCRIBE", f"__keyspace@{database}__:{_text(self._name)}")
            ear.read_response(push_request=True)
        except (redis.ConnectionError, redis.TimeoutError):
            if ear:
                ear.disconnect()
            return  # to take the lock will fail too, or the next time will do
        self._ear = ear
        if self._locks._closed:
            self.close()
        threading.Thread(target=self._listen, args=(ear,), daemon=True).start()

    def _listen(self, ear):
        renewed = time.monotonic()
        try:
            while True:
                now = time.monotonic()
                unused = 0 if self._entered else now - self._last
                pause = min(self._linger - unused, self._lease / 3 - (now - renewed))
                if ear.can_read(max(0.001, pause)):
                    event = _text(ear.read_response(push_request=True)[2])
                    if event == "rwlock.acquire":
                        self._heard = True
                    elif event in _ENDS:
                        self._wanted = True
                        self._give_back_unused()
                now = time.monotonic()
                if now - renewed >= self._lease / 3:
                    renewed = now
                    hold = self._hold
                    if hold and hold.safe_until:
                        # After an error it is not safe any more when the lease is over.
                        with suppress(LockError, redis.RedisError):
                            self._renew(hold)
                if now - self._last >= self._linger and self._use.acquire(blocking=False):
                    try:
                        if time.monotonic() - self._last >= self._linger:
                            self._give_back()
                            self._ear = None
                            return
                    finally:
                        self._use.release()
        except Exception:  # of any kind: from now on nobody would be heard
            self._ear = None
            self._wanted = True
            self._give_back_unused()
        finally:
            ear.disconnect()


class _Question:
    """What `Locks._ask` has to know of a request."""

    def __init__(self, names):
        self._names, self._done = names, threading.Event()


def _text(word):
    return word.decode() if isinstance(word, bytes) else word
