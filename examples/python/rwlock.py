"""Read/write locks of a Redis or Valkey server with the rwlock module, for redis-py.

    locks = Locks(redis.Redis())
    with locks.write("orders", wait=5, fence=True) as hold:
        save(order, hold.token)
    with locks.read("orders"):
        ...

Copy this file. Licence: that of the module, MIT.
"""

import os
import socket
import threading
import time
import uuid
from contextlib import contextmanager, suppress

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

_PROCESS = uuid.uuid4().hex


class LockError(Exception):
    """The lock could not be had, or was lost."""


class TimedOut(LockError):
    """It was not granted in time. `milliseconds` is how long others keep it at most (-1: no end)."""

    def __init__(self, name, milliseconds):
        super().__init__(f"{name} was not granted in time")
        self.milliseconds = milliseconds


class Deadlock(LockError):
    """Waiting for it would close a circle. Leave your own locks, and begin again."""


class NotHeld(LockError):
    """The hold had ended before it was given back: somebody else may have worked meanwhile."""


class Hold:
    """A hold that is yours. `token` is its fencing token, if one was asked for."""

    def __init__(self, locks, kind, name, owner, lease):
        self.kind, self.name, self.owner, self.lease = kind, name, owner, lease
        self.token = None
        #: Whether it is known to be lost. (While it is not, `check` asks the server.)
        self.lost = False
        self._locks = locks
        self._connection = None  # that a session hold is bound to
        self._done = threading.Event()
        self._depth = 1

    def check(self):
        """Ask the server whether the hold is still there, and make it last a lease longer."""
        try:
            self._locks._command("RWLOCK.RENEW", self.name, self.owner, self.lease)
        except NotHeld:
            self.lost = True
            raise

    def _renew(self):
        """Runs in a thread of its own while a hold without a session is held."""
        renewed = time.monotonic()
        while not self._done.wait(self.lease / 3000):
            asked = time.monotonic()
            try:
                self.check()
                renewed = asked
            except NotHeld:
                return
            except redis.RedisError:
                # Another try in a third of a lease; but who heard of nothing for
                # a whole lease has to take the hold for lost.
                self.lost = time.monotonic() - renewed >= self.lease / 1000


class Locks:
    """The locks of a server, or of a cluster, that `client` is connected to.

    Who waits blocks its connection, and a session lives and dies with its
    connection. So both get connections of their own, made like those of `client`
    but without its read timeout; all else goes through `client` itself.
    """

    def __init__(self, client):
        self._client = client
        self._reached = False
        self._pools = {}
        self._local = threading.local()

    def read(self, name, **options):
        """A read (shared) hold, for a `with` block. For the options see `write`."""
        return self._hold("R", name, **options)

    def write(self, name, **options):
        """A write (exclusive) hold, for a `with` block.

        wait:    how many seconds to wait at most; None: for ever; 0: not at all
        lease:   how many seconds it outlives what keeps it alive
        session: True: the server keeps it alive as long as its connection is open, and
                 no longer. False: a thread renews it
        fence:   hand out a fencing token (write holds only)

        A thread that enters a lock again, of the same kind, is in already.
        """
        return self._hold("W", name, **options)

    @contextmanager
    def _hold(self, kind, name, wait=None, lease=30.0, session=True, fence=False):
        # By thread and process, not by hold: re-entry and the search for
        # deadlocks go by the owner.
        owner = f"{_PROCESS}:{os.getpid()}:{threading.get_ident()}"
        held = self._local.__dict__.setdefault("held", {})
        hold = held.get((owner, kind, name))
        if hold:
            if fence and hold.token is None:
                raise ValueError(f"{name} is held without a fencing token: ask for it there")
            hold._depth += 1
        else:
            hold = Hold(self, kind, name, owner, max(1, round(lease * 1000)))
            self._acquire(hold, wait, session, fence)
            held[owner, kind, name] = hold
        failed = True
        try:
            yield hold
            failed = False
        finally:
            hold._depth -= 1
            if not hold._depth:
                del held[owner, kind, name]
                # What went wrong inside is told rather than what follows from it.
                with suppress(*([LockError, redis.RedisError] if failed else [])):
                    self._release(hold)

    def _acquire(self, hold, wait, session, fence):
        # ONCE: a request that is sent again after a lost reply counts once.
        words = ["SESSION"] * session + ["FENCE"] * fence + ["ONCE"]
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = 0 if until is None else max(1, round((until - time.monotonic()) * 1000))
            block = [] if wait == 0 else ["BLOCK", left]
            connection = None
            try:
                connection = self._dedicated(hold.name)
                self._reached = True
                reply = connection.execute_command(
                    f"RWLOCK.{hold.kind}LOCK", hold.name, hold.owner, hold.lease, *block, *words
                )
            except BaseException as error:
                self._abandon(connection, hold, error)
                # Who was never reached is not waited for: the address may be wrong.
                over = until is not None and time.monotonic() >= until
                if not self._reached or over or not _passes(error):
                    raise _own(error) from None
                time.sleep(0.1)
                continue
            if isinstance(reply, int):
                connection.close()
                raise TimedOut(hold.name, reply)
            hold.token = reply[1] if fence else None
            if session:
                hold._connection = connection
            else:
                connection.close()
                threading.Thread(target=hold._renew, daemon=True).start()
            return

    def _release(self, hold):
        hold._done.set()
        kind = "READ" if hold.kind == "R" else "WRITE"
        try:
            self._command("RWLOCK.UNLOCK", hold.name, hold.owner, kind)
        except BaseException:
            if hold._connection:
                hold._connection.connection.disconnect()  # the server gives it back
            raise
        finally:
            if hold._connection:
                hold._connection.close()

    def _command(self, *words):
        try:
            return self._client.execute_command(*words)
        except redis.ResponseError as error:
            raise _own(error) from None

    def _dedicated(self, name):
        """A client with one connection, which goes back to its pool with `close`."""
        node = self._client
        if isinstance(node, redis.RedisCluster):
            node = node.get_redis_connection(node.get_node_from_key(name))
        theirs = node.connection_pool
        pool = self._pools.get(id(theirs))
        if not pool:
            kwargs = dict(theirs.connection_kwargs, socket_timeout=None, retry=_NO_RETRY)
            if not issubclass(theirs.connection_class, redis.UnixDomainSocketConnection):
                kwargs.update(_KEEPALIVE)
            pool = redis.ConnectionPool(theirs.connection_class, max_connections=10**6, **kwargs)
            pool.made_like = theirs  # keeps its id from being another's
            self._pools[id(theirs)] = pool
        return redis.Redis(connection_pool=pool, single_connection_client=True)

    def _abandon(self, connection, hold, error):
        """Leave the queue, and whatever was granted without our hearing of it."""
        if connection:
            connection.connection.disconnect()
            connection.close()
        if isinstance(self._client, redis.RedisCluster) and isinstance(
            error, (redis.ConnectionError, redis.exceptions.MovedError)
        ):
            with suppress(redis.RedisError):
                self._client.nodes_manager.initialize()
        if not isinstance(error, Exception):  # KeyboardInterrupt and the like
            with suppress(LockError, redis.RedisError):
                self._release(hold)


_NO_RETRY = Retry(NoBackoff(), 0)  # `_acquire` tries again itself

# So that a server which is gone is noticed within half a minute.
_KEEPALIVE = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, option): value
        for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, option)
    },
}


def _passes(error):
    """Whether it is over when another server has taken over."""
    return isinstance(
        error,
        (
            redis.ConnectionError,  # LOADING too
            redis.TimeoutError,
            redis.ReadOnlyError,
            redis.exceptions.TryAgainError,
            redis.exceptions.MovedError,
            redis.exceptions.ClusterDownError,
            redis.exceptions.SlotNotCoveredError,
        ),
    ) and not isinstance(error, redis.AuthenticationError) or str(error).startswith("UNBLOCKED")


def _own(error):
    """The error of this module that a server's error stands for."""
    for word, kind in (("NOTHELD", NotHeld), ("DEADLOCK", Deadlock)):
        if str(error).startswith(word):
            return kind(str(error))
    return error
