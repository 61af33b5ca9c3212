"""How a queue is served: whose turn it is, the grant, and who leaves without one."""

from . import circles
from .holds import Refused, take_read, take_write, token_for
from .keyspace import FOREVER


def next_in_turn(world, db, key, view, queue):
    for waiter in queue:
        if waiter.kind != "upgrade" and circles.has_place_as_holder(view, waiter):
            return waiter
    reserved, _ = world.keys.reservation(db, key, world.now)
    joins = world.settings["policy"] == "prefer-readers" and view.mode == "read"
    stopped = False
    for waiter in queue:
        foreign = reserved not in (None, waiter.owner)
        if waiter.kind == "upgrade":
            if waiter.owner not in view.readers:
                return waiter  # it is told NOTHELD
            if view.writer == waiter.owner or set(view.readers) == {waiter.owner}:
                return waiter
            return None
        if waiter.kind == "write":
            if view.mode == "free" and not foreign and not stopped:
                return waiter
            if not joins:
                return None
            stopped = True
        elif joins or (view.mode in ("free", "read") and not foreign and not stopped):
            return waiter
        else:
            return None
    return None


def refusal(world, db, key, owner, kind):
    """The integer that says no: ends of which one is meant, or 0."""
    view = world.view(db, key)
    reserved, reserved_end = world.keys.reservation(db, key, world.now)
    if view.mode == "free":
        if reserved is None:
            return ("int", 0)
        # Its own reservation may be what holds up the queue that it stands in.
        return ("ms", [reserved_end] + ([0] if reserved == owner else []))
    ends = [view.end]
    if reserved not in (None, owner):
        if kind != "upgrade":
            ends = [max(view.end, reserved_end)]
            if kind == "read" and view.mode == "read":
                ends += [reserved_end, view.end]
    elif reserved is not None and kind == "read":
        ends.append(max(view.end, reserved_end))
    if any(end == FOREVER for live in view.readers.values() for _, end in live):
        # Somebody took a hold's expiry away: when its hash loses its own too is open.
        ends.append(FOREVER)
    return ("ms", ends)


def acquire(world, slot, db, key, owner, kind, lease, session, once, fence):
    """Takes the hold, which is known to be free for this owner. The reply, and its tag."""
    if kind == "read":
        tag = take_read(world, slot, db, key, owner, lease, session, once)
        world.note("grant read")
        return ("ok",), tag
    fresh = world.view(db, key).mode != "write"
    tag = take_write(world, slot, db, key, owner, lease, session, once)
    world.note("grant " + kind + ("" if fresh else " again"))
    return (token_for(world, db, key, owner, fresh) if fence else ("ok",)), tag


def grant(world, waiter):
    world.waiters.remove(waiter)
    try:
        reply, tag = acquire(world, waiter.slot, waiter.db, waiter.key, waiter.owner, waiter.kind,
                             waiter.lease, waiter.session, waiter.once, waiter.fence)
    except Refused as error:
        world.reply(waiter.slot, ("err", str(error)))
        return
    world.note("grant after waiting")
    world.reply(waiter.slot, reply)
    world.in_flight.append((waiter, tag))
    after_grant(world, waiter.db, waiter.key, waiter.owner)


def after_grant(world, db, key, owner):
    """A new holder is waited for by others: who closes a circle now is told."""
    view = world.view(db, key)
    for waiter in world.queue(db, key):
        if waiter in world.waiters and circles.has_place_as_holder(view, waiter):
            if not world.refused:
                grant(world, waiter)
                return
    if view.mode == "read":
        for waiter in world.queue(db, key):
            # It now waits for its own read hold, which the contract only speaks of
            # for one that asks: both are allowed.
            if waiter.owner == owner and waiter.kind == "write" and world.choose(2):
                leave(world, waiter, ("err", "DEADLOCK"))
    break_circles(world)


def break_circles(world):
    """Also after somebody left: another request of its owner may now really wait."""
    while True:
        seqs, must, pairs = circles.victims(world)
        if not seqs:
            return
        # While writes are refused it may be told later.
        must = must and not world.refused
        pick = world.choose(len(seqs) + (0 if must else 1))
        if pick == len(seqs):
            return
        victim = next(w for w in world.waiters if w.seq == seqs[pick])
        world.note("deadlock at a grant")
        leave(world, victim, ("deadlock", pairs))
        serve(world, victim.db, victim.key)


def leave(world, waiter, reply):
    world.waiters.remove(waiter)
    if reply is not None:
        world.reply(waiter.slot, reply)


def serve(world, db, key):
    """Grants to all whose turn it is."""
    if world.view(db, key).mode == "bad":
        for waiter in world.queue(db, key):
            leave(world, waiter, ("err", "WRONGTYPE"))
        return
    if world.refused:
        world.late |= {(db, key)}
        return
    world.late -= {(db, key)}
    while True:
        queue = circles.order(world, db, key)
        if not queue:
            return
        view = world.clean(db, key)
        waiter = next_in_turn(world, db, key, view, queue)
        if waiter is None:
            return
        if waiter.kind == "upgrade" and waiter.owner not in view.readers:
            leave(world, waiter, ("err", "NOTHELD"))
        else:
            grant(world, waiter)


def serve_all(world):
    for db, key in sorted({(w.db, w.key) for w in world.waiters} | world.late):
        serve(world, db, key)


def serve_late(world, db, key):
    """A queue that is due may be served before this command, or just after it."""
    if (db, key) in world.late and not world.refused and world.choose(2):
        serve(world, db, key)
