#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A remote shell between the hosts of a test: `rsh --serve ADDRESS` on each of them, and
`rsh HOST COMMAND...` as mpirun calls it. Nobody is asked for a password."""
import socket
import socketserver
import subprocess
import sys

PORT = 5140


class Command(socketserver.StreamRequestHandler):
    def handle(self):
        command = self.rfile.readline().decode()
        status = subprocess.run(["sh", "-c", command], stdin=subprocess.DEVNULL,
                                stdout=self.connection, stderr=self.connection).returncode
        self.wfile.write(bytes([status & 255]))


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def call(host, command):
    """Prints what the command prints there; its status is the last byte."""
    last = b""
    with socket.create_connection((host, PORT)) as connection:
        connection.sendall(" ".join(command).encode() + b"\n")
        while block := connection.recv(65536):
            block = last + block
            sys.stdout.buffer.write(block[:-1])
            sys.stdout.buffer.flush()
            last = block[-1:]
    return last[0] if last else 1


if sys.argv[1] == "--serve":
    Server((sys.argv[2], PORT), Command).serve_forever()
sys.exit(call(sys.argv[1], sys.argv[2:]))
