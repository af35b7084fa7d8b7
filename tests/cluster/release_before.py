# SPDX-License-Identifier: Apache-2.0
"""The release before this one: its programs and manifests, made once of its commit in this clone and kept in the cache.

tests/release-before names it, by commit and version. Its programs have the assertions that those of a build for tests have.
"""

import os
import re
import shutil
import subprocess
import tempfile
import time

from . import binaries
from .binaries import BuildError
from .estimate import ALIQUOT, Estimate, duration

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
NAMED = os.path.join(REPOSITORY, "tests", "release-before")
PROGRAMS = ("src/agent/aliquot-agent", "src/agent/aliquot-hook", "src/scheduler/aliquot-scheduler", "src/cli/aliquot",
            "src/intercept/node/libaliquot.so", "src/intercept/node/libshadow-cuda.so.1",
            "src/intercept/node/libshadow-nvidia-ml.so.1")
PART = "the release before"


def named():
    """(commit, version)."""
    with open(NAMED) as file:
        commit, version = file.read().split()
    return commit, version


class Release:
    """The commit's files in `source`, its programs in `build` under the paths that a build of it has."""

    def __init__(self, directory, version):
        self.directory, self.version = directory, version
        self.source, self.build = os.path.join(directory, "source"), os.path.join(directory, "build")

    def complete(self):
        return all(os.access(os.path.join(self.build, p), os.X_OK) for p in PROGRAMS)

    def program(self, path):
        return os.path.join(self.build, path)

    def manifests(self, name):
        """A directory of its deploy/, which names its images by its version."""
        return os.path.join(self.directory, "deploy", name)

    def images(self, directory):
        """Archives of its images in `directory`, made by its own script and named by its version."""
        made = []
        for name in ("agent", "scheduler"):
            tag = f"docker.io/library/aliquot-{name}:{self.version}"
            script = ("import sys; sys.path.insert(0, sys.argv[1]); import aliquot_images as i; "
                      "image = i.IMAGES[sys.argv[2]](sys.argv[3]); image.tag = sys.argv[4]; print(image.save(sys.argv[5]))")
            done = subprocess.run(["/usr/bin/python3", "-c", script, os.path.join(self.source, "images"), name, self.build, tag,
                                   directory], stdout=subprocess.PIPE, text=True, check=True,
                                  env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
            made.append(done.stdout.strip())
        return made


def ensure(say=print):
    """The release, which is built where the cache lacks it. Safe when several run at once; a killed build leaves nothing half
    done. BuildError says what is missing."""
    commit, version = named()
    release = Release(os.path.join(binaries.cache_root(), "release", commit[:16]), version)
    if release.complete():
        return release
    with binaries.locked(release.directory + ".lock", say):
        if not release.complete():
            _make(release, commit, say)
    return release


def _make(release, commit, say):
    begun = time.monotonic()
    parent = os.path.dirname(release.directory)
    work = tempfile.mkdtemp(prefix=".new.", dir=parent)
    try:
        made = Release(work, release.version)
        _unpack(commit, made)
        _name_images(made)
        _build(made, say)
        shutil.rmtree(release.directory, ignore_errors=True)
        os.rename(work, release.directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"built {PART} ({release.version}) in {duration(time.monotonic() - begun)}; kept in {release.directory}")


def _unpack(commit, made):
    os.mkdir(made.source)
    with subprocess.Popen(["git", "-C", REPOSITORY, "archive", commit], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as archive:
        unpacked = subprocess.run(["tar", "-x", "-C", made.source], stdin=archive.stdout, stderr=subprocess.PIPE)
        why = archive.stderr.read().decode().strip()
    if archive.returncode != 0 or unpacked.returncode != 0:
        raise BuildError(f"this clone lacks the commit of {PART} ({made.version}, tests/release-before): {why}\n"
                         f"A shallow clone has it after: git fetch --unshallow, or git fetch origin {commit}")


def _name_images(made):
    """Its manifests name images of a build (`dev`), which those of this version do as well."""
    shutil.copytree(os.path.join(made.source, "deploy"), made.manifests(""))
    for where, _, names in os.walk(made.manifests("")):
        for name in names:
            path = os.path.join(where, name)
            with open(path) as file:
                text = file.read()
            with open(path, "w") as file:
                file.write(re.sub(r"(image: \S*aliquot-(?:agent|scheduler)):dev\b", rf"\1:{made.version}", text))


def _build(made, say):
    env = dict(os.environ, CCACHE_BASEDIR=made.source, CCACHE_NOHASHDIR="1")
    env.setdefault("CCACHE_DIR", os.path.join(binaries.cache_root(), "ccache"))
    for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"):     # Meson takes ccache itself where nothing is chosen
        env.pop(name, None)
    estimate, told, tail = Estimate({PART: ALIQUOT}), 0.0, []
    configured = subprocess.run(["meson", "setup", made.build, made.source], env=env, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)
    if configured.returncode != 0:
        raise BuildError(f"meson refuses {PART}:\n{configured.stdout[-2000:]}")
    with subprocess.Popen(["ninja", "-C", made.build, *PROGRAMS], env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as building:
        try:
            for line in building.stdout:
                tail = (tail + [line])[-30:]
                at = re.match(r"\[(\d+)/(\d+)\]", line)
                if at and time.monotonic() - told > 5:
                    told = time.monotonic()
                    say(f"building {PART} ({estimate.at(PART, int(at[1]) / int(at[2]))})")
        except BaseException:
            building.terminate()
            raise
    if building.returncode != 0:
        raise BuildError(f"building {PART} failed:\n" + "".join(tail))
    _keep_programs(made)


def _keep_programs(made):
    """A build directory has hundreds of MB of object files."""
    kept = os.path.join(made.directory, "kept")
    for path in PROGRAMS:
        os.makedirs(os.path.dirname(os.path.join(kept, path)), exist_ok=True)
        os.rename(made.program(path), os.path.join(kept, path))
    shutil.rmtree(made.build)
    os.rename(kept, made.build)
