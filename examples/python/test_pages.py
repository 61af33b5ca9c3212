"""Runs each Python block of the pages, and the SQL beside them, and looks at what it does.

It empties the server at RWLOCK_URL, which therefore has to be this test's alone. A page's
own client, of 127.0.0.1:6379, is one of that server here. What else a block needs, its test
gives it by name.
"""

import contextlib
import os
import pathlib
import re
import sqlite3
import textwrap
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import redis

URL = os.environ["RWLOCK_URL"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/*.md", "docs/commands/*.md", "examples/**/*.md"]
Redis = redis.Redis


def blocks():
    """All blocks: {(page, the heading that it is under, which of those there): its text}."""
    found = {}
    for page in (page for pattern in PAGES for page in ROOT.glob(pattern)):
        text = page.read_text()
        for block in re.finditer(r"^( *)```(?:python|sql)\n(.*?)^\1```$", text, re.M | re.S):
            fenced = re.sub(r"^ *```.*?^ *```$", "", text[: block.start()], flags=re.M | re.S)
            under = (str(page.relative_to(ROOT)), re.findall(r"^#+ (.*)", fenced, re.M)[-1])
            number = 1 + sum(key[:2] == under for key in found)
            found[*under, number] = textwrap.dedent(block[2])
    return found


BLOCKS = blocks()
TESTED = []


def of(page, heading, number=1):
    """Gives a test the text of a block."""
    TESTED.append((page, heading, number))

    def decorate(test):
        return lambda self: test(self, BLOCKS[page, heading, number])

    return decorate


def client(**given):
    """What `redis.Redis(…)` is in a page."""
    assert given in ({}, {"host": "127.0.0.1", "port": 6379}), given
    return Redis.from_url(URL)


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.005)


class Pages(unittest.TestCase):
    def setUp(self):
        self.server = Redis.from_url(URL, decode_responses=True)
        self.server.flushall()
        self.addCleanup(self.server.close)
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.threads = self.stack.enter_context(ThreadPoolExecutor())

    def run_block(self, block, **names):
        """Runs a block with these names. Returns all names that there are then."""
        with mock.patch("redis.Redis", client):
            exec(compile(block, "<block>", "exec"), names)
        if "locks" in names:
            self.stack.callback(names["locks"].close)
        return names

    def recipes(self, **names):
        """The names that the recipes begin with, and these."""
        return {**self.run_block(BLOCKS["docs/recipes.md", "Recipes", 1]), **names}

    def start(self, work, *args, **names):
        return self.threads.submit(work, *args, **names)

    def inspect(self, lock):
        seen = self.server.execute_command("RWLOCK.INSPECT", lock)
        seen = seen if isinstance(seen, dict) else dict(zip(seen[::2], seen[1::2]))
        for name in ("holders", "waiters"):
            seen[name] = [
                one if isinstance(one, dict) else dict(zip(one[::2], one[1::2]))
                for one in seen[name]
            ]
        return seen

    def mode(self, lock):
        return self.inspect(lock)["mode"]

    def waiters(self):
        return int(self.server.info("clients")["blocked_clients"])

    def other(self, word, lock):
        """What another owner gets that tries once."""
        return self.server.execute_command(f"RWLOCK.{word}", lock, "other", 30000)

    def test_every_block_has_a_test(self):
        self.assertEqual(sorted(TESTED), sorted(BLOCKS))
        self.assertGreater(len(TESTED), 10)

    @of("README.md", "Start")
    def test_the_start(self, block):
        said = []

        def say(text):
            said.append((text, self.mode("orders")))

        self.run_block(block, print=say)
        self.assertEqual(said, [("nobody else reads or writes orders now", "write")])
        self.assertEqual(self.mode("orders"), "free")

    @of("examples/python/README.md", "Use it")
    def test_the_helper(self, block):
        said = []

        def say(text):
            seen = self.inspect("orders")
            owner = seen["holders"][0]["owner"]
            said.append((text, f"{owner} writes orders with the token {seen['fence']}"))
            self.assertRegex(owner, "^billing@")

        self.run_block(block, print=say)
        self.assertEqual(len(said), 1)
        self.assertEqual(*said[0])
        self.assertEqual(self.mode("orders"), "free")

    @of("docs/recipes.md", "Recipes")
    def test_what_the_recipes_begin_with(self, block):
        self.assertTrue(self.run_block(block)["locks"])

    @of("docs/recipes.md", "Run a job once per night")
    def test_once_per_night(self, block):
        run = mock.Mock()
        for _ in range(3):
            self.run_block(block, **self.recipes(run=run))
        run.assert_called_once_with()
        seen = self.inspect("nightly")
        self.assertEqual(seen["mode"], "write")
        self.assertTrue(3_590_000 < seen["ttl"] <= 3_600_000)

    @of("docs/recipes.md", "Run a job once per night", 2)
    def test_once_per_night_with_a_marker(self, block):
        modes, names = [], self.recipes(date="2026-01-31")
        run = lambda: modes.append(self.mode("nightly-run"))
        for _ in range(3):
            self.run_block(block, **names, run=run)
        self.assertEqual(modes, ["write"])
        self.assertEqual(self.mode("nightly-run"), "free")
        self.assertTrue(6 * 86400 < self.server.ttl("nightly-done:2026-01-31") <= 7 * 86400)

    @of("docs/recipes.md", "Elect a leader")
    def test_elect_a_leader(self, block):
        class Dismissed(Exception):
            pass

        led, names, over = [], self.recipes(), threading.Event()
        self.stack.callback(over.set)

        def lead(token):
            led.append((threading.get_ident(), token))
            if over.is_set():
                raise Dismissed
            time.sleep(0.005)

        nodes = [self.start(self.run_block, block, **names, lead=lead) for _ in range(2)]
        until(lambda: led and self.waiters() == 1)
        first, token = led[0]
        session = self.inspect("leader")["holders"][0]["session"]
        self.assertEqual(token, self.inspect("leader")["fence"])
        self.server.client_kill_filter(_id=session)
        until(lambda: led[-1][0] != first and self.waiters() == 1)
        self.assertGreater(led[-1][1], token, "and the first stands for election again")
        over.set()
        for node in nodes:
            self.assertIsInstance(node.exception(20), Dismissed)
        self.assertEqual(self.mode("leader"), "free")

    @of("docs/recipes.md", "Fill a cache entry once")
    def test_fill_a_cache_entry_once(self, block):
        computed = []

        def compute():
            until(lambda: self.waiters() == 3)
            computed.append(self.mode("fill:page"))
            return b"html"

        page = self.run_block(block, **self.recipes(compute=compute))["page"]
        clients = [self.start(page) for _ in range(4)]
        self.assertEqual([client.result(20) for client in clients], [b"html"] * 4)
        self.assertEqual(computed, ["write"], "once, under the lock")
        self.assertEqual(self.mode("fill:page"), "free")
        self.assertTrue(50 < self.server.ttl("page") <= 60)

    @of("docs/recipes.md", "Cap the number of workers")
    def test_cap_the_number_of_workers(self, block):
        slot, inside = self.run_block(block, **self.recipes())["slot"], threading.Semaphore(0)
        leave = threading.Event()
        self.stack.callback(leave.set)

        def work():
            with slot(2):
                inside.release()
                leave.wait(20)

        workers = [self.start(work) for _ in range(5)]
        for _ in range(2):
            self.assertTrue(inside.acquire(timeout=20))
        until(lambda: self.waiters() == 3)
        self.assertFalse(inside.acquire(blocking=False), "three wait")
        leave.set()
        for worker in workers:
            worker.result(20)
        for number in range(2):
            self.assertEqual(self.mode(f"slot:{{jobs}}:{number}"), "free")

    def transfers(self, block, names):
        """Transfers to and fro, in two threads at a time."""
        moves, recipes = [], self.recipes()

        def move(source, target, amount):
            self.assertEqual([self.mode(name(source)), self.mode(name(target))], ["write"] * 2)
            moves.append((source, target, amount))

        def name(number):
            return names.format(number)

        def transfer(source, target):
            for _ in range(20):
                self.run_block(block, **recipes, source=source, target=target, amount=5, move=move)

        for done in [self.start(transfer, 17, 42), self.start(transfer, 42, 17)]:
            done.result(60)
        self.assertEqual(sorted(moves), [(17, 42, 5)] * 20 + [(42, 17, 5)] * 20)
        self.assertEqual([self.mode(name(17)), self.mode(name(42))], ["free"] * 2)

    @of("docs/recipes.md", "Transfer between two accounts")
    def test_transfer(self, block):
        self.transfers(block, "account:{{bank}}:{}")

    @of("docs/recipes.md", "Locks on two nodes")
    def test_transfer_between_two_nodes(self, block):
        self.transfers(block, "account:{}:lock")

    @of("docs/recipes.md", "Change a configuration that many read")
    def test_change_a_configuration(self, block):
        did = []

        def save(config):
            did.append(f"save {config}")
            self.assertGreater(self.other("RLOCK", "config:lock"), 0)

        def check(config):
            did.append(f"check {config}")
            self.assertGreater(self.other("WLOCK", "config:lock"), 0)
            self.assertEqual(self.other("RLOCK", "config:lock"), "OK")
            self.server.execute_command("RWLOCK.UNLOCK", "config:lock", "other")

        load = lambda: "read again"
        self.run_block(block, **self.recipes(save=save, load=load, check=check, config="new"))
        self.assertEqual(did, ["save new", "check read again"])
        self.assertEqual(self.mode("config:lock"), "free")

    @of("docs/recipes.md", "Keep a lock until somebody wants it")
    def test_keep_a_lock(self, block):
        self.server.config_set("notify-keyspace-events", "Kd")
        self.addCleanup(self.server.config_set, "notify-keyspace-events", "")
        saved = []
        save = lambda *saving: saved.append(saving)
        self.run_block(block, **self.recipes(save=save, orders=["one", "two"]))
        token = self.inspect("orders")["fence"]
        self.assertEqual(saved, [("one", token), ("two", token)])
        self.assertEqual(self.mode("orders"), "write")

    @of("docs/migration.md", "From redis-py's `Lock`")
    def test_both_locks_in_the_first_release(self, block):
        held = []

        def work():
            held.append((self.server.type("orders"), self.mode("orders:lock")))

        self.run_block(block, **self.recipes(work=work))
        self.assertEqual(held, [("string", "write")])
        self.assertEqual((self.server.type("orders"), self.mode("orders:lock")), ("none", "free"))

    @of("docs/fencing.md", "A stale writer is turned away")
    def test_sql_turns_a_stale_writer_away(self, statement):
        reports = sqlite3.connect(":memory:")
        reports.execute("CREATE TABLE report (id, text, token)")
        reports.execute("INSERT INTO report VALUES (1, '', 0)")

        def update(text, token):
            given = {"id": 1, "text": text, "token": token}
            return reports.execute(statement, given).rowcount

        changed = [update("ann, first", 7), update("bob, first", 9), update("ann, second", 7)]
        self.assertEqual(changed + [update("bob, second", 9)], [1, 1, 0, 1])
        rows = reports.execute("SELECT text, token FROM report").fetchall()
        self.assertEqual(rows, [("bob, second", 9)])


if __name__ == "__main__":
    unittest.main()
