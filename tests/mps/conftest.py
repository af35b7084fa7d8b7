# SPDX-License-Identifier: Apache-2.0
"""MPS of a node with one simulated card, and NVIDIA's control daemon, which runs without a GPU."""

import os
import sys
from pathlib import Path

sys.path.insert(0, os.path.dirname(__file__))
sys.path.insert(0, str(Path(__file__).parents[1] / "sim"))

import pytest
from mps_kit import World, fetched_driver


@pytest.fixture(scope="session")
def driver():
    return fetched_driver()


@pytest.fixture
def world(driver):
    w = World(driver)
    yield w
    w.close()
