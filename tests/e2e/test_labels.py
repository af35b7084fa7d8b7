# SPDX-License-Identifier: Apache-2.0
"""The labels that describe the node's GPUs: those of GPU feature discovery, kept while they are true, and no others
touched."""

from cluster import api as kube

OWNED = "elasticgpu.io/feature-labels"


def node_of(world):
    return world.api.get(kube.core("nodes"))["items"][0]


def label(world, key, value):
    name = node_of(world)["metadata"]["name"]
    world.api.patch(kube.core("nodes", name=name), {"metadata": {"labels": {key: value}}})
    return name


def test_the_node_says_which_gpus_it_has(world):
    gpus = [gpu["spec"] for gpu in world.api.get(kube.gpus())["items"]]
    metadata = node_of(world)["metadata"]
    labels = metadata["labels"]
    assert labels["nvidia.com/gpu.count"] == str(len(gpus))
    assert labels["nvidia.com/gpu.product"] == gpus[0]["model"].replace(" ", "-")
    assert labels["nvidia.com/gpu.compute.major"].isdigit()
    assert labels["nvidia.com/gfd.timestamp"].isdigit()
    assert set(metadata["annotations"][OWNED].rstrip(",").split(",")) == {
        key for key in labels if key.startswith("nvidia.com/") and key != "nvidia.com/gfd.timestamp"}


def test_a_changed_label_is_put_right_and_a_foreign_one_stays(world):
    before = node_of(world)["metadata"]["labels"]["nvidia.com/gpu.family"]
    label(world, "nvidia.com/gpu.deploy.driver", "true")
    name = label(world, "nvidia.com/gpu.family", "other")
    try:
        seen = world.api.wait(kube.core("nodes"), name,
                              lambda node: node["metadata"]["labels"]["nvidia.com/gpu.family"] == before)
        assert seen["metadata"]["labels"]["nvidia.com/gpu.deploy.driver"] == "true"
    finally:
        label(world, "nvidia.com/gpu.deploy.driver", None)
