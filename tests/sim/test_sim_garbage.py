# SPDX-License-Identifier: Apache-2.0
"""Requests that no library sends: the daemon disconnects the sender, and other clients go on."""

import contextlib
import ctypes
import mmap
import os
import random
import socket
import struct
from pathlib import Path

import pytest
from sim_kit import GIB, wait_until

MAGIC = 0x51414C41
PROTO = 3
HELLO, ATTACH, QUEUE, CTX_CREATE, CTX_DESTROY, ALLOC, FREE, PROCESSES = range(1, 9)


def connect(node, name="nvidiactl"):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(5)
    s.connect(f"{node.dir}/{name}")
    return s


def request(op, minor=0, a=0, token=(0, 0), magic=MAGIC):
    return struct.pack("<IIIIQQQ", magic, op, minor, 0, a, *token)


def reply(s):
    """(status, count, a, b, token) or None when disconnected."""
    try:
        data = s.recv(65536)
    except ConnectionResetError:
        return None
    return struct.unpack("<iIQQQQ", data[:40]) if data else None


def session(node, *minors):
    """A well-behaved beginning: the control socket, the device sockets, the token."""
    s = connect(node)
    s.send(request(HELLO, a=PROTO))
    token = reply(s)[4:]
    devices = []
    for minor in minors:
        d = connect(node, f"nvidia{minor}")
        d.send(request(ATTACH, minor, token=token))
        assert reply(d)[0] == 0
        devices.append(d)
    return s, devices, token


def works(node):
    p, result, _ = node.hold(GIB)
    p.communicate()
    return result == 0


@pytest.mark.parametrize("packet", [
    b"x", b"\0" * 40, os.urandom(40), os.urandom(41), os.urandom(60000),
    request(HELLO, a=PROTO + 1), request(0), request(99), request(HELLO, a=PROTO, magic=1),
    request(ALLOC, a=1), request(PROCESSES), request(QUEUE), request(ATTACH),
    request(HELLO, a=PROTO, minor=256), request(HELLO, a=PROTO) + b"\0",
])
def test_nonsense_ends_the_connection(node, packet):
    s = connect(node)
    s.send(packet)
    assert reply(s) is None
    assert works(node)


def test_attach_needs_the_token(node):
    s, _, token = session(node)
    for wrong in [(0, 0), (token[0], token[1] ^ 1)]:
        d = connect(node, "nvidia0")
        d.send(request(ATTACH, token=wrong))
        assert reply(d) is None
    d = connect(node, "nvidia0")
    d.send(request(ALLOC, a=1, token=token))
    assert reply(d) is None


def test_device_that_was_not_opened(node):
    s, devices, _ = session(node, 1)
    for minor in (0, 2, 63):
        s.send(request(ALLOC, minor, a=1))
        assert reply(s)[0] == -19  # ENODEV
    s.send(request(ALLOC, 1, a=1))
    assert reply(s)[0] == 0


def test_device_closed_gives_its_memory_back(node, nvml):
    s, devices, _ = session(node, 0)
    s.send(request(ALLOC, a=GIB))
    assert reply(s)[0] == 0
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == GIB
    devices[0].close()
    s.send(request(ALLOC, a=1))
    assert reply(s)[0] == -19
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == 0


def test_nobody_frees_what_is_not_his(node, nvml):
    node.hold(10 * GIB)
    s, devices, _ = session(node, 0)
    before = nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used
    for op, a in ((FREE, 5 * GIB), (FREE, 2**64 - 1), (CTX_DESTROY, 0)):
        s.send(request(op, a=a))
        reply(s)
    for a in (2**64 - 1, 2**63, 81 * GIB):
        s.send(request(ALLOC, a=a))
        assert reply(s)[0] == -12
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used == before


def test_who_does_not_read_is_disconnected(node):
    s, devices, _ = session(node, 0)
    with pytest.raises((BrokenPipeError, ConnectionResetError, TimeoutError)):
        for _ in range(100000):
            s.send(request(PROCESSES))
    assert works(node)


def test_random_packets(node):
    rng = random.Random(1)
    for _ in range(300):
        s, devices, token = session(node, 0)
        for _ in range(10):
            op = rng.randrange(12)
            try:
                s.send(request(op, rng.choice([0, 1, 63]), rng.choice([0, 1, 2**40, 2**64 - 1]),
                               rng.choice([token, (0, 0)])))
                if reply(s) is None:
                    break
            except (BrokenPipeError, ConnectionResetError):
                break
        s.close()
    assert works(node)


def test_the_ring_is_not_trusted(node):
    """Random bytes all over the shared ring, with the doorbell rung: only its owner suffers."""
    rng = random.Random(2)
    s, devices, _ = session(node, 0, 1)
    s.send(request(QUEUE))
    _, fds, _, _ = socket.recv_fds(s, 40, 4)
    ring = mmap.mmap(fds[0], os.fstat(fds[0]).st_size)
    with pytest.raises(PermissionError):
        os.ftruncate(fds[0], 4096)  # sealed: it would kill the daemon
    for _ in range(200):
        for at in range(128, len(ring) - 16, 4096):
            ring[at:at + 16] = rng.randbytes(16)
        end = len(ring)
        for at in range(end - 24 * 64, end, 24):  # entries that are nearly right
            ring[at:at + 24] = struct.pack("<BBHIQQ", rng.randrange(6), rng.randrange(3),
                                           rng.randrange(1100), rng.randrange(20000),
                                           rng.choice([0, 1, 1000, 2**63, 2**64 - 1]),
                                           rng.choice([0, 2**64 - 1]))
        ring[0:4] = struct.pack("<I", rng.choice([0, 1, 4096, 2**31, 2**32 - 1, rng.randrange(2**32)]))
        os.write(fds[1], struct.pack("<Q", 1))
    assert works(node)
    s.close()
    p = node.start("spin", 1_000_000, 10)
    out, err = p.communicate("\n")
    assert p.returncode == 0, err
    assert 10 <= float(out.splitlines()[1].split()[1]) < 100


def test_descriptors_that_nobody_asked_for(node):
    """Whatever number of them comes with a packet, the daemon keeps none."""
    s, devices, _ = session(node, 0)
    fds = Path(f"/proc/{node.daemon.pid}/fd")
    before = len(list(fds.iterdir()))
    for n in (1, 2, 3, 50):
        for _ in range(10):
            socket.send_fds(s, [request(PROCESSES)], [s.fileno()] * n)
            assert reply(s)[0] == 0
    wait_until(lambda: len(list(fds.iterdir())) == before, what="the last is closed")
    assert works(node)


def test_pages_are_read_only(node):
    s = connect(node)
    s.send(request(HELLO, a=PROTO))
    token = reply(s)[4:]
    d = connect(node, "nvidia0")
    d.send(request(ATTACH, token=token))
    _, fds, _, _ = socket.recv_fds(d, 40, 4)
    with pytest.raises(PermissionError):
        mmap.mmap(fds[0], 4096)
    with pytest.raises(PermissionError):
        os.write(fds[0], b"x")
    mmap.mmap(fds[0], 4096, prot=mmap.PROT_READ)


def test_more_connections_than_descriptors(node_of, tmp_path):
    """The daemon runs out of descriptors: it turns callers away, and recovers."""
    libc = ctypes.CDLL(None)
    node = node_of("--gpus", "1")
    limit = (ctypes.c_ulong * 2)(64, 64)
    assert libc.prlimit(node.daemon.pid, 7, limit, None) == 0
    many = []
    for _ in range(100):
        try:
            many.append(connect(node))
        except OSError:
            break
    with contextlib.suppress(BrokenPipeError):   # it may have been turned away by now
        many[-1].send(request(HELLO, a=PROTO))
    for s in many:
        s.close()
    assert works(node)
