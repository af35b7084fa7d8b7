# SPDX-License-Identifier: Apache-2.0
"""Start, use and stop a whole Kubernetes cluster of one node, or two, on this machine.

    with Cluster("mine") as cluster:
        cluster.up()
        cluster.kubectl("get", "nodes")

See keeper.py for how a cluster lives and dies, node.py for the machine it runs on.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

from . import api, binaries, config, images, keeper, linux
from .machine import ClusterError, Machine
from .node import API_PORT, BRIDGE_IP
from .second import SecondNode

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
SCHEDULER_CONFIGURATION = os.path.join(REPOSITORY, "deploy", "base", "kube-scheduler-configuration.yaml")
NEEDED = {"runc": "runc", "ip": "iproute2", "nft": "nftables", "nsenter": "util-linux", "openssl": "openssl",
          "gcc": "gcc", "mount": "mount"}
NEEDED_BY_CRIO = {"conmon": "conmon", "crun": "crun", "skopeo": "skopeo"}


def base_directory():
    return os.environ.get("ALIQUOT_CLUSTERS") or "/var/tmp/aliquot"


def check_machine(runtime="containerd"):
    """Raises ClusterError, naming the remedy, when this machine lacks what a cluster needs."""
    if os.geteuid() != 0:
        raise ClusterError("a cluster needs root (namespaces, mounts, cgroups): run this as root")
    missing = [p for c, p in (NEEDED | (NEEDED_BY_CRIO if runtime == "crio" else {})).items()
               if not any(os.access(os.path.join(d, c), os.X_OK)
                          for d in (*os.environ.get("PATH", "").split(":"), "/usr/sbin", "/sbin"))]
    if not os.path.exists("/usr/lib/cni/ptp") and not os.path.exists("/opt/cni/bin/ptp"):
        missing.append("containernetworking-plugins")
    if missing:
        raise ClusterError("missing Debian packages: " + " ".join(missing)
                           + "\ninstall them with: apt-get install --no-install-recommends " + " ".join(missing))


def _take_lock(path):
    """File descriptor of the lock, or None when a live process holds it."""
    while True:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue    # the last cluster just ended and took the directory with it
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(fd)):
                return fd
        os.close(fd)    # its holder unlinked it between our open and our lock


class Cluster(Machine):
    """One cluster by name. up() starts it; it ends with down(), with this process, or stays after keep()."""

    def __init__(self, name="aliquot", say=None, shipped_intervals=False, runtime="containerd", stock_scheduler=False,
                 second_node=False, new_runc=False, oci_runtime="runc"):
        """shipped_intervals: kubelet and kube-scheduler keep those of Kubernetes (README.md). runtime: containerd or crio.
        stock_scheduler: kube-scheduler has no configuration and asks no extender. second_node: `second` is one (second.py).
        new_runc: containerd runs binaries.RUNC, and not Debian's. oci_runtime: of CRI-O, Debian's runc or crun."""
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,30}", name):
            raise ClusterError(f"cluster name {name!r}: only a-z, 0-9 and -, at most 31 characters")
        self.name = name
        self.shipped_intervals = shipped_intervals
        self.runtime = runtime
        self.stock_scheduler = stock_scheduler
        self.new_runc = new_runc
        self.oci_runtime = oci_runtime
        self.node = config.FIRST.name
        self.ip = config.FIRST.ip
        self.pod_subnet = config.FIRST.pods
        self.cgroup = "aliquot-" + name
        self.state = os.path.join(base_directory(), name)
        self.logs = os.path.join(self.state, "logs")
        self.lock = self.state + ".lock"
        self.ca_file = os.path.join(self.state, "pki", "apiserver.crt")
        self.say = say or (lambda text: print(text, file=sys.stderr, flush=True))
        self.two_nodes = second_node
        self.second = SecondNode(self) if second_node else None
        self.images = []
        self._lifeline = None
        self._api = None

    @property
    def nodes(self):
        return [self, self.second] if self.second else [self]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self._lifeline is not None:
            self.down()

    # ---- life ----

    def up(self, save_logs=None):
        """Starts everything and returns when its nodes are Ready. save_logs: where its logs go when it ends."""
        check_machine(self.runtime)
        binaries.ensure(self.say)
        if self.runtime == "crio":
            binaries.ensure(self.say, toolsets=(binaries.CRI_O,))
        if self.new_runc:
            binaries.ensure(self.say, toolsets=(binaries.RUNC,))
        lock = _take_lock(self.lock)
        if lock is None:
            raise ClusterError(f"cluster {self.name} runs already; stop it with: {self._hint('down')}")
        try:
            self._clean_up()    # of one that was killed
            self._prepare()
            self._start_keeper(lock, save_logs)
        finally:
            os.close(lock)      # the keeper has its own copy
        try:
            self._start_components()
        except BaseException:
            self.down()
            raise
        return self

    def keep(self):
        """Lets the cluster live on when this process ends."""
        if self._lifeline is not None:
            os.write(self._lifeline, keeper.KEEP)
            os.close(self._lifeline)
            self._lifeline = None

    def down(self, timeout=30):
        """Ends the cluster, running or dead, and removes all that it left. Nothing there is no error."""
        if self._lifeline is not None:
            os.close(self._lifeline)
            self._lifeline = None
        deadline = time.monotonic() + timeout
        self._api = None
        while (lock := _take_lock(self.lock)) is None:
            self._stop_keeper(max(1.0, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise ClusterError(f"cluster {self.name} does not end; its state is in {self.state}")
        self._clean_up()
        os.unlink(self.lock)
        os.close(lock)
        with contextlib.suppress(OSError):
            os.rmdir(base_directory())

    def running(self):
        lock = _take_lock(self.lock) if os.path.exists(self.lock) else -1
        if lock is None:
            return True
        if lock >= 0:
            os.close(lock)
        return False

    def _hint(self, verb):
        return f"python3 {os.path.relpath(HERE)} {verb} {self.name}"

    def _clean_up(self):
        keeper.clean_up({"cgroup": self.cgroup, "state": self.state})

    def _prepare(self):
        for directory in ("logs/pods", "pki", "rootfs"):
            os.makedirs(os.path.join(self.state, directory))
        os.chmod(self.state, 0o700)
        tokens = config.write(self, SCHEDULER_CONFIGURATION)
        with open(os.path.join(self.state, "admin.token"), "w") as f:
            f.write(tokens["admin"])
        if self.second:
            self.second.write(tokens)
        self._write_wrapper("kubectl", "-n", "exec env KUBECONFIG={root}/etc/kubernetes/admin.conf "
                            + binaries.find("kubectl"))
        self._write_wrapper("enter", "-m -n -p -u -i", "exec env PATH={path}:$PATH")

    def _write_wrapper(self, name, namespaces, command):
        """A command for people: it runs the rest of its line in the cluster's namespaces."""
        path = os.path.join(self.state, name)
        command = command.format(root="/proc/$pid/root", path=":".join(binaries.path_dirs()))
        with open(path, "w") as f:
            f.write("#!/bin/sh\n"
                    f"pid=$(sed 's/.*\"pid\": \\([0-9]*\\).*/\\1/' {self.state}/init.json) || exit 1\n"
                    f"{command.replace('exec', f'exec nsenter -t $pid {namespaces}', 1)} \"$@\"\n")
        os.chmod(path, 0o755)

    def _start_keeper(self, lock, save_logs):
        settings = {"state": self.state, "logs": self.logs, "node": self.node, "cgroup": self.cgroup, "lock": self.lock,
                    "save_logs": save_logs and os.path.abspath(save_logs),
                    "path": ":".join([*binaries.path_dirs(), "/usr/sbin:/usr/bin:/sbin:/bin"])}
        life_read, life_write = os.pipe()
        ready_read, ready_write = os.pipe()
        log = os.path.join(self.state, "logs", "keeper.log")
        with open(log, "ab") as output:
            subprocess.Popen(
                [sys.executable, "-c", "from cluster import keeper; keeper.command()", json.dumps(settings), *map(str, (
                    lock, life_read, ready_write))],
                env=dict(os.environ, PYTHONPATH=os.path.dirname(HERE), PYTHONDONTWRITEBYTECODE="1"),
                pass_fds=(lock, life_read, ready_write), stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True)     # a Ctrl-C is for the starter
        os.close(life_read)
        os.close(ready_write)
        self._lifeline = life_write
        ready = select.select([ready_read], [], [], 30)[0] and os.read(ready_read, 1)
        os.close(ready_read)
        if not ready:
            with open(log) as f:
                text = f.read()
            self.down()
            raise ClusterError("the cluster's init did not start:\n" + text[-3000:])

    def _stop_keeper(self, timeout):
        """SIGTERM to the keeper, SIGKILL to it and to init when it does not go in time."""
        for name, number in (("keeper", signal.SIGTERM), ("keeper", signal.SIGKILL), ("init", signal.SIGKILL)):
            process = self._process(name)
            if process is None:
                time.sleep(0.02)    # it is between its last file and its end
                continue
            with contextlib.closing(os.fdopen(process)):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, number)
                if select.select([process], [], [], timeout / 3)[0]:
                    return

    def _process(self, name):
        """pidfd of the keeper or init that the state directory names, or None when that one is gone."""
        try:
            with open(os.path.join(self.state, name + ".json")) as f:
                known = json.load(f)
            fd = os.pidfd_open(known["pid"])
        except (OSError, ValueError):
            return None
        if linux.start_time(known["pid"]) != known["start"]:
            os.close(fd)
            return None
        return fd

    # ---- processes ----

    @property
    def init_pid(self):
        """The host's PID of the cluster's PID 1."""
        try:
            with open(os.path.join(self.state, "init.json")) as f:
                return json.load(f)["pid"]
        except (OSError, ValueError):
            raise ClusterError(f"cluster {self.name} is not running") from None

    def commands(self):
        return config.control_plane_commands(self) | super().commands()

    def start(self, name):
        super().start(name)
        if name == "kube-apiserver":
            self._wait_api()

    # ---- Kubernetes ----

    @property
    def api(self):
        if self._api is None:
            with open(os.path.join(self.state, "admin.token")) as f:
                self._api = api.Api(self.init_pid, BRIDGE_IP, API_PORT, self.ca_file, f.read())
        return self._api

    def load_image(self, *paths):
        """Imports image archives into the runtime of each node, of a second one that starts later, too."""
        self.images += paths
        super().load_image(*paths)
        if self.second and self.second.is_up():
            self.second.load_image(*paths)

    def _wait_api(self, timeout=60):
        deadline = time.monotonic() + timeout
        while True:     # READY=1 says that it listens; its own hooks (RBAC roles) take a moment more
            with contextlib.suppress(OSError):
                if self.api.raw("GET", "/readyz")[0] == 200:
                    return
            if time.monotonic() > deadline:
                raise ClusterError("kube-apiserver is not ready:\n" + self.log("kube-apiserver")[-3000:])
            time.sleep(0.05)

    def _start_components(self):
        self.say(f"starting etcd, kube-apiserver and {self.runtime} (about 10 s until the node is Ready)")
        self.start("etcd")
        self.control("spawn", name="kube-apiserver", argv=self.commands()["kube-apiserver"][0], env=config.GO)
        self.start(self.runtime)
        self.load_image(images.pause(self.state))
        self._wait_api()
        self.say("starting kube-controller-manager, kube-scheduler and kubelet")
        for name in ("kube-controller-manager", "kube-scheduler", "kubelet"):
            self.start(name)
        self.say("waiting for the node to be Ready")
        self.wait_node_ready()
        if self.second:
            self.second.up()
        # What kubeadm does: the scheduler's pod goes where kube-scheduler runs.
        self.api.patch(api.core("nodes", name=self.node),
                       {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}})
        self.api.wait(api.core("serviceaccounts", "default"), "default", bool, 30)
        self.api.wait(api.core("configmaps", "default"), "kube-root-ca.crt", bool, 30)


def names():
    """[(name, running)] of every cluster that is there or has left something."""
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for entry in os.listdir(base_directory()):
            found.add(entry.removesuffix(".lock"))
    return [(n, Cluster(n).running()) for n in sorted(found)]


def remove_dead(say=None):
    """Removes what killed clusters left behind; running ones are not touched."""
    for name, alive in names():
        if not alive:
            Cluster(name, say).down()
