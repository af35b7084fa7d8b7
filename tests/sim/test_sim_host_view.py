# SPDX-License-Identifier: Apache-2.0
"""The cards in /proc and /sys: as files of the machine's directory, and shown to a command by --host-view."""

import os
import subprocess

import pytest
from sim_kit import ALIQUOT

MACHINE = """[machine]
numa = 2
[gpu 0-1]
model = A100
[gpu 2]
model = RTX4090
[gpu 1]
numa = 1
pci = 0001:81:00.0
"""
ADDRESSES = ["0000:07:00.0", "0000:0f:00.0", "0001:81:00.0"]
AS_USER = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if os.geteuid() == 0 else []


@pytest.fixture
def machine(tmp_path):
    path = tmp_path / "m.machine"
    path.write_text(MACHINE)
    return path


@pytest.fixture
def node(machine, node_of):
    return node_of("--machine", machine)


def word(data, at, size):
    return int.from_bytes(data[at:at + size], "little")


def capabilities(config):
    """(id, bytes from there on) of the list; it ends."""
    assert config[6] & 0x10
    at, found, seen = config[0x34], [], set()
    while at:
        assert at not in seen and at >= 0x40
        seen.add(at)
        found.append((config[at], config[at:]))
        at = config[at + 1]
    return found


def test_pci_devices(node, nvml_of):
    nvml = nvml_of(node)
    top = node.dir / "sys/bus/pci/devices"
    assert sorted(p.name for p in top.iterdir()) == ADDRESSES
    for i in range(3):
        gpu = nvml.nvmlDeviceGetHandleByIndex(i)
        pci = nvml.nvmlDeviceGetPciInfo(gpu)
        at = top / f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"

        def number(name, at=at):
            return int((at / name).read_text(), 16)

        assert (number("vendor"), number("device")) == (0x10de, pci.pciDeviceId >> 16)
        assert number("subsystem_device") << 16 | number("subsystem_vendor") == pci.pciSubSystemId
        assert number("class") == (0x030000 if "RTX" in nvml.nvmlDeviceGetName(gpu) else 0x030200)
        assert (at / "numa_node").read_text() == ("1\n" if pci.bus == 0x81 else "0\n")
        assert (at / "driver").resolve().name == "nvidia"
        config = (at / "config").read_bytes()
        assert len(config) == 256
        assert (word(config, 0, 4), word(config, 9, 3), word(config, 0x2c, 4)) == (
            pci.pciDeviceId, number("class"), pci.pciSubSystemId)
        found = dict(capabilities(config))
        assert set(found) == {0x01, 0x05, 0x09, 0x10}
        assert found[0x09][3:5] != b"VF"        # which only a vGPU has
        regions = [[int(x, 16) for x in line.split(" ")] for line in (at / "resource").read_text().splitlines()]
        assert len(regions) == 13 and all(len(r) == 3 for r in regions)
        assert regions[1][1] + 1 - regions[1][0] >= nvml.nvmlDeviceGetMemoryInfo(gpu).total


def test_driver_files(node, nvml_of):
    nvml = nvml_of(node)
    assert (node.dir / "proc/modules").read_text().split()[0].startswith("nvidia")
    assert "\nnvidia " in "\n" + (node.dir / "proc/modules").read_text()
    driver = node.dir / "proc/driver/nvidia"
    assert nvml.nvmlSystemGetDriverVersion() in (driver / "version").read_text()
    for i in range(3):
        gpu = nvml.nvmlDeviceGetHandleByIndex(i)
        pci = nvml.nvmlDeviceGetPciInfo(gpu)
        text = (driver / f"gpus/{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0/information").read_text()
        found = {k: v.strip() for k, v in (line.split(":", 1) for line in text.splitlines())}
        assert found["GPU UUID"] == nvml.nvmlDeviceGetUUID(gpu) and found["Model"] == nvml.nvmlDeviceGetName(gpu)
        assert found["Device Minor"] == str(nvml.nvmlDeviceGetMinorNumber(gpu))


def run(*args, machine, user=()):
    return subprocess.run([*user, ALIQUOT, "sim", "--machine", machine, *args], capture_output=True, text=True, timeout=60,
                          check=False)


SCRIPT = """ls /sys/bus/pci/devices
grep -c '^nvidia ' /proc/modules
ls /proc/driver/nvidia/gpus | wc -l
head -1 /proc/driver/nvidia-caps/mig-minors
test -d /proc/self/fd && test -r /proc/meminfo && echo proc
exit 7
"""


@pytest.mark.parametrize("user", [(), AS_USER], ids=["as-is", "as-user"])
def test_a_command_sees_them(machine, tmp_path, user):
    tmp_path.chmod(0o755)
    here = os.listdir("/sys/bus/pci/devices")
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    r = run("--host-view", "--", "sh", "-c", SCRIPT, machine=machine, user=user)
    assert r.stdout.split() == [*ADDRESSES, "1", "3", "config", "1", "proc"], r.stderr
    assert r.returncode == 7
    assert os.listdir("/sys/bus/pci/devices") == here and not os.path.exists("/proc/driver/nvidia/gpus/0001:81:00.0")


def test_only_when_it_is_wanted(machine):
    r = run("--", "sh", "-c", "ls /sys/bus/pci/devices", machine=machine)
    assert r.returncode != 0 or "0001:81:00.0" not in r.stdout.split()


def test_not_for_a_node(machine, tmp_path):
    r = run("--host-view", "--listen", tmp_path / "d", machine=machine)
    assert r.returncode == 2 and "--host-view is for a command" in r.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can take /sys away")
def test_a_view_that_cannot_be_made(machine):
    """The reason is said, and the command does not run without its view."""
    script = 'umount -l /sys && exec "$@"'
    r = run("--host-view", "--", "echo", "ran", machine=machine, user=["unshare", "-m", "sh", "-c", script, "sh"])
    assert r.returncode == 126 and r.stdout == "" and "/sys/bus/pci" in r.stderr, (r.returncode, r.stdout, r.stderr)
