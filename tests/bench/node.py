# SPDX-License-Identifier: Apache-2.0
"""Measures the agent on a node of 8 cards, and prints tables in Markdown.

    make bench-node                             about 15 minutes, of which ten at rest
    make bench-node ARGS="--idle 60"            with less time at rest
    make bench-node ARGS="--peer PROGRAM"       NVIDIA's device plugin on the same cards in the same run, divided ones, too

The first rows are of a full node without a cluster (allocate.py). The node of the others is one of a real cluster; the cards
are simulated. Lists of devices are those that a plugin streams to kubelet. Requests are counted by the API server: a FlowSchema
matches those of the agents alone.
"""

import argparse
import contextlib
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench")]

import allocate                                 # noqa: E402  (the path comes first)
import cluster_bench                            # noqa: E402
import device_plugin                            # noqa: E402
import fleet                                    # noqa: E402
import kit                                      # noqa: E402
from api_requests import Requests               # noqa: E402
from cluster import aliquot                     # noqa: E402
from cluster import api as kube                 # noqa: E402
from cluster.cluster import Cluster             # noqa: E402
from figures import duration, machine, write_between        # noqa: E402

CARDS = 8
INSTANCES = 7               # of each card
SHARES = ("gpu-core", "qgpu-core", "slot")      # plugins whose devices are parts of cards
IDS = [f"c-{i:04}" for i in range(30)]
PROFILE, OTHER = "1g.10gb", "1g.10gb+me"
XID = 48                    # a double-bit ECC error: the card needs a reset
MIG_LABEL = "nvidia.com/mig.config"
REPARTITIONS = 6
CALM = 15                   # seconds without a request, from which on agents are at rest
FLEET = 200
REPLICAS = 4                # of each card, of NVIDIA's device plugin
PEER_ROUNDS = 3
CONFIG = "/run/aliquot/config.yaml"     # of the node, the same in the agent's container
MIG_CONFIGS = "/run/aliquot/mig.yaml"
CONFIG_MAP = "bench-config"
CHANGES = 10                # of the configuration
QUICK = 1000000             # ns, for Allocate
FULL_SECONDS = 30           # of Allocate on a full node
STEADY = "health: {flapping: {times: 0}}"    # each card fails several times in a run, and is to return each time
BASE_CONFIG = f"version: v1\naliquot: {{{STEADY}}}\n"
IN_FORCE = "the configuration of the node has changed"     # in the agent's log
DRIVERS_PART = re.compile(r"changes in (\d+) us, of them in the driver (\d+) us")    # in both logs of a division
SETTLED = 5                 # seconds after which that plugin is taken to have said all that it will say
PEER_CONFIG = f"version: v1\nsharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {REPLICAS}}}]}}}}\n"
DRIVEN = ["env", f"ALIQUOT_SIM_DIR={aliquot.DRIVER}", f"LD_LIBRARY_PATH={aliquot.DRIVER}/lib"]


def write(cluster, path, text):
    """A file of the node, at once."""
    cluster.on_node(["sh", "-c", f"mkdir -p {os.path.dirname(path)}; cat > {path}.new; mv {path}.new {path}"], input=text)


def division(counts, *cards):
    """A configuration of mig-parted's file: these instances, of {profile: number}, on the cards."""
    return [{"devices": list(cards), "mig-enabled": True, "mig-devices": counts}]


def divisions(**configs):
    return json.dumps({"version": "v1", "mig-configs": configs})


class Node:
    """The cluster, and commands on its node."""

    def __init__(self, cluster, build):
        self.world = kit.World(cluster, build)
        self.cluster = cluster
        self.build = build

    def inject(self, *words):
        """From outside the node: entering its namespaces takes time that is measured."""
        subprocess.run([self.build / "src/cli/aliquot", "sim", "inject", *map(str, words)], check=True, capture_output=True,
                       env={**os.environ, "ALIQUOT_SIM_DIR": self.world.node_path(aliquot.DRIVER)})

    def divide(self, counts, *cards):
        """The cards have these instances, of {profile: number}; returns what `aliquot mig -d apply` says."""
        return self.driven(str(self.build / "src/cli/aliquot"), "mig", "-d", "apply", "-f", "-",
                           input=divisions(made=division(counts, *cards))).stderr

    def label(self, config):
        """The agent divides the cards so: returns when it says that it has. None: it leaves them alone."""
        path = kube.core("nodes", name=self.cluster.node)
        want = (config, config and "success")

        def seen(node):
            metadata = node["metadata"]
            done = metadata.get("annotations", {}).get("elasticgpu.io/mig-config", "").partition(":")[0]
            return (done or None, metadata["labels"].get(MIG_LABEL + ".state"))
        self.cluster.api.patch(path, {"metadata": {"labels": {MIG_LABEL: config}}})
        self.cluster.api.wait(kube.core("nodes"), self.cluster.node, lambda node: seen(node) == want, 60, f"{config} is reached")

    def divide_all(self):
        """All cards have all instances of PROFILE, by the agent: a mode does not change while another client of NVML is
        there. It leaves them alone then."""
        self.label("all")
        self.label(None)

    def configure(self, text):
        """The configuration of the node, which is in force then."""
        def changes():
            return self.cluster.kubectl("logs", "-n", kit.SYSTEM, "ds/aliquot-agent").count(IN_FORCE)
        before = changes()
        write(self.cluster, CONFIG, text)
        self.world.until(lambda: changes() > before, 10, "the configuration is in force")

    def driven(self, *argv, **kwargs):
        """A command on the node that finds the simulated driver."""
        return self.cluster.on_node([*DRIVEN, *argv], **kwargs)

    def instances(self, card):
        """UUIDs of the instances of a card, as the agent knows them."""
        seen = [dict(labels) for name, labels in self.world.metrics() if name == "aliquot_gpu_instance_healthy"]
        return sorted(x["uuid"] for x in seen if x["gpu"] == str(card))


def sick(number):
    """A list in which exactly so many devices are unhealthy."""
    return lambda seen: sum(not healthy for healthy in seen.values()) == number


def watches(node):
    """{resource: Watch} of the plugins whose devices are parts of cards."""
    found = {resource: device_plugin.Watch(device_plugin.find(node.world, resource)) for resource in SHARES}
    for watch in found.values():
        watch.wait(sick(0))
    return found


def faults(node, lists, say):
    """([XID to unhealthy on all shares], [reset to healthy on all]) in ns, one round for each card."""
    failed, healed = [], []
    for card in range(CARDS):
        say(f"XID and reset of card {card}")
        begun = time.perf_counter_ns()
        node.inject("xid", XID, "--gpu", card)
        failed.append(max(w.wait(sick(len(w.last()) // CARDS), begun) for w in lists.values()) - begun)
        begun = time.perf_counter_ns()
        node.inject("reset", "--force", "--gpu", card)
        healed.append(max(w.wait(sick(0), begun) for w in lists.values()) - begun)
    return failed, healed


def losses(node, lists, say):
    """[a lost card to unhealthy on all of its shares] in ns, one round for each card. The others stay healthy."""
    took = []
    for card in range(CARDS):
        say(f"loss of card {card}")
        begun = time.perf_counter_ns()
        node.inject("lose", "--gpu", card)
        took.append(max(w.wait(sick(len(w.last()) // CARDS), begun) for w in lists.values()) - begun)
        node.inject("return", "--gpu", card)
        for watch in lists.values():
            watch.wait(sick(0), begun)
    return took


def resets(node, lists, say):
    """[XID to healthy on all shares] in ns, where the agent resets: it lets go of the card, turns persistence mode off, runs
    the command, turns the mode on again and probes the card."""
    aliquot.add_to_driver(node.cluster, node.build / "src/cli/aliquot")
    took = []
    for card in range(CARDS):
        say(f"XID of card {card}, which the agent resets")
        command = f"[{aliquot.DRIVER}/bin/aliquot, sim, inject, reset, --gpu, '{card}']"
        node.configure(f"version: v1\naliquot: {{{STEADY}, reset: {{policy: idle, command: {command}}}}}\n")
        begun = time.perf_counter_ns()
        node.inject("xid", XID, "--gpu", card)
        sick_at = {resource: w.wait(sick(len(w.last()) // CARDS), begun) for resource, w in lists.items()}
        took.append(max(w.wait(sick(0), sick_at[resource]) for resource, w in lists.items()) - begun)
    node.configure(BASE_CONFIG)
    done = [n for (name, labels), n in node.world.metrics().items()
            if name == "aliquot_gpu_resets_total" and dict(labels)["result"] == "succeeded"]
    assert done == [1] * CARDS, f"resets by the agent: {done}"
    return took


@contextlib.contextmanager
def plugin_of_nvidia(node, program, resource="gpu", config=PEER_CONFIG, strategy="none"):
    """Its PID on the node, and the list of its devices of a resource. It sees the driver's files of /proc: the capabilities of
    instances are there."""
    path = pathlib.Path(node.cluster.state) / "peer.yaml"
    path.write_text(config)
    pid = node.cluster.spawn("peer", ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /proc/driver && exec "$@"',
                                      f"{aliquot.DRIVER}/proc/driver", *DRIVEN, program, "--kubelet-socket=",
                                      f"--config-file={path}", f"--mig-strategy={strategy}",
                                      "--device-discovery-strategy=nvml", "--pass-device-specs"])
    try:
        watch = device_plugin.Watch(device_plugin.find(node.world, "nvidia-" + resource))
        yield pid, watch
        watch.close()
    finally:
        node.cluster.stop("peer")


def peer(node, program, say):
    """Rows about NVIDIA's device plugin at the same faults."""
    say("NVIDIA's device plugin")
    with plugin_of_nvidia(node, program) as (pid, watch):
        watch.wait(lambda seen: len(seen) == CARDS * REPLICAS)
        times, numbers = [], []
        for card in range(PEER_ROUNDS):
            before = sum(not healthy for healthy in watch.last().values())
            begun = time.perf_counter_ns()
            node.inject("xid", XID, "--gpu", card)
            times.append(watch.wait(lambda seen, n=before: sum(not h for h in seen.values()) > n, begun) - begun)
            time.sleep(SETTLED)
            numbers.append(sum(not healthy for healthy in watch.last().values()) - before)
            node.inject("reset", "--force", "--gpu", card)
        time.sleep(SETTLED)
        sick_at_end = sum(not healthy for healthy in watch.last().values())
        memory = resident(node.cluster.host_pid(pid))
        begun = time.perf_counter_ns()
        node.inject("lose", "--gpu", CARDS - 1)
        watch.wait(lambda seen: sum(not h for h in seen.values()) > sick_at_end, begun)
        time.sleep(SETTLED)
        lost = sum(not healthy for healthy in watch.last().values()) - sick_at_end
        node.inject("return", "--gpu", CARDS - 1)
    return [("XID 48 to the first unhealthy replica, NVIDIA's device plugin, median / worst", spread(times)),
            (f"replicas of {REPLICAS} of the card that it makes unhealthy within {SETTLED} s",
             ", ".join(map(str, numbers))),
            (f"replicas that are unhealthy {SETTLED} s after the last reset", str(sick_at_end)),
            (f"of the {CARDS * REPLICAS - sick_at_end} others, {REPLICAS} of each card, unhealthy {SETTLED} s after the loss of "
             "a card", str(lost)),
            ("resident memory of NVIDIA's device plugin, 8 whole cards", mebibytes(memory))]


def peer_divided(node, program, say):
    """The row about NVIDIA's device plugin with all cards divided."""
    say("NVIDIA's device plugin")
    with plugin_of_nvidia(node, program, "mig-" + PROFILE, "version: v1\n", "mixed") as (pid, watch):
        watch.wait(lambda seen: sum(seen.values()) == CARDS * INSTANCES)
        time.sleep(SETTLED)
        return [(f"resident memory of NVIDIA's device plugin, {CARDS} cards with {INSTANCES} instances each, `mixed`",
                 mebibytes(resident(node.cluster.host_pid(pid))))]


def resident(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"^VmRSS:\s+(\d+) kB", f.read(), re.M)[1]) << 10


def repartition(node, say):
    """[(all, the driver's part)] in ns of exchanging one instance beside six busy ones, and back: by the command, (to a list
    that has the new one) in ns, and by the agent, from the label to its state."""
    took, listed, labelled = [], [], []
    _, *busy = node.world.until(lambda: node.instances(0), 30, "the agent's figures of instances")
    say(f"repartition beside {len(busy)} busy instances")
    for number, uuid in enumerate(busy):
        node.cluster.spawn(f"busy-{number}", [*DRIVEN, f"CUDA_VISIBLE_DEVICES={uuid}", "sh", "-c",
                                              f"tail -f /dev/null | {node.build}/tests/sim/sim-hold {kit.GiB}"])
    for number in range(len(busy)):
        node.world.until(lambda n=number: node.cluster.log(f"busy-{n}").startswith("0 "), 20, "the instance is busy")
    sockets = {PROFILE: device_plugin.find(node.world, "mig-" + PROFILE)}
    # With an instance of OTHER on another card both have a plugin all the time. Its socket has a similar name.
    node.divide({PROFILE: INSTANCES - 1, OTHER: 1}, 1)
    sockets[OTHER] = node.world.until(
        lambda: {device_plugin.find(node.world, "mig-" + OTHER)} - {sockets[PROFILE]}, 30, f"the plugin of {OTHER}").pop()
    lists = {profile: device_plugin.Watch(path) for profile, path in sockets.items()}
    lists[OTHER].wait(lambda seen: sum(seen.values()) == 1)
    for number in range(REPARTITIONS):
        made, offered = (OTHER, 2) if number % 2 == 0 else (PROFILE, CARDS * INSTANCES - 1)
        begun = time.perf_counter_ns()
        said = node.divide({PROFILE: INSTANCES} if made == PROFILE else {PROFILE: INSTANCES - 1, OTHER: 1}, 0)
        listed.append(lists[made].wait(lambda seen, n=offered: sum(seen.values()) == n, begun) - begun)
        total, driver = map(int, DRIVERS_PART.search(said).groups())
        took.append((1000 * total, 1000 * driver))
    for number in range(REPARTITIONS):
        begun = time.perf_counter_ns()
        node.label("one-other" if number % 2 == 0 else "as-before")
        total = time.perf_counter_ns() - begun
        _, driver = DRIVERS_PART.findall(node.cluster.kubectl("logs", "-n", kit.SYSTEM, "ds/aliquot-agent"))[-1]
        labelled.append((total, 1000 * int(driver)))
    node.label(None)
    assert set(busy) < set(node.instances(0)), "an instance in use has gone"
    processes = node.cluster.control("list")
    for number in range(len(busy)):
        assert processes[f"busy-{number}"]["status"] is None, "a process on a busy instance has ended"
        node.cluster.stop(f"busy-{number}")
    for watch in lists.values():
        watch.close()
    return took, listed, labelled


def spread(times):
    return f"{duration(statistics.median(times))} / {duration(max(times))}"


def mebibytes(size):
    return f"{size / (1 << 20):.1f} MiB"


def memory(node, when):
    return [(f"resident memory of {process}, {when} (proportional)",
             f"{mebibytes(size['Rss'])} ({mebibytes(size['Pss'])})")
            for process, size in cluster_bench.resident(node.world).items() if process.startswith("aliquot-agent")]


def at_rest(node, own, number, seconds, say):
    """Rows about the requests of the agent, whose start has been counted in `own`, and of so many agents beside it. These
    have no kubelet and serve no HTTP: neither makes requests. They have their configuration from a ConfigMap, and so a
    watch more."""
    assert own.counts()["reads"] > 0, "the agent's requests are not counted"
    say(f"{number} more agents")
    restarts = node.world.agent.restarts()
    node.world.api.create(kube.core("configmaps", kit.SYSTEM), {"metadata": {"name": CONFIG_MAP},
                                                                "data": {"default": BASE_CONFIG}})
    with Requests(node.world.api, fleet.ACCOUNT) as others, fleet.agents(node, number, f"--config-map={CONFIG_MAP}") as names:
        for requests in (own, others):
            requests.wait_rest(CALM, 600)
        assert others.counts()["reads"] >= number, "the agents' requests are not counted"
        say(f"{seconds} s at rest")
        before = own.counts(), others.counts()
        time.sleep(seconds)
        one, many = ({kind: n - was[kind] for kind, n in requests.counts().items()}
                     for requests, was in zip((own, others), before))
        fleet.check(node, names)
    assert node.world.agent.restarts() == restarts, "the agent has not been at rest"
    rows = [(f"writes to the API server by an agent at rest, in {seconds} s", str(one["writes"])),
            ("reads, and watches begun, in the same time", str(one["reads"]))]
    if number:
        rows.append((f"requests per second of {number} agents at rest with --config-map, renewed watches included",
                     f"{sum(many.values()) / seconds:.2f}, {many['writes']} writes"))
    return rows


def divided(node, program, say):
    """Rows about the node with all cards divided. program: of NVIDIA's device plugin, or None."""
    say(f"{CARDS} cards with {INSTANCES} instances each")
    node.divide_all()
    watch = device_plugin.Watch(device_plugin.find(node.world, "mig-" + PROFILE))
    watch.wait(lambda seen: sum(seen.values()) == CARDS * INSTANCES)
    watch.close()
    rows = peer_divided(node, program, say) if program else []
    node.world.agent.wait_restarted(node.world.agent.kill())
    rows += memory(node, "just started")
    other = node.world.until(lambda: node.instances(CARDS - 1), 30, "the agent's figures of instances")[:1]
    with allocations(node, rows, "of another instance meanwhile", f"nvidia.com/mig-{PROFILE}", other):
        took, listed, labelled = repartition(node, say)
    rows += [("one instance of seven exchanged beside six busy ones, beyond the driver's time, median / worst of "
              f"{len(took)}", spread([total - driver for total, driver in took])),
             ("the same, from the command to the list that has the new instance", spread(listed)),
             ("the same by the agent, from the label to its state `success`, beyond the driver's time",
              spread([total - driver for total, driver in labelled]))]
    return rows


def answered(node, resource):
    """(calls of Allocate, those of them that took the agent at most 1 ms), since its start."""
    seen = {dict(labels).get("le"): n for (name, labels), n in node.world.metrics().items()
            if name.startswith("aliquot_agent_allocate_seconds_") and not name.endswith("_sum")
            and dict(labels)["resource"] == resource}
    return int(seen[None]), int(seen["0.001"])


def loop_of_agent(node):
    """Host's PID of the agent, whose first thread has the loop."""
    return cluster_bench.oldest(node.world, node.world.agent.status()["containerID"].partition("://")[2])


@contextlib.contextmanager
def allocations(node, rows, when, resource, ids):
    """Adds rows about Allocate, which is called all the time in the block."""
    begun = answered(node, resource)
    thread = device_plugin.Allocations(device_plugin.find(node.world, resource.partition("/")[2]), ids,
                                       f"/proc/{loop_of_agent(node)}")
    yield
    calls = thread.close()
    count, quick = (now - before for now, before in zip(answered(node, resource), begun))
    times, late = [c.took for c in calls], [c for c in calls if c.took > QUICK]
    rows += [(f"Allocate {when}, median / p99 of {len(times):,}, by the clock of the caller",
              f"{duration(statistics.median(times))} / {duration(statistics.quantiles(times, n=100)[98])}"),
             ("the same, answered within 1 ms, by the clock of the agent", f"{quick:,} of {count:,}"),
             ("of those above 1 ms by the clock of the caller: all / with the agent's loop running above 1 ms / "
              "their time / of it waiting for a CPU, agent or caller",
              f"{len(late)} / {sum(c.ran > QUICK for c in late)} / {duration(sum(c.took for c in late))} / "
              f"{duration(sum(c.waited for c in late))}")]


def changes(node, say):
    """The configuration of the node changes again and again."""
    for number in range(CHANGES):
        say(f"configuration {number}")
        node.configure(f"version: v1\naliquot: {{{STEADY}, cards: [{{devices: all, memoryScaling: {1 + number % 2}}}]}}\n")
    node.configure(BASE_CONFIG)


def undivided(node, say):
    """Rows about the faults of whole cards."""
    lists, calls = watches(node), []
    with allocations(node, calls, "meanwhile", kit.CORE, IDS):
        failed, healed = faults(node, lists, say)
        lost = losses(node, lists, say)
        reset = resets(node, lists, say)
    for watch in lists.values():
        watch.close()
    with allocations(node, calls, f"while the configuration changes {CHANGES + 1} times", kit.CORE, IDS):
        changes(node, say)
    return [(f"XID {XID} to all shares of the card unhealthy, median / worst of {CARDS}", spread(failed)),
            ("reset by the driver to all shares healthy, median / worst", spread(healed)),
            ("loss of a card to all of its shares unhealthy, and no other, median / worst", spread(lost)),
            ("XID 48 to all shares healthy, by a reset command and a probe, median / worst", spread(reset)), *calls]


def measure(node, options, say):
    """All rows; each is also said when it is known."""
    rows = []

    def add(found):
        for row in found:
            say(": ".join(row))
        rows.extend(found)
    add(undivided(node, say))
    if options.peer:
        add(peer(node, options.peer, say))
    with Requests(node.world.api, "aliquot-agent") as requests:
        add(divided(node, options.peer, say))
        add(at_rest(node, requests, options.agents, options.idle, say))
    add(memory(node, "at rest"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--idle", type=int, default=600, help="seconds at rest; 600 has each watch renewed once")
    parser.add_argument("--agents", type=int, default=FLEET, help="that are at rest beside it")
    parser.add_argument("--peer", help="program of NVIDIA's device plugin")
    parser.add_argument("--write", type=pathlib.Path, help="file with markers for the table")
    options = parser.parse_args()

    def say(text):
        print(f"== {text}", file=sys.stderr, flush=True)

    full = allocate.rows(options.build.resolve(), FULL_SECONDS, say)
    with Cluster(f"node-{os.getpid()}", say) as cluster, tempfile.TemporaryDirectory() as scratch:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        manifests = aliquot.with_options(os.path.join(scratch, "deploy"), "--mig-strategy=mixed",
                                         f"--config-file={CONFIG}", f"--mig-config-file={MIG_CONFIGS}")
        cards = pathlib.Path(scratch) / "bench.machine"
        cards.write_text(f"[gpu 0-{CARDS - 1}]\nmodel = A100\n")
        build = options.build.resolve()
        write(cluster, CONFIG, BASE_CONFIG)
        whole, rest = {PROFILE: INSTANCES}, range(1, CARDS)
        exchanged = {PROFILE: INSTANCES - 1, OTHER: 1}
        write(cluster, MIG_CONFIGS, divisions(**{
            "all": division(whole, *range(CARDS)),
            "as-before": division(whole, 0) + division(exchanged, 1) + division(whole, *rest[1:]),
            "one-other": division(exchanged, 0, 1) + division(whole, *rest[1:])}))
        aliquot.install(cluster, str(build), gpus=CARDS, machine=cards, deploy=aliquot.manifests(cluster, manifests))
        rows = full + measure(Node(cluster, build), options, say)
    text = "\n".join([machine(), "", "| measured | value |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)])
    print(text)
    if options.write:
        write_between(options.write, "node", text)


if __name__ == "__main__":
    main()
