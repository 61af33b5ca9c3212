#!/usr/bin/env python3
"""Watch the locks of a Redis or Valkey server with the rwlock module.

    top.py [-i SECONDS] [-n FRAMES] [redis://[[user]:password@]host[:port][/db]] [LOCK ...]

Shows the locks that clients wait for, longest queue first, and those that are named:
who holds them and who is next; and what the server does per second. In a terminal it
refreshes; elsewhere it prints one frame after the other. Needs nothing but Python.
"""

import argparse
import os
import shutil
import socket
import sys
import time
from urllib.parse import unquote, urlsplit

#: The counters of INFO rwlock that are shown as rates, and what they are called here.
RATES = {
    "rwlock_acquired": "acquired",
    "rwlock_refused": "refused",
    "rwlock_waited": "began to wait",
    "rwlock_released": "released",
    "rwlock_lapsed": "lapsed",
    "rwlock_timeouts": "timed out",
    "rwlock_deadlocks": "deadlocks",
    "rwlock_disconnect_releases": "disconnected",
}
LEVELS = {
    "rwlock_waiters": "waiters",
    "rwlock_queues": "queues",
    "rwlock_session_holds": "session holds",
}
#: How wide a column may be.
LIMITS = (40, 12, 12, 12, 12, 60, 200)
#: Where the server has no INFO rwlock: its count of each command.
COMMANDS = ("rlock", "wlock", "unlock", "renew", "upgrade", "downgrade")


class ServerError(Exception):
    """What the server answered."""


class Server:
    """A connection that sends a command and reads its reply (RESP2)."""

    def __init__(self, url):
        parts = urlsplit(url if "://" in url else f"redis://{url}")
        if parts.scheme != "redis" or not parts.hostname:
            raise ValueError(f"{url}: not redis://host[:port][/db]")
        self.address = f"{parts.hostname}:{parts.port or 6379}"
        self._socket = socket.create_connection((parts.hostname, parts.port or 6379), timeout=10)
        self._stream = self._socket.makefile("rb")
        if parts.password is not None:
            user = [unquote(parts.username)] if parts.username else []
            self.ask("AUTH", *user, unquote(parts.password))
        if parts.path.strip("/"):
            self.ask("SELECT", parts.path.strip("/"))

    def ask(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        sent = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self._socket.sendall(b"*%d\r\n%s" % (len(words), sent))
        reply = self._reply()
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def _reply(self):
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ServerError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if int(rest) < 0 else self._stream.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self._reply() for _ in range(int(rest))]
        raise ConnectionError(f"no Redis: {line!r}")

    def info(self, section):
        lines = self.ask("INFO", section).decode(errors="replace").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


def fields(flat):
    """A map of RESP2: names and values in turn."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2])}


def look(server, names=(), count=20):
    """All that a frame shows."""
    about = {**server.info("server"), **server.info("replication")}
    modules = [fields(module) for module in server.ask("MODULE", "LIST")]
    module = next((module for module in modules if module["name"] == b"rwlock"), None)
    if not module:
        raise ServerError("this server has no rwlock module")
    queues = [fields(queue) for queue in server.ask("RWLOCK.QUEUES", "COUNT", count)]
    oldest = {queue["key"]: queue["oldest"] for queue in queues}
    locks = {}
    for name in [*names, *(key for key in oldest if key not in names)]:
        try:
            lock = fields(server.ask("RWLOCK.INSPECT", name, "COUNT", 3))
        except ServerError as error:
            lock = {"error": str(error)}
        locks[name] = {**lock, "oldest": oldest.get(name)}
    stats = server.info("commandstats")
    calls = {word: stats.get(f"cmdstat_rwlock.{word}", "calls=0") for word in COMMANDS}
    version = module["ver"]
    return {
        "at": time.monotonic(),
        "address": server.address,
        "server": " ".join(engine(about)),
        "role": "primary" if about.get("role") == "master" else "replica, where nobody waits",
        "module": f"{version // 10000}.{version // 100 % 100}.{version % 100}",
        "info": server.info("rwlock"),
        "calls": {word: int(said.split(",")[0].split("=")[1]) for word, said in calls.items()},
        "locks": locks,
    }


def engine(about):
    if "valkey_version" in about:
        return "Valkey", about["valkey_version"]
    return "Redis", about["redis_version"]


def frame(now, before=None):
    """The lines of what was seen now; the rates are those since what was seen before."""
    clock = time.strftime("%H:%M:%S")
    lines = [
        f"rwlock {now['module']}  {now['server']}  {now['address']}  {now['role']}  {clock}",
        "",
        rates(now, before),
    ]
    info = now["info"]
    levels = [f"{label} {info[name]}" for name, label in LEVELS.items() if name in info]
    waits = [
        f"{part} {info[f'rwlock_wait_ms_{part}']} ms"
        for part in ("p50", "p99", "max")
        if f"rwlock_wait_ms_{part}" in info
    ]
    if levels or waits:
        lines.append("   ".join(levels + (["granted after " + ", ".join(waits)] if waits else [])))
    if "rwlock_sweep_percent" in info and info.get("rwlock_sweep") == "running":
        lines.append(f"the sweep has seen {info['rwlock_sweep_percent']} % of the keys")
    if "rwlock_warning" in info:
        lines.append(f"WARNING: {info['rwlock_warning']}")
    lines.append("")
    rows = [row(name, lock) for name, lock in now["locks"].items()]
    if not rows:
        return lines + ["nobody waits"]
    rows.insert(0, ("LOCK", "MODE", "ENDS IN", "WAITING", "OLDEST", "HELD BY", "NEXT"))
    rows = [[short(cell, limit) for cell, limit in zip(cells, LIMITS)] for cells in rows]
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(LIMITS))]
    for cells in rows:
        lines.append("  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths)).rstrip())
    return lines


def short(text, limit):
    return text if len(text) <= limit else text[: limit - 1] + "…"


def rates(now, before):
    if any(name in now["info"] for name in RATES):
        labels = RATES
        counts = [{name: int(one["info"].get(name, 0)) for name in RATES} for one in (now, before or now)]
    else:
        labels = {word: word.upper() for word in COMMANDS}
        counts = [one["calls"] for one in (now, before or now)]
    if not before:
        shown = [f"{label} {counts[0][name]:,}" for name, label in labels.items()]
        return "since its start:  " + "   ".join(shown)
    passed = max(now["at"] - before["at"], 1e-9)
    shown = [
        f"{label} {max(0, counts[0][name] - counts[1][name]) / passed:,.0f}"
        for name, label in labels.items()
    ]
    return "per second:  " + "   ".join(shown)


def row(name, lock):
    if "error" in lock:
        return printable(name), "", "", "", "", lock["error"], ""
    ends = {-1: "never", -2: ""}.get(lock["ttl"], span(lock["ttl"]))
    holders = []
    for holder in map(fields, lock["holders"]):
        times = f" x{holder['holds']}" if holder["holds"] > 1 else ""
        kind = " writes" if holder["kind"] == b"write" else " reads"
        bound = f", client {holder['session']}" if holder["session"] else ""
        holders.append(f"{printable(holder['owner'])}{kind}{times}{bound}")
    if not holders and lock["reserved_by"] is not None:
        holders.append(f"reserved by {printable(lock['reserved_by'])}")
    waiters = [
        f"{printable(waiter['owner'])} {waiter['kind'].decode()}s"
        for waiter in map(fields, lock["waiters"])
    ]
    return (
        printable(name),
        lock["mode"].decode(),
        ends,
        str(lock["waiters_total"]),
        "" if lock["oldest"] is None else span(lock["oldest"]),
        listed(holders, lock["holders_total"]),
        listed(waiters, lock["waiters_total"]),
    )


def listed(shown, total):
    more = f" and {total - len(shown)} more" if total > len(shown) > 0 else ""
    return "; ".join(shown) + more


def span(ms):
    if ms < 1000:
        return f"{ms} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.0f} min"


def printable(name):
    """A name may be any bytes; none may steer the terminal."""
    text = name.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show(lines, screen):
    if not screen:
        print("\n".join(lines), end="\n\n", flush=True)
        return
    size = shutil.get_terminal_size()
    lines = [line[: size.columns] for line in lines[: size.lines - 1]]
    # Home, and each line over the last one's: no flicker.
    body = "".join(f"{line}\x1b[K\n" for line in lines)
    sys.stdout.write(f"\x1b[H{body}\x1b[J")
    sys.stdout.flush()


def main():
    options = argparse.ArgumentParser(description="Watch the locks of a server.")
    options.add_argument("-i", "--interval", type=float, default=1, metavar="SECONDS")
    options.add_argument("-n", "--frames", type=int, default=0, help="0, the default: no end")
    options.add_argument("url", nargs="?", default="redis://127.0.0.1:6379")
    options.add_argument("locks", nargs="*", metavar="LOCK", help="to show, waited for or not")
    chosen = options.parse_args()
    if chosen.interval <= 0:
        options.error("the interval must be more than 0")
    screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    server, before, shown = None, None, 0
    if screen:
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        while True:
            try:
                server = server or Server(chosen.url)
                now = look(server, [os.fsencode(lock) for lock in chosen.locks])
                show(frame(now, before), screen)
                before = now
            except (OSError, ServerError) as error:
                # One that has restarted is found again.
                if not before:
                    raise
                show([f"{before['address']}: {error}"], screen)
                server = None
            shown += 1
            if chosen.frames and shown >= chosen.frames:
                return
            time.sleep(chosen.interval)
    finally:
        if screen:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ServerError, ValueError) as error:
        sys.exit(f"top: {error}")
