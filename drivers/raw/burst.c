/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path: bursts of frames in and packets out. Guard held. No system calls except the
 * provider's, no allocation, and no log except one line when the port fails.
 *
 * Send requests are numbered. The last one of each burst is signaled, and others at intervals
 * before it. A completion covers all requests up to its number. Slots and referenced memory are
 * therefore released soon after the burst, even if no other burst follows.
 */
#include "drivers/raw/internal.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"
#include "lib/base/memory/copy.h"

enum {
	SIGNAL_EVERY = 32,
	POLL_BATCH = 32,
};

/* ---- slots */

/* Returns where a frame begins in a host slot. */
static uint8_t *slot_at(const struct raw_port *port, uint32_t slot)
{
	size_t at = (size_t)slot * port->slot_size;

	if (slot >= port->n_slots)
		at = (size_t)port->n_slots * port->slot_size +
			(size_t)(slot - port->n_slots) * port->spare_size;
	return port->memory + at + RAW_OFFSET;
}

/* Handles count from 1, so that none is NULL. */
static void *handle_of(uint32_t slot)
{
	return (void *)(uintptr_t)(slot + 1);
}

static uint32_t slot_of(const void *handle)
{
	return (uint32_t)(uintptr_t)handle - 1;
}

static uint64_t far_at(const struct raw_port *port, uint32_t slot)
{
	return (uint64_t)(uintptr_t)port->far.memory + (uint64_t)slot * port->far.room;
}

int raw_post_slots(struct raw_port *port, const uint32_t slots[], uint32_t n)
{
	struct ibv_recv_wr wrs[RAW_REPOST], *bad;
	struct ibv_sge sges[RAW_REPOST][2];

	assert(n > 0 && n <= RAW_REPOST);
	for (uint32_t i = 0; i < n; i++) {
		sges[i][0] = (struct ibv_sge){ .addr = (uintptr_t)slot_at(port, slots[i]),
			.length = port->near_room,
			.lkey = port->mr->lkey };
		if (port->far.mr)
			sges[i][1] = (struct ibv_sge){ .addr = far_at(port, slots[i]),
				.length = port->far.room,
				.lkey = port->far.mr->lkey };
		wrs[i] = (struct ibv_recv_wr){ .wr_id = slots[i],
			.next = i + 1 < n ? &wrs[i + 1] : NULL,
			.sg_list = sges[i],
			.num_sge = port->far.mr ? 2 : 1 };
	}
	return ibv_post_recv(port->qp, wrs, &bad);
}

/* ---- failure */

/* Nothing is in progress any more: neither the device nor the queue pair does anything. */
static void forget_tx(struct raw_port *port)
{
	for (; port->tx_tail != port->tx_head; port->tx_tail++) {
		struct raw_tx_slot *slot = &port->tx[port->tx_tail % RAW_TX_SLOTS];

		for (uint8_t i = 0; i < slot->n_mems; i++)
			slot->mems[i]->users--;
	}
}

void raw_break(struct raw_port *port, const char *why)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	if (port->is_broken)
		return;
	port->is_broken = true;
	frl_log(FRL_LOG_ERROR,
		"%s: %s; nothing is sent or received any more: open the device again", port->name,
		why);
	ibv_modify_qp(port->qp, &attr, IBV_QP_STATE);
	forget_tx(port);
}

static void break_by(struct raw_port *port, const struct ibv_wc *wc, const char *what)
{
	char why[REASON_SIZE];

	snprintf(why, sizeof(why), "%s failed with '%s' (vendor error 0x%x)%s", what,
		ibv_wc_status_str(wc->status), wc->vendor_err,
		wc->status == IBV_WC_LOC_LEN_ERR
			? ": was the interface's MTU raised while the port was open?"
			: "");
	raw_break(port, why);
}

/* ---- receive */

static void repost(struct raw_port *port, uint32_t slot)
{
	port->repost[port->n_repost++] = slot;
	if (port->n_repost < RAW_REPOST)
		return;
	port->n_repost = 0;
	if (!port->is_broken && raw_post_slots(port, port->repost, RAW_REPOST))
		raw_break(port, "receives cannot be posted any more");
}

static void take_frame(
	const struct raw_port *port, const struct ibv_wc *wc, struct port_frame *ret_frame)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	uint32_t len = wc->byte_len < port->near_room ? wc->byte_len : port->near_room;

	*ret_frame = (struct port_frame){
		.data = slot_at(port, slot),
		.len = len,
		.far_len = wc->byte_len - len,
		.far = wc->byte_len > len ? far_at(port, slot) : 0,
		.is_checked = wc->wc_flags & IBV_WC_IP_CSUM_OK,
		.handle = handle_of(slot),
	};
}

/* Frames of other hosts may be as long as the interface accepts. */
static bool is_wanted(const struct raw_port *port, const struct ibv_wc *wc)
{
	return wc->status == IBV_WC_SUCCESS && wc->byte_len <= port->base.caps.max_frame + VLAN_TAG;
}

uint16_t raw_rx_burst(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct raw_port *port = (struct raw_port *)base;
	struct ibv_wc wcs[PORT_BURST];
	uint16_t n_frames = 0;
	int n;

	if (port->is_broken)
		return 0;
	n = ibv_poll_cq(port->rx_cq, max < PORT_BURST ? max : PORT_BURST, wcs);
	if (n < 0) {
		raw_break(port, "received frames cannot be polled any more");
		return 0;
	}
	for (int i = 0; i < n; i++) {
		if (is_wanted(port, &wcs[i])) {
			take_frame(port, &wcs[i], &frames[n_frames++]);
			continue;
		}
		port->dropped.rx_dropped++;
		if (wcs[i].status == IBV_WC_SUCCESS)
			repost(port, (uint32_t)wcs[i].wr_id);
		else
			break_by(port, &wcs[i], "a receive");
	}
	return n_frames;
}

void raw_rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	struct raw_port *port = (struct raw_port *)base;

	for (uint16_t i = 0; i < n; i++) {
		uint32_t slot = slot_of(frames[i].handle);

		if (slot >= port->n_slots)
			port->spares[port->n_spares++] = slot;
		else
			repost(port, slot);
	}
}

bool raw_rx_memory(struct port *base, unsigned index, void **ret_addr, size_t *ret_len)
{
	struct raw_port *port = (struct raw_port *)base;

	*ret_addr = port->memory;
	*ret_len = port->rx_len;
	return index == 0;
}

bool raw_rx_take(struct port *base, struct port_frame *ret_frame)
{
	struct raw_port *port = (struct raw_port *)base;
	uint32_t slot;

	if (port->n_spares == 0)
		return false;
	slot = port->spares[--port->n_spares];
	*ret_frame = (struct port_frame){ .data = slot_at(port, slot), .handle = handle_of(slot) };
	return true;
}

/* ---- send */

void raw_reap(struct raw_port *port)
{
	struct ibv_wc wcs[POLL_BATCH];
	int n = POLL_BATCH;

	while (n == POLL_BATCH && !port->is_broken) {
		n = ibv_poll_cq(port->tx_cq, POLL_BATCH, wcs);
		if (n < 0)
			raw_break(port, "sent packets cannot be polled any more");
		for (int i = 0; i < n && !port->is_broken; i++) {
			if (wcs[i].status != IBV_WC_SUCCESS) {
				break_by(port, &wcs[i], "a packet that was sent");
				break;
			}
			for (; port->tx_tail <= wcs[i].wr_id; port->tx_tail++) {
				struct raw_tx_slot *slot = &port->tx[port->tx_tail % RAW_TX_SLOTS];

				for (uint8_t j = 0; j < slot->n_mems; j++)
					slot->mems[j]->users--;
			}
		}
	}
}

static uint32_t packet_len(const struct port_packet *packet)
{
	uint32_t len = packet->header_len + packet->trailer_len;

	for (uint8_t i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	return len;
}

/* Copies the whole packet into the slot. Returns the number of elements, or 0 if payload cannot be
 * read. */
static int build_copy(uint8_t *bytes, const struct port_packet *packet, struct ibv_sge *sge)
{
	uint32_t len = packet->header_len;

	memcpy(bytes, packet->header, len);
	for (uint8_t i = 0; i < packet->n_pieces; i++) {
		if (!port_copy_piece(bytes + len, &packet->pieces[i]))
			return 0;
		len += packet->pieces[i].len;
	}
	memcpy(bytes + len, packet->trailer, packet->trailer_len);
	len += packet->trailer_len;
	if (len < RAW_MIN_FRAME) {
		memset(bytes + len, 0, RAW_MIN_FRAME - len);
		len = RAW_MIN_FRAME;
	}
	sge->length = len;
	return 1;
}

/* Puts headers, trailer, and the padding of a short frame of `len` bytes into the slot. References
 * the payload, which the processor may be unable to read. */
static int build_references(struct raw_tx_slot *slot, uint8_t *bytes,
	const struct port_packet *packet, uint32_t len, uint32_t lkey, struct ibv_sge sges[])
{
	uint32_t fill = len < RAW_MIN_FRAME ? RAW_MIN_FRAME - len : 0;
	uint8_t *trailer = bytes + packet->header_len;
	int n = 1;

	memcpy(bytes, packet->header, packet->header_len);
	sges[0].length = packet->header_len;
	for (uint8_t i = 0; i < packet->n_pieces; i++) {
		const struct port_piece *piece = &packet->pieces[i];

		sges[n++] = (struct ibv_sge){ .addr = (uintptr_t)piece->addr,
			.length = piece->len,
			.lkey = piece->mem->mr->lkey };
		slot->mems[slot->n_mems++] = piece->mem;
	}
	if (packet->trailer_len + fill) {
		memcpy(trailer, packet->trailer, packet->trailer_len);
		memset(trailer + packet->trailer_len, 0, fill);
		sges[n++] = (struct ibv_sge){ .addr = (uintptr_t)trailer,
			.length = packet->trailer_len + fill,
			.lkey = lkey };
	}
	return n;
}

/* Builds the request for a packet in slot `number`. Returns false if payload cannot be read. */
static bool build(struct raw_port *port, uint64_t number, const struct port_packet *packet,
	uint32_t len, struct ibv_send_wr *wr, struct ibv_sge sges[])
{
	struct raw_tx_slot *slot = &port->tx[number % RAW_TX_SLOTS];
	uint8_t *bytes = port->memory + port->rx_len + number % RAW_TX_SLOTS * port->tx_size;
	uint32_t lkey = port->mr->lkey;
	bool copies = packet->n_pieces == 0 || packet->copy ||
		packet->n_pieces + 2u > port->max_sge;

	slot->n_mems = 0;
	sges[0] = (struct ibv_sge){ .addr = (uintptr_t)bytes, .lkey = lkey };
	*wr = (struct ibv_send_wr){ .wr_id = number, .sg_list = sges, .opcode = IBV_WR_SEND };
	wr->num_sge = copies ? build_copy(bytes, packet, &sges[0])
			     : build_references(slot, bytes, packet, len, lkey, sges);
	if (!wr->num_sge)
		return false;
	if (number % SIGNAL_EVERY == SIGNAL_EVERY - 1)
		wr->send_flags = IBV_SEND_SIGNALED;
	for (uint8_t i = 0; i < slot->n_mems; i++)
		slot->mems[i]->users++;
	return true;
}

/* Posts a chain of `n` requests. The last one becomes signaled. */
static void post(struct raw_port *port, struct ibv_send_wr wrs[], unsigned n)
{
	struct ibv_send_wr *bad;

	for (unsigned i = 0; i + 1 < n; i++)
		wrs[i].next = &wrs[i + 1];
	wrs[n - 1].send_flags = IBV_SEND_SIGNALED;
	port->tx_head += n;
	/* There is room for the requests, so an error does not mean a full queue. */
	if (ibv_post_send(port->qp, wrs, &bad) == 0)
		return;
	port->dropped.tx_dropped += n;
	raw_break(port, "packets cannot be sent any more");
}

static uint16_t discard(struct raw_port *port, uint16_t n)
{
	port->dropped.tx_dropped += n;
	return n;
}

uint16_t raw_tx_burst(
	struct port *base, uint16_t link, const struct port_packet packets[], uint16_t n)
{
	struct raw_port *port = (struct raw_port *)base;
	struct ibv_send_wr wrs[PORT_BURST];
	struct ibv_sge sges[PORT_BURST][RAW_MAX_SGE];
	uint32_t longest = port->base.caps.max_frame + VLAN_TAG;
	uint16_t taken = 0;
	unsigned n_wrs = 0;

	raw_reap(port);
	if (port->is_broken)
		return discard(port, n);
	while (taken < n && n_wrs < PORT_BURST &&
		port->tx_head + n_wrs - port->tx_tail < RAW_TX_SLOTS) {
		const struct port_packet *packet = &packets[taken];
		uint32_t len = packet_len(packet);

		if (len > longest) {
			taken += discard(port, 1);
			continue;
		}
		if (!build(port, port->tx_head + n_wrs, packet, len, &wrs[n_wrs], sges[n_wrs])) {
			port->base.is_unreadable = true;
			break;
		}
		taken++;
		n_wrs++;
	}
	if (n_wrs)
		post(port, wrs, n_wrs);
	return taken;
}
