# SPDX-License-Identifier: Apache-2.0
"""A second node of a cluster: kubelet and container runtime of its own, in namespaces of its own (PID, mount, network, UTS, IPC)
and below a cgroup of its own. It is reached from the first node as one machine from another, at 10.77.0.2, and ends with it.

    with Cluster("mine", second_node=True) as cluster:
        cluster.up()
        cluster.second.lose()     # as if its power failed
        cluster.second.up()       # installed anew under the same name: its disk was lost, too
"""

import json
import os
import shutil
import signal
import socket
import struct
import sys

from . import binaries, config, linux
from .machine import Machine


class SecondNode(Machine):
    def __init__(self, cluster):
        self.cluster = cluster
        self.name = cluster.name
        self.node, self.ip, self.pod_subnet = config.SECOND
        self.cgroup = os.path.join(cluster.cgroup, self.node)
        self.state = os.path.join(cluster.state, self.node)
        self.logs = os.path.join(cluster.logs, self.node)
        self.runtime = cluster.runtime
        self.shipped_intervals = cluster.shipped_intervals
        self.new_runc = cluster.new_runc
        self.oci_runtime = cluster.oci_runtime
        self.two_nodes = True
        self.ca_file = cluster.ca_file
        self.socket = os.path.join(self.state, "control")

    @property
    def api(self):
        return self.cluster.api

    def is_up(self):
        return os.path.exists(self.socket)

    @property
    def init_pid(self):
        """The kernel knows it as the one that listens there."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
            s.connect(self.socket)
            return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]

    def write(self, tokens):
        """Its directories and files, before the cluster starts."""
        os.makedirs(os.path.join(self.logs, "pods"))
        os.makedirs(self.state)
        config.write_node(self, tokens)

    def up(self):
        """Starts it and returns when it is Ready."""
        self.boot()
        self.join()

    def boot(self):
        """Starts it without kubelet, with the images that the cluster was given."""
        self.cluster.say(f"starting {self.node}")
        linux.cgroup_create(self.cgroup)
        settings = {"state": self.state, "logs": self.logs, "node": self.node, "ip": self.ip, "pod_subnet": self.pod_subnet,
                    "path": ":".join([*binaries.path_dirs(), "/usr/sbin:/usr/bin:/sbin:/bin"])}
        program = "from cluster import node; node.command()"
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        self.cluster.spawn(self.node, [sys.executable, "-c", program, json.dumps(settings)], notify=True, machine=True,
                           env={"PYTHONPATH": here, "PYTHONDONTWRITEBYTECODE": "1"})
        self.start(self.runtime)
        self.load_image(*self.cluster.images)

    def join(self):
        self.start("kubelet")
        self.wait_node_ready()

    def lose(self):
        """Ends all its processes and connections at once; what the API server knows of it stays. Returns when nothing is left."""
        os.kill(self.init_pid, signal.SIGKILL)
        self.cluster.control("wait", name=self.node)
        linux.cgroup_remove(self.cgroup)
        os.unlink(self.socket)
        shutil.rmtree(os.path.join(self.state, "private"))
