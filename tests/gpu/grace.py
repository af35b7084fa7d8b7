# SPDX-License-Identifier: Apache-2.0
"""GH200, a step of run.py: all other rows are its tests, too, on arm64. Here is what it has alone. The card's memory is a NUMA
node without CPUs, which any process of the machine can fill without the driver: the agent then finds memory on the card that
belongs to no process that NVML lists."""

import ctypes
import mmap
import pathlib
import platform
import re

NODES = pathlib.Path("/sys/devices/system/node")
GIB = 1 << 30
MBIND = {"aarch64": 235, "x86_64": 237}     # the system call
MPOL_BIND = 2


def memory_nodes(top=NODES):
    """{NUMA node without CPUs: bytes}, of those that have memory."""
    found = {}
    for path in top.glob("node[0-9]*"):
        size = int(re.search(r"MemTotal:\s+(\d+) kB", (path / "meminfo").read_text())[1]) << 10
        if size and not (path / "cpulist").read_text().strip():
            found[int(path.name[4:])] = size
    return found


def fill(node, size):
    """Memory of that node, which the kernel has given."""
    memory = mmap.mmap(-1, size)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    mask = ctypes.c_ulong(1 << node)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(MBIND[platform.machine()], ctypes.c_void_p(address), ctypes.c_ulong(size), MPOL_BIND, ctypes.byref(mask),
                    ctypes.c_ulong(65), 0) != 0:
        raise OSError(ctypes.get_errno(), f"mbind to node {node}")
    ctypes.memset(address, 1, size)
    return memory


def used(nvml):
    handle, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0
    return memory[2]


def coherent_memory():
    """What NVML says of memory that a process has taken of the card by the kernel."""
    assert platform.machine() == "aarch64", f"the processor is {platform.machine()}"
    nodes = memory_nodes()
    assert nodes, "no NUMA node is the card's memory"
    node = max(nodes, key=nodes.get)
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    assert nvml.nvmlInit_v2() == 0
    before = used(nvml)
    memory = fill(node, GIB)
    seen = used(nvml) - before
    assert len(memory) == GIB
    return f"node {node} has {nodes[node] / GIB:.0f} GiB; of 1 GiB taken there NVML counts {seen / GIB:.2f} as the card's"


def run(gpus, results):
    if not any("GH200" in name for name in gpus):
        print("skipped: no GH200")
        results.append(("memory of a GH200 that the kernel gives out", "skipped", "no GH200"))
        return
    try:
        results.append(("memory of a GH200 that the kernel gives out", "passed", coherent_memory()))
    except (AssertionError, OSError) as failure:
        results.append(("memory of a GH200 that the kernel gives out", "failed", str(failure)[:200]))
    print("{}: {} ({})".format(*results[-1]), flush=True)
