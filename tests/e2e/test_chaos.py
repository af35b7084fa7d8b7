# SPDX-License-Identifier: Apache-2.0
"""Some seconds of `make chaos`: each kind of fault once, in an order that is always the same."""

import json

import pytest

import chaos
import chaos_audit as audit
import kit

REST = 1            # seconds between two faults, at most
SEED = 7


def test_chaos(world, space):
    print(chaos.run(world, space, 0, SEED, print, nodes=2, gpus=2, rest=REST))


# ---- the audit sees what it is there for ----

CARDS = [{"metadata": {"name": f"n-0{i}"}, "spec": {"uuid": f"GPU-{i}", "memory": kit.CARD, "nodeName": "n"}}
         for i in range(2)]


def holder(name, core, card=0, **notes):
    device = {"index": card, "uuid": f"GPU-{card}", "core": core, "memory": kit.GiB}
    notes = {kit.ASSIGNMENT: json.dumps({"v": 1, "node": "n", "containers": {"main": [device]}}),
             audit.GIVEN: json.dumps([1, core, kit.GiB])} | notes
    return {"metadata": {"name": name, "namespace": "d", "uid": name, "annotations": notes},
            "spec": {"nodeName": "n", "priority": 100}, "status": {"phase": "Running"}}


def claiming():
    return {"metadata": {"name": "claiming", "namespace": "d", "uid": "claiming",
                         "annotations": {audit.GIVEN: json.dumps([1, 40, kit.GiB])}},
            "spec": {"nodeName": "n", "priority": 100, "resourceClaims": [{"name": "gpu"}]},
            "status": {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "dra"}]}}


def a_moment():
    """One pod with a share of its own, one with a claim, one with a ResourceClaim, and a reservation."""
    claim = {"metadata": {"name": "c", "namespace": "d", "uid": "u-c"}, "spec": {"elasticGPUName": "e"},
             "status": {"phase": "Bound"}}
    egpu = {"metadata": {"name": "e"}, "status": {"phase": "Bound"}, "spec": {
        "capacity": {kit.CORE: "20", kit.MEMORY: "1Gi"}, "qGPU": {"gpuName": "n-00"}, "claimRef": {"uid": "u-c"},
        "reclaimPolicy": "Delete"}}
    kept = {"v": 1, "node": "n", "containers": {"main": [{"uuid": "GPU-0", "core": 30, "memory": kit.GiB}]}}
    reservation = {"metadata": {"name": "r"}, "spec": {}, "status": {"phase": "Held", "assignment": json.dumps(kept)}}
    found = {"pods": [holder("own", 50), holder("claims", 20, **{audit.CLAIM: "c"})], "claims": {"d/c": claim},
             "egpus": {"e": egpu}, "reservations": {"r": reservation}}
    allocated = {"results": [{"driver": "gpu.elasticgpu.io", "pool": "n", "device": "gpu-1",
                              "consumedCapacity": {"core": "40", "memory": "1Gi"}}]}
    found["resource_claims"] = {"d/dra": {
        "metadata": {"name": "dra", "namespace": "d", "uid": "u-dra"},
        "status": {"allocation": {"devices": allocated}, "reservedFor": [{"uid": "claiming"}]}}}
    found["pods"].append(claiming())
    found["gpus"] = {g["metadata"]["name"]: g["spec"] for g in CARDS}
    found["cards"] = {g["uuid"]: g for g in found["gpus"].values()}
    moment = audit.Moment.__new__(audit.Moment)     # without an API server
    moment.__dict__.update(found)
    return moment


def status_of(moment, free):
    pods = [{"uid": p["metadata"]["uid"], "stage": "bound", "holds": audit.devices_of(p)} for p in moment.bound()]
    pods += [{"uid": p["metadata"]["uid"], "stage": "bound", "holds": []} for p in moment.claiming()]
    return {"pods": pods,
            "nodes": [{"gpus": [dict(c, freeCore=f[0], freeMemory=f[1]) for c, f in zip(moment.cards.values(), free)]}]}


FREE = [(0, kit.CARD - 3 * kit.GiB), (60, kit.CARD - kit.GiB)]


def judge(moment, watcher=None, free=None):
    (watcher or audit.Watcher()).look(moment)
    audit.judge_claims(moment)
    metrics = {("aliquot_scheduler_pods", (("stage", "bound"),)): len(moment.bound() + moment.claiming()),
               ("aliquot_scheduler_gpus_overcommitted", ()): 0, ("aliquot_scheduler_forged_assignments_total", ()): 0}
    audit.judge_scheduler(moment, status_of(moment, free or FREE), metrics)


def given_twice(moment):
    moment.pods.append(holder("second", 1))


def takes_what_is_reserved(moment):
    status = moment.reservations["r"]["status"]
    status["assignment"] = status["assignment"].replace("30", "31")


def claim_gives_more(moment):
    moment.egpus["e"]["spec"]["capacity"][kit.CORE] = "10"


def claim_on_another_card(moment):
    moment.egpus["e"]["spec"]["qGPU"]["gpuName"] = "n-01"


def claim_without_egpu(moment):
    del moment.egpus["e"]


def one_half_missing(moment):
    del moment.egpus["e"]["spec"]["claimRef"]


def left_behind(moment):
    del moment.claims["d/c"], moment.pods[1]


def more_than_asked(moment):
    moment.pods[0]["metadata"]["annotations"][audit.GIVEN] = json.dumps([1, 40, kit.GiB])


def card_of_another_node(moment):
    moment.pods[0]["spec"]["nodeName"] = "m"


def half_a_gang_runs(moment):
    moment.pods[0]["metadata"]["annotations"] |= {audit.GANG: "g", audit.SIZE: "2"}


def claim_of_another_pod(moment):
    moment.resource_claims["d/dra"]["status"]["reservedFor"][0]["uid"] = "other"


def claim_gone(moment):
    moment.resource_claims.clear()


def claim_and_pod_on_one_card(moment):
    moment.pods.append(holder("second", 61, card=1))


def claim_has_less(moment):
    (result,) = moment.resource_claims["d/dra"]["status"]["allocation"]["devices"]["results"]
    result["consumedCapacity"]["core"] = "30"


def evicted_for_no_pod(moment):
    moment.pods[0]["status"]["conditions"] = [
        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]


PLANTED = [(given_twice, "are given 101 %"), (takes_what_is_reserved, "are given 101 %"),
           (claim_gives_more, "have more of ElasticGPU e"), (claim_on_another_card, "are on GPU-0, it is on"),
           (claim_without_egpu, "has no ElasticGPU"), (one_half_missing, "d/c <>"), (left_behind, "no claim has"),
           (more_than_asked, "own asked 1 x 40 %"), (card_of_another_node, "own is on m"),
           (claim_of_another_pod, "is reserved for"), (claim_gone, "its ResourceClaim is not there"),
           (claim_and_pod_on_one_card, "are given 101 %"), (claim_has_less, "claims 1 x 40 %"),
           (half_a_gang_runs, "gang g: 1 of 2"), (evicted_for_no_pod, "no pod of higher priority waits")]


def test_the_audit_finds_nothing_where_nothing_is():
    judge(a_moment())


@pytest.mark.parametrize("plant, text", PLANTED)
def test_the_audit_finds(plant, text):
    moment = a_moment()
    plant(moment)
    with pytest.raises(AssertionError, match=text):
        judge(moment)


def test_the_audit_finds_a_leak_and_a_change():
    with pytest.raises(AssertionError, match="held"):
        judge(a_moment(), free=[(0, kit.CARD - 4 * kit.GiB), FREE[1]])
    watcher, moment = audit.Watcher(), a_moment()
    judge(moment, watcher)
    moment.pods[0] = holder("own", 50, card=1)
    with pytest.raises(AssertionError, match="and now"):
        judge(moment, watcher)
