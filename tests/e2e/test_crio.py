# SPDX-License-Identifier: Apache-2.0
"""Shares under CRI-O with conmon, in place of containerd, once with runc and once with crun, which then run every container
of the cluster: the agent's, too."""

import secrets

import kit
import pytest
from cluster import aliquot
from cluster.cluster import Cluster
from kit import OUT_OF_MEMORY, GiB, check_limited, container, pod

pytestmark = [pytest.mark.foreign, pytest.mark.long]


@pytest.fixture(scope="module", params=["runc", "crun"])
def world(build, request):
    with Cluster("crio-" + secrets.token_hex(2), runtime="crio", oci_runtime=request.param) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe"])
        installed = kit.World(cluster, build)
        installed.wait_tokens(60)
        yield installed
        installed.wait_cleared()


def test_the_runtime_is_cri_o(world):
    assert "cri-o://" in world.cluster.kubectl("get", "nodes", "-o", "wide")
    status = world.agent.status(world.agent.acting())
    name, oci = status["containerID"].partition("://")[2], world.cluster.oci_runtime
    assert name in world.cluster.on_node([oci, "--root", f"/run/{oci}", "list"]).stdout


def test_a_share_is_limited_and_kept_when_its_container_restarts(world, space):
    seen = space.start(pod("share", container(core=30, memory=2 * GiB)))
    check_limited(space, seen, 2 * GiB)
    world.kill_container(*seen["status"]["containerStatuses"])
    again = space.wait("share", lambda s: kit.is_running(s) and s["status"]["containerStatuses"][0]["restartCount"] == 1)
    check_limited(space, again, 2 * GiB)
    assert kit.assignment_of(again) == kit.assignment_of(seen)


def test_kubelet_restarts(world, space):
    before = space.start(pod("before", container(core=10, memory=2 * GiB)))
    world.cluster.restart("kubelet")
    check_limited(space, space.start(pod("after", container(core=10, memory=3 * GiB))), 3 * GiB)
    check_limited(space, before, 2 * GiB)


def test_the_agent_is_killed(world, space):
    """A process that holds memory goes on, the limit with it; the next agent knows the share, and gives new ones."""
    before = space.start(pod("before", container(core=10, memory=2 * GiB)))
    with space.tenant(before) as tenant:
        assert tenant.alloc(GiB) == 0
        world.agent.wait_restarted(world.agent.kill())
        assert tenant.alloc(GiB) == OUT_OF_MEMORY
        world.until(lambda: kit.holders(world.usage())["before", "main"][0]["processes"] == 1, 30, "the share is known again")
    check_limited(space, space.start(pod("after", container(core=10, memory=3 * GiB))), 3 * GiB)
    check_limited(space, before, 2 * GiB)
