# SPDX-License-Identifier: Apache-2.0
"""An agent on a simulated machine with all that is around it, and no cluster."""

import json
import pathlib
import re
import subprocess

from fake_api import Api
from fake_kubelet import Kubelet
from sim_kit import BUILD, PROGRAMS, Node, wait_until
from test_sim_health import Agent

CARDS, INSTANCES, REPLICAS, PROFILE = 8, 7, 2, "1g.10gb"    # of a full node
FULL = f"[gpu 0-{CARDS - 1}]\nmodel = A100\nmig = {','.join([PROFILE] * INSTANCES)}\n"
PARTS = 64      # the numbers of instances begin there in `aliquot sim show`


def of_process(pid, file):
    """A file of /proc; "" where the process is gone."""
    try:
        return pathlib.Path(f"/proc/{pid}/{file}").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children_of(pid):
    return of_process(pid, f"task/{pid}/children").split()


def runs(pid):
    return of_process(pid, "stat").rpartition(") ")[2][:1] not in ("", "X", "Z")


class World:
    """A node with an agent, and an API server and a kubelet of the test."""

    def __init__(self, node, path, **options):
        self.node, self.path, self.options = node, path, options
        self.api, self.kubelet = Api(path), Kubelet(path / "kubelet")
        self.api.put("nodes", {"metadata": {"name": "n"}, "status": {"nodeInfo": {}, "capacity": {}, "allocatable": {},
                                                                     "conditions": []}})
        self.agent = self.other = None

    def configure(self, resources="{}", health="", flags="", more="", strategy="mixed", **keys):
        """Replaces the file of the configuration: `keys` are those of section aliquot beside `health`, `more` a line of its own,
        `strategy` that of MIG."""
        section = {"health": f"{{{health}}}", **keys}
        (self.path / "new").write_text(
            f"version: v1\nflags: {{migStrategy: {strategy}, {flags}}}\nresources: {resources}\n{more}\n"
            f"aliquot: {{{', '.join(f'{key}: {value}' for key, value in section.items())}}}\n")
        (self.path / "new").rename(self.path / "config")

    def reconfigure(self, **what):
        """configure(), and it is in force within 2 s."""
        def changes():
            return (self.path / "log").read_text().count("the configuration of the node has changed")
        before = changes()
        self.configure(**what)
        wait_until(lambda: changes() > before, 2, what="the configuration is in force")

    def start(self):
        """Starts the agent, and waits until it has told of its cards."""
        self.agent = Agent(self.node, self.path, **{
            "api-server": self.api.url, "ca-file": self.api.ca, "config-file": self.path / "config", **self.options})
        wait_until(lambda: self.api.find("gpus"), what="the agent reports its cards")
        assert "configuration does not change" not in (self.path / "log").read_text()

    def pod(self, uid, resource, *devices):
        """A pod that kubelet has given these devices."""
        self.api.put("pods", {"metadata": {"name": uid, "namespace": "ns", "uid": uid},
                              "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {
                                  "limits": {f"nvidia.com/{resource}": len(devices)}}}]},
                              "status": {"phase": "Running"}})
        self.kubelet.allocate(resource, uid, list(devices))

    def end(self, uid):
        """The pod is gone, and kubelet has its devices back."""
        self.kubelet.forget(uid)
        key = "pods", "ns", uid
        self.api.change("DELETED", key, self.api.objects[key])

    def nodes(self, uid):
        """The driver's nodes in the CDI file of the pod's container, without those of every container."""
        text = (self.path / f"cdi/elasticgpu.io-share-{self.kubelet.nonce(uid)}.json").read_text()
        return {name for name in re.findall(rf'"{self.node.dir}/([^"]*)"', text) if re.search(r"nvidia\d|nvidia-cap\d", name)}

    def cdi(self, uid):
        """The edits in the CDI file of the pod's container."""
        file = self.path / f"cdi/elasticgpu.io-share-{self.kubelet.nonce(uid)}.json"
        return json.loads(file.read_text())["devices"][0]["containerEdits"]

    def cards(self):
        """{UUID: number of its device node}, by the driver's kernel module."""
        found = {}
        for file in (self.node.dir / "proc/driver/nvidia/gpus").glob("*/information"):
            text = file.read_text()
            found[re.search(r"UUID:\s*(\S+)", text)[1]] = int(re.search(r"Minor:\s*(\d+)", text)[1])
        return found

    def node_object(self, what):
        """The labels or the annotations of the Node."""
        return self.api.find("nodes")["n"]["metadata"].get(what, {})

    def gpus(self):
        """The GPU objects by the index of their card."""
        return {gpu["spec"]["index"]: gpu for gpu in self.api.find("gpus").values()}

    def gpus_of(self, card):
        """The GPU objects of the card's instances."""
        uuid = self.uuids()[card]
        return [gpu for gpu in self.api.find("gpus").values() if gpu["spec"].get("parent") == uuid]

    def events(self, reason):
        """The messages of Events with that reason, by the name of their object."""
        return {e["involvedObject"]["name"]: e["message"] for e in self.api.find("events").values() if e["reason"] == reason}

    def uuids(self):
        """Of the cards, in the order of NVML."""
        return [shown["uuid"] for shown in self.node.show() if int(shown.get("gpu", PARTS)) < PARTS]

    def waiting(self):
        """The number of containers that wait for their devices."""
        return int(re.search(r"^aliquot_agent_prestart_waiting (\d+)$", self.agent.get("/metrics"), re.M)[1])

    def order(self, maintenance):
        """The annotation of `aliquot node release` and the like."""
        self.api.edit("nodes", "", "n", {"metadata": {"annotations": {"elasticgpu.io/maintenance": maintenance}}})

    def exchange(self, machine):
        """Another driver at the same place."""
        file = self.path / "other.machine"
        file.write_text(machine)
        self.node = self.other = Node(self.node.dir, "--machine", file)

    def close(self):
        if self.other:
            self.other.close()
        if self.agent:
            children = children_of(self.agent.process.pid)
            self.agent.kill()
            # They end with it, and may be writing into its directories.
            wait_until(lambda: not any(map(runs, children)), what="the agent's processes have ended")
        self.api.close()
        places = [line.split()[1] for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
        mounted = [place for place in places if place.startswith(str(self.path))]
        if mounted:     # shares
            subprocess.run(["umount", *mounted], check=True)


class FullNode(World):
    """All cards have all instances (FULL), and each instance has a container in each of its replicas."""

    def fill(self, replicas=REPLICAS, **what):
        """Starts the agent, configured so, and the containers; the IDs of their devices."""
        self.configure(**what, more=f"sharing: {{timeSlicing: {{resources: [{{name: mig-{PROFILE}, replicas: {replicas}}}]}}}}")
        self.start()
        wait_until(lambda: len(self.api.find("gpus")) == CARDS * (1 + INSTANCES), what="all objects are there")
        parts = [gpu["spec"]["uuid"] for gpu in self.api.find("gpus").values() if gpu["spec"]["uuid"].startswith("MIG-")]
        ids = [f"{uuid}::{replica}" for uuid in parts for replica in range(replicas)]
        for number, device in enumerate(ids):
            self.pod(f"pod-{number}", f"mig-{PROFILE}", device)
            self.kubelet.start(f"pod-{number}")
        return ids

    def waits(self):
        """{bound in seconds: how often kubelet's calls were read after so much CPU time of the loop, or less}."""
        return {float(bound): int(count) for bound, count in re.findall(
            r'^aliquot_agent_kubelet_wait_seconds_bucket{le="([^"]+)"} (\d+)$', self.agent.get("/metrics"), re.M)}


class SharedNode(World):
    """Containers with shares of cards, which a scheduler of the test has signed."""

    SLOT = "elasticgpu.io/slot"

    def fill(self, containers, core, memory):
        """Starts the agent, and the containers, on one card after the other."""
        self.configure()
        self.publish_key()
        self.start()
        cards = self.uuids()
        wait_until(lambda: len(self.api.find("gpus")) == len(cards), what="all objects are there")
        wait_until(lambda: self.kubelet.socket("slot"), what="shares are offered")
        said = {f"pod-{i}": json.dumps({"v": 1, "node": "n", "containers": {"main": [
            {"index": i % len(cards), "uuid": cards[i % len(cards)], "core": core, "memory": memory}]}}, separators=(",", ":"))
                for i in range(containers)}
        lines = "".join(f"{uid}\tn\t{text}\n" for uid, text in said.items())
        signatures = subprocess.run([BUILD / "tests/bench/sign", self.path / "signing"], input=lines, capture_output=True, text=True,
                                    check=True).stdout.split()
        for number, ((uid, text), signature) in enumerate(zip(said.items(), signatures), 1):
            self.api.put("pods", {"metadata": {"name": uid, "namespace": "ns", "uid": uid, "annotations": {
                "elasticgpu.io/assignment": text, "elasticgpu.io/assignment-signature": signature}},
                                  "spec": {"nodeName": "n", "containers": [{"name": "main", "resources": {
                                      "limits": {self.SLOT: 1}}}]},
                                  "status": {"phase": "Running"}})
            self.kubelet.allocate(self.SLOT, uid, [f"s-{number:04d}"])
            self.kubelet.start(uid)

    def use(self, uid, program, *arguments):
        """Runs a program of tests/sim with the share of a container, in the container's place."""
        files = {pathlib.Path(m["containerPath"]).name: m["hostPath"] for m in self.cdi(uid)["mounts"]
                 if m["hostPath"].startswith(f"{self.path}/state/shares/")}
        script = ('mount -t tmpfs share "$ALIQUOT_SHARE_DIR" && while [ "$1" != -- ]; do'
                  ' touch "$ALIQUOT_SHARE_DIR/$1" && mount --bind "$2" "$ALIQUOT_SHARE_DIR/$1" && shift 2 || exit; done; shift; exec "$@"')
        place = self.path / "share"
        place.mkdir(exist_ok=True)
        done = self.node.run("unshare", "-m", "sh", "-c", script, "sh", *(word for file in files.items() for word in file), "--",
                             "env", f"LD_PRELOAD={BUILD}/src/intercept/libaliquot.so", PROGRAMS / f"sim-{program}",
                             *map(str, arguments), ALIQUOT_SHARE_DIR=str(place))
        assert done.returncode == 0 and not done.stderr, done.stderr
        return done.stdout

    def publish_key(self):
        key = self.path / "signing"
        subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
        public = subprocess.run(["openssl", "pkey", "-in", key, "-pubout"], check=True, capture_output=True, text=True).stdout
        self.api.put("configmaps", {"metadata": {"name": "aliquot-signing", "namespace": "aliquot-system"},
                                    "data": {"public.pem": public}})
