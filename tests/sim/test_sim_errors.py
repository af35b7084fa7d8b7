# SPDX-License-Identifier: Apache-2.0
"""Memory errors, their repair and links of simulated cards: what NVML says of them, and what the agent makes of it."""

import ctypes
import re

import pytest
from sim_kit import ALIQUOT, wait_until
from test_sim_health import agent_of  # noqa: F401

NVLINK = """[gpu 0-1]
model = A100
[nvlink]
0-1 = 12
"""

PENDING, FAILED = 2, 3  # of nvmlDeviceGetRemappedRows


def rows(nvml, i):
    return nvml.nvmlDeviceGetRemappedRows(nvml.nvmlDeviceGetHandleByIndex(i))


def fields(nvml, i, *ids):
    return [(v.nvmlReturn, v.value.uiVal if v.valueType == nvml.NVML_VALUE_TYPE_UNSIGNED_INT else v.value.ullVal)
            for v in nvml.nvmlDeviceGetFieldValues(nvml.nvmlDeviceGetHandleByIndex(i), list(ids))]


def dcgm(agent, name, card=0):
    found = re.findall(rf'^DCGM_FI_DEV_{name}{{gpu="{card}"[^}}]*}} (\d+)$', agent.get("/metrics"), re.M)
    return int(found[0]) if found else None


def active_links(nvml, i):
    gpu = nvml.nvmlDeviceGetHandleByIndex(i)
    return sum(nvml.nvmlDeviceGetNvLinkState(gpu, link) for link in range(12))


def test_counters_since_the_reset_and_in_all(node, nvml):
    """A reset ends the first ones only, and each kind is cleared alone."""
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    kinds = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED

    def counts():
        return [nvml.nvmlDeviceGetTotalEccErrors(gpu, kind, counter) for counter in
                (nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC) for kind in kinds]

    node.inject("ecc", "corrected", 5, "--gpu", 0)
    node.inject("ecc", "uncorrected", 2, "--gpu", 0)
    assert counts() == [5, 2, 5, 2]
    node.inject("reset", "--gpu", 0, "--force")
    assert counts() == [0, 0, 5, 2]
    node.inject("ecc", "corrected", 1, "--gpu", 0)
    nvml.nvmlDeviceClearEccErrorCounts(gpu, nvml.NVML_AGGREGATE_ECC)
    assert counts() == [1, 0, 0, 0]
    assert fields(nvml, 0, nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, nvml.NVML_FI_DEV_ECC_SBE_AGG_TOTAL) == [(0, 1), (0, 0)]


def test_rows_are_remapped_by_a_reset(node, nvml):
    node.inject("remap", "uncorrectable", 2, "--gpu", 0)
    node.inject("remap", "correctable", "--gpu", 0)
    assert rows(nvml, 0) == (1, 2, 1, 0) and rows(nvml, 1) == (0, 0, 0, 0)
    assert fields(nvml, 0, nvml.NVML_FI_DEV_REMAPPED_PENDING) == [(0, 1)]
    node.inject("reset", "--gpu", 0, "--force")
    assert rows(nvml, 0) == (1, 2, 0, 0)
    node.inject("remap", "failure", "--gpu", 0)
    node.inject("reset", "--gpu", 0, "--force")
    assert rows(nvml, 0) == (1, 2, 0, 1)
    assert "does not retire pages" in node.inject("retire", "double", "--gpu", 0, expect=1)


def banks(nvml, i):
    values = nvml.nvmlDeviceGetRowRemapperHistogram(nvml.nvmlDeviceGetHandleByIndex(i))
    return values.max, values.high, values.partial, values.low, values.none


def test_banks_of_the_memory(node, nvml):
    """Each remapped row is one of another bank; a bank without one is a warning, and a failure is of such a bank."""
    assert banks(nvml, 0) == (640, 0, 0, 0, 0)
    node.inject("remap", "uncorrectable", 2, "--gpu", 0)
    assert banks(nvml, 0) == (638, 2, 0, 0, 0)
    node.inject("remap", "exhausted", 3, "--gpu", 0)
    assert banks(nvml, 0) == (635, 2, 0, 0, 3) and rows(nvml, 0)[FAILED] == 0
    node.inject("remap", "failure", "--gpu", 1)
    assert banks(nvml, 1) == (639, 0, 0, 0, 1)


def sram(nvml, i):
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    nvml.nvmlDeviceGetSramEccErrorStatus(nvml.nvmlDeviceGetHandleByIndex(i), ctypes.byref(status))
    return status.bThresholdExceeded


def test_threshold_of_sram(machine_of):
    """It stays for good. Models before Ampere have none."""
    node, nvml = machine_of("[machine]\ndriver = 550.54.15\n[gpu 0]\nmodel = A100\n[gpu 1]\nmodel = V100\n")
    assert sram(nvml, 0) == 0
    node.inject("sram-threshold", "--gpu", 0)
    node.inject("reset", "--gpu", 0, "--force")
    assert sram(nvml, 0) == 1
    with pytest.raises(nvml.NVMLError_NotSupported):
        sram(nvml, 1)
    assert "no threshold" in node.inject("sram-threshold", "--gpu", 1, expect=1)


def test_no_threshold_of_sram_before_driver_550(machine_of):
    _, nvml = machine_of("[machine]\ndriver = 535.261.03\n[gpu 0]\nmodel = A100\n")
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        sram(nvml, 0)


@pytest.mark.parametrize("args", [("remap", "row"), ("remap", "failure", "2"), ("retire", "triple"), ("link", "0", "left"),
                                  ("link", "18", "down"), ("remap", "correctable", "0")])
def test_what_is_not_understood(node, args):
    node.inject(*args, "--gpu", 0, expect=2)


def test_rows_of_a_divided_card_are_not_reported(node_of, nvml_of):
    node = node_of("--machine", "mig")
    nvml = nvml_of(node)
    divided = next(i for i in range(nvml.nvmlDeviceGetCount())
                   if nvml.nvmlDeviceGetMigMode(nvml.nvmlDeviceGetHandleByIndex(i))[0])
    with pytest.raises(nvml.NVMLError_NotSupported):
        rows(nvml, divided)
    assert fields(nvml, divided, nvml.NVML_FI_DEV_REMAPPED_FAILURE)[0][0] == nvml.NVML_ERROR_NOT_SUPPORTED


def test_pages_are_retired_by_a_reset(node_of, nvml_of):
    node = node_of("--gpus", "1", "--model", "T4")
    nvml = nvml_of(node)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("retire", "double", 2, "--gpu", 0)
    assert len(nvml.nvmlDeviceGetRetiredPages(gpu, nvml.NVML_PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR)) == 2
    assert nvml.nvmlDeviceGetRetiredPages(gpu, nvml.NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS) == []
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 1
    node.inject("reset", "--gpu", 0, "--force")
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 0
    assert fields(nvml, 0, nvml.NVML_FI_DEV_RETIRED_DBE, nvml.NVML_FI_DEV_RETIRED_PENDING) == [(0, 2), (0, 0)]
    assert "does not remap rows" in node.inject("remap", "failure", "--gpu", 0, expect=1)
    assert "has 0 NVLinks" in node.inject("link", 0, "down", "--gpu", 0, expect=1)


def test_a_link_has_two_ends(machine_of):
    node, nvml = machine_of(NVLINK)
    assert [active_links(nvml, i) for i in (0, 1)] == [12, 12]
    node.inject("link", 3, "down", "--gpu", 0)
    assert [active_links(nvml, i) for i in (0, 1)] == [11, 11]
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetNvLinkRemotePciInfo(nvml.nvmlDeviceGetHandleByIndex(1), 3)
    node.inject("link", 3, "up", "--gpu", 1)
    assert [active_links(nvml, i) for i in (0, 1)] == [12, 12]
    node.inject("link", 3, "down", "--gpu", 0)
    node.inject("reset", "--gpu", 1, "--force")
    assert [active_links(nvml, i) for i in (0, 1)] == [12, 12]


def test_the_agent_on_remapped_rows(node, agent_of):  # noqa: F811
    """A pending row and uncorrectable errors that ended programs are figures; a row that could not be remapped takes the
    card out, and no reset brings it back."""
    agent = agent_of(node)
    node.inject("ecc", "uncorrected", 3, "--gpu", 0)
    node.inject("remap", "uncorrectable", "--gpu", 0)
    wait_until(lambda: dcgm(agent, "ROW_REMAP_PENDING") == 1, what="the agent has read it")
    assert (dcgm(agent, "ECC_DBE_VOL_TOTAL"), dcgm(agent, "UNCORRECTABLE_REMAPPED_ROWS")) == (3, 1)
    assert dcgm(agent, "RETIRED_DBE") is None and dcgm(agent, "ROW_REMAP_PENDING", 1) == 0
    assert agent.state(0) == "Healthy"
    node.inject("remap", "failure", "--gpu", 0)
    agent.wait(0, "Unhealthy")
    node.inject("reset", "--gpu", 0, "--force")
    wait_until(lambda: dcgm(agent, "ECC_DBE_VOL_TOTAL") == 0, what="the agent has read it")
    wait_until(lambda: agent.reason(0) == "a row of the memory could not be remapped: the card has to be replaced", 10,
               agent.reason(0))
    assert dcgm(agent, "ROW_REMAP_FAILURE") == 1 and agent.state(1) == "Healthy"


def test_the_agent_on_an_uncorrectable_error_without_an_xid(node_of, agent_of):  # noqa: F811
    """Of a card that cannot contain it: the counter alone shows it."""
    node = node_of("--gpus", "1", "--model", "T4")
    agent = agent_of(node)
    node.inject("ecc", "uncorrected", "--gpu", 0)
    agent.wait(0, "Unhealthy")
    assert agent.reason(0) == "the memory has had an uncorrectable ECC error: the card needs a reset"
    node.inject("reset", "--gpu", 0, "--force")
    agent.wait(0, "Healthy")


def test_the_agent_on_a_link_that_goes_down(node_of, agent_of, tmp_path):  # noqa: F811
    """It takes both cards out, also when XID 74 is ignored, and after a restart of the agent."""
    (tmp_path / "m").write_text(NVLINK)
    node = node_of("--machine", tmp_path / "m")
    agent = agent_of(node, env={"DP_DISABLE_HEALTHCHECKS": "74"})
    node.inject("link", 0, "down", "--gpu", 0)
    for card in (0, 1):
        agent.wait(card, "Unhealthy")
        assert agent.reason(card) == "some of the card's 12 NVLinks are down"
    assert re.findall(r'^aliquot_gpu_nvlinks_active{.*?} (\d+)$', agent.get("/metrics"), re.M) == ["11", "11"]
    agent.kill()
    agent.start()
    agent.wait(0, "Unhealthy")
    node.inject("link", 0, "up", "--gpu", 0)
    for card in (0, 1):
        agent.wait(card, "Healthy")


def test_the_agent_shows_banks_and_the_threshold(node_of, agent_of, tmp_path):  # noqa: F811
    """Both are warnings: the card works on."""
    (tmp_path / "m").write_text("[machine]\ndriver = 550.54.15\n[gpu 0]\nmodel = A100\n")
    node = node_of("--machine", tmp_path / "m")
    agent = agent_of(node)
    assert dcgm(agent, "BANKS_REMAP_ROWS_AVAIL_MAX") == 640 and dcgm(agent, "THRESHOLD_SRM") == 0
    node.inject("remap", "exhausted", "--gpu", 0)
    node.inject("sram-threshold", "--gpu", 0)
    wait_until(lambda: (dcgm(agent, "BANKS_REMAP_ROWS_AVAIL_NONE"), dcgm(agent, "THRESHOLD_SRM")) == (1, 1),
               what="the agent has read it")
    assert agent.state(0) == "Healthy"


FABRIC = """[machine]
numa = 2
[gpu 0-1]
model = H100
fabric = 00010203-0405-0607-0809-0a0b0c0d0e0f.{clique}
[gpu 2]
model = H100
fabric = in-progress
[gpu 3]
model = H100
[gpu 4]
model = A100
"""


def fabric(nvml, i):
    info = nvml.c_nvmlGpuFabricInfo_t()
    call = nvml._nvmlGetFunctionPointer("nvmlDeviceGetGpuFabricInfo")
    code = call(nvml.nvmlDeviceGetHandleByIndex(i), ctypes.byref(info))
    return (info.state, bytes(info.clusterUuid).hex(), info.cliqueId, info.status) if code == 0 else code


def test_fabric(machine_of):
    _, nvml = machine_of(FABRIC.format(clique=32766))
    assert fabric(nvml, 1) == (3, "000102030405060708090a0b0c0d0e0f", 32766, 0)
    assert fabric(nvml, 2) == (2, "0" * 32, 0, 0) and fabric(nvml, 3) == (0, "0" * 32, 0, 0)
    assert fabric(nvml, 4) == nvml.NVML_ERROR_NOT_SUPPORTED


@pytest.mark.parametrize("text", ["00010203-0405-0607-0809-0a0b0c0d0e0f", "0001.1", "00010203-0405-0607-0809-0a0b0c0d0e0f1.1",
                                  "00010203-0405-0607-0809-0a0b0c0d0e0f.x", "done"])
def test_wrong_fabrics(node, tmp_path, text):
    (tmp_path / "m").write_text(f"[gpu 0]\nmodel = H100\nfabric = {text}\n")
    r = node.run(ALIQUOT, "sim", "--machine", tmp_path / "m", "--", "true")
    assert r.returncode == 2 and "UUID.CLIQUE, in-progress or not-started" in r.stderr, r.stderr


def test_no_fabric_before_hopper(node, tmp_path):
    (tmp_path / "m").write_text("[gpu 0]\nmodel = A100\nfabric = not-started\n")
    r = node.run(ALIQUOT, "sim", "--machine", tmp_path / "m", "--", "true")
    assert r.returncode == 2 and "from Hopper on" in r.stderr, r.stderr
