"""A connection to a server: commands out, replies in (RESP2)."""

import os
import socket
from urllib.parse import unquote, urlsplit


class ServerError(Exception):
    """What the server answered."""


def parsed(url):
    """The parts of a URL, and its host and port."""
    parts = urlsplit(url if "://" in url else f"redis://{url}")
    if parts.scheme != "redis" or not parts.hostname:
        raise ValueError(f"{url}: not redis://host[:port][/db]")
    return parts, f"{parts.hostname}:{parts.port or 6379}"


class Server:
    """A connection that sends a command and reads its reply."""

    def __init__(self, url, node=None, timeout=10):
        """To the server of the URL, or with its user to another node: (host, port)."""
        parts, self.address = parsed(url)
        self.url = url
        self.host = parts.hostname
        if node:
            self.address = f"{node[0]}:{node[1]}"
        self._socket = socket.create_connection(node or (parts.hostname, parts.port or 6379), timeout)
        self._stream = self._socket.makefile("rb")
        try:
            user = [unquote(parts.username)] if parts.username else []
            # As redis-cli does: other users of the machine can read a URL, but not the environment.
            password = parts.password or os.environ.get("REDISCLI_AUTH")
            if password:
                self.ask("AUTH", *user, unquote(parts.password) if parts.password else password)
            elif user:
                raise ValueError(f"no password for {user[0]}: set REDISCLI_AUTH")
            if parts.path.strip("/"):
                self.ask("SELECT", parts.path.strip("/"))
        except BaseException:
            self.close()
            raise

    def close(self):
        self._stream.close()
        self._socket.close()

    def ask(self, *words):
        self.send(*words)
        reply = self._reply()
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        sent = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self._socket.sendall(b"*%d\r\n%s" % (len(words), sent))

    def _reply(self):
        line = self._stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            return ServerError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if int(rest) < 0 else self._stream.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self._reply() for _ in range(int(rest))]
        raise ConnectionError(f"no Redis: {line!r}")


def fields(flat):
    """A map of RESP2: names and values in turn."""
    return {name.decode(): value for name, value in zip(flat[::2], flat[1::2])}
