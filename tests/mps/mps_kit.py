# SPDX-License-Identifier: Apache-2.0
"""A node with one simulated card whose MPS is run by tests/mps/mps-node.c."""

import fcntl
import os
import queue
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from sim_kit import BUILD, TOP, Node, wait_until

AGENT = BUILD / "src/agent/aliquot-agent"
EXCLUSIVE = 3

# Runs a program of the agent, or waits before it or after it, as files in the directory `hold` say.
PROGRAM = """#!/bin/sh
path=$PATH PATH=/usr/bin:/bin
name=$1
[ "$name" = compute-mode ] && [ -n "$4" ] && name=set-mode
wait_at() {{
    [ -e {hold}/$1 ] || return 0
    echo $$ > {hold}/$1.part && mv {hold}/$1.part {hold}/$1.reached
    while [ -e {hold}/$1 ]; do sleep 0.01; done
}}
wait_at before-$name
output=$(PATH=$path {agent} "$@"); status=$?
wait_at after-$name
echo "$output"
exit $status
"""

# NVIDIA's control program with faults that the real one cannot be made to show: a control interface that does not answer, one
# that ignores limits and reports success, a start that reports success and leaves no daemon.
CONTROL = """#!/bin/sh
path=$PATH PATH=/usr/bin:/bin
wait_at() {{
    [ -e {hold}/$1 ] || return 0
    echo $$ > {hold}/$1.part && mv {hold}/$1.part {hold}/$1.reached
    while [ -e {hold}/$1 ]; do sleep 0.01; done
}}
if [ $# -gt 0 ]; then
    [ -e {hold}/no-daemon ] && exit 0
    PATH=$path exec {real} "$@"
fi
[ -e {hold}/no-answer ] && exec sleep 600
commands=$(cat)
case $commands in set*) name=limits ;; quit*) name=quit ;; *) name=check ;; esac
wait_at before-$name
[ -e {hold}/lie ] && [ $name != quit ] && printf '100.0\\n\\n' && exit 0
output=$(echo "$commands" | {real}); status=$?
wait_at after-$name
echo "$output"
exit $status
"""


def fetched_driver():
    r = subprocess.run([TOP / "scripts/fetch-driver535"], capture_output=True, text=True, check=True)
    return Path(r.stdout.strip()) / "root"


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


class Agent:
    """One run of mps-node. Its states come from a thread, so that each wait has a limit."""

    def __init__(self, world, selinux, deadline_ms, interval_ms, state_dir=None):
        self.process = subprocess.Popen(
            [BUILD / "tests/mps/mps-node", world.program, state_dir or world.dir, selinux, world.control, world.server,
             world.nvml, world.uuid, str(deadline_ms), str(interval_ms)],
            env=world.node.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.states = queue.Queue()
        self.log = []
        self.threads = [threading.Thread(target=lambda: [self.states.put(line.strip()) for line in self.process.stdout]),
                        threading.Thread(target=lambda: self.log.extend(self.process.stderr))]
        for t in self.threads:
            t.start()

    def tell(self, *lines):
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def wait_for(self, pattern, seconds=60):
        """The next state that matches."""
        seen = []
        end = time.monotonic() + seconds
        while True:
            try:
                seen.append(self.states.get(timeout=max(0, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"no state {pattern!r} in {seconds} s, only {seen}; log: {''.join(self.log)}") from None
            if re.match(pattern, seen[-1]):
                return seen[-1]

    def kill(self):
        self.process.kill()
        self.wait()

    def wait(self):
        status = self.process.wait(20)
        for t in self.threads:
            t.join(20)
        return status


class World:
    def __init__(self, driver):
        self.top = Path(tempfile.mkdtemp(prefix="m"))
        self.dir = self.top / "mps"
        self.hold = self.top / "hold"
        self.hold.mkdir()
        (self.top / "n").mkdir()
        self.node = Node(self.top / "n", "--gpus", "1")
        self.uuid = self.node.show()[1]["uuid"]
        self.nvml = self.top / "n/lib/libnvidia-ml.so.1"
        self.real = driver / "usr/bin/nvidia-cuda-mps-control"
        self.server = driver / "usr/sbin/nvidia-cuda-mps-server"
        self.program = self.top / "program"
        self.control = self.top / "control"
        self.agents = []
        write_program(self.program, PROGRAM.format(hold=self.hold, agent=AGENT))
        write_program(self.control, CONTROL.format(hold=self.hold, real=self.real))

    @property
    def card(self):
        return self.dir / self.uuid

    @property
    def pipe(self):
        return self.card / "pipe"

    def agent(self, *lines, selinux="/nowhere", deadline_ms=60000, interval_ms=60000, state_dir=None):
        self.agents.append(Agent(self, selinux, deadline_ms, interval_ms, state_dir))
        self.agents[-1].tell(*lines)
        return self.agents[-1]

    def mode(self, want=None):
        """The card's compute mode, before it is set to `want`."""
        r = self.node.run(AGENT, "compute-mode", self.nvml, self.uuid, *([str(want)] if want is not None else []))
        assert r.returncode == 0, r.stdout
        return int(r.stdout.split()[0])

    def daemon(self):
        """The PID of the control daemon by its lock; 0: none."""
        try:
            fd = os.open(self.pipe / "control_lock", os.O_RDWR)
        except FileNotFoundError:
            return 0
        with os.fdopen(fd) as f:
            lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi4x", fcntl.fcntl(f, fcntl.F_GETLK, lock))
        return pid if kind != fcntl.F_UNLCK else 0

    def kill_daemon(self):
        pid = self.daemon()
        assert pid != 0, "there is no daemon"
        os.kill(pid, signal.SIGKILL)
        return pid

    def control_env(self):
        return {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.card / "log")}

    def ask(self, *commands):
        """What the daemon answers, by NVIDIA's program."""
        r = subprocess.run([self.real], input="".join(f"{c}\n" for c in commands), env=self.control_env(),
                           capture_output=True, text=True, timeout=20, check=False)
        return r.stdout.split()

    def limits(self):
        return self.ask("get_default_active_thread_percentage", "get_default_device_pinned_mem_limit 0")

    def set_hold(self, name, on=True):
        if on:
            (self.hold / name).touch()
        else:
            (self.hold / name).unlink()

    def wait_hold(self, name):
        reached = self.hold / f"{name}.reached"
        wait_until(reached.exists, 20, name)
        return int(reached.read_text())

    def programs(self):
        """All programs of MPS that this world has."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if b"=" + os.fsencode(self.pipe) + b"\0" in (entry / "environ").read_bytes():
                        found.append(int(entry.name))
                except OSError:
                    pass
        return found

    def assert_nothing_left(self, mode=0):
        assert not self.card.exists(), list(self.card.rglob("*"))
        assert self.programs() == []
        assert self.mode() == mode

    def close(self):
        for name in list(self.hold.iterdir()):
            name.unlink()
        for agent in self.agents:
            agent.kill()
        for pid in self.programs():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for path in (self.pipe, self.card / "shm"):
            if path.is_mount():
                subprocess.run(["umount", "--lazy", path], check=True)
        self.node.close()
        shutil.rmtree(self.top, ignore_errors=True)
