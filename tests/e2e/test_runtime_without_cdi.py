# SPDX-License-Identifier: Apache-2.0
"""A container runtime that drops CDI devices: no container with a share starts, and its pod says why. The runtime is a fake
(cri_without_cdi.py) in front of containerd, because containerd 2 applies CDI always."""

import contextlib
import json
import pathlib
import sys

from kit import GiB, check_view, container, pod

FAKE = pathlib.Path(__file__).parent / "cri_without_cdi.py"
SOCKET = "/run/cri-without-cdi.sock"
KUBELET = "/etc/kubernetes/kubelet.yaml"
NAME = "cri-without-cdi"


@contextlib.contextmanager
def runtime_without_cdi(world):
    """kubelet uses the fake for the length of the block."""
    path = pathlib.Path(world.node_path(KUBELET))
    original = path.read_text()
    configuration = json.loads(original)
    runtime = configuration["containerRuntimeEndpoint"].removeprefix("unix://")
    world.cluster.spawn(NAME, [sys.executable, str(FAKE), SOCKET, runtime], notify=True)
    try:
        path.write_text(json.dumps(dict(configuration, containerRuntimeEndpoint="unix://" + SOCKET)))
        world.cluster.restart("kubelet")
        yield
    finally:
        path.write_text(original)
        world.cluster.restart("kubelet")
        world.cluster.stop(NAME)


def test_a_container_is_refused_with_the_remedy_and_starts_when_it_is_followed(world, space):
    with runtime_without_cdi(world):
        space.start(pod("plain", container()))
        space.create(pod("share", container(core=10, memory=2 * GiB)))
        space.refused("share", "CDI-is-off-in-the-container-runtime")
        told = space.event("share", "ContainerRuntimeWithoutCDI")
        assert "turn CDI on" in told, told
        assert any("turn CDI on" in text for text in world.doctor()["nodes", "wrong"])
    check_view(space, space.running("share"))
