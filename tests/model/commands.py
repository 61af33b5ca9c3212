"""The commands of the module, as the contract describes them.

Each takes a world and appends the reply that it expects to `world.out`. A reply is a
pattern: see `compare.py`. Those that take holds are in `taking.py`.
"""

from . import turns
from .holds import (Refused, choose_hold, give_back_read, give_back_write, lengthen, read_ends,
                    rely_on, settle_unsure, take_read)
from .keyspace import FOREVER, prefix, reservation_key, timeout_key
from .serving import serve, serve_late
from .taking import ACQUIRING, check_kind, look, mlock, rlock, upgrade, wlock
from .words import (MOST_LOCKS, Bad, Caller, check_names, check_owner, clauses, integer, lease_of,
                    refuse_twice)
from .world import Tag


def unlock(world, caller, argv):
    key, owner = argv[1], argv[2]
    check_names(key, owner)
    kind = argv[3].upper() if len(argv) > 3 else None
    if len(argv) > 4 or kind not in (None, "READ", "WRITE", "ALL"):
        raise Bad("ERR syntax error")
    view = look(world, caller, key)
    reply = give_back(world, caller, key, owner,
                      kind or ("READ" if owner in view.readers else "WRITE"))
    if reply < 0:
        raise Bad("NOTHELD")
    serve_sharing(world, caller.db, key)
    return ("int", reply)


def munlock(world, caller, argv):
    owner = argv[1]
    check_owner(owner)
    _, named = clauses(world, argv[2:], (), ("READ", "WRITE", "ALL"))
    if not named:
        raise Bad("ERR ")
    refuse_twice(named)
    keys = list(dict.fromkeys(key for _, key in named))
    look(world, caller, *keys)
    replies = [give_back(world, caller, key, owner, kind) for kind, key in named]
    world.note(f"unlock several: {min(len(named), 4)} or more")
    for key in keys:
        serve_sharing(world, caller.db, key)
    return ("ints", replies)


def give_back(world, caller, key, owner, kind):
    """One hold of this kind, or ALL. 1 or 0 as the lock then is, -1 if there was none."""
    db = caller.db
    view = world.view(db, key)
    reads, writes = view.readers.get(owner, []), view.writes if view.writer == owner else 0
    if kind == "ALL":
        withdrawn = world.keys.reservation(db, key, world.now)[0] == owner
        if not reads and not writes and not withdrawn:
            return -1
        if withdrawn:
            world.keys.delete(db, reservation_key(key))
            world.note("reservation withdrawn")
        for _ in range(writes):
            give_back_write(world, db, key, owner, 1)
        for _ in reads:
            give_back_read(world, db, key, owner, 1)
    else:
        if not (reads if kind == "READ" else writes):
            return -1
        if kind == "READ":
            number = choose_hold(world, caller.slot, db, key, owner, "read", len(reads))
            give_back_read(world, db, key, owner, number)
        else:
            number = choose_hold(world, caller.slot, db, key, owner, "write", writes)
            give_back_write(world, db, key, owner, number)
    world.note(f"unlock {kind.lower()}")
    return 1 if world.view(db, key).mode == "free" else 0


def serve_sharing(world, db, key):
    """Serves the lock, and those that share its derived names, as `a` and `{a}`."""
    serve(world, db, key)
    for other_db, other in sorted(world.queues()):
        if other_db == db and other != key and prefix(other) == prefix(key):
            serve(world, db, other)


def renew(world, caller, argv):
    key, owner = argv[1], argv[2]
    check_names(key, owner)
    lease = lease_of(world, argv[3])
    look(world, caller, key)
    if not renew_one(world, caller.db, key, owner, lease):
        serve(world, caller.db, key)
        raise Bad("NOTHELD")
    return ("ok",)


def mrenew(world, caller, argv):
    owner, keys = argv[1], argv[3:]
    check_owner(owner)
    lease = lease_of(world, argv[2])
    if len(keys) > MOST_LOCKS:
        raise Bad("ERR a command names at most 1024 locks")
    for key in keys:
        check_names(key)
    look(world, caller, *keys)
    world.note(f"renew several: {min(len(keys), 4)} or more")
    replies = [renew_one(world, caller.db, key, owner, lease) for key in keys]
    for key in keys:
        serve(world, caller.db, key)
    return ("ints", replies)


def renew_one(world, db, key, owner, lease):
    """1, or 0 for one that holds nothing."""
    view = world.view(db, key)
    if owner not in view.holders():
        return 0
    for number, _ in view.readers.get(owner, []):
        lengthen(world, db, timeout_key(key, owner, number), world.now + lease)
    lengthen(world, db, key, world.now + lease)
    return 1


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
            "waiters": turns.order(world, db, key), "now": world.now,
            # Whether the owner of a reservation is shown at its place is open.
            "unreserved": turns.order(world, db, key, by_reservation=False),
            "reserved": world.keys.reservation(db, key, world.now)[0],
            "fence": world.keys.last_token(db, key, world.now) or 0}


def queue_lengths(world, db):
    """How many wait for each lock."""
    return {key: len(world.queue(db, key)) for other, key in world.queues() if other == db}


def queues(world, caller, argv):
    count = integer(argv[2], 0, "ERR") if len(argv) > 1 else 100
    return ("queues", queue_lengths(world, caller.db), count)


# name: (function, least words, most words or None, whether it writes)
COMMANDS = {
    "RWLOCK.RLOCK": (rlock, 4, None, True),
    "RWLOCK.WLOCK": (wlock, 4, None, True),
    "RWLOCK.UPGRADE": (upgrade, 4, None, True),
    "RWLOCK.UNLOCK": (unlock, 3, None, True),
    "RWLOCK.RENEW": (renew, 4, 4, True),
    "RWLOCK.DOWNGRADE": (downgrade, 4, 4, True),
    "RWLOCK.MLOCK": (mlock, 6, None, True),
    "RWLOCK.MUNLOCK": (munlock, 5, None, True),
    "RWLOCK.MRENEW": (mrenew, 4, None, True),
    "RWLOCK.FORCEUNLOCK": (force, 2, None, True),
    "RWLOCK.INSPECT": (inspect, 2, None, False),
    "RWLOCK.QUEUES": (queues, 1, None, False),
    # The model does not know how long a lock was held and how long a wait was.
    "RWLOCK.LIST": (lambda w, c, a: ("any",), 2, None, False),
    "RWLOCK.LOG": (lambda w, c, a: ("any",), 1, None, False),
    "RWLOCK.HOTLOCKS": (lambda w, c, a: ("any",), 1, None, False),
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
