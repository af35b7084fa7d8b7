# SPDX-License-Identifier: Apache-2.0
"""What holds a pod although there is room: quotas, gangs and reservations; and what people are told about it."""

import json
import pathlib

import fastjsonschema
import pytest

from kit import (CORE, MEMORY, QGPU_CORE, QGPU_MEMORY, SLOT, GiB, assignment_of, check_no_share_twice, container,
                 new_name, pod)
from cluster import api as kube
from cluster.api import ApiError

RESERVATIONS = "/apis/elasticgpu.io/v1alpha1/elasticgpureservations"
SCHEMAS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas"
QUOTAS = "/apis/elasticgpu.io/v1alpha1/namespaces/{}/elasticgpuquotas"


def gang(name, size, core=50, **annotations):
    notes = {"elasticgpu.io/gang": "train", "elasticgpu.io/gang-size": str(size)}
    return pod(name, container(core=core, memory=4 * GiB), annotations=dict(notes, **annotations))


def set_quota(space, **spec):
    path = QUOTAS.format(space.name)
    space.api.create(path, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUQuota",
                            "metadata": {"name": "quota"}, "spec": spec})
    return path


def refuses(space, body):
    """Whether a quota is in the way; the API server learns of a quota, and of what it counts, only in time."""
    try:
        space.api.create(space.path, body, dryRun="All")
    except ApiError as error:
        return "exceeded quota" in str(error)
    return False


def test_kubernetes_counts_native_names(world, space):
    """ResourceQuota needs no help of ours for elasticgpu.io names, the carrier among them."""
    space.api.create(kube.core("resourcequotas", space.name), {
        "metadata": {"name": "gpu"},
        "spec": {"hard": {"requests." + CORE: "50", "requests." + MEMORY: "12Gi", "requests." + SLOT: "1"}}})
    world.until(lambda: refuses(space, pod("probe", container(core=60))), 30, "the API server counts the quota")
    space.create(pod("a", container(core=40, memory=4 * GiB)))
    for name, share in (("core", dict(core=20, memory=GiB)), ("memory", dict(core=5, memory=9 * GiB))):
        with pytest.raises(ApiError, match="exceeded quota"):
            space.create(pod(name, container(**share)))
    space.create(pod("slot", container(memory=GiB)))
    with pytest.raises(ApiError, match="exceeded quota.*slot"):
        space.create(pod("slots", container(memory=GiB)))


def test_quota_over_dialects(world, space):
    """One quota over two dialects; who is held is told so, and starts by itself when there is room in it."""
    path = set_quota(space, max={CORE: "60", MEMORY: "40Gi"})
    with pytest.raises(ApiError, match="max must not be less than guaranteed"):
        set_quota(space, guaranteed={CORE: "61"}, max={CORE: "60"})
    space.start(pod("qgpu", container(resources={QGPU_CORE: "40", QGPU_MEMORY: "10"})))
    space.create(pod("held", container(core=30, memory=GiB)))
    assert f"namespace {space.name} uses 40 of 60 {CORE}, and this pod asks 30" in space.unschedulable("held")
    (planned,) = json.loads(world.aliquot("plan", "--capacity", "-n", space.name, "-o", "json"))["pods"]
    assert (planned["state"], planned["reason"]) == ("NotCounted", "a quota holds it")
    told = world.aliquot("explain", "-n", space.name, "held")
    assert "Gated: quota exceeded" in told and "held wants" not in told
    assert "main wants 30 % compute and 1 GiB memory of one GPU" in told
    assert "(fits)" in told, told
    used = space.api.wait(path, "quota", lambda seen: (seen or {}).get("status", {}).get("used", {}).get(CORE) == "40",
                          30, "the quota's status")["status"]["used"]
    assert used == {CORE: "40", MEMORY: "10Gi", "elasticgpu.io/gpu": "1"}
    space.begin_delete("qgpu")
    space.running("held")


def test_gang_of_three(world, space):
    """Two wait for the third and hold nothing; then all run."""
    space.create(gang("a", 3), gang("b", 3))
    for name in "ab":
        assert "of 3 pods have arrived" in space.unschedulable(name)
    assert not world.allocated()
    whole = space.start(pod("single", container(core=100)))      # goes in between
    space.create(gang("c", 3))
    assert "do not fit together yet" in space.event("c", "do not fit together yet")
    assert not any(assignment_of(space.get(name)) for name in "abc")
    space.begin_delete("single")
    members = [space.running(name, 60) for name in "abc"]
    check_no_share_twice(members)
    world.until(lambda: whole["metadata"]["uid"] not in world.allocated(), 30, "the GPU objects without the first pod")
    assert whole["metadata"]["name"] not in world.aliquot("inspect", "pod", "-n", space.name)


@pytest.fixture
def controller(space):
    """An owner for pods, as the controller that recreates them."""
    path = kube.core("configmaps", space.name)
    made = space.api.create(path, {"metadata": {"name": "controller"}})
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": "controller", "uid": made["metadata"]["uid"],
            "controller": True}


def test_plan_of_moves(world, space, controller):
    """Two pods that are each on a card of their own, where one card would do."""
    def owned(name, core):
        body = pod(name, container(core=core, memory=GiB))
        body["metadata"]["ownerReferences"] = [controller]
        return body
    most, filler = space.start(owned("most", 60)), space.start(owned("filler", 40))
    rest = space.start(owned("rest", 40))
    assert assignment_of(most)["main"][0]["uuid"] == assignment_of(filler)["main"][0]["uuid"] \
        != assignment_of(rest)["main"][0]["uuid"]
    all_of_them = {seen["metadata"]["uid"] for seen in (most, filler, rest)}
    world.until(lambda: all_of_them <= world.allocated().keys(), 30, "the GPU objects with all pods")
    assert world.aliquot("defrag", "--plan").strip() == "No moves free a card."
    space.end("filler")
    world.until(lambda: filler["metadata"]["uid"] not in world.allocated(), 30, "the GPU objects without the pod")
    plan = json.loads(world.aliquot("defrag", "--plan", "--json"))
    [move] = plan["moves"]
    assert plan["emptied"] == 1 and move["pod"] in ("most", "rest") and move["namespace"] == space.name
    assert sorted(move["from"]["gpus"] + move["to"]["gpus"]) == [g["metadata"]["name"] for g in world.gpus()]


def test_inspect_and_explain(world, space):
    small = space.start(pod("small", container(core=60, memory=30 * GiB)))
    space.create(pod("large", container(core=200)))
    space.unschedulable("large")
    node = world.gpus()[0]["spec"]["nodeName"]
    told = world.aliquot("explain", "large", "-n", space.name)
    assert f"Pod {space.name}/large is pending." in told and "main wants 2 whole GPUs" in told
    assert "40 % 50 GiB" in told and "100 % 80 GiB" in told and "kube-scheduler: Unschedulable" in told
    world.until(lambda: small["metadata"]["uid"] in world.allocated(), 30, "the GPU objects with the pod")
    told = world.aliquot("explain", "small", "-n", space.name)
    assert f"is on node {node}" in told and "not shared" in told and "30 GiB" in told
    assert f"{space.name}/small (main)" in world.aliquot("inspect", "node", node)

    def told_by_scheduler():        # nothing without a leader, as after another replica has taken over
        told = json.loads(world.aliquot("explain", "large", "-n", space.name, "--json"))
        return told if told["scheduler"] else None
    told = world.until(told_by_scheduler, 60, "what the scheduler says of the pod")
    assert told["scheduler"]["nodes"][0]["name"] == node and not told["scheduler"]["nodes"][0]["fits"]
    assert "whole GPUs" in told["scheduler"]["wants"] and told["kubeScheduler"]
    fastjsonschema.compile(json.loads((SCHEMAS / "explain.json").read_text()))(told)
    assert told["scheduler"]["ends"] == {"node": node, "pods": [{"namespace": space.name, "name": "small"}]}
    text = world.aliquot("explain", "large", "-n", space.name)
    assert f"It would fit on node {node} if this pod ended: {space.name}/small.\n" in text and "It waits since 20" in text
    cards = json.loads(world.aliquot("gpus", "-n", space.name, "-o", "json"))
    fastjsonschema.compile(json.loads((SCHEMAS / "cards.json").read_text()))(cards)
    [[card]] = [[g for g in n["gpus"]] for n in cards["nodes"]]
    assert cards["nodes"][0]["agentAnswers"] and card["use"]["memory"] >= 0 and card["holders"][0]["use"]["memoryState"] == "Fine"
    waits = world.aliquot("top", "--once", "--view", "waiting", "-n", space.name)
    assert f"{space.name}/large" in waits and "2 whole" in waits and "nodes are available" in waits
    assert f"{space.name}/small (main)" in world.aliquot("top", "--once", "--view", "containers")
    assert "30/80" in world.aliquot("inspect", "memory") and "30/160" in world.aliquot("inspect", "memory")


@pytest.fixture
def reservation(world, space):
    """60 % of a card for the queue `fast` of the namespace."""
    name = new_name("r")
    world.api.create(RESERVATIONS, {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUReservation", "metadata": {"name": name},
        "spec": {"resources": {CORE: "60"}, "owners": [{"namespace": space.name, "queue": "fast"}]}})
    yield name
    world.api.delete(RESERVATIONS + "/" + name)


def phase_is(phase, user=None):
    def told(seen):
        status = (seen or {}).get("status", {})
        return status.get("phase") == phase and (not user or user in status.get("usedBy", []))
    return told


def test_reservation(world, space, reservation):
    """Others do not get it, its owner does, and in time it is free again."""
    status = world.api.wait(RESERVATIONS, reservation, phase_is("Held"), 30)["status"]
    assert status["node"] == world.gpus()[0]["spec"]["nodeName"]
    world.wait_held(f"reservation {reservation}", 60)
    space.create(pod("both", container(core=200)))
    space.unschedulable("both")
    told = world.aliquot("explain", "both", "-n", space.name)
    assert f"40 % 32 GiB (60 % 48 GiB kept for reservation {reservation})" in told
    space.delete("both")
    space.start(pod("one", container(core=100)))
    space.create(pod("other", container(core=50)))
    space.unschedulable("other")
    owner = pod("owner", container(core=60))
    owner["metadata"]["labels"] = {"elasticgpu.io/queue": "fast"}
    seen = space.start(owner)
    assert assignment_of(seen)["main"][0]["uuid"] in status["assignment"]
    world.api.wait(RESERVATIONS, reservation, phase_is("Held", f"{space.name}/owner"), 30)
    with pytest.raises(ApiError, match="resources cannot be changed"):
        world.api.patch(f"{RESERVATIONS}/{reservation}", {"spec": {"resources": {CORE: "70"}}})
    world.api.patch(f"{RESERVATIONS}/{reservation}", {"spec": {"expires": "2020-01-01T00:00:00Z"}})
    world.api.wait(RESERVATIONS, reservation, phase_is("Expired"), 30)
    world.until(lambda: not any(g["status"].get("held") for g in world.gpus()), 30, "nothing is shown as held")
    space.begin_delete("owner", "one")
    space.running("other")
