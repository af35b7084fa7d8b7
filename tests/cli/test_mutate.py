# SPDX-License-Identifier: Apache-2.0
"""scripts/mutate: a seed chooses the same mutants in every process, so that a run can be stopped and continued."""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/mutate"
LIST = """
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("mutate", sys.argv[1])
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
loader.exec_module(mutate)
for mutant in mutate.all_mutants(mutate.CORES):
    print(mutant.name, mutant.begin, mutant.end)
"""


def mutants(hash_seed):
    environment = dict(os.environ, PYTHONHASHSEED=str(hash_seed), PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run([sys.executable, "-c", LIST, SCRIPT], env=environment, check=True, stdout=subprocess.PIPE,
                          text=True).stdout.splitlines()


@pytest.fixture(scope="module")
def mutate():
    loader = importlib.machinery.SourceFileLoader("mutate", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    loader.exec_module(module)
    return module


def test_all_processes_list_the_same_mutants_in_the_same_order():
    """Python orders sets of strings anew in each process, by this seed."""
    first, *others = [mutants(hash_seed) for hash_seed in range(1, 5)]
    assert len(first) > 1000
    assert all(other == first for other in others)


def test_no_mutant_is_listed_twice():
    listed = mutants(1)
    assert len(listed) == len(set(listed))


def test_what_another_text_of_the_file_showed_is_not_taken_for_this_one(mutate):
    text = "int f(int a) {\n    return a + 1;\n}\n"
    old = {m.name for m in mutate.mutants_of("place", "a.c", text)}
    new = {m.name for m in mutate.mutants_of("place", "a.c", text.replace("a + 1", "1 + a"))}
    assert old and new and not old & new


def test_survivors_are_judged_again(mutate, tmp_path):
    """A test that was added can notice them."""
    state = tmp_path / "state"
    assert mutate.results_so_far(state) == {}
    state.write_text("".join(json.dumps(entry) + "\n" for entry in (["a", "survived"], ["b", "noticed by place"])))
    assert mutate.results_so_far(state) == {"b": "noticed by place"}


def test_the_same_line_in_another_function_is_another_mutant(mutate):
    """A survivor that is known to change nothing excuses no other one."""
    text = "".join(f"static int {name}(int a) {{\n    return a;\n}}\n" for name in ("f", "g"))
    keys = [m.key for m in mutate.mutants_of("place", "a.c", text)]
    assert keys == [f"a.c: {name}: return a; -> return {new};" for name in ("f", "g") for new in (0, 1)]


def test_patterns_excuse_what_has_all_their_parts(mutate):
    excused = mutate.Keys(["# comment", "a.c: f: a; -> b; # reason", "~ *: *: return false; -> return 0; # same"])
    assert "a.c: f: a; -> b;" in excused and "a.c: g: return false; -> return 0;" in excused
    assert "a.c: g: a; -> b;" not in excused and "a.c: g: return false; -> return 1;" not in excused


def test_every_entry_of_the_list_has_a_reason():
    for line in (SCRIPT.parent / "mutants-equivalent").read_text().splitlines():
        key, _, reason = line.partition(" # ")
        assert line.startswith("#") or not line or (reason and " -> " in key), line


def test_every_entry_of_the_list_matches_a_mutant(mutate):
    mutate.check_equivalent(mutate.equivalent())


def test_an_entry_that_matches_no_mutant_fails(mutate):
    """It could excuse a later change."""
    keys = mutate.Keys(["a.c: f: a; -> b; # reason", "c.c: f: a; -> b; # reason", "~ a.c: * -> b; # reason"])
    assert keys.without(["a.c: f: a; -> b;"]) == ["c.c: f: a; -> b;"]
    with pytest.raises(SystemExit, match="no mutant matches this entry: c.c: f: a; -> b;"):
        mutate.check_equivalent(mutate.Keys(["c.c: f: a; -> b; # reason"]))
