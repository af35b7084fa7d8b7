# SPDX-License-Identifier: Apache-2.0
"""Runs a program with a recorder in front of the driver's libraries (recorder.c), and prints which private tables it asked
for and which of their functions it called.

    tables.py PROGRAM       one of PROGRAMS
"""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from asking import HERE
from calls import library_file
from driver import nvidia_smi

RECORDERS = HERE.parents[2] / "build" / "tests" / "gpu" / "kit"
LIBRARIES = ("libcuda", "libnvidia-ml")
SECONDS = 50

CUDART = """
import ctypes, glob, sys
paths = [p for s in sys.path for p in glob.glob(s + "/nvidia/**/libcudart.so.1*", recursive=True)] + ["libcudart.so.13", "libcudart.so"]
runtime, pointer, count = ctypes.CDLL(paths[0]), ctypes.c_void_p(), ctypes.c_int()
print(paths[0], runtime.cudaGetDeviceCount(ctypes.byref(count)), runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1 << 20)))
"""
TORCH = "import torch; x = torch.ones(512, 512, device='cuda'); "
PROGRAMS = {
    "cudart": ("python3", "-c", CUDART),
    "torch": ("python3", "-c", TORCH + "print(float(x.relu().sum()))"),
    "cublas": ("python3", "-c", TORCH + "print(float((x @ x)[0, 0])); print(float((x.half() @ x.half())[0, 0]))"),
    "cudnn": ("python3", "-c", TORCH + "print(torch.nn.functional.conv2d(x[None, None], x[None, None, :3, :3]).sum().item())"),
    "triton": ("python3", "-c", TORCH + "print(torch.compile(lambda a: (a * 2).sin())(x).sum().item())"),
    "cupy": ("python3", "-c", "import cupy; print(cupy.arange(1000).sum())"),
    "jax": ("python3", "-c", "import jax.numpy as n; print((n.ones((512, 512)) @ n.ones((512, 512))).sum())"),
    "numba": ("python3", "-c", "from numba import cuda; print(cuda.current_context().get_memory_info())"),
    "nvidia-smi": ("nvidia-smi",), "nvidia-smi -q": ("nvidia-smi", "-q"), "nvidia-smi dmon": ("nvidia-smi", "dmon", "-c", "1"),
    "nvidia-smi pmon": ("nvidia-smi", "pmon", "-c", "1"), "nvidia-smi topo": ("nvidia-smi", "topo", "-m"),
    "nvidia-smi nvlink": ("nvidia-smi", "nvlink", "-s"), "nvidia-smi mig": ("nvidia-smi", "mig", "-lgip"),
}


def in_front(directory):
    """A directory for LD_LIBRARY_PATH with the recorders, and the real libraries under names of their own."""
    for name in LIBRARIES:
        real = library_file(f"{name}.so.1")
        os.symlink(real, directory / f"{name}-driver.so.1")
        os.symlink(RECORDERS / f"{name}.so.1", directory / f"{name}.so.1")
    return str(directory)


def recorded(path):
    """{table: {library, answers, bytes, slots: {slot: [arguments of the first calls]}}}"""
    tables = collections.OrderedDict()
    for line in path.read_text().splitlines() if path.exists() else ():
        kind, *words = line.split()
        if kind == "table":
            library, uuid, answer, size, patched = words
            table = tables.setdefault(uuid, {"library": library, "asked": 0, "slots": {}})
            table["asked"] += 1
            table.update(answer=int(answer), bytes=int(size), patched=max(int(patched), table.get("patched", 0)))
        elif kind == "call":
            tables.setdefault(words[0], {"slots": {}})["slots"].setdefault(words[1], []).append(words[2:])
    return tables


def record(command, slots):
    with tempfile.TemporaryDirectory(prefix="kit-tables-") as directory:
        directory = pathlib.Path(directory)
        log = directory / "log"
        front = in_front(directory)
        environment = {**os.environ, "RECORD_TO": str(log), **({"RECORD_SLOTS": "1"} if slots else {}),
                       "LD_LIBRARY_PATH": ":".join(filter(None, [front, os.environ.get("LD_LIBRARY_PATH")]))}
        program = {"python3": sys.executable, "nvidia-smi": nvidia_smi()}.get(command[0], command[0])
        try:
            done = subprocess.run([program, *command[1:]], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace", timeout=SECONDS)
            status, said = done.returncode, done.stdout[-1000:]
        except (OSError, subprocess.TimeoutExpired) as why:
            status, said = str(why), ""
        return {"slots_recorded": slots, "status": status, "said": said, "tables": recorded(log)}


def main():
    command = PROGRAMS[sys.argv[1]] if sys.argv[1] in PROGRAMS else sys.argv[1:]
    seen = [record(command, slots=True)]
    if seen[0]["status"] != 0:      # perhaps because of the recording: the names at least
        seen.append(record(command, slots=False))
    print(json.dumps(seen))
    sys.exit(0 if seen[-1]["status"] == 0 else 1)


if __name__ == "__main__":
    main()
