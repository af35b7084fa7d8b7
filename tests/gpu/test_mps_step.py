# SPDX-License-Identifier: Apache-2.0
"""Two clients of MPS in one share, a step of run.py and of gpu-kit: rehearsals on the simulator."""

import json
import subprocess
import sys

import mps

PASSES = """#!/bin/sh
until [ "$1" = -- ]; do shift; done
shift
exec "$@"
"""


def share(build, aliquot):
    return subprocess.run([build / "src/cli/aliquot", "sim", "--gpus", "1", "--", sys.executable, mps.__file__, "share", aliquot, "--simulated"],
                          capture_output=True, text=True, timeout=120)


def test_two_clients_in_one_share(build):
    """They are held to its sum, and memory of clients, which are in a list of their own, is counted once."""
    said = share(build, build / "src/cli/aliquot")
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)["listed"]
    assert found["Compute"] == {} and sorted(found["MPSCompute"].values()) == [1, 2]


def test_a_share_that_holds_none_of_them_is_noticed(build, tmp_path):
    fake = tmp_path / "aliquot"
    fake.write_text(PASSES)
    fake.chmod(0o755)
    said = share(build, fake)
    assert said.returncode == 1 and "the share does not hold its clients" in said.stderr
