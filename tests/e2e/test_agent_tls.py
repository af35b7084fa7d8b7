# SPDX-License-Identifier: Apache-2.0
"""Agents that serve HTTPS with certificates of Aliquot's authority (deploy/agent-tls): who gets one, who may read, rotation
and revocation."""

import base64
import contextlib
import http.client
import json
import secrets
import ssl
import subprocess

import kit
import monitoring
import pytest
import yaml
from cluster import aliquot
from cluster import api as kube
from cluster.cluster import Cluster
from kit import SYSTEM, ApiError
from test_autoscaling import metric, wait_available
from test_oversee import agent_options
from test_usage_access import account, aliquot_as, viewer_of     # noqa: F401  (fixture)
from test_web_tenants import Relay, reading, replicas, sign_in
from test_web_tenants import page as deployed     # noqa: F401  (fixture)
from test_web_view import look
from web_page import browser

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIGNER = "elasticgpu.io/agent"
ALL = "agents.elasticgpu.io"
SERVER = ["digital signature", "server auth"]
CHECKED = 90        # seconds in which each replica has looked at its authority


@contextlib.contextmanager
def secure_world(build, name):
    """A node whose agent has a certificate of the authority."""
    with Cluster(f"{name}-{secrets.token_hex(2)}", say=lambda text: print(text, flush=True)) as cluster:
        cluster.up()
        aliquot.install(cluster, str(build), gpus=2, programs=[build / "tests/e2e/probe", build / "tests/workloads/gpu-spin"],
                        deploy=aliquot.with_components(cluster, "metrics-api", "agent-tls"))
        installed = kit.World(cluster, build)
        wait_available(installed, 60)
        installed.until(lambda: is_answered(installed), 60, "a certificate of the authority")
        yield installed
        installed.wait_cleared()


@pytest.fixture(scope="module")
def world(build):
    with secure_world(build, "agent-tls") as installed:
        yield installed


# ---- the port ----

def is_answered(world):
    status, text = page(world, "/metrics")
    assert status == 200, text
    return "aliquot_gpu" in text


def authorities(world):
    return world.api.get(kube.core("configmaps", SYSTEM, "aliquot-authority"))["data"]["ca.crt"]


def own(world):
    return f"{world.cluster.node}.{ALL}"


@contextlib.contextmanager
def connected(world, name, trusted=None, client=None):
    """A connection to the agent's port; client: files of a certificate and of its key."""
    context = ssl.create_default_context(cadata=trusted or authorities(world))
    if client:
        context.load_cert_chain(*client)
    with world.cluster.connect(9400, "127.0.0.1", 10) as plain, context.wrap_socket(plain, server_hostname=name) as secure:
        yield secure


def page(world, path, name=None, headers=None, **how):
    """(status, text); (None, the reason) where the agent is not trusted, or does not like the client."""
    connection = http.client.HTTPConnection("aliquot", timeout=10)
    try:
        with connected(world, name or own(world), **how) as connection.sock:
            connection.request("GET", path, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
    except (ssl.SSLError, ConnectionError, ApiError) as error:
        return None, str(error)


def shown(world):
    """The certificate that the agent shows, verified by none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with world.cluster.connect(9400, "127.0.0.1", 10) as plain, context.wrap_socket(plain) as secure:
        return secure.getpeercert(True)


def requests(world):
    seen = world.api.get(f"{REQUESTS}?fieldSelector=spec.signerName%3D{SIGNER.replace('/', '%2F')}")["items"]
    return {one["metadata"]["name"]: one for one in seen}


# ---- certificates of the test's own ----

def openssl(*words, **how):
    return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, **how).stdout


def new_key(place):
    openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", place)
    return place


def decoded(secret, key):
    return base64.b64decode(secret["data"][key]).decode()


def secret_of(world):
    return world.api.get(kube.core("secrets", SYSTEM, "aliquot-webhook"))


def client_of(secret, place, name="aliquot-scheduler"):
    """Files of a client's certificate by the authority of that Secret, as a holder of its key can make it."""
    place.mkdir()
    (place / "ca.crt").write_text(decoded(secret, "ca.crt"))
    (place / "ca.key").write_text(decoded(secret, "ca.key"))
    (place / "ext").write_text("extendedKeyUsage=clientAuth\n")
    openssl("req", "-new", "-key", new_key(place / "key"), "-subj", f"/CN={name}", "-out", place / "csr")
    openssl("x509", "-req", "-in", place / "csr", "-CA", place / "ca.crt", "-CAkey", place / "ca.key", "-days", "1",
            "-CAcreateserial", "-extfile", place / "ext", "-out", place / "crt")
    return place / "crt", place / "key"


# ---- figures ----

@pytest.fixture
def share(world, space):
    """The name of a pod with a share, whose figures come by the scheduler, which asks the agent."""
    seen = kit.pod("load", kit.container(core=10, memory=kit.GiB))
    seen["metadata"]["labels"] = {"app": "load"}
    space.create(seen)
    space.wait("load", kit.is_running)
    return "load"


def figures(world, space):
    return metric(world, space, "gpu_memory_used_bytes")


def wait_figures(world, space, timeout=30):
    """Of now: those from before have been forgotten after a second."""
    world.until(lambda: figures(world, space), timeout, "figures of the pod")


# ---- the path ----

def test_the_agent_is_known_by_its_certificate(world, space, share):
    for name in (own(world), ALL):
        assert page(world, "/readyz", name) == (200, "ok\n")
    for other in (f"other.{ALL}", world.cluster.node, "aliquot-webhook.aliquot-system.svc"):
        status, why = page(world, "/readyz", other)
        assert status is None and "mismatch" in why, why
    connection = http.client.HTTPConnection("aliquot", timeout=10)
    connection.sock = world.cluster.connect(9400, "127.0.0.1", 10)
    with contextlib.closing(connection), pytest.raises((http.client.HTTPException, ConnectionError)):
        connection.request("GET", "/metrics")
        connection.getresponse()
    (mine,) = [one for one in requests(world).values() if one["status"].get("certificate")]
    assert mine["spec"]["username"] == f"system:serviceaccount:{SYSTEM}:aliquot-agent" and mine["spec"]["usages"] == SERVER
    wait_figures(world, space)
    assert not [line for line in world.doctor()["nodes", "wrong"] if "NoCertificate" in line]


def test_the_command_line(world, space, share, account):     # noqa: F811
    """By pods/proxy, with https: before the pod's name."""
    viewer = world.token(space.name, viewer_of(space, account))
    world.until(lambda: not aliquot_as(world, viewer, "gpus").stderr, 20, "the rights of a viewer")
    told = aliquot_as(world, viewer, "gpus")
    assert told.returncode == 0 and "Healthy" in told.stdout and "no answer" not in told.stdout, told
    assert json.loads(world.aliquot("gpus", "-o", "json"))


def use_of(lines, uid):
    """(card, bytes) of a pod with one share, by the lines of a page."""
    (card,) = [one["name"] for key, line in lines.items() if key[:2] == "c/" for one in line["cards"] for h in one["h"] if h["uid"] == uid]
    used = [h["used"] for key, line in lines.items() if key[:2] == "u/" for one in line["cards"] for h in one["h"] if h["uid"] == uid]
    return card, sum(used)


def test_the_page_of_a_cluster(world, space, deployed, account, tmp_path):     # noqa: F811
    """On the user's machine, and as a Deployment in a browser: what a container uses, by an agent that speaks HTTPS only."""
    busy = space.start(kit.pod("busy", kit.container(core=20, memory=4 * kit.GiB, argv=["gpu-spin", "1000000"])))
    uid, history = busy["metadata"]["uid"], f"/api/history?node={world.cluster.node}&namespace={space.name}&pod=busy"
    assert world.agent.pod()["metadata"]["annotations"]["prometheus.io/scheme"] == "https" and page(world, "/readyz")[0] == 200

    def told():
        text = page(world, "/usage", headers={"Authorization": "Bearer " + world.figures_token()})[1]
        return sum(one["memoryDriver"] for one in kit.holders(json.loads(text)).get(("busy", "main"), []))
    world.until(told, 30, "memory of the pod")
    lines, _ = look(world)
    card, used = use_of(lines, uid)
    assert lines["state"]["trouble"] == [] and lines["state"]["silent"] == 0 and used == told() > 0
    world.until(lambda: [one["podUID"] for one in json.loads(look(world, paths=[history])[1][0])["containers"]] == [uid], 60,
                "a first step of its history")

    token = world.token(space.name, viewer_of(space, account))
    for address in replicas(world):
        world.until(lambda: reading(world, address, token).get(f"u/{world.cluster.node}"), 20, "the rights of a viewer")
        assert use_of(reading(world, address, token), uid) == (card, used)
    relay, shown = Relay(world), browser(tmp_path)
    try:
        sign_in(shown, relay, "#/card/" + card, token)
        row = f"[...document.querySelectorAll('tr')].find((r) => r.innerText.includes('{space.name}/busy'))"
        world.until(lambda: shown.execute_script(f"return {row}?.cells[5].innerText.endsWith('iB')"), 30, "its use")
        world.until(lambda: shown.execute_script("return document.querySelectorAll('.history .chart').length") == 2, 30, "its last hour")
    finally:
        shown.quit()
        relay.server.close()


def test_who_may_read(world, tmp_path):
    secret = secret_of(world)
    assert page(world, "/usage")[0] == 401
    assert page(world, "/usage", headers={"Authorization": "Bearer " + world.figures_token()})[0] == 200
    for path in ("/usage", "/history"):
        assert page(world, path, client=client_of(secret, tmp_path / path[1:]))[0] == 200
    assert page(world, "/usage", client=client_of(secret, tmp_path / "other", "other"))[0] == 401
    openssl("req", "-x509", "-key", new_key(tmp_path / "key"), "-subj", "/CN=aliquot-scheduler", "-out", tmp_path / "crt")
    assert page(world, "/usage", client=(tmp_path / "crt", tmp_path / "key"))[0] == 401
    # What the authority has signed for servers serves no client.
    (tmp_path / "tls.crt").write_text(decoded(secret, "tls.crt"))
    (tmp_path / "tls.key").write_text(decoded(secret, "tls.key"))
    assert page(world, "/usage", client=(tmp_path / "tls.crt", tmp_path / "tls.key"))[0] == 401


def test_memory_of_the_agent(world):
    """After many handshakes; what GnuTLS takes for one is given back."""
    pid = world.first_process(world.agent.status(world.agent.pod()))

    def resident():
        (line,) = [one for one in world.cluster.on_node(["cat", f"/proc/{pid}/status"]).stdout.splitlines() if one.startswith("VmRSS:")]
        return int(line.split()[1]) * 1024
    for _ in range(50):
        assert page(world, "/metrics")[0] == 200
    world.until(lambda: resident() <= 9 << 20, 30, "9 MiB resident")


# ---- Prometheus ----

def example(name):
    """The objects of an example of deploy/monitoring by their kinds."""
    return {one["kind"]: one for one in yaml.safe_load_all((monitoring.MONITORING / f"examples/{name}.yaml").read_text())}


@pytest.fixture
def with_token(world):
    """Agents whose metrics ask for a token, and the PodMonitor for both."""
    tls, token = example("agent-tls")["PodMonitor"], example("metrics-token")
    path = kube.core("secrets", SYSTEM)
    world.api.create(path, token["Secret"])
    name = token["Secret"]["metadata"]["name"]
    world.api.wait(path, name, lambda seen: "token" in seen.get("data", {}), 30, "the token")
    tls["spec"]["podMetricsEndpoints"][0] |= token["PodMonitor"]["spec"]["podMetricsEndpoints"][0]
    with agent_options(world, "--metrics-auth=token"):
        yield tls
    world.api.delete(f"{path}/{name}")


def failure(prometheus):
    """Of the last scrape of the agent."""
    (agent,) = [one for one in prometheus.get("/api/v1/targets", state="active")["activeTargets"]
                if one["labels"]["job"] == "aliquot-agent"]
    return agent["lastError"]


def test_prometheus(world, space, share, with_token, tmp_path):
    """Figures come with the authority and the token of the examples, and with neither alone."""
    openssl("req", "-x509", "-key", new_key(tmp_path / "key"), "-subj", "/CN=aliquot-ca", "-out", tmp_path / "crt")
    memory = f'aliquot_container_memory_used_bytes{{pod="{share}",namespace="{space.name}"}}'
    with monitoring.running(world, agents=with_token) as prometheus:
        world.until(lambda: prometheus.query(memory), 20, "figures of the pod")
        for name, wrong, words in (("ca.crt", (tmp_path / "crt").read_text(), "x509"), ("token", "wrong", "401")):
            file = prometheus.state / name
            right = file.read_text()
            file.write_text(wrong)
            world.until(lambda words=words: words in failure(prometheus), 20, f"a scrape with another {name} fails", pause=0.2)
            assert prometheus.query('up{job="aliquot-agent"}')[0][1] == 0
            file.write_text(right)
            world.until(lambda: not failure(prometheus), 20, "scrapes again", pause=0.2)


# ---- who gets a certificate ----

def ask(world, api, tmp_path, name, usages=SERVER, extra=()):
    """Requests a certificate; what has come of it: (condition, message, certificate)."""
    openssl("req", "-new", "-key", new_key(tmp_path / "k"), "-subj", f"/CN={name}", *extra, "-out", tmp_path / "r")
    made = api.create(REQUESTS, {
        "metadata": {"generateName": "test-"},
        "spec": {"signerName": SIGNER, "usages": usages, "request": base64.b64encode((tmp_path / "r").read_bytes()).decode()}})
    path = f"{REQUESTS}/{made['metadata']['name']}"

    def done():
        status = world.api.get(path).get("status", {})
        (condition,) = status.get("conditions") or [{"type": "", "message": ""}]
        if condition["type"] == "Denied" or status.get("certificate"):
            return [(condition["type"], condition["message"], status.get("certificate"))]
        return []
    return world.until(done, 20, "an answer of the authority")[0]


def test_a_tenant_gets_no_certificate(world, space, account, tmp_path):     # noqa: F811
    """With `edit` in a namespace; not even where an administrator has given it the right to request some."""
    name = account("aliquot-agent", ("ClusterRole", "edit", space.name))
    tenant = world.api.with_token(world.token(space.name, name))
    world.until(lambda: tenant.get(space.path)["kind"] == "PodList", 10, "the rights of edit")
    with pytest.raises(ApiError) as refused:
        ask(world, tenant, tmp_path, world.cluster.node)
    assert refused.value.code == 403
    for token in (tenant.token, world.token(space.name, name, audiences=["aliquot-agent"])):
        assert page(world, "/usage", headers={"Authorization": "Bearer " + token})[0] == 403
    account("requester", ("ClusterRole", "aliquot-agent-tls", None))
    allowed = world.api.with_token(world.token(space.name, "requester"))
    kind, why, cert = world.until(lambda: [ask(world, allowed, tmp_path, world.cluster.node)], 20, "the right")[0]
    assert kind == "Denied" and "it is not of system:serviceaccount:aliquot-system:aliquot-agent" in why and not cert


def test_only_the_agent_of_the_node(world, tmp_path):
    node = world.cluster.node
    agent = world.agent.pod()["metadata"]
    unbound = world.api.with_token(world.token(SYSTEM, "aliquot-agent"))
    bound = world.api.with_token(world.token(SYSTEM, "aliquot-agent", boundObjectRef={
        "apiVersion": "v1", "kind": "Pod", "name": agent["name"], "uid": agent["uid"]}))
    for api, name, usages, extra, reason in (
            (world.api, node, SERVER, (), "it is not of"),
            (unbound, node, SERVER, (), "not bound to a node"),
            (bound, "other", SERVER, (), "other names"),
            (bound, node, [*SERVER, "client auth"], (), "client auth"),
            (bound, node, SERVER, ("-addext", "subjectAltName=DNS:aliquot-webhook.aliquot-system.svc"), "other names")):
        kind, why, cert = ask(world, api, tmp_path, name, usages, extra)
        assert kind == "Denied" and reason in why and not cert, why
    kind, _, cert = ask(world, bound, tmp_path, node)
    assert kind == "Approved"
    text = openssl("x509", "-noout", "-text", input=base64.b64decode(cert)).decode()
    assert f"DNS:{node}.{ALL}, DNS:{ALL}\n" in text and "TLS Web Server Authentication\n" in text and "CA:FALSE" in text


# ---- restarts ----

def test_restart_of_the_agent(world, space, share):
    """It goes on with the certificate that it has."""
    before, asked = shown(world), len(requests(world))
    world.agent.kill()
    world.until(lambda: figures(world, space), 60, "figures of the pod")
    aliquot.wait_agents(world.cluster)
    assert shown(world) == before and len(requests(world)) == asked


def test_restart_of_the_scheduler(world, space, share):
    """Another certificate as a client, by the same authority."""
    before, trusted = shown(world), authorities(world)
    world.scheduler.kill()
    wait_available(world, 60)
    wait_figures(world, space, 60)
    assert shown(world) == before and authorities(world) == trusted


# ---- the authority ----

def wait_known(world, client):
    world.until(lambda: page(world, "/usage", client=client)[0] == 200, CHECKED, "the agent knows the client's authority")


def test_rotation(world, space, share, tmp_path):
    """An authority that ends within a year gets a successor, and both are trusted: no certificate changes for it."""
    secret, before, asked = secret_of(world), shown(world), len(requests(world))
    openssl("req", "-x509", "-key", new_key(tmp_path / "key"), "-subj", "/CN=aliquot-ca-old", "-days", "300",
            "-addext", "keyUsage=critical,keyCertSign", "-out", tmp_path / "crt")
    old = (tmp_path / "crt").read_text()
    key = openssl("pkcs8", "-topk8", "-nocrypt", "-in", tmp_path / "key").decode()
    world.api.patch(kube.core("secrets", SYSTEM, "aliquot-webhook"),
                    {"stringData": {"ca.crt": old + decoded(secret, "ca.crt"), "ca.key": key}})
    world.until(lambda: old in authorities(world) and not authorities(world).startswith(old), CHECKED, "a successor")
    assert authorities(world).count("BEGIN CERTIFICATE") >= 3
    assert shown(world) == before and len(requests(world)) == asked
    wait_figures(world, space)
    assert page(world, "/readyz")[0] == 200
    # Who has a certificate of the former authority is known still, who has one of the new one as well.
    # The agent may see the new list of authorities later than the test.
    for number, one in enumerate((secret, secret_of(world))):
        wait_known(world, client_of(one, tmp_path / str(number)))


def test_revocation(world, space, share, tmp_path):
    """Without its Secret there is a new authority, and what the former one has signed is worth nothing."""
    before, trusted, stolen = shown(world), authorities(world), client_of(secret_of(world), tmp_path / "stolen")
    wait_known(world, stolen)
    world.api.delete(kube.core("secrets", SYSTEM, "aliquot-webhook"))
    world.until(lambda: authorities(world) not in trusted and trusted not in authorities(world), CHECKED, "a new authority")
    world.until(lambda: page(world, "/readyz")[0] == 200, CHECKED, "the agent's new certificate")
    assert shown(world) != before and page(world, "/readyz", trusted=trusted)[0] is None
    assert page(world, "/usage", client=stolen)[0] == 401
    wait_available(world, 30)
    wait_figures(world, space, CHECKED)
