# SPDX-License-Identifier: Apache-2.0
"""NVML in a slice, call by call: only the container's cards, processes and load, figures that agree with each other and
with CUDA at any moment, and nothing that changes a card for others."""

import json
import os
import re
import sys

import pytest
from abi import NVML, TEXT
from view_kit import CONTEXT, GIB, Machine, wait_until

DENIED = dict(re.findall(r"^NVML_DENY\(\s*(\w+),\s*(\w+),", TEXT, re.M))
HOOKED = [row for row in NVML if row.kind == "HOOK"]

# For programs that look at NVML with ctypes alone.
LOOK = """
import ctypes, json, os, sys
nvml = ctypes.CDLL("libnvidia-ml.so.1")
u32, u64, handle, ref = ctypes.c_uint, ctypes.c_ulonglong, ctypes.c_void_p, ctypes.byref
class Memory(ctypes.Structure):
    _fields_ = [("total", u64), ("free", u64), ("used", u64)]
class Process(ctypes.Structure):
    _fields_ = [("pid", u32), ("bytes", u64), ("gi", u32), ("ci", u32)]
class Sample(ctypes.Structure):
    _fields_ = [("time", u64), ("value", u64)]
class Utilization(ctypes.Structure):
    _fields_ = [("gpu", u32), ("memory", u32)]
def ok(r):
    assert r == 0, r
def out(type, function, *arguments):
    value = type()
    ok(getattr(nvml, function)(*arguments, ref(value)))
    return getattr(value, "value", value)
def card(i=0):
    return handle(out(handle, "nvmlDeviceGetHandleByIndex_v2", i))
def processes(device, function="nvmlDeviceGetComputeRunningProcesses_v3"):
    n, list = u32(64), (Process * 64)()
    ok(getattr(nvml, function)(device, ref(n), list))
    return sorted([p.pid, p.bytes] for p in list[:n.value])
def used(device):
    m = out(Memory, "nvmlDeviceGetMemoryInfo", device)
    assert m.used + m.free <= m.total, (m.used, m.free, m.total)
    return m.used
def uuid(device):
    text = ctypes.create_string_buffer(96)
    ok(nvml.nvmlDeviceGetUUID(device, text, 96))
    return text.value.decode()
def say(value):
    print(json.dumps(value), flush=True)
"""


def look(place, script, *prefix, begin="ok(nvml.nvmlInit_v2())\n", **more):
    done = place.run(*prefix, "/usr/bin/python3", "-c", LOOK + begin + script, **more)
    assert done.returncode == 0, (done.stdout, done.stderr)
    return json.loads(done.stdout) if done.stdout else None


@pytest.fixture
def machine_of(build, tmp_path):
    made = []

    def make(*options, name="m"):
        directory = tmp_path / name
        directory.mkdir()
        made.append(Machine(build, directory, *options))
        return made[-1]
    yield make
    for m in made:
        m.close()


@pytest.fixture(scope="module")
def two_cards(build, tmp_path_factory):
    """A slice of the second of two cards, and a neighbour on both."""
    m = Machine(build, tmp_path_factory.mktemp("two"), "--gpus", "2")
    m.neighbours = [m.hold(GIB, device)[1] for device in (0, 1)]
    m.part = m.slice("--memory", "4Gi", "--core", "25", "--gpu", "1")
    yield m
    m.close()


# -- cards -----------------------------------------------------------------------------------------------------------


def test_only_the_slices_cards_by_any_name(two_cards):
    machine, part = two_cards, two_cards.part
    names = """
class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("n", u32 * 5), ("bus", ctypes.c_char * 32)]
def serial(device):
    text = ctypes.create_string_buffer(30)
    ok(nvml.nvmlDeviceGetSerial(device, text, 30))
    return text.value.decode()
all = [card(i) for i in range(out(u32, "nvmlDeviceGetCount_v2"))]
say([[uuid(c), serial(c), out(Pci, "nvmlDeviceGetPciInfo_v3", c).bus.decode(), out(u32, "nvmlDeviceGetMinorNumber", c),
      out(u32, "nvmlDeviceGetIndex", c)] for c in all])
"""
    first, second = look(machine, names)
    assert look(part, names) == [[*second[:4], 0]]
    find = """
def find(function, key):
    found = handle(1)
    r = getattr(nvml, function)(key.encode(), ref(found))
    return [r, uuid(found) if r == 0 else found.value]
first, second = json.loads(sys.argv[1])
class Uuid(ctypes.Structure):
    _fields_ = [("version", u32), ("type", u32), ("text", ctypes.c_char * 41)]
def find_v(key):
    found = handle(1)
    r = nvml.nvmlDeviceGetHandleByUUIDV(ref(Uuid(ctypes.sizeof(Uuid) | 1 << 24, 1, key.encode())), ref(found))
    return [r, uuid(found) if r == 0 else found.value]
functions = ["nvmlDeviceGetHandleByUUID", "nvmlDeviceGetHandleBySerial", "nvmlDeviceGetHandleByPciBusId",
             "nvmlDeviceGetHandleByPciBusId_v2"]
h = handle()
say([[find(f, names[key]) for f, key in zip(functions, (0, 1, 2, 2))] + [find_v(names[0])] for names in (first, second)]
    + [out(u32, "nvmlDeviceGetCount"), [getattr(nvml, f)(i, ref(h)) for i in (0, 1, 2) for f in
      ("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2")]])
"""
    done = part.run(sys.executable, "-c", LOOK + "ok(nvml.nvmlInit_v2())\n" + find, json.dumps([first, second]))
    assert done.returncode == 0, done.stderr
    others, own, count, by_index = json.loads(done.stdout)
    assert others == [[6, 1]] * 5  # NOT_FOUND, and nothing written
    assert own == [[0, second[0]]] * 5
    assert count == 1 and by_index == [0, 0, 2, 2, 2, 2]


def test_a_lost_card_leaves_the_others_their_places(machine_of):
    """It cannot say who it is; whose it is follows from which cards of the share are missing."""
    machine = machine_of("--gpus", "3")
    both, last = machine.slice("--memory", "4Gi", "--gpu", "0,2"), machine.slice("--memory", "4Gi", "--gpu", "2")
    ask = """
def one(i):
    h = handle()
    r = nvml.nvmlDeviceGetHandleByIndex_v2(i, ref(h))
    return r or [uuid(h), out(u32, "nvmlDeviceGetIndex", h), out(Memory, "nvmlDeviceGetMemoryInfo", h).total]
say([one(i) for i in range(out(u32, "nvmlDeviceGetCount_v2"))])
"""
    first, third = look(both, ask)
    assert [first[1:], third[1:]] == [[0, 4 * GIB], [1, 4 * GIB]] and look(last, ask) == [[third[0], 0, 4 * GIB]]
    assert machine.run(machine.aliquot, "sim", "inject", "lose", "--gpu", "0").returncode == 0
    assert look(both, ask) == [15, third]  # GPU_IS_LOST
    assert look(last, ask) == [[third[0], 0, 4 * GIB]]
    assert machine.run(machine.aliquot, "sim", "inject", "return", "--gpu", "0").returncode == 0
    wait_until(lambda: look(both, ask) == [first, third], what="the card is back")


def test_neighbours_in_the_topology_are_the_slices(machine_of):
    machine = machine_of("--machine", "a100x4-nvlink")
    part = machine.slice("--memory", "4Gi", "--gpu", "1,3")
    ask = """
n, near = u32(0), (handle * 64)()
ok(nvml.nvmlDeviceGetTopologyNearestGpus(card(), 50, ref(n), None))
sized = n.value
found = set()
for level in (0, 10, 20, 30, 40, 50):
    n = u32(64)
    if nvml.nvmlDeviceGetTopologyNearestGpus(card(), level, ref(n), near) == 0:
        found |= {uuid(handle(h)) for h in near[:n.value]}
say([sorted(found), sorted(uuid(card(i)) for i in range(1, out(u32, "nvmlDeviceGetCount_v2"))), sized])
"""
    near, others, _ = look(machine, ask)
    assert near == others and len(near) == 3
    near, others, sized = look(part, ask)
    assert near == others and len(near) == 1 and sized <= 1


def test_attributes_are_the_cards(two_cards):
    """A part of the time on all of the multiprocessors: programs size their launches by them."""
    ask = """
cuda, device, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int()
ok(cuda.cuInit(0)); ok(cuda.cuDeviceGet(ref(device), int(os.environ["ORDINAL"])))
say([[a, cuda.cuDeviceGetAttribute(ref(value), a, device), value.value] for a in range(1, 120)])
"""
    inside, outside = look(two_cards.part, ask, ORDINAL="0"), look(two_cards, ask, ORDINAL="1")
    assert inside == outside and [16, 0, 108] in inside


# -- memory ----------------------------------------------------------------------------------------------------------


def test_figures_agree_at_any_moment(two_cards):
    """While others in the container take and free without a pause: everything read in one moment fits together."""
    busy = """
import random
cuda, p = ctypes.CDLL("libcuda.so.1"), []
context = u64()
ok(cuda.cuInit(0)); ok(cuda.cuDevicePrimaryCtxRetain(ref(context), 0)); ok(cuda.cuCtxSetCurrent(context))
say(0)
while True:
    q = u64()
    if len(p) < 4 and cuda.cuMemAlloc_v2(ref(q), u64(random.randrange(1, 150 << 20))) == 0:
        p.append(q)
    else:
        ok(cuda.cuMemFree_v2(p.pop(random.randrange(len(p)))))
"""
    children = [two_cards.part.start(sys.executable, "-c", LOOK + busy) for _ in range(3)]
    for child in children:
        assert child.stdout.readline() == "0\n", child.stderr.read()
    seen = look(two_cards.part, """
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = u64(), u64(), u64()
ok(cuda.cuInit(0)); ok(cuda.cuDevicePrimaryCtxRetain(ref(context), 0)); ok(cuda.cuCtxSetCurrent(context))
device, figures = card(), set()
ok(cuda.cuMemGetInfo_v2(ref(free), ref(total)))
assert out(u64, "nvmlDeviceGetTotalEnergyConsumption", device) > 0
for _ in range(400):
    figures.add(used(device))
    ok(cuda.cuMemGetInfo_v2(ref(free), ref(total)))
    assert total.value == 4 << 30 and free.value <= total.value
    # The processes' sum is taken between two looks at the whole; it cannot be more than both.
    listed = sum(p[1] for p in processes(device))
    assert listed <= 4 << 30, listed
say(len(figures))
""")
    assert seen > 20
    for child in children:
        child.kill()
    wait_until(lambda: look(two_cards.part, "say(used(card()))") == 0, what="what the dead held is given back")


def test_all_calls_about_memory_say_the_same(two_cards):
    part = two_cards.part
    process, pid = part.hold(GIB)
    figures = look(part, """
device = card()
class Second(ctypes.Structure):
    _fields_ = [("version", u32), ("total", u64), ("reserved", u64), ("free", u64), ("used", u64)]
class List(ctypes.Structure):
    _fields_ = [("version", u32), ("mode", u32), ("n", u32), ("list", handle)]
class Detail(ctypes.Structure):
    _fields_ = [("pid", u32), ("bytes", u64), ("gi", u32), ("ci", u32), ("protected", u64)]
class Old(ctypes.Structure):
    _fields_ = [("pid", u32), ("bytes", u64)]
one = out(Memory, "nvmlDeviceGetMemoryInfo", device)
two = Second(version=ctypes.sizeof(Second) | 2 << 24)
ok(nvml.nvmlDeviceGetMemoryInfo_v2(device, ref(two)))
wrong = Second(version=1)
bar1 = out(Memory, "nvmlDeviceGetBAR1MemoryInfo", device)
details = (Detail * 8)()
list = List(version=ctypes.sizeof(List) | 1 << 24, mode=0, n=8, list=ctypes.cast(details, handle))
ok(nvml.nvmlDeviceGetRunningProcessDetailList(device, ref(list)))
n, old = u32(8), (Old * 8)()
ok(nvml.nvmlDeviceGetComputeRunningProcesses(device, ref(n), old))
none = u32(0)
say({"one": [one.total, one.free, one.used], "two": [two.total, two.free, two.used], "reserved": two.reserved,
     "wrong": nvml.nvmlDeviceGetMemoryInfo_v2(device, ref(wrong)),
     "bar1": [bar1.used <= one.used, bar1.used + bar1.free <= bar1.total],
     "details": [[d.pid, d.bytes] for d in details[:list.n]], "old": [[p.pid, p.bytes] for p in old[:n.value]],
     "v2": processes(device, "nvmlDeviceGetComputeRunningProcesses_v2"), "v3": processes(device),
     "graphics": processes(device, "nvmlDeviceGetGraphicsRunningProcesses_v3"),
     "mps": processes(device, "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
     "size": [nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ref(none), None), none.value]})
""")
    used = GIB + CONTEXT
    assert figures["one"] == figures["two"] == [4 * GIB, 4 * GIB - used, used] and figures["reserved"] == 0
    assert figures["wrong"] == 25 and figures["bar1"] == [True, True]
    assert figures["details"] == figures["old"] == figures["v2"] == figures["v3"] == [[pid, used]]
    assert figures["graphics"] == figures["mps"] == [] and figures["size"] == [7, 1]
    process.stdin.close()
    process.wait()


def test_what_the_driver_takes_beside_is_used_everywhere(machine_of):
    """The overhead that an agent writes beside the limits: modules, heaps."""
    part = machine_of().slice("--memory", "4Gi")
    _, pid = part.hold(GIB)
    overhead, copies, head = 100 << 20, 2, 64
    size = (os.path.getsize(part.environment["ALIQUOT_SHARE_DIR"] + "/limits") - head) // copies
    more = 64 * 32
    with open(part.environment["ALIQUOT_SHARE_DIR"] + "/limits", "r+b") as f:
        for copy in range(copies):
            f.seek(head + copies * (size - more) + copy * more)
            f.write(overhead.to_bytes(8, "little"))
    assert look(part, """
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = u64(), u64(), u64()
alone = used(card())
ok(cuda.cuInit(0)); ok(cuda.cuDevicePrimaryCtxRetain(ref(context), 0)); ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuMemGetInfo_v2(ref(free), ref(total)))
say([alone, used(card()), total.value - free.value, [p[1] for p in processes(card()) if p[0] != os.getpid()]])
""") == [GIB + CONTEXT + overhead, *[GIB + 2 * CONTEXT + overhead] * 2, [GIB + CONTEXT]]
    assert pid


# -- who, and whose PIDs ---------------------------------------------------------------------------------------------

NESTED = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
if os.geteuid() != 0:
    NESTED.insert(1, "--map-root-user")


@pytest.mark.parametrize("driver", ["570.124.06", "535.161.08"])
@pytest.mark.parametrize("reader", [[], NESTED], ids=["same", "below"])
def test_pids_are_those_of_whoever_asks(machine_of, tmp_path, driver, reader):
    """A container with PID namespaces in it, under a driver that translates PIDs and one that gives the host's."""
    description = tmp_path / "machine"
    description.write_text(f"[machine]\ndriver = {driver}\n[gpu 0]\nmodel = A100\n")
    machine = machine_of("--machine", description)
    machine.hold(GIB)
    part = machine.slice("--memory", "8Gi")
    _, beside = part.hold(GIB)
    nested, inner = part.hold(GIB // 2, prefix=NESTED)
    assert inner == 1 or inner < beside  # its own namespace counts anew
    children = [int(p) for p in os.listdir("/proc") if p.isdigit() and parent(p) == nested.pid]
    assert len(children) == 1
    found = look(part, "say([processes(card()), used(card())])", *reader)
    booked = GIB + GIB // 2 + 2 * CONTEXT
    if reader:  # from a namespace of its own it sees neither of them, but what they have is used
        assert found == [[], booked]
    else:
        assert found == [sorted([[beside, GIB + CONTEXT], [children[0], GIB // 2 + CONTEXT]]), booked]


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return int(f.read().rpartition(")")[2].split()[1])
    except OSError:
        return None


def test_names_of_the_containers_processes_only(machine_of, tmp_path):
    """A driver that takes host PIDs would name any process of the machine."""
    machine = machine_of()
    _, neighbour = machine.hold(GIB)
    part = machine.slice("--memory", "8Gi")
    _, own = part.hold(GIB)
    script = f"""
name = ctypes.create_string_buffer(256)
say([[nvml.nvmlSystemGetProcessName(p, name, 256), name.value.decode()] for p in (int(sys.argv[1]), 4000000000)]
    + [nvml.nvmlSystemGetProcessName({own}, None, 0)])
"""
    def names(pid, *prefix):
        done = part.run(*prefix, sys.executable, "-c", LOOK + "ok(nvml.nvmlInit_v2())\n" + script, pid)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    (r, name), (missing, _), bad = names(own)
    assert r == 0 and name.endswith("sim-hold") and missing == 6 and bad == 2
    assert names(neighbour, *NESTED)[0][0] == 6


RECORDS = """
class Stats(ctypes.Structure):
    _fields_ = [("gpu", u32), ("memory", u32), ("most", u64), ("time", u64), ("start", u64), ("rest", u32 * 6)]
n, pids, stats = u32(64), (u32 * 64)(), Stats()
ok(nvml.nvmlDeviceGetAccountingPids(card(), ref(n), pids))
few = u32(0)
sized = nvml.nvmlDeviceGetAccountingPids(card(), ref(few), None)
sessions = u32(0)
ok(nvml.nvmlDeviceGetEncoderSessions(card(), ref(sessions), None))
counts = [u32(7), u32(7), u32(7)]
ok(nvml.nvmlDeviceGetEncoderStats(card(), *map(ref, counts)))
say([sorted(pids[:n.value]), [sized, few.value], [nvml.nvmlDeviceGetAccountingStats(card(), int(p), ref(stats))
     for p in sys.argv[1:]], sessions.value, [c.value for c in counts]])
"""


def test_records_of_the_containers_processes_only(machine_of, tmp_path):
    description = tmp_path / "machine"
    description.write_text("[machine]\naccounting = on\n[gpu 0]\nmodel = A100\n")
    machine = machine_of("--machine", description)
    neighbour = machine.hold(GIB)[1]
    part = machine.slice("--memory", "4Gi")
    own = part.hold(GIB)[1]

    def records(place, *prefix):
        done = place.run(*prefix, "/usr/bin/python3", "-c", LOOK + "ok(nvml.nvmlInit_v2())\n" + RECORDS, own, neighbour)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    all_processes, _, found, *_ = records(machine)
    assert {own, neighbour} <= set(all_processes) and found == [0, 0]
    assert records(part) == [[own], [7, 1], [0, 6], 0, [0, 0, 0]]
    assert records(part, *NESTED) == [[], [0, 0], [6, 6], 0, [0, 0, 0]]  # the owners of these PIDs are unknown


# -- load ------------------------------------------------------------------------------------------------------------

LOADS = """
device = card()
rates = out(Utilization, "nvmlDeviceGetUtilizationRates", device)
kind, n, samples = u32(), u32(128), (Sample * 128)()
r = nvml.nvmlDeviceGetSamples(device, 1, u64(0), ref(kind), ref(n), samples)
class Use(ctypes.Structure):
    _fields_ = [("pid", u32), ("time", u64), ("sm", u32), ("memory", u32), ("enc", u32), ("dec", u32)]
class Info(ctypes.Structure):
    _fields_ = [("time", u64), ("pid", u32), ("sm", u32), ("memory", u32), ("enc", u32), ("dec", u32), ("jpg", u32),
                ("ofa", u32)]
class Infos(ctypes.Structure):
    _fields_ = [("version", u32), ("n", u32), ("since", u64), ("list", handle)]
uses, m = (Use * 64)(), u32(64)
r1 = nvml.nvmlDeviceGetProcessUtilization(device, uses, ref(m), u64(0))
list = (Info * 64)()
infos = Infos(version=ctypes.sizeof(Infos) | 1 << 24, n=64, list=ctypes.cast(list, handle))
r2 = nvml.nvmlDeviceGetProcessesUtilizationInfo(device, ref(infos))
def engine(name):
    value, period = u32(), u32()
    ok(getattr(nvml, f"nvmlDeviceGet{name}Utilization")(device, ref(value), ref(period)))
    assert period.value > 0
    return value.value
say({"rates": [rates.gpu, rates.memory], "samples": [s.value & 0xffffffff for s in samples[:n.value]] if r == 0 else r,
     "processes": [[u.pid, u.sm] for u in uses[:m.value]] if r1 == 0 else r1,
     "infos": [[u.pid, u.sm] for u in list[:infos.n]] if r2 == 0 else r2,
     "engines": [engine(name) for name in ("Encoder", "Decoder", "Jpg", "Ofa")]})
"""


def test_load_is_the_containers_own_and_of_its_part(two_cards):
    part = two_cards.part
    spinner, neighbour = two_cards.spin(60_000, 1)
    of_the_card = LOADS.replace("card()", "card(1)")
    wait_until(lambda: look(two_cards, of_the_card)["rates"][0] > 90, what="the neighbour is busy")
    assert look(part, LOADS) == {"rates": [0, 0], "samples": [0], "processes": 6, "infos": 6, "engines": [0] * 4}
    own, pid = part.spin(60_000)
    def agree():
        """A quarter of the card is the whole of the slice: 12 percent of the card are 48 of it."""
        raw = dict(look(two_cards, of_the_card)["processes"])[pid]
        inside = look(part, LOADS)
        return raw > 5 and abs(inside["rates"][0] - min(4 * raw, 100)) <= 8
    wait_until(agree, what="the load of the slice is that of its process")
    said = look(part, LOADS)
    assert len(said["samples"]) == 1 and said["samples"][0] > 20
    assert {p for p, _ in said["processes"]} == {p for p, _ in said["infos"]} == {pid}
    assert said["processes"][0][1] > 20 and said["processes"][0][1] <= 100
    for p in (spinner, own):
        p.kill()


def test_load_where_the_drivers_pids_mean_nothing(machine_of, tmp_path):
    """From a PID namespace under an old driver: what the arbiter says of the container's account."""
    description = tmp_path / "machine"
    description.write_text("[machine]\ndriver = 535.161.08\n[gpu 0]\nmodel = A100\n")
    machine = machine_of("--machine", description)
    machine.spin(60_000)
    part = machine.slice("--memory", "4Gi", "--core", "50")
    loads = LOADS.replace("card()", "card(0)")
    wait_until(lambda: look(machine, loads)["rates"][0] > 90, what="the neighbour is busy")
    idle = look(part, loads, *NESTED)
    assert idle["rates"][0] == 0 and idle["processes"] == idle["infos"] == 3
    part.spin(60_000)
    wait_until(lambda: look(part, loads, *NESTED)["rates"][0] > 50, what="the slice is busy")


# -- what is refused, and what must not crash ------------------------------------------------------------------------


def test_nothing_changes_a_card_from_inside(two_cards):
    script = """
names = json.loads(sys.argv[1])
device = card()
zero = (ctypes.c_char * 4096)()
say({n: getattr(nvml, n)(device, ref(zero), 0, 0, 0, 0) for n in names if hasattr(nvml, n)})
"""
    def answers(place):
        done = place.run(sys.executable, "-c", LOOK + "ok(nvml.nvmlInit_v2())\n" + script, json.dumps(sorted(DENIED)))
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    inside, outside = answers(two_cards.part), answers(two_cards)
    assert len(inside) == len(DENIED) > 70
    codes = {"NO_PERMISSION": 4, "NOT_SUPPORTED": 3}
    assert inside == {name: codes[answer] for name, answer in DENIED.items()}
    assert 4 not in outside.values()


def test_null_pointers_never_crash(two_cards):
    """Every hooked function with every pointer NULL, and with a handle but NULL for the rest: never a success where the
    driver has none."""
    script = """
names = json.loads(sys.argv[1])
device = card()
for n in names:
    for first in (None, device):
        say([n, first is not None, getattr(nvml, n)(first, None, None, None, None, None)])
"""
    names = [row.symbol for row in HOOKED if row.symbol not in DENIED and row.symbol != "nvmlInternalGetExportTable"
             and not row.params.startswith("(const char") and "HandleBy" not in row.symbol]
    assert len(names) > 30
    def answers(place):
        done = place.run(sys.executable, "-c", LOOK + "ok(nvml.nvmlInit_v2())\n" + script, json.dumps(names))
        assert done.returncode == 0, (done.stdout[-300:], done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]
    inside, outside = answers(two_cards.part), answers(two_cards)
    assert len(inside) == len(outside) == 2 * len(names)
    for mine, theirs in zip(inside, outside):
        assert mine[2] != 0 or theirs[2] == 0, (mine, theirs)


def test_before_the_start_and_after_the_end(two_cards):
    assert look(two_cards.part, """
say([nvml.nvmlDeviceGetCount_v2(ref(u32())), nvml.nvmlDeviceGetHandleByIndex_v2(0, ref(handle())),
     nvml.nvmlSystemGetProcessName(1, ctypes.create_string_buffer(64), 64)])
""", begin="") == [1, 1, 1]


@pytest.mark.foreign
def test_the_real_library_before_its_start(two_cards, real_driver):
    """libnvidia-ml 535 needs no GPU to say that it was not started: the same through our hooks, for each of them."""
    script = """
names = json.loads(sys.argv[1])
say({n: getattr(nvml, n)(None, None, None, None, None, None) for n in names if hasattr(nvml, n)})
"""
    names = [row.symbol for row in HOOKED if row.symbol not in DENIED and row.symbol != "nvmlInternalGetExportTable"]

    def answers(place):
        done = place.run("/usr/bin/python3", "-c", LOOK + script, json.dumps(names), LD_LIBRARY_PATH=real_driver)
        assert done.returncode == 0, (done.stdout, done.stderr)
        return json.loads(done.stdout)
    inside, outside = answers(two_cards.part), answers(two_cards)
    assert len(inside) > 40 and inside == outside
    assert set(inside.values()) == {1}  # UNINITIALIZED


# -- where it must work ----------------------------------------------------------------------------------------------


def test_for_any_user_on_a_read_only_root(machine_of, tmp_path):
    """A process that never calls CUDA, as an unprivileged user, in a PID namespace of its own, where it can write nothing."""
    if os.geteuid() != 0:
        pytest.skip("another user needs root")
    tmp_path.chmod(0o755)
    for directory in tmp_path.parents:
        if directory.name.startswith("pytest"):  # its own are closed to others
            directory.chmod(0o755)
    machine = machine_of()
    part = machine.slice("--memory", "4Gi")
    part.hold(GIB)
    inside = ["unshare", "--pid", "--mount", "--fork", "--kill-child", "sh", "-c",
              'mount -t proc proc /proc && mount -o remount,bind,ro / 2>/dev/null; exec "$@"', "sh",
              "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    assert look(part, "say([used(card()), os.geteuid()])", *inside) == [GIB + CONTEXT, 65534]


def test_a_broken_share_shows_nothing(machine_of):
    """Cards are there, and nothing of them is to be had."""
    machine = machine_of()
    machine.hold(GIB)
    part = machine.slice("--memory", "4Gi")
    with open(part.environment["ALIQUOT_SHARE_DIR"] + "/limits", "r+b") as f:
        f.write(bytes(8))
    assert look(part, """
m = out(Memory, "nvmlDeviceGetMemoryInfo", card())
rates = out(Utilization, "nvmlDeviceGetUtilizationRates", card())
say([m.total, m.free, m.used, processes(card()), rates.gpu, nvml.nvmlDeviceSetPersistenceMode(card(), 1)])
""") == [0, 0, 0, [], 0, 4]


def test_without_limits_nothing_is_changed(machine_of):
    """A slice of whole cards is the cards."""
    machine = machine_of("--gpus", "2")
    _, neighbour = machine.hold(GIB)
    part = machine.slice("--gpu", "0")
    assert look(part, "say([used(card()), processes(card()), out(u32, 'nvmlDeviceGetCount_v2')])") == \
        [GIB + CONTEXT, [[neighbour, GIB + CONTEXT]], 1]


# -- divided cards ---------------------------------------------------------------------------------------------------


def test_instances_of_a_divided_card(machine_of, tmp_path):
    description = tmp_path / "machine"
    description.write_text("[gpu 0-1]\nmodel = A100\n[gpu 0]\nmig = 3g.40gb,2g.20gb,1g.10gb\n")
    machine = machine_of("--machine", description)
    instances = look(machine, """
found = []
for i in range(out(u32, "nvmlDeviceGetMaxMigDeviceCount", card())):
    h = handle()
    if nvml.nvmlDeviceGetMigDeviceHandleByIndex(card(), i, ref(h)) == 0:
        found.append(uuid(h))
say(found)
""")
    assert len(instances) == 3
    part = machine.slice("--memory", "2Gi", "--gpu", "0")
    part.environment["CUDA_VISIBLE_DEVICES"] = instances[1]
    with open(part.environment["ALIQUOT_SHARE_DIR"] + "/limits", "r+b") as f:
        for copy in range(2):  # a share as the agent writes it for an instance
            f.seek(64 + copy * (640 + 64 * 72) + 640)
            f.write(instances[1].encode())
    _, pid = part.hold(GIB)
    seen = look(part, """
found, codes = [], []
for i in range(out(u32, "nvmlDeviceGetMaxMigDeviceCount", card())):
    h = handle()
    codes.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card(), i, ref(h)))
    if codes[-1] == 0:
        m = out(Memory, "nvmlDeviceGetMemoryInfo", h)
        found.append([uuid(h), m.total, m.used + m.free])
m, whole = out(Memory, "nvmlDeviceGetMemoryInfo", card()), processes(card())
say([out(u32, "nvmlDeviceGetCount_v2"), found, [m.total, m.used + m.free], codes.count(0), m.used >= 1 << 30,
     [p[0] for p in whole], nvml.nvmlDeviceGetHandleByUUID(sys.argv[1].encode(), ref(handle()))])
""".replace("sys.argv[1]", repr(instances[0])))
    assert seen == [1, [[instances[1], 2 * GIB, 2 * GIB]], [2 * GIB, 2 * GIB], 1, True, [pid], 6]


# -- nvidia-smi's private table --------------------------------------------------------------------------------------

TABLE = """
class Guid(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 16)]
guid = Guid.from_buffer_copy(bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4"))
table = ctypes.POINTER(ctypes.c_size_t)()
ok(nvml.nvmlInternalGetExportTable(ref(table), ref(guid)))
slots = table[0] // 8 - 1
"""


@pytest.mark.foreign
def test_the_real_drivers_table_is_out_of_reach(two_cards, real_driver):
    """Its size is known from outside, and needs no GPU. In a slice none of its functions is handed out."""
    ask = TABLE + "say([slots, len({table[1 + i] for i in range(slots)})])"
    assert look(two_cards, ask, begin="", LD_LIBRARY_PATH=real_driver)[0] == 244
    assert look(two_cards.part, TABLE + """
answers = [ctypes.CFUNCTYPE(ctypes.c_int)(table[1 + i])() for i in range(slots) if i != 212]
take = ctypes.CFUNCTYPE(ctypes.c_int, handle, handle, handle)(table[213])
say([slots, sorted(set(answers)), take(None, None, None)])
""", begin="", LD_LIBRARY_PATH=real_driver) == [244, [3], 2]


def test_the_process_slot_lists_the_containers(two_cards):
    _, pid = two_cards.part.hold(GIB // 4)
    ask = TABLE + """
buffer, n, device = (ctypes.c_char * (4128 * 16))(), u32(16), card(int(sys.argv[1]))
take = ctypes.CFUNCTYPE(ctypes.c_int, handle, handle, handle)(table[213])
ok(take(device, ctypes.addressof(n), ctypes.addressof(buffer)))
few = u32(0)
at = ctypes.addressof(buffer)
say([[[u32.from_address(at + 4128 * i).value, u64.from_address(at + 4128 * i + 8).value] for i in range(n.value)],
     take(device, ctypes.addressof(few), ctypes.addressof(buffer))])
"""
    def listed(place, index):
        done = place.run("/usr/bin/python3", "-c", LOOK + "ok(nvml.nvmlInit_v2())\n" + ask, index)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    assert listed(two_cards.part, 0) == [[[pid, GIB // 4 + CONTEXT]], 7]
    assert {p for p, _ in listed(two_cards, 1)[0]} == {pid, two_cards.neighbours[1]}
