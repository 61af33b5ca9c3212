#!/usr/bin/env python3
"""A shop's worth of clients for some seconds, and what `top` shows of them: `demo.py [URL]`."""

import os
import random
import sys
import threading
import time

from connection import Server
from frame import frame
from look import Watch

URL = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("REDIS_URL", "redis://127.0.0.1:6379")
over = threading.Event()


def client(owner, locks, writes, pause):
    """Takes locks, one after the other, until it is over."""
    server = Server(URL)
    while not over.is_set():
        lock = random.choice(locks)
        word, kind = ("WLOCK", "WRITE") if random.random() < writes else ("RLOCK", "READ")
        reply = server.ask(f"RWLOCK.{word}", lock, owner, 30000, "BLOCK", 2000, "SESSION")
        if reply == b"OK":
            time.sleep(random.uniform(0, pause))
            server.ask("RWLOCK.UNLOCK", lock, owner, kind)


people = [(f"checkout-{i}", ["orders", "stock"], 0.3, 0.02) for i in range(8)]
people += [(f"warehouse-{i}", ["stock"], 0.5, 0.05) for i in range(3)]
people += [(f"shop-{i}", ["price:17", "price:18"], 0.05, 0.01) for i in range(4)]
people += [("report-a", ["nightly report"], 1, 3), ("report-b", ["nightly report"], 1, 3)]
clients = [threading.Thread(target=client, args=one) for one in people]
for one in clients:
    one.start()
time.sleep(1)
watch = Watch(URL)
before = watch.look()
time.sleep(2)
print("\n".join(frame(watch.look(), before)))
over.set()
for one in clients:
    one.join()
