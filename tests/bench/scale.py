#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures aliquot-scheduler in a cluster of thousands of nodes: the real etcd, API server and kube-scheduler, with
Node and GPU objects and bound pods made for it.

    make bench-scale                 5,000 nodes x 8 GPUs, 20,000 bound pods
    make bench-scale NODES=500       a tenth of it

The objects are written into etcd, as the API server stores them, since 65,000 requests would take longer than what is
measured; from then on everything goes through the API server. No kubelet and no controller runs.
"""

import argparse
import base64
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import uuid

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench")]

import kit                                              # noqa: E402  (the path comes first)
from cluster import api as kube                         # noqa: E402
from cluster import aliquot, config                     # noqa: E402
from cluster.cluster import SCHEDULER_CONFIGURATION, Cluster    # noqa: E402
from figures import duration, machine, write_between    # noqa: E402

GPUS = 8
PODS_PER_NODE = 4
ROUND_MAX = 300             # seconds for one measurement of the rate
RESTARTS = 3
PORT = 9401
CARD = kit.CARD
NOW = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
SHARES = [(10, 8), (20, 16), (25, 20), (30, 24), (50, 40), (15, 4), (5, 2), (40, 32)]     # percent, GiB


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
                 kit.CORE: str(100 * GPUS), kit.MEMORY: str(GPUS * CARD >> 28)}
    name = node_name(number)
    return f"/registry/minions/{name}", {
        "apiVersion": "v1", "kind": "Node", "spec": {},
        "metadata": meta(name, labels={"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}),
        "status": {"capacity": resources, "allocatable": resources,
                   "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady",
                                   "lastHeartbeatTime": NOW, "lastTransitionTime": NOW}]}}


def share(core, memory):
    return {kit.CORE: str(core), kit.MEMORY: f"{memory >> 30}Gi"}


def gpu_object(node, index, holder):
    """holder: the pod that holds half of it, or None."""
    free = share(50, CARD // 2) if holder else share(100, CARD)
    allocated = {holder["uid"]: {"containers": [{"container": "main", "resource": share(50, CARD // 2)}],
                                 "namespace": holder["namespace"], "pod": holder["name"]}} if holder else {}
    name = f"{node_name(node)}-gpu-{index}"
    return f"/registry/elasticgpu.io/gpus/{name}", {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": meta(name, generation=1),
        "spec": {"index": index, "memory": CARD, "model": "NVIDIA H100 80GB HBM3", "nodeName": node_name(node),
                 "path": f"/dev/nvidia{index}", "uuid": card_uuid(node, index)},
        "status": {"state": "Healthy", "capacity": share(100, CARD), "overuse": [],
                   "allocatable": free, "allocated": allocated}}


def pod_object(metadata, resources, node=None):
    spec = {"containers": [{"name": "main", "image": "localhost/none:1", "imagePullPolicy": "Never",
                            "resources": {"limits": resources, "requests": resources}}],
            "restartPolicy": "Always", "schedulerName": "default-scheduler", "dnsPolicy": "ClusterFirst",
            "terminationGracePeriodSeconds": 30, "securityContext": {}, "enableServiceLinks": True, "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority"}
    if node:
        spec["nodeName"] = node
    return f'/registry/pods/{metadata["namespace"]}/{metadata["name"]}', {
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec,
        "status": {"phase": "Running" if node else "Pending", "qosClass": "BestEffort"}}


def assignment(node, index):
    device = {"index": index, "uuid": card_uuid(node, index), "core": 50, "memory": CARD // 2}
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

class Bench:
    def __init__(self, cluster, build, nodes, pods, progress):
        self.cluster, self.build, self.nodes, self.progress = cluster, build, nodes, progress
        self.round = pods
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
        lines = "".join(f'{m["uid"]}\t{node_name(n)}\t{assignment(n, i)}\n' for m, (n, i) in zip(metas, where))
        signatures = subprocess.run([self.build / "tests/bench/sign", key], input=lines, stdout=subprocess.PIPE,
                                    text=True, check=True).stdout.split()
        holders = dict(zip(where, metas))
        for m, signature, (node, index) in zip(metas, signatures, where):
            m["annotations"] = {kit.ASSIGNMENT: assignment(node, index), kit.SIGNATURE: signature}
        say = self.progress.steps
        self.etcd.put((node_object(n) for n in range(self.nodes)), say("Node objects", self.nodes))
        self.etcd.put((gpu_object(n, i, holders.get((n, i))) for n in range(self.nodes) for i in range(GPUS)),
                      say("GPU objects", self.nodes * GPUS))
        self.etcd.put((pod_object(m, share(50, CARD // 2), node_name(n)) for m, (n, _) in zip(metas, where)),
                      say("bound pods", len(where)))

    def start_scheduler(self):
        """Starts it; returns the seconds until it knows the cluster."""
        token = os.path.join(self.cluster.state, "admin.token")
        began = time.monotonic()
        self.pid = self.cluster.spawn("aliquot-scheduler", [
            str(self.build / "src/scheduler/aliquot-scheduler"), f"--listen=127.0.0.1:{PORT}",
            "--api-server=" + config.SERVER, "--token-file=" + token, "--ca-file=" + self.cluster.ca_file])
        while True:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.cluster.http("GET", PORT, "/healthz")[0] == 200:
                    return time.monotonic() - began
            assert time.monotonic() - began < 120, self.cluster.log("aliquot-scheduler")[-3000:]
            time.sleep(0.02)

    def resident(self):
        with open(f"/proc/{self.cluster.host_pid(self.pid)}/status") as f:
            text = f.read()
        return {k: int(re.search(rf"^{k}:\s+(\d+) kB", text, re.M)[1]) << 10 for k in ("VmRSS", "VmHWM")}

    def restart_scheduler(self):
        self.cluster.stop("aliquot-scheduler", signal.SIGTERM)
        return self.start_scheduler()

    def start_kube_scheduler(self, extender, *gates):
        """With or without the extender, and without a bound on requests per second in either case."""
        with open(SCHEDULER_CONFIGURATION) as f:
            text = f.read()
        text = re.sub(r"(?m)^  kubeconfig:.*$", r"\g<0>" + "\n  qps: 5000\n  burst: 10000", text, count=1)
        if not extender:
            text = text[:text.index("extenders:")]
        with open(self.node_path("/etc/kubernetes/scale.yaml"), "w") as f:
            f.write(text)
        self.cluster.spawn("kube-scheduler", ["kube-scheduler", "--config=/etc/kubernetes/scale.yaml",
                                              "--leader-elect=false", "--bind-address=127.0.0.1", *gates])

    def rate(self, extender, *gates):
        """Pods bound per second, of as many that are there at once: kube-scheduler is stopped while they are made."""
        name = f"round-{self.made}"
        self.made += 1
        self.api.create(kube.core("namespaces"), {"metadata": {"name": name}})
        self.start_kube_scheduler(extender, *gates)
        first = pod_object(meta("warm", name), self.wish(0, extender))     # it has read the cluster when this is bound
        self.etcd.put([first])
        self.api.wait(kube.pods(name), "warm", lambda p: p and p["spec"].get("nodeName"), 300, "the first pod bound")
        at = self.progress.steps(f"pods bound {'with' if extender else 'without'} the extender {' '.join(gates)}", self.round)
        bound, times = set(), []
        self.cluster.control("signal", name="kube-scheduler", signal=int(signal.SIGSTOP))
        self.etcd.put((pod_object(meta(f"p-{i:05d}", name), self.wish(i, extender)) for i in range(self.round)), at_once=1)
        self.cluster.control("signal", name="kube-scheduler", signal=int(signal.SIGCONT))
        began = time.monotonic()
        for _, pod in self.api.watch(kube.pods(name), ROUND_MAX):
            if pod["spec"].get("nodeName") and pod["metadata"]["name"] not in bound:
                bound.add(pod["metadata"]["name"])
                times.append(time.monotonic())
                at(len(bound))
                if len(bound) == self.round + 1:
                    break
        self.cluster.stop("kube-scheduler", signal.SIGKILL)
        return self.round / (times[-1] - began)

    @staticmethod
    def wish(number, extender):
        core, gib = SHARES[number % len(SHARES)]
        return {kit.CORE: str(core), kit.MEMORY: f"{gib}Gi"} if extender else {"cpu": f"{10 * core}m"}

    def metrics(self):
        return kit.parse_metrics(self.cluster.http("GET", PORT, "/metrics")[1].decode())


def quantile(metrics, verb, part):
    """Upper bound of the bucket in which it lies, in nanoseconds."""
    name = "aliquot_scheduler_request_duration_seconds"
    buckets = sorted((float(dict(labels)["le"]), count) for (n, labels), count in metrics.items()
                     if n == name + "_bucket" and dict(labels)["verb"] == verb)
    for bound, count in buckets:
        if count >= part * buckets[-1][1]:
            return bound * 1e9
    return float("inf")


def rows(bench):
    progress = bench.progress
    bench.fill(bench.prepare())
    progress.say("aliquot-scheduler starts")
    first = bench.start_scheduler()
    rebuild = statistics.median([bench.restart_scheduler() for _ in range(RESTARTS)])
    found = [("time until a restarted scheduler knows the cluster (the first one ever)", f"{rebuild:.2f} s ({first:.2f} s)")]
    plain, ours = [], []
    for _ in range(2):
        plain.append(bench.rate(False))
        ours.append(bench.rate(True))
    unbatched = bench.rate(False, "--feature-gates=OpportunisticBatching=false")
    metrics = bench.metrics()
    for verb in ("filter", "prioritize", "bind"):
        found.append((f"{verb}, median / p99 no more than",
                      f"{duration(quantile(metrics, verb, 0.5))} / {duration(quantile(metrics, verb, 0.99))}"))
    found += [
        ("pods bound per second without an extender", " and ".join(f"{r:.0f}" for r in plain)),
        ("the same without OpportunisticBatching", f"{unbatched:.0f}"),
        ("pods bound per second with aliquot-scheduler", " and ".join(f"{r:.0f}" for r in ours)),
    ]
    memory = bench.resident()
    found.append(("memory of aliquot-scheduler, now / at most",
                  f'{memory["VmRSS"] / 1e6:.0f} MB / {memory["VmHWM"] / 1e6:.0f} MB'))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1000, help="for each measurement of the rate")
    parser.add_argument("--write", help="also put the table between the markers in this file")
    arguments = parser.parse_args()
    progress = Progress()
    progress.say(f"about {30 + arguments.nodes * 0.07:.0f} s on a machine of two cores")
    with Cluster(f"scale-{os.getpid()}", progress.say) as cluster:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        bench = Bench(cluster, pathlib.Path(arguments.build).resolve(), arguments.nodes, arguments.pods, progress)
        try:
            table = rows(bench)
        except BaseException:
            for name in ("aliquot-scheduler", "kube-scheduler"):
                progress.say(f"---- {name}\n{cluster.log(name)[-4000:]}")
            raise
    title = f"{arguments.nodes:,} nodes x {GPUS} GPUs, {arguments.nodes * PODS_PER_NODE:,} bound pods"
    text = "\n".join([machine(), "", f"| {title} | |", "|---|---|", *(f"| {a} | {b} |" for a, b in table)])
    print(text)
    if arguments.write:
        write_between(pathlib.Path(arguments.write), "scale", text)


if __name__ == "__main__":
    main()
