# SPDX-License-Identifier: Apache-2.0
"""`aliquot defrag --plan` against a kubectl that answers from files."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from test_inspect import Cluster, gpu

LISTS = {"pods": "get pods -A -o json", "nodes": "get nodes -o json",
         "budgets": "get poddisruptionbudgets.policy -A -o json"}
DEPLOYED = [{"kind": "ReplicaSet", "controller": True}]


def pod(uid, name, core, owners=tuple(DEPLOYED), annotations=None, labels=None, **spec):
    limits = {"elasticgpu.io/gpu-core": str(core)}
    return {"metadata": {"uid": uid, "name": name, "namespace": "team", "ownerReferences": list(owners),
                         "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}], **spec}}


@pytest.fixture
def cluster(aliquot, tmp_path):
    """Three cards: half of one on each of two nodes, and an idle one."""
    made = Cluster(aliquot, tmp_path)
    made.answers = {"get gpus.elasticgpu.io -o json": {"items": [
        gpu("a", 0, (50, "40Gi"), [("u1", "team", "one", 50, "40Gi")]),
        gpu("b", 0, (60, "48Gi"), [("u2", "team", "two", 40, "32Gi")]),
        gpu("b", 1, (100, "80Gi"))]}}
    made.set = lambda **lists: made.answers.update({LISTS[k]: {"items": v} for k, v in lists.items()})
    made.set(pods=[pod("u1", "one", 50), pod("u2", "two", 40)], budgets=[],
             nodes=[{"metadata": {"name": n}, "spec": {}} for n in "ab"])
    made.plan = lambda *more: json.loads(made.run("defrag", "--plan", "--json", *more).stdout)
    return made


def moves(plan):
    return [(m["pod"], m["from"]["gpus"], m["to"]["gpus"]) for m in plan["moves"]]


def test_plan(cluster):
    plan = cluster.plan()
    assert plan["emptied"] == 1
    assert moves(plan) == [("one", ["a-00"], ["b-00"])]
    assert plan["moves"][0]["to"]["node"] == "b"
    rows = cluster.rows("defrag", "--plan")
    assert rows == ["STEP POD FROM TO".split(), "1 team/one a-00 b-00".split(), "Moves: 1. Cards that become free: 1.".split()]
    assert cluster.plan("--max-moves", "0") == {"emptied": 0, "cutShort": False, "moves": []}


STAY = {
    "opted out": dict(annotations={"elasticgpu.io/defrag": "never"}),
    "bare": dict(owners=()),
    "of a DaemonSet": dict(owners=({"kind": "DaemonSet", "controller": True},)),
    "of the system": dict(priority=2000000000),
    "bound to its node": dict(nodeSelector={"disk": "fast"}),
}


@pytest.mark.parametrize("why", STAY)
def test_who_stays(cluster, why):
    """Then the other one is moved instead, or none."""
    one = pod("u1", "one", 50, **STAY[why])
    cluster.set(pods=[one, pod("u2", "two", 40)])
    assert moves(cluster.plan()) == [("two", ["b-00"], ["a-00"])]
    cluster.set(pods=[one, pod("u2", "two", 40, **STAY[why])])
    assert cluster.plan()["moves"] == []
    assert cluster.rows("defrag", "--plan") == ["No moves free a card.".split()]


def test_claim_has_its_card(cluster):
    one = pod("u1", "one", 50, annotations={"egpuc.elasticgpu.io/main": "mine"})
    one["spec"]["containers"][0]["resources"] = {"limits": {"elasticgpu.io/slot": "1"}}
    cluster.set(pods=[one])
    assert cluster.plan()["moves"] == []


def test_budget_and_closed_node(cluster):
    budget = {"metadata": {"name": "x", "namespace": "team"}, "spec": {"selector": {"matchLabels": {"app": "x"}}},
              "status": {"disruptionsAllowed": 0}}
    cluster.set(pods=[pod("u1", "one", 50, labels={"app": "x"}), pod("u2", "two", 40)], budgets=[budget])
    assert moves(cluster.plan()) == [("two", ["b-00"], ["a-00"])]
    cluster.set(nodes=[{"metadata": {"name": "a"}, "spec": {"unschedulable": True}}])
    assert cluster.plan()["moves"] == []


def test_large_cluster(aliquot, tmp_path):
    """5,000 nodes of 8 cards and 20,000 pods: nothing of it takes the one times the other."""
    cards, pods = [], []
    for n in range(5000):
        for i in range(8):
            held = [(f"u{n}-{i}", "team", f"p{n}-{i}", 30 + n % 40, f"{20 + n % 40}Gi")] if i % 2 else []
            cards.append(gpu(f"n{n:04d}", i, (70 - n % 40, f"{60 - n % 40}Gi") if held else (100, "80Gi"), held))
            pods += [pod(uid, name, core) for uid, _, name, core, _ in held]
    nodes = [{"metadata": {"name": f"n{n:04d}"}, "spec": {"unschedulable": n < 10}} for n in range(5000)]
    for kind, items in dict(gpus=cards, pods=pods, nodes=nodes, poddisruptionbudgets=[]).items():
        (tmp_path / kind).write_text(json.dumps({"items": items}))
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"""#!{sys.executable}
import sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import proxied
proxied.serve(sys.argv[1:], lambda words: open({str(tmp_path)!r} + "/" + words.split()[1].partition(".")[0]).read())
""")
    kubectl.chmod(0o755)
    done = subprocess.run([aliquot, "defrag", "--plan", "--json", "--max-moves", "20000"], timeout=60,
                          env=dict(os.environ, KUBECTL=str(kubectl)), capture_output=True, check=True)
    plan = json.loads(done.stdout)
    assert not plan["cutShort"] and plan["emptied"] > 5000
    assert not any(m["to"]["node"] < "n0010" for m in plan["moves"])


def test_wrong_use(cluster):
    assert "--plan is required" in cluster.fails("defrag", status=2)
    assert "unexpected argument 'now'" in cluster.fails("defrag", "--plan", "now", status=2)
    del cluster.answers[LISTS["pods"]]
    assert "nothing is known of: " + LISTS["pods"] in cluster.fails("defrag", "--plan")
    done = cluster.run("defrag", "--help")
    assert done.returncode == 0 and "--max-moves" in done.stdout
