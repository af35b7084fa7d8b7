# SPDX-License-Identifier: Apache-2.0
"""The product at work: shares are what they say, from every side that one can look at them."""

import json
import re

import kit
import pytest
from kit import (CARD, CORE, MEMORY, OUT_OF_MEMORY, QGPU_CORE, QGPU_MEMORY, SLOT, GiB, assignment_of, check_view,
                 container, pod, quantity)
from cluster import api as kube


def test_three_pods_share_one_card(world, space):
    """Three that fit on one card land on one, and each sees only its own part of it."""
    sizes = {"a": (30, 20 * GiB), "b": (30, 10 * GiB), "c": (40, 50 * GiB)}
    pods = space.start_all([pod(n, container(core=c, memory=m)) for n, (c, m) in sizes.items()])
    cards = set()
    for seen in pods:
        core, memory = sizes[seen["metadata"]["name"]]
        (device,) = check_view(space, seen)
        assert (device["core"], device["memory"]) == (core, memory)
        cards.add(device["uuid"])
        assert "saxpy=ok" in space.exec(seen["metadata"]["name"], "cuda-share", "--bytes", "1Gi").splitlines()
    assert len(cards) == 1


def test_more_than_the_share(space):
    """An allocation over the share gets 2 and the program lives on; the neighbour notices nothing."""
    greedy, neighbour = space.start_all([pod("greedy", container(core=20, memory=4 * GiB)),
                                         pod("neighbour", container(core=20, memory=8 * GiB))])
    assert assignment_of(greedy)["main"][0]["uuid"] == assignment_of(neighbour)["main"][0]["uuid"]
    with space.tenant(greedy) as a, space.tenant(neighbour) as b:
        assert b.alloc(2 * GiB) == 0
        before = b.info()
        assert a.alloc(4 * GiB + 1) == OUT_OF_MEMORY
        assert a.alloc(3 * GiB) == 0
        assert a.alloc(3 * GiB) == OUT_OF_MEMORY
        assert a.alloc(1 << 20) == 0
        assert b.info() == before
        assert a.info()["free"] < 1 * GiB
        with space.tenant(greedy) as second:        # the share is the container's, not the process's
            assert second.alloc(1 * GiB) == OUT_OF_MEMORY


def test_pending_with_reason_then_starts_by_itself(space):
    held = space.start_all([pod("left", container(core=60, memory=60 * GiB)),
                            pod("right", container(core=60, memory=60 * GiB))])
    assert assignment_of(held[0])["main"][0]["uuid"] != assignment_of(held[1])["main"][0]["uuid"]
    space.create(pod("late", container(core=60, memory=50 * GiB)))
    reason = space.unschedulable("late")
    assert re.search(r"GPU", reason), reason
    details = space.event("late", r"\d+ ?(MiB|GiB|Mi|Gi|%)")
    for device in assignment_of(held[0])["main"] + assignment_of(held[1])["main"]:
        assert f"GPU {device['index']}" in details
    space.begin_delete("left")
    check_view(space, space.running("late"))


def test_whole_cards(space):
    seen = space.start(pod("whole", container(core=200)))
    devices = check_view(space, seen)
    assert [(d["core"], d["memory"]) for d in devices] == [(100, CARD)] * 2


def test_core_alone_means_the_same_part_of_the_memory(space):
    seen = space.start(pod("core", container(core=30)))
    (device,) = check_view(space, seen)
    assert (device["core"], device["memory"]) == (30, CARD * 30 // 100)


def test_memory_alone_is_limited(space):
    """kubelet calls no plugin for node capacity: the slot that admission adds brings the limit."""
    body = pod("memory", container(memory=4 * GiB))
    seen = space.start(body)
    assert seen["spec"]["containers"][0]["resources"]["limits"][SLOT] == "1"
    (device,) = check_view(space, seen)
    assert (device["core"], device["memory"]) == (0, 4 * GiB)
    with space.tenant(seen) as tenant:
        assert tenant.alloc(4 * GiB) == OUT_OF_MEMORY
        assert tenant.alloc(3 * GiB) == 0


def test_qgpu_names(space):
    """A pod written for qGPU runs unchanged: percent and GiB."""
    seen = space.start(pod("qgpu", container(resources={QGPU_CORE: "25", QGPU_MEMORY: "10"})))
    (device,) = check_view(space, seen)
    assert (device["core"], device["memory"]) == (25, 10 * GiB)


def test_two_containers_have_a_share_each(space):
    """And the one between them, which asks for none, has none."""
    seen = space.start(pod("three", container("one", port=7000, core=10, memory=5 * GiB), container("none", port=7002),
                           container("other", port=7001, core=20, memory=7 * GiB)))
    assert check_view(space, seen, "one", 7000)[0]["memory"] == 5 * GiB
    assert check_view(space, seen, "other", 7001)[0]["memory"] == 7 * GiB
    with space.tenant(seen, 7002) as tenant:
        assert tenant.driver() == tenant.nvml() == {"result": -1, "devices": []}


def test_limits_cannot_be_written(space):
    seen = space.start(pod("tenant", container(core=10, memory=4 * GiB)))
    with space.tenant(seen) as tenant:
        assert tenant.ask("write", "/dev/aliquot/limits")["errno"] != 0
        assert tenant.ask("write", "/etc/ld.so.preload")["errno"] != 0
        assert tenant.ask("write", "/dev/aliquot/libaliquot.so")["errno"] != 0


def test_preloading_the_driver_gets_no_more(space):
    """What LD_PRELOAD names comes before /etc/ld.so.preload; but libcuda.so.1 is ours too, and charges once."""
    seen = space.start(pod("preload", container(core=10, memory=4 * GiB)))
    for preload in ("libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.1", "libcuda.so.1:libnvidia-ml.so.1"):
        told = space.exec("preload", "env", f"LD_PRELOAD={preload}", "cuda-share", "--bytes", "3Gi", "--over", "4Gi")
        told = dict(line.split("=", 1) for line in told.splitlines())
        assert (told["total"], told["alloc_result"]) == (str(4 * GiB), "0"), told
        assert told["over_result"] == str(OUT_OF_MEMORY), told
        assert 0 < int(told["now_free"]) < 1 * GiB, told
    check_view(space, seen)


def test_a_pod_without_a_share_sees_nothing(space):
    seen = space.start(pod("plain"))
    with space.tenant(seen) as tenant:
        assert tenant.driver() == {"result": -1, "devices": []}
        assert tenant.nvml() == {"result": -1, "devices": []}


def test_every_view_agrees(world, space):
    """GPU objects, kubectl, aliquot gpus, /usage and /metrics name the same holder and the same bytes."""
    seen = space.start(pod("holder", container(core=30, memory=20 * GiB)))
    uid, (device,) = seen["metadata"]["uid"], assignment_of(seen)["main"]
    with space.tenant(seen) as tenant:
        assert tenant.alloc(6 * GiB) == 0
        used = 20 * GiB - tenant.info()["free"]
        assert used >= 6 * GiB

        gpu = world.api.wait(kube.gpus(), world.gpus()[device["index"]]["metadata"]["name"],
                             lambda g: uid in (g["status"].get("allocated") or {}), 10)
        check_gpu_object(gpu, seen, device)
        rows = world.cluster.kubectl("get", "gpus", "--no-headers").splitlines()
        assert len(rows) == 2 and any(gpu["metadata"]["name"] in r and "Healthy" in r for r in rows), rows
        check_usage(world, seen, device, used)
        text = world.aliquot("gpus")
        assert "holder" in text and space.name in text, text


def check_gpu_object(gpu, seen, device):
    assert gpu["spec"]["uuid"] == device["uuid"] and gpu["spec"]["memory"] == CARD
    assert gpu["metadata"]["labels"]["elasticgpu.io/node"] == seen["spec"]["nodeName"]
    assert gpu["metadata"]["name"] == f"10.77.0.1-{device['index']:02}"
    status = gpu["status"]
    assert status["state"] == "Healthy"
    assert quantity(status["capacity"][MEMORY]) == CARD and quantity(status["capacity"][CORE]) == 100
    assert quantity(status["allocatable"][MEMORY]) == CARD - 20 * GiB
    assert quantity(status["allocatable"][CORE]) == 70
    held = status["allocated"][seen["metadata"]["uid"]]
    assert (held["namespace"], held["pod"]) == (seen["metadata"]["namespace"], "holder")
    (entry,) = held["containers"]
    assert entry["container"] == "main"
    assert {k: quantity(v) for k, v in entry["resource"].items()} == {CORE: 30, MEMORY: 20 * GiB}


def check_usage(world, seen, device, used):
    """The agent's own figures are the driver's: what the process has allocated, its context included."""
    def figures():
        (entry,) = kit.holders(world.usage())["holder", "main"]
        return (entry["podUID"], entry["uuid"], entry["memory"], entry["memoryUsed"], entry["memoryDriver"]) == \
               (seen["metadata"]["uid"], device["uuid"], 20 * GiB, used, used)
    world.until(figures, 5, f"/usage with {used} bytes of the pod")
    world.until(lambda: [k for k, v in world.metrics().items() if v == used and ("pod", "holder") in k[1]], 5,
                f"/metrics with {used} bytes of the pod")


@pytest.mark.foreign
def test_nvidia_smi_in_a_container(space):
    """NVIDIA's own program, unmodified and not in the image, shows a card of 4 GiB; of the neighbour there is nothing to
    be seen."""
    mine, other = space.start_all([pod("mine", container(memory=4 * GiB)), pod("other", container(memory=8 * GiB))])
    with space.tenant(mine) as a, space.tenant(other) as b:
        assert a.alloc(1 * GiB) == 0 and b.alloc(5 * GiB) == 0
        query = "--query-gpu=uuid,memory.total,memory.used"
        text = space.exec("mine", "nvidia-smi", query, "--format=csv,noheader,nounits")
        uuid, total, used = (part.strip() for part in text.split(","))
        assert uuid == assignment_of(mine)["main"][0]["uuid"]
        assert int(total) == 4096 and 1024 <= int(used) < 2048
        table = space.exec("mine", "/usr/local/nvidia/bin/nvidia-smi")
        assert "4096MiB" in table and "81920MiB" not in table, table
        (process,) = a.nvml()["devices"][0]["processes"]
        assert process["pid"] == a.ask("pid")["pid"]


def test_parts_of_the_driver_by_name(space):
    """NVIDIA_DRIVER_CAPABILITIES in the pod's env says which parts a container gets; without it there are all."""
    names = {"some": "compute,video", "tools": "utility", "all": None}
    pods = [pod(name, container(memory=1 * GiB)) for name in names]
    for made, value in zip(pods, names.values()):
        if value:
            made["spec"]["containers"][0]["env"] = [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": value}]
    space.start_all(pods)
    for name in names:
        found = space.exec(name, "sh", "-c", "command -v nvidia-smi || echo none").strip()
        assert (found == "none") == (name == "some"), (name, found)
        linked = space.exec(name, "sh", "-c", "ls /usr/lib/x86_64-linux-gnu").split()
        assert {"libcuda.so", "libcuda.so.1", "libnvidia-ml.so", "libnvidia-ml.so.1"} <= set(linked), name


def test_the_linkers_cache_has_the_driver(space):
    """`ldconfig -p`, by which some programs look for libcuda, lists it, on a read-only root and for any user, too."""
    strict = pod("strict", container(memory=1 * GiB))
    strict["spec"]["containers"][0]["securityContext"] = {
        "readOnlyRootFilesystem": True, "runAsUser": 12345, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    space.start_all([pod("plain", container(memory=1 * GiB)), strict])
    for name in ("plain", "strict"):
        listed = space.exec(name, "ldconfig", "-p")
        for library in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"):
            assert f"{library} (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/{library}\n" in listed, listed


def test_sidecar(world, space):
    """A restartable init container keeps its part beside the app's, also over a restart of its own. An init container
    before them, larger than each, adds nothing."""
    here = {"elasticgpu.io/gpu-uuid": world.gpus()[0]["spec"]["uuid"]}
    first = container("first", argv=["probe", "report"], core=60, memory=9 * GiB)
    side = container("side", port=7001, core=30, memory=5 * GiB, restartPolicy="Always")
    seen = space.start(pod("pod", container(core=40, memory=7 * GiB), init=[first, side], annotations=here))
    assert {name: [(d["core"], d["memory"]) for d in devices] for name, devices in assignment_of(seen).items()} == \
           {"first": [(60, 9 * GiB)], "side": [(30, 5 * GiB)], "main": [(40, 7 * GiB)]}
    report = json.loads(space.logs("pod", "first"))
    kit.check_report(assignment_of(seen)["first"], report["driver"], report["nvml"])
    check_view(space, seen)
    check_view(space, seen, "side", 7001)
    space.create(pod("excess", container(core=40), annotations=here))
    space.unschedulable("excess")
    check_view(space, space.start(pod("fits", container(core=30), annotations=here)))

    def of_side(now):
        return next(c for c in now["status"]["initContainerStatuses"] if c["name"] == "side")
    world.ctr("tasks", "kill", "-s", "SIGKILL", of_side(seen)["containerID"].partition("://")[2])
    again = space.wait("pod", lambda now: of_side(now)["restartCount"] == 1 and "running" in of_side(now)["state"])
    check_view(space, again, "side", 7001)
    check_view(space, again)
    assert "nodeName" not in space.get("excess")["spec"]


def test_dashboards_find_their_names(world, space):
    """Figures under the names of DCGM's exporter, for every card."""
    seen = space.start(pod("pod", container(core=30, memory=8 * GiB)))
    (device,) = assignment_of(seen)["main"]
    with space.tenant(seen) as tenant:
        assert tenant.alloc(3 * GiB) == 0

        def used():
            return {dict(labels)["UUID"]: value for (name, labels), value in world.metrics().items()
                    if name == "DCGM_FI_DEV_FB_USED"}
        world.until(lambda: 3072 <= used()[device["uuid"]] < 4096, 5, "DCGM_FI_DEV_FB_USED")
        assert len(used()) == 2


def test_described_in_words(space):
    """kubectl describe is where people look first."""
    space.create(pod("huge", container(core=10, memory=90 * GiB)))
    space.unschedulable("huge")
    space.event("huge", "NoGPUFits")
    text = space.world.cluster.kubectl("describe", "pod", "-n", space.name, "huge")
    assert re.search(r"FailedScheduling.*GPU", text) and re.search(r"NoGPUFits.*90 GiB", text), text
