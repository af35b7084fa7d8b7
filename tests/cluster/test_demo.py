# SPDX-License-Identifier: Apache-2.0
"""The demo: all its claims hold, it leaves nothing behind, and it runs again whatever became of the last one."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cluster import Cluster, images, names
from cluster.cluster import REPOSITORY

DEMO = os.path.join(REPOSITORY, "demo")
PROGRAM = [sys.executable, os.path.join(DEMO, "demo.py")]


@pytest.fixture(scope="module")
def new_place(tmp_path_factory):
    """Makes directories for the clusters of one test each: a demo that a user has kept must not be touched."""
    made = []

    def new():
        made.append(str(tmp_path_factory.mktemp("demo") / "clusters"))
        return made[-1]
    yield new
    for where in made:
        with clusters_in(where):
            for name, _ in names():
                Cluster(name).down()


@contextlib.contextmanager
def clusters_in(where):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALIQUOT_CLUSTERS", where)
        yield


def test_programs_of_the_images_are_built(monkeypatch):
    """In a fresh clone nothing else is. test_image_builds.py makes the images of these programs alone."""
    monkeypatch.syspath_prepend(DEMO)
    import demo     # in its directory
    assert set(images.PROGRAMS) <= set(demo.needed(os.environ["ALIQUOT_BUILD"]))


def start(where, keep=False):
    return subprocess.Popen([*PROGRAM, "--build", os.environ["ALIQUOT_BUILD"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                            text=True, env=dict(os.environ, ALIQUOT_CLUSTERS=where, KEEP="1" if keep else "0"))


def finish(demo):
    text, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, text
    assert "FAIL" not in text and re.search(r"(\d+) of \1 claims hold", text), text
    return text


def until_gone(where):
    """The keeper takes everything away when the demo was killed; it has no event for others."""
    deadline = time.monotonic() + 30
    while os.path.exists(where) and os.listdir(where):
        assert time.monotonic() < deadline, os.listdir(where)
        time.sleep(0.05)


def read_until(demo, pattern):
    text = ""
    for line in demo.stdout:
        text += line
        if re.search(pattern, line):
            return
    raise AssertionError(text)


def test_twice(new_place):
    """Nothing is left of the first; the second is kept, and used."""
    place = new_place()
    finish(start(place))
    until_gone(place)
    text = finish(start(place, keep=True))
    assert "stop it:" in text
    with clusters_in(place):
        name, alive = names()[0]
        assert alive
        done = subprocess.run([Cluster(name).state + "/kubectl", "get", "gpus", "--no-headers"], stdout=subprocess.PIPE,
                              text=True, check=True)
        assert done.stdout.count("Healthy") == 2
        Cluster(name).down()
        assert names() == []


@pytest.mark.parametrize("how,status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_ended_half_way(new_place, how, status):
    place = new_place()
    demo = start(place)
    read_until(demo, r"\[3/")
    demo.send_signal(how)
    demo.communicate(timeout=60)
    assert demo.returncode == status
    until_gone(place)


def test_signal_during_a_destructor():
    """Python drops an exception that a handler raises inside one: the demo would run on to its end."""
    done = subprocess.run([sys.executable, "-c", """if True:
        import os, signal, sys
        sys.path.insert(0, sys.argv[1])
        from narrator import Narrator
        narrator = Narrator(steps=1)
        signal.signal(signal.SIGTERM, lambda *_: narrator.interrupt(SystemExit(143)))
        class Closing:
            def __del__(self):
                os.kill(os.getpid(), signal.SIGTERM)
        Closing()
        print("survived the destructor", flush=True)
        narrator.say("runs on")
        """, os.path.dirname(PROGRAM[1])], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert done.returncode == 143 and done.stdout == "survived the destructor\n"
