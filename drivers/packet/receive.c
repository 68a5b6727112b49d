/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives frames. Guard held.
 *
 * A frame of the kernel may consist of many packets. It is received into as many packet buffers,
 * with the layout of the last such frame. The kernel thus copies payload once, and each packet has
 * its own buffer, with room for the headers that it lacks. A frame with another layout is copied
 * once more.
 */
#include "drivers/packet/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "lib/base/bytes.h"
#include "lib/base/error.h"

enum {
	CUTS_MAX = 256,   /* most packets of a frame */
	EXPECT_BODY = 64, /* packets with less data are not worth a prediction */
	UDP_CHECKSUM_AT = 6,
};

/* ---- slots */

/* Returns where a frame begins in a slot. */
static uint8_t *slot_at(const struct packet_port *port, uint32_t slot)
{
	return port->memory + (size_t)slot * port->slot_size + PACKET_SLOT_OFFSET;
}

/* Handles count from 1, so that none is NULL. */
static void *handle_of(uint32_t slot)
{
	return (void *)(uintptr_t)(slot + 1);
}

static void put_slot(struct packet_port *port, uint32_t slot)
{
	port->free[port->n_free++] = slot;
}

/* Returns the longest frame that fits in a slot, without a tag. */
static uint32_t slot_room(const struct packet_port *port)
{
	return port->base.caps.max_frame;
}

static int make_slots(struct packet_port *port)
{
	port->n_slots = PACKET_SLOTS + port->base.caps.max_kept;
	port->slot_size = (PACKET_SLOT_OFFSET + VLAN_TAG + slot_room(port) + 63u) & ~63u;
	port->memory_len = (size_t)port->n_slots * port->slot_size;
	port->free = calloc(port->n_slots, sizeof(*port->free));
	port->memory = mmap(
		NULL, port->memory_len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (port->memory == MAP_FAILED)
		port->memory = NULL;
	if (!port->memory || !port->free)
		return frl_fail(-ENOMEM, "%s: no memory for %u packet buffers of %u bytes",
			port->name, port->n_slots, port->slot_size);
	for (uint32_t i = port->n_slots; i > 0; i--)
		put_slot(port, i - 1);
	return 0;
}

int packet_rx_open(struct packet_port *port)
{
	int rc = make_slots(port);

	if (rc)
		return rc;
	port->rests = malloc((size_t)PACKET_FRAME_MAX * PACKET_RX_FRAMES);
	port->linear = malloc(PACKET_FRAME_MAX);
	if (!port->rests || !port->linear)
		return frl_fail(-ENOMEM, "%s: no memory for frames", port->name);
	for (unsigned i = 0; i < PACKET_RX_FRAMES; i++)
		port->rx[i].rest = port->rests + (size_t)i * PACKET_FRAME_MAX;
	/* Initial prediction: IPv4 without a tag. */
	port->expect_headers = ETH_HEADER + 28;
	port->expect_body = 12 + port->max_payload + PACKET_ICRC_LEN;
	return 0;
}

void packet_rx_close(struct packet_port *port)
{
	if (port->memory)
		munmap(port->memory, port->memory_len);
	free(port->free);
	free(port->rests);
	free(port->linear);
}

/* ---- preparing to receive */

/* Provides the slots for a frame of 64 KiB, or fewer if no more are free. */
static void post(struct packet_port *port, unsigned index)
{
	struct packet_rx_frame *rx = &port->rx[index];
	struct msghdr *message = &port->rx_messages[index].msg_hdr;
	unsigned n = 0;
	uint32_t at = 0;

	if (!rx->is_posted) {
		rx->n_slots = 0;
		rx->first = port->expect_headers + port->expect_body;
		rx->next = port->expect_body;
	}
	rx->pieces[n++] = (struct iovec){ rx->vnet, sizeof(rx->vnet) };
	while (n <= PACKET_RX_SLOTS && at < PACKET_FRAME_MAX) {
		uint32_t len = n == 1 ? rx->first : rx->next;
		uint8_t *slot;

		if (n > rx->n_slots) {
			if (port->n_free == 0)
				break;
			rx->slots[rx->n_slots++] = port->free[--port->n_free];
		}
		slot = slot_at(port, rx->slots[n - 1]);
		rx->pieces[n] = (struct iovec){ n == 1 ? slot : slot + rx->first - rx->next, len };
		at += len;
		n++;
	}
	rx->pieces[n++] = (struct iovec){ rx->rest, PACKET_FRAME_MAX };
	*message = (struct msghdr){
		.msg_iov = rx->pieces,
		.msg_iovlen = n,
		.msg_control = &rx->control,
		.msg_controllen = sizeof(rx->control.bytes),
	};
	rx->is_posted = true;
}

/* Returns the slots of a received frame, from index `from` on. */
static void drop_slots(struct packet_port *port, struct packet_rx_frame *rx, uint32_t from)
{
	while (rx->n_slots > from)
		put_slot(port, rx->slots[--rx->n_slots]);
}

/* The first slot went out with a packet. The others stay for the next frame. */
static void keep_slots(struct packet_rx_frame *rx, uint32_t used)
{
	memmove(rx->slots, rx->slots + used, (rx->n_slots - used) * sizeof(rx->slots[0]));
	rx->n_slots -= (uint16_t)used;
}

/* ---- received frames */

/* Finds the tag that the kernel has stripped: 4 bytes of type and identifier. */
static bool find_tag(struct msghdr *message, uint8_t ret_tag[VLAN_TAG])
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		struct tpacket_auxdata aux;

		if (c->cmsg_level != SOL_PACKET || c->cmsg_type != PACKET_AUXDATA ||
			c->cmsg_len < CMSG_LEN(sizeof(aux)))
			continue;
		memcpy(&aux, CMSG_DATA(c), sizeof(aux));
		if (!(aux.tp_status & TP_STATUS_VLAN_VALID))
			return false;
		put_be16(ret_tag,
			aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : 0x8100);
		put_be16(ret_tag + 2, aux.tp_vlan_tci);
		return true;
	}
	return false;
}

/* Hands out a packet that starts at the usual offset of a slot. `tag` may be NULL. */
static void hand_out(struct packet_port *port, uint32_t slot, uint32_t len, const uint8_t *tag)
{
	uint8_t *data = slot_at(port, slot);

	if (tag) {
		/* Insert the tag after the addresses. */
		memmove(data - VLAN_TAG, data, 12);
		data -= VLAN_TAG;
		memcpy(data + 12, tag, VLAN_TAG);
		len += VLAN_TAG;
	}
	port->pending[port->n_pending++] = (struct port_frame){
		.data = data, .len = len, .handle = handle_of(slot)
	};
}

static void drop_frame(struct packet_port *port)
{
	port->dropped.rx_dropped++;
}

/* Copies bytes [from, from + len) of a received frame, which may be scattered. */
static void gather(const struct packet_rx_frame *rx, size_t from, size_t len, uint8_t *out)
{
	for (const struct iovec *piece = rx->pieces + 1; len; piece++) {
		size_t n;

		if (from >= piece->iov_len) {
			from -= piece->iov_len;
			continue;
		}
		n = piece->iov_len - from < len ? piece->iov_len - from : len;
		memcpy(out, (const uint8_t *)piece->iov_base + from, n);
		out += n;
		len -= n;
		from = 0;
	}
}

/* Clears a checksum that segmentation would complete, or that the kernel has verified, so that it
 * is not checked again. The ICRC covers the same bytes. */
static void clear_checksum(const struct virtio_net_hdr *vnet, uint8_t *frame, uint32_t len)
{
	struct packet_layout layout;

	if ((vnet->flags & (VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID)) &&
		packet_look(frame, len, &layout))
		put_be16(frame + layout.udp + UDP_CHECKSUM_AT, 0);
}

/* Takes a single packet. Little of it lies beyond the first slot. */
static void take_single(struct packet_port *port, struct packet_rx_frame *rx,
	const struct virtio_net_hdr *vnet, uint32_t len, const uint8_t *tag)
{
	uint8_t *frame;

	if (rx->n_slots == 0 || len > slot_room(port)) {
		drop_frame(port);
		return;
	}
	frame = slot_at(port, rx->slots[0]);
	if (len > rx->first)
		gather(rx, rx->first, len - rx->first, frame + rx->first);
	clear_checksum(vnet, frame, len);
	hand_out(port, rx->slots[0], len, tag);
	keep_slots(rx, 1);
}

/* Packet k of a frame with the predicted layout lies in slot k, after room for its headers. */
static void take_expected(struct packet_port *port, struct packet_rx_frame *rx,
	const struct packet_cut *cut, const uint8_t *tag)
{
	const uint8_t *first = slot_at(port, rx->slots[0]);

	/* Process the first packet last: the others derive from its headers, and a tag moves
	 * them. */
	for (uint32_t k = 1; k < cut->n; k++)
		packet_cut_headers(cut, first, k, slot_at(port, rx->slots[k]));
	packet_cut_headers(cut, first, 0, slot_at(port, rx->slots[0]));
	for (uint32_t k = 0; k < cut->n; k++)
		hand_out(port, rx->slots[k],
			cut->layout.body + (k + 1 == cut->n ? cut->last : cut->body), tag);
	keep_slots(rx, cut->n);
	port->other_body = 0;
}

/* Predicts the layout of this frame if the frame before had it, too. Two alternating peers thus do
 * not cause new preparation for each frame. */
static void expect(struct packet_port *port, const struct packet_cut *cut)
{
	if (cut->n < 2 || cut->body < EXPECT_BODY ||
		(cut->layout.body == port->expect_headers && cut->body == port->expect_body))
		return;
	if (cut->layout.body == port->other_headers && cut->body == port->other_body) {
		port->expect_headers = cut->layout.body;
		port->expect_body = cut->body;
	}
	port->other_headers = cut->layout.body;
	port->other_body = cut->body;
}

/* Copies a frame with another layout, or more packets than slots. PACKET_FRAME_MAX bytes at
 * most. */
static void take_copy(struct packet_port *port, struct packet_rx_frame *rx,
	const struct packet_cut *cut, uint32_t len, const uint8_t *tag)
{
	uint32_t headers = cut->layout.body;

	gather(rx, 0, len, port->linear);
	drop_slots(port, rx, 0);
	for (uint32_t k = 0; k < cut->n; k++) {
		uint32_t body = k + 1 == cut->n ? cut->last : cut->body;
		uint32_t slot;

		if (port->n_free == 0) {
			drop_frame(port);
			continue;
		}
		slot = port->free[--port->n_free];
		packet_cut_headers(cut, port->linear, k, slot_at(port, slot));
		memcpy(slot_at(port, slot) + headers,
			port->linear + headers + (size_t)k * cut->body, body);
		hand_out(port, slot, headers + body, tag);
	}
	expect(port, cut);
}

static void take_frame(struct packet_port *port, unsigned index)
{
	struct packet_rx_frame *rx = &port->rx[index];
	struct mmsghdr *message = &port->rx_messages[index];
	size_t near_len = rx->n_slots ? rx->first : 0;
	struct virtio_net_hdr vnet = { 0 };
	uint8_t tag_bytes[VLAN_TAG], *tag = NULL;
	struct packet_cut cut;
	uint32_t len;

	if (message->msg_len < PACKET_VNET_LEN + ETH_HEADER ||
		(message->msg_hdr.msg_flags & MSG_TRUNC)) {
		drop_frame(port);
		return;
	}
	memcpy(&vnet, rx->vnet, PACKET_VNET_LEN);
	len = message->msg_len - PACKET_VNET_LEN;
	/* The receive buffers exceed the longest frame. */
	if (len > PACKET_FRAME_MAX) {
		drop_frame(port);
		return;
	}
	if (find_tag(&message->msg_hdr, tag_bytes))
		tag = tag_bytes;
	if (vnet.gso_type == VIRTIO_NET_HDR_GSO_NONE) {
		take_single(port, rx, &vnet, len, tag);
		return;
	}
	if (!packet_cut(&vnet, slot_at(port, rx->slots[0]), near_len, len, &cut) ||
		cut.n > CUTS_MAX || cut.layout.body + cut.body > slot_room(port))
		drop_frame(port);
	else if (cut.layout.body + cut.body == rx->first && cut.body == rx->next &&
		cut.n <= rx->n_slots)
		take_expected(port, rx, &cut, tag);
	else
		take_copy(port, rx, &cut, len, tag);
}

/* Prepares receive frames again that have an old prediction. */
static void repost(struct packet_port *port)
{
	for (unsigned i = 0; i < PACKET_RX_FRAMES; i++) {
		struct packet_rx_frame *rx = &port->rx[i];

		if (rx->first != port->expect_headers + port->expect_body ||
			rx->next != port->expect_body) {
			drop_slots(port, rx, 0);
			rx->is_posted = false;
		}
		if (!rx->is_posted || rx->n_slots == 0)
			post(port, i);
	}
}

/* ---- bursts */

/*
 * Returns and clears the socket's pending error; 0: none. An error that ended recvmmsg() after a
 * received frame stays in the socket, and the next call, even a send, would return it.
 */
static int take_pending_error(const struct packet_port *port)
{
	int err = 0;
	socklen_t len = sizeof(err);

	return getsockopt(port->fd, SOL_SOCKET, SO_ERROR, &err, &len) ? 0 : err;
}

static void receive(struct packet_port *port)
{
	int n, err;

	port->pending_at = port->n_pending = 0;
	repost(port);
	n = recvmmsg(port->fd, port->rx_messages, PACKET_RX_FRAMES, MSG_DONTWAIT, NULL);
	err = n < 0 ? errno : 0;
	if (n > 0 && n < PACKET_RX_FRAMES)
		err = take_pending_error(port);
	/* A frame that the kernel cannot describe is lost. */
	if (err == EINVAL)
		drop_frame(port);
	for (int i = 0; i < n; i++)
		take_frame(port, (unsigned)i);
	for (int i = 0; i < n; i++)
		post(port, (unsigned)i);
}

uint16_t packet_rx_burst(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct packet_port *port = (struct packet_port *)base;
	uint16_t n;

	if (port->pending_at == port->n_pending)
		receive(port);
	n = port->n_pending - port->pending_at;
	if (n > max)
		n = max;
	memcpy(frames, port->pending + port->pending_at, n * sizeof(*frames));
	port->pending_at += n;
	return n;
}

/* Frames that are already in the socket make the descriptor readable, so only frames in `pending`
 * must be checked. */
int packet_rx_arm(struct port *base)
{
	const struct packet_port *port = (const struct packet_port *)base;

	return port->pending_at == port->n_pending ? port->fd : -EAGAIN;
}

void packet_rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	struct packet_port *port = (struct packet_port *)base;

	/* Free in reverse: slots are then reused in the order in which they came. */
	for (uint16_t i = n; i > 0; i--)
		put_slot(port, (uint32_t)(uintptr_t)frames[i - 1].handle - 1);
}

bool packet_rx_memory(struct port *base, unsigned index, void **ret_addr, size_t *ret_len)
{
	struct packet_port *port = (struct packet_port *)base;

	*ret_addr = port->memory;
	*ret_len = port->memory_len;
	return index == 0;
}

bool packet_rx_take(struct port *base, struct port_frame *ret_frame)
{
	struct packet_port *port = (struct packet_port *)base;
	uint32_t slot;

	if (port->n_free == 0)
		return false;
	slot = port->free[--port->n_free];
	*ret_frame = (struct port_frame){ .data = slot_at(port, slot), .handle = handle_of(slot) };
	return true;
}
