"""Read/write locks of a Redis or Valkey server with the rwlock module, for redis-py.

    locks = Locks(redis.Redis(), name="billing")  # one for the whole process
    with locks.write("orders", wait=5, fence=True) as hold:
        save(order, hold.token)
    with locks.read("orders", wait=5):
        ...
    with locks.all(read=["prices"], write=["orders", "stock"], wait=5):
        ...

Copy this file. Licence: that of the module, MIT.
"""

import math
import os
import re
import secrets
import selectors
import socket
import sys
import threading
import time
from contextlib import suppress
from weakref import WeakKeyDictionary

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

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
        self._program = name or os.path.basename(sys.argv[0]) or "python"
        self._reached = self._closed = False
        self._begin()

    def read(self, name, **options):
        """A read (shared) hold, for a `with` block. For the options see `write`."""
        return Hold(self, [name], [], **options)

    def write(self, name, *, linger=None, **options):
        """A write (exclusive) hold, for a `with` block.

        wait:    the seconds to wait at most; None: try once; FOREVER: no limit
        lease:   the seconds that the hold lasts after the server lost its session, or
                 after the last renewal
        session: True: the hold lasts as long as its connection; False: a thread renews it
        fence:   get a fencing token (write holds only)
        on_lost: is called with the hold, in a thread of its own, when the hold is lost
        linger:  the seconds that this process keeps the lock after its use, unless somebody
                 else wants it. Needs rwlock_linger.py

        A thread can take a lock again that it holds.
        """
        if linger:
            from rwlock_linger import Kept

            return Kept(self, name, linger, **options)
        return Hold(self, [], [name], **options)

    def all(self, read=(), write=(), **options):
        """A hold of several locks, taken in one step. For the options see `write`."""
        return Hold(self, read, write, **options)

    def close(self):
        """Close the connections of the helper. Holds that are not released are lost."""
        with self._guard:
            self._closed = True
            for hold in [hold for holds in self._holds.values() for hold in holds]:
                hold._lose()
                if hold._connection:
                    self._unwatch(hold)
                    hold._connection.disconnect()
            for connection in [one for idle in self._idle.values() for one in idle]:
                connection.disconnect()
            self._idle.clear()
            for linger in list(self._lingers.values()):
                linger.close()

    def _begin(self):
        # A child of os.fork begins anew: its parent's holds and connections are not its own.
        self._pid = os.getpid()
        name = f"{self._program[:100]}@{socket.gethostname()[:60]}:{self._pid}"
        self._name = re.sub("[^!-~]", "-", name)
        self._guard = threading.RLock()
        self._thread = threading.local()
        self._holds = {}  # by owner
        self._spent = set()  # owners of which a hold may be left that nobody has
        self._lingers = {}  # by lock: what is kept after its use
        self._idle = WeakKeyDictionary()  # connections that nobody uses, by server
        self._selector = selectors.DefaultSelector()
        self._watcher = None

    def _owner(self):
        """The owner is the thread: re-entry and the search for deadlocks go by it."""
        if self._closed:
            raise RuntimeError("these Locks are closed")
        if self._pid != os.getpid():
            self._begin()
        owner = getattr(self._thread, "owner", None)
        if not owner or owner in self._spent and owner not in self._holds:
            self._spent.discard(owner)
            self._thread.owner = f"{self._name}:{secrets.token_hex(6)}"
        return self._thread.owner

    def _add(self, hold):
        with self._guard:
            if self._closed:
                if hold._connection:
                    hold._connection.disconnect()
                raise RuntimeError("these Locks are closed")
            hold._held = True
            self._holds.setdefault(hold.owner, []).append(hold)
            if not hold._connection:
                threading.Thread(target=hold._renew, daemon=True).start()
                return
            self._selector.register(hold._connection._sock, selectors.EVENT_READ, hold)
            if not self._watcher:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()

    def _remove(self, hold):
        with self._guard:
            if not hold._held:
                raise RuntimeError(f"{hold} was given back already, or never acquired")
            hold._held = False
            hold._done.set()
            self._holds[hold.owner].remove(hold)
            if not self._holds[hold.owner]:
                del self._holds[hold.owner]
            self._unwatch(hold)

    def _unwatch(self, hold):
        with suppress(AttributeError, KeyError, ValueError):
            self._selector.unregister(hold._connection._sock)

    def _watch(self):
        """Runs in a thread while there are sessions, and notices that a connection ended."""
        while True:
            events = self._selector.select(0.2)
            with self._guard:
                for key, _ in events:
                    if key.fileobj not in self._selector.get_map():
                        continue  # its hold has just been released
                    self._selector.unregister(key.fileobj)
                    if _is_open(key.data._connection):
                        self._selector.register(key.fileobj, selectors.EVENT_READ, key.data)
                    else:
                        key.data._lose()
                if not self._selector.get_map():
                    self._watcher = None
                    return

    def _ask(self, hold, words, wait=0, block=False, connection=None):
        """Send a command. When the connection breaks, or while another server takes over,
        send it again until `wait` is up. Returns the reply and the connection."""
        until = time.monotonic() + wait
        cluster = isinstance(self._client, redis.RedisCluster)
        again = cluster  # once more at once, because the map of the cluster may be old
        while True:
            left = max(0.001, until - time.monotonic())
            # The server itself ends a wait in time. It is away if it does so too late.
            limit = (left + 0.4 if block else left) if wait else math.inf
            blocks = ["BLOCK", 0 if wait == FOREVER else math.ceil(left * 1000)]
            try:
                connection = connection or self._connect(hold._names[0], limit)
                connection.send_command(*words, *(blocks if block and wait else []))
                if limit == math.inf:
                    limit = None if wait else connection.socket_timeout
                if not connection.can_read(limit):
                    raise redis.TimeoutError("no reply")
                return connection.read_response(), connection
            except BaseException as error:
                # An error that the server sent says that it did not execute the command.
                again = again and (not connection or isinstance(error, redis.ResponseError))
                if connection:
                    connection.disconnect()
                    connection = None
                # A server that was never reached is not waited for: its address may be wrong.
                if not self._reached or not _passes(error):
                    raise _own(error) from None
                if cluster:
                    with suppress(redis.RedisError):
                        self._client.nodes_manager.initialize()
                if again:
                    again = False
                elif time.monotonic() + 0.1 > until or hold._done.wait(0.1):
                    raise (TimedOut(hold, None, error) if wait else error) from None

    def _connect(self, name, limit):
        """A connection to the server of a lock that nobody else uses."""
        client = self._client
        if isinstance(client, redis.RedisCluster):
            client = client.get_redis_connection(client.get_node_from_key(name))
        pool = client.connection_pool
        with self._guard:
            idle = self._idle.setdefault(pool, [])
            while idle:
                connection = idle.pop()
                if _is_open(connection):
                    return connection
                connection.disconnect()
        settings = {**pool.connection_kwargs, "client_name": None, "retry": Retry(NoBackoff(), 0)}
        if not issubclass(pool.connection_class, redis.UnixDomainSocketConnection):
            settings.update(_KEEPALIVE)
        connection = pool.connection_class(**settings)
        connection.idle = idle
        timeout = connection.socket_timeout
        if limit < math.inf:
            connection.socket_timeout = min(limit, timeout or limit)
            connection.socket_connect_timeout = connection.socket_timeout
        connection.connect()
        connection.socket_timeout = timeout
        self._reached = True
        with suppress(redis.ResponseError):  # an ACL may forbid it
            connection.send_command("CLIENT", "SETNAME", self._name)
            connection.read_response()
        return connection

    def _keep(self, connection):
        with self._guard:
            if self._closed:
                connection.disconnect()
            else:
                connection.idle.append(connection)


class Hold:
    """A lock, held for a `with` block or from `acquire` to `release`.

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
        self._done = threading.Event()  # it was released or lost
        self._connection = None  # of the session
        self._above = None  # the write hold above a read hold, after `upgrade`
        self.owner, self.tokens, self.lost = None, {}, False

    def __str__(self):
        return ", ".join(map(str, self._names))

    @property
    def token(self):
        return next(iter(self.tokens.values())) if len(self.tokens) == 1 else None

    def __enter__(self):
        return self.acquire()

    def __exit__(self, failed, *_):
        # An error of the block is raised rather than one that follows from it.
        with suppress(*([LockError, redis.RedisError, RuntimeError] if failed else [])):
            self.release()

    def acquire(self):
        """Take the lock. Returns this hold."""
        if self._held is not None:
            raise RuntimeError(f"{self} was acquired already: make another hold")
        self.owner, self._pid = self._locks._owner(), os.getpid()
        for name in self._names:
            linger = self._locks._lingers.get(name)
            if linger and linger.is_mine():
                raise Deadlock(f"{name}: this thread holds it with linger")
        for name in self._write:
            if self._others(name) == {"READ"}:
                raise Deadlock(f"{name}: this thread reads it. Use upgrade() of that hold")
        if len(self._names) == 1:
            kind = "W" if self._write else "R"
            return self._take(f"RWLOCK.{kind}LOCK", *self._names, self.owner, self._lease)
        clauses = _clauses(READ=self._read, WRITE=self._write)
        return self._take("RWLOCK.MLOCK", self.owner, self._lease, *clauses)

    def _take(self, *words):
        words = [*words, *["SESSION"] * self._session, *["FENCE"] * self._fence]
        try:
            reply, connection = self._locks._ask(self, words, self._wait, block=True)
        except BaseException as error:
            # Interrupted. A session has ended with its connection; a lease would stay.
            if not isinstance(error, Exception) and not self._session:
                if not any(map(self._others, self._names)):
                    with suppress(LockError, redis.RedisError):
                        self._locks._ask(self, self._unlock())
            raise
        if isinstance(reply, int) or not self._session:
            self._locks._keep(connection)
        if isinstance(reply, int):
            raise TimedOut(self, reply)
        if self._session:
            self._connection = connection
        if self._fence:
            self.tokens = dict(zip(self._write, reply[1:]))
        self._locks._add(self)
        return self

    def release(self):
        """Give the lock back. `NotHeld` says that the hold was lost before."""
        if self._held and self._pid != os.getpid():
            return  # the hold of the parent of this process
        above, self._above = self._above, None
        try:
            if above:
                above.release()
        finally:
            self._locks._remove(self)
            connection, self._connection = self._connection, None
            try:
                if self.lost:
                    raise NotHeld(f"{self} was lost")
                reply, connection = self._give_back(connection)
                if isinstance(reply, list) and -1 in reply:
                    raise NotHeld(f"some of {self} were lost")
                self._locks._keep(connection)
            except BaseException as error:
                # It may last until its lease ends. As another owner this thread waits for that.
                self._locks._spent.add(self.owner)
                if connection:
                    connection.disconnect()
                if self._session and isinstance(error, (redis.ConnectionError, redis.TimeoutError)):
                    raise NotHeld(f"{self} was lost: {error}") from None
                raise

    def _give_back(self, connection):
        """Asks again while the slot of the lock moves, or another server takes over: until
        the lease has ended at the latest."""
        until = time.monotonic() + self._lease / 1000
        while True:
            try:
                return self._locks._ask(self, self._unlock(), connection=connection)
            except redis.RedisError as error:
                broke = isinstance(error, (redis.ConnectionError, redis.TimeoutError))
                if not _passes(error) or broke and self._session:
                    raise
                if time.monotonic() > until:
                    raise NotHeld(f"{self} could not be given back: {error}") from None
            connection = None
            time.sleep(0.05)

    def upgrade(self, wait=None, fence=False):
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
        above.owner, above._pid = self.owner, self._pid
        self._above = above._take("RWLOCK.UPGRADE", name, self.owner, self._lease)
        self.tokens = above.tokens

    def downgrade(self):
        """From write to read, with no gap. Then others may read too."""
        self._expect()
        above, self._above = self._above, None
        self.tokens = {}
        if above:
            above.release()
        elif any(map(self._others, self._write)):
            raise RuntimeError(f"{self}: this thread holds it twice. Release the other hold first")
        while self._write:
            self._tell("RWLOCK.DOWNGRADE", self._write[0], self.owner, self._lease)
            self._read.append(self._write.pop(0))

    def check(self):
        """Ask the server, and let the lease begin anew. `NotHeld` if the hold was lost."""
        self._expect()
        self._check()

    def _check(self, wait=0):
        if len(self._names) == 1:
            self._tell("RWLOCK.RENEW", *self._names, self.owner, self._lease, wait=wait)
        else:
            self._tell("RWLOCK.MRENEW", self.owner, self._lease, *self._names, wait=wait)

    def _expect(self):
        if not self._held or self._pid != os.getpid():
            raise RuntimeError(f"{self} is not held: it was given back, or never acquired")
        if self.lost:
            raise NotHeld(f"{self} was lost")

    def _tell(self, *words, wait=0):
        try:
            reply, connection = self._locks._ask(self, words, wait)
            self._locks._keep(connection)
            if isinstance(reply, list) and 0 in reply:
                raise NotHeld(f"some of {self} were lost")
        except NotHeld:
            self._lose()
            raise

    def _renew(self):
        """Runs in a thread as long as a hold without a session is held."""
        end = time.monotonic() + self._lease / 1000
        while not self._done.wait(self._lease / 3000):
            asked = time.monotonic()
            try:
                self._check(max(0, end - asked))
                end = asked + self._lease / 1000
            except (LockError, redis.RedisError):
                self._lose()

    def _lose(self):
        with self._locks._guard:
            if self._done.is_set():
                return
            self._done.set()
            self.lost = True
        if self._on_lost:
            threading.Thread(target=self._on_lost, args=(self,), daemon=True).start()

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


def _is_open(connection):
    try:
        connection.can_read(0)
        return True
    except redis.RedisError:
        return False


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
