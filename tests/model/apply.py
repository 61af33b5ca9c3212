"""One step of a history, carried out in a world: commands in their forms, connections
that close, time that passes, writes that are forbidden for a while."""

from . import commands, foreign
from .holds import give_back_read, give_back_write, own_tags
from .keyspace import FOREVER
from .serving import (break_circles, leave, refusal_of, search_after_loss, serve, serve_all,
                      serve_places)
from .turns import holders_that_wait


def begin(world):
    world.out, world.notes, world.in_flight = {}, [], []
    world.fuzzy = frozenset()


def step(world, what, now):
    """Appends to `world.out` what each connection is to receive."""
    begin(world)
    world.now = now
    world.renew_sessions(now)
    world.keys.drop_expired(now)
    for db, key in sorted(world.touched):
        foreign.mend(world, db, key)
    kind = what["k"]
    if kind == "run":
        if "paused" in world.refused and writes(what):
            world.postponed.append((what["c"], what))
        else:
            run(world, what)
    elif kind in ("close", "kill"):
        close(world, what["c"])
    elif kind == "unblock":
        unblock(world, what["c"], what["how"])
    elif kind == "refuse":
        world.refused |= {what["why"]}
    elif kind == "allow":
        allow(world, what["why"])
        for _ in range(what.get("times", 0)):
            run(world, what["then"])
    elif kind == "set":
        world.settings = world.settings | {what["name"]: what["value"]}
    if not world.refused:
        serve_all(world)
    if kind == "allow":
        break_circles(world)


def writes(what):
    return what["form"] != "plain" or any(
        commands.COMMANDS[c[0]][3] if c[0] in commands.COMMANDS else c[0] not in ("CLIENT", "RESET")
        for c in what["cmds"])


def run(world, what):
    slot, db = what["c"], what["db"]
    replies = []
    for argv in what["cmds"]:
        name, held_before = argv[0].upper(), holders_that_wait(world)
        if name in commands.COMMANDS:
            caller = commands.Caller(slot, db, what["form"] == "lua", what["form"] == "plain")
            reply = commands.run(world, caller, argv)
        elif name == "CLIENT":
            target = int(argv[3 if argv[1] == "KILL" else 2][2:])
            if argv[1] == "KILL":
                close(world, target)
                reply = ("any",)
            else:
                reply = unblock(world, target, argv[3])
        elif name == "RESET":
            world.note("RESET")
            reply = ("any",)
        else:
            foreign.run(world, db, argv)
            reply = ("any",)
        search_after_loss(world, held_before)
        if reply is not None:
            if what["form"] == "plain":
                world.reply(slot, reply)
            replies.append(reply)
    if what["form"] != "plain":
        world.reply(slot, (what["form"], replies))


def release(world, tag):
    """Ends the hold that a tag names, if it still lives."""
    view = world.clean(tag.db, tag.key)
    if not any(t is tag for t in world.all_tags()):
        return
    if tag.kind == "read":
        if any(n == tag.number for n, _ in view.readers.get(tag.owner, [])):
            give_back_read(world, tag.db, tag.key, tag.owner, tag.number)
    elif view.writer == tag.owner and tag.number <= view.writes:
        give_back_write(world, tag.db, tag.key, tag.owner, tag.number)
    world.drop_tags(lambda t: t is tag)


def close(world, slot):
    """The connection is gone: so is its waiter, and its session holds are given back."""
    world.out.pop(slot, None)
    world.postponed = [p for p in world.postponed if p[0] != slot]
    served = set()
    for waiter in [w for w in world.waiters if w.slot == slot]:
        world.remove(waiter)
        world.note("close of a waiter")
        served |= {(p.db, p.key) for p in waiter.places()}
    forget_moved(world, slot)
    for waiter, tag in [f for f in world.in_flight if f[0].slot == slot]:
        if tag is not None:
            world.note("grant taken back")
            release(world, tag)
            served.add((tag.db, tag.key))
    for tag in [t for t in world.tags if t.slot == slot]:
        world.note("close of a session")
        served.add((tag.db, tag.key))
        if not tag.sure and world.choose(2):
            world.drop_tags(lambda t, tag=tag: t is tag)
        elif "paused" in world.refused:
            world.tags.remove(tag)
            tag.slot = -1
            world.deferred.append(tag)
        else:
            release(world, tag)
    for db, key in sorted(served):
        serve(world, db, key)
    break_circles(world)


def forget_moved(world, slot):
    """Whether a binding that ONCE moved to this connection ends with a grant that is
    taken back is open: the hold itself was there before."""
    for waiter in {w for w, _ in world.in_flight if w.slot == slot and w.once and w.session}:
        for place in waiter.places():
            kind = "read" if place.kind == "read" else "write"
            for tag in own_tags(world, place.db, place.key, place.owner, kind):
                is_new = any(t is tag for _, t in world.in_flight)
                if tag.slot == slot and not is_new and world.choose(2):
                    world.note("binding taken back")
                    world.drop_tags(lambda t, tag=tag: t is tag)


def unblock(world, slot, how):
    """CLIENT UNBLOCK. The pattern of its own reply."""
    for waiter in [w for w in world.waiters if w.slot == slot]:
        world.note("unblock " + how)
        leave(world, waiter, ("err", "UNBLOCKED") if how == "ERROR" else
              refusal_of(world, waiter))
        serve_places(world, waiter)
        break_circles(world)
        return ("int", 1)
    granted = [f for f in world.in_flight if f[0].slot == slot]
    if granted:
        # Its answer may have been too late, and then the grant never was. Redis 7.0
        # loses the answer: then the connection is closed.
        outcome = world.choose(3)
        if outcome == 1:
            world.note("grant taken back")
            forget_moved(world, slot)
            for tag in [tag for _, tag in granted if tag is not None]:
                if tag.relied:
                    world.drop_tags(lambda t, tag=tag: t is tag)
                else:
                    release(world, tag)
            world.out[slot] = world.out[slot][:-1] + [
                ("err", "UNBLOCKED") if how == "ERROR" else ("ms", None)]
            serve_places(world, granted[0][0])
        elif outcome == 2:
            close(world, slot)
            world.out[slot] = [("closed",)]
        return ("any",)
    if world.out.get(slot):
        # So it is with an error that it was told in this packet.
        outcome = world.choose(3)
        if outcome == 1:
            world.out[slot] = world.out[slot][:-1] + [
                ("err", "UNBLOCKED") if how == "ERROR" else ("ms", None)]
        elif outcome == 2:
            close(world, slot)
            world.out[slot] = [("closed",)]
        return ("any",)
    return ("any",) if any(s == slot for s, _ in world.postponed) else ("int", 0)


def allow(world, why):
    world.refused -= {why}
    world.late |= world.queues()
    if why == "paused":
        postponed, world.postponed = world.postponed, []
        # What was due meanwhile is done between any two of the commands held back.
        turn = world.choose(len(postponed) + 1)
        for place, (_, what) in enumerate(postponed + [(None, None)]):
            if place == turn:
                catch_up(world)
            if what is not None:
                run(world, what)
    else:
        catch_up(world)


def catch_up(world):
    for tag in list(world.deferred):
        release(world, tag)
    for db in (0, 1):
        for key in world.keys.locks(db, world.now):
            clean(world, db, key)


def clean(world, db, key):
    """Removes what has lapsed. When the server does that is open where others have
    written, or moved a hash, which may come back to its timeout keys."""
    if (db, key) in world.touched:
        foreign.mend(world, db, key)
    elif not any((t.db, t.key) == (db, key) and t.home for t in world.tags):
        world.clean(db, key)


def pass_time(world, now):
    """Carries out what time brings, in order: lapses, and waits that are over."""
    begin(world)
    world.renew_sessions(now)
    while True:
        end = world.next_end()
        if end >= now:
            break
        # A lease lives while now <= its end, a wait ends at its end.
        tick(world, max(world.now, end + 1))
    tick(world, now)


def tick(world, now):
    held_before = holders_that_wait(world)
    world.now = now
    gone = {(db, key) for db in (0, 1) for key, e in world.keys.dbs[db].items()
            if e[2] < world.now}
    world.keys.drop_expired(world.now)
    if gone:
        world.note("lapse")
    if "paused" not in world.refused:
        for db in (0, 1):
            names = {k for k, e in world.keys.dbs[db].items() if e[0] == "hash"}
            names |= {k for d, k in gone if d == db}
            for key in sorted(names):
                clean(world, db, key)
    for waiter in [w for w in world.waiters if w.deadline < world.now]:
        if world.is_waiting(waiter):
            world.note("timeout")
            leave(world, waiter, refusal_of(world, waiter))
            serve_places(world, waiter)
            break_circles(world)
    serve_all(world)
    search_after_loss(world, held_before)


def short_ends(world):
    """Ends near enough to matter, so that new ones can keep away from them."""
    ends = [w.deadline for w in world.waiters]
    ends += [e[2] for db in world.keys.dbs for e in db.values()]
    return sorted({e for e in ends if e < world.now + 5000 and e != FOREVER})


def close_call(world, first):
    """Whether a wait ends at nearly the same time as something else does."""
    near = [e for e in short_ends(world) if e <= first + 40]
    return any(abs(w.deadline - end) < 15 for w in world.waiters
               for end in near if end != w.deadline and w.deadline <= first + 40)
