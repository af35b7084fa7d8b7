# SPDX-License-Identifier: Apache-2.0
"""Rehearsals of gpu-kit, since a machine with a GPU is there for minutes only: packed as it travels, on the simulator."""

import concurrent.futures
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import uuid

import asking
import bare
import gpu_kit
import pack
import pytest
import refuse
import runner

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
HERE = TOP / "tests" / "gpu"


def journal_of(directory):
    return [json.loads(line) for line in (directory / "journal.jsonl").read_text().splitlines()]


def outcomes(directory):
    """{step: last outcome}"""
    return {r["step"]: r["outcome"] for r in journal_of(directory)}


def marked_processes(mark):
    """PIDs that have the mark in their environment."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


# -- the folder -------------------------------------------------------------------------------------------------------------

def test_packed_folder_runs_on_older_machines(kit):
    assert not pack.faults(kit)
    assert (kit / "run").stat().st_mode & 0o111


def test_a_binary_that_needs_more_is_refused(build):
    reasons = pack.unfit(build / "src" / "scheduler" / "aliquot-scheduler")
    assert any("libgnutls" in reason for reason in reasons)


def test_forty_questions_documented():
    text = (TOP / "docs" / "gpu-kit.md").read_text()
    assert gpu_kit.listed() in text, "put the output of tests/gpu/kit/gpu_kit.py --list into docs/gpu-kit.md"
    assert len(asking.load()) >= 40


# -- the runner -------------------------------------------------------------------------------------------------------------

def python(code):
    return (sys.executable, "-c", code)


STEPS = [runner.Step("well", python("print('noise'); print('[1]')"), 10),
         runner.Step("fails", python("import sys; sys.exit('no')"), 10),
         runner.Step("hangs", python("import signal, time; signal.signal(15, 1); time.sleep(60)"), 1),
         runner.Step("missing", ("/no/such/program",), 10),
         runner.Step("daemon", python("import os, time\nif os.fork() == 0:\n os.setsid()\n if os.fork() == 0: time.sleep(60)"), 10),
         runner.Step("last", python("print(2)"), 10)]
PROGRAM = """
import sys
sys.path[:0] = [{kit!r}, {here!r}]
import runner, test_kit
runner.become_reaper()
journal = runner.Journal([sys.argv[1]], [])
print(runner.run_all(test_kit.STEPS, journal, float(sys.argv[2]), {{}}, False, False))
"""


def run_steps(out, seconds, mark="none"):
    program = PROGRAM.format(kit=str(HERE / "kit"), here=str(HERE))
    return subprocess.run([sys.executable, "-c", program, out, str(seconds)], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env={**os.environ, "KIT_MARK": mark}).stdout


def test_every_step_is_reported_and_none_leaves_a_process(tmp_path):
    mark = str(uuid.uuid4())
    said = run_steps(tmp_path, 60, mark)
    assert outcomes(tmp_path) == {"well": "answered", "fails": "failed", "hangs": "hung", "missing": "failed", "daemon": "answered",
                                  "last": "answered"}
    assert not marked_processes(mark) and said.endswith("[]\n")
    assert [r["answer"] for r in journal_of(tmp_path) if r["step"] == "well" and r["outcome"] == "answered"] == [[1]]


def test_a_second_call_goes_on(tmp_path):
    """It repeats nothing, and does last what the machine went away in; half a line does no harm."""
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps({"step": step, "begun": 1, "outcome": outcome}) + "\n" for step, outcome in (
        ("well", "answered"), ("fails", "failed"), ("hangs", "interrupted"), ("missing", "begun"))) + '{"step": "daemon", "beg')
    assert run_steps(tmp_path, 60).endswith("[]\n")
    ended = [r["step"] for r in journal_of(tmp_path) if r["begun"] > 1 and r["outcome"] != "begun"]
    assert ended == ["daemon", "last", "hangs", "missing"]


def test_what_an_earlier_call_brought_back_is_taken_over(tmp_path):
    """On another machine: its journal, and files that later steps read; half-empty directories do no harm."""
    earlier, out = tmp_path / "earlier", tmp_path / "out"
    (earlier / "work").mkdir(parents=True)
    (out / "work").mkdir(parents=True)
    (earlier / "work" / "card-nvml").write_text("[]")
    (earlier / "journal.jsonl").write_text('{"step": "well", "begun": 1, "outcome": "answered"}\n')
    gpu_kit.take_over([earlier, tmp_path / "none"], out / "work")
    journal = runner.Journal([out], [earlier, tmp_path / "none"])
    assert (out / "work" / "card-nvml").read_text() == "[]"
    assert [s.name for s in runner.order(STEPS[:2], journal, ())] == ["fails"] and outcomes(out) == {"well": "answered"}


def test_processes_are_ended_without_a_sleep(tmp_path):
    """Where the kernel refuses the sleep between two looks at what is left."""
    program = f"""
import subprocess, sys, time
sys.path[:0] = [{str(HERE / "kit")!r}]
import runner
def refused(_):
    raise PermissionError(1, "not permitted")
for _ in range(20):
    subprocess.Popen(["sleep", "60"], start_new_session=True)
time.sleep = refused
print(runner.sweep(), runner.children())
"""
    assert subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          cwd=tmp_path).stdout == "[] []\n"


def test_the_whole_is_bounded(tmp_path):
    """What there is no time for is said; a step that is cut short by that is asked again."""
    assert run_steps(tmp_path, runner.LEAST_SECONDS - 0.1).endswith("['well', 'fails', 'hangs', 'missing', 'daemon', 'last']\n")
    slow = runner.Step("slow", python("import time; time.sleep(60)"), 30)
    journal = runner.Journal([tmp_path], [])
    assert runner.run_all([slow, STEPS[0]], journal, 4, {}, False, False) == ["well"]
    assert outcomes(tmp_path) == {"slow": "interrupted"} and runner.order([slow], journal, ()) == [slow]


def test_a_step_that_takes_the_machine_away_twice_is_left_out(tmp_path):
    lines = [{"step": "well", "begun": n, "outcome": "begun"} for n in (1, 2)]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run_steps(tmp_path, 60)
    assert outcomes(tmp_path)["well"] == "begun"


def test_the_card_is_held_open_between_steps(tmp_path):
    mark, node = str(uuid.uuid4()), tmp_path / "node"
    node.touch()
    program = PROGRAM.rpartition("print")[0].format(kit=str(HERE / "kit"), here=str(HERE)) + (
        "keeper = runner.hold_open(sys.argv[3])\n"
        "runner.run_all(test_kit.STEPS[:2], journal, 30, {}, False, False, keep=[keeper.pid])\n"
        "print(keeper.poll())")
    said = subprocess.run([sys.executable, "-c", program, tmp_path, "", node], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                          env={**os.environ, "KIT_MARK": mark}).stdout
    assert said.endswith("None\n") and not [r for r in journal_of(tmp_path) if r.get("left")]
    until = time.monotonic() + 10
    while marked_processes(mark):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_under_gvisor_the_kernels_questions_come_last_and_are_marked(tmp_path):
    steps = gpu_kit.in_order(gpu_kit.steps(tmp_path), gvisor=True)
    of_kernel = [step.of_kernel for step in steps]
    assert of_kernel == sorted(of_kernel) and any(of_kernel) and steps[0].name == "facts"
    journal = runner.Journal([tmp_path], [])
    runner.run_all([runner.Step("fork", python("print(1)"), 10, of_kernel=True), STEPS[0]], journal, 30, {}, False, True)
    assert [r.get("driver") for r in journal_of(tmp_path) if r["outcome"] == "answered"] == [False, None]


# -- recording private tables -------------------------------------------------------------------------------------------------

CALLER = """
import ctypes
cuda, table, pfn, why = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
known, unknown = bytes([1] * 16), bytes([2] * 16)
assert cuda.cuGetProcAddress_v2(b"cuGetExportTable", ctypes.byref(pfn), 12000, ctypes.c_uint64(0), ctypes.byref(why)) == 0
assert pfn.value == ctypes.cast(cuda.cuGetExportTable, ctypes.c_void_p).value
assert cuda.cuGetExportTable(ctypes.byref(table), unknown) == 1
for _ in range(2):
    assert cuda.cuGetExportTable(ctypes.byref(table), known) == 0
words = ctypes.cast(table, ctypes.POINTER(ctypes.c_uint64))
assert words[2] == 42
add = ctypes.CFUNCTYPE(ctypes.c_double, *[ctypes.c_long] * 6, *[ctypes.c_double] * 2, ctypes.c_long)(words[1])
for _ in range(6):
    assert add(1, 2, 3, 4, 5, 6, 0.5, 4.0, 7) == 1 + 4 + 9 + 16 + 25 + 36 + 49 + 2
"""


@pytest.mark.parametrize("slots", [False, True])
def test_recorder(build, tmp_path, slots):
    os.symlink(build / "tests/gpu/kit/librecorded.so", tmp_path / "libcuda-driver.so.1")
    os.symlink(build / "tests/gpu/kit/libcuda.so.1", tmp_path / "libcuda.so.1")
    log = tmp_path / "log"
    subprocess.run([sys.executable, "-c", CALLER], check=True, timeout=30, env={
        **os.environ, "LD_LIBRARY_PATH": str(tmp_path), "RECORD_TO": str(log), **({"RECORD_SLOTS": "1"} if slots else {})})
    import tables
    known, unknown = (tables.recorded(log)["-".join([f"{n:02x}" * 4, *[f"{n:02x}" * 2] * 3, f"{n:02x}" * 6])] for n in (1, 2))
    assert unknown["answer"] == 1 and known["asked"] == 2 and known["bytes"] == 24 and known["patched"] == int(slots)
    assert known["slots"] == ({"1": [["1", "2", "3", "4", "5", "6"]] * 4} if slots else {})


# -- rehearsals ---------------------------------------------------------------------------------------------------------------

REHEARSED = "facts,question,answers,limits,shares:30:70,hooks"


def test_in_a_bare_container_without_network(kit, tmp_path):
    """Nothing there but Python and libc; and a second call finds nothing left to do."""
    out, mark = tmp_path / "out", str(uuid.uuid4())
    out.mkdir()
    said = bare.run(kit, out, tmp_path / "root", ["/kit/run", "--simulated", "--out", "/out", "--only", REHEARSED], mark)
    assert (out / "journal.jsonl").exists(), said
    last = outcomes(out)
    steps = runner.order(gpu_kit.steps(out), runner.Journal([], []), REHEARSED.split(","))
    assert "not reached: nothing" in said, said
    assert {s.name for s in steps} == set(last)
    assert {name for name, outcome in last.items() if outcome == "failed"} <= {"question:dmabuf-keeps-memory"}, last      # not simulated
    assert not {"hung", "interrupted", "begun"} & set(last.values()), last
    assert not [r for r in journal_of(out) if r.get("left")]
    assert not marked_processes(mark)
    files = [p for p in out.rglob("*") if p.is_file()]
    assert len(files) <= 8 and max(p.stat().st_size for p in files) <= 16 << 20
    before = len(journal_of(out))
    bare.run(kit, out, tmp_path / "root", ["/kit/run", "--simulated", "--out", "/out", "--only", REHEARSED], mark)
    assert len(journal_of(out)) == before


FEW = "question:mig-off,question:rounding"
AT_ONCE = 8     # some of them mostly wait


def calls_of(kit, directory):
    """The system calls that a run of a few steps makes, by strace."""
    log = directory / "strace"
    subprocess.run(["strace", "-f", "-qq", "-o", log, kit / "run", "--simulated", "--out", directory / "traced", "--only", FEW],
                   check=True, stdout=subprocess.DEVNULL, timeout=120)
    return sorted(set(re.findall(r"^\d+ +(\w+)\(", log.read_text(errors="replace"), re.M)) & set(refuse.numbers()))


def run_refused(kit, directory, call):
    """What the kit says while the kernel refuses one system call."""
    command = [kit / "build/src/cli/aliquot", "sim", "--machine", HERE / "kit/h200.machine", "--", "env", "KIT_SIMULATED=1",
               sys.executable, HERE / "refuse.py", call, kit / "run", "--simulated", "--out", directory / call, "--only", FEW]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=90,
                          cwd=directory).stdout      # where files go that cannot be removed


def is_well(text):
    return text.rstrip().endswith("not reached: nothing") and all(
        re.search(rf"^(answered|failed|hung) .* {step}( |$)", text, re.M) for step in FEW.split(","))


def says_nothing(call, script):
    """Whether the shell and Python with a script do not start, or cannot print, without the system call."""
    script.write_text("import json, subprocess\nprint('here')\n")
    return not subprocess.run([sys.executable, HERE / "refuse.py", call, "/bin/sh", "-c", f"exec python3 {script}"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=30).stdout


def test_each_system_call_refused(kit, tmp_path, monkeypatch):
    """Whatever the kernel refuses, every step is reported and the next one begun, and no process is left."""
    mark = str(uuid.uuid4())
    monkeypatch.setenv("KIT_MARK", mark)
    (tmp_path / "bin").mkdir()
    os.symlink(sys.executable, tmp_path / "bin/python3")      # no shell script that chooses a Python
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    calls = calls_of(kit, tmp_path)
    try:
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            said = dict(zip(calls, pool.map(lambda call: run_refused(kit, tmp_path, call), calls)))
    except subprocess.TimeoutExpired:
        for pid in marked_processes(mark):
            os.kill(pid, signal.SIGKILL)
        raise
    assert {call: text for call, text in said.items() if not is_well(text) and not says_nothing(call, tmp_path / "nothing.py")} == {}
    assert len([text for text in said.values() if is_well(text)]) >= 20, said
    assert not marked_processes(mark)
