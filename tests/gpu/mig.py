# SPDX-License-Identifier: Apache-2.0
"""MIG on a real GPU, with `aliquot mig`. A step of run.py; the division of the card is restored at the end.

`mig.py BUILD` runs it alone, for the simulator as well: aliquot sim --model A100 --gpus 1 -- python3 tests/gpu/mig.py build
"""

import contextlib
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

SIMULATED = os.environ.get("ALIQUOT_SIM_DIR")
CAPABILITIES = f"{SIMULATED}/nvidia-caps" if SIMULATED else "/dev/nvidia-caps"
PROC = f"{SIMULATED}/proc" if SIMULATED else "/proc"
NO_DEVICE = 100         # CUDA_ERROR_NO_DEVICE

# Prints what cuInit, cuDeviceGet and cuCtxCreate answer; then it waits for the end of its input.
CLIENT = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
print(cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0), cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device), flush=True)
sys.stdin.read()
"""


class Skip(Exception):
    pass


class Card:
    """The first card, by NVML and by `aliquot mig`."""

    def __init__(self, build):
        self.aliquot = str(build / "src/cli/aliquot")
        self.nvml = ctypes.CDLL("libnvidia-ml.so.1")
        self.reopen()

    def reopen(self):
        """Handles end with a change of the MIG mode."""
        self.handle = ctypes.c_void_p()
        assert self.nvml.nvmlInit_v2() == 0 and self.nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.handle)) == 0

    @contextlib.contextmanager
    def closed(self):
        """Without a client of NVML in this process."""
        self.nvml.nvmlShutdown()
        try:
            yield
        finally:
            self.reopen()

    def mode(self):
        """1 in MIG mode, 0 outside of it."""
        now, pending = ctypes.c_uint(), ctypes.c_uint()
        if self.nvml.nvmlDeviceGetMigMode(self.handle, ctypes.byref(now), ctypes.byref(pending)):
            raise Skip("the card has no MIG")
        return now.value

    def instances(self):
        """{UUID: (GPU instance, compute instance)}"""
        found, part, most = {}, ctypes.c_void_p(), ctypes.c_uint()
        self.nvml.nvmlDeviceGetMaxMigDeviceCount(self.handle, ctypes.byref(most))
        for i in range(most.value):
            if self.nvml.nvmlDeviceGetMigDeviceHandleByIndex(self.handle, i, ctypes.byref(part)):
                continue
            uuid, gi, ci = ctypes.create_string_buffer(96), ctypes.c_uint(), ctypes.c_uint()
            assert self.nvml.nvmlDeviceGetUUID(part, uuid, 96) == 0
            assert self.nvml.nvmlDeviceGetGpuInstanceId(part, ctypes.byref(gi)) == 0
            assert self.nvml.nvmlDeviceGetComputeInstanceId(part, ctypes.byref(ci)) == 0
            found[uuid.value.decode()] = gi.value, ci.value
        return found

    def minor(self):
        value = ctypes.c_uint()
        assert self.nvml.nvmlDeviceGetMinorNumber(self.handle, ctypes.byref(value)) == 0
        return value.value

    def processes(self):
        count = ctypes.c_uint(0)
        self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.handle, ctypes.byref(count), None)
        return count.value

    def command(self, *words, text=None):
        return subprocess.run([self.aliquot, "mig", *words], input=text, text=True, capture_output=True, timeout=120, check=False)

    def divide(self, counts, enabled=True):
        """{profile: number}; returns the text of a debugging run."""
        made = [{"devices": [0], "mig-enabled": enabled, "mig-devices": counts}]
        done = self.command("-d", "apply", "-f", "-", text=json.dumps({"version": "v1", "mig-configs": {"made": made}}))
        assert done.returncode == 0, done.stderr[-500:]
        return done.stderr

    def smallest(self):
        """(profile, number) of what the card can have most of."""
        known = json.loads(self.command("generate-config", "-o", "json").stdout)["mig-configs"]
        options = [pair for config in known.values() for entry in config for pair in entry.get("mig-devices", {}).items()
                   if len(entry["mig-devices"]) == 1]
        return max(options, key=lambda pair: (pair[1], -len(pair[0])))


@contextlib.contextmanager
def client(uuid, nodes=None):
    """A process on an instance; gives its answers. With `nodes` it has these capability nodes only, and no CAP_SYS_ADMIN, as
    in a container."""
    argv = [sys.executable, "-c", CLIENT]
    if nodes is not None:
        script = ('d=$1; n=$2; shift 2; mount --rbind "$d" /mnt; mount -t tmpfs none "$d"; '
                  'for x in $n; do touch "$d/$x"; mount --bind "/mnt/$x" "$d/$x"; done; umount -l /mnt; '
                  'exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin "$@"')
        argv = ["unshare", "-m", "sh", "-ec", script, "sh", CAPABILITIES, " ".join(nodes), *argv]
    process = subprocess.Popen(argv, env={**os.environ, "CUDA_VISIBLE_DEVICES": uuid}, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    try:
        yield [int(word) for word in process.stdout.readline().split()]
    finally:
        process.communicate()


def nodes_of(card, instance):
    """Names of the capability nodes of an instance."""
    gi, ci = instance
    base = pathlib.Path(f"{PROC}/driver/nvidia/capabilities/gpu{card.minor()}/mig/gi{gi}")
    return ["nvidia-cap" + re.search(r"DeviceFileMinor:\s*(\d+)", (base / path).read_text())[1]
            for path in ("access", f"ci{ci}/access")]


def exchange(card, profile, count):
    """One instance beside busy ones; what was made again at its placement has this UUID or another."""
    before = card.instances()
    free, *others = before
    with contextlib.ExitStack() as stack:
        for uuid in others:
            answers = stack.enter_context(client(uuid))
            assert answers == [0, 0, 0], f"no context on an instance: {answers}"
        said = [card.divide({profile: count - 1}), card.divide({profile: count})]
        after = card.instances()
        assert set(others) < set(after), "an instance in use has gone"
    times = [tuple(map(int, re.search(r"changes in (\d+) us, of them in the driver (\d+) us", text).groups())) for text in said]
    total, driver = map(sum, zip(*times))
    assert total - driver < 1_000_000, times
    same = "the same" if free in after else "another"
    return f"{total / 1000:.0f} ms, of them in the driver {driver / 1000:.0f} ms; {same} UUID at the same placement"


def isolation(card):
    """A process that has the capability nodes of one instance reaches that one and no other."""
    (mine, where), (other, _) = list(card.instances().items())[:2]
    nodes = nodes_of(card, where)
    with client(mine, nodes) as answers:
        assert answers == [0, 0, 0], f"its own instance: {answers}"
    with client(other, nodes) as answers:
        assert answers[0] == NO_DEVICE or answers[2] != 0, f"the instance of another one: {answers}"
    return "its own instance works, another one's does not"


def steps(card):
    """(name, what was seen), one after the other."""
    if os.geteuid() != 0:
        raise Skip("needs root: the card is divided")
    mode = card.mode()
    if card.processes() or (mode and card.instances()):
        raise Skip("the card is in use or divided")
    profile, count = card.smallest()
    with tempfile.NamedTemporaryFile("w+", suffix=".yaml") as saved:
        exported = card.command("export")
        assert exported.returncode == 0 and exported.stdout, f"the division cannot be saved: {exported.stderr[-300:]}"
        saved.write(exported.stdout)
        saved.flush()
        try:
            with card.closed():
                begun = time.monotonic()
                card.divide({profile: count})
            yield "mode change and division", f"{count} x {profile} in {time.monotonic() - begun:.1f} s"
            assert len(card.instances()) == count
            yield "exchange of an instance beside busy ones", exchange(card, profile, count)
            yield "isolation of instances", isolation(card)
        finally:
            with card.closed():
                done = card.command("apply", "-f", saved.name)
            assert done.returncode == 0, done.stderr[-300:]
        assert card.mode() == mode
        yield "the former division is back", "MIG mode on" if mode else "MIG mode off"


def run(build, results):
    """Appends (name, outcome, text) of each step. After a failure the others are not run."""
    try:
        for name, seen in steps(Card(pathlib.Path(build))):
            results.append((f"MIG: {name}", "passed", seen))
            print("{}: {} ({})".format(*results[-1]), flush=True)
        return
    except Skip as why:
        results.append(("MIG", "skipped", str(why)))
    except Exception as failure:    # noqa: BLE001  (whatever a driver answers: the other steps are run)
        results.append(("MIG", "failed", f"{type(failure).__name__}: {failure}"[-300:]))
    print("{}: {} ({})".format(*results[-1]), flush=True)


if __name__ == "__main__":
    found = []
    run(pathlib.Path(sys.argv[1]).resolve(), found)
    sys.exit(0 if all(outcome == "passed" for _, outcome, _ in found) else 1)
