# SPDX-License-Identifier: Apache-2.0
"""One node of a cluster as it is used from outside: its processes, commands and connections in its namespaces, its runtime."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tarfile

from . import api, binaries, config, linux


class ClusterError(Exception):
    """The cluster cannot be started or used; the text says why."""


class Machine:
    """What has the cluster's name (`name`), `node`, `ip`, `pod_subnet`, `cgroup`, `state` and `logs` (directories), `runtime`,
    `shipped_intervals`, `new_runc`, `oci_runtime`, `ca_file`, `api` and `init_pid`, the host's PID of the node's PID 1."""

    # ---- processes ----

    def commands(self):
        """{component: (argv, says READY=1)} of all that can be started on the node."""
        return config.node_commands(self)

    def control(self, op, timeout=60, **arguments):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.settimeout(timeout)
            try:
                s.connect(os.path.join(self.state, "control"))
                s.sendall(json.dumps(dict(op=op, **arguments)).encode() + b"\n")
                with s.makefile("r") as f:
                    answer = json.loads(f.readline() or '{"error": "the cluster has ended"}')
            except TimeoutError:
                raise api.Timeout(f"{op} {arguments.get('name', '')}: no answer within {timeout} s") from None
            except OSError as e:
                raise ClusterError(f"{self.node} of cluster {self.name} is not running: {e}") from None
        if "error" in answer:
            raise ClusterError(f"{op} {arguments.get('name', '')}: {answer['error']}")
        return answer

    def spawn(self, name, argv, env=None, notify=False, timeout=60, **options):
        """Runs a long-lived process on the node. notify: wait until it says READY=1. Other options: node.py."""
        answer = self.control("spawn", timeout, name=name, argv=argv, env=env or {}, notify=notify, **options)
        if answer["status"] is not None:
            raise ClusterError(f"{name} ended with {answer['status']}:\n{self.log(name)[-3000:]}")
        return answer["pid"]

    def start(self, name):
        """Starts a component of the node (commands()) that was stopped."""
        argv, notify = self.commands()[name]
        self.spawn(name, argv, env=config.GO, notify=notify)

    def stop(self, name, how=signal.SIGTERM, timeout=20):
        """Ends a component and waits until it is gone; SIGKILL after the timeout."""
        self.control("signal", name=name, signal=int(how))
        try:
            self.control("wait", timeout, name=name)
        except api.Timeout:
            self.control("signal", name=name, signal=int(signal.SIGKILL))
            self.control("wait", name=name)

    def restart(self, name, how=signal.SIGTERM):
        self.stop(name, how)
        self.start(name)

    def log(self, name):
        with contextlib.suppress(FileNotFoundError):
            with open(os.path.join(self.logs, name + ".log"), errors="replace") as f:
                return f.read()
        return ""

    def on_node(self, argv, **kwargs):
        """Runs a command on the node (all its namespaces); arguments and result as subprocess.run."""
        kwargs.setdefault("check", True)
        kwargs.setdefault("text", True)
        if "stdout" not in kwargs and "capture_output" not in kwargs:
            kwargs["capture_output"] = True
        env = dict(os.environ, PATH=":".join([*binaries.path_dirs(), os.environ["PATH"], "/usr/sbin", "/sbin"]),
                   KUBECONFIG="/etc/kubernetes/admin.conf", **config.GO)
        done = subprocess.run(["nsenter", "-t", str(self.init_pid), "-m", "-n", "-p", "-u", "-i", "--", *argv],
                              env=env, **dict(kwargs, check=False))
        if kwargs["check"] and done.returncode != 0:
            raise ClusterError(f"{' '.join(argv)}: status {done.returncode}\n{done.stdout or ''}{done.stderr or ''}")
        return done

    def kubectl(self, *arguments, **kwargs):
        """Output of kubectl on the node."""
        return self.on_node(["kubectl", *arguments], **kwargs).stdout

    def connect(self, port, host="127.0.0.1", timeout=10):
        """A TCP connection to a port of the node."""
        with linux.in_netns(self.init_pid):
            return socket.create_connection((host, port), timeout)

    def http(self, method, port, path, body=None, headers=None, timeout=10):
        """(status, bytes) of a plain HTTP request to a port of the node."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        connection.sock = self.connect(port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def host_pid(self, pid):
        """This machine's PID of a process by its PID on the node."""
        namespace = self.on_node(["readlink", f"/proc/{pid}/ns/pid"]).stdout.strip()
        depth = len(_pids(self.init_pid)) - 1
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if str(pid) in _pids(entry)[depth:depth + 1] and os.readlink(f"/proc/{entry}/ns/pid") == namespace:
                    return int(entry)
        raise ClusterError(f"no process {pid} on the node")

    # ---- Kubernetes ----

    def wait_node_ready(self, timeout=60):
        self.api.wait(api.core("nodes"), self.node, _is_ready, timeout, f"node {self.node} Ready")

    def load_image(self, *paths):
        """Imports image archives into the node's container runtime."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            list(pool.map(self._load_image, paths))

    def _load_image(self, path):
        if self.runtime == "crio":
            with tarfile.open(path) as tar:
                (name,) = json.load(tar.extractfile("manifest.json"))[0]["RepoTags"]
            self.on_node(["skopeo", "copy", "--insecure-policy", "docker-archive:" + path,
                          f"containers-storage:[overlay@/var/lib/containers/storage+/run/containers/storage]{name}"])
            return
        self.on_node(["ctr", "-a", config.CONTAINERD_SOCKET, "-n", "k8s.io", "images", "import", path])


def _pids(pid):
    """The PID of a process in each PID namespace that has it, this machine's first."""
    with open(f"/proc/{pid}/status") as f:
        return re.search(r"^NSpid:\s+(.*)$", f.read(), re.M)[1].split()


def _is_ready(node):
    conditions = (node or {}).get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
