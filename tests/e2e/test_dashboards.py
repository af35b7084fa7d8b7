# SPDX-License-Identifier: Apache-2.0
"""Containers under the names of other projects: each has figures of its own. The scheduler's figures, where
Prometheus reads them; a real Prometheus that scrapes by deploy/monitoring: its dashboards, NVIDIA's and HAMi's have data, and
each alert fires when its thing breaks and goes out when that is mended."""

import json
import math
import re

import pytest
import yaml

import kit
import monitoring
from cluster import api as kube
from kit import CARD, GiB, container, pod
from test_gates import QUOTAS, set_quota
from test_gputime import MS
from test_oversee import agent_options, forger


@pytest.fixture
def agent(world):
    with agent_options(world, "--metric-names=aliquot,hami,hami-legacy,gpu-manager"):
        yield world


def of_pods(metrics, name, label, **chosen):
    """The values of a metric by the pod."""
    found = [(dict(labels), value) for (metric, labels), value in metrics.items() if metric == name]
    return {labels[label]: value for labels, value in found if all(labels.get(key) == value for key, value in chosen.items())}


def test_containers_under_other_names(agent, space):
    """Two on one card, of which one holds more than the other."""
    small, large = space.start_all([pod(name, container(core=core, memory=size * GiB))
                                    for name, core, size in (("small", 20, 4), ("large", 50, 8))])
    with space.tenant(small) as one, space.tenant(large) as other:
        assert one.alloc(1 * GiB) == other.alloc(6 * GiB) == 0
        metrics = agent.metrics()
    wanted = {
        ("hami_vgpu_memory_limit_bytes", "pod"): (4 * GiB, 8 * GiB),
        ("vGPU_device_memory_limit_in_bytes", "podname"): (4 * GiB, 8 * GiB),
        ("hami_container_device_utilization_ratio", "pod"): (0, 0),
        ("Device_utilization_desc_of_container", "podname"): (0, 0),
        ("container_request_gpu_utilization", "pod_name"): (0.2, 0.5),
        ("container_request_gpu_memory", "pod_name"): (4096, 8192),
    }
    for (name, label), values in wanted.items():
        assert of_pods(metrics, name, label) == dict(zip(("small", "large"), values)), name
    booked = of_pods(metrics, "aliquot_container_memory_used_bytes", "pod")
    held = of_pods(metrics, "aliquot_container_memory_driver_bytes", "pod")
    assert 1 * GiB <= booked["small"] < 4 * GiB and 6 * GiB <= booked["large"] <= 8 * GiB
    for name, label in (("hami_vgpu_memory_used_bytes", "pod"), ("vGPU_device_memory_usage_in_bytes", "podname")):
        assert of_pods(metrics, name, label) == booked
    for card in ("gpu0", "gpu1", "total"):
        found = of_pods(metrics, "container_gpu_memory_total", "pod_name", gpu_memory=card)
        assert found == {name: held[name] // 2**20 for name in found}
        assert card != "total" or len(found) == 2
    allocated = sum(value for (name, _), value in metrics.items() if name == "hami_gpu_memory_allocated_bytes")
    assert allocated == 12 * GiB
    assert sum(value for (name, _), value in metrics.items() if name == "hami_gpu_shared_count") == 2
    assert sum(value for (name, _), value in metrics.items() if name == "hami_gpu_core_allocated_ratio") == 70


def figures(world):
    """What the leader shows where Prometheus reads it."""
    return kit.parse_metrics(kit.Scheduler(world, "aliquot-scheduler", 9403).http("/metrics").decode())


def of_scheduler(metrics, name, **chosen):
    """{the other labels' values: value} of a metric of the scheduler."""
    found = [(dict(labels), value) for (metric, labels), value in metrics.items() if metric == f"aliquot_scheduler_{name}"]
    return {tuple(value for label, value in labels.items() if label not in chosen): number
            for labels, number in found if chosen.items() <= labels.items()}


def test_figures_of_the_scheduler(world, space):
    """Of pods that wait for three reasons, and of two that run."""
    def idle():     # again, after a test that has started the agent anew
        now = figures(world)
        return now if of_scheduler(now, "gpus_free") == {(): 2} else None
    before = world.until(idle, kit.START, "both cards are free")
    assert of_scheduler(before, "largest_share_percent") == {(): 100}
    set_quota(space, guaranteed={kit.CORE: "50"}, max={kit.CORE: "130"}, cohort=space.name)
    space.api.create(QUOTAS.format(space.name), {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUQuota",
                                                 "metadata": {"name": "lends"},
                                                 "spec": {"guaranteed": {kit.CORE: "100"}, "cohort": space.name}})
    world.until(lambda: len(of_scheduler(figures(world), "quota_used", namespace=space.name)) == 2, kit.START, "the quotas are known")
    hami = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "40"}
    space.start_all([pod("native", container(core=60, memory=8 * GiB)), pod("hami", container(resources=hami))])
    space.create(pod("large", container(core=10, memory=2 * CARD)), pod("quota", container(core=90, memory=GiB)),
                 pod("full", container(core=10, memory=CARD - 4 * GiB)), pod("full-too", container(core=10, memory=CARD - 4 * GiB)))
    reasons = {("no-gpu",): 1, ("quota",): 1, ("no-room",): 1}
    world.until(lambda: of_scheduler(figures(world), "pods_waiting", namespace=space.name) == reasons, kit.START, "three reasons")
    # A pod whose Binding is under way leaves no room for others, and has no share yet.
    of_space, shares = {"namespace": space.name}, {("Elastic GPU (elasticgpu.io)",): 2, ("HAMi (nvidia.com/gpu)",): 1}
    world.until(lambda: of_scheduler(figures(world), "shares", **of_space) == shares, kit.START, "shares of three pods")
    now = figures(world)
    assert of_scheduler(now, "shares_compute_percent", **of_space) == {("Elastic GPU (elasticgpu.io)",): 70, ("HAMi (nvidia.com/gpu)",): 40}
    assert of_scheduler(now, "shares_memory_bytes", dialect="HAMi (nvidia.com/gpu)", **of_space) == {(): 8 * GiB}
    core = {"kind": "ElasticGPUQuota", "resource": kit.CORE, **of_space}
    assert of_scheduler(now, "quota_used", **core) == {("quota",): 110, ("lends",): 110}
    assert of_scheduler(now, "quota_borrowed", **core) == {("quota",): 60, ("lends",): 10}
    assert of_scheduler(now, "quota_max", **core) == {("quota",): 130}
    assert of_scheduler(now, "gpus_free") == {(): 0}
    # Both on one card, "full" on the other, which has 90 % left.
    assert of_scheduler(now, "largest_share_percent") == {(): 90}
    assert of_scheduler(now, "largest_share_memory_bytes") == {(): CARD - 16 * GiB}
    (wanted,) = of_scheduler(now, "gpus_wanted").values()
    assert wanted == pytest.approx(2 + 0.9 + (CARD - 4 * GiB) / CARD)
    counts = [of_scheduler(m, "time_to_bind_seconds_count")[()] for m in (before, now)]
    assert counts[1] - counts[0] == 3


# ---- deploy/monitoring ----

@pytest.fixture(scope="module")
def prometheus(world):
    with monitoring.running(world) as made:
        yield made


def dashboards():
    """(dashboard, panel, expression, legend) of deploy/monitoring."""
    for config in yaml.safe_load_all((monitoring.MONITORING / "dashboards.yaml").read_text()):
        for text in config["data"].values():
            dashboard = json.loads(text)
            for panel in dashboard["panels"]:
                for target in panel["targets"]:
                    yield dashboard["title"], panel["title"], target["expr"], target["legendFormat"]


def as_asked(expression):
    """With "All" chosen, and an interval that has samples of the short time since Prometheus runs."""
    return re.sub(r"\$(node|namespace|pod)\b", ".*", expression.replace("$__rate_interval", "20s"))


def missing(prometheus):
    """What is wrong with the panels: without data, or two series of one legend."""
    for dashboard, panel, expression, legend in dashboards():
        found = [labels for labels, value in prometheus.query(as_asked(expression)) if not math.isnan(value)]
        named = {re.sub(r"{{(\w+)}}", lambda m: labels.get(m[1], ""), legend) for labels in found}
        if not found or len(named) < len(found):
            yield f"{dashboard}, {panel}: {len(found)} series, {len(named)} legends: {expression}"


def test_targets(world, prometheus):
    """Two replicas in the network of one node are one target; all others are one each."""
    found = [target["labels"] for target in prometheus.get("/api/v1/targets", state="active")["activeTargets"]]
    replicas = world.scheduler.pods()
    separate = len(replicas) if "hostNetwork" not in replicas[0]["spec"] else 1
    assert [one["job"] for one in found].count("aliquot-scheduler") == separate
    (agent,) = [one for one in found if one["job"] == "aliquot-agent"]
    assert agent["node"] == world.cluster.node
    world.until(lambda: prometheus.query("count(up == 1)") == [({}, separate + 1)], 20, "all of them are scraped")


def test_every_panel_has_data(world, space, prometheus):
    """With two pods that compute, one that waits and a quota, of a namespace whose name is that of the pods and not of the agent."""
    set_quota(space, guaranteed={kit.CORE: "100"}, max={kit.CORE: "150"}, cohort=space.name)
    space.create(pod("waits", container(core=10, memory=2 * CARD)))
    space.start_all([pod(name, container(core=40, memory=8 * GiB, argv=["gpu-spin", "2000000"])) for name in ("one", "two")])

    def complete():
        found = list(missing(prometheus))
        assert not found, "\n".join(found)
        return True
    world.until(complete, 30, "all panels have data", pause=1)
    spaces = {labels["namespace"] for labels, _ in prometheus.query("aliquot_container_memory_used_bytes")}
    assert spaces == {space.name}


# What NVIDIA's dashboard (12239) asks for: the greatest by card, of instances too where it draws them. Its older edition
# chooses by `instance`. The cards here are older than Hopper and have no DCGM_FI_PROF_*: tests/sim/test_sim_gpm.py.
OF_NVIDIA = [f"max({name}{{{place}=~'.+', gpu=~'.+'}}) by (Hostname, gpu, {more})"
             for place in ("Hostname", "instance")
             for name, more in (("DCGM_FI_DEV_GPU_TEMP", "uuid"), ("DCGM_FI_DEV_POWER_USAGE", "uuid"), ("DCGM_FI_DEV_SM_CLOCK", "UUID"),
                                ("DCGM_FI_DEV_GPU_UTIL", "UUID"), ("DCGM_FI_DEV_FB_USED", "GPU_I_ID, GPU_I_PROFILE"),
                                ("DCGM_FI_DEV_FB_FREE", "UUID"))]
# What HAMi's asks for, with the labels of its legends and joins: of nodes, of each card, of each container.
OF_CARD, OF_CONTAINER = {"node", "device_index", "device_uuid"}, {"namespace", "pod", "container", "vdevice_index"}
USED, LIMIT = "hami_vgpu_memory_used_bytes{namespace=~'.+'}", "hami_vgpu_memory_limit_bytes{namespace=~'.+'}"
OF_HAMI = {
    "count(hami_gpu_memory_limit_bytes{node=~'.+'})": set(),
    "sum(hami_gpu_shared_count{node=~'.+'})": set(),
    "100 * sum(hami_gpu_memory_allocated_bytes{node=~'.+'}) / sum(hami_gpu_memory_limit_bytes{node=~'.+'})": set(),
    **{f"sum by (node) ({name}{{node=~'.+'}})": {"node"} for name in ("hami_gpu_memory_limit_bytes", "hami_gpu_memory_allocated_bytes")},
    **{f"{name} and on (device_uuid) hami_gpu_memory_limit_bytes{{node=~'.+'}}": {"device_type", *OF_CARD}
       for name in ("hami_host_gpu_memory_used_bytes", "hami_host_gpu_utilization_ratio")},
    **{f"{name}{{node=~'.+'}}": OF_CARD
       for name in ("hami_node_gpu_memory_allocated_ratio", "hami_gpu_core_allocated_ratio", "hami_gpu_shared_count")},
    **dict.fromkeys((USED, LIMIT, "hami_container_device_utilization_ratio{namespace=~'.+'}", f"100 * {USED} / {LIMIT}", f"topk(10, {USED})"),
                    OF_CONTAINER)}


def test_dashboards_of_others(world, space, prometheus):
    """By a real Prometheus that scrapes by our PodMonitors: no panel of NVIDIA's dashboard and of HAMi's is empty."""
    with agent_options(world, "--metric-names=aliquot,dcgm,hami"):
        prometheus.discover()
        space.start(pod("one", container(core=40, memory=8 * GiB, argv=["gpu-spin", "2000000"])))

        def complete():
            answers = {expression: prometheus.query(expression) for expression in [*OF_NVIDIA, *OF_HAMI]}
            assert [expression for expression, found in answers.items() if not found or any(math.isnan(value) for _, value in found)] == []
            for expression in OF_NVIDIA:
                assert sorted((labels["Hostname"], labels["gpu"]) for labels, _ in answers[expression]) == [(world.cluster.node, gpu) for gpu in "01"]
            for expression, wanted in OF_HAMI.items():
                assert all(wanted <= labels.keys() for labels, _ in answers[expression]), expression
            assert [labels["pod"] for labels, _ in answers[USED]] == ["one"]
            return True
        world.until(complete, 60, "all expressions have data", pause=1)


# ---- alerts: each one fires when its thing is broken, and goes out when that is mended ----

@pytest.fixture
def cards(world):
    """Healthy before and after it: a card that fails for the third time within ten minutes would stay out for all tests."""
    def forgive():
        for name in [gpu["metadata"]["name"] for gpu in world.gpus()]:
            world.aliquot("card", "set-healthy", name)
            world.api.wait(kube.gpus(), name, lambda seen: seen["status"]["state"] == "Healthy", 30, f"{name} healthy")
    forgive()
    yield
    forgive()


@pytest.mark.usefixtures("cards")
def test_alerts_of_cards(world, prometheus):
    try:
        world.aliquot("sim", "inject", "xid", "48", "--gpu", "0")
        world.aliquot("sim", "inject", "lose", "--gpu", "1")
        for card in "01":
            prometheus.wait_firing("AliquotCardUnhealthy", gpu=card, node=world.cluster.node)
        prometheus.wait_firing("AliquotCardFellOffTheBus", gpu="1")
        assert [labels["gpu"] for labels in prometheus.firing("AliquotCardFellOffTheBus")] == ["1"]
    finally:
        world.aliquot("sim", "inject", "reset", "--force", "--gpu", "0")
        world.aliquot("sim", "inject", "return", "--gpu", "1")
    for name in ("AliquotCardUnhealthy", "AliquotCardFellOffTheBus"):
        prometheus.wait_quiet(name)


@pytest.mark.usefixtures("cards")
def test_alert_of_a_driver_that_hangs(world, prometheus):
    with world.driver_hangs("nvmlDeviceGetMemoryInfo*") as wait:
        wait()
        prometheus.wait_firing("AliquotDriverHangs", node=world.cluster.node)
        world.until(lambda: prometheus.query("aliquot_agent_driver_answering == 0"), 20, "no card is left that it answers for")
    prometheus.wait_quiet("AliquotDriverHangs")


def test_alerts_of_containers(world, space, prometheus):
    """One holds more than its memory, one takes more than its time, one leaves 28 GiB alone."""
    space.start_all([forger("memory", "forge", 8 * GiB), pod("idle", container(core=10, memory=28 * GiB)),
                     pod("time", container(core=20, memory=4 * GiB, argv=["gpu-spin", str(20 * MS), "0", "10000"]))])
    for name in ("memory", "time"):
        prometheus.wait_firing("AliquotOveruse", namespace=space.name, pod=name)
    prometheus.wait_firing("AliquotMemoryIdle", namespace=space.name, pod="idle")
    assert {labels["pod"] for labels in prometheus.firing("AliquotMemoryIdle")} == {"idle"}
    space.end("memory", "idle", "time", grace=0)
    for name in ("AliquotOveruse", "AliquotMemoryIdle"):
        prometheus.wait_quiet(name)


def test_alert_of_an_agent_that_is_away(world, prometheus):
    process = world.first_process(world.agent.status())
    world.cluster.on_node(["kill", "-STOP", process])
    try:
        prometheus.wait_firing("AliquotAgentAway", node=world.cluster.node)
    finally:
        world.cluster.on_node(["kill", "-CONT", process])
    prometheus.wait_quiet("AliquotAgentAway")


def test_alert_without_a_leader(world, prometheus):
    deployment = "/apis/apps/v1/namespaces/aliquot-system/deployments/aliquot-scheduler"
    replicas = world.api.get(deployment)["spec"]["replicas"]
    world.api.patch(deployment, {"spec": {"replicas": 0}})
    try:
        prometheus.wait_firing("AliquotSchedulerDoesNotAct")
    finally:
        world.api.patch(deployment, {"spec": {"replicas": replicas}})
    prometheus.wait_quiet("AliquotSchedulerDoesNotAct")
