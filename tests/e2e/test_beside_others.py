# SPDX-License-Identifier: Apache-2.0
"""Coming from another project, with its objects still in the cluster (docs/coming-from.md): names and selectors are those of the
projects' own manifests. Their programs are not here: the pods of their DaemonSets wait for an image, and what HAMi's webhook
does to pods is done by a stand-in, and so is what kubelet keeps of a device plugin."""

import base64
import contextlib
import http.server
import json
import re
import ssl
import subprocess
import threading

import pytest

from cluster import api as kube
from cluster import linux
from kit import CARD, GiB, assignment_of, check_view, container, pod
from proxy import configured
from test_dialects import other_schedulers

MiB = 1 << 20
DAEMONSETS = "/apis/apps/v1/namespaces/kube-system/daemonsets"
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
PLUGINS = "/var/lib/kubelet/device-plugins"
PORT = 19997      # not one that the kernel gives to outgoing connections
DEFAULT, HAMI = "default-scheduler", "hami-scheduler"

# DaemonSet of the device plugin, its image and node selector, a pod of the project's documents, and what it gets.
PROJECTS = {
    "nvidia": ("nvidia-device-plugin-daemonset", "nvcr.io/nvidia/k8s-device-plugin:v0.17.1", {}, {"nvidia.com/gpu": "1"}, None),
    "hami": ("hami-device-plugin", "projecthami/hami:v2.6.1", {"gpu": "on"},
             {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}, (30, 3000 * MiB)),
    "gpu-manager": ("gpu-manager-daemonset", "tkestack/gpu-manager:v1.1.5", {"nvidia-device-enable": "enable"},
                    {"tencent.com/vcuda-core": "50", "tencent.com/vcuda-memory": "30"}, (50, 7680 * MiB)),
    "gpushare": ("gpushare-device-plugin-ds", "registry.cn-hangzhou.aliyuncs.com/acs/k8s-gpushare-plugin:v2-1.11-aff8a23",
                 {"gpushare": "true"}, {"aliyun.com/gpu-mem": "3"}, (0, 3 * GiB)),
}


def doctor(world):
    """Its lines about other plugins."""
    found = json.loads(world.aliquot("doctor", "--json"))["findings"]
    return [finding for finding in found if finding["check"] == "other plugins"]


@contextlib.contextmanager
def daemonset(world, name, image, selector):
    """The project's DaemonSet, with a pod on this node."""
    label, node = {"name": name}, kube.core("nodes", name=world.cluster.node)
    world.api.patch(node, {"metadata": {"labels": selector}})
    world.api.create(DAEMONSETS, {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": label}, "template": {
        "metadata": {"labels": label},
        "spec": {"nodeSelector": selector, "containers": [{
            "name": "plugin", "image": image, "volumeMounts": [{"name": "device-plugin", "mountPath": PLUGINS}]}],
            "volumes": [{"name": "device-plugin", "hostPath": {"path": PLUGINS}}]}}}})
    try:
        world.api.wait(DAEMONSETS, name, lambda made: made["status"]["desiredNumberScheduled"] == 1, 30, f"{name} on the node")
        yield
    finally:
        world.api.delete(f"{DAEMONSETS}/{name}")
        world.api.patch(node, {"metadata": {"labels": dict.fromkeys(selector)}})


@pytest.mark.parametrize("project", sorted(PROJECTS))
def test_with_its_daemonset(world, space, project):
    """Its pods run beside its DaemonSet, of which `aliquot doctor` tells until it is removed."""
    name, image, selector, resources, part = PROJECTS[project]
    with daemonset(world, name, image, selector):
        seen = space.start(pod("theirs", container(resources=resources)))
        (device,) = check_view(space, seen)
        if part:
            assert (device["core"], device["memory"]) == part
        assert any(name in json.dumps(finding) for finding in doctor(world))
    assert not any(name in json.dumps(finding) for finding in doctor(world))


class HamiWebhook(http.server.BaseHTTPRequestHandler):
    """As HAMi's does it: a pod that requests a GPU and names no scheduler of its own gets that of HAMi."""

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
        spec = request["object"]["spec"]
        asks = re.search(r'"nvidia\.com/gpu', json.dumps(spec["containers"])) and spec["schedulerName"] in (DEFAULT, HAMI)
        patch = [{"op": "add", "path": "/spec/schedulerName", "value": HAMI}] if asks else []
        answer = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": request["uid"], "allowed": True, "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(patch).encode()).decode()}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def hami_webhook(world, tmp_path):
    """HAMi's webhook in force. Yields what ends its server and leaves the configuration."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key",
                    "-out", "crt", "-subj", "/CN=hami", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"],
                   check=True, cwd=tmp_path, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    with linux.in_netns(world.cluster.init_pid):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), HamiWebhook)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def end():
        server.shutdown()
        server.server_close()
        thread.join()
    ignored = {"matchExpressions": [{"key": "hami.io/webhook", "operator": "NotIn", "values": ["ignore"]}]}
    world.api.create(WEBHOOKS, {"metadata": {"name": "hami-webhook"}, "webhooks": [{
        "name": "vgpu.hami.io", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Ignore",
        "matchPolicy": "Equivalent", "timeoutSeconds": 10, "namespaceSelector": ignored, "objectSelector": ignored,
        "clientConfig": {"url": f"https://127.0.0.1:{PORT}/webhook/mutating",
                         "caBundle": base64.b64encode((tmp_path / "crt").read_bytes()).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}]}]})
    world.until(lambda: named(world) == HAMI, 30, "the webhook in force")
    try:
        yield end
    finally:
        world.api.delete(f"{WEBHOOKS}/hami-webhook")
        world.until(lambda: named(world) != HAMI, 30, "the webhook out of force")
        if thread.is_alive():
            end()


def share():
    return container(resources=PROJECTS["hami"][3])


def named(world):
    made = world.api.create(kube.pods("default"), pod("not-stored", share()), dryRun="All")
    return made["spec"]["schedulerName"]


def test_with_hamis_webhook(world, space, hami_webhook):
    """Its pods wait for HAMi's scheduler, and pods with our names do not, until Aliquot serves that name. A webhook without its
    server does nothing."""
    space.create(pod("waits", share()))
    space.start(pod("ours", container(core=10)))
    assert not space.get("waits")["spec"].get("nodeName")
    with configured(world, other_schedulers):
        for seen in (space.running("waits"), space.start(pod("served", share()))):
            assert seen["spec"]["schedulerName"] == HAMI
            assert [(d["core"], d["memory"]) for d in assignment_of(seen)["main"]] == [PROJECTS["hami"][4]]
        space.end("waits", "served", "ours")
    hami_webhook()
    seen = space.start(pod("later", share()))
    assert seen["spec"]["schedulerName"] == DEFAULT
    check_view(space, seen)


VCUDA, GPU_MEM = "tencent.com/vcuda-core", "aliyun.com/gpu-mem"


@pytest.fixture
def left_resource(world, request):
    """The name of a resource whose device plugin has been on the node and is gone."""
    name, status = request.param, kube.core("nodes", name=world.cluster.node) + "/status"

    def offers(amount):
        return lambda node: node["status"]["allocatable"].get(name) == amount
    world.cluster.spawn("other-plugin", [str(world.build / "tests/e2e/other-plugin"), PLUGINS, name, "GPU-1", "GPU-2"])
    try:
        world.api.wait(kube.core("nodes"), world.cluster.node, offers("2"), 30, f"{name} on the node")
    finally:
        world.cluster.stop("other-plugin")
    world.api.wait(kube.core("nodes"), world.cluster.node, offers("0"), 30, f"no device of {name}")

    def take_away():
        world.api.patch(status, {"status": {"capacity": {name: None}, "allocatable": {name: None}}})
    yield name, take_away
    take_away()


def refusal(space, pod_name, resources):
    space.create(pod(pod_name, container(resources=resources)))
    return space.wait(pod_name, lambda seen: seen["status"].get("phase") == "Failed")["status"]["reason"]


@pytest.mark.foreign
@pytest.mark.long
@pytest.mark.parametrize("left_resource", [VCUDA], indirect=True)
def test_what_kubelet_keeps_of_a_plugin(world, space, left_resource):
    """For five minutes it knows the plugin and refuses pods with its resource; then it has written 0 and refuses them by that.
    After 0 is taken away they run."""
    name, take_away = left_resource
    resources = PROJECTS["gpu-manager"][3]
    assert refusal(space, "early", resources) == "UnexpectedAdmissionError"
    world.api.wait(kube.core("nodes"), world.cluster.node, lambda node: node["status"]["capacity"].get(name) == "0", 400,
                   f"{name}: 0")
    assert refusal(space, "late", resources) == f"OutOf{name}"
    take_away()
    (device,) = check_view(space, space.start(pod("after", container(resources=resources))))
    assert (device["core"], device["memory"]) == PROJECTS["gpu-manager"][4]


@pytest.mark.foreign
@pytest.mark.long
@pytest.mark.parametrize("left_resource", [GPU_MEM], indirect=True)
def test_what_kubelet_keeps_of_a_name_of_the_nodes(world, space, left_resource):
    """The agent writes the node's total in place of the 0, and pods run after it."""
    name, _ = left_resource
    resources = PROJECTS["gpushare"][3]
    assert refusal(space, "early", resources) == "UnexpectedAdmissionError"
    total = str(2 * CARD // GiB)
    world.api.wait(kube.core("nodes"), world.cluster.node, lambda node: node["status"]["allocatable"].get(name) == total, 400,
                   f"{name}: {total}")
    (device,) = check_view(space, space.start(pod("after", container(resources=resources))))
    assert (device["core"], device["memory"]) == PROJECTS["gpushare"][4]
