# SPDX-License-Identifier: Apache-2.0
"""A device plugin as kubelet sees it: the list that ListAndWatch streams, and Allocate."""

import contextlib
import os
import pathlib
import re
import socket
import struct
import threading
import time
import typing

import grpc_raw
from cluster import api as kube

DIRECTORY = "/var/lib/kubelet/device-plugins"


NAME = re.compile(r"(?:aliquot-)?(.*?)(-[0-9a-f]{8})?(?:-[0-9a-f]+-\d+)?\.sock")


def find(world, name, timeout=30):
    """The newest socket of the plugin of a resource (its name without the domain): of the agent, whose sockets have the
    name, or its beginning and a hash, or of NVIDIA's plugin."""
    directory = pathlib.Path(world.node_path(DIRECTORY))

    def found():
        seen = [(path, NAME.fullmatch(path.name)) for path in directory.iterdir()]
        return sorted((path for path, m in seen if m and (m[1] == name or m[2] and name.startswith(m[1]))),
                      key=lambda path: path.stat().st_mtime)
    return str(world.until(found, timeout, f"a socket of the plugin of {name}")[-1])


def fields(data):
    """(number, content) of each length-delimited field of a protobuf message."""
    at = 0
    while at < len(data):
        tag, at = data[at], at + 1
        assert tag & 7 == 2, f"wire type {tag & 7}"
        size = shift = 0
        while True:
            byte, at = data[at], at + 1
            size |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        yield tag >> 3, data[at:at + size]
        at += size


def devices(response):
    """{ID: whether it is healthy} of a ListAndWatchResponse."""
    found = {}
    for number, device in fields(response):
        if number == 1:
            parts = dict((n, content) for n, content in fields(device) if n in (1, 2))
            found[parts[1].decode()] = parts.get(2) == b"Healthy"
    return found


class Watch(threading.Thread):
    """The lists that a plugin streams, each with the moment of its arrival."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.channel = grpc_raw.Channel(path)
        self.channel.socket.settimeout(None)
        self.changed = threading.Condition()
        self.lists = []         # [(perf_counter_ns, {ID: healthy})]
        self.start()

    def run(self):
        with contextlib.suppress(OSError, ValueError):      # the end of the connection
            for body in self.channel.stream(b"/v1beta1.DevicePlugin/ListAndWatch"):
                now, seen = time.perf_counter_ns(), devices(body)
                with self.changed:
                    self.lists.append((now, seen))
                    self.changed.notify_all()

    def wait(self, check, since=0, timeout=30):
        """The moment at which the first list arrived, not before `since`, for which check({ID: healthy}) is true."""
        deadline = time.monotonic() + timeout
        with self.changed:
            done = 0
            while True:
                for when, seen in self.lists[done:]:
                    if when >= since and check(seen):
                        return when
                done = len(self.lists)
                if not self.changed.wait(max(0, deadline - time.monotonic())):
                    raise kube.Timeout(f"no such list of devices within {timeout} s")

    def last(self):
        with self.changed:
            return self.lists[-1][1] if self.lists else {}

    def close(self):
        with contextlib.suppress(OSError):
            self.channel.socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self.channel.close()


def ran_and_waited(task):
    """Nanoseconds that a thread has run, and has waited for a CPU: its directory in /proc."""
    with open(f"{task}/schedstat") as f:
        ran, waited, _ = map(int, f.read().split())
    return ran, waited


class Allocation(typing.NamedTuple):
    """A call of Allocate, in nanoseconds: how long it took the caller, how long the plugin's loop ran from its beginning until
    AFTER its end, and how long loop and caller waited for a CPU."""
    took: int
    ran: int
    waited: int


class Echo:
    """A process that does nothing but answer a byte after so long a computation: what the machine alone adds to a call."""

    def __init__(self, computing):
        """`computing`: nanoseconds."""
        self.socket, other = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.socket.close()
            try:
                while other.recv(1):
                    until = time.perf_counter_ns() + computing
                    while time.perf_counter_ns() < until:
                        pass
                    other.send(b"a")
            finally:
                os._exit(0)
        other.close()

    def call(self):
        self.socket.send(b"q")
        assert self.socket.recv(1), "the echo has ended"

    def close(self):
        self.socket.close()
        os.waitpid(self.pid, 0)


class Allocations(threading.Thread):
    """Allocate for the same IDs, again and again, with a pause between. `loop`: the thread that answers, in /proc. `echo`:
    called after each, beside which the calls can be judged."""

    PAUSE = 0.004
    AFTER = 0.001       # after which the kernel has accounted what a thread that sleeps again has run

    def __init__(self, path, ids, loop, echo=None):
        super().__init__(daemon=True)
        self.loop, self.echo = loop, echo
        self.echoed = []        # nanoseconds
        self.channel = grpc_raw.Channel(path)
        self.request = grpc_raw.field(1, b"".join(grpc_raw.field(1, i.encode()) for i in ids))
        self.calls = []
        self.failure = None     # after which nothing is called
        self.ended = threading.Event()
        self.start()

    def run(self):
        try:
            while not self.ended.wait(self.PAUSE):
                (ran, waited), (_, own) = ran_and_waited(self.loop), ran_and_waited("/proc/thread-self")
                begun = time.perf_counter_ns()
                reply = self.channel.call(b"/v1beta1.DevicePlugin/Allocate", self.request)
                took = time.perf_counter_ns() - begun
                _, own_now = ran_and_waited("/proc/thread-self")
                assert reply, "an empty answer to Allocate"
                time.sleep(self.AFTER)
                ran_now, waited_now = ran_and_waited(self.loop)
                self.calls.append(Allocation(took, ran_now - ran, min(took, waited_now - waited + own_now - own)))
                if self.echo:
                    begun = time.perf_counter_ns()
                    self.echo.call()
                    self.echoed.append(time.perf_counter_ns() - begun)
        except Exception as failure:    # noqa: BLE001  (raised by close())
            self.failure = failure

    def close(self):
        """All calls, which have succeeded."""
        self.ended.set()
        self.join()
        self.channel.close()
        if self.failure:
            raise self.failure
        return self.calls
