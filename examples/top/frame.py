"""What was seen, as lines of text."""

import time

from connection import fields
from look import COMMANDS

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
    "rwlock_held_locks": "held locks",
    "rwlock_waiters": "waiters",
    "rwlock_queues": "queues",
    "rwlock_session_holds": "session holds",
}
#: How wide a column may be: the others are as wide as their cells.
LIMITS = {"LOCK": 40, "HELD BY": 60, "NEXT": 200, "WHO": 60, "WHY": 200}


def frame(now, before=None, rows=20, height=None):
    """The lines of what was seen now; the rates are those since what was seen before. At most
    so many rows of each table; where a height is given, about so many lines."""
    nodes = [node for node in now["nodes"] if "error" not in node]
    lines = [*head(now, nodes), "", *rates(now, before), *levels(nodes), *remarks(now, nodes), ""]
    tables = [table for table in (waited_for(nodes), held(nodes), hot(nodes), log(nodes)) if table]
    most = [min(rows, len(table[1]) - 1) for table in tables]
    if height:
        # Each has its title, its columns' names and a blank line behind it. Where a row of each
        # does not fit, the last ones are left out.
        def room():
            return height + 1 - len(lines) - 3 * len(tables)

        while len(tables) > 1 and room() < len(tables):
            del tables[-1], most[-1]
        most = share(room(), most)
    for (title, table, total), count in zip(tables, most):
        if not now["cluster"]:
            table = [cells[:1] + cells[2:] for cells in table]  # without the node
        left = (total or 0) - count
        lines.append(title + (f" ({left:,} more)" if left > 0 else ""))
        lines += aligned(table[: count + 1]) if count else []
        lines.append("")
    return lines[:-1]


def head(now, nodes):
    clock = time.strftime("%H:%M:%S")
    modules = " and ".join(sorted({node["module"] for node in nodes}))
    servers = " and ".join(sorted({node["server"] for node in nodes}))
    where = now["address"]
    if now["cluster"]:
        where = f"cluster of {len(now['nodes'])} primaries, by {where}"
    roles = [] if now["cluster"] else [node["role"] for node in nodes]
    yield "  ".join(part for part in (f"rwlock {modules}", servers, where, *roles, clock) if part)


def rates(now, before=None):
    """What all nodes together did, each second."""
    nodes = [node for node in now["nodes"] if "error" not in node]
    if any(name in node["info"] for node in nodes for name in RATES):
        labels, counts = RATES, lambda node: {name: int(node["info"].get(name, 0)) for name in RATES}
    elif all("INFO" in node["denied"] for node in nodes):
        return
    else:
        labels, counts = {word: word.upper() for word in COMMANDS}, lambda node: node["calls"]
    if not before:
        sums = {name: sum(counts(node)[name] for node in nodes) for name in labels}
        yield "since its start:  " + "   ".join(f"{label} {sums[name]:,}" for name, label in labels.items())
        return
    earlier = {node["node"]: node for node in before["nodes"] if "error" not in node}
    sums = dict.fromkeys(labels, 0)
    for node in nodes:
        last = earlier.get(node["node"], node)
        passed = max(node["at"] - last["at"], 1e-9)
        for name in labels:
            sums[name] += max(0, counts(node)[name] - counts(last)[name]) / passed
    yield "per second:  " + "   ".join(f"{label} {sums[name]:,.0f}" for name, label in labels.items())


def levels(nodes):
    infos = [node["info"] for node in nodes]
    shown = [
        f"{label} {sum(int(info.get(name, 0)) for info in infos):,}"
        for name, label in LEVELS.items()
        if any(name in info for info in infos)
    ]
    waits = []
    for part in ("p50", "p99", "max"):
        known = [int(info[f"rwlock_wait_ms_{part}"]) for info in infos if f"rwlock_wait_ms_{part}" in info]
        # No percentile of all nodes together is larger than the largest of them.
        most = "" if len(infos) == 1 or part == "max" else "at most "
        waits += [f"{part} {most}{max(known)} ms"] if known else []
    if waits:
        shown.append("granted after " + ", ".join(waits))
    if shown:
        yield "   ".join(shown)


def remarks(now, nodes):
    """What is wrong, and what cannot be shown."""
    for node in now["nodes"]:
        if "error" in node:
            yield f"{node['node']}: {node['error']}"
    said = {}
    for node in nodes:
        info = node["info"]
        told = list(node["errors"])
        if info.get("rwlock_sweep") == "running":
            told.append(f"the sweep has seen {info.get('rwlock_sweep_percent')} % of the keys")
        if "rwlock_warning" in info:
            told.append(f"WARNING: {info['rwlock_warning']}")
        if node["lacking"]:
            told.append(f"this module has no {listed(node['lacking'])}")
        if node["denied"]:
            told.append(f"this user may not run {listed(node['denied'])}")
        if not node["held"]["complete"]:
            told.append(f"looked at {node['held']['total']:,} held locks only: there are more")
        for one in told:
            said.setdefault(one, []).append(node["node"])
    for one, where in said.items():
        yield one if len(where) == len(nodes) else f"{', '.join(where)}: {one}"


def listed(names):
    return ", ".join(names)


def waited_for(nodes):
    """The locks that are named, then those with waiters, longest queue first."""
    rows, named = [], []
    for node in nodes:
        queues = {queue["key"]: queue for queue in node["queues"] or []}
        for name in node["names"]:
            lock = node["locks"][name]
            if lock is not None:
                named.append(queue_row(node, name, lock, queues.get(name)))
        for name, queue in queues.items():
            if name not in node["names"]:
                order = (-queue["waiters"], -queue["oldest"], name)
                rows.append((order, queue_row(node, name, node["locks"].get(name) or {}, queue)))
    if not named and all(node["queues"] is None for node in nodes):
        return None
    rows = named + [row for _, row in sorted(rows, key=lambda one: one[0])]
    title = ("named and waited for" if named else "waited for") if rows else "nobody waits"
    columns = ("LOCK", "NODE", "MODE", "ENDS IN", "WAITING", "OLDEST", "HELD BY", "NEXT")
    return title, [columns, *rows], len(rows)


def queue_row(node, name, lock, queue):
    if "error" in lock:
        return printable(name), node["node"], "", "", "", "", lock["error"], ""
    waiting = lock.get("waiters_total", queue["waiters"] if queue else 0)
    return (
        printable(name),
        node["node"],
        lock.get("mode", b"").decode(),
        ends(lock.get("ttl", -2), lock),
        str(waiting),
        span(queue["oldest"]) if queue else "",
        holders(lock),
        with_more([waiter_of(one) for one in map(fields, lock.get("waiters", []))], waiting),
    )


def held(nodes):
    """All held locks, the one that is held longest first; those of unknown time last."""
    found = [(lock, node) for node in nodes for lock in node["held"]["locks"]]
    if all(node["held"]["total"] is None for node in nodes):
        return None
    found.sort(key=lambda one: -one[0]["held"])
    rows = [
        (
            printable(lock["key"]),
            node["node"],
            lock["mode"].decode(),
            "unknown" if lock["held"] < 0 else span(lock["held"]),
            ends(lock["ttl"], node["locks"][lock["key"]] or {}),
            str(lock["waiters"]),
            holders(node["locks"][lock["key"]] or {}),
        )
        for lock, node in found
    ]
    columns = ("LOCK", "NODE", "MODE", "HELD FOR", "ENDS IN", "WAITING", "HELD BY")
    total = sum(node["held"]["total"] or 0 for node in nodes)
    return "held, longest first" if rows else "no lock is held", [columns, *rows], total


def hot(nodes):
    """The locks that were waited for longest so far."""
    found = [(lock, node) for node in nodes for lock in node["hot"] or []]
    if not found:
        return None
    found.sort(key=lambda one: -one[0]["total"])
    rows = [
        (
            name_of(lock),
            node["node"],
            span(lock["total"]),
            f"{lock['waits']:,}",
            span(lock["total"] // lock["waits"]) if lock["waits"] else "",
            span(lock["max"]),
            f"{lock['timeouts']:,}",
            f"{lock['deadlocks']:,}",
        )
        for lock, node in found
    ]
    columns = ("LOCK", "NODE", "ALL WAITS", "WAITS", "AVERAGE", "LONGEST", "TIMED OUT", "DEADLOCKS")
    return "waited for longest so far", [columns, *rows], None


def log(nodes):
    """What went slowly or wrong, newest first."""
    found = [(entry, node) for node in nodes for entry in node["log"] or []]
    if not found:
        return None
    found.sort(key=lambda one: (-one[0]["time"], -one[0]["id"]))
    rows = [
        (
            time.strftime("%m-%d %H:%M:%S", time.localtime(entry["time"] / 1000)),
            node["node"],
            entry["event"].decode(),
            name_of(entry),
            span(entry["waited"]) if entry["waited"] else "",
            span(entry["held"]) if entry["held"] else "",
            who(entry),
            why(entry),
        )
        for entry, node in found
    ]
    columns = ("TIME", "NODE", "EVENT", "LOCK", "WAITED", "HELD", "WHO", "WHY")
    return "the log, newest first", [columns, *rows], None


def who(entry):
    owner = f"{printable(entry['owner'])} {verb(entry['kind'])}".strip()
    # That of a lock which was forced is not the owner's.
    client = b"" if entry["event"] == b"forced" else client_in(entry)
    return f"{owner}{client_of(client, entry['owner'])}".lstrip(", ")


def why(entry):
    blockers = [
        f"{printable(one['owner'])} {verb(one['kind']) if one['holding'] else 'waits'}"
        for one in map(fields, entry["blockers"])
    ]
    told = "; ".join(part for part in (*blockers, printable(entry["detail"])) if part)
    return told + (client_of(client_in(entry)) if entry["event"] == b"forced" else "")


def client_in(entry):
    return entry["name"] or entry["address"] or str(entry["client"] or "").encode()


def verb(kind):
    return f"{kind.decode()}s" if kind else ""


def name_of(lock):
    return printable(lock["key"]) + (f" (db {lock['db']})" if lock["db"] else "")


def holders(lock):
    shown = []
    for holder in map(fields, lock.get("holders", [])):
        times = f" x{holder['holds']}" if holder["holds"] > 1 else ""
        client = holder.get("name") or str(holder["session"] or "").encode()
        client = client_of(client, holder["owner"])
        shown.append(f"{printable(holder['owner'])} {verb(holder['kind'])}{times}{client}")
    if not shown and lock.get("reserved_by") is not None:
        shown.append(f"reserved by {printable(lock['reserved_by'])}")
    return with_more(shown, lock.get("holders_total", 0))


def waiter_of(waiter):
    # It may wait for another one of its locks, while this one is free.
    several = f" ({waiter['locks']} locks)" if waiter.get("locks", 1) > 1 else ""
    client = client_of(waiter.get("name"), waiter["owner"])
    return f"{printable(waiter['owner'])} {verb(waiter['kind'])}{several}{client}"


def client_of(name, owner=b""):
    # The helpers begin their owners with the name of the connection.
    return f", client {printable(name)}" if name and not owner.startswith(name) else ""


def with_more(shown, total):
    more = f" and {total - len(shown)} more" if total > len(shown) > 0 else ""
    return "; ".join(shown) + more


def aligned(rows):
    """The lines of a table: the first of its rows are its columns' names."""
    limits = [LIMITS.get(column, 24) for column in rows[0]]
    rows = [[short(cell, limit) for cell, limit in zip(cells, limits)] for cells in rows]
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(f"{cell:{width}}" for cell, width in zip(cells, widths)).rstrip() for cells in rows]


def share(lines, needs):
    """How many of these lines each table gets: the same for all, but no more than it needs."""
    got = [0] * len(needs)
    while sum(got) < min(lines, sum(needs)):
        least = min((has, i) for i, has in enumerate(got) if has < needs[i])[1]
        got[least] += 1
    return got


def short(text, limit):
    return text if len(text) <= limit else text[: limit - 1] + "…"


def ends(ttl, lock):
    # The server renews a session, for as long as its client is connected.
    if ttl >= 0 and any(fields(holder)["session"] for holder in lock.get("holders", [])):
        return "renewed"
    return {-1: "never", -2: ""}.get(ttl, span(ttl))


def span(ms):
    if ms < 1000:
        return f"{ms} ms"
    return f"{ms / 1000:.1f} s" if ms < 120_000 else f"{ms / 60_000:.0f} min"


def printable(name):
    """A name may be any bytes; none may steer the terminal."""
    text = name.decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
