# SPDX-License-Identifier: Apache-2.0
"""deploy/own-scheduler: Aliquot brings its own kube-scheduler, in the pods' network, and the cluster's own one is stock. Good
days, forgery, the end of the leader, who may do what, and what users and operators are told."""

import base64
import json
import secrets

import kit
import pytest
import worlds
from cluster import api as kube
from kit import SYSTEM, GiB, check_no_share_twice, check_view, container, half, pod
from test_forgery import (by_binding, forger, mallory, no_policies, refused,  # noqa: F401 (fixtures, and run here)
                          test_admission_closes, test_bound_by_somebody_else, whole_card)
from test_good_days import *  # noqa: F401, F403 (all of them, here too)
from worlds import OWN, named, placed_by

STOCK = "default-scheduler"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/aliquot-system/leases"
DEPLOYMENTS = "/apis/apps/v1/namespaces/aliquot-system/deployments"
TOKEN = "/run/secrets/kubernetes.io/serviceaccount/token"     # seen from outside, where the link /var/run leads elsewhere


@pytest.fixture(scope="module")
def world(build, programs, nvidia_smi):
    with worlds.installed("own-" + secrets.token_hex(2), build, programs, [nvidia_smi], own=True) as installed:
        yield installed
        installed.wait_cleared()


def pairs(world):
    return [p for p in world.scheduler.pods() if kit.condition(p, "Ready").get("status") == "True"]


def test_who_is_sent_where(world):
    share = container(core=10)
    assert named(world, share) == named(world, container("plain"), share) == OWN
    assert named(world, init=[container("first", core=10)]) == OWN
    assert named(world, share, schedulerName=STOCK) == OWN      # the API server writes that name where a pod has none
    assert named(world, container(), annotations={"gpu-fraction": "0.5"}) == OWN
    assert named(world, container(), annotations={"egpuc.elasticgpu.io/main": "claim"}) == OWN
    assert named(world, container()) == named(world, container(resources={"nvidia.com/gpu": "0"})) == STOCK
    assert named(world, share, schedulerName="elsewhere") == "elsewhere"


def test_both_schedulers_place_pods_on_the_same_node(world, space):
    bodies = [pod("share", container(core=30, memory=8 * GiB)), pod("plain"), pod("plain-by-name", schedulerName=OWN)]
    share, plain, by_name = space.start_all(bodies)
    check_view(space, share)
    assert share["spec"]["nodeName"] == plain["spec"]["nodeName"] == by_name["spec"]["nodeName"]
    assert [placed_by(space, name) for name in ("share", "plain", "plain-by-name")] == [OWN, STOCK, OWN]
    assert not kit.assignment_of(plain) and not kit.assignment_of(by_name)


def account(world, seen, name):
    """The API as a container of that pod uses it, by the token that it finds, and whose that is."""
    (status,) = [s for s in seen["status"]["containerStatuses"] if s["name"] == name]
    token = world.cluster.on_node(["cat", f"/proc/{world.first_process(status)}/root{TOKEN}"]).stdout
    payload = token.split(".")[1]
    return world.api.with_token(token), json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))["sub"]


def may(api, verb, resource, name="", subresource="", group=""):
    asked = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": {
            "namespace": SYSTEM, "verb": verb, "resource": resource, "name": name, "subresource": subresource, "group": group}}})
    return asked["status"]["allowed"]


@pytest.mark.parametrize("what, kube_scheduler, extender", [
    (("get", "secrets", "aliquot-signing"), False, True),
    (("create", "pods", "", "binding"), True, True),
    (("create", "pods", "", "eviction"), False, True),
    (("get", "secrets", "aliquot-scheduler-token"), False, False),
    (("list", "secrets"), False, False),
    (("update", "leases", "aliquot-scheduler", "", "coordination.k8s.io"), False, True),
    (("update", "leases", "aliquot-kube-scheduler", "", "coordination.k8s.io"), True, False),
    (("get", "leases", "aliquot-kube-scheduler", "", "coordination.k8s.io"), True, True),
    (("patch", "gpus", "", "", "elasticgpu.io"), False, True),
    (("delete", "pods"), True, False),      # its preemption; Aliquot evicts
])
def test_each_container_has_its_own_rights(world, what, kube_scheduler, extender):
    seen = pairs(world)[0]
    for name, user, allowed in (("kube-scheduler", "aliquot-kube-scheduler", kube_scheduler),
                                ("scheduler", "aliquot-scheduler", extender)):
        api, subject = account(world, seen, name)
        assert subject == f"system:serviceaccount:{SYSTEM}:{user}"
        assert may(api, *what) == allowed, (name, what)


def test_a_pod_of_another_scheduler_is_told(world, space):
    space.create(pod("pod", container(core=10), schedulerName="elsewhere"))
    assert "names the scheduler elsewhere, which does not ask Aliquot" in space.event("pod", "ForeignScheduler")
    assert "It names the scheduler elsewhere, which does not ask Aliquot.\n" \
        in world.aliquot("explain", "pod", "-n", space.name)
    space.start(pod("later", container(core=10)))
    (event,) = space.api.get(kube.core("events", space.name), fieldSelector="reason=ForeignScheduler")["items"]
    assert event["count"] == 1 and not space.get("pod")["spec"].get("nodeName")


def holder(world, lease):
    """The pod that holds it; kube-scheduler writes an identity of its own behind its host's name."""
    return (world.api.get(f"{LEASES}/{lease}")["spec"].get("holderIdentity") or "").partition("_")[0]


def test_the_leader_ends(world, space):
    """The other pair takes over, and no share is given twice."""
    kept = [space.start(half("kept"))]
    leader = holder(world, "aliquot-kube-scheduler")
    assert leader == holder(world, "aliquot-scheduler")
    world.api.delete(kube.pods(SYSTEM, leader), gracePeriodSeconds=0)
    kept += space.start_all([half(f"pod-{i}") for i in range(3)], 60)
    check_no_share_twice(kept)
    for seen in kept:
        check_view(space, seen)
    space.create(half("excess"))
    space.unschedulable("excess")
    assert leader != holder(world, "aliquot-kube-scheduler") == holder(world, "aliquot-scheduler")
    world.until(lambda: len(pairs(world)) == 2, 60, "two replicas again")


def test_the_signature_closes(world, space, mallory, no_policies, forger):  # noqa: F811 (fixtures)
    by_binding(world, space, mallory, "pod", lambda uid: forger(uid, whole_card(world)))
    refused(world, space, "pod")


def test_a_kube_scheduler_that_does_not_suit_is_told(world):
    """After an upgrade of the cluster; here it is the image that changes."""
    server = world.api.get("/version")
    deployment = world.api.get(f"{DEPLOYMENTS}/aliquot-scheduler")
    image = deployment["spec"]["template"]["spec"]["containers"][1]["image"]
    newer = f'{image.rpartition(":")[0]}:v{server["major"]}.{int(server["minor"].strip("+")) + 1}.0'
    world.ctr("images", "tag", image, newer)

    def set_image(name):
        world.cluster.kubectl("-n", SYSTEM, "set", "image", "deployment/aliquot-scheduler", f"kube-scheduler={name}")
        world.cluster.kubectl("-n", SYSTEM, "rollout", "status", "deployment/aliquot-scheduler", "--timeout=90s")

    def skew():
        return kit.parse_metrics(world.scheduler.http("/metrics").decode())["aliquot_scheduler_kube_scheduler_skew", ()]
    set_image(newer)
    for _, event in world.api.watch(kube.core("events", SYSTEM), 90, fieldSelector="reason=KubeSchedulerVersionSkew"):
        assert "is newer than the API server" in event["message"], event["message"]
        assert f'set the tag of its image to {server["gitVersion"]}' in event["message"]
        break
    world.until(lambda: skew() == 1, kit.START, "the metric of the version skew")
    told = world.doctor()["scheduler", "wrong"]
    assert told and all("is newer than the API server" in text for text in told)
    set_image(image)
    world.until(lambda: not world.doctor()["scheduler", "wrong"], kit.START, "doctor finds it mended", pause=1)
    world.until(lambda: skew() == 0, kit.START, "the metric of the version skew")
