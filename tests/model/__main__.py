"""Compares a server that runs the module with the model. See README.md."""

import argparse
import json
import random
import re
import sys
import time

from .driver import SLOTS, Difference, Driver, Inconclusive
from .foreign import Open
from .generate import PROFILES, Generator
from .resp import Closed
from .server import Server
from .shrink import shrink
from .world import TooManyWorlds

LENGTH = 80  # steps of one history


def show(step):
    if step["k"] == "run":
        packet = "; ".join(" ".join(argv) for argv in step["cmds"])
        form = "" if step["form"] == "plain" else step["form"] + ": "
        return f"client {step['c']} db {step['db']}: {form}{packet}"
    rest = " ".join(f"{k}={v}" for k, v in step.items() if k not in ("k", "then"))
    return f"{step['k']} {rest}" + (f", then {show(step['then'])}" if step.get("then") else "")


def sort_of(reason):
    """What is left of a reason without its numbers and names."""
    return re.sub(r"[0-9({\[].*", "", reason.split("\n")[0])[:40]


class Run:
    def __init__(self, options):
        self.options = options
        self.server = None
        self.driver = None
        self.steps = self.histories = self.inconclusive = 0
        self.counts = {}
        self.kinds = {}

    def start(self, profile):
        self.stop()
        self.server = Server(self.options.server, self.options.module)
        self.driver = Driver(self.server.port, PROFILES[profile]["locks"])
        help_lines = self.driver.admin.call("RWLOCK.HELP")
        self.upgrade_once = any("UPGRADE" in line and "ONCE" in line for line in help_lines)

    def stop(self):
        if self.server is not None:
            self.counts = self.driver_counts()
            self.server.stop()
            self.server = None

    def driver_counts(self):
        total = dict(self.counts)
        for name, count in (self.driver.counts if self.driver else {}).items():
            total[name] = total.get(name, 0) + count
        if self.driver:
            self.driver.counts = {}
        return total

    def history(self, profile, seed):
        """Plays one random history. The steps, and what differed or None."""
        generator = Generator(seed, profile, self.options.without, self.upgrade_once)
        steps = []
        self.driver.reset()
        try:
            for number in range(LENGTH):
                world = self.driver.worlds[0]
                step = generator.first() if number == 0 else generator.next(world, SLOTS, LENGTH)
                steps.append(step)
                if self.driver.step(step):
                    self.steps += 1
                    self.kinds[step["k"]] = self.kinds.get(step["k"], 0) + 1
        except (Inconclusive, TooManyWorlds, Open):
            self.inconclusive += 1
        except (Difference, Closed, TimeoutError, ConnectionError) as error:
            return steps, self.reason(error)
        self.histories += 1
        complaint = self.server.complaint()
        return steps, f"the server's log:\n{complaint}" if complaint else None

    def reason(self, error):
        if not self.server.alive():
            return f"the server has died:\n{self.server.log()[-3000:]}"
        return str(error) or type(error).__name__

    def replay(self, steps):
        """The same steps again: what differed, or None. Slow machines get some tries."""
        for _ in range(4):
            self.driver.reset()
            at = 0
            try:
                for at, step in enumerate(steps):
                    self.driver.step(step)
                return None
            except Inconclusive:
                self.inconclusive += 1
                continue
            except (TooManyWorlds, Open):
                return None
            except (Difference, Closed, TimeoutError, ConnectionError) as error:
                self.failed_at = at
                return self.reason(error)
        return None

    def report(self, profile, seed, steps, reason):
        print(f"\nDIFFERENCE profile {profile}, SEED={seed}, step {len(steps)}\n  {reason}")
        if self.options.shrink and self.server.alive():
            def fails(smaller):
                if not self.server.alive():
                    self.start(profile)
                found = self.replay(smaller)
                return found is not None and sort_of(found) == sort_of(reason)
            steps = shrink(steps, fails, self.options.shrink)
            if not self.server.alive():
                self.start(profile)
            again = self.replay(steps)
            print(f"made smaller:\n  {again or 'does not always fail'}")
        for number, step in enumerate(steps, 1):
            print(f"{number:4} {show(step)}")
        path = f"{self.options.out}/model-{profile}-{seed}.json"
        with open(path, "w") as file:
            json.dump({"profile": profile, "seed": seed, "steps": steps}, file)
        print(f"replay: --replay {path}", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="model")
    parser.add_argument("--server", default="redis-server")
    parser.add_argument("--module", required=True)
    parser.add_argument("--time", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--profile", default="")
    parser.add_argument("--without", default="", type=lambda t: [w for w in t.split(",") if w],
                        help="kinds of steps to leave out, by a comma")
    parser.add_argument("--shrink", type=float, default=60, help="seconds; 0: not")
    parser.add_argument("--keep-going", type=int, default=1, help="differences to find")
    parser.add_argument("--replay", help="a file of a history")
    parser.add_argument("--out", default=".")
    options = parser.parse_args()
    run = Run(options)
    if options.replay:
        with open(options.replay) as file:
            saved = json.load(file)
        run.start(saved["profile"])
        try:
            reason = run.replay(saved["steps"])
        finally:
            run.stop()
        print(f"step {run.failed_at + 1}: {reason}" if reason else "no difference",
              f"({run.inconclusive} tries broken off)" if run.inconclusive else "")
        return 1 if reason else 0
    profiles = [options.profile] if options.profile else list(PROFILES)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10 ** 6)
    found, playing = 0, 0.0
    begin = time.monotonic()
    print(f"SEED={seed}", flush=True)
    try:
        for profile in profiles:
            run.start(profile)
            end = time.monotonic() + options.time / len(profiles)
            at = seed
            while time.monotonic() < end or at == seed:
                since = time.monotonic()
                steps, reason = run.history(profile, at)
                playing += time.monotonic() - since
                if reason:
                    found += 1
                    print(f"\nafter {playing:.0f} s of play and {run.steps} steps:", end="")
                    run.report(profile, at, steps, reason)
                    if found >= options.keep_going:
                        return 1
                    run.start(profile)
                at += 1
    finally:
        run.stop()
    print("steps:", ", ".join(f"{k} {n}" for k, n in sorted(run.kinds.items())))
    print("covered:", ", ".join(f"{k} {n}" for k, n in sorted(run.counts.items())))
    print(f"{run.steps} steps in {run.histories} histories, {run.inconclusive} broken off "
          f"(the order or the outcome is open), {time.monotonic() - begin:.0f} s: "
          f"{found or 'no'} differences")
    if run.histories == 0:
        print("no history was played to its end: the machine is too slow")
        return 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
