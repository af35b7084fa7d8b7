# SPDX-License-Identifier: Apache-2.0
"""deploy/monitoring without a cluster: promtool takes the alerts, each fires and goes out at its time, each has its text, and
all figures that alerts, dashboards and examples name are served."""

import json
import pathlib
import re
import shutil
import subprocess

import pytest
import yaml

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
MONITORING = TOP / "deploy/monitoring"
CASES = TOP / "tests/cli/alerts.yaml"
RULES = yaml.safe_load((MONITORING / "rules.yaml").read_text())
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}
SERVED = set(re.findall(r"^\| `(\w+)` \|", (TOP / "docs/metrics.md").read_text(), re.M)) | {"up"}


@pytest.fixture(scope="module")
def promtool():
    directory = subprocess.run([TOP / "scripts/fetch-prometheus"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def run(*arguments):
        return subprocess.run([f"{directory}/promtool", *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return run


def test_rules_are_valid(promtool):
    made = promtool("check", "rules", MONITORING / "rules.yaml")
    assert made.returncode == 0 and f"SUCCESS: {len(ALERTS)} rules found" in made.stdout, made.stdout


def test_each_alert_fires_and_goes_out(promtool, tmp_path):
    shutil.copy(MONITORING / "rules.yaml", tmp_path)
    made = promtool("test", "rules", shutil.copy(CASES, tmp_path))
    assert made.returncode == 0, made.stdout


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_that_never_fires_is_noticed(name, promtool, tmp_path):
    rules = json.loads(json.dumps(RULES))
    for rule in rules["groups"][0]["rules"]:
        if rule["alert"] == name:
            rule["expr"] = "vector(0) > 1"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    made = promtool("test", "rules", shutil.copy(CASES, tmp_path))
    assert made.returncode == 1 and name in made.stdout, made.stdout


def test_the_operator_gets_the_same_alerts():
    assert yaml.safe_load((MONITORING / "prometheusrule.yaml").read_text())["spec"] == RULES


def test_each_alert_has_its_text():
    document = (TOP / "docs/alerts.md").read_text()
    assert re.findall(r"^## (\w+)$", document, re.M) == list(ALERTS)
    for name, rule in ALERTS.items():
        notes = rule["annotations"]
        assert notes.keys() == {"summary", "description", "runbook"} and notes["runbook"] == f"docs/alerts.md#{name.lower()}"
        assert rule["labels"]["severity"] in ("critical", "warning", "info") and "for" in rule
        section = document.split(f"## {name}\n")[1].split("\n## ")[0]
        assert "\n1. " in section and "\nThe alert goes out when " in section


def expressions():
    yield from ((name, rule["expr"]) for name, rule in ALERTS.items())
    for config in yaml.safe_load_all((MONITORING / "dashboards.yaml").read_text()):
        for text in config["data"].values():
            dashboard = json.loads(text)
            assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
            yield from ((panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"])
            yield from ((one["name"], one["query"]["query"]) for one in dashboard["templating"]["list"] if one["type"] == "query")
    for example in (MONITORING / "examples").iterdir():
        yield example.name, "\n".join(line for line in example.read_text().splitlines() if not line.startswith("#"))


@pytest.mark.parametrize("where, expression", list(expressions()))
def test_figures_are_served(where, expression):
    named = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:aliquot_[a-z]+_\w+|DCGM_\w+|up)\b", expression)}
    assert named and named <= SERVED, (where, named - SERVED)
