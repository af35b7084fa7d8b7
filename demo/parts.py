# SPDX-License-Identifier: Apache-2.0
"""Builds the part of the repository that the demo runs: what is installed or in an image, and the workloads. Tests and
benchmarks, which are half of all, are left out."""

import json
import os
import re
import subprocess
import time

SECONDS = 5     # between two calls of progress


class PartsError(Exception):
    """The parts cannot be built; the text is what the compiler said."""


def targets(build, *more):
    """The files to build, relative to the build directory: what is installed, and `more`."""
    # Meson's list is of its last run: let it run again where a description has changed.
    subprocess.run(["ninja", "-C", build, "build.ninja"], check=True, stdout=subprocess.DEVNULL)
    listed = subprocess.run(["meson", "introspect", "--targets", build], check=True, stdout=subprocess.PIPE,
                            text=True).stdout
    files = [name for target in json.loads(listed) if target["installed"] for name in target["filename"]]
    return sorted({os.path.relpath(name, os.path.realpath(build)) for name in files}.union(*more))


def is_built(build, files):
    done = subprocess.run(["ninja", "-C", build, "-n", *files], stdout=subprocess.PIPE, text=True)
    return done.returncode == 0 and "no work to do" in done.stdout


def build(build_dir, files, progress):
    """Calls progress(part done, 0 to 1) at the first step and every few seconds."""
    environment = dict(os.environ, NINJA_STATUS="%f/%t ")
    tail, last = [], 0.0
    with subprocess.Popen(["ninja", "-C", build_dir, *files], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as ninja:
        for line in ninja.stdout:
            tail = (tail + [line])[-60:]
            step = re.match(r"(\d+)/(\d+) ", line)
            if step and time.monotonic() - last >= SECONDS:
                last = time.monotonic()
                progress(int(step[1]) / int(step[2]))
    if ninja.returncode != 0:
        raise PartsError("Aliquot does not build:\n" + "".join(tail))
