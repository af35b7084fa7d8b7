# SPDX-License-Identifier: Apache-2.0
"""charts/aliquot by the real helm on real clusters, in both modes of the scheduler and in a namespace of another name than that
of deploy/: install, upgrade to the webhook, rollback to the policies, uninstall, and install again over the CRDs that stay."""

import json
import os
import re
import secrets
import time

import kit
import pytest
import resource_claims
import worlds
from arrivals import Load, all_succeed
from cluster import aliquot, release_before
from cluster import api as kube
from cluster.cluster import REPOSITORY
from kit import SLOT, SYSTEM, GiB, check_limit, check_limited, check_no_share_twice, check_view, container, half, pod
from resource_claims import DRIVER, SLICES, no_claim_left, using, wait_published, wait_registered
from test_upgrade import BOUND, EXTRA, PAUSE
from whole_cluster import AGENT_IMAGE
from worlds import placed_by

CHART = f"{REPOSITORY}/charts/aliquot"
RELEASE = "aliquot"
NAMESPACE = "gpus"
WAIT = "90s"
PLACE = ["--namespace", NAMESPACE, "--wait", "--timeout", WAIT]
CRD = "customresourcedefinition"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases"
PATHS = [f"/apis/apps/v1/namespaces/{NAMESPACE}/{name}" for name in ("daemonsets/aliquot-agent", "deployments/aliquot-scheduler")]
OWN_DIRECTORY = f"{REPOSITORY}/deploy/own-scheduler"


class Helm:
    def __init__(self, cluster):
        self.cluster = cluster
        self.mode = "own" if cluster.stock_scheduler else "extender"

    def __call__(self, verb, *arguments):
        return self.cluster.on_node(["helm", verb, *arguments], check=True).stdout

    def install(self, *settings):
        self("install", RELEASE, CHART, *PLACE, "--create-namespace", "--set", f"scheduler.mode={self.mode}", *settings)

    def upgrade(self, *settings):
        self("upgrade", RELEASE, CHART, *PLACE, "--reset-then-reuse-values", *settings)

    def names(self):
        """kind/name of every object of the release that is there, with its namespace."""
        manifest = f"{self.cluster.state}/manifest.yaml"
        with open(manifest, "w") as file:
            file.write(self("get", "manifest", RELEASE, "--namespace", NAMESPACE))
        return Objects(self.cluster, manifest)


class Objects:
    """The objects of a manifest, which outlives its release."""

    def __init__(self, cluster, manifest):
        self.cluster, self.manifest = cluster, manifest

    def left(self):
        seen = self.cluster.kubectl("get", "-f", self.manifest, "--ignore-not-found", "-o", "json")
        listed = json.loads(seen) if seen.strip() else {"items": []}
        return sorted(f'{one["kind"].lower()}/{one["metadata"]["name"]}' for one in listed.get("items", [listed]))


@pytest.fixture(scope="module")
def world(build, request):
    """A cluster with images and a driver, and nothing of Aliquot installed; for a mode of the scheduler."""
    with worlds.bare("chart-" + secrets.token_hex(2), build, own=request.param == "own") as made:
        yield made


@pytest.fixture
def helm(world):
    return Helm(world.cluster)


def unharmed(space, before, check=check_limited):
    """The pod is the same one, with the same container, and so is its share."""
    now = space.get(before["metadata"]["name"])
    assert now["metadata"]["uid"] == before["metadata"]["uid"]
    (old,), (new,) = (seen["status"]["containerStatuses"] for seen in (before, now))
    assert (new["containerID"], new["restartCount"]) == (old["containerID"], 0) and new["ready"]
    assert kit.assignment_of(now) == kit.assignment_of(before)
    check(space, now, 2 * GiB)


def apply_template(world, helm):
    """By kubectl over the release, Jobs and all: it stays the release's, and of what uninstalls it nothing is done."""
    version = world.api.get("/version")["gitVersion"]
    made = helm("template", RELEASE, CHART, "--namespace", NAMESPACE, "--kube-version", version, "--set", f"scheduler.mode={helm.mode}")
    before = [world.api.get(path)["spec"] for path in PATHS]
    world.cluster.kubectl("apply", "-f", "-", input=made)
    world.cluster.kubectl("wait", "-n", NAMESPACE, "--for=condition=Complete", "job/aliquot-uninstall", f"--timeout={WAIT}")
    assert "nothing is removed" in world.cluster.kubectl("logs", "-n", NAMESPACE, "job/aliquot-uninstall")
    assert [world.api.get(path)["spec"] for path in PATHS] == before


def judged_by(world):
    """The kinds of objects by which pods are judged."""
    api = "/apis/admissionregistration.k8s.io/v1/"
    kinds = {"mutatingadmissionpolicies": "aliquot-slot", "mutatingwebhookconfigurations": RELEASE}
    return {kind for kind, name in kinds.items() if world.api.exists(f"{api}{kind}/{name}")}


def start_other_dialect(space, name):
    """A pod whose request only admission completes. The API server follows a change of policies within a second, and the
    webhook takes its certificate to the API server when it starts."""
    body = pod(name, container(resources={"aliyun.com/gpu-mem": "3"}))

    def judged():
        tried = space.api.create(space.path, body, dryRun="All")
        return SLOT in tried["spec"]["containers"][0]["resources"]["limits"]
    space.world.until(judged, kit.START, f"admission of pod {name}")
    seen = space.start(body)
    check_limited(space, seen, 3 * GiB)
    space.delete(name, grace=0)


def doctor_finds_what_is_wrong(world):
    """By `helm test`, of which nothing is left. It prints what pods have printed as its errors."""
    def tried():
        return world.cluster.on_node(["helm", "test", RELEASE, "--namespace", NAMESPACE], check=False)
    done = tried()
    told = done.stderr
    assert done.returncode == 0, done
    for line in (r"ok +API server +Kubernetes v", r"ok +admission +requests are checked", r"ok +scheduler ", r"ok +placing ",
                 r"ok +signing key ", r"ok +versions ", r"ok +agents +agents that are ready: 1\n", r"ok +drivers ", r"ok +nodes ",
                 r"ok +other plugins ", r"ok +clocks "):
        assert re.search(line, told), told
    assert "wrong" not in told and "unsure" not in told, told
    events, name = kube.core("events", "default"), "doctor-must-find-this"
    world.api.create(events, {"metadata": {"name": name}, "type": "Warning", "reason": "ConfigurationInvalid", "message": "line 3",
                              "reportingComponent": "aliquot-agent", "source": {"component": "aliquot-agent"},
                              "involvedObject": {"kind": "Node", "name": world.cluster.node}})
    failed = tried()
    world.api.delete(f"{events}/{name}")
    assert failed.returncode != 0 and re.search(r"wrong +nodes +Node .*: ConfigurationInvalid: line 3", failed.stderr), failed
    kinds = "pods,serviceaccounts,clusterroles,clusterrolebindings,roles,rolebindings"
    assert "aliquot-doctor" not in world.cluster.kubectl("get", kinds, "-A", "-o", "name")


@pytest.mark.parametrize("world", ["extender", "own"], indirect=True)
def test_install_upgrade_rollback_uninstall(world, helm):
    begun = time.monotonic()
    helm.install()
    installed = time.monotonic()
    with kit.temporary_space(world) as space:
        first = space.start(pod("first", container(core=30, memory=2 * GiB)))
        assert (first["spec"]["schedulerName"] == "default-scheduler") == (helm.mode == "extender")
        print(f"{helm.mode}: helm install --wait {installed - begun:.1f} s, to the first shared pod running {time.monotonic() - begun:.1f} s")
        check_limited(space, first, 2 * GiB)
        assert judged_by(world) == {"mutatingadmissionpolicies"}
        assert "first" in world.aliquot("gpus", "--system", NAMESPACE)
        doctor_finds_what_is_wrong(world)

        apply_template(world, helm)
        unharmed(space, first)

        begun = time.monotonic()
        helm.upgrade("--set", "admission.mode=webhook,agent.podAnnotations.example=changed")
        print(f"helm upgrade --wait {time.monotonic() - begun:.1f} s")
        unharmed(space, first)
        assert judged_by(world) == {"mutatingwebhookconfigurations"}
        start_other_dialect(space, "by-webhook")

        begun = time.monotonic()
        helm("rollback", RELEASE, "1", *PLACE)
        print(f"helm rollback --wait {time.monotonic() - begun:.1f} s")
        unharmed(space, first)
        assert judged_by(world) == {"mutatingadmissionpolicies"}
        start_other_dialect(space, "by-policies")

        refused = world.cluster.on_node(["helm", "uninstall", RELEASE, *PLACE], check=False)
        assert refused.returncode != 0 and f"{space.name}/first on node" in refused.stdout + refused.stderr, refused
        unharmed(space, first)
    objects = helm.names()
    assert len(objects.left()) > 40
    helm("uninstall", RELEASE, *PLACE)
    left = objects.left()
    assert left and all(name.startswith(CRD) for name in left), left


def wait_slices(world):
    wait_published(world)
    wait_registered(world, NAMESPACE)


def start_claiming(space, name):
    """A pod with a ResourceClaim for a share of 2 GiB."""
    seen = space.start(using(pod(name, container()), resource_claims.template(space, core="30", memory="2Gi")))
    check_limit(space, seen, 2 * GiB)
    return seen


def of_claims(world):
    """What the API server has for claims of Aliquot's driver."""
    classes = world.api.get(f"{resource_claims.API}/deviceclasses")["items"] + world.api.get(SLICES)["items"]
    return [one["metadata"]["name"] for one in classes if DRIVER in one["metadata"]["name"]]


@pytest.mark.parametrize("world", ["extender"], indirect=True)
def test_claims_come_and_go(world, helm):
    """By a value of a release that runs, and with the rollback to the revision before; a pod with a share has its limits."""
    helm.install()
    aliquot.wait_gpus(world.cluster, 2)
    with kit.temporary_space(world) as space:
        first = space.start(pod("first", container(core=30, memory=2 * GiB)))
        helm.upgrade("--set", "dra.enabled=true")
        wait_slices(world)
        unharmed(space, first)
        start_claiming(space, "claiming")
        space.delete("claiming")
        no_claim_left(space)
        helm("rollback", RELEASE, "1", *PLACE)
        world.until(lambda: not of_claims(world), 120, "classes are gone, and slices, which kubelet deletes 30 s after the driver")
        unharmed(space, first)
        space.delete("first")
    helm("uninstall", RELEASE, *PLACE)


@pytest.mark.parametrize("world", ["own"], indirect=True)
def test_by_claims_alone(world, helm):
    """Beside a kube-scheduler without configuration: install, upgrade, rollback and uninstall with a pod that has a claim, and one
    that is given a claim for its resource names. Uninstall is refused while they run, and leaves the CRDs."""
    helm.mode = "dra"
    helm.install("--set", "dra.pods=true")
    wait_slices(world)
    with kit.temporary_space(world) as space:
        seen = [start_claiming(space, "first"), space.start(pod("by-names", container(core=30, memory=2 * GiB)))]
        assert seen[1]["spec"]["resourceClaims"] and seen[1]["spec"]["schedulerName"] == "default-scheduler"
        tried = world.cluster.on_node(["helm", "test", RELEASE, "--namespace", NAMESPACE], check=False)
        assert tried.returncode == 0 and not re.search(r"^(wrong|unsure)", tried.stderr, re.M), tried
        for step in (["upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set", "agent.podAnnotations.example=changed"],
                     ["rollback", RELEASE, "1"]):
            helm(*step, *PLACE)
            wait_slices(world)
            for one in seen:
                unharmed(space, one, check_limit)
            start_claiming(space, "later")
            space.delete("later")
        refused = world.cluster.on_node(["helm", "uninstall", RELEASE, *PLACE], check=False)
        told = refused.stdout + refused.stderr
        assert refused.returncode != 0 and f"{space.name}/first holds a share by ResourceClaim" in told, refused
        unharmed(space, seen[0], check_limit)
        space.delete("first", "by-names")
        no_claim_left(space)
    objects = helm.names()
    helm("uninstall", RELEASE, *PLACE)
    left = objects.left()
    assert left and all(name.startswith(CRD) for name in left), left
    assert of_claims(world) == []


def has_shares(directory):
    """Whether there are CDI files of shares."""
    return os.path.isdir(directory) and any(name.startswith("elasticgpu.io-share-") for name in os.listdir(directory))


@pytest.mark.parametrize("world", ["own"], indirect=True)
def test_install_over_what_was_kept_and_take_it_away(world, helm):
    """The CRDs are the release's again, upgraded, and go when they are not to be kept. With the values for EKS, an agent comes
    with the label of a node group with GPUs; directories of the host are values. Pods that name a scheduler in takeOver are
    placed by the own one."""
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/elasticgpuquotas.elasticgpu.io"
    world.api.patch(crd, {"spec": {"names": {"shortNames": ["outdated"]}}})
    helm.install("--values", f"{CHART}/values-eks.yaml", "--set", "crds.keep=false,cdi.dir=/etc/cdi,agent.hookDir=/opt/aliquot",
                 "--set", "scheduler.takeOver={hami-scheduler}")
    assert world.api.get(crd)["spec"]["names"].get("shortNames") != ["outdated"]
    agents = world.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/aliquot-agent")
    assert agents["status"]["desiredNumberScheduled"] == 0
    world.api.patch(kube.core("nodes", name=world.cluster.node), {"metadata": {"labels": {"k8s.amazonaws.com/accelerator": "a10g"}}})
    aliquot.wait_gpus(world.cluster, 2)
    with kit.temporary_space(world) as space:
        taken = space.start(pod("taken-over", container(core=30, memory=2 * GiB), schedulerName="hami-scheduler"))
        check_limited(space, taken, 2 * GiB)
        assert placed_by(space, "taken-over") == "hami-scheduler"
        shares, elsewhere = (has_shares(world.node_path(path)) for path in ("/etc/cdi", "/run/cdi"))
        assert shares and not elsewhere and os.listdir(world.node_path("/opt/aliquot"))
    objects = helm.names()
    helm("uninstall", RELEASE, *PLACE)
    world.until(lambda: not objects.left(), kit.START, "no object of the release left")


@pytest.mark.parametrize("world", ["extender"], indirect=True)
def test_objects_of_kubectl_become_the_releases(world, helm):
    """With --take-ownership, and without a restart of pods, those of the release before; upgrade, rollback, and `kubectl apply` of
    the release before again. Pods that arrive all the time succeed."""
    before = release_before.ensure()
    world.cluster.load_image(*before.images(f"{world.cluster.state}/images"))
    aliquot.apply(world.cluster, before.manifests("base"))
    place = ["--namespace", SYSTEM, "--wait", "--timeout", WAIT]
    with kit.temporary_space(world) as space:
        seen = space.start(pod("before", container(core=30, memory=2 * GiB)))
        with Load(space, PAUSE) as load:
            for step in (["install", RELEASE, CHART, "--take-ownership", "--set", "uninstall.timeout=5"],
                         ["upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set", "agent.podAnnotations.example=changed"],
                         ["rollback", RELEASE, "1"]):
                load.until(len(load.names) + EXTRA)
                helm(*step, *place)
                unharmed(space, seen)
            load.until(len(load.names) + EXTRA)
            aliquot.apply(world.cluster, before.manifests("base"))
            for what in ("ds/aliquot-agent", "deploy/aliquot-scheduler"):
                world.cluster.kubectl("rollout", "status", "-n", SYSTEM, what, f"--timeout={WAIT}")
            unharmed(space, seen)
            load.until(len(load.names) + EXTRA)
        all_succeed(space, load.names)
    done = world.cluster.on_node(["helm", "uninstall", RELEASE, *place])
    assert "a later call with --agent-image cleans them" in done.stdout + done.stderr, done     # the agent of 0.1.0 does not
    assert os.path.exists(world.node_path("/run/aliquot"))
    world.aliquot("uninstall", "--agent-image=" + AGENT_IMAGE)
    assert not os.path.exists(world.node_path("/run/aliquot"))
    world.api.wait(kube.core("namespaces"), SYSTEM, lambda seen: seen is None, BOUND, "the namespace is gone")


def is_noted(lease):
    return "elasticgpu.io/asked-by-cluster" in (lease or {}).get("metadata", {}).get("annotations", {})


def is_sent_to(space, scheduler):
    made = space.api.create(space.path, half("not-stored"), dryRun="All")
    return made["spec"]["schedulerName"] == scheduler


@pytest.mark.parametrize("world", ["extender"], indirect=True)
def test_both_modes_at_once(world):
    """Beside a kube-scheduler that asks, the chart refuses the mode `own`. Applied all the same, the own pair stands back and
    says so while the other goes on, and begins when that one asks no more. No share is given twice."""
    aliquot.apply(world.cluster)
    aliquot.wait_gpus(world.cluster, 2)
    with kit.temporary_space(world) as space:
        space.create(half("later", schedulingGates=[{"name": "example.com/later"}]))
        first = space.start(half("first"))
        world.api.wait(LEASES, "aliquot-scheduler", is_noted, 10, "the Lease with who is asked")   # at its next renewal
        refused = world.cluster.on_node(["helm", "install", RELEASE, CHART, "--namespace", SYSTEM, "--take-ownership", "--set",
                                         "scheduler.mode=own"], check=False)
        assert refused.returncode != 0 and "the cluster's kube-scheduler asks Aliquot" in refused.stderr, refused
        world.cluster.kubectl("apply", "-k", OWN_DIRECTORY)
        for _, event in world.api.watch(kube.core("events", SYSTEM), 60, fieldSelector="reason=ClusterKubeSchedulerAsks"):
            assert "remove the extender from the configuration" in event["message"]
            own = event["involvedObject"]["name"]
            break
        space.api.patch(f"{space.path}/later", {"spec": {"schedulingGates": []}})
        later = space.running("later")
        world.until(lambda: is_sent_to(space, "aliquot-scheduler"), 30, "pods are sent to the own scheduler")
        space.create(half("new"))
        assert "this replica with a kube-scheduler of its own stands back" in space.event("new", "stands back")
        assert kit.condition(world.api.get(kube.pods(SYSTEM, own)), "Ready")["status"] == "False"
        new = space.running("new", 90)
        assert new["spec"]["schedulerName"] == "aliquot-scheduler"
        assert first["spec"]["schedulerName"] == later["spec"]["schedulerName"] == "default-scheduler"
        check_no_share_twice([first, later, new])
        for seen in (first, later, new):
            check_view(space, seen)


LEFT = [("mutatingadmissionpolicies", "aliquot-scheduler-name"), ("mutatingadmissionpolicybindings", "aliquot-scheduler-name")]


def sent_to_none(world):
    """By doctor."""
    done = world.cluster.on_node([str(world.build / "src/cli/aliquot"), "doctor"], check=False)
    return "pods with a share are sent to the scheduler aliquot-scheduler, and no pod" in done.stdout


@pytest.mark.foreign
@pytest.mark.long
@pytest.mark.parametrize("world", ["own"], indirect=True)
def test_both_modes_at_once_with_the_own_one_first(world):
    """The cluster's kube-scheduler is configured while the pair acts, and asks no replica. Then deploy/base is applied, too, and
    the pair hands over. What kubectl leaves of the pair sends pods to no scheduler, which doctor says, until it is deleted. No
    share is given twice."""
    aliquot.apply(world.cluster)
    aliquot.wait_gpus(world.cluster, 2)
    with kit.temporary_space(world) as space:
        world.until(lambda: is_sent_to(space, "aliquot-scheduler"), 30, "pods are sent to the own scheduler")
        kept = [space.start(half("first"))]
        world.cluster.stock_scheduler = False
        world.cluster.restart("kube-scheduler")
        kept.append(space.start(half("second")))
        assert {seen["spec"]["schedulerName"] for seen in kept} == {"aliquot-scheduler"} and not sent_to_none(world)
        aliquot.apply(world.cluster, aliquot.DEPLOY)
        world.until(lambda: sent_to_none(world), 60, "doctor finds what is left")
        for kind, name in LEFT:
            world.api.delete(f"/apis/admissionregistration.k8s.io/v1/{kind}/{name}")
        world.until(lambda: is_sent_to(space, "default-scheduler"), 30, "pods are sent to the cluster's scheduler")
        kept.append(space.start(half("third"), 90))
        kept.append(space.start(half("fourth"), 90))
        space.create(half("fifth"))
        space.unschedulable("fifth")
        check_no_share_twice(kept)
        for seen in kept:
            check_view(space, seen)
    world.aliquot("uninstall", "--crds=delete")
    world.cluster.stock_scheduler = True
    world.cluster.restart("kube-scheduler")
    world.api.wait(kube.core("namespaces"), SYSTEM, lambda seen: seen is None, kit.START, "the namespace is gone")


@pytest.mark.parametrize("world", ["own"], indirect=True)
def test_a_kube_scheduler_that_does_not_ask(world, helm):
    """`helm test` fails when a pod with a share was placed by one, and says where its configuration is described."""
    helm.mode = "extender"
    helm.install("--set", "crds.keep=false")
    aliquot.wait_gpus(world.cluster, 2)
    with kit.temporary_space(world) as space:
        space.create(pod("unasked", container(core=30, memory=2 * GiB)))
        space.wait("unasked", lambda seen: seen["spec"].get("nodeName"), what="a node for the pod")
        failed = world.cluster.on_node(["helm", "test", RELEASE, "--namespace", NAMESPACE], check=False)
        told = failed.stderr.partition("  placing ")[2]
        assert failed.returncode != 0 and re.match(r" +\S+/unasked is on a node without an assignment", told), told
        assert "docs/install.md, step 3" in told
    helm("uninstall", RELEASE, *PLACE)


@pytest.mark.parametrize("world", ["own"], indirect=True)
def test_a_value_that_is_none_changes_nothing(world):
    """It is refused before anything is applied."""
    before = world.api.get(kube.core("namespaces"))["items"]
    made = world.cluster.on_node(["helm", "install", RELEASE, CHART, "--namespace", "other", "--create-namespace", "--set",
                                  "imgae.tag=dev"], check=False)
    assert made.returncode != 0 and "imgae" in made.stderr
    assert [n["metadata"]["name"] for n in world.api.get(kube.core("namespaces"))["items"]] == [n["metadata"]["name"] for n in before]
