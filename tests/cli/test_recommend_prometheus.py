# SPDX-License-Identifier: Apache-2.0
"""`aliquot recommend --prometheus`: a real Prometheus with known figures of three hours, asked by the real kubectl, and one that
answers from files behind the API server."""

import contextlib
import json
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import pytest

from test_chart import programs     # noqa: F401  (fixture)
from test_inspect import GiB, uuid
from test_recommend import by_owner, cluster     # noqa: F401  (fixture)

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
HOURS = 3
WHERE = "mon/prometheus-operated:9090"


def series(began, now):
    """Every minute: u1 takes 30 % of a card for ten minutes, is throttled a fifth of the time and had 9 GiB at its most; u2 idles.
    After two hours the agent was replaced: series of another target go on."""
    figures = {}

    def put(name, uid, card, at, value):
        target = "agent-1" if at < began + 7200 else "agent-2"
        labels = f'container="main",instance="{target}",pod_uid="{uid}",uuid="{uuid("b", card)}"'
        figures.setdefault(name, []).append((uid + target, f"{name}{{{labels}}} {value} {at}"))
    taken = 0
    for at in range(began, now, 60):
        busy = began + 3600 <= at < began + 4200
        taken += 18 if busy else 6
        for uid, card in ("u1", 0), ("u2", 1):
            first = uid == "u1"
            put("aliquot_container_memory_used_bytes", uid, card, at, 7 * GiB if first and busy else GiB)
            put("aliquot_container_memory_peak_bytes", uid, card, at, 9 * GiB if first and at >= began + 3600 else GiB)
            put("aliquot_container_memory_overhead_bytes", uid, card, at, GiB // 2)
            put("aliquot_container_memory_driver_bytes", uid, card, at, 2 * GiB)
            put("aliquot_container_gpu_seconds_total", uid, card, at, taken if first else 0)
            put("aliquot_container_throttled_seconds_total", uid, card, at, (at - began) // 5 if first else 0)
            put("aliquot_container_memory_refused_total", uid, card, at, 0)
    lines = []
    for name, samples in figures.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE {name.removesuffix('_total')} {kind}", *[line for _, line in sorted(samples, key=lambda s: s[0])]]
    return "\n".join([*lines, "# EOF\n"])


@contextlib.contextmanager
def serving(directory, data):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (data / "none.yaml").write_text("{}\n")
    url = f"http://127.0.0.1:{port}"
    with open(data / "log", "w") as log:
        process = subprocess.Popen([f"{directory}/prometheus", f"--config.file={data}/none.yaml", f"--storage.tsdb.path={data}/tsdb",
                                    f"--web.listen-address=127.0.0.1:{port}", "--web.route-prefix=/below", f"--web.external-url={url}/below"],
                                   stdout=log, stderr=log)
    try:
        end = time.monotonic() + 60
        while True:
            assert process.poll() is None and time.monotonic() < end, (data / "log").read_text()
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                urllib.request.urlopen(f"{url}/below/-/ready", timeout=5)
                break
            time.sleep(0.05)
        yield f"{url}/below/"
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def prometheus(tmp_path):
    directory = subprocess.run([TOP / "scripts/fetch-prometheus"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    now = int(time.time())
    (tmp_path / "figures").write_text(series(now - HOURS * 3600, now))
    subprocess.run([f"{directory}/promtool", "tsdb", "create-blocks-from", "openmetrics", tmp_path / "figures", tmp_path / "tsdb"],
                   check=True, stdout=subprocess.DEVNULL)
    with serving(directory, tmp_path) as url:
        yield url


def test_figures_of_a_real_one(cluster, prometheus, programs):     # noqa: F811
    """The most of three hours: 9 GiB and what the driver took, 30 % of a card, a fifth of the time throttled."""
    real = programs["kubectl"]
    cluster.kubectl.write_text(cluster.kubectl.read_text().replace(
        "#!/bin/sh\n", f"#!/bin/sh\ncase $* in *--server=*) exec {real} \"$@\" ;; esac\n"))
    done = cluster.run("recommend", "--prometheus", prometheus, "--range", "3h", "-o", "json")
    assert (done.returncode, done.stderr) == (0, ""), done
    rows = by_owner(json.loads(done.stdout))
    web = rows["Deployment/web"]
    assert web["seen"] == {"core": 30, "memory": 9 * GiB + GiB // 2}, web
    assert web["ask"] == {"core": 60, "memory": 12 * GiB} and 15 <= web["throttledPercent"] <= 20 and not web["memoryRefused"]
    assert 9000 <= web["seconds"] <= 10800 and 9000 <= web["computeSeconds"] <= 10800
    assert rows["Pod/solo"]["note"] == "no figures: Prometheus has none of its pods" and rows["Pod/solo"]["ask"] == {"core": None, "memory": None}


def answer(*samples):
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": [
        {"metric": metric, "value": [time.time(), value]} for metric, value in samples]}})


def path(query):
    return f"get --raw /api/v1/namespaces/mon/services/prometheus-operated:9090/proxy/api/v1/query?query={urllib.parse.quote(query, safe='-_.~')}"


BY = "max by (pod_uid, container, uuid, exported_pod_uid, exported_container, exported_uuid) "
QUERIES = [f"{BY}(max_over_time(aliquot_container_memory_used_bytes[604800s]))", f"{BY}(max_over_time(aliquot_container_memory_peak_bytes[604800s]))",
           f"{BY}(max_over_time(aliquot_container_memory_overhead_bytes[604800s]))",
           f"{BY}(max_over_time(aliquot_container_memory_driver_bytes[604800s]))",
           f"max_over_time({BY}(rate(aliquot_container_gpu_seconds_total[5m]))[604800s:5m])",
           f"avg_over_time({BY}(clamp_max(rate(aliquot_container_throttled_seconds_total[5m]), 1))[604800s:5m])",
           f"{BY}(increase(aliquot_container_memory_refused_total[604800s]))",
           f"count_over_time({BY}(aliquot_container_memory_used_bytes)[604800s:5m])",
           f"count_over_time({BY}(rate(aliquot_container_gpu_seconds_total[5m]))[604800s:5m])"]


def through_the_api_server(cluster, values, labels=("pod_uid", "container", "uuid"), words=()):     # noqa: F811
    metric = dict(zip(labels, ("u2", "main", uuid("b", 1))))
    cluster.answers.update({path(query): answer((metric, str(value))) for query, value in zip(QUERIES, values)})
    return cluster.run("recommend", "--prometheus", WHERE, *words, "-o", "json")


@pytest.mark.parametrize("prefix", ["", "exported_"])
def test_through_the_api_server(cluster, prefix):     # noqa: F811
    """Also of a Prometheus that has renamed the labels. What is no number is nothing."""
    done = through_the_api_server(cluster, [GiB, 3 * GiB, GiB, 0, 0.120000001, "NaN", 2, 2000, 1999],
                                  [prefix + name for name in ("pod_uid", "container", "uuid")])
    web = by_owner(json.loads(done.stdout))["Deployment/web"]
    assert web["seen"] == {"core": 12, "memory": 4 * GiB} and web["ask"] == {"core": 20, "memory": 5 * GiB}
    assert (web["seconds"], web["computeSeconds"], web["memoryRefused"], web["throttledPercent"]) == (599700, 599400, True, None)
    assert web["sharesWithoutFigures"] == 1 and not any("agent" in line for line in cluster.asked())


def test_a_long_time(cluster):     # noqa: F811
    """A Prometheus has more than the hour of the agents: compute is to be seen as long as memory."""
    for hours, core in (23, None), (25, 20):
        done = through_the_api_server(cluster, [GiB, 3 * GiB, GiB, 0, 0.12, 0, 0, 2000, hours * 12 + 1], words=("--for", "1d"))
        web = by_owner(json.loads(done.stdout))["Deployment/web"]
        assert web["ask"] == {"core": core, "memory": 5 * GiB} and ("compute was seen for 23 h" in web["note"]) == (core is None)


@pytest.mark.parametrize("said, text", [
    (None, "nothing is known of"), ("error: services/proxy is forbidden", "services/proxy is forbidden"), ("<html>", "JSON"),
    (json.dumps({"status": "error", "error": "query timed out"}), "query timed out"), ("{}", "it is no answer of one")])
def test_one_that_does_not_answer(cluster, said, text):     # noqa: F811
    cluster.answers[path(QUERIES[0])] = said
    failed = cluster.fails("recommend", "--prometheus", WHERE)
    assert failed.startswith(f"aliquot recommend: Prometheus {WHERE}: ") and text in failed, failed


@pytest.mark.parametrize("where", ["prometheus", "a/b", "a/b:", "/b:1", "a/b:c/d", "ftp://x", "a b/c:1", "http://" + "x" * 600])
def test_no_place(cluster, where):     # noqa: F811
    assert "NAMESPACE/SERVICE:PORT" in cluster.fails("recommend", "--prometheus", where, status=2)
