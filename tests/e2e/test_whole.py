# SPDX-License-Identifier: Apache-2.0
"""One node with a whole card, a card in time-sliced replicas and a card in shares, by the file of NVIDIA's device plugin."""

import secrets

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import CORE, GiB, container, pod

FILE = "/run/aliquot/node.yaml"
WHOLE, SLICE = "nvidia.com/whole", "nvidia.com/whole.shared"
PATTERNS = "version: v1\nresources: {gpus: [{pattern: '*', name: whole}]}\n"
SHARING = """
sharing:
  timeSlicing:
    renameByDefault: true
    failRequestsGreaterThanOne: true
    resources: [{name: whole, devices: [1], replicas: %d}]
"""
OURS = "aliquot: {cards: [{devices: [2], mode: share}]}\n"


def configure(cluster, text):
    cluster.on_node(["sh", "-c", f"mkdir -p /run/aliquot; cat > {FILE}.new; mv {FILE}.new {FILE}"], input=text)


@pytest.fixture(scope="module")
def machine(build, tmp_path_factory):
    manifests = aliquot.with_options(tmp_path_factory.mktemp("manifests") / "deploy", f"--config-file={FILE}")
    with Cluster("whole-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        configure(cluster, "version: v1\n")
        aliquot.install(cluster, str(build), gpus=3, programs=[build / "tests/e2e/probe"],
                        deploy=aliquot.manifests(cluster, manifests))
        installed = kit.World(cluster, build)
        installed.wait_tokens(60, 3)
        configure(cluster, PATTERNS + SHARING % 2 + OURS)
        wait_offered(installed, {WHOLE: 1, SLICE: 2, CORE: 100})
        yield installed
        installed.wait_cleared()


def wait_offered(machine, wanted):
    def offered(node):
        amounts = (node or {}).get("status", {}).get("allocatable", {})
        return {name: int(amounts.get(name, 0)) for name in wanted} == wanted
    machine.api.wait(kube.core("nodes"), machine.cluster.node, offered, 30, f"{wanted} in the node's allocatable")


def wait_shown(machine, cards, replicas):
    """What the Node shows of the names that aliquot-scheduler gives out, in kubelet's copy, too; None: nothing."""
    wanted = {name: str(n) for name, n in (("nvidia.com/gpu", cards), ("nvidia.com/gpu.shared", replicas)) if n is not None}

    def shown(node):
        status = (node or {}).get("status", {})
        return all({name: amounts[name] for name in ("nvidia.com/gpu", "nvidia.com/gpu.shared") if name in amounts} == wanted
                   for amounts in (status.get("capacity", {}), status.get("allocatable", {})))
    machine.api.wait(kube.core("nodes"), machine.cluster.node, shown, 30, f"the node shows {wanted}")


def uuids(machine):
    """By the index of the card."""
    return {g["spec"]["index"]: g["spec"]["uuid"] for g in machine.gpus()}


def one(resource, n=1):
    return container(resources={resource: str(n)})


def sees(room, seen):
    """{UUID: bytes} of the cards that CUDA shows in the container."""
    with room.tenant(seen) as tenant:
        answer = tenant.driver()
        assert answer["result"] == 0, answer
        return {d["uuid"]: d["total"] for d in answer["devices"]}


def test_a_whole_card_replicas_and_shares(machine, room):
    cards = uuids(machine)
    whole = room.start(pod("whole", one(WHOLE)))
    first = room.start(pod("first", one(SLICE)))
    second = room.start(pod("second", one(SLICE)))
    share = room.start(pod("share", container(core=30, memory=4 * GiB)))
    (card, total), = sees(room, whole).items()
    assert card == cards[0] and total > 4 * GiB
    # Time-slicing does not divide the memory.
    assert sees(room, first) == sees(room, second) == {cards[1]: total}
    kit.check_view(room, share)
    assert [d["uuid"] for d in kit.assignment_of(share)["main"]] == [cards[2]]
    holders = {dict(labels)["UUID"]: (dict(labels).get("namespace"), dict(labels).get("pod"), dict(labels).get("container"))
               for name, labels in machine.metrics() if name == "DCGM_FI_DEV_FB_USED"}
    assert holders[cards[0]] == (room.name, "whole", "main") and holders[cards[1]] == holders[cards[2]] == (None, None, None)
    # kube-scheduler counts what kubelet gives out, aliquot-scheduler the shares of the third card only.
    room.create(pod("third", one(SLICE)))
    assert f"Insufficient {SLICE}" in room.unschedulable("third")
    room.delete("first")
    assert sees(room, room.running("third")) == {cards[1]: total}
    room.create(pod("large", container(core=80)))
    assert room.unschedulable("large")


def test_two_replicas_for_a_container(machine, room):
    """failRequestsGreaterThanOne: kubelet refuses the pod, and its reason names the setting."""
    room.create(pod("two", one(SLICE, 2)))
    machine.until(lambda: room.get("two")["status"].get("phase") == "Failed", 30, "kubelet has refused the pod")
    assert "failRequestsGreaterThanOne" in room.get("two")["status"]["message"]


def test_a_card_changes_its_way_when_it_is_free(machine, room):
    """The replicas end before the card is whole; meanwhile it takes no pods, and the reason is on its object."""
    seen = room.start(pod("holder", one(SLICE)))
    configure(machine.cluster, PATTERNS + OURS)
    try:
        machine.until(lambda: any("have ended: 1 left" in g["status"].get("reason", "") for g in machine.gpus()), 20, "the reason")
        wait_offered(machine, {WHOLE: 1, SLICE: 0, CORE: 100})
        assert len(sees(room, seen)) == 1
        room.delete("holder")
        wait_offered(machine, {WHOLE: 2, SLICE: 0, CORE: 100})
    finally:
        configure(machine.cluster, PATTERNS + SHARING % 2 + OURS)
    wait_offered(machine, {WHOLE: 1, SLICE: 2, CORE: 100})


def test_a_whole_card_of_the_scheduler(machine, room):
    """Under the name that aliquot-scheduler reads as whole cards: it gives out the card, and no share of it."""
    configure(machine.cluster, "version: v1\naliquot: {cards: [{devices: [0], mode: whole}]}\n")
    try:
        wait_offered(machine, {WHOLE: 0, SLICE: 0, CORE: 300})
        machine.until(lambda: [g["spec"].get("wholeOnly") for g in machine.gpus()] == [True, False, False], 20, "wholeOnly")
        wait_shown(machine, None, None)  # parts of the other cards have the same name
        room.start_all([pod("a", container(core=80)), pod("b", container(core=80))])
        room.create(pod("c", container(core=30)))
        assert room.unschedulable("c")
        whole = room.start(pod("whole", one("nvidia.com/gpu")))
        assert list(sees(room, whole)) == [uuids(machine)[0]]
    finally:
        configure(machine.cluster, PATTERNS + SHARING % 2 + OURS)


def test_the_file_of_nvidia_unchanged(machine, room):
    """Replicas under the names that aliquot-scheduler reads: it gives them out, with their part of the memory as a limit."""
    plain = "version: v1\nsharing: {timeSlicing: {%sresources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"
    try:
        for more, resource in (("", "nvidia.com/gpu"), ("renameByDefault: true, ", "nvidia.com/gpu.shared")):
            configure(machine.cluster, plain % more)
            machine.until(lambda: [g["spec"].get("replicas") for g in machine.gpus()] == 3 * [{
                "count": 4, "resource": resource, "onePerContainer": False, "withCompute": False}], 20, "spec.replicas")
            wait_offered(machine, {WHOLE: 0, SLICE: 0, CORE: 300})
            wait_shown(machine, *(None if name != resource else 12 for name in ("nvidia.com/gpu", "nvidia.com/gpu.shared")))
            memory = machine.gpus()[0]["spec"]["memory"]
            pods = room.start_all([pod(f"replica-{i}", one(resource)) for i in range(12)])
            assert list(sees(room, pods[0]).values()) == [memory // 4]
            room.create(pod("more", one(resource)))
            assert room.unschedulable("more")  # and kubelet has refused none
            room.delete("more", *(f"replica-{i}" for i in range(12)))
    finally:
        configure(machine.cluster, PATTERNS + SHARING % 2 + OURS)
    wait_offered(machine, {WHOLE: 1, SLICE: 2, CORE: 100})
    wait_shown(machine, None, None)


def test_cards_that_are_only_whole(machine, room):
    """More of HAMi's shares than there are cards, from before: the name is shown when they have ended."""
    parts = room.start_all([pod(f"part-{i}", container(resources={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"}))
                            for i in range(4)])
    assert len({d["uuid"] for p in parts for d in kit.assignment_of(p)["main"]}) < len(machine.gpus())
    configure(machine.cluster, "version: v1\naliquot: {cards: [{devices: all, mode: whole}]}\n")
    try:
        machine.until(lambda: all(g["spec"].get("wholeOnly") for g in machine.gpus()), 20, "wholeOnly")
        room.start(pod("whole", one("nvidia.com/gpu")))
        room.delete("whole", *(f"part-{i}" for i in range(4)))
        wait_shown(machine, 3, None)
        room.start_all([pod(f"whole-{i}", one("nvidia.com/gpu")) for i in range(3)])
        room.create(pod("fourth", one("nvidia.com/gpu")))
        assert room.unschedulable("fourth")
        room.delete("fourth", *(f"whole-{i}" for i in range(3)))
    finally:
        configure(machine.cluster, PATTERNS + SHARING % 2 + OURS)
    wait_offered(machine, {WHOLE: 1, SLICE: 2, CORE: 100})
    wait_shown(machine, None, None)


def test_a_share_and_a_whole_card(machine, room):
    room.create(pod("both", container(core=10, resources={WHOLE: "1"})))
    room.event("both", "container main requests .* are not for one container", 60)
