# SPDX-License-Identifier: Apache-2.0
"""A place between kube-scheduler and the extender where a test can hold, cut or observe a request."""

import contextlib
import http.client
import http.server
import socket
import threading

from cluster import linux

PORT = 19998      # not one that the kernel gives to outgoing connections
CONFIGURATION = "/etc/kubernetes/kube-scheduler-configuration.yaml"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        plan = self.server.take(self.path)
        try:
            answer = plan(lambda: self.server.forward(self.path, body)) if plan \
                else self.server.forward(self.path, body)
        except OSError:
            answer = None
        if answer is None:      # cut: the client sees its connection end without an answer
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        status, content = answer
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


class Proxy(http.server.ThreadingHTTPServer):
    """Forwards every request, but plan(path, f, skip) has f called for one: f(forward) gives the answer as
    (status, bytes), or None to cut the connection."""

    daemon_threads = True

    def __init__(self, world):
        self.world = world
        self.plans = []
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", PORT), _Handler, bind_and_activate=False)
        self.socket.close()
        with linux.in_netns(world.cluster.init_pid):
            self.socket = socket.create_server(("127.0.0.1", PORT))
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def handle_error(self, request, client_address):
        pass    # a client that is restarted cuts its connections

    def plan(self, path, answer, skip=0):
        """Returns an event that is set when the plan has been carried out."""
        done = threading.Event()

        def carry_out(forward):
            try:
                return answer(forward)
            finally:
                done.set()
        with self.lock:
            self.plans.append([path, carry_out, skip])
        return done

    def take(self, path):
        with self.lock:
            for entry in self.plans:
                if entry[0] == path:
                    if entry[2] == 0:
                        self.plans.remove(entry)
                        return entry[1]
                    entry[2] -= 1
        return None

    def forward(self, path, body):
        connection = http.client.HTTPConnection("aliquot", timeout=10)
        connection.sock = self.world.scheduler.connect()
        with contextlib.closing(connection):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def stop(self):
        self.shutdown()
        self.server_close()
        self.thread.join()


@contextlib.contextmanager
def between(world):
    """kube-scheduler talks to the extender through the proxy for the length of the block."""
    proxy = Proxy(world)
    try:
        with configured(world, lambda text: text.replace(":9401", f":{PORT}")):
            yield proxy
    finally:
        proxy.stop()


@contextlib.contextmanager
def configured(world, change):
    """kube-scheduler runs with change(its configuration) for the length of the block."""
    path = world.node_path(CONFIGURATION)
    with open(path) as f:
        original = f.read()
    changed = change(original)
    assert changed != original
    try:
        _configure(world, path, changed)
        yield
    finally:
        _configure(world, path, original)


def _configure(world, path, text):
    with open(path, "w") as f:
        f.write(text)
    world.cluster.restart("kube-scheduler")
