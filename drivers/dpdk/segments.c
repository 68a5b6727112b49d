/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Builds packets for devices with IOVA as PA, few segments, or segments within a page. Slower than
 * burst.c's chain of header, references and trailer, and used only for these.
 */
#include "drivers/dpdk/internal.h"

#include <string.h>

/* A packet under construction. */
struct chain {
	struct dpdk_port *port;
	struct rte_mempool *pool; /* pool for copied bytes */
	struct rte_mbuf *head, *last;
	uint32_t room; /* room in the last segment */
};

/* Returns how many of `len` bytes lie on one page. */
static uint32_t on_page(const struct dpdk_port *port, const void *addr, uint32_t len)
{
	uint32_t left;

	if (!port->page)
		return len;
	left = port->page - (uint32_t)((uintptr_t)addr & (port->page - 1));
	return RTE_MIN(left, len);
}

static bool chain_add(struct chain *chain, struct rte_mempool *pool)
{
	struct rte_mbuf *mbuf;

	if (chain->head && chain->head->nb_segs >= chain->port->max_segments)
		return false;
	mbuf = rte_pktmbuf_alloc(pool);
	if (!mbuf)
		return false;
	if (chain->head) {
		chain->last->next = mbuf;
		chain->head->nb_segs++;
	} else {
		chain->head = mbuf;
	}
	chain->last = mbuf;
	chain->room = 0;
	return true;
}

static void chain_grow(struct chain *chain, uint32_t n)
{
	chain->last->data_len += (uint16_t)n;
	chain->head->pkt_len += n;
}

static bool chain_add_buffer(struct chain *chain)
{
	struct rte_mbuf *mbuf;

	if (!chain_add(chain, chain->pool))
		return false;
	mbuf = chain->last;
	/* tx_pool buffers have no headroom. */
	if (chain->pool == chain->port->tx_pool)
		mbuf->data_off = 0;
	chain->room = on_page(
		chain->port, rte_pktmbuf_mtod(mbuf, void *), rte_pktmbuf_tailroom(mbuf));
	return true;
}

static bool chain_copy(struct chain *chain, const uint8_t *bytes, uint32_t len, bool may_fault)
{
	while (len) {
		uint32_t n;

		if (!chain->room && !chain_add_buffer(chain))
			return false;
		n = RTE_MIN(chain->room, len);
		if (!port_copy_piece(
			    rte_pktmbuf_mtod_offset(chain->last, uint8_t *, chain->last->data_len),
			    &(struct port_piece){
				    .addr = bytes, .len = n, .may_fault = may_fault })) {
			chain->port->base.is_unreadable = true;
			return false;
		}
		chain_grow(chain, n);
		chain->room -= n;
		bytes += n;
		len -= n;
	}
	return true;
}

/* Adds references, each to bytes that are contiguous for the device. */
static bool chain_refer(struct chain *chain, const struct port_piece *piece)
{
	struct rte_mbuf_ext_shared_info *shared = &piece->mem->shared;
	const uint8_t *addr = piece->addr;
	uint32_t len = piece->len;

	while (len) {
		uint32_t n = on_page(chain->port, addr, len);
		rte_iova_t iova = mem_bus_address(piece->mem, addr, &n);

		if (!chain_add(chain, chain->port->tx_pool))
			return false;
		rte_mbuf_ext_refcnt_update(shared, 1);
		rte_pktmbuf_attach_extbuf(
			chain->last, (void *)(uintptr_t)addr, iova, (uint16_t)n, shared);
		chain_grow(chain, n);
		addr += n;
		len -= n;
	}
	return true;
}

static bool build(struct chain *chain, const struct port_packet *packet, bool refer)
{
	bool done = chain_copy(chain, packet->header, packet->header_len, false);

	for (uint8_t i = 0; done && i < packet->n_pieces; i++)
		done = refer ? chain_refer(chain, &packet->pieces[i])
			     : chain_copy(chain, packet->pieces[i].addr, packet->pieces[i].len,
				       packet->pieces[i].may_fault);
	return done && chain_copy(chain, packet->trailer, packet->trailer_len, false);
}

static bool can_refer(const struct dpdk_port *port, const struct port_packet *packet)
{
	if (port->copies || packet->copy || mem_may_vanish(port, packet))
		return false;
	for (uint8_t i = 0; i < packet->n_pieces; i++)
		if (!mem_is_reachable(packet->pieces[i].mem))
			return false;
	return true;
}

struct rte_mbuf *segments_build(struct dpdk_port *port, const struct port_packet *packet)
{
	struct chain chain = { .port = port, .pool = port->tx_pool };

	if (packet->n_pieces && can_refer(port, packet)) {
		if (build(&chain, packet, true))
			return chain.head;
		rte_pktmbuf_free(chain.head);
	}
	/* Also used if there were too many segments. */
	chain = (struct chain){ .port = port, .pool = port->rx_pool };
	if (build(&chain, packet, false))
		return chain.head;
	rte_pktmbuf_free(chain.head);
	return NULL;
}
