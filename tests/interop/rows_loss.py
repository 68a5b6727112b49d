# SPDX-License-Identifier: BSD-3-Clause
"""Rows with loss, duplicates, reordering and corruption, in both directions."""
import random
import time

import peer as p
from link import GUARD, GUARD_BYTE, Failure, Link, Unfinished, expect, message

SLOT = 16 << 10
WINDOW = 24
STILL_SECONDS = 10  # longer than any ACK timeout here


class Mix:
    """Random operations of one side against the other, verified at the end. The arena has
    `count` slots each for what the side sends, its peer's answers, and both's targets."""

    def __init__(self, link, active, passive, count, base, counter, rng, atomics, late):
        self.link, self.active, self.passive, self.count = link, active, passive, count
        self.late = late  # receives are posted when their messages are on their way
        self.source, self.target = base, base + count * SLOT
        self.counter = counter
        self.kinds = [p.SEND, p.SEND, p.WRITE, p.WRITE_IMM, p.READ, p.READ]
        self.kinds += [p.FETCH_ADD] if atomics else []
        self.operations = [self._draw(rng) for _ in range(count)]
        self.received = [i for i, (opcode, _) in enumerate(self.operations)
                         if opcode in (p.SEND, p.WRITE_IMM)]
        self.posted = 0

    def _draw(self, rng):
        opcode = rng.choice(self.kinds)
        if opcode == p.FETCH_ADD:
            return opcode, 8
        mtu = self.link.mtu
        return opcode, rng.choice((0, 1, rng.randrange(mtu), mtu, mtu + 1, 3 * mtu + 777))

    def prepare(self):
        """Patterns, guards and receives."""
        def slot(off):
            return ("set", {"off": off, "len": SLOT, "value": GUARD_BYTE})
        for i, (opcode, size) in enumerate(self.operations):
            sender, receiver = self.active, self.passive
            if opcode == p.READ:
                sender, receiver = receiver, sender
            elif opcode == p.FETCH_ADD:
                receiver = self.active
            receiver.post(slot(self._target(i)))
            if opcode != p.FETCH_ADD:
                sender.post(("fill", {"off": self._source(i), "len": size, "seed": i}))
        if not self.late:
            self._post_receives(range(self.count))

    def _post_receives(self, ids):
        for i in self.received:
            if i not in ids:
                continue
            spans = [] if self.operations[i][0] == p.WRITE_IMM else [(self._target(i), SLOT - 128)]
            self.passive.post(self.passive.recv(i, spans))

    def _source(self, i):
        return self.source + i * SLOT

    def _target(self, i):
        return self.target + i * SLOT + GUARD

    def post(self):
        """Sends the next window of requests ahead; how many."""
        commands = []
        for i in range(self.posted, min(self.posted + WINDOW, self.count)):
            opcode, size = self.operations[i]
            here = self._target(i) if opcode in (p.READ, p.FETCH_ADD) else self._source(i)
            there = {p.READ: self._source(i), p.FETCH_ADD: self.counter}.get(
                opcode, self._target(i))
            remote = {} if opcode == p.SEND else {
                "raddr": self.passive.peer.base + there, "rkey": self.passive.rkey}
            commands.append(self.active.send(i, opcode, [(here, size)], imm=i, compare_add=1,
                                             **remote))
        self.active.post(*commands)
        ids = range(self.posted, self.posted + len(commands))
        self.posted += len(commands)
        if self.late:
            self._post_receives(ids)
        return ids

    def complete(self, ids):
        got = [(wc.id, wc.status) for wc in self.active.poll_send(len(ids))]
        wanted = [(i, p.SUCCESS) for i in ids]
        if got == wanted[:len(got)] and len(got) < len(wanted):
            raise Unfinished(self.active.peer, f"{len(got)} completions of {len(wanted)}")
        expect("completions", got, wanted)

    def verify(self):
        got = self.passive.poll_recv(len(self.received))
        expect("receives", [(wc.id, wc.status, wc.len) for wc in got],
               [(i, p.SUCCESS, self.operations[i][1]) for i in self.received])
        added = 0
        for i, (opcode, size) in enumerate(self.operations):
            receiver = self.active if opcode in (p.READ, p.FETCH_ADD) else self.passive
            what = f"operation {i} (opcode {opcode}, {size} bytes)"
            if opcode == p.FETCH_ADD:
                value = receiver.peer.number("get64", "value", off=self._target(i), len=8)
                expect(f"{what}: value before", value, added)
                added += 1
                continue
            checks = [("check", {"off": self._target(i), "len": size, "seed": i}),
                      ("same", {"off": self._target(i) + size, "len": GUARD,
                                "value": GUARD_BYTE})]
            for answer in receiver.peer.many(checks):
                if int(answer["bad"][0]) >= 0:
                    raise Failure(f"{what}: wrong at byte {answer['bad'][0]}")
        value = self.passive.peer.number("get64", "value", off=self.counter, len=8)
        expect("counter", value, added)


def large(active, passive, **options):
    """1 MiB by each operation."""
    link = Link(active, passive, **options)
    for opcode in (p.SEND, p.WRITE_IMM, p.READ):
        message(link, opcode, 1 << 20, opcode + 1)


def mix(active, passive, both=False, count=192, mtu=1024, atomics=True, late=False, **options):
    # Losses are not repeatable; the seed selects the operations.
    seed = random.getrandbits(32)
    rng = random.Random(seed)
    link = Link(active, passive, mtu=mtu, **options)
    mixes = [Mix(link, link.active, link.passive, count, 1 << 20, 512, rng, atomics,
                 late)]
    if both:
        mixes.append(Mix(link, link.passive, link.active, count, (1 << 20) + 2 * count * SLOT,
                         520, rng, atomics, late))
    for one in mixes:
        one.prepare()
    try:
        while mixes[0].posted < count:
            for one, ids in [(one, one.post()) for one in mixes]:
                one.complete(ids)
        for one in mixes:
            one.verify()
    except Unfinished as failure:
        raise Unfinished(failure.peer, f"seed {seed}: {failure}") from None
    except Failure as failure:
        raise Failure(f"seed {seed}: {failure}") from None


def until_nothing_comes(link, count):
    """The receives of messages up to number `count`. Sends further ones until one has arrived:
    what has not come by then is lost."""
    a, b = link.active, link.passive
    got = []
    for number in range(count, 2 * count):
        b.post(b.recv(number, [(2 * (1 << 20) + number * 4096, 4096)]))
        a.post(a.send(number, p.SEND_IMM, [(1 << 20, 8)], imm=number))
        expect("status", [wc.status for wc in a.poll_send()], [p.SUCCESS])
        # A second is mostly enough. Otherwise the next message arrives behind this one.
        while came := b.poll_recv(ms=1000):
            if came[0].imm >= count:
                return got
            got += came
    raise Failure(f"none of {count} messages arrived")


def unreliable(active, passive):
    """Lost packets lose whole messages; what arrives is exact and in order."""
    link = Link(active, passive, kind=p.UC)
    a, b = link.active, link.passive
    count, size = 100, 3 * 1024 + 5
    b.post(*[b.recv(i, [(2 * (1 << 20) + i * 4096, 4096)]) for i in range(count)])
    for i in range(count):
        a.post(("fill", {"off": 1 << 20, "len": size, "seed": i}),
               a.send(i, p.SEND_IMM, [(1 << 20, size)], imm=i))
        expect("status", [wc.status for wc in a.poll_send()], [p.SUCCESS])
    got = until_nothing_comes(link, count)
    expect("order", [wc.id for wc in got], list(range(len(got))))
    if not count // 2 < len(got) <= count:
        raise Failure(f"{len(got)} messages of {count} arrived")
    before = -1
    for wc in got:
        expect("status and length", (wc.status, wc.len), (p.SUCCESS, size))
        if wc.imm <= before:
            raise Failure(f"message {wc.imm} came after {before}")
        before = wc.imm
        bad = b.peer.number("check", "bad", off=2 * (1 << 20) + wc.id * 4096, len=size,
                            seed=wc.imm)
        expect(f"first wrong byte of message {wc.imm}", bad, -1)


TC = "/usr/bin/tc"
# Packets that arrive at eth0 pass through ifb0, since netem works on leaving packets.
ARRIVING = (f"{TC} qdisc add dev eth0 handle ffff: ingress && {TC} filter add dev eth0 "
            "parent ffff: matchall action mirred egress redirect dev ifb0 && ip link set ifb0 up")
UNDISTURBED = f"{TC} qdisc del dev eth0 root; {TC} qdisc del dev eth0 ingress; " \
              f"{TC} qdisc del dev ifb0 root"


class RxeStalled(Failure):
    """rxe has requests outstanding, sends nothing and gives no completion. After half a second it
    should have given up, whatever it was answered: some task of the kernel's does not run any
    more. Linux 6.1 does that about once in 50 rows with loss, and hardly ever without."""


def stalled(peer, peers):
    """Is it rxe that is at fault for requests of `peer` that have not completed?"""
    if peer.backend == "ferrule" or peer not in peers[:2]:
        return False
    other = peers[0] if peers[1] is peer else peers[1]
    if other.backend != "ferrule":
        return False
    before = other.frames()
    time.sleep(STILL_SECONDS)
    return other.frames() == before


def unless_stalled(function, arguments, **options):
    """Runs a row, whose first two arguments may be peers."""
    try:
        function(*arguments, **options)
    except Unfinished as failure:
        if stalled(failure.peer, arguments):
            raise RxeStalled(str(failure)) from None
        raise


def disturbed(guest, disturbance, function, arguments, options):
    """Runs a row while netem disturbs what the guest sends and what it receives."""
    netem = [f"{TC} qdisc add dev {device} root netem {disturbance}"
             for device in ("eth0", "ifb0")]
    status, text = guest.shell(" && ".join([ARRIVING] + netem))
    try:
        expect(f"tc says: {text}", status, 0)
        unless_stalled(function, arguments, **options)
    finally:
        guest.shell(UNDISTURBED)


def rows(pairs, guest, atomics=True):
    options = {"verbs_timeout": 14, "atomics": atomics}
    for active, passive in pairs:
        way = f"{active.name}->{passive.name}"
        for name, disturbance in (
                ("loss 1 %", "loss 1%"), ("loss 10 %", "loss 10%"),
                ("duplication", "duplicate 20%"),
                ("reordering", "delay 3ms reorder 75% 50%"), ("corruption", "corrupt 3%")):
            yield (f"RC mix, {name}, {way}", disturbed,
                   (guest, disturbance, mix, (active, passive), options))
        yield (f"RC mix both ways, loss 1 %, {way}", disturbed,
               (guest, "loss 1%", mix, (active, passive), {"both": True, "count": 96, **options}))
        yield (f"RC mix, late receives, loss 1 %, {way}", disturbed,
               (guest, "loss 1%", mix, (active, passive), {"late": True, **options}))
        yield (f"RC 1 MiB, loss 1 %, {way}", disturbed,
               (guest, "loss 1%", large, (active, passive), {"verbs_timeout": 14}))
        yield (f"RC mix IPv6 4096, loss 5 %, {way}", disturbed,
               (guest, "loss 5%", mix, (active, passive),
                {"mtu": 4096, "network": "IPv6", **options}))
        yield (f"UC SEND_IMM, loss 2 %, {way}", disturbed,
               (guest, "loss 2%", unreliable, (active, passive), {}))
