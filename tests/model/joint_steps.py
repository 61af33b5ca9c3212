"""Random words of MLOCK, MUNLOCK and MRENEW."""

from .keyspace import prefix


def mlock_words(self, world, db, key, may_block=True):
    pick = self.random
    keys = some_locks(self, key)
    owner = self.owner()
    if self.chance(0.25):
        owner = self.holder(world, db, pick.choice(keys))
    elif world.waiters and self.chance(0.4 if self.name == "circles" else 0.1):
        owner = pick.choice(world.waiters).owner
    kinds = [pick.choice(["READ", "WRITE"]) for _ in keys]
    if self.chance(0.3):
        kinds = [pick.choice(["READ", "WRITE"])] * len(keys)
    lease = self.lease()
    extra = clauses_of(self, zip(kinds, keys))
    if self.chance("session"):
        extra.append(["SESSION"])
        lease = self.session_lease(lease)
    if "once" not in self.without and self.chance("once"):
        extra.append(["ONCE"])
    if "WRITE" in kinds and self.chance("fence"):
        extra.append(["FENCE"])
    if may_block and len(world.waiters) < 8 and self.chance(0.2 + self.profile["block"]):
        extra.append(["BLOCK", "@" if self.chance(0.15) else self.patience()])
    pick.shuffle(extra)
    return ["RWLOCK.MLOCK", owner, lease] + [word for part in extra for word in part]


def some_locks(self, key):
    """The lock and others, rather such as the history uses. Few of them clash."""
    others = self.locks if len(self.locks) > 1 else self.profile["locks"][:2]
    others = [k for k in others if k != key]
    if not self.chance(0.04):
        others = [k for k in others if prefix(k) != prefix(key)]
        if "{k}" in others and "k" in others:
            others.remove(self.random.choice(["k", "{k}"]))
    count = self.random.choice([0, 1, 1, 1, 1, 2, 2, 3])
    keys = [key] + self.random.sample(others, min(count, len(others)))
    self.random.shuffle(keys)
    return keys


def clauses_of(self, named):
    """The words of the clauses that name these locks, each in a list of its own."""
    clauses = {}
    for kind, key in named:
        clauses.setdefault(kind, []).append(key)
    parts = [[kind if self.chance(0.8) else kind.lower(), str(len(keys))] + keys
             for kind, keys in clauses.items()]
    self.random.shuffle(parts)
    return parts


def owner_and_locks(self, world, db, key):
    """An owner, rather a holder, and most of what it holds: the locks, each with kinds."""
    owner = self.holder(world, db, key)
    held = {}
    for lock in self.profile["locks"]:
        view = world.view(db, lock)
        kinds = ["READ"] * (owner in view.readers) + ["WRITE"] * (view.writer == owner)
        if kinds and self.chance(0.85):
            held[lock] = kinds
    if not held or self.chance(0.15):
        held.setdefault(self.random.choice(self.profile["locks"]), ["READ", "WRITE"])
    return owner, held


def munlock_words(self, world, db, key):
    owner, held = owner_and_locks(self, world, db, key)
    named = []
    for lock, kinds in held.items():
        named.append((self.random.choice(kinds + kinds + kinds + ["ALL"]), lock))
        if self.chance(0.5 if len(kinds) > 1 else 0.1):
            named.append((self.random.choice(["READ", "WRITE", "ALL"]), lock))
    parts = clauses_of(self, dict.fromkeys(named))
    return ["RWLOCK.MUNLOCK", owner] + [word for part in parts for word in part]


def mrenew_words(self, world, db, key):
    owner, held = owner_and_locks(self, world, db, key)
    keys = list(held) + ([key] if self.chance(0.2) else [])
    return ["RWLOCK.MRENEW", owner, self.lease()] + keys


def odd_words(self, key):
    """What has to be refused, without a trace."""
    other = self.random.choice([k for k in self.profile["locks"] if prefix(k) != prefix(key)])
    many = [f"m{number}" for number in range(1025)]
    return self.random.choice([["RWLOCK." + argv[0]] + argv[1:] for argv in (
        ["MLOCK", "a", "1000", "READ", "0", key], ["MLOCK", "a", "1000", "WRITE", "-1", key],
        ["MLOCK", "a", "1000", "READ", "x", key], ["MLOCK", "a", "1000", "READ", "2", key],
        ["MLOCK", "a", "1000", "READ", "1", key, "READ", "1", other],
        ["MLOCK", "a", "1000", "READ", "1", key, "WRITE", "1", key],
        ["MLOCK", "a", "1000", "WRITE", "3", key, other, key],
        ["MLOCK", "a", "1000", "READ", "2", key, other, "FENCE"],
        ["MLOCK", "a", "1000", "WRITE", "2", key, other, "RESERVE", "10"],
        ["MLOCK", "a", "1000", "WRITE", "1", key, "ONCE", "once"],
        ["MLOCK", "a", "1000", "BLOCK", "10", "SESSION", "ONCE"],
        ["MLOCK", "a", "0", "WRITE", "1", key], ["MLOCK", "mode", "1000", "WRITE", "1", key],
        ["MLOCK", "a", "9223372036854775807", "WRITE", "1", key],
        ["MLOCK", "a", "1000", "WRITE", "2", key, "k:wait_write"],
        ["MLOCK", "a", "1000", "WRITE", "2", key, other, "BLOCK", "-1"],
        ["MLOCK", "a", "1000", "WRITE", "1", key, other], ["MLOCK", "a", "1000", "READ", "1"],
        ["MLOCK", "a", "1000", "ALL", "1", key], ["MLOCK", "a", "1000", "WRITE", "1025"] + many,
        ["MLOCK", "a", "1000", "READ", "2", "m", "{m}"],
        ["MUNLOCK", "a", "READ", "2", key, key], ["MUNLOCK", "a", "SOME", "1", key],
        ["MUNLOCK", "a", "ALL", "0", key], ["MUNLOCK", "a", "ALL", "2", key],
        ["MUNLOCK", "a", "READ", "1", key, other], ["MUNLOCK", "x:write", "ALL", "1", key],
        ["MUNLOCK", "a", "ALL", "1", key, "ALL", "1", other], ["MUNLOCK", "a"],
        ["MUNLOCK", "a", "WRITE", "2", key, "k:rwlock_fence"],
        ["MUNLOCK", "a", "READ", "1", "m", "WRITE", "1024"] + many[1:],
        ["MRENEW", "a", "0", key], ["MRENEW", "a", "x", key], ["MRENEW", "a", "1000"],
        ["MRENEW", "mode", "1000", key], ["MRENEW", "a", "1000", key, "k:rwlock_timeout:3"],
        ["MRENEW", "a", "1000"] + many)])
