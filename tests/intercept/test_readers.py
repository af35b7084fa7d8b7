# SPDX-License-Identifier: Apache-2.0
"""Programs and bindings that people read GPUs with, unmodified, in a slice of one card, with a neighbour on it: the
same numbers through every one of them, and nothing of the neighbour. So that they are known to see what there is to be
seen, each runs without limits, too."""

import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from intercept_kit import CARGO, TOP, fetched
from view_kit import CONTEXT, GIB, Machine, Place, wait_until

pytestmark = pytest.mark.foreign

READERS = TOP / "tests" / "intercept" / "readers"
MIB = 1 << 20
NEIGHBOURS = 7 * GIB  # what the neighbour holds, on either card


@pytest.fixture(scope="module")
def fetched_readers():
    return fetched("fetch-readers")


SMI = [[], ["-L"], ["-q"], ["-q", "-x"], ["-q", "-d", "MEMORY,UTILIZATION,PIDS"], ["pmon", "-c", "1"],
       ["dmon", "-c", "1"], ["topo", "-m"], ["mig", "-lgip"],
       ["--query-compute-apps=pid,name,used_memory", "--format=csv"],
       ["--query-accounted-apps=pid,gpu_util", "--format=csv"], ["nvlink", "-s"], ["-B"], ["--list-excluded-gpus"]]


class World:
    pass


def everything(done):
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def world(build, tmp_path_factory, real_driver):
    """Two cards; of the first a slice has 4 GiB and half the time. The neighbour is busy. `alone` is what nvidia-smi said
    in the slice before there were neighbours."""
    w = World()
    w.machine = Machine(build, tmp_path_factory.mktemp("view"), "--gpus", "2")
    w.slice = w.machine.slice("--memory", "4Gi", "--core", "50", "--gpu", "0")
    w.alone = {tuple(options): everything(w.slice.run(f"{real_driver}/nvidia-smi", *options)) for options in SMI}
    w.neighbours = [w.machine.hold(NEIGHBOURS, device)[1] for device in (0, 1)]
    w.neighbours.append(w.machine.spin(600_000)[1])
    w.pids = [w.slice.hold(size)[1] for size in (GIB, GIB // 2)]
    w.uuid = w.slice.environment["CUDA_VISIBLE_DEVICES"]
    yield w
    w.machine.close()


def expected(w):
    """What every program must read: one card, of the slice's size, with the slice's processes, and no load of its own."""
    used = GIB + GIB // 2 + 2 * CONTEXT
    return [{"uuid": w.uuid, "total": 4 * GIB, "used": used, "free": 4 * GIB - used, "load": 0,
             "processes": sorted([[w.pids[0], GIB + CONTEXT], [w.pids[1], GIB // 2 + CONTEXT]])}]


# -- each reader: what it says, in the form above -------------------------------------------------------------------


def ok(done):
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def python(place, *arguments, path=""):
    return json.loads(ok(place.run(sys.executable, *arguments, PYTHONPATH=path)))


def nvidia_ml_py(place, readers, driver):
    return python(place, READERS / "binding.py", "pynvml")


def nvidia_ml_py_11(place, readers, driver):
    return python(place, READERS / "binding.py", "pynvml", path=f"{readers}/py-nvml-11")


def py3nvml(place, readers, driver):
    return python(place, READERS / "binding.py", "py3nvml.py3nvml", path=f"{readers}/py-py3nvml")


def nvitop(place, readers, driver):
    return python(place, READERS / "nvitop_api.py", path=f"{readers}/py-nvitop")


def gpustat(place, readers, driver):
    """Says MiB, and does not say what is free."""
    gpus = python(place, os.path.join(os.path.dirname(sys.executable), "gpustat"), "--json")["gpus"]
    return [{"uuid": g["uuid"], "total": g["memory.total"] * MIB, "used": g["memory.used"] * MIB, "free": None,
             "load": g["utilization.gpu"],
             "processes": sorted([p["pid"], p["gpu_memory_usage"] * MIB] for p in g["processes"])} for g in gpus]


def go(place, readers, driver):
    if not os.path.exists(f"{readers}/reader-go"):
        pytest.skip("Go's binding could not be built on this machine")
    return json.loads(ok(place.run(f"{readers}/reader-go")))


def rust(place, readers, driver):
    if not os.path.exists(f"{readers}/reader-rust"):
        pytest.skip("Rust's binding could not be built on this machine")
    return json.loads(ok(place.run(f"{readers}/reader-rust")))


def c(place, readers, driver):
    """Says nothing of the load."""
    said = dict(line.split("=", 1) for line in ok(place.run(place.build / "tests/workloads/nvml-report")).splitlines())
    return [{"uuid": said[f"device{i}.uuid"], "load": None,
             **{key: int(said[f"device{i}.{key}"]) for key in ("total", "used", "free")},
             "processes": sorted([int(n) for n in re.findall(r"\d+", said[f"device{i}.process{k}"])]
                                 for k in range(int(said[f"device{i}.processes"])))}
            for i in range(int(said["devices"]))]


def smi(place, driver, *options):
    return ok(place.run(f"{driver}/nvidia-smi", *options))


def nvidia_smi_query(place, readers, driver):
    rows = smi(place, driver, "--query-gpu=uuid,memory.total,memory.used,memory.free,utilization.gpu",
               "--format=csv,noheader,nounits").splitlines()
    processes = smi(place, driver, "--query-compute-apps=gpu_uuid,pid,used_memory",
                    "--format=csv,noheader,nounits").splitlines()
    cards = []
    for row in rows:
        uuid, total, used, free, load = row.split(", ")
        cards.append({"uuid": uuid, "total": int(total) * MIB, "used": int(used) * MIB, "free": int(free) * MIB,
                      "load": int(load),
                      "processes": sorted([int(p[1]), int(p[2]) * MIB] for p in (q.split(", ") for q in processes)
                                          if p[0] == uuid)})
    return cards


def nvidia_smi_xml(place, readers, driver):
    """Its process rows come from a table that no tool can read: see docs/view.md."""
    def number(node, path):
        return int(node.findtext(path).split()[0])
    return [{"uuid": g.findtext("uuid"), **{key: number(g, f"fb_memory_usage/{key}") * MIB
                                            for key in ("total", "used", "free")},
             "load": number(g, "utilization/gpu_util"), "processes": None}
            for g in ElementTree.fromstring(smi(place, driver, "-q", "-x")).iter("gpu")]


OTHER_LANGUAGES = [go, rust, c] if CARGO else [go, c]
ALL = [nvidia_ml_py, nvidia_ml_py_11, py3nvml, nvitop, gpustat, *OTHER_LANGUAGES, nvidia_smi_query, nvidia_smi_xml]


def same(said, wanted):
    """Equal, where the reader says something."""
    return [{k: v for k, v in card.items() if v is not None} for card in said] == \
        [{k: v for k, v in want.items() if card.get(k) is not None} for card, want in zip(said, wanted)] and \
        len(said) == len(wanted)


@pytest.mark.parametrize("reader", ALL, ids=lambda f: f.__name__)
def test_in_a_slice_every_reader_sees_the_slice(world, fetched_readers, real_driver, reader):
    said = reader(world.slice, fetched_readers, real_driver)
    assert same(said, expected(world)), said


@pytest.mark.parametrize("reader", ALL, ids=lambda f: f.__name__)
def test_without_limits_every_reader_sees_the_machine(world, fetched_readers, real_driver, reader):
    """So that the readers are known to see what is there to be seen."""
    said = reader(world.machine, fetched_readers, real_driver)
    assert [card["total"] for card in said] == [80 * GIB, 80 * GIB]
    assert said[0]["used"] == NEIGHBOURS + GIB + GIB // 2 + 4 * CONTEXT
    assert said[1]["used"] == NEIGHBOURS + CONTEXT
    if said[0]["load"] is not None:
        wait_until(lambda: reader(world.machine, fetched_readers, real_driver)[0]["load"] > 90, what="the card is busy")
    if said[0]["processes"] is not None:
        assert {pid for pid, _ in said[0]["processes"]} == {*world.pids, world.neighbours[0], world.neighbours[2]}


@pytest.fixture(scope="module")
def behind_shadows(world, build, tmp_path_factory):
    """The slice again, its programs finding our libraries in the driver's place and no preload."""
    top = tmp_path_factory.mktemp("shadow")
    for stem in ("cuda", "nvidia-ml"):
        (top / f"lib{stem}.so.1").symlink_to(build / f"src/intercept/libshadow-{stem}.so.1")
        (top / f"lib{stem}-driver.so.1").symlink_to(build / f"src/sim/lib{stem}.so.1")
    environment = {k: v for k, v in world.slice.environment.items() if k != "LD_PRELOAD"}
    return Place(build, {**environment, "LD_LIBRARY_PATH": str(top)})


@pytest.mark.parametrize("reader", [nvidia_ml_py, *OTHER_LANGUAGES, nvidia_smi_query], ids=lambda f: f.__name__)
def test_shadow_libraries_say_the_same(world, behind_shadows, fetched_readers, real_driver, reader):
    said = reader(behind_shadows, fetched_readers, real_driver)
    assert same(said, expected(world)), said


# -- nvidia-smi ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", SMI, ids=lambda o: " ".join(o) or "plain")
def test_nvidia_smi_never_shows_the_neighbour(world, real_driver, options):
    done = world.slice.run(f"{real_driver}/nvidia-smi", *options)
    text = everything(done)
    assert done.returncode in (0, 3, 6, 255), text  # its own ways to say that there is nothing
    for pid in world.neighbours:
        # A clock or a part number may happen to be the same number.
        times = [len(re.findall(rf"(?<![\w.:]){pid}(?![\w.:])", said)) for said in (world.alone[tuple(options)], text)]
        assert times[1] <= times[0], text
    cards = re.findall(r"GPU-[0-9a-f-]+", ok(world.machine.run(f"{real_driver}/nvidia-smi", "-L")))
    other = [uuid for uuid in cards if uuid != world.uuid]
    assert len(other) == 1 and other[0] not in text
    for number in ("81920", str(80 * GIB), str(NEIGHBOURS // MIB + CONTEXT // MIB)):
        assert number not in text, text


def test_nvidia_smi_table(world, real_driver):
    used = (GIB + GIB // 2 + 2 * CONTEXT) // MIB
    table = smi(world.slice, real_driver)
    assert f"{used}MiB /  4096MiB" in table and re.search(r"\|\s+0%\s+Default \|", table)
    assert smi(world.slice, real_driver, "-L") == f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {world.uuid})\n"
    details = smi(world.slice, real_driver, "-q")
    assert re.search(r"Attached GPUs +: 1\n", details) and re.search(r"Total +: 4096 MiB", details)


def test_command_lines_of_readers(world, fetched_readers):
    """As people call them."""
    out = ok(world.slice.run(sys.executable, "-m", "gpustat", "--no-color", "--show-pid"))
    used = (GIB + GIB // 2 + 2 * CONTEXT) // MIB
    assert f"{used} /  4096 MB" in out and all(str(pid) in out for pid in world.pids)
    out = ok(world.slice.run(sys.executable, "-m", "nvitop", "-1", "--no-unicode", "--ascii",
                             PYTHONPATH=f"{fetched_readers}/py-nvitop", COLUMNS="120", TERM="xterm"))
    assert "4096MiB" in out and not any(str(pid) in out for pid in world.neighbours)
