# SPDX-License-Identifier: Apache-2.0
"""The second pass of some end-to-end tests: on a cluster whose kube-scheduler and kubelet keep the intervals that Kubernetes
ships (tests/cluster/README.md). A pod that was refused is tried again after up to ten seconds, and what the agent registers
is on the Node after up to ten."""

import secrets

import kit
import pytest
from cluster import aliquot
from cluster.cluster import Cluster
from test_bad_days_scheduler import (between, test_killed_between_filter_and_bind,  # noqa: F401 (run here)
                                     test_killed_in_the_middle_of_many, test_the_answer_of_bind_is_lost)
from test_good_days import test_pending_with_reason_then_starts_by_itself, test_three_pods_share_one_card  # noqa: F401

pytestmark = [pytest.mark.foreign, pytest.mark.long]


@pytest.fixture(scope="module")
def world(build):
    with Cluster("shipped-" + secrets.token_hex(2), shipped_intervals=True) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe"])
        installed = kit.World(cluster, build)
        installed.wait_tokens(60)
        yield installed
        installed.wait_cleared()


def test_the_intervals_are_those_of_kubernetes(world):
    configuration = world.cluster.on_node(["cat", "/etc/kubernetes/kube-scheduler-configuration.yaml"]).stdout
    assert "Backoff" not in configuration
    kubelet = world.cluster.on_node(["cat", "/etc/kubernetes/kubelet.yaml"]).stdout
    assert "nodeStatusUpdateFrequency" not in kubelet and "crashLoopBackOff" not in kubelet
