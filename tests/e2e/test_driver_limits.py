# SPDX-License-Identifier: Apache-2.0
"""The driver's own limits behind the library's: from a container's first instruction on, on a simulated driver 615 that
limits the real control groups of the node."""

import json
import pathlib
import re
import secrets

import kit
import pytest
from cluster import aliquot
from cluster.cluster import Cluster
from kit import CARD, GiB, container, pod
from test_oversee import agent_options

MACHINE = pathlib.Path(__file__).with_name("driver-615.machine")
MiB = 1 << 20
SLACK = 32 * MiB
CONTEXT = 416 * MiB


@pytest.fixture(scope="module")
def machine(build):
    with Cluster("limits-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=2, machine=MACHINE,
                        programs=[build / "tests/e2e/probe", build / "tests/workloads/gpu-forger"])
        installed = kit.World(cluster, build)
        installed.wait_tokens(60)
        yield installed
        installed.wait_cleared()


def past_the_library(name, size, memory=4 * GiB, **spec):
    """A pod whose program takes memory at once, past every hook."""
    return pod(name, container(core=10, memory=memory, argv=["gpu-forger", "bypass", str(size)]), **spec)


def said(room, name):
    return room.world.until(lambda: re.search(r"taken=\d+|error=.*", room.logs(name, "main")), kit.START,
                            f"{name} has tried")[0]


def driver_limit(machine, name):
    (entry,) = kit.holders(machine.usage())[name, "main"]
    return entry["driverMemoryLimit"]


def limits(machine):
    """[(card, group's number or 0, limit or None)] of the driver."""
    lines = [dict(word.split("=", 1) for word in line.split()) for line in
             machine.aliquot("sim", "show").splitlines() if line.startswith("limit=")]
    return [(int(x["gpu"]), int(x["limit"]), None if x["hard"] == "none" else int(x["hard"])) for x in lines]


def test_a_program_past_the_library_is_limited_from_its_first_instruction(machine, room):
    room.create(past_the_library("over", 4 * GiB, restartPolicy="Never"))
    assert said(room, "over") == "error=cuMemAlloc answered 2"
    room.create(past_the_library("within", 4 * GiB - CONTEXT, restartPolicy="Never"))
    assert said(room, "within") == f"taken={4 * GiB - CONTEXT}"
    assert driver_limit(machine, "within") == 4 * GiB + SLACK
    def on_node(command):
        return machine.cluster.on_node(["sh", "-c", command]).stdout
    specs = on_node("cat /var/run/cdi/elasticgpu.io-share-*.json").splitlines()
    assert len(specs) == 2
    for spec in map(json.loads, specs):
        hooks = spec["devices"][0]["containerEdits"]["hooks"]
        (hook,) = (h for h in hooks if h["hookName"] == "createRuntime")
        assert hook["args"][2] == "auto"
        assert on_node(hook["path"] + " --version").startswith("aliquot-hook ")


def test_each_container_is_limited_when_it_starts_again(machine, room):
    room.create(past_the_library("again", 4 * GiB))
    room.wait("again", lambda seen: any(c["restartCount"] >= 1 for c in seen["status"].get("containerStatuses", [])),
              kit.START, "a second container")
    assert "answered 2" in said(room, "again") and "answered 2" in room.logs("again", "main", previous=True)


def test_a_whole_card_has_a_limit_of_its_own(machine, room):
    room.create(pod("whole", container(core=100, argv=["gpu-forger", "bypass", str(CARD - 2 * GiB)])))
    assert said(room, "whole") == f"taken={CARD - 2 * GiB}"
    assert driver_limit(machine, "whole") == CARD


def left(machine):
    """Limits that the runtime was faster with than the agent, as the agent says itself."""
    return machine.metrics()["aliquot_agent_driver_limits_left_total", ()]


def remaining(machine):
    return [x for x in limits(machine) if x[2] is not None]


def delete_limited(machine, room, name, grace=None):
    """Deletes a pod; its limit goes, or the agent says that the runtime was faster. Returns whether it has gone."""
    before, late = len(remaining(machine)), left(machine)
    room.delete(name, grace=grace)
    machine.until(lambda: before - len(remaining(machine)) + left(machine) - late == 1, 5,
                  f"the limit of {name} is gone, or told of")
    return left(machine) == late


def test_limits_are_taken_away_before_their_groups(machine, room):
    """The runtime removes a group some milliseconds after its last process: on a busy machine it can be faster."""
    gone = 0
    for name in [f"p{i}" for i in range(4)]:
        room.create(past_the_library(name, GiB))
        assert said(room, name) == f"taken={GiB}"
        gone += delete_limited(machine, room, name, grace=1)    # only SIGKILL ends it
    assert gone > 0


def test_a_restarted_agent_takes_away_what_the_one_before_has_set(machine, room):
    room.create(past_the_library("stays", GiB))
    assert said(room, "stays") == f"taken={GiB}"
    machine.agent.wait_restarted(machine.agent.kill())
    machine.until(lambda: driver_limit(machine, "stays") == 4 * GiB + SLACK, 20, "the limit is known again")
    delete_limited(machine, room, "stays")


SET_LIMIT = """
import ctypes, sys
class Limits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("soft", ctypes.c_ulonglong), ("hard", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]
uuid, group, size = sys.argv[1:]
nvml, device = ctypes.CDLL("/run/aliquot-sim/lib/libnvidia-ml.so.1"), ctypes.c_void_p()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)) == 0
limits = Limits(group.encode(), 0, int(size))
assert nvml.nvmlDeviceSetMemoryLimits_v1(device, ctypes.byref(limits)) == 0
"""


@pytest.mark.parametrize("size", [GiB, 40 * GiB])
def test_a_limit_of_another_program_is_replaced(machine, room, size):
    """Such as NVIDIA's container toolkit, whose hook reads NVIDIA_GPU_MEMORY_LIMIT."""
    seen = room.start(pod("p", container(core=10, memory=4 * GiB)))
    (device,) = kit.assignment_of(seen)["main"]
    name = seen["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    (group,) = machine.cluster.on_node(["find", "/sys/fs/cgroup/unified", "-name", name]).stdout.split()
    machine.cluster.on_node(["env", "ALIQUOT_SIM_DIR=/run/aliquot-sim", "python3", "-c", SET_LIMIT, device["uuid"], group,
                             str(size)])
    machine.until(lambda: re.search(f"another program had limited .*{name}.* it is 4128 MiB again", machine.agent.log()), 20,
                  "the agent tells")
    assert 4 * GiB + SLACK in [hard for _, _, hard in limits(machine)]
    assert size not in [hard for _, _, hard in limits(machine)]


def test_refused_limits_keep_containers_only_where_they_are_required(machine, room):
    fail = ["sim", "inject", "error", "nvmlDeviceSetMemoryLimits_v1", "999", "--times", "0"]
    machine.aliquot(*fail)
    try:
        room.create(past_the_library("without", 3 * GiB))
        assert said(room, "without") == f"taken={3 * GiB}"
        assert driver_limit(machine, "without") == 0  # never noted as set
        machine.aliquot("sim", "inject", "release")
        machine.until(lambda: driver_limit(machine, "without") == 4 * GiB + SLACK, 20, "asked for again")
        with agent_options(machine, "--driver-limits=required"):
            machine.aliquot(*fail)
            room.create(past_the_library("kept", GiB))
            room.wait("kept", lambda seen: re.search("the driver does not limit this container", text_of(seen)), kit.START,
                      "the container does not start, and says why")
            machine.aliquot("sim", "inject", "release")
            room.create(past_the_library("limited", 4 * GiB, restartPolicy="Never"))
            assert said(room, "limited") == "error=cuMemAlloc answered 2"
    finally:
        machine.aliquot("sim", "inject", "release")


def text_of(seen):
    return json.dumps((seen or {}).get("status", {}).get("containerStatuses", []))
