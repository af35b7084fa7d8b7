# SPDX-License-Identifier: Apache-2.0
"""python3 tests/cluster COMMAND: see the usage below."""

import argparse
import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from cluster import binaries, cluster as clusters     # noqa: E402  (the path comes first)


def _say(text):
    print(text, file=sys.stderr, flush=True)


def _build(_):
    binaries.ensure(_say)
    print("\n".join(binaries.path_dirs()))


def _go(_):
    print(binaries.find_go(_say))


def _up(options):
    with clusters.Cluster(options.name, _say, second_node=options.second_node) as cluster:
        cluster.up()
        cluster.keep()
    print(f"cluster {cluster.name} is up:\n"
          f"  {cluster.state}/kubectl get nodes\n"
          f"  {cluster.state}/enter sh          a shell on the node\n"
          f"  {cluster.state}/logs              what every process says\n"
          f"stop it: python3 {os.path.relpath(os.path.dirname(__file__) or '.')} down {cluster.name}")


def _down(options):
    clusters.Cluster(options.name, _say).down()


def _list(_):
    for name, running in clusters.names():
        print(f"{name}\t{'running' if running else 'dead'}")


def _clean(_):
    clusters.remove_dead(_say)


def main():
    parser = argparse.ArgumentParser(prog="tests/cluster", description="A real Kubernetes cluster on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the Kubernetes binaries into the cache").set_defaults(run=_build)
    commands.add_parser("go", help="print a go command that is new enough, fetched where need be").set_defaults(run=_go)
    for name, run, text in (("up", _up, "start a cluster and leave it running"),
                            ("down", _down, "stop a cluster, or remove what a killed one left")):
        command = commands.add_parser(name, help=text)
        command.add_argument("name", nargs="?", default="aliquot")
        command.set_defaults(run=run)
    commands.choices["up"].add_argument("--second-node", action="store_true", help="with a second node, node-b")
    commands.add_parser("list", help="list clusters").set_defaults(run=_list)
    commands.add_parser("clean", help="remove what killed clusters left").set_defaults(run=_clean)
    options = parser.parse_args()
    try:
        options.run(options)
    except (clusters.ClusterError, clusters.api.Timeout, binaries.BuildError) as e:
        sys.exit(f"error: {e}")
    except KeyboardInterrupt:
        sys.exit(130)


main()
