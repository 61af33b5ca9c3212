"""What `top` shows, of the server at RWLOCK_URL, which is no cluster, and of others that
it starts: of RWLOCK_SERVER with RWLOCK_MODULE."""

import os
import re
import subprocess
import sys
import time
import unittest
import uuid
from unittest import mock

import look
import scene
import top
from connection import Server, ServerError, fields
from frame import LEVELS, RATES, aligned, frame, printable, rates, share, short
from look import Watch

URL = os.environ["RWLOCK_URL"]
PROGRAM = [sys.executable, top.__file__]


class Shown(unittest.TestCase):
    def setUp(self):
        self.name = f"test:{uuid.uuid4().hex[:12]}"
        self.server = self.connect()

    def connect(self):
        server = Server(URL)
        self.addCleanup(server.close)
        return server

    def watch(self):
        watch = Watch(URL)
        self.addCleanup(watch.close)
        return watch

    def tearDown(self):
        self.server.ask("RWLOCK.FORCEUNLOCK", self.name)

    def run_top(self, *words):
        done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("\x1b", done.stdout, "plain when it is no terminal")
        return done.stdout

    def wait_for(self, kind, owner):
        self.wait(f"RWLOCK.{kind}", self.name, owner, "30000", "BLOCK", "0")

    def wait(self, *words):
        """A client that waits. Its connection is left open, for its reply to come."""
        waiter = self.connect()
        before = self.inspect()["waiters_total"]
        waiter.send(*words)
        end = time.monotonic() + 10
        while self.inspect()["waiters_total"] == before:
            self.assertLess(time.monotonic(), end, "it does not wait")

    def inspect(self):
        return fields(self.server.ask("RWLOCK.INSPECT", self.name))

    def line_of(self, text, name=None):
        return next(line for line in text.splitlines() if line.startswith(name or self.name))

    def test_holders_and_waiters_of_a_lock_that_is_waited_for(self):
        self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000, "SESSION")
        self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000)
        self.wait_for("WLOCK", "bob")
        for other in ("cat", "dan", "eve"):
            self.wait_for("RLOCK", other)
        me = self.server.ask("CLIENT", "ID")
        line = self.line_of(self.run_top("-n", "1", URL))
        self.assertRegex(line, r" write +renewed +4 +\d+(\.\d)? m?s ")
        self.assertIn(f"ann writes x2, client {me}", line)
        self.assertIn("bob writes; cat reads; dan reads and 1 more", line)

    def test_a_lease_that_nobody_renews(self):
        self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000)
        line = self.line_of(self.run_top("-n", "1", URL, self.name))
        self.assertRegex(line, r" write +(29\.\d|30\.0) s +0 +ann writes$")

    def test_an_owner_that_begins_with_the_name_of_its_client(self):
        self.server.ask("CLIENT", "SETNAME", "shop@web:7")
        self.addCleanup(self.server.ask, "CLIENT", "SETNAME", "")
        self.server.ask("RWLOCK.WLOCK", self.name, "shop@web:7:4f", 30000, "SESSION")
        waiter = self.connect()
        waiter.ask("CLIENT", "SETNAME", "shop@web:8")
        waiter.send("RWLOCK.WLOCK", self.name, "shop@web:8:5a", 30000, "BLOCK", 300)
        waiter._reply()
        text = self.run_top("-n", "1", URL, self.name)
        self.assertRegex(self.line_of(text), r" write +renewed +0 +shop@web:7:4f writes$")
        self.assertIn("shop@web:8:5a writes  shop@web:7:4f writes\n", text)

    def test_a_password_that_other_users_do_not_see(self):
        self.server.ask("ACL", "SETUSER", "hidden", "reset", "on", ">s3 cr/t", "~*", "+rwlock.queues")
        self.addCleanup(self.server.ask, "ACL", "DELUSER", "hidden")
        url = f"{URL.split('://')[0]}://hidden@{URL.split('://')[1]}"
        with mock.patch.dict(os.environ, REDISCLI_AUTH="s3 cr/t"):
            self.assertIn("this user may not run ", self.run_top("-n", "1", url))
        without = {name: value for name, value in os.environ.items() if name != "REDISCLI_AUTH"}
        done = subprocess.run([*PROGRAM, url], capture_output=True, text=True, timeout=60, env=without)
        self.assertEqual(done.stderr, "top: no password for hidden: set REDISCLI_AUTH\n")

    def test_a_waiter_of_several_locks(self):
        self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000)
        other = f"{self.name}:other"
        self.wait("RWLOCK.MLOCK", "bob", "30000", "WRITE", "1", self.name, "READ", "1", other, "BLOCK", "0")
        text = self.run_top("-n", "1", URL)
        self.assertRegex(self.line_of(text, f"{self.name} "), r" ann writes +bob writes \(2 locks\)$")
        self.assertRegex(self.line_of(text, other), r" free +1 .* bob reads \(2 locks\)$")

    def test_a_long_name_is_cut(self):
        self.assertEqual(short("x" * 40, 40), "x" * 40)
        self.assertEqual(short("x" * 41, 40), "x" * 39 + "…")

    def test_locks_that_are_named(self):
        self.server.ask("RWLOCK.RLOCK", self.name, "ann", 30000)
        self.server.ask("SET", f"{self.name}:text", "no lock")
        self.addCleanup(self.server.ask, "DEL", f"{self.name}:text")
        text = self.run_top("-n", "1", URL, self.name, f"{self.name}:none", f"{self.name}:text")
        self.assertRegex(self.line_of(text), r" read +\S+ s +0 +ann reads$")
        self.assertRegex(self.line_of(text, f"{self.name}:none"), r" free +0$")
        self.assertIn("WRONGTYPE", self.line_of(text, f"{self.name}:text"))

    def test_a_reservation(self):
        self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000)
        self.server.ask("RWLOCK.WLOCK", self.name, "bob", 30000, "RESERVE", 30000)
        self.server.ask("RWLOCK.UNLOCK", self.name, "ann")
        text = self.run_top("-n", "1", URL, self.name)
        self.assertIn("reserved by bob", self.line_of(text))

    def test_rates_are_of_the_time_between_two_looks(self):
        watch = self.watch()
        before = watch.look()
        for _ in range(50):
            self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000)
            self.server.ask("RWLOCK.UNLOCK", self.name, "ann")
        now = watch.look()
        now["nodes"][0]["at"] = before["nodes"][0]["at"] + 0.5
        self.assertRegex(next(rates(now, before)), r"^per second:  .*\b(acquired|WLOCK) 100\b")
        self.assertRegex(next(rates(now, None)), r"^since its start:  ")

    def test_the_section_of_info_where_there_is_one(self):
        info = {name: "10" for name in (*RATES, *LEVELS)}
        info.update(rwlock_wait_ms_p50="1", rwlock_wait_ms_p99="20", rwlock_wait_ms_max="300")
        info.update(rwlock_warning="keys may be evicted")
        now = self.watch().look()
        node = {**now["nodes"][0], "info": info}
        earlier = {**node, "at": node["at"] - 2, "info": {name: "4" for name in RATES}}
        text = "\n".join(frame({**now, "nodes": [node]}, {**now, "nodes": [earlier]}))
        for said in (
            "per second:  acquired 3   refused 3",
            "held locks 10   waiters 10   queues 10   session holds 10   granted after p50 1 ms, p99 20 ms, max 300 ms",
            "WARNING: keys may be evicted",
        ):
            self.assertIn(said, text)

    def test_no_name_steers_the_terminal(self):
        self.assertEqual(printable(b"a\x1b[2J\xff\n"), "a\\x1b[2J\\xff\\n")

    def test_the_demonstration(self):
        demo = os.path.join(os.path.dirname(top.__file__), "demo.py")
        text = subprocess.run([sys.executable, demo, URL], capture_output=True, text=True, timeout=60)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assertIn("per second:", text.stdout)
        self.assertRegex(text.stdout, r"\b(checkout|warehouse|shop|report)-\w (writes|reads), client \d+\b")

    def test_it_says_what_is_wrong(self):
        for words, said in (
            (["redis://127.0.0.1:1"], "127.0.0.1:1: [Errno"),
            ([URL.rstrip("/") + "/999999"], "top: " + self.server.address),
            (["http://127.0.0.1"], "not redis://"),
            (["-i", "0"], "more than 0"),
        ):
            done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

    def test_make_top_goes_to_the_port_of_make_run(self):
        root = os.path.join(os.path.dirname(os.path.abspath(top.__file__)), "..", "..")
        for given, said in (
            (["PORT=7391"], "top.py redis://127.0.0.1:7391"),
            (["URL=redis://cache:1", "PORT=7391"], "top.py redis://cache:1"),
            ([], "top.py"),
        ):
            env = {name: value for name, value in os.environ.items() if name not in ("URL", "PORT")}
            told = subprocess.run(
                ["make", "--no-print-directory", "-n", "-C", root, "top", *given],
                capture_output=True, text=True, timeout=60, env=env,
            )  # fmt: skip
            self.assertTrue(told.stdout.strip().endswith(said), told)

    def test_in_a_terminal_it_refreshes_and_leaves_no_trace(self):
        code = f"import pty, sys; sys.exit(pty.spawn({[*PROGRAM, '-n', '2', '-i', '0.1', URL]!r}))"
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
            env={**os.environ, "TERM": "xterm"},
        )
        self.assertEqual(done.returncode, 0, done)
        self.assertTrue(done.stdout.startswith(b"\x1b[?1049h"), done.stdout)
        self.assertEqual(done.stdout.count(b"\x1b[H"), 2)
        self.assertTrue(done.stdout.endswith(b"\x1b[?25h\x1b[?1049l"), done.stdout)

    def test_an_older_module_and_a_user_without_rights(self):
        answers = Server.ask

        def ask(server, *words):
            if words[0] in ("RWLOCK.LIST", "RWLOCK.HOTLOCKS", "RWLOCK.LOG"):
                raise ServerError(f"ERR unknown command '{words[0]}', with args beginning with: ")
            return answers(server, *words)

        self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000)
        self.wait_for("WLOCK", "bob")
        with mock.patch.object(Server, "ask", ask):
            text = "\n".join(frame(self.watch().look()))
        self.assertIn("\nthis module has no RWLOCK.LIST, RWLOCK.HOTLOCKS, RWLOCK.LOG\n", text)
        self.assertIn("ann writes", self.line_of(text))
        self.assertNotIn("held, longest first", text)

        password = f"{URL.split('://')[0]}://few:secret@{URL.split('://')[1]}"
        few = ("reset", "on", ">secret", "~*", "+rwlock.list", "+rwlock.queues")
        self.server.ask("ACL", "SETUSER", "few", *few)
        self.addCleanup(self.server.ask, "ACL", "DELUSER", "few")
        text = self.run_top("-n", "1", password)
        refused = ("CLUSTER SHARDS", "INFO", "MODULE LIST", "RWLOCK.INSPECT", "RWLOCK.HOTLOCKS", "RWLOCK.LOG")
        said = next(line for line in text.splitlines() if line.startswith("this user may not run "))
        self.assertEqual(set(said[22:].split(", ")), set(refused))
        self.assertIn("waited for\n", text)
        self.assertIn("held, longest first\n", text)
        self.assertRegex(self.line_of(text), r" 1 +\d+(\.\d)? m?s$")

    def test_a_frame_asks_for_so_many_held_locks_only(self):
        self.server.ask("FLUSHALL")
        names = [f"{self.name}:{i}" for i in range(40)]
        for name in names:
            self.server.ask("RWLOCK.WLOCK", name, "ann", 30000)
            self.addCleanup(self.server.ask, "RWLOCK.FORCEUNLOCK", name)
        text = "\n".join(frame(self.watch().look(rows=30), rows=30))
        self.assertIn("\nheld, longest first (10 more)\n", text)
        self.assertEqual(text.count(self.name), 30)
        with mock.patch.multiple(look, LIST_CALLS=2, LIST_COUNT=3):
            text = "\n".join(frame(self.watch().look()))
        self.assertRegex(text, r"\nlooked at [1-6] held locks only: there are more\n")

    def test_tables_share_the_lines_of_a_terminal(self):
        self.assertEqual(share(10, [2, 20, 0, 5]), [2, 4, 0, 4])
        self.assertEqual(share(10, [1, 2]), [1, 2])
        self.assertEqual(share(-3, [1, 2]), [0, 0])
        text = frame(self.watch().look(), rows=5, height=4)
        self.assertLess(len(text), 12)

    def test_what_does_not_fit_a_terminal_is_left_out(self):
        for number in range(5):
            name = f"{self.name}:{number}"
            self.server.ask("RWLOCK.WLOCK", name, "ann", 30000)
            self.addCleanup(self.server.ask, "RWLOCK.FORCEUNLOCK", name)
        now = self.watch().look([b"a", b"b", b"c", b"d", b"e"])
        now["nodes"][0].update(hot=[], log=[])
        for height, tables in ((30, 2), (16, 2), (12, 2), (10, 1)):
            text = frame(now, height=height)
            self.assertLessEqual(len(text), height)
            self.assertEqual(sum(line.startswith("LOCK ") for line in text), tables, "\n".join(text))

    def test_its_output_may_be_cut_off(self):
        done = subprocess.Popen([*PROGRAM, "-i", "0.05", URL], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        done.stdout.readline()
        done.stdout.close()
        self.assertEqual((done.stderr.read(), done.wait(60)), (b"", 0))
        done.stderr.close()

    def test_columns_are_aligned(self):
        self.assertEqual(aligned([("A", "B"), ("long", "x"), ("", "y")]), ["A     B", "long  x", "      y"])


class Scene(unittest.TestCase):
    """The pictures are what a frame shows of the scene. Numbers that vary have a name there."""

    maxDiff = None

    def assert_picture(self, name, servers, *words):
        told = subprocess.run([*PROGRAM, "-n", "1", *words], capture_output=True, text=True, timeout=60)
        self.assertEqual((told.returncode, told.stderr), (0, ""))
        text = told.stdout.rstrip()
        for number, port in enumerate(servers.ports, 1):
            text = text.replace(f"127.0.0.1:{port}", f"node-{number}")
        for vary, shown in (
            (r"127\.0\.0\.1:\d+", "ADDRESS"),
            (r"\d\d-\d\d \d\d:\d\d:\d\d", "DATE"),
            (r"\d\d:\d\d:\d\d", "CLOCK"),
            (r"(Redis|Valkey) [\d.]+", "SERVER"),
            (r"rwlock [\d.]+", "rwlock VERSION"),
            (r"\b\d+(\.\d)? (ms|s|min)\b", "TIME"),
            (r"\bclient \d+", "client ID"),
            (r" {3,}", "  "),
            # It may have waited for a millisecond.
            (r"(deadlock  \S+  )TIME  ", r"\1"),
        ):
            text = re.sub(vary, shown, text)
        with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), name)) as picture:
            self.assertEqual(text, picture.read().rstrip())

    def test_one_server(self):
        with scene.Servers() as servers:
            scene.play(servers)
            self.assert_picture("picture-server.txt", servers, servers.url())

    def test_a_cluster(self):
        with scene.Servers(3) as servers:
            scene.play(servers)
            self.assert_picture("picture-cluster.txt", servers, servers.url(1), "menu")
            watch = Watch(servers.url())
            self.addCleanup(watch.close)
            before = watch.look()
            servers.processes[2].kill()
            servers.processes[2].wait()
            for _ in range(2):
                now = watch.look()
                text = "\n".join(frame(now, before))
                self.assertIn(f"\n127.0.0.1:{servers.ports[2]}: ", text, "it tells what does not answer")
                self.assertIn(f"127.0.0.1:{servers.ports[1]}", text, "and shows the others")
                before = now

    def test_primaries(self):
        def node(port, role=b"master", health=b"online", endpoint=b"", ip=b"10.0.0.1"):
            names = (b"endpoint", b"ip", b"port", b"role", b"health")
            return [word for pair in zip(names, (endpoint, ip, port, role, health)) for word in pair]

        shards = [
            {"slots": [0, 10], "nodes": [node(2, b"replica"), node(1)]},
            {"slots": [11, 20, 30, 40], "nodes": [node(3, health=b"fail"), node(4, b"replica")]},
            {"slots": [], "nodes": [node(5)]},
            {"slots": [21, 29], "nodes": [node(6, endpoint=b"b.example"), node(7, health=b"fail")]},
            {"slots": [41, 50], "nodes": [node(8, endpoint=None, ip=b"")]},
            {"slots": [51, 60], "nodes": [node(9, endpoint=b"?")]},
        ]
        found, lost = look.primaries_of(shards, "here")
        self.assertEqual(found, [("10.0.0.1", 1), ("10.0.0.1", 9), ("b.example", 6), ("here", 8)])
        self.assertEqual(lost, [{"node": "slots 11-20, 30-40", "error": "no primary is online"}])


if __name__ == "__main__":
    unittest.main()
