# SPDX-License-Identifier: Apache-2.0
"""`aliquot sim inject`: what goes wrong on demand, and how programs see it."""

import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest
from sim_kit import ALIQUOT, GIB, PROGRAMS, TOP, wait_until
from test_sim_garbage import ALLOC, reply, request, session

SUSPEND, RESUME = 21, 22  # requests to the daemon (src/sim/proto.h)

XIDS = TOP / "src/model/xids.def"
OUT_OF_MEMORY, DEVICE_UNAVAILABLE, ECC, ILLEGAL_ADDRESS = 2, 46, 214, 700


def spinning(node, ns=60_000_000_000):
    p = node.start("spin", ns, 1)
    p.stdout.readline()
    p.stdin.write("\n")
    p.stdin.flush()
    wait_until(lambda: any("process" in x and int(x["busy_ns"]) > 0 and int(x["process"]) == p.pid
                           for x in node.show()), what="it runs")
    return p


def ends_with(p, code):
    _, err = p.communicate(timeout=5)
    assert p.returncode == 1 and f"is {code}" in err, err


def events_of(nvml, *indexes):
    s = nvml.nvmlEventSetCreate()
    for i in indexes:
        nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(i),
                                      nvml.nvmlEventTypeXidCriticalError, s)
    return s


def test_an_xid_reaches_who_waits(node, nvml):
    events = events_of(nvml, 0, 1)
    got = []

    def wait():
        got.append(nvml.nvmlEventSetWait_v2(events, 10_000))
        got.append(time.monotonic())

    waiter = threading.Thread(target=wait)
    waiter.start()
    begin = time.monotonic()
    node.inject("xid", 63, "--gpu", 1)
    waiter.join(10)
    event = got[0]
    assert (event.eventType, event.eventData) == (nvml.nvmlEventTypeXidCriticalError, 63)
    assert nvml.nvmlDeviceGetIndex(event.device) == 1
    assert event.gpuInstanceId == event.computeInstanceId == 0xFFFFFFFF
    assert got[1] - begin < 1
    # Events without a waiter are kept, and delivered in order.
    for xid in (92, 94):
        node.inject("xid", xid, "--gpu", 0)
    assert [nvml.nvmlEventSetWait_v2(events, 0).eventData for _ in range(2)] == [92, 94]
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 10)
    nvml.nvmlEventSetFree(events)


def test_events_only_of_registered_cards_and_kinds(node, nvml):
    events = events_of(nvml, 0)
    node.inject("xid", 63, "--gpu", 1)
    node.inject("ecc", "uncorrected", "3", "--gpu", 0)
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 10)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    kinds = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, *kinds) == 3
    assert nvml.nvmlDeviceGetTotalEccErrors(nvml.nvmlDeviceGetHandleByIndex(1), *kinds) == 0
    late = events_of(nvml, 1)  # made after the event
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(late, 0)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceRegisterEvents(gpu, 1 << 40, events)


def test_more_events_than_are_kept(node, nvml):
    events = events_of(nvml, 0)
    for i in range(300):
        node.inject("xid", 1000 + i, "--gpu", 0)
    got = []
    while True:
        try:
            got.append(nvml.nvmlEventSetWait_v2(events, 0).eventData)
        except nvml.NVMLError_Timeout:
            break
    assert got == list(range(1300 - len(got), 1300)) and len(got) >= 255


def test_an_applications_xid_kills_that_application(node, nvml):
    guilty, innocent = spinning(node), spinning(node, 500_000_000)
    node.inject("xid", 31, "--gpu", 0, "--pid", guilty.pid)
    ends_with(guilty, ILLEGAL_ADDRESS)
    assert innocent.stdout.readline()  # done
    _, result, _ = node.hold(GIB)
    assert result == 0


def test_a_card_that_needs_a_reset(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    p = spinning(node)
    q, _, _ = node.hold(GIB)
    node.inject("xid", 48, "--gpu", 0)
    ends_with(p, ECC)
    with pytest.raises(nvml.NVMLError) as e:
        nvml.nvmlDeviceGetMemoryInfo(gpu)
    assert e.value.value == nvml.NVML_ERROR_RESET_REQUIRED
    assert nvml.nvmlDeviceGetName(gpu)  # it answers, though
    refused = node.start("hold", 1)
    refused.communicate()
    assert refused.returncode == 1
    assert node.hold(GIB, 1)[1] == 0  # the other card is another card
    assert "in use" in node.inject("reset", "--gpu", 0, expect=1)
    q.communicate()
    node.inject("reset", "--gpu", 0, "--force")
    assert node.hold(GIB)[1] == 0
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used > GIB


def test_xids_that_need_a_reset_by_the_catalogue(node):
    rows = re.findall(r"^XID\((\d+), +(\w+),", XIDS.read_text(), re.MULTILINE)
    xids = [number for number, resolution in rows if resolution == "RESET_GPU"]
    assert "46" in xids and "95" in xids
    for xid in xids:
        node.inject("xid", xid, "--gpu", 0)
        assert [x["state"] for x in node.show() if "uuid" in x][0] == "needs-reset", xid
        node.inject("reset", "--force", "--gpu", 0)


NVML_CLIENT = """
import pynvml, sys
pynvml.nvmlInit()
for line in sys.stdin:
    if line == "close\\n":
        pynvml.nvmlShutdown()
    elif line == "open\\n":
        pynvml.nvmlInit()
    else:
        pynvml.nvmlDeviceGetHandleByIndex(int(line))
    print("done", flush=True)
"""


def test_a_reset_needs_all_clients_to_let_go(node):
    """As nvidia-smi --gpu-reset: also of NVML, which opens a card with its first handle."""
    monitor = subprocess.Popen([sys.executable, "-c", NVML_CLIENT], env=node.env(), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    node.children.append(monitor)

    def tell(line):
        monitor.stdin.write(f"{line}\n")
        monitor.stdin.flush()
        assert monitor.stdout.readline() == "done\n"

    node.inject("persistence", "off", "--gpu", 0)
    tell(1)
    node.inject("reset", "--gpu", 0)
    tell(0)
    assert f"in use by another client: process {monitor.pid}" in node.inject("reset", "--gpu", 0, expect=1)
    node.inject("reset", "--gpu", 0, "--force")
    tell("close")
    node.inject("reset", "--gpu", 0)
    user, _, _ = node.hold(GIB)
    assert f"process {user.pid}" in node.inject("reset", "--gpu", 0, expect=1)
    user.communicate()
    node.inject("reset", "--gpu", 0)
    node.inject("persistence", "on", "--gpu", 0)
    assert "persistence mode is on" in node.inject("reset", "--gpu", 0, expect=1)


@pytest.mark.parametrize("driver, told", [("535.161.08", False), ("550.127.05", False), ("560.35.05", False),
                                          ("565.57.01", False), ("570.86.10", True)])
def test_drivers_before_570_tell_no_recovery_action(machine_of, driver, told):
    _, nvml = machine_of(f"[machine]\ndriver = {driver}\n[gpu 0]\nmodel = A100\n")
    (field,) = nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(0), [230])
    assert field.nvmlReturn == (nvml.NVML_SUCCESS if told else nvml.NVML_ERROR_NOT_SUPPORTED)


def test_a_card_falls_off_the_bus_and_returns(node, nvml):
    events = events_of(nvml, 0)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    p = spinning(node)
    q, _, _ = node.hold(GIB)
    node.inject("lose", "--gpu", 0)
    ends_with(p, DEVICE_UNAVAILABLE)
    for call in (lambda: nvml.nvmlDeviceGetMemoryInfo(gpu), lambda: nvml.nvmlDeviceGetName(gpu),
                 lambda: nvml.nvmlDeviceGetHandleByIndex(0)):
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call()
    assert nvml.nvmlEventSetWait_v2(events, 0).eventData == 79
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(1)).used == 0
    node.inject("return", "--gpu", 0)
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == 0  # nothing is left on it
    q.communicate()
    assert q.returncode == 1  # its context was on the card
    assert node.hold("free")[1] == 0
    assert "is not lost" in node.inject("return", "--gpu", 0, expect=1)


def test_the_driver_is_reloaded(node, nvml):
    p = spinning(node)
    node.inject("reload")
    ends_with(p, DEVICE_UNAVAILABLE)
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0))
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used == 0
    assert node.hold(GIB)[1] == 0


def test_the_driver_is_away(node, nvml):
    node.inject("unload")
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_DriverNotLoaded):
        nvml.nvmlInit()
    p = node.start("hold", 1)
    assert "is 100" in p.communicate()[1]  # CUDA_ERROR_NO_DEVICE
    assert node.show()[0]["loaded"] == "no"
    node.inject("load")
    nvml.nvmlInit()
    assert node.hold(GIB)[1] == 0


def test_the_nth_allocation_fails(node):
    node.inject("error", "alloc", "CUDA_ERROR_OUT_OF_MEMORY", "--nth", 2)
    results = [node.hold(GIB)[1] for _ in range(3)]
    assert results == [0, OUT_OF_MEMORY, 0]


def test_a_name_means_all_its_versions(node, nvml):
    """By the header, a program that names cuMemAlloc calls cuMemAlloc_v2."""
    node.inject("error", "cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY")
    assert [node.hold(GIB)[1] for _ in range(2)] == [OUT_OF_MEMORY, 0]
    node.inject("error", "cuMem", 2, "--times", 0)  # not the beginning of a name
    assert node.hold(GIB)[1] == 0
    node.inject("error", "nvmlDeviceGetCount", "NVML_ERROR_TIMEOUT")
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlDeviceGetCount()


def test_errors_of_one_process_until_released(node):
    p, q = node.start("spin", 1000, 1), node.start("spin", 1000, 1)
    for x in (p, q):
        x.stdout.readline()
    node.inject("error", "launch", 719, "--times", 0, "--pid", p.pid)
    for x in (p, q):
        x.stdin.write("\n")
        x.stdin.flush()
    ends_with(p, 719)
    assert q.stdout.readline()
    assert [x for x in node.show() if "error" in x][0]["done"] == "1"
    node.inject("release", "launch")
    assert not [x for x in node.show() if "error" in x]


def test_an_nvml_call_fails(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("error", "nvmlDeviceGetMemoryInfo*", "NVML_ERROR_TIMEOUT")
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlDeviceGetMemoryInfo(gpu)
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == 0


def test_initialisation_fails(node, nvml):
    node.inject("error", "nvmlInit*", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlInit()
    nvml.nvmlInit()
    node.inject("error", "cuInit", 803)
    p = node.start("hold", 1)
    assert "is 803" in p.communicate()[1]


def test_calls_hang_until_they_are_released(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("hang", "nvmlDeviceGetMemoryInfo*")
    done = threading.Event()
    thread = threading.Thread(target=lambda: (nvml.nvmlDeviceGetMemoryInfo(gpu), done.set()))
    thread.start()
    wait_until(lambda: [x for x in node.show() if "hang" in x][0]["done"] == "1", what="it hangs")
    assert nvml.nvmlDeviceGetName(gpu)  # only that call
    assert not done.is_set()
    node.inject("release", "nvmlDeviceGetMemoryInfo*")
    assert done.wait(2)
    thread.join()


def test_the_nth_call_hangs(node, nvml):
    node.inject("hang", "nvmlDeviceGetMemoryInfo*", "--nth", 3)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    calls = []
    thread = threading.Thread(target=lambda: [calls.append(nvml.nvmlDeviceGetMemoryInfo(gpu)) for _ in range(4)])
    thread.start()
    wait_until(lambda: [x for x in node.show() if "hang" in x][0]["done"] == "1", what="it hangs")
    assert len(calls) == 2
    node.inject("release")
    thread.join()
    assert len(calls) == 4


def test_calls_about_one_card_hang_or_fail(node, nvml):
    first, second = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    node.inject("hang", "nvml", "--gpu", 1)
    done = threading.Event()
    thread = threading.Thread(target=lambda: (nvml.nvmlDeviceGetMemoryInfo(second), done.set()))
    thread.start()
    wait_until(lambda: [x for x in node.show() if "hang" in x][0]["done"] == "1", what="it hangs")
    assert nvml.nvmlDeviceGetMemoryInfo(first) and nvml.nvmlDeviceGetCount() == 2
    assert not done.is_set()
    assert [x["gpu"] for x in node.show() if "hang" in x] == ["1"]
    node.inject("release")
    assert done.wait(2)
    thread.join()
    # A card that is opened is one that a call is about, too.
    node.inject("error", "nvmlDeviceGetHandleByIndex*", "NVML_ERROR_GPU_IS_LOST", "--gpu", 0, "--times", 0)
    assert nvml.nvmlDeviceGetHandleByIndex(1)
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("release")
    # CUDA: the card of the current context.
    node.inject("error", "alloc", "CUDA_ERROR_OUT_OF_MEMORY", "--gpu", 1, "--times", 0)
    assert node.hold(1)[1] == 0
    node.inject("release")
    node.inject("error", "alloc", "CUDA_ERROR_OUT_OF_MEMORY", "--gpu", 0, "--times", 0)
    assert node.hold(1)[1] == OUT_OF_MEMORY


def test_who_hangs_can_be_killed_and_ends_with_the_driver(node):
    node.inject("hang", "cuda")
    both = [node.start("hold", 1) for _ in range(2)]
    wait_until(lambda: [x for x in node.show() if "hang" in x][0]["done"] == "2", what="they hang")
    both[0].send_signal(signal.SIGKILL)
    assert both[0].wait(5) == -signal.SIGKILL
    node.inject("unload")
    both[1].communicate(timeout=5)
    assert both[1].returncode == 1


def test_nothing_comes_back_to_a_lost_card(node, nvml):
    """What left for a checkpoint stays away, also when the card is there again."""
    s, devices, _ = session(node, 0)
    for op, a in ((ALLOC, GIB), (SUSPEND, 0)):
        s.send(request(op, a=a))
        assert reply(s)[0] == 0
    for action in ("lose", "return"):
        node.inject(action, "--gpu", 0)
        s.send(request(RESUME))
        assert reply(s)[0] == -19
    assert nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used == 0


def test_memory_pressure(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("memory", "79Gi", "--gpu", 0)
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == 79 * GIB
    assert node.hold(GIB)[1] == OUT_OF_MEMORY
    assert "has not that much" in node.inject("memory", "80Gi", "--gpu", 0, expect=1)
    node.inject("memory", 0, "--gpu", 0)
    assert node.hold(GIB)[1] == 0


@pytest.mark.parametrize("args,what", [
    ([], "the action is missing"), (["explode"], "no action 'explode'"), (["xid", "--gpu", "0"], "missing"),
    (["xid", "31"], "--gpu"), (["xid", "x", "--gpu", "0"], "'x' is not a number"),
    (["unload", "--gpu", "0"], "no effect"), (["xid", "1", "2", "--gpu", "0"], "too many"),
    (["error", "alloc", "NO_SUCH_ERROR"], "no error of the driver"),
    (["error", "malloc", "2"], "no function of the driver"), (["hang", "cu" + "x" * 100], "bytes"),
    (["memory", "lots", "--gpu", "0"], "not a size"), (["ecc", "some", "--gpu", "0"], "neither"),
    (["--colour"], "colour"), (["error", "alloc", "0"], "no error"),
    (["lose", "--gpu", "0", "--pid", "1"], "--pid has no effect"),
    (["lose", "--gpu", "0", "--nth", "2"], "--nth has no effect"),
    (["hang", "alloc", "--times", "1"], "--times has no effect"),
    (["lose", "--gpu", "0", "--force"], "--force has no effect"),
    (["persistence", "maybe", "--gpu", "0"], "neither on nor off"),
])
def test_wrong_use_is_told(node, args, what):
    said = node.inject(*args, expect=2)
    assert said.startswith("aliquot sim inject: ") and what in said and said.count("\n") == 1


def test_what_cannot_be_done_is_told(node, tmp_path):
    assert "there is no GPU 7, only 2" in node.inject("lose", "--gpu", 7, expect=1)
    assert "there is no GPU 7, only 2" in node.inject("hang", "cuda", "--gpu", 7, expect=1)
    assert "no context on GPU 0" in node.inject("xid", 31, "--gpu", 0, "--pid", os.getpid(), expect=1)
    assert "there is no rule" in node.inject("release", "cuMemAlloc", expect=1)
    assert "no simulated machine" in node.inject("unload", "--dir", tmp_path, expect=1)
    for _ in range(16):
        node.inject("error", "cuCtxCreate*", 2)
    assert "release" in node.inject("error", "cuCtxCreate*", 2, expect=1)
    node.inject("release")


def test_only_the_owner_may(node):
    mode = os.stat(node.dir / "control").st_mode
    assert stat.S_IMODE(mode) == 0o600
    assert node.run(ALIQUOT, "sim", "inject", "--help").returncode == 0
    assert node.run(ALIQUOT, "sim", "show", "extra").returncode == 2


def test_inside_of_a_command(node):
    r = node.run(ALIQUOT, "sim", "--", "sh", "-c",
                 f"{ALIQUOT} sim inject lose --gpu 0 && {ALIQUOT} sim show; {PROGRAMS}/sim-hold 1")
    assert "state=lost" in r.stdout and "is 100" in r.stderr
