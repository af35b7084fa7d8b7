# SPDX-License-Identifier: Apache-2.0
"""`aliquot web` as a command and a server: who is answered, what is read, how it ends. The page itself: test_web_page.py."""

import gzip
import json
import os
import re
import signal
import socket
import stat
import time

import pytest

from test_inspect import gpu, pod
from web_page import (AGENTS, AGENTS_ON, CLAIMS, EMPTY, GPUS, GROUP, PATIENCE, PROXY, QUOTAS, WAITING, Web, agent, furnish, until)


pytestmark = pytest.mark.waits


@pytest.fixture
def web(aliquot, tmp_path):
    made = Web(aliquot, tmp_path)
    yield made
    made.stop()


def lines_until(web, done):
    """Lines of the events by their keys, up to the state for which `done` is true."""
    found, end = {}, time.monotonic() + PATIENCE
    for line in web.events():
        assert time.monotonic() < end, (PATIENCE, found)
        found[line["k"]] = line
        if line.get("gone"):
            del found[line["k"]]
        if line["k"] == "state" and done(found):
            return found


# ---- who is answered ----

FILES = ["/", "/app.js", "/style.css"]
FIGURES = ["/api/events", "/api/history?node=b&namespace=team&pod=train", "/api/explain?namespace=team&pod=large", "/api/plan"]


@pytest.mark.parametrize("path", FIGURES)
@pytest.mark.parametrize("headers", [
    {"X_Aliquot_Token": None}, {"X_Aliquot_Token": "A" * 43}, {"X_Aliquot_Token": ""}, {"X_Aliquot_Token": "{token}A"},
    {"X_Aliquot_Token": None, "Cookie": "aliquot-token={token}"}], ids=str)
def test_refused_without_the_token(started, path, headers):
    headers = {name: value and value.format(token=started.token) for name, value in headers.items()}
    answered, _, body = started.request(path, **headers)
    assert answered == 401 and started.token.encode() not in body
    assert started.request(f"{path}{'&' if '?' in path else '?'}token={started.token}", X_Aliquot_Token=None)[0] == 401


def test_an_address_is_good_once(started):
    """Its code gives the token, and the next one is printed; neither gives the token away in another place."""
    before = started.printed()
    for _ in range(2):
        code = started.code
        for wrong in (None, "", "A" * 43, started.token, code + "A", code[:-1]):
            assert started.exchange(wrong)[0] == 403
        assert started.exchange(code, Sec_Fetch_Site="cross-site")[0] == started.exchange(code, Origin="http://example.org")[0] == 403
        assert started.request(f"/api/token?code={code}")[0] == 403 and started.request("/api/plan", X_Aliquot_Token=code)[0] == 401
        status, _, body = started.exchange(code)
        assert status == 200 and json.loads(body) == {"token": started.token}
        assert started.code != code and started.exchange(code)[0] == 403
    assert re.fullmatch("(It was opened. The next address:\n.*\n){2}", started.printed().removeprefix(before))
    assert started.token not in started.printed()


def test_addresses_that_none_reads(web):
    web.start()
    code = web.code
    web.process.stdout.close()
    assert web.exchange(code)[0] == 200 and web.request("/")[0] == 200


@pytest.mark.parametrize("path", FILES + FIGURES + ["/api/token"])
@pytest.mark.parametrize("status, headers", [
    (403, {"Host": "example.org:{port}"}),
    (403, {"Host": "127.0.0.1"}),
    (403, {"Host": "127.0.0.1:{port}.example.org"}),
    (403, {"Origin": "http://example.org"}),
    (403, {"Origin": "null"}),
    (403, {"Origin": "https://127.0.0.1:{port}"}),
], ids=str)
def test_refused(started, path, status, headers):
    headers = {name: value.format(port=started.port) for name, value in headers.items()}
    answered, _, body = started.request(path, **headers)
    assert answered == status and started.token.encode() not in body


@pytest.fixture(scope="module")
def started(aliquot, tmp_path_factory):
    made = Web(aliquot, tmp_path_factory.mktemp("web")).start()
    yield made
    made.stop()


@pytest.mark.parametrize("path", FILES[1:] + FIGURES)
def test_links_of_other_sites_lead_to_the_page_only(started, path):
    assert started.request(path, Sec_Fetch_Site="cross-site")[0] == 403
    assert started.request("/", Sec_Fetch_Site="cross-site")[0] == 200


def test_the_page_has_a_policy_and_no_secret(started):
    """Cookies go to all servers of 127.0.0.1, whatever their port: there is none."""
    for path in FILES:
        status, headers, body = started.request(f"{path}?code={started.code}", X_Aliquot_Token=None)
        assert status == 200 and "Set-Cookie" not in headers and started.token.encode() not in body
    body = started.request("/", X_Aliquot_Token=None)[2]
    assert b"<main" in body
    for name in ("localhost", "127.0.0.1"):
        assert started.request("/", Host=f"{name}:{started.port}", Origin=f"http://{name}:{started.port}")[0] == 200
    for path in ("/", "/app.js", "/nothing"):
        headers = started.request(path)[1]
        policy = dict(part.split(" ", 1) for part in headers["Content-Security-Policy"].split("; "))
        assert policy == {"default-src": "'none'", "script-src": "'self'", "style-src": "'self'", "connect-src": "'self'",
                          "img-src": "'self' data:", "base-uri": "'none'", "form-action": "'none'", "frame-ancestors": "'none'"}
        assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"], headers["Cache-Control"]) == (
            "nosniff", "no-referrer", "no-store")
    assert re.search(rb"<script(?! type=\"module\" src=\"/app.js\">)|<style|\son\w+=|style=", body) is None


def test_reads_only(started):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert started.request("/", method=method)[0] == 405
        assert started.request("/api/plan", method=method)[0] == 405
    assert started.request("/../etc/passwd")[0] == 404
    assert started.request("/nothing")[0] == 404


@pytest.mark.parametrize("path", ["/api/history?node=b&namespace=team", "/api/history?node=../x&namespace=team&pod=p",
                                  "/api/explain?namespace=--help&pod=p", "/api/explain?namespace=team&pod=a%20b"])
def test_only_names_are_passed_on(started, path):
    status, _, body = started.request(path)
    assert status == 400 and b"is no name" in body


def test_files_are_small_and_compressed(started):
    plain, packed = 0, 0
    names = [path.name for path in (os.scandir(os.path.join(os.path.dirname(__file__), "../../src/cli/web/static")))]
    assert "index.html" in names
    for name in names:
        path = "/" if name == "index.html" else "/" + name
        status, headers, body = started.request(path, Accept_Encoding="gzip")
        _, plainly, whole = started.request(path)
        assert "Content-Encoding" not in plainly and "Accept-Encoding" in plainly["Vary"] and headers["Vary"] == plainly["Vary"]
        assert status == 200 and headers["Content-Encoding"] == "gzip" and gzip.decompress(body) == whole
        assert body[8] == 2     # with all effort: by the build, and not for each client that asks
        packed += len(body)
        plain += len(whole)
    assert packed < plain / 2 and plain <= 150_000


def test_the_page_names_its_modules(started):
    """A browser asks for all of them at once, and not for each when another one has named it."""
    static = os.path.join(os.path.dirname(__file__), "../../src/cli/web/static")
    named = re.findall(r'<link rel="modulepreload" href="/(\w+\.js)">', started.request("/")[2].decode())
    assert sorted([*named, "app.js"]) == sorted(name for name in os.listdir(static) if name.endswith(".js"))


# ---- what is read ----

def test_lines(web):
    furnish(web).start()
    found = lines_until(web, lambda found: "u/a" in found)
    assert [card["name"] for card in found["c/b/0"]["cards"]] == ["b-01", "b-00"] or \
        [card["name"] for card in found["c/b/0"]["cards"]] == ["b-00", "b-01"]
    b0 = next(card for card in found["c/b/0"]["cards"] if card["name"] == "b-00")
    assert (b0["core"], b0["tcore"], b0["mem"], b0["tmem"]) == (100, 60, 80 << 30, (80 << 30) - (19968 << 20))
    assert [(h["ns"], h["pod"], h["core"]) for h in b0["h"]] == [("team", "train", 50), ("team", "web", 10)]
    (used,) = [card for card in found["u/b"]["cards"] if card["uuid"] == b0["uuid"]]
    assert used["busy"] == 46 and [h["used"] for h in used["h"]] == [15 << 30, 512 << 20]
    assert found["u/c"]["answers"] is False and found["state"]["silent"] == 1
    assert found["w/team/large"]["wants"] == "2 whole" and "2 wanted" in found["w/team/large"]["reason"]
    assert found["q/team/gpus"]["core"] == {"guaranteed": 200, "max": 400, "used": 110}
    assert found["m/team/weights"]["mem"] == 24 << 30 and found["m/team/late"]["phase"] == "Pending"
    assert found["state"]["trouble"] == []


def test_only_changes_are_sent(web):
    furnish(web).start()
    seen, states = [], 0
    for line in web.events():
        if line["k"] != "state":
            seen.append(line["k"])
        else:
            states += 1
        if states == 1 and "gone" not in web.answers:
            web.answers.update(gone={}, **{WAITING: EMPTY})
            before = len(seen)
            web.say()
        if line.get("gone") and "w/team/fresh" in seen[before:] and "w/team/large" in seen[before:]:
            break
    assert set(seen[before:]) == {"w/team/fresh", "w/team/large"}


def test_a_page_that_opens_in_the_midst_of_a_reading(web):
    """All that there is comes before the state, at which a page takes for gone what it was not told."""
    furnish(web)
    web.hold(WAITING)
    web.start()
    events = web.events()
    line = next(events)
    until("the first reading is in its midst", lambda: WAITING in web.asked())
    web.hold(GPUS)      # the second one does not begin yet
    before = {line["k"]: line}
    while "state" not in before:
        line = next(events)
        before[line["k"]] = line
    for card in web.answers[GPUS]["items"]:
        card["spec"]["model"] = "another"
    web.say()
    web.hold(WAITING)
    changed = {next(events)["k"] for _ in range(3)}
    found = lines_until(web, lambda found: True)
    assert changed == {"c/a/0", "c/b/0", "c/c/0"} and set(found) == set(before) and found["state"] == before["state"]
    assert all(card["model"] == "another" for key in changed for card in found[key]["cards"])
    events.close()


def test_nothing_is_read_while_no_page_is_open(web):
    furnish(web).start()
    lines_until(web, lambda found: True)
    until("a reading after which no other one follows", lambda: is_quiet(web))
    asked = len(web.asked())
    events = web.events()
    next(events)
    until("the next reading", lambda: len(web.asked()) > asked)
    events.close()


def test_a_reading_that_was_broken_off(web):
    """The page is closed in its midst: the next page does not wait for the rest after it."""
    furnish(web).start("--interval", "3600")
    descriptors = lambda: len(os.listdir(f"/proc/{web.process.pid}/fd"))     # noqa: E731
    web.hold(WAITING)
    events = web.events()
    next(events)
    until("it is in the midst", lambda: WAITING in web.asked())
    opened = descriptors()
    events.close()
    web.hold(QUOTAS)        # what is sent to a closed page shows that it is closed
    until("more was sent", lambda: QUOTAS in web.asked())
    web.hold(CLAIMS)
    until("the page is known to be closed", lambda: descriptors() < opened)
    web.hold("")
    until("nothing more is read", lambda: is_quiet(web))
    assert AGENTS not in web.asked()        # which are the last part of a reading
    assert lines_until(web, lambda found: "u/b" in found)


def is_quiet(web, seconds=3):
    """No request in three intervals."""
    before = len(web.asked())
    time.sleep(seconds)
    return len(web.asked()) == before


def test_one_reading_serves_all(web):
    furnish(web).start()
    viewers = [web.events() for _ in range(5)]
    for viewer in viewers:
        next(viewer)
    before = web.asked().count(GPUS)
    times = [line["time"] for line, _ in zip(states(viewers[0]), range(4))]
    assert web.asked().count(GPUS) - before <= len(times) + 1
    for viewer in viewers[1:]:
        assert times[-1] in (line["time"] for line in states(viewer))
    for viewer in viewers:
        viewer.close()


def states(events):
    return (line for line in events if line["k"] == "state")


def test_a_slow_viewer_stops_nothing(web):
    """It reads nothing; another one sees the changes, and there can be 32."""
    furnish(web).start()
    slow = []
    for _ in range(31):
        slow.append(socket.create_connection(("127.0.0.1", web.port)))
        slow[-1].sendall(f"GET /api/events HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\nX-Aliquot-Token: {web.token}\r\n\r\n".encode())
    until("they are all served", lambda: all(len(s.recv(16, socket.MSG_PEEK)) > 0 for s in slow))
    for i, line in enumerate(states(web.events())):
        web.answers[WAITING] = {"items": [pod(f"pod-{i}", core="30")]}
        web.say()
        if i == 3:
            break
    extra = [web.events() for _ in range(2)]
    with pytest.raises(AssertionError):
        for events in extra:
            next(events)
    for connection in slow:
        connection.close()


def test_refusals_are_named(web):
    furnish(web)
    for asked in (GPUS, AGENTS, CLAIMS):
        web.answers[asked] = f"error: forbidden: {asked.split()[1]}"
    web.say()
    web.start()
    found = lines_until(web, lambda found: True)
    assert {(one["part"], one["refused"]) for one in found["state"]["trouble"]} == {("cards", True), ("use", True), ("claims", True)}
    assert "w/team/large" in found and "q/team/gpus" in found and not [key for key in found if key[:2] in ("c/", "u/", "m/")]


def test_pods_of_agents_come_in_pages(web):
    """A pod has kilobytes, and a large cluster thousands of agents. What would be more than a token is not sent back."""
    furnish(web)
    more = AGENTS.replace(" -o json", "&limit=64&continue={} -o json")
    for node in ("b", "x"):
        web.answers[PROXY.format(f"agent-{node}") + "usage"] = {"gpus": []}
    web.answers[AGENTS] = {"metadata": {"continue": "abc"}, "items": [agent("b")]}
    web.answers[more.format("abc")] = {"metadata": {"continue": ""}, "items": [agent("x")]}
    web.say()
    web.start()
    assert {"u/b", "u/x"} <= lines_until(web, lambda found: True).keys()
    web.answers[AGENTS]["metadata"]["continue"] = "x&watch=1"
    web.say()
    found = lines_until(web, lambda found: found["state"]["trouble"])
    assert "is not known" in found["state"]["trouble"][0]["text"] and not any("watch" in words for words in web.asked())


def test_one_agent_that_takes_no_token(web):
    """The others are asked with the same one, in this reading and the next."""
    nodes = [f"n{i}" for i in range(200)]
    web.answers[AGENTS] = {"items": [agent(node) for node in nodes]}
    web.answers["create token aliquot-figures"] = "secret"
    for node in nodes[1:]:
        web.answers[PROXY.format(f"agent-{node}") + "usage with secret"] = {"gpus": []}
    web.answers[PROXY.format("agent-n0") + "usage with secret"] = "401: not this one"
    web.say()
    web.start()
    for _ in range(2):
        found = lines_until(web, lambda found: True)
        assert [node for node in nodes if not found[f"u/{node}"]["answers"]] == ["n0"] and found["state"]["silent"] == 1
    assert web.asked().count("create token aliquot-figures") == 1


def test_agents_that_deny_a_user_what_they_told(web):
    """What they told is no longer shown."""
    furnish(web)
    web.start()
    assert lines_until(web, lambda found: True)["u/b"]["answers"]
    for asked in [words for words in web.answers if "/proxy/" in words]:
        web.answers[asked] = "401: this page asks for a token"
    web.answers["create token aliquot-figures"] = "error: no such right"
    web.say()
    found = lines_until(web, lambda found: found["state"]["trouble"])
    assert [(one["part"], one["refused"]) for one in found["state"]["trouble"]] == [("use", True)]
    assert found["u/b"]["answers"] is False


def test_what_was_read_stays_when_the_cluster_is_away(web):
    furnish(web).start()
    lines_until(web, lambda found: True)
    cards = web.answers.pop(GPUS)
    web.say()
    found = lines_until(web, lambda found: found["state"]["trouble"])
    assert "c/b/0" in found and found["state"]["trouble"][0]["refused"] is False
    web.answers[GPUS] = cards
    web.say()
    assert lines_until(web, lambda found: not found["state"]["trouble"])


def test_namespace(web):
    """Only what pods of it have, and only lists of it are read."""
    furnish(web)
    for asked in (QUOTAS, CLAIMS):
        web.answers[asked.replace("v1alpha1", "v1alpha1/namespaces/team")] = web.answers.pop(asked)
    web.answers["get --raw /api/v1/namespaces/team/pods?fieldSelector=spec.nodeName%3D"] = web.answers.pop(WAITING)
    web.say()
    web.start("-n", "team")
    found = lines_until(web, lambda found: "u/a" in found)
    assert found["state"]["trouble"] == [] and found["state"]["namespace"] == "team"
    holders = {h["ns"] for key, line in found.items() if key.startswith("c/") for card in line["cards"] for h in card["h"]}
    assert holders == {"team"} and "used" not in found["u/b"]["cards"][0]


@pytest.mark.parametrize("second, lines", [
    (["b-01", "c-00"], {"c/a/0": ["a-00"], "c/b/0": ["b-00", "b-01"], "c/c/0": ["c-00"]}),
    (["a-01", "b-01"], {"c/a/0": ["a-00"], "c/b/0": ["b-00"], "c/a/1": ["a-01"], "c/b/1": ["b-01"]}),
], ids=str)
def test_pages_of_cards(web, second, lines):
    """A list in two pages; cards of a node in both, as neighbours and apart."""
    more = "get --raw /apis/elasticgpu.io/v1alpha1/gpus?limit=250&continue=abc"
    page = lambda names: [gpu(name[0], int(name[2:]), (100, "80Gi")) for name in names]     # noqa: E731
    web.answers[GPUS] = {"metadata": {"continue": "abc"}, "items": page(["a-00", "b-00"])}
    web.answers[more] = {"items": page(second)}
    web.say()
    web.start()
    found = lines_until(web, lambda found: True)
    assert {key: [card["name"] for card in line["cards"]] for key, line in found.items() if key.startswith("c/")} == lines


def test_a_list_that_goes_on_strangely(web):
    """It is not taken for a whole one, of which all else would be gone."""
    web.answers[GPUS] = {"items": [gpu("a", 0, (100, "80Gi")), gpu("b", 0, (100, "80Gi"))]}
    web.say()
    web.start()
    lines_until(web, lambda found: "c/b/0" in found)
    web.answers[GPUS] = {"metadata": {"continue": "x&limit=1"}, "items": [gpu("a", 0, (100, "80Gi"))]}
    web.say()
    found = lines_until(web, lambda found: found["state"]["trouble"])
    assert "c/b/0" in found and "is not known" in found["state"]["trouble"][0]["text"]


@pytest.mark.parametrize("first", [0, 1])
def test_two_agents_of_a_node(web, first):
    """The one that answers counts, whichever comes first."""
    furnish(web)
    gone = agent("b")
    gone["metadata"]["name"] = "agent-gone"
    web.answers[AGENTS]["items"] = [agent("b"), gone] if first == 0 else [gone, agent("b")]
    web.say()
    web.start()
    found = lines_until(web, lambda found: True)
    assert found["u/b"]["answers"] and len(found["u/b"]["cards"]) == 2 and found["state"]["silent"] == 0


def test_history(web):
    furnish(web).start()
    status, headers, body = web.request("/api/history?node=b&namespace=team&pod=train")
    assert status == 200 and json.loads(body)["containers"][0]["pod"] == "train"
    web.answers[AGENTS_ON.format("b")] = EMPTY
    web.say()
    status, _, body = web.request("/api/history?node=b&namespace=team&pod=train")
    assert status == 404 and b"node b has no agent" in body
    web.answers[AGENTS_ON.format("b")] = "error: pods is forbidden"
    web.say()
    status, _, body = web.request("/api/history?node=b&namespace=team&pod=train")
    assert status == 403 and b"pods is forbidden" in body


def test_explain(web):
    furnish(web).start()
    answer = json.loads(web.request("/api/explain?namespace=team&pod=large")[2])
    assert answer["status"] == 0 and "Pod team/large is pending." in answer["text"]
    answer = json.loads(web.request("/api/explain?namespace=team&pod=nothing")[2])
    assert answer["status"] == 1 and "nothing is known" in answer["text"]


# ---- beginning and end ----

@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_end(web, number):
    """It ends at once, with a page open, and leaves nothing."""
    furnish(web).start()
    events = web.events()
    next(events)
    children = until("its kubectl", lambda: open(f"/proc/{web.process.pid}/task/{web.process.pid}/children").read().split())
    web.process.send_signal(number)
    assert web.process.wait(PATIENCE) == 0
    until("kubectl has ended", lambda: not any(is_alive(child) for child in children))
    assert sorted(p.name for p in web.where.iterdir()) == ["answers.json", "asked", "held", "kubectl"]
    assert web.process.stderr.read() == ""


def is_alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_without_a_cluster(web):
    web.answers.pop(GROUP)
    web.say()
    process = web.spawn()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "") and "Aliquot is not installed" in err
    process = web.spawn(KUBECTL="/nonexistent")
    assert process.communicate(timeout=PATIENCE)[1] == "aliquot web: kubectl is not on the path; install it or set KUBECTL\n"
    assert process.returncode == 1


def test_port(web):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        process = web.spawn("--port", str(taken.getsockname()[1]))
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out) == (1, "") and "Address already in use" in err
        port = taken.getsockname()[1]
    assert web.start("--port", str(port)).port == port


@pytest.mark.parametrize("words", [["--port", "70000"], ["--interval", "0"], ["--system", "A/b"], ["-n", "../x"], ["word"]])
def test_wrong_words(web, words):
    process = web.spawn(*words)
    assert process.communicate(timeout=PATIENCE)[0] == "" and process.returncode == 2


def test_open(web):
    """xdg-open gets a file of the user's own, not the token; it goes with the command."""
    programs = web.where / "bin"
    programs.mkdir()
    (programs / "xdg-open").write_text('#!/bin/sh\nprintf %s "$1" >"$ANSWERS/new-opened" && mv "$ANSWERS/new-opened" "$ANSWERS/opened"\n')
    (programs / "xdg-open").chmod(0o755)
    web.start("--open", PATH=f"{programs}:{os.environ['PATH']}")
    opened = until("it was opened", lambda: (web.where / "opened").exists() and (web.where / "opened").read_text())
    assert "code" not in opened and web.printed().splitlines()[0] in open(opened).read()
    assert stat.S_IMODE(os.stat(opened).st_mode) == 0o600
    web.stop()
    assert not os.path.exists(opened)


def test_open_without_a_browser(web):
    web.start("--open", PATH="/nonexistent")
    assert "xdg-open is not on the path" in web.process.stderr.readline()
    assert web.request("/")[0] == 200
