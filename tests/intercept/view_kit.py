# SPDX-License-Identifier: Apache-2.0
"""A machine with two tenants: a slice, in which a test looks around, and a neighbour without limits on the same
cards."""

import os
import signal
import subprocess
import time

GIB = 1 << 30
CONTEXT = 416 << 20  # what a context costs on an A100


def wait_until(condition, seconds=60, what="condition"):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.005)


class Place:
    """Where programs run: on the machine, or in a slice of it."""

    def __init__(self, build, environment):
        self.build, self.environment, self.children = build, environment, []

    def start(self, *command, **more):
        p = subprocess.Popen([str(c) for c in command], env={**self.environment, **more}, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.children.append(p)
        return p

    def run(self, *command, **more):
        return subprocess.run([str(c) for c in command], env={**self.environment, **more}, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60)

    def hold(self, size, device=0, prefix=()):
        """A process that holds memory; returns it and the PID that it has in its own namespace."""
        p = self.start(*prefix, self.build / "tests/sim/sim-hold", size, device)
        words = p.stdout.readline().split()
        assert words and words[0] == "0", (words, p.stderr.read())
        return p, int(words[2])

    def spin(self, milliseconds, device=0):
        """A process that keeps the card busy."""
        p = self.start(self.build / "tests/sim/sim-spin", 2_000_000, milliseconds // 2, device)
        pid = int(p.stdout.readline())
        p.stdin.write("\n")
        p.stdin.flush()
        return p, pid

    def close(self):
        for p in self.children:
            p.kill()
            p.wait()
            for stream in (p.stdin, p.stdout, p.stderr):
                stream.close()


class Machine(Place):
    def __init__(self, build, directory, *options):
        self.aliquot, self.top, self.slices = build / "src/cli/aliquot", directory, []
        node = directory / "node"
        self.daemon = subprocess.Popen([self.aliquot, "sim", *options, "--listen", node], stderr=subprocess.PIPE,
                                       text=True)
        super().__init__(build, {**os.environ, "ALIQUOT_SIM_DIR": str(node), "LD_LIBRARY_PATH": f"{node}/lib"})
        wait_until((node / "nvidiactl").exists, what="the simulated driver is there")

    def slice(self, *options):
        """Programs that are started in it are processes of one container."""
        said = self.top / f"slice{len(self.slices)}"
        keeper = self.start(self.aliquot, "run", *options, "--", "sh", "-c",
                            'env -0 > "$0.new"; mv "$0.new" "$0"; read x', said)
        wait_until(lambda: said.exists() or keeper.poll() is not None, what="the slice is there")
        assert said.exists(), keeper.stderr.read()
        environment = dict(line.split("=", 1) for line in said.read_text().split("\0") if line)
        self.slices.append(Place(self.build, environment))
        return self.slices[-1]

    def close(self):
        for part in self.slices:
            part.close()
        super().close()
        self.daemon.send_signal(signal.SIGTERM)
        self.daemon.communicate(timeout=10)
