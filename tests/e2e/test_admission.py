# SPDX-License-Identifier: Apache-2.0
"""What happens to pods when they are created, by policies and by the webhook, and HTTPS between kube-scheduler and
the extender. One cluster; the scheduler runs as a process of the node, so that it can be killed; no agent runs."""

import base64
import json
import os
import pathlib
import secrets
import ssl
import subprocess
import time

import kit
import pytest
from cluster import ApiError, aliquot, api as kube, config
from cluster.cluster import Cluster

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
ROWS = json.loads((TOP / "tests/e2e/admission-pods.json").read_text())
SCHEDULER = "aliquot-scheduler"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/"
NODE_IP = config.BRIDGE_IP
OTHER_NODE = "node-z"       # there is nothing behind it


@pytest.fixture(scope="module")
def cluster():
    with Cluster("admission-" + secrets.token_hex(2)) as c:
        c.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        c.api.create(kube.core("nodes"), {
            "metadata": {"name": OTHER_NODE}, "status": {"allocatable": {
                "cpu": "4", "memory": "8Gi", "pods": "110", kit.CORE: "100", kit.SLOT: "100"}}})
        yield c


def install(cluster, directory):
    """Applies the manifests; the daemons in them are not what is tested here."""
    cluster.kubectl("apply", "--server-side", "-k", str(TOP / directory))
    for kind, name in (("deployment", SCHEDULER), ("daemonset", "aliquot-agent")):
        cluster.kubectl("delete", "-n", kit.SYSTEM, kind, name, "--wait=false")


def until(check, timeout, what):
    """Asks again until it is so: nothing announces what the API server's own watches have brought it."""
    deadline = time.monotonic() + timeout
    while True:
        last = check()
        if last is True:
            return
        assert time.monotonic() < deadline, f"{what}: {last}"
        time.sleep(0.05)


def try_create(cluster, body):
    """The pod as the API server would store it, or the text of its refusal."""
    try:
        return cluster.api.create(kube.pods(), body, dryRun="All")
    except ApiError as error:
        return str(error)


def memory_pod():
    return {"metadata": {"name": "p-" + secrets.token_hex(3)}, "spec": {"containers": [
        {"name": "main", "image": "localhost/pause:1", "resources": {"limits": {kit.MEMORY: "4Gi"}}}]}}


def plain_pod():
    return {"metadata": {"name": "p-" + secrets.token_hex(3)}, "spec": {
        "nodeSelector": {"node-role.kubernetes.io/control-plane": ""}, "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "localhost/pause:1", "imagePullPolicy": "Never"}]}}


def carriers(made):
    both = made["spec"]["containers"] + made["spec"].get("initContainers", [])
    return {c["name"] for c in both if kit.SLOT in c.get("resources", {}).get("limits", {})}


def works(cluster):
    made = try_create(cluster, memory_pod())
    if isinstance(made, str) or carriers(made) != {"main"}:
        return made
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["limits"] == resources["requests"]
    return True


def refuses(cluster, text):
    body = memory_pod()
    body["spec"]["containers"][0]["resources"]["limits"] = {kit.CORE: "150"}
    made = try_create(cluster, body)
    return made if not isinstance(made, str) else text in made or made


# ---- the scheduler as a process of the node ----

@pytest.fixture(scope="module")
def credentials(cluster):
    """Options with which a process is the scheduler's service account, and may do what that may."""
    token = cluster.api.create(kube.core("serviceaccounts", kit.SYSTEM, SCHEDULER) + "/token", {
        "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}})
    path = os.path.join(cluster.state, "scheduler.token")
    with open(path, "w") as f:
        f.write(token["status"]["token"])
    return [f"--api-server={config.SERVER}", f"--token-file={path}", f"--ca-file={cluster.ca_file}"]


def start_scheduler(cluster, build, credentials):
    certificates = make_certificates(cluster)
    cluster.spawn(SCHEDULER, [str(build / "src/scheduler/aliquot-scheduler"), "--webhook-listen=:9402",
                              f"--tls-cert={certificates}/tls.crt", f"--tls-key={certificates}/tls.key", *credentials])


def make_certificates(cluster):
    """A directory with a CA (made once) and a new certificate of it for 127.0.0.1, as a PKI of the cluster's owner has them."""
    where = os.path.join(cluster.state, "pki")
    os.makedirs(where, exist_ok=True)

    def openssl(*argv):
        subprocess.run(["openssl", *argv], check=True, cwd=where, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    if not os.path.exists(os.path.join(where, "ca.crt")):
        openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=ca", "-days", "2")
        with open(os.path.join(where, "san"), "w") as f:
            f.write("subjectAltName=IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
    openssl("req", *key, "-keyout", "new.key", "-out", "new.csr", "-subj", "/CN=extender")
    openssl("x509", "-req", "-in", "new.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "1",
            "-extfile", "san", "-out", "new.crt")
    for name in ("crt", "key"):
        os.replace(os.path.join(where, f"new.{name}"), os.path.join(where, f"tls.{name}"))
    return where


@pytest.fixture(scope="module", params=["policies", "webhook"])
def admission(cluster, build, request):
    """The two ways in which pods are judged, one after the other."""
    if request.param == "policies":
        if not cluster.api.exists(aliquot.POLICIES):
            pytest.skip("this API server has no MutatingAdmissionPolicy: the webhook is what is installed there")
        install(cluster, "deploy/base")
        until(lambda: works(cluster), 30, "the policies work")
        until(lambda: refuses(cluster, "multiple of 100"), 30, "the policies work")
        yield request.param
        return
    if cluster.api.exists(aliquot.POLICIES):
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(TOP / "deploy/base/policy-pods.yaml"),
                        "-f", str(TOP / "deploy/base/policy-assignment.yaml"))
    install(cluster, "deploy/webhook")
    credentials = request.getfixturevalue("credentials")
    stand_behind_the_service(cluster)
    start_scheduler(cluster, build, credentials)
    until(lambda: works(cluster), 60, "the webhook works")
    until(lambda: refuses(cluster, "multiple of 100"), 30, "the webhook works")
    yield request.param
    cluster.stop(SCHEDULER)


def stand_behind_the_service(cluster):
    """A pod that the Service aliquot-webhook finds, ready at the address at which the process answers."""
    body = plain_pod()
    body["metadata"]["labels"] = {"app.kubernetes.io/name": SCHEDULER}
    body["spec"].update(hostNetwork=True, nodeName=OTHER_NODE)
    made = cluster.api.create(kube.pods(kit.SYSTEM), body)
    cluster.api.patch(kube.pods(kit.SYSTEM, made["metadata"]["name"]) + "/status", {"status": {
        "phase": "Running", "podIP": NODE_IP, "podIPs": [{"ip": NODE_IP}],
        "conditions": [{"type": "Ready", "status": "True"}]}})


# ---- one table, two judges ----

def test_the_table(cluster, admission):
    wrong = []
    for row in ROWS:
        made = try_create(cluster, row["pod"])
        if isinstance(made, str):
            right = row["refused"] is not None and row["refused"] in made
        else:
            right = row["refused"] is None and carriers(made) - carriers(row["pod"]) == set(row["slots"])
        if not right:
            wrong.append((row["what"], made if isinstance(made, str) else made["spec"]))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_copy_is_a_new_pod(cluster, admission):
    """kubectl debug --copy-to and backups bring the annotations of the pod that they copied."""
    body = memory_pod()
    body["metadata"]["annotations"] = {kit.ASSIGNMENT: "{}", kit.SIGNATURE: "x", "other": "kept"}
    made = try_create(cluster, body)
    assert not isinstance(made, str), made
    assert made["metadata"]["annotations"] == {"other": "kept"}
    assert carriers(made) == {"main"}


def test_a_pod_without_containers_gets_the_servers_own_answer(cluster, admission):
    for spec in ({}, {"containers": None}, {"containers": []}):
        made = try_create(cluster, {"metadata": {"name": "p", "annotations": {"gpu-fraction": "0.5"}}, "spec": spec})
        assert "spec.containers: Required value" in made, made


def test_the_four_doors(cluster, admission):
    """Only the scheduler, when it binds."""
    name = cluster.api.create(kube.pods(), memory_pod())["metadata"]["name"]
    forged = {"metadata": {"annotations": {kit.ASSIGNMENT: "{}"}}}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **forged["metadata"]},
               "target": {"apiVersion": "v1", "kind": "Node", "name": OTHER_NODE}}
    path = kube.pods(name=name)
    for call, *arguments in ((cluster.api.patch, path, forged), (cluster.api.patch, path + "/status", forged),
                             (cluster.api.create, path + "/binding", binding),
                             (cluster.api.create, kube.core("bindings", "default"), binding)):
        with pytest.raises(ApiError) as caught:
            call(*arguments)
        assert caught.value.code == 403 and "only the Aliquot scheduler writes it" in caught.value.message
    # A claim is said when the pod is made, and no door is open to change it.
    claimed = {"metadata": {"annotations": {"egpuc-main": "mine"}}}
    claiming = {**binding, "metadata": {"name": name, **claimed["metadata"]}}
    for call, *arguments in ((cluster.api.patch, path, claimed), (cluster.api.patch, path + "/status", claimed),
                             (cluster.api.create, path + "/binding", claiming),
                             (cluster.api.create, kube.core("bindings", "default"), claiming)):
        with pytest.raises(ApiError) as caught:
            call(*arguments)
        assert caught.value.code == 403 and "cannot be changed" in caught.value.message
    cluster.api.as_user(f"system:serviceaccount:{kit.SYSTEM}:{SCHEDULER}").create(path + "/binding", binding)
    cluster.api.patch(path, {"metadata": {"annotations": {"other": "fine"}}})
    for value in ("other", None):
        with pytest.raises(ApiError):
            cluster.api.patch(path, {"metadata": {"annotations": {kit.ASSIGNMENT: value}}})
    cluster.api.delete(path, gracePeriodSeconds=0)


def test_without_a_scheduler(cluster, admission, request, build):
    """Pods without GPUs are never held up: created, scheduled and running while no component for GPUs answers."""
    if admission == "webhook":
        cluster.stop(SCHEDULER)     # its end releases the Lease: the next one binds at once
        assert "failed calling webhook" in try_create(cluster, memory_pod())
    made = cluster.api.create(kube.pods(), plain_pod())
    cluster.api.wait(kube.pods(), made["metadata"]["name"], kit.is_running, kit.START, "a pod without GPU runs")
    cluster.api.patch(kube.pods(name=made["metadata"]["name"]), {"metadata": {"annotations": {"a": "b"}}})
    cluster.api.delete(kube.pods(name=made["metadata"]["name"]), gracePeriodSeconds=0)
    if admission == "webhook":
        # Without its Secret the next one makes all of it anew, and the API server learns whom to trust.
        cluster.api.delete(kube.core("secrets", kit.SYSTEM, "aliquot-webhook"))
        before = bundle(cluster)
        start_scheduler(cluster, build, request.getfixturevalue("credentials"))
        until(lambda: bundle(cluster) != before, 60, "a new bundle")
        until(lambda: works(cluster), 60, "the webhook works again")


def bundle(cluster):
    found = set()
    for kind in ("mutating", "validating"):
        hooks = cluster.api.get(f"{WEBHOOKS}{kind}webhookconfigurations/aliquot")["webhooks"]
        found |= {h["clientConfig"]["caBundle"] for h in hooks}
    return found if len(found) > 1 else found.pop()


# ---- HTTPS between kube-scheduler and the extender ----

def shown_serial(cluster):
    """The serial number of the certificate that a new client is shown, and accepts."""
    context = ssl.create_default_context(cafile=os.path.join(cluster.state, "pki/ca.crt"))
    with cluster.connect(9401) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        return secure.getpeercert()["serialNumber"]


def start_kube_scheduler(cluster):
    """With the configuration of deploy/, but for HTTPS."""
    text = config.with_short_backoff((TOP / "deploy/base/kube-scheduler-configuration.yaml").read_text())
    with open(os.path.join(cluster.state, "pki/ca.crt"), "rb") as f:
        authority = base64.b64encode(f.read()).decode()
    for old, new in (("http://127.0.0.1:9401", "https://127.0.0.1:9401"),
                     ("enableHTTPS: false", f"enableHTTPS: true\n    tlsConfig:\n      caData: {authority}")):
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = os.path.join(cluster.state, "kube-scheduler-https.yaml")
    with open(path, "w") as f:
        f.write(text)
    argv = [a if not a.startswith("--config=") else "--config=" + path
            for a in cluster.commands()["kube-scheduler"][0]]
    cluster.stop("kube-scheduler")
    cluster.spawn("kube-scheduler", argv)


def share(name):
    return {"metadata": {"name": name}, "spec": {"tolerations": [{"operator": "Exists"}], "containers": [
        {"name": "main", "image": "localhost/pause:1", "resources": {"limits": {kit.CORE: "2"}}}]}}


def bound(cluster, name):
    seen = cluster.api.wait(kube.pods(), name, lambda p: p and p["spec"].get("nodeName"), 60, f"{name} bound")
    assert seen["spec"]["nodeName"] == OTHER_NODE and kit.assignment_of(seen)["main"][0]["core"] == 2


@pytest.mark.parametrize("admission", ["webhook"], indirect=True)
def test_https_and_a_new_certificate_under_load(cluster, admission):
    """kube-scheduler asks by HTTPS; a certificate that is replaced while it asks loses no pod."""
    gpu = "10.0.0.9-00"
    cluster.api.create(kube.gpus(), {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU",
        "metadata": {"name": gpu, "labels": {"elasticgpu.io/node": OTHER_NODE}},
        "spec": {"index": 0, "memory": kit.CARD, "model": "M", "nodeName": OTHER_NODE, "path": "/dev/nvidia0",
                 "uuid": "GPU-6f1c2a3b-0000-0000-0000-000000000009"}})
    cluster.api.patch(kube.gpus(gpu) + "/status", {"status": {"state": "Healthy",
                                                             "capacity": {kit.CORE: "100", kit.MEMORY: "80Gi"}}})
    start_kube_scheduler(cluster)
    first = shown_serial(cluster)
    for i in range(20):
        cluster.api.create(kube.pods(), share(f"load-{i}"))
        if i == 10:
            make_certificates(cluster)
    for i in range(20):
        bound(cluster, f"load-{i}")
    assert shown_serial(cluster) != first
    start_kube_scheduler(cluster)       # which has to shake hands again
    cluster.api.create(kube.pods(), share("after"))
    bound(cluster, "after")
