# SPDX-License-Identifier: Apache-2.0
"""Where things are, for the tests of the interception library."""

import os
import pathlib
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


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


def fetched(script):
    done = subprocess.run([TOP / "scripts" / script], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(scope="session")
def real_driver():
    """Directory with the real libcuda and libnvidia-ml 535, which resolve names without a GPU."""
    return fetched("fetch-driver535")


@pytest.fixture(scope="session")
def nvidia_headers():
    return fetched("fetch-cuda-headers")


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
