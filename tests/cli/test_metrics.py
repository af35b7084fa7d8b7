# SPDX-License-Identifier: Apache-2.0
"""scripts/metrics: docs/metrics.md is what it writes, and it refuses rows that are not whole. And documents name no
metric that does not exist."""

import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess

import pytest

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = "scripts/metrics"
AGENT = "src/agent/report/metrics.def"
ROW = 'METRIC(agent, "aliquot_agent_slots", GAUGE, NONE, slots, "", "Shares given out.")'


def load():
    loader = importlib.machinery.SourceFileLoader("metrics", str(TOP / SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("metrics", loader))
    loader.exec_module(module)
    return module


def check(top):
    made = subprocess.run([top / SCRIPT, "--check"], capture_output=True, text=True)
    return made.returncode, made.stderr


@pytest.fixture
def copy(tmp_path):
    module = load()
    for part in (SCRIPT, "docs/metrics.md", module.UNITS, *module.VOCABULARIES, *module.VOCABULARIES.values()):
        (tmp_path / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TOP / part, tmp_path / part)
    return tmp_path


def change(top, old, new):
    text = (top / AGENT).read_text()
    assert old in text
    (top / AGENT).write_text(text.replace(old, new, 1))


def test_the_document_is_up_to_date():
    assert check(TOP) == (0, "")


def test_every_vocabulary_is_in_the_document():
    assert set(load().VOCABULARIES) == {str(path.relative_to(TOP)) for path in TOP.glob("src/**/metrics*.def")}


@pytest.mark.parametrize("new", [ROW.replace("GAUGE", "HISTOGRAM"), ROW.replace('"", ', '"the agent stops", '),
                                 ROW.replace("Shares", "Slots"), ROW + "\n" + ROW.replace("slots", "more")])
def test_a_document_that_is_out_of_date(copy, new):
    change(copy, ROW, new)
    status, text = check(copy)
    assert status == 1 and "docs/metrics.md: out of date" in text
    subprocess.run([copy / SCRIPT], check=True)
    assert check(copy) == (0, "")


@pytest.mark.parametrize("new, breach", [
    (ROW.replace("Shares given out.", ""), "the help is no sentence"),
    (ROW.replace("Shares given out.", "Shares"), "the help is no sentence"),
    (ROW.replace("NONE", "LITRES"), "no unit LITRES"),
    (ROW.replace("NONE", "BYTES"), "the name and the unit BYTES differ"),
    (ROW.replace("GAUGE", "COUNTER"), "ends with _total"),
    (ROW.replace("(agent,", "(agents,"), "no set agents"),
    (ROW.replace("aliquot_", ""), "does not begin with aliquot_"),
    (ROW.replace(', "Shares', ',\n       "Shares'), "not a whole row in one line"),
])
def test_a_row_that_is_not_whole(copy, new, breach):
    change(copy, ROW, new)
    status, text = check(copy)
    assert status == 1 and breach in text and "Traceback" not in text


def test_documents_name_metrics_that_exist():
    module = load()
    known = {m.name for path in module.VOCABULARIES for m in module.read_rows(path)[0]}
    assert len(known) > 80
    named = {}
    for path in {*TOP.glob("*.md"), *TOP.glob("docs/**/*.md")} - {TOP / "docs/metrics.md"}:     # a test of its own
        for name in re.findall(r"`((?:aliquot_(?:agent|container|gpu|scheduler)|DCGM_FI_DEV|hami_host|hami_gpu)_\w+)", path.read_text()):
            named.setdefault(name, path.name)
    assert len(named) > 20
    assert {name: where for name, where in named.items() if name not in known} == {}
