#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures `aliquot web` on a large cluster: first sight in Chromium, memory of browser and command, its processor time.

    make bench-web                          5,000 nodes of 8 cards, ten times; then ten viewers for a minute
    make bench-web ARGS="--nodes 500"       a tenth of it

Each time command and browser are new. The first sight is the first frame with cards after the address was opened; the time
before "page" is the browser's, which starts a process for the page.

The cluster is a kubectl that answers from memory: pages of GPU objects with two shares on each card, and agents with figures
that are new in each reading. What the API server and the agents of a real cluster would take is not in the times.
"""

import argparse
import contextlib
import http.client
import os
import pathlib
import sys
import tempfile
import threading
import time

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(TOP / "tests" / "cli"), str(TOP / "tests" / "bench")]

import web_page                                 # noqa: E402  (the path comes first)
from figures import machine                     # noqa: E402

KUBECTL = """#!{python}
import http.server, json, os, random, re, socketserver, sys
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
AGENTS = json.dumps({{"items": [{{"metadata": {{"name": f"agent-{{i}}"}}, "spec": {{"nodeName": f"node-{{i:05}}"}}}}
                               for i in range(NODES)]}}).encode()

def answer(path):
    if "/v1alpha1/gpus?" in path:
        return PAGES[(re.search("continue=([0-9]+)", path) or [0, "0"])[1]]
    if "aliquot-agent" in path:
        return AGENTS
    if path.endswith("/usage"):
        return usage(int(re.search("agent-([0-9]+)", path)[1]))
    return b'{{"items": []}}'

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def address_string(self): return "unix"
    def log_message(self, *_): pass
    def do_GET(self):
        body = answer(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads, request_queue_size = True, 64

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


def watch(web, ends, seen):
    """A viewer that reads all it is sent."""
    connection = http.client.HTTPConnection("127.0.0.1", web.port, timeout=600)
    connection.request("GET", "/api/events", headers={"X-Aliquot-Token": web.token})
    answer = connection.getresponse()
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


def with_viewers(web, viewers, seconds):
    ends, seen = threading.Event(), []
    threads = [threading.Thread(target=watch, args=(web, ends, seen), daemon=True) for _ in range(viewers)]
    for thread in threads:
        thread.start()
    pid = web.process.pid
    before, start = processor_seconds(pid), time.monotonic()
    time.sleep(seconds)
    share = 100 * (processor_seconds(pid) - before) / (time.monotonic() - start)
    print(f"command with {viewers} viewers, {seconds} s: {share:.1f} % of a core, {status(pid, 'VmRSS'):.1f} MiB, at most "
          f"{status(pid, 'VmHWM'):.1f} MiB; {sum(seen) / 2**20 / viewers:.1f} MiB sent to each")
    ends.set()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=TOP / "build")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--cards", type=int, default=8, help="of a node")
    parser.add_argument("--runs", type=int, default=10, help="of command and browser")
    parser.add_argument("--viewers", type=int, default=10)
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args()
    print(f"{machine()}\n{args.nodes} nodes of {args.cards} cards", flush=True)
    for run in range(args.runs):
        with tempfile.TemporaryDirectory() as name:
            where = pathlib.Path(name)
            web = web_page.Web(str(args.build.resolve() / "src/cli/aliquot"), where)
            web.kubectl.write_text(KUBECTL.format(python=sys.executable, nodes=args.nodes, cards=args.cards))
            web.start("--interval", "2")
            try:
                first_sight(web, where, args.nodes)
                if run == args.runs - 1:
                    with_viewers(web, args.viewers, args.seconds)
            finally:
                web.stop()
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
