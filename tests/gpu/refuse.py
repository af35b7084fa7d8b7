# SPDX-License-Identifier: Apache-2.0
"""Runs a command for which the kernel refuses one system call with EPERM: refuse.py CALL COMMAND...

A name is looked up in the kernel's headers; x86-64 only. The filter holds for all that the command starts.
"""

import ctypes
import os
import re
import struct
import sys

HEADER = "/usr/include/x86_64-linux-gnu/asm/unistd_64.h"
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, ERRNO_EPERM = 0x7FFF0000, 0x00050001


class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def numbers():
    """{name: number} of the system calls."""
    with open(HEADER, encoding="ascii") as f:
        return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", f.read())}


def refuse(number):
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in (
        (LOAD_WORD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO_EPERM), (RETURN, 0, 0, ALLOW)))
    room = ctypes.create_string_buffer(code)
    program = Program(4, ctypes.addressof(room))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0):
        sys.exit(f"refuse.py: prctl: {os.strerror(ctypes.get_errno())}")


def main():
    refuse(numbers()[sys.argv[1]])
    os.execvp(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    main()
