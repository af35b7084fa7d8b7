# SPDX-License-Identifier: Apache-2.0
"""Agents for many nodes that are API objects only."""

import contextlib
import os
import shutil
import signal

import kit
from cluster import api as kube
from cluster.node import API_PORT, BRIDGE_IP

ACCOUNT = "bench-agents"
ACCOUNTS = kube.core("serviceaccounts", kit.SYSTEM)
BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
DRIVER = "/run/bench-sim"
DIRECTORY = "/run/bench"    # on the node; short, for sockets
SIMULATOR = "bench-sim"


@contextlib.contextmanager
def agents(node, number, *options):
    """Agents of so many nodes, with these options, that have no kubelet, and all the same card; they run on the node of the
    cluster."""
    api, directory = node.world.api, node.world.node_path(DIRECTORY)
    names = [f"bench-{i:03}" for i in range(number)]
    api.create(ACCOUNTS, {"metadata": {"name": ACCOUNT}})
    api.create(BINDINGS, {"metadata": {"name": ACCOUNT}, "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": kit.SYSTEM}]})
    token = api.create(f"{ACCOUNTS}/{ACCOUNT}/token", {"spec": {"expirationSeconds": 7200}})["status"]["token"]
    os.makedirs(directory)
    with open(os.path.join(directory, "token"), "w") as f:
        f.write(token)
    node.cluster.spawn(SIMULATOR, [str(node.build / "src/cli/aliquot"), "sim", "--listen", DRIVER, "--gpus", "1"])
    try:
        for name in names:
            # The label keeps the agent of the DaemonSet away.
            api.create(kube.core("nodes"), {"metadata": {"name": name, "labels": {
                "kubernetes.io/os": "linux", "nvidia-device-enable": "disable"}}})
            for part in ("kubelet", "state", "cdi"):
                os.makedirs(os.path.join(directory, name, part))
            node.cluster.spawn(name, _command(node, name) + list(options))
        try:
            node.world.until(lambda: sum(g["metadata"]["name"].startswith("bench-") for g in node.world.gpus()) == number, 300,
                             "GPU objects of all agents", pause=1)
        except kube.Timeout as error:
            raise kube.Timeout(f"{error}\n{node.cluster.log(names[0])[-2000:]}") from None
        yield names
    finally:
        for name in (*names, SIMULATOR):
            node.cluster.control("signal", name=name, signal=int(signal.SIGKILL))
        for name in names:
            api.delete(kube.core("nodes", name=name))
        api.delete(f"{BINDINGS}/{ACCOUNT}")
        api.delete(f"{ACCOUNTS}/{ACCOUNT}")
        shutil.rmtree(directory)


def check(node, names):
    """All of them run: an agent that has ended makes no requests."""
    processes = node.cluster.control("list")
    ended = [name for name in (*names, SIMULATOR) if processes[name]["status"] is not None]
    assert not ended, f"{len(ended)} have ended: {', '.join(ended[:5])}\n{node.cluster.log(ended[0])[-2000:]}"


def _command(node, name):
    own = f"{DIRECTORY}/{name}"
    return [str(node.build / "src/agent/aliquot-agent"), f"--node-name={name}", f"--state-dir={own}/state",
            f"--cdi-dir={own}/cdi", f"--kubelet-dir={own}/kubelet", f"--sim-dir={DRIVER}", "--listen=off",
            f"--api-server=https://{BRIDGE_IP}:{API_PORT}", f"--ca-file={node.cluster.ca_file}",
            f"--token-file={DIRECTORY}/token"]
