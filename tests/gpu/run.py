# SPDX-License-Identifier: Apache-2.0
"""Tests on a real GPU (make test-gpu): frameworks inside slices, and the table of shares.

Without a GPU everything is skipped and nothing counts as passed. The frameworks come from an environment of its own that
is made in the cache (or ALIQUOT_GPU_PYTHON names a Python that has them). With --write the results go between the markers
in docs/measurements.md, with date, GPU and driver. --simulated runs the table of shares on the simulator, to test this
program; its figures are no results.
"""

import argparse
import ctypes
import os
import pathlib
import socket
import subprocess
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = TOP / "tests" / "gpu"
sys.path[:0] = [str(TOP / "tests" / "bench"), str(HERE)]

from figures import write_between        # noqa: E402  (the path comes first)
from shares import share_table      # noqa: E402
import grace                        # noqa: E402
import mig                          # noqa: E402
import mps                          # noqa: E402

PACKAGES = "torch numpy cupy-cuda12x jax[cuda12] numba-cuda"

LIMIT = 4 << 30
# (name, function, environment, GPUs that it needs)
WORKLOADS = [
    ("PyTorch, default allocator", "torch_allocator", {}, 1),
    ("PyTorch, expandable_segments", "torch_allocator", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, 1),
    ("PyTorch, cudaMallocAsync", "torch_allocator", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, 1),
    ("PyTorch, CUDA graphs", "torch_graphs", {}, 1),
    ("PyTorch, training with forked loaders", "torch_train_fork", {}, 1),
    ("CuPy, pool", "cupy_pool", {}, 1),
    ("JAX, preallocating", "jax_allocator", {}, 1),
    ("JAX, platform allocator", "jax_allocator", {"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, 1),
    ("numba, arrays and a kernel", "numba_arrays", {}, 1),
    ("two processes with NCCL", "nccl_rank", {}, 2),
]
MODULE = {"torch": "torch", "cupy": "cupy", "jax": "jax", "numba": "numba", "nccl": "torch"}


class Skip(Exception):
    pass


def find_gpus():
    """[name], driver version; Skip when there is none."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise Skip("no libcuda.so.1 on this machine") from None
    r, count = cuda.cuInit(0), ctypes.c_int()
    if r or cuda.cuDeviceGetCount(ctypes.byref(count)) or count.value == 0:
        raise Skip(f"no GPU on this machine (cuInit answered {r})")
    names = []
    for i in range(count.value):
        name = ctypes.create_string_buffer(128)
        cuda.cuDeviceGetName(name, len(name), i)
        names.append(name.value.decode())
    version = ctypes.create_string_buffer(80)
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    if nvml.nvmlInit_v2() or nvml.nvmlSystemGetDriverVersion(version, len(version)):
        return names, "unknown"
    return names, version.value.decode()


def framework_python():
    """A Python that has the frameworks."""
    if os.environ.get("ALIQUOT_GPU_PYTHON"):
        return os.environ["ALIQUOT_GPU_PYTHON"]
    cache = pathlib.Path(os.environ.get("ALIQUOT_CACHE", pathlib.Path.home() / ".cache" / "aliquot"))
    venv = cache / "gpu-venv"
    if not (venv / ".complete").exists():
        print(f"== installing {PACKAGES}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
        subprocess.run([venv / "bin" / "pip", "install", "-q", *PACKAGES.split()], check=True)
        (venv / ".complete").touch()
    return str(venv / "bin" / "python")


def has(python, module):
    return subprocess.run([python, "-c", f"import {module}"], stderr=subprocess.DEVNULL).returncode == 0


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run_workload(aliquot, python, function, environment, processes):
    """Raises AssertionError with what it said."""
    command = [aliquot, "run", "--memory", str(LIMIT), "--", python, HERE / "workloads.py", function, str(LIMIT)]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(processes)}
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**os.environ, **environment, **shared, "RANK": str(rank)}) for rank in range(processes)]
    for process in running:
        said = process.communicate(timeout=600)[0]
        assert process.returncode == 0, said[-2000:]


def workloads(aliquot, gpus, results):
    python = framework_python()
    for name, function, environment, needs in WORKLOADS:
        module = MODULE[function.partition("_")[0]]
        if len(gpus) < needs:
            results.append((name, "skipped", f"needs {needs} GPUs"))
        elif not has(python, module):
            results.append((name, "skipped", f"{python} has no {module}"))
        else:
            started = time.monotonic()
            try:
                run_workload(aliquot, python, function, environment, needs)
                results.append((name, "passed", f"{time.monotonic() - started:.0f} s"))
            except (AssertionError, subprocess.TimeoutExpired) as failure:
                results.append((name, "failed", str(failure).strip().splitlines()[-1][:200]))
        print("{}: {} ({})".format(*results[-1]), flush=True)


def report(gpus, driver, results, table):
    lines = [f"{time.strftime('%Y-%m-%d', time.gmtime())}; {len(gpus)} x {gpus[0]}; driver {driver}.", "",
             "| workload | result | |", "|---|---|---|"]
    return lines + ["| " + " | ".join(r) + " |" for r in results] + [""] + table


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--seconds", type=float, default=10, help="how long each row of the table of shares runs")
    parser.add_argument("--write", action="store_true", help="results into docs/measurements.md")
    parser.add_argument("--simulated", action="store_true", help="only the table of shares, on the simulator")
    arguments = parser.parse_args()
    aliquot = str(arguments.build.resolve() / "src" / "cli" / "aliquot")
    if arguments.simulated:
        if not os.environ.get("ALIQUOT_SIM"):       # once more, inside the simulated machine
            sys.exit(subprocess.run([aliquot, "sim", "--gpus", "1", "--", "env", "ALIQUOT_SIM=1", sys.executable,
                                     __file__, *sys.argv[1:]]).returncode)
        print("simulated: these figures test the program, they are no results")
        print("\n".join(share_table(aliquot, arguments.seconds, True)))
        return
    try:
        gpus, driver = find_gpus()
    except Skip as why:
        print(f"skipped: {why}; tests on a GPU were not run")
        print("skipped: no GH200")
        print(f"0 passed, 0 failed, {len(WORKLOADS) + 4} skipped")
        return
    results = []
    mps.run(arguments.build.resolve(), results)
    mig.run(arguments.build.resolve(), results)
    workloads(aliquot, gpus, results)
    grace.run(gpus, results)
    table = share_table(aliquot, arguments.seconds, False)
    lines = report(gpus, driver, results, table)
    print("\n".join(lines))
    if arguments.write:
        write_between(TOP / "docs" / "measurements.md", "gpu", "\n".join(lines))
    counts = [sum(r[1] == kind for r in results) for kind in ("passed", "failed", "skipped")]
    print("{} passed, {} failed, {} skipped".format(*counts))
    sys.exit(1 if counts[1] else 0)


if __name__ == "__main__":
    main()
