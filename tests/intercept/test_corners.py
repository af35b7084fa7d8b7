# SPDX-License-Identifier: Apache-2.0
"""Ways around the books that must not exist, and neighbours in the process that must not be disturbed."""

import os
import signal
import struct
import subprocess
import sys

import pytest

GIB = 1 << 30

CUDA = f"""
import ctypes, os, threading
GIB = {GIB}
cuda = ctypes.CDLL("libcuda.so.1")
u64, ref = ctypes.c_uint64, ctypes.byref
def call(name, *arguments):
    return getattr(cuda, name)(*arguments)
def ok(name, *arguments):
    r = call(name, *arguments)
    assert r == 0, (name, r)
def begin():
    context = u64()
    ok("cuInit", 0); ok("cuDevicePrimaryCtxRetain", ref(context), 0); ok("cuCtxSetCurrent", context)
def free():
    f, t = u64(), u64()
    ok("cuMemGetInfo_v2", ref(f), ref(t))
    return f.value
def take(size):
    p = u64()
    return call("cuMemAlloc_v2", ref(p), u64(size)), p
"""


@pytest.fixture
def python(sim):
    def run(script, **options):
        return sim(sys.executable, "-c", CUDA + script, **{"memory": "4Gi", **options})
    return run


def test_a_pool_is_booked_by_what_it_holds(python):
    """With the threshold that PyTorch sets, freed memory stays in the pool: it stays booked, the pool may use it again,
    and when another process needs it the pool gives it back."""
    python("""
begin()
pool, p, threshold, held = u64(), u64(), u64(2**64 - 1), u64()
ok("cuDeviceGetDefaultMemPool", ref(pool), 0)
ok("cuMemPoolSetAttribute", pool, 4, ref(threshold))
before = free()
for _ in range(6):
    ok("cuMemAllocAsync", ref(p), u64(GIB), u64(0))
    ok("cuMemFreeAsync", p, u64(0))
ok("cuCtxSynchronize")
ok("cuMemPoolGetAttribute", pool, 5, ref(held))
assert held.value == GIB and free() == before - GIB, (held.value, before - free())

r, rest = take(free())          # all but what the pool keeps
assert r == 0 and free() == 0
ok("cuMemAllocAsync", ref(p), u64(GIB), u64(0))       # which it may still hand out
assert call("cuMemAllocAsync", ref(p), u64(GIB), u64(0)) == 2
ok("cuMemFreeAsync", p, u64(0))
ok("cuCtxSynchronize")
r, q = take(GIB)                # or give to others
assert r == 0, r
assert take(1)[0] == 2
""")


def test_a_pool_gives_back_at_a_wait(python):
    python("""
begin()
before, p = free(), u64()
ok("cuMemAllocAsync", ref(p), u64(GIB), u64(0))
ok("cuMemFreeAsync", p, u64(0))
ok("cuStreamSynchronize", u64(0))
assert free() == before
""")


def test_a_card_outside_the_share_gives_nothing(sim, aliquot):
    """Card 1 is in view but not in the share: neither a pool nor a context on it."""
    script = CUDA + """
class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
class Props(ctypes.Structure):
    _fields_ = [("alloc", ctypes.c_int), ("handle", ctypes.c_int), ("location", Location), ("security", ctypes.c_void_p),
                ("rest", ctypes.c_char * 64)]
begin()
props, pool, p, context = Props(alloc=1, location=Location(1, 1)), u64(), u64(), u64()
ok("cuMemPoolCreate", ref(pool), ref(props))
assert call("cuMemAllocFromPoolAsync", ref(p), u64(GIB), pool, u64(0)) == 2
assert call("cuDevicePrimaryCtxRetain", ref(context), 1) == 2
"""
    sim("env", "-u", "CUDA_VISIBLE_DEVICES", sys.executable, "-c", script, gpus=2, memory="4Gi", gpu=0)


def test_detached_contexts_are_gone(python):
    python("""
begin()
before, context, same, p = free(), u64(), u64(), u64()
ok("cuCtxCreate_v2", ref(context), 0, 0)
ok("cuCtxAttach", ref(same), 0)
ok("cuMemAlloc_v2", ref(p), u64(GIB))
held = free()
assert held < before - GIB
ok("cuCtxDetach", context)
assert free() == held
ok("cuCtxDetach", context)
primary = u64()
ok("cuDevicePrimaryCtxRetain", ref(primary), 0); ok("cuCtxSetCurrent", primary)
assert free() == before, (free(), before)
""")


def test_threads_that_begin_at_once_pay_for_one_context(python):
    """There is room for one."""
    python("""
results, start = [], threading.Barrier(8)
ok("cuInit", 0)
def retain():
    context = u64()
    start.wait()
    results.append(call("cuDevicePrimaryCtxRetain", ref(context), 0))
threads = [threading.Thread(target=retain) for _ in range(8)]
[t.start() for t in threads]; [t.join() for t in threads]
assert results == [0] * 8, results
for _ in range(8):
    ok("cuDevicePrimaryCtxRelease_v2", 0)
begin()
""", memory="600Mi")


def test_a_driver_in_a_namespace_of_its_own_is_limited(sim):
    opened = """
libc = ctypes.CDLL(None)
libc.dlmopen.restype = ctypes.c_void_p
cuda = ctypes.CDLL("driver", handle=libc.dlmopen(ctypes.c_long(-1), b"libcuda.so.1", 2))
"""
    script = CUDA.replace('cuda = ctypes.CDLL("libcuda.so.1")', opened) + """
begin()
assert take(5 * GIB)[0] == 2
assert take(GIB)[0] == 0
assert free() < 3 * GIB
"""
    sim(sys.executable, "-c", script, memory="4Gi")


@pytest.fixture
def nothing_driver(build, library, tmp_path):
    """The driver that does nothing and succeeds at everything, in a share of 4 GiB: what is refused, the books refuse."""
    device = b"GPU-01010101-0101-0101-0101-010101010101".ljust(48, b"\0") + struct.pack("<QQII", 4 * GIB, 0, 0, 0)
    copy = bytes(636) + struct.pack("<I", 1) + device + bytes(63 * 72)
    (tmp_path / "limits").write_bytes(struct.pack("<QIIQ", 0x31736c746c71615f, 1, 64 + 2 * len(copy), 0) + bytes(40) +
                                      copy * 2)
    with open(tmp_path / "ledger", "wb") as f:
        f.write(struct.pack("<QIII", 0x3172676c716c615f, 1, 64, 1024))
        f.truncate(128 + 64 * 128 + 1024 * (64 + 64 * 32))

    def run(script):
        subprocess.run([sys.executable, "-c", CUDA + script], check=True, timeout=30,
                       env={"LD_LIBRARY_PATH": str(build / "tests" / "bench" / "null"), "LD_PRELOAD": library,
                            "ALIQUOT_SHARE_DIR": str(tmp_path), "PATH": os.environ["PATH"]})
    return run


VMM = """
class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]
class Props(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle", ctypes.c_int), ("location", Location), ("win32", ctypes.c_void_p),
                ("flags", ctypes.c_uint64)]
handle, props = u64(5), Props(1, 1, Location(1, 0))
"""


def test_a_part_of_a_device_is_of_the_device(nothing_driver):
    """Where an id has the device in its first byte and the part in the second."""
    nothing_driver(VMM + """
part, host = Location(6, 0x100), Location(2, 0)
ok("cuMemCreate", ref(handle), u64(9 * GIB), ref(Props(1, 0, host)), u64(0))
assert call("cuMemCreate", ref(handle), u64(5 * GIB), ref(Props(1, 0, part)), u64(0)) == 2
ok("cuMemCreate", ref(handle), u64(3 * GIB), ref(Props(1, 0, part)), u64(0))
assert take(2 * GIB)[0] == 2
pool, p = u64(0x900), u64(0x50000000)
ok("cuMemPoolCreate", ref(pool), ref(Props(1, 0, part)))
assert call("cuMemAllocFromPoolAsync", ref(p), u64(2 * GIB), pool, u64(0)) == 2
""")


def test_no_pool_is_outside_the_books(python):
    """Each pool keeps what was freed. However many pools there are, they keep no more than the limit together."""
    python(VMM + """
class PoolProps(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle", ctypes.c_int), ("location", Location), ("rest", ctypes.c_char * 72)]
begin()
pools, r, p, keep, held = [], 0, u64(), u64(2**64 - 1), u64()
while r == 0 and len(pools) < 1000:
    pool = u64()
    r = call("cuMemPoolCreate", ref(pool), ref(PoolProps(1, 0, Location(1, 0))))
    if r == 0:
        ok("cuMemPoolSetAttribute", pool, 4, ref(keep))
        pools.append(pool)
assert r == 2 and len(pools) >= 255, (r, len(pools))
assert call("cuMemAllocAsync", ref(p), u64(GIB), u64(0)) == 2      # the default pool has no book either
for pool in pools[-16:]:
    ok("cuMemAllocFromPoolAsync", ref(p), u64(GIB), pool, u64(0))
    ok("cuMemFreeAsync", p, u64(0))
    ok("cuCtxSynchronize")
total = 0
for pool in pools:
    ok("cuMemPoolGetAttribute", pool, 5, ref(held))
    total += held.value
assert total <= 4 * GIB, total
ok("cuMemPoolDestroy", pools[0])
ok("cuMemPoolCreate", ref(pool), ref(PoolProps(1, 0, Location(1, 0))))
""")


def test_what_was_of_a_pool_ends_when_its_address_is_handed_out_again(nothing_driver):
    """The driver has freed it with its context. Then a pool that was destroyed holds nothing more."""
    nothing_driver(VMM + """
pool, other, p = u64(0x900), u64(0x901), u64(0x50000000)
for made in pool, other:
    ok("cuMemPoolCreate", ref(made), ref(Props(1, 0, Location(1, 0))))
ok("cuMemAllocFromPoolAsync", ref(p), u64(3 * GIB), pool, u64(0))
ok("cuMemPoolDestroy", pool)
assert take(2 * GIB)[0] == 2
ok("cuMemAllocFromPoolAsync", ref(p), u64(1), other, u64(0))
assert take(3 * GIB)[0] == 0
""")


@pytest.mark.parametrize("location", [0, 2, 3])
def test_a_managed_pool_is_booked_like_managed_memory(nothing_driver, location):
    """Wherever it begins, it may come to the card. A pool of host memory never does."""
    nothing_driver(VMM + f"""
pool, host, p = u64(0x900), u64(0x901), u64(0x50000000)
ok("cuMemPoolCreate", ref(pool), ref(Props(2, 0, Location({location}, 0))))
ok("cuMemPoolCreate", ref(host), ref(Props(1, 0, Location(2, 0))))
assert call("cuMemAllocFromPoolAsync", ref(p), u64(5 * GIB), pool, u64(0)) == 2
ok("cuMemAllocFromPoolAsync", ref(p), u64(3 * GIB), pool, u64(0))
assert take(2 * GIB)[0] == 2
ok("cuMemFreeAsync", p, u64(0))
assert take(2 * GIB)[0] == 0
q = u64(0x60000000)
ok("cuMemAllocFromPoolAsync", ref(q), u64(9 * GIB), host, u64(0))
""")


@pytest.mark.parametrize("exported", [False, True])
def test_exported_memory_stays_booked(nothing_driver, exported):
    nothing_driver(VMM + f"""
ok("cuMemCreate", ref(handle), u64(3 * GIB), ref(props), u64(0))
if {exported}:
    ok("cuMemExportToShareableHandle", ref(ctypes.c_int()), handle, 1, u64(0))
ok("cuMemRelease", handle)
assert take(2 * GIB)[0] == (2 if {exported} else 0)
""")


def test_an_unmap_takes_every_mapping_in_its_range(nothing_driver):
    """Also behind one of memory that is not in our books (imported)."""
    nothing_driver(VMM + """
ok("cuMemCreate", ref(handle), u64(3 * GIB), ref(props), u64(0))
ok("cuMemMap", u64(0x10000000), u64(0x1000), u64(0), u64(99), u64(0))
ok("cuMemMap", u64(0x10001000), u64(0x1000), u64(0), handle, u64(0))
ok("cuMemRelease", handle)
assert take(2 * GIB)[0] == 2
ok("cuMemUnmap", u64(0x10000000), u64(0x2000))
assert take(2 * GIB)[0] == 0
""")


def test_unusable_shares_show_no_memory(sim, programs, library, tmp_path):
    (tmp_path / "limits").write_bytes(b"")
    done = sim("sh", "-c", f"(echo memory; echo info) | {programs}/holder",
               env={"LD_PRELOAD": library, "ALIQUOT_SHARE_DIR": str(tmp_path)})
    assert done.stdout.splitlines()[0] == "0 0 0 0 0 0"


def build_library(tmp_path, name, source):
    path = tmp_path / name
    (tmp_path / f"{name}.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", path, tmp_path / f"{name}.c"], check=True)
    return str(path)


def build_program(tmp_path, source):
    (tmp_path / "main.c").write_text(source)
    subprocess.run(["gcc", "-o", tmp_path / "main", tmp_path / "main.c", "-ldl"], check=True)
    return str(tmp_path / "main")


def test_an_interposer_before_us_comes_first(tmp_path, library, build):
    first = build_library(tmp_path, "first.so", "int cuInit(unsigned f) { return 77 + f; }\n")
    program = build_program(tmp_path, '#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {\n'
                            'dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);\n'
                            'int (*f)(unsigned) = dlsym(RTLD_DEFAULT, "cuInit"), (*g)(unsigned) = dlsym(RTLD_NEXT, "cuInit");\n'
                            'printf("%d %d\\n", f(0), g(0)); return 0; }\n')
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True,
                          env={"LD_PRELOAD": f"{first}:{library}", "LD_LIBRARY_PATH": str(build / "src" / "sim")})
    assert done.stdout == "77 77\n"


def test_an_interposer_of_dlsym_behind_us_is_asked(tmp_path, library):
    other = build_library(tmp_path, "other.so", '#include <string.h>\nvoid *dlsym(void *h, const char *n) {\n'
                          '(void) h; return strcmp(n, "magic") == 0 ? (void *) 42 : (void *) 0; }\n')
    program = build_program(tmp_path, '#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\nint main(void) {\n'
                            'printf("%ld\\n", (long) dlsym(RTLD_DEFAULT, "magic")); return 0; }\n')
    done = subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True,
                          env={"LD_PRELOAD": f"{library}:{other}"})
    assert done.stdout == "42\n"


def test_with_sigchld_ignored(aliquot):
    done = subprocess.run([aliquot, "sim", "--", aliquot, "run", "--memory", "1Gi", "--", "sh", "-c", "exit 3"], timeout=30,
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.returncode == 3


def test_on_a_stacked_file_system(aliquot, programs, library, tmp_path):
    """On overlayfs a mapping does not keep a lock: slots must not look dead."""
    for name in ("lower", "upper", "work", "merged"):
        (tmp_path / name).mkdir()
    share = tmp_path / "merged"
    script = (f"mount -t overlay overlay -o lowerdir={tmp_path}/lower,upperdir={tmp_path}/upper,workdir={tmp_path}/work {share}"
              f" && {aliquot} run --memory 4Gi -- sh -c 'cp $ALIQUOT_SHARE_DIR/* {share}/' && mkfifo {tmp_path}/hold && "
              f"export LD_PRELOAD={library} ALIQUOT_SHARE_DIR={share} && "
              f"(echo take {3 * GIB}; cat {tmp_path}/hold) | {programs}/holder > {tmp_path}/first & "
              f"while ! grep -q . {tmp_path}/first 2>/dev/null; do sleep 0.05; done; "
              f"export LD_PRELOAD={library} ALIQUOT_SHARE_DIR={share}; "
              f"(echo take {2 * GIB}; echo take 1000) | {programs}/holder; : > {tmp_path}/hold; wait")
    done = subprocess.run([aliquot, "sim", "--", "unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60, env=dict(os.environ))
    assert (tmp_path / "first").read_text() == "0\n", done.stderr
    assert done.stdout.splitlines() == ["2", "0"], done.stderr
