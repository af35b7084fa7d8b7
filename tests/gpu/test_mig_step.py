# SPDX-License-Identifier: Apache-2.0
"""The step of run.py that divides a card: whatever fails, the card has its former division at the end."""

import contextlib
import os
import subprocess

import mig
import pytest


class Card:
    """Takes notes of the commands that change it."""

    def __init__(self, **answers):
        self.answers = {"export": (0, "version: v1\n"), "apply": (0, ""), **answers}
        self.changes = []

    def command(self, verb, *words):
        if verb == "apply":
            self.changes.append("restored")
        code, text = self.answers[verb]
        return subprocess.CompletedProcess([verb, *words], code, text, "no answer")

    def divide(self, counts):
        self.changes.append("divided")
        self.counts = counts

    def instances(self):
        return {str(i): (i, 0) for i in range(sum(self.counts.values()))}

    def smallest(self):
        return "1g.10gb", 7

    @contextlib.contextmanager
    def closed(self):
        yield

    def mode(self):
        return 0

    def processes(self):
        return 0


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def steps_of(card):
        monkeypatch.setattr(mig, "Card", lambda build: card)
        results = []
        mig.run(tmp_path, results)
        return results
    return steps_of


@pytest.mark.parametrize("answer", [(1, "version: v1\n"), (0, "")], ids=["failed", "empty"])
def test_a_division_that_cannot_be_saved_is_not_changed(run, answer):
    card = Card(export=answer)
    (name, outcome, text), = run(card)
    assert (name, outcome) == ("MIG", "failed") and "cannot be saved" in text
    assert not card.changes


@pytest.mark.parametrize("error", [IndexError("list index out of range"), ValueError("not enough values to unpack")])
def test_an_unexpected_answer_is_a_failure(run, monkeypatch, error):
    def exchange(*_):
        raise error
    monkeypatch.setattr(mig, "exchange", exchange)
    card = Card()
    *_, (name, outcome, text) = run(card)
    assert (name, outcome, text) == ("MIG", "failed", f"{type(error).__name__}: {error}")
    assert card.changes == ["divided", "restored"]
