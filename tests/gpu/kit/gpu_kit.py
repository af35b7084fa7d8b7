# SPDX-License-Identifier: Apache-2.0
"""Asks a machine with a GPU all that was left open, most valuable first, in less than eight minutes (docs/gpu-kit.md).

Needs Python 3.10, libc and a driver; changes no setting of the card. Results are journal.jsonl and report.md in --out. A
second call goes on where the first stopped: with the same --out, or with --resume and what came back from it.
"""

import argparse
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
TOP = HERE.parents[2]
sys.path[:0] = [str(HERE), str(HERE.parent)]

import asking       # noqa: E402  (the path comes first)
import driver       # noqa: E402
import facts        # noqa: E402
import runner       # noqa: E402
import tables       # noqa: E402
from run import LIMIT, WORKLOADS      # noqa: E402
from runner import Step     # noqa: E402

ALIQUOT = str(TOP / "build" / "src" / "cli" / "aliquot")
PYTHON = sys.executable
SECONDS = 460
SHARE_SECONDS = 2.0
NODE = "/dev/nvidia0"
# Rows of the table of shares, the most telling first; 0 is without a limit.
SHARES = [(0, 0), (30, 70), (25, 25, 25, 25), (10,), (10, 90), (30,), (1,)]
REPORT_BYTES = 1500     # of one answer


def script(name, *arguments):
    return (PYTHON, str(HERE / name), *map(str, arguments))


def questions(of_modules):
    for q in asking.load().values():
        if q.function.__module__ in of_modules:
            yield Step(f"question:{q.name}", script("asking.py", "question", q.name), q.seconds, q.asks, q.real_only, q.of_kernel)


def answers(work):
    for kind in ("nvml", "cuda"):
        card, simulator = work / f"card-{kind}", work / f"simulator-{kind}"
        yield Step(f"answers:{kind}:card", script("answers.py", "ask", kind, card), 60, f"every query of {kind} that is modelled")
        yield Step(f"answers:{kind}:simulator", (ALIQUOT, "sim", "--machine", str(HERE / "h200.machine"), "--",
                                                 *script("answers.py", "ask", kind, simulator)), 60, "the same, of the simulator")
        yield Step(f"answers:{kind}:difference", script("answers.py", "compare", card, simulator), 10, "what differs")


def recordings(*names):
    for name in names:
        yield Step(f"tables:{name}", script("tables.py", name), 60, "private tables and functions that it asks for", real_only=True)


def frameworks():
    for name, function, environment, needs in WORKLOADS:
        if needs == 1:
            yield Step(f"limits:{name}", (ALIQUOT, "run", "--memory", str(LIMIT), "--", PYTHON, str(HERE.parent / "workloads.py"),
                                          function, str(LIMIT)), 75, "the framework in a slice of 4 GiB", real_only=True,
                       environment=tuple(environment.items()))


def programs():
    """Programs that take memory of every kind, and hold what is free against it, to the byte."""
    for name in ("kinds", "graphs"):
        yield Step(f"limits:{name}", (ALIQUOT, "run", "--memory", str(LIMIT), "--", str(TOP / "build" / "tests" / "intercept" / name)),
                   30, "memory of every kind in a slice of 4 GiB, to the byte")


def mps(simulated):
    yield Step("limits:mps", (PYTHON, str(HERE.parent / "mps.py"), "share", ALIQUOT, *["--simulated"] * simulated), 120,
               "two clients of MPS in one slice of 5 GiB, and NVML's lists of them")


def shares(work, simulated):
    for cores in SHARES:
        yield Step(f"shares:{':'.join(map(str, cores))}", (
            PYTHON, str(HERE.parent / "shares.py"), ALIQUOT, str(driver.paced(SHARE_SECONDS)), str(work / "alone.json"), *map(str, cores),
            *["--simulated"] * simulated), 60, "percent of the card's time for each tenant; 0: no limit")


def steps(work, simulated=False):
    """All steps, the most valuable first."""
    nvidia_smi = [name for name in tables.PROGRAMS if name.startswith("nvidia-smi")]
    others = [name for name in tables.PROGRAMS if name not in nvidia_smi]
    return [Step("facts", script("facts.py"), 30, "runtime, driver, namespaces, packages"),
            *questions(("life",)), *answers(work), *recordings(*others[:3]), *programs(), *mps(simulated), *list(frameworks())[:6], *questions(("calls",)),
            *list(shares(work, simulated))[:3], *questions(("memory",)), Step("hooks", script("hooks.py"), 60, "what the hooks add"),
            *recordings(*nvidia_smi), *list(frameworks())[6:], *list(shares(work, simulated))[3:], *recordings(*others[3:])]


def in_order(all_steps, gvisor):
    """Under gVisor descriptors, fork and process lists are gVisor's: last."""
    return sorted(all_steps, key=lambda step: step.of_kernel) if gvisor else all_steps


def report(journal, missing, path):
    """The journal for people."""
    lines = ["# Answers of a machine with a GPU", ""]
    for record in journal.records:
        if record["outcome"] in ("begun", "skipped"):
            continue
        mark = "" if record.get("driver", True) else " (under gVisor: not the driver's answer)"
        answer = json.dumps(record.get("answer")) if record.get("answer") is not None else record.get("output", "")
        lines += [f"## {record['step']}: {record['outcome']}{mark}", "", record.get("about", ""), "",
                  f"{record['seconds']} s, status {record.get('status')}"
                  + (f", left: {record['left']}" if record.get("left") else ""), "", "    " + answer[:REPORT_BYTES].replace("\n", "\n    ")]
        if record.get("errors"):
            lines += ["", "    " + record["errors"][-REPORT_BYTES:].replace("\n", "\n    ")]
        lines.append("")
    lines += ["Not reached: " + (", ".join(missing) or "nothing"), ""]
    try:
        path.write_text("\n".join(lines))
    except OSError as why:
        print(f"cannot write {path}: {why}", flush=True)


def listed():
    """The questions as a table in Markdown, as docs/gpu-kit.md has it."""
    rows = ["| question | asks | decides |", "|---|---|---|"]
    return "\n".join(rows + [f"| `{q.name}`{' (kernel)' if q.of_kernel else ''} | {q.asks} | {q.decides} |"
                             for q in asking.load().values()])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(os.environ.get("OUT") or "gpu-kit-results"),
                        help="where results go (default: $OUT, else gpu-kit-results)")
    parser.add_argument("--resume", type=pathlib.Path, action="append", default=[], help="results of an earlier call")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"for all of it (default {SECONDS})")
    parser.add_argument("--only", help="steps, or kinds of them, with commas between")
    parser.add_argument("--simulated", action="store_true", help="on the simulator, to rehearse")
    parser.add_argument("--list", action="store_true", help="print the questions and do nothing")
    return parser.parse_args()


def take_over(earlier, work):
    """Files of earlier calls that later steps read."""
    for directory in earlier:
        for path in sorted((directory / "work").glob("*")):
            try:
                if not (work / path.name).exists():
                    shutil.copy(path, work)
            except OSError as why:
                print(f"cannot copy {path}: {why}", flush=True)


def main():
    given = arguments()
    if given.list:
        print(listed())
        return 0
    if given.simulated and not os.environ.get("KIT_SIMULATED"):      # once more, inside the simulated machine
        return subprocess.run([ALIQUOT, "sim", "--machine", str(HERE / "h200.machine"), "--", "env", "KIT_SIMULATED=1", PYTHON,
                               __file__, *sys.argv[1:]]).returncode
    work = given.out / "work"
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError:
        work = pathlib.Path(tempfile.gettempdir())
    earlier = [*given.resume, TOP / "results"]
    take_over(earlier, work)
    journal = runner.Journal([given.out], earlier)
    gvisor = asking.attempt(facts.is_gvisor) is True
    print(f"{asking.attempt(platform.platform)}, Python {platform.python_version()}, gVisor: {gvisor}, "
          f"reaper: {runner.become_reaper()}", flush=True)
    keeper = runner.hold_open(NODE)
    missing = runner.run_all(in_order(steps(work, given.simulated), gvisor), journal, given.seconds,
                             {"PYTHONDONTWRITEBYTECODE": "1"}, given.simulated, gvisor,
                             only=given.only.split(",") if given.only else (), keep=[keeper.pid] if keeper else [])
    runner.sweep()
    report(journal, missing, given.out / "report.md")
    print("not reached: " + (", ".join(missing) or "nothing"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
