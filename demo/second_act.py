# SPDX-License-Identifier: Apache-2.0
"""The same cluster without the extender: a kube-scheduler without configuration, and shares by ResourceClaims, beside the pods
with resource names that run already."""

import os
import re

from cluster import aliquot, api as kube
from kit import quantity
from pods import claiming, devices_of, manifest, running
from resource_claims import DRIVER, SLICES, device_name, held_of_cards, results

GiB = 1 << 30
BOUND = 60      # seconds
ONLY_CLAIMS = os.path.join(os.path.dirname(aliquot.DEPLOY), "dra-only")
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
TEMPLATE = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: {name}}}
spec:
  spec:
    devices:
      requests:
        - name: gpu
          exactly:
            deviceClassName: {device_class}
            capacity: {{requests: {{core: "{core}", memory: {memory}Gi}}}}
"""


def first_fit(free, requests):
    """Which card each would get from an allocator that takes the first one with room; None: no card has it."""
    left, found = {card: list(amounts) for card, amounts in free.items()}, []
    for core, memory in requests:
        card = next((c for c, (c_free, m_free) in left.items() if c_free >= core and m_free >= memory), None)
        if card:
            left[card][0], left[card][1] = left[card][0] - core, left[card][1] - memory
        found.append(card)
    return found


class SecondAct:
    def __init__(self, demo):
        self.demo = demo
        self.n = demo.n
        self.cluster = demo.cluster

    @property
    def api(self):
        return self.cluster.api

    # ---- what is read ----

    def cards(self):
        """{device: UUID}, in the order in which an allocator finds them."""
        devices = [d for s in self.api.get(SLICES)["items"] if s["spec"]["driver"] == DRIVER for d in s["spec"]["devices"]]
        return {d["name"]: d["attributes"]["uuid"]["string"] for d in devices}

    def claim_of(self, name):
        (status,) = self.demo.pod(name)["status"]["resourceClaimStatuses"]
        return self.api.get(f"{CLAIMS}/{status['resourceClaimName']}")

    def card_of(self, name):
        """The device that the pod's claim has."""
        ((_, device, _, _),) = results(self.claim_of(name))
        return device

    def held(self):
        """{device: [percent, bytes]} of claims and of pods with resource names together."""
        return held_of_cards(self.api.get(CLAIMS)["items"], self.api.get(kube.pods())["items"])

    def free(self):
        held = self.held()
        return {card: (100 - held.get(card, (0, 0))[0], 80 * GiB - held.get(card, (0, 0))[1]) for card in self.cards()}

    # ---- what is done ----

    def template(self, name, core, memory, show=False):
        text = TEMPLATE.format(name=name, device_class=DRIVER, core=core, memory=memory)
        if show:
            self.n.show(f"cat {name}.yaml", text)
        self.cluster.kubectl("apply", "-f", "-", input=text)

    def create(self, name, core, memory, *arguments, show=False):
        self.n.say(f"{name} claims {core} % of a card and {memory} GiB of its memory")
        self.template(name, core, memory, show)
        self.api.create(kube.pods(), claiming(name, name, *arguments))

    def start(self, name, *request, show=False):
        self.create(name, *request, show=show)
        return self.demo.running(name)

    def end(self, *names):
        self.cluster.kubectl("delete", "pod", *names, "--wait=false")
        for name in names:
            self.api.wait(kube.pods(), name, lambda pod: pod is None, BOUND, f"pod {name} gone")

    def apply(self, directory):
        aliquot.apply(self.cluster, directory)
        self.cluster.kubectl("rollout", "status", "-n", aliquot.SYSTEM, "deployment/aliquot-scheduler", f"--timeout={BOUND}s")

    def restart_kube_scheduler(self, stock):
        self.cluster.stock_scheduler = stock
        self.cluster.restart("kube-scheduler")
        line = self.cluster.on_node(["ps", "-o", "args=", "-C", "kube-scheduler"]).stdout
        self.n.show("ps -o args= -C kube-scheduler", line)
        return line

    # ---- the scenes ----

    def without_extender(self):
        self.n.step("The second act, without the extender: kube-scheduler starts anew, with no configuration")
        self.n.say("dave and erin end. alice and bob, placed by the extender, run on.")
        self.end("dave", "erin")
        line = self.restart_kube_scheduler(stock=True)
        self.n.claim("kube-scheduler is a stock one: no configuration file, no extender",
                     line.strip() and "--config" not in line, line)
        self.n.show("kubectl apply -k deploy/dra-only", "(DeviceClasses, rights, policies, an option of agent and scheduler)")
        self.apply(ONLY_CLAIMS)
        for _, seen in self.api.watch(SLICES, BOUND):
            if seen["spec"]["driver"] == DRIVER and seen["spec"].get("devices"):
                break
        self.demo.kubectl("get", "resourceslices")
        table = self.api.get(SLICES)["items"]
        shared = [d for s in table for d in s["spec"]["devices"] if d.get("allowMultipleAllocations")
                  and {k: quantity(v["value"]) for k, v in d["capacity"].items()} == {"core": 100, "memory": 80 * GiB}]
        self.n.claim("one kubectl apply -k, and both cards are in a ResourceSlice: 100 core and 80Gi each, to be shared",
                     len(shared) == 2, table)

    def beside_names(self):
        self.n.step("A share by a ResourceClaim, on the card of alice and bob")
        before = self.held()
        frida, report = self.start("frida", 40, 30, "--bytes", "16Gi", "--over", "20Gi", show=True)
        claim, card = self.claim_of("frida"), self.card_of("frida")
        self.demo.kubectl("get", "resourceclaim", claim["metadata"]["name"], "-o",
                          "jsonpath={.status.allocation.devices.results}")
        self.n.claim("the status of frida's claim names the card, 40 core and 30Gi",
                     [r[2:] for r in results(claim)] == [(40, 30 * GiB)], claim)
        self.n.claim("it is the card of alice and bob: 60 % by resource names and 40 % by a claim are all of it",
                     before.get(card) == [60, 40 * GiB] and self.held()[card] == [100, 70 * GiB], (before, self.held()))
        self.demo.check_view("frida", 30 * GiB, [self.cards()[card]], report)
        self.demo.check_greedy("frida", {name: (self.demo.pod(name), report) for name in ("alice", "bob", "frida")})
        self.n.say("frida ends.")
        self.end("frida")

    def best_fit(self):
        self.n.step("Placement by card, which kube-scheduler itself does not have")
        self.start("gustav", 80, 60)
        self.n.claim("gustav has the other card", self.free()[self.card_of("gustav")] == (20, 20 * GiB), self.free())
        free, requests = self.free(), {"hilda": (20, 20), "ivan": (40, 40)}
        for name, request in requests.items():
            self.start(name, *request)
        naive = first_fit(free, [(core, memory * GiB) for core, memory in requests.values()])
        cards = {name: self.card_of(name) for name in ("gustav", *requests)}
        self.n.say("Free before: " + ", ".join(f"{core} % and {memory // GiB} GiB" for core, memory in free.values()))
        self.n.claim("hilda fills gustav's card and ivan that of alice and bob; by first fit ivan would have had no room",
                     cards["hilda"] == cards["gustav"] != cards["ivan"] and naive[1] is None, (naive, cards, free))
        self.n.claim("no card is given out twice: both are at 100 %, by claims and resource names together",
                     sorted(core for core, _ in self.held().values()) == [100, 100], self.held())

    def wait_for_room(self):
        self.n.step("A claim that no card has room for")
        self.create("jana", 50, 40)
        event = self.demo.own_event("jana")
        self.n.say("Aliquot's event: " + event)
        self.n.claim("jana's pod stays Pending, and an Event says, card by card, what is free",
                     not running(self.demo.pod("jana")) and len(re.findall(r"card \d+: \d+ %, \d+", event)) == 2, event)
        self.n.say("gustav ends:")
        self.end("gustav")
        _, report = self.demo.running("jana")
        self.n.claim("jana starts by itself then, and computes", report.get("saxpy") == "ok", report)

    def both_ways(self):
        self.n.step("The extender comes back: both ways are open at once")
        self.restart_kube_scheduler(stock=False)
        self.n.show("kubectl apply -k .    # deploy/base with the component deploy/dra", "(aliquot-scheduler beside kube-scheduler)")
        self.apply(aliquot.with_components(self.cluster, "dra"))
        self.n.say("karl asks by resource names, for 30 % and 20 GiB")
        karl, _ = self.demo.start(manifest("karl", 30, 20))
        ((card, core),) = [(device_name(d["uuid"]), d["core"]) for d in devices_of(karl)]
        whole = card == self.card_of("jana") == self.card_of("hilda") and self.held()[card][0] == 100
        self.n.claim("karl gets what the claims of hilda and jana have left of their card, which is now at 100 %",
                     core == 30 and whole, self.held())
        self.demo.show_gpus(("alice", "bob", "hilda", "ivan", "jana", "karl"))
        self.end("hilda", "ivan", "jana")
        self.api.wait_none(CLAIMS, BOUND)
        table = self.demo.kubectl("get", "resourceclaims")
        self.n.claim("when their pods end, the claims are gone, and what they had is free",
                     sorted(core for core, _ in self.held().values()) == [30, 60], table)

    def run(self):
        self.without_extender()
        self.beside_names()
        self.best_fit()
        self.wait_for_room()
        self.both_ways()
