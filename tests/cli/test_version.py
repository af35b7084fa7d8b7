# SPDX-License-Identifier: Apache-2.0
"""One version: that of meson.build is in programs, man pages, chart, deploy/ and documents, and CHANGELOG.md knows it."""

import pathlib
import re
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
VERSION = re.search(r"^  version: '(.+?)'", (TOP / "meson.build").read_text(), re.M)[1]
CHANGELOG = (TOP / "CHANGELOG.md").read_text()
PROGRAMS = ("src/cli/aliquot", "src/agent/aliquot-agent", "src/agent/aliquot-hook", "src/scheduler/aliquot-scheduler")
NUMBER = r"(\d+\.\d+\.\d+(?:-[a-z]\w*)?)"
# Names of what a release has: of this version and no other.
MADE = re.compile(rf"\baliquot(?:-agent|-scheduler)?(?:[:@_-]v?){NUMBER}", re.I)
# What a text says of versions: of this one or of a release.
SAID = re.compile(rf"\b(?:Aliquot|aliquot|release|chart|version of Aliquot) v?{NUMBER}")
# History, and files whose numbers are those of others.
NOT_OURS = re.compile(r"CHANGELOG\.md$|tests/|src/|scripts/fetch-|scripts/packages\.txt")


def triple(version):
    return tuple(map(int, version.partition("-")[0].split(".")))


def releases():
    """The newest first."""
    return re.findall(rf"^## {NUMBER}\b", CHANGELOG, re.M)


def wrong_versions(path, text):
    """Lines that name another version."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, known in ((MADE, {VERSION}), (SAID, {VERSION, *releases()})):
            yield from (f"{path}:{number}: {found[0]}" for found in pattern.finditer(line) if found[1] not in known)


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_say_it(program, build):
    said = subprocess.run([build / program, "--version"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said == f"{program.rpartition('/')[2]} {VERSION}\n"


@pytest.mark.parametrize("program", [program for program in PROGRAMS if not program.endswith("hook")])
def test_man_pages_say_it(program, build):
    page = subprocess.run([build / program, "--help=man"], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert page.splitlines()[0].endswith(f'"Aliquot {VERSION}"')


def test_no_other_version_is_named():
    listed = subprocess.run(["git", "-C", TOP, "ls-files"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    texts = {path: (TOP / path).read_text(errors="replace") for path in listed if not NOT_OURS.match(path)}
    assert [line for path, text in texts.items() for line in wrong_versions(path, text)] == []
    for path in ("charts/aliquot/Chart.yaml", "deploy/base/agent.yaml", "deploy/base/scheduler.yaml"):
        assert VERSION in texts[path], path


@pytest.mark.parametrize("line", ["image: aliquot-agent:9.8.7", "image: x/aliquot-scheduler:v9.8.7", "aliquot_9.8.7_amd64.deb",
                                  "aliquot-9.8.7.tgz", "since Aliquot 9.8.7", "as in release v9.8.7 of it",
                                  "aliquot-agent-9.8.7-dev.oci.tar"])
def test_another_version_is_found(line):
    assert len(list(wrong_versions("a", f"first\n{line}\n"))) == 1


def test_changelog_knows_it():
    """What is not released yet is in its own section, and the version says so."""
    unreleased = re.search(r"^## Unreleased\n(.*?)(?=^## )", CHANGELOG, re.M | re.S)
    assert releases() == sorted(releases(), key=triple, reverse=True) and len(set(releases())) == len(releases())
    if VERSION.endswith("-dev"):
        assert unreleased and unreleased[1].strip() and triple(VERSION) > triple(releases()[0])
    else:
        assert not unreleased and releases()[0] == VERSION
