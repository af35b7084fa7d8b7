# SPDX-License-Identifier: Apache-2.0
"""What bench.py measures on a real cluster. All times in nanoseconds."""

import contextlib
import ctypes
import datetime
import os
import re
import select
import struct
import time

import grpc_raw
import kit
from cluster import aliquot, api as kube
from cluster.cluster import Cluster, ClusterError

PAIRS = 10
CALLS = 5000
RESTARTS = 5
PLUGINS = "/var/lib/kubelet/device-plugins"
IN_CREATE, IN_MOVED_TO = 0x100, 0x80


@contextlib.contextmanager
def installed(build, say):
    with Cluster(f"bench-{os.getpid()}", say) as cluster:
        say("starting a cluster")
        cluster.up()
        say("installing Aliquot")
        aliquot.install(cluster, str(build), gpus=2, programs=[str(build / "tests/e2e/probe")])
        world = kit.World(cluster, build)
        world.wait_tokens(60)
        yield world


def pod_starts(world):
    """([without a share], [with one]): from the request to create a pod until main() of its program. Interleaved, so
    that whatever else the machine does falls on both."""
    space = kit.Space(world, "bench")
    world.api.create(kube.core("namespaces"), {"metadata": {"name": space.name}})
    world.api.wait(kube.core("serviceaccounts", space.name), "default", bool, 30)
    plain, share = [], []
    for number in range(-1, PAIRS):     # the first pair warms up
        for times, resources in ((plain, {}), (share, {"core": 30, "memory": 20 * kit.GiB})):
            body = kit.pod(f"pod-{number + 1}-{len(resources)}", kit.container(**resources))
            created = time.time_ns()
            seen = space.start(body)
            with space.tenant(seen) as tenant:
                if number >= 0:
                    times.append(tenant.ask("started")["ns"] - created)
            space.delete(seen["metadata"]["name"])
    return plain, share


def resident(world):
    """{part: {"Rss": bytes, "Pss": bytes}} of every process of agent and scheduler that does not end meanwhile."""
    found = {}
    for part in (world.agent, world.scheduler):
        container = part.status()["containerID"].partition("://")[2]
        for line in world.ctr("tasks", "ps", container).splitlines()[1:]:
            with contextlib.suppress(ClusterError, FileNotFoundError, ProcessLookupError):
                child, size = _process(world, container, int(line.split()[0]))
                found[part.name + child] = size
        assert part.name in found, f"{part.name} has ended"
    return found


def _process(world, container, pid):
    """("", or what a child is, {"Rss": bytes, "Pss": bytes})."""
    pid = world.cluster.host_pid(pid)
    with open(f"/proc/{pid}/cmdline") as f:
        main = pid == oldest(world, container)
        child = "" if main else f" ({f.read().split(chr(0))[0].rpartition('/')[2]}, its child for NVML)"
    return child, memory_of(pid)


def memory_of(pid):
    """{"Rss": bytes, "Pss": bytes} of a process by its PID here."""
    with open(f"/proc/{pid}/smaps_rollup") as f:
        text = f.read()
    return {k: int(re.search(rf"^{k}:\s+(\d+) kB", text, re.M)[1]) << 10 for k in ("Rss", "Pss")}


def oldest(world, container):
    """The container's first process."""
    for line in world.ctr("tasks", "ls").splitlines():
        if line.startswith(container):
            return world.cluster.host_pid(int(line.split()[1]))
    raise LookupError(container)


def allocate(world):
    """Times of Allocate calls for a share of 30, on one connection as kubelet's."""
    directory = world.node_path(PLUGINS)
    path = next(os.path.join(directory, n) for n in sorted(os.listdir(directory)) if "core" in n and "qgpu" not in n)
    ids = b"".join(grpc_raw.field(1, f"c-{i:04}".encode()) for i in range(30))
    request = grpc_raw.field(1, ids)
    channel = grpc_raw.Channel(path)
    times = []
    for number in range(-100, CALLS):
        begun = time.perf_counter_ns()
        reply = channel.call(b"/v1beta1.DevicePlugin/Allocate", request)
        if number >= 0:
            times.append(time.perf_counter_ns() - begun)
        assert reply
    channel.close()
    return times


class Arrival:
    """Sees the moment at which a file of a given name appears in a directory."""

    def __init__(self, directory, name):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.name = name
        self.fd = self.libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self.libc.inotify_add_watch(self.fd, directory.encode(), IN_CREATE | IN_MOVED_TO) < 0:
            raise OSError(ctypes.get_errno(), directory)

    def wait(self, timeout=30):
        """CLOCK_REALTIME in ns."""
        while select.select([self.fd], [], [], timeout)[0]:
            now = time.time_ns()
            data = os.read(self.fd, 65536)
            while data:
                size = struct.unpack("iIII", data[:16])[3]
                if data[16:16 + size].rstrip(b"\0").decode() == self.name:
                    os.close(self.fd)
                    return now
                data = data[16 + size:]
        raise kube.Timeout(self.name)


def registrations(world):
    """From the appearance of kubelet.sock until kubelet has noted down the last of our resources, by kubelet's log."""
    times = []
    for _ in range(RESTARTS):
        world.cluster.stop("kubelet")
        seen = len(world.cluster.log("kubelet"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(world.node_path(PLUGINS), "kubelet.sock"))
        arrival = Arrival(world.node_path(PLUGINS), "kubelet.sock")
        world.cluster.start("kubelet")
        appeared = arrival.wait()
        lines = world.until(lambda: _registered(world.cluster.log("kubelet")[seen:]), 30, "registered")
        times.append(max(lines) - appeared)
        world.cluster.wait_node_ready()
        world.wait_tokens()
    return times


RESOURCES = (kit.CORE, kit.SLOT, kit.QGPU_CORE)


def _registered(log):
    """Moments (ns) at which kubelet noted down each of our resources, or nothing while one is missing."""
    found = {}
    for line in log.splitlines():
        match = re.match(r"I(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}).*[Gg]ot registration request", line)
        if match:
            month, day, hour, minute, second, micro = map(int, match.groups())
            when = datetime.datetime(datetime.datetime.now().year, month, day, hour, minute, second, micro)
            for resource in RESOURCES:
                if f'"{resource}"' in line:
                    found[resource] = int(when.timestamp() * 1e6) * 1000
    return list(found.values()) if len(found) == len(RESOURCES) else []
