# SPDX-License-Identifier: Apache-2.0
"""An agent that has nothing to do requests nothing of the API server: a cluster has hundreds of them."""

from api_requests import Requests
from cluster import api as kube
from kit import GiB, container, pod

SECONDS = 15        # without a request; the agent polls its cards, its files and its pods once a second
STARTS = 90         # seconds, at most, from the agent's start to that


def test_an_agent_at_rest(world, space):
    """After its start, after a write, and beside a pod that does nothing either."""
    with Requests(world.api, "aliquot-agent") as requests:
        world.agent.wait_restarted(world.agent.kill())
        world.wait_tokens()
        requests.wait_rest(SECONDS, STARTS)
        started = requests.counts()
        assert started["reads"] > 0, started
        world.api.patch(kube.core("nodes", name=world.cluster.node), {"metadata": {"labels": {"nvidia.com/gpu.family": "other"}}})
        world.until(lambda: requests.counts()["writes"] > started["writes"], 10, "the agent puts its label right")
        seen = space.start(pod("idle", container(core=30, memory=4 * GiB)))
        requests.wait_rest(SECONDS, STARTS)
        space.delete(seen["metadata"]["name"])
