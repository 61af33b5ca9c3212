"""Who waits for whom, and whether they wait in a circle.

An owner waits for every other owner that holds the lock, or that stands ahead of it
in the queue and makes it wait. Owners are the same in all databases. An edge is
`certain` when the contract names it, and not where it only may be meant. A joint waiter
waits for everybody that any of its places waits for.
"""

from .turns import has_place_as_holder, is_in_turn, order, readers_join


def covering(queue, place):
    """The place of the first request of the same owner whose grant also serves this
    one. Those between the two do not really make it wait."""
    waiter = queue[place]
    for at, other in enumerate(queue[:place]):
        if other.owner == waiter.owner and (other.kind in ("upgrade", "write") or
                                            other.kind == waiter.kind == "read"):
            return at
    return place


def edges(world, by_reservation=True):
    """A list of (from, to, seq of who waits, seq of who is ahead or None, certain)."""
    found = []
    for db, key in world.queues():
        view = world.view(db, key)
        queue = order(world, db, key, by_reservation)
        reserved, _ = world.keys.reservation(db, key, world.now)
        joins = readers_join(world, view)
        for place, waiter in enumerate(queue):
            if has_place_as_holder(view, waiter) or (
                    waiter.joint and is_in_turn(world, waiter)):
                continue
            ahead = queue[:place]
            covered = covering(queue, place)
            if waiter.kind == "read":
                ahead = [a for a in ahead if a.kind != "read" or a.joint]
            elif waiter.kind == "upgrade":
                ahead = []
            for other in ahead:
                if other.owner != waiter.owner:
                    certain = not (joins and waiter.kind == "read" and other.kind != "upgrade")
                    certain = certain and queue.index(other) < covered
                    found.append((waiter.owner, other.owner, waiter.seq, other.seq, certain))
            for holder in view.holders() - {waiter.owner}:
                # A reader among readers waits for them only through a writer ahead: one
                # that is held up by a joint reader does not need their end.
                certain = waiter.kind != "read" or view.mode == "write" or any(
                    queue.index(other) < covered for other in ahead if other.kind != "read")
                found.append((waiter.owner, holder, waiter.seq, None, certain))
            if reserved not in (None, waiter.owner):
                found.append((waiter.owner, reserved, waiter.seq, None, False))
    return found


def circles(found):
    """All simple circles, each a list of edges; at most some hundred."""
    leaving = {}
    for edge in found:
        leaving.setdefault(edge[0], []).append(edge)
    result = []

    def walk(start, at, path, seen):
        for edge in leaving.get(at, ()):
            if len(result) > 200:
                return
            if edge[1] == start:
                result.append(path + [edge])
            elif edge[1] not in seen and edge[1] > start:
                walk(start, edge[1], path + [edge], seen | {edge[1]})

    for owner in sorted(leaving):
        walk(owner, owner, [], {owner})
    return result


def has_circle(found):
    leaving = {}
    for edge in found:
        leaving.setdefault(edge[0], set()).add(edge[1])
    done, under = set(), set()

    def visit(owner):
        under.add(owner)
        for other in leaving.get(owner, ()):
            if other in under or (other not in done and visit(other)):
                return True
        under.discard(owner)
        done.add(owner)
        return False

    return any(owner not in done and visit(owner) for owner in list(leaving))


def nameable(world, found):
    """The pairs of owners that an error may name: also those in one queue, where one
    waits for the other through a third."""
    pairs = {(e[0], e[1]) for e in found}
    for db, key in world.queues():
        for queue in (order(world, db, key), order(world, db, key, by_reservation=False)):
            pairs |= {(w.owner, a.owner) for at, w in enumerate(queue) for a in queue[:at]}
    return pairs


def closes(world, waiter):
    """Whether this waiter would close a circle: "yes", "no" or "maybe"."""
    if world.settings["deadlock-detection"] == "no":
        return "no", []
    before = edges(world)
    world.waiters.append(waiter)
    after = edges(world)
    # A reservation may end before its owner is served: then arrival counts.
    without = edges(world, by_reservation=False)
    pairs = nameable(world, after)
    world.remove(waiter)
    if not has_circle(after):
        return "maybe" if has_circle(without) else "no", pairs
    certain = has_circle([e for e in after if e[4]]) and has_circle([e for e in without if e[4]])
    if not certain or has_circle([e for e in before if e[4]]):
        return "maybe", pairs
    return "yes", pairs


def victims(world):
    """The seqs of which one has to go, and whether one must."""
    found, by_arrival = edges(world), edges(world, by_reservation=False)
    certain = [e for e in found if e[4]]
    must = has_circle(certain) and has_circle([e for e in by_arrival if e[4]])
    # A reservation may end before its owner is served: then arrival counts.
    found = found if has_circle(found) else by_arrival
    if world.settings["deadlock-detection"] == "no" or not has_circle(found):
        return [], False, set()
    seqs = set()
    for circle in circles(certain if must else found):
        seqs.add(max(e[2] for e in circle))
        seqs.add(max(max(e[2], e[3] or 0) for e in circle))
    return sorted(seqs), must, nameable(world, found)
