# SPDX-License-Identifier: Apache-2.0
"""`aliquot web` beside a kubectl that answers from files, its address, and a browser that shows the page."""

import http.client
import json
import os
import re
import select
import subprocess
import sys
import time
import urllib.parse

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from test_inspect import GiB, gpu, pod, uuid

# Answers are read anew for each request; what is asked is noted, and held back as long as a file "held" names it.
KUBECTL = f"""#!{sys.executable}
import json, os, sys, time
sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r})
import proxied
where = os.environ["ANSWERS"]
def get(words):
    with open(where + "/asked", "a") as log:
        log.write(words + "\\n")
    while open(where + "/held").read() == words:
        time.sleep(0.01)
    return json.load(open(where + "/answers.json")).get(words)
proxied.serve(sys.argv[1:], get)
sys.exit("error: this kubectl knows no " + sys.argv[1])
"""

GPUS = "get gpus.elasticgpu.io -o json"
AGENTS = "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-agent -o json"
WAITING = "get pods -A --field-selector=spec.nodeName= -o json"
QUOTAS = "get --raw /apis/elasticgpu.io/v1alpha1/elasticgpuquotas"
CLAIMS = "get --raw /apis/elasticgpu.io/v1alpha1/elasticgpuclaims"
GROUP = "get --raw /apis/elasticgpu.io/v1alpha1"
PROXY = "get --raw /api/v1/namespaces/aliquot-system/pods/{}:9400/proxy/"
AGENTS_ON = "get pods -n aliquot-system -l app.kubernetes.io/name=aliquot-agent&fieldSelector=spec.nodeName={} -o json"
EMPTY = {"items": []}
PATIENCE = 30


def until(what, get, seconds=PATIENCE):
    """What `get` returns, as soon as it is true."""
    end = time.monotonic() + seconds
    while not (value := get()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return value


def agent(node):
    return {"metadata": {"name": "agent-" + node}, "spec": {"nodeName": node}, "status": {"phase": "Running"}}


def documents(answer):
    """Those of server-sent events, as they come."""
    for line in answer:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


class Web:
    """The command, and what its kubectl answers."""

    def __init__(self, aliquot, where):
        self.aliquot, self.where, self.process = aliquot, where, None
        self.answers = {GROUP: {}, GPUS: EMPTY, AGENTS: EMPTY, WAITING: EMPTY, QUOTAS: EMPTY, CLAIMS: EMPTY}
        self.kubectl = where / "kubectl"
        self.kubectl.write_text(KUBECTL)
        self.kubectl.chmod(0o755)
        (where / "asked").touch()
        self.hold("")
        self.say()

    def say(self):
        """Its answers are these from now on."""
        (self.where / "new").write_text(json.dumps(self.answers))
        os.replace(self.where / "new", self.where / "answers.json")

    def hold(self, words):
        """The answer to this waits until something else is held, or "" is."""
        (self.where / "new-held").write_text(words)
        os.replace(self.where / "new-held", self.where / "held")

    def spawn(self, *words, **env):
        env = {**os.environ, "KUBECTL": str(self.kubectl), "ANSWERS": str(self.where), "XDG_RUNTIME_DIR": str(self.where), **env}
        return subprocess.Popen([self.aliquot, "web", *words], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def start(self, *words, **env):
        self.process, self.out = self.spawn("--interval", "1", *words, **env), ""
        until("an address", lambda: self.printed().count("\n") >= 2 or self.process.poll() is not None)
        assert self.out.startswith("http://127.0.0.1:"), self.process.communicate()
        self.port, self.token = urllib.parse.urlsplit(self.address).port, None
        self.token = json.loads(self.exchange(self.code)[2])["token"]
        return self

    def printed(self):
        """What it has printed by now."""
        while select.select([self.process.stdout], [], [], 0)[0] and (part := os.read(self.process.stdout.fileno(), 4096)):
            self.out += part.decode()
        return self.out

    @property
    def address(self):
        """The last one that it has printed."""
        return re.findall("^http://127.0.0.1:[0-9]+/[?]code=.*$", self.printed(), re.M)[-1]

    @property
    def code(self):
        return urllib.parse.urlsplit(self.address).query.removeprefix("code=")

    def exchange(self, code, **headers):
        return self.request("/api/token", X_Aliquot_Code=code, **headers)

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(PATIENCE)

    def asked(self):
        return (self.where / "asked").read_text().splitlines()

    def request(self, path, method="GET", **headers):
        """(status, headers, body); the token is sent unless another one is named."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        headers = {name.replace("_", "-"): value for name, value in {"X_Aliquot_Token": self.token, **headers}.items() if value is not None}
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()

    def events(self):
        """Lines of the events, as documents."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request("GET", "/api/events", headers={"X-Aliquot-Token": self.token})
        answer = connection.getresponse()
        assert answer.status == 200
        try:
            yield from documents(answer)
        finally:
            connection.close()
            answer.close()


def browser(where, width=1200, height=900, dark=False, language="en-US"):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--hide-scrollbars",
                     f"--user-data-dir={where}/profile", f"--lang={language}"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"intl.accept_languages": language})
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    made.set_script_timeout(PATIENCE)
    resize(made, width, height)
    theme(made, dark)
    return made


def resize(page, width, height):
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                         {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})


def theme(page, dark):
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})


def cells_of(gpus):
    """What the cells of the cluster's view are to say, from the API server's objects."""
    cells = []
    for one in sorted(gpus["items"], key=lambda g: (g["spec"]["nodeName"], g["spec"]["index"])):
        shares = sum(len(held["containers"]) for held in one["status"].get("allocated", {}).values())
        cells.append((one["spec"]["nodeName"], str(one["spec"]["index"]), one["status"]["state"], shares,
                      100 - int(one["status"]["allocatable"]["elasticgpu.io/gpu-core"])))
    return cells


def cells_said(page):
    """The same from what they say to those that do not see them."""
    found = []
    for cell in page.execute_script("return [...document.querySelectorAll('.cell .hidden')].map((e) => e.textContent)"):
        words = cell.replace(",", "").replace(":", "").split()
        state, core = words[5], int(words[words.index("compute") + 1])
        found.append((words[4], words[1], state, int(words[-2]), core))
    return found


# ---- a cluster ----

def holder_use(uid, memory, core):
    return {"podUID": uid, "container": "main", "memoryDriver": memory, "coreUsed": core}


def history(node, name, uid, card, memory, steps=360):
    """The last hour of a share that grew."""
    return {"node": node, "stepMs": 10000, "containers": [{
        "namespace": "team", "pod": name, "podUID": uid, "container": "main", "index": 0, "uuid": card, "memoryUnit": 1 << 20,
        "agoMs": 4000, "memoryUsed": [memory * (i + 60) // (steps + 60) for i in range(steps)],
        "gpuTimeMs": [None] + [4000 + 2000 * (i // 30 % 2) for i in range(steps - 1)],
        "gpuEntitledMs": [5000] * steps, "throttledMs": [0] * (steps - 1) + [1500]}]}


def furnish(web):
    """Three nodes of different kinds, pods that wait, quotas and claims."""
    a = [gpu("a", i, (0, "0"), [(f"a{i}", "vision", f"train-{i}", 100, "80Gi")]) for i in range(4)]
    a += [gpu("a", 4, (50, "40Gi"), [("a4", "team", "notebook-1", 25, "20Gi"), ("a5", "team", "notebook-2", 25, "20Gi")]),
          gpu("a", 5, (100, "80Gi")), gpu("a", 6, (0, "0"), [("a6", "vision", "old", 20, "20Gi")], state="Unhealthy"),
          gpu("a", 7, (90, "72Gi"), [("a7", "speech", "tts", 10, "8Gi")])]
    b = [gpu("b", 1, (100, "80Gi")),
         gpu("b", 0, (40, "19968Mi"), [("u1", "team", "train", 50, "60Gi"), ("u2", "team", "web", 10, "512Mi")])]
    c = [gpu("c", 0, (15, "5Gi"), [(f"c{i}", "batch", f"job-{i}", 5, "5Gi") for i in range(15)])]
    web.answers[GPUS] = {"items": a + b + c}
    web.answers[AGENTS] = {"items": [agent("a"), agent("b"), agent("c")]}
    use = lambda node, cards: {"gpus": [dict(c, uuid=uuid(node, i)) for i, c in enumerate(cards)]}  # noqa: E731
    web.answers[PROXY.format("agent-a") + "usage"] = use("a", [
        *({"memoryUsed": (60 + 5 * i) * GiB, "utilization": 90 - 7 * i, "holders": [holder_use(f"a{i}", (60 + 5 * i) * GiB, 90 - 7 * i)]}
          for i in range(4)),
        {"memoryUsed": 22 * GiB, "utilization": 12, "holders": [holder_use("a4", 19 * GiB, 12), holder_use("a5", 3 * GiB, 0)]},
        {"memoryUsed": 0, "utilization": 0, "holders": []}, {"memoryUsed": 0, "utilization": 0, "holders": []},
        {"memoryUsed": 5 * GiB, "utilization": 8, "holders": [holder_use("a7", 5 * GiB, 8)]}])
    web.answers[PROXY.format("agent-b") + "usage"] = use("b", [
        {"memoryUsed": 16 * GiB, "utilization": 46, "holders": [holder_use("u1", 15 * GiB, 45), holder_use("u2", 512 << 20, 1)]},
        {"memoryUsed": 0, "utilization": 0, "holders": []}])
    web.answers[AGENTS_ON.format("b")] = {"items": [agent("b")]}
    for name, uid, memory in (("train", "u1", 15 * GiB), ("web", "u2", 512 << 20)):
        web.answers[PROXY.format("agent-b") + f"history?namespace=team&pod={name}"] = history("b", name, uid, uuid("b", 0), memory)
    waits = pod("large", core="200", conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message":
        "0/3 nodes are available: 3 node(s) have not enough whole cards: 2 wanted, at most 1 free."}])
    waits["metadata"]["creationTimestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 11000))
    fresh = pod("fresh", core="30")
    fresh["metadata"].update(uid="fresh", creationTimestamp=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 20)))
    web.answers[WAITING] = {"items": [waits, fresh]}
    web.answers["get pod large -n team -o json"] = waits
    resources = lambda core, memory: {"elasticgpu.io/gpu-core": core, "elasticgpu.io/gpu-memory": memory}  # noqa: E731
    web.answers[QUOTAS] = {"items": [
        {"metadata": {"namespace": "team", "name": "gpus"}, "spec": {"cohort": "research", "guaranteed": resources("200", "160Gi"),
         "max": resources("400", "320Gi")}, "status": {"used": resources("110", "101888Mi")}},
        {"metadata": {"namespace": "vision", "name": "gpus"}, "spec": {"guaranteed": resources("500", "400Gi")},
         "status": {"used": resources("420", "340Gi")}}]}
    web.answers[CLAIMS] = {"items": [
        {"metadata": {"namespace": "team", "name": "weights"}, "spec": {"elasticGPUName": "egpu-1"},
         "status": {"phase": "Bound", "capacity": resources("30", "24Gi")}},
        {"metadata": {"namespace": "team", "name": "late"}, "spec": {},
         "status": {"phase": "Pending", "conditions": [{"type": "Bound", "message": "no card has 80 % and 70 GiB free"}]}}]}
    web.say()
    return web
