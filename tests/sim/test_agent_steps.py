# SPDX-License-Identifier: Apache-2.0
"""Long work of the agent's loop does not hold up kubelet's calls. In CPU time: it does not depend on what else runs here."""

import urllib.request

from sim_kit import Polls

MOST = 0.001        # seconds of CPU time between two times at which kubelet's calls are read
ROUNDS = 10
PAGES = ("/metrics", "/usage", "/history")


def late(waits):
    return waits[float("inf")] - waits[MOST]


def test_calls_are_read_between_the_steps_of_long_work(full):
    """While containers start, the cards are read and pages are written, each of which takes milliseconds. A few of some
    thousand steps may take long: caches are cold on a busy machine. A kind of work without a step in it is late each time:
    with every container, or with every round."""
    begun = len(full.fill(health="interval: 100ms"))
    started = full.waits()
    assert late(started) < begun / 2, started
    polls = Polls(full.node)
    for _ in range(ROUNDS):
        for page in PAGES:
            request = urllib.request.Request(f"http://{full.agent.address}{page}", headers={"Accept-Encoding": "gzip"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert answer.headers["Content-Encoding"] == "gzip" or page == "/history"
        polls.wait(1)
    now = full.waits()
    assert now[float("inf")] - started[float("inf")] > ROUNDS * len(PAGES), "the agent does not measure it"
    assert late(now) - late(started) < ROUNDS / 2, now
