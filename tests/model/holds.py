"""How one hold is taken, lengthened and given back, in the keys of its lock."""

from .keyspace import FOREVER, HASH, STRING, fence_key, reservation_key, timeout_key
from .world import Tag


class Refused(Exception):
    """The command ends in this error and has changed nothing."""


def lengthen(world, db, key, end):
    entry = world.keys.dbs[db].get(key)
    if entry is not None and entry[2] < end:
        world.keys.set_end(db, key, end)


def own_tags(world, db, key, owner, kind):
    return [t for t in world.tags if t.names(db, key, owner, kind)]


def bind(world, slot, db, key, owner, kind, number, lease):
    world.drop_tags(lambda t: t.slot is not None and t.number == number
                    and t.names(db, key, owner, kind))
    tag = Tag(db, key, owner, kind, number, slot, lease)
    world.tags.append(tag)
    return tag


def settle_unsure(world, db, key, owner):
    """Whether a doubtful binding still stands decides what follows: both are tried."""
    for tag in list(world.tags):
        if not tag.sure and (tag.db, tag.key) == (db, key) and tag.owner == owner:
            if world.choose(2):
                tag.sure = True
            else:
                world.tags.remove(tag)


def rely_on(world, db, key, owner, kind, number):
    """Another client has this hold now, by ONCE or DOWNGRADE: it stays when the answer
    to the request that made it is lost. Unless it is bound to a connection that closes."""
    for place, (waiter, tag) in enumerate(world.in_flight):
        if tag and tag.names(db, key, owner, kind) and (
                kind == "write" or tag.number == number):
            tag.relied = True
            if tag.slot is None:
                world.in_flight[place] = (waiter, None)


def again(world, slot, db, key, owner, kind, highest, lease, session):
    """ONCE for an owner that has such a hold: its lease is lengthened."""
    number = highest
    if session:
        settle_unsure(world, db, key, owner)
        mine = [t for t in own_tags(world, db, key, owner, kind) if t.slot == slot]
        if mine:
            number = max(t.number for t in mine)
            for tag in mine:
                tag.lease = max(tag.lease, lease)
            world.note("once: own binding")
        else:
            world.note("once: binding moves")
            if kind == "write":
                # Write holds have no numbers: that a plain one is meant is open, and
                # whose binding moves if there is none.
                bound = {t.number for t in own_tags(world, db, key, owner, kind)}
                plain = [n for n in range(1, highest + 1) if n not in bound][-1:]
                meant = sorted({highest, *plain} if plain else bound)
                number = meant[world.choose(len(meant))]
            bind(world, slot, db, key, owner, kind, number, lease)
    rely_on(world, db, key, owner, kind, number)
    world.note("once " + kind)
    if kind == "read":
        lengthen(world, db, timeout_key(key, owner, number), world.now + lease)
    lengthen(world, db, key, world.now + lease)


def check_timeout(world, db, key, owner, once):
    """Whether the timeout key of one more read hold would be another lock's."""
    live = world.view(db, key).readers.get(owner, [])
    there = world.keys.get(db, timeout_key(key, owner, len(live) + 1), world.now)
    if there is None or (once and live) or world.keys.is_own_timeout(there, key):
        return
    if there[0] != STRING:
        raise Refused("WRONGTYPE")
    world.note("key clash")
    raise Refused("ERR key clash with lock " + there[1])


def take_read(world, slot, db, key, owner, lease, session, once):
    view = world.clean(db, key)
    live = view.readers.get(owner, [])
    if once and live:
        again(world, slot, db, key, owner, "read", len(live), lease, session)
        return None
    number, end = len(live) + 1, world.now + lease
    check_timeout(world, db, key, owner, once)
    timeout = timeout_key(key, owner, number)
    if view.mode == "free":
        world.keys.put(db, key, HASH, {"mode": "read", owner: "1"}, end)
    else:
        world.keys.put_fields(db, key, world.keys.fields(db, key) | {owner: str(number)})
        lengthen(world, db, key, end)
    world.keys.put(db, timeout, STRING, key, end)
    if session:
        return bind(world, slot, db, key, owner, "read", number, lease)
    return Tag(db, key, owner, "read", number)


def take_write(world, slot, db, key, owner, lease, session, once):
    view = world.clean(db, key)
    end = world.now + lease
    reserved, _ = world.keys.reservation(db, key, world.now)
    if once and view.writer == owner:
        again(world, slot, db, key, owner, "write", view.writes, lease, session)
        if reserved == owner and world.choose(2):  # whether ONCE is a grant here is open
            world.keys.delete(db, reservation_key(key))
        return None
    if view.mode == "free":
        world.keys.put(db, key, HASH, {"mode": "write", owner + ":write": "1"}, end)
    else:
        fields = world.keys.fields(db, key)
        fields |= {"mode": "write", owner + ":write": str(view.writes + 1)}
        world.keys.put_fields(db, key, fields)
        latest = max(read_ends(view), default=view.end)
        if view.mode == "read" and view.end > latest and world.choose(2):
            # Others had made the hash longer than its holds: it may be cut to them.
            world.keys.set_end(db, key, latest)
        lengthen(world, db, key, end)
    if reserved == owner:
        world.keys.delete(db, reservation_key(key))
        world.note("reservation used")
    if view.mode != "write":
        world.tenures[(db, key)] = (owner, None, (db, key) not in world.touched)
    number = view.writes + 1
    if session:
        return bind(world, slot, db, key, owner, "write", number, lease)
    return Tag(db, key, owner, "write", number)


def token_for(world, db, key, owner, fresh):
    """The reply with a fencing token; its key follows."""
    last = world.keys.last_token(db, key, world.now)
    tenure = world.tenures.get((db, key))
    known = tenure and tenure[0] == owner and tenure[1] is not None and tenure[1] == last
    uncertain = tenure is None or not tenure[2]
    same = world.handed_out.get((db, fence_key(key))) == (last, owner)
    if not fresh and last is not None and same and (known or uncertain):
        if not uncertain or world.choose(2):
            world.note("token repeated")
            ttl = int(world.settings["fence-ttl"])
            # Whether the repeated one renews the key is open.
            if world.choose(2):
                world.keys.set_end(db, fence_key(key), world.now + ttl if ttl else FOREVER)
            return ("token", last, 0 if last in world.fuzzy else None)
    now_us = int(world.now * 1000)
    if not fresh and tenure and (tenure[1] or 0) >= max((last or 0) + 1, now_us):
        # A server that still knows the token of this tenure may go on from that, though
        # its key is gone.
        if world.choose(2):
            last = tenure[1]
    token = max((last or 0) + 1, now_us)
    ttl = int(world.settings["fence-ttl"])
    world.keys.put(db, fence_key(key), STRING, str(token), world.now + ttl if ttl else FOREVER)
    world.tenures[(db, key)] = (owner, token, True)
    world.handed_out[(db, fence_key(key))] = (token, owner)
    world.note("token new")
    by_clock = token == now_us or last in world.fuzzy
    if by_clock:
        world.fuzzy |= {token}
    least = 0 if last in world.fuzzy else (last or 0) + 1
    return ("token", token, least if by_clock else None)


def read_ends(view, skip=()):
    return [end for owner, live in view.readers.items()
            for number, end in live if (owner, number) not in skip]


def give_back_read(world, db, key, owner, number):
    """Ends this read hold: higher ones move down with their ends."""
    view = world.view(db, key)
    live = view.readers[owner]
    ends = [(n, end) for n, end in live]
    entries = [world.keys.dbs[db][timeout_key(key, owner, n)] for n, _ in ends if n != number]
    for n, _ in ends:
        world.keys.drop_timeout(db, key, owner, n)
    for n, entry in enumerate(entries, 1):
        world.keys.dbs[db][timeout_key(key, owner, n)] = entry
    fields = world.keys.fields(db, key)
    if entries:
        fields[owner] = str(len(entries))
    else:
        del fields[owner]
    world.keys.put_fields(db, key, fields)
    world.hold_ended(db, key, owner, "read", number)
    left = read_ends(world.view(db, key))
    if view.mode == "read":
        close_or_shorten(world, db, key, left)


def close_or_shorten(world, db, key, left):
    """A read lock ends with the latest of its holds; without holds it is gone."""
    if not left:
        world.keys.delete(db, key)
        world.lock_ended(db, key)
    elif world.keys.dbs[db][key][2] != FOREVER:
        world.keys.set_end(db, key, max(left))


def give_back_write(world, db, key, owner, number):
    view = world.view(db, key)
    fields = world.keys.fields(db, key)
    world.hold_ended(db, key, owner, "write", number)
    if view.writes > 1:
        fields[owner + ":write"] = str(view.writes - 1)
        world.keys.put_fields(db, key, fields)
        return
    del fields[owner + ":write"]
    fields["mode"] = "read"
    world.tenures.pop((db, key), None)
    world.keys.put_fields(db, key, fields)
    close_or_shorten(world, db, key, read_ends(view))


def choose_hold(world, slot, db, key, owner, kind, count):
    """Which hold UNLOCK means: own session's, a plain one, another session's."""
    settle_unsure(world, db, key, owner)
    bound = {t.number: t.slot for t in own_tags(world, db, key, owner, kind)}
    mine = [n for n, s in bound.items() if s == slot]
    plain = [n for n in range(1, count + 1) if n not in bound]
    picked = max(mine or plain or list(bound))
    if kind == "write" and not mine and not plain:
        # Write holds have no numbers: of which other connection it is, is open.
        picked = sorted(bound)[world.choose(len(bound))]
    if bound:
        whose = "own session" if mine else "plain" if plain else "other session"
        world.note("unlock of " + whose)
    return picked
