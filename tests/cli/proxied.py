# SPDX-License-Identifier: Apache-2.0
"""`kubectl proxy --unix-socket` for a kubectl that answers from files: requests become the words of `kubectl get`."""

import json
import re
import sys
import urllib.parse

import unix_http

# The path of a request, and what kubectl would be asked in its place.
WORDS = [
    (r"/apis/elasticgpu\.io/v1alpha1/gpus(?:\?limit=\d+)?", "get gpus.elasticgpu.io -o json"),
    (r"/apis/elasticgpu\.io/v1alpha1/gpus/([^/]+)", "get gpus.elasticgpu.io {} -o json"),
    (r"/api/v1/nodes", "get nodes -o json"),
    (r"/api/v1/nodes/([^/]+)", "get node {} -o json"),
    (r"/api/v1/pods", "get pods -A -o json"),
    (r"/api/v1/pods\?fieldSelector=(.*)", "get pods -A --field-selector={} -o json"),
    (r"/apis/policy/v1/poddisruptionbudgets", "get poddisruptionbudgets.policy -A -o json"),
    (r"/api/v1/namespaces/([^/]+)/pods\?labelSelector=(.*?)(?:&limit=\d+)?", "get pods -n {} -l {} -o json"),
    (r"/api/v1/namespaces/([^/]+)/pods/([^/]+)", "get pod {1} -n {0} -o json"),
    (r"/api/v1/namespaces/([^/]+)/events\?fieldSelector=(.*)", "get events -n {} --field-selector={} -o json"),
]


def words_of(path):
    for pattern, words in WORDS:
        match = re.fullmatch(pattern, path)
        if match:
            return words.format(*map(urllib.parse.unquote, match.groups()))
    return "get --raw " + path


def serve(arguments, get, patch=None):
    """If these arguments ask for a proxy, it answers with what `get` returns for words of kubectl, and `patch`, if there is one, for words
    and a merge patch: a document, a text, or None where nothing is known. Texts that begin with "error: " are refusals; those that
    begin with "raw: " are all that is sent before the connection ends; a list is answers in turn, the last one for ever."""
    sockets = [a.partition("=")[2] for a in arguments if a.startswith("--unix-socket=")]
    if "proxy" not in arguments or not sockets:
        return

    asked = {}

    class Handler(unix_http.Handler):
        def send(self, status, body):
            super().send(status, body.encode())

        def answer(self, words, found):
            if isinstance(found, list):
                asked[words] = asked.get(words, 0) + 1
                found = found[min(asked[words], len(found)) - 1]
            if isinstance(found, str) and found.startswith("raw: "):
                self.wfile.write(found[5:].encode("latin-1"))
                self.close_connection = True
            elif found is None:
                self.send(404, json.dumps({"kind": "Status", "message": f"nothing is known of: {words}"}))
            elif str(found).startswith("401: "):    # of a pod, to which the request was passed on
                self.send(401, found[5:] + "\n")
            elif str(found).startswith("error: "):
                status = 409 if "already exists" in found else 403
                self.send(status, json.dumps({"kind": "Status", "message": found[7:]}))
            else:
                self.send(200, found if isinstance(found, str) else json.dumps(found))

        def do_POST(self):
            """An object, in one line; or a token for agents, for which `get` knows the text."""
            asked = json.loads(self.read())
            assert self.headers["Content-Type"] == "application/json"
            if asked["kind"] != "TokenRequest":
                words = f"create {self.path} {json.dumps(asked)}"
                self.answer(words, get(words, "create " + self.path))
                return
            assert asked["kind"] == "TokenRequest" and asked["spec"]["audiences"] == ["aliquot-agent"], asked
            found = get("create token " + self.path.split("/")[-2])
            self.answer(self.path, found and (found if str(found).startswith("error: ") else {"status": {"token": found}}))

        def do_GET(self):
            words = words_of(self.path)
            if self.headers["Accept"] != "application/json":
                words += " as " + self.headers["Accept"]
            if "X-Aliquot-Token" in self.headers:
                words += " with " + self.headers["X-Aliquot-Token"]
            self.answer(words, get(words))

        def do_DELETE(self):
            words = "delete " + self.path
            self.answer(words, get(words))

        def do_PATCH(self):
            words = words_of(self.path)
            change = self.read().decode()
            if not patch:
                kind = self.headers["Content-Type"].removeprefix("application/").removesuffix("-patch+json")
                words = f"patch {self.path} {kind} {change}"
                self.answer(words, get(words))
                return
            change = json.loads(change)
            assert self.headers["Content-Type"] == "application/merge-patch+json"
            self.answer(words, patch(words, change))

    unix_http.serve(sockets[0], Handler)
    sys.exit()
