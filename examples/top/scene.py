"""Servers of its own for `test.py`, and a scene on them with something in every table."""

import os
import random
import socket
import subprocess
import tempfile
import time

from connection import Server, ServerError, fields

SERVER = os.environ.get("RWLOCK_SERVER", "redis-server")
MODULE = os.environ["RWLOCK_MODULE"]


class Servers:
    """A server, or a cluster of so many; gone with the block."""

    def __init__(self, count=1):
        self._folder = tempfile.TemporaryDirectory()
        self._open, self.processes, self.ports = [], [], []
        while len(self.ports) < count:
            # Below the ephemeral ports, also that of the cluster's bus.
            port = random.randrange(20000, 22000)
            if port not in self.ports and free(port) and free(port + 10000):
                self.ports.append(port)
        self.ports.sort()
        try:
            for port in self.ports:
                self._start(port, count > 1)
            if count > 1:
                self._join(count)
        except BaseException:
            self.close()
            raise

    def _start(self, port, is_cluster):
        folder = os.path.join(self._folder.name, str(port))
        os.mkdir(folder)
        words = ["--port", str(port), "--dir", folder, "--save", "", "--loadmodule", MODULE]
        words += ["--cluster-enabled", "yes"] if is_cluster else []
        log = os.path.join(folder, "log")
        with open(log, "wb") as out:
            self.processes.append(subprocess.Popen([SERVER, *words], stdout=out, stderr=out))

        def answers():
            if self.processes[-1].poll() is not None:
                with open(log) as text:
                    raise AssertionError(text.read())
            try:
                self.to(port)
            except OSError:
                return False
            return True

        until(answers)

    def _join(self, count):
        """Gives each node its part of the slots, in the order of the ports."""
        bounds = [16384 * i // count for i in range(count + 1)]
        for port, first, end in zip(self.ports, bounds, bounds[1:]):
            self.to(port).ask("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            self.to(port).ask("CLUSTER", "SET-CONFIG-EPOCH", port)
        for port in self.ports[1:]:
            self.to(port).ask("CLUSTER", "MEET", "127.0.0.1", self.ports[0])

        def is_whole(node):
            shards = [fields(shard) for shard in node.ask("CLUSTER", "SHARDS")]
            return b"cluster_state:ok" in node.ask("CLUSTER", "INFO") and count == sum(
                bool(shard["slots"]) and fields(shard["nodes"][0])["health"] == b"online" for shard in shards
            )

        for port in self.ports:
            node = self.to(port)
            until(lambda: is_whole(node))

    def url(self, number=0, user=""):
        return f"redis://{user}127.0.0.1:{self.ports[number]}"

    def to(self, port):
        """A new connection, which is open until the end."""
        self._open.append(Server(f"redis://127.0.0.1:{port}"))
        return self._open[-1]

    def of(self, lock):
        """A new connection to the node of this lock."""
        node = self.to(self.ports[0])
        try:
            node.ask("TYPE", lock)
        except ServerError as moved:
            node = self.to(int(str(moved).rsplit(":", 1)[1]))
        return node

    def close(self):
        for connection in self._open:
            connection.close()
        for process in self.processes:
            process.kill()
            process.wait()
        self._folder.cleanup()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def free(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def until(is_true):
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.02)


def play(servers):
    """Locks that are held, waiters, of several locks too, a timeout, a deadlock, and force."""

    def ask(lock, *words):
        return servers.of(lock).ask(f"RWLOCK.{words[0]}", *words[1:])

    def waits(lock, *words, name=None):
        """A client that waits; its connection stays open."""
        client = servers.of(lock)
        if name:
            client.ask("CLIENT", "SETNAME", name)
        before = waiters(lock)
        client.send(f"RWLOCK.{words[0]}", *words[1:])
        until(lambda: waiters(lock) > before)
        return client

    watcher = {}

    def waiters(lock):
        watcher[lock] = watcher.get(lock) or servers.of(lock)
        return fields(watcher[lock].ask("RWLOCK.INSPECT", lock))["waiters_total"]

    # Held, the first for the longest time.
    nightly = servers.of("orders")
    nightly.ask("CLIENT", "SETNAME", "nightly-report")
    nightly.ask("RWLOCK.WLOCK", "orders", "report-1", 600_000, "SESSION")
    time.sleep(0.05)
    for reader in ("ann", "bob"):
        ask("store", "RLOCK", "store", reader, 600_000)
    time.sleep(0.05)
    for _ in range(2):
        ask("{kitchen}:oven", "WLOCK", "{kitchen}:oven", "cat", 600_000)

    waits("orders", "WLOCK", "orders", "checkout-1", 30_000, "BLOCK", 0, name="shop")
    time.sleep(0.05)
    waits("orders", "RLOCK", "orders", "checkout-2", 30_000, "BLOCK", 0)
    joint = ("MLOCK", "dan", 30_000, "WRITE", 2, "{kitchen}:oven", "{kitchen}:sink", "BLOCK", 0)
    waits("{kitchen}:sink", *joint)

    ask("store", "WLOCK", "store", "eve", 30_000, "BLOCK", 900)

    ask("{pair}:a", "WLOCK", "{pair}:a", "fay", 600_000)
    ask("{pair}:b", "WLOCK", "{pair}:b", "gus", 600_000)
    waits("{pair}:b", "WLOCK", "{pair}:b", "fay", 600_000, "BLOCK", 0)
    try:
        ask("{pair}:a", "WLOCK", "{pair}:a", "gus", 600_000, "BLOCK", 0)
        raise AssertionError("no deadlock")
    except ServerError as error:
        assert str(error).startswith("DEADLOCK"), error
    time.sleep(0.05)
    ask("{pair}:b", "UNLOCK", "{pair}:b", "gus")
    for lock in ("{pair}:a", "{pair}:b"):
        ask(lock, "UNLOCK", lock, "fay")

    ask("menu", "RLOCK", "menu", "hal", 600_000)
    time.sleep(0.05)
    ask("menu", "FORCEUNLOCK", "menu")
