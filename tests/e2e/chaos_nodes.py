# SPDX-License-Identifier: Apache-2.0
"""Nodes that are API objects only: Node, Lease and GPU objects, and a thread that does for their pods what a kubelet would
do. One machine has room for the containers of some ten pods; its cluster so has for hundreds.
"""

import contextlib
import random
import subprocess
import threading
import time
import uuid

import kit
import resource_claims as dra
from cluster import api as kube
from cluster.cluster import ClusterError
from kit import CARD

UNREACHABLE = (OSError, kube.ApiError, kube.Timeout, ClusterError, subprocess.SubprocessError)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
HEARTBEAT = 8       # seconds; kube-controller-manager takes a node for dead after 40
END_MAX = 3         # seconds until a pod that is to end has ended
NO_AGENT = "nvidia-device-enable"   # a label that keeps the agent away, which nothing would start on such a node


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())


def own_api(world):
    """A client with connections of its own."""
    return kube.Api(*world.api._where, world.api.token)


class Nodes(threading.Thread):
    """with Nodes(world, nodes, gpus): they are there, and their pods run and end."""

    def __init__(self, world, nodes, gpus, seed):
        super().__init__(daemon=True)
        self.api = own_api(world)
        self.names = [kit.new_name("virtual") for _ in range(nodes)]
        self.gpus = gpus
        self.rng = random.Random(seed)
        self.ended = threading.Event()
        self.ends = {}          # {UID: when it ends}
        self.beaten = 0.0

    def __enter__(self):
        for name in self.names:
            self.make(name)
        self.start()
        for name in self.names:
            self.api.wait(kube.core("nodes"), name, lambda n: n and not n["spec"].get("taints"), 60, f"{name} ready")
        return self

    def __exit__(self, *exc):
        self.ended.set()
        self.join(60)
        for seen in self.pods():
            self.end(seen)
        for name in self.names:
            self.api.delete(kube.core("nodes", name=name))
            self.strip(name)

    def make(self, name):
        self.api.create(kube.core("nodes"), {"metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", NO_AGENT: "disable"}}})
        self.equip(name)

    def equip(self, name):
        """Cards for a Node that there is; then it is ready."""
        self.api.create(LEASES, {"metadata": {"name": name}, "spec": {
            "holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now()}})
        for index in range(self.gpus):
            path = kube.gpus(self.api.create(kube.gpus(), {
                "apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": {"name": f"{name}-gpu-{index}"},
                "spec": {"index": index, "memory": CARD, "model": "NVIDIA A100-SXM4-80GB", "nodeName": name,
                         "path": f"/dev/nvidia{index}", "uuid": f"GPU-{uuid.uuid4()}"}})["metadata"]["name"])
            amount = {kit.CORE: "100", kit.MEMORY: f"{CARD >> 30}Gi"}
            self.api.patch(path + "/status", {"status": {"state": "Healthy", "capacity": amount, "allocatable": amount,
                                                         "allocated": {}, "overuse": []}})
        room = {"cpu": "64", "memory": "512Gi", "pods": "250", kit.CORE: str(100 * self.gpus),
                kit.SLOT: str(164 * self.gpus), kit.MEMORY: str(self.gpus * CARD), "aliyun.com/gpu-count": str(self.gpus)}
        self.api.patch(kube.core("nodes", name=name) + "/status", {"status": {
            "capacity": room, "allocatable": room, "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": now()[:19] + "Z", "lastTransitionTime": now()[:19] + "Z"}]}})

    def strip(self, name):
        for index in range(self.gpus):
            self.api.delete(kube.gpus(f"{name}-gpu-{index}"))
        self.api.delete(f"{LEASES}/{name}")

    def pods(self):
        return [p for p in self.api.get(kube.core("pods"))["items"] if p["spec"].get("nodeName") in self.names]

    def run(self):
        while not self.ended.wait(0.2):
            with contextlib.suppress(*UNREACHABLE):
                self.heartbeat()
                for seen in self.pods():
                    self.care(seen)

    def heartbeat(self):
        if time.monotonic() - self.beaten < HEARTBEAT:
            return
        for name in self.names:
            self.api.patch(f"{LEASES}/{name}", {"spec": {"renewTime": now()}})
        # As an agent: the scheduler writes Unknown while it takes the node's agent for gone.
        for gpu in self.api.get(kube.gpus())["items"]:
            if gpu["spec"]["nodeName"] in self.names and gpu["status"]["state"] == "Unknown":
                self.api.patch(kube.gpus(gpu["metadata"]["name"]) + "/status", {"status": {"state": "Healthy"}})
        self.beaten = time.monotonic()

    def care(self, seen):
        uid = seen["metadata"]["uid"]
        with contextlib.suppress(kube.ApiError):        # it may be gone meanwhile
            if "deletionTimestamp" in seen["metadata"]:
                if time.monotonic() >= self.ends.setdefault(uid, time.monotonic() + self.rng.uniform(0, END_MAX)):
                    self.end(seen)
                    del self.ends[uid]
            elif seen["status"].get("phase") != "Running":
                self.api.patch(path_of(seen) + "/status", {"metadata": {"uid": uid}, "status": status_of(seen)})

    def end(self, seen):
        self.api.delete(path_of(seen), gracePeriodSeconds=0, preconditions={"uid": seen["metadata"]["uid"]})


class ClaimNodes(Nodes):
    """Their cards are in ResourceSlices, too, as agents publish them."""

    def equip(self, name):
        super().equip(name)
        dra.publish(self.api, name)

    def strip(self, name):
        dra.withdraw(self.api, name)
        super().strip(name)


def path_of(seen):
    return kube.pods(seen["metadata"]["namespace"], seen["metadata"]["name"])


def status_of(seen):
    running = [{"name": c["name"], "image": c["image"], "imageID": "", "ready": True, "restartCount": 0,
                "state": {"running": {"startedAt": now()[:19] + "Z"}}} for c in seen["spec"]["containers"]]
    return {"phase": "Running", "containerStatuses": running}
