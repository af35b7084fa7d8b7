# SPDX-License-Identifier: Apache-2.0
"""`aliquot replay`: traces in, placements out, and how well the policies pack."""

import csv
import os
import random
import re
import subprocess
import sys

import pytest

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"


@pytest.fixture
def replay(aliquot, tmp_path):
    """Runs it on the texts of two files and returns the finished process."""
    def run(nodes, pods, *options):
        (tmp_path / "nodes.csv").write_text(nodes)
        (tmp_path / "pods.csv").write_text(pods)
        return subprocess.run(
            [aliquot, "replay", "--nodes", tmp_path / "nodes.csv", "--pods", tmp_path / "pods.csv", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    return run


def lines(done):
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


SMALL_NODES = NODES + "a,8000,16384,2,T4\n" "b,16000,16384,2,V100\n" "c,64000,65536,0,\n"
SMALL_PODS = PODS + (
    "share,1000,1024,1,500,,0,\n"
    "other,1000,1024,1,500,,0,\n"
    "two,1000,1024,2,1000,,0,\n"
    "t4,1000,1024,1,250,T4,0,\n"
    "none,1000,1024,1,1000,A100,0,\n"
    "cpu,32000,1024,0,0,,0,\n"
    "late,1000,1024,1,1000,T4|V100,0,\n"
    "fat,1000,999999,1,10,,0,\n")


def test_known_answer(replay):
    assert lines(replay(SMALL_NODES, SMALL_PODS, "--policy", "first-fit")) == [
        "pod,node,gpus",
        "share,a,0",
        "other,a,0",
        "two,b,0|1",
        "t4,a,1",
        "none,,",      # no such model
        "cpu,c,",      # a node without GPUs has the CPU
        "late,,",      # T4 has no whole one left, V100 none
        "fat,,",       # memory of the node
    ]


def test_each_policy_places_what_fits(replay):
    help = lines(replay("", "", "--help"))
    policies = re.search(r"--policy NAME +(.+) or (\S+) \(default", "\n".join(help))
    policies = [*policies[1].split(", "), policies[2]]
    assert {"first-fit", "esc"} < set(policies)
    for policy in policies:
        out = lines(replay(SMALL_NODES, SMALL_PODS, "--policy", policy))
        assert len(out) == 9
        assert out[6] == "cpu,c,", policy
        assert out[5] == "none,,", policy


def test_columns_by_name(replay):
    """In any order, with others between, and without the ones that may be left out."""
    out = lines(replay("model,gpu,x,memory_mib,cpu_milli,sn\nT4,1,?,1024,1000,n\n",
                       "gpu_milli,num_gpu,memory_mib,cpu_milli,name\r\n1000,1,1024,1000,p\r\n\r\n"))
    assert out == ["pod,node,gpus", "p,n,0"]


def test_departures(replay):
    """Who leaves makes room, also in the same second; the output stays in the file's order."""
    pods = PODS + ("late,1000,1,1,1000,,50,60\n"
                   "first,1000,1,1,1000,,0,50\n"
                   "between,1000,1,1,1000,,10,70\n"
                   "stays,1000,1,1,1000,,60,\n"
                   "never,1000,1,1,1000,,1000000,\n")
    nodes = NODES + "a,8000,16384,1,T4\n"
    assert lines(replay(nodes, pods, "--departures"))[1:] == [
        "late,a,0", "first,a,0", "between,,", "stays,a,0", "never,,"]
    assert lines(replay(nodes, pods))[1:] == ["late,a,0", "first,,", "between,,", "stays,,", "never,,"]


def test_the_same_again(replay):
    """Equal input gives equal output; dice are thrown by their seed."""
    rng = random.Random(1)
    nodes, pods = synthetic(rng, 12, 200)
    for options in (["--policy", "esc"], ["--policy", "fgd", "--ties", "random", "--seed", "7"]):
        assert replay(nodes, pods, *options).stdout == replay(nodes, pods, *options).stdout
    a, b = (replay(nodes, pods, "--policy", "first-fit", "--ties", "random", "--seed", seed).stdout
            for seed in ("1", "2"))
    assert a != b


@pytest.mark.parametrize("nodes,pods,text", [
    ("", PODS, "nodes.csv: empty: the first line must name the columns"),
    (NODES, "", "pods.csv: empty"),
    ("sn,cpu_milli,gpu\n", PODS, "nodes.csv: line 1: no column 'memory_mib'"),
    ("sn,sn,cpu_milli,memory_mib,gpu\n", PODS, "line 1: column 'sn' is given twice"),
    (NODES + "a,1,1,1,T4\nb,1,1,1\n", PODS, "nodes.csv: line 3: 4 fields, but the first line names 5 columns"),
    (NODES + "a,1,1,x,T4\n", PODS, "line 2: gpu 'x' is not a whole number"),
    (NODES + "a,-1,1,1,T4\n", PODS, "line 2: cpu_milli '-1' is not a whole number"),
    (NODES + "a,1,1,65,T4\n", PODS, "line 2: gpu '65' is more than 64"),
    (NODES + ",1,1,1,T4\n", PODS, "line 2: sn is empty"),
    (NODES + '"a",1,1,1,T4\n', PODS, "line 2: quoted fields are not supported"),
    (NODES, PODS + "p,1,1,1,0,,0,\n", "pods.csv: line 2: gpu_milli is 0 of 1 GPUs"),
    (NODES, PODS + "p,1,1,1,1001,,0,\n", "line 2: gpu_milli '1001' is more than 1000"),
    (NODES, PODS + "\n\np,1,1,1,5,,soon,\n", "line 4: creation_time 'soon' is not a whole number"),
    (NODES, PODS + "p,99999999999999999999,1,1,5,,0,\n", "line 2: cpu_milli '99999999999999999999' is"),
    (NODES, PODS + "p\0,1,1,1,5,,0,\n", "there is a zero byte in it"),
])
def test_bad_files(replay, nodes, pods, text):
    done = replay(nodes, pods)
    assert (done.returncode, done.stdout) == (2, "")
    assert text in done.stderr
    assert done.stderr.startswith("aliquot replay: ")


def test_bad_options(aliquot, replay, tmp_path):
    def fails(*options, status=2):
        done = subprocess.run([aliquot, "replay", *options], capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stderr
    assert "--nodes and --pods are needed" in fails()
    assert "no such policy" in fails("--nodes", "x", "--pods", "y", "--policy", "worst-fit")
    assert "order or random" in fails("--nodes", "x", "--pods", "y", "--ties", "maybe")
    assert "unexpected argument 'z'" in fails("--nodes", "x", "--pods", "y", "z")
    assert "/nowhere" in fails("--nodes", "/nowhere", "--pods", "/nowhere", status=1)
    done = subprocess.run([aliquot, "replay", "--help"], capture_output=True, text=True)
    assert done.returncode == 0
    assert "--departures" in done.stdout


# ---- packing ----

MODELS = (("small", 16000, 2), ("big", 96000, 8))
# As in real clusters: few shapes, most pods a part of a card or one, CPU not in proportion. Times
# they are drawn, CPU, cards, thousandths of each.
SHAPES = ((30, 11000, 1, 1000), (20, 4000, 1, 470), (15, 8000, 1, 320), (10, 15000, 1, 650),
          (10, 18000, 1, 1000), (6, 32000, 0, 0), (5, 4000, 1, 230), (2, 30000, 2, 1000), (2, 64000, 8, 1000))


def synthetic(rng, n_nodes, n_pods):
    nodes = [f"n{i},{cpu},1000000,{gpus},{model}\n"
             for i, (model, cpu, gpus) in enumerate(rng.choice(MODELS) for _ in range(n_nodes))]
    shapes = rng.choices(SHAPES, weights=[shape[0] for shape in SHAPES], k=n_pods)
    pods = [f"p{i},{cpu},1,{gpus},{milli},,{i},\n" for i, (_, cpu, gpus, milli) in enumerate(shapes)]
    return NODES + "".join(nodes), PODS + "".join(pods)


def allocated(done, pods):
    """Thousandths of GPUs that were given."""
    size = {row["name"]: int(row["num_gpu"]) * int(row["gpu_milli"]) for row in csv.DictReader(pods.splitlines())}
    return sum(size[row["pod"]] for row in csv.DictReader(lines(done)) if row["node"])


def test_packing_does_not_get_worse(replay):
    """Ours is ahead of FGD, FGD of chance, over some clusters that are asked for more than they have."""
    sums = {"esc": 0, "fgd": 0, "random": 0}
    options = {"esc": ["--policy", "esc"], "fgd": ["--policy", "fgd"],
               "random": ["--policy", "first-fit", "--ties", "random"]}
    for seed in range(6):
        nodes, pods = synthetic(random.Random(seed), 60, 700)
        for name in sums:
            sums[name] += allocated(replay(nodes, pods, *options[name]), pods)
    assert sums["esc"] > sums["fgd"] > sums["random"], sums


def test_shares_never_exceed_a_card(replay):
    """An audit of all placements, with pods that come and go."""
    rng = random.Random(5)
    nodes, pods = synthetic(rng, 20, 600)
    rows = list(csv.DictReader(pods.splitlines()))
    for row in rows:
        row["deletion_time"] = str(int(row["creation_time"]) + rng.randint(1, 200))
    pods = PODS + "".join(",".join(row.values()) + "\n" for row in rows)
    for policy in ("esc", "spread"):
        placed = {row["pod"]: row for row in csv.DictReader(lines(replay(nodes, pods, "--policy", policy, "--departures")))}
        events = sorted([(int(row["deletion_time"]), 0, row) for row in rows]
                        + [(int(row["creation_time"]), 1, row) for row in rows], key=lambda e: e[:2])
        used = {}
        for _, comes, row in events:
            at = placed[row["name"]]
            cards = at["gpus"].split("|") if at["node"] and at["gpus"] else []
            assert len(cards) == len(set(cards))
            assert not at["node"] or len(cards) == int(row["num_gpu"])
            for card in cards:
                key = at["node"], card
                used[key] = used.get(key, 0) + (1 if comes else -1) * int(row["gpu_milli"])
                assert 0 <= used[key] <= 1000, key


def test_bench_says_what_is_missing(tmp_path, build):
    bench = os.path.join(os.path.dirname(__file__), "..", "bench", "packing.py")

    def run(openb):
        environment = {key: value for key, value in os.environ.items() if key != "OPENB"}
        done = subprocess.run([sys.executable, bench, "--build", build], capture_output=True, text=True,
                              env=environment | openb)
        assert done.returncode == 2
        return done.stderr
    assert "OPENB is not set" in run({})
    assert "no such directory" in run({"OPENB": str(tmp_path / "none")})
    assert "no *node_list_gpu_node*.csv" in run({"OPENB": str(tmp_path)})


def test_bench_knows_what_nobody_can_pack():
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "bench"))
    import ceiling
    assert ceiling.gpus_needed([(8, 1000), (1, 1000), (0, 0)]) == 9
    assert round(ceiling.gpus_needed([(1, 500)] * 10), 6) == 5
    assert round(ceiling.gpus_needed([(1, 810)] * 10 + [(1, 160)] * 10), 6) == 10
    assert round(ceiling.gpus_needed([(1, 510)] * 4 + [(1, 470)] * 2), 6) == 4
    # Of three sizes, as solved by another program (HiGHS).
    assert round(ceiling.gpus_needed([(1, 470)] * 7 + [(1, 320)] * 5 + [(1, 230)] * 9), 4) == 7.4167
    # Two of 470 leave 60 that no pod can use: 7.4 of 8 GPUs are all that can be had.
    assert round(ceiling.load_of_refusal([(1, 470)] * 20, 8), 2) == 99.88
    assert ceiling.load_of_refusal([(1, 470)] * 16, 8) is None
