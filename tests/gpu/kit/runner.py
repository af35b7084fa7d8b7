# SPDX-License-Identifier: Apache-2.0
"""Runs steps one after the other: each bounded, each written down, whatever it does."""

import ctypes
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

OUTPUT_BYTES = 256 << 10        # of one step, of its standard output
ERRORS_BYTES = 8 << 10
JOURNAL_BYTES = 15 << 20
END_SECONDS = 2                 # that killed processes get to go
LEAST_SECONDS = 3               # no step is begun with less
PR_SET_CHILD_SUBREAPER = 36

# Not asked again by a second call.
DONE = ("answered", "failed", "hung", "skipped", "lost")


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    command: tuple
    seconds: int
    about: str = ""
    real_only: bool = False     # says nothing about the simulator
    of_kernel: bool = False     # under gVisor the answer is not the driver's
    environment: tuple = ()     # pairs


class Journal:
    """One line of JSON for each step, in every directory that can be written to."""

    def __init__(self, directories, earlier):
        self.records, self.files, self.bytes = [], [], 0
        for directory in [*directories, *earlier]:
            self.read(pathlib.Path(directory) / "journal.jsonl")
        for directory in directories:
            try:
                pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
                path = pathlib.Path(directory) / "journal.jsonl"
                path.write_text("".join(json.dumps(r) + "\n" for r in self.records))
                self.files.append(path)
            except OSError as why:
                print(f"cannot write below {directory}: {why}", flush=True)

    def read(self, path):
        known = {(r["step"], r["begun"], r["outcome"]) for r in self.records}
        try:
            lines = path.read_text().splitlines()
        except OSError:
            return
        for line in lines:
            try:
                record = json.loads(line)
                if (record["step"], record["begun"], record["outcome"]) not in known:
                    self.records.append(record)
            except (ValueError, KeyError, TypeError):
                continue        # the end of a line is missing where the machine went away

    def last(self, step):
        """The last outcome of a step, or None; "lost" where the machine went away during it, twice."""
        outcomes = [r["outcome"] for r in self.records if r["step"] == step]
        return "lost" if outcomes[-1:] == ["begun"] and outcomes.count("begun") > 1 else (outcomes or [None])[-1]

    def add(self, record):
        line = json.dumps(record) + "\n"
        if self.bytes + len(line) > JOURNAL_BYTES:
            record = {**record, "answer": None, "output": "left out: the journal is full"}
            line = json.dumps(record) + "\n"
        self.bytes += len(line)
        self.records.append(record)
        for path in self.files:
            try:
                with open(path, "a", encoding="utf-8") as f:
                    f.write(line)
                    f.flush()
                    os.fsync(f.fileno())
            except OSError as why:
                print(f"cannot write to {path}: {why}", flush=True)


def become_reaper():
    """Processes whose parents end become ours, so that none is left. Returns what the kernel answered."""
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except OSError as why:
        return str(why)


def hold_open(node):
    """A process that has a device node open until we end, so that the driver does not set the card up anew for each step; or None."""
    try:
        return subprocess.Popen((sys.executable, "-c", f"import os, sys; os.open({node!r}, os.O_RDWR); sys.stdin.read()"),
                                stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) if os.path.exists(node) else None
    except OSError as why:
        print(f"cannot hold {node} open: {why}", flush=True)
        return None


def children():
    """PIDs of our children, those that have ended included."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                if int(stat.read().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(name))
        except (OSError, IndexError, ValueError):
            continue
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def sweep(keep=()):
    """Ends every process that a step has left; returns the PIDs of those that do not go."""
    until = time.monotonic() + END_SECONDS
    while True:
        reap()
        try:
            left = [pid for pid in children() if pid not in keep]
        except OSError as why:
            return [f"cannot tell: {why}"]
        if not left or time.monotonic() > until:
            return left
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            time.sleep(0.01)
        except OSError:     # refused by the kernel: the loop goes on without a pause
            pass


def kill_group(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except OSError:
        try:
            process.kill()
        except OSError:
            pass


def read_back(f, most, end=False):
    size = f.seek(0, os.SEEK_END)
    f.seek(max(0, size - most) if end else 0)
    return f.read(most).decode(errors="replace")


def last_json(text):
    """A step's answer is the last line that it prints, if that is JSON."""
    try:
        return json.loads(text.strip().rpartition("\n")[2])
    except ValueError:
        return None


def execute(step, seconds, environment):
    """What came of a step, as parts of its record."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(step.command, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
                                   env={**os.environ, **environment, **dict(step.environment)})
        try:
            status = process.wait(seconds)
            outcome = "answered" if status == 0 else "failed"
        except subprocess.TimeoutExpired:
            status, outcome = None, "hung" if seconds >= step.seconds else "interrupted"
        except OSError as why:
            status, outcome = str(why), "failed"
        kill_group(process)
        text = read_back(output, OUTPUT_BYTES)
        answer = last_json(text)
        return {"outcome": outcome, "status": status, "answer": answer, "output": "" if answer is not None else text,
                "errors": read_back(errors, ERRORS_BYTES, end=True)}


def run_step(step, seconds, environment, marks, keep=()):
    """The record of a step; never an exception."""
    record = {"step": step.name, "begun": round(time.time(), 3), "about": step.about, **marks}
    begin = time.monotonic()
    try:
        record.update(execute(step, seconds, environment))
    except Exception as why:    # refused by the kernel, the disk, the limits: a result like others
        record.update(outcome="failed", status=f"{type(why).__name__}: {why}", answer=None, output="", errors="")
    try:
        record["left"] = sweep(keep)
    except Exception as why:
        record["left"] = [f"cannot tell: {why}"]
    record["seconds"] = round(time.monotonic() - begin, 2)
    return record


def order(steps, journal, only):
    """What is to be done: what was begun before and not ended comes last."""
    wanted = [s for s in steps if not only or s.name in only or s.name.split(":")[0] in only]
    todo = [s for s in wanted if journal.last(s.name) not in DONE]
    return sorted(todo, key=lambda s: journal.last(s.name) is not None)


def run_all(steps, journal, seconds, environment, simulated, gvisor, only=(), keep=()):
    """Returns the names of steps that were not reached."""
    end = time.monotonic() + seconds
    todo = order(steps, journal, only)
    for at, step in enumerate(todo):
        left = end - time.monotonic()
        if left < LEAST_SECONDS:
            return [s.name for s in todo[at:]]
        marks = {"driver": False} if step.of_kernel and gvisor else {}
        if simulated and step.real_only:
            record = {"step": step.name, "begun": round(time.time(), 3), "outcome": "skipped", "status": "needs a real driver",
                      "seconds": 0}
        else:
            journal.add({"step": step.name, "begun": round(time.time(), 3), "outcome": "begun"})
            record = run_step(step, min(step.seconds, left - 1), environment, marks, keep)
        journal.add(record)
        print(f"{record['outcome']:11} {record['seconds']:6.2f} s  {step.name}"
              f"{'  left: ' + str(record['left']) if record.get('left') else ''}", flush=True)
    return []
