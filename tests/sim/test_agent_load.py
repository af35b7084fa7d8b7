# SPDX-License-Identifier: Apache-2.0
"""The agent of a node of eight cards that is full, and read by many clients at once. Costs are in CPU time."""

import gzip
import json
import os
import pathlib
import re
import threading
import time
import urllib.request

from agent_world import CARDS, INSTANCES
from sim_kit import Polls

CLIENTS, PERIOD, SECONDS = 10, 0.1, 3
PAGE = 0.010    # seconds of CPU time to collect and write a page, and to compress it
HALF = PAGE / 2 # of each
SHARES, PACKED = 100, 50 * 1000     # bytes of a page with so many
PAGES = 50
MORE = 4        # replicas of each instance: more than 200 containers


def read(world, page):
    """The text of a page, and its length on the way."""
    request = urllib.request.Request(f"http://{world.agent.address}{page}", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        content = answer.read()
        packed = answer.headers["Content-Encoding"] == "gzip"
    return (gzip.decompress(content) if packed else content).decode(), len(content)


def cpu(world):
    """Seconds of CPU time that the agent has taken, without its child."""
    fields = pathlib.Path(f"/proc/{world.agent.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_of_threads(world):
    """Seconds of CPU time of the agent's loop, and of its other threads, which compress."""
    task = pathlib.Path(f"/proc/{world.agent.process.pid}/task")
    ran = {int(t.name): int((t / "schedstat").read_text().split()[0]) / 1e9 for t in task.iterdir()}
    loop = ran.pop(world.agent.process.pid)
    return loop, sum(ran.values())


def is_whole(text, containers):
    """Whether a page of metrics has all instances, and counts all containers."""
    return (len(re.findall(r"^aliquot_gpu_instance_memory_used_bytes{", text, re.M)) == CARDS * INSTANCES and
            f"\naliquot_agent_slots {containers}\n" in text)


def test_ten_clients_every_tenth_of_a_second(full):
    """Each gets all figures each time, within the budget of a page; for all of them the driver is asked once in a second, beside the agent's own poll."""
    begun, failed, pages = len(full.fill()), [], []

    def client():
        for number in range(round(SECONDS / PERIOD)):
            due = start + number * PERIOD
            time.sleep(max(0, due - time.monotonic()))
            text, _ = read(full, "/metrics")
            pages.append(len(text))
            if not is_whole(text, begun):
                failed.append(text)
    read(full, "/metrics")
    polls, start, used = Polls(full.node), time.monotonic(), cpu(full)
    before = polls()
    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cost, took = (cpu(full) - used) / len(pages), time.monotonic() - start
    print(f"{begun} containers: {1000 * cost:.1f} ms of CPU a page, {len(pages)} pages in {took:.1f} s")
    assert not failed and len(pages) == CLIENTS * round(SECONDS / PERIOD)
    assert cost <= PAGE, cost
    assert polls() - before <= 2 * (took + 1)


def test_two_hundred_containers(full):
    """All of them are on each page, and the pages stay small."""
    begun = len(full.fill(replicas=MORE))
    assert begun == CARDS * INSTANCES * MORE > 200
    text, size = read(full, "/metrics")
    assert is_whole(text, begun) and size < 100 * 1024, size
    usage, size = read(full, "/usage")
    assert len(re.findall(r'"pod": ?"pod-\d+"', usage)) == begun and size < 100 * 1024, size
    assert json.loads(usage)


def test_a_page_of_a_hundred_shares(shared):
    """Containers with limits of memory and compute, which have more figures than those that have a device whole."""
    shared.fill(SHARES, core=7, memory=6 << 30)
    for number in range(SHARES):
        shared.use(f"pod-{number}", "spin", 1000, 1, number % CARDS)
    text, size = read(shared, "/metrics")
    for name in ("memory_limit_bytes", "memory_peak_bytes", "gpu_seconds_total", "gpu_entitled_ratio"):
        assert len(re.findall(rf"^aliquot_container_{name}{{", text, re.M)) == SHARES, name
    assert size <= PACKED, size
    before = cpu_of_threads(shared)
    for _ in range(PAGES):
        read(shared, "/metrics")
    write, pack = ((now - then) / PAGES for now, then in zip(cpu_of_threads(shared), before))
    print(f"{SHARES} shares: {1000 * write:.2f} ms of CPU to collect and write a page of {len(text)} bytes, "
          f"{1000 * pack:.2f} ms to compress it to {size}")
    assert write <= HALF and pack <= HALF, (write, pack)
