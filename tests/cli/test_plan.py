# SPDX-License-Identifier: Apache-2.0
"""`aliquot plan --capacity` against a kubectl that answers from files."""

import json
import pathlib

import fastjsonschema
import pytest

from test_inspect import UNSCHEDULABLE, Cluster, GiB, gpu, pod
from test_output import closed
from test_top import WAITING

SCHEMA = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas/plan.json"


@pytest.fixture
def cluster(aliquot, tmp_path):
    """Node a has two H100, of which 40 % of one are free; node b has two A100, which are full."""
    made = Cluster(aliquot, tmp_path)
    cards = [gpu("a", 0, (0, "0")), gpu("a", 1, (40, "32Gi")), gpu("b", 0, (0, "0"), memory="40Gi"),
             gpu("b", 1, (0, "0"), memory="40Gi")]
    for card in cards[2:]:
        card["spec"].update(model="NVIDIA A100", memory=40 * GiB)
    made.answers.update({
        "get gpus.elasticgpu.io -o json": {"items": cards},
        "get nodes -o json": {"items": [node("a", kind="h"), node("b", kind="a")]}})
    return made


def node(name, taints=(), **labels):
    return {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}}, "spec": {"taints": list(taints)}}


def waiting(name, core="30", age=0, annotations=None, **spec):
    made = pod(name, core=core)
    made["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{age:02}Z"
    made["metadata"]["annotations"] = {**made["metadata"].get("annotations", {}), **(annotations or {})}
    made["spec"].update(spec)
    return made


def plan(cluster, *pods, words=()):
    cluster.answers[WAITING] = {"items": list(pods)}
    done = cluster.run("plan", "--capacity", "-o", "json", *words)
    assert (done.returncode, done.stderr) == (0, ""), done
    document = json.loads(done.stdout)
    fastjsonschema.compile(closed(json.loads(SCHEMA.read_text())))(document)
    return document


def machines(document):
    return {m["model"][7:]: (m["newNodes"], m["newCards"], m["starts"]) for m in document["machines"]}


def states(document):
    return {p["name"]: p["state"] for p in document["pods"]}


def test_cards_not_sums(cluster):
    """Three shares of 60 % are 180 % together, and need three cards."""
    document = plan(cluster, *[waiting(f"p{i}", "60", i) for i in range(3)])
    assert machines(document) == {"H100": (2, 4, 3), "A100": (2, 4, 3)}
    assert document["machines"][0]["left"]["idleCards"] == 1 and document["machines"][0]["left"]["core"] == 220


def test_what_has_room_needs_no_card(cluster):
    """The oldest gets the 40 % that are free; a higher priority comes first."""
    pods = [waiting("old", "30", 0), waiting("new", "30", 1)]
    document = plan(cluster, *reversed(pods))
    assert states(document) == {"old": "HasRoom", "new": "NeedsCards"} and machines(document)["H100"] == (1, 2, 1)
    pods[1]["spec"]["priority"] = 10
    assert states(plan(cluster, *pods)) == {"old": "NeedsCards", "new": "HasRoom"}


def test_a_node_that_takes_no_pods_has_no_room(cluster):
    for spoil in ({"unschedulable": True}, {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}):
        first = node("a", kind="h")
        first["spec"].update(spoil)
        cluster.answers["get nodes -o json"] = {"items": [first, node("b", kind="a")]}
        assert states(plan(cluster, waiting("p"))) == {"p": "NeedsCards"}
    tolerant = waiting("p", tolerations=[{"key": "k", "operator": "Equal", "value": "v"}])
    assert states(plan(cluster, tolerant)) == {"p": "HasRoom"}
    assert states(plan(cluster, waiting("p", tolerations=[{"key": "k", "value": "w"}]))) == {"p": "NeedsCards"}


def affinity(key, operator, *values):
    term = {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


@pytest.mark.parametrize("spec, starts", [
    ({"nodeSelector": {"kind": "a"}}, ["A100"]), ({"nodeSelector": {"kind": "x"}}, []),
    ({"nodeSelector": {"kubernetes.io/hostname": "a"}}, []),
    ({"affinity": affinity("kind", "In", "x", "h")}, ["H100"]), ({"affinity": affinity("kind", "NotIn", "h")}, ["A100"]),
    ({"affinity": affinity("kind", "Exists")}, ["A100", "H100"]), ({"affinity": affinity("none", "DoesNotExist")}, ["A100", "H100"]),
    ({"affinity": affinity("kind", "Gt", "1")}, [])])
def test_labels(cluster, spec, starts):
    """New nodes have the labels of those that they are like."""
    document = plan(cluster, waiting("p", "100", **spec))
    assert sorted(m for m, of in machines(document).items() if of[2]) == starts
    for refusal in document["pods"][0]["refusals"]:
        assert refusal["reason"] == "its node selector, affinity or tolerations admit no such node"


def test_numbers_in_labels(cluster):
    cluster.answers["get nodes -o json"] = {"items": [node("a", size="10"), node("b", size="9")]}
    for operator, bound, model in ("Gt", "9", "H100"), ("Lt", "10", "A100"):
        document = plan(cluster, waiting("p", "100", affinity=affinity("size", operator, bound)))
        assert [m for m, of in machines(document).items() if of[2]] == [model]


def test_taints_of_a_kind_and_of_a_state(cluster):
    """What Kubernetes puts on a node that is away is not on a new one."""
    cluster.answers["get nodes -o json"] = {"items": [
        node("a", [{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]),
        node("b", [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])]}
    document = plan(cluster, waiting("p", "100"))
    assert {m: of[2] for m, of in machines(document).items()} == {"H100": 1, "A100": 0}


def test_selection(cluster):
    model = waiting("m", "100", annotations={"nvidia.com/use-gputype": "A100"})
    uuid = waiting("u", "100", annotations={"nvidia.com/use-gpuuuid": "GPU-x"})
    document = plan(cluster, model, uuid)
    assert machines(document) == {"A100": (1, 2, 1), "H100": (0, 0, 0)}
    told = {p["name"]: [r["reason"] for r in p["refusals"]] for p in document["pods"]}
    assert told == {"m": ["no GPU of the node is one that the pod selects"], "u": 2 * ["no GPU of the node is one that the pod selects"]}


def test_what_no_machine_takes(cluster):
    document = plan(cluster, waiting("wide", "300"), waiting("fits", "200"))
    assert machines(document)["H100"] == (1, 2, 1)
    (wide,) = [p for p in document["pods"] if p["name"] == "wide"]
    assert {r["reason"] for r in wide["refusals"]} == {"node has fewer GPUs than asked for"}
    lines = cluster.run("plan", "--capacity").stdout.splitlines()
    assert lines[0] == "Waiting pods: 2. Need new cards: 2. Have room on the cards that there are: 0. Not counted: 0."
    assert any("team/wide" in line and "3 whole" in line and "fewer GPUs" in line for line in lines)
    assert not any("team/fits" in line for line in lines)
    assert any("team/fits" in line and "starts on new cards" in line for line in cluster.run("plan", "--capacity", "-o", "wide").stdout.splitlines())
    assert cluster.run("plan", "--capacity", "-o", "name").stdout.splitlines() == ["pod/fits", "pod/wide"]


def test_a_machine_of_the_user(cluster):
    """It is the only candidate, and needs no cluster with cards."""
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": []}
    document = plan(cluster, waiting("wide", "300"), waiting("p"), words=["--machine", "B200, 180,8,180Gi"])
    assert [(m["model"], m["memory"], m["newNodes"], m["starts"]) for m in document["machines"]] == [("B200, 180", 180 * GiB, 1, 2)]
    assert "--machine MODEL,CARDS,MEMORY" in cluster.fails("plan", "--capacity")
    document = plan(cluster, waiting("wide", "300"), words=["--machine", "X,2,80Gi", "--machine", "Y,4,80Gi"])
    assert [(m["model"], m["starts"]) for m in document["machines"]] == [("Y", 1), ("X", 0)]


def test_what_is_not_counted(cluster):
    gated = waiting("gated", schedulingGates=[{"name": "g"}])
    wrong = waiting("wrong", "150")
    leaving = waiting("leaving")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    nominated = waiting("nominated")
    nominated["status"]["nominatedNodeName"] = "a"
    over, cohort = waiting("over"), waiting("cohort")
    over["status"]["conditions"] = [dict(UNSCHEDULABLE, message="0/2 nodes are available: 2 quota exceeded: namespace team uses 90 of 100")]
    cohort["status"]["conditions"] = [dict(UNSCHEDULABLE, message="0/2 nodes are available: 2 nothing left to borrow: cohort c uses 90")]
    document = plan(cluster, gated, wrong, leaving, nominated, over, cohort, waiting("plain", None))
    assert set(states(document).values()) == {"NotCounted"} and document["needing"] == 0
    told = {p["name"]: p["reason"] for p in document["pods"]}
    assert told["gated"] == "scheduling gates" and "malformed" in told["wrong"] and told["nominated"].endswith("on a")
    assert told["over"] == told["cohort"] == "a quota holds it" and set(told) == {"gated", "wrong", "nominated", "over", "cohort"}


def test_kinds_of_nodes(cluster):
    """Nodes with MIG instances, or of which the agent has said nothing, are no pattern; equal ones are one kind."""
    cards = cluster.answers["get gpus.elasticgpu.io -o json"]["items"]
    part = gpu("c", 0, (0, "0"))
    part["spec"].update(parent="GPU-x", mig={"profile": "1g.10gb"})
    silent = gpu("d", 0, (0, "0"))
    silent["status"].pop("capacity")
    twin = [gpu("e", i, (0, "0"), state="Unhealthy") for i in range(2)]
    cards += [part, silent, *twin]
    document = plan(cluster, waiting("p", "100"))
    assert {m["model"]: m["nodesNow"] for m in document["machines"]} == {"NVIDIA H100": 2, "NVIDIA A100": 1}


def test_nothing_waits(cluster):
    document = plan(cluster)
    assert document["needing"] == 0 and document["pods"] == []
    assert cluster.run("plan", "--capacity").stdout.startswith("Waiting pods: 0.")


def test_a_namespace(cluster):
    cluster.answers["get --raw /api/v1/namespaces/team/pods?fieldSelector=spec.nodeName%3D"] = {"items": [waiting("p", "100")]}
    assert [p["name"] for p in plan(cluster, words=["-n", "team"])["pods"]] == ["p"]
    assert cluster.run("plan", "--capacity", "-n", "a/b").returncode == 1


def test_what_cannot_be_read(cluster):
    cluster.answers[WAITING] = {"items": [waiting("p")]}
    for what in "get gpus.elasticgpu.io -o json", WAITING, "get nodes -o json":
        before = cluster.answers[what]
        cluster.answers[what] = "error: not yours"
        assert cluster.fails("plan", "--capacity") == "aliquot plan: not yours\n"
        cluster.answers[what] = before


@pytest.mark.parametrize("words, text", [
    ([], "--capacity is required"), (["--capacity", "x"], "unexpected argument"), (["--capacity", "--machine", "a,2"], "MODEL,CARDS,MEMORY"),
    (["--capacity", "--machine", ",2,80Gi"], "MODEL,CARDS,MEMORY"), (["--capacity", "--machine", "a,0,80Gi"], "1 to 64 cards"),
    (["--capacity", "--machine", "a,65,80Gi"], "1 to 64 cards"), (["--capacity", "--machine", "a,2,0"], "MODEL,CARDS,MEMORY"),
    (["--capacity", "--machine", "a,2,many"], "MODEL,CARDS,MEMORY"), (["--capacity", *17 * ["--machine", "a,1,1Gi"]], "16 times")])
def test_wrong_use(cluster, words, text):
    assert text in cluster.fails("plan", *words, status=2)
