# SPDX-License-Identifier: Apache-2.0
"""What machine this is: kernel or gVisor, namespaces, driver, Python packages. Prints JSON."""

import glob
import json
import os
import platform
import shutil
import subprocess
import sys

FILES = ("/proc/version", "/proc/cmdline", "/proc/self/cgroup", "/proc/self/status", "/proc/self/uid_map", "/proc/self/limits",
         "/proc/self/mountinfo", "/proc/meminfo", "/proc/devices", "/proc/modules", "/proc/driver/nvidia/version",
         "/proc/driver/nvidia/params", "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/user/max_user_namespaces",
         "/sys/fs/cgroup/cgroup.controllers", "/etc/os-release", "/proc/sys/vm/overcommit_memory")
GLOBS = ("/dev/nvidia*", "/dev/nvidia-caps/*", "/dev/dri/*", "/proc/driver/nvidia/gpus/*/information",
         "/proc/driver/nvidia/capabilities/**", "/usr/local/nvidia/**/lib*.so*", "/usr/lib/x86_64-linux-gnu/libcuda*",
         "/usr/lib/x86_64-linux-gnu/libnvidia-ml*", "/run/nvidia*/*")
PACKAGES = ("torch", "numpy", "cupy-cuda13x", "cupy-cuda12x", "jax", "jaxlib", "numba", "numba-cuda", "triton", "nvidia-ml-py",
            "cuda-bindings", "nvidia-cublas", "nvidia-cuda-runtime", "nvidia-cudnn-cu13", "nvidia-nccl-cu13")
COMMANDS = (("nvidia-smi", "-L"), ("nvidia-smi", "--version"), ("dmesg",), ("ldd", "--version"), ("nvcc", "--version"))
TEXT = 6000


def text(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read(TEXT)
    except OSError as why:
        return f"({why.strerror})"


def said(command):
    if not shutil.which(command[0]):
        return "(not there)"
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=5, check=False)
        return done.stdout.decode(errors="replace")[:TEXT]
    except (OSError, subprocess.TimeoutExpired) as why:
        return f"({why})"


def version(package):
    import importlib.metadata       # a third of the start of the kit, which only this step needs
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def namespaces():
    try:
        return {name: os.readlink(f"/proc/self/ns/{name}") for name in sorted(os.listdir("/proc/self/ns"))}
    except OSError as why:
        return str(why)


def is_gvisor():
    """gVisor calls its kernel 4.4.0 and says so in its log; no other kernel of that version runs these drivers."""
    return "gVisor" in said(("dmesg",)) or platform.release() == "4.4.0"


def main():
    print(json.dumps({
        "gvisor": is_gvisor(), "release": platform.release(), "libc": platform.libc_ver(), "python": sys.version,
        "uid": os.getuid(), "pid": os.getpid(), "cpus": os.cpu_count(), "namespaces": namespaces(),
        "files": {path: text(path) for path in FILES}, "names": {g: sorted(glob.glob(g, recursive=True))[:200] for g in GLOBS},
        "packages": {name: version(name) for name in PACKAGES}, "commands": {" ".join(c): said(c) for c in COMMANDS},
        "environment": {n: v for n, v in os.environ.items() if n.startswith(("NVIDIA_", "CUDA_", "LD_", "PYTHON", "XLA_", "ALIQUOT_"))},
    }))


if __name__ == "__main__":
    main()
