# SPDX-License-Identifier: Apache-2.0
"""`aliquot web --in-cluster`: viewers with the same rights are shown one reading, and no other viewer is shown it."""

import contextlib
import json
import threading
import time

import pytest

from test_web_cluster import AGENTS, FIGURES_TOKEN, USAGE, api, cpu_of, everything, listed, start, waiting_pod     # noqa: F401  (fixtures)
from web_cluster import ACCESS, GPUS
from web_page import until

pytestmark = pytest.mark.waits

A, B = "first-token.a", "other-token.b"
LISTS = listed()
# Proofs are made every 15 s, at times that are looked at every 5 s.
PROVED = 25


class Watching:
    """A page that is open: what it shows, and whether its events have ended."""

    def __init__(self, web, token, namespace=None):
        self.found, self.seen, self.states, self.has_ended = {}, [], 0, False
        self.connection, self.answer = web.open(token, namespace)
        assert self.answer.status == 200
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for line in self.answer:
                if line.startswith(b"data: "):
                    self.take(json.loads(line[6:]))
        self.has_ended = True

    def take(self, line):
        self.seen.append(line)
        self.found[line["k"]] = line
        if line.get("gone"):
            del self.found[line["k"]]
        self.states += line["k"] == "state"

    def more(self, states=2, seconds=30):
        """So many more readings are shown."""
        end = self.states + states
        until("it is shown what is read", lambda: self.states >= end or self.has_ended, seconds)
        assert not self.has_ended

    def ended(self, seconds=PROVED):
        until("its events end", lambda: self.has_ended, seconds)

    def troubles(self):
        return {one["part"]: one["text"] for one in self.found["state"]["trouble"]}

    def close(self):
        self.connection.close()
        self.answer.close()


def readers(api, path=GPUS, since=0):     # noqa: F811
    """Tokens with which a list is read."""
    return {token for token, _, asked, _ in list(api.asked)[since:] if asked.partition("?")[0] == path}


def without(*paths):
    return {path: found for path, found in everything().items() if path not in paths}


@pytest.fixture
def both(start, api):     # noqa: F811
    """Two viewers of the same rights, of which A is the one whose token is read with."""
    api.rights.update({A: everything(), B: everything()})
    web = start()
    first = Watching(web, A)
    first.more(1)
    second = Watching(web, B)
    second.more(1)
    return web, first, second


# ---- who shares ----

def test_the_same_rights_are_one_reading(both, api):     # noqa: F811
    _, first, second = both
    since = len(api.asked)
    first.more(), second.more()
    assert first.found.keys() == second.found.keys() >= {"c/a/0", "u/a", "w/red/secret-red", "w/blue/secret-blue"}
    for path in everything():
        assert readers(api, path) == {A}
    assert {token for token, *_ in api.asked[since:]} == {A}    # but for proofs, which are not due yet


@pytest.mark.parametrize("path, key", [(LISTS["waiting"], "w/"), (LISTS["quotas"], "q/"), (LISTS["claims"], "m/"), (AGENTS, "u/"), (USAGE, "u/"),
                                       (FIGURES_TOKEN, "none"), (GPUS, "c/")], ids=lambda v: v[-12:])
@pytest.mark.parametrize("narrower_first", [True, False])
def test_other_rights_are_another_reading(start, api, path, key, narrower_first):     # noqa: F811
    """Whichever is there first; what the one may not read is not in what it is shown."""
    secret = {"metadata": {"namespace": "red", "name": "x"}, "spec": {}, "status": {}}
    api.rights[A] = {**everything(), LISTS["quotas"]: {"items": [secret]}, LISTS["claims"]: {"items": [secret]}}
    api.rights[B] = {at: found for at, found in api.rights[A].items() if at != path}
    web = start()
    order = (B, A) if narrower_first else (A, B)
    pages = {}
    for token in order:
        pages[token] = Watching(web, token)
        pages[token].more(1)
    pages[A].more(), pages[B].more()
    assert not any(line["k"].startswith(key) for line in pages[B].seen)
    assert any(line["k"].startswith(key) for line in pages[A].seen) or key in ("none", "q/")
    assert not pages[A].troubles() and (pages[B].troubles() or path == FIGURES_TOKEN)    # which this agent does not ask for
    if path != GPUS:
        assert readers(api) == {A, B}
        # what it may not read is not asked for, and no text names whose token is read with
        assert B not in readers(api, path) or path == FIGURES_TOKEN
        assert all(B[:4] not in text and "this token may not" in text for text in pages[B].troubles().values())


def test_namespaces_are_apart(start, api):     # noqa: F811
    inside = listed("red")
    api.rights[A] = {**everything(), inside["waiting"]: {"items": [waiting_pod("red", "secret-red")]}, inside["quotas"]: {"items": []},
                     inside["claims"]: {"items": []}}
    api.rights[B] = without(*LISTS.values()) | {path: api.rights[A][path] for path in inside.values()}
    web = start()
    everywhere, one, other = Watching(web, A), Watching(web, A, "red"), Watching(web, B, "red")
    for page in (everywhere, one, other):
        page.more()
    assert len(readers(api, inside["waiting"])) == 1 and readers(api, LISTS["waiting"]) == {A}
    assert {key for key in everywhere.found if key[:2] == "w/"} == {"w/red/secret-red", "w/blue/secret-blue"}
    for page in (one, other):
        assert {key for key in page.found if key[:2] == "w/"} == {"w/red/secret-red"} and "blue" not in json.dumps(page.seen)
    for page in (everywhere, one, other):
        page.close()


def test_a_namespace_without_figures_of_agents(start, api):     # noqa: F811
    """The metrics API may tell each of them something else."""
    inside = listed("red")
    empty = {"items": []}
    for token in (A, B):
        api.rights[token] = without(*LISTS.values(), USAGE) | {path: empty for path in inside.values()}
    web = start()
    pages = Watching(web, A, "red"), Watching(web, B, "red")
    for page in pages:
        page.more()
    assert readers(api) == {A, B}


def test_without_reviews_none_shares(start, api):     # noqa: F811
    """An API server that does not say what a token may do."""
    api.rights.update({A: everything(), B: everything()})
    api.reviews = lambda token: False
    web = start()
    pages = Watching(web, A), Watching(web, B)
    for page in pages:
        page.more()
    assert readers(api) == {A, B} and pages[1].found.keys() >= {"c/a/0", "u/a", "w/red/secret-red"}


def test_tokens_that_are_not_taken_get_in_nowhere(both, api):     # noqa: F811
    web, *_ = both
    for token in (A[:-1], A + "x", "unknown"):
        assert web.request("/api/events", token)[0] == 401


def test_questions_are_asked_with_ones_own_token(both, api):     # noqa: F811
    web, *_ = both
    api.rights[B][AGENTS + "/agent-a:9400/proxy/history"] = {"containers": []}
    since = len(api.asked)
    assert web.request("/api/history?node=a&namespace=red&pod=p", B)[0] == 200
    assert web.request("/api/explain?namespace=red&pod=secret-red", B)[0] == 200
    assert B in {token for token, _, path, _ in api.asked[since:] if path.endswith("/history?namespace=red&pod=p")}
    assert B in {token for token, _, path, _ in api.asked[since:] if path.endswith("/pods/secret-red")}
    assert web.request("/api/history?node=a&namespace=red&pod=p", A)[0] == 403


# ---- tokens that end ----

def test_the_token_that_is_read_with_is_revoked(both, api):     # noqa: F811
    web, first, second = both
    del api.rights[A]
    first.ended(10)
    assert web.request("/api/events", A)[0] == 401
    api.rights[B][LISTS["waiting"]]["items"].append(waiting_pod("red", "later"))
    until("the other one goes on", lambda: "w/red/later" in second.found)
    assert not second.has_ended and not any(line.get("gone") for line in second.seen) and "w/red/later" not in first.found


def test_another_token_is_revoked(both, api):     # noqa: F811
    """Nothing is read with it; it is out within the time of a proof, and at once when it asks."""
    web, first, second = both
    del api.rights[B]
    second.ended()
    assert web.request("/api/events", B)[0] == 401
    first.more()


def test_the_viewer_whose_token_is_read_with_leaves(both, api):     # noqa: F811
    _, first, second = both
    first.close()
    until("the other's token is used", lambda: B in readers(api))
    since = len(api.asked)
    second.more()
    assert readers(api, since=since) == {B} and not any(line.get("gone") for line in second.seen)


def test_an_api_server_that_puts_one_user_off(both, api):     # noqa: F811
    """The next one's token is read with: what one user asks too much elsewhere costs the others a reading."""
    _, first, second = both
    api.rights[A][LISTS["quotas"]] = lambda: 429
    until("the other's token is used", lambda: B in readers(api))
    since = len(api.asked)
    first.more(), second.more()
    assert readers(api, since=since) == {B} and not first.troubles() and not second.troubles()


def test_an_api_server_that_fails(both, api):     # noqa: F811
    """For one user or all: that is said, and no other token is read with, as it is no matter of the user."""
    _, first, second = both
    api.rights[A][LISTS["quotas"]] = lambda: 500
    until("it is said", lambda: "quotas" in second.troubles())
    first.more(3)
    assert readers(api) == {A} and [path for token, _, path, _ in api.asked if token == A].count(FIGURES_TOKEN) <= 1


# ---- rights that change ----

@pytest.mark.parametrize("acts", [False, True], ids=["another", "the one that is read with"])
def test_rights_that_become_narrower(both, api, acts):     # noqa: F811
    """Pages of the token are ended, and see no more when they are opened again; the others see no difference."""
    web, first, second = both
    token, narrowed, other = (A, first, second) if acts else (B, second, first)
    del api.rights[token][LISTS["waiting"]]
    narrowed.ended()
    api.rights[B if acts else A][LISTS["waiting"]]["items"].append(waiting_pod("red", "later"))
    again = Watching(web, token)
    again.more()
    until("the other one goes on", lambda: "w/red/later" in other.found)
    again.more()
    assert not any(line["k"].startswith("w/") for line in again.seen) and again.troubles().keys() == {"waiting"}
    assert not any(line["k"] == "w/red/later" for line in narrowed.seen)
    assert not other.has_ended and not any(line.get("gone") for line in other.seen) and not other.troubles()


def test_a_page_that_is_opened_after_rights_became_narrower(both, api):     # noqa: F811
    """At once, and not when the next proof is due: what others may read is not shown for a moment."""
    web, first, _ = both
    del api.rights[B][LISTS["waiting"]]
    for _ in range(3):
        page = Watching(web, B)
        until("it is shown something, or ended", lambda page=page: page.states or page.has_ended)
        assert not any(line["k"].startswith("w/") for line in page.seen)
        page.close()
    first.more()


def test_rights_that_become_wider(start, api):     # noqa: F811
    """The reading of others is joined."""
    api.rights.update({A: everything(), B: without(LISTS["waiting"])})
    web = start()
    first, second = Watching(web, A), Watching(web, B)
    first.more(), second.more()
    api.rights[B] = everything()
    second.ended()
    again = Watching(web, B)
    again.more()
    assert "w/red/secret-red" in again.found
    since = len(api.asked)
    again.more()
    assert readers(api, since=since) == {A}


def test_rights_that_can_not_be_proved_any_more(both, api):     # noqa: F811
    """While the API server is silent about a token nothing more of others is shown to it, and all again afterwards."""
    _, first, second = both
    silent, asked = threading.Event(), threading.Event()

    def review(token):
        if token == B:
            asked.set()
            silent.wait(120)
        return True
    api.reviews = review
    assert asked.wait(PROVED)
    time.sleep(42)      # the bound, after which nothing is told
    api.rights[A][LISTS["waiting"]]["items"].append(waiting_pod("red", "later"))
    until("it is read", lambda: "w/red/later" in first.found)
    first.more()
    assert "w/red/later" not in second.found and not second.has_ended
    silent.set()
    until("all is shown again", lambda: "w/red/later" in second.found)


@pytest.mark.parametrize("path, part", [(LISTS["waiting"], "waiting"), (LISTS["claims"], "claims")])
def test_an_api_server_that_refuses_what_it_said_is_allowed(both, api, path, part):     # noqa: F811
    """To all viewers: it is said, no text names a user, and nothing is asked without end."""
    web, first, second = both
    for token in (A, B):
        api.rights[token][path] = lambda: 403
    for page in (first, second):
        until("it is said", lambda page=page: part in page.troubles())
        assert page.troubles()[part].startswith("this token may not") and not page.has_ended
    before, since = cpu_of(web), len(api.asked)
    time.sleep(5)
    assert cpu_of(web) - before < 1 and len(api.asked) - since < 200
    first.more()


def test_proofs_are_reviews_of_what_is_read(both, api):     # noqa: F811
    """Each with one's own token, and nothing else is asked with that of one who is shown another's reading."""
    assert [path for token, _, path, _ in api.asked if token == B].count(ACCESS) == 7
    assert {path for token, _, path, _ in api.asked if token == B and path != ACCESS} == {"/apis/authentication.k8s.io/v1/selfsubjectreviews"}
