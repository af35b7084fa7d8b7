# SPDX-License-Identifier: Apache-2.0
"""Processes of one container that end, stop, fork, exec and live in namespaces of their own: what a dead one held is
there at once for who needs it, and nothing of a living one is."""

import sys

import pytest
from test_corners import CUDA, nothing_driver  # noqa: F401 (a fixture)

GIB = 1 << 30

# In a slice of 4 GiB: starts processes that take memory, and judges by what it can take itself.
WORLD = CUDA + """
import ctypes, os, signal, struct, subprocess, sys, time
PREAMBLE = os.environ["PREAMBLE"]

class Process:
    def __init__(self, script, prefix=()):
        self.p = subprocess.Popen([*prefix, sys.executable, "-c", PREAMBLE + script], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
    def said(self):
        return self.p.stdout.readline().strip()
    def kill(self):
        self.p.kill(); self.p.wait()

HOLD = '''
begin()
assert take(3 * GIB)[0] == 0
print("holds", flush=True)
'''

def holder(more="sys.stdin.read()", prefix=()):
    p = Process(HOLD + more, prefix)
    assert p.said() == "holds"
    return p

def full():
    assert take(2 * GIB)[0] == 2

def room():
    "Takes at once what was held, without waiting for anything."
    r, p = take(3 * GIB)
    assert r == 0, r
    ok("cuMemFree_v2", p)

def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
begin()
"""


@pytest.fixture
def world(sim):
    def run(script):
        sim(sys.executable, "-c", WORLD + script, memory="4800Mi", env={"PREAMBLE": CUDA + "import sys\n"})
    return run


def test_a_kill(world):
    world("""
before = free()
p = holder(); full()
p.kill(); room()
times = []
while not times or min(times) >= 0.1:       # a machine that is busy otherwise only ever adds to it
    assert len(times) < 25, times
    p = holder()
    assert free() < before - 3 * GIB
    p.kill()
    killed = time.monotonic()
    within(60, lambda: free() == before)
    times.append(time.monotonic() - killed)
""")


def test_a_stopped_holder_holds_up_nobody(world):
    world("""
p = holder()
os.kill(p.p.pid, signal.SIGSTOP)
full()
r, q = take(GIB // 2)
assert r == 0
ok("cuMemFree_v2", q)
p.kill(); room()
""")


def test_exec_without_fork(world):
    """The process goes on under the same PID as a program without CUDA, and the driver has released its memory."""
    world("""
p = holder("os.execv('/bin/sh', ['sh', '-c', 'echo ran; read x'])")
assert p.said() == "ran"
room()
p.kill()
""")


def test_a_forked_child_that_outlives_its_parent(world):
    """It has the driver's descriptors, and with them the memory: the slot lives as long as one of the two."""
    world("""
p = holder("child = os.fork(); child and print(child, flush=True); sys.stdin.read()")
child = int(p.said())
full()
os.kill(p.p.pid, signal.SIGKILL); p.p.wait()
full()
os.kill(child, signal.SIGKILL)
within(60, lambda: take(3 * GIB)[0] == 0)
""")


def test_a_forked_child_that_executes_another_program(world):
    """The descriptors and the slot are closed on exec: nothing is left of its parent's."""
    world("""
p = holder("child = os.fork(); child or os.execv('/bin/sleep', ['sleep', '60']); print(child, flush=True);"
           "sys.stdin.read()")
child = int(p.said())
within(60, lambda: open(f"/proc/{child}/comm").read() == "sleep\\n")
full()
p.kill(); room()
os.kill(child, signal.SIGKILL)
""")


@pytest.mark.parametrize("way", ["os.fork()", "libc.syscall(57)", "libc.syscall(56, 17, 0, 0, 0, 0)"],
                         ids=["fork", "fork by system call", "clone by system call"])
def test_a_child_without_exec_books_for_itself(nothing_driver, way):
    """Whichever way it came to life, and though its parent has a slot: it gets one of its own, and its end takes nothing
    from its parent. (A driver would refuse it; the one that does nothing shows the books.)"""
    nothing_driver(f"""
import signal
libc = ctypes.CDLL(None)
begin()
assert take(GIB)[0] == 0
r, w = os.pipe()
child = {way}
if child == 0:
    os.write(w, b"%d" % take(2 * GIB)[0])
    while True:
        signal.pause()
assert os.read(r, 1) == b"0"
assert take(2 * GIB)[0] == 2
os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
assert take(2 * GIB)[0] == 0
assert take(2 * GIB)[0] == 2
""")


def test_a_pid_that_is_used_again(world):
    """A dead process's slot bears the PID of one that lives: it is dead all the same."""
    world("""
p = holder()
with open(os.environ["ALIQUOT_SHARE_DIR"] + "/ledger", "r+b") as f:
    for slot in range(1024):
        at = 128 + 64 * 128 + slot * (64 + 64 * 32)
        f.seek(at)
        if struct.unpack("<I", f.read(4))[0] == p.p.pid:
            f.seek(at); f.write(struct.pack("<I", 1))
            break
    else:
        raise AssertionError("no slot of the holder")
full()
p.kill(); room()
""")


def test_nested_pid_namespaces(world):
    """Two processes with PID 1: neither is taken for the other, or for dead."""
    world("""
nested = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
p = holder("print(os.getpid(), flush=True); sys.stdin.read()", nested)
assert p.said() == "1"
q = Process("begin(); print(take(2 * GIB)[0], take(GIB // 8)[0], flush=True); sys.stdin.read()", nested)
assert q.said() == "2 0"
q.kill()
full()
p.kill()
within(60, lambda: take(3 * GIB)[0] == 0)      # it is the kernel that ends the child of unshare
""")


def test_closing_every_descriptor_gives_nothing_up(world):
    world("""
p = holder("os.closerange(3, 1024); print('closed', flush=True); sys.stdin.read()")
assert p.said() == "closed"
full()
p.kill(); room()
""")
