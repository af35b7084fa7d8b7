# SPDX-License-Identifier: Apache-2.0
"""Bad days on the node: kubelet, agent, containers and processes end at the worst moment."""

import json
import signal
import time

import kit
from cluster import api as kube
from kit import (CARD, CORE, OUT_OF_MEMORY, GiB, assignment_of, check_no_share_twice, check_report, check_view,
                 container, half, is_running, pod)
from whole_cluster import CHECKPOINT


def still_limited(space, seen):
    """The same container as before (not a new one) still runs and has its limit."""
    now = space.get(seen["metadata"]["name"])
    assert [c["containerID"] for c in now["status"]["containerStatuses"]] == \
           [c["containerID"] for c in seen["status"]["containerStatuses"]]
    (device,) = check_view(space, now)
    with space.tenant(now) as tenant:
        assert tenant.alloc(device["memory"]) == OUT_OF_MEMORY


def card_is_full(space):
    """With 150 of 200 percent given away, one more half fits and a second one does not."""
    check_view(space, space.start(half("fits")))
    space.create(half("excess"))
    space.unschedulable("excess")


def test_kubelet_restarts(world, space):
    """Running pods keep running with their limits, and new ones start."""
    old = space.start_all([half("one"), half("two"), half("three")])
    with space.tenant(old[0]) as tenant:
        assert tenant.alloc(30 * GiB) == 0
        space.create(half("between"))       # one that is on its way when kubelet goes
        world.restart_kubelet(signal.SIGKILL)
        for seen in old:
            now = space.running(seen["metadata"]["name"])
            assert now["status"]["containerStatuses"][0]["restartCount"] == 0
            check_view(space, now)
        assert tenant.alloc(11 * GiB) == OUT_OF_MEMORY
        assert tenant.alloc(5 * GiB) == 0
    check_view(space, space.running("between"))
    space.end("one")
    check_view(space, space.start(half("after")))


def test_agent_killed(world, space):
    """Its limits are in files, not in the agent: none is lost, and nothing is given twice."""
    old = space.start_all([half("one"), half("two"), half("three")])
    with space.tenant(old[0]) as tenant:
        assert tenant.alloc(30 * GiB) == 0
        before = world.agent.kill()
        assert tenant.alloc(11 * GiB) == OUT_OF_MEMORY      # the limit holds without the agent
        world.agent.wait_restarted(before)
        world.wait_tokens()
        for seen in old:
            still_limited(space, seen)
        assert tenant.alloc(5 * GiB) == 0
        world.until(lambda: kit.holders(world.usage())["one", "main"][0]["memoryDriver"]
                    == 40 * GiB - tenant.info()["free"] > 35 * GiB, 10, "the new agent's figures")
        card_is_full(space)


def test_agent_replaced(world, space):
    """An upgrade: the agent's pod goes in good order and another one comes."""
    old = space.start_all([half("one"), half("two"), half("three")])
    system = kit.Space(world, kit.SYSTEM)
    system.delete(world.agent.pod()["metadata"]["name"])
    new = world.until(world.agent.pods, 30, "a new pod of the agent")[0]
    system.wait(new["metadata"]["name"], lambda s: kit.condition(s, "Ready").get("status") == "True")
    world.wait_tokens()
    for seen in old:
        still_limited(space, seen)
    card_is_full(space)


def test_api_server_restarts(world, space):
    """No watch has events for a while: what runs goes on, and what comes afterwards is placed right."""
    old = space.start_all([half("one"), half("two"), half("three")])
    with space.tenant(old[0]) as tenant:
        assert tenant.alloc(30 * GiB) == 0
        world.cluster.restart("kube-apiserver", signal.SIGKILL)
        assert tenant.alloc(11 * GiB) == OUT_OF_MEMORY
    for seen in old:
        still_limited(space, seen)
    card_is_full(space)
    space.end("one")
    check_view(space, space.running("excess"))


def test_kubelet_restarts_after_an_init_container_has_ended(world, space):
    """kubelet admits such a pod anew, and fails it for good when no plugin is there in time."""
    first = container("first", argv=["probe", "report"], core=30, memory=5 * GiB)
    seen = space.start(pod("pod", container("main", core=30, memory=9 * GiB), init=[first]))
    for _ in range(3):
        world.restart_kubelet(signal.SIGKILL)
        world.wait_tokens()
        still_limited(space, seen)


def test_a_container_restarts_after_the_agent_was_killed(world, space):
    """PreStartContainer comes again: the new agent finds the same share for it."""
    seen = space.start(half("phoenix"))
    before = world.agent.kill()
    world.agent.wait_restarted(before)
    world.ctr("tasks", "kill", "-s", "SIGKILL",
              seen["status"]["containerStatuses"][0]["containerID"].partition("://")[2])
    again = space.wait("phoenix", lambda s: is_running(s) and s["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert assignment_of(again) == assignment_of(seen)
    check_view(space, again)


def test_kubelet_restarts_while_the_agent_is_away(world, space):
    old = space.start_all([half("one"), half("two"), half("three")])
    world.cluster.stop("kubelet")
    before = world.agent.kill()             # it is not restarted
    world.cluster.start("kubelet")
    world.cluster.wait_node_ready()
    world.agent.wait_restarted(before)
    world.wait_tokens()
    for seen in old:
        still_limited(space, seen)
    card_is_full(space)


def test_kubelet_forgets_its_devices(world, space):
    """Its checkpoint is lost: the share stays as it is; Event and metric say that kubelet can give its devices again."""
    def differences():
        return world.metrics()["aliquot_agent_podresources_differences", ()]
    old = space.start(half("old"))
    assert differences() == 0
    world.cluster.stop("kubelet", signal.SIGKILL)
    world.cluster.on_node(["rm", CHECKPOINT])
    world.cluster.start("kubelet")
    world.cluster.wait_node_ready()
    world.wait_tokens()
    space.start(half("new"))       # after whose start kubelet's list is read again
    assert "kubelet lists no device of the pod" in space.event("old", "GPUDevicesDiffer", 90)
    assert differences() == 1
    still_limited(space, old)
    space.end("old")
    world.until(lambda: differences() == 0, 90, "no share is contradicted")


def test_twenty_pods_at_once(world, space):
    """Each gets exactly the card and the share that its Binding names, seen from inside the container."""
    names = space.create(*(pod(f"p{i:02}", container(core=10, memory=8 * GiB)) for i in range(20)))
    pods = [space.running(name, 120) for name in names]
    check_no_share_twice(pods)
    cards = {}
    for seen in pods:
        (device,) = check_view(space, seen)
        cards.setdefault(device["uuid"], []).append(seen["metadata"]["name"])
    assert sorted(map(len, cards.values())) == [10, 10]
    assert world.allocated().keys() == {p["metadata"]["uid"] for p in pods}


def test_deleted_while_it_starts(world, space):
    """Whatever step of its start a pod is deleted in, nothing of it stays."""
    for step, begun in enumerate((
            lambda s: True,
            lambda s: s["spec"].get("nodeName"),
            lambda s: kit.condition(s, "PodReadyToStartContainers").get("status") == "True"
            or s["status"].get("containerStatuses"))):
        for round_ in range(3):
            name = f"brief-{step}-{round_}"
            # PID 1 ignores a SIGTERM that comes before its handler is set: that takes the whole grace period.
            space.create(pod(name, container(core=200), terminationGracePeriodSeconds=1))
            space.wait(name, begun)
            space.end(name, grace=0 if round_ == 2 else None)
    world.wait_all_released()
    seen = space.start(pod("next", container(core=200)))
    assert len(check_view(space, seen)) == 2


def test_process_killed_while_it_holds_memory(world, space):
    """kill -9 of a holder: its share is free for the next allocation at once, and the figures follow."""
    seen = space.start(pod("pod", container(core=20, memory=10 * GiB)))
    with space.tenant(seen) as survivor:
        assert survivor.alloc(1 << 20) == 0
        empty, times = survivor.info()["free"], []
        while len(times) < 5 or min(times) >= 0.1:      # a machine that is busy otherwise only ever adds to it
            assert len(times) < 25, times
            victim = space.tenant(seen)
            pid = victim.ask("pid")["pid"]
            assert victim.alloc(9 * GiB) == 0
            assert survivor.alloc(9 * GiB) == OUT_OF_MEMORY
            wait_used(world, lambda used: used >= 9 * GiB)
            killed = time.monotonic()
            assert survivor.ask("kill", pid)["dead"]
            answer = survivor.ask("alloc", 0, 9 * GiB)
            assert answer["result"] == 0, "the share of a dead process was not free at once"
            assert survivor.ask("free", answer["pointer"])["result"] == 0
            assert survivor.info()["free"] == empty
            wait_used(world, lambda used: used < 2 * GiB)
            times.append(time.monotonic() - killed)
            victim.close()


def wait_used(world, check):
    """Until both figures of the agent say so: what the container has booked, and what the driver has given."""
    def figures():
        (holder,) = kit.holders(world.usage())["pod", "main"]
        return check(holder["memoryUsed"]) and check(holder["memoryDriver"])
    world.until(figures, 5, "the agent's figures", pause=0.002)


def test_forced_delete_while_the_old_container_runs(world, space):
    """The next pod may get the same device IDs from kubelet; it must not get the share of one that runs."""
    old = space.start(pod("old", container(argv=["probe", "stubborn", "7000"], core=200)))
    with space.tenant(old) as tenant:
        assert tenant.alloc(50 * GiB) == 0
        space.create(half("new"))
        space.unschedulable("new")
        space.begin_delete("old", grace=0)
        now = space.running("new", 60)
        (device,) = check_view(space, now)
        assert device["memory"] == 40 * GiB
        # Either the old one was gone before the new one ran, or it still has its own limit.
        try:
            assert tenant.info()["total"] == CARD
        except (OSError, ValueError):
            pass
        with space.tenant(now) as newcomer:
            assert newcomer.alloc(39 * GiB) == 0


def test_init_container_with_the_same_request(space):
    """Both Allocates carry the same IDs: init and app container must not get each other's share."""
    first = container("first", argv=["probe", "report"], core=30, memory=5 * GiB)
    body = pod("pod", container("main", core=30, memory=9 * GiB), init=[first])
    seen = space.start(body)
    devices = assignment_of(seen)
    report = json.loads(space.logs("pod", "first"))
    check_report(devices["first"], report["driver"], report["nvml"])
    assert devices["first"][0]["memory"] == 5 * GiB
    assert check_view(space, seen)[0]["memory"] == 9 * GiB


def test_init_container_leaves_its_part_to_the_app(world, space):
    """Init containers run before: a pod needs the larger of both, not the sum."""
    first = container("first", argv=["probe", "report"], core=100)
    seen = space.start(pod("pod", container("main", core=100), init=[first]))
    check_view(space, seen)
    check_view(space, space.start(pod("other", container(core=100))))
    assert world.api.get(kit.kube.core("nodes", name=world.cluster.node))["status"]["capacity"][CORE] == "200"


def test_a_card_falls_ill_and_is_healed(world, space):
    """Nothing new goes to it, kubelet and people are told, on the Node, the card and each of its pods; what runs on the other
    card is undisturbed; then it is as before."""
    old = space.start(pod("old", container(core=20, memory=10 * GiB)))
    (ill,) = (g for g in world.gpus() if g["spec"]["uuid"] != assignment_of(old)["main"][0]["uuid"])
    card = ["--gpu", str(ill["spec"]["index"])]
    holders = ("holder", "another")
    space.start_all([pod(name, container(core=20, memory=10 * GiB), annotations={"elasticgpu.io/gpu-uuid": ill["spec"]["uuid"]})
                     for name in holders])

    def told(state):
        world.api.wait(kube.gpus(), ill["metadata"]["name"], lambda gpu: gpu["status"]["state"] == state, 30, state)
        seen = {name: value for (name, labels), value in world.metrics().items() if dict(labels).get("uuid") == ill["spec"]["uuid"]}
        assert seen["aliquot_gpu_healthy"] == (state == "Healthy")
        assert ("aliquot_gpu_memory_used_bytes" in seen) == (state == "Healthy")     # absent, not 0
        status, reason = ("True", "GPUHealthy") if state == "Healthy" else ("False", "GPUNotHealthy")
        message = rf'GPU {ill["spec"]["index"]} \({ill["spec"]["uuid"]}\) is {state}' + (": XID 48 " if state != "Healthy" else "")
        world.api.wait(kube.core("nodes"), world.cluster.node,
                       lambda node: kit.condition(node, "GPUHealthy").get("status") == status, 10, f"GPUHealthy {status}")
        for name in holders:
            space.event(name, f"{reason}: {message}")
        world.card_event(ill["metadata"]["name"], f"{reason}: {message}")
    with space.tenant(old) as tenant:
        assert tenant.alloc(9 * GiB) == 0
        world.aliquot("sim", "inject", "xid", "48", *card)
        try:
            told("Unhealthy")
            space.create(pod("whole", container(core=100)))
            space.unschedulable("whole")
            (device,) = check_view(space, space.start(pod("beside", container(core=30, memory=10 * GiB))))
            assert device["uuid"] != ill["spec"]["uuid"]
            assert tenant.alloc(9 * GiB) == OUT_OF_MEMORY
        finally:
            world.aliquot("sim", "inject", "reset", "--force", *card)
        told("Healthy")
        space.end(*holders)
        (device,) = check_view(space, space.running("whole"))
        assert device["uuid"] == ill["spec"]["uuid"]
        assert tenant.info()["total"] == 10 * GiB
    still_limited(space, old)
