"""Random steps. They look at the model, so that most of them have something to do."""

import random

from .foreign_steps import foreign_step
from .joint_steps import mlock_words, mrenew_words, munlock_words, odd_words

LEASES = ["60000", "100000", "200000", "300000"]
SESSION_LEASE = "700"  # short enough to be renewed within a history
OWNERS = ["a", "b", "c", "d", "e", "f"]

# What each profile does, by weight.
PROFILES = {
    "mixed": {
        "locks": ["k", "l", "{k}", "t{1}"], "short": 0.15, "session": 0.2, "once": 0.15,
        "fence": 0.5, "reserve": 0.25, "block": 0.5,
        "steps": {"lock": 30, "unlock": 22, "mlock": 14, "munlock": 8, "other": 12,
                  "packet": 10, "multi": 3, "lua": 4, "foreign": 9, "close": 3, "kill": 2,
                  "unblock": 3, "wait": 6, "refuse": 5, "set": 2, "odd": 2}},
    "circles": {
        "locks": ["k", "l", "m", "n"], "short": 0.03, "session": 0.1, "once": 0.05,
        "fence": 0.05, "reserve": 0.05, "block": 0.85,
        "steps": {"lock": 42, "unlock": 14, "mlock": 26, "munlock": 6, "other": 6,
                  "packet": 3, "lua": 1, "close": 2, "kill": 1, "unblock": 4, "wait": 2,
                  "refuse": 1, "set": 2}},
    "sessions": {
        "locks": ["k", "l", "m"], "short": 0.1, "session": 0.65, "once": 0.35, "fence": 0.15,
        "reserve": 0.05, "block": 0.4,
        "steps": {"lock": 34, "unlock": 16, "mlock": 12, "munlock": 8, "other": 16,
                  "packet": 6, "multi": 3, "lua": 7, "foreign": 8, "close": 8, "kill": 4,
                  "unblock": 2, "wait": 4, "refuse": 3, "set": 1}},
}


class Generator:
    def __init__(self, seed, profile, without=(), upgrade_once=True):
        self.random = random.Random(f"{profile}/{seed}")
        self.profile = PROFILES[profile]
        self.name = profile
        self.without = set(without)
        self.upgrade_once = upgrade_once
        self.policy = self.random.choice(["fifo", "fifo", "prefer-readers", "prefer-writers",
                                          "prefer-writers"])
        # Some histories keep to few locks and owners: more of them meet.
        self.locks = self.profile["locks"][: self.random.choice([1, 2, 4])]
        if profile == "circles":
            # Few enough that the same owners meet on each of them.
            self.locks = self.profile["locks"][: self.random.choice([2, 3, 4])]
        self.owners = OWNERS[: self.random.choice([3, 4, 6])]
        self.dbs = self.random.choice([[0], [0, 1], [0, 1]])
        if "two-databases" in self.without:
            self.dbs = [0]
        self.back = []  # steps that undo what was moved

    def chance(self, what):
        return self.random.random() < (self.profile[what] if isinstance(what, str) else what)

    def next(self, world, slots, length):
        pick = self.random
        if world.refused and self.chance(0.3):
            return self.allow(world, slots)
        if self.back and not world.refused and self.chance(0.35):
            return self.run(self.back.pop(), world, slots)
        weights = {k: w for k, w in self.profile["steps"].items() if k not in self.without}
        if world.refused:
            weights = {k: w for k, w in weights.items()
                       if k in ("lock", "unlock", "mlock", "munlock", "other", "wait", "close",
                                "kill", "unblock")}
            weights["wait"] = 15
        elif self.profile["steps"].get("refuse") and self.tense(world):
            weights["refuse"] *= 4
        kind = pick.choices(list(weights), list(weights.values()))[0]
        return getattr(self, kind)(world, slots)

    def tense(self, world):
        """Whether somebody waits, or a lease is about to end."""
        return bool(world.waiters) or world.next_end() < world.now + 2000

    def first(self):
        return {"k": "set", "name": "policy", "value": self.policy}

    # Parts of a step.

    def free_slot(self, world, slots):
        waiting = {w.slot for w in world.waiters} | {s for s, _ in world.postponed}
        return self.random.choice([s for s in range(slots) if s not in waiting] or [0])

    def lease(self):
        return "@" if self.chance("short") else self.random.choice(LEASES)

    def session_lease(self, lease):
        return SESSION_LEASE if lease == "@" else lease

    def patience(self):
        if self.name == "circles" and not self.chance(0.1):
            return "100000"
        return self.random.choice(["0", "100000", "100000", "@"])

    def place(self, world):
        """A database and a lock, rather one where something goes on."""
        if world.waiters and self.chance(0.7 if world.refused else 0.4):
            place = self.random.choice(world.places())
            return place.db, place.key
        return self.random.choice(self.dbs), self.random.choice(self.locks)

    def holder(self, world, db, key):
        holders = sorted(world.view(db, key).holders())
        return self.random.choice(holders) if holders and self.chance(0.85) else self.owner()

    def owner(self):
        return self.random.choice(self.owners)

    def lock_words(self, world, db, key, may_block=True):
        pick, view = self.random, world.view(db, key)
        names = ["RWLOCK.RLOCK"] * 4 + ["RWLOCK.WLOCK"] * 5 + ["RWLOCK.UPGRADE"]
        name = pick.choice(names)
        owner = self.owner()
        if name == "RWLOCK.UPGRADE" or (view.mode != "free" and self.chance(0.35)):
            owner = self.holder(world, db, key)
        elif world.waiters and self.name == "circles" and self.chance(0.4):
            owner = self.random.choice(world.waiters).owner
        reserved, _ = world.keys.reservation(db, key, world.now)
        if "own-reservation" in self.without and reserved == owner:
            name = "RWLOCK.WLOCK"
        words = [name, key, owner, self.lease()]
        extra = []
        if self.chance("session"):
            extra.append(["SESSION"])
            words[3] = self.session_lease(words[3])
        has_once = name != "RWLOCK.UPGRADE" or self.upgrade_once
        if has_once and "once" not in self.without and self.chance("once"):
            extra.append(["ONCE"])
        if name != "RWLOCK.RLOCK" and self.chance("fence"):
            extra.append(["FENCE"])
        busy = len(world.waiters) >= 8
        if may_block and not busy and self.chance("block"):
            extra.append(["BLOCK", self.patience()])
        elif name == "RWLOCK.WLOCK" and self.chance("reserve"):
            long = "50000" if "long-reserve" in self.without else "90000"
            extra.append(["RESERVE", pick.choice(["@", "50000", long])])
        pick.shuffle(extra)
        return words + [w if self.chance(0.8) else w.lower() for part in extra for w in part]

    def unlock_words(self, world, db, key):
        words = ["RWLOCK.UNLOCK", key, self.holder(world, db, key)]
        reserved, _ = world.keys.reservation(db, key, world.now)
        if reserved and "withdraw" not in self.without and self.chance(0.1):
            return ["RWLOCK.UNLOCK", key, reserved, "ALL"]
        kind = self.random.choice([[], [], [], ["READ"], ["WRITE"], ["ALL"]])
        if "withdraw" in self.without and kind == ["ALL"] and reserved == words[2]:
            kind = []
        return words + kind

    def other_words(self, world, db, key):
        owner = self.holder(world, db, key)
        downgrade = ["RWLOCK.DOWNGRADE", key, owner, self.lease()]
        if "downgrade" in self.without:
            downgrade = ["RWLOCK.HELP"]
        return self.random.choice([
            ["RWLOCK.RENEW", key, owner, self.lease()],
            ["RWLOCK.RENEW", key, owner, self.random.choice(LEASES)],
            downgrade, downgrade,
            ["RWLOCK.FORCEUNLOCK", key] + self.random.choice([[], [], ["READ"], ["WRITE"]]),
            ["RWLOCK.INSPECT", key] + self.random.choice([[], ["COUNT", "1"]]),
            ["RWLOCK.QUEUES"] + self.random.choice([[], ["COUNT", "1"]]),
            ["RWLOCK.LIST", "0"] + self.random.choice([[], ["COUNT", "100"], ["HELD", "5"]]),
            ["RWLOCK.LOG"] + self.random.choice([[], ["COUNT", "1"], ["RESET"]]),
            ["RWLOCK.HOTLOCKS"] + self.random.choice([[], ["COUNT", "1"], ["RESET"]]),
            ["RWLOCK.HELP"]])

    def run(self, what, world, slots, form="plain"):
        db, cmds = what
        return {"k": "run", "c": self.free_slot(world, slots), "db": db, "form": form,
                "cmds": cmds}

    # Kinds of steps.

    def lock(self, world, slots):
        db, key = self.place(world)
        return self.run((db, [self.lock_words(world, db, key)]), world, slots)

    def unlock(self, world, slots):
        db, key = self.place(world)
        step = self.run((db, [self.unlock_words(world, db, key)]), world, slots)
        mine = [t.slot for t in world.tags if (t.db, t.key) == (db, key)]
        if mine and self.chance(0.4):
            step["c"] = self.random.choice(mine)
        return step

    def mlock(self, world, slots):
        db, key = self.place(world)
        return self.run((db, [mlock_words(self, world, db, key)]), world, slots)

    def munlock(self, world, slots):
        db, key = self.place(world)
        words = mrenew_words if self.chance(0.2) else munlock_words
        step = self.run((db, [words(self, world, db, key)]), world, slots)
        mine = [t.slot for t in world.tags if (t.db, t.key) == (db, key)]
        if mine and self.chance(0.4):
            step["c"] = self.random.choice(mine)
        return step

    def other(self, world, slots):
        db, key = self.place(world)
        return self.run((db, [self.other_words(world, db, key)]), world, slots)

    def several(self, world, db, key, count, may_block=False):
        cmds = []
        for at in range(count):
            kind = self.random.random()
            if "mlock" not in self.without and self.chance(0.2):
                cmds.append(self.joint_words(world, db, key, may_block and at == count - 1))
            elif kind < 0.45:
                words = self.lock_words(world, db, key, may_block and at == count - 1)
                waiters = [w.owner for w in world.queue(db, key)]
                if waiters and self.chance(0.5):
                    words[2] = self.random.choice(waiters)
                cmds.append(words)
            elif kind < 0.8:
                cmds.append(self.unlock_words(world, db, key))
            elif kind < 0.92:
                cmds.append(["RWLOCK.FORCEUNLOCK", key])
            else:
                cmds.append(self.other_words(world, db, key))
        return cmds

    def joint_words(self, world, db, key, may_block):
        words = self.random.choice([mlock_words, mlock_words, munlock_words, mrenew_words])
        if words is mlock_words:
            return mlock_words(self, world, db, key, may_block)
        return words(self, world, db, key)

    def packet(self, world, slots):
        db, key = self.place(world)
        waiters = [w.slot for w in world.queue(db, key)]
        ends = bool(waiters) and "lost-grants" not in self.without and self.chance(0.5)
        cmds = self.several(world, db, key, self.random.randint(1 if ends else 2, 4), not ends)
        if ends:
            if self.chance(0.5):
                # A later hold like the one that is taken back.
                holder = sorted(world.view(db, key).holders() or ["a"])[0]
                waiter = world.queue(db, key)[0]
                kind = "RWLOCK.RLOCK" if waiter.kind == "read" else "RWLOCK.WLOCK"
                cmds = [["RWLOCK.UNLOCK", key, holder, "ALL"],
                        self.random.choice([["RWLOCK.FORCEUNLOCK", key],
                                            ["RWLOCK.UNLOCK", key, waiter.owner]]),
                        [kind, key, waiter.owner, self.random.choice(LEASES)]]
            target = f"$c{waiters[0] if self.chance(0.7) else self.random.choice(waiters)}"
            cmds.append(self.random.choice([
                ["CLIENT", "KILL", "ID", target], ["CLIENT", "KILL", "ID", target],
                ["CLIENT", "UNBLOCK", target, "TIMEOUT"], ["CLIENT", "UNBLOCK", target, "ERROR"]]))
        return self.run((db, cmds), world, slots)

    def multi(self, world, slots):
        db, key = self.place(world)
        cmds = self.several(world, db, key, self.random.randint(1, 3), True)
        return self.run((db, cmds), world, slots, "multi")

    def lua(self, world, slots):
        db, key = self.place(world)
        cmds = self.several(world, db, key, self.random.randint(1, 3), True)
        step = self.run((db, cmds), world, slots, "lua")
        mine = [t.slot for t in world.tags if (t.db, t.key) == (db, key)]
        if mine and self.chance(0.5):
            step["c"] = self.random.choice(mine)
        return step

    def close(self, world, slots):
        slots_of = [w.slot for w in world.waiters] + [t.slot for t in world.tags] * 2
        return {"k": "close", "c": self.random.choice(slots_of or [0])}

    def kill(self, world, slots):
        return {**self.close(world, slots), "k": "kill"}

    def unblock(self, world, slots):
        slot = self.random.choice([w.slot for w in world.waiters] or [0])
        return {"k": "unblock", "c": slot, "how": self.random.choice(["TIMEOUT", "ERROR"])}

    def wait(self, world, slots):
        return {"k": "wait"}

    def refuse(self, world, slots):
        kinds = [k for k in ("oom", "paused", "paused", "noreplicas") if k not in self.without]
        return {"k": "refuse", "why": self.random.choice(kinds)} if kinds else {"k": "wait"}

    def allow(self, world, slots):
        step = {"k": "allow", "why": sorted(world.refused)[0]}
        if world.postponed:
            return step
        if world.waiters and self.chance(0.4):
            waiter = self.random.choice(world.waiters)
            words = ["RWLOCK.WLOCK", waiter.key, self.owner(), self.random.choice(LEASES)]
            step["then"], step["insist"] = self.run((waiter.db, [words]), world, slots), True
        elif self.chance(0.4):
            step["then"] = self.lock(world, slots)
        return step

    def set(self, world, slots):
        name, values = self.random.choice([
            ("policy", ["fifo", "prefer-readers", "prefer-writers"]),
            ("max-waiters", ["0", "3", "100000", "100000"]),
            ("fence-ttl", ["0", "604800000", "500000"])])
        return {"k": "set", "name": name, "value": self.random.choice(values)}

    def odd(self, world, slots):
        """What has to be refused, without a trace."""
        db, key = self.place(world)
        if "mlock" not in self.without and self.chance(0.6):
            return self.run((db, [odd_words(self, key)]), world, slots)
        return self.run((db, [self.random.choice([
            ["RWLOCK.RLOCK", key, "a", "0"], ["RWLOCK.WLOCK", key, "a", "-5"],
            ["RWLOCK.WLOCK", key, "a", "9223372036854775807"], ["RWLOCK.RLOCK", key, "a", "1.5"],
            ["RWLOCK.RLOCK", key, "mode", "1000"], ["RWLOCK.RLOCK", key, "x:write", "1000"],
            ["RWLOCK.RLOCK", key, "", "1000"], ["RWLOCK.RLOCK", key, "o" * 1025, "1000"],
            ["RWLOCK.RLOCK", "k:wait_write", "a", "1000"],
            ["RWLOCK.RLOCK", "k:rwlock_timeout:12", "a", "1000"],
            ["RWLOCK.WLOCK", "k:rwlock_fence", "a", "1000"],
            ["RWLOCK.RLOCK", key, "a", "1000", "ONCE", "once"],
            ["RWLOCK.RLOCK", key, "a", "1000", "FENCE"],
            ["RWLOCK.WLOCK", key, "a", "1000", "RESERVE", "10", "BLOCK", "10"],
            ["RWLOCK.WLOCK", key, "a", "1000", "BLOCK"],
            ["RWLOCK.WLOCK", key, "a", "1000", "BLOCK", "-1"],
            ["RWLOCK.UNLOCK", key, "a", "SOME"], ["RWLOCK.UNLOCK", key],
            ["RWLOCK.RENEW", key, "a", "0"], ["RWLOCK.DOWNGRADE", key, "a", "x"],
            ["RWLOCK.FORCEUNLOCK", key, "ALL"]])]), world, slots)

    def foreign(self, world, slots):
        return foreign_step(self, world, slots)
