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
