"""What is there to see: of one server, or of all primaries of its cluster."""

import heapq
import time
from concurrent.futures import ThreadPoolExecutor

from connection import Server, ServerError, fields

#: Where the server has no INFO rwlock: its count of each command.
COMMANDS = ("rlock", "wlock", "unlock", "renew", "upgrade", "downgrade", "mlock", "munlock", "mrenew")
#: How many queues are counted.
QUEUES = 1000
#: How many calls of RWLOCK.LIST a frame may cost a server, and how many locks each looks at.
LIST_CALLS, LIST_COUNT = 50, 100


class Watch:
    """Looks again and again at a server, or at all primaries of its cluster."""

    def __init__(self, url):
        self.server = Server(url)
        self._nodes = {}

    def look(self, names=(), rows=20):
        """All that a frame shows: what each node told, in the order of their addresses."""
        asked = Asked(self.server)
        is_single = asked.info("cluster").get("cluster_enabled") == "0"
        shards = None if is_single else asked("CLUSTER SHARDS", cluster_only=True)
        if shards is None:
            node = look(self.server, names, rows)
            node["denied"] += [name for name in asked.denied if name not in node["denied"]]
            return {"address": self.server.address, "cluster": False, "nodes": [node]}
        primaries, lost = primaries_of(map(fields, shards), self.server.host)
        with ThreadPoolExecutor(16) as threads:
            nodes = list(threads.map(lambda place: self._look_at(place, names, rows), primaries))
        for gone in self._nodes.keys() - set(primaries):
            self._nodes.pop(gone).close()
        return {"address": self.server.address, "cluster": True, "nodes": nodes + lost}

    def _look_at(self, place, names, rows):
        try:
            if place not in self._nodes:
                self._nodes[place] = Server(self.server.url, place, timeout=3)
            return look(self._nodes[place], names, rows)
        except (OSError, ServerError) as error:
            if place in self._nodes:
                self._nodes.pop(place).close()
            return {"node": "%s:%s" % place, "error": str(error)}

    def close(self):
        for server in (self.server, *self._nodes.values()):
            server.close()


def primaries_of(shards, host):
    """Host and port of each primary with slots; and of each shard without one, what to say."""
    found, lost = set(), []
    for shard in shards:
        if not shard["slots"]:
            continue
        nodes = [fields(node) for node in shard["nodes"]]
        primaries = [node for node in nodes if node["role"] == b"master"]
        online = [node for node in primaries if node["health"] == b"online"]
        for node in online:
            # Without a name or an address it is where the cluster was found.
            names = [(node.get(name) or b"").decode() for name in ("endpoint", "ip")]
            named = next((name for name in names if name not in ("", "?")), host)
            found.add((named, node.get("port") or node.get("tls-port")))
        if not online:
            slots = ", ".join(f"{a}-{b}" for a, b in zip(shard["slots"][::2], shard["slots"][1::2]))
            lost.append({"node": f"slots {slots}", "error": "no primary is online"})
    return sorted(found), lost


class Asked:
    """Asks a server; keeps what it refuses, so that the rest can be shown."""

    def __init__(self, server):
        self._server = server
        self.denied, self.lacking, self.errors = [], [], []

    def __call__(self, command, *words, cluster_only=False):
        """The reply, or None if there is none."""
        name = command.split(" ") if command.startswith(("CLUSTER ", "MODULE ", "INFO ")) else [command]
        try:
            return self._server.ask(*name, *words)
        except ServerError as error:
            if str(error).startswith("NOPERM"):
                self._keep(self.denied, command.split(" ")[0] if name[0] == "INFO" else command)
            elif "unknown command" in str(error):
                self._keep(self.lacking, command)
            elif not cluster_only:
                self._keep(self.errors, f"{command}: {str(error).split(' ', 1)[-1]}")

    @staticmethod
    def _keep(where, what):
        if what not in where:
            where.append(what)

    def maps(self, command, *words):
        """The maps of the reply, or None."""
        reply = self(command, *words)
        return None if reply is None else [fields(one) for one in reply]

    def info(self, *sections):
        text = self(" ".join(("INFO", *sections))) or b""
        lines = text.decode(errors="replace").splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)

    def lock(self, name):
        """A lock as RWLOCK.INSPECT tells it; None where the user may not run that, or the
        lock is on another node."""
        try:
            return fields(self._server.ask("RWLOCK.INSPECT", name, "COUNT", 3))
        except ServerError as error:
            if str(error).startswith("NOPERM") and " run " in str(error):
                self._keep(self.denied, "RWLOCK.INSPECT")
            elif not str(error).startswith("MOVED "):
                return {"error": str(error)}


def look(server, names=(), rows=20):
    """What one server tells. Of each list at most so many rows."""
    asked = Asked(server)
    info = asked.info("server", "replication", "commandstats", "rwlock")
    modules = asked.maps("MODULE LIST")
    module = next((module for module in modules or [] if module["name"] == b"rwlock"), None)
    queues = asked.maps("RWLOCK.QUEUES", "COUNT", QUEUES)
    if "RWLOCK.QUEUES" in asked.lacking or modules is not None and not module:
        raise ServerError("this server has no rwlock module")
    held, complete = held_locks(asked)
    held = {
        "total": None if held is None else len(held),
        "complete": complete,
        "locks": heapq.nlargest(rows, held or [], key=lambda lock: lock["held"]),
    }
    seen = [*names, *(one["key"] for one in (*(queues or [])[:rows], *held["locks"]))]
    calls = {word: info.get(f"cmdstat_rwlock.{word}", "calls=0") for word in COMMANDS}
    return {
        "at": time.monotonic(),
        "node": server.address,
        "server": " ".join(engine(info)),
        "role": {"master": "primary", "slave": "replica, where nobody waits"}.get(info.get("role"), ""),
        "module": version(module["ver"]) if module else info.get("rwlock_version", ""),
        "info": {name: value for name, value in info.items() if name.startswith("rwlock_")},
        "calls": {word: int(said.split(",")[0].split("=")[1]) for word, said in calls.items()},
        "names": names,
        "queues": queues,
        "held": held,
        "locks": {name: asked.lock(name) for name in dict.fromkeys(seen)},
        "hot": asked.maps("RWLOCK.HOTLOCKS", "COUNT", rows),
        "log": asked.maps("RWLOCK.LOG", "COUNT", rows),
        "denied": asked.denied,
        "lacking": asked.lacking,
        "errors": asked.errors,
    }


def held_locks(asked):
    """The held locks, or None; and whether these are all of them."""
    cursor, found = b"0", {}
    for _ in range(LIST_CALLS):
        reply = asked("RWLOCK.LIST", cursor, "COUNT", LIST_COUNT)
        if reply is None:
            return None, True
        cursor, locks = reply
        for lock in map(fields, locks):
            found[lock["key"]] = lock
        if cursor == b"0":
            return list(found.values()), True
    return list(found.values()), False


def engine(info):
    if "valkey_version" in info:
        return "Valkey", info["valkey_version"]
    return "Redis", info.get("redis_version", "")


def version(number):
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
