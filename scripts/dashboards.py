# SPDX-License-Identifier: Apache-2.0
"""The dashboards of deploy/monitoring, panel by panel; scripts/manifests writes them as ConfigMaps."""

import json
from typing import NamedTuple


class Panel(NamedTuple):
    title: str
    unit: str       # of Grafana
    targets: dict   # expression by legend
    kind: str = "timeseries"


class Dashboard(NamedTuple):
    name: str       # of the ConfigMap, behind "aliquot-"
    title: str
    variables: dict     # query by name; of several values all can be chosen
    panels: list


def stat(title, unit, expression):
    return Panel(title, unit, {"": expression}, "stat")


def bars(title, unit, targets):
    return Panel(title, unit, targets, "bargauge")


# Equal figures of several replicas of the scheduler are one.
WAITING = "max by (namespace, reason) (aliquot_scheduler_pods_waiting)"
CARD = '{{node}} {{gpu}}'
NODE = 'node=~"$node"'
SPACE = 'namespace=~"$namespace"'
POD = 'namespace=~"$namespace",pod=~"$pod"'
CONTAINER = "{{namespace}}/{{pod}} {{container}} on {{node}} {{gpu}}"

DASHBOARDS = [
    Dashboard("cluster", "Aliquot / Cluster", {}, [
        stat("Cards", "none", "count(aliquot_gpu_healthy)"),
        stat("Whole cards free", "none", "max(aliquot_scheduler_gpus_free)"),
        stat("Cards that take no pods", "none", "count(aliquot_gpu_healthy == 0) or vector(0)"),
        stat("Pods that wait", "none", f"sum({WAITING}) or vector(0)"),
        stat("Cards wanted by them", "none", "max(aliquot_scheduler_gpus_wanted)"),
        stat("Largest share that fits", "percent", "max(aliquot_scheduler_largest_share_percent)"),
        Panel("Memory", "percentunit", {
            "given out": "sum(aliquot_gpu_memory_granted_bytes) / sum(aliquot_gpu_memory_capacity_bytes)",
            "in use": "sum(aliquot_gpu_memory_used_bytes) / sum(aliquot_gpu_memory_total_bytes)"}),
        Panel("Compute", "percent", {
            "given out": "avg(aliquot_gpu_core_granted_percent)", "in use": "avg(aliquot_gpu_utilization_percent)"}),
        Panel("Pods that wait, by reason", "none", {"{{reason}}": f"sum by (reason) ({WAITING})"}),
        Panel("Memory by namespace", "bytes", {
            "{{namespace}}": "sum by (namespace) (max by (namespace, dialect) (aliquot_scheduler_shares_memory_bytes))"}),
        bars("Fullest cards", "percentunit", {
            CARD: "topk(10, aliquot_gpu_memory_granted_bytes / aliquot_gpu_memory_capacity_bytes)"}),
        bars("Memory of shares that is not used", "bytes", {
            "{{namespace}}/{{pod}} {{container}} on {{uuid}}":
                "topk(10, aliquot_container_memory_limit_bytes - aliquot_container_memory_used_bytes)"}),
        Panel("Shares by dialect", "none", {"{{dialect}}": "sum by (dialect) (max by (namespace, dialect) (aliquot_scheduler_shares))"}),
        Panel("Cards by state", "none", {"{{state}}": "sum by (state) (aliquot_gpu_state and on (node, uuid) aliquot_gpu_healthy)"}),
    ]),
    Dashboard("node", "Aliquot / Node and card", {"node": "label_values(aliquot_gpu_healthy, node)"}, [
        stat("Agent answers", "none", f'min(up{{job="aliquot-agent",{NODE}}})'),
        stat("Driver answers", "none", f"min(aliquot_agent_driver_answering{{{NODE}}})"),
        stat("Containers with a share", "none", f"sum(aliquot_agent_slots{{{NODE}}})"),
        stat("Containers that wait for their share", "none", f"sum(aliquot_agent_prestart_waiting{{{NODE}}})"),
        Panel("State", "none", {CARD + " {{state}}": f"aliquot_gpu_state{{{NODE}}} == 1 and on (node, uuid) aliquot_gpu_healthy"}),
        Panel("Memory in use", "bytes", {CARD: f"aliquot_gpu_memory_used_bytes{{{NODE}}}"}),
        Panel("Memory given out", "bytes", {CARD: f"aliquot_gpu_memory_granted_bytes{{{NODE}}}"}),
        Panel("Compute given out", "percent", {CARD: f"aliquot_gpu_core_granted_percent{{{NODE}}}"}),
        Panel("Utilization", "percent", {CARD: f"aliquot_gpu_utilization_percent{{{NODE}}}"}),
        Panel("Part of a card's time, by container", "percentunit", {
            "{{namespace}}/{{pod}} {{container}} on {{gpu}}": f"aliquot_container_gpu_share_ratio{{{NODE}}}"}),
        Panel("Memory outside of shares", "bytes", {
            CARD + " without a share": f"aliquot_gpu_memory_outside_bytes{{{NODE}}}",
            CARD + " of no process": f"aliquot_gpu_memory_unattributed_bytes{{{NODE}}}"}),
        Panel("Temperature", "celsius", {CARD: f"DCGM_FI_DEV_GPU_TEMP * on (UUID) group_left (node) "
                                         f'label_replace(aliquot_gpu_healthy{{{NODE}}} * 0 + 1, "UUID", "$1", "uuid", "(.*)")'}),
        Panel("Power", "watt", {CARD: f"DCGM_FI_DEV_POWER_USAGE * on (UUID) group_left (node) "
                                f'label_replace(aliquot_gpu_healthy{{{NODE}}} * 0 + 1, "UUID", "$1", "uuid", "(.*)")'}),
        Panel("XIDs since the agent started", "none", {
            CARD: f"sum by (node, gpu) (aliquot_gpu_xid_total{{{NODE}}}) or sum by (node, gpu) (aliquot_gpu_healthy{{{NODE}}} * 0)"}),
    ]),
    Dashboard("namespace", "Aliquot / Namespace", {
        "namespace": "label_values(aliquot_container_memory_limit_bytes, namespace)"}, [
        stat("Memory of shares", "bytes", f"sum(aliquot_container_memory_limit_bytes{{{SPACE}}})"),
        stat("Of it in use", "percentunit", f"sum(aliquot_container_memory_used_bytes{{{SPACE}}}) "
                                            f"/ sum(aliquot_container_memory_limit_bytes{{{SPACE}}})"),
        stat("Compute of shares", "percent", f"sum(aliquot_container_core_limit_percent{{{SPACE}}})"),
        stat("Pods that wait", "none", f"sum(max by (namespace, reason) (aliquot_scheduler_pods_waiting{{{SPACE}}})) or vector(0)"),
        Panel("Memory in use by pod", "bytes", {"{{namespace}}/{{pod}}": f"sum by (namespace, pod) (aliquot_container_memory_used_bytes{{{SPACE}}})"}),
        Panel("Memory of shares by pod", "bytes", {"{{namespace}}/{{pod}}": f"sum by (namespace, pod) (aliquot_container_memory_limit_bytes{{{SPACE}}})"}),
        Panel("Cards' time by pod", "none", {
            "{{namespace}}/{{pod}}": f"sum by (namespace, pod) (rate(aliquot_container_gpu_seconds_total{{{SPACE}}}[$__rate_interval]))"}),
        Panel("Time waited for the share by pod", "none", {
            "{{namespace}}/{{pod}}": f"sum by (namespace, pod) (rate(aliquot_container_throttled_seconds_total{{{SPACE}}}[$__rate_interval]))"}),
        Panel("Quotas: used", "none", {
            "{{namespace}}: {{kind}} {{quota}} {{resource}}": f"max by (namespace, kind, quota, resource) (aliquot_scheduler_quota_used{{{SPACE}}})"}),
        Panel("Quotas: part of the limit", "percentunit", {
            "{{namespace}}: {{kind}} {{quota}} {{resource}}": f"max by (namespace, kind, quota, resource) (aliquot_scheduler_quota_used{{{SPACE}}} "
                                               f"/ (aliquot_scheduler_quota_max{{{SPACE}}} > 0))"}),
        Panel("Quotas: borrowed", "none", {
            "{{namespace}}: {{kind}} {{quota}} {{resource}}": f"max by (namespace, kind, quota, resource) (aliquot_scheduler_quota_borrowed{{{SPACE}}})"}),
        Panel("Pods that wait, by reason", "none", {
            "{{namespace}}: {{reason}}": f"max by (namespace, reason) (aliquot_scheduler_pods_waiting{{{SPACE}}})"}),
    ]),
    Dashboard("pod", "Aliquot / Pod", {
        "namespace": "label_values(aliquot_container_memory_limit_bytes, namespace)",
        "pod": 'label_values(aliquot_container_memory_limit_bytes{namespace=~"$namespace"}, pod)'}, [
        Panel("Memory", "bytes", {
            CONTAINER + ": limit": f"aliquot_container_memory_limit_bytes{{{POD}}}",
            CONTAINER + ": booked": f"aliquot_container_memory_used_bytes{{{POD}}}",
            CONTAINER + ": peak": f"aliquot_container_memory_peak_bytes{{{POD}}}",
            CONTAINER + ": by the driver": f"aliquot_container_memory_driver_bytes{{{POD}}}"}),
        Panel("Part of the card's time", "percentunit", {
            CONTAINER + ": taken": f"aliquot_container_gpu_share_ratio{{{POD}}}",
            CONTAINER + ": could have": f"aliquot_container_gpu_entitled_ratio{{{POD}}}"}),
        Panel("Time waited for the share", "none", {
            CONTAINER: f"rate(aliquot_container_throttled_seconds_total{{{POD}}}[$__rate_interval])"}),
        Panel("Launches a second", "none", {CONTAINER: f"rate(aliquot_container_launches_total{{{POD}}}[$__rate_interval])"}),
        Panel("Refused requests for memory", "none", {
            CONTAINER: f"increase(aliquot_container_memory_refused_total{{{POD}}}[$__rate_interval])"}),
        Panel("Processes", "none", {CONTAINER: f"aliquot_container_processes{{{POD}}}",
                                    CONTAINER + ": without the library": f"aliquot_container_unlimited_processes{{{POD}}}"}),
        Panel("Overuse", "none", {CONTAINER + ": memory": f"aliquot_container_memory_overuse{{{POD}}}",
                                  CONTAINER + ": time": f"aliquot_container_gpu_time_overuse{{{POD}}}"}),
    ]),
    Dashboard("scheduler", "Aliquot / Scheduler", {}, [
        stat("Replicas that act", "none", "sum(aliquot_scheduler_acts)"),
        stat("Replicas that answer", "none", "sum(aliquot_scheduler_ready)"),
        stat("Nodes out of service", "none", "max(aliquot_scheduler_nodes_out_of_service)"),
        stat("Cards overcommitted", "none", "max(aliquot_scheduler_gpus_overcommitted)"),
        Panel("Time from creation to Binding", "s", {
            f"{part} %": f"histogram_quantile({part / 100}, sum by (le) "
                         "(rate(aliquot_scheduler_time_to_bind_seconds_bucket[$__rate_interval])))" for part in (50, 90, 99)}),
        Panel("Bindings a second", "none", {"": "sum(rate(aliquot_scheduler_time_to_bind_seconds_count[$__rate_interval]))"}),
        Panel("Pods by stage", "none", {"{{stage}}": "max by (stage) (aliquot_scheduler_pods)"}),
        Panel("Pods that wait, by reason", "none", {"{{reason}}": f"sum by (reason) ({WAITING})"}),
        Panel("Time to answer, 99 %", "s", {
            "{{verb}}": "histogram_quantile(0.99, sum by (verb, le) "
                        "(rate(aliquot_scheduler_request_duration_seconds_bucket[$__rate_interval])))"}),
        Panel("Answers a second", "none", {
            "{{verb}} {{outcome}}": "sum by (verb, outcome) (rate(aliquot_scheduler_requests_total[$__rate_interval]))"}),
        Panel("What fits", "none", {
            "cards wanted": "max(aliquot_scheduler_gpus_wanted)", "whole cards free": "max(aliquot_scheduler_gpus_free)"}),
        Panel("Largest memory of a share that fits", "bytes", {"": "max(aliquot_scheduler_largest_share_memory_bytes)"}),
        Panel("Evictions for others", "none", {
            "evicted": "sum(increase(aliquot_scheduler_evictions_total[$__rate_interval]))",
            "refused by a budget": "sum(increase(aliquot_scheduler_evictions_refused_total[$__rate_interval]))"}),
        Panel("Changes of the leader", "none", {
            "{{change}}": "sum by (change) (increase(aliquot_scheduler_lease_changes_total[$__rate_interval]))"}),
    ]),
]
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name, query):
    return {"name": name, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}, "refresh": 2,
            "includeAll": True, "multi": True, "allValue": ".*", "current": {"text": "All", "value": "$__all"}}


def panel(number, one, place):
    targets = [{"refId": chr(65 + i), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto",
                "instant": one.kind != "timeseries", "range": one.kind == "timeseries"}
               for i, (legend, expression) in enumerate(one.targets.items())]
    return {"id": number, "title": one.title, "type": one.kind, "datasource": SOURCE, "gridPos": place,
            "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []}, "targets": targets}


def places(panels):
    """Four numbers in a row, or two graphs."""
    x = y = height = 0
    for one in panels:
        width, tall = (6, 4) if one.kind == "stat" else (12, 8)
        if x + width > 24 or (height and tall != height):
            x, y = 0, y + height
        yield {"x": x, "y": y, "w": width, "h": tall}
        x, height = x + width, tall


def model(one):
    """The dashboard as Grafana imports it."""
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {"uid": f"aliquot-{one.name}", "title": one.title, "tags": ["aliquot"], "schemaVersion": 39, "editable": True,
            "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "timezone": "",
            "templating": {"list": [source, *(variable(name, query) for name, query in one.variables.items())]},
            "panels": [panel(number, *pair) for number, pair in enumerate(zip(one.panels, places(one.panels)), 1)]}


def as_text(one):
    """JSON with a line for each panel."""
    whole = model(one)
    panels = ",\n".join(json.dumps(each, ensure_ascii=False) for each in whole["panels"])
    head = json.dumps({**whole, "panels": []}, ensure_ascii=False)
    return head.replace('"panels": []', f'"panels": [\n{panels}]')


def config_maps(namespace):
    """All of them as YAML."""
    made = []
    for one in DASHBOARDS:
        text = as_text(one).replace("\n", "\n    ")
        made.append(f"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: aliquot-dashboard-{one.name}\n  namespace: {namespace}\n"
                    f"  labels:\n    app.kubernetes.io/part-of: aliquot\n    grafana_dashboard: \"1\"\n"
                    f"data:\n  aliquot-{one.name}.json: |-\n    {text}")
    return "\n---\n".join(made)
