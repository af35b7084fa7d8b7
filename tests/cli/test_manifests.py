# SPDX-License-Identifier: Apache-2.0
"""scripts/manifests: deploy/ is what it writes; one project's names leave every list of the manifests, and no others
do. What older API servers do not take. scripts/crds: docs/crds.md is what it writes."""

import importlib.machinery
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = TOP / "scripts/manifests"
FILES = ("base/policy-pods.yaml", "base/kube-scheduler-configuration.yaml", "webhook/webhook.yaml",
         "own-scheduler/policy-scheduler-name.yaml", "own-scheduler/pair/kube-scheduler.yaml")
PROJECTS = {
    "elasticgpu.com/gpu-core": r"elasticgpu\.com/.*",
    "gpushare.provisioner.elasticgpu.io/gpu-memory": r"gpushare\..*",
    "aliyun.com/gpu-mem": r"aliyun\.com/.*",
    "tencent.com/vcuda-core": r"tencent\.com/.*",
    "nvidia.com/vcuda-memory": r"nvidia\.com/vcuda.*",
    "nvidia.com/gpu": r"nvidia\.com/(gpu|gpumem|gpumem-percentage|gpucores|priority)",
    "volcano.sh/vgpu-number": r"volcano\.sh/.*",
    "koordinator.sh/gpu.shared": r"koordinator\.sh/.*",
    "nvidia.com/gpu.shared": r"nvidia\.com/gpu\.shared",
    "gpu-fraction": r"gpu-fraction|gpu-memory",
}


# Annotations of the terms of a share that select no cards.
TERMS = {"elasticgpu.io/compute-policy", "elasticgpu.io/compute-weight", "elasticgpu.io/compute-ceiling",
         "elasticgpu.io/memory-limit", "tke.cloud.tencent.com/app-class"}


def leave(names, directory, check=False):
    argv = [SCRIPT, "--served-elsewhere", names, directory]
    return subprocess.run(argv, stderr=subprocess.PIPE, text=True, check=check)


def test_generated_files_are_up_to_date():
    """deploy/, the chart's templates and the tables of docs/dialects.md are what the templates and the table of dialects give."""
    made = subprocess.run([SCRIPT, "--check"], stdout=subprocess.PIPE, text=True)
    assert (made.returncode, made.stdout) == (0, "")


def changed(text, old, new):
    assert old in text
    return text.replace(old, new, 1)


MADE = ("deploy/base", "charts/aliquot/templates")
CLAIM_POLICIES = {"deploy/dra/policy-dra.yaml", "charts/aliquot/templates/policy-dra.yaml"}


def copy_sources(directory):
    for part in ("deploy", "charts", "meson.build", "scripts/manifests", "scripts/dashboards.py", "src/model/dialects.def", "src/model/placement_policies.h",
                 "src/share/compute_policies.h", "docs/dialects.md"):
        (directory / part).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (TOP / part).is_dir() else shutil.copy)(TOP / part, directory / part)


@pytest.mark.parametrize("path, old, new, stale", [
    ("deploy/base/agent.yaml", "--listen=:9400", "--listen=:9499", {"deploy/base/agent.yaml"}),
    ("deploy/templates/webhook/webhook.yaml", "port: 443", "port: 444", {"deploy/webhook/webhook.yaml", "charts/aliquot/templates/webhook.yaml"}),
    ("charts/aliquot/templates/roles.yaml", "aliquot-view", "aliquot-see", {"charts/aliquot/templates/roles.yaml"}),
    ("meson.build", "  version: '", "  version: '1", {"charts/aliquot/Chart.yaml", "deploy/base/agent.yaml", "deploy/base/scheduler.yaml", "deploy/web/web.yaml"}),
    ("src/model/dialects.def", '"tencent.com/vcuda-core"', '"tencent.com/vcuda-percent"',
     {"deploy/base/policy-pods.yaml", "deploy/base/kube-scheduler-configuration.yaml", "deploy/webhook/webhook.yaml",
      "deploy/own-scheduler/policy-scheduler-name.yaml", "deploy/own-scheduler/pair/kube-scheduler.yaml",
      "deploy/dra-pods/policy-dra-pods.yaml", "charts/aliquot/dialects.json", "docs/dialects.md"}),
    ("src/model/placement_policies.h", '"spread"', '"scatter"',
     {f"{made}/{name}.yaml" for made in MADE for name in ("policy-terms", "crd-elasticgpuclasses")} | CLAIM_POLICIES),
    ("src/share/compute_policies.h", '"weak"', '"feeble"', {f"{made}/policy-terms.yaml" for made in MADE} | CLAIM_POLICIES),
])
def test_what_is_out_of_date_is_named(path, old, new, stale, tmp_path):
    copy_sources(tmp_path)
    (tmp_path / path).write_text(changed((tmp_path / path).read_text(), old, new))
    (tmp_path / "deploy/base/more.yaml").write_text("")
    made = subprocess.run([tmp_path / "scripts/manifests", "--check"], stdout=subprocess.PIPE, text=True)
    assert made.returncode == 1
    assert {line.split(":")[0] for line in made.stdout.splitlines()} == stale | {"deploy/base/more.yaml"}
    (tmp_path / "deploy/base/more.yaml").unlink()
    subprocess.run([tmp_path / "scripts/manifests"], check=True)
    assert subprocess.run([tmp_path / "scripts/manifests", "--check"]).returncode == 0


@pytest.mark.parametrize("path, row, reason", [
    ("src/model/dialects.def", 'QUANTITY(HAMI, "a/b", CARDS, 1, "in two",\n         "lines")', "not one row of a macro"),
    ("src/model/dialects.def", 'QUANTITY(HAMI, "a/b", CARDS, "a column is missing")', "not the 5 columns of QUANTITY"),
    ("src/model/dialects.def", "QUANTITY(HAMI, 'a/b', CARDS, 1, \"a \\\"b\" c)", "not the 5 columns of QUANTITY"),
    ("src/model/dialects.def", 'QUANTTY(HAMI, "a/b", CARDS, 1, "misspelt")', "not one row of a macro"),
    ("src/model/dialects.def", 'QUANTITY(NEW, "a/b", CARDS, 1, "of no dialect")', "no DIALECT(NEW, ...) above it"),
    ("src/model/placement_policies.h", '    NEXT(new "new")  \\', "not one row of a list macro"),
])
def test_a_row_that_is_not_understood_is_refused(path, row, reason, tmp_path):
    """With its line: it would be missing in every list."""
    copy_sources(tmp_path)
    lines = (tmp_path / path).read_text().split("\n")
    at = max(i for i, line in enumerate(lines) if re.match(r"QUANTITY\(|    NEXT\(", line)) + 1
    (tmp_path / path).write_text("\n".join(lines[:at] + [row] + lines[at:]))
    made = subprocess.run([tmp_path / "scripts/manifests", "--check"], stderr=subprocess.PIPE, text=True)
    assert made.returncode == 1
    assert made.stderr.startswith(f"{path}:{at + 1}: {reason}"), made.stderr


def lists(text):
    """Every name of a list, as often as it is there."""
    quoted = re.findall(r"'([a-z][^' ]*)'(?=[,\]])", text)
    return sorted(quoted + re.findall(r"^ +- name: ([a-z.]+/[a-z.-]+)$", text, re.M))


@pytest.mark.parametrize("name", PROJECTS)
def test_one_project(name, tmp_path):
    leave(name, tmp_path, check=True)
    theirs = re.compile(PROJECTS[name])
    left = 0
    for file in FILES:
        before, after = lists((TOP / "deploy" / file).read_text()), lists((tmp_path / file).read_text())
        assert after == [n for n in before if not theirs.fullmatch(n)], file
        left += len(before) - len(after)
    assert left > 0
    for file in ("agent", "scheduler"):
        assert (tmp_path / f"base/{file}.yaml").read_text().count(f"- --served-elsewhere={name}\n") == 1


def test_a_mig_profile_can_be_left(tmp_path):
    """It is the agent's own resource; the scheduler takes the name, too, and no list has it."""
    name = "nvidia.com/mig-1g.10gb"
    leave(name, tmp_path, check=True)
    for file in FILES:
        assert lists((tmp_path / file).read_text()) == lists((TOP / "deploy" / file).read_text()), file
    for file in ("agent", "scheduler"):
        assert (tmp_path / f"base/{file}.yaml").read_text().count(f"- --served-elsewhere={name}\n") == 1


def test_each_project_can_be_left(monkeypatch):
    """PROJECTS has a name of every dialect that the agents do not offer."""
    monkeypatch.syspath_prepend(SCRIPT.parent)     # it imports its neighbour
    loader = importlib.machinery.SourceFileLoader("manifests", str(SCRIPT))
    manifests = importlib.util.module_from_spec(importlib.util.spec_from_loader("manifests", loader))
    loader.exec_module(manifests)
    dialects = [d for d in manifests.read_dialects() if "OFFERED" not in d.flags]
    assert dialects and [d.title for d in dialects if not PROJECTS.keys() & set(d.names())] == []


def selecting():
    """The rows of the table of annotations that select cards: their readers by key."""
    table = re.search(r"\} rows\[\] = \{\n(.*?)\n\};", (TOP / "src/model/selection.c").read_text(), re.S)[1]
    rows = re.findall(r'^    \{"([^"]+)", \w+, (\w+), AT\(\w+\)\},$', table, re.M)
    assert len(rows) == sum(line.startswith("    {") for line in table.splitlines())
    return dict(rows)


def test_selecting_annotations_are_checked_at_creation():
    """All of Aliquot's, whose values can be wrong, and every list, which can be too long. HAMi's other annotations are
    ignored where they are not understood."""
    policy = (TOP / "deploy/base/policy-terms.yaml").read_text()
    changed = set(re.findall(r"'([^']+)'", re.search(r"filter\(k, k in \[(.*?)\]", policy, re.S)[1]))
    lists = {key for key, reader in selecting().items() if reader == "take_list"}
    assert changed == lists | {key for key in selecting() if key.startswith("elasticgpu.io/")} | TERMS
    long = re.compile(re.search(r"filter\(k, k\.matches\('(.*?)'\)", policy)[1])
    assert {key for key in changed if long.search(key)} == lists


def test_selecting_annotations_are_documented():
    """docs/dialects.md names those of other projects, with the prefix or behind another one with it, docs/topology.md
    and docs/placement.md those of Aliquot."""
    dialects = re.search(r"\n## Annotations that select.*?\n### ", (TOP / "docs/dialects.md").read_text(), re.S)[0]
    own = "".join((TOP / "docs" / name).read_text() for name in ("topology.md", "placement.md"))
    for key in selecting():
        prefix, name = key.split("/")
        if prefix == "elasticgpu.io":
            assert re.search(rf"`{key}[`:]", own), key
        else:
            assert re.search(rf"`{key}`|`{prefix}/[^|]*`{name}`", dialects), key


def documented(document, head):
    """The names at the begin of the lines of the table with this head."""
    table = re.search(rf"^{re.escape(head)}\n(.*?)\n\n", (TOP / "docs" / document).read_text(), re.M | re.S)[1]
    return {name for names in re.findall(r"^\| `(.+?)` [(|]", table, re.M) for name in names.split("`, `")}


@pytest.mark.parametrize("header, document, head", [
    ("src/model/placement_policies.h", "placement.md", "| name | the card | the node |"),
    ("src/share/compute_policies.h", "limits.md", "| policy | what it gets |"),
])
def test_policies_are_documented(header, document, head):
    names = re.findall(r'^    (?:FIRST|NEXT|LAST)\(\w+, "(.+?)"\)', (TOP / header).read_text(), re.M)
    assert len(names) > 5 and documented(document, head) == set(names)


PROVISIONERS = "".join(path.read_text() for path in sorted((TOP / "src/claims").glob("*.c")))


def test_provisioners_are_documented():
    lists = re.findall(r"^ +\.names = \{(.*?)\},$", PROVISIONERS, re.M | re.S)
    names = {name for words in lists for name in re.findall(r'"(.+?)"', words)}
    assert len(names) > 5 and documented("claims.md", "| provisioner | gives |") == names


def test_sources_of_claims_are_in_the_crd():
    """The API server drops a field that is not in the CRD. Every source that a provisioner writes is read again, and is
    in the rules that there is one and that it stays."""
    written = set(re.findall(r'^ +\.source = "(\w+)",$', PROVISIONERS, re.M))
    table = re.search(r"\} sources\[\] = \{(.*?)\};", PROVISIONERS, re.S)[1]
    read = dict(re.findall(r'\{"(\w+)", "(\w+)"\}', table))
    assert len(read) > 3 and written == set(read)
    crd = yaml.safe_load((TOP / "deploy/base/crd-elasticgpus.yaml").read_text())
    for version in crd["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        for source, names in read.items():
            assert names in spec["properties"].get(source, {"properties": ()})["properties"], source
        one, stays = (next(rule["rule"] for rule in spec["x-kubernetes-validations"] if message in rule["message"])
                      for message in ("exactly one source", "the source cannot be changed"))
        assert set(re.findall(r"has\(self\.(\w+)\)", one)) == set(read)
        assert set(re.findall(r"has\(oldSelf\.(\w+)\)", stays)) == set(read)


@pytest.mark.parametrize("name", ["elasticgpu.io/gpu-core", "tke.cloud.tencent.com/qgpu-core", "nvidia.com/none", ""])
def test_not_to_be_left(name, tmp_path):
    made = leave(name, tmp_path)
    assert made.returncode == 1 and name in made.stderr and not list(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path):
    (tmp_path / "webhook").mkdir()
    made = leave("nvidia.com/gpu", tmp_path)
    assert made.returncode == 1 and "webhook is there already" in made.stderr
    assert "Traceback" not in made.stderr and not (tmp_path / "base").exists()


def test_no_word_that_cel_keeps_for_itself():
    """Kubernetes 1.30 knows fields of such a name between underlines only; newer ones know them so too."""
    words = ("as|break|const|continue|else|false|for|function|if|import|in|let|loop|namespace|null|package|return|true|var|"
             "void|while")
    field = re.compile(rf"\b(?:self|oldSelf)(?:\.\w+)*\.(?:{words})\b")
    found = {f.name: field.findall(f.read_text()) for f in (TOP / "deploy/base").glob("crd-*.yaml")}
    assert found and not any(found.values()), found


CRDS = ("scripts/crds", "docs/crds.md", "deploy/base")


def check_crds(top):
    made = subprocess.run([sys.executable, top / "scripts/crds", "--check"], stdout=subprocess.PIPE, text=True)
    return made.returncode, made.stdout


def test_reference_of_crds_is_up_to_date():
    """docs/crds.md is what the CRDs say, and each of their fields has a description."""
    assert check_crds(TOP) == (0, "")


def test_field_without_description(tmp_path):
    """It is named, inside lists and maps, too; and so is a page that says something else."""
    for name in CRDS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (TOP / name).is_dir() else shutil.copy)(TOP / name, tmp_path / name)
    crd = tmp_path / "deploy/base/crd-gpus.yaml"
    content = crd.read_text()
    for said in ("The name of the container.", "A process or a container has it."):
        assert content.count(f"description: {said}\n") == 1
        content = re.sub(rf" +description: {re.escape(said)}\n", "", content)
    crd.write_text(content)
    status, named = check_crds(tmp_path)
    assert status == 1
    assert re.findall(r"^GPU: (\S+) has no description", named, re.M) == ["status.mig.instances[].inUse",
                                                                         "status.allocated.*.containers[].container"]
    assert "docs/crds.md: out of date: run scripts/crds" in named
