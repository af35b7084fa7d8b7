# SPDX-License-Identifier: Apache-2.0
"""Clients of MPS on a real GPU, with the agent's MPS of one card (tests/mps/mps-node.c). This is a step of run.py.

    mps.py client GIB...            a client, which prints what it sees
    mps.py pair PIPE SHM            two of them in the share that this runs in, as JSON; SHM: "" where it is the daemon's already
    mps.py share ALIQUOT [--simulated]      two of them in a share, with a daemon of its own (a step of gpu-kit)
"""

import ctypes
import json
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
OUT_OF_MEMORY = 2
SHARE = 5               # GiB, of which two clients have what PAIR says
PAIR = [(2,), (3, 1)]   # each below the limit of MPS, which is for each client; the second one's first is above the share
CLIENT_MIB = 4096       # the limit of MPS
LISTS = ("Compute", "MPSCompute")


def client(sizes):
    """Multiprocessors that it may use, and the results of allocating so many GiB each; waits for the end of its input."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context, count, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_uint64()
    results = [cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)]
    cuda.cuDeviceGetAttribute(ctypes.byref(count), MULTIPROCESSORS, device)
    results += [cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size * GIB)) for size in sizes]
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


def start_client(pipe, shm, percent, sizes=(1, 4)):
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent),
                   "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={CLIENT_MIB}M"}
    # The /dev/shm of the daemon, as CDI mounts it into a container.
    mounted = ["unshare", "-m", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"', shm] if shm else []
    return subprocess.Popen([*mounted, sys.executable, __file__, "client", *map(str, sizes)],
                            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process):
    return [int(word) for word in process.stdout.readline().split()]


# -- two clients in one share -----------------------------------------------------------------------------------------------

class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("memory", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


def listed(pids):
    """{list of NVML: {PID: GiB}} of these processes."""
    nvml, handle, found = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), {}
    nvml.nvmlInit_v2()
    nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
    for name in LISTS:
        count, processes = ctypes.c_uint(64), (Process * 64)()
        code = getattr(nvml, f"nvmlDeviceGet{name}RunningProcesses_v3")(handle, ctypes.byref(count), processes)
        found[name] = code or {p.pid: p.memory // GIB for p in processes[:count.value] if p.pid in pids}
    return found


def pair(pipe, shm):
    clients, seen = [], []
    for sizes in PAIR:
        clients.append(start_client(pipe, shm, 50, sizes))
        seen.append(answer(clients[-1])[1:])
    print(json.dumps({"results": seen, "listed": listed([c.pid for c in clients])}), flush=True)
    for c in clients:
        c.communicate()


def one_share(aliquot, pipe, shm):
    """What two clients in one share of SHARE GiB get, and where NVML lists them. Each may have more, by MPS: what holds them
    to the sum is the ledger of the share. The first three results of each are those of making a context."""
    said = subprocess.run([aliquot, "run", "--memory", str(SHARE * GIB), "--", sys.executable, __file__, "pair", pipe, shm],
                          stdout=subprocess.PIPE, text=True, timeout=120)
    assert said.returncode == 0 and said.stdout, f"the clients ended with {said.returncode}"
    found = json.loads(said.stdout)
    assert found["results"] == [[0, 0, 0, 0], [0, 0, 0, OUT_OF_MEMORY, 0]], f"the share does not hold its clients: {found}"
    return found


def own_daemon(pipe, request, *arguments):
    return subprocess.run(["nvidia-cuda-mps-control", *arguments], input=request, text=True, check=True, stdout=sys.stderr, timeout=30,
                          env={**os.environ, "CUDA_MPS_PIPE_DIRECTORY": pipe, "CUDA_MPS_LOG_DIRECTORY": pipe})


def share(aliquot, simulated):
    """Without the agent, and with no setting of the card changed: clients of MPS need no compute mode."""
    lacks = [] if simulated else [p for p in ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server") if not shutil.which(p)]
    if lacks:
        print(json.dumps({"skipped": f"not on this machine: {', '.join(lacks)}"}))
        return
    with tempfile.TemporaryDirectory(prefix="m") as pipe:
        if simulated:
            pathlib.Path(pipe, "control").touch()       # that is what the simulated driver looks for
        else:
            own_daemon(pipe, None, "-d")
        try:
            print(json.dumps(one_share(aliquot, pipe, "")))
        finally:
            if not simulated:
                own_daemon(pipe, "quit -t 5\n")


# -- the step of run.py -----------------------------------------------------------------------------------------------------

def wait_ready(node, restarts):
    for line in node.stdout:
        if line.startswith(f"ready restarts={restarts}"):
            return
    raise AssertionError("MPS has ended")


def mps_clients(build):
    """Two clients at once have their limits, and two in one share its memory together; a client after kill -9 of the daemon has
    its limits, too; the mode is restored."""
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
        clients = [start_client(f"{base}/pipe", f"{base}/shm", percent) for percent in (25, 50)]
        seen = [answer(c) for c in clients]
        for count, *results in seen:
            assert results[:4] == [0, 0, 0, 0] and results[4] == OUT_OF_MEMORY, f"limits of MPS do not hold: {seen}"
        assert 0 < seen[0][0] < seen[1][0], f"multiprocessors: {seen}"
        rows = smi("pid,used_gpu_memory", "compute-apps").splitlines()
        listed = {int(pid): int(mib) for pid, mib in (row.split(", ") for row in rows) if mib.isdigit()}
        assert all(listed.get(c.pid, 0) >= 1024 for c in clients), f"memory of clients by NVML, in MiB: {listed}"
        for c in clients:
            c.communicate()
        one_share(build / "src/cli/aliquot", f"{base}/pipe", f"{base}/shm")
        daemon = int(subprocess.run(["fuser", f"{base}/pipe/control_lock"], capture_output=True, text=True).stdout.split()[0])
        os.kill(daemon, signal.SIGKILL)
        wait_ready(node, 1)
        late = start_client(f"{base}/pipe", f"{base}/shm", 25)
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


def main():
    what, *arguments = sys.argv[1:]
    if what == "client":
        client([int(size) for size in arguments])
    elif what == "pair":
        pair(*arguments)
    else:
        share(arguments[0], "--simulated" in arguments)


if __name__ == "__main__":
    main()
