# SPDX-License-Identifier: Apache-2.0
"""Which tests `make test` and `make test-foreign` run, and how tests/run.py runs them."""

import importlib.util
import os
import pathlib
import re
import select
import signal
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).resolve().parent.parent
MODULE = """
import pytest
def test_own(): pass
@pytest.mark.foreign
def test_short(): pass
@pytest.mark.foreign
@pytest.mark.long
def test_long(): pass
@pytest.mark.waits
def test_waiting(): pass
"""


def names(directory, *options):
    """Of the tests that run, and pytest's exit status."""
    done = subprocess.run([sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, directory],
                          stdout=subprocess.PIPE, text=True)
    return set(re.findall(r"::test_(\w+) PASSED", done.stdout)), done.returncode


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_module.py").write_text(MODULE)
    return tmp_path


RUN = f"""
import importlib.util, pathlib, sys
spec = importlib.util.spec_from_file_location("tests_run", {str(TESTS / "run.py")!r})
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)
"""


@pytest.fixture
def selections():
    """tests/run.py. The kit for a GPU has a module of the same name, which this process may have."""
    spec = importlib.util.spec_from_file_location("tests_run", TESTS / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_test_runs_in_a_target(directory, selections):
    assert names(directory, "-m", selections.ROUTINE) == ({"own", "short", "waiting"}, 0)
    assert names(directory, "-m", selections.FOREIGN) == ({"short", "long"}, 0)


def test_a_long_test_that_is_not_foreign_would_run_nowhere(directory):
    (directory / "test_wrong.py").write_text("import pytest\n@pytest.mark.long\ndef test_wrong(): pass\n")
    assert names(directory)[1] == pytest.ExitCode.USAGE_ERROR


def test_each_group_of_a_lane_has_its_own_tests(directory, selections):
    markers = [selections.PYTEST_GROUPS[group][1] for lane in selections.LANES for group in lane]
    assert sorted(group for lane in selections.LANES for group in lane) == sorted(selections.PYTEST_GROUPS)
    assert markers == [None, None, "waits", "not waits", None]
    assert names(directory, "-m", f"({selections.ROUTINE}) and (waits)") == ({"waiting"}, 0)
    waiting = {path for path in selections.PYTEST_GROUPS["waiting"][0] if path.endswith(".py")}
    assert {"tests/intercept/test_shares.py", "tests/intercept/test_orphans.py"} <= waiting
    assert "tests/intercept/test_memory.py" not in waiting


@pytest.mark.parametrize("status, selected, failed", [(0, False, 0), (4, False, 1), (2, False, 1), (5, False, 1), (5, True, 0)])
def test_a_group_that_did_not_run_fails(tmp_path, selections, status, selected, failed):
    """pytest writes a valid report without cases where a path of a group is gone."""
    (tmp_path / "pytest-other.xml").write_text('<testsuites><testsuite tests="0"/></testsuites>')
    totals = selections.Totals()
    assert selections.count_pytest(tmp_path, "other", status, selected, totals) == []
    assert totals.failed == failed


def test_each_test_file_is_in_one_group(selections):
    top = TESTS.parent
    # Those that wait are a part of the modules of another group.
    groups = [({top / a for a in arguments if not a.startswith("--")},
               {top / a.removeprefix("--ignore=") for a in arguments if a.startswith("--")})
              for name, (arguments, _) in selections.PYTEST_GROUPS.items() if name != "waiting"]
    for path in TESTS.rglob("test_*.py"):
        places = {path, *path.parents}
        assert sum(bool(places & taken) and not places & ignored for taken, ignored in groups) == 1, path


def test_lines_are_printed_as_they_come(tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    script = f"echo one; read x < {gate}; echo two"
    code = RUN + f'sys.exit(run.run_group(["sh", "-c", {script!r}], pathlib.Path({str(tmp_path)!r}), "other"))'
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout.readline() == "[other] one\n"
        gate.write_text("go\n")
        assert runner.stdout.read() == "[other] two\n"
    assert runner.returncode == 0 and (tmp_path / "pytest-other.log").read_text() == "one\ntwo\n"


@pytest.mark.parametrize("number, status", [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_children_end_with_the_runner(number, status):
    """Those in a lane's thread, and what they have started."""
    code = RUN + """
import threading
def main():
    lane = threading.Thread(target=run.children.run, args=(["sh", "-c", "sleep 1000 & echo $!; wait"],), daemon=True)
    lane.start()
    run.join([lane])
run.without_leftovers(main)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as runner:
        grandchild = os.pidfd_open(int(runner.stdout.readline()))
        runner.send_signal(number)
        assert runner.wait(10) == status
    assert select.select([grandchild], [], [], 10)[0]
    os.close(grandchild)


def test_two_runs_are_compared(tmp_path):
    """By case: one that is gone, and a module that is new, are apart from what both have."""
    def write(name, cases):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pytest-other.xml").write_text("<testsuites><testsuite>" + "".join(
            f'<testcase classname="{module}" name="{case}" time="{seconds}"/>' for module, case, seconds in cases)
            + "</testsuite></testsuites>")
        return str(tmp_path / name)
    before = write("before", [("old", "kept", 20), ("old", "gone", 3.5)])
    after = write("after", [("old", "kept", 9), ("new", "added", 4)])
    lines = subprocess.run([TESTS / "times.py", before, after], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert f"{before}: 2 cases, 24 s, the slowest 30 of them 24 s" in lines
    assert f"{after}: 2 cases, 13 s, the slowest 30 of them 13 s" in lines
    assert f"{after}, modules that {before} has: 1 cases, 9 s, the slowest 30 of them 9 s" in lines
    words = [line.split() for line in lines]
    for row in (["3.5", "-", "old::gone"], ["23.5", "9.0", "old"], ["-", "4.0", "new"], ["20.0", "9.0", "old::kept"]):
        assert row in words, row
