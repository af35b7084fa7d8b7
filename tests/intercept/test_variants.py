# SPDX-License-Identifier: Apache-2.0
"""Every exported variant of every call that takes memory is booked when it takes, refused when it does not fit, and given
back by every variant of its counterpart."""

import re
import sys

import handmade
import pytest
from abi import CUDA as ROWS
from test_corners import CUDA, GIB, VMM, nothing_driver  # noqa: F401 (a fixture)


SCRIPT = CUDA + VMM + """
class Small(ctypes.Structure):       # the older descriptors: 32-bit sizes
    _fields_ = [("w", ctypes.c_uint), ("h", ctypes.c_uint), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]
class Flat(ctypes.Structure):
    _fields_ = [("w", ctypes.c_size_t), ("h", ctypes.c_size_t), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]
class SmallDeep(ctypes.Structure):
    _fields_ = [("w", ctypes.c_uint), ("h", ctypes.c_uint), ("d", ctypes.c_uint), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]
class Deep(ctypes.Structure):
    _fields_ = [("w", ctypes.c_size_t), ("h", ctypes.c_size_t), ("d", ctypes.c_size_t), ("format", ctypes.c_int),
                ("channels", ctypes.c_uint), ("flags", ctypes.c_uint)]
class PoolProps(ctypes.Structure):
    _fields_ = [("alloc", ctypes.c_int), ("handles", ctypes.c_int), ("location", Location), ("security", ctypes.c_void_p),
                ("rest", ctypes.c_char * 64)]
props.handle = 0
p, pitch, small, nothing, context = u64(), u64(), ctypes.c_uint(), u64(0), u64()
begin()
pool = u64()
ok("cuMemPoolCreate", ref(pool), ref(PoolProps(alloc=1, location=Location(1, 0))))
MIB = 1 << 20

def take_rest():
    "All but 64 MiB."
    assert take(free() - 64 * MIB)[0] == 0
"""

# symbol: (the call that takes, with N for the number of MiB, what it gives)
TAKES = {
    "cuMemAlloc": ('call("cuMemAlloc", ref(small), ctypes.c_uint(N * MIB))', "small"),
    "cuMemAlloc_v2": ('call("cuMemAlloc_v2", ref(p), u64(N * MIB))', "pointer"),
    "cuMemAllocManaged": ('call("cuMemAllocManaged", ref(p), u64(N * MIB), 1)', "pointer"),
    "cuMemAllocPitch": ('call("cuMemAllocPitch", ref(small), ref(ctypes.c_uint()), MIB, N, 4)', "small"),
    "cuMemAllocPitch_v2": ('call("cuMemAllocPitch_v2", ref(p), ref(pitch), u64(MIB), u64(N), 4)', "pointer"),
    "cuMemAllocAsync": ('call("cuMemAllocAsync", ref(p), u64(N * MIB), nothing)', "pointer"),
    "cuMemAllocAsync_ptsz": ('call("cuMemAllocAsync_ptsz", ref(p), u64(N * MIB), nothing)', "pointer"),
    "cuMemAllocFromPoolAsync": ('call("cuMemAllocFromPoolAsync", ref(p), u64(N * MIB), pool, nothing)', "pointer"),
    "cuMemAllocFromPoolAsync_ptsz": ('call("cuMemAllocFromPoolAsync_ptsz", ref(p), u64(N * MIB), pool, nothing)', "pointer"),
    "cuMemCreate": ('call("cuMemCreate", ref(p), u64(N * MIB), ref(props), nothing)', "handle"),
    "cuArrayCreate": ('call("cuArrayCreate", ref(p), ref(Small(1024, 256 * N, 0x20, 1)))', "array"),
    "cuArrayCreate_v2": ('call("cuArrayCreate_v2", ref(p), ref(Flat(1024, 256 * N, 0x20, 1)))', "array"),
    "cuArray3DCreate": ('call("cuArray3DCreate", ref(p), ref(SmallDeep(1024, 256, N, 0x20, 1, 0)))', "array"),
    "cuArray3DCreate_v2": ('call("cuArray3DCreate_v2", ref(p), ref(Deep(1024, 256, N, 0x20, 1, 0)))', "array"),
    "cuMipmappedArrayCreate": ('call("cuMipmappedArrayCreate", ref(p), ref(Deep(1024, 256 * N, 0, 0x20, 1, 0)), 2)', "mipmap"),
}
GIVES = {
    "small": ["cuMemFree"],
    "pointer": ["cuMemFree_v2"],
    "handle": ["cuMemRelease"],
    "array": ["cuArrayDestroy"],
    "mipmap": ["cuMipmappedArrayDestroy"],
    "stream": ["cuMemFreeAsync", "cuMemFreeAsync_ptsz"],
}


# Those of CUDA before 3.2, with 32-bit sizes, which the simulated driver refuses.
OLDEST = {"cuMemAlloc", "cuMemAllocPitch", "cuArrayCreate", "cuArray3DCreate"}


def cases(oldest):
    for symbol, (take, kind) in TAKES.items():
        if (symbol in OLDEST) != oldest:
            continue
        gives = GIVES[kind] + (GIVES["stream"] if "Async" in symbol else [])
        for give in gives:
            handle = "small" if kind == "small" else "p"
            back = f'ok("{give}", {handle}, nothing)' if "Async" in give else f'ok("{give}", {handle})'
            yield pytest.param(take, back, id=f"{symbol}-{give}")


def of(take, mebibytes):
    """The call that takes so much."""
    return re.sub(r"\bN\b", str(mebibytes), take)


@pytest.mark.parametrize("take, back", list(cases(oldest=True)))
def test_the_oldest_variants_are_booked_too(nothing_driver, take, back):  # noqa: F811
    nothing_driver(SCRIPT + f"""
small.value = p.value = 0x7000
assert {of(take, 4)} == 0
least = 4 * MIB
assert take(4 * GIB - least + 1)[0] == 2
{back}
assert take(4 * GIB - least + 1)[0] == 0
assert {of(take, 4)} == 2
""")


@pytest.mark.parametrize("take, back", list(cases(oldest=False)))
def test_booked_refused_and_given_back(sim, take, back):
    sim(sys.executable, "-c", SCRIPT + f"""
before = free()
r = {of(take, 4)}
assert r == 0, r
taken = before - free()
assert 4 * MIB <= taken <= 12 * MIB, taken
{back}
ok("cuCtxSynchronize")
ok("cuMemPoolTrimTo", pool, u64(0))
assert free() == before, before - free()
take_rest()
r = {of(take, 65)}
assert r == 2, r
assert free() == 64 * MIB
""", memory="2Gi")


def test_no_variant_is_forgotten():
    """Every hooked symbol whose name says that it takes memory has its row above."""
    takers = {row.symbol for row in ROWS if row.kind == "HOOK" and
              re.match("cuMem(Alloc|Create)|cu(Mipmapped)?Array(3D)?Create", row.symbol)}
    assert takers == set(TAKES)


# -- contexts ---------------------------------------------------------------------------------------------------------

CREATES = {
    "cuCtxCreate": "ref(c), 0, 0",
    "cuCtxCreate_v2": "ref(c), 0, 0",
    "cuCtxCreate_v3": "ref(c), None, 0, 0, 0",
    "cuCtxCreate_v4": "ref(c), None, 0, 0",
}
ENDS = ["cuCtxDestroy", "cuCtxDestroy_v2"]
PRIMARY_ENDS = ["cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxReset",
                "cuDevicePrimaryCtxReset_v2"]
LIFE = """
ok("cuInit", 0)
c = u64(0x5000)
r, p = take(3 * GIB + 1)
assert r == 0 and call({create}) == 2
ok("cuMemFree_v2", p)
ok({create})
assert take(3 * GIB + 1)[0] == 2
ok({end})
assert take(4 * GIB)[0] == 0
"""


@pytest.fixture
def costly_contexts(nothing_driver, tmp_path):  # noqa: F811
    """A share of 4 GiB, of which each context takes one."""
    handmade.make(tmp_path, handmade.card("GPU-01010101-0101-0101-0101-010101010101", 4 * GIB, context=GIB))
    return nothing_driver


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("create", CREATES)
def test_contexts_by_every_variant(costly_contexts, create, end):
    costly_contexts(LIFE.format(create=f'"{create}", {CREATES[create]}', end=f'"{end}", c'))


@pytest.mark.parametrize("end", PRIMARY_ENDS)
def test_primary_contexts_by_every_variant(costly_contexts, end):
    costly_contexts(LIFE.format(create='"cuDevicePrimaryCtxRetain", ref(c), 0', end=f'"{end}", 0'))


# -- nodes that allocate ----------------------------------------------------------------------------------------------

NODES = {
    "cuGraphAddNode": "ref(node), graph, None, u64(0), params",
    "cuGraphAddNode_v2": "ref(node), graph, None, None, u64(0), params",
    "cuGraphAddNode_v3": "ref(node), graph, None, None, u64(0), params",
}


@pytest.mark.parametrize("add", NODES)
def test_nodes_by_every_variant(sim, add):
    """A graph with one node that allocates and one that frees, of a size that fits and of one that does not."""
    sim(sys.executable, "-c", CUDA + f"""
import struct
begin()
before = free()

def instantiated(size):
    graph, node, freed, executable = u64(), u64(), u64(), u64()
    ok("cuGraphCreate", ref(graph), 0)
    params = ctypes.create_string_buffer(struct.pack("<i12xiiii72xQQQQ", 10, 1, 0, 1, 0, 0, 0, size, 0), 256)
    ok("{add}", {NODES[add]})
    pointer = u64(struct.unpack_from("<Q", params, 16 + 112)[0])
    ok("cuGraphAddMemFreeNode", ref(freed), graph, ref(node), u64(1), pointer)
    return call("cuGraphInstantiateWithFlags", ref(executable), graph, u64(0)), executable

assert instantiated(3 * GIB)[0] == 2
r, executable = instantiated(GIB)
assert r == 0, r
ok("cuGraphLaunch", executable, u64(0))
ok("cuCtxSynchronize")
assert free() == before - GIB, before - free()
ok("cuGraphExecDestroy", executable)
ok("cuDeviceGraphMemTrim", 0)
assert free() == before
""", memory="2Gi")


def test_no_variant_of_a_context_or_a_node_is_forgotten():
    def hooked(pattern):
        return {row.symbol for row in ROWS if row.kind == "HOOK" and re.match(pattern, row.symbol)}
    assert hooked("cuCtxCreate") == set(CREATES) and hooked("cuCtxDestroy") == set(ENDS)
    assert hooked("cuDevicePrimaryCtxRe(lease|set)") == set(PRIMARY_ENDS)
    assert hooked("cuGraphAddNode") == set(NODES)
