# SPDX-License-Identifier: Apache-2.0
"""A simulated machine has what the release of its driver has."""

import os
import subprocess
import sys

import pytest
from sim_kit import ALIQUOT

VERSION = """
import ctypes
cuda, version = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
function, status = ctypes.c_void_p(), ctypes.c_int()
assert cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
print(version.value)
assert cuda.cuGetProcAddress_v2(b"cuDriverGetVersion", ctypes.byref(function), 12000, ctypes.c_uint64(0),
                                ctypes.byref(status)) == 0
assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(function.value)(ctypes.byref(version)) == 0
print(version.value)
assert cuda.cuInit(0) == 0 and cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
print(version.value)
"""


def on(machine, *command, share=False):
    line = [ALIQUOT, "sim", "--machine", machine, "--"]
    line += [ALIQUOT, "run", "--memory", "4Gi", "--"] if share else []
    done = subprocess.run([*line, *command], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("share", [False, True], ids=["card", "share"])
@pytest.mark.parametrize("machine,version", [("hgx-h100", "13000"), ("old-driver", "12020")])
def test_the_version_before_cuinit(machine, version, share):
    """The runtime library asks for it first of all, and gives up when its own is newer."""
    assert on(machine, sys.executable, "-c", VERSION, share=share) == [version] * 3


def test_the_version_without_a_machine(tmp_path):
    """A driver's library without a card has one as well."""
    library = ALIQUOT.parents[1] / "sim/libcuda.so.1"
    text = VERSION.splitlines()[:5] + ["print(version.value, cuda.cuInit(0))"]
    done = subprocess.run([sys.executable, "-c", "\n".join(text).replace("libcuda.so.1", str(library))],
                          env=dict(os.environ, ALIQUOT_SIM_DIR=str(tmp_path)), capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[0]) >= 12000 and done.stdout.split()[-1] == "100", done.stdout
