# SPDX-License-Identifier: Apache-2.0
"""kubelet as the agent needs it: containers get devices, which is in the checkpoint, and are started."""

import base64
import contextlib
import json
import pathlib
import re
import sys

from sim_kit import wait_until

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "e2e"))

import grpc_raw

# The name of the resource, or its beginning and a hash.
SOCKET = re.compile(r"aliquot-(.*?)(-[0-9a-f]{8})?(?:-[0-9a-f]+-\d+)?\.sock")
SERVICE = b"/v1beta1.DevicePlugin/"
ID = re.compile(r"(?:GPU|MIG)-[-0-9a-f]{36}(?:::\d+)?")


def content(message):
    """The content of field 1, which is all that a message has."""
    assert message[0] == 0x0a, message
    two = message[1] & 0x80
    size = message[1] & 0x7f | (message[2] << 7 if two else 0)
    assert len(message) == size + (3 if two else 2)
    return message[-size:]


class Kubelet:
    def __init__(self, path):
        """`path`: the directory of the agent's option --kubelet-dir."""
        self.path, self.entries = path, []
        (path / "device-plugins").mkdir(parents=True, exist_ok=True)
        (path / "pods").mkdir(exist_ok=True)

    def socket(self, resource):
        """The newest socket of the plugin of a resource, "gpu" for nvidia.com/gpu; None: it offers nothing."""
        found = [(p, SOCKET.fullmatch(p.name)) for p in (self.path / "device-plugins").glob("*.sock")]
        found = [p for p, m in found if m and (m[1] == resource or m[2] and resource.startswith(m[1]))]
        return max(found, key=lambda p: p.stat().st_mtime, default=None)

    @contextlib.contextmanager
    def channel(self, resource):
        made = []

        def connects():     # as kubelet does: a socket that is there may not listen yet, or be of a plugin that ends
            path = self.socket(resource)
            with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):
                made.extend([grpc_raw.Channel(str(path))] if path else [])
            return made
        wait_until(connects, what=f"the plugin of {resource} listens")
        (channel,) = made
        channel.socket.settimeout(60)
        try:
            yield channel
        finally:
            channel.close()

    def call(self, resource, method, body):
        with self.channel(resource) as channel:
            return channel.call(SERVICE + method, body)

    def listed(self, resource):
        """The IDs of a resource that the agent offers: the first message of ListAndWatch."""
        with self.channel(resource) as channel:
            return ID.findall(next(channel.stream(SERVICE + b"ListAndWatch")).decode("latin-1"))

    def allocate(self, resource, uid, devices, container="main"):
        """Gives a container of a pod devices of a resource (without a domain: of NVIDIA's); it is not started."""
        name = resource if "/" in resource else f"nvidia.com/{resource}"
        resource = name.partition("/")[2]
        ids = b"".join(grpc_raw.field(1, d.encode()) for d in devices)
        answer = content(self.call(resource, b"Allocate", grpc_raw.field(1, ids)))
        self.entries.append({"PodUID": uid, "ContainerName": container, "ResourceName": name,
                             "DeviceIDs": {"-1": devices}, "AllocResp": base64.b64encode(answer).decode()})
        self.save()

    def forget(self, uid):
        """The pod has ended: its devices are free."""
        self.entries = [entry for entry in self.entries if entry["PodUID"] != uid]
        self.save()

    def save(self):
        file = self.path / "device-plugins/kubelet_internal_checkpoint"
        new = file.with_suffix(".new")
        new.write_text(json.dumps({"Data": {"PodDeviceEntries": self.entries, "RegisteredDevices": {}}, "Checksum": 1}))
        new.rename(file)

    def start(self, uid):
        """Starts the container of a pod, or starts it again: PreStartContainer. An OSError where the agent refuses."""
        (entry,) = (e for e in self.entries if e["PodUID"] == uid)
        ids = b"".join(grpc_raw.field(1, d.encode()) for d in entry["DeviceIDs"]["-1"])
        assert self.call(entry["ResourceName"].split("/")[1], b"PreStartContainer", ids) == b""

    def prefer(self, resource, available, size):
        """Those of the devices that the agent prefers: GetPreferredAllocation."""
        ids = b"".join(grpc_raw.field(1, d.encode()) for d in available)
        answer = content(self.call(resource, b"GetPreferredAllocation", grpc_raw.field(1, ids + b"\x18" + bytes([size]))))
        return re.findall(r"GPU-[-0-9a-f]{36}::\d+", answer.decode())

    def nonce(self, uid):
        (entry,) = (e for e in self.entries if e["PodUID"] == uid)
        return re.search(rb"=(\w{32})", base64.b64decode(entry["AllocResp"]))[1].decode()
