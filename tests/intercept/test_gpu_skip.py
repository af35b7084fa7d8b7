# SPDX-License-Identifier: Apache-2.0
"""Tests on a GPU are skipped where there is none, say so, and are not counted as passed."""

import re
import subprocess
import sys

import pytest
from intercept_kit import TOP


@pytest.mark.parametrize("driver", ["none", "without a GPU"])
def test_skipped_and_said(build, driver, tmp_path):
    where = tmp_path if driver == "none" else build / "tests" / "bench" / "null"
    if driver == "none":
        (tmp_path / "libcuda.so.1").write_text("not a library\n")
    done = subprocess.run([sys.executable, TOP / "tests" / "gpu" / "run.py", "--build", build, "--write"], stdout=subprocess.PIPE,
                          text=True, timeout=30, env={"LD_LIBRARY_PATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"})
    said, hopper, counted = done.stdout.splitlines()
    assert hopper == "skipped: no GH200"
    assert done.returncode == 0 and said.startswith("skipped: no ") and said.endswith("were not run")
    assert re.fullmatch(r"0 passed, 0 failed, [1-9]\d* skipped", counted)
