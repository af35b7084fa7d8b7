# SPDX-License-Identifier: Apache-2.0
"""Pods that request shares by resource names, of any project, on a cluster whose kube-scheduler has no configuration
(deploy/dra-only with deploy/dra-pods): they get ResourceClaims, and the shares that their names say."""

import os
import secrets

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import CARD, GiB, container, pod, quantity
from resource_claims import claims, no_claim_left, path, spec, wait_published
from test_dialects import BOTH, DIVIDED, HALVES, SHARES, WHOLE, main

POLICY = aliquot.POLICIES + "/aliquot-dra-pods"
PROJECTS = ("gpu-scheduler", "volcano", "kai-scheduler", "koord-scheduler")
LONG = [pytest.mark.foreign, pytest.mark.long]
LABEL = {"gpu.elasticgpu.io/made-by": "aliquot-scheduler"}


@pytest.fixture(scope="module")
def world(build):
    with Cluster("dra-pods-" + secrets.token_hex(2), stock_scheduler=True) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe"],
                        deploy=aliquot.with_components(cluster, "dra-pods", base=os.path.join(os.path.dirname(aliquot.DEPLOY), "dra-only")))
        installed = kit.World(cluster, build)
        take_over(installed)
        wait_published(installed)
        yield installed


def take_over(world):
    """Pods that name the schedulers of these projects are taken, too, as docs/dra.md says."""
    conditions = world.api.get(POLICY)["spec"]["matchConditions"]
    (door,) = (one for one in conditions if one["name"] == "by-claims")
    before = door["expression"]
    door["expression"] = before.replace("'default-scheduler'", ", ".join(f"'{name}'" for name in ("default-scheduler", *PROJECTS)))
    assert door["expression"] != before
    world.api.patch(POLICY, {"spec": {"matchConditions": conditions}})

    def is_taken():
        made = world.api.create(kube.pods(), pod("not-there-yet", container(core=10), schedulerName=PROJECTS[0]), dryRun="All")
        return made["spec"]["schedulerName"] == "default-scheduler" and "resourceClaims" in made["spec"]
    world.until(is_taken, 30, "the policy is enforced")


def templates(space):
    return space.api.get(path(space, "resourceclaimtemplates"))["items"]


def claim_of(space, seen, name):
    """The claim that a container uses; it uses no other."""
    spec = next(c for c in [*seen["spec"]["containers"], *seen["spec"].get("initContainers", [])] if c["name"] == name)
    (use,) = spec["resources"]["claims"]
    made = {one["name"]: one["resourceClaimName"] for one in seen["status"]["resourceClaimStatuses"]}
    return space.api.get(path(space, "resourceclaims", made[use["name"]]))


def devices_of(claim):
    """[(percent, bytes)] of each card."""
    return [(int(one["consumedCapacity"]["core"]), quantity(one["consumedCapacity"]["memory"]))
            for one in claim["status"]["allocation"]["devices"]["results"]]


def check_view(space, seen, name, port, memory, cards):
    with space.tenant(seen, port) as tenant:
        assert len(tenant.driver()["devices"]) == cards
        assert [tenant.info(i)["total"] for i in range(cards)] == [memory] * cards


def terms_of(claim):
    """The policy and the ceiling that the allocation has for the agent."""
    found = [one["opaque"]["parameters"] for one in claim["status"]["allocation"]["devices"].get("config", [])]
    return tuple(found[0].get(key, none) for key, none in (("computePolicy", ""), ("ceiling", 0))) if found else None


def check_case(space, case, seen):
    assert "schedulingGates" not in seen["spec"] and seen["spec"]["schedulerName"] == "default-scheduler"
    ports = {c["name"]: int(c["command"][-1]) for c in seen["spec"]["containers"]}
    assert {c["name"] for c in seen["spec"]["containers"] if c["resources"].get("claims")} == case.containers.keys()
    for name, (cards, core, memory) in case.containers.items():
        claim = claim_of(space, seen, name)
        assert devices_of(claim) == [(core, memory // (1 << 20) << 20)] * cards, case.name
        assert not case.terms or terms_of(claim) == case.terms, case.name
        check_view(space, seen, name, ports[name], memory // (1 << 20) << 20, cards)


def none_left(space):
    space.delete(*(one["metadata"]["name"] for one in space.api.get(space.path)["items"]))
    no_claim_left(space)


@pytest.mark.parametrize("cases", [SHARES, pytest.param(DIVIDED, marks=LONG), HALVES, pytest.param(WHOLE, marks=LONG),
                                   pytest.param(BOTH, marks=LONG)], ids=["shares", "divided", "halves", "whole", "both"])
def test_pods_of_all_projects(space, cases):
    """The pods of test_dialects.py, as they are."""
    for case, seen in zip(cases, space.start_all([c.body for c in cases], timeout=120)):
        check_case(space, case, seen)
    none_left(space)


def test_containers_of_one_pod(space):
    """Each has a claim. An init container that requests the same as one of them uses its claim, and a sidecar has its own."""
    share = {"core": 20, "memory": 8 * GiB}
    body = pod("many", container(**share), container("other", port=7001, core=10),
               init=[container("first", argv=["probe", "report"], **share),
                     container("beside", port=7002, restartPolicy="Always", **share)])
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "many-"
    pods = space.start_all([body, body])
    for seen in pods:
        assert [c["name"] for c in seen["spec"]["resourceClaims"]] == ["main", "other", "beside"]
        assert claim_of(space, seen, "first") == claim_of(space, seen, "main") != claim_of(space, seen, "beside")
        for name, port, memory in (("main", 7000, 8 * GiB), ("other", 7001, CARD // 10), ("beside", 7002, 8 * GiB)):
            check_view(space, seen, name, port, memory, 1)
    assert len(claims(space)) == 6
    made = templates(space)
    assert {one["metadata"]["name"] for one in made} == {"aliquot-native-core-20-memory-8589934592", "aliquot-native-core-10"}
    assert all(one["metadata"]["labels"] == LABEL for one in made)
    none_left(space)
    # No pod names them any more.
    space.api.wait_none(path(space, "resourceclaimtemplates"), 30)


def test_a_template_of_a_user(space):
    """It has the name of a request. What it says counts, and an Event says so; it stays."""
    name = "aliquot-native-core-40"
    space.api.create(path(space, "resourceclaimtemplates"), {"metadata": {"name": name}, "spec": {"spec": spec(core="5")}})
    seen = space.start(pod("one", container(core=40)))
    assert devices_of(claim_of(space, seen, "main")) == [(5, CARD * 5 // 100)]
    assert f"ResourceClaimTemplate {name} was not made by Aliquot" in space.event("one", "GPUTemplateForeign")
    none_left(space)
    assert [one["metadata"]["name"] for one in templates(space)] == [name]


def test_a_request_that_waits(space):
    """With the words of Aliquot, not of kube-scheduler."""
    space.start(pod("half", container(core=60)), timeout=kit.START)
    space.create(pod("too-much", main(**{"nvidia.com/gpu": 2})))
    assert "no node has room for the claims of pod too-much" in space.event("too-much", "GPUClaimWaits")
    space.delete("half")
    space.running("too-much")
    none_left(space)


@pytest.mark.foreign
@pytest.mark.long
def test_the_scheduler_is_killed(world, space):
    """Between the pods and their templates, and again."""
    names, killed = [], None
    for i in range(6):
        names += space.create(pod(f"p{i}", container(core=10 + i, memory=4 * GiB)))
        if i in (1, 4):
            if killed:
                world.scheduler.wait_restarted(killed)
            killed = world.scheduler.kill()
    for name in names:
        space.running(name, 120)
    none_left(space)
    space.api.wait_none(path(space, "resourceclaimtemplates"), 60)
