# SPDX-License-Identifier: Apache-2.0
"""Bad days that the driver has by itself: an instance that is destroyed while it is used, minor numbers that a
reset exchanges, a driver that is loaded again and has forgotten the instances."""

import os

import pytest
from sim_kit import GIB, parts
from test_sim_capabilities import Container, access, of_instance

CARDS = "[gpu 0-1]\nmodel = A100\n"


def test_an_instance_is_destroyed_while_it_is_used(machine_of):
    node, nvml = machine_of(CARDS + "[gpu 0]\nmig = 3g.40gb,1g.10gb\n")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    users = {}
    for part in parts(nvml, gpu):
        gi = nvml.nvmlDeviceGetGpuInstanceId(part)
        users[gi] = node.start("hold", GIB, CUDA_VISIBLE_DEVICES=nvml.nvmlDeviceGetUUID(part))
        assert users[gi].stdout.readline().split()[0] == "0"
    gone, kept = sorted(users)
    handle = next(p for p in parts(nvml, gpu) if nvml.nvmlDeviceGetGpuInstanceId(p) == gone)
    node.inject("destroy", gone, "--gpu", 0)
    with pytest.raises(nvml.NVMLError):
        nvml.nvmlDeviceGetMemoryInfo(handle)
    assert [nvml.nvmlDeviceGetGpuInstanceId(p) for p in parts(nvml, gpu)] == [kept]
    assert set(access(node)) == {f"gpu0/mig/gi{kept}/{c}access" for c in ("", "ci0/")}
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)] == [users[kept].pid]
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu).used
    assert GIB < memory < 2 * GIB      # of the other one only
    for p in users.values():
        p.communicate()
    assert "no GPU instance" in node.inject("destroy", gone, "--gpu", 0, expect=1)
    assert "no GPU instance" in node.inject("destroy", 0, "--gpu", 1, expect=1)
    again = nvml.nvmlDeviceCreateGpuInstance(gpu, 9)
    nvml.nvmlGpuInstanceCreateComputeInstance(again, 2)
    assert len(parts(nvml, gpu)) == 2


def test_an_unloaded_driver_forgets_the_instances(machine_of):
    """MIG mode is kept by cards before Hopper only."""
    node, nvml = machine_of("[gpu 0-2]\nmodel = A100\n[gpu 1]\nmodel = H100\n[gpu 0-1]\nmig = 1g.10gb,1g.10gb\n")
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(3)]
    assert [nvml.nvmlDeviceGetMigMode(h)[0] for h in handles] == [1, 1, 0] and access(node)
    node.inject("reload")
    nvml.nvmlShutdown()
    nvml.nvmlInit()
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(3)]
    assert [nvml.nvmlDeviceGetMigMode(h)[0] for h in handles] == [1, 0, 0]
    assert parts(nvml, handles[0]) == [] and access(node) == {}
    made = nvml.nvmlDeviceCreateGpuInstance(handles[0], 19)
    nvml.nvmlGpuInstanceCreateComputeInstance(made, 0)
    assert len(parts(nvml, handles[0])) == 1


def minors(nvml):
    """UUID to minor number, in the order of NVML's indexes."""
    handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    return {nvml.nvmlDeviceGetUUID(h): nvml.nvmlDeviceGetMinorNumber(h) for h in handles}


def listed(node):
    """The same by the files of /proc."""
    found = {}
    for path in sorted((node.dir / "proc/driver/nvidia/gpus").glob("*/information")):
        lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
        found[lines["GPU UUID"].strip()] = int(lines["Device Minor"])
    return found


def idle(node, nvml):
    """No client, not even this one, has the cards open, and none is kept initialised."""
    for i in range(nvml.nvmlDeviceGetCount()):
        nvml.nvmlDeviceSetPersistenceMode(nvml.nvmlDeviceGetHandleByIndex(i), 0)
    nvml.nvmlShutdown()


def test_a_reset_exchanges_minor_numbers(machine_of, tmp_path):
    node, nvml = machine_of(CARDS)
    before = minors(nvml)
    assert list(before.values()) == [0, 1] and listed(node) == before
    idle(node, nvml)
    node.inject("swap-minors", 1, "--gpu", 0)
    nvml.nvmlInit()
    after = minors(nvml)
    # The order of NVML is that of the PCI addresses, and stays.
    assert list(after) == list(before) and list(after.values()) == [1, 0] and listed(node) == after
    # A container that was given the device node of card 0 has card 1 now.
    directory = tmp_path / "c"
    directory.mkdir()
    seen = Container(node, directory, "nvidia0").see("cuda", contained=False)["cuda"]
    assert ["GPU-" + d["uuid"] for d in seen] == [list(before)[1]]
    # What ran before the reset by its UUID runs after it.
    p = node.start("hold", GIB, CUDA_VISIBLE_DEVICES=list(before)[0])
    assert p.stdout.readline().split()[0] == "0"
    assert [x.pid for x in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))] == [p.pid]
    p.communicate()
    idle(node, nvml)
    node.inject("swap-minors", 0, "--gpu", 1)
    nvml.nvmlInit()
    assert minors(nvml) == before == listed(node)


def test_capabilities_have_the_new_numbers(machine_of, tmp_path):
    node, nvml = machine_of(CARDS + "[gpu 0]\nmig = 1g.10gb\n[gpu 1]\nmig = 3g.40gb,2g.20gb\n")
    uuids = [[nvml.nvmlDeviceGetUUID(p) for p in parts(nvml, nvml.nvmlDeviceGetHandleByIndex(i))] for i in range(2)]
    directory = tmp_path / "c"
    directory.mkdir()
    before = Container(node, directory, "nvidia0", *of_instance(node, 1))
    idle(node, nvml)
    node.inject("swap-minors", 1, "--gpu", 0)
    nvml.nvmlInit()
    assert access(node) == {}      # a reset ends the instances
    for i, profiles in enumerate([[(19, 0)], [(9, 2), (14, 1)]]):
        for gpu_profile, compute_profile in profiles:
            gi = nvml.nvmlDeviceCreateGpuInstance(nvml.nvmlDeviceGetHandleByIndex(i), gpu_profile)
            nvml.nvmlGpuInstanceCreateComputeInstance(gi, compute_profile)
    assert set(access(node)) == {f"gpu{g}/mig/gi{i}/{c}access" for g, i in ((1, 1), (0, 1), (0, 2)) for c in ("", "ci0/")}
    if os.geteuid() == 0:
        seen = before.see("cuda")["cuda"]
        assert ["MIG-" + d["uuid"] for d in seen] == [uuids[1][0]]


def test_only_idle_cards_exchange_them(machine_of):
    node, nvml = machine_of(CARDS)
    idle(node, nvml)
    user = node.start("hold", GIB, CUDA_VISIBLE_DEVICES="1")
    assert user.stdout.readline().split()[0] == "0"
    assert "in use" in node.inject("swap-minors", 1, "--gpu", 0, expect=1)
    user.communicate()
    assert "no other GPU" in node.inject("swap-minors", 0, "--gpu", 0, expect=1)
    assert "no other GPU" in node.inject("swap-minors", 2, "--gpu", 0, expect=1)
    nvml.nvmlInit()
    assert list(minors(nvml).values()) == [0, 1]


def test_a_refused_exchange_resets_neither_card(machine_of):
    node, nvml = machine_of(CARDS)
    idle(node, nvml)
    node.inject("ecc", "corrected", "3", "--gpu", 0)
    node.inject("persistence", "on", "--gpu", 1)
    assert "GPU 1 is in use" in node.inject("swap-minors", 1, "--gpu", 0, expect=1)
    nvml.nvmlInit()
    assert list(minors(nvml).values()) == [0, 1]
    kinds = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_VOLATILE_ECC
    assert nvml.nvmlDeviceGetTotalEccErrors(nvml.nvmlDeviceGetHandleByIndex(0), *kinds) == 3


def test_a_reset_turns_mig_mode_off_on_hopper(machine_of):
    node, nvml = machine_of("[gpu 0]\nmodel = H100\nmig = 1g.10gb\n")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    node.inject("reset", "--force", "--gpu", 0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0] and access(node) == {}
