#!/usr/bin/env python3
"""Counts the instructions that a server executes for a lock and its unlock.

    scripts/instructions.py [module.so ...]

Runs a server with each module in turn under callgrind (valgrind), and prints a table: the
instructions of each pair inside the server's function `call`, which is what INFO commandstats
times. The columns "log" count all that the server executes, for a hand-off without RWLOCK.LOG
(off), with it as by default (on), and with an entry for each wait (each). Counts repeat to some
0.2 % (hand-offs: 1 %), also on a busy machine, where times do not.
Without an argument the module is target/release/librwlock.so. SERVER names another server.
"""

import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

LOCKS = 100
WARM_UP, ROUNDS = 5, 40
LEASE = "3600000"
OWNERS = [f"b1b7c2de-9a57-4b5c-8f5e-0d8a3f6f2c11:{number}" for number in (900042, 900043)]


def command(*words):
    parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
    return f"*{len(words)}\r\n{''.join(parts)}".encode()


def pair(prefix, kind, lock, owner):
    take = command(f"{prefix}.{kind[0]}LOCK", lock, owner, LEASE)
    return take + command(f"{prefix}.UNLOCK", lock, owner, kind)


class Client:
    def __init__(self, prefix, port):
        self.prefix = prefix
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.replies = self.socket.makefile("rb")

    def ask(self, request, replies=1):
        self.socket.sendall(request)
        for _ in range(replies):
            self.hear()

    def hear(self):
        line = self.replies.readline()
        if line[:1] not in (b"+", b":"):
            sys.exit(f"the server answers {line}")


def pipelined(kind, beside=False):
    """Pairs of one client on many locks in turn. `beside`: each lock has another reader."""

    def prepare(one, other):
        names = [f"{kind}:{beside}:{number}" for number in range(LOCKS)]
        if beside:
            for name in names:
                other.ask(command("RWLOCK.RLOCK", name, OWNERS[1], LEASE))
        batch = b"".join(pair(one.prefix, kind, name, OWNERS[0]) for name in names)

        def run(rounds):
            for _ in range(rounds):
                one.ask(batch, 2 * LOCKS)
            return rounds * LOCKS

        return run

    return prepare


def handed_over(one, other):
    """Each unlock hands the lock to the other client, which waits for it."""
    clients, name = (one, other), f"handed over {time.monotonic()}"
    take = [command("RWLOCK.WLOCK", name, owner, LEASE, "BLOCK", "0") for owner in OWNERS]
    give = [command("RWLOCK.UNLOCK", name, owner) for owner in OWNERS]
    one.ask(take[0])

    def run(rounds):
        for _ in range(10 * rounds):
            for holder, waiter in [(0, 1), (1, 0)]:
                clients[waiter].socket.sendall(take[waiter])
                time.sleep(0.005)  # Until the server has read it.
                clients[holder].ask(give[holder])
                clients[waiter].hear()
        return 20 * rounds

    return run


def logged(slower_than):
    """As handed_over, with this setting of the log, in ms."""

    def prepare(one, other):
        one.ask(command("CONFIG", "SET", "rwlock.log-slower-than", slower_than))
        return handed_over(one, other)

    return prepare


PAIRS = {"write": pipelined("WRITE"), "read": pipelined("READ")}
LOG = {"log off": logged("-1"), "log on": logged("1000"), "log each": logged("0")}
# The function that is counted (None: everything), and whether there is an AOF.
CASES = [
    ("call", "no", PAIRS | {"2nd reader": pipelined("READ", beside=True), "handoff": handed_over}),
    ("call", "yes", {f"{name}, AOF": prepare for name, prepare in PAIRS.items()}),
    # The server sends the answer of a waiter outside of `call`.
    (None, "no", LOG),
]
# What the floor does not know: other holders and waiters.
NOT_FLOOR = {"2nd reader", "handoff", *LOG}


def control(server, what):
    subprocess.run(["callgrind_control", what, str(server.pid)], check=True, capture_output=True)


def count(module, prefix, function, aof, cases):
    """The instructions for each pair, case by case. `function`: only those inside it."""
    only = [f"--toggle-collect={function}"] if function else []
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(
            ["valgrind", "--tool=callgrind", *only]
            + [f"--callgrind-out-file={folder}/out", os.environ.get("SERVER", "redis-server")]
            + ["--port", str(port), "--dir", folder, "--save", "", "--hz", "1"]
            + ["--appendonly", aof, "--loadmodule", os.path.abspath(module)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            clients = [connect(server, prefix, port) for _ in OWNERS]
            for number, prepare in enumerate(cases, 1):
                run = prepare(*clients)
                run(WARM_UP)
                control(server, "--zero")
                pairs = run(ROUNDS)
                control(server, "--dump")
                with open(f"{folder}/out.{number}", encoding="utf-8") as counted:
                    yield int(re.search(r"^totals: (\d+)", counted.read(), re.M)[1]) / pairs
        finally:
            server.kill()
            server.wait()


def connect(server, prefix, port):
    """A client, once the server takes it."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit and server.poll() is None:
        try:
            return Client(prefix, port)
        except ConnectionRefusedError:
            time.sleep(0.1)
    sys.exit("the server does not start")


def main():
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed")
    modules = sys.argv[1:] or ["target/release/librwlock.so"]
    names = [name for *_, cases in CASES for name in cases]
    print(f"{'':12}", *(f"{name:>10}" for name in names))
    for module in modules:
        name = os.path.basename(module).removeprefix("lib").removesuffix(".so")
        print(f"{name:12}", end="", flush=True)
        for function, aof, cases in CASES:
            known = [case for at, case in cases.items() if name != "floor" or at not in NOT_FLOOR]
            prefix = "FLOOR" if name == "floor" else "RWLOCK"
            counts = iter(count(module, prefix, function, aof, known) if known else ())
            for _ in cases:
                print(f" {next(counts, math.nan):10.0f}", end="", flush=True)
        print()


main()
