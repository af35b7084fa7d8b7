# SPDX-License-Identifier: Apache-2.0
"""--help as text, as a man page and as a list, of every command; what a misspelt word is told."""

import os
import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command, status=0, env=None):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})
    assert done.returncode == status, (command, done.stdout, done.stderr)
    return done.stdout if status == 0 else done.stderr


def rows(command):
    return [line.split("\t", 4) for line in run(*command, "--help=list").splitlines()]


def commands(command):
    """It and all below it."""
    yield command
    for kind, name, *_ in rows(command):
        if kind == "command":
            yield from commands([*command, name])


@pytest.fixture(scope="session")
def programs(build):
    return [str(build / "src" / path) for path in ("cli/aliquot", "agent/aliquot-agent", "scheduler/aliquot-scheduler")]


@pytest.fixture(scope="session")
def everything(programs):
    found = [command for program in programs for command in commands([program])]
    assert len(found) > 15, found
    return found


@pytest.fixture(scope="session")
def shells():
    return pathlib.Path(subprocess.run([TOP / "scripts/fetch-shells"], stdout=subprocess.PIPE, text=True,
                                       check=True).stdout.strip())


@pytest.fixture(scope="session")
def pages(programs, tmp_path_factory):
    to = tmp_path_factory.mktemp("man")
    run(TOP / "scripts/man-pages", *programs, env={"MAN_DIR": str(to)})
    return {page.stem: page for page in to.rglob("*.[18]")}


def test_all_formats_say_the_same(everything, pages, shells):
    """Each word and option is in the text, and in the man page as mandoc renders it."""
    for command in everything:
        text = run(*command, "--help")
        name = "-".join([pathlib.Path(command[0]).name, *command[1:]])
        page = run(shells / "usr/bin/mandoc", "-T", "ascii", "-W", "error", pages[name])
        plain = " ".join(re.sub(".\b", "", page).split())
        assert rows(command), command
        for kind, word, _, argument, summary in rows(command):
            shown = " ".join(filter(None, ["--" + word if kind == "option" else word, argument]))
            assert shown in text, (command, shown)
            assert shown in plain, (command, shown)
            assert summary in text, (command, summary)
        assert text.startswith("Usage: "), command


def test_sections(pages):
    assert {page.suffix for name, page in pages.items() if name.startswith(("aliquot-agent", "aliquot-scheduler"))} \
        == {".8"}
    assert pages["aliquot"].suffix == ".1" and pages["aliquot-mig-apply"].suffix == ".1"


def test_installed(build, pages, tmp_path):
    """Man pages and completion are where man and the shells of Debian look for them."""
    run("meson", "install", "-C", str(build), "--no-rebuild", "--quiet", env={"DESTDIR": str(tmp_path)})
    share = tmp_path / "usr/local/share"
    assert {page.name for page in (share / "man").rglob("*.[18]")} == {page.name for page in pages.values()}
    for path in ("bash-completion/completions/aliquot", "zsh/site-functions/_aliquot",
                 "fish/vendor_completions.d/aliquot.fish"):
        assert (share / path).is_file(), path


def test_help_of_a_command(aliquot):
    assert run(aliquot, "help", "mig", "apply") == run(aliquot, "mig", "apply", "--help")
    assert run(aliquot, "help") == run(aliquot, "--help") == run(aliquot, "help", "help")
    assert "no command 'nothing'" in run(aliquot, "help", "nothing", status=2)
    assert "none of text, man and list" in run(aliquot, "--help=html", status=2)


@pytest.mark.parametrize("words, status, meant", [
    (["inspct"], 2, "no command 'inspct'; did you mean 'inspect'?"),
    (["qqq"], 2, "no command 'qqq'; see --help"),
    (["inspect", "nodes"], 2, "no view 'nodes'; did you mean 'node'?"),
    (["card", "resett", "g"], 2, "there is no verb 'resett'; did you mean 'reset'?"),
    (["node", "resum", "n"], 2, "there is no verb 'resum'; did you mean 'resume'?"),
    (["mig", "aply"], 1, "no command 'aply'; did you mean 'apply'?"),
    (["sim", "inject", "xids", "1"], 2, "no action 'xids'; did you mean 'xid'?"),
    (["run", "--memmory=4Gi", "--", "true"], 2, "unknown option '--memmory=4Gi'; did you mean '--memory'?"),
    (["inspect", "--json=x"], 2, "option '--json' takes no value; see --help"),
    (["inspect", "-zz"], 2, "unknown option '-z'; see --help"),
    (["run", "--qqq", "--", "true"], 2, "unknown option '--qqq'; see"),
    ([], 2, "no command; see"),
])
def test_misspelt(aliquot, words, status, meant):
    assert meant in run(aliquot, *words, status=status)


def test_words_are_understood(everything):
    """A word of a list is taken: what is missing is said of what must follow it."""
    for command in everything:
        for kind, word, *_ in rows(command):
            if kind == "word" and command[-1] in ("inject", "card", "node"):
                done = subprocess.run([*command, word, "x", "y"], capture_output=True, text=True,
                                      env={**os.environ, "KUBECTL": "/bin/false", "ALIQUOT_SIM_DIR": "/nonexistent"})
                assert done.returncode in (1, 2) and "did you mean" not in done.stderr, done.stderr
                assert not any(no in done.stderr for no in ("no action", "no verb")), done.stderr
