# SPDX-License-Identifier: Apache-2.0
"""The release before this one is found in the clone, or its lack is told with the remedy."""

import os
import subprocess

import pytest

from cluster import binaries, release_before
from cluster.cluster import REPOSITORY


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def test_a_clone_without_the_commit(tmp_path, monkeypatch):
    """As actions/checkout makes them."""
    shallow, cache = tmp_path / "clone", tmp_path / "cache"
    git("clone", "-q", "--depth=1", f"file://{REPOSITORY}", str(shallow))
    monkeypatch.setattr(release_before, "REPOSITORY", str(shallow))
    monkeypatch.setenv("ALIQUOT_CACHE", str(cache))
    commit, version = release_before.named()
    with pytest.raises(binaries.BuildError) as error:
        release_before.ensure()
    assert f"lacks the commit of the release before ({version}" in str(error.value)
    assert f"git fetch --unshallow, or git fetch origin {commit}" in str(error.value)
    assert [name for name in os.listdir(cache / "release") if not name.endswith(".lock")] == []


def test_the_manifests_name_its_version(tmp_path):
    """Both releases are on one node: images of one name would be one image."""
    commit, version = release_before.named()
    made = release_before.Release(str(tmp_path), version)
    release_before._unpack(commit, made)
    release_before._name_images(made)
    named = subprocess.run(["grep", "-rhoE", "image: \\S+", made.manifests("base")], check=True, stdout=subprocess.PIPE, text=True).stdout
    assert sorted(named.split()[1::2]) == [f"aliquot-agent:{version}", f"aliquot-scheduler:{version}"]
