# SPDX-License-Identifier: Apache-2.0
"""The policies and classes of deploy/dra and deploy/dra-pods, asked of a real API server. No agent and no scheduler run."""

import copy
import json
import pathlib
import re
import secrets
import time

import pytest
import yaml

from cluster import ApiError, Cluster, aliquot, api as kube

SCHEDULER = "system:serviceaccount:aliquot-system:aliquot-scheduler"
AGENT = "system:serviceaccount:aliquot-system:aliquot-agent"
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
OURS = "gpu.elasticgpu.io"
GATE = "gpu.elasticgpu.io/placement"
TOP = pathlib.Path(__file__).resolve().parent.parent.parent
ROWS = json.loads((TOP / "tests/e2e/admission-pods.json").read_text())
NAMES = {"elasticgpu.io/slot"}.union(*(one["quantities"] for one in json.loads(
    (TOP / "charts/aliquot/dialects.json").read_text())["dialects"]))


def path(kind):
    return f"/apis/resource.k8s.io/v1/namespaces/default/{kind}"


@pytest.fixture(scope="module")
def cluster():
    with Cluster("dra-policies-" + secrets.token_hex(2)) as c:
        c.up()
        if not c.api.exists(aliquot.POLICIES):
            pytest.skip("shares of devices came with Kubernetes 1.36")
        c.kubectl("apply", "-k", aliquot.with_components(c, "dra", "dra-pods"))
        for kind, name in (("deployment", "aliquot-scheduler"), ("daemonset", "aliquot-agent")):
            c.kubectl("delete", "-n", "aliquot-system", kind, name, "--wait=false")
        _wait_enforced(c)
        yield c


def _wait_enforced(cluster):
    """Policies work a moment after they are stored, each in its turn."""
    name = new("pod")
    cluster.api.create(kube.pods(), pod(name))
    enforced = {
        "aliquot-dra-claims": lambda: make(cluster.api, {"core": "150"}),
        "aliquot-scheduler-pods": lambda: cluster.api.as_user(SCHEDULER).patch(
            kube.pods(name=name), {"metadata": {"labels": {"a": "b"}}}, dryRun="All"),
        "aliquot-agent-slices": lambda: cluster.api.as_user(AGENT).create(
            "/apis/resource.k8s.io/v1/resourceslices", resource_slice("other"), dryRun="All"),
        "aliquot-scheduler-templates": lambda: cluster.api.as_user(SCHEDULER).create(
            path("resourceclaimtemplates"), {"metadata": {"name": name}, "spec": {"spec": spec_of({"exactly": exactly(None)})}}, dryRun="All"),
        "aliquot-requests": lambda: asking(cluster.api, {"elasticgpu.io/gpu-core": "150"}),
    }
    deadline = time.monotonic() + 60
    while "resourceClaims" not in asking(cluster.api, limits={"elasticgpu.io/gpu-core": "10"})["spec"]:
        assert time.monotonic() < deadline, "aliquot-dra-pods is not enforced"
        time.sleep(0.02)    # nothing announces it
    for policy, call in enforced.items():
        while not _is_refused(policy, call):
            assert time.monotonic() < deadline, f"{policy} is not enforced"
            time.sleep(0.02)    # nothing announces it


def _is_refused(policy, call):
    try:
        call()
    except ApiError as e:
        return f"'{policy}'" in e.message
    return False


def new(prefix):
    return f"{prefix}-{secrets.token_hex(3)}"


def pod(name, gates=(GATE, "other/gate")):
    return {"metadata": {"name": name}, "spec": {
        "schedulingGates": [{"name": gate} for gate in gates],
        "containers": [{"name": "main", "image": "localhost/pause:1", "imagePullPolicy": "Never"}]}}


def resource_slice(node, driver=OURS):
    return {"metadata": {"name": new("slice")}, "spec": {
        "driver": driver, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": []}}


def exactly(amounts, device_class=OURS):
    return {"deviceClassName": device_class, **({"capacity": {"requests": amounts}} if amounts else {})}


def spec_of(*requests, config=()):
    return {"devices": {"requests": [{"name": f"r{i}", **one} for i, one in enumerate(requests)],
                        **({"config": list(config)} if config else {})}}


def make(api, amounts, device_class=OURS, kind="resourceclaims", spec=None):
    """Without being stored."""
    spec = spec or spec_of({"exactly": exactly(amounts, device_class)})
    body = {"metadata": {"name": new("claim")}, "spec": {"spec": spec} if kind.endswith("templates") else spec}
    return api.create(path(kind), body, dryRun="All")


def refused(call, *arguments, text, **kwargs):
    with pytest.raises(ApiError) as caught:
        call(*arguments, **kwargs)
    assert text in caught.value.message, caught.value


# ---- amounts ----

@pytest.mark.parametrize("kind", ["resourceclaims", "resourceclaimtemplates"])
@pytest.mark.parametrize("amounts, text", [
    ({"core": "-5"}, "core must be a whole number from 0 to 100, the percentage of one card, and not -5"),
    ({"core": "0.5"}, "core must be a whole number from 0 to 100"),
    ({"core": "150"}, "several cards are a count"),
    ({"memory": "4096"}, "memory is below 1 MiB: it counts bytes; did you mean 4096Mi?"),
    ({"memory": "-1Gi"}, "memory must be an amount of bytes such as 20Gi"),
    ({"cores": "5"}, "capacity cores is unknown"),
    ({"gpu.elasticgpu.io/core": "5"}, "capacity gpu.elasticgpu.io/core is unknown"),
])
def test_odd_amounts_are_refused(cluster, kind, amounts, text):
    refused(make, cluster.api, amounts, kind=kind, text=text)
    refused(make, cluster.api, amounts, "first-fit.gpu.elasticgpu.io", kind=kind, text=text)
    nested = spec_of({"firstAvailable": [{"name": "a", **exactly({"core": "30"})}, {"name": "b", **exactly(amounts)}]})
    refused(make, cluster.api, None, kind=kind, spec=nested, text=text)


@pytest.mark.parametrize("amounts", [
    None, {"core": "0"}, {"core": "30"}, {"core": "100"}, {"memory": "1Mi"}, {"core": "30", "memory": "20Gi"}, {"memory": "2e9"}])
def test_good_amounts_are_taken(cluster, amounts):
    for kind in ("resourceclaims", "resourceclaimtemplates"):
        make(cluster.api, amounts, kind=kind)


def test_other_classes_are_left_alone(cluster):
    make(cluster.api, {"core": "150", "x": "0.5"}, "other")


def test_each_request_is_looked_at(cluster):
    spec = spec_of({"exactly": exactly({"core": "30"})}, {"exactly": exactly({"core": "101"})})
    refused(make, cluster.api, None, spec=spec, text="core must be")


# ---- ShareConfig ----

def config(driver=OURS, **fields):
    return {"opaque": {"driver": driver, "parameters": {
        "apiVersion": "gpu.elasticgpu.io/v1alpha1", "kind": "ShareConfig", **fields}}}


BAD = [
    ({"wieght": 5}, "ShareConfig has no field wieght"),
    ({"ceiling": "5"}, "weight and ceiling must be whole numbers from 1 to 100"),
    ({"ceiling": 101}, "weight and ceiling must be whole numbers from 1 to 100"),
    ({"ceiling": 1.5}, "weight and ceiling must be whole numbers from 1 to 100"),
    ({"computePolicy": "greedy"}, "computePolicy must be fixed, burst"),
    ({"computePolicy": 5}, "computePolicy must be"),
    ({"placementPolicy": "greedy"}, "placementPolicy must be first-fit, best-fit"),
    ({"kind": "MpsConfig"}, "kind ShareConfig"),
]


@pytest.mark.parametrize("fields, text", BAD)
def test_bad_parameters_are_refused(cluster, fields, text):
    for kind in ("resourceclaims", "resourceclaimtemplates"):
        spec = spec_of({"exactly": exactly({"core": "30"})}, config=[config(**fields)])
        refused(make, cluster.api, None, kind=kind, spec=spec, text=text)
    refused(cluster.api.create, CLASSES, {"metadata": {"name": new("class")}, "spec": {"config": [config(**fields)]}},
            dryRun="All", text=text)


def test_good_parameters_are_taken(cluster):
    good = config(computePolicy="burst", ceiling=60, placementPolicy="best-fit")
    make(cluster.api, None, spec=spec_of({"exactly": exactly({"core": "30"})}, config=[good]))
    make(cluster.api, None, spec=spec_of({"exactly": exactly({"core": "30"})}, config=[config("other", wieght=5)]))


def test_weights_need_permission(cluster):
    """As annotations of pods do (policy-terms.yaml)."""
    user = new("user")
    cluster.kubectl("create", "rolebinding", user, "-n", "default", "--clusterrole=edit", f"--user={user}")
    cluster.kubectl("create", "role", user, "-n", "default", "--verb=create", "--resource=resourceclaims.resource.k8s.io")
    cluster.kubectl("create", "rolebinding", user + "-claims", "-n", "default", f"--role={user}", f"--user={user}")
    spec = spec_of({"exactly": exactly({"core": "30"})}, config=[config(weight=50)])
    refused(make, cluster.api.as_user(user), None, spec=spec, text="need permission")
    cluster.kubectl("create", "rolebinding", user + "-may", "-n", "default", "--clusterrole=aliquot-weighted", f"--user={user}")
    make(cluster.api.as_user(user), None, spec=spec)


# ---- what the scheduler and the agent may change ----

def test_the_scheduler_takes_its_own_gate_off_and_nothing_else(cluster):
    name = new("gated")
    made = cluster.api.create(kube.pods(), pod(name))
    scheduler, place = cluster.api.as_user(SCHEDULER), kube.pods(name=name)
    for change in ({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"annotations": {"a": "b"}}},
                   {"metadata": {"finalizers": ["a/b"]}}, {"spec": {"activeDeadlineSeconds": 5}},
                   {"spec": {"nodeSelector": {"a": "b"}}}, {"spec": {"schedulingGates": [{"name": GATE}]}},
                   {"spec": {"tolerations": [*made["spec"]["tolerations"], {"operator": "Exists"}]}},
                   {"spec": {"containers": [{"name": "main", "image": "other"}]}}):
        refused(scheduler.patch, place, change, kind=kube.STRATEGIC if "containers" in change.get("spec", {}) else kube.MERGE,
                text="the scheduler may take off")
    scheduler.patch(place, {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}, kind=kube.STRATEGIC)
    assert cluster.api.get(place)["spec"]["schedulingGates"] == [{"name": "other/gate"}]
    cluster.api.delete(place)


# Values that the API server takes of a pod that is there, and that its schema alone does not give.
CANDIDATES = (
    {"metadata": {"finalizers": ["a/b"]}},
    {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}},
    {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}},
    {"spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}},
    {"spec": {"containers": [{"name": "main", "image": "other"}]}},
    {"spec": {"initContainers": [{"name": "first", "image": "other"}]}},
    {"spec": {"terminationGracePeriodSeconds": 1}},
    {"spec": {"schedulingGates": [{"$patch": "delete", "name": "other/gate"}]}},
)
SAMPLES = {"string": "a", "integer": 5, "boolean": True, "number": 5, "object": {}}


def sample(schemas, schema, depth=3):
    """A value of an OpenAPI schema, with all that it can have down to a depth."""
    for one in schema.get("allOf", []):
        return sample(schemas, schemas[one["$ref"].rpartition("/")[2]], depth)
    if "$ref" in schema:
        return sample(schemas, schemas[schema["$ref"].rpartition("/")[2]], depth)
    if schema.get("type") == "array":
        return [sample(schemas, schema["items"], depth)]
    if "additionalProperties" in schema:
        return {"a": sample(schemas, schema["additionalProperties"], depth)}
    if "properties" in schema:
        return {name: sample(schemas, one, depth - 1) for name, one in schema["properties"].items()
                if depth > 0 or name in schema.get("required", [])}
    return SAMPLES[schema.get("type", "string")]


def changes(api):
    """Merge patches of every field of a pod's metadata and spec, one each."""
    schemas = api.get("/openapi/v3/api/v1")["components"]["schemas"]
    for part, name in (("metadata", "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"), ("spec", "io.k8s.api.core.v1.PodSpec")):
        for field, schema in schemas[name]["properties"].items():
            yield {part: {field: sample(schemas, schema)}}
    yield from CANDIDATES


def with_the_gate_off(change):
    """The same beside what the scheduler may do."""
    spec = change.get("spec", {})
    return {**change, "spec": {**spec, "schedulingGates": [{"$patch": "delete", "name": GATE}, *spec.get("schedulingGates", [])]}}


def is_changed(before, after):
    """But for its status and what each write changes."""
    def rest(one):
        return one["spec"], {key: value for key, value in one["metadata"].items()
                             if key not in ("managedFields", "resourceVersion", "generation")}
    return rest(before) != rest(after)


@pytest.mark.parametrize("gates", [(GATE, "other/gate"), ()], ids=["gated", "not gated"])
def test_no_field_of_a_pod_is_open_to_the_scheduler(cluster, gates):
    """What an administrator can change of a pod, by the API server's own rules, the scheduler cannot."""
    body = pod(new("pod"), gates)
    body["metadata"]["finalizers"] = ["test/kept"]
    body["spec"]["initContainers"] = [{"name": "first", "image": "localhost/pause:1", "imagePullPolicy": "Never"}]
    body["spec"]["terminationGracePeriodSeconds"] = 60
    body["spec"]["nodeSelector"] = {"no": "node"}
    stored = cluster.api.create(kube.pods(), body)
    place = kube.pods(name=body["metadata"]["name"])
    tried = set()
    for change in changes(cluster.api):
        try:
            after = cluster.api.patch(place, change, kind=kube.STRATEGIC, dryRun="All")
        except ApiError:
            continue
        if not is_changed(stored, after):
            continue
        tried |= {(part, field) for part, fields in change.items() for field in fields}
        refused(cluster.api.as_user(SCHEDULER).patch, place, with_the_gate_off(change) if gates else change, kind=kube.STRATEGIC,
                dryRun="All", text="the scheduler may take off")
    if gates:
        cluster.api.as_user(SCHEDULER).patch(place, with_the_gate_off({}), kind=kube.STRATEGIC, dryRun="All")
    cluster.api.patch(place, {"metadata": {"finalizers": None}})
    cluster.api.delete(place, gracePeriodSeconds=0)
    least = {("metadata", field) for field in ("labels", "annotations", "finalizers", "ownerReferences")} \
        | {("spec", field) for field in ("activeDeadlineSeconds", "tolerations", "containers", "initContainers")}
    assert tried >= least | ({("spec", "nodeSelector"), ("spec", "schedulingGates")} if gates else set()), tried


@pytest.mark.parametrize("path, kind, body", [
    ("", "POST", {}), ("/ephemeralcontainers", "PATCH", {"spec": {"ephemeralContainers": [{"name": "a", "image": "b"}]}}),
    ("/resize", "PATCH", {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "1"}}}]}}),
    ("", "PUT", {}), ("", "APPLY", {}), ("", "DELETE", None)])
def test_other_ways_to_a_pod_are_closed_to_the_scheduler(cluster, path, kind, body):
    """By its role. To apply a pod that is not there takes the right to create one."""
    name = new("pod")
    stored = cluster.api.create(kube.pods(), pod(name))
    there = kube.pods() if kind == "POST" else kube.pods(name="absent" if kind == "APPLY" else name) + path
    if kind == "APPLY":
        there += "?fieldManager=test&force=true"
        body = {"apiVersion": "v1", "kind": "Pod", **pod("absent")}
    status, text = cluster.api.as_user(SCHEDULER).raw(
        "PATCH" if kind == "APPLY" else kind, there, body if path or kind == "APPLY" else kind != "DELETE" and {**stored, **body} or None,
        kube.APPLY if kind == "APPLY" else kube.STRATEGIC if kind == "PATCH" else "application/json")
    assert status == 403, (status, text)
    cluster.api.delete(kube.pods(name=name), gracePeriodSeconds=0)


def test_the_scheduler_may_write_an_allocation(cluster):
    """All that it writes of a claim, with its own rights. The pod is not there, so that Kubernetes soon empties the claim."""
    name = new("claim")
    claims = path("resourceclaims")
    made = cluster.api.create(claims, {"metadata": {"name": name}, "spec": spec_of({"exactly": exactly({"core": "30"})})})
    scheduler = cluster.api.as_user(SCHEDULER)
    scheduler.patch(f"{claims}/{name}", {"metadata": {"uid": made["metadata"]["uid"], "finalizers": [
        "resource.kubernetes.io/delete-protection"]}}, kind=kube.STRATEGIC)
    stored = scheduler.patch(f"{claims}/{name}/status", {"status": {"allocation": {
        "allocationTimestamp": "2026-01-31T12:34:56Z",
        "devices": {"results": [{"request": "r0", "driver": OURS, "pool": "n", "device": "gpu-0",
                                 "shareID": "1b4e28ba-2fa1-81d2-883f-0016d3cca427",
                                 "consumedCapacity": {"core": "30", "memory": "24Gi"}}], "config": []},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}})
    assert stored["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"] == {"core": "30", "memory": "24Gi"}


def test_an_agent_has_no_slices_of_other_nodes(cluster):
    refused(cluster.api.as_user(AGENT).create, "/apis/resource.k8s.io/v1/resourceslices", resource_slice("other"),
            text="not bound to a node")


def test_classes(cluster):
    names = {one["metadata"]["name"] for one in cluster.api.get(CLASSES)["items"]}
    assert {OURS, "first-fit.gpu.elasticgpu.io"} <= names


def test_the_pod_of_the_page(cluster):
    """It and its template are taken, and it uses the template."""
    template, user = (yaml.safe_load(text) for text in re.findall(
        r"^```yaml\n(apiVersion: \S+\nkind: (?:ResourceClaimTemplate|Pod)\n.*?)^```$", (TOP / "docs/dra.md").read_text(), re.M | re.S))
    cluster.api.create(path("resourceclaimtemplates"), template, dryRun="All")
    made = cluster.api.create(kube.pods(), user, dryRun="All")
    assert set(requests_of(made).values()) == {template["metadata"]["name"]} and made["spec"]["schedulingGates"] == [{"name": GATE}]


def test_a_class_for_a_resource_name(cluster):
    """Whole cards without rewriting, as docs/dra.md has it."""
    text = (TOP / "docs/dra.md").read_text()
    manifest = text[text.rindex("```yaml", 0, text.index("extendedResourceName")) + len("```yaml"):]
    body = yaml.safe_load(manifest[:manifest.index("```")])
    made = cluster.api.create(CLASSES, body, dryRun="All")
    assert made["spec"]["extendedResourceName"] == "nvidia.com/gpu"


@pytest.mark.parametrize("selectors, good", [((), False), (("true",), False), (("false", "false"), False), (("false",), True)])
def test_a_class_for_aliquot_keeps_kube_scheduler_off(cluster, selectors, good):
    body = {"metadata": {"name": new("class"), "labels": {"gpu.elasticgpu.io/allocator": "aliquot"}},
            "spec": {"selectors": [{"cel": {"expression": one}} for one in selectors]}}
    if good:
        cluster.api.create(CLASSES, body, dryRun="All")
    else:
        refused(cluster.api.create, CLASSES, body, dryRun="All", text="must have one selector, false")


# ---- templates of the scheduler ----

def test_the_scheduler_makes_its_own_templates_only(cluster):
    templates, scheduler = path("resourceclaimtemplates"), cluster.api.as_user(SCHEDULER)
    name, users = "aliquot-native-core-30", new("mine")
    body = {"metadata": {"name": name, "labels": {"gpu.elasticgpu.io/made-by": "aliquot-scheduler"}},
            "spec": {"spec": spec_of({"exactly": exactly({"core": "30"})})}}
    cluster.api.create(templates, dict(body, metadata={"name": users}))
    for metadata in ({"name": name}, {"name": "other", "labels": body["metadata"]["labels"]}):
        refused(scheduler.create, templates, dict(body, metadata=metadata), text="the scheduler may make and delete those")
    refused(scheduler.delete, f"{templates}/{users}", text="the scheduler may make and delete those")
    scheduler.create(templates, body)
    scheduler.delete(f"{templates}/{name}")
    cluster.api.delete(f"{templates}/{users}")


# ---- pods with resource names ----

def asking(api, limits=None, metadata=None, env=None, init=(), **spec):
    """A pod that requests by names, as it would be stored."""
    def one(name, own, **more):
        return {"name": name, "image": "localhost/pause:1", **({"resources": {"limits": own}} if own else {}), **more}
    return api.create(kube.pods(), {
        "metadata": {"name": new("asks"), **(metadata or {})},
        "spec": {"containers": [one("main", limits, **({"env": env} if env else {}))],
                 **({"initContainers": [one(f"init{i}", own) for i, own in enumerate(init)]} if init else {}), **spec}}, dryRun="All")


def requests_of(made):
    """What each claim of the pod is made of."""
    return {one["name"]: one["resourceClaimTemplateName"] for one in made["spec"].get("resourceClaims", [])}


def containers_of(made):
    return [*made["spec"]["containers"], *made["spec"].get("initContainers", [])]


def claims_of(made):
    return {c["name"]: [one["name"] for one in c["resources"].get("claims", [])] for c in containers_of(made)}


def names_in(made):
    return {name for c in containers_of(made) for amounts in (c["resources"].get("limits", {}), c["resources"].get("requests", {}))
            for name, value in amounts.items() if name in NAMES and value != "0"}


def wanted_of(body):
    """The containers that request a share by names, or by KAI's annotations."""
    annotations = body["metadata"].get("annotations", {})
    kai = annotations.get("gpu-fraction-container-name", body["spec"]["containers"][0]["name"]) \
        if {"gpu-fraction", "gpu-memory"} & annotations.keys() else None
    return {c["name"] for c in containers_of(body) if c["name"] == kai or any(
        name in NAMES and value != "0" for name, value in c.get("resources", {}).get("limits", {}).items())}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["what"])
def test_what_is_admitted_gets_a_claim(cluster, row):
    """The rest is refused in the same words as without claims (docs/admission.md)."""
    body = copy.deepcopy(row["pod"])
    if row["refused"]:
        refused(cluster.api.create, kube.pods(), body, dryRun="All", text=row["refused"])
        return
    made = cluster.api.create(kube.pods(), body, dryRun="All")
    if any("egpuc" in key for key in body["metadata"].get("annotations", {})):    # claims of Aliquot's own kind
        assert not requests_of(made)
        return
    assert not names_in(made)
    wanted = wanted_of(row["pod"])
    assert {name for name, own in claims_of(made).items() if own} == wanted
    assert {name for own in claims_of(made).values() for name in own} == requests_of(made).keys()
    assert [gate["name"] for gate in made["spec"].get("schedulingGates", [])] == ([GATE] if wanted else [])
    assert not {"gpu-fraction", "gpu-memory", "gpu-fraction-container-name"} & made["metadata"].get("annotations", {}).keys()


@pytest.mark.parametrize("limits, more, request_name", [
    ({"elasticgpu.io/gpu-core": "30", "elasticgpu.io/gpu-memory": "20Gi", "cpu": "1"}, {}, "native-core-30-memory-21474836480"),
    ({"elasticgpu.io/gpu-memory": "2e9"}, {}, "native-memory-2000000000"),
    ({"tke.cloud.tencent.com/qgpu-core-greedy": "10", "tke.cloud.tencent.com/qgpu-memory": "5"}, {}, "qgpu-memory-5-coreoffline-10"),
    ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "0", "nvidia.com/priority": "1"}, {}, "hami-cards-1-memory-0-priority-1"),
    ({"nvidia.com/gpu": "1"}, {"env": [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "4096"}]}, "hami-cards-1-memory-4096"),
    ({"nvidia.com/gpu": "1"}, {"env": [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "lots"}]}, "hami-cards-1-memory-x"),
    ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "9"}, {"env": [{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "4096"}]},
     "hami-cards-1-memory-9"),
    ({"aliyun.com/gpu-mem": "8"}, {"metadata": {"labels": {"aliyun.com/gpu-count": "2"}}}, "gpushare-memory-8-split-2"),
    ({"aliyun.com/gpu-mem": "8"}, {"metadata": {"labels": {"aliyun.com/gpu-count": "2a"}}}, "gpushare-memory-8-split-x"),
    ({"elasticgpu.io/gpu-core": "30"}, {"metadata": {"labels": {"aliyun.com/gpu-count": "2"}}}, "native-core-30"),
    (None, {"metadata": {"annotations": {"gpu-fraction": ".5", "gpu-fraction-num-devices": "2"}}}, "kai-fraction-d5-devices-2"),
    (None, {"metadata": {"annotations": {"gpu-memory": "'\"}{"}}}, "kai-memory-x"),
    (None, {"metadata": {"annotations": {"gpu-fraction": "0.5", "NVIDIA_GPU_MEMORY_LIMIT": "9", "elasticgpu.io/gpu-core": "7"}}},
     "kai-fraction-0d5")])
def test_the_name_is_the_request(cluster, limits, more, request_name):
    assert requests_of(asking(cluster.api, limits, **more)) == {"main": "aliquot-" + request_name}


def test_containers_that_run_at_other_times(cluster):
    """An init container uses the claim of one with the same request, but of none that runs beside it."""
    ten, twenty = ({"elasticgpu.io/gpu-core": str(n)} for n in (10, 20))
    made = asking(cluster.api, ten, init=[ten, twenty, twenty, {"cpu": "1"}])
    assert claims_of(made) == {"main": ["main"], "init0": ["main"], "init1": ["init1"], "init2": ["init1"], "init3": []}
    assert requests_of(made) == {"main": "aliquot-native-core-10", "init1": "aliquot-native-core-20"}


def test_what_a_pod_has_already_stays(cluster):
    made = asking(cluster.api, {"elasticgpu.io/gpu-core": "10"}, schedulingGates=[{"name": "other/gate"}],
                  resourceClaims=[{"name": "nic", "resourceClaimName": "mine"}])
    assert [one["name"] for one in made["spec"]["resourceClaims"]] == ["nic", "main"]
    assert made["spec"]["schedulingGates"] == [{"name": "other/gate"}, {"name": GATE}]
    other = asking(cluster.api, {"elasticgpu.io/gpu-core": "10"}, schedulerName="other")
    assert "resourceClaims" not in other["spec"] and names_in(other)


def test_a_pod_is_not_applied_again(cluster, tmp_path):
    """Its names are not in the pod that is stored."""
    body = {"apiVersion": "v1", "kind": "Pod", **pod(new("applied"), gates=())}
    body["spec"]["containers"][0]["resources"] = {"limits": {"elasticgpu.io/gpu-core": "10"}}
    (tmp_path / "pod.yaml").write_text(yaml.dump(body))
    apply = ["kubectl", "apply", "-f", str(tmp_path / "pod.yaml")]
    cluster.on_node(apply)
    again = cluster.on_node(apply, check=False)
    assert again.returncode != 0 and "pod updates may not change fields" in again.stderr, again.stderr
    cluster.api.delete(kube.pods(name=body["metadata"]["name"]), gracePeriodSeconds=0)


def test_a_claim_of_the_pod_has_the_name_of_a_container(cluster):
    refused(asking, cluster.api, {"elasticgpu.io/gpu-core": "10"}, resourceClaims=[{"name": "main", "resourceClaimName": "mine"}],
            text='spec.resourceClaims[1].name: Duplicate value: "main"')


@pytest.mark.parametrize("amount", ["-5", "0.5"])
def test_the_api_server_refuses_what_is_no_amount(cluster, amount):
    refused(asking, cluster.api, {"nvidia.com/gpu": amount}, text="nvidia.com/gpu")
