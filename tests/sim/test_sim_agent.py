# SPDX-License-Identifier: Apache-2.0
"""The agent's NVML process on the simulated driver: an XID reaches it at once, not at the next poll."""

import gzip
import itertools
import json
import os
import pathlib
import re
import resource
import socket
import struct
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client import parser as text
from prometheus_client.openmetrics import parser as openmetrics
from sim_kit import BUILD, Polls, wait_until

AGENT = BUILD / "src/agent/aliquot-agent"
MAGIC, POLL, DRIVER, DEVICE, PROCESSES, END, FAILED, CONTEXT, EVENT = 0x414c5147, *range(1, 9)


class Worker:
    def __init__(self, node, *mode):
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(10)
        fd = theirs.fileno()
        # The child expects it as descriptor 3.
        command = 'exec 3<&"$1"; shift; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", str(fd), AGENT, "nvml-worker", f"{node.dir}/lib/libnvidia-ml.so.1", *mode],
            pass_fds=[fd], env=node.env())
        theirs.close()
        self.sequence = 0

    def receive(self):
        data = self.ours.recv(65536)
        assert data, "it ended"
        magic, kind, _, index = struct.unpack_from("<4I", data)
        assert magic == MAGIC
        return kind, index, data[16:]

    def poll(self):
        """Cards by index: "" or why they are unhealthy."""
        self.sequence += 1
        self.ours.send(struct.pack("<4IQII", MAGIC, POLL, self.sequence, 0, 0, 0, 0))
        cards = {}
        while True:
            kind, index, body = self.receive()
            if kind == END:
                return cards
            if kind == DEVICE:
                cards[index] = body[16:176].split(b"\0")[0].decode()

    def close(self):
        self.ours.close()
        self.process.wait(10)


@pytest.fixture
def worker(node):
    w = Worker(node)
    yield w
    w.close()


def test_an_xid_is_told_at_once(node, worker):
    assert worker.poll() == {0: "", 1: ""}
    node.inject("xid", 48, "--gpu", 1)
    kind, index, body = worker.receive()
    assert (kind, index, struct.unpack_from("<I", body)[0]) == (EVENT, 1, 48)
    assert worker.poll() == {0: "", 1: "nvmlDeviceGetMemoryInfo: GPU requires restart"}
    node.inject("reset", "--gpu", 1, "--force")
    wait_until(lambda: not worker.poll()[1])


def test_a_card_that_is_gone_and_back(node, worker):
    worker.poll()
    node.inject("lose", "--gpu", 0)
    assert worker.receive()[:2] == (EVENT, 0)
    cards = worker.poll()
    assert "lost" in cards[0] and cards[1] == ""
    node.inject("return", "--gpu", 0)
    deadline = time.monotonic() + 10
    while worker.poll()[0]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_programs_own_fault_takes_no_card(node, worker):
    worker.poll()
    node.inject("xid", 31, "--gpu", 0)
    assert worker.receive()[:2] == (EVENT, 0)
    assert worker.poll() == {0: "", 1: ""}
    assert os.path.exists(f"/proc/{worker.process.pid}")


def test_a_probe_tells_whether_a_card_takes_work(node, nvml):
    """Which drivers before 570 do not say."""
    uuids = [nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(2)]

    def probe(uuid):
        w = Worker(node, "probe", uuid)
        try:
            kind, _, body = w.receive()
            return kind, body.split(b"\0")[0].decode()
        finally:
            w.close()

    assert probe(uuids[1]) == (END, "")
    node.inject("xid", 48, "--gpu", 1)
    assert probe(uuids[1]) == (FAILED, "cuDevicePrimaryCtxRetain: error 46")
    assert probe(uuids[0]) == (END, "")
    node.inject("reset", "--gpu", 1, "--force")
    assert probe(uuids[1]) == (END, "")
    assert probe("GPU-00000000-0000-0000-0000-000000000000")[0] == FAILED


def start_agent(node, path, descriptors=None, env=None, **more):
    """An agent without a cluster, which has started. Its standard error is in path / "log"."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x", "-days", "1",
                    "-keyout", path / "key", "-out", path / "ca"], check=True, capture_output=True)
    (path / "token").write_text("t")
    options = {"node-name": "n", "state-dir": path / "state", "cdi-dir": path / "cdi", "kubelet-dir": path / "kubelet",
               "sim-dir": node.dir, "listen": "off", "api-server": "https://127.0.0.1:1", "ca-file": path / "ca",
               "token-file": path / "token", "usage-auth": "none", **more}
    log = path / "log"
    with log.open("w") as stderr:
        agent = subprocess.Popen([AGENT, *(f"--{name}={value}" for name, value in options.items())], stderr=stderr,
                                 env={**os.environ, **(env or {})},
                                 preexec_fn=descriptors and
                                 (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)))
    while agent.poll() is None:
        if "on node n" in log.read_text():
            return agent
        time.sleep(0.02)
    pytest.fail(log.read_text())


def test_the_agent_raises_its_limit_of_descriptors(node):
    """Some container runtimes set a soft limit of 1024, which shares and HTTP connections together can reach."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with tempfile.TemporaryDirectory() as path:  # a short name, for sockets
        agent = start_agent(node, pathlib.Path(path), descriptors=(256, hard))
        try:
            assert resource.prlimit(agent.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        finally:
            agent.kill()
            agent.wait()


class Agent:
    """An agent whose metrics can be read."""

    def __init__(self, node, path, **options):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1:%d" % s.getsockname()[1]
        self.process = start_agent(node, path, listen=self.address, **options)

    def get(self, **headers):
        """The page with the headers of its answer."""
        asked = urllib.request.Request(f"http://{self.address}/metrics", headers=headers)
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return answer.headers, answer.read()

    def page(self):
        return self.get()[1].decode()

    def samples(self, name):
        """The labels and the value of each sample of a metric."""
        return [(dict(re.findall(r'(\w+)="([^"]*)"', m[1])), float(m[2]))
                for m in re.finditer(rf"^{name}{{(.*)}} (\S+)$", self.page(), re.M)]

    def cards(self, name):
        """The values of a metric by the number of the card."""
        return {int(labels["gpu"]): value for labels, value in self.samples(name)}

    def close(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def agent(node):
    with tempfile.TemporaryDirectory() as path:
        a = Agent(node, pathlib.Path(path))
        yield a
        a.close()


def test_a_card_that_hangs_is_the_only_unhealthy_one(node, agent):
    wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 1})
    node.inject("hang", "nvmlDeviceGetMemoryInfo*", "--gpu", 1)
    wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 0})
    end = time.monotonic() + 7  # the deadline of the whole driver is 5 s
    for n in itertools.count(1):
        node.inject("memory", f"{n}Mi", "--gpu", 0)
        # The figures of the other card are at most 2 s old.
        wait_until(lambda: agent.cards("aliquot_gpu_memory_used_bytes").get(0, 0) >= n * 2**20, 2)
        assert agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 0}
        if time.monotonic() > end:
            break
    node.inject("release")
    wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 1})


def test_metrics_as_openmetrics(agent):
    """The strict parser of the Python client takes the page, and finds the samples of the other format in it."""
    wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 1})
    headers, body = agent.get(**{"Accept": "application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "Accept-Encoding": "gzip"})
    assert headers["Content-Type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert headers["Content-Encoding"] == "gzip"
    families = list(openmetrics.text_string_to_metric_families(gzip.decompress(body).decode()))
    assert {(f.name, f.type) for f in families} >= {
        ("aliquot_gpu_healthy", "gauge"), ("aliquot_gpu_resets", "counter"), ("aliquot_agent_allocate_seconds", "histogram"),
        ("DCGM_FI_DEV_GPU_TEMP", "gauge"), ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "unknown")}
    plain = text.text_string_to_metric_families(agent.page())

    def named(families):    # the parser of the text adds _total to counters without it
        return {(sample.name.removesuffix("_total"), frozenset(sample.labels.items() - {("le", sample.labels.get("le"))}))
                for family in families for sample in family.samples}
    assert named(families) == named(plain)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def healthz(port):
    """The text of /healthz; the agent here has no kubelet and no API server, so it is never "ok"."""
    with pytest.raises(urllib.error.HTTPError) as answer:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=10)
    return answer.value.read().decode()


def wait_for(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def replace(path, text):
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_a_configuration_is_read_again(node):
    """Good, bad, good: in force within 2 s, without a restart, and a bad file changes nothing."""
    port = free_port()
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        file, log = path / "config.yaml", path / "log"
        file.write_text("version: v1\nflags: {failOnInitError: true}\n")
        agent = start_agent(node, path, **{"config-file": file, "listen": f"127.0.0.1:{port}"})
        try:
            assert "line 2: failOnInitError has no effect here" in log.read_text()
            assert "configuration" not in healthz(port)
            replace(file, "version: v1\nsharing: {timeslicing: {}}\n")
            wait_for(lambda: "the configuration does not change: " in healthz(port), 2)
            assert "line 2, column 11: unknown key 'timeslicing'; did you mean 'timeSlicing'?" in healthz(port)
            assert "n: ConfigurationInvalid: " in log.read_text()
            replace(file, "version: v1\naliquot: {cards: [{devices: all, memoryScaling: 1.5}]}\n")
            wait_for(lambda: "the configuration of the node has changed" in log.read_text(), 2)
            assert "configuration" not in healthz(port)
            assert agent.poll() is None
        finally:
            agent.kill()
            agent.wait()


@pytest.fixture
def timed(node):
    """timed(health): an agent whose configuration has these times, and a function that changes them."""
    with tempfile.TemporaryDirectory() as name:
        path, agents = pathlib.Path(name), []

        def configure(health):
            replace(path / "config.yaml", f"version: v1\naliquot: {{health: {{{health}}}}}\n")

        def start(health):
            configure(health)
            agents.append(Agent(node, path, **{"config-file": path / "config.yaml"}))
            wait_until(lambda: agents[0].cards("aliquot_gpu_healthy") == {0: 1, 1: 1})
            return agents[0], configure
        yield start
        for agent in agents:
            agent.close()


def test_another_interval(node, timed):
    """It is in force within 2 s, however long the one before was. A page of the agent would have it poll."""
    _, configure = timed("interval: 60s, deadline: 60s")
    polls = Polls(node)

    def gap():
        seen, begun = polls(), time.monotonic()
        wait_until(lambda: polls() > seen)
        return time.monotonic() - begun
    configure("interval: 100ms")
    wait_until(lambda: polls() >= 20, 15)    # 20 s where a poll is each second
    configure("interval: 4s")
    wait_until(lambda: gap() > 2)


def test_another_deadline(node, timed):
    """Also for a call that runs."""
    agent, configure = timed("interval: 200ms, deadline: 60s")
    node.inject("hang", "nvmlDeviceGetMemoryInfo*", "--gpu", 1)
    wait_until(lambda: [rule for rule in node.show() if "hang" in rule][0]["done"] != "0")
    configure("interval: 200ms, deadline: 500ms")
    wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 0}, 30)
    node.inject("release")
    wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 1})
    node.inject("hang", "nvmlDeviceGetMemoryInfo*", "--gpu", 0)
    wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 0, 1: 1}, 30)


def test_a_bad_configuration_at_the_start(node):
    """The agent serves its pods with what applied before; without anything before, with the defaults."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        file, log = path / "config.yaml", path / "log"
        for text, expected in (("version: v2\n", "the default configuration"), ("version: v1\n", "on node n"),
                               ("version: v2\n", "the configuration from before the restart")):
            file.write_text(text)
            agent = start_agent(node, path, **{"config-file": file})
            agent.kill()
            agent.wait()
            assert expected in log.read_text()


def test_the_configuration_names_mig_resources(node_of):
    """Patterns of NVIDIA's file, which its plugin throws away; renamed while the agent runs."""
    node = node_of("--machine", pathlib.Path(__file__).resolve().parents[2] / "src/sim/machines/mig.machine")
    port = free_port()

    def resources():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return set(re.findall(r'^aliquot_agent_registered\{resource="(nvidia[^"]*)"', answer.read().decode(), re.M))

    def config(names):
        return ("version: v1\nflags: {migStrategy: mixed}\nresources:\n  mig:\n" +
                "".join(f"  - {{pattern: '{pattern}', name: {name}}}\n" for pattern, name in names))

    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        file = path / "config.yaml"
        file.write_text(config([("1g.*", "small")]))
        agent = start_agent(node, path, **{"config-file": file, "listen": f"127.0.0.1:{port}"})
        try:
            first = {"nvidia.com/small", "nvidia.com/mig-2g.20gb", "nvidia.com/mig-3g.40gb"}
            wait_for(lambda: resources() == first, 10)
            replace(file, config([("1g.*", "tiny"), ("*", "other")]))
            wait_for(lambda: resources() == first | {"nvidia.com/tiny", "nvidia.com/other"}, 2)
        finally:
            agent.kill()
            agent.wait()


def test_cards_are_given_out_as_configured(node):
    """Whole, in replicas and in shares, by NVIDIA's file; changed while the agent runs."""
    port = free_port()

    def page(name):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{name}", timeout=10) as answer:
            return answer.read().decode()

    def resources():
        return set(re.findall(r'^aliquot_agent_registered\{resource="(nvidia[^"]*)"', page("metrics"), re.M))

    def offered():
        """By card: the bytes that the node gives out of it in shares."""
        return [card["memoryCapacity"] > 0 for card in json.loads(page("usage"))["gpus"]]

    def config(text):
        return ("version: v1\nresources: {gpus: [{pattern: A100, name: a100}]}\n"
                "sharing: {timeSlicing: {renameByDefault: true, resources: [" + text + "]}}\n"
                "aliquot: {health: {interval: 100ms}, cards: [{devices: [0], mode: share}]}\n")

    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        file = path / "config.yaml"
        file.write_text("version: v1\n")
        agent = start_agent(node, path, **{"config-file": file, "listen": f"127.0.0.1:{port}"})
        try:
            wait_for(lambda: offered() == [True, True], 10)
            assert resources() == set()
            replace(file, config("{name: other, replicas: 2}"))
            wait_for(lambda: resources() == {"nvidia.com/a100"}, 5)
            assert offered() == [True, False]
            replace(file, config("{name: a100, replicas: 2}"))
            wait_for(lambda: "nvidia.com/a100.shared" in resources(), 5)
            # A name of shares.
            replace(file, config("{name: a100, rename: vcuda-core, replicas: 2}"))
            wait_for(lambda: "add --served-elsewhere nvidia.com/vcuda-core" in healthz(port), 5)
            assert offered() == [True, False]
        finally:
            agent.kill()
            agent.wait()


def test_instances_have_health_and_figures(node_of, nvml_of):
    node = node_of("--machine", "mig")
    nvml = nvml_of(node)
    card = nvml.nvmlDeviceGetHandleByIndex(0)
    part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, 0)
    name = nvml.nvmlDeviceGetUUID(part)
    with tempfile.TemporaryDirectory() as path:
        agent = Agent(node, pathlib.Path(path))
        try:
            wait_until(lambda: len(agent.samples("aliquot_gpu_instance_healthy")) == 11)
            wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 1, 1: 1, 2: 1})
            user = node.start("hold", 4 << 30, CUDA_VISIBLE_DEVICES=name)
            assert user.stdout.readline().split()[0] == "0"
            used = nvml.nvmlDeviceGetMemoryInfo(part).used
            wait_until(lambda: [v for labels, v in agent.samples("aliquot_gpu_instance_memory_used_bytes")
                           if labels["uuid"] == name] == [used])
            ((labels, mib),) = [s for s in agent.samples("DCGM_FI_DEV_FB_USED")
                                if s[0]["gpu"] == "0" and s[0]["GPU_I_ID"] == str(nvml.nvmlDeviceGetGpuInstanceId(part))]
            assert mib == used >> 20
            assert labels["GPU_I_PROFILE"] == "3g.40gb" and labels["UUID"] == nvml.nvmlDeviceGetUUID(card)
            # The card's double-bit error is one of all its instances.
            node.inject("xid", 48, "--gpu", 0)
            wait_until(lambda: agent.cards("aliquot_gpu_healthy") == {0: 0, 1: 1, 2: 1})
            healthy = [(labels["gpu"], v) for labels, v in agent.samples("aliquot_gpu_instance_healthy")]
            assert sorted(healthy) == [("0", 0)] * 4 + [("1", 1)] * 7
        finally:
            agent.close()
