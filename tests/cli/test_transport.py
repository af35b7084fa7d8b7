# SPDX-License-Identifier: Apache-2.0
"""How `aliquot` asks a cluster: one `kubectl proxy` for all requests of a command."""

import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from test_chart import programs     # noqa: F401  (fixture)
from test_inspect import AGENTS, GPUS, gpu

TOKEN = "create token aliquot-figures"
USAGE = "get --raw /api/v1/namespaces/aliquot-system/pods/agent-{}:9400/proxy/usage"

# It notes that it runs, and where; what it is asked, it looks up. "hang" is never answered.
KUBECTL = f"""#!{sys.executable}
import json, os, sys, time
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import proxied
here = os.environ["ANSWERS"]
with open(here + "/started", "a") as log:
    log.write(f"{{os.getpid()}} {{' '.join(sys.argv[1:])}}\\n")
answers = json.load(open(here + "/answers.json"))
sys.stderr.write(answers.get("says", ""))
sys.stderr.flush()
if "dies" in answers:
    sys.exit(answers["dies"])
def get(words):
    if answers.get("says later"):
        sys.stderr.write(answers["says later"])
        sys.stderr.flush()
    with open(here + "/asked", "a") as log:
        log.write(words + "\\n")
    if answers.get(words) == "hang":
        time.sleep(3600)
    return answers.get(words)
(socket,) = [a.partition("=")[2] for a in sys.argv if a.startswith("--unix-socket=")]
with open(here + "/directory", "w") as log:
    print(os.path.dirname(socket), oct(os.stat(os.path.dirname(socket)).st_mode & 0o777), file=log)
proxied.serve(sys.argv[1:], get)
"""


class Cluster:
    def __init__(self, aliquot, where, runtime):
        self.aliquot, self.where, self.runtime = aliquot, where, pathlib.Path(runtime)
        self.kubectl = where / "kubectl"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        self.answers = {"get gpus.elasticgpu.io -o json": GPUS, AGENTS: {"items": []}}

    def start(self, *words, **env):
        (self.where / "answers.json").write_text(json.dumps(self.answers))
        env = {**os.environ, "KUBECTL": str(self.kubectl), "ANSWERS": str(self.where),
               "XDG_RUNTIME_DIR": str(self.runtime), **env}
        return subprocess.Popen([self.aliquot, *words], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words, **env):
        process = self.start(*words, **env)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def lines(self, name):
        return (self.where / name).read_text().splitlines()

    def until(self, what, done, seconds=60):
        end = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < end, f"not within {seconds} s: {what}"
            time.sleep(0.02)


@pytest.fixture
def cluster(aliquot, tmp_path):
    with tempfile.TemporaryDirectory() as runtime:     # short enough for a socket
        yield Cluster(aliquot, tmp_path, runtime)


def agents(number):
    """Nodes n0 ... of one card each, with agents."""
    cards = [gpu(f"n{i}", 0, (100, "80Gi")) for i in range(number)]
    for i, card in enumerate(cards):
        card["spec"]["uuid"] = f"GPU-{i}"
    pods = [{"metadata": {"name": f"agent-{i}"}, "spec": {"nodeName": f"n{i}"}} for i in range(number)]
    pages = {USAGE.format(i): {"gpus": [{"uuid": f"GPU-{i}", "memoryUsed": (i + 1) << 20, "utilization": i % 100}]}
             for i in range(number)}
    return {"get gpus.elasticgpu.io -o json": {"items": cards}, AGENTS: {"items": pods}, **pages}


def test_one_kubectl(cluster):
    """It is started once, in a directory of this user, of which nothing stays."""
    cluster.answers.update(agents(100))
    status, out, err = cluster.run("gpus", "--context", "c")
    assert (status, err) == (0, ""), err
    (started,) = cluster.lines("started")
    assert started.split()[1:-1] == ["--context=c", "proxy", "--append-server-path"]
    assert len(cluster.lines("asked")) == 103
    for i in (0, 99):
        assert f"{i + 1} MiB".split() == next(line for line in out.splitlines() if line.startswith(f"n{i}-00")).split()[-5:-3]
    (place,) = cluster.lines("directory")
    directory, mode = place.split()
    assert pathlib.Path(directory).parent == cluster.runtime and mode == "0o700"
    assert list(cluster.runtime.iterdir()) == []


def with_token(pages, token="t.o-k_e-n"):
    """Agents that answer those with a token only."""
    return {f"{words} with {token}" if "/proxy/" in words else words: page for words, page in pages.items()}


def test_one_token_for_all_agents(cluster):
    cluster.answers.update({**with_token(agents(50)), TOKEN: "t.o-k_e-n"})
    status, out, err = cluster.run("gpus")
    assert (status, err) == (0, ""), err
    assert cluster.lines("asked").count(TOKEN) == 1 and out.count(" MiB ") == 50


def test_agents_that_serve_https(cluster):
    """Their pods say so, one by one: while agents are replaced there are both kinds."""
    answers = agents(3)
    for i in (0, 2):
        answers[AGENTS]["items"][i]["metadata"]["annotations"] = {"prometheus.io/scheme": "https"}
        answers[USAGE.format(i).replace("pods/", "pods/https:")] = answers.pop(USAGE.format(i))
    cluster.answers.update(answers)
    status, out, err = cluster.run("gpus")
    assert (status, err) == (0, "") and out.count(" MiB ") == 3, err


def test_agents_of_an_older_version(cluster):
    """They ask for no token, and it is no matter that there is none."""
    for answer in ("error: no such right", None):
        cluster.answers.update({**agents(2), TOKEN: answer})
        status, out, err = cluster.run("gpus")
        assert (status, err) == (0, "") and out.count(" MiB ") == 2, err


@pytest.mark.parametrize("answer, remedy", [
    ("error: no such right", "kubectl create rolebinding viewers -n aliquot-system --role=aliquot-viewer --user=YOU"),
    (None, "there is no ServiceAccount aliquot-figures in namespace aliquot-system: apply the manifests of this version"),
    ("a token\r\nHost: elsewhere", "the API server has answered a request of a token with none")])
def test_a_user_without_a_token(cluster, answer, remedy):
    """Told once and not for each agent; the cards are shown."""
    cluster.answers.update({**{words: "401: aliquot-agent: this page asks for a token" if "/proxy/" in words else page
                               for words, page in agents(3).items()}, TOKEN: answer,
                            "get pods -A -o json": {"items": []}})
    status, out, err = cluster.run("gpus")
    assert status == 0 and len(out.splitlines()) == 4
    assert err.startswith("aliquot gpus: no figures of use: ") and remedy in err and len(err.splitlines()) == 1, err
    status, out, err = cluster.run("top", "--once")
    assert status == 0 and remedy in err and "not answer" not in err, err
    status, out, err = cluster.run("recommend")
    assert status == 1 and out == "" and remedy in err, err


def test_a_user_without_a_token_of_many_agents(cluster):
    """kubectl logs in anew for each answer 401: not all agents are asked."""
    cluster.answers.update({**{words: "401: aliquot-agent: this page asks for a token" if "/proxy/" in words else page
                               for words, page in agents(100).items()}, TOKEN: "error: no such right"})
    status, out, err = cluster.run("gpus")
    assert status == 0 and "--role=aliquot-viewer" in err and len(err.splitlines()) == 1, err
    assert len(out.splitlines()) == 101
    assert len([words for words in cluster.lines("asked") if "/proxy/" in words]) == 64     # at a time, in agents.c


def test_a_user_with_no_right_to_agents(cluster):
    """One remedy for both rights, of which the Role has the one and the other."""
    cluster.answers.update({**{words: "error: pods/proxy is forbidden" if "/proxy/" in words else page
                               for words, page in agents(3).items()}, TOKEN: "error: no such right"})
    status, out, err = cluster.run("gpus")
    assert status == 0 and "--role=aliquot-viewer" in err and len(err.splitlines()) == 1, err


def test_a_token_that_an_agent_does_not_take(cluster):
    """Its answer is shown, and the next command requests another token."""
    cluster.answers.update({**with_token(agents(2)), TOKEN: "t.o-k_e-n",
                            USAGE.format(1) + " with t.o-k_e-n": "401: aliquot-agent: it has expired"})
    status, out, err = cluster.run("gpus")
    assert status == 0 and err == "aliquot gpus: no usage from agent agent-1: the agent answers 401: aliquot-agent: it has expired\n"
    assert out.count(" MiB ") == 1


@pytest.mark.parametrize("directory", ["", "relative", "/does/not/exist", "/" + "x" * 90])
def test_without_a_directory_of_the_user(cluster, directory):
    assert cluster.run("inspect", XDG_RUNTIME_DIR=directory)[0] == 0
    assert cluster.lines("directory")[0].startswith("/tmp/aliquot-")


def test_an_agent_that_hangs(cluster):
    """The others' figures come, and its cards say that it does not answer."""
    cluster.answers.update(agents(40))
    cluster.answers[USAGE.format(3)] = "hang"
    cluster.answers[USAGE.format(5)] = "error: pods/proxy is forbidden"
    status, out, err = cluster.run("gpus")
    rows = {line.split()[0]: line.split() for line in out.splitlines()}
    assert status == 0 and sorted(err.splitlines()) == [
        "aliquot gpus: no usage from agent agent-3: no answer in time",
        "aliquot gpus: no usage from agent agent-5: pods/proxy is forbidden"]
    assert [name for name in rows if rows[name][-3:-1] == ["no", "answer"]] == ["n3-00", "n5-00"]
    assert rows["n39-00"][-5:] == "40 MiB 39 % Healthy".split()


def test_two_agents_of_a_node(cluster):
    """One that was evicted is not asked, and one that does not answer leaves the other's figures as they are."""
    cluster.answers.update(agents(3))
    pods = cluster.answers[AGENTS]["items"]
    cluster.answers[AGENTS]["items"] = [
        {"metadata": {"name": "old-0"}, "spec": {"nodeName": "n0"}, "status": {"phase": "Failed", "reason": "Evicted"}},
        {"metadata": {"name": "no-node"}, "spec": {}, "status": {"phase": "Pending"}},
        {"metadata": {"name": "old-1"}, "spec": {"nodeName": "n1"}}, *pods,
        {"metadata": {"name": "new-2"}, "spec": {"nodeName": "n2"}}]
    status, out, err = cluster.run("gpus")
    assert status == 0 and sorted(line.split()[6] for line in err.splitlines()) == ["new-2:", "old-1:"], err
    used = [line.split()[-5:] for line in out.splitlines()[1:]]
    assert used == [f"{i + 1} MiB {i} % Healthy".split() for i in range(3)]
    top = cluster.run("top")
    assert top[0] == 0 and "not answer" not in top[2], top


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_end_of_the_command_is_the_end_of_kubectl(cluster, number):
    cluster.answers["get gpus.elasticgpu.io -o json"] = "hang"
    command = cluster.start("inspect")
    cluster.until("it is asked", lambda: (cluster.where / "asked").exists())
    command.send_signal(number)
    command.communicate(timeout=60)
    assert command.returncode == -number
    pid = int(cluster.lines("started")[0].split()[0])
    cluster.until("kubectl has ended", lambda: is_gone(pid))
    assert list(cluster.runtime.iterdir()) == []


def test_a_signal_while_kubectl_starts(cluster):
    """The directory is removed nevertheless."""
    cluster.kubectl.write_text(f"#!{sys.executable}\nimport os, time\nopen(os.environ['ANSWERS'] + '/up', 'w').close()\ntime.sleep(0.5)\n")
    command = cluster.start("inspect")
    cluster.until("it starts", lambda: (cluster.where / "up").exists())
    command.send_signal(signal.SIGTERM)
    command.communicate(timeout=60)
    assert command.returncode == -signal.SIGTERM and list(cluster.runtime.iterdir()) == []


CAUSES = {
    "no kubectl": (dict(KUBECTL="/does/not/exist"), {}, "kubectl is not on the path; install it or set KUBECTL"),
    "no context": ({}, {"says": "one\nerror: context \"x\" does not exist\n", "dies": 1},
                   "kubectl: error: context \"x\" does not exist"),
    "no word": ({}, {"dies": 1}, "kubectl: it ended without a word"),
    "no right": ({}, {"get gpus.elasticgpu.io -o json": "error: gpus.elasticgpu.io is forbidden"},
                 "gpus.elasticgpu.io is forbidden"),
    "not installed": ({}, {"get gpus.elasticgpu.io -o json": None}, "Aliquot is not installed"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_goes_wrong(cluster, cause):
    env, answers, text = CAUSES[cause]
    cluster.answers.update(answers)
    status, out, err = cluster.run("inspect", **env)
    assert status == 1 and out == "" and text in err and err.count("\n") == 1, err
    assert list(cluster.runtime.iterdir()) == []


def raw(status, body, *fields):
    return "raw: HTTP/1.1 " + "".join(f"{line}\r\n" for line in (status, *fields)) + "\r\n" + body


def chunked(text, size):
    parts = [text[i:i + size] for i in range(0, len(text), size)]
    return raw("200 OK", "".join(f"{len(part):x};x=y\r\n{part}\r\n" for part in parts) + "0\r\nX: y\r\n\r\n", "Transfer-Encoding: chunked")


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_chunks(cluster, size):
    cluster.answers["get gpus.elasticgpu.io -o json"] = chunked(json.dumps(GPUS), size)
    assert cluster.run("inspect", "-o", "name") == (0, "node/a\nnode/b\n", "")


BROKEN = {
    "ends in the head": ("raw: HTTP/1.1 200 O", "the connection ended before the answer did"),
    "ends in the body": (raw("200 OK", "{", "Content-Length: 100"), "the connection ended before the answer did"),
    "ends in a chunk": (raw("200 OK", "ff\r\n{", "Transfer-Encoding: chunked"), "the connection ended before the answer did"),
    "a bad chunk": (raw("200 OK", "zz\r\n", "Transfer-Encoding: chunked"), "the answer is not HTTP/1.1"),
    "another protocol": ("raw: SSH-2.0-OpenSSH\r\n\r\n", "the answer is not HTTP/1.1"),
    "no JSON": (raw("200 OK", "<html>", "Content-Length: 6"), "JSON"),
    "too long a head": (raw("200 OK", "", "X: " + "x" * 70000), "longer than"),
    "no server": (raw("502 Bad Gateway", "dial tcp: connection refused\n\n", "Content-Length: 30"),
                  "kubectl cannot reach the API server: dial tcp: connection refused"),
    "a page of a proxy": (raw("407 No", "Log in\n", "Content-Length: 7"), "the API server answers 407: Log in"),
}


@pytest.mark.parametrize("way", BROKEN)
def test_broken_answers(cluster, way):
    answer, text = BROKEN[way]
    cluster.answers["get gpus.elasticgpu.io -o json"] = answer
    status, out, err = cluster.run("inspect")
    assert (status, out) == (1, "") and text in err and err.count("\n") == 1, err


AGENT_TROUBLE = {
    "busy": (raw("503 Service Unavailable", "the driver hangs\n", "Content-Length: 17"), "the agent answers 503: the driver hangs"),
    "wrong": (raw("500 No", "oops\n", "Content-Length: 5"), "the agent, or kubectl on the way to it, answers 500: oops"),
    "endless": (raw("200 OK", "x" * (9 << 20), "Content-Length: 9437184"), "the answer is longer than 8388608 bytes"),
    "of the API server": (raw("503 No", '{"message": "error trying to reach service"}', "Content-Length: 44"), "error trying to reach service"),
}


@pytest.mark.parametrize("trouble", AGENT_TROUBLE)
def test_what_an_agent_answers(cluster, trouble):
    """Its words are not taken for those of the API server, and its page is bounded."""
    answer, text = AGENT_TROUBLE[trouble]
    cluster.answers.update(agents(2))
    cluster.answers[USAGE.format(1)] = answer
    status, out, err = cluster.run("gpus")
    assert status == 0 and "1 MiB" in out and out.count("no answer") == 1
    assert err.startswith("aliquot gpus: no usage from agent agent-1: ") and text in err and "API server" not in err


def put_off(seconds):
    return raw("429 Too Many Requests", "later", "Content-Length: 5", *([f"Retry-After: {seconds}"] if seconds else []))


def test_a_server_that_puts_off(cluster):
    """It is asked again after the time that it names, and all others meanwhile."""
    cluster.answers.update(agents(2))
    cluster.answers["get gpus.elasticgpu.io -o json"] = [put_off(1), put_off(None), cluster.answers["get gpus.elasticgpu.io -o json"]]
    cluster.answers[USAGE.format(0)] = [put_off(1), cluster.answers[USAGE.format(0)]]
    begin = time.monotonic()
    status, out, err = cluster.run("gpus")
    assert (status, err) == (0, "") and "1 MiB" in out and "2 MiB" in out
    assert time.monotonic() - begin >= 3
    assert cluster.lines("asked").count("get gpus.elasticgpu.io -o json") == 3


@pytest.mark.parametrize("seconds, times", [(1, 5), (3600, 1), ("Fri, 31 Dec 2027 23:59:59 GMT", 5)])
def test_a_server_that_puts_off_for_ever(cluster, seconds, times):
    cluster.answers["get gpus.elasticgpu.io -o json"] = put_off(seconds)
    status, out, err = cluster.run("inspect")
    assert (status, out, err) == (1, "", "aliquot inspect: the API server answers 429: later\n")
    assert len(cluster.lines("asked")) == times


def test_what_a_login_says(cluster):
    """A program of the kubeconfig that asks the user for something is heard; the log of kubectl is not."""
    cluster.answers["says later"] = "E1128 20:41:07.123456   12 proxy.go:1] quiet\nOpen https://login and enter 1234\n"
    status, _, err = cluster.run("inspect")
    assert (status, err) == (0, "Open https://login and enter 1234\n")


@pytest.mark.parametrize("length", [4095, 4096, 4097, 20000])
def test_a_long_line_of_a_login(cluster, length):
    """It is passed on, and so is what follows it; a long line of the log is not."""
    says = "x" * length + "\nE1128 " + "y" * length + "\nOpen https://login\n"
    cluster.answers["says later"] = says
    status, _, err = cluster.run("inspect")
    assert (status, err) == (0, "x" * length + "\nOpen https://login\n")


def test_a_kubectl_that_ends(cluster):
    """A command that goes on and on starts another one."""
    watch = cluster.start("inspect", "--watch", "-o", "name")
    try:
        assert [watch.stdout.readline() for _ in range(2)] == ["node/a\n", "node/b\n"]
        cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": GPUS["items"][:1]}
        (cluster.where / "answers.json").write_text(json.dumps(cluster.answers))
        os.kill(int(cluster.lines("started")[0].split()[0]), signal.SIGKILL)
        assert [watch.stdout.readline() for _ in range(2)] == ["\n", "node/b\n"]
        assert len(cluster.lines("started")) == 2 and list(cluster.runtime.iterdir()) == []
    finally:
        watch.terminate()
        watch.communicate(timeout=60)


def test_names_are_no_paths(cluster):
    for words in (["explain", "x/../y", "-n", "team"], ["explain", "x", "-n", "a?b"], ["gpus", "--system", "a/b"],
                  ["node", "release", "../pods"]):
        assert cluster.run(*words)[0] == 1
    assert not [line for line in cluster.lines("asked") if ".." in line or "?b" in line or "a/b" in line]


# ---- the real kubectl ----

class Api(http.server.BaseHTTPRequestHandler):
    """An API server below a path, which knows GPU objects only."""

    def do_GET(self):
        self.server.asked.append(self.path)
        known = self.path == self.server.below + "/apis/elasticgpu.io/v1alpha1/gpus"
        body = json.dumps(GPUS if known else {"kind": "Status", "message": "no such path"}).encode()
        self.send_response(200 if known else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("below", ["", "/k8s/clusters/c-1"])
def test_a_server_with_a_path(cluster, programs, below):    # noqa: F811
    """The path of the kubeconfig's server is that of every request."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        server.asked, server.below = [], below
        threading.Thread(target=server.serve_forever, daemon=True).start()
        where = {"server": f"http://127.0.0.1:{server.server_port}{below}"}
        config = cluster.where / "config"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": where}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}]}))
        status, out, err = cluster.run("inspect", "-o", "name", "--kubeconfig", str(config), KUBECTL=programs["kubectl"])
        server.shutdown()
    assert (status, out, err) == (0, "node/a\nnode/b\n", ""), server.asked
