# SPDX-License-Identifier: Apache-2.0
"""The page of `aliquot web --in-cluster` in headless Chromium: signing in and out, tokens that end, replicas that end."""

import http.server
import socket
import subprocess
import threading
import time

import pytest
from selenium.webdriver.common.keys import Keys

from test_inspect import gpu
from test_web_cluster import ADMIN, BLUE, EMPTY, RED, api, everything, listed, start, tenant     # noqa: F401  (fixtures)
from test_web_page import Shown, axe     # noqa: F401  (fixture)
from web_cluster import GPUS, InCluster, make_certificate
from web_page import PATIENCE, browser, resize, theme, until

pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    made = browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.quit()


class Viewer(Shown):
    """The page in the browser, of a tab that has nothing stored."""

    def __init__(self, page, web, route="#/", scheme="http"):
        web.address = f"{scheme}://127.0.0.1:{web.port}/"
        super().__init__(page, web, route)
        self.forget()

    def forget(self):
        self.run("sessionStorage.clear()")
        self.page.refresh()
        self.until("Sign in")

    def sign_in(self, token, namespace=""):
        until("the form is there", lambda: self.run("!!document.getElementById('token')"))
        self.run("document.getElementById('token').focus()")
        self.press(token, Keys.TAB, namespace, Keys.ENTER)

    def waiting(self):
        self.go("#/waiting")
        return [row[0] for row in self.rows()]


def test_signing_in_and_out(page, start):     # noqa: F811
    shown = Viewer(page, start(), "#/waiting")
    assert shown.text("nav") == "" and shown.text("#status") == ""
    shown.sign_in(RED, "red")
    shown.until_read()
    shown.until("red/secret-red")
    assert "namespace red only" in shown.text("#status") and "blue" not in shown.run("document.body.innerText")
    assert "the API server refuses" in shown.text("#trouble")
    # neither the address, nor what lies in the page, nor a cookie has the token
    assert RED not in page.current_url and page.get_cookies() == [] and RED not in page.page_source
    assert shown.run("performance.getEntries().every((e) => !e.name.includes(arguments[0]))", RED)
    assert shown.run("localStorage.length + document.cookie.length") in (0, "0")
    page.refresh()
    shown.until("red/secret-red")
    shown.run("document.getElementById('out').click()")
    shown.until("Sign in")
    assert shown.run("sessionStorage.getItem('aliquot-token')") is None and "secret" not in shown.run("document.documentElement.innerHTML")
    shown.sign_in(f"  {BLUE}  ", "blue")
    shown.until("blue/secret-blue")
    assert "secret-red" not in shown.run("document.documentElement.innerHTML")
    errors = [line["message"] for line in page.get_log("browser") if line["level"] == "SEVERE"]
    assert errors == []


def test_a_token_that_is_not_taken(page, start):     # noqa: F811
    shown = Viewer(page, start())
    shown.sign_in("unknown")
    shown.until("The token has expired, was revoked, or is not of this cluster.")
    assert shown.run("sessionStorage.getItem('aliquot-token')") is None
    shown.sign_in(ADMIN)
    shown.until_read()


def test_a_token_in_the_address_is_not_taken(page, start):     # noqa: F811
    web = start()
    shown = Viewer(page, web)
    page.get(f"http://127.0.0.1:{web.port}/?token={RED}#/waiting")
    shown.until("Sign in")
    assert RED not in page.current_url and shown.run("sessionStorage.length") == 0


@pytest.mark.parametrize("scheme", ["https", "http"])
def test_a_token_that_is_revoked(page, start, start_tls, api, scheme):     # noqa: F811
    """What was shown goes, the page says why, and another token is taken; also behind a forwarded port, where the page does not
    connect again by itself."""
    shown = Viewer(page, (start_tls if scheme == "https" else start)(), "#/waiting", scheme=scheme)
    shown.sign_in(RED, "red")
    shown.until("red/secret-red")
    del api.rights[RED]
    shown.until("The token has expired, was revoked, or is not of this cluster.")
    assert "secret-red" not in shown.run("document.documentElement.innerHTML") and shown.text("#trouble") == ""
    assert shown.run("document.getElementById('namespace').value") == "red"
    api.rights["red-token.b"] = tenant("red", "another")
    shown.run("document.getElementById('token').focus()")
    shown.press("red-token.b", Keys.ENTER)
    shown.until("red/another")


@pytest.fixture
def start_tls(aliquot, api, tmp_path):     # noqa: F811
    """By HTTPS, as behind an ingress."""
    (tmp_path / "own").mkdir()
    certificate, key = make_certificate(tmp_path / "own")
    made = []

    def begin():
        made.append(InCluster(aliquot, api, "--tls-cert", str(certificate), "--tls-key", str(key)))
        until("it listens", lambda: listens(made[-1].port))
        return made[-1]
    yield begin
    for one in made:
        one.stop()


def listens(port):
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_a_replica_that_ends(page, start_tls, api):     # noqa: F811
    """The page goes on with the next one at the same address, without asking for the token again."""
    web = start_tls()
    shown = Viewer(page, web, "#/waiting", "https")
    shown.sign_in(RED, "red")
    shown.until("red/secret-red")
    web.process.kill()
    web.process.wait()
    until("the page says so", lambda: "connection lost" in shown.text("#status"))
    api.rights[RED] = tenant("red", "later")
    successor = subprocess.Popen(web.process.args)
    try:
        shown.until("red/later")
        shown.until_read()
    finally:
        successor.terminate()
        successor.wait()


class Recorder(http.server.BaseHTTPRequestHandler):
    """Another program, which notes what it is asked."""

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *_):
        pass


def test_another_program_at_a_forwarded_port(page, start, api):     # noqa: F811
    """It is sent nothing when the connection is lost, whatever the viewer looks at, until the viewer says so."""
    web = start()
    shown = Viewer(page, web, "#/waiting")
    shown.sign_in(RED, "red")
    shown.until("red/secret-red")
    shown.until_read()
    shown.run("dispatchEvent(new Event('pagehide'))")
    assert sorted(shown.run("Object.keys(sessionStorage)")) == ["aliquot-namespace", "aliquot-token"]
    web.process.kill()
    web.process.wait()
    until("the page says so", lambda: "Another program may have this port" in shown.text("#trouble"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", web.port), Recorder) as other:
        other.asked = []
        threading.Thread(target=other.serve_forever, daemon=True).start()
        shown.go("#/pod/red/secret-red")
        shown.until("not connected")
        for hidden in ("true", "false"):
            page.execute_script(f"Object.defineProperty(document, 'hidden', {{configurable: true, get: () => {hidden}}}); "
                                "document.dispatchEvent(new Event('visibilitychange'))")
        time.sleep(7)       # twice what a page waits that connects by itself
        assert other.asked == []
        shown.run("document.getElementById('again').click()")
        until("it is asked", lambda: other.asked)
        until("the page asks the viewer again", lambda: shown.run("Boolean(document.getElementById('again'))"))
        other.shutdown()
    api.rights[RED] = tenant("red", "later")
    successor = subprocess.Popen(web.process.args)
    try:
        until("it serves", lambda: listens(web.port))
        shown.go("#/waiting")
        shown.run("document.getElementById('again').click()")
        shown.until("red/later")
        shown.until_read()
        assert shown.text("#trouble").count("port") == 0
    finally:
        successor.terminate()
        successor.wait()


def test_what_was_known_stays_until_all_is_known_again(page, start_tls, api):     # noqa: F811
    """When events break off, and over a reload: the next replica has read a part of the cluster."""
    web = start_tls()
    shown = Viewer(page, web, scheme="https")
    shown.sign_in(ADMIN)
    until("the cards", lambda: shown.texts(".node h2 a") == ["a"])
    shown.until_read()
    web.process.kill()
    web.process.wait()
    goes_on = threading.Event()
    api.rights[ADMIN] = {**everything(), GPUS: {"items": [gpu("b", 0, (100, "80Gi"))]},
                         listed()["quotas"]: lambda: goes_on.wait(PATIENCE) and EMPTY}
    successor = subprocess.Popen(web.process.args)
    try:
        until("what was known, and what was read", lambda: shown.texts(".node h2 a") == ["a", "b"])
        assert "as of" in shown.text("#status")
        for _ in range(2):
            page.refresh()
            until("both again", lambda: shown.texts(".node h2 a") == ["a", "b"])
        assert not goes_on.is_set()
        goes_on.set()
        until("what there is", lambda: shown.texts(".node h2 a") == ["b"])
    finally:
        goes_on.set()
        successor.terminate()
        successor.wait()
    assert shown.run("Object.keys(sessionStorage)") == ["aliquot-token"]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_axe_finds_nothing_in_the_form(page, start, axe, width, dark):     # noqa: F811
    shown = Viewer(page, start())
    resize(page, width, 800)
    theme(page, dark)
    for expired in (False, True):
        if expired:
            shown.sign_in("unknown")
            shown.until("has expired")
        page.execute_script(axe)
        found = page.execute_async_script(
            "const done = arguments[0]; axe.run(document).then((r) => done(r.violations.map((v) => [v.id, v.nodes.map((n) => n.html)])))")
        assert found == []
        assert shown.run("document.documentElement.scrollWidth") <= width


def test_a_page_that_is_not_told_its_mode(page, start):     # noqa: F811
    """It asks again: in a cluster it never takes itself for the page of a user's machine, whose tabs share their token."""
    shown = Viewer(page, start())
    page.execute_cdp_cmd("Network.enable", {})
    page.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/api/mode"]})
    page.refresh()
    until("it was not told", lambda: shown.run("performance.getEntriesByName(location.origin + '/api/mode').length > 0"))
    page.execute_cdp_cmd("Network.setBlockedURLs", {"urls": []})
    shown.until("Sign in")
