# SPDX-License-Identifier: Apache-2.0
"""The admission policies and roles of deploy/base, asked of a real API server. No agent and no scheduler run."""

import json
import secrets
import time

import pytest

from cluster import ApiError, Cluster, aliquot, api as kube

SCHEDULER = "system:serviceaccount:aliquot-system:aliquot-scheduler"
AGENT = "system:serviceaccount:aliquot-system:aliquot-agent"
OURS = "elasticgpu.io/"
ASSIGNMENT = "elasticgpu.io/assignment"
CORE, MEMORY, SLOT = (f"elasticgpu.io/{n}" for n in ("gpu-core", "gpu-memory", "slot"))
OTHER_NODE = "node-z"
OPERATOR = "operator-of-gpus"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


@pytest.fixture(scope="module")
def cluster():
    with Cluster("policies-" + secrets.token_hex(2)) as c:
        c.up()
        # Before 1.36 an API server takes all of it but the MutatingAdmissionPolicies.
        c.kubectl("apply", "-k", aliquot.DEPLOY, check=c.api.exists(aliquot.POLICIES))
        for kind, name in (("deployment", "aliquot-scheduler"), ("daemonset", "aliquot-agent")):
            c.kubectl("delete", "-n", "aliquot-system", kind, name, "--wait=false")
        c.kubectl("wait", "--for=condition=Established", "crd/gpus.elasticgpu.io", "--timeout=30s")
        c.api.create(kube.core("nodes"), {"metadata": {"name": OTHER_NODE}})
        c.kubectl("create", "clusterrolebinding", OPERATOR, "--clusterrole=aliquot-gpu-operator", f"--user={OPERATOR}")
        _wait_enforced(c)
        yield c


def _wait_enforced(cluster):
    """Policies work a moment after they are stored, each in its turn: the API server's own watch brings them to its
    admission. A request for each of them shows it; all are tried without being stored."""
    seen = cluster.api.create(kube.core("events", "default"), {
        "metadata": {"name": new("event")}, "reason": "R", "message": "m", "source": {"component": "kubelet"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}})["metadata"]["name"]
    agent = cluster.api.as_user(AGENT)
    card = cluster.api.create(kube.gpus(), gpu(new("card"), OTHER_NODE))["metadata"]["name"]

    def refuses(policy, call, *arguments):
        return lambda: _is_refused(policy, call, *arguments)

    def pod_is_refused(policy, **what):
        return refuses(policy, cluster.api.create, kube.pods(), pod("not-there-yet", **what))

    def is_changed(word, wanted, **what):
        """A pod as it would be stored has the word, or does not. Without it another policy can refuse the pod."""
        try:
            made = cluster.api.create(kube.pods(), pod("not-there-yet", **what), dryRun="All")
        except ApiError:
            return False
        del made["metadata"]["managedFields"]
        return (word in json.dumps(made)) == wanted

    enforced = {
        "aliquot-terms": pod_is_refused("aliquot-terms", limits={CORE: "10"}, annotations={POLICY: "greedy"}),
        "aliquot-requests": pod_is_refused("aliquot-requests", limits={CORE: "150"}),
        "aliquot-node-name": pod_is_refused("aliquot-node-name", limits={CORE: "10"}, node=OTHER_NODE),
        "aliquot-slot": lambda: is_changed(SLOT, True, limits={MEMORY: "4Mi"}),
        "aliquot-copies": lambda: is_changed(ASSIGNMENT, False, annotations={ASSIGNMENT: "{}"}),
        "aliquot-assignment": refuses("aliquot-assignment", cluster.api.create, kube.pods(name="p") + "/binding",
                                      binding("p", {ASSIGNMENT: "{}"})),
        "aliquot-assignment-bindings": refuses("aliquot-assignment-bindings", cluster.api.create,
                                               kube.core("bindings", "default"), binding("p", {ASSIGNMENT: "{}"})),
        "aliquot-agent-gpus": refuses("aliquot-agent-gpus", agent.create, kube.gpus(), gpu("not-there-yet", OTHER_NODE)),
        "aliquot-agent-nodes": refuses("aliquot-agent-nodes", agent.patch, kube.core("nodes", name=OTHER_NODE) + "/status",
                                       {"status": {"capacity": {MEMORY: "1Gi"}}}),
        "aliquot-agent-events": refuses("aliquot-agent-events", agent.patch, kube.core("events", "default", seen),
                                        {"message": "n"}),
        "aliquot-scheduler-gpus": refuses("aliquot-scheduler-gpus", cluster.api.as_user(SCHEDULER).patch, kube.gpus(card),
                                          {"spec": {"model": "N"}}),
        "aliquot-operator-gpus": refuses("aliquot-operator-gpus", cluster.api.as_user(OPERATOR).patch, kube.gpus(card),
                                         {"spec": {"model": "N"}}),
    }
    applied = {item["metadata"]["name"] for path in (aliquot.POLICIES, VALIDATING) if cluster.api.exists(path)
               for item in cluster.api.get(path)["items"] if item["metadata"]["name"].startswith("aliquot-")}
    assert applied <= set(enforced), f"no request shows that {applied - set(enforced)} is enforced"
    deadline = time.monotonic() + 20
    for policy in applied:
        while not enforced[policy]():
            assert time.monotonic() < deadline, f"{policy} is not enforced"
            time.sleep(0.02)    # nothing announces it


def _is_refused(policy, call, *arguments):
    """Others may refuse it, too, such as the one that looks for the service account."""
    try:
        call(*arguments, dryRun="All")
    except ApiError as e:
        return f"'{policy}'" in e.message
    return False


def pod(name, limits=None, node=None, annotations=None, init=None):
    def container(n, lim):
        return {"name": n, "image": "localhost/pause:1", "imagePullPolicy": "Never",
                **({"resources": {"limits": lim}} if lim else {})}
    spec = {"containers": [container("main", limits)], "terminationGracePeriodSeconds": 0}
    if init:
        spec["initContainers"] = [container(f"init{i}", lim) for i, lim in enumerate(init)]
    if node:
        spec["nodeName"] = node
    return {"metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


def refused(call, *arguments, code=403, text="", **kwargs):
    with pytest.raises(ApiError) as caught:
        call(*arguments, **kwargs)
    assert caught.value.code == code, caught.value
    assert text in caught.value.message, caught.value
    return caught.value.message


def new(prefix):
    return f"{prefix}-{secrets.token_hex(3)}"


# ---- assignments ----

def test_annotation_dropped_at_creation(cluster, mutating):
    """A copy of a pod has the annotations of that one."""
    for key in (ASSIGNMENT, ASSIGNMENT + "-signature"):
        made = cluster.api.create(kube.pods(), pod(new("copy"), annotations={key: "x", "other": "kept"}), dryRun="All")
        assert made["metadata"]["annotations"] == {"other": "kept"}


def test_annotation_refused_on_every_way_to_change_a_pod(cluster):
    name = new("victim")
    cluster.api.create(kube.pods(), pod(name, {CORE: "10"}))    # stays Pending: no extender answers
    path = kube.pods(name=name)
    forged = {"metadata": {"annotations": {ASSIGNMENT: "{}"}}}
    refused(cluster.api.patch, path, forged, text="only the Aliquot scheduler")
    refused(cluster.api.patch, path + "/status", forged, text="only the Aliquot scheduler")
    refused(cluster.api.patch, path, forged, kind=kube.STRATEGIC, text="only the Aliquot scheduler")
    # The scheduler itself may write them by its Binding only (it has no right to patch pods either), and change by
    # pods/status what a Binding has written.
    scheduler = cluster.api.as_user(SCHEDULER)
    refused(scheduler.patch, path, forged)
    refused(scheduler.patch, path + "/status", forged, text="only the Aliquot scheduler")


def binding(name, annotations=None):
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "annotations": annotations or {}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": OTHER_NODE}}


def test_annotation_in_a_binding_is_the_schedulers_alone(cluster):
    name = new("bound")
    cluster.api.create(kube.pods(), pod(name, {CORE: "10"}))
    forged = binding(name, {ASSIGNMENT: "{}"})
    refused(cluster.api.create, kube.pods(name=name) + "/binding", forged, text=ASSIGNMENT)
    refused(cluster.api.create, kube.core("bindings", "default"), forged, text=ASSIGNMENT)
    scheduler = cluster.api.as_user(SCHEDULER)
    refused(scheduler.create, kube.core("bindings", "default"), forged)
    scheduler.create(kube.pods(name=name) + "/binding", forged)
    seen = cluster.api.get(kube.pods(name=name))
    assert seen["spec"]["nodeName"] == OTHER_NODE
    assert seen["metadata"]["annotations"][ASSIGNMENT] == "{}"
    # Once written it stays: neither changed nor removed, and other changes go through.
    for value in ("other", None):
        refused(cluster.api.patch, kube.pods(name=name), {"metadata": {"annotations": {ASSIGNMENT: value}}})
        refused(cluster.api.patch, kube.pods(name=name) + "/status",
                {"metadata": {"annotations": {ASSIGNMENT: value}}})
    cluster.api.patch(kube.pods(name=name), {"metadata": {"annotations": {"other": "fine"}}})
    cluster.api.patch(kube.pods(name=name) + "/status", {"status": {"message": "fine"}})


@pytest.mark.parametrize("key", ["egpuc.elasticgpu.io/main", "elasticgpu.io/egpuc-main", "egpuc-main",
                                 "egpuct.elasticgpu.io/main"])
def test_claims_of_a_pod_stay(cluster, key):
    """As its volumes do: a pod that runs does not move to another claim, nor lets go of its own."""
    with_claim, without = new("uses"), new("uses-none")
    cluster.api.create(kube.pods(), pod(with_claim, annotations={key: "{}"}))
    cluster.api.create(kube.pods(), pod(without))
    for name, value in ((with_claim, '{"a": 1}'), (with_claim, None), (without, "{}")):
        for door in ("", "/status"):
            refused(cluster.api.patch, kube.pods(name=name) + door, {"metadata": {"annotations": {key: value}}},
                    text=f"annotation {key} says which claim")
    cluster.api.patch(kube.pods(name=with_claim), {"metadata": {"annotations": {"other": "fine"}}})


def test_binding_without_assignment_is_not_our_business(cluster):
    name = new("plain")
    cluster.api.create(kube.pods(), pod(name, {"example.com/none": "1"}))
    cluster.api.create(kube.pods(name=name) + "/binding", binding(name))


# ---- the terms of a share ----

POLICY, WEIGHT, CEILING, LIMIT = (f"elasticgpu.io/{n}" for n in ("compute-policy", "compute-weight", "compute-ceiling",
                                                                "memory-limit"))


@pytest.mark.parametrize("key, value", [
    (POLICY, "burst"), (POLICY, "burst, side=offline"), (POLICY, "fixed-share"), (CEILING, "50"), (CEILING, "100,a=1"),
    (LIMIT, "4Gi"), (LIMIT, "main=1.5Gi"), ("tke.cloud.tencent.com/app-class", "offline"),
    (OURS + "placement-policy", "BinPack"), (OURS + "topology", "restricted"), (OURS + "numa-bind", "true"),
    (OURS + "gpu-model", "A100," * 63 + "H100")])
def test_terms_that_anybody_may_ask(cluster, tenant, key, value):
    tenant.create(kube.pods(), pod(new("terms"), {CORE: "10"}, annotations={key: value}), dryRun="All")


@pytest.mark.parametrize("key, value, text", [
    (POLICY, "greedy", "must be fixed"), (POLICY, "", "must be fixed"), (POLICY, "fixed;online", "must be fixed"),
    (WEIGHT, "0", "1 to 100"), (WEIGHT, "101", "1 to 100"), (CEILING, "50%", "1 to 100"), (CEILING, "-1", "1 to 100"),
    (LIMIT, "lots", "amount of memory"), (LIMIT, "-4Gi", "amount of memory"),
    (OURS + "placement-policy", "packed", "placement-policy must be first-fit"),
    (OURS + "topology", "fastest", "topology must be none"), (OURS + "numa-bind", "yes", "numa-bind must be true"),
    (OURS + "gpu-uuid", "GPU-1," * 64 + "GPU-2", "annotation elasticgpu.io/gpu-uuid lists more"),
    ("nvidia.com/nouse-gputype", "a" * 4097, "annotation nvidia.com/nouse-gputype lists more")])
def test_terms_that_make_no_sense_are_refused_at_once(cluster, key, value, text):
    refused(cluster.api.create, kube.pods(), pod(new("terms"), {CORE: "10"}, annotations={key: value}), text=text,
            code=422)


@pytest.mark.parametrize("key, value, role", [
    (POLICY, "online", "online"), (POLICY, "burst, main=online", "online"), (POLICY, "main = online ,side=burst", "online"),
    ("tke.cloud.tencent.com/app-class", "online", "online"), ("tke.cloud.tencent.com/app-class", "\tonline\t", "online"),
    (WEIGHT, "100", "weighted")])
def test_terms_that_cost_others_need_permission(cluster, tenant, key, value, role):
    body = pod(new("terms"), {CORE: "10"}, annotations={key: value})
    refused(tenant.create, kube.pods(), body, text="permission")
    # The pod's own service account may have it (a controller creates the pods of a Deployment) ...
    account = new("account")
    cluster.api.create(kube.core("serviceaccounts", "default"), {"metadata": {"name": account}})
    grant(cluster, f"aliquot-{role}", {"kind": "ServiceAccount", "name": account, "namespace": "default"})
    body["spec"]["serviceAccountName"] = account
    allowed_soon(tenant.create, kube.pods(), body, dryRun="All")
    # ... and an administrator has it anyway.
    cluster.api.create(kube.pods(), pod(new("terms"), {CORE: "10"}, annotations={key: value}), dryRun="All")


def test_terms_asked_through_an_operator(cluster):
    """An operator's permissions do not pass to the owners of the pods that it creates, but in its own namespace."""
    name = new("operator")
    body = pod(new("terms"), {CORE: "10"}, annotations={POLICY: "online"})
    for namespace, may in (("kube-public", False), ("default", True)):
        grant(cluster, "cluster-admin", {"kind": "ServiceAccount", "name": name, "namespace": namespace})
        operator = cluster.api.as_user(f"system:serviceaccount:{namespace}:{name}")
        allowed_soon(operator.create, kube.pods(), pod(new("terms"), {CORE: "10"}), dryRun="All")
        if may:
            operator.create(kube.pods(), body, dryRun="All")
        else:
            refused(operator.create, kube.pods(), body, text="permission")


def test_terms_of_a_pod_that_is_there(cluster, tenant):
    name = new("terms")
    tenant.create(kube.pods(), pod(name, {CORE: "10"}))
    for path in (kube.pods(name=name), kube.pods(name=name) + "/status"):
        refused(tenant.patch, path, {"metadata": {"annotations": {POLICY: "online"}}}, text="permission")
        refused(tenant.patch, path, {"metadata": {"annotations": {CEILING: "500"}}}, text="1 to 100", code=422)
    refused(tenant.create, kube.pods(name=name) + "/binding", binding(name, {POLICY: "online"}), text="permission")
    tenant.patch(kube.pods(name=name), {"metadata": {"annotations": {POLICY: "burst"}}})
    # What an administrator has set stays through other changes by others.
    cluster.api.patch(kube.pods(name=name), {"metadata": {"annotations": {POLICY: "online"}}})
    tenant.patch(kube.pods(name=name), {"metadata": {"annotations": {"other": "fine"}}})


@pytest.fixture(scope="module")
def tenant(cluster):
    """A user with all permissions on pods, and no others."""
    user = new("tenant")
    cluster.api.create(rbac("roles"), {"metadata": {"name": user}, "rules": [
        {"apiGroups": [""], "resources": ["pods", "pods/status", "pods/binding"], "verbs": ["*"]}]})
    grant(cluster, user, {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}, kind="Role")
    api = cluster.api.as_user(user)
    allowed_soon(api.get, kube.pods())
    return api


def rbac(kind):
    return f"/apis/rbac.authorization.k8s.io/v1/namespaces/default/{kind}"


def grant(cluster, role, subject, kind="ClusterRole"):
    cluster.api.create(rbac("rolebindings"), {
        "metadata": {"name": new("grant")}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})


def allowed_soon(call, *arguments, **kwargs):
    """A right works a moment after it is stored; nothing announces it."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return call(*arguments, **kwargs)
        except ApiError as e:
            if e.code != 403 or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


# ---- spec.nodeName ----

@pytest.mark.parametrize("share", [{CORE: "1"}, {MEMORY: "1Gi"}, {MEMORY: "1Gi", SLOT: "1"},
                                   {"tke.cloud.tencent.com/qgpu-core": "1"}, {"nvidia.com/gpu": "1"},
                                   {"aliyun.com/gpu-mem": "1"}])
def test_node_name_refused_with_a_share(cluster, share):
    refused(cluster.api.create, kube.pods(), pod(new("direct"), share, node="node-a"), text="nodeName")
    refused(cluster.api.create, kube.pods(), pod(new("direct"), None, node="node-a", init=[share]), text="nodeName")


def test_node_name_allowed_without_a_share(cluster):
    cluster.api.create(kube.pods(), pod(new("direct"), {"cpu": "10m"}, node="node-a"), dryRun="All")


# ---- slots ----

@pytest.fixture
def mutating(cluster):
    if not cluster.api.exists(aliquot.POLICIES):
        pytest.skip("this API server has no MutatingAdmissionPolicy")


def slots(made):
    both = made["spec"]["containers"] + made["spec"].get("initContainers", [])
    for c in both:
        resources = c.get("resources", {})
        assert resources.get("limits", {}).get(SLOT) == resources.get("requests", {}).get(SLOT)
    return {c["name"]: c.get("resources", {}).get("limits", {}).get(SLOT) for c in both}


@pytest.mark.parametrize("memory,core", [(MEMORY, CORE), ("tke.cloud.tencent.com/qgpu-memory",
                                                          "tke.cloud.tencent.com/qgpu-core")])
def test_memory_alone_gets_a_slot(cluster, mutating, memory, core):
    some = "4Mi" if memory == MEMORY else "4"
    made = cluster.api.create(kube.pods(), pod(new("slot"), {memory: some, "cpu": "1"}, init=[
        {memory: some}, {memory: some, core: "10"}, {"cpu": "1"}, None]), dryRun="All")
    assert slots(made) == {"main": "1", "init0": "1", "init1": None, "init2": None, "init3": None}
    limits = made["spec"]["containers"][0]["resources"]["limits"]
    assert limits == {memory: some, "cpu": "1", SLOT: "1"}


def test_no_slot_where_none_is_needed(cluster):
    assert slots(cluster.api.create(kube.pods(), pod(new("slot"), {CORE: "30", MEMORY: "1Gi"}),
                                    dryRun="All")) == {"main": None}
    assert slots(cluster.api.create(kube.pods(), pod(new("slot"), {CORE: "30"}), dryRun="All")) == {"main": None}
    assert slots(cluster.api.create(kube.pods(), pod(new("slot")), dryRun="All")) == {"main": None}
    assert slots(cluster.api.create(kube.pods(), pod(new("slot"), {MEMORY: "1Gi", SLOT: "1"}),
                                    dryRun="All")) == {"main": "1"}


@pytest.mark.parametrize("limits,want", [(None, None), ({MEMORY: "4Mi"}, "1")])
def test_lists_with_equal_keys_go_through(cluster, mutating, limits, want):
    """Server-side apply knows ports and variables by their keys; the API server takes pods in which one comes twice."""
    body = pod(new("twice"), limits)
    body["spec"]["containers"][0].update(
        env=[{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        ports=[{"containerPort": 80, "name": "a"}, {"containerPort": 80, "name": "b"}])
    body["spec"]["tolerations"] = [{"key": "a", "operator": "Exists"}] * 2
    body["spec"]["imagePullSecrets"] = [{"name": "a"}] * 2
    made = cluster.api.create(kube.pods(), body, dryRun="All")
    assert slots(made) == {"main": want}
    main = made["spec"]["containers"][0]
    assert [e["value"] for e in main["env"]] == ["1", "2"] and [p["name"] for p in main["ports"]] == ["a", "b"]


# ---- agents ----

def token_of_agent_on(cluster, node):
    """A token as the agent's pod on that node has it, with the node's name as a claim."""
    name = new("agent")
    body = pod(name, node=node)
    body["spec"]["serviceAccountName"] = "aliquot-agent"
    made = cluster.api.create(kube.pods("aliquot-system"), body)
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
        "audiences": ["https://kubernetes.default.svc"], "expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": made["metadata"]["uid"]}}}
    return _token(cluster, request)


def _token(cluster, request):
    path = kube.core("serviceaccounts", "aliquot-system", "aliquot-agent") + "/token"
    return cluster.api.create(path, request)["status"]["token"]


@pytest.fixture(scope="module")
def agent(cluster):
    return cluster.api.with_token(token_of_agent_on(cluster, cluster.node))


def gpu(name, node, **spec):
    return {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU",
            "metadata": {"name": name, "labels": {"elasticgpu.io/node": node}},
            "spec": {"index": 0, "memory": 85899345920, "model": "M", "nodeName": node, "path": "/dev/nvidia0",
                     "uuid": "GPU-6f1c2a3b-0000-0000-0000-000000000000", **spec}}


STATUS = {"status": {"state": "Healthy", "capacity": {CORE: "100", MEMORY: "80Gi"}}}


def test_agent_writes_its_own_gpus_only(cluster, agent):
    own, other = new("10.77.0.1"), new("10.77.0.2")
    agent.create(kube.gpus(), gpu(own, cluster.node))
    agent.patch(kube.gpus(own) + "/status", STATUS)
    agent.patch(kube.gpus(own), {"spec": {"model": "N"}})
    refused(agent.create, kube.gpus(), gpu(other, OTHER_NODE), text="of that node only")
    cluster.api.create(kube.gpus(), gpu(other, OTHER_NODE))
    refused(agent.patch, kube.gpus(other), {"spec": {"model": "N"}}, text="of that node only")
    refused(agent.patch, kube.gpus(other) + "/status", STATUS, text="of that node only")
    refused(agent.patch, kube.gpus(own), {"metadata": {"labels": {"elasticgpu.io/node": OTHER_NODE}}}, text="label")
    refused(agent.request, "DELETE", kube.gpus(other), text="of that node only")
    agent.patch(kube.gpus(own), {"spec": {"uuid": "GPU-1"}})    # the card was replaced
    refused(cluster.api.patch, kube.gpus(own), {"spec": {"nodeName": OTHER_NODE}}, code=422, text="one node for ever")
    agent.request("DELETE", kube.gpus(own))     # the card was taken out


def test_agent_leaves_the_schedulers_part_of_the_status(cluster, agent):
    name = new("10.77.0.1")
    agent.create(kube.gpus(), gpu(name, cluster.node))
    held = {"status": {"allocatable": {CORE: "70"}, "allocated": {"uid-1": {
        "namespace": "n", "pod": "p", "containers": [{"container": "c", "resource": {CORE: "30"}}]}},
        "held": [{"by": "claim a/b", "resource": {CORE: "1"}}], "heldBy": "claim a/b", "unavailable": "no agent"}}
    scheduler = cluster.api.as_user(SCHEDULER)
    scheduler.patch(kube.gpus(name) + "/status", held)
    agent.patch(kube.gpus(name) + "/status", STATUS)
    for forged in ({"allocated": None}, {"allocated": {"uid-1": None}}, {"allocatable": {CORE: "100"}},
                   {"held": []}, {"held": None}, {"heldBy": "x"}, {"unavailable": "other"}, {"unavailable": None}):
        refused(agent.patch, kube.gpus(name) + "/status", {"status": forged}, text="scheduler's")
    seen = cluster.api.get(kube.gpus(name))["status"]
    assert seen == {**held["status"], **STATUS["status"]}


def test_agent_leaves_the_orders_of_mig_instances(cluster, agent):
    """They name pods by UID: an agent that writes one could keep pods of other nodes waiting."""
    name, key = new("10.77.0.1"), "elasticgpu.io/mig-order"
    forged = {"metadata": {"annotations": {key: '{"serial":1,"instances":[]}'}}}
    ordered = gpu(name, cluster.node)
    ordered["metadata"].update(forged["metadata"])
    refused(agent.create, kube.gpus(), ordered, text="the scheduler's")
    agent.create(kube.gpus(), gpu(name, cluster.node))
    refused(agent.patch, kube.gpus(name), forged, text="the scheduler's")
    agent.patch(kube.gpus(name) + "/status", {**forged, **STATUS})     # the API server takes the status only
    assert key not in cluster.api.get(kube.gpus(name))["metadata"].get("annotations", {})
    cluster.api.as_user(SCHEDULER).patch(kube.gpus(name), {"metadata": {"annotations": {key: "{}"}}})
    for value in (None, "", '{"serial":2,"instances":[]}'):
        refused(agent.patch, kube.gpus(name), {"metadata": {"annotations": {key: value}}}, text="the scheduler's")
    agent.patch(kube.gpus(name), {"metadata": {"annotations": {"other": "fine"}}})
    agent.patch(kube.gpus(name) + "/status", STATUS)
    agent.request("DELETE", kube.gpus(name))


def test_scheduler_orders_mig_instances_only(cluster):
    """Outside of the status of a GPU object it may change one annotation: no other, no label and nothing of the spec."""
    name, order, maintenance = new("10.77.0.1"), "elasticgpu.io/mig-order", "elasticgpu.io/maintenance"
    made = gpu(name, cluster.node)
    made["metadata"]["annotations"] = {maintenance: "cordon"}
    cluster.api.create(kube.gpus(), made)
    scheduler = cluster.api.as_user(SCHEDULER)

    def annotate(key, value):
        return {"metadata": {"annotations": {key: value}}}
    for value in ('{"serial": 1, "instances": []}', '{"serial": 2, "instances": []}', None):
        scheduler.patch(kube.gpus(name), annotate(order, value))
        assert cluster.api.get(kube.gpus(name))["metadata"]["annotations"].get(order) == value
    for forged in (annotate(maintenance, "drain"), annotate(maintenance, None), annotate("elasticgpu.io/reset", "1"),
                   {"metadata": {"labels": {"elasticgpu.io/node": OTHER_NODE}}}, {"metadata": {"labels": {"a": "b"}}},
                   {"metadata": {"finalizers": ["example.com/kept"]}}, {"spec": {"model": "N"}},
                   {"spec": {"uuid": "GPU-1"}, **annotate(order, "{}")}):
        refused(scheduler.patch, kube.gpus(name), forged, text="elasticgpu.io/mig-order only")
    refused(scheduler.request, "DELETE", kube.gpus(name))


def test_operator_orders_maintenance_only(cluster):
    """`aliquot card` works; what a card is and the scheduler's order stay as they are."""
    name, order = new("10.77.0.1"), "elasticgpu.io/mig-order"
    made = gpu(name, cluster.node)
    made["metadata"]["annotations"] = {order: "{}"}
    cluster.api.create(kube.gpus(), made)
    operator = cluster.api.as_user(OPERATOR)

    def annotate(key, value):
        return {"metadata": {"annotations": {key: value}}}
    for verb in "cordon", "drain", None:
        operator.patch(kube.gpus(name), annotate("elasticgpu.io/maintenance", verb))
        assert cluster.api.get(kube.gpus(name))["metadata"]["annotations"].get("elasticgpu.io/maintenance") == verb
    refused(operator.patch, kube.gpus(name), {"spec": {"model": "N"}}, text="the agent's")
    for value in '{"serial": 1, "instances": []}', None:
        refused(operator.patch, kube.gpus(name), annotate(order, value), text="the scheduler's")
    refused(operator.patch, kube.gpus(name) + "/status", STATUS)
    cluster.api.patch(kube.gpus(name), {"spec": {"model": "N"}})
    cluster.api.patch(kube.gpus(name), annotate(order, None))


def test_agent_token_must_be_bound_to_a_node(cluster):
    unbound = _token(cluster, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                               "spec": {"expirationSeconds": 3600}})
    refused(cluster.api.with_token(unbound).create, kube.gpus(), gpu(new("x"), cluster.node), text="not bound")


def test_agent_writes_its_own_node_status_only(cluster, agent):
    capacity = {"status": {"capacity": {MEMORY: "160Gi"}}}
    agent.patch(kube.core("nodes", name=cluster.node) + "/status", capacity)
    refused(agent.patch, kube.core("nodes", name=OTHER_NODE) + "/status", capacity, text="own node only")
    refused(agent.patch, kube.core("nodes", name=cluster.node), {"metadata": {"labels": {"a": "b"}}})


def test_agent_changes_events_of_agents_only(cluster, agent):
    """It may patch Events everywhere, since the pods of its node are in every namespace."""
    def event(component):
        return {"metadata": {"name": new("event")}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
                "reason": "R", "message": "one", "source": {"component": component} if component else {}}
    again = {"count": 2, "message": "two"}
    own = agent.create(kube.core("events", "default"), event("aliquot-agent"))
    agent.patch(kube.core("events", "default", own["metadata"]["name"]), again)
    for component in ("kubelet", ""):
        other = cluster.api.create(kube.core("events", "default"), event(component))["metadata"]["name"]
        refused(agent.patch, kube.core("events", "default", other), again, text="Events of agents only")
        cluster.api.patch(kube.core("events", "default", other), again)


# ---- roles: exactly these, and nothing that opens a cluster ----

@pytest.mark.parametrize("user,verb,resource,allowed", [
    (AGENT, "list", "pods", True), (AGENT, "watch", "pods", True), (AGENT, "patch", "nodes/status", True),
    (AGENT, "create", "gpus.elasticgpu.io", True), (AGENT, "patch", "gpus.elasticgpu.io/status", True),
    (AGENT, "create", "events", True), (AGENT, "delete", "gpus.elasticgpu.io", True), (AGENT, "delete", "pods", False),
    (AGENT, "create", "pods", False), (AGENT, "patch", "pods", False), (AGENT, "create", "pods/binding", False),
    (AGENT, "get", "secrets", False), (AGENT, "patch", "nodes", False),
    (SCHEDULER, "watch", "pods", True), (SCHEDULER, "watch", "nodes", True),
    (SCHEDULER, "watch", "gpus.elasticgpu.io", True), (SCHEDULER, "create", "pods/binding", True),
    (SCHEDULER, "patch", "gpus.elasticgpu.io/status", True), (SCHEDULER, "create", "events", True),
    (SCHEDULER, "patch", "pods", False), (SCHEDULER, "patch", "pods/status", True),
    (SCHEDULER, "create", "bindings", False), (SCHEDULER, "get", "secrets", False),
    (SCHEDULER, "patch", "events", True), (SCHEDULER, "create", "events.events.k8s.io", False),
    (SCHEDULER, "create", "pods/eviction", True), (SCHEDULER, "delete", "pods", False),
    (SCHEDULER, "patch", "elasticgpuclaims.elasticgpu.io/status", True),
    (SCHEDULER, "delete", "elasticgpuclaims.elasticgpu.io", False),
    (SCHEDULER, "patch", "elasticgpuquotas.elasticgpu.io", False),
    (SCHEDULER, "patch", "elasticgpureservations.elasticgpu.io", False),
    (SCHEDULER, "patch", "elasticgpuclasses.elasticgpu.io", False),
    (SCHEDULER, "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", False),
    (SCHEDULER, "patch", "nodes/status", False), (SCHEDULER, "create", "csistoragecapacities.storage.k8s.io", False),
])
def test_roles(cluster, user, verb, resource, allowed):
    resource, _, sub = resource.partition("/")
    name, _, group = resource.partition(".")
    answer = cluster.api.as_user(user).create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "spec": {"resourceAttributes": {"namespace": "default", "verb": verb, "group": group, "resource": name,
                                        "subresource": sub}}})
    assert answer["status"]["allowed"] is allowed, json.dumps(answer["status"])


@pytest.mark.parametrize("user,verb,resource,name,allowed", [
    (AGENT, "watch", "configmaps", "aliquot-signing", True), (AGENT, "watch", "configmaps", "other", False),
    (AGENT, "get", "secrets", "aliquot-signing", False), (AGENT, "patch", "configmaps", "aliquot-signing", False),
    (AGENT, "watch", "configmaps", "custom-mig-parted-configs", True),
    (AGENT, "patch", "configmaps", "custom-mig-parted-configs", False),
    (SCHEDULER, "get", "secrets", "aliquot-signing", True), (SCHEDULER, "get", "secrets", "other", False),
    (SCHEDULER, "create", "csistoragecapacities.storage.k8s.io", "", True),
    (SCHEDULER, "patch", "csistoragecapacities.storage.k8s.io", "aliquot-wake", True),
    (SCHEDULER, "patch", "csistoragecapacities.storage.k8s.io", "other", False),
    (SCHEDULER, "patch", "secrets", "aliquot-signing", False),
    (SCHEDULER, "create", "leases.coordination.k8s.io", "", True),
    (SCHEDULER, "patch", "leases.coordination.k8s.io", "aliquot-scheduler", True),
    (SCHEDULER, "patch", "leases.coordination.k8s.io", "other", False),
    (SCHEDULER, "create", "secrets", "", True), (SCHEDULER, "patch", "configmaps", "aliquot-signing", True),
])
def test_roles_in_the_own_namespace(cluster, user, verb, resource, name, allowed):
    resource, _, group = resource.partition(".")
    answer = cluster.api.as_user(user).create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "spec": {"resourceAttributes": {"namespace": "aliquot-system", "verb": verb, "group": group,
                                        "resource": resource, "name": name}}})
    assert answer["status"]["allowed"] is allowed, json.dumps(answer["status"])


def may(cluster, user, verb, resource, namespace="default"):
    resource, _, sub = resource.partition("/")
    answer = cluster.api.as_user(user).create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
        "spec": {"resourceAttributes": {"namespace": namespace, "verb": verb, "group": "elasticgpu.io",
                                        "resource": resource, "subresource": sub}}})
    return answer["status"]["allowed"]


def may_soon(cluster, *question):
    """An aggregated role and a binding work a moment after they are stored."""
    deadline = time.monotonic() + 20
    while not may(cluster, *question):
        assert time.monotonic() < deadline, question
        time.sleep(0.05)


def test_roles_of_users(cluster):
    """The right to edit a namespace covers its claims, never its quotas; to see the cards of all takes a binding."""
    def user():
        return {"kind": "User", "name": new("user"), "apiGroup": "rbac.authorization.k8s.io"}

    reader, viewer = user(), user()
    grant(cluster, "view", reader)
    may_soon(cluster, reader["name"], "list", "elasticgpuclaims")
    assert may(cluster, reader["name"], "get", "elasticgpuquotas")
    assert not may(cluster, reader["name"], "create", "elasticgpuclaims")
    for role in ("edit", "admin", "aliquot-claims"):
        claimant = user()
        grant(cluster, role, claimant)
        for verb in ("create", "patch", "delete"):
            may_soon(cluster, claimant["name"], verb, "elasticgpuclaims")
            assert not may(cluster, claimant["name"], verb, "elasticgpuclaims/status")
            assert not may(cluster, claimant["name"], verb, "elasticgpuclaims", "kube-system")
            assert not may(cluster, claimant["name"], verb, "elasticgpuquotas")
            assert not may(cluster, claimant["name"], verb, "elasticgpuquotas/status")
        assert not may(cluster, claimant["name"], "list", "gpus")
    cluster.api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": {"name": new("viewers")}, "subjects": [viewer],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "aliquot-gpu-viewer"}})
    for resource in ("gpus", "elasticgpus", "elasticgpuclasses", "elasticgpureservations"):
        may_soon(cluster, viewer["name"], "list", resource, "")
        assert not may(cluster, viewer["name"], "patch", resource, "")


# ---- the object ----

@pytest.mark.parametrize("spec", [{"index": -1}, {"memory": 0}, {"uuid": "none"}, {"index": "0"}])
def test_gpu_object_is_validated(cluster, spec):
    refused(cluster.api.create, kube.gpus(), gpu(new("bad"), "n", **spec), code=422)


def test_gpu_status_is_validated(cluster):
    name = new("bad")
    cluster.api.create(kube.gpus(), gpu(name, "n"))
    for status in ({"state": "Broken"}, {"capacity": {CORE: "lots"}}, {"allocated": {"u": {"pod": "p"}}}):
        refused(cluster.api.patch, kube.gpus(name) + "/status", {"status": status}, code=422)


def test_gpu_columns_short_name_and_selector(cluster):
    name = new("col")
    cluster.api.create(kube.gpus(), gpu(name, "node-q", index=3, model="NVIDIA A100-SXM4-80GB"))
    cluster.api.patch(kube.gpus(name) + "/status", {"status": {
        **STATUS["status"], "allocatable": {CORE: "70", MEMORY: "50Gi"}}})
    definition = cluster.api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gpus.elasticgpu.io")
    by_label, by_field = ("-l", "elasticgpu.io/node=node-q"), ("--field-selector", "spec.nodeName=node-q")
    if "selectableFields" in definition["spec"]["versions"][0]:     # from 1.31 on
        assert cluster.kubectl("get", "egpu", "-o", "name", *by_field).split() == ["gpu.elasticgpu.io/" + name]
    lines = cluster.kubectl("get", "egpu", *by_label).splitlines()
    assert lines[0].split()[:2] == ["NAME", "NODE"] and len(lines) == 2, lines
    for word in ("node-q", "3", "A100-SXM4-80GB", "80Gi", "50Gi", "70", "Healthy"):
        assert word in lines[1], lines
    cluster.api.patch(kube.gpus(name) + "/status", {"status": {
        "held": [{"by": by, "resource": {CORE: "1"}} for by in ("claim a/b", "reservation r")],
        "heldBy": "claim a/b and 1 more"}})
    assert "claim a/b and 1 more" in cluster.kubectl("get", "egpu", name, "-o", "wide")


@pytest.mark.parametrize("key", ["elasticGPUClassName", "egpuClassName", "storageClassName"])
def test_a_claim_shows_its_class_in_every_spelling(cluster, key):
    group, name = "/apis/elasticgpu.io/v1alpha1", new("columns")
    cluster.api.create(group + "/namespaces/default/elasticgpuclaims", {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClaim", "metadata": {"name": name},
        "spec": {key: "its-class", "resources": {"requests": {CORE: 10}}}})
    assert "its-class" in cluster.kubectl("get", "egpuc", name, "--no-headers").split()


@pytest.mark.parametrize("mode", ["bindingMode", "egpuBindingMode", "eGPUBindingMode", "volumeBindingMode"])
@pytest.mark.parametrize("expansion", ["allowExpansion", "allowVolumeExpansion"])
def test_a_class_shows_its_modes_in_every_spelling(cluster, mode, expansion):
    name = new("columns")
    cluster.api.create("/apis/elasticgpu.io/v1alpha1/elasticgpuclasses", {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": name},
        "provisioner": "elasticgpu.io/qgpu", mode: "WaitForFirstConsumer", expansion: True})
    row = cluster.kubectl("get", "egpuclass", name, "--no-headers").split()
    assert row[:5] == [name, "elasticgpu.io/qgpu", "Delete", "WaitForFirstConsumer", "true"]


def test_a_reservation_shows_who_uses_it(cluster):
    path, name = "/apis/elasticgpu.io/v1alpha1/elasticgpureservations", new("columns")
    cluster.api.create(path, {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUReservation", "metadata": {"name": name},
        "spec": {"owners": [{"namespace": "a"}], "resources": {CORE: 10}}})
    cluster.api.patch(f"{path}/{name}/status", {"status": {
        "phase": "Held", "node": "n", "usedBy": ["a/b", "a/c"], "users": "a/b and 1 more"}})
    row = cluster.kubectl("get", "egpur", name, "--no-headers")
    assert "a/b and 1 more" in row and "[" not in row
