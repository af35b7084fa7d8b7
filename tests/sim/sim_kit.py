# SPDX-License-Identifier: Apache-2.0
"""The simulated driver as its users see it: by its command line, its libraries and its sockets."""

import os
import signal
import subprocess
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ALIQUOT_BUILD", TOP / "build"))
ALIQUOT = BUILD / "src/cli/aliquot"
PROGRAMS = BUILD / "tests/sim"
GIB = 1 << 30
CONTEXT = 416 << 20  # what a context costs on an A100
TOTAL = 80 * GIB


HANG = 60   # seconds: a wait that is longer is a hang, however busy the machine is


def wait_until(condition, seconds=HANG, what="condition"):
    """Returns how long it took. A shorter time than HANG is what the test is about."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.0005)
    return time.monotonic() - begin


def parts(nvml, gpu):
    """Handles of the MIG devices of a card."""
    found = []
    for i in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i))
        except nvml.NVMLError_NotFound:
            break
    return found


class Node:
    """`aliquot sim --listen` on a directory, and processes that use it."""

    def __init__(self, directory, *options):
        self.dir = directory
        self.children = []
        self.daemon = subprocess.Popen([ALIQUOT, "sim", "--listen", directory, *options],
                                       stderr=subprocess.PIPE, text=True)
        wait_until(lambda: (directory / "nvidiactl").exists() or self.daemon.poll() is not None,
                   what="daemon is there")

    def env(self, **more):
        return {**os.environ, "ALIQUOT_SIM_DIR": str(self.dir), "LD_LIBRARY_PATH": f"{self.dir}/lib",
                "ALIQUOT_MIG_LOCK": f"{self.dir}/mig.lock", **more}

    def start(self, program, *args, **more):
        p = subprocess.Popen([PROGRAMS / f"sim-{program}", *map(str, args)], env=self.env(**more),
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True)
        self.children.append(p)
        return p

    def hold(self, size, device=0, **more):
        """A process that holds memory: (process, result of cuMemAlloc, bytes free after it)."""
        p = self.start("hold", size, device, **more)
        words = p.stdout.readline().split()
        assert len(words) == 3, p.stderr.read()
        return p, int(words[0]), int(words[1])

    def run(self, *command, **more):
        return subprocess.run(command, env=self.env(**more), capture_output=True, text=True,
                              timeout=60, check=False)

    def inject(self, *args, expect=0):
        """`aliquot sim inject` on this node; what it said."""
        r = self.run(ALIQUOT, "sim", "inject", *map(str, args))
        assert r.returncode == expect, r.stderr
        return r.stderr

    def show(self):
        """What the daemon knows: a list of dicts, one a line."""
        r = self.run(ALIQUOT, "sim", "show")
        assert r.returncode == 0, r.stderr
        return [dict(word.split("=", 1) for word in line.split(" model=")[0].split())
                for line in r.stdout.splitlines()]

    def close(self):
        for p in self.children:
            p.kill()
            p.communicate()
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.communicate(timeout=10)


class Polls:
    """Counts the polls of all cards: a rule that never applies counts a call that each of them makes once."""

    MANY = 1000000

    def __init__(self, node):
        self.node = node
        node.inject("error", "nvmlDeviceGetCount", "NVML_ERROR_UNKNOWN", "--nth", self.MANY)

    def __call__(self):
        (rule,) = (shown for shown in self.node.show() if "error" in shown)
        return self.MANY - 1 - int(rule["skip"])

    def wait(self, count):
        """Until so many more have been made."""
        end = self() + count
        wait_until(lambda: self() >= end, what=f"{count} polls")
