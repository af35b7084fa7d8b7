# SPDX-License-Identifier: Apache-2.0
import os
import pathlib

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def build():
    return pathlib.Path(os.environ.get("ALIQUOT_BUILD", TOP / "build")).resolve()


@pytest.fixture(scope="session")
def aliquot(build):
    return str(build / "src" / "cli" / "aliquot")
