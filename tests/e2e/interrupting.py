# SPDX-License-Identifier: Apache-2.0
"""A kubectl whose proxy interrupts, at one of its requests, the command that asks. Arguments: a file with the number of requests that
are still let through, or with the method and the first part of the path of those that are not; what happens at such a one
(INTERRUPTIONS of whole_cluster.py); and those of `kubectl proxy`."""

import http.client
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

import unix_http    # noqa: E402  (the path comes first)

LEFT, HOW, *WORDS = sys.argv[1:]
(OWN,) = [word.removeprefix("--unix-socket=") for word in WORDS if word.startswith("--unix-socket=")]
BEHIND = OWN + ".behind"
lock = threading.Lock()


class Behind(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(BEHIND)


class Handler(unix_http.Handler):
    def is_the_one(self):
        with lock:
            with open(LEFT) as f:
                text = f.read().strip()
            if "/" in text:
                return f"{self.command} {self.path}".startswith(text)
            left = int(text)
            with open(LEFT, "w") as f:
                f.write(str(left - 1))
        return left == 0

    def handle_any(self):
        interrupts = self.is_the_one()
        if interrupts and HOW == "refused":
            self.send(500, b'{"message": "refused"}')
            return
        if interrupts and HOW == "ctrl-c":
            os.kill(0, signal.SIGINT)
        body = self.read()
        there = Behind("localhost")
        there.request(self.command, self.path, body, dict(self.headers))
        answer = there.getresponse()
        found = answer.read()
        if interrupts and HOW == "killed":
            os.kill(os.getppid(), signal.SIGKILL)
        self.send(answer.status, found)

    do_GET = do_POST = do_PATCH = do_DELETE = handle_any


real = subprocess.Popen(["kubectl", *(word.replace(OWN, BEHIND) for word in WORDS)], stdout=subprocess.PIPE, text=True)
real.stdout.readline()      # it serves
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    unix_http.serve(OWN, Handler)
finally:
    real.kill()
    os.unlink(BEHIND)
