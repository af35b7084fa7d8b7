# SPDX-License-Identifier: Apache-2.0
"""Puts Aliquot on a cluster: simulated GPUs on the node, images, and the manifests that users apply."""

import os
import pathlib
import re
import shutil

from . import api as kube, images
from .cluster import REPOSITORY

SYSTEM = "aliquot-system"
SIMULATOR = "aliquot-sim"
DRIVER = "/run/aliquot-sim"
DEPLOY = os.path.join(REPOSITORY, "deploy", "base")
POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
WORKLOADS = ("tests/workloads/cuda-share", "tests/workloads/nvml-report")


def start_simulator(node, build, gpus=2, model=None, machine=None):
    """The simulated driver: one daemon on the node, as a kernel module would be. A machine says itself what it has."""
    argv = [os.path.join(os.path.abspath(build), "src/cli/aliquot"), "sim", "--listen", DRIVER]
    argv += ["--machine", os.path.abspath(machine)] if machine else ["--gpus", str(gpus)]
    node.spawn(SIMULATOR, argv + (["--model", model] if model else []))


def add_to_driver(node, *programs):
    """Programs (paths) that come with the node's driver, as nvidia-smi does with a real one."""
    for program in programs:
        node.on_node(["install", "-D", "-m", "755", str(program), f"{DRIVER}/bin/{os.path.basename(program)}"])


def load_images(cluster, build, programs=()):
    """Makes the agent's, the scheduler's and the workloads' image and gives them to the nodes; returns their sizes."""
    where = os.path.join(cluster.state, "images")
    workloads = [os.path.join(build, w) for w in WORKLOADS]
    archives = [*images.aliquot(build, where), images.workload([*workloads, *map(str, programs)], where)]
    cluster.load_image(*archives)
    return {os.path.basename(a): os.path.getsize(a) for a in archives}


def manifests(cluster, directory=os.path.dirname(DEPLOY)):
    """The directory that a user of this API server and this kube-scheduler applies (docs/install.md)."""
    policies = cluster.api.exists(POLICIES)
    if cluster.stock_scheduler:
        return os.path.join(directory, "own-scheduler" if policies else "own-scheduler-webhook")
    return os.path.join(directory, "base" if policies else "webhook")


def with_components(cluster, *names, directory=os.path.dirname(DEPLOY), base=None):
    """The same, or the directory `base`, with components beside it, as docs/autoscaling.md has it."""
    base = base or manifests(cluster, directory)
    made = pathlib.Path(cluster.state, "with-" + "-".join(names))
    made.mkdir()
    resource, *components = (os.path.relpath(path, made.resolve()) for path in (
        base, *(os.path.join(os.path.dirname(base), name) for name in names)))
    images_of = re.search(r"^images:\n(?:  .*\n)+", pathlib.Path(base, "kustomization.yaml").read_text(), re.M)
    (made / "kustomization.yaml").write_text(
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
        f"resources: [{resource}]\ncomponents: [{', '.join(components)}]\n{images_of[0] if images_of else ''}")
    return str(made)


def own_scheduler_image(deploy):
    """The image of kube-scheduler that manifests name; None: they have none."""
    named = re.search(r"- name: (\S+/kube-scheduler)\n +newTag: (\S+)\n", pathlib.Path(deploy, "kustomization.yaml").read_text())
    return named and f"{named[1]}:{named[2]}"


def with_options(directory, *options):
    """The manifests in a new directory, as a user edits them who wants these options of the agent."""
    shutil.copytree(os.path.dirname(DEPLOY), directory)
    for file in pathlib.Path(directory).rglob("agent.yaml"):
        text = r"\g<0>" + "".join(rf"\1- {option}\n" for option in options)
        file.write_text(re.sub(r"^( *)- --listen=:9400\n", text, file.read_text(), flags=re.M))
    return directory


def apply(cluster, deploy=None):
    """kubectl apply -k, of what this API server takes unless told, and waits until everything of it is there."""
    deploy = deploy or manifests(cluster)
    own = own_scheduler_image(deploy)
    if own:
        cluster.load_image(images.kube_scheduler(own, os.path.join(cluster.state, "images")))
    cluster.kubectl("apply", "-k", deploy)
    apps = "/apis/apps/v1/namespaces/aliquot-system/"
    try:
        cluster.api.wait(apps + "deployments", "aliquot-scheduler", _deployed, 60, "aliquot-scheduler ready")
        wait_agents(cluster)
    except kube.Timeout as error:
        raise kube.Timeout(f"{error}\n{_evidence(cluster)}") from None


def wait_agents(cluster):
    """Until all of them are ready, of the DaemonSet as it is now."""
    cluster.api.wait(f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets", "aliquot-agent", _on_all_nodes, 60, "aliquot-agent ready")


def _evidence(cluster):
    """Why Aliquot's pods are not ready, as far as they say themselves."""
    found = [cluster.kubectl("get", "pods", "-A", "-o", "wide")]
    for what, port in (("deploy/aliquot-scheduler", 9401), ("ds/aliquot-agent", 9400)):
        found.append(f"--- {what}\n" + (cluster.kubectl("logs", "-n", SYSTEM, what, "--tail=20", check=False) or ""))
        try:
            found.append("/healthz: " + cluster.http("GET", port, "/healthz")[1].decode(errors="replace"))
        except OSError as error:
            found.append(f"/healthz: {error}")
    return "\n".join(found)


def install(cluster, build, gpus=2, programs=(), machine=None, deploy=None):
    """gpus, machine: of each node."""
    for node in cluster.nodes:
        start_simulator(node, build, gpus, machine=machine)
    load_images(cluster, build, programs)
    apply(cluster, deploy)
    wait_gpus(cluster, gpus)


def wait_gpus(cluster, count, timeout=60):
    """Until the agent of each node has published its cards and the node offers their shares."""
    names = set()
    for kind, gpu in cluster.api.watch(kube.gpus(), timeout):
        healthy = kind != "DELETED" and gpu.get("status", {}).get("state") == "Healthy"
        (names.add if healthy else names.discard)(gpu["metadata"]["name"])
        if len(names) == count * len(cluster.nodes):
            break
    for each in cluster.nodes:
        cluster.api.wait(kube.core("nodes"), each.node, lambda node: _offers(node, count), timeout,
                         "shares of the GPUs in the node's allocatable")


def _offers(node, count):
    allocatable = (node or {}).get("status", {}).get("allocatable", {})
    return allocatable.get("elasticgpu.io/gpu-core") == str(100 * count) and int(allocatable.get("elasticgpu.io/slot", "0")) > 0 \
        and "elasticgpu.io/gpu-memory" in allocatable


def _deployed(deployment):
    status = (deployment or {}).get("status", {})
    return status.get("availableReplicas") == deployment["spec"]["replicas"] if deployment else False


def _on_all_nodes(daemons):
    status = (daemons or {}).get("status", {})
    return 0 < status.get("desiredNumberScheduled", 0) == status.get("numberReady") \
        and status["observedGeneration"] == daemons["metadata"]["generation"]
