# SPDX-License-Identifier: Apache-2.0
"""What the end-to-end tests are written with: pods, what a container sees, faults.

Nothing here waits by the clock: every wait is for an event of the API server or an answer of a program, and
the number given with it is only the bound after which the test has failed.
"""

import collections
import contextlib
import http.client
import json
import os
import re
import secrets
import signal
import socket
import time

from cluster import api as kube, linux
from cluster.api import ApiError, Timeout

GROUP = "elasticgpu.io"
CORE = GROUP + "/gpu-core"
MEMORY = GROUP + "/gpu-memory"
SLOT = GROUP + "/slot"
QGPU_CORE = "tke.cloud.tencent.com/qgpu-core"
QGPU_MEMORY = "tke.cloud.tencent.com/qgpu-memory"
ASSIGNMENT = GROUP + "/assignment"
SIGNATURE = GROUP + "/assignment-signature"
SYSTEM = "aliquot-system"
CARD = 85899345920      # bytes of the simulated card
GiB = 1 << 30
PORT = 7000             # of the first container's tenant; the next one has the next port
OUT_OF_MEMORY = 2
GUARD = "elasticgpu.io-guard.json"      # the CDI file that is no container's, and stays
START = 40              # seconds in which a pod must run, on a busy machine


# ---- pods ----

def container(name="main", port=PORT, resources=None, argv=None, **share):
    """A container that runs the tenant. core=, memory=: its share; resources: any other names."""
    limits = dict(resources or {})
    if "core" in share:
        limits[CORE] = str(share.pop("core"))
    if "memory" in share:
        limits[MEMORY] = str(share.pop("memory"))
    spec = {"name": name, "image": "localhost/aliquot-workload:1", "imagePullPolicy": "Never",
            "command": argv or ["probe", "serve", str(port)]}
    if limits:
        spec["resources"] = {"limits": limits}
    return dict(spec, **share)


def on(node):
    """What of a pod's spec sends it there."""
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


def pod(name, *containers, init=(), annotations=None, **spec):
    """A pod. Without containers it is given one tenant without a share."""
    full = {"restartPolicy": "Always", "terminationGracePeriodSeconds": 5, "automountServiceAccountToken": False,
            "dnsPolicy": "Default", "enableServiceLinks": False, "containers": list(containers) or [container()]}
    if init:
        full["initContainers"] = list(init)
    full.update(spec)
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "annotations": annotations or {}}, "spec": full}


def half(name, **spec):
    """A pod that has half of a card."""
    return pod(name, container(core=50, memory=40 * GiB), **spec)


def quantity(text):
    """A whole number that Kubernetes writes."""
    match = re.fullmatch(r"(\d+)(Ki|Mi|Gi|Ti)?", str(text))
    return int(match[1]) << {None: 0, "Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}[match[2]]


def is_running(seen):
    statuses = (seen or {}).get("status", {}).get("containerStatuses", [])
    return bool(statuses) and all("running" in s["state"] for s in statuses)


def is_ended(seen):
    """kubelet reports it of a deleted pod, too, once no container of it runs."""
    return seen["status"].get("phase") in ("Succeeded", "Failed")


def condition(seen, kind):
    for entry in (seen or {}).get("status", {}).get("conditions", []):
        if entry["type"] == kind:
            return entry
    return {}


def container_status(seen, name):
    (found,) = (s for s in seen["status"]["containerStatuses"] if s["name"] == name)
    return found


def waiting_text(seen):
    """What keeps the containers of a pod from running, as `kubectl describe` would show it."""
    status = (seen or {}).get("status", {})
    texts = [status.get("message", "")]
    for entry in status.get("initContainerStatuses", []) + status.get("containerStatuses", []):
        waiting = entry["state"].get("waiting", {})
        texts.append(f'{waiting.get("reason", "")}: {waiting.get("message", "")}')
    return "\n".join(texts)


def assignment_of(seen):
    """{container: [device, ...]} that the Binding names, or {}."""
    text = seen["metadata"].get("annotations", {}).get(ASSIGNMENT)
    return json.loads(text)["containers"] if text else {}


class Space:
    """A namespace of one test, and its pods."""

    def __init__(self, world, name):
        self.world = world
        self.api = world.api
        self.name = name
        self.path = kube.pods(name)

    def create(self, *bodies, api=None):
        """Creates pods; returns their names."""
        return [(api or self.api).create(self.path, b)["metadata"]["name"] for b in bodies]

    def get(self, name):
        return self.api.get(self.path + "/" + name)

    def wait(self, name, check, timeout=START, what=None):
        return self.api.wait(self.path, name, check, timeout, what)

    def running(self, name, timeout=START):
        return self.wait(name, is_running, timeout, f"pod {name} running")

    def start(self, body, timeout=START):
        """Creates a pod, waits until it runs, and gives it back as seen then."""
        return self.running(*self.create(body), timeout=timeout)

    def start_all(self, bodies, timeout=START):
        return [self.running(name, timeout) for name in self.create(*bodies)]

    def unschedulable(self, name, timeout=START):
        """The reason with which a pod stays Pending."""
        def told(seen):
            entry = condition(seen, "PodScheduled")
            return entry.get("status") == "False" and entry.get("reason") == "Unschedulable"
        return condition(self.wait(name, told, timeout, f"pod {name} unschedulable"), "PodScheduled")["message"]

    def refused(self, name, pattern, timeout=START):
        """Waits until the pod says why its container does not start; returns that text."""
        def told(seen):
            assert not is_running(seen), f"{name} runs, and must not: {json.dumps(assignment_of(seen))}"
            return re.search(pattern, waiting_text(seen), re.I | re.S)
        return waiting_text(self.wait(name, told, timeout, f"pod {name} refused with /{pattern}/"))

    def event(self, name, pattern, timeout=START):
        """Waits for an Event about a pod; returns its text."""
        selector = f"involvedObject.name={name},involvedObject.kind=Pod"
        seen = []
        try:
            for _, event in self.api.watch(kube.core("events", self.name), timeout, fieldSelector=selector):
                text = f'{event.get("reason")}: {event.get("message")}'
                if re.search(pattern, text, re.S):
                    return text
                seen.append(text)
        except Timeout:
            raise Timeout(f"no event of {name} like /{pattern}/ within {timeout} s; seen: {seen}") from None
        raise AssertionError("unreachable")

    def delete(self, *names, grace=None, timeout=START):
        """Deletes pods and waits until they are gone."""
        self.begin_delete(*names, grace=grace)
        for name in names:
            self.wait(name, lambda seen: seen is None, timeout, f"pod {name} gone")

    def end(self, *names, grace=None, timeout=START):
        """Deletes pods and waits until kubelet reports the end of their containers, or until they are gone."""
        self.begin_delete(*names, grace=grace)
        for name in names:
            self.wait(name, lambda seen: seen is None or is_ended(seen), timeout, f"containers of pod {name} ended")

    def begin_delete(self, *names, grace=None):
        for name in names:
            self.api.delete(self.path + "/" + name, **({} if grace is None else {"gracePeriodSeconds": grace}))

    def tenant(self, seen, port=PORT):
        """A new process in a container of a running pod."""
        return Tenant(self.world.cluster, seen["status"]["podIP"], port)

    def exec(self, name, *argv):
        """What a program in the (first) container of a pod prints."""
        return self.world.cluster.kubectl("exec", "-n", self.name, name, "--", *argv)

    def logs(self, name, container, previous=False):
        status, text = self.api.raw("GET", f"{self.path}/{name}/log?container={container}"
                                    + ("&previous=true" if previous else ""))
        return text.decode(errors="replace") if status == 200 else f"<{status}: {text[:200]}>"


class Tenant:
    """A process in a container that does as it is told (tests/e2e/probe.c)."""

    def __init__(self, cluster, address, port, timeout=20):
        self._socket = _connect(cluster, address, port, timeout)
        self._lines = self._socket.makefile("r")

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.end()

    def ask(self, *words):
        self._socket.sendall((" ".join(map(str, words)) + "\n").encode())
        line = self._lines.readline()
        if not line:
            raise ConnectionError(f"the tenant died of: {words}")
        return json.loads(line)

    def alloc(self, size, device=0):
        """The driver's result of an allocation."""
        return self.ask("alloc", device, size)["result"]

    def end(self):
        """Ends in good order, as exit() does, and is gone when this returns."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            self._lines.readline()
        self.close()

    def close(self):
        self._lines.close()
        self._socket.close()

    def driver(self):
        return self.ask("driver")

    def nvml(self):
        return self.ask("nvml")

    def info(self, device=0):
        answer = self.ask("info", device)
        assert answer["result"] == 0, answer
        return answer


def _connect(cluster, address, port, timeout):
    """A container counts as running a moment before its program listens."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            connection = cluster.connect(port, address, timeout)
            connection.settimeout(timeout)
            return connection
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# ---- what must be true of every pod ----

def check_view(space, seen, container_name="main", port=PORT):
    """What a container sees is exactly what its pod's Binding names; returns the devices of the assignment."""
    devices = assignment_of(seen)[container_name]
    with space.tenant(seen, port) as tenant:
        check_report(devices, tenant.driver(), tenant.nvml())
        for index, device in enumerate(devices):
            assert tenant.info(index)["total"] == device["memory"]
    return devices


def check_limited(space, seen, limit):
    """The share of a running pod is what its Binding says, and its limit holds."""
    check_view(space, seen)
    check_limit(space, seen, limit)


def check_limit(space, seen, limit):
    with space.tenant(seen) as tenant:
        assert tenant.alloc(limit - GiB) == 0
        assert tenant.alloc(GiB) == OUT_OF_MEMORY


def check_report(devices, driver, nvml):
    for view in (driver, nvml):
        assert view["result"] == 0, view
    want = sorted((d["uuid"], d["memory"]) for d in devices)
    assert sorted((d["uuid"], d["total"]) for d in driver["devices"]) == want
    assert sorted((d["uuid"], d["total"]) for d in nvml["devices"]) == want


def check_no_share_twice(pods):
    """Over all pods, no more of a card is allocated than it has."""
    core, memory = {}, {}
    for seen in pods:
        for devices in assignment_of(seen).values():
            for device in devices:
                core[device["uuid"]] = core.get(device["uuid"], 0) + device["core"]
                memory[device["uuid"]] = memory.get(device["uuid"], 0) + device["memory"]
    assert all(v <= 100 for v in core.values()), core
    assert all(v <= CARD for v in memory.values()), memory


# ---- the parts of Aliquot ----

class Part:
    """The container of the agent or of the scheduler, and ways to hurt it. node: the one that runs there, of several."""

    def __init__(self, world, name, port, node=None):
        self.world = world
        self.name = name
        self.port = port
        self.node = node
        self.path = kube.pods(SYSTEM)

    def pods(self):
        return [p for p in self.world.api.get(self.path)["items"]
                if p["metadata"]["name"].startswith(self.name) and "deletionTimestamp" not in p["metadata"]
                and self.node in (None, p["spec"].get("nodeName"))]

    def pod(self):
        found = self.pods()
        assert len(found) == 1, [p["metadata"]["name"] for p in found]
        return found[0]

    def status(self, seen=None):
        return (seen or self.pod())["status"]["containerStatuses"][0]

    def restarts(self):
        return self.status()["restartCount"]

    def acting(self, timeout=60):
        """The leader's pod; waits for one, because after a restart there is none for a moment."""
        return self.world.until(self.pod, timeout, f"a pod of {self.name} acts")

    def kill(self):
        """kill -9 of the container's first process; returns the status before it."""
        before = self.status(self.acting())
        self.world.kill_container(before)
        return before

    def wait_restarted(self, before, timeout=120):
        """Until who acts is another container than the one that was killed, and ready; returns its pod. Who acts may
        change while one waits, so it is asked anew each time."""
        def again():
            seen = self.pod()
            now = (seen["status"].get("containerStatuses") or [{}])[0]
            return seen if now.get("ready") and now.get("containerID") != before["containerID"] else None
        return self.world.until(again, timeout, f"{self.name} back", pause=0.1)

    def connect(self, timeout=10):
        """A connection to its HTTP port, as a client on the node (or, for the agent, in a pod) has it."""
        spec = self.pod()
        host = "127.0.0.1" if spec["spec"].get("hostNetwork") and not self.node else spec["status"]["podIP"]
        return self.world.cluster.connect(self.port, host, timeout)

    def http(self, path, method="GET", body=None, headers=None):
        connection = http.client.HTTPConnection("aliquot", timeout=10)
        connection.sock = self.connect()
        if path.startswith(("/usage", "/history")):
            headers = {"Authorization": "Bearer " + self.world.figures_token(), **(headers or {})}
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            content = answer.read()
        assert answer.status == 200, f"{self.name} {method} {path}: {answer.status} {content[:500]}"
        return content

    def log(self):
        seen = self.pods()
        return Space(self.world, SYSTEM).logs(seen[0]["metadata"]["name"], self.status(seen[0])["name"]) \
            if seen else f"<no pod of {self.name}>"


class Scheduler(Part):
    """Replicas of which one acts; that one is meant by everything here."""

    LEASE = "/apis/coordination.k8s.io/v1/namespaces/aliquot-system/leases"

    def leader(self):
        """The name of the pod that acts, or "" while none does."""
        return self.world.api.get(self.LEASE + "/aliquot-scheduler")["spec"].get("holderIdentity", "")

    def pod(self):
        acts = self.leader()
        found = [p for p in self.pods() if p["metadata"]["name"] == acts]
        assert found, f"{acts!r} acts, and there are {[p['metadata']['name'] for p in self.pods()]}"
        return found[0]

    def status(self, seen=None):
        return container_status(seen or self.pod(), "scheduler")

    def connect(self, timeout=10):
        """Beside a kube-scheduler of its own it listens in the network of its pod."""
        seen = self.pod()
        if seen["spec"].get("hostNetwork"):
            return self.world.cluster.connect(self.port, "127.0.0.1", timeout)
        with linux.in_netns(f"{self.world.cluster.init_pid}/root/proc/{self.world.first_process(self.status(seen))}"):
            return socket.create_connection(("127.0.0.1", self.port), timeout)

    def kube_schedulers(self):
        """PIDs on the node of those that ask; none: the cluster's own one does."""
        statuses = [s for p in self.pods() for s in p["status"].get("containerStatuses", []) if s["name"] == "kube-scheduler"]
        return [self.world.first_process(s) for s in statuses if "running" in s["state"]]

    def log(self):
        space = Space(self.world, SYSTEM)
        return "\n".join(f"--- {name}\n" + space.logs(name, "scheduler", previous) for previous in (True, False)
                         for name in (p["metadata"]["name"] for p in self.pods()))


class World:
    """The cluster with Aliquot on it."""

    def __init__(self, cluster, build):
        self.cluster = cluster
        self.build = build
        self.agent = Part(self, "aliquot-agent", 9400)
        self.figures = None, 0  # a token, and until when it serves
        self.scheduler = Scheduler(self, "aliquot-scheduler", 9401)
        self.cleared = []       # names of namespaces that are being deleted

    @property
    def api(self):
        return self.cluster.api

    def ctr(self, *arguments, node=None):
        """On the first node, or on the one of that name."""
        from cluster.config import CONTAINERD_SOCKET
        (machine,) = [seen for seen in self.cluster.nodes if seen.node == (node or self.cluster.node)]
        return machine.on_node(["ctr", "-a", CONTAINERD_SOCKET, "-n", "k8s.io", *arguments]).stdout

    def kill_container(self, status):
        """kill -9 of a container's first process."""
        name = status["containerID"].partition("://")[2]
        if self.cluster.runtime == "crio":
            runtime = self.cluster.oci_runtime
            self.cluster.on_node([runtime, "--root", f"/run/{runtime}", "kill", name, "KILL"])
        else:
            self.ctr("tasks", "kill", "-s", "SIGKILL", name)

    def first_process(self, status):
        """PID on the node of a container's first process."""
        found = re.search(rf'^{status["containerID"].partition("://")[2]}\s+(\d+)', self.ctr("tasks", "ls"), re.M)
        assert found, f'container {status["name"]} has ended'
        return found[1]

    def signal_kube_scheduler(self, number):
        """That one, or those, that ask Aliquot."""
        pids = self.scheduler.kube_schedulers()
        if pids:
            self.cluster.on_node(["kill", f"-{int(number)}", *pids])
        else:
            self.cluster.control("signal", name="kube-scheduler", signal=int(number))

    @contextlib.contextmanager
    def kube_scheduler_stopped(self):
        self.signal_kube_scheduler(signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal_kube_scheduler(signal.SIGCONT)

    def node_path(self, path):
        """A path of the node as seen from here."""
        return f"/proc/{self.cluster.init_pid}/root{path}"

    def token(self, namespace, account, **spec):
        """A token of a ServiceAccount, by default for the API server."""
        path = kube.core("serviceaccounts", namespace, account) + "/token"
        return self.api.create(path, {"spec": spec})["status"]["token"]

    def figures_token(self):
        """By which agents say what containers use; an agent of an older version asks for none."""
        if time.monotonic() > self.figures[1]:
            try:
                self.figures = self.token(SYSTEM, "aliquot-figures", audiences=["aliquot-agent"]), time.monotonic() + 300
            except ApiError as error:
                assert error.code == 404, error
                return "none"
        return self.figures[0]

    def usage(self):
        return json.loads(self.agent.http("/usage"))

    def metrics(self):
        return parse_metrics(self.agent.http("/metrics").decode())

    def aliquot(self, *arguments):
        """Output of the command line, run on the node."""
        return self.cluster.on_node([str(self.build / "src/cli/aliquot"), *arguments]).stdout

    @contextlib.contextmanager
    def driver_hangs(self, call, *options):
        """In the block the driver does not return from this call. `as` is a function that waits until there is such a call."""
        self.aliquot("sim", "inject", "hang", call, *options)

        def wait():
            self.until(lambda: re.search(rf"^hang={re.escape(call)} .*done=[1-9]", self.aliquot("sim", "show"), re.M), 30,
                       f"a call of {call}")
        try:
            yield wait
        finally:
            self.aliquot("sim", "inject", "release", call)

    def doctor(self):
        """What `aliquot doctor` finds: {(check, level): {text: remedy}}; nothing of a level is {}."""
        done = self.cluster.on_node([str(self.build / "src/cli/aliquot"), "doctor", "--json"], check=False)
        found = collections.defaultdict(dict)
        for finding in json.loads(done.stdout)["findings"]:
            found[finding["check"], finding["level"]][finding["text"]] = finding["remedy"]
        return found

    def gpus(self):
        return sorted(self.api.get(kube.gpus())["items"], key=lambda g: g["spec"]["index"])

    def card_event(self, name, pattern):
        """Waits for an Event about a GPU object."""
        def told():
            return [text for text in (f'{e["reason"]}: {e["message"]}' for e in self.api.get(kube.core("events", "default"))["items"]
                                      if (e["involvedObject"]["kind"], e["involvedObject"]["name"]) == ("GPU", name))
                    if re.search(pattern, text, re.S)]
        self.until(told, 20, f"an Event of {name} like /{pattern}/")

    def wait_held(self, by, core, timeout=30):
        """Until one GPU object shows that so much is kept of it by what has no pod there, and has the rest free."""
        def shown():
            return any(dict(h["resource"])[CORE] == str(core) and by in h["by"] and status["allocatable"][CORE] == str(100 - core)
                       for status in (g["status"] for g in self.gpus()) for h in status.get("held", []))
        self.until(shown, timeout, f"{core} percent held by {by}")

    def allocated(self):
        """{pod UID: {(GPU name)}} over all GPU objects."""
        held = {}
        for gpu in self.gpus():
            for uid in gpu.get("status", {}).get("allocated") or {}:
                held.setdefault(uid, set()).add(gpu["metadata"]["name"])
        return held

    def until(self, check, timeout, what, pause=0.02):
        """Asks again until check() gives something true: for things that send no events (HTTP, files)."""
        deadline = time.monotonic() + timeout
        last = None
        while True:
            try:
                last = check()
                if last:
                    return last
            except (OSError, AssertionError, ApiError, http.client.HTTPException) as error:
                last = error
            if time.monotonic() > deadline:
                raise Timeout(f"{what}: not within {timeout} s; last: {last!r}")
            time.sleep(pause)

    def wait_all_released(self, timeout=30):
        """Until nothing is allocated, in every place where allocations are recorded."""
        self.until(lambda: not self.allocated(), timeout, "GPU.status.allocated empty")
        self.until(lambda: not self.shares(), timeout, "no share left on the node")

    def wait_cleared(self, timeout=60):
        """Until the pods of all tests are gone."""
        self.api.wait_none("/api/v1/pods", timeout, lambda seen: seen["metadata"]["namespace"] in self.cleared)

    def shares(self):
        """What the agent keeps on the node for containers."""
        found = []
        for directory in ("/run/aliquot/shares", "/run/cdi"):
            with contextlib.suppress(FileNotFoundError):
                found += os.listdir(self.node_path(directory))
        return [name for name in found if name != GUARD]

    def restart_kubelet(self, how=signal.SIGTERM):
        self.cluster.restart("kubelet", how)
        self.cluster.wait_node_ready()

    def wait_tokens(self, timeout=30, cards=2):
        """Until the node has all of its gpu-core again: kubelet knows the plugin."""
        self.api.wait(kube.core("nodes"), self.cluster.node, lambda node: has_tokens(node, cards), timeout,
                      "gpu-core on the node")


def has_tokens(node, cards=2):
    allocatable = (node or {}).get("status", {}).get("allocatable", {})
    return int(allocatable.get(CORE, "0")) == 100 * cards and MEMORY in allocatable


def holders(usage):
    """{(pod, container): [what /usage says of it on each card]}."""
    found = {}
    for gpu in usage["gpus"]:
        for holder in gpu["holders"]:
            found.setdefault((holder["pod"], holder["container"]), []).append(dict(holder, uuid=gpu["uuid"]))
    return found


def parse_metrics(text):
    """{(name, ((label, value), ...)): number} of a Prometheus text; strict about its form."""
    found = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        match = re.fullmatch(r'([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)', line)
        assert match, f"not a line of the exposition format: {line!r}"
        labels = tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', match[2] or "")))
        found[match[1], labels] = float(match[3])
    return found


def new_name(prefix):
    return f"{prefix}-{secrets.token_hex(3)}"


def clear_namespace(space):
    """Deletes a namespace with its pods and waits until their containers have ended. kubelet deletes a pod with its next list
    of containers, up to a second after their end (World.wait_cleared); the namespace is deleted in the background."""
    for waiting in ("?fieldSelector=spec.nodeName%3D", ""):     # those that wait first: they do not start when others end
        space.api.delete(space.path + waiting, gracePeriodSeconds=1)
    space.api.wait_none(space.path, 60, lambda seen: not is_ended(seen))
    space.api.delete(kube.core("namespaces", name=space.name))
    space.world.cleared.append(space.name)


@contextlib.contextmanager
def temporary_space(world):
    """A namespace. Afterwards no container of it runs, and everything that its pods held is released."""
    made = Space(world, new_name("t"))
    world.api.create(kube.core("namespaces"), {"metadata": {"name": made.name}})
    world.api.wait(kube.core("serviceaccounts", made.name), "default", bool, 30)
    yield made
    clear_namespace(made)
    world.wait_all_released()


NOISE = re.compile(r"VerifyControllerAttachedVolume|pod_startup_latency|orphaned pod volumes|Failed to ensure process"
                   r"|inotify_add_watch|Failed to process watch event|Server rejected event")


def evidence(world, space, lines=20):
    """What one wants to read after a failure, the most telling first: [(title, text)]."""
    def tail(text):
        return "\n".join([line[:300] for line in text.splitlines() if not NOISE.search(line)][-lines:])

    found = []
    for title, read in (
            ("events", lambda: world.cluster.kubectl(
                "get", "events", "-n", space.name, "--sort-by=.lastTimestamp") if space else ""),
            ("pods", lambda: world.cluster.kubectl("get", "pods", "-A", "-o", "wide")),
            ("allocated", lambda: str(world.allocated())),
            ("scheduler", world.scheduler.log), ("agent", world.agent.log),
            ("kube-scheduler", lambda: world.cluster.log("kube-scheduler")),
            ("kubelet", lambda: world.cluster.log("kubelet"))):
        try:
            found.append((title, tail(read())))
        except Exception as error:      # evidence must not hide the failure it is about
            found.append((title, f"<{type(error).__name__}: {error}>"))
    return found
