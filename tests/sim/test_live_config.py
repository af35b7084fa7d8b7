# SPDX-License-Identifier: Apache-2.0
"""Keys of the configuration that change while the agent runs: each is in force within 2 s of the file's replacement, which
World.reconfigure() asserts, and has its effect without a restart."""

import json
import re
import shutil

import pytest
from agent_world import children_of, of_process
from sim_kit import ALIQUOT, Polls, wait_until

FOUR = "[machine]\ndriver = 570.124.06\n[gpu 0-3]\nmodel = A100\n"
FAST = "interval: 100ms"


@pytest.fixture
def world(world_of):
    world = world_of(FOUR)
    world.configure(health=FAST)
    world.start()
    for card in range(4):
        world.agent.wait(card, "Healthy")
    return world


def counted(world, card, xid):
    """An XID of an event only, of which no poll shows anything."""
    world.node.inject("xid", xid, "--gpu", card)
    wait_until(lambda: world.agent.xids(card).get(xid) == 1, what="the XID is counted")


def test_fatal_and_ignored_xids(world):
    counted(world, 0, 13)       # of programs
    assert world.agent.state(0) == "Healthy"
    world.reconfigure(health=FAST + ", fatalXids: [13], ignoreXids: [142]")
    counted(world, 1, 13)
    world.agent.wait(1, "Unhealthy")
    counted(world, 2, 142)      # takes a card out, if it is not ignored
    assert world.agent.state(2) == "Healthy"
    world.reconfigure(health=FAST)
    counted(world, 3, 142)
    world.agent.wait(3, "Unhealthy")
    assert world.agent.reason(3).startswith("XID 142")
    assert world.agent.state(0) == world.agent.state(2) == "Healthy"


def test_max_temperature(world):
    world.node.inject("temperature", 96, "--gpu", 1)
    Polls(world.node).wait(5)
    assert world.agent.state(1) == "Healthy"
    world.reconfigure(health=FAST + ", settle: 100ms, maxTemperature: 95")
    world.agent.wait(1, "Unhealthy")
    assert world.agent.reason(1) == "the temperature is above maxTemperature, 95 degrees Celsius"
    world.reconfigure(health=FAST + ", settle: 100ms, maxTemperature: 96")
    world.agent.wait(1, "Healthy")
    world.reconfigure(health=FAST + ", settle: 100ms, maxTemperature: 95")
    world.agent.wait(1, "Unhealthy")
    world.node.inject("temperature", 0, "--gpu", 1)
    world.agent.wait(1, "Healthy")
    assert world.agent.state(0) == "Healthy"


def test_settle(world):
    world.reconfigure(health=FAST + ", settle: 10m, maxTemperature: 90")
    world.node.inject("temperature", 96, "--gpu", 1)
    world.agent.wait(1, "Suspect")
    polls = Polls(world.node)
    polls.wait(10)
    assert world.agent.state(1) == "Suspect"
    world.reconfigure(health=FAST + ", settle: 100ms, maxTemperature: 90")
    world.agent.wait(1, "Unhealthy")


def test_recover(world):
    world.reconfigure(health=FAST + ", recover: manual")
    world.node.inject("lose", "--gpu", 0)
    world.agent.wait(0, "Unhealthy")
    world.node.inject("return", "--gpu", 0)
    polls = Polls(world.node)
    polls.wait(10)
    assert world.agent.state(0) == "Unhealthy"
    world.reconfigure(health=FAST + ", recover: auto")
    world.node.inject("lose", "--gpu", 1)
    world.agent.wait(1, "Unhealthy")
    world.node.inject("return", "--gpu", 1)
    world.agent.wait(1, "Healthy")


def flap(world, state):
    world.node.inject("lose", "--gpu", 1)
    world.agent.wait(1, "Unhealthy")
    world.node.inject("return", "--gpu", 1)
    if state == "Healthy":
        world.agent.wait(1, state)
    else:
        wait_until(lambda: world.agent.reason(1).startswith("the card failed too often"), what="the card is held")
        assert world.agent.state(1) == state


def test_flapping(world):
    world.reconfigure(health=FAST + ", flapping: {times: 0, within: 10m}")
    for _ in range(4):
        flap(world, "Healthy")
    world.reconfigure(health=FAST + ", flapping: {times: 3, within: 10m}")
    flap(world, "Unhealthy")


def test_the_policy_of_resets(world):
    world.node.inject("xid", 48, "--gpu", 1)
    world.agent.wait(1, "Unhealthy")
    polls = Polls(world.node)
    polls.wait(5)
    assert world.agent.state(1) == "Unhealthy"
    command = world.path / "reset"
    command.write_text(f'#!/bin/sh\nexec {ALIQUOT} sim inject --dir {world.node.dir} reset --gpu 1\n')
    command.chmod(0o755)
    world.reconfigure(health=FAST, reset=f"{{policy: idle, command: [{command}, UUID]}}")
    world.agent.wait(1, "Healthy")


def test_replicas_of_an_instance(world_of):
    """A second container begins on it beside the first; without replicas it waits for their end."""
    world = world_of("[gpu 0]\nmodel = A100\nmig = 3g.40gb\n")
    sharing = "sharing: {timeSlicing: {resources: [{name: mig-3g.40gb, replicas: 2}]}}"
    world.configure(health=FAST, more=sharing)
    world.start()
    wait_until(lambda: len(world.api.find("gpus")) == 2, what="card and instance are objects")
    (uuid,) = (gpu["spec"]["uuid"] for gpu in world.api.find("gpus").values() if gpu["spec"]["uuid"].startswith("MIG"))
    polls = Polls(world.node)
    for number in range(2):
        world.pod(f"pod-{number}", "mig-3g.40gb", f"{uuid}::{number}")
        world.kubelet.start(f"pod-{number}")
        polls.wait(5)
        assert world.agent.states()[uuid] == "Healthy"
    world.reconfigure(health=FAST)
    wait_until(lambda: world.agent.states()[uuid] == "Unhealthy", what="the instance takes no others")
    world.reconfigure(health=FAST, more=sharing)
    wait_until(lambda: world.agent.states()[uuid] == "Healthy", what="it is given out as its containers have it")


def test_the_policy_of_allocation(world):
    """For kubelet's choice among replicas, of which one of the first card is in use."""
    sharing = {"health": FAST, "resources": "{gpus: [{pattern: A100, name: a100}]}", "more":
               "sharing: {timeSlicing: {resources: [{name: a100, rename: sliced, replicas: 4}]}}"}
    first, *others = world.uuids()
    free = [f"{first}::{n}" for n in (1, 2, 3)] + [f"{uuid}::{n}" for uuid in others for n in range(4)]
    for policy, card in (("packed", True), ("distributed", False), ("packed", True)):
        world.reconfigure(**sharing, allocationPolicy=policy)
        (chosen,) = world.kubelet.prefer("sliced", free, 1)
        assert chosen.startswith(first) == card, (policy, chosen)


def test_the_strategy_of_mig(world_of):
    """What kubelet is offered of the instances, and the labels of the node, by each strategy."""
    world = world_of("[gpu 0-1]\nmodel = A100\nmig = 3g.40gb,3g.40gb\n", **{"served-elsewhere": "nvidia.com/gpu"})
    world.configure(health=FAST, strategy="none")
    world.start()
    wait_until(lambda: len(world.api.find("gpus")) == 6, what="cards and instances are objects")
    parts = [gpu["spec"] for gpu in world.api.find("gpus").values() if gpu["spec"]["uuid"].startswith("MIG")]
    assert sorted((part["parent"], part["mig"]["start"], part["mig"]["size"]) for part in parts) == sorted(
        (uuid, start, 4) for uuid in world.uuids() for start in (0, 4))
    instances = {part["uuid"] for part in parts}
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.count": "2"}
    of_instance = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "nvidia.com/gpu.count": "4"}

    def offered(resource):
        return set(world.kubelet.listed(resource)) if world.kubelet.socket(resource) else set()
    for strategy, resource, told in ((None, None, labels), ("single", "gpu", of_instance), ("mixed", "mig-3g.40gb", labels),
                                     ("none", None, labels), ("single", "gpu", of_instance)):
        if strategy:
            world.reconfigure(health=FAST, strategy=strategy)
        for name in ("gpu", "mig-3g.40gb"):
            wait_until(lambda name=name: offered(name) == (instances if name == resource else set()), what=f"{strategy}: {name}")
        told = {**told, "nvidia.com/mig.strategy": strategy if resource else None}
        wait_until(lambda told=told: {key: world.node_object("labels").get(key) for key in told} == told, what=f"{strategy}: {told}")


def test_a_card_that_is_given_out_in_instances(world_of):
    """It takes no pods while it is not in MIG mode; then its instances do."""
    world = world_of(FOUR)
    world.options["mig-config-file"] = world.path / "mig"
    (world.path / "mig").write_text(json.dumps({"version": "v1", "mig-configs": {"seven": [
        {"devices": [1], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]}}))
    world.configure(health=FAST)
    world.start()
    world.agent.wait(1, "Healthy")
    world.reconfigure(health=FAST, cards="[{devices: [1], mode: mig}]")
    world.agent.wait(1, "Unhealthy")
    assert world.agent.reason(1) == "it is given out in MIG instances (mode mig), and is not in MIG mode"
    assert world.agent.state(0) == world.agent.state(2) == "Healthy"
    world.reconfigure(health=FAST, cards="[{devices: [1], mode: mig}]", mig="{config: seven}")
    world.agent.wait(1, "Healthy")
    wait_until(lambda: len(set(world.kubelet.listed("mig-1g.10gb"))) == 7, what="its instances are offered")


def libraries(world):
    """The NVML libraries that processes of the agent have loaded, in its view."""
    maps = "".join(of_process(child, "maps") for child in children_of(world.agent.process.pid))
    return set(re.findall(r"\S+/libnvidia-ml\.so\S*", maps))


def test_the_roots_of_the_driver(world_of):
    """Of drivers in containers of their own: the agent reads the cards by the other one's library, and a container that starts
    from then on gets the other one's files and nodes."""
    world = world_of("[gpu 0]\nmodel = A100\n")
    host, simulated, patterns = world.path / "host", world.path / "sim", "{gpus: [{pattern: A100, name: a100}]}"
    for root in host / "first", host / "second":
        shutil.copytree(world.node.dir / "lib", root / "usr/lib64")
        (root / "dev").mkdir()
        for name in "nvidiactl", "nvidia0":
            (root / "dev" / name).touch()
    # The libraries find their daemon there, and the agent no driver.
    simulated.mkdir()
    for path in world.node.dir.iterdir():
        if path.name != "lib":
            (simulated / path.name).symlink_to(path)
    world.options |= {"host-root": host, "sim-dir": simulated}

    def flags(root):
        return {"health": FAST, "resources": patterns, "flags": root and f"nvidiaDriverRoot: /{root}, nvidiaDevRoot: /{root}"}

    def given():
        world.kubelet.start("held")
        edits = world.cdi("held")
        return {path.split("/")[1] for path in [m["hostPath"] for m in edits["mounts"] if "libcuda" in m["containerPath"]] +
                [node["hostPath"] for node in edits["deviceNodes"]]}

    def loaded(root):
        return libraries(world) == {str(host / root / "usr/lib64/libnvidia-ml.so.1")}
    world.configure(**flags("first"))
    world.start()
    world.agent.wait(0, "Healthy")
    world.pod("held", "a100", *world.uuids())
    assert loaded("first") and given() == {"first"}
    for root in "second", "first":
        world.reconfigure(**flags(root))
        wait_until(lambda root=root: loaded(root), 2, what=f"the library of {root}")
        assert world.agent.state(0) == "Healthy" and given() == {root}
    world.reconfigure(**flags(""))
    world.agent.wait(0, "Unhealthy")
    assert world.agent.reason(0) == "no GPU driver was found on this node"
    world.reconfigure(**flags("second"))
    world.agent.wait(0, "Healthy")
    assert loaded("second") and given() == {"second"}
