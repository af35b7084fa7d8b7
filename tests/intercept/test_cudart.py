# SPDX-License-Identifier: Apache-2.0
"""Programs linked statically with NVIDIA's runtime, of every release that PyPI has it of: of the functions that the
runtime looks up in its first call, every hooked one comes back as ours. Running the program needs a real GPU."""

import os
import pathlib
import re
import subprocess

import pytest
from abi import CUDA, HOOKED
from intercept_kit import MODES, TOP

pytestmark = pytest.mark.foreign

NEWEST = """
#include <stddef.h>
#include <string.h>
typedef unsigned long long u64;
static int refuse(void) { return 100; }
%(functions)s
static const struct { const char *base; int since, until, ptds, any; void *pfn; } table[] = {
%(table)s
};
int cuDriverGetVersion(int *version) { *version = %(version)d; return 0; }
static int find(const char *name, void **pfn, int version, u64 flags, int *status) {
    *pfn = NULL;
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
        if (strcmp(table[i].base, name) == 0 && version >= table[i].since &&
            (!table[i].until || version < table[i].until) && (table[i].any || table[i].ptds == (flags == 2)))
            *pfn = table[i].pfn;
    if (status)
        *status = *pfn ? 0 : 1;
    return *pfn || !*name ? 0 : 500;
}
int cuGetProcAddress(const char *name, void **pfn, int version, u64 flags) {
    return find(name, pfn, version, flags, NULL);
}
int cuGetProcAddress_v2(const char *name, void **pfn, int version, u64 flags, int *status) {
    return find(name, pfn, version, flags, status);
}
"""


def newest_driver(toolkits, tmp_path):
    """A libcuda that has every function of the newest release and refuses whatever it is asked to do. Of functions that
    have no row in hooks.def each calling convention is a function of its own."""
    ours = [(r.base, r.since, r.until, r.stream == "PTDS", r.stream == "ANY", r.symbol) for r in CUDA]
    have = {(r.base, r.since, r.stream == "PTDS") for r in CUDA}
    include = list(toolkits.values())[-1] / "include"
    header = "".join(path.read_text() for path in include.glob("cuda*Typedefs.h"))
    others = {}
    for base, since, suffix in re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_ptds|_ptsz)?\)\(", header):
        if (base, int(since), bool(suffix)) not in have:
            others.setdefault((base, bool(suffix)), set()).add(int(since))
    for (base, ptds), versions in others.items():
        split = (base, not ptds) in others or ptds
        for since, until in zip(sorted(versions), sorted(versions)[1:] + [0]):
            ours.append((base, since, until, ptds, not split, f"{base}_of_{since}{'_ptds' if ptds else ''}"))
    own = ("cuGetProcAddress", "cuGetProcAddress_v2", "cuDriverGetVersion")
    functions = "\n".join(f"int {s}(void) {{ return refuse(); }}" for s in sorted({o[-1] for o in ours} - set(own)))
    functions += "\nint cuDriverGetVersion(int *);\nint cuGetProcAddress(const char *, void **, int, u64);" \
                 "\nint cuGetProcAddress_v2(const char *, void **, int, u64, int *);"
    table = "\n".join(f'    {{"{b}", {s}, {u}, {int(p)}, {int(a)}, (void *) {f}}},' for b, s, u, p, a, f in ours)
    major, minor = list(toolkits)[-1].split(".")
    source = tmp_path / "newest.c"
    source.write_text(NEWEST % {"functions": functions, "table": table, "version": int(major) * 1000 + int(minor) * 10})
    path = tmp_path / "libcuda.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", path, source], check=True)
    return path


@pytest.fixture(scope="module", params=["real 535", "simulated", "newest"])
def front(request, drivers, ways_in, toolkits, tmp_path_factory):
    driver = drivers("simulated" if request.param == "newest" else request.param)
    if request.param == "newest":
        driver["libcuda"] = newest_driver(toolkits, tmp_path_factory.mktemp("newest"))
    found = ways_in(driver)
    found.name = request.param
    return found


# cuInit of the real libcuda makes /dev/nvidiactl where it may, also on a machine without a GPU.
WITHOUT_MKNOD = ["setpriv", "--bounding-set=-mknod"] if os.geteuid() == 0 else []


def device_nodes():
    return sorted(pathlib.Path("/dev").glob("nvidia*"))


def lookups(program, front, mode):
    done = subprocess.run([*WITHOUT_MKNOD, program], stdout=subprocess.PIPE, text=True, timeout=60, env=front.environment(mode))
    assert done.returncode == 0, (mode, done.returncode)
    lines = [line.split() for line in done.stdout.splitlines()]
    return [[*line[:-2], front.kind(line[-2]), line[-1]] for line in lines]


def build_program(toolkit, tmp_path):
    """NVIDIA ships the static runtime from 12.9 on; None where there is none."""
    archive, program = toolkit / "lib" / "libcudart_static.a", tmp_path / f"program-{toolkit.name}"
    if not archive.exists():
        return None
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-o", program, TOP / "tests/intercept/cudart.c", "-Wl,--wrap=dlsym", archive,
                    "-lpthread", "-ldl", "-lrt"], check=True)
    return program


def test_static_runtime_gets_our_hooks(toolkits, front, tmp_path):
    programs = {name: build_program(toolkit, tmp_path) for name, toolkit in toolkits.items()}
    programs = {name: program for name, program in programs.items() if program}
    nodes = device_nodes()
    assert "12.9" in programs and list(programs)[-1] == list(toolkits)[-1], list(programs)
    for release, program in programs.items():
        plain = lookups(program, front, "plain")
        asked = [line for line in plain if line[1] != "dlsym"]
        hooked = [line for line in asked if line[-2] == "driver" and line[-1] in HOOKED]
        print(f"cudart {release}, driver {front.name}: {len(asked)} lookups, "
              f"{sum(line[-2] == 'driver' for line in asked)} answered, {len(hooked)} hooked")
        assert len(asked) > 350 and len(hooked) > 35
        for mode in MODES:
            found = lookups(program, front, mode)
            expected = [[*line[:-2], "ours" if line[-2] == "driver" and line[-1] in HOOKED else line[-2], line[-1]]
                        for line in plain]
            assert found == expected, (release, mode, [(e, f) for e, f in zip(expected, found) if e != f][:10])
    assert device_nodes() == nodes
