# SPDX-License-Identifier: Apache-2.0
"""`aliquot run` as a command: options, exit statuses, signals, and what it leaves behind."""

import os
import signal
import subprocess

import pytest


@pytest.fixture
def run(aliquot):
    def call(*options, gpus=2, env=None):
        return subprocess.run([aliquot, "sim", "--gpus", str(gpus), "--", aliquot, "run", *options],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60,
                              env=dict(os.environ, **(env or {})))
    return call


def test_exit_statuses_are_the_commands(run):
    assert run("--memory", "1Gi", "--", "sh", "-c", "exit 7").returncode == 7
    assert run("--memory", "1Gi", "--", "true").returncode == 0
    assert run("--memory", "1Gi", "--", "sh", "-c", "kill -KILL $$").returncode == 137
    missing = run("--memory", "1Gi", "--", "/no/such/program")
    assert missing.returncode == 127 and "/no/such/program" in missing.stderr
    assert run("--memory", "1Gi", "--", "/etc/passwd").returncode == 126


@pytest.mark.parametrize("options, hint", [
    (["--memory", "4Gi"], "no command"),
    (["--memory", "lots", "--", "true"], "lots"),
    (["--memory", "100Gi", "--", "true"], "has only"),
    (["--memory", "1Mi", "--", "true"], "context"),
    (["--core", "150", "--", "true"], "150"),
    (["--core", "0", "--", "true"], "1 to 100"),
    (["--weight", "101", "--", "true"], "--weight 101"),
    (["--ceiling", "0", "--", "true"], "--ceiling 0"),
    (["--policy", "greedy", "--", "true"], "greedy"),
    (["--policy", "fixed", "--", "true"], "needs --core"),
    (["--gpu", "7", "--", "true"], "2 GPUs"),
    (["--gpu", "GPU-nonsense", "--", "true"], "no such GPU"),
    (["--gpu", "GPU-", "--", "true"], "more than one"),
    (["--gpu", "", "--", "true"], "empty"),
    (["--gpu", ",", "--", "true"], "needs the index"),
    (["--colour", "red", "--", "true"], "colour"),
])
def test_wrong_options_say_what_is_wrong(run, options, hint):
    done = run(*options)
    assert done.returncode == 2 and hint in done.stderr, done.stderr
    assert done.stdout == ""


def test_help(aliquot):
    done = subprocess.run([aliquot, "run", "--help"], stdout=subprocess.PIPE, text=True, check=True)
    for word in ("--memory", "--core", "--policy", "--weight", "--ceiling", "--gpu", "exit status", "aliquot sim",
                 "aliquot limits"):
        assert word in done.stdout


def test_without_a_driver(aliquot, tmp_path):
    done = subprocess.run([aliquot, "run", "--memory", "1Gi", "--", "true"], stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ, LD_LIBRARY_PATH=str(tmp_path), ALIQUOT_SIM_DIR=str(tmp_path)))
    assert done.returncode == 126 and "no NVIDIA driver" in done.stderr


def test_a_gpu_by_index_and_by_uuid(run):
    show = ("--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    second = run("--gpu", "1", *show).stdout.strip()
    assert second.startswith("GPU-") and run("--gpu", second, *show).stdout.strip() == second
    assert run("--gpu", second[:12], *show).stdout.strip() == second
    both = run("--gpu", "0,1,0", *show).stdout.strip().split(",")
    assert len(both) == 2 and both[1] == second
    assert run("--memory", "1Gi", *show, env={"CUDA_VISIBLE_DEVICES": "1"}).stdout.strip() == "1"


def test_environment_of_the_command(run, build):
    done = run("--memory", "1Gi", "--", "sh", "-c", "echo $LD_PRELOAD; ls $ALIQUOT_SHARE_DIR",
               env={"LD_PRELOAD": "libm.so.6"})
    preload, *files = done.stdout.split()
    assert preload == f"{build}/src/intercept/libaliquot.so:libm.so.6"
    assert files == ["arbiter", "compute", "grants", "ledger", "limits"]


def test_a_share_is_not_divided_again(run, aliquot):
    done = run("--memory", "2Gi", "--", aliquot, "run", "--memory", "4Gi", "--", "true")
    assert done.returncode == 126 and "already in a share" in done.stderr


def start(aliquot, script, *arguments):
    return subprocess.Popen([aliquot, "sim", "--", aliquot, "run", "--memory", "1Gi", "--", "sh", "-c", script,
                             "sh", *arguments], stdout=subprocess.PIPE, text=True)


def test_signals_reach_the_command(aliquot, tmp_path):
    """Sent to `aliquot run` itself, whose PID the command knows as its parent's."""
    child = start(aliquot, "trap 'echo got; exit 5' TERM; echo $PPID $ALIQUOT_SHARE_DIR; "
                           "while :; do sleep 0.05; done")
    pid, place = child.stdout.readline().split()
    os.kill(int(pid), signal.SIGTERM)
    assert child.stdout.readline() == "got\n"
    assert child.wait(timeout=20) == 5
    child.stdout.close()
    assert not os.path.exists(place)


def test_leaves_nothing_behind(run):
    place = run("--memory", "1Gi", "--", "sh", "-c", "echo $ALIQUOT_SHARE_DIR").stdout.strip()
    assert place and not os.path.exists(place)


def test_clears_up_after_a_killed_run(aliquot, run):
    child = start(aliquot, "echo $PPID $ALIQUOT_SHARE_DIR; exec sleep 0.2")
    pid, place = child.stdout.readline().split()
    os.kill(int(pid), signal.SIGKILL)
    child.wait(timeout=20)
    child.stdout.close()
    assert os.path.exists(place)
    run("--memory", "1Gi", "--", "true")
    assert not os.path.exists(place)


def test_an_instance_of_a_divided_gpu(aliquot, tmp_path):
    machine = tmp_path / "machine"
    machine.write_text("[gpu 0-1]\nmodel = A100\n[gpu 0]\nmig = 3g.40gb,1g.10gb\n")
    script = ("for u in $(\"$0\" sim show | sed -n 's/.*uuid=\\(MIG-[^ ]*\\).*/\\1/p'); do"
              " \"$0\" run --memory 4Gi --gpu $u -- sh -c 'echo $CUDA_VISIBLE_DEVICES'; done;"
              " \"$0\" run --gpu MIG- -- true; \"$0\" run --gpu 2 -- true; \"$0\" run --memory 20Gi --gpu $u -- true")
    done = subprocess.run([aliquot, "sim", "--machine", machine, "--", "sh", "-c", script, aliquot],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    assert len(set(done.stdout.split())) == 2 and all(u.startswith("MIG-") for u in done.stdout.split())
    several, index, size = done.stderr.splitlines()
    assert "more than one" in several and "there are 2 GPUs" in index and "has only" in size
