/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends packets in as few frames as possible, all by one system call. The kernel has copied
 * everything when the call returns. Guard held.
 */
#include "drivers/packet/internal.h"

#include <errno.h>
#include <string.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"
#include "lib/base/memory/fault.h"

enum {
	BTH_LEN = 12,
	BTH_PSN_AT = 8,
	OPCODE_SERVICE_SHIFT = 5,
	SERVICE_RC = 0,
};

/* Frames under construction, which one system call sends. */
struct burst {
	unsigned n_frames;
	unsigned n_pieces;
	unsigned n_between;
};

static void add(struct packet_port *port, struct burst *burst, const void *addr, size_t len)
{
	if (len == 0)
		return;
	port->tx_pieces[burst->n_pieces++] = (struct iovec){ (void *)(uintptr_t)addr, len };
}

static void add_payload(
	struct packet_port *port, struct burst *burst, const struct port_packet *packet)
{
	for (uint8_t i = 0; i < packet->n_pieces; i++)
		add(port, burst, packet->pieces[i].addr, packet->pieces[i].len);
}

/* Returns the most entries of tx_pieces that a packet needs: its headers, its pieces, and the bytes
 * between it and the next one. */
static unsigned pieces_of(const struct port_packet *packet)
{
	return packet->n_pieces + 3u;
}

static uint32_t total_len(const struct packet_layout *layout, uint32_t body)
{
	return layout->body - layout->l3 + body;
}

/* Writes the trailer of packet k, with the ICRC for the identification that the kernel will
 * assign. */
static void put_trailer(struct packet_port *port, const struct packet_batch *batch,
	const struct port_packet packets[], unsigned k, uint8_t *out)
{
	const struct port_packet *packet = &packets[k];
	const uint8_t *ids[] = { packets[0].header + batch->layout.l3 + 4,
		packet->header + batch->layout.l3 + 4 };
	uint16_t change = (uint16_t)((get_be16(ids[0]) + k) ^ get_be16(ids[1]));
	uint8_t *icrc = out + packet->trailer_len - PACKET_ICRC_LEN;
	uint32_t body = get_be16(packet->header + batch->layout.udp + 4) - 8u;

	memcpy(out, packet->trailer, packet->trailer_len);
	/* A shorter trailer has no ICRC. */
	if (!batch->layout.ipv4 || !change || packet->trailer_len < PACKET_ICRC_LEN)
		return;
	put_le32(icrc,
		get_le32(icrc) ^
			packet_icrc_change(&port->power, change,
				total_len(&batch->layout, body) - 6 - PACKET_ICRC_LEN));
}

/* Adds the data after the UDP header of each packet, with the first packet's headers in front. */
static void add_batch(struct packet_port *port, struct burst *burst,
	const struct packet_batch *batch, const struct port_packet packets[],
	struct packet_tx_frame *tx)
{
	uint8_t headers = batch->layout.body;
	struct virtio_net_hdr vnet;

	packet_batch_headers(batch, &packets[0], tx->headers, &vnet);
	memcpy(tx->vnet, &vnet, PACKET_VNET_LEN);
	add(port, burst, tx->headers, headers);
	add(port, burst, packets[0].header + headers, packets[0].header_len - headers);
	for (unsigned k = 0; k < batch->n; k++) {
		uint8_t *between = port->between[burst->n_between++];
		size_t len = packets[k].trailer_len;

		add_payload(port, burst, &packets[k]);
		put_trailer(port, batch, packets, k, between);
		if (k + 1u < batch->n) {
			const struct port_packet *next = &packets[k + 1];

			memcpy(between + len, next->header + headers, next->header_len - headers);
			len += next->header_len - headers;
		}
		add(port, burst, between, len);
	}
}

static void add_single(
	struct packet_port *port, struct burst *burst, const struct port_packet *packet)
{
	add(port, burst, packet->header, packet->header_len);
	add_payload(port, burst, packet);
	add(port, burst, packet->trailer, packet->trailer_len);
}

/* Adds a frame with the first of `n` packets, or more. Returns the number of packets. */
static uint16_t add_frame(struct packet_port *port, struct burst *burst,
	const struct port_packet packets[], uint16_t n)
{
	struct packet_tx_frame *tx = &port->tx[burst->n_frames];
	struct msghdr *message = &port->tx_messages[burst->n_frames].msg_hdr;
	struct iovec *first = &port->tx_pieces[burst->n_pieces];
	struct packet_batch batch = { .n = 1 };

	if (port->joins && n > 1)
		packet_join(packets, n, &batch);
	burst->n_frames++;
	memset(tx->vnet, 0, sizeof(tx->vnet));
	add(port, burst, tx->vnet, sizeof(tx->vnet));
	if (batch.n > 1)
		add_batch(port, burst, &batch, packets, tx);
	else
		add_single(port, burst, packets);
	tx->n = batch.n;
	*message = (struct msghdr){
		.msg_iov = first,
		.msg_iovlen = (size_t)(&port->tx_pieces[burst->n_pieces] - first),
	};
	return batch.n;
}

/* Returns how many packets there is room to describe. */
static uint16_t fitting(const struct port_packet packets[], uint16_t n)
{
	unsigned pieces = 0;
	uint16_t fit = 0;

	if (n > PACKET_TX_FRAMES)
		n = PACKET_TX_FRAMES;
	while (fit < n && pieces + pieces_of(&packets[fit]) + 1 <= PACKET_TX_PIECES)
		pieces += pieces_of(&packets[fit++]) + 1;
	return fit;
}

static uint16_t discard(struct packet_port *port, uint16_t n)
{
	port->dropped.tx_dropped += n;
	return n;
}

/* ---- frames that the kernel refused */

/*
 * Returns true if a frame reported as dropped may be sent again. If the kernel splits it first,
 * some packets may have been sent. A reliable connection detects duplicates; other services would
 * deliver them twice.
 */
static bool is_repeatable(const struct packet_tx_frame *tx, const struct port_packet *head)
{
	struct packet_layout layout;

	return tx->n == 1 ||
		(packet_look(head->header, head->header_len, &layout) &&
			head->header_len > layout.body &&
			head->header[layout.body] >> OPCODE_SERVICE_SHIFT == SERVICE_RC);
}

static uint32_t psn_of(const struct port_packet *packet)
{
	struct packet_layout layout;

	if (!packet_look(packet->header, packet->header_len, &layout) ||
		packet->header_len < layout.body + BTH_LEN)
		return 0;
	return get_be32(packet->header + layout.body + BTH_PSN_AT) & 0xffffff;
}

/* A queue was full, or a filter refused the frame. A retry may succeed. */
static bool is_lost(struct packet_port *port, const struct port_packet *head)
{
	struct packet_refusals *refusals = &port->refusals;
	uint32_t psn = psn_of(head);

	/* The count of a withdrawn packet is obsolete. */
	if (refusals->flow != head->flow || refusals->psn != psn)
		*refusals = (struct packet_refusals){ .flow = head->flow, .psn = psn };
	if (++refusals->n < PACKET_REFUSALS_MAX && is_repeatable(&port->tx[0], head))
		return false;
	refusals->n = 0;
	return true;
}

/* Returns true if payload of `n` packets that may be unmapped is. */
static bool is_unreadable(const struct port_packet packets[], uint16_t n)
{
	uintptr_t at;

	for (uint16_t i = 0; i < n; i++) {
		for (uint8_t k = 0; k < packets[i].n_pieces; k++) {
			const struct port_piece *piece = &packets[i].pieces[k];

			if (piece->may_fault && !fault_read(piece->addr, piece->len, &at))
				return true;
		}
	}
	return false;
}

/* Handles a refusal of the first frame, of `n` packets. Returns how many of them are done. */
static uint16_t refused(
	struct packet_port *port, int err, const struct port_packet *head, uint16_t n)
{
	switch (err) {
	case EAGAIN:
	case EINTR:
	case ENETDOWN:
		/* No room, or the interface is down and may come up again. */
		return 0;
	case EFAULT:
		/* Otherwise it is other memory, which would stop the port for ever. */
		port->base.is_unreadable = is_unreadable(head, n);
		return port->base.is_unreadable ? 0 : discard(port, n);
	case ENOBUFS:
	case ENOMEM: return is_lost(port, head) ? discard(port, n) : 0;
	case EINVAL:
		if (n > 1) {
			frl_log(FRL_LOG_INFO,
				"%s: this kernel does not segment UDP frames (Linux 6.2 or later "
				"does): each packet is sent in its own frame",
				port->name);
			port->joins = false;
			port->base.caps.max_batch = 0;
			return 0;
		}
		return discard(port, n);
	default: return discard(port, n); /* for example ENXIO: the interface is gone */
	}
}

/* Sends a burst: the first packets that fit in one system call. Returns how many of `n` are done.
 * *ret_whole: all of the burst was sent, so another may follow. */
static uint16_t send_burst(
	struct packet_port *port, const struct port_packet packets[], uint16_t n, bool *ret_whole)
{
	struct burst burst = { 0 };
	uint16_t at = 0, taken = 0;
	int sent;

	while (at < n) {
		struct burst before = burst;
		uint16_t joined = add_frame(port, &burst, packets + at, n - at);

		/* The kernel reports an error only for the first frame of a burst. A frame that
		 * must not be repeated must therefore be first. */
		if (at > 0 && !is_repeatable(&port->tx[before.n_frames], &packets[at])) {
			burst = before;
			break;
		}
		at += joined;
	}
	sent = sendmmsg(port->fd, port->tx_messages, burst.n_frames, MSG_DONTWAIT);
	/* The error may stem from an earlier receive call. It is cleared now. */
	if (sent < 0 && errno == EINVAL)
		sent = sendmmsg(port->fd, port->tx_messages, burst.n_frames, MSG_DONTWAIT);
	*ret_whole = sent == (int)burst.n_frames;
	if (sent <= 0)
		return refused(port, sent ? errno : EAGAIN, &packets[0], port->tx[0].n);
	port->refusals.n = 0;
	for (int i = 0; i < sent; i++)
		taken += port->tx[i].n;
	return taken;
}

uint16_t packet_tx_burst(
	struct port *base, uint16_t link, const struct port_packet packets[], uint16_t n)
{
	struct packet_port *port = (struct packet_port *)base;
	uint16_t fit = fitting(packets, n), taken = 0;
	bool whole = true;

	while (whole && taken < fit)
		taken += send_burst(port, packets + taken, fit - taken, &whole);
	return taken;
}
