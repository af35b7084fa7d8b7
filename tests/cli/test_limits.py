# SPDX-License-Identifier: Apache-2.0
"""`aliquot limits`, and the arbiter of GPU time that one `aliquot run` is for all of them."""

import contextlib
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

import pytest

GiB = 1 << 30


class Run:
    """An `aliquot run` on a simulated machine; its command waits until its input ends."""

    def __init__(self, aliquot, machine, *options):
        self.process = subprocess.Popen(
            [aliquot, "run", *options, "--", "sh", "-c", "echo $ALIQUOT_SHARE_DIR; exec cat"], env=machine,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.dir = pathlib.Path(self.process.stdout.readline().strip())

    @property
    def pid(self):
        return self.process.pid

    def grant(self, device=0):
        """Beat and rate, as the container sees them (src/share/compute_core.h)."""
        data = (self.dir / "grants").read_bytes()
        (beat,) = struct.unpack_from("<Q", data, 16)
        (rate,) = struct.unpack_from("<I", data, 128 + 128 * device + 4)
        return beat, rate

    def end(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(20)
        self.process.stdout.close()


def wait_for(check, what, seconds=10):
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.005)


@pytest.fixture
def machine(aliquot, tmp_path):
    """The environment of a simulated machine with one GPU."""
    sim = subprocess.Popen([aliquot, "sim", "--", "sh", "-c", "env; exec cat"], stdin=subprocess.PIPE,
                           stdout=subprocess.PIPE, text=True)
    env = {}
    for line in sim.stdout:
        name, _, value = line.rstrip("\n").partition("=")
        env[name] = value
        if {"ALIQUOT_SIM_DIR", "LD_LIBRARY_PATH", "PATH"} <= env.keys():
            break
    yield dict(os.environ, **{k: env[k] for k in ("ALIQUOT_SIM_DIR", "LD_LIBRARY_PATH")})
    sim.stdin.close()
    sim.stdout.close()
    sim.wait(20)


@pytest.fixture
def start(aliquot, machine):
    runs = []

    def call(*options):
        runs.append(Run(aliquot, machine, *options))
        return runs[-1]
    yield call
    for run in runs:
        run.end()


def limits(aliquot, *arguments):
    return subprocess.run([aliquot, "limits", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=20)


def row_of(aliquot, run):
    for line in limits(aliquot).stdout.splitlines():
        if line.split()[0] == str(run.pid):
            return line
    return ""


def test_runs_are_granted_what_they_asked(start):
    thirty, seventy = start("--core", "30"), start("--core", "70", "--policy", "burst")
    for run, rate in ((thirty, 300000), (seventy, 700000)):
        wait_for(lambda r=run: r.grant()[0] > 0, "an arbiter's beat")
        assert run.grant()[1] >= rate
    assert thirty.grant()[1] == 300000      # fixed, and so also while the other is idle


def test_the_next_one_arbitrates_when_the_first_is_killed(start):
    first, second = start("--core", "30"), start("--core", "50")
    wait_for(lambda: second.grant()[0] > 0, "an arbiter's beat")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait(10)
    beat = second.grant()[0]
    # Both cannot beat: the process that does now is the second itself. Its bound is that of a reader who gives up.
    wait_for(lambda: second.grant()[0] > beat + 3, "the second takes over", 2)
    assert second.grant()[1] == 500000
    third = start("--core", "20")
    wait_for(lambda: third.grant() >= (1, 200000), "the second arbitrates for others")
    assert third.grant()[1] == 200000


def test_limits_change_in_both_directions(aliquot, start):
    run = start("--memory", "4Gi", "--core", "30")
    wait_for(lambda: run.grant()[1] == 300000, "the share")
    assert "4 GiB" in row_of(aliquot, run) and "30 %" in row_of(aliquot, run) and "fixed" in row_of(aliquot, run)
    assert limits(aliquot, "set", "--share", str(run.pid), "--memory", "2Gi", "--core", "60").returncode == 0
    wait_for(lambda: run.grant()[1] == 600000, "the larger share")
    assert "2 GiB" in row_of(aliquot, run) and "60 %" in row_of(aliquot, run)
    assert limits(aliquot, "set", "--share", str(run.pid), "--core", "10", "--policy", "burst", "--ceiling", "50",
                  "--memory", "0").returncode == 0
    wait_for(lambda: run.grant()[1] == 100000, "the smaller share")
    line = row_of(aliquot, run)
    assert "burst" in line and "all" in line


def test_below_what_is_in_use_nothing_new_and_nothing_killed(aliquot, build, machine):
    """The program holds 2 GiB while its limit sinks to 1 GiB and rises again."""
    script = ("import ctypes, sys\n"
              "c = ctypes.CDLL('libcuda.so.1'); u = ctypes.c_ulonglong; h = ctypes.c_void_p()\n"
              "assert c.cuInit(0) == 0 and c.cuDevicePrimaryCtxRetain(ctypes.byref(h), 0) == 0\n"
              "assert c.cuCtxSetCurrent(h) == 0\n"
              "for line in sys.stdin:\n"
              "    p = u(); print(c.cuMemAlloc_v2(ctypes.byref(p), u(int(line))), flush=True)\n")
    run = subprocess.Popen([aliquot, "run", "--memory", "4Gi", "--", "python3", "-c", script], env=machine,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def alloc(size):
        run.stdin.write(f"{size}\n")
        run.stdin.flush()
        return int(run.stdout.readline())
    try:
        assert alloc(2 * GiB) == 0
        for limit, result, state in (("1Gi", 2, True), ("4Gi", 0, False), ("2Gi", 2, True), ("8Gi", 0, False)):
            done = limits(aliquot, "set", "--share", str(run.pid), "--memory", limit)
            assert done.returncode == 0, done.stderr
            assert alloc(1 << 20) == result
            assert ("over its limit" in limits(aliquot).stdout) is state
    finally:
        run.stdin.close()
        assert run.wait(20) == 0
        run.stdout.close()


def busy(aliquot, machine):
    """{PID: nanoseconds of GPU}, {the card's time that no process could use}, by the card itself."""
    text = subprocess.run([aliquot, "sim", "show"], env=machine, stdout=subprocess.PIPE, text=True, check=True).stdout
    (switching,) = map(int, re.findall(r"switching_ns=(\d+)", text))
    return {int(p): int(b) for p, b in re.findall(r"^process=(\d+) .*busy_ns=(\d+)", text, re.M)}, switching


def test_time_is_divided_between_runs_and_divided_anew(aliquot, build, machine):
    """Two programs that want the whole card; the figures are the card's own."""
    spin = [str(build / "tests/workloads/gpu-spin"), "1000000"]
    runs = [subprocess.Popen([aliquot, "run", *options, "--", *spin], env=machine, stdout=subprocess.PIPE, text=True)
            for options in (["--core", "30", "--policy", "burst"], ["--core", "70"])]
    try:
        for run in runs:
            assert run.stdout.readline() == "started\n"

        def parts():
            (first, lost), start = busy(aliquot, machine), time.monotonic_ns()
            time.sleep(1)       # the measurement itself
            (last, lost_now), end = busy(aliquot, machine), time.monotonic_ns()
            whole = end - start - (lost_now - lost)
            return [(last[p] - first[p]) / whole for p in pids]
        # The command of each run is its only child.
        pids = [int(pathlib.Path(f"/proc/{r.pid}/task/{r.pid}/children").read_text()) for r in runs]
        wait_for(lambda: all(p in busy(aliquot, machine)[0] for p in pids), "both at work")

        def becomes(*wanted):
            seen = []
            while not seen or any(abs(a - b) > 0.03 for a, b in zip(seen[-1], wanted)):
                assert len(seen) < 30, (wanted, seen)
                seen.append(parts())
        becomes(0.30, 0.70)
        assert limits(aliquot, "set", "--share", str(runs[1].pid), "--core", "20").returncode == 0
        becomes(0.80, 0.20)     # what the one may not have any more, the other borrows
        assert limits(aliquot, "set", "--share", str(runs[0].pid), "--ceiling", "50").returncode == 0
        becomes(0.50, 0.20)
        runs[0].kill()          # possibly the arbiter: the share of the other stays what it is
        os.kill(pids[0], signal.SIGKILL)
        pids = pids[1:]
        becomes(0.20)
    finally:
        for run in runs:
            run.terminate()
            run.wait(20)
            run.stdout.close()


@pytest.mark.parametrize("options, hint", [
    (["--share", "1", "--core", "30"], "no such"), (["--core", "130"], "130"), (["--memory", "lots"], "lots"),
    (["--policy", "greedy"], "greedy"), (["what"], "what")])
def test_wrong_options_say_what_is_wrong(aliquot, start, options, hint):
    start("--core", "30")
    done = limits(aliquot, "set", *options)
    assert done.returncode == 2 and hint in done.stderr


def test_memory_below_a_context(aliquot, start):
    run = start("--memory", "4Gi")
    done = limits(aliquot, "set", "--share", str(run.pid), "--memory", "1Mi")
    assert done.returncode == 2 and "context" in done.stderr


def test_nothing_of_a_run_is_left(start):
    run = start("--core", "30")
    directory = run.dir
    assert directory.is_dir()
    run.end()
    assert not directory.exists()
