# SPDX-License-Identifier: Apache-2.0
"""What containers say of their memory and what the driver says are one, and who makes them differ is found: reported
within a second, and stopped where that is the policy."""

import contextlib
import datetime
import re
import time

import kit
import pytest
from kit import CARD, OUT_OF_MEMORY, GiB, assignment_of, check_view, container, pod, quantity
from cluster import api as kube

MiB = 1 << 20
CLOSE = 32 * MiB
DAEMONS = "/apis/apps/v1/namespaces/aliquot-system/daemonsets"


def holder(world, name):
    """What /usage says of the (one) container of a pod."""
    (entry,) = kit.holders(world.usage())[name, "main"]
    return entry


def agrees(entry):
    return abs(entry["memoryUsed"] + entry["memoryOverhead"] - entry["memoryDriver"]) <= CLOSE


# ---- reconciliation ----

WORKLOADS = {
    "a context": [("info",)],
    "several contexts": [("context",), ("context",), ("context",)],
    "modules": [("module",)] * 20,
    "a heap": [("heap", 512 * MiB)],
    "large blocks": [("alloc", n * 2 * MiB) for n in (1, 7, 500, 1000)],
    # The driver gives memory in blocks of 2 MiB: so many bytes short of whole ones differ by less than one block.
    "small blocks": [("blocks", 4096), ("blocks", 100000)],
}


def run(tenant, steps):
    for word, *size in steps:
        if word == "alloc":
            assert tenant.alloc(*size) == 0
        else:
            assert tenant.ask(word, 0, *size)["result"] == 0


def test_ledger_and_driver_agree(world, space):
    """After each workload, in one container and with one process for each, and when they are gone again."""
    seen = space.start(pod("pod", container(core=20, memory=20 * GiB)))
    tenants = []
    with contextlib.ExitStack() as stack:
        for name, steps in WORKLOADS.items():
            tenant = stack.enter_context(space.tenant(seen))
            tenants.append(tenant)
            run(tenant, steps)
            world.until(lambda: holder(world, "pod")["processes"] == len(tenants) and agrees(holder(world, "pod")), 3,
                        f"ledger and driver agree with {name}")
            entry = holder(world, "pod")
            # What the library shows is the same sum, overhead included.
            info = tenant.info()
            assert abs((info["total"] - info["free"]) - (entry["memoryUsed"] + entry["memoryOverhead"])) <= CLOSE, name
            assert entry["memoryState"] == "Fine", entry
    world.until(lambda: holder(world, "pod")["memoryDriver"] == 0 and holder(world, "pod")["memoryOverhead"] == 0, 3,
                "nothing is left of them")


def test_restless_ledgers_are_not_misread(world, space):
    """Memory that comes and goes all the time is no overhead: no room is taken from the container for it."""
    seen = space.start(pod("pod", container(core=20, memory=4 * GiB)))
    with space.tenant(seen) as tenant, space.tenant(seen) as other:
        assert other.alloc(64 * MiB) == 0
        for _ in range(20):
            assert tenant.ask("churn", 0, 3 * GiB)["result"] == 0
            assert holder(world, "pod")["memoryOverhead"] <= CLOSE
        assert holder(world, "pod")["memoryState"] == "Fine"


def test_overhead_outlives_the_agent(world, space):
    seen = space.start(pod("pod", container(core=20, memory=4 * GiB)))
    with space.tenant(seen) as tenant:
        assert tenant.alloc(1 * GiB) == 0
        world.until(lambda: agrees(holder(world, "pod")), 3, "agreement before")
        free = tenant.info()["free"]
        before = world.agent.kill()
        world.agent.wait_restarted(before)
        assert abs(tenant.info()["free"] - free) <= 2 * MiB
        world.until(lambda: agrees(holder(world, "pod")), 5, "agreement after")


# ---- forgery ----

def forger(name, *words, memory=4 * GiB, **spec):
    return pod(name, container(core=10, memory=memory, argv=["gpu-forger", *map(str, words)]), **spec)


def taken_at(space, name):
    """When the forger had what it wanted; seconds of CLOCK_REALTIME."""
    found = space.world.until(lambda: re.search(r"at=(\d+)", space.logs(name, "main")), 20, f"{name} has taken memory")
    return int(found[1]) / 1e9


def reported_at(world, space, name, text):
    """When the agent's log told of a pod; seconds of CLOCK_REALTIME."""
    found = world.until(lambda: re.search(rf"(?m)^(\S+)Z WARN .*{space.name}/{name}\b.*{text}", world.agent.log()),
                        20, f"the agent tells of {name}")
    return datetime.datetime.fromisoformat(found[1] + "+00:00").timestamp()


def found_after(world, space, name):
    """Seconds from when a forger has taken the memory until the agent told of it."""
    space.start(forger(name, "forge", 8 * GiB))
    text = space.event(name, "GPUMemoryOveruse", 30)
    assert re.search(r"8\d\d\d MiB.*limit is 4 GiB.*process \d+, gpu-forger", text), text
    return reported_at(world, space, name, "forged its ledger") - taken_at(space, name)


def test_a_forged_ledger_is_found_and_reported(world, space):
    """Within a second, by name, in every report; the neighbour is none the worse, and nothing is killed."""
    neighbour = space.start(pod("neighbour", container(core=10, memory=4 * GiB)))
    restarts = world.agent.restarts()
    name, late = "forger-0", [found_after(world, space, "forger-0")]
    while late[-1] >= 1:        # a machine that is busy otherwise only ever adds to it
        assert len(late) < 8, f"found after {late} s"
        space.end(name, grace=1)
        name = f"forger-{len(late)}"
        late.append(found_after(world, space, name))
    entry = holder(world, name)
    assert entry["memoryState"] == "Over" and entry["memoryDriver"] >= 8 * GiB, entry
    figures = {(metric, dict(labels).get("pod")): value for (metric, labels), value in world.metrics().items()}
    assert figures["aliquot_container_memory_overuse", name] == 1
    assert figures["aliquot_container_memory_overuse", "neighbour"] == 0
    uuid = entry["uuid"]
    world.until(lambda: any(g["spec"]["uuid"] == uuid and g["status"].get("overuse") == [f"{space.name}/{name}/main"]
                            for g in world.gpus()), 5, "the GPU object names the forger")
    assert space.get(name)["status"]["containerStatuses"][0]["restartCount"] == 0
    check_view(space, neighbour)
    assert world.agent.restarts() == restarts
    space.end(name, grace=1)
    world.until(lambda: not any(g["status"].get("overuse") for g in world.gpus()), 5, "the GPU object forgets it")


def test_a_forger_is_stopped(world, space):
    """By the pod's own, stricter setting here; kubelet starts it again, and it is found again."""
    space.create(forger("forger", "forge", 8 * GiB, annotations={"elasticgpu.io/on-overuse": "stop"}))
    space.event("forger", "GPUOveruseStopped", 30)

    def killed(seen):
        (status,) = seen["status"].get("containerStatuses") or [{}]
        return status.get("restartCount", 0) >= 1 and status.get("lastState", {}).get("terminated", {})
    seen = space.wait("forger", killed, 30)
    assert killed(seen)["exitCode"] == 137


def test_a_forger_without_its_first_thread_is_stopped(world, space):
    """cgroup.kill of some kernels spares such a process. "Stopped" is told when it has ended, and kubelet then starts
    the container again by itself."""
    space.create(forger("forger", "leaderless", 8 * GiB, annotations={"elasticgpu.io/on-overuse": "stop"}))
    space.event("forger", "GPUOveruseStopped", 30)
    space.wait("forger", lambda seen: any(s.get("restartCount", 0) >= 1 for s in seen["status"].get(
        "containerStatuses", [])), 30, "the container is started again")
    space.delete("forger", grace=1)


def test_who_goes_past_the_library_is_found(world, space):
    """A process that calls the driver by its own ways, within its limit; and beyond it."""
    space.start(forger("small", "bypass", 1 * GiB))
    text = space.event("small", "GPULibraryBypassed", 10)
    assert re.search(r"1 process\(es\).*do not use the library.*gpu-forger", text), text
    entry = holder(world, "small")
    assert (entry["memoryState"], entry["processesUnlimited"]) == ("Escaped", 1), entry
    space.start(forger("large", "bypass", 6 * GiB))
    assert re.search(r"6\d\d\d MiB.*limit is 4 GiB", space.event("large", "GPUMemoryOveruse", 10))


# ---- memory that no listed process has ----

WAYS = ["kept-by-fork", "kept-by-clone", "kept-by-export"]


def card_of(world, uuid):
    (gpu,) = [g for g in world.usage()["gpus"] if g["uuid"] == uuid]
    return gpu


def card_events(world, name):
    events = world.api.get(kube.core("events", "default"))["items"]
    return "\n".join(e["message"] for e in events if e["involvedObject"]["name"] == name and
                     e["reason"] == "GPUMemoryUnattributed")


def charged(world, name, wanted):
    """/usage of a container, once it is charged with so much; the context of the process that is gone may be kept, too."""
    entry = holder(world, name)
    return entry if entry["memoryCharged"] >= wanted else None


@pytest.mark.parametrize("way", WAYS)
def test_memory_of_no_listed_process_is_charged(world, space, way):
    """Within its share: it is shown as the container's within 3 s, and nothing is done about it."""
    space.start(forger("hider", way, 256 * MiB))
    taken = taken_at(space, "hider")
    entry = world.until(lambda: charged(world, "hider", 256 * MiB), 20, "the container is charged")
    assert time.time() - taken < 3
    uuid = entry["uuid"]
    found = card_of(world, uuid)
    assert 256 * MiB <= found["memoryUnattributed"] <= 1 * GiB
    (candidate,) = found["memoryUnattributedCandidates"]
    assert (candidate["pod"], candidate["container"]) == ("hider", "main")
    metrics = {(metric, dict(labels).get("pod") or dict(labels).get("uuid")): value
               for (metric, labels), value in world.metrics().items()}
    assert metrics["aliquot_gpu_memory_unattributed_bytes", uuid] >= 256 * MiB
    assert metrics["aliquot_container_memory_charged_bytes", "hider"] >= 256 * MiB
    name = next(g["metadata"]["name"] for g in world.gpus() if g["spec"]["uuid"] == uuid)
    world.until(lambda: f"{space.name}/hider container main" in card_events(world, name), 60, "an Event on the card")
    assert holder(world, "hider")["memoryState"] == "Fine"
    space.end("hider", grace=1)
    world.until(lambda: card_of(world, uuid)["memoryUnattributed"] == 0, 10, "it is back")


@pytest.mark.parametrize("way", WAYS)
def test_memory_of_no_listed_process_counts(world, space, way):
    """Beyond its share: it is an overuse like any other, and the policy acts."""
    space.create(forger("hider", way, 6 * GiB, annotations={"elasticgpu.io/on-overuse": "stop"}))
    assert re.search(r"belong to no process that the driver lists", space.event("hider", "GPUMemoryOveruse", 30))
    space.event("hider", "GPUOveruseStopped", 30)
    space.wait("hider", lambda seen: any(s.get("restartCount", 0) >= 1 for s in seen["status"].get(
        "containerStatuses", [])), 30, "the container is started again")


def test_memory_that_several_can_hold_is_held_back(world, space):
    """No container is charged; the scheduler does not allocate what is in use."""
    space.start(forger("one", "kept-by-export", 6 * GiB))
    uuid = holder(world, "one")["uuid"]
    there = {"elasticgpu.io/gpu-uuid": uuid}
    space.start(forger("two", "orphans", 256 * MiB, annotations=there))
    world.until(lambda: len(card_of(world, uuid)["memoryUnattributedCandidates"]) == 2, 20, "both are candidates")
    world.until(lambda: holder(world, "one")["memoryCharged"] == 0, 10, "none is charged")
    found = card_of(world, uuid)["memoryUnattributed"]
    assert 6 * GiB - CLOSE <= found <= 8 * GiB

    def status():
        return next(g["status"] for g in world.gpus() if g["spec"]["uuid"] == uuid)
    world.until(lambda: quantity(status().get("unattributed", "0")) >= found - 64 * MiB, 15, "the GPU object has it")
    world.until(lambda: quantity(status()["allocatable"][kit.MEMORY]) <= CARD - 8 * GiB - found + 64 * MiB, 10,
                "the scheduler has taken it off")
    space.create(pod("much", container(core=10, memory=CARD - 10 * GiB), annotations=there))
    space.unschedulable("much")


def test_a_neighbour_at_work_can_hold_it_too(world, space):
    """Its processes are listed and its ledger is in order, but a descriptor can have been passed to them: the container
    with the only unlisted holder is named, not charged, until it is alone on the card."""
    space.start(forger("hider", "kept-by-export", 1 * GiB))
    uuid = holder(world, "hider")["uuid"]
    world.until(lambda: holder(world, "hider")["memoryCharged"] > 0, 10, "alone on the card it is charged")
    space.start(forger("worker", "honest", 512 * MiB, annotations={"elasticgpu.io/gpu-uuid": uuid}))
    world.until(lambda: holder(world, "hider")["memoryCharged"] == 0, 20, "beside a neighbour it is not")
    assert holder(world, "worker")["memoryCharged"] == 0
    card = card_of(world, uuid)
    assert card["memoryUnattributed"] >= 1 * GiB - CLOSE
    assert [c["pod"] for c in card["memoryUnattributedCandidates"]] == ["hider"]
    space.end("worker")
    world.until(lambda: holder(world, "hider")["memoryCharged"] > 0, 20, "and again when the neighbour has gone")


def test_a_neighbour_is_not_charged_for_what_a_container_without_a_share_holds(world, space):
    """A trainer's worker has the driver's nodes open and is not listed. The descriptor is in another container of the
    hider's pod: one without a share, for which no container could be charged. The trainer is not taken for the holder."""
    space.start(forger("trainer", "workers", 1 * GiB, annotations={"elasticgpu.io/on-overuse": "stop"}))
    taken_at(space, "trainer")
    uuid = holder(world, "trainer")["uuid"]
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    space.start(pod("hider", container(core=10, memory=4 * GiB, argv=["gpu-forger", "kept-elsewhere", str(6 * GiB)],
                                       volumeMounts=mounts),
                    container("keeper", argv=["gpu-forger", "keeper"], volumeMounts=mounts),
                    annotations={"elasticgpu.io/gpu-uuid": uuid}, volumes=[{"name": "shared", "emptyDir": {}}]))

    def looked():
        return "trainer" in {c["pod"] for c in card_of(world, uuid)["memoryUnattributedCandidates"]}
    world.until(looked, 20, "the holders have been looked for")
    # An answer of /usage follows a poll of the driver that began after the question, and so what is charged by then.
    assert card_of(world, uuid)["memoryUnattributed"] >= 6 * GiB - CLOSE
    assert holder(world, "trainer")["memoryCharged"] == 0
    assert holder(world, "trainer")["memoryState"] == "Fine"
    assert space.get("trainer")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_trainer_that_dies_and_leaves_its_workers_is_left_alone(world, space):
    """They keep its memory, within the share: it is seen as the container's, and nothing is stopped for it."""
    space.start(forger("trainer", "orphans", 1 * GiB, annotations={"elasticgpu.io/on-overuse": "stop"}))
    taken_at(space, "trainer")

    def seen():
        entry = holder(world, "trainer")
        return entry["memoryDriver"] == 0 and max(entry["memoryUsed"], entry["memoryCharged"]) >= 1 * GiB - CLOSE
    world.until(seen, 10, "it is seen as the container's")
    for _ in range(20):
        assert holder(world, "trainer")["memoryState"] == "Fine"
    assert space.get("trainer")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_slot_with_its_pid_does_not_disguise_it(world, space):
    """Which process a slot is of is asked of the kernel: what stands in the ledger is the container's own word."""
    space.start(forger("small", "disguise", 1 * GiB))
    text = space.event("small", "GPULibraryBypassed", 10)
    assert re.search(r"1 process\(es\).*do not use the library.*gpu-forger", text), text


def test_a_pod_without_a_share_on_a_card_is_told_of(world, space):
    """Who can mount what the host has needs no share to reach a card; that is at least seen."""
    sim = {"name": "sim", "mountPath": "/run/aliquot-sim"}
    main = container(argv=["cuda-share", "--bytes", "1073741824", "--hold"], volumeMounts=[sim],
                     env=[{"name": "LD_LIBRARY_PATH", "value": "/run/aliquot-sim/lib"}])
    space.start(pod("guest", main, volumes=[{"name": "sim", "hostPath": {"path": "/run/aliquot-sim"}}]))
    text = space.event("guest", "GPUWithoutShare", 10)
    assert re.search(r"process \d+ \(cuda-share\).*GPU 0, of which it has no share", text), text


def test_nobody_is_accused_who_keeps_to_it(world, space):
    """Up to the last byte, in two processes, and after a kill; no event, no state."""
    seen = space.start(pod("honest", container(core=10, memory=4 * GiB)))
    with space.tenant(seen) as one, space.tenant(seen) as two:
        assert two.alloc(1 * GiB) == 0
        assert one.alloc(one.info()["free"]) == 0
        assert one.alloc(1) == OUT_OF_MEMORY
        for _ in range(20):
            assert holder(world, "honest")["memoryState"] == "Fine"
        pid = one.ask("pid")["pid"]
        assert two.ask("kill", pid)["dead"]
        assert two.alloc(2 * GiB) == 0
        for _ in range(20):
            assert holder(world, "honest")["memoryState"] == "Fine"
    events = world.cluster.kubectl("get", "events", "-n", space.name, "-o", "name", "--field-selector",
                                   "involvedObject.name=honest,type=Warning")
    assert "GPU" not in events


def test_a_destroyed_ledger_harms_nobody_else(world, space):
    """No memory for its own programs until it starts anew; the agent and the neighbour go on."""
    neighbour = space.start(pod("neighbour", container(core=10, memory=4 * GiB)))
    restarts = world.agent.restarts()
    seen = space.start(pod("pod", container(core=10, memory=4 * GiB)))
    with space.tenant(seen) as tenant:
        assert tenant.ask("truncate", "/dev/aliquot/ledger", 0)["errno"] == 0
    space.event("pod", "GPULedgerDamaged", 10)
    assert holder(world, "pod")["memoryState"] == "Damaged"
    with space.tenant(seen) as tenant:
        assert tenant.ask("alloc", 0, MiB)["result"] != 0
    old = seen["status"]["containerStatuses"][0]["containerID"]
    world.ctr("tasks", "kill", "-s", "SIGKILL", old.partition("://")[2])
    now = space.wait("pod", lambda s: kit.is_running(s) and s["status"]["containerStatuses"][0]["containerID"] != old)
    with space.tenant(now) as tenant:
        assert tenant.alloc(1 * GiB) == 0
    world.until(lambda: holder(world, "pod")["memoryState"] == "Fine", 5, "a new ledger")
    check_view(space, neighbour)
    assert world.agent.restarts() == restarts


# ---- oversubscription ----

@contextlib.contextmanager
def agent_options(world, *options, without=(), cards=2):
    """The agent with other options, and `without` some, as after an edit of the DaemonSet. `cards`: as wait_tokens()."""
    def set_args(args):
        world.api.patch(f"{DAEMONS}/aliquot-agent", {"spec": {"template": {"spec": {"containers": [
            {"name": "agent", "args": args}]}}}}, kind="application/strategic-merge-patch+json")
        world.api.wait(DAEMONS, "aliquot-agent", _rolled_out, 60, "the agent with its options")
        world.wait_tokens(cards=cards)
    seen = world.api.get(f"{DAEMONS}/aliquot-agent")
    before = seen["spec"]["template"]["spec"]["containers"][0]["args"]
    set_args([*(word for word in before if word not in without), *options])
    try:
        yield
    finally:
        set_args(before)


def _rolled_out(daemons):
    status = daemons.get("status", {})
    return status.get("observedGeneration") == daemons["metadata"]["generation"] and \
        status.get("updatedNumberScheduled") == status.get("numberReady") == status.get("desiredNumberScheduled") == 1


def capacity(world):
    return [quantity(g["status"]["capacity"][kit.MEMORY]) for g in world.gpus()]


def physical_of(seen):
    (device,) = assignment_of(seen)["main"]
    return device.get("physical", device["memory"])


def test_more_memory_than_the_card_has(world, space):
    """Two pods with 60 GiB each on one card of 80: both have what they bought, 30 of it on the card; a third that wants
    all of its memory there is charged double, and no container gets more of the card than there is."""
    with agent_options(world, "--memory-scaling=2"):
        world.until(lambda: capacity(world) == [2 * CARD, 2 * CARD], 10, "capacity of the GPUs")
        pods = space.start_all([pod(n, container(core=20, memory=60 * GiB)) for n in ("one", "two")])
        assert len({assignment_of(seen)["main"][0]["uuid"] for seen in pods}) == 1
        assert [physical_of(seen) for seen in pods] == [30 * GiB, 30 * GiB]
        with space.tenant(pods[0]) as one, space.tenant(pods[1]) as two:
            for tenant in (one, two):
                assert tenant.info()["total"] == 60 * GiB
                for _ in range(55):
                    assert tenant.alloc(1 * GiB) == 0
            assert one.alloc(6 * GiB) == two.alloc(6 * GiB) == OUT_OF_MEMORY
            for name in ("one", "two"):
                world.until(lambda: holder(world, name)["memoryUsed"] >= 55 * GiB, 3, "the ledger")
                entry = holder(world, name)
                assert entry["memoryDriver"] <= 30 * GiB + CLOSE and entry["memoryState"] == "Fine", entry
            resident = space.start(pod("resident", container(core=20, memory=20 * GiB),
                                       annotations={"elasticgpu.io/memory-scaling": "1"}))
            assert physical_of(resident) == 20 * GiB
            # 120 and twice 20 of 160 are allocated.
            card = next(g for g in world.gpus() if g["spec"]["uuid"] == assignment_of(resident)["main"][0]["uuid"])
            if assignment_of(resident)["main"][0]["uuid"] == assignment_of(pods[0])["main"][0]["uuid"]:
                world.until(lambda: quantity(world.gpus()[card["spec"]["index"]]["status"]["allocatable"]
                                                  [kit.MEMORY]) == 0, 5, "the card is full")
        space.end("one", "two", "resident", grace=1)
    world.until(lambda: capacity(world) == [CARD, CARD], 10, "capacity as it was")
