# SPDX-License-Identifier: Apache-2.0
"""Measures Allocate on a full node of 8 cards with 7 instances each and 112 containers, while the cards are read and a scraper
reads pages of the agent. After each, a process that does nothing else is called: it is late as often by what the machine does.
Without a cluster: kubelet and the API server are those of tests/sim. Prints a table in Markdown.

    tests/bench/allocate.py --build BUILD [--seconds 30]
    tests/bench/allocate.py --first     with agent and caller scheduled before all others, as if the machine did nothing else
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import urllib.request

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests"), str(TOP / "tests" / "e2e"), str(TOP / "tests" / "bench"), str(TOP / "tests" / "sim")]

import device_plugin                            # noqa: E402  (the path comes first)
from figures import duration, machine           # noqa: E402

QUICK = 1000000             # ns
PAGES = ("/metrics", "/usage")
COMPUTING = 60000           # ns: about what the agent computes for an Allocate
EVERY = 1                   # second, of the scraper


class Scraper(threading.Thread):
    """Reads the pages of an agent until it is closed."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.ended, self.count = address, threading.Event(), 0
        self.start()

    def run(self):
        while not self.ended.wait(EVERY):
            for page in PAGES:
                request = urllib.request.Request(f"http://{self.address}{page}", headers={"Accept-Encoding": "gzip"})
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answer.read()
                    self.count += 1

    def close(self):
        self.ended.set()
        self.join()


@contextlib.contextmanager
def full_node(build):
    """A node with an agent that has all of its containers, and the IDs of their devices."""
    os.environ["ALIQUOT_BUILD"] = str(build)
    import agent_world
    import sim_kit
    with tempfile.TemporaryDirectory() as driver, tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name)
        (path / "m.machine").write_text(agent_world.FULL)
        node = sim_kit.Node(pathlib.Path(driver), "--machine", path / "m.machine")
        world = agent_world.FullNode(node, path)
        try:
            yield world, world.fill()
        finally:
            world.close()
            node.close()


def schedule_first(pid):
    """The threads of the agent, this one, and those that they start run before all others (SCHED_FIFO)."""
    for thread in (0, *map(int, os.listdir(f"/proc/{pid}/task"))):
        os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(1))


def socket_of(world):
    """Of the plugin of the instances."""
    return str(next((world.kubelet.path / "device-plugins").glob("aliquot-*mig-1g*.sock")))


def held_up(before, now):
    """How often the agent has read kubelet's calls, and how often after more than 1 ms of CPU time; None of an older agent."""
    if not now:
        return None
    count, quick = (now[bound] - before[bound] for bound in (float("inf"), QUICK / 1e9))
    return count, count - quick


def rows(build, seconds, say, first=False):
    """Of a table."""
    with full_node(build) as (world, ids):
        if first:
            schedule_first(world.agent.process.pid)
        say(f"Allocate beside {len(ids)} containers, {seconds} s")
        echo = device_plugin.Echo(COMPUTING)
        before, scraper = world.waits(), Scraper(world.agent.address)
        calls = device_plugin.Allocations(socket_of(world), ids[:1], f"/proc/{world.agent.process.pid}", echo)
        scraper.ended.wait(seconds)
        made = calls.close()
        scraper.close()
        echo.close()
        waits = held_up(before, world.waits())
    assert scraper.count >= 2 * (seconds - 2) / EVERY / 2, "the scraper has not read the pages"
    times = sorted(call.took for call in made)
    late = [call for call in made if call.took > QUICK]
    found = [(f"Allocate on a full node, beside {len(ids)} containers, polls and {scraper.count} pages, by the clock of the "
              "caller: number, median / p99 / worst",
              f"{len(times):,}, {duration(statistics.median(times))} / {duration(statistics.quantiles(times, n=100)[98])} / "
              f"{duration(times[-1])}"),
             ("of those above 1 ms: all / without what loop and caller have waited for a CPU",
              f"{len(late)} / {sum(call.took - call.waited > QUICK for call in late)}"),
             (f"beside each, a call of a process that only computes for {duration(COMPUTING)}: number, median / p99 / worst / "
              "above 1 ms",
              f"{len(calls.echoed):,}, {duration(statistics.median(calls.echoed))} / "
              f"{duration(statistics.quantiles(calls.echoed, n=100)[98])} / {duration(max(calls.echoed))} / "
              f"{sum(took > QUICK for took in calls.echoed)}")]
    if waits:
        found.append(("Allocate by the agent: times at which it read kubelet's calls / those after more than 1 ms of its CPU "
                      "time", f"{waits[0]:,} / {waits[1]}"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build", help="build directory")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--first", action="store_true", help="schedule agent and caller before all others")
    options = parser.parse_args()
    found = rows(options.build.resolve(), options.seconds, lambda text: print(f"== {text}", file=sys.stderr, flush=True),
                 options.first)
    print("\n".join([machine(), "", "| measured | value |", "|---|---|", *(f"| {a} | {b} |" for a, b in found)]))


if __name__ == "__main__":
    main()
