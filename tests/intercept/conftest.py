# SPDX-License-Identifier: Apache-2.0
"""Where things are, for the tests of the interception library."""

import os
import pathlib
import subprocess

import pytest
from intercept_kit import CARGO, STEMS, TOP, WaysIn, fetched


def pytest_report_header():
    if not CARGO:
        return "Rust's NVML binding: not tried, there is no cargo here"
    return None


@pytest.fixture(scope="session")
def build():
    return pathlib.Path(os.environ.get("ALIQUOT_BUILD", TOP / "build")).resolve()


@pytest.fixture(scope="session")
def aliquot(build):
    return str(build / "src" / "cli" / "aliquot")


@pytest.fixture(scope="session")
def library(build):
    return str(build / "src" / "intercept" / "libaliquot.so")


@pytest.fixture(scope="session")
def programs(build):
    """Directory of the test programs."""
    return build / "tests" / "intercept"


@pytest.fixture(scope="session")
def real_driver():
    """Directory with the real libcuda and libnvidia-ml 535, which resolve names without a GPU."""
    return fetched("fetch-driver535")


@pytest.fixture(scope="session")
def toolkits():
    """Directories of the CUDA releases that there are, by name, oldest first: include/ and lib/."""
    found = [d for d in pathlib.Path(fetched("fetch-cuda-toolkits")).iterdir() if d.is_dir()]
    return {d.name: d for d in sorted(found, key=lambda d: tuple(map(int, d.name.split("."))))}


@pytest.fixture
def sim(aliquot):
    """Runs a command on simulated GPUs, in a slice where `memory` is given; returns the finished process."""
    def run(*command, gpus=1, memory=None, gpu=None, timeout=60, env=None, check=True):
        line = [aliquot, "sim", "--gpus", str(gpus), "--"]
        if memory is not None or gpu is not None:
            line += [aliquot, "run"]
            line += ["--memory", str(memory)] if memory is not None else []
            line += ["--gpu", str(gpu)] if gpu is not None else []
            line += ["--"]
        done = subprocess.run(line + [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=timeout, env=dict(os.environ, **(env or {})))
        if check:
            assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        return done
    return run


@pytest.fixture(scope="session")
def drivers(request, build):
    """Libraries by stem, of a driver by name."""
    def find(name):
        where = pathlib.Path(request.getfixturevalue("real_driver")) if name == "real 535" else build / "src" / "sim"
        return {stem: (where / f"{stem}.so.1").resolve() for stem in STEMS}
    return find


@pytest.fixture(scope="module")
def ways_in(build, library, tmp_path_factory):
    return lambda driver: WaysIn(build, library, tmp_path_factory.mktemp("driver"), driver)
