# SPDX-License-Identifier: Apache-2.0
"""Multi-instance GPUs: made by a machine file or through NVML, used by CUDA, seen by readers."""

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from sim_kit import GIB, TOP, parts, wait_until
from test_sim_capabilities import access
from test_sim_garbage import ALLOC, request, session

MIB = 1 << 20
SHARE, SHARE_EXPORT, MIG = 13, 16, 25  # requests to the daemon (src/sim/proto.h)
MIG_ATTACH = 2
UNIT = 64  # the first part of a card


def test_a_machine_file_divides(on):
    node, nvml = on("--machine", "mig")
    gpu, seven, whole = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(3))
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert nvml.nvmlDeviceGetMigMode(whole) == [0, 0]
    names = [nvml.nvmlDeviceGetName(p).split(" MIG ")[1] for p in parts(nvml, gpu)]
    assert sorted(names) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert len(parts(nvml, seven)) == 7
    uuids = {nvml.nvmlDeviceGetUUID(p) for g in (gpu, seven) for p in parts(nvml, g)}
    assert len(uuids) == 11 and all(u.startswith("MIG-") and len(u) == 40 for u in uuids)
    part = parts(nvml, gpu)[0]
    assert [nvml.nvmlDeviceIsMigDeviceHandle(h).value for h in (part, gpu)] == [1, 0]
    same = nvml.nvmlDeviceGetHandleByUUID(nvml.nvmlDeviceGetUUID(part))
    assert nvml.nvmlDeviceGetUUID(same) == nvml.nvmlDeviceGetUUID(part)
    parent = nvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(part)
    assert nvml.nvmlDeviceGetUUID(parent) == nvml.nvmlDeviceGetUUID(gpu)
    attributes = nvml.nvmlDeviceGetAttributes(part)
    assert (attributes.multiprocessorCount, attributes.gpuInstanceSliceCount,
            attributes.memorySizeMB) == (42, 3, 40192)
    assert nvml.nvmlDeviceGetMemoryInfo(part).total == 40192 * MIB
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetUtilizationRates(gpu)
    with pytest.raises(nvml.NVMLError_NotFound):    # as of an index that no instance has
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(whole, 0)


def test_a_divided_card_has_the_default_compute_mode(on):
    _, nvml = on("--machine", "mig")
    divided, whole = (nvml.nvmlDeviceGetHandleByIndex(i) for i in (0, 2))
    assert nvml.nvmlDeviceGetComputeMode(divided) == nvml.NVML_COMPUTEMODE_DEFAULT
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceSetComputeMode(divided, nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    nvml.nvmlDeviceSetComputeMode(whole, nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
    assert nvml.nvmlDeviceGetComputeMode(whole) == nvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def test_a_card_that_cannot_be_divided(on):
    _, nvml = on("--model", "T4")
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.nvmlDeviceGetHandleByIndex(0), 0)


def test_processes_on_parts(on):
    node, nvml = on("--machine", "mig")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    by_name = {nvml.nvmlDeviceGetName(p).split(" MIG ")[1]: p for p in parts(nvml, gpu)}
    small, large = by_name["1g.10gb"], by_name["3g.40gb"]

    def hold(part, size):
        p = node.start("hold", size, CUDA_VISIBLE_DEVICES=nvml.nvmlDeviceGetUUID(part))
        return p, [int(x) for x in p.stdout.readline().split()[:2]]

    a, (result, free) = hold(small, 9 * GIB)
    context = 416 * MIB // 8
    assert (result, free) == (0, 9728 * MIB - 9 * GIB - context)
    _, (result, _) = hold(small, GIB)
    assert result == 2  # that part is full, whatever the card has
    b, (result, _) = hold(large, 30 * GIB)
    assert result == 0
    listed = {p.pid: (p.usedGpuMemory, p.gpuInstanceId, p.computeInstanceId)
              for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)}
    assert listed[a.pid] == (9 * GIB + context, nvml.nvmlDeviceGetGpuInstanceId(small), 0)
    assert listed[b.pid][1] == nvml.nvmlDeviceGetGpuInstanceId(large)
    assert [p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(large)] == [b.pid]
    used = sum(nvml.nvmlDeviceGetMemoryInfo(p).used for p in by_name.values())
    assert nvml.nvmlDeviceGetMemoryInfo(gpu).used == used
    b.kill()
    b.wait()


def test_parts_do_not_share_time(on):
    node, nvml = on("--machine", "mig")
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    uuids = [nvml.nvmlDeviceGetUUID(p) for p in parts(nvml, gpu)]
    long = node.start("spin", 20_000_000_000, 1, CUDA_VISIBLE_DEVICES=uuids[0])
    short = node.start("spin", 10_000_000, 20, CUDA_VISIBLE_DEVICES=uuids[1])
    for p in (long, short):
        p.stdout.readline()
        p.stdin.write("\n")
        p.stdin.flush()
    _, events = map(float, short.stdout.readline().split())
    assert 200 <= events < 300


def test_what_cuda_makes_of_it(on):
    node, _ = on("--machine", "mig")

    def total(**env):
        p = node.start("hold", 1, **env)
        words = p.stdout.readline().split()
        p.communicate()
        return int(words[1]) // GIB if words else None

    assert total() == 39  # the first MIG device, and then no whole card
    assert total(CUDA_VISIBLE_DEVICES="2") == 79
    assert total(CUDA_VISIBLE_DEVICES="0") == 39  # the first part of the first card
    assert total(CUDA_VISIBLE_DEVICES="1") == 9
    assert total(CUDA_VISIBLE_DEVICES="MIG-") is None


def visible(node, names):
    """UUIDs of the devices that CUDA has, or the status of cuInit."""
    r = node.run(sys.executable, Path(__file__).with_name("mig_reader.py"), "cuda", CUDA_VISIBLE_DEVICES=names)
    assert r.returncode == 0, r.stderr
    found = json.loads(r.stdout)["cuda"]
    return [(d["uuid"], d["card"]) for d in found] if isinstance(found, list) else found


def test_one_mig_device_a_process(on):
    """By the forms of its name that NVIDIA documents, or by the beginning of its UUID."""
    node, nvml = on("--machine", "mig")
    gpu, whole = (nvml.nvmlDeviceGetHandleByIndex(i) for i in (0, 2))
    card, other = (nvml.nvmlDeviceGetUUID(h) for h in (gpu, whole))
    first, second = parts(nvml, gpu)[:2]
    place = f"{nvml.nvmlDeviceGetGpuInstanceId(second)}/{nvml.nvmlDeviceGetComputeInstanceId(second)}"
    one, two = (nvml.nvmlDeviceGetUUID(p) for p in (first, second))
    bare = card.removeprefix("GPU-")
    expected = [(two.removeprefix("MIG-"), bare)]
    for names in (two, two.upper().replace("MIG-", "mig-"), f"MIG-{card}/{place}", f"{two},{one}", f"{two},{other}",
                  f"{other},{two}", f"2,MIG-{card}/{place}", f" {two} "):
        assert visible(node, names) == expected, names
    assert visible(node, other) == [(other.removeprefix("GPU-"), other.removeprefix("GPU-"))]
    for names in (f"MIG-{card}/9/0", f"MIG-{card}/{place}/0", f"MIG-{card}/{place}x", f"MIG-{other}/{place}", f"MIG-{card}/",
                  f"MIG-{card}", f"{two},{two}", "MIG-", ""):
        assert visible(node, names) == 100, names


def test_made_and_ended_through_nvml(on):
    node, nvml = on("--model", "A100")
    lib = ctypes.CDLL("libnvidia-ml.so.1")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    user, _, _ = node.hold(GIB)
    status = ctypes.c_int()
    assert lib.nvmlDeviceSetMigMode(gpu, 1, ctypes.byref(status)) == 0
    assert status.value == nvml.NVML_ERROR_IN_USE and nvml.nvmlDeviceGetMigMode(gpu) == [0, 1]
    user.communicate()
    nvml.nvmlDeviceSetMigMode(gpu, 1)
    info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, nvml.NVML_GPU_INSTANCE_PROFILE_3_SLICE)
    assert (info.id, info.sliceCount, info.instanceCount, info.memorySizeMB) == (9, 3, 2, 40192)
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, info.id) == 2
    one = nvml.nvmlDeviceCreateGpuInstance(gpu, info.id)
    two = nvml.nvmlDeviceCreateGpuInstance(gpu, info.id)
    places = [nvml.nvmlGpuInstanceGetInfo(i).placement for i in (one, two)]
    assert sorted((p.start, p.size) for p in places) == [(0, 4), (4, 4)]
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        nvml.nvmlDeviceCreateGpuInstance(gpu, info.id)
    assert nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu, info.id) == 0
    ci = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(one, 1, 0)
    assert (ci.sliceCount, ci.multiprocessorCount) == (2, 28)
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(one, ci.id)
    nvml.nvmlGpuInstanceCreateComputeInstance(one, 0)
    with pytest.raises(nvml.NVMLError_InsufficientResources):
        nvml.nvmlGpuInstanceCreateComputeInstance(one, 0)
    found = parts(nvml, gpu)
    assert [nvml.nvmlDeviceGetName(p).split(" MIG ")[1] for p in found] == ["2c.3g.40gb", "1c.3g.40gb"]
    user = node.start("hold", GIB, CUDA_VISIBLE_DEVICES=nvml.nvmlDeviceGetUUID(found[0]))
    assert user.stdout.readline().split()[0] == "0"
    # Both compute instances have the memory of their GPU instance.
    assert nvml.nvmlDeviceGetMemoryInfo(found[1]).used == nvml.nvmlDeviceGetMemoryInfo(found[0]).used > GIB
    for call, argument in ((nvml.nvmlComputeInstanceDestroy, compute), (nvml.nvmlGpuInstanceDestroy, one)):
        with pytest.raises(nvml.NVMLError_InUse):
            call(argument)
    user.communicate()
    nvml.nvmlComputeInstanceDestroy(compute)
    with pytest.raises(nvml.NVMLError):
        nvml.nvmlDeviceGetMemoryInfo(found[0])
    nvml.nvmlDeviceSetMigMode(gpu, 0)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [0, 0]
    assert node.hold("free")[1] == 0


def ended(nvml, compute):
    try:
        nvml.nvmlComputeInstanceDestroy(compute)
    except nvml.NVMLError_InUse:
        return False
    return True


def test_memory_on_its_way_keeps_its_instance(on):
    """An exported descriptor is all that is left of memory; the instance cannot end before it."""
    node, nvml = on("--model", "A100")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(gpu, 1)
    one = nvml.nvmlDeviceCreateGpuInstance(gpu, 9)
    compute = nvml.nvmlGpuInstanceCreateComputeInstance(one, 2)
    ctl, devices, _ = session(node, 0)
    share = [request(MIG, a=MIG_ATTACH, token=(UNIT, 0)), request(ALLOC, UNIT, 2 << 20),
             request(SHARE, UNIT, 2 << 20)]
    for packet in share:
        ctl.send(packet)
        said, _, _, _ = socket.recv_fds(ctl, 40, 1)
        assert struct.unpack("<i", said[:4])[0] == 0
    ctl.send(request(SHARE_EXPORT, token=struct.unpack("<QQ", said[24:40])))
    _, exported, _, _ = socket.recv_fds(ctl, 40, 1)
    for s in (ctl, *devices):
        s.close()
    with pytest.raises(nvml.NVMLError_InUse):
        nvml.nvmlComputeInstanceDestroy(compute)
    os.close(exported[0])
    wait_until(lambda: ended(nvml, compute), what="the instance can end")
    assert node.daemon.poll() is None


@pytest.mark.parametrize("action,state", [(("xid", 48), "needs-reset"), (("lose",), "lost")])
def test_what_happens_to_a_card_happens_to_its_parts(on, action, state):
    node, nvml = on("--machine", "mig")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    handle = parts(nvml, gpu)[0]
    part = nvml.nvmlDeviceGetUUID(handle)
    instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, nvml.nvmlDeviceGetGpuInstanceId(handle))
    start = nvml.nvmlGpuInstanceGetInfo(instance).placement.start
    user = node.start("hold", GIB, CUDA_VISIBLE_DEVICES=part)
    assert user.stdout.readline().split()[0] == "0"
    node.inject(*action, "--gpu", 0)
    shown = node.show()
    assert {x["uuid"]: x["state"] for x in shown if "uuid" in x}[part] == state
    assert [x["broken"] for x in shown if "process" in x] != ["0"]
    assert node.start("hold", GIB, CUDA_VISIBLE_DEVICES=part).wait(5) != 0
    if state != "lost":
        assert "in use" in node.inject("reset", "--gpu", 0, expect=1)
    user.communicate()
    node.inject(*(["return"] if state == "lost" else ["reset", "--force"]), "--gpu", 0)
    shown = node.show()
    assert {x["state"] for x in shown if "uuid" in x} == {"healthy"}
    # The instances of that card are gone; MIG mode of an A100 is not.
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert part not in {x.get("uuid") for x in shown} and parts(nvml, gpu) == []
    assert not any(name.startswith("gpu0/") for name in access(node)) and nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    assert len(parts(nvml, nvml.nvmlDeviceGetHandleByIndex(1))) == 7
    place = nvml.c_nvmlGpuInstancePlacement_t()
    place.start, place.size = start, 4
    made = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, 9, ctypes.byref(place))
    nvml.nvmlGpuInstanceCreateComputeInstance(made, 2)
    user = node.start("hold", GIB, CUDA_VISIBLE_DEVICES=part)
    assert user.stdout.readline().split()[0] == "0"


def test_cards_that_cannot_be_divided(on):
    _, nvml = on("--model", "L4")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    for call in (lambda: nvml.nvmlDeviceGetMigMode(gpu), lambda: nvml.nvmlDeviceSetMigMode(gpu, 1),
                 lambda: nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0)):
        with pytest.raises(nvml.NVMLError_NotSupported):
            call()
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0


@pytest.mark.foreign
def test_nvidia_smi_knows_the_parts(on):
    r = subprocess.run([TOP / "scripts/fetch-driver535"], capture_output=True, text=True, check=True)
    smi = r.stdout.strip() + "/nvidia-smi"
    node, nvml = on("--machine", "mig")
    out = node.run(smi, "-L").stdout
    assert out.count("MIG 1g.10gb") == 9 and out.count("MIG 3g.40gb") == 1, out
    uuid = nvml.nvmlDeviceGetUUID(parts(nvml, nvml.nvmlDeviceGetHandleByIndex(0))[0])
    assert uuid in out
    lgip = node.run(smi, "mig", "-lgip")
    assert lgip.returncode == 0 and "MIG 3g.40gb" in lgip.stdout, lgip.stdout
