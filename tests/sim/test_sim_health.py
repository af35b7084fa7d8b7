# SPDX-License-Identifier: Apache-2.0
"""The health of cards as the agent reports it, on the simulated driver: XIDs of NVML and of the kernel's log, drivers
that report no recovery action, agents that are killed."""

import json
import os
import pathlib
import re
import socket
import tempfile
import urllib.request

import pytest
from sim_kit import HANG, wait_until
from test_sim_agent import start_agent


class Agent:
    """An agent that can be killed and started again on the same directories."""

    def __init__(self, node, path, kmsg=None, env=None, **options):
        self.node, self.path, self.env = node, path, env
        self.options = {**options, **({"kmsg": kmsg} if kmsg else {})}
        self.start()

    def start(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % s.getsockname()[1]
        self.process = start_agent(self.node, self.path, listen=self.address, env=self.env,
                                   **self.options)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def get(self, page):
        with urllib.request.urlopen(f"http://{self.address}{page}", timeout=5) as answer:
            return answer.read().decode()

    def states(self):
        """{UUID: state} of the cards and instances."""
        return dict(re.findall(r'^aliquot_gpu_state{.*?uuid="([^"]*)",state="(\w+)"} 1$', self.get("/metrics"), re.M))

    def state(self, card):
        """The one state of a card, by its number."""
        found = re.findall(rf'^aliquot_gpu_state{{.*?gpu="{card}",uuid="GPU-[^"]*",state="(\w+)"}} 1$', self.get("/metrics"), re.M)
        assert len(found) <= 1, found
        return found[0] if found else None

    def xids(self, card):
        found = re.findall(rf'^aliquot_gpu_xid_total{{.*?gpu="{card}".*?xid="(\d+)"}} (\d+)$', self.get("/metrics"), re.M)
        return {int(xid): int(count) for xid, count in found}

    def reason(self, card):
        return {gpu["index"]: gpu["reason"] for gpu in json.loads(self.get("/usage"))["gpus"]}[card]

    def wait(self, card, state, seconds=HANG):
        wait_until(lambda: self.state(card) == state, seconds, f"card {card} is {state}")


@pytest.fixture
def agent_of():
    with tempfile.TemporaryDirectory() as path:  # a short name, for sockets
        agents = []

        def make(node, **more):
            agents.append(Agent(node, pathlib.Path(path), **more))
            agents[-1].wait(0, "Healthy")
            return agents[-1]

        yield make
        for agent in agents:
            agent.kill()


def test_an_xid_and_the_reset_after_it(node, agent_of):
    agent = agent_of(node)
    node.inject("xid", 31, "--gpu", 1)
    node.inject("xid", 48, "--gpu", 1)
    agent.wait(1, "Unhealthy")
    assert agent.reason(1) == "XID 48 (double-bit ECC error): the card needs a reset"
    assert agent.xids(1) == {31: 1, 48: 1} and agent.xids(0) == {}
    assert agent.state(0) == "Healthy"
    node.inject("reset", "--gpu", 1, "--force")
    agent.wait(1, "Healthy")
    assert agent.reason(1) == ""


@pytest.mark.parametrize("driver", ["535.161.08", "565.57.01"])
def test_a_driver_that_reports_no_recovery_action(node_of, agent_of, tmp_path, driver):
    """A context shows that the card has been reset: the XID alone would keep it out for ever."""
    file = tmp_path / "m.machine"
    file.write_text(f"[machine]\ndriver = {driver}\n[gpu 0-1]\nmodel = A100\n")
    node = node_of("--machine", file)
    agent = agent_of(node)
    node.inject("xid", 48, "--gpu", 0)
    agent.wait(0, "Unhealthy")
    assert agent.reason(0).startswith("XID 48")
    node.inject("reset", "--gpu", 0, "--force")
    agent.wait(0, "Healthy")


def test_the_kernel_log(node, agent_of):
    """XIDs that NVML does not report, and of which the card knows nothing: it is out, and healthy again after the settle
    time."""
    other, end = os.pipe2(os.O_DIRECT)  # one record a read, as /dev/kmsg
    log = f"/proc/{os.getpid()}/fd/{other}"

    def write(sequence, text, priority=3):
        os.write(end, f"{priority},{sequence},1,-;{text}\n".encode())

    agent = agent_of(node, kmsg=log)
    (pci,) = re.findall(r'gpu="1".*?pci_bus_id="0*([0-9a-fA-F:]+)\.0"', agent.get("/metrics"))[:1]
    where = "0000:" + ":".join(pci.split(":")[-2:]).lower()
    write(1, f"NVRM: Xid (PCI:{where}): 63, pid=7, Row Remapper")
    wait_until(lambda: agent.xids(1) == {63: 1}, what="the XID is counted")
    assert agent.state(1) == "Healthy"
    write(2, f"NVRM: Xid (PCI:{where}): 79, by a program", priority=12)
    write(3, f"NVRM: Xid (PCI:{where}): 79, pid=7, GPU has fallen off the bus.")
    wait_until(lambda: agent.xids(1) == {63: 1, 79: 1}, what="the XID is counted")
    out = r"GPU 1 \(GPU-\S+\) is Unhealthy: XID 79 "
    wait_until(lambda: re.search(out, (agent.path / "log").read_text()), what="the card is out")
    agent.wait(1, "Healthy")
    assert agent.xids(0) == {}
    os.close(end)
    os.close(other)


def test_a_killed_agent_remembers(node_of, agent_of):
    """The XID is in no figure of the driver: only the agent's file has it."""
    node = node_of("--machine", "old-driver")
    agent = agent_of(node, env={"DP_ENABLE_HEALTHCHECKS": "13"})
    holder, _, _ = node.hold(1 << 20)  # no probe beside a program
    victim, _, _ = node.hold(1 << 20)
    node.inject("xid", 13, "--gpu", 0, "--pid", victim.pid)
    agent.wait(0, "Unhealthy")
    reason = agent.reason(0)
    assert reason.startswith("XID 13 (graphics engine exception)")
    agent.kill()
    agent.start()
    agent.wait(0, "Unhealthy")
    assert agent.reason(0) == reason
    holder.kill()
    victim.kill()
    agent.wait(0, "Healthy")


def instances(agent):
    """{(GI, CI): UUID} of card 0."""
    found = re.findall(r'^aliquot_gpu_instance_memory_total_bytes{.*?gpu="0",uuid="([^"]*)".*?GPU_I_ID="(\d+)",'
                       r'compute_instance="(\d+)"}', agent.get("/metrics"), re.M)
    return {(int(gi), int(ci)): uuid for uuid, gi, ci in found}


def test_an_xid_of_an_instance(node_of, agent_of):
    """It takes out that instance; the card and its other instances stay as they are, also the kernel's log says so."""
    node = node_of("--machine", "mig")
    other, end = os.pipe2(os.O_DIRECT)
    agent = agent_of(node, kmsg=f"/proc/{os.getpid()}/fd/{other}")
    found = instances(agent)
    first, second, third = list(found.items())[:3]

    def unhealthy():
        return {uuid for uuid, state in agent.states().items() if state != "Healthy"}

    def wait_unhealthy(*uuids):
        wait_until(lambda: unhealthy() == set(uuids), what=f"exactly {uuids} are unhealthy, not {unhealthy()}")

    wait_unhealthy()
    node.inject("xid", 48, "--gpu", 0, "--gi", first[0][0], "--ci", first[0][1])
    wait_unhealthy(first[1])
    node.inject("xid", 48, "--gpu", 0, "--gi", second[0][0])
    wait_unhealthy(first[1], second[1])
    assert agent.state(0) == agent.state(1) == "Healthy"
    (pci,) = re.findall(r'gpu="0".*?pci_bus_id="0*([0-9a-fA-F:]+)\.0"', agent.get("/metrics"))[:1]
    where = "0000:" + ":".join(pci.split(":")[-2:]).lower()
    text = f"NVRM: Xid (PCI:{where} GPU-I:{third[0][0]:02}): 119, pid=7, timeout"
    os.write(end, f"3,1,1,-;{text}\n".encode())
    counted = re.compile(rf'^aliquot_gpu_xid_total{{.*uuid="{third[1]}",xid="119"}} 1$', re.M)
    wait_until(lambda: counted.search(agent.get("/metrics")), what="the XID is counted for that instance")
    assert agent.xids(0) and agent.state(0) == "Healthy"
    os.close(end)
    os.close(other)


def test_an_instance_and_its_pod_are_told(world_of):
    """By Events and the state of its object; the card, the other instance and the pod that has that one are not concerned."""
    world = world_of("[gpu 0]\nmodel = A100\nmig = 3g.40gb,2g.20gb\n")
    world.configure(health="interval: 100ms")
    world.start()
    wait_until(lambda: len(world.api.find("gpus")) == 3, what="card and instances are objects")
    parts = {gpu["spec"]["mig"]["profile"]: gpu for gpu in world.api.find("gpus").values() if "parent" in gpu["spec"]}
    for number, (profile, gpu) in enumerate(sorted(parts.items())):
        world.pod(f"pod-{number}", f"mig-{profile}", gpu["spec"]["uuid"])
        world.kubelet.start(f"pod-{number}")
    ill = parts["3g.40gb"]["metadata"]["name"]
    world.node.inject("xid", 48, "--gpu", 0, "--gi", parts["3g.40gb"]["spec"]["mig"]["gpuInstance"])
    wait_until(lambda: world.events("GPUNotHealthy").keys() == {ill, "pod-1"}, what="Events on the instance and its pod")
    assert all("XID 48 " in message for message in world.events("GPUNotHealthy").values())

    def states():
        return {name: gpu["status"]["state"] for name, gpu in world.api.find("gpus").items()}
    wait_until(lambda: states()[ill] == "Unhealthy", what="the state of its object")
    assert sorted(states().values()) == ["Healthy", "Healthy", "Unhealthy"]


def test_an_xid_of_no_instance(node_of):
    """The card is lost with all of its instances, and an instance has to be there."""
    node = node_of("--machine", "mig")
    for options, why in ((("79", "--gi", "1"), "takes the card off the bus"), (("48", "--gi", "6"), "no such MIG instance"),
                         (("48", "--ci", "0"), "--ci needs --gi")):
        assert why in node.inject("xid", *options, "--gpu", 0, expect=2 if "--ci" in options else 1)


def test_no_checks_by_order(node, agent_of):
    agent = agent_of(node, env={"DP_DISABLE_HEALTHCHECKS": "all"})
    node.inject("xid", 154, "--gpu", 1)
    wait_until(lambda: agent.xids(1) == {154: 1}, what="the XID is counted")
    assert agent.state(1) == "Healthy"
