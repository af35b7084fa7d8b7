# SPDX-License-Identifier: Apache-2.0
"""`helm uninstall` of a release with a kube-scheduler of its own, in a namespace that a user has chosen; and `aliquot uninstall` in
its place, after `helm uninstall --no-hooks`, and interrupted at each step."""

import re
import secrets

import kit
import pytest
import worlds
import yaml
from cluster import aliquot
from cluster import api as kube
from cluster.api import ApiError
from kit import CORE, OUT_OF_MEMORY, GiB, container, pod
from test_agent_tls import ALL, SIGNER, page
from test_claims import CLASSES, EGPUS, claim, claims_in, phase
from test_helm import CHART, NAMESPACE, OWN_DIRECTORY, PLACE, RELEASE, Helm
from test_two_nodes import on
from whole_cluster import (AGENT_IMAGE, CERTIFICATES, INTERRUPTIONS, SETTLED, Before, certificate_requests, difference, files,
                           files_of, forget_plugins, objects, request_certificate, uninstall, uninstall_interrupted)

SYSTEM = f"--system={NAMESPACE}"
WEBHOOK = ("--set", "admission.mode=webhook")
LATER = "aliquot-uninstall-nodes"   # the Job for what kubelet writes later, and what it has
LATER_END = 120     # seconds in which that Job ends where kubelet holds nothing
BY_ANNOTATION = {"egpuc.elasticgpu.io/main": "claim"}
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/aliquot-scheduler"
# What a user has written, by kind; None: the CRDs.
WRITTEN = {"elasticgpuclaims": "claim", "elasticgpuclasses": "kept", "elasticgpus": "egpu-", "customresourcedefinitions": None,
           "apiservices": None}


@pytest.fixture(scope="module")
def world(build):
    with worlds.bare("away-" + secrets.token_hex(2), build, own=True, second_node=True) as made:
        namespace(made.api, NAMESPACE)
        yield made


def namespace(api, name):
    api.create(kube.core("namespaces"), {"metadata": {"name": name}})
    api.wait(kube.core("serviceaccounts", name), "default", bool, 30)
    api.wait(kube.core("configmaps", name), "kube-root-ca.crt", bool, 30)


@pytest.fixture
def helm(world):
    return Helm(world.cluster)


@pytest.fixture
def before(world):
    return Before(world)


# ---- helpers ----

def install(world, helm, *settings):
    helm.install(*settings)
    aliquot.wait_gpus(world.cluster, 2)


def bind_claim(world):
    """One that is kept, with its ElasticGPU."""
    space = kit.Space(world, "default")
    world.api.create(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "reclaimPolicy": "Retain",
                               "eGPUBindingMode": "Immediate", "metadata": {"name": "kept"}, "provisioner": "elasticgpu.io/qgpu"})
    world.api.create(claims_in(space), claim("claim", elasticGPUClassName="kept"))
    return phase(space, "claim", "Bound")["spec"]["elasticGPUName"]


def start_holder(world, node):
    """A pod with a share on a node, in a namespace of its own; its admission is there some time after the installation."""
    space = kit.Space(world, kit.new_name("t"))
    namespace(world.api, space.name)
    body = on(node, "holder", core=30, memory=2 * GiB)
    world.until(lambda: space.api.create(space.path, body, dryRun="All")["spec"]["schedulerName"] == "aliquot-scheduler", kit.START,
                "pods are sent to the own scheduler")
    return space, space.start(body)


def is_limited(space, seen):
    with space.tenant(seen) as tenant:
        return tenant.alloc(GiB) == 0 and tenant.alloc(2 * GiB) == OUT_OF_MEMORY


def seen_by_kubelet(node, before):
    """What an installation has left for kubelet and the container runtime. The rest stays while a container has a share, and the
    processes of the second node are seen on the first one."""
    return [name for _, name, _ in files_of(node) - before.files if name.startswith(("/run/cdi", "/var/lib/kubelet"))]


def of_cards(world, seen):
    """What a container has of GPUs: files of the driver, the device nodes (sockets of simulated cards), and its share."""
    found = world.ctr("tasks", "ls")
    pid = re.search(rf'^{seen["status"]["containerStatuses"][0]["containerID"].partition("://")[2]}\s+(\d+)', found, re.M)[1]
    mounts = world.cluster.on_node(["cat", f"/proc/{pid}/mountinfo"]).stdout.splitlines()
    return sorted(line.split()[4] for line in mounts if re.search("aliquot|nvidia|cuda", line.split()[4]))


def is_written(key):
    kind = key[0].rsplit("/", 1)[1]
    name = WRITTEN.get(kind, "")
    return "elasticgpu.io" in key[2] if name is None else bool(name) and key[2].startswith(name)


def end(world, space, *names):
    space.delete(*names, grace=0)
    world.api.delete(kube.core("namespaces", name=space.name))


def away_by_helm(world):
    """And nothing else. What is printed."""
    done = world.cluster.on_node(["helm", "uninstall", RELEASE, *PLACE], check=False)
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done
    return done.stdout + done.stderr


def later_has_ended(world):
    """The Job that `helm uninstall` leaves, with its rights."""
    def gone():
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
        jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/"
        return not world.api.exists(roles + LATER) and not world.api.exists(jobs + LATER)
    world.until(gone, LATER_END, "the end of the Job for kubelet's zeros")


# ---- tests ----

def test_by_helm_alone(world, helm, before):
    """With the default, what users wrote stays; with crds.keep=false nothing does, though a claim is bound that is kept. Between
    both Aliquot is installed again under another name, before the first removal is complete: its Job does not touch what belongs to
    the second."""
    install(world, helm)
    name = bind_claim(world)
    told = away_by_helm(world)
    assert "2 nodes cleaned" in told and f"Job {LATER} in {NAMESPACE} removes" in told
    roles = world.cluster.kubectl("get", "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts", "-A", "-o", "name")
    assert [one for one in roles.split() if "aliquot-" in one and not one.endswith(LATER)] == []
    assert files(world) == before.files
    install(world, helm, "--set", "crds.keep=false,nameOverride=mine")
    later_has_ended(world)
    aliquot.wait_gpus(world.cluster, 2)
    refused = world.cluster.on_node(["helm", "upgrade", RELEASE, CHART, *PLACE, "--reset-values"], check=False)
    assert "DaemonSet mine-agent, which an upgrade does not rename" in refused.stderr, refused
    assert world.api.get(EGPUS + "/" + name)["status"]["phase"] == "Bound"
    away_by_helm(world)
    forget_plugins(world)
    later_has_ended(world)
    before.is_again()


def serves_tls(world):
    """By the certificate of the authority."""
    path = kube.core("configmaps", NAMESPACE, "aliquot-authority")
    return world.api.exists(path) and page(world, "/readyz", ALL, trusted=world.api.get(path)["data"]["ca.crt"])[0] == 200


def hook_may_delete(world, helm, name):
    """Whether the account of the Job before the removal may delete the request; it is made, as helm makes it, but for the Job."""
    hooks = [one for one in yaml.safe_load_all(helm("get", "hooks", RELEASE, "--namespace", NAMESPACE))
             if one["metadata"]["name"] == "aliquot-uninstall" and one["kind"] != "Job"]
    assert "ValidatingAdmissionPolicyBinding" in {one["kind"] for one in hooks}
    world.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(hooks))
    api = world.api.with_token(world.token(NAMESPACE, "aliquot-uninstall"))
    try:
        api.delete(f"{CERTIFICATES}/{name}", dryRun=["All"])
        return True
    except ApiError as error:
        assert error.code == 403 and "signer elasticgpu.io/agent only" in error.message
        return False


def test_agents_with_tls(world, helm):
    """With them, without them and with them again beside a pod. At the end CertificateSigningRequests of other signers are left,
    whatever their names, which the account of the hook may not delete."""
    foreign = request_certificate(world, "aliquot-agent-x1", "elasticgpu.io/agents")
    before = Before(world)
    install(world, helm, "--set", "crds.keep=false")
    space, seen = start_holder(world, world.cluster.node)
    for wanted in ("true", "false", "true"):
        helm.upgrade("--set", "agent.tls=" + wanted)
        world.until(lambda expected=wanted == "true": serves_tls(world) == expected, 60, "the agent with agent.tls=" + wanted)
        assert is_limited(space, seen) and "holder" in world.aliquot("gpus", "--system", NAMESPACE)
        assert [one["status"].get("certificate", "") > "" for one in world.api.get(CERTIFICATES)["items"]
                if one["spec"]["signerName"] == SIGNER] == [True, True], "one for each node, and none for a restart"
    end(world, space, "holder")
    world.until(lambda: not hook_may_delete(world, helm, foreign), 30, "the policy")
    assert hook_may_delete(world, helm, certificate_requests(world, SIGNER)[0])
    away_by_helm(world)
    forget_plugins(world)
    later_has_ended(world)
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
def test_by_helm_alone_and_what_users_wrote_stays(world, helm, before):
    """As above, to the end; and twice."""
    install(world, helm, *WEBHOOK)
    bind_claim(world)
    away_by_helm(world)
    forget_plugins(world)
    later_has_ended(world)
    before.is_again(is_written)
    again = world.cluster.on_node(["helm", "uninstall", RELEASE, *PLACE], check=False)
    assert again.returncode != 0 and "release: not found" in again.stderr, again
    before.is_again(is_written)
    uninstall(world, SYSTEM, "--crds=delete")
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
def test_by_helm_and_kubelet_takes_its_time(world, helm, before):
    """Nothing is done about its 5 minutes but by the Job."""
    install(world, helm, "--set", "crds.keep=false")
    away_by_helm(world)
    world.until(lambda: not world.api.exists("/apis/rbac.authorization.k8s.io/v1/clusterroles/" + LATER), 480, "the end of the Job")
    before.is_again()


# Ends helm when the hook has begun. The exit status is helm's.
KILLED = """helm uninstall "$@" & until kubectl -n %s get job aliquot-uninstall > /dev/null 2>&1 || ! kill -0 $!; do :; done
kill -KILL $!; wait $!""" % NAMESPACE
BY_SIGKILL = 128 + 9    # as a shell says it


@pytest.mark.foreign
@pytest.mark.long
def test_helm_is_killed(world, helm, before):
    """In the hook, whose Job goes on by itself; the next call completes the removal."""
    install(world, helm, "--set", "crds.keep=false")
    bind_claim(world)
    done = world.cluster.on_node(["sh", "-c", KILLED, "sh", RELEASE, "--namespace", NAMESPACE], check=False)
    assert done.returncode == BY_SIGKILL, done
    away_by_helm(world)
    forget_plugins(world)
    later_has_ended(world)
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
def test_the_check_is_off(world, helm, before):
    """By a value: beside a pod with a share, which keeps its limits and what it uses on the node, until a later call."""
    install(world, helm, "--set", "uninstall.check=false")
    space, seen = start_holder(world, world.cluster.node)
    told = away_by_helm(world)
    assert f"{space.name}/holder on node {world.cluster.node}" in told and "they go on with their limits" in told
    assert is_limited(space, seen) and files(world) > before.files
    end(world, space, "holder")
    forget_plugins(world)
    later_has_ended(world)
    uninstall(world, SYSTEM, "--crds=delete", "--agent-image=" + AGENT_IMAGE)
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
def test_templates_that_were_applied_remove_nothing(world, helm, before):
    """`helm template` without --no-hooks has the Job of the hook as well."""
    made = helm("template", RELEASE, CHART, "--namespace", NAMESPACE, "--set", "scheduler.mode=own", "--kube-version",
                world.api.get("/version")["gitVersion"])
    world.cluster.kubectl("apply", "-f", "-", input=made)
    aliquot.wait_gpus(world.cluster, 2)
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    world.api.wait(jobs, "aliquot-uninstall", lambda job: job["status"].get("succeeded"), SETTLED, "the end of the hook's Job")
    assert len(world.api.get(kube.gpus())["items"]) == 4
    uninstall(world, SYSTEM, "--crds=delete")
    forget_plugins(world)
    uninstall(world, SYSTEM, "--crds=delete")
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
def test_an_agent_is_not_reached_by_helm(world, helm, before):
    """It is said, and helm goes on; what is on the node is for a later call."""
    second = world.cluster.nodes[1]
    install(world, helm)
    second.stop("kubelet")
    done = world.cluster.on_node(["helm", "uninstall", RELEASE, "--namespace", NAMESPACE])
    missed = re.search(r"not cleaned within 60 s \(--timeout\): ([^;]*);", done.stdout + done.stderr)
    assert second.node in missed[1].split(), done
    second.start("kubelet")
    second.wait_node_ready()
    world.api.wait_none(kube.pods(NAMESPACE), SETTLED, lambda seen: seen["metadata"]["name"].startswith("aliquot-agent"))
    forget_plugins(world)
    later_has_ended(world)
    uninstall(world, SYSTEM, "--crds=delete", "--agent-image=" + AGENT_IMAGE)
    before.is_again()

@pytest.mark.foreign
@pytest.mark.long
def test_of_kubectl_with_its_own_scheduler(world, before):
    """By `aliquot uninstall`, of deploy/own-scheduler."""
    aliquot.apply(world.cluster, OWN_DIRECTORY)
    aliquot.wait_gpus(world.cluster, 2)
    uninstall(world, "--crds=delete")
    forget_plugins(world)
    uninstall(world, "--crds=delete")
    before.is_again()


def test_in_place_of_helm_uninstall(world, helm, before):
    """With the webhook and, when it is removed, without the scheduler that answers it; a Retain claim is bound."""
    install(world, helm, *WEBHOOK)
    space, seen = start_holder(world, world.cluster.node)
    assert {"/dev/aliquot/ledger", "/run/aliquot-sim/nvidiactl"} < set(of_cards(world, seen))
    bind_claim(world)
    workload = {"template": {"metadata": {"annotations": BY_ANNOTATION, "labels": {"a": "b"}}, "spec": pod("waits")["spec"]}}
    world.api.create("/apis/apps/v1/namespaces/default/statefulsets", {"metadata": {"name": "set"}, "spec": dict(
        workload, serviceName="set", replicas=0, selector={"matchLabels": {"a": "b"}})})
    workload["template"]["spec"]["restartPolicy"] = "Never"
    world.api.create("/apis/batch/v1/namespaces/default/cronjobs", {"metadata": {"name": "nightly"}, "spec": {
        "schedule": "0 0 1 1 *", "suspend": True, "jobTemplate": {"spec": workload}}})

    there = objects(world)
    for refused in (world.cluster.on_node(["helm", "uninstall", RELEASE, *PLACE], check=False),
                    uninstall(world, SYSTEM, check=False)):
        assert refused.returncode == 1 and f"{space.name}/holder on node" in refused.stdout + refused.stderr, refused
    assert difference(there, objects(world))["gone"] == set()
    space.delete("holder", grace=0)
    world.api.patch(DEPLOYMENT, {"spec": {"replicas": 0}})
    world.api.wait_none(kube.pods(NAMESPACE), SETTLED, lambda seen: seen["metadata"]["name"].startswith("aliquot-scheduler"))

    told = uninstall(world, SYSTEM).stdout
    for workload in ("StatefulSet default/set", "CronJob default/nightly"):
        assert f"{workload} names a claim by annotation only" in told
    assert f"1 revisions of release {RELEASE} removed" in told and "2 nodes cleaned" in told
    assert helm("list", "--namespace", NAMESPACE, "--all", "--short") == ""
    gets_no_device(world, space)
    world.api.delete("/apis/apps/v1/namespaces/default/statefulsets/set")
    world.api.delete("/apis/batch/v1/namespaces/default/cronjobs/nightly")
    forget_plugins(world)
    uninstall(world, SYSTEM)
    before.is_again(is_written)
    uninstall(world, SYSTEM, "--crds=delete")
    before.is_again()


def gets_no_device(world, space):
    """Who asks by a resource waits; who names a claim only has nothing to wait for."""
    space.create(pod("by-resource", container(core=10)))
    assert f"Insufficient {CORE}" in space.unschedulable("by-resource")
    assert of_cards(world, space.start(on(world.cluster.node, "by-annotation") | {"metadata": {
        "name": "by-annotation", "annotations": BY_ANNOTATION}})) == []
    end(world, space, "by-resource", "by-annotation")


def test_after_helm_without_hooks(world, helm, before):
    """Nothing refuses it: a pod has a share, a claim is bound, and the agent on one of two nodes is not reached."""
    first, second = world.cluster.nodes
    install(world, helm)
    space, seen = start_holder(world, second.node)
    bind_claim(world)
    second.stop("kubelet")
    helm("uninstall", RELEASE, "--namespace", NAMESPACE, "--no-hooks")
    done = uninstall(world, SYSTEM, "--force", "--timeout=5", "--agent-image=" + AGENT_IMAGE, check=False)
    assert done.returncode == 1 and "something is left" in done.stderr, done
    missed = re.search(r"not cleaned within 5 s \(--timeout\): ([^;]*);", done.stdout)[1].split()
    assert f"{space.name}/holder on node {second.node}" in done.stdout and second.node in missed
    assert first.node in missed or not seen_by_kubelet(first, before)    # a busy machine may need longer
    assert is_limited(space, seen)
    second.start("kubelet")
    second.wait_node_ready()
    world.api.wait_none(kube.pods(NAMESPACE), SETTLED)
    assert is_limited(space, seen) and seen_by_kubelet(second, before)
    end(world, space, "holder")
    forget_plugins(world)
    uninstall(world, SYSTEM, "--agent-image=" + AGENT_IMAGE)
    before.is_again(is_written)
    uninstall(world, SYSTEM, "--crds=delete")
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
@pytest.mark.parametrize("how", INTERRUPTIONS)
def test_interrupted_at_every_call(world, helm, before, how):
    install(world, helm, *WEBHOOK)
    bind_claim(world)
    assert uninstall_interrupted(world, SYSTEM, "--crds=delete", stride=1, how=(how,)) > 100
    forget_plugins(world)
    uninstall(world, SYSTEM, "--crds=delete")
    before.is_again()


@pytest.mark.foreign
@pytest.mark.long
def test_kubelet_takes_its_time(world, helm, before):
    """Its 5 minutes are waited for, and nothing else is done about it."""
    install(world, helm)
    told = uninstall(world, SYSTEM, "--crds=delete", "--wait").stdout
    assert "6 resources of plugins again for 5 minutes after their end, waiting" in told
    assert told.endswith("kubelet shows no resources of plugins any more\n")
    before.is_again()
