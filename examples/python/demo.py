"""Three readers and two writers, each a process, on one lock. Prints what happens when."""

import multiprocessing
import os
import time

import redis

from rwlock import Locks

URL = os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")


def says(start, who, what):
    line = f"{(time.time() - start) * 1000:5.0f} ms  {who}  {what}\n"
    os.write(1, line.encode())  # in one piece


def run(start, who, writes):
    locks = Locks(redis.Redis.from_url(URL), name=who)
    for _ in range(2):
        says(start, who, "asks")
        if writes:
            with locks.write("demo", wait=10, fence=True) as hold:
                says(start, who, f"WRITES, with token {hold.token}")
                time.sleep(0.2)
                says(start, who, "is done")
        else:
            with locks.read("demo", wait=10):
                says(start, who, "reads")
                time.sleep(0.3)
                says(start, who, "is done")


if __name__ == "__main__":
    started = time.time()
    people = [("reader 1", False), ("reader 2", False), ("writer 1", True)]
    people += [("reader 3", False), ("writer 2", True)]
    running = [multiprocessing.Process(target=run, args=(started, *who)) for who in people]
    for process in running:
        process.start()
        time.sleep(0.05)  # so that they ask in this order
    for process in running:
        process.join()
    raise SystemExit(any(process.exitcode for process in running))
