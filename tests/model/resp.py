"""A small client of the Redis protocol, on a plain socket.

It reads RESP2 and RESP3. The driver needs to know what has arrived without waiting
for more, so reading and parsing are apart: `pump` takes what the socket has, `take`
returns the next whole reply or `NOTHING`.
"""

import select
import socket
import time


class Error(str):
    """An error reply; its text."""

    def __repr__(self):
        return f"(error) {str(self)}"


class Status(str):
    """A status reply, as +OK."""

    def __repr__(self):
        return f"+{str(self)}"


class Closed(Exception):
    """The server has closed the connection."""


NOTHING = object()


def encode(argv):
    parts = [b"*%d\r\n" % len(argv)]
    for word in argv:
        if not isinstance(word, bytes):
            word = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class _Short(Exception):
    pass


class Connection:
    def __init__(self, port, timeout=10.0):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.closed = False
        self.id = self.call("CLIENT", "ID")

    def send(self, *commands):
        """Sends the commands in one write, so that the server runs them back to back."""
        self.sock.sendall(b"".join(encode(c) for c in commands))

    def pump(self, seconds=0.0):
        """Takes what has arrived, and waits for it at most for so long."""
        if self.closed:
            return
        ready, _, _ = select.select([self.sock], [], [], seconds)
        if not ready:
            return
        try:
            data = self.sock.recv(1 << 20)
        except ConnectionError:
            data = b""
        if data:
            self.buffer += data
        else:
            self.closed = True

    def take(self):
        try:
            value, end = self._parse(0)
        except _Short:
            return NOTHING
        self.buffer = self.buffer[end:]
        return value

    def read(self, seconds=10.0):
        end = time.monotonic() + seconds
        while True:
            value = self.take()
            if value is not NOTHING:
                return value
            if self.closed:
                raise Closed()
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("no reply")
            self.pump(left)

    def call(self, *argv):
        self.send(argv)
        return self.read()

    def close(self):
        self.closed = True
        self.sock.close()

    def _line(self, at):
        end = self.buffer.find(b"\r\n", at)
        if end < 0:
            raise _Short()
        return self.buffer[at:end], end + 2

    def _parse(self, at):
        line, at = self._line(at)
        kind, rest = line[:1], line[1:]
        if kind == b"+":
            return Status(rest.decode("utf-8", "replace")), at
        if kind == b"-":
            return Error(rest.decode("utf-8", "replace")), at
        if kind == b":":
            return int(rest), at
        if kind == b"_":
            return None, at
        if kind == b"#":
            return rest == b"t", at
        if kind == b",":
            return float(rest), at
        if kind in b"$=":
            size = int(rest)
            if size < 0:
                return None, at
            if len(self.buffer) < at + size + 2:
                raise _Short()
            return self.buffer[at : at + size].decode("utf-8", "replace"), at + size + 2
        if kind in b"*~>%":
            size = int(rest)
            if size < 0:
                return None, at
            values = []
            for _ in range(size * (2 if kind == b"%" else 1)):
                value, at = self._parse(at)
                values.append(value)
            return values, at
        raise ValueError(f"unknown reply {line!r}")


def pairs(flat):
    """A map from a reply that is flat, as maps are in RESP2."""
    return dict(zip(flat[::2], flat[1::2]))
