# SPDX-License-Identifier: Apache-2.0
"""Labels on a simulated node: the file of node feature discovery, and a guest with vGPUs from the driver to the API server."""

import re

import pytest
from sim_kit import TOP, Polls, wait_until

MACHINE = "[machine]\ndriver = 570.124.06\n[gpu 0-1]\nmodel = A100\n"
LABELS = """nvidia.com/cuda.driver-version.full=570.124.06
nvidia.com/cuda.driver-version.major=570
nvidia.com/cuda.driver-version.minor=124
nvidia.com/cuda.driver-version.revision=06
nvidia.com/cuda.driver.major=570
nvidia.com/cuda.driver.minor=124
nvidia.com/cuda.driver.rev=06
nvidia.com/cuda.runtime-version.full=12.8
nvidia.com/cuda.runtime-version.major=12
nvidia.com/cuda.runtime-version.minor=8
nvidia.com/cuda.runtime.major=12
nvidia.com/cuda.runtime.minor=8
nvidia.com/gpu.compute.major=8
nvidia.com/gpu.compute.minor=0
nvidia.com/gpu.count=2
nvidia.com/gpu.family=ampere
nvidia.com/gpu.machine=unknown
nvidia.com/gpu.memory=81920
nvidia.com/gpu.mode=compute
nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB
nvidia.com/gpu.replicas=1
nvidia.com/gpu.sharing-strategy=none
nvidia.com/mig.capable=true
nvidia.com/mig.strategy=mixed
nvidia.com/mps.capable=false
nvidia.com/vgpu.present=false
"""


def test_the_file_of_node_feature_discovery(world_of):
    """Is replaced as a whole when a label changes, and not touched by polls; the Node gets none of them."""
    world = world_of(MACHINE)
    file = world.path / "gfd"
    world.options = {"labels": file, "sys-dir": world.node.dir / "sys"}
    world.configure(health="interval: 100ms")
    world.start()
    wait_until(file.exists, what="the file is there")
    assert file.read_text() == LABELS
    before = file.stat()
    polls = Polls(world.node)
    polls.wait(20)
    assert file.stat() == before
    world.node.inject("lose", "--gpu", 1)
    world.agent.wait(1, "Unhealthy")
    polls.wait(5)
    assert file.stat() == before        # a card that may come back keeps its labels
    world.configure(health="interval: 100ms", resources="{gpus: [{pattern: A100, name: gpu}]}",
                    more="sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}")
    want = LABELS.replace("gpu.replicas=1", "gpu.replicas=4").replace("sharing-strategy=none", "sharing-strategy=time-slicing")
    wait_until(lambda: file.read_text() == want, what="the labels of replicas")
    assert file.stat().st_ino != before.st_ino
    assert not [label for label in world.node_object("labels") if label.startswith("nvidia.com/")]


# What GPU feature discovery 0.20 prints on the machine `mig` (docs/measurements.md), without the labels of driver and CUDA.
OF_CARDS = {"gpu.machine": "unknown", "mps.capable": "false", "gpu.product": "NVIDIA-A100-SXM4-80GB", "gpu.count": "3",
            "gpu.memory": "81920", "gpu.replicas": "1", "gpu.sharing-strategy": "none", "gpu.family": "ampere",
            "gpu.compute.major": "8", "gpu.compute.minor": "0", "gpu.mode": "compute", "mig.capable": "true",
            "vgpu.present": "false"}
UNEVEN = {"gpu.product": "NVIDIA-A100-SXM4-80GB-MIG-INVALID", "gpu.count": "0", "gpu.memory": "0", "gpu.replicas": "0",
          "gpu.sharing-strategy": "", "mig.strategy": "single"}
OF_2G = {"count": "1", "product": "NVIDIA-A100-SXM4-80GB-MIG-2g.20gb", "memory": "19968", "multiprocessors": "28",
         "slices.gi": "2", "slices.ci": "2", "engines.copy": "2", "engines.decoder": "1", "engines.encoder": "0",
         "engines.jpeg": "0", "engines.ofa": "0", "replicas": "1", "sharing-strategy": "none"}
MIXED = {"mig.strategy": "mixed", "mig-1g.10gb.count": "9", **{f"mig-2g.20gb.{key}": value for key, value in OF_2G.items()}}
OTHERS = {f"mig-{profile}.{key}" for profile in ("1g.10gb", "3g.40gb") for key in OF_2G}     # the same keys


@pytest.mark.parametrize("strategy, told, others", [("none", {}, set()), ("single", UNEVEN, set()), ("mixed", MIXED, OTHERS)])
def test_the_labels_of_a_divided_node(world_of, strategy, told, others):
    world = world_of((TOP / "src/sim/machines/mig.machine").read_text())
    file = world.path / "gfd"
    world.options = {"labels": file, "sys-dir": world.node.dir / "sys", "served-elsewhere": "nvidia.com/gpu"}
    world.configure(strategy=strategy)
    world.start()
    wait_until(file.exists, what="the file is there")
    found = dict(re.findall(r"^nvidia\.com/((?!cuda\.).*)=(.*)$", file.read_text(), re.M))
    want = OF_CARDS | told
    assert {key: found.get(key) for key in want} == want
    assert found.keys() == want.keys() | others


GUEST = """[machine]
driver = 550.127.05
virtualization = vgpu
host-driver = 550.90.05
host-branch = r550_00
[gpu 0-1]
model = A100
"""


@pytest.fixture
def guest(world_of):
    world = world_of(GUEST)
    world.options = {"sys-dir": world.node.dir / "sys"}
    world.configure(health="interval: 100ms", resources="{gpus: [{pattern: A100, name: a100}]}")
    return world


def licences(world):
    """As the labels, the GPU objects and the metrics have them."""
    metric = re.findall(r'^DCGM_FI_DEV_VGPU_LICENSE_STATUS{.*?gpu="(\d)".*} (\d)$', world.agent.get("/metrics"), re.M)
    return (world.node_object("labels").get("elasticgpu.io/vgpu.licensed"),
            {index: gpu.get("status", {}).get("licence") for index, gpu in world.gpus().items()},
            {int(card): value for card, value in metric})


def test_a_guest_with_vgpus(guest):
    """What it is, and a licence that is lost and is there again: in labels, status, metric, and an Event on the card and on
    the pod that has it."""
    world = guest
    world.start()
    host = {"nvidia.com/vgpu.present": "true", "nvidia.com/vgpu.host-driver-version": "550.90.05",
            "nvidia.com/vgpu.host-driver-branch": "r550_00", "nvidia.com/mig.capable": "false"}
    wait_until(lambda: host.items() <= world.node_object("labels").items(), what="the labels of a guest")
    wait_until(lambda: licences(world) == ("true", {0: "Licensed", 1: "Licensed"}, {0: "1", 1: "1"}), what="both licences")
    world.pod("held", "a100", world.uuids()[0])
    world.kubelet.start("held")
    world.node.inject("licence", "expired", "--gpu", 0)
    wait_until(lambda: licences(world) == ("false", {0: "Unlicensed", 1: "Licensed"}, {0: "0", 1: "1"}), what="one is lost")
    name = world.gpus()[0]["metadata"]["name"]
    wait_until(lambda: world.events("VGPUUnlicensed").keys() == {name, "held"}, what="Events on the card and its pod")
    assert world.agent.state(0) == "Healthy"
    world.node.inject("licence", "licensed", "--gpu", 0)
    wait_until(lambda: licences(world) == ("true", {0: "Licensed", 1: "Licensed"}, {0: "1", 1: "1"}), what="it is back")
    wait_until(lambda: world.events("VGPULicensed").keys() == {name, "held"}, what="Events on the card and its pod")


CONFIGS = """version: v1
mig-configs:
  first: [{devices: [0], mig-enabled: true, mig-devices: {1g.10gb: 7}}]
"""
NO_MIG = "first: GPU 0 has no MIG"
WANTED = {
    "by a label": ({"label": "first"}, NO_MIG),
    "by a label that no card can follow": (
        {"label": "all-1g.10gb", "configs": False}, "all-1g.10gb: no configuration 'all-1g.10gb'; there are: all-disabled, all-enabled"),
    "by the configuration": ({"mig": "{config: first}"}, NO_MIG),
    "by the configuration and on demand": ({"mig": "{config: first, dynamic: true}"}, NO_MIG),
    "on demand": ({"mig": "{dynamic: true}"}, None),
}


@pytest.mark.parametrize("way", WANTED)
def test_a_guest_is_not_divided(guest, way):
    """The state says so once, with the reason."""
    world = guest
    wanted, reason = WANTED[way]
    if wanted.get("configs", True):
        (world.path / "mig").write_text(CONFIGS)
        world.options["mig-config-file"] = world.path / "mig"
    if "label" in wanted:
        world.api.edit("nodes", "", "n", {"metadata": {"labels": {"nvidia.com/mig.config": wanted["label"]}}})
    else:
        world.configure(health="interval: 100ms", mig=wanted["mig"])
    world.start()

    def told():
        return (world.node_object("labels").get("nvidia.com/mig.config.state"),
                world.node_object("annotations").get("elasticgpu.io/mig-config"))
    wait_until(lambda: told() == (reason and "failed", reason), what=f"the state has the reason {reason}")
    polls = Polls(world.node)
    polls.wait(5)
    log, writes = (world.path / "log").read_text(), list(world.api.writes)
    polls.wait(40)
    assert (world.path / "log").read_text() == log and world.api.writes == writes
