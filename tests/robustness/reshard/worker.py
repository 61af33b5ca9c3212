"""Takes locks of a cluster until it is told to stop, checks that nobody is in who must not be,
and notes how long each answer took: `worker.py <name>`. See README.md."""

import os
import random
import sys
import time
from pathlib import Path

import redis

from rwlock import Locks, NotHeld, TimedOut

name = sys.argv[1]
marks = Path(os.environ["RWLOCK_MARKS"])
answers = open(os.environ["RWLOCK_ANSWERS"], "w", buffering=1)
locks = Locks(redis.RedisCluster.from_url(os.environ["RWLOCK_URL"]), name)


def violation(text):
    print("VIOLATION", text, file=answers)


def write(lock, hold):
    mark, token = marks / f"{lock}.writer", marks / f"{lock}.token"
    try:
        mark.touch(exist_ok=False)
    except FileExistsError:
        return violation(f"{lock}: another writer beside {name}")
    readers = list(marks.glob(f"{lock}.reader.*"))
    if readers:
        violation(f"{lock}: {readers} beside the writer {name}")
    last = int(token.read_text() or 0) if token.exists() else 0
    if hold.token <= last:
        violation(f"{lock}: token {hold.token} after {last}")
    token.write_text(str(hold.token))
    time.sleep(random.uniform(0, 0.003))
    mark.unlink()


def read(lock, hold):
    mark = marks / f"{lock}.reader.{name}"
    mark.touch()
    if (marks / f"{lock}.writer").exists():
        violation(f"{lock}: a writer beside the reader {name}")
    time.sleep(random.uniform(0, 0.003))
    mark.unlink()


while not (marks / "stop").exists():
    lock = random.choice(os.environ["RWLOCK_LOCKS"].split())
    options = {"wait": 60, "lease": 3, "session": random.random() < 0.5}
    asked, took, outcome = time.time(), None, "ok"
    try:
        if random.random() < 0.4:
            with locks.write(lock, fence=True, **options) as hold:
                took = time.time() - asked
                write(lock, hold)
        else:
            with locks.read(lock, **options) as hold:
                took = time.time() - asked
                read(lock, hold)
    except TimedOut:
        outcome = "timeout"
    except NotHeld:
        outcome = "lost"
    took = time.time() - asked if took is None else took
    print(f"{asked * 1000:.0f} {took * 1000:.1f} {outcome}", file=answers)
locks.close()
