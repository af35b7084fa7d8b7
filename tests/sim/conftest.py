# SPDX-License-Identifier: Apache-2.0
"""A node with simulated GPUs, and NVIDIA's Python binding on it."""

import ctypes
import os
import pathlib
import sys
import tempfile

import pytest

sys.path.insert(0, os.path.dirname(__file__))

from agent_world import CARDS, FULL, FullNode, SharedNode, World
from sim_kit import BUILD, Node


@pytest.fixture
def node_of(tmp_path_factory):
    nodes = []

    def make(*options):
        nodes.append(Node(tmp_path_factory.mktemp("n"), *options))
        return nodes[-1]

    yield make
    for n in nodes:
        n.close()


@pytest.fixture
def node(node_of):
    return node_of("--gpus", "2")


@pytest.fixture
def nvml_of(monkeypatch):
    """NVIDIA's Python binding, in this process, on a node's driver."""
    # The loader knows a library by its name once it is loaded, wherever it came from.
    ctypes.CDLL(str(BUILD / "src/sim/libnvidia-ml.so.1"), mode=ctypes.RTLD_GLOBAL)
    import pynvml
    started = []

    def start(node):
        monkeypatch.setenv("ALIQUOT_SIM_DIR", str(node.dir))
        pynvml.nvmlInit()
        started.append(node)
        return pynvml

    yield start
    for _ in started:
        pynvml.nvmlShutdown()


@pytest.fixture
def nvml(node, nvml_of):
    return nvml_of(node)


@pytest.fixture
def machine_of(node_of, nvml_of, tmp_path):
    """The machine of a machine file's text, and the binding on it."""
    def make(text):
        path = tmp_path / "m.machine"
        path.write_text(text)
        node = node_of("--machine", path)
        return node, nvml_of(node)
    return make


@pytest.fixture
def on(node_of, nvml_of):
    """A node with these options, and NVIDIA's binding on it."""
    def start(*options):
        node = node_of(*options)
        return node, nvml_of(node)
    return start


@pytest.fixture
def world_of(node_of, tmp_path):
    """The machine of a machine file's text, and all that its agent needs."""
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


@pytest.fixture
def shared(node_of):
    """An agent on a node whose cards are given out in shares."""
    with tempfile.TemporaryDirectory() as name:     # a short name, for sockets
        world = SharedNode(node_of("--gpus", str(CARDS)), pathlib.Path(name))
        yield world
        world.close()


@pytest.fixture
def full(node_of, tmp_path):
    """An agent on a node whose cards are all divided."""
    machine = tmp_path / "m.machine"
    machine.write_text(FULL)
    with tempfile.TemporaryDirectory() as name:     # a short name, for sockets
        world = FullNode(node_of("--machine", machine), pathlib.Path(name))
        yield world
        world.close()
