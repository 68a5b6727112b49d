/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path: frames in, packets out, in bursts. Guard held. No system call, but one to wake a
 * peer that sleeps, and a few, when this end has slept, to take what has woken it; no allocation
 * other than from the port's pools, no log.
 */
#include "drivers/dpdk/in_place.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/dpdk/fabric.h"
#include "drivers/dpdk/ring.h"
#include "drivers/dpdk/wake.h"

enum { MAX_SEGMENTS = 2 + MAX_REFERENCES };

static const uint8_t vlan_ethertype[2] = { 0x81, 0x00 };

void burst_set_state(struct dpdk_port *port, uint16_t link, enum port_link_state state)
{
	port->links[link].state = state;
	port->n_active = 0;
	port->next_rx = 0;
	for (uint16_t i = 0; i < PORT_MAX_LINKS; i++)
		if (port->links[i].state == PORT_LINK_UP)
			port->active[port->n_active++] = i;
	burst_rouse(port);
}

void burst_rouse(struct dpdk_port *port)
{
	if (port->armed)
		wake_up(port->wake_fd, port->wake);
}

void burst_drop_stash(struct dpdk_port *port, uint16_t link)
{
	free(port->links[link].stash);
	port->links[link].stash = NULL;
}

void burst_hide_ring(struct dpdk_port *port, uint16_t link)
{
	struct burst_link *seen = &port->links[link];

	seen->ring = NULL;
	seen->broken = false;
	seen->draining = false;
}

/* The gate takes the link down. */
static void break_ring(struct burst_link *link)
{
	link->broken = true;
	gate_ask();
}

static uint16_t rx_ring(
	struct dpdk_port *port, struct burst_link *link, struct rte_mbuf *mbufs[], uint16_t max)
{
	struct ring_rx *rx = &link->ring->rx;
	uint16_t n = 0;
	int len = 0;

	if (unlikely(link->broken))
		return 0;
	while (n < max && (len = ring_look(rx, link->max_frame + VLAN_TAG)) > 0) {
		struct rte_mbuf *mbuf = rte_pktmbuf_alloc(port->rx_pool);

		if (unlikely(!mbuf))
			break;
		ring_take(rx, rte_pktmbuf_mtod(mbuf, uint8_t *));
		mbuf->data_len = (uint16_t)len;
		mbuf->pkt_len = (uint32_t)len;
		mbufs[n++] = mbuf;
	}
	if (unlikely(len == -EPROTO))
		break_ring(link);
	return n;
}

/* If the peer is gone: as rx_stash. */
static uint16_t rx_ring_link(
	struct dpdk_port *port, struct burst_link *link, struct rte_mbuf *mbufs[], uint16_t max)
{
	uint16_t n;

	if (likely(!link->draining))
		return rx_ring(port, link, mbufs, max);
	if (link->drained || link->broken)
		return 0;
	n = rx_ring(port, link, mbufs, (uint16_t)RTE_MIN(max, link->left));
	link->left -= n;
	if (link->broken || link->left == 0 ||
		ring_look(&link->ring->rx, link->max_frame + VLAN_TAG) < 0) {
		link->drained = true;
		gate_ask();
	}
	return n;
}

/* From a link whose peer is gone. Once it is empty the gate is told, and the link goes DOWN: not
 * before the owner has seen the last frames. */
static uint16_t rx_stash(
	struct dpdk_port *port, struct burst_link *link, struct rte_mbuf *mbufs[], uint16_t max)
{
	struct burst_stash *stash = link->stash;
	uint16_t n = 0, len;

	if (!stash || stash->at == stash->len) {
		if (!link->drained)
			gate_ask();
		link->drained = true;
		return 0;
	}
	while (n < max && stash->at < stash->len) {
		mbufs[n] = rte_pktmbuf_alloc(port->rx_pool);
		if (!mbufs[n])
			break;
		memcpy(&len, stash->bytes + stash->at, sizeof(len));
		stash->at += sizeof(len);
		memcpy(rte_pktmbuf_append(mbufs[n], len), stash->bytes + stash->at, len);
		stash->at += len;
		n++;
	}
	return n;
}

/*
 * The kernel hands frames to packet sockets with the outer tag taken off and told beside the frame;
 * DPDK cannot put it back into buffers like ours. Which of the two types of tag it was, it does not
 * say.
 */
static bool restore_tag(struct rte_mbuf *mbuf)
{
	uint8_t *frame = (uint8_t *)rte_pktmbuf_prepend(mbuf, VLAN_TAG);

	if (!frame || rte_pktmbuf_data_len(mbuf) < ETH_HEADER + VLAN_TAG)
		return false;
	memmove(frame, frame + VLAN_TAG, 2 * RTE_ETHER_ADDR_LEN);
	frame += 2 * RTE_ETHER_ADDR_LEN;
	memcpy(frame, vlan_ethertype, sizeof(vlan_ethertype));
	frame[2] = (uint8_t)(mbuf->vlan_tci >> 8);
	frame[3] = (uint8_t)mbuf->vlan_tci;
	return true;
}

/* A device whose buffers are shorter than ours fills several with a frame: all of it goes into the
 * first one, which has room for the longest. */
static bool join_segments(struct rte_mbuf *mbuf)
{
	while (mbuf->next) {
		struct rte_mbuf *segment = mbuf->next;

		if (segment->data_len > rte_pktmbuf_tailroom(mbuf))
			return false;
		memcpy(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, mbuf->data_len),
			rte_pktmbuf_mtod(segment, void *), segment->data_len);
		mbuf->data_len += segment->data_len;
		mbuf->next = segment->next;
		mbuf->nb_segs--;
		segment->next = NULL;
		rte_pktmbuf_free_seg(segment);
	}
	return true;
}

/* The first one is logged: not here, where time counts. */
static bool refuse(struct dpdk_port *port, uint32_t len)
{
	if (!port->refused_len)
		port->refused_len = len;
	return false;
}

/* What the driver makes of a frame before its owner sees it. False: drop it. */
static bool take_frame(struct dpdk_port *port, const struct in_place *in_place,
	struct rte_mbuf *mbuf, struct port_frame *frame)
{
	uint32_t len = mbuf->pkt_len;

	if (unlikely(mbuf->nb_segs != 1) && !join_segments(mbuf))
		return refuse(port, len);
	if (unlikely(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) && !restore_tag(mbuf))
		return refuse(port, len);
	frame->data = rte_pktmbuf_mtod(mbuf, uint8_t *);
	frame->len = rte_pktmbuf_data_len(mbuf);
	return !in_place || !in_place_is_reference(mbuf) ||
		in_place_accept(port, in_place, mbuf, frame);
}

static uint16_t rx_link(
	struct dpdk_port *port, uint16_t link, struct port_frame frames[], uint16_t max)
{
	struct rte_mbuf *mbufs[PORT_BURST];
	const struct in_place *in_place = port->links[link].in_place;
	uint16_t ethdev = port->links[link].ethdev;
	uint16_t n, n_frames = 0;

	if (likely(port->links[link].ring))
		n = rx_ring_link(port, &port->links[link], mbufs, max);
	else if (unlikely(ethdev == NO_ETHDEV))
		n = rx_stash(port, &port->links[link], mbufs, max);
	else
		n = rte_eth_rx_burst(ethdev, 0, mbufs, max);
	for (uint16_t i = 0; i < n; i++) {
		struct port_frame *frame = &frames[n_frames];

		*frame = (struct port_frame){ .link = link, .handle = mbufs[i] };
		if (unlikely(!take_frame(port, in_place, mbufs[i], frame))) {
			port->dropped.rx_dropped++;
			rte_pktmbuf_free(mbufs[i]);
			continue;
		}
		n_frames++;
	}
	return n_frames;
}

uint16_t burst_rx(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	uint16_t n = 0, at = port->next_rx;

	max = RTE_MIN(max, PORT_BURST);
	for (uint16_t i = 0; i < port->n_active && n < max; i++) {
		n += rx_link(port, port->active[at], frames + n, max - n);
		at = at + 1u == port->n_active ? 0 : at + 1;
	}
	/* After the link that was served last, so that a busy one does not shut the others out. */
	port->next_rx = at;
	return n;
}

/* A frame of the link waits, or may. */
static bool has_frames(const struct burst_link *link)
{
	if (link->broken || (link->draining && link->drained))
		return false;
	return ring_look(&link->ring->rx, link->max_frame + VLAN_TAG) != -EAGAIN;
}

int burst_arm(struct port *base)
{
	struct dpdk_port *port = (struct dpdk_port *)base;

	for (uint16_t i = 0; i < port->n_active; i++)
		if (!port->links[port->active[i]].ring || !port->links[port->active[i]].wake)
			return -ENOTSUP;
	if (port->wake_fd < 0)
		return -ENOTSUP;
	port->armed = true;
	for (uint16_t i = 0; i < port->n_active; i++)
		ring_set_asleep(&port->links[port->active[i]].ring->rx, true);
	ring_fence();
	for (uint16_t i = 0; i < port->n_active; i++)
		if (has_frames(&port->links[port->active[i]]))
			return -EAGAIN;
	return port->wake_fd;
}

void burst_disarm(struct port *base)
{
	struct dpdk_port *port = (struct dpdk_port *)base;

	if (!port->armed)
		return;
	port->armed = false;
	for (uint16_t i = 0; i < port->n_active; i++)
		if (port->links[port->active[i]].ring)
			ring_set_asleep(&port->links[port->active[i]].ring->rx, false);
	wake_drain(port->wake_fd);
}

void burst_rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	/* Backwards: the stack then hands the buffers out in the order in which they came. */
	for (uint16_t i = n; i > 0; i--)
		rte_pktmbuf_free(frames[i - 1].handle);
}

static uint32_t packet_len(const struct port_packet *packet)
{
	uint32_t len = packet->header_len + packet->trailer_len;

	for (uint8_t i = 0; i < packet->n_pieces; i++)
		len += packet->pieces[i].len;
	return len;
}

static void append(struct rte_mbuf *mbuf, const void *bytes, uint16_t len)
{
	memcpy(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, mbuf->data_len), bytes, len);
	mbuf->data_len += len;
	mbuf->pkt_len += len;
}

/* The whole packet in one buffer: they hold the longest frame. */
static struct rte_mbuf *build_copy(struct dpdk_port *port, const struct port_packet *packet)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(port->rx_pool);

	if (!mbuf)
		return NULL;
	assert(packet_len(packet) <= rte_pktmbuf_tailroom(mbuf));
	append(mbuf, packet->header, packet->header_len);
	for (uint8_t i = 0; i < packet->n_pieces; i++)
		append(mbuf, packet->pieces[i].addr, packet->pieces[i].len);
	append(mbuf, packet->trailer, packet->trailer_len);
	return mbuf;
}

static struct rte_mbuf *chain(struct rte_mbuf *head, struct rte_mbuf *last, struct rte_mbuf *mbuf)
{
	last->next = mbuf;
	head->nb_segs++;
	head->pkt_len += mbuf->data_len;
	return mbuf;
}

static void refer(struct rte_mbuf *mbuf, const struct port_piece *piece)
{
	struct rte_mbuf_ext_shared_info *shared = &piece->mem->shared;

	rte_mbuf_ext_refcnt_update(shared, 1);
	rte_pktmbuf_attach_extbuf(mbuf, (void *)(uintptr_t)piece->addr,
		(rte_iova_t)(uintptr_t)piece->addr, piece->len, shared);
	mbuf->data_len = piece->len;
	mbuf->pkt_len = piece->len;
}

/* Header, a reference to each piece, trailer. */
static struct rte_mbuf *build_chain(struct dpdk_port *port, const struct port_packet *packet)
{
	uint8_t n_pieces = packet->n_pieces;
	bool own_trailer = n_pieces && packet->trailer_len;
	struct rte_mbuf *mbufs[MAX_SEGMENTS], *head, *last;

	if (rte_pktmbuf_alloc_bulk(port->tx_pool, mbufs, 1 + n_pieces + own_trailer))
		return NULL;
	head = last = mbufs[0];
	head->data_off = 0;
	append(head, packet->header, packet->header_len);
	for (uint8_t i = 0; i < n_pieces; i++) {
		refer(mbufs[1 + i], &packet->pieces[i]);
		last = chain(head, last, mbufs[1 + i]);
	}
	if (!own_trailer) {
		append(head, packet->trailer, packet->trailer_len);
		return head;
	}
	mbufs[1 + n_pieces]->data_off = 0;
	append(mbufs[1 + n_pieces], packet->trailer, packet->trailer_len);
	chain(head, last, mbufs[1 + n_pieces]);
	return head;
}

static uint16_t swallow(struct dpdk_port *port, uint16_t n)
{
	port->dropped.tx_dropped += n;
	return n;
}

static struct rte_mbuf *build_one(
	struct dpdk_port *port, struct in_place *in_place, const struct port_packet *packet)
{
	if (in_place && !packet->copy && in_place_can_send(port, in_place, packet))
		return in_place_build(port, in_place, packet);
	if (unlikely(port->cuts))
		return segments_build(port, packet);
	if (port->copies || (packet->copy && packet->n_pieces) || packet->n_pieces > MAX_REFERENCES)
		return build_copy(port, packet);
	return build_chain(port, packet);
}

/* A tag does not count, as on any Ethernet. */
static bool is_too_long(const struct burst_link *link, const struct port_packet *packet)
{
	uint32_t len = packet_len(packet);

	if (likely(len <= link->max_frame))
		return false;
	return len > link->max_frame + VLAN_TAG ||
		memcmp(packet->header + 2 * RTE_ETHER_ADDR_LEN, vlan_ethertype,
			sizeof(vlan_ethertype)) != 0;
}

static void check_packet(const struct port_packet *packet)
{
	assert(packet->header_len <= PORT_HEADER_ROOM && packet->trailer_len <= PORT_TRAILER_ROOM &&
		packet->n_pieces <= PORT_MAX_PIECES);
}

/* Not all NICs lengthen a frame that is too short for Ethernet. ARP's, and those of a SEND without
 * payload, have no pieces. */
static struct rte_mbuf *build_padded(struct dpdk_port *port, const struct port_packet *packet)
{
	struct port_packet padded = { .header_len = ETH_MIN_FRAME };

	memcpy(padded.header, packet->header, packet->header_len);
	memcpy(padded.header + packet->header_len, packet->trailer, packet->trailer_len);
	return build_one(port, NULL, &padded);
}

static bool is_too_short(const struct dpdk_port *port, const struct port_packet *packet)
{
	return port->needs_dma && !packet->n_pieces &&
		packet->header_len + packet->trailer_len < ETH_MIN_FRAME;
}

/* Builds up to `n` packets; stops before one that is too long or finds no buffer. */
static uint16_t build(struct dpdk_port *port, const struct burst_link *link,
	const struct port_packet packets[], uint16_t n, struct rte_mbuf *mbufs[])
{
	for (uint16_t i = 0; i < n; i++) {
		const struct port_packet *packet = &packets[i];

		check_packet(packet);
		if (unlikely(is_too_long(link, packet)))
			return i;
		if (unlikely(is_too_short(port, packet)))
			mbufs[i] = build_padded(port, packet);
		else
			mbufs[i] = build_one(port, link->in_place, packet);
		if (unlikely(!mbufs[i]))
			return i;
	}
	return n;
}

static void put_rest(const struct port_packet *packet, uint8_t *to)
{
	for (uint8_t i = 0; i < packet->n_pieces; i++) {
		memcpy(to, packet->pieces[i].addr, packet->pieces[i].len);
		to += packet->pieces[i].len;
	}
	memcpy(to, packet->trailer, packet->trailer_len);
}

/* Into the ring, from where the packet's parts lie. As ring_begin. */
static int put(struct dpdk_port *port, struct burst_link *link, const struct port_packet *packet)
{
	struct ring_tx *tx = &link->ring->tx;
	uint8_t frame[IN_PLACE_FRAME], *rest;
	int err;

	if (link->in_place && !packet->copy && in_place_can_send(port, link->in_place, packet)) {
		uint32_t len = in_place_encode(link->in_place, packet, frame);

		err = ring_begin(tx, frame, len, 0, &rest);
	} else {
		err = ring_begin(tx, packet->header, packet->header_len,
			packet_len(packet) - packet->header_len, &rest);
		if (!err)
			put_rest(packet, rest);
	}
	if (!err)
		ring_show(tx);
	return err;
}

static uint16_t put_all(struct dpdk_port *port, struct burst_link *link,
	const struct port_packet packets[], uint16_t n)
{
	for (uint16_t i = 0; i < n; i++) {
		int err;

		check_packet(&packets[i]);
		if (unlikely(is_too_long(link, &packets[i]))) {
			swallow(port, 1);
			continue;
		}
		err = put(port, link, &packets[i]);
		if (likely(!err))
			continue;
		if (err == -EPROTO)
			break_ring(link);
		return i;
	}
	return n;
}

static uint16_t tx_ring(struct dpdk_port *port, struct burst_link *link,
	const struct port_packet packets[], uint16_t n)
{
	uint16_t taken;

	if (unlikely(link->draining || link->broken))
		return swallow(port, n);
	taken = put_all(port, link, packets, n);
	if (taken > 0 && unlikely(ring_must_wake(&link->ring->tx)))
		wake_up(port->wake_fd, link->wake);
	return taken;
}

uint16_t burst_tx(
	struct port *base, uint16_t number, const struct port_packet packets[], uint16_t n)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	struct burst_link *link = &port->links[number];
	struct rte_mbuf *mbufs[PORT_BURST];
	uint16_t taken = 0;

	if (unlikely(link->state != PORT_LINK_UP))
		return link->state == PORT_LINK_CONNECTING ? 0 : swallow(port, n);
	if (likely(link->ring))
		return tx_ring(port, link, packets, n);
	if (unlikely(link->ethdev == NO_ETHDEV))
		return swallow(port, n);
	while (taken < n) {
		/* Building packets that the queue then refuses is wasted work, and DPDK cannot say
		 * how much a queue takes: so offer what it took lately, growing while it does. */
		uint16_t want = RTE_MIN(n - taken, link->batch);
		uint16_t built = build(port, link, packets + taken, want, mbufs);
		uint16_t sent = rte_eth_tx_burst(link->ethdev, 0, mbufs, built);

		for (uint16_t i = built; i > sent; i--)
			rte_pktmbuf_free(mbufs[i - 1]);
		taken += sent;
		port->queued += sent;
		if (sent < built) {
			link->batch = RTE_MAX(sent, 1);
			break;
		}
		if (unlikely(built < want)) {
			if (!is_too_long(link, &packets[taken]))
				break; /* no buffers */
			taken += swallow(port, 1);
			continue;
		}
		link->batch = RTE_MIN(link->batch * 2, PORT_BURST);
	}
	return taken;
}
