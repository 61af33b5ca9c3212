#!/usr/bin/env python3
"""Watch the locks of a Redis or Valkey server with the rwlock module, or of a cluster.

    top.py [-i SECONDS] [-n FRAMES] [redis://[[user]:password@]host[:port][/db]] [LOCK ...]

Shows what the server does per second; the locks that clients wait for, longest queue
first, and those that are named; all held locks; the locks that were waited for longest
so far; and the end of the log. In a cluster it shows all primaries. In a terminal it
refreshes; elsewhere it prints one frame after the other. Needs nothing but Python.
"""

import argparse
import os
import shutil
import sys
import time

sys.dont_write_bytecode = True  # a program that only looks leaves nothing behind

from connection import ServerError, parsed
from frame import frame
from look import Watch

#: How many rows of a table are printed where the output is no terminal.
ROWS = 20


def show(lines, screen):
    if not screen:
        print("\n".join(lines), end="\n\n", flush=True)
        return
    size = shutil.get_terminal_size()
    lines = [line[: size.columns] for line in lines[: size.lines - 1]]
    # Home, and each line over the last one's: no flicker.
    body = "".join(f"{line}\x1b[K\n" for line in lines)
    sys.stdout.write(f"\x1b[H{body}\x1b[J")
    sys.stdout.flush()


def main():
    options = argparse.ArgumentParser(description="Watch the locks of a server or a cluster.")
    options.add_argument("-i", "--interval", type=float, default=1, metavar="SECONDS")
    options.add_argument("-n", "--frames", type=int, default=0, help="0, the default: no end")
    options.add_argument("url", nargs="?", default="redis://127.0.0.1:6379")
    options.add_argument("locks", nargs="*", metavar="LOCK", help="to show, waited for or not")
    chosen = options.parse_args()
    if chosen.interval <= 0:
        options.error("the interval must be more than 0")
    screen = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    names = [os.fsencode(lock) for lock in chosen.locks]
    watch, before, shown = None, None, 0
    _, address = parsed(chosen.url)
    if screen:
        sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        while True:
            height = shutil.get_terminal_size().lines - 1 if screen else None
            rows = height or ROWS
            try:
                watch = watch or Watch(chosen.url)
                now = watch.look(names, rows)
                lines = frame(now, before, rows, height)
                before = now
            except (OSError, ServerError) as error:
                # One that has restarted is found again.
                if not before:
                    raise ServerError(f"{address}: {error}") from None
                lines = [f"{address}: {error}"]
                if watch:
                    watch.close()
                watch = None
            show(lines, screen)
            shown += 1
            if chosen.frames and shown >= chosen.frames:
                return
            time.sleep(chosen.interval)
    finally:
        if screen:
            sys.stdout.write("\x1b[?25h\x1b[?1049l")
            sys.stdout.flush()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ServerError, ValueError) as error:
        sys.exit(f"top: {error}")
