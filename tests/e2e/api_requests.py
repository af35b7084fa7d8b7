# SPDX-License-Identifier: Apache-2.0
"""Requests of a service account, counted by the API server: a FlowSchema matches them alone."""

import time

import kit

FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
COUNTER = "apiserver_flowcontrol_dispatched_requests_total"
WRITES = ["create", "update", "patch", "delete", "deletecollection"]
READS = ["get", "list", "watch"]


class Requests:
    """with Requests(api, account): counts what a service account requests. A watch counts when it begins."""

    def __init__(self, api, account):
        self.api = api
        self.account = account
        self.names = {}         # {kind of request: FlowSchema}

    def __enter__(self):
        for kind, verbs in (("writes", WRITES), ("reads", READS)):
            self.names[kind] = f"{self.account}-{kind}"
            self.api.create(FLOWS, {"metadata": {"name": self.names[kind]}, "spec": {
                "matchingPrecedence": 100, "priorityLevelConfiguration": {"name": "workload-high"},
                "rules": [{
                    "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"namespace": kit.SYSTEM, "name": self.account}}],
                    "resourceRules": [{"verbs": verbs, "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
                                       "clusterScope": True}]}]}})
        return self

    def __exit__(self, *exc):
        for name in self.names.values():
            self.api.delete(f"{FLOWS}/{name}")

    def counts(self):
        """{kind of request: number so far}."""
        found = dict.fromkeys(self.names, 0)
        for (name, labels), count in kit.parse_metrics(self.api.raw("GET", "/metrics")[1].decode()).items():
            for kind, schema in self.names.items():
                if name == COUNTER and dict(labels)["flow_schema"] == schema:
                    found[kind] += int(count)
        return found

    def wait_rest(self, calm, timeout):
        """Until the account has requested nothing for so many seconds."""
        deadline, seen, since = time.monotonic() + timeout, self.counts(), time.monotonic()
        while time.monotonic() - since < calm:
            assert time.monotonic() < deadline, f"{self.account} is not at rest within {timeout} s: {seen}"
            time.sleep(0.5)
            now = self.counts()
            if now != seen:
                seen, since = now, time.monotonic()
