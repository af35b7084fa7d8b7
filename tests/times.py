#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares what the Python tests of two runs of tests/run.py took: each argument is the build directory of one, or
one of its junit reports.

    tests/times.py build                     the slowest cases and all modules of one run
    tests/times.py ../before/build build     both runs, and the modules that only the second one has apart
"""

import argparse
import collections
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SLOWEST = 30


def reports(place):
    return sorted(place.glob("pytest-*.xml")) if place.is_dir() else [place]


def durations(place):
    """{(module, case): seconds}."""
    found = {}
    for report in reports(place):
        for case in ElementTree.parse(report).iter("testcase"):
            found[case.get("classname"), case.get("name")] = float(case.get("time"))
    if not found:
        sys.exit(f"{place}: no case in a junit report pytest-*.xml")
    return found


def by_module(took):
    sums = collections.Counter()
    for (module, _), seconds in took.items():
        sums[module] += seconds
    return sums


def slowest(took):
    return sorted(took, key=took.get, reverse=True)[:SLOWEST]


def summary(name, took):
    top = sum(took[case] for case in slowest(took))
    return f"{name}: {len(took)} cases, {sum(took.values()):.0f} s, the slowest {SLOWEST} of them {top:.0f} s"


def row(name, *seconds):
    return "".join(f"{'-' if value is None else f'{value:.1f}':>9}" for value in seconds) + "  " + name


def one(place, took):
    yield summary(place, took)
    modules = by_module(took)
    for module in sorted(modules, key=modules.get, reverse=True):
        yield row(module, modules[module])
    yield f"the slowest {SLOWEST}:"
    for case in slowest(took):
        yield row("::".join(case), took[case])


def two(places, before, after):
    yield summary(places[0], before)
    yield summary(places[1], after)
    old, new = by_module(before), by_module(after)
    kept = {case: seconds for case, seconds in after.items() if case[0] in old}
    yield summary(f"{places[1]}, modules that {places[0]} has", kept)
    gone = sorted(before.keys() - after.keys())
    yield f"cases that only {places[0]} has: {len(gone)}"
    for case in gone:
        yield row("::".join(case), before[case], None)
    yield "modules of both:"
    for module in sorted(old, key=old.get, reverse=True):
        yield row(module, old[module], new.get(module))
    yield f"modules that only {places[1]} has:"
    for module in sorted(new.keys() - old.keys(), key=new.get, reverse=True):
        yield row(module, None, new[module])
    for place, took in ((places[0], before), (places[1], after)):
        yield f"the slowest {SLOWEST} of {place}:"
        for case in slowest(took):
            yield row("::".join(case), before.get(case), after.get(case))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="+", help="one run, or the earlier and the later one")
    arguments = parser.parse_args()
    if len(arguments.run) > 2:
        parser.error("at most two runs can be compared")
    took = [durations(place) for place in arguments.run]
    for line in one(arguments.run[0], took[0]) if len(took) == 1 else two(arguments.run, *took):
        print(line)


if __name__ == "__main__":
    main()
