# SPDX-License-Identifier: BSD-3-Clause
"""Rows that provoke errors: the statuses at both ends are those that IBTA volume 1, 9.9 lists, or
what rxe is known to do instead."""
import peer as p
from link import ARENA, SOURCE, TARGET, Link, expect, one_completion


def statuses(completions):
    return [(wc.id, wc.status) for wc in completions]


def refused(active, passive, opcode, status, options=None, key=None, rights=None, offset=TARGET,
            size=1500):
    """The passive side refuses a request; nothing of it arrives. `key`: makes the remote key out
    of the right one; `rights`: those of a region made for it; `options`: those of the link."""
    link = Link(active, passive, **(options or {}))
    a, b = link.active, link.passive
    size = 8 if opcode in (p.CMP_SWAP, p.FETCH_ADD) else size
    rkey = b.rkey if rights is None else b.region(rights, off=0, len=ARENA)
    if key is not None:
        rkey = key(rkey)
    length = min(size, ARENA - offset)
    b.post(("set", {"off": offset, "len": length, "value": 0xee}), b.recv(7, [(SOURCE, 64)]))
    a.post(a.send(1, opcode, [(SOURCE, size)], compare_add=1, **link.remote(offset, rkey)),
           a.send(2, p.SEND, [(SOURCE, 10)]))
    expect("active", statuses(a.poll_send(2)), [(1, status), (2, p.FLUSHED)])
    expect("state of the active side", a.peer.state(a.qp), p.ERR)
    expect("passive", statuses(b.poll_recv(1)), [(7, p.FLUSHED)])
    expect("state of the passive side", b.peer.state(b.qp), p.ERR)
    expect("target: first changed byte",
           b.peer.number("same", "bad", off=offset, len=length, value=0xee), -1)
    if b.peer.backend == "ferrule":
        event = p.EVENT_ACCESS_ERR if status == p.REM_ACCESS else p.EVENT_REQ_ERR
        expect("event", b.peer.event(), event)


def refusals():
    """(name, arguments of refused()): the table of who may do what to which memory."""
    local = p.LOCAL_WRITE
    every = p.ALL_ACCESS
    for name, opcode, right in (("WRITE", p.WRITE, p.REMOTE_WRITE), ("READ", p.READ, p.REMOTE_READ),
                                ("CMP_SWAP", p.CMP_SWAP, p.REMOTE_ATOMIC),
                                ("FETCH_ADD", p.FETCH_ADD, p.REMOTE_ATOMIC)):
        yield (f"{name} with a wrong key",
               {"opcode": opcode, "status": p.REM_ACCESS, "key": lambda key: key ^ 0x55})
        yield (f"{name} with a key of nothing",
               {"opcode": opcode, "status": p.REM_ACCESS, "key": lambda key: key ^ 0x7fff0000})
        yield (f"{name} to a region without the right",
               {"opcode": opcode, "status": p.REM_ACCESS, "rights": (every & ~right) | local})
        yield (f"{name} to a queue pair without the right",
               {"opcode": opcode, "status": p.REM_INV_REQ,
                "options": {"qp_access": every & ~right}})
    for name, opcode in (("WRITE", p.WRITE), ("READ", p.READ)):
        yield (f"{name} beyond the end",
               {"opcode": opcode, "status": p.REM_ACCESS, "offset": ARENA - 1000})
        yield (f"{name} before the start",
               {"opcode": opcode, "status": p.REM_ACCESS, "rights": None, "offset": -1})
    yield ("READ, max_dest_rd_atomic 0",
           {"opcode": p.READ, "status": p.REM_INV_REQ, "options": {"dest_rd_atomic": 0}})
    yield ("FETCH_ADD, max_dest_rd_atomic 0",
           {"opcode": p.FETCH_ADD, "status": p.REM_INV_REQ, "options": {"dest_rd_atomic": 0}})


def before_start(active, passive, opcode):
    """A request that starts one byte in front of a region."""
    link = Link(active, passive)
    a, b = link.active, link.passive
    rkey = b.region(p.ALL_ACCESS, off=TARGET, len=65536)
    a.post(a.send(1, opcode, [(SOURCE, 100)], **link.remote(TARGET - 1, rkey)))
    expect("active", statuses(a.poll_send(1)), [(1, p.REM_ACCESS)])
    expect("state of the passive side", b.peer.state(b.qp), p.ERR)


def too_long(active, passive, size):
    """More than the receive has room for. rxe says that its own operation failed (NAK 3)."""
    link = Link(active, passive)
    a, b = link.active, link.passive
    b.post(("set", {"off": TARGET, "len": 4096, "value": 0xee}), b.recv(7, [(TARGET, 64)]),
           b.recv(8, [(TARGET, 64)]))
    a.post(a.send(1, p.SEND, [(SOURCE, size)]), a.send(2, p.SEND, [(SOURCE, 10)]))
    here, there = (p.REM_INV_REQ, p.LOC_LEN)
    if b.peer.backend == "verbs":
        here, there = p.REM_OP, p.LOC_QP_OP
    expect("active", statuses(a.poll_send(2)), [(1, here), (2, p.FLUSHED)])
    expect("passive", statuses(b.poll_recv(2)), [(7, there), (8, p.FLUSHED)])
    expect("memory behind the receive: first changed byte",
           b.peer.number("same", "bad", off=TARGET + 64, len=4032, value=0xee), -1)


def bad_local_key(active, passive):
    """A request with a local key of nothing: Ferrule does not take it, but fails it as programs for
    verbs expect; rxe fails it with 2, not 4. The peer receives nothing."""
    link = Link(active, passive, timeout=12, retry=1)
    a, b = link.active, link.passive
    b.post(b.recv(7, [(TARGET, 64)]))
    try:
        a.post(a.send(1, p.SEND, [(SOURCE, 10)], lkey=0x7fff0055))
    except p.PeerError as error:
        expect("errno of the post", error.errno, 22)
        expect("Ferrule takes it", a.peer.backend, "ferrule")
    else:
        status = p.LOC_PROT if a.peer.backend == "ferrule" else p.LOC_QP_OP
        expect("active", statuses(a.poll_send(1)), [(1, status)])
        expect("state of the active side", a.peer.state(a.qp), p.ERR)
    expect("passive", statuses(b.poll_recv(1, ms=50)), [])


def receive_region_gone(active, passive):
    """The region of a receive is gone when the message comes: NAK 3. rxe says 2 for it, not 4."""
    link = Link(active, passive)
    a, b = link.active, link.passive
    mr = b.peer.make("mr", off=TARGET, len=4096, access=p.LOCAL_WRITE)
    b.post(("post_recv", {"qp": b.qp, "id": 7, "sge": f"{TARGET}:64:{mr}"}))
    b.peer.call("destroy", mr=mr)
    a.post(a.send(1, p.SEND, [(SOURCE, 10)]))
    expect("active", statuses(a.poll_send(1)), [(1, p.REM_OP)])
    status = p.LOC_PROT if b.peer.backend == "ferrule" else p.LOC_QP_OP
    expect("passive", statuses(b.poll_recv(1)), [(7, status)])
    expect("state of the passive side", b.peer.state(b.qp), p.ERR)


def read_region_gone(active, passive):
    """The region that a READ is to fill is gone before the READ is sent."""
    link = Link(active, passive, rnr_timer=14)
    a, b = link.active, link.passive
    mr = a.peer.make("mr", off=TARGET, len=4096, access=p.LOCAL_WRITE)
    # Behind a SEND that has to wait for its receive.
    a.post(a.send(1, p.SEND, [(SOURCE, 10)]),
           ("post_send", {"qp": a.qp, "id": 2, "op": p.READ, "flags": p.SIGNALED,
                          "sge": f"{TARGET}:64:{mr}", **link.remote(TARGET)}))
    a.peer.call("destroy", mr=mr)
    b.post(b.recv(7, [(SOURCE, 64)]))
    expect("active", statuses(a.poll_send(2)), [(1, p.SUCCESS), (2, p.LOC_PROT)])
    expect("state of the active side", a.peer.state(a.qp), p.ERR)


def invalidate_nothing(active, passive):
    """SEND_WITH_INV of a key of nothing. rxe acknowledges the packet and fails then."""
    link = Link(active, passive)
    a, b = link.active, link.passive
    b.post(b.recv(7, [(TARGET, 64)]), b.recv(8, [(TARGET, 64)]))
    a.post(a.send(1, p.SEND_INV, [(SOURCE, 10)], inv=0xffff00))
    status = p.REM_ACCESS if b.peer.backend == "ferrule" else p.SUCCESS
    expect("active", statuses(a.poll_send(1)), [(1, status)])
    expect("passive", statuses(b.poll_recv(2)), [(7, p.REM_INV_REQ), (8, p.FLUSHED)])
    expect("state of the passive side", b.peer.state(b.qp), p.ERR)


def misaligned(active, passive):
    """rxe and Ferrule do not even post what they can see; behind another address they cannot."""
    link = Link(active, passive)
    a, b = link.active, link.passive
    rkey = b.region(p.ALL_ACCESS, off=TARGET + 4, len=4096, iova=0x1000004)
    try:
        a.post(a.send(1, p.FETCH_ADD, [(SOURCE, 8)], compare_add=1, raddr=0x1000004, rkey=rkey))
    except p.PeerError as error:
        expect("errno of the post", error.errno, 22)
        return
    expect("active", statuses(a.poll_send(1)), [(1, p.REM_INV_REQ)])
    expect("state of the passive side", b.peer.state(b.qp), p.ERR)


def never_ready(active, passive):
    link = Link(active, passive, rnr_timer=12, rnr_retry=2)
    a, b = link.active, link.passive
    a.post(*[a.send(i, p.SEND, [(SOURCE, 100)]) for i in range(3)])
    expect("active", statuses(a.poll_send(3)),
           [(0, p.RNR_RETRY_EXC), (1, p.FLUSHED), (2, p.FLUSHED)])
    expect("state of the active side", a.peer.state(a.qp), p.ERR)
    expect("state of the passive side", b.peer.state(b.qp), p.RTS)


def dead_peer(active, passive):
    """The peer's queue pair is gone: nobody answers."""
    link = Link(active, passive, timeout=12, retry=2)
    a, b = link.active, link.passive
    b.peer.call("destroy", qp=b.qp)
    a.post(a.send(1, p.SEND, [(SOURCE, 100)]), a.send(2, p.SEND, [(SOURCE, 100)]))
    expect("active", statuses(a.poll_send(2)), [(1, p.RETRY_EXC), (2, p.FLUSHED)])
    expect("state of the active side", a.peer.state(a.qp), p.ERR)


def failed_peer(active, passive):
    """The peer's queue pair is in the error state: nobody answers either."""
    link = Link(active, passive, timeout=12, retry=2)
    a, b = link.active, link.passive
    b.post(b.recv(7, [(TARGET, 64)]))
    b.peer.call("modify", qp=b.qp, state=p.ERR)
    expect("passive", statuses(b.poll_recv(1)), [(7, p.FLUSHED)])
    a.post(a.send(1, p.READ, [(SOURCE, 100)], **link.remote(TARGET)))
    expect("active", statuses(a.poll_send(1)), [(1, p.RETRY_EXC)])


def drained(active, passive):
    """SQD: what is posted waits; back in RTS it goes on."""
    link = Link(active, passive)
    a, b = link.active, link.passive
    a.post(("set", {"off": SOURCE, "len": 200000, "value": 1}),
           a.send(1, p.WRITE, [(SOURCE, 200000)], **link.remote(TARGET)))
    # A request that has not been started would wait as well.
    for _ in range(1000):
        if b.peer.number("same", "bad", off=TARGET, len=1, value=1) < 0:
            break
    a.peer.call("modify", qp=a.qp, state=p.SQD, sqd_notify=1)
    expect("event", a.peer.event(), p.EVENT_SQ_DRAINED)
    expect("before", statuses(a.poll_send(1, ms=0)), [(1, p.SUCCESS)])
    a.post(a.send(2, p.WRITE, [(SOURCE, 100)], **link.remote(TARGET)))
    expect("while drained", statuses(a.poll_send(1, ms=100)), [])
    b.post(b.send(5, p.WRITE, [(SOURCE, 3000)], raddr=a.peer.base + TARGET, rkey=a.rkey))
    one_completion("the other way", b.poll_send(), id=5)
    a.peer.call("modify", qp=a.qp, state=p.RTS)
    one_completion("after", a.poll_send(), id=2)


def events(active, passive):
    """Ferrule's events about a connection that comes up and one that fails. rxe has none."""
    link = Link(active, passive, srq=True, passive_rtr=True)
    a, b = link.active, link.passive
    b.post(b.recv(7, [(TARGET, 64)]))
    a.post(a.send(1, p.SEND, [(SOURCE, 10)]))
    one_completion("receive", b.poll_recv(), id=7)
    expect("event in RTR", b.peer.event(), p.EVENT_COMM_EST)
    link.rts(b)
    one_completion("SEND", a.poll_send(), id=1)
    b.peer.call("modify", qp=b.qp, state=p.ERR)
    expect("event in ERR", b.peer.event(), p.EVENT_LAST_WQE)


def rows(pairs):
    for active, passive in pairs:
        way = f"{active.name}->{passive.name}"
        for name, arguments in refusals():
            if arguments.get("offset") == -1:
                yield f"{name} {way}", before_start, (active, passive, arguments["opcode"])
            else:
                yield f"{name} {way}", (lambda a, b, more: refused(a, b, **more)), (
                    active, passive, arguments)
        for name, function, more in (
                ("SEND longer than the receive", too_long, (100,)),
                ("SEND of two packets longer than the receive", too_long, (1500,)),
                ("SEND with a bad local key", bad_local_key, ()),
                ("SEND to a receive whose region is gone", receive_region_gone, ()),
                ("SEND_WITH_INV of a key of nothing", invalidate_nothing, ()),
                ("misaligned atomic", misaligned, ()), ("receiver never ready", never_ready, ()),
                ("peer's queue pair destroyed", dead_peer, ()),
                ("peer's queue pair failed", failed_peer, ())):
            yield f"{name} {way}", function, (active, passive) + more
        if passive.backend == "ferrule":
            yield f"events {way}", events, (active, passive)
        if active.backend == "ferrule":
            yield f"READ to a region that is gone {way}", read_region_gone, (active, passive)
            yield f"drained send queue {way}", drained, (active, passive)
