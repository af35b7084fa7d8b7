# SPDX-License-Identifier: Apache-2.0
"""Questions on the life of memory: descriptors, fork, process lists, what is left when its maker has ended."""

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time

from asking import HERE, Actor, attempt, question, say, start, tenant_for, wait
from driver import (MIB, GIB, DEVICE_0, FD_HANDLE, POINTER, AccessDescription, Cuda, Location, Nvml, driver_files, is_up,
                    paced, pool_properties, samples)

SIZE = 512 * MIB
CHILD_LIFE = 30     # seconds, if nothing ends it earlier
SETTLE = 3.0        # seconds that memory gets to come back
HOLDER = HERE.parents[2] / "build" / "tests" / "gpu" / "kit" / "holder"


# -- actors ---------------------------------------------------------------------------------------------------------------

def holds(size):
    cuda = Cuda()
    cuda.alloc(int(size))
    say({"pid": os.getpid()})
    wait()


def forks(size):
    """A child of fork that never touches CUDA; the parent ends when told."""
    cuda = Cuda()
    cuda.alloc(int(size))
    child = os.fork()
    if child == 0:
        time.sleep(CHILD_LIFE)
        os._exit(0)
    say({"parent": os.getpid(), "child": child})
    wait()
    os._exit(0)


def forks_and_asks():
    cuda = Cuda()
    pointer = cuda.alloc(MIB)
    read, write = os.pipe()
    if os.fork() == 0:
        free, total, n = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_int()
        os.write(write, repr({
            "cuInit": cuda.cuInit(0), "cuDeviceGetCount": cuda.cuDeviceGetCount(ctypes.byref(n)),
            "cuMemGetInfo": cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
            "cuMemAlloc": cuda.cuMemAlloc_v2(ctypes.byref(POINTER()), ctypes.c_size_t(MIB)),
            "cuCtxSynchronize": cuda.cuCtxSynchronize(), "cuMemFree": cuda.cuMemFree_v2(pointer),
            "files": driver_files()}).encode())
        os._exit(0)
    os.close(write)
    said = b"".join(iter(lambda: os.read(read, 65536), b""))
    os.wait()
    say({"child": said.decode(), "parent": {"cuMemFree": cuda.cuMemFree_v2(pointer), "files": driver_files()}})


def exports(fd_of_socket, size):
    cuda = Cuda()
    _, fd = cuda.exportable(int(size))
    link, info = os.readlink(f"/proc/self/fd/{fd}"), read_text(f"/proc/self/fdinfo/{fd}")
    with socket.socket(fileno=int(fd_of_socket)) as channel:
        socket.send_fds(channel, [b"x"], [fd])
    say({"pid": os.getpid(), "link": link, "fdinfo": info})
    wait()


def exports_pool(fd_of_socket, size):
    cuda = Cuda()
    pool, fd, pointer = ctypes.c_void_p(), ctypes.c_int(-1), POINTER()
    cuda.ok.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(pool_properties()))
    cuda.ok.cuMemAllocFromPoolAsync(ctypes.byref(pointer), ctypes.c_size_t(int(size)), pool, None)
    cuda.ok.cuCtxSynchronize()
    cuda.ok.cuMemPoolExportToShareableHandle(ctypes.byref(fd), pool, FD_HANDLE, ctypes.c_ulonglong(0))
    with socket.socket(fileno=int(fd_of_socket)) as channel:
        socket.send_fds(channel, [b"x"], [fd.value])
    say({"pid": os.getpid(), "link": os.readlink(f"/proc/self/fd/{fd.value}")})
    wait()


def exports_dmabuf(fd_of_socket, size):
    """A dma-buf of memory from cuMemAlloc."""
    cuda = Cuda()
    pointer, fd = cuda.alloc(int(size)), ctypes.c_int(-1)
    cuda.ok.cuMemGetHandleForAddressRange(ctypes.byref(fd), pointer, ctypes.c_size_t(int(size)), 1, ctypes.c_ulonglong(0))
    with socket.socket(fileno=int(fd_of_socket)) as channel:
        socket.send_fds(channel, [b"x"], [fd.value])
    say({"pid": os.getpid(), "link": os.readlink(f"/proc/self/fd/{fd.value}")})
    wait()


def keeps(fd_of_socket):
    """Receives a descriptor and keeps it; never uses CUDA."""
    with socket.socket(fileno=int(fd_of_socket)) as channel:
        _, fds, _, _ = socket.recv_fds(channel, 1, 4)
    say({"pid": os.getpid(), "links": [os.readlink(f"/proc/self/fd/{fd}") for fd in fds], "files": driver_files()})
    wait()


def imports(fd_of_socket, size):
    """Receives a descriptor, imports and maps it."""
    cuda = Cuda()
    say({"pid": os.getpid()})
    with socket.socket(fileno=int(fd_of_socket)) as channel:
        _, fds, _, _ = socket.recv_fds(channel, 1, 4)
    handle, address = ctypes.c_uint64(), POINTER()
    cuda.ok.cuMemImportFromShareableHandle(ctypes.byref(handle), ctypes.c_void_p(fds[0]), FD_HANDLE)
    os.close(fds[0])
    cuda.ok.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(int(size)), ctypes.c_size_t(0), POINTER(0),
                                ctypes.c_ulonglong(0))
    cuda.ok.cuMemMap(address, ctypes.c_size_t(int(size)), ctypes.c_size_t(0), handle, ctypes.c_ulonglong(0))
    access = AccessDescription(Location(*DEVICE_0), 3)
    cuda.ok.cuMemSetAccess(address, ctypes.c_size_t(int(size)), ctypes.byref(access), ctypes.c_size_t(1))
    say({"mapped": True})
    wait()


class IpcHandle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 64)]


def shares_by_ipc(size):
    cuda = Cuda()
    handle = IpcHandle()
    cuda.ok.cuIpcGetMemHandle(ctypes.byref(handle), cuda.alloc(int(size)))
    say({"pid": os.getpid(), "handle": bytes(handle.bytes).hex()})
    wait()


def opens_by_ipc(handle):
    cuda = Cuda()
    pointer = POINTER()
    cuda.ok.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), IpcHandle((ctypes.c_ubyte * 64)(*bytes.fromhex(handle))),
                                  ctypes.c_uint(1))
    say({"pid": os.getpid()})
    wait()


def uses(step):
    """Goes as far as that with the driver."""
    if step == "nvml":
        Nvml()
    elif step == "cuInit":
        Cuda(context=False)
    else:
        Cuda().alloc(64 * MIB)
    say({"pid": os.getpid(), "files": driver_files()})
    wait()


def lists():
    """What NVML lists, seen from here."""
    nvml = Nvml()
    say({"pid": os.getpid(), "processes": nvml.processes(), "used": nvml.used(), "namespace": os.readlink("/proc/self/ns/pid")})


# -- helpers --------------------------------------------------------------------------------------------------------------

def read_text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError as why:
        return str(why)


def look(nvml):
    return {"used": nvml.used(), "processes": nvml.processes()}


def back(nvml, before, seconds=SETTLE):
    """How the used memory comes down: [[ms, bytes above what it was]]."""
    return samples(lambda: nvml.used() - before, seconds, until=lambda above: above < 32 * MIB)


def held_by_descriptor(exporter):
    """What stays when the maker has ended and a process without CUDA keeps the descriptor."""
    nvml = Nvml()
    before = look(nvml)
    here, there = socket.socketpair()
    keeper = start(keeps, there.fileno(), pass_fds=[there.fileno()])
    maker = start(exporter, here.fileno(), SIZE, pass_fds=[here.fileno()])
    here.close(), there.close()
    seen = {"before": before, "maker": maker.said(), "keeper": keeper.said(), "both": look(nvml)}
    maker.end()
    seen["maker_ended"] = {"ms_and_bytes_above": samples(lambda: nvml.used() - before["used"], 1.5), **look(nvml)}
    keeper.end()
    seen["keeper_ended"] = {"ms_and_bytes_above": back(nvml, before["used"]), **look(nvml)}
    return seen


def run_holder(how):
    """A holder of holder.c, whose first process or thread ends by itself."""
    nvml = Nvml()
    before = look(nvml)
    holder = Actor(str(HOLDER), how, str(SIZE))
    pid = int(holder.line() or -1)
    seen = {"before": before, "first": holder.pid, "holder": pid, "at_once": look(nvml)}
    time.sleep(paced(1))
    seen["after_1s"] = {**look(nvml), "files": driver_files(pid), "first_is_up": is_up(holder.pid),
                        "holder_is_up": is_up(pid), "status": read_text(f"/proc/{pid}/status")[:400]}
    holder.process.stdin.close()
    seen["alloc_info_free"] = holder.line()
    seen["ended"] = {"ms_and_bytes_above": back(nvml, before["used"]), **look(nvml)}
    return seen


# -- questions ------------------------------------------------------------------------------------------------------------

@question("Memory whose maker has ended, while a child that it forked lives and never uses CUDA: does it stay? Which PID is listed?",
          "stays: the ledger's slot lives as long as any process keeps the driver's descriptors, and the simulator keeps memory "
          "at fork; gone: the simulator's old behaviour was right", of_kernel=True)
def fork_keeps_memory():
    nvml = Nvml()
    before = look(nvml)
    actor = start(forks, SIZE)
    said = actor.said()
    seen = {"before": before, "said": said, "both": look(nvml), "child_files": driver_files(said["child"])}
    actor.end()
    seen["parent_ended"] = {"ms_and_bytes_above": samples(lambda: nvml.used() - before["used"], 1.5), **look(nvml),
                            "child_is_up": is_up(said["child"]), "child_files": driver_files(said["child"])}
    os.kill(said["child"], signal.SIGKILL)
    seen["child_ended"] = {"ms_and_bytes_above": back(nvml, before["used"]), **look(nvml)}
    return seen


@question("VMM memory exported by descriptor, its maker ended, the descriptor kept by a process without CUDA: does it stay, which PID is listed?",
          "stays: exported memory remains booked until the driver's figures show it back; listed nowhere: it is found by the card's "
          "remainder only", of_kernel=True)
def descriptor_keeps_memory():
    return held_by_descriptor(exports)


@question("The second process of CLONE_VM|CLONE_FILES, the first ended: does memory stay, under which PID, does the driver go on?",
          "a PID that is gone is listed: such a PID at two polls is charged to the container that holds the nodes", of_kernel=True)
def ghost_keeps_memory():
    return run_holder("ghost")


@question("A process whose first thread has ended: is it listed, with its memory?",
          "not listed: its memory is unattributed and found by open nodes; listed: found by its PID", of_kernel=True)
def leaderless_is_listed():
    return run_holder("leaderless")


@question("A child of the fork system call (without libc's handlers), its parent ended: does memory stay?",
          "as with fork(): no handler of the driver matters", of_kernel=True)
def rawfork_keeps_memory():
    return run_holder("rawfork")


@question("What do calls answer in a forked child, and which nodes of the driver does it have open and mapped?",
          "mapped in the child: a scan of maps finds it; only open: a scan of descriptors is needed", of_kernel=True)
def fork_child_calls():
    return start(forks_and_asks).said()


@question("Which nodes does a process have open and mapped after nvmlInit, cuInit, a context?",
          "the list of nodes that an investigation looks for; NVML readers must not be candidates", of_kernel=True)
def nodes_of_a_process():
    seen = {}
    for step in ("nvml", "cuInit", "context"):
        actor = start(uses, step)
        seen[step] = actor.said()
        seen[step]["from_outside"] = driver_files(actor.pid)
        actor.end()
    return seen


@question("The card's used memory minus all that is attributed, idle and with 1, 2 and 4 holders: how large, how noisy?",
          "the bound of 64 MiB for unattributed memory, or a larger one for this model", of_kernel=True, seconds=40)
def remainder():
    nvml, seen, holders = Nvml(), [], []

    def rest():
        listed = nvml.processes()
        return nvml.used() - sum(v or 0 for v in listed.values())

    for holders_wanted in (0, 1, 2, 4):
        while len(holders) < holders_wanted:
            holders.append(start(holds, 256 * MIB))
            holders[-1].said()
        time.sleep(paced(0.3))
        seen.append({"holders": holders_wanted, "memory": nvml.memory(), "processes": nvml.processes(),
                     "ms_and_remainder": samples(rest, 1.5, every=0.02)})
    for holder in holders:
        holder.end()
    return seen


@question("A holder of 1 GiB is killed: when does its PID end, when is the memory back, what is listed between?",
          "memory back later than the end: the credit at death must wait or tell; the bound of 50 ms in the docs", of_kernel=True)
def release_after_kill():
    nvml, seen = Nvml(), []
    for _ in range(3):
        before = nvml.used()
        actor = start(holds, GIB)
        actor.said()
        begin = time.monotonic()
        actor.process.kill()
        actor.process.wait()
        ended = time.monotonic() - begin
        seen.append({"ended_ms": round(ended * 1000, 1), "listed": nvml.processes(), "ms_and_bytes_above": back(nvml, before)})
    return seen


@question("Memory imported from a descriptor and mapped, its maker ended: which PID has it, before and after?",
          "counted for both: sums of processes exceed the card's used memory, and the remainder is negative", of_kernel=True)
def importer_is_charged():
    nvml = Nvml()
    before = look(nvml)
    here, there = socket.socketpair()
    importer = start(imports, there.fileno(), SIZE, pass_fds=[there.fileno()])
    seen = {"before": before, "importer": importer.said(), "importer_alone": look(nvml)}
    maker = start(exports, here.fileno(), SIZE, pass_fds=[here.fileno()])
    here.close(), there.close()
    seen.update(maker=maker.said(), mapped=importer.said(), both=look(nvml))
    maker.end()
    time.sleep(paced(0.5))
    seen["maker_ended"] = look(nvml)
    importer.end()
    seen["importer_ended"] = back(nvml, before["used"])
    return seen


@question("Memory opened by IPC handle, its maker ended: does it stay, and for which process is it counted?",
          "stays: exported memory remains booked after its maker's death", of_kernel=True)
def ipc_keeps_memory():
    nvml = Nvml()
    before = look(nvml)
    maker = start(shares_by_ipc, SIZE)
    seen = {"before": before, "maker": maker.said()}
    opener = start(opens_by_ipc, seen["maker"].pop("handle"))
    seen.update(opener=attempt(opener.said), both=look(nvml))
    maker.end()
    time.sleep(paced(0.5))
    seen["maker_ended"] = look(nvml)
    opener.end()
    seen["opener_ended"] = back(nvml, before["used"])
    return seen


@question("A pool exported by descriptor, its maker ended, the descriptor kept by a process without CUDA: does its memory stay?",
          "stays: pool descriptors are treated as those of VMM memory", of_kernel=True)
def pool_descriptor_keeps_memory():
    return held_by_descriptor(exports_pool)


@question("A dma-buf of linear memory, its maker ended, the descriptor kept by a process without CUDA: does its memory stay?",
          "stays: dma-buf descriptors are looked for, too, and linear memory can be hoarded", of_kernel=True)
def dmabuf_keeps_memory():
    return held_by_descriptor(exports_dmabuf)


@question("Does a descriptor of the driver survive exec in a holder's child?",
          "closed at exec: only forked children without exec keep memory", of_kernel=True)
def descriptors_at_exec():
    return start(execs).said()


def execs():
    Cuda().alloc(64 * MIB)
    done = subprocess.run([sys.executable, "-c", "import os, json; print(json.dumps([os.readlink('/proc/self/fd/' + f) for f in "
                           "os.listdir('/proc/self/fd') if os.path.islink('/proc/self/fd/' + f)]))"],
                          stdout=subprocess.PIPE, text=True, check=True, close_fds=False)
    say({"open_before": driver_files()["open"], "open_after_exec": done.stdout.strip()})


@question("In a PID namespace of its own: which PIDs does NVML list, and are those of other namespaces left out?",
          "translated by the driver: the agent asks from the host's namespace; not translated: PIDs are the host's", of_kernel=True)
def processes_in_a_namespace():
    holder = start(holds, 64 * MIB)
    holder.said()
    command = [sys.executable, str(HERE / "asking.py"), "actor", __name__, "lists"]
    outside = start(lists).said()
    inside = Actor("unshare", "--pid", "--fork", "--mount-proc", *command)
    seen = {"holder": holder.pid, "outside": outside, "inside": attempt(inside.said)}
    holder.end()
    return seen


@question("A maker is killed while a kernel of some seconds runs: how long until its memory is back?",
          "longer than the kernel: the bound for memory to come back is the longest kernel", of_kernel=True)
def release_while_computing():
    nvml = Nvml()
    before = nvml.used()
    actor = tenant_for(2_000_000, 1)
    time.sleep(paced(0.7))
    begin = time.monotonic()
    actor.process.kill()
    actor.process.wait()
    return {"ended_ms": round((time.monotonic() - begin) * 1000, 1), "ms_and_bytes_above": back(nvml, before, 8)}
