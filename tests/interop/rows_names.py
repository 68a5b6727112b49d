# SPDX-License-Identifier: BSD-3-Clause
"""Rows that connect by name, through a control daemon at either end: cm-peer, and ferrule-pingpong.
The guest's ends are on verbs:rxe0, this machine's on a tap."""
import os
import re
import socket
import subprocess
import time

from job import words
from link import Failure, expect

SECONDS = 180  # catches hangs
MS = 1000 * SECONDS
CM_PORT = 7002
OFFERED = "waiting for a client of service pp"  # says ferrule-pingpong then
GUEST_SOCKET = "/tmp/ferruled.sock"
# The guest, or this end, may get no processor for seconds. Retries go on for a minute on rxe, and
# longer here.
PATIENT = {"FRL_ACK_TIMEOUT": "21"}
CONFIG = ('host = "{name}"; listen_address = "{address}"; insecure = true; '
          'keepalive_ms = 600000;')
FABRIC = """fabrics = ( { name = "jobs"; any_user = true;
    ports = ( "packet:job0", "packet:job1" );
    addresses = [ "10.9.0.11-10.9.0.18/24" ]; } );
"""


class Hosts:
    """The two daemons, and how processes are started beside them."""

    def __init__(self, guest, build, folder):
        self.guest, self.build = guest, build
        self.socket = os.path.join(folder, "ferruled.sock")
        self.environment = dict(os.environ, FRL_CONTROL=self.socket, **PATIENT)
        self.device = ["--port", f"packet:{guest.roce}", "--ip",
                       "10.9.0.1/24,fd09::1/64"]
        config = os.path.join(folder, "ferruled.conf")
        with open(config, "w", encoding="ascii") as file:
            file.write(CONFIG.format(name="outside", address=guest.host) + FABRIC)
        with open(os.path.join(folder, "ferruled.log"), "w", encoding="utf-8") as log:
            self.daemon = subprocess.Popen(
                [os.path.join(build, "daemon/ferruled"), "--config", config, "--socket",
                 self.socket], stdout=log, stderr=log)
        inside = CONFIG.format(name="inside", address=guest.control)
        guest.shell(f"export FRL_CONTROL={GUEST_SOCKET} {words(PATIENT)}; "
                    f"echo '{inside}' >/tmp/ferruled.conf; ferruled --config /tmp/ferruled.conf "
                    f"--socket {GUEST_SOCKET} >/tmp/ferruled.log 2>&1 &")
        wait_for("daemon here", lambda: os.path.exists(self.socket))
        wait_for("daemon in the guest",
                 lambda: guest.shell(f"ls {GUEST_SOCKET} 2>/dev/null")[0] == 0)

    def start(self, program, *arguments):
        return subprocess.Popen(
            [os.path.join(self.build, program), *self.device, *arguments], text=True,
            env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)

    def stop(self):
        self.daemon.terminate()
        self.daemon.wait()


def wait_for(what, condition):
    end = time.monotonic() + SECONDS
    while not condition():
        if time.monotonic() > end:
            raise Failure(f"no {what} within {SECONDS} s")
        time.sleep(0.05)


class CmPeer:
    """A cm-peer (tests/system/cm_peer.c), which answers each line with a line."""

    def __init__(self, name, to, back):
        self.name, self.to, self.back = name, to, back
        self.hear("ready")

    def hear(self, pattern):
        line = self.back.readline().rstrip("\n")
        match = re.match(pattern, line)
        if not match:
            raise Failure(f"{self.name} says '{line}' instead of '{pattern}'")
        return match

    def ask(self, pattern, command):
        self.to.write(command + "\n")
        self.to.flush()
        return self.hear(pattern)


def peer_here(hosts):
    process = hosts.start("tests/cm-peer")
    return CmPeer("cm-peer here", process.stdin, process.stdout), process


def peer_inside(hosts):
    """Its input and output are a connection."""
    hosts.guest.shell(f"nc -l -p {CM_PORT} -e /usr/bin/cm-peer --port verbs:rxe0 "
                      "2>/tmp/cm-peer.log &")
    connection = []

    def connect():
        try:
            connection.append(socket.create_connection((hosts.guest.control, CM_PORT),
                                                       timeout=SECONDS))
        except OSError:
            return False
        return True

    wait_for("cm-peer in the guest", connect)
    connection[0].settimeout(SECONDS)
    file = connection[0].makefile("rw", encoding="ascii")
    return CmPeer("cm-peer in the guest", file, file), connection[0]


def talk(sender, number, receiver, its_number, text):
    receiver.ask(f"posted {its_number}$", f"post {its_number}")
    sender.ask(f"sent {number}$", f"send {number} {text}")
    receiver.ask(f"received {its_number} {text}$", f"receive {its_number}")


def connect_by_name(hosts, kind):
    """A process asks for a service of the other host; messages both ways; one end closes."""
    here, process = peer_here(hosts)
    inside, connection = peer_inside(hosts)
    client, server, host = (here, inside, hosts.guest.control)
    if kind == "guest asks":
        client, server, host = (inside, here, hosts.guest.host)
    try:
        server.ask("listening", "listen service")
        c = client.ask(r"connecting (\d+)", f"connect {host} service {MS} question").group(1)
        s = server.ask(r"request (\d+) cm-peer \d+ question$", f"request {MS}").group(1)
        server.ask("accepted", f"accept {s} answer")
        client.ask(rf"established {c} \w+ cm-peer answer$", f"wait {c} {MS}")
        server.ask(rf"established {s} \w+ cm-peer question$", f"wait {s} {MS}")
        talk(client, c, server, s, "there")
        talk(server, s, client, c, "back")
        client.ask("closed", f"close {c}")
        server.ask(rf"ended {s} ECONNRESET the peer has closed", f"end {s} {MS}")
        server.ask("closed", f"close {s}")
        client.ask(r"connecting (\d+)", f"connect {host} nothing {MS}")
        client.ask("error ECONNREFUSED", f"wait 1 {MS}")
        for peer in (client, server):
            peer.to.write("quit\n")
            peer.to.flush()
        expect("exit status of cm-peer here", process.wait(SECONDS), 0)
    finally:
        process.kill()
        process.communicate()
        connection.close()


def pingpong(hosts, kind):
    """SEND and WRITE of ferrule-pingpong, every byte checked."""
    plan = f"--verify --sizes 8,5000,256K --iters 20 --wait {SECONDS}"
    program, device = "tools/ferrule-pingpong", "--port verbs:rxe0"
    if kind == "guest asks":
        server = hosts.start(program, "--listen", "pp", "--wait", str(SECONDS))
        try:
            lines = iter(server.stdout.readline, "")
            if not any(line.startswith(OFFERED) for line in lines):
                raise Failure("the server has ended before it offered the service")
            status, text = hosts.guest.shell(
                f"timeout {SECONDS} ferrule-pingpong --connect {hosts.guest.host}:pp {plan} "
                f"{device} 2>&1", SECONDS + 10)
            said = server.communicate(timeout=SECONDS)[0] if not status else ""
        finally:
            server.kill()
            server.wait()
        if status or server.returncode:
            raise Failure(f"status {status}: {text} / {said}")
        return
    hosts.guest.shell(f"timeout {SECONDS} ferrule-pingpong --listen pp {device} --wait {SECONDS} "
                      ">/tmp/pp 2>&1 &")
    wait_for("server in the guest",
             lambda: hosts.guest.shell(f"grep -q '^{OFFERED}' /tmp/pp")[0] == 0)
    client = hosts.start(program, "--connect", f"{hosts.guest.control}:pp", *plan.split())
    try:
        said = client.communicate(timeout=SECONDS)[0]
    finally:
        client.kill()
    if client.returncode:
        raise Failure(f"status {client.returncode}: {said} / "
                      + hosts.guest.shell("cat /tmp/pp")[1])


def rows(hosts):
    for kind in ("guest serves", "guest asks"):
        yield f"connect by name, {kind}", connect_by_name, (hosts, kind)
        yield f"ferrule-pingpong, {kind}", pingpong, (hosts, kind)
