# SPDX-License-Identifier: Apache-2.0
"""/usage and /history of an agent name the pods of all namespaces: they are for clients with the right to get gpus/usage,
and for no tenant."""

import base64
import contextlib
import http.client
import json
import re
import signal
import subprocess
import time

import pytest

from cluster import api as kube
from kit import SYSTEM, ApiError
from test_oversee import agent_options

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OURS = {"audiences": ["aliquot-agent"]}
PAGES = ("/usage", "/history")


def asked(world, path, token=None, header="Authorization"):
    """(status, text) for a client of the node's port."""
    given = {} if token is None else {header: token if header != "Authorization" else "Bearer " + token}
    connection = http.client.HTTPConnection("aliquot", timeout=10)
    connection.sock = world.cluster.connect(9400, "127.0.0.1", 10)
    with contextlib.closing(connection):
        connection.request("GET", path, headers=given)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def proxied(world, path, token):
    """The status for a client that asks by pods/proxy."""
    api = world.api.with_token(token)
    return api.raw("GET", f"{kube.pods(SYSTEM, world.agent.pod()['metadata']['name'])}:9400/proxy{path}")[0]


@pytest.fixture
def account(space):
    """Makes ServiceAccounts, and binds roles to them: (kind and name of a role, in a namespace; None: in the cluster)."""
    made = []

    def make(name, *roles):
        space.api.create(kube.core("serviceaccounts", space.name), {"metadata": {"name": name}})
        for number, (kind, role, namespace) in enumerate(roles):
            where = f"{RBAC}/namespaces/{namespace}/rolebindings" if namespace else f"{RBAC}/clusterrolebindings"
            binding = {"metadata": {"name": f"{space.name}-{name}-{number}"},
                       "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
                       "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space.name}]}
            space.api.create(where, binding)
            made.append(f"{where}/{binding['metadata']['name']}")
        return name
    yield make
    for path in made:
        space.api.delete(path)


def viewer_of(space, account):
    return account("viewer", ("Role", "aliquot-viewer", SYSTEM), ("ClusterRole", "aliquot-gpu-viewer", None))


def aliquot_as(world, token, *words):
    """`aliquot` with the login of an account."""
    with open(world.node_path("/etc/kubernetes/admin.conf")) as file:
        config = re.sub(r'("?token"?: *"?)[0-9a-f]+', lambda found: found[1] + token, file.read())
    assert token in config
    with open(world.node_path("/run/account.conf"), "w") as file:
        file.write(config)
    return world.cluster.on_node(["env", "KUBECONFIG=/run/account.conf", str(world.build / "src/cli/aliquot"), *words], check=False)


# ---- tenants ----

def test_a_tenant_reaches_no_figures(world, space, account):
    """With `edit` in a namespace it makes tokens of its accounts, for agents too, and accounts of any name."""
    tenant = account("tenant", ("ClusterRole", "edit", space.name))
    account("aliquot-figures")
    api = world.api.with_token(world.token(space.name, tenant))
    own = kube.core("serviceaccounts", space.name, tenant) + "/token"
    tokens = world.until(lambda: [api.create(own, {"spec": OURS})["status"]["token"]], 10, "the rights of edit")
    tokens += [api.token, world.token(space.name, "aliquot-figures", **OURS)]
    for page in PAGES:
        assert asked(world, page)[0] == 401
        for token in tokens:
            for header in ("Authorization", "X-Aliquot-Token"):
                status, text = asked(world, page, token, header)
                assert status == 403 and "aliquot-figures" in text and token not in text, text
            assert proxied(world, page, token) in (401, 403)
    with pytest.raises(ApiError) as refused:
        api.create(kube.core("serviceaccounts", SYSTEM, "aliquot-figures") + "/token", {"spec": OURS})
    assert refused.value.code == 403
    for open_page in ("/healthz", "/readyz", "/livez", "/metrics", "/"):
        assert asked(world, open_page)[0] == 200


# ---- tokens ----

def part(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def openssl(*words, **how):
    return subprocess.run(["openssl", *words], check=True, capture_output=True, **how).stdout


def signed(token, key, **changes):
    """The token with other claims, signed by the key of a file (ES256: both numbers of the signature, of 32 bytes each)."""
    head, payload, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    text = f"{head}.{part(json.dumps({**claims, **changes}).encode())}"
    der = openssl("dgst", "-sha256", "-sign", key, input=text.encode())
    first = 4 + der[3]
    numbers = der[4:first], der[first + 2:]
    return text + "." + part(b"".join(number.lstrip(b"\0").rjust(32, b"\0") for number in numbers))


def test_tokens_that_are_not_taken(world, space, tmp_path):
    """Of another audience, signer or time, of an object that is gone, and what is no token."""
    good = world.token(SYSTEM, "aliquot-figures", **OURS)
    ours, theirs = world.node_path("/etc/kubernetes/sa.key"), tmp_path / "theirs"
    openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", theirs)
    secret = world.api.create(kube.core("secrets", SYSTEM), {"metadata": {"name": space.name}})
    bound = world.token(SYSTEM, "aliquot-figures", **OURS, boundObjectRef={
        "apiVersion": "v1", "kind": "Secret", "name": space.name, "uid": secret["metadata"]["uid"]})
    world.api.delete(kube.core("secrets", SYSTEM, space.name))
    now = int(time.time())
    bad = [world.token(SYSTEM, "aliquot-figures", audiences=["vault"]), bound, signed(good, theirs),
           signed(good, ours, iat=now - 700, nbf=now - 700, exp=now - 100), good[:-4] + "AAAA", "garbage", "x" * 20000, '{"a": 1}']
    for page in PAGES:
        assert asked(world, page, good)[0] == asked(world, page, signed(good, ours))[0] == 200
        for token in bad:
            status, text = asked(world, page, token)
            assert status == 401 and "does not take this token" in text and token not in text, (token, text)
    log = world.cluster.kubectl("logs", "-n", SYSTEM, "ds/aliquot-agent")
    assert not any(word in log for token in (good, *bad[:5]) for word in token.split("."))


def test_accounts_of_the_api_servers_audience(world, space, account):
    """Prometheus has such a token, and the right by ClusterRole aliquot-figures."""
    token = world.token(space.name, account("prometheus", ("ClusterRole", "aliquot-figures", None)))
    world.until(lambda: asked(world, "/usage", token)[0] == 200, 20, "the right")
    assert asked(world, "/history", token, "X-Aliquot-Token")[0] == 200
    with agent_options(world, "--metrics-auth=token"):
        assert asked(world, "/metrics")[0] == 401
        status, text = asked(world, "/metrics", token)
        assert status == 200 and "aliquot_gpu_memory_total_bytes" in text
    with agent_options(world, "--usage-auth=none"):
        assert asked(world, "/usage")[0] == asked(world, "/history")[0] == 200


def test_the_scheduler_may_ask(world):
    """The token in its pods is of the pod's account."""
    account = "aliquot-kube-scheduler" if world.cluster.stock_scheduler else "aliquot-scheduler"
    assert asked(world, "/usage", world.token(SYSTEM, account, **OURS))[0] == 200
    (volume,) = [v for v in world.scheduler.pods()[0]["spec"]["volumes"] if v["name"] == "agent-token"]
    assert volume["projected"]["sources"][0]["serviceAccountToken"]["audience"] == "aliquot-agent"


# ---- the command line ----

def test_aliquot_as_a_viewer(world, space, account):
    viewer = world.token(space.name, viewer_of(space, account))
    world.until(lambda: not aliquot_as(world, viewer, "gpus").stderr, 20, "the rights of a viewer")
    shown = aliquot_as(world, viewer, "gpus")
    assert shown.returncode == 0 and "Healthy" in shown.stdout and "no answer" not in shown.stdout, shown
    cards = world.token(space.name, account("cards", ("ClusterRole", "aliquot-gpu-viewer", None), ("ClusterRole", "view", SYSTEM)))
    shown = world.until(lambda: [s for s in (aliquot_as(world, cards, "gpus"),) if s.returncode == 0], 20, "the rights to cards")[0]
    assert "Healthy" in shown.stdout and len(shown.stderr.splitlines()) == 1, shown
    assert f"kubectl create rolebinding viewers -n {SYSTEM} --role=aliquot-viewer" in shown.stderr


# ---- bad days ----

def test_while_the_api_server_is_away(world):
    """A verdict is used for its minute; about another token the agent says what is wrong, at once or nearly."""
    known, other = (world.token(SYSTEM, "aliquot-figures", **OURS) for _ in range(2))
    assert asked(world, "/usage", known)[0] == 200
    world.cluster.stop("kube-apiserver", signal.SIGKILL)
    try:
        assert asked(world, "/usage", known)[0] == 200
        status, text = asked(world, "/usage", other)
        assert status == 503 and "the token cannot be checked" in text, text
    finally:
        world.cluster.start("kube-apiserver")
    world.until(lambda: asked(world, "/usage", other)[0] == 200, 60, "the other token")


def test_an_agent_without_the_right_to_ask(world):
    """As after new images without new manifests: it says so, and so does doctor."""
    path = f"{RBAC}/clusterroles/aliquot-agent"
    role = world.api.get(path)
    rules = [rule for rule in role["rules"] if "tokenreviews" not in rule["resources"]]
    assert len(rules) < len(role["rules"])
    fresh = (world.token(SYSTEM, "aliquot-figures", **OURS) for _ in range(1000))
    world.api.patch(path, {"rules": rules})
    try:
        text = world.until(lambda: [seen[1] for seen in (asked(world, "/usage", next(fresh)),) if seen[0] == 503], 20, "no right")
        assert "ClusterRole aliquot-agent" in text[0]
        found = world.until(lambda: [t for t in world.doctor()["nodes", "wrong"] if "TokensNotReviewed" in t], 20, "doctor's word")
        assert "ClusterRole aliquot-agent" in found[0]
    finally:
        world.api.patch(path, {"rules": role["rules"]})
    world.until(lambda: asked(world, "/usage", next(fresh))[0] == 200, 20, "the right again")
