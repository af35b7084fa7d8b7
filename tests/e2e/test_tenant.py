# SPDX-License-Identifier: Apache-2.0
"""What an account sees that has `edit` in one namespace: by every command that reads a cluster, by every page and by the API
server. Its own pods, and no name of another namespace. The agents' pages are also in test_usage_access.py, the APIs for
autoscalers in test_autoscaling.py, the web page in test_web_view.py."""

import contextlib
import http.client
import shlex

import pytest

import kit
from cluster import api as kube
from kit import CARD, CORE, GiB, container, pod
from test_gates import set_quota
from test_usage_access import aliquot_as, asked, proxied

GROUP = "/apis/elasticgpu.io/v1alpha1"
SECRET = "secret"       # in every name of the other namespace


class Tenant:
    def __init__(self, world, own, other):
        self.world, self.own, self.other = world, own, other
        self.token = world.token(own.name, "tenant")
        self.api = world.api.with_token(self.token)
        self.card = world.gpus()[0]["metadata"]["name"]

    def filled(self, text):
        return text.format(own=self.own.name, other=self.other.name, card=self.card, node=self.world.cluster.node)

    def check(self, text):
        """No name of the other namespace's."""
        assert self.other.name not in text and SECRET not in text, text


@pytest.fixture(scope="module")
def tenant(world):
    """Of two namespaces, each with a pod on one card, a pod that waits, and a quota in the same cohort."""
    with contextlib.ExitStack() as stack:
        own, other = (stack.enter_context(kit.temporary_space(world)) for _ in range(2))
        for space, prefix in ((own, "my"), (other, SECRET)):
            set_quota(space, guaranteed={CORE: "100"}, max={CORE: "150"}, cohort=own.name)
            space.start(pod(f"{prefix}-pod", container(core=20, memory=4 * GiB)))
            space.create(pod(f"{prefix}-large", container(core=10, memory=2 * CARD)), pod(f"{prefix}-gated", container(core=200)))
        own.unschedulable("my-large")
        own.unschedulable("my-gated")
        kubectl = world.cluster.kubectl
        kubectl("create", "serviceaccount", "tenant", "-n", own.name)
        kubectl("create", "rolebinding", "tenant", "-n", own.name, "--clusterrole=edit", f"--serviceaccount={own.name}:tenant")
        made = Tenant(world, own, other)
        world.until(lambda: made.api.raw("GET", own.path)[0] == 200, 20, "the rights of edit")
        yield made
        for space in (own, other):      # each is left only when nothing is allocated any more
            space.api.delete(space.path, gracePeriodSeconds=1)


# Each with a word that is to be seen; None: the account has no right to any of it.
COMMANDS = [
    ("gpus", None), ("gpus -n {own}", "my-pod"), ("gpus -o json", None), ("gpus -n {other}", None),
    ("inspect", None), ("inspect node", None), ("inspect card {card}", None), ("inspect pod", None), ("inspect pod -n {own}", None),
    ("inspect namespace", None), ("inspect memory", None), ("inspect pod -n {other}", None),
    ("explain my-pod -n {own}", "my-pod"), ("explain my-large -n {own}", "my-large"), ("explain my-gated -n {own} -o json", "my-gated"),
    ("explain secret-pod -n {other}", None),
    ("top --once", None), ("top --once -n {own}", "GPU"), ("top --once --view containers -n {own}", "my-pod"), ("top --once --view waiting -n {own}", None), ("top --once --view containers", None),
    ("recommend", None), ("recommend -n {own}", None), ("recommend -n {other}", None),
    ("plan --capacity", None), ("defrag --plan", None), ("doctor", None), ("doctor --json", None),
]


@pytest.mark.parametrize("command,word", COMMANDS, ids=[command for command, _ in COMMANDS])
def test_commands(tenant, command, word):
    done = aliquot_as(tenant.world, tenant.token, *shlex.split(tenant.filled(command)))
    text = done.stdout + done.stderr
    # What the user has typed may be in the answer.
    for typed in ("secret-pod", tenant.other.name) if "{other}" in command else ():
        text = text.replace(typed, "")
    tenant.check(text)
    assert done.stdout.strip() or done.stderr.strip()
    assert word is None or (done.returncode == 0 and word in done.stdout), done


@pytest.mark.parametrize("command", ["card drain {card}", "card reset {card}", "node release {node}", "uninstall --yes"])
def test_commands_that_change_the_cluster(tenant, command):
    before = [gpu["metadata"].get("annotations") for gpu in tenant.world.gpus()]
    done = aliquot_as(tenant.world, tenant.token, *shlex.split(tenant.filled(command)))
    assert done.returncode != 0, done
    tenant.check(done.stdout + done.stderr)
    assert [gpu["metadata"].get("annotations") for gpu in tenant.world.gpus()] == before


REFUSED = [f"{GROUP}/gpus", f"{GROUP}/gpus/{{card}}", f"{GROUP}/elasticgpureservations", f"{GROUP}/elasticgpus",
           f"{GROUP}/elasticgpuclaims", f"{GROUP}/elasticgpuquotas", f"{GROUP}/namespaces/{{other}}/elasticgpuclaims",
           f"{GROUP}/namespaces/{{other}}/elasticgpuquotas", "/api/v1/namespaces/{other}/pods", "/api/v1/namespaces/{other}/events",
           "/api/v1/pods", "/api/v1/nodes/{node}", "/api/v1/namespaces/aliquot-system/pods", "/api/v1/namespaces/default/events"]
READ = [f"{GROUP}/namespaces/{{own}}/elasticgpuclaims", f"{GROUP}/namespaces/{{own}}/elasticgpuquotas",
        "/api/v1/namespaces/{own}/pods", "/api/v1/namespaces/{own}/events"]


@pytest.mark.parametrize("path", REFUSED)
def test_objects_of_others(tenant, path):
    status, content = tenant.api.raw("GET", tenant.filled(path))
    assert status == 403, content
    if "{other}" not in path:
        tenant.check(content.decode())


@pytest.mark.parametrize("path", READ)
def test_objects_of_its_own(tenant, path):
    """Assignments, Events and what a quota says of its cohort among them."""
    status, content = tenant.api.raw("GET", tenant.filled(path))
    assert status == 200
    tenant.check(content.decode())
    assert "pods" not in path or "my-pod" in content.decode()


@pytest.mark.parametrize("page", ["/usage", "/history", "/healthz", "/readyz", "/livez", "/"])
def test_pages_of_the_agent(tenant, page):
    status, text = asked(tenant.world, page, tenant.token)
    assert status == (403 if page in ("/usage", "/history") else 200)
    tenant.check(text)
    assert proxied(tenant.world, page, tenant.token) == 403


@pytest.mark.parametrize("page", ["/", "/status", "/explain?namespace={other}&pod=secret-large", "/metrics"])
def test_pages_of_the_scheduler(tenant, page):
    """At the port that pods reach: its figures, which count pods by namespace and name none."""
    connection = http.client.HTTPConnection("aliquot", timeout=10)
    connection.sock = kit.Scheduler(tenant.world, "aliquot-scheduler", 9403).connect()
    with contextlib.closing(connection):
        connection.request("GET", tenant.filled(page))
        answer = connection.getresponse()
        text = answer.read().decode()
    assert answer.status == (200 if page == "/metrics" else 404), text
    assert f"{SECRET}-" not in text
