# SPDX-License-Identifier: Apache-2.0
"""Every command of the documents is run, here or by another test, or says why not (doc_commands.py); and what can be told
of one without running it, in blocks and within sentences: its options, targets, values and directories exist."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import doc_commands                                     # noqa: E402  (the path comes first)
from doc_commands import TOP, of_kind, rule_of          # noqa: E402

COMMANDS = doc_commands.commands()
NAMED = ("aliquot", "aliquot-agent", "aliquot-scheduler", "make", "helm", "kubectl")
TRACE = {"N.csv": "sn,cpu_milli,memory_mib,gpu,model\na,8000,16384,2,T4\n",
         "P.csv": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\np,1000,1024,1,500,,0,\n"}
# What stands for something of the reader's own.
OWN = {"CMD": "true", "FILE": "node.yaml"}


def where(command):
    return f"{command.path}:{command.line}"


# ---- the table ----

def test_every_command_has_a_rule():
    assert len(COMMANDS) > 50
    assert [f"{where(c)}: {c.text}" for c in COMMANDS if not rule_of(c)] == []


def options_of(rule):
    """Those of the programs that its commands start."""
    return {word.partition("=")[0] for command in COMMANDS if rule_of(command) == rule
            for words in invocations(doc_commands.without_comment(command.text)) for word in words if re.match("--[a-z]", word)}


def test_every_rule_has_a_command_and_what_it_promises():
    used = {rule_of(c) for c in COMMANDS}
    assert [rule.pattern for rule in doc_commands.RULES if rule not in used] == []
    for rule in doc_commands.RULES:
        assert rule.how in doc_commands.HOWS
        if rule.how == "not":
            assert rule.detail in doc_commands.REASONS, rule
        if rule.how == "by":
            path, test = rule.detail.split("::")
            text = (TOP / path).read_text()
            assert re.search(rf"^def {test}\(", text, re.M), rule
            assert {option for option in options_of(rule) if not re.search(rf"{option}\b", text)} == set(rule.without), rule
    assert re.search(r"\bmake test$", (TOP / ".ci/run").read_text(), re.M)


@pytest.mark.parametrize("text, found", [
    ("Text\n\n```sh\nmake a  # why\n# note\nb \\\n  c\n```\n", ["make a  # why", "b \\\n  c"]),
    ("```console\n$ aliquot gpus\nNAME\n```\n", ["aliquot gpus"]),
    ("Run\n\n    for i in a; do\n      make $i\n    done\n\nEnd\n", ["for i in a; do\n  make $i\ndone"]),
    ("Run\n\n    kubectl apply -f - <<'END'\n    a: b\n    END\n", ["kubectl apply -f - <<'END'\na: b\nEND"]),
    ("A file\n\n```yaml\naliquot:\n  a: b\n```\n", []),
])
def test_commands_are_found(text, found, tmp_path, monkeypatch):
    monkeypatch.setattr(doc_commands, "TOP", tmp_path)
    (tmp_path / "a.md").write_text(text)
    assert [c.text for c in doc_commands.commands_of(tmp_path / "a.md")] == found


@pytest.mark.parametrize("text", ["```\nmake a\n```\n", "A file\n\n    a: b\n", "Run\n\n    curl a\n", "```console\nmake a\n```\n", "```sh\nmake 'a\n```\n"])
def test_what_could_hide_a_command_is_refused(text, tmp_path, monkeypatch):
    monkeypatch.setattr(doc_commands, "TOP", tmp_path)
    (tmp_path / "a.md").write_text(text)
    with pytest.raises(AssertionError, match=r"a\.md:\d"):
        list(doc_commands.commands_of(tmp_path / "a.md"))


def test_every_page_is_in_the_index():
    index = (TOP / "docs/README.md").read_text()
    pages = {path.name for path in (TOP / "docs").glob("*.md")} - {"README.md"}
    assert {page for page in pages if f"]({page})" not in index} == set()


# ---- without running ----

def spans():
    """Commands within sentences and tables."""
    for path in doc_commands.DOCUMENTS:
        text = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.M | re.S)
        for found in re.finditer(r"`([^`]+)`", text):
            if found[1].split(None, 1)[0] in NAMED and len(found[1].split()) > 1:
                yield str(path.relative_to(TOP)), " ".join(found[1].split())


def invocations(text):
    """[words] of each program of NAMED that a command starts."""
    lexer = shlex.shlex(text.replace("$(", " ; "), posix=True, punctuation_chars=";|&()<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:      # a comment with a quote
        words = text.split()
    starts = [i for i, word in enumerate(words) if word in NAMED and (i == 0 or words[i - 1] in ("--", ";", "|", "&&", "||", "(", "do")
                                                                     or "=" in words[i - 1])]
    for begin, end in zip(starts, [*starts[1:], len(words)]):
        stop = next((i for i in range(begin, end) if words[i] in (";", "|", "&&", "||", ")", ">", "<", "<<")), end)
        yield words[begin:stop]


def everything():
    for command in COMMANDS:
        for words in invocations(doc_commands.without_comment(command.text)):
            yield where(command), words
    for path, text in spans():
        for words in invocations(text):
            yield path, words


@pytest.fixture(scope="module")
def options(build):
    """(names of options, commands below) of a program of ours and its commands, as it lists them itself."""
    known = {}

    def of(*command):
        if command not in known:
            program = build / {"aliquot": "src/cli/aliquot", "aliquot-agent": "src/agent/aliquot-agent",
                               "aliquot-scheduler": "src/scheduler/aliquot-scheduler"}[command[0]]
            listed = subprocess.run([program, *command[1:], "--help=list"], check=True, stdout=subprocess.PIPE, text=True).stdout
            rows = [line.split("\t") for line in listed.splitlines()]
            known[command] = ({name for kind, long, short, *_ in rows if kind == "option" for name in (f"--{long}", f"-{short}")},
                              {long for kind, long, *_ in rows if kind == "command"}, {long for kind, long, *_ in rows if kind == "word"})
        return known[command]
    return of


def strange_words(words, options):
    """Options and commands that the program does not have."""
    command, names = (words[0],), set()
    for word in words[1:]:
        if word == "--":
            return
        known, below, plain = options(*command)
        names |= known
        if word.startswith("-") and not re.fullmatch(r"-\d+|-", word):
            if word.partition("=")[0] not in names:
                yield word
        elif word in below:
            command += (word,)
        elif len(command) == 1 and below and re.fullmatch(r"[a-z-]+", word) and word not in plain:
            yield word


def test_options_exist(options):
    strange = [f"{place}: {' '.join(words)}: {word}" for place, words in everything() if words[0].startswith("aliquot")
               for word in strange_words(words, options)]
    assert strange == []


@pytest.mark.parametrize("text, word", [("aliquot gpus --al", "--al"), ("aliquot gpu", "gpu"), ("aliquot sim -- aliquot mig --wait", "--wait"),
                                        ("aliquot-agent --lisen=:1", "--lisen=:1")])
def test_an_option_that_is_not_there_is_found(options, text, word):
    assert [w for words in invocations(text) for w in strange_words(words, options)] == [word]


def test_targets_of_make_exist():
    makefile = (TOP / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", makefile, re.M))
    asked = [(place, word) for place, words in everything() if words[0] == "make" for word in words[1:]]
    assert len(asked) > 10
    assert [(place, word) for place, word in asked if "=" not in word and word not in targets] == []
    assert [(place, word) for place, word in asked if "=" in word and f"$({word.partition('=')[0]})" not in makefile
            and f",$({word.partition('=')[0]})" not in makefile] == []


def test_values_and_directories_exist():
    values = yaml.safe_load((TOP / "charts/aliquot/values.yaml").read_text())
    for place, words in everything():
        for option, given in zip(words, words[1:]):
            if words[0] == "helm" and option == "--set":
                for one in given.split(","):
                    node = values
                    for part in one.partition("=")[0].split("."):
                        assert part in node, f"{place}: no value {one}"
                        node = node[part]
            if (words[0], option) in (("helm", "--values"), ("kubectl", "-k")) and not re.search(r"[A-Z]", given):
                assert (TOP / given).exists(), f"{place}: no {given}"
            if words[0] == "helm" and given.startswith("charts/"):
                assert (TOP / given).is_dir() or option == "--values", f"{place}: no {given}"


# ---- run ----

@pytest.fixture
def clean(tmp_path, build):
    """A directory with what a reader has, who has the programs in PATH; runs a text in it."""
    environment = {"HOME": str(tmp_path), "ALIQUOT_MIG_LOCK": str(tmp_path / "mig.lock"),
                   "PATH": f"{build}/src/cli:{build}/src/agent:{os.environ['PATH']}"}
    (tmp_path / "scripts").symlink_to(TOP / "scripts")
    for name, text in {**TRACE, "node.yaml": "version: v1\n", "my-program": "#!/bin/sh\necho it runs\n"}.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "my-program").chmod(0o755)
    subprocess.run("openssl genpkey -algorithm ed25519 | openssl pkey -pubout -out public.pem", shell=True, check=True, cwd=tmp_path,
                   stderr=subprocess.DEVNULL)

    def run(text):
        for name, value in OWN.items():
            text = re.sub(rf"\b{name}\b", value, text)
        return subprocess.run(["bash", "-euo", "pipefail", "-c", text], cwd=tmp_path, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60)
    return run


@pytest.mark.parametrize("command", of_kind("here"), ids=where)
def test_run_here(command, clean):
    done = clean(command.text)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted({c.path for c in of_kind("simulated")}))
def test_run_on_simulated_gpus(path, clean):
    """One after the other, on the same cards."""
    texts = [c.text for c in of_kind("simulated") if c.path == path]
    script = "\n".join(["set -eu", "aliquot mig generate-config >config.yaml", *texts])
    done = clean(f"aliquot sim --gpus 2 -- bash -c {shlex.quote(script)}")
    assert done.returncode == 0, done.stdout


def test_first_command_of_the_readme_shows_something_of_ours(clean):
    """On a machine without NVIDIA's driver."""
    text = next(c.text for c in COMMANDS if c.path == "README.md" and c.text.startswith("aliquot sim"))
    assert "all-1g.10gb" in clean(text).stdout
