# SPDX-License-Identifier: Apache-2.0
"""Shares of ResourceClaims in `aliquot inspect`, `gpus` and `top`, against a kubectl that answers from files."""

import json
import pathlib

import fastjsonschema
import pytest
from test_inspect import FORWARD, LIST, SCHEDULERS, Cluster, GiB, ask, gpu, uuid
from test_output import closed

SCHEMAS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas"
USERS = [{"pod": "two", "container": "main"}, {"pod": "one", "container": "main"}, {"pod": "one", "container": "side"}]
NAMES = {"team", "third", "one", "two"}


def of_claim(card, core, memory, users):
    """As aliquot-scheduler writes it: the share once, with the first of all that use it."""
    share = {"container": users[0]["container"], "resource": {"elasticgpu.io/gpu-core": str(core), "elasticgpu.io/gpu-memory": memory}}
    card["status"]["allocated"]["u-claim"] = {"namespace": "team", "claim": "third", "pod": users[0]["pod"], "containers": [share],
                                             "users": users}
    return card


@pytest.fixture
def cluster(aliquot, tmp_path):
    made = Cluster(aliquot, tmp_path)
    card = of_claim(gpu("b", 0, (50, "40Gi"), [("u2", "other", "web", 20, "20Gi")]), 30, "20Gi", USERS)
    use = {"gpus": [{"uuid": uuid("b", 0), "memoryUsed": 9 * GiB, "utilization": 7, "holders": [
        {"namespace": "team", "pod": "gone", "podUID": "u9", "container": "main", "claim": "third", "claimUID": "u-claim",
         "memoryDriver": 3 * GiB, "coreUsed": 5}]}]}
    agent = {"metadata": {"name": "agent-b"}, "spec": {"nodeName": "b"}, "status": {"phase": "Running", "podIP": "10.0.0.2"}}
    made.answers.update({
        "get gpus.elasticgpu.io -o json": {"items": [card]},
        "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-agent -o json": {"items": [agent]},
        "get --raw /api/v1/namespaces/aliquot-system/pods/agent-b:9400/proxy/usage": use,
    })
    return made


@pytest.mark.parametrize("command", [("inspect", "node"), ("gpus",)], ids=lambda c: c[0])
def test_containers_are_listed_under_their_claim(cluster, command):
    lines = [" ".join(row) for row in cluster.rows(*command)]
    at, = (i for i, line in enumerate(lines) if line.startswith("team/third (ResourceClaim) 30 % 20 GiB"))
    assert lines[at + 1:at + 4] == ["team/one (main)", "team/one (side)", "team/two (main)"]
    assert any("50 of 100 %" in line for line in lines)
    if command == ("gpus",):    # by the claim, whichever pod the agent names
        assert lines[at].endswith("3 GiB 5 %")


def test_pods_of_a_claim(cluster):
    rows = cluster.rows("inspect", "pod", "-n", "team")
    assert rows[1:] == [f"team {pod} {container} b 0 (b-00) 30 % 20 GiB third".split()
                        for pod, container in (("one", "main"), ("one", "side"), ("two", "main"))]
    assert [row[1:3] for row in cluster.rows("inspect", "pod", "two")[1:]] == [["two", "main"]]
    assert cluster.run("inspect", "pod", "-n", "team", "-o", "name").stdout.split() == ["pod/one", "pod/two"]


def test_a_share_counts_once(cluster):
    assert "b 1 1 3 50 of 100 % 40 GiB of 80 GiB 50 % 40 GiB".split() in cluster.rows("inspect")
    assert cluster.rows("inspect", "namespace")[1:] == ["other 1 1 20 % 20 GiB".split(), "team 2 1 30 % 20 GiB".split()]


def test_another_namespace_reads_no_name(cluster):
    for command in ("inspect node", "inspect pod", "gpus", "gpus -o json", "top --once --view containers"):
        text = cluster.run(*command.split(), "-n", "other").stdout
        assert "web" in text and not any(f"{name}/" in text or f'"{name}"' in text for name in NAMES), text


def test_json(cluster):
    shown = json.loads(cluster.run("gpus", "-o", "json").stdout)
    fastjsonschema.compile(closed(json.loads((SCHEMAS / "cards.json").read_text())))(shown)
    holders = shown["nodes"][0]["gpus"][0]["holders"]
    claim, = (h for h in holders if h.get("claim"))
    assert claim["claim"] == "third" and claim["users"] == sorted(USERS, key=lambda u: (u["pod"], u["container"]))
    assert (claim["core"], claim["memory"], claim["use"]["memory"]) == (30, 20 * GiB, 3 * GiB)


def test_top(cluster):
    lines = cluster.run("top", "--once", "--view", "containers").stdout.splitlines()
    share, = (line for line in lines if "ResourceClaim" in line)
    assert share.split()[:5] == ["team/third", "(ResourceClaim", "of", "one,", "two)"]
    card, = (line for line in cluster.run("top", "--once").stdout.splitlines() if line.startswith("b-00"))
    assert " 3  Healthy" in card      # pods


# ---- explain ----

def user(**more):
    """A pod of which two containers use a claim, and nothing requests a share by resource names."""
    claims = {"resources": {"claims": [{"name": "gpu"}]}}
    return {"metadata": {"name": "p", "namespace": "team", "uid": "u-p", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": dict({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
                          "containers": [{"name": "main", **claims}, {"name": "side", **claims}, {"name": "none"}]}, **more),
            "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "third"}]}}


def third(**status):
    exactly = {"deviceClassName": "gpu.elasticgpu.io", "capacity": {"requests": {"core": "30", "memory": "20Gi"}}}
    return {"metadata": {"name": "third", "namespace": "team", "uid": "u-claim", "resourceVersion": "1"},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}, "status": status}


CLAIM = "get --raw /apis/resource.k8s.io/v1/namespaces/team/resourceclaims/third"
WHY = "no node has room for the claims of pod p: 1 node(s): too little. Free: b card 0: 10 %, 1Gi"


def answer(cluster, pod, claim):
    cluster.answers.update({
        "get pod p -n team -o json": pod, CLAIM: claim, LIST: SCHEDULERS, FORWARD: "",
        ask("http://127.0.0.1:40404", "namespace=team&pod=p"): {"wants": "what its ResourceClaims request", "claims": WHY},
    })


def test_explain_a_claim_that_waits(cluster):
    gate = {"schedulingGates": [{"name": "gpu.elasticgpu.io/placement"}]}
    answer(cluster, user(**gate), third())
    done = cluster.run("explain", "p", "-n", "team")
    assert done.returncode == 0 and not done.stderr, done
    lines = done.stdout.splitlines()
    assert lines[0] == "Pod team/p is pending."
    assert f"Its ResourceClaims wait: {WHY}" in lines
    assert "ResourceClaim third is not allocated; it requests 30 % and 20 GiB of class gpu.elasticgpu.io." in lines
    assert not any(line.startswith("Request:") or "requests no GPU" in line for line in lines)
    shown = json.loads(cluster.run("explain", "p", "-n", "team", "-o", "json").stdout)
    fastjsonschema.compile(closed(json.loads((SCHEMAS / "explain.json").read_text())))(shown)
    assert shown["asksForGPU"] and shown["scheduler"]["claims"] == WHY


def test_explain_a_claim_that_has_its_share(cluster):
    result = {"request": "gpu", "driver": "gpu.elasticgpu.io", "pool": "b", "device": uuid("b", 0).lower(),
              "shareID": "1b4e28ba-2fa1-11d2-883f-0016d3cca427", "consumedCapacity": {"core": "30", "memory": "20Gi"}}
    answer(cluster, user(nodeName="b"), third(allocation={"devices": {"results": [result]}}))
    done = cluster.run("explain", "p", "-n", "team")
    assert done.returncode == 0 and not done.stderr, done
    rows = [line.split() for line in done.stdout.splitlines()]
    assert rows[0] == "Pod team/p is on node b.".split()
    assert ["third", "main,side", uuid("b", 0).lower(), "30", "%", "20", "GiB"] in rows
    assert "shared with other/web" in done.stdout and "team/third" not in done.stdout.split("GPU b-00", 1)[1]
    assert "bound without aliquot-scheduler" not in done.stdout


def test_explain_a_claim_on_an_instance_of_its_own(cluster):
    """GPU objects do not tell what other claims have of the card: nothing is said of it."""
    result = {"request": "gpu", "driver": "gpu.elasticgpu.io", "pool": "b", "device": uuid("b", 0).lower() + "-3g-40gb-4"}
    answer(cluster, user(nodeName="b"), third(allocation={"devices": {"results": [result]}}))
    out = cluster.run("explain", "p", "-n", "team").stdout
    assert "): divided for ResourceClaims\n" in out.split("GPU b-00 (", 1)[1] and "shared" not in out


def test_explain_a_claim_that_cannot_be_read(cluster):
    answer(cluster, user(nodeName="b"), "error: forbidden")
    assert "ResourceClaim third cannot be read" in cluster.run("explain", "p", "-n", "team").stdout
    late = user(nodeName="b")
    del late["status"]["resourceClaimStatuses"]
    answer(cluster, late, third())
    assert "Its ResourceClaim gpu is not made of its template yet." in cluster.run("explain", "p", "-n", "team").stdout
