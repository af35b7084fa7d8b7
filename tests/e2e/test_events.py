# SPDX-License-Identifier: Apache-2.0
"""Events: of many pods that wait, and of pods with much to say."""

import collections

from cluster import api as kube
from kit import condition, container, pod

WAITING = 300
MODEL = {"nvidia.com/use-gputype": "H100"}


def no_fits(world, space):
    """The NoGPUFits Events of a namespace by the UID of their pod."""
    found = collections.defaultdict(list)
    for event in world.api.get(kube.core("events", space.name))["items"]:
        if event["reason"] == "NoGPUFits":
            found[event["involvedObject"]["uid"]].append(event)
    return found


def test_one_event_for_each_waiting_pod(world, space):
    """300 pods wait while others come and go: each has one Event, which counts."""
    space.start_all(pod(f"holder{i}", container(core=80)) for i in range(2))
    waiting = [pod(f"waits{i}", container(core=40 + i % 6), annotations=MODEL if i % 10 == 0 else {}) for i in range(WAITING)]
    for name in space.create(*waiting[:3]):
        space.unschedulable(name)
    space.create(*waiting[3:])
    for i in range(8):
        space.start(pod(f"comes{i}", container(core=5 + i % 3)))
        space.delete(f"comes{i}", grace=0)
    world.until(lambda: len(no_fits(world, space)) == WAITING, 120, "each pod has its Event", pause=0.3)
    world.until(lambda: sum(e["count"] for es in no_fits(world, space).values() for e in es) > 2 * WAITING, 120,
                "they are seen again", pause=0.3)
    found = no_fits(world, space)
    assert {len(events) for events in found.values()} == {1} and len(found) == WAITING
    (event,) = found[space.get("waits0")["metadata"]["uid"]]
    assert "of model H100; node-a has 2 " in event["message"] and "free" not in event["message"], event["message"]
    assert condition(space.get("waits1"), "PodScheduled")["reason"] == "Unschedulable"
