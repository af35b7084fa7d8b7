#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scheduler, API server, etcd, kube-scheduler and network are killed, paused and cut at random while pods come and
go; all the time no card is given away twice, and afterwards every pod, GPU object and record agrees.

    make chaos SECONDS=600 SEED=1

The same code runs for some seconds in test_chaos.py.
"""

import argparse
import base64
import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

if __name__ == "__main__":      # pytest has the paths already
    TOP = pathlib.Path(__file__).resolve().parent.parent.parent
    sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e")]

import kit
from cluster import api as kube
from cluster.cluster import ClusterError
from kit import GiB, assignment_of, check_no_share_twice, container, pod

SHARES = [{"core": 50, "memory": 40 * GiB}, {"core": 25, "memory": 20 * GiB}, {"core": 10, "memory": 8 * GiB},
          {"memory": 30 * GiB}, {"core": 30}, {"core": 100}]
WAITING = 4         # pods more than fit, so that something waits at all times
UNREACHABLE = (OSError, kube.ApiError, kube.Timeout, ClusterError, subprocess.SubprocessError)
QUIET = 180         # seconds until everything agrees again


# ---- load ----

class Load(threading.Thread):
    """Creates and deletes pods as fast as the cluster takes them, and asks all the time whether a card is given away
    twice. Whatever cannot be reached is tried again."""

    def __init__(self, space, seed):
        super().__init__(daemon=True)
        self.space = space
        self.api = kube.Api(*space.api._where, space.api.token)     # connections of its own
        self.rng = random.Random(seed)
        self.ended = threading.Event()
        self.failure = None
        self.created = self.bound = self.looks = 0

    def run(self):
        seen = set()
        while not self.ended.is_set():
            try:
                self.turn(seen)
            except AssertionError as error:
                self.failure = error
                return
            except UNREACHABLE:
                self.ended.wait(0.2)

    def turn(self, seen):
        pods = self.api.get(self.space.path)["items"]
        # Those that are being deleted hold until they have ended.
        check_no_share_twice(p for p in pods if p["status"].get("phase") not in ("Succeeded", "Failed"))
        self.looks += 1
        bound = {p["metadata"]["uid"] for p in pods if p["spec"].get("nodeName")}
        self.bound += len(bound - seen)
        seen |= bound
        alive = [p for p in pods if "deletionTimestamp" not in p["metadata"]]
        if sum(not p["spec"].get("nodeName") for p in alive) < WAITING:
            self.api.create(self.space.path, pod(kit.new_name("c"), container(**self.rng.choice(SHARES)),
                                                 terminationGracePeriodSeconds=1))
            self.created += 1
        elif alive and self.rng.random() < 0.7:
            self.api.delete(self.space.path + "/" + self.rng.choice(alive)["metadata"]["name"],
                            gracePeriodSeconds=self.rng.choice([0, 1]))
        self.ended.wait(0.05)

    def end(self):
        self.ended.set()
        self.join(60)
        assert not self.is_alive()
        if self.failure:
            raise self.failure


# ---- faults ----

class Faults:
    """Each takes some seconds and puts back what it took away."""

    def __init__(self, world, rng):
        self.world = world
        self.rng = rng
        self.cluster = world.cluster

    def pids(self):
        """Of the replicas of the scheduler, as the node counts."""
        found = self.cluster.on_node(["pidof", "aliquot-scheduler"], check=False).stdout
        return found.split()

    def signal(self, pid, name):
        self.cluster.on_node(["kill", "-" + name, pid], check=False)

    def kill_one(self):
        pids = self.pids()
        if pids:
            self.signal(self.rng.choice(pids), "KILL")

    def kill_all(self):
        for pid in self.pids():
            self.signal(pid, "KILL")

    def pause_one(self):
        """As a machine does that is out of memory or moved: the replica comes back long after its time."""
        pids = self.pids()
        if pids:
            self.pause(self.rng.choice(pids), self.rng.uniform(2, 18))

    def pause(self, pid, seconds):
        self.signal(pid, "STOP")
        try:
            time.sleep(seconds)
        finally:
            self.signal(pid, "CONT")

    def kill_api_server(self):
        self.cluster.restart("kube-apiserver", signal.SIGKILL)

    def kill_etcd(self):
        self.cluster.restart("etcd", signal.SIGKILL)

    def kill_kube_scheduler(self):
        self.cluster.restart("kube-scheduler", signal.SIGKILL)

    def cut_network(self):
        """What the replicas send to the API server is lost, and nobody is told. They are known by their user."""
        self.cluster.on_node(["nft", "table inet chaos { chain out { type filter hook output priority 0; "
                              "meta skuid 65534 tcp dport 6443 drop; }; }"])
        try:
            time.sleep(self.rng.uniform(1, 12))
        finally:
            self.cluster.on_node(["nft", "delete table inet chaos"])

    KINDS = [kill_one, pause_one, kill_api_server, cut_network, kill_all, kill_etcd, kill_kube_scheduler]

    def run(self, seconds, say):
        """Every kind once, in random order, then any until the time is up. Returns {kind: how often}."""
        until = time.monotonic() + seconds
        plan = self.rng.sample(self.KINDS, len(self.KINDS))
        count = {}
        while plan or time.monotonic() < until:
            kind = plan.pop() if plan else self.rng.choice(self.KINDS)
            say(f"{max(0, until - time.monotonic()):4.0f} s left: {kind.__name__}")
            kind(self)
            count[kind.__name__] = count.get(kind.__name__, 0) + 1
            time.sleep(self.rng.uniform(0, 3))
        return count


# ---- audit ----

def check_signature(world, seen, key_file):
    annotations = seen["metadata"]["annotations"]
    text = (f'aliquot-assignment-v1\n{seen["metadata"]["uid"]}\n{seen["spec"]["nodeName"]}\n'
            f'{annotations[kit.ASSIGNMENT]}')
    with tempfile.NamedTemporaryFile() as message, tempfile.NamedTemporaryFile() as signature:
        message.write(text.encode())
        signature.write(base64.b64decode(annotations[kit.SIGNATURE]))
        message.flush()
        signature.flush()
        done = subprocess.run(["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", key_file, "-rawin", "-in",
                               message.name, "-sigfile", signature.name], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, f'{seen["metadata"]["name"]}: {done.stdout}'


def check_signatures(world, pods):
    public = world.api.get(kube.core("configmaps", kit.SYSTEM, "aliquot-signing"))["data"]["public.pem"]
    with tempfile.NamedTemporaryFile("w") as key:
        key.write(public)
        key.flush()
        for seen in pods:
            check_signature(world, seen, key.name)


def cards_of(pods):
    """{pod UID: {UUID}} by the pods' own annotations."""
    return {p["metadata"]["uid"]: {d["uuid"] for devices in assignment_of(p).values() for d in devices} for p in pods}


def views(world, space):
    """What each of the four books says of who holds what, as {name: value}; all must be the same."""
    pods = [p for p in world.api.get(space.path)["items"] if p["spec"].get("nodeName")]
    uuids = {g["metadata"]["name"]: g["spec"]["uuid"] for g in world.gpus()}
    status = kit.json.loads(world.scheduler.http("/status"))
    agent = {}
    for gpu in world.usage()["gpus"]:
        for holder in gpu["holders"]:
            agent.setdefault(holder["pod"], set()).add(gpu["uuid"])
    return {
        "annotations": cards_of(pods),
        "GPU objects": {uid: {uuids[g] for g in gpus} for uid, gpus in world.allocated().items()},
        "scheduler": {p["uid"]: {h["uuid"] for h in p["holds"]} for p in status["pods"] if p["stage"] != "pending"},
        "agent": {p["metadata"]["uid"]: agent.get(p["metadata"]["name"], set()) for p in pods},
    }, pods


def agree(world, space):
    """Raises until every book says the same and every pod that was placed runs."""
    found, pods = views(world, space)
    for name, value in found.items():
        assert value == found["annotations"], f"{name}: {value}, by the annotations: {found['annotations']}"
    assert all(kit.is_running(p) for p in pods), [p["metadata"]["name"] for p in pods if not kit.is_running(p)]
    check_no_share_twice(pods)
    return pods


def metrics(world):
    """Of whichever replica has the port: for a moment it may be none."""
    return kit.parse_metrics(world.until(lambda: world.scheduler.http("/metrics"), QUIET, "metrics").decode())


def audit(world, space):
    """Everything agrees; then all is let go, and the cards can be given away anew to the last byte."""
    pods = world.until(lambda: agree(world, space), QUIET, "all books agree", pause=0.5)
    check_signatures(world, pods)
    told = metrics(world)
    assert told["aliquot_scheduler_gpus_overcommitted", ()] == 0
    assert told["aliquot_scheduler_forged_assignments_total", ()] == 0
    names = [p["metadata"]["name"] for p in world.api.get(space.path)["items"]]
    space.delete(*names, grace=0, timeout=QUIET)
    world.wait_all_released(QUIET)
    whole = [space.running(name, QUIET) for name in space.create(*(pod(f"whole-{i}", container(core=100))
                                                                  for i in range(len(world.gpus()))))]
    check_no_share_twice(whole)
    return len(pods)


def run(world, space, seconds, seed, say):
    """Returns what happened, for people; raises when something is wrong."""
    load = Load(space, seed)
    load.start()
    try:
        faults = Faults(world, random.Random(seed)).run(seconds, say)
    finally:
        load.end()
    say("the faults are over: all books must agree")
    audited = audit(world, space)
    return (f"{sum(faults.values())} faults ({', '.join(f'{n} {k}' for k, n in sorted(faults.items()))}), "
            f"{load.created} pods created, {load.bound} bound, {load.looks} looks at all of them, "
            f"{audited} running at the end; nothing given twice, nothing leaked")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    from cluster import aliquot
    from cluster.cluster import Cluster
    begin = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begin:5.0f} s  {text}", file=sys.stderr, flush=True)

    build = pathlib.Path(arguments.build)
    with Cluster(f"chaos-{os.getpid()}", say) as cluster:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        aliquot.install(cluster, str(build), gpus=2, programs=[str(build / "tests/e2e/probe")])
        world = kit.World(cluster, build)
        world.wait_tokens(60)
        space = kit.Space(world, "chaos")
        world.api.create(kube.core("namespaces"), {"metadata": {"name": space.name}})
        world.api.wait(kube.core("serviceaccounts", space.name), "default", bool, 30)
        try:
            print(run(world, space, arguments.seconds, arguments.seed, say))
        except BaseException:
            for title, text in kit.evidence(world, space, 60):
                say(f"---- {title}\n{text}")
            raise


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
