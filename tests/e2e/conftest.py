# SPDX-License-Identifier: Apache-2.0
"""One real cluster for all end-to-end tests, with Aliquot installed as a user would."""

import os
import pathlib
import subprocess
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e")]

import kit                                              # noqa: E402  (the path comes first)
import worlds                                           # noqa: E402


@pytest.fixture(scope="session")
def build():
    where = os.environ.get("ALIQUOT_BUILD")
    assert where, "set ALIQUOT_BUILD to the build directory"
    return pathlib.Path(where)


@pytest.fixture(scope="session")
def nvidia_smi():
    """The real one, from Debian's packages; it lies in a cache and is not installed."""
    done = subprocess.run([TOP / "scripts/fetch-driver535"], check=True, stdout=subprocess.PIPE, text=True)
    return pathlib.Path(done.stdout.strip()) / "nvidia-smi"


@pytest.fixture(scope="session")
def programs(build):
    """What the image of test pods has beside the probe."""
    return [*(build / "tests/workloads" / name for name in ("gpu-forger", "gpu-spin", "gpu-hoard")), "/sbin/ldconfig"]


@pytest.fixture(scope="session")
def world(build, programs, nvidia_smi):
    """The cluster with Aliquot on it; a cluster of its own for each process that runs tests. Variables choose the mode, and
    whether shares by ResourceClaims are served, too."""
    name = os.environ.get("ALIQUOT_E2E_CLUSTER") or f"e2e-{os.getpid()}"
    own = os.environ.get("ALIQUOT_E2E_SCHEDULER") == "own"
    claims = bool(os.environ.get("ALIQUOT_E2E_CLAIMS"))
    with worlds.installed(name, build, programs, [nvidia_smi], own, claims) as installed:
        yield installed
        installed.wait_cleared()


@pytest.fixture
def space(world, request):
    """A namespace of the test's own."""
    with kit.temporary_space(world) as made:
        request.node.stash[SPACE] = made
        yield made


@pytest.fixture
def room(machine):
    """The same where a module has a cluster of its own, `machine`."""
    with kit.temporary_space(machine) as made:
        yield made


SPACE = pytest.StashKey()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    world = getattr(item, "funcargs", {}).get("world")
    if report.failed and world is not None:
        for title, text in kit.evidence(world, item.stash.get(SPACE, None)):
            report.sections.append((title, text))
