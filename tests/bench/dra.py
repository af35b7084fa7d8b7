#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures shares by ResourceClaims beside pods without claims, shares by resource names, and kube-scheduler's own allocation,
all in one run, and prints a table in Markdown.

    make bench-dra                          all parts, about four minutes on two idle cores
    make bench-dra ARGS="--part queue"      one of them: starts, node, packing, queue

starts: from a pod's creation to its program running, in turns. node: the agent's answers to kubelet, and its memory, with many
claims. packing: shares, and then whole cards, on nodes with one card each. queue: many pods that wait for a stock kube-scheduler.
The cards of the first two parts are simulated; the nodes of the others are API objects only.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import statistics
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench")]

import cluster_bench                            # noqa: E402  (the path comes first)
import grpc_raw                                 # noqa: E402
import kit                                      # noqa: E402
import resource_claims as dra                   # noqa: E402
from chaos_nodes import ClaimNodes              # noqa: E402
from cluster import aliquot                     # noqa: E402
from cluster import api as kube                 # noqa: E402
from cluster.cluster import Cluster             # noqa: E402
from figures import duration, machine, write_between        # noqa: E402

PAIRS = 8
CLAIMS = 100                # on the node
CALLS = 3                   # rounds in which each of them is prepared and unprepared
SHARERS, WHOLE = 8, 5       # pods of the part packing; as many nodes as sharers
NODES, CARDS, QUEUED = 20, 8, 200
START = 120                 # seconds
ROUND = 300
SOCKET = f"/var/lib/kubelet/plugins/{dra.DRIVER}/dra.sock"
SERVICE = b"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
CDI = b"elasticgpu.io/share="
AGENTS = f"/apis/apps/v1/namespaces/{kit.SYSTEM}/daemonsets/aliquot-agent"
OPTION = "--resource-claims="


class Rows:
    """What was measured, said at once and printed at the end."""

    def __init__(self, say):
        self.say, self.found = say, []

    def add(self, what, value):
        self.say(f"{what}: {value}")
        self.found.append(f"| {what} | {value} |")

    def load(self, part):
        self.add(f"load average before the part `{part}`", f"{os.getloadavg()[0]:.1f}")


def percentile(times, part):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


@contextlib.contextmanager
def new_space(world, name):
    space = kit.Space(world, kit.new_name(name))
    world.api.create(kube.core("namespaces"), {"metadata": {"name": space.name}})
    world.api.wait(kube.core("serviceaccounts", space.name), "default", bool, START)
    yield space
    clear(space)
    world.api.delete(kube.core("namespaces", name=space.name))


def clear(space):
    """Of pods, and of the claims that were theirs."""
    space.api.delete(space.path, gracePeriodSeconds=0)
    space.api.wait_none(space.path, START)
    space.api.wait_none(dra.path(space, "resourceclaims"), START)


# ---- starts ----

def published(world, allocator):
    """Waits until the agent has published its cards for that allocator."""
    def there():
        devices = [d for s in world.api.get(dra.SLICES)["items"] if s["spec"]["nodeName"] == world.cluster.node
                   for d in s["spec"].get("devices", [])]
        return devices and all(d["attributes"]["allocator"]["string"] == allocator for d in devices)
    world.until(there, START, f"cards in ResourceSlices for {allocator}", pause=0.1)


def give_cards_to(world, allocator):
    args = world.api.get(AGENTS)["spec"]["template"]["spec"]["containers"][0]["args"]
    (at,) = (i for i, argument in enumerate(args) if argument.startswith(OPTION))
    world.api.patch(AGENTS, [{"op": "replace", "path": f"/spec/template/spec/containers/0/args/{at}", "value": OPTION + allocator}],
                    kind=kube.JSON_PATCH)
    aliquot.wait_agents(world.cluster)
    dra.wait_registered(world)
    published(world, allocator)


def in_turns(space, kinds, pairs):
    """{kind: [ns from the request to create a pod until main() of its program]}. kinds: {kind: a function that makes the body}."""
    times = {kind: [] for kind in kinds}
    for number in range(-1, pairs):     # the first round warms up
        for at, (kind, made) in enumerate(kinds.items()):
            body = made(f"p{number + 1}-{at}")
            created = time.time_ns()
            seen = space.start(body, START)
            with space.tenant(seen) as tenant:
                if number >= 0:
                    times[kind].append(tenant.ask("started")["ns"] - created)
            space.delete(seen["metadata"]["name"], timeout=START)
    return times


def add_starts(rows, times):
    plain, *shares = times
    for kind in times:
        rows.add(f"from pod created to its program running, {kind}, median of {len(times[kind])}",
                 duration(statistics.median(times[kind])))
    for kind in shares:
        rows.add(f"the same beyond the plain pod of the same round, {kind}, median",
                 duration(statistics.median(b - a for a, b in zip(times[plain], times[kind]))))


def measure_starts(world, rows, options):
    rows.load("starts")
    with new_space(world, "starts") as space:
        share = dra.template(space, core="30", memory="20Gi")
        first_fit = dra.template(space, dra.FIRST_FIT, core="30", memory="20Gi")
        add_starts(rows, in_turns(space, {
            "plain": kit.pod,
            "by resource names (extender)": lambda name: kit.pod(name, kit.container(core=30, memory=20 * kit.GiB)),
            "by a claim that aliquot-scheduler places": lambda name: dra.using(kit.pod(name), share)}, options.pairs))
        give_cards_to(world, dra.BY_KUBE_SCHEDULER)
        add_starts(rows, in_turns(space, {
            "plain, beside the next": kit.pod,
            "by a claim that kube-scheduler allocates (first fit)": lambda name: dra.using(kit.pod(name), first_fit, gated=False)},
            options.pairs))
        give_cards_to(world, dra.BY_ALIQUOT)


# ---- node ----

def call(channel, method, claim):
    """Nanoseconds, and the answer."""
    meta = claim["metadata"]
    body = grpc_raw.field(1, b"".join(grpc_raw.field(n, meta[k].encode()) for n, k in ((1, "namespace"), (2, "uid"), (3, "name"))))
    begun = time.perf_counter_ns()
    answer = channel.call(SERVICE + method, body)
    return time.perf_counter_ns() - begun, answer


def resident(world):
    size = cluster_bench.resident(world)["aliquot-agent"]
    return f"{size['Rss'] / (1 << 20):.1f} MiB ({size['Pss'] / (1 << 20):.1f} MiB)"


def measure_node(world, rows, _):
    """kubelet is paused, so that the agent stays registered: its calls are made here, for claims whose pods are bound and have no
    container."""
    rows.load("node")
    rows.add("resident memory of aliquot-agent with the driver registered and no claim (proportional)", resident(world))
    with new_space(world, "node") as space:
        made_of = dra.template(space, core="1", memory="1Gi")
        (kubelet,) = world.cluster.on_node(["pidof", "kubelet"]).stdout.split()
        world.cluster.on_node(["kill", "-STOP", kubelet])
        anywhere = {"tolerations": [{"operator": "Exists"}], **kit.on(world.cluster.node)}
        names = space.create(*(dra.using(kit.pod(f"p{i}", **anywhere), made_of) for i in range(CLAIMS)))
        for name in names:
            space.wait(name, lambda seen: seen["spec"].get("nodeName"), START, f"pod {name} bound")
        claims = world.api.get(dra.path(space, "resourceclaims"))["items"]
        channel = grpc_raw.Channel(world.node_path(SOCKET))
        prepared, unprepared = [], []
        for number in range(CALLS):
            for claim in claims:
                took, answer = call(channel, b"NodePrepareResources", claim)
                assert CDI in answer, answer
                prepared.append(took)
            if number + 1 == CALLS:
                rows.add(f"the same with {len(claims)} claims prepared, without containers (aim: 9 MiB)", resident(world))
            unprepared += [call(channel, b"NodeUnprepareResources", claim)[0] for claim in claims]
        channel.close()
        world.until(lambda: not world.shares(), START, "no share left on the node")
        clear(space)
        world.cluster.on_node(["kill", "-CONT", kubelet])
        world.cluster.wait_node_ready()
        published(world, dra.BY_ALIQUOT)
    for what, times in (("NodePrepareResources", prepared), ("NodeUnprepareResources", unprepared)):
        rows.add(f"{what} of one claim, median / p99 / worst of {len(times)}", " / ".join(
            duration(t) for t in (statistics.median(times), percentile(times, 0.99), max(times))))


# ---- nodes that are API objects ----

class Fleet(ClaimNodes):
    """Pods are bound to these nodes, and never run. Each node has a label by which pods are sent to the fleet."""

    def __init__(self, world, nodes, cards):
        super().__init__(world, nodes, cards, seed=1)
        self.label = {"bench.elasticgpu.io/fleet": kit.new_name("f")}

    def make(self, name):
        """With 8 CPUs and 64 GiB for each card, of which a pod requests a part, so that kube-scheduler tells nodes apart."""
        super().make(name)
        node, room = kube.core("nodes", name=name), {"cpu": str(8 * self.gpus), "memory": f"{64 * self.gpus}Gi"}
        self.api.patch(node, {"metadata": {"labels": self.label}})
        self.api.patch(node + "/status", {"status": {"capacity": room, "allocatable": room}})

    def pods(self):
        return []

    def publish(self, allocator):
        for name in self.names:
            dra.publish(self.api, name, allocator)

    def pod(self, name, made_of=None, gated=True):
        body = kit.pod(name, nodeSelector=self.label)
        body["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "4Gi"}}
        return dra.using(body, made_of, gated) if made_of else body


@contextlib.contextmanager
def stock_scheduler(world):
    """kube-scheduler without a configuration."""
    world.cluster.stock_scheduler = True
    world.cluster.restart("kube-scheduler")
    yield
    world.cluster.stock_scheduler = False
    world.cluster.restart("kube-scheduler")


# ---- packing ----

def is_bound(seen):
    return bool(seen and seen["spec"].get("nodeName"))


def is_decided(seen):
    return is_bound(seen) or kit.condition(seen, "PodScheduled").get("reason") == "Unschedulable"


def packed(world, fleet, device_class, gated):
    """(cards with a share, whole-card pods bound)."""
    with new_space(world, "packing") as space:
        share, whole = dra.template(space, device_class, core="30", memory="20Gi"), dra.template(space, device_class)
        for name in space.create(*(fleet.pod(f"share-{i}", share, gated) for i in range(SHARERS))):
            space.wait(name, is_bound, START, f"pod {name} bound")
        used = {r[:2] for claim in world.api.get(dra.path(space, "resourceclaims"))["items"] for r in dra.results(claim)}
        names = space.create(*(fleet.pod(f"whole-{i}", whole, gated=False) for i in range(WHOLE)))
        for name in names:
            space.wait(name, is_decided if not gated else is_bound, START, f"pod {name} decided")
        return len(used), sum(is_bound(space.get(name)) for name in names)


def measure_packing(world, rows, _):
    rows.load("packing")
    with stock_scheduler(world), Fleet(world, SHARERS, 1) as fleet:
        for what, allocator, device_class, gated in (
                ("kube-scheduler, first fit", dra.BY_KUBE_SCHEDULER, dra.FIRST_FIT, False),
                ("aliquot-scheduler", dra.BY_ALIQUOT, dra.DRIVER, True)):
            fleet.publish(allocator)
            used, bound = packed(world, fleet, device_class, gated)
            rows.add(f"{SHARERS} pods of 30 % on {SHARERS} nodes of one card, then {WHOLE} of a whole card, placed by {what}",
                     f"{used} cards have shares; {bound} of {WHOLE} are bound")


# ---- queue ----

@contextlib.contextmanager
def one_scheduler(world):
    """One replica, so that no other takes over while it is stopped."""
    deployment = f"/apis/apps/v1/namespaces/{kit.SYSTEM}/deployments/aliquot-scheduler"
    replicas = world.api.get(deployment)["spec"]["replicas"]

    def scale(number):
        world.api.patch(deployment, {"spec": {"replicas": number}})
        world.until(lambda: len(world.scheduler.pods()) == number and world.scheduler.pod(), START, f"{number} schedulers", pause=0.1)
    scale(1)
    yield
    scale(replicas)


def queued(world, fleet, made_of_class, gated):
    """Seconds from the start of kube-scheduler until the last of the pods is bound, which were there before."""
    with new_space(world, "queue") as space:
        made_of = made_of_class and dra.template(space, made_of_class, core="30", memory="20Gi")
        ours = world.first_process(world.scheduler.status())
        world.cluster.stop("kube-scheduler")
        world.cluster.on_node(["kill", "-STOP", ours])
        try:
            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                list(threads.map(lambda i: space.create(fleet.pod(f"p{i:03}", made_of, gated)), range(QUEUED)))
            if made_of:
                world.until(lambda: all(p["status"].get("resourceClaimStatuses") for p in world.api.get(space.path)["items"]), START,
                            "claims of all pods", pause=0.2)
        finally:
            begun = time.monotonic()
            world.cluster.on_node(["kill", "-CONT", ours])
            world.cluster.start("kube-scheduler")
        bound = set()
        for _, seen in world.api.watch(space.path, ROUND):
            if is_bound(seen):
                bound.add(seen["metadata"]["name"])
                if len(bound) == QUEUED:
                    break
        took = time.monotonic() - begun
        held = dra.held_of_cards(world.api.get(dra.path(space, "resourceclaims"))["items"], [])
        assert all(core <= 100 for core, _ in held.values()) and sum(core for core, _ in held.values()) == (
            30 * QUEUED if made_of else 0), held
    return took


def measure_queue(world, rows, options):
    rows.load("queue")
    kinds = {"without claims": (None, None, False), "allocated by kube-scheduler": (dra.BY_KUBE_SCHEDULER, dra.FIRST_FIT, False),
             "placed and reserved by aliquot-scheduler": (dra.BY_ALIQUOT, dra.DRIVER, True)}
    found = {kind: [] for kind in kinds}
    with stock_scheduler(world), Fleet(world, NODES, CARDS) as fleet, one_scheduler(world):
        for number in range(options.rounds):
            for kind, (allocator, device_class, gated) in kinds.items():
                if allocator:
                    fleet.publish(allocator)
                found[kind].append(queued(world, fleet, device_class, gated))
                rows.say(f"round {number + 1}: {QUEUED} pods, {kind}: {found[kind][-1]:.1f} s")
    for kind, times in found.items():
        rows.add(f"{QUEUED} queued pods on {NODES} nodes of {CARDS} cards, from the start of a stock kube-scheduler until all are "
                 f"bound, {kind}, by round", ", ".join(f"{t:.1f} s" for t in times))
    ratios = {kind: [b / a for a, b in zip(found["without claims"], times)] for kind, times in found.items()}
    rows.add("the same, as a multiple of the time without claims: by kube-scheduler / by aliquot-scheduler (aim: 1.5)", " / ".join(
        ", ".join(f"{r:.2f}" for r in times) for times in list(ratios.values())[1:]))


PARTS = {"starts": measure_starts, "node": measure_node, "packing": measure_packing, "queue": measure_queue}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--part", choices=sorted(PARTS), action="append", help="one of the parts, in place of all")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="pods of each kind in the part starts")
    parser.add_argument("--rounds", type=int, default=2, help="of the part queue")
    parser.add_argument("--write", type=pathlib.Path, help="file with markers for the table")
    options = parser.parse_args()
    begun = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - begun:5.0f} s  {text}", file=sys.stderr, flush=True)

    rows = Rows(say)
    build = options.build.resolve()
    with Cluster(f"dra-{os.getpid()}", say) as cluster:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        say("installing Aliquot")
        aliquot.install(cluster, str(build), gpus=2, programs=[str(build / "tests/e2e/probe")],
                        deploy=aliquot.with_components(cluster, "dra"))
        world = kit.World(cluster, build)
        world.wait_tokens(60)
        published(world, dra.BY_ALIQUOT)
        for part in options.part or PARTS:
            say(f"---- {part}")
            PARTS[part](world, rows, options)
    text = "\n".join([machine(), "", "| measured | value |", "|---|---|", *rows.found])
    print(text)
    if options.write:
        write_between(options.write, "dra", text)


if __name__ == "__main__":
    main()
