# SPDX-License-Identifier: Apache-2.0
"""`aliquot uninstall` against a proxy that answers from files: what is removed, and in which order."""

import json
import pathlib
import re
import urllib.parse

import pytest
import yaml

from test_chart import helm, programs, render   # noqa: F401  (fixtures)
from test_inspect import Cluster

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
USERS = {"Pod": "/api/v1/pods", "Deployment": "/apis/apps/v1/deployments", "StatefulSet": "/apis/apps/v1/statefulsets",
         "DaemonSet": "/apis/apps/v1/daemonsets", "ReplicaSet": "/apis/apps/v1/replicasets", "Job": "/apis/batch/v1/jobs",
         "CronJob": "/apis/batch/v1/cronjobs", "ResourceClaim": "/apis/resource.k8s.io/v1/resourceclaims"}
NODES = "get nodes -o json"
ADMISSION, RIGHTS = "/apis/admissionregistration.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
OWN, MONITORING, DEVICES = "/apis/elasticgpu.io/v1alpha1", "/apis/monitoring.coreos.com/v1", "/apis/resource.k8s.io/v1"
# Of the kinds that the tests name; the others are of the core.
GROUPS = {"apiservices": "/apis/apiregistration.k8s.io/v1", "daemonsets": "/apis/apps/v1", "deployments": "/apis/apps/v1",
          "jobs": "/apis/batch/v1", "certificatesigningrequests": "/apis/certificates.k8s.io/v1", "clusterroles": RIGHTS, "clusterrolebindings": RIGHTS,
          **dict.fromkeys(("deviceclasses", "resourceclaims", "resourceclaimtemplates", "resourceslices"), DEVICES)}
# The path of an object, or of a list.
PLACE = re.compile(r"/api(?:s/([^/]+))?/v[^/]+(?:/namespaces/([^/]+))?/([^/?]+)(?:/([^/?]+))?(/status)?(?:\?(.*))?")
PLURALS = {"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
           "DeviceClass": "deviceclasses", "PodMonitor": "podmonitors.monitoring.coreos.com", "PrometheusRule": "prometheusrules.monitoring.coreos.com"}
OWN_KINDS = ("elasticgpuclaims", "elasticgpuclasses", "elasticgpuquotas", "elasticgpureservations", "elasticgpus", "gpus")
BY_LABEL = ("DaemonSet", "Deployment", "Job")
DISCOVERY = " as application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
METADATA = " as application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
CONTENTS = "get --raw {}/namespaces/aliquot-system/{}" + METADATA


def path(kind, name="", namespace=""):
    return GROUPS.get(kind, "/api/v1") + (f"/namespaces/{namespace}" if namespace else "") + f"/{kind}" + (f"/{name}" if name else "")


def of(kind, name="", namespace="", labels="", fields=""):
    """The words by which the proxy is asked for it."""
    found = "get --raw " + path(kind, name, namespace)
    selectors = {"labelSelector": labels, "fieldSelector": fields}
    return found + "".join(f"?{name}={urllib.parse.quote(text, safe='')}" for name, text in selectors.items() if text)


def delete(kind, name, namespace=""):
    return f"delete {path(kind, name, namespace)}?propagationPolicy=Background"


BINDING = of("clusterrolebindings", "aliquot-agent")
ROLE = of("clusterroles", "aliquot-agent")


def agents_in(namespace):
    return of("daemonsets", namespace=namespace, labels="app.kubernetes.io/name=aliquot-agent")


def resource(name, kind, verbs=("get", "list"), scope="Namespaced"):
    return {"resource": name, "responseKind": {"kind": kind}, "verbs": verbs, "scope": scope}


def group(name, version, *resources, freshness="Current"):
    return {"metadata": {"name": name}, "versions": [{"version": version, "freshness": freshness, "resources": list(resources)}]}


def kinds(core, others=()):
    """What the API server says of its kinds."""
    return {"get --raw /api" + DISCOVERY: {"items": [group("", "v1", *core)]}, "get --raw /apis" + DISCOVERY: {"items": list(others)}}


def listed(items):
    """The objects as the lists of their kinds have them."""
    return {f"get --raw {path}?limit=500": {"metadata": {}, "items": [item for item in items if item["kind"] == kind]}
            for kind, path in USERS.items()}


@pytest.fixture
def cluster(aliquot, tmp_path):
    """Nothing is there: what an answer lacks, the test's kubectl does not find."""
    made = Cluster(aliquot, tmp_path)
    made.answers = {**listed([]), NODES: {"items": []}, **kinds([resource("pods", "Pod")], [
        group("elasticgpu.io", "v1alpha1", resource("things", "Thing"))])}
    made.answers |= {CONTENTS.format(base, name): {"items": []} for base, name in (("/api/v1", "pods"), (OWN, "things"))}
    made.answers |= {of("namespaces", name): {"metadata": {"name": name}} for name in ("aliquot-system", "gpus")}
    return made


def test_resources_of_every_agent_are_removed_from_nodes():
    """uninstall knows each row of the table of resources, which kubelet keeps for a plugin that has ended."""
    rows = re.findall(r"\{\.name = (.+?),", (TOP / "src/agent/backends/resource.c").read_text())
    removed = re.findall(r"\{([^{},]+), true, (?:true|false)\}", (TOP / "src/cli/uninstall/nodes.c").read_text())
    assert rows and sorted(removed) == sorted(rows)


def uninstall(cluster, *options, status=0):
    done = cluster.run("uninstall", *options)
    assert done.returncode == status, done
    return done.stdout + done.stderr


def asked(cluster):
    return cluster.where.joinpath("asked").read_text().splitlines()


def installed():
    """(kind, metadata) of every object of deploy/; configurations of kube-scheduler, kustomize and Prometheus are none, nor are examples."""
    for path in TOP.glob("deploy/[!t]*/*.yaml"):
        for body in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
            if isinstance(body, dict) and "config.k8s.io" not in body.get("apiVersion", "config.k8s.io"):
                yield body["kind"], body["metadata"]


def deleted(calls):
    """(namespace, kind, name) of all that the calls delete by name."""
    for call in calls:
        if call.startswith("delete "):
            own, namespace, kind, name, _, query = PLACE.fullmatch(call.removeprefix("delete ")).groups()
            assert query == "propagationPolicy=Background"     # without it the pods of a Job stay
            if name:
                yield namespace or "", kind + (f".{own}" if own in (OWN.split("/")[2], MONITORING.split("/")[2]) else ""), name


def api(service, namespace="aliquot-system"):
    return {"spec": {"service": {"namespace": namespace, "name": service}}}


def of_api(name):
    return of("apiservices", name + ".metrics.k8s.io")


def test_apis_go_first(cluster):
    """While their server is away no namespace can be deleted. One of another product stays."""
    cluster.answers |= {of_api("v1beta2.custom"): api("aliquot-metrics-api"), of_api("v1beta1.external"): api("keda")}
    assert "apis         objects removed: " in uninstall(cluster)
    gone = list(deleted(asked(cluster)))
    assert gone[0] == ("", "apiservices", "v1beta2.custom.metrics.k8s.io")
    assert not any(name == "v1beta1.external.metrics.k8s.io" for _, _, name in gone)


def test_apis_of_another_namespace_stay(cluster):
    cluster.answers[of_api("v1beta2.custom")] = api("aliquot-metrics-api", "gpus")
    uninstall(cluster)
    assert not any(kind == "apiservices" for _, kind, _ in deleted(asked(cluster)))


def test_every_object_of_an_installation(cluster):
    cluster.answers |= {of_api(name): api("aliquot-metrics-api") for name in ("v1beta2.custom", "v1beta1.external")}
    for kind in ("deployments", "daemonsets", "jobs"):
        cluster.answers[of(kind, namespace="aliquot-system", labels="app.kubernetes.io/part-of=aliquot")] = {
            "items": [{"metadata": {"namespace": "aliquot-system", "name": "of-" + kind}}]}
    cluster.answers[of("certificatesigningrequests", fields="spec.signerName=elasticgpu.io/agent")] = {
        "items": [{"metadata": {"name": "of-agents"}}]}
    uninstall(cluster, "--crds=delete")
    calls = asked(cluster)
    gone = set(deleted(calls))
    found = 0
    for kind, meta in installed():
        if kind in BY_LABEL:
            assert meta["labels"]["app.kubernetes.io/part-of"] == "aliquot"
            continue
        plural = PLURALS.get(kind, kind.lower() + "s")
        assert (meta.get("namespace", ""), plural, meta["name"]) in gone, (kind, meta)
        found += 1
    assert found > 50 and ("", "namespaces", "aliquot-system") in gone
    assert {("aliquot-system", kind, "of-" + kind) for kind in ("deployments", "daemonsets", "jobs")} <= gone
    assert ("", "certificatesigningrequests", "of-agents") in gone


def test_every_hook_of_the_chart(cluster, render):      # noqa: F811
    """One that is interrupted leaves its objects."""
    uninstall(cluster)
    calls = asked(cluster)
    gone = set(deleted(calls))
    hooks = [one for one in render("--namespace", "aliquot-system").values() if "helm.sh/hook" in one["metadata"].get("annotations", {})]
    assert len(hooks) > 10
    for one in hooks:
        meta = one["metadata"]
        if meta.get("labels", {}).get("app.kubernetes.io/part-of") != "aliquot" or one["kind"] not in BY_LABEL:
            assert (meta.get("namespace", ""), PLURALS.get(one["kind"], one["kind"].lower() + "s"), meta["name"]) in gone, meta


# ---- by the hook of the chart ----

LATER = "aliquot-uninstall-nodes"
BEFORE = ("--system=gpus", "--hook=before", '--job={"kind":"Job"}')
MADE = f"create {path('jobs', namespace='gpus')} " + json.dumps({"kind": "Job"})


OWN_JOB = of("jobs", "aliquot-uninstall", "gpus")
LATER_JOB = delete("jobs", LATER, "gpus")
OWNED = ("clusterrolebindings", "serviceaccounts", "jobs")
NOT_BY_HELM = "made by kubectl, Argo CD or Flux, not by helm: nothing is removed"


def made_by(manager, **notes):
    return {"metadata": {"annotations": {"helm.sh/hook": "pre-delete", **notes}, "managedFields": [
        {"manager": "kube-controller-manager", "subresource": "status"}, {"manager": manager}]}}


def own(kind):
    place = path(kind, LATER, "" if kind == "clusterrolebindings" else "gpus")
    return (f'patch {place} merge {{"metadata":{{"ownerReferences":[{{"apiVersion":"rbac.authorization.k8s.io/v1",'
            f'"kind":"ClusterRole","name":"{LATER}","uid":"role-uid"}}]}}}}')


@pytest.fixture
def release(cluster):
    """One of helm, with the role for the Job that stays."""
    cluster.answers[OWN_JOB] = made_by("helm")
    cluster.answers |= {own(kind): {} for kind in OWNED}
    cluster.answers[ROLE] = {"metadata": {"annotations": {"meta.helm.sh/release-name": "mine"}}}
    cluster.answers |= {of("clusterroles", LATER): {"metadata": {"uid": "role-uid"}}, MADE: {}}
    return cluster


def request(call):
    """(verb, namespace, resource, name) of what the API server is asked for; name None: a list, all of it, or one that is new."""
    words = re.fullmatch(r"get (\S+)(?: -A)?(?: -n (\S+))?(?: -l \S+| --field-selector=\S+)? -o json", call)
    if words:
        return "list", words[2], words[1], None
    verb, place = call.removeprefix("get --raw ").split(" ")[0], re.search(r"/api\S*", call)[0]
    own, namespace, kind, name, sub, _ = PLACE.fullmatch(place).groups()
    if call.startswith("get "):
        verb = "get" if name else "list"
    elif verb == "delete" and not name:
        verb = "deletecollection"
    return verb, namespace, kind + (f".{own}" if own == "elasticgpu.io" else "") + (sub or ""), name


def allows(rules, verb, resource, name):
    resource, _, group = resource.partition(".")
    return any(verb in rule["verbs"] and resource in rule["resources"] and (not group or group in rule["apiGroups"])
               and name in rule.get("resourceNames", [name]) for rule in rules)


@pytest.fixture
def used(release):
    """A release with an agent and a node, and with an object of each kind that has finalizers."""
    found, ordered = agents(), agents("--clean")
    found["metadata"]["name"] = "aliquot-agent"
    kept = {"metadata": {"name": "x", "namespace": "team", "finalizers": ["elasticgpu.io/x"]}}
    taken = dra_claim("taken", allocated=["gpu.elasticgpu.io"])
    release.answers |= {
        DRA_SLICES: {"items": [{"metadata": {"name": "s"}}]}, of("resourceclaims"): [{"items": [taken]}, {"items": [dra_claim("left")]}],
        agents_in("gpus"): {"items": [found]}, of("daemonsets", "aliquot-agent", "gpus"): ordered,
        NODES: {"items": [node(capacity={"elasticgpu.io/slot": "0"})]},
        **{f"get --raw {OWN}/{kind}": {"items": [kept]} for kind in OWN_KINDS}}
    return release


def job_of(hook):
    (job,) = [arg.removeprefix("--job=") for arg in hook["args"] if arg.startswith("--job=")]
    return job


@pytest.mark.parametrize("keep", ["true", "false"])
def test_the_hook_may_do_what_it_does(used, render, keep):      # noqa: F811
    """And it removes no object that helm needs: that removes the revisions, the CRDs and the hook's rights itself. With a Job of an
    earlier call, and with an error at the end, after which the rights of the Job that stays go, too."""
    made = render("--namespace", "gpus", "--set", "web.enabled=true,crds.keep=" + keep)
    (hook,) = made["Job", "gpus", "aliquot-uninstall"]["spec"]["template"]["spec"]["containers"]
    everywhere = made["ClusterRole", "", "aliquot-uninstall"]["rules"]
    rules = {"gpus": everywhere + made["Role", "gpus", "aliquot-uninstall"]["rules"]}
    for kind in BY_LABEL:
        used.answers[of(kind.lower() + "s", namespace="gpus", labels="app.kubernetes.io/part-of=aliquot")] = {"items": [
            one for (of_kind, *_), one in made.items()
            if of_kind == kind and one["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "aliquot"]}
    used.answers |= {LATER_JOB: {}, f"create {path('jobs', namespace='gpus')} " + json.dumps(json.loads(job_of(hook))): {}}
    del used.answers[own("jobs")]
    uninstall(used, *hook["args"], status=1)
    done = {request(call) for call in asked(used)}
    assert {verb for verb, *_ in done} == {"list", "get", "create", "patch", "delete", "deletecollection"}
    assert {("patch", None, "nodes/status", "n"), ("patch", "gpus", "daemonsets", "aliquot-agent"), ("create", "gpus", "jobs", None),
            ("get", "gpus", "jobs", "aliquot-uninstall"), ("get", "gpus", "jobs", LATER),
            ("delete", "gpus", "deployments", "aliquot-scheduler"), ("patch", None, "elasticgpus.elasticgpu.io", "x"),
            ("patch", "team", "elasticgpuclaims.elasticgpu.io", "x"), ("delete", None, "resourceslices", "s"),
            ("patch", "team", "resourceclaims/status", "taken"), ("patch", "team", "resourceclaims", "left"),
            ("delete", None, "deviceclasses", "gpu.elasticgpu.io")} <= done
    assert [one for one in done if not allows(rules.get(one[1], everywhere), one[0], *one[2:])] == []
    gone = {one[1:] for one in done if one[0] == "delete"}
    assert len(gone) > 60
    assert not any(kind in ("customresourcedefinitions", "namespaces") for _, kind, _ in gone)
    assert not any(name == "aliquot-uninstall" for _, _, name in gone)
    assert {kind for _, kind, name in gone if name == LATER} == {"jobs", "clusterrolebindings", "serviceaccounts", "clusterroles"}
    assert not any("owner%3Dhelm" in call for call in asked(used))


def test_the_job_that_stays_may_do_what_it_does(used, render):      # noqa: F811
    made = render("--namespace", "gpus")
    (hook,) = made["Job", "gpus", "aliquot-uninstall"]["spec"]["template"]["spec"]["containers"]
    job = json.loads(job_of(hook))
    (later,) = job["spec"]["template"]["spec"]["containers"]
    uninstall(used, *(arg for arg in later["args"] if arg != "--wait"))
    done = {request(call) for call in asked(used)}
    assert done == {("get", None, "clusterrolebindings", "aliquot-agent"), ("list", None, "nodes", None),
                    ("patch", None, "nodes/status", "n"), ("delete", None, "clusterroles", LATER)}
    rules = made["ClusterRole", "", LATER]["rules"]
    assert [one for one in done if not allows(rules, one[0], *one[2:])] == []


def test_the_hook_leaves_a_job(release):
    """With all that it has, it is its role's."""
    told = uninstall(release, *BEFORE)
    assert f"Job {LATER} in gpus removes what kubelet writes again" in told
    calls = asked(release)
    assert calls[-4] == MADE
    assert calls[-3:] == [own(kind) for kind in OWNED]
    assert calls.index(LATER_JOB) < calls.index(of("clusterroles", LATER))


@pytest.mark.parametrize("gone", [of("clusterroles", LATER), *map(own, OWNED)])
def test_the_hook_leaves_nothing_after_an_error(release, gone):
    """What is gone cannot be owned, or be the owner: an earlier call's, for example, is on its way out."""
    del release.answers[gone]
    said = uninstall(release, *BEFORE, status=1)
    assert f"Job {LATER} in gpus removes" not in said
    assert f"no ClusterRole {LATER} for the Job" in said or "nothing is known of: patch" in said
    assert list(deleted(asked(release)[-4:])) == [("gpus" if kind in ("jobs", "serviceaccounts") else "", kind, LATER) for kind in (
        "jobs", "clusterrolebindings", "serviceaccounts", "clusterroles")]


def test_the_job_of_an_earlier_call_does_not_end(release):
    """It is waited for as long as pods are."""
    release.answers |= {LATER_JOB: {}, of("jobs", LATER, "gpus"): {"metadata": {}}}
    assert f"Job {LATER} of an earlier call is still there" in uninstall(release, *BEFORE, "--timeout=0", status=1)
    assert not any(call.startswith("create ") for call in asked(release))


def test_the_hook_of_no_release(release):
    """By what makes no Job of itself that is known, as `helm template | kubectl create` with another client."""
    release.answers[ROLE] = {"metadata": {"name": "aliquot-agent"}}
    assert "helm does not remove them: nothing is removed" in uninstall(release, *BEFORE)
    assert asked(release) == [OWN_JOB, ROLE]


@pytest.mark.parametrize("job", [
    made_by("kubectl"), made_by("kubectl-client-side-apply"), made_by("kubectl-create"), made_by("argocd-controller"),
    made_by("kustomize-controller"), made_by("mine", **{"kubectl.kubernetes.io/last-applied-configuration": "{}"})])
def test_the_hook_is_applied_over_a_release(release, job):
    """Whose marks its objects still have, or which an earlier call has begun to remove."""
    release.answers[OWN_JOB] = job
    assert NOT_BY_HELM in uninstall(release, *BEFORE)
    del release.answers[ROLE]
    assert NOT_BY_HELM in uninstall(release, *BEFORE)
    assert not [call for call in asked(release) if not call.startswith("get ")]


@pytest.mark.parametrize("manager", ["helm", "helm-controller", "terraform-provider-helm_v3", "my-kubectl"])
def test_the_hook_of_any_program_with_helm_in_it(release, manager):
    release.answers[OWN_JOB] = made_by(manager)
    assert f"Job {LATER} in gpus removes" in uninstall(release, *BEFORE)


def test_what_has_made_the_hook_is_not_known(release):
    del release.answers[OWN_JOB]
    assert "no Job aliquot-uninstall in gpus that says what has made it" in uninstall(release, *BEFORE, status=1)
    assert "--hook=before needs --system" in uninstall(release, "--hook=before", status=1)
    assert asked(release) == [OWN_JOB]


def test_the_job_that_stays_ends_with_an_installation(cluster):
    cluster.answers |= {BINDING: bound_in("gpus"), NODES: {"items": [node(capacity={"elasticgpu.io/slot": "0"})]}}
    uninstall(cluster, "--system=gpus", "--hook=after", "--wait")
    assert asked(cluster) == [BINDING, delete("clusterroles", LATER)]


# ---- where it is ----

def bound_in(namespace):
    return {"subjects": [{"kind": "ServiceAccount", "name": "aliquot-agent", "namespace": namespace}]}


def test_the_namespace_is_found(cluster):
    """By the object that goes last of those that say it."""
    cluster.answers[BINDING] = bound_in("gpus")
    uninstall(cluster)
    calls = asked(cluster)
    gone = list(deleted(calls))
    assert ("gpus", "secrets", "aliquot-signing") in gone and not any(ns == "aliquot-system" for ns, _, _ in gone)
    last = gone.index(("", "clusterrolebindings", "aliquot-agent"))
    assert last == len(gone) - 1


def test_a_wrong_namespace(cluster):
    cluster.answers[BINDING] = bound_in("gpus")
    said = uninstall(cluster, "--system=aliquot-system", status=1)
    assert "Aliquot is in namespace gpus, not in aliquot-system: leave out --system; nothing is removed" in said
    assert asked(cluster) == [BINDING]


def thing(name, owner=None, deleted=None):
    meta = {"name": name, "namespace": "aliquot-system"}
    meta |= {"ownerReferences": [{"name": owner}]} if owner else {}
    return {"metadata": meta | ({"deletionTimestamp": deleted} if deleted else {})}


def test_the_namespace_has_other_things(cluster):
    """What is on its way out, of Aliquot's objects or of Kubernetes in every namespace is none; kinds of which nothing is asked are
    those that cannot be listed, are of no namespace, or are in another version already."""
    apps = group("apps", "v1", resource("replicasets", "ReplicaSet"))
    apps["versions"].append({"version": "v1beta1", "resources": [resource("replicasets", "ReplicaSet"), resource("old", "Old")]})
    cluster.answers |= kinds([
        resource("pods", "Pod"), resource("configmaps", "ConfigMap"), resource("serviceaccounts", "ServiceAccount"), resource("events", "Event"),
        resource("endpoints", "Endpoints"), resource("persistentvolumeclaims", "PersistentVolumeClaim"), resource("gone", "Gone"),
        resource("bindings", "Binding", ["create"]), resource("nodes", "Node", scope="Cluster")],
        [apps, group("metrics.k8s.io", "v1beta1", resource("pods", "PodMetrics"))])
    there = {"configmaps": [thing("kube-root-ca.crt")], "serviceaccounts": [thing("default")], "persistentvolumeclaims": [],
             "pods": [thing("p", "aliquot-scheduler-1", "2026-01-01T00:00:00Z"), thing("q", None, "2026-01-01T00:00:00Z")],
             "endpoints": [thing("aliquot-webhook")]}
    def now():
        cluster.answers |= {CONTENTS.format("/api/v1", name): {"items": items} for name, items in there.items()}
        cluster.where.joinpath("asked").unlink(missing_ok=True)
        return uninstall(cluster)
    cluster.answers |= {CONTENTS.format("/apis/apps/v1", "replicasets"): {"items": [thing("r", "aliquot-scheduler")]},
                        CONTENTS.format("/apis/apps/v1beta1", "old"): {"items": []}}
    assert "namespace    aliquot-system is being removed, which takes some seconds\n" in now()
    asked_for = sorted(call.removesuffix(METADATA).rpartition("/")[2] for call in asked(cluster) if call.endswith(METADATA))
    assert asked_for == sorted([*there, "replicasets", "old", "gone"])
    there |= {"persistentvolumeclaims": [thing("data")], "configmaps": [thing("mine", "other-owner")]}
    assert "namespace    aliquot-system stays, with: ConfigMap/mine PersistentVolumeClaim/data\n" in now()
    assert not any(kind == "namespaces" for _, kind, _ in deleted(asked(cluster)))


@pytest.mark.parametrize("answers, why", [
    ({CONTENTS.format(OWN, "things"): "error: the server is currently unable to handle the request"}, "the server is currently"),
    (kinds([], [group("x.io", "v1", freshness="Stale")]), "the server of x.io/v1 does not answer"),
    ({"get --raw /apis" + DISCOVERY: {"kind": "APIGroupList", "groups": []}}, "does not say which kinds it has")])
def test_what_the_namespace_has_is_not_known(cluster, answers, why):
    """A kind that is announced and does not answer; the other steps are still done."""
    cluster.answers |= answers
    said = uninstall(cluster, status=1)
    assert "aliquot-system stays: what else is in it is not known (" in said and why in said
    assert "something is left, see above; run this command again then" in said
    assert asked(cluster)[-1] == NODES and not any(kind == "namespaces" for _, kind, _ in deleted(asked(cluster)))


def test_another_namespace_and_the_crds_stay(cluster):
    told = uninstall(cluster, "--system", "gpus")
    gone = set(deleted(asked(cluster)))
    assert ("gpus", "secrets", "aliquot-signing") in gone and not any(ns == "aliquot-system" for ns, _, _ in gone)
    assert not any(kind in ("customresourcedefinitions", "namespaces") for _, kind, _ in gone)
    assert "crds         kept" in told and "kubectl delete namespace gpus" in told


def test_the_order(cluster):
    """Webhooks before the scheduler that answers them, rights before what they allow to write."""
    uninstall(cluster, "--crds=delete")
    calls = asked(cluster)
    order = [f"delete {ADMISSION}/mutatingwebhookconfigurations", of("deployments", namespace="aliquot-system"),
             "delete " + path("clusterrolebindings"), f"delete {OWN}/gpus?", "delete " + path("secrets", namespace="aliquot-system"),
             "delete /apis/apiextensions.k8s.io/v1/customresourcedefinitions", "delete " + path("namespaces", "aliquot-system") + "?"]
    places = [next(i for i, call in enumerate(calls) if call.startswith(start)) for start in order]
    assert places == sorted(places) and calls[-1] == NODES


def holder(name, phase="Running", **annotations):
    return {"kind": "Pod", "metadata": {"namespace": "team", "name": name, "annotations": {
        "elasticgpu.io/assignment": "{}", **annotations}}, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": phase}}


def test_pods_with_shares(cluster):
    cluster.answers |= listed([holder("ended", "Succeeded"), *(holder(f"p{i}") for i in range(22))])
    said = uninstall(cluster, status=1)
    assert "22 pods hold shares; delete them, or give --force" in said and "team/p19 on node n\n  and 2 more" in said
    assert "ended" not in said and not list(deleted(asked(cluster)))
    assert "they go on with their limits" in uninstall(cluster, "--force")


def workload(kind, name, template, **spec):
    return {"kind": kind, "metadata": {"namespace": "team", "name": name}, "spec": {"template": template, **spec}}


def template(limits=None):
    return {"metadata": {"annotations": {"egpuc.elasticgpu.io/main": "claim"}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits or {}}}]}}


def test_workloads_with_claims(cluster):
    """By annotation only: the carrier, which admission adds, does not count."""
    owned = {"kind": "Pod", **template({"elasticgpu.io/slot": "1"})}
    owned["metadata"] = {**owned["metadata"], "name": "owned", "namespace": "team", "ownerReferences": [{"name": "d"}]}
    bare = {"kind": "Pod", **template({"elasticgpu.io/slot": "1"})}
    bare["metadata"] = {**bare["metadata"], "name": "bare", "namespace": "team"}
    cron = {"kind": "CronJob", "metadata": {"namespace": "team", "name": "cron"},
            "spec": {"jobTemplate": {"spec": {"template": template()}}}}
    cluster.answers |= listed([
        owned, bare, cron, workload("Deployment", "d", template()),
        workload("Deployment", "waits", template({"elasticgpu.io/gpu-core": "10"})),
        workload("Deployment", "other", {"spec": {"containers": []}})])
    named = [line.split()[2] for line in uninstall(cluster).splitlines() if line.startswith("claims")]
    assert named == ["team/bare", "team/d", "team/cron"]


def test_pods_by_pages(cluster):
    first = "get --raw /api/v1/pods?limit=500"
    cluster.answers[first] = {"metadata": {"continue": "abc"}, "items": [holder("a")]}
    cluster.answers[first + "&continue=abc"] = {"metadata": {}, "items": [holder("b")]}
    said = uninstall(cluster, status=1)
    assert "2 pods hold shares" in said and "team/a on" in said and "team/b on" in said


def test_a_list_that_is_none(cluster):
    cluster.answers["get --raw /api/v1/pods?limit=500"] = {"kind": "Status"}
    assert "the API server does not list /api/v1/pods" in uninstall(cluster, status=1)


def test_what_waits_for_the_own_scheduler(cluster):
    """By its name, or by one that it has taken over."""
    def bare(name, scheduler, **more):
        return {"kind": "Pod", "metadata": {"namespace": "team", "name": name, "ownerReferences": [{"name": "d"}]},
                "spec": {"schedulerName": scheduler, "containers": [], **more}}
    configuration = 'profiles:\n  - schedulerName: aliquot-scheduler\n  - schedulerName: "volcano"\n  # - schedulerName: kai-scheduler\n'
    cluster.answers[of("configmaps", "aliquot-kube-scheduler", "aliquot-system")] = {"data": {"configuration.yaml": configuration}}
    cluster.answers |= listed([
        bare("waits", "aliquot-scheduler"), bare("taken", "volcano"), bare("bound", "volcano", nodeName="n"), bare("not", "kai-scheduler"),
        bare("default", "default-scheduler"), workload("Deployment", "d", {"spec": {"schedulerName": "aliquot-scheduler"}})])
    told = [line.split(maxsplit=1)[1] for line in uninstall(cluster).splitlines() if line.startswith("schedulers")]
    assert told == [f"{what}: Pending without it" for what in (
        "Pod team/waits names scheduler aliquot-scheduler", "Pod team/taken names scheduler volcano",
        "Deployment team/d names scheduler aliquot-scheduler")]


# ---- Dynamic Resource Allocation ----

DRA_SLICES = of("resourceslices", fields="spec.driver=gpu.elasticgpu.io")
DRA_CLASSES = of("deviceclasses", labels="gpu.elasticgpu.io/allocator")
PROTECTED = "resource.kubernetes.io/delete-protection"
GATED = "get pods -A --field-selector=status.phase=Pending -o json"
GATE = "gpu.elasticgpu.io/placement"


def dra_claim(name, cls="gpu.elasticgpu.io", allocated=(), users=(), finalizers=(PROTECTED,), **request):
    """A ResourceClaim, with a device of each of these drivers."""
    made = {"kind": "ResourceClaim", "metadata": {"name": name, "namespace": "team", "resourceVersion": "7", "finalizers": list(finalizers)},
            "spec": {"devices": {"requests": [request or {"exactly": {"deviceClassName": cls}}]}}}
    if allocated:
        made["status"] = {"allocation": {"devices": {"results": [{"driver": driver, "pool": "n" if driver == "gpu.elasticgpu.io" else ""} for driver in allocated]}},
                          "reservedFor": [{"resource": "pods", "name": user} for user in users]}
    return made


def take_back(name):
    return (f'patch {path("resourceclaims", name, "team")}/status merge {{"metadata":{{"resourceVersion":"7"}},'
            '"status":{"allocation":null,"devices":null}}')


def unprotect(name, kept=()):
    return (f'patch {path("resourceclaims", name, "team")} merge {{"metadata":{{"resourceVersion":"7",'
            f'"finalizers":{json.dumps(list(kept))}}}}}')


def changed(cluster, kind):
    return [call for call in asked(cluster) if call.startswith("patch ") and f"/{kind}" in call]


def test_slices_and_classes(cluster):
    """After the agents, which would write the slices again. A class of an administrator stays."""
    cluster.answers |= {DRA_SLICES: {"items": [{"metadata": {"name": name}} for name in "ab"]},
                        DRA_CLASSES: {"items": [{"metadata": {"name": "fast"}}]},
                        **{delete("resourceslices", name): {} for name in "ab"},
                        **{delete("deviceclasses", name): {} for name in ("gpu.elasticgpu.io", "first-fit.gpu.elasticgpu.io")}}
    assert "devices      4 slices and classes removed, 0 claims released\n" in uninstall(cluster)
    gone = list(deleted(asked(cluster)))
    devices = [one for one in gone if one[1] in ("resourceslices", "deviceclasses")]
    assert devices == [("", "resourceslices", "a"), ("", "resourceslices", "b"),
                       ("", "deviceclasses", "gpu.elasticgpu.io"), ("", "deviceclasses", "first-fit.gpu.elasticgpu.io")]
    assert gone.index(("", "clusterroles", "aliquot-agent-dra")) < gone.index(devices[0])


def test_templates_of_pods(cluster):
    """Those of users have another label, or none, or are copies that were changed."""
    def one(space, name, request):
        return {"metadata": {"namespace": space, "name": name, "labels": {"gpu.elasticgpu.io/made-by": "aliquot-scheduler"}},
                "spec": {"metadata": {"annotations": {"gpu.elasticgpu.io/request": request}}}}

    made = [one(space, "aliquot-native-core-30", "aliquot-native-core-30") for space in ("team", "other")]
    copies = [one("team", "mine", "aliquot-native-core-30"), one("team", "aliquot-native-core-40", "aliquot-native-core-30")]
    cluster.answers |= {of("resourceclaimtemplates", labels="gpu.elasticgpu.io/made-by=aliquot-scheduler"): {"items": copies + made},
                        **{delete("resourceclaimtemplates", "aliquot-native-core-30", space): {} for space in ("team", "other")}}
    assert "devices      2 templates of pods removed\n" in uninstall(cluster)
    assert {one for one in deleted(asked(cluster)) if one[1] == "resourceclaimtemplates"} == {
        (space, "resourceclaimtemplates", "aliquot-native-core-30") for space in ("team", "other")}


def test_allocations_that_no_pod_uses(cluster):
    """First the allocation goes, then the finalizer, which may be there alone; not of claims that have, or could get, other devices."""
    fast = {"exactly": {"deviceClassName": "fast"}}
    either = {"firstAvailable": [{"deviceClassName": "first-fit.gpu.elasticgpu.io"}, {"deviceClassName": "other.example"}]}
    mixed = dra_claim("mixed", allocated=["gpu.elasticgpu.io", "other.example"])
    others = [dra_claim("other", "other.example"), dra_claim("either", **either), mixed,
              dra_claim("theirs", "other.example", allocated=["other.example"]), dra_claim("bare", finalizers=["example.com/mine"])]
    before = [dra_claim("taken", allocated=["gpu.elasticgpu.io"]), dra_claim("used", allocated=["gpu.elasticgpu.io"], users=["p"]), *others]
    after = [dra_claim("taken"), before[1], *others, dra_claim("fast", finalizers=[PROTECTED, "example.com/mine"], **fast)]
    released = [take_back("taken"), unprotect("taken"), unprotect("fast", ["example.com/mine"])]
    cluster.answers |= {of("resourceclaims"): [{"items": before}, {"items": after}], DRA_CLASSES: {"items": [{"metadata": {"name": "fast"}}]},
                        **dict.fromkeys(released, {})}
    told = uninstall(cluster)
    assert changed(cluster, "resourceclaims") == released
    assert "devices      0 slices and classes removed, 2 claims released\n" in told
    assert "devices      1 claims stay allocated to the pods that use them\n" in told


def test_claims_that_pods_use(cluster):
    """Refused as for other shares; by force, with what becomes of these pods."""
    cluster.answers |= listed([dra_claim("mine", allocated=["other.example", "gpu.elasticgpu.io"], users=["p", "q"]),
                               dra_claim("free", allocated=["gpu.elasticgpu.io"]), dra_claim("not", allocated=["other.example"], users=["p"])])
    said = uninstall(cluster, status=1)
    assert "1 ResourceClaims are used:\n  team/mine on node n, by p q\n" in said and "team/not" not in said
    assert "0 pods hold shares, and pods use 1 ResourceClaims; delete these pods, or give --force" in said
    assert not list(deleted(asked(cluster)))
    assert "pods with a ResourceClaim stay Terminating once they are deleted" in uninstall(cluster, "--force")


def test_a_cluster_without_resource_claims(cluster):
    """The API server has no such kind."""
    del cluster.answers[f"get --raw {USERS['ResourceClaim']}?limit=500"]
    assert "devices      0 slices and classes removed, 0 claims released\n" in uninstall(cluster)


def gated(name, *gates):
    return {"metadata": {"namespace": "team", "name": name}, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


def test_gates(cluster):
    """Nothing else takes them off; those of others stay."""
    cluster.answers[GATED] = {"items": [gated("waits", GATE, "example.com/quota"), gated("not", "example.com/quota"), gated("bare")]}
    patch = (f'patch {path("pods", "waits", "team")} strategic-merge '
             f'{{"spec":{{"schedulingGates":[{{"$patch":"delete","name":"{GATE}"}}]}}}}')
    cluster.answers[patch] = {}
    assert f"devices      1 pods released from the gate {GATE}: they stay Pending\n" in uninstall(cluster)
    assert changed(cluster, "pods") == [patch]


def test_the_hook_names_gates(used):
    """It may not change pods of tenants."""
    used.answers |= {GATED: {"items": [gated("waits", GATE)]}, MADE: {}}
    assert f"1 pods have the gate {GATE} and stay Pending; `aliquot uninstall` takes it off" in uninstall(used, *BEFORE)
    assert not changed(used, "pods")


def node(**status):
    return {"metadata": {"name": "n", "labels": {"a": "b", "nvidia.com/gpu.count": "2", "nvidia.com/gfd.timestamp": "1"},
                         "annotations": {"elasticgpu.io/feature-labels": "nvidia.com/gpu.count,nvidia.com/gone,",
                                         "elasticgpu.io/capacity": "nvidia.com/gpu.shared,", "x": "y"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "GPUHealthy", "status": "True"}], **status}}


def test_nodes(cluster):
    """What agents wrote goes, and zeros; what another plugin offers stays."""
    capacity = {"cpu": "4", "nvidia.com/gpu": "8", "nvidia.com/gpu.shared": "20", "elasticgpu.io/gpu-memory": "1000",
                "elasticgpu.io/gpu-core": "200", "elasticgpu.io/slot": "0", "nvidia.com/mig-1g.10gb": "0"}
    cluster.answers[NODES] = {"items": [node(capacity=capacity, allocatable={"nvidia.com/gpu": "8", "elasticgpu.io/slot": "0"})]}
    patch = ('patch /api/v1/nodes/n/status strategic-merge {"metadata":{"labels":{"nvidia.com/gpu.count":null,'
             '"nvidia.com/gfd.timestamp":null},"annotations":{"elasticgpu.io/feature-labels":null,"elasticgpu.io/capacity":null}},'
             '"status":{"capacity":{"nvidia.com/gpu.shared":null,"elasticgpu.io/gpu-memory":null,"elasticgpu.io/gpu-core":null,"elasticgpu.io/slot":null,'
             '"nvidia.com/mig-1g.10gb":null},"allocatable":{"elasticgpu.io/slot":null},'
             '"conditions":[{"$patch":"delete","type":"GPUHealthy"}]}}')
    cluster.answers[patch] = {}
    told = uninstall(cluster)
    assert "nodes        1 changed\n" in told
    assert "kubelet may show 1 resources of plugins again for 5 minutes after their end; run this command again then" in told
    assert patch in asked(cluster)


SHARED = {"aliyun.com/gpu-mem": "80", "aliyun.com/gpu-count": "1", "tke.cloud.tencent.com/qgpu-memory": "80",
          "tke.cloud.tencent.com/qgpu-core": "100"}


def test_names_of_other_projects(cluster):
    """A node without an agent has them from these; one with an agent, unless it leaves them."""
    def patches(**status):
        bare = {"metadata": {"name": "n"}, "status": {"capacity": SHARED, "allocatable": SHARED, **status}}
        cluster.answers[NODES] = {"items": [bare]}
        cluster.where.joinpath("asked").unlink(missing_ok=True)
        cluster.run("uninstall")
        return [call for call in asked(cluster) if call.startswith("patch /api/v1/nodes/")]

    trace = {"conditions": [{"type": "AliquotAgentReady", "status": "False"}]}
    assert patches() == []
    (patch,) = patches(**trace)
    assert all(f'"{name}":null' in patch for name in SHARED)
    agent = {"name": "agent", "args": ["--served-elsewhere=aliyun.com/gpu-mem,nvidia.com/gpu"]}
    cluster.answers[agents_in("aliquot-system")] = {"items": [{"spec": {"template": {"spec": {"containers": [agent]}}}}]}
    (patch,) = patches(**trace)
    assert "aliyun" not in patch and "qgpu-memory" in patch


# ---- the files on the nodes ----

def agents(*arguments, ready=1, image="agent:1"):
    """The DaemonSet, of one node."""
    return {"metadata": {"name": "agents", "generation": 1}, "spec": {"template": {"spec": {"containers": [
        {"name": "agent", "image": image, "args": ["--x", *arguments], "volumeMounts": [{"mountPath": "/host"}, {"mountPath": "/sys"}]}]}}},
        "status": {"observedGeneration": 1, "desiredNumberScheduled": 1, "updatedNumberScheduled": 1, "numberReady": ready}}


class Hosts:
    """The step, by the DaemonSet as it is found and as it is afterwards."""

    def __init__(self, cluster):
        self.cluster = cluster

    def clean(self, found, after, *options, status=0):
        self.cluster.answers[agents_in("aliquot-system")] = {"items": [found]}
        self.cluster.answers[of("daemonsets", "agents", "aliquot-system")] = after
        self.cluster.where.joinpath("asked").unlink(missing_ok=True)
        return uninstall(self.cluster, *options, status=status)

    def orders(self):
        return [call for call in asked(self.cluster) if call.startswith(f"patch {path('daemonsets', 'agents', 'aliquot-system')} strategic-merge ")]


@pytest.fixture
def hosts(cluster):
    return Hosts(cluster)


def test_the_agents_are_ordered_once(hosts):
    """A repeated call sees the order in the DaemonSet and only waits, but for another image."""
    ordered = agents("--clean")
    assert "hosts        1 nodes cleaned\n" in hosts.clean(agents(), ordered)
    (order,) = hosts.orders()
    assert '"args":["--x","--clean"]' in order and '{"mountPath":"/sys","$patch":"delete"}' in order and "image" not in order
    assert "1 nodes cleaned; where containers with shares run, what they use stays\n" in hosts.clean(ordered, ordered, "--force")
    hosts.clean(ordered, ordered, "--agent-image=agent:1")
    assert not hosts.orders()
    hosts.clean(ordered, ordered, "--agent-image=agent:2")
    (order,) = hosts.orders()
    assert '"args":["--x","--clean"]' in order and '"image":"agent:2"' in order


def test_a_node_that_is_not_cleaned(hosts, cluster):
    """The rest is removed, and the exit status says that something is left."""
    pods = "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-agent -o json"
    cluster.answers[pods] = {"items": [{"metadata": {}, "spec": {"nodeName": "away"}, "status": {}}]}
    told = hosts.clean(agents(), agents("--clean", ready=0), "--timeout=0", status=1)
    assert "not cleaned within 0 s (--timeout): away; a later call with --agent-image cleans them" in told
    assert "something is left" in told
    assert asked(cluster)[-1] == NODES


def test_the_order_is_taken_back(hosts, cluster):
    """By what installs from a repository: agents would run again while all else is removed."""
    said = hosts.clean(agents(), agents(), status=1)
    assert "DaemonSet agents has been changed back while it cleans the nodes: suspend what manages it" in said
    assert not any(kind == "clusterroles" for _, kind, _ in deleted(asked(cluster)))


def test_a_spare_with_another_image(cluster):
    """The first had a name that is nowhere."""
    cluster.answers["create " + path("daemonsets", namespace="kube-system")] = "error: it already exists"
    cluster.answers[of("daemonsets", "aliquot-uninstall", "kube-system")] = agents("--clean")
    assert "1 nodes cleaned" in uninstall(cluster, "--agent-image=agent:3")
    (order,) = [call for call in asked(cluster) if call.startswith(f"patch {path('daemonsets', 'aliquot-uninstall', 'kube-system')} ")]
    assert '"containers":[{"name":"agent","image":"agent:3"}]' in order


def test_the_release_of_helm(cluster):
    """Not of one that has the chart as a part."""
    notes = {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "gpus"}
    cluster.answers[ROLE] = {"metadata": {"annotations": notes}}
    revisions = of("secrets", namespace="gpus", labels="owner=helm,name=mine")
    cluster.answers[revisions] = {"items": [{"metadata": {"name": name, "namespace": "gpus"}} for name in "ab"]}
    cluster.answers |= {delete("secrets", name, "gpus"): {} for name in "ab"}
    assert "helm         release mine in gpus has Aliquot as a part and stays" in uninstall(cluster)
    assert revisions not in asked(cluster)
    notes["elasticgpu.io/release"] = "mine"
    assert "helm         2 revisions of release mine removed\n" in uninstall(cluster)


@pytest.mark.parametrize("options, said", [
    (["--crds=some"], "'some' is neither keep nor delete"), (["--hook=now"], "'now' is neither before nor after"),
    (["--served-elsewhere=none.example/gpu"], "none.example/gpu is no resource"), (["now"], "unexpected argument 'now'")])
def test_wrong_arguments(cluster, options, said):
    assert said in uninstall(cluster, *options, status=2)


def test_what_the_api_server_says(cluster):
    cluster.answers["get --raw /api/v1/pods?limit=500"] = "error: pods is forbidden"
    assert uninstall(cluster, status=1) == "aliquot uninstall: pods is forbidden\n"
