# SPDX-License-Identifier: Apache-2.0
"""The tables of src/abi, read for the tests; a new file hooks-*.def enters by itself."""

import collections
import re
import subprocess

from intercept_kit import TOP

PARTS = sorted((TOP / "src" / "abi").glob("hooks-*.def"))
TEXT = "".join(path.read_text() for path in PARTS)
PARAMS = r"(\([^()]*(?:\([^()]*\)[^()]*)*\))"

CudaRow = collections.namedtuple("CudaRow", "kind base symbol since until stream params")
NvmlRow = collections.namedtuple("NvmlRow", "kind symbol params")

CUDA = [CudaRow(kind, base, symbol, int(since), int(until), stream, params)
        for kind, base, symbol, since, until, stream, params in
        re.findall(r"^CUDA_(FN|HOOK|USE)\(\s*(\w+),\s*(\w+),\s*(\d+),\s*(\d+),\s*(ANY|LEGACY|PTDS),\s*" + PARAMS, TEXT, re.M)]
NVML = [NvmlRow(kind.replace("DENY", "HOOK"), symbol, params) for kind, symbol, params in
        re.findall(r"^NVML_(FN|HOOK|USE|DENY)\(\s*(\w+),(?:\s*NO_PERMISSION,|\s*NOT_SUPPORTED,)?\s*" + PARAMS, TEXT, re.M)]

assert len(CUDA) + len(NVML) == len(re.findall(r"^(?:CUDA|NVML)_(?:FN|HOOK|USE|DENY)\(", TEXT, re.M)), "rows not understood"

HOOKED = {row.symbol for row in CUDA + NVML if row.kind == "HOOK"}
SYMBOLS = [row.symbol for row in CUDA + NVML]
BASES = sorted({row.base for row in CUDA})


def exports(library):
    """The names that a listing in src/abi has."""
    return (TOP / "src" / "abi" / f"{library}-exports.txt").read_text().split()


def exported(path, pattern):
    """The names that a library exports, of those that begin with `pattern`."""
    done = subprocess.run(["nm", "-D", "--defined-only", path], stdout=subprocess.PIPE, text=True, check=True)
    return {name for name in (line.split()[-1].partition("@")[0] for line in done.stdout.splitlines())
            if re.match(pattern, name)}
