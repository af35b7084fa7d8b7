# SPDX-License-Identifier: Apache-2.0
"""`aliquot web` on a real cluster: what it sends is what the API server and the agents have, for those who may read it."""

import json
import os
import re
import sys

import pytest

import kit
from cluster import api as kube
from kit import CORE, MEMORY, GiB, container, pod

# Starts it on the node, prints the lines of its first whole reading, then the answers of the paths that are named, and ends it.
VIEWER = """
import http.client, json, subprocess, sys, urllib.parse
program, paths, *words = sys.argv[1:]
web = subprocess.Popen([program, "web", *words], stdout=subprocess.PIPE, text=True)
address = urllib.parse.urlsplit(web.stdout.readline().strip())
def ask(path, **headers):
    connection = http.client.HTTPConnection(address.netloc, timeout=60)
    connection.request("GET", path, headers=headers or {"X-Aliquot-Token": token})
    return connection.getresponse()
token = json.load(ask("/api/token", **{"X-Aliquot-Code": address.query.removeprefix("code=")}))["token"]
found = {}
for line in ask("/api/events"):
    if line.startswith(b"data: "):
        line = json.loads(line[6:])
        found[line["k"]] = line
        if line["k"] == "state":
            break
answers = [ask(path).read().decode() for path in json.loads(paths)]
web.terminate()
assert web.wait(60) == 0
print(json.dumps([found, answers]))
"""


def look(world, *words, paths=()):
    words = [sys.executable, "-c", VIEWER, str(world.build / "src/cli/aliquot"), json.dumps(paths), *words]
    return json.loads(world.cluster.on_node(words).stdout)


def bytes_of(quantity):
    number, unit = re.fullmatch(r"(\d+)(|Ki|Mi|Gi)", quantity).groups()
    return int(number) << {"": 0, "Ki": 10, "Mi": 20, "Gi": 30}[unit]


def held(gpus):
    """Amounts of each container on each card, by the API server's objects."""
    return {(one["metadata"]["name"], share["namespace"], share["pod"], c["container"]): (int(c["resource"][CORE]), bytes_of(c["resource"][MEMORY]))
            for one in gpus["items"] for share in one["status"].get("allocated", {}).values() for c in share["containers"]}


def shown(lines):
    """The same by the lines of the page."""
    return {(card["name"], h["ns"], h["pod"], h["c"]): (h["core"], h["mem"])
            for key, line in lines.items() if key.startswith("c/") for card in line["cards"] for h in card["h"]}


def test_it_sends_what_there_is(world, space):
    """Shares, use, waiting pods, the last hour and what explain says."""
    space.start_all([pod(name, container(core=20, memory=10 * GiB)) for name in ("one", "two")])
    space.create(pod("large", container(core=500)))
    space.unschedulable("large")
    node = world.cluster.node
    paths = [f"/api/history?node={node}&namespace={space.name}&pod=one", f"/api/explain?namespace={space.name}&pod=large", "/api/plan"]
    world.until(lambda: json.loads(look(world, paths=paths[:1])[1][0])["containers"], 60, "a first step of the history")
    lines, (history, explained, plan) = look(world, paths=paths)
    assert lines["state"]["trouble"] == [] and lines["state"]["silent"] == 0
    gpus = world.api.get(kube.gpus())
    assert shown(lines) == held(gpus) and {key[2] for key in shown(lines)} >= {"one", "two"}
    cards = {card["uuid"] for key, line in lines.items() if key.startswith("c/") for card in line["cards"]}
    assert cards == {gpu["spec"]["uuid"] for gpu in gpus["items"]}
    assert lines[f"u/{node}"]["answers"] and {card["uuid"] for card in lines[f"u/{node}"]["cards"]} == cards
    assert lines[f"w/{space.name}/large"]["wants"]
    (record,) = json.loads(history)["containers"]
    assert (record["pod"], record["container"]) == ("one", "main")
    assert f"Pod {space.name}/large is pending." in json.loads(explained)["text"] and json.loads(explained)["status"] == 0
    assert json.loads(plan)["status"] == 0


@pytest.fixture
def tenant(world, space):
    """A kubeconfig of an account that has `view` in its namespace."""
    world.cluster.kubectl("-n", space.name, "create", "serviceaccount", "viewer")
    world.cluster.kubectl("-n", space.name, "create", "rolebinding", "viewer", "--clusterrole=view", f"--serviceaccount={space.name}:viewer")
    token = world.cluster.kubectl("-n", space.name, "create", "token", "viewer").strip()
    path = f"/tmp/viewer-{os.getpid()}"
    world.cluster.on_node(["sh", "-euc", f"""
        kubectl config view --raw --minify >{path}
        kubectl --kubeconfig {path} config set-credentials viewer --token={token}
        kubectl --kubeconfig {path} config set-context --current --user=viewer"""])
    yield path
    world.cluster.on_node(["rm", "-f", path])


def test_a_tenant_sees_its_namespace_and_no_more(world, space, tenant):
    with kit.temporary_space(world) as other:
        for one, name in (space, "mine"), (other, "theirs"):
            one.create(pod("large", container(core=500)))
            one.start(pod(name, container(core=20, memory=GiB)))
        lines, _ = look(world, "--kubeconfig", tenant, "-n", space.name)
        assert f"w/{space.name}/large" in lines and other.name not in json.dumps(lines)
        assert {one["part"]: one["refused"] for one in lines["state"]["trouble"]} == {"use": True}
        assert {key[2] for key in shown(lines)} == {"mine"}
        lines, _ = look(world, "--kubeconfig", tenant)
        assert {one["part"] for one in lines["state"]["trouble"]} == {"cards", "use", "waiting", "quotas", "claims"}
        assert set(lines) == {"state"}
        space.end("mine", grace=0)      # the other namespace is left only when nothing is allocated any more
