# SPDX-License-Identifier: Apache-2.0
"""scripts/check-cycles: files and directories that call each other in a cycle are refused, and rows that allow none."""

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
    objects = {name[0] + ".o": name for name in texts}
    assert rules.cycles(rules.uses(rules.symbols(tmp_path, objects), objects)) == found


@pytest.mark.parametrize("allowed, breaches", [
    ([("src/x/a.c", "src/x/b.c")], 0), ([("src/x/",)], 0), ([("src/y/",)], 2), ([], 1),
    ([("src/x/a.c", "src/x/b.c", "src/x/c.c")], 2)])
def test_only_the_cycle_of_a_row_is_allowed(rules, allowed, breaches):
    assert len(list(rules.breaches([("src/x/a.c", "src/x/b.c")], allowed))) == breaches


@pytest.mark.parametrize("graph, allowed, found", [
    ({"src/a/x/1.c": ["src/b/2.c"], "src/b/2.c": ["src/a/y/3.c"]}, [], [("src/a", "src/b")]),
    ({"src/a/x/1.c": ["src/a/y/2.c"], "src/a/y/2.c": ["src/a/x/3.c"]}, [], [("src/a/x", "src/a/y")]),
    ({"src/a/x/1.c": ["src/a/y/2.c"], "src/a/y/2.c": ["src/a/x/3.c"]}, [("src/a/x/3.c", "src/a/y/2.c")], []),
    ({"src/a/main.c": ["src/a/x/1.c"], "src/a/x/1.c": ["src/a/2.c"]}, [], []),
    ({"src/a/1.c": ["src/a/x/2.c"], "src/a/x/2.c": ["src/a/3.c"]}, [], [("src/a", "src/a/x")]),
    ({"src/a/1.c": ["src/b/2.c"], "src/b/3.c": ["src/c/4.c"], "src/c/5.c": []}, [], [])])
def test_directories_that_call_each_other_are_refused(rules, graph, allowed, found):
    problems = rules.check_directories({source: set(others) for source, others in graph.items()}, allowed)
    assert list(problems) == ["these directories call each other in a cycle: " + ", ".join(cycle) for cycle in found]


def test_libraries_use_what_one_file_defines(rules, tmp_path):
    """Not what several define, such as the driver's functions in the simulator and in the library."""
    texts = {"a.c": "int one(void);\nint two(void);\nint first(void);\nint first(void) { return one() + two(); }\n",
             "b.c": "int one(void);\nint two(void);\nint one(void) { return 1; }\nint two(void) { return 2; }\n",
             "c.c": "int two(void);\nint two(void) { return 3; }\n"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    subprocess.run(["cc", "-c", *texts], cwd=tmp_path, check=True)
    known = rules.symbols(tmp_path, {"a.o", "b.o", "c.o"})
    elsewhere = rules.one_definition(known, {"a.o": "a.c", "b.o": "b.c", "c.o": "c.c"})
    assert elsewhere == {"first": "a.c", "one": "b.c"}
    assert rules.uses(known, {"a.o": "a.c"}, elsewhere) == {"a.c": {"b.c"}}
