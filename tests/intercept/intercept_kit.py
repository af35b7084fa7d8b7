# SPDX-License-Identifier: Apache-2.0
"""What the tests of the interception library share."""

import os
import pathlib
import shutil
import subprocess

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
STEMS = ("libcuda", "libnvidia-ml")
MODES = ("preload", "shadow", "both")

# Rust's NVML binding is tried where there is a Rust; some hundred MB of compiler are not installed for it.
CARGO = shutil.which("cargo") or shutil.which("cargo", path=os.path.expanduser("~/.cargo/bin"))


def fetched(script):
    done = subprocess.run([TOP / "scripts" / script], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


class WaysIn:
    """A driver (both libraries by stem) and the ways in front of it, laid out below `top`."""

    def __init__(self, build, library, top, driver):
        self.driver, self.library, self.kinds = driver, library, {}
        for directory in ("plain", "shadow"):
            (top / directory).mkdir()
        for stem, path in driver.items():
            shadow = build / "src" / "intercept" / f"libshadow-{stem.removeprefix('lib')}.so.1"
            (top / "plain" / f"{stem}.so.1").symlink_to(path)
            (top / "shadow" / f"{stem}-driver.so.1").symlink_to(path)
            (top / "shadow" / f"{stem}.so.1").symlink_to(shadow)
            self.kinds[os.path.realpath(path)] = "driver"
            self.kinds[os.path.realpath(shadow)] = "ours"
        self.kinds[os.path.realpath(library)] = "ours"
        self.top, self.seen = top, {}

    def environment(self, mode):
        found = {"LD_LIBRARY_PATH": str(self.top / ("shadow" if mode in ("shadow", "both") else "plain"))}
        if mode in ("preload", "both"):
            found["LD_PRELOAD"] = self.library
        return found

    def kind(self, path):
        """Whose file this is: ours, driver, or itself."""
        if path not in self.seen:
            real = os.path.realpath(path) if "/" in path else path
            self.seen[path] = self.kinds.get(real, real)
        return self.seen[path]
