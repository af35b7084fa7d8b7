# SPDX-License-Identifier: Apache-2.0
"""`aliquot web --in-cluster`: each viewer is shown what the API server tells the viewer's own token, and nothing of another one."""

import http.client
import json
import os
import ssl
import subprocess
import threading
import time

import pytest

from test_inspect import gpu, pod
from web_cluster import GPUS, GROUP, PATIENCE, REVIEW, ApiServer, InCluster, Stalled, make_certificate
from web_page import agent, until

pytestmark = pytest.mark.waits

ADMIN, RED, BLUE = "admin-token.a", "red-token.a", "blue-token.a"
FIGURES = ["/api/events", "/api/history?node=a&namespace=red&pod=p", "/api/explain?namespace=red&pod=p", "/api/plan"]
EMPTY = {"items": []}


def listed(namespace=None):
    """Paths of the lists, of a namespace or of all."""
    inside = f"/namespaces/{namespace}" if namespace else ""
    return {"waiting": f"/api/v1{inside}/pods", "quotas": f"{GROUP}{inside}/elasticgpuquotas", "claims": f"{GROUP}{inside}/elasticgpuclaims"}


def known_in(namespace):
    """What is in the objects of a namespace, and in nothing that is asked for."""
    return f"only {namespace} knows"


def waiting_pod(namespace, name):
    made = pod(name, core="30", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": known_in(namespace)}])
    made["metadata"].update(namespace=namespace, uid=f"{namespace}-{name}")
    return made


def tenant(namespace, *names):
    """What `view` in a namespace reads."""
    lists = listed(namespace)
    return {lists["waiting"]: {"items": [waiting_pod(namespace, name) for name in names]}, lists["quotas"]: EMPTY, lists["claims"]: EMPTY,
            **{f"/api/v1/namespaces/{namespace}/pods/{name}": waiting_pod(namespace, name) for name in names},
            f"/api/v1/namespaces/{namespace}/events": EMPTY}


AGENTS = "/api/v1/namespaces/aliquot-system/pods"
FIGURES_TOKEN = "/api/v1/namespaces/aliquot-system/serviceaccounts/aliquot-figures/token"
USAGE = AGENTS + "/agent-a:9400/proxy/usage"


def everything():
    lists = listed()
    return {GPUS: {"items": [gpu("a", 0, (50, "40Gi"), [("u1", "red", "train", 50, "40Gi")])]}, lists["quotas"]: EMPTY, lists["claims"]: EMPTY,
            lists["waiting"]: {"items": [waiting_pod("red", "secret-red"), waiting_pod("blue", "secret-blue")]},
            AGENTS: {"items": [agent("a")]}, FIGURES_TOKEN: {"status": {"token": "figures"}}, USAGE: {"gpus": []}}


@pytest.fixture
def api(tmp_path):
    made = ApiServer(tmp_path)
    made.rights = {ADMIN: everything(), RED: tenant("red", "secret-red"), BLUE: tenant("blue", "secret-blue")}
    yield made
    made.stop()


@pytest.fixture
def start(aliquot, api):
    made = []

    def begin(*words, **env):
        made.append(InCluster(aliquot, api, *words, **env))
        until("it serves", lambda: healthy(made[-1]))
        return made[-1]
    yield begin
    for one in made:
        one.stop()


def healthy(web):
    assert web.process.poll() is None, web.process.stderr.read()
    try:
        return web.request("/healthz", Host="10.1.2.3:8080")[0] == 200
    except OSError:
        return False


# ---- who sees what ----

def test_each_token_is_shown_what_it_may_read(start):
    web = start()
    found = web.reading(ADMIN)
    assert found["state"]["trouble"] == [] and {"c/a/0", "w/red/secret-red", "w/blue/secret-blue"} <= set(found)
    for token, own, other in ((RED, "red", "blue"), (BLUE, "blue", "red")):
        found = web.reading(token, own)
        assert {key for key in found if key[:2] == "w/"} == {f"w/{own}/secret-{own}"} and found["state"]["namespace"] == own
        assert {one["part"]: one["refused"] for one in found["state"]["trouble"]} == {"use": True}
        assert "secret-" + other not in json.dumps(found)
        # neither in the other's namespace nor in all
        for namespace in (other, None):
            found = web.reading(token, namespace)
            assert set(found) == {"state"} and all(one["refused"] for one in found["state"]["trouble"])


def test_all_requests_have_the_viewers_token(start, api):
    """Also those behind the API server, which the agents get: they have no other right than that of the viewer."""
    web = start()
    web.reading(RED, "red")
    assert {token for token, *_ in api.asked} == {RED}
    web.reading(BLUE, "blue")
    web.request("/api/explain?namespace=blue&pod=secret-blue", BLUE, "blue")
    assert {token for token, *_ in api.asked} == {RED, BLUE}
    assert all("Impersonate-User" not in headers for *_, headers in api.asked)
    assert all("red" not in path for token, _, path, _ in api.asked if token == BLUE)


def test_tenants_by_force(start, api):
    """Both at once, again and again: events, explanations and the plan, with the other's names in every place."""
    web = start()
    leaks, seen, ends = [], set(), threading.Event()

    def look(token, own, other, text, what):
        if known_in(other) in text:
            leaks.append((token, what, text))
        if known_in(own) in text:
            seen.add((token, what.partition("?")[0]))

    def watch(token, own, other):
        for line in web.events(token, own):
            look(token, own, other, json.dumps(line), "/api/events")
            if ends.is_set():
                return

    def ask(token, own, other):
        paths = [f"/api/{what}?node=a&namespace={name}&pod=secret-{name}" for what in ("explain", "history") for name in (own, other)]
        for path in (*paths, "/api/plan") * 4:
            for namespace in (own, other, None):
                look(token, own, other, web.request(path, token, namespace)[2].decode(), path)

    tenants = (RED, "red", "blue"), (BLUE, "blue", "red")
    watching, asking = ([threading.Thread(target=run, args=who, daemon=True) for who in tenants for _ in range(2)] for run in (watch, ask))
    for thread in watching + asking:
        thread.start()
    for thread in asking:
        thread.join(120)
    ends.set()
    for thread in watching:
        thread.join(PATIENCE)
    assert leaks == [] and not any(thread.is_alive() for thread in watching + asking)
    assert seen == {(token, path) for token in (RED, BLUE) for path in ("/api/events", "/api/explain")}


def test_explanations_are_those_of_the_viewer(start):
    web = start()
    for token, own, other in ((RED, "red", "blue"), (BLUE, "blue", "red")):
        status, _, body = web.request(f"/api/explain?namespace={own}&pod=secret-{own}", token, own)
        answer = json.loads(body)
        assert status == 200 and answer["status"] == 0 and f"Pod {own}/secret-{own} is pending." in answer["text"]
        answer = json.loads(web.request(f"/api/explain?namespace={other}&pod=secret-{other}", token, own)[2])
        assert answer["status"] == 1 and "cannot read" in answer["text"]
        assert json.loads(web.request("/api/plan", token, own)[2])["status"] == 1


def test_no_process_shows_a_token(start, api):
    """Arguments are public, and so is the environment to processes of the same user."""
    web = start()
    api.held.clear()
    thread = threading.Thread(target=web.request, args=("/api/explain?namespace=red&pod=secret-red", RED, "red"), daemon=True)
    thread.start()
    until("its token is tried", lambda: api.asked)
    api.held.set()
    until("the token is known", lambda: any(method == "POST" for _, method, *_ in api.asked))
    thread.join(PATIENCE)
    api.held.clear()
    threading.Thread(target=web.request, args=("/api/explain?namespace=red&pod=secret-red", RED, "red"), daemon=True).start()
    (child,) = until("the command runs", lambda: children(web.process.pid))
    for pid in (child, web.process.pid):
        for name in ("cmdline", "environ"):
            with open(f"/proc/{pid}/{name}", "rb") as f:
                assert RED.encode() not in f.read()
    api.held.set()


def children(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children") as f:
            found += map(int, f.read().split())
    return found


# ---- tokens ----

@pytest.mark.parametrize("path", FIGURES)
@pytest.mark.parametrize("token", [None, "", "unknown", RED + "x", RED[:-1], "a b", "a\tb", "x" * 16385, "Bearer " + RED], ids=lambda t: str(t)[:20])
def test_refused_without_a_token_that_the_api_server_takes(started, path, token):
    status, _, body = started.request(path, token, "red")
    assert status == 401 and b"secret" not in body and RED.encode() not in body


@pytest.fixture(scope="module")
def started(aliquot, tmp_path_factory):
    server = ApiServer(tmp_path_factory.mktemp("api"))
    server.rights = {RED: tenant("red", "secret-red")}
    made = InCluster(aliquot, server)
    until("it serves", lambda: healthy(made))
    made.reading(RED, "red")
    yield made
    made.stop()
    server.stop()


def test_a_token_is_in_no_address_and_in_no_cookie(started):
    for path in FIGURES:
        where = f"{path}{'&' if '?' in path else '?'}token={RED}"
        assert started.request(where, Cookie=f"aliquot-token={RED}", Authorization=f"Bearer {RED}")[0] == 401
    for path in ("/", "/app.js", "/api/mode"):
        assert "Set-Cookie" not in started.request(path, RED)[1]
    for code in (None, "", "A" * 43):       # nor is there one for a code
        assert started.request("/api/token", RED, X_Aliquot_Code=code)[0] == 403


@pytest.mark.parametrize("namespace", ["../red", "red/../blue", "a b", "Red", "red%2f", "x" * 254])
def test_only_names_of_namespaces(started, namespace):
    assert started.request("/api/events", RED, namespace)[0] == 400


def test_a_revoked_token(start, api):
    """The page is told nothing more, and is refused when it asks again; another token of the same rights goes on."""
    web = start()
    api.rights["red-token.b"] = api.rights[RED]
    events, other = web.events(RED, "red"), web.events("red-token.b", "red")
    next(events), next(other)
    del api.rights[RED]
    for _ in events:
        pass        # until their end
    status, _, body = web.request("/api/events", RED, "red")
    assert status == 401 and b"expired" in body and b"secret" not in body
    assert next(line for line in other if line["k"] == "state")
    api.rights[RED] = tenant("red", "secret-red")
    assert "w/red/secret-red" in web.reading(RED, "red")


def test_a_revoked_token_gets_nothing_that_was_read_before(start, api):
    """Before any reading has noticed: what is kept for the session is not sent."""
    web = start("--interval", "3600")
    events = web.events(RED, "red")
    next(line for line in events if line["k"] == "state")
    del api.rights[RED]
    status, _, body = web.request("/api/events", RED, "red")
    assert status == 401 and b"secret" not in body
    for line in events:     # and the page that was open is closed
        assert line["k"] != "w/red/secret-red"


def test_an_api_server_that_is_away(start, api):
    web = start()
    api.server.shutdown()
    api.server.server_close()
    status, _, body = web.request("/api/events", RED, "red")
    assert status == 502 and b"API server" in body


def test_an_api_server_that_is_another_one(aliquot, api, tmp_path):
    """A token goes only to the server whose authority is mounted."""
    (tmp_path / "other").mkdir()
    trusted = api.certificate
    api.certificate, _ = make_certificate(tmp_path / "other")
    web = InCluster(aliquot, api)
    until("it serves", lambda: healthy(web))
    status, _, body = web.request("/api/events", RED)
    web.stop()
    api.certificate = trusted
    assert status == 502 and b"certificate" in body and api.asked == []


# ---- Host and Origin ----

@pytest.mark.parametrize("host, origin, status", [
    ("gpus.example.org", None, 401), ("gpus.example.org", "https://gpus.example.org", 401), ("gpus.example.org:8443", "https://gpus.example.org:8443", 401),
    ("GPUS.example.org", None, 401), ("inner:8080", "http://inner:8080", 401), ("inner", None, 403), ("inner:8081", None, 403),
    ("localhost:9999", "http://localhost:9999", 401), ("[::1]:80", None, 401), ("127.0.0.1", None, 401),
    ("example.org", None, 403), ("gpus.example.org.evil.org", None, 403), ("gpus.example.org:80:80", None, 403), ("gpus.example.org:", None, 403),
    ("evil.gpus.example.org", None, 403), ("10.1.2.3:8080", None, 403),
    ("gpus.example.org", "https://evil.org", 403), ("gpus.example.org", "null", 403), ("gpus.example.org", "https://inner:8080", 403),
    ("gpus.example.org", "ftp://gpus.example.org", 403), ("gpus.example.org", "https://gpus.example.org:444", 403)])
def test_hosts(named, host, origin, status):
    headers = {"Host": host, **({"Origin": origin} if origin else {})}
    for path in ("/api/events", "/api/plan"):
        assert named.request(path, **headers)[0] == status
    page = named.request("/", **headers)
    assert page[0] == (403 if status == 403 else 200)
    if page[0] == 200:
        assert "script-src 'self'" in page[1]["Content-Security-Policy"] and page[1]["X-Content-Type-Options"] == "nosniff"


@pytest.fixture(scope="module")
def named(aliquot, tmp_path_factory):
    server = ApiServer(tmp_path_factory.mktemp("api"))
    made = InCluster(aliquot, server, "--host", "gpus.example.org,inner:8080")
    until("it serves", lambda: healthy(made))
    yield made
    made.stop()
    server.stop()


def test_other_sites(named):
    for path in ("/app.js", "/api/mode", *FIGURES):
        assert named.request(path, RED, Sec_Fetch_Site="cross-site")[0] == 403


@pytest.mark.parametrize("words, problem", [
    (["--host", "a b"], "no names of hosts"), (["--host", "a,"], "no names of hosts"), (["--host", "https://a"], "no names of hosts"),
    (["--tls-cert", "/x"], "together"), (["--port", "80"], "neither --port"), (["-n", "red"], "neither --port"), (["--ca-file", "/nothing"], "cannot read"), (["--api-server", "api:6443"], "does not begin with https://")])
def test_wrong_options(aliquot, api, words, problem):
    web = InCluster(aliquot, api, *words)
    assert web.process.wait(PATIENCE) in (1, 2) and problem in web.process.stderr.read()
    web.process.stderr.close()


def test_options_of_a_cluster_alone(aliquot):
    for words in (["--host", "a"], ["--listen", ":1"], ["--tls-cert", "a", "--tls-key", "b"], ["--api-server", "https://a", "--ca-file", "b"]):
        done = subprocess.run([aliquot, "web", *words], capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 2 and "--in-cluster" in done.stderr


def test_tls(aliquot, api, tmp_path, start):
    (tmp_path / "own").mkdir()
    certificate, key = make_certificate(tmp_path / "own")
    web = InCluster(aliquot, api, "--tls-cert", str(certificate), "--tls-key", str(key))
    context = ssl.create_default_context(cafile=certificate)

    def ask():
        try:
            connection = http.client.HTTPSConnection("127.0.0.1", web.port, timeout=PATIENCE, context=context)
            connection.request("GET", "/api/events", headers={"X-Aliquot-Token": RED, "X-Aliquot-Namespace": "red"})
            return connection.getresponse()
        except ConnectionError:
            return None
    answer = until("it serves", ask)
    assert answer.status == 200 and b'"k":"w/red/secret-red"' in b"".join(answer.readline() for _ in range(3))
    with pytest.raises((OSError, http.client.HTTPException)):
        web.request("/healthz")     # without TLS
    web.stop()


# ---- bounds ----

def test_pages_of_a_viewer(start, api):
    """Eight of one; another one is served all the same."""
    web = start()
    pages = [web.open(RED, "red") for _ in range(9)]
    assert sorted(answer.status for _, answer in pages) == [200] * 8 + [503]
    assert "w/blue/secret-blue" in web.reading(BLUE, "blue")
    for connection, _ in pages:
        connection.close()


def test_namespaces_of_a_viewer(start, api):
    """A token has its bounds once, however many namespaces it is given with."""
    web = start()
    pages = [web.open(RED, f"n{i % 4}") for i in range(12)]
    assert sorted(answer.status for _, answer in pages) == [200] * 8 + [503] * 4
    for connection, answer in pages:
        connection.close()
        answer.close()
    until("their places are free", lambda: web.open(RED, "n0")[1].status == 200)
    found = [web.request("/api/history?node=a&namespace=red&pod=p", RED, f"n{i}") for i in range(10)]
    assert [status == 503 for status, _, _ in found] == [False] * 8 + [True] * 2
    assert b"8 namespaces" in found[-1][2]
    assert "w/blue/secret-blue" in web.reading(BLUE, "blue")


def test_commands_of_a_viewer(start, api):
    """One at a time of a token; another viewer's begins beside it."""
    web = start()
    for token, namespace in ((RED, "n0"), (RED, "n1"), (BLUE, "blue")):
        web.reading(token, namespace)
    api.held.clear()
    found, made = {}, []

    def ask(token, namespace):
        thread = threading.Thread(target=lambda: found.update({namespace: web.request("/api/plan", token, namespace)[0]}), daemon=True)
        thread.start()
        made.append(thread)
    ask(RED, "n0")
    until("it runs", lambda: len(children(web.process.pid)) == 1)
    ask(RED, "n1")
    until("it is refused", lambda: found == {"n1": 503})
    ask(BLUE, "blue")
    until("both run", lambda: len(children(web.process.pid)) == 2)
    api.held.set()
    for thread in made:
        thread.join(PATIENCE)
    assert found == {"n0": 200, "n1": 503, "blue": 200}


def test_viewers_of_all(start, api):
    web = start()
    tokens = [f"many-{i}" for i in range(33)]
    api.rights.update({token: {} for token in tokens})
    pages = [web.open(token) for token in tokens]
    assert sorted(answer.status for _, answer in pages) == [200] * 32 + [503]
    assert b"too many viewers" in next(answer for _, answer in pages if answer.status == 503).read()
    for connection, _ in pages:
        connection.close()


def test_tokens_that_are_tried_take_no_place(start, api):
    """A flood of unknown tokens leaves no session, and the viewers theirs."""
    web = start()
    events = web.events(RED, "red")
    next(events)
    threads = threads_of(web)
    for i in range(200):
        assert web.request("/api/events", f"guess-{i}")[0] == 401
    assert threads_of(web) == threads
    assert "w/blue/secret-blue" in web.reading(BLUE, "blue")
    assert next(line for line in events if line["k"] == "state")


def threads_of(web):
    return len(os.listdir(f"/proc/{web.process.pid}/task"))


def test_the_queue_of_the_gate(start, api):
    """While the API server hangs, 64 wait and no more, of one address 48; all are answered when it comes back, but for those
    that were tried for 5 s, who leave their places."""
    web = start()
    api.held.clear()
    found, threads = [], []

    def ask(address, i):
        connection = web.connect(source_address=(address, 0))
        connection.request("GET", "/api/events", headers={"X-Aliquot-Token": f"guess-{address}-{i}"})
        found.append(connection.getresponse().status)
        connection.close()

    def flood(address, n, refused):
        threads.extend(threading.Thread(target=ask, args=(address, i), daemon=True) for i in range(n))
        for thread in threads[-n:]:
            thread.start()
        until("the queue is full", lambda: len(found) >= refused)
        assert set(found) <= {502, 503}
    flood("127.0.0.1", 60, 12)
    flood("127.0.0.2", 20, 16)
    api.held.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(found) == 80 and set(found) <= {401, 502, 503} and 16 - found.count(502) <= found.count(503) <= 16


def tries(api, token):
    return [who for who, _, path, _ in list(api.asked) if path == REVIEW].count(token)


def test_a_user_who_is_put_off_is_tried_once(start, api):
    """The page asks again by itself, while others sign in."""
    web = start()
    api.rights[RED][REVIEW] = lambda: 429
    assert web.request("/api/events", RED, "red")[0] in (502, 503) and tries(api, RED) == 1
    del api.rights[RED][REVIEW]
    assert "w/red/secret-red" in web.reading(RED, "red")


def test_a_user_of_whom_no_answer_comes(start, api):
    """Others sign in beside it, however often it asks."""
    web, comes = start(), threading.Event()
    api.rights[RED][REVIEW] = lambda: comes.wait() and 201
    waiting = [web.connect() for _ in range(12)]
    for connection in waiting:
        connection.request("GET", "/api/events", headers={"X-Aliquot-Token": RED, "X-Aliquot-Namespace": "red"})
    until("it is tried", lambda: tries(api, RED))
    assert "w/blue/secret-blue" in web.reading(BLUE, "blue") and tries(api, RED) <= 2
    assert waiting[0].getresponse().status == 502
    comes.set()
    for connection in waiting:
        connection.close()


def test_a_slow_viewer_stops_no_other(start, api):
    """It reads nothing; the others see changes, and the memory does not grow."""
    web = start()
    slow = [web.open(RED, "red") for _ in range(8)]
    for i in range(4):
        api.rights[BLUE] = tenant("blue", f"pod-{i}")
        web.reading(BLUE, "blue", lambda found, i=i: f"w/blue/pod-{i}" in found)
    for connection, _ in slow:
        connection.close()


def test_a_viewer_whose_requests_are_queued_stops_no_other(start, api):
    """Lists are held one at a time, and not before they come."""
    web, ready = start(), threading.Event()
    path, quotas = listed("red")["waiting"], listed("red")["quotas"]
    found = api.rights[RED][path]

    def later():
        ready.wait()
        return found

    def asked_for(path):
        return any(token == RED and asked.startswith(path) for token, _, asked, _ in list(api.asked))
    api.rights[RED][path] = later
    connection, _ = web.open(RED, "red")
    try:
        until("it is asked", lambda: asked_for(path))
        assert "w/blue/secret-blue" in web.reading(BLUE, "blue")
        assert not asked_for(quotas)    # it still waits
    finally:
        ready.set()
    assert "w/red/secret-red" in web.reading(RED, "red")
    connection.close()


def long_list(namespace, n=300):
    return {"items": [waiting_pod(namespace, f"pod-{i}") for i in range(n)]}


@pytest.mark.parametrize("trickles, n", [(False, 300), (True, 3)], ids=["others with a long one", "others with a short one"])
def test_a_list_that_stops_in_the_middle(start, api, trickles, n):
    """It is given up after 3 s, for which others with a long list wait at most, and those with a short one for none at all."""
    web, stalled = start(), Stalled(long_list("red"), trickles)
    assert len(json.dumps(stalled.found)) > 65536 + 100
    api.rights[RED][listed("red")["waiting"]] = lambda: stalled
    api.rights[BLUE][listed("blue")["waiting"]] = long_list("blue", n)
    connection, answer = web.open(RED, "red")
    assert stalled.begun.wait(PATIENCE)
    begin = time.monotonic()
    assert f"w/blue/pod-{n - 1}" in web.reading(BLUE, "blue") and time.monotonic() - begin < 20
    if not trickles:
        assert any(b"stopped in the middle" in line for line in answer)
    stalled.ready.set()
    connection.close()


def test_a_long_answer(start, api):
    """A tenant's list that is longer than what is taken is a trouble of this tenant's page only."""
    web = start()
    lists = listed("red")
    huge = waiting_pod("red", "huge")
    huge["metadata"]["annotations"] = {"x": "x" * (70 << 20)}
    api.rights[RED][lists["waiting"]] = {"items": [huge]}
    found = web.reading(RED, "red")
    assert "longer than" in next(one["text"] for one in found["state"]["trouble"] if one["part"] == "waiting")
    assert "w/blue/secret-blue" in web.reading(BLUE, "blue")


def test_more_than_a_viewer_is_given(start, api):
    """What does not fit is named."""
    web = start()
    lists = listed("red")
    reason = [{"type": "PodScheduled", "status": "False", "message": os.urandom(40000).hex()}]
    pods = []
    for i in range(500):
        one = pod(f"p{i}", core="30", conditions=reason)
        one["metadata"].update(namespace="red", uid=f"u{i}")
        pods.append(one)
    api.rights[RED][lists["waiting"]] = {"items": pods}
    found = web.reading(RED, "red")
    trouble = {one["part"]: one["text"] for one in found["state"]["trouble"]}
    assert "not shown" in trouble["memory"] and 100 < len([key for key in found if key[:2] == "w/"]) < 500
    assert "w/blue/secret-blue" in web.reading(BLUE, "blue")


# ---- the end ----

def test_the_end_of_the_process_ends_the_streams(start):
    web = start()
    pages = [web.open(token, name) for token, name in ((RED, "red"), (BLUE, "blue")) for _ in range(2)]
    for _, answer in pages:
        answer.readline()
    web.process.terminate()
    for _, answer in pages:
        answer.read()       # to the last chunk: an end that is cut off would raise IncompleteRead
    assert web.process.wait(PATIENCE) == 0


def test_the_end_while_the_api_server_hangs(start, api):
    web = start()
    events = web.events(RED, "red")
    next(events)
    api.held.clear()
    time.sleep(1.5)     # a reading waits now, or will soon
    web.process.terminate()
    assert web.process.wait(10) == 0


def test_ten_viewers_cost_little(start, api):
    """Ten tokens: at most 20 MB and 5 % of a core."""
    web = start("--interval", "2")
    tokens = [f"tenant-{i}" for i in range(10)]
    api.rights.update({token: tenant(token, *(f"p{i}" for i in range(20))) for token in tokens})
    pages = [web.open(token, token) for token in tokens]
    assert {answer.status for _, answer in pages} == {200}
    time.sleep(2)
    before, start_time = cpu_of(web), time.monotonic()
    time.sleep(15)
    part = (cpu_of(web) - before) / (time.monotonic() - start_time)
    with open(f"/proc/{web.process.pid}/status") as f:
        memory = next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))
    print(f"{100 * part:.1f} % of a core, at most {memory / 1024:.1f} MiB resident")
    assert part <= 0.05 and memory * 1024 <= 20_000_000
    for connection, _ in pages:
        connection.close()


def cpu_of(web):
    with open(f"/proc/{web.process.pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_an_unused_session_knows_no_more(start, api):
    """Requests for figures alone do not keep it: the token is tried, and then used at once."""
    web = start()
    assert web.request("/api/explain?namespace=red&pod=secret-red", RED, "red")[0] == 200
    assert (RED, "POST", REVIEW) == api.asked[0][:3]
