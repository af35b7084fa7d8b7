# SPDX-License-Identifier: Apache-2.0
"""deploy/dra-only: shares by ResourceClaims alone, with a stock kube-scheduler. Two replicas on any node, of which one acts by its
Lease: it is killed between its writes, and pods, claims and the node change while a share is under way."""

import contextlib
import pathlib
import secrets

import kit
import pytest
from cluster import ApiError, aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import SYSTEM, container, pod
from resource_claims import GATE, claims, no_claim_left, path, standing, template, wait_published
from test_claim_allocation import CARDS, another_node, bound, is_bound, no_card_twice, user

DEPLOYMENT = "/apis/apps/v1/namespaces/aliquot-system/deployments/aliquot-scheduler"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
ACCOUNT = "system:serviceaccount:aliquot-system:aliquot-scheduler"


@pytest.fixture(scope="module")
def world(build):
    with Cluster("claim-days-" + secrets.token_hex(2), stock_scheduler=True) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=CARDS, programs=[build / "tests/e2e/probe"],
                        deploy=str(pathlib.Path(aliquot.DEPLOY).parent / "dra-only"))
        installed = kit.World(cluster, build)
        wait_published(installed)
        yield installed


def uses(name, claim, gated=True, **spec):
    return pod(name, dict(container(), resources={"claims": [{"name": "gpu"}]}),
               resourceClaims=[{"name": "gpu", "resourceClaimName": claim}], **({"schedulingGates": [GATE]} if gated else {}), **spec)


def is_allocated(claim):
    return bool(claim and claim.get("status", {}).get("allocation"))


def all_free(world):
    world.until(lambda: not any(gpu["status"].get("heldBy") for gpu in world.gpus()), 60, "all shares are free")


@contextlib.contextmanager
def without_writes(space, resource, probe):
    """The API server refuses these writes of the scheduler; probe: one of them, without an effect."""
    name = "no-writes-" + secrets.token_hex(3)
    group = "" if resource == "pods" else "resource.k8s.io"
    space.api.create(POLICIES, {"metadata": {"name": name}, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [
            {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": [resource]}]},
        "matchConditions": [{"name": "scheduler", "expression": f"request.userInfo.username == '{ACCOUNT}'"}],
        "validations": [{"expression": "false", "message": f"no {resource} now"}]}})
    space.api.create(POLICIES.replace("policies", "policybindings"), {"metadata": {"name": name}, "spec": {
        "policyName": name, "validationActions": ["Deny"]}})
    try:
        space.world.until(lambda: is_refused(probe, f"no {resource} now"), 30, "the writes are refused")
        yield
    finally:
        space.api.delete(f"{POLICIES.replace('policies', 'policybindings')}/{name}")
        space.api.delete(f"{POLICIES}/{name}")
        space.world.until(lambda: not is_refused(probe, f"no {resource} now"), 30, "the writes are taken again")


def is_refused(call, text):
    try:
        call()
    except ApiError as error:
        return text in error.message
    return False


def without_allocations(space):
    claim = path(space, "resourceclaims", standing(space, core="30"))
    as_scheduler = space.api.as_user(ACCOUNT)
    return without_writes(space, "resourceclaims/status", lambda: as_scheduler.patch(
        claim + "/status", {"status": {"reservedFor": []}}, dryRun="All"))


def without_opened_gates(space):
    """The probe has a gate of another component's, so that nothing is done with it."""
    (name,) = space.create(pod("probe-" + secrets.token_hex(3), schedulingGates=[GATE, {"name": "test/kept"}]))
    as_scheduler = space.api.as_user(ACCOUNT)
    opened = {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE["name"]}]}}
    return without_writes(space, "pods", lambda: as_scheduler.patch(
        f"{space.path}/{name}", opened, kind=kube.STRATEGIC, dryRun="All"))


def claim_when(space, check, what):
    """The one claim of a pod of its own."""
    def found():
        return next((one for one in claims(space) if one["metadata"].get("ownerReferences") and check(one)), None)
    return space.world.until(found, 60, what)


def test_the_replicas_run_anywhere(world, space):
    """In the pods' network, on a node of any kind, and without a kube-scheduler."""
    seen = world.api.get(DEPLOYMENT)["spec"]["template"]["spec"]
    assert "affinity" not in seen and "hostNetwork" not in seen and len(seen["containers"]) == 1
    bound(space, user("one", template(space, core="30")))
    assert world.scheduler.pod()["status"]["podIP"] != world.scheduler.pod()["status"]["hostIP"]
    space.delete("one")
    no_claim_left(space)


def test_the_replica_that_acts_ends(world, space):
    """None asks the other one either, which acts by the Lease alone."""
    made = template(space, core="20")
    bound(space, user("before", made))
    leader = world.scheduler.leader()
    world.api.delete(kube.pods(SYSTEM, leader), gracePeriodSeconds=0)
    names = [f"after-{i}" for i in range(9)]
    bound(space, *(user(name, made) for name in names), timeout=60)
    assert world.scheduler.leader() not in ("", leader)
    assert sum(no_card_twice(space, []).values()) == 200
    space.delete("before", *names)
    no_claim_left(space)


def test_killed_between_finalizer_and_status(world, space):
    with without_allocations(space):
        space.create(user("one", template(space, core="30")))
        claim_when(space, lambda one: one["metadata"].get("finalizers") and not is_allocated(one), "the claim is protected")
        world.scheduler.kill()
    space.wait("one", is_bound, 60, "the pod bound")
    assert sum(no_card_twice(space, []).values()) == 30
    space.delete("one")
    all_free(world)


def test_killed_between_status_and_gate(world, space):
    with without_opened_gates(space):
        space.create(user("one", template(space, core="30")))
        claim = claim_when(space, is_allocated, "the claim is allocated")
        world.scheduler.kill()
        assert GATE in space.get("one")["spec"]["schedulingGates"]
    space.wait("one", is_bound, 60, "the pod bound")
    (after,) = (one for one in claims(space) if is_allocated(one))
    assert after["status"]["allocation"] == claim["status"]["allocation"]
    space.delete("one")
    all_free(world)


def test_killed_before_the_binding(world, space):
    made = template(space, core="60")
    with world.kube_scheduler_stopped():
        space.create(user("one", made), user("other", made))
        world.until(lambda: sum(map(is_allocated, claims(space))) == 2, 60, "both claims are allocated")
        world.scheduler.kill()
    for name in ("one", "other"):
        space.wait(name, is_bound, 60, f"pod {name} bound")
    assert list(no_card_twice(space, []).values()) == [60, 60]
    space.delete("one", "other")
    all_free(world)


def test_a_gated_pod_is_deleted_after_the_allocation(world, space):
    """Kubernetes empties its claim at once, though it is reserved for the pod. The next user of the claim gets a share."""
    claim = path(space, "resourceclaims", standing(space, "kept", core="30"))
    with without_opened_gates(space):
        space.create(uses("first", "kept"))
        world.until(lambda: is_allocated(world.api.get(claim)), 60, "the claim is allocated")
        space.delete("first")
        world.until(lambda: not is_allocated(world.api.get(claim)), 30, "the claim is empty")
        all_free(world)
    bound(space, uses("second", "kept"), timeout=60)
    assert sum(no_card_twice(space, []).values()) == 30
    space.delete("second")
    world.until(lambda: not is_allocated(world.api.get(claim)), 60, "the claim is empty")


def test_a_claim_is_deleted_under_its_pod(world, space):
    """It stays with its share as long as the pod does."""
    claim = path(space, "resourceclaims", standing(space, "kept", core="100"))
    bound(space, uses("user", "kept"))
    space.api.delete(claim)
    seen = space.api.get(claim)
    assert seen["metadata"]["deletionTimestamp"] and is_allocated(seen)
    whole = template(space)
    bound(space, user("whole-0", whole))
    space.create(user("whole-1", whole))
    space.event("whole-1", "GPUClaimWaits")
    space.delete("user")
    space.wait("whole-1", is_bound, 60, "the card's next user bound")
    space.delete("whole-0", "whole-1")
    all_free(world)


@pytest.mark.foreign
@pytest.mark.long
def test_bound_by_another_component(world, space):
    """With a claim that is not allocated yet: it is, on that node, and the pod starts at kubelet's second try."""
    with without_allocations(space):
        space.create(user("one", template(space, core="30"), gated=False, schedulerName="none"))
        claim_when(space, lambda one: True, "the claim is there")
        world.api.create(f"{space.path}/one/binding", {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"}, "target": {
            "apiVersion": "v1", "kind": "Node", "name": world.cluster.node}})
    space.running("one", 240)
    assert sum(no_card_twice(space, []).values()) == 30
    space.delete("one")
    all_free(world)


@pytest.mark.foreign
@pytest.mark.long
def test_a_node_is_cordoned_before_the_binding(world, space):
    """The allocation is taken back, and made anew when the node takes pods again."""
    node = kube.core("nodes", name=world.cluster.node)
    other = [{"key": f"node.kubernetes.io/{why}", "operator": "Exists"} for why in ("not-ready", "unreachable")]
    with another_node(world):
        try:
            with world.kube_scheduler_stopped():
                space.create(user("one", template(space, core="30"), tolerations=other))
                claim_when(space, is_allocated, "the claim is allocated")
                world.api.patch(node, {"spec": {"unschedulable": True}})
            claim_when(space, lambda one: one["metadata"].get("finalizers") and not is_allocated(one), "the allocation is taken back")
            assert not is_bound(space.get("one"))
            assert "they are cordoned" in space.event("one", "GPUClaimWaits: .*cordoned")
            all_free(world)
        finally:
            world.api.patch(node, {"spec": {"unschedulable": False}})
        space.wait("one", is_bound, 60, "the pod bound")
    space.delete("one")
    all_free(world)
