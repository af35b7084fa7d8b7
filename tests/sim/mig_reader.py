# SPDX-License-Identifier: Apache-2.0
"""Run by test_sim_capabilities as a container's program: prints as JSON what it sees and may do of MIG. The
arguments are commands, for example `nvml`, `cuda`, `create`."""

import ctypes
import json
import os
import sys

import pynvml as nvml
from sim_kit import parts


def result(call, *args):
    try:
        return call(*args)
    except nvml.NVMLError as e:
        return type(e).__name__.removeprefix("NVMLError_")


def memory(handle):
    info = result(nvml.nvmlDeviceGetMemoryInfo, handle)
    return info if isinstance(info, str) else info.used


def processes(handle):
    listed = result(nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return listed if isinstance(listed, str) else len(listed)


def read_nvml():
    nvml.nvmlInit()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    return [{"memory": memory(gpu), "processes": processes(gpu),
             "parts": {nvml.nvmlDeviceGetUUID(p): [memory(p), processes(p)] for p in parts(nvml, gpu)}} for gpu in gpus]


def create():
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    made = result(nvml.nvmlDeviceCreateGpuInstance, gpu, 19)
    if isinstance(made, str):
        return made
    compute = result(nvml.nvmlGpuInstanceCreateComputeInstance, made, 0)
    return compute if isinstance(compute, str) else nvml.nvmlGpuInstanceGetInfo(made).id


def uuid(cuda, call, device):
    raw = (ctypes.c_ubyte * 16)()
    assert getattr(cuda, call)(raw, device) == 0
    text = bytes(raw).hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def read_cuda():
    cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    status = cuda.cuInit(0)
    if status:
        return status
    assert cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
    context = ctypes.c_void_p()
    return [{"uuid": uuid(cuda, "cuDeviceGetUuid_v2", i), "card": uuid(cuda, "cuDeviceGetUuid", i),
             "context": cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), i)} for i in range(count.value)]


def nodes():
    """The files of the driver that the process has open."""
    names = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if n.isdigit()
             and os.path.lexists(f"/proc/self/fd/{n}")]
    return sorted(name.rsplit("/", 1)[1] for name in names if "/nvidia" in name)


COMMANDS = {"nvml": read_nvml, "create": create, "cuda": read_cuda, "nodes": nodes,
            "persistence": lambda: result(nvml.nvmlDeviceSetPersistenceMode, nvml.nvmlDeviceGetHandleByIndex(0), 0),
            "mode": lambda: result(nvml.nvmlDeviceSetMigMode, nvml.nvmlDeviceGetHandleByIndex(0), 0),
            "places": lambda: result(nvml.nvmlDeviceGetGpuInstanceRemainingCapacity,
                                     nvml.nvmlDeviceGetHandleByIndex(0), 19)}
print(json.dumps({name: COMMANDS[name]() for name in sys.argv[1:]}))
