# SPDX-License-Identifier: Apache-2.0
"""From the release before to this one and back, with pods that run and pods that come: no container restarts, no limit changes,
no share is given twice, and no pod fails. On the way each agent runs beside each scheduler, and beside one of the other release
on the other node."""

import glob
import json
import os
import pathlib
import secrets

import kit
import pytest
import yaml
from arrivals import Load, all_succeed
from cluster import aliquot, release_before
from cluster import api as kube
from cluster.cluster import Cluster
from kit import OUT_OF_MEMORY, GiB, check_no_share_twice, check_view, container, pod

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpus.elasticgpu.io"
WORKLOADS = {"DaemonSet", "Deployment"}    # agent, scheduler
# What of a version is applied; half: to the agent of the second node alone.
STAGES = {"half-of-the-nodes": ("now", "DaemonSet", "half"), "new-agents-old-scheduler": ("now", "DaemonSet", "all"),
          "both-new": ("now", "Deployment", "all"), "half-of-the-nodes-back": ("before", "DaemonSet", "half"),
          "old-agents-new-scheduler": ("before", "DaemonSet", "all"), "both-old": ("before", "Deployment", "all")}
CARDS = 2                       # of each node
CORE, MEMORY = 10, 3 * GiB      # of each pod that stays
EXTRA = 4                       # pods that come in each stage, at least
PAUSE = float(os.environ.get("PAUSE", 1.5))     # seconds between two of them
BOUND = 120                     # seconds


@pytest.fixture(scope="module")
def before():
    return release_before.ensure(say=print)


@pytest.fixture(scope="module")
def world(build, before):
    """Two nodes with the release before."""
    with Cluster("upgrade-" + secrets.token_hex(2), say=lambda text: print(text, flush=True), second_node=True) as cluster:
        cluster.up()
        for node in cluster.nodes:
            aliquot.start_simulator(node, str(build), CARDS)
        aliquot.load_images(cluster, str(build), [build / "tests/e2e/probe"])
        cluster.load_image(*before.images(f"{cluster.state}/images"))
        aliquot.apply(cluster, before.manifests("base"))
        aliquot.wait_gpus(cluster, CARDS)
        yield kit.World(cluster, build)


class Versions:
    """Which manifests are applied."""

    def __init__(self, world, before):
        self.world = world
        self.directories = {"before": before.manifests("base"), "now": aliquot.manifests(world.cluster)}

    def apply(self, version, workload, where):
        """All of a version but the other workload. Half: the agent of the first node stays."""
        cluster = self.world.cluster
        objects = [o for o in self._objects(version) if o["kind"] not in WORKLOADS or o["kind"] == workload]
        for one in objects:
            if one["kind"] == "DaemonSet":
                one["spec"]["updateStrategy"] = {"type": "OnDelete" if where == "half" else "RollingUpdate"}
        path = f"{cluster.state}/{version}.yaml"
        with open(path, "w") as file:
            yaml.dump_all(objects, file, Dumper=yaml.CSafeDumper)
        cluster.kubectl("apply", "-f", path)
        if where == "half":
            cluster.kubectl("delete", "pod", "-n", kit.SYSTEM, self.agents()[cluster.second.node]["metadata"]["name"])
        else:
            for what in ("ds/aliquot-agent", "deploy/aliquot-scheduler"):
                cluster.kubectl("rollout", "status", "-n", kit.SYSTEM, what, f"--timeout={BOUND}s")

    def agents(self):
        """The agents' pods by node."""
        return {seen["spec"]["nodeName"]: seen for seen in self.world.agent.pods()}

    def _objects(self, version):
        return list(yaml.load_all(self.world.cluster.kubectl("kustomize", self.directories[version]), Loader=yaml.CSafeLoader))

    def image(self, version, workload):
        """The image in its manifests."""
        (one,) = (o for o in self._objects(version) if o["kind"] == workload)
        return one["spec"]["template"]["spec"]["containers"][0]["image"]

    def running(self):
        """The images of ready pods: the schedulers', and each node's agent's."""
        def images(pods):
            return {seen["spec"]["containers"][0]["image"] for seen in pods if kit.condition(seen, "Ready").get("status") == "True"}
        return {"Deployment": images(self.world.scheduler.pods()),
                **{node: images([seen]) for node, seen in self.agents().items()}}


@pytest.fixture
def versions(world, before):
    return Versions(world, before)


def limited(space, seen):
    """The share is what the Binding says, and the limit holds to the byte."""
    (device,) = check_view(space, seen)
    assert (device["core"], device["memory"]) == (CORE, MEMORY)
    with space.tenant(seen) as tenant:
        used = MEMORY - tenant.info()["free"]   # of its context
        assert tenant.alloc(MEMORY - used) == 0
        assert tenant.alloc(1) == OUT_OF_MEMORY


def unharmed(space, before):
    """The same pod with the same container and the same share."""
    now = space.get(before["metadata"]["name"])
    (old,), (new,) = (seen["status"]["containerStatuses"] for seen in (before, now))
    assert (new["containerID"], new["restartCount"]) == (old["containerID"], old["restartCount"]) and new["ready"]
    assert kit.assignment_of(now) == kit.assignment_of(before)
    limited(space, now)


def start_again(space, seen):
    """Its container ends and is started again, as after a crash, by the agent of now; returns the pod."""
    name = seen["metadata"]["name"]
    (status,) = seen["status"]["containerStatuses"]
    space.world.ctr("tasks", "kill", "-s", "SIGKILL", status["containerID"].partition("://")[2], node=seen["spec"]["nodeName"])

    def again(now):
        (new,) = (now or {}).get("status", {}).get("containerStatuses") or [{}]
        return new.get("restartCount", 0) > status["restartCount"] and kit.is_running(now)
    now = space.wait(name, again, BOUND, f"the container of {name} runs again")
    limited(space, now)
    return now


def start_on_each(world, space, name):
    """A pod that stays, on each node."""
    nodes = [machine.node for machine in world.cluster.nodes]
    started = space.start_all([pod(f"{name}-{node}", container(core=CORE, memory=MEMORY), **kit.on(node)) for node in nodes], BOUND)
    for seen in started:
        limited(space, seen)
    return started


def settle(world, space, load, kept, name):
    """In a stage: what ran runs on, pods arrive, one more comes to stay on each node, and containers of the first and of the stage
    before start again."""
    load.until(len(load.names) + EXTRA)
    for seen in kept:
        unharmed(space, seen)
    again = {0, 1, len(kept) - 2, len(kept) - 1}
    kept += start_on_each(world, space, name)
    for at in again:
        kept[at] = start_again(space, kept[at])
    check_no_share_twice(seen for seen in world.api.get(space.path)["items"] if not kit.is_ended(seen))
    world.until(lambda: {s["metadata"]["uid"] for s in kept} <= set(world.allocated()), BOUND, "GPU objects name the pods that run")
    table = world.aliquot("gpus")
    assert all(seen["metadata"]["name"] in table for seen in kept), table


def test_upgrade_and_rollback(world, versions, space):
    crd = world.api.get(CRD)["spec"]
    nodes = [machine.node for machine in world.cluster.nodes]
    want = {"Deployment": {versions.image("before", "Deployment")}, **{node: {versions.image("before", "DaemonSet")} for node in nodes}}
    assert versions.running() == want
    kept = start_on_each(world, space, "first")
    with Load(space, PAUSE, nodes) as load:
        load.until(EXTRA)
        for name, (version, workload, where) in STAGES.items():
            versions.apply(version, workload, where)
            for part in {"Deployment": ["Deployment"]}.get(workload, nodes[-1:] if where == "half" else nodes):
                want[part] = {versions.image(version, workload)}
            world.until(lambda: versions.running() == want, BOUND, f"the images of stage {name}: {want}")
            assert (world.api.get(CRD)["spec"] == crd) == (version == "before")
            settle(world, space, load, kept, name)
    all_succeed(space, load.names, BOUND)


def test_a_record_of_a_newer_agent(world, versions, space):
    """As a rollback leaves it. The agent keeps it and says so, and the limit holds; when the container starts again it has its share
    by the pod's assignment."""
    for workload in ("DaemonSet", "Deployment"):
        versions.apply("now", workload, "all")
    agent = kit.Part(world, "aliquot-agent", 9400, world.cluster.node)
    seen = space.start(pod("kept", container(core=CORE, memory=MEMORY), **kit.on(world.cluster.node)), BOUND)
    (record,) = map(pathlib.Path, glob.glob(world.node_path("/run/aliquot/shares/*/record.json")))
    ours = json.loads(record.read_text())
    newer = json.dumps(ours | {"version": ours["version"] + 1, "unknown": {}})
    record.write_text(newer)
    agent.wait_restarted(agent.kill())
    assert "the share of container main was given by a newer agent: it is kept" in space.event("kept", "RecordOfNewerAgent")
    unharmed(space, seen)
    assert record.read_text() == newer and seen["metadata"]["uid"] in world.allocated()
    start_again(space, seen)
    assert json.loads(record.read_text())["version"] == ours["version"]
