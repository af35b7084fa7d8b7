# SPDX-License-Identifier: Apache-2.0
"""`aliquot card` and `aliquot node` with a kubectl that keeps GPU objects and Nodes in a file."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

# Annotations are written as the API server does it. With $AGENT the objects then have these states, one after the other with
# each reading of an object, as if an agent had followed.
KUBECTL = f"""#!{sys.executable}
import json, os, sys
sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r})
import proxied
path = os.environ["OBJECTS"]
def get(words):
    objects = json.load(open(path))
    words = words.split()[1:]
    if words[1:] == ["-o", "json"]:
        return {{"items": [o for kind, o in objects.items() if kind.startswith(words[0] + "/")]}}
    for status in objects.get("agent", [])[:1]:
        for kind, o in objects.items():
            if kind.startswith("gpus"):
                order = o["metadata"].get("annotations", {{}}).get("elasticgpu.io/reset", "")
                o["status"].update(json.loads(json.dumps(status).replace("@ORDER", order)))
    objects["agent"] = objects.get("agent", [])[1:]
    json.dump(objects, open(path, "w"))
    return objects["/".join(words[:2])]
def patch(words, change):
    objects = json.load(open(path))
    key = "/".join(words.split()[1:3])
    if key not in objects:
        return None
    of = objects[key]["metadata"].setdefault("annotations", {{}})
    for name, value in change["metadata"]["annotations"].items():
        of[name] = value
        if value is None:
            del of[name]
    objects["agent"] = json.loads(os.environ.get("AGENT", "[]"))
    json.dump(objects, open(path, "w"))
    return objects[key]
proxied.serve(sys.argv[1:], get, patch)
sys.exit(f"unexpected: {{sys.argv}}")
"""
GPUS = "gpus.elasticgpu.io/"


def gpu(name, index, uuid, node="n", **spec):
    return {"metadata": {"name": name},
            "spec": {"nodeName": node, "index": index, "memory": 1 << 36, "uuid": uuid, **spec},
            "status": {"state": "Healthy", "since": "2026-01-01T00:00:00Z"}}


class Cluster:
    def __init__(self, path):
        (path / "kubectl").write_text(KUBECTL)
        (path / "kubectl").chmod(0o755)
        self.path = path
        self.objects = path / "objects.json"
        self.objects.write_text(json.dumps({
            GPUS + "n-00": gpu("n-00", 0, "GPU-0"), GPUS + "n-01": gpu("n-01", 1, "GPU-1"),
            GPUS + "m-00": gpu("m-00", 0, "GPU-2", "m"),
            GPUS + "n-01-gi1-ci0": gpu("n-01-gi1-ci0", 0, "MIG-1", parent="GPU-1"),
            "node/n": {"metadata": {"name": "n"}}, "node/m": {"metadata": {"name": "m"}}}))

    def aliquot(self, aliquot, *words, agent=()):
        env = {**os.environ, "KUBECTL": str(self.path / "kubectl"), "OBJECTS": str(self.objects),
               "AGENT": json.dumps([agent] if isinstance(agent, dict) else agent)}
        return subprocess.run([aliquot, *words], capture_output=True, text=True, env=env, timeout=30, check=False)

    def set_status(self, key, **status):
        objects = json.loads(self.objects.read_text())
        objects[key]["status"].update(status)
        self.objects.write_text(json.dumps(objects))

    def annotations(self, key):
        return json.loads(self.objects.read_text())[key]["metadata"].get("annotations", {})


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path)


@pytest.fixture
def run(cluster, aliquot):
    return lambda *words, **more: cluster.aliquot(aliquot, *words, **more)


def test_levels(cluster, run):
    for name, verb in ("n-00", "cordon"), ("GPU-0", "drain"), ("n/0", "release"):
        r = run("card", verb, name)
        assert (r.returncode, r.stdout, r.stderr) == (0, "", "")
        assert cluster.annotations(GPUS + "n-00") == {"elasticgpu.io/maintenance": verb}
    assert run("card", "uncordon", "n-00").returncode == 0
    assert cluster.annotations(GPUS + "n-00") == {}
    assert cluster.annotations(GPUS + "m-00") == {}


def test_orders_with_a_time(cluster, run):
    for verb in "reset", "set-healthy":
        assert run("card", verb, "n-00", "n-01").returncode == 0
        for name in "n-00", "n-01":
            assert cluster.annotations(GPUS + name)["elasticgpu.io/" + verb].endswith("Z")


def test_instances(cluster, run):
    r = run("card", "reset", "n-01-gi1-ci0")
    assert (r.returncode, r.stderr) == (1, "aliquot card: n-01-gi1-ci0 is a MIG instance: name its card, GPU-1\n")
    assert run("card", "set-healthy", "MIG-1").returncode == 0
    assert cluster.annotations(GPUS + "n-01-gi1-ci0") != {}


def test_nothing_is_ordered_if_a_name_is_wrong(cluster, run):
    r = run("card", "drain", "n-00", "n-07")
    assert (r.returncode, r.stderr) == (1, "aliquot card: there is no GPU 'n-07'; `aliquot gpus` lists their names\n")
    assert cluster.annotations(GPUS + "n-00") == {}


DRAINED = {"state": "Draining", "reason": "drained by order", "maintenance": "drain", "evict": [],
           "since": "2026-01-01T00:00:01Z"}
CORDONED = {**DRAINED, "reason": "cordoned by order", "maintenance": "cordon"}


def test_a_cordoned_card_is_not_drained_yet(cluster, run):
    cluster.set_status(GPUS + "n-00", **CORDONED)
    r = run("card", "drain", "n-00", "--wait", "1")
    assert (r.returncode, r.stderr) == (1, "aliquot card: not within 1 s: GPU n-00 is Draining: cordoned by order\n")
    r = run("card", "drain", "n-00", "--wait", "10", agent=[CORDONED, {**DRAINED, "evict": ["d/p/u"]}, DRAINED])
    assert (r.returncode, r.stdout) == (0, "GPU n-00 is Draining: drained by order\n")


def test_a_drained_card_with_a_problem(cluster, run):
    problem = {"state": "Draining", "reason": "XID 48", "maintenance": None}
    cluster.set_status(GPUS + "n-00", **problem)
    assert run("card", "drain", "n-00", "--wait", "1").returncode == 1
    r = run("card", "drain", "n-00", "--wait", "10", agent={**problem, "maintenance": "drain"})
    assert (r.returncode, r.stdout) == (0, "GPU n-00 is Draining: XID 48\n")


def test_pods_that_keep_a_card_from_being_drained(run):
    for pods, told in (1, "d/p0/u"), (3, "d/p0/u d/p1/u d/p2/u"), (5, "d/p0/u d/p1/u d/p2/u ..."):
        r = run("card", "drain", "n-00", "--wait", "1",
                agent={**DRAINED, "evict": [f"d/p{i}/u" for i in range(pods)]})
        assert (r.returncode, r.stderr) == \
            (1, "aliquot card: not within 1 s: GPU n-00 is Draining: drained by order; it has pods, see their Events: "
                f"{told}\n")


HEALTHY = {"state": "Healthy", "reason": None, "since": "2026-01-01T00:00:07Z"}


def ended(status, message=None):
    """As the agent reports the end of the order; @ORDER is the text of the annotation."""
    result = {"result": "Failed", "message": message} if message else {"result": "Succeeded"}
    return {**status, "reset": {"order": "@ORDER", **result}}


@pytest.mark.parametrize("after", [HEALTHY, DRAINED, CORDONED], ids=["healthy", "drained", "cordoned"])
def test_a_reset(run, after):
    """What else changes the card is no reset, and neither is what follows one."""
    former = {**HEALTHY, "reset": {"order": "2025-12-31T00:00:00Z", "result": "Succeeded"}}
    starts = {**HEALTHY, "state": "Unhealthy", "reason": "MPS: it starts"}
    assert run("card", "reset", "n-00", "--wait", "1", agent=[former, after]).returncode == 1
    r = run("card", "reset", "n-00", "--wait", "10", agent=[after, ended(starts), ended(after)])
    assert (r.returncode, r.stdout) == \
        (0, f"GPU n-00 is {after['state']}{': ' if after['reason'] else ''}{after['reason'] or ''}\n")


@pytest.mark.parametrize("after", [HEALTHY, DRAINED], ids=["healthy", "drained"])
def test_a_reset_that_fails(run, after):
    r = run("card", "reset", "n-00", "--wait", "10", agent=ended(after, "reset failed: exit status 1"))
    assert (r.returncode, r.stdout, r.stderr) == \
        (1, "", f"aliquot card: GPU n-00: reset failed: exit status 1 (it is {after['state']})\n")


def test_waiting(run):
    r = run("card", "drain", "n-00", "--wait", "10", agent=DRAINED)
    assert (r.returncode, r.stdout) == (0, "GPU n-00 is Draining: drained by order\n")
    r = run("card", "reset", "n-00", "-w", "1", agent={"state": "Unhealthy", "reason": "reset failed: exit status 1"})
    assert (r.returncode, r.stderr) == \
        (1, "aliquot card: not within 1 s: GPU n-00 is Unhealthy: reset failed: exit status 1\n")
    r = run("card", "set-healthy", "n-00", "-w", "10", agent=HEALTHY)
    assert (r.returncode, r.stdout) == (0, "GPU n-00 is Healthy\n")


RELEASED = {"state": "Unknown", "reason": "released by order for the node", "maintenance": "release"}


def test_a_node_without_gpu_objects(cluster, run):
    objects = json.loads(cluster.objects.read_text())
    objects["node/empty"] = {"metadata": {"name": "empty"}}
    cluster.objects.write_text(json.dumps(objects))
    r = run("node", "release", "empty", "--wait", "10")
    assert r.returncode == 1 and r.stderr.startswith("aliquot node: node 'empty' has no GPU objects"), r.stderr
    assert cluster.annotations("node/empty") == {"elasticgpu.io/maintenance": "release"}


def test_a_node_with_a_lost_card(cluster, run):
    lost = {"state": "Unhealthy", "reason": "the driver does not list the card any more"}
    r = run("node", "release", "m", "--wait", "1", agent={**lost, "reason": "XID 79"})
    assert r.returncode == 1, "its driver still lists it"
    r = run("node", "release", "m", "--wait", "10", agent=lost)
    assert (r.returncode, r.stdout) == (0, "GPU m-00 is Unhealthy: the driver does not list the card any more\n")


def test_a_node(cluster, run):
    r = run("node", "release", "n", "--wait", "10", agent=RELEASED)
    assert r.returncode == 0, r.stderr
    assert r.stdout == "".join(f"GPU n-0{i} is Unknown: released by order for the node\n" for i in range(2))
    assert cluster.annotations("node/n") == {"elasticgpu.io/maintenance": "release"}
    r = run("node", "resume", "n", "--wait", "10", agent={"state": "Healthy", "reason": None, "maintenance": None})
    assert r.returncode == 0, r.stderr
    assert cluster.annotations("node/n") == {}
    r = run("node", "release", "x")
    assert (r.returncode, r.stderr) == (1, 'aliquot node: nothing is known of: get node x -o json\n')


@pytest.mark.parametrize("words", [["card"], ["card", "reset"], ["card", "pause", "n-00"], ["node", "release"],
                                   ["node", "drain", "n"], ["node", "release", "n", "m"], ["card", "drain", "n-00", "--no"]])
def test_wrong_arguments(run, words):
    r = run(*words)
    assert r.returncode == 2 and "--help" in r.stderr, r.stderr


def test_help(run):
    for command in "card", "node":
        r = run(command, "--help")
        assert r.returncode == 0 and "release" in r.stdout
