"""One possible state of the server, and how several are kept.

Where the contract leaves an outcome open, the model takes every one that it allows:
`choose(n)` splits the world, and the comparison drops the worlds that the server did
not enter.
"""

from dataclasses import dataclass, replace

from .keyspace import FOREVER, Keyspace, timeout_key


@dataclass(frozen=True)
class Waiter:
    """A request, also before it waits. One for several locks, a joint one, has all of
    them in `wants`, and `key` and `kind` are those of one of its places."""

    seq: int  # arrival
    slot: int  # whose connection, in the driver
    db: int
    key: str
    owner: str
    kind: str  # read, write, upgrade
    lease: int
    deadline: float
    session: bool = False
    once: bool = False
    fence: bool = False
    wants: tuple = ()  # (key, kind) of each lock, where it is for several

    @property
    def joint(self):
        return bool(self.wants)

    @property
    def writes(self):
        """Whether it wants to write any of its locks."""
        return self.kind != "read" or any(kind == "write" for _, kind in self.wants)

    def places(self):
        """Itself as it stands in the queue of each of its locks."""
        if not self.joint:
            return [self]
        return [replace(self, key=key, kind=kind) for key, kind in self.wants]


@dataclass
class Tag:
    """Names one hold: the one of this kind and number. It follows renumbering.

    With a slot it is a session binding. Without, it is a grant whose answer is still
    under way. `sure` is False while it is open whether the binding still stands;
    `relied` while the answer is under way and another client has the hold too.
    """

    db: int
    key: str
    owner: str
    kind: str  # read, write
    number: int
    slot: int = None
    lease: int = 0
    sure: bool = True
    home: tuple = None
    relied: bool = False

    def names(self, db, key, owner, kind):
        return (self.db, self.key, self.owner, self.kind) == (db, key, owner, kind)


class TooManyWorlds(Exception):
    pass


class World:
    def __init__(self):
        self.keys = Keyspace()
        self.waiters = []  # in order of arrival
        self.tags = []  # session bindings
        self.in_flight = []  # (waiter, Tag or None) granted in this packet
        self.tenures = {}  # (db, lock) -> (owner, token, certain)
        self.handed_out = {}  # (db, fence key) -> (last token, its owner)
        self.refused = frozenset()  # oom, noreplicas, paused: what forbids grants now
        self.postponed = []  # (slot, function) that wait for the end of a write pause
        self.deferred = []  # tags of closed connections, to be released later
        self.late = frozenset()  # locks whose queue may be served a moment later
        self.settings = {"policy": "fifo", "deadlock-detection": "yes",
                         "max-waiters": "100000", "fence-ttl": "604800000"}
        self.seq = 0
        self.out = {}  # slot -> replies expected in this step
        self.notes = []  # what was covered
        self.touched = frozenset()  # (db, lock) that others have written: less is certain
        self.fuzzy = frozenset()  # tokens of this step, which come from the clock
        self.now = 0
        self._path = []
        self._taken = []
        self._options = []

    def clone(self):
        other = World.__new__(World)
        other.__dict__.update(self.__dict__)
        other.keys = self.keys.clone()
        other.waiters = list(self.waiters)
        copies = {id(tag): replace(tag) for tag in self.tags + self.deferred}
        for _, tag in self.in_flight:
            if tag is not None and id(tag) not in copies:
                copies[id(tag)] = replace(tag)
        other.tags = [copies[id(tag)] for tag in self.tags]
        other.deferred = [copies[id(tag)] for tag in self.deferred]
        other.in_flight = [(w, tag and copies[id(tag)]) for w, tag in self.in_flight]
        other.tenures = dict(self.tenures)
        other.handed_out = dict(self.handed_out)
        other.postponed = list(self.postponed)
        other.settings = dict(self.settings)
        other.out = {slot: list(replies) for slot, replies in self.out.items()}
        other.notes = list(self.notes)
        return other

    def choose(self, count):
        """0 to count - 1: the world goes on in each of these ways."""
        at = len(self._taken)
        pick = self._path[at] if at < len(self._path) else 0
        self._taken.append(pick)
        self._options.append(count)
        return pick

    def branches(self, step):
        """All worlds to which `step(world)` leads from this one."""
        results, paths = [], [[]]
        while paths:
            path = paths.pop()
            world = self.clone()
            world._path, world._taken, world._options = path, [], []
            step(world)
            results.append(world)
            for at in range(len(path), len(world._taken)):
                for other in range(1, world._options[at]):
                    paths.append(world._taken[:at] + [other])
            if len(results) > 400:
                raise TooManyWorlds()
        return results

    # What the parts of the model share.

    def view(self, db, key):
        return self.keys.view(db, key, self.now)

    def places(self):
        """All places of all waiters."""
        return [place for waiter in self.waiters for place in waiter.places()]

    def queue(self, db, key):
        return [p for p in self.places() if (p.db, p.key) == (db, key)]

    def queues(self):
        """The locks that somebody waits for."""
        return {(p.db, p.key) for p in self.places()}

    def is_waiting(self, waiter):
        return any(w.seq == waiter.seq for w in self.waiters)

    def remove(self, waiter):
        """Takes a waiter out of all queues, whichever of its places is meant."""
        self.waiters = [w for w in self.waiters if w.seq != waiter.seq]

    def reply(self, slot, pattern):
        self.out.setdefault(slot, []).append(pattern)

    def note(self, what):
        self.notes.append(what)

    def all_tags(self):
        seen, tags = set(), []
        for tag in self.tags + self.deferred + [t for _, t in self.in_flight if t]:
            if id(tag) not in seen:
                seen.add(id(tag))
                tags.append(tag)
        return tags

    def drop_tags(self, gone):
        """Forgets the tags for which `gone(tag)`: their holds have ended."""
        self.tags = [t for t in self.tags if not gone(t)]
        self.deferred = [t for t in self.deferred if not gone(t)]
        self.in_flight = [(w, None if t and gone(t) else t) for w, t in self.in_flight]

    def hold_ended(self, db, key, owner, kind, number):
        self.drop_tags(lambda t: t.names(db, key, owner, kind) and t.number == number)
        for tag in self.all_tags():
            if tag.names(db, key, owner, kind) and tag.number > number:
                tag.number -= 1

    def lock_ended(self, db, key):
        self.drop_tags(lambda t: (t.db, t.key) == (db, key))
        self.tenures.pop((db, key), None)

    def clean(self, db, key):
        """What every command does first: it removes the lapsed holds of its lock."""
        view = self.view(db, key)
        self.keys.clean(db, key, self.now,
                        lambda owner, n: self.hold_ended(db, key, owner, "read", n))
        if view.mode == "free":
            self.lock_ended(db, key)
        tenure = self.tenures.get((db, key))
        if tenure and view.writer != tenure[0]:
            del self.tenures[(db, key)]
        self.drop_tags(lambda t: (t.db, t.key, t.kind) == (db, key, "write")
                       and t.owner != view.writer)
        return self.view(db, key)

    def next_end(self):
        """The next moment at which time alone changes something."""
        ends = [w.deadline for w in self.waiters]
        floating = set() if "paused" in self.refused else {k for k, _ in self.floating()}
        for db in (0, 1):
            for key, entry in self.keys.dbs[db].items():
                if (db, key) not in floating:
                    ends.append(entry[2])
        return min(ends, default=FOREVER)

    def renew_sessions(self, now):
        """The server renews session holds in time, at least every third of the lease."""
        if "paused" in self.refused:
            return
        for (db, key), lease in self.floating():
            entry = self.keys.dbs[db].get(key)
            if lease < 5000 and entry is not None and entry[2] < now + lease * 0.6:
                self.keys.set_end(db, key, now + lease * 0.6)

    def floating(self):
        """Keys that the server renews by itself, each with the lease it renews to."""
        found = []
        for tag in self.tags:
            found.append(((tag.db, tag.key), tag.lease))
            if tag.kind == "read":
                found.append(((tag.db, timeout_key(tag.key, tag.owner, tag.number)), tag.lease))
        return found
