# SPDX-License-Identifier: Apache-2.0
"""The images that only the test cluster needs; Aliquot's own are made by images/aliquot_images.py."""

import os
import shutil
import subprocess
import sys
import tempfile

from . import binaries

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(REPOSITORY, "images"))

import oci_layout                                                # noqa: E402  (the path comes first)
import sbom                                                      # noqa: E402
from aliquot_images import IMAGES, PROGRAMS, Image, content_of, unpack    # noqa: E402

__all__ = ["IMAGES", "PROGRAMS", "WORKLOAD", "aliquot", "kube_scheduler", "oci_layout", "pause", "sbom", "unpack",
           "workload", "workload_image"]
WORKLOAD = "localhost/aliquot-workload:1"


def aliquot(build, directory):
    """Archives of the agent and the scheduler."""
    return [make(build).save(directory) for make in IMAGES.values()]


def kube_scheduler(tag, directory):
    """The test cluster's kube-scheduler under the name of the official image."""
    image = Image(tag)
    image.program("/usr/local/bin/kube-scheduler", binaries.find("kube-scheduler"))
    return image.save(directory)


def pause(directory):
    """The image of every pod's sandbox: one static program that does nothing."""
    image = Image("localhost/pause:1")
    image.entries.clear()
    with tempfile.TemporaryDirectory() as work:
        out = os.path.join(work, "pause")
        subprocess.run(["gcc", "-Os", "-static", "-s", "-o", out,
                        os.path.join(HERE, "pause.c")], check=True)
        image.file("/pause", content_of(out), 0o755)
    image.config = {"Entrypoint": ["/pause"]}
    return image.save(directory)


def workload(programs, directory):
    return workload_image(programs).save(directory)


def workload_image(programs):
    """What test pods run: a shell with the usual tools, and programs (paths) in /usr/bin."""
    image = Image(WORKLOAD)
    image.program("/usr/bin/busybox", shutil.which("busybox") or "/bin/busybox")
    names = subprocess.run(["busybox", "--list"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    for name in names:
        if name != "busybox":
            image.link("/usr/bin/" + name, "busybox")
    image.driver_needs()
    for path in programs:
        image.program("/usr/bin/" + os.path.basename(path), path, strip=True)
    return image
