# SPDX-License-Identifier: Apache-2.0
"""Bad days of an installation by the chart, in both modes of the scheduler: what users are told names the cause and the remedy,
the remedy helps, and what ran goes on. The cases share one cluster; the later ones need an installation, which the first of
them makes."""

import contextlib
import re
import secrets
import signal
import threading

import kit
import pytest
from cluster import aliquot, binaries, images, release_before
from cluster import api as kube
from cluster.cluster import Cluster
from cluster.config import with_short_backoff
from kit import SLOT, SYSTEM, GiB, assignment_of, check_limited, container, pod
from proxy import configured
from test_beside_others import HAMI, PROJECTS, daemonset, hami_webhook, named  # noqa: F401 (a fixture)
from test_claims import CLASSES, claim, claims_in, phase
from test_gates import QUOTAS
from test_helm import CHART, OWN_DIRECTORY, RELEASE, judged_by, start_other_dialect, unharmed
from test_topology import THEIRS, served_by_another
from whole_cluster import uninstall_interrupted_at

AGENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/daemonsets"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOWHERE = "127.0.0.1:1"     # nothing listens there
CLUSTER_ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/aliquot-scheduler"
# Leaves the tmpfs no more blocks than are in use, also when some become free. It ends after its last mount(8), which would
# otherwise take what the next one gives back.
FILL = "trap exit TERM; while :; do mount -o remount,nr_blocks=$(($(stat -f -c '%b - %f' /run))) /run; sleep 0.01; done"
FIREWALL = """table inet firewall {
    chain out {
        type filter hook output priority 0
        tcp dport 9412 reject with tcp reset
    }
}
"""
FINALIZER = "example.com/kept"
WAIT = ["--wait", "--timeout", "60s"]
# The value that names where an image is without which pods with shares wait, the image, and the registry that has it.
PLACING = {"own": ("scheduler.kubeScheduler.image.registry", "kube-scheduler", "registry.k8s.io"),
           "extender": ("scheduler.image.registry", "aliquot-scheduler", "")}


LONG = [pytest.mark.foreign, pytest.mark.long]


@pytest.fixture(scope="module", params=["own", pytest.param("extender", marks=LONG)])
def world(build, request):
    binaries.ensure(toolsets=(binaries.HELM,))
    with Cluster("baddays-" + secrets.token_hex(2), stock_scheduler=request.param == "own") as cluster:
        cluster.up()
        aliquot.start_simulator(cluster, str(build), gpus=2)
        aliquot.load_images(cluster, str(build), [build / "tests/e2e/probe"])
        cluster.load_image(images.kube_scheduler(aliquot.own_scheduler_image(OWN_DIRECTORY), f"{cluster.state}/images"))
        yield kit.World(cluster, build)


@pytest.fixture
def installed(world):
    install(world, "upgrade", "--install", "--take-ownership", *WAIT)
    aliquot.wait_gpus(world.cluster, 2)


def mode(world):
    return "own" if world.cluster.stock_scheduler else "extender"


def helm(world, verb, *arguments, namespace=SYSTEM, check=True):
    chart = [] if verb == "rollback" else [CHART, "--create-namespace"]
    return world.cluster.on_node(["helm", verb, RELEASE, *chart, "--namespace", namespace, *arguments], check=check)


def install(world, verb, *arguments, **options):
    """One replica is enough here."""
    return helm(world, verb, "--set", f"scheduler.mode={mode(world)},scheduler.replicas=1", *arguments, **options)


def upgrade(world, settings, check=True):
    return helm(world, "upgrade", *WAIT, "--reuse-values", "--set", settings, check=check)


def refused(world, verb, *arguments, namespace=SYSTEM):
    """What helm says instead of doing it."""
    done = install(world, verb, *arguments, namespace=namespace, check=False)
    assert done.returncode != 0, done
    return done.stderr


def share(name, **spec):
    return pod(name, container(core=30, memory=2 * GiB), **spec)


def test_into_a_namespace_that_is_terminating(world):
    world.api.create(kube.core("namespaces"), {"metadata": {"name": "leaving"}})
    keeper = world.api.create(kube.core("configmaps", "leaving"), {"metadata": {"name": "keeper", "finalizers": [FINALIZER]}})
    world.api.delete(kube.core("namespaces", name="leaving"))
    assert "namespace leaving is being deleted: wait until it is gone" in refused(world, "install", namespace="leaving")
    assert not world.api.exists(f"{CRDS}/gpus.elasticgpu.io")
    world.api.patch(kube.core("configmaps", "leaving", keeper["metadata"]["name"]), {"metadata": {"finalizers": None}})
    world.api.wait(kube.core("namespaces"), "leaving", lambda seen: seen is None, kit.START, "the namespace is gone")


def test_over_crds_that_are_being_deleted(world):
    """What `kubectl delete` of the CRDs leaves, when no controller is there for the finalizers of claims."""
    crd = "elasticgpuclaims.elasticgpu.io"
    world.cluster.kubectl("apply", "-f", f"{aliquot.DEPLOY}/crd-elasticgpuclaims.yaml")
    world.cluster.kubectl("wait", "--for=condition=Established", f"crd/{crd}", f"--timeout={kit.START}s")
    made = claim("claim")
    made["metadata"]["finalizers"] = [FINALIZER]
    world.api.create(claims_in(kit.Space(world, "default")), made)
    world.api.delete(f"{CRDS}/{crd}")
    assert f"{crd} is being deleted" in (told := refused(world, "install"))
    assert "`aliquot uninstall --crds=delete`" in told
    world.aliquot("uninstall", "--crds=delete")
    world.api.wait(CRDS, crd, lambda seen: seen is None, kit.START, f"{crd} is gone")


@pytest.fixture
def theirs(world, request):
    """A project that gives the node's cards, and had them first: its DaemonSet, a device plugin of kubelet's, and HAMi's webhook.
    Yields how its own scheduler places a pod, and its end; Aliquot is gone when the test has ended. For a test with the project as
    a parameter."""
    if request.getfixturevalue("project") == "hami":
        request.getfixturevalue("hami_webhook")
    name, image, selector, resources, _ = PROJECTS[request.getfixturevalue("project")]
    files = f"{aliquot.DRIVER}/proc/driver/nvidia/gpus/*/information"
    cards = re.findall(r"GPU-\S+", world.cluster.on_node(["sh", "-c", f"cat {files}"]).stdout)
    assert len(cards) == 2

    def place(space, pod_name):
        """Returns the pod as it is stored."""
        made = space.api.create(space.path, pod(pod_name, container(resources=resources), schedulerName="of-that-project"))
        space.api.create(f"{space.path}/{pod_name}/binding", {
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod_name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": world.cluster.node}})
        return made

    def uninstall():
        world.aliquot("uninstall", "--crds=delete")
        world.api.wait(kube.core("namespaces"), SYSTEM, lambda seen: seen is None, kit.START, "the namespace is gone")
    with contextlib.ExitStack() as stack:
        stack.callback(uninstall)
        project = stack.enter_context(contextlib.ExitStack())
        project.enter_context(daemonset(world, name, image, selector))
        project.enter_context(served_by_another(world, *cards))
        yield place, project.close


def given_by_them(space, name):
    """The card that kubelet has given to a pod from their plugin."""
    space.running(name)
    return space.exec(name, "sh", "-c", "echo $NVIDIA_VISIBLE_DEVICES").strip()


def sent_to_hami(world):
    """Whether a pod of HAMi's that names no scheduler waits for HAMi's when it is stored. Aliquot's own policy comes first."""
    return named(world) == HAMI


def is_named(world, project):
    """By doctor."""
    return any(PROJECTS[project][0] in text for text in world.doctor()["other plugins", "unsure"])


@pytest.mark.parametrize("project", ["nvidia", pytest.param("hami", marks=LONG)])
def test_into_a_cluster_with_another_project(world, theirs, space, project):
    """And nothing is left to it. What its pods have is not given to others. New pods with its names are Aliquot's, and do not start
    when its scheduler places them."""
    place, _ = theirs
    place(space, "theirs")
    card = given_by_them(space, "theirs")
    install(world, "install", *WAIT)
    assert is_named(world, project)
    world.until(lambda: [g["status"]["state"] for g in world.gpus() if g["spec"]["uuid"] == card] == ["Unhealthy"], kit.START,
                "the card of their pod is not Aliquot's")
    ours = space.start(share("ours"))
    assert [d["uuid"] for d in assignment_of(ours)["main"]] != [card]
    check_limited(space, ours, 2 * GiB)
    space.create(pod("waits", container(core=80)))
    assert "no GPU has enough free compute" in space.unschedulable("waits")
    assert SLOT in place(space, "later")["spec"]["containers"][0]["resources"]["limits"]
    space.refused("later", "it was not placed by aliquot-scheduler")
    assert given_by_them(space, "theirs") == card
    if project == "hami":
        assert sent_to_hami(world) == (mode(world) == "extender")
    space.delete("theirs", "later")
    space.running("waits")
    unharmed(space, ours)


@pytest.mark.parametrize("project", ["nvidia", pytest.param("hami", marks=LONG)])
def test_beside_another_project_and_in_its_place(world, theirs, space, project):
    """Its names are left to it, and its node: Aliquot adds nothing to its pods and gives nothing there. Then it goes, and the
    node is Aliquot's."""
    place, end = theirs
    node = kube.core("nodes", name=world.cluster.node)
    world.api.patch(node, {"metadata": {"labels": {"nvidia-device-enable": "disable"}}})
    install(world, "install", *WAIT, "--set", f"dialects.servedElsewhere={{{THEIRS}}}")
    with contextlib.ExitStack() as stack:
        if mode(world) == "extender":
            name = "aliquot-kube-scheduler-configuration"
            made = world.api.get(kube.core("configmaps", SYSTEM, name))["data"]["kube-scheduler-configuration.yaml"]
            stack.enter_context(configured(world, lambda _: with_short_backoff(made)))
        assert SLOT not in place(space, "theirs")["spec"]["containers"][0]["resources"]["limits"]
        given_by_them(space, "theirs")
        space.create(share("ours"))
        assert "GPU" in space.unschedulable("ours")
        assert is_named(world, project) and not world.agent.pods()
        assert project != "hami" or sent_to_hami(world)
        space.end("theirs")
        end()
        world.api.patch(node, {"metadata": {"labels": {"nvidia-device-enable": None}}})
        check_limited(space, space.running("ours"), 2 * GiB)
        assert not is_named(world, project)


def test_older_crds_with_objects_and_an_image_that_is_missing(world, space):
    """CRDs of the release before, with what users wrote; helm takes them over by order only. Without the image of what places
    pods with shares (of kube-scheduler in the mode `own`), they wait and no others."""
    registry, image, place = PLACING[mode(world)]
    before = release_before.ensure().manifests("base")
    world.cluster.on_node(["sh", "-c", f'for f in {before}/crd-*.yaml; do kubectl apply -f "$f"; done'])
    world.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", f"--timeout={kit.START}s")
    old = world.api.get(f"{CRDS}/gpus.elasticgpu.io")["spec"]
    world.api.create(CLASSES, {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUClass", "metadata": {"name": "kept"},
                               "eGPUBindingMode": "Immediate", "provisioner": "elasticgpu.io/qgpu"})
    world.api.create(QUOTAS.format(space.name), {"apiVersion": "elasticgpu.io/v1alpha1", "kind": "ElasticGPUQuota",
                                                 "metadata": {"name": "quota"}, "spec": {"max": {kit.CORE: "50"}}})
    world.api.create(claims_in(space), claim("claim", elasticGPUClassName="kept"))
    assert re.search(r'CustomResourceDefinition "\S+elasticgpu.io".* exists and cannot be imported',
                     refused(world, "install"))

    install(world, "install", "--take-ownership", "--set", f"{registry}={NOWHERE}")
    assert world.api.get(f"{CRDS}/gpus.elasticgpu.io")["spec"] != old
    (text, remedy), = world.until(lambda: world.doctor()["pods", "wrong"], kit.START, "doctor finds the image").items()
    assert f"image {NOWHERE}/{image}:" in text and "Image" in text and "name another one" in remedy
    assert any("is ready" in text for text in world.doctor()["scheduler", "wrong"])
    space.start(pod("plain"))
    aliquot.wait_gpus(world.cluster, 2)
    space.create(share("early"))

    upgrade(world, f"{registry}={place}")
    check_limited(space, space.running("early"), 2 * GiB)
    phase(space, "claim", "Bound")
    space.create(pod("over", container(core=41)))
    assert "asks 41" in space.unschedulable("over")
    world.api.delete(claims_in(space) + "/claim")
    space.delete("early", "over")
    world.api.delete(f"{CLASSES}/kept")


def test_a_tenant_names_the_scheduler(world, installed, space):
    """With a share it is placed as without the name, and without one as any pod; neither gets more than it asks for. Both wait
    where no scheduler has that name."""
    bodies = [share("named", schedulerName="aliquot-scheduler"), pod("plain", schedulerName="aliquot-scheduler")]
    if mode(world) == "extender":
        waiting = space.create(*bodies)
        check_limited(space, space.start(share("other")), 2 * GiB)
        assert not any(space.get(name)["spec"].get("nodeName") for name in waiting)
        return
    by_name, plain = space.start_all(bodies)
    check_limited(space, by_name, 2 * GiB)
    assert not kit.assignment_of(plain)
    with space.tenant(plain) as tenant:
        assert tenant.driver() == tenant.nvml() == {"result": -1, "devices": []}
    space.create(pod("excess", container(core=200), schedulerName="aliquot-scheduler"))
    assert "GPU" in space.unschedulable("excess")


def test_run_is_full(world, installed, space):
    """A container whose files have no place does not start, and says why; it starts when there is room again. What runs has its
    files, and keeps its limits."""
    first = {"name": "first", "image": "localhost/aliquot-workload:1", "imagePullPolicy": "Never",
             "command": ["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"]}
    runs = space.start(share("runs"))
    space.create(share("waits", init=[first]))
    waits = space.wait("waits", lambda seen: any("running" in s["state"] for s in seen["status"].get("initContainerStatuses", [])))
    restarts = world.agent.restarts()
    size = world.cluster.on_node(["stat", "-f", "-c", "%b", "/run"]).stdout.strip()
    world.cluster.spawn("fill", ["sh", "-c", FILL])
    try:
        container_id = waits["status"]["initContainerStatuses"][0]["containerID"].partition("://")[2]
        world.ctr("tasks", "kill", "-s", "SIGTERM", container_id)
        space.refused("waits", "PreStartContainer.*make room on the node.*No space left on device")
        check_limited(space, space.get("runs"), 2 * GiB)
    finally:
        world.cluster.stop("fill")
        world.cluster.on_node(["mount", "-o", f"remount,nr_blocks={size}", "/run"])
    check_limited(space, space.running("waits", 90), 2 * GiB)
    unharmed(space, runs)
    assert world.agent.restarts() == restarts


def tried(space):
    """Why a pod with a share is not created, or ""."""
    try:
        space.api.create(space.path, share("tried"), dryRun="All")
    except kube.ApiError as error:
        return str(error)
    return ""


def test_webhook_that_is_not_reached(world, installed, space):
    """By a firewall. Pods without shares are created as ever. The webhook is in the node's network and has another port; when
    policies take its place, what runs goes on."""
    rolling = "scheduler.updateStrategy.rollingUpdate"
    upgrade(world, f"admission.mode=webhook,webhook.port=9412,webhook.hostNetwork=true,scheduler.kubeScheduler.port=10269,"
                   f"{rolling}.maxSurge=0,{rolling}.maxUnavailable=1")
    assert judged_by(world) == {"mutatingwebhookconfigurations"}
    assert all(seen["spec"]["hostNetwork"] for seen in world.scheduler.pods())
    world.until(lambda: not tried(space), kit.START, "the webhook answers")     # a replica may be missing while helm waits
    before = space.start(share("before"))
    check_limited(space, before, 2 * GiB)
    world.cluster.on_node(["nft", "-f", "-"], input=FIREWALL)
    try:
        world.until(lambda: "failed calling webhook" in tried(space), kit.START, "the webhook is not reached")
        (text, remedy), = world.doctor()["admission", "wrong"].items()
        assert "the webhook, port 9412 of aliquot-scheduler, cannot be reached" in text and "let the API server reach" in remedy
        space.start(pod("plain"))
        check_limited(space, space.get("before"), 2 * GiB)
    finally:
        world.cluster.on_node(["nft", "delete", "table", "inet", "firewall"])
    world.until(lambda: not tried(space), kit.START, "the webhook answers again")
    assert not world.doctor()["admission", "wrong"]
    upgrade(world, "admission.mode=auto,webhook.hostNetwork=false")
    assert judged_by(world) == {"mutatingadmissionpolicies"}
    unharmed(space, before)
    start_other_dialect(space, "by-policies")


def test_api_server_away_in_the_middle_of_an_upgrade(world, installed, space):
    """helm takes the upgrade for one that goes on, and says so; a rollback ends it. The pods notice nothing."""
    def is_changed(daemons):
        return "example" in daemons["spec"]["template"]["metadata"].get("annotations", {})
    runs = space.start(share("runs"))
    ended = []
    helming = threading.Thread(target=lambda: ended.append(upgrade(world, "agent.podAnnotations.example=changed", check=False)))
    helming.start()
    world.api.wait(AGENTS, "aliquot-agent", is_changed, kit.START, "the upgrade is in its middle")
    world.cluster.stop("kube-apiserver", signal.SIGKILL)
    helming.join()
    world.cluster.start("kube-apiserver")
    assert ended[0].returncode != 0, ended
    assert "another operation (install/upgrade/rollback) is in progress" in refused(world, "upgrade", "--reuse-values")
    helm(world, "rollback", *WAIT)
    upgrade(world, "agent.podAnnotations.example=changed")
    unharmed(space, runs)
    check_limited(space, space.start(share("after")), 2 * GiB)


def test_over_a_half_removed_install(world, installed, space):
    """Admission, agents and scheduler are gone, and rights and state are not: helm takes what is there."""
    done = uninstall_interrupted_at(world, "DELETE /apis/rbac.authorization.k8s.io/v1/clusterroles", "refused")
    assert done.returncode == 1 and not world.agent.pods() and world.api.exists(CLUSTER_ROLE), done
    install(world, "install", *WAIT)
    aliquot.wait_gpus(world.cluster, 2)
    check_limited(space, space.start(share("after")), 2 * GiB)
