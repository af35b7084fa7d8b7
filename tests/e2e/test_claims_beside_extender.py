# SPDX-License-Identifier: Apache-2.0
"""deploy/base with deploy/dra: the kube-scheduler of the cluster asks a replica of aliquot-scheduler about pods with resource names,
and that one allocates ResourceClaims as well, from the same state. Each replica is killed while pods of both ways come."""

import secrets

import chaos_audit
import kit
import pytest
import worlds
from kit import container, pod
from resource_claims import claims, no_claim_left, template, wait_published
from test_claim_allocation import bound, user
from test_helm import LEASES, is_noted

ALONE = 60      # seconds in which a replica acts by its Lease: 30 after the last request of a kube-scheduler, and two renewals
SHARES = 6      # of each way


@pytest.fixture(scope="module")
def world(build):
    with worlds.installed("beside-" + secrets.token_hex(2), build, claims=True) as made:
        wait_published(made)
        yield made


def held_in_all(world):
    """Percent, counted from the objects; no card has given more than it has."""
    moment = chaos_audit.Moment(world.api)
    chaos_audit.judge_cards(moment)
    return sum(core for core, _ in chaos_audit.sums(moment).values())


def kill(world, acts):
    """The replica that acts, or the other one."""
    leader = world.scheduler.leader()
    (seen,) = [p for p in world.scheduler.pods() if (p["metadata"]["name"] == leader) == acts]
    world.kill_container(kit.container_status(seen, "scheduler"))


@pytest.mark.parametrize("acts", [True, False], ids=["asked", "unasked"])
def test_a_replica_is_killed(world, space, acts):
    made = template(space, core="10", memory="4Gi")
    names = []
    for i in range(SHARES):
        names += space.create(user(f"claim-{i}", made, gated=i % 2 == 0), pod(f"name-{i}", container(core=10, memory=4 * kit.GiB)))
        if i == SHARES // 2:
            kill(world, acts)
    for name in names:
        space.running(name, 120)
    assert held_in_all(world) == 2 * SHARES * 10
    space.delete(*names)
    no_claim_left(space)
    world.until(lambda: all(p["status"].get("phase") == "Running" and kit.condition(p, "Ready")["status"] == "True"
                            for p in world.scheduler.pods()), 60, "both replicas are ready")


def test_no_replica_is_asked(world, space):
    """For 30 s: then one acts by its Lease alone, so that claims are allocated without a kube-scheduler. Pods start when there is
    one again, which asks that replica."""
    bound(space, pod("before", container(core=10)))
    world.api.wait(LEASES, "aliquot-scheduler", is_noted, 10, "the Lease says that a kube-scheduler asks")
    world.cluster.stop("kube-scheduler")
    try:
        world.api.wait(LEASES, "aliquot-scheduler", lambda seen: not is_noted(seen), ALONE, "no replica was asked for 30 s")
        kill(world, acts=True)
        space.create(user("claimed", template(space, core="30")))
        world.until(lambda: [one for one in claims(space) if one.get("status", {}).get("allocation")], ALONE, "the claim is allocated")
    finally:
        world.cluster.start("kube-scheduler")
    space.running("claimed", 60)
    space.start(pod("after", container(core=10)))
    assert held_in_all(world) == 50
    space.delete("before", "claimed", "after")
    no_claim_left(space)
