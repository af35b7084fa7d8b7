# SPDX-License-Identifier: Apache-2.0
"""Benches fail when what they measure has ended."""

import pathlib
import sys
import types

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(TOP), str(TOP / "e2e"), str(TOP / "bench")]

import device_plugin            # noqa: E402  (the path comes first)
import fleet                    # noqa: E402


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
    calls = device_plugin.Allocations("/socket", ["a"])
    calls.join(10)
    with pytest.raises(error):
        calls.close()


def test_agents_that_have_ended():
    processes = {name: {"pid": 1, "status": None} for name in ("a", "b", fleet.SIMULATOR)}
    node = types.SimpleNamespace(cluster=types.SimpleNamespace(control=lambda op: processes, log=lambda name: f"log of {name}"))
    fleet.check(node, ["a", "b"])
    processes["b"]["status"] = 1
    with pytest.raises(AssertionError, match="1 have ended: b\nlog of b"):
        fleet.check(node, ["a", "b"])
