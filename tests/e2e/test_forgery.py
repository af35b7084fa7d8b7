# SPDX-License-Identifier: Apache-2.0
"""Pods bound by another client and assignments that the scheduler did not write get nothing: admission closes every
door, and behind it, with the policies taken away, the signature does."""

import base64
import json
import subprocess

import pytest

import kit
from kit import (ASSIGNMENT, CARD, CORE, MEMORY, SIGNATURE, ApiError, GiB, assignment_of, check_view, container,
                 is_running, pod)
from cluster import api as kube

MALLORY = "mallory"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
COPIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
RBAC = "/apis/rbac.authorization.k8s.io/v1/"
# They add the carrier, and the name of the own scheduler where there is one.
KEPT = ("aliquot-slot", "aliquot-scheduler-name")
REFUSED = r"assign|sign|bound|scheduler"


@pytest.fixture(scope="module")
def mallory(world):
    """A user who may do to pods all that a careless cluster role allows."""
    world.api.create(RBAC + "clusterroles", {"metadata": {"name": MALLORY}, "rules": [
        {"apiGroups": [""], "resources": ["pods", "pods/binding", "pods/status", "bindings"], "verbs": ["*"]}]})
    world.api.create(RBAC + "clusterrolebindings", {
        "metadata": {"name": MALLORY}, "subjects": [{"kind": "User", "name": MALLORY}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": MALLORY}})
    yield world.api.as_user(MALLORY)
    for kind in ("clusterrolebindings", "clusterroles"):
        world.api.delete(RBAC + kind + "/" + MALLORY)


def _probe(world, body):
    """What a pod that is created at this moment would be; None: admission refuses it."""
    try:
        return world.api.create(kube.pods("default"), body, dryRun="All")
    except ApiError as refused:
        assert refused.code in (403, 422), refused
        return None


def _policies(world):
    """Which of two policies are in force: the API server takes each away, and back, by itself."""
    forged = _probe(world, pod("forged", annotations={ASSIGNMENT: "{}"}))
    return (forged is None or ASSIGNMENT not in forged["metadata"].get("annotations", {}),
            _probe(world, unattended("placed", nodeName=world.cluster.node)) is None)


@pytest.fixture(scope="module")
def no_policies(world):
    """Takes Aliquot's policies away, but for those without which no pod is placed. Policies come and go a moment after they
    are stored."""
    saved = [(path, b) for path in (BINDINGS, COPIES) if world.api.exists(path) for b in world.api.get(path)["items"]
             if b["metadata"]["name"].startswith("aliquot") and b["metadata"]["name"] not in KEPT]
    assert saved
    for path, binding in saved:
        world.api.delete(path + "/" + binding["metadata"]["name"])
    world.until(lambda: not any(_policies(world)), 30, "policies gone")
    yield
    for path, binding in saved:
        world.api.create(path, {"metadata": {"name": binding["metadata"]["name"]}, "spec": binding["spec"]})
    world.until(lambda: all(_policies(world)), 30, "policies back")


@pytest.fixture(scope="module")
def forger(tmp_path_factory, world):
    """Signs assignments in the right form with a key of its own."""
    where = tmp_path_factory.mktemp("forger")
    key, message = where / "key.pem", where / "message"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)

    def forge(uid, containers):
        node = world.cluster.node
        text = json.dumps({"v": 1, "node": node, "containers": containers}, separators=(",", ":"))
        message.write_bytes(f"aliquot-assignment-v1\n{uid}\n{node}\n{text}".encode())
        signature = subprocess.run(["openssl", "pkeyutl", "-sign", "-inkey", key, "-rawin", "-in", message],
                                   check=True, stdout=subprocess.PIPE).stdout
        return {ASSIGNMENT: text, SIGNATURE: base64.b64encode(signature).decode()}
    forge.public = subprocess.run(["openssl", "pkey", "-in", key, "-pubout"], check=True, stdout=subprocess.PIPE,
                                  text=True).stdout
    return forge


def whole_card(world):
    return {"main": [{"index": 0, "uuid": world.gpus()[0]["spec"]["uuid"], "core": 100, "memory": CARD}]}


def unattended(name, **spec):
    """A pod with a share that no scheduler cares for."""
    return pod(name, container(core=10, memory=1 * GiB), schedulerName="none", **spec)


def binding(world, name, annotations=None):
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": annotations or {}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": world.cluster.node}}


def by_create(world, space, api, name, annotate):
    space.create(unattended(name, nodeName=world.cluster.node, annotations=annotate("unknown-yet")), api=api)


def by_patch(world, space, api, name, annotate):
    space.create(unattended(name), api=api)
    uid = space.get(name)["metadata"]["uid"]
    api.patch(f"{space.path}/{name}", {"metadata": {"annotations": annotate(uid)}})
    api.create(f"{space.path}/{name}/binding", binding(world, name))


def by_status(world, space, api, name, annotate):
    space.create(unattended(name), api=api)
    uid = space.get(name)["metadata"]["uid"]
    api.patch(f"{space.path}/{name}/status", {"metadata": {"annotations": annotate(uid)}})
    api.create(f"{space.path}/{name}/binding", binding(world, name))


def by_binding(world, space, api, name, annotate):
    space.create(unattended(name), api=api)
    uid = space.get(name)["metadata"]["uid"]
    api.create(f"{space.path}/{name}/binding", binding(world, name, annotate(uid)))


def by_old_bindings(world, space, api, name, annotate):
    space.create(unattended(name), api=api)
    uid = space.get(name)["metadata"]["uid"]
    api.create(kube.core("bindings", space.name), binding(world, name, annotate(uid)))


DOORS = {"create": by_create, "patch": by_patch, "status": by_status, "binding": by_binding,
         "bindings": by_old_bindings}


@pytest.mark.parametrize("door", DOORS)
def test_admission_closes(world, space, mallory, forger, door):
    forged = []

    def annotate(uid):
        forged.append(uid)
        return forger(uid, whole_card(world))
    with pytest.raises(ApiError) as refused:
        DOORS[door](world, space, mallory, "pod", annotate)
    assert forged and refused.value.code in (403, 422)
    for seen in world.api.get(space.path)["items"]:
        assert ASSIGNMENT not in seen["metadata"].get("annotations", {})


def test_admission_refuses_a_node_name_beside_a_share(world, space, mallory):
    with pytest.raises(ApiError) as refused:
        space.create(unattended("pod", nodeName=world.cluster.node), api=mallory)
    assert refused.value.code in (403, 422) and "nodeName" in refused.value.message


def test_bound_by_somebody_else(world, space, mallory):
    """No policy can see the pod behind a Binding: the agent refuses, and says what to do."""
    space.create(unattended("pod"), api=mallory)
    mallory.create(f"{space.path}/pod/binding", binding(world, "pod"))
    refused(world, space, "pod")


def not_started(space, name):
    space.refused(name, REFUSED)
    assert not is_running(space.get(name))


def refused(world, space, name):
    not_started(space, name)
    assert space.get(name)["metadata"]["uid"] not in world.allocated()


@pytest.mark.parametrize("door", DOORS)
def test_signature_closes(world, space, mallory, no_policies, forger, door):
    DOORS[door](world, space, mallory, "pod", lambda uid: forger(uid, whole_card(world)))
    assert ASSIGNMENT in space.get("pod")["metadata"]["annotations"]
    refused(world, space, "pod")


def test_a_key_that_is_taken_out_counts_no_more(world, space, mallory, no_policies, forger):
    """Without a restart of any agent; what runs by the key's signature goes on."""
    keys = kube.core("configmaps", kit.SYSTEM) + "/aliquot-signing"
    ours = world.api.get(keys)["data"]["public.pem"]

    def signed(uid):
        return forger(uid, {"main": [{"index": 0, "uuid": world.gpus()[0]["spec"]["uuid"], "core": 10, "memory": GiB}]})

    def set_keys(text):
        world.api.patch(keys, {"data": {"public.pem": text}})
    set_keys(ours + forger.public)
    try:
        by_binding(world, space, mallory, "before", signed)
        before = space.running("before")["status"]["containerStatuses"][0]["containerID"]
    finally:
        set_keys(ours)
    by_binding(world, space, mallory, "after", signed)
    not_started(space, "after")     # the scheduler reads the keys once a minute and may count it until it ends
    world.ctr("tasks", "kill", "-s", "SIGKILL", before.partition("://")[2])
    space.wait("before", lambda seen: is_running(seen) and
               seen["status"]["containerStatuses"][0]["containerID"] != before, kit.START, "started again")


def test_a_true_assignment_of_another_pod(world, space, mallory, no_policies):
    """The signature covers the pod's UID: it cannot be moved."""
    owner = space.start(pod("owner", container(core=50, memory=40 * GiB)))
    stolen = {k: owner["metadata"]["annotations"][k] for k in (ASSIGNMENT, SIGNATURE)}
    by_binding(world, space, mallory, "thief", lambda uid: stolen)
    refused(world, space, "thief")
    check_view(space, owner)


def test_a_true_signature_over_a_changed_assignment(world, space, mallory, no_policies):
    """A running pod that writes itself a bigger share: the next start of its container does not have it."""
    seen = space.start(pod("pod", container(core=10, memory=4 * GiB)))
    changed = json.loads(seen["metadata"]["annotations"][ASSIGNMENT])
    changed["containers"]["main"][0]["memory"] = CARD
    mallory.patch(f"{space.path}/pod", {"metadata": {"annotations": {
        ASSIGNMENT: json.dumps(changed, separators=(",", ":"))}}})
    with space.tenant(seen) as tenant:
        assert tenant.info()["total"] == 4 * GiB
        old = seen["status"]["containerStatuses"][0]["containerID"]
        world.ctr("tasks", "kill", "-s", "SIGKILL", old.partition("://")[2])

    def settled(now):
        """Either refused, or running again with what the scheduler had given it."""
        status = now["status"]["containerStatuses"][0]
        return status["state"].get("waiting", {}).get("message") \
            or ("running" in status["state"] and status["containerID"] != old)
    now = space.wait("pod", settled)
    if is_running(now):
        with space.tenant(now) as tenant:
            assert tenant.info()["total"] == 4 * GiB
        assert assignment_of(seen)["main"][0]["memory"] == 4 * GiB


def test_a_label_is_no_share(world, space, no_policies):
    """An assignment on a pod that asks for nothing opens no device."""
    body = pod("plain", annotations={ASSIGNMENT: json.dumps({"v": 1, "node": world.cluster.node,
                                                            "containers": whole_card(world)})})
    seen = space.start(body)
    with space.tenant(seen) as tenant:
        assert tenant.driver()["result"] == -1 and tenant.nvml()["result"] == -1
    assert not world.allocated()
    gpu = world.gpus()[0]["status"]["allocatable"]
    assert {CORE, MEMORY} <= gpu.keys()
    kit.check_no_share_twice([])
