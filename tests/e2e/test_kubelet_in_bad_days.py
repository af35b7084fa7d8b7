# SPDX-License-Identifier: Apache-2.0
"""kubelet is killed, and started again, while something else goes wrong or changes on the node: the end is that without it,
and no container is started again for it."""

import signal

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from kit import CORE, GiB, assignment_of, check_view, container, pod
from test_card_orders import (by_simulator, card, configured, index, inject, order, start_with_budget,  # noqa: F401
                              wait_state)
from test_mig import (MAKE, OFFERED, being_made, machine, made, nvml, on_demand, one, reached,     # noqa: F401
                      wait_offered)
from test_mps import daemons, mps_programs, ready, spec_of                                               # noqa: F401

UUID = "elasticgpu.io/gpu-uuid"
STORM = 500
HANGS = f"[{aliquot.DRIVER}/bin/probe, serve, '7999']"      # a command that does not end by itself


@pytest.fixture
def beside(world, space, card):     # noqa: F811
    """A pod on another card than `card`, which must not notice anything."""
    (other,) = [g for g in world.gpus() if g["metadata"]["name"] != card]
    seen = space.start(pod("beside", container(core=20, memory=4 * GiB), annotations={UUID: other["spec"]["uuid"]}))
    yield seen
    unharmed(space, seen)


def unharmed(space, seen):
    """The same container as before, and its share."""
    now = space.get(seen["metadata"]["name"])
    (before,), (after,) = (s["status"]["containerStatuses"] for s in (seen, now))
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    if assignment_of(seen):
        check_view(space, now)


def takes_pods(world, space, name):
    """A pod gets all of the card."""
    uuid = next(g["spec"]["uuid"] for g in world.gpus() if g["metadata"]["name"] == name)
    check_view(space, space.start(pod("whole", container(core=100), annotations={UUID: uuid})))


def wait_core(world, percent):
    def is_so(node):
        return node["status"]["allocatable"].get(CORE) == str(percent)
    world.api.wait(kube.core("nodes"), world.cluster.node, is_so, 30, f"{percent} percent of {CORE}")


def forgive(world):
    """What the cards had before does not make them flapping cards."""
    for gpu in world.gpus():
        order(world, "set-healthy", gpu["metadata"]["name"])


def test_a_card_is_lost(world, space, card, beside):    # noqa: F811
    inject(world, card, "lose")
    wait_state(world, card, "Unhealthy")
    world.restart_kubelet(signal.SIGKILL)
    wait_core(world, 100)
    inject(world, card, "return")
    wait_state(world, card, "Healthy")
    wait_core(world, 200)
    takes_pods(world, space, card)


def test_a_storm_of_xids(world, space, card, beside):   # noqa: F811
    """Of programs: each is counted, and the card takes pods."""
    def counted():
        return sum(n for (name, labels), n in world.metrics().items()
                   if name == "aliquot_gpu_xid_total" and (dict(labels)["gpu"], dict(labels)["xid"]) == (index(world, card), "31"))
    before = counted()
    inject_one = f"{world.build}/src/cli/aliquot sim inject xid 31 --gpu {index(world, card)}"
    world.cluster.spawn("storm", ["sh", "-ec", f"for i in $(seq {STORM}); do {inject_one}; done"])
    world.restart_kubelet(signal.SIGKILL)
    assert world.cluster.control("wait", name="storm")["status"] == 0
    world.until(lambda: counted() == before + STORM, 20, f"{STORM} XIDs are counted")
    takes_pods(world, space, card)


@pytest.mark.foreign
@pytest.mark.long
def test_a_pod_is_evicted(world, space, card, beside):  # noqa: F811
    """kubelet is away while the eviction is allowed: the pod ends when it is back."""
    budget = start_with_budget(space, next(g["spec"]["uuid"] for g in world.gpus() if g["metadata"]["name"] == card))
    world.aliquot("card", "drain", card)
    space.event("held", "GPUDrainDelayed")
    world.cluster.stop("kubelet", signal.SIGKILL)
    world.api.delete(budget)
    space.event("held", "GPUDrained")
    assert "deletionTimestamp" in space.get("held")["metadata"]
    world.cluster.start("kubelet")
    world.cluster.wait_node_ready()
    assert "Draining: drained by order" in order(world, "drain", card, seconds=60)
    space.wait("held", lambda seen: not kit.is_running(seen))
    assert "Healthy" in order(world, "uncordon", card)
    takes_pods(world, space, card)


@pytest.mark.foreign
@pytest.mark.long
def test_a_reset_command_hangs(world, space, configured, card, beside):     # noqa: F811
    aliquot.add_to_driver(world.cluster, world.build / "tests/e2e/probe")
    configured(f"reset: {{policy: idle, timeout: 15s, command: {HANGS}}}")
    inject(world, card, "xid", "48")
    wait_state(world, card, "Resetting")
    world.restart_kubelet(signal.SIGKILL)
    wait_core(world, 100)
    assert "has not ended within 15000 ms" in wait_state(world, card, "Unhealthy")["reason"]
    configured(f"reset: {{policy: idle, command: {by_simulator(world, card)}}}")
    wait_state(world, card, "Healthy")
    takes_pods(world, space, card)


@pytest.mark.foreign
@pytest.mark.long
def test_mps_starts(world, space, configured, card, beside, mps_programs):     # noqa: F811
    uuid = next(g["spec"]["uuid"] for g in world.gpus() if g["metadata"]["name"] == card)
    with world.driver_hangs("nvmlDeviceSetComputeMode") as wait:
        configured(f"cards: [{{devices: [{uuid}], mode: mps}}]")
        wait()
        world.restart_kubelet(signal.SIGKILL)
        wait_core(world, 100)
    world.until(lambda: ready(world) == [1.0], 60, "MPS is ready")
    seen = space.start(pod("client", container(core=30, memory=4 * GiB), annotations={UUID: uuid}))
    env = dict(e.split("=", 1) for e in spec_of(world, seen)["process"]["env"])
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    space.end("client")
    configured("health: {interval: 1s}")
    world.until(lambda: not daemons(world), 30, "MPS has ended")


@pytest.mark.foreign
@pytest.mark.long
def test_an_instance_is_destroyed(machine, room):   # noqa: F811
    user = room.start(pod("user", one(**{"2g.20gb": 1})))
    beside = room.start(pod("beside", one(**{"3g.40gb": 1})))
    (uuid,), kept = reached(machine, room, user), reached(machine, room, beside)
    (gi,) = {dict(labels)["GPU_I_ID"] for name, labels in machine.metrics()
             if name == "aliquot_gpu_instance_healthy" and dict(labels)["uuid"] == uuid}
    machine.cluster.stop("kubelet", signal.SIGKILL)
    machine.aliquot("sim", "inject", "destroy", gi, "--gpu", "0")
    machine.cluster.start("kubelet")
    wait_offered(machine, {"1g.10gb": 9, "3g.40gb": 1})
    assert reached(machine, room, beside) == kept
    unharmed(room, beside)
    room.delete("user")
    nvml(machine, MAKE.format(card=0, profile=1))
    wait_offered(machine, OFFERED)
    assert list(reached(machine, room, room.start(pod("again", one(**{"2g.20gb": 1})))).values()) == ["2g.20gb"]
    unharmed(room, beside)


@pytest.mark.foreign
@pytest.mark.long
def test_an_instance_is_made_on_demand(on_demand, room):    # noqa: F811
    beside = room.start(pod("beside", one(**{"3g.40gb": 1})))
    with being_made(on_demand, room, "ordered", "4g.40gb"):
        on_demand.restart_kubelet(signal.SIGKILL)
    assert list(reached(on_demand, room, room.running("ordered", 60)).values()) == ["4g.40gb"]
    assert made(on_demand) == ["4g.40gb"]
    unharmed(room, beside)


@pytest.mark.foreign
@pytest.mark.long
def test_minor_numbers_are_swapped(world, space, configured, card):     # noqa: F811
    """By the reset of one card: a pod of each card has the node that is its card's now, and again after the next reset."""
    paths = {g["spec"]["uuid"]: g["spec"]["path"] for g in world.gpus()}
    swap = f"[{aliquot.DRIVER}/bin/aliquot, sim, inject, swap-minors, '1', --gpu, '0', --force]"
    configured(f"health: {{deadline: 60s, flapping: {{times: 0}}}}, reset: {{policy: idle, command: {swap}}}")
    with world.driver_hangs("cuDevicePrimaryCtxRetain", "--gpu", "0") as wait:
        inject(world, card, "xid", "48")
        wait()
        wait_state(world, card, "Probing")
        world.restart_kubelet(signal.SIGKILL)
        wait_core(world, 100)
    for times, now in enumerate((dict(zip(paths, reversed(paths.values()))), paths)):
        if times > 0:
            inject(world, card, "xid", "48")
        world.until(lambda now=now: {g["spec"]["uuid"]: g["spec"]["path"] for g in world.gpus()} == now, 20, f"{now}")
        wait_state(world, card, "Healthy")
        wait_core(world, 200)
        names = [f"pod-{times}-{n}" for n in range(2)]
        for name, uuid in zip(names, paths):
            check_view(space, space.start(pod(name, container(core=100), annotations={UUID: uuid})))
        space.delete(*names)


VERSION = "nvidia.com/cuda.driver-version.full"


@pytest.mark.foreign
@pytest.mark.long
def test_another_driver(world, space, tmp_path):
    """kubelet restarts while there is none: it is offered nothing of the cards until the other one has them."""
    def version():
        return world.api.get(kube.core("nodes", name=world.cluster.node))["metadata"]["labels"][VERSION]

    def exchange(driver):
        world.cluster.stop(aliquot.SIMULATOR)
        for gpu in before:
            wait_state(world, gpu["metadata"]["name"], "Unhealthy")
        world.restart_kubelet(signal.SIGKILL)
        wait_core(world, 0)
        file = tmp_path / "other.machine"
        file.write_text(f"[machine]\ndriver = {driver}\n[gpu 0-1]\nmodel = A100\n" + "".join(
            f"[gpu {gpu['spec']['index']}]\nuuid = {gpu['spec']['uuid']}\n" for gpu in before))
        aliquot.start_simulator(world.cluster, str(world.build), machine=file)
        world.until(lambda: version() == driver, 30, f"the labels of driver {driver}")
        wait_core(world, 200)
    before, agent, first = world.gpus(), world.agent.restarts(), version()
    forgive(world)
    for name, driver in (("other", "535.183.01"), ("same", first)):
        exchange(driver)
        check_view(space, space.start(pod(name, container(core=100, memory=4 * GiB))))
        space.end(name)
    forgive(world)
    assert world.agent.restarts() == agent
    assert [gpu["spec"]["uuid"] for gpu in world.gpus()] == [gpu["spec"]["uuid"] for gpu in before]
