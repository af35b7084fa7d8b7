# SPDX-License-Identifier: Apache-2.0
"""Two real nodes, each with kubelet, container runtime, agent and cards of its own, under deploy/own-scheduler: who serves which
cards, where pods go, and the loss of the node on which the leading pair of schedulers runs."""

import json
import secrets
import time

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import SYSTEM, GiB, assignment_of, check_no_share_twice, check_view, condition, container, holders, is_running, pod
from test_own_scheduler import OWN, holder, named, pairs

CARDS = 2           # of each node
TAKEOVER = 20       # seconds from the loss of the leader's node until the next pod with a share is bound
PROGRAMS = ["tests/e2e/probe"]


@pytest.fixture(scope="module")
def world(build):
    with Cluster("two-" + secrets.token_hex(2), stock_scheduler=True, second_node=True) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=CARDS, programs=[build / p for p in PROGRAMS],
                        deploy=aliquot.with_components(cluster, "metrics-api"))
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
    return pod(name, container(**share), **kit.on(node))


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


def planned(world):
    """(pods that need cards, {kind of node: what the plan says of it})"""
    document = json.loads(world.aliquot("plan", "--capacity", "-o", "json"))
    return document["needing"], {(m["cardsPerNode"], m["model"]): m for m in document["machines"]}


def test_the_nodes_of_a_plan(world, space, nodes):
    """As many nodes as are planned let the waiting pods start. Of shares of 60 % a card takes one, though by the sum of
    the node a third one fits on two cards."""
    first, second = nodes
    model = world.gpus()[0]["spec"]["model"]
    world.cluster.kubectl("cordon", second)
    try:
        names = [f"share-{i}" for i in range(4)]
        space.create(*[pod(name, container(core=60)) for name in names])
        needing, kinds = world.until(lambda: planned(world) if planned(world)[0] == 2 else None, 60, "two pods wait")
        plan = kinds[CARDS, model]
        assert (plan["newNodes"], plan["newCards"], plan["starts"]) == (1, CARDS, 2) and plan["left"]["core"] == 80
        placed = [seen["spec"].get("nodeName") for seen in map(space.get, names)]
        assert sorted(placed, key=str) == sorted([first, first, None, None], key=str)
    finally:
        world.cluster.kubectl("uncordon", second)
    running = [space.running(name) for name in names]
    assert sorted(seen["spec"]["nodeName"] for seen in running) == sorted([first, first, second, second])
    assert planned(world)[0] == 0


def evict(world, seen):
    name = seen["metadata"]["name"]
    world.api.create(kube.pods(SYSTEM, name) + "/eviction", {"apiVersion": "policy/v1", "kind": "Eviction",
                                                             "metadata": {"name": name, "namespace": SYSTEM}})


def test_one_pair_stays_when_nodes_are_drained(world, nodes):
    def apart():
        found = {seen["spec"]["nodeName"]: seen for seen in pairs(world)}
        return list(found.values()) if set(found) == set(nodes) else []
    first, second = world.until(apart, 60, "a pair on each node")
    evict(world, first)
    with pytest.raises(kube.ApiError) as refused:
        evict(world, second)
    assert refused.value.code == 429 and "disruption budget" in str(refused.value), refused.value
    world.until(lambda: {seen["metadata"]["name"] for seen in apart()} - {first["metadata"]["name"], second["metadata"]["name"]},
                60, "a new pair on the first one's node")


def leads(world, node):
    """Whether the pair of schedulers on that node leads, in both Leases, and the other one stands by."""
    places = {seen["metadata"]["name"]: seen["spec"]["nodeName"] for seen in pairs(world)}
    return len(set(places.values())) == 2 and {places.get(holder(world, f"aliquot-{lease}"))
                                               for lease in ("kube-scheduler", "scheduler")} == {node}


def make_leader(world, node):
    """By the end of the pair that leads elsewhere, while kubelet there cannot start it again."""
    pair = holder(world, "aliquot-kube-scheduler")
    seen = world.api.get(kube.pods(SYSTEM, pair))
    if seen["spec"]["nodeName"] != node:
        world.cluster.stop("kubelet")
        for status in seen["status"]["containerStatuses"]:
            world.ctr("tasks", "kill", "-s", "SIGTERM", status["containerID"].partition("://")[2])
        world.until(lambda: holder(world, "aliquot-kube-scheduler") not in ("", pair), 60, f"the pair on {node} leads")
        world.cluster.start("kubelet")
        world.until(lambda: started_again(world, seen), 60, f"{pair} has started again")
    world.until(lambda: leads(world, node), 60, f"the pair on {node} leads, and the other one stands by")


def started_again(world, before):
    """Until kubelet has seen that its containers ended, it says what was true before."""
    now = world.api.get(kube.pods(SYSTEM, before["metadata"]["name"]))
    counts = [{one["name"]: one["restartCount"] for one in seen["status"]["containerStatuses"]} for seen in (before, now)]
    return all(counts[1][name] > count for name, count in counts[0].items()) and condition(now, "Ready").get("status") == "True"


def takeover(world, lost, get, began):
    """{what: seconds since then}, until the pod runs that get() gives."""
    left = {f"Lease aliquot-{lease}": lambda lease=lease: world.api.get(kube.pods(SYSTEM, holder(world, "aliquot-" + lease)))
            ["spec"]["nodeName"] != lost for lease in ("kube-scheduler", "scheduler")}
    left |= {"next pod bound": lambda: get()["spec"].get("nodeName"), "next pod runs": lambda: is_running(get())}
    took = {}

    def all_seen():
        for what in [what for what, check in left.items() if check()]:
            took[what] = time.monotonic() - began
            del left[what]
        return not left
    world.until(all_seen, 60, "the other pair takes over", pause=0.1)
    return took


def is_unknown(node):
    return condition(node, "Ready").get("status") == "Unknown"


def endpoints(world):
    """Addresses of the Service of the metrics APIs that get requests."""
    slices = world.api.get(f"/apis/discovery.k8s.io/v1/namespaces/{SYSTEM}/endpointslices",
                           labelSelector="kubernetes.io/service-name=aliquot-metrics-api")["items"]
    return {address for one in slices for each in one.get("endpoints") or [] if each["conditions"].get("ready")
            for address in each["addresses"]}


def test_namespaces_go_while_a_replicas_node_is_a_black_hole(world, nodes):
    """Packets to one endpoint of the metrics APIs are lost. The other replica takes it out of the endpoints."""
    here, lost = nodes
    machine = world.cluster.second
    make_leader(world, lost)
    replicas = {seen["spec"]["nodeName"]: seen for seen in pairs(world)}
    addresses = {node: seen["status"]["podIP"] for node, seen in replicas.items()}
    world.until(lambda: endpoints(world) == set(addresses.values()), 60, "both replicas are endpoints")
    names = {node: seen["metadata"]["name"] for node, seen in replicas.items()}
    world.until(lambda: f"replica {names[lost]} answers" in kit.Space(world, SYSTEM).logs(names[here], "scheduler"), 60,
                "a replica that has not answered yet is not taken out")
    for name in ("v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"):
        world.api.wait("/apis/apiregistration.k8s.io/v1/apiservices", name,
                       lambda seen: condition(seen, "Available").get("status") == "True", 60, f"{name} available")
    name = kit.new_name("gone")
    world.api.create(kube.core("namespaces"), {"metadata": {"name": name}})
    world.api.wait(kube.core("serviceaccounts", name), "default", bool, 30)
    began, took = time.monotonic(), {}
    machine.lose()
    world.api.delete(kube.core("namespaces", name=name))
    left = {"out of the endpoints": lambda: endpoints(world) == {addresses[here]},
            "namespace gone": lambda: not world.api.exists(f"/api/v1/namespaces/{name}")}

    def all_seen():
        for what in [what for what, check in left.items() if check()]:
            took[what] = time.monotonic() - began
            del left[what]
        return not left
    try:
        world.until(all_seen, 60, "a namespace goes", pause=0.1)
    finally:
        print("after the loss of a replica's node: " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items()))
        machine.boot()
        aliquot.start_simulator(machine, str(world.build), CARDS)
        machine.join()
    assert took["out of the endpoints"] <= 20 and took["namespace gone"] <= 30, took
    world.until(lambda: len({seen["spec"]["nodeName"] for seen in pairs(world)}) == 2, 90, "a pair on each node")
    for node in nodes:
        world.until(lambda node=node: len(cards_of(world, node)) == CARDS, 60, f"the cards of {node}")


def test_the_leaders_node_is_lost(world, space, nodes):
    """The other pair takes over. What the lost node had given out stays given out, and nothing new goes there until it is back,
    installed anew: then its cards are given to the pods that wait."""
    here, lost = nodes
    machine = world.cluster.second
    make_leader(world, lost)
    there = space.start_all([on(lost, f"there-{i}", core=100) for i in range(CARDS)])
    kept = [space.start(pod("kept", container(core=50)))]

    began = time.monotonic()
    machine.lose()
    space.create(pod("next", container(core=50)))
    took = takeover(world, lost, lambda: space.get("next"), began)
    print("after the loss of the leader's node: " + ", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items()))
    assert took["next pod bound"] <= TAKEOVER       # how long its container takes to start depends on the machine's other work
    kept.append(space.get("next"))

    world.api.wait(kube.core("nodes"), lost, is_unknown, 60, f"{lost} missed")
    world.until(lambda: {gpu["status"]["state"] for gpu in world.gpus() if gpu["spec"]["nodeName"] == lost} == {"Unknown"}, 30,
                "its cards Unknown")
    kept += space.start_all([pod(f"later-{i}", container(core=50)) for i in range(2)])
    assert {seen["spec"]["nodeName"] for seen in kept} == {here}
    check_no_share_twice(there + kept)
    space.create(pod("excess", container(core=50)), on(lost, "nowhere", core=10))
    for name in ("excess", "nowhere"):
        space.unschedulable(name)
    assert not space.get("nowhere")["spec"].get("nodeName")

    for seen in there:      # an operator gives them up; no kubelet confirms their end. The Node stays, as of before
        world.api.delete(f"{space.path}/{seen['metadata']['name']}", gracePeriodSeconds=0)
    machine.boot()
    aliquot.start_simulator(machine, str(world.build), CARDS)
    machine.join()
    for name in ("excess", "nowhere"):
        seen = space.running(name, 90)
        assert seen["spec"]["nodeName"] == lost
        check_view(space, seen)
