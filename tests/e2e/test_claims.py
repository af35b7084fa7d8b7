# SPDX-License-Identifier: Apache-2.0
"""ElasticGPUs, claims and classes on the real cluster: as volumes and their claims, down to what a container sees."""

import contextlib
import json
import re

import pytest

import kit
from kit import (CARD, ApiError, GiB, assignment_of, check_no_share_twice, check_view, container, pod)
from cluster import api as kube

V1ALPHA1 = "/apis/elasticgpu.io/v1alpha1/"
V1ALPHA = "/apis/elasticgpu.io/v1alpha/"        # as the first examples of the Elastic GPU project spell it
EGPUS = V1ALPHA1 + "elasticgpus"
CLASSES = V1ALPHA1 + "elasticgpuclasses"
CLAIM_GUARD = "elasticgpu.io/claim-protection"
FIXED = ("qgpu-class", "gpushare-egpuclass")    # names of classes that stand as they are
GARBAGE = 90    # seconds in which Kubernetes has learned of a new kind, to delete or to count its objects


def claims_in(space, version=V1ALPHA1):
    return f"{version}namespaces/{space.name}/elasticgpuclaims"


def claim(name, core=10, memory="4Gi", **spec):
    return {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClaim", "metadata": {"name": name},
            "spec": dict({"resources": {"requests": {kit.CORE: core, kit.MEMORY: memory}}}, **spec)}


def with_claim(name, claim_name):
    return pod(name, container(), annotations={"egpuc.elasticgpu.io/main": claim_name})


@pytest.fixture
def classes(world):
    """Makes classes; takes them and what was made for them away again."""
    made = []

    def make(name, version=V1ALPHA1, **fields):
        full = name if name in FIXED else kit.new_name(name)
        metadata = {"name": full, "annotations": fields.pop("annotations", {})}
        body = {"apiVersion": version[len("/apis/"):-1], "kind": "ElasticGPUClass", "metadata": metadata}
        world.api.create(version + "elasticgpuclasses", dict(body, provisioner="elasticgpu.io/qgpu") | fields)
        made.append(full)
        return full

    yield make
    for name in made:
        world.api.delete(CLASSES + "/" + name)


@pytest.fixture
def egpus(world):
    """ElasticGPUs that are to be gone in the end."""
    names = []
    yield names
    for name in names:
        with contextlib.suppress(ApiError):
            world.api.patch(EGPUS + "/" + name, {"metadata": {"finalizers": []}})
            world.api.delete(EGPUS + "/" + name)
        gone(world, EGPUS, name)


def phase(space, name, want, timeout=kit.START):
    def reached(seen):
        return (seen or {}).get("status", {}).get("phase") == want
    return space.api.wait(claims_in(space), name, reached, timeout, f"claim {name} {want}")


def egpu_phase(world, name, want, timeout=kit.START):
    def reached(seen):
        return (seen or {}).get("status", {}).get("phase") == want
    return world.api.wait(EGPUS, name, reached, timeout, f"ElasticGPU {name} {want}")


def gone(world, collection, name, timeout=kit.START):
    world.api.wait(collection, name, lambda seen: seen is None, timeout, f"{name} gone")


def bound_condition(seen):
    return next(c for c in seen["status"]["conditions"] if c["type"] == "Bound")


def reason(space, name, want, timeout=kit.START):
    """Waits for the reason in the claim's condition Bound: watches of two kinds may lag behind each other."""
    def told(seen):
        conditions = (seen or {}).get("status", {}).get("conditions", [])
        return any(c["type"] == "Bound" and c["reason"] == want for c in conditions)
    return space.api.wait(claims_in(space), name, told, timeout, f"claim {name} says {want}")


def claim_event(space, name, want, timeout=kit.START):
    """Waits for an Event of the claim; it is written beside the status, not with it."""
    selector = f"involvedObject.name={name},involvedObject.kind=ElasticGPUClaim,reason={want}"
    next(space.api.watch(kube.core("events", space.name), timeout, fieldSelector=selector))


def test_the_first_example_as_it_stands(world, space, classes, egpus):
    """Class, claim and pod of the Elastic GPU project's own introduction; then Retain, and both protections."""
    classes("qgpu-class", V1ALPHA, reclaimPolicy="Retain", eGPUBindingMode="Immediate")
    world.api.create(claims_in(space, V1ALPHA), {
        "apiVersion": "elasticgpu.io/v1alpha", "kind": "ElasticGPUClaim", "metadata": {"name": "qgpu-egpuc"},
        "spec": {"storageClassName": "qgpu-class", "resources": {"requests": {
            "tke.cloud.tencent.com/qgpu-core": 10, "tke.cloud.tencent.com/qgpu-memory": "4Gi"}}}})
    seen = space.start(pod("qgpu-pod", container("test"), annotations={"elasticgpu.io/egpuc-test": "qgpu-egpuc"}))
    (device,) = check_view(space, seen, "test")
    assert (device["core"], device["memory"]) == (10, 4 * GiB)
    bound = phase(space, "qgpu-egpuc", "Bound")
    name = bound["spec"]["elasticGPUName"]
    egpus.append(name)
    assert bound["status"]["capacity"] == {kit.CORE: "10", kit.MEMORY: "4Gi"}
    assert bound_condition(bound)["status"] == "True"
    claim_event(space, "qgpu-egpuc", "Bound")
    made = egpu_phase(world, name, "Bound")
    assert made["spec"]["claimRef"]["uid"] == bound["metadata"]["uid"]
    assert made["spec"]["qGPU"]["gpuName"] in {g["metadata"]["name"] for g in world.gpus()}

    world.api.delete(claims_in(space) + "/qgpu-egpuc")
    still = world.api.get(claims_in(space) + "/qgpu-egpuc")
    assert CLAIM_GUARD in still["metadata"]["finalizers"] and still["status"]["phase"] == "Bound"
    space.delete("qgpu-pod")
    gone(world, claims_in(space), "qgpu-egpuc")
    world.wait_held(f"released claim {space.name}/qgpu-egpuc (ElasticGPU {name})", 10)
    assert f"kept for released claim {space.name}/qgpu-egpuc" in world.aliquot("inspect", "node")
    assert "gone" in egpu_phase(world, name, "Released")["status"]["message"]


def columns(world, *what):
    """The rows of `kubectl get` by name, each {column: text}; empty columns only at a row's end."""
    head, *rows = world.cluster.kubectl("get", *what).splitlines()
    starts = [found.start() for found in re.finditer(r"\S+(?: \S+)*", head)]
    names = [head[a:b].strip() for a, b in zip(starts, starts[1:] + [None])]
    cut = [[row[a:b].strip() for a, b in zip(starts, starts[1:] + [None])] for row in rows]
    return {row[0]: dict(zip(names, row)) for row in cut}


def test_the_readme_as_it_stands(world, space, classes, egpus):
    """Class and claims of the Elastic GPU project's README; kubectl shows what became of them."""
    classes("gpushare-egpuclass", V1ALPHA, provisioner="gpushare.provisioner.elasticgpu.io", reclaimPolicy="Retain",
            egpuBindingMode="Immediate")
    names = ["gpushare-egpuc-1", "gpushare-egpuc-2"]
    for name in names:
        world.api.create(claims_in(space, V1ALPHA), {
            "apiVersion": "elasticgpu.io/v1alpha", "kind": "ElasticGPUClaim", "metadata": {"name": name},
            "spec": {"egpuClassName": "gpushare-egpuclass", "resources": {"requests": {
                "gpushare.provisioner.elasticgpu.io/gpu-core": 10,
                "gpushare.provisioner.elasticgpu.io/gpu-memory": 4}}}})
    egpus += [phase(space, name, "Bound")["spec"]["elasticGPUName"] for name in names]
    for name in egpus:
        egpu_phase(world, name, "Bound")
    pods = space.start_all([pod(f"test-cuda-{i}", container("test1"),
                                annotations={"egpuc.elasticgpu.io/test1": name}) for i, name in enumerate(names)])
    for seen in pods:
        (device,) = check_view(space, seen, "test1")
        assert (device["core"], device["memory"]) == (10, 4 * GiB)

    shown = columns(world, "egpuc", "-n", space.name)["gpushare-egpuc-1"]
    assert {k: shown[k] for k in ("STATUS", "ELASTICGPU", "CORE", "MEMORY")} == {
        "STATUS": "Bound", "ELASTICGPU": egpus[0], "CORE": "10", "MEMORY": "4Gi"}
    shown = columns(world, "elasticgpus")[egpus[0]]
    assert {k: v for k, v in shown.items() if k not in ("NAME", "AGE")} == {
        "CORE": "10", "MEMORY": "4Gi", "RECLAIM": "Retain", "STATUS": "Bound", "NAMESPACE": space.name,
        "CLAIM": "gpushare-egpuc-1", "CLASS": "gpushare-egpuclass"}
    shown = columns(world, "egpuclass")["gpushare-egpuclass"]
    assert shown["PROVISIONER"] == "gpushare.provisioner.elasticgpu.io" and shown["RECLAIM"] == "Retain"


def test_whole_cards_and_a_claim_for_two(world, space, classes, egpus):
    """A claim of two whole cards, one that an administrator gives away, and half of a claim for each of two pods."""
    whole = classes("whole", provisioner="elasticgpu.io/physical-gpu")
    cards = {g["metadata"]["name"]: g["spec"]["uuid"] for g in world.gpus()}

    def claimed(name, core, **spec):
        world.api.create(claims_in(space), dict(claim(name), spec=dict(
            {"resources": {"requests": {kit.CORE: core}}}, **spec)))
        return phase(space, name, "Bound")["spec"]["elasticGPUName"]

    made = claimed("both", 200, elasticGPUClassName=whole)
    assert sorted(world.api.get(EGPUS + "/" + made)["spec"]["physicalGPU"]["gpuNames"]) == sorted(cards)
    seen = space.start(with_claim("p", "both"))
    devices = check_view(space, seen)
    assert sorted((d["uuid"], d["core"], d["memory"]) for d in devices) == sorted((u, 100, CARD) for u in cards.values())
    space.delete("p")
    world.api.delete(claims_in(space) + "/both")
    gone(world, EGPUS, made)

    card = sorted(cards)[1]
    egpus.append(kit.new_name("static-whole"))
    world.api.create(EGPUS, {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPU", "metadata": {"name": egpus[0], "labels": {"tier": "a"}},
        "spec": {"capacity": {kit.CORE: 100}, "physicalGPU": {"gpuNames": [card]}}})
    egpu_phase(world, egpus[0], "Available")
    assert claimed("one", 100, elasticGPUClassName="", selector={"matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["a", "b"]}]}) == egpus[0]
    two = classes("two", podsPerClaim=2)
    claimed("half", 40, elasticGPUClassName=two)
    pods = space.start_all([with_claim("q", "one"), with_claim("r", "half"), with_claim("s", "half")])
    (device,), (r,), (s,) = (check_view(space, seen) for seen in pods)
    assert (device["uuid"], device["core"], device["memory"]) == (cards[card], 100, CARD)
    assert r["uuid"] == s["uuid"] != device["uuid"]
    assert [(d["core"], d["memory"]) for d in (r, s)] == [(20, CARD * 20 // 100)] * 2
    space.create(with_claim("t", "half"))
    space.event("t", "its class lets 2 pods use it at a time")
    # What the claim holds is counted once: beside its 40 there is room for 60.
    space.start(pod("u", container(core=60)))


def test_first_consumer_default_class_delete_and_no_sharing(world, space, classes):
    node = world.gpus()[0]["spec"]["nodeName"]
    late = classes("late", bindingMode="WaitForFirstConsumer", allowExpansion=True, parameters={"placementPolicy": "spread"},
                   allowedTopologies=[{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": [node]}]}],
                   annotations={"elasticgpu.io/is-default-class": "true"})
    world.api.create(claims_in(space), claim("c", core=30, memory="8Gi"))
    waiting = reason(space, "c", "WaitForFirstConsumer")
    assert waiting["spec"]["elasticGPUClassName"] == late and "elasticGPUName" not in waiting["spec"]
    seen = space.start(with_claim("one", "c"))
    (device,) = check_view(space, seen)
    assert (device["core"], device["memory"]) == (30, 8 * GiB)
    bound = phase(space, "c", "Bound")
    assert bound["metadata"]["annotations"]["elasticgpu.io/selected-node"] == seen["spec"]["nodeName"] == node

    space.create(with_claim("two", "c"))
    space.event("two", "claim c is in use by pod one.*podsPerClaim")
    space.delete("one")
    (again,) = check_view(space, space.running("two"))
    assert again["uuid"] == device["uuid"]
    space.delete("two")
    world.api.delete(claims_in(space) + "/c")
    gone(world, claims_in(space), "c")
    gone(world, EGPUS, bound["spec"]["elasticGPUName"])

    def pair(name):
        world.api.create(claims_in(space), claim("for-" + name, core=60, memory="8Gi"))
        return pod(name, container(), container("side", kit.PORT + 1),
                   annotations={f"egpuc.elasticgpu.io/{each}": "for-" + name for each in ("main", "side")})

    # Two containers of one pod: there is room for the claim once, and each has half of it; the same when it is bound.
    space.start(pod("other", container(core=60)))
    first = pair("first")
    seen = space.start(first)
    (main,), (side,) = check_view(space, seen), check_view(space, seen, "side", kit.PORT + 1)
    assert main["uuid"] == side["uuid"]
    assert [(d["core"], d["memory"]) for d in (main, side)] == [(30, 4 * GiB)] * 2
    gpu = next(g["metadata"]["name"] for g in world.gpus() if g["spec"]["uuid"] == main["uuid"])
    world.api.wait(kube.gpus(), gpu, lambda s: [c["container"] for c in s["status"].get("allocated", {}).get(
        seen["metadata"]["uid"], {}).get("containers", [])] == ["main", "side"], kit.START, "both in the GPU's status")
    space.delete("first")
    assert assignment_of(space.start(first)) == assignment_of(seen)
    space.create(pair("second"))
    space.unschedulable("second")
    told = world.until(lambda: json.loads(world.aliquot("explain", "second", "-n", space.name, "--json"))["scheduler"], 60,
                       "what the scheduler says of the pod")
    assert told["wants"] == "main wants 60 % compute and 8 GiB memory of one GPU, side shares its claim"
    assert [n["gpus"][i]["freeCore"] for n in told["nodes"] for i in (0, 1)] == [40, 40], told["nodes"]
    world.api.patch(claims_in(space) + "/for-first", {"spec": {"resources": {"requests": {kit.CORE: 80, kit.MEMORY: "16Gi"}}}})
    seen = space.wait("first", lambda s: [(d["core"], d["memory"]) for (d,) in assignment_of(s).values()] == [(40, 8 * GiB)] * 2,
                      kit.START, "both are given more")
    with space.tenant(seen) as main, space.tenant(seen, kit.PORT + 1) as side:
        world.until(lambda: main.info()["total"] == side.info()["total"] == 8 * GiB, kit.START, "both may have more")
    space.delete("first", "second", "other")
    made = phase(space, "for-first", "Bound")["spec"]["elasticGPUName"]
    world.api.delete(claims_in(space) + "/for-first")
    gone(world, EGPUS, made)


def test_made_by_an_admin_repaired_and_lost(world, space, classes, egpus):
    """The smallest that fits; a half that is missing is put back; what vanishes leaves its claim Lost for good."""
    card = world.gpus()[1]["metadata"]["name"]
    for size in (40, 20):
        name = kit.new_name(f"static-{size}")
        egpus.append(name)
        world.api.create(EGPUS, {
            "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPU", "metadata": {"name": name},
            "spec": {"capacity": {kit.CORE: size, kit.MEMORY: "5Gi"}, "gpuShare": {"gpuName": card}}})
        egpu_phase(world, name, "Available")
    small = egpus[1]
    world.api.create(claims_in(space), claim("c", elasticGPUClassName=""))
    assert phase(space, "c", "Bound")["spec"]["elasticGPUName"] == small
    uid = egpu_phase(world, small, "Bound")["spec"]["claimRef"]["uid"]

    world.api.patch(EGPUS + "/" + small, {"spec": {"claimRef": None}})
    world.api.wait(EGPUS, small, lambda s: s["spec"].get("claimRef", {}).get("uid") == uid, kit.START)

    seen = space.start(with_claim("p", "c"))
    assert [d["core"] for d in assignment_of(seen)["main"]] == [20]
    assert assignment_of(seen)["main"][0]["uuid"] == world.gpus()[1]["spec"]["uuid"]
    space.delete("p")
    world.api.delete(EGPUS + "/" + small)
    assert "deletionTimestamp" in world.api.get(EGPUS + "/" + small)["metadata"]
    world.api.patch(EGPUS + "/" + small, {"metadata": {"finalizers": []}})
    lost = phase(space, "c", "Lost")
    assert lost["spec"]["elasticGPUName"] == small and bound_condition(lost)["reason"] == "ClaimLost"
    space.create(with_claim("q", "c"))
    space.event("q", "claim c has lost its ElasticGPU " + small)


def test_template_grows_in_place_and_goes_with_its_pod(world, space, classes):
    grow = classes("grow", allowExpansion=True)
    spec = {"elasticGPUClassName": grow, "resources": {"requests": {kit.CORE: 10, kit.MEMORY: "4Gi"}}}
    seen = space.start(pod("p", container(), annotations={"egpuct.elasticgpu.io/main": json.dumps(spec)}))
    check_view(space, seen)
    mine = phase(space, "p-main", "Bound")
    assert mine["metadata"]["ownerReferences"][0]["uid"] == seen["metadata"]["uid"]
    with space.tenant(seen) as tenant:
        assert tenant.info()["total"] == 4 * GiB
        assert tenant.alloc(5 * GiB) == kit.OUT_OF_MEMORY
        world.api.patch(claims_in(space) + "/p-main",
                        {"spec": {"resources": {"requests": {kit.CORE: 30, kit.MEMORY: "8Gi"}}}})
        world.api.wait(claims_in(space), "p-main",
                       lambda s: s["status"]["capacity"] == {kit.CORE: "30", kit.MEMORY: "8Gi"}, kit.START)
        assert [(d["core"], d["memory"]) for d in assignment_of(space.get("p"))["main"]] == [(30, 8 * GiB)]
        world.until(lambda: tenant.info()["total"] == 8 * GiB, kit.START, "the running process may have more")
        assert tenant.alloc(5 * GiB) == 0
    # Beyond its card it cannot grow.
    world.api.patch(claims_in(space) + "/p-main", {"spec": {"resources": {"requests": {kit.MEMORY: CARD + GiB}}}})
    world.api.wait(claims_in(space), "p-main", lambda s: any(
        c["type"] == "Resizing" and c["reason"] == "NoRoom" for c in s["status"]["conditions"]), kit.START)
    space.delete("p")
    gone(world, claims_in(space), "p-main", GARBAGE)
    gone(world, EGPUS, mine["spec"]["elasticGPUName"])

    # A claim of that name that is not the pod's own is not taken for it.
    world.api.create(claims_in(space), claim("q-main", elasticGPUClassName=grow))
    foreign = phase(space, "q-main", "Bound")
    space.create(pod("q", container(), annotations={"egpuct.elasticgpu.io/main": json.dumps(spec)}))
    space.event("q", "claim q-main is not this pod's")
    world.api.delete(claims_in(space) + "/q-main")
    gone(world, EGPUS, foreign["spec"]["elasticGPUName"])


def test_quota_counts_claims(world, space, classes):
    """A quota needs no help of ours; who makes the claim of a template hears of it at the pod."""
    none = {"elasticGPUClassName": ""}
    world.api.create(claims_in(space), claim("one", **none))
    world.api.create(kube.core("resourcequotas", space.name), {
        "metadata": {"name": "quota"}, "spec": {"hard": {"count/elasticgpuclaims.elasticgpu.io": "1"}}})

    def refused():
        try:
            world.api.create(claims_in(space), claim("two", **none), dryRun="All")
        except ApiError as error:
            return "exceeded quota" in str(error)
        return False
    world.until(refused, GARBAGE, "the API server counts claims")
    spec = dict(claim("x", **none)["spec"])
    space.create(pod("p", container(), annotations={"egpuct.elasticgpu.io/main": json.dumps(spec)}))
    space.event("p", "ClaimNotMade: .*exceeded quota")


def test_scheduler_dies_between_the_halves(world, space, classes):
    """Killed at some write of twelve claims: each has its own ElasticGPU in the end, and no card is given twice."""
    fast = classes("fast")
    names = [f"c{i}" for i in range(12)]
    for name in names[:6]:
        world.api.create(claims_in(space), claim(name, core=15, memory="6Gi", elasticGPUClassName=fast))
    before = world.scheduler.kill()
    for name in names[6:]:
        world.api.create(claims_in(space), claim(name, core=15, memory="6Gi", elasticGPUClassName=fast))
    world.scheduler.wait_restarted(before)
    bound = [phase(space, name, "Bound", 90) for name in names]     # another replica may wait for the Lease
    made = [egpu_phase(world, c["spec"]["elasticGPUName"], "Bound") for c in bound]
    assert len({e["metadata"]["name"] for e in made}) == len(names)
    held = {}
    for e in made:
        held[e["spec"]["qGPU"]["gpuName"]] = held.get(e["spec"]["qGPU"]["gpuName"], 0) + 15
    assert sum(held.values()) == 12 * 15 and all(v <= 100 for v in held.values()), held
    # The cards are full now: what the claims hold is given to no other pod, and a pod of theirs still has its share.
    world.api.create(claims_in(space), claim("more", core=15, memory="6Gi", elasticGPUClassName=fast))
    reason(space, "more", "ProvisioningFailed")
    space.create(pod("late", container(core=15)))
    space.unschedulable("late")
    seen = space.start_all([with_claim("a", "c0"), with_claim("b", "c11")])
    check_no_share_twice(seen)
    space.delete("a", "b", "late")
    for name in names + ["more"]:
        world.api.delete(claims_in(space) + "/" + name)
    for e in made:
        gone(world, EGPUS, e["metadata"]["name"])


def test_what_makes_no_sense_is_refused(world, space, classes, egpus):
    def refused(path, body, text):
        with pytest.raises(ApiError, match=text) as caught:
            world.api.create(path, body)
        assert caught.value.code == 422

    for core in (150, "150", 0, "0", "1e1", "10.5"):
        refused(claims_in(space), claim("c", core=core), "multiple of 100")
    for core in (1, "99", "100", 300):
        world.api.create(claims_in(space), claim("c", core=core), dryRun="All")
    refused(claims_in(space), claim("c", elasticGPUClassName="a", storageClassName="b"), "class once")
    egpu = {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPU", "metadata": {"name": kit.new_name("e")}}
    refused(EGPUS, dict(egpu, spec={"capacity": {kit.CORE: 1}}), "exactly one source")
    half = {"claimRef": {"name": "c"}}
    refused(EGPUS, dict(egpu, spec={"capacity": {kit.CORE: 1}, "qGPU": {}, **half}), "both name and namespace")
    refused(EGPUS, dict(egpu, spec={"capacity": {kit.CORE: 1}, "qGPU": {}, "gpuShare": {}}), "exactly one source")
    refused(EGPUS, dict(egpu, spec={"capacity": {kit.CORE: 200}, "physicalGPU": {"gpuNames": ["a", "a"]}}), "Duplicate")
    refused(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass",
                      "metadata": {"name": kit.new_name("k")}, "provisioner": "x", "reclaimPolicy": "Recycle"},
            "Unsupported value")
    refused(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass",
                      "metadata": {"name": kit.new_name("k")}, "provisioner": "x",
                      "parameters": {"placementPolicy": "best"}}, "placementPolicy must be")
    refused(claims_in(space), claim("c", selector={"matchExpressions": [{"key": "a", "operator": "In"}]}), "need values")
    mig = classes("mig", provisioner="elasticgpu.io/mig")
    world.api.create(claims_in(space), claim("c", elasticGPUClassName=mig))
    told = reason(space, "c", "ProvisioningFailed")
    assert "the class gives MIG instances" in bound_condition(told)["message"]

    def fixed(path, patch, text):
        with pytest.raises(ApiError, match=text):
            world.api.patch(path, patch)

    fixed(claims_in(space) + "/c", {"spec": {"elasticGPUClassName": "other"}}, "class cannot be changed")
    fixed(CLASSES + "/" + mig, {"provisioner": "elasticgpu.io/qgpu"}, "provisioner cannot be changed")
    world.api.create(claims_in(space), claim("named", elasticGPUClassName="", elasticGPUName="a"))
    fixed(claims_in(space) + "/named", {"spec": {"elasticGPUName": "b"}}, "cannot be changed once it is set")
    egpus.append(egpu["metadata"]["name"])
    world.api.create(EGPUS, dict(egpu, spec={
        "capacity": {kit.CORE: 1}, "qGPU": {"gpuName": "nowhere"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["a"]}]}]}}}))
    fixed(EGPUS + "/" + egpus[0], {"spec": {"nodeAffinity": None}}, "nodeAffinity cannot be changed")
    fixed(EGPUS + "/" + egpus[0], {"spec": {"qGPU": {"gpuName": "there"}}}, "source cannot be changed")
