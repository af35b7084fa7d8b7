# SPDX-License-Identifier: Apache-2.0
"""A tenant that keeps a GPU busy, for the table of shares.

    tenant.py calibrate KERNEL_US [--simulated]     prints how many rounds a kernel of that length does, and its true length
    tenant.py work SECONDS ROUNDS KERNEL_US [...]   says when it is ready, waits for a line, launches kernels of so many
                                                    rounds for some seconds; how many, in what time

A kernel does a fixed amount of work, found by timing it alone, so that a slice taken away is not work done.
"""

import ctypes
import sys
import time

PTX = b"""
.version 6.0
.target sm_50
.address_size 64
.visible .entry work(.param .u64 rounds) {
    .reg .u64 %n, %x;
    .reg .pred %p;
    ld.param.u64 %n, [rounds];
    mov.u64 %x, %n;
LOOP:
    mad.lo.u64 %x, %x, %x, 1;
    sub.u64 %n, %n, 1;
    setp.ne.u64 %p, %n, 0;
    @%p bra LOOP;
    setp.eq.u64 %p, %x, 0;
    @%p trap;
    ret;
}
"""
SIMULATED = b"ALIQUOT SIMULATED MODULE 1\nkernel work spin\n"
QUEUED_US = 20000

cuda = ctypes.CDLL("libcuda.so.1")


def ok(name, *arguments):
    r = getattr(cuda, name)(*arguments)
    if r:
        sys.exit(f"tenant.py: {name} answered {r}")


class Tenant:
    def __init__(self, simulated):
        context, module, self.function = (ctypes.c_void_p() for _ in range(3))
        ok("cuInit", 0)
        ok("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        ok("cuCtxSetCurrent", context)
        ok("cuModuleLoadData", ctypes.byref(module), SIMULATED if simulated else PTX)
        ok("cuModuleGetFunction", ctypes.byref(self.function), module, b"work")
        # The simulated kernel's parameter is its length in ns.
        self.rounds = ctypes.c_uint64(1000 if simulated else 100)
        self.parameters = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(self.rounds), ctypes.c_void_p))

    def launch(self):
        ok("cuLaunchKernel", self.function, 1, 1, 1, 1, 1, 1, 0, None, self.parameters, None)

    def timed(self, launches):
        """Microseconds that one kernel takes, of so many one after the other; the least of three times."""
        begin, end, ms = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_float()
        ok("cuEventCreate", ctypes.byref(begin), 0)
        ok("cuEventCreate", ctypes.byref(end), 0)
        least = float("inf")
        for _ in range(3):
            ok("cuEventRecord", begin, None)
            for _ in range(launches):
                self.launch()
            ok("cuEventRecord", end, None)
            ok("cuEventSynchronize", end)
            ok("cuEventElapsedTime", ctypes.byref(ms), begin, end)
            least = min(least, ms.value * 1000 / launches)
        return least

    def calibrate(self, wanted_us):
        """As many rounds as take about so long; returns how long they do take."""
        launches = max(1, int(QUEUED_US / wanted_us))
        self.timed(launches)
        for _ in range(4):
            took = max(self.timed(launches), 0.5)
            self.rounds.value = max(1, int(self.rounds.value * min(wanted_us / took, 1000)))
        return self.timed(launches)

    def work(self, seconds, us):
        """How many kernels were done, and in how many seconds."""
        done, batch, begin = 0, max(1, int(QUEUED_US / us)), time.monotonic()
        while time.monotonic() < begin + seconds:
            for _ in range(batch):
                self.launch()
            ok("cuCtxSynchronize")
            done += batch
        return done, time.monotonic() - begin


def main():
    simulated = "--simulated" in sys.argv
    tenant = Tenant(simulated)
    if sys.argv[1] == "calibrate":
        us = tenant.calibrate(float(sys.argv[2]))
        print(tenant.rounds.value, us)
        return
    tenant.rounds.value = int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    print(*tenant.work(float(sys.argv[2]), float(sys.argv[4])), flush=True)


main()
