# SPDX-License-Identifier: Apache-2.0
"""Every query of NVML and CUDA that the simulator models, asked of the driver that is there.

    answers.py ask nvml|cuda FILE       appends one line for each query: [query, answer]
    answers.py compare CARD SIMULATOR   prints as JSON what differs

A query that ends the process is written down as that, and the next one is asked in a fresh process. Queries are asked
twice; an answer that differs the second time is marked, since it says nothing about a model.
"""

import ctypes
import itertools
import json
import os
import re
import subprocess
import sys

from asking import HERE
from driver import MIB, POINTER, Cuda, Nvml, allocation_properties

ABI = HERE.parents[2] / "src" / "abi"
ROOM = 64 << 10
SHOWN_BYTES = 512
QUERY_SECONDS = 40
VERSION_MISMATCH = 25
CAPACITY = 512
VERSIONED_BYTES = 1024

ASKED = re.compile(r"nvml(Device(Get|Is|On|Validate)|SystemGet|UnitGet|GpmQuery|GetExcluded)")
NOT_ASKED = re.compile(r"HandleBy|FieldValues|MemoryLimits|HandleFrom")
# What is given for a parameter: by its type, else by its name.
BY_TYPE = {"nvmlClockType_t": range(4), "nvmlClockId_t": range(4), "nvmlTemperatureSensors_t": (0,),
           "nvmlTemperatureThresholds_t": range(8), "nvmlPstates_t": (0, 2, 8), "nvmlInforomObject_t": range(4),
           "nvmlMemoryErrorType_t": (0, 1), "nvmlEccCounterType_t": (0, 1), "nvmlMemoryLocation_t": range(8),
           "nvmlPageRetirementCause_t": (0, 1), "nvmlPcieUtilCounter_t": (0, 1), "nvmlNvLinkCapability_t": range(6),
           "nvmlNvLinkErrorCounter_t": range(5), "nvmlGpuTopologyLevel_t": (0, 10, 50), "nvmlGpuP2PCapsIndex_t": range(6),
           "nvmlRestrictedAPI_t": (0, 1), "nvmlSamplingType_t": range(10), "nvmlPerfPolicyType_t": (0, 1, 2, 3, 4, 5, 10, 11),
           "nvmlEncoderType_t": range(3), "nvmlAffinityScope_t": (0, 1)}
BY_NAME = {"link": (0, 17, 18), "fan": (0,), "profile": range(17), "profile_id": (0, 5, 9, 14, 15, 19, 20), "index": (0,), "id": (0,),
           "pid": (1,), "last_seen_time_stamp": (0,), "cpu_set_size": (16,), "node_set_size": (16,), "length": (96,), "size": (96,),
           "memory_clock_mhz": (3201,), "cpu_number": (0,)}
NUMBERS = {"unsigned int": ctypes.c_uint32, "int": ctypes.c_int32, "unsigned long long": ctypes.c_uint64,
           "unsigned long": ctypes.c_uint64, "size_t": ctypes.c_uint64}


def versioned():
    """Types of nvml.h that begin with a version word, which holds the struct's size."""
    return set(re.findall(r"typedef struct \{\s+unsigned int version;[^}]*(?:\{[^}]*\}[^}]*)*\} (\w+);", (ABI / "nvml.h").read_text()))


def rows():
    """(name, [(type, parameter)]) of the functions that are asked."""
    text = re.sub(r"/\*.*?\*/", "", (ABI / "hooks-nvml.def").read_text(), flags=re.S)
    for name, parameters in re.findall(r"NVML_\w+\(\s*(\w+),\s*\(([^)]*)\)", text):
        if ASKED.match(name) and not NOT_ASKED.search(name):
            parts = [re.match(r"(?:const )?(.*?)(\w+)$", p.strip()).groups() for p in parameters.split(",") if p.strip() != "void"]
            yield name, [(re.sub(r"\s*\*\s*$", " *", t).strip(), n) for t, n in parts]


def shown(kind, room):
    if kind == "char":
        return room.raw.partition(b"\0")[0].decode(errors="replace")
    if kind in NUMBERS:
        return NUMBERS[kind].from_buffer(room).value
    if kind == "nvmlDevice_t":
        return None
    text = room.raw[:SHOWN_BYTES].rstrip(b"\0")
    return int.from_bytes(text, "little") if len(text) <= 4 else text.hex()


class Call:
    """One query of NVML: a function and what stands for its parameters."""

    def __init__(self, nvml, name, parameters, given, has_version):
        self.nvml, self.name, self.has_version = nvml, name, has_version
        self.parameters, self.given = parameters, given

    def ask(self, version=None):
        arguments, rooms, given = [], [], iter(self.given)
        for kind, parameter in self.parameters:
            if kind == "nvmlDevice_t":
                arguments.append(self.nvml.card)
            elif kind.endswith("*"):
                room = ctypes.create_string_buffer(ROOM)
                if "count" in parameter and kind == "unsigned int *":
                    ctypes.c_uint32.from_buffer(room).value = CAPACITY
                if version and kind[:-1].strip() in self.has_version:
                    ctypes.c_uint32.from_buffer(room).value = version
                rooms.append((kind[:-1].strip(), room))
                arguments.append(room)
            else:
                value = next(given)
                arguments.append(ctypes.c_uint64(value) if kind == "unsigned long long" else value)
        r = getattr(self.nvml, self.name)(*arguments)
        return [r, *(shown(*room) for room in rooms)] if r == 0 else [r]

    def answer(self):
        if not self.nvml.has(self.name):
            return "no such function"
        if not any(k[:-1].strip() in self.has_version for k, _ in self.parameters if k.endswith("*")):
            return self.ask()
        return self.versions()

    def versions(self):
        """What each version of a struct gets, by its size where the driver takes it; else the errors, [VERSION_MISMATCH] left out."""
        seen, errors = {}, set()
        for number in range(1, 5):
            for size in range(8, VERSIONED_BYTES, 4):
                answer = self.ask(size | number << 24)
                if answer[0] == 0:
                    seen[f"v{number} of {size} bytes"] = answer
                    break
                errors.add(answer[0])
        return seen or sorted(errors - {VERSION_MISMATCH}) or [VERSION_MISMATCH]


def nvml_queries():
    nvml, has_version = Nvml(), versioned()
    for name, parameters in rows():
        domains = [BY_TYPE.get(kind) or BY_NAME.get(parameter, (0,)) for kind, parameter in parameters
                   if kind != "nvmlDevice_t" and not kind.endswith("*")]
        for given in itertools.product(*domains):
            yield f"{name}({', '.join(map(str, given))})", Call(nvml, name, parameters, given, has_version).answer


def number(cuda, name, *arguments, of=ctypes.c_uint64):
    """A query whose first parameter is where the number goes."""
    def ask():
        value = of()
        r = getattr(cuda, name)(ctypes.byref(value), *arguments) if cuda.has(name) else "no such function"
        return [r, value.value] if r == 0 else [r]
    return ask


def last_number(cuda, name, *arguments):
    """A query whose last parameter is where the number goes."""
    def ask():
        value = ctypes.c_uint64()
        r = getattr(cuda, name)(*arguments, ctypes.byref(value))
        return [r, value.value] if r == 0 else [r]
    return ask


def buffer(cuda, name, before, after, size=256, text=False):
    def ask():
        room = ctypes.create_string_buffer(size)
        r = getattr(cuda, name)(*before, room, *after) if cuda.has(name) else "no such function"
        return [r, room.value.decode(errors="replace") if text else room.raw.rstrip(b"\0").hex()] if r == 0 else [r]
    return ask


def error_text(cuda, name, code):
    def ask():
        text = ctypes.c_char_p()
        r = getattr(cuda, name)(code, ctypes.byref(text))
        return [r, text.value.decode() if text.value else None]
    return ask


def pointer_queries(cuda):
    host, managed, linear = ctypes.c_void_p(), POINTER(), cuda.alloc(MIB)
    cuda.ok.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(MIB), 0)
    cuda.ok.cuMemAllocManaged(ctypes.byref(managed), ctypes.c_size_t(MIB), 1)
    for kind, pointer in (("linear", linear), ("pinned", POINTER(host.value)), ("managed", managed), ("none", POINTER(4096))):
        for attribute in range(1, 22):
            # Addresses and numbers of buffers differ by nature: of these only whether there is an answer.
            ask = number(cuda, "cuPointerGetAttribute", attribute, pointer)
            yield (f"cuPointerGetAttribute({attribute}) of {kind} memory",
                   (lambda ask=ask: ask()[:1]) if attribute in (1, 3, 4, 5, 7, 11, 12, 17, 19, 20) else ask)


def pool_queries(cuda):
    pool = ctypes.c_void_p()
    cuda.ok.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0)
    for attribute in range(1, 16):
        yield f"cuMemPoolGetAttribute({attribute})", last_number(cuda, "cuMemPoolGetAttribute", pool, attribute)


def device_queries(cuda):
    yield "cuDriverGetVersion", number(cuda, "cuDriverGetVersion", of=ctypes.c_int)
    yield "cuDeviceGetCount", number(cuda, "cuDeviceGetCount", of=ctypes.c_int)
    yield "cuDeviceGetName", buffer(cuda, "cuDeviceGetName", (), (256, 0), text=True)
    yield "cuDeviceGetPCIBusId", buffer(cuda, "cuDeviceGetPCIBusId", (), (256, 0), text=True)
    yield "cuDeviceTotalMem", number(cuda, "cuDeviceTotalMem_v2", 0)
    yield "cuDeviceGetProperties", buffer(cuda, "cuDeviceGetProperties", (), (0,))
    yield "cuDeviceGetLuid", buffer(cuda, "cuDeviceGetLuid", (), (ctypes.byref(ctypes.c_uint()), 0))
    for attribute in range(1, 170):
        yield f"cuDeviceGetAttribute({attribute})", number(cuda, "cuDeviceGetAttribute", attribute, 0, of=ctypes.c_int)
    for attribute in range(1, 7):
        yield f"cuDeviceGetP2PAttribute({attribute})", number(cuda, "cuDeviceGetP2PAttribute", attribute, 0, 0, of=ctypes.c_int)
    for kind in range(3):
        yield f"cuDeviceGetExecAffinitySupport({kind})", number(cuda, "cuDeviceGetExecAffinitySupport", kind, 0, of=ctypes.c_int)
    for form in (1, 2, 3, 8, 9, 10, 16, 32):
        yield f"cuDeviceGetTexture1DLinearMaxWidth({form}, 4)", number(cuda, "cuDeviceGetTexture1DLinearMaxWidth", form, 4, 0)
    for attribute in range(4):
        yield f"cuDeviceGetGraphMemAttribute({attribute})", last_number(cuda, "cuDeviceGetGraphMemAttribute", 0, attribute)


def context_queries(cuda):
    for limit in range(14):
        yield f"cuCtxGetLimit({limit})", number(cuda, "cuCtxGetLimit", limit)
    for name in ("cuCtxGetCacheConfig", "cuCtxGetSharedMemConfig", "cuCtxGetFlags", "cuCtxGetDevice"):
        yield name, number(cuda, name, of=ctypes.c_int)
    yield "cuCtxGetApiVersion", last_number(cuda, "cuCtxGetApiVersion", cuda.context)
    yield "cuCtxGetStreamPriorityRange", lambda: (
        lambda a, b: [cuda.cuCtxGetStreamPriorityRange(ctypes.byref(a), ctypes.byref(b)), a.value, b.value])(ctypes.c_int(), ctypes.c_int())
    for kind in range(2):
        yield f"cuCtxGetExecAffinity({kind})", buffer(cuda, "cuCtxGetExecAffinity", (), (kind,))
    yield "cuModuleGetLoadingMode", number(cuda, "cuModuleGetLoadingMode", of=ctypes.c_int)
    for types, option in itertools.product((0, 1, 8), (0, 1)):
        yield f"cuMemGetAllocationGranularity(handles {types}, option {option})", number(
            cuda, "cuMemGetAllocationGranularity", ctypes.byref(allocation_properties(types)), option)


def cuda_queries():
    cuda = Cuda()
    yield from device_queries(cuda)
    yield from context_queries(cuda)
    yield from pool_queries(cuda)
    yield from pointer_queries(cuda)
    for name in ("cuGetErrorName", "cuGetErrorString"):
        for code in range(1000):
            yield f"{name}({code})", error_text(cuda, name, code)


QUERIES = {"nvml": nvml_queries, "cuda": cuda_queries}


def ask_from(kind, path, first):
    """Writes the number of each query before it is asked, so that the caller knows which one ended the process."""
    with open(path, "a", encoding="utf-8") as f:
        for at, (query, ask) in enumerate(QUERIES[kind]()):
            if at < first:
                continue
            print(at, query, flush=True)
            once, again = ask(), ask()
            f.write(json.dumps([query, once, *([] if once == again else ["varies"])]) + "\n")
            f.flush()


def ask_all(kind, path):
    first, ended = 0, []
    while True:
        try:
            done = subprocess.run([sys.executable, __file__, "from", kind, path, str(first)], stdout=subprocess.PIPE, text=True,
                                  timeout=QUERY_SECONDS)
            status, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            status, output = "no answer", (late.stdout or b"").decode()
        last = output.strip().rpartition("\n")[2].partition(" ")
        if status == 0 or not last[2] or status == 1:
            break
        ended.append([last[2], status])
        first = int(last[0]) + 1
    with open(path, "a", encoding="utf-8") as f:
        f.writelines(json.dumps([query, f"the process ended: {status}"]) + "\n" for query, status in ended)
    print(json.dumps({"kind": kind, "queries": len(read(path)), "ended": ended, "status": status}))
    sys.exit(0 if status == 0 else 1)


def read(path):
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                query, answer, *varies = json.loads(line)
                found[query] = (answer, bool(varies))
    return found


def compare(card, simulator):
    ours, theirs = read(simulator), read(card)
    different = [[q, theirs.get(q, ("not asked",))[0], ours.get(q, ("not asked",))[0]] for q in {**theirs, **ours}
                 if theirs.get(q, ("not asked",))[0] != ours.get(q, ("not asked",))[0]]
    varies = {q for found in (ours, theirs) for q, (_, changes) in found.items() if changes}
    print(json.dumps({"queries": len(theirs), "different": [d for d in different if d[0] not in varies],
                      "different_and_varying": [d for d in different if d[0] in varies]}))
    sys.exit(0 if theirs and ours else 1)


def main():
    what, *arguments = sys.argv[1:]
    if what == "ask":
        ask_all(*arguments)
    elif what == "from":
        ask_from(arguments[0], arguments[1], int(arguments[2]))
    else:
        compare(*arguments)


if __name__ == "__main__":
    main()
