# SPDX-License-Identifier: Apache-2.0
"""Memory that another process keeps after its creator has ended; and /proc's view of the driver's open files."""

import os
import stat

import pytest
from sim_kit import CONTEXT, GIB, wait_until

WAYS = {"fork": CONTEXT + GIB, "clone": CONTEXT + GIB, "export": GIB}


def nodes(directory):
    """The driver's files: what a device node is to the real driver, by what identifies it."""
    return {(s.st_dev, s.st_ino): path.name for path in directory.iterdir() if path.name.startswith("nvidia")
            and not stat.S_ISREG((s := path.stat()).st_mode)}


def held(pid, directory):
    """The driver's files that a process has open, sorted."""
    known, found = nodes(directory), []
    for fd in os.listdir(f"/proc/{pid}/fd"):
        s = os.stat(f"/proc/{pid}/fd/{fd}")
        found.append(known.get((s.st_dev, s.st_ino)))
    return sorted(name for name in found if name)


def outlive(node, how):
    """The PIDs of the maker, which has ended, and of the process that keeps the memory."""
    p = node.start("outlive", how)
    line = p.stdout.readline()
    assert line, p.stderr.read()
    if how != "export":
        assert p.wait(timeout=10) == 0
    else:
        wait_until(lambda: p.poll() == 0, what="the maker has ended")
    return p, int(line)


def end(p):
    """The keeper's end, by which standard output ends, too."""
    p.communicate(timeout=10)


def processes(nvml):
    return [(p.pid, p.usedGpuMemory)
            for p in nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))]


def used(nvml):
    return nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0)).used


@pytest.mark.parametrize("how", WAYS)
def test_memory_outlives_its_maker(node, nvml, how):
    """It is in use, no process list names any process for it, and it is free when its keeper ends."""
    p, _ = outlive(node, how)
    # A descriptor alone keeps the memory but not the maker's context, which goes a moment after its process.
    wait_until(lambda: used(nvml) == WAYS[how], what="what is kept")
    assert processes(nvml) == []
    end(p)
    wait_until(lambda: used(nvml) == 0, what="memory is free")


def test_a_driver_that_lists_the_dead(node_of, nvml_of, tmp_path):
    machine = tmp_path / "machine"
    machine.write_text("[machine]\ndead-pids = listed\n[gpu 0]\nmodel = A100\n")
    node = node_of("--machine", machine)
    nvml = nvml_of(node)
    p, _ = outlive(node, "fork")
    assert processes(nvml) == [(p.pid, CONTEXT + GIB)]
    end(p)
    wait_until(lambda: processes(nvml) == [], what="nothing is left")


def test_a_driver_that_closes_at_fork(node_of, nvml_of, tmp_path):
    machine = tmp_path / "machine"
    machine.write_text("[machine]\nfork = close\n[gpu 0]\nmodel = A100\n")
    node = node_of("--machine", machine)
    nvml = nvml_of(node)
    _, keeper = outlive(node, "fork")
    wait_until(lambda: used(nvml) == 0, what="memory is free")
    assert held(keeper, node.dir) == []


def test_what_proc_shows(node):
    """A client has the files of nvidiactl and of its cards open; a copy of an exported descriptor is a file of the
    driver; all of it is recognised by device and inode."""
    living, _, _ = node.hold(GIB)
    assert held(living.pid, node.dir) == ["nvidia0", "nvidia1", "nvidiactl"]
    p, keeper = outlive(node, "fork")
    assert held(keeper, node.dir) == ["nvidia0", "nvidia1", "nvidiactl"]
    end(p)
    p, keeper = outlive(node, "clone")
    assert held(keeper, node.dir) == ["nvidia0", "nvidia1", "nvidiactl"]
    end(p)
    p, keeper = outlive(node, "export")
    assert held(keeper, node.dir) == ["nvidiactl.0"]
    assert oct((node.dir / "nvidiactl.0").stat().st_mode) == oct(stat.S_IFIFO | 0o600)
    end(p)
    wait_until(lambda: not (node.dir / "nvidiactl.0").exists(), what="the file is gone")


def test_files_of_a_killed_daemon_are_removed(node_of):
    node = node_of("--gpus", "1")
    outlive(node, "export")
    node.daemon.kill()
    node.daemon.wait()
    assert (node.dir / "nvidiactl.0").exists()
    again = type(node)(node.dir, "--gpus", "1")
    wait_until(lambda: again.run("true").returncode == 0 and not (node.dir / "nvidiactl.0").exists(), what="removed")
    again.close()
