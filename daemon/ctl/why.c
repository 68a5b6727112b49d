/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/ctl/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ferrule/stats.h>

#include "daemon/ctl/table.h"
#include "lib/control/page.h"

enum {
	PSN_MASK = 0xffffff,
	PSN_HALF = 0x800000,
};

#define STALE_S 1.0 /* older than any page of a process that publishes on request */

static const char *const waits[] = {
#define WAIT_TEXT(name, what, hint) what,
	PAGE_WAITS(WAIT_TEXT)
#undef WAIT_TEXT
};

static const char *const hints[] = {
#define WAIT_HINT(name, what, hint) hint,
	PAGE_WAITS(WAIT_HINT)
#undef WAIT_HINT
};

static const struct {
	const char *name, *what;
} counters[] = {
#define COUNTER(name, what) { #name, what },
	FRL_COUNTERS(COUNTER)
#undef COUNTER
};

/* Returns the state's index; -1 if this release does not know it. */
static int wait_of(const Ctl__QpInfo *qp)
{
	int i;

	for (i = 0; i < (int)(sizeof(waits) / sizeof(waits[0])); i++) {
		if (strcmp(waits[i], qp->waits_for) == 0)
			return i;
	}
	return -1;
}

static bool is_stale(const Ctl__QpInfo *qp)
{
	return qp->published_age_s > STALE_S || qp->published_age_s < 0;
}

struct why_direction why_compare(uint32_t send_psn, uint32_t acked_psn, uint32_t recv_psn)
{
	uint32_t window = (send_psn - acked_psn) & PSN_MASK;
	uint32_t accepted = (recv_psn - acked_psn) & PSN_MASK;
	struct why_direction direction = { .disagree = accepted > window };

	/* The views were taken at different times. The receiver may be ahead of what the sender had
	 * sent, or behind what the sender knew to be acknowledged. */
	if (direction.disagree && ((recv_psn - send_psn) & PSN_MASK) < 4096) {
		direction.disagree = false;
		direction.unacked = window;
	} else if (direction.disagree && ((acked_psn - recv_psn) & PSN_MASK) < 4096) {
		direction.disagree = false;
		direction.missing = window;
	} else if (!direction.disagree) {
		direction.missing = window - accepted;
		direction.unacked = accepted;
	}
	return direction;
}

/* ---- lines */

static void say(struct why *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void say(struct why *why, const char *format, ...)
{
	va_list args;

	if (why->n_lines == WHY_LINES)
		return;
	va_start(args, format);
	vsnprintf(why->lines[why->n_lines++], WHY_TEXT, format, args);
	va_end(args);
}

static const char *plural(uint32_t count)
{
	return count == 1 ? "" : "s";
}

static const char *age(char text[32], double seconds)
{
	text_age(text, 32, seconds);
	return text;
}

static void say_who(struct why *why, const Ctl__QpInfo *qp, const Ctl__ConnInfo *conn)
{
	say(why, "Queue pair %u (%s, %s) of process %u (%s), port %u.", qp->qpn, qp->type,
		qp->state, qp->pid, qp->program, qp->port);
	if (qp->job[0])
		say(why, "The process is rank %s of job %s.", qp->rank, qp->job);
	if (conn)
		say(why,
			"Connected as the %s end of service %s to queue pair %u of %s, process %u "
			"(%s): %s.",
			conn->passive ? "passive" : "active",
			conn->service[0] ? conn->service : "?", conn->peer_qpn, conn->peer_host,
			conn->peer_pid, conn->peer_program, conn->state);
	else if (qp->peer_rank[0])
		say(why, "Its peer is queue pair %u of rank %s on %s (%s).", qp->peer_qpn,
			qp->peer_rank, qp->peer_host, qp->peer_ip);
	else if (qp->peer_ip[0])
		say(why, "Its peer is queue pair %u of %s.", qp->peer_qpn, qp->peer_ip);
	else
		say(why, "It has no peer.");
}

static void say_wait(struct why *why, const Ctl__QpInfo *qp)
{
	int wait = wait_of(qp);
	char since[32];

	if (wait == PAGE_WAIT_NOTHING)
		say(why, "It waits for nothing: %s.", hints[wait]);
	else
		say(why, "It waits for %s%s%s%s%s.", qp->waits_for[0] ? qp->waits_for : "?",
			qp->waiting_s > 0 ? ", for " : "",
			qp->waiting_s > 0 ? age(since, qp->waiting_s) : "", wait >= 0 ? ": " : "",
			wait >= 0 ? hints[wait] : "");
}

static void say_sent(struct why *why, const Ctl__QpInfo *qp)
{
	uint32_t out = qp->outstanding_packets;
	char rx[32], tx[32];

	if (strcmp(qp->type, "RC") == 0 && out)
		say(why,
			"It has sent up to PSN 0x%06x. All before 0x%06x is acknowledged: %u "
			"packet%s outstanding. It expects 0x%06x next.",
			(qp->send_psn - 1) & PSN_MASK, qp->acked_psn, out, plural(out),
			qp->recv_psn);
	else
		say(why, "Its next PSN is 0x%06x, nothing is outstanding. It expects 0x%06x next.",
			qp->send_psn, qp->recv_psn);
	say(why, "%u request%s in the send queue, %u receive%s posted. %s%s%s and %s%s%s.",
		qp->send_queue, plural(qp->send_queue), qp->recv_queue, plural(qp->recv_queue),
		qp->idle_rx_s < 0 ? "No packet has come" : "The last packet came ",
		qp->idle_rx_s < 0 ? "" : age(rx, qp->idle_rx_s), qp->idle_rx_s < 0 ? "" : " ago",
		qp->idle_tx_s < 0 ? "none was sent" : "the last was sent ",
		qp->idle_tx_s < 0 ? "" : age(tx, qp->idle_tx_s), qp->idle_tx_s < 0 ? "" : " ago");
	if (qp->retransmits || qp->timeouts || qp->rnr_received || qp->rnr_sent)
		say(why,
			"So far it has retransmitted %llu packets, its timer has fired %llu times, "
			"and it has received %llu RNR NAKs and sent %llu.",
			(unsigned long long)qp->retransmits, (unsigned long long)qp->timeouts,
			(unsigned long long)qp->rnr_received, (unsigned long long)qp->rnr_sent);
}

static void say_timers(struct why *why, const Ctl__QpInfo *qp)
{
	char until[32], total[32];

	if (qp->deadline_ms < 0)
		return;
	age(until, qp->deadline_ms / 1e3);
	if (qp->lossless || !qp->timeout_ms_total) {
		say(why, "Its timer fires in %s. It never gives up on time alone%s.", until,
			qp->lossless ? ": its link loses nothing" : "");
		return;
	}
	age(total, qp->timeout_ms_total / 1e3);
	if (qp->rnr_retries_left == 7)
		say(why,
			"Its timer fires in %s. %u tries are left (of RNR: without limit): it "
			"gives up about %s after the first one.",
			until, qp->retries_left, total);
	else
		say(why,
			"Its timer fires in %s. %u tries are left (%u of RNR): it gives up about "
			"%s after the first one.",
			until, qp->retries_left, qp->rnr_retries_left, total);
}

static void say_error(struct why *why, const Ctl__QpInfo *qp, const char *whose)
{
	char ago[32];

	if (qp->last_error[0])
		say(why, "%s last error, %s ago: %s", whose, age(ago, qp->last_error_age_s),
			qp->last_error);
}

static const char *what_is_counted(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
		if (strcmp(counters[i].name, name) == 0)
			return counters[i].what;
	}
	return "this ferrulectl does not know the reason";
}

static void say_drops(struct why *why, const Ctl__QpInfo *qp, const char *whose)
{
	char text[WHY_TEXT - 64];
	size_t length = 0, i;

	for (i = 0; i < qp->n_port_drops && length < sizeof(text); i++) {
		const Ctl__Counter *drops = qp->port_drops[i];

		/* Frames for other hosts are no loss. */
		if (drops->value && strcmp(drops->name, "drop_not_for_us") != 0)
			length += (size_t)snprintf(text + length, sizeof(text) - length,
				"%s%llu %s (%s)", length ? ", " : "",
				(unsigned long long)drops->value, drops->name,
				what_is_counted(drops->name));
	}
	if (length)
		say(why, "%s port has dropped, since it was opened: %s.", whose, text);
}

static void say_direction(struct why *why, const Ctl__QpInfo *from, const Ctl__QpInfo *to,
	const char *sender, const char *receiver)
{
	struct why_direction way = why_compare(from->send_psn, from->acked_psn, to->recv_psn);

	if (way.disagree)
		say(why,
			"%s expects PSN 0x%06x, which %s does not send (0x%06x to 0x%06x): they "
			"have other peers, or one was reconnected.",
			receiver, to->recv_psn, sender, from->acked_psn, from->send_psn);
	else if (way.missing)
		say(why,
			"%s expects PSN 0x%06x, %s has sent up to 0x%06x: %u packet%s lost or on "
			"%s way.",
			receiver, to->recv_psn, sender, (from->send_psn - 1) & PSN_MASK,
			way.missing, way.missing == 1 ? " is" : "s are",
			way.missing == 1 ? "its" : "their");
	if (!way.disagree && way.unacked)
		say(why,
			"%s has accepted %u packet%s for which %s has no acknowledgement: they "
			"were lost or are on their way.",
			receiver, way.unacked, plural(way.unacked), sender);
	if (!way.disagree && !way.missing && !way.unacked)
		say(why, "All that %s has sent has arrived.", sender);
}

static void say_peer(
	struct why *why, const Ctl__QpInfo *qp, const Ctl__QpInfo *peer, const char *peer_error)
{
	char published[32];

	if (!peer) {
		say(why, "The peer's view is unknown: %s.",
			peer_error && peer_error[0] ? peer_error : "nobody could be asked");
		return;
	}
	say(why,
		"The peer: queue pair %u in %s, waits for %s; %u receive%s posted; its process %u "
		"(%s) published this %s ago.",
		peer->qpn, peer->state, peer->waits_for, peer->recv_queue, plural(peer->recv_queue),
		peer->pid, peer->program, age(published, peer->published_age_s));
	if (is_stale(qp) || is_stale(peer)) {
		say(why, "One of these views is too old for their PSNs to be compared.");
	} else if (strcmp(qp->type, "RC") == 0) {
		say_direction(why, qp, peer, "this end", "The peer");
		say_direction(why, peer, qp, "the peer", "This end");
	}
	say_error(why, peer, "The peer's");
	say_drops(why, peer, "The peer's");
}

/* ---- the diagnosis */

static void conclude(struct why *why, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void conclude(struct why *why, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why->diagnosis, WHY_TEXT, format, args);
	va_end(args);
}

static bool is_in(const Ctl__QpInfo *qp, const char *state)
{
	return strcmp(qp->state, state) == 0;
}

static void conclude_rnr(struct why *why, const Ctl__QpInfo *peer)
{
	if (peer && peer->recv_queue)
		conclude(why,
			"The peer had no receive posted when the message came; now it has %u: it "
			"goes on when the RNR timer fires.",
			peer->recv_queue);
	else if (peer)
		conclude(why,
			"The peer's program has posted no receive for the next message: process %u "
			"(%s) must post one.",
			peer->pid, peer->program);
	else
		conclude(why,
			"The peer's program has posted no receive for the next message: it must "
			"post one.");
}

/* Packets are outstanding and no answer arrives. */
static void conclude_silence(struct why *why, const Ctl__QpInfo *qp, const Ctl__QpInfo *peer)
{
	struct why_direction way = { false, 0, 0 };
	char silence[32];

	age(silence, qp->idle_rx_s);
	if (peer)
		way = why_compare(qp->send_psn, qp->acked_psn, peer->recv_psn);
	if (way.disagree)
		conclude(why, "The two queue pairs do not agree about PSNs: reconnect them.");
	else if (peer && way.missing && !way.unacked)
		conclude(why,
			"No outstanding packet has reached the peer's queue pair: they are lost "
			"(path, MTU, firewall, MAC address), or the peer's process %u (%s) does "
			"not drive its device.",
			peer->pid, peer->program);
	else if (peer && way.unacked && !way.missing)
		conclude(why,
			"The peer has accepted everything, but its acknowledgements do not arrive "
			"here: check the path back.");
	else if (peer && way.unacked)
		conclude(why, "Some packets arrive and some are lost: the path drops packets.");
	else if (qp->idle_rx_s < 0)
		conclude(why,
			"No packet of the peer has ever arrived: check that it runs, the path, the "
			"addresses, and UDP port 4791.");
	else
		conclude(why,
			"No packet of the peer has arrived for %s: its process may be stopped, or "
			"the path is broken.",
			silence);
}

static void conclude_read(struct why *why, const Ctl__QpInfo *peer)
{
	if (peer)
		conclude(why,
			"The responder of process %u (%s) has not answered: does it drive its "
			"device (published %s)?",
			peer->pid, peer->program, is_stale(peer) ? "long ago" : "just now");
	else
		conclude(why, "The peer's responder has not answered a READ or an atomic.");
}

/* Concludes from the states of both ends alone. Returns false if these say nothing. */
static bool conclude_from_states(struct why *why, const Ctl__QpInfo *qp, const Ctl__QpInfo *peer)
{
	char stale[32];

	if (is_in(qp, "ERR"))
		conclude(why, "It is in ERR%s%s: nothing moves until its program resets it.",
			qp->last_error[0] ? " since " : "", qp->last_error);
	else if (is_stale(qp))
		conclude(why,
			"Process %u (%s) has not answered its daemon for %s: it is stopped, or its "
			"library hangs. The lines above are as old.",
			qp->pid, qp->program, age(stale, qp->published_age_s));
	else if (peer && is_in(peer, "ERR"))
		conclude(why, "The peer's queue pair is in ERR%s%s.",
			peer->last_error[0] ? ": " : "", peer->last_error);
	else if (peer && is_stale(peer))
		conclude(why,
			"The peer's process %u (%s) has not answered its daemon for %s: it is "
			"stopped, or hangs.",
			peer->pid, peer->program, age(stale, peer->published_age_s));
	else if (peer && peer->peer_qpn != qp->qpn)
		conclude(why,
			"The peer's queue pair %u is connected to queue pair %u, not to this one.",
			peer->qpn, peer->peer_qpn);
	else
		return false;
	return true;
}

/* Returns true if the queue pair sends the same message repeatedly and gets an RNR NAK each time.
 * Between two tries it waits for an acknowledgement. */
static bool gets_rnr_naks(const Ctl__QpInfo *qp, const Ctl__QpInfo *peer)
{
	/* Both times as of the page, since they have grown since then. */
	double waited = qp->waiting_s - qp->published_age_s;
	double idle = qp->idle_rx_s - qp->published_age_s;

	return qp->rnr_received && qp->idle_rx_s >= 0 && idle < waited / 2 &&
		(!peer || !peer->recv_queue);
}

static void diagnose(struct why *why, const Ctl__QpInfo *qp, const Ctl__QpInfo *peer)
{
	double patience = qp->rtt_us > 1000 ? qp->rtt_us * 10 / 1e6 : 0.01;
	int wait = wait_of(qp);

	if (conclude_from_states(why, qp, peer))
		return;
	switch (wait) {
	case PAGE_WAIT_NOTHING:
		if (peer && wait_of(peer) == PAGE_WAIT_RNR && !qp->recv_queue) {
			conclude(why,
				"The peer's message waits for a receive here: process %u (%s) must "
				"post one.",
				qp->pid, qp->program);
			break;
		}
		conclude(why, "Nothing is wrong: its program has posted no requests%s.",
			qp->recv_queue ? " except receives" : " and no receives");
		break;
	case PAGE_WAIT_RNR: conclude_rnr(why, peer); break;
	case PAGE_WAIT_RETRY:
	case PAGE_WAIT_ACK:
		if (gets_rnr_naks(qp, peer))
			conclude_rnr(why, peer);
		else if (wait == PAGE_WAIT_ACK && qp->waiting_s - qp->published_age_s < patience)
			conclude(why, "Nothing is wrong: packets are on their way.");
		else
			conclude_silence(why, qp, peer);
		break;
	case PAGE_WAIT_READ: conclude_read(why, peer); break;
	case PAGE_WAIT_NOT_CONNECTED:
		conclude(why, "It is in %s: nobody has connected it yet.", qp->state);
		break;
	case PAGE_WAIT_DRAINING:
		conclude(why, "Its program has moved it to SQD, and must move it back to RTS.");
		break;
	case PAGE_WAIT_NEIGHBOR:
		conclude(why,
			"Nobody answers ARP or ND for the next hop to %s: address, VLAN or gateway "
			"are wrong, or that host is down.",
			qp->peer_ip);
		break;
	case PAGE_WAIT_PORT:
		conclude(why,
			"The port takes no frames: its link is down or full, or the memory link to "
			"the peer is still being made.");
		break;
	case PAGE_WAIT_FENCE:
		conclude(why,
			"READs and atomics before it are not done; max_rd_atomic decides how many "
			"may be under way.");
		break;
	case PAGE_WAIT_PROGRESS:
		conclude(why,
			"Its program does not drive the device: it must poll a completion queue, "
			"or set FRL_PROGRESS=thread.");
		break;
	default: conclude(why, "This ferrulectl does not know that reason: is the daemon newer?");
	}
}

void why_explain(struct why *why, const Ctl__QpInfo *qp, const Ctl__ConnInfo *conn,
	const Ctl__QpInfo *peer, const char *peer_error)
{
	why->n_lines = 0;
	why->diagnosis[0] = '\0';
	say_who(why, qp, conn);
	say_wait(why, qp);
	say_sent(why, qp);
	say_timers(why, qp);
	say_error(why, qp, "Its");
	say_drops(why, qp, "Its");
	say_peer(why, qp, peer, peer_error);
	diagnose(why, qp, peer);
}
