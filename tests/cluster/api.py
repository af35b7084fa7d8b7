# SPDX-License-Identifier: Apache-2.0
"""A small client of the Kubernetes API, for tooling and tests: JSON objects in, JSON objects out.

Connections are made inside the cluster's network namespace, so the API server needs no way out of it.
"""

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse

from . import linux

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class ApiError(Exception):
    """An answer that is not 2xx; .code is the HTTP status, the text is the server's message."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Timeout(Exception):
    """What was waited for did not come within its bound."""


class _Connection(http.client.HTTPSConnection):
    """HTTPS whose socket belongs to the network namespace of a process."""

    def __init__(self, pid, host, port, context, timeout):
        super().__init__(host, port, context=context, timeout=timeout)
        self._pid = pid
        self._tls = context

    def connect(self):
        with linux.in_netns(self._pid):
            plain = socket.create_connection((self.host, self.port), self.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self.host)


class Api:
    """One identity (bearer token, or impersonation by an admin) at one API server. Threads may share it."""

    def __init__(self, pid, host, port, ca_file, token, impersonate=None):
        self._where = (pid, host, port, ca_file)
        self._tls = ssl.create_default_context(cafile=ca_file)
        self._headers = {"Authorization": "Bearer " + token, "Accept": "application/json"}
        if impersonate:
            self._headers["Impersonate-User"] = impersonate
        self._local = threading.local()
        self.token = token

    def as_user(self, name):
        return Api(*self._where, self.token, impersonate=name)

    def with_token(self, token):
        return Api(*self._where, token)

    def _connect(self, timeout):
        pid, host, port, _ = self._where
        return _Connection(pid, host, port, self._tls, timeout)

    def raw(self, method, path, body=None, content_type="application/json", timeout=30):
        """(status, bytes). A kept connection that the server has closed meanwhile is opened again once."""
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = dict(self._headers, **({"Content-Type": content_type} if data is not None else {}))
        for fresh in (False, True):
            connection = None if fresh else getattr(self._local, "connection", None)
            reused = connection is not None
            connection = connection or self._connect(timeout)
            try:
                connection.request(method, path, data, headers)
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                self._local.connection = None
                if not reused:
                    raise
                continue
            self._local.connection = connection
            return answer.status, content
        raise AssertionError("unreachable")

    def request(self, method, path, body=None, **kwargs):
        status, content = self.raw(method, path, body, **kwargs)
        try:
            parsed = json.loads(content) if content else {}
        except ValueError:
            parsed = {"message": content.decode(errors="replace")}
        if status // 100 != 2:
            raise ApiError(status, parsed.get("message", ""))
        return parsed

    def get(self, path, **query):
        return self.request("GET", _with_query(path, query))

    def exists(self, path):
        try:
            self.get(path)
            return True
        except ApiError as e:
            if e.code == 404:
                return False
            raise

    def create(self, path, body, **query):
        return self.request("POST", _with_query(path, query), body)

    def patch(self, path, body, kind=MERGE, **query):
        return self.request("PATCH", _with_query(path, query), body, content_type=kind)

    def delete(self, path, **options):
        """Deletes; an object that is gone already is no error."""
        try:
            return self.request("DELETE", path, options or None)
        except ApiError as e:
            if e.code != 404:
                raise
            return {}

    def watch(self, path, timeout, **query):
        """Yields (type, object) from now on, the present objects first, until the timeout (then Timeout)."""
        deadline = time.monotonic() + timeout
        while True:
            listed = self.get(path, **query)
            for item in listed.get("items", []):
                yield "ADDED", item
            version = listed["metadata"]["resourceVersion"]
            yield from self._stream(path, dict(query, watch="1", resourceVersion=version), deadline)

    def _stream(self, path, query, deadline):
        left = deadline - time.monotonic()
        if left <= 0:
            raise Timeout(path)
        connection = self._connect(left)
        with contextlib.closing(connection):
            connection.request("GET", _with_query(path, query), None, self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Timeout(path)
                connection.sock.settimeout(left)
                try:
                    line = answer.readline()
                except TimeoutError:
                    raise Timeout(path) from None
                if not line:
                    return
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    def lines(self, path, timeout, **query):
        """Yields the lines of a stream (a followed log) until it ends or the timeout passes (Timeout)."""
        deadline = time.monotonic() + timeout
        with contextlib.closing(self._connect(timeout)) as connection:
            connection.request("GET", _with_query(path, query), None, self._headers)
            answer = connection.getresponse()
            if answer.status != 200:
                raise ApiError(answer.status, answer.read().decode(errors="replace"))
            while True:
                connection.sock.settimeout(max(0.001, deadline - time.monotonic()))
                try:
                    line = answer.readline()
                except TimeoutError:
                    raise Timeout(path) from None
                if not line:
                    return
                yield line.decode(errors="replace").rstrip("\n")

    def wait_none(self, path, timeout, counts=lambda item: True):
        """Waits until a collection has no object any more for which counts(object) holds."""
        deadline = time.monotonic() + timeout
        left = set()
        try:
            while True:
                listed = self.get(path)
                left = {_uid(item) for item in listed["items"] if counts(item)}
                if not left:
                    return
                query = {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
                for kind, item in self._stream(path, query, deadline):
                    (left.add if kind != "DELETED" and counts(item) else left.discard)(_uid(item))
                    if not left:
                        return
        except Timeout:
            raise Timeout(f"{path}: {len(left)} objects left after {timeout} s") from None

    def wait(self, path, name, condition, timeout=60, what=None):
        """Waits until condition(object) holds for the named object of a collection; object is None once deleted."""
        deadline = time.monotonic() + timeout
        query = {"fieldSelector": "metadata.name=" + name}
        try:
            while True:
                # One list decides whether it is there: between two it could go unseen, and no event would follow.
                listed = self.get(path, **query)
                seen = next(iter(listed.get("items", [])), None)
                if condition(seen):
                    return seen
                query_from = dict(query, watch="1", resourceVersion=listed["metadata"]["resourceVersion"])
                for kind, item in self._stream(path, query_from, deadline):
                    seen = None if kind == "DELETED" else item
                    if condition(seen):
                        return seen
        except Timeout:
            last = self.get(path, fieldSelector="metadata.name=" + name).get("items")
            raise Timeout(f"{what or path + '/' + name} not within {timeout} s; last seen: "
                          f"{json.dumps(last[0].get('status') if last else None)[:1500]}") from None


def _uid(item):
    return item["metadata"]["uid"]


def _with_query(path, query):
    return path + "?" + urllib.parse.urlencode(query) if query else path


# Paths of the API.

def pods(namespace="default", name=None):
    return _path("/api/v1", namespace, "pods", name)


def core(kind, namespace=None, name=None):
    return _path("/api/v1", namespace, kind, name)


def gpus(name=None):
    return _path("/apis/elasticgpu.io/v1alpha1", None, "gpus", name)


def _path(group, namespace, kind, name):
    return (group + (f"/namespaces/{namespace}" if namespace else "") + "/" + kind
            + ("/" + name if name else ""))
