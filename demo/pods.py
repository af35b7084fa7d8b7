# SPDX-License-Identifier: Apache-2.0
"""Pods as a user would write them, and what is read of them."""

import json

CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
GATE = "gpu.elasticgpu.io/placement"


def _pod(name, resources, arguments, **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [{
            "name": "main", "image": "localhost/aliquot-workload:1", "imagePullPolicy": "Never",
            "command": ["cuda-share", "--hold", *arguments], "resources": resources}], **spec}}


def manifest(name, core, memory_gib, *arguments):
    """By resource names."""
    limits = {CORE: str(core)}
    if memory_gib:
        limits[MEMORY] = f"{memory_gib}Gi"
    return _pod(name, {"limits": limits}, arguments)


def claiming(name, template, *arguments):
    """By a ResourceClaim of that template."""
    return _pod(name, {"claims": [{"name": "gpu"}]}, arguments, schedulingGates=[{"name": GATE}],
                resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}])


def running(pod):
    return bool(pod) and pod["status"].get("phase") == "Running"


def unschedulable(pod):
    """Why a pod waits, or None."""
    for condition in (pod or {}).get("status", {}).get("conditions", []):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            return condition["message"]
    return None


def devices_of(pod):
    """What the pod's Binding gives to its containers."""
    text = pod["metadata"].get("annotations", {}).get("elasticgpu.io/assignment", "{}")
    return [d for devices in json.loads(text).get("containers", {}).values() for d in devices]


def cards_of(pod):
    """UUIDs of the cards that the pod's Binding names."""
    return [d["uuid"] for d in devices_of(pod)]


def key_values(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
