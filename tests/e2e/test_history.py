# SPDX-License-Identifier: Apache-2.0
"""Figures of what a container has done since it was started, and the agent's restart."""

import time

from kit import START, GiB, container, is_running, pod


def figure(world, name, chosen):
    """The value of a metric of a pod; None: there is none."""
    (value,) = [value for (metric, labels), value in world.metrics().items()
                if metric == name and dict(labels)["pod"] == chosen] or [None]
    return value


def restart_agent(world):
    world.agent.wait_restarted(world.agent.kill())
    world.wait_tokens()


def test_the_peak_of_memory_since_the_start(world, space):
    """It stays when memory is given back and over a restart of the agent, and ends with the container."""
    def peak():
        return figure(world, "aliquot_container_memory_peak_bytes", "pod")
    seen = space.start(pod("pod", container(core=20, memory=6 * GiB)))
    assert peak() is None
    with space.tenant(seen) as one, space.tenant(seen) as other:
        assert one.alloc(2 * GiB) == other.alloc(1 * GiB) == 0
    assert figure(world, "aliquot_container_memory_used_bytes", "pod") == 0
    most = peak()
    assert 3 * GiB < most <= 6 * GiB
    restart_agent(world)
    assert peak() == most
    with space.tenant(seen) as one:
        assert one.alloc(1 * GiB) == 0
        assert peak() == most
    world.kill_container(seen["status"]["containerStatuses"][0])
    seen = space.wait("pod", lambda now: is_running(now) and now["status"]["containerStatuses"][0]["restartCount"] == 1)
    assert peak() is None
    with space.tenant(seen) as one:
        assert one.alloc(1 * GiB) == 0
        assert 1 * GiB < peak() < 3 * GiB


def test_the_last_launch(world, space):
    """It is kept over a restart of the agent, and followed while the container launches."""
    def launched(name):
        return figure(world, "aliquot_container_last_launch_timestamp_seconds", name)
    before = time.time()
    space.create(*[pod(name, container(core=20, memory=GiB, argv=["sh", "-c", f"{program}; sleep 1000"]))
                   for name, program in (("once", "gpu-spin 1000000 5"), ("always", "gpu-spin 1000000"), ("never", "true"))])
    world.until(lambda: "done=5" in space.logs("once", "main") and launched("always"), START, "launches")
    world.until(lambda: time.time() - launched("once") > 1, 10, "no more launches of the pod")     # nor measurements
    first, now = launched("once"), time.time()
    assert before <= first <= now and launched("never") is None
    restart_agent(world)
    assert launched("once") == first and launched("never") is None
    world.until(lambda: launched("always") > now, 10, "a later launch")
