# SPDX-License-Identifier: Apache-2.0
"""Aliquot's own images: small, complete, and the same bytes each time."""

import gzip
import os
import subprocess
import tempfile

import pytest

from cluster import images

LIMIT = 10 * 1000 * 1000    # bytes, compressed
NAMES = sorted(images.IMAGES)


@pytest.fixture(scope="module")
def build():
    where = os.environ.get("ALIQUOT_BUILD")
    assert where, "set ALIQUOT_BUILD to the build directory"
    return where


@pytest.mark.parametrize("name", NAMES)
def test_small_and_reproducible(build, tmp_path, name):
    first, second = (images.IMAGES[name](build).save(str(tmp_path / d)) for d in "ab")
    with open(first, "rb") as a, open(second, "rb") as b:
        content = a.read()
        assert content == b.read()
    assert len(gzip.compress(content, 6)) <= LIMIT


@pytest.mark.parametrize("name", NAMES)
def test_program_starts_with_nothing_but_its_image(build, tmp_path, name):
    root = str(tmp_path / "root")
    images.unpack(images.IMAGES[name](build), root)
    done = subprocess.run(["chroot", root, f"/usr/local/bin/aliquot-{name}", "--help"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    assert "--listen" in done.stdout


def test_agent_brings_the_library(build):
    entries = images.IMAGES["agent"](build).entries
    for name in ("libaliquot.so", "shadow/libshadow-cuda.so.1", "shadow/libshadow-nvidia-ml.so.1"):
        assert "/usr/local/lib/aliquot/node/" + name in entries
    # The node runs it without this image around it.
    with tempfile.NamedTemporaryFile() as hook:
        hook.write(entries["/usr/local/lib/aliquot/aliquot-hook"][2])
        hook.flush()
        headers = subprocess.run(["readelf", "-lW", hook.name], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert "INTERP" not in headers
