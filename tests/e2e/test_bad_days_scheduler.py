# SPDX-License-Identifier: Apache-2.0
"""The scheduler ends at the worst moment: no share is leaked and none is given twice."""

import pytest

import proxy
from kit import GiB, assignment_of, check_no_share_twice, check_view, container, half, pod


@pytest.fixture
def between(world):
    with proxy.between(world) as found:
        yield found


def fill_up(space, have):
    """The rest of both cards can be given away to the last byte, and nothing beyond."""
    names = space.create(*(half(f"fill-{i}") for i in range(have, 4)))
    running = [space.running(name) for name in names]
    space.create(half("excess"))
    space.unschedulable("excess")
    return running


def check_all(space, pods):
    check_no_share_twice(pods)
    for seen in pods:
        check_view(space, seen)


def test_killed_between_filter_and_bind(world, space, between):
    """Nothing was written: kube-scheduler asks again and the pod gets its share."""
    before = []

    def kill_and_cut(_):
        before.append(world.scheduler.kill())

    done = between.plan("/bind", kill_and_cut)
    space.create(half("pod"))
    assert done.wait(30)
    assert not space.get("pod")["spec"].get("nodeName")
    world.scheduler.wait_restarted(before[0])
    seen = space.running("pod", 60)
    check_all(space, [seen] + fill_up(space, 1))


def test_killed_after_bind(world, space, between):
    """All was written in one step: the next scheduler reads it, though no watch reported it."""
    before = []

    def bind_kill_and_cut(forward):
        status, _ = forward()
        assert status == 200
        before.append(world.scheduler.kill())

    done = between.plan("/bind", bind_kill_and_cut)
    space.create(half("pod"))
    assert done.wait(30)
    bound = space.wait("pod", lambda s: s["spec"].get("nodeName"))
    assert assignment_of(bound)["main"]
    world.scheduler.wait_restarted(before[0])
    seen = space.running("pod", 60)
    assert assignment_of(seen) == assignment_of(bound)
    check_all(space, [seen] + fill_up(space, 1))


def test_killed_in_the_middle_of_many(world, space, between):
    before = []

    def kill_and_cut(_):
        before.append(world.scheduler.kill())

    done = between.plan("/bind", kill_and_cut, skip=3)
    names = space.create(*(pod(f"p{i}", container(core=25, memory=20 * GiB)) for i in range(8)))
    assert done.wait(30)
    world.scheduler.wait_restarted(before[0])
    check_all(space, [space.running(name, 60) for name in names])
    space.create(pod("excess", container(core=25, memory=20 * GiB)))
    space.unschedulable("excess")


def test_the_answer_of_bind_is_lost(space, between):
    """Bound, but kube-scheduler was never told: neither bound again elsewhere nor forgotten."""
    done = between.plan("/bind", lambda forward: forward() and None)
    space.create(half("pod"))
    assert done.wait(30)
    check_all(space, [space.running("pod")] + fill_up(space, 1))
