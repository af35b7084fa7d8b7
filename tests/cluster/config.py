# SPDX-License-Identifier: Apache-2.0
"""Configuration files and command lines of every part of the cluster. No I/O but writing the files."""

import json
import os
import secrets
import subprocess
import typing

from . import binaries
from .node import API_PORT, BRIDGE_IP


class Place(typing.NamedTuple):
    """A node's name and its addresses."""
    name: str
    ip: str
    pods: str


FIRST = Place("node-a", BRIDGE_IP, "10.78.0.0/16")
SECOND = Place("node-b", "10.77.0.2", "10.79.0.0/16")
SERVICE_SUBNET = "10.96.0.0/16"
SERVER = f"https://{BRIDGE_IP}:{API_PORT}"
CONTAINERD_SOCKET = "/run/containerd/containerd.sock"
PAUSE_IMAGE = "localhost/pause:1"
SCHEDULER_CONFIGURATION = "/etc/kubernetes/kube-scheduler-configuration.yaml"

CONTAINERD = """\
version = 4
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.blockfile",
    "io.containerd.snapshotter.v1.erofs", "io.containerd.tracing.processor.v1.otlp"]

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
# A root without CAP_SYS_RESOURCE may not lower an oom_score_adj, and AppArmor profiles belong to the machine.
restrict_oom_score_adj = true
disable_apparmor = true
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
conf_dir = "/etc/cni/net.d"

[plugins."io.containerd.nri.v1.nri"]
disable = true
"""

CONTAINERD_RUNC = """
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "{path}"
"""

CRIO_SOCKET = "/run/crio/crio.sock"
CRIO = """\
[crio]
root = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
storage_driver = "overlay"
version_file = "/run/crio/version"
[crio.api]
listen = "{socket}"
[crio.runtime]
default_runtime = "{oci}"
cgroup_manager = "cgroupfs"
conmon_cgroup = "pod"
apparmor_profile = "unconfined"
cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
hooks_dir = []
pinns_path = "{pinns}"
[crio.runtime.runtimes.{oci}]
runtime_path = "{path}"
runtime_root = "/run/{oci}"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "pod"
[crio.image]
pause_image = "{pause}"
pause_command = "/pause"
signature_policy = "/etc/containers/policy.json"
[crio.network]
network_dir = "/etc/cni/net.d/"
plugin_dirs = ["/usr/lib/cni", "/opt/cni/bin"]
[crio.nri]
enable_nri = false
"""

OCI_RUNTIMES = {"runc": "/usr/sbin/runc", "crun": "/usr/bin/crun"}     # Debian's
OCI_RUNTIME = "/etc/crio/oci-runtime"
OCI_RUNTIME_SCRIPT = """\
#!/bin/sh
exec {adapter} {program} "$@"
"""

SOCKETS = {"containerd": CONTAINERD_SOCKET, "crio": CRIO_SOCKET}

USERS = {   # user: (token-file groups)
    "admin": "system:masters",
    "system:kube-controller-manager": "",
    "system:kube-scheduler": "",
}


SHORT_KUBELET = {
    # Tests and demo kill containers on purpose: they come back at once.
    "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    # What kubelet learns from the device plugin is on the Node within a second instead of ten.
    "nodeStatusUpdateFrequency": "1s",
}


# Their collections take a fifth of the processors' time on a cluster that lives for minutes; so they take memory instead.
GO = {"GOGC": "400"}


# With two nodes one is lost on purpose: kubelet renews its Lease each 3 s, and is missed after 20.
LOSS = {"nodeLeaseDurationSeconds": 12}
GRACE = "20s"


def _cni(machine):
    return {
        "cniVersion": "1.0.0", "name": "aliquot",
        "plugins": [{"type": "ptp", "ipMasq": False,
                     "ipam": {"type": "host-local", "subnet": machine.pod_subnet, "routes": [{"dst": "0.0.0.0/0"}]}}],
    }


def _kubelet(machine):
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix://" + SOCKETS[machine.runtime],
        "cgroupDriver": "cgroupfs", "cgroupRoot": "/" + machine.cgroup, "failCgroupV1": False,
        "enforceNodeAllocatable": [], "failSwapOn": False,
        # The only way to this kubelet is the cluster's own network namespace.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # No DNS server runs: names fail at once, at a closed port, and kubelet does not warn on every pod.
        "resolvConf": "/etc/kubernetes/resolv.conf", "clusterDNS": [BRIDGE_IP], "clusterDomain": "cluster.local",
        "podLogsDir": os.path.join(machine.logs, "pods"),
        "volumePluginDir": "/var/lib/kubelet/volume-plugins",
        "makeIPTablesUtilChains": False, "serializeImagePulls": False,
        # How full the user's disk is must not decide what the tests see.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
        "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
        "nodeStatusReportFrequency": "5m",
        "eventRecordQPS": 0, "kubeAPIQPS": 100, "kubeAPIBurst": 200,
    } | ({} if machine.shipped_intervals else SHORT_KUBELET | (LOSS if machine.two_nodes else {}))


def _kubeconfig(cluster, user, token):
    return {
        "apiVersion": "v1", "kind": "Config", "current-context": "aliquot",
        "clusters": [{"name": "aliquot", "cluster": {"server": SERVER,
                                                     "certificate-authority": cluster.ca_file}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "aliquot", "context": {"cluster": "aliquot", "user": user}}],
    }


def with_short_backoff(scheduler_configuration):
    """The text of a kube-scheduler configuration with which a pod is tried again a second after an error instead of up to
    ten: tests and demo make errors on purpose."""
    return scheduler_configuration + "podMaxBackoffSeconds: 1\n"


def _put(machine, path, content, mode=0o644):
    full = os.path.join(machine.state, "rootfs", path.lstrip("/"))
    os.makedirs(os.path.dirname(full), exist_ok=True)
    with open(full, "w") as f:
        f.write(content if isinstance(content, str) else json.dumps(content, indent=1) + "\n")
    os.chmod(full, mode)


def _node_user(name):
    return "system:node:" + name


def write(cluster, scheduler_configuration):
    """Fills the cluster's rootfs directory, which its init lays over / of the first node. Returns the token of each user."""
    users = dict(USERS, **{_node_user(place.name): "system:nodes" for place in (FIRST, SECOND)})
    tokens = {user: secrets.token_hex(16) for user in users}
    _put(cluster, "/etc/kubernetes/tokens.csv", "".join(
        f'{tokens[u]},{u},{u}' + (f',"{g}"' if g else "") + "\n" for u, g in users.items()))
    _put(cluster, "/etc/kubernetes/admin.conf", _kubeconfig(cluster, "admin", tokens["admin"]))
    for name in ("controller-manager", "scheduler"):
        user = "system:kube-" + name
        _put(cluster, f"/etc/kubernetes/{name}.conf", _kubeconfig(cluster, user, tokens[user]))
    with open(scheduler_configuration) as f:
        _put(cluster, SCHEDULER_CONFIGURATION, f.read() if cluster.shipped_intervals else with_short_backoff(f.read()))
    _service_account_keys(os.path.join(cluster.state, "rootfs/etc/kubernetes"))
    _front_proxy(os.path.join(cluster.state, "rootfs/etc/kubernetes"))
    write_node(cluster, tokens)
    return tokens


def write_node(machine, tokens):
    """The files that every node has."""
    user = _node_user(machine.node)
    _put(machine, "/etc/kubernetes/kubelet.conf", _kubeconfig(machine, user, tokens[user]))
    _put(machine, "/etc/kubernetes/kubelet.yaml", _kubelet(machine))
    _put(machine, "/etc/kubernetes/resolv.conf", "")
    # The machine's server cannot be reached: each name would take seconds.
    _put(machine, "/etc/resolv.conf", "nameserver 127.0.0.1\n")
    _put(machine, "/etc/containerd/config.toml", CONTAINERD.format(pause=PAUSE_IMAGE) + (
        CONTAINERD_RUNC.format(path=binaries.find("runc")) if machine.new_runc else ""))
    _put(machine, "/etc/crio/crio.conf", CRIO.format(socket=CRIO_SOCKET, pause=PAUSE_IMAGE, pinns=binaries.find("pinns"),
                                                     oci=machine.oci_runtime, path=OCI_RUNTIME))
    _put(machine, OCI_RUNTIME, OCI_RUNTIME_SCRIPT.format(adapter=os.path.join(os.path.dirname(__file__), "oci_runtime.py"),
                                                         program=OCI_RUNTIMES[machine.oci_runtime]), 0o755)
    _put(machine, "/etc/containers/registries.conf",
         'unqualified-search-registries = ["docker.io"]\nshort-name-mode = "disabled"\n')
    _put(machine, "/etc/containers/policy.json", {"default": [{"type": "insecureAcceptAnything"}]})
    _put(machine, "/etc/cni/net.d/10-aliquot.conflist", _cni(machine))
    _put(machine, "/etc/hosts", f"127.0.0.1 localhost\n{machine.ip} {machine.node}\n")
    _put(machine, "/etc/machine-id", secrets.token_hex(16) + "\n")


def _service_account_keys(directory):
    private, public = (os.path.join(directory, "sa." + e) for e in ("key", "pub"))
    for argv in (["openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256",
                  "-out", private],
                 ["openssl", "pkey", "-in", private, "-pubout", "-out", public]):
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _front_proxy(directory):
    """The certificate by which kube-apiserver shows itself to servers of aggregated APIs, and its authority."""
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"]
    ca, client = (os.path.join(directory, name) for name in ("front-proxy-ca", "front-proxy-client"))
    for argv in ([*new, "-subj", "/CN=front-proxy-ca", "-keyout", ca + ".key", "-out", ca + ".crt"],
                 [*new, "-subj", "/CN=front-proxy-client", "-CA", ca + ".crt", "-CAkey", ca + ".key",
                  "-keyout", client + ".key", "-out", client + ".crt"]):
        subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def control_plane_commands(cluster):
    """{name: (argv, says READY=1)}"""
    etc = "/etc/kubernetes/"
    return {
        "etcd": (["etcd", "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn",
                  "--listen-peer-urls=http://127.0.0.1:2380"], True),
        "kube-apiserver": ([
            "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0",
            f"--secure-port={API_PORT}", f"--advertise-address={BRIDGE_IP}",
            "--cert-dir=" + os.path.dirname(cluster.ca_file), f"--token-auth-file={etc}tokens.csv",
            "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
            f"--service-account-key-file={etc}sa.pub", f"--service-account-signing-key-file={etc}sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICE_SUBNET}", "--allow-privileged=true",
            # No kube-proxy runs: webhooks are reached at the addresses of their endpoints.
            "--enable-aggregator-routing=true",
            f"--requestheader-client-ca-file={etc}front-proxy-ca.crt", "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={etc}front-proxy-client.crt", f"--proxy-client-key-file={etc}front-proxy-client.key",
            "--kubelet-preferred-address-types=InternalIP"], True),
        "kube-controller-manager": ([
            "kube-controller-manager", f"--kubeconfig={etc}controller-manager.conf",
            "--use-service-account-credentials", f"--service-account-private-key-file={etc}sa.key",
            "--root-ca-file=" + cluster.ca_file, "--leader-elect=false",
            # Its own limit of 20 requests a second makes its controllers start for 4 s.
            "--kube-api-qps=200", "--kube-api-burst=400",
            *([] if cluster.shipped_intervals else ["--horizontal-pod-autoscaler-sync-period=2s"]),
            *(["--node-monitor-grace-period=" + GRACE] if cluster.two_nodes and not cluster.shipped_intervals else []),
            "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins", "--bind-address=127.0.0.1"], False),
        "kube-scheduler": ([
            "kube-scheduler", f"--kubeconfig={etc}scheduler.conf" if cluster.stock_scheduler
            else "--config=" + SCHEDULER_CONFIGURATION, "--leader-elect=false", "--bind-address=127.0.0.1"], False),
    }


def node_commands(machine):
    """{name: (argv, says READY=1)}"""
    etc = "/etc/kubernetes/"
    return {
        "containerd": (["containerd", "--config=/etc/containerd/config.toml",
                        "--address=" + CONTAINERD_SOCKET], True),
        "crio": (["crio", "--config=/etc/crio/crio.conf", "--config-dir=/etc/crio/crio.conf.d"], True),
        "kubelet": ([
            "kubelet", f"--config={etc}kubelet.yaml", f"--kubeconfig={etc}kubelet.conf",
            "--hostname-override=" + machine.node, "--node-ip=" + machine.ip], True),
    }
