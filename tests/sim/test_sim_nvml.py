# SPDX-License-Identifier: Apache-2.0
"""NVML's getters and setters, by NVIDIA's own binding, and held to the real library of driver 535."""

import ctypes
import inspect
import os
import subprocess
import sys

import pytest
from sim_kit import ALIQUOT, BUILD, CONTEXT, GIB, TOP, wait_until


READ, NVLINK = 0, 2  # the binding's own NVML_P2P_CAPS_INDEX_ constants are tuples


@pytest.fixture(scope="session")
def driver535():
    r = subprocess.run([TOP / "scripts/fetch-driver535"], capture_output=True, text=True, check=False)
    assert r.returncode == 0, f"the download of driver 535 is not possible here: {r.stderr}"
    return r.stdout.strip()


@pytest.fixture
def on(node_of, nvml_of):
    def start(machine):
        node = node_of("--machine", machine)
        nvml = nvml_of(node)
        return node, nvml, [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    return start


def refused(nvml, call, *args):
    with pytest.raises(nvml.NVMLError_NotSupported):
        call(*args)


# -- where cards are -------------------------------------------------------------------------

def test_cards_on_switches(on):
    _, nvml, gpus = on("dgx-a100")
    level = nvml.nvmlDeviceGetTopologyCommonAncestor
    assert level(gpus[0], gpus[1]) == nvml.NVML_TOPOLOGY_SINGLE
    assert level(gpus[0], gpus[2]) == nvml.NVML_TOPOLOGY_NODE
    assert level(gpus[0], gpus[7]) == level(gpus[7], gpus[0]) == nvml.NVML_TOPOLOGY_SYSTEM
    near = nvml.nvmlDeviceGetTopologyNearestGpus(gpus[0], nvml.NVML_TOPOLOGY_NODE)
    assert [nvml.nvmlDeviceGetIndex(g) for g in near] == [2, 3]
    for link in range(12):
        assert nvml.nvmlDeviceGetNvLinkState(gpus[0], link) == 1
        assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpus[0], link) == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
    assert len({nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpus[0], n).busId for n in range(12)}) == 6
    assert nvml.nvmlDeviceGetNvLinkVersion(gpus[0], 0) == 3
    for link in range(12, 18):   # the most that a card of these generations has, which programs ask for until one answers otherwise
        refused(nvml, nvml.nvmlDeviceGetNvLinkState, gpus[0], link)
        refused(nvml, nvml.nvmlDeviceGetNvLinkRemotePciInfo, gpus[0], link)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetNvLinkState(gpus[0], 18)
    for kind in (READ, NVLINK):
        assert nvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[5], kind) == nvml.NVML_P2P_STATUS_OK
    assert nvml.nvmlDeviceGetMemoryAffinity(gpus[7], 1, nvml.NVML_AFFINITY_SCOPE_NODE)[0] == 2


def test_cards_linked_to_each_other(on):
    _, nvml, gpus = on("a100x4-nvlink")
    peers = [nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpus[2], n).busId for n in range(12)]
    buses = [nvml.nvmlDeviceGetPciInfo(g).busId for g in gpus]
    assert {p: peers.count(p) for p in peers} == {buses[i]: 4 for i in (0, 1, 3)}


def test_cards_without_links(on):
    _, nvml, gpus = on("mixed")
    refused(nvml, nvml.nvmlDeviceGetNvLinkState, gpus[1], 0)
    assert nvml.nvmlDeviceGetNvLinkState(gpus[0], 0) == 0  # it has links, but they lead nowhere
    status = nvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[1], NVLINK)
    assert status == nvml.NVML_P2P_STATUS_NOT_SUPPORTED
    status = nvml.nvmlDeviceGetP2PStatus(gpus[0], gpus[3], READ)
    assert status == nvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORED


def test_cpus_near_a_card(node_of, nvml_of, tmp_path):
    machine = tmp_path / "m"
    machine.write_text("[machine]\nnuma = 2\ncpus-per-node = 48\n[gpu 0-1]\nmodel = L4\n[gpu 1]\nnuma = 1\n")
    nvml = nvml_of(node_of("--machine", machine))
    one = nvml.nvmlDeviceGetHandleByIndex(1)
    assert list(nvml.nvmlDeviceGetCpuAffinity(one, 2)) == [0xffff << 48, 0xffffffff]
    assert [nvml.nvmlDeviceGetIndex(g) for g in nvml.nvmlSystemGetTopologyGpuSet(50)] == [1]


# -- settings, accounting, fields ------------------------------------------------------------

def test_what_is_set_is_set_for_all(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetPersistenceMode(gpu, 0)
    nvml.nvmlDeviceSetPowerManagementLimit(gpu, 250_000)
    assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 0
    assert nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) == 250_000
    assert nvml.nvmlDeviceGetPowerManagementDefaultLimit(gpu) == 400_000
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceSetPowerManagementLimit(gpu, 500_000)
    assert nvml.nvmlDeviceGetPersistenceMode(nvml.nvmlDeviceGetHandleByIndex(1)) == 1


def test_a_card_for_one_process_or_none(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetComputeMode(gpu, nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    first, result, _ = node.hold(GIB)
    assert result == 0
    second = node.start("hold", 1)
    assert "is 46" in second.communicate()[1]
    first.communicate()
    assert node.hold(GIB)[1] == 0
    nvml.nvmlDeviceSetComputeMode(gpu, nvml.NVML_COMPUTEMODE_PROHIBITED)
    third = node.start("hold", 1)
    assert "is 46" in third.communicate()[1]


def test_clients_of_mps(node, nvml, tmp_path):
    """They are one process for the compute mode, and listed apart."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetComputeMode(gpu, nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    pipes = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    alone, result, _ = node.hold(GIB, **pipes)      # there is no daemon
    assert result == 0 and "is 46" in node.start("hold", 1).communicate()[1]
    (tmp_path / "control").touch()
    assert "is 46" in node.start("hold", 1, **pipes).communicate()[1]
    alone.communicate()
    first, second = (node.hold(size * GIB, **pipes) for size in (1, 2))
    assert (first[1], second[1]) == (0, 0)
    assert "is 46" in node.start("hold", 1).communicate()[1]
    listed = {p.pid: p.usedGpuMemory // GIB for p in nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu)}
    assert listed == {first[0].pid: 1, second[0].pid: 2}
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpu) == []


def test_others_may_not_set(node, nvml):
    if os.geteuid() != 0:
        pytest.skip("needs root, to change to another user")
    code = ("import ctypes; l = ctypes.CDLL('libnvidia-ml.so.1'); assert l.nvmlInit_v2() == 0;"
            "h = ctypes.c_void_p(); l.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h));"
            "print(l.nvmlDeviceSetComputeMode(h, 2), l.nvmlDeviceSetPersistenceMode(h, 0))")
    for directory in (node.dir, *node.dir.parents):
        if directory != directory.parent and directory.stat().st_uid == 0 and str(directory) != "/tmp":
            directory.chmod(0o755)
    r = node.run("setpriv", "--reuid", "1", "--regid", "1", "--clear-groups", "/usr/bin/python3", "-c", code)
    assert r.stdout.split() == ["4", "4"], r.stderr  # NVML_ERROR_NO_PERMISSION


def test_accounting(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    refused(nvml, nvml.nvmlDeviceGetAccountingPids, gpu)
    assert nvml.nvmlDeviceGetAccountingMode(gpu) == 0
    nvml.nvmlDeviceSetAccountingMode(gpu, 1)
    p, _, _ = node.hold(3 * GIB)
    q = node.start("spin", 30_000_000, 10)
    q.stdout.readline()
    assert q.communicate("\n")[0]
    wait_until(lambda: nvml.nvmlDeviceGetAccountingStats(gpu, q.pid).isRunning == 0, what="it has ended")
    assert sorted(nvml.nvmlDeviceGetAccountingPids(gpu)) == sorted([p.pid, q.pid])
    lives, ended = (nvml.nvmlDeviceGetAccountingStats(gpu, x.pid) for x in (p, q))
    assert (lives.isRunning, lives.time, lives.maxMemoryUsage) == (1, 0, 3 * GIB + CONTEXT)
    assert ended.maxMemoryUsage == CONTEXT and ended.time >= 300 and 0 < ended.gpuUtilization <= 100
    assert lives.startTime < ended.startTime
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetAccountingStats(gpu, 1)
    nvml.nvmlDeviceClearAccountingPids(gpu)
    assert list(nvml.nvmlDeviceGetAccountingPids(gpu)) == [p.pid]


def test_fields_agree_with_the_getters(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("ecc", "uncorrected", 2, "--gpu", 0)
    wanted = {nvml.NVML_FI_DEV_ECC_CURRENT: 1, nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL: 2,
              nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: 0, nvml.NVML_FI_DEV_NVLINK_LINK_COUNT: 12,
              nvml.NVML_FI_DEV_REMAPPED_PENDING: 0, nvml.NVML_FI_DEV_POWER_DEFAULT_LIMIT: 400_000,
              nvml.NVML_FI_DEV_POWER_INSTANT: nvml.nvmlDeviceGetPowerUsage(gpu),
              nvml.NVML_FI_DEV_MEMORY_TEMP: nvml.nvmlDeviceGetTemperature(gpu, 0) + 3}
    values = nvml.nvmlDeviceGetFieldValues(gpu, list(wanted))
    for v, expected in zip(values, wanted.values()):
        assert v.nvmlReturn == 0
        got = v.value.ullVal if v.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG else v.value.uiVal
        assert got == expected, v.fieldId
    [unknown] = nvml.nvmlDeviceGetFieldValues(gpu, [60_000])
    assert unknown.nvmlReturn == nvml.NVML_ERROR_NOT_SUPPORTED


# -- everything ------------------------------------------------------------------------------

@pytest.mark.parametrize("machine", ["t4", "dgx-a100", "hgx-h100", "mixed"])
def test_every_getter_answers_or_refuses(on, machine):
    """All that nvidia-ml-py asks about a device without further arguments."""
    _, nvml, gpus = on(machine)
    answered, other = 0, []
    for name, call in inspect.getmembers(nvml, inspect.isfunction):
        if not name.startswith("nvmlDeviceGet"):
            continue
        parameters = [p for p in inspect.signature(call).parameters.values() if p.default is p.empty]
        if len(parameters) != 1 or "andle" in name:
            continue
        for gpu in gpus if machine == "mixed" else gpus[:1]:
            try:
                call(gpu)
                answered += 1
            except nvml.NVMLError as e:
                if e.value not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT,
                                   nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
                    other.append((name, e))
                elif e.value == nvml.NVML_ERROR_FUNCTION_NOT_FOUND and name in EXPORTS:
                    other.append((name, e))
            except (TypeError, AttributeError):  # the binding wants another kind of argument
                pass
    assert not other and answered >= 60, (answered, other)


EXPORTS = set((TOP / "src/abi/nvml-exports.txt").read_text().split())

ASK = """
import ctypes, os, sys
l = ctypes.CDLL(sys.argv[1])
for name in sys.stdin.read().split():
    pid = os.fork()
    if pid == 0:
        try:
            f = getattr(l, name)
        except AttributeError:
            os._exit(200)
        os._exit(f(*[None] * 8) & 0xff)
    status = os.waitpid(pid, 0)[1]
    print(name, -(status & 0x7f) if status & 0x7f else status >> 8)
"""


def answers(library, **env):
    names = "\n".join(sorted(EXPORTS - {"nvmlErrorString", "nvmlInternalGetExportTable", "nvmlInit",
                                        "nvmlInit_v2", "nvmlInitWithFlags"}))
    r = subprocess.run([sys.executable, "-c", ASK, library], input=names, capture_output=True, text=True,
                       check=True, env={**os.environ, **env})
    return dict(line.split() for line in r.stdout.splitlines())


@pytest.mark.foreign
def test_before_init_as_the_real_library(driver535):
    """Every function that 535 exports, called with nothing: the same status, and no crash."""
    real = answers(f"{driver535}/libnvidia-ml.so.1")
    ours = answers(str(BUILD / "src/sim/libnvidia-ml.so.1"))
    known = {n for n, status in real.items() if status != "200"}
    assert len(known) > 300
    assert {n: (ours[n], real[n]) for n in known if ours[n] != real[n]} == {}
    assert {n: s for n, s in ours.items() if s.startswith("-") or s == "200"} == {}


@pytest.mark.foreign
def test_all_names_of_the_real_library(driver535):
    names = subprocess.run(["nm", "-D", "--defined-only", f"{driver535}/libnvidia-ml.so.1"],
                           capture_output=True, text=True, check=True).stdout.split()
    assert {n for n in names if n.startswith("nvml")} <= EXPORTS


def test_null_arguments_crash_nobody(node):
    """After nvmlInit, with a device and nothing else: every function returns."""
    code = """
import ctypes, os, sys
l = ctypes.CDLL('libnvidia-ml.so.1')
assert l.nvmlInit_v2() == 0
h = ctypes.c_void_p()
assert l.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h)) == 0
for name in sys.stdin.read().split():
    pid = os.fork()
    if pid == 0:
        if name != 'nvmlErrorString':
            getattr(l, name)(h, *[None] * 8)
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        print(name, status)
"""
    names = "\n".join(n for n in EXPORTS if n.startswith(("nvmlDevice", "nvmlGpm", "nvmlSystemGet")))
    r = subprocess.run([sys.executable, "-c", code], input=names, capture_output=True, text=True, env=node.env(),
                       check=False)
    assert (r.returncode, r.stdout) == (0, ""), r.stderr


def test_younger_forms_agree_with_the_older(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    assert nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU) == nvml.nvmlDeviceGetTemperature(gpu, 0)
    assert nvml.nvmlSystemGetDriverBranch().branch == "r570_00"
    pci = nvml.nvmlPciInfoExt_v1_t()
    pci.version = nvml.nvmlPciInfoExt_v1
    nvml.nvmlDeviceGetPciInfoExt(gpu, ctypes.byref(pci))
    assert pci.busId == nvml.nvmlDeviceGetPciInfo(gpu).busId
    assert nvml.nvmlDeviceGetSupportedPerformanceStates(gpu)[0] == nvml.nvmlDeviceGetPerformanceState(gpu) == 0
    assert nvml.nvmlUnitGetCount() == 0
    low, high = nvml.nvmlDeviceGetMinMaxClockOfPState(gpu, nvml.NVML_CLOCK_SM, 0)
    assert low < high == nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM)


def test_machine_in_a_command():
    r = subprocess.run([ALIQUOT, "sim", "--machine", "hgx-h100", "--", sys.executable, "-c",
                        "import ctypes; l = ctypes.CDLL('libnvidia-ml.so.1'); l.nvmlInit_v2();"
                        "n = ctypes.c_uint(); l.nvmlDeviceGetCount_v2(ctypes.byref(n)); print(n.value)"],
                       capture_output=True, text=True, check=True)
    assert r.stdout == "8\n"


def test_vbios_of_each_model(on):
    _, nvml, gpus = on("mixed")
    assert [nvml.nvmlDeviceGetVbiosVersion(g)[:6] for g in gpus] == ["92.00.", "90.04.", "90.04.", "95.02."]


def errors_by_location(nvml, gpu, uncorrected):
    """{location: count} of those that the card counts."""
    found = {}
    for location in range(nvml.NVML_MEMORY_LOCATION_COUNT):
        try:
            found[location] = nvml.nvmlDeviceGetMemoryErrorCounter(gpu, uncorrected, nvml.NVML_VOLATILE_ECC, location)
        except nvml.NVMLError_NotSupported:
            pass
    return found


@pytest.mark.parametrize("model,corrected,uncorrected", [("A100", {2: 5, 7: 0}, {2: 3, 7: 0}), ("T4", {2: 5, 7: 0}, {2: 3, 7: 0}),
                                                         ("V100", {0: 0, 1: 0, 2: 5, 3: 0}, {0: 0, 1: 0, 2: 3, 3: 0, 6: 0})])
def test_memory_errors_by_location(node_of, nvml_of, model, corrected, uncorrected):
    """Readers add them up: an error must not be counted at several places."""
    node = node_of("--model", model)
    nvml = nvml_of(node)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("ecc", "uncorrected", "3", "--gpu", 0)
    node.inject("ecc", "corrected", "5", "--gpu", 0)
    assert errors_by_location(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED) == corrected
    assert errors_by_location(nvml, gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED) == uncorrected
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC) == 3
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetMemoryErrorCounter(gpu, 0, nvml.NVML_VOLATILE_ECC, nvml.NVML_MEMORY_LOCATION_COUNT)
