# SPDX-License-Identifier: Apache-2.0
"""An option of the agent takes precedence over a variable of its environment, and this over the file of the configuration."""

import json
import pathlib
import tempfile

import pytest
import test_sim_health as health
from sim_kit import wait_until
from test_sim_agent import Agent

LEVELS = ("file", "environment", "option")


@pytest.fixture
def started():
    """started(node, file, environment, options): an agent, which has these settings."""
    with tempfile.TemporaryDirectory() as name:     # a short name, for sockets
        path, agents = pathlib.Path(name), []

        def start(node, flags, environment, **options):
            (path / "config").write_text(f"version: v1\nflags: {{{flags}}}\n")
            agents.append(Agent(node, path, env=environment, **{"config-file": path / "config", **options}))
            agents[-1].log = path / "log"
            return agents[-1]
        yield start
        for agent in agents:
            agent.close()


@pytest.mark.parametrize("given", range(len(LEVELS)), ids=LEVELS)
def test_the_root_of_the_driver(node, started, tmp_path, given):
    """The root that counts has a driver and its nodes, the others have none."""
    for file in "usr/lib64/libnvidia-ml.so.1", "dev/nvidiactl":
        (tmp_path / LEVELS[given] / file).parent.mkdir(parents=True)
        (tmp_path / LEVELS[given] / file).touch()
    agent = started(node, "nvidiaDriverRoot: /file, nvidiaDevRoot: /file",
                    {"NVIDIA_DRIVER_ROOT": "/environment", "NVIDIA_DEV_ROOT": "/environment"} if given > 0 else {},
                    **{"host-root": tmp_path, "sim-dir": "/nonexistent",
                       **({"driver-root": "/option", "dev-root": "/option"} if given > 1 else {})})
    assert "on node n, driver: nvidia\n" in agent.log.read_text()


@pytest.mark.parametrize("strategies", [("mixed", None, None), ("none", "mixed", None), ("mixed", "none", None),
                                        ("none", "none", "mixed"), ("mixed", "mixed", "none")])
def test_the_strategy_of_mig(node_of, started, strategies):
    in_file, in_environment, option = strategies
    counts = [strategy for strategy in strategies if strategy][-1]
    agent = started(node_of("--machine", "mig"), f"migStrategy: {in_file}",
                    {"MIG_STRATEGY": in_environment} if in_environment else {}, **({"mig-strategy": option} if option else {}))
    wait_until(lambda: agent.samples("aliquot_gpu_instance_healthy"), what="instances are known")
    offered = any(labels["resource"].startswith("nvidia.com/mig-") for labels, _ in agent.samples("aliquot_agent_registered"))
    assert offered == (counts == "mixed")


FIRST, SECOND = "nvidia.com/device-plugin.config", "example.com/config"
ENTRIES = {"default": 1.25, "half": 1.5, "twice": 2}


@pytest.mark.parametrize("labels, environment, options, entry", [
    ({}, {}, {}, "default"),
    ({FIRST: "half", SECOND: "twice"}, {}, {}, "half"),
    ({FIRST: "half", SECOND: "twice"}, {"NODE_LABEL": SECOND}, {}, "twice"),
    ({FIRST: "half"}, {"NODE_LABEL": SECOND, "DEFAULT_CONFIG": "twice"}, {}, "twice"),
    ({}, {"DEFAULT_CONFIG": "half"}, {"default-config": "twice"}, "twice"),
    ({}, {"FALLBACK_STRATEGIES": "single,empty"}, {}, None),
    ({}, {"FALLBACK_STRATEGIES": "single,empty"}, {"fallback-strategies": "named"}, "default"),
])
def test_the_entry_of_a_config_map(world_of, labels, environment, options, entry):
    """By the node's label, by the default, and by the fallbacks; None: a configuration without settings."""
    world = world_of("[gpu 0]\nmodel = A100\n")
    world.api.edit("nodes", "", "n", {"metadata": {"labels": labels}})
    world.api.put("configmaps", {"metadata": {"name": "m", "namespace": "aliquot-system"}, "data": {
        name: f"version: v1\naliquot: {{cards: [{{devices: all, memoryScaling: {factor}}}]}}\n" for name, factor in ENTRIES.items()}})
    world.agent = health.Agent(world.node, world.path, env=environment, **{
        "api-server": world.api.url, "ca-file": world.api.ca, "config-map": "m", **options})

    def wait(wanted):
        def capacity():
            return [card["memoryCapacity"] / card["memory"] for card in json.loads(world.agent.get("/usage"))["gpus"]]
        wait_until(lambda: capacity() == [wanted], what=f"the capacity times {wanted}")
    if not entry:       # as before the ConfigMap is read
        world.api.edit("nodes", "", "n", {"metadata": {"labels": {FIRST: "half"}}})
        wait(ENTRIES["half"])
        world.api.edit("nodes", "", "n", {"metadata": {"labels": {FIRST: None}}})
    wait(ENTRIES.get(entry, 1))
