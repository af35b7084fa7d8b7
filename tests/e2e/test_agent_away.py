# SPDX-License-Identifier: Apache-2.0
"""Pods that arrive, two a second, while the node's agent is replaced or gone: none of them fails for it."""

import calendar
import contextlib
import os
import secrets
import time

import kit
import pytest
from arrivals import Load, all_succeed
from cluster import aliquot
from cluster import api as kube
from cluster import images
from cluster.cluster import Cluster
from kit import condition, container, is_running, pod
from test_gputime import agent_stopped

NOTICED = 8             # seconds after which no pod is bound to a node without an agent: kubelet's next status, each second here
LATE = 4                # seconds of pods that come after that
UNKNOWN = 20            # seconds after which cards without an agent are Unknown
QUIET = 10              # seconds in which nothing is written of them any more
AGENT_CONDITION = "AliquotAgentReady"
DAEMONS = "/apis/apps/v1/namespaces/aliquot-system/daemonsets"


def seconds(stamp):
    return calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def failed(space):
    return {p["metadata"]["name"]: p for p in space.api.get(space.path)["items"] if p["status"].get("phase") == "Failed"}


def bound_at(space, name):
    """By kube-scheduler's Event, since kubelet replaces the conditions of a pod that it refuses."""
    (event,) = space.api.get(f"{kube.core('events', space.name)}?fieldSelector=involvedObject.name%3D{name},reason%3DScheduled")["items"]
    return seconds(event["metadata"]["creationTimestamp"])


def agent_condition(world):
    return condition(world.api.get(kube.core("nodes", name=world.cluster.node)), AGENT_CONDITION)


def is_offered(world):
    node = world.api.get(kube.core("nodes", name=world.cluster.node))
    return kit.has_tokens(node)


def test_update_of_the_agent(world, space):
    """The DaemonSet is rolled out while pods arrive: those that come meanwhile wait."""
    world.until(lambda: agent_condition(world).get("status") == "True", 30, "the agent has told that it is ready")
    old = world.agent.pod()["metadata"]["uid"]
    with Load(space) as load:
        load.until(6)
        world.api.patch(DAEMONS + "/aliquot-agent", {"spec": {"template": {"metadata": {"annotations": {
            "aliquot.test/rolled": str(time.time())}}}}})
        seen = world.until(lambda: agent_condition(world).get("status") == "False" and agent_condition(world), 30,
                           "the agent has told that it stops")
        assert seen["reason"] == "Stopping"
        world.until(lambda: world.agent.pod()["metadata"]["uid"] != old
                    and condition(world.agent.pod(), "Ready").get("status") == "True", 60, "the new agent ready")
        world.until(lambda: agent_condition(world).get("status") == "True", 30, "the new agent has told that it is ready")
        load.until(len(load.names) + 6)
    all_succeed(space, load.names)
    assert not failed(space)
    # Nothing is written while nothing changes.
    version = agent_condition(world)["lastHeartbeatTime"]
    space.start(pod("last", container(core=10)))
    assert agent_condition(world)["lastHeartbeatTime"] == version


@contextlib.contextmanager
def image_gone(world):
    """kubelet cannot start the agent again. Afterwards its image is there and the agent runs."""
    (name,) = [n for n in world.ctr("images", "ls", "-q").split() if "aliquot-agent" in n]
    world.ctr("images", "rm", "--sync", name)
    yield
    archive = images.IMAGES["agent"](str(world.build)).save(os.path.join(world.cluster.state, "images"))
    world.cluster.load_image(archive)
    with contextlib.suppress(kube.ApiError):
        world.api.delete(world.agent.path + "/" + world.agent.pods()[0]["metadata"]["name"] + "?gracePeriodSeconds=0")
    world.until(lambda: condition(world.agent.pod(), "Ready").get("status") == "True", 60, "the agent runs again")


@pytest.fixture
def no_image(world):
    with image_gone(world):
        yield
    world.wait_tokens()


def test_agent_killed_for_good(world, space, no_image):
    """Only kubelet reports it, with its next status: the pods that come later wait, with the reason. The scheduler writes
    once that the state of the cards is unknown."""
    world.agent.kill()
    killed = time.time()
    with Load(space) as load:
        world.until(lambda: not is_offered(world), NOTICED, "kubelet offers nothing any more")
        world.until(lambda: all(is_unknown(gpu) for gpu in world.gpus()), killed + UNKNOWN - time.time(), "the cards are Unknown")
        before, seen = versions(world), time.time()
        world.until(lambda: time.time() > max(killed + NOTICED + LATE, seen + QUIET), NOTICED + LATE + QUIET,
                    "the time in which none may be bound, and nothing written", pause=0.1)
        assert versions(world) == before
        late = load.names[-1]
    why = space.unschedulable(late)
    assert "node's agent is not registered with kubelet" in why, why
    assert "agent is not registered with kubelet" in space.event(late, "NoGPUFits")
    for name, seen in failed(space).items():
        assert bound_at(space, name) <= killed + NOTICED, f"{name}: {seen['status']}"
    for gpu in world.gpus():
        assert kube_free(world, gpu) == "0", "GPU objects show that nothing can be had"
    assert not is_running(space.get(late))
    space.api.delete(space.path, gracePeriodSeconds=1)      # those that wait do not start once the agent is back


@pytest.mark.foreign
@pytest.mark.long
def test_killed_on_a_node_that_offers_nothing(build, tmp_path):
    """All cards are in MIG mode, and kubelet is offered no instance."""
    (tmp_path / "divided").write_text("[gpu 0]\nmodel = A100\nmig = 3g.40gb\n")

    def have(world, state):
        return [gpu["status"].get("state") for gpu in world.gpus()] == [state] * 2     # the card and its instance
    with Cluster("none-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.start_simulator(cluster, str(build), machine=tmp_path / "divided")
        aliquot.load_images(cluster, str(build), [])
        aliquot.apply(cluster, None)
        world = kit.World(cluster, build)
        world.until(lambda: have(world, "Healthy"), 60, "healthy objects")
        assert not is_offered(world)
        with image_gone(world):
            world.agent.kill()
            world.until(lambda: have(world, "Unknown"), UNKNOWN, "they are Unknown")
            before, seen = versions(world), time.time()
            world.until(lambda: time.time() > seen + QUIET, 2 * QUIET, "the time in which nothing may be written", pause=0.1)
            assert versions(world) == before
        world.until(lambda: have(world, "Healthy"), 20, "the next agent has written")


def is_unknown(gpu):
    """Its state, and no pod of before has it any more."""
    return gpu["status"]["state"] == "Unknown" and not gpu["status"].get("allocated")


def versions(world):
    return [gpu["metadata"]["resourceVersion"] for gpu in world.gpus()]


def test_gpu_objects_belong_to_their_node(world):
    """Kubernetes deletes them with the Node; those of an earlier version get their owner."""
    uid = world.api.get(kube.core("nodes", name=world.cluster.node))["metadata"]["uid"]

    def owners(name):
        return [(o["kind"], o["uid"]) for o in world.api.get(kube.gpus(name))["metadata"].get("ownerReferences", [])]
    for gpu in world.gpus():
        assert owners(gpu["metadata"]["name"]) == [("Node", uid)]
    name = world.gpus()[0]["metadata"]["name"]
    world.api.patch(kube.gpus(name), {"metadata": {"ownerReferences": None}})
    world.until(lambda: owners(name) == [("Node", uid)], 20, "the agent has named the owner again")


def kube_free(world, gpu):
    return world.api.get(kube.gpus(gpu["metadata"]["name"]))["status"]["allocatable"][kit.CORE]


def test_looking_while_it_hangs(world):
    """The cards are shown, and that their use is not to be had."""
    with agent_stopped(world):
        done = world.cluster.on_node([str(world.build / "src/cli/aliquot"), "gpus"], check=False)
        top = world.cluster.on_node([str(world.build / "src/cli/aliquot"), "top", "--once"], check=False)
    name = world.agent.pod()["metadata"]["name"]
    assert (done.returncode, done.stderr) == (0, f"aliquot gpus: no usage from agent {name}: no answer in time\n")
    for card in world.gpus():
        row = next(line for line in done.stdout.splitlines() if line.startswith(card["metadata"]["name"]))
        assert "no answer" in row, done.stdout
        assert card["metadata"]["name"] in top.stdout
    assert (top.returncode, top.stderr) == (0, "aliquot top: 1 agent does not answer\n")
