# SPDX-License-Identifier: Apache-2.0
"""Who holds what of each card, counted from the objects of the API server alone, and what is wrong with it.

Moment is what the API server's store held at one revision: nothing can have changed between the kinds. Each judge
raises AssertionError. Nothing here knows how the scheduler counts.
"""

import base64
import json
import subprocess
import tempfile
import time

import kit
import resource_claims as dra
from cluster import api as kube
from kit import CARD, assignment_of, is_ended, quantity

GROUP = "/apis/elasticgpu.io/v1alpha1/"
EGPUS, CLASSES, RESERVATIONS = GROUP + "elasticgpus", GROUP + "elasticgpuclasses", GROUP + "elasticgpureservations"
CLAIM = "egpuc.elasticgpu.io/main"          # annotation: the container's claim
TEMPLATE = "egpuct.elasticgpu.io/main"      # annotation: the spec of one
QUEUE = "elasticgpu.io/queue"
GIVEN, GANG, SIZE = "chaos/given", "chaos/gang", "chaos/members"    # annotations of the load, for the audit


class Moment:
    """Pods, ElasticGPUs, claims, ResourceClaims and reservations at one revision of the store."""

    def __init__(self, api):
        listed = api.get(kube.core("pods"))
        at = {"resourceVersion": listed["metadata"]["resourceVersion"], "resourceVersionMatch": "Exact"}
        self.pods = [p for p in listed["items"] if not is_ended(p)]
        self.egpus = {e["metadata"]["name"]: e for e in api.get(EGPUS, **at)["items"]}
        self.claims = {key(c): c for c in api.get(GROUP + "elasticgpuclaims", **at)["items"]}
        self.reservations = {r["metadata"]["name"]: r for r in api.get(RESERVATIONS, **at)["items"]}
        self.resource_claims = {key(c): c for c in api.get(dra.CLAIMS, **at)["items"]}
        self.gpus = {g["metadata"]["name"]: g["spec"] for g in api.get(kube.gpus(), **at)["items"]}
        self.cards = {g["uuid"]: g for g in self.gpus.values()}

    def bound(self):
        return [p for p in self.pods if p["spec"].get("nodeName") and assignment_of(p)]

    def claiming(self):
        """Those that are bound with a ResourceClaim."""
        return [p for p in self.pods if p["spec"].get("nodeName") and p["spec"].get("resourceClaims") and note(p, GIVEN)]


def key(seen):
    return seen["metadata"]["namespace"] + "/" + seen["metadata"]["name"]


def name_of(seen):
    return seen["metadata"]["name"]


def note(seen, name):
    return seen["metadata"].get("annotations", {}).get(name)


class Sums(dict):
    """{UUID: (core, memory)}"""

    def add(self, uuid, core, memory):
        had = self.get(uuid, (0, 0))
        self[uuid] = (had[0] + core, had[1] + memory)


def devices_of(pod):
    return [d for devices in assignment_of(pod).values() for d in devices]


def claim_of(moment, pod):
    """The claim of a pod that has one; it is there as long as the pod is bound."""
    name = note(pod, CLAIM) or (name_of(pod) + "-main" if note(pod, TEMPLATE) else None)
    if not name:
        return None
    found = moment.claims.get(pod["metadata"]["namespace"] + "/" + name)
    assert found, f"{name_of(pod)} is bound, and its claim {name} is not there"
    return found


def egpu_share(moment, egpu):
    """(UUID, core, memory) of a share that stands behind a claim; None while its card is not there."""
    gpu = moment.gpus.get(egpu["spec"]["qGPU"]["gpuName"])
    capacity = egpu["spec"]["capacity"]
    return gpu and (gpu["uuid"], quantity(capacity[kit.CORE]), quantity(capacity[kit.MEMORY]))


def resource_claim_of(moment, pod):
    """The one of a pod that is bound with one."""
    (entry,) = pod["status"]["resourceClaimStatuses"]
    found = moment.resource_claims.get(pod["metadata"]["namespace"] + "/" + entry["resourceClaimName"])
    assert found, f"{name_of(pod)} is bound, and its ResourceClaim is not there"
    return found


def results_of(moment, claim):
    """[(UUID, core, memory)] of a ResourceClaim."""
    uuids = {dra.device_name(uuid): uuid for uuid in moment.cards}
    return [(uuids.get(device, device), core, memory) for _, device, core, memory in dra.results(claim)]


# ---- each pod for itself ----

def judge_pod(moment, pod):
    """It has just what it asked for, of cards of its node, and no card twice."""
    devices = devices_of(pod)
    where = {moment.cards[d["uuid"]]["nodeName"] for d in devices if d["uuid"] in moment.cards}
    assert where <= {pod["spec"]["nodeName"]}, f"{name_of(pod)} is on {pod['spec']['nodeName']}, its cards on {where}"
    assert len({d["uuid"] for d in devices}) == len(devices), f"{name_of(pod)} has a card twice: {devices}"
    count, core, memory = json.loads(note(pod, GIVEN))
    got = [(d["core"], d["memory"]) for d in devices]
    assert got == [(core, memory)] * count, f"{name_of(pod)} asked {count} x {core} %, {memory} bytes, and has {got}"


def judge_claiming(moment, pod):
    """Its ResourceClaim is reserved for it, and has just what it asked for, of cards of its node."""
    claim = resource_claim_of(moment, pod)
    users = [user["uid"] for user in claim["status"].get("reservedFor", [])]
    assert users == [pod["metadata"]["uid"]], f"{name_of(pod)} is bound, and {key(claim)} is reserved for {users}"
    found = results_of(moment, claim)
    where = {moment.cards[uuid]["nodeName"] for uuid, _, _ in found if uuid in moment.cards}
    assert where <= {pod["spec"]["nodeName"]}, f"{name_of(pod)} is on {pod['spec']['nodeName']}, its devices on {where}"
    count, core, memory = json.loads(note(pod, GIVEN))
    got = [share[1:] for share in found]
    assert got == [(core, memory)] * count, f"{name_of(pod)} claims {count} x {core} %, {memory} bytes, and has {got}"
    return found


def judge_draws(moment):
    """What pods have by claims is what the ElasticGPUs behind them give; returns the sums of the others."""
    drawn, held = {}, Sums()
    for pod in moment.bound():
        claim = claim_of(moment, pod)
        if not claim:
            for d in devices_of(pod):
                held.add(d["uuid"], d["core"], d["memory"])
            continue
        name = claim["spec"].get("elasticGPUName")
        assert name in moment.egpus, f"{name_of(pod)} is bound, and claim {key(claim)} has no ElasticGPU: {name}"
        for d in devices_of(pod):
            drawn.setdefault(name, Sums()).add(d["uuid"], d["core"], d["memory"])
    for name, sums in drawn.items():
        share = egpu_share(moment, moment.egpus[name])
        for uuid, (core, memory) in sums.items():
            assert share and uuid == share[0], f"pods of ElasticGPU {name} are on {uuid}, it is on {share}"
            assert core <= share[1] and memory <= share[2], f"pods have more of ElasticGPU {name} than it is: {sums}"
    return held


def reserved(moment, held):
    """What reservations keep beyond what their owners have of it already, as [(UUID, core, memory)]."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 1))
    for name, reservation in moment.reservations.items():
        status = reservation.get("status", {})
        if status.get("phase") != "Held" or reservation["spec"].get("expires", "9") <= stamp:
            continue
        used = Sums()
        for pod in moment.bound():
            if pod["metadata"].get("labels", {}).get(QUEUE) == name:
                for d in devices_of(pod):
                    used.add(d["uuid"], d["core"], d["memory"])
        for devices in json.loads(status["assignment"])["containers"].values():
            for d in devices:
                core, memory = used.get(d["uuid"], (0, 0))
                yield d["uuid"], max(0, d["core"] - core), max(0, d["memory"] - memory)


def sums(moment):
    """What is held of each card: by pods, by ElasticGPUs, by ResourceClaims, by reservations."""
    held = judge_draws(moment)
    for claim in moment.resource_claims.values():
        for share in results_of(moment, claim):
            held.add(*share)
    for egpu in moment.egpus.values():
        share = egpu_share(moment, egpu)
        if share:
            held.add(*share)
    for share in reserved(moment, held):
        held.add(*share)
    return held


def judge_cards(moment):
    for uuid, (core, memory) in sums(moment).items():
        assert core <= 100 and memory <= moment.cards.get(uuid, {"memory": CARD})["memory"], \
            f"of {uuid} are given {core} % and {memory} bytes: {holders(moment, uuid)}"


def holders(moment, uuid):
    """For people: who has a part of the card."""
    found = [(key(p), d["core"], d["memory"]) for p in moment.bound() for d in devices_of(p) if d["uuid"] == uuid]
    found += [("ElasticGPU " + n, *egpu_share(moment, e)[1:]) for n, e in moment.egpus.items()
              if (egpu_share(moment, e) or [None])[0] == uuid]
    found += [(f"ResourceClaim {n}", *share[1:]) for n, c in moment.resource_claims.items()
              for share in results_of(moment, c) if share[0] == uuid]
    return found + [(f"reservation {n}", r.get("status")) for n, r in moment.reservations.items()
                    if uuid in r.get("status", {}).get("assignment", "")]


# ---- gangs ----

def gangs(moment):
    """{name: (size, members, those of them that are bound)}; only those of which none was deleted yet."""
    found = {}
    for pod in moment.pods:
        if note(pod, GANG):
            found.setdefault(note(pod, GANG), []).append(pod)
    return {name: (int(note(pods[0], SIZE)), pods, [p for p in pods if p["spec"].get("nodeName")])
            for name, pods in found.items()}


def judge_gangs(moment, was_whole):
    """Of a gang of which not all members have ever been there, none is bound."""
    for name, (size, pods, bound) in gangs(moment).items():
        if len(pods) >= size:
            was_whole.add(name)
        assert not bound or name in was_whole, f"gang {name}: {len(pods)} of {size} have come, and some are bound"


# ---- claims ----

def phase_of(seen):
    return seen.get("status", {}).get("phase")


def judge_claims(moment):
    """Both halves of each binding name each other, and no half is left over."""
    by_uid = {c["metadata"]["uid"]: c for c in moment.claims.values()}
    for claim in moment.claims.values():
        assert phase_of(claim) in ("Pending", "Bound"), f"{key(claim)}: {claim}"
        if phase_of(claim) == "Bound":
            egpu = moment.egpus.get(claim["spec"]["elasticGPUName"], {"spec": {}})
            assert egpu["spec"].get("claimRef", {}).get("uid") == claim["metadata"]["uid"], f"{key(claim)} <> {egpu}"
            assert phase_of(egpu) == "Bound", egpu
    for name, egpu in moment.egpus.items():
        claim = by_uid.get(egpu["spec"].get("claimRef", {}).get("uid"))
        if claim:
            assert phase_of(egpu) == "Bound" and claim["spec"].get("elasticGPUName") == name, (egpu, claim)
        else:
            kept = phase_of(egpu) == "Released" and egpu["spec"]["reclaimPolicy"] == "Retain"
            assert kept, f"no claim has {egpu}"


# ---- what others keep: each has to come to agree ----

def judge_gpu_objects(moment, gpus):
    """GPU.status names just the pods that are bound, and the ResourceClaims of those, with what they have; what claims and
    reservations keep beside them; and the rest of the card."""
    taken = sums(moment)
    want = {g["metadata"]["name"]: {} for g in gpus}
    names = {g["spec"]["uuid"]: g["metadata"]["name"] for g in gpus}
    for pod in moment.bound():
        for d in devices_of(pod):
            want[names[d["uuid"]]].setdefault(pod["metadata"]["uid"], []).append((d["core"], d["memory"]))
    for pod in moment.claiming():
        claim = resource_claim_of(moment, pod)
        for uuid, *share in results_of(moment, claim):
            want[names[uuid]][claim["metadata"]["uid"]] = [tuple(share)]
    for gpu in gpus:
        told = {uid: [(quantity(c["resource"][kit.CORE]), quantity(c["resource"][kit.MEMORY])) for c in v["containers"]]
                for uid, v in (gpu["status"].get("allocated") or {}).items()}
        assert told == want[gpu["metadata"]["name"]], f"{gpu['metadata']['name']}: {told}, by the pods: {want}"
        kept = [tuple(quantity(held["resource"][k]) for k in (kit.CORE, kit.MEMORY)) for held in gpu["status"].get("held", [])]
        both = [sum(x[i] for v in told.values() for x in v) + sum(x[i] for x in kept) for i in range(2)]
        assert both == list(taken.get(gpu["spec"]["uuid"], (0, 0))), f"{gpu['status']}: {both}, by the objects: {taken}"
        free = [full - both[i] for i, full in enumerate((100, gpu["spec"]["memory"]))]
        assert [quantity(gpu["status"]["allocatable"][k]) for k in (kit.CORE, kit.MEMORY)] == free, gpu["status"]


def judge_scheduler(moment, status, metrics):
    """The scheduler's own picture: who holds what, what is free on each card, how many are bound."""
    told = {p["uid"]: sorted((h["uuid"], h["core"], h["memory"]) for h in p["holds"])
            for p in status["pods"] if p["stage"] != "pending"}
    want = {p["metadata"]["uid"]: sorted((d["uuid"], d["core"], d["memory"]) for d in devices_of(p))
            for p in moment.bound()}
    want |= {p["metadata"]["uid"]: [] for p in moment.claiming()}     # what they have is their claims'
    assert told == want, f"the scheduler: {told}, by the pods: {want}"
    held = sums(moment)
    for node in status["nodes"]:
        for gpu in node["gpus"]:
            core, memory = held.get(gpu["uuid"], (0, 0))
            assert (gpu["freeCore"], gpu["freeMemory"]) == (100 - core, gpu["memory"] - memory), \
                f"{gpu}, held: {core} %, {memory} bytes by {holders(moment, gpu['uuid'])}"
    assert metrics["aliquot_scheduler_pods", (("stage", "bound"),)] == len(want)
    assert metrics["aliquot_scheduler_gpus_overcommitted", ()] == 0
    assert metrics["aliquot_scheduler_forged_assignments_total", ()] == 0


def judge_agent(moment, usage, node):
    """The agent of the real node has records of just its pods."""
    told = {}
    for gpu in usage["gpus"]:
        for holder in gpu["holders"]:
            told.setdefault(holder["pod"], set()).add(gpu["uuid"])
    want = {name_of(p): {d["uuid"] for d in devices_of(p)} for p in moment.bound() if p["spec"]["nodeName"] == node}
    want |= {name_of(p): {uuid for uuid, _, _ in results_of(moment, resource_claim_of(moment, p))}
             for p in moment.claiming() if p["spec"]["nodeName"] == node}
    assert told == want, f"the agent: {told}, by the pods: {want}"


# ---- signatures ----

def judge_signature(seen, key_file):
    annotations = seen["metadata"]["annotations"]
    text = (f'aliquot-assignment-v1\n{seen["metadata"]["uid"]}\n{seen["spec"]["nodeName"]}\n'
            f'{annotations[kit.ASSIGNMENT]}')
    with tempfile.NamedTemporaryFile() as message, tempfile.NamedTemporaryFile() as signature:
        message.write(text.encode())
        signature.write(base64.b64decode(annotations[kit.SIGNATURE]))
        message.flush()
        signature.flush()
        done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key_file, "-rawin", "-in",
                               message.name, "-sigfile", signature.name], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, f'{seen["metadata"]["name"]}: {done.stdout}'


def judge_signatures(api, pods):
    public = api.get(kube.core("configmaps", kit.SYSTEM, "aliquot-signing"))["data"]["public.pem"]
    with tempfile.NamedTemporaryFile("w") as key_file:
        key_file.write(public)
        key_file.flush()
        for seen in pods:
            judge_signature(seen, key_file.name)


# ---- over time ----

class Watcher:
    """Judges every moment that the load looks at, with what it remembers of those before."""

    WAITED = 60     # seconds in which a pod of higher priority has waited before an eviction

    def __init__(self):
        self.claiming = 0       # pods that were bound with a ResourceClaim
        self.assigned = {}      # {UID: assignment, or what its ResourceClaim has}: it never changes
        self.evicted = set()
        self.whole_gangs = set()
        self.waiting = []       # [(when, priority)] of pods that waited, or may have between two looks
        self.known = set()      # UIDs
        self.looks = 0

    @property
    def bound(self):
        return len(self.assigned)

    def look(self, moment):
        judge_cards(moment)
        judge_gangs(moment, self.whole_gangs)
        for pod in moment.bound():
            text = note(pod, kit.ASSIGNMENT)
            if pod["metadata"]["uid"] not in self.assigned and note(pod, GIVEN):
                judge_pod(moment, pod)
            was = self.assigned.setdefault(pod["metadata"]["uid"], text)
            assert was == text, f"{name_of(pod)} had {was}, and now {text}"
        for pod in moment.claiming():
            found = judge_claiming(moment, pod)
            self.claiming += pod["metadata"]["uid"] not in self.assigned
            was = self.assigned.setdefault(pod["metadata"]["uid"], found)
            assert was == found, f"{name_of(pod)} had {was}, and now {found}"
        self.judge_evictions(moment)
        self.looks += 1

    def judge_evictions(self, moment):
        """A pod is evicted only for a waiting pod of higher priority."""
        at = time.monotonic()
        self.waiting = [(t, p) for t, p in self.waiting if at - t < self.WAITED]
        waits = [p["spec"].get("priority", 0) for p in moment.pods
                 if not p["spec"].get("nodeName") or p["metadata"]["uid"] not in self.known]
        self.waiting.append((at, max(waits, default=0)))
        self.known |= {p["metadata"]["uid"] for p in moment.pods}
        for pod in moment.pods:
            entry = kit.condition(pod, "DisruptionTarget")
            if entry.get("status") != "True" or pod["metadata"]["uid"] in self.evicted:
                continue
            # Our own, of the eviction API that carries it out, or kube-scheduler's.
            assert entry["reason"] in ("PreemptionByScheduler", "EvictionByEvictionAPI"), f"{name_of(pod)}: {entry}"
            assert any(p > pod["spec"].get("priority", 0) for _, p in self.waiting), \
                f"{name_of(pod)} is evicted, and no pod of higher priority waits: {entry}"
            self.evicted.add(pod["metadata"]["uid"])
