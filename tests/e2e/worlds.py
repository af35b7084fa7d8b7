# SPDX-License-Identifier: Apache-2.0
"""Clusters with Aliquot on them, in either mode of the scheduler."""

import contextlib
import os
import pathlib

import kit
from cluster import aliquot, binaries, images
from cluster import api as kube
from cluster.cluster import Cluster

OWN = "aliquot-scheduler"


def print_now(text):
    print(text, flush=True)


@contextlib.contextmanager
def installed(name, build, programs=(), driver_programs=(), own=False, claims=False, say=print_now):
    """Installed as by a user. own: with a kube-scheduler of Aliquot's own, beside a stock one that asks nothing.
    claims: with shares by ResourceClaims.
    programs, driver_programs: in the image of test pods, and in the driver's directory."""
    with Cluster(name, say=say, stock_scheduler=own) as cluster:
        cluster.up(save_logs=os.environ.get("ALIQUOT_E2E_LOGS"))
        deploy = with_short_backoff(cluster) if own else None
        deploy = aliquot.with_components(cluster, "dra", base=deploy) if claims else deploy
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe", *programs], deploy=deploy)
        aliquot.add_to_driver(cluster, *driver_programs)
        world = kit.World(cluster, build)
        world.wait_tokens(60)
        if own:
            world.until(lambda: named(world, kit.container(core=10)) == OWN, 30, "pods are sent to the own scheduler")
        yield world


@contextlib.contextmanager
def bare(name, build, own=False, second_node=False, say=print_now):
    """With helm, images and a driver on each node, and nothing of Aliquot installed. own: kube-scheduler is stock."""
    binaries.ensure(say, toolsets=(binaries.HELM,))
    with Cluster(name, say=say, stock_scheduler=own, second_node=second_node) as cluster:
        cluster.up()
        for node in cluster.nodes:
            aliquot.start_simulator(node, str(build), gpus=2)
        aliquot.load_images(cluster, str(build), [build / "tests/e2e/probe"])
        named = aliquot.own_scheduler_image(os.path.join(os.path.dirname(aliquot.DEPLOY), "own-scheduler"))
        cluster.load_image(images.kube_scheduler(named, f"{cluster.state}/images"))
        yield kit.World(cluster, build)


def with_short_backoff(cluster):
    """The manifests of the own kube-scheduler, which tries pods again as soon as that of other test clusters does."""
    copy = aliquot.with_options(f"{cluster.state}/deploy")
    file = pathlib.Path(copy, "own-scheduler/pair/kube-scheduler.yaml")
    before = "    kind: KubeSchedulerConfiguration\n"
    file.write_text(file.read_text().replace(before, before + "    podMaxBackoffSeconds: 1\n"))
    return aliquot.manifests(cluster, copy)


def named(world, *containers, **spec):
    """The scheduler of a pod as it would be stored."""
    made = world.api.create(kube.pods("default"), kit.pod("not-stored", *containers, **spec), dryRun="All")
    return made["spec"]["schedulerName"]


def placed_by(space, name):
    """The scheduler that says where it has put the pod."""
    selector = f"involvedObject.name={name},reason=Scheduled"
    for _, event in space.api.watch(kube.core("events", space.name), kit.START, fieldSelector=selector):
        return event.get("reportingComponent") or event["source"]["component"]
