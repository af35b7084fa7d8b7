# SPDX-License-Identifier: Apache-2.0
"""The runtime's hook that enters the driver's libraries into a container's cache of the dynamic linker. Containers are
directories here, in a mount namespace, as they are when the runtime calls the hook; ldconfig and the linker are glibc's."""

import ctypes
import os
import pathlib
import shutil
import stat
import subprocess

import pytest

IN_OPEN = 0x20  # of <sys/inotify.h>
LIBRARY = "/usr/lib/x86_64-linux-gnu/"


@pytest.fixture
def hook():
    build = pathlib.Path(os.environ.get("ALIQUOT_BUILD", pathlib.Path(__file__).resolve().parents[2] / "build"))
    return build / "src/agent/aliquot-hook"


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    """A shared object that no machine has."""
    path = tmp_path_factory.mktemp("driver") / "driver.so"
    subprocess.run(["gcc", "-shared", "-nostdlib", "-x", "c", "-", "-o", path, "-Wl,-soname,libaliquot-test.so.7"],
                   input="int aliquot_test(void) { return 7; }", text=True, check=True)
    return path


class Container:
    def __init__(self, root, hook, library):
        self.root, self.hook, self.library = root, hook, library
        (root / "dev/aliquot").mkdir(parents=True)
        (root / "usr/lib/x86_64-linux-gnu/other").mkdir(parents=True)
        self.mounts = [("/usr", "/dev/aliquot")]
        for name in ("libaliquot-test.so.7", "libaliquot-test.so", "other/libaliquot-not.so"):
            (root / "usr/lib/x86_64-linux-gnu" / name).touch()
            self.mounts.append((library, LIBRARY + name))

    @property
    def cache(self):
        return self.root / "etc/ld.so.cache"

    def run(self, after="true"):
        """The hook, and then a command in the same mount namespace; its standard output and error."""
        lines = [f"mount --bind {source} {self.root}{target}" for source, target in self.mounts]
        script = "set -e\n" + "\n".join(lines) + f"\ncd /\n{self.hook} ldcache </dev/null\n{after}\n"
        done = subprocess.run(["unshare", "-m", "sh", "-c", script], capture_output=True, text=True, check=False, timeout=30)
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    def listed(self):
        done = subprocess.run(["ldconfig", "-p", "-C", self.cache], capture_output=True, text=True, check=True)
        return [line.split(" => ") for line in done.stdout.replace("\t", "").splitlines()[1:]]


@pytest.fixture
def container(tmp_path, hook, library):
    return Container(tmp_path / "rootfs", hook, library)


OURS = [[f"libaliquot-test.so{end} (libc6,x86-64)", f"{LIBRARY}libaliquot-test.so{end}"] for end in (".7", "")]


LOADER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (!dlopen(argv[i], RTLD_NOW))
            puts(dlerror());
    return 0;
}"""
# Found through the cache only. Their order tells whether the linker finds its way in it.
IMAGES = sorted({f"libimage.so.{n}" for n in range(1, 25)} | {"liba.so", "libaliquot-test.so.10", "libaliquot-test1.so", "libcc.so", "libzz9.so.2"})


def fill(container, kind):
    """An image with a linker, libraries in a directory of their own, and a cache."""
    opt = container.root / "opt/image"
    for directory in ("etc", "lib64", "opt/image", "usr/bin"):
        (container.root / directory).mkdir(parents=True)
    for name in IMAGES:
        subprocess.run(["gcc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", opt / name, f"-Wl,-soname,{name}"], check=True)
    if kind == "new":   # for some processors: the cache has an extension for these, which no compat cache in the field has
        wide = opt / "glibc-hwcaps/x86-64-v2"
        wide.mkdir(parents=True)
        shutil.copy(opt / "libcc.so", wide)
    shutil.copy("/lib64/ld-linux-x86-64.so.2", container.root / "lib64")
    shutil.copy("/lib/x86_64-linux-gnu/libc.so.6", container.root / LIBRARY.strip("/"))
    subprocess.run(["gcc", "-x", "c", "-", "-o", container.root / "loader"], input=LOADER, text=True, check=True)
    (container.root / "etc/ld.so.conf").write_text("/opt/image\n")
    subprocess.run(["ldconfig", "-r", container.root, "-c", kind], check=True)


@pytest.mark.parametrize("kind", ["new", "compat"])
def test_beside_what_the_image_has(container, kind):
    """In the formats of old and new glibc. `ldconfig -p` shows all that was there and ours; the linker finds both."""
    fill(container, kind)
    before = container.listed()
    assert kind == "compat" or any("x86-64-v2" in kind_of for kind_of, _ in before)
    names = [*IMAGES, "libaliquot-test.so.7", "libaliquot-test.so"]
    assert container.run(f"chroot {container.root} /loader {' '.join(names)}") == ("", "")
    after = container.listed()
    assert [x for x in after if x not in before] == OURS
    assert [x for x in after if x not in OURS] == before and len(before) > len(IMAGES)
    assert container.cache.stat().st_mode & 0o777 == 0o644
    assert sorted(os.listdir(container.cache.parent)) == ["ld.so.cache", "ld.so.conf"]


@pytest.mark.parametrize("kind", ["new", "compat"])
def test_beside_what_this_machine_has(container, kind):
    """A cache of some hundred libraries, with the extension that newer glibc writes."""
    (container.root / "etc").mkdir()
    subprocess.run(["ldconfig", "-X", "-c", kind, "-C", container.cache], check=True)
    before = container.listed()
    assert container.run() == ("", "")
    after = container.listed()
    assert [x for x in after if x not in OURS] == before and len(before) > 20 and len(after) == len(before) + 2


def test_the_oldest_format_stays(container):
    """Nothing but glibc before 2.2 reads it alone."""
    (container.root / "etc").mkdir()
    subprocess.run(["ldconfig", "-X", "-c", "old", "-C", container.cache], check=True)
    assert untouched(container)


def test_an_image_without_a_cache(container):
    (container.root / "etc").mkdir()
    assert container.run() == ("", "")
    assert container.listed() == OURS


def test_a_container_with_whole_devices(container):
    """It has no library of ours in /dev/aliquot."""
    (container.root / "etc").mkdir()
    (container.root / "dev/aliquot").rmdir()
    (container.root / "sys/class/mem").mkdir(parents=True)
    container.mounts[0] = ("/usr", "/sys/class/mem")
    assert container.run() == ("", "")
    assert container.listed() == OURS


def untouched(container):
    _, said = container.run()
    return "stays as it is" in said


def test_a_damaged_cache_stays(container):
    (container.root / "etc").mkdir()
    for text in (b"", b"x" * 1000, b"glibc-ld.so.cache1.1" + b"\xff" * 100):
        container.cache.write_bytes(text)
        assert untouched(container) and container.cache.read_bytes() == text


def test_no_link_of_the_image_is_followed(container, tmp_path):
    """An image could have links to what is the host's when the hook runs: above its root, or through /proc."""
    host = tmp_path / "host"
    host.mkdir()
    subprocess.run(["ldconfig", "-X", "-C", host / "ld.so.cache"], check=True)
    before = (host / "ld.so.cache").read_bytes()
    (container.root / "etc").symlink_to(host)
    assert untouched(container)
    (container.root / "etc").unlink()
    (container.root / "etc").mkdir()
    container.cache.symlink_to(host / "ld.so.cache")
    assert untouched(container) and container.cache.is_symlink()
    (container.root / "etc/.ld.so.cache.aliquot").symlink_to(host / "made")
    container.cache.unlink()
    assert untouched(container)
    assert os.listdir(host) == ["ld.so.cache"] and (host / "ld.so.cache").read_bytes() == before


@pytest.mark.parametrize("kind", [stat.S_IFCHR, stat.S_IFIFO], ids=["device", "fifo"])
def test_no_device_of_the_image_is_opened(container, kind):
    """An image can have one in the place of its cache; for a watchdog or a tape it matters that it is opened. 1:3 is /dev/null."""
    (container.root / "etc").mkdir()
    os.mknod(container.cache, kind | 0o666, os.makedev(1, 3))
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert watch >= 0 and libc.inotify_add_watch(watch, os.fsencode(container.cache), IN_OPEN) >= 0
    os.close(os.open(container.cache, os.O_RDONLY | os.O_NONBLOCK))
    assert os.read(watch, 4096), "an open is seen"
    assert untouched(container)
    with pytest.raises(BlockingIOError):
        os.read(watch, 4096)
    os.close(watch)


@pytest.mark.parametrize("what", ["/etc", "/etc/ld.so.cache"])
def test_what_a_pod_mounts_there_is_left_alone(container, tmp_path, what):
    """With a hostPath volume it would be the host's."""
    host = tmp_path / "host"
    (container.root / "etc").mkdir()
    host.mkdir()
    shutil.copy("/etc/ld.so.cache", host)
    before = (host / "ld.so.cache").read_bytes()
    container.cache.touch()
    container.mounts.append((str(host) + what.removeprefix("/etc"), what))
    assert untouched(container)
    assert (host / "ld.so.cache").read_bytes() == before and os.listdir(host) == ["ld.so.cache"]


def test_a_mount_of_the_pods_is_not_taken_for_the_root(container):
    """A pod can mount something at /x/dev/aliquot."""
    inner = container.root / "x/dev/aliquot"
    inner.mkdir(parents=True)
    (container.root / "x/etc").mkdir()
    (container.root / "etc").mkdir()
    container.mounts.insert(0, ("/usr", "/x/dev/aliquot"))
    assert container.run() == ("", "")
    assert container.listed() == OURS and not os.listdir(container.root / "x/etc")


def test_without_a_container(hook):
    done = subprocess.run(["unshare", "-m", hook, "ldcache"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert "stays as it is" in done.stderr
