# SPDX-License-Identifier: Apache-2.0
"""`aliquot top` on a terminal: what a terminal emulator shows, and what is left of it at the end."""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pyte
import pytest

from test_inspect import AGENTS, UNSCHEDULABLE, Cluster, GiB, gpu, pod, uuid

WAITING = "get pods -A --field-selector=spec.nodeName= -o json"
USAGE = "get --raw /api/v1/namespaces/aliquot-system/pods/agent-b:9400/proxy/usage"
GET = "def get(words, otherwise=None):\n"      # of the fake
UP, DOWN, END = "\033[A", "\033[B", "\033[F"


@pytest.fixture
def cluster(aliquot, tmp_path):
    made = Cluster(aliquot, tmp_path)
    holders = [{"podUID": "u1", "container": "main", "memoryDriver": 15 * GiB, "coreUsed": 45},
               {"podUID": "u2", "container": "main", "memoryDriver": 512 << 20, "coreUsed": 1}]
    page = {"gpus": [{"uuid": uuid("b", 0), "memoryUsed": 16 * GiB, "utilization": 46, "holders": holders},
                     {"uuid": uuid("b", 1), "memoryUsed": 0, "utilization": 0, "holders": []}]}
    waits = pod("large", core="200", conditions=[dict(UNSCHEDULABLE, message="0/2 nodes \033[31mare\x07 available")])
    waits["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    made.answers.update({
        AGENTS: {"items": [{"metadata": {"name": "agent-b"}, "spec": {"nodeName": "b"}}]}, USAGE: page,
        WAITING: {"items": [waits, pod("plain", core=None)]},
        "get pod large -n team -o json": waits})
    # A fake that reads its answers anew for each request.
    assert GET in made.proxy.read_text()
    made.proxy.write_text(made.proxy.read_text().replace(
        "return answers.get(", "return json.load(open(where + '/answers.json')).get("))
    return made


def say(cluster):
    (cluster.where / "new").write_text(json.dumps(cluster.answers))
    os.replace(cluster.where / "new", cluster.where / "answers.json")


def once(cluster, *words, status=0):
    done = cluster.run("top", *words)
    assert done.returncode == status, done
    return done


class Screen(pyte.Screen):
    """After a character in the last column, the cursor is on it, as on xterm."""

    def erase_in_line(self, how=0, private=False):
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        super().erase_in_line(how, private)

    def erase_in_display(self, how=0, *args, **kwargs):
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        super().erase_in_display(how, *args, **kwargs)


class Terminal:
    """A program on a terminal."""

    def __init__(self, argv, env, columns, lines, beyond=0):
        """`beyond`: columns of the emulator that the program is not told of."""
        self.screen = Screen(columns + beyond, lines)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines, None, beyond)
        self.before = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(argv, env=env, stdin=self.slave, stdout=self.slave, stderr=self.slave,
                                        start_new_session=True)

    def resize(self, columns, lines, process, beyond=0):
        self.columns = columns
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns + beyond)
        if process:
            process.send_signal(signal.SIGWINCH)    # it has no controlling terminal

    def read(self, seconds):
        if select.select([self.master], [], [], seconds)[0]:
            data = os.read(self.master, 65536)
            self.raw += data
            self.stream.feed(data)

    def until(self, what, done, seconds=60):
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"not within {seconds} s: {what}\n" + self.text()
            self.read(0.1)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display)

    def shows(self, *texts):
        for text in texts:
            self.until(text, lambda: text in self.text())

    def line(self, text):
        return next(line for line in self.screen.display if text in line)

    def chosen(self):
        """The line that is marked, without titles and views."""
        return next((self.screen.display[y] for y in range(self.screen.lines)
                     if all(self.screen.buffer[y][x].reverse for x in range(self.columns))), "")

    def press(self, keys):
        os.write(self.master, keys.encode())

    def is_as_before(self):
        now = termios.tcgetattr(self.slave)
        left = self.raw.decode(errors="replace")
        return now == self.before and left.rfind("\033[?1049l") > left.rfind("\033[?1049h") \
            and left.rfind("\033[?25h") > left.rfind("\033[?25l") and left.rfind("\033[?7h") > left.rfind("\033[?7l")


@contextlib.contextmanager
def opened(argv, columns=80, lines=24, beyond=0, **env):
    terminal = Terminal(argv, {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm", **env}, columns, lines, beyond)
    try:
        yield terminal
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(terminal.master)
        os.close(terminal.slave)


def top(cluster, *words, columns=80, lines=24, beyond=0, **env):
    say(cluster)
    return opened([cluster.aliquot, "top", *words], columns, lines, beyond, KUBECTL=str(cluster.kubectl), ANSWERS=str(cluster.where), **env)


# ---- one frame ----

def test_one_frame(cluster):
    """Without a terminal, and which card is the fullest is its first line."""
    lines = once(cluster).stdout.splitlines()
    assert lines[0].split() == "GPU CORE MEMORY USED BUSY PODS STATE MODEL".split()
    assert [line.split()[0] for line in lines[1:]] == ["b-00", "a-00", "b-01"]
    assert re.findall(r"\d+%", lines[1]) == ["60%", "76%", "20%", "46%"] and "NVIDIA H100" in lines[1]
    assert "\033" not in "".join(lines)


def test_who_wastes_most(cluster):
    lines = once(cluster, "--view", "containers", "--sort", "unused").stdout.splitlines()
    assert "team/train (main)" in lines[1] and "45 GiB" in lines[1] and "25%" in lines[1]
    assert [line.split()[0] for line in lines[1:]] == ["team/train", "team/web", "other/old"]


def test_nodes_and_waiting(cluster):
    lines = once(cluster, "--view", "nodes").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["b", "2"], ["a", "1"]]
    assert "1 not healthy" in lines[2] and re.findall(r"\d+%", lines[1]) == ["30%", "38%", "10%", "23%"]
    (title, line) = once(cluster, "--view", "waiting").stdout.splitlines()
    assert line.startswith("team/large") and "2 whole" in line and line.endswith("0/2 nodes ?[31mare? available")


def test_nodes_in_mig_mode(cluster):
    """Instances are no GPUs, their memory counts without a load, and a pod with two containers or cards is one."""
    divided, instance, other = gpu("c", 0, (0, "0")), *[gpu("c", 0, (22, "19Gi"), [("u1", "team", "train", 0, "1Gi")], memory="20Gi")] * 2
    instance, other = json.loads(json.dumps([instance, other]))
    divided["status"]["capacity"] = {"elasticgpu.io/gpu-core": "0", "elasticgpu.io/gpu-memory": "0"}
    divided["spec"]["mig"] = {"mode": "Enabled"}
    for i, it in enumerate((instance, other)):
        it["metadata"]["name"] = f"c-00-gi{i}-ci0"
        it["spec"].update(parent=divided["spec"]["uuid"], uuid=f"MIG-{i}", mig={"profile": "3g.20gb"})
    page = {"gpus": [{"uuid": divided["spec"]["uuid"], "instances": [
        {"uuid": f"MIG-{i}", "memoryUsed": 10 * GiB} for i in range(2)]}]}
    cluster.answers.update({
        "get gpus.elasticgpu.io -o json": {"items": [divided, instance, other]}, USAGE: page,
        AGENTS: {"items": [{"metadata": {"name": "agent-b"}, "spec": {"nodeName": "c"}}]}})
    (_, node) = once(cluster, "--view", "nodes").stdout.splitlines()
    assert node.split()[:2] == ["c", "1"] and "50%" in node and node.split()[-2:] == ["1", "Healthy"], node
    shares = once(cluster, "--view", "containers").stdout.splitlines()[1:]
    assert [line.split()[2] for line in shares] == ["-", "-"]       # no limit of its compute


def test_filter_and_namespace(cluster):
    assert len(once(cluster, "--filter", "B-0").stdout.splitlines()) == 3
    cluster.answers["get --raw /api/v1/namespaces/team/pods?fieldSelector=spec.nodeName%3D"] = cluster.answers[WAITING]
    shown = once(cluster, "--view", "containers", "-n", "team").stdout
    assert "team/web" in shown and "other" not in shown


def test_what_cannot_be_read_is_said(cluster):
    """A user who may read the cards and nothing else sees the cards."""
    cluster.answers.update({AGENTS: "error: pods is forbidden", WAITING: "error: pods is forbidden"})
    done = once(cluster)
    assert done.stderr == "aliquot top: no figures of use: pods is forbidden; no waiting pods: pods is forbidden\n"
    assert "b-00" in done.stdout
    cluster.answers["get gpus.elasticgpu.io -o json"] = "error: gpus is forbidden"
    assert once(cluster, status=1).stderr == "aliquot top: gpus is forbidden\n"


@pytest.mark.parametrize("words, text", [
    (["--view", "x"], "no view 'x'"), (["--interval", "0"], "1 to 3600 s"), (["--interval", "3601"], "1 to 3600 s"),
    (["--sort", "x"], "no column 'x'"), (["x"], "unexpected argument")])
def test_wrong_use(cluster, words, text):
    assert text in once(cluster, *words, status=2).stderr


# ---- on a terminal ----

def test_the_screen(cluster):
    with top(cluster) as t:
        t.shows("3 GPUs, 2 healthy", "b-00", "? help")
        assert t.chosen().startswith("b-00") and "given out: 27% compute" in t.text()
        assert "███░" in t.line("b-00")
        t.press(DOWN)
        t.until("the next row", lambda: t.chosen().startswith("a-00"))
        t.press("s")        # by use
        t.until("another order", lambda: t.screen.display[3].startswith("b-00") and t.screen.display[4].startswith("b-01"))
        assert t.chosen().startswith("a-00")        # it stays chosen
        t.press("r")
        t.until("the other way round", lambda: t.screen.display[3].startswith("a-00"))
        t.press("2")
        t.shows("team/train (main)", "UNUSED")
        t.press("/web\n")
        t.until("one row", lambda: "train" not in t.text() and "team/web" in t.text())
        t.press("\033")
        t.shows("team/train")
        t.press("?")
        t.shows("the other way round")
        t.press("q\t")
        t.shows("not healthy")
        t.press("q")
        t.until("its end", lambda: t.process.poll() is not None)
        t.until("the terminal as before", t.is_as_before)
        assert t.process.returncode == 0


def test_enter_explains(cluster):
    with top(cluster, "--view", "waiting") as t:
        t.shows("team/large")
        t.press("\n")
        t.shows("Pod team/large is pending.", "It waits since 2026-01-01T00:00:00Z", "aliquot-scheduler does not answer")
        t.press("\n4")
        t.shows("REASON")
        t.press("1\n")
        t.shows("MODEL / HOLDER", "team/train (main)")


def slow(cluster, words):
    """Such requests are not answered while the file `slow` is there; they are noted as "slow"."""
    line = f"    if words.startswith({words!r}) and os.path.exists(where + '/slow'):\n        import time; note('slow'); time.sleep(3600)\n"
    cluster.proxy.write_text(cluster.proxy.read_text().replace(GET, GET + line))


def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_more_that_takes_long(cluster):
    """Keys are obeyed while it runs, and what is not waited for any more is ended, with its kubectl."""
    slow(cluster, "get pod large")
    with top(cluster, "--view", "waiting") as t:
        t.shows("team/large")
        (cluster.where / "slow").touch()
        before = children(t.process.pid)
        for leave in ("\033", "q"):
            t.press("\n")
            t.shows("wait, or escape")
            t.until("it asks", lambda: "slow" in cluster.asked())
            assert len(children(t.process.pid)) == len(before) + 1
            t.press(leave)
            t.shows("REASON")
            assert children(t.process.pid) == before
        t.press("\n")
        t.shows("wait, or escape")
        (cluster.where / "slow").unlink()
        t.press("\033")
        t.shows("REASON")
        t.press("\n")
        t.shows("Pod team/large is pending.")
        t.until("it has ended", lambda: children(t.process.pid) == before)


def test_what_kubectl_says_on_the_screen(cluster):
    """A login during a reading is shown in the last line, and nothing is written across the screen."""
    slow(cluster, "get gpus")
    cluster.proxy.write_text(cluster.proxy.read_text().replace(
        "note('slow');", "note('slow'); sys.stderr.write('first line\\nOpen https://login and enter 1234\\n'); sys.stderr.flush();"))
    with top(cluster) as t:
        t.shows("? help")
        (cluster.where / "slow").touch()
        t.shows("kubectl: Open https://login and enter 1234")
        assert "first line" not in t.text() and t.text().count("Open https") == 1
        t.press("2")
        t.shows("UNUSED", "kubectl: Open https://login")


def test_readings_follow(cluster):
    with top(cluster) as t:
        t.shows("b-00")
        cluster.answers["get gpus.elasticgpu.io -o json"] = "error: away"
        say(cluster)
        t.shows("not read again: away", "b-00")
        cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": [gpu("c", 0, (100, "80Gi"))]}
        say(cluster)
        t.shows("c-00", "1 GPU, 1 healthy", "? help")


@pytest.mark.parametrize("columns, lines", [(80, 24), (200, 50), (40, 10), (20, 5), (10, 24), (10, 3), (1, 1)])
def test_sizes(cluster, columns, lines):
    """Every view fits: no line is longer than the screen, and the chosen row is to be seen."""
    with top(cluster, columns=columns, lines=lines, beyond=60 if lines > 1 else 0) as t:
        def fits():
            assert max(len(line.rstrip()) for line in t.screen.display) <= columns, t.text()

        for key, row in ("1", "b-00"), ("2", "team/"), ("3", "b"), ("4", "team/"):
            t.press(key)
            t.until("the chosen row", lambda: t.chosen().startswith(row[:columns]))
            fits()
        t.press("?")
        t.until("the help", lambda: t.text().lstrip().startswith("1") or "1 2 3 4, tab"[:columns] in t.text())
        fits()
        t.press("qq")
        t.until("its end", lambda: t.process.poll() is not None)
        assert t.process.returncode == 0


def test_the_last_line_and_column(cluster):
    """The mark of a row in the last line is as wide as the screen, and a line that fills it is whole."""
    with top(cluster, columns=40, lines=3) as t:
        t.until("the first row", lambda: t.chosen().startswith("b-00"))
        t.press(DOWN)
        t.until("the last line", lambda: t.chosen().startswith("a-00"))
        assert t.chosen() == t.screen.display[-1]
    with top(cluster, columns=40, lines=10) as t:
        t.shows("q quit")
        assert t.screen.display[-1] == "q quit  1-4 views  enter more  s sort  r"


def test_the_end_of_a_text(cluster):
    """End shows as much of it as fits, and keys with modifiers are keys."""
    with top(cluster, columns=40, lines=12) as t:
        t.shows("b-00")
        t.press("\033[1;2B")
        t.until("the next row", lambda: t.chosen().startswith("a-00"))
        t.press("?")
        t.shows("1 2 3 4, tab")
        t.press(END)
        t.shows("there is no limit.")
        assert sum(bool(line.strip()) for line in t.screen.display) > 8
        t.press(UP)
        t.until("a line before", lambda: "there is no limit." not in t.text())


def test_the_marked_row_stays(cluster):
    """A container has a row for each card, and readings change the order of rows with equal first cells."""
    both = [gpu("b", i, (50, "40Gi"), [("u1", "team", "train", 50, "40Gi")]) for i in range(2)]
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": both}
    with top(cluster, "--view", "containers", columns=120) as t:
        t.until("the first", lambda: "b-00" in t.chosen())
        t.press(DOWN)
        t.until("the second", lambda: "b-01" in t.chosen())
        cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": [*both, gpu("c", 0, (100, "80Gi"))]}
        say(cluster)
        t.shows("3 GPUs")
        assert "b-01" in t.chosen()


def test_an_end_in_the_middle_of_a_reading(cluster):
    """It is not waited for, and no kubectl is left."""
    slow = "    if os.path.exists(where + '/slow'):\n        import time; note('slow'); time.sleep(3600)\n"
    cluster.proxy.write_text(cluster.proxy.read_text().replace(GET, GET + slow))
    with top(cluster) as t:
        t.shows("? help")
        (cluster.where / "slow").touch()
        t.until("a slow reading", lambda: "slow" in cluster.asked())
        begin = time.monotonic()
        t.press("q")
        t.until("its end", lambda: t.process.poll() is not None)
        assert t.process.returncode == 0 and time.monotonic() - begin < 30


def test_another_size(cluster):
    with top(cluster) as t:
        t.shows("BUSY")
        assert "MODEL" not in t.text()
        t.resize(10, 12, t.process)
        t.until("a narrow screen", lambda: t.chosen().strip() == "b-00" or t.chosen().startswith("b-00"))
        assert "BUSY" not in t.text()
        t.resize(120, 30, t.process)
        t.shows("NVIDIA H100", "? help")


HOUR = USAGE.replace("/usage", "/history?skip=0")
HOUR_TITLE = re.compile(r"\d\d:\d\d-\d\d:\d\d")
ZONE = "IST-5:30"


def local(seconds):
    """What clocks of ZONE show."""
    return time.strftime("%H:%M:%S", time.gmtime(seconds + 19800))


def share_of_an_hour(uid, name, card, taken):
    return {"namespace": "team", "pod": name, "podUID": uid, "container": "main", "uuid": uuid("b", card), "agoMs": 100, "memoryUsed": [],
            "gpuTimeMs": taken, "gpuEntitledMs": [], "throttledMs": []}


def test_the_last_hour(cluster):
    """A mark for five minutes; that of a card is the sum of its shares, and what is not known is blank."""
    rising = [None] * 30 + [100 * (i // 30) for i in range(1, 330)]        # 30 steps of 10 s are five minutes
    cluster.answers[HOUR] = {"stepMs": 10000, "containers": [
        share_of_an_hour("u1", "train", 0, rising), share_of_an_hour("u2", "web", 0, [5000] * 30)]}
    with top(cluster, columns=100, TZ=ZONE) as t:
        t.until("its title", lambda: HOUR_TITLE.search(t.text()))
        assert t.line("b-00").find(" ▁▁▁▁▁▁▁▁▁▁") > 0 and t.line("b-00").count("▅") == 1, t.text()
        assert not re.search("[▁-▇]", t.line("a-00"))
        t.press("2")
        t.until("the other view", lambda: "UNUSED" in t.text() and HOUR_TITLE.search(t.text()))
        first, last = HOUR_TITLE.search(t.text())[0].split("-")
        assert last in (local(time.time() - ago)[:5] for ago in (0, 60)) and first in (local(time.time() - ago)[:5] for ago in (3600, 3660))
        assert "▄" in t.line("team/web") and "▄" not in t.line("team/train") and not re.search("[▁-▇]", t.line("other/old"))
    with top(cluster, columns=100, LC_ALL="C") as t:
        t.until("its title", lambda: HOUR_TITLE.search(t.text()))
        assert "__________=" in t.line("b-00") and t.raw.isascii()


def test_the_hour_of_visible_rows(cluster):
    """Only agents of nodes that are shown are asked, and once in ten seconds at most, however often keys are pressed."""
    cards = [gpu(n, 0, (100, "80Gi")) for n in "bcdefgh"]
    pods = [{"metadata": {"name": f"agent-{n}"}, "spec": {"nodeName": n}} for n in "bcdefgh"]
    cluster.answers.update({"get gpus.elasticgpu.io -o json": {"items": cards}, AGENTS: {"items": pods}})

    def histories():
        return [re.search("agent-(.)", line)[1] for line in cluster.asked() if "history" in line]
    with top(cluster, "--sort", "gpu", "-i", "1", lines=7) as t:
        t.shows("b-00")
        t.until("the first", histories)
        begin = time.monotonic()
        t.until("all three", lambda: len(histories()) == 3)
        assert sorted(histories()) == ["b", "c", "d"]
        t.press(END)
        t.shows("h-00")
        t.until("the last ones", lambda: len(histories()) > 5)
        assert sorted(histories()) == ["b", "c", "d", "f", "g", "h"] and time.monotonic() - begin > 5
        t.press("4")
        t.shows("REASON")


# ---- another time of the last hour ----

TIME = re.compile(r"at (\d\d:\d\d:\d\d), (\d+) (s|min) ago")


def remember(cluster):
    """train had 30 GiB and 90 % until ten minutes ago, then 6 GiB and 10 %; web is there for five minutes; old has no history."""
    train = share_of_an_hour("u1", "train", 0, [9000] * 300 + [1000] * 60)
    train["memoryUsed"] = [30 * GiB] * 300 + [6 * GiB] * 60
    web = share_of_an_hour("u2", "web", 0, [None] + [2000] * 29)
    web["memoryUsed"] = [256 << 20] * 30
    cluster.answers[HOUR] = {"stepMs": 10000, "containers": [train, web]}


def figures(line):
    """What is in a row, without its bars and what holds no figure."""
    return re.findall(r"\d+%|[\d.]+ [KMGT]iB|(?<= )-(?= )", re.sub("[█░]", " ", line))


def seconds_ago(t):
    """How long ago the time is that is shown; None: it is now. Its clock and its age agree."""
    found = TIME.search(t.text())
    if not found:
        return None
    age = int(found[2]) * (60 if found[3] == "min" else 1)
    assert found[1] in (local(time.time() - age - more) for more in range(-1, 65)), t.text()
    return age


def test_back_and_forward(cluster):
    """Figures of the time that the first line names; what agents do not know of it is missing."""
    remember(cluster)
    with top(cluster, "--view", "containers", "--sort", "unused", columns=120, TZ=ZONE) as t:
        t.until("the history", lambda: HOUR_TITLE.search(t.text()))
        assert figures(t.line("team/train")) == ["50%", "60 GiB", "25%", "45 GiB", "45%"] and seconds_ago(t) is None
        t.press("[")
        t.until("ten seconds ago", lambda: seconds_ago(t) is not None)
        assert seconds_ago(t) < 60 and "healthy" not in t.text()
        assert figures(t.line("team/train")) == ["50%", "60 GiB", "10%", "54 GiB", "10%"], t.text()
        assert figures(t.line("team/web")) == ["10%", "512 MiB", "50%", "256 MiB", "20%"]
        assert figures(t.line("other/old")) == ["-"] * 5
        before = TIME.search(t.text())[1]
        t.press("[[[")
        t.until("half a minute before", lambda: minus(before, TIME.search(t.text())[1]) == 30)
        t.press("}")
        t.until("now", lambda: seconds_ago(t) is None)
        assert figures(t.line("team/train"))[2] == "25%"
        t.press("{{{")
        t.until("a quarter of an hour ago", lambda: (seconds_ago(t) or 0) > 800)
        assert figures(t.line("team/train")) == ["50%", "60 GiB", "50%", "30 GiB", "90%"], t.text()
        assert figures(t.line("team/web")) == ["-"] * 5 and "0%" not in figures(t.line("team/web"))
        before = TIME.search(t.text())[1]
        t.press("]]")
        t.until("a bit later", lambda: minus(TIME.search(t.text())[1], before) == 20)
        t.press("/90%\n")
        t.until("a filter of its figures", lambda: "team/web" not in t.text() and "team/train" in t.text())
        t.press("\033")
        t.shows("team/web")
        t.press("0")
        t.until("now", lambda: seconds_ago(t) is None and "25%" in t.line("team/train"))
        t.press("{" * 20)
        t.until("the oldest", lambda: (seconds_ago(t) or 0) >= 3540)
        t.press("?")
        t.shows("ten seconds before and after")


def minus(a, b):
    """Seconds between two times of a day."""
    seconds = [3600 * int(h) + 60 * int(m) + int(s) for h, m, s in (text.split(":") for text in (a, b))]
    return (seconds[0] - seconds[1]) % 86400


def test_cards_of_another_time(cluster):
    """A card had what its shares used together. Nothing else of it is remembered, nor of nodes and of pods that wait."""
    remember(cluster)
    with top(cluster, columns=150, TZ=ZONE) as t:
        t.until("the history", lambda: HOUR_TITLE.search(t.text()))
        t.press("[")
        t.until("ten seconds ago", lambda: seconds_ago(t) is not None)
        assert figures(t.line("b-00"))[:4] == ["-", "-", "8%", "30%"] and "Healthy" not in t.text(), t.text()
        assert "H100" in t.line("b-00") and figures(t.line("a-00"))[:4] == ["-"] * 4
        t.press("4")
        t.shows("now; cards and containers at", "team/large")
        t.press("3")
        t.shows("now; cards and containers at", "1 not healthy")
        t.press("1")
        t.until("the cards again", lambda: "now;" not in t.text())


@pytest.mark.parametrize("lines", [3, 5, 24])
def test_a_time_is_named_on_any_screen(cluster, lines):
    remember(cluster)
    with top(cluster, columns=40, lines=lines, TZ=ZONE) as t:
        t.shows("b-00")
        t.press("[")
        t.until("the time", lambda: t.screen.display[0].startswith("at ") and "b-00" in t.text())
        t.press(END)
        t.shows("b-01")


def test_a_time_that_is_typed(cluster):
    """Brackets in a filter are letters of it."""
    with top(cluster) as t:
        t.shows("b-00")
        t.press("/[{0")
        t.shows("/[{0_")
        assert seconds_ago(t) is None


def test_the_past_is_read_once(cluster):
    """All nodes are asked for it, as their figures order the rows, and not again: it does not change."""
    names = "bcdefgh"
    cards = [gpu(n, 0, (100, "80Gi")) for n in names]
    cluster.answers.update({
        "get gpus.elasticgpu.io -o json": {"items": cards},
        AGENTS: {"items": [{"metadata": {"name": f"agent-{n}"}, "spec": {"nodeName": n}} for n in names]}})
    for n in names:
        cluster.answers[HOUR.replace("agent-b", f"agent-{n}")] = {"stepMs": 10000, "containers": []}

    def count(text):
        return sum(text in line for line in cluster.asked())
    with top(cluster, "--sort", "gpu", "-i", "1", lines=7, TZ=ZONE) as t:
        t.shows("b-00")
        t.until("the first three", lambda: count("history") == 3)
        t.press("[")
        t.shows("4 of 7 rows not read")
        t.until("all of them", lambda: "not read" not in t.text())
        asked = count("history")
        assert asked == 10
        readings = count("get gpus")
        t.until("further readings", lambda: count("get gpus") >= readings + 14)
        assert count("history") == asked
        t.press("0")
        t.until("the present is read again", lambda: count("history") > asked)


def test_one_frame_of_another_time(cluster, monkeypatch):
    """Its figures are those of the step in which the time is."""
    monkeypatch.setenv("TZ", ZONE)
    share = share_of_an_hour("u1", "train", 0, [100 * (back % 100) for back in reversed(range(360))])
    share["memoryUsed"] = [30 * GiB] * 360
    cluster.answers[HOUR] = {"stepMs": 10000, "containers": [share]}
    for ago in 20, 725, 3570:
        before = time.time()
        at = int(before) - ago
        lines = once(cluster, "--view", "containers", "--at", local(at)).stdout.splitlines()
        steps = {int((when - 0.1 - at) // 10) for when in (before, time.time())}
        assert lines[0].split() == "CONTAINER CORE MEMORY USED UNUSED BUSY GPU NODE".split()
        (line,) = [line for line in lines if "team/train" in line]
        assert figures(line)[:4] == ["50%", "60 GiB", "50%", "30 GiB"]
        assert int(figures(line)[4][:-1]) in {step % 100 for step in range(min(steps), max(steps) + 1)}
        assert [line for line in lines if "team/web" in line and figures(line) == ["-"] * 5]
    assert sum("history" in line for line in cluster.asked()) == 3
    minute = local(time.time() - 120)[:5]
    assert "team/train" in once(cluster, "--view", "containers", "--at", minute, "--sort", "used", "--filter", "50%").stdout
    assert once(cluster, "--at", minute, "--sort", "used").stdout.splitlines()[1].startswith("b-00")


def test_a_history_of_nonsense(cluster, monkeypatch):
    """Figures that no agent can have seen are no trouble."""
    monkeypatch.setenv("TZ", ZONE)
    share = share_of_an_hour("u1", "train", 0, [2**64 - 1] * 400)
    share["memoryUsed"] = ["x", -1, 2**64 - 1, 1e300] * 100
    for step, ago in (10000, 2**64 - 1), (1, 0), (2**63, 2**63), (10000, 100):
        cluster.answers[HOUR] = {"stepMs": step, "containers": [dict(share, agoMs=ago), {}, 7, dict(share, gpuTimeMs={})]}
        shown = once(cluster, "--view", "containers", "--at", local(time.time() - 600)).stdout
        assert "team/train" in shown
    (line,) = [line for line in shown.splitlines() if "team/train" in line]
    assert figures(line)[-1] == "100%", line


def test_a_history_that_is_refused(cluster, monkeypatch):
    monkeypatch.setenv("TZ", ZONE)
    cluster.answers[AGENTS] = "error: pods is forbidden"
    assert once(cluster, "--at", local(time.time() - 600), status=1).stderr == "aliquot top: pods is forbidden\n"


def test_wrong_times(cluster, monkeypatch):
    monkeypatch.setenv("TZ", ZONE)
    hour = re.compile(r"agents have \d\d:\d\d:\d\d to \d\d:\d\d:\d\d\n$")
    for ago in 3700, -60, 1:
        said = once(cluster, "--once", "--at", local(time.time() - ago), status=2).stderr
        assert "is not in the last hour" in said and hour.search(said), said
    assert "is empty" in once(cluster, "--at", "", status=2).stderr
    for text in "x", "25:00", "14", "14:05:20:1":
        assert f"takes a time such as 14:05 or 14:05:20, not '{text}'" in once(cluster, "--at", text, status=2).stderr
    now = local(time.time() - 600)
    assert "for the views cards and containers" in once(cluster, "--view", "nodes", "--at", now, status=2).stderr
    assert "no history" not in once(cluster, "--at", now).stderr
    assert "history of this machine" in once(cluster, "--local", "--at", now, status=2).stderr


def test_a_screen_that_begins_at_another_time(cluster):
    remember(cluster)
    when = local(time.time() - 1200)
    with top(cluster, "--at", when, columns=120, TZ=ZONE) as t:
        t.shows(f"at {when}, 20 min ago")
        t.until("its figures", lambda: figures(t.line("b-00"))[2:4] == ["38%", "90%"])


def test_without_colors(cluster):
    for env, colored in ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True):
        with top(cluster, **env) as t:
            t.shows("b-00")
            assert bool(re.search(rb"\033\[3[0-9]m", t.raw)) == colored


def test_another_character_set(cluster):
    with top(cluster, LC_ALL="C") as t:
        t.shows("###.")
        assert t.raw.isascii()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGSEGV])
def test_the_terminal_is_itself_after_any_end(cluster, number):
    with top(cluster) as t:
        t.shows("? help")
        assert termios.tcgetattr(t.slave) != t.before
        t.process.send_signal(number)
        t.until("its end", lambda: t.process.poll() is not None)
        t.until("the terminal as before", t.is_as_before)
        assert t.process.returncode == -number


def threads_of(pid):
    return {int(name) for name in os.listdir(f"/proc/{pid}/task")}


def blocked_of(pid, thread):
    status = pathlib.Path(f"/proc/{pid}/task/{thread}/status").read_text()
    return int(re.search(r"^SigBlk:\s*(\w+)", status, re.M)[1], 16)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGABRT])
def test_the_terminal_is_itself_after_a_fault_of_the_reader(cluster, number):
    """A fault is a signal to the thread that causes it, and the reader's own mask decides what becomes of it."""
    with top(cluster) as t:
        t.shows("? help")
        (reader,) = threads_of(t.process.pid) - {t.process.pid}
        t.until("the reader's own mask, as a thread begins with all signals blocked",
                lambda: not blocked_of(t.process.pid, reader) >> (number - 1) & 1)
        assert blocked_of(t.process.pid, reader) >> (signal.SIGTERM - 1) & 1
        assert ctypes.CDLL(None).tgkill(t.process.pid, reader, int(number)) == 0
        t.until("its end", lambda: t.process.poll() is not None)
        t.until("the terminal as before", t.is_as_before)
        assert t.process.returncode == -number


def test_a_stop(cluster):
    """Ctrl-Z gives the terminal back, and fg takes it again."""
    with top(cluster) as t:
        t.shows("? help")
        t.process.send_signal(signal.SIGTSTP)
        t.until("it gives the terminal back", lambda: b"\033[?1049l" in t.raw and termios.tcgetattr(t.slave) == t.before)
        t.process.send_signal(signal.SIGCONT)
        t.until("it goes on", lambda: termios.tcgetattr(t.slave) != t.before)
        t.press("2")
        t.shows("team/train")


# ---- this machine ----

def test_local(aliquot, tmp_path):
    """The cards of a simulated machine, and a run on one of them."""
    script = """set -e
        mkfifo up
        aliquot run --memory 20Gi --core 30 --gpu 1 -- sh -c 'echo >up; exec sleep 60' &
        read -r _ <up
        aliquot top --local
        aliquot top --local --view containers
        aliquot top --local --view nodes
        kill $!
        """
    env = {**os.environ, "PATH": f"{pathlib.Path(aliquot).parent}:{os.environ['PATH']}"}
    done = subprocess.run([aliquot, "sim", "--gpus", "2", "--", "sh", "-c", script], text=True, capture_output=True, timeout=120,
                          env=env, cwd=tmp_path)
    assert done.returncode == 0, done
    _, taken, idle, _, run, _, node = done.stdout.splitlines()
    assert taken.split()[0] == "1" and re.findall(r"\d+%", taken) == ["30%", "25%", "0%", "0%"], done.stdout
    assert idle.split()[0] == "0" and re.findall(r"\d+%", idle) == ["0%", "0%", "0%", "0%"]
    assert run.split()[0] == "run" and "30%" in run and "20 GiB" in run
    assert node.startswith("this machine") and re.findall(r"\d+%", node) == ["15%", "13%", "0%", "0%"]


def test_local_has_no_history(aliquot):
    with opened([aliquot, "sim", "--gpus", "1", "--", aliquot, "top", "--local"]) as t:
        t.shows("1 GPU, 1 healthy")
        t.press("[")
        t.shows("ago: nothing keeps a history of this machine")
        t.press("0")
        t.shows("1 GPU, 1 healthy")
        t.press("q")
        t.until("its end", lambda: t.process.poll() is not None)


def test_no_driver(aliquot):
    done = subprocess.run([aliquot, "top", "--local"], text=True, capture_output=True, timeout=60)
    assert done.returncode == 1 and "no NVIDIA driver" in done.stderr
