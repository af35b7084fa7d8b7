# SPDX-License-Identifier: Apache-2.0
"""scripts/check-source: each rule that looks at more than one file refuses what it is for."""

import importlib.machinery
import importlib.util
import pathlib

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts/check-source"


@pytest.fixture
def rules(tmp_path, monkeypatch):
    """The script, with an empty tree in place of the repository."""
    loader = importlib.machinery.SourceFileLoader("check_source", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_source", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module, "TOP", tmp_path)
    return module


def put(top, path, text):
    (top / path).parent.mkdir(parents=True, exist_ok=True)
    (top / path).write_text(text)


def test_a_directory_includes_only_what_is_below_it(rules):
    assert list(rules.check_layers("src/wire/a.c", '#include "kube/pod.h"\n')) == [
        "src/wire/a.c:1: src/wire must not include kube/"]
    assert list(rules.check_layers("src/kube/a.c", '#include "wire/json.h"\n#include "kube/pod.h"\n')) == []


@pytest.mark.parametrize("path, included, refused", [
    ("src/layer/low/a.c", "layer/high/b.h", True), ("src/layer/high/a.c", "layer/low/b.h", False),
    ("src/layer/low/a.c", "layer/low/b.h", False), ("src/layer/low/a.c", "layer/top.h", True),
    ("src/layer/top.c", "layer/high/b.h", False), ("src/layer/low/a.c", "layer/unnamed/b.h", True)])
def test_a_subdirectory_includes_only_what_is_below_it(rules, monkeypatch, path, included, refused):
    monkeypatch.setattr(rules, "INNER_LAYERS", {"layer": ["low", "high"]})
    monkeypatch.setitem(rules.LAYERS, "layer", [])
    breaches = list(rules.check_layers(path, f'\n#include "{included}"\n'))
    assert [breach.startswith(f"{path}:2: ") for breach in breaches] == [True] * refused


def test_files_of_no_subdirectory_can_be_at_the_bottom(rules, monkeypatch):
    monkeypatch.setattr(rules, "INNER_LAYERS", {"layer": [".", "high"]})
    monkeypatch.setitem(rules.LAYERS, "layer", [])
    assert list(rules.check_layers("src/layer/high/a.c", '#include "layer/bottom.h"\n')) == []
    assert len(list(rules.check_layers("src/layer/bottom.c", '#include "layer/high/a.h"\n'))) == 1


def test_a_pure_directory_reaches_nothing_else_through_others_either(rules, tmp_path):
    put(tmp_path, "src/pure/a.c", '#include "pure/a.h"\n')
    put(tmp_path, "src/pure/a.h", '#include "kube/list.h"\n')
    put(tmp_path, "src/kube/list.h", '#include "wire/json.h"\n')
    put(tmp_path, "src/wire/json.h", '#include "base/cleanup.h"\n')
    put(tmp_path, "src/base/cleanup.h", "")
    assert list(rules.check_pure("pure", ["base", "kube", "wire"])) == []
    assert list(rules.check_pure("pure", ["kube"])) == [
        "src/pure: is pure, must not reach wire/json.h: wire/json.h <- kube/list.h <- pure/a.h"]


@pytest.mark.parametrize("header", ["kube/api/client.h", "wire/http.h", "base/file.h"])
def test_a_pure_directory_reaches_no_io(rules, tmp_path, header):
    put(tmp_path, "src/pure/a.c", '#include "kube/list.h"\n')
    put(tmp_path, "src/kube/list.h", f'#include "{header}"\n')
    put(tmp_path, f"src/{header}", "")
    assert list(rules.check_pure("pure", ["base", "kube", "wire"])) == [
        f"src/pure: is pure, must not reach {header}: {header} <- kube/list.h <- pure/a.c"]


def test_a_file_names_no_persons(rules, tmp_path):
    person = "nobo" + "dy"
    put(tmp_path, "src/a.c", f"/* A comment.\n * {person.title()} reads it. */\n")
    for exempt in ("build/a.c", "build-asan/src/a.c", "tests/fuzz/corpus/a/seed", "images/aliquot_images.py"):
        put(tmp_path, exempt, f"/* {person} */\n")
    assert list(rules.check_words()) == [f'src/a.c:2: "{person.title()}": name the component, process or object']


def test_words_that_the_glossary_refuses_are_not_used(rules, tmp_path):
    put(tmp_path, "docs/glossary.md", "# Glossary\n\n- **assume**: to count. *Not*: vow,\n  sworn word. *Unlike*: hold.\n"
                                      "- **card**: a GPU.\n- **poll**: a reading. *Not*: a glance.\n")
    put(tmp_path, "docs/a.md", "It vows\nand glances, holds the sworn\nword: a glance avowed.\n")
    put(tmp_path, "src/a.c", '/* Not a\n * glance. */\nint vow(void) { return puts("/* a vow */"); } // vow\n')
    assert list(rules.check_terms()) == ['docs/a.md:1: "vows": see assume in docs/glossary.md',
                                         'docs/a.md:2: "sworn word": see assume in docs/glossary.md',
                                         'docs/a.md:3: "a glance": see poll in docs/glossary.md',
                                         'src/a.c:1: "a glance": see poll in docs/glossary.md']


def test_links_between_documents_resolve(rules, tmp_path):
    put(tmp_path, "docs/b.md", "# Title\n## The `esc` policy, twice\n## The `esc` policy, twice\n")
    put(tmp_path, "a.md", "[1](docs/b.md#the-esc-policy-twice-1) [2](https://a.example/x) [3](#own)\n\n## Own\n"
                          "[4](docs/b.md#the-esc-policy-twice-2) [5](docs/c.md)\n")
    assert list(rules.check_links(pathlib.Path("a.md"))) == [
        "a.md: links to docs/b.md#the-esc-policy-twice-2, which has no such heading",
        "a.md: links to docs/c.md, which does not exist"]


def test_lines_of_documents_are_bounded_outside_code_and_tables(rules, tmp_path):
    long = "word " * 21
    put(tmp_path, "a.md", f"{long}\n\n    {long}\n```\n{long}\n```\n| {long} |\n{'x' * 120}\n")
    assert list(rules.check_width(pathlib.Path("a.md"))) == ["a.md:1: 105 columns, at most 100"]


def test_a_path_that_is_named_exists(rules, tmp_path):
    put(tmp_path, "src/layer/a.c", "/* See src/layer/b.c, src/layer/a and build/src/layer/program. */\n")
    put(tmp_path, "a.md", "`src/layer/*.c`, tests/test-NAME.c\n")
    put(tmp_path, "tests/test-a.c", "")
    assert list(rules.check_named_paths("src/layer/a.c")) == ["src/layer/a.c:1: src/layer/b.c does not exist"]
    assert list(rules.check_named_paths("a.md")) == []


def test_a_file_that_a_comment_names_exists(rules, tmp_path):
    put(tmp_path, "src/layer/a.c", '#include "layer/gone.h"\n/* As b.c and\n * old.c do; layer/c.c is a path. */\n')
    assert list(rules.check_named_files("src/layer/a.c", {"a.c", "b.c"})) == [
        "src/layer/a.c: a comment names old.c, which does not exist"]


def test_decisions_are_in_their_index(rules, tmp_path):
    put(tmp_path, "docs/decisions/README.md", "# Decisions\n\n## [A](a.md)\n\n- One that is\n  long\n- Two\n\n## [B](b.md)\n\n- Gone\n")
    put(tmp_path, "docs/decisions/a.md", "# A\n\n## One that is long\n\n## Two\n")
    put(tmp_path, "docs/decisions/b.md", "# B\n\n## New\n")
    put(tmp_path, "docs/decisions/c.md", "# C\n\n## Area without lines\n")
    assert list(rules.check_decisions()) == [f"docs/decisions/README.md: the lines of {name}.md are not its headings"
                                             for name in "bc"]


def test_the_list_of_equivalent_mutants_has_no_stale_entry(rules, tmp_path):
    put(tmp_path, "scripts/mutate", "#!/bin/sh\necho \"stale entry $1\" >&2; exit 1\n")
    (tmp_path / "scripts/mutate").chmod(0o755)
    assert list(rules.check_mutants()) == ["stale entry --check"]


@pytest.mark.parametrize("code, refused", [
    ("puts(__DATE__);", ["__DATE__"]), ("puts(__TIME__);", ["__TIME__"]), ("puts(__LINE__); /* not __DATE__ */", [])])
def test_nothing_says_when_it_was_built(rules, tmp_path, code, refused):
    put(tmp_path, "src/base/a.c", f"/* SPDX-License-Identifier: Apache-2.0 */\n{code}\n")
    assert list(rules.check_file("src/base/a.c")) == [
        f"src/base/a.c:2: {name} makes each build another one" for name in refused]
