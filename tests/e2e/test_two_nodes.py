# SPDX-License-Identifier: Apache-2.0
"""Two real nodes, each with kubelet, container runtime, agent and cards of its own, under deploy/own-scheduler: who serves which
cards, and where pods go."""

import json
import secrets

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import GiB, assignment_of, check_view, container, holders, pod
from test_own_scheduler import OWN, named

CARDS = 2           # of each node
PROGRAMS = ["tests/e2e/probe"]


@pytest.fixture(scope="module")
def world(build):
    with Cluster("two-" + secrets.token_hex(2), stock_scheduler=True, second_node=True) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=CARDS, programs=[build / p for p in PROGRAMS])
        installed = kit.World(cluster, build)
        installed.until(lambda: named(installed, container(core=10)) == OWN, 30, "pods are sent to the own scheduler")
        yield installed
        installed.wait_cleared()


@pytest.fixture
def nodes(world):
    return [machine.node for machine in world.cluster.nodes]


def cards_of(world, node):
    return {gpu["spec"]["uuid"] for gpu in world.gpus() if gpu["spec"]["nodeName"] == node}


def usage(world, node):
    return json.loads(kit.Part(world, "aliquot-agent", 9400, node).http("/usage"))


def on(node, name, **share):
    return pod(name, container(**share), nodeSelector={"kubernetes.io/hostname": node})


def uuids(seen):
    return {device["uuid"] for devices in assignment_of(seen).values() for device in devices}


def test_each_agent_serves_the_cards_of_its_node(world, nodes):
    own = [cards_of(world, node) for node in nodes]
    assert [len(cards) for cards in own] == [CARDS, CARDS] and not own[0] & own[1]
    assert [{gpu["uuid"] for gpu in usage(world, node)["gpus"]} for node in nodes] == own


def test_shares_of_both_nodes_at_once(world, space, nodes):
    pods = space.start_all([on(node, f"on-{node}", core=30, memory=8 * GiB) for node in nodes])
    for seen, node in zip(pods, nodes):
        assert seen["spec"]["nodeName"] == node and uuids(seen) <= cards_of(world, node)
        check_view(space, seen)
        with space.tenant(seen) as tenant:
            assert tenant.alloc(7 * GiB) == 0 and tenant.alloc(2 * GiB) == kit.OUT_OF_MEMORY
        name = seen["metadata"]["name"]
        assert list(holders(usage(world, node))) == [(name, "main")]


def test_pods_are_packed_or_spread(world, space, nodes):
    packed = [space.start(pod(f"packed-{i}", container(core=30))) for i in range(3)]
    assert len({seen["spec"]["nodeName"] for seen in packed}) == 1 and len(set().union(*map(uuids, packed))) == 1
    apart = space.start(pod("apart", container(core=10), annotations={"elasticgpu.io/placement-policy": "spread"}))
    assert {apart["spec"]["nodeName"], packed[0]["spec"]["nodeName"]} == set(nodes)
