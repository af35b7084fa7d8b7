# SPDX-License-Identifier: Apache-2.0
"""What libaliquot.so needs, and what it does to programs that have nothing to do with CUDA."""

import collections
import os
import re
import shutil
import subprocess

import pytest

# Functions that glibc 2.17 and musl 1.1 both have.
ALLOWED = {"__errno_location", "calloc", "close", "dl_iterate_phdr", "fcntl", "free", "getenv", "getpid", "lseek",
           "madvise", "memcmp", "memcpy", "memmove", "memset", "mmap", "munmap", "open", "strchr", "strcmp", "strlen",
           "strncmp", "strrchr", "syscall"}


def output(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_needs_libc_only_and_an_old_one(library):
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", library))
    assert needed == ["libc.so.6"]
    for version in re.findall(r"Name: GLIBC_([\d.]+)", output("readelf", "-V", library)):
        assert tuple(map(int, version.split("."))) <= (2, 17), version
    undefined = {line.split()[-1] for line in output("objdump", "-T", library).splitlines() if "*UND*" in line}
    assert undefined and undefined <= ALLOWED, undefined - ALLOWED


def test_runs_nothing_at_load(library):
    dynamic = output("readelf", "-d", library)
    assert not re.search(r"\((INIT|INIT_ARRAY|PREINIT_ARRAY|FINI|FINI_ARRAY)\)", dynamic)
    assert "BIND_NOW" in dynamic
    assert "TLS" not in output("readelf", "-lW", library)
    assert not re.search(r"GNU_STACK.*RWE", output("readelf", "-lW", library))


def test_shadows_export_their_half(build):
    for name, prefix in (("cuda", "cu"), ("nvidia-ml", "nvml")):
        path = build / "src" / "intercept" / f"libshadow-{name}.so.1"
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path))
        assert needed == [f"lib{name}-driver.so.1", "libc.so.6"]
        names = {line.split()[-1] for line in output("nm", "-D", "--defined-only", path).splitlines()}
        assert len(names) > 10 and {n for n in names if not n.startswith(prefix)} == {"aliquot_instance"}


def test_exports_hooks_only(library):
    names = {line.split()[-1] for line in output("nm", "-D", "--defined-only", library).splitlines()}
    others = {n for n in names if not n.startswith(("cu", "nvml"))}
    assert others == {"dlsym", "dlvsym", "aliquot_instance"}


def system_calls(tmp_path, library=None):
    log = tmp_path / "strace"
    environment = [f"-ELD_PRELOAD={library}"] if library else ["-ELD_PRELOAD"]
    subprocess.run(["strace", "-f", "-qq", "-o", log, *environment, "/bin/true"], check=True)
    calls = re.findall(r"^\d+ +(\w+)\(", log.read_text(), re.M)
    assert calls
    return collections.Counter(calls)


def test_makes_no_system_call_of_its_own(tmp_path, library):
    """Beyond what the loader does to map one more object: open, read, stat, map, protect, close."""
    more = system_calls(tmp_path, library)
    more.subtract(system_calls(tmp_path))
    added = {name: n for name, n in more.items() if n}
    loaders = {"openat", "read", "pread64", "fstat", "newfstatat", "mmap", "mprotect", "munmap", "close"}
    assert set(added) <= loaders and sum(added.values()) <= 10, added
    assert added["openat"] == 1, added


def test_programs_do_not_notice(library):
    programs = [["/bin/sh", "-c", "exit 7"], ["/bin/sh", "-c", "echo a; kill -TERM $$"], ["/bin/false"],
                ["python3", "-c", "import ctypes, threading; t = threading.Thread(target=print, args=('x',)); t.start(); "
                 "t.join(); print(ctypes.CDLL(None).getpid() > 0)"]]
    for program in programs:
        plain, loaded = (subprocess.run(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, **extra)) for extra in ({}, {"LD_PRELOAD": library}))
        assert (plain.returncode, plain.stdout, plain.stderr) == (loaded.returncode, loaded.stdout, loaded.stderr)


def test_runs_in_musl_programs(library, tmp_path):
    if not shutil.which("musl-gcc"):
        pytest.fail("musl-gcc is missing: apt-get install musl-tools")
    source, program = tmp_path / "hello.c", tmp_path / "hello"
    source.write_text('#include <stdio.h>\n#include <dlfcn.h>\n'
                      'int main(void) { void *p = dlsym(RTLD_DEFAULT, "puts");\n'
                      '    printf("%s %s\\n", p ? "found" : "none", dlsym(RTLD_DEFAULT, "cuInit") ? "cuda" : "no");\n'
                      '    return 3; }\n')
    subprocess.run(["musl-gcc", "-o", program, source], check=True)
    done = subprocess.run([program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          env={"LD_PRELOAD": library})
    assert (done.returncode, done.stdout) == (3, "found no\n")
