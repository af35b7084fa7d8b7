# SPDX-License-Identifier: Apache-2.0
"""aliquot-agent --check-config: the exit status and the text that a person gets."""

import os
import re
import subprocess

import pytest

from conftest import TOP


def check(build, path, **environment):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DP_", "MIG_", "MPS_", "CONFIG_"))}
    return subprocess.run([build / "src/agent/aliquot-agent", "--check-config", path], env={**clean, **environment},
                          capture_output=True, text=True, timeout=30)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path
    return write


def test_valid(build, file):
    path = file("version: v1\nflags:\n  gdsEnabled: true\n")
    result = check(build, path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "line 3: gdsEnabled has no effect here: GPUDirect Storage is not given to containers", f"{path}: valid"]


def test_the_root_of_mps_daemons(build, file):
    """Theirs are the agent's own directories, which another option moves."""
    path = file("version: v1\nflags:\n  mpsRoot: /run/nvidia/mps\n")
    result = check(build, path, MPS_ROOT="/run/nvidia/mps")
    reason = "the directories of MPS daemons are the agent's own, in mps of its --state-dir (default /run/aliquot)"
    assert (result.returncode, result.stdout.splitlines()) == (0, [
        f"line 3: mpsRoot has no effect here: {reason}", f"$MPS_ROOT has no effect here: {reason}", f"{path}: valid"])


def test_invalid(build, file):
    path = file("version: v1\nflags:\n  migStrategie: none\n")
    result = check(build, path)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (f"aliquot-agent: {path}: line 3, column 3: unknown key 'migStrategie'; "
                             "did you mean 'migStrategy'?\n")


def test_environment(build, file):
    result = check(build, file("version: v1\n"), MIG_STRATEGY="mixd")
    assert result.returncode == 2
    assert "$MIG_STRATEGY" in result.stderr and "did you mean 'mixed'?" in result.stderr


def test_entry_of_the_node(build, file):
    path = file('{"nodeconfig": [{"name": "a", "devicesplitcount": 4}, {"name": "b"}]}')
    assert "devicesplitcount" in check(build, path, NODE_NAME="a").stdout
    assert "devicesplitcount" not in check(build, path, NODE_NAME="b").stdout


def test_two_sources(build, file):
    result = check(build, file("version: v1\n"), CONFIG_FILE="/etc/c")
    assert result.returncode == 0
    result = subprocess.run([build / "src/agent/aliquot-agent", "--config-file=/etc/c", "--config-map=m",
                             "--node-name=n"], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2
    assert "--config-map and --config-file ($CONFIG_FILE) exclude each other" in result.stderr


def test_fallbacks(build, file):
    result = check(build, file("version: v1\n"), FALLBACK_STRATEGIES="named,first")
    assert result.returncode == 2
    assert "is a list of named, single and empty" in result.stderr


def test_no_file(build, tmp_path):
    result = check(build, tmp_path / "absent")
    assert result.returncode == 1
    assert "No such file" in result.stderr


def test_sample_of_the_documentation(build, file):
    text = (TOP / "docs/configuration.md").read_text()
    (sample,) = re.findall(r"^```yaml\n(aliquot:\n.*?)^```$", text, re.M | re.S)
    result = check(build, file("version: v1\n" + sample))
    assert (result.returncode, result.stderr) == (0, "")


def test_every_key_is_documented(build):
    document = (TOP / "docs/configuration.md").read_text()
    keys = set()
    for path in (TOP / "src/agent/config").glob("*.c"):
        keys |= set(re.findall(r'(?:\{|UNSERVED\()"(\w+)"', path.read_text()))
    general = {"name"} | set(re.findall(r'UNSERVED\("(\w+)"', "".join(
        (TOP / f"src/agent/config/{name}.c").read_text() for name in ("flags", "foreign"))))
    assert len(keys) > 40
    assert sorted(key for key in keys - general if not re.search(rf"\b{key}\b", document)) == []
