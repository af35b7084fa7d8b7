# SPDX-License-Identifier: Apache-2.0
"""The driver's libraries through ctypes, as the questions need them."""

import ctypes
import os
import shutil
import time

MIB, GIB = 1 << 20, 1 << 30

# What the handles and pointers of CUDA are.
POINTER = ctypes.c_uint64
FD_HANDLE = 1       # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class Refused(Exception):
    """A call that had to succeed did not."""

    def __init__(self, name, result):
        super().__init__(f"{name} answered {result}")
        self.result = result


class Library:
    """Functions by name: lib.name(...) returns what the driver answers, lib.ok.name(...) demands success."""

    class Demanding:
        def __init__(self, library):
            self.library = library

        def __getattr__(self, name):
            function = getattr(self.library, name)

            def call(*arguments):
                result = function(*arguments)
                if result:
                    raise Refused(name, result)

            return call

    def __init__(self, name):
        self.handle = ctypes.CDLL(name)
        self.ok = Library.Demanding(self)

    def __getattr__(self, name):
        return getattr(self.handle, name)

    def has(self, name):
        try:
            getattr(self.handle, name)
        except AttributeError:
            return False
        return True


class Cuda(Library):
    """A process with the primary context of device 0."""

    def __init__(self, context=True):
        super().__init__("libcuda.so.1")
        self.ok.cuInit(0)
        if context:
            self.context = ctypes.c_void_p()
            self.ok.cuDevicePrimaryCtxRetain(ctypes.byref(self.context), 0)
            self.ok.cuCtxSetCurrent(self.context)

    def alloc(self, size):
        pointer = POINTER()
        self.ok.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer

    def free(self, pointer):
        self.ok.cuMemFree_v2(pointer)

    def info(self):
        """(bytes free, bytes in all)"""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.ok.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def attribute(self, number):
        value = ctypes.c_int()
        self.ok.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
        return value.value

    def exportable(self, size):
        """A VMM handle of memory of device 0, and a descriptor of it."""
        handle, fd = ctypes.c_uint64(), ctypes.c_int(-1)
        properties = allocation_properties()
        granularity = ctypes.c_size_t()
        self.ok.cuMemGetAllocationGranularity(ctypes.byref(granularity), ctypes.byref(properties), 0)
        size += -size % granularity.value
        self.ok.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_ulonglong(0))
        self.ok.cuMemExportToShareableHandle(ctypes.byref(fd), handle, FD_HANDLE, ctypes.c_ulonglong(0))
        return handle, fd.value


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class PoolProperties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("max_size", ctypes.c_size_t), ("reserved", ctypes.c_ubyte * 56)]


class AccessDescription(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


DEVICE_0 = (1, 0)


def allocation_properties(handle_types=FD_HANDLE):
    return AllocationProperties(1, handle_types, Location(*DEVICE_0))


def pool_properties(handle_types=FD_HANDLE):
    return PoolProperties(1, handle_types, Location(*DEVICE_0))


class MemoryV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint)] + [(n, ctypes.c_ulonglong) for n in ("total", "reserved", "free", "used")]


class ProcessInfo(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]


class Nvml(Library):
    def __init__(self):
        super().__init__("libnvidia-ml.so.1")
        self.ok.nvmlInit_v2()
        self.card = ctypes.c_void_p()
        self.ok.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.card))

    def text(self, name, *arguments, size=96):
        buffer = ctypes.create_string_buffer(size)
        self.ok.__getattr__(name)(*arguments, buffer, size)
        return buffer.value.decode(errors="replace")

    def memory(self):
        """{total, reserved, free, used} in bytes"""
        memory = MemoryV2(ctypes.sizeof(MemoryV2) | 2 << 24)
        self.ok.nvmlDeviceGetMemoryInfo_v2(self.card, ctypes.byref(memory))
        return {name: getattr(memory, name) for name, _ in MemoryV2._fields_[1:]}

    def used(self):
        return self.memory()["used"]

    def processes(self):
        """{PID: bytes, or None where NVML has no figure}"""
        count, list_of = ctypes.c_uint(64), (ProcessInfo * 64)()
        self.ok.nvmlDeviceGetComputeRunningProcesses_v3(self.card, ctypes.byref(count), list_of)
        return {p.pid: None if p.used == 2**64 - 1 else p.used for p in list_of[:count.value]}


def nvidia_smi():
    """Where the program is; some machines have it beside the driver only."""
    return shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"


def is_up(pid):
    """Whether there is such a process that has not ended, zombies left out."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (OSError, IndexError):
        return False


def driver_files(pid="self"):
    """What of the driver a process has open and mapped: {path: how many}."""
    found = {"open": {}, "mapped": {}}
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                count(found["open"], os.readlink(f"/proc/{pid}/fd/{fd}"))
            except OSError:
                continue
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps:
            for line in maps:
                count(found["mapped"], line.split(maxsplit=5)[-1].strip() if line.count(" ") > 4 else "")
    except OSError as why:
        found["error"] = str(why)
    return found


def count(where, path):
    if path.startswith(("/dev/", "anon_inode:", "/dmabuf")) or "nvidia" in path:
        where[path] = where.get(path, 0) + 1


def paced(seconds):
    """How long to watch or to work: the simulator has none of a card's delays, so a rehearsal takes a tenth."""
    return seconds / 10 if os.environ.get("KIT_SIMULATED") else seconds


def samples(read, seconds, until=None, every=0.005):
    """[[ms, value]] whenever what is read changes, for paced(seconds); ends early when until(value)."""
    begin, found = time.monotonic(), []
    while True:
        value, now = read(), time.monotonic() - begin
        if not found or found[-1][1] != value:
            found.append([round(now * 1000, 1), value])
        if now > paced(seconds) or (until and until(value)):
            return found
        time.sleep(every)
