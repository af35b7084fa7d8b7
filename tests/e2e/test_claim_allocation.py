# SPDX-License-Identifier: Apache-2.0
"""ResourceClaims that aliquot-scheduler allocates (deploy/dra) on a cluster whose kube-scheduler has no configuration,
beside pods with resource names, which a kube-scheduler of Aliquot's own places on the same cards."""

import contextlib
import re
import secrets

import chaos
import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import CORE, GiB, assignment_of, container, pod
from resource_claims import DRIVER, GATE, claims, no_claim_left, path, standing, template, wait_published
from test_gates import QUOTAS, set_quota
from test_own_scheduler import OWN, named
from test_usage_access import aliquot_as

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CARDS = 2
OTHER = "node-z"    # a node without cards and without a kubelet
PORT = {"ports": [{"containerPort": 7777, "hostPort": 7777}]}    # of one pod of a node: unknown to Aliquot


@pytest.fixture(scope="module")
def world(build):
    with Cluster("allocation-" + secrets.token_hex(2), stock_scheduler=True) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=CARDS, programs=[build / "tests/e2e/probe"],
                        deploy=aliquot.with_components(cluster, "dra"))
        installed = kit.World(cluster, build)
        installed.until(lambda: named(installed, container(core=10)) == OWN, 30, "pods are sent to the own scheduler")
        wait_published(installed)
        yield installed


def user(name, made_of, gated=True, port=False, **spec):
    """A pod that uses a claim of that template."""
    one = dict(container(), resources={"claims": [{"name": "gpu"}]}, **(PORT if port else {}))
    return pod(name, one, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": made_of}],
               **({"schedulingGates": [GATE]} if gated else {}), **spec)


def is_bound(seen):
    return bool(seen and seen["spec"].get("nodeName"))


def bound(space, *bodies, timeout=kit.START):
    return [space.wait(name, is_bound, timeout, f"pod {name} bound") for name in space.create(*bodies)]


def results(space):
    return [result for claim in claims(space)
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])]


def no_card_twice(space, pods):
    """Claims and assignments together, by the names that slices give to cards."""
    core = {gpu["spec"]["uuid"].lower(): 0 for gpu in space.world.gpus()}
    assert len(core) == CARDS, core
    for device, percent in [*((r["device"], int(r["consumedCapacity"]["core"])) for r in results(space)),
                            *((d["uuid"].lower(), d["core"]) for seen in pods for ds in assignment_of(seen).values() for d in ds)]:
        core[device] += percent
    assert any(core.values()) and all(percent <= 100 for percent in core.values()), core
    return core


@pytest.mark.parametrize("gated", [True, False])
def test_a_share_by_a_claim(world, space, gated):
    seen = space.start(user("one", template(space, core="30"), gated))
    with space.tenant(seen) as tenant:
        assert tenant.info()["total"] == 24 * GiB
        assert tenant.alloc(23 * GiB) == 0 and tenant.alloc(2 * GiB) == kit.OUT_OF_MEMORY
    claim, = claims(space)
    allocation = claim["status"]["allocation"]
    assert allocation["devices"]["results"][0]["consumedCapacity"] == {"core": "30", "memory": "24Gi"}
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert [who["uid"] for who in claim["status"]["reservedFor"]] == [seen["metadata"]["uid"]]
    assert "schedulingGates" not in seen["spec"]
    share = {"claim": claim["metadata"]["name"], "namespace": space.name, "pod": "one", "users": [{"container": "main", "pod": "one"}],
             "containers": [{"container": "main", "resource": {"elasticgpu.io/gpu-core": "30", "elasticgpu.io/gpu-memory": "24Gi"}}]}
    world.until(lambda: any(gpu["status"].get("allocated", {}).get(claim["metadata"]["uid"]) == share for gpu in world.gpus()), 60,
                "GPU.status has the share and its user")
    space.delete("one")
    no_claim_left(space)
    world.until(lambda: not any(gpu["status"].get("allocated") or gpu["status"].get("heldBy") for gpu in world.gpus()), 60,
                "the share is free")


def test_a_selector_chooses_the_card(world, space):
    attributes = f'device.attributes["{DRIVER}"]'
    for index in range(CARDS):
        name = f"card-{index}"
        bound(space, user(name, template(space, where=f"{attributes}.index == {index} && has({attributes}.model)", core="30")))
        card, = (gpu for gpu in world.gpus() if gpu["spec"]["index"] == index)
        assert [result["device"] for result in results(space)] == [card["spec"]["uuid"].lower()]
        space.delete(name)
        no_claim_left(space)
    space.create(user("error", template(space, where=f"{attributes}.nope == 1", core="30")))
    assert "no such key: nope at column 40" in space.event("error", "GPUClaimWaits")
    space.create(user("other", template(space, where=f'{attributes}.model.matches(".*")', core="30")))
    assert "the function or macro matches at column 46" in space.event("other", "GPUClaimWaits")
    space.delete("error", "other")
    no_claim_left(space)


def test_both_ways_share_the_cards(world, space):
    made = template(space, core="30")
    names = space.create(*(user(f"claim-{i}", made) for i in range(3)), *(pod(f"name-{i}", container(core=20)) for i in range(3)))
    pods = [space.wait(name, is_bound, kit.START, f"pod {name} bound") for name in names]
    assert sum(no_card_twice(space, pods).values()) == 150
    # What is left is too little for either.
    space.create(user("late", template(space, core="80")), pod("later", container(core=80)))
    assert "no node has room for the claims of pod late" in space.event("late", "GPUClaimWaits")
    space.unschedulable("later")
    space.begin_delete("later")
    space.delete(*names, "late")
    no_claim_left(space)


def test_a_claim_waits_and_gets_its_turn(world, space):
    whole = template(space)
    bound(space, *(user(f"whole-{i}", whole) for i in range(CARDS)))
    space.create(user("next", whole))
    text = space.event("next", "GPUClaimWaits")
    assert "not enough whole GPUs free" in text and "card 0: 0 %" in text, text
    space.delete("whole-0")
    space.wait("next", is_bound, kit.START, "the next pod bound")
    no_card_twice(space, [])
    space.delete("next", "whole-1")
    no_claim_left(space)


@contextlib.contextmanager
def another_node(world):
    """With room for pods: kube-scheduler takes an allocation back where only that keeps a pod off some node."""
    world.api.create(kube.core("nodes"), {"metadata": {"name": OTHER}})
    try:
        room = {"cpu": "4", "memory": "4Gi", "pods": "10"}
        world.api.patch(kube.core("nodes", name=OTHER) + "/status", {"status": {"capacity": room, "allocatable": room}})
        yield
    finally:
        world.api.delete(kube.core("nodes", name=OTHER))


def test_an_allocation_that_is_taken_back(world, space):
    """A port keeps the pod off, which is not known to Aliquot. The share is free until the node's turn comes again."""
    with another_node(world):
        bound(space, pod("holder", dict(container(), **PORT), **kit.on(world.cluster.node)))
        space.create(user("refused", template(space, core="30"), port=True, tolerations=[{"operator": "Exists"}]))
        world.until(lambda: any(not claim.get("status", {}).get("allocation") and claim["metadata"].get("finalizers")
                                for claim in claims(space)), 30, "the allocation was taken back")
        assert not is_bound(space.get("refused"))
        assert "kube-scheduler took the allocation back" in space.event("refused", "GPUClaimWaits: .*took")
        space.delete("holder")
        space.wait("refused", is_bound, 90, "the pod bound")
        space.delete("refused")
        no_claim_left(space)


def test_a_gated_pod_that_is_deleted(world, space):
    bound(space, *(user(f"whole-{i}", template(space)) for i in range(CARDS)))
    space.create(user("waits", template(space, core="30")))
    space.event("waits", "GPUClaimWaits")
    space.delete("waits", "whole-0", "whole-1")
    no_claim_left(space)


def sharing(name, claim, *containers):
    """A pod of which all these containers use the claim, each at a port of its own."""
    made = [dict(container(one, kit.PORT + i), resources={"claims": [{"name": "gpu"}]}) for i, one in enumerate(containers)]
    return pod(name, *made, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}])


def test_a_share_of_two_pods_on_every_surface(world, space):
    """Once, with all containers that use it; no name of it for another namespace."""
    set_quota(space, guaranteed={CORE: "100"}, max={CORE: "100"})
    claim = standing(space, core="30", memory="20Gi")
    first = space.start(sharing("one", claim, "main", "side-of-one"))
    space.start(sharing("two", claim, "main"))
    users = [{"container": "main", "pod": "one"}, {"container": "side-of-one", "pod": "one"}, {"container": "main", "pod": "two"}]

    def entry():
        return [held for gpu in world.gpus() for held in gpu["status"].get("allocated", {}).values() if held.get("claim") == claim]
    world.until(lambda: [held["users"] for held in entry()] == [users], 30, "GPU.status has all that use the claim")
    with space.tenant(first, kit.PORT + 1) as tenant:
        assert tenant.alloc(GiB) == 0
        lines = world.until(lambda: [" ".join(line.split()) for line in world.aliquot("gpus", "-n", space.name).splitlines()
                                     if "1.0" in line or "(" in line], 30, "what it uses")
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{space.name}/{claim} (ResourceClaim) 30 % 20 GiB"))
        assert lines[at + 1:at + 4] == [f"{space.name}/{pod} ({one})" for pod, one in (("one", "main"), ("one", "side-of-one"), ("two", "main"))]
    holder, = (h for card in world.usage()["gpus"] for h in card["holders"] if h.get("claim") == claim)
    assert [(u["pod"], u["container"]) for u in holder["users"]] == [("one", "main"), ("one", "side-of-one"), ("two", "main")]
    text = world.agent.http("/metrics").decode()
    assert len(re.findall(rf'^aliquot_container_memory_limit_bytes{{.*resource_claim="{claim}"', text, re.M)) == 1
    assert len(re.findall(rf'^aliquot_resource_claim_user_info{{.*resource_claim="{claim}"', text, re.M)) == 3
    told = world.aliquot("explain", "two", "-n", space.name)
    assert re.search(rf"^{claim} +main +gpu-\S+ +30 % +20 GiB", told, re.M) and "not shared" in told
    quota = space.api.get(QUOTAS.format(space.name) + "/quota")
    assert quota["status"]["used"][CORE] == "30", quota

    # One that waits says so to its tenant in the words of its Event.
    space.create(user("late", template(space, core="90")))
    why = space.event("late", "GPUClaimWaits").split(": ", 1)[1]
    assert "limit" in why or "quota" in why, why
    world.until(lambda: why in world.aliquot("explain", "late", "-n", space.name), 30, "explain has the words of the Event")
    page = kit.Scheduler(world, "aliquot-scheduler", 9403).http("/metrics").decode()
    assert re.search(rf'^aliquot_scheduler_shares{{namespace="{space.name}",dialect="ResourceClaim"}} 1$', page, re.M)
    world.until(lambda: re.search(rf'^aliquot_scheduler_resource_claims_waiting{{namespace="{space.name}",reason="held"}} 1$',
                                  kit.Scheduler(world, "aliquot-scheduler", 9403).http("/metrics").decode(), re.M), 30, "it waits")

    # Its tenant sees it without a right to cards, and a neighbour reads no name of it.
    neighbour = kit.Space(world, kit.new_name("t"))
    world.api.create(kube.core("namespaces"), {"metadata": {"name": neighbour.name}})
    for one in (space, neighbour):
        world.cluster.kubectl("create", "serviceaccount", "tenant", "-n", one.name)
        world.cluster.kubectl("create", "rolebinding", "tenant", "-n", one.name, "--clusterrole=edit",
                              f"--serviceaccount={one.name}:tenant")
    own, other = (world.token(one.name, "tenant") for one in (space, neighbour))
    seen = world.until(lambda: (lambda out: claim in out and out)(aliquot_as(world, own, "gpus", "-n", space.name).stdout), 20,
                       "the tenant sees its claim")
    assert f"{space.name}/two (main)" in seen
    assert aliquot_as(world, other, "gpus", "-n", neighbour.name).returncode == 0
    for words in (["gpus"], ["inspect", "pod"], ["explain", "two"], ["top", "--once", "--view", "containers"]):
        for namespace in (space.name, neighbour.name):
            done = aliquot_as(world, other, *words, "-n", namespace)
            assert claim not in done.stdout + done.stderr and "side-of-one" not in done.stdout + done.stderr, done
    world.api.delete(kube.core("namespaces", name=neighbour.name))
    space.delete("one", "two", "late")
    space.api.delete(path(space, "resourceclaims", claim))
    no_claim_left(space)
    world.until(lambda: not entry(), 30, "the share is free")


def test_the_scheduler_is_killed_among_twenty_pods(world, space):
    made = template(space, core="10", memory="4Gi")
    names = []
    for i in range(20):
        names += space.create(user(f"p{i}", made) if i % 2 else pod(f"p{i}", container(core=10, memory=4 * GiB)))
        if i == 9:
            world.scheduler.kill()
    pods = [space.wait(name, is_bound, 120, f"pod {name} bound") for name in names]
    assert sum(no_card_twice(space, pods).values()) == 200
    space.delete(*names)
    no_claim_left(space)


@contextlib.contextmanager
def priorities(world, **values):
    """{word: name of a PriorityClass of that value}"""
    names = {word: kit.new_name(word) for word in values}
    try:
        for word, name in names.items():
            world.api.create(CLASSES, {"metadata": {"name": name}, "value": values[word]})
        yield names
    finally:
        for name in names.values():
            world.api.delete(f"{CLASSES}/{name}")


def test_room_is_made_for_claims(world, space):
    """kube-scheduler evicts no pod for devices. Victims are the least important pods, whichever way they have their shares."""
    with priorities(world, low=10, mid=20, high=1000) as classes:
        bound(space, user("claimed", template(space), priorityClassName=classes["low"]),
              pod("named", container(core=100), priorityClassName=classes["mid"]))
        space.create(user("never", template(space, core="30"), priorityClassName=classes["low"]))
        assert "GPUClaimWaits" in space.event("never", "GPUClaimWaits")
        space.delete("never")
        bound(space, user("first", template(space, core="100"), priorityClassName=classes["high"]))
        assert "claimed" in space.event("first", "Preempting: ")
        space.wait("claimed", lambda seen: seen is None, 30, "the victim gone")
        assert is_bound(space.get("named"))
        bound(space, user("second", template(space, core="30"), priorityClassName=classes["high"]))
        space.wait("named", lambda seen: seen is None, 30, "the other one gone")
        assert sum(no_card_twice(space, []).values()) == 130
        space.delete("first", "second")
        no_claim_left(space)


def test_a_gang_of_both_ways(world, space):
    """None of its claims is allocated before all its members have room."""
    notes = {"elasticgpu.io/gang": "train", "elasticgpu.io/gang-size": "3"}
    bound(space, user("other", template(space, core="40")))
    members = [user("one", template(space)), user("two", template(space, core="50"), gated=False),
               pod("three", container(core=50))]
    for member in members:
        member["metadata"]["annotations"] = notes
    space.create(*members)
    assert "do not fit together yet" in space.event("one", "GPUClaimWaits: gang train: all 3")
    assert len(results(space)) == 1
    space.delete("other")
    pods = [space.wait(member["metadata"]["name"], is_bound, kit.START, "a member bound") for member in members]
    assert sorted(no_card_twice(space, pods).values()) == [100, 100]
    space.delete(*(member["metadata"]["name"] for member in members))
    no_claim_left(space)


def test_chaos(world, space):
    """Some seconds of `make chaos CLAIMS=1`."""
    print(chaos.run(world, space, 0, 11, print, nodes=2, gpus=2, rest=1, claims=True))
