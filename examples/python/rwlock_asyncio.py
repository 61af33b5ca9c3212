"""Read/write locks of a Redis or Valkey server with the rwlock module, for redis-py's asyncio.

    locks = Locks(redis.asyncio.Redis())
    async with locks.write("orders", wait=5, fence=True) as hold:
        await save(order, hold.token)
    async with locks.read("orders"):
        ...

Copy this file. Licence: that of the module, MIT.
"""

import asyncio
import os
import socket
import time
import uuid
from contextlib import asynccontextmanager, suppress
from weakref import WeakKeyDictionary

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

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
        self._renewer = None
        self._depth = 1

    async def check(self):
        """Ask the server whether the hold is still there, and make it last a lease longer."""
        try:
            await self._locks._command("RWLOCK.RENEW", self.name, self.owner, self.lease)
        except NotHeld:
            self.lost = True
            raise

    async def _renew(self):
        """Runs as a task of its own while a hold without a session is held."""
        renewed = time.monotonic()
        while True:
            await asyncio.sleep(self.lease / 3000)
            asked = time.monotonic()
            try:
                await self.check()
                renewed = asked
            except NotHeld:
                return
            except redis.RedisError:
                # Another try in a third of a lease; but who heard of nothing for
                # a whole lease has to take the hold for lost.
                self.lost = time.monotonic() - renewed >= self.lease / 1000


class _Task:
    """What a task is called, and what it holds."""

    def __init__(self):
        self.owner = f"{_PROCESS}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
        self.held = {}


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
        self._tasks = WeakKeyDictionary()

    async def aclose(self):
        """Close the connections that are kept for later. `client` stays open."""
        for pool in self._pools.values():
            await pool.aclose()

    def read(self, name, **options):
        """A read (shared) hold, for an `async with` block. For the options see `write`."""
        return self._hold("R", name, **options)

    def write(self, name, **options):
        """A write (exclusive) hold, for an `async with` block.

        wait:    how many seconds to wait at most; None: for ever; 0: not at all
        lease:   how many seconds it outlives what keeps it alive
        session: True: the server keeps it alive as long as its connection is open, and
                 no longer. False: a task renews it
        fence:   hand out a fencing token (write holds only)

        A task that enters a lock again, of the same kind, is in already.
        """
        return self._hold("W", name, **options)

    @asynccontextmanager
    async def _hold(self, kind, name, wait=None, lease=30.0, session=True, fence=False):
        # By task, not by hold: re-entry and the search for deadlocks go by the owner.
        task = self._tasks.setdefault(asyncio.current_task(), _Task())
        hold = task.held.get((kind, name))
        if hold:
            if fence and hold.token is None:
                raise ValueError(f"{name} is held without a fencing token: ask for it there")
            hold._depth += 1
        else:
            hold = Hold(self, kind, name, task.owner, max(1, round(lease * 1000)))
            await self._acquire(hold, wait, session, fence)
            task.held[kind, name] = hold
        failed = True
        try:
            yield hold
            failed = False
        finally:
            hold._depth -= 1
            if not hold._depth:
                del task.held[kind, name]
                # What went wrong inside is told rather than what follows from it.
                with suppress(*([LockError, redis.RedisError] if failed else [])):
                    await self._release(hold)

    async def _acquire(self, hold, wait, session, fence):
        # ONCE: a request that is sent again after a lost reply counts once.
        words = ["SESSION"] * session + ["FENCE"] * fence + ["ONCE"]
        until = None if wait is None else time.monotonic() + wait
        while True:
            left = 0 if until is None else max(1, round((until - time.monotonic()) * 1000))
            block = [] if wait == 0 else ["BLOCK", left]
            connection = None
            try:
                connection = await self._dedicated(hold.name)
                self._reached = True
                reply = await connection.execute_command(
                    f"RWLOCK.{hold.kind}LOCK", hold.name, hold.owner, hold.lease, *block, *words
                )
            except BaseException as error:
                await self._abandon(connection, hold, error)
                # Who was never reached is not waited for: the address may be wrong.
                over = until is not None and time.monotonic() >= until
                if not self._reached or over or not _passes(error):
                    raise _own(error) from None
                await asyncio.sleep(0.1)
                continue
            if isinstance(reply, int):
                await connection.aclose()
                raise TimedOut(hold.name, reply)
            hold.token = reply[1] if fence else None
            if session:
                hold._connection = connection
            else:
                await connection.aclose()
                hold._renewer = asyncio.create_task(hold._renew())
            return

    async def _release(self, hold):
        if hold._renewer:
            hold._renewer.cancel()
        kind = "READ" if hold.kind == "R" else "WRITE"
        try:
            await self._command("RWLOCK.UNLOCK", hold.name, hold.owner, kind)
        except BaseException:
            if hold._connection:
                await hold._connection.connection.disconnect()  # the server gives it back
            raise
        finally:
            if hold._connection:
                await hold._connection.aclose()

    async def _command(self, *words):
        try:
            return await self._client.execute_command(*words)
        except redis.ResponseError as error:
            raise _own(error) from None

    async def _dedicated(self, name):
        """A client with one connection, which goes back to its pool with `aclose`."""
        client = self._client
        if isinstance(client, redis.asyncio.RedisCluster):
            await client.initialize()
            node = client.get_node_from_key(name)
            made, kind, kwargs = node.name, node.connection_class, node.connection_kwargs
        else:
            theirs = client.connection_pool
            made, kind, kwargs = "", theirs.connection_class, theirs.connection_kwargs
        pool = self._pools.get(made)
        if not pool:
            kwargs = dict(kwargs, socket_timeout=None, retry=_NO_RETRY)
            if not issubclass(kind, redis.asyncio.UnixDomainSocketConnection):
                kwargs.update(_KEEPALIVE)
            pool = redis.asyncio.ConnectionPool(kind, max_connections=10**6, **kwargs)
            self._pools[made] = pool
        connection = redis.asyncio.Redis(connection_pool=pool, single_connection_client=True)
        return await connection.initialize()

    async def _abandon(self, connection, hold, error):
        """Leave the queue, and whatever was granted without our hearing of it."""
        if connection:
            await connection.connection.disconnect()
            await connection.aclose()
        if isinstance(self._client, redis.asyncio.RedisCluster) and isinstance(
            error, (redis.ConnectionError, redis.exceptions.MovedError)
        ):
            with suppress(redis.RedisError):
                await self._client.nodes_manager.initialize()
        if not isinstance(error, Exception):  # a task that was cancelled, and the like
            with suppress(LockError, redis.RedisError):
                await self._release(hold)


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
