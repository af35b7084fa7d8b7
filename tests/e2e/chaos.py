#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scheduler, API server, etcd, kube-scheduler and network are killed, paused and cut at random while pods, claims,
gangs and reservations come and go; all the time no card is given away twice, and afterwards every pod, GPU object,
claim and record agrees.

    make chaos SECONDS=600 SEED=1 CLAIMS=1

The same code runs for some seconds in test_chaos.py. The load is in chaos_load.py, the audit in chaos_audit.py.
"""

import argparse
import contextlib
import json
import os
import pathlib
import random
import signal
import sys
import time

if __name__ == "__main__":      # pytest has the paths already
    TOP = pathlib.Path(__file__).resolve().parent.parent.parent
    sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e")]

import chaos_audit
import kit
import worlds
from chaos_load import LOW, Load
from chaos_nodes import ClaimNodes, Nodes
from cluster import api as kube
from kit import check_no_share_twice, container, pod

QUIET = 180         # seconds until everything agrees again


# ---- faults ----

class Faults:
    """Each takes some seconds and puts back what it took away."""

    def __init__(self, world, rng, rest):
        """rest: seconds between two faults at most. Who takes over has work to do before the next one."""
        self.world = world
        self.rng = rng
        self.rest = rest
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
        """The one that asks; in the pods of a pair, one of them."""
        pids = self.world.scheduler.kube_schedulers()
        if pids:
            self.signal(self.rng.choice(pids), "KILL")
        else:
            self.cluster.restart("kube-scheduler", signal.SIGKILL)

    def cut_network(self):
        """What the replicas send to the API server is lost silently. On the node they are known by their user, in the pods'
        network by their addresses."""
        pods = [p for p in self.world.scheduler.pods() if not p["spec"].get("hostNetwork")]
        addresses = ", ".join(p["status"]["podIP"] for p in pods if "podIP" in p["status"])
        rules = f"ip saddr {{ {addresses} }} drop" if addresses else "meta skuid 65534 tcp dport 6443 drop"
        hook = "prerouting priority -300" if addresses else "output priority 0"
        self.cluster.on_node(["nft", f"table inet chaos {{ chain out {{ type filter hook {hook}; {rules}; }}; }}"])
        try:
            time.sleep(self.rng.uniform(1, 12))
        finally:
            self.cluster.on_node(["nft", "delete table inet chaos"])

    KINDS = [kill_one, pause_one, kill_api_server, cut_network, kill_all, kill_etcd, kill_kube_scheduler]

    def run(self, seconds, say, load):
        """Every kind once, in random order, then any until the time is up. Returns {kind: how often}."""
        until = time.monotonic() + seconds
        plan = self.rng.sample(self.KINDS, len(self.KINDS))
        count = {}
        while not load.failure and (plan or time.monotonic() < until):
            kind = plan.pop() if plan else self.rng.choice(self.KINDS)
            say(f"{max(0, until - time.monotonic()):4.0f} s left: {load.watcher.bound} bound; {kind.__name__}")
            kind(self)
            count[kind.__name__] = count.get(kind.__name__, 0) + 1
            time.sleep(self.rng.uniform(0, self.rest))
        return count


# ---- audit ----

def metrics(world):
    """Of whichever replica has the port: for a moment it may be none."""
    return kit.parse_metrics(world.scheduler.http("/metrics").decode())


def agree(world):
    """Raises until every book says the same and every pod that was placed runs."""
    moment = chaos_audit.Moment(world.api)
    chaos_audit.judge_cards(moment)
    chaos_audit.judge_claims(moment)
    chaos_audit.judge_gpu_objects(moment, world.gpus())
    chaos_audit.judge_scheduler(moment, json.loads(world.scheduler.http("/status")), metrics(world))
    chaos_audit.judge_agent(moment, world.usage(), world.cluster.node)
    late = [chaos_audit.name_of(p) for p in moment.bound() + moment.claiming() if not kit.is_running(p)]
    assert not late, f"bound, and not running: {late}"
    return moment


def delete_pods(world, space, unless):
    for seen in world.api.get(space.path)["items"]:
        if not unless(seen):
            world.api.delete(f"{space.path}/{chaos_audit.name_of(seen)}", gracePeriodSeconds=0)


def all_members_run(world):
    """Of every gang that is whole; of the others none."""
    found = chaos_audit.gangs(chaos_audit.Moment(world.api))
    for name, (size, pods, bound) in found.items():
        want = len(pods) if len(pods) >= size else 0
        assert len(bound) >= want, f"gang {name}: {len(bound)} of {len(pods)} are bound, and there is room"
    return [found]


def is_free(world):
    moment = agree(world)
    left = moment.bound() or moment.claiming() or moment.egpus or moment.claims or moment.resource_claims
    assert not left, f"not everything is gone: {left}"
    return True


def audit(world, space, load, say):
    """Everything agrees; gangs that have room run as a whole; all is let go, and then every card can be given away
    as a whole. Returns how many pods had a share when the faults ended."""
    delete_pods(world, space, lambda p: p["spec"].get("nodeName") or chaos_audit.note(p, chaos_audit.GANG))
    moment = world.until(lambda: agree(world), QUIET, "all books agree", pause=0.5)
    chaos_audit.judge_signatures(world.api, moment.bound())
    say("all books agree: only gangs stay")
    delete_pods(world, space, lambda p: chaos_audit.note(p, chaos_audit.GANG))
    world.until(lambda: all_members_run(world), QUIET, "gangs as a whole", pause=0.5)
    say("everything is let go")
    load.clear()
    world.until(lambda: is_free(world), QUIET, "nothing is allocated", pause=0.5)
    names = space.create(*(pod(f"whole-{i}", container(core=100), priorityClassName=load.priorities[LOW])
                           for i in range(len(world.gpus()))))
    whole = [space.running(name, QUIET) for name in names]
    check_no_share_twice(whole)
    space.delete(*names, grace=0, timeout=QUIET)
    world.wait_all_released(QUIET)
    return len(moment.bound() + moment.claiming())


def show(world, space, say):
    """What one wants to read when something was found, while it is there."""
    for title, text in kit.evidence(world, space, 60):
        say(f"---- {title}\n{text}")
    with contextlib.suppress(Exception):
        say("---- scheduler's picture\n" + world.scheduler.http("/status").decode())
    for kind in ("pods", "elasticgpuclaims", "elasticgpus", "elasticgpureservations", "resourceclaims"):
        with contextlib.suppress(Exception):
            say(f"---- {kind}\n" + world.cluster.kubectl("get", kind, "-n", space.name, "-o", "json"))


def run(world, space, seconds, seed, say, nodes, gpus, rest, claims=False):
    """Returns what happened, for people; raises when something is wrong. claims: with ResourceClaims beside the rest."""
    with (ClaimNodes if claims else Nodes)(world, nodes, gpus, seed), Load(space, seed, claims) as load:
        try:
            faults = Faults(world, random.Random(seed), rest).run(seconds, say, load)
            load.end()
            assert load.watcher.claiming or not claims, "no pod was bound with a ResourceClaim"
            say(f"{load.told()}; the faults are over: all books must agree")
            audited = audit(world, space, load, say)
        except BaseException:
            load.ended.set()
            show(world, space, say)
            raise
    return (f"{sum(faults.values())} faults ({', '.join(f'{n} {k}' for k, n in sorted(faults.items()))}), "
            f"{load.told()}, {audited} pods with a share at the end; nothing given twice, nothing leaked")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scheduler", choices=["extender", "own"], default="extender", help="mode of the scheduler (extender)")
    parser.add_argument("--claims", action="store_true", help="shares by ResourceClaims beside the others")
    parser.add_argument("--nodes", type=int, default=6, help="nodes without a kubelet, of 4 GPUs each (6)")
    arguments = parser.parse_args()
    begin = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begin:5.0f} s  {text}", file=sys.stderr, flush=True)

    build = pathlib.Path(arguments.build)
    with worlds.installed(f"chaos-{os.getpid()}", build, own=arguments.scheduler == "own", claims=arguments.claims, say=say) as world:
        space = kit.Space(world, "chaos")
        world.api.create(kube.core("namespaces"), {"metadata": {"name": space.name}})
        world.api.wait(kube.core("serviceaccounts", space.name), "default", bool, 30)
        print(run(world, space, arguments.seconds, arguments.seed, say, arguments.nodes, 4, 8, arguments.claims))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
