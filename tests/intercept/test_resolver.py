# SPDX-License-Identifier: Apache-2.0
"""However a program finds a driver function, it gets ours where we have one and the driver's own answer otherwise:
the same programs with and without the library, on the real libcuda 535 and on the simulated one."""

import os
import re
import subprocess

import pytest
from conftest import TOP


def table():
    text = "".join((TOP / "src" / "abi" / f"hooks-{part}.def").read_text() for part in ("cuda", "memory", "nvml"))
    cuda = re.findall(r"CUDA_(FN|HOOK|USE)\(\s*(\w+),\s*(\w+),", text)
    nvml = re.findall(r"NVML_(FN|HOOK|USE)\(\s*(\w+),", text)
    hooked = {symbol for kind, _, symbol in cuda if kind == "HOOK"} | {s for kind, s in nvml if kind == "HOOK"}
    symbols = [symbol for _, _, symbol in cuda] + [symbol for _, symbol in nvml]
    return hooked, symbols, sorted({base for _, base, _ in cuda})


HOOKED, SYMBOLS, BASES = table()
OTHERS = ["cuNoSuchFunction", "nvmlNoSuchFunction", "cupsPrint", "cu", "curl_easy_init", "printf"]


@pytest.fixture(params=["real 535", "simulated"])
def driver_dir(request, real_driver, build, tmp_path):
    if request.param == "real 535":
        return real_driver
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        (tmp_path / name).symlink_to(build / "src" / "sim" / name)
    return str(tmp_path)


def run(programs, mode, names, driver_dir, library=None, program="resolver"):
    environment = dict(os.environ, LD_LIBRARY_PATH=driver_dir)
    environment.pop("LD_PRELOAD", None)
    if library:
        environment["LD_PRELOAD"] = library
    done = subprocess.run([programs / program, mode], input="\n".join(names) + "\n", stdout=subprocess.PIPE,
                          text=True, timeout=120, env=environment)
    assert done.returncode == 0
    return [line.split() for line in done.stdout.splitlines()]


def is_driver(found):
    return found in ("libcuda", "libnvidia-ml")


@pytest.mark.parametrize("program", ["resolver", "resolver-dlopen"])
def test_link_dlsym_dlvsym(programs, driver_dir, library, program):
    """Linked with the driver, and opening it: then it is in no scope but its handle's."""
    names = SYMBOLS + OTHERS
    plain, hooked = (run(programs, "names", names, driver_dir, lib, program) for lib in (None, library))
    assert len(plain) == len(hooked) == 7 * len(names)
    wrong, ours = [], 0
    for (way, name, found, symbol), (way2, name2, found2, symbol2) in zip(plain, hooked):
        assert (way, name) == (way2, name2)
        if is_driver(found) and name in HOOKED:
            ok = (found2, symbol2) == ("libaliquot", name)
            ours += ok
        elif way == "link" and found == "-" and name in HOOKED:
            ok = found2 in ("-", "libaliquot")  # the loader's doing: our export is the only one
        else:
            ok = (found2, symbol2) == (found, symbol)
        if not ok:
            wrong.append((way, name, found, symbol, found2, symbol2))
    assert not wrong, wrong[:20]
    assert ours > (4 if program == "resolver" else 0.9) * len(HOOKED)


def test_get_proc_address_in_every_version(programs, driver_dir, library):
    plain, hooked = (run(programs, "queries", BASES + ["cuNoSuchFunction", "cupsPrint", "cu"], driver_dir, lib) for lib in (None, library))
    assert len(plain) == len(hooked) > 50000
    wrong, ours = [], 0
    for before, after in zip(plain, hooked):
        *query, found, symbol = before
        expected = "libaliquot" if is_driver(found) and symbol in HOOKED else found
        ours += expected == "libaliquot"
        if after != [*query, expected, symbol]:
            wrong.append((before, after))
    assert not wrong, wrong[:20]
    assert ours > 4000


def test_a_driver_in_a_namespace_of_its_own(programs, driver_dir, library):
    """dlmopen, then dlsym(handle) from the main program."""
    hooked = sorted(HOOKED - {"cuGetProcAddress"})
    plain, found = (run(programs, "namespace", hooked, driver_dir, lib) for lib in (None, library))
    for (_, name, before, _), (_, _, after, symbol) in zip(plain, found):
        assert (after, symbol) == (("libaliquot", name) if before != "-" else ("-", "-")), name


def test_names_are_unknown_without_a_driver(programs, library):
    """A program that only looks whether there is a driver must not find one in us."""
    script = ("import ctypes\n"
              "program = ctypes.CDLL(None)\n"
              "for name in ('cuInit', 'cuMemAlloc_v2', 'nvmlDeviceGetMemoryInfo'):\n"
              "    assert not hasattr(program, name), name\n")
    subprocess.run(["python3", "-c", script], check=True, env=dict(os.environ, LD_PRELOAD=library))
