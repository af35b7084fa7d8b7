# SPDX-License-Identifier: Apache-2.0
"""NULL where a pointer belongs, in every hooked call of CUDA: no call crashes with the library that does not without it."""

import signal
import sys

from abi import CUDA as ROWS
from test_corners import CUDA

HOOKED = sorted({row.symbol for row in ROWS if row.kind == "HOOK"})

# Each with zeros for all arguments, then with one pointer that is good, behind one that is none; says each name first.
SCRIPT = CUDA + """
import sys
nothing = [u64(0)] * 12
room = ctypes.create_string_buffer(4096)
some = [u64(0), room] + [u64(0)] * 10
for name in sys.argv[1:]:
    for arguments in (nothing, some):
        begin()
        print(name, flush=True)
        call(name, *arguments)
"""


def crashers(sim, **share):
    """The names that ended the process, each by a signal."""
    left, found = list(HOOKED), {}
    while left:
        done = sim(sys.executable, "-c", SCRIPT, *left, check=False, **share)
        last = done.stdout.split()[-1]
        if done.returncode == 0:
            assert last == left[-1]
            break
        assert last in left, (last, done.stderr)
        found[last] = done.returncode
        left = left[left.index(last) + 1:]
    return found


def test_null_pointers_never_crash_in_us(sim):
    plain, inside = crashers(sim), crashers(sim, memory="4Gi")
    assert set(inside) - set(plain) == set(), (inside, plain)
    assert all(status == 128 + signal.SIGSEGV for status in inside.values()), inside
    assert len(plain) < len(HOOKED) / 4
