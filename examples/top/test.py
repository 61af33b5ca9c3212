"""What `top` shows, of the server at RWLOCK_URL, which is no cluster."""

import os
import subprocess
import sys
import time
import unittest
import uuid

import top

URL = os.environ["RWLOCK_URL"]
PROGRAM = [sys.executable, top.__file__]


class Shown(unittest.TestCase):
    def setUp(self):
        self.name = f"test:{uuid.uuid4().hex[:12]}"
        self.server = self.connect()

    def connect(self):
        server = top.Server(URL)
        self.addCleanup(server._socket.close)
        self.addCleanup(server._stream.close)
        return server

    def tearDown(self):
        self.server.ask("RWLOCK.FORCEUNLOCK", self.name)

    def run_top(self, *words):
        done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("\x1b", done.stdout, "plain when it is no terminal")
        return done.stdout

    def wait_for(self, kind, owner):
        """A client that waits. Its connection is left open, for its reply to come."""
        waiter = self.connect()
        before = self.inspect()["waiters_total"]
        words = [f"RWLOCK.{kind}", self.name, owner, "30000", "BLOCK", "0"]
        sent = "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        waiter._socket.sendall(f"*{len(words)}\r\n{sent}".encode())
        end = time.monotonic() + 10
        while self.inspect()["waiters_total"] == before:
            self.assertLess(time.monotonic(), end, "it does not wait")

    def inspect(self):
        return top.fields(self.server.ask("RWLOCK.INSPECT", self.name))

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
        self.assertRegex(line, r" write +(29\.\d|30\.0) s +4 +\d+(\.\d)? m?s ")
        self.assertIn(f"ann writes x2, client {me}", line)
        self.assertIn("bob writes; cat reads; dan reads and 1 more", line)

    def test_a_long_name_is_cut(self):
        self.assertEqual(top.short("x" * 40, 40), "x" * 40)
        self.assertEqual(top.short("x" * 41, 40), "x" * 39 + "…")

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
        before = top.look(self.server)
        for _ in range(50):
            self.server.ask("RWLOCK.WLOCK", self.name, "ann", 30000)
            self.server.ask("RWLOCK.UNLOCK", self.name, "ann")
        now = top.look(self.server)
        now["at"] = before["at"] + 0.5
        self.assertRegex(top.rates(now, before), r"^per second:  .*\b(acquired|WLOCK) 100\b")
        self.assertRegex(top.rates(now, None), r"^since its start:  ")

    def test_the_section_of_info_where_there_is_one(self):
        now = top.look(self.server)
        now["info"] = {name: "10" for name in (*top.RATES, *top.LEVELS)}
        now["info"].update(rwlock_wait_ms_p50="1", rwlock_wait_ms_p99="20", rwlock_wait_ms_max="300")
        now["info"].update(rwlock_warning="keys may be evicted")
        before = {**now, "at": now["at"] - 2, "info": {name: "4" for name in top.RATES}}
        text = "\n".join(top.frame(now, before))
        for said in (
            "per second:  acquired 3   refused 3",
            "waiters 10   queues 10   session holds 10   granted after p50 1 ms, p99 20 ms, max 300 ms",
            "WARNING: keys may be evicted",
        ):
            self.assertIn(said, text)

    def test_no_name_steers_the_terminal(self):
        self.assertEqual(top.printable(b"a\x1b[2J\xff\n"), "a\\x1b[2J\\xff\\n")

    def test_the_demonstration(self):
        demo = os.path.join(os.path.dirname(top.__file__), "demo.py")
        text = subprocess.run([sys.executable, demo, URL], capture_output=True, text=True, timeout=60)
        self.assertEqual((text.returncode, text.stderr), (0, ""))
        self.assertIn("per second:", text.stdout)
        self.assertRegex(text.stdout, r"\b(checkout|warehouse|shop|report)-\w (writes|reads), client \d+\b")

    def test_it_says_what_is_wrong(self):
        for words, said in (
            (["redis://127.0.0.1:1"], "refused"),
            (["http://127.0.0.1"], "not redis://"),
            (["-i", "0"], "more than 0"),
        ):
            done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(said, done.stderr)
            self.assertNotIn("Traceback", done.stderr)

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


if __name__ == "__main__":
    unittest.main()
