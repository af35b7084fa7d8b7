# SPDX-License-Identifier: Apache-2.0
"""The capabilities of MIG: nodes, files of /proc, and what a process can do with some of them."""

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from sim_kit import ALIQUOT, BUILD, wait_until
from test_sim_garbage import ATTACH, HELLO, PROTO, connect, reply, request, session

READER = Path(__file__).with_name("mig_reader.py")
BYPASS = BUILD / "tests/workloads/driver-bypass"
# A container's process has user 0 and not CAP_SYS_ADMIN. The daemon takes the processes of its own user for
# administrators where it is no root itself.
CONTAINED = ["setpriv", "--bounding-set=-sys_admin"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a process that is no administrator")


class Container:
    """A process without CAP_SYS_ADMIN that reaches some of a node's device nodes."""

    def __init__(self, node, directory, *names):
        self.node, self.dir = node, directory
        (directory / "nvidia-caps").mkdir()
        self.give("nvidiactl", *names)

    def give(self, *names):
        for name in names:
            os.link(self.node.dir / name, self.dir / name)

    def take(self, *names):
        for name in names:
            (self.dir / name).unlink()

    def see(self, *commands, contained=True, **env):
        r = self.node.run(*(CONTAINED if contained else []), sys.executable, READER, *commands,
                          ALIQUOT_SIM_DIR=str(self.dir), **env)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)

    def bypass(self):
        """What a program without libraries reaches."""
        r = self.node.run(*CONTAINED, BYPASS, "reach", self.dir)
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)


@pytest.fixture
def node(tmp_path, node_of):
    """Card 0 has three instances of one compute instance each, and card 1 is whole."""
    machine = tmp_path / "m.machine"
    machine.write_text("[gpu 0-1]\nmodel = A100\n[gpu 0]\nmig = 3g.40gb,2g.20gb,1g.10gb\n")
    return node_of("--machine", machine)


@pytest.fixture
def container(node, tmp_path):
    count = iter(range(100))

    def make(*names):
        directory = tmp_path / f"c{next(count)}"
        directory.mkdir()
        return Container(node, directory, *names)

    return make


def minors(node):
    lines = (node.dir / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines()
    return {name: int(number) for name, number in (line.split(" ") for line in lines)}


def access(node):
    """Path to number, of the instances that exist."""
    top = node.dir / "proc/driver/nvidia/capabilities"
    return {str(f.relative_to(top)): dict(line.split(": ") for line in f.read_text().splitlines())
            for f in sorted(top.glob("gpu*/**/access"))}


def cap(number):
    return f"nvidia-caps/nvidia-cap{number}"


def of_instance(node, gi, ci=0, gpu=0):
    """The names of the two nodes of a MIG device."""
    m = minors(node)
    return cap(m[f"gpu{gpu}/gi{gi}/access"]), cap(m[f"gpu{gpu}/gi{gi}/ci{ci}/access"])


def by_gi(node, nvml):
    """UUIDs of the MIG devices of card 0, by the number of their GPU instance."""
    gpu, found = nvml.nvmlDeviceGetHandleByIndex(0), {}
    for i in range(3):
        part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, i)
        found[nvml.nvmlDeviceGetGpuInstanceId(part)] = nvml.nvmlDeviceGetUUID(part)
    return found


def test_numbers_are_those_of_the_driver(node):
    numbers = minors(node)
    assert {k: numbers[k] for k in ("config", "monitor", "gpu0/gi0/access", "gpu0/gi0/ci0/access", "gpu0/gi0/ci1/access",
                                    "gpu31/gi14/ci6/access", "gpu31/gi14/ci7/access")} == {
        "config": 1, "monitor": 2, "gpu0/gi0/access": 3, "gpu0/gi0/ci0/access": 4, "gpu0/gi0/ci1/access": 5,
        "gpu31/gi14/ci6/access": 4321, "gpu31/gi14/ci7/access": 4322}
    assert sorted(numbers.values()) == list(range(1, 4323))
    files = access(node)
    assert set(files) == {f"gpu0/mig/gi{i}/{c}access" for i in (1, 2, 3) for c in ("", "ci0/")}
    for name, content in files.items():
        number = numbers[name.replace("/mig/", "/")]
        assert content == {"DeviceFileMinor": str(number), "DeviceFileMode": "292", "DeviceFileModify": "1"}
        assert (node.dir / cap(number)).is_socket()
    top = node.dir / "proc/driver/nvidia/capabilities/mig"
    assert (top / "config").read_text() == "DeviceFileMinor: 1\nDeviceFileMode: 256\nDeviceFileModify: 1\n"
    assert "DeviceFileMinor: 2\n" in (top / "monitor").read_text()
    assert [(node.dir / cap(n)).stat().st_mode & 0o777 for n in (1, 2)] == [0o600, 0o666]


def test_files_follow_the_instances(node, nvml_of):
    nvml = nvml_of(node)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    before = access(node)
    one = nvml.nvmlDeviceGetGpuInstanceById(gpu, 2)
    nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(one, 0))
    assert set(before) - set(access(node)) == {"gpu0/mig/gi2/ci0/access"}
    nvml.nvmlGpuInstanceDestroy(one)
    assert set(before) - set(access(node)) == {"gpu0/mig/gi2/access", "gpu0/mig/gi2/ci0/access"}
    assert not (node.dir / "proc/driver/nvidia/capabilities/gpu0/mig/gi2").exists()
    again = nvml.nvmlDeviceCreateGpuInstance(gpu, 14)
    nvml.nvmlGpuInstanceCreateComputeInstance(again, 1)
    assert access(node) == before
    nvml.nvmlDeviceSetMigMode(gpu, 0)
    assert access(node) == {}


@needs_root
def test_a_container_reaches_the_instance_of_its_nodes_only(node, nvml_of, container):
    uuids = by_gi(node, nvml_of(node))
    mine = container("nvidia0", *of_instance(node, 2))
    seen = mine.see("nvml", "cuda", "nodes")
    assert [list(card["parts"]) for card in seen["nvml"]] == [[uuids[2]]]
    assert [("MIG-" + d["uuid"], d["context"]) for d in seen["cuda"]] == [(uuids[2], 0)]
    # The other instances by their UUIDs: not there.
    assert mine.see("cuda", CUDA_VISIBLE_DEVICES=uuids[1])["cuda"] == 100
    # Both nodes are needed, and the card's.
    for names in (("nvidia0",), ("nvidia0", of_instance(node, 2)[0]), ("nvidia0", of_instance(node, 2)[1]),
                  ("nvidia1", *of_instance(node, 2))):
        seen = container(*names).see("nvml", "cuda")
        assert all(card["parts"] == {} for card in seen["nvml"])
        assert seen["cuda"] == 100 if "nvidia1" not in names else [d["context"] for d in seen["cuda"]] == [0]


@needs_root
def test_a_program_without_libraries(node, nvml_of, container):
    """The daemon itself refuses what the libraries do not ask for."""
    uuids = by_gi(node, nvml_of(node))
    own = of_instance(node, 2)
    before = access(node)
    nothing = {"cards": [0], "card": {"0": [-errno.ENODEV, -errno.ENODEV]}, "instances": {}, "others": 3, "taken": [], "changed": []}

    def numbers(*names):
        return {"capabilities": [int(name.removeprefix("nvidia-caps/nvidia-cap")) for name in names]}
    assert container("nvidia0", *own).bypass() == nothing | numbers(*own) | {"instances": {uuids[2]: [0, 0]}, "others": 2}
    for names in ((), own[:1], own[1:]):
        assert container("nvidia0", *names).bypass() == nothing | numbers(*names)
    # Without the card's node those of the instance are good for nothing.
    assert container(*own).bypass() == nothing | numbers(*own) | {"cards": [], "card": {}, "others": 0}
    monitor = container("nvidia0", cap(2)).bypass()
    assert len([text for text in monitor.pop("changed") if text.startswith("figures of ")]) == len(uuids)
    assert monitor == {key: value for key, value in (nothing | numbers(cap(2))).items() if key != "changed"}
    assert access(node) == before


@needs_root
def test_open_nodes_show(node, container):
    nodes = of_instance(node, 2)
    open_nodes = container("nvidia0", *nodes).see("cuda", "nodes")["nodes"]
    assert open_nodes == sorted(["nvidiactl", "nvidia0", *(Path(n).name for n in nodes)])


@needs_root
def test_figures_of_all_instances_are_for_the_monitor(node, nvml_of, container):
    uuids = by_gi(node, nvml_of(node))
    user = node.start("hold", 1 << 30, CUDA_VISIBLE_DEVICES=uuids[1])
    assert user.stdout.readline().split()[0] == "0"
    mine = container("nvidia0", *of_instance(node, 2))
    card, = mine.see("nvml")["nvml"]
    assert (card["memory"], card["processes"]) == ("NoPermission", "NoPermission")
    assert card["parts"] == {uuids[2]: [0, 0]}
    mine.give(cap(2))
    card, = mine.see("nvml")["nvml"]
    assert card["memory"] > 1 << 30 and card["processes"] == 1
    assert set(card["parts"]) == set(uuids.values())
    assert card["parts"][uuids[1]][0] > 1 << 30 and card["parts"][uuids[1]][1] == 1
    # It reads the others, and uses none of them.
    assert mine.see("cuda", CUDA_VISIBLE_DEVICES=uuids[1])["cuda"] == 100
    assert container("nvidia0", cap(2)).see("cuda")["cuda"] == 100


@needs_root
def test_only_config_creates(node, container):
    mine = container("nvidia0", cap(2), *of_instance(node, 2))
    assert mine.see("nvml", "places", "create", "mode")["create"] == "NoPermission"
    mine.give(cap(1))
    seen = mine.see("nvml", "places", "create", "mode")
    assert seen["places"] == 1 and isinstance(seen["create"], int)
    assert seen["mode"] == "NoPermission"      # for administrators only
    assert f"gpu0/mig/gi{seen['create']}/ci0/access" in access(node)


@needs_root
def test_user_0_of_a_container_changes_no_setting(container):
    mine = container("nvidia0", "nvidia1", cap(1), cap(2))
    assert mine.see("nvml", "persistence")["persistence"] == "NoPermission"
    assert mine.see("nvml", "persistence", contained=False)["persistence"] is None


def test_an_administrator_needs_no_node(node, container):
    seen = container("nvidia0").see("nvml", "cuda", contained=False)
    assert len(seen["nvml"][0]["parts"]) == 3 and seen["nvml"][0]["memory"] == 0
    assert [d["context"] for d in seen["cuda"]] == [0]


@needs_root
def test_a_node_is_a_number_and_not_an_instance(node, nvml_of, container):
    """A container that keeps the nodes of a destroyed instance reaches the next one with these numbers."""
    nvml = nvml_of(node)
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    mine = container("nvidia0", *of_instance(node, 2))
    one = nvml.nvmlDeviceGetGpuInstanceById(gpu, 2)
    nvml.nvmlComputeInstanceDestroy(nvml.nvmlGpuInstanceGetComputeInstanceById(one, 0))
    nvml.nvmlGpuInstanceDestroy(one)
    assert mine.see("cuda")["cuda"] == 100
    again = nvml.nvmlDeviceCreateGpuInstance(gpu, 19)
    nvml.nvmlGpuInstanceCreateComputeInstance(again, 0)
    assert nvml.nvmlGpuInstanceGetInfo(again).id == 2
    assert [d["context"] for d in mine.see("cuda")["cuda"]] == [0]


def test_garbage_on_a_node(node):
    kept = session(node, 0)     # open until the end
    token = kept[2]
    for packet in (request(ATTACH, token=(1, 2)), request(HELLO, a=PROTO), b"x", request(ATTACH, token=token) + b"x"):
        sender = connect(node, cap(1))
        sender.send(packet)
        assert reply(sender) is None
    taken = connect(node, cap(1))
    for expected in (0, None):      # once; and the session's own connection goes on
        taken.send(request(ATTACH, token=token))
        answer = reply(taken)
        assert (answer and answer[0]) == expected
    assert node.hold(1 << 30)[1] == 0


@pytest.mark.parametrize("length,refused", [(76, False), (77, True)])
def test_a_directory_with_too_long_a_name(length, refused):
    """It is refused at the start, and not when the first instance with a high number is made."""
    with tempfile.TemporaryDirectory(dir="/tmp") as top:
        directory = Path(top) / ("d" * (length - len(top) - 1))
        daemon = subprocess.Popen([ALIQUOT, "sim", "--listen", directory], stderr=subprocess.PIPE, text=True)
        try:
            wait_until(lambda: daemon.poll() is not None or (directory / "nvidiactl").exists(), what="it starts or ends")
            assert (daemon.poll() is not None) == refused
        finally:
            daemon.terminate()
            _, said = daemon.communicate(timeout=10)
        assert ("too long for the paths of sockets" in said) == refused


def test_a_killed_daemon_leaves_nothing(node):
    """A new one on its directory has the files of its own instances only."""
    node.daemon.kill()
    assert access(node)
    node.daemon.communicate()
    node.daemon = subprocess.Popen([ALIQUOT, "sim", "--listen", node.dir, "--gpus", "1"],
                                   stderr=subprocess.PIPE, text=True)
    wait_until(lambda: "loaded=yes" in node.run(ALIQUOT, "sim", "show").stdout, what="the new daemon serves")
    assert access(node) == {} and sorted(p.name for p in (node.dir / "nvidia-caps").iterdir()) == [
        "nvidia-cap1", "nvidia-cap2"]
