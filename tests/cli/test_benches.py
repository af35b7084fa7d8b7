# SPDX-License-Identifier: Apache-2.0
"""Benches fail when what they measure has ended."""

import contextlib
import pathlib
import sys
import time
import types

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TOP), str(TOP / "e2e"), str(TOP / "bench")]

import device_plugin            # noqa: E402  (the path comes first)
import fleet                    # noqa: E402
import install                  # noqa: E402
import scale                    # noqa: E402


class Channel:
    """Answers so many calls, and then is closed."""

    def __init__(self, calls, answer=b"answer"):
        self.left, self.answer = calls, answer

    def call(self, *_):
        if self.left == 0:
            raise ConnectionResetError("the plugin has ended")
        self.left -= 1
        return self.answer

    def close(self):
        pass


@pytest.mark.parametrize("channel,error", [(Channel(3), ConnectionResetError), (Channel(9, b""), AssertionError)],
                         ids=["ended", "empty"])
def test_allocations_that_fail(monkeypatch, channel, error):
    monkeypatch.setattr(device_plugin.grpc_raw, "Channel", lambda path: channel)
    calls = device_plugin.Allocations("/socket", ["a"], "/proc/self")
    calls.join(10)
    with pytest.raises(error):
        calls.close()


def test_what_an_allocation_costs(monkeypatch):
    """The thread that answers runs for so long; that of the caller is another one."""
    class Busy(Channel):
        def call(self, *_):
            begun = time.thread_time()
            while time.thread_time() < begun + 0.02:
                pass
            if self.left == 1:
                calls.ended.set()
            return super().call()
    monkeypatch.setattr(device_plugin.grpc_raw, "Channel", lambda path: Busy(3))
    calls = device_plugin.Allocations("/socket", ["a"], "/proc/thread-self")
    calls.join(30)
    seen = calls.close()
    assert len(seen) == 3
    assert all(call.took >= 20e6 and 19e6 <= call.ran <= call.took + 20e6 and 0 <= call.waited <= call.took for call in seen), seen


def test_agents_that_have_ended():
    processes = {name: {"pid": 1, "status": None} for name in ("a", "b", fleet.SIMULATOR)}
    node = types.SimpleNamespace(cluster=types.SimpleNamespace(control=lambda op: processes, log=lambda name: f"log of {name}"))
    fleet.check(node, ["a", "b"])
    processes["b"]["status"] = 1
    with pytest.raises(AssertionError, match="1 have ended: b\nlog of b"):
        fleet.check(node, ["a", "b"])


class Arriving:
    """In place of arrivals.Load: pods that are there at once."""

    def __init__(self, space):
        self.names = []

    def until(self, count):
        self.names += [f"p{number}" for number in range(len(self.names), count)]


def upgraded(monkeypatch, phases, restarts):
    """Figures of a change during which so many pods arrive that end so, and after which containers have started again so often."""
    monkeypatch.setattr(install.arrivals, "Load", lambda space: contextlib.nullcontext(Arriving(space)))
    space = types.SimpleNamespace(wait=lambda name, check, *_: {"status": {"phase": phases.get(name, "Succeeded")}})
    pods = [{"status": {}}, *({"status": {"containerStatuses": [{"restartCount": count}]}} for count in restarts)]
    world = types.SimpleNamespace(api=types.SimpleNamespace(get=lambda path: {"items": pods}))
    figures, changed = install.Figures(), []
    install.harm(world, space, lambda: changed.append(True), "an upgrade", figures, "own")
    assert changed == [True]
    return figures


@pytest.mark.parametrize("phases, restarts, told", [({}, [0, 0], "0 failed, 0 containers started again"),
                                                    ({"p2": "Failed"}, [0], "1 failed, 0 containers started again"),
                                                    ({}, [0, 2, 1], "0 failed, 3 containers started again")])
def test_harm_of_an_upgrade(monkeypatch, phases, restarts, told):
    figures = upgraded(monkeypatch, phases, restarts)
    assert f"{2 * install.CALM} pods" in figures.text() and told in figures.text()
    monkeypatch.setattr(install, "PARTS", {"kubectl": lambda build, rounds, of, say: setattr(of, "harm", figures.harm)})
    monkeypatch.setattr(sys, "argv", ["install.py"])
    assert install.main() == (1 if phases or any(restarts) else 0)


def test_the_larger_pair_is_told(monkeypatch):
    sizes = {"1": (18, 66), "2": (20, 70)}
    def pod(number, **more):
        statuses = [{"name": name, "process": f"{number}{at}"} for at, name in enumerate(("scheduler", "kube-scheduler"))]
        return {"metadata": {"name": f"aliquot-scheduler-{number}", **more}, "status": {"containerStatuses": statuses}}
    agent = {"metadata": {"name": "aliquot-agent-a"}, "status": {"containerStatuses": [{"name": "agent"}]}}
    items = [pod("1"), agent, pod("2"), pod("3", deletionTimestamp="now")]
    monkeypatch.setattr(install, "memory_of", lambda pid: dict.fromkeys(("Rss", "Pss"), 10**6 * sizes[str(pid)[0]][pid % 10]))
    world = types.SimpleNamespace(api=types.SimpleNamespace(get=lambda path: {"items": items}), cluster=types.SimpleNamespace(
        host_pid=lambda pid: pid), first_process=lambda status: status["process"])
    figures = install.Figures()
    install.memory(world, figures, "now")
    assert "| - | 90 MB: kube-scheduler 70 (70), scheduler 20 (20) |" in figures.text()


def test_modes_beside_each_other():
    def of(rate, own):
        memory = {"kube-scheduler": 60e6 + own, "aliquot-scheduler": 20e6}
        return scale.Round(rate, {"kube-scheduler": 9, scale.STOCK: own / 1e6}, {}, memory)
    extender, own, alone = scale.MODES.values()
    table = "\n".join(scale.modes_table({extender: [of(100, 0), of(50, 0)], own: [of(95, 3e6), of(51, 3e6)],
                                         alone: [of(99, 0), of(50, 0)]}))
    assert "in the mode `own`, in percent of `extender`, by round | 95 % and 102 % |" in table
    assert "after a round in the mode `own` | 83 MB and 83 MB (kube-scheduler 63 and 63, aliquot-scheduler 20 and 20) |" in table
    assert f"| {scale.STOCK}, CPU ms per pod |" in table and "| own | 95 and 51 | 9.0 and 9.0 | 3.0 and 3.0 |" in table
