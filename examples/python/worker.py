"""Takes locks for a while, in turns with the workers of all other languages, and
checks that nobody else is in: `worker.py <name>`. See ../README.md."""

import json
import os
import random
import sys
import time

import redis

from rwlock import Locks, TimedOut

name, url = sys.argv[1], os.environ["RWLOCK_URL"]
client = (redis.RedisCluster if os.environ.get("RWLOCK_CLUSTER") else redis.Redis).from_url(url)
locks = Locks(client, name)
counts = {"reads": 0, "writes": 0, "timeouts": 0, "violations": 0}


def expect(holds, what):
    if not holds:
        counts["violations"] += 1
        print(f"{name}: {what}", file=sys.stderr)


def write(lock):
    with locks.write(lock, wait=5, fence=True) as hold:
        expect(client.set(f"{{{lock}}}:witness:w", name, nx=True), f"{lock}: another writer")
        readers = int(client.get(f"{{{lock}}}:witness:r") or 0)
        expect(readers == 0, f"{lock}: {readers} readers beside a writer")
        last = int(client.get(f"{{{lock}}}:witness:token") or 0)
        expect(hold.token > last, f"{lock}: token {hold.token} after {last}")
        client.set(f"{{{lock}}}:witness:token", hold.token)
        time.sleep(random.uniform(0, 0.003))
        client.delete(f"{{{lock}}}:witness:w")
    counts["writes"] += 1


def read(lock):
    with locks.read(lock, wait=5):
        client.incr(f"{{{lock}}}:witness:r")
        writer = client.get(f"{{{lock}}}:witness:w")
        expect(writer is None, f"{lock}: the writer {writer} beside a reader")
        time.sleep(random.uniform(0, 0.003))
        client.decr(f"{{{lock}}}:witness:r")
    counts["reads"] += 1


end = time.monotonic() + float(os.environ.get("RWLOCK_SECONDS", "10"))
while time.monotonic() < end:
    try:
        random.choice([write, read, read])(random.choice(os.environ["RWLOCK_LOCKS"].split()))
    except TimedOut:
        counts["timeouts"] += 1
print(json.dumps({"name": name, "library": "redis-py (sync)", **counts}))
sys.exit(counts["violations"] > 0 or counts["reads"] + counts["writes"] == 0)
