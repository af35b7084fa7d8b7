# SPDX-License-Identifier: Apache-2.0
"""Memory that outlives the process that made it: exported by descriptor, or kept by a forked child. It stays booked until
the driver's figures show that it is back, and is credited soon after that."""

import subprocess
import sys
import time

import pytest
from test_corners import CUDA, VMM

MIB, GIB = 1 << 20, 1 << 30
LIMIT = 2 * GIB
CONTEXT = 416 * MIB  # what a context costs on the simulated A100
CREDIT = 2           # seconds until what is back can be had again


class Card:
    """A simulated machine with one A100, and what runs on it."""

    def __init__(self, aliquot, program, directory):
        self.aliquot, self.program, self.children = aliquot, program, []
        self.daemon = subprocess.Popen([aliquot, "sim", "--listen", str(directory)])
        deadline = time.monotonic() + 10
        while not (directory / "nvidiactl").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self.env = {"PATH": "/usr/bin:/bin", "ALIQUOT_SIM_DIR": str(directory), "LD_LIBRARY_PATH": f"{directory}/lib"}

    def start(self, *command, limit=LIMIT):
        p = subprocess.Popen([self.aliquot, "run", "--memory", str(limit), "--", *map(str, command)], env=self.env,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.children.append(p)
        return p

    def hoard(self, how, size, count, what, patience=0, **options):
        """The process and how many descriptors it got."""
        p = self.start(self.program, how, size, count, what, patience, **options)
        return p, int(p.stdout.readline())

    def used(self):
        shown = subprocess.run([self.aliquot, "sim", "show"], env=self.env, capture_output=True, text=True, check=True)
        return int(next(w for w in shown.stdout.split() if w.startswith("memory_used=")).split("=")[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.children:
            p.kill()
            p.communicate()
        self.daemon.terminate()
        self.daemon.wait(10)


@pytest.fixture(scope="module")
def new_card(aliquot, build, tmp_path_factory):
    return lambda: Card(aliquot, build / "tests/workloads/gpu-hoard", tmp_path_factory.mktemp("c"))


@pytest.mark.waits
def test_descriptors_do_not_lead_past_the_limit(new_card):
    """Each maker has ended and no process of the container uses CUDA. With patience, so that a credit of what is held
    would be found."""
    with new_card() as card:
        size = 256 * MIB
        _, got = card.hoard("handle", size, 100, "keep", patience=2500)
        assert got == (LIMIT - CONTEXT) // size
        assert card.used() == got * size


@pytest.mark.waits
def test_what_is_back_is_credited(new_card):
    """The maker that comes after the descriptors are closed gets the memory within the time it takes to credit."""
    with new_card() as card:
        size = 1024 * MIB
        p, got = card.hoard("handle", size, 100, "keep", patience=1000 * CREDIT)
        assert got == 1
        p.stdin.write("close\n")
        p.stdin.flush()
        assert p.stdout.readline() == "1\n"


@pytest.mark.waits
def test_another_run_does_not_free_what_one_holds(new_card):
    """The card's figures count for all: what another container holds by descriptor is not taken for this one's."""
    with new_card() as card:
        size = 512 * MIB
        _, one = card.hoard("handle", size, 100, "keep")
        _, two = card.hoard("handle", size, 100, "keep", patience=500)
        assert (one, two) == (3, 3)
        assert card.used() == 6 * size


@pytest.mark.waits
@pytest.mark.parametrize("how", ["handle", "pool"])
def test_a_thousand_honest_workers(new_card, how):
    """Each exports a part of what fits beside its context, passes it on, and ends; what was passed on is closed. None
    waits for longer than it takes to credit."""
    with new_card() as card:
        size = (LIMIT - CONTEXT) // 20 // (2 * MIB) * 2 * MIB
        _, got = card.hoard(how, size, 1000, "drop", patience=1000 * CREDIT)
        assert got == 1000


@pytest.mark.waits
def test_what_another_run_holds_is_not_booked_here(new_card):
    """Each of the two has a process by which it could hold unlisted memory; what the other one has booked is explained."""
    with new_card() as card:
        size = 512 * MIB
        p, one = card.hoard("handle", size, 1, "keep")
        _, two = card.hoard("handle", size, 100, "keep", patience=1000)
        assert (one, two) == (1, 3)
        p.stdin.write("close\n")
        p.stdin.flush()
        assert p.stdout.readline() == "1\n"


# Processes that end and leave what the driver has opened to this one, which never uses CUDA.
LEAVE = """
import mmap, socket, struct, time
ledger = mmap.mmap(os.open(os.environ["ALIQUOT_SHARE_DIR"] + "/ledger", os.O_RDONLY), 4096, prot=mmap.PROT_READ)
def booked():
    return struct.unpack_from("<Q", ledger, 128)[0]
def wait(check):
    until = time.monotonic() + 60
    while not check():
        assert time.monotonic() < until, booked()
def files():
    return {f for f in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{f}")}
def leave(size):
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        before, context = files(), u64()
        r = call("cuInit", 0) or call("cuDevicePrimaryCtxRetain", ref(context), 0) or call("cuCtxSetCurrent", context)
        r = r or take(size)[0]
        if r == 0:
            socket.send_fds(there, [b"x"], [f for f in files() - before])
        os._exit(r)
    there.close()
    kept = socket.recv_fds(here, 1, 64)[1]
    assert os.waitstatus_to_exitcode(os.wait()[1]) == (0 if kept else 2)
    return kept
"""


def test_descriptors_of_the_driver_itself(sim):
    """Memory that a process leaves by them is in no ledger when it has ended. It is found within 2 s, and then counts; what
    is back is credited."""
    sim(sys.executable, "-c", CUDA + LEAVE + """
size = 256 << 20
kept = leave(size)
assert kept
wait(lambda: booked() == 0)
wait(lambda: booked() >= size)
assert not leave(size)
for f in kept:
    os.close(f)
wait(lambda: booked() == 0)
assert leave(size)
""", memory="1Gi")


def test_jobs_that_end_cost_the_next_one_nothing(sim):
    """Each takes all that is left, as soon as the one before has ended; and a process has a descriptor by which it could
    hold what they had."""
    sim(sys.executable, "-c", CUDA + VMM + LEAVE + """
here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
for i in range(200):
    if os.fork() == 0:
        begin()
        if i == 0:
            props.handle, fd = 1, ctypes.c_int()
            ok("cuMemCreate", ref(handle), u64(128 << 20), ref(props), u64(0))
            ok("cuMemExportToShareableHandle", ref(fd), handle, 1, u64(0))
            socket.send_fds(there, [b"x"], [fd.value])
        r, _ = take((2 << 30) - (576 << 20))
        time.sleep(i % 8 / 200)
        os._exit(r)
    if i == 0:
        kept = socket.recv_fds(here, 1, 1)[1]
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0, i
wait(lambda: booked() == 128 << 20)
assert kept
""", memory="2Gi")


def test_memory_that_comes_and_goes_frees_nothing(sim):
    """A process allocates and frees what is left all the time: the card's figure and its own in the list are then of
    different moments, which is no reason to credit what another descriptor keeps."""
    sim(sys.executable, "-c", CUDA + VMM + """
import os, time
begin()
props.handle = 1
fd = ctypes.c_int()
ok("cuMemCreate", ref(handle), u64(512 << 20), ref(props), u64(0))
ok("cuMemExportToShareableHandle", ref(fd), handle, 1, u64(0))
ok("cuMemRelease", handle)
left, end = free() >> 21 << 21, time.monotonic() + 8
while time.monotonic() < end:
    for _ in range(20):
        r, p = take(left)
        assert r == 0, r
        ok("cuMemFree_v2", p)
    assert free() >> 21 << 21 == left, (free(), left)
""", memory="2Gi")


def test_one_process_that_exports_and_frees(sim):
    """A thousand times what fits once: what its owner has freed stays booked no longer than a descriptor keeps it."""
    sim(sys.executable, "-c", CUDA + VMM + """
import os, time
begin()
props.handle = 1
size, fd = free() // 20 // (2 << 20) * (2 << 20), ctypes.c_int()
for i in range(1000):
    until = time.monotonic() + 60
    while (r := call("cuMemCreate", ref(handle), u64(size), ref(props), u64(0))) == 2 and time.monotonic() < until:
        pass
    assert r == 0, (i, r)
    ok("cuMemExportToShareableHandle", ref(fd), handle, 1, u64(0))
    ok("cuMemRelease", handle)
    if i == 0:
        kept = free()
        time.sleep(1)
        assert free() == kept        # the descriptor is open
    os.close(fd.value)
""", memory="2Gi", timeout=120)


def test_threads_that_export_the_same_handle(sim):
    """The ledger has no slot left for exported memory. Neither of two threads gets a descriptor, also while the other one
    is about to book the memory as exported."""
    sim(sys.executable, "-c", CUDA + VMM + """
import fcntl, struct
F_OFD_SETLK, SLOTS = 37, 1024
begin()
props.handle = 1
ok("cuMemCreate", ref(handle), u64(64 << 20), ref(props), u64(0))
ledger = os.open(os.environ["ALIQUOT_SHARE_DIR"] + "/ledger", os.O_RDWR)
fcntl.fcntl(ledger, F_OFD_SETLK, struct.pack("hhxxxxqqixxxx", fcntl.F_WRLCK, os.SEEK_SET, 1, SLOTS - 1, 0))
together, results = threading.Barrier(2), set()
def export():
    for _ in range(100):
        fd = ctypes.c_int()
        together.wait()
        results.add(call("cuMemExportToShareableHandle", ref(fd), handle, 1, u64(0)))
threads = [threading.Thread(target=export) for _ in range(2)]
for t in threads: t.start()
for t in threads: t.join()
assert results == {2}, results
""", memory="1Gi")
