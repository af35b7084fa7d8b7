# SPDX-License-Identifier: Apache-2.0
"""What an operator sees: the commands of the README as they are pasted, and nodes that take no pod."""

import json
import os
import re

import pytest

import doc_commands
import kit
from cluster import api as kube
from kit import CARD, CORE, MEMORY, SLOT, GiB, container, pod

README = os.path.join(os.path.dirname(__file__), "../../README.md")


@pytest.fixture
def pods_of_the_demo(world):
    """Those that a kept demo has left, on both cards."""
    shares = {"alice": (30, 20), "bob": (30, 20), "karl": (30, 60)}
    for name, (core, memory) in shares.items():
        world.api.create(kube.pods(), pod(name, container(core=core, memory=memory * GiB)))
    for name in shares:
        world.api.wait(kube.pods(), name, kit.is_running, 60, f"{name} running")
    yield
    world.cluster.kubectl("delete", "pod", *shares, "--ignore-not-found")


def card_of(seen):
    (device,) = kit.assignment_of(seen)["main"]
    return device["uuid"]


# The first test: the pods of the demo need both cards whole.
def test_the_tutorial(world, pods_of_the_demo):
    """Its pods run as it says."""
    *lines, last = [command.text for command in doc_commands.of_kind("tutorial")]
    own = f"PATH={world.build}/src/cli:$PATH\naliquot() {{ command aliquot \"$@\" || [ \"$1 $?\" = \"doctor 1\" ]; }}"
    try:
        shown = world.cluster.on_node(["bash", "-euo", "pipefail", "-c", "\n".join([own, *lines])]).stdout
        first, second = (world.api.get(kube.pods(name=name)) for name in ("first", "second"))
        assert card_of(first) == card_of(second)
        world.until(lambda: f"device_total={20 * GiB}\n" in world.cluster.kubectl("logs", "first"), kit.START, "the card that first sees")
        world.cluster.on_node(["bash", "-euo", "pipefail", "-c", last])
    finally:
        world.cluster.kubectl("delete", "pod", "first", "second", "third", "--ignore-not-found")
    for word in ("default/first (main)", "default/second (main)", "Pod default/first is on node", "Pod default/third is pending"):
        assert word in shown, (word, shown)


@pytest.fixture(scope="module")
def my_pod(world):
    """The pod that the README names, in the namespace that kubectl asks by itself."""
    world.api.create(kube.pods(), pod("my-pod", container(core=30, memory=20 * GiB)))
    yield world.api.wait(kube.pods(), "my-pod", kit.is_running, 60, "my-pod running")
    world.api.delete(kube.pods(name="my-pod"))


def test_the_commands_of_the_readme(world, my_pod):
    with open(README) as f:
        (block,) = re.findall(r"^## Inspect\n\n```sh\n(.*?)^```$", f.read(), re.M | re.S)
    shown = world.cluster.on_node(["sh", "-euc", f"PATH={world.build}/src/cli:$PATH\n{block}"]).stdout
    for word in ("MODEL", "nodeName: node-a", "default/my-pod (main)", "MOST FREE ON A CARD", "Pod default/my-pod is on node",
                 "aliquot_gpu_memory_used_bytes{", 'container="main"', "DCGM_FI_DEV_"):
        assert word in shown, (word, shown)


# What changes something is judged by the API server and not done; doctor may find something.
AS_READ = """\
kubectl() {
    case " $* " in
        *" get "* | *" describe "* | *" explain "* | *" --dry-run="*) command kubectl "$@" ;;
        *) command kubectl "$@" --dry-run=server ;;
    esac
}
aliquot() { command aliquot "$@" || [ "$1 $?" = "doctor 1" ]; }
"""


@pytest.mark.parametrize("path", sorted({command.path for command in doc_commands.of_kind("cluster")}))
def test_the_commands_of_the_documents(world, my_pod, path):
    card = world.api.get(kube.gpus())["items"][0]["metadata"]["name"]
    failed = []
    for command in doc_commands.of_kind("cluster"):
        if command.path == path:
            text = "\n".join([f"cd {doc_commands.TOP}; PATH={world.build}/src/cli:$PATH", AS_READ, *command.before, command.text])
            text = re.sub(r"\bNODE\b(?!:)", world.cluster.node, re.sub(r"\bNAME\b(?!:)", card, text))
            done = world.cluster.on_node(["bash", "-euo", "pipefail", "-c", text], check=False)
            if done.returncode != 0:
                failed.append(f"{path}:{command.line}: {command.text}\n{done.stdout}{done.stderr}")
    assert not failed, "\n".join(failed)


def test_doctor(world, my_pod):
    """What it reads of a real cluster; each thing that can be wrong is in tests/cli/test_doctor.py."""
    command = f"PATH={world.build}/src/cli:$PATH aliquot doctor --json || [ $? = 1 ]"
    findings = json.loads(world.cluster.on_node(["sh", "-euc", command]).stdout)["findings"]
    well = {f["check"] for f in findings if f["level"] == "ok"}
    assert {"API server", "admission", "scheduler", "placing", "agents", "other plugins", "clocks"} <= well, findings


@pytest.fixture
def other_node(world):
    """A node that is objects only, with one GPU."""
    name = kit.new_name("node")
    offered = {"cpu": "1", CORE: "100", SLOT: "100"}
    world.api.create(kube.core("nodes"), {"metadata": {"name": name, "labels": {"nvidia-device-enable": "disable"}}})
    world.api.patch(kube.core("nodes", name=name) + "/status", {"status": {"capacity": offered, "allocatable": offered}})
    world.api.create(kube.gpus(), {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": {"name": name + "-00"},
        "spec": {"index": 0, "memory": CARD, "model": "M", "nodeName": name, "path": "/dev/nvidia0", "uuid": "GPU-" + name}})
    world.api.patch(kube.gpus(name + "-00") + "/status", {"status": {
        "state": "Healthy", "capacity": {CORE: "100", MEMORY: str(CARD)}}})
    yield name
    world.api.delete(kube.gpus(name + "-00"))
    world.api.delete(kube.core("nodes", name=name))


def test_a_node_that_is_not_ready(world, other_node):
    """Its GPU is shown as one of which nothing can be had, until the node is ready."""
    def seen(status):
        world.api.patch(kube.core("nodes", name=other_node) + "/status", {"status": {"conditions": [
            {"type": "Ready", "status": status, "reason": "Test", "message": "", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
             "lastTransitionTime": "2026-01-01T00:00:00Z"}]}})
        return lambda: world.api.get(kube.gpus(other_node + "-00"))["status"]

    told = seen("False")
    world.until(lambda: told().get("unavailable") == "node is not ready", 30, "the GPU is unavailable")
    assert told()["allocatable"] == {CORE: "0", MEMORY: "0"}
    row = next(line for line in world.aliquot("inspect", "card", other_node + "-00").splitlines() if other_node in line)
    assert row.split()[-1] == told()["state"] == "Unknown"
    told = seen("True")
    world.until(lambda: "unavailable" not in told(), 30, "the GPU is available")
    assert told()["state"] == "Unknown"     # until its agent is back
    world.api.patch(kube.gpus(other_node + "-00") + "/status", {"status": {"state": "Healthy"}})
    world.until(lambda: told()["allocatable"][CORE] != "0", 30, "the GPU is free")
    assert told()["allocatable"][CORE] == "100"
