# SPDX-License-Identifier: Apache-2.0
"""Karpenter's own controller with its kwok provider, which makes Node objects in place of machines: a pending share makes a
node, an empty node goes (docs/autoscaling.md).

ALIQUOT_KARPENTER names a directory with the program `karpenter`, which is kwok/main.go of sigs.k8s.io/karpenter, and
`crds`, its CRDs. Without it these tests are skipped."""

import contextlib
import json
import os
import pathlib
import secrets

import kit
import pytest
from chaos_nodes import NO_AGENT, UNREACHABLE, Nodes
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import CARD, CORE, MEMORY, QGPU_CORE, QGPU_MEMORY, SLOT, GiB, container, pod

PROGRAMS = os.environ.get("ALIQUOT_KARPENTER")
pytestmark = [pytest.mark.foreign, pytest.mark.long,
              pytest.mark.skipif(not PROGRAMS, reason="ALIQUOT_KARPENTER names no directory")]

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
MODEL = "NVIDIA A100-SXM4-80GB"
TYPE = "gpu-2"      # an instance type with two such cards
POOL = "karpenter.sh/nodepool"
MADE = 60           # seconds in which Karpenter makes a node: it collects pending pods for up to 10 s
GONE = 60
INSTANCE_TYPES = [{
    "name": TYPE, "architecture": "amd64", "operatingSystems": ["linux"], "resources": {"cpu": "64", "memory": "512Gi"},
    "offerings": [{"Price": 1, "Available": True, "Requirements": [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-a"]}]}]}]
# As docs/autoscaling.md says for nodes of two cards.
CAPACITY = {CORE: "200", MEMORY: str(2 * CARD), SLOT: "328"}


@pytest.fixture(scope="module")
def world(build):
    with Cluster("karpenter-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe"])
        installed = kit.World(cluster, build)
        installed.wait_tokens(60)
        yield installed
        installed.wait_cleared()


class Machines(Nodes):
    """What starts on the machine of a Node that Karpenter has made, and ends with it."""

    def __init__(self, world):
        super().__init__(world, 0, 2, 1)

    def run(self):
        while not self.ended.wait(0.2):
            with contextlib.suppress(*UNREACHABLE):
                self.follow()
                self.heartbeat()
                for seen in self.pods():
                    self.care(seen)

    def follow(self):
        there = [n["metadata"]["name"] for n in self.api.get(kube.core("nodes"))["items"] if POOL in n["metadata"]["labels"]]
        for name in set(there) - set(self.names):
            self.equip(name)
            self.names.append(name)
        for name in set(self.names) - set(there):
            self.strip(name)
            self.names.remove(name)


def create(world, version, kind, name, **spec):
    kinds = kind.lower() + ("es" if kind.endswith("s") else "s")
    world.api.create(f"/apis/{version}/{kinds}", {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})


@pytest.fixture(scope="module")
def karpenter(world):
    """Runs beside the control plane; its nodes have two cards each."""
    state = pathlib.Path(world.cluster.state, "karpenter")
    state.mkdir()
    (state / "types.json").write_text(json.dumps(INSTANCE_TYPES))
    world.cluster.kubectl("apply", "--server-side", "-f", f"{PROGRAMS}/crds")
    world.cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/nodeclaims.karpenter.sh",
                          "crd/nodepools.karpenter.sh", "crd/nodeoverlays.karpenter.sh", "crd/kwoknodeclasses.karpenter.kwok.sh")
    made_of = [{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [TYPE]}]
    create(world, "karpenter.kwok.sh/v1alpha1", "KWOKNodeClass", "default")
    create(world, "karpenter.sh/v1alpha1", "NodeOverlay", "aliquot", requirements=made_of, capacity=CAPACITY)
    create(world, "karpenter.sh/v1", "NodePool", "gpus", **{
        "template": {
            "metadata": {"labels": {NO_AGENT: "disable"}},
            "spec": {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                     "expireAfter": "Never", "requirements": made_of}},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}})
    world.cluster.spawn("karpenter", [
        f"{PROGRAMS}/karpenter", "--feature-gates=NodeOverlay=true", "--disable-leader-election=true", "--metrics-port=18080",
        "--health-probe-port=18081", f"--instance-types-file-path={state}/types.json", "--log-level=debug"],
        env={"KUBECONFIG": "/etc/kubernetes/admin.conf", "SYSTEM_NAMESPACE": "kube-system"})
    try:
        with Machines(world):
            yield
    finally:
        print(world.cluster.log("karpenter")[-8000:])
        world.cluster.stop("karpenter")


def nodes(world):
    return [n["metadata"]["name"] for n in world.api.get(kube.core("nodes"))["items"] if POOL in n["metadata"]["labels"]]


def planned(world, space):
    plan = json.loads(world.aliquot("plan", "--capacity", "-n", space.name, "--machine", f"{MODEL},2,80Gi", "-o", "json"))
    return plan["needing"], [machine["newNodes"] for machine in plan["machines"]]


def where(space, name):
    return space.get(name)["spec"].get("nodeName")


@pytest.fixture
def full(world, space, karpenter):
    """The cluster's own cards are taken."""
    space.start_all([pod(f"full{i}", container(core=100)) for i in range(2)])


def test_a_pending_share_makes_a_node_and_an_empty_one_goes(world, space, full):
    names = ["a", "b", "c"]
    space.create(*(pod(name, container(core=50, memory=GiB)) for name in names))
    world.until(lambda: planned(world, space) == (3, [1]), 30, "the plan is one node")
    world.until(lambda: {where(space, name) for name in names} - {None, world.cluster.node}, MADE, "a pod on a new node")
    (made,) = world.until(lambda: nodes(world), MADE, "a node")
    world.until(lambda: {where(space, name) for name in names} == {made}, 30, "all are on it")
    assert len(world.api.get(CLAIMS)["items"]) == 1 and planned(world, space) == (0, [0])

    # With one pod left it stays; without, it goes.
    space.delete("a", "b")
    assert nodes(world) == [made] and where(space, "c") == made
    space.delete("c")
    world.until(lambda: not nodes(world) and not world.api.get(CLAIMS)["items"], GONE, "the empty node is gone")


def decisions(world, pods):
    """How often Karpenter has planned for that many pending pods."""
    return world.cluster.log("karpenter").count(f'"pending-pods":{pods},')


def test_sums_are_not_cards(world, space, full):
    """Three pods of 60 percent: Karpenter counts 180 of 200, and takes the third pod for one that will start."""
    names = ["a", "b", "c"]
    before = decisions(world, 1)
    space.create(*(pod(name, container(core=60, memory=GiB)) for name in names))
    world.until(lambda: planned(world, space) == (3, [2]), 30, "the plan is two nodes")
    placed = world.until(lambda: [name for name in names if where(space, name)][1:] and
                         [name for name in names if where(space, name)], MADE, "two pods on a node")
    (waiting,) = set(names) - set(placed)
    (made,) = nodes(world)
    world.until(lambda: decisions(world, 1) >= before + 2, 40, "Karpenter has planned for the third pod alone")
    assert "no GPU has enough free compute" in space.unschedulable(waiting)
    assert nodes(world) == [made] and len(world.api.get(CLAIMS)["items"]) == 1 and planned(world, space) == (1, [1])
    space.delete(*names)
    world.until(lambda: not nodes(world), GONE, "the empty node is gone")


def test_each_name_has_a_sum_of_its_own(world, space, full):
    """The cards are taken under Aliquot's names: under another dialect's, Karpenter counts them as free."""
    space.create(pod("a", container(resources={QGPU_CORE: "40", QGPU_MEMORY: "10"})))
    space.event("a", f"Nominated: .*node/{world.cluster.node}")
    assert not world.api.get(CLAIMS)["items"] and planned(world, space) == (1, [1])
