# SPDX-License-Identifier: Apache-2.0
"""`aliquot recommend` against a kubectl that answers from files."""

import json
import pathlib
import time

import fastjsonschema
import pytest

from test_inspect import AGENTS, Cluster, GiB, gpu, uuid
from test_output import closed

SCHEMA = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas/recommend.json"
PAGE = "get --raw /api/v1/namespaces/aliquot-system/pods/agent-b:9400/proxy/"
DAY = 86400


def at(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - seconds))


def pod(uid, name, owner=None, age=9 * DAY, containers=("main",), namespace="team", labels=None):
    refs = [{"kind": owner[0], "name": owner[1], "controller": True}] if owner else []
    statuses = [{"name": c, "state": {"running": {"startedAt": at(age)}}} for c in containers] if age is not None else []
    return {"metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels or {}, "ownerReferences": refs},
            "spec": {"nodeName": "b"}, "status": {"containerStatuses": statuses}}


def holder(uid, memory, container="main", **more):
    return {"podUID": uid, "container": container, "memoryUsed": memory // 2, "memoryPeak": memory, "memoryOverhead": 0, "memoryDriver": 0,
            "memoryCharged": 0, "refused": 0, **more}


def history(uid, taken, card=0, container="main", throttled=0, steps=360):
    return {"podUID": uid, "container": container, "uuid": uuid("b", card), "memoryUsed": [0] * steps, "gpuTimeMs": [None] + [taken] * (steps - 1),
            "gpuEntitledMs": [5000] * steps, "throttledMs": [throttled] * steps}


@pytest.fixture
def cluster(aliquot, tmp_path):
    """Deployment web has two pods of 50 % and 20 GiB; a pod by itself has 30 % and 10 GiB of each of two cards."""
    made = Cluster(aliquot, tmp_path)
    made.answers.update({
        "get gpus.elasticgpu.io -o json": {"items": [
            gpu("b", 0, (0, "0"), [("u1", "team", "web-1", 50, "20Gi"), ("u3", "other", "solo", 30, "10Gi")]),
            gpu("b", 1, (0, "0"), [("u2", "team", "web-2", 50, "20Gi"), ("u3", "other", "solo", 30, "10Gi")])]},
        "get pods -A -o json": {"items": [
            pod("u1", "web-1", ("ReplicaSet", "web-abc"), labels={"pod-template-hash": "abc"}),
            pod("u2", "web-2", ("ReplicaSet", "web-abc"), age=DAY, labels={"pod-template-hash": "abc"}),
            pod("u3", "solo", namespace="other")]},
        AGENTS: {"items": [{"metadata": {"name": "agent-b"}, "spec": {"nodeName": "b"}}]},
        PAGE + "usage": {"gpus": [
            {"uuid": uuid("b", 0), "holders": [holder("u1", 3 * GiB), holder("u3", 9 * GiB)]},
            {"uuid": uuid("b", 1), "holders": [holder("u2", int(5.8 * GiB)), holder("u3", 2 * GiB)]}]},
        PAGE + "history?skip=0": {"stepMs": 10000, "containers": [
            history("u1", 400), history("u2", 1200, 1), history("u3", 2900), history("u3", 100, 1)]}})
    return made


def ask(cluster, *words):
    done = cluster.run("recommend", *words, "-o", "json")
    assert (done.returncode, done.stderr) == (0, ""), done
    document = json.loads(done.stdout)
    fastjsonschema.compile(closed(json.loads(SCHEMA.read_text())))(document)
    return document


def by_owner(document):
    return {c["owner"]: c for c in document["containers"]}


def test_the_most_of_all_pods(cluster):
    """Of all pods of an owner on all cards the most counts, and each pod frees its part."""
    document = ask(cluster)
    assert [c["owner"] for c in document["containers"]] == ["Deployment/web", "Pod/solo"]
    web, solo = document["containers"]
    assert web["asks"] == {"core": 50, "memory": 20 * GiB} and web["seen"] == {"core": 12, "memory": int(5.8 * GiB)}
    assert web["ask"] == {"core": 20, "memory": 7 * GiB} and web["frees"] == {"core": 60, "memory": 26 * GiB}
    assert (web["pods"], web["shares"], solo["pods"], solo["shares"]) == (2, 2, 1, 2)
    assert web["note"] is None and web["seconds"] // DAY == 9 and web["computeSeconds"] == 3590
    # 9 GiB with a fifth more are not less than the 10 that it asks, which were never refused.
    assert solo["ask"] == {"core": 40, "memory": 10 * GiB} and solo["frees"] == {"core": 0, "memory": 0}
    assert document["frees"] == {"core": 60, "memory": 26 * GiB}


def test_the_table(cluster):
    lines = cluster.run("recommend").stdout.splitlines()
    assert lines[0].split() == "OWNER CONTAINER PODS ASKS SEEN IN ASK FREES NOTE".split()
    assert lines[1].split() == "team/Deployment/web main 2 50 %, 20 GiB 12 %, 5.7 GiB 9 d 0 h 20 %, 7 GiB 60 %, 26 GiB".split()
    assert lines[-1] == "Would be free in all: 26 GiB of memory, and 0.60 cards of compute."
    assert "SHARES" in cluster.run("recommend", "-o", "wide").stdout.splitlines()[0]
    assert cluster.run("recommend", "-o", "name").stdout == "deployment/web\npod/solo\n"


def test_headroom(cluster):
    web = by_owner(ask(cluster, "--headroom", "0%"))["Deployment/web"]
    assert web["ask"] == {"core": 20, "memory": 6 * GiB}
    web = by_owner(ask(cluster, "--headroom", "100"))["Deployment/web"]
    assert web["ask"] == {"core": 30, "memory": 12 * GiB}


def test_what_counts_of_the_limit(cluster):
    """The driver's own memory does, and so does what it says that it holds; without a peak (an older library) what is booked now."""
    holders = cluster.answers[PAGE + "usage"]["gpus"][1]["holders"]
    holders[0].update(memoryOverhead=2 * GiB)
    assert by_owner(ask(cluster))["Deployment/web"]["seen"]["memory"] == int(5.8 * GiB) + 2 * GiB
    holders[0].update(memoryDriver=8 * GiB, memoryCharged=GiB)
    assert by_owner(ask(cluster))["Deployment/web"]["seen"]["memory"] == 9 * GiB
    holders[0] = {"podUID": "u2", "container": "main", "memoryUsed": 4 * GiB}
    cluster.answers[PAGE + "history?skip=0"]["containers"][1]["memoryUsed"][5] = 6 * GiB
    assert by_owner(ask(cluster))["Deployment/web"]["seen"]["memory"] == 6 * GiB


def test_without_a_peak(cluster):
    """Memory was seen as long as the history is, however old the container is; compute is not concerned."""
    for card in 0, 1:
        share = cluster.answers[PAGE + "usage"]["gpus"][card]["holders"][0]
        share["memoryUsed"] = share.pop("memoryPeak") // 2
    web = by_owner(ask(cluster))["Deployment/web"]
    assert web["seconds"] == 3600 and web["note"] == "no peak of memory is known of 2 of 2 shares"
    for one in cluster.answers[PAGE + "history?skip=0"]["containers"]:
        one["memoryUsed"][:240] = [None] * 240
    web = by_owner(ask(cluster))["Deployment/web"]
    assert web["ask"] == {"core": 20, "memory": None} and web["seconds"] == 1200
    assert web["note"] == "memory was seen for 20 min only; no peak of memory is known of 2 of 2 shares"


def test_one_that_idles(cluster):
    """It has no peak as it has had no memory, and GPU time tells it from one of which none is known."""
    for time_ns, seconds in (0, 9 * DAY), (1, 3600):
        for card in 0, 1:
            share = cluster.answers[PAGE + "usage"]["gpus"][card]["holders"][0]
            share.update(memoryUsed=0, gpuTimeNs=time_ns)
            share.pop("memoryPeak", None)
        assert by_owner(ask(cluster))["Deployment/web"]["seconds"] // 3600 == seconds // 3600


def test_too_short_a_time(cluster):
    for one in cluster.answers["get pods -A -o json"]["items"]:
        one["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] = at(1800)
    document = ask(cluster)
    assert document["frees"] == {"core": 0, "memory": 0}
    for c in document["containers"]:
        assert c["ask"] == {"core": None, "memory": None} and c["note"] == "too short a time: 30 min"
    assert by_owner(ask(cluster, "--for", "20m"))["Deployment/web"]["ask"] == {"core": 20, "memory": 7 * GiB}
    line = cluster.run("recommend").stdout.splitlines()[1]
    assert "-, -" in line and "too short a time: 30 min" in line


def test_too_little_of_compute(cluster):
    cluster.answers[PAGE + "history?skip=0"]["containers"][:2] = [history("u1", 400, steps=30), history("u2", 1200, 1, steps=30)]
    web = by_owner(ask(cluster))["Deployment/web"]
    assert web["ask"] == {"core": None, "memory": 7 * GiB} and web["note"] == "compute was seen for 4 min only"


def test_throttled(cluster):
    """The advice is to ask more, however little of it was taken."""
    cluster.answers[PAGE + "history?skip=0"]["containers"][1] = history("u2", 1200, 1, throttled=3000)
    web = by_owner(ask(cluster))["Deployment/web"]
    assert web["ask"]["core"] == 70 and web["throttledPercent"] == 30 and web["note"] == "throttled 30 % of the time: ask more compute"
    cluster.answers[PAGE + "history?skip=0"]["containers"][1] = history("u2", 1200, 1, throttled=40000)     # of many threads
    assert by_owner(ask(cluster))["Deployment/web"]["throttledPercent"] == 100


def test_refused_memory(cluster):
    cluster.answers[PAGE + "usage"]["gpus"][0]["holders"][1]["refused"] = 3
    solo = by_owner(ask(cluster))["Pod/solo"]
    assert solo["ask"]["memory"] == 11 * GiB and solo["memoryRefused"] and "memory was refused" in solo["note"]


def test_containers_are_separate(cluster):
    cards = cluster.answers["get gpus.elasticgpu.io -o json"]["items"]
    share = {"container": "side", "resource": {"elasticgpu.io/gpu-core": "10", "elasticgpu.io/gpu-memory": "8Gi"}}
    cards[0]["status"]["allocated"]["u1"]["containers"].append(share)
    cluster.answers["get pods -A -o json"]["items"][0]["status"]["containerStatuses"].append(
        {"name": "side", "state": {"running": {"startedAt": at(2 * DAY)}}})
    cluster.answers[PAGE + "usage"]["gpus"][0]["holders"].append(holder("u1", GiB, "side"))
    cluster.answers[PAGE + "history?skip=0"]["containers"].append(history("u1", 100, 0, "side"))
    rows = {c["container"]: c for c in ask(cluster)["containers"] if c["owner"] == "Deployment/web"}
    assert rows["side"]["ask"] == {"core": 5, "memory": 1280 << 20} and rows["side"]["pods"] == 1
    assert rows["main"]["ask"] == {"core": 20, "memory": 7 * GiB} and rows["main"]["pods"] == 2


def test_parts_of_an_instance(cluster):
    """Time of a MIG instance is that part of a card's."""
    part = gpu("b", 2, (0, "0"), [("u4", "team", "part", 20, "5Gi")])
    part["spec"].update(parent="GPU-x", mig={"profile": "2g.20gb"})
    part["status"]["capacity"]["elasticgpu.io/gpu-core"] = "40"
    cluster.answers["get gpus.elasticgpu.io -o json"]["items"].append(part)
    cluster.answers["get pods -A -o json"]["items"].append(pod("u4", "part"))
    cluster.answers[PAGE + "usage"]["gpus"].append({"uuid": "GPU-x", "instances": [{"uuid": uuid("b", 2), "holders": [holder("u4", GiB)]}]})
    cluster.answers[PAGE + "history?skip=0"]["containers"].append(history("u4", 5000, 2))
    assert by_owner(ask(cluster))["Pod/part"]["seen"]["core"] == 20


def test_without_figures(cluster):
    """Pods of which no agent tells are named as such, and the others are there."""
    cluster.answers[AGENTS] = {"items": [{"metadata": {"name": "agent-b"}, "spec": {"nodeName": "b"}}]}
    cluster.answers[PAGE + "usage"]["gpus"][0]["holders"].pop(0)
    web = by_owner(ask(cluster))["Deployment/web"]
    assert web["sharesWithoutFigures"] == 1 and web["note"] == "no figures of 1 of 2 shares"
    cluster.answers[PAGE + "usage"] = "error: pods/proxy is forbidden"
    done = cluster.run("recommend")
    assert done.returncode == 0 and done.stderr == "aliquot recommend: no figures from agent agent-b: pods/proxy is forbidden\n"
    assert done.stdout.count("no figures: its agent does not answer") == 2 and "Would be free in all: 0 B" in done.stdout


def test_pages(cluster):
    """An agent with many containers has several pages."""
    first = cluster.answers[PAGE + "history?skip=0"]
    rest = first["containers"][1:]
    first.update(containers=first["containers"][:1], next=100)
    cluster.answers[PAGE + "history?skip=100"] = {"stepMs": 10000, "containers": rest}
    assert by_owner(ask(cluster))["Deployment/web"]["seen"]["core"] == 12
    first["next"] = 0      # it goes on and on
    assert by_owner(ask(cluster))["Deployment/web"]["seen"]["core"] == 4


def test_history_that_is_broken(cluster):
    cluster.answers[PAGE + "history?skip=0"] = "<html>"
    done = cluster.run("recommend", "-o", "json")
    assert done.returncode == 0 and "agent agent-b" in done.stderr
    assert by_owner(json.loads(done.stdout))["Deployment/web"]["ask"] == {"core": None, "memory": 7 * GiB}


def test_a_namespace_and_a_pod(cluster):
    every = cluster.answers["get pods -A -o json"]["items"]
    cluster.answers["get --raw /api/v1/namespaces/other/pods"] = {"items": every[2:]}
    for query in "namespace=other", "namespace=other&pod=solo":
        cluster.answers[PAGE + f"history?{query}&skip=0"] = cluster.answers[PAGE + "history?skip=0"]
    cluster.answers[PAGE + "history?pod=web-1&skip=0"] = cluster.answers[PAGE + "history?skip=0"]
    assert list(by_owner(ask(cluster, "-n", "other"))) == ["Pod/solo"]
    assert list(by_owner(ask(cluster, "-n", "other", "solo"))) == ["Pod/solo"]
    assert by_owner(ask(cluster, "web-1"))["Deployment/web"]["ask"] == {"core": 5, "memory": 3840 << 20}
    assert cluster.fails("recommend", "none").endswith("aliquot recommend: no pod none has a share of a card\n")
    assert "no name" in cluster.fails("recommend", "a/b")


@pytest.mark.parametrize("owner, labels, shown", [
    (("StatefulSet", "db"), {}, "StatefulSet/db"), (("Job", "j"), {}, "Job/j"), (("ReplicaSet", "own-abc"), {}, "ReplicaSet/own-abc"),
    (("ReplicaSet", "abc"), {"pod-template-hash": "abc"}, "ReplicaSet/abc"), (None, {"pod-template-hash": "abc"}, "Pod/solo")])
def test_owners(cluster, owner, labels, shown):
    pods = cluster.answers["get pods -A -o json"]["items"]
    pods[2] = pod("u3", "solo", owner, namespace="other", labels=labels)
    assert shown in by_owner(ask(cluster))


def test_what_cannot_be_read(cluster):
    for what in "get gpus.elasticgpu.io -o json", "get pods -A -o json", AGENTS:
        before = cluster.answers[what]
        cluster.answers[what] = "error: not yours"
        assert cluster.fails("recommend") == "aliquot recommend: not yours\n"
        cluster.answers[what] = before


@pytest.mark.parametrize("words, text", [
    (["a", "b"], "unexpected argument"), (["--headroom", "x"], "0% to 1000%"), (["--headroom", "1001"], "0% to 1000%"), (["--headroom", ""], "0% to"),
    (["--for", "1"], "no time"), (["--for", "h"], "no time"), (["--for", "999999999999d"], "no time"), (["--for", "1w"], "no time")])
def test_wrong_use(cluster, words, text):
    assert text in cluster.fails("recommend", *words, status=2)
