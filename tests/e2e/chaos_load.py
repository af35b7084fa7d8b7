# SPDX-License-Identifier: Apache-2.0
"""What comes and goes while the chaos test breaks things: shares in several dialects, whole cards, claims, gangs,
reservations, pods of higher priority."""

import json
import random
import threading
import time

import chaos_audit as audit
import kit
import resource_claims as dra
from chaos_nodes import UNREACHABLE, own_api
from cluster import api as kube
from kit import CARD, GiB, container, pod

WAITING = 24        # pods more than fit, so that something waits at all times
CHANGES = 3         # pods that go in a turn, when as many wait and the cards are full
FULL = 2.5          # pods on a card: it is; with fewer some go as well, so that no large one stays for ever
TURN = 0.1          # seconds
LOW, HIGH = 100, 1000
HALF = "chaos/half"     # annotation: of a gang that will not be whole
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CLASSES = {"delete": ("Delete", "Immediate"), "retain": ("Retain", "Immediate"),
           "late": ("Delete", "WaitForFirstConsumer")}

# What a container asks, and what it must be given: (cards, percent of each, bytes of each), by docs/dialects.md.
NATIVE = [
    ({kit.CORE: "50", kit.MEMORY: str(40 * GiB)}, (1, 50, 40 * GiB)),
    ({kit.CORE: "10", kit.MEMORY: str(8 * GiB)}, (1, 10, 8 * GiB)),
    ({kit.MEMORY: str(30 * GiB)}, (1, 0, 30 * GiB)),
    ({kit.CORE: "30"}, (1, 30, CARD * 3 // 10)),
]
FOREIGN = [
    ({kit.QGPU_CORE: "25", kit.QGPU_MEMORY: "20"}, (1, 25, 20 * GiB)),
    ({"aliyun.com/gpu-mem": "8"}, (1, 0, 8 * GiB)),
    ({"tencent.com/vcuda-core": "20", "tencent.com/vcuda-memory": "64"}, (1, 20, 16 * GiB)),
    ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "10240", "nvidia.com/gpucores": "40"}, (1, 40, 10 * GiB)),
]
WHOLE = [
    ({kit.CORE: "100"}, (1, 100, CARD)),
    ({"nvidia.com/gpu": "2"}, (2, 100, CARD)),
]
CLAIMED = ({kit.CORE: 20, kit.MEMORY: "10Gi"}, (1, 20, 10 * GiB))
RESERVED = ({kit.CORE: "40"}, (1, 40, CARD * 4 // 10))
RESOURCE_CLAIMS = [
    ({"core": "30", "memory": "20Gi"}, (1, 30, 20 * GiB)),
    ({"core": "10", "memory": "8Gi"}, (1, 10, 8 * GiB)),
    ({"core": "0", "memory": "30Gi"}, (1, 0, 30 * GiB)),
    ({}, (1, 100, CARD)),
]
MEMBER = ({kit.CORE: "25", kit.MEMORY: str(4 * GiB)}, (1, 25, 4 * GiB))


class Load(threading.Thread):
    """Creates and deletes as fast as the cluster takes it, and judges at each turn what the store holds. Whatever
    cannot be reached is tried again."""

    # (how often, what); the sum does not matter
    MENU = [(8, "native"), (6, "foreign"), (2, "whole"), (2, "high"), (2, "template"), (3, "claimed"), (1, "gang"),
            (1, "half_a_gang"), (2, "reserved")]
    BY_CLAIMS = (8, "by_resource_claim")

    def __init__(self, space, seed, claims):
        """claims: pods with ResourceClaims come, too."""
        super().__init__(daemon=True)
        self.space = space
        self.menu = self.MENU + [self.BY_CLAIMS] * claims
        self.templates = []     # names, of RESOURCE_CLAIMS
        self.api = own_api(space.world)
        self.rng = random.Random(seed)
        self.ended = threading.Event()
        self.failure = None
        self.watcher = audit.Watcher()
        self.created = {}       # {kind: how many}
        self.deleted = 0
        self.classes = {word: kit.new_name("chaos-" + word) for word in CLASSES}
        self.priorities = {LOW: kit.new_name("chaos-low"), HIGH: kit.new_name("chaos-high")}
        self.last = None

    # ---- life ----

    def __enter__(self):
        for value, name in self.priorities.items():
            self.api.create(PRIORITIES, {"metadata": {"name": name}, "value": value})
        for word, (reclaim, binding) in CLASSES.items():
            self.api.create(audit.CLASSES, {
                "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass",
                "metadata": {"name": self.classes[word]}, "provisioner": "elasticgpu.io/qgpu", "reclaimPolicy": reclaim, "bindingMode": binding})
        if self.BY_CLAIMS in self.menu:
            self.templates = [dra.template(self.space, **amounts) for amounts, _ in RESOURCE_CLAIMS]
        self.start()
        return self

    def __exit__(self, *exc):
        self.ended.set()
        self.join(60)
        self.clear()
        for name in self.priorities.values():
            self.api.delete(f"{PRIORITIES}/{name}")
        for name in self.classes.values():
            self.api.delete(f"{audit.CLASSES}/{name}")
        for name in self.templates:
            self.api.delete(dra.path(self.space, "resourceclaimtemplates", name))

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive()
        if self.failure:
            raise self.failure

    def told(self):
        """What happened so far, for people."""
        w = self.watcher
        made = ", ".join(f"{n} {k}" for k, n in sorted(self.created.items()))
        return (f"{sum(self.created.values())} times something was made ({made}), {w.bound} pods bound, {w.claiming} of them by "
                f"ResourceClaims, "
                f"{len(w.evicted)} seen to be evicted, {self.deleted} deleted, {len(w.whole_gangs)} gangs, "
                f"{w.looks} looks at everything")

    def run(self):
        while not self.ended.wait(TURN):
            try:
                self.turn()
            except UNREACHABLE:
                self.ended.wait(0.2)
            except Exception as error:      # an AssertionError of the audit, or a mistake in it
                self.failure = error
                return

    def turn(self):
        self.last = moment = audit.Moment(self.api)
        self.watcher.look(moment)
        alive = [p for p in moment.pods if p["metadata"]["namespace"] == self.space.name
                 and "deletionTimestamp" not in p["metadata"]]
        waiting = [p for p in alive if not p["spec"].get("nodeName") and not audit.note(p, HALF)]
        self.take_objects_away(moment)
        for _ in range(WAITING - len(waiting)):
            self.come(moment)
        full = len(alive) - len(waiting) > FULL * len(moment.cards)
        if len(waiting) >= WAITING and (full or self.rng.random() < 0.1):
            self.go(alive, waiting)

    # ---- what comes ----

    def come(self, moment):
        kind = self.rng.choices([k for _, k in self.menu], [n for n, _ in self.menu])[0]
        getattr(self, kind)(moment)
        self.created[kind] = self.created.get(kind, 0) + 1

    def body(self, given, resources=None, priority=LOW, annotations=None):
        return pod(kit.new_name("c"), container(resources=resources), terminationGracePeriodSeconds=1,
                   priorityClassName=self.priorities[priority],
                   annotations=dict(annotations or {}, **{audit.GIVEN: json.dumps(given)}))

    def make(self, request, priority=LOW, annotations=None, labels=None, asks=True):
        resources, given = request
        body = self.body(given, resources if asks else None, priority, annotations)
        body["metadata"]["labels"] = labels or {}
        self.api.create(self.space.path, body)

    def native(self, _):
        self.make(self.rng.choice(NATIVE))

    def foreign(self, _):
        self.make(self.rng.choice(FOREIGN))

    def whole(self, _):
        self.make(self.rng.choice(WHOLE))

    def by_resource_claim(self, _):
        made_of, (_, given) = self.rng.choice(list(zip(self.templates, RESOURCE_CLAIMS)))
        self.api.create(self.space.path, dra.using(self.body(given), made_of, gated=self.rng.random() < 0.7))

    def high(self, _):
        self.make(self.rng.choice(NATIVE + WHOLE), HIGH)

    def template(self, _):
        spec = {"elasticGPUClassName": self.classes["delete"], "resources": {"requests": CLAIMED[0]}}
        self.make(CLAIMED, annotations={audit.TEMPLATE: json.dumps(spec)}, asks=False)

    def claimed(self, moment):
        """An unused claim gets a pod; where there is none, a claim comes."""
        used = {audit.note(p, audit.CLAIM) for p in moment.pods}
        idle = [audit.name_of(c) for c in moment.claims.values() if c["metadata"]["namespace"] == self.space.name
                and audit.name_of(c) not in used and "ownerReferences" not in c["metadata"]
                and "deletionTimestamp" not in c["metadata"]]
        if idle:
            self.make(CLAIMED, annotations={audit.CLAIM: self.rng.choice(idle)}, asks=False)
        else:
            self.api.create(self.claims, {
                "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClaim",
                "metadata": {"name": kit.new_name("claim")},
                "spec": {"elasticGPUClassName": self.classes[self.rng.choice(list(CLASSES))],
                         "resources": {"requests": CLAIMED[0]}}})

    @property
    def claims(self):
        return f"{audit.GROUP}namespaces/{self.space.name}/elasticgpuclaims"

    def gang(self, _, missing=0):
        name, size = kit.new_name("gang"), self.rng.randint(2, 4)
        notes = {HALF: "true"} if missing else {}
        notes |= {"elasticgpu.io/gang": name, "elasticgpu.io/gang-size": str(size), "elasticgpu.io/gang-timeout": "30s",
                 audit.GANG: name, audit.SIZE: str(size)}
        for _ in range(size - missing):
            self.make(MEMBER, annotations=notes)
        if not missing:
            self.watcher.whole_gangs.add(name)      # though no look may have seen all of it

    def half_a_gang(self, moment):
        """It waits for ever; so the one before goes."""
        for seen in moment.pods:
            if audit.note(seen, HALF):
                self.delete(seen)
        self.gang(moment, missing=1)

    def reserved(self, moment):
        """An unused reservation gets its pod; where there is none, a reservation comes."""
        used = {p["metadata"].get("labels", {}).get(audit.QUEUE) for p in moment.pods}
        idle = [n for n in moment.reservations if n not in used]
        if idle:
            self.make(RESERVED, labels={audit.QUEUE: self.rng.choice(idle)})
            return
        name, spec = kit.new_name("r"), {}
        if self.rng.random() < 0.3:
            spec["expires"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.rng.randint(5, 60)))
        self.api.create(audit.RESERVATIONS, {
            "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUReservation", "metadata": {"name": name},
            "spec": dict(spec, resources=RESERVED[0], owners=[{"namespace": self.space.name, "queue": name}])})

    # ---- what goes ----

    def go(self, alive, waiting):
        """Mostly those that run; of those that wait now and then one, and gangs as a whole."""
        chosen = self.rng.sample(alive, min(CHANGES, len(alive)))
        for seen in chosen:
            gang = audit.note(seen, audit.GANG)
            if seen in waiting and self.rng.random() < 0.9:
                continue
            for other in alive:
                if other is seen or (gang and audit.note(other, audit.GANG) == gang):
                    self.delete(other)

    def delete(self, seen):
        self.api.delete(self.space.path + "/" + audit.name_of(seen), gracePeriodSeconds=self.rng.choice([0, 1, 1, 2]))
        self.deleted += 1

    def take_objects_away(self, moment):
        """Claims and reservations, used or not, and what Retain has left."""
        mine = [c for c in moment.claims.values() if "ownerReferences" not in c["metadata"]
                and c["metadata"]["namespace"] == self.space.name and "deletionTimestamp" not in c["metadata"]]
        for there, most, path in (
                ([audit.name_of(c) for c in mine], 6, self.claims),
                (list(moment.reservations), 3, audit.RESERVATIONS),
                ([n for n, e in moment.egpus.items() if audit.phase_of(e) == "Released"], 3, audit.EGPUS)):
            if len(there) > most or (there and self.rng.random() < 0.01):
                self.api.delete(f"{path}/{self.rng.choice(there)}")

    def clear(self):
        """Deletes all that it made; what is protected goes by itself then."""
        moment = audit.Moment(self.api)
        for seen in moment.pods:
            if seen["metadata"]["namespace"] == self.space.name:
                self.api.delete(audit_path(seen), gracePeriodSeconds=0)
        for claim in moment.claims.values():
            self.api.delete(f"{self.claims}/{audit.name_of(claim)}")
        for name in moment.reservations:
            self.api.delete(f"{audit.RESERVATIONS}/{name}")
        for name, egpu in moment.egpus.items():
            if egpu["spec"].get("reclaimPolicy") == "Retain":
                self.api.delete(f"{audit.EGPUS}/{name}")


def audit_path(seen):
    return kube.pods(seen["metadata"]["namespace"], audit.name_of(seen))
