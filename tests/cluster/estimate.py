# SPDX-License-Identifier: Apache-2.0
"""How far a first run is, and how long the rest of it takes: one figure for all that is still to be built."""

import time

# Seconds of a cold build on two idle cores; the rest of a run is measured against them.
ALIQUOT, KUBERNETES, CONTAINERD, CRIO, HELM, RUNC = 150, 390, 90, 81, 150, 25
# Of the expected time: before that much is done, the measured pace says less than the figures above.
PACE_FROM = 0.05


def duration(seconds):
    return f"{int(seconds)} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class Estimate:
    """Parts that come one after the other, each with the seconds that it is expected to take."""

    def __init__(self, parts, now=time.monotonic):
        self.parts = dict(parts)
        self.now = now
        self.started = now()
        self.done = {name: 0.0 for name in self.parts}

    def total(self):
        return sum(self.parts.values())

    def at(self, name, fraction):
        """`name` is done to `fraction`; returns "41 % of all, about 5 min left". Never goes back."""
        for before in self.parts:
            if before == name:
                break
            self.done[before] = 1.0
        self.done[name] = max(self.done.get(name, 0.0), min(1.0, fraction))
        done = sum(self.parts[part] * self.done[part] for part in self.parts)
        total = self.total() or 1
        pace = (self.now() - self.started) / done if done > PACE_FROM * total else 1.0
        return f"{int(100 * done / total)} % of all, about {duration((total - done) * pace)} left"
