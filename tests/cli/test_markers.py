# SPDX-License-Identifier: Apache-2.0
"""Which tests `make test` and `make test-foreign` run."""

import importlib.util
import pathlib
import re
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


@pytest.fixture
def selections():
    """tests/run.py. The kit for a GPU has a module of the same name, which this process may have."""
    spec = importlib.util.spec_from_file_location("tests_run", TESTS / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_test_runs_in_a_target(directory, selections):
    assert names(directory, "-m", selections.ROUTINE) == ({"own", "short"}, 0)
    assert names(directory, "-m", selections.FOREIGN) == ({"short", "long"}, 0)


def test_a_long_test_that_is_not_foreign_would_run_nowhere(directory):
    (directory / "test_wrong.py").write_text("import pytest\n@pytest.mark.long\ndef test_wrong(): pass\n")
    assert names(directory)[1] == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize("status, selected, failed", [(0, False, 0), (4, False, 1), (2, False, 1), (5, False, 1), (5, True, 0)])
def test_a_group_that_did_not_run_fails(tmp_path, selections, status, selected, failed):
    """pytest writes a valid report without cases where a path of a group is gone."""
    (tmp_path / "pytest-other.log").write_bytes(b"\xff")
    (tmp_path / "pytest-other.xml").write_text('<testsuites><testsuite tests="0"/></testsuites>')
    totals = selections.Totals()
    assert selections.count_pytest(tmp_path, "other", status, selected, totals) == []
    assert totals.failed == failed


def test_each_test_file_is_in_one_group(selections):
    top = TESTS.parent
    groups = [({top / a for a in arguments if not a.startswith("--")},
               {top / a.removeprefix("--ignore=") for a in arguments if a.startswith("--")})
              for arguments in selections.PYTEST_GROUPS.values()]
    for path in TESTS.rglob("test_*.py"):
        places = {path, *path.parents}
        assert sum(bool(places & taken) and not places & ignored for taken, ignored in groups) == 1, path
