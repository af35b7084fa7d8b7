# SPDX-License-Identifier: Apache-2.0
"""Cards near exclusive CPUs: kubelet with the static CPU manager and the topology manager, on a node whose sysfs says that
half of the CPUs and the second card are on another NUMA node."""

import json
import os
import pathlib
import secrets

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import CORE, GROUP, assignment_of, container, pod

ANNOTATION = GROUP + "/exclusive-cpus"
KUBELET = "/etc/kubernetes/kubelet.yaml"
MACHINE = """\
[machine]
numa = 2
[gpu 0-1]
model = A100-40GB
[gpu 1]
numa = 1
"""
# Run on the node: $1 is the number of CPUs of the first NUMA node, $2 that of all.
TWO_NUMA_NODES = """\
set -e
system=/sys/devices/system made=/run/numa-nodes
for node in 0 1; do
    mkdir -p $made/node$node/hugepages
    sed "s/^Node 0/Node $node/" $system/node/node0/meminfo > $made/node$node/meminfo
    echo 10 20 > $made/node$node/distance
done
for cpu in $(seq 0 $(($2 - 1))); do
    ln -s $system/cpu/cpu$cpu $made/node$((cpu >= $1))/cpu$cpu
done
echo 0-$(($1 - 1)) > $made/node0/cpulist
echo $1-$(($2 - 1)) > $made/node1/cpulist
mount --bind $made $system/node
"""


def give_two_numa_nodes(cluster):
    cpus = os.cpu_count()
    cluster.stop("kubelet")
    cluster.on_node(["sh", "-c", TWO_NUMA_NODES, "sh", str(cpus // 2), str(cpus)])
    options = json.loads(cluster.on_node(["cat", KUBELET]).stdout)
    options |= {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted",
                "kubeReserved": {"cpu": "100m"}}        # for which kubelet keeps one CPU from containers
    cluster.on_node(["tee", KUBELET], input=json.dumps(options))
    cluster.on_node(["rm", "-f", "/var/lib/kubelet/cpu_manager_state"])     # of the other policy
    cluster.start("kubelet")
    cluster.wait_node_ready()


@pytest.fixture(scope="module")
def machine(build, tmp_path_factory):
    made = tmp_path_factory.mktemp("numa")
    (made / "two.machine").write_text(MACHINE)
    deploy = aliquot.with_options(made / "deploy", "--sys-dir=/host/sys")
    with Cluster("cpus-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        give_two_numa_nodes(cluster)
        aliquot.install(cluster, str(build), gpus=2, machine=made / "two.machine", programs=[build / "tests/e2e/probe"],
                        deploy=aliquot.manifests(cluster, pathlib.Path(deploy)))
        installed = kit.World(cluster, build)
        installed.wait_tokens(60)
        yield installed
        installed.wait_cleared()


def published(machine, told=lambda cpus: cpus):
    """{NUMA node: (free, all)}, as soon as `told` is true of it."""
    def read(node):
        text = (node or {}).get("metadata", {}).get("annotations", {}).get(ANNOTATION, "")
        return {int(numa): tuple(map(int, cpus.split("/"))) for numa, cpus in (item.split("=") for item in text.split(",") if item)}
    node = machine.api.wait(kube.core("nodes"), machine.cluster.node, lambda seen: told(read(seen)), 90, f"{ANNOTATION} of the node")
    return read(node)


def card_of(seen):
    (devices,) = assignment_of(seen).values()
    return devices[0]["index"]


def exclusive(name, cpus, **annotations):
    return pod(name, container(resources={CORE: "10", "cpu": str(cpus), "memory": "64Mi"}), annotations=annotations)


def cpu_metrics(machine, name):
    return {metric.removeprefix("aliquot_container_"): value for (metric, labels), value in machine.metrics().items()
            if "cpus" in metric and dict(labels).get("pod") == name}


def test_the_card_is_where_kubelet_has_the_cpus(machine, room):
    """One NUMA node has a CPU more than the other, of which kubelet keeps one for itself: a pod that requests all of them
    can only have them there. Bin-packing alone takes the card that is in use."""
    before = published(machine)
    assert sum(cpus for _, cpus in before.values()) == os.cpu_count() - 1
    near = max(before, key=lambda numa: before[numa])
    cpus = before[near][0]
    cards = {gpu["spec"]["numaNode"]: gpu["spec"] for gpu in machine.gpus()}
    used = cards[1 - near]
    room.start(pod("used", container(core=10), annotations={GROUP + "/gpu-uuid": used["uuid"]}))
    assert card_of(room.start(pod("packed", container(core=10)))) == used["index"]
    assert card_of(room.start(exclusive("near", cpus))) == cards[near]["index"]
    published(machine, lambda seen: seen[near][0] == 0)
    assert cpu_metrics(machine, "near") == {"exclusive_cpus": cpus, "cpus_on_other_numa_node": 0}

    # The same CPUs for a pod that demands the other card.
    room.delete("near")
    room.start(exclusive("far", cpus, **{GROUP + "/gpu-uuid": used["uuid"]}))
    told = room.event("far", "CPUsOnOtherNUMANode")
    assert f"NUMA node {used['numaNode']}" in told, told
    assert cpu_metrics(machine, "far") == {"exclusive_cpus": cpus, "cpus_on_other_numa_node": cpus}
