# SPDX-License-Identifier: BSD-3-Clause
"""Two connected queue pairs, and messages between them that are verified byte by byte."""
import copy

import peer as p

ARENA = 8 << 20
SOURCE = 64 << 10  # where messages are sent from, and where they go; 1 MiB fits with room
TARGET = 4 << 20
GUARD, GUARD_BYTE = 64, 0xee
QKEY, GSI_QKEY = 0x11111111, 0x80010000
LOSSES = 3      # messages in a row that an unreliable connection may lose
LOST_MS = 10000 # time after which such a message counts as lost


class Failure(Exception):
    """A result differs from the expected one. The text has both."""


class Unfinished(Failure):
    """Requests of `peer` did not complete in time."""

    def __init__(self, peer, text):
        super().__init__(text)
        self.peer = peer


def expect(what, got, wanted):
    if got != wanted:
        raise Failure(f"{what}: {got}, expected {wanted}")


class Side:
    """A queue pair with its queues and a region over the whole arena."""

    def __init__(self, peer, options):
        self.peer = peer
        self.scq = peer.make("cq", depth=1024)
        self.rcq = peer.make("cq", depth=1024)
        self.access = options.get("mr_access", p.ALL_ACCESS)
        mr = peer.call("mr", off=0, len=ARENA, access=self.access | options.get("mr_extra", 0))
        self.mr, self.rkey = int(mr["id"][0]), int(mr["rkey"][0])
        self.srq = None
        if options.get("srq"):
            self.srq = peer.make("srq", wr=256, sge=16, limit=options.get("srq_limit", 0))

    def make_qp(self, kind, psn):
        more = {} if self.srq is None else {"srq": self.srq}
        qp = self.peer.call("qp", type=kind, scq=self.scq, rcq=self.rcq, send_wr=256, recv_wr=256,
                            sge=16, inline=64, **more)
        self.qp, self.qpn, self.psn = int(qp["id"][0]), int(qp["qpn"][0]), psn

    def sibling(self, kind, psn):
        """Another queue pair on the same queues."""
        other = copy.copy(self)
        other.make_qp(kind, psn)
        return other

    def region(self, access, **arguments):
        """A region with other rights; its remote key."""
        return self.peer.number("mr", "rkey", access=access, **arguments)

    def poll_send(self, count=1, ms=p.SECONDS * 1000):
        return self.peer.poll(self.scq, count, ms)

    def poll_recv(self, count=1, ms=p.SECONDS * 1000):
        return self.peer.poll(self.rcq, count, ms)

    def sge(self, spans):
        return ",".join(f"{off}:{size}:{self.mr}" for off, size in spans) or "-"

    def recv(self, wr_id, spans):
        return ("post_recv", {"id": wr_id, "sge": self.sge(spans),
                              **({"qp": self.qp} if self.srq is None else {"srq": self.srq})})

    def send(self, wr_id, opcode, spans, flags=p.SIGNALED, **arguments):
        return ("post_send", {"qp": self.qp, "id": wr_id, "op": opcode, "flags": flags,
                              "sge": self.sge(spans), **arguments})

    def post(self, *commands):
        self.peer.many(commands)


class Link:
    """`active` and `passive` are peers; a row says who of them asks for what. Options: kind,
    network, mtu, psn, timeout, verbs_timeout (of ends with that backend), retry, rnr_retry,
    rnr_timer, rd_atomic, dest_rd_atomic, qp_access, mr_access, mr_extra, srq, srq_limit, tclass,
    hop: those of the passive side where only one can be meant; passive_rtr: it stays there; gsi:
    Ferrule's queue pair is QP1."""

    def __init__(self, active, passive, **options):
        self.options = options
        self.kind = options.get("kind", p.RC)
        self.mtu = options.get("mtu", 1024)
        psn = options.get("psn", 0x100000)
        active.reset()
        passive.reset()
        passive_only = ("srq", "srq_limit", "mr_access")
        self.active = Side(active, {k: v for k, v in options.items() if k not in passive_only})
        self.passive = Side(passive, options)
        self.qkey = GSI_QKEY if options.get("gsi") else QKEY
        self.active.make_qp(self._kind_of(active), psn)
        self.passive.make_qp(self._kind_of(passive), (psn + 0x345678) & 0xffffff)
        self.connect(self.active, self.passive)

    def _kind_of(self, peer):
        return p.GSI if self.options.get("gsi") and peer.backend == "ferrule" else self.kind

    def second(self):
        """A second pair of queue pairs on the same queues, regions and shared receive queue."""
        other = copy.copy(self)
        other.active = self.active.sibling(self.kind, 0x222222)
        other.passive = self.passive.sibling(self.kind, 0x333333)
        other.connect(other.active, other.passive)
        return other

    def connect(self, active, passive):
        for end, other in ((active, passive), (passive, active)):
            self._init(end)
            self._rtr(end, other)
            if end is not self.passive or not self.options.get("passive_rtr"):
                self.rts(end)

    def _path(self, end, other):
        network = self.options.get("network", "IPv4")
        return {"gid": other.peer.gid(network), "sgid": end.peer.gid_index(network),
                "hop": self.options.get("hop", 64), "tclass": self.options.get("tclass", 0)}

    def _init(self, end):
        access = p.ALL_ACCESS
        if end is self.passive:
            access = self.options.get("qp_access", access)
        right = {"qkey": self.qkey} if self.kind == p.UD else {"access": access}
        end.peer.call("modify", qp=end.qp, state=p.INIT, pkey=0, port=1, **right)

    def _rtr(self, end, other):
        path = self._path(end, other)
        if self.kind == p.UD:
            end.peer.call("modify", qp=end.qp, state=p.RTR)
            end.ah = end.peer.make("ah", **path)
            return
        more = {}
        if self.kind == p.RC:
            more = {"dest_rd_atomic": 4, "rnr_timer": self.options.get("rnr_timer", 12)}
            if end is self.passive:
                more["dest_rd_atomic"] = self.options.get("dest_rd_atomic", 4)
        end.peer.call("modify", qp=end.qp, state=p.RTR, mtu=self.mtu, dest_qpn=other.qpn,
                      rq_psn=other.psn, **path, **more)

    def rts(self, end):
        more = {}
        if self.kind == p.RC:
            # Either end may get no processor for seconds: retries go on for a minute at least. On
            # verbs devices Ferrule asks for six retries, at equal intervals.
            patient = 18
            if end.peer.backend == "verbs":
                patient = self.options.get("verbs_timeout", 21)
            more = {"timeout": self.options.get("timeout", patient),
                    "retry": self.options.get("retry", 7),
                    "rnr_retry": self.options.get("rnr_retry", 7),
                    "rd_atomic": self.options.get("rd_atomic", 4)}
        end.peer.call("modify", qp=end.qp, state=p.RTS, sq_psn=end.psn, **more)

    def remote(self, offset, rkey=None):
        """Arguments of a request to memory of the passive side."""
        return {"raddr": self.passive.peer.base + offset,
                "rkey": self.passive.rkey if rkey is None else rkey}

    def datagram(self):
        return {"ah": self.active.ah, "rqpn": self.passive.qpn, "rqkey": self.qkey}


def split(offset, size, pieces):
    """Uneven pieces with gaps between them: (offset, length) pairs that add up to size."""
    spans, left = [], size
    for index in range(pieces):
        length = left if index == pieces - 1 else min(left, size // pieces + 5 * index)
        spans.append((offset, length))
        offset += length + 2 * GUARD + 37
        left -= length
    return spans


def fill(spans, seed):
    commands, done = [], 0
    for off, size in spans:
        commands.append(("fill", {"off": off, "len": size, "seed": seed, "from": done}))
        done += size
    return commands


def guard(spans):
    return [("set", {"off": off - GUARD, "len": size + 2 * GUARD, "value": GUARD_BYTE})
            for off, size in spans]


def verify(peer, spans, seed, what):
    """The spans hold the pattern and nothing around them was touched."""
    commands, done = [], 0
    for off, size in spans:
        commands.append(("check", {"off": off, "len": size, "seed": seed, "from": done}))
        for at in (off - GUARD, off + size):
            commands.append(("same", {"off": at, "len": GUARD, "value": GUARD_BYTE}))
        done += size
    for (command, arguments), answer in zip(commands, peer.many(commands)):
        bad = int(answer["bad"][0])
        if bad >= 0:
            where = "data" if command == "check" else "memory around the data"
            raise Failure(f"{what}: {peer.name}: {where} is wrong at byte {bad} of {arguments}")


def one_completion(what, completions, **wanted):
    if len(completions) != 1:
        raise Failure(f"{what}: no completion in time")
    got = completions[0]
    if got.status != wanted.get("status", p.SUCCESS):
        raise Failure(f"{what}: status {got.status} ({p.STATUS.get(got.status)})")
    for name, value in wanted.items():
        expect(f"{what}: {name}", getattr(got, name), value)
    return got


def message(link, opcode, size, seed, pieces=1, flags=0):
    """One message of `size` bytes, verified. READ brings it from the passive side."""
    active, passive = link.active, link.passive
    what = f"{size} bytes"
    datagram = link.kind == p.UD
    consumes = opcode in (p.SEND, p.SEND_IMM, p.WRITE_IMM)
    with_imm = opcode in (p.SEND_IMM, p.WRITE_IMM)
    sender, receiver = (passive, active) if opcode == p.READ else (active, passive)
    # A peer's memory is one piece, whatever the requester has.
    source = split(SOURCE + seed % 13, size, 1 if opcode == p.READ else pieces)
    one = opcode in (p.WRITE, p.WRITE_IMM)
    target = split(TARGET + seed % 11, size, 1 if one else pieces)
    header = [(TARGET - 4096, 40)] if datagram else []
    sender.post(*fill(source, seed))
    receiver.post(*guard(target))
    if consumes:
        receiver.post(receiver.recv(seed, [] if one else header + target))
    arguments = {} if opcode in (p.SEND, p.SEND_IMM) else link.remote(
        (source if opcode == p.READ else target)[0][0])
    if datagram:
        arguments = link.datagram()
    imm = 0xabcd0000 + seed if with_imm else 0

    def send():
        active.post(active.send(seed + 1, opcode, target if opcode == p.READ else source,
                                flags | p.SIGNALED, imm=imm, **arguments))
        completions = active.poll_send()
        if not completions:
            raise Unfinished(active.peer, f"{what}: active: no completion in time")
        return one_completion(f"{what}: active", completions, id=seed + 1,
                              opcode=p.WC_OPCODE[opcode])

    done = send()
    if opcode == p.READ:
        expect(f"{what}: active: len", done.len, size)
    if link.kind == p.UC and opcode == p.WRITE:
        wait_for_write(link)
    if consumes:
        completions = []
        # A busy host may lose a packet of an unreliable message, which is then lost as a whole.
        for _ in range(LOSSES if link.kind == p.UC else 0):
            completions = passive.poll_recv(ms=LOST_MS)
            if completions:
                break
            send()
        completions = completions or passive.poll_recv()
        got = one_completion(
            f"{what}: passive", completions, id=seed,
            opcode=p.WC_RECV_RDMA_WITH_IMM if one else p.WC_RECV,
            len=size + (40 if datagram else 0), **({"imm": imm} if with_imm else {}))
        expect(f"{what}: passive: immediate flag", bool(got.flags & p.WITH_IMM), with_imm)
        if datagram:
            expect(f"{what}: source queue pair", got.src_qp, active.qpn)
            expect(f"{what}: header flag", bool(got.flags & p.WITH_GRH), True)
    verify(receiver.peer, target, seed, what)


def wait_for_write(link):
    """Unreliable connections say nothing about a WRITE: a SEND behind it does."""
    link.passive.post(link.passive.recv(1, []))
    link.active.post(link.active.send(2, p.SEND, []))
    one_completion("SEND behind a WRITE: active", link.active.poll_send(), id=2)
    one_completion("SEND behind a WRITE: passive", link.passive.poll_recv(), id=1)
