# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus on the test cluster that scrapes by deploy/monitoring.

prometheus-operator is not there: scrape_config() makes of a PodMonitor what the operator makes of it, as far as ours use it
(selector, jobLabel, port, path, honorLabels, relabelings). Prometheus is Debian's (scripts/fetch-prometheus), which is built
without the discovery of Kubernetes: targets() makes the labels of that discovery for the pods of Aliquot's namespace.
"""

import base64
import contextlib
import http.client
import json
import pathlib
import re
import subprocess
import urllib.parse

import yaml

import kit
from cluster import api as kube
from cluster.node import API_PORT, BRIDGE_IP

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
MONITORING = TOP / "deploy/monitoring"
PORT = 9095
# In place of the waiting time of every alert, of minutes and an hour.
SHORT_FOR = "for: 1s"


def meta(label):
    return "__meta_kubernetes_pod_label_" + re.sub(r"\W", "_", label)


def relabelling(rule):
    """Of a PodMonitor in Prometheus' spelling."""
    words = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {words.get(key, key): value for key, value in rule.items()}


def targets(pods):
    """What Prometheus' discovery of pods finds: a target for each port of a container, and one for a container without."""
    for pod in pods:
        if not pod["status"].get("podIP"):
            continue
        labels = {"namespace": pod["metadata"]["namespace"], "pod_name": pod["metadata"]["name"], "pod_ip": pod["status"]["podIP"],
                  "pod_phase": pod["status"]["phase"], "pod_node_name": pod["spec"]["nodeName"]}
        labels = {f"__meta_kubernetes_{name}": value for name, value in labels.items()}
        labels |= {meta(label): value for label, value in pod["metadata"].get("labels", {}).items()}
        for container in pod["spec"]["containers"]:
            labels["__meta_kubernetes_pod_container_name"] = container["name"]
            for port in container.get("ports", [{}]):
                address = pod["status"]["podIP"] + (f":{port['containerPort']}" if port else "")
                named = {"__meta_kubernetes_pod_container_port_name": port["name"]} if port else {}
                yield {"targets": [address], "labels": labels | named}


def from_file(world, state, kind, of):
    """The path of what a ConfigMap or a Secret has under a key."""
    text = world.api.get(kube.core(kind, kit.SYSTEM, of["name"]))["data"][of["key"]]
    file = state / of["key"]
    file.write_text(base64.b64decode(text).decode() if kind == "secrets" else text)
    return str(file)


def secured(world, state, endpoint):
    """How it is scraped where it is HTTPS, or asks for a token."""
    found = {"scheme": endpoint.get("scheme", "http")}
    if "tlsConfig" in endpoint:
        tls = endpoint["tlsConfig"]
        found["tls_config"] = {"ca_file": from_file(world, state, "configmaps", tls["ca"]["configMap"]), "server_name": tls["serverName"]}
    if "authorization" in endpoint:
        found["authorization"] = {"credentials_file": from_file(world, state, "secrets", endpoint["authorization"]["credentials"])}
    return found


def scrape_config(monitor, world, state):
    """What prometheus-operator makes of a PodMonitor with one endpoint."""
    name, namespace, spec = monitor["metadata"]["name"], monitor["metadata"]["namespace"], monitor["spec"]
    (endpoint,) = spec["podMetricsEndpoints"]
    rules = [{"source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)", "action": "drop"}]
    for label, value in spec["selector"]["matchLabels"].items():
        rules.append({"source_labels": [meta(label)], "regex": value, "action": "keep"})
    if "port" in endpoint:
        rules.append({"source_labels": ["__meta_kubernetes_pod_container_port_name"], "regex": endpoint["port"], "action": "keep"})
    for label in ("namespace", "container", "pod"):
        source = "__meta_kubernetes_" + {"namespace": "namespace", "container": "pod_container_name", "pod": "pod_name"}[label]
        rules.append({"source_labels": [source], "target_label": label})
    rules += [{"target_label": "job", "replacement": f"{namespace}/{name}"},
              {"source_labels": [meta(spec["jobLabel"])], "regex": "(.+)", "target_label": "job"},
              {"target_label": "endpoint", "replacement": endpoint.get("port", "")}]
    rules += [relabelling(rule) for rule in endpoint.get("relabelings", [])]
    return {"job_name": f"podMonitor/{namespace}/{name}/0", "honor_labels": endpoint["honorLabels"], "metrics_path": endpoint["path"],
            "file_sd_configs": [{"files": ["targets.json"]}], "relabel_configs": rules, **secured(world, state, endpoint)}


def monitors():
    return list(yaml.safe_load_all((MONITORING / "podmonitor.yaml").read_text()))


def of_api_server(world):
    """For alerts that need its own metrics, as a cluster's Prometheus has them."""
    return {"job_name": "kube-apiserver", "scheme": "https", "authorization": {"credentials": world.api.token},
            "tls_config": {"ca_file": world.cluster.ca_file}, "static_configs": [{"targets": [f"{BRIDGE_IP}:{API_PORT}"]}]}


def rules_with_short_for():
    """rules.yaml, but that an alert fires a second after its condition is true."""
    text, n = re.subn(r"for: \w+", SHORT_FOR, (MONITORING / "rules.yaml").read_text())
    assert n == text.count("alert:")
    return text


class Prometheus:
    def __init__(self, world, state):
        self.world = world
        self.state = state
        self.discovered = None

    def discover(self):
        """Gives Prometheus the pods as they are now."""
        found = json.dumps(list(targets(self.world.api.get(kube.pods(kit.SYSTEM))["items"])))
        if found != self.discovered:
            new = self.state / "targets.new"
            new.write_text(found)
            new.rename(self.state / "targets.json")
        self.discovered = found

    def get(self, path, **query):
        connection = http.client.HTTPConnection("prometheus", timeout=10)
        connection.sock = self.world.cluster.connect(PORT)
        with contextlib.closing(connection):
            connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
            response = connection.getresponse()
            text = response.read()
        assert response.status == 200, text
        return json.loads(text)["data"]

    def query(self, expression):
        """[(labels, value)]"""
        return [(one["metric"], float(one["value"][1])) for one in self.get("/api/v1/query", query=expression)["result"]]

    def firing(self, name):
        """The labels of the alerts of that name that fire."""
        self.discover()
        found = [one for one in self.get("/api/v1/alerts")["alerts"]
                 if one["state"] == "firing" and one["labels"]["alertname"] == name]
        for one in found:
            for text in one["annotations"].values():
                assert not re.search("{{|<no value>|<error", text), text
        return [one["labels"] for one in found]

    def wait_firing(self, name, /, timeout=40, **labels):
        def fires():
            return [one for one in self.firing(name) if labels.items() <= one.items()]
        return self.world.until(fires, timeout, f"{name} fires", pause=0.2)

    def wait_quiet(self, name, timeout=60):
        self.world.until(lambda: not self.firing(name), timeout, f"{name} goes out", pause=0.2)


@contextlib.contextmanager
def running(world, *more, agents=None):
    """Scrapes and evaluates once a second; `more` than the PodMonitors say. `agents`: in place of the PodMonitor of the agents."""
    programs = subprocess.run([TOP / "scripts/fetch-prometheus"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    state = pathlib.Path(world.cluster.state, "prometheus")
    state.mkdir(exist_ok=True)
    used = [agents if agents and one["metadata"]["name"] == agents["metadata"]["name"] else one for one in monitors()]
    (state / "rules.yaml").write_text(rules_with_short_for())
    config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}, "rule_files": ["rules.yaml"],
              "scrape_configs": [*(scrape_config(one, world, state) for one in used), *more]}
    (state / "prometheus.yaml").write_text(json.dumps(config))
    subprocess.run([f"{programs}/promtool", "check", "config", state / "prometheus.yaml"], check=True, stdout=subprocess.DEVNULL)
    prometheus = Prometheus(world, state)
    prometheus.discover()
    world.cluster.spawn("prometheus", [
        f"{programs}/prometheus", f"--config.file={state}/prometheus.yaml", f"--storage.tsdb.path={state}/data",
        f"--web.listen-address=127.0.0.1:{PORT}", "--log.level=warn"])
    try:
        jobs = {"aliquot-agent", "aliquot-scheduler", *(one["job_name"] for one in more)}
        world.until(lambda: {labels["job"] for labels, _ in prometheus.query("up == 1")} == jobs, 40, "Prometheus scrapes all")
        yield prometheus
    finally:
        world.cluster.stop("prometheus")
