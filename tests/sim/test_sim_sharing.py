# SPDX-License-Identifier: Apache-2.0
"""Several processes on one simulated card."""

import os
import subprocess

import pytest
from sim_kit import CONTEXT, GIB, PROGRAMS, TOTAL, wait_until


def used(nvml, index=0):
    return nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(index)).used


def test_two_processes_to_the_last_byte(node):
    a, result, free = node.hold(50 * GIB)
    assert (result, free) == (0, TOTAL - CONTEXT - 50 * GIB)
    rest = TOTAL - 2 * CONTEXT - 50 * GIB
    _, result, free = node.hold(rest + 1)
    assert (result, free) == (2, rest)
    node.children[-1].communicate()  # it ends; what its context took is free again
    b, result, free = node.hold(rest)
    assert (result, free) == (0, 0)
    for p in (a, b):
        p.communicate()
        assert p.returncode == 0
    c, result, _ = node.hold("free")
    assert result == 0
    _, result, free = node.hold(TOTAL - CONTEXT, 1)  # the other card is another card
    assert (result, free) == (0, 0)
    c.communicate()


def test_a_full_card_has_no_room_for_a_context(node):
    node.hold("free")
    p = node.start("hold", 1)
    p.communicate()
    assert p.returncode != 0
    _, result, _ = node.hold(1, 1)
    assert result == 0


def test_kill_releases_at_once(node, nvml):
    took = []
    for _ in range(5):
        p, result, _ = node.hold("free")
        assert result == 0 and used(nvml) == TOTAL
        p.kill()
        took.append(wait_until(lambda: used(nvml) == 0, what="memory is free"))
        p.wait()
    assert sorted(took)[2] < 0.1 and max(took) < 1, took  # the machine may be busy


def test_time_is_shared(node):
    """A kernel of 10 s in one process does not keep another from its half of the card."""
    long = node.start("spin", 10_000_000_000, 1)
    short = [node.start("spin", 1_000_000, 200) for _ in range(2)]
    for p in [long, *short]:
        p.stdout.readline()
    begin_alone = short[0]
    begin_alone.stdin.write("\n")
    begin_alone.stdin.flush()
    wall, events = map(float, begin_alone.stdout.readline().split())
    assert 200 <= events < 300  # alone on the card
    long.stdin.write("\n")
    long.stdin.flush()
    short[1].stdin.write("\n")
    short[1].stdin.flush()
    wall, events = map(float, short[1].stdout.readline().split())
    assert 380 <= events < 550, events  # half of the card
    assert wall < 1000


def test_spin_takes_its_time(node):
    p = node.start("spin", 5_000_000, 20)
    out, err = p.communicate("\n")
    assert p.returncode == 0, err
    wall, events = map(float, out.splitlines()[1].split())
    assert 100 <= events < 150 and 100 <= wall < 300


def test_many_processes_share_fairly(node_of):
    node = node_of("--machine", "stepped")
    processes = [node.start("spin", 3_000_000, 20) for _ in range(5)]
    for p in processes:
        p.stdout.readline()
        p.stdin.write("\n")
        p.stdin.flush()

    def shown(key):
        return {int(x["process"]): int(x[key]) for x in node.show() if "process" in x}

    wait_until(lambda: len(q := shown("queued")) == 5 and min(q.values()) >= 20, what="all is submitted")
    node.inject("advance", "150ms")
    busy = shown("busy_ns")
    assert len(busy) == 5 and sum(busy.values()) == 150_000_000
    assert all(28_000_000 <= b <= 32_000_000 for b in busy.values()), busy
    node.inject("advance", "1s")
    times = [float(p.stdout.readline().split()[1]) for p in processes]
    assert max(times) >= 299 and min(times) > 250, times


def test_utilisation_follows_the_work(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    idle = nvml.nvmlDeviceGetPowerUsage(gpu)
    busy = node.start("spin", 3_000_000_000, 1)
    other, _, _ = node.hold(GIB)
    pid = int(busy.stdout.readline())
    assert nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 0
    busy.stdin.write("\n")
    busy.stdin.flush()
    wait_until(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu >= 99, what="busy")
    assert nvml.nvmlDeviceGetPowerUsage(gpu) > 3 * idle
    samples = {s.pid: s.smUtil for s in nvml.nvmlDeviceGetProcessUtilization(gpu, 0)}
    assert samples[pid] >= 99 and samples[other.pid] == 0
    assert nvml.nvmlDeviceGetUtilizationRates(nvml.nvmlDeviceGetHandleByIndex(1)).gpu == 0
    busy.kill()
    wait_until(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 0, what="idle")


def test_the_load_of_processes_on_blackwell(machine_of):
    """The older of NVML's two functions has no samples of these cards."""
    node, nvml = machine_of("[machine]\ndriver = 580.159.03\n[gpu 0]\nmodel = RTXPRO6000\n")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetCudaComputeCapability(gpu) == (12, 0)
    assert nvml.nvmlDeviceGetArchitecture(gpu) == nvml.NVML_DEVICE_ARCH_BLACKWELL
    busy = node.start("spin", 60_000_000_000, 1)
    pid = int(busy.stdout.readline())
    busy.stdin.write("\n")
    busy.stdin.flush()
    wait_until(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu >= 99, what="busy")
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    assert {s.pid: s.smUtil for s in nvml.nvmlDeviceGetProcessesUtilizationInfo(gpu, 0)} == {pid: 100}


def test_fork(node, nvml):
    p = node.start("forked")
    line = p.stdout.readline()
    assert line, p.stderr.read()
    assert p.wait(timeout=10) == 0
    # The child lives, and with the driver's descriptors that it inherited the parent's memory does.
    os.kill(int(line), 0)
    assert used(nvml) == CONTEXT + GIB
    p.communicate(timeout=10)
    wait_until(lambda: used(nvml) == 0, what="memory is free")


@pytest.mark.parametrize("hard", [True, False])
def test_daemon_goes_away(node, hard):
    """A process that waits for the GPU gets an error; no process hangs or crashes."""
    waiting = node.start("spin", 60_000_000_000, 1)
    waiting.stdout.readline()
    holding, _, _ = node.hold(GIB)
    waiting.stdin.write("\n")
    waiting.stdin.flush()
    if hard:
        node.daemon.kill()
    else:
        node.daemon.terminate()
    node.daemon.wait()
    _, err = waiting.communicate(timeout=5)
    assert waiting.returncode == 1 and "is 46" in err
    _, err = holding.communicate(timeout=5)
    assert holding.returncode == 1 and "is 46" in err


def test_visible_devices(node, nvml):
    uuids = [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(2)]

    def takes(visible, device=0):
        """On which card memory is taken; None if the device is not there."""
        p = node.start("hold", GIB, device, CUDA_VISIBLE_DEVICES=visible)
        line = p.stdout.readline()
        which = [i for i in range(2) if used(nvml, i)] if line else None
        p.communicate()
        wait_until(lambda: used(nvml, 0) + used(nvml, 1) == 0, what="free again")
        return which

    assert takes("0,1", 1) == [1]
    assert takes("1,0", 1) == [0]
    assert takes("1") == [1]
    assert takes("1", 1) is None
    assert takes(uuids[1]) == [1]
    assert takes(uuids[1][:12]) == [1]
    assert takes("") is None
    assert takes("-1") is None
    assert takes("0,7,1", 1) is None  # the list ends at what is not there
    assert takes("0,0") is None


def test_in_a_container(node):
    """Another PID and mount namespace, with one card's device node only."""
    node.hold(3 * GIB, 1)  # a process outside, on the same card
    script = """
set -e
mkdir -p $1/in
touch $1/in/nvidiactl $1/in/nvidia1
mount --bind $1/nvidiactl $1/in/nvidiactl
mount --bind $1/nvidia1 $1/in/nvidia1
mount -t proc proc /proc
export ALIQUOT_SIM_DIR=$1/in
"$2" "$3"
"""
    reader = os.path.join(os.path.dirname(__file__), "container_reader.py")
    unshare = ["unshare", "--pid", "--mount", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        unshare.append("--map-root-user")
    r = subprocess.run([*unshare, "sh", "-c", script, "sh", node.dir, "/usr/bin/python3", reader],
                       env=node.env(), capture_output=True, text=True, timeout=30, check=False)
    assert r.returncode == 0, r.stderr
    facts = dict(line.split("=", 1) for line in r.stdout.splitlines())
    assert facts["devices"] == facts["nvml_devices"] == "1"
    assert facts["minor"] == "1" and facts["index"] == "0"
    assert int(facts["used"]) == 2 * CONTEXT + 4 * GIB  # all of the card
    assert facts["processes"] == f"[({facts['pid']}, {CONTEXT + GIB})]"  # only what it can name


def test_host_sees_pids_of_containers(node, nvml):
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    unshare = ["unshare", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        unshare.append("--map-root-user")
    p = subprocess.Popen([*unshare, PROGRAMS / "sim-hold", str(GIB)], env=node.env(),
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    node.children.append(p)
    assert p.stdout.readline().split()[2] == "1"  # its own view of its PID
    [process] = nvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert process.usedGpuMemory == CONTEXT + GIB
    assert os.readlink(f"/proc/{process.pid}/exe").endswith("sim-hold")
