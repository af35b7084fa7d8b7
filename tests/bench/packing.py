#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well the policies pack the traces of a directory, each with the same protocol.

    OPENB=DIRECTORY make bench-packing

DIRECTORY holds *node_list_gpu_node*.csv and *pod_list_*.csv, as in the openb data set of "Beware of
Fragmentation" (USENIX ATC 2023). There are three runs of each trace:

  arrivals    For every seed the pods are shuffled, then random ones of them are appended until the
              next would exceed 130 % of the cluster's GPUs (a trace that asks more is cut there); the
              order of the nodes is shuffled as well. Pods arrive one by one; none leaves, none is
              tried again. Printed is the mean, over the seeds, of the GPUs allocated when 90, 100 and
              130 % have arrived, in percent of all GPUs, and the least load at which a pod of eight
              GPUs was refused that some empty node could take. Below, from which load on any
              scheduler must refuse a pod (ceiling.py).
  departures  Pods come and go at the times of the trace, in its order, on a part of the nodes that
              the seed chooses. Their lives are stretched by one factor such that 110 % of these nodes
              are requested at the peak. No pod is tried again. Printed are the pods refused and the
              GPU time that was given, in percent of what was requested. Traces without times are left out.

  selections  As arrivals, but 20 to 40 % of the GPU pods select models (selections.py). Printed are the GPUs
              allocated at every 5 % of load, the pods of eight GPUs that were refused, and how far `esc` is
              from the best other policy.

`fgd` knows the whole trace beforehand, as published; `esc` learns from what has arrived.
`--part` runs one of the three, `--mix SEED` packs another mix of the pods of each trace.
"""

import argparse
import collections
import concurrent.futures
import csv
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import ceiling
import selections

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
SEEDS = range(42, 52)
MARKS = (90, 100, 130)
LOAD_MAX = 1.3
LOAD_MAX_DEPARTURES = 1.1
PART_DEPARTURES = 0.5  # of the cluster: the pods of a trace do not fill all of it, less so when they leave
SEEDS_DEPARTURES = 3  # the order of the pods is that of the trace

# Name in the table, options of `aliquot replay`; {trace} is the original list of pods.
RUNS = (
    ("first-fit", ["--policy", "first-fit"]),
    ("best-fit", ["--policy", "best-fit"]),
    ("binpack", ["--policy", "binpack"]),
    ("fgd random ties", ["--policy", "fgd", "--ties", "random", "--workload", "{trace}"]),
    ("fgd", ["--policy", "fgd", "--workload", "{trace}"]),
    ("esc", ["--policy", "esc"]),
)


def read(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def write(path, rows):
    with open(path, "w", newline="") as file:
        out = csv.DictWriter(file, rows[0].keys())
        out.writeheader()
        out.writerows(rows)


def milli(pod):
    return int(pod["num_gpu"]) * int(pod["gpu_milli"] or 0)


def capacity(nodes):
    return 1000 * sum(int(node["gpu"]) for node in nodes)


def inflate(pods, limit, dice):
    """The shuffled pods, filled up with samples of them to the limit, or cut there."""
    out, sum_milli = [], 0
    pods = list(pods)
    dice.shuffle(pods)
    for pod in pods:
        if sum_milli + milli(pod) > limit:
            return out
        out.append(pod)
        sum_milli += milli(pod)
    if not sum_milli:
        return out
    while True:
        pod = dice.choice(pods)
        if sum_milli + milli(pod) > limit:
            return out
        sum_milli += milli(pod)
        out.append({**pod, "name": f"{pod['name']}-again-{len(out)}"})


def other_mix(pods, dice):
    """As many pods of the same shapes, each shape more or less frequent than it was, most of them by
    a factor of up to e."""
    def shape(pod):
        return (pod["num_gpu"], pod["gpu_milli"], pod["cpu_milli"], pod.get("gpu_spec"))
    weight = {key: dice.lognormvariate(0, 1) for key in dict.fromkeys(map(shape, pods))}
    return dice.choices(pods, [weight[shape(pod)] for pod in pods], k=len(pods))


class Progress:
    """Tells on stderr, every few seconds, how much is done and how long the rest may take."""
    SECONDS = 5

    def __init__(self, total):
        self.total, self.done = total, 0
        self.start = self.told = time.monotonic()
        self.lock = threading.Lock()

    def step(self, steps=1):
        with self.lock:
            self.done += steps
            now = time.monotonic()
            if now - self.told < self.SECONDS:
                return
            self.told = now
            left = (now - self.start) / self.done * (self.total - self.done)
            print(f"packing: {self.done} of {self.total} runs, about {left / 60:.0f} min {left % 60:.0f} s left",
                  file=sys.stderr, flush=True)


def replay(aliquot, nodes, pods, trace, options):
    """Which pods were placed, in the order of the file, and the CPU seconds it took."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = subprocess.Popen(
            [aliquot, "replay", "--nodes", nodes, "--pods", pods, *(o.format(trace=trace) for o in options)],
            stdout=out, stderr=err)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        if child.returncode != 0:
            sys.exit(f"packing: {err.read().strip()}")
        return [row["node"] != "" for row in csv.DictReader(out)], usage.ru_utime + usage.ru_stime


Result = collections.namedtuple("Result", "allocated large seconds")


def possible(pod, nodes):
    """Whether any node could take the pod if it were empty."""
    models = pod.get("gpu_spec") or None
    return any(int(node["gpu"]) >= int(pod["num_gpu"]) and int(node["cpu_milli"]) >= int(pod["cpu_milli"])
               and int(node["memory_mib"]) >= int(pod["memory_mib"])
               and (models is None or node["model"] in models.split("|")) for node in nodes)


def measure(pods, placed, nodes, seconds):
    """Allocation at the marks, and the load at which the first pod of 8 GPUs or more was refused
    that some empty node could take."""
    total = capacity(nodes)
    at = collections.defaultdict(list)
    arrived = allocated = 0
    large = None
    for pod, ok in zip(pods, placed, strict=True):
        arrived += milli(pod)
        allocated += milli(pod) if ok else 0
        at[round(100 * arrived / total)].append(100 * allocated / total)
        if not ok and large is None and int(pod["num_gpu"]) >= 8 and possible(pod, nodes):
            large = 100 * arrived / total
    return Result([statistics.mean(at[m]) if at[m] else None for m in MARKS], large, seconds)


def one_seed(aliquot, nodes, trace, seed, runs, mix, progress):
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="aliquot-packing-") as work:
        nodes_csv, pods_csv = f"{work}/nodes.csv", f"{work}/pods.csv"
        pods = read(trace) if mix is None else other_mix(read(trace), random.Random(mix))
        pods = inflate(pods, LOAD_MAX * capacity(nodes), dice)
        shuffled = list(nodes)
        dice.shuffle(shuffled)
        write(nodes_csv, shuffled)
        write(pods_csv, pods)
        results = {}
        for name, options in runs:
            placed, seconds = replay(aliquot, nodes_csv, pods_csv, trace, [*options, "--seed", str(seed)])
            results[name] = measure(pods, placed, nodes, seconds)
            progress.step()
        asked = [(int(pod["num_gpu"]), int(pod["gpu_milli"] or 0)) for pod in pods]
        return results, ceiling.load_of_refusal(asked, capacity(nodes) // 1000)


def show(results, runs):
    """One line a policy: mean (and deviation at 100 %) over the seeds."""
    for name, _ in runs:
        rows = [result[name] for result in results]
        cells = []
        for i, mark in enumerate(MARKS):
            values = [row.allocated[i] for row in rows if row.allocated[i] is not None]
            text = f"{statistics.mean(values):6.2f}" if values else "     -"
            if mark == 100:
                text += f" ±{statistics.pstdev(values):4.2f}" if values else "      "
            cells.append(text)
        refused = [row.large for row in rows if row.large is not None]
        print(f"  {name:<16} {'  '.join(cells)}   {f'{min(refused):6.1f}' if refused else ' never'}   "
              f"{statistics.mean(row.seconds for row in rows):5.2f} s", flush=True)


def pack(aliquot, nodes, traces, seeds, runs, jobs, mix, progress):
    for trace in traces:
        print(f"\n{trace.stem}, seeds {seeds[0]}-{seeds[-1]}: GPUs allocated (%) at load\n"
              f"  {'policy':<16} {'90 %':>6}  {'100 %':>6}        {'130 %':>6}   first 8-GPU pod refused at (%), "
              "CPU time of a run", flush=True)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(lambda seed: one_seed(aliquot, nodes, trace, seed, runs, mix, progress), seeds))
        show([result for result, _ in results], runs)
        full = [load for _, load in results if load is not None]
        if full:
            print(f"  any scheduler must refuse a pod at {min(full):.2f} to {max(full):.2f} % at the latest")


# ---- with departures ----

def lives(pods):
    return [pod for pod in pods if pod.get("creation_time") and pod.get("deletion_time")]


def peak(pods):
    """The most thousandths of GPUs that are asked at one time."""
    changes = sorted([(int(pod["deletion_time"]), -milli(pod)) for pod in pods]
                     + [(int(pod["creation_time"]), milli(pod)) for pod in pods])
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def stretch(pods, most):
    """Lives longer by one factor for all, such that at the peak `most` thousandths of GPUs are asked."""
    def longer(factor):
        return [{**pod, "deletion_time": created + round((int(pod["deletion_time"]) - created) * factor)}
                for pod in pods for created in [int(pod["creation_time"])]]
    low, high = 1.0, 1e6
    for _ in range(30):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if peak(longer(middle)) < most else (low, middle)
    return longer(low), low


def served(pods, placed):
    """Part of the GPU time asked that was given, in percent."""
    def time_of(pod):
        return milli(pod) * (int(pod["deletion_time"]) - int(pod["creation_time"]))
    asked = sum(map(time_of, pods))
    return 100 * sum(time_of(pod) for pod, ok in zip(pods, placed, strict=True) if ok) / asked


def depart(aliquot, nodes, traces, seeds, runs, progress):
    """Pods come and go in the order of the trace; the seed chooses the nodes and their order."""
    for trace in traces:
        pods = lives(read(trace))
        if not pods:
            print(f"\n{trace.stem}: no times, so no run with departures")
            progress.step(len(seeds) * len(runs))
            continue
        most = PART_DEPARTURES * capacity(nodes)
        pods, factor = stretch(pods, LOAD_MAX_DEPARTURES * most)
        print(f"\n{trace.stem} with departures, seeds {seeds[0]}-{seeds[-1]}: lives {factor:.0f} times as long, "
              f"{most / 1000:.0f} GPUs, {100 * LOAD_MAX_DEPARTURES:.0f} % of them asked at the peak\n"
              f"  {'policy':<16} pods refused (of {len(pods)})   GPU time served (%)", flush=True)
        sums = collections.defaultdict(list)
        for seed in seeds:
            with tempfile.TemporaryDirectory(prefix="aliquot-packing-") as work:
                shuffled = list(nodes)
                random.Random(seed).shuffle(shuffled)
                while capacity(shuffled[:-1]) >= most:
                    shuffled.pop()
                write(f"{work}/nodes.csv", shuffled)
                write(f"{work}/pods.csv", pods)
                for name, options in runs:
                    placed, _ = replay(aliquot, f"{work}/nodes.csv", f"{work}/pods.csv", trace,
                                       [*options, "--departures", "--seed", str(seed)])
                    sums[name].append((placed.count(False), served(pods, placed)))
                    progress.step()
        for name, _ in runs:
            refused, share = zip(*sums[name], strict=True)
            print(f"  {name:<16} {statistics.mean(refused):12.1f}   {statistics.mean(share):24.2f}", flush=True)


# ---- what to run ----

def find(directory):
    """Nodes and traces of the directory; ends with status 2 and says what is missing."""
    def missing(what):
        print(f"packing: {what}\npacking: OPENB=DIRECTORY make bench-packing, where the directory holds "
              "openb_node_list_gpu_node.csv and openb_pod_list_*.csv\npacking: (the data is not part of this "
              "repository: hkust-adsl/kubernetes-scheduler-simulator, data/csv)", file=sys.stderr)
        sys.exit(2)

    if not directory:
        missing("OPENB is not set: no traces to pack")
    path = pathlib.Path(directory)
    if not path.is_dir():
        missing(f"OPENB={directory}: no such directory")
    nodes, traces = sorted(path.glob("*node_list_gpu_node*.csv")), sorted(path.glob("*pod_list_*.csv"))
    if not nodes:
        missing(f"OPENB={directory}: no *node_list_gpu_node*.csv in it")
    if not traces:
        missing(f"OPENB={directory}: no *pod_list_*.csv in it")
    return read(nodes[0]), traces


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    parser.add_argument("--traces", default=os.environ.get("OPENB"), metavar="DIRECTORY")
    parser.add_argument("--only", default="", help="traces whose name contains this")
    parser.add_argument("--policy", action="append", help="of the table's names; may be repeated")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), help="so many (default 10)")
    parser.add_argument("--first-seed", type=int, metavar="N",
                        help=f"default {SEEDS[0]}, with selections {selections.SEEDS[0]}")
    parser.add_argument("--mix", type=int, metavar="SEED", help="arrivals of another mix of the trace's pods")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--part", choices=["arrivals", "departures", "selections"], help="one of the three only")
    args = parser.parse_args()

    nodes, traces = find(args.traces)
    traces = [trace for trace in traces if args.only in trace.stem]
    runs = [run for run in RUNS if not args.policy or run[0] in args.policy]
    aliquot = str(args.build / "src" / "cli" / "aliquot")
    print(f"{len(nodes)} nodes, {capacity(nodes) // 1000} GPUs")

    def seeds(default, most=None):
        first = default[0] if args.first_seed is None else args.first_seed
        return range(first, first + min(args.seeds, most or args.seeds))
    parts = {"arrivals": seeds(SEEDS), "departures": seeds(SEEDS, SEEDS_DEPARTURES), "selections": seeds(selections.SEEDS)}
    if args.mix is not None:
        parts = {"arrivals": parts["arrivals"]}
    if args.part:
        parts = {args.part: parts[args.part]}
    progress = Progress(sum(map(len, parts.values())) * len(traces) * len(runs))
    if "arrivals" in parts:
        pack(aliquot, nodes, traces, parts["arrivals"], runs, args.jobs, args.mix, progress)
    if "departures" in parts:
        depart(aliquot, nodes, traces, parts["departures"], runs, progress)
    if "selections" in parts:
        selections.pack(sys.modules[__name__], aliquot, nodes, traces, parts["selections"], runs, args.jobs, progress)


if __name__ == "__main__":
    main()
