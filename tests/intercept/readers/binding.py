# SPDX-License-Identifier: Apache-2.0
"""What a Python binding of NVML says, as JSON: one object a card. The binding is named by its module."""

import importlib
import json
import sys

nvml = importlib.import_module(sys.argv[1])


def text(value):
    return value.decode() if isinstance(value, bytes) else value


nvml.nvmlInit()
cards = []
for i in range(nvml.nvmlDeviceGetCount()):
    handle = nvml.nvmlDeviceGetHandleByIndex(i)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    uuid = text(nvml.nvmlDeviceGetUUID(handle))
    by_uuid = nvml.nvmlDeviceGetHandleByUUID(uuid.encode() if sys.argv[1] != "pynvml" else uuid)
    assert nvml.nvmlDeviceGetIndex(by_uuid) == nvml.nvmlDeviceGetIndex(handle) == i
    if hasattr(nvml, "nvmlMemory_v2"):
        second = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
        assert (second.total, second.used, second.free) == (memory.total, memory.used, memory.free)
    processes = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    cards.append({"uuid": uuid, "total": memory.total, "used": memory.used, "free": memory.free,
                  "load": nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
                  "processes": sorted([p.pid, p.usedGpuMemory] for p in processes)})
print(json.dumps(cards))
