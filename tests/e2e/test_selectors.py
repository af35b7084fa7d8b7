# SPDX-License-Identifier: Apache-2.0
"""Selectors in CEL as kube-scheduler and as Aliquot evaluate them: each of selector_table.py, for each device.

A device is on a node of its own. The requests have adminAccess, so that the claims need no free device. A pod is bound
where the selector is true, unschedulable where it is false, and has the error in its condition otherwise.
"""

import json
import secrets
import subprocess

import pytest
from cluster import Cluster, Timeout
from cluster import api as kube
from selector_table import DEVICES, DRIVER, REFUSED, SERVED

RESOURCE = "/apis/resource.k8s.io/v1"
SPACE = "selectors"


def path(kind):
    return f"{RESOURCE}/namespaces/{SPACE}/{kind}"


@pytest.fixture(scope="module")
def api():
    with Cluster("selectors-" + secrets.token_hex(2), stock_scheduler=True) as cluster:
        cluster.up()
        api = cluster.api
        api.create(kube.core("namespaces"), {"metadata": {"name": SPACE, "labels": {"resource.kubernetes.io/admin-access": "true"}}})
        api.create(f"{RESOURCE}/deviceclasses", {"metadata": {"name": DRIVER}, "spec": {
            "selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]}})
        room = {"cpu": "64", "memory": "64Gi", "pods": "500"}
        for device in DEVICES:
            node = device["name"]
            api.create(kube.core("nodes"), {"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}})
            api.patch(kube.core("nodes", name=node) + "/status", {"status": {"capacity": room, "allocatable": room}})
            api.create(f"{RESOURCE}/resourceslices", {"metadata": {"name": node}, "spec": {
                "driver": DRIVER, "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1}, "devices": [device]}})
        api.wait(kube.core("serviceaccounts", SPACE), "default", lambda seen: seen, 60)
        yield api


def create(api, expressions, prefix):
    """A pod with a claim for each pair of an expression and a device: {name: (expression, number of the device)}"""
    pods = {}
    for i, expression in enumerate(expressions):
        for j, device in enumerate(DEVICES):
            name = f"{prefix}-{i}-{j}"
            pods[name] = (expression, j)
            api.create(path("resourceclaims"), {"metadata": {"name": name}, "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {
                "deviceClassName": DRIVER, "adminAccess": True, "selectors": [{"cel": {"expression": expression}}]}}]}}})
            api.create(kube.pods(SPACE), {"metadata": {"name": name}, "spec": {
                "nodeSelector": {"kubernetes.io/hostname": device["name"]}, "tolerations": [{"operator": "Exists"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
                "containers": [{"name": "main", "image": "localhost/pause:1", "resources": {"claims": [{"name": "gpu"}]}}]}})
    return pods


def answer_of(pod):
    """None: kube-scheduler has not said it yet."""
    if pod["spec"].get("nodeName"):
        return "true"
    for condition in pod["status"].get("conditions", []):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            if condition["reason"] == "SchedulerError" and "CEL runtime error" in condition["message"]:
                return "error"
            if condition["reason"] == "Unschedulable" and "cannot allocate all claims" in condition["message"]:
                return "false"
    return None


def ask_kubernetes(api, expressions, prefix):
    """{(expression, number of the device): answer}"""
    pods, answers = create(api, expressions, prefix), {}
    try:
        for _, seen in api.watch(kube.pods(SPACE), 180):
            key, answer = pods.get(seen["metadata"]["name"]), answer_of(seen)
            if key and answer:
                answers[key] = answer
            if len(answers) == len(pods):
                return answers
    except Timeout:
        raise Timeout(f"no answer for {[name for name, key in pods.items() if key not in answers]}") from None
    raise AssertionError("the watch ended")


def ask_us(build, expressions):
    devices = [{"driver": DRIVER, **device} for device in DEVICES]
    for device in devices:
        device["capacity"] = {name: {"value": str(int(one["value"].removesuffix("Gi")) << 30)} for name, one in device["capacity"].items()}
    done = subprocess.run([build / "tests/e2e/cel-ask"], input=json.dumps({"devices": devices, "expressions": expressions}),
                          stdout=subprocess.PIPE, text=True, check=True)
    answers = {}
    for expression, line in zip(expressions, done.stdout.splitlines(), strict=True):
        each = json.loads(line)
        for j in range(len(DEVICES)):
            answers[expression, j] = each[j if len(each) > 1 else 0].split(":")[0]
    return answers


def test_answers_are_those_of_kubernetes(api, build):
    for name in create(api, ["true"], "first"):     # kube-scheduler may try a pod before it knows the slice
        api.wait(kube.pods(SPACE), name, lambda seen: seen["spec"].get("nodeName"), 60, f"{name}: the slice is known")
    theirs, ours = ask_kubernetes(api, SERVED, "served"), ask_us(build, SERVED)
    assert ours == theirs
    assert set(theirs.values()) == {"true", "false", "error"} and len(SERVED) >= 40


def test_what_is_refused_is_valid(api, build):
    """The API server takes these, so that a tenant can write them; they are not answered here."""
    create(api, REFUSED, "refused")
    assert set(ask_us(build, REFUSED).values()) == {"unsupported"}
