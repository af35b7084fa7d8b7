# SPDX-License-Identifier: Apache-2.0
"""However a program finds a driver function, it gets ours where we have one and the driver's own answer otherwise: the
same program on the plain driver and behind each way in, on the real libcuda 535 and on the simulated one."""

import functools
import os
import re
import subprocess

import pytest
from abi import BASES, CUDA, HOOKED, SYMBOLS
from intercept_kit import MODES, TOP

pytestmark = pytest.mark.foreign

OTHERS = ["cuNoSuchFunction", "nvmlNoSuchFunction", "cupsPrint", "cu", "curl_easy_init", "printf"]
HOOKED_BASES = sorted({row.base for row in CUDA if row.kind == "HOOK"})
QUERIED_VERSIONS = re.search(r"versions\[\] = \{(.*?)\}", (TOP / "tests/intercept/resolver.c").read_text(), re.S)[1].split(",")

ALL, BY_PRELOAD, BY_SHADOW, BY_NOBODY = set(MODES), {"preload", "both"}, {"shadow", "both"}, set()

# Who looks for a function, what file it opens, and which modes must give it our function: of what it was linked with, of
# dlsym and dlvsym on a handle (and so of cuGetProcAddress), and of those on what is global. Elsewhere it gets the driver's.
# After its full name has been opened, the soname is that object's, too.
#   deep: a library opened with RTLD_DEEPBIND, apart: one in a link namespace of its own, across: a program that opens the
#   driver in a namespace of its own.
Cell = {
    # (who, file):          (linked,    handle,     global)
    ("linked", "soname"):   (ALL,       ALL,        ALL),
    ("linked", "absolute"): (ALL,       BY_PRELOAD, ALL),
    ("opening", "soname"):  (None,      ALL,        None),
    ("opening", "absolute"): (None,     BY_PRELOAD, None),
    ("opening", "absolute,soname"): (None, BY_PRELOAD, None),
    ("deep", "soname"):     (BY_SHADOW, BY_SHADOW,  BY_SHADOW),
    ("deep", "absolute"):   (BY_SHADOW, BY_NOBODY,  BY_SHADOW),
    ("apart", "soname"):    (BY_SHADOW, BY_SHADOW,  BY_SHADOW),
    ("apart", "absolute"):  (BY_SHADOW, BY_NOBODY,  BY_SHADOW),
    ("across", "soname"):   (ALL,       ALL,        ALL),
    ("across", "absolute"): (ALL,       BY_PRELOAD, ALL),
}
KIND = {"link": 0, "handle": 1, "dlvsym-handle": 1}
WAYS = ["link", "handle", "default", "next", "program", "dlvsym-handle", "dlvsym-default", "dlvsym-next"]


FILE = re.compile(r" (/\S+) \S+$", re.M)           # the last word but one of a line


def fields(text):
    return [line.split(" ") for line in text.splitlines()]


@pytest.fixture(scope="module", params=["real 535", "simulated"])
def look(request, programs, drivers, ways_in):
    """Runs the resolver as `who` on `file`, on the plain driver and in a mode; what both print, with each file named: ours,
    driver, or by its path. Millions of lines in all: they are compared as text."""
    front = ways_in(drivers(request.param))

    def run(who, file, what, mode, names):
        scope = who if who in ("deep", "apart", "across") else "program"
        program = "resolver" if who in ("linked", "across") else "resolver-dlopen"
        files = [",".join(str(path) if part == "absolute" else f"{stem}.so.1" for part in file.split(","))
                 for stem, path in front.driver.items()]
        done = subprocess.run([programs / program, scope, what, *files], input="\n".join(names) + "\n", text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, env=front.environment(mode))
        assert done.returncode == 0, (who, file, mode, done.returncode, done.stderr)
        text = done.stdout
        for path in set(FILE.findall(text)):
            text = text.replace(f" {path} ", f" {front.kind(path)} ")
        return text
    plain = functools.cache(lambda who, file, what, names: run(who, file, what, "plain", names))
    return lambda who, file, what, mode, names: (plain(who, file, what, names), run(who, file, what, mode, names))


def cells():
    return [pytest.param(who, file, mode, id=f"{who}-{file}-{mode}") for who, file in Cell for mode in MODES]


@pytest.mark.parametrize("who, file, mode", cells())
def test_link_dlsym_dlvsym(look, who, file, mode):
    names = (*SYMBOLS, *OTHERS)
    plain, found = map(fields, look(who, file, "names", mode, names))
    assert len(plain) == len(found) == len(WAYS) * len(names)
    wrong, ours = [], 0
    for before, after in zip(plain, found):
        way, name, file_before, symbol = before
        must = Cell[who, file][KIND.get(way, 2)]
        expected = before
        if file_before == "driver" and name in HOOKED:
            expected = [way, name, "ours" if must and mode in must else "driver", symbol]
            ours += expected[2] == "ours"
        elif file_before == "-" and name in HOOKED and after[2] == "ours":
            # A name that this driver lacks. Only our dlsym can say so at once; where the loader or its own dlsym looks,
            # it finds our export, which says so when it is called.
            if way == "link" or mode != "preload" or who in ("deep", "apart"):
                expected = [way, name, "ours", name]
        if after != expected:
            wrong.append((before, after, expected))
    assert not wrong, (len(wrong), wrong[:10])
    if mode in Cell[who, file][1]:
        assert ours > 0.8 * len(HOOKED)


DRIVERS = re.compile(r" driver (\S+)$", re.M)
OURS = re.compile(r" ours \S+$", re.M)


@functools.lru_cache(1)         # the modes of a cell follow each other
def hooked(text):
    """What is said where each of our functions comes before the driver's."""
    return DRIVERS.sub(lambda found: f" ours {found[1]}" if found[1] in HOOKED else found[0], text)


@pytest.mark.parametrize("who, file, mode", cells())
def test_get_proc_address(look, who, file, mode):
    """Both calling conventions, every version and every flag, the symbol's status included."""
    everything = who == "linked" and file == "soname"
    names = tuple(BASES if everything else HOOKED_BASES) + ("cuNoSuchFunction", "cupsPrint", "cu")
    plain, found = look(who, file, "queries", mode, names)
    assert plain.count("\n") == found.count("\n") == len(names) * len(QUERIED_VERSIONS) * 4 * 2
    caught = mode in Cell[who, file][1]
    expected = hooked(plain) if caught else plain
    if found != expected:
        wrong = [lines for lines in zip(*map(str.splitlines, (plain, found, expected))) if lines[1] != lines[2]]
        raise AssertionError((len(wrong), wrong[:10]))
    ours = len(OURS.findall(expected))
    assert ours > 4000 if caught else ours == 0


def test_every_mode_has_its_cells():
    """Each cell that something can catch is caught where both modes are used; each mode catches what the other cannot."""
    musts = [must for row in Cell.values() for must in row if must is not None]
    assert all("both" in must for must in musts if must)
    assert any(must == BY_PRELOAD for must in musts) and any(must == BY_SHADOW for must in musts)


def test_names_are_unknown_without_a_driver(library):
    """A program that only looks whether there is a driver must not find one in us."""
    script = ("import ctypes\n"
              "program = ctypes.CDLL(None)\n"
              "for name in ('cuInit', 'cuMemAlloc_v2', 'nvmlDeviceGetMemoryInfo'):\n"
              "    assert not hasattr(program, name), name\n")
    subprocess.run(["python3", "-c", script], check=True, env=dict(os.environ, LD_PRELOAD=library))
