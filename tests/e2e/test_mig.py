# SPDX-License-Identifier: Apache-2.0
"""Whole MIG instances as extended resources, on a node with two cards in MIG mode and one whole card."""

import json
import pathlib
import re
import secrets
import shutil
import signal
import sys

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import REPOSITORY, Cluster
from kit import CORE, GiB, container, pod
from test_oversee import DAEMONS, _rolled_out

MACHINE = pathlib.Path(REPOSITORY) / "src/sim/machines/mig.machine"
RESOURCE = "nvidia.com/mig-"
OFFERED = {"1g.10gb": 9, "2g.20gb": 1, "3g.40gb": 1}
NO_DEVICE = 100                                     # CUDA_ERROR_NO_DEVICE


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    """As a user edits them who wants strategy `mixed`."""
    made = tmp_path_factory.mktemp("manifests") / "deploy"
    shutil.copytree(pathlib.Path(REPOSITORY) / "deploy", made)
    for file in made.rglob("agent.yaml"):
        text = file.read_text()
        file.write_text(re.sub(r"^( *)- --listen=:9400\n", r"\g<0>\1- --mig-strategy=mixed\n", text, flags=re.M))
    return made


@pytest.fixture(scope="module")
def machine(build, manifests):
    with Cluster("mig-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=1, machine=MACHINE, programs=[build / "tests/e2e/probe"],
                        deploy=aliquot.manifests(cluster, manifests))
        installed = kit.World(cluster, build)
        installed.wait_tokens(60, 1)
        wait_offered(installed, OFFERED)
        yield installed
        installed.wait_cleared()


@pytest.fixture
def room(machine):
    with kit.temporary_space(machine) as made:
        yield made


def offered(node, what="allocatable"):
    """{profile: number} of the node."""
    amounts = (node or {}).get("status", {}).get(what, {})
    return {name.removeprefix(RESOURCE): int(n) for name, n in amounts.items() if name.startswith(RESOURCE) and n != "0"}


def wait_offered(machine, wanted, timeout=30):
    machine.api.wait(kube.core("nodes"), machine.cluster.node, lambda node: offered(node) == wanted, timeout,
                     f"{wanted} in the node's allocatable")


def instances(machine):
    """{UUID: (profile, bytes in use)} of the driver."""
    lines = [dict(re.findall(r"(\w+)=((?:[^=]*(?= \w+=))|.*$)", line)) for line in machine.aliquot("sim", "show").splitlines()]
    return {x["uuid"]: (x["model"].rpartition(" MIG ")[2], int(x["memory_used"])) for x in lines
            if x.get("uuid", "").startswith("MIG-")}


def one(name="main", port=kit.PORT, argv=None, **wanted):
    """A container that requests so many instances of each profile of `wanted`."""
    return container(name, port, argv=argv, resources={RESOURCE + profile: str(n) for profile, n in wanted.items()})


def reached(machine, room, seen, port=kit.PORT):
    """{UUID: profile} of the instances that CUDA lets a process of the container use, among all of the node."""
    found = {}
    for uuid, (profile, _) in instances(machine).items():
        with room.tenant(seen, port) as tenant:
            tenant.ask("visible", uuid)
            answer = tenant.driver()
            assert answer["result"] in (0, NO_DEVICE), answer
            if answer["devices"]:
                found[uuid] = profile
    return found


def uses(machine, room, seen, uuid, port=kit.PORT):
    """Memory that a process takes with this selection is in use on that instance and no other."""
    before = instances(machine)
    with room.tenant(seen, port) as tenant:
        tenant.ask("visible", uuid)
        assert tenant.alloc(GiB) == 0
        after = instances(machine)
        assert {u for u in after if after[u][1] - before[u][1] >= GiB} == {uuid}


def caps(machine):
    """Capability nodes in the CDI specifications of the node."""
    text = machine.cluster.on_node(["sh", "-c", "cat /var/run/cdi/elasticgpu.io-share-*.json"]).stdout
    return sorted(m["containerPath"].rpartition("/")[2] for spec in map(json.loads, text.splitlines())
                  for m in spec["devices"][0]["containerEdits"]["mounts"] if "/nvidia-caps/" in m["containerPath"])


def nvml(machine, body):
    """Runs Python with the driver's NVML on the node, as an administrator; `n` is the library, `card(i)` a handle."""
    code = f"""
import ctypes
n = ctypes.CDLL("{aliquot.DRIVER}/lib/libnvidia-ml.so.1")
assert n.nvmlInit_v2() == 0
def card(i):
    handle = ctypes.c_void_p()
    assert n.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) == 0
    return handle
{body}
"""
    return machine.cluster.on_node(["env", "ALIQUOT_SIM_DIR=" + aliquot.DRIVER, sys.executable, "-c", code]).stdout


def test_instances_are_offered_beside_shares(machine):
    """By profile, as NVIDIA's plugin names them; the whole card is in shares, the divided ones are not."""
    node = machine.api.get(kube.core("nodes", name=machine.cluster.node))
    assert offered(node, "capacity") == offered(node) == OFFERED
    assert node["status"]["allocatable"][CORE] == "100"
    assert "nvidia.com/gpu" not in node["status"]["capacity"]


def test_a_container_reaches_its_instance_and_no_other(machine, room):
    seen = room.start(pod("alone", one(**{"3g.40gb": 1})))
    with room.tenant(seen) as tenant:
        (device,) = tenant.driver()["devices"]
        assert device["name"].endswith(" MIG 3g.40gb")
    found = reached(machine, room, seen)
    assert list(found.values()) == ["3g.40gb"]
    uses(machine, room, seen, *found)
    assert len(caps(machine)) == 2
    room.create(pod("second", one(**{"3g.40gb": 1})))
    assert f"Insufficient {RESOURCE}3g.40gb" in room.unschedulable("second")
    room.delete("alone")
    other = room.running("second")
    assert reached(machine, room, other) == found


def test_all_instances_of_a_profile(machine, room):
    """Nine pods have nine different ones."""
    bodies = [pod(f"p{i}", one(**{"1g.10gb": 1})) for i in range(OFFERED["1g.10gb"])]
    found = [reached(machine, room, seen) for seen in room.start_all(bodies)]
    assert all(len(f) == 1 for f in found)
    assert len({uuid for f in found for uuid in f}) == OFFERED["1g.10gb"]


def test_two_profiles_in_a_container(machine, room):
    """Both arrive, for a process each."""
    seen = room.start(pod("two", one(**{"1g.10gb": 2, "2g.20gb": 1})))
    found = reached(machine, room, seen)
    assert sorted(found.values()) == ["1g.10gb", "1g.10gb", "2g.20gb"]
    for uuid in found:
        uses(machine, room, seen, uuid)


def test_an_instance_and_a_share_in_a_pod(machine, room):
    """Each container has what it requests."""
    seen = room.start(pod("both", one("instance", **{"2g.20gb": 1}), container("share", 7001, core=30)))
    assert list(reached(machine, room, seen).values()) == ["2g.20gb"]
    kit.check_view(room, seen, "share", 7001)


def test_a_container_starts_again_after_the_agent(machine, room):
    """Both are killed; the container has its instance again."""
    seen = room.start(pod("again", one(**{"2g.20gb": 1})))
    before = reached(machine, room, seen)
    machine.agent.wait_restarted(machine.agent.kill())
    machine.ctr("tasks", "kill", "-s", "SIGKILL", seen["status"]["containerStatuses"][0]["containerID"].partition("://")[2])
    seen = room.wait("again", lambda s: kit.is_running(s) and s["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert list(before.values()) == ["2g.20gb"]
    assert reached(machine, room, seen) == before
    wait_offered(machine, OFFERED)


def test_kubelet_restarts(machine, room):
    """It finds every resource again, and the instance is still of its pod."""
    seen = room.start(pod("stays", one(**{"3g.40gb": 1})))
    mine = reached(machine, room, seen)
    machine.restart_kubelet(signal.SIGKILL)
    wait_offered(machine, OFFERED)
    assert reached(machine, room, room.get("stays")) == mine
    assert room.get("stays")["status"]["containerStatuses"][0]["restartCount"] == 0
    room.create(pod("second", one(**{"3g.40gb": 1})))
    assert f"Insufficient {RESOURCE}3g.40gb" in room.unschedulable("second")


def test_a_deletion_by_force(machine, room):
    """The next pod starts when every process of the former one has ended."""
    old = room.start(pod("old", one(argv=["probe", "stubborn", str(kit.PORT)], **{"3g.40gb": 1})))
    with room.tenant(old) as tenant:
        assert tenant.alloc(30 * GiB) == 0
        room.create(pod("new", one(**{"3g.40gb": 1})))
        room.unschedulable("new")
        room.begin_delete("old", grace=0)
        new = room.running("new", 60)
        with pytest.raises(OSError):
            tenant.ask("pid")
    with room.tenant(new) as tenant:
        assert tenant.alloc(30 * GiB) == 0


MAKE_1G = """
gi, ci, profile, cp = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_uint * 64)(), (ctypes.c_uint * 64)()
assert n.nvmlDeviceGetGpuInstanceProfileInfo(card(1), 0, profile) == 0
assert n.nvmlDeviceCreateGpuInstance(card(1), profile[0], ctypes.byref(gi)) == 0
assert n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, 0, 0, cp) == 0
assert n.nvmlGpuInstanceCreateComputeInstance(gi, cp[0], ctypes.byref(ci)) == 0
"""


def test_a_lost_card_takes_its_instances_with_it(machine, room):
    """They stay listed, as unhealthy; those of the other card and the pods in them stay as they are."""
    seen = room.start(pod("stays", one(**{"2g.20gb": 1})))
    mine = reached(machine, room, seen)
    machine.aliquot("sim", "inject", "lose", "--gpu", "1")
    wait_offered(machine, dict(OFFERED, **{"1g.10gb": 2}))
    assert offered(machine.api.get(kube.core("nodes", name=machine.cluster.node)), "capacity") == OFFERED
    assert reached(machine, room, seen) == mine
    machine.aliquot("sim", "inject", "return", "--gpu", "1")
    wait_offered(machine, {"2g.20gb": 1, "3g.40gb": 1, "1g.10gb": 2})   # the reset has ended its instances
    for _ in range(7):
        nvml(machine, MAKE_1G)
    wait_offered(machine, OFFERED)


def test_a_card_is_divided_anew(machine, room):
    """Instances appear and leave within seconds, beside a pod and without a restart of the agent."""
    agent = machine.agent.restarts()
    seen = room.start(pod("stays", one(**{"2g.20gb": 1})))
    mine = reached(machine, room, seen)
    made = nvml(machine, """
gi, info = ctypes.c_void_p(), (ctypes.c_uint * 64)()
count = ctypes.c_uint(7)
handles = (ctypes.c_void_p * 7)()
profile = (ctypes.c_uint * 64)()
assert n.nvmlDeviceGetGpuInstanceProfileInfo(card(1), 0, profile) == 0
assert n.nvmlDeviceGetGpuInstances(card(1), profile[0], handles, ctypes.byref(count)) == 0
cis, cn = (ctypes.c_void_p * 8)(), ctypes.c_uint(8)
gi = ctypes.c_void_p(handles[0])
assert n.nvmlGpuInstanceGetComputeInstances(gi, 0, cis, ctypes.byref(cn)) == 0
for i in range(cn.value):
    assert n.nvmlComputeInstanceDestroy(ctypes.c_void_p(cis[i])) == 0
assert n.nvmlGpuInstanceDestroy(gi) == 0
print(count.value)
""")
    assert made.strip() == "7"
    wait_offered(machine, dict(OFFERED, **{"1g.10gb": 8}))
    nvml(machine, MAKE_1G)
    wait_offered(machine, OFFERED)
    assert machine.agent.restarts() == agent
    assert reached(machine, room, seen) == mine


def told(machine):
    """Whether the agent is unwell for the reason that its strategy does not fit the node."""
    try:
        machine.agent.http("/healthz")
    except AssertionError as unwell:
        return re.search(r"nvidia\.com/gpu is not offered .*the node has MIG instances of profile", str(unwell))
    return None


def test_single_on_an_uneven_node(machine):
    """Nothing is offered; the agent says why, and is not ready."""
    path = f"{DAEMONS}/aliquot-agent"
    args = machine.api.get(path)["spec"]["template"]["spec"]["containers"][0]["args"]

    def set_args(args):
        machine.api.patch(path, {"spec": {"template": {"spec": {"containers": [{"name": "agent", "args": args}]}}}},
                          kind="application/strategic-merge-patch+json")
    set_args([a for a in args if "mig-strategy" not in a] + ["--mig-strategy=single", "--served-elsewhere=nvidia.com/gpu"])
    try:
        wait_offered(machine, {}, 60)
        node = machine.api.get(kube.core("nodes", name=machine.cluster.node))
        assert "nvidia.com/gpu" not in node["status"]["capacity"]
        machine.until(lambda: told(machine), 30, "the reason in /healthz")
    finally:
        set_args(args)
        machine.api.wait(DAEMONS, "aliquot-agent", _rolled_out, 60, "the agent with its options")
    wait_offered(machine, OFFERED)
