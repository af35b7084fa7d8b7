# SPDX-License-Identifier: Apache-2.0
"""A guest with vGPUs: its mode, its licence, the name of its host in PCI config space, and what it cannot do."""

import re
import time

import pytest
from sim_kit import ALIQUOT, wait_until
from test_sim_health import agent_of  # noqa: F401
from test_sim_host_view import capabilities

GUEST = """[machine]
driver = 550.127.05
virtualization = vgpu
{more}
[gpu 0-1]
model = A100
[gpu 1]
licence = unlicensed
"""


@pytest.fixture
def guest(node_of, tmp_path):
    def make(more="host-driver = 550.90.05\nhost-branch = r550_00"):
        path = tmp_path / "guest.machine"
        path.write_text(GUEST.format(more=more))
        return node_of("--machine", path)

    return make


def licence(nvml, i):
    found = nvml.nvmlDeviceGetGridLicensableFeatures_v4(nvml.nvmlDeviceGetHandleByIndex(i))
    assert (found.isGridLicenseSupported, found.licensableFeaturesCount) == (1, 1)
    return found.gridLicensableFeatures[0]


def end_of(feature):
    e = feature.licenseExpiry
    return None if e.status == 0 else time.strptime(f"{e.year} {e.month} {e.day} {e.hour} {e.min} {e.sec}",
                                                    "%Y %m %d %H %M %S")


def licences(agent):
    return re.findall(r'^DCGM_FI_DEV_VGPU_LICENSE_STATUS{.*?} (\d)$', agent.get("/metrics"), re.M)


def test_the_agent_shows_the_licence(guest, agent_of):  # noqa: F811
    """A vGPU without a licence works on, until its host says otherwise."""
    node = guest()
    agent = agent_of(node)
    assert licences(agent) == ["1", "0"] and agent.state(1) == "Healthy"
    node.inject("licence", "expired", "--gpu", 0)
    wait_until(lambda: licences(agent) == ["0", "0"], what="the agent has read it")
    assert agent.state(0) == "Healthy"
    node.inject("licence", "licensed", "--gpu", 0)
    wait_until(lambda: licences(agent) == ["1", "0"], what="the agent has read it")


def records(node):
    """Of each card, the texts of its vendor-specific capability."""
    found = []
    for device in sorted((node.dir / "sys/bus/pci/devices").iterdir()):
        at = dict(capabilities((device / "config").read_bytes()))[0x09]
        assert at[2] == 27 and at[3:5] == b"VF" and at[5:7] == b"\0\x16"
        found.append(tuple(at[n:n + 10].rstrip(b"\0").decode() for n in (7, 17)))
    return found


def test_what_a_guest_is(guest, nvml_of):
    node = guest()
    nvml = nvml_of(node)
    assert nvml.nvmlDeviceGetVirtualizationMode(nvml.nvmlDeviceGetHandleByIndex(0)) == 2
    first, second = licence(nvml, 0), licence(nvml, 1)
    assert (first.featureCode, first.featureState, first.featureEnabled) == (4, 1, 1)
    assert first.productName == "NVIDIA Virtual Compute Server"
    assert second.featureState == 0 and end_of(second) is None
    left = time.mktime(end_of(first)) - time.mktime(time.gmtime())
    assert 86000 < left <= 86400
    assert records(node) == [("550.90.05", "r550_00")] * 2
    p, result, _ = node.hold(1 << 30)
    assert result == 0
    p.communicate()


def test_the_host_by_default_and_at_its_longest(guest):
    assert records(guest("")) == [("550.127.05", "r550_00")] * 2
    assert records(guest("host-driver = 0123456789\nhost-branch = abcdefghij")) == [("0123456789", "abcdefghij")] * 2


def test_a_licence_comes_and_goes(guest, nvml_of):
    node = guest()
    nvml = nvml_of(node)
    for state, licensed in (("expired", 0), ("licensed", 1), ("unlicensed", 0)):
        node.inject("licence", state, "--gpu", 0)
        found = licence(nvml, 0)
        assert found.featureState == licensed and (end_of(found) is None) == (state == "unlicensed")
        if state == "expired":
            assert end_of(found) <= time.gmtime()
        assert [x["licence"] for x in node.show() if "uuid" in x] == [state, "unlicensed"]
    assert "licensed, unlicensed or expired" in node.inject("licence", "none", "--gpu", 0, expect=2)
    assert "--gpu" in node.inject("licence", "licensed", expect=2)


def test_what_a_guest_cannot_do(guest, nvml_of):
    node = guest()
    nvml = nvml_of(node)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    for call in (lambda: nvml.nvmlDeviceGetMigMode(gpu), lambda: nvml.nvmlDeviceSetMigMode(gpu, 1),
                 lambda: nvml.nvmlDeviceCreateGpuInstance(gpu, 19)):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call()
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0
    node.inject("xid", 48, "--gpu", 0)
    assert "is a vGPU" in node.inject("reset", "--gpu", 0, expect=1)


def test_a_card_of_ones_own(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetVirtualizationMode(gpu) == 0
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetGridLicensableFeatures_v4(gpu)
    assert "only the vGPUs of a guest" in node.inject("licence", "licensed", "--gpu", 0, expect=1)
    assert not any("licence" in x for x in node.show())


@pytest.mark.parametrize("text,reason", [
    ("[gpu 0]\nmodel = A100\nlicence = licensed", "only a vGPU has a licence"),
    ("[machine]\nhost-driver = 1\n[gpu 0]\nmodel = A100", "only a guest has a host"),
    ("[machine]\nvirtualization = vgpu\n[gpu 0]\nmodel = A100\nmig = 1g.10gb", "a vGPU has no MIG mode"),
    ("[machine]\nvirtualization = xen\n[gpu 0]\nmodel = A100", "neither 'none' nor 'vgpu'"),
    ("[machine]\nvirtualization = vgpu\n[gpu 0]\nmodel = A100\nlicence = maybe", "licensed, unlicensed or expired"),
    ("[machine]\nvirtualization = vgpu\nhost-driver = 01234567890\n[gpu 0]\nmodel = A100", "1 to 10 characters"),
    ("[machine]\nvirtualization = vgpu\nhost-branch =\n[gpu 0]\nmodel = A100", "1 to 10 characters"),
])
def test_wrong_files(node, tmp_path, text, reason):
    path = tmp_path / "wrong.machine"
    path.write_text(text)
    r = node.run(ALIQUOT, "sim", "--machine", path, "--", "true")
    assert r.returncode == 2 and reason in r.stderr, r.stderr
