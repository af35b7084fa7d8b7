# SPDX-License-Identifier: Apache-2.0
"""PID 1 of a node: makes the machine (mounts, network, name) and runs its processes on request.

That of the first node is the cluster's. A second node is one of its processes: it has namespaces of its own in all the ways in
which the first has, made from the machine's mounts, and its PIDs and its network end with the cluster's.

Everything that a Kubernetes node writes to lies on mounts of this namespace: /run and the data directories
are a tmpfs, /etc, /opt and /var/lib an overlay on it. The machine underneath is read, never written.

Requests come over a Unix socket, one JSON object per connection and one JSON answer:
    {"op": "spawn", "name": N, "argv": [...], "env": {...}, "notify": bool, "machine": bool}
        answered when the process runs, or with notify when it has said READY=1 (sd_notify) or has ended;
        machine: it gets the machine's mount namespace as descriptor MACHINE
    {"op": "signal", "name": N, "signal": 15}    sends a signal
    {"op": "wait", "name": N}                    answered when the process has ended
    {"op": "list"}                               every process: pid (inside), status (None while it runs)
"""

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys

from . import linux

MACHINE = 3
READY = b"READY=1"

BRIDGE_IP = "10.77.0.1"
SERVICE_IP = "10.96.0.1"
API_PORT = 6443

# kubelet sets these for the whole machine unless it finds them so: it is shown files that say they are.
SYSCTLS = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10",
           "kernel/panic_on_oops": "1", "kernel/keys/root_maxkeys": "1000000",
           "kernel/keys/root_maxbytes": "25000000"}

# No kube-proxy here: the one Service that every pod needs is the API server's own.
NFT_RULES = f"""
table ip aliquot {{
    chain prerouting {{
        type nat hook prerouting priority dstnat;
        ip daddr {SERVICE_IP} tcp dport 443 dnat to {BRIDGE_IP}:{API_PORT}
    }}
    chain output {{
        type nat hook output priority -100;
        ip daddr {SERVICE_IP} tcp dport 443 dnat to {BRIDGE_IP}:{API_PORT}
    }}
}}
"""


def _run(*argv, **kwargs):
    subprocess.run(argv, check=True, **kwargs)


def _set_up_mounts(config):
    linux.mount("", "/", flags=linux.MS_REC | linux.MS_PRIVATE)
    linux.mount("", "/", flags=linux.MS_REC | linux.MS_SHARED)
    linux.mount("proc", "/proc", "proc")
    private = os.path.join(config["state"], "private")
    os.mkdir(private)
    linux.mount("tmpfs", private, "tmpfs", data="mode=755")
    for path in ("/etc", "/opt", "/var/lib", "/var/log"):
        upper, work = (os.path.join(private, path.strip("/").replace("/", "-") + "-" + k)
                       for k in ("upper", "work"))
        os.mkdir(upper, 0o755)
        os.mkdir(work)
        linux.mount("overlay", path, "overlay", data=f"lowerdir={path},upperdir={upper},workdir={work}")
    _own_dev(private)
    linux.mount("tmpfs", "/run", "tmpfs", data="mode=755")
    # A container runtime cannot put its overlays on an overlay, and etcd is faster without one.
    for name in ("kubelet", "containerd", "containers", "etcd"):
        source, target = os.path.join(private, name), os.path.join("/var/lib", name)
        os.mkdir(source, 0o700)
        os.makedirs(target, exist_ok=True)
        linux.mount(source, target, flags=linux.MS_BIND)
    _fake_sysctls(private)


def _own_dev(private):
    """A /dev in which containers that have the node's can leave something: the devices are the machine's."""
    machine, upper, work = (os.path.join(private, "dev-" + k) for k in ("machine", "upper", "work"))
    for path in (machine, upper, work):
        os.mkdir(path, 0o755)
    linux.mount("/dev", machine, flags=linux.MS_BIND | linux.MS_REC)
    linux.mount("overlay", "/dev", "overlay", data=f"lowerdir={machine},upperdir={upper},workdir={work}")
    for name in ("pts", "shm", "mqueue"):
        if os.path.ismount(os.path.join(machine, name)):
            linux.mount(os.path.join(machine, name), "/dev/" + name, flags=linux.MS_BIND)


def _fake_sysctls(private):
    for name, value in SYSCTLS.items():
        path = os.path.join(private, name.replace("/", "."))
        with open(path, "w") as f:
            f.write(value + "\n")
        if os.path.exists("/proc/sys/" + name):
            linux.mount(path, "/proc/sys/" + name, flags=linux.MS_BIND)


def _set_up_network():
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "br0", "type", "bridge")
    _run("ip", "address", "add", BRIDGE_IP + "/24", "dev", "br0")
    _run("ip", "link", "set", "br0", "up")
    # kubelet and kube-apiserver look for a default route to learn the machine's address.
    _run("ip", "route", "add", "default", "dev", "br0", "src", BRIDGE_IP)
    _forward()


def _forward():
    with open("/proc/sys/net/ipv4/ip_forward", "w") as f:
        f.write("1")
    _run("nft", "-f", "-", input=NFT_RULES.encode())


def _join_network(config, cluster):
    """A link to the bridge of the network namespace `cluster`, and the ways to the pods there and here."""
    first = f"/proc/self/fd/{cluster}"
    there = ["nsenter", "--net=" + first]
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "eth0", "type", "veth", "peer", "name", config["node"], "netns", first, pass_fds=[cluster])
    _run(*there, "ip", "link", "set", config["node"], "master", "br0", "up", pass_fds=[cluster])
    _run("ip", "address", "add", config["ip"] + "/24", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    _run("ip", "route", "add", "default", "via", BRIDGE_IP, "src", config["ip"])
    _run(*there, "ip", "route", "replace", config["pod_subnet"], "via", config["ip"], pass_fds=[cluster])
    _forward()


def _set_up(config):
    os.chdir("/")
    os.umask(0o022)
    network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWNET | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC)
    socket.sethostname(config["node"])
    _set_up_mounts(config)
    if "ip" in config:
        _join_network(config, network)
    else:
        _set_up_network()
    os.close(network)
    with contextlib.suppress(FileNotFoundError):
        os.unlink("/etc/resolv.conf")       # of the overlay; it may be a link to where nothing is
    shutil.copytree(os.path.join(config["state"], "rootfs"), "/", dirs_exist_ok=True)


class Process:
    def __init__(self, pid, notify):
        self.pid = pid
        self.notify = notify    # socket for sd_notify, or None
        self.status = None      # as os.waitstatus_to_exitcode
        self.on_ready = None    # connection to answer at READY=1 or at the end
        self.on_end = []        # connections to answer at the end


class Init:
    def __init__(self, config, machine):
        self.config = config
        self.machine = machine      # the mount namespace in which this one was made
        self.processes = {}
        self.selector = selectors.DefaultSelector()
        self.logs = config["logs"]

    def serve(self, ready_fd):
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(os.path.join(self.config["state"], "control"))
        listener.listen(64)
        self.selector.register(wake_read, selectors.EVENT_READ, self._reap)
        self.selector.register(listener, selectors.EVENT_READ, self._accept)
        os.write(ready_fd, READY)
        os.close(ready_fd)
        while True:
            for key, _ in self.selector.select():
                key.data(key.fileobj)

    def _reap(self, wake_fd):
        try:
            os.read(wake_fd, 4096)
        except BlockingIOError:
            pass
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for process in self.processes.values():
                if process.pid == pid and process.status is None:
                    self._ended(process, os.waitstatus_to_exitcode(status))

    def _ended(self, process, status):
        process.status = status
        self._close_notify(process)
        if process.on_ready:
            _answer(process.on_ready, {"pid": process.pid, "status": status})
            process.on_ready = None
        for connection in process.on_end:
            _answer(connection, {"pid": process.pid, "status": status})
        process.on_end = []

    def _close_notify(self, process):
        if process.notify:
            self.selector.unregister(process.notify)
            process.notify.close()
            process.notify = None

    def _accept(self, listener):
        connection, _ = listener.accept()
        self.selector.register(connection, selectors.EVENT_READ, self._request)

    def _request(self, connection):
        self.selector.unregister(connection)
        try:
            with connection.makefile("r") as f:
                request = json.loads(f.readline() or "{}")
            handler = getattr(self, "_op_" + request.pop("op", "none"))
            handler(connection, **request)
        except Exception as e:      # a bad request must not end PID 1
            _answer(connection, {"error": f"{type(e).__name__}: {e}"})

    def _op_list(self, connection):
        _answer(connection, {n: {"pid": p.pid, "status": p.status} for n, p in self.processes.items()})

    def _op_signal(self, connection, name, signal):
        process = self.processes[name]
        if process.status is None:
            os.kill(process.pid, signal)
        _answer(connection, {"pid": process.pid, "status": process.status})

    def _op_wait(self, connection, name):
        process = self.processes[name]
        if process.status is not None:
            _answer(connection, {"pid": process.pid, "status": process.status})
        else:
            process.on_end.append(connection)

    def _op_spawn(self, connection, name, argv, env=None, notify=False, machine=False):
        old = self.processes.get(name)
        if old and old.status is None:
            raise RuntimeError(f"{name} runs already")
        env = dict(os.environ, PATH=self.config["path"], **(env or {}))
        notify_socket = self._notify_socket(name, env) if notify else None
        log = os.path.join(self.logs, name + ".log")
        path = shutil.which(argv[0], path=env["PATH"])
        if path is None:
            raise FileNotFoundError(argv[0])
        pid = os.posix_spawn(
            path, argv, env, setsid=True, setsigdef=[signal.SIGPIPE],
            file_actions=[(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                          (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                          (os.POSIX_SPAWN_DUP2, 1, 2),
                          *([(os.POSIX_SPAWN_DUP2, self.machine, MACHINE)] if machine else [])])
        process = Process(pid, notify_socket)
        self.processes[name] = process
        if notify_socket is None:
            _answer(connection, {"pid": pid, "status": None})
            return
        process.on_ready = connection
        self.selector.register(notify_socket, selectors.EVENT_READ, lambda _: self._notified(process))

    def _notify_socket(self, name, env):
        path = f"/run/notify-{name}"
        if os.path.exists(path):
            os.unlink(path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sock.bind(path)
        env["NOTIFY_SOCKET"] = path
        return sock

    def _notified(self, process):
        if READY in process.notify.recv(4096) and process.on_ready:
            _answer(process.on_ready, {"pid": process.pid, "status": None})
            process.on_ready = None


def _answer(connection, answer):
    try:
        connection.sendall(json.dumps(answer).encode() + b"\n")
    except OSError:
        pass    # the client is gone
    connection.close()


def main(config, ready_fd):
    machine = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    _set_up(config)
    Init(config, machine).serve(ready_fd)


def command():
    """Entry point of the process that is the second node to the first: SETTINGS. It ends when all processes of the node have."""
    ready = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ready.connect(os.environ["NOTIFY_SOCKET"])
    linux.setns(MACHINE, linux.CLONE_NEWNS)
    os.close(MACHINE)
    linux.unshare(linux.CLONE_NEWPID)
    pid = os.fork()
    if pid == 0:
        linux.die_with_parent()
        main(json.loads(sys.argv[1]), ready.detach())
    ready.close()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0)
