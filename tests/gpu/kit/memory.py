# SPDX-License-Identifier: Apache-2.0
"""Questions on what memory costs: contexts, code, rounding, pools, managed memory."""

import ctypes
import os
import time

from asking import attempt, question, say, start, wait
from driver import MIB, GIB, POINTER, Cuda, Nvml, allocation_properties, pool_properties

PTX = """
.version 6.0
.target sm_50
.address_size 64
%s
.visible .entry work(.param .u64 out) {
    .local .align 8 .b8 room[%d];
    .reg .u64 %%p, %%l;
    .reg .u32 %%t;
    ld.param.u64 %%p, [out];
    mov.u32 %%t, %%tid.x;
    cvt.u64.u32 %%l, %%t;
    st.global.u64 [%%p], %%l;
    ret;
}
"""
HEAP, STACK, PRINTF = 2, 0, 1       # CU_LIMIT_MALLOC_HEAP_SIZE, _STACK_SIZE, _PRINTF_FIFO_SIZE


def steps(*functions):
    """What each function returns, and the card's used memory and the driver's free memory after it."""
    cuda, nvml = Cuda(), Nvml()
    seen = [{"step": "context", "used": nvml.used(), "free": cuda.info()[0]}]
    for function in functions:
        answer = attempt(function, cuda)
        cuda.cuCtxSynchronize()
        seen.append({"step": function.__name__, "answer": answer, "used": nvml.used(), "free": cuda.info()[0],
                     "listed": nvml.processes().get(os.getpid())})
    return seen


def load(cuda, source):
    module = ctypes.c_void_p()
    cuda.ok.cuModuleLoadData(ctypes.byref(module), source.encode())
    return module


def launch(cuda, module, blocks=1, threads=1):
    function, out = ctypes.c_void_p(), cuda.alloc(256)
    cuda.ok.cuModuleGetFunction(ctypes.byref(function), module, b"work")
    parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(out), ctypes.c_void_p))
    cuda.ok.cuLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 0, None, parameters, None)
    cuda.ok.cuCtxSynchronize()


def run_steps(*names):
    """steps() in an actor, of functions of this module."""
    return start(does, *names).said()


def does(*names):
    say(steps(*(globals()[name] for name in names)))


# -- contexts -------------------------------------------------------------------------------------------------------------

def makes_contexts():
    cuda, nvml = Cuda(context=False), Nvml()
    seen = [{"used": nvml.used(), "listed": nvml.processes().get(os.getpid())}]
    for flags in (0, 0, 4, 0x10):       # default twice, blocking synchronisation, local memory resized to most
        context = ctypes.c_void_p()
        answer = cuda.cuCtxCreate_v2(ctypes.byref(context), flags, 0)
        seen.append({"flags": flags, "answer": answer, "used": nvml.used(), "listed": nvml.processes().get(os.getpid()),
                     "free_total": cuda.info()})
    say(seen)


@question("What does a context cost, the first and each further of a process, by the card, by the list, by cuMemGetInfo?",
          "the cost that is booked for a context on this model")
def context_cost():
    return start(makes_contexts).said()


def wakes():
    nvml = Nvml()
    seen = {"before": nvml.used()}
    cuda = Cuda(context=False)
    seen["cuInit"] = [nvml.used(), nvml.processes().get(os.getpid())]
    context, flags, active = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_int()
    seen["state"] = [cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)), flags.value, active.value]
    cuda.ok.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    seen["retain"] = [nvml.used(), nvml.processes().get(os.getpid())]
    cuda.ok.cuDevicePrimaryCtxRelease_v2(0)
    seen["release"] = [nvml.used(), nvml.processes().get(os.getpid())]
    say(seen)


@question("When does a process appear in the list: cuInit, context; does it leave when its context is released?",
          "when an overhead can be attributed, and when a share is empty")
def listed_from_when():
    return start(wakes).said()


# -- linear memory, VMM, arrays --------------------------------------------------------------------------------------------

def small(cuda):
    return [cuda.alloc(1).value for _ in range(1000)][:3]


def half_blocks(cuda):
    return [cuda.alloc(MIB + 1).value for _ in range(20)][:3]


def whole(cuda):
    return cuda.alloc(256 * MIB).value


def odd(cuda):
    return cuda.alloc(256 * MIB + 1).value


@question("What do 1000 allocations of a byte, 20 of 1 MiB + 1, one of 256 MiB, one of a byte more take of the card?",
          "the driver's own blocks of 2 MiB that overhead is published in")
def rounding():
    return run_steps("small", "half_blocks", "whole", "odd")


def granularity(cuda):
    value, seen = ctypes.c_size_t(), {}
    for kind, types in (("plain", 0), ("descriptor", 1), ("fabric", 8)):
        properties = allocation_properties(types)
        seen[kind] = [(cuda.cuMemGetAllocationGranularity(ctypes.byref(value), ctypes.byref(properties), option), value.value)
                      for option in (0, 1)]
    return seen


def vmm(cuda):
    handle, properties = ctypes.c_uint64(), allocation_properties(0)
    cuda.ok.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(256 * MIB), ctypes.byref(properties), ctypes.c_ulonglong(0))
    return handle.value


@question("Granularity of VMM memory by kind of handle, and is memory taken at cuMemCreate or when it is mapped?",
          "when a VMM handle is booked")
def vmm_taken_when():
    return run_steps("granularity", "vmm")


class ArrayDescription(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("format", ctypes.c_int), ("channels", ctypes.c_uint)]


def array(cuda):
    seen, value = [], (ctypes.c_size_t * 8)()
    for width, height, channels in ((1, 0, 1), (1000, 1000, 4), (4096, 4096, 1), (4097, 4097, 1)):
        handle, description = ctypes.c_void_p(), ArrayDescription(width, height, 0x20, channels)
        r = cuda.cuArrayCreate_v2(ctypes.byref(handle), ctypes.byref(description))
        asked = cuda.cuArrayGetMemoryRequirements(value, handle, 0) if r == 0 else None
        seen.append([width, height, channels, r, asked, value[0], value[1]])
    return seen


@question("What do arrays take, and what does cuArrayGetMemoryRequirements say of them?", "whether arrays are booked exactly")
def arrays():
    return run_steps("array")


# -- code ------------------------------------------------------------------------------------------------------------------

def code(cuda):
    load(cuda, PTX % ("", 8))


def more_code(cuda):
    for _ in range(20):
        load(cuda, PTX % ("", 8))


def globals_256m(cuda):
    load(cuda, PTX % (".global .align 8 .b8 large[268435456];", 8))


def first_launch(cuda):
    launch(cuda, load(cuda, PTX % ("", 8)))


def local_64k(cuda):
    launch(cuda, load(cuda, PTX % ("", 65536)), blocks=1, threads=32)


@question("What do modules take: code, twenty times code, 256 MiB of globals, the first launch, 64 KiB of local memory a thread?",
          "how far code and globals escape the library, and what the overhead must cover", real_only=True)
def modules():
    return run_steps("code", "more_code", "globals_256m", "first_launch", "local_64k")


def limits(cuda):
    value, seen = ctypes.c_size_t(), {}
    for number in range(12):
        seen[number] = [cuda.cuCtxGetLimit(ctypes.byref(value), number), value.value]
    return seen


def heap_256m(cuda):
    return cuda.cuCtxSetLimit(HEAP, ctypes.c_size_t(256 * MIB))


def stack_16k(cuda):
    return cuda.cuCtxSetLimit(STACK, ctypes.c_size_t(16384))


def printf_64m(cuda):
    return cuda.cuCtxSetLimit(PRINTF, ctypes.c_size_t(64 * MIB))


@question("Limits of a context (heap, stack, output): the values it begins with, and what larger ones take, before a launch",
          "when and by how much cuCtxSetLimit is booked")
def context_limits():
    return run_steps("limits", "heap_256m", "stack_16k", "printf_64m")


@question("The same limits, and what they take after the first launch", "limits that are taken at the first launch only",
          real_only=True)
def context_limits_launched():
    return run_steps("heap_256m", "stack_16k", "printf_64m", "first_launch")


# -- pools, graphs, managed, host -------------------------------------------------------------------------------------------

def pool_attributes(cuda, pool):
    value, seen = ctypes.c_uint64(), {}
    for number in range(1, 9):
        seen[number] = [cuda.cuMemPoolGetAttribute(pool, number, ctypes.byref(value)), value.value]
    return seen


def default_pool(cuda):
    pool, pointer, seen = ctypes.c_void_p(), POINTER(), {}
    cuda.ok.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
    seen["empty"] = pool_attributes(cuda, pool)
    for size in (1, 33 * MIB):
        cuda.ok.cuMemAllocAsync(ctypes.byref(pointer), ctypes.c_size_t(size), None)
        cuda.ok.cuCtxSynchronize()
        seen[size] = pool_attributes(cuda, pool)
    return seen


def own_pool(cuda):
    pool, pointer = ctypes.c_void_p(), POINTER()
    cuda.ok.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(pool_properties(0)))
    keep = ctypes.c_uint64(2**64 - 1)
    cuda.ok.cuMemPoolSetAttribute(pool, 4, ctypes.byref(keep))
    cuda.ok.cuMemAllocFromPoolAsync(ctypes.byref(pointer), ctypes.c_size_t(100 * MIB), pool, None)
    cuda.ok.cuMemFreeAsync(pointer, None)
    cuda.ok.cuCtxSynchronize()
    kept = pool_attributes(cuda, pool)
    trimmed = cuda.cuMemPoolTrimTo(pool, ctypes.c_size_t(0))
    return {"kept": kept, "trim": trimmed, "after": pool_attributes(cuda, pool)}


@question("What do pools reserve for a byte and for 33 MiB, what do they keep, what does a trim give back?",
          "the blocks that a pool grows by, which are booked")
def pools():
    return run_steps("default_pool", "own_pool")


def managed_host(cuda):
    """256 MiB that are told to stay with the host, then written there: less than half of what is free on any card."""
    pointer, size = POINTER(), 256 * MIB
    if cuda.info()[0] < 4 * size:
        return "not asked: less than 1 GiB is free"
    cuda.ok.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), 1)
    advice = [cuda.cuMemAdvise(pointer, ctypes.c_size_t(size), 3, -1), cuda.cuMemAdvise(pointer, ctypes.c_size_t(size), 5, 0)]
    ctypes.memset(pointer.value, 1, size)
    memory_type = ctypes.c_uint()
    kind = cuda.cuPointerGetAttribute(ctypes.byref(memory_type), 2, pointer)
    return {"advice": advice, "attribute": [kind, memory_type.value]}


def managed_filled(cuda):
    """256 MiB that the card fills."""
    pointer, size = POINTER(), 256 * MIB
    if cuda.info()[0] < 4 * size:
        return "not asked: less than 1 GiB is free"
    cuda.ok.cuMemAllocManaged(ctypes.byref(pointer), ctypes.c_size_t(size), 1)
    return cuda.cuMemsetD8_v2(pointer, ctypes.c_ubyte(1), ctypes.c_size_t(size))


@question("Managed memory that is told to stay with the host: does it take any of the card? And what the card fills itself?",
          "whether oversubscription keeps its bound on the card")
def managed():
    return run_steps("managed_host", "managed_filled")


def pinned(cuda):
    pointer = ctypes.c_void_p()
    return cuda.cuMemHostAlloc(ctypes.byref(pointer), ctypes.c_size_t(256 * MIB), 0)


@question("Does pinned host memory take any of the card?", "host memory is never booked: right, or by how much not")
def pinned_memory():
    return run_steps("pinned")


@question("What is the card's total by CUDA, NVML v1 and v2, and what is reserved; what does a second process see as free?",
          "what a card's capacity is, and what the driver keeps")
def totals():
    nvml = Nvml()
    v1 = (ctypes.c_ulonglong * 3)()
    nvml.nvmlDeviceGetMemoryInfo(nvml.card, v1)
    actor = start(sees_total)
    return {"v2": nvml.memory(), "v1_total_free_used": list(v1), "cuda": actor.said()}


def sees_total():
    cuda, total = Cuda(), ctypes.c_size_t()
    cuda.ok.cuDeviceTotalMem_v2(ctypes.byref(total), 0)
    other = start(holds_gib)
    other.said()
    say({"cuDeviceTotalMem": total.value, "free_total_with_1GiB_of_another": cuda.info(), "used": Nvml().used()})
    other.end()


def holds_gib():
    Cuda().alloc(GIB)
    say("held")
    wait()


def checkpointed():
    """Another process is locked, its memory moved to the host, and brought back."""
    cuda, nvml = Cuda(context=False), Nvml()
    other = start(holds_gib)
    other.said()
    seen = {"before": nvml.used()}
    room = (ctypes.c_ubyte * 256)()
    for name in ("cuCheckpointProcessLock", "cuCheckpointProcessCheckpoint", "cuCheckpointProcessRestore",
                 "cuCheckpointProcessUnlock"):
        if not cuda.has(name):
            seen[name] = "no such function"
            continue
        began = time.monotonic()
        r = getattr(cuda, name)(other.pid, room)
        seen[name] = {"answer": r, "ms": round((time.monotonic() - began) * 1000), "used": nvml.used(),
                      "listed": nvml.processes().get(other.pid)}
    other.kill()
    say(seen)


@question("A process is checkpointed: does its memory leave the card, does it stay in the list?",
          "whether a checkpointed process leaves its memory to others, as the books say", of_kernel=True, seconds=40, real_only=True)
def checkpoint():
    actor = start(checkpointed)
    return actor.said(35)
