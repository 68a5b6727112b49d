/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data path: bursts of frames in and packets out. Guard held. No system calls of this file, no
 * allocation outside the port's pools, no log.
 */
#include "drivers/dpdk/internal.h"
#include "lib/base/memory/copy.h"

#include <assert.h>
#include <string.h>

enum { MAX_SEGMENTS = 2 + MAX_REFERENCES };

static const uint8_t vlan_ethertype[2] = { 0x81, 0x00 };

/*
 * For packet sockets, the kernel strips the outer tag and reports it beside the frame. DPDK cannot
 * reinsert it into external buffers. The type of the tag is not reported.
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

/* A device with shorter buffers scatters a frame over several. All of the frame is copied into the
 * first one, which has room for the longest frame. */
static bool join_segments(struct rte_mbuf *mbuf)
{
	while (mbuf->next) {
		struct rte_mbuf *segment = mbuf->next;

		if (segment->data_len > rte_pktmbuf_tailroom(mbuf))
			return false;
		copy_bulk(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, mbuf->data_len),
			rte_pktmbuf_mtod(segment, void *), segment->data_len);
		mbuf->data_len += segment->data_len;
		mbuf->next = segment->next;
		mbuf->nb_segs--;
		segment->next = NULL;
		rte_pktmbuf_free_seg(segment);
	}
	return true;
}

/* Records the length of the first refused frame, for a log line that is written off the data path.
 * Always returns false. */
static bool refuse(struct dpdk_port *port, uint32_t len)
{
	if (!port->refused_len)
		port->refused_len = len;
	return false;
}

/* Prepares a received frame for the port's owner. Returns false to drop it. */
static bool take_frame(struct dpdk_port *port, struct rte_mbuf *mbuf)
{
	uint32_t len = mbuf->pkt_len;

	if (unlikely(mbuf->nb_segs != 1) && !join_segments(mbuf))
		return refuse(port, len);
	if (unlikely(mbuf->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED) && !restore_tag(mbuf))
		return refuse(port, len);
	return true;
}

uint16_t burst_rx(struct port *base, struct port_frame frames[], uint16_t max)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	struct rte_mbuf *mbufs[PORT_BURST];
	uint16_t n, n_frames = 0;

	n = rte_eth_rx_burst(port->ethdev, 0, mbufs, RTE_MIN(max, PORT_BURST));
	for (uint16_t i = 0; i < n; i++) {
		if (unlikely(!take_frame(port, mbufs[i]))) {
			port->dropped.rx_dropped++;
			rte_pktmbuf_free(mbufs[i]);
			continue;
		}
		frames[n_frames++] = (struct port_frame){
			.data = rte_pktmbuf_mtod(mbufs[i], uint8_t *),
			.len = rte_pktmbuf_data_len(mbufs[i]),
			.handle = mbufs[i],
		};
	}
	return n_frames;
}

void burst_rx_free(struct port *base, const struct port_frame frames[], uint16_t n)
{
	/* Free in reverse: the stack then returns buffers in the order in which they came. */
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

/* Copies the whole packet into one buffer, which has room for the longest frame. Returns NULL
 * without a buffer, or if payload cannot be read. */
static struct rte_mbuf *build_copy(struct dpdk_port *port, const struct port_packet *packet)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(port->rx_pool);

	if (!mbuf)
		return NULL;
	assert(packet_len(packet) <= rte_pktmbuf_tailroom(mbuf));
	append(mbuf, packet->header, packet->header_len);
	for (uint8_t i = 0; i < packet->n_pieces; i++) {
		if (!port_copy_piece(rte_pktmbuf_mtod_offset(mbuf, uint8_t *, mbuf->data_len),
			    &packet->pieces[i])) {
			port->base.is_unreadable = true;
			rte_pktmbuf_free(mbuf);
			return NULL;
		}
		mbuf->data_len += packet->pieces[i].len;
		mbuf->pkt_len += packet->pieces[i].len;
	}
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

/* Builds a chain: header, a reference to each piece, trailer. */
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

static uint16_t discard(struct dpdk_port *port, uint16_t n)
{
	port->dropped.tx_dropped += n;
	return n;
}

static struct rte_mbuf *build_one(struct dpdk_port *port, const struct port_packet *packet)
{
	if (unlikely(port->cuts))
		return segments_build(port, packet);
	if (port->copies || (packet->copy && packet->n_pieces) ||
		packet->n_pieces > MAX_REFERENCES || mem_may_vanish(port, packet))
		return build_copy(port, packet);
	return build_chain(port, packet);
}

/* A VLAN tag does not count, as usual in Ethernet. */
static bool is_too_long(const struct dpdk_port *port, const struct port_packet *packet)
{
	uint32_t len = packet_len(packet), max_frame = port->base.caps.max_frame;

	if (likely(len <= max_frame))
		return false;
	return len > max_frame + VLAN_TAG ||
		memcmp(packet->header + 2 * RTE_ETHER_ADDR_LEN, vlan_ethertype,
			sizeof(vlan_ethertype)) != 0;
}

static void check_packet(const struct port_packet *packet)
{
	assert(packet->header_len <= PORT_HEADER_ROOM && packet->trailer_len <= PORT_TRAILER_ROOM &&
		packet->n_pieces <= PORT_MAX_PIECES);
}

/* Not all NICs pad frames that are too short for Ethernet. Short frames (ARP, a SEND without
 * payload) have no pieces. */
static struct rte_mbuf *build_padded(struct dpdk_port *port, const struct port_packet *packet)
{
	struct port_packet padded = { .header_len = ETH_MIN_FRAME };

	memcpy(padded.header, packet->header, packet->header_len);
	memcpy(padded.header + packet->header_len, packet->trailer, packet->trailer_len);
	return build_one(port, &padded);
}

static bool is_too_short(const struct dpdk_port *port, const struct port_packet *packet)
{
	return port->needs_dma && !packet->n_pieces &&
		packet->header_len + packet->trailer_len < ETH_MIN_FRAME;
}

/* Builds up to `n` packets. Stops before a packet that is too long, gets no buffer, or cannot be
 * read. */
static uint16_t build(struct dpdk_port *port, const struct port_packet packets[], uint16_t n,
	struct rte_mbuf *mbufs[])
{
	for (uint16_t i = 0; i < n; i++) {
		const struct port_packet *packet = &packets[i];

		check_packet(packet);
		if (unlikely(is_too_long(port, packet)))
			return i;
		if (unlikely(is_too_short(port, packet)))
			mbufs[i] = build_padded(port, packet);
		else
			mbufs[i] = build_one(port, packet);
		if (unlikely(!mbufs[i]))
			return i;
	}
	return n;
}

uint16_t burst_tx(
	struct port *base, uint16_t number, const struct port_packet packets[], uint16_t n)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	struct rte_mbuf *mbufs[PORT_BURST];
	uint16_t taken = 0;

	if (unlikely(number != 0))
		return discard(port, n);
	while (taken < n) {
		/* Packets that the queue then refuses are wasted work, and DPDK cannot report how
		 * much a queue takes. Build as many as it took lately, and more while it takes
		 * all. */
		uint16_t want = RTE_MIN(n - taken, port->batch);
		uint16_t built = build(port, packets + taken, want, mbufs);
		uint16_t sent = rte_eth_tx_burst(port->ethdev, 0, mbufs, built);

		for (uint16_t i = built; i > sent; i--)
			rte_pktmbuf_free(mbufs[i - 1]);
		taken += sent;
		port->queued += sent;
		if (sent < built) {
			port->batch = RTE_MAX(sent, 1);
			break;
		}
		if (unlikely(built < want)) {
			if (!is_too_long(port, &packets[taken]))
				break; /* no buffers, or unreadable */
			taken += discard(port, 1);
			continue;
		}
		port->batch = RTE_MIN(port->batch * 2, PORT_BURST);
	}
	return taken;
}
