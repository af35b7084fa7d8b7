# SPDX-License-Identifier: Apache-2.0
"""`aliquot uninstall` against a kubectl that answers from files: what is removed, and in which order."""

import argparse
import json
import pathlib
import re

import pytest
import yaml

from test_chart import helm, programs, render   # noqa: F401  (fixtures)
from test_inspect import Cluster

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
USERS = {"Pod": "/api/v1/pods", "Deployment": "/apis/apps/v1/deployments", "StatefulSet": "/apis/apps/v1/statefulsets",
         "DaemonSet": "/apis/apps/v1/daemonsets", "ReplicaSet": "/apis/apps/v1/replicasets", "Job": "/apis/batch/v1/jobs",
         "CronJob": "/apis/batch/v1/cronjobs"}
NODES = "get nodes -o json"
DELETE = "delete --ignore-not-found --wait=false -o name "
PLURALS = {"MutatingAdmissionPolicy": "mutatingadmissionpolicies", "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
           "PodMonitor": "podmonitors.monitoring.coreos.com", "PrometheusRule": "prometheusrules.monitoring.coreos.com"}
OWN_KINDS = ("elasticgpuclaims", "elasticgpuclasses", "elasticgpuquotas", "elasticgpureservations", "elasticgpus", "gpus")
BY_LABEL = ("DaemonSet", "Deployment", "Job")
BINDING = "get clusterrolebindings aliquot-agent -o json"
AGENTS = "get daemonsets -n {} -l app.kubernetes.io/name=aliquot-agent -o json"
KINDS = "api-resources --namespaced --verbs=list -o name"
CONTENTS = ("get {} -n aliquot-system --ignore-not-found -o jsonpath={{range .items[*]}}{{.kind}}/{{.metadata.name}} "
            '{{.metadata.ownerReferences[0].name}} {{.metadata.deletionTimestamp}}{{"\\n"}}{{end}}')


def listed(items):
    """The objects as the lists of their kinds have them."""
    return {f"get --raw {path}?limit=500": {"metadata": {}, "items": [item for item in items if item["kind"] == kind]}
            for kind, path in USERS.items()}


@pytest.fixture
def cluster(aliquot, tmp_path):
    """Nothing is there: what an answer lacks, the test's kubectl does not find."""
    made = Cluster(aliquot, tmp_path)
    made.answers = {**listed([]), NODES: {"items": []}, KINDS: "pods\nthings.elasticgpu.io",
                    CONTENTS.format("pods"): "", CONTENTS.format("pods,things.elasticgpu.io"): ""}
    for name in ("aliquot-system", "gpus"):
        made.answers[f"get namespaces {name} --ignore-not-found -o name"] = "namespace/" + name
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
        if call.startswith(DELETE):
            words = call.removeprefix(DELETE).split()
            namespace, words = (words[1], words[2:]) if words[0] == "-n" else ("", words)
            yield from ((namespace, words[0], name) for name in words[1:])


def api(service, namespace="aliquot-system"):
    return {"spec": {"service": {"namespace": namespace, "name": service}}}


def of_api(name):
    return f"get apiservices {name}.metrics.k8s.io -o json"


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
    assert DELETE + "-n aliquot-system deployments,daemonsets,jobs -l app.kubernetes.io/part-of=aliquot" in calls
    assert DELETE + "certificatesigningrequests -l app.kubernetes.io/part-of=aliquot" in calls


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
            assert (meta.get("namespace", ""), one["kind"].lower() + "s", meta["name"]) in gone, meta


# ---- by the hook of the chart ----

LATER = "aliquot-uninstall-nodes"
BEFORE = ("--system=gpus", "--hook=before", '--job={"kind":"Job"}')


OWN_JOB = "get -n gpus jobs aliquot-uninstall -o json --show-managed-fields"
LATER_JOB = DELETE + f"-n gpus jobs {LATER}"
OWNED = ("clusterrolebindings", "serviceaccounts", "jobs")
NOT_BY_HELM = "made by kubectl, Argo CD or Flux, not by helm: nothing is removed"


def made_by(manager, **notes):
    return {"metadata": {"annotations": {"helm.sh/hook": "pre-delete", **notes}, "managedFields": [
        {"manager": "kube-controller-manager", "subresource": "status"}, {"manager": manager}]}}


def own(kind):
    return (f'patch -n gpus {kind} {LATER} --type=merge -p {{"metadata":{{"ownerReferences":[{{"apiVersion":"rbac.authorization.k8s.io/v1",'
            f'"kind":"ClusterRole","name":"{LATER}","uid":"role-uid"}}]}}}}')


@pytest.fixture
def release(cluster):
    """One of helm, with the role for the Job that stays."""
    cluster.answers[OWN_JOB] = made_by("helm")
    cluster.answers |= {own(kind): {} for kind in OWNED}
    cluster.answers["get clusterroles aliquot-agent -o json"] = {"metadata": {"annotations": {"meta.helm.sh/release-name": "mine"}}}
    cluster.answers |= {f"get clusterroles {LATER} -o json": {"metadata": {"uid": "role-uid"}}, "create -n gpus -f /dev/fd/3": {}}
    return cluster


def options_of_kubectl():
    parser = argparse.ArgumentParser()
    for option in ("-n", "-o", "-l", "-f", "-p", "--raw", "--subresource", "--type", "--wait"):
        parser.add_argument(option)
    for flag in ("-A", "--all", "--ignore-not-found", "--show-managed-fields"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("words", nargs="+")
    return parser


def requests(call, labelled):
    """(verb, namespace, resource, name) of what the call asks the API server for; name None: a list, all of it, or one that is new.
    `labelled`: (resource, name) of what a selector finds. As aliquot-kubectl does it."""
    got = options_of_kubectl().parse_intermixed_args(call.split(" "))
    verb, *words = got.words
    if verb == "create":
        yield verb, got.n, "jobs", None
        return
    kinds, *names = words or [got.raw.partition("?")[0].rpartition("/")[2]]
    if got.all:
        verb = "deletecollection"
    for kind in kinds.split(","):
        if not names and not got.all:
            yield "list", got.n, kind, None
        resource = kind + (f"/{got.subresource}" if got.subresource else "")
        if names or verb != "get":
            for name in names or [found for of, found in labelled if got.l and of == kind] or [None]:
                yield verb, got.n, resource, name


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
    release.answers |= {
        AGENTS.format("gpus"): {"items": [found]}, "get daemonsets -n gpus aliquot-agent -o json": ordered,
        NODES: {"items": [node(capacity={"elasticgpu.io/slot": "0"})]},
        **{f"get {kind}.elasticgpu.io -A -o json": {"items": [kept]} for kind in OWN_KINDS}}
    return release


@pytest.mark.parametrize("keep", ["true", "false"])
def test_the_hook_may_do_what_it_does(used, render, keep):      # noqa: F811
    """And it removes no object that helm needs: that removes the revisions, the CRDs and the hook's rights itself. With a Job of an
    earlier call, and with an error at the end, after which the rights of the Job that stays go, too."""
    made = render("--namespace", "gpus", "--set", "web.enabled=true,crds.keep=" + keep)
    (hook,) = made["Job", "gpus", "aliquot-uninstall"]["spec"]["template"]["spec"]["containers"]
    everywhere = made["ClusterRole", "", "aliquot-uninstall"]["rules"]
    rules = {"gpus": everywhere + made["Role", "gpus", "aliquot-uninstall"]["rules"]}
    labelled = [(kind.lower() + "s", name) for (kind, _, name), one in made.items()
                if one["metadata"].get("labels", {}).get("app.kubernetes.io/part-of") == "aliquot"]
    used.answers[LATER_JOB] = f"jobs/{LATER}"
    del used.answers[own("jobs")]
    uninstall(used, *hook["args"], status=1)
    done = {one for call in asked(used) for one in requests(call, labelled)}
    assert {verb for verb, *_ in done} == {"list", "get", "create", "patch", "delete", "deletecollection"}
    assert {("patch", None, "nodes/status", "n"), ("patch", "gpus", "daemonsets", "aliquot-agent"), ("create", "gpus", "jobs", None),
            ("get", "gpus", "jobs", "aliquot-uninstall"), ("get", "gpus", "jobs", LATER),
            ("delete", "gpus", "deployments", "aliquot-scheduler"), ("patch", "team", "elasticgpus.elasticgpu.io", "x")} <= done
    assert [one for one in done if not allows(rules.get(one[1], everywhere), one[0], *one[2:])] == []
    gone = {one[1:] for one in done if one[0] == "delete"}
    assert len(gone) > 60
    assert not any(kind in ("customresourcedefinitions", "namespaces") for _, kind, _ in gone)
    assert not any(name == "aliquot-uninstall" for _, _, name in gone)
    assert {kind for _, kind, name in gone if name == LATER} == {"jobs", "clusterrolebindings", "serviceaccounts", "clusterroles"}
    assert not any(call.startswith(DELETE) and "owner=helm" in call for call in asked(used))


def test_the_job_that_stays_may_do_what_it_does(used, render):      # noqa: F811
    made = render("--namespace", "gpus")
    (hook,) = made["Job", "gpus", "aliquot-uninstall"]["spec"]["template"]["spec"]["containers"]
    (job,) = [json.loads(arg.removeprefix("--job=")) for arg in hook["args"] if arg.startswith("--job=")]
    (later,) = job["spec"]["template"]["spec"]["containers"]
    uninstall(used, *(arg for arg in later["args"] if arg != "--wait"))
    done = {one for call in asked(used) for one in requests(call, [])}
    assert done == {("get", None, "clusterrolebindings", "aliquot-agent"), ("list", None, "nodes", None),
                    ("patch", None, "nodes/status", "n"), ("delete", None, "clusterroles", LATER)}
    rules = made["ClusterRole", "", LATER]["rules"]
    assert [one for one in done if not allows(rules, one[0], *one[2:])] == []


def test_the_hook_leaves_a_job(release):
    """With all that it has, it is its role's."""
    told = uninstall(release, *BEFORE)
    assert f"Job {LATER} in gpus removes what kubelet writes again" in told
    calls = asked(release)
    assert calls[-4].startswith("create -n gpus -f /dev/fd/")
    assert calls[-3:] == [own(kind) for kind in OWNED]
    assert calls.index(LATER_JOB) < calls.index(f"get clusterroles {LATER} -o json")


@pytest.mark.parametrize("gone", [f"get clusterroles {LATER} -o json", *map(own, OWNED)])
def test_the_hook_leaves_nothing_after_an_error(release, gone):
    """What is gone cannot be owned, or be the owner: an earlier call's, for example, is on its way out."""
    del release.answers[gone]
    said = uninstall(release, *BEFORE, status=1)
    assert f"Job {LATER} in gpus removes" not in said
    assert f"no ClusterRole {LATER} for the Job" in said or "(NotFound)" in said
    assert asked(release)[-4:] == [DELETE + f"-n gpus {kind} {LATER}" for kind in (
        "jobs", "clusterrolebindings", "serviceaccounts", "clusterroles")]


def test_the_job_of_an_earlier_call_does_not_end(release):
    """It is waited for as long as pods are."""
    release.answers |= {LATER_JOB: f"jobs/{LATER}", f"get -n gpus jobs {LATER} -o json": {"metadata": {}}}
    assert f"Job {LATER} of an earlier call is still there" in uninstall(release, *BEFORE, "--timeout=0", status=1)
    assert not any(call.startswith("create ") for call in asked(release))


def test_the_hook_of_no_release(release):
    """By what makes no Job of itself that is known, as `helm template | kubectl create` with another client."""
    release.answers["get clusterroles aliquot-agent -o json"] = {"metadata": {"name": "aliquot-agent"}}
    assert "helm does not remove them: nothing is removed" in uninstall(release, *BEFORE)
    assert asked(release) == [OWN_JOB, "get clusterroles aliquot-agent -o json"]


@pytest.mark.parametrize("job", [
    made_by("kubectl"), made_by("kubectl-client-side-apply"), made_by("kubectl-create"), made_by("argocd-controller"),
    made_by("kustomize-controller"), made_by("mine", **{"kubectl.kubernetes.io/last-applied-configuration": "{}"})])
def test_the_hook_is_applied_over_a_release(release, job):
    """Whose marks its objects still have, or which an earlier call has begun to remove."""
    release.answers[OWN_JOB] = job
    assert NOT_BY_HELM in uninstall(release, *BEFORE)
    del release.answers["get clusterroles aliquot-agent -o json"]
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
    assert asked(cluster) == [BINDING, DELETE + f"clusterroles {LATER}"]


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


def test_the_namespace_has_other_things(cluster):
    """What is on its way out, of Aliquot's objects or of Kubernetes in every namespace is none."""
    kinds = "configmaps,persistentvolumeclaims,things.elasticgpu.io"
    there = ["ConfigMap/kube-root-ca.crt  ", "ServiceAccount/default  ", "Event/x.1  ", "ReplicaSet/r aliquot-scheduler ",
             "Pod/p aliquot-scheduler-1 2026-01-01T00:00:00Z", "Pod/q  2026-01-01T00:00:00Z", "Endpoints/aliquot-webhook  "]
    cluster.answers |= {KINDS: kinds.replace(",", "\n"), CONTENTS.format(kinds): "\n".join(there)}
    assert "namespace    aliquot-system is being removed, which takes some seconds\n" in uninstall(cluster)
    cluster.answers[CONTENTS.format(kinds)] = "\n".join([*there, "PersistentVolumeClaim/data  ", "ConfigMap/mine other-owner "])
    cluster.where.joinpath("asked").unlink()
    assert "namespace    aliquot-system stays, with: PersistentVolumeClaim/data ConfigMap/mine\n" in uninstall(cluster)
    assert not any(kind == "namespaces" for _, kind, _ in deleted(asked(cluster)))


def test_what_the_namespace_has_is_not_known(cluster):
    """A kind that is announced and does not answer; the other steps are still done."""
    cluster.answers[CONTENTS.format("pods,things.elasticgpu.io")] = "error: the server is currently unable to handle the request"
    said = uninstall(cluster, status=1)
    assert "aliquot-system stays: what else is in it is not known (kubectl: error: the server" in said
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
    calls = [call.removeprefix(DELETE) for call in asked(cluster)]
    order = ["mutatingwebhookconfigurations", "-n aliquot-system deployments", "clusterrolebindings", "gpus.elasticgpu.io",
             "-n aliquot-system secrets", "customresourcedefinitions", "namespaces"]
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
    cluster.answers["get configmaps -n aliquot-system aliquot-kube-scheduler -o json"] = {"data": {"configuration.yaml": configuration}}
    cluster.answers |= listed([
        bare("waits", "aliquot-scheduler"), bare("taken", "volcano"), bare("bound", "volcano", nodeName="n"), bare("not", "kai-scheduler"),
        bare("default", "default-scheduler"), workload("Deployment", "d", {"spec": {"schedulerName": "aliquot-scheduler"}})])
    told = [line.split(maxsplit=1)[1] for line in uninstall(cluster).splitlines() if line.startswith("schedulers")]
    assert told == [f"{what}: Pending without it" for what in (
        "Pod team/waits names scheduler aliquot-scheduler", "Pod team/taken names scheduler volcano",
        "Deployment team/d names scheduler aliquot-scheduler")]


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
    patch = ('patch nodes n --subresource=status --type=strategic -p {"metadata":{"labels":{"nvidia.com/gpu.count":null,'
             '"nvidia.com/gfd.timestamp":null},"annotations":{"elasticgpu.io/feature-labels":null,"elasticgpu.io/capacity":null}},'
             '"status":{"capacity":{"nvidia.com/gpu.shared":null,"elasticgpu.io/gpu-memory":null,"elasticgpu.io/gpu-core":null,"elasticgpu.io/slot":null,'
             '"nvidia.com/mig-1g.10gb":null},"allocatable":{"elasticgpu.io/slot":null},'
             '"conditions":[{"$patch":"delete","type":"GPUHealthy"}]}}')
    cluster.answers[patch] = ""
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
        return [call for call in asked(cluster) if call.startswith("patch nodes")]

    trace = {"conditions": [{"type": "AliquotAgentReady", "status": "False"}]}
    assert patches() == []
    (patch,) = patches(**trace)
    assert all(f'"{name}":null' in patch for name in SHARED)
    agent = {"name": "agent", "args": ["--served-elsewhere=aliyun.com/gpu-mem,nvidia.com/gpu"]}
    cluster.answers[AGENTS.format("aliquot-system")] = {"items": [{"spec": {"template": {"spec": {"containers": [agent]}}}}]}
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
        self.cluster.answers[AGENTS.format("aliquot-system")] = {"items": [found]}
        self.cluster.answers["get daemonsets -n aliquot-system agents -o json"] = after
        self.cluster.where.joinpath("asked").unlink(missing_ok=True)
        return uninstall(self.cluster, *options, status=status)

    def orders(self):
        return [call for call in asked(self.cluster) if call.startswith("patch -n aliquot-system daemonsets agents ")]


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
    cluster.answers["create -n kube-system -f /dev/fd/3"] = "error: (AlreadyExists)"
    spare = "get daemonsets -n kube-system aliquot-uninstall -o json"
    cluster.answers[spare] = agents("--clean")
    assert "1 nodes cleaned" in uninstall(cluster, "--agent-image=agent:3")
    (order,) = [call for call in asked(cluster) if call.startswith("patch -n kube-system daemonsets aliquot-uninstall ")]
    assert '"containers":[{"name":"agent","image":"agent:3"}]' in order


def test_the_release_of_helm(cluster):
    """Not of one that has the chart as a part."""
    notes = {"meta.helm.sh/release-name": "mine", "meta.helm.sh/release-namespace": "gpus"}
    cluster.answers["get clusterroles aliquot-agent -o json"] = {"metadata": {"annotations": notes}}
    revisions = DELETE + "-n gpus secrets,configmaps -l owner=helm,name=mine"
    cluster.answers[revisions] = "secret/a\nsecret/b"
    assert "helm         release mine in gpus has Aliquot as a part and stays" in uninstall(cluster)
    assert revisions not in asked(cluster)
    notes["elasticgpu.io/release"] = "mine"
    assert "helm         2 revisions of release mine removed\n" in uninstall(cluster)


@pytest.mark.parametrize("options, said", [
    (["--crds=some"], "'some' is neither keep nor delete"), (["--hook=now"], "'now' is neither before nor after"),
    (["--served-elsewhere=none.example/gpu"], "none.example/gpu is no resource"), (["now"], "unexpected argument 'now'")])
def test_wrong_arguments(cluster, options, said):
    assert said in uninstall(cluster, *options, status=2)


def test_what_kubectl_says(cluster):
    cluster.answers["get --raw /api/v1/pods?limit=500"] = "error: pods is forbidden"
    assert uninstall(cluster, status=1) == "aliquot uninstall: kubectl: error: pods is forbidden\n"
