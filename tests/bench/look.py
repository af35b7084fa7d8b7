#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what a user waits for who looks at a large cluster: `aliquot gpus` and others on so many nodes of one card each.

    make bench-look                  1,000 nodes
    make bench-look NODES=100        a tenth of it

The nodes are API objects only. Their GPU objects name pods, and their agents are pods whose address is that of the one real
agent, so the API server connects to an agent for each node, as it would. The command runs on the node, by kubectl and the
cluster's API server, with a token of aliquot-figures; each time is the least of so many rounds, and the load average is printed
beside it. A kubectl for each agent, which takes no such token, is extrapolated from a few that read /metrics.
"""

import argparse
import concurrent.futures
import os
import pathlib
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench")]

import kit                                      # noqa: E402  (the path comes first)
import worlds                                   # noqa: E402
from cluster import api as kube                 # noqa: E402
from figures import duration, machine           # noqa: E402

AGENTS = "bench-agents"     # their namespace
NODE = "bench-node"         # where they all are, which has no kubelet
FORKS = 5
COMMANDS = {
    "aliquot gpus": ["gpus", "--system", AGENTS],
    "aliquot gpus -o json": ["gpus", "--system", AGENTS, "-o", "json"],
    "aliquot inspect": ["inspect"],
    "aliquot top --once": ["top", "--once", "--system", AGENTS],
}


def make_node(world, address, i):
    """A card of another node, half of it held, and an agent that is the real one."""
    name = f"bench-{i:04}"
    gpu = kube.gpus(f"{name}-00")
    world.api.create(kube.gpus(), {
        "apiVersion": "elasticgpu.io/v1alpha1", "kind": "GPU", "metadata": {"name": f"{name}-00"},
        "spec": {"index": 0, "memory": kit.CARD, "model": "M", "nodeName": name, "path": "/dev/nvidia0", "uuid": f"GPU-{name}"}})
    share = {"container": "main", "resource": {kit.CORE: "50", kit.MEMORY: "40Gi"}}
    world.api.patch(gpu + "/status", {"status": {
        "state": "Healthy", "capacity": {kit.CORE: "100", kit.MEMORY: str(kit.CARD)},
        "allocatable": {kit.CORE: "50", kit.MEMORY: str(kit.CARD // 2)},
        "allocated": {f"uid-{i}": {"namespace": "team", "pod": f"pod-{i}", "containers": [share]}}}})
    world.api.create(kube.pods(AGENTS), {
        "metadata": {"name": f"agent-{i:04}", "labels": {"app.kubernetes.io/name": "aliquot-agent"}},
        "spec": {"nodeName": NODE, "containers": [{"name": "agent", "image": "none", "ports": [{"containerPort": 9400}]}]}})
    world.api.patch(kube.pods(AGENTS, f"agent-{i:04}") + "/status", {"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}})


def let_read(world):
    """The account by whose token the commands read agents' pages, in the namespace of these."""
    world.api.create(kube.core("serviceaccounts", AGENTS), {"metadata": {"name": "aliquot-figures"}})
    world.api.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
        "metadata": {"name": AGENTS}, "subjects": [{"kind": "ServiceAccount", "name": "aliquot-figures", "namespace": AGENTS}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "aliquot-figures"}})


def least(rounds, run):
    times = []
    for _ in range(rounds):
        start = time.monotonic_ns()
        run()
        times.append(time.monotonic_ns() - start)
    return min(times)


def measure(world, nodes, rounds):
    program = str(world.build / "src/cli/aliquot")
    for what, words in COMMANDS.items():
        done = world.cluster.on_node([program, *words])
        assert done.stderr == "" and done.stdout.count("bench-") >= nodes, (done.stderr, done.stdout[:500])
        took = least(rounds, lambda: world.cluster.on_node([program, *words]))
        print(f"{what:24} {duration(took):>10}   load average {os.getloadavg()[0]:.1f}", flush=True)
    path = f"/api/v1/namespaces/{AGENTS}/pods/agent-0000:9400/proxy/metrics"
    one = least(FORKS, lambda: world.cluster.on_node(["kubectl", "get", "--raw", path]))
    print(f"a kubectl for one agent  {duration(one):>10}   for {nodes} of them {duration(one * nodes)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    with worlds.installed(f"look-{os.getpid()}", args.build.resolve()) as world:
        world.api.create(kube.core("namespaces"), {"metadata": {"name": AGENTS}})
        world.api.create(kube.core("nodes"), {"metadata": {"name": NODE, "labels": {"nvidia-device-enable": "disable"}}})
        world.until(lambda: world.api.get(f"/api/v1/namespaces/{AGENTS}/serviceaccounts/default"), 60, "the namespace's account")
        let_read(world)
        agents = world.api.get(kube.pods(kit.SYSTEM), labelSelector="app.kubernetes.io/name=aliquot-agent")["items"]
        address = agents[0]["status"]["podIP"]
        with concurrent.futures.ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda i: make_node(world, address, i), range(args.nodes)))
        print(f"{machine()}\n{args.nodes} nodes of one card", flush=True)
        measure(world, args.nodes, args.rounds)


if __name__ == "__main__":
    main()
