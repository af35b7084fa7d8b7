# SPDX-License-Identifier: Apache-2.0
"""Claims in quotas: a tenant who may edit his namespace makes claims, and stays within its quota with claims and pods."""

import pytest

from cluster import api as kube
from kit import CORE, MEMORY, ApiError, GiB, check_no_share_twice, condition, container, parse_metrics, pod
from test_claims import claim, claim_event, claims_in, classes, phase, reason, with_claim     # noqa: F401: a fixture
from test_gates import QUOTAS, set_quota
from test_usage_access import account     # noqa: F401: a fixture

RIGHTS = 30     # seconds in which Kubernetes has aggregated a role


def status_of(space, **want):
    """Waits for these figures of compute in the quota's status."""
    def told(seen):
        status = (seen or {}).get("status", {})
        return {name: status.get(name, {}).get(CORE) for name in want} == want
    return space.api.wait(QUOTAS.format(space.name), "quota", told, 30, f"the quota says {want}")["status"]


@pytest.fixture
def editor(world, space, account):     # noqa: F811
    """The API as a ServiceAccount with `edit` in the namespace sees it, when the role has what Aliquot adds to it."""
    api = world.api.with_token(world.token(space.name, account("editor", ("ClusterRole", "edit", space.name))))

    def may():
        try:
            api.create(claims_in(space), claim("probe"), dryRun="All")
        except ApiError as error:
            assert error.code == 403, error
            return False
        return True
    world.until(may, RIGHTS, "edit has the right to make claims")
    return api


def test_an_editor_stays_within_the_quota(world, space, classes, editor):     # noqa: F811
    quota = set_quota(space, max={CORE: "50"}) + "/quota"
    fast = classes("fast")

    def make(name, core, **spec):
        editor.create(claims_in(space), claim(name, core=core, memory="4Gi", elasticGPUClassName=fast, **spec))

    # He reads the quota and does not change it.
    assert editor.get(quota)["spec"]["max"] == {CORE: "50"}
    for refused in (lambda: editor.patch(quota, {"spec": {"max": {CORE: "500"}}}),
                    lambda: editor.patch(quota + "/status", {"status": {"used": {CORE: "0"}}}),
                    lambda: editor.delete(quota),
                    lambda: set_quota_as(editor, space)):
        with pytest.raises(ApiError) as error:
            refused()
        assert error.value.code == 403

    # Claims alone.
    make("a", 30)
    phase(space, "a", "Bound")
    make("b", 30)
    waiting = reason(space, "b", "QuotaExceeded")
    assert waiting["status"]["phase"] == "Pending"
    (bound,) = [c for c in waiting["status"]["conditions"] if c["type"] == "Bound"]
    assert f"uses 30 of 50 {CORE}, and this claim asks 30; its claims have 30" in bound["message"]
    claim_event(space, "b", "QuotaExceeded")

    # Claims and pods: who uses a claim adds nothing, any other pod does.
    seen = [space.start(with_claim("user", "a")), space.start(pod("own", container(core=20, memory=GiB)))]
    check_no_share_twice(seen)
    status = status_of(space, used="50", usedByClaims="30")
    assert status["used"][MEMORY] == "5Gi" and status["usedByClaims"][MEMORY] == "4Gi"
    space.create(pod("held", container(core=1, memory=GiB)))
    assert f"uses 50 of 50 {CORE}, and this pod asks 1; its claims have 30" in space.unschedulable("held")
    assert "its claims have 30" in world.aliquot("explain", "-n", space.name, "held")
    metrics = parse_metrics(world.scheduler.http("/metrics").decode())
    assert {value for (name, labels), value in metrics.items() if name == "aliquot_scheduler_quota_used_by_claims"
            and ("namespace", space.name) in labels and ("resource", CORE) in labels} == {30}

    # A pod of a first consumer, and one that brings its own claim, are held by the quota, too.
    late = classes("late", bindingMode="WaitForFirstConsumer")
    editor.create(claims_in(space), claim("c", core=10, memory=GiB, elasticGPUClassName=late))
    space.create(with_claim("first", "c"))
    space.wait("first", lambda seen: "and this pod asks 10" in condition(seen, "PodScheduled").get("message", ""),
               what="held by the quota, once the scheduler has seen the claim")

    # A new process counts the same.
    world.scheduler.wait_restarted(world.scheduler.kill())
    status_of(space, used="50", usedByClaims="30")
    assert "QuotaExceeded" == reason(space, "b", "QuotaExceeded")["status"]["conditions"][0]["reason"]

    # What is given back goes to who waits.
    space.delete("held", "user")
    status_of(space, used="50", usedByClaims="30")
    space.delete("own", "first")
    editor.delete(claims_in(space) + "/a")
    phase(space, "b", "Bound")
    status_of(space, used="30", usedByClaims="30")
    space.start(with_claim("first", "c"))
    status_of(space, used="40", usedByClaims="40")


def set_quota_as(api, space):
    return api.create(QUOTAS.format(space.name), {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUQuota", "metadata": {"name": "own"},
        "spec": {"max": {CORE: "500"}}})


def test_a_quota_of_requests_bounds_claims(world, space, classes, editor):     # noqa: F811
    """Kubernetes counts requests of pods only: where there are claims, the scheduler counts both."""
    space.api.create(kube.core("resourcequotas", space.name), {
        "metadata": {"name": "gpu"}, "spec": {"hard": {"requests." + CORE: "50"}}})
    fast = classes("fast")
    for name in "ab":
        editor.create(claims_in(space), claim(name, core=30, memory="4Gi", elasticGPUClassName=fast))
    held = {name: reason_of(space, name) for name in "ab"}
    assert sorted(held.values()) == ["Bound", "QuotaExceeded"], held
    space.create(pod("p", container(core=30, memory=GiB)))
    assert f"uses 30 of 50 {CORE}, and this pod asks 30; its claims have 30" in space.unschedulable("p")
    space.start(pod("q", container(core=20, memory=GiB)))


def reason_of(space, name):
    """The reason in the condition, once the claim is bound or held."""
    def told(seen):
        return {c["reason"] for c in (seen or {}).get("status", {}).get("conditions", [])} & {"Bound", "QuotaExceeded"}
    return told(space.api.wait(claims_in(space), name, told, 30, f"claim {name} is bound or held")).pop()
