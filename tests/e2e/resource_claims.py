# SPDX-License-Identifier: Apache-2.0
"""ResourceClaims of Aliquot's driver: templates, pods that use them, and the cards of nodes that have no agent."""

import secrets

from cluster import api as kube
from kit import SYSTEM, Space, assignment_of, quantity

API = "/apis/resource.k8s.io/v1"
SLICES = f"{API}/resourceslices"
CLAIMS = f"{API}/resourceclaims"
DRIVER = "gpu.elasticgpu.io"            # and the class of claims that aliquot-scheduler places
FIRST_FIT = "first-fit." + DRIVER       # that of claims that kube-scheduler allocates
GATE = {"name": DRIVER + "/placement"}
BY_ALIQUOT, BY_KUBE_SCHEDULER = "aliquot", "kube-scheduler"
MI = 1 << 20


def path(space, kind, name=None):
    return f"{API}/namespaces/{space.name}/{kind}" + (f"/{name}" if name else "")


# ---- claims and their pods ----

def spec(device_class=DRIVER, where=None, **amounts):
    """A request for a device of the class. where: a selector in CEL."""
    exactly = {"deviceClassName": device_class} | ({"capacity": {"requests": amounts}} if amounts else {})
    if where:
        exactly["selectors"] = [{"cel": {"expression": where}}]
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(space, device_class=DRIVER, **request):
    name = "t-" + secrets.token_hex(3)
    space.api.create(path(space, "resourceclaimtemplates"), {"metadata": {"name": name},
                                                             "spec": {"spec": spec(device_class, **request)}})
    return name


def standing(space, name=None, device_class=DRIVER, **request):
    """A claim that is no pod's own."""
    name = name or "c-" + secrets.token_hex(3)
    space.api.create(path(space, "resourceclaims"), {"metadata": {"name": name}, "spec": spec(device_class, **request)})
    return name


def claims(space):
    return space.api.get(path(space, "resourceclaims"))["items"]


def no_claim_left(space):
    space.api.wait_none(path(space, "resourceclaims"), 60)


def using(body, made_of, gated=True):
    """The pod, whose first container uses a claim of that template."""
    first, *others = body["spec"]["containers"]
    body["spec"]["containers"] = [dict(first, resources=dict(first.get("resources", {}), claims=[{"name": "gpu"}])), *others]
    body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": made_of}]
    if gated:
        body["spec"]["schedulingGates"] = [GATE]
    return body


def results(claim):
    """What the driver's devices give to the claim: [(pool, device, percent, bytes)]."""
    found = claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [(r["pool"], r["device"], *(quantity(r["consumedCapacity"][k]) for k in ("core", "memory")))
            for r in found if r["driver"] == DRIVER]


def device_name(uuid):
    return uuid.lower()


def held_of_cards(claims, pods):
    """{device: [percent, bytes]} that claims and assignments have together."""
    held = {}
    shares = [(device, core, memory) for claim in claims for _, device, core, memory in results(claim)]
    shares += [(device_name(d["uuid"]), d["core"], d["memory"]) for seen in pods for ds in assignment_of(seen).values() for d in ds]
    for device, core, memory in shares:
        had = held.setdefault(device, [0, 0])
        had[0], had[1] = had[0] + core, had[1] + memory
    return held


# ---- cards ----

def wait_published(world):
    """Until the agent's cards are in ResourceSlices."""
    def there():
        return any(s["spec"]["driver"] == DRIVER and s["spec"].get("devices") for s in world.api.get(SLICES)["items"])
    world.until(there, 30, "the agent publishes its cards")


def wait_registered(world, system=SYSTEM):
    """Until kubelet asks the agent that runs now. What kubelet cannot prepare before, it tries again 60 to 75 s later."""
    place = Space(world, system)

    def asked():
        agents = [p["metadata"]["name"] for p in world.api.get(place.path)["items"]
                  if p["metadata"]["name"].startswith("aliquot-agent") and "deletionTimestamp" not in p["metadata"]]
        return len(agents) == 1 and "kubelet has taken the DRA driver" in place.logs(agents[0], "agent")
    world.until(asked, 40, "kubelet has registered the agent's driver")


def _capacity(value, step, least):
    return {"value": str(value), "requestPolicy": {"default": str(value), "validRange": {
        "min": str(least), "step": str(step), "max": str(value)}}}


def _device(card, allocator):
    return {"name": device_name(card["uuid"]), "allowMultipleAllocations": True,
            "attributes": {"uuid": {"string": card["uuid"]}, "model": {"string": card["model"]}, "index": {"int": card["index"]},
                           "allocator": {"string": allocator}},
            "capacity": {"core": _capacity(100, 1, 0), "memory": _capacity(card["memory"] // MI * MI, MI, MI)}}


def slice_name(node):
    return f"{node}-{DRIVER}-0"


def publish(api, node, allocator=BY_ALIQUOT):
    """The ResourceSlice of a node without an agent, with the cards of its GPU objects, as its agent would write it."""
    cards = sorted((g["spec"] for g in api.get(kube.gpus())["items"] if g["spec"]["nodeName"] == node), key=lambda c: c["index"])
    there = [s for s in api.get(SLICES)["items"] if s["metadata"]["name"] == slice_name(node)]
    generation = there[0]["spec"]["pool"]["generation"] + 1 if there else 1
    made = {"driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": [_device(card, allocator) for card in cards]}
    if there:
        api.patch(f"{SLICES}/{slice_name(node)}", {"spec": made})
    else:
        api.create(SLICES, {"metadata": {"name": slice_name(node)}, "spec": made})


def withdraw(api, node):
    api.delete(f"{SLICES}/{slice_name(node)}")
