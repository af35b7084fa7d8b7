# SPDX-License-Identifier: Apache-2.0
"""The control daemon of a card: its life, its limits, its recovery, and its end. Clients need hardware: tests/gpu."""

import os
import signal
import subprocess
import time

import pytest
from mps_kit import EXCLUSIVE
from sim_kit import wait_until

pytestmark = [pytest.mark.foreign, pytest.mark.waits]

RUN = "run 30 2048 4"


def ended(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_life(world):
    agent = world.agent(RUN)
    agent.wait_for("ready restarts=0")
    assert world.limits() == ["30.0", "2G"]
    assert world.mode() == EXCLUSIVE
    pid = world.daemon()
    environ = open(f"/proc/{pid}/environ", "rb").read().split(b"\0")
    assert b"CUDA_VISIBLE_DEVICES=" + world.uuid.encode() in environ
    assert f"LD_LIBRARY_PATH={world.card}/lib".encode() in environ
    assert (world.card / "lib/libcuda.so.1").resolve() == (world.top / "n/lib/libcuda.so.1").resolve()
    assert (world.card / "log/control.log").exists()
    # What its clients get as /dev/shm is the daemon's, too.
    shm = os.stat(world.card / "shm")
    inside = os.stat(f"/proc/{pid}/root/dev/shm")
    assert (shm.st_dev, shm.st_ino) == (inside.st_dev, inside.st_ino)
    assert shm.st_mode & 0o7777 == 0o1777
    # Containers write there: neither may grow with the file system of the state.
    for path in (world.pipe, world.card / "shm"):
        assert os.stat(path).st_dev != os.stat(world.card).st_dev
        assert os.statvfs(path).f_blocks * os.statvfs(path).f_frsize <= 3 << 30
    agent.tell("stop")
    agent.wait_for("none")
    wait_until(lambda: ended(pid), what="daemon has ended")
    world.assert_nothing_left()
    agent.tell("close")
    assert agent.wait() == 0


def test_files_of_containers_do_not_delay_the_end(world):
    """A tree whose paths are longer than PATH_MAX."""
    agent = world.agent(RUN)
    agent.wait_for("ready")
    fd = os.open(world.card / "shm", os.O_RDONLY)
    for _ in range(30):
        os.mkdir("x" * 200, dir_fd=fd)
        inner = os.open("x" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)
    agent.tell("stop")
    agent.wait_for("none")
    world.assert_nothing_left()


def test_the_former_mode_returns(world):
    """Prohibited, as an administrator can have set it."""
    world.mode(2)
    agent = world.agent(RUN)
    agent.wait_for("ready")
    agent.tell("close")
    assert agent.wait() == 0
    world.assert_nothing_left(mode=2)


def test_limits_change(world):
    agent = world.agent(RUN)
    agent.wait_for("ready")
    pid = world.daemon()
    agent.tell("run 60 1000 2")
    wait_until(lambda: world.limits() == ["60.0", "1000M"], what="new limits")
    assert world.daemon() == pid


def test_killed_and_limits_given_again(world):
    agent = world.agent(RUN)
    agent.wait_for("ready restarts=0")
    first = world.daemon()
    assert world.kill_daemon() == first
    state = agent.wait_for("not-ready")
    assert state.endswith("the MPS control daemon has ended"), "the same text at each end: it is the card's reason"
    agent.wait_for("ready restarts=1")
    assert world.daemon() not in (0, first)
    assert world.limits() == ["30.0", "2G"]
    assert world.mode() == EXCLUSIVE


def test_restarts_back_off(world):
    """A daemon that ends at once is started again at growing intervals: 0.1, 0.2, 0.4, 0.5, 0.5 s here."""
    agent = world.agent(RUN)
    agent.wait_for("ready restarts=0")
    began = time.monotonic()
    for n in range(1, 6):
        world.kill_daemon()
        agent.wait_for(f"ready restarts={n}$")
    assert time.monotonic() - began >= 0.1 + 0.2 + 0.4 + 0.5 + 0.5


def test_a_server_that_remains_is_ended(world):
    """A program of that name with the pipe directory in its environment; another directory's is left alone."""
    agent = world.agent(RUN)
    agent.wait_for("ready")
    fake = world.top / "nvidia-cuda-mps-server"
    fake.symlink_to("/bin/sleep")
    ours = subprocess.Popen([fake, "600"], env=world.control_env())
    other = subprocess.Popen([fake, "600"], env={**world.control_env(), "CUDA_MPS_PIPE_DIRECTORY": f"{world.pipe}2"})
    try:
        world.kill_daemon()
        assert ours.wait(20) == -signal.SIGKILL
        agent.wait_for("ready restarts=1")
        assert other.poll() is None
    finally:
        ours.kill()
        other.kill()
        ours.wait()
        other.wait()


@pytest.mark.parametrize("wanted", [True, False], ids=["wanted", "not-wanted"])
@pytest.mark.parametrize("step", ["before-compute-mode", "after-compute-mode", "before-set-mode", "after-set-mode",
                                  "before-mps-daemon", "after-mps-daemon", "before-limits", "after-limits"])
def test_agent_killed_at_each_step(world, step, wanted):
    world.set_hold(step)
    agent = world.agent(RUN)
    pid = world.wait_hold(step)
    agent.kill()
    os.kill(pid, signal.SIGKILL)  # as PR_SET_PDEATHSIG does
    world.set_hold(step, False)
    left = world.daemon()
    assert bool(left) == (step in ("after-mps-daemon", "before-limits", "after-limits"))
    agent = world.agent(RUN if wanted else "stop")
    if wanted:
        agent.wait_for("ready restarts=0")
        assert world.limits() == ["30.0", "2G"] and world.mode() == EXCLUSIVE
        assert not left or world.daemon() == left, "it was not adopted"
        agent.tell("stop")
    agent.wait_for("none")
    agent.tell("close")
    assert agent.wait() == 0
    world.assert_nothing_left()


@pytest.mark.parametrize("step", ["before-quit", "after-quit"])
def test_agent_killed_at_the_end(world, step):
    agent = world.agent(RUN)
    agent.wait_for("ready")
    world.set_hold(step)
    agent.tell("stop")
    pid = world.wait_hold(step)
    agent.kill()
    os.kill(pid, signal.SIGKILL)
    world.set_hold(step, False)
    agent = world.agent("stop")
    agent.wait_for("none")
    agent.tell("close")
    assert agent.wait() == 0
    world.assert_nothing_left()


def test_a_daemon_of_a_killed_agent_with_other_limits(world):
    agent = world.agent(RUN)
    agent.wait_for("ready")
    pid = world.daemon()
    agent.kill()
    assert world.daemon() == pid
    agent = world.agent("run 50 4096 2")
    agent.wait_for("ready restarts=0")
    assert world.daemon() == pid and world.limits() == ["50.0", "4G"]


def test_a_stopped_daemon_of_a_killed_agent(world):
    """It holds the lock and does not answer."""
    agent = world.agent(RUN)
    agent.wait_for("ready")
    pid = world.daemon()
    agent.kill()
    os.kill(pid, signal.SIGSTOP)
    agent = world.agent(RUN, deadline_ms=3000)
    assert "no answer in time" in agent.wait_for("not-ready restarts=0 the MPS control daemon does")
    agent.wait_for("ready restarts=1")
    assert world.daemon() != pid and world.limits() == ["30.0", "2G"]


def test_a_daemon_that_hangs(world):
    agent = world.agent(RUN, deadline_ms=3000, interval_ms=200)
    agent.wait_for("ready")
    pid = world.daemon()
    os.kill(pid, signal.SIGSTOP)
    assert "no answer in time" in agent.wait_for("not-ready")
    agent.wait_for("ready restarts=1")
    assert world.daemon() != pid
    wait_until(lambda: ended(pid), what="the daemon that hung has ended")


def test_limits_that_another_program_changed(world):
    agent = world.agent(RUN, interval_ms=200)
    agent.wait_for("ready")
    world.ask("set_default_active_thread_percentage 99")
    assert "'99.0'" in agent.wait_for("not-ready")
    agent.wait_for("ready restarts=0")
    assert world.limits() == ["30.0", "2G"]


def test_a_second_daemon(world):
    """What another program started in the pipe directory is adopted and ended with the rest."""
    world.pipe.mkdir(parents=True)
    (world.card / "log").mkdir()
    subprocess.run([world.real, "-d"], env=world.control_env(), check=True)
    pid = world.daemon()
    assert pid != 0
    agent = world.agent(RUN)
    agent.wait_for("ready restarts=0")
    assert world.daemon() == pid and world.limits() == ["30.0", "2G"]
    # NVIDIA's program refuses one more.
    r = subprocess.run([world.real, "-d"], env=world.control_env(), capture_output=True, text=True, check=False)
    assert r.returncode == 1 and "already running" in r.stdout
    agent.tell("close")
    assert agent.wait() == 0
    world.assert_nothing_left()


def test_an_administrator_at_the_prompt(world):
    """NVIDIA's daemon takes one client of its control interface at a time. Its limits hold meanwhile, and new ones wait."""
    agent = world.agent(RUN, interval_ms=100)
    agent.wait_for("ready restarts=0")
    pid = world.daemon()
    log = world.card / "log/control.log"
    prompt = subprocess.Popen([world.real], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=world.control_env())
    try:
        wait_until(lambda: "its limits cannot be checked" in "".join(agent.log), what="a check that was refused")
        agent.tell("run 60 1000 2")
        agent.wait_for("not-ready restarts=0 another program uses the control interface of the MPS daemon$")
        refused = log.read_text().count("Accepting")
        wait_until(lambda: log.read_text().count("Accepting") > refused + 5, what="more tries than a wrong answer has")
    finally:
        prompt.kill()
        prompt.wait()
    agent.wait_for("ready restarts=0")
    assert world.limits() == ["60.0", "1000M"]
    assert world.daemon() == pid


@pytest.mark.parametrize(("fault", "reason"), [
    ("lie", "the MPS control daemon answers '' and '100.0' for its limits of 30 % and 2048M"),
    ("no-answer", "the MPS control daemon does not take its limits: no answer in time"),
    ("no-daemon", "the MPS control daemon has ended at its start; its log is"),
])
def test_faults_of_a_fake(world, fault, reason):
    """The real daemon cannot be made to show these. Each ends, and MPS with it, when the fault is gone."""
    world.set_hold(fault)
    agent = world.agent(RUN, deadline_ms=3000)
    assert reason in agent.wait_for(f"not-ready restarts=[0-9]+ {reason[:30]}")
    world.set_hold(fault, False)
    agent.wait_for("ready")
    assert world.limits() == ["30.0", "2G"]
    agent.tell("close")
    assert agent.wait() == 0
    world.assert_nothing_left()


def test_a_quit_that_hangs(world):
    agent = world.agent(RUN, deadline_ms=3000)
    agent.wait_for("ready")
    world.set_hold("no-answer")
    agent.tell("stop")
    agent.wait_for("none")
    world.assert_nothing_left()


def test_a_too_long_pipe_directory(world):
    long = world.top / ("x" * (87 - len(str(world.top)) - len(world.uuid) - len("///pipe")))
    agent = world.agent(RUN, state_dir=long)
    agent.wait_for("ready")
    agent.tell("close")
    agent.wait()
    agent = world.agent(RUN, state_dir=f"{long}x")
    agent.wait_for("none")
    agent.tell("close")
    agent.wait()
    assert "would have more than 87 bytes; use a shorter --state-dir" in "".join(agent.log)


def test_too_many_replicas(world):
    agent = world.agent("run 2 100 49")
    assert "49 replicas: under MPS the card takes 48 clients at most" in agent.wait_for("not-ready restarts=0 49")
    agent.tell("run 2 100 48")
    agent.wait_for("ready")


def test_containers_delay_start_and_end(world):
    agent = world.agent("held 1", RUN)
    assert "MPS begins when containers without it have ended: 1 left" in agent.wait_for("not-ready")
    assert world.mode() == 0 and not world.daemon()
    agent.tell("held 0")
    agent.wait_for("ready")
    pid = world.daemon()
    agent.tell("held 1", "stop")
    assert "MPS ends when its containers have ended: 1 left" in agent.wait_for("not-ready")
    assert world.daemon() == pid
    # An agent that ends leaves them their daemon, and the next one adopts it.
    agent.tell("close")
    assert agent.wait() == 0
    assert world.daemon() == pid and world.mode() == EXCLUSIVE
    agent = world.agent("held 1", RUN)
    agent.wait_for("ready restarts=0")
    assert world.daemon() == pid
    agent.tell("held 0", "stop")
    agent.wait_for("none")
    world.assert_nothing_left()


def test_a_container_restarts_with_what_it_has(world):
    """While the card waits for it to end, in both directions."""
    agent = world.agent("held 1", RUN)
    agent.tell("start", "restart")
    assert "MPS begins when" in agent.wait_for("start")
    assert agent.wait_for("start") == "start: without MPS"
    agent.tell("held 0")
    agent.wait_for("ready")
    agent.tell("held 1", "stop", "start", "restart")
    assert "MPS ends when" in agent.wait_for("start")
    assert agent.wait_for("start") == f"start: {world.card}"
    agent.tell("held 0")
    agent.wait_for("none")


def test_logs_are_truncated(world):
    """Each client adds lines to server.log."""
    agent = world.agent(RUN, interval_ms=200)
    agent.wait_for("ready")
    log = world.card / "log/server.log"
    log.write_bytes(b"x" * (2 << 20))
    wait_until(lambda: log.stat().st_size == 0, what="server.log is truncated")


def test_a_reset_takes_the_mode(world):
    agent = world.agent(RUN)
    agent.wait_for("ready")
    agent.tell("lost")
    world.mode(0)
    agent.tell("back")
    wait_until(lambda: world.mode() == EXCLUSIVE, what="mode is set again")
    # Between two polls NVML answers before the reset and after it: only the verdict has changed.
    agent.tell("fault")
    world.mode(0)
    agent.tell("reset")
    wait_until(lambda: world.mode() == EXCLUSIVE, what="mode is set again after the reset")
    agent.tell("stop")
    agent.wait_for("none")


def test_a_reset_closes_the_card(world):
    """The daemon ends before the reset command and has its limits again after it, also with an agent in between that was
    killed."""
    agent = world.agent(RUN)
    agent.wait_for("ready restarts=0")
    for kill in False, True:
        first = world.daemon()
        agent.tell("pause")
        agent.wait_for("paused")
        assert world.programs() == [] and world.mode() == 0
        if kill:
            agent.kill()
            agent = world.agent(RUN)
            agent.tell("pause")
            agent.wait_for("paused")
            assert world.programs() == []
        agent.tell("resume")
        agent.wait_for("ready")
        assert world.daemon() not in (0, first)
        assert world.limits() == ["30.0", "2G"] and world.mode() == EXCLUSIVE
    agent.tell("stop")
    agent.wait_for("none")
    world.assert_nothing_left()


def test_mig(world):
    agent = world.agent("divided", RUN)
    assert "a card in MIG mode takes no MPS" in agent.wait_for("not-ready.*MIG")
    assert not world.card.exists()


def test_selinux(world):
    """Any directory plays /sys/fs/selinux: without SELinux the kernel keeps the label as it is."""
    agent = world.agent(RUN, selinux=world.top)
    agent.wait_for("ready")
    label = b"system_u:object_r:container_file_t:s0\0"
    assert os.getxattr(world.pipe, "security.selinux") == label
    assert os.getxattr(world.card / "shm", "security.selinux") == label


def test_the_driver_has_no_mps(world):
    world.control = ""
    agent = world.agent(RUN)
    assert "the driver's nvidia-cuda-mps-control is not on this node" in agent.wait_for("not-ready.*driver")
    assert world.mode() == 0
    agent.tell("close")
    assert agent.wait() == 0
