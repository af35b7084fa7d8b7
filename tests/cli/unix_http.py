# SPDX-License-Identifier: Apache-2.0
"""A server of HTTP on a unix socket that says so as `kubectl proxy --unix-socket` does."""

import http.server
import socketserver


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass

    def send(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def read(self):
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 64


def serve(path, handler):
    with Server(path, handler) as server:
        print(f"Starting to serve on {path}", flush=True)
        server.serve_forever()
