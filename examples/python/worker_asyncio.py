"""Takes locks for a while, in turns with the workers of all other languages, and
checks that nobody else is in: `worker_asyncio.py <name>`. See ../README.md."""

import asyncio
import json
import os
import random
import sys
import time

import redis.asyncio as redis

from rwlock_asyncio import Locks, TimedOut

name, url = sys.argv[1], os.environ["RWLOCK_URL"]
client = (redis.RedisCluster if os.environ.get("RWLOCK_CLUSTER") else redis.Redis).from_url(url)
locks = Locks(client, name)
counts = {"reads": 0, "writes": 0, "timeouts": 0, "violations": 0}


def expect(holds, what):
    if not holds:
        counts["violations"] += 1
        print(f"{name}: {what}", file=sys.stderr)


async def write(lock):
    async with locks.write(lock, wait=5, fence=True) as hold:
        first = await client.set(f"{{{lock}}}:witness:w", name, nx=True)
        expect(first, f"{lock}: another writer")
        readers = int(await client.get(f"{{{lock}}}:witness:r") or 0)
        expect(readers == 0, f"{lock}: {readers} readers beside a writer")
        last = int(await client.get(f"{{{lock}}}:witness:token") or 0)
        expect(hold.token > last, f"{lock}: token {hold.token} after {last}")
        await client.set(f"{{{lock}}}:witness:token", hold.token)
        await asyncio.sleep(random.uniform(0, 0.003))
        await client.delete(f"{{{lock}}}:witness:w")
    counts["writes"] += 1


async def read(lock):
    async with locks.read(lock, wait=5):
        await client.incr(f"{{{lock}}}:witness:r")
        writer = await client.get(f"{{{lock}}}:witness:w")
        expect(writer is None, f"{lock}: the writer {writer} beside a reader")
        await asyncio.sleep(random.uniform(0, 0.003))
        await client.decr(f"{{{lock}}}:witness:r")
    counts["reads"] += 1


async def main():
    end = time.monotonic() + float(os.environ.get("RWLOCK_SECONDS", "10"))
    while time.monotonic() < end:
        try:
            lock = random.choice(os.environ["RWLOCK_LOCKS"].split())
            await random.choice([write, read, read])(lock)
        except TimedOut:
            counts["timeouts"] += 1
    await locks.aclose()
    await client.aclose()


asyncio.run(main())
print(json.dumps({"name": name, "library": "redis-py (asyncio)", **counts}))
sys.exit(counts["violations"] > 0 or counts["reads"] + counts["writes"] == 0)
