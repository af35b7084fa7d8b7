# SPDX-License-Identifier: Apache-2.0
"""A container with Python, libc and nothing else: no network, no other library, a root that cannot be written to."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

BUSYBOX = "/usr/bin/busybox"
TOOLS = ("sh", "env", "dmesg", "unshare")
SECONDS = 300
STDLIB = pathlib.Path(os.__file__).parent


def libraries_of(*paths):
    """The libraries that programs and libraries need, and the loader."""
    said = subprocess.run(["ldd", *paths], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {path for path in re.findall(r"(/[^\s:]+\.so[^\s:]*) \(0x", said)}


def make_root(root):
    """Copies what is needed; Python's own modules are mounted."""
    for place in ("bin", "tmp", "proc", "dev", "kit", "out", "usr/bin"):
        (root / place).mkdir(parents=True, exist_ok=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    for tool in TOOLS:
        os.symlink("busybox", root / "bin" / tool)
    program = pathlib.Path(os.path.realpath(sys.executable))
    for library in libraries_of(program, *(STDLIB / "lib-dynload").glob("*.so")):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)
    place = root / str(program).lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(program, place)
    os.symlink(program, root / "bin/python3")


SCRIPT = """
set -e
root=$1 kit=$2 out=$3 stdlib=$4
shift 4
mount --make-rprivate /
mount --bind "$root" "$root"
mkdir -p "$root$stdlib"
mount --bind "$stdlib" "$root$stdlib"
mount --bind "$kit" "$root/kit"
mount -o remount,ro,bind "$root/kit"
mount --bind "$out" "$root/out"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
mkdir "$root/dev/shm"
for node in null zero urandom; do touch "$root/dev/$node"; mount --bind "/dev/$node" "$root/dev/$node"; done
mount -o remount,ro,bind "$root"
exec chroot "$root" /bin/env -i PATH=/bin KIT_MARK="$KIT_MARK" "$@"
"""


def run(kit, out, root, command, mark):
    """Output of a command there. The kit is at /kit; results go to /out."""
    if not root.exists():
        make_root(root)
    return subprocess.run(["unshare", "--mount", "--net", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", SCRIPT, "sh", root,
                           kit, out, STDLIB, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
                          env={**os.environ, "KIT_MARK": mark}).stdout
