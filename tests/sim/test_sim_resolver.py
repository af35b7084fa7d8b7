# SPDX-License-Identifier: Apache-2.0
"""The simulated libcuda held against a real one (535, which answers names without a GPU)."""

import os
import re
import subprocess

import pytest
from sim_kit import BUILD, PROGRAMS, TOP

pytestmark = pytest.mark.foreign

SIMULATED = BUILD / "src/sim/libcuda.so.1"


@pytest.fixture(scope="session")
def real():
    r = subprocess.run([TOP / "scripts/fetch-driver535"], capture_output=True, text=True, check=False)
    assert r.returncode == 0, f"the download of libcuda 535 is not possible here: {r.stderr}"
    return os.path.join(r.stdout.strip(), "libcuda.so.1")


def names():
    return (TOP / "src/abi/cuda-exports.txt").read_text().split()


def ask(program, library, text):
    r = subprocess.run([PROGRAMS / f"sim-{program}", library], input=text, capture_output=True,
                       text=True, check=True, timeout=120)
    return r.stdout.splitlines()


def exports(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True,
                         check=True).stdout
    return {line.split()[2].split("@")[0] for line in out.splitlines() if line}


def test_exports_what_the_real_one_does(real):
    mine, theirs = exports(SIMULATED), {n for n in exports(real) if re.match("cu[A-Z]", n)}
    assert mine == set(names())
    assert theirs <= mine


def test_resolves_as_the_real_one_does(real):
    text = "\n".join([*names(), "cuNoSuchFunction", "nvmlInit", ""]) + "\n"
    theirs, mine = ask("resolve", real, text), ask("resolve", SIMULATED, text)
    assert len(theirs) == len(mine) > 80000
    # A name that 535 does not know in any version is younger than it.
    known = {line.split()[0] for line in theirs if " - " not in line and "0 1 -" not in line}
    different = [(t, m) for t, m in zip(theirs, mine)
                 if t != m and (t.split()[0] in known or not t.split()[0] in names())]
    assert not different, different[:10]


def test_says_so_before_cuinit(real):
    """Whatever the real one answers with NOT_INITIALIZED, called with zeros."""
    free = ("cuGetProcAddress", "cuGetError", "cuDriverGetVersion", "cuInit")
    text = "\n".join(n for n in names() if not n.startswith(free)) + "\n"
    theirs, mine = (dict(line.split() for line in ask("preinit", lib, text))
                    for lib in (real, SIMULATED))
    uninitialised = [n for n, r in theirs.items() if r == "3"]
    assert len(uninitialised) > 400
    assert [n for n in uninitialised if mine[n] != "3"] == []
    assert "crash" not in mine.values() and "0" not in mine.values()


@pytest.mark.parametrize("library", ["libcuda.so.1", "libnvidia-ml.so.1"])
def test_runs_on_old_systems(library):
    """Mounted into containers: libc only, no symbol younger than glibc 2.17."""
    path = BUILD / "src/sim" / library
    out = subprocess.run(["objdump", "-Tp", path], capture_output=True, text=True, check=True).stdout
    needed = {line.split()[1] for line in out.splitlines() if line.strip().startswith("NEEDED")}
    assert needed <= {"libc.so.6", "ld-linux-x86-64.so.2"}
    versions = {w.strip("()") for line in out.splitlines() if "*UND*" in line
                for w in line.split() if w.strip("()").startswith("GLIBC_")}
    assert versions
    assert all(tuple(map(int, v[6:].split("."))) <= (2, 17) for v in versions), versions
