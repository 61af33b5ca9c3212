"""What the helpers promise, against the server at RWLOCK_URL, which is no cluster."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
import uuid

import redis
import redis.asyncio

import rwlock
import rwlock_asyncio

URL = os.environ["RWLOCK_URL"]


def until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)


class Sync(unittest.TestCase):
    def setUp(self):
        self.name = f"test:{uuid.uuid4()}"
        self.client = redis.Redis.from_url(URL, decode_responses=True)
        self.locks = rwlock.Locks(self.client)

    def inspect(self, word):
        reply = self.client.execute_command("RWLOCK.INSPECT", self.name)
        return reply[word] if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))[word]

    def waits(self):
        until(lambda: self.inspect("waiters_total") == 1)

    def test_a_writer_keeps_others_out_and_tokens_increase(self):
        others = rwlock.Locks(redis.Redis.from_url(URL))
        with self.locks.write(self.name, fence=True) as first:
            self.assertEqual(self.inspect("mode"), "write")
            self.elsewhere(lambda: self.refused(others.write(self.name, wait=0)))
            self.elsewhere(lambda: self.refused(others.read(self.name, wait=0.05)))
        self.assertEqual(self.inspect("mode"), "free")
        with self.locks.write(self.name, fence=True) as second:
            self.assertGreater(second.token, first.token)
        with self.locks.read(self.name):
            self.elsewhere(lambda: self.granted(others.read(self.name, wait=0)))

    def elsewhere(self, work):
        """Do it in another thread: the owner is another one there."""
        failed = []

        def run():
            try:
                work()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if failed:
            raise failed[0]

    def granted(self, hold):
        with hold:
            pass

    def refused(self, hold):
        with self.assertRaises(rwlock.TimedOut) as caught, hold:
            pass
        self.assertGreater(caught.exception.milliseconds, 0)

    def test_a_thread_enters_again(self):
        with self.locks.write(self.name) as outer:
            with self.locks.write(self.name, wait=0) as inner, self.locks.read(self.name, wait=0):
                self.assertIs(inner, outer)
            with self.assertRaises(ValueError), self.locks.write(self.name, fence=True):
                pass
            self.elsewhere(self.in_a_fork)
            self.assertEqual(self.inspect("mode"), "write")
        self.assertEqual(self.inspect("mode"), "free")

    def in_a_fork(self):
        with self.locks.write(f"{self.name}:fork"):
            child = os.fork()
            if not child:
                status = 2
                try:
                    with self.locks.write(f"{self.name}:fork", wait=0):
                        status = 1
                except rwlock.TimedOut:
                    status = 0
                finally:
                    os._exit(status)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_a_lost_hold_is_told(self):
        with self.assertRaises(rwlock.NotHeld), self.locks.write(self.name) as hold:
            hold.check()
            self.client.execute_command("RWLOCK.FORCEUNLOCK", self.name)
            self.assertRaises(rwlock.NotHeld, hold.check)
            self.assertTrue(hold.lost)
        with self.assertRaises(ZeroDivisionError), self.locks.write(self.name):
            self.client.execute_command("RWLOCK.FORCEUNLOCK", self.name)
            1 / 0

    def test_a_circle_is_told(self):
        with self.locks.read(self.name):
            with self.assertRaises(rwlock.Deadlock), self.locks.write(self.name):
                pass
        self.assertEqual(self.inspect("mode"), "free")

    def test_a_circle_over_two_locks_is_told(self):
        met = threading.Barrier(2)
        told = []

        def take(first, second):
            with self.locks.write(self.name + first):
                met.wait()
                try:
                    with self.locks.write(self.name + second, wait=20):
                        pass
                except rwlock.Deadlock:
                    told.append(first)

        threads = [threading.Thread(target=take, args=names) for names in ("ab", "ba")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(told), 1)

    def test_a_wait_is_not_cut_short_by_the_clients_timeout(self):
        hasty = rwlock.Locks(redis.Redis.from_url(URL, socket_timeout=0.2))
        got = threading.Event()

        def take():
            with hasty.write(self.name):
                got.set()

        with self.locks.write(self.name):
            thread = threading.Thread(target=take)
            thread.start()
            self.waits()
            client = self.inspect("waiters")[0]
            client = client if isinstance(client, dict) else dict(zip(client[::2], client[1::2]))
            time.sleep(0.6)
            waiter = self.inspect("waiters")[0]
            waiter = waiter if isinstance(waiter, dict) else dict(zip(waiter[::2], waiter[1::2]))
            self.assertEqual(waiter["client"], client["client"], "it is the same wait")
        thread.join()
        self.assertTrue(got.is_set())

    def test_one_who_waits_asks_again_when_the_connection_breaks(self):
        got = threading.Event()

        def take():
            with self.locks.write(self.name, wait=20):
                got.set()

        with self.locks.read(self.name):
            thread = threading.Thread(target=take)
            thread.start()
            self.waits()
            waiter = self.inspect("waiters")[0]
            waiter = waiter if isinstance(waiter, dict) else dict(zip(waiter[::2], waiter[1::2]))
            self.client.client_kill_filter(_id=waiter["client"])
            until(lambda: self.inspect("waiters_total") == 0)
            self.waits()
        thread.join()
        self.assertTrue(got.is_set())

    def test_one_who_waits_outlives_a_failover(self):
        got = threading.Event()

        def take():
            with self.locks.write(self.name, wait=20):
                got.set()

        with self.locks.read(self.name):
            thread = threading.Thread(target=take)
            thread.start()
            self.waits()
            self.client.replicaof("127.0.0.1", 1)
            until(lambda: self.inspect("waiters_total") == 0)
            time.sleep(0.3)  # it is told READONLY meanwhile
            self.assertTrue(thread.is_alive())
            self.client.replicaof("NO", "ONE")
            self.waits()
        thread.join()
        self.assertTrue(got.is_set())

    def test_a_hold_without_a_session_is_renewed(self):
        with self.locks.write(self.name, lease=0.3, session=False) as hold:
            time.sleep(1)
            self.assertEqual(self.inspect("mode"), "write")
            self.client.execute_command("RWLOCK.FORCEUNLOCK", self.name)
            until(lambda: hold.lost)
            with self.locks.write(self.name + "2", session=False):
                pass
            with self.assertRaises(rwlock.NotHeld):
                hold.check()
            self.client.execute_command("RWLOCK.WLOCK", self.name, hold.owner, 30000)

    def test_a_session_ends_with_its_process(self):
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
        child.send_signal(signal.SIGKILL)
        child.communicate()
        begun = time.monotonic()
        with self.locks.write(self.name, wait=20):
            self.assertLess(time.monotonic() - begun, 5)

    def test_an_error_of_the_server_is_the_servers(self):
        self.client.set(self.name, "no lock")
        with self.assertRaises(redis.ResponseError), self.locks.write(self.name):
            pass
        nobody = rwlock.Locks(redis.Redis(port=1))
        with self.assertRaises(redis.ConnectionError), nobody.write(self.name):
            pass


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.name = f"test:{uuid.uuid4()}"
        self.client = redis.asyncio.Redis.from_url(URL, decode_responses=True)
        self.locks = rwlock_asyncio.Locks(self.client)

    async def asyncTearDown(self):
        await self.locks.aclose()
        await self.client.aclose()

    async def inspect(self, word):
        reply = await self.client.execute_command("RWLOCK.INSPECT", self.name)
        return reply[word] if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2]))[word]

    async def waits(self, count=1):
        async with asyncio.timeout(10):
            while await self.inspect("waiters_total") != count:
                await asyncio.sleep(0.005)

    async def take(self, locks=None, **options):
        async with (locks or self.locks).write(self.name, **options) as hold:
            return hold

    async def test_a_writer_keeps_other_tasks_out_and_tokens_increase(self):
        async with self.locks.write(self.name, fence=True) as first:
            for wait in (0, 0.05):
                with self.assertRaises(rwlock_asyncio.TimedOut):
                    await asyncio.create_task(self.take(wait=wait))
            async with self.locks.write(self.name, wait=0), self.locks.read(self.name, wait=0):
                pass
            next_one = asyncio.create_task(self.take(fence=True))
            await self.waits()
        self.assertGreater((await next_one).token, first.token)
        self.assertEqual(await self.inspect("mode"), "free")

    async def test_a_lost_hold_and_a_circle_are_told(self):
        with self.assertRaises(rwlock_asyncio.NotHeld):
            async with self.locks.write(self.name) as hold:
                await hold.check()
                await self.client.execute_command("RWLOCK.FORCEUNLOCK", self.name)
        async with self.locks.read(self.name):
            with self.assertRaises(rwlock_asyncio.Deadlock):
                await self.take_here()

    async def take_here(self):
        async with self.locks.write(self.name):
            pass

    async def test_a_wait_that_is_cancelled_leaves_nothing(self):
        for session in (True, False):
            async with self.locks.read(self.name):
                waiter = asyncio.create_task(self.take(session=session))
                await self.waits()
                waiter.cancel()
                await asyncio.gather(waiter, return_exceptions=True)
                await self.waits(0)
            self.assertEqual(await self.inspect("mode"), "free")

    async def test_a_wait_outlives_timeouts_breaks_and_a_failover(self):
        hasty_client = redis.asyncio.Redis.from_url(URL, socket_timeout=0.2)
        hasty = rwlock_asyncio.Locks(hasty_client)
        async with self.locks.read(self.name):
            waiter = asyncio.create_task(self.take(hasty))
            await self.waits()
            await asyncio.sleep(0.6)
            entry = (await self.inspect("waiters"))[0]
            entry = entry if isinstance(entry, dict) else dict(zip(entry[::2], entry[1::2]))
            self.assertGreaterEqual(entry["waited"], 600, "it is the same wait")
            await self.client.client_kill_filter(_id=entry["client"])
            await self.waits(0)
            await self.waits(1)
            await self.client.replicaof("127.0.0.1", 1)
            await self.waits(0)
            await asyncio.sleep(0.3)  # it is told READONLY meanwhile
            await self.client.replicaof("NO", "ONE")
            await self.waits(1)
        await waiter
        await hasty.aclose()
        await hasty_client.aclose()

    async def test_a_hold_without_a_session_is_renewed(self):
        async with self.locks.write(self.name, lease=0.3, session=False) as hold:
            await asyncio.sleep(1)
            self.assertEqual(await self.inspect("mode"), "write")
            self.assertFalse(hold.lost)


if __name__ == "__main__":
    unittest.main()
