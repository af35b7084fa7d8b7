# SPDX-License-Identifier: Apache-2.0
"""Whole MIG instances as extended resources, on a node with two cards in MIG mode and one whole card."""

import contextlib
import errno
import json
import pathlib
import re
import secrets
import signal
import statistics
import sys
import time

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import REPOSITORY, Cluster
from kit import CORE, GiB, container, pod
from test_config_map import IN_FORCE, unwell
from test_oversee import DAEMONS, _rolled_out, agent_options
from test_whole import FILE, configure

MACHINE = pathlib.Path(REPOSITORY) / "src/sim/machines/mig.machine"
RESOURCE = "nvidia.com/mig-"
ELASTIC = "/apis/elasticgpu.io/v1alpha1/"
OFFERED = {"1g.10gb": 9, "2g.20gb": 1, "3g.40gb": 1}
CONFIGS = "/run/aliquot/mig-parted.yaml"           # the same in the agent's container
HOOKS = "/run/aliquot/hooks.yaml"
HOOKED = "/run/mig-hooks"
LABEL = "nvidia.com/mig.config"
MAP = kube.core("configmaps", kit.SYSTEM, "custom-mig-parted-configs")      # a name that the agent's Role has
CONFIGS_TROUBLE = "the MIG configurations do not change"
NO_DEVICE = 100                                     # CUDA_ERROR_NO_DEVICE


@pytest.fixture(scope="module")
def machine(build, tmp_path_factory):
    manifests = aliquot.with_options(tmp_path_factory.mktemp("manifests") / "deploy", "--mig-strategy=mixed",
                                     "--mig-config-file=" + CONFIGS, f"--config-file={FILE}")
    with Cluster("mig-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        configure(cluster, "version: v1\n")
        aliquot.install(cluster, str(build), gpus=1, machine=MACHINE,
                        programs=[build / "tests/e2e/probe", build / "tests/workloads/driver-bypass",
                                  build / "tests/workloads/gpu-forger"],
                        deploy=aliquot.manifests(cluster, manifests))
        installed = kit.World(cluster, build)
        installed.wait_tokens(60, 1)
        wait_offered(installed, OFFERED)
        yield installed
        installed.wait_cleared()


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


def bypassed(room, name):
    """What a program without any library reaches in the (first) container of a pod (driver-bypass.c)."""
    return json.loads(room.exec(name, "driver-bypass", "reach", aliquot.DRIVER))


def selections(machine):
    """All that CUDA_VISIBLE_DEVICES can name on the node: indices, cards, and instances in both forms."""
    for spec in (gpu["spec"] for gpu in machine.gpus()):
        yield spec["uuid"]
        if "parent" in spec:
            yield f'MIG-{spec["parent"]}/{spec["mig"]["gpuInstance"]}/{spec["mig"]["computeInstance"]}'
    yield from ("0", "1", "2", "0,1,2,3")


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


def test_a_program_that_bypasses_every_library(machine, room):
    """By the nodes of the driver alone, and whatever it selects, it reaches the instance of its container; it can make no
    node for itself."""
    seen = room.start(pod("alone", one(**{"2g.20gb": 1})))
    (uuid,) = reached(machine, room, seen)
    before = instances(machine)
    found = bypassed(room, "alone")
    assert len(found.pop("capabilities")) == 2
    refused = [-errno.ENODEV, -errno.ENODEV]
    assert found == {"cards": [0], "card": {"0": refused}, "instances": {uuid: [0, 0]}, "others": 3, "taken": [], "changed": []}
    machine.until(lambda: instances(machine) == before, 10, "all instances are there, and its memory is free")
    for selection in selections(machine):
        with room.tenant(seen) as tenant:
            tenant.ask("visible", selection)
            answer = tenant.driver()
            assert answer["result"] in (0, NO_DEVICE), answer
            assert all(device["name"].endswith(" MIG 2g.20gb") for device in answer["devices"]), (selection, answer)
    made = json.loads(room.exec("alone", "driver-bypass", "make"))
    # The control group of devices refuses them; what every container may open shows that nodes can be made.
    assert made.pop("zero") == 0 and made.pop("dynamic") == 0
    assert set(made.values()) == {errno.EPERM}, made


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


# Of profiles as NVML numbers them: 0 has one slice, 1 has two.
MAKE = """
gi, ci, profile, cp = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_uint * 64)(), (ctypes.c_uint * 64)()
assert n.nvmlDeviceGetGpuInstanceProfileInfo(card({card}), {profile}, profile) == 0
assert n.nvmlDeviceCreateGpuInstance(card({card}), profile[0], ctypes.byref(gi)) == 0
assert n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, {profile}, 0, cp) == 0
assert n.nvmlGpuInstanceCreateComputeInstance(gi, cp[0], ctypes.byref(ci)) == 0
"""


def object_of(machine, uuid):
    (found,) = [g for g in machine.gpus() if g["spec"]["uuid"] == uuid]
    return found


MAKE_3G = """
gi, ci, profile, cp = ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_uint * 64)(), (ctypes.c_uint * 64)()
assert n.nvmlDeviceGetGpuInstanceProfileInfo(card(0), 2, profile) == 0
assert n.nvmlDeviceCreateGpuInstance(card(0), profile[0], ctypes.byref(gi)) == 0
assert n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, 2, 0, cp) == 0
assert n.nvmlGpuInstanceCreateComputeInstance(gi, cp[0], ctypes.byref(ci)) == 0
"""


@contextlib.contextmanager
def claimed(machine, room, profile):
    """A claim of an instance, bound while the block runs."""
    name = kit.new_name("mig")
    claims = f"{ELASTIC}namespaces/{room.name}/elasticgpuclaims"
    machine.api.create(ELASTIC + "elasticgpuclasses", {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": name},
        "provisioner": "elasticgpu.io/mig"})
    machine.api.create(claims, {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClaim", "metadata": {"name": "instance"},
        "spec": {"elasticGPUClassName": name, "resources": {"requests": {f"nvidia.com/mig-{profile}": 1}}}})
    # A card that could not be divided, because an instance was just let go, is left alone for 30 s.
    machine.until(lambda: machine.api.get(claims + "/instance").get("status", {}).get("phase") == "Bound", 75,
                  "the claim is bound")
    yield
    machine.api.delete(claims + "/instance")
    machine.api.delete(ELASTIC + "elasticgpuclasses/" + name)


def check_use(machine, uuid, gi, name):
    """The agent and `aliquot gpus` show the 8 GiB of a pod on the instance as NVML has them; NVML reports no load of it."""
    def holder():
        return next(h for g in machine.usage()["gpus"] for i in g.get("instances", []) if i["uuid"] == uuid
                    for h in i["holders"] if h["pod"] == name)
    machine.until(lambda: 8 * GiB <= holder()["memoryDriver"] < 9 * GiB, 10, "NVML's figure of the share")
    assert holder()["memoryUsed"] == 8 * GiB and holder()["memoryState"] == "Fine" and "coreUsed" not in holder()
    row, = (r for r in machine.aliquot("gpus").splitlines() if f"/{name} (main)" in r)
    assert re.search(r"\(main\) +20 % +16 GiB +8\d{3} MiB", row), row
    labels = f'pod="{name}",[^}}]*uuid="{uuid}",GPU_I_PROFILE="3g.40gb",GPU_I_ID="{gi}"}} '
    assert re.search("aliquot_container_memory_driver_bytes{[^}]*" + labels, machine.agent.http("/metrics").decode())


def test_pods_share_an_instance(machine, room):
    """An instance given out in shares: limits hold in it, a third pod does not fit, and an XID of it is its own. A claim
    gets all of it."""
    whole = room.start(pod("whole", container(core=100)))     # no instance is a whole card
    uuid, = (u for u, (profile, _) in instances(machine).items() if profile == "3g.40gb")
    configure(machine.cluster, f"version: v1\naliquot: {{cards: [{{devices: [{uuid}], mode: share}}]}}\n")
    wait_offered(machine, {"1g.10gb": 9, "2g.20gb": 1})
    machine.until(lambda: object_of(machine, uuid)["status"]["capacity"][CORE] == "42", 20, "3 of 7 slices are 42 percent")
    pods = [room.start(pod(name, container(core=20, memory=16 * GiB))) for name in ("first", "second")]
    name = object_of(machine, uuid)["metadata"]["name"]
    gi = name.rpartition("-gi")[2].partition("-")[0]
    assert machine.allocated()[whole["metadata"]["uid"]] != {name}
    for seen in pods:
        assert [(d["uuid"], d["core"]) for d in kit.assignment_of(seen)["main"]] == [(uuid, 20)]
        assert list(reached(machine, room, seen)) == [uuid]
        with room.tenant(seen) as tenant:
            (device,) = tenant.driver()["devices"]
            # cuDeviceGetUuid() of an instance is the UUID of its card.
            assert (device["uuid"], device["total"]) == (object_of(machine, uuid)["spec"]["parent"], 16 * GiB)
            assert tenant.alloc(17 * GiB) == 2 and tenant.alloc(8 * GiB) == 0
            check_use(machine, uuid, gi, seen["metadata"]["name"])
    past = bypassed(room, "first")          # its share is the library's limit, its instance the driver's
    assert (past["cards"], list(past["instances"]), past["taken"], past["changed"]) == ([0], [uuid], [], [])
    room.create(pod("third", container(core=10)))
    assert "no GPU has enough free compute" in room.unschedulable("third")
    explained = machine.aliquot("explain", "third", "-n", room.name)
    assert re.search(r"no GPU has enough free compute +0 MIG 3g\.40gb: 2 % ", explained), explained
    for gone in ("first", "second", "third"):
        room.delete(gone)
    room.create(pod("past", container(core=20, memory=4 * GiB, argv=["gpu-forger", "bypass", str(6 * GiB)])))
    assert re.search(r"6\d\d\d MiB.*limit is 4 GiB", room.event("past", "GPUMemoryOveruse", 30))
    room.delete("past", grace=1)
    with claimed(machine, room, "3g.40gb"):
        seen = room.start(pod("claimed", container(), annotations={"egpuc.elasticgpu.io/main": "instance"}))
        assert [(d["uuid"], d["core"]) for d in kit.assignment_of(seen)["main"]] == [(uuid, 42)]
        assert list(reached(machine, room, seen)) == [uuid]
        room.delete("claimed")
    machine.aliquot("sim", "inject", "xid", "48", "--gpu", "0", "--gi", gi)
    machine.until(lambda: object_of(machine, uuid)["status"]["state"] == "Unhealthy", 20, "the instance is unhealthy")
    assert object_of(machine, uuid)["status"]["lastXid"] == 48
    assert [g["spec"]["uuid"] for g in machine.gpus() if g["status"]["state"] != "Healthy"] == [uuid]
    room.delete("whole")
    configure(machine.cluster, "version: v1\n")
    machine.aliquot("sim", "inject", "destroy", gi, "--gpu", "0")
    machine.until(lambda: name not in {g["metadata"]["name"] for g in machine.gpus()}, 20, "its object is gone")
    nvml(machine, MAKE_3G)
    wait_offered(machine, OFFERED)


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
        nvml(machine, MAKE.format(card=1, profile=0))
    wait_offered(machine, OFFERED)


def test_an_instance_is_destroyed_behind_our_back(machine, room):
    """While a pod uses it. It leaves the node, the other instances serve their pods, and one that is made again is offered."""
    agent = machine.agent.restarts()
    seen = room.start(pod("user", one(**{"2g.20gb": 1})))
    beside = room.start(pod("beside", one(**{"3g.40gb": 1})))
    (uuid,) = reached(machine, room, seen)
    kept = reached(machine, room, beside)
    (gi,) = {dict(labels)["GPU_I_ID"] for name, labels in machine.metrics()
             if name == "aliquot_gpu_instance_healthy" and dict(labels)["uuid"] == uuid}
    with room.tenant(seen) as tenant:
        tenant.ask("visible", uuid)
        assert tenant.alloc(GiB) == 0
        machine.aliquot("sim", "inject", "destroy", gi, "--gpu", "0")
        assert tenant.alloc(GiB) != 0
    wait_offered(machine, {"1g.10gb": 9, "3g.40gb": 1})
    assert reached(machine, room, beside) == kept
    room.delete("user")
    nvml(machine, MAKE.format(card=0, profile=1))
    wait_offered(machine, OFFERED)
    again = room.start(pod("again", one(**{"2g.20gb": 1})))
    assert list(reached(machine, room, again).values()) == ["2g.20gb"]
    assert machine.agent.restarts() == agent


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
    nvml(machine, MAKE.format(card=1, profile=0))
    wait_offered(machine, OFFERED)
    assert machine.agent.restarts() == agent
    assert reached(machine, room, seen) == mine


def divided(*cards):
    """A configuration of mig-parted's file: {profile: number} by card, or None for no MIG."""
    return [{"devices": [i], "mig-enabled": wanted is not None, "mig-devices": wanted or {}}
            for i, wanted in enumerate(cards)]


DIVISIONS = {
    "as-before": divided({"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}, {"1g.10gb": 7}, None),
    "small": divided({"2g.20gb": 1, "1g.10gb": 5}, {"1g.10gb": 7}, None),
    "seven": divided({"7g.80gb": 1}, {"1g.10gb": 7}, None),
}


def label(machine, config):
    machine.api.patch(kube.core("nodes", name=machine.cluster.node), {"metadata": {"labels": {LABEL: config}}})


def wait_state(machine, state, config, reason=""):
    """The state's label, and the annotation with configuration and reason."""
    def is_so(node):
        metadata = (node or {}).get("metadata", {})
        text = metadata.get("annotations", {}).get("elasticgpu.io/mig-config", "")
        return (metadata.get("labels", {}).get(LABEL + ".state") == state and
                text.partition(":")[0] == config and reason in text)
    machine.api.wait(kube.core("nodes"), machine.cluster.node, is_so, 30, f"{config} {state} {reason}")


def node_events(machine, reason):
    """The messages of Events of the Node."""
    events = machine.api.get(kube.core("events", "default"))["items"]
    return [e.get("message") or e.get("note") for e in events if e["reason"] == reason]


def undivide(machine):
    """The division of the machine's file, without a label."""
    label(machine, "as-before")
    wait_state(machine, "success", "as-before")
    label(machine, None)
    machine.api.wait(kube.core("nodes"), machine.cluster.node,
                     lambda node: LABEL + ".state" not in node["metadata"]["labels"], 30, "no state")
    wait_offered(machine, OFFERED)


def test_the_label_divides_the_node_beside_pods(machine, room):
    """As with mig-manager, but no pod has to go: what one holds is waited for, by name."""
    machine.cluster.on_node(["sh", "-c", f"cat > {CONFIGS}"],
                            input=json.dumps({"version": "v1", "mig-configs": DIVISIONS}))
    seen = room.start(pod("stays", one(**{"2g.20gb": 1})))
    mine = reached(machine, room, seen)
    try:
        label(machine, "small")
        wait_state(machine, "success", "small")
        wait_offered(machine, {"1g.10gb": 12, "2g.20gb": 1})
        assert reached(machine, room, seen) == mine
        label(machine, "seven")
        holder = f"pod {room.name}/stays"
        wait_state(machine, "pending", "seven", holder)
        machine.until(lambda: any(holder in text for text in node_events(machine, "MIGConfigPending")), 30, "an Event")
        label(machine, "nonsense")
        wait_state(machine, "failed", "nonsense", "as-before")          # the names that there are
        wait_offered(machine, {"1g.10gb": 12, "2g.20gb": 1})
        label(machine, "seven")
        wait_state(machine, "pending", "seven", holder)
        room.delete("stays")
        wait_state(machine, "success", "seven")
        wait_offered(machine, {"1g.10gb": 7, "7g.80gb": 1})
    finally:
        undivide(machine)


def map_of(**configs):
    return {"data": {"config.yaml": json.dumps({"version": "v1", "mig-configs": configs})}}


def create_map(machine):
    parent, _, name = MAP.rpartition("/")
    machine.api.create(parent, {"metadata": {"name": name}, **map_of(**DIVISIONS)})


def refused(machine, pattern):
    """Event and /healthz say so."""
    machine.until(lambda: any(re.search(pattern, text) for text in node_events(machine, "MIGConfigInvalid")), 30,
                  f"an Event with /{pattern}/")
    machine.until(lambda: re.search(pattern, unwell(machine, CONFIGS_TROUBLE) or ""), 30, "the reason in /healthz")


@pytest.fixture
def mapped(machine):
    """The configurations in a ConfigMap, as of the GPU operator, which is not mounted."""
    create_map(machine)
    machine.cluster.on_node(["sh", "-c", f"cat > {HOOKS}"], input=json.dumps({"version": "v1", "hooks": {"apply-exit": [
        {"command": "sh", "args": ["-c", f"echo $MIG_PARTED_SELECTED_CONFIG >> {HOOKED}"]}]}}))
    with agent_options(machine, f"--mig-config-map={MAP.rpartition('/')[2]}", f"--mig-hooks-file={HOOKS}",
                       without=["--mig-config-file=" + CONFIGS], cards=1):
        yield machine
        undivide(machine)
    machine.api.delete(MAP)
    wait_offered(machine, OFFERED)


def profiles_of(machine):
    return sorted(profile for profile, _ in instances(machine).values())


def test_a_config_map_divides_the_node(mapped, room):
    """Soon after each change of it, beside a pod; what cannot be used changes nothing, and an Event says why. Hooks are
    programs of the host."""
    machine = mapped
    label(machine, "small")
    wait_state(machine, "success", "small")
    wait_offered(machine, {"1g.10gb": 12, "2g.20gb": 1})
    seen = room.start(pod("stays", one(**{"2g.20gb": 1})))
    mine = reached(machine, room, seen)
    agent = machine.agent.restarts()
    took = []
    for number in (4, 3, 5):
        wanted = ["1g.10gb"] * (7 + number) + ["2g.20gb"]
        begun = time.monotonic()
        machine.api.patch(MAP, map_of(small=divided({"2g.20gb": 1, "1g.10gb": number}, {"1g.10gb": 7}, None)))
        machine.until(lambda wanted=wanted: profiles_of(machine) == wanted, 30, str(wanted))
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < IN_FORCE, took
    machine.api.patch(MAP, {"data": {"config.yaml": "version: v1\nmig-config: {}\n"}})
    refused(machine, "entry config.yaml: line 2.*did you mean 'mig-configs'")
    machine.api.delete(MAP)
    refused(machine, "there is no ConfigMap .*custom-mig-parted-configs")
    create_map(machine)
    machine.until(lambda: not unwell(machine, CONFIGS_TROUBLE), 30, "good configurations again")
    assert profiles_of(machine) == wanted and reached(machine, room, seen) == mine
    assert machine.agent.restarts() == agent
    assert machine.cluster.on_node(["cat", HOOKED]).stdout.split() == ["small"] * 4
    room.delete("stays")


def test_kubelet_restarts_in_a_repartition(machine, room):
    """It is offered what is there, and the new instances when they are made; a label set to nonsense changes nothing; the pod
    keeps its own."""
    machine.cluster.on_node(["sh", "-c", f"cat > {CONFIGS}"],
                            input=json.dumps({"version": "v1", "mig-configs": DIVISIONS}))
    undivide(machine)       # before the first division since the boot has ended, all cards are kept from pods
    seen = room.start(pod("stays", one(**{"2g.20gb": 1})))
    mine = reached(machine, room, seen)
    try:
        with machine.driver_hangs("nvmlDeviceCreateGpuInstance*") as wait:
            label(machine, "small")
            wait()                                      # the 3g.40gb has gone, nothing is made yet
            wait_offered(machine, {"1g.10gb": 9, "2g.20gb": 1})
            machine.restart_kubelet(signal.SIGKILL)
            wait_offered(machine, {"1g.10gb": 9, "2g.20gb": 1})
        wait_state(machine, "success", "small")
        wait_offered(machine, {"1g.10gb": 12, "2g.20gb": 1})
        machine.cluster.stop("kubelet", signal.SIGKILL)
        label(machine, "nonsense")
        wait_state(machine, "failed", "nonsense", "as-before")          # the names that there are
        machine.cluster.start("kubelet")
        machine.cluster.wait_node_ready()
        wait_offered(machine, {"1g.10gb": 12, "2g.20gb": 1})
        assert reached(machine, room, room.get("stays")) == mine
        assert room.get("stays")["status"]["containerStatuses"][0]["restartCount"] == 0
    finally:
        undivide(machine)


def test_the_division_after_a_reboot(machine, room):
    """The mode stays, the instances are gone, kubelet and agent start together: the label's division is there before a pod gets
    an instance of it."""
    machine.cluster.on_node(["sh", "-c", f"cat > {CONFIGS}"],
                            input=json.dumps({"version": "v1", "mig-configs": DIVISIONS}))
    try:
        label(machine, "small")
        wait_state(machine, "success", "small")
        machine.cluster.stop("kubelet", signal.SIGKILL)
        machine.agent.kill()
        nvml(machine, DESTROY_ALL.replace("card(1)", "card(0)") + DESTROY_ALL)
        assert not instances(machine)
        with machine.driver_hangs("nvmlDeviceCreateGpuInstance*") as wait:
            machine.cluster.start("kubelet")
            wait()
            wait_offered(machine, {})
            room.create(pod("waits", one(**{"2g.20gb": 1})))
            assert f"Insufficient {RESOURCE}2g.20gb" in room.unschedulable("waits")
            assert not offered(machine.api.get(kube.core("nodes", name=machine.cluster.node)))
        wait_state(machine, "success", "small")
        assert list(reached(machine, room, room.running("waits")).values()) == ["2g.20gb"]
        wait_offered(machine, {"1g.10gb": 12, "2g.20gb": 1})
        room.delete("waits")
    finally:
        undivide(machine)


def test_kubelet_restarts_in_a_reset(machine, room):
    """By the command of the configuration. The card is offered when the probe after the reset has ended, and not before."""
    aliquot.add_to_driver(machine.cluster, machine.build / "src/cli/aliquot")
    command = f"[{aliquot.DRIVER}/bin/aliquot, sim, inject, reset, --gpu, '2']"
    configure(machine.cluster, f"version: v1\naliquot: {{health: {{deadline: 60s}}, reset: {{policy: idle, command: {command}}}}}\n")
    beside = room.start(pod("beside", one(**{"2g.20gb": 1})))
    mine = reached(machine, room, beside)
    (card,) = [g["metadata"]["name"] for g in machine.gpus() if g["spec"]["index"] == 2]

    def wait_card(state):
        machine.api.wait(kube.gpus(), card, lambda gpu: gpu["status"]["state"] == state, 30, state)

    def is_out(node):
        return node["status"]["allocatable"][kit.CORE] == "0"
    try:
        with machine.driver_hangs("cuDevicePrimaryCtxRetain", "--gpu", "2") as wait:
            machine.aliquot("sim", "inject", "xid", "48", "--gpu", "2")
            wait()
            wait_card("Probing")
            machine.api.wait(kube.core("nodes"), machine.cluster.node, is_out, 30, "no compute is offered")
            machine.restart_kubelet(signal.SIGKILL)
            room.start(pod("after", one(**{"1g.10gb": 1})))     # kubelet knows the agent again
            assert is_out(machine.api.get(kube.core("nodes", name=machine.cluster.node)))
        wait_card("Healthy")
        machine.wait_tokens(30, 1)
        assert reached(machine, room, room.get("beside")) == mine
    finally:
        configure(machine.cluster, "version: v1\n")


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


# ---- instances on demand ----

DESTROY_ALL = """
handles, gis, cis, n1 = (ctypes.c_void_p * 8)(), (ctypes.c_uint * 64)(), (ctypes.c_void_p * 8)(), ctypes.c_uint(8)
for number in range(18):
    profile, count = (ctypes.c_uint * 64)(), ctypes.c_uint(8)
    if n.nvmlDeviceGetGpuInstanceProfileInfo(card(1), number, profile) != 0:
        continue
    assert n.nvmlDeviceGetGpuInstances(card(1), profile[0], handles, ctypes.byref(count)) == 0
    for gi in [ctypes.c_void_p(handles[i]) for i in range(count.value)]:
        for shape in range(9):
            cp, cn = (ctypes.c_uint * 64)(), ctypes.c_uint(8)
            if n.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, shape, 0, cp) != 0:
                continue
            assert n.nvmlGpuInstanceGetComputeInstances(gi, cp[0], cis, ctypes.byref(cn)) == 0
            for i in range(cn.value):
                assert n.nvmlComputeInstanceDestroy(ctypes.c_void_p(cis[i])) == 0
        assert n.nvmlGpuInstanceDestroy(gi) == 0
"""


@pytest.fixture
def on_demand(machine):
    """The second card without instances, and instances made on demand."""
    nvml(machine, DESTROY_ALL)
    configure(machine.cluster, "version: v1\naliquot: {mig: {dynamic: true}}\n")
    machine.until(lambda: len(reports(machine)) == 2, 30, "status.mig of both divided cards")
    yield machine
    configure(machine.cluster, "version: v1\n")
    machine.until(lambda: not reports(machine), 30, "no status.mig")
    nvml(machine, DESTROY_ALL + "for _ in range(7):" + MAKE.format(card=1, profile=0).replace("\n", "\n    "))
    for gpu in machine.gpus():
        machine.api.patch(kube.gpus(gpu["metadata"]["name"]),
                          {"metadata": {"annotations": {"elasticgpu.io/mig-order": None}}})
    wait_offered(machine, OFFERED)


def reports(machine):
    """{name of the card's object: status.mig} of the cards that are divided on demand."""
    return {gpu["metadata"]["name"]: gpu["status"]["mig"] for gpu in machine.gpus() if "mig" in gpu.get("status", {})}


def made(machine):
    """The instances of each profile on the second card."""
    second = [report for name, report in reports(machine).items() if name.endswith("-01")]
    return sorted(i["profile"] for report in second for i in report["instances"])


def test_instances_on_demand(on_demand, room):
    """A pod whose profile no instance has gets one, and the next pod the room of it. So does a claim, where the scheduler
    gives the instances out."""
    machine = on_demand
    agent = machine.agent.restarts()
    seen = room.start(pod("first", one(**{"4g.40gb": 1})), 60)
    assert list(reached(machine, room, seen).values()) == ["4g.40gb"]
    room.event("first", "MIGInstanceOrdered")
    room.create(pod("second", one(**{"7g.80gb": 1})))
    room.event("second", "MIGNoRoom")
    room.delete("first")
    seen = room.running("second", 60)
    assert list(reached(machine, room, seen).values()) == ["7g.80gb"]
    assert made(machine) == ["7g.80gb"]
    room.delete("second")
    configure(machine.cluster, "version: v1\naliquot: {mig: {dynamic: true}, cards: [{devices: [1], mode: share}]}\n")
    with claimed(machine, room, "4g.40gb"):
        seen = room.start(pod("claimed", container(), annotations={"egpuc.elasticgpu.io/main": "instance"}))
        assert list(reached(machine, room, seen).values()) == ["4g.40gb"]
        room.delete("claimed")
    assert made(machine) == ["4g.40gb"]
    assert machine.agent.restarts() == agent


@contextlib.contextmanager
def being_made(machine, room, name, profile):
    """A pod whose instance is ordered, and not made in the block."""
    with machine.driver_hangs("nvmlDeviceCreateGpuInstance*") as wait:
        room.create(pod(name, one(**{profile: 1})))
        room.event(name, "MIGInstanceOrdered")
        wait()
        yield


@pytest.mark.parametrize("part", ["agent", pytest.param("scheduler", marks=[pytest.mark.foreign, pytest.mark.long])])
def test_killed_while_an_instance_is_made_on_demand(on_demand, room, part):
    """Between the order and the instance, and before the pod takes it: each pod gets one instance, and there is no other."""
    machine = on_demand
    victim = getattr(machine, part)
    with being_made(machine, room, "ordered", "4g.40gb"):
        victim.wait_restarted(victim.kill())
    assert list(reached(machine, room, room.running("ordered", 60)).values()) == ["4g.40gb"]
    with being_made(machine, room, "made", "1g.20gb"):
        machine.signal_kube_scheduler(signal.SIGSTOP)       # the pod takes nothing yet
    try:
        machine.until(lambda: made(machine) == ["1g.20gb", "4g.40gb"], 30, "the instance is made")
        victim.wait_restarted(victim.kill())
    finally:
        machine.signal_kube_scheduler(signal.SIGCONT)
    assert list(reached(machine, room, room.running("made", 60)).values()) == ["1g.20gb"]
    assert made(machine) == ["1g.20gb", "4g.40gb"]
