# SPDX-License-Identifier: Apache-2.0
"""The demo: all its claims hold, it leaves nothing behind, and it runs again whatever became of the last one."""

import os
import re
import signal
import subprocess
import sys
import time

import pytest

from cluster import Cluster, names
from cluster.cluster import REPOSITORY

PROGRAM = [sys.executable, os.path.join(REPOSITORY, "demo", "demo.py")]


@pytest.fixture
def place(tmp_path):
    """Clusters of this test only: a demo that somebody has kept is not ours to touch."""
    where = str(tmp_path / "clusters")
    before = os.environ.get("ALIQUOT_CLUSTERS")
    os.environ["ALIQUOT_CLUSTERS"] = where
    yield where
    for name, _ in names():
        Cluster(name).down()
    if before is None:
        del os.environ["ALIQUOT_CLUSTERS"]
    else:
        os.environ["ALIQUOT_CLUSTERS"] = before


def start(keep=False):
    return subprocess.Popen([*PROGRAM, "--build", os.environ["ALIQUOT_BUILD"]], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env=dict(os.environ, KEEP="1" if keep else "0"))


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


def test_twice_and_nothing_left(place):
    finish(start())
    until_gone(place)
    finish(start())
    until_gone(place)


@pytest.mark.parametrize("how,status", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_ended_half_way(place, how, status):
    demo = start()
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


def test_kept(place):
    del place
    text = finish(start(keep=True))
    assert "stop it:" in text
    name, alive = names()[0]
    assert alive
    done = subprocess.run([Cluster(name).state + "/kubectl", "get", "gpus", "--no-headers"], stdout=subprocess.PIPE,
                          text=True, check=True)
    assert done.stdout.count("Healthy") == 2
    Cluster(name).down()
    assert names() == []
