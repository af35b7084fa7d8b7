# SPDX-License-Identifier: Apache-2.0
"""The table of shares: what part of a card's time tenants get that keep it busy (tenant.py).

    shares.py ALIQUOT SECONDS FILE CORES... [--simulated]   one row as JSON; core 0: without a limit

FILE keeps what a tenant without limits gets, for the rows that come later.
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
SHARES = [(30,), (10,), (5,), (1,), (30, 70), (10, 90), (25, 25, 25, 25)]
KERNELS_US = (10, 1000, 500000)
SHORT_KERNELS_US = (10, 1000, 100000)      # where time is short


def calibrated(kernel_us, simulated):
    """The rounds of a kernel of that length, and its true length; on a GPU without other users."""
    said = subprocess.run([sys.executable, HERE / "tenant.py", "calibrate", str(kernel_us)] + ["--simulated"] * simulated,
                          stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return said[0], float(said[1])


def tenants(aliquot, cores, kernel, seconds, simulated):
    """What part of the card's time each tenant's kernels took, in percent; core 0: without a limit."""
    rounds, us = kernel
    command = [sys.executable, HERE / "tenant.py", "work", str(seconds), rounds, str(us)] + ["--simulated"] * simulated
    running = []
    for core in cores:
        limited = [aliquot, "run", "--core", str(core), "--policy", "fixed", "--"] if core else []
        running.append(subprocess.Popen([*limited, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in running:
        assert process.stdout.readline() == "ready\n", process.wait()
    for process in running:
        process.stdin.write("go\n")
        process.stdin.flush()
    done = [process.communicate()[0].split() for process in running]
    return [100 * int(n) * us / (float(took) * 1e6) for n, took in done]


def share_table(aliquot, seconds, simulated):
    rows = ["| shares | " + " | ".join(f"kernels of {us} us" for us in KERNELS_US) + " |",
            "|---|" + "---|" * len(KERNELS_US)]
    kernels = alone(aliquot, seconds, KERNELS_US, simulated)
    rows.append("| no limit | " + " | ".join(f"{whole:.1f} %" for *_, whole in kernels) + " |")
    for cores in SHARES:
        cells = []
        for rounds, us, all_of_it in kernels:
            took = tenants(aliquot, cores, (rounds, us), seconds, simulated)
            # Of the time that one without limits gets, which is less than all of it with short kernels.
            cells.append(" : ".join(f"{100 * t / all_of_it:.1f}" for t in took) + " %")
        rows.append("| " + " : ".join(map(str, cores)) + " | " + " | ".join(cells) + " |")
        print(rows[-1], file=sys.stderr, flush=True)
    return rows


def alone(aliquot, seconds, kernels_us, simulated):
    """[[rounds, true length, what a tenant without limits gets]] of each length of kernel"""
    kernels = [calibrated(us, simulated) for us in kernels_us]
    return [[*kernel, tenants(aliquot, (0,), kernel, seconds, simulated)[0]] for kernel in kernels]


def row(aliquot, seconds, cores, kept, simulated):
    """What each tenant got in percent of the card's time, for each length of kernel."""
    if not kept.exists():
        kept.write_text(json.dumps(alone(aliquot, seconds, SHORT_KERNELS_US, simulated)))
    rows = []
    for rounds, us, whole in json.loads(kept.read_text()):
        rows.append({"us": us, "alone": whole, "got": tenants(aliquot, cores, (rounds, us), seconds, simulated)})
    return rows


def main():
    aliquot, seconds, kept, *cores = [a for a in sys.argv[1:] if a != "--simulated"]
    print(json.dumps(row(aliquot, float(seconds), [int(core) for core in cores], pathlib.Path(kept), "--simulated" in sys.argv)))


if __name__ == "__main__":
    main()
