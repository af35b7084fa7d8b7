# SPDX-License-Identifier: Apache-2.0
"""Hardware time-slices: libaliquot steps between a driver library and its ioctl, and nowhere else. The driver and the
ioctl are ours; that a real driver heeds what it is asked for, only a GPU can show."""

import os
import struct
import subprocess

import pytest
from abi import CUDA

GIB = 1 << 30

DRIVER = """
#include <string.h>
#include <sys/ioctl.h>
int cuInit(unsigned flags) { return (int) flags; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { memset(uuid, 1, 16); return 0 * device; }
/* As the driver does when it makes a context: a channel group of client 11. */
int cuCtxSynchronize(void) {
    unsigned argument[12] = {11, 12, 0x77, 0xa06c};
    return ioctl(5, 0xc030462b, argument);
}
"""

# Writes down each call, with what is asked of channel groups.
IOCTL = """
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
static uint64_t slice;
int ioctl(int fd, unsigned long request, ...) {
    va_list args;
    va_start(args, request);
    uint32_t *argument = va_arg(args, uint32_t *);
    va_end(args);
    if ((request & 0xff) == 0x2a) {
        uint64_t *value = (uint64_t *) (uintptr_t) *(uint64_t *) (argument + 4);
        if (argument[2] == 0xa06c0103) slice = *value; else *value = slice;
        printf("control %x of %x: %d\\n", argument[2], argument[1], (int) slice);
    } else
        printf("call %d\\n", fd);
    return 0;
}
"""

PROGRAM = """
#include <dlfcn.h>
#include <stdio.h>
#include <sys/ioctl.h>
int main(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_FLAGS);
    int (*init)(unsigned) = dlsym(driver, "cuInit"), (*context)(void) = dlsym(driver, "cuCtxSynchronize");
    unsigned argument[12] = {11, 12, 0x78, 0xa06c};
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (init(0) || context()) return 1;
    return ioctl(6, 0xc030462b, argument);      /* the program's own */
}
"""


def limits(core, options):
    device = b"GPU-01010101-0101-0101-0101-010101010101".ljust(48, b"\0") + struct.pack("<QQII", 4 * GIB, 0, core, 0)
    copy = bytes(636) + struct.pack("<I", 1) + device + bytes(63 * 72)
    more = struct.pack("<QQQQ", 0, 0, options, 0) + bytes(63 * 32)
    return struct.pack("<QIIQ", 0x31736c746c71615f, 1, 64 + 2 * len(copy) + 2 * len(more), 0) + bytes(40) + copy * 2 + more * 2


@pytest.fixture(params=["-Wl,-z,lazy,-z,norelro", "-Wl,-z,now,-z,relro"], ids=["lazy", "relro"])
def run(request, tmp_path, library):
    def build(name, source, *options):
        (tmp_path / f"{name}.c").write_text(source)
        subprocess.run(["gcc", "-w", "-o", tmp_path / name, tmp_path / f"{name}.c", *options], check=True)
        return tmp_path / name

    others = {row.symbol for row in CUDA} - {"cuInit", "cuDeviceGetUuid_v2", "cuCtxSynchronize"}
    stubs = "".join(f"int {name}(void) {{ return 0; }}\n" for name in sorted(others))
    build("libcuda.so.1", DRIVER + stubs, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", request.param)
    fake = build("fake.so", IOCTL, "-shared", "-fPIC")
    flags = "RTLD_LAZY" if "lazy" in request.param else "RTLD_NOW"
    program = build("program", PROGRAM, "-D_GNU_SOURCE", f"-DRTLD_FLAGS={flags}", "-ldl")

    def start(core, options):
        (tmp_path / "limits").write_bytes(limits(core, options))
        with open(tmp_path / "ledger", "wb") as f:
            f.write(struct.pack("<QIII", 0x3172676c716c615f, 1, 64, 1024))
            f.truncate(128 + 64 * 128 + 1024 * (64 + 64 * 32))
        done = subprocess.run([program], stdout=subprocess.PIPE, text=True, timeout=30, env={
            "LD_PRELOAD": f"{library} {fake}", "LD_LIBRARY_PATH": str(tmp_path), "ALIQUOT_SHARE_DIR": str(tmp_path),
            "PATH": os.environ["PATH"]})
        assert done.returncode == 0
        return done.stdout.splitlines()
    return start


def test_channel_groups_of_the_driver_get_the_share(run):
    assert run(30, 1) == ["call 5", "control a06c0103 of 77: 3000", "control a06c0104 of 77: 3000", "call 6"]


def test_off_unless_asked_for(run):
    assert run(30, 0) == ["call 5", "call 6"]
    assert run(0, 1) == ["call 5", "call 6"]
