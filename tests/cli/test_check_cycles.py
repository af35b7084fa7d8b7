# SPDX-License-Identifier: Apache-2.0
"""scripts/check-cycles: files that call each other in a cycle are refused, and rows that allow no cycle."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/check-cycles"


@pytest.fixture
def rules():
    loader = importlib.machinery.SourceFileLoader("check_cycles", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_cycles", loader))
    loader.exec_module(module)
    return module


def test_the_sources_have_no_cycle_but_those_allowed(build):
    run = subprocess.run([SCRIPT, build], capture_output=True, text=True)
    assert (run.stdout, run.stderr, run.returncode) == ("", "", 0)


@pytest.mark.parametrize("third, found", [
    ("int third(void);\nint third(void) { return 3; }\n", []),
    ("int first(void);\nint third(void);\nint third(void) { return first(); }\n", [("a.c", "b.c", "c.c")]),
    ("static int first(void) { return 1; }\nint third(void);\nint third(void) { return first(); }\n", [])])
def test_a_cycle_is_found_in_objects(rules, tmp_path, third, found):
    texts = {"a.c": "int second(void);\nint first(void);\nint first(void) { return second(); }\n",
             "b.c": "int third(void);\nint second(void);\nint second(void) { return third(); }\n", "c.c": third}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["cc", "-c", *texts], cwd=tmp_path, check=True)
    assert rules.cycles(rules.uses(tmp_path, {name[0] + ".o": name for name in texts})) == found


@pytest.mark.parametrize("allowed, breaches", [
    ([("src/x/a.c", "src/x/b.c")], 0), ([("src/x/",)], 0), ([("src/y/",)], 2), ([], 1),
    ([("src/x/a.c", "src/x/b.c", "src/x/c.c")], 2)])
def test_only_the_cycle_of_a_row_is_allowed(rules, allowed, breaches):
    assert len(list(rules.breaches([("src/x/a.c", "src/x/b.c")], allowed))) == breaches
