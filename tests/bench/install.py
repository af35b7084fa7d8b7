#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what an operator waits for, on real clusters with simulated GPUs, in both modes of the scheduler: helm install to the
first pod with a share, upgrade and rollback while two pods a second arrive, the memory of a pair (a kube-scheduler of our own
and the aliquot-scheduler beside it), and the takeover when the node of the leading pair is lost.

    make bench-install                                          all, in about 15 minutes
    make bench-install ARGS="--part helm --rounds 5"            one part, more often

It exits with 1 where a pod failed or a container started again in an upgrade or a rollback. Times depend on the machine's other
work: its load average when each round began is in the table.
"""

import argparse
import os
import pathlib
import sys
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench")]

import arrivals                                         # noqa: E402  (the path comes first)
import kit                                              # noqa: E402
import worlds                                           # noqa: E402
from cluster import aliquot, release_before             # noqa: E402
from cluster import api as kube                         # noqa: E402
from cluster_bench import memory_of                     # noqa: E402
from figures import machine, write_between              # noqa: E402
from test_helm import NAMESPACE, PLACE, RELEASE, Helm   # noqa: E402
from test_two_nodes import make_leader, takeover        # noqa: E402

MODES = ("extender", "own")
CALM = 6                # pods that arrive before a change, and after it
BOUND = 120             # seconds
NEXT = "next"           # tag of the images that an upgrade goes to


class Figures:
    """A table: what was measured, in each mode."""

    def __init__(self):
        self.rows = {}
        self.harm = 0       # pods that failed, and containers that started again

    def add(self, what, mode, value):
        self.rows.setdefault(what, {}).setdefault(mode, []).append(value)

    def text(self):
        lines = ["| measured | " + " | ".join(f"`{mode}`" for mode in MODES) + " |", "|---" * (1 + len(MODES)) + "|"]
        lines += [f"| {what} | " + " | ".join(", ".join(found.get(mode, ["-"])) for mode in MODES) + " |"
                  for what, found in self.rows.items()]
        return "\n".join([machine(), "", *lines])


def load():
    return f"{os.getloadavg()[0]:.1f}"


# ---- parts ----

def by_helm(build, rounds, figures, say):
    """An installation on a new cluster in each round, the modes in turn, and the rest in the last ones."""
    for number in range(rounds):
        for mode in MODES:
            with worlds.bare(f"bench-{os.getpid()}", build, own=mode == "own", say=say) as world:
                helm = Helm(world.cluster)
                with kit.temporary_space(world) as space:
                    install(helm, space, figures, say)
                    if mode == "own":
                        memory(world, figures, "just installed")
                    if number + 1 == rounds:
                        upgrade(world, helm, space, figures, say)
                        if mode == "own":
                            memory(world, figures, "after these pods")


def install(helm, space, figures, say):
    say(f"helm install, mode {helm.mode}")
    figures.add("load average before `helm install`", helm.mode, load())
    begun = time.monotonic()
    helm.install()
    returned = time.monotonic() - begun
    space.start(kit.pod("first", kit.container(core=30, memory=2 * kit.GiB)), BOUND)
    runs = time.monotonic() - begun
    figures.add("`helm install --wait` to the first pod with a share running (aim: 20 s)", helm.mode, f"{runs:.1f} s")
    figures.add("of it until helm returns", helm.mode, f"{returned:.1f} s")
    say(f"first pod {runs:.1f} s")


def upgrade(world, helm, space, figures, say):
    """To the same images by another name, so that every pod of Aliquot is replaced, and back."""
    for name in world.ctr("images", "ls", "-q").split():
        repository, _, tag = name.rpartition(":")
        if repository.rpartition("/")[2] in ("aliquot-agent", "aliquot-scheduler"):
            world.ctr("images", "tag", name, f"{repository}:{NEXT}")

    def change():
        say("helm upgrade")
        helm.upgrade("--set", f"image.tag={NEXT}")
        say("helm rollback")
        helm("rollback", RELEASE, "1", *PLACE)
    harm(world, space, change, "`helm upgrade` and `helm rollback`", figures, helm.mode)


def by_kubectl(build, rounds, figures, say):
    """From the release before and back to it, once."""
    before = release_before.ensure(say)
    with worlds.bare(f"bench-{os.getpid()}", build, say=say) as world:
        cluster = world.cluster
        cluster.load_image(*before.images(f"{cluster.state}/images"))
        aliquot.apply(cluster, before.manifests("base"))
        aliquot.wait_gpus(cluster, 2)

        def change():
            for directory in (aliquot.manifests(cluster), before.manifests("base")):
                say(f"kubectl apply -k {directory}")
                cluster.kubectl("apply", "-k", directory)
                for what in ("ds/aliquot-agent", "deploy/aliquot-scheduler"):
                    cluster.kubectl("rollout", "status", "-n", kit.SYSTEM, what, f"--timeout={BOUND}s")
        with kit.temporary_space(world) as space:
            space.start(kit.pod("first", kit.container(core=30, memory=2 * kit.GiB)))
            harm(world, space, change, f"`kubectl apply` from {before.version} and back", figures, "extender")


def harm(world, space, change, name, figures, mode):
    """What a change does to pods that arrive meanwhile and to all containers."""
    begun = time.monotonic()
    busy = load()
    with arrivals.Load(space) as arriving:
        arriving.until(CALM)
        change()
        arriving.until(len(arriving.names) + CALM)
        rate = len(arriving.names) / (time.monotonic() - begun)
    seen = [space.wait(pod, lambda s: s["status"].get("phase") in ("Succeeded", "Failed"), BOUND, f"pod {pod} ended")
            for pod in arriving.names]
    failed = sum(pod["status"]["phase"] == "Failed" for pod in seen)
    again = sum(status["restartCount"] for pod in world.api.get("/api/v1/pods")["items"]
                for status in pod["status"].get("containerStatuses", []))
    figures.harm += failed + again
    figures.add(f"{name} (load average before)", mode, f"{len(seen)} pods, {rate:.1f} a second; {failed} failed, {again} containers "
                                                       f"started again ({busy})")


def memory(world, figures, when):
    """Of the pair that has more; MB are 10^6 bytes, as in the aim."""
    sizes = []
    for seen in world.api.get(kube.pods(NAMESPACE))["items"]:
        if seen["metadata"]["name"].startswith("aliquot-scheduler") and "deletionTimestamp" not in seen["metadata"]:
            sizes.append({status["name"]: memory_of(world.cluster.host_pid(int(world.first_process(status))))
                          for status in seen["status"]["containerStatuses"]})
    pair = max(sizes, key=lambda pair: sum(one["Rss"] for one in pair.values()))
    parts = ", ".join(f"{name} {one['Rss'] / 1e6:.0f} ({one['Pss'] / 1e6:.0f})" for name, one in sorted(pair.items()))
    figures.add(f"resident memory of a pair, {when} (aim: 90 MB), of its parts (proportional)", "own",
                f"{sum(one['Rss'] for one in pair.values()) / 1e6:.0f} MB: {parts}")


def take_over(build, rounds, figures, say):
    """By the pair on the first node, when the second one is lost with the leading pair."""
    with worlds.Cluster(f"bench-{os.getpid()}", say=say, stock_scheduler=True, second_node=True) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), programs=[build / "tests/e2e/probe"])
        world, lost = kit.World(cluster, build), cluster.second
        for number in range(rounds):
            world.until(lambda: worlds.named(world, kit.container(core=10)) == worlds.OWN, 30, "pods are sent to the own scheduler")
            make_leader(world, lost.node)
            with kit.temporary_space(world) as space:
                busy, begun = load(), time.monotonic()
                lost.lose()
                space.create(kit.pod("next", kit.container(core=10)))
                took = takeover(world, lost.node, lambda: space.get("next"), begun)
                figures.add("loss of the leader's node to the next pod bound, of two nodes (aim: 20 s)", "own", f"{took['next pod bound']:.1f} s")
                figures.add("load average before the loss", "own", busy)
                say(", ".join(f"{what} {seconds:.1f} s" for what, seconds in took.items()))
                if number + 1 < rounds:
                    lost.boot()
                    aliquot.start_simulator(lost, str(build))
                    lost.join()
                    aliquot.wait_gpus(cluster, 2)


PARTS = {"helm": by_helm, "kubectl": by_kubectl, "takeover": take_over}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--rounds", type=int, default=3, help="of what is repeated: an installation, a takeover")
    parser.add_argument("--part", choices=PARTS, action="append", help="instead of all; can be repeated")
    parser.add_argument("--write", type=pathlib.Path, help="also put the table between the markers in this file")
    options = parser.parse_args()

    def say(text):
        print(f"== {text}", file=sys.stderr, flush=True)

    figures = Figures()
    for part in options.part or PARTS:
        PARTS[part](options.build.resolve(), options.rounds, figures, say)
    print(figures.text())
    if options.write:
        write_between(options.write, "install", figures.text())
    return 1 if figures.harm else 0


if __name__ == "__main__":
    sys.exit(main())
