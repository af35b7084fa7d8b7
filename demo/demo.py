#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Aliquot at work: a real Kubernetes cluster on this machine, two simulated GPUs, pods that share them.

    make demo            shows it and takes everything down again
    KEEP=1 make demo     leaves the cluster up and says how to use and stop it

Nothing of this machine is changed: the cluster lives in namespaces of its own and ends with this program.
"""

import argparse
import os
import re
import signal
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.join(os.path.dirname(HERE), "tests")
sys.path[:0] = [TESTS, os.path.join(TESTS, "e2e"), HERE]

from cluster import Cluster, ClusterError, Timeout, aliquot, api as kube, binaries, remove_dead    # noqa: E402
from cluster import estimate, images                    # noqa: E402
from cluster.cluster import check_machine               # noqa: E402
import parts                                            # noqa: E402
from narrator import Narrator                           # noqa: E402
from pods import cards_of, key_values, manifest, running, unschedulable     # noqa: E402
from second_act import SecondAct                        # noqa: E402

GiB = 1 << 30
OUT_OF_MEMORY = "2"
GPUS = 2
AGENT_PORT = 9400
USED = "aliquot_container_memory_used_bytes"
START = 60      # bound, in seconds, for a pod to run


def free_name():
    """A name for the cluster that no other one has: a kept demo and this one live side by side."""
    for number in range(1, 100):
        name = "demo" if number == 1 else f"demo-{number}"
        if not Cluster(name).running():
            return name
    raise ClusterError("a hundred demo clusters are running")


class Demo:
    def __init__(self, cluster, build, narrator):
        self.cluster = cluster
        self.build = os.path.abspath(build)
        self.n = narrator

    @property
    def api(self):
        return self.cluster.api

    def pod(self, name):
        return self.api.get(kube.pods(name=name))

    def start(self, body):
        """Creates a pod and waits until it runs and its program has said what it found."""
        name = body["metadata"]["name"]
        self.api.create(kube.pods(), body)
        return self.running(name)

    def running(self, name):
        pod = self.api.wait(kube.pods(), name, running, START, f"pod {name} running")
        return pod, self.report(name)

    def report(self, name):
        found = {}
        for line in self.api.lines(kube.pods(name=name) + "/log", START, follow="true"):
            found.update(key_values(line))
            if line.startswith("ready="):
                break
        return found

    def nvml(self, name):
        return key_values(self.cluster.kubectl("exec", name, "--", "nvml-report"))

    def kubectl(self, *arguments, limit=40):
        self.n.show("kubectl " + " ".join(arguments), output := self.cluster.kubectl(*arguments), limit)
        return output

    # ---- the scenes ----

    def bring_up(self):
        self.n.step("A Kubernetes cluster on this machine (etcd, API server, scheduler, kubelet, containerd: all real)")
        self.cluster.up()
        self.kubectl("get", "nodes")

    def install(self):
        self.n.step(f"Aliquot on it, with {GPUS} simulated 80 GiB GPUs in the node")
        aliquot.start_simulator(self.cluster, self.build, GPUS)
        self.n.say("The GPUs' driver is simulated by a daemon on the node, as a kernel module would be there.")
        for name, size in aliquot.load_images(self.cluster, self.build).items():
            self.n.say(f"image {name}: {size / 1e6:.1f} MB")
        self.n.show("kubectl apply -k deploy/base", "(CRD, roles, admission policies, agent DaemonSet, scheduler)")
        aliquot.apply(self.cluster)
        aliquot.wait_gpus(self.cluster, GPUS)
        table = self.kubectl("get", "gpus")
        self.n.claim(f"each card is an object: kubectl get gpus shows {GPUS}, healthy, 80Gi",
                     len(re.findall(r"80Gi .*Healthy", table)) == GPUS, table)

    def share(self):
        self.n.step("Three pods that together fit on one GPU")
        requests = {"alice": (30, 20, "--bytes", "8Gi"), "bob": (30, 20, "--bytes", "12Gi"),
                  "carol": (40, 30, "--bytes", "16Gi", "--over", "20Gi")}
        for name, (core, memory, *_) in requests.items():
            self.n.say(f"{name} asks for {core} % of a card's compute and {memory} GiB of its memory")
        for name, request in requests.items():
            self.api.create(kube.pods(), manifest(name, *request))
        seen = {name: self.running(name) for name in requests}
        self.kubectl("get", "pods")
        cards = {name: cards_of(pod) for name, (pod, _) in seen.items()}
        self.n.claim("three pods that fit on one GPU land on one GPU",
                     len({tuple(c) for c in cards.values()}) == 1 and all(len(c) == 1 for c in cards.values()), cards)
        for name, request in requests.items():
            self.check_view(name, request[1] * GiB, cards[name], seen[name][1])
        self.check_greedy("carol", seen)

    def check_view(self, name, limit, cards, report):
        """What driver-API and NVML programs see inside one container."""
        nvml = self.nvml(name)
        if name == "alice":
            self.n.show("kubectl exec alice -- nvml-report",
                        "\n".join(f"{k}={v}" for k, v in nvml.items()))
        views = {"cuDeviceTotalMem": report.get("device_total"), "cuMemGetInfo": report.get("total"),
                 "NVML total": nvml.get("device0.total")}
        one = report.get("devices") == nvml.get("devices") == "1"
        right = [report.get("uuid")] == [nvml.get("device0.uuid")] == cards
        self.n.claim(f"{name} sees one card of {limit // GiB} GiB, by the CUDA driver API and by NVML",
                     one and right and all(v == str(limit) for v in views.values()),
                     f"{views} devices: {report.get('devices')}, {nvml.get('devices')} cards: {cards} {report}")
        self.n.claim(f"{name} computes (saxpy, checked element by element)", report.get("saxpy") == "ok", report)

    def check_greedy(self, name, seen):
        report = seen[name][1]
        self.n.say(f"{name} holds 16 GiB of its 30 and asked for 20 more:")
        self.n.show(f"kubectl logs {name} | grep over", "\n".join(
            f"{k}={v}" for k, v in report.items() if "over" in k))
        self.n.claim(f"{name}, taking more than its share, gets CUDA_ERROR_OUT_OF_MEMORY (2) and lives on",
                     report.get("over_result") == OUT_OF_MEMORY and report.get("saxpy_after_over") == "ok"
                     and running(self.pod(name)), report)
        neighbours = [n for n in seen if n != name]
        calm = all(running(self.pod(n)) and self.pod(n)["status"]["containerStatuses"][0]["restartCount"] == 0
                   for n in neighbours)
        again = {n: key_values(self.cluster.kubectl("exec", n, "--", "cuda-share", "--bytes", "1Gi"))
                 for n in neighbours}
        self.n.claim("its neighbours notice nothing: they run, and a new process in each gets memory and computes",
                     calm and all(r.get("saxpy") == "ok" and r.get("alloc_result") == "0" for r in again.values()),
                     again)

    def wait_for_room(self):
        self.n.step("A pod that no GPU has room for")
        self.start(manifest("dave", 100, 0, "--bytes", "60Gi"))
        self.n.say("dave took a whole card. erin now asks for 40 % and 40 GiB:")
        self.api.create(kube.pods(), manifest("erin", 40, 40, "--bytes", "30Gi"))
        pod = self.api.wait(kube.pods(), "erin", unschedulable, START, "reason of erin")
        self.kubectl("get", "pod", "erin")
        self.n.say("The scheduler's reason: " + unschedulable(pod))
        self.n.claim("erin stays Pending with a reason that a person understands",
                     pod["status"]["phase"] == "Pending" and re.search(r"GPU", unschedulable(pod)),
                     unschedulable(pod))
        event = self.own_event("erin")
        self.n.say("Aliquot's own event, card by card: " + event)
        self.n.claim("an Event says, card by card, what is free",
                     len(re.findall(r"GPU \d+: \d+ % and \d+", event)) == GPUS, event)
        self.n.say("carol ends:")
        self.cluster.kubectl("delete", "pod", "carol", "--wait=false")
        pod, report = self.running("erin")
        self.kubectl("get", "pod", "erin")
        self.n.claim("erin starts by itself when a neighbour ends, and computes",
                     running(pod) and report.get("saxpy") == "ok", report)

    def own_event(self, name):
        selector = f"involvedObject.name={name},involvedObject.kind=Pod"
        texts = []
        try:
            for _, event in self.api.watch(kube.core("events", "default"), 20, fieldSelector=selector):
                source = event.get("reportingComponent") or event.get("source", {}).get("component", "")
                if "aliquot" in source:
                    return event["message"]
                texts.append(f"{source}: {event.get('message')}")
        except Timeout:
            pass
        return "(none by Aliquot; others said: " + "; ".join(texts) + ")"

    def look(self):
        self.n.step("The cards, the pods that hold parts of them, and their actual use")
        table = self.kubectl("get", "gpus")
        gpu = table.splitlines()[1].split()[0]
        text = self.kubectl("get", "gpu", gpu, "-o", "yaml", limit=70)
        held = self.api.get(kube.gpus(gpu))["status"].get("allocated", {})
        holders = {h["pod"] for g in self.api.get(kube.gpus())["items"]
                    for h in g["status"].get("allocated", {}).values()}
        self.n.claim("kubectl get gpu NAME -o yaml names every pod on the card",
                     held and holders == {"alice", "bob", "dave", "erin"}, text)
        self.show_gpus(("alice", "bob", "dave", "erin"))
        self.show_metrics()

    def show_gpus(self, pods):
        done = self.cluster.on_node([os.path.join(self.build, "src/cli/aliquot"), "gpus"], check=False)
        self.n.show("aliquot gpus", done.stdout + done.stderr)
        self.n.claim("aliquot gpus shows every pod and what it really uses",
                     done.returncode == 0 and all(p in done.stdout for p in pods),
                     done.stdout + done.stderr)

    def show_metrics(self):
        status, content = self.cluster.http("GET", AGENT_PORT, "/metrics")
        text = content.decode()
        used = [line for line in text.splitlines() if line.startswith(USED)]
        self.n.show(f"curl http://NODE:{AGENT_PORT}/metrics | grep {USED}", "\n".join(used))
        dave = [float(line.rpartition(" ")[2]) for line in used if 'pod="dave"' in line]
        self.n.claim("/metrics of the agent counts it per container: dave uses 60 GiB and its context",
                     status == 200 and any(60 * GiB < v < 61 * GiB for v in dave), text[-1500:])

    def run(self):
        try:
            self.bring_up()
            self.install()
            self.share()
            self.wait_for_room()
            self.look()
            SecondAct(self).run()
        finally:
            self.n.interruption = None      # what takes the cluster down is not to be interrupted by it


def needed(build):
    """What the demo runs, as files of the build directory."""
    return parts.targets(build, images.PROGRAMS, aliquot.WORKLOADS)


def prepare(build, narrator):
    """Builds what is missing, with one estimate for all of it."""
    files = needed(build)
    missing = {} if parts.is_built(build, files) else {"aliquot": estimate.ALIQUOT}
    missing.update(binaries.missing())
    if not missing:
        return
    left = estimate.Estimate(missing)
    narrator.say(f"The first run builds {', '.join(missing)}: about {estimate.duration(left.total())} on two idle cores. The "
                 f"result is kept (Kubernetes in {binaries.cache_root()}); later runs are ready in under a minute.")
    if "aliquot" in missing:
        parts.build(build, files, lambda done: narrator.progress(f"building aliquot ({left.at('aliquot', done)})"))
    binaries.ensure(narrator.progress, left)


def farewell(cluster, narrator, build):
    narrator.step("The cluster stays up (KEEP=1)")
    root = os.path.dirname(HERE)
    for line in (f"use it:     {cluster.state}/kubectl get pods        (any kubectl command)",
                 f"look at it: KUBECTL={cluster.state}/kubectl {build}/src/cli/aliquot gpus",
                 f"on a node:  {cluster.state}/enter sh",
                 f"logs:       {cluster.state}/logs/",
                 f"stop it:    python3 {os.path.relpath(os.path.join(root, 'tests/cluster'))} down {cluster.name}"):
        narrator.say(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="build directory")
    options = parser.parse_args()
    keep = os.environ.get("KEEP", "0") not in ("", "0")
    narrator = Narrator(steps=11)
    # Exceptions, so that the cluster is taken down.
    signal.signal(signal.SIGTERM, lambda *_: narrator.interrupt(SystemExit(143)))
    signal.signal(signal.SIGINT, lambda *_: narrator.interrupt(KeyboardInterrupt()))
    try:
        check_machine()
        remove_dead()       # of demos that were killed
        prepare(options.build, narrator)
        with Cluster(free_name(), narrator.progress) as cluster:
            Demo(cluster, options.build, narrator).run()
            good = narrator.summary() if keep else None
            if keep:
                farewell(cluster, narrator, options.build)
                cluster.keep()
            else:
                narrator.step("Taking everything down")
        return 0 if (narrator.summary() if good is None else good) else 1
    except (ClusterError, Timeout, binaries.BuildError, parts.PartsError, kube.ApiError) as error:
        narrator.claim("the demo ran to its end", False, error)
        narrator.summary()
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; everything that was started has been stopped", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
