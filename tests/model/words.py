"""The words of a command: numbers, names, options, clauses that name locks."""

from dataclasses import dataclass

MAX_INTEGER = 2 ** 63 - 1
MOST_LOCKS = 1024  # that one command may name


@dataclass
class Caller:
    slot: int
    db: int
    script: bool = False
    may_block: bool = True


class Bad(Exception):
    """The reply is an error with this prefix."""


def integer(text, least, what):
    try:
        value = int(text)
    except ValueError:
        raise Bad(what)
    if str(value) != text or not least <= value <= MAX_INTEGER:
        raise Bad(what)
    return value


def lease_of(world, text):
    lease = integer(text, 1, "ERR invalid expire time in 'rwlock.")
    if world.now + lease > MAX_INTEGER:
        raise Bad("ERR invalid expire time in 'rwlock.")
    return lease


def check_names(key, owner=None):
    if owner is not None:
        check_owner(owner)
    for end in (":wait_write", ":rwlock_fence"):
        if key.endswith(end):
            raise Bad("ERR ")
    head, colon, digits = key.rpartition(":rwlock_timeout:")
    if colon and digits.isdigit():
        raise Bad("ERR ")


def check_owner(owner):
    if not 1 <= len(owner.encode()) <= 1024 or owner == "mode" or owner.endswith(":write"):
        raise Bad("ERR ")


def options(world, words, allowed):
    """The option words: flags, and those with a number."""
    return clauses(world, words, allowed, ())[0]


def clauses(world, words, allowed, kinds):
    """The option words, and what the clauses name: (kind, lock), in the order given."""
    found, named, at = {}, [], 0
    while at < len(words):
        word = words[at].upper()
        if word not in allowed and word not in kinds or word in found:
            raise Bad("ERR syntax error")
        found[word] = True
        at += 1
        if word in ("BLOCK", "RESERVE"):
            if at >= len(words):
                raise Bad("ERR ")
            found[word] = integer(words[at], 0 if word == "BLOCK" else 1, "ERR ")
            at += 1
        elif word in kinds:
            keys = clause(words[at:])
            named += [(word, key) for key in keys]
            at += 1 + len(keys)
    if "BLOCK" in found and "RESERVE" in found:
        raise Bad("ERR syntax error")
    if len(named) > MOST_LOCKS:
        raise Bad("ERR a command names at most 1024 locks")
    for _, key in named:
        check_names(key)
    return found, named


def clause(words):
    """The locks of one clause, which begins with their number."""
    if not words:
        raise Bad("ERR ")
    count = integer(words[0], 1, "ERR numkeys is not an integer, 1 or more")
    keys = words[1 : 1 + count]
    if len(keys) < count:
        raise Bad("ERR numkeys is larger than the number of keys that follow")
    return keys


def refuse_twice(names):
    for name in names:
        if names.count(name) > 1:
            key = name if isinstance(name, str) else name[1]
            raise Bad(f"ERR lock {key} is named twice")
