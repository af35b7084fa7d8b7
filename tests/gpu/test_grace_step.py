# SPDX-License-Identifier: Apache-2.0
"""The step of run.py about the memory of a GH200, elsewhere."""

import grace
import pytest


def test_nodes_of_memory(tmp_path):
    """As a GH200 shows them: one with the CPUs, one that is the card's memory, others for its MIG instances."""
    for number, cpus, kilobytes in ((0, "0-71", 500000000), (1, "", 100663296), (2, "", 0)):
        node = tmp_path / f"node{number}"
        node.mkdir()
        (node / "cpulist").write_text(cpus + "\n")
        (node / "meminfo").write_text(f"Node {number} MemTotal:       {kilobytes} kB\nNode {number} MemFree:  0 kB\n")
    assert grace.memory_nodes(tmp_path) == {1: 96 * grace.GIB}


def test_memory_of_a_node_is_given():
    size = 1 << 20
    try:
        assert len(grace.fill(0, size)) == size
    except OSError as why:
        pytest.skip(f"mbind is refused here: {why}")


@pytest.mark.parametrize("gpus, outcome", [(["NVIDIA A100"], "skipped"), (["NVIDIA GH200 480GB"], "failed")])
def test_only_a_gh200_is_one(gpus, outcome, monkeypatch):
    monkeypatch.setattr(grace.platform, "machine", lambda: "riscv64")
    results = []
    grace.run(gpus, results)
    assert [r[1] for r in results] == [outcome]
