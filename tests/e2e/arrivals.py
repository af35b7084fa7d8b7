# SPDX-License-Identifier: Apache-2.0
"""Pods that arrive while something else happens."""

import threading
import time

import kit
from kit import container, pod

PERIOD = 0.5            # seconds between two pods, unless a test says other


class Load(threading.Thread):
    """Makes pods that end by themselves and are never started again; on these nodes in turn, where some are named."""

    def __init__(self, space, period=PERIOD, nodes=()):
        super().__init__()
        self.space, self.period, self.nodes = space, period, nodes
        self.names = []
        self.ended = threading.Event()

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.ended.set()
        self.join(30)

    def run(self):
        due = time.monotonic() + self.period
        while not self.ended.wait(max(0, due - time.monotonic())):
            due = max(due + self.period, time.monotonic())  # what was late is not made up for
            name = f"p{len(self.names):03}"
            where = kit.on(self.nodes[len(self.names) % len(self.nodes)]) if self.nodes else {}
            self.space.create(pod(name, container(core=2, memory=kit.GiB, argv=["probe", "report"]), restartPolicy="Never", **where))
            self.names.append(name)

    def until(self, count, timeout=60):
        self.space.world.until(lambda: len(self.names) >= count, timeout, f"{count} pods made", pause=0.1)


def all_succeed(space, names, timeout=120):
    for name in names:
        seen = space.wait(name, lambda s: s["status"].get("phase") in ("Succeeded", "Failed"), timeout, f"pod {name} ended")
        assert seen["status"]["phase"] == "Succeeded", seen["status"]
