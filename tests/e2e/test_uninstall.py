# SPDX-License-Identifier: Apache-2.0
"""`aliquot uninstall` of an installation by kubectl: everything that the API server has, the Node and the directories of the
host are as before it."""

import secrets

import kit
import pytest
from cluster import aliquot, binaries
from cluster import api as kube
from cluster.cluster import Cluster
from kit import GiB, container, pod
from test_agent_tls import SIGNER
from test_claims import CLASSES, EGPUS, V1ALPHA1, claim, claims_in, phase
from test_helm import NAMESPACE, Helm
from test_uninstall_release import away_by_helm, later_has_ended, namespace
from whole_cluster import (AGENT_IMAGE, SETTLED, Before, certificate_requests, difference, files, forget_plugins, objects,
                           request_certificate, uninstall, uninstall_interrupted)

GATE = "gpu.elasticgpu.io/placement"


@pytest.fixture(scope="module")
def world(build):
    with Cluster("uninstall-" + secrets.token_hex(2)) as cluster:
        cluster.up()
        aliquot.start_simulator(cluster, str(build), gpus=2)
        aliquot.load_images(cluster, str(build), [build / "tests/e2e/probe"])
        yield kit.World(cluster, build)


def install(world, deploy=None):
    aliquot.apply(world.cluster, deploy)
    aliquot.wait_gpus(world.cluster, 2)


@pytest.fixture
def before(world):
    return Before(world)


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


def test_shares_by_resource_claims(world, before):
    """Refused while a pod uses a claim. Of a scheduler that was killed before the allocation, finalizer and gate go."""
    def using(name, claim, *gates):
        one = dict(container(), resources={"claims": [{"name": "gpu"}]})
        return pod(name, one, resourceClaims=[{"name": "gpu", "resourceClaimName": claim}], schedulingGates=[{"name": gate} for gate in gates])

    install(world, aliquot.with_components(world.cluster, "dra"))
    space = kit.Space(world, kit.new_name("t"))
    world.api.create(kube.core("namespaces"), {"metadata": {"name": space.name}})
    world.api.wait(kube.core("serviceaccounts", space.name), "default", bool, 30)
    path = f"/apis/resource.k8s.io/v1/namespaces/{space.name}/resourceclaims"
    for name in ("used", "late"):
        world.api.create(path, {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
            "deviceClassName": "gpu.elasticgpu.io", "capacity": {"requests": {"core": "30"}}}}]}}})
    space.start(using("holder", "used"))
    refused = uninstall(world, "--crds=delete", check=False)
    assert refused.returncode == 1 and f"{space.name}/used on node {world.cluster.node}, by holder" in refused.stdout, refused
    assert "pods use 1 ResourceClaims" in refused.stderr
    space.delete("holder")
    space.create(using("waits", "late", GATE, "example.com/wait"))
    world.api.patch(path + "/late", {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}})

    told = uninstall(world, "--crds=delete").stdout
    assert f"1 pods released from the gate {GATE}" in told and "1 claims released" in told
    assert space.get("waits")["spec"]["schedulingGates"] == [{"name": "example.com/wait"}]
    assert "finalizers" not in world.api.get(path + "/late")["metadata"]
    kit.clear_namespace(space)
    world.wait_cleared()
    forget_plugins(world)
    uninstall(world, "--crds=delete")
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
    """At every tenth request, in three ways; each run goes on from there."""
    install(world)
    assert uninstall_interrupted(world, "--crds=delete", stride=10) > 10
    forget_plugins(world)
    uninstall(world, "--crds=delete")
    before.is_again()


def test_an_agent_is_not_reached(world, before):
    """Its files stay and are named; once the node is back, they are removed. As after a removal by helm or kubectl alone."""
    install(world)
    world.cluster.stop("kubelet")
    done = uninstall(world, "--crds=delete", "--timeout=3", check=False)
    assert done.returncode == 1 and "something is left" in done.stderr, done
    assert f"not cleaned within 3 s (--timeout): {world.cluster.node};" in done.stdout
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


def test_certificate_requests(world):
    """Those for the agents' signer go, also those of other accounts; another signer's stay, whatever their names and labels."""
    for name, signer in (("aliquot-agent-x1", "elasticgpu.io/agents"), ("aliquot-agent-x2", "kubernetes.io/kubelet-serving")):
        request_certificate(world, name, signer)
    before = Before(world)
    install(world, aliquot.with_components(world.cluster, "agent-tls"))
    request_certificate(world, "of-an-administrator", SIGNER)
    world.until(lambda: len(certificate_requests(world, SIGNER)) >= 2, 60, "the agent's request")
    uninstall(world, "--crds=delete")
    assert certificate_requests(world, SIGNER) == []
    forget_plugins(world)
    uninstall(world, "--crds=delete")
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
def test_by_helm_beside_the_clusters_kube_scheduler(world):
    """The release does not have the namespace, as a user makes it."""
    binaries.ensure(toolsets=(binaries.HELM,))
    namespace(world.api, NAMESPACE)
    before = Before(world)
    Helm(world.cluster).install("--set", "crds.keep=false")
    aliquot.wait_gpus(world.cluster, 2)
    away_by_helm(world)
    forget_plugins(world)
    later_has_ended(world)
    before.is_again()
