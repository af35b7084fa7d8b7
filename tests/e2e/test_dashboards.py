# SPDX-License-Identifier: Apache-2.0
"""Containers under the names of other projects: each has figures of its own, and HAMi's dashboard finds all that it asks for.
The scheduler's figures, where Prometheus reads them."""

import pytest

import kit
from kit import CARD, GiB, container, pod
from test_gates import QUOTAS, set_quota
from test_oversee import agent_options

# The expressions of HAMi's dashboard, as far as they choose series: names with the labels by which they are filtered, joined
# or summed, or which are in the legend.
OF_CARD = ("node", "device_index", "device_uuid")
VGPU = ("namespace", "pod", "container", "vdevice_index")
DASHBOARD = [
    {"hami_gpu_memory_limit_bytes": ("node",)},                                                     # count, sum
    {"hami_gpu_memory_allocated_bytes": ("node",)},
    {"hami_gpu_memory_allocated_bytes": ("node",), "hami_gpu_memory_limit_bytes": ("node",)},
    {"hami_gpu_shared_count": OF_CARD},                                                             # sum, each
    {"hami_host_gpu_memory_used_bytes": ("device_type", *OF_CARD), "hami_gpu_memory_limit_bytes": ("device_uuid",)},
    {"hami_host_gpu_utilization_ratio": ("device_type", *OF_CARD), "hami_gpu_memory_limit_bytes": ("device_uuid",)},
    {"hami_node_gpu_memory_allocated_ratio": OF_CARD},
    {"hami_gpu_core_allocated_ratio": OF_CARD},
    {"hami_vgpu_memory_used_bytes": VGPU},                                                          # each, topk
    {"hami_vgpu_memory_limit_bytes": VGPU},
    {"hami_container_device_utilization_ratio": VGPU},
    {"hami_vgpu_memory_used_bytes": VGPU, "hami_vgpu_memory_limit_bytes": VGPU},
]


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
    for expression in DASHBOARD:
        joined = []
        for name, labels in expression.items():
            series = [dict(found) for metric, found in metrics if metric == name]
            assert series and all(set(labels) <= found.keys() for found in series), (name, series)
            joined.append({found["device_uuid"] for found in series})
        assert set.intersection(*joined), expression


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
    before = figures(world)
    assert of_scheduler(before, "gpus_free") == {(): 2} and of_scheduler(before, "largest_share_percent") == {(): 100}
    set_quota(space, guaranteed={kit.CORE: "50"}, max={kit.CORE: "130"}, cohort=space.name)
    space.api.create(QUOTAS.format(space.name), {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUQuota",
                                                 "metadata": {"name": "lends"},
                                                 "spec": {"guaranteed": {kit.CORE: "100"}, "cohort": space.name}})
    world.until(lambda: len(of_scheduler(figures(world), "quota_used", namespace=space.name)) == 2, 20, "the quotas are known")
    hami = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "40"}
    space.start_all([pod("native", container(core=60, memory=8 * GiB)), pod("hami", container(resources=hami))])
    space.create(pod("large", container(core=10, memory=2 * CARD)), pod("quota", container(core=90, memory=GiB)),
                 pod("full", container(core=10, memory=CARD - 4 * GiB)), pod("full-too", container(core=10, memory=CARD - 4 * GiB)))
    reasons = {("no-gpu",): 1, ("quota",): 1, ("no-room",): 1}
    world.until(lambda: of_scheduler(figures(world), "pods_waiting", namespace=space.name) == reasons, kit.START, "three reasons")
    now = figures(world)
    of_space = {"namespace": space.name}
    assert of_scheduler(now, "shares", **of_space) == {("Elastic GPU (elasticgpu.io)",): 2, ("HAMi (nvidia.com/gpu)",): 1}
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
