# SPDX-License-Identifier: Apache-2.0
"""Machine files: what they describe is what programs see."""

import subprocess

import pytest
from sim_kit import ALIQUOT, GIB, TOP, wait_until

MACHINES = sorted(p.stem for p in (TOP / "src/sim/machines").glob("*.machine"))


def sim(*args):
    return subprocess.run([ALIQUOT, "sim", *map(str, args)], capture_output=True, text=True, timeout=60,
                          check=False)


@pytest.mark.parametrize("name", MACHINES)
def test_samples_work_and_are_listed(name):
    assert f" {name}" in sim("--help").stdout
    r = sim("--machine", name, "--", ALIQUOT, "sim", "show")
    assert r.returncode == 0, r.stderr
    assert r.stdout.count("state=healthy") >= 1


def test_mistakes_are_told(tmp_path):
    wrong = tmp_path / "wrong.machine"
    wrong.write_text("[gpu 0]\nmodel = T5\n")
    r = sim("--machine", wrong, "--", "true")
    assert r.returncode == 2
    assert r.stderr == f"aliquot sim: {wrong}:2: no model 'T5'; `aliquot sim --help` lists them\n"
    r = sim("--machine", "no-such", "--", "true")
    assert r.returncode == 2 and "dgx-a100" in r.stderr
    r = sim("--machine", tmp_path / "nothing", "--", "true")
    assert r.returncode == 2 and "nothing" in r.stderr
    r = sim("--machine", "t4", "--gpus", "2", "--", "true")
    assert r.returncode == 2 and "--gpus" in r.stderr
    (tmp_path / "large").write_bytes(b"#" * 300_000)
    assert sim("--machine", tmp_path / "large", "--", "true").returncode == 2


def test_as_many_cards_as_there_can_be(node_of, nvml_of):
    nvml = nvml_of(node_of("--gpus", "64"))
    places = [nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(64)]
    assert len({p.busId for p in places}) == 64
    assert all(p.bus < 256 and p.device < 32 for p in places)


def test_a_described_machine(machine_of):
    _, nvml = machine_of("""
[machine]
driver = 580.65.06
numa = 2
cpus-per-node = 8
[gpu 0-1]
model = A100
memory = 20Gi
[gpu 1]
uuid = GPU-01234567-89ab-cdef-0123-456789abcdef
serial = 4711
pci = 0001:3b:00.0
numa = 1
[gpu 2]
model = L4
""")
    assert nvml.nvmlSystemGetDriverVersion() == "580.65.06"
    assert nvml.nvmlSystemGetNVMLVersion() == "13.580.65.06"
    assert nvml.nvmlSystemGetCudaDriverVersion() == 13000
    assert nvml.nvmlDeviceGetCount() == 3
    one = nvml.nvmlDeviceGetHandleByUUID("GPU-01234567-89ab-cdef-0123-456789abcdef")
    assert nvml.nvmlDeviceGetIndex(one) == 1
    assert nvml.nvmlDeviceGetSerial(one) == "4711"
    assert nvml.nvmlDeviceGetPciInfo(one).busId == "00000001:3B:00.0"
    assert nvml.nvmlDeviceGetMemoryInfo(one).total == 20 * GIB
    assert nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(2)) == "NVIDIA L4"


def test_pids_of_the_host(machine_of):
    """Before 545 the driver names processes by the host's PIDs, in every namespace."""
    node, nvml = machine_of("[machine]\ndriver = 535.161.08\n[gpu 0]\nmodel = T4\n")
    p, _, _ = node.hold(GIB)
    script = ("import ctypes, sys; l = ctypes.CDLL('libnvidia-ml.so.1'); l.nvmlInit_v2();"
              "h = ctypes.c_void_p(); l.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(h));"
              "n = ctypes.c_uint(8); a = (ctypes.c_ulonglong * 24)();"
              "assert l.nvmlDeviceGetComputeRunningProcesses_v3(h, ctypes.byref(n), a) == 0;"
              "print([a[i * 3] & 0xffffffff for i in range(n.value)])")
    unshare = ["unshare", "--map-root-user", "--pid", "--mount-proc", "--fork", "--kill-child"]
    r = node.run(*unshare, "/usr/bin/python3", "-c", script)
    assert r.stdout == f"[{p.pid}]\n", r.stderr
    assert [x.pid for x in nvml.nvmlDeviceGetComputeRunningProcesses(
        nvml.nvmlDeviceGetHandleByIndex(0))] == [p.pid]


def test_utilisation_changes_once_a_period(machine_of):
    node, nvml = machine_of("[machine]\nsample = 300ms\n[gpu 0]\nmodel = T4\n")
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    busy = node.start("spin", 60_000_000_000, 1)
    pid = int(busy.stdout.readline())
    busy.stdin.write("\n")
    busy.stdin.flush()
    wait_until(lambda: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 100, what="busy")
    seen, stamps = [], set()
    while len(stamps) < 4:
        [sample] = nvml.nvmlDeviceGetProcessUtilization(gpu, 0)
        assert sample.pid == pid and sample.smUtil == 100
        # The stamp is made of two clocks, read one after the other.
        stamps.add(round(sample.timeStamp / 100_000))
        seen.append(sample.timeStamp)
    steps = sorted(stamps)
    assert all(b - a == 3 for a, b in zip(steps, steps[1:])), steps
    kind, samples = nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_GPU_UTILIZATION_SAMPLES, 0)
    times = [s.timeStamp for s in samples]
    assert times == sorted(times) and samples[-1].sampleValue.uiVal == 100
    assert all(290_000 <= b - a <= 310_000 for a, b in zip(times, times[1:]))
    _, newer = nvml.nvmlDeviceGetSamples(gpu, nvml.NVML_GPU_UTILIZATION_SAMPLES, times[-3] + 1000)
    assert len(newer) <= 3


def test_context_switches_cost(machine_of):
    node, _ = machine_of("[machine]\nslice = 2ms\ncontext-switch = 1ms\n[gpu 0]\nmodel = T4\n")
    both = [node.start("spin", 50_000_000, 2) for _ in range(2)]
    for p in both:
        p.stdout.readline()
    for p in both:
        p.stdin.write("\n")
        p.stdin.flush()
    for p in both:
        assert p.stdout.readline()
    [gpu] = [x for x in node.show() if "gpu" in x and "process" not in x]
    work, switching = 200_000_000, int(gpu["switching_ns"])
    assert int(gpu["busy_ns"]) == work + switching
    assert 40_000_000 < switching <= 101_000_000  # a third, less where they did not overlap


def test_time_that_stands_still(node_of):
    """The same in every run: two processes, 30 ms and 50 ms of work, slices of 2 ms."""
    node = node_of("--machine", "stepped")
    short, long = node.start("spin", 10_000_000, 3), node.start("spin", 50_000_000, 1)
    for p in (short, long):
        p.stdout.readline()
        p.stdin.write("\n")
        p.stdin.flush()

    def card():
        [gpu] = [x for x in node.show() if "gpu" in x and "process" not in x]
        return gpu

    def busy():
        return {int(x["process"]): int(x["busy_ns"]) for x in node.show() if "process" in x}

    wait_until(lambda: sum(int(x["queued"]) for x in node.show() if "process" in x) >= 4, what="all is submitted")
    begin = int(card()["clock_ns"])
    assert set(busy().values()) == {0}
    node.inject("advance", "40ms")
    assert busy() == {short.pid: 20_000_000, long.pid: 20_000_000}
    node.inject("advance", "1ms")
    assert int(card()["clock_ns"]) - begin == 41_000_000 and sum(busy().values()) == 41_000_000
    node.inject("advance", "1s")
    for p, ms in ((short, 30), (long, 50)):
        wall, events = map(float, p.stdout.readline().split())
        assert ms <= events <= 80
    assert int(card()["busy_ns"]) == 80_000_000
    assert "goes by itself" in node_of("--gpus", "1").inject("advance", "1s", expect=1)
