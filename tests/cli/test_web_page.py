# SPDX-License-Identifier: Apache-2.0
"""The page of `aliquot web` in headless Chromium: what it shows, addresses, keys, widths, colours, languages, hostile texts."""

import http.server
import json
import pathlib
import re
import sqlite3
import subprocess
import threading
import time
import urllib.parse

import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from conftest import TOP
from test_inspect import gpu, pod, uuid
from web_page import (CLAIMS, EMPTY, GPUS, PROXY, QUOTAS, WAITING, Web, browser, cells_of, cells_said, furnish, resize, theme, until)

VIEWS = ["#/", "#/containers", "#/node/a", "#/card/b-00", "#/pod/team/large", "#/pod/team/train", "#/waiting", "#/quotas", "#/moves", "#/card/none"]


@pytest.fixture(scope="module")
def axe():
    done = subprocess.run([TOP / "scripts/fetch-axe"], stdout=subprocess.PIPE, text=True, check=True)
    return pathlib.Path(done.stdout.strip()).read_text()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    made = browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.quit()


@pytest.fixture(scope="module")
def web(aliquot, tmp_path_factory):
    """One cluster for tests that change nothing of it."""
    made = furnish(Web(aliquot, tmp_path_factory.mktemp("web")))
    made.answers["get poddisruptionbudgets.policy -A -o json"] = EMPTY
    made.answers["get pods -A -o json"] = EMPTY
    made.answers["get pod train -n team -o json"] = pod("train", core="50")
    made.say()
    yield made.start()
    made.stop()


@pytest.fixture
def own(aliquot, tmp_path):
    """A cluster of the test's own."""
    made = furnish(Web(aliquot, tmp_path))
    yield made
    made.stop()


class Shown:
    """The page of a command in the browser."""

    def __init__(self, page, web, route="#/"):
        self.page, self.web = page, web
        resize(page, 1200, 900)
        theme(page, False)
        page.get("about:blank")
        page.get_log("browser")     # of the page before
        page.get(f"{web.address}{route}")

    def run(self, script, *arguments):
        return self.page.execute_script("return " + script, *arguments)

    def go(self, route):
        self.run("location.hash = arguments[0]", route)

    def text(self, selector="main"):
        return self.run("document.querySelector(arguments[0])?.innerText ?? ''", selector)

    def texts(self, selector):
        return self.run("[...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector)

    def until(self, *texts):
        for text in texts:
            until(f"{text!r} in the page", lambda: text in self.text())

    def until_read(self):
        """A whole reading is shown."""
        until("a reading is shown", lambda: "as of" in self.text("#status"))

    def cells(self):
        return cells_said(self.page)

    def rows(self):
        return self.run("[...document.querySelectorAll('tbody tr')].map((r) => [...r.cells].map((c) => c.innerText))")

    def press(self, *keys):
        self.page.switch_to.active_element.send_keys(*keys)

    def focused(self):
        return self.run("document.activeElement.getAttribute('href') ?? document.activeElement.id")


# ---- what it shows ----

def test_it_shows_what_the_api_server_has(page, own):
    """While pods come and go, without a reload."""
    own.start()
    shown = Shown(page, own)
    healthy = [g for g in own.answers[GPUS]["items"] if g["status"]["state"] == "Healthy"]
    own.answers[GPUS] = {"items": healthy}
    own.say()
    until("all cards", lambda: shown.cells() == cells_of(own.answers[GPUS]))
    assert shown.run("document.querySelectorAll('.figure dd')[1].firstChild.data") == str(len(healthy))
    page.execute_script("window.before = 1")
    for step in range(6):
        held = [(f"s{i}", "team", f"pod-{i}", 10, "8Gi") for i in range(step)]
        cards = [gpu("b", 0, (100 - 10 * step, f"{80 - 8 * step}Gi"), held), gpu("d", step % 2, (100, "80Gi"))]
        own.answers[GPUS] = {"items": cards}
        own.answers[WAITING] = {"items": [dict(pod(f"waits-{i}", core="30")) for i in range(5 - step)]}
        own.say()
        until("the same cards", lambda: shown.cells() == cells_of(own.answers[GPUS]))
        until("the same pods", lambda: shown.texts(".count") == ([str(5 - step)] if step < 5 else []))
    shown.go("#/card/b-00")
    until("its pods", lambda: [row[0] for row in shown.rows()] == [f"team/pod-{i}" for i in range(5)])
    own.answers[GPUS] = {"items": []}
    own.say()
    shown.until("There is no card b-00")
    assert page.execute_script("return window.before") == 1


class Referers(http.server.BaseHTTPRequestHandler):
    """A server that a page leads to."""

    def do_GET(self):
        self.server.seen[self.path] = self.headers.get("Referer")
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_neither_history_nor_referer_lead_back(web, tmp_path):
    """What a browser keeps of the address is its code, which was used."""
    own, address = browser(tmp_path), web.address
    with http.server.HTTPServer(("127.0.0.1", 0), Referers) as other:
        other.seen = {}
        threading.Thread(target=other.serve_forever, daemon=True).start()
        try:
            shown = Shown(own, web, "#/card/b-00")
            shown.until("team/train")
            assert own.current_url == f"http://127.0.0.1:{web.port}/#/card/b-00"
            assert own.get_cookies() == [] and shown.run("document.referrer") == ""
            shown.run("location.assign(arguments[0])", f"http://127.0.0.1:{other.server_port}/next")
            until("the other server was asked", lambda: "/next" in other.seen)
            own.back()
            assert own.current_url == f"http://127.0.0.1:{web.port}/#/card/b-00"
            shown.until("team/train")       # the tab has the token
            assert shown.run("document.referrer") == "" and other.seen["/next"] is None
            own.back()
            assert str(web.port) not in own.current_url
        finally:
            own.quit()
            other.shutdown()
    with sqlite3.connect(tmp_path / "profile/Default/History") as kept:
        urls = [url for url, in kept.execute("SELECT url FROM urls")]
    assert any(f":{web.port}/" in url for url in urls) and not any(web.token in url or web.code in url for url in urls)
    code = urllib.parse.urlsplit(address).query.removeprefix("code=")
    assert web.code != code and web.exchange(code)[0] == 403


def in_another_tab(page, address, text):
    """Opens it, waits for the text, and is back in the first tab; what the page shows."""
    before = page.current_window_handle
    page.switch_to.new_window("tab")
    try:
        page.get(address)
        shown = lambda: page.execute_script("return document.getElementById('main').innerText")     # noqa: E731
        until(text, lambda: text in shown())
        return shown()
    finally:
        page.close()
        page.switch_to.window(before)


def test_tabs(page, web):
    """A tab has the token over reloads, and others have it from there; where none has it they say what to open."""
    link = f"http://127.0.0.1:{web.port}/#/node/b"
    shown, used = Shown(page, web, "#/node/b"), web.address
    shown.until("b-01")
    shown.run("dispatchEvent(new Event('pagehide'))")      # nothing of the cluster is kept for the next server of the port
    assert shown.run("Object.keys(sessionStorage)") == ["aliquot-token"]
    page.refresh()
    shown.until("b-01")
    in_another_tab(page, link, "b-01")
    in_another_tab(page, f"http://127.0.0.1:{web.port}/?code=x#/node/b", "b-01")
    page.get(used + "#/node/a")         # a new code in a tab that has the token
    shown.until("Node a")
    assert web.address != used
    page.get(used + "#/node/b")         # from the history: the tab still has the token
    shown.until("b-01")
    assert page.current_url == link
    page.get("about:blank")
    assert "b-01" not in in_another_tab(page, link, "this tab has no token: open the last address")
    assert "b-01" not in in_another_tab(page, used + "#/node/b", "this address was opened before: open the last one")
    in_another_tab(page, web.address + "#/node/b", "b-01")


def test_an_address_of_an_earlier_start(page, own, axe):
    own.start()
    shown, old = Shown(page, own, "#/node/b"), own.address
    shown.until("b-01")
    own.stop()
    own.start("--port", str(own.port))
    page.get(old + "#/node/b")          # with a token and a code that are both worth nothing
    shown.until("Nothing can be shown", "not served any more: open the address that aliquot web prints")
    page.refresh()
    shown.until("Nothing can be shown", "this tab has no token")
    page.execute_script(axe)
    assert page.execute_async_script("const done = arguments[0]; axe.run(document).then((r) => done(r.violations.map((v) => v.id)))") == []
    assert "b-01" not in shown.run("document.body.innerText")
    page.get(own.address + "#/node/b")
    shown.until("b-01")


def test_each_file_is_asked_for_once(page, web):
    """What the page asks for ahead is what it uses."""
    shown = Shown(page, web)
    shown.until_read()
    asked = [urllib.parse.urlsplit(name).path for name in shown.run("performance.getEntriesByType('resource').map((e) => e.name)")]
    assert "/api/mode" in asked and "/views.js" in asked and len(asked) == len(set(asked)), asked


def test_the_sum_follows_use(page, own):
    own.start()
    shown = Shown(page, own)
    until("the sum", lambda: "39 % in use" in shown.text(".sum"))
    own.answers[PROXY.format("agent-b") + "usage"]["gpus"][0]["memoryUsed"] += 40 << 30
    own.say()
    until("another sum", lambda: "44 % in use" in shown.text(".sum"))
    own.answers[GPUS]["items"] = [one for one in own.answers[GPUS]["items"] if one["spec"]["nodeName"] == "b"]
    own.say()
    until("the sum of what is left", lambda: "35 % in use" in shown.text(".sum") and "2 healthy" in shown.text(".sum"))


def test_too_many_pages(page, own):
    """A page that is one too many says so, and is served as soon as another one is closed."""
    own.start()
    others = [own.events() for _ in range(32)]
    for events in others:
        next(events)
    shown = Shown(page, own)
    until("it says so", lambda: "too many pages are open" in shown.text("#status"))
    for events in others:
        events.close()
    shown.until_read()


@pytest.mark.parametrize("route, texts", [
    ("#/", ["a", "H100", "Unhealthy", "its agent does not answer"]),
    ("#/node/b", ["Node b", "b-00", "b-01", "team/train", "15 GiB", "45 GiB"]),
    ("#/card/b-00", ["Card b-00", "60 % / 100 %", "60.5 GiB / 80 GiB", "46 %", uuid("b", 0), "Last hour", "could have 50 %", "throttled 1.5 s"]),
    ("#/pod/team/large", ["2 whole", "2 wanted, at most 1 free", "Pod team/large is pending."]),
    ("#/pod/team/train", ["b-00", "60 GiB", "What aliquot explain says", "Last hour"]),
    ("#/waiting", ["team/large", "3h", "team/fresh", "not tried yet"]),
    ("#/quotas", ["110 % used, 200 % guaranteed, at most 400 %", "99.5 GiB used", "no card has 80 % and 70 GiB free", "24 GiB"]),
    ("#/moves", ["Nothing is moved."]),
    ("#/node/none", ["There is no node none"]),
    ("#/card/none", ["There is no card none"]),
])
def test_deep_links(page, web, route, texts):
    shown = Shown(page, web, route)
    shown.until(*texts)
    assert shown.run("document.querySelectorAll('h1').length") == 1
    assert [entry for entry in page.get_log("browser") if "404" not in entry["message"]] == []


def test_search_filter_and_order(page, web):
    shown = Shown(page, web)
    shown.until_read()
    nodes = lambda: shown.texts(".node h2 a")       # noqa: E731
    cells = lambda: shown.run("[...document.querySelectorAll('.cell')].map((e) => e.getAttribute('href').slice(7))")  # noqa: E731
    choose = lambda name, value: Select(page.find_element("id", name)).select_by_value(value)     # noqa: E731
    assert nodes() == ["a", "b", "c"]
    assert [Select(page.find_element("id", name)).first_selected_option.text for name in ("show", "order")] == ["all cards", "name"]
    for words, left in [("team/train", ["b"]), ("H100 job-3", ["c"]), ("nothing", [])]:
        page.find_element("id", "search").send_keys(words)
        until(words, lambda: nodes() == left)
        page.find_element("id", "search").send_keys(Keys.ESCAPE)
    until("all", lambda: nodes() == ["a", "b", "c"])
    for choice, left in [("out", ["a-06"]), ("idle", ["a-05", "b-01"]), ("full", ["a-00", "a-01", "a-02", "a-03"])]:
        choose("show", choice)
        until(choice, lambda: cells() == left)
    choose("show", "all")
    choose("order", "byWaste")      # of what it has: u1 has 45 of its 60 GiB
    until("the wasteful one", lambda: nodes()[0] == "b" and cells()[0] == "b-00")
    choose("order", "byFull")
    until("the fullest one", lambda: nodes()[0] == "a")


def test_who_wastes_most(page, web):
    """The first row of the view of all containers, as it opens; other orders, and a search that the views have in common."""
    shown = Shown(page, web, "#/")
    shown.until_read()
    page.find_element("css selector", "nav a[href='#/containers']").click()
    shown.until("25 of 25 containers")
    first = lambda: shown.rows()[0][0]      # noqa: E731
    until("the most unused", lambda: first() == "team/train")
    row = dict(zip(shown.texts("th"), shown.rows()[0]))
    assert row["Unused"] == "45 GiB" and row["Used"] == "15 GiB" and row["Card"] == "b-00"
    choose = lambda value: Select(page.find_element("id", "first")).select_by_value(value)     # noqa: E731
    for order, pod_ in ("byUsed", "vision/train-3"), ("byBusy", "vision/train-0"), ("byName", "batch/job-0"), ("byWaste", "team/train"):
        choose(order)
        until(order, lambda: first() == pod_)
    assert shown.rows()[-1][6] == "-"       # last is what is not known
    page.find_element("id", "search").send_keys("speech")
    until("one row", lambda: [row[0] for row in shown.rows()] == ["speech/tts"])
    page.find_element("id", "search").send_keys(Keys.ESCAPE)
    shown.press("/")
    assert shown.focused() == "search"


def test_more_containers_than_rows(page, own):
    """The first 200 of them, in whatever order they come; the search finds the others."""
    sizes = [7 * k % 1501 + 1 for k in range(1500)]     # each once
    own.answers[GPUS] = {"items": [gpu("n", i, (0, "0"), [
        (f"u{k}", "team", f"p-{k}", 1, f"{sizes[k]}Mi") for k in range(15 * i, 15 * i + 15)]) for i in range(100)]}
    own.say()
    own.start()
    shown = Shown(page, own, "#/containers")
    shown.until("200 of 1500 containers")
    Select(page.find_element("id", "first")).select_by_value("byShare")
    wanted = [f"team/p-{sizes.index(size)}" for size in sorted(sizes, reverse=True)[:200]]
    until("the largest", lambda: [row[0] for row in shown.rows()] == wanted)
    page.find_element("id", "search").send_keys(f"p-{sizes.index(1)} ")
    until("the smallest", lambda: f"team/p-{sizes.index(1)}" in [row[0] for row in shown.rows()])


def test_how_it_was(page, web):
    """The figures of a time of the last hour, by keys."""
    shown = Shown(page, web, "#/card/b-00")
    shown.until("Memory 15.0 GiB")
    page.find_element("id", "step").send_keys(Keys.HOME)
    shown.until("Memory 2.1 GiB", "Compute not known")      # 60 of 420 parts; the first step has no GPU time
    assert shown.run("document.querySelector('.chart .mark').getAttribute('x1')") == "0"


def test_addresses_that_are_no_escaped_text(page, web):
    shown = Shown(page, web, "#/node/%")
    shown.until("There is no node %")
    shown.go("#/pod/%E4%BD/%zz")
    shown.until("%E4%BD/%zz")


def test_each_share_of_a_pod_has_its_history(page, own):
    """Also where the agent tells none: a line for each."""
    own.answers[GPUS] = {"items": [gpu("b", i, (50, "60Gi"), [("u9", "team", "two", 50, "20Gi")]) for i in range(2)]}
    own.answers[PROXY.format("agent-b") + "history?namespace=team&pod=two"] = {"node": "b", "stepMs": 10000, "containers": []}
    own.say()
    own.start()
    shown = Shown(page, own, "#/pod/team/two")
    shown.until("Last hour")
    until("a line for each share", lambda: len(shown.texts(".hour p.none")) == 2 and "Asking" not in shown.text(".hour"))


def test_refusals(page, own):
    own.answers[GPUS] = "error: gpus.elasticgpu.io is forbidden"
    own.say()
    own.start()
    shown = Shown(page, own, "#/waiting")
    shown.until("team/large")
    until("the refusal", lambda: "Cards: not shown, the API server refuses: gpus.elasticgpu.io is forbidden" in shown.text("#trouble"))
    own.answers[GPUS] = EMPTY
    own.say()
    until("no refusal", lambda: shown.text("#trouble") == "")


def test_after_a_restart(page, own):
    """The server ends: the page says so, and shows what it had; another one on that port has another token."""
    own.start()
    shown = Shown(page, own, "#/node/b")
    shown.until("team/train")
    own.stop()
    until("it is lost", lambda: "connection lost" in shown.text("#status"))
    assert "team/train" in shown.text()
    own.start("--port", str(own.port))
    until("the new one refuses", lambda: "open the address" in shown.text("#status"))


# ---- hostile texts ----

EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def test_hostile_texts_are_no_markup(page, own):
    """Names are no names here: what an API server would refuse is shown as the text that it is."""
    card = gpu("b", 0, (40, "8Gi"), [("u1", EVIL, EVIL, 50, "60Gi")], state=EVIL)
    card["spec"].update(model=EVIL, uuid=uuid("b", 0))
    card["status"].update(unavailable=EVIL, held=[{"by": EVIL, "resource": {"elasticgpu.io/gpu-core": "5"}}])
    card["metadata"]["name"] = "b-00"
    waits = pod("evil", core="30", conditions=[{"type": "PodScheduled", "status": "False", "message": EVIL}])
    waits["metadata"]["name"] = "evil"
    own.answers[GPUS] = {"items": [card]}
    own.answers[WAITING] = {"items": [waits]}
    own.answers[PROXY.format("agent-b") + "usage"] = {"gpus": [{"uuid": uuid("b", 0), "holders": [{"podUID": EVIL, "container": EVIL}]}]}
    own.answers[QUOTAS] = {"items": [{"metadata": {"namespace": "team", "name": "q"}, "spec": {"cohort": EVIL[:40]}}]}
    own.answers[CLAIMS] = {"items": [{"metadata": {"namespace": EVIL, "name": EVIL}, "status": {"phase": EVIL}}]}
    own.answers["get pod evil -n team -o json"] = waits
    own.say()
    own.start()
    shown = Shown(page, own)
    for route, text in [("#/", "<img"), ("#/node/b", EVIL), ("#/card/b-00", EVIL), ("#/waiting", EVIL), ("#/pod/team/evil", EVIL),
                        ("#/quotas", EVIL), (f"#/pod/team/{EVIL.replace('/', '')}", "<img"), ("#/card/" + EVIL.replace("/", ""), "<img")]:
        shown.go(route)
        shown.until(text)
        assert shown.run("document.querySelectorAll('img, main script, main style, iframe, object').length") == 0
        assert "owned" not in page.title.split("·")[0]
    assert page.get_cookies() == []


# ---- for all ----

@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_axe_finds_nothing(page, web, axe, width, dark):
    shown = Shown(page, web)
    shown.until_read()
    resize(page, width, 900)
    theme(page, dark)
    page.execute_script(axe)
    for route in VIEWS:
        shown.go(route)
        settle(shown, route)
        result = page.execute_async_script(
            "const done = arguments[0]; axe.run(document).then((r) => done(r.violations.map((v) => [v.id, v.nodes.map((n) => n.html)])))")
        assert result == [], (route, json.dumps(result, indent=1))


def settle(shown, route):
    """The view is there, with what commands and agents say."""
    until(route, lambda: shown.text("main") and "Asking" not in shown.text("main") and
          shown.run("document.querySelectorAll('h1').length") == 1)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_no_scrolling_to_the_side_at_360(page, web, language):
    shown = Shown(page, web)
    shown.until_read()
    resize(page, 360, 800)
    if language == "zh":
        page.find_element("id", "language").click()
    for route in VIEWS:
        shown.go(route)
        settle(shown, route)
        assert shown.run("document.documentElement.scrollWidth") <= 360, route
        assert shown.run("[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > 361 "
                         "&& !e.closest('thead, .hidden')).length") == 0, route
    if language == "zh":
        page.find_element("id", "language").click()


def test_colours_follow_the_system(page, web):
    shown = Shown(page, web)
    colours = set()
    for dark in (False, True):
        theme(page, dark)
        colours.add(shown.run("getComputedStyle(document.body).backgroundColor"))
    assert colours == {"rgb(255, 255, 255)", "rgb(20, 24, 28)"}


def test_languages(page, web, tmp_path):
    shown = Shown(page, web)
    shown.until_read()
    assert shown.run("document.documentElement.lang") == "en"
    page.find_element("id", "language").click()
    until("Chinese", lambda: "集群" in shown.text("#nav"))
    assert shown.run("document.documentElement.lang") == "zh-CN"
    page.refresh()
    until("Chinese, still", lambda: "集群" in shown.text("#nav"))
    page.find_element("id", "language").click()
    until("English", lambda: "Cluster" in shown.text("#nav"))
    for name, words in shown.run("(async () => (await import('/texts.js')).TEXTS)()").items():
        assert len(words) == 2 and all(words), name
        assert sorted(re.findall(r"\{\d\}", words[0])) == sorted(re.findall(r"\{\d\}", words[1])), name
    chinese = browser(tmp_path, language="zh-CN")
    try:
        chinese.get(web.address)
        until("Chinese by the browser", lambda: "集群" in chinese.find_element("id", "nav").text)
    finally:
        chinese.quit()


def test_by_keys_alone(page, web):
    """From the first key to a pod's reason, with the focus in sight all the way."""
    shown = Shown(page, web)
    shown.until_read()
    shown.press("/")
    until("the search has the focus", lambda: shown.focused() == "search")
    shown.press("train", Keys.TAB)
    assert shown.focused() == "show"
    shown.press(Keys.TAB)
    assert shown.focused() == "order"
    shown.press(Keys.TAB)
    assert shown.focused() == "#/node/a"
    shown.press(Keys.TAB)
    assert shown.focused() == "#/card/a-00"
    shown.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    shown.press(Keys.ARROW_LEFT)
    assert shown.focused() == "#/card/a-01"
    assert shown.run("getComputedStyle(document.activeElement).outlineStyle") != "none"
    before = shown.text("#status")
    until("another reading", lambda: shown.text("#status") != before)
    assert shown.focused() == "#/card/a-01"     # it stays while the page changes
    shown.press(Keys.ENTER)
    shown.until("Card a-01")
    assert shown.focused() == "main"
    order = []
    for _ in range(8):
        shown.press(Keys.TAB)
        order.append(shown.focused())
    assert order[:2] == ["#/node/a", "#/pod/vision/train-1"] and "step" in order
    shown.press("/")
    until("back in the search", lambda: shown.focused() == "search")
    shown.press(Keys.ESCAPE)
    until("an empty search", lambda: shown.run("document.getElementById('search').value") == "")


def test_a_hidden_page_reads_nothing(page, own):
    """A page behind another one closes its connection, and is up to date when it is back."""
    own.start()
    shown = Shown(page, own)
    shown.until_read()
    page.execute_script("Object.defineProperty(document, 'hidden', {configurable: true, get: () => true}); "
                        "document.dispatchEvent(new Event('visibilitychange'))")
    until("nothing is read", lambda: quiet(own))
    own.answers[GPUS] = {"items": [gpu("z", 0, (100, "80Gi"))]}
    own.say()
    page.execute_script("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    until("the new cards only", lambda: shown.texts(".node h2 a") == ["z"])


def quiet(web):
    before = len(web.asked())
    time.sleep(3)       # three intervals
    return len(web.asked()) == before


def test_many_nodes(page, own):
    """What is far from the window is not in the document, and comes when it is scrolled to."""
    own.answers[GPUS] = {"items": [gpu(f"n{i:04}", j, (100, "80Gi")) for i in range(1500) for j in range(4)]}
    own.say()
    own.start()
    shown = Shown(page, own)
    until("all nodes", lambda: "1500 of 1500 nodes, 6000 cards" in shown.text())
    assert 0 < shown.run("document.querySelectorAll('.cell').length") < 400
    page.execute_script("scrollTo(0, document.documentElement.scrollHeight)")
    until("the last one", lambda: shown.texts(".node h2 a")[-1:] == ["n1499"])
    assert shown.run("document.querySelector('.node:last-of-type').getBoundingClientRect().bottom <= innerHeight")
    assert shown.run("document.querySelectorAll('.cell').length") < 400
