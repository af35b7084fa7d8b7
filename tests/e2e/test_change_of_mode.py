# SPDX-License-Identifier: Apache-2.0
"""From the release before, which the cluster's kube-scheduler calls, to a kube-scheduler of Aliquot's own and back, as
docs/operations.md says: pods that run and pods that come, two a second, are not harmed, and pods that wait are placed."""

import secrets

import doc_commands
import kit
import pytest
import worlds
import yaml
from arrivals import Load, all_succeed
from cluster import aliquot, config, release_before
from kit import SYSTEM, GiB, check_no_share_twice, container, pod
from test_helm import CHART, LEASES, OWN_DIRECTORY, RELEASE, Helm, is_noted
from test_upgrade import BOUND, CORE, MEMORY, unharmed
from worlds import OWN, named, placed_by

STOCK = "default-scheduler"
CARDS = 2
PLACE = ["--namespace", SYSTEM, "--wait", "--timeout", f"{BOUND}s"]
# What is left of the own kube-scheduler, as it is taken away by hand.
DELETE = [command.text for command in doc_commands.commands()
          if command.path == "docs/operations.md" and "delete" in command.text and "scheduler" in command.text]
EXTRA = 6               # pods that come before and after each change, at least


@pytest.fixture(scope="module")
def before():
    """The manifests of the release before."""
    return release_before.ensure(say=print).manifests("base")


@pytest.fixture(scope="module")
def world(build):
    """A cluster with images, of the release before, too, and a driver."""
    with worlds.bare("mode-" + secrets.token_hex(2), build) as made:
        made.cluster.load_image(*release_before.ensure().images(f"{made.cluster.state}/images"))
        yield made


def configure(world, extender, *also):
    """The cluster's kube-scheduler calls Aliquot, for pods that name these schedulers, too; or it is as shipped."""
    cluster = world.cluster
    cluster.on_node(["sed", "-i", f"/^  - schedulerName: {OWN}$/d", config.SCHEDULER_CONFIGURATION])
    for name in also:
        cluster.on_node(["sed", "-i", f"s/^  - schedulerName: {STOCK}$/&\\n  - schedulerName: {name}/", config.SCHEDULER_CONFIGURATION])
    cluster.stock_scheduler = not extender
    cluster.restart("kube-scheduler")


def apply(world, directory):
    cluster = world.cluster
    cluster.kubectl("apply", "-k", directory)
    for what in ("ds/aliquot-agent", "deploy/aliquot-scheduler"):
        cluster.kubectl("rollout", "status", "-n", SYSTEM, what, f"--timeout={BOUND}s")


def of_own_scheduler(world):
    """The objects of deploy/own-scheduler and not of deploy/base that are there."""
    def objects(directory):
        return {(o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"])
                for o in yaml.safe_load_all(world.cluster.kubectl("kustomize", directory))}
    only = objects(OWN_DIRECTORY) - objects(aliquot.DEPLOY)
    assert len(only) > 10
    return [one for one in only if world.cluster.kubectl("get", one[0], one[2], "--ignore-not-found", "-o", "name",
                                                        *(["-n", one[1]] if one[1] else []))]


def to_own_by_kubectl(space, before):
    """Pods are sent to the own scheduler at once, which places them."""
    apply(space.world, OWN_DIRECTORY)
    none_waits(space)
    configure(space.world, False)


def back_by_kubectl(space, before):
    configure(space.world, True, OWN)
    apply(space.world, before)
    for command in DELETE:
        space.world.cluster.on_node(["bash", "-euc", command])
    assert not of_own_scheduler(space.world)


def to_own_by_helm(space, before):
    """Pods are sent to the own scheduler before there is one, and wait while the cluster's kube-scheduler is still believed to
    ask. Of kubectl's objects helm takes those of the same mode over."""
    cluster = space.world.cluster
    helm = Helm(cluster)
    own = ["--take-ownership", "--set", "scheduler.mode=own"]
    refused = cluster.on_node(["helm", "install", RELEASE, CHART, *own, *PLACE], check=False)
    assert refused.returncode != 0 and "that kubectl has applied is of the mode extender" in refused.stderr, refused
    helm("install", RELEASE, CHART, "--take-ownership", *PLACE)
    cluster.kubectl("apply", "-f", f"{OWN_DIRECTORY}/policy-scheduler-name.yaml")
    none_waits(space)
    configure(space.world, False)
    space.world.api.wait(LEASES, "aliquot-scheduler", lambda lease: not is_noted(lease), BOUND, "a Lease without a note")
    helm("upgrade", RELEASE, CHART, "--reset-then-reuse-values", *own, *PLACE)


def back_by_helm(space, before):
    configure(space.world, True, OWN)
    Helm(space.world.cluster)("upgrade", RELEASE, CHART, "--reset-then-reuse-values", "--set", "scheduler.mode=extender", *PLACE)
    apply(space.world, before)


def none_waits(space):
    """Pods are sent to the own scheduler, and the cluster's has placed those that name it, but the one that has no room: that is
    made again. Listed as in docs/operations.md."""
    def unplaced():
        return space.world.cluster.kubectl("get", "pods", "-n", space.name, "-o", "name", "--field-selector",
                                           f"spec.nodeName=,spec.schedulerName={STOCK}").split()
    space.world.until(lambda: named(space.world, container(core=CORE)) == OWN, BOUND, "pods are sent to the own scheduler")
    space.world.until(lambda: unplaced() == ["pod/waits"], BOUND, "pods that name the cluster's scheduler are placed")
    space.delete("waits")
    space.create(large("waits"))


def small(name):
    return pod(name, container(core=CORE, memory=MEMORY))


def large(name):
    """There is room for one on each card."""
    return pod(name, container(core=CORE, memory=42 * GiB))


@pytest.mark.parametrize("to_own, back", [
    pytest.param(to_own_by_kubectl, back_by_kubectl, id="kubectl"),
    pytest.param(to_own_by_helm, back_by_helm, id="helm", marks=[pytest.mark.foreign, pytest.mark.long])])
def test_to_an_own_kube_scheduler_and_back(world, before, space, to_own, back):
    configure(world, True)
    aliquot.apply(world.cluster, before)
    aliquot.wait_gpus(world.cluster, CARDS)
    full = space.start_all([large(f"large-{i}") for i in range(CARDS)])
    kept = [space.start(small("first"))]
    space.create(large("waits"))
    space.unschedulable("waits")
    with Load(space) as load:
        load.until(EXTRA)
        to_own(space, before)
        load.until(len(load.names) + EXTRA)
        kept.append(space.start(small("second"), BOUND))
        assert placed_by(space, "second") == OWN
        for seen in kept:
            unharmed(space, seen)

        back(space, before)
        world.until(lambda: named(world, container(core=CORE)) == STOCK, BOUND, "pods are sent to the cluster's scheduler")
        load.until(len(load.names) + EXTRA)
        kept.append(space.start(small("third"), BOUND))
        assert placed_by(space, "third") == STOCK
        for seen in kept:
            unharmed(space, seen)
        space.delete("large-0")
        full[0] = space.running("waits", BOUND)
        assert full[0]["spec"]["schedulerName"] == OWN
        check_no_share_twice(full + kept)
    all_succeed(space, load.names, BOUND)
