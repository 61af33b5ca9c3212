"""The commands that take holds: RLOCK, WLOCK, UPGRADE, MLOCK. At once, or by waiting."""

from . import circles
from .holds import Refused
from .keyspace import FOREVER, STRING, prefix, reservation_key
from .serving import acquire, after_grant, find_clash, refusal, serve, serve_late
from .turns import goes_among_readers, has_place_as_holder
from .words import Bad, check_names, check_owner, clauses, lease_of, options, refuse_twice
from .world import Waiter

ALLOWED = {"read": {"BLOCK", "SESSION", "ONCE"},
           "write": {"BLOCK", "SESSION", "ONCE", "FENCE", "RESERVE"},
           "upgrade": {"BLOCK", "SESSION", "ONCE", "FENCE"},
           "several": {"BLOCK", "SESSION", "ONCE", "FENCE"}}


def look(world, caller, *keys):
    """What every command on locks begins with. The last of them as the command finds it."""
    for key in keys:
        serve_late(world, caller.db, key)
    for key in keys:
        check_kind(world, caller, key)
    for key in keys:
        view = world.clean(caller.db, key)
    return view


def check_kind(world, caller, key):
    if world.view(caller.db, key).mode == "bad":
        raise Bad("WRONGTYPE")


def request_of(world, caller, owner, lease, wants, asked):
    return Waiter(world.seq + 1, caller.slot, caller.db, wants[0][0], owner, wants[0][1], lease,
                  world.now + asked["BLOCK"] if asked.get("BLOCK") else FOREVER,
                  bool(asked.get("SESSION")), bool(asked.get("ONCE")), bool(asked.get("FENCE")),
                  tuple(wants) if len(wants) > 1 else ())


def check_asked(world, caller, asked):
    if asked.get("SESSION") and caller.script:
        raise Bad("ERR")
    for word in asked:
        world.note("option " + word)
    if "oom" in world.refused:
        raise Bad("OOM")


def lock(world, caller, kind, argv):
    key, owner = argv[1], argv[2]
    check_names(key, owner)
    lease = lease_of(world, argv[3])
    asked = options(world, argv[4:], ALLOWED[kind])
    check_asked(world, caller, asked)
    view = look(world, caller, key)
    if kind == "upgrade" and owner not in view.readers:
        raise Bad("NOTHELD")
    return ask(world, caller, request_of(world, caller, owner, lease, [(key, kind)], asked), asked)


def mlock(world, caller, argv):
    owner = argv[1]
    check_owner(owner)
    lease = lease_of(world, argv[2])
    asked, named = clauses(world, argv[3:], ALLOWED["several"], ("READ", "WRITE"))
    if not named or ("FENCE" in asked and "WRITE" not in asked):
        raise Bad("ERR syntax error" if named else "ERR ")
    keys = [key for _, key in named]
    refuse_twice(keys)
    check_asked(world, caller, asked)
    wants = [(key, kind.lower()) for kind, key in named]
    request = request_of(world, caller, owner, lease, wants, asked)
    one_prefix = len({prefix(key) for key in keys}) < len(keys)
    wrong = any(world.view(caller.db, key).mode == "bad" for key in keys)
    # Which of two errors comes first is open.
    if one_prefix and not (wrong and world.choose(2)):
        world.note("key clash in one command")
        raise Bad("ERR key clash with lock ")
    clash = wrong and find_clash(world, request.places())
    if clash and world.choose(2):
        raise Refused(clash)
    look(world, caller, *keys)
    world.note(f"several: {min(len(keys), 4)} locks or more")
    return ask(world, caller, request, asked)


def ask(world, caller, request, asked):
    """All of it at once, or nothing: then it waits, if it may."""
    refusing = [place for place in request.places() if not may_have(world, place)]
    if not refusing:
        reply, _ = acquire(world, request)
        after_grant(world, request)
        serve_due(world, request)
        return reply
    clash = request.joint and find_clash(world, request.places())
    if clash and world.choose(2):
        # Whether it is met before the holds can be taken is open.
        raise Refused(clash)
    if "BLOCK" in asked and caller.may_block:
        return wait(world, request)
    world.note("refused " + ("several" if request.joint else request.kind))
    reply = refusal(world, refusing)
    if "RESERVE" in asked:
        reserve(world, request, asked["RESERVE"])
    return reply


def serve_due(world, request):
    for place in request.places():
        if (place.db, place.key) not in world.late:
            serve(world, place.db, place.key)


def reserve(world, request, ms):
    db, key, owner = request.db, request.key, request.owner
    reserved, reserved_end = world.keys.reservation(db, key, world.now)
    if reserved == owner or (reserved is None and not world.queue(db, key)):
        world.note("reserved")
        end = world.now + ms
        if reserved == owner and reserved_end > end and world.choose(2):
            end = reserved_end  # whether a refresh may shorten is open
        world.keys.put(db, reservation_key(key), STRING, owner, end)


def may_have(world, place):
    """Whether one that asks now gets this lock at once."""
    owner = place.owner
    view, queue = world.view(place.db, place.key), world.queue(place.db, place.key)
    reserved, _ = world.keys.reservation(place.db, place.key, world.now)
    foreign = reserved not in (None, owner)
    if place.kind == "upgrade":
        return view.writer == owner or set(view.readers) == {owner}
    if view.mode == "write":
        return view.writer == owner
    if has_place_as_holder(view, place):
        return True
    # If it waited, it would be served first: it may be so at once.
    goes_first = queue and not goes_among_readers(world, place) and all(
        goes_among_readers(world, w) for w in queue)
    if place.kind == "write":
        if view.mode != "free" or foreign:
            return False
        if goes_first:
            return reserved == owner or world.choose(2) == 0
        if reserved == owner and any((w.owner, w.kind) == (owner, "write") for w in queue):
            # A waiter of its own, which is served a moment later, may go first.
            return world.choose(2) == 0
        return reserved == owner or not queue
    if view.mode == "read" and world.settings["policy"] == "prefer-readers":
        return not any(w.kind == "upgrade" for w in queue)
    if foreign:
        return False
    if not goes_first and any(w.kind != "read" or w.joint for w in queue):
        return False
    # Behind readers that wait for something else, a reader may wait or not.
    return not queue or world.choose(2) == 0


def closes_on_itself(world, request):
    """The errors that need no search: it would wait for its own read hold, or for
    another upgrade that waits for it."""
    for place in request.places():
        view = world.view(place.db, place.key)
        if place.kind == "write" and place.owner in view.readers and view.writer != place.owner:
            return "deadlock with itself"
        if place.kind == "upgrade" and any(w.kind == "upgrade" and w.owner != place.owner
                                           for w in world.queue(place.db, place.key)):
            return "deadlock of two upgrades"
    return None


def wait(world, request):
    most = int(world.settings["max-waiters"])
    full = most and len(world.waiters) >= most
    # Which of two errors comes first is open.
    if full and world.choose(2):
        world.note("too many waiters")
        return ("err", "ERR too many waiters")
    by_itself = closes_on_itself(world, request)
    if by_itself:
        world.note(by_itself)
        return ("err", "DEADLOCK")
    verdict, pairs = circles.closes(world, request)
    if full and verdict == "no":
        world.note("too many waiters")
        return ("err", "ERR too many waiters")
    if verdict == "yes" or (verdict == "maybe" and world.choose(2)):
        joint = request.joint or any(w.joint for w in world.waiters)
        world.note("deadlock of " + str(min(4, len({p[0] for p in pairs}))) + " owners or more"
                   + (", several locks" if joint else ""))
        return ("deadlock", pairs)
    world.seq += 1
    world.waiters.append(request)
    world.note("waits " + ("several" if request.joint else request.kind))
    serve_due(world, request)
    return None


def rlock(world, caller, argv):
    return lock(world, caller, "read", argv)


def wlock(world, caller, argv):
    return lock(world, caller, "write", argv)


def upgrade(world, caller, argv):
    return lock(world, caller, "upgrade", argv)


ACQUIRING = (rlock, wlock, upgrade, mlock)
