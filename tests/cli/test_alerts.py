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
SERVED = set(re.findall(r"^\| `(\w+)` \|", (TOP / "docs/metrics.md").read_text(), re.M)) | {"up", "aggregator_unavailable_apiservice"}   # those of kube-apiserver, too


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


# What a label of a series of figures is in these tests, where no other is given.
LABELS = {"node": "n", "gpu": "0", "uuid": "G", "container": "main", "kind": "ElasticGPUQuota", "quota": "default", "resource": "core",
          "reason": "no-room"}


def series(name, values="0+30x20", **labels):
    return {"series": name + json.dumps(LABELS | labels).replace('": ', '"=').replace('"=', "=").replace(', "', ", ").replace('{"', "{"),
            "values": values}


def evaluate(promtool, tmp_path, inputs, wanted):
    """Has promtool compare the values of expressions, {expression: value}, at minute 10; NaN is no sample."""
    tests = [{"expr": expression, "eval_time": "10m", "exp_samples": [] if value is None else [{"labels": "{}", "value": value}]}
             for expression, value in wanted.items()]
    case = {"rule_files": [], "evaluation_interval": "1m",
            "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}]}
    (tmp_path / "case.yaml").write_text(yaml.safe_dump(case))
    made = promtool("test", "rules", tmp_path / "case.yaml")
    assert made.returncode == 0, made.stdout


def panels(*titles):
    """(panel, expression, the labels of its legend) of dashboards, with all namespaces chosen."""
    for config in yaml.safe_load_all((MONITORING / "dashboards.yaml").read_text()):
        for dashboard in map(json.loads, config["data"].values()):
            for panel in dashboard["panels"] if dashboard["title"] in titles else []:
                for target in panel["targets"]:
                    expression = re.sub(r"\$(node|namespace|pod)\b", ".*", target["expr"].replace("$__rate_interval", "5m"))
                    yield panel, expression, re.findall(r"{{(\w+)}}", target["legendFormat"])


def test_equal_names_of_two_namespaces_are_two_lines(promtool, tmp_path):
    """Pods web-0 and quotas `default`."""
    chosen = [one for one in panels("Aliquot / Namespace", "Aliquot / Pod") if one[0]["type"] != "stat"]
    names = {name for _, expression, _ in chosen for name in re.findall(r"aliquot_\w+", expression)}
    inputs = [series(name, namespace=space, pod="web-0") for name in sorted(names) for space in ("a", "b")]
    assert len(chosen) > 15
    evaluate(promtool, tmp_path, inputs, {f"count(count by ({', '.join(legend)}) ({expression}))": 2 for _, expression, legend in chosen})


def test_an_instance_is_no_second_card(promtool, tmp_path):
    inputs = [series("aliquot_gpu_healthy", "1x20"), series("aliquot_gpu_state", "1x20", state="Healthy"),
              series("aliquot_gpu_state", "1x20", state="Healthy", uuid="MIG-1")]
    chosen = [expression for _, expression, _ in panels("Aliquot / Cluster", "Aliquot / Node and card") if "aliquot_gpu_state" in expression]
    assert len(chosen) == 2
    evaluate(promtool, tmp_path, inputs, {f"sum({expression})": 1 for expression in chosen})


def test_queries_for_autoscalers(promtool, tmp_path):
    """None of the pods waits in one of two namespaces, and one has no time of its card now."""
    rules = yaml.safe_load((MONITORING / "examples/prometheus-adapter.yaml").read_text())["rules"]
    queries = {rule["name"]["as"]: rule["metricsQuery"] for rule in rules["custom"] + rules["external"]}
    inputs = [series("aliquot_scheduler_pods_waiting", "3x20", namespace="a", instance=replica) for replica in ("one", "two")]
    for pod, entitled in (("works", "0.5x20"), ("paused", "0x20")):
        inputs += [series("aliquot_container_gpu_share_ratio", "0.25x20" if pod == "works" else "0x20", namespace="a", pod=pod),
                   series("aliquot_container_gpu_entitled_ratio", entitled, namespace="a", pod=pod)]

    def asked(name, **labels):
        matchers = ",".join(f'{label}="{value}"' for label, value in labels.items())
        return f"sum({queries[name].replace('<<.LabelMatchers>>', matchers).replace('<<.GroupBy>>', '')})"
    evaluate(promtool, tmp_path, inputs, {
        asked("gpu_pods_waiting", namespace="a"): 3, asked("gpu_pods_waiting", namespace="b"): 0,
        asked("gpu_utilization_ratio", namespace="a", pod="works"): 0.5, asked("gpu_utilization_ratio", namespace="a", pod="paused"): None})
    (external,) = rules["external"]
    assert external["seriesQuery"] == "aliquot_scheduler_acts", "always served, so the adapter always knows the metric"


def expressions():
    yield from ((name, rule["expr"]) for name, rule in ALERTS.items())
    for config in yaml.safe_load_all((MONITORING / "dashboards.yaml").read_text()):
        for text in config["data"].values():
            dashboard = json.loads(text)
            assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
            yield from ((panel["title"], target["expr"]) for panel in dashboard["panels"] for target in panel["targets"])
            yield from ((one["name"], one["query"]["query"]) for one in dashboard["templating"]["list"] if one["type"] == "query")
    for example in (MONITORING / "examples").iterdir():
        text = "\n".join(line for line in example.read_text().splitlines() if not line.startswith("#"))
        if "kind: PodMonitor" not in text:
            yield example.name, text


@pytest.mark.parametrize("where, expression", list(expressions()))
def test_figures_are_served(where, expression):
    named = {re.sub("_(bucket|sum|count)$", "", name) for name in re.findall(r"\b(?:(?:aliquot|aggregator)_[a-z]+_\w+|DCGM_\w+|up)\b", expression)}
    assert named and named <= SERVED, (where, named - SERVED)
