# SPDX-License-Identifier: Apache-2.0
"""Everything that the API server has, the Node and the directories of the host, compared before an installation and after its
removal by `aliquot uninstall`; and ways to interrupt that command."""

import base64
import pathlib
import re
import secrets
import subprocess
import sys

from cluster import api as kube
from cluster.cluster import REPOSITORY

# What changes by itself: resources that are not compared, and fields of those that are.
OTHERS = {"events", "componentstatuses"}
FIELDS = {
    "*": ["metadata.resourceVersion", "metadata.managedFields"],
    "leases": ["spec.renewTime"],
    "nodes": ["status.images"],     # kubelet's list, in the order of their use
}
TIMES = ("lastHeartbeatTime", "lastTransitionTime")
# Directories of the node of which only what is directly in them is compared, and those that are compared whole, with what
# files contain: also the ones that the values cdi.dir and agent.hookDir may name.
TOP = ("/run", "/var/lib", "/dev", "/opt", "/etc")
WHOLE = ("/run/cdi", "/etc/cdi", "/run/aliquot", "/var/lib/aliquot", "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/plugins",
         "/var/lib/kubelet/plugins_registry")
# Of the cluster's init, of the first pod's network, and kubelet's record of plugins.
NOISE = ("/run/notify-", "/run/netns", "/var/lib/cni", "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
AGENT_IMAGE = re.search(r"image: (aliquot-agent:\S+)", pathlib.Path(REPOSITORY, "deploy/base/agent.yaml").read_text())[1]
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SETTLED = 60    # seconds in which garbage collection, namespaces and kubelet are done


# ---- what is compared ----

def without(item, fields):
    for field in fields:
        *path, last = field.split(".")
        inner = item
        for key in path:
            inner = inner.get(key, {})
        inner.pop(last, None)
    for condition in item.get("status", {}).get("conditions") or []:
        for key in TIMES:
            condition.pop(key, None)
    return item


def kinds(api):
    groups = [f'/apis/{group["preferredVersion"]["groupVersion"]}' for group in api.get("/apis")["groups"]]
    for path in ["/api/v1", *groups]:
        for resource in api.get(path)["resources"]:
            if "list" in resource["verbs"] and resource["name"] not in OTHERS:
                yield f'{path}/{resource["name"]}', resource["name"]


def objects(world):
    """{(path of the kind, namespace, name): object}."""
    found = {}
    for path, kind in kinds(world.api):
        for item in world.api.get(path).get("items") or []:
            meta = item["metadata"]
            found[path, meta.get("namespace", ""), meta["name"]] = without(item, FIELDS["*"] + FIELDS.get(kind, []))
    return found


def files_of(node):
    """(node, path, what it is) of all in the directories: type and mode, the sum of a file's content, Aliquot's mounts."""
    listed = ["-printf", "%p\t%y %m\n"]
    texts = [node.on_node(["find", *TOP, "-mindepth", "1", "-maxdepth", "1", *listed]).stdout,
             node.on_node(["find", *WHOLE, *listed], check=False).stdout]
    sums = node.on_node(["find", *WHOLE, "-type", "f", "-exec", "sha256sum", "{}", "+"], check=False).stdout
    mounts = node.on_node(["grep", "-E", "^[^ ]+ [^ ]+ [^ ]+ [^ ]+ /run/aliquot/", "/proc/1/mountinfo"], check=False).stdout
    found = [line.split("\t") for text in texts for line in text.splitlines()]
    found += [(line.split("  ", 1)[1], line.split("  ", 1)[0]) for line in sums.splitlines()]
    found += [(line.split()[4], "mount " + line) for line in mounts.splitlines()]
    return {(node.node, path, what) for path, what in found if not path.startswith(NOISE)}


def files(world):
    return set().union(*map(files_of, world.cluster.nodes))


def difference(before, after):
    changed = {key: (before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]}
    return {"gone": before.keys() - after.keys(), "new": after.keys() - before.keys(), "changed": changed}


class Before:
    def __init__(self, world):
        for node in world.cluster.nodes:    # kubelet makes its Lease some time after the node is Ready
            world.api.wait(NODE_LEASES, node.node, bool, SETTLED, f"the Lease of {node.node}")
        self.world = world
        self.objects, self.files = objects(world), files(world)

    def is_again(self, left=lambda key: False):
        """Until nothing differs but what may be left."""
        def same():
            found = difference(self.objects, objects(self.world))
            found["new"] = {key for key in found["new"] if not left(key)}
            assert not any(found.values()), found
            return True
        self.world.until(same, SETTLED, "the API server as before", pause=0.5)
        differing = files(self.world) ^ self.files
        assert not differing, sorted(differing)


# ---- CertificateSigningRequests ----

CERTIFICATES = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


def request_certificate(world, name, signer):
    """One that is not the agents', but for the signer perhaps."""
    made = subprocess.run(["openssl", "req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                           "-keyout", "/dev/null", "-subj", "/CN=" + name], check=True, capture_output=True).stdout
    world.api.create(CERTIFICATES, {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "aliquot"}},
        "spec": {"signerName": signer, "usages": ["digital signature", "server auth"], "request": base64.b64encode(made).decode()}})
    return name


def certificate_requests(world, signer):
    return [one["metadata"]["name"] for one in world.api.get(CERTIFICATES)["items"] if one["spec"]["signerName"] == signer]


# ---- the command ----

INTERRUPTIONS = ("refused", "ctrl-c", "killed")     # before a request, but for the last one: after what it has done


def uninstall(world, *options, check=True, env=()):
    """In a session of its own, so that a signal can be sent to it as a terminal does."""
    done = world.cluster.on_node(["setsid", "env", *env, str(world.build / "src/cli/aliquot"), "uninstall", *options], check=check)
    print(done.stdout)
    return done


def uninstall_interrupted_at(world, request, how, *options):
    """Once, by interrupting.py, whose words for the request these are."""
    script = f"/run/kubectl-{secrets.token_hex(2)}"
    program = pathlib.Path(__file__).with_name("interrupting.py")
    text = f'#!/bin/sh\nexec {sys.executable} {program} "$0.left" {how} "$@"\n'
    world.cluster.on_node(["sh", "-c", f"cat > {script} && chmod +x {script}"], input=text)
    world.cluster.on_node(["sh", "-c", f"cat > {script}.left"], input=str(request))
    done = uninstall(world, *options, check=False, env=[f"KUBECTL={script}"])
    world.cluster.on_node(["rm", script, script + ".left"])
    return done


def uninstall_interrupted(world, *options, stride, how=INTERRUPTIONS):
    """Until it ends by itself: each run gets `stride` requests further than the one before. Returns the number of runs."""
    status, runs = 1, 0
    while status:
        done = uninstall_interrupted_at(world, runs * stride, how[runs % len(how)], *options)
        status = done.returncode
        runs += 1
        assert runs * stride < 600, done
    return runs


def forget_plugins(world):
    """kubelet holds the resources of a plugin for 5 minutes after its end, and writes 0 then. One that starts without its record
    of plugins does not, and would offer what is on the Node: so the zeros are written here, while it is down."""
    for node in world.cluster.nodes:
        node.stop("kubelet")
        node.on_node(["rm", CHECKPOINT])
        status = world.api.get(kube.core("nodes", name=node.node))["status"]
        zeros = {name: "0" for name in status["capacity"] if "/" in name}
        world.api.patch(kube.core("nodes", name=node.node) + "/status", {"status": {"capacity": zeros, "allocatable": zeros}})
        node.start("kubelet")
        node.wait_node_ready()
