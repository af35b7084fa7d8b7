# SPDX-License-Identifier: Apache-2.0
"""What a tenant can try with the driver's own functions: races that could keep memory out of the books, random stories,
and launches in ways that could keep them from being measured."""

import os
import subprocess
import time

import pytest

SECONDS = 3


@pytest.fixture(scope="module")
def attack(aliquot, programs):
    """Runs a program in a share on a simulated card; returns the last line of what it prints."""
    def run(*words, options=("--memory", "4Gi"), timeout=90):
        done = subprocess.run([aliquot, "sim", "--", aliquot, "run", *options, "--", programs / words[0],
                               *map(str, words[1:])], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=timeout, env=dict(os.environ, HOLDER=str(programs / "holder")))
        assert done.returncode == 0, (words, done.stdout[-2000:])
        return done.stdout.splitlines()[-1]
    return run


@pytest.mark.parametrize("what", ["map", "unmap", "capture", "restore", "context", "primary", "pooled", "cancel"])
def test_two_threads_at_once(attack, what):
    assert attack("races", what, SECONDS) == "ok"


@pytest.mark.parametrize("mode", ["own", "shared"])
def test_random_stories(attack, mode):
    """The seed is in the message of a failure, which `stories` takes as its second word."""
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    assert attack("stories", mode, seed, 400) == "ok"


@pytest.mark.waits
@pytest.mark.parametrize("way", ["release", "refused", "contexts", "elsewhere"])
def test_what_ends_a_context_ends_no_debt(attack, way):
    """At 10 %, kernels of 20 ms: without their measurements each would cost 50 us."""
    share = float(attack("dodger", way, 20_000_000, SECONDS, options=("--core", "10")).split()[0])
    assert 0.02 <= share <= 0.15, share


@pytest.mark.waits
def test_a_process_killed_in_the_end_of_a_context_has_paid(attack):
    """At 10 %, kernels of 100 ms of which nine tenths run."""
    share = float(attack("dodger", "killed", 100_000_000, SECONDS, options=("--core", "10")).split()[0])
    assert 0.02 <= share <= 0.2, share
