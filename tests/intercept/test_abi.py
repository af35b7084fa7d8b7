# SPDX-License-Identifier: Apache-2.0
"""Our declarations of the driver's binary interface against sources that we did not write."""

import re
import subprocess

import pytest
from conftest import TOP

HERE = TOP / "tests" / "intercept"


def compile_c(source, *options, output=None):
    mode = ["-o", str(output)] if output else ["-fsyntax-only"]
    done = subprocess.run(["gcc", "-std=gnu11", "-I", TOP / "src", *options, HERE / source, *mode],
                          stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0, done.stderr[:4000]


def test_every_prototype_is_nvidias(nvidia_headers):
    compile_c("abi-prototypes.c", "-I", nvidia_headers)


def test_a_wrong_prototype_would_be_noticed(nvidia_headers, tmp_path):
    """The check above can fail: the same with one parameter changed."""
    for name in ("hooks.def", "hooks-cuda.def", "hooks-memory.def", "hooks-nvml.def"):
        text = (TOP / "src" / "abi" / name).read_text()
        (tmp_path / "abi").mkdir(exist_ok=True)
        (tmp_path / "abi" / name).write_text(text.replace("(CUdeviceptr *dptr, size_t bytes), (dptr, bytes)",
                                                          "(CUdeviceptr *dptr, int bytes), (dptr, bytes)"))
    done = subprocess.run(["gcc", "-std=gnu11", "-fsyntax-only", "-I", tmp_path, "-I", nvidia_headers,
                           HERE / "abi-prototypes.c"], stderr=subprocess.PIPE, text=True)
    assert done.returncode != 0 and "cuMemAlloc_v2" in done.stderr


@pytest.mark.parametrize("library", [[], ["-DFACTS_NVML"]], ids=["cuda", "nvml"])
def test_sizes_offsets_and_values_are_nvidias(nvidia_headers, tmp_path, library):
    outputs = []
    for name, options in (("ours", []), ("theirs", ["-DFACTS_THEIRS", "-I", nvidia_headers])):
        program = tmp_path / name
        compile_c("abi-facts.c", *options, *library, output=program)
        outputs.append(subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines())
    assert len(outputs[0]) > 200
    assert outputs[0] == outputs[1]


def rows():
    text = "".join((TOP / "src" / "abi" / name).read_text() for name in ("hooks-cuda.def", "hooks-memory.def"))
    return re.findall(r"CUDA_(?:FN|HOOK|USE)\(\s*(\w+),\s*(\w+),\s*(\d+),\s*(\d+),\s*(ANY|LEGACY|PTDS),", text)


def test_versions_are_those_of_a_real_driver(real_driver, programs):
    """Which symbol answers which version and stream flag: our table against the real libcuda's own answers."""
    bases = sorted({row[0] for row in rows()})
    done = subprocess.run([programs / "resolver", "answers"], input="\n".join(bases) + "\n", stdout=subprocess.PIPE,
                          text=True, check=True, env={"LD_LIBRARY_PATH": real_driver})
    newest = 12020  # what driver 535 knows
    wrong, seen = [], 0
    for line in done.stdout.splitlines():
        base, version, flags, symbol = line.split()
        version, flags = int(version), int(flags)
        if version > newest:
            continue
        stream = {"PTDS", "ANY"} if flags == 2 else {"LEGACY", "ANY"}
        ours = [s for b, s, since, until, kind in rows()
                if b == base and kind in stream and int(since) <= version and (until == "0" or version < int(until))]
        seen += 1
        if ours != ([] if symbol == "-" else [symbol]):
            wrong.append((base, version, flags, symbol, ours))
    assert seen > 10000
    assert not wrong, wrong[:20]
