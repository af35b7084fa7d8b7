# SPDX-License-Identifier: Apache-2.0
"""What interception costs: launch, allocation, memory query, and cuInit of 1, 8 and 300 processes at once; without a
library, with libaliquot.so, and with other libraries, all in one run on the same driver. Prints a table in Markdown.

    make bench-intercept PEERS="--peer NAME=/path/to/library.so[,VARIABLE=VALUE...] ..."

In a peer's variables {uuid} stands for the GPU's UUID and {dir} for an empty directory of its own. Figures are CPU time:
of the calling thread for calls, of the process from exec to the end of cuInit for the rest. Of each the least of all
rounds counts, since everything else on the machine only adds; runs of the subjects take turns.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests" / "bench")]

from figures import duration, machine, write_between        # noqa: E402  (the path comes first)

NONE = "no library"
CALLS = ("cuLaunchKernel", "cuMemAlloc+cuMemFree", "cuMemGetInfo")
CROWDS = (1, 8, 300)
# {driver: (launches between two waits, rounds)}
EFFORT = {"null": (20000, 40), "simulated": (200, 150), "real": (200, 60), "rehearsal": (200, 6)}
MEMORY = 4 << 30


class Subject:
    def __init__(self, name, library=None, core=None, metered=True, variables=()):
        self.name, self.library, self.core, self.metered, self.variables = name, library, core, metered, variables


def peer(text):
    name, _, rest = text.partition("=")
    library, *variables = rest.split(",")
    if not name or not pathlib.Path(library).is_file() or any("=" not in v for v in variables):
        raise argparse.ArgumentTypeError("NAME=/path/to/library.so[,VARIABLE=VALUE...]")
    return Subject(name, str(pathlib.Path(library).resolve()), variables=variables)


def subjects(build, peers):
    library = str(build / "src" / "intercept" / "libaliquot.so")
    return [Subject(NONE), Subject("libaliquot, memory limited", library, core=0, metered=False),
            Subject("the same, GPU time counted", library, core=0),
            Subject("libaliquot, memory and compute limited", library, core=50), *peers]


class Bench:
    def __init__(self, build, directory):
        self.program, self.null = build / "tests" / "bench" / "driver_calls", build / "tests" / "bench" / "null"
        self.directory, self.failed = pathlib.Path(directory), {}

    def environment(self, subject, driver):
        """Everything that a subject needs, in files of its own for this driver."""
        mine = dict(os.environ)
        if driver == "null":
            mine["LD_LIBRARY_PATH"] = f"{self.null}:{mine.get('LD_LIBRARY_PATH', '')}"
        place = self.directory / f"{driver}-{subject.name}".replace(" ", "-").replace(",", "")
        if not place.exists():
            place.mkdir()
            (place / "uuid").write_text(subprocess.run(
                [self.program, "share", place, str(MEMORY), str(subject.core or 0)], stdout=subprocess.PIPE, text=True,
                check=True, env=mine).stdout.strip())
            for account in () if subject.metered else ("grants", "compute"):
                (place / account).unlink()
        if subject.library:
            mine["LD_PRELOAD"] = subject.library
        if subject.core is not None:
            mine["ALIQUOT_SHARE_DIR"] = str(place)
        words = {"uuid": (place / "uuid").read_text(), "dir": str(place)}
        for variable in subject.variables:
            name, _, value = variable.partition("=")
            mine[name] = value.format(**words)
        return mine

    def run(self, subject, driver, *arguments, timeout):
        """{name: numbers}, or None when it fails; what it said is kept."""
        try:
            done = subprocess.run([self.program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True, timeout=timeout, env=self.environment(subject, driver), errors="replace")
        except subprocess.TimeoutExpired:
            self.failed[subject.name, driver, arguments[0]] = f"did not end within {timeout} s"
            return None
        found = {}
        for line in done.stdout.splitlines():
            name, *values = line.split("\t")
            if values:
                found[name] = [float(value) for value in values]
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["nothing"])[-1][:200]
            self.failed[subject.name, driver, arguments[0]] = f"status {done.returncode}, said: {said}"
            return None
        return found


def measure_calls(bench, all_subjects, driver, repeat):
    """{subject: {call: least ns}}"""
    least = {}
    for _ in range(repeat):
        for subject in all_subjects:
            found = bench.run(subject, driver, "calls", *EFFORT[driver], timeout=120)
            for call, values in (found or {}).items():
                mine = least.setdefault(subject.name, {})
                mine[call] = min(values[0], mine.get(call, values[0]))
    return least


def shown(size):
    """So that it shows whether a limit was in force."""
    return f"{size / (1 << 30):.1f} GiB" if size else "nothing"


def measure_crowds(bench, all_subjects, driver, repeat):
    """{subject: {n: (median CPU ns, wall ns)}}, of the best of the runs."""
    best = {}
    for n in CROWDS:
        for _ in range(repeat):
            for subject in all_subjects:
                found = bench.run(subject, driver, "crowd", n, timeout=240)
                if found:
                    mine = best.setdefault(subject.name, {})
                    now = (found["cuInit"][1], found["wall"][0])
                    mine[n] = min(now, mine.get(n, now))
    return best


def added_to_null(build):
    """[(what, ns)]: what libaliquot adds to calls of a driver that does nothing."""
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as directory:
        bench, all_subjects = Bench(build, directory), subjects(build, [])
        least = measure_calls(bench, all_subjects, "null", 3)
        begun = {s.name: bench.run(s, "null", "crowd", 50, timeout=60)["cuInit"][0] for s in all_subjects}
    none, memory, _, both = (s.name for s in all_subjects)
    rows = [(f"{call}, memory limited", least[memory][call] - least[none][call]) for call in CALLS]
    rows.append((f"{CALLS[0]}, memory and compute limited", least[both][CALLS[0]] - least[none][CALLS[0]]))
    return rows + [("exec and cuInit", begun[memory] - begun[none])]


def added(value, base):
    return ("" if value < base else "+") + duration(value - base)


def calls_table(title, all_subjects, least):
    """What no library costs, and what each library adds."""
    rows = [f"| {title} | " + " | ".join(CALLS) + " | memory that it shows |", "|---|" + "---|" * (len(CALLS) + 1)]
    base = least.get(NONE, {})
    for subject in all_subjects:
        mine = least.get(subject.name, {})
        if subject.name == NONE:
            cells = [duration(mine[call]) if call in mine else "failed" for call in CALLS]
        else:
            cells = [added(mine[call], base[call]) if call in mine and call in base else "failed" for call in CALLS]
        cells.append(shown(mine["shows"]) if "shows" in mine else "-")
        rows.append(f"| {subject.name} | " + " | ".join(cells) + " |")
    return rows


def crowds_table(title, all_subjects, best):
    head = [f"{n} process{'es' if n > 1 else ''}" for n in CROWDS]
    rows = [f"| {title} | " + " | ".join(head) + " |", "|---|" + "---|" * len(head)]
    for subject in all_subjects:
        cells = []
        for n in CROWDS:
            mine, base = best.get(subject.name, {}).get(n), best.get(NONE, {}).get(n)
            if mine is None:
                cells.append("failed")
            elif subject.name == NONE or base is None:
                cells.append(f"{duration(mine[0])} CPU, {duration(mine[1])} wall")
            else:
                cells.append(f"{added(mine[0], base[0])} CPU, {duration(mine[1])} wall")
        rows.append(f"| {subject.name} | " + " | ".join(cells) + " |")
    return rows


def inside(arguments):
    """On the simulated machine."""
    all_subjects = subjects(arguments.build, arguments.peer)
    with tempfile.TemporaryDirectory(prefix="aliquot-bench-") as directory:
        os.chmod(directory, 0o755)
        bench, text = Bench(arguments.build, directory), [machine(), ""]
        for driver in ("null", "simulated"):
            print(f"== calls, {driver} driver", file=sys.stderr, flush=True)
            # A peer needs a whole machine to start.
            those = [s for s in all_subjects if driver == "simulated" or s not in arguments.peer]
            least = measure_calls(bench, those, driver, arguments.repeat)
            text += calls_table(f"CPU time of a call, {driver} driver", those, least) + [""]
        print("== cuInit", file=sys.stderr, flush=True)
        best = measure_crowds(bench, all_subjects, "simulated", max(1, arguments.repeat // 2))
        text += crowds_table("from exec through cuInit, simulated driver", all_subjects, best)
        text += [""] + [f"- {name}, {driver} driver, {what}: {why}"
                        for (name, driver, what), why in sorted(bench.failed.items())]
    print("\n".join(text).rstrip())
    if arguments.write:
        write_between(arguments.write, "intercept", "\n".join(text).rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--peer", type=peer, action="append", default=[], help="NAME=LIBRARY[,VARIABLE=VALUE...]")
    parser.add_argument("--repeat", type=int, default=6, help="runs of each subject")
    parser.add_argument("--write", type=pathlib.Path, help="file with markers for the table")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.build = arguments.build.resolve()
    if arguments.inside:
        inside(arguments)
        return
    command = [arguments.build / "src" / "cli" / "aliquot", "sim", "--gpus", "1", "--",
               sys.executable, __file__, "--inside", *sys.argv[1:]]
    sys.exit(subprocess.run(command).returncode)


if __name__ == "__main__":
    main()
