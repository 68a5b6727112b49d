# SPDX-License-Identifier: BSD-3-Clause
"""The driver's side of a peer program (peer.c): an end of the test, whichever backend it has."""
import collections
import ipaddress
import socket
import time

# Numbers of verbs, the same in both backends.
GSI, RC, UC, UD = 1, 2, 3, 4
WRITE, WRITE_IMM, SEND, SEND_IMM, READ, CMP_SWAP, FETCH_ADD, LOCAL_INV, BIND_MW, \
    SEND_INV = range(10)
FENCE, SIGNALED, SOLICITED, INLINE = 1, 2, 4, 8
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, MW_BIND = 1, 2, 4, 8, 16
ALL_ACCESS = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
RESET, INIT, RTR, RTS, SQD, SQE, ERR = range(7)
WC_RECV, WC_RECV_RDMA_WITH_IMM = 128, 129
WC_OPCODE = {WRITE: 1, WRITE_IMM: 1, SEND: 0, SEND_IMM: 0, READ: 2, CMP_SWAP: 3, FETCH_ADD: 4,
             BIND_MW: 5, LOCAL_INV: 6, SEND_INV: 0}
WITH_GRH, WITH_IMM, WITH_INV = 1, 2, 8
SUCCESS, LOC_LEN, LOC_QP_OP, LOC_PROT, FLUSHED, REM_INV_REQ, REM_ACCESS, REM_OP, RETRY_EXC, \
    RNR_RETRY_EXC = 0, 1, 2, 4, 5, 9, 10, 11, 12, 13
STATUS = {0: "success", 1: "local length error", 2: "local operation error",
          4: "local protection error", 5: "flushed", 6: "bind error", 7: "bad response",
          8: "local access error", 9: "remote invalid request", 10: "remote access error",
          11: "remote operation error", 12: "retries exceeded", 13: "RNR retries exceeded",
          19: "fatal", 21: "general error"}
EVENT_REQ_ERR, EVENT_ACCESS_ERR, EVENT_COMM_EST, EVENT_SQ_DRAINED, EVENT_SRQ_LIMIT, \
    EVENT_LAST_WQE = 2, 3, 4, 5, 15, 16

NETWORKS = {name: ipaddress.IPv6Network(prefix) for name, prefix in (
    ("IPv4", "::ffff:10.9.0.0/120"), ("IPv6", "fd09::/64"), ("VLAN", "::ffff:10.9.70.0/120"),
    ("link-local", "fe80::/64"))}

SECONDS = 100  # for completions and events that come: longer than Ferrule's retries go on

Wc = collections.namedtuple("Wc", "id status opcode len flags imm src_qp qp")


class PeerError(Exception):
    """A command that failed, with its errno."""

    def __init__(self, errno, text):
        super().__init__(text)
        self.errno = errno


class PeerGone(Exception):
    """The peer program has ended or does not answer."""


class Peer:
    """One end. After reset() the numbers of new objects start at 0 again."""

    def __init__(self, name, address, port):
        self.name, self.address = name, (address, port)
        self.connect()

    def connect(self, seconds=120):
        end = time.monotonic() + seconds
        while True:
            try:
                self.socket = socket.create_connection(self.address, timeout=seconds)
                break
            except OSError as error:
                if time.monotonic() > end:
                    raise PeerGone(f"{self.name}: no connection: {error}") from None
                time.sleep(0.1)
        self.socket.settimeout(2 * SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rw", encoding="ascii")
        fields = self.call("hello")
        self.backend = fields["backend"][0]
        self.base = int(fields["addr"][0], 0)
        self.path_mtu = int(fields["mtu"][0])
        self.gids = [ipaddress.IPv6Address(text) for text in fields["gid"]]

    def gid_index(self, network):
        """The index of the GID in that network, a name of NETWORKS."""
        for index, gid in enumerate(self.gids):
            if gid in NETWORKS[network]:
                return index
        raise RuntimeError(f"{self.name} has no GID of {network}: {self.gids}")

    def gid(self, network):
        return self.gids[self.gid_index(network)]

    def start(self, command, **arguments):
        """Sends a command; finish() reads the answer. Commands can be sent ahead."""
        words = [command] + [f"{name}={value}" for name, value in arguments.items()]
        self.file.write(" ".join(words) + "\n")

    def finish(self):
        try:
            self.file.flush()
            line = self.file.readline()
        except OSError as error:
            raise PeerGone(f"{self.name}: no answer: {error}") from None
        if not line:
            raise PeerGone(f"{self.name}: the peer program has ended")
        words = line.split()
        if words[0] == "error":
            raise PeerError(int(words[1]), f"{self.name}: {' '.join(words[2:])} (errno {words[1]})")
        fields = collections.defaultdict(list)
        for word in words[1:]:
            name, _, value = word.partition("=")
            fields[name].append(value)
        return fields

    def call(self, command, **arguments):
        self.start(command, **arguments)
        try:
            return self.finish()
        except PeerError as error:
            raise PeerError(error.errno, f"{error} in: {command} {arguments}") from None

    def many(self, commands):
        """Calls (name, arguments) pairs, all sent ahead; any failure fails."""
        for command, arguments in commands:
            self.start(command, **arguments)
        errors, answers = [], []
        for command, arguments in commands:
            try:
                answers.append(self.finish())
            except PeerError as error:
                errors.append(PeerError(error.errno, f"{error} in: {command} {arguments}"))
        if errors:
            raise errors[0]
        return answers

    def number(self, command, field, **arguments):
        return int(self.call(command, **arguments)[field][0])

    def make(self, kind, **arguments):
        return self.number(kind, "id", **arguments)

    def reset(self):
        self.call("reset")

    def poll(self, cq, count=1, ms=SECONDS * 1000):
        """Waits for completions; fewer come back when there were fewer."""
        fields = self.call("poll", cq=cq, n=count, ms=ms)
        return [Wc(*map(int, text.split(":"))) for text in fields["wc"]]

    def event(self, ms=SECONDS * 1000):
        """The type of the next asynchronous event; -1: none came in time."""
        return self.number("async", "type", ms=ms)

    def cq_events(self, cq, ms=SECONDS * 1000):
        """How many events of that completion queue came: 0 or 1."""
        return self.number("wait", "events", cq=cq, ms=ms)

    def state(self, qp):
        return self.number("state", "state", qp=qp)

    def frames(self):
        """Frames that it has received. Only ends over Ferrule know."""
        return self.number("counters", "rx_packets")

    def close(self):
        try:
            self.file.close()
        except OSError:
            pass  # what was still to be sent went nowhere
        self.socket.close()
