"""How often a thread takes a free lock in a second, without and with `linger`. The server at
REDIS_URL needs `notify-keyspace-events Kd`."""

import os
import time

import redis

from rwlock import Locks

client = redis.Redis.from_url(os.environ.get("REDIS_URL", "redis://127.0.0.1:6379"))
locks = Locks(client)
rates = []
for times, options in ((5_000, {}), (500_000, {"linger": 10})):
    with locks.write("speed", wait=5, **options):
        pass
    begun = time.perf_counter()
    for _ in range(times):
        with locks.write("speed", wait=5, **options):
            pass
    rates.append(times / (time.perf_counter() - begun))
print(f"without linger: {rates[0]:,.0f}/s, with: {rates[1]:,.0f}/s, ratio {rates[1] / rates[0]:.0f}")
locks.close()
