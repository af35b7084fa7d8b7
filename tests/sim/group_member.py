# SPDX-License-Identifier: Apache-2.0
"""A CUDA program that does what its standard input says, one answer a line."""

import ctypes
import sys


class Memory(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]


def nvml_memory():
    nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    memory = Memory(version=ctypes.sizeof(Memory) | 2 << 24)
    assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
    assert nvml.nvmlDeviceGetMemoryInfo_v2(device, ctypes.byref(memory)) == 0
    return f"{memory.total} {memory.used} {memory.free}"


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, blocks = ctypes.c_void_p(), []
    assert cuda.cuInit(0) == 0
    for line in sys.stdin:
        verb, *args = line.split()
        if verb == "context":
            answer = cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)
        elif verb == "alloc":
            block = ctypes.c_uint64()
            answer = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(int(args[0])))
            if answer == 0:
                blocks.append(block)
        elif verb == "managed":  # and brings it to the card
            block, size = ctypes.c_uint64(), ctypes.c_size_t(int(args[0]))
            answer = cuda.cuMemAllocManaged(ctypes.byref(block), size, 1)
            answer = answer or cuda.cuMemPrefetchAsync(block, size, 0, None) or cuda.cuCtxSynchronize()
        elif verb == "free":
            answer = cuda.cuMemFree_v2(blocks.pop())
        elif verb == "info":
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
            answer = f"{free.value} {total.value}"
        elif verb == "nvml":
            answer = nvml_memory()
        elif verb == "export":  # a name for another process
            handle = (ctypes.c_char * 64)()
            assert cuda.cuIpcGetMemHandle(handle, blocks[-1]) == 0
            answer = bytes(handle).hex()
        elif verb == "import":
            class Handle(ctypes.Structure):
                _fields_ = [("reserved", ctypes.c_char * 64)]
            handle, block = Handle.from_buffer_copy(bytes.fromhex(args[0])), ctypes.c_uint64()
            answer = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(block), handle, 1)
        else:
            raise ValueError(verb)
        print(answer, flush=True)


main()
