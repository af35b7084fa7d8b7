# SPDX-License-Identifier: Apache-2.0
"""`aliquot inspect` and `aliquot explain` against a kubectl that answers from files."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pytest

GiB = 1 << 30

# What it is asked, joined by blanks, is looked up in $ANSWERS; a port is forwarded for ever. `aliquot doctor` alone calls it twenty
# times: so a shell answers, and Python, which takes fifty times as long to start, only where a proxy is asked for.
KUBECTL = f"""#!/bin/sh
case " $* " in *" proxy "*) exec {sys.executable} -S "$0-proxy" "$@" ;; esac
printf '%s\\n' "$*" >> "$ANSWERS/asked"
. "$ANSWERS/answers.sh"
"""
PROXY = f"""import json, os, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import proxied
where = os.environ["ANSWERS"]
answers = json.load(open(where + "/answers.json"))
def note(asked):
    with open(where + "/asked", "a") as log:
        log.write(asked + "\\n")
options = "".join(a + " " for a in sys.argv[1:] if a.startswith(("--context=", "--kubeconfig=")))
def get(words, otherwise=None):
    note(options + words)
    return answers.get(options + words, answers.get(otherwise))
proxied.serve(sys.argv[1:], get)
"""


def told(asked, answer):
    """How the shell answers that."""
    if " port-forward " in f" {asked} ":
        return "echo 'Forwarding from 127.0.0.1:40404 -> 9401'; exec sleep infinity"
    text = answer if isinstance(answer, str) else json.dumps(answer)
    said = f"printf '%s\\n' {shlex.quote(text)}"
    return f"{said} >&2; exit 1" if text.startswith("error: ") else said


def uuid(node, index):
    return f"GPU-00000000-0000-0000-0000-0000000000{node}{index}"


def gpu(node, index, free, held=(), state="Healthy", memory="80Gi"):
    allocated = {}
    for uid, namespace, pod, core, size in held:
        share = {"container": "main", "resource": {"elasticgpu.io/gpu-core": str(core),
                                                   "elasticgpu.io/gpu-memory": size}}
        allocated[uid] = {"namespace": namespace, "pod": pod, "containers": [share]}
    return {"metadata": {"name": f"{node}-{index:02}"},
            "spec": {"nodeName": node, "index": index, "memory": 80 * GiB, "uuid": uuid(node, index),
                     "model": "NVIDIA H100"},
            "status": {"state": state, "allocated": allocated,
                       "capacity": {"elasticgpu.io/gpu-core": "100", "elasticgpu.io/gpu-memory": memory},
                       "allocatable": {"elasticgpu.io/gpu-core": str(free[0]), "elasticgpu.io/gpu-memory": free[1]}}}


GPUS = {"items": [
    gpu("b", 1, (100, "80Gi")),
    gpu("b", 0, (40, "19968Mi"), [("u1", "team", "train", 50, "60Gi"), ("u2", "team", "web", 10, "512Mi")]),
    gpu("a", 0, (0, "0"), [("u3", "other", "old", 20, "20Gi")], state="Unhealthy"),
]}
NODES = {"items": [{"metadata": {"name": n, "uid": "u-" + n},
                    "status": {"addresses": [{"type": "InternalIP", "address": f"10.0.0.{i}"}]}}
                   for i, n in enumerate("ab", 1)]}


class Cluster:
    """What kubectl knows."""

    def __init__(self, aliquot, where):
        self.aliquot, self.where = aliquot, where
        self.answers = {"get gpus.elasticgpu.io -o json": GPUS, "get nodes -o json": NODES}
        self.kubectl, self.proxy = where / "kubectl", where / "kubectl-proxy"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        self.proxy.write_text(PROXY)

    def refuse(self, asked, text="error: forbidden"):
        self.answers[asked] = text

    def say(self):
        """Its answers are these from now on."""
        (self.where / "answers.json").write_text(json.dumps(self.answers))
        cases = "".join(f"{shlex.quote(asked)}) {told(asked, answer)} ;;\n" for asked, answer in self.answers.items())
        (self.where / "answers.sh").write_text(
            f'case "$*" in\n{cases}*) echo "Error from server (NotFound): nothing is known of: $*" >&2; exit 1 ;;\nesac\n')

    def run(self, *arguments, program=None):
        self.say()
        env = dict(os.environ, KUBECTL=str(self.kubectl), ANSWERS=str(self.where))
        return subprocess.run([program or self.aliquot, *arguments], env=env, text=True, capture_output=True,
                              timeout=60)

    def rows(self, *arguments, **options):
        done = self.run(*arguments, **options)
        assert (done.returncode, done.stderr) == (0, ""), done
        return [line.split() for line in done.stdout.splitlines()]

    def fails(self, *arguments, status=1):
        done = self.run(*arguments)
        assert done.returncode == status, done
        return done.stderr

    def asked(self):
        return (self.where / "asked").read_text().splitlines()


@pytest.fixture
def cluster(aliquot, tmp_path):
    return Cluster(aliquot, tmp_path)


# ---- options of kubectl ----

# Commands that call kubectl, as one calls them.
CALLERS = [["gpus"], ["top"], ["web"], ["inspect"], ["explain", "pod"], ["defrag", "--plan"], ["plan", "--capacity"], ["recommend"], ["doctor"], ["uninstall"], ["card", "cordon", "a-00"],
           ["node", "release", "a"]]
PREFIX = "--context=c --kubeconfig=/k "


@pytest.mark.parametrize("before, behind", [
    ([], ["--context", "c", "--kubeconfig", "/k"]), (["--context=c", "--kubeconfig=/k"], []), (["--kubeconfig=/k"], ["--context=c"]),
])
@pytest.mark.parametrize("command", CALLERS, ids=lambda command: command[0])
def test_context_and_kubeconfig(cluster, command, before, behind):
    """Every call of kubectl has them, wherever they stand."""
    cluster.answers = {PREFIX + asked: answer for asked, answer in cluster.answers.items()}
    cluster.answers[PREFIX + "version -o json"] = {"serverVersion": {"gitVersion": "v1.36.3"}}
    done = cluster.run(*before, *command, *behind)
    pages = "--kubeconfig=/dev/null --context= "        # of aliquot-scheduler itself, without credentials
    asked = [line for line in cluster.asked() if not line.startswith(pages)]
    assert asked and all(line.startswith(PREFIX) for line in asked), (done, asked)


def test_no_caller_of_kubectl_is_forgotten(cluster):
    commands = re.findall(r"^  ([a-z]+) ", cluster.run("--help").stdout.partition("Commands:")[2], re.M)
    assert len(commands) > 10
    has = [name for name in commands if "--kubeconfig" in cluster.run(name, "--help").stdout]
    assert sorted(has) == sorted(command[0] for command in CALLERS)


@pytest.mark.parametrize("command", ["inspect", "gpus"])
def test_all_namespaces(cluster, command):
    assert cluster.run(command, "-n", "team", "-A").stdout == cluster.run(command).stdout


def test_namespace_of_a_pod(cluster):
    for option in (["-n", "team"], ["--namespace=team"]):
        cluster.fails("explain", "pod", *option)
        assert cluster.asked()[-1].startswith("get pod pod -n team ")


def test_gpus_of_a_namespace(cluster):
    cluster.answers["get pods -n away -l app.kubernetes.io/name=aliquot-agent -o json"] = {"items": []}
    cards = ["--system", "away"]
    assert [r[0] for r in cluster.rows("gpus", *cards) if r[0].startswith(("a-", "b-"))] == ["a-00", "b-00", "b-01"]
    assert cluster.rows("gpus", "-n", "team", "-A", *cards) == cluster.rows("gpus", *cards)
    rows = cluster.rows("gpus", "-n", "team", *cards)
    assert [r[0] for r in rows if r[0].startswith(("a-", "b-"))] == ["b-00"]
    assert {"team/train", "team/web"} <= {word for r in rows for word in r}


# ---- inspect ----

def test_cluster(cluster):
    rows = cluster.rows("inspect")
    assert rows == cluster.rows("inspect", "cluster")
    assert "a 1 0 1 20 of 100 % 20 GiB of 80 GiB 0 % 0 B".split() in rows
    assert "b 2 2 2 60 of 200 % 60.5 GiB of 160 GiB 100 % 80 GiB".split() in rows
    assert "all 3 2 3 80 of 300 % 80.5 GiB of 240 GiB 100 % 80 GiB".split() == rows[-1]


def test_shares_without_a_pod_and_cards_without_an_agent(cluster):
    """A claim that no pod uses takes of the card, and a card whose node has no agent is no room."""
    kept = gpu("c", 0, (50, "40Gi"))
    kept["status"]["held"] = [{"by": "claim team/data (ElasticGPU e1)", "resource": {
        "elasticgpu.io/gpu-core": "50", "elasticgpu.io/gpu-memory": "40Gi"}}]
    away = gpu("d", 0, (0, "0"))
    away["status"]["unavailable"] = "node's agent is not registered with kubelet"
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": [kept, away]}
    rows = cluster.rows("inspect")
    assert "c 1 1 0 50 of 100 % 40 GiB of 80 GiB 50 % 40 GiB".split() in rows
    assert "d 1 0 0 0 of 100 % 0 B of 80 GiB 0 % 0 B".split() in rows
    rows = cluster.rows("inspect", "node")
    assert "kept for claim team/data (ElasticGPU e1) 50 % 40 GiB".split() in rows
    assert [row[-1] for row in rows if row[:2] == ["d", "0"]] == ["Unavailable"]
    shown = json.loads(cluster.run("inspect", "node", "--json").stdout)
    assert shown["nodes"][0]["gpus"][0]["held"] == [
        {"by": "claim team/data (ElasticGPU e1)", "core": 50, "memory": 40 * GiB}]
    assert shown["nodes"][1]["gpus"][0]["unavailable"] == "node's agent is not registered with kubelet"


def test_claims_of_namespaces(cluster):
    """What a claim has and no pod uses counts in the quota of its namespace, and is shown to no other one."""
    kept = gpu("c", 0, (20, "20Gi"), [("u1", "team", "train", 30, "20Gi")])
    kept["status"]["held"] = [
        {"by": by, "resource": {"elasticgpu.io/gpu-core": core, "elasticgpu.io/gpu-memory": f"{core}Gi"}}
        for by, core in (("claim team/data (ElasticGPU e1)", "10"), ("released claim team/old (ElasticGPU e2)", "5"),
                         ("claim other/x (ElasticGPU e3)", "7"), ("reservation demo-day", "28"))]
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": [kept]}
    wide = ("-o", "wide")
    team, other = "team 1 1 30 % 20 GiB 15 % 15 GiB".split(), "other 0 0 0 % 0 B 7 % 7 GiB".split()
    assert cluster.rows("inspect", "namespace", *wide)[1:] == [other, team]
    assert cluster.rows("inspect", "namespace", "team", *wide)[1:] == [team]
    assert cluster.rows("inspect", "namespace", "-n", "other", *wide)[1:] == [other]
    assert cluster.rows("inspect", "namespace")[1:] == [other[:7], team[:7]]
    shown = cluster.run("inspect", "node", "-n", "team").stdout
    assert "kept for claim team/data" in shown and "other" not in shown and "demo-day" not in shown


def test_cards_in_mig_mode(cluster):
    """An instance is listed below its card and is no card of the node; neither has shares."""
    divided, instance = gpu("c", 0, (0, "0")), gpu("c", 0, (0, "0"))
    for it in (divided, instance):
        it["status"]["capacity"] = {"elasticgpu.io/gpu-core": "0", "elasticgpu.io/gpu-memory": "0"}
    divided["spec"]["mig"] = {"mode": "Enabled"}
    instance["metadata"]["name"] = "c-00-gi9-ci0"
    instance["spec"].update(parent=divided["spec"]["uuid"], uuid="MIG-1", mig={"profile": "1g.10gb"})
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": [instance, divided, gpu("c", 1, (100, "80Gi"))]}
    assert cluster.rows("inspect")[1] == "c 2 2 0 0 of 100 % 0 B of 80 GiB 100 % 80 GiB".split()
    first, second, third = cluster.rows("inspect", "node")[1:]
    assert first[:3] == ["c", "0", "c-00"] and "in MIG mode" in " ".join(first)
    assert second[:3] == ["c", "0", "c-00-gi9-ci0"] and "MIG 1g.10gb 0 of 0 %" in " ".join(second)
    assert third[2] == "c-01"
    shown = json.loads(cluster.run("inspect", "--json").stdout)["nodes"][0]["gpus"]
    assert [(g.get("parent"), g.get("profile")) for g in shown] == [
        (None, None), (divided["spec"]["uuid"], "1g.10gb"), (None, None)]
    assert "0/80" in cluster.rows("inspect", "memory")[1]


AGENTS = "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-agent -o json"


def test_use_of_instances(cluster):
    """`aliquot gpus` finds an instance below its card in the page of the agent. NVML reports no load of most instances."""
    divided, instance = gpu("c", 0, (0, "0")), gpu("c", 0, (22, "19Gi"), [("u1", "team", "train", 20, "1Gi")], memory="20Gi")
    divided["status"]["capacity"] = {"elasticgpu.io/gpu-core": "0", "elasticgpu.io/gpu-memory": "0"}
    divided["spec"]["mig"] = {"mode": "Enabled"}
    instance["metadata"]["name"] = "c-00-gi9-ci0"
    instance["spec"].update(parent=divided["spec"]["uuid"], uuid="MIG-1", mig={"profile": "3g.20gb"})
    holder = {"podUID": "u1", "container": "main", "memoryDriver": GiB // 2, "memoryState": "Over"}
    page = {"gpus": [{"uuid": divided["spec"]["uuid"], "memoryUsed": 3 * GiB, "utilization": 7, "instances": [
        {"uuid": "MIG-0", "memoryUsed": 1}, {"uuid": "MIG-1", "memoryUsed": 2 * GiB, "holders": [holder]}]}]}
    cluster.answers.update({
        "get gpus.elasticgpu.io -o json": {"items": [divided, instance]},
        AGENTS: {"items": [{"metadata": {"name": "agent-c"}, "spec": {"nodeName": "c"}}]},
        "get --raw /api/v1/namespaces/aliquot-system/pods/agent-c:9400/proxy/usage": page})
    _, card, part, share = cluster.rows("gpus")
    assert card[-5:] == "3 GiB 7 % Healthy".split()
    assert part[-3:] == "2 GiB Healthy".split() and part[0] == "c-00-gi9-ci0"
    assert share == "team/train (main) 20 % 1 GiB 512 MiB Over".split()


def test_memory_that_belongs_to_no_container(cluster):
    """It is taken of a card, and says so wherever the card's holders are listed."""
    card = gpu("c", 0, (50, "38Gi"), [("u1", "team", "train", 50, "40Gi")])
    card["status"]["unattributed"] = "2Gi"
    clean = gpu("c", 1, (100, "80Gi"))
    clean["status"]["unattributed"] = "0"
    cluster.answers.update({"get gpus.elasticgpu.io -o json": {"items": [card, clean]}, AGENTS: {"items": []}})
    for command in (["inspect", "node"], ["gpus"]):
        rows = cluster.rows(*command)
        assert rows.count("unattributed 2 GiB".split()) == 1, rows
        assert rows.index("unattributed 2 GiB".split()) == rows.index("team/train (main) 50 % 40 GiB".split()) + 1
    shown = json.loads(cluster.run("inspect", "--json").stdout)["nodes"][0]["gpus"]
    assert [g["unattributed"] for g in shown] == [2 * GiB, 0]
    cluster.answers["get pod train -o json"] = pod("train", "c", annotations={"elasticgpu.io/assignment": json.dumps({
        "v": 1, "node": "c", "containers": {"main": [{"index": 0, "uuid": uuid("c", 0), "core": 50, "memory": 40 * GiB}]}})})
    assert "GPU c-00 (NVIDIA H100, Healthy): not shared; 2 GiB unattributed\n" \
        in cluster.run("explain", "train").stdout
    free = dict(PAGE["nodes"][1]["gpus"][0], unattributed=2 * GiB)
    waiting(cluster, dict(PAGE, nodes=[dict(PAGE["nodes"][1], gpus=[free, dict(free, index=1, unattributed=0)])]))
    assert "0: 40 % 20 GiB (2 GiB unattributed), 1: 40 % 20 GiB\n" in cluster.run("explain", "-n", "team", "p").stdout


def test_namespaces(cluster):
    """What a namespace uses of its quota, which `kubectl describe quota` shows as 0."""
    rows = cluster.rows("inspect", "namespace")
    assert rows[1:] == ["other 1 1 20 % 20 GiB".split(), "team 2 2 60 % 60.5 GiB".split()]
    assert cluster.rows("inspect", "namespace", "team")[1:] == ["team 2 2 60 % 60.5 GiB".split()]
    assert "no pod or claim of namespace 'none' holds a share" in cluster.fails("inspect", "namespace", "none")


def test_node_and_card(cluster):
    rows = cluster.rows("inspect", "node", "b")
    assert "b 0 b-00 NVIDIA H100 60 of 100 % 60.5 GiB of 80 GiB Healthy".split() in rows
    assert "team/train (main) 50 % 60 GiB".split() in rows
    assert not any("old" in " ".join(row) for row in rows)
    assert [r[:3] for r in cluster.rows("inspect", "node")[1:] if r[0] in "ab"] \
        == [["a", "0", "a-00"], ["b", "0", "b-00"], ["b", "1", "b-01"]]
    assert cluster.rows("inspect", "card", "b-01")[1][2] == "b-01"
    assert "no node with a GPU 'c'" in cluster.fails("inspect", "node", "c")
    assert "no GPU object 'c-00'" in cluster.fails("inspect", "card", "c-00")


def test_pod(cluster):
    assert cluster.rows("inspect", "pod", "train")[1:] == ["team train main b 0 (b-00) 50 % 60 GiB".split()]
    assert [r[1] for r in cluster.rows("inspect", "-n", "team", "pod")[1:]] == ["train", "web"]
    assert "aliquot explain train" in cluster.fails("inspect", "pod", "train", "-n", "other")


def test_memory_as_gpushare_prints_it(cluster):
    rows = cluster.rows("inspect", "memory")
    assert rows[0] == "NAME IPADDRESS GPU0(Allocated/Total) GPU1(Allocated/Total) GPU Memory(GiB)".split()
    assert rows[1:3] == ["a 10.0.0.1 20/80 20/80".split(), "b 10.0.0.2 60.5/80 0/80 60.5/160".split()]
    assert rows[-2:] == ["Allocated/Total GPU Memory In Cluster:".split(), ["80.5/240", "(33%)"]]
    rows = cluster.rows("inspect", "memory", "b", "--details")
    assert "NAME NAMESPACE GPU0(Allocated) GPU1(Allocated)".split() in rows
    assert ["train", "team", "60", "0"] in rows and ["web", "team", "0.5", "0"] in rows
    assert "Allocated : 60.5 (37%)".split() in rows and ["Total", ":", "160"] in rows
    del cluster.answers["get nodes -o json"]        # who may not read nodes sees the rest
    done = cluster.run("inspect", "memory")
    assert done.returncode == 0 and "no addresses" in done.stderr and "60.5/160" in done.stdout


def test_json(cluster):
    nodes = json.loads(cluster.run("inspect", "--json").stdout)["nodes"]
    assert [n["name"] for n in nodes] == ["a", "b"]
    card = nodes[1]["gpus"][0]
    assert (card["name"], card["freeCore"], card["freeMemory"]) == ("b-00", 40, 19968 << 20)
    def only(*words):
        return json.loads(cluster.run("inspect", *words, "--json").stdout)["nodes"]
    assert [g["name"] for n in only("node", "b") for g in n["gpus"]] == ["b-00", "b-01"]
    assert [g["name"] for n in only("card", "b-01") for g in n["gpus"]] == ["b-01"]
    assert [h["pod"] for n in only("pod", "web") for g in n["gpus"] for h in g["holders"]] == ["web"]
    assert only("pod", "-n", "nobodys") == []
    assert "no node with a GPU 'c'" in cluster.fails("inspect", "node", "c", "--json")
    assert card["holders"][1] == {"namespace": "team", "pod": "web", "uid": "u2", "container": "main", "core": 10,
                                  "memory": 512 << 20}


def test_inspect_arguments(cluster):
    assert "no view 'pods'" in cluster.fails("inspect", "pods", status=2)
    assert "takes no name" in cluster.fails("inspect", "cluster", "x", status=2)
    assert "unexpected argument 'y'" in cluster.fails("inspect", "node", "x", "y", status=2)
    assert "unknown option" in cluster.fails("inspect", "--what", status=2)
    assert "kubectl inspect gpushare" in cluster.run("inspect", "--help").stdout
    cluster.answers.clear()
    assert "Aliquot is not installed" in cluster.fails("inspect")
    cluster.answers["get gpus.elasticgpu.io -o json"] = "<html>"
    assert cluster.fails("inspect")


def test_nothing_there(cluster):
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": [{}, {"spec": 1}, None, {"spec": {}}]}
    assert cluster.rows("inspect", "node")[1:] == ["0 0 of 0 % 0 B of 0 B Unknown".split()]
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": []}
    done = cluster.run("inspect")
    assert done.returncode == 0 and "no agent has found a GPU yet" in done.stderr
    assert done.stdout.splitlines()[-1].split() == "all 0 0 0 0 of 0 % 0 B of 0 B 0 % 0 B".split()


def test_as_a_plugin_of_kubectl(cluster, tmp_path):
    (tmp_path / "kubectl-aliquot").symlink_to(cluster.aliquot)
    assert cluster.rows("inspect", program=tmp_path / "kubectl-aliquot") == cluster.rows("inspect")
    kubectl = shutil.which("kubectl")
    if kubectl:
        env = dict(os.environ, KUBECTL=str(cluster.kubectl), ANSWERS=str(tmp_path),
                   PATH=f"{tmp_path}:{os.environ['PATH']}")
        shown = subprocess.run([kubectl, "aliquot", "inspect"], env=env, capture_output=True, text=True, timeout=60)
        assert shown.returncode == 0 and "60.5 GiB" in shown.stdout, shown


# ---- explain ----

def pod(name="p", node=None, core="50", annotations=None, phase="Pending", conditions=()):
    limits = {"elasticgpu.io/gpu-core": core} if core else {}
    spec = {"containers": [{"name": "main", "resources": {"limits": limits}}]}
    return {"metadata": {"name": name, "namespace": "team", "uid": "u1", "annotations": annotations or {}},
            "spec": dict(spec, nodeName=node) if node else spec,
            "status": {"phase": phase, "conditions": list(conditions)}}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                 "message": "0/2 nodes are available"}
SCHEDULERS = {"items": [
    {"metadata": {"name": "s-0"}, "status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    {"metadata": {"name": "s-1"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}]}
PAGE = {"wants": "main wants 50 % compute of one GPU", "nodesThatFit": 0, "nodesWithoutGPU": 3, "nodes": [
    {"name": "a", "fits": False, "reason": "no GPU is healthy",
     "gpus": [{"index": 0, "healthy": False, "freeCore": 0, "freeMemory": 0}]},
    {"name": "b", "fits": False, "reason": "no GPU has enough compute free",
     "gpus": [{"index": 0, "healthy": True, "freeCore": 40, "freeMemory": 20 * GiB},
              {"index": 1, "healthy": True, "freeCore": 10, "freeMemory": 80 * GiB, "mpsOnly": True}]}]}
LIST = "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-scheduler -o json"
FORWARD = "port-forward -n aliquot-system --address 127.0.0.1 s-1 :9401"


def ask(url, query):
    return f"--kubeconfig=/dev/null --context= --server={url} --request-timeout=15s get --raw /explain?{query}"


def waiting(cluster, page=PAGE):
    cluster.answers.update({"get pod p -n team -o json": pod(conditions=[UNSCHEDULABLE]), LIST: SCHEDULERS,
                            FORWARD: "", ask("http://127.0.0.1:40404", "namespace=team&pod=p"): page})


def test_a_pod_that_waits(cluster):
    waiting(cluster)
    rows = cluster.rows("explain", "p", "-n", "team")
    assert rows[0] == "Pod team/p is pending.".split()
    assert "Request: main wants 50 % compute of one GPU.".split() in rows
    assert "b no GPU has enough compute free 0: 40 % 20 GiB, 1: 10 % 80 GiB for claims under MPS".split() in rows
    assert "a no GPU is healthy 0: not healthy".split() in rows
    assert "3 nodes have no GPU".split() in rows
    assert "kube-scheduler: Unschedulable: 0/2 nodes are available".split() == rows[-1]
    assert "and 1 more node (--nodes N lists more)".split() in cluster.rows("explain", "--nodes", "1", "-n", "team", "p")


def test_what_would_have_to_end(cluster):
    """The fewest pods whose end makes room, as the scheduler says."""
    def said(pods, **more):
        ends = {"node": "b", "pods": [{"namespace": "team", "name": n} for n in pods]}
        waiting(cluster, dict(PAGE, ends=ends, **more))
        return cluster.run("explain", "-n", "team", "p").stdout
    assert "It would fit on node b if this pod ended: team/web.\n" in said(["web"])
    assert "It would fit on node b if these pods ended: team/web, team/train.\n" in said(["web", "train"])
    assert ", team/p9, and 2 more.\n" in said([f"p{i}" for i in range(12)])
    assert "It fits on node b as soon as pods that are being deleted have terminated.\n" in said([])
    assert "team/web. The search was cut short: fewer may do.\n" in said(["web"], cutShort=True)
    assert "cut short" not in said(["web"], cutShort=False)
    waiting(cluster, dict(PAGE, ends=None, cutShort=True))
    assert "cut short and found none" in cluster.run("explain", "-n", "team", "p").stdout
    waiting(cluster, dict(PAGE, ends=None))
    assert "would fit" not in cluster.run("explain", "-n", "team", "p").stdout


def test_a_pod_that_is_held(cluster):
    page = dict(PAGE, held="gang train: 1 of 3 pods have arrived", nodesThatFit=1)
    waiting(cluster, page)
    text = cluster.run("explain", "-n", "team", "p").stdout
    assert "Gated: gang train: 1 of 3 pods have arrived." in text
    assert "enough free GPU capacity" not in text


def test_a_pod_of_another_scheduler(cluster):
    waiting(cluster, dict(PAGE, foreignScheduler="volcano", nodesThatFit=1))
    text = cluster.run("explain", "-n", "team", "p").stdout
    assert "It names the scheduler volcano, which does not ask Aliquot.\n" in text
    assert "REASON" not in text and "enough free GPU capacity" not in text


def test_something_else_keeps_it(cluster):
    page = dict(PAGE, nodesThatFit=1, nodes=[dict(PAGE["nodes"][1], fits=True, reason="")])
    waiting(cluster, page)
    text = cluster.run("explain", "-n", "team", "p").stdout
    assert "b     - (fits)" in text
    assert "1 node has enough free GPU capacity. If the pod stays pending" in text


def test_what_is_kept_for_others(cluster):
    """Reserved capacity, and the node on which a preemption for the pod is in progress."""
    gpu = dict(PAGE["nodes"][1]["gpus"][0], kept=[{"for": "reservation demo", "core": 60, "memory": 48 * GiB},
                                                  {"for": "pod team/p", "core": 10, "memory": 0}])
    waiting(cluster, dict(PAGE, nodes=[dict(PAGE["nodes"][1], gpus=[gpu])]))
    seen = pod(conditions=[UNSCHEDULABLE])
    seen["status"]["nominatedNodeName"] = "b"
    cluster.answers["get pod p -n team -o json"] = seen
    text = cluster.run("explain", "-n", "team", "p").stdout
    assert "0: 40 % 20 GiB (60 % 48 GiB kept for reservation demo) (10 % 0 B kept for pod team/p)" in text
    assert "Preemption is in progress on node b" in text


def test_a_gated_pod(cluster):
    waiting(cluster, dict(PAGE, nodesThatFit=1))
    cluster.answers["get pod p -n team -o json"]["spec"]["schedulingGates"] = [{"name": "a.b/c"}, {"name": "d"}]
    text = cluster.run("explain", "-n", "team", "p").stdout
    assert "skips it until these scheduling gates are removed: a.b/c, d\n" in text and "enough free GPU capacity" not in text


def test_a_claim_that_gives_nothing_yet(cluster):
    waiting(cluster, {"wants": "main wants what its claim gives of one GPU", "held": "claim x does not exist"})
    text = cluster.run("explain", "-n", "team", "p").stdout
    assert "Gated: claim x does not exist." in text and "REASON" not in text


def test_explain_as_json(cluster):
    waiting(cluster)
    told = json.loads(cluster.run("explain", "-n", "team", "p", "--json").stdout)
    assert told["scheduler"] == PAGE and told["kubeScheduler"] == "0/2 nodes are available"
    assert (told["name"], told["node"], told["asksForGPU"], told["problem"]) == ("p", None, True, None)
    del cluster.answers[FORWARD]
    done = cluster.run("explain", "-n", "team", "p", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["scheduler"] is None and "does not answer" in done.stderr
    for note, seen in (('{"v": 1}', {"v": 1}), ('{"v": ', None)):
        cluster.answers["get pod p -o json"] = pod("p", "b", annotations={"elasticgpu.io/assignment": note})
        told = json.loads(cluster.run("explain", "p", "--json").stdout)
        assert (told["node"], told["assignment"]) == ("b", seen)
    cluster.answers["get pod p -o json"] = pod(core="150")
    assert "malformed" in json.loads(cluster.run("explain", "p", "--json").stdout)["problem"]


def test_the_schedulers_address(cluster):
    cluster.answers = {"get pod p -o json": pod(), ask("http://s:1", "namespace=team&pod=p"): PAGE}
    assert "no GPU is healthy" in cluster.run("explain", "p", "--scheduler", "http://s:1").stdout
    assert not any("port-forward" in asked for asked in cluster.asked())


def test_scheduler_down(cluster):
    waiting(cluster)
    event = {"message": "main wants 50 % compute of one GPU; b has free GPU 0: 40 %",
             "metadata": {"creationTimestamp": "2026-01-02T00:00:00Z"}, "source": {"component": "aliquot-scheduler"}}
    older = dict(event, message="older", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    foreign = dict(event, message="foreign", source={"component": "kubelet"})
    events = "get events -n team --field-selector=involvedObject.uid=u1 -o json"
    cluster.answers[events] = {"items": [event, older, foreign]}
    for gone, complaint in ((FORWARD, "cannot forward a port to pod aliquot-system/s-1"), (LIST, "nothing is known of")):
        del cluster.answers[gone]
        done = cluster.run("explain", "-n", "team", "p")
        assert done.returncode == 0
        assert "aliquot-scheduler does not answer" in done.stderr and complaint in done.stderr
        assert "Last Event of aliquot-scheduler, 2026-01-02T00:00:00Z: main wants" in done.stdout
        assert "b     0    40 %       19.5 GiB" in done.stdout
        assert "kube-scheduler: " in done.stdout and "foreign" not in done.stdout
    cluster.answers[LIST] = {"items": []}
    assert "no pod of aliquot-scheduler in namespace aliquot-system is ready" \
        in cluster.run("explain", "-n", "team", "p").stderr
    del cluster.answers["get gpus.elasticgpu.io -o json"]      # a tenant may see neither
    assert "cannot be read either" in cluster.run("explain", "-n", "team", "p").stdout


def test_a_pod_on_a_node(cluster):
    note = json.dumps({"v": 1, "node": "b", "containers": {"main": [
        {"index": 0, "uuid": uuid("b", 0), "core": 50, "memory": 60 * GiB}]}})
    cluster.answers["get pod train -o json"] = dict(pod("train", "b", annotations={"elasticgpu.io/assignment": note}))
    rows = cluster.rows("explain", "train")
    assert rows[0] == "Pod team/train is on node b.".split()
    assert ["main", "0", uuid("b", 0), "50", "%", "60", "GiB"] in rows
    assert any(row[:2] == ["GPU", "b-00"] and row[-3:] == ["shared", "with", "team/web"] for row in rows), rows
    cluster.answers["get pod train -o json"] = pod("train", "b")
    assert "bound without aliquot-scheduler" in cluster.run("explain", "train").stdout
    theirs = pod("train", "b")                      # as NVIDIA's plugin serves it where that name is left to it
    theirs["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    cluster.answers["get pod train -o json"] = theirs
    text = cluster.run("explain", "train").stdout
    assert "left to another device plugin" in text and "container main" in text and "without aliquot-scheduler" not in text


def test_pods_that_are_not_ours_to_explain(cluster):
    cluster.answers["get pod p -o json"] = pod(core=None, conditions=[UNSCHEDULABLE])
    assert "requests no GPU" in cluster.run("explain", "p").stdout
    cluster.answers["get pod p -o json"] = pod(phase="Succeeded")
    assert "has terminated (Succeeded)" in cluster.run("explain", "p").stdout
    failed = cluster.answers["get pod p -o json"] = pod(phase="Failed")
    failed["status"].update(reason="UnexpectedAdmissionError", message="no healthy devices present")
    told = cluster.run("explain", "p").stdout
    assert "has terminated (Failed)" in told and "UnexpectedAdmissionError: no healthy devices present" in told
    assert "Usual cause" in told and "was not registered with kubelet" in told
    failed = cluster.answers["get pod p -o json"] = pod(phase="Failed", core=None)      # of another device plugin
    failed["status"].update(reason="UnexpectedAdmissionError", message="no healthy devices present")
    told = cluster.run("explain", "p").stdout
    assert "UnexpectedAdmissionError" in told and "agent" not in told
    cluster.answers["get pod p -o json"] = pod(core="150")
    assert "Container main: GPU request is malformed" in cluster.run("explain", "p").stdout


def test_explain_errors(cluster):
    assert "NotFound" in cluster.fails("explain", "absent")
    assert "name of a pod is missing" in cluster.fails("explain", status=2)
    assert "unexpected argument 'b'" in cluster.fails("explain", "a", "b", status=2)
    assert "port-forward" in cluster.run("explain", "--help").stdout
    cluster.answers["get pod p -o json"] = "[]"
    assert "not a pod" in cluster.fails("explain", "p")
