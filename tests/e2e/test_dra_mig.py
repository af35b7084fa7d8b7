# SPDX-License-Identifier: Apache-2.0
"""ResourceClaims on MIG instances: in shares placed by aliquot-scheduler, and made for claims that kube-scheduler allocates."""

import contextlib
import json
import secrets

import kit
import pytest
import resource_claims
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import GiB, container, pod
from resource_claims import DRIVER, FIRST_FIT, SLICES, no_claim_left, template, wait_registered
from test_claim_allocation import results
from test_mig import LABEL, MACHINE, MAKE_3G, divided, instances, label, nvml, object_of, reached, wait_state
from test_own_scheduler import OWN, named
from test_whole import FILE, configure

CONFIGS = "/run/aliquot/mig-parted.yaml"
SHARED = "version: v1\naliquot: {cards: [{devices: [0, 2], mode: share}]}\n"
DYNAMIC = """version: v1
aliquot:
  mig: {dynamic: true}
  cards:
  - {devices: [0], mode: share, allocator: kube-scheduler}
  - {devices: [1], allocator: kube-scheduler}
"""
READY = 120     # seconds, with kubelet's second try


@pytest.fixture(scope="module")
def machine(build, tmp_path_factory):
    """Cards 0 and 1 are in MIG mode, card 2 is whole. What card 0 has is given out in shares."""
    options = aliquot.with_options(tmp_path_factory.mktemp("manifests") / "deploy", f"--config-file={FILE}",
                                   "--mig-config-file=" + CONFIGS)
    with Cluster("dra-mig-" + secrets.token_hex(2), stock_scheduler=True) as cluster:
        cluster.up()
        configure(cluster, "version: v1\n")
        aliquot.install(cluster, str(build), gpus=1, machine=MACHINE, programs=[build / "tests/e2e/probe"],
                        deploy=aliquot.with_components(cluster, "dra", directory=options))
        installed = kit.World(cluster, build)
        configure(cluster, SHARED)
        installed.until(lambda: named(installed, container(core=10)) == OWN, 30, "pods are sent to the own scheduler")
        wait_devices(installed, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2, "": 1})
        yield installed
        installed.wait_cleared()


def slices(machine):
    return [s["spec"] for s in machine.api.get(SLICES)["items"] if s["spec"]["driver"] == DRIVER]


def devices(machine):
    """{name: device} of the slices, and those that are no instance under the profile ""."""
    return {device["name"]: device for spec in slices(machine) for device in spec.get("devices", [])}


def profile_of(device):
    return device["attributes"].get("profile", {}).get("string", "")


def wait_devices(machine, wanted, timeout=30):
    """So many of each profile."""
    def there():
        found = {}
        for device in devices(machine).values():
            found[profile_of(device)] = found.get(profile_of(device), 0) + 1
        return found == wanted
    machine.until(there, timeout, f"{wanted} in ResourceSlices")


def using(room, name, of_class=DRIVER, where=None, **amounts):
    """A pod with a claim for a device of that class."""
    made_of = template(room, of_class, where=where, **amounts)
    return resource_claims.using(pod(name, container()), made_of, gated=of_class == DRIVER)


def total(room, seen):
    with room.tenant(seen) as tenant:
        (device,) = tenant.driver()["devices"]
        return device["total"]


def uuid_of(machine, profile):
    (uuid,) = (uuid for uuid, (own, _) in instances(machine).items() if own == profile)
    return uuid


def test_shares_of_an_instance(machine, room):
    """As pods with resource names have them, beside one; the agent is killed while a claim has its share."""
    whole, seen = room.start_all([pod("whole", container(core=100)), using(room, "claim", core="30", memory="30Gi")], READY)
    uuid = uuid_of(machine, "3g.40gb")
    assert [r["device"] for r in results(room)] == [uuid.lower()]
    device = devices(machine)[uuid.lower()]
    assert device["attributes"]["parentUUID"] == {"string": object_of(machine, uuid)["spec"]["parent"]}
    assert device["capacity"]["core"]["value"] == "42" and device["allowMultipleAllocations"]
    assert list(reached(machine, room, seen)) == [uuid] and total(room, seen) == 30 * GiB
    beside = room.start(pod("beside", container(core=12, memory=8 * GiB)), READY)
    assert [d["uuid"] for d in kit.assignment_of(beside)["main"]] == [uuid]     # both ways share it
    with room.tenant(seen) as tenant:
        before = machine.agent.kill()
        machine.agent.wait_restarted(before)
        wait_registered(machine)
        used = tenant.info()["total"] - tenant.info()["free"]
        assert tenant.alloc(30 * GiB - used) == 0 and tenant.alloc(1) == kit.OUT_OF_MEMORY
    room.create(using(room, "late", core="30", memory="10Gi"))
    assert "no GPU has enough free compute" in room.event("late", "GPUClaimWaits")
    room.delete("claim", "beside")
    assert total(room, room.running("late", READY)) == 10 * GiB
    room.delete("late", "whole")
    no_claim_left(room)


def test_an_instance_is_destroyed_under_a_claim(machine, room):
    """Its container fails and its device goes. The instance that is made again in its place has the same UUID: the share is the
    first claim's until that ends, and then the next one's."""
    agent = machine.agent.restarts()
    room.start(pod("whole", container(core=100)), READY)
    seen = room.start(using(room, "claim", core="40", memory="30Gi"), READY)
    uuid = uuid_of(machine, "3g.40gb")
    gi = str(object_of(machine, uuid)["spec"]["mig"]["gpuInstance"])
    with room.tenant(seen) as tenant:
        assert tenant.alloc(GiB) == 0
        machine.aliquot("sim", "inject", "destroy", gi, "--gpu", "0")
        assert tenant.alloc(GiB) != 0
    wait_devices(machine, {"2g.20gb": 1, "1g.10gb": 2, "": 1})
    room.create(using(room, "next", core="40", memory="30Gi"))
    room.event("next", "GPUClaimWaits")
    nvml(machine, MAKE_3G)
    wait_devices(machine, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2, "": 1})
    assert uuid_of(machine, "3g.40gb") == uuid
    room.event("next", "card 0: 2 %")
    room.delete("claim")
    again = room.running("next", READY)
    assert list(reached(machine, room, again)) == [uuid] and total(room, again) == 30 * GiB
    room.delete("next", "whole")
    no_claim_left(room)
    assert machine.agent.restarts() == agent


def test_a_card_is_divided_when_no_claim_has_it(machine, room):
    """Its MIG mode is refused until then; the slices follow, there and back."""
    halves = {"halves": divided({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, {"1g.10gb": 7}, {"3g.40gb": 2}),
              "before": divided({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, {"1g.10gb": 7}, None)}
    machine.cluster.on_node(["sh", "-c", f"cat > {CONFIGS}"], input=json.dumps({"version": "v1", "mig-configs": halves}))
    room.start(using(room, "claim"), READY)
    try:
        label(machine, "halves")
        wait_state(machine, "pending", "halves", f"pod {room.name}/claim")
        wait_devices(machine, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2, "": 1})
        room.delete("claim")
        wait_state(machine, "success", "halves")
        wait_devices(machine, {"3g.40gb": 3, "2g.20gb": 1, "1g.10gb": 2})
        label(machine, "before")
        wait_state(machine, "success", "before")
        wait_devices(machine, {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2, "": 1})
    finally:
        machine.api.patch(kube.core("nodes", name=machine.cluster.node), {"metadata": {"labels": {LABEL: None}}})
    no_claim_left(room)


@contextlib.contextmanager
def kept_by_kube_scheduler(machine):
    """Both cards in MIG mode, which are divided for claims."""
    configure(machine.cluster, DYNAMIC)
    try:
        yield
    finally:
        configure(machine.cluster, SHARED)


def on(card, profile=None):
    attributes = f'device.attributes["{DRIVER}"]'
    return f"{attributes}.index == {card}" + (f' && has({attributes}.profile) && {attributes}.profile == "{profile}"'
                                              if profile else "")


def test_a_card_is_whole_shared_or_divided(machine, room):
    """By counters, which kube-scheduler obeys; what a claim gets is made when it is prepared."""
    with kept_by_kube_scheduler(machine):
        machine.until(lambda: sum("sharedCounters" in spec for spec in slices(machine)) == 1 and
                      len({d["attributes"]["parentUUID"]["string"] for d in devices(machine).values() if profile_of(d)}) == 2,
                      30, "two cards with counters")
        # Card 1, given out whole: four of its idle instances go for the claim's.
        four = room.start(using(room, "four", FIRST_FIT, on(1, "4g.40gb")), READY)
        assert [own for own in reached(machine, room, four).values()] == ["4g.40gb"]
        beside = room.start(using(room, "beside", FIRST_FIT, on(1, "1g.10gb")), READY)
        assert [own for own in reached(machine, room, beside).values()] == ["1g.10gb"]
        assert total(room, four) > 3 * total(room, beside)
        room.create(using(room, "all", FIRST_FIT, on(1, "7g.80gb")))
        assert "cannot allocate all claims" in room.unschedulable("all")
        before = machine.agent.kill()
        machine.agent.wait_restarted(before)
        wait_registered(machine)
        room.delete("four", "beside")
        assert [own for own in reached(machine, room, room.running("all", READY)).values()] == ["7g.80gb"]
        # Card 0, given out in shares: two claims share all of it, and no instance is made beside them.
        shares = room.start_all([using(room, name, FIRST_FIT, on(0, "7g.80gb"), core="30", memory="20Gi") for name in ("a", "b")], READY)
        assert {own for seen in shares for own in reached(machine, room, seen).values()} == {"7g.80gb"}
        assert [total(room, seen) for seen in shares] == [20 * GiB, 20 * GiB]
        room.create(using(room, "part", FIRST_FIT, on(0, "1g.10gb"), core="10", memory="4Gi"))
        assert "cannot allocate all claims" in room.unschedulable("part")
        room.delete("a", "b")
        part = room.running("part", READY)
        assert list(reached(machine, room, part).values()) == ["1g.10gb"] and total(room, part) == 4 * GiB
        room.delete("part", "all")
        no_claim_left(room)
