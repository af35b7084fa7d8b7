# SPDX-License-Identifier: Apache-2.0
"""More memory than the container may have on the card: served from the host's memory, and the bound on what is on the
card holds to the byte."""

import os
import sys

import handmade
import pytest
from test_bad_input import uuid  # noqa: F401 (a fixture)
from test_corners import CUDA, VMM

GIB = 1 << 30

SCRIPT = CUDA + VMM + """
def managed(size):
    p = u64()
    return call("cuMemAllocManaged", ref(p), u64(size), 1), p
def attribute(p, which):
    value = ctypes.c_uint(77)
    ok("cuPointerGetAttribute", ref(value), which, u64(p.value + 4096))
    kinds, values = (ctypes.c_int * 2)(which, which), (ctypes.c_uint * 2)(77, 77)
    data = (ctypes.c_void_p * 2)(ctypes.addressof(values), ctypes.addressof(values) + 4)
    ok("cuPointerGetAttributes", 2, kinds, data, p)
    assert list(values) == [value.value] * 2
    return value.value
def total():
    f, t = u64(), u64()
    ok("cuMemGetInfo_v2", ref(f), ref(t))
    return t.value
props = Props(1, 0, Location(1, 0))
begin()
"""


@pytest.fixture
def python(sim, library, uuid, tmp_path):  # noqa: F811
    def run(script, memory=8 * GIB, physical=2 * GIB, overhead=0):
        handmade.make(tmp_path, handmade.card(uuid, memory, physical=physical, overhead=overhead))
        return sim(sys.executable, "-c", SCRIPT + f"UUID = {uuid!r}\n" + script, env={"LD_PRELOAD": library, "ALIQUOT_SHARE_DIR": str(tmp_path)})
    return run


def test_what_does_not_fit_on_the_card_is_served_all_the_same(python):
    python("""
before = free()
assert total() == before == 8 * GIB
r, p = take(GIB)
s, q = take(3 * GIB)                          # more than is left on the card
assert (r, s) == (0, 0) and free() == before - 4 * GIB
t, x = take(GIB // 2)                         # and this fits there again
assert t == 0
assert take(free() + 1)[0] == 2               # the limit itself is still one
ok("cuMemFree_v2", p); ok("cuMemFree_v2", q); ok("cuMemFree_v2", x)
assert free() == before
r, p = take(free())                           # to the byte
assert r == 0 and free() == 0 and take(1)[0] == 2
ok("cuMemFree_v2", p)
assert free() == before
""")


def test_a_larger_view_than_the_card(python):
    python("""
assert total() == free() == 200 * GIB
assert [take(40 * GIB)[0] for _ in range(3)] == [0, 0, 0]
""", memory=200 * GIB, physical=70 * GIB)


def test_memory_that_must_be_on_the_card_stays_within_its_bound(python):
    python("""
ok("cuMemCreate", ref(handle), u64(GIB), ref(props), u64(0))
r, p = take(GIB)
assert r == 0
assert call("cuMemCreate", ref(u64()), u64(1 << 21), ref(props), u64(0)) == 2
context = u64()
ok("cuMemFree_v2", p)
ok("cuMemCreate", ref(u64()), u64(GIB), ref(props), u64(0))
""")


def test_it_looks_like_memory_of_the_device(python):
    python("""
MEMORY_TYPE, IS_MANAGED = 2, 8
_, here = take(GIB)
_, away = take(2 * GIB)
_, asked = managed(2 * GIB)
assert [attribute(p, IS_MANAGED) for p in (here, away, asked)] == [0, 0, 1]
assert [attribute(p, MEMORY_TYPE) for p in (here, away)] == [2, 2]
assert [attribute(u64(away.value + i), IS_MANAGED) for i in (1, 2, 4095)] == [0] * 3
""")


def test_no_hint_brings_it_to_the_card(python):
    """They are hints: the program is told that it is done."""
    python("""
_, p = managed(3 * GIB)
for advice in (1, 3, 4):
    ok("cuMemAdvise", p, u64(3 * GIB), advice, 0)
ok("cuMemPrefetchAsync", p, u64(3 * GIB), 0, u64(0))
ok("cuMemPrefetchAsync_ptsz", u64(p.value + GIB), u64(GIB), 0, u64(0))
""")


def test_freed_in_stream_order(python):
    python("""
before, p = free(), u64()
ok("cuMemAllocAsync", ref(p), u64(3 * GIB), u64(0))
assert free() == before - 3 * GIB
ok("cuMemFreeAsync", p, u64(0))
assert free() == before
""")


def test_pitched(python):
    python("""
before, p, pitch = free(), u64(), u64()
ok("cuMemAllocPitch_v2", ref(p), ref(pitch), u64(100001), u64(30000), 4)
assert pitch.value >= 100001 and before - free() == pitch.value * 30000
ok("cuMemFree_v2", p)
assert free() == before
""")


def test_overhead_is_on_the_card(python):
    """What the driver holds unasked takes from both."""
    python("""
assert free() == 7 * GIB
assert call("cuMemCreate", ref(handle), u64(GIB + (1 << 21)), ref(props), u64(0)) == 2
ok("cuMemCreate", ref(handle), u64(GIB), ref(props), u64(0))
""", overhead=GIB)


def test_the_bound_holds_when_a_lowered_limit_is_raised_again(python, tmp_path):
    """Also for who started while the limit was as low as what may be on the card."""
    python(f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
import handmade, pathlib
assert total() == 2 * GIB
handmade.change(pathlib.Path(os.environ["ALIQUOT_SHARE_DIR"]), handmade.card(UUID, 8 * GIB, physical=2 * GIB))
assert total() == 8 * GIB
ok("cuMemCreate", ref(handle), u64(2 * GIB), ref(props), u64(0))
assert call("cuMemCreate", ref(u64()), u64(1 << 21), ref(props), u64(0)) == 2
assert take(GIB)[0] == 0
""", memory=2 * GIB)


def test_a_context_that_does_not_fit_on_the_card_any_more(python, tmp_path):
    """A dead process's part of the card is there for the next."""
    python("""
import subprocess, sys
first = subprocess.Popen([sys.executable, "-c", '''%s
begin()
assert take(2 * GIB)[0] == 0
print("x", flush=True); os.read(0, 1)''' % PREAMBLE], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
assert first.stdout.readline() == b"x\\n"
assert call("cuMemCreate", ref(handle), u64(GIB), ref(props), u64(0)) == 2
first.kill(); first.wait()
ok("cuMemCreate", ref(handle), u64(2 * GIB), ref(props), u64(0))
""".replace("PREAMBLE", repr(CUDA)))


def test_what_is_on_the_card_never_passes_the_bound(python, programs):
    """As the card itself says, while a program touches more than it may have there, by everything that brings managed
    memory to the card."""
    python("""
import subprocess
def card():
    clean = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "ALIQUOT_SHARE_DIR")}
    return int(subprocess.run(["HOLDER"], input="memory\\n", text=True, stdout=subprocess.PIPE, env=clean,
                              check=True).stdout.split()[0])
PART = 32 << 20
before = card()
def touch(p, size):
    ok("cuMemsetD8_v2", p, 1, u64(size))
    assert call("cuMemPrefetchAsync", p, u64(size), 0, u64(0)) in (0, 1)     # 1: not managed memory
    ok("cuCtxSynchronize")
    assert card() - before <= 4 * PART, card() - before
held = []
for _ in range(5):
    r, p = take(PART)
    assert r == 0
    touch(p, PART)
    r, q = managed(PART)
    assert r == 0
    ok("cuMemAdvise", q, u64(PART), 3, 0)
    ok("cuMemPrefetchAsync", q, u64(PART), 0, u64(0))
    touch(q, PART)
    held += [p, q]
for p in held:
    touch(p, PART)
for p in held:
    ok("cuMemFree_v2", p)
assert card() == before and free() == 16 * PART
""".replace("HOLDER", str(programs / "holder")), memory=512 << 20, physical=128 << 20)
