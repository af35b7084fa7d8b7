# SPDX-License-Identifier: Apache-2.0
"""aliquot-agent --check-config: the exit status and the text that a person gets."""

import os
import re
import subprocess

import pytest

from conftest import TOP


# Each variable by which NVIDIA's device plugin, GPU feature discovery and config-manager are configured, with a value that
# is wrong where the variable has an effect, and what the agent says of it.
NO_DRIVER = "no effect here: the agent waits for a driver and reports that it has none"
CDI = "no effect here: devices are given to containers by CDI"
TOOLKIT = "no effect here: NVIDIA's toolkit is not needed"
LABELS = "no effect here: labels are written by the agent as the node changes"
MAP = "no effect here: the ConfigMap is read through the API server"
ROOT = "no effect here: option --host-root is where the host's / is mounted"
SERVED = {
    "MIG_STRATEGY": ("mixd", "did you mean 'mixed'?"),
    "GFD_MIG_STRATEGY": ("mixd", "did you mean 'mixed'?"),
    "SHARED_DEVICES_ALLOCATION_POLICY": ("packd", "did you mean 'packed'?"),
    "FALLBACK_STRATEGIES": ("first", "is a list of named, single and empty"),
    "GFD_OUTPUT_FILE": ("gfd", "--labels ($GFD_OUTPUT_FILE) is node, off or the absolute path"),
    "GDS_ENABLED": ("yes", "$GDS_ENABLED is not 'yes': expected true or false"),
    "MOFED_ENABLED": ("yes", "$MOFED_ENABLED is not 'yes': expected true or false"),
    "GDRCOPY_ENABLED": ("yes", "$GDRCOPY_ENABLED is not 'yes': expected true or false"),
    "IMEX_REQUIRED": ("yes", "$IMEX_REQUIRED is not 'yes': expected true or false"),
    "IMEX_CHANNEL_IDS": ("1", "$IMEX_CHANNEL_IDS is not '1': expected 0, the only channel"),
}
# Served, with no value that --check-config judges: tests/e2e/test_config_map.py, tests/unit/test-config-map.c and the
# agent's --help have them.
UNJUDGED = ("NVIDIA_DRIVER_ROOT", "NVIDIA_DEV_ROOT", "CONFIG_FILE", "GFD_CONFIG_FILE", "NODE_NAME", "NODE_LABEL",
            "DEFAULT_CONFIG", "DP_ENABLE_HEALTHCHECKS", "DP_DISABLE_HEALTHCHECKS")
UNSERVED = {
    "FAIL_ON_INIT_ERROR": NO_DRIVER, "GFD_FAIL_ON_INIT_ERROR": NO_DRIVER,
    "RESTART_ON_DEVICE_UNHEALTHY": "no effect here: cards return without a restart",
    "MPS_ROOT": "no effect here: the directories of MPS daemons are the agent's own",
    "PASS_DEVICE_SPECS": CDI, "DEVICE_LIST_STRATEGY": CDI, "DEVICE_ID_STRATEGY": CDI, "CDI_ANNOTATION_PREFIX": CDI,
    "CDI_FEATURE_FLAGS": CDI, "NVIDIA_CTK_PATH": TOOLKIT, "NVIDIA_CDI_HOOK_PATH": TOOLKIT, "CONTAINER_DRIVER_ROOT": ROOT,
    "DRIVER_ROOT_CTR_PATH": ROOT, "DEVICE_DISCOVERY_STRATEGY": "no effect here: cards are found by NVML",
    "USE_NODE_FEATURE_API": LABELS, "GFD_USE_NODE_FEATURE_API": LABELS, "GFD_ONESHOT": LABELS, "GFD_NO_TIMESTAMP": LABELS,
    "GFD_SLEEP_INTERVAL": LABELS, "GFD_MACHINE_TYPE_FILE": LABELS,
    "KUBELET_SOCKET": "no effect here: option --kubelet-dir is kubelet's directory",
    "CONFIG_FILE_SRCDIR": MAP, "CONFIG_FILE_DST": MAP, "SEND_SIGNAL": MAP, "PROCESS_TO_SIGNAL": MAP,
}
VARIABLES = {*SERVED, *UNJUDGED, *UNSERVED}


def check(build, path, *options, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    return subprocess.run([build / "src/agent/aliquot-agent", "--check-config", path, *options], env={**clean, **environment},
                          capture_output=True, text=True, timeout=30)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        return path
    return write


def test_valid(build, file):
    path = file("version: v1\nflags:\n  failOnInitError: true\n")
    result = check(build, path)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "line 3: failOnInitError has no effect here: the agent waits for a driver and reports that it has none",
        f"{path}: valid"]


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


def test_an_option_hides_its_variable(build, file):
    """Whatever it is."""
    result = check(build, file("version: v1\n"), "--labels=off", GFD_OUTPUT_FILE="gfd")
    assert (result.returncode, result.stderr) == (0, "")


def test_variables(build, file):
    """Those that have an effect refuse a wrong value; of the others the agent says why they have none."""
    path = file("version: v1\n")
    for name, (value, error) in SERVED.items():
        result = check(build, path, **{name: value})
        assert result.returncode != 0 and error in result.stderr, (name, result.stderr)
    for name, note in UNSERVED.items():
        result = check(build, path, **{name: "x"})
        (line, _) = result.stdout.splitlines()
        assert result.returncode == 0 and line.startswith(f"${name} has {note}"), (name, result)
    document = (TOP / "docs/configuration.md").read_text()
    assert sorted(name for name in VARIABLES if f"`{name}`" not in document) == []


def test_every_variable_of_nvidias_is_known(build):
    """Each that the agent takes for its configuration is in the table above."""
    known = set(re.findall(r'(?:FLAG|UNSERVED|OWN|\{)\(?"([A-Z_]+)"', (TOP / "src/agent/config/variables.c").read_text()))
    known |= set(re.findall(r'(?:getenv|env_or)\("([A-Z_]+)"', (TOP / "src/agent/config.c").read_text()))
    assert known - VARIABLES == {"ALIQUOT_SIM_DIR", "ALIQUOT_COMPUTE_POLICY", "POD_NAMESPACE", "MIG_PARTED_CONFIG_FILE",
                                 "MIG_PARTED_HOOKS_FILE"}


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
