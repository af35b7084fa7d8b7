# SPDX-License-Identifier: Apache-2.0
"""The port at which other hosts read the metrics of aliquot-scheduler, and nothing else."""

import os
import pathlib
import re
import subprocess
import urllib.error
import urllib.request

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def scheduler(build, tmp_path):
    """One without a cluster, which is not ready and has metrics; the addresses of its two ports."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=ca",
                    "-keyout", tmp_path / "key", "-out", tmp_path / "ca"], check=True, capture_output=True)
    (tmp_path / "token").write_text("none")
    own = f"127.{os.getpid() >> 16 & 127}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"     # no other process listens there
    one, other = f"{own}:9401", f"{own}:9403"
    process = subprocess.Popen(
        [build / "src/scheduler/aliquot-scheduler", f"--listen={one}", f"--metrics-listen={other}",
         "--api-server=https://127.0.0.1:1", f"--token-file={tmp_path}/token", f"--ca-file={tmp_path}/ca"],
        stderr=subprocess.PIPE, text=True)
    listening = set()
    for line in process.stderr:
        listening.update(re.findall(r"listening on (\S+)", line))
        if listening == {one, other}:
            break
    assert listening == {one, other}
    yield one, other
    process.terminate()
    process.communicate(timeout=20)


def answer(address, path, body=None):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", body, timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, ""


def test_other_hosts_read_metrics_only(scheduler):
    own, metrics = scheduler
    status, text = answer(metrics, "/metrics")
    assert status == 200 and "\naliquot_scheduler_ready 0\n" in text
    assert answer(own, "/metrics")[0] == 200 and answer(own, "/status")[0] == 200
    for path, body in (("/status", None), ("/explain?namespace=a&pod=b", None), ("/livez", None), ("/filter", b"{}"),
                       ("/bind", b"{}"), ("/preempt", b"{}")):
        assert answer(metrics, path, body)[0] in (404, 405), path


def test_metrics_are_those_of_the_table(scheduler):
    """No other family is served, each has its type and its help, and is followed by its own samples only."""
    table = (TOP / "src/scheduler/pages/metrics.def").read_text()
    rows = {name: (kind.lower(), help_) for name, kind, help_ in
            re.findall(r'^METRIC\(\w+, "(\w+)", (\w+), .*, "(.*?)"\)$', table, re.M)}
    assert len(rows) > 20
    found, helps, family = {}, {}, None
    for line in answer(scheduler[1], "/metrics")[1].splitlines():
        if line.startswith("# HELP "):
            family, helps[family] = line[7:].split(" ", 1)
        elif line.startswith("# TYPE "):
            name, kind = line[7:].split(" ")
            assert name == family and name not in found
            found[name] = (kind, helps[name])
        else:
            suffix = "_(bucket|sum|count)" if found[family][0] == "histogram" else ""
            assert re.match(rf"{family}{suffix}[ {{]", line), line
    assert found == rows
