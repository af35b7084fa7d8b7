# SPDX-License-Identifier: Apache-2.0
"""Unmodified readers of NVML: nvidia-ml-py, gpustat, and the real nvidia-smi 535."""

import json
import os
import subprocess
import sys

import pytest
from sim_kit import CONTEXT, GIB, TOP, TOTAL

pytestmark = pytest.mark.foreign


@pytest.fixture(scope="session")
def nvidia_smi():
    """Fetched from Debian's non-free archive into a cache, installed nowhere."""
    r = subprocess.run([TOP / "scripts/fetch-driver535"], capture_output=True, text=True, check=False)
    assert r.returncode == 0, f"the download of nvidia-smi 535 is not possible here: {r.stderr}"
    return os.path.join(r.stdout.strip(), "nvidia-smi")


def test_nvidia_ml_py(node, nvml):
    assert nvml.nvmlDeviceGetCount() == 2
    gpu, other = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    assert nvml.nvmlDeviceGetName(gpu) == "NVIDIA A100-SXM4-80GB"
    uuid = nvml.nvmlDeviceGetUUID(gpu)
    assert uuid.startswith("GPU-") and len(uuid) == 40
    assert uuid != nvml.nvmlDeviceGetUUID(other)
    assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)) == 0
    pci = nvml.nvmlDeviceGetPciInfo(other)
    assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByPciBusId(pci.busId)) == 1
    assert nvml.nvmlDeviceGetCudaComputeCapability(gpu) == (8, 0)
    p, _, _ = node.hold(GIB)
    q, _, _ = node.hold(2 * GIB)
    info = nvml.nvmlDeviceGetMemoryInfo(gpu)
    assert (info.total, info.used, info.free) == (TOTAL, 3 * GIB + 2 * CONTEXT,
                                                  TOTAL - 3 * GIB - 2 * CONTEXT)
    info = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    assert info.used == 3 * GIB + 2 * CONTEXT
    processes = {x.pid: x.usedGpuMemory for x in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
    assert processes == {p.pid: GIB + CONTEXT, q.pid: 2 * GIB + CONTEXT}
    assert nvml.nvmlSystemGetProcessName(p.pid).endswith("sim-hold")
    assert nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu) == []
    assert nvml.nvmlDeviceGetComputeRunningProcesses(other) == []
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetVgpuCapabilities(gpu, 0)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(2)


def test_nvml_events_wait(nvml):
    events = nvml.nvmlEventSetCreate()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeXidCriticalError, events)
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait_v2(events, 20)
    nvml.nvmlEventSetFree(events)


def test_gpustat(node):
    p, _, _ = node.hold(GIB, 1)
    gpustat = os.path.join(os.path.dirname(sys.executable), "gpustat")
    r = node.run(gpustat, "--json")
    assert r.returncode == 0, r.stderr
    gpus = json.loads(r.stdout)["gpus"]
    assert [g["memory.total"] for g in gpus] == [81920, 81920]
    assert [g["memory.used"] for g in gpus] == [0, 1024 + 416]
    assert gpus[0]["processes"] == []
    [process] = gpus[1]["processes"]
    assert process["pid"] == p.pid and process["gpu_memory_usage"] == 1024 + 416
    assert process["command"] == "sim-hold"


def test_nvidia_smi_table(node, nvidia_smi):
    node.hold(GIB)
    r = node.run(nvidia_smi)
    assert r.returncode == 0, r.stdout
    assert "NVIDIA A100-SXM4-80GB" in r.stdout and "1440MiB / 81920MiB" in r.stdout
    assert "0MiB / 81920MiB" in r.stdout


def test_nvidia_smi_list(node, nvml, nvidia_smi):
    r = node.run(nvidia_smi, "-L")
    expected = "".join(
        f"GPU {i}: NVIDIA A100-SXM4-80GB (UUID: "
        f"{nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i))})\n" for i in range(2))
    assert (r.returncode, r.stdout) == (0, expected)


def test_nvidia_smi_query(node, nvidia_smi):
    node.hold(2 * GIB, 1)
    fields = "index,name,memory.total,memory.used,utilization.gpu,temperature.gpu,power.limit,compute_cap"
    r = node.run(nvidia_smi, f"--query-gpu={fields}", "--format=csv,noheader,nounits")
    assert r.returncode == 0, r.stdout
    assert r.stdout.splitlines() == [
        "0, NVIDIA A100-SXM4-80GB, 81920, 0, 0, 31, 400.00, 8.0",
        "1, NVIDIA A100-SXM4-80GB, 81920, 2464, 0, 31, 400.00, 8.0"]


@pytest.mark.parametrize("options", [["-q"], ["-q", "-x"], ["-q", "-d", "MEMORY,UTILIZATION"]])
def test_nvidia_smi_details(node, nvidia_smi, options):
    r = node.run(nvidia_smi, *options)
    assert r.returncode == 0, r.stdout
    assert r.stdout.count("81920 MiB") >= 2 and "Unknown Error" not in r.stdout


def test_nvidia_smi_without_a_daemon(node, nvidia_smi):
    r = node.run(nvidia_smi, ALIQUOT_SIM_DIR="/nonexistent")
    assert r.returncode != 0 and "driver" in r.stdout
