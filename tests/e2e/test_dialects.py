# SPDX-License-Identifier: Apache-2.0
"""Pods of other projects run unchanged: right cards inside, right limits, and what their own tools read of them.

Each pod has the resources, annotations, labels and scheduler name of that project's own documentation, which is named
beside it. Pods that fit together run together.
"""

import json
import re

import pytest

from cluster import api as kube
from kit import CARD, SLOT, ApiError, GiB, assignment_of, check_report, check_view, container, holders, pod
from proxy import configured

MiB = 1 << 20
QGPU = "tke.cloud.tencent.com/qgpu-"
HAMI = "hami.io/vgpu-devices-allocated"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"


def other_schedulers(text):
    """Takes the names of other projects' schedulers in, as in a cluster where Aliquot has replaced them."""
    text, n = re.subn(r"^  # - schedulerName: ", "  - schedulerName: ", text, flags=re.M)
    assert n == 5
    return text


@pytest.fixture(scope="module", autouse=True)
def schedulers(world):
    with configured(world, other_schedulers):
        yield


def main(**resources):
    """The container of most pods; a name's dots and slashes as they are: main(**{"nvidia.com/gpu": 1})."""
    return container(resources={k: str(v) for k, v in resources.items()})


class Case:
    """A pod, what each container of it gets of each card, and what is written into and beside it. terms: its policy
    for compute and its ceiling (0: none), where it is not held to its own part. carrier: whether admission adds one."""

    def __init__(self, body, cards=1, core=0, memory=0, containers=None, annotations=None, env=None, labels=None,
                 terms=None, carrier=True):
        self.body = body
        self.carrier = carrier
        self.terms = terms
        self.name = body["metadata"]["name"]
        self.containers = containers or {"main": (cards, core, memory)}
        self.annotations = annotations or {}
        self.env = env or {}
        if labels:
            body["metadata"]["labels"] = labels


def devices_by_index(devices):
    return ",".join(str(d["index"]) for d in devices)


def volcano_devices(seen):
    """volcano's own words for an assignment of one container."""
    (devices,) = assignment_of(seen).values()
    return "".join(f'{d["uuid"]},NVIDIA,{d["memory"] // MiB},{d["core"]}:' for d in devices)


def hami_devices(seen):
    return volcano_devices(seen) + ";"


def indexes(name="main"):
    return lambda seen: devices_by_index(assignment_of(seen)[name])


NODE = re.compile(r"[a-z0-9.-]+")
NUMBER = re.compile(r"[0-9]+")

SHARES = [
    # elastic-gpu: apis/elasticgpu/v1alpha1/types.go, the names of the constants
    Case(pod("elastic-com", main(**{"elasticgpu.com/gpu-core": 10, "elasticgpu.com/gpu-memory": 2048})),
         core=10, memory=2048 * MiB,
         annotations={"elasticgpu.io/assumed": "true", "elasticgpu.io/container-main": indexes()}),
    # elastic-gpu: README.md, the request of a claim
    Case(pod("elastic-class", main(**{"gpushare.provisioner.elasticgpu.io/gpu-core": 10,
                                      "gpushare.provisioner.elasticgpu.io/gpu-memory": 4})),
         core=10, memory=4 * GiB),
    # qGPU, online and offline together: tencentcloud.com/document/product/457, offline pods
    Case(pod("qgpu-offline", main(**{QGPU + "core-greedy": 10, QGPU + "memory": 5}),
             annotations={"tke.cloud.tencent.com/app-class": "offline"}), memory=5 * GiB, terms=("offline", 0)),
    # gpushare-scheduler-extender: docs/userguide.md
    Case(pod("gpushare", main(**{"aliyun.com/gpu-mem": 3})), memory=3 * GiB,
         annotations={"ALIYUN_COM_GPU_MEM_IDX": indexes(), "ALIYUN_COM_GPU_MEM_DEV": str(CARD // GiB),
                      "ALIYUN_COM_GPU_MEM_POD": "3", "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
                      "ALIYUN_COM_GPU_MEM_ASSUME_TIME": NUMBER},
         env={"ALIYUN_COM_GPU_MEM_IDX": indexes(), "ALIYUN_COM_GPU_MEM_POD": "3",
              "ALIYUN_COM_GPU_MEM_CONTAINER": "3", "ALIYUN_COM_GPU_MEM_DEV": str(CARD // GiB)}),
    # ACK, shared GPU scheduling with compute (core_mem)
    Case(pod("cgpu", main(**{"aliyun.com/gpu-mem": 6, "aliyun.com/gpu-core.percentage": 30})),
         core=30, memory=6 * GiB),
    # ACK, "Enable multi-GPU sharing": 8 GiB over 2 cards, 4 GiB of each
    Case(pod("cgpu-two", main(**{"aliyun.com/gpu-mem": 8})), labels={"aliyun.com/gpu-count": "2"},
         cards=2, memory=4 * GiB),
    # the same as a resource, of which the node says that it has two
    Case(pod("gpushare-two", main(**{"aliyun.com/gpu-mem": 4, "aliyun.com/gpu-count": 2})), cards=2, memory=2 * GiB),
    # gpu-manager: README.md, "Submit a Pod with 0.3 GPU utilization and 7680MiB GPU memory"
    Case(pod("vcuda", main(**{"tencent.com/vcuda-core": 50, "tencent.com/vcuda-memory": 30}),
             annotations={"tencent.com/vcuda-core-limit": "70"}), core=50, memory=7680 * MiB, terms=("burst", 70),
         annotations={"tencent.com/predicate-gpu-idx-0": indexes(), "tencent.com/gpu-assigned": "true",
                      "tencent.com/predicate-time": NUMBER, "tencent.com/predicate-node": NODE}),
    # gpu-admission, the fork with nvidia.com names: README.md, "gpu-pod2", written for its gpu-scheduler
    Case(pod("vcuda-fork",
             container("c0", resources={"nvidia.com/vcuda-core": "20", "nvidia.com/vcuda-memory": "1000"}),
             container("c1", port=7001, resources={"nvidia.com/vcuda-core": "20", "nvidia.com/vcuda-memory": "2000"}),
             annotations={"nvidia.com/vcuda-core-limit": "20", "nvidia.com/use-gputype": "a100"},
             schedulerName="gpu-scheduler"),
         containers={"c0": (1, 20, 1000 * MiB), "c1": (1, 20, 2000 * MiB)},
         annotations={"nvidia.com/predicate-gpu-idx-1": indexes("c1"), "nvidia.com/gpu-assigned": "true"}),
    # HAMi: examples/nvidia/default_use.yaml, with the policies of specify_scheduling_policy.yaml
    Case(pod("hami", main(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3000, "nvidia.com/gpucores": 30}),
             annotations={"hami.io/node-scheduler-policy": "spread", "hami.io/gpu-scheduler-policy": "binpack"}),
         core=30, memory=3000 * MiB,
         annotations={HAMI: hami_devices, "hami.io/bind-phase": "success", "hami.io/vgpu-node": NODE},
         env={"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "30"}),
    # HAMi: examples/nvidia/use_priority.yaml: not before those of priority 0
    Case(pod("hami-priority", main(**{"nvidia.com/gpu": 1, "nvidia.com/gpumem": 2000, "nvidia.com/priority": 1})),
         memory=2000 * MiB, terms=("offline", 0)),
    # volcano: docs/user-guide/how_to_use_vgpu.md, 1024 MB on each of two cards
    Case(pod("volcano", main(**{"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 1024}), schedulerName="volcano"),
         cards=2, memory=1024 * MiB, annotations={"volcano.sh/vgpu-ids-new": volcano_devices}),
    # KAI: docs/gpu-sharing/gpu-memory.yaml
    Case(pod("kai-memory", main(), annotations={"gpu-memory": "2000"}, schedulerName="kai-scheduler"),
         labels={"kai.scheduler/queue": "default-queue"}, memory=2000 * MiB,
         annotations={"received-resource-type": "Fraction"}, env={"GPU_PORTION": re.compile(r"0\.0\d")}),
    # NVIDIA: k8s-device-plugin, README.md, time-slicing with renameByDefault and ten replicas
    Case(pod("time-sliced", main(**{"nvidia.com/gpu.shared": 1})), memory=CARD * 10 // 100),
]

DIVIDED = [
    # qGPU, several cards: tencentcloud.com/document/product/457: the totals are divided, memory rounded down
    Case(pod("qgpu-two", main(**{QGPU + "core": 160, QGPU + "memory": 31})), cards=2, core=80, memory=15 * GiB, carrier=False),
    # nvidia-container-toolkit 1.20: the memory limit of its hook, in MiB
    Case(pod("toolkit-limit", container(resources={"nvidia.com/gpu": "1", "nvidia.com/gpucores": "20"},
                                        env=[{"name": "NVIDIA_GPU_MEMORY_LIMIT", "value": "4096"}])),
         core=20, memory=4 * GiB, env={"CUDA_DEVICE_MEMORY_LIMIT_0": "4096m"}),
]

HALVES = [
    # HAMi: examples/nvidia/use_memory_fraction.yaml
    Case(pod("hami-half", main(**{"nvidia.com/gpu": 2, "nvidia.com/gpumem-percentage": 50, "nvidia.com/gpucores": 30})),
         cards=2, core=30, memory=CARD // 2, annotations={HAMI: hami_devices}),
    # koordinator: user-manuals/device-scheduling-gpu-share-with-hami.md
    Case(pod("koordinator", main(**{"koordinator.sh/gpu-shared": 1, "koordinator.sh/gpu-core": 50,
                                    "koordinator.sh/gpu-memory-ratio": 50}), schedulerName="koord-scheduler"),
         labels={"koordinator.sh/gpu-isolation-provider": "hami-core"}, core=50, memory=CARD // 2,
         annotations={KOORDINATOR: lambda seen: json.dumps({"gpu": [
             {"minor": d["index"], "resources": {
                 "koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory": str(CARD // 2),
                 "koordinator.sh/gpu-memory-ratio": "50"}, "id": d["uuid"]}
             for d in assignment_of(seen)["main"]]}, separators=(",", ":"))}),
    # KAI: docs/gpu-sharing/gpu-sharing-non-default-container.yaml
    Case(pod("kai", container("sidecar", port=7001), container(),
             annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "main"}, schedulerName="kai-scheduler"),
         labels={"kai.scheduler/queue": "default-queue"}, core=50, memory=CARD // 2, env={"GPU_PORTION": "0.50"}),
]

WHOLE = [
    # NVIDIA: k8s-device-plugin, README.md
    Case(pod("nvidia", main(**{"nvidia.com/gpu": 1})), core=100, memory=CARD),
    # koordinator: user-manuals/fine-grained-device-scheduling.md
    Case(pod("koordinator-one", main(**{"koordinator.sh/gpu": 100}), schedulerName="koord-scheduler"),
         core=100, memory=CARD),
]

BOTH = [
    # gpu-manager: README.md, "Submit a Pod with 2 GPU card"
    Case(pod("vcuda-two", main(**{"tencent.com/vcuda-core": 200, "tencent.com/vcuda-memory": 60})),
         cards=2, core=100, memory=CARD),
]


def environment(tenant):
    raw = bytes.fromhex(tenant.ask("read", "/proc/1/environ")["hex"]).decode()
    return dict(v.split("=", 1) for v in raw.split("\0") if "=" in v)


def check_text(seen, name, got, want):
    want = want(seen) if callable(want) else want
    if isinstance(want, re.Pattern):
        assert got is not None and want.fullmatch(got), (name, got)
    else:
        assert got == want, name


def check_case(space, case, seen):
    assigned = assignment_of(seen)
    assert assigned.keys() == case.containers.keys()
    ports = {c["name"]: int(c["command"][-1]) for c in seen["spec"]["containers"]}
    for name, (cards, core, memory) in case.containers.items():
        devices = check_view(space, seen, name, ports[name])
        assert [(d["core"], d["memory"]) for d in devices] == [(core, memory)] * cards, case.name
        limits = next(c for c in seen["spec"]["containers"] if c["name"] == name)["resources"]["limits"]
        assert limits.get(SLOT) == ("1" if case.carrier else None)
    for name, want in case.annotations.items():
        check_text(seen, name, seen["metadata"]["annotations"].get(name), want)
    if case.env:
        with space.tenant(seen) as tenant:
            found = environment(tenant)
        for name, want in case.env.items():
            check_text(seen, name, found.get(name), want)
    if case.terms:
        (told,) = holders(space.world.usage())[case.name, "main"]
        assert (told["computePolicy"], told["computeCeiling"]) == case.terms


@pytest.mark.parametrize("cases", [SHARES, DIVIDED, HALVES, WHOLE, BOTH], ids=["shares", "divided", "halves", "whole", "both"])
def test_readme_pods(space, cases):
    for case, seen in zip(cases, space.start_all([c.body for c in cases], timeout=120)):
        check_case(space, case, seen)


def test_init_container_of_kai(space):
    """KAI: docs/gpu-sharing/gpu-sharing-init-container.yaml. Only the init container has a card."""
    seen = space.start(dict(pod("kai-init", container(argv=["probe", "serve", "7000"]),
                                init=[container("gpu-init", argv=["probe", "report"])],
                                annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "gpu-init"},
                                schedulerName="kai-scheduler")))
    (device,) = assignment_of(seen)["gpu-init"]
    assert (device["core"], device["memory"]) == (50, CARD // 2)
    report = json.loads(space.logs("kai-init", "gpu-init"))
    check_report([device], report["driver"], report["nvml"])
    with space.tenant(seen) as tenant:
        assert tenant.driver()["result"] != 0


def test_node_for_their_tools(world):
    """kubectl inspect gpushare reads these of the node."""
    node = world.api.get("/api/v1/nodes/" + world.cluster.node)
    assert node["status"]["allocatable"]["aliyun.com/gpu-mem"] == str(2 * (CARD // GiB))
    assert node["status"]["allocatable"]["aliyun.com/gpu-count"] == "2"


def wait_capacity(world, part):
    """Until the node offers that part of each card's memory, the scheduler knows it, and the agent is registered."""
    each = CARD // GiB * part // 100
    world.api.wait(kube.core("nodes"), world.cluster.node,
                   lambda node: node["status"]["allocatable"].get("aliyun.com/gpu-mem") == str(2 * each), 120,
                   f"{each} GiB of each card on the node")
    world.until(lambda: all(gpu["status"]["allocatable"]["elasticgpu.io/gpu-memory"] == f"{each}Gi"
                            for gpu in world.gpus()), 120, f"{each} GiB free of each card, as the scheduler says")
    world.wait_tokens(120)


@pytest.fixture
def settings(world):
    """Half of each card kept back by the ConfigMap of gpu-manager's fork; afterwards the node is as it was."""
    config = {"nodeConfig": [{"name": world.cluster.node, "deviceMemoryScaling": 0.5, "cgroupDriver": "systemd",
                              "containerRuntimeEndpoint": "/var/run/containerd/containerd.sock"}]}
    world.api.create(kube.core("configmaps", "kube-system"), {
        "metadata": {"name": "gpu-manager-config"}, "data": {"config.json": json.dumps(config)}})
    yield
    world.api.delete(kube.core("configmaps", "kube-system", "gpu-manager-config"))
    world.api.patch(kube.core("nodes", name=world.cluster.node),
                    {"metadata": {"labels": {"nvidia-device-enable": None}}})
    for agent in world.agent.pods():        # the next one reads anew; it may be that none is there
        world.api.delete(world.agent.path + "/" + agent["metadata"]["name"])
    wait_capacity(world, 100)


def test_settings_of_gpu_manager(world, settings, space):
    """Its fork's ConfigMap keeps a part of the cards back; its label keeps the agent off a node."""
    node = kube.core("nodes", name=world.cluster.node)
    before = world.agent.pod()["metadata"]["name"]
    world.api.patch(node, {"metadata": {"labels": {"nvidia-device-enable": "disable"}}})
    world.api.wait(world.agent.path, before, lambda seen: seen is None, 120, "the agent off the node")
    world.api.patch(node, {"metadata": {"labels": {"nvidia-device-enable": "enable"}}})
    wait_capacity(world, 50)
    seen = space.start(pod("half", main(**{"nvidia.com/vcuda-core": 100})), timeout=120)
    assert [d["memory"] for d in check_view(space, seen)] == [CARD // 2]
    size = {"ALIYUN_COM_GPU_MEM_DEV": str(CARD // GiB // 2)}
    part = Case(pod("part", main(**{"aliyun.com/gpu-mem": 3})), memory=3 * GiB, annotations=size, env=size)
    check_case(space, part, space.start(part.body, timeout=120))


REFUSED = {
    "mixed": (main(**{"aliyun.com/gpu-mem": 3, "nvidia.com/gpu": 1}),
              r"aliyun\.com.*nvidia\.com/gpu|nvidia\.com/gpu.*aliyun\.com"),
    "mixed-own": (main(**{"elasticgpu.io/gpu-core": 10, QGPU + "memory": 3}),
                  r"elasticgpu\.io.*tke\.cloud|tke\.cloud.*elasticgpu\.io"),
    "vcuda-150": (main(**{"tencent.com/vcuda-core": 150}), r"150|below 100|multiple"),
    "vcuda-250": (main(**{"nvidia.com/vcuda-core": 250}), r"250|below 100|multiple"),
}


@pytest.mark.parametrize("name", ["nvidia.com/gpu", "elasticgpu.io/gpu-memory"])
def test_nothing_asked(space, name):
    """Charts write 0 for a container without a GPU: an ordinary pod."""
    seen = space.start(pod("plain", main(**{name: 0})))
    assert not assignment_of(seen)
    assert not space.world.allocated().get(seen["metadata"]["uid"])


def test_refused(space):
    """At admission or by the scheduler, in words that say what is wrong."""
    pending = []
    for name, (c, pattern) in REFUSED.items():
        try:
            space.create(pod(name, c))
            pending.append((name, pattern))
        except ApiError as refused:
            assert refused.code in (400, 403, 422), refused
            assert re.search(pattern, refused.message, re.S), refused.message
    for name, pattern in pending:
        text = space.unschedulable(name)
        assert re.search(pattern, text, re.S), text
