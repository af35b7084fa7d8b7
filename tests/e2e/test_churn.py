# SPDX-License-Identifier: Apache-2.0
"""Many pods come and go, in every state and in any order: a running pod has exactly what its Binding names."""

import random

from kit import GiB, check_no_share_twice, check_view, clear_namespace, container, is_running, pod

PODS = 60
AT_ONCE = 14


def request(rng):
    core = rng.choice([0, 5, 10, 20, 30, 50, 100])
    share = {"core": core} if core else {}
    if core < 100:
        share["memory"] = rng.choice([1, 2, 5, 8, 16]) * GiB
    return share


def check_everybody(space):
    """Pods that are on their way out may be gone before they are asked."""
    seen = [p for p in space.api.get(space.path)["items"] if "deletionTimestamp" not in p["metadata"]]
    assert not [p["metadata"]["name"] for p in seen if p["status"].get("phase") == "Failed"]
    running = [p for p in seen if is_running(p)]
    check_no_share_twice(running)
    for entry in running:
        check_view(space, entry)


def test_pods_come_and_go(world, space):
    rng = random.Random(1)
    alive = []
    for number in range(PODS):
        alive += space.create(pod(f"p{number}", container(**request(rng))))
        while len(alive) > rng.randrange(AT_ONCE):
            space.begin_delete(alive.pop(rng.randrange(len(alive))), grace=rng.choice([0, 1, None]))
        if number % 6 == 5:
            check_everybody(space)
    clear_namespace(space)
    world.wait_all_released()


def test_who_waits_is_served_when_somebody_ends(space):
    """However the end of a neighbour and the question of kube-scheduler meet."""
    holders = ["left", "right"]
    space.start_all(pod(name, container(core=60)) for name in holders)
    for number in range(6):
        late = f"late{number}"
        space.create(pod(late, container(core=60)))
        space.unschedulable(late)
        space.begin_delete(holders.pop(0), grace=0 if number % 2 else None)
        check_view(space, space.running(late, 20))
        holders.append(late)
