# SPDX-License-Identifier: Apache-2.0
"""The page as a Deployment (deploy/web) on a real cluster: two tenants with tokens of their own, replicas that end, and a
browser that signs in."""

import contextlib
import http.client
import json
import pathlib
import socket
import sys
import threading

import pytest

import kit
from cluster import api as kube
from kit import SYSTEM, ApiError, container, pod

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.append(str(TOP / "tests/cli"))

from web_page import browser, cells_of, cells_said, documents    # noqa: E402  (the path comes first)

PORT = 8080
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


def is_ready(seen):
    status = seen and seen.get("status", {})
    return bool(status) and status.get("observedGeneration") == seen["metadata"]["generation"] and status.get("readyReplicas") == 2


@pytest.fixture(scope="module")
def page(world):
    """The directory's objects, as an administrator adds them."""
    manifest = str(TOP / "deploy/web/web.yaml")
    world.cluster.kubectl("apply", "-f", manifest)
    world.api.wait(DEPLOYMENTS, "aliquot-web", is_ready, 60, "aliquot-web ready")
    yield world
    world.cluster.kubectl("delete", "-f", manifest)
    world.until(lambda: not replicas(world), 60, "its pods are gone")


def replicas(world):
    """Ready ones that are to stay, by their addresses."""
    found = world.api.get(kube.pods(SYSTEM), labelSelector="app.kubernetes.io/name=aliquot-web")["items"]
    return {one["status"].get("podIP"): one for one in found if not one["metadata"].get("deletionTimestamp")
            and any(c["type"] == "Ready" and c["status"] == "True" for c in one["status"].get("conditions", []))}


def account(space, name="viewer"):
    """A ServiceAccount that has `view` in its namespace."""
    space.api.create(kube.core("serviceaccounts", space.name), {"metadata": {"name": name}})
    space.api.create(f"{RBAC}/namespaces/{space.name}/rolebindings", {
        "metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space.name}]})
    return space.world.token(space.name, name)


def ask(world, address, path, token=None, namespace=None, **headers):
    """The answer of a replica."""
    connection = http.client.HTTPConnection("localhost", timeout=60)
    connection.sock = world.cluster.connect(PORT, address, 60)
    given = {"X-Aliquot-Token": token, "X-Aliquot-Namespace": namespace, **headers}
    connection.request("GET", path, headers={key: value for key, value in given.items() if value})
    return connection.getresponse()


def reading(world, address, token, namespace=None):
    """The lines of a whole reading, by their keys."""
    found = {}
    with contextlib.closing(ask(world, address, "/api/events", token, namespace)) as answer:
        assert answer.status == 200, answer.read()
        for line in documents(answer):
            found[line["k"]] = line
            if line["k"] == "state":
                return found
    raise AssertionError(found)


def test_two_tenants(page, space):
    with kit.temporary_space(page) as other:
        tenants = [(one, account(one)) for one in (space, other)]
        for one, _ in tenants:
            one.create(pod("large", container(core=500)))
            one.unschedulable("large")
        for address in replicas(page):
            for (own, token), (foreign, _) in (tenants, tenants[::-1]):
                found = reading(page, address, token, own.name)
                assert [key for key in found if key[:2] == "w/"] == [f"w/{own.name}/large"] and foreign.name not in json.dumps(found)
                assert {one["part"]: one["refused"] for one in found["state"]["trouble"]} == {"use": True}
                assert set(reading(page, address, token, foreign.name)) == {"state"} == set(reading(page, address, token))
                explained = json.loads(ask(page, address, f"/api/explain?namespace={own.name}&pod=large", token, own.name).read())
                assert explained["status"] == 0 and f"Pod {own.name}/large is pending." in explained["text"]
                denied = json.loads(ask(page, address, f"/api/explain?namespace={foreign.name}&pod=large", token, own.name).read())
                assert denied["status"] == 1 and "cannot get resource" in denied["text"]


@contextlib.contextmanager
def viewers_of_all(space, *names):
    """Accounts that may see cards, figures and pods: (tokens, by account and role the path of its binding)."""
    made = {}
    for name in names:
        space.api.create(kube.core("serviceaccounts", space.name), {"metadata": {"name": name}})
        for where, kind, role in ((f"{RBAC}/namespaces/{SYSTEM}/rolebindings", "Role", "aliquot-viewer"),
                                  (f"{RBAC}/clusterrolebindings", "ClusterRole", "aliquot-gpu-viewer"),
                                  (f"{RBAC}/clusterrolebindings", "ClusterRole", "view")):
            binding = f"{space.name}-{name}-{role}"
            space.api.create(where, {"metadata": {"name": binding}, "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": space.name}],
                                     "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}})
            made[name, role] = f"{where}/{binding}"
    try:
        yield [space.world.token(space.name, name) for name in names], made
    finally:
        for path in made.values():
            with contextlib.suppress(ApiError):
                space.api.delete(path)


@pytest.fixture
def viewer_of_all(page, space):
    """The token of such an account."""
    with viewers_of_all(space, "all") as ((token,), _):
        yield token


def test_who_may_see_all_sees_what_there_is(page, space, viewer_of_all):
    """The cards, and what containers use."""
    space.start(pod("one", container(core=20)))
    (address, *_) = replicas(page)
    found = reading(page, address, viewer_of_all)
    assert found["state"]["trouble"] == [] and found["state"]["silent"] == 0
    held = {(h["ns"], h["pod"], h["core"]) for key, line in found.items() if key[:2] == "c/" for card in line["cards"] for h in card["h"]}
    assert (space.name, "one", 20) in held and found[f"u/{page.cluster.node}"]["answers"]


def test_two_with_the_same_rights_are_shown_one_reading(page, space):
    """By the time of each reading, which is that of one alone. One whose rights become narrower sees no more, and the other does."""
    space.create(pod("large", container(core=500)))
    space.unschedulable("large")
    (address, *_) = replicas(page)
    with viewers_of_all(space, "first", "second") as (tokens, bindings), contextlib.ExitStack() as open_pages:
        pages = [documents(open_pages.enter_context(contextlib.closing(ask(page, address, "/api/events", token)))) for token in tokens]
        times = [{next(line for line in page if line["k"] == "state")["time"] for _ in range(6)} for page in pages]
        assert times[0] & times[1]
        space.api.delete(bindings["first", "view"])
        for _ in pages[0]:
            pass        # until its end
        later = reading(page, address, tokens[0])
        assert [one["part"] for one in later["state"]["trouble"]] == ["waiting", "quotas", "claims"] and not any(key[:2] == "w/" for key in later)
        assert "system:serviceaccount" not in json.dumps(later["state"])
        assert f"w/{space.name}/large" in reading(page, address, tokens[1])
        assert next(line for line in pages[1] if line["k"] == "state")["trouble"] == []


def test_its_account_has_no_rights(page):
    token = page.token(SYSTEM, "aliquot-web")
    api = page.api.with_token(token)
    for path in (kube.gpus(), kube.core("pods", SYSTEM), kube.core("secrets", SYSTEM), kube.core("namespaces")):
        with pytest.raises(ApiError) as refused:
            api.get(path)
        assert refused.value.code == 403
    for one in replicas(page).values():     # and its pods have none of its tokens
        assert [volume["name"] for volume in one["spec"]["volumes"]] == ["ca"]


def test_a_token_that_is_revoked(page, space):
    """With its account: the page is told nothing more."""
    token = account(space)
    (address, *_) = replicas(page)
    answer = ask(page, address, "/api/events", token, space.name)
    assert answer.status == 200 and next(documents(answer))
    space.api.delete(kube.core("serviceaccounts", space.name, "viewer"))
    for _ in documents(answer):
        pass        # until its end
    refused = ask(page, address, "/api/events", token, space.name)
    assert refused.status == 401 and b"expired" in refused.read()


@pytest.mark.parametrize("token", ["", "unknown", "a.b.c"])
def test_other_tokens(page, token):
    for address in replicas(page):
        for path in ("/api/events", "/api/plan", "/api/explain?namespace=default&pod=x", "/api/history?node=a&namespace=default&pod=x"):
            assert ask(page, address, path, token).status == 401
        assert ask(page, address, "/", Host="example.org").status == 403


class Relay:
    """A port of this machine in front of the replicas, as a Service or port-forward is."""

    def __init__(self, world):
        self.world = world
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.server.accept()
                threading.Thread(target=self.connect, args=(client,), daemon=True).start()

    def connect(self, client):
        with client, contextlib.suppress(OSError, IndexError), self.world.cluster.connect(PORT, sorted(replicas(self.world))[0], 60) as there:
            there.settimeout(None)
            back = threading.Thread(target=copy, args=(there, client), daemon=True)
            back.start()
            copy(client, there)
            back.join()


def copy(source, to):
    with contextlib.suppress(OSError):
        while part := source.recv(65536):
            to.sendall(part)
    for one in (source, to):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def sign_in(shown, relay, route, token, namespace=""):
    shown.get(f"http://127.0.0.1:{relay.port}/{route}")
    relay.world.until(lambda: shown.execute_script("return !!document.getElementById('token')"), 30, "the form")
    for name, value in (("token", token), ("namespace", namespace)):
        shown.find_element("id", name).send_keys(value)
    shown.find_element("css selector", "form button").click()


def test_a_browser_shows_what_the_api_server_has(page, space, viewer_of_all, tmp_path):
    """Each card and its shares, while pods come and go."""
    relay, shown = Relay(page), browser(tmp_path)

    def wait_same(shares):
        def seen():
            cells = cells_of(page.api.get(kube.gpus()))
            return sum(cell[3] for cell in cells) == shares and cells_said(shown) == cells
        page.until(seen, 60, f"{shares} shares, shown as they are")
    try:
        sign_in(shown, relay, "#/", viewer_of_all)
        wait_same(0)
        shown.execute_script("window.before = 1")
        for number in range(1, 4):
            space.start(pod(f"pod-{number}", container(core=20 * number, memory=4 * kit.GiB)))
            wait_same(number)
        for number in range(1, 4):
            space.end(f"pod-{number}", grace=0)
            wait_same(3 - number)
        assert shown.execute_script("return window.before") == 1
    finally:
        shown.quit()
        relay.server.close()


def test_a_browser_signs_in_and_stays_over_the_end_of_a_replica(page, space, tmp_path):
    token = account(space)
    space.create(pod("large", container(core=500)))
    space.unschedulable("large")
    relay, shown = Relay(page), browser(tmp_path)
    text = lambda: shown.execute_script("return document.body.innerText")       # noqa: E731
    try:
        sign_in(shown, relay, "#/waiting", token, space.name)
        page.until(lambda: f"{space.name}/large" in text(), 30, "the waiting pod is shown")
        first = sorted(replicas(page))[0]
        name = replicas(page)[first]["metadata"]["name"]
        page.api.delete(kube.pods(SYSTEM, name))
        page.until(lambda: first not in replicas(page), 60, "the replica is out")
        # Behind a forwarded port the page waits for its viewer.
        page.until(lambda: shown.execute_script("const again = document.getElementById('again'); again?.click(); return again !== null"),
                   30, "the page offers to connect again")
        space.create(pod("later", container(core=500)))
        page.until(lambda: f"{space.name}/later" in text(), 60, "what came after is shown, by another replica")
        assert token not in shown.current_url and "Sign in" not in text()
        page.api.wait(DEPLOYMENTS, "aliquot-web", is_ready, 60, "two replicas again")
    finally:
        shown.quit()
        relay.server.close()


def test_a_replica_that_ends_tells_its_pages(page, space):
    """SIGTERM: the events have an end, and are not cut off."""
    token = account(space)
    address, one = next(iter(replicas(page).items()))
    answer = ask(page, address, "/api/events", token, space.name)
    assert answer.status == 200 and next(documents(answer))
    page.api.delete(kube.pods(SYSTEM, one["metadata"]["name"]))
    answer.read()       # raises IncompleteRead without the last chunk
    page.api.wait(DEPLOYMENTS, "aliquot-web", is_ready, 60, "two replicas again")
