# SPDX-License-Identifier: Apache-2.0
"""`aliquot doctor` on a real cluster while something is broken, and afterwards: a line is wrong with its remedy, and well again when
the thing is mended. Each other line is broken in tests/cli/test_doctor.py, or where its cause is tested."""

import contextlib
import time

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from kit import SYSTEM, GiB, container, pod
from test_forgery import no_policies  # noqa: F401 (a fixture)

AGENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets/aliquot-agent"
LABEL = "feature.node.kubernetes.io/pci-10de.present"
NOWHERE = "example.com/nowhere"


@contextlib.contextmanager
def mended(world, *checks):
    """What the block breaks is mended at its end: then the checks find nothing wrong."""
    def well():
        found = world.doctor()
        return all(found[check, "ok"] and not found[check, "wrong"] for check in checks)
    world.until(well, kit.START, f"{checks} well before", pause=1)
    yield
    world.until(well, 60, f"{checks} well again", pause=1)


def wrong(world, check, words):
    """Waits until doctor finds it; returns the remedy."""
    def found():
        return [remedy for text, remedy in world.doctor()[check, "wrong"].items() if words in text]
    (remedy,) = world.until(found, kit.START, f"doctor finds {words!r}", pause=0.5)
    return remedy


@pytest.fixture
def holder(space):
    """A pod with a share, by which placing is known to work."""
    return space.start(pod("holder", container(core=10, memory=GiB)))


def scale(world, replicas):
    world.cluster.kubectl("-n", SYSTEM, "scale", "deployment/aliquot-scheduler", f"--replicas={replicas}")


def test_no_scheduler_and_no_key(world, holder):
    """The next scheduler writes the public key again."""
    with mended(world, "scheduler", "signing key", "placing"):
        scale(world, 0)
        try:
            assert "describe pods" in wrong(world, "scheduler", "no pod of aliquot-scheduler")
            world.api.delete(kube.core("configmaps", SYSTEM, "aliquot-signing"))
            assert "rollout restart" in wrong(world, "signing key", "ConfigMap aliquot-signing is missing")
        finally:
            scale(world, 2)


def test_no_agent_on_a_node_with_gpus(world):
    node = kube.core("nodes", name=world.cluster.node)
    labels, selector = {LABEL: "true"}, {NOWHERE: "true"}
    with mended(world, "agents", "drivers", "versions"):
        world.api.patch(node, {"metadata": {"labels": labels}})
        world.api.patch(AGENTS, {"spec": {"template": {"spec": {"nodeSelector": selector}}}})
        try:
            assert "nodeSelector" in wrong(world, "agents", f"node {world.cluster.node} has GPUs and no agent")
        finally:
            world.api.patch(AGENTS, {"spec": {"template": {"spec": {"nodeSelector": dict.fromkeys(selector)}}}})
            aliquot.wait_agents(world.cluster)
            world.wait_tokens()
            world.api.patch(node, {"metadata": {"labels": dict.fromkeys(labels)}})


def test_a_driver_that_does_not_answer(world):
    with mended(world, "drivers"):
        world.aliquot("sim", "inject", "hang", "nvml")
        try:
            assert "nvidia-smi" in wrong(world, "drivers", "the GPU driver does not answer")
        finally:
            world.aliquot("sim", "inject", "release")
            aliquot.wait_gpus(world.cluster, 2)


def test_a_clock_that_is_wrong(world):
    """As the node's Lease shows it, which its kubelet renews."""
    ahead = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(time.time() + 3600))
    with mended(world, "clocks"):
        world.cluster.stop("kubelet")
        try:
            world.api.patch(f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{world.cluster.node}",
                            {"spec": {"renewTime": ahead}})
            assert "synchronize the clocks" in wrong(world, "clocks", f"node {world.cluster.node} is 3")
        finally:
            world.cluster.start("kubelet")
            world.cluster.wait_node_ready()
            world.wait_tokens()


def test_no_admission(world, no_policies):  # noqa: F811 (a fixture)
    assert "apply deploy/base" in wrong(world, "admission", "is not refused")
