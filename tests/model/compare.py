"""Whether what the server did is what a world expects. Each function returns None, or
one line that says what differs."""

from .keyspace import (FOREVER, HASH, STRING, Keyspace, fence_key, prefix, timeout_key)
from .resp import Error, pairs

CLOSED = "(the server closed the connection)"
GONE = -1  # stands for the slot of a connection that is closed


def reply(pattern, got, world, slot_of, slack):
    """Compares a reply with its pattern. `slack` is the tolerance in ms."""
    kind = pattern[0]
    if kind == "any":
        return None
    if kind == "closed" or got is CLOSED:
        good = kind == "closed" and got is CLOSED
    elif kind == "ok":
        good = got == "OK" and not isinstance(got, Error)
    elif kind == "int":
        good = got == pattern[1] and isinstance(got, int)
    elif kind == "ms":
        good = isinstance(got, int) and (pattern[1] is None or any(
            got == (-1 if end == FOREVER else 0 if end == 0 else got)
            and (end in (FOREVER, 0) or (got > 0 and abs(end - world.now - got) <= slack))
            for end in pattern[1]) or loose(pattern, got, world, slack))
    elif kind == "err":
        good = isinstance(got, Error) and got.startswith(pattern[1])
    elif kind == "deadlock":
        return deadlock(pattern[1], got)
    elif kind == "ints":
        good = got == pattern[1]
    elif kind == "tokens":
        good = isinstance(got, list) and len(got) == 1 + len(pattern[1]) and got[0] == "OK" and all(
            token(one, value, least, slack) for one, (_, value, least) in zip(got[1:], pattern[1]))
    elif kind == "help":
        good = isinstance(got, list) and all(isinstance(line, str) for line in got)
    elif kind in ("lua", "multi"):
        if not isinstance(got, list) or len(got) != len(pattern[1]):
            return f"expected {len(pattern[1])} replies, got {got!r}"
        for one, other in zip(pattern[1], got):
            text = reply(one, other, world, slot_of, slack)
            if text:
                return text
        return None
    elif kind == "inspect":
        if isinstance(got, Error):
            return f"expected a map, got {got!r}"
        return inspect(pattern[1], got, slot_of, slack, pattern[2], world)
    elif kind == "queues":
        return queues(pattern[1], got, pattern[2])
    else:
        raise ValueError(kind)
    return None if good else f"expected {show(pattern, world)}, got {got!r}"


def loose(pattern, got, world, slack):
    """Ends of keys that the server renews by itself may be later than the model's."""
    floating = world.floating()
    if not floating:
        return False
    longest = max(lease for _, lease in floating)
    return 0 < got <= longest + slack and any(
        end != FOREVER and got >= min(end - world.now, longest * 0.6) - slack
        for end in pattern[1])


def token(got, value, least, slack):
    if least is None:
        return got == value
    return abs(got - value) <= slack * 1000 and got >= least


def show(pattern, world):
    if pattern[0] == "ms" and pattern[1]:
        return "one of " + ", ".join(
            "-1" if e == FOREVER else f"{max(0, e - world.now):.0f} ms" for e in pattern[1])
    return " ".join(str(p) for p in pattern)


def deadlock(known, got):
    """It has to name a circle of owners that really wait for each other."""
    if not isinstance(got, Error) or not got.startswith("DEADLOCK "):
        return f"expected DEADLOCK, got {got!r}"
    text = str(got)[len("DEADLOCK "):]
    named = []
    for part in text.split(", "):
        words = part.split(" ")
        if words[1:3] != ["waits", "for"] or len(words) != 4:
            return f"DEADLOCK that names no circle: {got!r}"
        named.append((words[0], words[3]))
    closed = all(a[1] == b[0] for a, b in zip(named, named[1:] + named[:1]))
    if not closed or not set(named) <= known:
        return f"DEADLOCK names {named}, the model knows {sorted(known)}"
    return None


def inspect(state, got, slot_of, slack, count, world):
    got = pairs(got)
    if got["mode"] != state["mode"]:
        return f"mode: expected {state['mode']}, got {got['mode']}"
    if not left(state["end"] if state["mode"] != "free" else None, got["ttl"], state, slack, world):
        return f"ttl: expected {state['end'] - state['now']:.0f}, got {got['ttl']}"
    if got["holders_total"] != len(state["holders"]):
        return f"holders: expected {sorted(state['holders'])}, got {got['holders']}"
    if len(got["holders"]) != min(count, len(state["holders"])):
        return f"holders: {len(got['holders'])} listed"
    for holder in map(pairs, got["holders"]):
        name = (holder["owner"], holder["kind"])
        if name not in state["holders"]:
            return f"holder {name} is not expected"
        holds, end = state["holders"][name]
        if holder["holds"] != holds or not left(end, holder["ttl"], state, slack, world):
            return f"{name}: expected {holds} holds, {end - state['now']:.0f} ms, got {holder}"
        session = slot_of.get(holder["session"], None if holder["session"] == 0 else GONE)
        if session not in state["sessions"][name]:
            return f"session of {name}: expected {state['sessions'][name]}, got {session}"
    if got["waiters_total"] != len(state["waiters"]):
        return f"waiters: expected {brief(state['waiters'])}, got {got['waiters']}"
    listed = [(w["owner"], w["kind"], slot_of.get(w["client"])) for w in map(pairs, got["waiters"])]
    expected = [(w.owner, w.kind, w.slot) for w in state["waiters"]]
    by_arrival = [(w.owner, w.kind, w.slot) for w in state["unreserved"]]
    if listed not in (expected[:count], by_arrival[:count]):
        return f"waiters: expected {expected[:count]}, got {listed}"
    waiting = {w.slot: w for w in state["waiters"]}
    for shown in map(pairs, got["waiters"]):
        waiter = waiting[slot_of[shown["client"]]]
        wanted = 0 if waiter.deadline == FOREVER else waiter.deadline - state["now"]
        if abs(shown["timeout"] - wanted) > slack + 5:
            return f"timeout of {brief([waiter])}: expected {wanted:.0f}, got {shown['timeout']}"
        if shown["locks"] != len(waiter.places()):
            return f"locks of {brief([waiter])}: expected {len(waiter.places())}, got {shown}"
    if got["reserved_by"] != state["reserved"]:
        return f"reserved_by: expected {state['reserved']}, got {got['reserved_by']}"
    if not (got["fence"] == state["fence"] or (
            state["fence"] in world.fuzzy and token(got["fence"], state["fence"], 0, slack))):
        return f"fence: expected {state['fence']}, got {got['fence']}"
    return None


def left(end, got, state, slack, world):
    if end is None:
        return got == -2
    if end == FOREVER:
        return got == -1
    if got == -1 or world.touched:
        return bool(world.touched)  # the comparison of the keys looks closer
    return abs(end - state["now"] - got) <= slack or (
        loose(("ms", [end]), got, world, slack))


def timeouts(rows):
    """The ms that each client still waits, by INSPECT. Those are exact."""
    left = {}
    for row in rows:
        if isinstance(row, list) and row[:1] == ["mode"]:
            for waiter in map(pairs, pairs(row)["waiters"]):
                left[waiter["client"]] = waiter["timeout"]
    return left


def brief(waiters):
    return [f"{w.owner} {w.kind} client {w.slot}" for w in waiters]


def queues(lengths, got, count):
    listed = [pairs(one) for one in got]
    sizes = [one["waiters"] for one in listed]
    if sizes != sorted(sizes, reverse=True) or len(listed) != min(count, len(lengths)):
        return f"QUEUES: expected {lengths}, got {listed}"
    if any(lengths.get(one["key"]) != one["waiters"] for one in listed):
        return f"QUEUES: expected {lengths}, got {listed}"
    if sizes != sorted(lengths.values(), reverse=True)[:count]:
        return f"QUEUES: expected {lengths}, got {listed}"
    return None


def read_dump(rows):
    """The keys of both databases, from the rows of the driver's script."""
    space = Keyspace()
    for db, key, kind, end, value in rows:
        if kind == HASH:
            value = dict(zip(value[::2], value[1::2]))
        space.put(db, key, kind, value, FOREVER if end < 0 else end)
    return space


def normal(space, now):
    """Without what means nothing: lapsed holds, and timeout keys without a hold."""
    space = space.clone()
    space.drop_expired(now)
    for db in (0, 1):
        locks = sorted(space.locks(db, now))
        used = set()
        for key in locks:
            space.clean(db, key, now, lambda owner, number: None)
            view = space.view(db, key, now)
            used |= {timeout_key(key, o, n) for o, live in view.readers.items() for n, _ in live}
        for key in [k for k in space.dbs[db] if ":rwlock_timeout:" in k and k not in used]:
            del space.dbs[db][key]
    return space


def keys(world, actual, now, slack):
    """Compares all keys. `actual` is what the server has."""
    expected = normal(world.keys, now)
    floating = {}
    for at, lease in world.floating():
        floating[at] = max(lease, floating.get(at, 0))
    for db in (0, 1):
        want, have = expected.dbs[db], actual.dbs[db]
        for key in sorted(set(want) | set(have)):
            if key not in have:
                return f"db {db}: {key} is missing, expected {want[key]}"
            if key not in want:
                return f"db {db}: {key} is not expected: {have[key]}"
            (kind, value, end), (its_kind, its_value, its_end) = want[key], have[key]
            if kind != its_kind:
                return f"db {db}: {key}: expected a {kind}, got a {its_kind}"
            if ":rwlock_timeout:" in key and "1" in (value, its_value):
                value = its_value  # Redisson writes 1 where the module writes the name
            if value != its_value and not (
                    kind == STRING and value.isdigit() and int(value) in world.fuzzy
                    and token(int(its_value), int(value), 0, slack)):
                return f"db {db}: {key}: expected {value}, got {its_value}"
            if end == its_end or abs(end - its_end) <= slack:
                continue
            lease = floating.get((db, key))
            if lease and min(end, now + lease * 0.6) - slack <= its_end <= now + lease + slack:
                continue
            if kind == HASH and its_end == FOREVER and (
                    persisted(want, key) or (db, key) in world.touched):
                continue
            if kind == HASH and (db, key) in world.touched:
                # Others may have made the hash longer than its holds, or a hold longer
                # than the hash: when that is mended is open.
                latest = max((e for live in expected.view(db, key, now).readers.values()
                              for _, e in live), default=end)
                if min(latest, end) - slack <= its_end <= max(latest, end) + slack and (
                        value.get("mode") == "read" or its_end > end):
                    continue
            return (f"db {db}: {key}: expected its end in {end - now:.0f} ms, "
                    f"got {its_end - now:.0f} ms")
    return None


def persisted(db, lock):
    return any(k.startswith(prefix(lock) + ":") and ":rwlock_timeout:" in k and e[2] == FOREVER
               for k, e in db.items())


def adopt(world, raw, now):
    """Takes over the exact ends and tokens, once they were found right."""
    for db in (0, 1):
        have = raw.dbs[db]
        for key in list(world.keys.dbs[db]):
            entry = world.keys.dbs[db].get(key)
            if entry is None or entry[0] != HASH:
                continue
            if key not in have or have[key][1] != entry[1]:
                world.clean(db, key)
        for key, (kind, value, end) in have.items():
            mine = world.keys.dbs[db].get(key)
            if mine is None or ":rwlock_timeout:" in key:
                continue
            if kind == STRING and key.endswith(":rwlock_fence") and mine[1] != value:
                adopt_token(world, db, key, int(mine[1]), int(value))
                mine = (kind, value, end)
            world.keys.dbs[db][key] = (mine[0], mine[1], end)
        adopt_read_ends(world, raw, db, now)
        for key in [k for k in world.keys.dbs[db] if k not in have]:
            if ":rwlock_timeout:" in key and key not in normal(world.keys, now).dbs[db]:
                del world.keys.dbs[db][key]


def adopt_read_ends(world, raw, db, now):
    """By the place of each live hold: one side may have renumbered already."""
    for lock in world.keys.locks(db, now):
        its = raw.view(db, lock, now).readers
        for owner, live in world.keys.view(db, lock, now).readers.items():
            if len(its.get(owner, ())) == len(live):
                for (number, _), (other, _) in zip(live, its[owner]):
                    entry = raw.dbs[db][timeout_key(lock, owner, other)]
                    world.keys.dbs[db][timeout_key(lock, owner, number)] = entry


def adopt_token(world, db, key, mine, its):
    token_of, owner = world.handed_out.get((db, key), (None, None))
    if token_of == mine:
        world.handed_out[(db, key)] = (its, owner)
    for (where, lock), (owner, value, certain) in list(world.tenures.items()):
        if where == db and fence_key(lock) == key and value == mine:
            world.tenures[(where, lock)] = (owner, its, certain)
