# SPDX-License-Identifier: Apache-2.0
"""How measured figures are written down."""

import os
import pathlib
import platform
import re
import sys
import time


def machine():
    """One line that says where and when the figures were made."""
    cpu = "unknown CPU"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    return (f"Machine: {os.cpu_count()} x {cpu}, {memory} GiB, Linux {platform.release()}, "
            f"{time.strftime('%Y-%m-%d', time.gmtime())}; GPUs simulated.")


def duration(ns):
    for limit, unit, size in ((1e3, "ns", 1), (1e6, "us", 1e3), (1e9, "ms", 1e6)):
        if abs(ns) < limit:
            return f"{ns / size:.1f} {unit}"
    return f"{ns / 1e9:.2f} s"


def write_between(path, name, text):
    """Puts the text between the markers of that name in a file."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    old = path.read_text()
    pattern = re.compile(re.escape(begin) + ".*" + re.escape(end), re.S)
    if not pattern.search(old):
        sys.exit(f"error: {path} has no {begin} … {end}")
    path.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", old))
