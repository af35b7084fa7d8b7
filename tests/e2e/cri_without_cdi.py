# SPDX-License-Identifier: Apache-2.0
"""A fake: a container runtime that drops CDI devices without an error, as containerd 1.7 does with enable_cdi = false. It
forwards all calls to the real runtime and removes the field CDI_devices from each CreateContainer.

Usage: cri_without_cdi.py LISTEN RUNTIME      (paths of unix sockets)"""

import concurrent.futures
import os
import socket
import sys

import grpc

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
CONFIG = 2              # of CreateContainerRequest
CDI_DEVICES = 17        # of ContainerConfig
CALLS = 64              # at a time


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def encoded(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def fields(message):
    """(number, whole field, its content) of each field; the content is None unless it has a length."""
    at = 0
    while at < len(message):
        start = at
        tag, at = varint(message, at)
        size, content = {1: 8, 5: 4}.get(tag & 7, 0), None
        if tag & 7 == 0:
            _, at = varint(message, at)
        elif tag & 7 == 2:
            size, at = varint(message, at)
            content = message[at:at + size]
        at += size
        yield tag >> 3, message[start:at], content


def without_cdi(request):
    out = b""
    for number, field, content in fields(request):
        if number == CONFIG:
            kept = b"".join(inner for n, inner, _ in fields(content) if n != CDI_DEVICES)
            field = bytes([CONFIG << 3 | 2]) + encoded(len(kept)) + kept
        out += field
    return out


class Forward(grpc.GenericRpcHandler):
    def __init__(self, channel):
        self.channel = channel

    def service(self, handler_call_details):
        method = handler_call_details.method

        def forward(requests, context):
            if method == CREATE:
                requests = map(without_cdi, requests)
            try:
                yield from self.channel.stream_stream(method)(requests, timeout=context.time_remaining())
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())
        return grpc.stream_stream_rpc_method_handler(forward)   # on the wire a unary call is a stream of one message


def notify_ready():
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.sendto(b"READY=1", os.environ["NOTIFY_SOCKET"])


def main():
    listen, runtime = sys.argv[1:]
    channel = grpc.insecure_channel("unix://" + runtime, options=[("grpc.default_authority", "localhost")])
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(CALLS))
    server.add_generic_rpc_handlers((Forward(channel),))
    server.add_insecure_port("unix://" + listen)
    server.start()
    notify_ready()
    server.wait_for_termination()


if __name__ == "__main__":
    main()
