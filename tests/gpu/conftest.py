# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import sys

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests" / "gpu"), str(TOP / "tests" / "gpu" / "kit")]


@pytest.fixture(scope="session")
def build():
    return pathlib.Path(os.environ.get("ALIQUOT_BUILD", TOP / "build")).resolve()


@pytest.fixture(scope="session")
def kit(build, tmp_path_factory):
    """The kit, packed as make gpu-kit does."""
    import pack
    folder = tmp_path_factory.mktemp("packed") / "gpu-kit"
    pack.pack(build, folder)
    return folder
