# SPDX-License-Identifier: Apache-2.0
"""`aliquot doctor` against a kubectl that answers from files: each line with what breaks it."""

import copy
import json
import time

import pytest

from test_inspect import Cluster

COORDINATION = "get --raw /apis/coordination.k8s.io/v1/namespaces/"
OWN = "get --raw /api/v1/namespaces/aliquot-system/"
VERSION = "get --raw /version"
EVENTS = "get --raw /api/v1/events?fieldSelector=type%3DWarning"
ISSUED = "get --raw /api/v1/events?fieldSelector=reason%3DCertificateIssued"
PODS = OWN + "pods"
SCHEDULERS = "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-scheduler -o json"
LEASES = COORDINATION + "kube-node-lease/leases"
OWN_LEASES = COORDINATION + "aliquot-system/leases"
DAEMONSETS = "get --raw /apis/apps/v1/daemonsets"
GPUS = "get gpus.elasticgpu.io -o json"
PENDING = "get pods -A --field-selector=status.phase=Pending -o json"
# In what the API server makes of it then there is no data.
SECRET = OWN + "secrets/aliquot-signing as application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PUBLIC_KEY = OWN + "configmaps/aliquot-signing"
WEBHOOK = OWN + "services/aliquot-webhook"
NODES = "get nodes -o json"
APIS = "get --raw /apis/apiregistration.k8s.io/v1/apiservices"
DEVICES = "get --raw /apis/resource.k8s.io/v1/"
DEVICE_CLASSES, DEVICE_CLAIMS = DEVICES + "deviceclasses", DEVICES + "resourceclaims"
SLICES = DEVICES + "resourceslices?fieldSelector=spec.driver%3Dgpu.elasticgpu.io"
FORWARD = "port-forward -n aliquot-system --address 127.0.0.1 s :9401"
STATUS = "--kubeconfig=/dev/null --context= --server=http://127.0.0.1:40404 --request-timeout=15s get --raw /status"
READY = {"conditions": [{"type": "Ready", "status": "True"}]}
NOW = 1790000000
SERVER = {"gitVersion": "v1.36.3"}
KEY = "-----BEGIN PUBLIC KEY-----\nours\n-----END PUBLIC KEY-----\n"
MISSING = None


def stamp(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime(seconds))


def part(name, **spec):
    return {"metadata": {"name": name, "labels": {"app.kubernetes.io/name": "aliquot-" + name.partition("-")[0]}}, "spec": spec,
            "status": copy.deepcopy(READY)}


def agent(node, tag="7"):
    return part("agent-" + node, nodeName=node, containers=[{"name": "agent", "image": f"r:5000/aliquot-agent:{tag}"}])


def scheduler(kube_scheduler=None):
    """A replica, with a kube-scheduler of its own if its tag is given."""
    containers = [{"name": "scheduler", "image": "r:5000/aliquot-scheduler:7"}]
    if kube_scheduler:
        containers.append({"name": "kube-scheduler", "image": f"registry.k8s.io/kube-scheduler:{kube_scheduler}"})
    return part("scheduler-s", containers=containers)


def daemonset(version):
    return {"metadata": {"name": "aliquot-agent", "labels": {"app.kubernetes.io/name": "aliquot-agent"},
                         "annotations": {"elasticgpu.io/version": version}}}


def node(name, **labels):
    return {"metadata": {"name": name, "labels": {key.replace("_", "/"): value for key, value in labels.items()}},
            "status": {"conditions": [{"type": "GPUHealthy", "status": "True", "message": ""}]}}


def gpu(node, *holders):
    return {"metadata": {"name": node + "-00"}, "spec": {"nodeName": node}, "status": {"allocated": {uid: {} for uid in holders}}}


def written(offset):
    """The API server's note of when an object was written last, behind an older one."""
    return {"managedFields": [{"time": stamp(NOW + at)} for at in (offset - 500, offset)]}


def own_lease(holder="s", offset=-1, ahead=0, **annotations):
    return {"metadata": {"name": "aliquot-scheduler", "annotations": annotations, **written(offset)},
            "spec": {"holderIdentity": holder, "renewTime": stamp(NOW + offset + ahead)}}


def share(age, node=None, by="elasticgpu.io/slot", **annotations):
    """A pod whose containers have not started."""
    spec = {"containers": [{"resources": {"limits": {by: "1"}}}]}
    if node:
        spec["nodeName"] = node
    return {"metadata": {"namespace": "n", "name": "p", "annotations": annotations, "creationTimestamp": stamp(NOW - age)},
            "spec": spec}


def tried(limits):
    """The request by which a pod is tried."""
    security = {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "doctor", "image": "doctor",
                 "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                 "resources": {"limits": limits}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "aliquot-doctor"},
           "spec": {"restartPolicy": "Never", "securityContext": security, "containers": [container]}}
    return "create /api/v1/namespaces/default/pods?dryRun=All " + json.dumps(pod)


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
        VERSION: SERVER,
        NODES: {"items": [node("a"), node("b")]},
        PODS: {"items": [agent("a"), agent("b"), scheduler()]},
        DAEMONSETS: {"items": [daemonset(version)]},
        GPUS: {"items": [gpu("a", "u"), gpu("b")]},
        PENDING: {"items": []},
        SECRET: {"kind": "PartialObjectMetadata", "metadata": {"name": "aliquot-signing"}},
        PUBLIC_KEY: {"data": {"public.pem": KEY + "another one"}},
        OWN_LEASES: {"items": [own_lease()]},
        EVENTS: {"items": []},
        APIS: {"items": []},
        DEVICE_CLASSES: {"items": []}, DEVICE_CLAIMS: {"items": []}, SLICES: {"items": []},
        LEASES: {"items": [{"metadata": {"name": n}, "spec": {"renewTime": stamp(NOW - 7)}} for n in "ab"]},
        SHARE: pod(**{"elasticgpu.io/slot": "1"}),
        SCHEDULERS: {"items": [{"metadata": {"name": "s"}, "status": READY}]},
        FORWARD: "",
        STATUS: {"version": version, "ready": True, "acts": True, "publicKey": KEY},
    }
    return cluster


def findings(cluster, status):
    done = cluster.run("doctor", "--json")
    assert done.returncode == status, done
    return {(f["check"], f["level"]): (f["text"], f["remedy"]) for f in json.loads(done.stdout)["findings"]}


def test_nothing_is_wrong(well):
    found = findings(well, 0)
    assert {level for _, level in found} == {"ok"} and len(found) == 14, found
    text = well.run("doctor").stdout
    assert "ok       agents         agents that are ready: 2\n" in text


def test_pods_that_are_given_claims(well):
    """By deploy/dra-pods: the pod with a share has a claim, and no slot."""
    claimed = pod()
    claimed["spec"]["containers"][0]["resources"] = {"claims": [{"name": "aliquot-0"}]}
    well.answers[SHARE] = claimed
    assert findings(well, 0)["admission", "ok"][0].startswith("requests are checked")


def serving():
    """A replica that serves the metrics APIs."""
    one = scheduler()
    one["spec"]["containers"][0]["args"] = ["--listen=127.0.0.1:9401", "--metrics-api-listen=:9404"]
    return one


def api(name, service="aliquot-metrics-api", status="True", message=""):
    return {"metadata": {"name": name + ".metrics.k8s.io"}, "spec": {"service": {"namespace": "aliquot-system", "name": service}},
            "status": {"conditions": [{"type": "Available", "status": status, "message": message}]}}


def test_metrics_apis(well):
    """Those that are served, and beside another product, of which Aliquot says nothing where it serves none."""
    well.answers[APIS] = {"items": [api("v1beta2.custom"), api("v1beta1.external", "keda-operator-metrics-apiserver")]}
    assert findings(well, 0)["metrics APIs", "ok"][0] == "v1beta2.custom.metrics.k8s.io is available"
    well.answers[PODS]["items"][2] = serving()
    text = well.run("doctor").stdout
    assert "v1beta2.custom.metrics.k8s.io is available" in text and "is of Service aliquot-system/keda-operator-metrics-apiserver" in text
    well.answers[APIS] = {"items": [api("v1beta1.external", "keda")]}
    well.answers[PODS]["items"][2] = scheduler()
    assert findings(well, 0)["metrics APIs", "ok"][0].startswith("not served")


EVENT = {"reportingComponent": "aliquot-agent", "involvedObject": {"kind": "Node", "name": "a"},
         "reason": "ConfigurationInvalid", "message": "line 3: unknown key"}
ASKED = own_lease(**{"elasticgpu.io/asked-by-cluster": "aliquot-scheduler-other"})
PLUGIN = {"metadata": {"namespace": "gpu", "name": "nvdp"}, "status": {"desiredNumberScheduled": 2},
          "spec": {"template": {"spec": {"containers": [{"image": "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"}]}}}}


def agents(number):
    """Their DaemonSet, for so many nodes."""
    return {"metadata": {"namespace": "aliquot-system", "name": "gpus-agent", "labels": {"app.kubernetes.io/name": "aliquot-agent"}},
            "status": {"desiredNumberScheduled": number}}


def unhealthy(name, reason="NotHealthy", message="GPU 0: XID 79"):
    changed = node(name)
    changed["status"]["conditions"][0].update(status="False", reason=reason, message=message)
    return changed


def not_ready(name):
    changed = agent(name)
    changed["status"]["conditions"][0]["status"] = "False"
    return changed


def waiting(reason, message="", image="aliquot-scheduler:dev"):
    """A pod of the scheduler of which a container waits."""
    status = {"containerStatuses": [{"name": "kube-scheduler", "image": image, "state": {
        "waiting": {"reason": reason, "message": message}}}]}
    return dict(scheduler(), status=status)


def lease(name, ahead, offset=-5):
    return {"metadata": {"name": name, **written(offset)}, "spec": {"renewTime": stamp(NOW + offset + ahead)}}


def certificate(reason, offset, node="a"):
    """An Event of the agent on a node about its certificate."""
    return dict(EVENT, reason=reason, involvedObject={"kind": "Node", "name": node}, metadata=written(offset))


# What is changed, the finding, words of its text
BROKEN = [
    ({VERSION: "error: no route to host"}, ("API server", "wrong"), "the cluster does not answer"),
    ({VERSION: {"gitVersion": "v1.29.9-gke.1"}}, ("API server", "wrong"), "older than 1.30"),
    ({SHARE: pod()}, ("admission", "wrong"), "is not changed"),
    ({SHARE: sent_to(pod(**{"elasticgpu.io/slot": "1"}), "aliquot-scheduler")}, ("admission", "wrong"), "has a kube-scheduler"),
    ({TOO_MUCH: pod(**{"elasticgpu.io/gpu-core": "150"})}, ("admission", "wrong"), "is not refused"),
    ({SHARE: "error: failed calling webhook slots.elasticgpu.io: no route", WEBHOOK: {"spec": {"ports": [{"targetPort": 9412}]}}},
     ("admission", "wrong"), "port 9412 of aliquot-scheduler, cannot be reached"),
    ({SCHEDULERS: {"items": []}}, ("scheduler", "wrong"), "no pod of aliquot-scheduler"),
    ({STATUS: {"version": "0.1.0", "ready": False}}, ("scheduler", "wrong"), "has not read the cluster"),
    ({OWN_LEASES: {"items": []}}, ("scheduler", "wrong"), "no replica of aliquot-scheduler holds its Lease"),
    ({OWN_LEASES: {"items": [own_lease("")]}}, ("scheduler", "wrong"), "holds its Lease"),
    ({OWN_LEASES: {"items": [own_lease(offset=-61)]}}, ("scheduler", "wrong"), "holds its Lease"),
    ({PODS: {"items": [agent("a"), agent("b"), scheduler("v1.37.0")]}}, ("scheduler", "wrong"),
     "kube-scheduler v1.37.0 is newer than the API server, v1.36.3"),
    ({PODS: {"items": [agent("a"), agent("b"), scheduler("v1.34.1")]}}, ("scheduler", "wrong"),
     "set the tag of its image to v1.36.3"),
    ({PODS: {"items": [agent("a"), agent("b"), scheduler("v1.36.3")]}, OWN_LEASES: {"items": [ASKED]}}, ("scheduler", "wrong"),
     "the cluster's kube-scheduler asks aliquot-scheduler-other"),
    ({APIS: {"items": [api("v1beta2.custom", status="False", message="connection refused")]}}, ("metrics APIs", "wrong"),
     "v1beta2.custom.metrics.k8s.io is not available: connection refused"),
    ({APIS: {"items": [dict(api("v1beta2.custom"), status={})]}}, ("metrics APIs", "wrong"), "its state is not known yet"),
    ({PODS: {"items": [agent("a"), agent("b"), serving()]}}, ("metrics APIs", "wrong"), "there is no APIService"),
    ({PENDING: {"items": [share(61)]}, GPUS: {"items": [gpu("a"), gpu("b")]}}, ("placing", "wrong"), "n/p waits"),
    ({PENDING: {"items": [share(1, "a")]}}, ("placing", "wrong"), "n/p is on a node without an assignment"),
    ({PENDING: {"items": [share(1, "a", "elasticgpu.io/gpu-core")]}}, ("placing", "wrong"), "without an assignment"),
    ({PENDING: {"items": [share(1, "a", "tke.cloud.tencent.com/qgpu-core")]}}, ("placing", "wrong"), "without an assignment"),
    ({PUBLIC_KEY: MISSING}, ("signing key", "wrong"), "ConfigMap aliquot-signing is missing"),
    ({PUBLIC_KEY: {"data": {"public.pem": KEY.replace("ours", "theirs")}}}, ("signing key", "wrong"), "no public key of"),
    ({PUBLIC_KEY: {}}, ("signing key", "wrong"), "no public key of"),
    ({SECRET: MISSING}, ("signing key", "wrong"), "Secret aliquot-signing is missing"),
    ({PODS: {"items": [agent("a"), agent("b", "6"), scheduler()]}}, ("versions", "unsure"), "the agent on node b is of image 6"),
    ({DAEMONSETS: {"items": [daemonset("0.1.0")]}}, ("versions", "unsure"), "the manifests are of version 0.1.0"),
    ({STATUS: {"version": "0.1.0", "ready": True}, DAEMONSETS: {"items": [daemonset("0.1.0")]}}, ("versions", "unsure"),
     "the checks can be those of another version"),
    ({PODS: {"items": [agent("a"), agent("b"), waiting("ErrImagePull", "connection refused", "r/kube-scheduler:v1.36.9")]}},
     ("pods", "wrong"), "container kube-scheduler of pod scheduler-s, image r/kube-scheduler:v1.36.9: ErrImagePull: connection refused"),
    ({PODS: {"items": [agent("a"), agent("b"), waiting("ImagePullBackOff")]}}, ("pods", "wrong"), "ImagePullBackOff"),
    ({PODS: {"items": [agent("a"), agent("b"), waiting("CrashLoopBackOff")]}}, ("pods", "wrong"), "CrashLoopBackOff"),
    ({PODS: {"items": [scheduler()]}}, ("agents", "wrong"), "there is no agent"),
    ({PODS: {"items": [scheduler()]}, DAEMONSETS: {"items": [agents(0)]}}, ("agents", "unsure"), "aliquot-agent selects no node"),
    ({PODS: {"items": [scheduler()]}, DAEMONSETS: {"items": [agents(2)]}}, ("agents", "wrong"), "there is no agent"),
    ({PODS: {"items": [agent("a"), not_ready("b"), scheduler()]}}, ("agents", "wrong"), "on node b is not ready"),
    ({NODES: {"items": [node("a"), node("b"), node("c", **{"nvidia.com_gpu.present": "true"})]}},
     ("agents", "wrong"), "node c has GPUs and no agent"),
    ({NODES: {"items": [node("a"), node("b", **{"nvidia.com_gpu.present": "true"})]}, GPUS: {"items": [gpu("a", "u")]}},
     ("drivers", "wrong"), "node b has GPUs by its labels, and its agent finds no driver"),
    ({NODES: {"items": [node("a"), unhealthy("b", "DriverNotAnswering", "has no nvmlInit_v2: the driver is too old")]}},
     ("drivers", "wrong"), "node b: has no nvmlInit_v2: the driver is too old"),
    ({GPUS: {"items": []}}, ("drivers", "unsure"), "no agent has found a driver"),
    ({NODES: {"items": [node("a"), unhealthy("b")]}}, ("nodes", "wrong"), "node b: GPU 0: XID 79"),
    ({EVENTS: {"items": [EVENT]}}, ("nodes", "wrong"), "Node a: ConfigurationInvalid: line 3"),
    ({EVENTS: {"items": [dict(EVENT, reason="NoCertificate", message="the agent has no certificate of Aliquot's authority")]}},
     ("nodes", "wrong"), "Node a: NoCertificate: the agent has no certificate"),
    ({EVENTS: {"items": [dict(EVENT, reason="ContainerRuntimeWithoutCDI", involvedObject={"kind": "Pod", "name": "p"})]}},
     ("nodes", "wrong"), "Pod p: ContainerRuntimeWithoutCDI"),
    ({DAEMONSETS: {"items": [PLUGIN]}}, ("other plugins", "unsure"), "gpu/nvdp"),
    ({LEASES: {"items": [lease("a", 30), lease("b", -5)]}}, ("clocks", "wrong"), "node a is 30 s ahead of"),
    ({LEASES: {"items": [lease("a", 0), lease("b", -300)]}}, ("clocks", "wrong"), "node b is 300 s behind"),
    ({OWN_LEASES: {"items": [own_lease(ahead=-3600)]}}, ("clocks", "wrong"), "clock of the node of s is 3600 s behind"),
    ({EVENTS: {"items": [certificate("NoCertificate", -60)]}, ISSUED: {"items": [
        certificate("CertificateIssued", -61), certificate("CertificateIssued", -1, "b")]}}, ("nodes", "wrong"), "NoCertificate"),
]


# ---- shares by ResourceClaims ----

DRIVER, GATE = "gpu.elasticgpu.io", "gpu.elasticgpu.io/placement"
NOT_REGISTERED = f"Failed to prepare dynamic resources: NodePrepareResources failed: DRA driver {DRIVER} is not registered"


def with_argument(made, argument):
    made["spec"]["containers"][0]["args"] = ["--x", argument]
    return made


def device_class(name=DRIVER, allocator="aliquot"):
    return {"metadata": {"name": name, "labels": {"gpu.elasticgpu.io/allocator": allocator}}}


def device_slice(node, shared=True):
    device = {"name": "gpu-0", **({"allowMultipleAllocations": True} if shared else {})}
    return {"metadata": {"name": "s-" + node}, "spec": {"nodeName": node, "driver": DRIVER, "devices": [device]}}


def device_claim(name, allocated=False, cls=DRIVER):
    return {"metadata": {"namespace": "n", "name": name}, "spec": {"devices": {"requests": [{"exactly": {"deviceClassName": cls}}]}},
            "status": {"allocation": {}} if allocated else {}}


def gated(age, *claims, gates=(GATE,), **meta):
    """A pod with claims by name, and with one of a template that is made as `t`."""
    uses = [{"name": name, "resourceClaimTemplateName": "x"} if name == "t" else {"name": name, "resourceClaimName": name} for name in claims]
    return {"metadata": {"namespace": "n", "name": "g", "creationTimestamp": stamp(NOW - age), **meta},
            "spec": {"schedulingGates": [{"name": gate} for gate in gates], "resourceClaims": uses},
            "status": {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "t"}]}}


def named(age, request="aliquot-native-core-30"):
    """A pod that requests by resource names, as admission leaves it, whose claim is not made."""
    made = gated(age)
    made["spec"]["resourceClaims"] = [{"name": "main", "resourceClaimTemplateName": request}]
    return made


def prepared(message=NOT_REGISTERED, offset=-60):
    return {"reason": "FailedPrepareDynamicResources", "message": message, "metadata": written(offset),
            "involvedObject": {"kind": "Pod", "namespace": "n", "name": "p"}}


@pytest.fixture
def claims(well):
    """A cluster where claims are served."""
    by_aliquot = "--resource-claims=aliquot"
    well.answers[PODS] = {"items": [with_argument(agent("a"), by_aliquot), with_argument(agent("b"), by_aliquot),
                                    with_argument(scheduler(), "--dra")]}
    well.answers |= {DEVICE_CLASSES: {"items": [device_class(), device_class("first-fit." + DRIVER, "kube-scheduler")]},
                     SLICES: {"items": [device_slice("a"), device_slice("b")]}}
    return well


def of_claims(cluster, status=1):
    """Text and remedy of the one finding."""
    found = {level: both for (check, level), both in findings(cluster, status).items() if check == "ResourceClaims"}
    (text, remedy), = found.values()
    assert list(found) == ["wrong" if status else "ok"] and bool(remedy) == bool(status), found
    return text


OLD = {VERSION: {"gitVersion": "v1.35.2"}}
NO_SLICES = {SLICES: {"items": []}}
ONE_OF_KUBE_SCHEDULER = {GPUS: {"items": [gpu("a"), dict(gpu("b"), status={"resourceClaims": {"allocator": "kube-scheduler"}})]}}
UNREGISTERED = {GPUS: {"items": [gpu("a"), dict(gpu("b"), status={"resourceClaims": {
    "allocator": "aliquot", "message": f"kubelet has not registered the driver {DRIVER}"}})]}}
CLAIMS_BROKEN = [
    ({DEVICE_CLASSES: MISSING, DEVICE_CLAIMS: MISSING, SLICES: MISSING}, "the API server has no resource.k8s.io/v1"),
    (OLD | NO_SLICES, "Kubernetes v1.35.2 has no shares of devices unless its feature gate DRAConsumableCapacity is on"),
    ({SLICES: {"items": [device_slice("a", shared=False), device_slice("b")]}}, "drops shares of devices: 1 cards"),
    (NO_SLICES | {SLICES: {"items": [device_slice("a")]}}, "the cards of node b are in no ResourceSlice"),
    (UNREGISTERED, "ResourceClaims get no card of node b: kubelet has not registered the driver"),
    ({DEVICE_CLASSES: {"items": []}}, f"there is no DeviceClass {DRIVER}"),
    (ONE_OF_KUBE_SCHEDULER | {DEVICE_CLASSES: {"items": [device_class()]}}, f"there is no DeviceClass first-fit.{DRIVER}"),
    ({EVENTS: {"items": [prepared()]}}, "kubelet has not registered the driver for pod n/p: " + NOT_REGISTERED),
    ({PENDING: {"items": [gated(61, "c", "t")]}, DEVICE_CLAIMS: {"items": [device_claim("c", True), device_claim("t", True)]}},
     f"n/g has the gate {GATE} although its claims are allocated: 1 pods"),
    ({PENDING: {"items": [gated(61)]}}, f"n/g has the gate {GATE} although"),
    ({PENDING: {"items": [named(61)]}}, "n/g waits for a ResourceClaimTemplate that was not made: 1 pods"),
]


@pytest.mark.parametrize("change, words", CLAIMS_BROKEN, ids=[words for _, words in CLAIMS_BROKEN])
def test_what_is_wrong_with_claims(claims, change, words):
    claims.answers |= change
    assert words in of_claims(claims)


@pytest.mark.parametrize("change", [
    OLD,    # with the gate
    {EVENTS: {"items": [prepared(offset=-121), prepared("DRA driver other.example is not registered"), prepared(f"{DRIVER}: too late")]}},
    {PENDING: {"items": [gated(59, "c")]}, DEVICE_CLAIMS: {"items": [device_claim("c", True)]}},
    {PENDING: {"items": [gated(61, "c", "t")]}, DEVICE_CLAIMS: {"items": [device_claim("c", True), device_claim("t")]}},    # it waits for room
    {PENDING: {"items": [named(59), named(61, "aliquot-native-core-150"), named(61, "mine")]}},    # an Event says why
    {PENDING: {"items": [gated(61, gates=(GATE, "example.com/quota")), gated(61, deletionTimestamp=stamp(NOW))]}}])
def test_claims_that_are_served(claims, change):
    claims.answers |= change
    assert of_claims(claims, 0) == "cards in ResourceSlices: 2"


@pytest.mark.parametrize("spec", [{"wholeOnly": True}, {"replicas": {"count": 2}}, {"mig": {"mode": "Enabled"}}, {"mig": {"profile": "1g.10gb"}}])
def test_a_card_that_is_in_no_slice(claims, spec):
    """It is given out in other ways."""
    claims.answers[SLICES]["items"].pop()
    claims.answers[GPUS]["items"][1]["spec"].update(spec)
    assert of_claims(claims, 0) == "cards in ResourceSlices: 1"


def test_claims_that_no_scheduler_allocates(claims):
    """Also those of a class of an administrator. Pods keep the gate."""
    del claims.answers[PODS]["items"][2]["spec"]["containers"][0]["args"]
    claims.answers[DEVICE_CLASSES]["items"].append(device_class("fast"))
    either = device_claim("f")
    either["spec"]["devices"]["requests"] = [{"firstAvailable": [{"deviceClassName": "other.example"}, {"deviceClassName": "fast"}]}]
    claims.answers |= {DEVICE_CLAIMS: {"items": [device_claim("c"), device_claim("d", True), device_claim("e", cls="other.example"), either]},
                       PENDING: {"items": [gated(1, "c"), gated(1, "e", gates=("example.com/quota",))]}}
    text = claims.run("doctor").stdout
    assert f"DeviceClass {DRIVER} is allocated by aliquot-scheduler, and no replica has --dra: claims that wait: 1\n" in text
    assert "DeviceClass fast is allocated by aliquot-scheduler, and no replica has --dra: claims that wait: 1\n" in text
    assert "first-fit" not in text
    assert f"n/g has the gate {GATE}, which nothing takes off: 1 pods\n" in text


def test_a_scheduler_of_claims_without_agents(claims):
    for one in claims.answers[PODS]["items"][:2]:
        one["spec"]["containers"][0]["args"] = ["--resource-claims=off"]
    assert "aliquot-scheduler allocates claims, and no agent has --resource-claims=aliquot" in of_claims(claims)


def test_claims_that_kube_scheduler_allocates(claims):
    """The agents alone."""
    for one, argument in zip(claims.answers[PODS]["items"], ["--resource-claims=kube-scheduler"] * 2 + ["--x"]):
        with_argument(one, argument)
    claims.answers[DEVICE_CLASSES]["items"].pop(0)
    assert of_claims(claims, 0) == "cards in ResourceSlices: 2"
    claims.answers[DEVICE_CLASSES]["items"].pop()
    assert of_claims(claims) == f"there is no DeviceClass first-fit.{DRIVER}"


def test_claims_are_not_served(well):
    """Also by an API server that has none."""
    assert of_claims(well, 0) == "not served: shares are requested by resource names only"
    for asked in (DEVICE_CLASSES, DEVICE_CLAIMS, SLICES):
        well.answers[asked] = MISSING
    assert of_claims(well, 0) == "not served: shares are requested by resource names only"


def test_claims_that_may_not_be_read(claims):
    for asked in (DEVICE_CLASSES, DEVICE_CLAIMS, SLICES):
        claims.refuse(asked)
        assert ("ResourceClaims", "unsure") in findings(claims, 0)


@pytest.mark.parametrize("change, finding, words", BROKEN, ids=[f"{f[0]}: {words}" for _, f, words in BROKEN])
def test_each_line(well, change, finding, words):
    for asked, answer in change.items():
        well.answers[asked] = answer
    found = findings(well, 1 if finding[1] == "wrong" else 0)
    text, remedy = found[finding]
    assert words in text and remedy, found
    assert (finding[0], "ok") not in found or finding[0] in ("scheduler",), found


def test_a_driver_that_does_not_answer_is_one_finding(well):
    """Also where pods and cards cannot be read."""
    well.answers[NODES] = {"items": [node("a"), unhealthy("b", "DriverNotAnswering", "the driver is too old")]}
    found = findings(well, 1)
    assert ("drivers", "wrong") in found and ("nodes", "ok") in found
    well.refuse(PODS)
    well.refuse(GPUS)
    assert ("drivers", "wrong") in findings(well, 1)


def test_an_agent_that_is_not_ready_has_not_looked_for_a_driver(well):
    well.answers |= {NODES: {"items": [node("a"), node("b", **{"nvidia.com_gpu.present": "true"})]}, GPUS: {"items": [gpu("a", "u")]},
                     PODS: {"items": [agent("a"), not_ready("b"), scheduler()]}}
    found = findings(well, 1)
    assert ("agents", "wrong") in found and ("drivers", "ok") in found, found


def test_pods_that_are_sent_to_a_kube_scheduler_that_is_there(well):
    well.answers[SHARE] = sent_to(pod(**{"elasticgpu.io/slot": "1"}), "aliquot-scheduler")
    well.answers[PODS]["items"].append(scheduler("v1.36.3"))
    assert ("admission", "ok") in findings(well, 0)


def test_events_of_pods_are_their_own_matter(well):
    well.answers[EVENTS] = {"items": [
        dict(EVENT, involvedObject={"kind": "Pod", "name": "p"}, reason="Waiting"), dict(EVENT, reportingComponent="kubelet")]}
    assert ("nodes", "ok") in findings(well, 0)


def test_a_certificate_that_has_come(well):
    well.answers |= {EVENTS: {"items": [certificate("NoCertificate", -60)]}, ISSUED: {"items": [certificate("CertificateIssued", -60)]}}
    assert ("nodes", "ok") in findings(well, 0)


def test_a_node_that_is_gone_is_not_behind(well):
    well.answers[LEASES] = {"items": [lease("a", 0), lease("b", 0, offset=-3600)]}
    assert ("clocks", "ok") in findings(well, 0)


def test_a_container_that_starts_is_no_problem(well):
    well.answers[PODS]["items"].append(waiting("ContainerCreating"))
    assert ("pods", "ok") in findings(well, 0)


def test_what_may_not_be_read(well):
    """It is no problem of the cluster."""
    for asked in (NODES, PODS, DAEMONSETS, EVENTS, LEASES, OWN_LEASES, GPUS, PENDING, PUBLIC_KEY, SECRET, SHARE, SCHEDULERS):
        well.refuse(asked)
    found = findings(well, 0)
    assert {check for check, level in found if level == "unsure"} == {
        "admission", "scheduler", "placing", "ResourceClaims", "signing key", "versions", "pods", "agents", "drivers", "nodes", "other plugins",
        "clocks"}, found


def test_without_the_schedulers_page(well):
    """As by aliquot-kubectl, which forwards no port: its Lease says whether a scheduler acts."""
    del well.answers[FORWARD]
    well.refuse(SECRET)
    found = findings(well, 0)
    assert {level for _, level in found} == {"ok"}, found
    well.answers[OWN_LEASES] = {"items": [own_lease(offset=-61)]}
    assert ("scheduler", "wrong") in findings(well, 1)


def test_no_pod_yet(well):
    well.answers[GPUS] = {"items": [gpu("a")]}
    assert "not known" in findings(well, 0)[("placing", "unsure")][0]


@pytest.mark.parametrize("pending", [share(59), share(3600, "a", **{"elasticgpu.io/assignment": "{}"})])
def test_pods_that_only_start(well, pending):
    well.answers[PENDING] = {"items": [pending]}
    assert ("placing", "ok") in findings(well, 0)


@pytest.mark.parametrize("tag", ["v1.36.9", "v1.35.0", "latest"])
def test_a_kube_scheduler_that_suits(well, tag):
    well.answers[PODS] = {"items": [agent("a"), agent("b"), scheduler(tag)]}
    assert ("scheduler", "ok") in findings(well, 0)


def test_a_node_that_is_left_out(well):
    left = node("c", **{"nvidia.com_gpu.present": "true", "nvidia-device-enable": "disable"})
    well.answers[NODES]["items"].append(left)
    assert ("agents", "ok") in findings(well, 0)
