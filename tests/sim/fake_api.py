# SPDX-License-Identifier: Apache-2.0
"""The API server as the agent needs it: objects by path, lists, watches and patches, over HTTP/2 with TLS."""

import contextlib
import ctypes
import json
import socket
import ssl
import struct
import subprocess
import threading
import urllib.parse

DATA, HEADERS, SETTINGS, PING, WINDOW_UPDATE = 0, 1, 4, 6, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = 24    # bytes


class _Field(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("value", ctypes.c_void_p), ("name_size", ctypes.c_size_t),
                ("value_size", ctypes.c_size_t), ("flags", ctypes.c_uint8)]


class _Headers:
    """HPACK by the library that the agent has it from."""

    FINAL, EMIT = 1, 2

    def __init__(self):
        self.library = ctypes.CDLL("libnghttp2.so.14")
        self.library.nghttp2_hd_inflate_hd2.restype = ctypes.c_ssize_t
        self.inflater = ctypes.c_void_p()
        assert self.library.nghttp2_hd_inflate_new(ctypes.byref(self.inflater)) == 0

    def decode(self, block):
        found, at, flags = {}, 0, ctypes.c_int(0)
        while not flags.value & self.FINAL:
            field, flags = _Field(), ctypes.c_int(0)
            rest = block[at:]
            n = self.library.nghttp2_hd_inflate_hd2(self.inflater, ctypes.byref(field), ctypes.byref(flags), rest,
                                                    ctypes.c_size_t(len(rest)), 1)
            assert n >= 0, n
            at += n
            if flags.value & self.EMIT:
                found[ctypes.string_at(field.name, field.name_size).decode()] = \
                    ctypes.string_at(field.value, field.value_size).decode()
        self.library.nghttp2_hd_inflate_end_headers(self.inflater)
        return found

    def close(self):
        self.library.nghttp2_hd_inflate_del(self.inflater)


def merged(have, patch):
    """A merge patch; lists of conditions are merged by their type, as a strategic one does."""
    if isinstance(patch, list) and isinstance(have, list) and all("type" in item for item in patch + have):
        return list({item["type"]: item for item in have + patch}.values())
    if not isinstance(patch, dict):
        return patch
    have = dict(have) if isinstance(have, dict) else {}
    for key, value in patch.items():
        if value is None:
            have.pop(key, None)
        else:
            have[key] = merged(have.get(key), value)
    return have


class _Connection(threading.Thread):
    def __init__(self, server, sock):
        super().__init__(daemon=True)
        self.server, self.socket, self.lock = server, sock, threading.Lock()
        self.requests = {}      # stream: [headers, body]
        self.start()

    def run(self):
        with contextlib.suppress(OSError):
            self.socket = self.server.context.wrap_socket(self.socket, server_side=True)
            self.input = self.socket.makefile("rb")
            self.input.read(PREFACE)
            self.send(SETTINGS, 0, 0, b"")
            self.send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30))
            self.serve()
        self.server.leave(self)

    def serve(self):
        headers = _Headers()
        while len(head := self.input.read(9)) == 9:
            kind, flags, stream = struct.unpack(">BBI", head[3:])
            payload = self.input.read(int.from_bytes(head[:3], "big"))
            if kind == SETTINGS and not flags & ACK:
                self.send(SETTINGS, ACK, 0, b"")
            elif kind == PING and not flags & ACK:
                self.send(PING, ACK, 0, payload)
            elif kind == HEADERS:
                assert flags & END_HEADERS
                block = payload[5:] if flags & 0x20 else payload
                self.requests[stream] = [headers.decode(block), b""]
            elif kind == DATA:
                self.requests[stream][1] += payload
            if kind in (HEADERS, DATA) and flags & END_STREAM:
                self.server.answer(self, stream, *self.requests.pop(stream))
        headers.close()

    def send(self, kind, flags, stream, payload):
        with self.lock:
            self.socket.sendall(struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload)

    def begin(self, stream, status):
        self.send(HEADERS, END_HEADERS, stream, b"\x00\x07:status" + bytes([3]) + str(status).encode())

    def put(self, stream, value, end=False):
        self.send(DATA, END_STREAM if end else 0, stream, json.dumps(value).encode() + b"\n")


class Api:
    """`objects`: {(resource, namespace, name): object}, namespace "" for objects of the cluster."""

    def __init__(self, path):
        self.ca, key = path / "api.pem", path / "api.key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=api", "-days", "1",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", self.ca],
                       check=True, capture_output=True)
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.ca, key)
        self.context.set_alpn_protocols(["h2"])
        self.objects, self.watches, self.version = {}, [], 0
        self.writes = []        # (method, resource, name), of the agent
        self.lock = threading.RLock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = "https://127.0.0.1:%d" % self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                _Connection(self, self.listener.accept()[0])

    def close(self):
        self.listener.close()

    def leave(self, connection):
        with self.lock:
            self.watches = [w for w in self.watches if w[0] is not connection]

    # ---- objects ----

    def change(self, kind, key, value):
        with self.lock:
            self.version += 1
            value["metadata"]["resourceVersion"] = str(self.version)
            if kind == "DELETED":
                del self.objects[key]
            else:
                self.objects[key] = value
            for connection, stream, wanted in self.watches:
                if wanted(key):
                    with contextlib.suppress(OSError):
                        connection.put(stream, {"type": kind, "object": value})

    def put(self, resource, value):
        """Creates an object, or replaces it."""
        meta = value["metadata"]
        key = resource, meta.get("namespace", ""), meta["name"]
        with self.lock:
            meta.setdefault("uid", f"uid-{resource}-{meta['name']}")
            self.change("MODIFIED" if key in self.objects else "ADDED", key, value)

    def edit(self, resource, namespace, name, patch):
        """Applies a merge patch."""
        with self.lock:
            key = resource, namespace, name
            self.change("MODIFIED", key, merged(self.objects[key], patch))

    def find(self, resource):
        """All objects of a resource, by name."""
        with self.lock:
            return {name: value for (kind, _, name), value in self.objects.items() if kind == resource}

    # ---- requests ----

    def answer(self, connection, stream, headers, body):
        url = urllib.parse.urlsplit(headers[":path"])
        query = dict(urllib.parse.parse_qsl(url.query))
        words = url.path.strip("/").split("/")[2 if url.path.startswith("/api/") else 3:]
        namespace = words[1] if words[0] == "namespaces" and len(words) > 2 else ""
        resource, *rest = words[2:] if namespace else words
        key = (resource, namespace, rest[0]) if rest else None
        selector = query.get("fieldSelector", "").split("metadata.name=")

        def wanted(k):
            return k[0] == resource and namespace in ("", k[1]) and (len(selector) == 1 or k[2] == selector[1])
        with self.lock:
            if query.get("watch"):
                connection.begin(stream, 200)
                self.watches.append((connection, stream, wanted))
                for k, value in self.objects.items():
                    if wanted(k) and int(value["metadata"]["resourceVersion"]) > int(query["resourceVersion"]):
                        connection.put(stream, {"type": "MODIFIED", "object": value})
                return
            status, value = self.serve(headers[":method"], resource, key, wanted, json.loads(body or b"{}"))
        connection.begin(stream, status)
        connection.put(stream, value, end=True)

    def serve(self, method, resource, key, wanted, body):
        if method != "GET":
            self.writes.append((method, resource, key[2] if key else body["metadata"]["name"]))
        if method == "POST":
            if (resource, body["metadata"].get("namespace", ""), body["metadata"]["name"]) in self.objects:
                return 409, {"kind": "Status", "message": "it exists", "code": 409}
            self.put(resource, body)
            return 201, body
        if not key:
            return 200, {"metadata": {"resourceVersion": str(self.version)},
                         "items": [value for k, value in self.objects.items() if wanted(k)]}
        if key not in self.objects:
            return 404, {"kind": "Status", "message": "not found", "code": 404}
        if method == "PATCH":
            self.change("MODIFIED", key, merged(self.objects[key], body))
        elif method == "PUT":
            body["metadata"]["uid"] = self.objects[key]["metadata"]["uid"]
            self.change("MODIFIED", key, body)
        elif method == "DELETE":
            value = self.objects[key]
            self.change("DELETED", key, value)
            return 200, value
        return 200, self.objects[key]
