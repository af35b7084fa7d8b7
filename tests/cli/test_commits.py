# SPDX-License-Identifier: Apache-2.0
"""scripts/check-commits and scripts/build-commits, each on a small repository of its own."""

import errno
import importlib.machinery
import importlib.util
import os
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts"
PROJECT = "project('p', 'c')\nexecutable('p', 'p.c')\n"
# The build says that it runs and ends when it is let.
GATED = PROJECT + "custom_target(output: 'x', build_by_default: true, command: ['sh', '-c', '{}'])\n"


@pytest.fixture(scope="module")
def rules():
    loader = importlib.machinery.SourceFileLoader("check_commits", str(SCRIPTS / "check-commits"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_commits", loader))
    loader.exec_module(module)
    return module


class Repository:
    def __init__(self, top):
        self.top = top
        self.environment = {
            **os.environ, "ALIQUOT_CACHE": str(top.parent / "cache"), "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}
        top.mkdir()
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *arguments):
        return subprocess.run(["git", *arguments], cwd=self.top, env=self.environment, check=True, text=True,
                              stdout=subprocess.PIPE).stdout

    def commit(self, message, **files):
        for name, text in files.items():
            (self.top / name.replace("_", ".")).write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "-m", message)

    def start(self, script, *arguments):
        return subprocess.Popen([SCRIPTS / script, *arguments], cwd=self.top, env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)

    def run(self, script, *arguments):
        process = self.start(script, *arguments)
        return process.communicate()[0], process.returncode

    def worktrees(self):
        return len(self.git("worktree", "list").splitlines())


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path / "repository")


@pytest.mark.parametrize("subject", [
    "agent: read the notes of noise in one place", "docs, make: bound the Events", "scripts/mutate: embed the list",
    "wire: pass the error on", "tests: re-read the file", f"base: {'x' * 66}"])
def test_subjects_that_are_as_they_should_be(rules, subject):
    assert list(rules.subject_breaches(subject)) == []


@pytest.mark.parametrize("subject", [
    "Read the notes", "agent read the notes", "agent: Read the notes", "agent: read the notes.", "agent: reads the notes",
    "agent: added a note", "agent: reading the notes", "docs: the notes", "agent: tell nobo" "dy", f"base: {'x' * 67}",
    "agent: name the process that holds it and who started it", "docs: what is kept"])
def test_subjects_that_are_not(rules, subject):
    assert len(list(rules.subject_breaches(subject))) == 1


def test_a_commit_says_why_unless_it_is_small(rules):
    assert list(rules.message_breaches("agent: read it\n", rules.TRIVIAL_LINES)) == []
    assert len(list(rules.message_breaches("agent: read it\n", rules.TRIVIAL_LINES + 1))) == 1
    assert list(rules.message_breaches("agent: read it\n\nIt is late.\n", rules.TRIVIAL_LINES + 1)) == []
    assert len(list(rules.message_breaches("agent: read it\nIt is late.\n", 1))) == 1
    assert len(list(rules.message_breaches("agent: read it\n\nSomebo" "dy waits.\n", 1))) == 1


def test_a_commit_is_small_or_says_why_it_is_not(rules):
    large = rules.COMMIT_LINES + 1
    assert len(list(rules.message_breaches("agent: read it\n\nIt is late.\n", large))) == 1
    assert list(rules.message_breaches("agent: read it\n\nIt is late.\n\nSize: one generated table.\n", large)) == []


def test_moves_count_by_the_lines_that_differ(repository):
    text = "".join(f"{number}\n" for number in range(2000))
    repository.commit("docs: add numbers\n\nFor the test.\n\nSize: numbers.", a=text)
    repository.git("mv", "a", "b")
    repository.commit("docs: move the numbers", b=text.replace("\n77\n", "\n78\n"))
    assert repository.run("check-commits", "HEAD~1..HEAD") == ("1 commits: no breach\n", 0)
    repository.commit("docs: leave the numbers out", b="")
    output, status = repository.run("check-commits", "HEAD~2..HEAD")
    assert status == 1 and len(output.splitlines()) == 2 and "2000 changed lines" in output


def test_without_a_range_the_commits_are_those_that_origin_lacks(repository):
    repository.commit("Wrong", a="1")
    repository.commit("docs: add one", a="2")
    assert repository.run("check-commits") == ("1 commits: no breach\n", 0)
    repository.commit("Wrong as well", a="3")
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD~2")
    repository.commit("docs: add another", a="4")
    output, status = repository.run("check-commits")
    assert status == 1 and "Wrong as well" in output and len(output.splitlines()) == 1


def test_the_first_commit_that_does_not_build_ends_the_run(repository):
    repository.commit("zero", meson_build=PROJECT)
    repository.commit("one", p_c="int main(void) { return 0; }\n")
    repository.commit("two", p_c="int main(void) { return none; }\n")
    repository.commit("three", p_c="int main(void) { return 1; }\n")
    output, status = repository.run("build-commits", "HEAD~3..HEAD")
    assert status == 1 and "none" in output and "one: " in output and "two: does not build" in output
    assert "three" not in output and repository.worktrees() == 1
    output, status = repository.run("build-commits", "--fresh", "HEAD~1..HEAD")
    assert status == 0 and "three: " in output
    output, status = repository.run("build-commits", "HEAD~3..HEAD~2")
    assert status == 0 and "one: built before" in output


@pytest.mark.parametrize("interrupt", [os.killpg, os.kill], ids=["by-terminal", "by-supervisor"])
def test_a_run_that_was_interrupted_leaves_nothing_and_goes_on(repository, tmp_path, interrupt):
    for fifo in "running", "let":
        os.mkfifo(tmp_path / fifo)
    gated = GATED.format(f"echo > {tmp_path}/running; read line < {tmp_path}/let; echo > x")
    repository.commit("zero", meson_build=PROJECT, p_c="int main(void) { return 0; }\n")
    repository.commit("one", p_c="int main(void) { return 1; }\n")
    repository.commit("two", meson_build=gated)
    process = repository.start("build-commits", "HEAD~2..HEAD")
    (tmp_path / "running").read_text()
    assert repository.worktrees() == 2
    interrupt(process.pid, signal.SIGINT)
    assert "interrupted" in process.communicate()[0] and process.returncode == 130
    with pytest.raises(OSError, match=os.strerror(errno.ENXIO)):    # no command of the build still reads from it
        os.open(tmp_path / "let", os.O_WRONLY | os.O_NONBLOCK)
    assert repository.worktrees() == 1
    assert {p.name for p in (tmp_path / "cache/build-commits").glob("*/*")} == {"lock", "built.jsonl"}

    process = repository.start("build-commits", "HEAD~2..HEAD")
    (tmp_path / "running").read_text()
    (tmp_path / "let").write_text("\n")
    output = process.communicate()[0]
    assert process.returncode == 0 and "one: built before" in output and "two: built before" not in output


# A ninja that reads from a FIFO before it ends; with says_so it announces that it was told to end. The signals are blocked and
# awaited: the trap of a shell would run only after a wait that begins behind the signal.
STUBBORN = """#!{python}
import os, signal, sys

if sys.argv[-1] != "--quiet":
    os.execv("{ninja}", sys.argv)
signals = signal.SIGINT, signal.SIGTERM
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
open("{top}/running", "w").close()
if {says_so}:
    signal.sigwait(signals)
    open("{top}/ending", "w").close()
open("{top}/let").read()
sys.exit(1)
"""


def start_stubborn(repository, tmp_path, says_so):
    """With such a ninja, up to where it builds."""
    for fifo in "running", "ending", "let":
        os.mkfifo(tmp_path / fifo)
    stubborn = tmp_path / "bin" / "ninja"
    stubborn.parent.mkdir()
    stubborn.write_text(STUBBORN.format(python=sys.executable, ninja=shutil.which("ninja"), top=tmp_path, says_so=says_so))
    stubborn.chmod(0o755)
    repository.environment["PATH"] = f"{stubborn.parent}:{os.environ['PATH']}"
    repository.commit("zero", meson_build=PROJECT, p_c="int main(void) { return 0; }\n")
    repository.commit("one", p_c="int main(void) { return 1; }\n")
    process = repository.start("build-commits", "HEAD~1..HEAD")
    (tmp_path / "running").read_text()
    return process


def test_a_second_interruption_does_not_end_the_waiting(repository, tmp_path):
    process = start_stubborn(repository, tmp_path, says_so=True)
    os.kill(process.pid, signal.SIGINT)
    (tmp_path / "ending").read_text()
    for number in signal.SIGINT, signal.SIGTERM:
        os.kill(process.pid, number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    assert repository.worktrees() == 2
    (tmp_path / "let").write_text("\n")
    assert "interrupted" in process.communicate()[0] and process.returncode == 130
    assert repository.worktrees() == 1


def test_a_ninja_that_does_not_end_is_not_waited_for(repository, tmp_path):
    process = start_stubborn(repository, tmp_path, says_so=False)
    os.kill(process.pid, signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    assert "ninja did not end" in output and "interrupted" in output and process.returncode == 130
    assert repository.worktrees() == 1
