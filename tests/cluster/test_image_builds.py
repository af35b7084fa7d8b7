# SPDX-License-Identifier: Apache-2.0
"""The images of release builds: small, and the same bytes from another directory on another day."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import pytest

from cluster import images

TOP = pathlib.Path(__file__).resolve().parents[2]
VERSION = re.search(r"^  version: '(.+?)'", (TOP / "meson.build").read_text(), re.M)[1]
# Bytes of a compressed layer: without libdeflate, which compresses pages of metrics, without ResourceClaims, and without
# their selectors, templates, gangs and preemption; what each of them has.
LIMIT = 6_000_000 + 66_000 + 84_000 + 80_000


def copy_sources(to, day):
    """All files are of that day (seconds since 1970)."""
    def left_out(directory, names):
        generated = [n for n in names if n.startswith(("build", "gpu-kit", "dist"))] if directory == str(TOP) else []
        return {*generated, ".git", "__pycache__", ".pytest_cache"}
    shutil.copytree(TOP, to, ignore=left_out, symlinks=True)
    for directory, _, names in os.walk(to):
        for name in names:
            os.utime(os.path.join(directory, name), (day, day), follow_symlinks=False)


def images_of(source, build, out, day, cache):
    """The archives of a build as `make optimized` does it. cache: settings of ccache."""
    copy_sources(source, day)
    build.parent.mkdir(exist_ok=True)
    environment = {name: value for name, value in os.environ.items() if name not in ("CCACHE_BASEDIR", "CCACHE_NOHASHDIR")}
    environment.update(cache, SOURCE_DATE_EPOCH="1700000000")
    make = ["make", "-C", source, "-o", "setup", f"BUILD={build}", f"{build}-release/build.ninja"]
    for command in (make, ["ninja", "-C", f"{build}-release", *images.PROGRAMS],
                    [sys.executable, source / "images/aliquot_images.py", "--build", f"{build}-release", "--out", out]):
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
    return {path.name: path for path in sorted(out.iterdir())}


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    """Two of them. The first one finds objects of `make optimized` in the cache of the compiler, and the reverse. The second
    one finds its own only: its paths count, as they would without a cache."""
    top = tmp_path_factory.mktemp("builds")
    first, second = top / "one", top / "of" / "another" / "depth"
    return top, (
        images_of(first, first / "build", top / "first", 1_600_000_000, {"CCACHE_BASEDIR": str(first), "CCACHE_NOHASHDIR": "1"}),
        images_of(second, top / "elsewhere" / "build", top / "second", 1_650_000_000, {}))


def test_two_builds_are_the_same_bytes(builds):
    _, (first, second) = builds
    assert list(first) == list(second) == sorted(
        f"aliquot-{name}-{VERSION}.{kind}" for name in images.IMAGES for kind in ("oci.tar", "spdx.json", "tar"))
    differing = [name for name in first if first[name].read_bytes() != second[name].read_bytes()]
    assert differing == []


def test_no_path_of_a_build_is_in_an_image(builds):
    top, made = builds
    for archive in (path for paths in made for path in paths.values() if not path.name.endswith(".oci.tar")):
        assert str(top).encode() not in archive.read_bytes(), archive
        assert b"src/agent/" not in archive.read_bytes(), archive


def test_images_are_small(builds, capsys):
    _, (first, _) = builds
    sizes = {}
    for name in images.IMAGES:
        with tarfile.open(first[f"aliquot-{name}-{VERSION}.oci.tar"]) as layout, tarfile.open(first[f"aliquot-{name}-{VERSION}.tar"]) as whole:
            # Its only large blob is the layer.
            sizes[name] = max(member.size for member in layout), whole.getmember("layer.tar").size
    with capsys.disabled():
        for name, (compressed, unpacked) in sizes.items():
            print(f"\nimage of the {name}: {compressed:,} bytes compressed, {unpacked:,} unpacked", end="")
    assert all(compressed <= LIMIT for compressed, _ in sizes.values()), sizes
