"""The keys of both databases, and what a lock is according to them.

The keys are the truth about holds, so the model keeps them as the server does: a lock
is read out of them each time. A key is `(type, value, end)`; `end` is unix time in ms,
infinite without expiry.
"""

from dataclasses import dataclass, field

FOREVER = float("inf")
HASH, STRING, OTHER = "hash", "string", "other"


def prefix(lock):
    return lock if "{" in lock else "{" + lock + "}"


def timeout_key(lock, owner, number):
    return f"{prefix(lock)}:{owner}:rwlock_timeout:{number}"


def reservation_key(lock):
    return prefix(lock) + ":wait_write"


def fence_key(lock):
    return prefix(lock) + ":rwlock_fence"


@dataclass
class View:
    """A lock as its keys describe it at one moment. Only live holds are in it."""

    mode: str = "free"  # free, read, write, or bad: a key that is no lock
    end: float = 0
    readers: dict = field(default_factory=dict)  # owner -> [(number, end)], in order
    writer: str = None
    writes: int = 0

    def holders(self):
        owners = set(self.readers)
        if self.writer is not None:
            owners.add(self.writer)
        return owners


def positive(text):
    return text.isdigit() and int(text) > 0


class Keyspace:
    def __init__(self):
        self.dbs = [{}, {}]

    def clone(self):
        other = Keyspace()
        other.dbs = [dict(db) for db in self.dbs]
        return other

    def get(self, db, key, now):
        entry = self.dbs[db].get(key)
        return None if entry is None or entry[2] < now else entry

    def put(self, db, key, kind, value, end):
        self.dbs[db][key] = (kind, value, end)

    def delete(self, db, key):
        return self.dbs[db].pop(key, None) is not None

    def set_end(self, db, key, end):
        kind, value, _ = self.dbs[db][key]
        self.dbs[db][key] = (kind, value, end)

    def fields(self, db, key):
        return dict(self.dbs[db][key][1])

    def put_fields(self, db, key, fields):
        """Replaces the fields and keeps the end. Without fields the key is gone."""
        if fields:
            self.put(db, key, HASH, fields, self.dbs[db][key][2])
        else:
            self.delete(db, key)

    def drop_expired(self, now):
        for db in self.dbs:
            for key in [k for k, entry in db.items() if entry[2] < now]:
                del db[key]

    def is_own_timeout(self, entry, lock):
        # Redisson writes 1; any other value is the name of another lock.
        return entry[0] == STRING and entry[1] in (lock, "1")

    def view(self, db, lock, now):
        entry = self.get(db, lock, now)
        if entry is None:
            return View()
        kind, fields, end = entry
        if kind != HASH or fields.get("mode") not in ("read", "write"):
            return View(mode="bad", end=end)
        view = View(mode=fields["mode"], end=end)
        for name, count in fields.items():
            if name == "mode":
                continue
            if not positive(count):
                return View(mode="bad", end=end)
            if name.endswith(":write"):
                view.writer, view.writes = name[: -len(":write")], int(count)
                continue
            live = []
            for number in range(1, int(count) + 1):
                timeout = self.get(db, timeout_key(lock, name, number), now)
                if timeout is not None and self.is_own_timeout(timeout, lock):
                    live.append((number, timeout[2]))
            if live:
                view.readers[name] = live
        if view.mode == "write" and view.writer is None:
            return View(mode="bad", end=end)
        if view.mode == "read" and not view.readers:
            return View()
        return view

    def reservation(self, db, lock, now):
        """The owner of the reservation that stands and its end, or None twice."""
        entry = self.get(db, reservation_key(lock), now)
        return (entry[1], entry[2]) if entry and entry[0] == STRING else (None, None)

    def last_token(self, db, lock, now):
        entry = self.get(db, fence_key(lock), now)
        return int(entry[1]) if entry else None

    def clean(self, db, lock, now, removed):
        """Removes the lapsed holds of a lock, and says so: `removed(owner, number)`.

        Higher numbers move down one, each with its own end; a lock without holders is
        deleted with what is left of it.
        """
        entry = self.dbs[db].get(lock)
        if entry is None or entry[0] != HASH:
            return
        view = self.view(db, lock, now)
        if view.mode == "bad":
            return
        fields = self.fields(db, lock)
        for owner, count in list(fields.items()):
            if owner == "mode" or owner.endswith(":write"):
                continue
            live = view.readers.get(owner, [])
            alive = {number for number, _ in live}
            if len(live) == int(count):
                continue
            for number in range(int(count), 0, -1):
                if number not in alive:
                    removed(owner, number)
            values = [self.dbs[db][timeout_key(lock, owner, n)] for n, _ in live]
            for number in range(1, int(count) + 1):
                self.drop_timeout(db, lock, owner, number)
            for number, value in enumerate(values, 1):
                self.dbs[db][timeout_key(lock, owner, number)] = value
            if live:
                fields[owner] = str(len(live))
            else:
                del fields[owner]
        if view.mode == "free":
            self.delete(db, lock)
        else:
            self.put_fields(db, lock, fields)

    def drop_timeout(self, db, lock, owner, number):
        key = timeout_key(lock, owner, number)
        entry = self.dbs[db].get(key)
        if entry is not None and self.is_own_timeout(entry, lock):
            del self.dbs[db][key]

    def locks(self, db, now):
        """The names of all hashes that are locks."""
        return [k for k, e in self.dbs[db].items()
                if e[0] == HASH and e[2] >= now and "mode" in e[1]]
