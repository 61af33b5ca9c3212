"""The commands of the module, as the contract describes them.

Each takes a world and appends the reply that it expects to `world.out`. A reply is a
pattern: see `compare.py`.
"""

from dataclasses import dataclass

from . import circles, serving
from .holds import (Refused, choose_hold, give_back_read, give_back_write, lengthen, read_ends,
                    rely_on, settle_unsure, take_read)
from .keyspace import (FOREVER, STRING, fence_key, prefix, reservation_key, timeout_key)
from .serving import acquire, after_grant, refusal, serve, serve_late
from .world import Tag, Waiter

MAX_INTEGER = 2 ** 63 - 1


@dataclass
class Caller:
    slot: int
    db: int
    script: bool = False
    may_block: bool = True


class Bad(Exception):
    """The reply is an error with this prefix."""


def integer(text, least, what):
    try:
        value = int(text)
    except ValueError:
        raise Bad(what)
    if str(value) != text or not least <= value <= MAX_INTEGER:
        raise Bad(what)
    return value


def lease_of(world, text):
    lease = integer(text, 1, "ERR invalid expire time in 'rwlock.")
    if world.now + lease > MAX_INTEGER:
        raise Bad("ERR invalid expire time in 'rwlock.")
    return lease


def check_names(key, owner=None):
    for end in (":wait_write", ":rwlock_fence"):
        if key.endswith(end):
            raise Bad("ERR ")
    head, colon, digits = key.rpartition(":rwlock_timeout:")
    if colon and digits.isdigit():
        raise Bad("ERR ")
    if owner is not None and (not 1 <= len(owner.encode()) <= 1024 or owner == "mode"
                              or owner.endswith(":write")):
        raise Bad("ERR ")


def options(world, words, allowed):
    """The option words: flags, and those with a number."""
    found, at = {}, 0
    while at < len(words):
        word = words[at].upper()
        if word not in allowed or word in found:
            raise Bad("ERR syntax error")
        if word in ("BLOCK", "RESERVE"):
            if at + 1 >= len(words):
                raise Bad("ERR ")
            found[word] = integer(words[at + 1], 0 if word == "BLOCK" else 1, "ERR ")
            at += 1
        else:
            found[word] = True
        at += 1
    if "BLOCK" in found and "RESERVE" in found:
        raise Bad("ERR syntax error")
    return found


def look(world, caller, key):
    """What every command on a lock begins with. The lock as the command finds it."""
    serve_late(world, caller.db, key)
    check_kind(world, caller, key)
    return world.clean(caller.db, key)


def check_kind(world, caller, key):
    if world.view(caller.db, key).mode == "bad":
        raise Bad("WRONGTYPE")


ALLOWED = {"read": {"BLOCK", "SESSION", "ONCE"},
           "write": {"BLOCK", "SESSION", "ONCE", "FENCE", "RESERVE"},
           "upgrade": {"BLOCK", "SESSION", "ONCE", "FENCE"}}


def lock(world, caller, kind, argv):
    key, owner = argv[1], argv[2]
    check_names(key, owner)
    lease = lease_of(world, argv[3])
    asked = options(world, argv[4:], ALLOWED[kind])
    if asked.get("SESSION") and caller.script:
        raise Bad("ERR")
    for word in asked:
        world.note("option " + word)
    if "oom" in world.refused:
        raise Bad("OOM")
    db = caller.db
    view = look(world, caller, key)
    reserved, reserved_end = world.keys.reservation(db, key, world.now)
    queue = world.queue(db, key)
    block = "BLOCK" in asked and caller.may_block
    if kind == "upgrade" and owner not in view.readers:
        raise Bad("NOTHELD")
    if may_have(world, view, queue, reserved, owner, kind):
        reply, _ = acquire(world, caller.slot, db, key, owner, kind, lease, asked.get("SESSION"),
                           asked.get("ONCE"), asked.get("FENCE"))
        after_grant(world, db, key, owner)
        if (db, key) not in world.late:
            serve(world, db, key)
        return reply
    if not block:
        world.note("refused " + kind)
        reply = refusal(world, db, key, owner, kind)
        if "RESERVE" in asked and (reserved == owner or (reserved is None and not queue)):
            world.note("reserved")
            end = world.now + asked["RESERVE"]
            if reserved == owner and reserved_end > end and world.choose(2):
                end = reserved_end  # whether a refresh may shorten is open
            world.keys.put(db, reservation_key(key), STRING, owner, end)
        return reply
    return wait(world, caller, Waiter(
        world.seq + 1, caller.slot, db, key, owner, kind, lease,
        world.now + asked["BLOCK"] if asked["BLOCK"] else FOREVER,
        bool(asked.get("SESSION")), bool(asked.get("ONCE")), bool(asked.get("FENCE"))), view, queue)


def may_have(world, view, queue, reserved, owner, kind):
    """Whether one that asks now gets it at once."""
    foreign = reserved not in (None, owner)
    if kind == "upgrade":
        return view.writer == owner or set(view.readers) == {owner}
    if kind == "write":
        if view.mode != "free":
            return view.writer == owner
        if world.settings["policy"] == "prefer-writers" and not foreign and queue and all(
                w.kind == "read" for w in queue):
            # If it waited, it would be served first: it may be so at once.
            return reserved == owner or world.choose(2) == 0
        if reserved == owner and any((w.owner, w.kind) == (owner, "write") for w in queue):
            # A waiter of its own, which is served a moment later, may go first.
            return world.choose(2) == 0
        return not foreign and (reserved == owner or not queue)
    if view.mode == "write":
        return view.writer == owner
    if owner in view.readers:
        return True
    if view.mode == "read" and world.settings["policy"] == "prefer-readers":
        return not any(w.kind == "upgrade" for w in queue)
    if foreign or any(w.kind != "read" for w in queue):
        return False
    # Behind readers that wait for something else, a reader may wait or not.
    return not queue or world.choose(2) == 0


def wait(world, caller, waiter, view, queue):
    most = int(world.settings["max-waiters"])
    full = most and len(world.waiters) >= most
    # Which of two errors comes first is open.
    if full and world.choose(2):
        world.note("too many waiters")
        return ("err", "ERR too many waiters")
    if waiter.kind == "write" and waiter.owner in view.readers:
        world.note("deadlock with itself")
        return ("err", "DEADLOCK")
    if waiter.kind == "upgrade" and any(w.kind == "upgrade" and w.owner != waiter.owner
                                        for w in queue):
        world.note("deadlock of two upgrades")
        return ("err", "DEADLOCK")
    verdict, pairs = circles.closes(world, waiter)
    if full and verdict == "no":
        world.note("too many waiters")
        return ("err", "ERR too many waiters")
    if verdict == "yes" or (verdict == "maybe" and world.choose(2)):
        world.note("deadlock of " + str(min(4, len({p[0] for p in pairs}))) + " owners or more")
        return ("deadlock", pairs)
    world.seq += 1
    world.waiters.append(waiter)
    world.note("waits " + waiter.kind)
    if (waiter.db, waiter.key) not in world.late:
        serve(world, waiter.db, waiter.key)
    return None


def unlock(world, caller, argv):
    key, owner, db = argv[1], argv[2], caller.db
    check_names(key, owner)
    kind = argv[3].upper() if len(argv) > 3 else None
    if len(argv) > 4 or kind not in (None, "READ", "WRITE", "ALL"):
        raise Bad("ERR syntax error")
    view = look(world, caller, key)
    reads, writes = view.readers.get(owner, []), view.writes if view.writer == owner else 0
    if kind == "ALL":
        withdrawn = world.keys.reservation(db, key, world.now)[0] == owner
        if not reads and not writes and not withdrawn:
            raise Bad("NOTHELD")
        if withdrawn:
            world.keys.delete(db, reservation_key(key))
            world.note("reservation withdrawn")
        for _ in range(writes):
            give_back_write(world, db, key, owner, 1)
        for _ in reads:
            give_back_read(world, db, key, owner, 1)
    else:
        kind = kind or ("READ" if reads else "WRITE")
        if not (reads if kind == "READ" else writes):
            raise Bad("NOTHELD")
        if kind == "READ":
            number = choose_hold(world, caller.slot, db, key, owner, "read", len(reads))
            give_back_read(world, db, key, owner, number)
        else:
            number = choose_hold(world, caller.slot, db, key, owner, "write", writes)
            give_back_write(world, db, key, owner, number)
    world.note(f"unlock {kind.lower()}")
    reply = ("int", 1 if world.view(db, key).mode == "free" else 0)
    serve_sharing(world, db, key)
    return reply


def serve_sharing(world, db, key):
    """Serves the lock, and those that share its derived names, as `a` and `{a}`."""
    serve(world, db, key)
    for other in sorted({w.key for w in world.waiters if w.db == db and w.key != key
                         and prefix(w.key) == prefix(key)}):
        serve(world, db, other)


def renew(world, caller, argv):
    key, owner, db = argv[1], argv[2], caller.db
    check_names(key, owner)
    lease = lease_of(world, argv[3])
    view = look(world, caller, key)
    if owner not in view.holders():
        serve(world, db, key)
        raise Bad("NOTHELD")
    for number, _ in view.readers.get(owner, []):
        lengthen(world, db, timeout_key(key, owner, number), world.now + lease)
    lengthen(world, db, key, world.now + lease)
    return ("ok",)


def downgrade(world, caller, argv):
    key, owner, db = argv[1], argv[2], caller.db
    check_names(key, owner)
    lease = lease_of(world, argv[3])
    view = look(world, caller, key)
    if view.writer != owner:
        serve(world, db, key)
        raise Bad("NOTHELD")
    settle_unsure(world, db, key, owner)
    bound = [t for t in world.tags if t.names(db, key, owner, "write")]
    live = view.readers.get(owner, [])
    if live:
        world.note("downgrade to own reads")
        lengthen(world, db, timeout_key(key, owner, len(live)), world.now + lease)
    else:
        take_read(world, caller.slot, db, key, owner, lease, False, False)
        if bound:
            world.note("downgrade of a session")
            mine = [t for t in bound if t.slot == caller.slot]
            plain = int(world.keys.fields(db, key)[owner + ":write"]) > len(bound)
            # Which hold is left of several is open, where the caller's own is not
            # among them: a bound one, or a plain one.
            heirs = mine or bound + [None] * plain
            heir = heirs[world.choose(len(heirs))]
            if heir:
                left = Tag(db, key, owner, "read", 1, heir.slot, lease)
                world.tags.append(left)
                world.in_flight = [(w, left if t is heir else t) for w, t in world.in_flight]
    fields = world.keys.fields(db, key)
    del fields[owner + ":write"]
    fields["mode"] = "read"
    world.keys.put_fields(db, key, fields)
    world.drop_tags(lambda t: t.names(db, key, owner, "write"))
    rely_on(world, db, key, owner, "read", max(1, len(live)))
    world.tenures.pop((db, key), None)
    if world.keys.dbs[db][key][2] != FOREVER:
        world.keys.set_end(db, key, max(read_ends(world.view(db, key))))
    serve(world, db, key)
    return ("ok",)


def force(world, caller, argv):
    key, db = argv[1], caller.db
    check_names(key)
    kind = argv[2].lower() if len(argv) > 2 else None
    if len(argv) > 3 or kind not in (None, "read", "write"):
        raise Bad("ERR syntax error")
    view = look(world, caller, key)
    reserved, _ = world.keys.reservation(db, key, world.now)
    if (kind and view.mode != kind) or (view.mode == "free" and reserved is None):
        serve(world, db, key)
        return ("int", 0)
    world.note("forced")
    for owner, live in view.readers.items():
        for number, _ in live:
            world.keys.drop_timeout(db, key, owner, number)
    world.keys.delete(db, key)
    world.keys.delete(db, reservation_key(key))
    world.lock_ended(db, key)
    serve_sharing(world, db, key)
    return ("int", 1)


def inspect(world, caller, argv):
    check_names(argv[1])
    serve_late(world, caller.db, argv[1])
    check_kind(world, caller, argv[1])
    count = integer(argv[3], 0, "ERR") if len(argv) > 2 else 100
    return ("inspect", lock_state(world, caller.db, argv[1]), count)


def lock_state(world, db, key):
    view = world.view(db, key)
    holders = {}
    for owner, live in view.readers.items():
        holders[(owner, "read")] = (len(live), max(end for _, end in live))
    if view.writer is not None:
        holders[(view.writer, "write")] = (view.writes, view.end)
    sessions = {}
    for name in holders:
        tags = [t for t in world.tags + world.deferred if t.names(db, key, *name)]
        sure = [t.slot for t in tags if t.sure and t.slot >= 0]
        sessions[name] = set(t.slot for t in tags) | (set() if sure else {None})
    return {"mode": view.mode, "end": view.end, "holders": holders, "sessions": sessions,
            "waiters": circles.order(world, db, key), "now": world.now,
            # Whether the owner of a reservation is shown at its place is open.
            "unreserved": circles.order(world, db, key, by_reservation=False),
            "reserved": world.keys.reservation(db, key, world.now)[0],
            "fence": world.keys.last_token(db, key, world.now) or 0}


def queues(world, caller, argv):
    lengths = {}
    for waiter in world.waiters:
        if waiter.db == caller.db:
            lengths[waiter.key] = lengths.get(waiter.key, 0) + 1
    return ("queues", lengths, integer(argv[2], 0, "ERR") if len(argv) > 1 else 100)


def rlock(world, caller, argv):
    return lock(world, caller, "read", argv)


def wlock(world, caller, argv):
    return lock(world, caller, "write", argv)


def upgrade(world, caller, argv):
    return lock(world, caller, "upgrade", argv)


ACQUIRING = (rlock, wlock, upgrade)

# name: (function, least words, most words or None, whether it writes)
COMMANDS = {
    "RWLOCK.RLOCK": (rlock, 4, None, True),
    "RWLOCK.WLOCK": (wlock, 4, None, True),
    "RWLOCK.UPGRADE": (upgrade, 4, None, True),
    "RWLOCK.UNLOCK": (unlock, 3, None, True),
    "RWLOCK.RENEW": (renew, 4, 4, True),
    "RWLOCK.DOWNGRADE": (downgrade, 4, 4, True),
    "RWLOCK.FORCEUNLOCK": (force, 2, None, True),
    "RWLOCK.INSPECT": (inspect, 2, None, False),
    "RWLOCK.QUEUES": (queues, 1, None, False),
    "RWLOCK.HELP": (lambda w, c, a: ("help",), 1, 1, False),
}


def run(world, caller, argv):
    """The pattern of the reply, or None when the caller waits."""
    name = argv[0].upper()
    function, least, most, writes = COMMANDS[name]
    world.note(name)
    if len(argv) < least or (most and len(argv) > most):
        return ("err", "ERR wrong number of arguments")
    if "noreplicas" in world.refused and writes:
        return ("err", "NOREPLICAS")
    try:
        return function(world, caller, argv)
    except (Bad, Refused) as error:
        # The server may refuse a command for its memory before it reads its words.
        if "oom" in world.refused and function in ACQUIRING and world.choose(2):
            return ("err", "OOM")
        world.note("error " + str(error).split(" ")[0])
        return ("err", str(error))
