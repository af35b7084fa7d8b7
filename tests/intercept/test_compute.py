# SPDX-License-Identifier: Apache-2.0
"""GPU time in processes on the simulated machine: what a limited program gets, by its own count of work done.

How exact shares are is shown in virtual time (tests/unit/test-compute.c), where nothing else runs. Here the machine may
be loaded, so that no container gets its full entitlement: a share bounds from above by 3 points, and from below by half.
"""

import os
import subprocess
import time

import pytest

SECONDS = 1
LONG = 2        # of what begins with a credit: 3 points of a second are less than that
pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def share(aliquot, programs):
    """Runs programs in parallel, each in a slice, on one simulated card; returns what part of the card each had."""
    def run(*tenants, timeout=60, before=None):
        lines = []
        for options, words in tenants:
            command = f"{programs / 'tenant'} {words}"
            if before:
                command = f"sh -c '{before}; exec {command}'"
            lines.append(f"{aliquot} run {options} -- {command} & pids=\"$pids $!\"")
        script = "\n".join(lines) + "\nfor p in $pids; do wait $p || exit 1; done"
        done = subprocess.run([aliquot, "sim", "--", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=timeout, env=os.environ)
        assert done.returncode == 0, done.stderr
        return [float(line.split()[0]) for line in done.stdout.splitlines()]
    return run


def within(got, due):
    assert due * 0.5 <= got <= due + 0.03, (got, due)


@pytest.mark.parametrize("way, ns", [
    ("kernel", 10_000), ("kernel", 1_000_000), ("ptsz", 1_000_000), ("ex", 100_000), ("cooperative", 1_000_000),
    ("multi-device", 1_000_000), ("legacy", 1_000_000), ("legacy-async", 100_000), ("graph", 10_000_000),
    ("two-streams", 1_000_000)])
def test_a_share_alone(share, way, ns):
    within(*share(("--core 30", f"{way} {ns} {SECONDS}")), 0.30)


def test_a_child_begins_anew(share):
    """Forked while launches are limited: its copy of the throttle blocks no launch, and the program that it becomes has the
    same account."""
    parts = share(("--core 30", f"fork 1000000 {LONG}"))
    assert len(parts) == 2 and min(parts) >= 0.02
    within(sum(parts), 0.30)


def test_small_share(share):
    within(*share(("--core 5", f"kernel 1000000 {SECONDS}")), 0.05)


def test_who_waits_for_each_launch_gets_his_share(share):
    within(*share(("--core 30", f"kernel 1000000 {SECONDS} sync")), 0.30)


def test_a_long_kernel_pays_before_the_next(share):
    """500 ms at 25 %: one launch in 2 s. The first goes at once, so in 5 s there are three, and they end after 4.5 s."""
    part, = share(("--core 25", "kernel 500000000 5"))
    assert 0 < part <= 3 * 0.5 / 4.5 + 0.01


def test_short_lives_pay(aliquot, programs):
    """Each of eight processes ends right after its only launch, 50 ms long; at 10 % the next one waits half a second."""
    lives = f"for i in 1 2 3 4 5 6 7 8; do {programs / 'tenant'} kernel 50000000 0.001 || exit 1; done"
    began = time.monotonic()
    subprocess.run([aliquot, "sim", "--", aliquot, "run", "--core", "10", "--", "sh", "-c", lives],
                   stdout=subprocess.DEVNULL, timeout=60, check=True)
    assert time.monotonic() - began >= 7 * 0.45


def busy_ns(aliquot, lives):
    """How long the card worked for a script that has 10 % of it."""
    shown = subprocess.run([aliquot, "sim", "--", "sh", "-c", f"{aliquot} run --core 10 -- sh -c '{lives}'; {aliquot} sim show"],
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60, check=True).stdout
    return int(next(word for word in shown.split() if word.startswith("busy_ns=")).split("=")[1])


def test_who_is_killed_has_paid(aliquot, programs):
    """Each of six processes is killed half a second after its start, while its only kernel runs. At 10 % the first one's
    time is paid after five seconds, so none of the others launches."""
    lives = f"for i in 1 2 3 4 5 6; do timeout -s KILL 0.5 {programs / 'tenant'} kernel 10000000000 60; done"
    assert 0 < busy_ns(aliquot, lives) <= 800_000_000


def test_who_is_stopped_and_killed_has_paid(aliquot, programs):
    """Each of six processes stops when its only kernel runs, of a second, and is killed before that ends. At 10 % the
    first one's time is paid after some seconds, so none of the others launches."""
    life = f"{programs / 'tenant'} stop 1000000000 60 & sleep 0.8; kill -KILL $!; wait $!;"
    assert 0 < busy_ns(aliquot, f"for i in 1 2 3 4 5 6; do {life} done") <= 900_000_000


def test_two_shares(share):
    first, second = sorted(share(("--core 30", f"kernel 1000000 {SECONDS}"), ("--core 70", f"kernel 1000000 {SECONDS}")))
    assert first <= 0.33 and second <= 0.73
    assert 0.2 <= first / second <= 0.75


def test_idle_time_is_lent(share):
    part, = share(("--core 30 --policy burst", f"kernel 1000000 {SECONDS}"))
    assert part >= 0.4


def test_lent_time_comes_back(share):
    """The owner of 70 % comes after a second and stays two; the borrower runs for four."""
    owner, borrower = share(("--core 30 --policy burst", "kernel 1000000 4"),
                            ("--core 70 --policy burst", "kernel 1000000 2 1"))
    assert owner >= 0.4 and borrower <= 0.8


def test_processes_of_a_share_have_one_account(aliquot, programs):
    tenant = f"{programs / 'tenant'} kernel 1000000 {SECONDS}"
    done = subprocess.run([aliquot, "sim", "--", aliquot, "run", "--core", "30", "--", "sh", "-c",
                           f"{tenant} & {tenant} & {tenant} & wait"], stdout=subprocess.PIPE, text=True, timeout=60)
    parts = [float(line.split()[0]) for line in done.stdout.splitlines()]
    assert len(parts) == 3 and min(parts) >= 0.02
    within(sum(parts), 0.30)


def test_a_capture_without_end_is_no_way_out(share):
    """What is launched elsewhere meanwhile is measured, and the capture stays whole."""
    within(*share(("--core 30", f"one-capture 10000000 {LONG}")), 0.30)


@pytest.mark.parametrize("harm", [
    "rm $ALIQUOT_SHARE_DIR/grants",
    "rm $ALIQUOT_SHARE_DIR/compute",
    "rm $ALIQUOT_SHARE_DIR/grants $ALIQUOT_SHARE_DIR/compute",
    "rm $ALIQUOT_SHARE_DIR/grants; head -c 40000 /dev/urandom > $ALIQUOT_SHARE_DIR/grants",
    ": > $ALIQUOT_SHARE_DIR/compute",
], ids=["no grants", "no accounts", "neither", "other bytes", "empty"])
def test_without_an_arbiter_the_clock_limits(share, harm):
    within(*share(("--core 30", f"kernel 1000000 {SECONDS}"), before=harm), 0.30)


@pytest.mark.parametrize("byte", ["\\000", "\\377"])
def test_any_account_is_run_with(share, byte):
    """All accounts overwritten behind the header: the program runs on, whatever it gets."""
    harm = (f"head -c 16256 /dev/zero | tr \"\\000\" \"{byte}\" | "
            "dd of=$ALIQUOT_SHARE_DIR/compute bs=128 seek=1 conv=notrunc status=none")
    part, = share(("--core 30", f"kernel 1000000 {SECONDS}"), before=harm)
    assert part > 0.01
