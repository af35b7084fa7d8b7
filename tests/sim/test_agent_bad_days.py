# SPDX-License-Identifier: Apache-2.0
"""Bad days of the driver as the agent meets them: a card that is lost for good, a flood of XIDs, another driver after a
restart, an instance that another program destroys, minor numbers that a reset has exchanged. And a root that takes no file."""

import os
import pathlib
import re
import socket
import statistics
import struct
import subprocess
import tempfile
import threading
import time

import pytest
from sim_kit import BUILD, GIB, Node, parts, wait_until
from test_sim_health import Agent

EIGHT = "[gpu 0-7]\nmodel = A100\n"
FLOOD = 10000


@pytest.fixture
def machine(tmp_path):
    """make(text, driver=...): the simulated driver of a machine. The directory of the next one is the same."""
    nodes = []

    def make(text, driver="570.124.06"):
        for old in nodes:
            old.close()
        nodes.clear()
        file = tmp_path / "m.machine"
        file.write_text(f"[machine]\ndriver = {driver}\n{text}")
        directory = tmp_path / "n"
        directory.mkdir(exist_ok=True)
        nodes.append(Node(directory, "--machine", file))
        return nodes[0]
    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def agent_on():
    with tempfile.TemporaryDirectory() as path:     # a short name, for sockets
        agents = []

        def start(node, **more):
            agents.append(Agent(node, pathlib.Path(path), **more))
            return agents[-1]
        yield start
        for agent in agents:
            agent.kill()


def states(agent):
    """{card: its state}."""
    return {int(card): state for card, state in
            re.findall(r'^aliquot_gpu_state{.*?gpu="(\d+)".*?state="(\w+)"}.* 1$', agent.get("/metrics"), re.M)}


def test_a_card_is_lost_for_good_while_seven_work(machine, agent_on):
    """Its seven neighbours stay healthy, with figures that follow, also for an agent that starts afterwards."""
    node = machine(EIGHT)
    agent = agent_on(node)
    wait_until(lambda: states(agent) == dict.fromkeys(range(8), "Healthy"), what="eight healthy cards")
    node.inject("lose", "--gpu", 3)
    others = dict.fromkeys(set(range(8)) - {3}, "Healthy")
    wait_until(lambda: states(agent) == {**others, 3: "Unhealthy"}, what="card 3 alone is out")
    assert agent.reason(3).startswith("XID 79")
    holder, result, _ = node.hold(3 * GIB, 3)       # a new process does not see the lost card: card 4
    assert result == 0

    def used(card):
        return int(re.search(rf'^aliquot_gpu_memory_used_bytes{{.*?gpu="{card}".*}} (\d+)$', agent.get("/metrics"), re.M)[1])
    wait_until(lambda: used(4) >= 3 * GIB, what="the figures of a neighbour follow")
    agent.kill()
    agent.start()
    wait_until(lambda: others.items() <= states(agent).items(), what="the others are healthy for the next agent")
    time_out = time.monotonic() + 3     # polls go on; none of them finds the card
    while time.monotonic() < time_out:
        assert others.items() <= states(agent).items() and states(agent).get(3) != "Healthy"
    holder.kill()


def test_ten_thousand_xids(machine, agent_on):
    """Of programs, in the kernel's log: each is counted, the card stays healthy, and the agent answers meanwhile. The last
    one is of the card."""
    node = machine(EIGHT)
    log, end = os.pipe2(os.O_DIRECT)        # one record a read, as /dev/kmsg
    agent = agent_on(node, kmsg=f"/proc/{os.getpid()}/fd/{log}")
    wait_until(lambda: agent.state(0) == "Healthy", what="the card is healthy")
    (pci,) = re.findall(r'gpu="0".*?pci_bus_id="0*([0-9a-fA-F:]+)\.0"', agent.get("/metrics"))[:1]
    where = "0000:" + ":".join(pci.split(":")[-2:]).lower()
    before, answers, done = resident(agent), [], threading.Event()

    def read():
        while not answers or not done.wait(0.05):
            begun = time.monotonic()
            agent.get("/metrics")
            answers.append(time.monotonic() - begun)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(1, FLOOD + 1):
            os.write(end, f"3,{number},{number},-;NVRM: Xid (PCI:{where}): 31, pid={number}, name=python\n".encode())
        wait_until(lambda: agent.xids(0) == {31: FLOOD}, what="all of them are counted")
    finally:
        done.set()
        reader.join()
    assert states(agent) == dict.fromkeys(range(8), "Healthy")
    assert statistics.median(answers) < 2, answers     # of a busy machine single ones take longer
    assert resident(agent) < before + (2 << 20)
    node.inject("xid", 48, "--gpu", 0)
    agent.wait(0, "Unhealthy")
    os.close(end)
    os.close(log)


CONTROL, INJECT_XID = 0x51434c41, 2     # of src/sim/daemon/control.h
BATCH = 200     # the driver keeps 256 events that are not read yet


def test_ten_thousand_xids_by_nvml(machine, agent_on):
    """Each is counted, the card stays healthy, and the one that is the card's own takes it out at once."""
    node = machine(EIGHT)
    agent = agent_on(node)
    wait_until(lambda: agent.state(0) == "Healthy", what="the card is healthy")
    before = resident(agent)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect(str(node.dir / "control"))
        for count in range(1, FLOOD + 1):
            control.send(struct.pack("<8IQ96s", CONTROL, INJECT_XID, 0, 31, 0, 0, 0, 0, 0, b""))
            assert struct.unpack_from("<i", control.recv(4096)) == (0,)
            if count % BATCH == 0:
                wait_until(lambda: agent.xids(0) == {31: count}, what=f"{count} of them are counted")  # noqa: B023
    assert states(agent) == dict.fromkeys(range(8), "Healthy")
    assert resident(agent) < before + (2 << 20)
    node.inject("xid", 48, "--gpu", 0)
    agent.wait(0, "Unhealthy")


def resident(agent):
    status = pathlib.Path(f"/proc/{agent.process.pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+)", status, re.M)[1]) << 10


@pytest.mark.parametrize("first, second", [("570.124.06", "535.183.01"), ("535.183.01", "580.65.06")])
def test_another_driver_after_a_restart(machine, agent_on, first, second):
    """A card that the former driver had given up is judged by what the new one says, which resets all cards at its load."""
    node = machine(EIGHT, driver=first)
    agent = agent_on(node)
    agent.wait(1, "Healthy")
    node.inject("xid", 48, "--gpu", 1)
    agent.wait(1, "Unhealthy")
    agent.kill()
    node = machine(EIGHT, driver=second)
    agent.start()
    wait_until(lambda: states(agent) == dict.fromkeys(range(8), "Healthy"), what="all cards work with the new driver")
    assert f'DCGM_FI_DRIVER_VERSION="{second}"' in agent.get("/metrics")
    node.inject("xid", 48, "--gpu", 2)
    agent.wait(2, "Unhealthy")
    assert agent.state(1) == "Healthy"


def instances(agent):
    """{UUID: healthy} of MIG instances."""
    return {uuid: value == "1" for uuid, value in
            re.findall(r'^aliquot_gpu_instance_healthy{.*?uuid="(MIG-[^"]*)".*} (\d)$', agent.get("/metrics"), re.M)}


def test_an_instance_is_destroyed_behind_our_back(machine, agent_on, nvml_of):
    """While a program computes on it. The others and the card stay; one that is made again appears."""
    node = machine("[gpu 0-1]\nmodel = A100\n[gpu 0]\nmig = 3g.40gb,1g.10gb,1g.10gb\n")
    nvml = nvml_of(node)
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    agent = agent_on(node)
    wait_until(lambda: len(instances(agent)) == 3, what="three instances")
    before = instances(agent)
    gone = next(p for p in parts(nvml, card) if "3g.40gb" in nvml.nvmlDeviceGetName(p))
    uuid = nvml.nvmlDeviceGetUUID(gone)
    user = node.start("hold", GIB, CUDA_VISIBLE_DEVICES=uuid)
    assert user.stdout.readline().split()[0] == "0"
    node.inject("destroy", nvml.nvmlDeviceGetGpuInstanceId(gone), "--gpu", 0)
    others = {u: True for u in before if u != uuid}
    wait_until(lambda: instances(agent) == others, what="it has left, and the others are healthy")
    assert states(agent)[0] == states(agent)[1] == "Healthy"
    made = nvml.nvmlDeviceCreateGpuInstance(card, 9)
    nvml.nvmlGpuInstanceCreateComputeInstance(made, 2)
    wait_until(lambda: list(instances(agent).values()) == [True] * 3, what="three healthy instances again")
    assert agent.process.poll() is None


def device_nodes(agent):
    """{UUID: name of the device node} as the agent reports them."""
    return dict(re.findall(r'^DCGM_FI_DEV_FB_USED{.*?UUID="(GPU-[^"]*)".*?device="(nvidia\d+)"', agent.get("/metrics"), re.M))


def test_minor_numbers_are_swapped(machine, agent_on):
    """By a reset without the agent, which has the cards open. Its cards are those of their UUIDs, wherever their nodes are."""
    node = machine("[gpu 0-1]\nmodel = A100\n")
    agent = agent_on(node)
    wait_until(lambda: len(device_nodes(agent)) == 2, what="both cards")
    first, second = before = device_nodes(agent)
    agent.kill()
    for card in (0, 1):
        node.inject("persistence", "off", "--gpu", card)
    node.inject("swap-minors", 1, "--gpu", 0)
    agent.start()
    wait_until(lambda: device_nodes(agent) == {first: before[second], second: before[first]}, what="the new device nodes")
    wait_until(lambda: states(agent) == {0: "Healthy", 1: "Healthy"}, what="two healthy cards")
    node.inject("xid", 48, "--gpu", 1)
    agent.wait(1, "Unhealthy")
    assert agent.state(0) == "Healthy"


@pytest.fixture
def read_only(tmp_path):
    """As /var/lib of a node whose root cannot be changed."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount")
    where = tmp_path / "lib"
    where.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "none", where], check=True)
    yield where
    subprocess.run(["umount", where], check=True)


def test_a_read_only_root(machine, agent_on, read_only):
    """The runtime's hook goes beside the state; a state directory there is refused, with the reason."""
    agent = agent_on(machine(EIGHT), **{"hook": BUILD / "src/agent/aliquot-hook", "hook-dir": read_only / "aliquot"})
    agent.wait(0, "Healthy")
    log = (agent.path / "log").read_text()
    assert re.search(f"the runtime's hook goes to {agent.path}/state: .*{read_only}/aliquot.*read-only file system", log, re.I), log
    assert os.access(agent.path / "state/aliquot-hook", os.X_OK)
    agent.kill()
    agent.options["state-dir"] = read_only / "aliquot"
    with pytest.raises(pytest.fail.Exception, match=f"(?i){read_only}/aliquot.*read-only file system"):
        agent.start()
