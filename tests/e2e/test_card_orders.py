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
IN_FORCE = "the configuration of the node has changed"     # in the agent's log
UUID = "elasticgpu.io/gpu-uuid"


@pytest.fixture
def card(world):
    """The name of a card's object. Nothing is ordered of any card at the end."""
    names = [g["metadata"]["name"] for g in world.gpus()]
    yield names[0]
    world.aliquot("card", "uncordon", *names, "--wait", "20")


@pytest.fixture(scope="module")
def configured(world):
    """The agent with a configuration, which the function replaces: settings of `aliquot`. Returns when it is in force."""
    aliquot.add_to_driver(world.cluster, world.build / "src/cli/aliquot")

    def configure(settings):
        before = world.agent.log().count(IN_FORCE)
        write_config(world, settings)
        world.until(lambda: world.agent.log().count(IN_FORCE) > before, 10, "the configuration is in force")
    write_config(world, "")
    with agent_options(world, f"--config-file={CONFIG}"):
        yield configure


def write_config(world, settings):
    world.cluster.on_node(["sh", "-c", f"cat > {CONFIG}.new; mv {CONFIG}.new {CONFIG}"],
                          input=f"version: v1\naliquot: {{{settings}}}\n")


def by_simulator(world, name):
    """The reset command for a card."""
    return f"[{aliquot.DRIVER}/bin/aliquot, sim, inject, reset, --gpu, '{index(world, name)}']"


def order(world, verb, name, kind="card", seconds=20):
    return world.aliquot(kind, verb, name, "--wait", str(seconds))


def gpu(world, name):
    return next(g for g in world.gpus() if g["metadata"]["name"] == name)


def index(world, name):
    return str(gpu(world, name)["spec"]["index"])


def inject(world, name, *words):
    world.aliquot("sim", "inject", *words, "--gpu", index(world, name))


def wait_state(world, name, state, reason=""):
    """The status of the card, which then has this state, and a reason that begins so."""
    def is_so(seen):
        return seen["status"]["state"] == state and seen["status"].get("reason", "").startswith(reason)
    return world.api.wait(kube.gpus(), name, is_so, 30, f"{name} {state} {reason}")["status"]


def processes(world, name):
    """How many processes of the node have that name."""
    return world.cluster.on_node(["sh", "-c", "cat /proc/[0-9]*/comm 2>/dev/null || true"]).stdout.split().count(name)


def reset_by_hand(world, name):
    """What the driver says to it; "": it has reset the card."""
    return world.cluster.on_node([str(world.build / "src/cli/aliquot"), "sim", "inject", "reset", "--gpu", index(world, name)],
                                 check=False).stderr


def start_with_budget(space, card=None):
    """Starts a pod, on that card, that no eviction may end; returns the path of its budget."""
    body = pod("held", container(core=50, memory=GiB), annotations={UUID: card} if card else None)
    body["metadata"]["labels"] = {"app": "held"}
    space.start(body)
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "one"},
              "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "held"}}}}
    path = f"/apis/policy/v1/namespaces/{space.name}/poddisruptionbudgets"
    space.api.create(path, budget)
    return path + "/one"


def test_a_drained_card(world, space, card):
    """A budget delays the eviction; the card takes no pods until it is uncordoned."""
    other = [g["metadata"]["name"] for g in world.gpus() if g["metadata"]["name"] != card]
    for name in other:
        order(world, "cordon", name)
    budget = start_with_budget(space)
    assert gpu(world, card)["status"]["allocated"]
    world.aliquot("card", "drain", card)
    space.event("held", "GPUDrainDelayed")
    assert gpu(world, card)["status"]["state"] == "Draining"
    assert kit.is_running(space.get("held"))
    world.api.delete(budget)
    assert "Draining: drained by order" in order(world, "drain", card, seconds=60)
    world.until(lambda: not gpu(world, card)["status"].get("allocated"), 20, "the pod is gone")
    assert "Healthy" in order(world, "uncordon", card)


def test_what_pods_have_of_a_cordoned_card_is_not_missing_on_the_other(world, space, card):
    """kubelet counts the percent of all cards together."""
    space.start(pod("held", container(core=50, memory=GiB), annotations={UUID: gpu(world, card)["spec"]["uuid"]}))
    order(world, "cordon", card)
    with pytest.raises(AssertionError, match="is unhealthy: cordoned"):
        world.agent.http("/healthz")
    assert world.agent.http("/readyz") == b"ok\n", "an upgrade of the agents goes on"
    space.start(pod("whole", container(core=100, memory=GiB)))


def test_the_reset_of_a_drained_card(world, configured, card):
    """As docs/operations.md says; the command is the simulator's."""
    configured(f"reset: {{command: {by_simulator(world, card)}}}")
    order(world, "drain", card)
    assert "Draining: drained by order\n" in order(world, "reset", card, seconds=60)
    assert gpu(world, card)["status"]["maintenance"] == "drain"
    assert "Healthy" in order(world, "uncordon", card)


def test_the_reset_of_a_healthy_card_fails(world, configured, card):
    """It is healthy again at once; the order has failed."""
    configured(f"reset: {{command: [{aliquot.DRIVER}/bin/aliquot, no-command]}}")
    done = world.cluster.on_node([str(world.build / "src/cli/aliquot"), "card", "reset", card, "--wait", "60"], check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"GPU {card}: reset failed: " in done.stderr and done.stderr.endswith(" (it is Healthy)\n"), done.stderr
    assert gpu(world, card)["status"]["reset"]["result"] == "Failed"


def test_policy_drain(world, space, configured, card):
    """From the XID to the healthy card by the agent alone: the pod is evicted as soon as its budget allows it, the card is
    reset and probed. The agent is killed while the budget holds the pod."""
    configured(f"health: {{deadline: 60s}}, reset: {{policy: drain, command: {by_simulator(world, card)}}}")
    budget = start_with_budget(space, gpu(world, card)["spec"]["uuid"])
    inject(world, card, "xid", "48")
    space.event("held", "GPUDrainDelayed")
    wait_state(world, card, "Draining", "XID 48")
    before = world.agent.kill()     # the next one is not ready while the card is out
    world.until(lambda: world.agent.status()["containerID"] != before["containerID"] and state_metric(world, card) == "Draining",
                30, "the next agent drains the card")
    assert gpu(world, card)["status"]["state"] == "Draining" and kit.is_running(space.get("held"))
    with world.driver_hangs("cuDevicePrimaryCtxRetain", "--gpu", index(world, card)) as wait:
        world.api.delete(budget)
        space.event("held", "GPUDrained")
        wait()
        wait_state(world, card, "Probing")
        space.wait("held", lambda seen: not kit.is_running(seen))
    assert wait_state(world, card, "Healthy")["lastXid"] == 48
    results = {dict(labels)["result"]: number for (name, labels), number in world.metrics().items()
               if name == "aliquot_gpu_resets_total" and dict(labels)["gpu"] == index(world, card)}
    assert results["succeeded"] == 1 == sum(results.values())


def state_metric(world, name):
    (found,) = [dict(labels)["state"] for (metric, labels), value in world.metrics().items()
                if metric == "aliquot_gpu_state" and value == 1 and dict(labels)["uuid"] == gpu(world, name)["spec"]["uuid"]]
    return found


def test_a_flapping_card(world, space, configured, card):
    """The third time it stays out, until a person says so."""
    configured("health: {flapping: {times: 3, within: 10m}}")
    world.aliquot("card", "set-healthy", card)     # what it had before does not count; followed before the next order is
    order(world, "cordon", card)
    order(world, "uncordon", card)
    for times in range(3):
        inject(world, card, "lose")
        wait_state(world, card, "Unhealthy", "XID 79 ")
        inject(world, card, "return")
        if times < 2:
            wait_state(world, card, "Healthy")
    wait_state(world, card, "Unhealthy", "the card failed too often and waits for annotation elasticgpu.io/set-healthy")
    space.create(pod("waits", container(core=50), annotations={UUID: gpu(world, card)["spec"]["uuid"]}))
    space.unschedulable("waits")
    assert "Healthy" in order(world, "set-healthy", card)
    space.running("waits")


def test_a_released_card(world, card):
    """No process has it open, and so the driver resets it; the other card is served meanwhile."""
    (other,) = [g["metadata"]["name"] for g in world.gpus() if g["metadata"]["name"] != card]
    assert "in use by another client" in reset_by_hand(world, card)
    assert "Unknown: released by order\n" in order(world, "release", card)
    inject(world, card, "persistence", "off")
    assert reset_by_hand(world, card) == ""
    assert "in use by another client" in reset_by_hand(world, other)
    assert gpu(world, other)["status"]["state"] == "Healthy"
    assert "Healthy" in order(world, "uncordon", card)
    world.until(lambda: "in use by another client" in reset_by_hand(world, card), 20, "the agent reads the card")


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
