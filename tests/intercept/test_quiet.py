# SPDX-License-Identifier: Apache-2.0
"""What the library does not do: no system call where nothing is refused, and no thread before the first launch."""

import os
import struct
import subprocess
import sys

import handmade
import pytest
from test_corners import CUDA, GIB

CARD = handmade.card("GPU-01010101-0101-0101-0101-010101010101", 4 * GIB, core=50)
COMPUTE_MAGIC, COMPUTE_SIZE = 0x31706d6f63715f61, 128 + 64 * 256

SCRIPT = CUDA + """
import gc
cuda.cuMemAlloc_v2.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
pointer = u64()
at = ctypes.addressof(pointer)

def churn(times):
    for _ in range(times):
        assert cuda.cuMemAlloc_v2(at, 65536) == 0 and cuda.cuMemFree_v2(pointer.value) == 0

begin()
churn(100)
gc.disable()
"""


@pytest.fixture
def command(build, library, tmp_path):
    """A command line and an environment: a program on the driver that does nothing, in a share with all its files."""
    handmade.make(tmp_path, CARD)
    (tmp_path / "compute").write_bytes(struct.pack("<QII", COMPUTE_MAGIC, 1, COMPUTE_SIZE).ljust(COMPUTE_SIZE, b"\0"))
    environment = {"LD_LIBRARY_PATH": str(build / "tests" / "bench" / "null"), "ALIQUOT_SHARE_DIR": str(tmp_path),
                   "PATH": os.environ["PATH"]}
    return lambda script: (["env", f"LD_PRELOAD={library}", sys.executable, "-c", SCRIPT + script], environment)


def calls_between_marks(trace):
    """Of the program's own thread; a mark is a system call that nothing else makes."""
    lines = trace.read_text().splitlines()
    first, last = (i for i, line in enumerate(lines) if line.startswith("getpgid("))
    return lines[first + 1:last]


@pytest.mark.parametrize("between, quiet", [("churn(1000)", True), ("take(4 * GIB)", False)], ids=["granted", "refused"])
def test_memory_without_system_calls(command, tmp_path, between, quiet):
    """A refusal checks for dead processes; so that a trace is known to show what there is, that is traced too."""
    line, environment = command(f"mark = os.getpgid\nr, p = take(GIB)\nassert r == 0\nmark(0)\n{between}\nmark(0)\n")
    subprocess.run(["strace", "-qq", "-o", tmp_path / "trace", *line], env=environment, check=True, timeout=60)
    assert (calls_between_marks(tmp_path / "trace") == []) == quiet


def test_no_thread_before_the_first_launch(command):
    line, environment = command("""
def threads():
    return len(os.listdir("/proc/self/task"))
assert take(5 * GIB)[0] == 2
assert threads() == 1, "a thread, and nothing was launched"
for _ in range(1000):
    ok("cuLaunchKernel", u64(0x1000), 1, 1, 1, 1, 1, 1, 0, u64(0), None, None)
print(threads())
""")
    done = subprocess.run(line, env=environment, check=True, timeout=60, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) == 2
