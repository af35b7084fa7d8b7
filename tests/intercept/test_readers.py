# SPDX-License-Identifier: Apache-2.0
"""Programs that people read GPUs with, unmodified, in a slice: they see a card of the slice's size."""

import sys

READER = """
import pynvml, sys
pynvml.nvmlInit()
h = pynvml.nvmlDeviceGetHandleByIndex(0)
for m in (pynvml.nvmlDeviceGetMemoryInfo(h), pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2)):
    assert m.total == m.used + m.free
    print(m.total, m.used)
print([(p.pid, p.usedGpuMemory) for p in pynvml.nvmlDeviceGetComputeRunningProcesses(h)])
"""


def test_nvidia_ml_py(sim):
    lines = sim(sys.executable, "-c", READER, memory="4Gi", gpu=0).stdout.splitlines()
    assert lines == [f"{4 << 30} 0", f"{4 << 30} 0", "[]"]


def test_nvidia_smi_of_the_real_driver(sim, real_driver):
    out = sim(f"{real_driver}/nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits",
              gpus=2, memory="4Gi", gpu=1).stdout.splitlines()
    assert out == ["81920, 0", "4096, 0"]
    table = sim(f"{real_driver}/nvidia-smi", memory="4Gi").stdout
    assert "0MiB /  4096MiB" in table


def test_gpustat(sim):
    out = sim(sys.executable, "-m", "gpustat", "--no-color", memory="4Gi").stdout
    assert "0 /  4096 MB" in out
