# SPDX-License-Identifier: Apache-2.0
"""Memory limits of control groups, as drivers from 615 on keep them, with what they do not stop. Needs root and a
hierarchy of control groups of the second version, on which no controller is needed."""

import ctypes
import os
import subprocess
import sys

import pytest
from sim_kit import CONTEXT, GIB, PROGRAMS, TOTAL, wait_until

MIB = 1 << 20
NONE = (1 << 64) - 1
OUT_OF_MEMORY = 2
MEMBER = os.path.join(os.path.dirname(__file__), "group_member.py")


def hierarchy():
    with open("/proc/self/mounts", encoding="ascii") as f:
        mounts = [line.split() for line in f]
    found = [m[1] for m in mounts if m[2] == "cgroup2" and os.access(m[1], os.W_OK)]
    assert found, "no control groups of the second version that can be written to: run as root"
    return found[0]


class Groups:
    """Control groups that go with the test."""

    def __init__(self):
        self.top = f"{hierarchy()}/aliquot-test-{os.getpid()}"
        self.made = []
        self.make("")

    def make(self, name):
        path = os.path.join(self.top, name) if name else self.top
        os.mkdir(path)
        self.made.append(path)
        return path

    def remove(self, path):
        wait_until(lambda: not open(f"{path}/cgroup.procs", encoding="ascii").read(), what="the group is empty")
        os.rmdir(path)
        self.made.remove(path)

    def close(self):
        """Of a test that has failed, programs may be left."""
        with open(f"{self.top}/cgroup.kill", "w", encoding="ascii") as f:
            f.write("1")
        for path in reversed(self.made[:]):
            self.remove(path)


@pytest.fixture
def groups():
    g = Groups()
    yield g
    g.close()


class Member:
    def __init__(self, node, group, *command):
        def enter():
            with open(f"{group}/cgroup.procs", "w", encoding="ascii") as f:
                f.write("0")
        self.process = subprocess.Popen(command or [sys.executable, MEMBER], env=node.env(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=enter)

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        assert answer, f"no answer to {words}"
        return int(answer[0]) if len(answer) == 1 and len(answer[0]) < 64 else answer

    def alloc(self, size):
        return self.ask("alloc", size)

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


class Limits(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("soft", ctypes.c_ulonglong), ("hard", ctypes.c_ulonglong),
                ("used", ctypes.c_ulonglong)]


class Driver:
    def __init__(self, nvml):
        self.device = nvml.nvmlDeviceGetHandleByIndex(0)
        self.lib = ctypes.CDLL("libnvidia-ml.so.1")

    def set(self, group, hard, soft=0):
        return self.lib.nvmlDeviceSetMemoryLimits_v1(self.device, ctypes.byref(Limits(group.encode(), soft, hard)))

    def get(self, group):
        limits = Limits(group.encode())
        r = self.lib.nvmlDeviceGetMemoryLimits_v1(self.device, ctypes.byref(limits))
        return (limits.soft, limits.hard, limits.used) if r == 0 else r


@pytest.fixture
def machine(node_of, nvml_of, tmp_path):
    def make(how="misc", driver="615.71.09"):
        path = tmp_path / "machine"
        limits = f"memory-limits = {how}\n" if how else ""
        path.write_text(f"[machine]\ndriver = {driver}\n{limits}[gpu 0]\nmodel = A100\n")
        node = node_of("--machine", path)
        return node, Driver(nvml_of(node))
    return make


SUCCESS, INVALID, UNSUPPORTED, NOT_FOUND, UNKNOWN = 0, 2, 3, 6, 999


def test_a_limit_holds_from_the_first_context_on(machine, groups):
    node, driver = machine()
    group = groups.make("a")
    assert driver.get(group) == UNSUPPORTED  # it has none
    assert driver.set(group, GIB) == SUCCESS
    m = Member(node, group)
    assert m.ask("context") == 0
    assert driver.get(group) == (0, GIB, CONTEXT)
    assert m.ask("info") == [str(GIB - CONTEXT), str(GIB)]
    assert m.ask("nvml") == [str(GIB), str(CONTEXT), str(GIB - CONTEXT)]
    assert m.alloc(GIB - CONTEXT + 1) == OUT_OF_MEMORY
    assert m.alloc(GIB - CONTEXT) == 0
    assert m.alloc(1) == OUT_OF_MEMORY
    assert m.ask("free") == 0
    second = Member(node, group)
    assert second.ask("context") == 0
    assert second.alloc(GIB - 2 * CONTEXT) == 0
    assert m.alloc(1) == OUT_OF_MEMORY
    other = Member(node, groups.make("b"))  # has no limit
    assert other.ask("context") == 0 and other.alloc(40 * GIB) == 0
    for each in (m, second, other):
        each.end()
    wait_until(lambda: driver.get(group) == (0, GIB, 0), what="all is given back")


def test_what_misc_does_not_hold(machine, groups):
    node, driver = machine()
    group = groups.make("a")
    m = Member(node, group)
    assert m.ask("context") == 0 and m.alloc(4 * GIB) == 0
    assert driver.set(group, GIB) == SUCCESS
    assert driver.get(group) == (0, GIB, 0)  # what was there before never counts
    assert m.alloc(GIB) == 0
    assert m.alloc(1) == OUT_OF_MEMORY
    assert m.ask("managed", 2 * GIB) == 0  # is the system's
    assert driver.set(group, GIB - 1) == UNKNOWN  # below the present use: refused, and nothing changes
    assert driver.get(group) == (0, GIB, GIB)
    assert driver.set(group, 2 * GIB) == SUCCESS
    name = m.ask("export")[0]
    importer = Member(node, groups.make("b"))
    assert driver.set(f"{groups.top}/b", CONTEXT) == SUCCESS
    assert importer.ask("context") == 0
    assert importer.ask("import", name) == 0  # the maker pays
    importer.end()
    m.end()


@pytest.mark.parametrize("how", ["misc", "dmem"])
def test_memory_of_a_client_whose_maker_has_ended_is_not_charged(machine, groups, how):
    node, driver = machine(how)
    group = groups.make("a")
    assert driver.set(group, GIB) == SUCCESS
    m = Member(node, group, PROGRAMS / "sim-orphan", str(20 * GIB))
    assert m.process.stdout.readline() == "0\n"
    m.process.wait()  # a process that has ended and was not waited for is still there
    m.process.stdin.write("\n")
    m.process.stdin.flush()
    assert m.process.stdout.readline() == "0\n"
    assert driver.get(group) == (0, GIB, CONTEXT)
    assert node.show()[1]["memory_used"] == str(20 * GIB + CONTEXT)
    m.end()


def test_the_nearest_limit_counts_alone_with_misc(machine, groups):
    node, driver = machine()
    outer = groups.make("pod")
    inner = groups.make("pod/container")
    assert driver.set(outer, GIB) == SUCCESS
    m = Member(node, inner)
    assert m.ask("context") == 0
    assert m.alloc(GIB) == OUT_OF_MEMORY  # the pod's
    assert driver.get(inner) == (0, GIB, CONTEXT)
    assert driver.set(inner, 4 * GIB) == SUCCESS
    assert m.alloc(4 * GIB) == 0  # its own, although the pod's is less
    m.end()


def test_a_later_group_inherits_with_misc(machine, groups):
    node, driver = machine()
    first = groups.make("a")
    assert driver.set(first, CONTEXT + MIB) == SUCCESS
    groups.remove(first)
    m = Member(node, groups.make("b"))
    assert m.ask("context") == 0
    assert m.alloc(2 * MIB) == OUT_OF_MEMORY
    m.end()
    # One whose limit was taken away before it went leaves nothing.
    assert driver.set(f"{groups.top}/b", NONE) == SUCCESS
    groups.remove(f"{groups.top}/b")
    m = Member(node, groups.make("c"))
    assert m.ask("context") == 0 and m.alloc(TOTAL - CONTEXT) == 0
    m.end()


def test_a_removed_group_is_refused(machine, groups):
    """Its limit could otherwise seem to be taken away, while a later group inherits it."""
    node, driver = machine()
    group = groups.make("a")
    assert driver.set(group, CONTEXT + MIB) == SUCCESS
    directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY)
    groups.remove(group)
    assert driver.set(f"/proc/self/fd/{directory}", NONE) == INVALID
    assert driver.get(f"/proc/self/fd/{directory}") == INVALID
    os.close(directory)
    m = Member(node, groups.make("b"))
    assert m.ask("context") == 0 and m.alloc(2 * MIB) == OUT_OF_MEMORY
    m.end()


def test_dmem_is_the_kernels(machine, groups):
    node, driver = machine("dmem")
    outer = groups.make("pod")
    inner = groups.make("pod/container")
    m = Member(node, inner)
    assert m.ask("context") == 0 and m.alloc(GIB) == 0
    assert driver.get(inner) == (0, NONE, GIB + CONTEXT)  # counted from the beginning
    assert driver.set(inner, MIB) == SUCCESS  # any limit is taken
    assert m.alloc(1) == OUT_OF_MEMORY
    assert driver.set(inner, 10 * GIB) == SUCCESS
    assert driver.set(outer, 2 * GIB) == SUCCESS
    assert m.alloc(GIB) == OUT_OF_MEMORY  # every ancestor's counts
    assert driver.set(inner, 10 * GIB, soft=GIB) == SUCCESS
    assert driver.get(outer)[0] == GIB  # and has it reserved
    m.end()
    groups.remove(inner)
    assert driver.get(outer)[0] == GIB  # the reservation stays, where it was not taken back


def test_questions_that_are_refused(machine, groups, tmp_path):
    _, driver = machine()
    group = groups.make("a")
    assert driver.set(f"{group}/none", GIB) == NOT_FOUND
    assert driver.set(str(tmp_path), GIB) == INVALID
    assert driver.set(group, GIB, soft=2 * GIB) == INVALID
    assert driver.set(hierarchy(), GIB) == UNSUPPORTED  # the root


@pytest.mark.parametrize(("how", "driver"), [("off", "615.71.09"), (None, "610.43.02")])
def test_drivers_without_limits(machine, groups, how, driver):
    node, asked = machine(how, driver)
    group = groups.make("a")
    assert asked.set(group, GIB) == UNSUPPORTED and asked.get(group) == UNSUPPORTED
    m = Member(node, group)
    assert m.ask("context") == 0 and m.alloc(70 * GIB) == 0
    m.end()


def test_an_older_driver_cannot_be_told_to(node_of, tmp_path):
    path = tmp_path / "machine"
    path.write_text("[machine]\ndriver = 580.1.1\nmemory-limits = misc\n[gpu 0]\nmodel = A100\n")
    node = node_of("--machine", path)
    node.daemon.wait(timeout=10)
    assert "memory limits need driver 615" in node.daemon.stderr.read()
