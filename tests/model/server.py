"""Starts a server with the module, in a directory of its own, and stops it by its pid."""

import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from .resp import Closed, Connection

BAD_WORDS = ("BUG REPORT", "panicked", "AddressSanitizer", "ASSERTION FAILED")


def _end_with_parent():
    # 1 is PR_SET_PDEATHSIG: a driver that is killed leaves no server behind.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _free_port():
    # Below the range from which the system takes ports for outgoing connections.
    while True:
        port = random.SystemRandom().randrange(20000, 30000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


class Server:
    def __init__(self, program, module):
        self.dir = tempfile.mkdtemp(prefix="rwlock-model-")
        self.log_path = os.path.join(self.dir, "log")
        self.port = _free_port()
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(
                [program, "--port", str(self.port), "--dir", self.dir, "--save", "",
                 "--maxmemory-policy", "noeviction", "--enable-debug-command", "yes",
                 "--loadmodule", os.path.abspath(module)],
                stdout=log, stderr=log, preexec_fn=_end_with_parent)
        end = time.monotonic() + 20
        while True:
            if self.process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"the server does not start:\n{self.log()[-3000:]}")
            try:
                connection = Connection(self.port)
                if "rwlock" in str(connection.call("MODULE", "LIST")):
                    connection.close()
                    return
            except (OSError, Closed):
                pass
            time.sleep(0.02)

    def log(self):
        with open(self.log_path, errors="replace") as log:
            return log.read()

    def alive(self):
        return self.process.poll() is None

    def complaint(self):
        """What the log says that no server should say, or None."""
        text = self.log()
        for word in BAD_WORDS:
            if word in text:
                return text[max(0, text.find(word) - 500):][:4000]
        return None

    def stop(self):
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
