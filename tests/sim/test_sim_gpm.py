# SPDX-License-Identifier: Apache-2.0
"""NVML's profiling metrics (GPM) by NVIDIA's own binding, and what the agent makes of them."""

import ctypes
import pathlib
import tempfile
import time

import pytest
from sim_kit import parts, wait_until
from test_sim_agent import Agent

HOPPER = "[gpu 0]\nmodel = H100\n"
DIVIDED = HOPPER + "mig = 3g.40gb,1g.10gb\n"
SPIN = 60_000_000_000
# The metrics that NVIDIA's dashboard 12239 asks for, in either of its editions, each by the label `gpu` and that of the host.
DASHBOARD = ["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_GPU_UTIL",
             "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"]


@pytest.fixture
def hopper(machine_of):
    return machine_of(HOPPER)


def spinning(node, **env):
    """A process that computes from now on."""
    p = node.start("spin", SPIN, 1, **env)
    p.stdout.readline()
    p.stdin.write("\n")
    p.stdin.flush()
    wait_until(lambda: any(one.get("queued", "0") != "0" for one in node.show()), what="it computes")
    return p


def request(nvml, samples, *ids):
    get = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=len(ids),
                                     sample1=samples[0], sample2=samples[1])
    for i, metric in enumerate(ids):
        get.metrics[i].metricId = metric
    return get


def measure(nvml, take):
    """(graphics, tensor, dram, sent, received) over 0.3 s; None: not supported."""
    samples = [nvml.nvmlGpmSampleAlloc() for _ in range(2)]
    take(samples[0])
    time.sleep(0.3)
    take(samples[1])
    get = request(nvml, samples, nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL,
                  nvml.NVML_GPM_METRIC_DRAM_BW_UTIL, nvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC,
                  nvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC)
    nvml.nvmlGpmMetricsGet(get)
    for sample in samples:
        nvml.nvmlGpmSampleFree(sample)
    return [m.value if m.nvmlReturn == 0 else None for m in get.metrics[:get.numMetrics]]


def test_a_card_that_computes(hopper):
    node, nvml = hopper
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice == 1
    assert measure(nvml, lambda sample: nvml.nvmlGpmSampleGet(gpu, sample)) == [0, 0, 0, 0, 0]
    p = spinning(node)
    busy = measure(nvml, lambda sample: nvml.nvmlGpmSampleGet(gpu, sample))
    assert 95 < busy[0] <= 100 and busy[1:] == [0, busy[0] / 2, 0, 0]
    p.kill()


def test_before_hopper(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlGpmQueryDeviceSupport(gpu).isSupportedDevice == 0
    sample = nvml.nvmlGpmSampleAlloc()
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlGpmSampleGet(gpu, sample)
    nvml.nvmlGpmSampleFree(sample)


def test_what_is_refused(hopper):
    _, nvml = hopper
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    taken, later, empty = (nvml.nvmlGpmSampleAlloc() for _ in range(3))
    for sample in (taken, later):
        nvml.nvmlGpmSampleGet(gpu, sample)
    for samples in ((taken, empty), (empty, taken), (taken, taken), (later, taken), (taken, None)):
        with pytest.raises(nvml.NVMLError_InvalidArgument):
            nvml.nvmlGpmMetricsGet(request(nvml, samples, nvml.NVML_GPM_METRIC_GRAPHICS_UTIL))
    get = request(nvml, (taken, later), nvml.NVML_GPM_METRIC_GRAPHICS_UTIL, 99)
    nvml.nvmlGpmMetricsGet(get)
    assert [m.nvmlReturn for m in get.metrics[:2]] == [0, nvml.NVML_ERROR_NOT_SUPPORTED]
    get.version = 2
    mismatch = nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    with pytest.raises(nvml.NVMLError) as refused:
        nvml.nvmlGpmMetricsGet(get)
    assert refused.value.value == mismatch
    support = nvml.c_nvmlGpmSupport_t(version=2)
    call = ctypes.CDLL("libnvidia-ml.so.1").nvmlGpmQueryDeviceSupport
    assert call(gpu, ctypes.byref(support)) == mismatch
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlGpmMigSampleGet(gpu, 1, taken)     # the card is not divided


def test_instances(machine_of):
    """Each by itself; of the card only what does not belong to an instance."""
    node, nvml = machine_of(DIVIDED)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    busy, idle = parts(nvml, gpu)
    p = spinning(node, CUDA_VISIBLE_DEVICES=nvml.nvmlDeviceGetUUID(busy))

    def of(instance):
        gi = nvml.nvmlDeviceGetGpuInstanceId(instance)
        return measure(nvml, lambda sample: nvml.nvmlGpmMigSampleGet(gpu, gi, sample))
    assert 95 < of(busy)[0] <= 100
    assert of(idle)[0] == 0
    assert measure(nvml, lambda sample: nvml.nvmlGpmSampleGet(gpu, sample)) == [None, None, None, 0, 0]
    p.kill()


# -- the agent -------------------------------------------------------------------------------

@pytest.fixture
def agent_of(machine_of):
    agents = []

    with tempfile.TemporaryDirectory() as path:     # a short name, for sockets
        def start(machine):
            node, nvml = machine_of(machine)
            agents.append(Agent(node, pathlib.Path(path)))
            return node, nvml, agents[-1]
        yield start
        for agent in agents:
            agent.close()


def test_the_agent_shows_them(agent_of):
    node, _, agent = agent_of(HOPPER)
    active = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
    wait_until(lambda: [value for _, value in agent.samples(active)] == [0], what="two readings")
    p = spinning(node)
    wait_until(lambda: agent.samples(active)[0][1] > 0.9, what="a second of work")
    p.kill()
    names = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_PROF_DRAM_ACTIVE", "DCGM_FI_PROF_PCIE_TX_BYTES",
             "DCGM_FI_PROF_PCIE_RX_BYTES", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", *DASHBOARD}
    for name in names:
        ((labels, _),) = agent.samples(name)
        assert labels["gpu"] == "0" and labels["Hostname"], name


def test_the_agent_shows_instances(agent_of):
    node, nvml, agent = agent_of(DIVIDED)
    (busy, _) = parts(nvml, nvml.nvmlDeviceGetHandleByIndex(0))
    p = spinning(node, CUDA_VISIBLE_DEVICES=nvml.nvmlDeviceGetUUID(busy))

    def active():
        return {labels["GPU_I_PROFILE"]: round(value) for labels, value in agent.samples("DCGM_FI_PROF_GR_ENGINE_ACTIVE")}
    wait_until(lambda: active() == {"3g.40gb": 1, "1g.10gb": 0}, what="one of two instances works")
    p.kill()
    ((labels, _),) = agent.samples("DCGM_FI_PROF_PCIE_TX_BYTES")
    assert not labels.get("GPU_I_ID")


def test_no_figure_before_hopper(agent_of):
    _, _, agent = agent_of("[gpu 0]\nmodel = A100\n")
    wait_until(lambda: agent.samples("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"), what="two readings")
    assert "\nDCGM_FI_PROF" not in agent.page()
