# SPDX-License-Identifier: Apache-2.0
"""Run by test_sim_sharing inside other namespaces: takes 1 GiB and says what it sees."""

import ctypes
import os

cuda = ctypes.CDLL("libcuda.so.1")
nvml = ctypes.CDLL("libnvidia-ml.so.1")


class Process(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong),
                ("gpu_instance", ctypes.c_uint), ("compute_instance", ctypes.c_uint)]


def ok(result):
    assert result == 0, result


number = ctypes.c_uint()
context, device = ctypes.c_void_p(), ctypes.c_void_p()
pointer = ctypes.c_uint64()
memory = (ctypes.c_ulonglong * 3)()
ok(cuda.cuInit(0))
ok(cuda.cuDeviceGetCount(ctypes.byref(number)))
print(f"devices={number.value}")
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
ok(cuda.cuCtxSetCurrent(context))
ok(cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(1 << 30)))

ok(nvml.nvmlInit_v2())
ok(nvml.nvmlDeviceGetCount_v2(ctypes.byref(number)))
print(f"nvml_devices={number.value}")
ok(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)))
ok(nvml.nvmlDeviceGetMinorNumber(device, ctypes.byref(number)))
print(f"minor={number.value}")
ok(nvml.nvmlDeviceGetIndex(device, ctypes.byref(number)))
print(f"index={number.value}")
ok(nvml.nvmlDeviceGetMemoryInfo(device, memory))
print(f"used={memory[2]}")
processes, number = (Process * 16)(), ctypes.c_uint(16)
ok(nvml.nvmlDeviceGetComputeRunningProcesses_v3(device, ctypes.byref(number), processes))
print(f"processes={[(p.pid, p.bytes) for p in processes[:number.value]]}")
print(f"pid={os.getpid()}")
