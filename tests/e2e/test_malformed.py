# SPDX-License-Identifier: Apache-2.0
"""Requests that no node can meet: refused, or Pending with the reason on the pod; nothing is lost."""

import pytest

from kit import CARD, CORE, MEMORY, QGPU_CORE, SLOT, ApiError, GiB, check_view, container, pod

MALFORMED = {
    "core-150": ({CORE: "150"}, r"150|multiple|whole"),
    "core-0": ({CORE: "0"}, r"core|malformed"),
    "memory-0": ({MEMORY: "0", CORE: "10"}, r"memory|malformed"),
    "memory-beyond-int64": ({MEMORY: "16Ei", CORE: "10"}, r"memory|malformed|large"),
    "more-memory-than-a-card": ({MEMORY: str(CARD + 1), CORE: "10"}, r"GPU|memory"),
    "more-cards-than-the-node": ({CORE: "300"}, r"GPU|gpu-core"),
    "more-memory-than-its-cards": ({CORE: "200", MEMORY: str(2 * CARD + 1)}, r"GPU|memory"),
    "two-dialects": ({CORE: "10", QGPU_CORE: "10"}, r"dialect|mix|names"),
    "slot-alone": ({SLOT: "1"}, r"slot|memory"),
    "a-thousand-cards": ({CORE: "100000"}, r"GPU|card|core"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_request(space, name):
    resources, pattern = MALFORMED[name]
    try:
        space.create(pod(name, container(resources=resources)))
    except ApiError as refused:
        assert refused.code in (400, 403, 422), refused
        assert_matches(pattern, refused.message)
        return
    assert_matches(pattern, space.unschedulable(name))


def assert_matches(pattern, text):
    import re
    assert re.search(pattern, text, re.I), text


def test_nothing_is_lost(world, space):
    """After every malformed request at once, the whole node can still be given away."""
    created = []
    for name, (resources, _) in MALFORMED.items():
        try:
            created += space.create(pod(name, container(resources=resources)))
        except ApiError:
            pass
    for name in created:
        space.unschedulable(name)
    assert not world.allocated()
    seen = space.start(pod("all", container(core=200)))
    assert len(check_view(space, seen)) == 2
    space.delete("all")
    check_view(space, space.start(pod("part", container(core=10, memory=1 * GiB))))
