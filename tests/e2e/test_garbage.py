# SPDX-License-Identifier: Apache-2.0
"""Garbage on every socket and HTTP port, and from the tenant: a clean error, no crash, the service goes on."""

import collections
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import socket
import stat
import struct
import time

import pytest

from grpc_raw import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, head
from cluster import linux
from kit import OUT_OF_MEMORY, GiB, check_view, condition, container, pod

PLUGINS = "/var/lib/kubelet/device-plugins"
SIMULATOR = "/run/aliquot-sim"
LEDGER = "/dev/aliquot/ledger"


@pytest.fixture(autouse=True)
def same_processes(world, space):
    """Whatever a test throws: agent and scheduler are the same containers afterwards, and work. Of the scheduler all
    replicas: a test that keeps one busy may make another act."""
    parts = (world.agent, world.scheduler)
    before = [containers(p) for p in parts]
    yield
    check_view(space, space.start(pod("after", container(core=10, memory=1 * GiB))))
    for part, known in zip(parts, before):
        assert containers(part) == known, f"{part.name} did not survive"
        world.until(lambda p=part: p.http("/healthz") is not None, 30, f"{part.name} works")


def containers(part):
    """{pod: (its container, how often that was started again)} of all pods of a part."""
    return {seen["metadata"]["name"]: (part.status(seen)["containerID"], part.status(seen)["restartCount"])
            for seen in part.pods()}


def noise(size):
    return random.Random(size).randbytes(size)


HTTP_GARBAGE = {
    "nothing": b"",
    "noise": noise(4096),
    "much noise": noise(1 << 20),
    "zeros": bytes(65536),
    "half a request": b"POST /filter HTTP/1.1\r\nContent-Length: 1000\r\n\r\n{",
    "a length that is none": b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    "a length beyond 64 bits": b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n",
    "a huge body announced": b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n{}",
    "chunks that are none": b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a header without end": b"GET /metrics HTTP/1.1\r\nX: " + b"a" * (1 << 20),
    "many headers": b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(20000)) + b"\r\n",
    "a path without end": b"GET /" + b"../" * 100000 + b" HTTP/1.1\r\n\r\n",
    "a zero in the path": b"GET /metrics\0.html HTTP/1.1\r\nHost: x\r\n\r\n",
    "http/2": PREFACE + noise(100),
    "tls": bytes.fromhex("16030100c8010000c40303") + noise(190),
}


def throw(connection, data, answers=False):
    """Sends, ends sending, reads until the other side has said what it has to say (1 s at most)."""
    got = b""
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.settimeout(1)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while block := connection.recv(65536):
            got += block
    return got


@pytest.mark.parametrize("part", ["agent", "scheduler"])
def test_http_ports(world, part):
    part = getattr(world, part)
    for name, data in HTTP_GARBAGE.items():
        answer = throw(part.connect(), data)
        assert not answer or answer.startswith(b"HTTP/1."), (name, answer[:100])
        assert part.http("/healthz") is not None, name


def test_many_idle_connections(world):
    """Clients that connect and say nothing do not keep others out."""
    for part in (world.agent, world.scheduler):
        idle = [part.connect() for _ in range(100)]
        assert part.http("/healthz") is not None
        for connection in idle:
            connection.close()


def test_a_flooded_agent_stays_ready(world):
    """Half a request on every connection that other addresses can get: kubelet's probes still pass. The pod of an agent
    that three probes in a row did not reach is not ready, which takes less than 8 s."""
    ready = condition(world.agent.pod(), "Ready")
    assert ready["status"] == "True"
    held = []
    with contextlib.ExitStack() as stack:
        begun = time.monotonic()
        while time.monotonic() - begun < 10:
            held = [c for c in held if is_open(c)]
            taken = collections.Counter(c.getsockname()[0] for c in held)
            with linux.in_netns(world.cluster.init_pid):
                held += [stack.enter_context(half_a_request(f"127.0.0.{n}", world.agent.port))
                         for n in range(2, 42) for _ in range(16 - taken[f"127.0.0.{n}"])]
            time.sleep(0.5)
        assert world.agent.http("/livez") == b"ok\n"
        assert condition(world.agent.pod(), "Ready") == ready
    assert len(held) >= 512


def half_a_request(source, port):
    connection = socket.create_connection(("127.0.0.1", port), 10, source_address=(source, 0))
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.send(b"GET /metrics HTTP/1.1\r\nHost: ")
    return connection


def is_open(connection):
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


DEEP = b"[" * 200000
JSON_GARBAGE = [
    b"", b"null", b"0", b'""', b"[]", b"{}", b"{", b"\xff\xfe", DEEP, b'{"a":' * 50000,
    b'{"Pod":null,"NodeNames":null,"Nodes":null}',
    b'{"Pod":[],"NodeNames":{}}',
    b'{"Pod":{"metadata":null,"spec":null},"NodeNames":["node-a"]}',
    b'{"Pod":{"metadata":{"uid":1,"name":2,"namespace":3},"spec":{"containers":[null,1,"x",{}]}},"NodeNames":[1]}',
    json.dumps({"Pod": {"metadata": {"uid": "u" * 100000, "name": "n", "namespace": "n"},
                        "spec": {"containers": [{"name": "c", "resources": {
                            "limits": {"elasticgpu.io/gpu-core": "9" * 400}}}]}},
                "NodeNames": ["node-a"]}).encode(),
    b'{"PodName":"p","PodNamespace":"n","PodUID":"u","Node":"no-such-node"}',
    b'{"PodName":1,"PodNamespace":null,"PodUID":[],"Node":{}}',
    json.dumps({"PodName": "../../nodes/x", "PodNamespace": "?a=b#", "PodUID": "\r\n", "Node": "node-a"}).encode(),
]


@pytest.mark.parametrize("verb", ["filter", "prioritize", "bind"])
def test_extender_verbs(world, verb):
    """Well-formed HTTP with any body: an answer in form, an error in it."""
    for body in JSON_GARBAGE:
        head = (f"POST /{verb} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"Content-Length: {len(body)}\r\n\r\n").encode()
        answer = throw(world.scheduler.connect(), head + body)
        assert answer.startswith(b"HTTP/1.1 "), (verb, body[:80])
        status = int(answer.split()[1])
        assert status == 200 or 400 <= status < 500, (verb, body[:80], answer[:200])
        if status == 200:
            json.loads(answer.partition(b"\r\n\r\n")[2])


def processes(world, part):
    """The directories in /proc of a part's first processes, one of each pod."""
    tasks = dict(line.split()[:2] for line in world.ctr("tasks", "ls").splitlines())
    return [f"/proc/{world.cluster.host_pid(tasks[container.partition('://')[2]])}"
            for container, _ in containers(part).values()]


def peak_memory(process):
    """The most that a process has had in memory since this was last asked, in bytes."""
    with open(process + "/status") as f:
        most = int(re.search(r"^VmHWM:\s+(\d+) kB", f.read(), re.M)[1]) << 10
    with open(process + "/clear_refs", "w") as f:
        f.write("5")        # the peak is what there is now
    return most


def stream(part, path, head, items, tail):
    """Posts a body that is made while it is sent; the answer."""
    size, parts = joined(head, items, tail)
    assert size > 75_000_000
    connection = http.client.HTTPConnection("aliquot", timeout=60)
    connection.sock = part.connect(timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", path, parts, {"Content-Type": "application/json", "Content-Length": str(size)})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status == 200 and b'"Error":"a' not in content[:20], content[:500]
        return json.loads(content)


def joined(head, items, tail):
    """The pieces of a JSON document, of about a megabyte each, and how long it is."""
    whole = (",".join(items[i:i + 64]) + ("," if i + 64 < len(items) else "") for i in range(0, len(items), 64))
    return (sum(map(len, items)) + len(items) - 1 + len(head) + len(tail),
            itertools.chain([head.encode()], (text.encode() for text in whole), [tail.encode()]))


def test_bodies_of_a_large_cluster(world):
    """5,000 whole Nodes to filter, and the whole pods of thousands of nodes to preempt, 75 MB each: they are answered,
    and no process keeps them in memory."""
    real = world.api.get("/api/v1/nodes/" + world.cluster.node)
    images = [{"names": [noise(50).hex()] * 4, "sizeBytes": i} for i in range(30)]
    # Unknown nodes with labels of GPUs are what an autoscaler could add, and could take the pod.
    labels = {key: value for key, value in real["metadata"]["labels"].items() if not key.startswith("nvidia.com/")}
    other = dict(real, metadata={"name": "NAME", "labels": labels}, status={"images": images})
    other["status"]["allocatable"] = {"cpu": "8"}
    text = json.dumps(other).ljust(15000)
    nodes = [text.replace("NAME", f"made-up-{i:04d}", 1) for i in range(4999)] + [json.dumps(real)]
    asks = pod("p", container(core=1), priority=1000)
    asks["metadata"].update(namespace="default", uid="made-up")
    victims = [f'"{name}":{{"Pods":[{text}],"NumPDBViolations":0}}' for name, text in
               zip([f"n{i}" for i in range(4999)] + [world.cluster.node], nodes)]
    replicas = processes(world, world.scheduler)
    for _ in range(2):      # the second time it is what they have now
        before = [peak_memory(replica) for replica in replicas]
    # Asked again where another replica has just taken over, or a watch was broken, on a machine that is busy.
    ask = json.dumps(asks)
    answer = world.until(
        lambda: stream(world.scheduler, "/filter", f'{{"Pod":{ask},"NodeNames":null,"Nodes":{{"items":[', nodes, "]}}"),
        60, "an answer to 5,000 nodes")
    assert [n["metadata"]["name"] for n in answer["Nodes"]["items"]] == [world.cluster.node]
    answer = world.until(
        lambda: stream(world.scheduler, "/preempt", f'{{"Pod":{ask},"NodeNameToVictims":{{', victims, "}}"),
        60, "an answer to the pods of 5,000 nodes")
    assert list(answer["NodeNameToMetaVictims"]) == [world.cluster.node], answer
    most = [peak_memory(replica) for replica in replicas]
    assert all(m - b < 60_000_000 for m, b in zip(most, before)), (before, most)


def sockets(world, directory):
    base = world.node_path(directory)
    found = []
    for entry in sorted(os.listdir(base)):
        if stat.S_ISSOCK(os.stat(os.path.join(base, entry)).st_mode) and entry != "kubelet.sock":
            found.append(os.path.join(base, entry))
    assert found, f"no socket in {directory}"
    return found


def unix(path, kind):
    connection = socket.socket(socket.AF_UNIX, kind)
    connection.settimeout(5)
    connection.connect(path)
    return connection


def call(method, body, end=True):
    """A whole gRPC call: preface, settings, headers, one data frame."""
    return PREFACE + frame(SETTINGS, 0, 0, b"") + head(1, method) + frame(DATA, END_STREAM if end else 0, 1, body)


def grpc_garbage(service=b"/v1beta1.DevicePlugin/",
                 verbs=(b"Allocate", b"GetPreferredAllocation", b"NoSuchVerb", b"ListAndWatch", b"PreStartContainer")):
    yield from (b"", noise(64), noise(65536), b"GET / HTTP/1.1\r\n\r\n", PREFACE, PREFACE + noise(1000))
    yield PREFACE + frame(SETTINGS, 0, 0, b"x" * 7)
    yield PREFACE + frame(SETTINGS, 0, 0, b"") + frame(DATA, END_STREAM, 77, b"data of no stream")
    yield PREFACE + frame(SETTINGS, 0, 0, b"") + frame(HEADERS, END_HEADERS, 1, noise(200))
    yield PREFACE + b"\xff\xff\xff" + noise(100)
    for path in (service + verb for verb in verbs):
        yield call(path, b"")
        yield call(path, noise(500))
        yield call(path, b"\x00" + struct.pack(">I", 1 << 31) + b"x")
        yield call(path, b"\x01\x00\x00\x00\x05hello")
        yield call(path, b"\x00\x00\x00\x00\x10" + b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f" + b"\xff" * 6)
        yield call(path, b"\x00\x00\x00\x00\x05half", end=False)
    yield call(service + verbs[-1], b"\x00\x00\x00\x00\x08\x0a\x06c-9999")
    yield call(service + verbs[0], b"\x00\x00\x00\x00\x0a\x0a\x08\x0a\x06c-9999")


def test_plugin_sockets(world):
    for path in sockets(world, PLUGINS):
        for data in grpc_garbage():
            throw(unix(path, socket.SOCK_STREAM), data)
        unix(path, socket.SOCK_STREAM).close()      # it still takes connections


def test_simulator_sockets(world, space):
    """A tenant's process can say anything to the driver; its neighbours do not notice."""
    seen = space.start(pod("neighbour", container(core=20, memory=8 * GiB)))
    with space.tenant(seen) as tenant:
        assert tenant.alloc(2 * GiB) == 0
        before = tenant.info()
        for path in sockets(world, SIMULATOR):
            for size in (0, 1, 3, 4, 8, 16, 64, 256, 4096, 65536):
                throw(unix(path, socket.SOCK_SEQPACKET), noise(size))
                throw(unix(path, socket.SOCK_SEQPACKET), bytes(size))
                throw(unix(path, socket.SOCK_SEQPACKET), b"\xff" * size)
            with_descriptors(path)
        assert tenant.info() == before
        assert tenant.alloc(1 * GiB) == 0


def with_descriptors(path):
    with contextlib.closing(unix(path, socket.SOCK_SEQPACKET)) as connection, open("/dev/null") as null:
        with contextlib.suppress(OSError):
            socket.send_fds(connection, [noise(32)], [null.fileno()] * 16)


def test_ledger_that_the_tenant_destroys(world, space):
    """The ledger is the tenant's to write: whatever he does to it harms him alone."""
    vandal, neighbour = space.start_all([pod("vandal", container(core=20, memory=8 * GiB)),
                                         pod("neighbour", container(core=20, memory=8 * GiB))])
    with space.tenant(neighbour) as other:
        assert other.alloc(2 * GiB) == 0
        for words in (("fill", LEDGER, 255), ("fill", LEDGER, 0), ("truncate", LEDGER, 1), ("truncate", LEDGER, 0),
                      ("truncate", LEDGER, 1 << 40)):
            with space.tenant(vandal) as tenant:
                tenant.alloc(1 * GiB)
                tenant.ask(*words)
            assert "neighbour" in json.dumps(world.usage())     # the agent has looked at both since
        assert other.info()["total"] == 8 * GiB
        assert other.alloc(7 * GiB) == OUT_OF_MEMORY
        assert other.alloc(3 * GiB) == 0
