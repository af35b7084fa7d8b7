# SPDX-License-Identifier: Apache-2.0
"""What containers get of the driver when it, or the numbers of its cards, change below a running agent: without a cluster,
with an API server and a kubelet of the test."""

import concurrent.futures
import json
import os
import re
import stat

import pytest
from sim_kit import ALIQUOT, parts, wait_until

TWO = "[machine]\ndriver = 570.124.06\n[gpu 0-1]\nmodel = A100\n"
DIVIDED = TWO + "mig = 3g.40gb\n"
# Nothing reads the cards between the steps of a test but what an event causes.
RARELY = {"health": "interval: 60s, deadline: 60s, settle: 100ms", "resources": "{gpus: [{pattern: A100, name: a100}]}"}


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
    world.configure(**RARELY, reset=f"{{policy: idle, command: [{swap.program}, UUID], timeout: 60s}}")
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
    world.configure(**RARELY, reset=reset)
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
        world.configure(**{**RARELY, "health": "interval: 200ms"}, reset=reset)
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
    labels = world.node_object("labels")
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
    world.configure(**{**RARELY, "health": "interval: 200ms"})
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


def test_nodes_beside_the_drivers(world_of):
    """Of GPUDirect Storage, RDMA, GDRCopy and IMEX, where the configuration says so: from the next start of a container on."""
    world = world_of(TWO)
    world.options["host-root"] = host = world.path / "host"
    names = ["/dev/nvidia-fs0", "/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm", "/dev/gdrdrv",
             "/dev/nvidia-caps-imex-channels/channel0"]
    for name in names:
        (host / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        os.mknod(host / name[1:], stat.S_IFCHR | 0o600, os.makedev(0, 0))
    world.configure(**RARELY)
    world.start()
    world.pod("held", "a100", world.uuids()[0])

    def nodes():
        world.kubelet.start("held")
        return [node["path"] for node in world.cdi("held").get("deviceNodes", [])]
    assert nodes() == []
    world.configure(**RARELY, flags="gdsEnabled: true, mofedEnabled: true, gdrcopyEnabled: true", more="imex: {channelIDs: [0]}")
    wait_until(lambda: nodes() == names, 2, what="the nodes")
    world.configure(**RARELY, flags="mofedEnabled: true")
    wait_until(lambda: nodes() == names[1:3], 2, what="the nodes of RDMA only")
