#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures aliquot-scheduler in a cluster of thousands of nodes: the real etcd, API server and kube-scheduler, with
Node and GPU objects and bound pods made for it.

    make bench-scale                 5,000 nodes x 8 GPUs, 20,000 bound pods
    make bench-scale NODES=500       a tenth of it

The objects are written into etcd, as the API server stores them, since 65,000 requests would take longer than what is
measured; from then on everything goes through the API server. No kubelet and no controller runs.

Rounds take turns, so that what else the machine does falls on all equally: the same pods with aliquot-scheduler, and
without any extender, when kube-scheduler adds up what nodes advertise. CPU time says the most where the machine is
shared, and by how much one process holds up the others where it has few cores.

    make bench-scale NODES=1000 ARGS=--own

measures beside each other the cluster's kube-scheduler as the one that asks and one of our own (deploy/own-scheduler), with the
cluster's beside it, which asks nothing, and without.

Another project's extender beside it, on the same pods: --dialect gpushare --peer NAME=COMMAND,URL, where COMMAND runs
it on the node with KUBECONFIG in its environment, and URL is what kube-scheduler puts before "/filter" and "/bind".
"""

import argparse
import base64
import contextlib
import gc
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import textwrap
import time
import uuid
from typing import NamedTuple

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench")]

import kit                                              # noqa: E402  (the path comes first)
from cluster import api as kube                         # noqa: E402
from cluster import aliquot, binaries, config           # noqa: E402
from cluster.cluster import SCHEDULER_CONFIGURATION, Cluster    # noqa: E402
from figures import duration, machine, write_between    # noqa: E402

GPUS = 8
PODS_PER_NODE = 4
ROUND_MAX = 300             # seconds for one measurement of the rate
PEER_PODS = 50              # of one with two pods a second
PEER_ASKED = 30
RESTARTS = 3
ASKED = 300                 # times that filter is asked directly
CALM = 0.2                  # seconds between two polls for remaining work
PORT = 9401
CARD = kit.CARD
NOW = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
SHARES = [(10, 8), (20, 16), (25, 20), (30, 24), (50, 40), (15, 4), (5, 2), (40, 32)]     # percent, GiB
HALF = (50, CARD >> 31)
PROCESSES = ("kube-scheduler", "kube-apiserver", "etcd", "aliquot-scheduler")
# How the kube-scheduler that asks is configured: as the cluster's, or as one of our own, with the cluster's beside it or without.
EXTENDER, OWN, OWN_ALONE = "aliquot", "own", "own, alone"
MODES = {EXTENDER: "extender", OWN: "own", OWN_ALONE: "own, the cluster's kube-scheduler elsewhere"}
OWN_CONFIGURATION = "/etc/kubernetes/own.yaml"
OWN_NAME = "aliquot-scheduler"      # that pods name
STOCK = "cluster-kube-scheduler"    # the cluster's own program, when another one asks
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{kit.SYSTEM}/leases"
UNBATCHED = "--feature-gates=OpportunisticBatching=false"

# How a pod asks for (percent, GiB), and what it carries when it holds that of card `index`, beside the assignment.
DIALECTS = {
    "elasticgpu": (lambda core, gib: {kit.CORE: str(core), kit.MEMORY: f"{gib}Gi"},
                   lambda index, gib: {}, HALF[0]),
    "gpushare": (lambda core, gib: {"aliyun.com/gpu-mem": str(gib), "elasticgpu.io/slot": "1"},  # admission adds it
                 lambda index, gib: {"ALIYUN_COM_GPU_MEM_IDX": str(index), "ALIYUN_COM_GPU_MEM_POD": str(gib),
                                     "ALIYUN_COM_GPU_MEM_DEV": str(CARD >> 30), "ALIYUN_COM_GPU_MEM_ASSIGNED": "true",
                                     "ALIYUN_COM_GPU_MEM_ASSUME_TIME": "1"}, 0),
}


class Progress:
    """Lines on stderr, with what is left of a step."""

    def __init__(self):
        self.begin = time.monotonic()

    def say(self, text):
        print(f"{time.monotonic() - self.begin:5.0f} s  {text}", file=sys.stderr, flush=True)

    def steps(self, text, total):
        """A function to be called with how far it is."""
        began = last = time.monotonic()

        def at(done):
            nonlocal last
            now = time.monotonic()
            if now - last > 5 and done:
                last = now
                self.say(f"{text}: {done:,} of {total:,}, about {(now - began) * (total - done) / done:.0f} s left")
        self.say(f"{text}: {total:,}")
        return at


# ---- objects, as the API server stores them ----

def meta(name, namespace=None, **more):
    found = {"name": name, "uid": str(uuid.uuid4()), "creationTimestamp": NOW, **more}
    return dict(found, namespace=namespace) if namespace else found


def node_name(number):
    return f"node-{number:05d}"


def card_uuid(node, index):
    return f"GPU-{node:08d}-0000-4000-8000-{index:012d}"


def node_object(number):
    resources = {"cpu": "64", "memory": "512Gi", "pods": "250", "ephemeral-storage": "1Ti",
                 # What is counted by kube-scheduler alone.
                 kit.CORE: str(100 * GPUS), kit.MEMORY: str(GPUS * CARD),
                 "aliyun.com/gpu-mem": str(GPUS * CARD >> 30), "aliyun.com/gpu-count": str(GPUS),
                 "elasticgpu.io/slot": str(100 * GPUS)}
    name = node_name(number)
    return f"/registry/minions/{name}", {
        "apiVersion": "v1", "kind": "Node", "spec": {},
        "metadata": meta(name, labels={"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}),
        "status": {"capacity": resources, "allocatable": resources,
                   "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                                   "lastHeartbeatTime": NOW, "lastTransitionTime": NOW}]}}


def share(core, memory):
    return {kit.CORE: str(core), kit.MEMORY: f"{memory >> 30}Gi"}


def gpu_object(node, index, holder, core):
    """holder: the pod that holds half of its memory and `core` percent of it, or None."""
    free = share(100 - core, CARD // 2) if holder else share(100, CARD)
    allocated = {holder["uid"]: {"containers": [{"container": "main", "resource": share(core, CARD // 2)}],
                                 "namespace": holder["namespace"], "pod": holder["name"]}} if holder else {}
    name = f"{node_name(node)}-gpu-{index}"
    return f"/registry/elasticgpu.io/gpus/{name}", {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": meta(name, generation=1),
        "spec": {"index": index, "memory": CARD, "model": "NVIDIA H100 80GB HBM3", "nodeName": node_name(node),
                 "path": f"/dev/nvidia{index}", "uuid": card_uuid(node, index)},
        "status": {"state": "Healthy", "capacity": share(100, CARD), "overuse": [],
                   "allocatable": free, "allocated": allocated}}


def pod_object(metadata, resources, node=None, scheduler="default-scheduler"):
    spec = {"containers": [{"name": "main", "image": "localhost/none:1", "imagePullPolicy": "Never",
                            "resources": {"limits": resources, "requests": resources}}],
            "restartPolicy": "Always", "schedulerName": scheduler, "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": True, "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority"}
    if node:
        spec["nodeName"] = node
    return f'/registry/pods/{metadata["namespace"]}/{metadata["name"]}', {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": {"phase": "Running" if node else "Pending", "qosClass": "BestEffort"}}


def assignment(node, index, core):
    device = {"index": index, "uuid": card_uuid(node, index), "core": core, "memory": CARD // 2}
    return json.dumps({"v": 1, "node": node_name(node), "containers": {"main": [device]}}, separators=(",", ":"))


class Etcd:
    """Writes many objects at once, through etcd's JSON gateway."""

    AT_ONCE = 100       # they get the same resourceVersion, which a watch that begins just then would miss the half of

    def __init__(self, cluster):
        self.connection = http.client.HTTPConnection("etcd", timeout=120)
        self.connection.sock = cluster.connect(2379, timeout=120)
        self.connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def put(self, objects, at=lambda done: None, at_once=AT_ONCE):
        batch, done = [], 0
        for key, value in objects:
            batch.append({"requestPut": {"key": base64.b64encode(key.encode()).decode(),
                                         "value": base64.b64encode(json.dumps(value).encode()).decode()}})
            if len(batch) == at_once:
                self.send(batch)
                done += len(batch)
                at(done)
                batch = []
        if batch:
            self.send(batch)

    def send(self, batch):
        self.connection.request("POST", "/v3/kv/txn", json.dumps({"success": batch}))
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text[:500]


# ---- the cluster ----

class Round(NamedTuple):
    rate: float         # pods bound per second
    cpu: dict           # {program: ms of CPU time per pod}
    requests: dict      # {(verb, resource): times per pod}
    memory: dict        # {program: bytes}, resident


class Bench:
    def __init__(self, cluster, build, options, progress):
        self.cluster, self.build, self.nodes, self.progress = cluster, build, options.nodes, progress
        self.resources, self.annotations, self.core = DIALECTS[options.dialect]
        self.api = cluster.api
        self.pid = None
        self.etcd = Etcd(cluster)
        self.made = 0

    def node_path(self, path):
        return f"/proc/{self.cluster.init_pid}/root{path}"

    def prepare(self):
        """What is there before any object: definitions, the namespace, a signing key."""
        for name in ("kubelet", "kube-controller-manager", "kube-scheduler"):
            self.cluster.stop(name)
        self.api.patch(kube.core("nodes", name=self.cluster.node), {"spec": {"unschedulable": True}})
        self.cluster.kubectl("apply", "-f", str(pathlib.Path(aliquot.DEPLOY) / "namespace.yaml"),
                             *(f for crd in sorted(pathlib.Path(aliquot.DEPLOY).glob("crd-*.yaml")) for f in ("-f", str(crd))))
        self.api.create(kube.core("namespaces"), {"metadata": {"name": "scale"}})
        key = os.path.join(self.cluster.state, "signing.pem")
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
        with open(key) as f:
            self.api.create(kube.core("secrets", kit.SYSTEM), {"metadata": {"name": "aliquot-signing"},
                                                               "stringData": {"private.pem": f.read()}})
        return key

    def fill(self, key):
        """Nodes, GPUs and the pods that hold a half of every other one."""
        where = [(node, index) for index in range(PODS_PER_NODE) for node in range(self.nodes)]
        metas = [meta(f"bound-{i:06d}", "scale") for i in range(len(where))]
        said = [assignment(n, i, self.core) for n, i in where]
        lines = "".join(f'{m["uid"]}\t{node_name(n)}\t{text}\n' for m, (n, _), text in zip(metas, where, said))
        signatures = subprocess.run([self.build / "tests/bench/sign", key], input=lines, stdout=subprocess.PIPE,
                                    text=True, check=True).stdout.split()
        holders = dict(zip(where, metas))
        for m, text, signature, (_, index) in zip(metas, said, signatures, where):
            m["annotations"] = {kit.ASSIGNMENT: text, kit.SIGNATURE: signature, **self.annotations(index, HALF[1])}
        say = self.progress.steps
        self.etcd.put((node_object(n) for n in range(self.nodes)), say("Node objects", self.nodes))
        self.etcd.put((gpu_object(n, i, holders.get((n, i)), self.core) for n in range(self.nodes) for i in range(GPUS)),
                      say("GPU objects", self.nodes * GPUS))
        self.etcd.put((pod_object(m, self.resources(*HALF), node_name(n)) for m, (n, _) in zip(metas, where)),
                      say("bound pods", len(where)))
        for path, count in ((kube.core("nodes"), self.nodes), (kube.gpus(), self.nodes * GPUS),
                            (kube.pods("scale"), len(where))):
            self.await_objects(path, count)

    def await_objects(self, path, count):
        """Until the API server has read what was written behind its back: it is not to be measured with that."""
        deadline = time.monotonic() + 120
        while True:
            page = self.api.get(path, limit=1)
            if len(page["items"]) + page["metadata"].get("remainingItemCount", 0) >= count:
                return
            assert time.monotonic() < deadline, f"{path}: not all of {count} objects within 120 s"
            time.sleep(CALM)

    # ---- processes ----

    def start_scheduler(self, *options):
        """Starts it; returns the seconds until it knows the cluster."""
        token = os.path.join(self.cluster.state, "admin.token")
        began = time.monotonic()
        self.pid = self.cluster.spawn("aliquot-scheduler", [
            str(self.build / "src/scheduler/aliquot-scheduler"), f"--listen=127.0.0.1:{PORT}",
            "--api-server=" + config.SERVER, "--token-file=" + token, "--ca-file=" + self.cluster.ca_file, *options])
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.cluster.http("GET", PORT, "/healthz")[0] == 200:
                    return time.monotonic() - began
            assert time.monotonic() - began < 120, self.cluster.log("aliquot-scheduler")[-3000:]
            time.sleep(0.02)

    def resident(self):
        return resident(self.cluster.host_pid(self.pid))

    def restart_scheduler(self, *options):
        self.cluster.stop("aliquot-scheduler", signal.SIGTERM)
        return self.start_scheduler(*options)

    def turn_to(self, mode):
        """Starts aliquot-scheduler anew, as it runs in that mode, without what a round of the other one has left."""
        self.cluster.stop("aliquot-scheduler", signal.SIGTERM)
        for lease in ("aliquot-scheduler", "aliquot-kube-scheduler"):
            if self.api.exists(f"{LEASES}/{lease}"):
                self.api.delete(f"{LEASES}/{lease}")
        self.start_scheduler(*([] if mode == EXTENDER else ["--kube-scheduler-config=" + OWN_CONFIGURATION]))
        self.await_acting()

    def prepare_own(self):
        """Account, roles and configuration as deploy/own-scheduler has them, and a program for the cluster's kube-scheduler, so that
        one can be told from the other."""
        objects = pathlib.Path(aliquot.DEPLOY).parent / "own-scheduler/pair/kube-scheduler.yaml"
        self.cluster.kubectl("apply", "-f", str(objects))
        account = kube.core("serviceaccounts", kit.SYSTEM, "aliquot-kube-scheduler")
        token = self.api.create(account + "/token", {"spec": {"expirationSeconds": 7200}})["status"]["token"]
        with open(self.node_path("/etc/kubernetes/scheduler.conf")) as f:
            access = json.load(f)
        access["users"][0]["user"]["token"] = token
        with open(self.node_path("/etc/kubernetes/own.conf"), "w") as f:
            json.dump(access, f)
        text = self.api.get(kube.core("configmaps", kit.SYSTEM, "aliquot-kube-scheduler"))["data"]["configuration.yaml"]
        with open(self.node_path(OWN_CONFIGURATION), "w") as f:
            f.write(text + "clientConnection:\n  kubeconfig: /etc/kubernetes/own.conf\n  qps: 5000\n  burst: 10000\n")
        shutil.copy(binaries.find("kube-scheduler"), os.path.join(self.cluster.state, STOCK))

    def start_own(self, mode):
        """One of our own, and the cluster's, which asks nothing."""
        if mode == OWN:
            self.cluster.spawn(STOCK, [os.path.join(self.cluster.state, STOCK), "--kubeconfig=/etc/kubernetes/scheduler.conf",
                                       "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=10260"])
        self.cluster.spawn("kube-scheduler", ["kube-scheduler", "--config=" + OWN_CONFIGURATION, "--bind-address=127.0.0.1"])

    def start_kube_scheduler(self, extender, gates):
        """`extender`: one of MODES, None, or the URL of another one. Without a bound on requests per second in any case."""
        if extender in (OWN, OWN_ALONE):
            self.start_own(extender)
            return
        with open(SCHEDULER_CONFIGURATION) as f:
            text = f.read()
        text = re.sub(r"(?m)^  kubeconfig:.*$", r"\g<0>" + "\n  qps: 5000\n  burst: 10000", text, count=1)
        if extender != EXTENDER:
            text = text[:text.index("extenders:")]
        if extender and extender != EXTENDER:
            names = "".join(f"\n      - name: {name}" for name in self.resources(1, 1))
            text += (f"extenders:\n  - urlPrefix: {extender}\n    filterVerb: filter\n    bindVerb: bind\n"
                     f"    httpTimeout: 60s\n    nodeCacheCapable: true\n    managedResources:{names}\n")
        with open(self.node_path("/etc/kubernetes/scale.yaml"), "w") as f:
            f.write(text)
        self.cluster.spawn("kube-scheduler", ["kube-scheduler", "--config=/etc/kubernetes/scale.yaml",
                                              "--leader-elect=false", "--bind-address=127.0.0.1", *gates])

    def pids(self):
        """{program: PID on this machine} of the node's processes."""
        found = {}
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{name}/ns/pid") == os.readlink(f"/proc/{self.cluster.init_pid}/ns/pid"):
                    found[os.path.basename(os.readlink(f"/proc/{name}/exe"))] = int(name)
        return found

    def cpu(self):
        """Milliseconds that each program of the node has been on a CPU."""
        spent = {}
        for name, pid in self.pids().items():
            with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
                spent[name] = (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
        return spent

    # ---- rounds ----

    def request(self, number):
        return self.resources(*SHARES[number % len(SHARES)])

    def rate(self, extender, gates, pods):
        """A Round of as many pods as are there at once: kube-scheduler is stopped while they are made."""
        scheduler = OWN_NAME if extender in (OWN, OWN_ALONE) else "default-scheduler"
        name = f"round-{self.made}"
        self.made += 1
        self.api.create(kube.core("namespaces"), {"metadata": {"name": name}})
        self.start_kube_scheduler(extender, gates)
        self.etcd.put([pod_object(meta("warm", name), self.request(0), scheduler=scheduler)])   # it has read the cluster when this is bound
        self.api.wait(kube.pods(name), "warm", lambda p: p and p["spec"].get("nodeName"), 300, "the first pod bound")
        at = self.progress.steps(f'pods bound with {extender or "no extender"} {" ".join(gates)}', pods)
        self.cluster.control("signal", name="kube-scheduler", signal=int(signal.SIGSTOP))
        self.etcd.put((pod_object(meta(f"p-{i:05d}", name), self.request(i), scheduler=scheduler) for i in range(pods)), at_once=1)
        time.sleep(5 * CALM)
        spent, asked = self.cpu(), self.requests()
        self.cluster.control("signal", name="kube-scheduler", signal=int(signal.SIGCONT))
        began, bound = time.monotonic(), set()
        for _, pod in self.api.watch(kube.pods(name), ROUND_MAX):
            if pod["spec"].get("nodeName"):
                bound.add(pod["metadata"]["name"])
                at(len(bound))
                if len(bound) == pods + 1:
                    break
        took, after = time.monotonic() - began, self.cpu()
        asked = {k: (n - asked.get(k, 0)) / pods for k, n in self.requests().items()}
        memory = {k: resident(pid)["VmRSS"] for k, pid in self.pids().items() if k in PROCESSES}
        for program in ["kube-scheduler"] + [STOCK] * (extender == OWN):
            self.cluster.stop(program, signal.SIGKILL)
        self.progress.say(f"{pods / took:.1f} pods/s")
        return Round(pods / took, {k: (after[k] - spent.get(k, 0)) / pods for k in after}, asked, memory)

    def requests(self):
        """{(verb, resource): number} that the API server has answered, but for lists and watches."""
        found = {}
        for (name, labels), count in kit.parse_metrics(self.api.raw("GET", "/metrics")[1].decode()).items():
            of = dict(labels)
            if name == "apiserver_request_total" and of["verb"] in ("POST", "PUT", "PATCH"):
                key = of["verb"], "/".join(filter(None, (of["resource"], of["subresource"])))
                found[key] = found.get(key, 0) + count
        return found

    def await_port(self, url):
        port = int(url.partition("://")[2].partition("/")[0].rpartition(":")[2])
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                self.cluster.connect(port, timeout=5).close()
                return
            assert time.monotonic() < deadline, f"{url}: no server listens within 120 s"
            time.sleep(CALM)

    def ask_filter(self, url, kinds, number):
        """Milliseconds for each filter of pods of so many kinds, from the first to the last byte."""
        host, _, path = url.partition("://")[2].partition("/")
        port = int(host.rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.sock = self.cluster.connect(port, timeout=60)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        names, times = [node_name(n) for n in range(self.nodes)], []
        gc.collect()
        gc.freeze()                 # what this program itself keeps is not looked through while the clock runs
        for i in range(number):
            _, pod = pod_object(meta(f"ask-{i}", "scale"), self.resources(10 + i % kinds % 80, 1 + i % kinds % 40))
            body = json.dumps({"Pod": pod, "Nodes": None, "NodeNames": names})
            began = time.monotonic()
            connection.request("POST", "/" + "/".join(filter(None, (path, "filter"))), body,
                               {"Content-Type": "application/json"})
            text = connection.getresponse().read()
            times.append(1000 * (time.monotonic() - began))
            answer = json.loads(text)
            assert answer.get("NodeNames"), text[:300]
        return times

    def await_acting(self):
        """Until it has the Lease, and has read again what it has to have read since."""
        deadline = time.monotonic() + 120
        while True:
            found = self.metrics()
            if all(found["aliquot_scheduler_" + name, ()] == 1 for name in ("acts", "ready")):
                return
            assert time.monotonic() < deadline, self.cluster.log("aliquot-scheduler")[-3000:]
            time.sleep(CALM)

    def metrics(self):
        return kit.parse_metrics(self.cluster.http("GET", PORT, "/metrics")[1].decode())


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        text = f.read()
    return {k: int(re.search(rf"^{k}:\s+(\d+) kB", text, re.M)[1]) << 10 for k in ("VmRSS", "VmHWM")}


def quantile(metrics, verb, part):
    """In nanoseconds; within a bucket answers are taken to be spread evenly."""
    name = "aliquot_scheduler_request_duration_seconds"
    buckets = sorted((float(dict(labels)["le"]), count) for (n, labels), count in metrics.items()
                     if n == name + "_bucket" and dict(labels)["verb"] == verb)
    low = below = 0
    for bound, count in buckets:
        if count > below and count >= part * buckets[-1][1]:
            return 1e9 * (low + (bound - low) * (part * buckets[-1][1] - below) / (count - below))
        low, below = bound, count
    return float("inf")


def at(times, part):
    return sorted(times)[min(len(times) - 1, int(part * len(times)))]


def each(values, form):
    """As many as there are; of many, the range and the median."""
    if len(values) <= 2:
        return " and ".join(form.format(v) for v in values)
    return f"{form.format(min(values))} to {form.format(max(values))}, median {form.format(statistics.median(values))}"


def measure_rounds(bench, kinds, pods, peers, rounds):
    """{name: [Round]}, in turns; of peers one round of fewer pods."""
    found = {name: [] for name in kinds}
    for number in range(rounds):
        for name, (extender, gates) in kinds.items():
            if name not in peers:
                found[name].append(bench.rate(extender, gates, pods))
            elif number == 0:
                found[name].append(bench.rate(extender, gates, min(pods, PEER_PODS)))
    return found


def rounds_table(found, programs, what="kube-scheduler with"):
    lines = [f"| {what} | pods bound per second | " + " | ".join(f"{p}, CPU ms per pod" for p in programs) +
             " | all, CPU ms per pod |", "|---" * (len(programs) + 3) + "|"]
    for name, rounds in found.items():
        cells = [each([r.cpu.get(p, 0) for r in rounds], "{:.1f}") for p in programs]
        total = each([sum(r.cpu.get(p, 0) for p in programs) for r in rounds], "{:.1f}")
        lines.append(f'| {name} | {each([r.rate for r in rounds], "{:.0f}")} | ' + " | ".join(cells) + f" | {total} |")
    return lines


def ratio(found, one, other):
    """Percent of the rate, of each round of the one beside that of the other which came right before or after it."""
    return each([100 * a.rate / b.rate for a, b in zip(found[one], found[other])], "{:.0f} %")


def requests_line(found):
    parts = []
    for name, rounds in found.items():
        asked = {k: statistics.mean(r.requests.get(k, 0) for r in rounds) for k in rounds[0].requests}
        parts.append(f"{name}: " + ", ".join(f"{v} {r} {n:.2f}" for (v, r), n in sorted(asked.items()) if n >= 0.01))
    return textwrap.fill("Requests that change something, per pod. " + "; ".join(parts) + ".", 100)


def measure(bench, pods, peers, rounds):
    progress = bench.progress
    bench.fill(bench.prepare())
    progress.say("aliquot-scheduler starts")
    first = bench.start_scheduler()
    rebuild = statistics.median([bench.restart_scheduler() for _ in range(RESTARTS)])
    rows = [("time until a restarted scheduler knows the cluster (the first one ever)", f"{rebuild:.2f} s ({first:.2f} s)")]
    urls = {"aliquot-scheduler": f"http://127.0.0.1:{PORT}"}
    kinds = {"aliquot-scheduler": (EXTENDER, ()), "no extender": (None, ()),
             "no extender, no OpportunisticBatching": (None, (UNBATCHED,))}
    for name, (command, url) in peers.items():
        bench.cluster.spawn(name, [command], env={"KUBECONFIG": "/etc/kubernetes/admin.conf"})
        urls[name], kinds[name] = url, (url, ())
    bench.await_acting()
    for name, url in urls.items():
        progress.say(f"filter of {name}")
        bench.await_port(url)
        number = PEER_ASKED if name in peers else ASKED
        for text, many in (("pods of a new kind each", number), ("pods of 8 kinds", 8)):
            program = os.path.basename(peers[name][0]) if name in peers else name
            spent = bench.cpu()[program]
            times = bench.ask_filter(url, many, number)
            spent = (bench.cpu()[program] - spent) / number
            rows.append((f"{name}: filter asked from outside, {text}, median / p99 (CPU time, mean)",
                         f"{at(times, 0.5):.1f} ms / {at(times, 0.99):.1f} ms ({spent:.1f} ms)"))
            progress.say(" ".join(rows[-1]))
    before = bench.metrics()
    found = measure_rounds(bench, kinds, pods, peers, rounds)
    rows.append(("pods bound per second, in percent of those without an extender, by round",
                 ratio(found, "aliquot-scheduler", "no extender")))
    metrics = {k: v - before.get(k, 0) for k, v in bench.metrics().items()}
    for verb in ("filter", "prioritize", "bind"):
        rows.append((f"{verb} as kube-scheduler asked, median / p99",
                     f"{duration(quantile(metrics, verb, 0.5))} / {duration(quantile(metrics, verb, 0.99))}"))
    memory = bench.resident()
    rows.append(("memory of aliquot-scheduler, now / at most",
                 f'{memory["VmRSS"] / 1e6:.0f} MB / {memory["VmHWM"] / 1e6:.0f} MB'))
    programs = [*PROCESSES, *(os.path.basename(command) for command, _ in peers.values())]
    return [*(f"| {a} | {b} |" for a, b in rows), "", *rounds_table(found, programs), "", requests_line(found)]


def measure_modes(bench, pods, rounds):
    """The modes of the scheduler beside each other. Each round begins with another one, so that what changes in the course of
    time falls on all of them."""
    bench.fill(bench.prepare())
    bench.prepare_own()
    bench.progress.say("aliquot-scheduler starts")
    bench.start_scheduler()
    found = {name: [] for name in MODES.values()}
    kinds = list(MODES)
    for number in range(rounds):
        at = number % len(kinds)
        for mode in kinds[at:] + kinds[:at]:
            bench.turn_to(mode)
            found[MODES[mode]].append(bench.rate(mode, (), pods))
    return modes_table(found)


def modes_table(found):
    rows = [(f"pods bound per second in the mode `{name}`, in percent of `extender`, by round", ratio(found, name, MODES[EXTENDER]))
            for name in list(found)[1:]]
    for name, rounds in found.items():
        parts = ("kube-scheduler", "aliquot-scheduler")
        pair = each([sum(r.memory[p] for p in parts) / 1e6 for r in rounds], "{:.0f} MB")
        of = ", ".join(f'{p} {each([r.memory[p] / 1e6 for r in rounds], "{:.0f}")}' for p in parts)
        rows.append((f"memory of both after a round in the mode `{name}`", f"{pair} ({of})"))
    programs = ["kube-scheduler", STOCK, *PROCESSES[1:]]
    return [*(f"| {a} | {b} |" for a, b in rows), "", *rounds_table(found, programs, "mode")]


def peer(text):
    name, _, rest = text.partition("=")
    command, _, url = rest.partition(",")
    if not url:
        raise argparse.ArgumentTypeError("want NAME=COMMAND,URL")
    return name, (command, url)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1000, help="for each measurement of the rate")
    parser.add_argument("--rounds", type=int, default=2, help="of each kind, which take turns")
    parser.add_argument("--dialect", choices=sorted(DIALECTS), default="elasticgpu", help="in which all pods ask")
    parser.add_argument("--peer", type=peer, action="append", default=[], metavar="NAME=COMMAND,URL")
    parser.add_argument("--write", help="also put the table between the markers in this file")
    parser.add_argument("--own", action="store_true", help="the modes of the scheduler beside each other, and nothing else")
    options = parser.parse_args()
    progress = Progress()
    progress.say(f"about {60 + options.nodes * 0.07:.0f} s on a machine of two cores")
    busy = os.getloadavg()[0]
    with Cluster(f"scale-{os.getpid()}", progress.say) as cluster:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        bench = Bench(cluster, pathlib.Path(options.build).resolve(), options, progress)
        try:
            table = measure_modes(bench, options.pods, options.rounds) if options.own \
                else measure(bench, options.pods, dict(options.peer), options.rounds)
        except BaseException:
            for name in ("aliquot-scheduler", "kube-scheduler", *(name for name, _ in options.peer)):
                progress.say(f"---- {name}\n{cluster.log(name)[-4000:]}")
            raise
    title = f"{options.nodes:,} nodes x {GPUS} GPUs, {options.nodes * PODS_PER_NODE:,} bound pods"
    text = "\n".join([machine(), "", f"Load average before: {busy:.1f}.", "", f"| {title} | |", "|---|---|", *table])
    print(text)
    if options.write:
        write_between(pathlib.Path(options.write), "scale-own" if options.own else "scale", text)


if __name__ == "__main__":
    main()
