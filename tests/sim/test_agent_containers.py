# SPDX-License-Identifier: Apache-2.0
"""What containers get of the driver when it, or the numbers of its cards, change below a running agent: without a cluster,
with an API server and a kubelet of the test."""

import concurrent.futures
import json
import pathlib
import re
import tempfile

import pytest
from fake_api import Api, merged
from fake_kubelet import Kubelet
from sim_kit import ALIQUOT, Node, parts, wait_until
from test_sim_health import Agent

TWO = "[machine]\ndriver = 570.124.06\n[gpu 0-1]\nmodel = A100\n"
DIVIDED = TWO + "mig = 3g.40gb\n"
PARTS = 64      # the numbers of instances begin there in `aliquot sim show`
# Nothing reads the cards between the steps of a test but what an event causes.
RARELY = "interval: 60s, deadline: 60s, settle: 100ms"


class World:
    """A node whose cards are given out whole, with an API server and a kubelet."""

    def __init__(self, node, path, **options):
        self.node, self.path, self.options = node, path, options
        self.api, self.kubelet = Api(path), Kubelet(path / "kubelet")
        self.api.put("nodes", {"metadata": {"name": "n"}, "status": {"nodeInfo": {}, "capacity": {}, "allocatable": {},
                                                                     "conditions": []}})
        self.agent = self.other = None

    def configure(self, health=RARELY, reset="{policy: idle}", more=""):
        (self.path / "new").write_text(
            "version: v1\nflags: {migStrategy: mixed}\nresources: {gpus: [{pattern: A100, name: a100}]}\naliquot:\n"
            f"  health: {{{health}}}\n  reset: {reset}\n{more}")
        (self.path / "new").rename(self.path / "config")

    def start(self):
        self.agent = Agent(self.node, self.path, **{
            "api-server": self.api.url, "ca-file": self.api.ca, "config-file": self.path / "config", **self.options})
        wait_until(lambda: self.api.find("gpus"), what="the agent reports its cards")

    def pod(self, uid, resource, *devices):
        """A pod that kubelet has given these devices."""
        self.api.put("pods", {"metadata": {"name": uid, "namespace": "ns", "uid": uid},
                              "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {
                                  "limits": {f"nvidia.com/{resource}": len(devices)}}}]},
                              "status": {"phase": "Running"}})
        self.kubelet.allocate(resource, uid, list(devices))

    def nodes(self, uid):
        """The driver's nodes in the CDI file of the pod's container, without those of every container."""
        text = (self.path / f"cdi/elasticgpu.io-share-{self.kubelet.nonce(uid)}.json").read_text()
        return {name for name in re.findall(rf'"{self.node.dir}/([^"]*)"', text) if re.search(r"nvidia\d|nvidia-cap\d", name)}

    def cards(self):
        """{UUID: number of its device node}, by the driver's kernel module."""
        found = {}
        for file in (self.node.dir / "proc/driver/nvidia/gpus").glob("*/information"):
            text = file.read_text()
            found[re.search(r"UUID:\s*(\S+)", text)[1]] = int(re.search(r"Minor:\s*(\d+)", text)[1])
        return found

    def uuids(self):
        """Of the cards, in the order of NVML."""
        return [shown["uuid"] for shown in self.node.show() if int(shown.get("gpu", PARTS)) < PARTS]

    def waiting(self):
        """The number of containers that wait for their devices."""
        return int(re.search(r"^aliquot_agent_prestart_waiting (\d+)$", self.agent.get("/metrics"), re.M)[1])

    def order(self, maintenance):
        """The annotation of `aliquot node release` and the like."""
        key = ("nodes", "", "n")
        with self.api.lock:
            self.api.change("MODIFIED", key, merged(self.api.objects[key], {
                "metadata": {"annotations": {"elasticgpu.io/maintenance": maintenance}}}))

    def exchange(self, machine):
        """Another driver at the same place."""
        file = self.path / "other.machine"
        file.write_text(machine)
        self.node = self.other = Node(self.node.dir, "--machine", file)

    def close(self):
        if self.other:
            self.other.close()
        if self.agent:
            self.agent.kill()
        self.api.close()


@pytest.fixture
def world_of(node_of, tmp_path):
    with tempfile.TemporaryDirectory() as name:     # a short name, for sockets
        worlds = []

        def make(machine, **options):
            file = tmp_path / "m.machine"
            file.write_text(machine)
            worlds.append(World(node_of("--machine", file), pathlib.Path(name), **options))
            return worlds[-1]
        yield make
        for world in worlds:
            world.close()


class Swap:
    """A reset command that exchanges the numbers of both cards, as a host can do, and then waits for the test."""

    def __init__(self, world):
        self.swapped, self.go = world.path / "swapped", world.path / "go"
        self.program = world.path / "swap"
        self.program.write_text(
            f"#!/bin/sh\n[ -e {self.swapped} ] || {ALIQUOT} sim inject --dir {world.node.dir} swap-minors 1 --gpu 0 --force || exit\n"
            f": >{self.swapped}\nuntil [ -e {self.go} ]; do sleep 0.05; done\n")
        self.program.chmod(0o755)

    def wait(self):
        wait_until(self.swapped.exists, what="the numbers are exchanged")

    def end(self):
        self.go.touch()


def test_a_container_gets_the_node_of_its_card_after_a_swap(world_of):
    """By the agent's own reset of another card. One that runs is restarted while the agent has not read the cards again, one
    begins afterwards."""
    world = world_of(TWO)
    swap = Swap(world)
    world.configure(reset=f"{{policy: idle, command: [{swap.program}, UUID], timeout: 60s}}")
    world.start()
    before = world.cards()
    first, second = world.uuids()
    world.agent.wait(1, "Healthy")
    world.pod("held", "a100", second)
    world.kubelet.start("held")
    assert world.nodes("held") == {f"nvidia{before[second]}"}
    world.node.inject("xid", 48, "--gpu", 0)
    swap.wait()
    now = world.cards()
    assert now == {first: before[second], second: before[first]}
    world.kubelet.start("held")
    assert world.nodes("held") == {f"nvidia{now[second]}"}
    swap.end()
    world.agent.wait(0, "Healthy")
    world.pod("new", "a100", first)
    world.kubelet.start("new")
    assert world.nodes("new") == {f"nvidia{now[first]}"}
    world.kubelet.start("held")
    assert world.nodes("held") == {f"nvidia{now[second]}"}


def make_instance(nvml, uuid):
    """A 3g.40gb with one compute instance on a card that has none; the UUID of the instance."""
    card = nvml.nvmlDeviceGetHandleByUUID(uuid)
    nvml.nvmlGpuInstanceCreateComputeInstance(nvml.nvmlDeviceCreateGpuInstance(card, 9), 2)
    (part,) = parts(nvml, card)
    return nvml.nvmlDeviceGetUUID(part)


def capabilities(world, uuid):
    """The nodes of the one instance of a card, and the card's own, by the driver's kernel module."""
    number = world.cards()[uuid]
    files = list((world.node.dir / f"proc/driver/nvidia/capabilities/gpu{number}/mig").rglob("access"))
    assert len(files) == 2
    return {f"nvidia{number}"} | {"nvidia-caps/nvidia-cap" + re.search(r"DeviceFileMinor: (\d+)", file.read_text())[1] for file in files}


def test_an_instance_comes_with_the_nodes_of_its_card_after_a_swap(world_of, nvml_of):
    """Which are made again after it, first on the other card, with the same ids. The container that has one of them waits for
    its own."""
    world = world_of(DIVIDED)
    nvml = nvml_of(world.node)
    swap = Swap(world)
    reset = f"{{policy: idle, command: [{swap.program}, UUID], timeout: 60s}}"
    world.configure(reset=reset)
    first, second = world.uuids()
    held = nvml.nvmlDeviceGetUUID(*parts(nvml, nvml.nvmlDeviceGetHandleByUUID(second)))
    world.start()
    before = capabilities(world, second)
    wait_until(lambda: held in world.agent.states(), what="the agent knows the instance")
    world.pod("held", "mig-3g.40gb", held)
    world.kubelet.start("held")
    assert world.nodes("held") == before
    world.node.inject("xid", 48, "--gpu", 0)
    swap.wait()
    make_instance(nvml, first)
    assert capabilities(world, first) == before
    with concurrent.futures.ThreadPoolExecutor() as pool:
        again = pool.submit(world.kubelet.start, "held")
        wait_until(lambda: world.waiting() == 1 and held not in world.agent.states(), what="the container waits")
        assert make_instance(nvml, second) == held
        world.configure(reset=reset, health="interval: 200ms")
        again.result()
    assert world.nodes("held") == capabilities(world, second) != before
    swap.end()


def exchanged(driver, *cards):
    """A machine with these cards, (UUID, PCI address) in their order: their device nodes have the numbers 0, 1..."""
    return f"[machine]\ndriver = {driver}\n[gpu 0-1]\nmodel = A100\n" + "".join(
        f"[gpu {n}]\nuuid = {uuid}\npci = {address}\n" for n, (uuid, address) in enumerate(cards))


A, B = (("GPU-00000000-0000-0000-0000-00000000000" + end, f"0000:0{end}:00.0") for end in "12")


def follows(world, driver, numbers):
    """Whether all that the agent says is of that driver: {UUID: number}."""
    page, inventory = world.agent.get("/metrics"), json.loads((world.path / "state/inventory.json").read_text())
    labels = world.api.find("nodes")["n"]["metadata"].get("labels", {})
    nodes = {uuid: f"nvidia{number}" for uuid, number in numbers.items()}
    return (f'DCGM_FI_DRIVER_VERSION="{driver}"' in page and
            dict(re.findall(r'^DCGM_FI_DEV_FB_USED{.*?UUID="(GPU-[^"]*)".*?device="(nvidia\d+)"', page, re.M)) == nodes and
            {card["uuid"]: card["minor"] for card in inventory["devices"]} == numbers and inventory["driver"] == driver and
            labels.get("nvidia.com/cuda.driver-version.full") == driver and
            {gpu["spec"]["uuid"]: gpu["spec"]["path"] for gpu in world.api.find("gpus").values()} ==
            {uuid: f"{world.node.dir}/{node}" for uuid, node in nodes.items()})


@pytest.mark.parametrize("released", [False, True])
def test_a_driver_is_exchanged_below_the_agent(world_of, released):
    """Another version, which numbers the cards otherwise. A container that is restarted meanwhile waits for the new one."""
    world = world_of(exchanged("535.183.01", A, B))
    world.configure(health="interval: 200ms")
    world.start()
    wait_until(lambda: follows(world, "535.183.01", {A[0]: 0, B[0]: 1}), what="the first driver")
    world.pod("held", "a100", B[0])
    world.kubelet.start("held")
    assert world.nodes("held") == {"nvidia1"}
    if released:
        world.order("release")
        wait_until(lambda: set(world.agent.states().values()) == {"Unknown"} and
                   all(shown["clients"] == "0" for shown in world.node.show() if "clients" in shown), what="it closes the cards")
    world.node.close()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        again = pool.submit(world.kubelet.start, "held")
        wait_until(lambda: world.waiting() == 1, what="the container waits")
        world.exchange(exchanged("580.65.06", B, A))
        if released:
            assert set(world.agent.states().values()) == {"Unknown"} and not again.done()
            world.order(None)
        again.result()
    assert world.nodes("held") == {"nvidia0"}
    wait_until(lambda: follows(world, "580.65.06", {A[0]: 1, B[0]: 0}), what="the second driver")
    wait_until(lambda: set(world.agent.states().values()) == {"Healthy"}, what="healthy cards")
