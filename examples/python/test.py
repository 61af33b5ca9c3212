"""Tests of the helpers, on the server at RWLOCK_URL. It is no cluster and serves nobody else.

They start more servers, of RWLOCK_SERVER with RWLOCK_MODULE, on Unix sockets. `row N` is
the number of a promise in the table of ../README.md.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid

import redis
import redis.asyncio

import rwlock
import rwlock_asyncio

URL = os.environ["RWLOCK_URL"]
WRONG_WAITS = (-1, -0.1, float("nan"), float("-inf"))
WRONG_LEASES = (0, 0.0001, -1, float("nan"), float("inf"))


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.005)


def as_dict(reply):
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))


@contextlib.contextmanager
def seconds(least, most):
    begun = time.monotonic()
    yield
    taken = time.monotonic() - begun
    assert least <= taken <= most, f"it took {taken:.3f} s"


class Server:
    """A server of its own, on a Unix socket."""

    def __init__(self, module=True):
        self.folder = tempfile.mkdtemp()
        self.path = f"{self.folder}/socket"
        self.module = []
        if module:
            listed = redis.Redis.from_url(URL, decode_responses=True).module_list()
            path = os.environ.get("RWLOCK_MODULE") or as_dict(listed[0])["path"]
            self.module = ["--loadmodule", path]
        self.start()

    def start(self):
        server = os.environ.get("RWLOCK_SERVER", "redis-server")
        options = ["--port", "0", "--unixsocket", self.path, "--dir", self.folder, "--save", ""]
        self.process = subprocess.Popen([server, *options, *self.module], stdout=subprocess.DEVNULL)
        client = self.client()

        def answers():
            with contextlib.suppress(redis.ConnectionError):
                return client.ping()

        until(answers)

    def client(self, kind=redis, **options):
        return kind.Redis(unix_socket_path=self.path, decode_responses=True, **options)

    def kill(self):
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()

    def remove(self):
        self.kill()
        shutil.rmtree(self.folder)


class Loading(socketserver.ThreadingUnixStreamServer):
    """A server that still loads its data: it answers every lock command with LOADING."""

    daemon_threads = True

    def __init__(self):
        self.folder = tempfile.mkdtemp()
        self.path = f"{self.folder}/socket"
        super().__init__(self.path, LoadingHandler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def client(self, kind=redis):
        return kind.Redis(unix_socket_path=self.path, protocol=2)

    def remove(self):
        self.shutdown()
        self.server_close()
        shutil.rmtree(self.folder)


class LoadingHandler(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            words = []
            for _ in range(int(line[1:])):
                words.append(self.rfile.read(int(self.rfile.readline()[1:]) + 2)[:-2])
            loading = words[0].startswith(b"RWLOCK.")
            reply = b"-LOADING Redis is loading the dataset in memory" if loading else b"+OK"
            self.wfile.write(reply + b"\r\n")


class Base(unittest.TestCase):
    def setUp(self):
        self.name = f"test:{uuid.uuid4()}"
        self.client = redis.Redis.from_url(URL, decode_responses=True)
        self.locks = rwlock.Locks(self.client, name="the test")
        self.addCleanup(self.client.close)
        self.addCleanup(self.locks.close)

    def inspect(self, word, name=None):
        return as_dict(self.client.execute_command("RWLOCK.INSPECT", name or self.name))[word]

    def waiter(self):
        until(lambda: self.inspect("waiters_total") == 1)
        return as_dict(self.inspect("waiters")[0])

    def holder(self):
        return as_dict(self.inspect("holders")[0])

    def force(self):
        self.client.execute_command("RWLOCK.FORCEUNLOCK", self.name)

    @contextlib.contextmanager
    def thread(self, work):
        """Do it in another thread, which is another owner. It has to succeed."""
        failed = []

        def run():
            try:
                work()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield thread
        finally:
            thread.join(30)
        self.assertFalse(thread.is_alive())
        if failed:
            raise failed[0]

    def elsewhere(self, work):
        with self.thread(work):
            pass

    def take(self, hold):
        with hold:
            return hold

    def refused(self, hold):
        with self.assertRaises(rwlock.TimedOut) as caught, hold:
            pass
        return caught.exception

    def own(self, **options):
        server = Server(**options)
        self.addCleanup(server.remove)
        locks = rwlock.Locks(server.client())
        self.addCleanup(locks.close)
        return server, locks


class Sync(Base):
    def test_row_1_wait(self):
        with self.locks.write(self.name):
            for options in ({}, {"wait": None}, {"wait": 0}):
                hold = self.locks.read(self.name, **options)
                with seconds(0, 0.5):
                    self.elsewhere(lambda hold=hold: self.refused(hold))
            with seconds(0.3, 1):
                self.elsewhere(lambda: self.refused(self.locks.read(self.name, wait=0.3)))
        hold = self.locks.write(self.name).acquire()
        with self.thread(lambda: self.take(self.locks.read(self.name, wait=rwlock.FOREVER))):
            self.assertEqual(self.waiter()["timeout"], 0)
            hold.release()

    def test_row_1_a_time_that_makes_no_sense_is_refused(self):
        refused = [{"wait": wait} for wait in WRONG_WAITS]
        refused += [{"lease": lease} for lease in WRONG_LEASES]
        for options in refused:
            word = next(iter(options))
            for take in (self.locks.read, self.locks.write):
                with self.assertRaisesRegex(ValueError, f"^{word} is a number of seconds, 0"):
                    take(self.name, **options)
            with self.assertRaisesRegex(ValueError, f"^{word} is a number of seconds, 0"):
                self.locks.write(self.name, linger=1, **options)
        with self.locks.read(self.name, wait=0.5, lease=0.5) as hold:
            with self.assertRaises(ValueError):
                hold.upgrade(wait=-1)
            hold.check()
        self.assertEqual(self.inspect("mode"), "free")

    def test_row_2_a_session_ends_with_its_process(self):
        code = (
            "import redis, rwlock, sys, time\n"
            "with rwlock.Locks(redis.Redis.from_url(sys.argv[1])).write(sys.argv[2]):\n"
            "    print('in', flush=True)\n"
            "    time.sleep(60)\n"
        )
        child = subprocess.Popen(
            [sys.executable, "-c", code, URL, self.name], stdout=subprocess.PIPE, text=True
        )
        self.assertEqual(child.stdout.readline(), "in\n")
        self.assertNotEqual(self.holder()["session"], 0)
        child.kill()
        child.communicate()
        with seconds(0, 5):
            self.take(self.locks.write(self.name, wait=20))

    def test_row_2_a_lease_is_renewed(self):
        with self.locks.write(self.name, lease=0.3, session=False):
            self.assertEqual(self.holder()["session"], 0)
            time.sleep(1)  # three leases
            self.assertEqual(self.inspect("mode"), "write")
        self.assertEqual(self.inspect("mode"), "free")

    def test_row_3_a_thread_enters_again(self):
        for session in (True, False):
            with self.locks.write(self.name, session=session):
                with self.locks.write(self.name, session=session):
                    with self.locks.read(self.name, session=session):
                        self.elsewhere(lambda: self.refused(self.locks.read(self.name)))
                self.assertEqual(self.holder()["holds"], 1)
                self.elsewhere(self.in_a_fork)
            self.assertEqual(self.inspect("mode"), "free")

    def test_row_3_holds_are_released_in_any_order(self):
        for session in (True, False):
            first = self.locks.write(self.name, session=session).acquire()
            second = self.locks.write(self.name, session=session).acquire()
            first.release()
            self.assertEqual(self.inspect("mode"), "write")
            second.check()
            second.release()
            self.assertEqual(self.inspect("mode"), "free")

    def test_row_3_a_reader_that_asks_to_write_is_told_at_once(self):
        with self.locks.read(self.name):
            for wait in (None, 10):
                with seconds(0, 1), self.assertRaises(rwlock.Deadlock):
                    self.take(self.locks.write(self.name, wait=wait))
        self.assertEqual(self.inspect("mode"), "free")

    def in_a_fork(self):
        with self.locks.write(f"{self.name}:fork") as hold:
            child = os.fork()
            if not child:
                status = 1
                try:
                    with self.assertRaises(rwlock.TimedOut), self.locks.write(f"{self.name}:fork"):
                        pass
                    with self.assertRaises(RuntimeError):
                        hold.check()
                    hold.release()
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            hold.check()

    def test_row_4_upgrade_and_downgrade(self):
        for session in (True, False):
            with self.locks.read(self.name, session=session) as hold:
                hold.upgrade(wait=5, fence=True)
                self.assertEqual(self.inspect("mode"), "write")
                self.assertEqual(hold.token, self.inspect("fence"))
                hold.downgrade()
                self.assertEqual(self.inspect("mode"), "read")
                self.assertIsNone(hold.token)
                hold.upgrade()
                hold.check()
            self.assertEqual(self.inspect("mode"), "free")
            with self.locks.write(self.name, session=session) as hold:
                with self.thread(lambda: self.take(self.locks.read(self.name, wait=20))):
                    self.waiter()
                    hold.downgrade()
                self.assertEqual(self.inspect("mode"), "read")
                hold.check()
                with self.locks.read(self.name, session=session) as inner:
                    inner.upgrade()
                self.assertEqual(self.inspect("mode"), "read")
            self.assertEqual(self.inspect("mode"), "free")

    def test_row_4_an_upgrade_that_is_refused_still_reads(self):
        with self.locks.read(self.name) as hold:
            other = threading.Event()
            with self.thread(lambda: self.read_until(other)):
                until(lambda: self.inspect("holders_total") == 2)
                with self.assertRaises(rwlock.TimedOut):
                    hold.upgrade()
                with self.assertRaises(rwlock.TimedOut):
                    hold.upgrade(wait=0.1)
                hold.check()
                other.set()
            with self.locks.write(self.name + "2") as outer, self.locks.write(self.name + "2"):
                with self.assertRaises(RuntimeError):
                    outer.downgrade()

    def read_until(self, event):
        with self.locks.read(self.name):
            event.wait(20)

    def test_row_5_several_locks_in_one_step(self):
        a, b, c = (f"{{{self.name}}}{letter}" for letter in "abc")
        for session in (True, False):
            options = {"wait": 5, "session": session}
            with self.locks.all(read=[a], write=[b, c], fence=True, **options) as hold:
                self.assertEqual(self.inspect("mode", a), "read")
                tokens = {name: self.inspect("fence", name) for name in (b, c)}
                self.assertEqual(hold.tokens, tokens)
                hold.check()
                self.elsewhere(lambda: self.refused(self.locks.all(write=[c, a])))
                with self.locks.all(read=[a, c + "2"]) as readers:
                    self.assertRaises(ValueError, readers.upgrade)
                with self.locks.all(read=[a], write=[b], session=session):
                    pass
                self.assertEqual(self.inspect("mode", b), "write")
                hold.downgrade()
                self.assertEqual(self.inspect("mode", b), "read")
            for name in (a, b, c):
                self.assertEqual(self.inspect("mode", name), "free")
        with self.assertRaises(rwlock.NotHeld), self.locks.all(write=[a, b]):
            self.client.execute_command("RWLOCK.FORCEUNLOCK", b)
        self.assertEqual(self.inspect("mode", a), "free")
        self.assertRaises(ValueError, self.locks.all)
        self.assertRaises(ValueError, self.locks.all, write="abc")
        for names in ({"read": [c, a, a]}, {"read": [a], "write": [a]}):
            with self.assertRaisesRegex(redis.ResponseError, "is named twice"):
                self.take(self.locks.all(wait=5, **names))

    def test_row_6_acquire_and_release(self):
        hold = self.locks.write(self.name, wait=5).acquire()
        self.assertEqual(self.inspect("mode"), "write")
        self.elsewhere(hold.release)  # of any thread
        self.assertEqual(self.inspect("mode"), "free")

    def test_row_7_the_name(self):
        with self.locks.write(self.name) as hold:
            self.assertRegex(hold.owner, r"^the-test@\S+:\d+:\w+$")
            self.assertEqual(self.holder()["owner"], hold.owner)
            client = self.client.client_list(client_id=[str(self.holder()["session"])])[0]
            self.assertEqual(client["name"], hold.owner.rpartition(":")[0])
        owner = rwlock.Locks(self.client, name="ä\n" * 999)._owner()
        self.assertLessEqual(len(owner.encode()), 200)
        self.assertRegex(owner, "^-+@")
        self.assertIn(os.path.basename(sys.argv[0]), rwlock.Locks(self.client)._owner())

    def test_row_8_a_lost_session_is_noticed(self):
        told = []
        with self.assertRaises(rwlock.NotHeld):
            with self.locks.write(self.name, on_lost=told.append) as hold:
                self.client.client_kill_filter(_id=self.holder()["session"])
                until(lambda: hold.lost and told == [hold], 1)
                self.assertRaises(rwlock.NotHeld, hold.check)
        with self.assertRaises(rwlock.NotHeld), self.locks.write(self.name):
            self.client.client_kill_filter(_id=self.holder()["session"])
        with self.assertRaises(rwlock.NotHeld), self.locks.read(self.name) as hold:
            hold.upgrade()
            sessions = [as_dict(holder)["session"] for holder in self.inspect("holders")]
            self.client.client_kill_filter(_id=max(sessions))
            until(lambda: hold.lost, 1)
        until(lambda: self.inspect("mode") == "free")

    def test_row_8_what_is_left_of_a_lost_hold_is_waited_for(self):
        hold = self.locks.read(self.name, lease=0.5, session=False).acquire()
        hold._lose()  # as in a failover, after which the server still has the hold
        with self.assertRaises(rwlock.NotHeld):
            hold.release()
        # The same owner would wait for itself.
        with self.locks.write(self.name, wait=5):
            pass

    def test_row_8_a_lost_lease_is_noticed(self):
        told = []
        options = {"lease": 1, "session": False, "on_lost": told.append}
        with self.assertRaises(rwlock.NotHeld), self.locks.write(self.name, **options) as hold:
            self.force()
            until(lambda: hold.lost and told == [hold], 1)
        with self.assertRaises(rwlock.NotHeld), self.locks.write(self.name) as hold:
            self.force()
            self.assertRaises(rwlock.NotHeld, hold.check)
            self.assertTrue(hold.lost)
        with self.assertRaises(ZeroDivisionError), self.locks.write(self.name):
            self.force()
            1 / 0

    def test_row_8_a_lease_ends_on_time_when_the_server_hangs(self):
        server, locks = self.own()
        with self.assertRaises(rwlock.NotHeld), locks.write("a", lease=1, session=False) as hold:
            held = time.monotonic()
            server.process.send_signal(signal.SIGSTOP)
            until(lambda: hold.lost, 3)
            self.assertLess(time.monotonic() - held, 1.2)
            server.process.send_signal(signal.SIGCONT)

    def test_row_9_a_holder_knows_of_a_restart_before_the_next_one_has_the_lock(self):
        server, locks = self.own()
        knew = []

        def next_one():
            with locks.write("a", wait=20):
                knew.append(hold.lost)

        with self.assertRaises(rwlock.NotHeld), locks.write("a") as hold:
            with self.thread(next_one):
                watch = server.client()
                inspect = lambda: as_dict(watch.execute_command("RWLOCK.INSPECT", "a"))
                until(lambda: inspect()["waiters_total"] == 1)
                server.kill()
                server.start()
        self.assertEqual(knew, [True])

    def test_row_10_deadlines_hold_during_a_failover(self):
        server, locks = self.own()
        for session in (True, False):
            options = {"wait": 1, "session": session}
            self.take(locks.write("a"))
            server.client().replicaof("127.0.0.1", 1)
            with seconds(0.8, 2):
                self.assertIsNone(self.refused(locks.write("a", **options)).milliseconds)
            with self.assertRaises(redis.ReadOnlyError):  # without patience
                self.take(locks.write("a"))
            server.client().replicaof("NO", "ONE")
            self.take(locks.write("a"))
            server.process.send_signal(signal.SIGSTOP)
            for _ in range(2):  # with an idle connection, with a new one
                with seconds(0.8, 2):
                    self.refused(locks.write("a", **options))
            server.kill()
            with seconds(0.8, 2):
                self.refused(locks.write("a", **options))
            with seconds(0, 0.5), self.assertRaises(redis.ConnectionError):
                self.take(locks.write("a"))
            server.start()
        loading = Loading()
        self.addCleanup(loading.remove)
        with seconds(0.8, 2):
            self.refused(rwlock.Locks(loading.client()).write("a", wait=1))

    def test_row_10_a_waiter_outlives_a_failover(self):
        hold = self.locks.read(self.name).acquire()
        with self.thread(lambda: self.take(self.locks.write(self.name, wait=20))) as thread:
            self.waiter()
            self.client.replicaof("127.0.0.1", 1)
            until(lambda: self.inspect("waiters_total") == 0)
            time.sleep(0.3)  # meanwhile it is told READONLY, more than once
            self.assertTrue(thread.is_alive())
            self.client.replicaof("NO", "ONE")
            self.waiter()
            hold.release()

    def test_row_10_a_waiter_asks_again_when_its_connection_breaks(self):
        hold = self.locks.read(self.name).acquire()
        with self.thread(lambda: self.take(self.locks.write(self.name, wait=20))):
            self.client.client_kill_filter(_id=self.waiter()["client"])
            until(lambda: self.inspect("waiters_total") == 0)
            self.waiter()
            hold.release()

    def test_a_wait_is_not_cut_short_by_the_timeout_of_the_client(self):
        hasty = rwlock.Locks(redis.Redis.from_url(URL, socket_timeout=0.2))
        hold = self.locks.write(self.name).acquire()
        with self.thread(lambda: self.take(hasty.write(self.name, wait=20))):
            client = self.waiter()["client"]
            time.sleep(0.6)  # three timeouts
            self.assertEqual(self.waiter()["client"], client, "it is the same wait")
            hold.release()
        hasty.close()

    def test_row_11_a_server_that_was_never_reached_fails_at_once(self):
        for wait in (None, 5, rwlock.FOREVER):
            nobody = rwlock.Locks(redis.Redis(port=1))
            with seconds(0, 1), self.assertRaises(redis.ConnectionError):
                self.take(nobody.write(self.name, wait=wait))

    def test_row_12_nothing_remains_after_close(self):
        before = set(threading.enumerate())
        locks = rwlock.Locks(self.client, name="closed")
        lease = locks.write(self.name, lease=0.5, session=False).acquire()
        session = locks.write(self.name + "2").acquire()
        self.take(locks.write(self.name + "3"))
        locks.close()
        until(lambda: set(threading.enumerate()) <= before, 2)
        until(lambda: self.inspect("mode") == "free", 2)
        listed = lambda: [c for c in self.client.client_list() if c["name"].startswith("closed")]
        until(lambda: not listed(), 2)
        for hold in (lease, session):
            self.assertTrue(hold.lost)
            self.assertRaises(rwlock.NotHeld, hold.release)
        self.assertRaises(RuntimeError, locks.write(self.name).acquire)

    def test_row_12_threads_end_without_close(self):
        before = set(threading.enumerate())
        for session in (True, False):
            self.take(self.locks.write(self.name, session=session))
        until(lambda: set(threading.enumerate()) <= before, 2)

    def test_row_13_a_second_release(self):
        hold = self.locks.write(self.name).acquire()
        hold.release()
        for misuse in (hold.release, hold.check, hold.upgrade, hold.downgrade, hold.acquire):
            self.assertRaises(RuntimeError, misuse)
        self.assertRaises(RuntimeError, self.locks.write(self.name).release)

    def test_row_14_a_server_without_the_module(self):
        _, locks = self.own(module=False)
        with self.assertRaisesRegex(rwlock.NotLoaded, "the rwlock module is not loaded"):
            self.take(locks.write("a", wait=5))

    def test_row_15_how_long_it_is_still_held(self):
        with self.locks.write(self.name, lease=20):
            error = []
            self.elsewhere(lambda: error.append(self.refused(self.locks.write(self.name))))
            self.assertTrue(15000 < error[0].milliseconds <= 20000)
            self.assertIn(f"ends in {error[0].milliseconds} ms, unless it is renewed", str(error[0]))
            self.client.persist(self.name)
            self.elsewhere(lambda: error.append(self.refused(self.locks.write(self.name))))
            self.assertEqual(error[1].milliseconds, -1)
            self.assertIn("without expiry", str(error[1]))

    def test_row_16_a_deadlock_of_two_locks(self):
        met = threading.Barrier(2)
        told = []

        def take(first, second):
            with self.locks.write(self.name + first):
                met.wait()
                try:
                    self.take(self.locks.write(self.name + second, wait=20))
                except rwlock.Deadlock:
                    told.append(first)

        with self.thread(lambda: take("a", "b")):
            take("b", "a")
        self.assertEqual(len(told), 1)

    def test_row_16_errors(self):
        for kind in (rwlock.TimedOut, rwlock.Deadlock, rwlock.NotHeld, rwlock.NotLoaded):
            self.assertTrue(issubclass(kind, rwlock.LockError))
        self.client.set(self.name, "no lock")
        with self.assertRaises(redis.ResponseError):
            self.take(self.locks.write(self.name))

    def test_row_17_fencing_tokens(self):
        with self.locks.write(self.name, fence=True) as first:
            pass
        with self.locks.write(self.name, fence=True) as second:
            self.assertGreater(second.token, first.token)
            self.assertEqual(second.tokens, {self.name: second.token})
        self.assertIsNone(self.take(self.locks.write(self.name)).token)


class Linger(Base):
    """Row 18: a process keeps a lock until somebody else wants it."""

    def setUp(self):
        super().setUp()
        self.client.config_set("notify-keyspace-events", "Kd")
        self.addCleanup(self.client.config_set, "notify-keyspace-events", "")
        self.other = rwlock.Locks(self.client, name="other")
        self.addCleanup(self.other.close)

    def use(self, locks=None, **options):
        """The token of one use."""
        with (locks or self.locks).write(self.name, **{"wait": 5, "linger": 30, **options}) as hold:
            return hold.token

    def connections(self, kind):
        mine = [c for c in self.client.client_list(kind) if c["name"].startswith("the-test@")]
        return [c["id"] for c in mine]

    def test_row_18_entering_again_asks_no_server(self):
        def commands():
            stats = self.client.info("commandstats")
            return {name: stats[name]["calls"] for name in stats if "info" not in name}

        token = self.use()
        before = commands()
        for _ in range(1000):
            with self.locks.write(self.name, linger=30) as hold:
                self.assertEqual((hold.token, hold.lost), (token, False))
                self.use()
        self.assertEqual(commands(), before)
        self.assertEqual(self.inspect("mode"), "write")

    def test_row_18_who_wants_it_gets_it_at_once(self):
        first = self.use()
        with seconds(0, 1):
            second = self.use(self.other)
        self.assertGreater(second, first)
        with seconds(0, 1), self.other.write("x" + self.name, wait=5, linger=30):
            self.assertGreater(self.use(), second)

    def test_row_18_a_use_is_not_cut_short(self):
        self.use()
        hold = self.locks.write(self.name, linger=30).acquire()
        with self.thread(lambda: self.use(self.other)):
            self.waiter()
            time.sleep(0.1)
            hold.check()
            hold.release()

    def test_row_18_somebody_waited_before_the_grant(self):
        # Handed from one to the next while a third waits: then no event tells of that one.
        third = rwlock.Locks(self.client)
        self.addCleanup(third.close)
        hold = self.locks.write(self.name, linger=30).acquire()
        with self.thread(lambda: self.use(self.other)), self.thread(lambda: self.use(third)):
            until(lambda: self.inspect("waiters_total") == 2)
            hold.release()
            begun = time.monotonic()
        self.assertLess(time.monotonic() - begun, 2)

    def test_row_18_a_hold_that_ended_is_not_entered(self):
        ends = {
            "session": lambda: self.client.client_kill_filter(_id=self.holder()["session"]),
            "subscription": lambda: self.client.client_kill_filter(_id=self.connections("pubsub")[0]),
            "force": self.force,
        }
        for name, end in ends.items():
            with self.subTest(name):
                token = self.use()
                end()
                until(lambda: self.inspect("mode") == "free")
                time.sleep(0.1)
                self.assertGreater(self.use(), token)
                self.assertEqual(self.inspect("mode"), "write")

    def test_row_18_the_time_is_over(self):
        before = set(threading.enumerate())
        with seconds(0.3, 3):
            self.use(linger=0.3)
            until(lambda: self.inspect("mode") == "free")
        until(lambda: set(threading.enumerate()) <= before, 2)
        self.assertEqual(self.connections("pubsub"), [])

    def test_row_18_a_lease_is_renewed_and_its_end_is_known(self):
        for session in (True, False):
            server, locks = self.own()
            server.client().config_set("notify-keyspace-events", "KA")
            with locks.write("a", linger=60, lease=1, session=session) as hold:
                token = hold.token
            time.sleep(1.5)
            with locks.write("a", linger=60, lease=1, session=session) as hold:
                self.assertEqual(hold.token, token)
            server.process.send_signal(signal.SIGSTOP)
            time.sleep(1)  # nobody has heard of the server for as long as the lease
            with self.assertRaises((rwlock.LockError, redis.RedisError)):
                self.take(locks.write("a", linger=60, lease=1, wait=0.3, session=session))

    def test_row_18_a_server_without_key_events(self):
        self.client.config_set("notify-keyspace-events", "Kg")
        with self.assertRaisesRegex(rwlock.LockError, "CONFIG SET notify-keyspace-events Kd"):
            self.use()
        self.assertEqual(self.inspect("mode"), "free")

    def test_row_18_a_user_who_may_not_read_the_setting(self):
        self.client.execute_command("ACL", "SETUSER", "some", "on", ">p", "~*", "&*", "+@all", "-config")
        self.addCleanup(self.client.acl_deluser, "some")
        client = redis.Redis.from_url(URL, username="some", password="p")
        locks = rwlock.Locks(client)
        self.addCleanup(locks.close)
        with locks.write(self.name, linger=30) as hold:
            time.sleep(0.2)  # the event of the grant
        self.assertEqual(self.use(locks), hold.token)
        # Without events nothing is kept.
        self.client.config_set("notify-keyspace-events", "")
        self.take(locks.write("x" + self.name, linger=30))
        self.assertEqual(self.inspect("mode", "x" + self.name), "free")

    def test_row_18_threads(self):
        count = [0]

        def work(locks):
            for _ in range(300):
                with locks.write(self.name, wait=20, linger=30):
                    seen = count[0]
                    if not seen % 10:
                        time.sleep(0.0001)
                    count[0] = seen + 1

        workers = [self.locks, self.locks, self.locks, self.other]
        threads = [threading.Thread(target=work, args=(locks,)) for locks in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(count[0], 300 * len(workers))
        with self.locks.write(self.name, wait=5, linger=30):
            self.elsewhere(lambda: self.refused(self.locks.write(self.name, linger=30)))
            self.elsewhere(lambda: self.refused(self.locks.write(self.name, linger=30, wait=0.2)))

    def test_row_18_with_and_without_it_is_a_deadlock(self):
        with self.locks.write(self.name, linger=30):
            for other in (self.locks.read, self.locks.write):
                self.assertRaises(rwlock.Deadlock, other(self.name, wait=5).acquire)
        self.use(self.other)
        with self.locks.write(self.name, wait=5):
            self.assertRaises(rwlock.Deadlock, self.locks.write(self.name, linger=30).acquire)

    def test_row_18_a_fork_keeps_nothing(self):
        self.use()
        with self.locks.write(self.name + "2", linger=30) as hold:
            child = os.fork()
            if not child:
                status = 1
                try:
                    self.refused(self.locks.write(self.name + "2", linger=30))
                    hold.release()
                    self.refused(self.locks.write(self.name + "2", linger=30))
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            hold.check()

    def test_row_18_nothing_remains_after_close(self):
        before = set(threading.enumerate())
        self.use()
        self.locks.close()
        until(lambda: set(threading.enumerate()) <= before, 2)
        until(lambda: self.inspect("mode") == "free", 2)
        self.assertRaises(RuntimeError, self.use)


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.name = f"test:{uuid.uuid4()}"
        self.client = redis.asyncio.Redis.from_url(URL, decode_responses=True)
        self.locks = rwlock_asyncio.Locks(self.client, name="the test")

    async def asyncTearDown(self):
        await self.locks.aclose()
        await self.client.aclose()

    async def inspect(self, word, name=None):
        reply = await self.client.execute_command("RWLOCK.INSPECT", name or self.name)
        return as_dict(reply)[word]

    async def until(self, condition, seconds=10):
        async with asyncio.timeout(seconds):
            while not (await value if asyncio.iscoroutine(value := condition()) else value):
                await asyncio.sleep(0.005)

    async def waits(self, count=1):
        async def condition():
            return await self.inspect("waiters_total") == count

        await self.until(condition)
        return as_dict((await self.inspect("waiters"))[0]) if count else None

    async def holder(self):
        return as_dict((await self.inspect("holders"))[0])

    async def force(self):
        await self.client.execute_command("RWLOCK.FORCEUNLOCK", self.name)

    async def take(self, hold):
        async with hold:
            return hold

    def task(self, hold):
        """Take it in another task, which is another owner."""
        return asyncio.create_task(self.take(hold))

    async def refused(self, hold):
        with self.assertRaises(rwlock_asyncio.TimedOut) as caught:
            await self.task(hold)
        return caught.exception

    async def own(self, **options):
        server = Server(**options)
        self.addCleanup(server.remove)
        client = server.client(redis.asyncio)
        self.addAsyncCleanup(client.aclose)
        locks = rwlock_asyncio.Locks(client)
        self.addAsyncCleanup(locks.aclose)
        return server, locks

    async def test_row_1_wait(self):
        async with self.locks.write(self.name):
            for wait in ({}, {"wait": None}, {"wait": 0}):
                with seconds(0, 0.5):
                    await self.refused(self.locks.read(self.name, **wait))
            with seconds(0.3, 1):
                await self.refused(self.locks.read(self.name, wait=0.3))
            forever = self.task(self.locks.read(self.name, wait=rwlock_asyncio.FOREVER))
            self.assertEqual((await self.waits())["timeout"], 0)
        await forever

    async def test_row_1_a_time_that_makes_no_sense_is_refused(self):
        for wait in WRONG_WAITS:
            with self.assertRaisesRegex(ValueError, "^wait is a number of seconds, 0"):
                self.locks.write(self.name, wait=wait)
        for lease in WRONG_LEASES:
            with self.assertRaisesRegex(ValueError, "^lease is a number of seconds, 0"):
                self.locks.read(self.name, lease=lease)
        async with self.locks.read(self.name, wait=0.5, lease=0.5) as hold:
            with self.assertRaises(ValueError):
                await hold.upgrade(wait=-1)
            await hold.check()

    async def test_row_2_sessions_and_leases(self):
        async with self.locks.write(self.name):
            self.assertNotEqual((await self.holder())["session"], 0)
        async with self.locks.write(self.name, lease=0.3, session=False) as hold:
            self.assertEqual((await self.holder())["session"], 0)
            await asyncio.sleep(1)  # three leases
            self.assertEqual(await self.inspect("mode"), "write")
            self.assertFalse(hold.lost)

    async def test_row_3_a_task_enters_again(self):
        for session in (True, False):
            options = {"session": session}
            async with self.locks.write(self.name, **options):
                async with self.locks.write(self.name, **options):
                    async with self.locks.read(self.name, **options):
                        await self.refused(self.locks.read(self.name))
                self.assertEqual((await self.holder())["holds"], 1)
            self.assertEqual(await self.inspect("mode"), "free")
        async with self.locks.read(self.name):
            for wait in (None, 10):
                with seconds(0, 1), self.assertRaises(rwlock_asyncio.Deadlock):
                    await self.take(self.locks.write(self.name, wait=wait))

    async def test_row_4_upgrade_and_downgrade(self):
        for session in (True, False):
            async with self.locks.read(self.name, session=session) as hold:
                await hold.upgrade(wait=5, fence=True)
                self.assertEqual(hold.token, await self.inspect("fence"))
                await hold.downgrade()
                self.assertEqual(await self.inspect("mode"), "read")
                async with self.locks.read(self.name):
                    await hold.upgrade()
                self.assertEqual(await self.inspect("mode"), "write")
            self.assertEqual(await self.inspect("mode"), "free")
            async with self.locks.write(self.name, session=session) as hold:
                reader = self.task(self.locks.read(self.name, wait=20))
                await self.waits()
                await hold.downgrade()
                await reader
                await hold.check()
            self.assertEqual(await self.inspect("mode"), "free")

    async def test_row_5_several_locks_in_one_step(self):
        a, b, c = (f"{{{self.name}}}{letter}" for letter in "abc")
        async with self.locks.all(read=[a], write=[b, c], wait=5, fence=True) as hold:
            self.assertEqual(await self.inspect("mode", a), "read")
            self.assertEqual(list(hold.tokens), [b, c])
            self.assertEqual(hold.tokens[c], await self.inspect("fence", c))
            await hold.check()
            await self.refused(self.locks.all(write=[c, a]))
        for name in (a, b, c):
            self.assertEqual(await self.inspect("mode", name), "free")
        for names in ({"read": [c, a, a]}, {"read": [a], "write": [a]}):
            with self.assertRaisesRegex(redis.ResponseError, "is named twice"):
                await self.take(self.locks.all(wait=5, **names))

    async def test_row_6_acquire_and_release(self):
        hold = await self.locks.write(self.name, wait=5).acquire()
        self.assertEqual(await self.inspect("mode"), "write")
        await asyncio.create_task(hold.release())  # of any task
        self.assertEqual(await self.inspect("mode"), "free")

    async def test_row_7_the_name(self):
        async with self.locks.write(self.name) as hold:
            self.assertRegex(hold.owner, r"^the-test@\S+:\d+:\w+$")
            self.assertEqual((await self.holder())["owner"], hold.owner)
            session = (await self.holder())["session"]
            clients = await self.client.client_list(client_id=[str(session)])
            self.assertEqual(clients[0]["name"], hold.owner.rpartition(":")[0])

    async def test_row_8_a_lost_session_is_noticed(self):
        told = []
        with self.assertRaises(rwlock_asyncio.NotHeld):
            async with self.locks.write(self.name, on_lost=told.append) as hold:
                await self.client.client_kill_filter(_id=(await self.holder())["session"])
                await self.until(lambda: hold.lost and told == [hold], 1)
        with self.assertRaises(rwlock_asyncio.NotHeld):
            async with self.locks.write(self.name):
                await self.client.client_kill_filter(_id=(await self.holder())["session"])

    async def test_row_8_what_is_left_of_a_lost_hold_is_waited_for(self):
        hold = await self.locks.read(self.name, lease=0.5, session=False).acquire()
        hold._lose()  # as in a failover, after which the server still has the hold
        with self.assertRaises(rwlock_asyncio.NotHeld):
            await hold.release()
        # The same owner would wait for itself.
        async with self.locks.write(self.name, wait=5):
            pass

    async def test_row_8_a_lost_lease_is_noticed(self):
        told = []
        options = {"lease": 1, "session": False, "on_lost": told.append}
        with self.assertRaises(rwlock_asyncio.NotHeld):
            async with self.locks.write(self.name, **options) as hold:
                await self.force()
                await self.until(lambda: hold.lost and told == [hold], 1)
        with self.assertRaises(ZeroDivisionError):
            async with self.locks.write(self.name):
                await self.force()
                1 / 0
        server, locks = await self.own()
        with self.assertRaises(rwlock_asyncio.NotHeld):
            async with locks.write("a", lease=1, session=False) as hold:
                held = time.monotonic()
                server.process.send_signal(signal.SIGSTOP)
                await self.until(lambda: hold.lost, 3)
                self.assertLess(time.monotonic() - held, 1.2)
                server.process.send_signal(signal.SIGCONT)

    async def test_row_9_a_holder_knows_of_a_restart_before_the_next_one_has_the_lock(self):
        server, locks = await self.own()

        async def next_one():
            async with locks.write("a", wait=20):
                return hold.lost

        watch = server.client()
        waiters = lambda: as_dict(watch.execute_command("RWLOCK.INSPECT", "a"))["waiters_total"]
        with self.assertRaises(rwlock_asyncio.NotHeld):
            async with locks.write("a") as hold:
                task = asyncio.create_task(next_one())
                await self.until(lambda: waiters() == 1)
                server.kill()
                server.start()
                self.assertTrue(await task)

    async def test_row_10_deadlines_hold_during_a_failover(self):
        server, locks = await self.own()
        for session in (True, False):
            options = {"wait": 1, "session": session}
            await self.take(locks.write("a"))
            server.client().replicaof("127.0.0.1", 1)
            with seconds(0.8, 2):
                self.assertIsNone((await self.refused(locks.write("a", **options))).milliseconds)
            with self.assertRaises(redis.ReadOnlyError):  # without patience
                await self.take(locks.write("a"))
            server.client().replicaof("NO", "ONE")
            await self.take(locks.write("a"))
            server.process.send_signal(signal.SIGSTOP)
            for _ in range(2):  # with an idle connection, with a new one
                with seconds(0.8, 2):
                    await self.refused(locks.write("a", **options))
            server.kill()
            with seconds(0.8, 2):
                await self.refused(locks.write("a", **options))
            server.start()
        loading = Loading()
        self.addCleanup(loading.remove)
        client = loading.client(redis.asyncio)
        with seconds(0.8, 2):
            await self.refused(rwlock_asyncio.Locks(client).write("a", wait=1))
        await client.aclose()

    async def test_row_10_a_wait_outlives_timeouts_breaks_and_a_failover(self):
        hasty_client = redis.asyncio.Redis.from_url(URL, socket_timeout=0.2)
        hasty = rwlock_asyncio.Locks(hasty_client)
        async with self.locks.read(self.name):
            waiter = self.task(hasty.write(self.name, wait=20))
            await self.waits()
            await asyncio.sleep(0.6)  # three timeouts
            entry = await self.waits()
            self.assertGreaterEqual(entry["waited"], 600, "it is the same wait")
            await self.client.client_kill_filter(_id=entry["client"])
            await self.waits(0)
            await self.waits(1)
            await self.client.replicaof("127.0.0.1", 1)
            await self.waits(0)
            await asyncio.sleep(0.3)  # meanwhile it is told READONLY, more than once
            await self.client.replicaof("NO", "ONE")
            await self.waits(1)
        await waiter
        await hasty.aclose()
        await hasty_client.aclose()

    async def test_a_wait_that_is_cancelled_leaves_nothing(self):
        for session in (True, False):
            async with self.locks.read(self.name):
                waiter = self.task(self.locks.write(self.name, wait=20, session=session))
                await self.waits()
                waiter.cancel()
                await asyncio.gather(waiter, return_exceptions=True)
                await self.waits(0)
            self.assertEqual(await self.inspect("mode"), "free")

    async def test_row_11_a_server_that_was_never_reached_fails_at_once(self):
        for wait in (None, 5, rwlock_asyncio.FOREVER):
            client = redis.asyncio.Redis(port=1)
            with seconds(0, 1), self.assertRaises(redis.ConnectionError):
                await self.take(rwlock_asyncio.Locks(client).write(self.name, wait=wait))
            await client.aclose()

    async def test_row_12_nothing_remains_after_close(self):
        before = asyncio.all_tasks()
        locks = rwlock_asyncio.Locks(self.client, name="closed")
        lease = await locks.write(self.name, lease=0.5, session=False).acquire()
        session = await locks.write(self.name + "2").acquire()
        await self.take(locks.write(self.name + "3"))
        await locks.aclose()
        self.assertLessEqual(asyncio.all_tasks(), before)

        async def gone():
            names = [client["name"] for client in await self.client.client_list()]
            return not any(name.startswith("closed") for name in names)

        await self.until(gone, 2)
        for hold in (lease, session):
            with self.assertRaises(rwlock_asyncio.NotHeld):
                await hold.release()
        with self.assertRaises(RuntimeError):
            await locks.write(self.name).acquire()

    async def test_row_13_a_second_release(self):
        hold = await self.locks.write(self.name).acquire()
        await hold.release()
        for misuse in (hold.release, hold.check, hold.upgrade, hold.downgrade, hold.acquire):
            with self.assertRaises(RuntimeError):
                await misuse()

    async def test_row_14_a_server_without_the_module(self):
        _, locks = await self.own(module=False)
        with self.assertRaisesRegex(rwlock_asyncio.NotLoaded, "the rwlock module is not loaded"):
            await self.take(locks.write("a", wait=5))

    async def test_row_15_how_long_it_is_still_held(self):
        async with self.locks.write(self.name, lease=20):
            error = await self.refused(self.locks.write(self.name))
            self.assertTrue(15000 < error.milliseconds <= 20000)
            self.assertIn(f"ends in {error.milliseconds} ms, unless it is renewed", str(error))
            await self.client.persist(self.name)
            self.assertEqual((await self.refused(self.locks.write(self.name))).milliseconds, -1)

    async def test_row_16_errors(self):
        for kind in ("TimedOut", "Deadlock", "NotHeld", "NotLoaded"):
            self.assertTrue(issubclass(getattr(rwlock_asyncio, kind), rwlock_asyncio.LockError))
        async with self.locks.write(self.name + "a"):
            other = asyncio.create_task(self.both(self.name + "b", self.name + "a"))
            while (await self.inspect("waiters_total", self.name + "a")) != 1:
                await asyncio.sleep(0.005)
            with self.assertRaises(rwlock_asyncio.Deadlock):
                await self.take(self.locks.write(self.name + "b", wait=20))
        await other

    async def both(self, first, second):
        async with self.locks.write(first), self.locks.write(second, wait=20):
            pass

    async def test_row_17_fencing_tokens(self):
        first = await self.take(self.locks.write(self.name, fence=True))
        second = await self.take(self.locks.write(self.name, fence=True))
        self.assertGreater(second.token, first.token)


if __name__ == "__main__":
    unittest.main()
