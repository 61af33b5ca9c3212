"""Plain commands that others send: they change the keys behind the module's back.

What the module has to make of them comes afterwards, in `settle`: dead bindings, a
hash lengthened again, queues served.
"""

from . import circles
from .keyspace import FOREVER, HASH, STRING, prefix
from .turns import holders_that_wait

COMMANDS = {}


class Open(Exception):
    """Others made a waiter a holder, closed a circle, or gave two locks the same timeout
    keys: what follows is not said."""



def command(function):
    COMMANDS[function.__name__.upper()] = function
    return function


def touch(world, db, *keys):
    world.touched |= {(db, key) for key in keys}
    for key in keys:
        if (db, key) in world.tenures:
            owner, token, _ = world.tenures[(db, key)]
            world.tenures[(db, key)] = (owner, token, False)


def affected(world, db, key):
    """The locks that a key belongs to: itself, or those it is derived from."""
    names = {key}
    for (other_db, lock) in set(world.touched) | world.queues():
        if other_db == db and key.startswith(prefix(lock) + ":"):
            names.add(lock)
    for lock in world.keys.locks(db, world.now):
        if key.startswith(prefix(lock) + ":"):
            names.add(lock)
    return names


@command
def del_(world, db, key):
    world.keys.delete(db, key)


COMMANDS["DEL"] = COMMANDS["UNLINK"] = COMMANDS.pop("DEL_")


@command
def pexpire(world, db, key, ms):
    if world.keys.get(db, key, world.now):
        if int(ms) <= 0:
            world.keys.delete(db, key)
        else:
            world.keys.set_end(db, key, world.now + int(ms))


@command
def persist(world, db, key):
    if world.keys.get(db, key, world.now):
        world.keys.set_end(db, key, FOREVER)


def refuse_sharing(key, other):
    if key != other and prefix(key) == prefix(other):
        raise Open()


def shift(world, db, key, to_db, to_key):
    """Moves a key. Where its bindings are meanwhile is open, until it is back."""
    entry = world.keys.dbs[db].pop(key)
    world.keys.dbs[to_db][to_key] = entry
    world.drop_tags(lambda t: (t.db, t.key) == (to_db, to_key))
    world.tenures.pop((to_db, to_key), None)
    for tag in world.all_tags():
        if (tag.db, tag.key) == (db, key):
            if tag.home is None:
                tag.home, tag.sure = (db, key), False
            tag.db, tag.key = to_db, to_key
            if tag.home == (to_db, to_key):
                tag.home = None
                tag.sure = True
    tenure = world.tenures.pop((db, key), None)
    if tenure:
        world.tenures[(to_db, to_key)] = (tenure[0], tenure[1], False)


@command
def rename(world, db, key, other):
    if world.keys.get(db, key, world.now):
        refuse_sharing(key, other)
        world.keys.delete(db, other)
        shift(world, db, key, db, other)
        touch(world, db, other)


@command
def move(world, db, key, to):
    if world.keys.get(db, key, world.now) and not world.keys.get(int(to), key, world.now):
        shift(world, db, key, int(to), key)
        touch(world, int(to), key)


@command
def copy(world, db, key, other, *_):
    entry = world.keys.get(db, key, world.now)
    if entry:
        refuse_sharing(key, other)
        world.lock_ended(db, other)
        world.keys.dbs[db][other] = entry
        touch(world, db, other)


@command
def hset(world, db, key, *words):
    entry = world.keys.get(db, key, world.now)
    if entry is None:
        world.keys.put(db, key, HASH, {}, FOREVER)
    elif entry[0] != HASH:
        return
    fields = world.keys.fields(db, key) | dict(zip(words[::2], words[1::2]))
    world.keys.put_fields(db, key, fields)


@command
def hdel(world, db, key, *names):
    entry = world.keys.get(db, key, world.now)
    if entry and entry[0] == HASH:
        fields = {k: v for k, v in entry[1].items() if k not in names}
        world.keys.put_fields(db, key, fields)


@command
def set_(world, db, key, value, *words):
    end = world.now + int(words[1]) if words else FOREVER
    world.keys.put(db, key, STRING, value, end)


COMMANDS["SET"] = COMMANDS.pop("SET_")

# The server tells nobody of these.
UNHEARD = {"HSET", "HDEL"}

WHOLE = {"SWAPDB", "FLUSHDB", "FLUSHALL", "DEBUG"}


def whole(world, db, argv):
    name = argv[0].upper()
    if name == "SWAPDB":
        world.keys.dbs.reverse()
        for tag in world.all_tags():
            tag.db = 1 - tag.db
            tag.home = tag.home and (1 - tag.home[0], tag.home[1])
        world.tenures = {(1 - d, k): (o, t, False) for (d, k), (o, t, _) in world.tenures.items()}
        world.handed_out = {(1 - d, k): v for (d, k), v in world.handed_out.items()}
        world.touched |= {(1 - d, k) for d, k in world.touched}
    elif name == "DEBUG":  # whether the tokens of tenures are known still is open
        world.tenures = {at: (o, t, False) for at, (o, t, _) in world.tenures.items()}
    else:
        for which in ((0, 1) if name == "FLUSHALL" else (db,)):
            world.keys.dbs[which].clear()
            world.drop_tags(lambda t, which=which: t.db == which)
            world.tenures = {at: t for at, t in world.tenures.items() if at[0] != which}


def mend(world, db, key):
    """What lapsed in a hash because others moved it, without its timeout keys, may be
    removed by now."""
    if (db, key) not in world.touched:
        return
    if world.view(db, key).mode == "read":
        lengthen_to_readers(world, db, key, False)
    cleaned = world.clone()
    cleaned.clean(db, key)
    if cleaned.keys.dbs[db].get(key) != world.keys.dbs[db].get(key) and world.choose(2):
        world.clean(db, key)


def lengthen_to_readers(world, db, key, at_once):
    """A read hash that is shorter than its holds is lengthened, if not at once then when
    it is looked at. What becomes of one whose hold somebody made to last for ever is
    open."""
    view = world.view(db, key)
    latest = max(end for live in view.readers.values() for _, end in live)
    if view.end < latest < FOREVER and (at_once or world.choose(2)):
        world.keys.set_end(db, key, latest)


def run(world, db, argv):
    name = argv[0].upper()
    world.note(name)
    looked_at, held_before = set(), holders_that_wait(world)
    if name in WHOLE:
        whole(world, db, argv)
        if name == "DEBUG":
            looked_at = {tag.key for tag in world.all_tags()}
    else:
        mend(world, db, argv[1])
        for key in affected(world, db, argv[1]):
            touch(world, db, key)
            if name not in UNHEARD:
                looked_at.add(key)
        COMMANDS[name](world, db, *argv[1:])
    world.late |= world.queues()
    settle(world, (db, argv[1]) if name == "PEXPIRE" else None, looked_at)
    if holders_that_wait(world) - held_before or circles.has_circle(circles.edges(world)):
        raise Open()


def settle(world, shortened, looked_at):
    """Bindings of holds that are gone end; a read hash that was shortened is lengthened
    to the end of its holds. A binding whose hold went in a change that is not heard of
    may end only when its lock is looked at."""
    ended = []
    for tag in world.all_tags():
        view = world.view(tag.db, tag.key)
        if tag.kind == "write":
            alive = view.writer == tag.owner and tag.number <= view.writes
        elif tag.home is not None:
            alive = tag.owner in (world.keys.dbs[tag.db].get(tag.key) or (0, {}, 0))[1]
        else:
            alive = any(n == tag.number for n, _ in view.readers.get(tag.owner, []))
        if not alive:
            ended.append(tag)
    for tag in ended:
        # Of reads whose timeout key alone is gone the next command makes an end. The
        # bindings may have ended before.
        fields = (world.keys.dbs[tag.db].get(tag.key) or (0, {}, 0))[1]
        is_certain = tag.kind == "write" or tag.home is not None or tag.owner not in fields
        if (is_certain and tag.key in looked_at) or world.choose(2):
            world.drop_tags(lambda t, tag=tag: t is tag)
    for db in (0, 1):
        for key in world.keys.locks(db, world.now):
            view = world.view(db, key)
            if view.mode == "read":
                lengthen_to_readers(world, db, key, (db, key) == shortened)
                world.drop_tags(lambda t: (t.db, t.key, t.kind) == (db, key, "write"))
    for (db, key), tenure in list(world.tenures.items()):
        if world.view(db, key).writer != tenure[0]:
            del world.tenures[(db, key)]
