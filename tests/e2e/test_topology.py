# SPDX-License-Identifier: Apache-2.0
"""Several cards in one container, and which: by links, NUMA node, model, UUID, TFLOPS and policy, on a machine of two
sockets with four linked cards each and one card of another model."""

import pathlib
import secrets

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import CORE, GROUP, SLOT, GiB, assignment_of, container, pod

MACHINE = pathlib.Path(__file__).with_name("two-quads.machine")
CARDS = 9
QUADS = [{0, 1, 2, 3}, {4, 5, 6, 7}]
T4 = 8
MiB = 1 << 20


@pytest.fixture(scope="module")
def machine(build):
    with Cluster("topology-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=CARDS, programs=[build / "tests/e2e/probe"], machine=MACHINE)
        yield kit.World(cluster, build)


@pytest.fixture
def room(machine):
    """A namespace on it, empty afterwards."""
    made = kit.Space(machine, kit.new_name("t"))
    machine.api.create(kube.core("namespaces"), {"metadata": {"name": made.name}})
    machine.api.wait(kube.core("serviceaccounts", made.name), "default", bool, 30)
    yield made
    kit.clear_namespace(made)
    machine.wait_all_released()


def wishes(**words):
    """Annotations of ours: topology="best" is elasticgpu.io/topology: best."""
    return {f"{GROUP}/{key.replace('_', '-')}": value for key, value in words.items()}


def whole(n):
    return container(resources={CORE: str(100 * n)})


def kept_off(room, name, reason):
    assert reason in room.unschedulable(name)


def cards(seen):
    (devices,) = assignment_of(seen).values()
    return {d["index"] for d in devices}


def test_links_are_published(machine):
    seen = {g["spec"]["index"]: g["spec"] for g in machine.api.get(kube.gpus())["items"]}
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
        first = cards(room.start(pod("other", container(core=30), annotations=wishes(gpu_model="A100"))))
        (broken,) = [quad for quad in QUADS if first <= quad]
    (intact,) = [quad for quad in QUADS if quad != broken]
    four = room.start(pod("four", whole(4), annotations=wishes(topology="restricted")))
    assert cards(four) == intact
    room.create(pod("more", whole(3), annotations=wishes(topology="restricted", gpu_uuid="GPU-none")))
    kept_off(room, "more", "no GPU of the node is one that the pod selects")
    room.create(pod("four-more", whole(4), annotations=wishes(topology="restricted", gpu_model="A100")))
    kept_off(room, "four-more", "not enough whole GPUs free")
    pair = room.start(pod("pair", whole(2), annotations=wishes(topology="best")))
    assert cards(pair) <= broken and not cards(pair) & first


def test_shares_of_several_cards(machine, room):
    """As HAMi writes it: two cards, half of the compute and 4000 MiB of each; spread over cards, but well linked."""
    hami = {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "4000", "nvidia.com/gpucores": "50"}
    body = pod("hami", container(resources=hami),
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
    bound = room.start(pod("bound", container(resources=hami), annotations={"nvidia.com/numa-bind": "true"}))
    assert any(cards(bound) <= quad | ({T4} if quad == QUADS[1] else set()) for quad in QUADS)


def test_selection(machine, room):
    """By model and UUID, and compute in TFLOPS of whichever card it gets."""
    t4 = room.start(pod("t4", container(core=10), annotations=wishes(gpu_model="T4")))
    assert cards(t4) == {T4}
    avoided = room.start(pod("avoided", container(core=10), annotations=wishes(gpu_model_avoid="A100")))
    assert cards(avoided) == {T4}
    (uuid,) = [g["spec"]["uuid"] for g in machine.api.get(kube.gpus())["items"] if g["spec"]["index"] == 6]
    by_uuid = room.start(pod("by-uuid", container(core=10), annotations={"nvidia.com/use-gpuuuid": uuid}))
    assert cards(by_uuid) == {6}
    tflops = {GROUP + "/gpu-tflops": "13", SLOT: "1"}
    of_t4 = room.start(pod("of-t4", container(resources=tflops), annotations=wishes(gpu_model="T4")))
    assert [d["core"] for d in assignment_of(of_t4)["main"]] == [20]        # 65 TFLOPS
    of_a100 = room.start(pod("of-a100", container(resources=tflops), annotations=wishes(gpu_model="A100")))
    assert [d["core"] for d in assignment_of(of_a100)["main"]] == [5]       # 312 TFLOPS
    room.create(pod("none", container(core=10), annotations=wishes(gpu_model="H100")))
    kept_off(room, "none", "no GPU of the node is one that the pod selects")


def test_policies(machine, room):
    """A pod's own policy, its namespace's, and everybody's."""
    a = room.start(pod("a", container(core=10), annotations=wishes(gpu_model="A100")))
    packed = room.start(pod("packed", container(core=10), annotations=wishes(gpu_model="A100", placement_policy="binpack")))
    assert cards(packed) == cards(a)
    spread = room.start(pod("spread", container(core=10), annotations=wishes(gpu_model="A100", placement_policy="spread")))
    assert cards(spread) != cards(a)
    machine.api.patch(kube.core("namespaces", name=room.name),
                      {"metadata": {"annotations": wishes(placement_policy="spread")}})

    def elsewhere(i=[0]):
        """The scheduler's watch of namespaces is its own: until it has shown the change, pods are packed."""
        i[0] += 1
        name = f"n{i[0]}"
        taken = set().union(*(cards(p) for p in room.world.api.get(kube.core("pods", room.name))["items"]
                              if "assignment" in str(p["metadata"].get("annotations"))))
        return not cards(room.start(pod(name, container(core=5), annotations=wishes(gpu_model="A100")))) & taken
    machine.until(elsewhere, 40, "a pod of the namespace is spread")
