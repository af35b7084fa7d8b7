# SPDX-License-Identifier: Apache-2.0
"""Preemption by priority: only the cheapest victims are evicted, and the share is for the preemptor."""

import contextlib

import pytest

import kit
from cluster import api as kube
from kit import assignment_of, check_no_share_twice, container, is_running, pod

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PRIORITIES = {"low": 100, "mid": 200, "high": 1000}


@pytest.fixture(scope="module")
def classes(world):
    """{"low": name of a PriorityClass, ...}"""
    names = {word: kit.new_name(word) for word in PRIORITIES}
    for word, name in names.items():
        world.api.create(CLASSES, {"metadata": {"name": name}, "value": PRIORITIES[word]})
    yield names
    for name in names.values():
        world.api.delete(f"{CLASSES}/{name}")


@pytest.fixture
def make(classes):
    def pod_of(name, priority, core, labels=None, requests=None, **spec):
        main = container(core=core) if core else container()
        if requests:
            main.setdefault("resources", {})["requests"] = requests
        body = pod(name, main, priorityClassName=classes[priority], **spec)
        body["metadata"]["labels"] = labels or {}
        return body
    return pod_of


@pytest.fixture
def budget(space):
    """Makes a PodDisruptionBudget: of the pods with that label, so many must stay."""
    path = f"/apis/policy/v1/namespaces/{space.name}/poddisruptionbudgets"

    def made(name, keep):
        space.api.create(path, {"metadata": {"name": name}, "spec": {
            "minAvailable": keep, "selector": {"matchLabels": {"budget": name}}}})

        def counted(seen):
            status = (seen or {}).get("status", {})
            return status.get("observedGeneration") and status.get("currentHealthy", 0) >= keep
        space.api.wait(path, name, counted, 30, f"budget {name} counted")
        return lambda: space.api.delete(f"{path}/{name}")
    return made


def card_of(seen):
    return assignment_of(seen)["main"][0]["uuid"]


def undisturbed(space, pods):
    for before in pods:
        now = space.get(before["metadata"]["name"])
        assert now["metadata"]["uid"] == before["metadata"]["uid"]
        assert "deletionTimestamp" not in now["metadata"], now["metadata"]["name"]
        assert is_running(now) and all(s["restartCount"] == 0 for s in now["status"]["containerStatuses"])


def goes(space, before, timeout=kit.START):
    """Until the pod is being deleted, or gone already."""
    name = before["metadata"]["name"]
    space.wait(name, lambda s: s is None or "deletionTimestamp" in s["metadata"], timeout, f"pod {name} evicted")


def nominated(events, name, node):
    for _, seen in events:
        if seen["metadata"]["name"] == name and seen["status"].get("nominatedNodeName") == node:
            return
    raise AssertionError("unreachable")


def test_cheapest_victim_goes(world, space, make):
    """Of two cards full of lower pods: one that suffices, of the lowest priority; one who does not help stays, and
    no smaller pod takes the share while the victim ends."""
    most = space.start(make("most", "mid", 90))
    victim = space.start(make("victim", "low", 50))
    other = space.start(make("other", "mid", 50))
    tiny = space.start(make("tiny", "low", 10))
    assert card_of(tiny) == card_of(most) != card_of(victim) == card_of(other)
    space.create(make("late", "low", 50))
    space.unschedulable("late")
    with contextlib.closing(space.api.watch(space.path, kit.START)) as events:
        next(events)        # from here on nothing is missed: it is nominated only until the victim has ended
        space.create(make("high", "high", 50))
        nominated(events, "high", world.cluster.node)
    goes(space, victim)
    high = space.running("high")
    assert card_of(high) == card_of(victim)
    undisturbed(space, [most, other, tiny])
    check_no_share_twice([high, most, other, tiny])
    assert not space.get("late")["spec"].get("nodeName")
    assert "victim" in space.event("high", "^Preempting: ")


def test_budget_is_kept(space, make, budget):
    """A budget's pod is passed over; when all are counted, the pod waits until the budget allows it."""
    one = space.start(make("one", "low", 100, {"budget": "first"}))
    two = space.start(make("two", "mid", 100, {"budget": "second"}))
    drop_first, drop_second = budget("first", 1), budget("second", 1)
    space.create(make("high", "high", 60))
    assert "no GPU has enough free" in space.unschedulable("high")
    undisturbed(space, [one, two])
    drop_second()       # of the two, the one with the higher priority is the only one that may go
    goes(space, two)
    high = space.running("high")
    assert card_of(high) == card_of(two)
    undisturbed(space, [one])
    drop_first()


def test_shortage_that_kube_scheduler_sees(world, space, make):
    """It finds victims for the CPU and asks which the GPUs need beside."""
    node = world.api.get(kube.core("nodes", name=world.cluster.node))
    cpu = _millis(node["status"]["allocatable"]["cpu"])
    share = {"cpu": f"{cpu * 6 // 10}m"}
    hungry = space.start(make("hungry", "low", 0, requests=share))
    halves = space.start_all([make(f"half-{i}", "low" if i == 2 else "mid", 50) for i in range(4)])
    space.create(make("high", "high", 50, requests=share))
    goes(space, hungry)
    goes(space, halves[2])
    high = space.running("high")
    assert card_of(high) == card_of(halves[2])
    undisturbed(space, halves[:2] + halves[3:])


def test_scheduler_killed_while_victims_end(world, space, make):
    """What was begun is read from the pods: no further pod is evicted. No other pod wants the share: when the kill ends an
    answer half way, kube-scheduler takes the nomination back, and then the first pod gets it (docs/preemption.md)."""
    pods = space.start_all([make(f"half-{i}", "low", 50) for i in range(4)])
    space.create(make("high", "high", 50))
    names = {p["metadata"]["name"]: p for p in pods}
    victim = _first_deleted(space, names)
    # It takes back the nomination of a pod that it filters while no replica answers, and then nothing tells what was begun for it:
    # it is not to ask meanwhile.
    with world.kube_scheduler_stopped():
        before = world.scheduler.kill()
        world.scheduler.wait_restarted(before)
    high = space.running("high", 60)
    assert card_of(high) == card_of(names.pop(victim))
    undisturbed(space, names.values())
    check_no_share_twice([high, *names.values()])


def _first_deleted(space, names):
    with contextlib.closing(space.api.watch(space.path, kit.START)) as events:
        for kind, seen in events:
            name = seen["metadata"]["name"]
            if name in names and (kind == "DELETED" or "deletionTimestamp" in seen["metadata"]):
                return name
    raise AssertionError("unreachable")


def _millis(quantity):
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000
