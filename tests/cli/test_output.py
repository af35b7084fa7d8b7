# SPDX-License-Identifier: Apache-2.0
"""The forms in which commands print what they show: -o, --no-headers, --watch, -n and -A."""

import json
import os
import pathlib
import re
import subprocess
import time

import fastjsonschema
import pytest
import yaml

from test_inspect import AGENTS, GPUS, PAGE, Cluster, GiB, gpu, uuid, waiting

SCHEMAS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/schemas"
SHOWN = [["gpus"], ["inspect"], ["inspect", "node"], ["inspect", "card"], ["inspect", "pod"], ["inspect", "namespace"],
         ["inspect", "memory"], ["explain", "p", "-n", "team"]]
IDS = [" ".join(words[:2]) for words in SHOWN]


@pytest.fixture
def cluster(aliquot, tmp_path):
    made = Cluster(aliquot, tmp_path)
    waiting(made, dict(PAGE, ends={"node": "b", "pods": [{"namespace": "team", "name": "web"}]}))
    made.answers["get pod p -n team -o json"]["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    page = {"gpus": [{"uuid": uuid("b", 0), "memoryUsed": 3 * GiB, "utilization": 7, "holders": [
        {"podUID": "u2", "container": "main", "memoryDriver": GiB, "coreUsed": 5, "memoryState": "Fine"}]}]}
    made.answers.update({
        AGENTS: {"items": [{"metadata": {"name": "agent-b"}, "spec": {"nodeName": "b"}},
                           {"metadata": {"name": "agent-a"}, "spec": {"nodeName": "a"}}]},
        "get --raw /api/v1/namespaces/aliquot-system/pods/agent-b:9400/proxy/usage": page})
    return made


def out(cluster, *words):
    done = cluster.run(*words)
    assert done.returncode == 0, done
    return done.stdout


def closed(schema):
    """The same schema, which admits nothing that it does not name."""
    if isinstance(schema, dict):
        schema = {key: closed(value) for key, value in schema.items()}
        if "properties" in schema:
            schema["additionalProperties"] = False
    return [closed(item) for item in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("words", SHOWN, ids=IDS)
def test_json_is_what_the_schema_says(cluster, words):
    path = SCHEMAS / ("explain.json" if words[0] == "explain" else "cards.json")
    document = json.loads(out(cluster, *words, "-o", "json"))
    fastjsonschema.compile(closed(json.loads(path.read_text())))(document)
    assert json.loads(out(cluster, *words, "--json")) == document


def test_every_member_of_the_schema_is_seen(cluster):
    """The schema names nothing that no command prints."""
    mig = gpu("b", 2, (100, "80Gi"))
    mig["spec"].update(parent="GPU-x", mig={"profile": "1g"})
    mig["status"].update(unavailable="away", held=[{"by": "claim x", "resource": {}}])
    mig["status"]["allocated"]["u9"] = {"namespace": "team", "claim": "c", "pod": "p", "users": [{"pod": "p", "container": "main"}],
                                        "containers": [{"container": "main", "resource": {}}]}
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": [*GPUS["items"], mig]}
    seen = set(re.findall(r'"(\w+)":', out(cluster, "gpus", "-o", "json")))
    text = (SCHEMAS / "cards.json").read_text()
    named = set(re.findall(r'"(\w+)": \{', text)) - {"properties", "items"}
    assert named == seen


@pytest.mark.parametrize("words", SHOWN, ids=IDS)
def test_yaml_is_the_same_as_json(cluster, words):
    assert yaml.safe_load(out(cluster, *words, "-o", "yaml")) == json.loads(out(cluster, *words, "-o", "json"))


def test_texts_that_yaml_could_mistake(cluster):
    names = ["yes", "No", "null", "12", "1e3", "a: b", "- x", "#c", "", " x", "x ", "~", "é", "a\nb", "0x1f", ".inf", "&a", "!t", "x"]
    cards = [gpu("n", i, (100, "80Gi")) for i in range(len(names))]
    for card, name in zip(cards, names):
        card["spec"]["model"] = name
    cluster.answers["get gpus.elasticgpu.io -o json"] = {"items": cards}
    read = yaml.safe_load(out(cluster, "inspect", "-o", "yaml"))
    assert [g["model"] for g in read["nodes"][0]["gpus"]] == names


NAMES = {"gpus": ["gpu.elasticgpu.io/a-00", "gpu.elasticgpu.io/b-00", "gpu.elasticgpu.io/b-01"],
         "inspect": ["node/a", "node/b"], "inspect node": ["gpu.elasticgpu.io/a-00", "gpu.elasticgpu.io/b-00", "gpu.elasticgpu.io/b-01"],
         "inspect pod": ["pod/old", "pod/train", "pod/web"], "inspect namespace": ["namespace/other", "namespace/team"],
         "inspect memory": ["node/a", "node/b"], "explain p": ["pod/p"]}


@pytest.mark.parametrize("words", SHOWN, ids=IDS)
def test_names(cluster, words):
    key = " ".join(words[:2])
    assert out(cluster, *words, "-o", "name").splitlines() == NAMES[key if key != "inspect card" else "inspect node"]


@pytest.mark.parametrize("words", [w for w in SHOWN if w[0] != "explain"], ids=IDS[:-1])
def test_without_titles_and_wide(cluster, words):
    lines = out(cluster, *words).splitlines()
    bare = out(cluster, *words, "--no-headers").splitlines()
    assert [line.split() for line in bare] == [line.split() for line in lines[1:]]
    wide = out(cluster, *words, "-o", "wide").splitlines()
    assert [line.split()[:2] for line in wide] == [line.split()[:2] for line in lines]
    if words[-1] in ("gpus", "node", "card", "pod"):
        assert uuid("b", 0) in "\n".join(wide) and uuid("b", 0) not in "\n".join(lines)


def test_no_such_form(cluster):
    assert "no form 'xml', only json" in cluster.fails("gpus", "-o", "xml", status=2)


# ---- one namespace, all namespaces ----

@pytest.mark.parametrize("words", [w for w in SHOWN if w[0] != "explain"], ids=IDS[:-1])
def test_a_namespace(cluster, words):
    """Nothing of the pods of others is shown; with -A everything is."""
    every = out(cluster, *words)
    assert out(cluster, *words, "-n", "team", "-A") == every
    document = json.loads(out(cluster, *words, "-n", "team", "-o", "json"))
    assert {h["namespace"] for n in document["nodes"] for g in n["gpus"] for h in g["holders"]} == {"team"}
    assert "other" not in out(cluster, *words, "-n", "team") and "old" not in out(cluster, *words, "-n", "team")


# ---- since when ----

def test_since_when_a_pod_waits(cluster):
    assert re.search(r"^It waits since 2026-01-01T00:00:00Z, for \d+ d \d+ h\.$", out(cluster, "explain", "p", "-n", "team"), re.M)
    assert json.loads(out(cluster, "explain", "p", "-n", "team", "-o", "json"))["since"] == "2026-01-01T00:00:00Z"


# ---- units ----

@pytest.mark.parametrize("words", [*SHOWN, ["defrag", "--plan"]], ids=[*IDS, "defrag"])
def test_memory_is_written_for_people(cluster, words):
    """Only documents have bytes."""
    cluster.answers.update({"get pods -A -o json": {"items": []}, "get poddisruptionbudgets.policy -A -o json": {"items": []}})
    assert not re.search(r"\d{9,}(?![0-9a-f-])", out(cluster, *words))


# ---- what others write ----

ORDERS = "\033]0;x\007\033[31m\u009b2J\r\x7f"     # a title, a colour, an empty screen


def colored(document):
    """The same document, whose free texts have orders for a terminal."""
    if isinstance(document, dict):
        return {key: value + ORDERS if isinstance(value, str) and key in FREE else colored(value) for key, value in document.items()}
    return [colored(item) for item in document] if isinstance(document, list) else document


# Neither names, which the API server bounds, nor what is parsed.
FREE = ("model", "state", "unavailable", "memoryState", "message", "reason", "wants", "held", "foreignScheduler", "schedulerName")


@pytest.mark.parametrize("words", [*SHOWN, ["top"], ["top", "--view", "waiting"]], ids=[*IDS, "top", "top waiting"])
@pytest.mark.parametrize("more", [{}, {"foreignScheduler": "x"}, {"held": "x"}], ids=["", "foreign", "held"])
def test_no_text_is_an_order(cluster, words, more):
    """Tenants and agents write texts, and none of them is more than a text on a terminal."""
    (forward,) = [key for key in cluster.answers if "/explain?" in key]
    cluster.answers[forward] = {**cluster.answers[forward], **more}
    cluster.answers["get --raw /api/v1/namespaces/aliquot-system/pods/agent-a:9400/proxy/usage"] = "error: away" + ORDERS
    cluster.answers["get pods -A --field-selector=spec.nodeName= -o json"] = "error: away" + ORDERS
    cluster.answers = colored(cluster.answers)
    done = cluster.run(*words)
    assert done.returncode == 0 and not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f]", done.stdout + done.stderr), done
    if words != ["inspect", "namespace"] and words[:2] != ["inspect", "pod"] and words != ["inspect"] and words[1:] != ["memory"]:
        assert "?" in done.stdout + done.stderr


def test_no_text_of_a_pod_that_ended_is_an_order(cluster):
    cluster.answers["get pod p -n team -o json"]["status"] = {"phase": "Failed", "reason": "x" + ORDERS, "message": ORDERS}
    shown = out(cluster, "explain", "p", "-n", "team")
    assert "Pod status: x?]0;x??[31m" in shown and not re.search("[\0-\x09\x0b-\x1f\x7f-\x9f]", shown)


# ---- again and again ----

def test_watch(cluster):
    """It prints again what has changed, and nothing twice; a cluster that is away for a while is no end."""
    (cluster.where / "answers.json").write_text(json.dumps(cluster.answers))
    env = dict(os.environ, KUBECTL=str(cluster.kubectl), ANSWERS=str(cluster.where))
    # A fake that reads its answers anew for each request.
    text = cluster.proxy.read_text().replace("return answers.get(", "return json.load(open(where + '/answers.json')).get(")
    cluster.proxy.write_text(text)

    def change(answers):
        (cluster.where / "new").write_text(json.dumps(answers))
        os.replace(cluster.where / "new", cluster.where / "answers.json")

    listed = "get gpus.elasticgpu.io -o json"
    with subprocess.Popen([cluster.aliquot, "inspect", "node", "--watch", "-o", "name"], env=env, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as watch:
        try:
            assert [watch.stdout.readline() for _ in range(3)] == [f"gpu.elasticgpu.io/{n}\n" for n in ("a-00", "b-00", "b-01")]
            change({**cluster.answers, listed: "error: away for a while"})
            assert watch.stderr.readline() == "aliquot inspect: away for a while\n"
            change({**cluster.answers, listed: {"items": GPUS["items"][:1]}})
            assert [watch.stdout.readline() for _ in range(2)] == ["\n", "gpu.elasticgpu.io/b-01\n"]
        finally:
            watch.terminate()


def test_an_age_is_no_change(cluster):
    """What has only become older is not printed again."""
    cluster.answers["get pod p -n team -o json"]["metadata"]["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    (cluster.where / "answers.json").write_text(json.dumps(cluster.answers))
    env = dict(os.environ, KUBECTL=str(cluster.kubectl), ANSWERS=str(cluster.where))
    with subprocess.Popen([cluster.aliquot, "explain", "p", "-n", "team", "--watch"], env=env, text=True, stdout=subprocess.PIPE) as watch:
        end = time.monotonic() + 120
        while not (cluster.where / "asked").exists() or cluster.asked().count("get pod p -n team -o json") < 3:
            assert time.monotonic() < end
            time.sleep(0.05)
        watch.terminate()
        said = watch.stdout.read()
    assert said.count("Pod team/p is pending.") == 1 and re.search(r"^It waits since 20\S*Z\.$", said, re.M), said


def test_watch_of_what_never_was(cluster):
    del cluster.answers["get gpus.elasticgpu.io -o json"]
    assert "not installed" in cluster.fails("inspect", "--watch")
