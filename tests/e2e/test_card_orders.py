# SPDX-License-Identifier: Apache-2.0
"""Orders for cards on a real cluster: `aliquot card` and `aliquot node`, evictions within disruption budgets, the GPU
operator's label, and the end of the agent's NVML process."""

import kit
import pytest
from cluster import aliquot, api as kube
from kit import GiB, container, pod
from test_oversee import agent_options

LABEL = "nvidia.com/gpu-driver-upgrade-state"
CONFIG = "/run/aliquot/config.yaml"     # of the node, the same in the agent's container


@pytest.fixture
def card(world):
    """The name of a card's object. Nothing is ordered of any card at the end."""
    names = [g["metadata"]["name"] for g in world.gpus()]
    yield names[0]
    world.aliquot("card", "uncordon", *names, "--wait", "20")


def order(world, verb, name, kind="card", seconds=20):
    return world.aliquot(kind, verb, name, "--wait", str(seconds))


def gpu(world, name):
    return next(g for g in world.gpus() if g["metadata"]["name"] == name)


def processes(world, name):
    """How many processes of the node have that name."""
    return world.cluster.on_node(["sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null || true"]).stdout.split().count(name)


def test_a_drained_card(world, space, card):
    """A budget delays the eviction; the card takes no pods until it is uncordoned."""
    other = [g["metadata"]["name"] for g in world.gpus() if g["metadata"]["name"] != card]
    for name in other:
        order(world, "cordon", name)
    body = pod("held", container(core=50, memory=GiB))
    body["metadata"]["labels"] = {"app": "held"}
    space.start(body)
    assert gpu(world, card)["status"]["allocated"]
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "one"},
              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}}}
    path = f"/apis/policy/v1/namespaces/{space.name}/poddisruptionbudgets"
    world.api.create(path, budget)
    world.aliquot("card", "drain", card)
    space.event("held", "GPUDrainDelayed")
    assert gpu(world, card)["status"]["state"] == "Draining"
    assert kit.is_running(space.get("held"))
    world.api.delete(path + "/one")
    assert "Draining: drained by order" in order(world, "drain", card, seconds=60)
    world.until(lambda: not gpu(world, card)["status"].get("allocated"), 20, "the pod is gone")
    assert "Healthy" in order(world, "uncordon", card)


def test_the_reset_of_a_drained_card(world, card):
    """As docs/operations.md says; the command is the simulator's."""
    aliquot.add_to_driver(world.cluster, world.build / "src/cli/aliquot")
    command = f"[{aliquot.DRIVER}/bin/aliquot, sim, inject, reset, --gpu, '{gpu(world, card)['spec']['index']}']"
    world.cluster.on_node(["tee", CONFIG], input=f"version: v1\naliquot: {{reset: {{command: {command}}}}}\n")
    with agent_options(world, f"--config-file={CONFIG}"):
        order(world, "drain", card)
        assert "Draining: drained by order\n" in order(world, "reset", card, seconds=60)
        assert gpu(world, card)["status"]["maintenance"] == "drain"
        assert "Healthy" in order(world, "uncordon", card)


def test_the_reset_of_a_healthy_card_fails(world, card):
    """It is healthy again at once; the order has failed."""
    aliquot.add_to_driver(world.cluster, world.build / "src/cli/aliquot")
    command = f"[{aliquot.DRIVER}/bin/aliquot, no-command]"
    world.cluster.on_node(["tee", CONFIG], input=f"version: v1\naliquot: {{reset: {{command: {command}}}}}\n")
    with agent_options(world, f"--config-file={CONFIG}"):
        world.until(lambda: gpu(world, card)["status"]["state"] == "Healthy", 20, "the card is healthy")
        done = world.cluster.on_node([str(world.build / "src/cli/aliquot"), "card", "reset", card, "--wait", "60"],
                                     check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"GPU {card}: reset failed: " in done.stderr and done.stderr.endswith(" (it is Healthy)\n"), done.stderr
        assert gpu(world, card)["status"]["reset"]["result"] == "Failed"


def test_a_released_node(world, space):
    """No process of the agent has a card open; the pod that has one goes on."""
    seen = space.start(pod("holder", container(core=10, memory=GiB)))
    node = seen["spec"]["nodeName"]
    with space.tenant(seen) as tenant:
        assert "Unknown: released by order for the node" in order(world, "release", node, "node")
        world.until(lambda: processes(world, "aliquot-nvml") == 0, 10, "the NVML process has ended")
        assert tenant.alloc(GiB // 2) == 0
        order(world, "resume", node, "node")
        world.until(lambda: all(g["status"]["state"] == "Healthy" for g in world.gpus()), 20, "the cards are back")
    assert processes(world, "aliquot-nvml") == 1


def test_the_gpu_operators_upgrade(world):
    node = world.gpus()[0]["spec"]["nodeName"]

    def label(value):
        world.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {LABEL: value}}})

    label("pod-restart-required")
    world.until(lambda: all(g["status"].get("reason") == f"released by {LABEL}=pod-restart-required"
                            for g in world.gpus()), 20, "the cards are released")
    label("upgrade-done")
    world.until(lambda: all(g["status"]["state"] == "Healthy" for g in world.gpus()), 20, "the cards are back")
    label(None)


def test_pods_that_an_upgrade_leaves(world, space):
    """The upgrade controller leaves pods with the label; an order of a user evicts them."""
    body = pod("stays", container(core=10, memory=GiB))
    body["metadata"]["labels"] = {"nvidia.com/gpu-driver-upgrade-drain.skip": "true"}
    node = space.start(body)["spec"]["nodeName"]
    space.start(pod("goes", container(core=10, memory=GiB)))
    world.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {LABEL: "drain-required"}}})
    try:
        space.event("goes", "GPUDrained")
        world.api.wait(kube.core("pods", space.name), "goes", lambda seen: seen is None, 30, "the other pod is gone")
        assert kit.is_running(space.get("stays"))
        assert "Draining" in [g["status"]["state"] for g in world.gpus()]
    finally:
        world.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {LABEL: None}}})
    world.until(lambda: all(g["status"]["state"] == "Healthy" for g in world.gpus()), 20, "the cards are back")
