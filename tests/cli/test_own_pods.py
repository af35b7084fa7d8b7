# SPDX-License-Identifier: Apache-2.0
"""A user who may read the pods of a namespace, and neither cards nor agents, sees the shares and the use of these pods, and
nothing else. On a real cluster: tests/e2e/test_tenant.py, test_autoscaling.py; by the page: test_web_cluster.py."""

import json
import re

import pytest

from test_inspect import Cluster, GiB, pod, uuid

PODS = "get --raw /api/v1/namespaces/team/pods"
CARDS = "get gpus.elasticgpu.io -o json"
METRIC = "get --raw /apis/custom.metrics.k8s.io/v1beta2/namespaces/team/pods/%2A/"
USED, BUSY = METRIC + "gpu_memory_used_bytes", METRIC + "gpu_utilization"
UNBOUND = "get --raw /api/v1/namespaces/team/pods?fieldSelector=spec.nodeName%3D"


ADDRESSES = {"a": "10.0.0.1", "b": "fd00::2"}       # by which agents name cards, if they are IPv4's


def placed(name, node, *devices, phase="Running"):
    """A pod with shares of cards: (index, uuid, core, memory)."""
    shares = [dict(zip(("index", "uuid", "core", "memory"), device)) for device in devices]
    note = {"v": 1, "node": node, "containers": {"main": shares}}
    made = pod(name, node, annotations={"elasticgpu.io/assignment": json.dumps(note)}, phase=phase)
    made["metadata"]["uid"] = "uid-" + name
    made["status"]["hostIP"] = ADDRESSES[node]
    return made


def metric(**values):
    return {"kind": "MetricValueList", "items": [
        {"describedObject": {"kind": "Pod", "namespace": "team", "name": name}, "value": value} for name, value in values.items()]}


@pytest.fixture
def cluster(aliquot, tmp_path):
    made = Cluster(aliquot, tmp_path)
    mig = "MIG-00000000-0000-0000-0000-000000000001"
    made.answers = {
        CARDS: "error: gpus is forbidden", UNBOUND: {"items": [pod("large", core="200")]},
        PODS: {"items": [placed("train", "b", (0, uuid("b", 0), 50, 60 * GiB)), placed("web", "b", (0, uuid("b", 0), 0, 4 * GiB)),
                         placed("two", "a", (1, uuid("a", 1), 20, GiB), (2, uuid("a", 2), 20, GiB)), placed("part", "a", (3, mig, 30, 5 * GiB)),
                         placed("ended", "b", (0, uuid("b", 0), 10, GiB), phase="Succeeded"), pod("plain", "b", core=None),
                         placed("new", "b", (0, "", 10, GiB)), pod("large", core="200")]},
        USED: metric(train=str(15 * GiB), web="1073741824", two="7", part="0", stranger="5"),
        BUSY: metric(train="90", web="12500m", two="80", part="x")}
    return made


def shown(cluster, *words):
    done = cluster.run(*words)
    assert done.returncode == 0, done
    return done.stdout, done.stderr


def test_shares_and_use(cluster):
    """A part without a size is told of the whole card. What a pod with two shares uses of each is not told."""
    out, err = shown(cluster, "top", "--once", "-n", "team", "--view", "containers", "--sort", "unused")
    rows = {line.split()[0]: line for line in out.splitlines()[1:]}
    assert err == "" and sorted(rows) == ["team/part", "team/train", "team/two", "team/web"]
    assert out.splitlines()[1] == rows["team/train"]
    assert re.findall(r"\d+%|[\d.]+ [KMGT]iB|- ", rows["team/train"]) == ["50%", "60 GiB", "25%", "45 GiB", "45%"]
    assert re.findall(r"\d+%|[\d.]+ [KMGT]iB", rows["team/web"]) == ["4 GiB", "25%", "3 GiB", "13%"]
    assert len([line for line in out.splitlines() if "team/two" in line and "%" in line.replace("20%", "", 1)]) == 0
    assert "b-00" in rows["team/train"] and "MIG-" in rows["team/part"]


def test_cards(cluster):
    """Of which only these shares are known."""
    out, err = shown(cluster, "gpus", "-n", "team")
    assert err == "" and "team/train (main)" in out and "15 GiB" in out and " of " not in out
    document = json.loads(shown(cluster, "gpus", "-n", "team", "-o", "json")[0])
    cards = [card for node in document["nodes"] for card in node["gpus"]]
    assert [(card["name"][:11], card["state"], len(card["holders"])) for card in cards] == [
        ("10.0.0.1-01", "-", 1), ("10.0.0.1-02", "-", 1), ("MIG-0000000", "-", 1), ("b-00", "-", 2)]
    (train,) = [holder for card in cards for holder in card["holders"] if holder["pod"] == "train"]
    assert train["use"] == {"memory": 15 * GiB, "percent": 45} and train["memory"] == 60 * GiB
    out, _ = shown(cluster, "top", "--once", "-n", "team")
    assert [line.split()[0] for line in out.splitlines()[1:]][0] and "Healthy" not in out
    out, _ = shown(cluster, "top", "--once", "-n", "team", "--view", "nodes")
    assert "ealthy" not in out and len(out.splitlines()) == 3


@pytest.mark.parametrize("answer, text", [
    (None, "the cluster does not serve the metrics of pods (scheduler.metricsApi.enabled of the chart)"),
    ("error: pods.custom.metrics.k8s.io is forbidden", "pods.custom.metrics.k8s.io is forbidden")])
def test_without_their_metrics(cluster, answer, text):
    """The shares are shown."""
    cluster.answers[USED] = answer
    for words in ["gpus"], ["top", "--once", "--view", "containers"]:
        out, err = shown(cluster, *words, "-n", "team")
        assert "team/train (main)" in out and "GiB" in out
        assert err == f"aliquot {words[0]}: no figures of use: {text}\n"


@pytest.mark.parametrize("words", [["gpus"], ["top", "--once"]])
def test_without_rights(cluster, words):
    """All namespaces are not asked for one by one, and a namespace whose pods are refused shows nothing."""
    assert cluster.fails(*words).endswith("gpus is forbidden\n")
    cluster.answers[PODS] = "error: pods is forbidden"
    assert cluster.fails(*words, "-n", "team").endswith("gpus is forbidden\n")
    assert cluster.fails(*words, "-n", "team/../x")


def test_shares_of_claims(cluster):
    """Beside a pod's on the card that this names, and on a card that no pod of the namespace names: also an instance of that one that
    was made for a claim."""
    def claim(name, node, index, place="", **status):
        result = {"request": "gpu", "driver": "gpu.elasticgpu.io", "pool": node, "device": uuid(node, index).lower() + place,
                  "shareID": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "consumedCapacity": {"core": "30", "memory": "20Gi"}}
        of = [{"resource": "pods", "name": "one", "uid": "uid-one"}] if not status else []
        return {"metadata": {"name": name, "namespace": "team", "uid": "uid-" + name, "resourceVersion": "1"}, "spec": {},
                "status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": of}}
    user = pod("one", "b", core=None)
    user["metadata"]["uid"] = "uid-one"
    user["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "near"}, {"name": "far", "resourceClaimName": "far"},
                                      {"name": "part", "resourceClaimName": "part"}]
    user["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}, {"name": "far"}, {"name": "part"}]}
    cluster.answers[PODS]["items"].append(user)
    cluster.answers["get --raw /apis/resource.k8s.io/v1/namespaces/team/resourceclaims"] = {
        "items": [claim("near", "b", 0), claim("far", "a", 9), claim("part", "a", 9, "-1g-10gb-0"), claim("unused", "a", 9, unused=True)]}
    out, err = shown(cluster, "gpus", "-n", "team")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert err == "" and "unused" not in out
    near = lines.index("team/near (ResourceClaim) 30 % 20 GiB")
    assert lines[near + 1] == "team/one (main)"
    assert any(line.startswith("b-00 b") for line in lines[:near])
    far = lines.index("team/far (ResourceClaim) 30 % 20 GiB")
    assert lines[far - 1].startswith(uuid("a", 9) + " a")
    assert lines[lines.index("team/part (ResourceClaim) 30 % 20 GiB") - 2] == lines[far]
    assert sum(uuid("a", 9) in line for line in lines) == 1
