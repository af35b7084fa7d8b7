# SPDX-License-Identifier: Apache-2.0
"""The agent divides the cards of its node as the configuration names: on simulated cards, without a cluster."""

import collections
import fcntl
import json
import os
import pathlib
import re
import tempfile

import pytest
from sim_kit import ALIQUOT, wait_until
from test_mig_command import end, exported, hold, mig, uuids
from test_sim_agent import start_agent

PENDING, REBOOTING, SUCCESS, FAILED = "pending", "rebooting", "success", "failed"


class Divided:
    """A node whose agent applies a configuration of a file in the format of mig-parted."""

    def __init__(self, node, nvml, path):
        self.node, self.nvml, self.path = node, nvml, path
        self.close_cards()
        self.agent = None
        self.read = 0
        self.options = {"mig-label": "off", "kmsg": "off", "config-file": path / "config", "mig-config-file": path / "mig"}
        (path / "kubelet/device-plugins").mkdir(parents=True)
        (path / "kubelet/pods").mkdir()
        self.configs()

    def close_cards(self):
        """A client of NVML that has a card open is in the way of a change of its MIG mode."""
        self.nvml.nvmlShutdown()
        self.nvml.nvmlInit()

    def configs(self, **devices):
        """Configurations by name, each {profile: number} for all cards; None: without MIG."""
        configs = {name: [{"devices": "all", "mig-enabled": wanted is not None, "mig-devices": wanted or {}}]
                   for name, wanted in {"seven": {"7g.80gb": 1}, **devices}.items()}
        self.replace("mig", json.dumps({"version": "v1", "mig-configs": configs}))

    def replace(self, name, text):
        (self.path / "new").write_text(text)
        os.replace(self.path / "new", self.path / name)

    def want(self, name, dynamic=False, reset=None):
        also = f", reset: {reset}" if reset else ""
        mig = f"{{config: {name}, dynamic: {str(dynamic).lower()}}}"
        self.replace("config", f"version: v1\naliquot: {{mig: {mig}{also}}}\n")

    def start(self):
        self.read = 0
        self.agent = start_agent(self.node, self.path, **self.options)

    def kill(self):
        self.agent.kill()
        self.agent.wait()

    def wait(self, pattern, seconds=20):
        """A line of the agent's log that follows the one that was waited for before."""
        def found():
            assert self.agent.poll() is None, (self.path / "log").read_text()
            match = re.search(pattern, (self.path / "log").read_text()[self.read:])
            if match:
                self.read += match.end()
            return match
        try:
            wait_until(found, seconds)
        except AssertionError:
            pytest.fail(f"{pattern}: " + (self.path / "log").read_text())

    def reached(self, name, state, reason=""):
        self.wait(rf"MIG configuration {name}: {state}{reason and ': '}{reason}")

    def uuids(self, card=0):
        try:
            return uuids(self.nvml, self.nvml.nvmlDeviceGetHandleByIndex(card))
        finally:
            self.close_cards()

    def one(self, profile):
        return next(uuid for uuid, name in self.uuids().items() if name == profile)

    def give(self, uuid, pod):
        (self.path / "kubelet/pods" / pod).mkdir()
        entry = {"PodUID": pod, "ContainerName": "c", "ResourceName": "nvidia.com/mig", "DeviceIDs": {"-1": [uuid]},
                 "AllocResp": ""}
        self.replace("kubelet/device-plugins/kubelet_internal_checkpoint",
                     json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1}))

    def take_back(self):
        self.replace("kubelet/device-plugins/kubelet_internal_checkpoint",
                     json.dumps({"Data": {"PodDeviceEntries": [], "RegisteredDevices": {}}, "Checksum": 1}))


@pytest.fixture
def divided_of():
    with tempfile.TemporaryDirectory() as path:  # a short name, for sockets
        made = []

        def make(node, nvml):
            made.append(Divided(node, nvml, pathlib.Path(path)))
            return made[0]

        yield make
        for d in made:
            if d.agent:
                d.kill()


@pytest.fixture
def divided(node_of, nvml_of, divided_of):
    node = node_of("--model", "A100")
    return divided_of(node, nvml_of(node))


def profiles(devices):
    return sorted(devices.values())


def test_the_configuration_is_applied_at_the_start(divided):
    """As after a boot: the card is not in MIG mode and has no instances. The names are NVIDIA's without a file."""
    del divided.options["mig-config-file"]
    divided.want("all-balanced")
    divided.start()
    divided.reached("all-balanced", SUCCESS)
    assert profiles(divided.uuids()) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert (divided.path / "state/mig-config").read_text().splitlines()[0] == "all-balanced"


def test_beside_an_instance_in_use(divided):
    divided.configs(first={"3g.40gb": 1, "2g.20gb": 1}, second={"3g.40gb": 1, "1g.10gb": 2})
    divided.want("first")
    divided.start()
    divided.reached("first", SUCCESS)
    used = divided.one("3g.40gb")
    process = hold(divided.node, used)
    divided.want("second")
    divided.reached("second", SUCCESS)
    assert profiles(divided.uuids()) == ["1g.10gb", "1g.10gb", "3g.40gb"] and divided.one("3g.40gb") == used
    assert process.poll() is None
    divided.want("seven")
    divided.reached("seven", PENDING, rf"GPU 0 in use: instance \d \(3g.40gb at \d\) of process {process.pid} ")
    assert profiles(divided.uuids()) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    end(process)
    divided.reached("seven", SUCCESS)
    assert profiles(divided.uuids()) == ["7g.80gb"]


def test_what_a_pod_holds_waits(divided):
    """The pod is named; when kubelet gives its instance back, the division goes on."""
    divided.configs(first={"3g.40gb": 1, "2g.20gb": 1})
    divided.want("first")
    divided.start()
    divided.reached("first", SUCCESS)
    before = divided.uuids()
    divided.give(divided.one("3g.40gb"), "11-22")
    divided.want("seven")
    divided.reached("seven", PENDING, r"GPU 0 in use: instance \d \(3g.40gb at \d\) of pod 11-22")
    assert divided.uuids() == before
    divided.take_back()
    divided.reached("seven", SUCCESS)


def test_the_last_of_two_configurations_wins(divided):
    """What the last one wants is not destroyed for the first one, which waits."""
    divided.configs(first={"3g.40gb": 1, "2g.20gb": 1}, third={"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 1})
    divided.want("first")
    divided.start()
    divided.reached("first", SUCCESS)
    before = divided.uuids()
    process = hold(divided.node, divided.one("3g.40gb"))
    divided.want("seven")
    divided.reached("seven", PENDING, "GPU 0")
    divided.want("third")
    divided.reached("third", SUCCESS)
    assert before.items() < divided.uuids().items()
    end(process)


HOOKS = ("apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit")


class Hooks:
    """Each hook adds its name and the configuration to a file."""

    def __init__(self, divided):
        self.divided = divided
        self.log = divided.path / "hooks-log"
        divided.options["mig-hooks-file"] = divided.path / "hooks"
        self.set()

    def set(self, **scripts):
        """Other programs in place of some of them, by names with _ for -."""
        hooks = {name: [{"command": "sh", "workdir": str(self.divided.path),
                         "args": ["-c", scripts.get(name.replace("-", "_"), "") +
                                  f"echo {name} $MIG_PARTED_SELECTED_CONFIG >>hooks-log"]}] for name in HOOKS}
        self.divided.replace("hooks", json.dumps({"version": "v1", "hooks": hooks}))

    def ran(self):
        """What has run since the last call."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        self.log.unlink(missing_ok=True)
        return lines


@pytest.fixture
def hooks(divided):
    return Hooks(divided)


def test_hooks_run_around_a_change(divided, hooks):
    """And only there: not where the division is as wanted, nor where it waits."""
    divided.configs(first={"3g.40gb": 1, "2g.20gb": 1})
    divided.want("first")
    divided.start()
    divided.reached("first", SUCCESS)
    assert hooks.ran() == [f"{name} first" for name in HOOKS]
    divided.kill()
    divided.start()
    process = hold(divided.node, divided.one("3g.40gb"))
    divided.want("seven")
    divided.reached("seven", PENDING, "GPU 0")
    assert not hooks.ran()
    end(process)
    divided.reached("seven", SUCCESS)
    assert hooks.ran() == ["apply-start seven", "pre-apply-config seven", "apply-exit seven"]


def test_a_hook_that_fails(divided, hooks):
    """Nothing is changed; the division is made when the file has changed."""
    hooks.set(pre_apply_config="echo the cards are busy; exit 7; ")
    divided.configs(first={"3g.40gb": 1})
    divided.want("first")
    divided.start()
    divided.reached("first", FAILED, "GPU 0 hook pre-apply-config: sh ended with status 7: the cards are busy")
    assert not divided.uuids()
    assert hooks.ran() == ["apply-start first", "pre-apply-mode first", "apply-exit first"]
    divided.replace("hooks", "hooks: {pre-apply: []}")
    divided.reached("first", FAILED, "hooks file .*line 1.*unknown key .pre-apply.; here can be: apply-start")
    hooks.set()
    divided.reached("first", SUCCESS)
    assert profiles(divided.uuids()) == ["3g.40gb"]


def test_the_agent_is_killed_while_a_hook_runs(divided, hooks):
    """The hook ends with it. The division is made by the next agent, and what apply-start has begun is ended."""
    hooks.set(pre_apply_mode="echo waits >>hooks-log; exec sleep 60; ")
    divided.configs(first={"3g.40gb": 1})
    divided.want("first")
    divided.start()
    wait_until(lambda: hooks.log.exists() and "waits" in hooks.log.read_text(), 20)
    divided.kill()
    assert hooks.ran() == ["apply-start first", "waits"]
    hooks.set()
    divided.start()
    divided.reached("first", SUCCESS)
    assert hooks.ran() == ["apply-start first", "pre-apply-mode first", "pre-apply-config first", "apply-exit first"]
    assert not (divided.path / "state/mig.lock.hooks").exists()


@pytest.mark.parametrize("name, reason", [("nonsense", ".*nonsense.*seven"), ("broken", ".*GPU 0")])
def test_nonsense_changes_nothing(divided, name, reason):
    divided.configs(broken={"7g.80gb": 1, "1g.10gb": 1})
    divided.want("seven")
    divided.start()
    divided.reached("seven", SUCCESS)
    before = divided.uuids()
    divided.want(name)
    divided.reached(name, FAILED, reason)
    assert divided.uuids() == before
    divided.configs(**{name: {"3g.40gb": 2}})          # the file is mended
    divided.reached(name, SUCCESS)
    assert profiles(divided.uuids()) == ["3g.40gb", "3g.40gb"]


def test_an_instance_that_is_destroyed_behind_it_is_made_again(divided):
    divided.configs(first={"3g.40gb": 1, "2g.20gb": 1})
    divided.want("first")
    divided.start()
    divided.reached("first", SUCCESS)
    divided.node.inject("destroy", 1, "--gpu", 0)
    assert len(divided.uuids()) == 1
    divided.wait(r"MIG: GPU 0: \d+ changes")
    assert profiles(divided.uuids()) == ["2g.20gb", "3g.40gb"]


def test_dynamic_instances_are_left_alone(divided):
    """What the configuration names is made once; what is made and destroyed then by others stays so."""
    divided.configs(first={"3g.40gb": 1}, third={"3g.40gb": 1, "1g.10gb": 2})
    divided.want("first", dynamic=True)
    divided.start()
    divided.reached("first", SUCCESS)
    wanted = json.dumps({"version": "v1", "mig-configs": {"w": [
        {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 2}}]}})
    assert mig(divided.node, "apply", "-f", "-", text=wanted).returncode == 0
    divided.kill()
    divided.start()
    divided.wait("MIG instance .* is on this node")
    divided.want("third", dynamic=True)                 # follows after whatever the agent did before
    divided.reached("third", SUCCESS)
    assert profiles(divided.uuids()) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    assert "MIG: destroy" not in (divided.path / "log").read_text()


def test_a_checkpoint_that_cannot_be_read_is_logged(divided):
    """Which instances pods hold is not known then: the card's state is not reported, and it is read again later."""
    divided.options["mig-strategy"] = "mixed"
    divided.configs(first={"3g.40gb": 1})
    divided.want("first", dynamic=True)
    divided.start()
    divided.reached("first", SUCCESS)
    divided.kill()
    divided.replace("kubelet/device-plugins/kubelet_internal_checkpoint", "{")
    divided.start()
    divided.wait("GPU GPU-.*: MIG instances: .*kubelet_internal_checkpoint")


# Each changes a card, and no other call does.
CHANGES = "nvmlDeviceSetM*,nvmlDeviceCreateG*,nvmlGpuInstanceC*,nvmlGpuInstanceD*,nvmlComputeInstanceD*"


def test_the_agent_is_killed_at_each_step(divided):
    """Before the first change of the card, before the second one ...: the next agent completes the division, whatever the
    one before has left."""
    divided.configs(first={"3g.40gb": 1, "2g.20gb": 1}, second={"4g.40gb": 1, "1g.10gb": 3})
    wanted = {"first": ["2g.20gb", "3g.40gb"], "second": ["1g.10gb"] * 3 + ["4g.40gb"]}

    def is_there():
        (rule,) = (shown for shown in divided.node.show() if "hang" in shown)
        return rule["done"] == "1"
    done, steps = set(), 0
    while done != wanted.keys():
        name = "second" if steps % 2 == 0 else "first"
        steps += 1
        divided.node.inject("hang", CHANGES, "--nth", steps)
        divided.want(name)
        divided.start()
        wait_until(lambda: is_there() or f"configuration {name}: success" in (divided.path / "log").read_text(), 20)
        if not is_there():
            done.add(name)
        divided.kill()
        divided.node.inject("release")
        divided.start()
        divided.reached(name, SUCCESS)
        assert profiles(divided.uuids()) == wanted[name]
        divided.kill()
    assert steps > 12           # six instances, each with a compute instance, are made or destroyed each time
    divided.start()


def test_a_mode_change_waits_for_the_pod_of_the_card(world_of):
    """Which computes nothing. The other card does not wait."""
    world = world_of("[gpu 0-1]\nmodel = A100\n")
    (world.path / "mig").write_text(json.dumps({"version": "v1", "mig-configs": {
        "seven": [{"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 7}}]}}))
    world.options["mig-config-file"] = world.path / "mig"
    whole = {"health": "interval: 100ms", "resources": "{gpus: [{pattern: A100, name: a100}]}"}
    world.configure(**whole)
    world.start()
    world.agent.wait(0, "Healthy")
    world.pod("held", "a100", world.uuids()[0])
    world.kubelet.start("held")
    world.reconfigure(**whole, mig="{config: seven}")

    def told(state, text):
        return (world.node_object("labels").get("nvidia.com/mig.config.state") == state and
                re.fullmatch(text, world.node_object("annotations").get("elasticgpu.io/mig-config", "")))

    def instances():
        """By card."""
        return collections.Counter(re.findall(r'^aliquot_gpu_instance_healthy{.*?gpu="(\d)"', world.agent.get("/metrics"), re.M))
    wait_until(lambda: told(PENDING, "seven: GPU 0 .*pod ns/held.*"), what="the pod is named")
    wait_until(lambda: instances() == {"1": 7}, what="the other card is divided")
    assert world.agent.state(0) == "Healthy"
    world.end("held")
    wait_until(lambda: told(SUCCESS, "seven") and instances() == {"0": 7, "1": 7}, what="both are divided")


@pytest.mark.parametrize("policy, script, reason", [
    ("idle", "exec {aliquot} sim inject --dir {dir} reset --gpu 0", None),
    ("idle", "exit 3", "its reset failed or had no effect; reset the card, or reboot the node"),
    ("never", "exit 0", "aliquot.reset.policy is never; reset the card, or reboot the node")])
def test_a_mode_that_changes_by_a_reset(machine_of, divided_of, policy, script, reason):
    """As in virtual machines. mig-manager reboots the node; the agent resets the card, once."""
    divided = divided_of(*machine_of("[machine]\nmig-change = reset\n[gpu 0]\nmodel = A100\n"))
    script = script.format(aliquot=ALIQUOT, dir=divided.node.dir)
    divided.want("seven", reset=f"{{policy: {policy}, command: [/bin/sh, -c, '{script}']}}")
    divided.start()
    pending = "GPU 0 MIG mode is pending until the card is reset"
    if policy != "never":
        divided.reached("seven", REBOOTING, pending)
    if reason:
        divided.reached("seven", FAILED, f"{pending}: {reason}")
        divided.node.inject("reset", "--force", "--gpu", 0)      # by a person
        divided.configs(first={"3g.40gb": 1})                    # another file: it tries again
    divided.reached("seven", SUCCESS)
    assert profiles(divided.uuids()) == ["7g.80gb"]
    log = (divided.path / "log").read_text()
    assert log.count("INFO  MIG configuration seven: rebooting") == (0 if policy == "never" else 1), log


def test_one_process_divides_at_a_time(divided):
    """The agent waits for the lock, and names its holder; so does the command."""
    lock = divided.path / "state/mig.lock"
    divided.want("seven")
    lock.parent.mkdir()
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.write(f"{os.getpid()}\n")
        held.flush()
        divided.start()
        divided.reached("seven", PENDING, f"process {os.getpid()} divides the GPUs of this machine now")
        r = mig(divided.node, "apply", "-c", "all-balanced", "--lock-file", str(lock))
        assert r.returncode == 1 and f"process {os.getpid()} divides the GPUs of this machine now" in r.stderr
    divided.reached("seven", SUCCESS)
    assert exported(divided.node)[0]["mig-devices"] == {"7g.80gb": 1}
