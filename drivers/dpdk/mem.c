/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Payload by reference. A port whose PMD copies with the CPU takes any memory. A device that reads
 * it needs the pages mapped for its DMA, once for all registrations that share them. With physical
 * addresses (IOVA as PA) it needs pages that stay in place.
 */
#include "drivers/dpdk/internal.h"
#include "drivers/dpdk/physical.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_dev.h>
#include <rte_errno.h>

#include "lib/base/error.h"

enum { ETHERTYPE_EXPERIMENT = 0x88b5 /* IEEE 802: local experiments */ };

/* The base reference is never dropped, so a packet never drops the last reference. */
static void never_freed(void *addr, void *opaque)
{
	assert(!"the base reference of mapped memory is never dropped");
}

static struct port_mem *find_cover(struct dpdk_port *port, uint8_t *addr, size_t len)
{
	struct port_mem *mem;

	LIST_FOREACH(mem, &port->mapped, next)
	if (mem->addr <= addr && addr + len <= mem->addr + mem->len)
		return mem;
	return NULL;
}

static int map_for_device(struct dpdk_port *port, uint8_t *addr, size_t len)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (rte_extmem_register(addr, len, NULL, 0, page)) {
		int err = -rte_errno;

		if (err == -EEXIST)
			return frl_fail(err,
				"%s: %zu bytes at %p overlap a registration in part: register the "
				"larger region first",
				port->name, len, (void *)addr);
		return frl_fail(err, "%s: EAL rejects the %zu bytes at %p: %s", port->name, len,
			(void *)addr, frl_strerror(err));
	}
	if (rte_dev_dma_map(port->device, addr, (uintptr_t)addr, len)) {
		int err = -rte_errno;

		rte_extmem_unregister(addr, len);
		return frl_fail(err,
			"%s: cannot map the %zu bytes at %p for the device (%s); is the limit of "
			"locked memory (ulimit -l) large enough?",
			port->name, len, (void *)addr, frl_strerror(err));
	}
	return 0;
}

/* Makes the memory reachable for the device, or decides to copy. */
static int reach(struct dpdk_port *port, struct port_mem *mem)
{
	if (!port->needs_dma || port->cpu_reads_payload)
		return 0;
	if (rte_eal_iova_mode() == RTE_IOVA_VA) {
		mem->whole = find_cover(port, mem->addr, mem->len);
		if (mem->whole)
			mem->whole->users++;
		return mem->whole ? 0 : map_for_device(port, mem->addr, mem->len);
	}
	mem->pages = physical_pages(mem->addr, mem->len);
	mem->is_copied = !mem->pages;
	return 0;
}

bool mem_is_reachable(const struct port_mem *mem)
{
	return !mem->is_copied;
}

bool mem_may_vanish(const struct dpdk_port *port, const struct port_packet *packet)
{
	for (uint8_t i = 0; i < packet->n_pieces; i++)
		if (packet->pieces[i].may_fault &&
			(port->cpu_reads_payload || packet->pieces[i].mem->pages))
			return true;
	return false;
}

rte_iova_t mem_bus_address(const struct port_mem *mem, const uint8_t *addr, uint32_t *len)
{
	return mem->pages ? physical_address(mem->pages, addr - mem->addr, len) : (uintptr_t)addr;
}

int mem_map(struct port *base, void *addr, size_t len, struct port_mem **ret_mem)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t start = RTE_ALIGN_FLOOR((uintptr_t)addr, page);
	uintptr_t end = RTE_ALIGN_CEIL((uintptr_t)addr + len, page);
	struct port_mem *mem;
	int err;

	mem = calloc(1, sizeof(*mem));
	if (!mem)
		return frl_fail(-ENOMEM, "no memory for a memory registration");
	mem->addr = (uint8_t *)start;
	mem->len = end - start;
	mem->users = 1;
	mem->shared.free_cb = never_freed;
	rte_mbuf_ext_refcnt_set(&mem->shared, 1);
	err = reach(port, mem);
	if (err)
		goto err_free;
	if (mem->whole)
		LIST_INSERT_HEAD(&port->covered, mem, next);
	else
		LIST_INSERT_HEAD(&port->mapped, mem, next);
	*ret_mem = mem;
	return 0;

err_free:
	free(mem);
	return err;
}

static bool is_referred_to(const struct port_mem *mem)
{
	return rte_mbuf_ext_refcnt_read(&mem->shared) > 1;
}

/* NIC drivers keep sent packets until they need the slots in their ring. */
bool mem_idle(struct port *base, const struct port_mem *mem)
{
	struct dpdk_port *port = (struct dpdk_port *)base;

	if (is_referred_to(mem) && port->holds_payload)
		rte_eth_tx_done_cleanup(port->ethdev, 0, 0);
	return !is_referred_to(mem);
}

/* Sends a frame from the port to itself, which no switch forwards. Returns false without room. */
static bool send_filler(struct dpdk_port *port)
{
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(port->rx_pool);
	struct rte_ether_hdr *ether;

	if (!mbuf)
		return false;
	mbuf->data_len = mbuf->pkt_len = ETH_MIN_FRAME;
	ether = rte_pktmbuf_mtod(mbuf, struct rte_ether_hdr *);
	memset(ether, 0, ETH_MIN_FRAME);
	memcpy(&ether->dst_addr, port->base.caps.mac, sizeof(ether->dst_addr));
	memcpy(&ether->src_addr, port->base.caps.mac, sizeof(ether->src_addr));
	ether->ether_type = rte_cpu_to_be_16(ETHERTYPE_EXPERIMENT);
	if (rte_eth_tx_burst(port->ethdev, 0, &mbuf, 1) == 1)
		return true;
	rte_pktmbuf_free(mbuf);
	return false;
}

/*
 * Most drivers' rte_eth_tx_done_cleanup() does not free the next slot of the ring, which may hold a
 * packet of the previous round. Another packet takes that slot and frees it. The slot after it is
 * then free, so one filler frame suffices.
 *
 * Without a link nothing is sent. Waiting packets are sent again anyway, so the device is
 * restarted. A restart also trains the link anew, so it is done only if packets were queued since
 * the last one.
 */
bool mem_flush(struct port *base, const struct port_mem *mem)
{
	struct dpdk_port *port = (struct dpdk_port *)base;

	if (mem_idle(base, mem) || !port->holds_payload)
		return !is_referred_to(mem);
	if (ethdev_link_state(base, 0) == PORT_LINK_DOWN) {
		if (port->restarted != port->queued)
			ethdev_restart(port);
		port->restarted = port->queued;
	} else if (port->flushed != port->queued && send_filler(port)) {
		port->flushed = port->queued;
	}
	return mem_idle(base, mem);
}

/* Drops one use of a device map. The last use removes it. */
static void put(struct dpdk_port *port, struct port_mem *mem)
{
	if (--mem->users)
		return;
	if (port->needs_dma && !port->cpu_reads_payload && !mem->pages && !mem->is_copied) {
		rte_dev_dma_unmap(port->device, mem->addr, (uintptr_t)mem->addr, mem->len);
		rte_extmem_unregister(mem->addr, mem->len);
	}
	LIST_REMOVE(mem, next);
	free(mem->pages);
	free(mem);
}

static void unmap(struct dpdk_port *port, struct port_mem *mem)
{
	struct port_mem *whole = mem->whole;

	if (!whole) {
		put(port, mem);
		return;
	}
	LIST_REMOVE(mem, next);
	free(mem);
	put(port, whole);
}

void mem_unmap(struct port *base, struct port_mem *mem)
{
	assert(mem_idle(base, mem));
	unmap((struct dpdk_port *)base, mem);
}

/* Free memory first that uses the maps of others. */
void mem_forget(struct dpdk_port *port)
{
	while (!LIST_EMPTY(&port->covered))
		unmap(port, LIST_FIRST(&port->covered));
	while (!LIST_EMPTY(&port->mapped))
		unmap(port, LIST_FIRST(&port->mapped));
}
