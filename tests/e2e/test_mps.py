# SPDX-License-Identifier: Apache-2.0
"""Cards under MPS on a node, with NVIDIA's control daemon: what a container gets, the daemon's end, the agent's end. The
simulated driver has clients of MPS, and no server for them: its end ends none."""

import json
import os
import re
import signal

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from kit import OUT_OF_MEMORY, GiB, container, pod
from test_claims import CLASSES, claim, claim_event, claims_in, phase, with_claim
from test_oversee import agent_options

SIM = "/run/aliquot-sim"
STATE = "/run/aliquot/mps"
FILE = "/run/aliquot/node.yaml"
REPLICA = "nvidia.com/quarter"


@pytest.fixture
def mps_programs(world, nvidia_smi):
    """NVIDIA's control daemon on the node."""
    root = nvidia_smi.parent / "root/usr"
    aliquot.add_to_driver(world.cluster, root / "bin/nvidia-cuda-mps-control", root / "sbin/nvidia-cuda-mps-server")


@pytest.fixture
def under_mps(world, mps_programs):
    """The node with all cards under MPS, and without at the end."""
    with agent_options(world, "--mps-cards=all"):
        world.until(lambda: ready(world) == [1.0] * len(world.gpus()), 30, "MPS is ready")
        yield world
    world.until(lambda: not daemons(world), 30, "MPS has ended")
    wait_default_modes(world)


def figures(world, name):
    return [value for (metric, _), value in world.metrics().items() if metric == name]


def ready(world):
    return figures(world, "aliquot_gpu_mps_ready")


def daemons(world):
    """{UUID: PID} of the control daemons."""
    found = {}
    for line in world.cluster.on_node(["sh", "-c", "for p in /proc/[0-9]*; do if [ \"$(cat $p/comm)\" = nvidia-cuda-mps ]; then "
                                       "echo ${p#/proc/} $(tr '\\0' '\\n' < $p/environ | grep ^CUDA_VISIBLE_DEVICES=); fi; "
                                       "done 2>/dev/null || true"]).stdout.splitlines():
        pid, _, uuid = line.partition(" CUDA_VISIBLE_DEVICES=")
        found[uuid] = int(pid)
    return found


def compute_mode(world, uuid):
    program = str(world.build / "src/agent/aliquot-agent")
    return world.cluster.on_node(["env", f"ALIQUOT_SIM_DIR={SIM}", program, "compute-mode", f"{SIM}/lib/libnvidia-ml.so.1",
                                  uuid]).stdout.split()[0]


def wait_default_modes(world):
    """A card whose MPS has not begun is not under MPS, and has no daemon: its mode may still have to be restored."""
    world.until(lambda: all(compute_mode(world, g["spec"]["uuid"]) == "0" for g in world.gpus()), 30, "default compute modes")


def two_clients(world, space, seen):
    """MPS has a limit for each process, the ledger of the container one for both. NVML lists both, apart from other processes,
    and so a client that goes past the library."""
    with space.tenant(seen) as one, space.tenant(seen) as two:
        assert one.alloc(2 * GiB) == 0
        assert two.alloc(2 * GiB) == OUT_OF_MEMORY and two.alloc(GiB) == 0
        world.until(lambda: kit.holders(world.usage())["client", "main"][0]["memoryDriver"] >= 3 * GiB, 10, "NVML's figure")
        (holder,) = kit.holders(world.usage())["client", "main"]
        assert (holder["processes"], holder["processesUnlimited"], holder["memoryState"]) == (2, 0, "Fine"), holder
    space.create(pod("past", container(core=30, memory=4 * GiB, argv=["gpu-forger", "bypass", str(6 * GiB)])))
    assert re.search(r"6\d\d\d MiB.*limit is 4 GiB", space.event("past", "GPUMemoryOveruse", 30))
    space.delete("past", grace=1)


def test_a_share_under_mps(under_mps, space):
    world = under_mps
    seen = space.start(pod("client", container(core=30, memory=4 * GiB)))
    spec = spec_of(world, seen)
    env = dict(e.split("=", 1) for e in spec["process"]["env"])
    mounts = {m["destination"]: m["source"] for m in spec["mounts"]}
    (card,) = (g for g in world.gpus() if g["status"].get("allocated"))
    name, uuid = card["metadata"]["name"], card["spec"]["uuid"]
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={4 * 1024 + 32}M"
    assert mounts[env["CUDA_MPS_PIPE_DIRECTORY"]] == f"{STATE}/{uuid}/pipe"
    assert mounts["/dev/shm"] == f"{STATE}/{uuid}/shm"
    assert compute_mode(world, uuid) == "3"
    two_clients(world, space, seen)

    # The end of the daemon, and of the agent's container, with which the runtime ends its daemons.
    first = daemons(world)[uuid]
    watch = world.api.watch(kube.gpus(), 60, fieldSelector=f"metadata.name={name}")
    next(watch)
    os.kill(host_pid(world, first), signal.SIGKILL)
    ended = "MPS: the MPS control daemon has ended"
    assert next(gpu for _, gpu in watch if gpu["status"]["state"] == "Unhealthy")["status"]["reason"] == ended
    assert next(gpu for _, gpu in watch if gpu["status"]["state"] == "Healthy")
    space.event("client", f"GPUNotHealthy: .* is Unhealthy: {ended}")
    world.card_event(name, f"GPUNotHealthy: .* is Unhealthy: {ended}")
    world.until(lambda: 1.0 in figures(world, "aliquot_gpu_mps_restarts_total"), 20, "the agent has started it again")
    world.until(lambda: ready(world) == [1.0] * len(world.gpus()), 20, "MPS is ready again")
    assert daemons(world)[uuid] != first
    world.agent.wait_restarted(world.agent.kill())
    world.until(lambda: ready(world) == [1.0] * len(world.gpus()), 30, "MPS is ready under the next agent")
    assert compute_mode(world, uuid) == "3"
    space.end("client")


@pytest.fixture
def one_under_mps(world, mps_programs):
    """The second card under MPS, and a class of claims for it."""
    name = kit.new_name("mps")
    with agent_options(world, "--mps-cards=1"):
        world.until(lambda: [g["spec"].get("underMPS", False) for g in world.gpus()][:2] == [False, True], 30, "underMPS")
        world.until(lambda: ready(world) == [1.0], 30, "MPS is ready")
        world.api.create(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass",
                                   "metadata": {"name": name}, "provisioner": "elasticgpu.io/mps"})
        yield world, name
        world.api.delete(f"{CLASSES}/{name}")
    world.until(lambda: not daemons(world), 30, "MPS has ended")


def test_a_claim_under_mps(one_under_mps, space):
    """It is of the card under MPS, and its container has the limits of it."""
    world, name = one_under_mps
    world.api.create(claims_in(space), claim("c", core=30, elasticGPUClassName=name))
    phase(space, "c", "Bound")
    seen = space.start(with_claim("client", "c"))
    env = dict(e.split("=", 1) for e in spec_of(world, seen)["process"]["env"])
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={4 * 1024 + 32}M"
    assert [bool(g["status"].get("allocated")) for g in world.gpus()][:2] == [False, True]
    space.end("client")
    world.api.delete(claims_in(space) + "/c")


def spec_of(world, seen):
    """The OCI specification of the pod's container."""
    name = seen["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    return json.loads(world.ctr("containers", "info", name))["Spec"]


def configure(world, text):
    world.cluster.on_node(["sh", "-c", f"cat > {FILE}.new; mv {FILE}.new {FILE}"], input=text)


def wait_offered(world, count):
    def offered(node):
        return int(node["status"]["allocatable"].get(REPLICA, 0)) == count
    world.api.wait(kube.core("nodes"), world.cluster.node, offered, 30, f"{count} of {REPLICA}")


@pytest.fixture
def in_replicas(world, mps_programs):
    """The second card in four replicas, by NVIDIA's configuration."""
    configure(world, "version: v1\n")
    with agent_options(world, f"--config-file={FILE}"):
        configure(world, "version: v1\nsharing: {mps: {resources: [{name: gpu, rename: quarter, devices: [1], replicas: 4}]}}\n")
        wait_offered(world, 4)
        world.until(lambda: ready(world) == [1.0], 30, "MPS of the card is ready")
        yield world
        configure(world, "version: v1\n")
        wait_offered(world, 0)
        world.until(lambda: not daemons(world), 30, "MPS has ended")


def test_replicas_under_mps(in_replicas, space):
    """A quarter of the memory and of the processors each, whatever the container's processes set."""
    world = in_replicas
    card = world.gpus()[1]["spec"]
    seen = space.start(pod("quarter", container(resources={REPLICA: "1"})))
    env = dict(e.split("=", 1) for e in spec_of(world, seen)["process"]["env"])
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={card['memory'] // 4 // 2**20 + 32}M"
    with space.tenant(seen) as tenant:
        (device,) = tenant.driver()["devices"]
        assert (device["uuid"], device["total"]) == (card["uuid"], card["memory"] // 4)
    assert list(daemons(world)) == [card["uuid"]]
    space.create(pod("two", container(resources={REPLICA: "2"})))
    world.until(lambda: space.get("two")["status"].get("phase") == "Failed", 30, "kubelet has refused the pod")
    assert "failRequestsGreaterThanOne" in space.get("two")["status"]["message"]
    space.end("quarter")


@pytest.fixture
def on_demand(world, mps_programs):
    """Both cards are put under MPS as claims of the class need it."""
    name = kit.new_name("mps")
    configure(world, "version: v1\naliquot: {cards: [{devices: all, dynamic: true}]}\n")
    with agent_options(world, f"--config-file={FILE}"):
        world.until(lambda: all(g["spec"]["mpsOnDemand"] for g in world.gpus()), 30, "mpsOnDemand")
        world.api.create(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass",
                                   "metadata": {"name": name}, "provisioner": "elasticgpu.io/mps"})
        yield world, name
        world.api.delete(f"{CLASSES}/{name}")
        wait_without_mps(world)
    world.until(lambda: not any(g["spec"]["mpsOnDemand"] for g in world.gpus()), 30, "no card is left to claims")


def wait_without_mps(world):
    world.until(lambda: not daemons(world) and not any(g["spec"]["underMPS"] for g in world.gpus()), 30, "MPS has ended")
    wait_default_modes(world)


def under_mps_of(world):
    """{UUID: name} of the cards that are under MPS and healthy."""
    return {g["spec"]["uuid"]: g["metadata"]["name"] for g in world.gpus()
            if g["spec"]["underMPS"] and g["status"]["state"] == "Healthy"}


def make_claim(world, space, class_name, name="c", core=30):
    world.api.create(claims_in(space), claim(name, core=core, elasticGPUClassName=class_name))


def has_limits(world, seen, percent):
    env = dict(e.split("=", 1) for e in spec_of(world, seen)["process"]["env"])
    return env.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == str(percent)


def test_mps_on_demand(on_demand, space):
    """An idle card is put under MPS for a claim, is given to nothing else meanwhile, and is given back after the last one. Neither
    the end of the agent, nor of the scheduler, nor of the daemon changes that."""
    world, name = on_demand
    plain = space.start(pod("plain", container(core=30)))
    (held,) = (g["spec"]["uuid"] for g in world.gpus() if g["status"].get("allocated"))
    assert not has_limits(world, plain, 30) and not daemons(world)
    for one in ("c", "d"):
        make_claim(world, space, name, one)
    claim_event(space, "c", "MPSOrdered")
    for one in ("c", "d"):
        phase(space, one, "Bound")
    (uuid,) = under_mps_of(world)
    assert uuid != held and list(daemons(world)) == [uuid] and compute_mode(world, uuid) == "3"
    seen = space.start_all([with_claim("one", "c"), with_claim("two", "d")])
    assert all(has_limits(world, one, 30) for one in seen)
    space.create(pod("waits", container(core=90)))
    space.unschedulable("waits")
    assert "for claims under MPS" in world.aliquot("explain", "-n", space.name, "waits")

    world.agent.wait_restarted(world.agent.kill())
    world.until(lambda: list(under_mps_of(world)) == [uuid], 30, "MPS goes on under the next agent")
    world.scheduler.wait_restarted(world.scheduler.kill())
    os.kill(host_pid(world, daemons(world)[uuid]), signal.SIGKILL)
    world.until(lambda: 1.0 in figures(world, "aliquot_gpu_mps_restarts_total"), 20, "the agent has started the daemon again")
    world.until(lambda: list(under_mps_of(world)) == [uuid], 30, "MPS is ready again")

    space.delete("one", "two")
    world.api.delete(claims_in(space) + "/c")
    assert compute_mode(world, uuid) == "3"
    world.api.delete(claims_in(space) + "/d")
    assert not has_limits(world, space.running("waits", 60), 90)
    wait_without_mps(world)


@pytest.mark.parametrize("part", ["agent", pytest.param("scheduler", marks=[pytest.mark.foreign, pytest.mark.long])])
def test_killed_while_mps_begins_and_ends(on_demand, space, part):
    """The card's compute mode is being set; then it is being restored. A claim that is deleted while its card gets ready leaves
    nothing behind."""
    world, name = on_demand
    victim = getattr(world, part)
    with world.driver_hangs("nvmlDeviceSetComputeMode") as wait:
        make_claim(world, space, name)
        wait()
        victim.wait_restarted(victim.kill())
    phase(space, "c", "Bound", 60)
    assert len(under_mps_of(world)) == len(daemons(world)) == 1
    with world.driver_hangs("nvmlDeviceSetComputeMode") as wait:
        world.api.delete(claims_in(space) + "/c")
        wait()
        victim.wait_restarted(victim.kill())
    wait_without_mps(world)
    with world.driver_hangs("nvmlDeviceSetComputeMode") as wait:
        make_claim(world, space, name)
        wait()
        world.api.delete(claims_in(space) + "/c")
    wait_without_mps(world)


def host_pid(world, pid):
    """The node has a PID namespace of its own."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/status", encoding="ascii") as f:
                    spaces = next(line.split()[1:] for line in f if line.startswith("NSpid:"))
                if spaces[-1] == str(pid) and os.readlink(f"/proc/{entry}/root") and \
                        os.readlink(f"/proc/{entry}/ns/pid") == os.readlink(f"/proc/{world.cluster.init_pid}/ns/pid"):
                    return int(entry)
            except (OSError, StopIteration):
                pass
    raise AssertionError(f"no process {pid}")
