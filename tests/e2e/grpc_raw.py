# SPDX-License-Identifier: Apache-2.0
"""gRPC by hand over a unix socket: enough to call a device plugin, and to say wrong things to it."""

import socket
import struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def hpack(headers):
    """Literal fields without indexing: what any decoder must take."""
    out = b""
    for name, value in headers:
        assert len(name) < 127 and len(value) < 127
        out += b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value
    return out


def head(stream, method):
    return frame(HEADERS, END_HEADERS, stream, hpack([
        (b":method", b"POST"), (b":scheme", b"http"), (b":path", method), (b":authority", b"localhost"),
        (b"content-type", b"application/grpc"), (b"te", b"trailers")]))


def message(body):
    return b"\x00" + struct.pack(">I", len(body)) + body


def field(number, content):
    """A length-delimited field of a protobuf message."""
    assert len(content) < 1 << 14
    size = bytes([len(content)]) if len(content) < 128 else bytes([len(content) & 127 | 128, len(content) >> 7])
    return bytes([number << 3 | 2]) + size + content


class Channel:
    """One connection for calls one after the other, as kubelet has it."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(10)
        self.socket.connect(path)
        self.socket.sendall(PREFACE + frame(SETTINGS, 0, 0, b"")
                            + frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 30)))
        self.input = self.socket.makefile("rb")
        self.number = -1

    def call(self, method, body):
        """The reply's bytes; an error of the call is an OSError."""
        reply = b"".join(self._data(method, body))
        if len(reply) < 5:
            raise ConnectionError("the call ended with an error")
        return reply[5:]

    def stream(self, method, body=b""):
        """Yields each message of a call that the server answers with a stream."""
        received = b""
        for data in self._data(method, body):
            received += data
            while len(received) >= 5 and len(received) >= 5 + (size := struct.unpack(">I", received[1:5])[0]):
                yield received[5:5 + size]
                received = received[5 + size:]

    def _data(self, method, body):
        """Yields the content of the DATA frames of the answer until its end."""
        self.number += 2
        self.socket.sendall(head(self.number, method) + frame(WINDOW_UPDATE, 0, self.number, struct.pack(">I", 1 << 30))
                            + frame(DATA, END_STREAM, self.number, message(body)))
        while True:
            kind, flags, stream, payload = self._frame()
            if kind == SETTINGS and not flags & ACK:
                self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
            elif kind == PING and not flags & ACK:
                self.socket.sendall(frame(PING, ACK, 0, payload))
            elif kind in (RST_STREAM, GOAWAY):
                raise ConnectionError(f"frame {kind} instead of a reply")
            elif stream == self.number and kind in (DATA, HEADERS):
                if kind == DATA:
                    yield payload
                if flags & END_STREAM:
                    return

    def _frame(self):
        header = self.input.read(9)
        if len(header) < 9:
            raise ConnectionError("connection ended")
        size = int.from_bytes(header[:3], "big")
        kind, flags, stream = struct.unpack(">BBI", header[3:])
        return kind, flags, stream & 0x7fffffff, self.input.read(size)

    def close(self):
        self.input.close()
        self.socket.close()
