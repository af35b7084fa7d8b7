# SPDX-License-Identifier: Apache-2.0
"""`aliquot web --in-cluster` beside an API server that knows some tokens, and what each of them may read."""

import http.client
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import urllib.parse

from web_page import documents

PATIENCE = 30
GROUP = "/apis/elasticgpu.io/v1alpha1"
GPUS = GROUP + "/gpus"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def make_certificate(where, name="127.0.0.1"):
    """(certificate, key) of a server at 127.0.0.1, by itself."""
    files = where / f"{name}.pem", where / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", "/CN=api", "-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]],
                   check=True, capture_output=True)
    return files


class Stalled:
    """An answer that stops in the middle, until `ready` is set, or goes on with a byte a second."""

    def __init__(self, found, trickles=False):
        self.found, self.begun, self.ready, self.trickles = found, threading.Event(), threading.Event(), trickles

    def write(self, out, body):
        out.write(body[:-100])
        self.begun.set()
        at = len(body) - 100
        while not self.ready.wait(1):
            out.write(body[at:at + self.trickles])
            at += self.trickles
        out.write(body[at:])


def is_allowed(rights, asked):
    """Whether these paths are what the attributes of an access review ask for."""
    inside = f"/namespaces/{asked['namespace']}" if "namespace" in asked else ""
    root = (f"/apis/{asked['group']}/" if asked["group"] else "/api/") + asked["version"] + inside
    if asked.get("subresource") == "proxy":
        return any(path.startswith(f"{root}/pods/") and "/proxy/" in path for path in rights)
    return "/".join([root, asked["resource"], *(asked[key] for key in ("name", "subresource") if key in asked)]) in rights


class ApiServer:
    """`rights`: by token what is at each path that it may read, or a function that says it. Other paths are refused, and so
    are other tokens. `reviews` says whether a token is told what it may do."""

    def __init__(self, where):
        self.rights, self.asked, self.held = {}, [], threading.Event()
        self.reviews = lambda token: True
        self.held.set()
        self.certificate, key = make_certificate(where)
        made = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def answer(self):
                length = int(self.headers.get("Content-Length", 0))
                status, found = made.answer(self.command, self.path, self.headers, self.rfile.read(length))
                body = json.dumps(found.found if isinstance(found, Stalled) else found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if isinstance(found, Stalled):
                    found.write(self.wfile, body)
                else:
                    self.wfile.write(body)

            do_GET = do_POST = answer

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def finish_request(self, request, client):
                request.do_handshake()
                super().finish_request(request, client)

            def handle_error(self, request, client):
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        context.set_alpn_protocols(["http/1.1"])
        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, method, path, headers, body):
        token = (headers.get("Authorization") or "").removeprefix("Bearer ")
        self.asked.append((token, method, urllib.parse.unquote(path), headers))
        self.held.wait()
        if token not in self.rights:
            return 401, {"kind": "Status", "message": "Unauthorized", "code": 401}
        if path == REVIEW and method == "POST" and path not in self.rights[token]:
            return 201, {"status": {"userInfo": {"username": token}}}
        if path == ACCESS and method == "POST" and self.reviews(token):
            return 201, {"status": {"allowed": is_allowed(self.rights.get(token, {}), json.loads(body)["spec"]["resourceAttributes"])}}
        found = self.rights[token].get(path.partition("?")[0])
        if found is None:
            return 403, {"kind": "Status", "message": f"{token[:4]}... cannot read {path}", "code": 403}
        found = found() if callable(found) else found
        return (found, {"message": "no"}) if isinstance(found, int) else (200, found)

    def stop(self):
        self.held.set()
        self.server.shutdown()
        self.server.server_close()


class InCluster:
    """The command, served at a port of this machine."""

    def __init__(self, aliquot, api, *words, **env):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [aliquot, "web", "--in-cluster", "--listen", f"127.0.0.1:{self.port}", "--api-server", api.url, "--ca-file", api.certificate,
             "--interval", "1", *words],
            env={**os.environ, "KUBECTL": "/bin/false", **env}, stderr=subprocess.PIPE, text=True)

    def connect(self, **options):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE, **options)

    def request(self, path, token=None, namespace=None, method="GET", **headers):
        """(status, headers, body)"""
        connection = self.connect()
        given = {"X-Aliquot-Token": token, "X-Aliquot-Namespace": namespace, **{n.replace("_", "-"): v for n, v in headers.items()}}
        connection.request(method, path, headers={name: value for name, value in given.items() if value is not None})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def open(self, token, namespace=None):
        """The events, as they are answered."""
        connection = self.connect()
        headers = {"X-Aliquot-Token": token, **({"X-Aliquot-Namespace": namespace} if namespace else {})}
        connection.request("GET", "/api/events", headers=headers)
        return connection, connection.getresponse()

    def events(self, token, namespace=None):
        """Lines of the events, as documents, up to their end."""
        connection, answer = self.open(token, namespace)
        assert answer.status == 200, answer.read()
        try:
            yield from documents(answer)
        finally:
            connection.close()
            answer.close()

    def reading(self, token, namespace=None, done=lambda found: True):
        """Lines by their keys, up to the state for which `done` is true."""
        found = {}
        events = self.events(token, namespace)
        for line in events:
            found[line["k"]] = line
            if line.get("gone"):
                del found[line["k"]]
            if line["k"] == "state" and done(found):
                events.close()
                return found
        raise AssertionError(f"the events have ended: {found}")

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)
        self.process.stderr.close()
