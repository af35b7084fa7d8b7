# SPDX-License-Identifier: Apache-2.0
"""The few Linux calls that Python 3.11 does not offer: namespaces, mounts, cgroup trees."""

import contextlib
import ctypes
import os
import signal
import time

CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 0x1
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18
MS_SHARED = 1 << 20

PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags):
    _check(_libc.unshare(flags), "unshare")


def setns(fd, kind):
    """Moves the calling thread (and only it) into the namespace behind fd."""
    _check(_libc.setns(fd, kind), "setns")


def mount(source, target, fstype="", flags=0, data=""):
    def text(value):
        return value.encode() if value else None
    _check(_libc.mount(text(source), text(target), text(fstype), ctypes.c_ulong(flags), text(data)),
           f"mount {target}")


def die_with_parent():
    _check(_libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")


def start_time(pid):
    """The kernel's start time of a process: with the PID it names the process for ever. None when gone."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[19]
    except OSError:
        return None


@contextlib.contextmanager
def in_netns(pid):
    """The calling thread is in the network namespace of pid for the length of the block."""
    with open(f"/proc/thread-self/ns/net") as home, open(f"/proc/{pid}/ns/net") as away:
        setns(away.fileno(), CLONE_NEWNET)
        try:
            yield
        finally:
            setns(home.fileno(), CLONE_NEWNET)


def _cgroup_mounts():
    """[(mount point, is_v2)] of every cgroup hierarchy."""
    found = []
    with open("/proc/self/mountinfo") as f:
        for line in f:
            left, _, right = line.partition(" - ")
            kind = right.split()[0]
            if kind in ("cgroup", "cgroup2"):
                found.append((left.split()[4], kind == "cgroup2"))
    return found


def _read(path):
    with open(path) as f:
        return f.read().strip()


def _write(path, text):
    with open(path, "w") as f:
        f.write(text)


def _delegate(path):
    """Gives the children of a v2 cgroup every controller that they can have; kubelet insists on four."""
    for controller in _read(os.path.join(path, "cgroup.controllers")).split():
        with contextlib.suppress(OSError):
            _write(os.path.join(path, "cgroup.subtree_control"), "+" + controller)
    missing = {"cpu", "cpuset", "memory", "pids"} - set(_read(os.path.join(path, "cgroup.subtree_control")).split())
    if missing:
        raise OSError(f"{path}: the cgroup controllers {', '.join(sorted(missing))} cannot be given to children "
                      "(in a container, its processes must not be in the root of its cgroup namespace)")


def cgroup_create(name):
    """Makes /NAME in every hierarchy, ready for kubelet's cgroupRoot. Works on v1, v2 and both at once."""
    mounts = _cgroup_mounts()
    only_v2 = all(v2 for _, v2 in mounts)
    for point, v2 in mounts:
        path = os.path.join(point, name)
        if v2 and only_v2:
            _delegate(point)
            os.makedirs(path, exist_ok=True)
            _delegate(path)
            continue
        os.makedirs(path, exist_ok=True)
        # A new v1 cpuset is empty and takes no process until it is given CPUs and memory nodes.
        for entry in ("cpuset.cpus", "cpuset.mems"):
            child = os.path.join(path, entry)
            if not v2 and os.path.exists(child) and not _read(child):
                _write(child, _read(os.path.join(point, entry)))


def _cgroup_pids(path):
    for directory, _, _ in os.walk(path):
        with contextlib.suppress(OSError):
            yield from map(int, _read(os.path.join(directory, "cgroup.procs")).split())


def cgroup_remove(name, timeout=10.0):
    """Kills what is left in /NAME of every hierarchy and removes the trees."""
    deadline = time.monotonic() + timeout
    for point, _ in _cgroup_mounts():
        path = os.path.join(point, name)
        while os.path.isdir(path):
            for pid in _cgroup_pids(path):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            for directory, _, _ in os.walk(path, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(directory)
            if not os.path.isdir(path):
                break
            if time.monotonic() > deadline:
                raise OSError(f"cgroup {path} does not empty")
            time.sleep(0.02)    # the kernel frees a cgroup a moment after its last process
