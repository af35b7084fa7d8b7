# SPDX-License-Identifier: Apache-2.0
"""Shares by ResourceClaims: a stock kube-scheduler allocates, the agent is the DRA driver of kubelet."""

import os
import pathlib
import secrets
import shutil

import kit
import pytest
from cluster import aliquot
from cluster import api as kube
from cluster.api import ApiError
from cluster.cluster import Cluster
from kit import GiB, PORT, container, pod

GROUP = "/apis/resource.k8s.io/v1"
SLICES = f"{GROUP}/resourceslices"
DRIVER = "gpu.elasticgpu.io"
CLASS = "first-fit." + DRIVER
READY = 120     # seconds until a pod runs after kubelet's second try, 60 to 75 s later


def of_kube_scheduler(directory):
    """The manifests in a new directory, as a user edits the component who wants cards of kube-scheduler."""
    shutil.copytree(os.path.dirname(aliquot.DEPLOY), directory)
    component = pathlib.Path(directory, "dra/kustomization.yaml")
    before = component.read_text()
    component.write_text(before.replace("--resource-claims=aliquot", "--resource-claims=kube-scheduler"))
    assert component.read_text() != before
    return directory


@pytest.fixture(scope="module")
def world(build, programs):
    with Cluster(f"dra-{os.getpid()}", say=lambda text: print(text, flush=True), stock_scheduler=True) as cluster:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
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


def slices(world):
    return [s for s in world.api.get(SLICES)["items"] if s["spec"]["driver"] == DRIVER]


def wait_slices(world, timeout=30):
    def there():
        return [d for s in slices(world) for d in s["spec"]["devices"] if d.get("allowMultipleAllocations")]
    return world.until(lambda: len(there()) == 2 and there(), timeout, "two cards in ResourceSlices")


def nothing_left(world):
    world.until(lambda: not world.shares(), 60, "no share left on the node")
    world.until(lambda: not world.api.get(f"{GROUP}/resourceclaims")["items"], 60, "no claim left")


def spec(**amounts):
    exactly = {"deviceClassName": CLASS, "capacity": {"requests": amounts}}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


def template(space, **amounts):
    path = f"{GROUP}/namespaces/{space.name}/resourceclaimtemplates"
    name = "t-" + secrets.token_hex(3)
    space.api.create(path, {"metadata": {"name": name}, "spec": {"spec": spec(**amounts)}})
    return {"resourceClaimTemplateName": name}


def standing(space, **amounts):
    name = "c-" + secrets.token_hex(3)
    space.api.create(f"{GROUP}/namespaces/{space.name}/resourceclaims", {"metadata": {"name": name}, "spec": spec(**amounts)})
    return {"resourceClaimName": name}


def using(name, claim, *ports):
    """A pod with a container at each port, all of which use the claim."""
    containers = [dict(container(f"c{port}", port), resources={"claims": [{"name": "gpu"}]}) for port in ports or (PORT,)]
    return pod(name, *containers, resourceClaims=[dict(claim, name="gpu")])


def allocation(space, seen):
    """The one result of the pod's claim."""
    (status,) = seen["status"]["resourceClaimStatuses"]
    claim = space.api.get(f"{GROUP}/namespaces/{space.name}/resourceclaims/{status['resourceClaimName']}")
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    return result


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
    space.api.delete(f"{GROUP}/namespaces/{space.name}/resourceclaims/{claim['resourceClaimName']}")


def test_the_agent_is_killed_between_prepare_and_unprepare(world, space):
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    before = world.agent.kill()
    world.agent.wait_restarted(before)
    with space.tenant(seen) as tenant:
        assert tenant.alloc(21 * GiB) == kit.OUT_OF_MEMORY
        assert tenant.alloc(15 * GiB) == 0
    before = world.agent.kill()
    space.begin_delete("one")
    world.agent.wait_restarted(before)
    space.wait("one", lambda now: now is None, READY, "pod one gone")


def test_a_forced_delete(world, space):
    """The claim is gone at once and the share free for kube-scheduler, the container still runs: the next one waits for it."""
    space.start(using("one", template(space, core="80", memory="60Gi")), timeout=READY)
    other = space.start(using("other", template(space, core="80", memory="60Gi")), timeout=READY)
    space.delete("one", grace=0)
    seen = space.start(using("two", template(space, core="80", memory="60Gi")), timeout=55)
    assert allocation(space, seen)["device"] != allocation(space, other)["device"]
    space.delete("two", "other")


def test_kubelet_restarts(world, space):
    """It deletes the slices, which come back, and the pod runs on."""
    seen = space.start(using("one", template(space, core="30", memory="20Gi")), timeout=READY)
    before = {s["metadata"]["uid"] for s in slices(world)}
    world.restart_kubelet()
    world.until(lambda: {s["metadata"]["uid"] for s in slices(world)}.isdisjoint(before), 60, "kubelet has deleted the slices")
    wait_slices(world)
    again = space.start(using("two", template(space, core="30", memory="20Gi")), timeout=READY)
    for pod_ in (seen, again):
        with space.tenant(pod_) as tenant:
            assert tenant.info()["total"] == 20 * GiB
    assert kit.container_status(space.get("one"), f"c{PORT}")["restartCount"] == 0
    space.delete("one", "two")


def test_the_agent_writes_slices_of_its_node_only(world, space):
    agent = world.api.as_user("system:serviceaccount:aliquot-system:aliquot-agent")
    with pytest.raises(ApiError, match="aliquot-agent-slices"):
        agent.create(SLICES, {"metadata": {"name": "others"}, "spec": {
            "driver": DRIVER, "nodeName": "another", "devices": [{"name": "gpu-0"}],
            "pool": {"name": "another", "generation": 1, "resourceSliceCount": 1}}})
