# SPDX-License-Identifier: Apache-2.0
"""Measures Aliquot on this machine, everything in one run, and prints a table in Markdown.

    make bench                                       the table
    python3 tests/bench/bench.py --write README.md   also puts it between the markers in a file

What runs in a cluster is measured on a real one with simulated GPUs; the filter has a program of its own
(tests/bench/filter_bench) that prints one `name<TAB>value` a line, and the hooks have tests/bench/intercept.py.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench")]

import cluster_bench        # noqa: E402  (the path comes first)
import intercept        # noqa: E402
from figures import duration, machine, write_between        # noqa: E402


def run_program(build, name, *arguments):
    """{name: number} that one of the benchmark programs prints."""
    path = build / "tests" / "bench" / name
    done = subprocess.run([path, *arguments], stdout=subprocess.PIPE, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        key, tab, value = line.partition("\t")
        if tab:
            found[key] = float(value.split()[0])
    return found


def hooks(build):
    return [(f"added by the library to {name}, CPU time", duration(value)) for name, value in intercept.added_to_null(build)]


def filters(build):
    rows = []
    for nodes in (100, 1000):
        found = run_program(build, "filter_bench", "--nodes", str(nodes), "--gpus", "8")
        rows.append((f"filter over HTTP, {nodes:,} nodes x 8 GPUs, median / p99",
                     f"{duration(found['median_ns'])} / {duration(found['p99_ns'])}"))
    return rows


def mebibytes(size):
    return f"{size / (1 << 20):.1f} MiB"


def percentile(values, part):
    """The smallest value that at least `part` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def in_cluster(build, say):
    rows = []
    with cluster_bench.installed(build, say) as world:
        say("from pod created to container running, with and without a share")
        plain, share = cluster_bench.pod_starts(world)
        say("Allocate")
        calls = cluster_bench.allocate(world)
        say("from kubelet.sock to registered")
        registered = cluster_bench.registrations(world)
        for process, size in cluster_bench.resident(world).items():
            rows.append((f"resident memory of {process} (proportional)",
                         f"{mebibytes(size['Rss'])} ({mebibytes(size['Pss'])})"))
    rows.append(("from kubelet.sock to all resources registered, median / worst of "
                 f"{len(registered)}", f"{duration(statistics.median(registered))} / {duration(max(registered))}"))
    rows.append((f"Allocate, 30 IDs, median / p99 of {len(calls):,}",
                 f"{duration(statistics.median(calls))} / {duration(percentile(calls, 0.99))}"))
    rows.append((f"from pod created to its program running, without / with a share, median of {len(plain)} pairs",
                 f"{duration(statistics.median(plain))} / {duration(statistics.median(share))}"))
    rows.append(("the same, difference within a pair, median",
                 duration(statistics.median(b - a for a, b in zip(plain, share)))))
    return rows


def table(rows):
    return "\n".join([machine(), "", "| measured | value |", "|---|---|"]
                     + [f"| {what} | {value} |" for what, value in rows])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--write", type=pathlib.Path, help="file with markers for the table")
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    def say(text):
        print(f"== {text}", file=sys.stderr, flush=True)

    rows = in_cluster(build, say)
    say("hooks")
    rows += hooks(build)
    say("filter")
    rows += filters(build)
    text = table(rows)
    print(text)
    if arguments.write:
        write_between(arguments.write, "bench", text)


if __name__ == "__main__":
    main()
