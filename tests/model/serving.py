"""How a queue is served: whose turn it is, the grant, and who leaves without one."""

from itertools import product

from . import circles
from .holds import Refused, check_timeout, take_read, take_write, token_for
from .keyspace import FOREVER
from .turns import (has_place_as_holder, holders_that_wait, is_in_turn, next_in_turn,
                    order, others_let_in, readers_ahead)


def refusal(world, places):
    """The integer that says no, for the places where the locks refuse: the largest. Ends
    of which one is meant, or 0."""
    ends = {max(some) for some in product(*(refusal_ends(world, p) for p in places))}
    return ("ms", sorted(ends))


def refusal_ends(world, place):
    """What one lock answers."""
    view = world.view(place.db, place.key)
    reserved, reserved_end = world.keys.reservation(place.db, place.key, world.now)
    if view.mode == "free":
        if reserved is None:
            return [0]
        # Its own reservation may be what holds up the queue that it stands in.
        return [reserved_end] + ([0] if reserved == place.owner else [])
    ends = [view.end]
    if reserved not in (None, place.owner):
        if place.kind != "upgrade":
            ends = [max(view.end, reserved_end)]
            if place.kind == "read" and view.mode == "read":
                ends += [reserved_end, view.end]
    elif reserved is not None and place.kind == "read":
        ends.append(max(view.end, reserved_end))
    if any(end == FOREVER for live in view.readers.values() for _, end in live):
        # Somebody took a hold's expiry away: when its hash loses its own too is open.
        ends.append(FOREVER)
    return ends


def refusal_of(world, waiter):
    """The same for one that has waited. Locks where it has its turn do not refuse."""
    refusing = [p for p in waiter.places() if not waiter.joint or not is_in_turn(world, p)]
    found = refusal(world, refusing)[1] if refusing else []
    if waiter.joint and (not refusing or world.refused or world.late):
        # What stands in the way may be that nothing is granted at all.
        found = found + [0] + refusal(world, waiter.places())[1]
    return ("ms", found)


def find_clash(world, places):
    """The error of the first read hold that needs a timeout key of another lock."""
    try:
        for place in places:
            if place.kind == "read":
                check_timeout(world, place.db, place.key, place.owner, place.once)
    except Refused as error:
        return str(error)
    return None


def acquire(world, request):
    """Takes the holds, which are known to be free for this owner: all, or none with an
    error. The reply, and the tag of each."""
    places = request.places()
    clash = find_clash(world, places)
    if clash:
        raise Refused(clash)
    tags, tokens = [], []
    for place in places:
        db, key, owner = place.db, place.key, place.owner
        words = (world, place.slot, db, key, owner, place.lease, place.session, place.once)
        if place.kind == "read":
            tags.append(take_read(*words))
            world.note("grant read")
            continue
        fresh = world.view(db, key).mode != "write"
        tags.append(take_write(*words))
        world.note("grant " + place.kind + ("" if fresh else " again"))
        if request.fence:
            tokens.append(token_for(world, db, key, owner, fresh))
    return (("tokens", tokens) if tokens else ("ok",)), tags


def grant(world, waiter):
    if take_for(world, waiter):
        after_grant(world, waiter)
    serve_others(world, waiter)


def take_for(world, waiter):
    """Gives a waiter what it waits for. False if it gets an error instead. Readers that
    stand ahead of it in another queue, which was not served yet, get in with it."""
    for reader in readers_ahead(world, waiter):
        take_for(world, reader)
    world.remove(waiter)
    try:
        reply, tags = acquire(world, waiter)
    except Refused as error:
        world.reply(waiter.slot, ("err", str(error)))
        return False
    world.note("grant after waiting" + (" of several" if waiter.joint else ""))
    world.reply(waiter.slot, reply)
    world.in_flight += [(waiter, tag) for tag in tags]
    return True


def after_grant(world, granted):
    """What the owner's other requests make of it: those that a holder may have are
    granted, in each queue in order; which queue is first is open. Who closes a circle
    now is told, before those or after."""
    taken, also, searched = {(p.db, p.key) for p in granted.places()}, [], False
    while not world.refused and (waiters := next_holders(world, taken)):
        if not searched and any(w.joint for w in world.waiters) and (
                circles.victims(world)[0] and world.choose(2)):
            break_circles(world)
            searched = True
            continue
        waiter = waiters[world.choose(len(waiters))]
        also.append(waiter)
        if take_for(world, waiter):
            taken |= {(p.db, p.key) for p in waiter.places()}
    for waiter in world.places():
        # It now waits for its own read hold, which the contract only speaks of for one
        # that asks: both are allowed.
        if (waiter.db, waiter.key) in taken and world.is_waiting(waiter) and (
                world.view(waiter.db, waiter.key).mode == "read" and waiter.kind == "write"
                and waiter.owner == granted.owner and world.choose(2)):
            leave(world, waiter, ("err", "DEADLOCK"))
            also.append(waiter)
    break_circles(world)
    for waiter in also:
        serve_others(world, waiter)


def next_holders(world, locks):
    """The first waiter for each of these locks that gets in again there, and gets all
    that it waits for."""
    found = {}
    for db, key in sorted(locks):
        view = world.view(db, key)
        for place in order(world, db, key):
            if has_place_as_holder(view, place) and others_let_in(world, place):
                found[place.seq] = place
                break
    return list(found.values())


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
        serve_places(world, victim)


def search_after_loss(world, held_before):
    """A joint waiter that has lost a hold on one of its locks now waits there too: also
    for those ahead of it, which it could have passed."""
    waiting = {(p.seq, p.key) for p in world.places()}
    if (held_before & waiting) - holders_that_wait(world):
        world.note("a joint waiter lost a hold")
        break_circles(world)


def leave(world, waiter, reply):
    world.remove(waiter)
    if reply is not None:
        world.reply(waiter.slot, reply)


def serve(world, db, key):
    """Grants to all whose turn it is."""
    if world.view(db, key).mode == "bad":
        for waiter in world.queue(db, key):
            leave(world, waiter, ("err", "WRONGTYPE"))
            serve_others(world, waiter)
        return
    if world.refused:
        world.late |= {(db, key)}
        return
    world.late -= {(db, key)}
    while True:
        if not world.queue(db, key):
            return
        view = world.clean(db, key)
        waiter = next_in_turn(world, db, key)
        if waiter is None:
            tell_of_clash(world, db, key)
            return
        if waiter.kind == "upgrade" and waiter.owner not in view.readers:
            leave(world, waiter, ("err", "NOTHELD"))
        else:
            grant(world, waiter)


def tell_of_clash(world, db, key):
    """A joint waiter that needs a timeout key of another lock cannot be granted. Whether
    it is told so before the other locks let it in is open."""
    for waiter in world.queue(db, key):
        if waiter.joint and world.is_waiting(waiter) and is_in_turn(world, waiter):
            clash = find_clash(world, [waiter])
            if clash and world.choose(2):
                leave(world, waiter, ("err", clash))
                serve_places(world, waiter)


def serve_places(world, waiter):
    """Who left, or was granted, may have held up others in each of its queues."""
    for place in waiter.places():
        serve(world, place.db, place.key)


def serve_others(world, waiter):
    for place in waiter.places():
        if place.key != waiter.key:
            serve(world, place.db, place.key)


def serve_all(world):
    for db, key in sorted(world.queues() | world.late):
        serve(world, db, key)


def serve_late(world, db, key):
    """A queue that is due may be served before this command, or just after it."""
    if (db, key) in world.late and not world.refused and world.choose(2):
        serve(world, db, key)
