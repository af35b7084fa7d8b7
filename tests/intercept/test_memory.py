# SPDX-License-Identifier: Apache-2.0
"""Memory limits on the simulated driver: every kind counted, to the byte, by any number of processes, also when they
are killed."""

import os
import re
import subprocess
import sys
import time

import handmade
import pytest
from test_corners import CUDA

GIB = 1 << 30


class Holders:
    """Several processes in one slice (or none), each told what to do line by line."""

    def __init__(self, aliquot, program, memory=None, gpus=1, env=None):
        self.program = str(program)
        command = [aliquot, "sim", "--gpus", str(gpus), "--"]
        command += [aliquot, "run", "--memory", str(memory), "--"] if memory else []
        # A shell that starts holders on request and connects each to fifos would be more than needed: the server
        # below forks them and passes lines on.
        command += ["python3", "-c", SERVER, self.program]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       env=dict(os.environ, **(env or {})))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stdin.close()
        self.server.wait(timeout=20)
        self.server.stdout.close()

    def ask(self, holder, what):
        self.server.stdin.write(f"{holder} {what}\n")
        self.server.stdin.flush()
        return self.server.stdout.readline().strip()

    def kill(self, holder):
        assert self.ask(holder, "KILL") == "killed"


SERVER = """
import subprocess, sys
holders = {}
for line in sys.stdin:
    name, what = line.rstrip().split(" ", 1)
    if name not in holders:
        holders[name] = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    p = holders[name]
    if what == "KILL":
        p.kill(); p.wait(); del holders[name]
        print("killed", flush=True)
    else:
        p.stdin.write(what + "\\n"); p.stdin.flush()
        print(p.stdout.readline().rstrip(), flush=True)
for p in holders.values():
    p.stdin.close(); p.wait()
"""


@pytest.fixture
def holders(aliquot, programs):
    return lambda **options: Holders(aliquot, programs / "holder", **options)


def test_every_kind_is_counted_and_given_back(sim, programs):
    assert sim(programs / "kinds", memory="4Gi").stdout.startswith(f"ok total={4 * GIB} ")


def test_memory_of_graphs_is_counted_and_refused_in_time(sim, programs):
    assert sim(programs / "graphs", memory="4Gi").stdout == "ok\n"


def test_without_a_share_everything_passes_through(sim, programs, library):
    """The library alone, without limits, changes nothing."""
    plain = sim(programs / "racer", 2, check=False, timeout=120).stdout.split()
    loaded = sim(programs / "racer", 2, check=False, timeout=120, env={"LD_PRELOAD": library}).stdout.split()
    assert plain[:4] == loaded[:4] and plain[1] == str(80 * GIB)


@pytest.mark.parametrize("processes, gib", [(1, 16), (8, 16), (64, 48)])
def test_the_sum_reaches_the_limit_to_the_byte_and_no_further(sim, programs, processes, gib):
    out = sim(programs / "racer", processes, memory=f"{gib}Gi", timeout=120).stdout
    total, free, got, refused, failed = map(int, re.findall(r"\d+", out))
    assert total == gib * GIB and failed == 0 and refused >= processes
    assert got == free


def test_what_a_killed_process_held_is_there_at_once(holders):
    with holders(memory="4Gi") as h:
        assert h.ask("a", f"take {3 * GIB}") == "0"
        assert h.ask("b", f"take {2 * GIB}") == "2"
        h.kill("a")
        assert h.ask("b", f"take {2 * GIB}") == "0"


def test_figures_follow_a_kill(holders):
    with holders(memory="4Gi") as h:
        before = h.ask("b", "info")
        assert h.ask("a", f"take {GIB}") == "0"
        assert int(h.ask("b", "info").split()[0]) < int(before.split()[0]) - GIB
        h.kill("a")
        deadline = time.monotonic() + 5
        while h.ask("b", "info") != before:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_refused_process_lives_on(holders):
    with holders(memory="4Gi") as h:
        assert h.ask("a", f"take {5 * GIB}") == "2"
        assert h.ask("a", f"take {GIB}") == "0"


def test_a_forked_child_books_for_itself(holders):
    """The parent has not used CUDA, the child does, and ends: nothing of it stays booked."""
    with holders(memory="4Gi") as h:
        free = h.ask("b", "info").split()[0]
        assert h.ask("a", f"fork {GIB}") == "0"
        assert h.ask("a", f"fork {8 * GIB}") == "2"
        assert h.ask("b", f"take {free}") == "0"


def held(commands, out, end):
    """Shell: a holder that does `commands`, writes to `out`, and stays until the file `end` is there."""
    return (f"({commands}; while [ ! -e {end} ]; do sleep 0.02; done) | $HOLDER > {out} & "
            f"while [ $(wc -l < {out}) -lt 2 ]; do sleep 0.02; done; ")


def test_the_memory_of_others_is_not_ours(sim, aliquot, programs, tmp_path):
    """Two slices of one GPU: each has its own limit, and what the neighbour takes is no concern of ours."""
    def inner(name, limit, size):
        script = held(f"echo take {size}; echo info", f"{tmp_path}/{name}", f"{tmp_path}/end") + "wait"
        return f"touch {tmp_path}/{name}; {aliquot} run --memory {limit} -- sh -c '{script}' & "
    script = (inner("a", "4Gi", 3 * GIB) + inner("b", "8Gi", 5 * GIB) +
              f"while [ $(cat {tmp_path}/a {tmp_path}/b | wc -l) -lt 4 ]; do sleep 0.02; done; touch {tmp_path}/end; wait")
    sim("sh", "-c", script, env={"HOLDER": str(programs / "holder")})
    for name, limit in (("a", 4 * GIB), ("b", 8 * GIB)):
        took, info = (tmp_path / name).read_text().splitlines()
        assert took == "0" and int(info.split()[1]) == limit


def test_nvml_tells_the_same(holders):
    with holders(memory="4Gi") as h:
        h.ask("a", f"take {GIB}")
        free, total = map(int, h.ask("a", "info").split())
        used, nvml_free, nvml_total, *second = map(int, h.ask("reader", "memory").split())
        assert (nvml_total, nvml_free, used) == (total, free, total - free)
        assert second == [used, nvml_free, nvml_total]


def test_process_lists_show_own_processes_only(sim, aliquot, programs, tmp_path):
    """A neighbour in the same PID namespace, and a reader that uses no CUDA."""
    inside = (f"touch {tmp_path}/own; " + held("echo take 1000; echo pid", f"{tmp_path}/own", f"{tmp_path}/end") +
              f"echo pids | $HOLDER; touch {tmp_path}/end; wait")
    script = (f"touch {tmp_path}/foreign; " + held("echo take 1000; echo pid", f"{tmp_path}/foreign", f"{tmp_path}/end2") +
              f"{aliquot} run --memory 4Gi -- sh -c '{inside}'; echo pids | $HOLDER; touch {tmp_path}/end2; wait")
    inside, outside = sim("sh", "-c", script, env={"HOLDER": str(programs / "holder")}).stdout.splitlines()
    foreign, own = ((tmp_path / name).read_text().split()[1] for name in ("foreign", "own"))
    assert [entry.split(":")[0] for entry in inside.split()] == [own]
    assert foreign in {entry.split(":")[0] for entry in outside.split()}


def test_a_share_that_cannot_be_used_refuses(sim, programs, library, tmp_path):
    """Limits without a ledger, a damaged ledger, garbage for limits: closed, not open."""
    for limits, ledger in ((b"garbage", None), (None, None), (b"", b"")):
        place = tmp_path / f"{limits}-{ledger}"
        place.mkdir()
        if limits is not None:
            (place / "limits").write_bytes(limits)
        if ledger is not None:
            (place / "ledger").write_bytes(ledger)
        done = sim("sh", "-c", f"echo take 1000 | {programs}/holder",
                   env={"LD_PRELOAD": library, "ALIQUOT_SHARE_DIR": str(place)})
        assert done.stdout.strip() == "2", (limits, ledger)


def test_a_limit_changed_while_running(aliquot, build, programs):
    """`aliquot run` writes limits once; the agent changes them in place, which programs see at once. Played by hand: the
    second copy of the file is filled and the index moved."""
    import struct
    script = f"cp $ALIQUOT_SHARE_DIR/limits $0/before; echo $ALIQUOT_SHARE_DIR > $0/place; exec {programs}/holder"
    import tempfile
    with tempfile.TemporaryDirectory() as place:
        server = subprocess.Popen([aliquot, "sim", "--", aliquot, "run", "--memory", "4Gi", "--", "sh", "-c", script, place],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def ask(what):
            server.stdin.write(what + "\n")
            server.stdin.flush()
            return server.stdout.readline().strip()
        assert ask("info").split()[1] == str(4 * GIB)
        path = open(f"{place}/place").read().strip() + "/limits"
        with open(path, "r+b") as f:
            data = f.read()
            copy_size = 640 + 64 * 72
            second = bytearray(data[64:64 + copy_size])
            struct.pack_into("<Q", second, 640 + 48, 2 * GIB)
            f.seek(64 + copy_size)
            f.write(second)
            f.flush()
            f.seek(16)
            f.write(struct.pack("<Q", 1))
        assert ask("info").split()[1] == str(2 * GIB)
        assert ask(f"take {3 * GIB}") == "2"
        server.stdin.close()
        assert server.wait(timeout=20) == 0
        server.stdout.close()


@pytest.fixture
def shadow(build, tmp_path):
    """A library directory as the agent would mount it: the shadows under the driver's names, the driver behind them."""
    for name in ("cuda", "nvidia-ml"):
        (tmp_path / f"lib{name}.so.1").symlink_to(build / "src" / "intercept" / f"libshadow-{name}.so.1")
        (tmp_path / f"lib{name}-driver.so.1").symlink_to(build / "src" / "sim" / f"lib{name}.so.1")
    return tmp_path


DEEPBIND = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_DEEPBIND)
context, p, free, total = (ctypes.c_uint64() for _ in range(4))
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
print(cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_uint64(5 << 30)),
      cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_uint64(1 << 30)))
cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
print(total.value)
"""


@pytest.mark.parametrize("preload", [False, True], ids=["alone", "with the preload"])
def test_shadow_libraries_limit_too(aliquot, programs, shadow, preload):
    """Alone, and together with the preload, where each allocation must be charged once."""
    script = f"export LD_LIBRARY_PATH={shadow}; " + ("" if preload else "unset LD_PRELOAD; ")
    command = [aliquot, "sim", "--", aliquot, "run", "--memory", "4Gi", "--", "sh", "-c"]
    for program, expected in ((f"{programs}/kinds", f"ok total={4 * GIB} "),
                              ("python3 -c '" + DEEPBIND.replace("'", '"') + "'", f"2 0\n{4 * GIB}\n")):
        done = subprocess.run([*command, script + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=60)
        assert done.returncode == 0 and done.stdout.startswith(expected), (done.stdout, done.stderr)


LIVE = """
import pathlib
sys.path.insert(0, TESTS)
import handmade
place = pathlib.Path(os.environ["ALIQUOT_SHARE_DIR"])
def set_limit(memory, overhead=0):
    handmade.change(place, handmade.card(UUID, memory, overhead=overhead))
def figures():
    f, t = u64(), u64()
    ok("cuMemGetInfo_v2", ref(f), ref(t))
    return f.value, t.value
begin()
assert take(3 * GIB)[0] == 0 and figures() == (GIB, 4 * GIB)
set_limit(2 * GIB)                      # below what is used: nothing more, and nothing is taken away
assert figures() == (0, 2 * GIB)
assert take(1)[0] == 2 and call("cuMemAllocManaged", ref(u64()), u64(1), 1) == 2
set_limit(8 * GIB)
assert figures() == (5 * GIB, 8 * GIB)
r, p = take(5 * GIB)
assert r == 0 and take(1)[0] == 2
ok("cuMemFree_v2", p)
set_limit(8 * GIB, overhead=4 * GIB)    # what the driver holds unasked has grown
assert figures() == (GIB, 8 * GIB) and take(GIB + 1)[0] == 2
set_limit(8 * GIB)
assert take(5 * GIB)[0] == 0
set_limit(0)
assert figures()[1] == 80 * GIB and take(GIB)[0] == 0
"""


def test_limits_change_while_a_program_runs(sim, library, tmp_path):
    """In both directions, without a system call: the file is mapped."""
    uuid = first_card(sim)
    handmade.make(tmp_path, handmade.card(uuid, 4 * GIB))
    script = f"import sys\n{CUDA}\nTESTS, UUID = {os.path.dirname(__file__)!r}, {uuid!r}\n{LIVE}"
    sim(sys.executable, "-c", script, env={"LD_PRELOAD": library, "ALIQUOT_SHARE_DIR": str(tmp_path)})


def first_card(sim):
    script = CUDA + "import uuid\nu = (ctypes.c_char * 16)()\nok('cuInit', 0)\nok('cuDeviceGetUuid', u, 0)\n" \
                    "print('GPU-' + str(uuid.UUID(bytes=bytes(u))))"
    return sim(sys.executable, "-c", script).stdout.strip()


def test_a_pool_by_its_place_is_charged_to_its_device(sim):
    """CUDA 13 names a pool by where it is. What comes from the second card's is charged there, on a stream of the first."""
    done = sim(sys.executable, "-c", CUDA + """
class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]

def held(device):
    context, free, total = u64(), u64(), u64()
    ok("cuDevicePrimaryCtxRetain", ref(context), device)
    ok("cuCtxSetCurrent", context)
    ok("cuMemGetInfo_v2", ref(free), ref(total))
    return total.value - free.value

begin()
held(1)     # its context
before = [held(0), held(1)]
held(0)
for get in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
    pool, p = u64(), u64()
    ok(get, ref(pool), ref(Location(1, 1)), 1)
    ok("cuMemAllocFromPoolAsync", ref(p), u64(1 << 30), pool, u64(0))
after = [held(0), held(1)]
print([b - a >> 30 for a, b in zip(before, after)], after[1] - before[1])
held(0)
print(call("cuMemAllocFromPoolAsync", ref(p), u64(3 << 30), pool, u64(0)))
place = Location(2, 0)      # of the host: the simulator has none, and a refusal leaves nothing behind
print(call("cuMemGetMemPool", ref(pool), ref(place), 1), call("cuMemGetMemPool", None, None, 1))
""", gpus=2, memory=4 * GIB)
    assert done.stdout.splitlines() == [f"[0, 2] {2 * GIB}", "2", "801 1"], done.stdout
