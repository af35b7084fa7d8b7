# SPDX-License-Identifier: Apache-2.0
"""`aliquot doctor` against a kubectl that answers from files: each line with what breaks it."""

import copy
import json
import time

import pytest

from test_inspect import Cluster

EVENTS = "get events -A --field-selector=type=Warning -o json"
PODS = "get pods -n aliquot-system -o json"
SCHEDULERS = "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-scheduler -o json"
LEASES = "get leases -n kube-node-lease -o json"
DAEMONSETS = "get daemonsets -A -o json"
STATUS = "--kubeconfig=/dev/null --context= --server=http://127.0.0.1:40404 --request-timeout=15s get --raw /status"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NOW = 1790000000


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(seconds))


def agent(node):
    return {"metadata": {"name": "agent-" + node, "labels": {"app.kubernetes.io/name": "aliquot-agent"}},
            "spec": {"nodeName": node}, "status": copy.deepcopy(READY)}


def node(name, **labels):
    return {"metadata": {"name": name, "labels": {key.replace("_", "/"): value for key, value in labels.items()}},
            "status": {"conditions": [{"type": "GPUHealthy", "status": "True", "message": ""}]}}


def tried(limits):
    """The arguments by which a pod is tried."""
    security = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "doctor", "image": "doctor",
                 "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                 "resources": {"limits": limits}}
    overrides = json.dumps({"spec": {"securityContext": security, "containers": [container]}}, separators=(",", ":"))
    return ("run aliquot-doctor --image=doctor --restart=Never --dry-run=server -o json --overrides=" + overrides)


SHARE, TOO_MUCH = tried({"elasticgpu.io/gpu-memory": "1Gi"}), tried({"elasticgpu.io/gpu-core": "150"})


def pod(**limits):
    return {"metadata": {"creationTimestamp": stamp(NOW)}, "spec": {"containers": [{"resources": {"limits": limits}}]}}


def sent_to(made, scheduler):
    made["spec"]["schedulerName"] = scheduler
    return made


@pytest.fixture
def well(aliquot, tmp_path):
    """A cluster with nothing wrong. What an answer lacks is refused by the test's kubectl."""
    cluster = Cluster(aliquot, tmp_path)
    version = cluster.run("version").stdout.split()[1]
    cluster.answers = {
        "version -o json": {"serverVersion": {"gitVersion": "v1.36.3"}},
        "get nodes -o json": {"items": [node("a"), node("b")]},
        PODS: {"items": [agent("a"), agent("b")]},
        DAEMONSETS: {"items": []},
        EVENTS: {"items": []},
        LEASES: {"items": [{"metadata": {"name": n}, "spec": {"renewTime": stamp(NOW - 7)}} for n in "ab"]},
        SHARE: pod(**{"elasticgpu.io/slot": "1"}),
        SCHEDULERS: {"items": [{"metadata": {"name": "s"}, "status": READY}]},
        "port-forward -n aliquot-system --address 127.0.0.1 s :9401": "",
        STATUS: {"version": version, "ready": True, "acts": True, "pods": [{"stage": "bound"}]},
    }
    return cluster


def findings(cluster, status):
    done = cluster.run("doctor", "--json")
    assert done.returncode == status, done
    return {(f["check"], f["level"]): (f["text"], f["remedy"]) for f in json.loads(done.stdout)["findings"]}


def test_nothing_is_wrong(well):
    found = findings(well, 0)
    assert {level for _, level in found} == {"ok"} and len(found) == 9, found
    text = well.run("doctor").stdout
    assert "ok       agents         agents that are ready: 2\n" in text


EVENT = {"reportingComponent": "aliquot-agent", "involvedObject": {"kind": "Node", "name": "a"},
         "reason": "ConfigurationInvalid", "message": "line 3: unknown key"}
SKEW = {"reportingComponent": "aliquot-scheduler", "involvedObject": {"kind": "Pod"}, "reason": "KubeSchedulerVersionSkew",
        "message": "kube-scheduler v1.37 is newer"}
BOTH = dict(SKEW, reason="ClusterKubeSchedulerAsks", message="the cluster's kube-scheduler asks Aliquot, too")
PLUGIN = {"metadata": {"namespace": "gpu", "name": "nvdp"}, "status": {"desiredNumberScheduled": 2},
          "spec": {"template": {"spec": {"containers": [{"image": "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"}]}}}}


def agents(number):
    """Their DaemonSet, for so many nodes."""
    return {"metadata": {"namespace": "aliquot-system", "name": "aliquot-agent"}, "status": {"desiredNumberScheduled": number}}


def unhealthy(name):
    changed = node(name)
    changed["status"]["conditions"][0].update(status="False", message="GPU 0: XID 79")
    return changed


def not_ready(name):
    changed = agent(name)
    changed["status"]["conditions"][0]["status"] = "False"
    return changed


def waiting(reason, message="", image="aliquot-scheduler:dev"):
    """A pod of the scheduler of which a container waits."""
    status = {"containerStatuses": [{"name": "kube-scheduler", "image": image, "state": {
        "waiting": {"reason": reason, "message": message}}}]}
    return {"metadata": {"name": "s"}, "spec": {"nodeName": "a"}, "status": status}


def lease(name, offset):
    return {"metadata": {"name": name}, "spec": {"renewTime": stamp(NOW + offset)}}


# What is changed, the finding, words of its text
BROKEN = [
    ({"version -o json": "error: no route to host"}, ("API server", "wrong"), "the cluster does not answer"),
    ({"version -o json": {"serverVersion": {"gitVersion": "v1.29.9-gke.1"}}}, ("API server", "wrong"), "older than 1.30"),
    ({SHARE: pod()}, ("admission", "wrong"), "is not changed"),
    ({SHARE: sent_to(pod(**{"elasticgpu.io/slot": "1"}), "aliquot-scheduler")}, ("admission", "wrong"), "has a kube-scheduler"),
    ({TOO_MUCH: pod(**{"elasticgpu.io/gpu-core": "150"})}, ("admission", "wrong"), "is not refused"),
    ({SHARE: "error: failed calling webhook slots.elasticgpu.io: no route"}, ("admission", "wrong"), "cannot be reached"),
    ({SCHEDULERS: {"items": []}}, ("scheduler", "wrong"), "no pod of aliquot-scheduler"),
    ({STATUS: {"version": "0.1.0", "ready": False}}, ("scheduler", "wrong"), "has not read the cluster"),
    ({EVENTS: {"items": [SKEW, SKEW]}}, ("scheduler", "wrong"), "kube-scheduler v1.37 is newer"),
    ({EVENTS: {"items": [BOTH]}}, ("scheduler", "wrong"), "kube-scheduler asks Aliquot, too"),
    ({STATUS: {"version": "0.1.0", "ready": True, "pods": [
        {"stage": "pending", "namespace": "n", "pod": "p", "ageMilliseconds": 61000}]}}, ("placing", "wrong"), "n/p waits"),
    ({PODS: {"items": [agent("a"), agent("b"), waiting("ErrImagePull", "connection refused", "r/kube-scheduler:v1.36.9")]}},
     ("pods", "wrong"), "container kube-scheduler of pod s, image r/kube-scheduler:v1.36.9: ErrImagePull: connection refused"),
    ({PODS: {"items": [agent("a"), agent("b"), waiting("ImagePullBackOff")]}}, ("pods", "wrong"), "ImagePullBackOff"),
    ({PODS: {"items": [agent("a"), agent("b"), waiting("CrashLoopBackOff")]}}, ("pods", "wrong"), "CrashLoopBackOff"),
    ({PODS: {"items": []}}, ("agents", "wrong"), "there is no agent"),
    ({PODS: {"items": []}, DAEMONSETS: {"items": [agents(0)]}}, ("agents", "unsure"), "aliquot-agent selects no node"),
    ({PODS: {"items": []}, DAEMONSETS: {"items": [agents(2)]}}, ("agents", "wrong"), "there is no agent"),
    ({PODS: {"items": [agent("a"), not_ready("b")]}}, ("agents", "wrong"), "on node b is not ready"),
    ({"get nodes -o json": {"items": [node("a"), node("b"), node("c", **{"nvidia.com_gpu.present": "true"})]}},
     ("agents", "wrong"), "node c has GPUs and no agent"),
    ({"get nodes -o json": {"items": [node("a"), unhealthy("b")]}}, ("nodes", "wrong"), "node b: GPU 0: XID 79"),
    ({EVENTS: {"items": [EVENT]}}, ("nodes", "wrong"), "Node a: ConfigurationInvalid: line 3"),
    ({EVENTS: {"items": [dict(EVENT, reason="ContainerRuntimeWithoutCDI", involvedObject={"kind": "Pod", "name": "p"})]}},
     ("nodes", "wrong"), "Pod p: ContainerRuntimeWithoutCDI"),
    ({DAEMONSETS: {"items": [PLUGIN]}}, ("other plugins", "unsure"), "gpu/nvdp"),
    ({LEASES: {"items": [lease("a", 30), lease("b", -5)]}}, ("clocks", "wrong"), "node a is 30 s ahead of"),
    ({LEASES: {"items": [lease("a", 0), lease("b", -300)]}}, ("clocks", "wrong"), "node b is 300 s behind"),
]


@pytest.mark.parametrize("change, finding, words", BROKEN, ids=[f"{f[0]}: {words}" for _, f, words in BROKEN])
def test_each_line(well, change, finding, words):
    for asked, answer in change.items():
        well.answers[asked] = answer
    found = findings(well, 1 if finding[1] == "wrong" else 0)
    text, remedy = found[finding]
    assert words in text and remedy, found
    assert (finding[0], "ok") not in found or finding[0] in ("scheduler",), found


def test_pods_that_are_sent_to_a_kube_scheduler_that_is_there(well):
    well.answers[SHARE] = sent_to(pod(**{"elasticgpu.io/slot": "1"}), "aliquot-scheduler")
    well.answers[PODS]["items"].append({"metadata": {"name": "s"}, "spec": {"containers": [{"name": "kube-scheduler"}]}})
    assert ("admission", "ok") in findings(well, 0)


def test_events_of_pods_are_their_own_matter(well):
    well.answers[EVENTS] = {"items": [
        dict(EVENT, involvedObject={"kind": "Pod", "name": "p"}, reason="Waiting"), dict(EVENT, reportingComponent="kubelet")]}
    assert ("nodes", "ok") in findings(well, 0)


def test_a_container_that_starts_is_no_problem(well):
    well.answers[PODS]["items"].append(waiting("ContainerCreating"))
    assert ("pods", "ok") in findings(well, 0)


def test_what_may_not_be_read(well):
    """It is no problem of the cluster."""
    for asked in ("get nodes -o json", PODS, DAEMONSETS, EVENTS, LEASES, SHARE, SCHEDULERS):
        well.refuse(asked)
    found = findings(well, 0)
    assert {check for check, level in found if level == "unsure"} == {
        "admission", "scheduler", "placing", "pods", "agents", "nodes", "other plugins", "clocks"}, found


def test_no_pod_yet(well):
    well.answers[STATUS]["pods"] = []
    assert "not known" in findings(well, 0)[("placing", "unsure")][0]


def test_a_node_that_is_left_out(well):
    left = node("c", **{"nvidia.com_gpu.present": "true", "nvidia-device-enable": "disable"})
    well.answers["get nodes -o json"]["items"].append(left)
    assert ("agents", "ok") in findings(well, 0)
