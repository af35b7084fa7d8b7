# SPDX-License-Identifier: Apache-2.0
"""HorizontalPodAutoscalers by the figures that aliquot-scheduler serves, with the real controller; namespaces that go while
replicas end; who may read the figures (docs/autoscaling.md)."""

import json
import pathlib
import secrets
import threading
import time

import kit
import monitoring
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from test_usage_access import aliquot_as

CUSTOM, EXTERNAL = "v1beta2.custom.metrics.k8s.io", "v1beta1.external.metrics.k8s.io"
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
LOAD = "/run/load"      # of the node: what each pod of the Deployment is to take of a card, in percent
GONE = 15               # seconds in which a namespace is gone


@pytest.fixture(scope="module")
def world(build):
    with Cluster("autoscaling-" + secrets.token_hex(2), say=lambda text: print(text, flush=True)) as cluster:
        cluster.up()
        programs = [build / "tests/e2e/probe", build / "tests/workloads/gpu-load"]
        aliquot.install(cluster, str(build), gpus=2, programs=programs, deploy=aliquot.with_components(cluster, "metrics-api"))
        installed = kit.World(cluster, build)
        installed.wait_tokens(60)
        wait_available(installed, 60)
        yield installed
        installed.wait_cleared()


def condition(body, kind):
    return next((c for c in body.get("status", {}).get("conditions") or [] if c["type"] == kind), {})


def wait_available(world, timeout=30):
    for name in (CUSTOM, EXTERNAL):
        world.api.wait(API_SERVICES, name, lambda seen: condition(seen or {}, "Available").get("status") == "True", timeout,
                       f"{name} available")


def metric(world, space, name, pods="*", selector="app%3Dload", api=None):
    path = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{space.name}/pods/{pods}/{name}?labelSelector={selector}"
    return (api or world.api).get(path)["items"]


def set_load(world, percent):
    file = pathlib.Path(world.node_path(LOAD), "each")
    file.parent.mkdir(exist_ok=True)
    file.with_suffix(".new").write_text(f"{percent:.0f}\n")
    file.with_suffix(".new").rename(file)


@pytest.fixture
def deployment(world, space):
    """Shares of 20 percent of a card."""
    set_load(world, 0)
    one = kit.container(core=20, memory=kit.GiB, argv=["gpu-load", "/load/each"],
                        volumeMounts=[{"name": "load", "mountPath": "/load"}])
    spec = kit.pod("unused", one, volumes=[{"name": "load", "hostPath": {"path": LOAD}}])["spec"]
    labels = {"app": "load"}
    path = f"/apis/apps/v1/namespaces/{space.name}/deployments"
    world.api.create(path, {
        "metadata": {"name": "load"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": spec}}})
    yield
    world.api.delete(path + "/load")
    world.api.wait_none(space.path, 60, lambda seen: not kit.is_ended(seen))


def autoscaler(world, space):
    path = f"/apis/autoscaling/v2/namespaces/{space.name}/horizontalpodautoscalers"
    world.api.create(path, {
        "metadata": {"name": "load"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "load"},
                 "minReplicas": 1, "maxReplicas": 4, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
                 "metrics": [{"type": "Pods", "pods": {"metric": {"name": "gpu_utilization"},
                                                       "target": {"type": "AverageValue", "averageValue": "70"}}}]}})
    return path + "/load"


def replicas(world, space):
    return world.api.get(f"/apis/apps/v1/namespaces/{space.name}/deployments/load").get("status", {}).get("readyReplicas", 0)


def wanted_replicas(world, space):
    return world.api.get(f"/apis/apps/v1/namespaces/{space.name}/deployments/load")["spec"]["replicas"]


def follow(world, space, demand, is_wanted, what):
    """The service has that demand, in percent of a card, and divides it among its pods: until there are as many as wanted."""
    def reached():
        n = replicas(world, space)
        set_load(world, demand / max(n, 1))
        return is_wanted(n)
    world.until(reached, 90, what, pause=0.5)


def autoscaling_state(world, path):
    return condition(world.api.get(path), "ScalingActive")


@pytest.mark.usefixtures("deployment")
def test_a_deployment_follows_its_load(world, space):
    """Up and down by gpu_utilization. While the agent hangs its pods' figures are left out, and nothing is scaled."""
    path = autoscaler(world, space)
    follow(world, space, 8, lambda n: n == 1, "one pod")
    world.until(lambda: autoscaling_state(world, path).get("status") == "True", 60, "the HPA has figures")
    assert [item["describedObject"]["namespace"] for item in metric(world, space, "gpu_utilization")] == [space.name]
    assert metric(world, space, "gpu_memory_used_bytes")
    follow(world, space, 40, lambda n: n >= 3, "three pods or more under load")
    process = world.first_process(world.agent.status())
    world.cluster.on_node(["kill", "-STOP", process])
    try:
        world.until(lambda: not metric(world, space, "gpu_utilization"), 60, "figures of the agent's pods are left out", pause=0.5)
        held = wanted_replicas(world, space)
        set_load(world, 0)
        world.until(lambda: autoscaling_state(world, path).get("reason") == "FailedGetPodsMetric", 30, "the HPA has none", pause=0.5)
        assert wanted_replicas(world, space) == held > 1
    finally:
        world.cluster.on_node(["kill", "-CONT", process])
    follow(world, space, 8, lambda n: n == 1, "one pod again")


def test_sums(world, space):
    """Of pods that wait, by their labels."""
    body = kit.pod("waits", kit.container(core=20, memory=kit.GiB), nodeSelector={"no": "node"})
    body["metadata"]["labels"] = {"app": "x"}
    space.create(body)
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{space.name}/"
    value = lambda name: world.api.get(path + name)["items"][0]["value"]
    world.until(lambda: value("gpu_waiting_pods?labelSelector=app%3Dx") == "1", 20, "one pod waits")
    assert value("gpu_waiting_pods?labelSelector=app%3Dy") == "0"
    assert value("gpu_wanted_cards") == "200m"


def test_tenants_read_their_own_namespace(world, space):
    """By `view` in one namespace; a ServiceAccount without it reads nothing."""
    kubectl = world.cluster.kubectl
    kubectl("create", "rolebinding", "viewer", "-n", space.name, "--clusterrole=view", f"--serviceaccount={space.name}:default")
    user = f"--as=system:serviceaccount:{space.name}:default"
    own = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{space.name}/pods/*/gpu_utilization"
    world.until(lambda: '"items"' in (kubectl("get", "--raw", own, user, check=False) or ""), 20, "the role is aggregated")
    for path in ("custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/gpu_utilization",
                 "external.metrics.k8s.io/v1beta1/namespaces/default/gpu_used_cards"):
        assert '"items"' not in (kubectl("get", "--raw", "/apis/" + path, user, check=False) or "")


def test_a_tenant_sees_what_its_pods_use(world, space):
    """By commands with `view` in its namespace: the shares of its pods and their use, and of the card nothing else."""
    with kit.temporary_space(world) as other:
        own, _ = (one.start(kit.pod(name, kit.container(core=20, memory=4 * kit.GiB)))
                  for one, name in ((space, "mine"), (other, "secret")))
        world.cluster.kubectl("create", "rolebinding", "viewer", "-n", space.name, "--clusterrole=view",
                              f"--serviceaccount={space.name}:default")
        token = world.token(space.name, "default")

        def share():
            done = aliquot_as(world, token, "gpus", "-n", space.name, "-o", "json")
            if done.stderr or done.returncode:
                return None
            assert "secret" not in done.stdout and other.name not in done.stdout
            (card,) = [gpu for node in json.loads(done.stdout)["nodes"] for gpu in node["gpus"]]
            (holder,) = card["holders"]
            assert card["name"] in {gpu["metadata"]["name"] for gpu in world.gpus()}
            return holder if (holder.get("use") or {}).get("memory", 0) >= kit.GiB else None
        with space.tenant(own) as process:
            assert process.alloc(2 * kit.GiB) == 0
            seen = world.until(share, 30, "what it uses")
        assert (seen["pod"], seen["core"], seen["memory"]) == ("mine", 20, 4 * kit.GiB)
        assert 2 * kit.GiB <= seen["use"]["memory"] <= 4 * kit.GiB and "percent" in seen["use"]
        shown = aliquot_as(world, token, "top", "--once", "--view", "containers", "-n", space.name)
        assert shown.stderr == "" and f"{space.name}/mine (main)" in shown.stdout and "secret" not in shown.stdout, shown
        space.end("mine", grace=0)      # a namespace is left only when nothing is allocated any more


def delete_namespace(world):
    """How long it takes, with something in it."""
    name = kit.new_name("gone")
    world.api.create(kube.core("namespaces"), {"metadata": {"name": name}})
    world.api.wait(kube.core("serviceaccounts", name), "default", bool, 30)
    start = time.monotonic()
    world.api.delete(kube.core("namespaces", name=name))
    world.api.wait(kube.core("namespaces"), name, lambda seen: seen is None, GONE, f"namespace {name} gone")
    return time.monotonic() - start


def wait_replicas(world):
    world.api.wait("/apis/apps/v1/namespaces/aliquot-system/deployments", "aliquot-scheduler",
                   lambda seen: seen["status"].get("readyReplicas") == 2, 90, "two replicas ready")


@pytest.mark.parametrize("how", ["killed", "deleted"])
def test_namespaces_go_while_each_replica_ends(world, how):
    wait_available(world)
    for seen in world.scheduler.pods():
        if how == "killed":
            world.kill_container(world.scheduler.status(seen))
        else:
            world.api.delete(kube.pods(kit.SYSTEM) + "/" + seen["metadata"]["name"])
        print(f"{how}: namespace gone after {delete_namespace(world):.1f} s")
        wait_replicas(world)
        assert all(condition(world.api.get(f"{API_SERVICES}/{name}"), "Available")["status"] == "True" for name in (CUSTOM, EXTERNAL))


def test_a_replica_that_ends_costs_no_request(world):
    """It is out of the endpoints before it ends: the API server does not ask another one where a connection is refused."""
    wait_available(world)
    wait_replicas(world)
    ends, asked, failed = threading.Event(), [], []

    def ask():
        while not ends.is_set():
            status, text = world.api.raw("GET", "/apis/custom.metrics.k8s.io/v1beta2")
            asked.append(status)
            if status != 200:
                failed.append((status, text))
            time.sleep(0.05)
    threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for seen in world.scheduler.pods():
        name = seen["metadata"]["name"]
        world.api.delete(f"{kube.pods(kit.SYSTEM)}/{name}")
        world.api.wait(kube.pods(kit.SYSTEM), name, lambda seen: seen is None, 60, f"{name} is gone")
        wait_replicas(world)
    ends.set()
    for thread in threads:
        thread.join(30)
    assert not failed and len(asked) > 50, failed[:3]


def test_alert_while_the_backend_is_away(world):
    """It fires for both APIs, and goes out when a replica serves them again."""
    alert, deployment = "AliquotMetricsApiDown", "/apis/apps/v1/namespaces/aliquot-system/deployments/aliquot-scheduler"
    wait_available(world, 90)
    replicas_wanted = world.api.get(deployment)["spec"]["replicas"]
    with monitoring.running(world, monitoring.of_api_server(world)) as prometheus:
        assert not prometheus.firing(alert)
        world.api.patch(deployment, {"spec": {"replicas": 0}})
        try:
            for name in (CUSTOM, EXTERNAL):
                prometheus.wait_firing(alert, 60, name=name, severity="critical")
        finally:
            world.api.patch(deployment, {"spec": {"replicas": replicas_wanted}})
        prometheus.wait_quiet(alert)
    wait_available(world)


def start_again(world):
    """The replicas. Each looks at the APIs when it starts, and then once a minute (tests/unit/test-endpoints.c)."""
    for seen in world.scheduler.pods():
        world.kill_container(world.scheduler.status(seen))


def test_an_api_of_another_product(world):
    """Ours stays away, and doctor says so."""
    service = {"namespace": "default", "name": "other-metrics", "port": 443}
    ours = world.api.get(f"{API_SERVICES}/{EXTERNAL}")["spec"]["service"]
    world.api.patch(f"{API_SERVICES}/{EXTERNAL}", {"spec": {"service": service, "caBundle": None}})
    start_again(world)
    try:
        world.until(lambda: "stays away from it" in world.scheduler.log(), 90, "the log says so", pause=0.2)
        wait_replicas(world)
        assert "caBundle" not in world.api.get(f"{API_SERVICES}/{EXTERNAL}")["spec"]
        assert any("is of Service default/other-metrics" in text for text in world.doctor()["metrics APIs", "ok"])
    finally:
        world.api.patch(f"{API_SERVICES}/{EXTERNAL}", {"spec": {"service": ours}})
        start_again(world)
    wait_available(world, 90)
    wait_replicas(world)


def test_doctor(world):
    assert any("is available" in text for text in world.doctor()["metrics APIs", "ok"])
