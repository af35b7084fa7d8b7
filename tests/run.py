#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests and ends with one line: N passed, N failed.

Meson runs the programs in C (unit, fuzz, torture, interop, sim); pytest runs what drives whole
processes (the simulated driver with its unmodified readers, and the end-to-end tests on a real
cluster), in groups: each line begins with the name of its group. With --sanitize only the first
kind runs: sanitizers and preloaded libraries do not mix. With --foreign only the pytest cases about
programs of other projects run, all of them; otherwise those of them that are marked as long are
left out.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
# Python tests wait more than they compute: two lanes run beside each other, in each one group after the other. The two take
# about as long: of the tests on clusters, most of which share one, a part runs in the lane of the others.
FROM_RELEASE_TO_RELEASE = [f"tests/e2e/test_{name}.py" for name in
                           ("change_of_mode", "install_bad_days", "uninstall", "uninstall_release", "upgrade")]
OWN_CLUSTER = [f"tests/e2e/test_{name}.py" for name in
               ("admission", "autoscaling", "driver_limits", "exclusive_cpus", "helm", "own_scheduler",
                "shipped_intervals", "topology", "two_nodes")]
OTHERS = ["tests/sim", "tests/mps", "tests/intercept", "tests/cli", "tests/gpu", "tests/cluster"]
AT_ONCE = 6     # tests marked `waits`


def waiting_modules():
    """Those of OTHERS with tests marked `waits`. Each of several processes collects them, and no more."""
    for place in OTHERS:
        for path in sorted((TOP / place).rglob("test_*.py")) or [TOP / place]:
            if "mark.waits" in path.read_text():
                yield str(path.relative_to(TOP))


PYTEST_GROUPS = {   # arguments of pytest, and which cases
    "own-cluster": (OWN_CLUSTER, None),
    "releases": (FROM_RELEASE_TO_RELEASE, None),
    "end-to-end": (["tests/e2e", *(f"--ignore={path}" for path in OWN_CLUSTER + FROM_RELEASE_TO_RELEASE)], None),
    "waiting": (["-n", str(AT_ONCE), "--maxschedchunk=1", *waiting_modules()], "waits"),
    "other": (OTHERS, "not waits"),
}
LANES = [["own-cluster", "end-to-end"], ["waiting", "other", "releases"]]
SLOWEST = 30
# Seconds after which the main thread handles a signal that arrived just before a wait began, which does not end that wait.
HANDLE = 0.5
# Exit statuses of pytest after which every case has run; the last one is for a selection without cases in a group.
PYTEST_RAN, PYTEST_NONE = (0, 1), 5

# Not stepping (single-stepping through instrumented code takes minutes), nor what preloads.
SANITIZED_SUITES = ["unit", "fuzz", "interop", "sim", "torture"]

# Markers of pytest cases, see tests/conftest.py.
FOREIGN, ROUTINE = "foreign", "not long"
# Seconds after which a test that hangs fails, with its stack, so that the others run. Several times what the slowest takes.
AT_MOST = {ROUTINE: 600, FOREIGN: 3600}


class Children:
    """Processes that end with this one, and take down what they have started. Each leads a process group, which a terminal's
    Ctrl-C does not reach: their own signal does, once."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = {}   # process: the signal that ends it
        self.ending = False

    def start(self, command, ends_by, **options):
        with self.lock:
            if self.ending:
                sys.exit()  # a thread
            process = subprocess.Popen(command, cwd=TOP, start_new_session=True, **options)
            self.running[process] = ends_by
        return process

    def run(self, command, **options):
        process = self.start(command, signal.SIGTERM, **options)
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(HANDLE)
        return process.returncode

    def end(self):
        with self.lock:
            self.ending = True
        for process, ends_by in self.running.items():
            with contextlib.suppress(ProcessLookupError):   # another thread has seen its end
                if process.poll() is None:
                    os.killpg(process.pid, ends_by)
        for process in self.running:
            process.wait()


children = Children()


def join(threads):
    for thread in threads:
        while thread.is_alive():
            thread.join(HANDLE)


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = 0
        self.failures = []

    def fail(self, name, detail=""):
        self.failed += 1
        self.failures.append((name, detail))


def say(text):
    print(f"== {text}", flush=True)


def configure(build, sanitize):
    if (build / "build.ninja").exists():
        return
    command = ["meson", "setup", str(build), str(TOP)]
    if sanitize:
        command += [f"-Db_sanitize={sanitize}", "-Db_lundef=false", "-Dbuildtype=debugoptimized"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def meson_results(build):
    """The last result of each test that meson wrote down."""
    log = build / "meson-logs" / "testlog.json"
    results = {}
    for line in log.read_text().splitlines():
        entry = json.loads(line)
        results[entry["name"]] = entry
    return results.values()


def run_meson(build, sanitize, suites, totals):
    command = ["meson", "test", "-C", str(build), "--no-rebuild", "--print-errorlogs"]
    for suite in suites:
        command += ["--suite", suite]
    environment = dict(os.environ)
    if sanitize:        # several times slower, and the bounds are meant for programs as they are
        command += ["--timeout-multiplier", "5"]
    if sanitize == "thread":
        # gcc 12's runtime cannot place its shadow with the kernel's full address randomisation.
        command = ["setarch", "-R"] + command
        environment["TSAN_OPTIONS"] = "halt_on_error=1"
    if sanitize and "address" in sanitize:
        environment["ASAN_OPTIONS"] = "detect_leaks=1"
        environment["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1"
    status = children.run(command, env=environment)

    counted = 0
    for entry in meson_results(build):
        counted += 1
        if entry["result"] in ("OK", "EXPECTEDFAIL"):
            totals.passed += 1
        else:
            totals.fail(entry["name"], entry["result"])
    if counted == 0:
        totals.fail("meson test", f"ran nothing, exit status {status}")


def run_source_rules(totals):
    for command in (["scripts/check-source"], ["scripts/format", "--check"]):
        done = subprocess.run(command, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        print(done.stdout, end="")
        if done.returncode == 0:
            totals.passed += 1
        else:
            totals.fail(" ".join(command), f"{len(done.stdout.splitlines())} lines of breaches")


def pytest_command(venv, build, group, marked, only):
    arguments, marker = PYTEST_GROUPS[group]
    command = [f"{venv}/bin/python", "-m", "pytest", "--no-header", "--tb=short", "-p", "no:cacheprovider", "--durations=10",
               f"--timeout={AT_MOST[marked]}",
               f"--junitxml={report_of(build, group)}", "-m", f"({marked}) and ({marker})" if marker else marked, *arguments]
    return command + (["-k", only] if only else [])


def report_of(build, group):
    return build / f"pytest-{group}.xml"


def run_group(command, build, group):
    """Prints what pytest prints as it comes, and keeps it in pytest-GROUP.log. Returns its exit status."""
    report_of(build, group).unlink(missing_ok=True)
    environment = dict(os.environ, ALIQUOT_BUILD=str(build.resolve()), PYTHONDONTWRITEBYTECODE="1")
    process = children.start(command, signal.SIGINT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, errors="replace")
    with open(build / f"pytest-{group}.log", "w") as log:
        for line in process.stdout:
            log.write(line)
            print(f"[{group}] {line}", end="", flush=True)
    return process.wait()


def run_lanes(commands, build):
    """Exit statuses by group."""
    statuses = {}

    def run_lane(groups):
        for group in groups:
            statuses[group] = run_group(commands[group], build, group)
    threads = [threading.Thread(target=run_lane, args=(groups,), daemon=True) for groups in LANES]
    for thread in threads:
        thread.start()
    join(threads)
    return statuses


def count_pytest(build, group, status, selected, totals):
    """Counts the cases of a group; returns the seconds that each took. Only a group from which cases were selected may
    have none."""
    if status == PYTEST_NONE and selected:
        return []
    if status not in PYTEST_RAN:
        totals.fail(f"pytest, {group} tests", f"exit status {status}")
    report = report_of(build, group)
    if not report.exists():
        totals.fail(f"pytest, {group} tests", "ended without a report")
        return []
    cases = list(ElementTree.parse(report).iter("testcase"))
    for case in cases:
        problems = [child for child in case if child.tag in ("failure", "error", "skipped")]
        if problems:  # a skipped test is no passed test
            totals.fail(f"{case.get('classname')}.{case.get('name')}",
                        (problems[0].get("message") or "").splitlines()[:1])
        else:
            totals.passed += 1
    return [float(case.get("time")) for case in cases]


def run_pytest(build, marked, only, totals):
    venv = subprocess.run([TOP / "scripts/test-venv"], check=True, stdout=subprocess.PIPE,
                          text=True).stdout.strip()
    # Here and not in a fixture: it takes minutes the first time, and says how far it is.
    subprocess.run([sys.executable, TOP / "tests/cluster", "build"], check=True, stdout=subprocess.DEVNULL)
    began = time.monotonic()
    say("Python tests: " + ", ".join(f"{build}/pytest-{group}.log" for group in PYTEST_GROUPS))
    statuses = run_lanes({group: pytest_command(venv, build, group, marked, only) for group in PYTEST_GROUPS}, build)
    selected = bool(only) or marked == FOREIGN
    took = {group: count_pytest(build, group, statuses.get(group), selected, totals) for group in PYTEST_GROUPS}
    every = sorted(sum(took.values(), []), reverse=True)
    say(f"{len(every)} Python tests took {sum(every):.0f} s ({sum(took['waiting']):.0f} s of them {AT_ONCE} at once), the "
        f"slowest {SLOWEST} of them {sum(every[:SLOWEST]):.0f} s, in {time.monotonic() - began:.0f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=TOP / "build", help="build directory")
    parser.add_argument("--sanitize", help="address,undefined or thread")
    parser.add_argument("--suite", action="append", default=[], help="only this Meson suite")
    parser.add_argument("--only", help="only pytest cases that match (pytest -k)")
    parser.add_argument("--no-pytest", action="store_true", help="only the programs in C")
    parser.add_argument("--no-meson", action="store_true", help="only pytest")
    parser.add_argument("--foreign", action="store_true", help="only pytest cases with programs of other projects")
    arguments = parser.parse_args()

    started = time.monotonic()
    totals = Totals()
    suites = arguments.suite or (SANITIZED_SUITES if arguments.sanitize else [])
    in_c = not arguments.no_meson and not arguments.foreign
    in_python = not arguments.no_pytest and not suites
    marked = FOREIGN if arguments.foreign else ROUTINE
    say(f"building in {arguments.build}")
    configure(arguments.build, arguments.sanitize)
    if children.run(["ninja", "-C", str(arguments.build), "--quiet"]) != 0:
        return 1

    if not suites and not arguments.foreign:
        run_source_rules(totals)
    if in_c:
        run_meson(arguments.build, arguments.sanitize, suites, totals)
    if in_python:
        run_pytest(arguments.build, marked, arguments.only, totals)

    for name, detail in totals.failures:
        print(f"FAILED {name} {detail}")
    say(f"took {time.monotonic() - started:.0f} s")
    print(f"{totals.passed} passed, {totals.failed} failed")
    return 1 if totals.failed or not totals.passed else 0


def without_leftovers(function):
    """Calls it; however it ends, by SIGTERM or Ctrl-C as well, its children end first."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        return function()
    finally:
        children.end()


if __name__ == "__main__":
    sys.exit(without_leftovers(main))
