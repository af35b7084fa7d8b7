# SPDX-License-Identifier: Apache-2.0
"""Pods as a user would write them, and what is read of them."""

from kit import CORE, MEMORY, assignment_of
from resource_claims import using


def _pod(name, arguments, limits=None):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [{
            "name": "main", "image": "localhost/aliquot-workload:1", "imagePullPolicy": "Never",
            "command": ["cuda-share", "--hold", *arguments], "resources": {"limits": limits or {}}}]}}


def manifest(name, core, memory_gib, *arguments):
    """By resource names."""
    limits = {CORE: str(core)}
    if memory_gib:
        limits[MEMORY] = f"{memory_gib}Gi"
    return _pod(name, arguments, limits)


def claiming(name, template, *arguments):
    """By a ResourceClaim of that template."""
    return using(_pod(name, arguments), template)


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
    return [d for devices in assignment_of(pod).values() for d in devices]


def cards_of(pod):
    """UUIDs of the cards that the pod's Binding names."""
    return [d["uuid"] for d in devices_of(pod)]


def key_values(text):
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
