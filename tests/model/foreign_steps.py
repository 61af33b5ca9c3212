"""Random plain commands on the keys of locks, by clients that know no module."""

from .keyspace import fence_key, reservation_key, timeout_key


def foreign_step(self, world, slots):
    pick = self.random
    db, key = self.place(world)
    view = world.view(db, key)
    other = pick.choice([k for k in self.profile["locks"] if k != key])
    kinds = ["del", "pexpire", "persist", "rename", "move", "copy", "script", "script", "script",
             "swapdb", "flush", "timeout", "timeout", "persist timeout", "persist timeout",
             "reservation", "fence", "wrong",
             "reload"]
    if self.name == "sessions":
        kinds = ["rename", "rename", "move", "swapdb", "swapdb", "swapdb", "script", "del",
                 "reload"]
    kinds = [k for k in kinds if k not in self.without]
    kind = pick.choice(kinds)
    several = [timeout_key(key, o, len(live)) for o, live in view.readers.items() if len(live) > 1]
    if several and "persist timeout" not in self.without and self.chance(0.3):
        # The ends of numbered holds have to stay apart when one of them goes.
        return self.run((db, [["PERSIST", pick.choice(several)]]), world, slots)
    form = "plain"
    owner = self.holder(world, db, key)
    timeouts = [timeout_key(key, o, n) for o, live in view.readers.items() for n, _ in live]
    if kind == "del":
        cmds = [[pick.choice(["DEL", "UNLINK"]), key]]
    elif kind == "pexpire":
        cmds = [["PEXPIRE", key, pick.choice(["400000", "30000", "@"])]]
        bound = any((t.db, t.key) == (db, key) for t in world.tags)
        if bound or (view.mode == "write" and view.readers):
            # Whether a session is renewed in time is not said, nor whether own reads
            # hold up the end of a write lock.
            cmds = [["PEXPIRE", key, "400000"]]
    elif kind == "persist":
        cmds = [["PERSIST", key]]
    elif kind == "rename":
        cmds = [["RENAME", key, other]]
        self.back.append((db, [["RENAME", other, key]]))
    elif kind == "move":
        cmds = [["MOVE", key, str(1 - db)]]
        self.back.append((1 - db, [["MOVE", key, str(db)]]))
    elif kind == "copy":
        cmds = [["COPY", key, other, "REPLACE"]]
    elif kind == "swapdb":
        cmds = [["SWAPDB", "0", "1"]]
        if self.chance(0.5):
            self.back.append((0, [["SWAPDB", "0", "1"]]))
    elif kind == "flush":
        cmds = [[pick.choice(["FLUSHDB", "FLUSHALL"])]]
    elif kind == "reload":
        cmds = [["DEBUG", "RELOAD"]]
    elif kind == "script":
        step = self.run((db, script(self, view, key, owner)), world, slots, "lua")
        # Without that it would make what no script of Redisson makes.
        return {**step, "needs": [key, view.mode, view.writer, sorted(view.readers)]}
    elif kind == "timeout" and timeouts:
        timeout = pick.choice(timeouts)
        bound = any((t.db, t.key) == (db, key) for t in world.tags)
        cmds = [pick.choice([["DEL", timeout], ["PEXPIRE", timeout, "500000" if bound else "@"],
                             ["PEXPIRE", timeout, "500000"]])]
    elif kind == "persist timeout" and timeouts:
        cmds = [["PERSIST", pick.choice(timeouts)]]
    elif kind == "reservation":
        cmds = [pick.choice([["SET", reservation_key(key), self.owner(), "PX", "40000"],
                             ["SET", reservation_key(key), self.owner(), "PX", "@"],
                             ["DEL", reservation_key(key)]])]
    elif kind == "fence":
        ahead = str(int(world.now * 1000) + 10 ** 9)
        cmds = [pick.choice([["SET", fence_key(key), pick.choice(["5", ahead])],
                             ["DEL", fence_key(key)]])]
    elif kind == "wrong":
        cmds = [["SET", key, "no lock"]]
        self.back.append((db, [["DEL", key]]))
    else:
        cmds = [["DEL", key]]
    return self.run((db, cmds), world, slots, form)


def script(self, view, key, owner):
    """As Redisson's scripts change a lock: its downgrade, its unlock, another's entry."""
    if view.mode == "write":
        other = self.owner()
        if view.writer in view.readers:
            return [["HSET", key, "mode", "read"], ["HDEL", key, view.writer + ":write"]]
        if other != view.writer and not view.readers and "swap-writer" not in self.without:
            return [["HDEL", key, view.writer + ":write"], ["HSET", key, other + ":write", "1"]]
        return [["HSET", key, view.writer + ":write", str(view.writes + 1)]]
    if view.mode == "read":
        if owner in view.readers:
            number = len(view.readers[owner]) + 1
            return [["HSET", key, owner, str(number)],
                    ["SET", timeout_key(key, owner, number), "1", "PX", "200000"],
                    ["PEXPIRE", key, "300000"]]
        return [["DEL", key]]
    return [["DEL", key], ["HSET", key, "mode", "write", owner + ":write", "1"],
            ["PEXPIRE", key, "100000"]]
