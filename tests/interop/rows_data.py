# SPDX-License-Identifier: BSD-3-Clause
"""Rows about what arrives: every operation, size, path MTU and address family, both ways."""
import ipaddress
import struct

import peer as p
from link import (QKEY, SOURCE, TARGET, Failure, Link, Unfinished, expect, message,
                  one_completion)
from rows_loss import mix

NAMES = {p.SEND: "SEND", p.SEND_IMM: "SEND_IMM", p.WRITE: "WRITE", p.WRITE_IMM: "WRITE_IMM",
         p.READ: "READ"}
KINDS = {p.RC: "RC", p.UC: "UC", p.UD: "UD"}


def sizes(mtu, kind):
    if kind == p.UD:
        return [0, 1, 3, 63, mtu - 1, mtu]
    return [0, 1, 3, 63, mtu - 1, mtu, mtu + 1, 3 * mtu + 777, 1 << 20]


def transfers(active, passive, kind, opcode, name, mtu):
    link = Link(active, passive, kind=kind, network=name, mtu=mtu)
    for index, size in enumerate(sizes(mtu, kind)):
        # Some in one piece, some in three.
        pieces = 3 if index % 2 and size >= 3 else 1
        message(link, opcode, size, 10 * index + opcode, pieces)


def every_mtu(active, passive):
    for mtu in (256, 512, 1024, 2048, 4096):
        link = Link(active, passive, mtu=mtu)
        for opcode in NAMES:
            message(link, opcode, 5 * mtu + 3, opcode + 1, 2)


def many_pieces(active, passive):
    """As many elements as there can be, on both sides."""
    link = Link(active, passive)
    for size in (16, 5000, 70001):
        for opcode in NAMES:
            message(link, opcode, size, opcode + 1, 16)


def network(active, passive, name):
    """Connections and datagrams in another network."""
    for kind, opcodes in ((p.RC, NAMES), (p.UC, (p.SEND,)), (p.UD, (p.SEND_IMM,))):
        link = Link(active, passive, kind=kind, network=name)
        for opcode in opcodes:
            message(link, opcode, 1000, opcode + 1)


def psn_wrap(active, passive):
    for opcode in (p.SEND, p.WRITE, p.READ):
        link = Link(active, passive, psn=0xfffffe)
        for seed in (1, 2):
            message(link, opcode, 3 * 1024 + 777, seed)


def flags(active, passive):
    """Inline data and a fence behind a READ."""
    link = Link(active, passive)
    message(link, p.SEND, 64, 3, flags=p.INLINE)
    message(link, p.WRITE, 63, 4, flags=p.INLINE)
    a, b = link.active, link.passive
    b.post(("fill", {"off": SOURCE, "len": 30000, "seed": 9}), b.recv(1, [(TARGET, 30000)]))
    # The data of the READ is sent back at once: only a fence guarantees that it is there by then.
    a.post(a.send(1, p.READ, [(TARGET, 30000)], **link.remote(SOURCE)),
           a.send(2, p.SEND, [(TARGET, 30000)], p.SIGNALED | p.FENCE))
    done = a.poll_send(2)
    if len(done) < 2:
        raise Unfinished(a.peer, f"{len(done)} completions of a READ and a fenced SEND")
    expect("completions", [(wc.id, wc.status) for wc in done], [(1, 0), (2, 0)])
    one_completion("fenced SEND", b.poll_recv(), len=30000)
    bad = b.peer.number("check", "bad", off=TARGET, len=30000, seed=9)
    expect("first wrong byte of the fenced SEND", bad, -1)


def read_depths(active, passive):
    """READs at a time as agreed; rxe has up to the next power of two of them outstanding."""
    for depth in (1, 3, 5):
        link = Link(active, passive, rd_atomic=depth, dest_rd_atomic=depth)
        a, b = link.active, link.passive
        b.post(("fill", {"off": SOURCE, "len": 48000, "seed": depth}))
        a.post(*(a.send(n, p.READ, [(TARGET + 3000 * n, 3000)], **link.remote(SOURCE + 3000 * n))
                 for n in range(16)))
        expect(f"completions, depth {depth}", [(wc.id, wc.status) for wc in a.poll_send(16)],
               [(n, 0) for n in range(16)])
        bad = a.peer.number("check", "bad", off=TARGET, len=48000, seed=depth)
        expect(f"first wrong byte, depth {depth}", bad, -1)


def solicited(active, passive):
    link = Link(active, passive)
    a, b = link.active, link.passive
    b.peer.call("arm", cq=b.rcq, solicited=1)
    b.post(b.recv(1, [(TARGET, 64)]), b.recv(2, [(TARGET, 64)]))
    a.post(a.send(1, p.SEND, [(SOURCE, 8)]))
    one_completion("unsolicited: active", a.poll_send())
    expect("events after an unsolicited SEND", b.peer.cq_events(b.rcq, ms=150), 0)
    a.post(a.send(2, p.SEND, [(SOURCE, 8)], p.SIGNALED | p.SOLICITED))
    expect("events after a solicited SEND", b.peer.cq_events(b.rcq), 1)
    expect("receives", [wc.id for wc in b.poll_recv(2)], [1, 2])
    # After a request for any completion, an unsolicited one raises the event.
    b.peer.call("arm", cq=b.rcq, solicited=0)
    b.post(b.recv(3, [(TARGET, 64)]))
    a.post(a.send(3, p.SEND, [(SOURCE, 8)]))
    expect("events when armed for all", b.peer.cq_events(b.rcq), 1)


def atomics(active, passive, name):
    link = Link(active, passive, network=name)
    a, b = link.active, link.passive
    at, mask = TARGET, (1 << 64) - 1
    value = 0x1122334455667788
    b.post(("set", {"off": at - 8, "len": 24, "value": 0xee}),
           ("put64", {"off": at, "len": 8, "value": value}))
    steps = [(p.FETCH_ADD, 0x100000002, 0), (p.FETCH_ADD, mask, 0),
             (p.CMP_SWAP, 0x1122334555667789, 0xa1a2a3a4a5a6a7a8), (p.CMP_SWAP, 5, 6),
             (p.FETCH_ADD, 0x8000000000000000, 0), (p.FETCH_ADD, 0x8000000000000000, 0)]
    for number, (opcode, operand, swap) in enumerate(steps):
        a.post(a.send(number, opcode, [(SOURCE, 8)], compare_add=operand, swap=swap,
                      **link.remote(at)))
        one_completion(f"atomic {number}", a.poll_send(), id=number, opcode=p.WC_OPCODE[opcode])
        returned = a.peer.number("get64", "value", off=SOURCE, len=8)
        expect(f"value that atomic {number} returned", hex(returned), hex(value))
        if opcode == p.FETCH_ADD:
            value = (value + operand) & mask
        elif value == operand:
            value = swap
    expect("final value", hex(b.peer.number("get64", "value", off=at, len=8)), hex(value))
    for off in (at - 8, at + 8):
        expect("bytes around", b.peer.number("same", "bad", off=off, len=8, value=0xee), -1)
    # More READs outstanding than the peer has resources for: they wait for one another.
    count = 20
    a.post(*[a.send(i, p.FETCH_ADD, [(SOURCE + 8 * i, 8)], compare_add=1, **link.remote(at))
             for i in range(count)])
    expect("completions", [(wc.id, wc.status) for wc in a.poll_send(count)],
           [(i, 0) for i in range(count)])
    for i in range(count):
        expect(f"value {i}", a.peer.number("get64", "value", off=SOURCE + 8 * i, len=8),
               (value + i) & mask)


def shared_receives(active, passive):
    """Two queue pairs, one receive queue, and its limit."""
    first = Link(active, passive, srq=True, rnr_timer=14)
    second = first.second()
    b = first.passive
    count, size = 8, 1500
    b.post(*[b.recv(i, [(TARGET + 8192 * i, 4096)]) for i in range(count)])
    b.peer.call("srq_limit", id=b.srq, limit=4)
    for number in range(12):
        # The last four find no receive at first.
        link = (first, second)[number % 2]
        a = link.active
        a.post(("fill", {"off": SOURCE + 4096 * number, "len": size, "seed": number}),
               a.send(number, p.SEND, [(SOURCE + 4096 * number, size)]))
        if number < count:
            one_completion(f"SEND {number}", a.poll_send(), id=number)
            got = one_completion(f"receive {number}", b.poll_recv(), id=number, len=size)
            expect("queue pair of the receive", got.qp, link.passive.qpn)
    expect("event", b.peer.event(), p.EVENT_SRQ_LIMIT)
    expect("second event", b.peer.event(ms=50), -1)
    b.post(*[b.recv(i, [(TARGET + 8192 * i, 4096)]) for i in range(count, 12)])
    expect("late SENDs", sorted((wc.id, wc.status) for wc in a.poll_send(4)),
           [(i, 0) for i in range(8, 12)])
    late = b.poll_recv(4)
    expect("late receives", [(wc.id, wc.status, wc.len) for wc in late],
           [(i, 0, size) for i in range(8, 12)])
    for number in range(count):
        bad = b.peer.number("check", "bad", off=TARGET + 8192 * number, len=size, seed=number)
        expect(f"first wrong byte of SEND {number}", bad, -1)


def shared_unreliable(active, passive, kind):
    """A shared receive queue of UC or UD; what finds no receive is dropped."""
    link = Link(active, passive, kind=kind, srq=True)
    a, b = link.active, link.passive
    header = 40 if kind == p.UD else 0
    arguments = link.datagram() if kind == p.UD else {}
    for turn in range(2):
        b.post(*[b.recv(i, [(TARGET + 8192 * i, 4096)]) for i in range(3)])
        a.post(*[("fill", {"off": SOURCE + 4096 * i, "len": 700, "seed": i}) for i in range(5)],
               *[a.send(i, p.SEND_IMM, [(SOURCE + 4096 * i, 700)], imm=i, **arguments)
                 for i in range(5)])
        expect("completions", [wc.status for wc in a.poll_send(5)], [p.SUCCESS] * 5)
        got = b.poll_recv(3) + b.poll_recv(1, ms=200)
        expect(f"receives, turn {turn}", [(wc.id, wc.status, wc.imm, wc.len) for wc in got],
               [(i, p.SUCCESS, i, 700 + header) for i in range(3)])
        for i in range(3):
            bad = b.peer.number("check", "bad", off=TARGET + 8192 * i + header, len=700, seed=i)
            expect(f"first wrong byte of receive {i}", bad, -1)


def receiver_not_ready(active, passive):
    """Receives that are posted late, for SENDs of one and of several packets and WRITE_IMM."""
    link = Link(active, passive, rnr_timer=14)
    a, b = link.active, link.passive
    lengths = [100, 3000, 0, 1024]
    for i, length in enumerate(lengths):
        a.post(("fill", {"off": SOURCE + 4096 * i, "len": length, "seed": i}))
        if i < 3:
            a.post(a.send(i, p.SEND, [(SOURCE + 4096 * i, length)]))
        else:
            a.post(a.send(i, p.WRITE_IMM, [(SOURCE + 4096 * i, length)], imm=77,
                          **link.remote(TARGET + 8192 * i)))
    for i, length in enumerate(lengths):
        expect("completions before the receive", len(b.poll_recv(1, ms=20)), 0)
        b.post(b.recv(i, [(TARGET + 8192 * i, 4096)] if i < 3 else []))
        one_completion(f"receive {i}", b.poll_recv(), id=i, len=length)
    expect("completions", [(wc.id, wc.status) for wc in a.poll_send(4)],
           [(i, 0) for i in range(4)])
    for i, length in enumerate(lengths):
        bad = b.peer.number("check", "bad", off=TARGET + 8192 * i, len=length, seed=i)
        expect(f"first wrong byte of message {i}", bad, -1)


def datagram_header(active, passive, name):
    """The 40 bytes in front of a datagram: the IP header as it was on the wire."""
    link = Link(active, passive, kind=p.UD, network=name, tclass=0x68, hop=17)
    a, b = link.active, link.passive
    b.post(b.recv(1, [(TARGET, 4096)]))
    a.post(a.send(1, p.SEND_IMM, [(SOURCE, 100)], imm=5, **link.datagram()))
    one_completion("passive", b.poll_recv(), len=140, imm=5, src_qp=a.qpn)
    header = bytes.fromhex(b.peer.call("get", off=TARGET, len=40)["hex"][0])
    # For datagrams of user space Linux takes the route's hop limit, not the address handle's.
    hop = 17 if a.peer.backend == "ferrule" else 64
    source = a.peer.gid(name)
    target = b.peer.gid(name)
    if name == "IPv4":
        ip = header[20:]
        expect("version and length", ip[0], 0x45)
        total = sum(struct.unpack("!10H", ip))
        expect("header checksum", (total & 0xffff) + (total >> 16), 0xffff)
        expect("type of service", ip[1], 0x68)
        expect("time to live", ip[8], hop)
        addresses = [ipaddress.IPv6Address(bytes(10) + b"\xff\xff" + ip[at:at + 4])
                     for at in (12, 16)]
    else:
        expect("version", header[0] >> 4, 6)
        expect("traffic class", (header[0] & 15) << 4 | header[1] >> 4, 0x68)
        expect("hop limit", header[7], hop)
        addresses = [ipaddress.IPv6Address(header[at:at + 16]) for at in (8, 24)]
    expect("addresses", addresses, [source, target])


def management(active, passive):
    """QP1 of Ferrule, and a queue pair in the guest that knows its Q_Key."""
    link = Link(active, passive, kind=p.UD, gsi=True)
    for size in (0, 256):
        message(link, p.SEND, size, size + 1)


def multicast(active, passive, name, group, other):
    """Datagrams to a group, among some to one that nobody joined."""
    link = Link(active, passive, kind=p.UD, network=name)
    a, b = link.active, link.passive
    b.peer.call("attach", qp=b.qp, gid=group)
    b.post(*[b.recv(i, [(TARGET + 4096 * i, 4096)]) for i in range(3)])
    a.post(("fill", {"off": SOURCE, "len": 300, "seed": 3}))
    for number, to in enumerate((other, group, other, group)):
        ah = a.peer.make("ah", gid=to, sgid=a.peer.gid_index(name), hop=3)
        a.post(a.send(number, p.SEND_IMM, [(SOURCE, 300)], imm=number, ah=ah, rqpn=0xffffff,
                      rqkey=QKEY))
    expect("completions", [(wc.id, wc.status) for wc in a.poll_send(4)],
           [(i, p.SUCCESS) for i in range(4)])
    # The last datagram goes to the group: when it arrives, those before it have been dropped.
    got = b.poll_recv(2) + b.poll_recv(1, ms=300)
    expect("receives", [(wc.id, wc.status, wc.imm, wc.len) for wc in got],
           [(0, p.SUCCESS, 1, 340), (1, p.SUCCESS, 3, 340)])
    for number in range(2):
        bad = b.peer.number("check", "bad", off=TARGET + 4096 * number + 40, len=300, seed=3)
        expect(f"first wrong byte of receive {number}", bad, -1)


def ping(guest, address, size):
    """ICMP echo, which is not the kernel's to answer."""
    status, text = guest.shell(f"ping -c 3 -i 0.1 -W 60 -s {size} {address}")
    if status or " 0% packet loss" not in text:
        raise Failure(text.replace("\n", " / "))


def wrong_qkey(active, passive):
    """A datagram with another Q_Key is dropped; the next one arrives."""
    link = Link(active, passive, kind=p.UD)
    a, b = link.active, link.passive
    b.post(b.recv(1, [(TARGET, 4096)]))
    a.post(a.send(1, p.SEND, [(SOURCE, 50)], **{**link.datagram(), "rqkey": QKEY + 1}),
           a.send(2, p.SEND, [(SOURCE, 51)], **link.datagram()))
    expect("completions", [(wc.id, wc.status) for wc in a.poll_send(2)], [(1, 0), (2, 0)])
    one_completion("passive", b.poll_recv(), id=1, len=91)


def windows(active, passive):
    """A type 2 window: written through, invalidated by the peer, then by its owner."""
    link = Link(active, passive, mr_extra=p.MW_BIND)
    a, b = link.active, link.passive
    window = b.peer.call("mw")
    number, key = int(window["id"][0]), int(window["rkey"][0])
    for turn, by_peer in enumerate((True, False)):
        key = (key & 0xffffff00) | ((key + 1) & 0xff)
        b.post(("post_send", {"qp": b.qp, "id": 5, "op": p.BIND_MW, "flags": p.SIGNALED,
                              "mw": number, "mr": b.mr, "bind_off": TARGET, "bind_len": 4096,
                              "bind_rkey": key, "bind_access": p.REMOTE_WRITE}))
        one_completion(f"bind {turn}", b.poll_send(), id=5, opcode=p.WC_OPCODE[p.BIND_MW])
        a.post(("fill", {"off": SOURCE, "len": 4096, "seed": turn}),
               a.send(1, p.WRITE, [(SOURCE, 4096)], **link.remote(TARGET, key)))
        one_completion("WRITE through the window", a.poll_send(), id=1)
        bad = b.peer.number("check", "bad", off=TARGET, len=4096, seed=turn)
        expect("first wrong byte of the WRITE", bad, -1)
        if by_peer:
            b.post(b.recv(9, [(SOURCE, 64)]))
            a.post(a.send(2, p.SEND_INV, [(SOURCE, 10)], inv=key))
            one_completion("SEND_WITH_INV", a.poll_send(), id=2)
            got = one_completion("receive", b.poll_recv(), id=9, len=10)
            if b.peer.backend == "ferrule":
                expect("flags", got.flags & p.WITH_INV, p.WITH_INV)
                expect("invalidated key", got.imm, key)
        else:
            b.post(("post_send", {"qp": b.qp, "id": 6, "op": p.LOCAL_INV, "flags": p.SIGNALED,
                                  "inv": key}))
            one_completion("LOCAL_INV", b.poll_send(), id=6, opcode=p.WC_OPCODE[p.LOCAL_INV])
    a.post(a.send(3, p.WRITE, [(SOURCE, 8)], **link.remote(TARGET, key)))
    one_completion("WRITE through no window", a.poll_send(), status=p.REM_ACCESS)


def other_address(active, passive):
    """A region with an address of its own, asked for by that."""
    link = Link(active, passive)
    a, b = link.active, link.passive
    iova = 0x7654321000
    key = b.region(p.ALL_ACCESS, off=TARGET, len=65536, iova=iova)
    a.post(("fill", {"off": SOURCE, "len": 5000, "seed": 1}),
           a.send(1, p.WRITE, [(SOURCE, 5000)], raddr=iova + 1000, rkey=key),
           a.send(2, p.READ, [(SOURCE + 8192, 5000)], raddr=iova + 1000, rkey=key))
    expect("completions", [(wc.id, wc.status) for wc in a.poll_send(2)], [(1, 0), (2, 0)])
    for peer, off in ((b.peer, TARGET + 1000), (a.peer, SOURCE + 8192)):
        expect("first wrong byte", peer.number("check", "bad", off=off, len=5000, seed=1), -1)


def both_ways(active, passive):
    """Either side asks for everything at the same time."""
    mix(active, passive, both=True, count=96)


def echo_rows(guest):
    for address in ("10.9.0.1", "fd09::1", "10.9.70.1"):
        for size in (56, 4000):
            yield f"ping {address}, {size} bytes", ping, (guest, address, size)


def rows(pairs):
    """(name, function, arguments) for each pair of peers."""
    for active, passive in pairs:
        way = f"{active.name}->{passive.name}"
        for kind, opcodes in ((p.RC, list(NAMES)), (p.UC, [p.SEND, p.SEND_IMM, p.WRITE,
                                                         p.WRITE_IMM]),
                              (p.UD, [p.SEND, p.SEND_IMM])):
            for opcode in opcodes:
                for name in ("IPv4", "IPv6"):
                    for mtu in (1024, 4096):
                        yield (f"{KINDS[kind]} {NAMES[opcode]} {name} {mtu} {way}", transfers,
                               (active, passive, kind, opcode, name, mtu))
        for name in ("IPv4", "IPv6"):
            yield f"RC atomics {name} {way}", atomics, (active, passive, name)
            yield f"UD header {name} {way}", datagram_header, (active, passive, name)
        for name, group in (("IPv4", "::ffff:239.9.9."), ("IPv6", "ff1e::471")):
            yield (f"UD multicast {name} {way}", multicast,
                   (active, passive, name, group + "1", group + "2"))
        for name in ("VLAN", "link-local"):
            yield f"RC, UC, UD, {name} {way}", network, (active, passive, name)
        if "ferrule" in (active.backend, passive.backend):
            yield f"QP1 {way}", management, (active, passive)
        for kind in (p.UC, p.UD):
            yield (f"{KINDS[kind]} shared receives {way}", shared_unreliable,
                   (active, passive, kind))
        for name, function in (
                ("RC path MTUs", every_mtu), ("RC 16 elements", many_pieces),
                ("RC depth of READs", read_depths),
                ("RC PSN wrap", psn_wrap), ("RC inline and fence", flags),
                ("RC solicited events", solicited), ("RC shared receives", shared_receives),
                ("RC receiver not ready", receiver_not_ready), ("UD wrong Q_Key", wrong_qkey),
                ("RC memory windows", windows), ("RC region at another address", other_address),
                ("RC both ways", both_ways)):
            yield f"{name} {way}", function, (active, passive)
