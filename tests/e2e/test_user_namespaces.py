# SPDX-License-Identifier: Apache-2.0
"""Pods with a user namespace of their own (`hostUsers: false`), under runc 1.5, on a node whose /run is mounted noexec. In
there a runtime cannot take that flag off, and the loader ignores a library on such a mount."""

import re
import secrets

import kit
import pytest
from cluster import aliquot
from cluster.cluster import Cluster
from kit import OUT_OF_MEMORY, GiB, check_view, container, pod

pytestmark = [pytest.mark.foreign, pytest.mark.long]

# The files of the simulated driver stay executable, as those of the GPU operator below /run are, on a mount of their own. The
# kernel lets a user namespace mount what is fully visible in its mount namespace; parts of /proc and /sys can be covered here.
PREPARE = f"""\
mount -o remount,noexec /run
mkdir -p {aliquot.DRIVER}
mount -t tmpfs none {aliquot.DRIVER}
for kind in proc sysfs; do mkdir -p /mnt/$kind; mount -t $kind none /mnt/$kind; done
"""


@pytest.fixture(scope="module")
def world(build):
    with Cluster("users-" + secrets.token_hex(2), new_runc=True) as cluster:
        cluster.up()
        cluster.on_node(["sh", "-ec", PREPARE])
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe"])
        installed = kit.World(cluster, build)
        installed.wait_tokens(60)
        yield installed
        installed.wait_cleared()


def on_node(world, seen, path):
    """A file of /proc of the container's first process."""
    process = world.first_process(seen["status"]["containerStatuses"][0])
    return world.cluster.on_node(["cat", f"/proc/{process}/{path}"]).stdout


def options(world, seen, where):
    """Flags of the mount in the container."""
    (found,) = re.findall(rf"^(?:\S+ ){{4}}{where} (\S+) ", on_node(world, seen, "mountinfo"), re.M)
    return found.split(",")


def test_a_share_in_a_user_namespace(world, space):
    """The library is loaded and its limit holds: it lies on a mount without that flag, its share on one with it."""
    seen = space.start(pod("share", container(core=30, memory=2 * GiB), hostUsers=False))
    assert on_node(world, seen, "uid_map").split()[:2] != ["0", "0"]
    check_view(space, seen)
    with space.tenant(seen) as tenant:
        assert tenant.alloc(GiB) == 0 and tenant.alloc(GiB) == OUT_OF_MEMORY
    assert "noexec" in options(world, seen, "/dev/aliquot/limits") and "noexec" not in options(world, seen, "/dev/aliquot")
    world.kill_container(seen["status"]["containerStatuses"][0])
    again = space.wait("share", lambda s: kit.is_running(s) and s["status"]["containerStatuses"][0]["restartCount"] == 1)
    check_view(space, again)
