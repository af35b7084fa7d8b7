# SPDX-License-Identifier: Apache-2.0
"""Several cards in one container, and which: by links, NUMA node, model, UUID, TFLOPS and policy, on a machine of two
sockets with four linked cards each and one card of another model. NVIDIA's device plugin serves whole cards and MIG
devices in this cluster; what of it matters here, resources of the node, stands for it."""

import contextlib
import pathlib
import re
import secrets
import signal
import subprocess

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import REPOSITORY, Cluster
from cluster.config import with_short_backoff
from kit import CORE, GROUP, SLOT, assignment_of, container, pod
from proxy import configured

THEIRS = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.6gb"
MACHINE = pathlib.Path(__file__).with_name("two-quads.machine")
CARDS = 9
DIVIDED = 3         # a card and its two instances: they have GPU objects, and no shares are given out of them
QUADS = [{0, 1, 2, 3}, {4, 5, 6, 7}]
T4 = 8
MiB = 1 << 20
PLUGINS = "/var/lib/kubelet/device-plugins"


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """Those of a cluster in which NVIDIA's plugin keeps its names, gpushare's its own, and KAI its annotations."""
    made = tmp_path_factory.mktemp("manifests")
    names = f"{THEIRS},{THEIRS}.shared,aliyun.com/gpu-mem,gpu-fraction"
    subprocess.run([pathlib.Path(REPOSITORY) / "scripts/manifests", "--served-elsewhere", names, made], check=True)
    return made / "base"


@pytest.fixture(scope="module")
def machine(build, manifests):
    with Cluster("topology-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=CARDS, programs=[build / "tests/e2e/probe"], machine=MACHINE,
                        deploy=aliquot.manifests(cluster, manifests.parent))
        installed = kit.World(cluster, build)
        installed.wait_tokens(120, CARDS)
        installed.until(lambda: (len(in_shares(installed)), len(installed.gpus())) == (CARDS, CARDS + DIVIDED), 120,
                        "a GPU object of each card and instance")
        with configured(installed, lambda _: with_short_backoff((manifests / "kube-scheduler-configuration.yaml").read_text())):
            yield installed
            installed.wait_cleared()


def in_shares(machine):
    """GPU objects of the cards of which shares are given out."""
    return [g for g in machine.gpus() if g.get("status", {}).get("capacity", {}).get(CORE, "0") != "0"]


def selection(**words):
    """Annotations of ours: topology="best" is elasticgpu.io/topology: best."""
    return {f"{GROUP}/{key.replace('_', '-')}": value for key, value in words.items()}


def whole(n):
    return container(resources={CORE: str(100 * n)})


def kept_off(room, name, reason):
    assert reason in room.unschedulable(name)


def cards(seen):
    (devices,) = assignment_of(seen).values()
    return {d["index"] for d in devices}


def bound(room, body):
    """Creates a pod and waits until it has its cards; it need not run."""
    return room.wait(*room.create(body), lambda seen: seen and assignment_of(seen), 120, "pod bound")


def test_links_are_published(machine):
    seen = {g["spec"]["index"]: g["spec"] for g in in_shares(machine)}
    assert set(seen) == set(range(CARDS))
    for a, spec in seen.items():
        assert spec["numaNode"] == (0 if a in QUADS[0] else 1)
        assert spec["links"][a] == "X"
        for b in range(CARDS):
            together = any({a, b} <= quad for quad in QUADS)
            assert a == b or (spec["links"][b] == "NV4") == together, (a, b, spec["links"])


def test_whole_cards_by_links(machine, room):
    """A pod with a share breaks one quad: four cards come from the other one; four more are not linked any more."""
    first = cards(room.start(pod("share", container(core=30))))
    (broken,) = [quad for quad in QUADS if first <= quad] or [set()]
    if not broken:                                  # it took the T4, which breaks none
        first = cards(room.start(pod("other", container(core=30), annotations=selection(gpu_model="A100"))))
        (broken,) = [quad for quad in QUADS if first <= quad]
    (intact,) = [quad for quad in QUADS if quad != broken]
    four = room.start(pod("four", whole(4), annotations=selection(topology="restricted")))
    assert cards(four) == intact
    room.create(pod("more", whole(3), annotations=selection(topology="restricted", gpu_uuid="GPU-none")))
    kept_off(room, "more", "no GPU of the node is one that the pod selects")
    room.create(pod("four-more", whole(4), annotations=selection(topology="restricted", gpu_model="A100")))
    kept_off(room, "four-more", "not enough whole GPUs free")
    pair = room.start(pod("pair", whole(2), annotations=selection(topology="best")))
    assert cards(pair) <= broken and not cards(pair) & first


def test_shares_of_several_cards(machine, room):
    """As volcano writes it: two cards, half of the compute and 4000 MiB of each; spread over cards, but well linked."""
    volcano = {"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "4000", "volcano.sh/vgpu-cores": "50"}
    body = pod("volcano", container(resources=volcano),
               annotations={"hami.io/gpu-scheduler-policy": "topology-aware", "nvidia.com/use-gputype": "a100"})
    seen = room.start(body)
    (devices,) = assignment_of(seen).values()
    assert len(devices) == 2 and cards(seen) <= QUADS[0] | QUADS[1]
    assert all(d["core"] == 50 and d["memory"] == 4000 * MiB for d in devices)
    assert any(cards(seen) <= quad for quad in QUADS)
    with room.tenant(seen) as tenant:               # each of the two is limited by itself
        assert tenant.alloc(3000 * MiB, 0) == 0 and tenant.alloc(3000 * MiB, 1) == 0
        assert tenant.alloc(2000 * MiB, 0) == kit.OUT_OF_MEMORY
        assert tenant.alloc(2000 * MiB, 1) == kit.OUT_OF_MEMORY


def test_one_numa_node(machine, room):
    """Of two cards on two sockets: both are taken, but not by who is to be on one."""
    uuids = {g["spec"]["index"]: g["spec"]["uuid"] for g in in_shares(machine)}
    two = container(resources={"volcano.sh/vgpu-number": "2", "volcano.sh/vgpu-memory": "4000"})

    def of(name, *indexes, **words):
        chosen = {"nvidia.com/use-gpuuuid": ",".join(uuids[i] for i in indexes)}
        return pod(name, two, annotations=dict(chosen, **words))
    numa = {"nvidia.com/numa-bind": "true"}
    assert cards(bound(room, of("any", 0, T4))) == {0, T4}
    room.create(of("apart", 0, T4, **numa))
    kept_off(room, "apart", "not linked as the pod asks")
    assert cards(bound(room, of("together", 0, 7, T4, **numa))) == {7, T4}


def test_selection(machine, room):
    """By model and UUID, and compute in TFLOPS of whichever card it gets."""
    t4 = room.start(pod("t4", container(core=10), annotations=selection(gpu_model="T4")))
    assert cards(t4) == {T4}
    avoided = room.start(pod("avoided", container(core=10), annotations=selection(gpu_model_avoid="A100")))
    assert cards(avoided) == {T4}
    (uuid,) = [g["spec"]["uuid"] for g in machine.api.get(kube.gpus())["items"] if g["spec"]["index"] == 6]
    by_uuid = room.start(pod("by-uuid", container(core=10), annotations={"nvidia.com/use-gpuuuid": uuid}))
    assert cards(by_uuid) == {6}
    tflops = {GROUP + "/gpu-tflops": "13", SLOT: "1"}
    of_t4 = room.start(pod("of-t4", container(resources=tflops), annotations=selection(gpu_model="T4")))
    assert [d["core"] for d in assignment_of(of_t4)["main"]] == [20]        # 65 TFLOPS
    of_a100 = room.start(pod("of-a100", container(resources=tflops), annotations=selection(gpu_model="A100")))
    assert [d["core"] for d in assignment_of(of_a100)["main"]] == [5]       # 312 TFLOPS
    room.create(pod("none", container(core=10), annotations=selection(gpu_model="H100")))
    kept_off(room, "none", "no GPU of the node is one that the pod selects")


def test_policies(machine, room):
    """A pod's own policy, its namespace's, and the default."""
    a = room.start(pod("a", container(core=10), annotations=selection(gpu_model="A100")))
    packed = room.start(pod("packed", container(core=10), annotations=selection(gpu_model="A100", placement_policy="binpack")))
    assert cards(packed) == cards(a)
    spread = room.start(pod("spread", container(core=10), annotations=selection(gpu_model="A100", placement_policy="spread")))
    assert cards(spread) != cards(a)
    taken = cards(a) | cards(spread)
    a100 = selection(gpu_model="A100")
    hami = "hami.io/gpu-scheduler-policy"
    assert cards(bound(room, pod("hami-packed", container(core=5), annotations={**a100, hami: "binpack"}))) == cards(a)
    assert not cards(bound(room, pod("hami", container(core=5), annotations={**a100, hami: "spread"}))) & taken

    def placed(want):
        """Until a pod without a policy of its own is on such cards: the scheduler's watch of namespaces is its own."""
        machine.api.patch(kube.core("namespaces", name=room.name),
                          {"metadata": {"annotations": selection(placement_policy=want)}})

        def fits():
            name = kit.new_name(want)
            on = cards(bound(room, pod(name, container(core=5), annotations=a100)))
            room.delete(name, grace=0, timeout=120)
            return on == cards(a) if want == "binpack" else not on & taken
        machine.until(fits, 120, f"a pod of the namespace placed by {want}")
    placed("binpack")
    placed("spread")


@pytest.fixture
def plugin(machine):
    """What NVIDIA's plugin would advertise: one whole card, and the two MIG devices of the divided one."""
    status = "/api/v1/nodes/" + machine.cluster.node + "/status"

    def advertise(cards, devices):
        amounts = {THEIRS: cards, MIG: devices}
        machine.api.patch(status, {"status": {"capacity": amounts, "allocatable": amounts}})
    advertise("1", "2")
    yield
    advertise(None, None)


def test_beside_the_plugin_of_nvidia(machine, room, plugin):
    """Its pods are none of our business: nothing is added to them, kube-scheduler counts, no share of ours is taken.
    Whole cards, MIG devices, and one of them in a pod whose other container has a share of ours."""
    assert {g["spec"]["model"] for g in in_shares(machine)} == {"NVIDIA A100-SXM4-40GB", "Tesla T4"}
    capacity = machine.api.get(kube.core("nodes", name=machine.cluster.node))["status"]["capacity"]
    assert kit.MEMORY in capacity and not [name for name in capacity if name.startswith("aliyun.com/")]
    def limits(seen):
        return seen["spec"]["containers"][0].get("resources", {}).get("limits")
    cards = container(resources={THEIRS: "1"})
    device = container(resources={MIG: "1"})
    for body in (pod("whole", cards), pod("mig", device), pod("kai", container(), annotations={"gpu-fraction": "0.5"})):
        seen = room.start(body)
        assert limits(seen) == limits(body)
        assert not assignment_of(seen)
    room.create(pod("second", cards))
    kept_off(room, "second", "Insufficient " + THEIRS)
    both = room.start(pod("both", dict(device, name="theirs"), container("ours", port=7001, core=30)))
    kit.check_view(room, both, "ours", 7001)
    assert assignment_of(both).keys() == {"ours"}
    room.create(pod("third", dict(device)))
    kept_off(room, "third", "Insufficient " + MIG)
    with pytest.raises(kube.ApiError) as refused:
        room.create(pod("mixed", container(core=30, resources={MIG: "1"})))
    assert re.search(r"nvidia\.com/mig-\* is beside a share: .* in a container without a share$", refused.value.message)


@contextlib.contextmanager
def served_by_another(machine, *uuids):
    """A device plugin of kubelet's that offers these cards, as NVIDIA's does. It is a fake (other-plugin.c)."""
    def is_offered(node):
        return node["status"]["allocatable"].get(THEIRS, "0") == str(len(uuids))
    machine.cluster.spawn("other-plugin", [str(machine.build / "tests/e2e/other-plugin"), PLUGINS, THEIRS, *uuids])
    try:
        machine.api.wait(kube.core("nodes"), machine.cluster.node, is_offered, 30, f"{THEIRS} on the node")
        yield
    finally:
        machine.cluster.stop("other-plugin")


def test_a_card_that_another_plugin_gives(machine, room):
    """Two plugins on one node offer it: while a pod has it from the other one it takes no shares, also when kubelet restarts,
    and what has a share of it keeps it and is told. After the other pod it takes shares again."""
    (card,) = [g for g in in_shares(machine) if g["spec"]["index"] == T4]
    uuid, name = card["spec"]["uuid"], card["metadata"]["name"]
    on_card = {"nvidia.com/use-gpuuuid": uuid}

    def number():
        (n,) = [n for (metric, _), n in machine.metrics().items() if metric == "aliquot_agent_devices_of_other_plugins"]
        return n

    def wait_card(state, reason=""):
        machine.api.wait(kube.gpus(), name, lambda gpu: gpu["status"]["state"] == state and
                         reason in gpu["status"].get("reason", ""), 30, f"{state} {reason}")
    before = room.start(pod("before", container(core=30), annotations=on_card))
    with served_by_another(machine, uuid):
        capacity = machine.api.get(kube.core("nodes", name=machine.cluster.node))["status"]["capacity"]
        assert (capacity[THEIRS], capacity[CORE]) == ("1", str(100 * CARDS))
        assert number() == 0                            # offered is not given
        room.start(pod("theirs", container(port=7001, resources={THEIRS: "1"})))
        assert room.exec("theirs", "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip() == uuid
        why = f"another device plugin has given it to a pod as {THEIRS}"
        wait_card("Unhealthy", why)
        # All pods on the card get it, also those of other namespaces.
        assert why in room.event("before", "GPUNotHealthy")
        assert number() == 1
        kit.check_view(room, before)
        room.create(pod("after", container(core=30), annotations=on_card))
        kept_off(room, "after", "no GPU of the node is")
        machine.restart_kubelet(signal.SIGKILL)
        room.start(pod("later", container(core=5), annotations=selection(gpu_model="A100")))
        assert number() == 1 and not assignment_of(room.get("after"))
        room.delete("theirs")
        kit.check_view(room, room.running("after"))
        wait_card("Healthy")
        assert number() == 0
