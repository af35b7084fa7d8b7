# SPDX-License-Identifier: Apache-2.0
"""Shares by ResourceClaims: a stock kube-scheduler allocates, the agent is the DRA driver of kubelet."""

import contextlib
import os
import pathlib
import socket
import threading
import time

import kit
import pytest
import resource_claims
from cluster import aliquot
from cluster import api as kube
from cluster.api import ApiError
from cluster.cluster import Cluster
from kit import GiB, PORT, container, container_status, pod
from resource_claims import CLAIMS, DRIVER, FIRST_FIT, SLICES, path, wait_registered
from test_garbage import containers, grpc_garbage, throw, unix

READY = 120     # seconds until a pod runs after kubelet's second try, 60 to 75 s later
WAITED = 45     # within a call of kubelet
BACK = 1        # second in which slices are back after the watch has shown that they are gone
TOLD = 5        # seconds in which kubelet has the health of a card in the pod's status: 2 on an idle machine
CONFIG = "/run/aliquot/node.yaml"       # the configuration of the node
UNHEALTHY = DRIVER + "/unhealthy"


def of_kube_scheduler(directory):
    """The manifests in a new directory, as a user edits the component who wants cards of kube-scheduler."""
    aliquot.with_options(directory, f"--config-file={CONFIG}")
    component = pathlib.Path(directory, "dra/kustomization.yaml")
    before = component.read_text()
    component.write_text(before.replace("--resource-claims=aliquot", "--resource-claims=kube-scheduler"))
    assert component.read_text() != before
    return directory


@pytest.fixture(scope="module")
def world(build, programs):
    with Cluster(f"dra-{os.getpid()}", say=lambda text: print(text, flush=True), stock_scheduler=True) as cluster:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        cluster.on_node(["mkdir", "-p", os.path.dirname(CONFIG)])
        configure(cluster, "")
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe", *programs],
                        deploy=aliquot.with_components(cluster, "dra", directory=of_kube_scheduler(f"{cluster.state}/deploy")))
        made = kit.World(cluster, build)
        wait_slices(made)
        yield made
        made.wait_cleared()


@pytest.fixture
def space(world):
    with kit.temporary_space(world) as made:
        yield made
    nothing_left(world)


def configure(cluster, cards):
    """The entries of aliquot.cards, in force within 2 s where the agent runs."""
    cluster.on_node(["sh", "-c", f"cat > {CONFIG}.new; mv {CONFIG}.new {CONFIG}"],
                    input=f"version: v1\naliquot: {{cards: [{cards}]}}\n")


def slices(world):
    return [s for s in world.api.get(SLICES)["items"] if s["spec"]["driver"] == DRIVER]


def wait_slices(world, timeout=30):
    def there():
        return [d for s in slices(world) for d in s["spec"]["devices"] if d.get("allowMultipleAllocations")]
    return world.until(lambda: len(there()) == 2 and there(), timeout, "two cards in ResourceSlices")


def nothing_left(world):
    world.until(lambda: not world.shares(), 60, "no share left on the node")
    world.until(lambda: not world.api.get(CLAIMS)["items"], 60, "no claim left")


def template(space, **amounts):
    return {"resourceClaimTemplateName": resource_claims.template(space, FIRST_FIT, **amounts)}


def standing(space, **amounts):
    return {"resourceClaimName": resource_claims.standing(space, device_class=FIRST_FIT, **amounts)}


def using(name, claim, *ports):
    """A pod with a container at each port, all of which use the claim."""
    containers = [dict(container(f"c{port}", port), resources={"claims": [{"name": "gpu"}]}) for port in ports or (PORT,)]
    return pod(name, *containers, resourceClaims=[dict(claim, name="gpu")])


def claim_path(space, name=None):
    return path(space, "resourceclaims", name)


def claim_of(space, seen):
    (status,) = seen["status"]["resourceClaimStatuses"]
    return space.api.get(claim_path(space, status["resourceClaimName"]))


def allocation(space, seen):
    """The one result of the pod's claim."""
    (result,) = claim_of(space, seen)["status"]["allocation"]["devices"]["results"]
    return result


def device(world, name):
    """A device of the slices, with `attributes` as plain values and the effects of its taints in `effects`."""
    found = next((d for s in slices(world) for d in s["spec"].get("devices", []) if d["name"] == name), None)
    assert found, f"device {name} is in no slice"
    attributes = {key: next(iter(value.values())) for key, value in found["attributes"].items()}
    effects = sorted(taint["effect"] for taint in found.get("taints", []) if taint["key"] == UNHEALTHY)
    return dict(found, attributes=attributes, effects=effects)


def card_of(world, name):
    """The GPU object of a device."""
    return next(g for g in world.gpus() if g["spec"]["uuid"].lower() == name)


def share_of(tenant):
    return tenant.info()["total"]


def test_a_pod_runs_under_its_limit(world, space):
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    assert allocation(space, seen)["consumedCapacity"] == {"core": "30", "memory": "20Gi"}
    with space.tenant(seen) as tenant:
        assert [d["total"] for d in tenant.driver()["devices"]] == [20 * GiB]
        used = tenant.info()["total"] - tenant.info()["free"]
        assert tenant.alloc(20 * GiB - used + 1) == kit.OUT_OF_MEMORY
        assert tenant.alloc(20 * GiB - used) == 0
        assert tenant.alloc(1) == kit.OUT_OF_MEMORY
        (held,) = kit.holders(world.usage())["one", f"c{PORT}"]
        assert held["memoryLimit"] == 20 * GiB
        world.until(lambda: kit.holders(world.usage())["one", f"c{PORT}"][0]["memoryDriver"] > 0, 20,
                    "the driver's figures of the process under the claim's share")
    space.delete("one")


def test_two_pods_on_one_card(world, space):
    first, second = space.start_all([using(name, template(space, core="30", memory="20Gi")) for name in ("one", "two")],
                                    timeout=READY)
    cards = [allocation(space, seen)["device"] for seen in (first, second)]
    assert cards[0] == cards[1]
    for seen in (first, second):
        with space.tenant(seen) as tenant:
            assert tenant.info()["total"] == 20 * GiB
    space.delete("one", "two")


def test_containers_and_pods_share_a_claim(world, space):
    """One ledger: what one of them has is not there for the others."""
    claim = standing(space, core="30", memory="20Gi")
    first = space.start(using("one", claim, PORT, PORT + 1), timeout=READY)
    second = space.start(using("two", claim), timeout=READY)
    with space.tenant(first) as a, space.tenant(first, PORT + 1) as b, space.tenant(second) as c:
        assert a.alloc(12 * GiB) == 0
        assert b.alloc(9 * GiB) == kit.OUT_OF_MEMORY
        assert c.alloc(9 * GiB) == kit.OUT_OF_MEMORY
        assert b.alloc(4 * GiB) == 0
    space.delete("one")
    with space.tenant(second) as c:     # the share outlives the first pod
        assert c.alloc(15 * GiB) == 0
    space.delete("two")
    space.api.delete(claim_path(space, claim["resourceClaimName"]))


def test_the_agent_is_killed_between_prepare_and_unprepare(world, space):
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    before = world.agent.kill()
    world.agent.wait_restarted(before)
    wait_registered(world)
    with space.tenant(seen) as tenant:
        assert tenant.alloc(21 * GiB) == kit.OUT_OF_MEMORY
        assert tenant.alloc(15 * GiB) == 0
    before = world.agent.kill()
    space.begin_delete("one")
    world.agent.wait_restarted(before)
    wait_registered(world)
    space.wait("one", lambda now: now is None, READY, "pod one gone")


def test_a_forced_delete(world, space):
    """The claim is gone at once and the share free for kube-scheduler, the container still runs: the next one waits for it, and
    not for kubelet's second try, a minute later."""
    first = space.start(using("one", template(space, core="80", memory="60Gi")), timeout=READY)
    claim = claim_of(space, first)["metadata"]["name"]
    other = space.start(using("other", template(space, core="80", memory="60Gi")), timeout=READY)
    begun = time.monotonic()
    space.delete("one", grace=0)
    space.api.wait(claim_path(space), claim, lambda seen: seen is None, 30, "the claim is gone")
    gone = time.monotonic() - begun
    seen = space.start(using("two", template(space, core="80", memory="60Gi")), timeout=WAITED + 10)
    print(f"forced delete: claim gone after {gone:.1f} s, the next pod runs after {time.monotonic() - begun:.1f} s")
    assert allocation(space, seen)["device"] != allocation(space, other)["device"]
    space.delete("two", "other")


class Watched(threading.Thread):
    """Notes when slices of the driver are deleted and made, as a watch shows it."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.gone, self.made, self.began = world, {}, {}, threading.Event()
        self.start()
        assert self.began.wait(30), "no slice was seen"

    def run(self):
        with contextlib.suppress(kube.Timeout, OSError):
            for kind, seen in self.world.api.watch(SLICES, 120):
                if seen["spec"]["driver"] == DRIVER and kind in ("ADDED", "DELETED"):
                    (self.made if kind == "ADDED" else self.gone).setdefault(seen["metadata"]["uid"], time.monotonic())
                    self.began.set()

    def back(self):
        """Seconds from the last deletion to the slice that came after it; None: there is none yet."""
        if not self.gone:
            return None
        last = max(self.gone.values())
        after = [at - last for at in self.made.values() if at > last]
        return min(after) if after else None


def test_kubelet_restarts(world, space):
    """It deletes the slices, which come back, and the pod runs on."""
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    watched = Watched(world)
    world.restart_kubelet()
    seconds = world.until(watched.back, 60, "kubelet has deleted the slices, and they are back")
    print(f"slices are back {1000 * seconds:.0f} ms after the watch has shown that they are gone")
    assert seconds <= BACK
    wait_slices(world)
    again = space.start(using("two", template(space, core="30", memory="20Gi")), timeout=READY)
    for pod_ in (seen, again):
        with space.tenant(pod_) as tenant:
            assert share_of(tenant) == 20 * GiB
    assert container_status(space.get("one"), f"c{PORT}")["restartCount"] == 0
    space.delete("one", "two")


def health_of(seen):
    """What kubelet says of the pod's devices: {resource ID: (health, message)}."""
    return {r["resourceID"]: (r["health"], r.get("message", ""))
            for c in seen["status"].get("containerStatuses", []) for s in c.get("allocatedResourcesStatus", [])
            for r in s["resources"]}


def test_the_health_of_a_card(world, space):
    """kubelet tells the pod, a taint keeps others away, and both end when the card heals."""
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    name = allocation(space, seen)["device"]
    card = ["--gpu", str(card_of(world, name)["spec"]["index"])]

    def told(health, text):
        return lambda now: health_of(now) and all(h == health and text in m for h, m in health_of(now).values())
    space.wait("one", told("Healthy", ""), 40, "kubelet has the health of the card")
    begun = time.monotonic()
    world.aliquot("sim", "inject", "xid", "48", *card)
    try:
        space.wait("one", told("Unhealthy", "XID 48"), 30, "kubelet has told that the card is not healthy")
        seconds = time.monotonic() - begun
        print(f"allocatedResourcesStatus says so {seconds:.2f} s after the XID")
        assert seconds <= TOLD
        world.until(lambda: device(world, name)["effects"] == ["NoSchedule"], 10, "the device is tainted")
        beside = space.start(using("beside", template(space, core="30", memory="20Gi")), timeout=READY)
        assert allocation(space, beside)["device"] != name
    finally:
        world.aliquot("sim", "inject", "reset", "--force", *card)
    space.wait("one", told("Healthy", ""), 30, "kubelet has told that the card is healthy")
    world.until(lambda: not device(world, name)["effects"], 10, "the device has no taint")
    assert container_status(space.get("one"), f"c{PORT}")["restartCount"] == 0
    space.delete("one", "beside")


def test_a_card_is_drained(world, space):
    """On a card of kube-scheduler the taint ends the pods."""
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    name = allocation(space, seen)["device"]
    card = card_of(world, name)["metadata"]["name"]
    begun = time.monotonic()
    world.aliquot("card", "drain", card)
    try:
        space.wait("one", lambda now: now is None, 60, "the pod has ended")
        print(f"a pod on a drained card is gone after {time.monotonic() - begun:.1f} s")
        world.until(lambda: device(world, name)["effects"] == ["NoSchedule"], 30, "the device keeps others away")
    finally:
        world.aliquot("card", "uncordon", card, "--wait", "20")
    world.until(lambda: not device(world, name)["effects"], 10, "the device has no taint")


def test_a_claim_deleted_under_a_pod(world, space):
    """It stays until the pod has ended, which runs on with its share."""
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    name = claim_of(space, seen)["metadata"]["name"]
    space.api.delete(claim_path(space, name))
    assert "deletionTimestamp" in space.api.get(claim_path(space, name))["metadata"]
    with space.tenant(seen) as tenant:
        assert tenant.alloc(21 * GiB) == kit.OUT_OF_MEMORY
        assert tenant.alloc(15 * GiB) == 0
    space.delete("one")
    space.api.wait(claim_path(space), name, lambda seen: seen is None, 30, "the claim is gone")


def allocate(space, name, claim, user):
    """As another allocator does with a view older than the first one's write: that claim's device once more, for that pod."""
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    devices = {"results": [dict(result, shareID="5b1c2d3e-4f50-4a61-8b72-93a4b5c6d7e8")]}
    claim_at = claim_path(space, name)
    space.api.patch(claim_at, {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}})
    space.api.patch(claim_at + "/status", {"status": {
        "allocation": dict(claim["status"]["allocation"], devices=devices),
        "reservedFor": [{"resource": "pods", "name": user["metadata"]["name"], "uid": user["metadata"]["uid"]}]}})


def allocated_twice(space):
    """A pod with most of a card, and one that is bound with the same part of the same card."""
    first = space.start(using("one", template(space, core="80", memory="60Gi")), timeout=READY)
    late = standing(space, core="80", memory="60Gi")
    body = using("two", late)
    body["spec"]["schedulingGates"] = [{"name": "aliquot.test/held"}]
    space.create(body)
    allocate(space, late["resourceClaimName"], claim_of(space, first), space.get("two"))
    space.api.patch(space.path + "/two", {"spec": {"schedulingGates": []}})
    space.wait("two", lambda seen: seen["spec"].get("nodeName"), 30, "kube-scheduler has bound the second pod")
    return late["resourceClaimName"]


def starts_after_the_first(space, late, timeout):
    space.delete("one")
    with space.tenant(space.running("two", timeout)) as tenant:
        assert share_of(tenant) == 60 * GiB
    space.delete("two")
    space.api.delete(claim_path(space, late))


def test_two_allocators_on_one_card(world, space):
    """Nothing in Kubernetes compares claims with each other: the agent has the last word, and the second pod waits."""
    late = allocated_twice(space)
    beside = space.start(using("beside", template(space, core="80", memory="60Gi")), timeout=READY)     # bound later
    assert allocation(space, beside)["device"] != allocation(space, space.get("one"))["device"]
    assert kit.is_running(space.get("one")) and not kit.is_running(space.get("two"))
    assert len(world.shares()) == 4     # two shares, and the CDI file of each
    starts_after_the_first(space, late, READY)
    space.delete("beside")


def test_a_card_changes_hands(world, space):
    """While nothing of it is held; the other card does at once, and kube-scheduler leaves it alone."""
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    held = allocation(space, seen)["device"]
    (idle,) = [d["name"] for s in slices(world) for d in s["spec"]["devices"] if d["name"] != held]

    def allocator(name):
        return device(world, name)["attributes"]["allocator"]
    configure(world.cluster, "{devices: all, allocator: aliquot}")
    try:
        world.until(lambda: allocator(idle) == "aliquot", 10, "the idle card has another allocator")
        world.until(lambda: device(world, held)["effects"] == ["NoSchedule"], 10, "the other one takes no claims")
        assert allocator(held) == "kube-scheduler"
        why = "aliquot-scheduler allocates it to ResourceClaims when shares that kube-scheduler has allocated have ended: 1 left"
        world.until(lambda: card_of(world, held)["status"].get("reason") == why, 10, "its GPU object says why")
        world.card_event(card_of(world, held)["metadata"]["name"], why)
        space.create(using("two", template(space, core="30", memory="20Gi")))
        assert "cannot allocate all claims" in space.unschedulable("two")
        with space.tenant(seen) as tenant:
            assert tenant.alloc(15 * GiB) == 0
        before = world.agent.kill()
        world.agent.wait_restarted(before)
        wait_registered(world)
        assert allocator(held) == "kube-scheduler"
        space.delete("one", "two")
        world.until(lambda: allocator(held) == "aliquot" and not device(world, held)["effects"], 30, "it has changed hands")
    finally:
        configure(world.cluster, "")
    world.until(lambda: {allocator(held), allocator(idle)} == {"kube-scheduler"}, 10, "both are kube-scheduler's again")


GARBAGE = {
    f"plugins_registry/{DRIVER}-reg.sock": {"/pluginregistration.Registration/": ("GetInfo", "NotifyRegistrationStatus", "None")},
    f"plugins/{DRIVER}/dra.sock": {
        "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/": ("NodePrepareResources", "NodeUnprepareResources"),
        "/v1alpha1.DRAResourceHealth/": ("NodeWatchResources",)},
}


@pytest.mark.parametrize("file", GARBAGE)
def test_garbage_on_a_socket(world, space, file):
    before = containers(world.agent)
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    for service, verbs in GARBAGE[file].items():
        for data in grpc_garbage(service.encode(), [verb.encode() for verb in verbs]):
            throw(unix(world.node_path(f"/var/lib/kubelet/{file}"), socket.SOCK_STREAM), data)
    assert containers(world.agent) == before
    with space.tenant(seen) as tenant:
        assert share_of(tenant) == 20 * GiB
    space.start(using("two", template(space, core="30", memory="20Gi")), timeout=READY)
    space.delete("one", "two")


@contextlib.contextmanager
def agent_dies(world):
    """In the block the agent hangs, with what kubelet asks of it. Then it is killed, and there is another one."""
    before = world.agent.status()
    world.ctr("tasks", "kill", "-s", "SIGSTOP", before["containerID"].partition("://")[2])
    try:
        yield
    finally:
        world.kill_container(before)
        world.agent.wait_restarted(before)
        wait_registered(world)


def wait_ended(world, seen):
    """Until no process of the pod's containers runs, also while kubelet does not say so."""
    names = [s["containerID"].partition("://")[2] for s in seen["status"]["containerStatuses"]]

    def running():
        return [line for line in world.ctr("tasks", "ls").splitlines() if "RUNNING" in line and line.split()[0] in names]
    world.until(lambda: not running(), 30, "its containers have ended")


def test_the_agent_is_killed_while_kubelet_unprepares(world, space):
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    with agent_dies(world):
        space.begin_delete("one")
        wait_ended(world, seen)
        assert space.get("one")
    space.wait("one", lambda now: now is None, READY, "pod one gone")


@pytest.mark.foreign
@pytest.mark.long
def test_the_agent_is_killed_before_prepare(world, space):
    """kubelet's call gets no answer: it tries again a minute later."""
    with agent_dies(world):
        space.create(using("one", template(space, core="30", memory="20Gi")))
        space.wait("one", lambda seen: seen["spec"].get("nodeName"), 30, "pod one bound")
    with space.tenant(space.running("one", READY)) as tenant:
        assert share_of(tenant) == 20 * GiB
    space.delete("one")


@pytest.mark.foreign
@pytest.mark.long
def test_the_agent_is_killed_during_prepare(world, space):
    """The next agent keeps the share of the first pod, which the second one waits for."""
    late = allocated_twice(space)
    before = world.agent.kill()
    world.agent.wait_restarted(before)
    wait_registered(world)
    assert kit.is_running(space.get("one")) and not kit.is_running(space.get("two"))
    starts_after_the_first(space, late, READY)


def test_the_agent_writes_slices_of_its_node_only(world, space):
    agent = world.api.as_user("system:serviceaccount:aliquot-system:aliquot-agent")
    with pytest.raises(ApiError, match="aliquot-agent-slices"):
        agent.create(SLICES, {"metadata": {"name": "others"}, "spec": {
            "driver": DRIVER, "nodeName": "another", "devices": [{"name": "gpu-0"}],
            "pool": {"name": "another", "generation": 1, "resourceSliceCount": 1}}})
