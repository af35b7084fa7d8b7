# SPDX-License-Identifier: Apache-2.0
"""`aliquot uninstall` on the real cluster: everything that the API server has, the Node and the directories of the host are
compared before the installation and after the removal."""

import pathlib
import re
import secrets

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import REPOSITORY, Cluster
from kit import GiB, container, pod
from test_claims import CLASSES, EGPUS, V1ALPHA1, claim, claims_in, phase

# What changes by itself: resources that are not compared, and fields of those that are.
OTHERS = {"events", "componentstatuses"}
FIELDS = {
    "*": ["metadata.resourceVersion", "metadata.managedFields"],
    "leases": ["spec.renewTime"],
    "nodes": ["status.images"],     # kubelet's list, in the order of their use
}
TIMES = ("lastHeartbeatTime", "lastTransitionTime")
# Directories of the node of which only what is directly in them is compared, and those that are compared whole.
TOP, WHOLE = ("/run", "/var/lib", "/dev", "/opt", "/etc"), ("/run/cdi", "/run/aliquot", "/var/lib/kubelet/device-plugins")
# Of the cluster's init, of the first pod's network, and kubelet's record of plugins.
NOISE = ("/run/notify-", "/run/netns", "/var/lib/cni", "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint")
AGENT_IMAGE = re.search(r"image: (aliquot-agent:\S+)", pathlib.Path(REPOSITORY, "deploy/base/agent.yaml").read_text())[1]
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"
NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SETTLED = 60    # seconds in which garbage collection, namespaces and kubelet are done


@pytest.fixture(scope="module")
def world(build):
    with Cluster("uninstall-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.start_simulator(cluster, str(build), gpus=2)
        aliquot.load_images(cluster, str(build), [build / "tests/e2e/probe"])
        # kubelet makes it some time after the node is Ready.
        cluster.api.wait(NODE_LEASES, cluster.node, bool, SETTLED, "the Lease of the node")
        yield kit.World(cluster, build)


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


def files(world):
    """Names in the host's directories, and Aliquot's mounts."""
    depth = [world.cluster.on_node(["find", *TOP, "-mindepth", "1", "-maxdepth", "1"]).stdout,
             world.cluster.on_node(["find", *WHOLE], check=False).stdout,
             world.cluster.on_node(["grep", "-E", "^[^ ]+ [^ ]+ [^ ]+ [^ ]+ /run/aliquot/", "/proc/1/mountinfo"], check=False).stdout]
    return {line for text in depth for line in text.splitlines() if not line.startswith(NOISE)}


def difference(before, after):
    changed = {key: (before[key], after[key]) for key in before.keys() & after.keys() if before[key] != after[key]}
    return {"gone": before.keys() - after.keys(), "new": after.keys() - before.keys(), "changed": changed}


class Before:
    def __init__(self, world):
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
        assert files(self.world) == self.files


# ---- helpers ----

def uninstall(world, *options, check=True, env=()):
    done = world.cluster.on_node(["env", *env, str(world.build / "src/cli/aliquot"), "uninstall", *options], check=check)
    print(done.stdout)
    return done


def install(world):
    aliquot.apply(world.cluster)
    aliquot.wait_gpus(world.cluster, 2)


def forget_plugins(world):
    """kubelet holds the resources of a plugin for 5 minutes after its end. One that starts without its record of plugins does
    not, and leaves on the Node what is there."""
    world.cluster.stop("kubelet")
    world.cluster.on_node(["rm", CHECKPOINT])
    world.cluster.start("kubelet")
    world.cluster.wait_node_ready()


@pytest.fixture
def before(world):
    return Before(world)


# ---- tests ----

def test_nothing_is_left(world, before):
    """Refused while a pod holds a share, by force beside it, and again when it has ended."""
    install(world)
    world.api.create(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "reclaimPolicy": "Retain",
                               "metadata": {"name": "kept"}, "provisioner": "elasticgpu.io/qgpu"})
    space = kit.Space(world, kit.new_name("t"))
    world.api.create(kube.core("namespaces"), {"metadata": {"name": space.name}})
    world.api.wait(kube.core("serviceaccounts", space.name), "default", bool, 30)
    seen = space.start(pod("holder", container(core=30, memory=2 * GiB)))
    there = objects(world)
    refused = uninstall(world, "--crds=delete", check=False)
    assert refused.returncode == 1 and f"{space.name}/holder on node" in refused.stdout and "--force" in refused.stderr, refused
    assert difference(there, objects(world))["gone"] == set()

    told = uninstall(world, "--crds=delete", "--force").stdout
    assert f"{space.name}/holder" in told and "kubelet may show 3 resources" in told and "1 nodes cleaned" in told
    with space.tenant(seen) as tenant:      # its limits hold
        assert tenant.alloc(GiB) == 0 and tenant.alloc(2 * GiB) == kit.OUT_OF_MEMORY
    assert files(world) > before.files
    kit.clear_namespace(space)
    world.wait_cleared()
    forget_plugins(world)
    uninstall(world, "--crds=delete", "--agent-image=" + AGENT_IMAGE)
    before.is_again()


def test_what_users_wrote_stays(world, before):
    """With a Retain claim bound and the scheduler dead; the CRDs are taken by a later call."""
    install(world)
    world.api.create(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "reclaimPolicy": "Retain",
                               "eGPUBindingMode": "Immediate", "metadata": {"name": "kept"}, "provisioner": "elasticgpu.io/qgpu"})
    space = kit.Space(world, "default")
    world.api.create(claims_in(space), claim("claim", elasticGPUClassName="kept"))
    name = phase(space, "claim", "Bound")["spec"]["elasticGPUName"]
    deployments = "/apis/apps/v1/namespaces/aliquot-system/deployments/aliquot-scheduler"
    world.api.patch(deployments, {"spec": {"replicas": 0}})
    world.api.create("/apis/apps/v1/namespaces/default/deployments", {"metadata": {"name": "waits"}, "spec": {
        "replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"egpuc.elasticgpu.io/main": "claim"}}, "spec": pod("waits")["spec"]}}})

    told = uninstall(world).stdout
    assert "Deployment default/waits names a claim by annotation only" in told
    world.api.delete("/apis/apps/v1/namespaces/default/deployments/waits")
    forget_plugins(world)
    uninstall(world)
    wrote = {"elasticgpuclaims": {"claim"}, "elasticgpus": {name}, "elasticgpuclasses": {"kept"}, "customresourcedefinitions": None,
             "apiservices": None}

    def left(key):
        names = wrote.get(key[0].rsplit("/", 1)[1], set())
        return "elasticgpu.io" in key[2] if names is None else key[2] in names
    before.is_again(left)
    world.api.delete(claims_in(space) + "/claim")       # no finalizer keeps it
    assert not world.api.exists(claims_in(space) + "/claim")

    world.api.patch(EGPUS + "/" + name, {"metadata": {"finalizers": ["example.com/kept"]}})
    uninstall(world, "--crds=delete")
    before.is_again()


def test_interrupted(world, before):
    """At every call of kubectl in turn; each run goes on from there."""
    install(world)
    script = f"/run/kubectl-{secrets.token_hex(2)}"
    world.cluster.on_node(["sh", "-c", f"cat > {script} && chmod +x {script}"],
                          input='#!/bin/sh\nn=$(cat "$0.left"); [ "$n" -gt 0 ] || exit 1\necho $((n - 1)) > "$0.left"\n'
                                'exec kubectl "$@"\n')
    status, calls = 1, 0
    while status:
        calls += 3
        world.cluster.on_node(["sh", "-c", f"echo {calls} > {script}.left"])
        status = uninstall(world, "--crds=delete", check=False, env=[f"KUBECTL={script}"]).returncode
        assert calls < 200
    assert calls > 30
    world.cluster.on_node(["rm", script, script + ".left"])
    forget_plugins(world)
    uninstall(world, "--crds=delete")
    before.is_again()


def test_an_agent_is_not_reached(world, before):
    """Its files stay and are named; once the node is back, they are removed. As after a removal by helm or kubectl alone."""
    install(world)
    world.cluster.stop("kubelet")
    told = uninstall(world, "--crds=delete", "--timeout=3").stdout
    assert f"not cleaned within 3 s (--timeout): {world.cluster.node};" in told
    world.cluster.start("kubelet")
    world.cluster.wait_node_ready()
    world.api.wait_none(kube.pods(kit.SYSTEM), SETTLED)
    assert files(world) > before.files
    forget_plugins(world)
    uninstall(world, "--crds=delete", "--agent-image=" + AGENT_IMAGE)
    before.is_again()


def test_nothing_is_there(world, before):
    uninstall(world, "--crds=delete")
    before.is_again()
