"""Whose turn it is in a queue. A joint waiter, one of MLOCK for several locks, stands in
the queue of each of them, and has its turn when it would be let in by all."""


def has_place_as_holder(view, waiter):
    """A holder always gets in again, wherever in the queue its request stands."""
    if waiter.kind == "read":
        return waiter.owner in view.readers or view.writer == waiter.owner
    if waiter.kind == "write":
        return view.writer == waiter.owner
    return view.writer == waiter.owner and waiter.owner in view.readers


def holders_that_wait(world):
    """Places of waiters that would get in again: of joint ones, or others made them so."""
    return {(p.seq, p.key) for p in world.places()
            if has_place_as_holder(world.view(p.db, p.key), p)}


def goes_among_readers(world, waiter):
    """Where writers go first, a joint waiter that writes any lock does so everywhere."""
    return world.settings["policy"] == "prefer-writers" and not waiter.writes


def order(world, db, key, by_reservation=True):
    """The queue in order of service: upgrades, then by policy, then by arrival."""
    reserved, _ = world.keys.reservation(db, key, world.now)

    def rank(waiter):
        if waiter.kind == "upgrade":
            return 0
        # A reservation is its owner's place to write, ahead of who came later.
        if by_reservation and waiter.kind == "write" and waiter.owner == reserved:
            return 1
        return 3 if goes_among_readers(world, waiter) else 2

    return sorted(world.queue(db, key), key=lambda w: (rank(w), w.seq))


def readers_join(world, view):
    return world.settings["policy"] == "prefer-readers" and view.mode == "read"


def lets_in(world, waiter):
    """Whether the lock would let it in if nobody else waited. An upgrade of one that
    does not read is told so."""
    view = world.view(waiter.db, waiter.key)
    reserved, _ = world.keys.reservation(waiter.db, waiter.key, world.now)
    foreign = reserved not in (None, waiter.owner)
    if view.mode == "bad":
        return False
    if waiter.kind == "upgrade":
        return waiter.owner not in view.readers or view.writer == waiter.owner or (
            set(view.readers) == {waiter.owner})
    if has_place_as_holder(view, waiter):
        return True
    if waiter.kind == "write":
        return view.mode == "free" and not foreign
    return readers_join(world, view) or (view.mode in ("free", "read") and not foreign)


def may_pass(world, waiter, other):
    """Whether a request need not wait for another one that stands ahead of it."""
    if waiter.kind != "read":
        return False
    view = world.view(waiter.db, waiter.key)
    return other.kind != "upgrade" and (
        readers_join(world, view) or (
            other.kind == "read" and not other.joint and lets_in(world, other)))


def is_in_turn(world, place):
    """Whether this queue alone would let it in now."""
    if has_place_as_holder(world.view(place.db, place.key), place):
        return True
    for other in order(world, place.db, place.key):
        if other.seq == place.seq:
            break
        if not may_pass(world, place, other):
            return False
    return lets_in(world, place)


def readers_ahead(world, waiter):
    """Readers that are let in ahead of a joint waiter where it reads itself. A holder,
    or who joins readers whoever waits, passes them."""
    found = []
    for place in waiter.places() if waiter.joint else ():
        view = world.view(place.db, place.key)
        if place.kind == "read" and not has_place_as_holder(view, place) and (
                not readers_join(world, view)):
            queue = order(world, place.db, place.key)
            found += [w for w in queue[: [w.seq for w in queue].index(place.seq)]
                      if w.kind == "read" and not w.joint and lets_in(world, w)]
    return found


def others_let_in(world, place):
    return all(is_in_turn(world, other) for other in place.places() if other.key != place.key)


def next_in_turn(world, db, key):
    view = world.view(db, key)
    queue = order(world, db, key)
    for waiter in queue:
        if waiter.kind != "upgrade" and has_place_as_holder(view, waiter) and (
                others_let_in(world, waiter)):
            return waiter
    for waiter in queue:
        if lets_in(world, waiter) and others_let_in(world, waiter):
            return waiter
        # Who stays holds up those behind it, all but readers that join others.
        if waiter.kind == "upgrade" or not readers_join(world, view):
            return None
    return None
