"""Runs steps on a server and in the model's worlds, and compares after each."""

import select
import time
from dataclasses import replace

from . import apply, compare
from .commands import lock_state, queue_lengths
from .keyspace import FOREVER
from .protocol import ALLOW, DEFAULTS, DUMP, REFUSE, SCRIPT
from .resp import NOTHING, Closed, Connection, Error
from .world import World

SHORT = 260  # ms: leases and waits that are to end within the history
GUARD = 60  # no step begins so shortly before such an end
APART = 50  # and two of them are at least so far apart
PATIENCE = 1.5  # s: how long the server may take to do what is due
STALL = 100  # ms by which the machine may hold up a reply; leases differ by far more
SLOTS = 10


class Difference(Exception):
    """The server did what no world allows."""


class Inconclusive(Exception):
    """The machine was too slow to know in which order things happened."""


def now_ms():
    return time.time() * 1000


class Driver:
    def __init__(self, port, locks):
        self.port, self.locks = port, locks
        self.admin = Connection(port)
        self.slots = [None] * SLOTS
        self.skip = [0] * SLOTS
        self.received = {}
        self.asked_of = {}  # client id -> slot, when the last step began
        self.worlds = []
        self.counts = {}
        self.latest = 0.0

    def reset(self):
        """An empty server with its default settings, and nobody connected."""
        self.admin.call("CLIENT", "UNPAUSE")
        for name, value in DEFAULTS.items():
            self.admin.call("CONFIG", "SET", name, value)
        for slot in range(SLOTS):
            self.drop(slot)
        self.skip, self.received = [0] * SLOTS, {}
        end = time.monotonic() + 10
        while len(self.admin.call("CLIENT", "LIST").splitlines()) > 1:
            if time.monotonic() > end:
                raise Difference("connections that are closed stay in CLIENT LIST")
            time.sleep(0.002)
        self.admin.call("SELECT", "0")
        self.admin.call("FLUSHALL")
        world = World()
        world.now = now_ms()
        self.worlds = [world]

    def slot_of(self):
        return {c.id: slot for slot, c in enumerate(self.slots) if c is not None}

    def drop(self, slot):
        if self.slots[slot] is not None:
            self.slots[slot].close()
            self.slots[slot] = None

    def connection(self, slot):
        if self.slots[slot] is None:
            self.slots[slot] = Connection(self.port)
        return self.slots[slot]

    def busy(self, slot):
        """Whether the client waits, as far as the model can say."""
        return any(any(w.slot == slot for w in world.waiters)
                   or any(s == slot for s, _ in world.postponed) for world in self.worlds)

    def held_back(self, slot):
        """Whether a write pause holds up its command. Redis 7.0 dies of CLIENT UNBLOCK
        then, with or without modules."""
        return any(s == slot for world in self.worlds for s, _ in world.postponed)

    def next_end(self):
        return min(world.next_end() for world in self.worlds)

    def step(self, what):
        """Carries out one step. What does not apply now is left out: False."""
        # What was held back may be done a moment later: nothing else may end meanwhile.
        clear = PATIENCE * 1000 + 100 if what["k"] == "allow" else GUARD
        while self.next_end() - now_ms() < clear:
            self.let_pass()
        if what["k"] == "wait":
            if self.next_end() < now_ms() + 3000:
                self.let_pass()
            return True
        what = self.concrete(what)
        if not self.applies(what):
            return False
        self.asked_of = self.slot_of()
        end, start = self.next_end(), now_ms()
        self.perform(what)
        stop = now_ms()
        if end < stop + 5:
            raise Inconclusive()
        self.advance(lambda world: apply.step(world, what, (start + stop) / 2), start, end)
        return True

    def let_pass(self):
        first = self.next_end()
        if any(apply.close_call(world, first) for world in self.worlds):
            raise Inconclusive()
        time.sleep(max(0.0, first - now_ms() + 12) / 1000)
        moment = now_ms()
        if any(first + 12 < w.next_end() < moment + 5 for w in self.worlds if first < w.next_end()):
            time.sleep(0.03)
            moment = now_ms()
        later = [e for world in self.worlds for e in apply.short_ends(world) if e > moment]
        self.advance(lambda world: apply.pass_time(world, moment), first,
                     min(later, default=FOREVER))

    def concrete(self, what):
        """Chooses the short ends: away from all others, so that their order is known."""
        what = dict(what)
        taken = sorted({e for world in self.worlds for e in apply.short_ends(world)})

        def word(text):
            if text != "@":
                return text
            end = now_ms() + SHORT
            while any(abs(end - other) < APART for other in taken):
                end += 10
            taken.append(end)
            return str(int(end - now_ms()))

        if "cmds" in what:
            what["cmds"] = [[word(w) for w in argv] for argv in what["cmds"]]
        if what.get("then"):
            what["then"] = self.concrete(what["then"])
            what["times"] = 1
        return what

    def applies(self, what):
        kind = what["k"]
        refused = self.worlds[0].refused
        if kind == "run":
            if self.busy(what["c"]):
                return False
            if refused and what["form"] != "plain" and "paused" not in refused:
                # The server does not check memory again in a script that wrote before.
                return False
            if "needs" in what:
                key, *needs = what["needs"]
                view = self.worlds[0].view(what["db"], key)
                if [view.mode, view.writer, sorted(view.readers)] != needs:
                    return False
            if refused and "paused" not in refused and not all(
                    argv[0].startswith("RWLOCK.") or argv[0] == "CLIENT" for argv in what["cmds"]):
                return False
            targets = [(argv[1], int(w[2:])) for argv in what["cmds"] for w in argv
                       if w.startswith("$c")]
            return all(self.slots[slot] is not None and slot != what["c"]
                       and (how == "KILL" or not self.held_back(slot)) for how, slot in targets)
        if kind in ("close", "kill", "unblock"):
            return self.slots[what["c"]] is not None and (
                kind != "unblock" or not self.held_back(what["c"]))
        if kind == "refuse":
            # Whether sessions are renewed while writes are refused is not said.
            return not refused and (what["why"] != "noreplicas" or all(
                lease > 5000 for world in self.worlds for _, lease in world.floating()))
        if kind == "allow":
            return what["why"] in refused and (
                not what.get("then") or self.applies(what["then"]))
        if kind == "set" and what["name"] in ("policy", "deadlock-detection"):
            # What a change means to those who wait already is not said.
            return not any(world.waiters or world.postponed for world in self.worlds)
        return True

    def perform(self, what):
        kind = what["k"]
        if kind == "run":
            self.run(what)
        elif kind == "close":
            gone = self.slots[what["c"]].id
            self.drop(what["c"])
            self.notice(gone)
        elif kind == "kill":
            gone = self.slots[what["c"]].id
            self.admin.call("CLIENT", "KILL", "ID", gone)
            self.drop(what["c"])
            self.notice(gone)
        elif kind == "unblock":
            self.admin.call("CLIENT", "UNBLOCK", self.slots[what["c"]].id, what["how"])
            self.give_back()
        elif kind == "refuse":
            self.admin.call(*REFUSE[what["why"]])
        elif kind == "allow":
            self.admin.call(*ALLOW[what["why"]])
            if what.get("then"):
                self.run(what["then"])
                self.insist(what)
        elif kind == "set":
            self.admin.call("CONFIG", "SET", "rwlock." + what["name"], what["value"])

    def insist(self, what):
        """Asks again while a queue is said to be served: it has to be, in the end."""
        if any(waiter.joint for world in self.worlds for waiter in world.waiters):
            return  # a lock is free for as long as it waits for another
        slot, end = what["then"]["c"], time.monotonic() + PATIENCE
        while what.get("insist") and self.received.get(slot, [None])[-1] == 0:
            if time.monotonic() > end:
                raise Difference(f"a queue was not served while client {slot} went on asking")
            time.sleep(0.2)
            self.run(what["then"])
            what["times"] += 1

    def notice(self, gone):
        """Waits until the server has noticed a closed connection, and given back what is
        to be given back."""
        self.until(lambda: not self.admin.call("CLIENT", "LIST", "ID", gone).strip())
        self.give_back()

    def give_back(self):
        """Any command that writes does first what is due. Else a look could come before
        that, and take for an outcome what is only on the way to one."""
        if "paused" not in self.worlds[0].refused:
            self.admin.call("RWLOCK.RENEW", "nobody's", "nobody", "1000")

    def until(self, done):
        end = time.monotonic() + 10
        while not done():
            if time.monotonic() > end:
                raise Difference("the server does not notice a closed connection")
            time.sleep(0.001)

    def run(self, what):
        slot = what["c"]
        connection = self.connection(slot)
        cmds, killed = [], []
        for argv in what["cmds"]:
            if argv[0] == "CLIENT" and argv[1] == "KILL":
                killed.append(int(argv[3][2:]))
            cmds.append([str(self.slots[int(w[2:])].id) if w.startswith("$c") else w for w in argv])
        packet = [["SELECT", str(what["db"])]]
        hidden = 1
        if what["form"] == "lua":
            words = [w for argv in cmds for w in [str(len(argv))] + argv]
            packet.append(["EVAL", SCRIPT, "0"] + words)
        elif what["form"] == "multi":
            packet += [["MULTI"]] + cmds + [["EXEC"]]
            hidden += 1 + len(cmds)
        else:
            packet += cmds
        self.skip[slot] += hidden
        wanted = len(packet) - hidden
        connection.send(*packet)
        end = time.monotonic() + 10
        before = len(self.received.get(slot, []))
        while True:
            self.gather(0.001)
            if connection.closed or (self.skip[slot] == 0 and
                                     len(self.received.get(slot, [])) - before >= wanted):
                break
            line = self.admin.call("CLIENT", "LIST", "ID", connection.id)
            flags = line.split(" flags=", 1)[-1].split(" ", 1)[0] if " flags=" in line else ""
            if "b" in flags:
                break
            if time.monotonic() > end:
                raise Difference(f"no reply to {cmds}")
        for other in killed:
            self.received.pop(other, None)
            self.drop(other)
        if any(argv[0] == "CLIENT" for argv in cmds):
            self.give_back()

    def gather(self, seconds=0.0):
        """Takes what has arrived on any connection."""
        open_ones = [c for c in self.slots if c is not None and not c.closed]
        if not open_ones:
            return
        ready, _, _ = select.select([c.sock for c in open_ones], [], [], seconds)
        for slot, connection in enumerate(self.slots):
            if connection is None or connection.closed or connection.sock not in ready:
                continue
            connection.pump()
            while (value := connection.take()) is not NOTHING:
                if self.skip[slot]:
                    self.skip[slot] -= 1
                else:
                    self.received.setdefault(slot, []).append(value)
            if connection.closed:
                self.received.setdefault(slot, []).append(compare.CLOSED)
                self.skip[slot] = 0
                self.drop(slot)

    def look(self):
        """All that the comparison reads, in one packet. No transaction: without
        memory the server refuses those."""
        commands = []
        for db in ("0", "1"):
            commands += [["SELECT", db], ["RWLOCK.QUEUES"]]
            commands += [["RWLOCK.INSPECT", lock] for lock in self.locks]
        commands += [["EVAL_RO", DUMP, "0"], ["SELECT", "0"]]
        self.admin.send(*commands)
        rows = [self.admin.read() for _ in commands]
        if isinstance(rows[-2], Error):
            raise Difference(f"reading the state: {rows[-2]}")
        return rows

    def advance(self, step, start, limit):
        """Takes all worlds on by this step, and keeps those that the server may be in.
        What ends at `limit` is no part of the step."""
        worlds = [after for world in self.worlds for after in world.branches(step)]
        if len(worlds) > 300:
            raise Inconclusive()
        end = time.monotonic() + PATIENCE
        while True:
            # A look that began in time is one more chance, however long it takes.
            is_last = time.monotonic() > end
            rows = self.look()
            self.gather()
            moment = now_ms()
            slack = moment - start + STALL
            raw = compare.read_dump(rows[-2])
            slot_of = self.slot_of()
            found, faults = [], []
            for world in worlds:
                world.now = moment
                fault = self.differs(world, rows, raw, moment, slack, slot_of)
                if fault is None:
                    found.append(world)
                else:
                    faults.append(fault)
            if found:
                break
            if min([limit] + [world.next_end() for world in worlds]) < moment + 5:
                raise Inconclusive()
            if is_last:
                raise Difference("\n  or: ".join(dict.fromkeys(faults[:4])))
            time.sleep(0.003)
        self.latest = max(self.latest, PATIENCE - (end - time.monotonic()))
        self.received = {}
        for note in found[0].notes:
            self.counts[note] = self.counts.get(note, 0) + 1
        left = compare.timeouts(rows)
        unique = {}
        for world in found:
            compare.adopt(world, raw, moment)
            world.waiters = [
                replace(w, deadline=moment + left[self.slots[w.slot].id])
                if w.deadline != FOREVER and self.slots[w.slot] is not None
                and left.get(self.slots[w.slot].id) else w for w in world.waiters]
            unique.setdefault(fingerprint(world), world)
        self.worlds = list(unique.values())[:60]

    def differs(self, world, rows, raw, moment, slack, slot_of):
        for slot in set(world.out) | set(self.received):
            wanted, got = world.out.get(slot, []), self.received.get(slot, [])
            for pattern, value in zip(wanted, got):
                fault = compare.reply(pattern, value, world, {**self.asked_of, **slot_of}, slack)
                if fault:
                    return f"reply to client {slot}: {fault}"
            if len(got) > len(wanted):
                return f"reply to client {slot}: expected none (it waits), got {got[len(wanted)]!r}"
            if len(got) < len(wanted):
                return (f"reply to client {slot}: expected "
                        f"{compare.show(wanted[len(got)], world)}, got none")
        fault = compare.keys(world, compare.normal(raw, moment), moment, slack)
        if fault:
            return fault
        at = 0
        for db in (0, 1):
            at += 1
            fault = compare.queues(queue_lengths(world, db), rows[at], 100)
            at += 1
            for lock in self.locks:
                fault = fault or self.differs_at(world, db, lock, rows[at], slot_of, slack)
                at += 1
            if fault:
                return f"db {db}: {fault}"
        return None

    def differs_at(self, world, db, lock, got, slot_of, slack):
        if world.view(db, lock).mode == "bad":
            good = isinstance(got, Error) and got.startswith("WRONGTYPE")
            return None if good else f"INSPECT {lock}: expected WRONGTYPE, got {got!r}"
        fault = compare.reply(("inspect", lock_state(world, db, lock), 100), got, world, slot_of,
                              slack)
        return f"INSPECT {lock}: {fault}" if fault else None


def fingerprint(world):
    tags = [(t.db, t.key, t.owner, t.kind, t.number, t.slot, t.sure, t.home)
            for t in world.tags + world.deferred]
    return repr((world.keys.dbs, world.waiters, sorted(tags, key=repr),
                 sorted(world.tenures.items()), sorted(world.handed_out.items()), world.refused,
                 sorted(world.late),
                 [s for s, _ in world.postponed]))
