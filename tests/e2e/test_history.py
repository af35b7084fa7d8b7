# SPDX-License-Identifier: Apache-2.0
"""Figures of what a container has done before, and the agent's restart."""

import json
import time

import kit
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
    (said,) = kit.holders(world.usage())["pod", "main"]
    assert said["memoryPeak"] == most
    (advised,) = json.loads(world.aliquot("recommend", "-n", space.name, "--for", "0s", "-o", "json"))["containers"]
    assert advised["seen"]["memory"] >= most and advised["ask"]["memory"] <= 6 * GiB and advised["owner"] == "Pod/pod"
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
    """It is kept over a restart of the agent and of the container, and followed while the container launches."""
    def launched(name):
        return figure(world, "aliquot_container_last_launch_timestamp_seconds", name)

    def launches(name, program):
        return pod(name, container(core=20, memory=GiB, argv=["sh", "-c", program], volumeMounts=[{"name": "kept", "mountPath": "/kept"}]),
                   annotations={"elasticgpu.io/gpu-uuid": world.gpus()[0]["spec"]["uuid"]}, volumes=[{"name": "kept", "emptyDir": {}}])

    def later_launch():
        now = time.time()
        world.until(lambda: (launched("always") or 0) > now, 10, "a later launch")
        return now
    before = time.time()
    space.create(launches("once", "[ -e /kept/ran ] || gpu-spin 1000000 5; : >/kept/ran; echo ended; sleep 1000"),
                 launches("always", "gpu-spin 1000000"), launches("never", "sleep 1000"))
    world.until(lambda: "ended" in space.logs("once", "main") and launched("once") and launched("always"), START, "launches")
    # The arbiter reads the accounts of a card together. The second time it has begun after the program's end.
    for _ in range(2):
        now = later_launch()
    first = launched("once")
    assert before <= first <= now and launched("never") is None
    restart_agent(world)
    assert launched("once") == first and launched("never") is None
    later_launch()
    world.kill_container(space.get("once")["status"]["containerStatuses"][0])
    space.wait("once", lambda seen: is_running(seen) and seen["status"]["containerStatuses"][0]["restartCount"] == 1)
    world.until(lambda: "ended" in space.logs("once", "main"), START, "the end of the program")
    assert launched("once") == first


STEP = 10   # seconds


def hour(world, space, name):
    """What /history has of a pod with one share; None: nothing yet."""
    page = json.loads(world.agent.http(f"/history?namespace={space.name}&pod={name}"))
    assert page["stepMs"] == STEP * 1000 and all(entry["pod"] == name for entry in page["containers"])
    return page["containers"][0] if page["containers"] else None


def test_the_last_hour(world, space):
    """Steps of 10 s with what a container used; a restart of the agent loses none but those in which there was no agent."""
    spin = container(core=20, memory=6 * GiB, argv=["sh", "-c", "gpu-spin 1000000"])
    space.start_all([pod("busy", spin), pod("idle", container(core=20, memory=GiB))])

    def steps():
        return (hour(world, space, "busy") or {"gpuTimeMs": []})["gpuTimeMs"]
    world.until(lambda: any(steps()), 4 * STEP, "a step of which the GPU time is known")
    before = hour(world, space, "busy")
    restart_agent(world)
    world.until(lambda: len(steps()) > len(before["gpuTimeMs"]), 2 * STEP, "a step after the restart")
    after = hour(world, space, "busy")
    for key in ("gpuTimeMs", "gpuEntitledMs", "throttledMs", "memoryUsed"):
        assert after[key][:len(before[key])] == before[key]
        assert len(after[key]) == len(after["memoryUsed"])
    assert after["memoryUnit"] <= 6 * GiB / 32767 and 0 < after["memoryUsed"][-1] <= 6 * GiB
    # A step of the recorder can be late, and the next one is shorter by that.
    took = figure(world, "aliquot_container_gpu_seconds_total", "busy")
    assert 0 < sum(ms for ms in after["gpuTimeMs"] if ms) <= 1000 * took
    assert all(ms >= 0.05 * STEP * 1000 for ms in before["gpuTimeMs"] if ms)
    idle = hour(world, space, "idle")
    assert not any(idle["memoryUsed"]) and not any(idle["gpuTimeMs"])
    page = json.loads(world.agent.http(f"/history?namespace={space.name}&skip=1"))
    assert len(page["containers"]) == 1 and "next" not in page
