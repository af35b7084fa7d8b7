# SPDX-License-Identifier: Apache-2.0
"""A pod that requests a share by resource names is changed by one kind of admission policy, whatever is installed and whatever label
its namespace has, asked of a real API server: by those for an extender, or by the one that gives it ResourceClaims."""

import pathlib
import secrets
import time

import pytest
import yaml

from cluster import Cluster, aliquot, api as kube

LABEL = "elasticgpu.io/shares-by"
NAMES, CLAIMS = "resource-names", "resource-claims"
# What is named beside each other, and what pods get without a label and with each value of it.
INSTALLED = {
    ("base",): (NAMES, NAMES, NAMES),
    ("base", "dra"): (NAMES, NAMES, NAMES),
    ("own-scheduler",): (NAMES, NAMES, NAMES),
    ("base", "dra", "dra-pods-labelled"): (NAMES, CLAIMS, NAMES),
    ("own-scheduler", "dra", "dra-pods-labelled"): (NAMES, CLAIMS, NAMES),
    ("dra-only",): (NAMES, NAMES, NAMES),
    ("dra-only", "dra-pods"): (CLAIMS, CLAIMS, CLAIMS),
}
LABELS = {"unlabelled": None, "claims": CLAIMS, "names": NAMES, "other": "nonsense"}
KINDS = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
PODS = {
    "memory": {"limits": {"elasticgpu.io/gpu-memory": "4Gi"}},
    "core": {"limits": {"elasticgpu.io/gpu-core": "30"}},
    "hami": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}},
    "fraction": {"annotations": {"gpu-fraction": "0.5"}},
    "claim": {"annotations": {"egpuc.elasticgpu.io/main": "x"}},    # an ElasticGPUClaim
}


@pytest.fixture(scope="module")
def cluster():
    with Cluster("names-or-claims-" + secrets.token_hex(2)) as c:
        c.up()
        if not c.api.exists(aliquot.POLICIES):
            pytest.skip("admission by policies came with Kubernetes 1.36")
        for name, value in LABELS.items():
            c.api.create(kube.core("namespaces"), {"metadata": {"name": name, "labels": {LABEL: value} if value else {}}})
        for name in LABELS:
            c.api.wait(kube.core("serviceaccounts", name), "default", bool, 60, "the account of pods")
        yield c


def pod(limits=None, annotations=None, **spec):
    return {"metadata": {"name": "tried", "annotations": annotations or {}}, "spec": {**spec, "containers": [
        {"name": "main", "image": "localhost/pause:1", "resources": {"limits": limits or {}}}]}}


def ways(made):
    """Which policies have changed it. A pod that none has changed would start without a GPU, and nothing would say so."""
    spec = made["spec"]
    resources = spec["containers"][0].get("resources", {})
    slot = any("elasticgpu.io/slot" in resources.get(kind, {}) for kind in ("limits", "requests"))
    by_names = slot or spec["schedulerName"] == "aliquot-scheduler"
    by_claims = bool(spec.get("resourceClaims") or spec.get("schedulingGates") or resources.get("claims"))
    return {*([NAMES] if by_names else []), *([CLAIMS] if by_claims else [])}


def install(cluster, tmp_path, directory, *components):
    """The policies that change pods, and no others."""
    deploy = pathlib.Path(aliquot.DEPLOY).parent
    where = pathlib.Path(*[".."] * (len(tmp_path.resolve().parts) - 1), *deploy.resolve().parts[1:])
    (tmp_path / "kustomization.yaml").write_text(yaml.dump({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": [str(where / directory)],
        "components": [str(where / one) for one in components]}))
    wanted = [one for one in yaml.safe_load_all(cluster.kubectl("kustomize", str(tmp_path))) if one["kind"] in KINDS]
    for kind in reversed(KINDS):
        cluster.kubectl("delete", kind, "--all")
    (tmp_path / "policies.yaml").write_text(yaml.dump_all(wanted))
    cluster.kubectl("apply", "-f", str(tmp_path / "policies.yaml"))
    return {one["metadata"]["name"] for one in wanted}


def tried(cluster, namespace, body):
    return cluster.api.create(kube.pods(namespace), body, dryRun="All")


@pytest.mark.parametrize("installed", INSTALLED, ids="+".join)
def test_a_pod_goes_one_way(cluster, installed, tmp_path):
    assert install(cluster, tmp_path, *installed)
    default, claims, names = INSTALLED[installed]
    wanted = {"unlabelled": default, "claims": claims, "names": names, "other": default}
    deadline = time.monotonic() + 60
    for namespace, default_way in wanted.items():
        for what, given in PODS.items():
            way = NAMES if what == "claim" else default_way
            # A pod with gpu-core needs nothing for an extender that the cluster's kube-scheduler asks.
            left = way == NAMES and what == "core" and installed[0] != "own-scheduler"
            while ways(made := tried(cluster, namespace, pod(**given))) != (set() if left else {way}):
                assert time.monotonic() < deadline, (namespace, what, made["spec"])     # policies work a moment after they are stored
                time.sleep(0.05)
            for name in given.get("limits", {}):
                assert (name in made["spec"]["containers"][0]["resources"].get("limits", {})) == (way == NAMES), made["spec"]
    for namespace in LABELS:
        assert ways(tried(cluster, namespace, pod())) == set()
