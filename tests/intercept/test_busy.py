# SPDX-License-Identifier: Apache-2.0
"""GPU time of programs that launch so much that they need a CPU: these tests have no mark `waits`, unlike those of
test_compute.py, and run one after the other."""

import pytest
from test_compute import SECONDS, share  # noqa: F401 (a fixture)


@pytest.mark.parametrize("way", ["fill", "fill-rows", "copy"])
def test_fills_and_copies_are_charged(share, way):  # noqa: F811
    """2,000 ns of the simulated card each, which without a limit take nearly all of it."""
    part, = share(("--core 5", f"{way} 2000 1"))
    assert 0.005 <= part <= 0.09


def test_fills_beside_kernels(share):  # noqa: F811
    fills, kernels = sorted(share(("--core 10", f"fill 2000 {SECONDS}"), ("--core 90", f"kernel 1000000 {SECONDS}")))
    assert 0.03 <= fills <= 0.13 and kernels >= 0.45


def test_whole_card_is_not_slowed(share):  # noqa: F811
    part, = share(("", f"kernel 100000 {SECONDS}"))
    assert part >= 0.4


def test_captures_stay_whole(share):  # noqa: F811
    """Launches into a graph, under a limit, while others are gated: nothing is added to it, and it costs nothing."""
    part, = share(("--core 30", f"capture 100000 {SECONDS}"))
    assert 0.05 <= part <= 0.33
