# SPDX-License-Identifier: Apache-2.0
"""Resident memory of an agent from its start on, connected to an API server."""

import pathlib
import re

from sim_kit import wait_until

CARDS, INSTANCES = 8, 7
DIVIDED = f"[gpu 0-{CARDS - 1}]\nmodel = A100\nmig = {','.join(['1g.10gb'] * INSTANCES)}\n"
MOST = 9 << 20


def test_a_fresh_agent_is_small(world_of):
    """Until all of its cards and instances are objects: most of what a start maps is code that does not run again."""
    world = world_of(DIVIDED)
    world.configure()
    world.start()
    seen = []

    def done():
        status = pathlib.Path(f"/proc/{world.agent.process.pid}/status").read_text()
        seen.append(int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.M)[1]) << 10)
        return len(world.api.find("gpus")) == CARDS * (1 + INSTANCES)
    wait_until(done, what="all objects are there")
    assert max(seen) <= MOST, [size >> 10 for size in seen[::100]]
