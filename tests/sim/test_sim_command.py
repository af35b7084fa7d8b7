# SPDX-License-Identifier: Apache-2.0
"""`aliquot sim -- CMD` and `aliquot sim --listen DIR`."""

import contextlib
import glob
import os
import pty
import signal
import subprocess

import pytest
from sim_kit import ALIQUOT, PROGRAMS, Node, wait_until


def sim(*args, **more):
    return subprocess.run([ALIQUOT, "sim", *args], capture_output=True, text=True, timeout=60,
                          check=False, **more)


def dirs():
    return set(glob.glob("/tmp/aliquot-sim-*"))


def dir_of(pid):
    """Where the private directory of a running `aliquot sim` is: the lock it holds open."""
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            target = os.readlink(fd)
        except OSError:
            continue
        if target.startswith("/tmp/aliquot-sim-") and target.endswith("/lock"):
            return os.path.dirname(target)
    return None


@pytest.mark.parametrize("script,status", [("exit 0", 0), ("exit 7", 7), ("kill -TERM $$", 143)])
def test_exits_with_the_commands_status(script, status):
    assert sim("--", "sh", "-c", script).returncode == status


def test_command_that_cannot_run():
    r = sim("--", "/no/such/program")
    assert r.returncode == 127 and "/no/such/program" in r.stderr
    assert sim("--", "/etc/passwd").returncode == 126
    r = sim("--", "nvidia-smi", env=dict(os.environ, PATH="/nonexistent"))  # what a laptop without a driver lacks
    assert r.returncode == 127 and "package nvidia-smi" in r.stderr


@pytest.mark.parametrize("args", [[], ["--gpus", "0", "--", "true"], ["--gpus", "65", "--", "true"],
                                  ["--model", "B9000", "--", "true"], ["--gpus", "x", "--", "true"],
                                  ["--listen", "/tmp/x", "--", "true"], ["--nonsense"]])
def test_wrong_use_is_told(args):
    r = sim(*args)
    assert r.returncode == 2 and r.stderr.startswith("aliquot sim: "), r.stderr


def test_passes_arguments_input_and_output():
    r = sim("--", "sh", "-c", 'cat; echo "$1"', "sh", "a b", input="in\n")
    assert r.stdout == "in\na b\n"


def test_inside_itself():
    r = sim("--gpus", "2", "--", ALIQUOT, "sim", "--gpus", "1", "--model", "T4", "--",
            PROGRAMS / "sim-hold", "1", stdin=subprocess.DEVNULL)
    assert r.stdout.split()[:2] == ["0", str(15360 * 2**20 - 104 * 2**20 - 1)]


def test_signals_reach_the_command_once():
    script = 'trap "echo got; exit 5" TERM; echo ready; while :; do sleep 0.01; done'
    p = subprocess.Popen([ALIQUOT, "sim", "--", "sh", "-c", script], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "ready\n"
    p.send_signal(signal.SIGTERM)
    out, _ = p.communicate(timeout=10)
    assert out == "got\n" and p.returncode == 5


def test_ctrl_c():
    """A terminal sends it to both: the command gets it once, and everything is cleaned up."""
    script = 'trap "echo got; exit 6" INT; echo $ALIQUOT_SIM_DIR; while :; do sleep 0.01; done'
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(ALIQUOT, ["aliquot", "sim", "--", "sh", "-c", script])
    output = b""
    while not output.endswith(b"\n"):
        output += os.read(terminal, 4096)
    where = output.decode().strip()
    assert os.path.isdir(where)
    os.write(terminal, b"\x03")
    with contextlib.suppress(OSError):  # how a terminal ends
        while more := os.read(terminal, 4096):
            output += more
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 6 and output.count(b"got") == 1
    assert not os.path.exists(where)


def test_leaves_nothing_behind():
    script = "ls -d $ALIQUOT_SIM_DIR"
    where = sim("--", "sh", "-c", script).stdout.strip()
    assert where.startswith("/tmp/aliquot-sim-") and not os.path.exists(where)


def test_killed_hard_is_no_obstacle():
    p = subprocess.Popen([ALIQUOT, "sim", "--", "sh", "-c", "echo up; exec sleep 30"],
                         stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "up\n"
    left = dir_of(p.pid)
    child = int(open(f"/proc/{p.pid}/task/{p.pid}/children", encoding="ascii").read())
    p.kill()
    p.wait()
    os.kill(child, signal.SIGKILL)
    assert left in dirs()
    assert sim("--", "true").returncode == 0
    assert left not in dirs()


def test_a_directory_removed_before_it_is_locked_is_made_again():
    r = sim("--", "sh", "-c", "ls $ALIQUOT_SIM_DIR",
            env=dict(os.environ, LD_PRELOAD=str(PROGRAMS / "libremoved-first.so")))
    assert r.returncode == 0 and "lib" in r.stdout.split(), r
    assert r.stderr.startswith("removed /tmp/aliquot-sim-"), r.stderr


def test_another_runs_directory_is_left_alone():
    p = subprocess.Popen([ALIQUOT, "sim", "--", "cat"], stdin=subprocess.PIPE)
    wait_until(lambda: dir_of(p.pid), what="it holds its lock")
    assert sim("--", "true").returncode == 0
    assert dir_of(p.pid) in dirs()
    p.communicate()
    assert p.returncode == 0


def test_listen_after_a_hard_kill_and_not_twice(tmp_path, node_of):
    first = Node(tmp_path / "run")
    second = sim("--listen", tmp_path / "run")
    assert second.returncode == 1 and "another" in second.stderr
    first.daemon.kill()
    first.daemon.communicate()
    assert (tmp_path / "run/nvidiactl").exists()
    again = Node(tmp_path / "run")
    wait_until(lambda: again.run(PROGRAMS / "sim-hold", "1").returncode == 0, what="it serves")
    again.close()
    assert not (tmp_path / "run/nvidiactl").exists()


def test_models_by_gpu():
    tool = PROGRAMS / "sim-hold"
    r = sim("--gpus", "3", "--model", "T4,L4", "--", "sh", "-c",
            f"{tool} 1 0 </dev/null; {tool} 1 1 </dev/null; {tool} 1 2 </dev/null")
    free = [int(line.split()[1]) for line in r.stdout.splitlines()]
    assert free[0] == (15360 - 104) * 2**20 - 1
    assert free[1] == free[2] == (23034 - 256) * 2**20 - 1
