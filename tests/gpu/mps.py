# SPDX-License-Identifier: Apache-2.0
"""Clients of MPS on a real GPU, with the agent's MPS of one card (tests/mps/mps-node.c). Without arguments of its own this
is a step of run.py; `mps.py client` is a client, which prints what it sees."""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

GIB = 1 << 30
MULTIPROCESSORS = 16    # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


def client():
    """Multiprocessors that it may use, result of allocating 1 GiB, then of 4 GiB more; waits for the end of its input."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, count, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    results = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)]
    cuda.cuDeviceGetAttribute(ctypes.byref(count), MULTIPROCESSORS, device)
    results += [cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size * GIB)) for size in (1, 4)]
    print(count.value, *results, flush=True)
    sys.stdin.read()


def missing():
    """Why this cannot run here, or None."""
    if os.geteuid() != 0:
        return "needs root: the compute mode of the card is set"
    for program in ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "nvidia-smi"):
        if not shutil.which(program):
            return f"the driver's {program} is not on this machine"
    return None


def smi(query, of="gpu"):
    return subprocess.run(["nvidia-smi", "-i", "0", f"--query-{of}={query}", "--format=csv,noheader,nounits"], check=True,
                          capture_output=True, text=True).stdout.strip()


def nvml_library():
    path = ctypes.create_string_buffer(4096)
    library = ctypes.CDLL("libnvidia-ml.so.1")
    ctypes.CDLL(None).dlinfo(ctypes.c_void_p(library._handle), 6, path)     # RTLD_DI_ORIGIN
    return os.path.realpath(f"{path.value.decode()}/libnvidia-ml.so.1")


def start_client(base, percent, memory):
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": f"{base}/pipe", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent),
                   "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={memory}M"}
    # The /dev/shm of the daemon, as CDI mounts it into a container.
    command = 'mount --bind "$1" /dev/shm && exec "$2" "$3" client'
    return subprocess.Popen(["unshare", "-m", "sh", "-c", command, "sh", f"{base}/shm", sys.executable, __file__],
                            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process):
    return [int(word) for word in process.stdout.readline().split()]


def wait_ready(node, restarts):
    for line in node.stdout:
        if line.startswith(f"ready restarts={restarts}"):
            return
    raise AssertionError("MPS has ended")


def mps_clients(build):
    """Two clients at once have their limits; a client after kill -9 of the daemon has them, too; the mode is restored."""
    before, uuid = smi("compute_mode"), smi("uuid")
    top = tempfile.mkdtemp(prefix="m")
    node = subprocess.Popen([build / "tests/mps/mps-node", build / "src/agent/aliquot-agent", f"{top}/mps", "/sys/fs/selinux",
                             shutil.which("nvidia-cuda-mps-control"), shutil.which("nvidia-cuda-mps-server"), nvml_library(),
                             uuid, "5000", "10000"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    base = f"{top}/mps/{uuid}"
    try:
        node.stdin.write("run 100 16384 2\n")
        node.stdin.flush()
        wait_ready(node, 0)
        assert smi("compute_mode") == "Exclusive_Process"
        clients = [start_client(base, percent, 4096) for percent in (25, 50)]
        seen = [answer(c) for c in clients]
        for count, *results in seen:
            assert results[:4] == [0, 0, 0, 0] and results[4] == 2, f"limits of MPS do not hold: {seen}"
        assert 0 < seen[0][0] < seen[1][0], f"multiprocessors: {seen}"
        rows = smi("pid,used_gpu_memory", "compute-apps").splitlines()
        listed = {int(pid): int(mib) for pid, mib in (row.split(", ") for row in rows) if mib.isdigit()}
        assert all(listed.get(c.pid, 0) >= 1024 for c in clients), f"memory of clients by NVML, in MiB: {listed}"
        for c in clients:
            c.communicate()
        daemon = int(subprocess.run(["fuser", f"{base}/pipe/control_lock"], capture_output=True, text=True).stdout.split()[0])
        os.kill(daemon, signal.SIGKILL)
        wait_ready(node, 1)
        late = start_client(base, 25, 4096)
        assert answer(late)[1:4] == [0, 0, 0], "no client after the daemon was started again"
        late.communicate()
        node.stdin.write("close\n")
        node.stdin.flush()
        assert node.wait(30) == 0 and smi("compute_mode") == before and not os.path.exists(base)
    finally:
        node.kill()
        node.wait()
        shutil.rmtree(top, ignore_errors=True)


def run(build, results):
    why = missing()
    started = time.monotonic()
    try:
        if not why:
            mps_clients(pathlib.Path(build))
        results.append(("clients of MPS", "skipped", why) if why else
                       ("clients of MPS", "passed", f"{time.monotonic() - started:.0f} s"))
    except (AssertionError, OSError, subprocess.SubprocessError) as failure:
        results.append(("clients of MPS", "failed", str(failure)[:200]))
    print("{}: {} ({})".format(*results[-1]), flush=True)


if __name__ == "__main__" and sys.argv[1:] == ["client"]:
    client()
