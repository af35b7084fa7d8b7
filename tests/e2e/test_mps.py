# SPDX-License-Identifier: Apache-2.0
"""Cards under MPS on a node, with NVIDIA's control daemon: what a container gets, the daemon's end, the agent's end. The
simulated driver enforces the compute mode and has no MPS of its own, so that one program at a time can use a card here."""

import json
import os
import signal

import kit
import pytest
from cluster import aliquot
from kit import GiB, container, pod
from test_oversee import agent_options

SIM = "/run/aliquot-sim"
STATE = "/run/aliquot/mps"


@pytest.fixture
def under_mps(world, nvidia_smi):
    """The node with all cards under MPS, and without at the end."""
    root = nvidia_smi.parent / "root/usr"
    aliquot.add_to_driver(world.cluster, root / "bin/nvidia-cuda-mps-control", root / "sbin/nvidia-cuda-mps-server")
    with agent_options(world, "--mps-cards=all"):
        world.until(lambda: ready(world) == [1.0] * len(world.gpus()), 30, "MPS is ready")
        yield world
    world.until(lambda: not daemons(world), 30, "MPS has ended")
    assert [compute_mode(world, g["spec"]["uuid"]) for g in world.gpus()] == ["0"] * len(world.gpus())


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


def test_a_share_under_mps(under_mps, space):
    world = under_mps
    seen = space.start(pod("client", container(core=30, memory=4 * GiB)))
    spec = json.loads(world.ctr("containers", "info", seen["status"]["containerStatuses"][0]["containerID"].partition("://")[2]))
    spec = spec["Spec"]
    env = dict(e.split("=", 1) for e in spec["process"]["env"])
    mounts = {m["destination"]: m["source"] for m in spec["mounts"]}
    (uuid,) = (g["spec"]["uuid"] for g in world.gpus() if g["status"].get("allocated"))
    assert env["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "30"
    assert env["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == f"0={4 * 1024 + 32}M"
    assert mounts[env["CUDA_MPS_PIPE_DIRECTORY"]] == f"{STATE}/{uuid}/pipe"
    assert mounts["/dev/shm"] == f"{STATE}/{uuid}/shm"
    assert compute_mode(world, uuid) == "3"

    # The end of the daemon, and of the agent's container, with which the runtime ends its daemons.
    first = daemons(world)[uuid]
    os.kill(host_pid(world, first), signal.SIGKILL)
    world.until(lambda: 1.0 in figures(world, "aliquot_gpu_mps_restarts_total"), 20, "the agent has started it again")
    world.until(lambda: ready(world) == [1.0] * len(world.gpus()), 20, "MPS is ready again")
    assert daemons(world)[uuid] != first
    world.agent.wait_restarted(world.agent.kill())
    world.until(lambda: ready(world) == [1.0] * len(world.gpus()), 30, "MPS is ready under the next agent")
    assert compute_mode(world, uuid) == "3"
    space.end("client")


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
