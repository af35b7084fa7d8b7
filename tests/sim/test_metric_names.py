# SPDX-License-Identifier: Apache-2.0
"""--metric-names: under which names the agent has its metrics. That figures are right under each: test-metric-names.c,
test-metrics.c, and tests/e2e/test_dashboards.py for containers."""

import json
import pathlib
import re
import subprocess
import tempfile

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from sim_kit import wait_until
from test_sim_agent import AGENT, Agent

CHART = pathlib.Path(__file__).parents[2] / "charts/aliquot"
DOCUMENT = pathlib.Path(__file__).parents[2] / "docs/metrics.md"
WORDS = ["aliquot", "dcgm", "hami", "hami-legacy", "gpu-manager"]


def documented():
    """The metrics that docs/metrics.md lists by the word of their table."""
    tables = re.findall(r"writes this from src/agent/report/metrics-?(.*?)\.def -->\n(.*?)<!-- end -->", DOCUMENT.read_text(), re.S)
    return {word or "aliquot": set(re.findall(r"^\| `(\w+)` \|", table, re.M)) for word, table in tables}


@pytest.mark.parametrize("words", [None, *([word] for word in WORDS), WORDS])
def test_nothing_is_served_that_is_not_documented(words, node):
    """And all that is; a strict parser takes the page."""
    assert list(documented()) == WORDS
    with tempfile.TemporaryDirectory() as path:     # a short name, for sockets
        agent = Agent(node, pathlib.Path(path), **({"metric-names": ",".join(words)} if words else {}))
        try:
            wait_until(lambda: "GPU-" in agent.page() or words == ["gpu-manager"], what="the cards")
            wanted = set().union(*(documented()[word] for word in words or ["aliquot", "dcgm"]))
            assert set(re.findall(r"^# TYPE (\w+) ", agent.page(), re.M)) == wanted
            _, body = agent.get(Accept="application/openmetrics-text;version=1.0.0")
            families = list(openmetrics.text_string_to_metric_families(body.decode()))
            assert {f.name + "_total" * (f.type == "counter") for f in families} == wanted
        finally:
            agent.close()


def test_the_words_are_named_where_they_are_chosen():
    """In the agent's help, in the document and in the chart; their refusal is below."""
    help = subprocess.run([AGENT, "--help"], capture_output=True, text=True, check=True).stdout
    assert ", ".join(WORDS) in " ".join(help.split())
    assert re.findall(r"^\| `([\w-]+)` \| \[of ", DOCUMENT.read_text(), re.M) == WORDS
    options = json.loads((CHART / "values.schema.json").read_text())["properties"]["agent"]["properties"]["metricNames"]
    assert options["items"]["enum"] == WORDS and ", ".join(f"`{word}`" for word in WORDS) in options["description"]


@pytest.mark.parametrize("words", ["", "hamy", "aliquot,DCGM", "dcgm hami"])
def test_other_words_are_refused(words):
    done = subprocess.run([AGENT, "--node-name=n", f"--metric-names={words}"], capture_output=True, text=True, timeout=10)
    assert done.returncode != 0
    assert done.stderr.rstrip().endswith(": " + ", ".join(WORDS))
    assert f"'{words.split(',')[-1]}'" in done.stderr
