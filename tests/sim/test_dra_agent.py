# SPDX-License-Identifier: Apache-2.0
"""The agent as kubelet's DRA driver on cards in MIG mode: on simulated cards, with an API server and a kubelet of the test."""

import json
import re

import grpc_raw
import pytest
from sim_kit import wait_until
from test_mig_command import end, hold

DRIVER = "gpu.elasticgpu.io"
SERVICE = b"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
# Card 0 has all of its instances, card 1 has one, and card 2 is not in MIG mode.
MACHINE = "[gpu 0-2]\nmodel = A100\n[gpu 0]\nmig = 3g.40gb,2g.20gb,1g.10gb,1g.10gb\n[gpu 1]\nmig = 1g.10gb\n"
CARDS, INSTANCES = 3, 5
FAST = "interval: 100ms"


def division(whole):
    """As the machine is, with card 2 whole or in halves."""
    parts = {0: {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, 1: {"1g.10gb": 1}, 2: {} if whole else {"3g.40gb": 2}}
    return [{"devices": [card], "mig-enabled": bool(wanted), "mig-devices": wanted} for card, wanted in parts.items()]


DIVISIONS = {"whole": division(True), "halves": division(False)}


class Claims:
    """What a scheduler allocates, and kubelet prepares."""

    def __init__(self, world):
        self.world, self.n = world, 0

    def slices(self):
        return [s["spec"] for s in self.world.api.find("resourceslices").values()]

    def devices(self):
        return {d["name"]: d for spec in self.slices() for d in spec.get("devices", [])}

    def wait(self, *patterns):
        """Until the devices are those that the patterns name, each at least one and nothing else."""
        def there():
            names = set(self.devices())
            found = [{name for name in names if re.fullmatch(pattern, name)} for pattern in patterns]
            return all(found) and names == set().union(*found)
        try:
            wait_until(there)
        except AssertionError:
            pytest.fail(f"{patterns}: {sorted(self.devices())}\n{(self.world.path / 'log').read_text()[-3000:]}")

    def allocate(self, device, core=None, memory=None):
        """A claim that has the device or a share of it, and its pod."""
        self.n += 1
        uid, name = f"0b1c2d3e-4f50-4a61-8b72-{self.n:012}", f"c{self.n}"
        share = {"shareID": uid, "consumedCapacity": {"core": str(core), "memory": memory}} if memory else {}
        self.world.api.put("resourceclaims", {
            "metadata": {"name": name, "namespace": "ns", "uid": uid},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "first-fit." + DRIVER}}]}},
            "status": {"reservedFor": [{"resource": "pods", "name": name, "uid": "pod-" + name}], "allocation": {"devices": {
                "results": [{"request": "gpu", "driver": DRIVER, "pool": "n", "device": device, **share}]}}}})
        self.world.api.put("pods", {
            "metadata": {"name": name, "namespace": "ns", "uid": "pod-" + name},
            "spec": {"nodeName": "n", "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                     "containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]},
            "status": {"phase": "Running"}})
        return uid, name

    def call(self, method, claim):
        uid, name = claim
        fields = (grpc_raw.field(i, word.encode()) for i, word in enumerate(("ns", uid, name), 1))
        socket = self.world.kubelet.path / "plugins" / DRIVER / "dra.sock"
        wait_until(socket.exists, what="the driver listens")
        channel = grpc_raw.Channel(str(socket))
        channel.socket.settimeout(60)
        try:
            return channel.call(SERVICE + method, grpc_raw.field(1, b"".join(fields))).decode("latin-1")
        finally:
            channel.close()

    def prepare(self, claim):
        """The UUID of the device that the claim's share is of."""
        answer = self.call(b"NodePrepareResources", claim)
        assert "elasticgpu.io/share=" + claim[0].replace("-", "") in answer, answer
        record = self.world.path / "state/shares" / claim[0].replace("-", "") / "record.json"
        (device,) = json.loads(record.read_text())["devices"]
        return device["uuid"]

    def refused(self, claim):
        answer = self.call(b"NodePrepareResources", claim)
        assert "elasticgpu.io/share=" not in answer, answer
        return answer

    def end(self, claim):
        self.call(b"NodeUnprepareResources", claim)
        for resource in "pods", "resourceclaims":
            key = resource, "ns", claim[1]
            self.world.api.change("DELETED", key, self.world.api.objects[key])

    def profiles(self, card):
        """Of the instances of the card."""
        return sorted(gpu["spec"]["mig"]["profile"] for gpu in self.world.gpus_of(card))


@pytest.fixture
def start(world_of):
    def begin(strategy="none", **keys):
        world = world_of(MACHINE, **{"resource-claims": "aliquot", "mig-label": "off"})
        world.options["mig-config-file"] = world.path / "mig"
        (world.path / "mig").write_text(json.dumps({"version": "v1", "mig-configs": DIVISIONS}))
        (world.kubelet.path / "plugins_registry").mkdir()
        world.configure(health=FAST, strategy=strategy, **keys)
        world.start()
        wait_until(lambda: len(world.api.find("gpus")) == CARDS + INSTANCES, what="all objects are there")
        return Claims(world)
    return begin


DYNAMIC = {"mig": "{dynamic: true}", "cards": "[{devices: [0], mode: share, allocator: kube-scheduler}, "
                                              "{devices: [1], allocator: kube-scheduler}]"}


def name_of(claims, card, profile, start=0):
    return f"{claims.world.uuids()[card].lower()}-{profile.replace('.', '-')}-{start}"


def test_instances_are_made_for_claims(start):
    """Each at its place, in the place of idle ones, and beside those that claims have."""
    claims = start(**DYNAMIC)
    claims.wait(r"gpu-.{36}", r"gpu-.*-7g-80gb-0", r"gpu-.*-4g-40gb-0", r"gpu-.*-3g-40gb-[04]", r"gpu-.*-2g-20gb-[024]",
                r"gpu-.*-1g-20gb-[0246]", r"gpu-.*-1g-10gb-[0-6]", r"gpu-.*-1g-10gb-me-[0-6]")
    (sets,) = [spec["sharedCounters"] for spec in claims.slices() if "sharedCounters" in spec]
    assert [s["name"] for s in sets] == [uuid.lower() for uuid in claims.world.uuids()[:2]]
    one = claims.devices()[name_of(claims, 1, "2g.20gb", 2)]
    assert "allowMultipleAllocations" not in one and "uuid" not in one["attributes"]
    assert set(one["consumesCounters"][0]["counters"]) >= {"memory-slice-2", "memory-slice-3"}
    assert claims.devices()[name_of(claims, 0, "7g.80gb")]["allowMultipleAllocations"]
    # One claim has all of an instance of card 1.
    (idle,) = claims.world.gpus_of(1)
    half = idle["spec"]["mig"]["start"] // 4 * 4
    first = claims.allocate(name_of(claims, 1, "2g.20gb", 4 - half))
    second = claims.allocate(name_of(claims, 1, "3g.40gb", half))
    uuids = {claims.prepare(first), claims.prepare(second)}
    wait_until(lambda: claims.profiles(1) == ["2g.20gb", "3g.40gb"], what="both are made")
    assert uuids == {g["spec"]["uuid"] for g in claims.world.gpus_of(1)}
    # Claims share all of card 0: its instances go.
    third, fourth = (claims.allocate(name_of(claims, 0, "7g.80gb"), 30, "20Gi") for _ in range(2))
    assert claims.prepare(third) == claims.prepare(fourth)
    wait_until(lambda: claims.profiles(0) == ["7g.80gb"], what="the whole card")
    # The share of another claim has ended while the agent was away.
    claims.world.agent.kill()
    claims.world.agent.start()
    late = claims.allocate(name_of(claims, 0, "7g.80gb"), 70, "50Gi")
    claims.end(third)
    assert claims.prepare(late) == claims.prepare(fourth)


@pytest.mark.foreign
@pytest.mark.long
def test_what_is_in_use_is_waited_for(start):
    """A process has an instance in the way of a claim's: the claim gets its own when that ends."""
    claims = start(**DYNAMIC)
    claims.wait(r"gpu-.*")
    uuid = next(g["spec"]["uuid"] for g in claims.world.gpus_of(0) if g["spec"]["mig"]["profile"] == "2g.20gb")
    held = hold(claims.world.node, uuid)
    claim = claims.allocate(name_of(claims, 0, "7g.80gb"), 30, "20Gi")
    assert "is still in use by another process" in claims.refused(claim)
    assert "2g.20gb" in claims.profiles(0)
    end(held)
    claims.prepare(claim)
    wait_until(lambda: claims.profiles(0) == ["7g.80gb"], what="the whole card")


def test_shares_of_instances(start):
    """Those that aliquot-scheduler gives out; the slices follow the configuration and what is destroyed."""
    claims = start(cards="[{devices: [0], mode: share}]")
    claims.wait(r"mig-.*", r"gpu-.{36}")
    (three,) = [d for d in claims.devices().values() if d["attributes"].get("profile") == {"string": "3g.40gb"}]
    uuid = three["attributes"]["uuid"]["string"]
    assert three["attributes"]["parentUUID"] == {"string": claims.world.uuids()[0]}
    claim = claims.allocate(three["name"], 42, "39Gi")
    assert claims.prepare(claim) == uuid
    claims.world.agent.kill()
    claims.world.agent.start()
    assert claims.prepare(claim) == uuid
    gi = next(g["spec"]["mig"]["gpuInstance"] for g in claims.world.gpus_of(0) if g["spec"]["uuid"] == uuid)
    claims.world.node.inject("destroy", gi, "--gpu", 0)
    wait_until(lambda: three["name"] not in claims.devices(), what="the device goes")
    claims.world.reconfigure(health=FAST, strategy="none", cards="[{devices: [0, 1], allocator: none}]")
    claims.wait(r"gpu-.{36}")


def test_an_instance_for_one_claim(start):
    """kubelet does not give it out, and it is in no shares: a claim that kube-scheduler allocates has all of it."""
    claims = start(cards="[{devices: [0], allocator: kube-scheduler}]")
    claims.wait(r"mig-.*", r"gpu-.{36}")
    two = next(d for d in claims.devices().values() if d["attributes"].get("profile") == {"string": "2g.20gb"})
    assert "allowMultipleAllocations" not in two and two["attributes"]["allocator"] == {"string": "kube-scheduler"}
    assert claims.prepare(claims.allocate(two["name"])) == two["attributes"]["uuid"]["string"]
    claims.world.reconfigure(health=FAST, strategy="mixed", cards="[{devices: [0], allocator: kube-scheduler}]")
    wait_until(lambda: not any(n.startswith("mig-") and n != two["name"] for n in claims.devices()),
               what="kubelet gives the others out")


def test_a_card_is_divided_when_no_claim_has_it(start):
    """Its MIG mode stays until then; the slices follow it, there and back."""
    shared = {"health": FAST, "strategy": "none", "cards": "[{devices: [0, 2], mode: share}]"}
    claims = start(cards=shared["cards"])
    claims.wait(r"mig-.*", r"gpu-.{36}")
    card = claims.world.uuids()[2]
    claim = claims.allocate(card.lower(), 100, "70Gi")
    assert claims.prepare(claim) == card
    log = claims.world.path / "log"

    def reached(text):
        wait_until(lambda: f"MIG configuration {text}" in log.read_text(), what=text)
    claims.world.reconfigure(**shared, mig="{config: halves}")
    reached("halves: pending")
    assert card.lower() in claims.devices()
    claims.end(claim)
    reached("halves: success")
    claims.wait(r"mig-.*")
    claims.world.reconfigure(**shared, mig="{config: whole}")
    reached("whole: success")
    claims.wait(r"mig-.*", r"gpu-.{36}")
