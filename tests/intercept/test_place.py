# SPDX-License-Identifier: Apache-2.0
"""Where a container's processes find their share: in /dev/aliquot, mounted as the agent has it mounted, and nowhere
else. Where the driver can be reached and the share cannot, the driver is refused."""

import os
import subprocess

import handmade
import pytest

GIB = 1 << 30
OUT_OF_MEMORY, NOT_PERMITTED = "2", "800"
IN_SHARE = ["0", f"{GIB} {2 * GIB}", OUT_OF_MEMORY]
COMMANDS = f"take {GIB}", "info", f"take {2 * GIB}"

# What a runtime does: a /dev of the container's own, the directory in it, the files in that.
DEV = """set -e
mount -t tmpfs none {top}/dev && mkdir {top}/dev/shm {top}/dev/aliquot
for node in null zero full random urandom tty; do touch {top}/dev/$node; mount --bind /dev/$node {top}/dev/$node; done
mount --rbind /dev/shm {top}/dev/shm
mount --rbind {top}/dev /dev
"""
SHARE = """mount --bind {top}/library /dev/aliquot
mount -o remount,bind,ro,nosuid,nodev /dev/aliquot
mount --bind {top}/share/ledger /dev/aliquot/ledger
mount --bind {top}/share/limits /dev/aliquot/limits
mount -o remount,bind,ro,nosuid,nodev /dev/aliquot/limits
"""


@pytest.fixture
def container(aliquot, build, programs, tmp_path):
    """Runs a holder in a mount namespace with a share of 2 GiB, and returns its answers to COMMANDS. The shell commands
    `then` run after the mounts; `within` is a command that runs the holder."""
    tmp_path.chmod(0o755)   # users other than root get here, too
    for name in ("library", "share", "dev", "root"):
        (tmp_path / name).mkdir()
    for name in ("limits", "ledger"):
        (tmp_path / "library" / name).touch()
    handmade.make(tmp_path / "share", handmade.card(handmade.first_card(aliquot), 2 * GIB))
    (tmp_path / "share" / "ledger").chmod(0o666)
    node = str(build / "src/intercept/node/libaliquot.so")

    def run(then="", within="", env=None, library=node):
        (tmp_path / "commands").write_text("".join(c + "\n" for c in COMMANDS))
        script = (DEV + SHARE + then).format(top=tmp_path)
        script += f"cd / && exec {within.format(top=tmp_path)} env LD_PRELOAD={library} {programs}/holder < {tmp_path}/commands"
        done = subprocess.run([aliquot, "sim", "--", "unshare", "-m", "sh", "-c", script], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=60, env=dict(os.environ, **(env or {})))
        assert done.returncode == 0, (done.stdout, done.stderr)
        return done.stdout.splitlines()
    return run


def refused(answers):
    return answers[0] == NOT_PERMITTED and answers[2] == NOT_PERMITTED


def test_a_mounted_share(container):
    assert container() == IN_SHARE


@pytest.mark.parametrize("name, then", [
    ("nothing mounted", "umount /dev/aliquot/limits /dev/aliquot/ledger /dev/aliquot"),
    ("no directory", "umount /dev/aliquot/limits /dev/aliquot/ledger /dev/aliquot && rmdir /dev/aliquot"),
    ("no ledger", "umount /dev/aliquot/ledger"),
    ("limits that can be written", "mount -o remount,bind,rw /dev/aliquot/limits"),
    ("limits of a user", "chown 1000 {top}/share/limits"),
    ("limits of the overflow user", "chown 65534 {top}/share/limits"),
    ("a ledger of a user", "chown 1000 {top}/share/ledger"),
    ("a ledger that cannot be written", "mount -o remount,bind,ro /dev/aliquot/ledger"),
    ("files of its own in the place", "umount /dev/aliquot/limits /dev/aliquot/ledger /dev/aliquot && "
     "cp {top}/share/* /dev/aliquot/"),
    ("links to the files", "umount /dev/aliquot/limits /dev/aliquot/ledger /dev/aliquot && "
     "ln -s {top}/share/limits {top}/share/ledger /dev/aliquot/"),
])
def test_without_the_agents_files_the_driver_is_refused(container, name, then):
    assert refused(container(then=then + "\n")), name


def test_without_limits_all_memory_is_refused(container):
    """What is left is the empty file over which the limits are mounted."""
    assert container(then="umount /dev/aliquot/limits\n") == [OUT_OF_MEMORY, "0 0", OUT_OF_MEMORY]


def test_no_variable_names_another_share(container, library, tmp_path):
    """Neither beside a mounted one (also for the library of `aliquot run`) nor where the mounted one is gone."""
    (tmp_path / "named").mkdir()
    handmade.make(tmp_path / "named", handmade.card("GPU-" + "0" * 32, 20 * GIB))
    named = {"ALIQUOT_SHARE_DIR": str(tmp_path / "named"), "CUDA_DEVICE_MEMORY_LIMIT": "20g",
             "CUDA_DEVICE_MEMORY_LIMIT_0": "20g"}
    assert container(env=named) == container(env=named, library=library) == IN_SHARE
    assert refused(container(then="umount /dev/aliquot/limits /dev/aliquot/ledger /dev/aliquot\n", env=named))


def test_a_users_namespace(container):
    """There the files of the node's root have the overflow user; what a user of the namespace owns is refused."""
    user = "setpriv --reuid 1000 --regid 1000 --clear-groups unshare --user --map-user=1000"
    assert container(within=user) == IN_SHARE
    assert refused(container(then="chown 1000 {top}/share/limits\n", within=user))


ROOT = """mount --rbind / {top}/root
mount -t tmpfs none {top}/root/dev
for node in null zero full random urandom; do touch {top}/root/dev/$node; mount --bind /dev/$node {top}/root/dev/$node; done
mkdir {top}/root/dev/shm && mount --rbind /dev/shm {top}/root/dev/shm
"""


def test_a_chroot(container):
    """The driver is refused where the share cannot be reached, and under the limit where it can."""
    assert refused(container(then=ROOT, within="chroot {top}/root"))
    reachable = ROOT + "mkdir {top}/root/dev/aliquot && mount --rbind /dev/aliquot {top}/root/dev/aliquot\n"
    assert container(then=reachable, within="chroot {top}/root") == IN_SHARE


def test_a_forged_share_in_a_chroot(container, tmp_path):
    """Without the right to mount, a chroot has no read-only mount to offer."""
    forged = ROOT + ("mkdir {top}/root/dev/aliquot && cp {top}/share/limits {top}/root/dev/aliquot/ && "
                     "ln {top}/share/ledger {top}/root/dev/aliquot/ledger || cp {top}/share/ledger {top}/root/dev/aliquot/\n")
    assert refused(container(then=forged, within="chroot {top}/root"))


@pytest.mark.parametrize("arguments, works", [
    ("--dev-bind / /", True),
    ("--bind / / --dev /dev --dev-bind /dev/aliquot /dev/aliquot --dev-bind /dev/shm /dev/shm", True),
    ("--bind / / --dev /dev --dev-bind /dev/shm /dev/shm", False),
    ("--ro-bind / / --dev-bind /dev/shm /dev/shm", False),
])
def test_bubblewrap(container, arguments, works):
    answers = container(within=f"bwrap {arguments}")
    assert answers == IN_SHARE if works else refused(answers)


@pytest.mark.parametrize("dev, works", [("true", True), ("mount -t tmpfs none dev", False)])
def test_a_new_root_in_a_namespace_of_ones_own(container, dev, works):
    """As enroot makes it: root of a user namespace, mounts, pivot_root, and the old root is gone."""
    inner = (f"mount --rbind / {{top}}/root && cd {{top}}/root && {dev} && pivot_root . tmp && umount -l /tmp && "
             'exec "$@"')
    answers = container(within=f"unshare -Ur -m sh -c '{inner}' sh")
    assert answers == IN_SHARE if works else refused(answers)
