# SPDX-License-Identifier: Apache-2.0
"""Our declarations of the driver's binary interface against sources that we did not write: the headers of every CUDA
release from 12.0 to the newest, and the real libcuda and libnvidia-ml 535."""

import collections
import functools
import re
import subprocess

import pytest
from abi import BASES, CUDA, NVML, exported, exports
from intercept_kit import TOP

pytestmark = pytest.mark.foreign

HERE = TOP / "tests" / "intercept"
NEWEST_OF_535 = 12020
# In no header of the wheels.
NO_TYPEDEF = {"cuProfilerStart", "cuProfilerStop", "nvmlInternalGetExportTable"}


def compile_c(source, *options, output=None):
    mode = ["-o", str(output)] if output else ["-fsyntax-only"]
    return subprocess.run(["gcc", "-std=gnu11", "-I", TOP / "src", *options, source, *mode], stderr=subprocess.PIPE, text=True)


def typedef_of(row):
    """The names that NVIDIA's typedef for this row may bear."""
    name = f"PFN_{row.base}_v{row.since}"
    return [f"{name}_ptsz", f"{name}_ptds"] if row.stream == "PTDS" else [name]


@functools.cache
def declared(include):
    """The versioned typedefs of a release, and the functions of its nvml.h."""
    typedefs = re.findall(r"\*(PFN_cu\w+_v\d+\w*)\)\(", (include / "cudaTypedefs.h").read_text())
    functions = re.findall(r"DECLDIR\s+(nvml\w+)\s*\(", (include / "nvml.h").read_text())
    return frozenset(typedefs), frozenset(functions)


def checks(include, cuda=CUDA, nvml=NVML):
    """{symbol: the line of C that fails to compile where our row is not NVIDIA's}, for what this release has."""
    typedefs, functions = declared(include)
    lines = {}
    for row in cuda:
        for name in typedef_of(row):
            if name in typedefs:
                lines[row.symbol] = (f'_Static_assert(__builtin_types_compatible_p({name}, CUresult (*) {row.params}), '
                                     f'"{row.symbol} is not {name}");')
    for row in nvml:
        if row.symbol in functions:
            lines[row.symbol] = (f'_Static_assert(__builtin_types_compatible_p(__typeof__({row.symbol}), nvmlReturn_t '
                                 f'{row.params}), "{row.symbol} is not NVIDIA\'s");')
    return lines


def compile_checks(include, lines, tmp_path):
    """Compiled with NVIDIA's headers only."""
    source = tmp_path / "checks.c"
    source.write_text("#define __CUDA_API_VERSION_INTERNAL\n#define NVML_NO_UNVERSIONED_FUNC_DEFS\n"
                      "#include <cuda.h>\n#include <cudaTypedefs.h>\n#include <nvml.h>\n" + "\n".join(lines) + "\n")
    return subprocess.run(["gcc", "-std=gnu11", "-fsyntax-only", "-I", include, source], stderr=subprocess.PIPE, text=True)


def test_every_row_has_nvidias_type(toolkits, tmp_path):
    """In each release that has the function in that version; and each row is in one of them."""
    checked, wrong = collections.Counter(), []
    for release, directory in toolkits.items():
        lines = checks(directory / "include")
        checked.update(lines.keys())
        done = compile_checks(directory / "include", lines.values(), tmp_path)
        if done.returncode != 0:
            wrong.append((release, re.findall(r'"([^"]+)"|error: (.*)', done.stderr)[:5]))
    assert not wrong, wrong
    unchecked = {row.symbol for row in CUDA + NVML} - set(checked) - NO_TYPEDEF
    assert not unchecked, unchecked
    assert len(toolkits) >= 15 and sum(checked.values()) > 6000, (list(toolkits), sum(checked.values()))


DRIVER = {"12.8": "570", "12.9": "575", "13.0": "580"}     # the branch that each release brought


@pytest.mark.parametrize("release", DRIVER)
def test_a_machine_has_the_functions_of_its_driver(toolkits, build, release):
    """The simulator says that it is of these branches: programs made for them find every function of the two headers.
    A program in Go ends when one is missing."""
    include = toolkits[release] / "include"
    called = set(re.findall(r"CUDAAPI\s+(cu\w+)\s*\(", (include / "cuda.h").read_text()))
    kinds = re.findall(r"#define\s+(cu\w+)\s+__CUDA_API_PT[DS]Z?\((cu\w+)\)", (include / "cuda.h").read_text())
    called |= {plain for _, plain in kinds}
    aliases = re.findall(r"#define\s+cu\w+\s+(cu\w+_v\d+)\s*$", (include / "cuda.h").read_text(), re.M)
    missing = (called | set(aliases)) - exported(build / "src/sim/libcuda.so.1", "cu[A-Z]")
    assert len(called) > 400 and not missing, sorted(missing)
    functions = set(re.findall(r"DECLDIR\s+(nvml\w+)\s*\(", (include / "nvml.h").read_text()))
    missing = functions - exported(build / "src/sim/libnvidia-ml.so.1", "nvml")
    assert len(functions) > 300 and not missing, sorted(missing)


def test_a_wrong_type_would_be_noticed(toolkits, tmp_path):
    """The check above can fail: with one parameter changed, in either library."""
    include = list(toolkits.values())[-1] / "include"
    for symbol in ("cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"):
        def other(row):
            return row._replace(params="(int *one)") if row.symbol == symbol else row
        lines = checks(include, map(other, CUDA), map(other, NVML))
        done = compile_checks(include, lines.values(), tmp_path)
        assert done.returncode != 0 and f"{symbol} is not" in done.stderr


@pytest.mark.parametrize("library", [[], ["-DFACTS_NVML"]], ids=["cuda", "nvml"])
def test_sizes_offsets_and_values_are_nvidias(toolkits, tmp_path, library):
    outputs = []
    include = toolkits["12.9"] / "include"
    for name, options in (("ours", []), ("theirs", ["-DFACTS_THEIRS", "-I", include])):
        program = tmp_path / name
        done = compile_c(HERE / "abi-facts.c", *options, *library, output=program)
        assert done.returncode == 0, done.stderr[:4000]
        outputs.append(subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())
    assert len(outputs[0]) > 200
    assert outputs[0] == outputs[1]


def rows_by_base():
    found = collections.defaultdict(list)
    for row in CUDA:
        found[row.base].append(row)
    return found


def test_versions_are_those_of_a_real_driver(real_driver, programs):
    """Which symbol answers which version and stream flag: our table against the real libcuda's own answers."""
    rows = rows_by_base()
    done = subprocess.run([programs / "resolver-dlopen", "program", "answers", "libcuda.so.1", "libnvidia-ml.so.1"],
                          input="\n".join(BASES) + "\n", stdout=subprocess.PIPE, text=True, check=True,
                          env={"LD_LIBRARY_PATH": real_driver})
    wrong, seen = [], 0
    for line in done.stdout.splitlines():
        base, version, flags, symbol = line.split()
        version, flags = int(version), int(flags)
        if version > NEWEST_OF_535:
            continue
        stream = {"PTDS", "ANY"} if flags == 2 else {"LEGACY", "ANY"}
        ours = [row.symbol for row in rows[base]
                if row.stream in stream and row.since <= version and (row.until == 0 or version < row.until)]
        seen += 1
        if ours != ([] if symbol == "-" else [symbol]):
            wrong.append((base, version, flags, symbol, ours))
    assert seen > 10000
    assert not wrong, wrong[:20]


def test_versions_follow_each_other():
    """What 535 cannot say: of a base, each symbol is answered until the next one is."""
    wrong = []
    for base, rows in rows_by_base().items():
        for stream in ("LEGACY", "PTDS"):
            ordered = sorted((r for r in rows if r.stream in ("ANY", stream)), key=lambda r: r.since)
            ends = [row.until for row in ordered]
            starts = [row.since for row in ordered[1:]] + [0]
            if ordered and not all(end == start or (end and end < start) for end, start in zip(ends, starts)):
                wrong.append((base, stream, [(r.symbol, r.since, r.until) for r in ordered]))
    assert not wrong, wrong


def test_rows_and_exports_are_a_real_drivers(real_driver):
    """The real 535 exports every row that it is old enough for, and nothing that our listing lacks."""
    for library, pattern, rows in (("cuda", "cu[A-Z]", [r.symbol for r in CUDA if r.since <= NEWEST_OF_535]),
                                   ("nvml", "nvml", [r.symbol for r in NVML])):
        soname = "libcuda.so.1" if library == "cuda" else "libnvidia-ml.so.1"
        real = exported(f"{real_driver}/{soname}", pattern)
        listing = set(exports(library))
        assert len(real) > 300 and real <= listing, sorted(real - listing)
        if library == "cuda":
            assert set(rows) <= real, sorted(set(rows) - real)
        assert set(rows) <= listing, sorted(set(rows) - listing)
