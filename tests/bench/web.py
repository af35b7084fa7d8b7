#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures `aliquot web` on a large cluster: first sight in Chromium, memory of browser and command, its processor time.

    make bench-web                                          5,000 nodes of 8 cards, ten times; then ten viewers for a minute
    make bench-web ARGS="--nodes 500"                       a tenth of it
    make bench-web ARGS="--only tokens,apart --viewers 6"   only in a cluster: with a token each

Each time command and browser are new. The first sight is the first frame with cards after the address was opened; the time
before "page" is the browser's, which starts a process for the page.

The cluster is a program that answers from memory, as kubectl or as an API server: pages of GPU objects with two shares on each
card, and agents with figures that are new in each reading. What the API server and the agents of a real cluster would take is
not in the times.
"""

import argparse
import contextlib
import http.client
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests" / "cli"), str(TOP / "tests" / "bench")]

import web_cluster                              # noqa: E402  (the path comes first)
import web_page                                 # noqa: E402
from figures import machine                     # noqa: E402

KUBECTL = """#!{python}
import http.server, json, os, random, re, socketserver, ssl, sys
NODES, CARDS, PAGE = {nodes}, {cards}, 250
GiB = 1 << 30

def uuid(node, card):
    return f"GPU-{{node:08x}}-0000-0000-0000-{{card:012x}}"

def gpu(node, card):
    name = f"node-{{node:05}}"
    share = {{"container": "main", "resource": {{"elasticgpu.io/gpu-core": "40", "elasticgpu.io/gpu-memory": "30Gi"}}}}
    return {{"metadata": {{"name": f"{{name}}-{{card:02}}", "uid": uuid(node, card)[4:], "creationTimestamp": "2026-01-01T00:00:00Z"}},
            "spec": {{"nodeName": name, "index": card, "memory": 80 * GiB, "uuid": uuid(node, card), "model": "NVIDIA H100 80GB HBM3",
                     "path": f"/dev/nvidia{{card}}"}},
            "status": {{"state": "Healthy", "capacity": {{"elasticgpu.io/gpu-core": "100", "elasticgpu.io/gpu-memory": "80Gi"}},
                       "allocatable": {{"elasticgpu.io/gpu-core": "20", "elasticgpu.io/gpu-memory": "20Gi"}},
                       "allocated": {{f"uid-{{node}}-{{card}}-{{i}}": {{"namespace": f"team-{{i}}", "pod": f"train-{{node}}-{{card}}-{{i}}",
                                                                  "containers": [share]}} for i in range(2)}}}}}}

def page(at):
    ids = range(at, min(at + PAGE, NODES * CARDS))
    more = str(at + PAGE) if at + PAGE < NODES * CARDS else ""
    return json.dumps({{"metadata": {{"continue": more}}, "items": [gpu(i // CARDS, i % CARDS) for i in ids]}}).encode()

def usage(node):
    def holder(card, i):
        return {{"podUID": f"uid-{{node}}-{{card}}-{{i}}", "container": "main", "memoryDriver": random.randrange(30 * GiB),
                "coreUsed": random.randrange(40)}}
    return json.dumps({{"gpus": [{{"uuid": uuid(node, c), "memoryUsed": random.randrange(60 * GiB), "utilization": random.randrange(100),
                                 "holders": [holder(c, 0), holder(c, 1)]}} for c in range(CARDS)]}}).encode()

PAGES = {{str(at): page(at) for at in range(0, NODES * CARDS, PAGE)}}
# A pod of a real agent has some 8 KB.
def agents(at, limit):
    ids = range(at, min(at + limit, NODES))
    more = str(at + limit) if at + limit < NODES else ""
    return json.dumps({{"metadata": {{"continue": more}}, "items": [
        {{"metadata": {{"name": f"agent-{{i}}", "managedFields": [{{"fieldsV1": {{f"f:field-{{n}}": {{}} for n in range(300)}}}}]}},
         "spec": {{"nodeName": f"node-{{i:05}}"}}}} for i in ids]}}).encode()

def answer(path):
    if "/v1alpha1/gpus?" in path:
        return PAGES[(re.search("continue=([0-9]+)", path) or [0, "0"])[1]]
    if "aliquot-agent" in path:
        return agents(*(int((re.search(f"{{name}}=([0-9]+)", path) or [0, default])[1]) for name, default in (("continue", 0), ("limit", NODES))))
    if path.endswith("/usage"):
        return usage(int(re.search("agent-([0-9]+)", path)[1]))
    return b'{{"items": []}}'

# Tokens are "same-N", which have all rights, and "apart-N": of the rights beside the cards each lacks others.
def is_allowed(token, asked):
    if not token.startswith("apart-") or asked["resource"] == "gpus":
        return True
    kinds = "pods", "elasticgpuquotas", "elasticgpuclaims"
    return asked.get("subresource") or not (asked["resource"] in kinds and asked.get("namespace") is None
                                            and int(token[6:]) >> kinds.index(asked["resource"]) & 1)

def created(path, token, body):
    if path.endswith("/selfsubjectaccessreviews"):
        return {{"status": {{"allowed": bool(is_allowed(token, json.loads(body)["spec"]["resourceAttributes"]))}}}}
    return {{"status": {{"token": "figures"}}}}

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def address_string(self): return "unix"
    def log_message(self, *_): pass
    def do_GET(self):
        self.reply(answer(self.path))
    def do_POST(self):
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        self.reply(json.dumps(created(self.path, token, self.rfile.read(int(self.headers["Content-Length"])))).encode())
    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads, request_queue_size = True, 64

if sys.argv[1] == "tls":
    class Direct(http.server.ThreadingHTTPServer):
        daemon_threads, request_queue_size = True, 64
        def finish_request(self, request, client):
            request.do_handshake()
            super().finish_request(request, client)
        def handle_error(self, request, client): pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*sys.argv[2:4])
    context.set_alpn_protocols(["http/1.1"])
    with Direct(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        print(server.server_port, flush=True)
        server.serve_forever()

(socket,) = [a.partition("=")[2] for a in sys.argv if a.startswith("--unix-socket=")]
with Server(socket, Handler) as server:
    print(f"Starting to serve on {{socket}}", flush=True)
    server.serve_forever()
"""


def status(pid, name):
    """A value of /proc/PID/status in MiB."""
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) / 1024
    return 0


def processor_seconds(pid):
    words = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def renderer_memory(profile):
    """The largest process of the browser with this profile, in MiB that are its own (PSS)."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(profile) in (process / "cmdline").read_text() and "--type=renderer" in (process / "cmdline").read_text():
                rollup = (process / "smaps_rollup").read_text()
                found += [int(line.split()[1]) / 1024 for line in rollup.splitlines() if line.startswith("Pss:")]
    return max(found, default=0)


def watch(port, token, ends, seen):
    """A viewer that reads all it is sent."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", "/api/events", headers={"X-Aliquot-Token": token})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    with contextlib.suppress(http.client.HTTPException, OSError):   # the command ends
        while not ends.is_set():
            seen.append(len(answer.read1(1 << 16)))
    connection.close()


# Notes when something is first shown, in milliseconds of the Unix epoch.
WATCH = """
    const seen = window.seen = {page: performance.timeOrigin};
    const look = () => {
        const now = performance.timeOrigin + performance.now();
        if (document.querySelector(".cell"))
            seen.cards ??= now;
        if (document.querySelector(".note")?.textContent.includes("NODES of NODES nodes"))
            seen.all ??= now;
        if (document.getElementById("status")?.textContent.includes("as of"))
            seen.figures ??= now;
        requestAnimationFrame(look);
    };
    look();
"""


def seen(page, what, start):
    """Seconds from the start until it was first shown."""
    return web_page.until(what, lambda: page.execute_script("return window.seen?.[arguments[0]]", what), 600) / 1000 - start


def first_sight(web, where, nodes):
    page = web_page.browser(where)
    try:
        page.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH.replace("NODES", str(nodes))})
        load, start = os.getloadavg()[0], time.time()
        page.get(web.address)
        first = {what: seen(page, what, start) for what in ("page", "cards", "all", "figures")}
        start = time.time()
        page.refresh()
        again = {what: seen(page, what, start) for what in ("cards", "all")}
        memory = [renderer_memory(where / "profile")]
        time.sleep(10)      # some readings more
        memory.append(renderer_memory(where / "profile"))
        print(f"browser: page {first['page']:.2f} s, cards {first['cards']:.2f} s, all {first['all']:.2f} s, with the agents' figures "
              f"{first['figures']:.2f} s; again cards {again['cards']:.2f} s, all {again['all']:.2f} s; "
              f"{memory[0]:.0f} MiB, 10 s later {memory[1]:.0f} MiB; load average {load:.1f}", flush=True)
    finally:
        page.quit()


def with_viewers(what, pid, port, tokens, seconds):
    """The first minute of these viewers, with the reading that shows them all."""
    ends, seen = threading.Event(), []
    before, start = processor_seconds(pid), time.monotonic()
    for token in tokens:
        threading.Thread(target=watch, args=(port, token, ends, seen), daemon=True).start()
    time.sleep(seconds)
    share = 100 * (processor_seconds(pid) - before) / (time.monotonic() - start)
    print(f"{what}, {len(tokens)} viewers, {seconds} s: {share:.1f} % of a core, {status(pid, 'VmRSS'):.1f} MiB, at most "
          f"{status(pid, 'VmHWM'):.1f} MiB; {sum(seen) / 2**20 / len(tokens):.1f} MiB sent to each", flush=True)
    ends.set()


def on_a_machine(args, where, is_last):
    web = web_page.Web(args.aliquot, where)
    web.kubectl.write_text(args.program)
    web.start("--interval", "2")
    try:
        first_sight(web, where, args.nodes)
        if is_last:
            with_viewers("command, one user", web.process.pid, web.port, [web.token] * args.viewers, args.seconds)
    finally:
        web.stop()


TOKENS = {
    "token": ("in a cluster, one token", lambda n: ["same-0"] * min(n, 8)),       # pages of a token
    "tokens": ("in a cluster, tokens of the same rights", lambda n: [f"same-{i}" for i in range(n)]),
    "apart": ("in a cluster, tokens of different rights", lambda n: [f"apart-{i}" for i in range(min(n, 8))]),
}


@contextlib.contextmanager
def api_server(args, where):
    certificate, key = web_cluster.make_certificate(where)
    (where / "api").write_text(args.program)
    server = subprocess.Popen([sys.executable, where / "api", "tls", certificate, key], stdout=subprocess.PIPE, text=True)
    try:
        yield argparse.Namespace(url=f"https://127.0.0.1:{int(server.stdout.readline())}", certificate=certificate)
    finally:
        server.terminate()
        server.wait()


def in_a_cluster(args, where, kind):
    what, tokens_of = TOKENS[kind]
    with api_server(args, where) as api:
        web = web_cluster.InCluster(args.aliquot, api, "--interval", "2")
        try:
            web_page.until("it serves", lambda: serves(web))
            with_viewers(what, web.process.pid, web.port, tokens_of(args.viewers), args.seconds)
        finally:
            web.stop()


def serves(web):
    try:
        return web.request("/healthz")[0] == 200
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--cards", type=int, default=8, help="of a node")
    parser.add_argument("--runs", type=int, default=10, help="of command and browser")
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--only", default="machine,token,tokens,apart", help="which of these (default: all)")
    args = parser.parse_args()
    args.aliquot = str(args.build.resolve() / "src/cli/aliquot")
    args.program = KUBECTL.format(python=sys.executable, nodes=args.nodes, cards=args.cards)
    print(f"{machine()}\n{args.nodes} nodes of {args.cards} cards, load average {os.getloadavg()[0]:.1f}", flush=True)
    for kind in args.only.split(","):
        for run in range(args.runs if kind == "machine" else 1):
            with tempfile.TemporaryDirectory() as name:
                if kind == "machine":
                    on_a_machine(args, pathlib.Path(name), run == args.runs - 1)
                else:
                    in_a_cluster(args, pathlib.Path(name), kind)
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
