# SPDX-License-Identifier: Apache-2.0
"""Questions on what single calls answer, and on what the libraries export."""

import ctypes
import hashlib
import json
import os
import pathlib
import struct
import subprocess
import time

import driver
from answers import Call
from asking import HERE, attempt, question, say, start, tenant_for
from driver import MIB, POINTER, Cuda, Library, Nvml, paced, samples

NAMES = HERE.parents[2] / "src" / "abi"


def named(path):
    """The names of a list in src/abi."""
    return [line.split()[0] for line in (NAMES / path).read_text().splitlines() if line and not line.startswith("#")]


def library_file(name):
    """The file behind a library's name."""
    ctypes.CDLL(name)
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith(name.partition(".so")[0] + ".so"):
                return path
    return None


def exported(path):
    """The dynamic symbols that a 64-bit ELF file defines."""
    data = open(path, "rb").read()
    shoff, = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * size) for i in range(count)]
    names = set()
    for section in sections:
        if section[1] != 11:        # SHT_DYNSYM
            continue
        strings = sections[section[6]]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, index = struct.unpack_from("<IBBH", data, at)
            if index and name:
                begin = strings[4] + name
                names.add(data[begin:data.index(b"\0", begin)].decode())
    return names


@question("Which functions do libcuda and libnvidia-ml of this driver export that we do not know, and the other way round?",
          "the names that the simulator of this driver version lacks or has too many of")
def exports():
    seen = {}
    for library, ours, prefix in (("libcuda.so.1", "cuda-exports.txt", "cu"), ("libnvidia-ml.so.1", "nvml-exports.txt", "nvml")):
        path = library_file(library)
        names, known = {n for n in exported(path) if n.startswith(prefix)}, set(named(ours))
        seen[library] = {"path": path, "count": len(names), "unknown": sorted(names - known), "missing": sorted(known - names)}
    return seen


def resolves():
    """For each name, version and kind of stream what cuGetProcAddress answers, as the symbol that the pointer is."""
    cuda = Cuda(context=False)
    names = sorted(n for n in exported(library_file("libcuda.so.1")) if n.startswith("cu"))
    at = {ctypes.cast(getattr(cuda, n), ctypes.c_void_p).value: n for n in names}
    bases = sorted({n.split("_v")[0].removesuffix("_ptsz").removesuffix("_ptds") for n in names})
    pointer, status, seen = ctypes.c_void_p(), ctypes.c_int(), {}
    for name in bases:
        for version in (11030, 12000, 12080, 13000):
            for flags in (1, 2):
                r = cuda.cuGetProcAddress_v2(name.encode(), ctypes.byref(pointer), version, ctypes.c_uint64(flags),
                                             ctypes.byref(status))
                seen[f"{name} {version} {flags}"] = [r, status.value, at.get(pointer.value, "elsewhere") if pointer.value else None]
    text = json.dumps(seen, sort_keys=True)
    changes = {}
    for key, value in seen.items():
        name = key.split()[0]
        if value not in changes.setdefault(name, []):
            changes[name].append(value)
    say({"queries": len(seen), "sha256": hashlib.sha256(text.encode()).hexdigest(), "answers": changes})


@question("What does cuGetProcAddress answer for each exported name at four versions and both kinds of stream?",
          "the resolver of library and simulator for this driver")
def resolver():
    return start(resolves).said()


def before_init():
    cuda, n, free = Library("libcuda.so.1"), ctypes.c_int(), (ctypes.c_size_t * 2)()
    seen = {"cuDriverGetVersion": [cuda.cuDriverGetVersion(ctypes.byref(n)), n.value]}
    for name, arguments in (("cuDeviceGetCount", (ctypes.byref(n),)), ("cuDeviceGet", (ctypes.byref(n), 0)),
                            ("cuMemAlloc_v2", (ctypes.byref(POINTER()), ctypes.c_size_t(1))), ("cuCtxSynchronize", ()),
                            ("cuMemGetInfo_v2", (free, ctypes.byref(free, 8))), ("cuInit", (1,)), ("cuInit", (0,)), ("cuInit", (0,)),
                            ("cuMemAlloc_v2", (ctypes.byref(POINTER()), ctypes.c_size_t(1))),
                            ("cuMemGetInfo_v2", (free, ctypes.byref(free, 8)))):
        seen.setdefault(name, []).append(getattr(cuda, name)(*arguments))
    say(seen)


@question("What do calls answer before cuInit, with cuInit(1), and without a context?", "the simulator's answers there")
def calls_before_init():
    return start(before_init).said()


def creates():
    cuda, context, seen = Cuda(context=False), ctypes.c_void_p(), {}
    room = (ctypes.c_ubyte * 64)()
    for name, arguments in (("cuCtxCreate_v2", (0, 0)), ("cuCtxCreate_v3", (None, 0, 0, 0)), ("cuCtxCreate_v4", (None, 0, 0)),
                            ("cuCtxCreate_v4", (room, 0, 0))):
        if cuda.has(name):
            seen[f"{name}{' with empty parameters' if room in arguments else ''}"] = getattr(cuda, name)(
                ctypes.byref(context), *arguments)
    say(seen)


@question("What do the four ways to create a context answer, cuCtxCreate_v4 with empty parameters among them?",
          "programs built with CUDA 13 create contexts in the simulator, too")
def context_creation():
    return start(creates).said()


def errs():
    cuda = Cuda()
    n, p = ctypes.c_size_t, POINTER()
    free, _ = cuda.info()
    attributes = {a: (cuda.cuPointerGetAttribute(ctypes.byref(ctypes.c_uint64()), a, POINTER(1))) for a in (1, 2, 4, 7)}
    say({"alloc 0": cuda.cuMemAlloc_v2(ctypes.byref(p), n(0)), "alloc NULL": cuda.cuMemAlloc_v2(None, n(1)),
         "alloc more than free": cuda.cuMemAlloc_v2(ctypes.byref(p), n(free + 1024 * MIB)),
         "alloc 2^63": cuda.cuMemAlloc_v2(ctypes.byref(p), n(1 << 63)), "free 0": cuda.cuMemFree_v2(POINTER(0)),
         "free 1": cuda.cuMemFree_v2(POINTER(1)), "export table unknown": cuda.cuGetExportTable(
             ctypes.byref(ctypes.c_void_p()), (ctypes.c_ubyte * 16)()), "pointer attributes of 1": attributes,
         "after": cuda.cuCtxSynchronize()})


@question("What do allocations of nothing, of too much, and frees of what is none answer?", "the library's and simulator's errors")
def bad_arguments():
    return start(errs).said()


@question("nvmlDeviceGetMigDeviceHandleByIndex and GetGpuInstanceRemainingCapacity on a card with MIG off: what do they answer?",
          "NOT_FOUND, INVALID_ARGUMENT or NOT_SUPPORTED in the simulator; NVIDIA's device plugin stops at the last")
def mig_off():
    nvml, out, mode = Nvml(), ctypes.c_void_p(), (ctypes.c_uint * 2)()
    count = ctypes.c_uint()
    return {"nvmlDeviceGetMigMode": [nvml.nvmlDeviceGetMigMode(nvml.card, mode, ctypes.byref(mode, 4)), list(mode)],
            "handle": [nvml.nvmlDeviceGetMigDeviceHandleByIndex(nvml.card, i, ctypes.byref(out)) for i in (0, 1, 7, 100)],
            "max": [nvml.nvmlDeviceGetMaxMigDeviceCount(nvml.card, ctypes.byref(count)), count.value],
            "remaining": [[nvml.nvmlDeviceGetGpuInstanceRemainingCapacity(nvml.card, i, ctypes.byref(count)), count.value]
                          for i in range(17)]}


@question("Which capability nodes of MIG does the driver list in /proc, and which are in /dev/nvidia-caps?",
          "whether the agent finds the nodes of an instance by the files that it reads; the simulator's numbers")
def mig_capabilities():
    root = os.environ.get("ALIQUOT_SIM_DIR", "")
    caps = pathlib.Path(root or "/dev", "nvidia-caps")
    access = sorted(pathlib.Path(root + "/proc/driver/nvidia/capabilities").rglob("access"))
    config = pathlib.Path(root + "/proc/driver/nvidia/capabilities/mig/config")
    minors = pathlib.Path(root + "/proc/driver/nvidia-caps/mig-minors")
    lines = minors.read_text().splitlines() if minors.exists() else []
    return {"nodes": sorted(p.name for p in caps.iterdir()) if caps.exists() else None,
            "config": config.read_text() if config.exists() else None,
            "access": {str(p): p.read_text() for p in access[:16]},
            "minors": [len(lines), lines[:24], lines[-2:]]}


@question("The NVLink calls for links 0 to 19: which answer NOT_SUPPORTED, which INVALID_ARGUMENT?",
          "where a link ends for tools that count to the most links there can be")
def nvlink_ends():
    nvml, value, room, seen = Nvml(), ctypes.c_uint(), (ctypes.c_ubyte * 256)(), []
    for link in range(20):
        seen.append([nvml.nvmlDeviceGetNvLinkState(nvml.card, link, ctypes.byref(value)), value.value,
                     nvml.nvmlDeviceGetNvLinkVersion(nvml.card, link, ctypes.byref(value)), value.value,
                     nvml.nvmlDeviceGetNvLinkCapability(nvml.card, link, 0, ctypes.byref(value)),
                     nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(nvml.card, link, room),
                     nvml.nvmlDeviceGetNvLinkRemoteDeviceType(nvml.card, link, ctypes.byref(value)), value.value])
    return seen


@question("Memory error counters by type, counter and location: which locations answer?", "ECC counts by location in the simulator")
def errors_by_location():
    nvml, value = Nvml(), ctypes.c_ulonglong()
    return [[kind, counter, location, nvml.nvmlDeviceGetMemoryErrorCounter(nvml.card, kind, counter, location, ctypes.byref(value)),
             value.value] for kind in (0, 1) for counter in (0, 1) for location in range(9)]


class FieldValue(ctypes.Structure):
    _fields_ = [("field", ctypes.c_uint), ("scope", ctypes.c_uint), ("timestamp", ctypes.c_longlong), ("latency", ctypes.c_longlong),
                ("type", ctypes.c_uint), ("answer", ctypes.c_uint), ("value", ctypes.c_ulonglong)]


@question("All field values from 1 to 300, and those of NVLink for links 0 and 17: which are answered, with what?",
          "the fields that the simulator should answer")
def field_values():
    nvml, seen = Nvml(), {}
    for scope in (0, 17):
        values = (FieldValue * 300)(*[FieldValue(i + 1, scope) for i in range(300)])
        r = nvml.nvmlDeviceGetFieldValues(nvml.card, 300, values)
        seen[scope] = {"answer": r, "values": {v.field: [v.answer, v.type, v.value] for v in values if v.answer != 3}}
    return seen


@question("The private table of nvidia-smi: is it there, how large, and what is nvmlDeviceGetMemoryLimits_v1 in this driver?",
          "whether the process list of nvidia-smi can be answered from it; whether the driver has limits of its own")
def private_nvml():
    nvml, table = Nvml(), ctypes.c_void_p()
    identity = bytes.fromhex("c4fe3e6cc98f6c4ea327ee696e12f7c4")
    seen = {"memory_limits": {n: nvml.has(n) for n in ("nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1")}}
    if nvml.has("nvmlInternalGetExportTable"):
        seen["answer"] = nvml.nvmlInternalGetExportTable(ctypes.byref(table), identity)
        seen["bytes"] = ctypes.cast(table, ctypes.POINTER(ctypes.c_size_t))[0] if table.value and not seen["answer"] else None
    return seen


@question("What nvidia-smi prints: plain, -q, topo -m, nvlink -s, mig -lgip, pmon, dmon", "the simulator's answers in NVIDIA's own words",
          seconds=60, real_only=True)
def nvidia_smi():
    seen = {}
    for arguments in ("", "-q", "topo -m", "nvlink -s", "mig -lgip", "pmon -c 1", "dmon -c 1", "--version"):
        began = time.monotonic()
        done = attempt(lambda: subprocess.run([driver.nvidia_smi(), *arguments.split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                              text=True, errors="replace", timeout=15))
        seen[arguments] = done if isinstance(done, str) else [done.returncode, round(time.monotonic() - began, 2), done.stdout[:28000]]
    return seen


NEWER = ("GpuFabricInfo", "GpuFabricInfoV", "SramEccErrorStatus", "MarginTemperature", "CurrentClockFreqs", "PerformanceModes",
         "AddressingMode", "RepairStatus", "Pdi", "NvLinkInfo", "PlatformInfo", "Capabilities", "C2cModeInfoV", "NvlinkSupportedBwModes",
         "NvlinkBwMode", "DramEncryptionMode", "SramUniqueUncorrectedEccErrorCounts", "CoolerInfo", "PowerMizerMode_v1")


@question("NVML's newer queries of a card and a struct (fabric, SRAM errors, margin temperature, ...): which are answered, with what version?",
          "which of them the simulator should answer for Hopper")
def newer_nvml():
    nvml = Nvml()
    return {name: Call(nvml, name, [("nvmlDevice_t", "device"), ("struct *", "info")], (), {"struct"}).answer()
            for name in (f"nvmlDeviceGet{name}" for name in NEWER)}


class UtilizationSample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("time", ctypes.c_ulonglong)] + [(n, ctypes.c_uint) for n in ("sm", "mem", "enc", "dec")]


@question("Utilisation of processes while one computes: how often is there a sample, how exact, whose PIDs?",
          "whether the driver's figures can correct what a container says of its use of time", of_kernel=True)
def process_utilization():
    nvml, rooms = Nvml(), (UtilizationSample * 100)()
    tenant = tenant_for(1000, paced(2.5))

    def newest():
        count = ctypes.c_uint(100)
        r = nvml.nvmlDeviceGetProcessUtilization(nvml.card, rooms, ctypes.byref(count), ctypes.c_ulonglong(0))
        return [r, sorted((s.time, s.pid, s.sm, s.mem) for s in rooms[:count.value if r == 0 else 0])[-3:]]

    seen = {"pid": tenant.pid, "ms_and_samples": samples(newest, 2, every=0.02)}
    tenant.end()
    return seen


@question("What an event pair measures of an empty interval and of kernels, and what recording costs",
          "the clock that launches are charged by")
def event_clock():
    return start(measures).said()


def measures():
    cuda, seen = Cuda(), {}
    events = [ctypes.c_void_p() for _ in range(2)]
    for event in events:
        cuda.ok.cuEventCreate(ctypes.byref(event), 0)
    took, empty = ctypes.c_float(), []
    for _ in range(100):
        cuda.ok.cuEventRecord(events[0], None)
        cuda.ok.cuEventRecord(events[1], None)
        cuda.ok.cuEventSynchronize(events[1])
        cuda.ok.cuEventElapsedTime(ctypes.byref(took), *events)
        empty.append(round(took.value * 1000, 2))
    began = time.perf_counter_ns()
    for _ in range(1000):
        cuda.cuEventRecord(events[0], None)
    seen["us_between_two_records"] = sorted(empty)[::10]
    seen["ns_to_record"] = (time.perf_counter_ns() - began) / 1000
    say(seen)
