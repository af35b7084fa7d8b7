# SPDX-License-Identifier: Apache-2.0
"""Resets of cards by the agent on the simulated driver, which refuses them while a process has the card open or
persistence mode is on."""

import fcntl
import pathlib
import re
import tempfile

import pytest
from sim_kit import ALIQUOT, wait_until
from test_sim_health import Agent

XID_48 = "XID 48 (double-bit ECC error): the card needs a reset"


def command(script):
    """A reset command: a shell script whose $1 is the card's UUID."""
    return f"[/bin/sh, -c, '{script}', sh, UUID]"


def by_inject(node, card):
    return f"exec {ALIQUOT} sim inject --dir {node.dir} reset --gpu {card}"


class World:
    def __init__(self, node, path, reset, health="", **more):
        self.node, self.path = node, path
        self.file = path / "config.yaml"
        self.configure(reset, health)
        self.agent = Agent(node, path, env=None, **{"config-file": self.file, **more})
        self.agent.wait(0, "Healthy")

    def configure(self, reset, health=""):
        self.file.write_text(f"version: v1\naliquot:\n  health: {{{health}}}\n  reset: {reset}\n")

    def resets(self, card):
        found = re.findall(rf'^aliquot_gpu_resets_total{{.*?gpu="{card}".*?result="(\w+)"}} (\d+)$',
                           self.agent.get("/metrics"), re.M)
        return {result: int(count) for result, count in found if count != "0"}

    def persistence(self, card):
        return next(line["persistence"] for line in self.node.show() if line.get("gpu") == str(card))

    def wait_reason(self, card, *parts):
        wait_until(lambda: all(part in self.agent.reason(card) for part in parts), what=f"reason has {parts}")


@pytest.fixture
def world_of():
    with tempfile.TemporaryDirectory() as path:  # a short name, for sockets
        worlds = []

        def make(node, reset, **more):
            worlds.append(World(node, pathlib.Path(path), reset, **more))
            return worlds[-1]

        yield make
        for world in worlds:
            world.agent.kill()


def test_a_reset_heals(node, world_of):
    """The agent's own NVML process lets go, persistence mode goes off and comes back; the other card is read meanwhile."""
    w = world_of(node, f"{{policy: idle, command: {command(by_inject(node, 1))}}}")
    assert "in use by another client" in node.inject("reset", "--gpu", 1, expect=1)  # as long as nothing is let go
    node.inject("xid", 48, "--gpu", 1)
    wait_until(lambda: w.resets(1) == {"succeeded": 1}, what="the card is reset")
    w.agent.wait(1, "Healthy")
    assert w.agent.reason(1) == ""
    assert w.persistence(1) == w.persistence(0) == "on"
    assert w.agent.state(0) == "Healthy" and w.resets(0) == {}


def test_a_command_that_fails(node, world_of):
    w = world_of(node, f"{{policy: idle, command: {command('echo In use; echo by another client >&2; exit 255')}}}")
    node.inject("xid", 48, "--gpu", 1)
    w.wait_reason(1, XID_48, "; reset failed: exit status 255: In use by another client")
    assert w.agent.state(1) == "Unhealthy"
    assert w.resets(1) == {"failed": 1}
    assert w.persistence(1) == "on"


def test_a_command_that_cannot_run(node, world_of):
    w = world_of(node, "{policy: idle, command: [/no/such/program]}")
    node.inject("xid", 48, "--gpu", 1)
    w.wait_reason(1, "; reset failed: cannot run /no/such/program: no such file or directory")
    assert w.persistence(1) == "on"


def test_no_program_of_the_driver(node, world_of):
    w = world_of(node, "{policy: idle}")
    node.inject("xid", 48, "--gpu", 1)
    w.wait_reason(1, "; reset failed: nvidia-smi is not in the driver")
    assert w.resets(1) == {"failed": 1}


def test_a_command_that_hangs(node, world_of):
    w = world_of(node, f"{{policy: idle, timeout: 1s, command: {command('exec sleep 1000')}}}")
    node.inject("xid", 48, "--gpu", 1)
    w.wait_reason(1, "; reset failed: /bin/sh has not ended within 1000 ms")
    assert w.resets(1) == {"timed_out": 1}
    assert w.persistence(1) == "on"
    assert w.agent.state(0) == "Healthy"


def test_a_command_that_lies(node, world_of):
    """It ends well, and the card is as before."""
    w = world_of(node, f"{{policy: idle, command: {command('true')}}}")
    node.inject("xid", 48, "--gpu", 1)
    w.wait_reason(1, XID_48, "; the reset had no effect: cuDevicePrimaryCtxRetain: error 46")
    assert w.agent.state(1) == "Unhealthy"
    assert w.resets(1) == {"no_effect": 1}


def test_a_card_in_use(node, world_of):
    """The command says who has the card open; the next try, after the program's end, succeeds."""
    w = world_of(node, f"{{policy: idle, command: {command(by_inject(node, 1))}}}")
    holder, _, _ = node.hold(1 << 20, 1)
    node.inject("xid", 48, "--gpu", 1)
    w.wait_reason(1, "; reset failed: exit status 1: ", "in use by another client")
    holder.kill()
    holder.wait()
    w.agent.wait(1, "Healthy")
    assert w.resets(1) == {"failed": 1, "succeeded": 1}


def test_the_policy_never(node, world_of):
    w = world_of(node, f"{{policy: never, command: {command(by_inject(node, 1))}}}")
    node.inject("xid", 48, "--gpu", 1)
    w.agent.wait(1, "Unhealthy")
    node.inject("reset", "--gpu", 1, "--force")
    w.agent.wait(1, "Healthy")
    assert w.resets(1) == {}


def test_the_drivers_own_program(node, world_of):
    """nvidia-smi of the driver's root, with the driver's libraries alone beside it."""
    smi = node.dir / "usr/bin/nvidia-smi"
    smi.parent.mkdir(parents=True)
    smi.write_text(f"""#!/bin/sh
echo "$@" > {node.dir}/arguments
ls "$LD_LIBRARY_PATH" > {node.dir}/libraries
[ "$1 $2" = "--gpu-reset -i" ] || exit 1
gpu=$({ALIQUOT} sim show --dir {node.dir} | sed -n "s/^gpu=\\([0-9]*\\) uuid=$3 .*/\\1/p")
exec {ALIQUOT} sim inject --dir {node.dir} reset --gpu "$gpu"
""")
    smi.chmod(0o755)
    w = world_of(node, "{policy: idle}")
    node.inject("xid", 48, "--gpu", 1)
    wait_until(lambda: w.resets(1) == {"succeeded": 1}, what="the card is reset")
    uuid = next(line["uuid"] for line in node.show() if line.get("gpu") == "1")
    assert (node.dir / "arguments").read_text() == f"--gpu-reset -i {uuid}\n"
    libraries = (node.dir / "libraries").read_text().split()
    assert "libnvidia-ml.so.1" in libraries
    assert all(name.startswith(("libcuda.so", "libnvidia-")) for name in libraries), libraries


# ---- an agent that is killed --------------------------------------------------------------------


def test_killed_while_the_command_runs(node, world_of):
    """The next agent waits for the command, resets the card again and restores the persistence mode."""
    script = f"echo >> {node.dir}/runs; while [ ! -e {node.dir}/go ]; do sleep 0.05; done; " + by_inject(node, 1)
    w = world_of(node, f"{{policy: idle, command: {command(script)}}}")
    node.inject("xid", 48, "--gpu", 1)
    wait_until((node.dir / "runs").exists, what="the command runs")
    assert w.agent.state(1) == "Resetting"
    w.agent.kill()
    assert w.persistence(1) == "off"
    w.agent.start()
    w.agent.wait(0, "Healthy")
    assert w.agent.state(1) == "Resetting"
    assert (node.dir / "runs").read_text() == "\n"
    (node.dir / "go").touch()
    w.agent.wait(1, "Healthy")
    assert (node.dir / "runs").read_text() == "\n\n"
    assert w.persistence(1) == "on"


def test_killed_while_the_card_is_probed(node, world_of):
    w = world_of(node, f"{{policy: idle, command: {command(by_inject(node, 1))}}}")
    node.inject("hang", "cuDevicePrimaryCtxRetain", "--gpu", 1)
    node.inject("xid", 48, "--gpu", 1)
    w.agent.wait(1, "Probing")
    w.agent.kill()
    node.inject("release")
    w.agent.start()
    w.agent.wait(1, "Healthy")
    assert w.persistence(1) == "on"
    assert w.resets(1) == {"succeeded": 1}


def test_killed_before_the_command(node, world_of):
    """While persistence mode is being turned off."""
    w = world_of(node, f"{{policy: idle, command: {command(by_inject(node, 1))}}}")
    node.inject("hang", "nvmlDeviceSetPersistenceMode", "--gpu", 1)
    node.inject("xid", 48, "--gpu", 1)
    saved = w.path / "state/health.json"
    wait_until(lambda: '"persistent":1' in saved.read_text(), what="the mode is on record")
    w.agent.kill()
    node.inject("release")
    w.agent.start()
    w.agent.wait(1, "Healthy")
    assert w.persistence(1) == "on"
    assert '"persistent":1' not in saved.read_text()


def test_killed_while_the_card_is_closed(node, world_of):
    """Before the command: the card is closed and the lock of the reset is not free yet."""
    w = world_of(node, f"{{policy: idle, command: {command(f'echo >> {node.dir}/runs; ' + by_inject(node, 1))}}}")
    with open(w.path / "state/reset.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node.inject("xid", 48, "--gpu", 1)
        w.agent.wait(1, "Resetting")
        assert w.agent.state(0) == "Healthy"
        w.agent.kill()
    assert not (node.dir / "runs").exists()
    w.agent.start()
    w.agent.wait(1, "Healthy")
    assert (node.dir / "runs").read_text() == "\n"
    assert w.persistence(1) == w.persistence(0) == "on"
    assert w.resets(1) == {"succeeded": 1}


def test_persistence_is_restored_later(node, world_of):
    """The call that restores it does not return in time: it is made again, without another reset."""
    script = (f"{ALIQUOT} sim inject --dir {node.dir} reset --gpu 1; "
              f"{ALIQUOT} sim inject --dir {node.dir} hang nvmlDeviceSetPersistenceMode --gpu 1")
    w = world_of(node, f"{{policy: idle, command: {command(script)}}}")
    node.inject("xid", 48, "--gpu", 1)
    w.agent.wait(1, "Healthy")
    assert w.persistence(1) == "off"
    node.inject("release")
    wait_until(lambda: w.persistence(1) == "on", what="it is restored")
    assert w.resets(1) == {"succeeded": 1}


def test_killed_after_the_command(node, world_of):
    """While persistence mode is being restored: the next agent resets the card again and restores it."""
    script = (f"{ALIQUOT} sim inject --dir {node.dir} reset --gpu 1; [ -e {node.dir}/runs ] || "
              f"{ALIQUOT} sim inject --dir {node.dir} hang nvmlDeviceSetPersistenceMode --gpu 1; echo >> {node.dir}/runs")
    w = world_of(node, f"{{policy: idle, command: {command(script)}}}")
    node.inject("xid", 48, "--gpu", 1)
    wait_until((node.dir / "runs").exists, what="the command has run")
    assert w.agent.state(1) == "Resetting"
    w.agent.kill()
    assert w.persistence(1) == "off"
    node.inject("release")
    w.agent.start()
    w.agent.wait(1, "Healthy")
    assert (node.dir / "runs").read_text() == "\n\n"
    assert w.persistence(1) == "on"
    assert w.resets(1) == {"succeeded": 1}
