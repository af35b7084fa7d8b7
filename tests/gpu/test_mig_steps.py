# SPDX-License-Identifier: Apache-2.0
"""Rehearsal on the simulator of what tests/gpu/mig.py does on a real GPU."""

import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).with_name("mig.py")


def run(build, *machine):
    return subprocess.run([build / "src/cli/aliquot", "sim", *machine, "--gpus", "1", "--", sys.executable, PROGRAM, build],
                          capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can hide device nodes from a process")
@pytest.mark.parametrize("model", ["A100", "H100"])
def test_every_step(build, model):
    """On cards that keep MIG mode at a reset and on cards that do not."""
    done = run(build, "--model", model)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == len(done.stdout.splitlines()) == 4


def test_a_card_without_mig(build):
    done = run(build, "--model", "T4")
    assert done.returncode == 1 and done.stdout == "MIG: skipped (the card has no MIG)\n", done.stdout + done.stderr
