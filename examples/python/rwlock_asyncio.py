"""Read/write locks of a Redis or Valkey server with the rwlock module, for redis-py's asyncio.

    locks = Locks(redis.asyncio.Redis(), name="billing")  # one for the whole process
    async with locks.write("orders", wait=5, fence=True) as hold:
        await save(order, hold.token)
    async with locks.read("orders", wait=5):
        ...
    async with locks.all(read=["prices"], write=["orders", "stock"], wait=5):
        ...

Copy this file. Licence: that of the module, MIT.
"""

import asyncio
import math
import os
import re
import secrets
import socket
import sys
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

FOREVER = math.inf  # a `wait` without limit


class LockError(Exception):
    """The lock was not granted, or it was lost."""


class TimedOut(LockError):
    """The lock was not granted in time.

    `milliseconds`: its lease ends after so many ms, unless it is renewed.
    0: others are ahead in its queue. -1: it has no expiry. None: no server took the request.
    """

    def __init__(self, names, milliseconds, error=None):
        why = f"its lease ends in {milliseconds} ms, unless it is renewed"
        if milliseconds is None:
            why = f"no server took the request ({error})"
        elif milliseconds <= 0:
            why = "it is held without expiry" if milliseconds else "others are ahead in its queue"
        super().__init__(f"{names} was not granted in time: {why}")
        self.milliseconds = milliseconds


class Deadlock(LockError):
    """Each owner would wait for another one. Release your locks and start again."""


class NotHeld(LockError):
    """The hold was lost. Another owner may have worked at the same time."""


class NotLoaded(LockError):
    """The server has no rwlock module, or an older one without this command."""


class Locks:
    """The locks of the server or cluster that `client` is connected to.

    A request that waits blocks its connection, and a session ends with its connection.
    So the helper opens connections of its own, with the settings of `client`. `name`
    tells in RWLOCK.INSPECT and CLIENT LIST which program holds a lock.
    """

    def __init__(self, client, name=None):
        self._client = client
        program = name or os.path.basename(sys.argv[0]) or "python"
        name = f"{program[:100]}@{socket.gethostname()[:60]}:{os.getpid()}"
        self._name = re.sub("[^!-~]", "-", name)
        self._reached = self._closed = False
        self._owners = WeakKeyDictionary()  # by task
        self._holds = {}  # by owner
        self._spent = set()  # owners of which a hold may be left that nobody has
        self._idle = {}  # connections that nobody uses, by server

    def read(self, name, **options):
        """A read (shared) hold, for an `async with` block. For the options see `write`."""
        return Hold(self, [name], [], **options)

    def write(self, name, **options):
        """A write (exclusive) hold, for an `async with` block.

        wait:    the seconds to wait at most; None: try once; FOREVER: no limit
        lease:   the seconds that the hold lasts after the server lost its session, or
                 after the last renewal
        session: True: the hold lasts as long as its connection; False: a task renews it
        fence:   get a fencing token (write holds only)
        on_lost: a function that is called with the hold when the hold is lost

        A task can take a lock again that it holds.
        """
        return Hold(self, [], [name], **options)

    def all(self, read=(), write=(), **options):
        """A hold of several locks, taken in one step. For the options see `write`."""
        return Hold(self, read, write, **options)

    async def aclose(self):
        """Close the connections of the helper. Holds that are not released are lost."""
        self._closed = True
        for hold in [hold for holds in self._holds.values() for hold in holds]:
            hold._lose()
            await hold._stop()
            if hold._connection:
                await hold._connection.disconnect(nowait=True)
        for connection in [one for idle in self._idle.values() for one in idle]:
            await connection.disconnect(nowait=True)
        self._idle.clear()

    def _owner(self):
        """The owner is the task: re-entry and the search for deadlocks go by it."""
        if self._closed:
            raise RuntimeError("these Locks are closed")
        task = asyncio.current_task()
        owner = self._owners.get(task)
        if not owner or owner in self._spent and owner not in self._holds:
            self._spent.discard(owner)
            owner = self._owners[task] = f"{self._name}:{secrets.token_hex(6)}"
        return owner

    async def _ask(self, hold, words, wait=0, block=False, connection=None):
        """Send a command. When the connection breaks, or while another server takes over,
        send it again until `wait` is up. Returns the reply and the connection."""
        until = time.monotonic() + wait
        cluster = isinstance(self._client, redis.asyncio.RedisCluster)
        again = cluster  # once more at once, because the map of the cluster may be old
        while True:
            left = max(0.001, until - time.monotonic())
            # The server itself ends a wait in time. It is away if it does so too late.
            limit = (left + 0.4 if block else left) if 0 < wait < FOREVER else None
            blocks = ["BLOCK", 0 if wait == FOREVER else math.ceil(left * 1000)]
            try:
                async with asyncio.timeout(limit):
                    connection = connection or await self._connect(hold._names[0])
                    await connection.send_command(*words, *(blocks if block and wait else []))
                    # Else the settings of the client limit it.
                    timeout = math.inf if wait else None
                    return await connection.read_response(timeout=timeout), connection
            except BaseException as raised:
                error = redis.TimeoutError("no reply") if type(raised) is TimeoutError else raised
                # An error that the server sent says that it did not execute the command.
                again = again and (not connection or isinstance(error, redis.ResponseError))
                if connection:
                    await connection.disconnect(nowait=True)
                    connection = None
                # A server that was never reached is not waited for: its address may be wrong.
                if not self._reached or not _passes(error):
                    raise _own(error) from None
                if cluster:
                    with suppress(redis.RedisError):
                        await self._client.nodes_manager.initialize()
                if again:
                    again = False
                elif time.monotonic() + 0.1 > until:
                    raise (TimedOut(hold, None, error) if wait else error) from None
                else:
                    await asyncio.sleep(0.1)

    async def _connect(self, name):
        """A connection to the server of a lock that nobody else uses."""
        client = self._client
        if isinstance(client, redis.asyncio.RedisCluster):
            await client.initialize()
            node = client.get_node_from_key(name)
            server = node.name
        else:
            node, server = client.connection_pool, None
        idle = self._idle.setdefault(server, [])
        while idle:
            connection = idle.pop()
            if not connection._reader.at_eof() and not connection._writer.is_closing():
                return connection
            await connection.disconnect(nowait=True)
        settings = {**node.connection_kwargs, "client_name": None, "retry": Retry(NoBackoff(), 0)}
        if not issubclass(node.connection_class, redis.asyncio.UnixDomainSocketConnection):
            settings.update(_KEEPALIVE)
        connection = node.connection_class(**settings)
        connection.idle = idle
        try:
            await connection.connect()
            self._reached = True
            with suppress(redis.ResponseError):  # an ACL may forbid it
                await connection.send_command("CLIENT", "SETNAME", self._name)
                await connection.read_response()
            return connection
        except BaseException:
            await connection.disconnect(nowait=True)
            raise

    async def _keep(self, connection):
        if self._closed:
            await connection.disconnect(nowait=True)
        else:
            connection.idle.append(connection)


class Hold:
    """A lock, held for an `async with` block or from `acquire` to `release`.

    token:  the fencing token, if `fence` was given and there is one write lock
    tokens: the fencing tokens of all write locks, by name
    lost:   whether the hold is known to be lost
    owner:  what RWLOCK.INSPECT calls it
    """

    def __init__(
        self, locks, read, write, wait=None, lease=30, session=True, fence=False, on_lost=None
    ):
        self._locks, self._read, self._write = locks, list(read), list(write)
        self._names = self._read + self._write
        if not self._names or str in (type(read), type(write)):
            raise ValueError("a list with at least one lock is needed")
        self._wait, self._lease = _wait(wait), _milliseconds(lease)
        self._session, self._fence, self._on_lost = session, fence, on_lost
        self._held = None  # False once it was released
        self._keeper = None  # the task that watches or renews it
        self._connection = None  # of the session
        self._above = None  # the write hold above a read hold, after `upgrade`
        self.owner, self.tokens, self.lost = None, {}, False

    def __str__(self):
        return ", ".join(map(str, self._names))

    @property
    def token(self):
        return next(iter(self.tokens.values())) if len(self.tokens) == 1 else None

    async def __aenter__(self):
        return await self.acquire()

    async def __aexit__(self, failed, *_):
        # An error of the block is raised rather than one that follows from it.
        with suppress(*([LockError, redis.RedisError, RuntimeError] if failed else [])):
            await self.release()

    async def acquire(self):
        """Take the lock. Returns this hold."""
        if self._held is not None:
            raise RuntimeError(f"{self} was acquired already: make another hold")
        self.owner = self._locks._owner()
        for name in self._write:
            if self._others(name) == {"READ"}:
                raise Deadlock(f"{name}: this task reads it. Use upgrade() of that hold")
        if len(self._names) == 1:
            kind = "W" if self._write else "R"
            return await self._take(f"RWLOCK.{kind}LOCK", *self._names, self.owner, self._lease)
        clauses = _clauses(READ=self._read, WRITE=self._write)
        return await self._take("RWLOCK.MLOCK", self.owner, self._lease, *clauses)

    async def _take(self, *words):
        words = [*words, *["SESSION"] * self._session, *["FENCE"] * self._fence]
        try:
            reply, connection = await self._locks._ask(self, words, self._wait, block=True)
        except BaseException as error:
            # Cancelled. A session has ended with its connection; a lease would stay.
            if not isinstance(error, Exception) and not self._session:
                if not any(map(self._others, self._names)):
                    with suppress(LockError, redis.RedisError):
                        await self._locks._ask(self, self._unlock())
            raise
        if isinstance(reply, int) or not self._session:
            await self._locks._keep(connection)
        if isinstance(reply, int):
            raise TimedOut(self, reply)
        if self._session:
            self._connection = connection
        if self._fence:
            self.tokens = dict(zip(self._write, reply[1:]))
        if self._locks._closed:
            if self._session:
                await connection.disconnect(nowait=True)
            raise RuntimeError("these Locks are closed")
        self._held = True
        self._locks._holds.setdefault(self.owner, []).append(self)
        self._keeper = asyncio.create_task(self._watch() if self._session else self._renew())
        return self

    async def release(self):
        """Give the lock back. `NotHeld` says that the hold was lost before."""
        above, self._above = self._above, None
        try:
            if above:
                await above.release()
        finally:
            await self._give_back()

    async def _give_back(self):
        if not self._held:
            raise RuntimeError(f"{self} was given back already, or never acquired")
        self._held = False
        self._locks._holds[self.owner].remove(self)
        if not self._locks._holds[self.owner]:
            del self._locks._holds[self.owner]
        connection, self._connection = self._connection, None
        try:
            await self._stop()
            if self.lost:
                raise NotHeld(f"{self} was lost")
            reply, connection = await self._send_back(connection)
            if isinstance(reply, list) and -1 in reply:
                raise NotHeld(f"some of {self} were lost")
            await self._locks._keep(connection)
        except BaseException as error:
            # It may last until its lease ends. As another owner this task waits for that.
            self._locks._spent.add(self.owner)
            if connection:
                await connection.disconnect(nowait=True)
            if self._session and isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
                raise NotHeld(f"{self} was lost: {error}") from None
            raise

    async def _send_back(self, connection):
        """Asks again while the slot of the lock moves, or another server takes over: until
        the lease has ended at the latest."""
        until = time.monotonic() + self._lease / 1000
        while True:
            try:
                return await self._locks._ask(self, self._unlock(), connection=connection)
            except redis.RedisError as error:
                broke = isinstance(error, (redis.ConnectionError, redis.TimeoutError))
                if not _passes(error) or broke and self._session:
                    raise
                if time.monotonic() > until:
                    raise NotHeld(f"{self} could not be given back: {error}") from None
            connection = None
            await asyncio.sleep(0.05)

    async def upgrade(self, wait=None, fence=False):
        """From read to write, with no gap. After `TimedOut` or `Deadlock` it still reads."""
        self._expect()
        if self._above or self._write:
            return
        if len(self._names) > 1:
            raise ValueError(f"{self}: only a hold of one lock can be upgraded")
        name = self._names[0]
        above = Hold(
            self._locks, [], [name], wait, self._lease / 1000, self._session, fence,
            on_lost=lambda _: self._lose(),
        )  # fmt: skip
        above.owner = self.owner
        self._above = await above._take("RWLOCK.UPGRADE", name, self.owner, self._lease)
        self.tokens = above.tokens

    async def downgrade(self):
        """From write to read, with no gap. Then others may read too."""
        self._expect()
        above, self._above = self._above, None
        self.tokens = {}
        if above:
            await above.release()
        elif any(map(self._others, self._write)):
            raise RuntimeError(f"{self}: this task holds it twice. Release the other hold first")
        while self._write:
            await self._tell("RWLOCK.DOWNGRADE", self._write[0], self.owner, self._lease)
            self._read.append(self._write.pop(0))

    async def check(self):
        """Ask the server, and let the lease begin anew. `NotHeld` if the hold was lost."""
        self._expect()
        await self._check()

    async def _check(self, wait=0):
        if len(self._names) == 1:
            await self._tell("RWLOCK.RENEW", *self._names, self.owner, self._lease, wait=wait)
        else:
            await self._tell("RWLOCK.MRENEW", self.owner, self._lease, *self._names, wait=wait)

    def _expect(self):
        if not self._held:
            raise RuntimeError(f"{self} is not held: it was given back, or never acquired")
        if self.lost:
            raise NotHeld(f"{self} was lost")

    async def _tell(self, *words, wait=0):
        try:
            reply, connection = await self._locks._ask(self, words, wait)
            await self._locks._keep(connection)
            if isinstance(reply, list) and 0 in reply:
                raise NotHeld(f"some of {self} were lost")
        except NotHeld:
            self._lose()
            raise

    async def _watch(self):
        """The task of a session. Its idle connection has nothing to read until it ends."""
        with suppress(redis.RedisError, OSError):
            await self._connection.read_response(timeout=math.inf, disconnect_on_error=False)
        self._lose()

    async def _renew(self):
        """The task of a hold without a session."""
        end = time.monotonic() + self._lease / 1000
        while not self.lost:
            await asyncio.sleep(self._lease / 3000)
            asked = time.monotonic()
            try:
                await self._check(max(0, end - asked))
                end = asked + self._lease / 1000
            except (LockError, redis.RedisError):
                self._lose()

    async def _stop(self):
        self._keeper.cancel()
        await asyncio.wait([self._keeper])

    def _lose(self):
        if self._held and not self.lost:
            self.lost = True
            if self._on_lost:
                asyncio.get_running_loop().call_soon(self._on_lost, self)

    def _others(self, name):
        """How this owner holds a lock beside this hold."""
        kinds = set()
        for hold in self._locks._holds.get(self.owner, ()):
            if hold is not self:
                kinds |= {"READ"} if name in hold._read else set()
                kinds |= {"WRITE"} if name in hold._write else set()
        return kinds

    def _unlock(self):
        # The last hold of an owner gives back ALL: also what the server granted to a
        # request whose reply was lost.
        last = [name for name in self._names if not self._others(name)]
        read = [name for name in self._read if name not in last]
        write = [name for name in self._write if name not in last]
        if len(self._names) == 1:
            kind = "ALL" if last else "READ" if read else "WRITE"
            return ["RWLOCK.UNLOCK", *self._names, self.owner, kind]
        return ["RWLOCK.MUNLOCK", self.owner, *_clauses(READ=read, WRITE=write, ALL=last)]


# A server that is gone without a word is noticed within half a minute.
_KEEPALIVE = {
    "socket_keepalive": True,
    "socket_keepalive_options": {
        getattr(socket, option): value
        for option, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, option)
    },
}


def _wait(seconds):
    if seconds is not None and not seconds >= 0:  # NaN too
        raise ValueError(f"wait is a number of seconds, 0 or more, or FOREVER: not {seconds}")
    return seconds or 0


def _milliseconds(lease):
    if not 0.001 <= lease < math.inf:
        raise ValueError(f"lease is a number of seconds, 0.001 or more: not {lease}")
    return round(lease * 1000)


def _clauses(**names):
    """The words of the clauses of MLOCK and MUNLOCK: READ 2 a b WRITE 1 c."""
    return [word for kind, of in names.items() if of for word in (kind, len(of), *of)]


def _passes(error):
    """Whether the error is over when another server has taken over."""
    passing = (
        redis.ConnectionError,  # LOADING too
        redis.TimeoutError,
        redis.ReadOnlyError,
        redis.exceptions.TryAgainError,
        redis.exceptions.AskError,  # MovedError too
        redis.exceptions.ClusterDownError,
        redis.exceptions.SlotNotCoveredError,
    )
    if isinstance(error, redis.AuthenticationError):
        return False
    return isinstance(error, passing) or str(error).startswith("UNBLOCKED")


def _own(error):
    """The error of this module that a server's error stands for."""
    text = str(error)
    if text.startswith("NOTHELD"):
        return NotHeld(text)
    if text.startswith("DEADLOCK"):
        return Deadlock(text)
    if text.startswith("unknown command"):
        return NotLoaded(f"the rwlock module is not loaded, or too old: {text.split(',')[0]}")
    return error
