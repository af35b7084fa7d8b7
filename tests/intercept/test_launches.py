# SPDX-License-Identifier: Apache-2.0
"""Every exported way to launch goes through the throttle."""

import re
import subprocess

from abi import CUDA as ROWS


def test_every_way_to_launch_is_charged(aliquot, programs):
    """At a quarter of the card, work takes four times as long as the card needs for it. Less where the first launches go
    before it is known what they cost; ungated it would be once."""
    done = subprocess.run([aliquot, "sim", "--", aliquot, "run", "--core", "25", "--", programs / "launches"],
                          stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    ratio = {way: float(times) for way, times in (line.split() for line in done.stdout.splitlines())}
    assert {way for way, times in ratio.items() if times < 1.4} == set(), ratio
    launchers = {row.symbol for row in ROWS if row.kind == "HOOK" and re.match("cuLaunch|cuGraphLaunch", row.symbol)}
    assert launchers == ratio.keys() - {"uploaded", "updated", "conditional"}
