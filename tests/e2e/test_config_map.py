# SPDX-License-Identifier: Apache-2.0
"""The configuration of the node from a ConfigMap, whose entry the node's label chooses (docs/configuration.md)."""

import contextlib
import re
import statistics
import time

import pytest
from cluster import api as kube
from kit import CARD, SYSTEM
from test_oversee import agent_options, capacity

LABEL = "nvidia.com/device-plugin.config"
NAME = "aliquot-node-config"
MAPS = kube.core("configmaps", SYSTEM)
IN_FORCE = 2        # seconds, at most, from a change to its effect
LONG = 30           # seconds after which a change is taken to have no effect


def scaled(factor):
    """A configuration in NVIDIA's form whose effect can be seen: the memory of all cards, oversubscribed."""
    return f"version: v1\nflags: {{migStrategy: none}}\naliquot: {{cards: [{{devices: all, memoryScaling: {factor}}}]}}\n"


def entries(world, **texts):
    """Sets entries of the ConfigMap; None takes one away."""
    world.api.patch(f"{MAPS}/{NAME}", {"data": texts})


def label(world, value):
    world.api.patch(kube.core("nodes", name=world.cluster.node), {"metadata": {"labels": {LABEL: value}}})


def in_force(world, factor):
    """All cards have the capacity that the factor gives them."""
    world.until(lambda: capacity(world) == [factor * CARD] * len(world.gpus()), LONG, f"the factor {factor}")


def unwell(world, what="the configuration does not change"):
    """What /healthz says of the configuration, or None."""
    with contextlib.suppress(OSError):
        try:
            world.agent.http("/healthz")
        except AssertionError as answer:
            found = re.search(what + r": [^\n]*", str(answer))
            return found and found[0]
    return None


def told(world, pattern):
    """The Event about the node whose message has the pattern."""
    def found():
        return [e for e in world.api.get(kube.core("events", "default"), fieldSelector="involvedObject.kind=Node")["items"]
                if e["reason"] == "ConfigurationInvalid" and re.search(pattern, e["message"])]
    return world.until(found, 10, f"an Event ConfigurationInvalid with /{pattern}/")


@pytest.fixture(scope="module")
def configured(world):
    """The agent with --config-map; the node has no label, and the ConfigMap an entry with the name that is the default."""
    body = {"default": scaled(1.25), "half": scaled(1.5), "twice": scaled(2)}
    world.api.create(MAPS, {"metadata": {"name": NAME}, "data": body})
    with agent_options(world, f"--config-map={NAME}"):
        yield world
    world.api.delete(f"{MAPS}/{NAME}")
    world.until(lambda: capacity(world) == [CARD] * len(world.gpus()), 30, "the capacity without a configuration")


@pytest.fixture
def node(configured):
    """As at the start before and after each test, with the agent that was there at the start."""
    world = configured
    world.until(lambda: capacity(world) == [1.25 * CARD] * len(world.gpus()), 30, "the entry that is the default")
    restarts = world.agent.restarts()
    yield world
    label(world, None)
    entries(world, default=scaled(1.25), half=scaled(1.5), twice=scaled(2), only=None)
    assert world.agent.restarts() == restarts
    world.until(lambda: not unwell(world), 10, "a good configuration again")


def test_the_label_names_the_entry(node):
    """Soon: the median leaves out what else the machine was doing."""
    took = []
    for value, factor in (("half", 1.5), ("twice", 2), (None, 1.25), ("twice", 2), ("half", 1.5)):
        begun = time.monotonic()
        label(node, value)
        in_force(node, factor)
        took.append(time.monotonic() - begun)
    assert statistics.median(took) < IN_FORCE, took


def test_an_entry_changes(node):
    """The one that applies, and one that does not."""
    label(node, "half")
    in_force(node, 1.5)
    entries(node, half=scaled(3))
    in_force(node, 3)
    entries(node, twice="no configuration")
    entries(node, half=scaled(1.75))
    in_force(node, 1.75)
    assert not unwell(node)


def test_fallbacks(node):
    """Without a label: the entry `default`, else the only one, else a configuration without settings."""
    entries(node, default=None, half=None)
    in_force(node, 2)
    entries(node, only=scaled(1.5))
    in_force(node, 1)
    entries(node, default=scaled(1.25))
    in_force(node, 1.25)


def test_a_label_set_to_nonsense(node):
    """Nothing changes; Event and /healthz name the entry that is not there."""
    label(node, "half")
    in_force(node, 1.5)
    label(node, "no-such-entry")
    assert "no-such-entry" in node.until(lambda: unwell(node), LONG, "the reason in /healthz")
    told(node, "no-such-entry")
    assert capacity(node) == [1.5 * CARD] * len(node.gpus())
    label(node, "twice")
    in_force(node, 2)
    assert not unwell(node)


def test_a_bad_entry(node):
    """Nothing changes; Event and /healthz have line and remedy."""
    label(node, "half")
    in_force(node, 1.5)
    entries(node, half="version: v1\nflags: {migStrategie: none}\n")
    said = "line 2.*did you mean 'migStrategy'"
    assert re.search(said, node.until(lambda: unwell(node), LONG, "the reason in /healthz"))
    told(node, said)
    assert capacity(node) == [1.5 * CARD] * len(node.gpus())
    entries(node, half=scaled(2))
    in_force(node, 2)
    assert not unwell(node)


def test_configurations_that_follow_each_other(node):
    """Ten in well below ten seconds: the last one is in force, and stays."""
    label(node, "half")
    for number in range(5):
        entries(node, half=scaled(1.1 + number / 10))
        label(node, "twice" if number % 2 else "half")
    in_force(node, 1.5)
    label(node, "no-such-entry")        # behind all of them
    node.until(lambda: unwell(node), LONG, "the reason in /healthz")
    assert capacity(node) == [1.5 * CARD] * len(node.gpus())


def test_kubelet_restarts_while_the_label_changes(node):
    """To one entry, to another, and to none that is there."""
    node.cluster.stop("kubelet")
    label(node, "half")
    label(node, "twice")
    in_force(node, 2)
    label(node, "no-such-entry")
    node.until(lambda: unwell(node), LONG, "the reason in /healthz")
    node.cluster.start("kubelet")
    node.cluster.wait_node_ready()
    node.wait_tokens()
    assert capacity(node) == [2 * CARD] * len(node.gpus())
    assert "no-such-entry" in unwell(node)
    label(node, "half")
    in_force(node, 1.5)
