# SPDX-License-Identifier: Apache-2.0
"""Memory that short-lived processes of a container export by descriptor and leave to a process without CUDA: it counts
against the share until the driver's figures show that it is back, and then it is there again."""

import re

import kit
from kit import GiB, container, pod

MiB = 1 << 20
SIZE = 256 * MiB


def hoarder(name, *words):
    return pod(name, container(core=10, memory=2 * GiB, argv=["gpu-hoard", "handle", str(SIZE), *map(str, words)],
                               stdin=True))


def got(world, space, name, seconds):
    """How many makers were given memory."""
    found = world.until(lambda: re.search(r"(?m)^(\d+)$", space.logs(name, "main")), seconds, f"{name} is done")
    return int(found[1])


def booked(world, name):
    (entry,) = kit.holders(world.usage())[name, "main"]
    return entry["memoryUsed"]


def test_descriptors_do_not_lead_past_the_share(world, space):
    """Each maker waits for longer than a credit takes before it gives up. The share stays full."""
    space.start(hoarder("hoard", 100, "keep", 3000))
    held = got(world, space, "hoard", 60)
    assert 4 <= held <= 7
    assert booked(world, "hoard") == held * SIZE


def test_a_forged_ledger_does_not_credit_them(world, space):
    """What another container says it has explains what is in use up to its share: the two together hold no more than
    both shares, of which the one that claims has nothing."""
    space.start(pod("claimer", container(core=10, memory=2 * GiB, argv=["gpu-forger", "claim", str(70 * GiB)])))
    world.until(lambda: booked(world, "claimer") == 70 * GiB, 10, "it claims more than there is in use")
    uuid = kit.holders(world.usage())["claimer", "main"][0]["uuid"]
    body = hoarder("hoard", 100, "keep", 3000)
    body["metadata"]["annotations"]["elasticgpu.io/gpu-uuid"] = uuid
    space.start(body)
    assert 4 <= got(world, space, "hoard", 60) <= 2 * 2 * GiB // SIZE


def test_what_a_neighbour_gives_back_is_not_credited(world, space):
    """The figures of a card do not tell whose memory is back. The container that hoarded last gets nothing for it, and what
    its neighbour has given back is credited when there is no doubt any more."""
    first = space.start(hoarder("first", 100, "keep"))
    assert 4 <= got(world, space, "first", 60) <= 7
    body = hoarder("last", 100, "keep", 10000)
    uuid = kit.holders(world.usage())["first", "main"][0]["uuid"]
    body["metadata"]["annotations"]["elasticgpu.io/gpu-uuid"] = uuid
    space.start(body)
    world.until(lambda: booked(world, "last") >= 4 * SIZE, 30, "the last one has as much")
    old = first["status"]["containerStatuses"][0]["containerID"]
    world.ctr("tasks", "kill", "-s", "SIGKILL", old.partition("://")[2])
    assert 4 <= got(world, space, "last", 60) <= 7
    space.end("last", grace=1)
    world.until(lambda: booked(world, "first") == 0, 10, "the first one has its share back")


def test_honest_workers_do_not_run_out(world, space):
    """A hundred times a part of the share, each descriptor closed at once: none waits for more than 2 s."""
    space.start(hoarder("worker", 100, "drop", 2000))
    assert got(world, space, "worker", 200) == 100
    world.until(lambda: booked(world, "worker") == 0, 2, "all of it is credited")
