#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cross-builds for arm64, runs the unit tests, the tests in C of the simulated driver and the ledger's torture under
qemu-user, starts the programs of the images in them, runs a simulated GPU from each package, and ends with one line: N
passed, N failed, N skipped. A skipped test needs what QEMU_LACKS says of it; a machine with an arm64 processor runs all
of them (make test)."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

TOP = Path(__file__).resolve().parent.parent
sys.path.append(str(TOP / "images"))

from aliquot_images import IMAGES, PROGRAMS, libraries_of, unpack    # noqa: E402  (the path comes first)
import sbom                                            # noqa: E402

SUITES = {"unit", "sim", "torture"}
SLOWER = "20"   # the bounds are meant for programs as they are: the emulator takes ten times as long, on an idle machine

# What a program of the packages calls, and how a package becomes files below $0.
TENANT = "tests/workloads/cuda-share"
UNPACKED = {
    "*_arm64.deb": 'dpkg-deb -x "$1" "$0"',
    "*.aarch64.rpm": 'rpm="rpm --root=$0 --dbpath=/var/lib/rpm"; $rpm --initdb; $rpm --install --nodeps --ignorearch "$1"',
    "kubectl-aliquot_*_arm64.tar.gz": 'mkdir "$0/usr"; tar -x -C "$0/usr" -f "$1"; ln -s kubectl-aliquot "$0/usr/bin/aliquot"',
}
# What each distribution has; the Debian package says that it needs others as well.
OF_SYSTEM = re.compile(r"/(libc|libm|libstdc\+\+|libgcc_s|ld-linux-aarch64)\.so\.\d+$")

# What qemu-user 7.2 does not emulate.
QEMU_LACKS = {
    "audit": "ptrace",
    "cgroup": "a process whose first thread has ended",
    "gpu": "execution of /proc/self/exe, by which the NVML child is started: the kernel executes the emulator",
    "ledger": "RLIMIT_AS",
    "share": "PR_SET_CHILD_SUBREAPER",
    "share-dir": "extended attributes with another error",
    "unsettled": "marks that the kernel leaves in the futexes of a process that ends",
}


def introspect(build, what):
    done = subprocess.run(["meson", "introspect", what, str(build)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def fetched():
    return subprocess.run([TOP / "scripts/fetch-arm64"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def configure(build):
    if (build / "build.ninja").exists():
        return
    subprocess.run(["meson", "setup", str(build), str(TOP), "--cross-file", f"{fetched()}/cross.ini"], check=True,
                   stdout=subprocess.DEVNULL)


def selected(build):
    return [test for test in introspect(build, "--tests") if {suite.split(":")[-1] for suite in test["suite"]} & SUITES]


def files_of(build, tests):
    """What is to be built for the tests, relative to the build directory."""
    needed = {name for test in tests for name in (*test["depends"], *test["cmd"])}
    return sorted({os.path.relpath(path, build) for target in introspect(build, "--targets") for path in target["filename"]
                   if target["id"] in needed or path in needed})


def results(build):
    with open(build / "meson-logs" / "testlog.json") as log:
        return {entry["name"]: entry["result"] for entry in map(json.loads, log)}


def image_starts(build, name):
    """Whether the program of an image runs with nothing but its image, and the licences of all its parts are known."""
    image = IMAGES[name](str(build), fetched() + "/root")
    with tempfile.TemporaryDirectory() as root:
        unpack(image, root)
        inside = ["env", "-u", "QEMU_LD_PREFIX", "chroot", root, f"/usr/local/bin/aliquot-{name}", "--help"]
        done = subprocess.run([TOP / "scripts/arm64-run", *inside], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    started = done.returncode == 0 and "--listen" in done.stdout and image.architecture() == "arm64"
    unknown = [part.name for part in sbom.Parts(image, str(build)).packages if sbom.licence(part) == sbom.UNKNOWN]
    print(f"image of the {name}: " + ("OK" if started and not unknown else f"FAIL: no licence of {unknown}; {done.stdout[-2000:]}"))
    return started and not unknown


def installed(build):
    """What is to be built of the files that are installed."""
    return [os.path.relpath(path, build) for target in introspect(build, "--targets") if target["installed"]
            for path in target["filename"]]


def package_runs(build, package, unpacked):
    """Whether a program gets its part of a simulated GPU where nothing but the package is and what it needs."""
    sysroot = fetched() + "/root"
    with tempfile.TemporaryDirectory() as root:
        subprocess.run(["sh", "-euc", unpacked, root, package], check=True)
        for path, found in libraries_of(str(build / "src/cli/aliquot"), sysroot):
            if package.suffix == ".deb" or OF_SYSTEM.search(path):
                (Path(root) / path[1:]).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, root + path)
        inside = ["env", "-u", "QEMU_LD_PREFIX", "bwrap", "--bind", root, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs",
                  "/tmp", "--ro-bind", build / TENANT, "/tmp/tenant", "--clearenv", "--setenv", "PATH", "/usr/bin"]
        done = subprocess.run([TOP / "scripts/arm64-run", *inside, "aliquot", "sim", "--",
                               "aliquot", "run", "--memory", "4Gi", "--", "/tmp/tenant"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        pages = len(list(Path(root).glob("usr/share/man/man1/aliquot-*.1")))
    ran = done.returncode == 0 and f"device_total={4 << 30}\n" in done.stdout and pages > 0
    print(f"package {package.name}: " + ("OK" if ran else f"FAIL: {pages} man pages; {done.stdout[-2000:]}"))
    return ran


def packages_run(build):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([TOP / "scripts/make-packages", "--build", build, "--sysroot", fetched() + "/root", "--out", out],
                       check=True, stdout=subprocess.DEVNULL)
        made = [(*Path(out).glob(pattern), unpacked) for pattern, unpacked in UNPACKED.items()]
        return [len(one) == 2 and package_runs(build, *one) for one in made]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build-arm64", type=Path)
    build = parser.parse_args().build.resolve()
    configure(build)
    subprocess.run(["ninja", "-C", str(build), "--quiet", "build.ninja"], check=True)
    tests = selected(build)
    subprocess.run(["ninja", "-C", str(build), "--quiet", *files_of(build, tests), *PROGRAMS, *installed(build), TENANT],
                   check=True)
    names = [test["name"] for test in tests]
    run = [name for name in names if name not in QEMU_LACKS]
    subprocess.run([TOP / "scripts/arm64-run", "meson", "test", "-C", str(build), "--no-rebuild", "--print-errorlogs",
                    "--timeout-multiplier", SLOWER, *run], check=False)
    ended = results(build)
    more = [image_starts(build, name) for name in IMAGES] + packages_run(build)
    passed = sum(result == "OK" for result in ended.values()) + sum(more)
    meant = len(run) + len(more)
    for name in sorted(set(names) & set(QEMU_LACKS)):
        print(f"skipped: {name} (qemu-user: {QEMU_LACKS[name]})")
    print(f"{passed} passed, {meant - passed} failed, {len(names) - len(run)} skipped")
    return 0 if run and passed == meant else 1


if __name__ == "__main__":
    sys.exit(main())
