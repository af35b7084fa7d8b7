# SPDX-License-Identifier: Apache-2.0
"""Packs gpu-kit: what tests/gpu/kit needs on a machine with a GPU where nothing of ours is installed (docs/gpu-kit.md).

The folder is a small copy of the tree: sources of the questions, and the binaries, which need libc only. What would not
run with the oldest libc that is supported is refused here.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
OLDEST_LIBC = (2, 35)
MOST_BYTES = 48 << 20
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "libgcc_s.so.1",
             "libcuda.so.1", "libnvidia-ml.so.1", "libcuda-driver.so.1", "libnvidia-ml-driver.so.1"}

SOURCES = ["tests/gpu/*.py", "tests/gpu/kit/*.py", "tests/gpu/kit/*.machine", "tests/bench/figures.py", "tests/bench/intercept.py",
           "src/abi/*.txt", "src/abi/*.def", "src/abi/nvml.h", "LICENSE"]
# {in the build directory: in the kit's}
BINARIES = {"tests/gpu/kit/kit-aliquot": "src/cli/aliquot", "tests/gpu/kit/holder": "tests/gpu/kit/holder",
            "tests/gpu/kit/libcuda.so.1": "tests/gpu/kit/libcuda.so.1",
            "tests/gpu/kit/libnvidia-ml.so.1": "tests/gpu/kit/libnvidia-ml.so.1", "tests/bench/driver_calls": "tests/bench/driver_calls",
            "tests/intercept/kinds": "tests/intercept/kinds", "tests/intercept/graphs": "tests/intercept/graphs",
            "src/intercept/libaliquot.so": "src/intercept/libaliquot.so",
            "src/sim/libcuda.so.1": "src/sim/libcuda.so.1", "src/sim/libnvidia-ml.so.1": "src/sim/libnvidia-ml.so.1"}
RUN = """#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
case $0 in */*) here=${0%/*} ;; *) here=. ;; esac
exec python3 "$here/tests/gpu/kit/gpu_kit.py" "$@"
"""


def unfit(path):
    """Why a binary would not run on the oldest machine that is supported: a list of reasons."""
    said = subprocess.run(["readelf", "--dynamic", "--version-info", "--wide", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    reasons = [f"needs {name}" for name in re.findall(r"\(NEEDED\).*\[(.*?)\]", said) if name not in LIBRARIES]
    reasons += [f"needs GLIBC_{version}" for version in sorted(set(re.findall(r"Name: GLIBC_([0-9.]+)", said)))
                if tuple(map(int, version.split("."))) > OLDEST_LIBC]
    return reasons


def pack(build, kit):
    """Fills the folder anew; results of earlier calls in kit/results stay."""
    for part in ("build", "src", "tests"):
        shutil.rmtree(kit / part, ignore_errors=True)
    for pattern in SOURCES:
        for source in TOP.glob(pattern):
            place = kit / source.relative_to(TOP)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, place)
    for source, name in BINARIES.items():
        place = kit / "build" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-unneeded", "-o", place, build / source], check=True)
    (kit / "run").write_text(RUN)
    os.chmod(kit / "run", 0o755)


def faults(kit):
    """What is wrong with a packed folder."""
    binaries = [kit / "build" / name for name in BINARIES.values()]
    found = [f"{path.relative_to(kit)} {reason}" for path in binaries for reason in unfit(path)]
    size = sum(path.stat().st_size for path in kit.rglob("*") if path.is_file())
    return found + [f"it has {size} bytes, at most {MOST_BYTES} are allowed"] * (size > MOST_BYTES)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--output", type=pathlib.Path, default=TOP / "gpu-kit", help="folder that is filled")
    given = parser.parse_args()
    pack(given.build.resolve(), given.output)
    wrong = faults(given.output)
    for line in wrong:
        print(f"error: {line}", file=sys.stderr)
    size = sum(path.stat().st_size for path in given.output.rglob("*") if path.is_file())
    print(f"{given.output}: {size / (1 << 20):.1f} MiB; run {given.output}/run there")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
