/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet buffers. One thread at a time uses a port's pools (the engine's owner, under the guard),
 * so their free lists are plain stacks without atomics. The buffer freed last, still in the cache,
 * is the next one handed out.
 */
#include "drivers/dpdk/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_version.h>

#include "lib/base/error.h"

#define STACK_OPS "ferrule_stack"

enum {
	HEADER_TO_PAYLOAD = 54, /* Ethernet, IPv4, UDP, BTH */
	/* Aligns the payload after those headers, if added to a 64-byte aligned address. */
	RX_SKEW = (64 - (RTE_PKTMBUF_HEADROOM + HEADER_TO_PAYLOAD) % 64) % 64,
	TX_ROOM = RTE_ALIGN_CEIL(PORT_HEADER_ROOM + PORT_TRAILER_ROOM, 64),
	HUGE_PAGE = 2 << 20, /* smallest size */
};

struct stack {
	uint32_t n, size;
	void *objects[];
};

static int stack_alloc(struct rte_mempool *pool)
{
	struct stack *stack = rte_zmalloc_socket(
		STACK_OPS, sizeof(*stack) + pool->size * sizeof(void *), 0, pool->socket_id);

	if (!stack)
		return -ENOMEM;
	stack->size = pool->size;
	pool->pool_data = stack;
	return 0;
}

static void stack_free(struct rte_mempool *pool)
{
	rte_free(pool->pool_data);
}

static int stack_enqueue(struct rte_mempool *pool, void *const *objects, unsigned int n)
{
	struct stack *stack = pool->pool_data;

	assert(stack->n + n <= stack->size);
	memcpy(stack->objects + stack->n, objects, n * sizeof(void *));
	stack->n += n;
	return 0;
}

static int stack_dequeue(struct rte_mempool *pool, void **objects, unsigned int n)
{
	struct stack *stack = pool->pool_data;

	if (n > stack->n)
		return -ENOBUFS;
	stack->n -= n;
	memcpy(objects, stack->objects + stack->n, n * sizeof(void *));
	return 0;
}

static unsigned int stack_count(const struct rte_mempool *pool)
{
	const struct stack *stack = pool->pool_data;

	return stack->n;
}

int pool_register_ops(void)
{
	static const struct rte_mempool_ops ops = {
		.name = STACK_OPS,
		.alloc = stack_alloc,
		.free = stack_free,
		.enqueue = stack_enqueue,
		.dequeue = stack_dequeue,
		.get_count = stack_count,
	};
	int index = rte_mempool_register_ops(&ops);

	return index < 0 ? index : 0;
}

/* The memory available for buffers. */
struct buffers {
	uint8_t *next, *end;
	uint32_t stride;
	bool too_few;
};

/* Payload buffers are pinned: the mbuf never releases its own. */
static void never_freed(void *addr, void *opaque)
{
	assert(!"the base reference of a pinned buffer is never dropped");
}

/* Returns the device's address of `len` bytes in EAL's memory, or RTE_BAD_IOVA if there is none or
 * they are not contiguous. */
static rte_iova_t bus_address(const uint8_t *addr, uint32_t len)
{
	rte_iova_t first = rte_mem_virt2iova(addr);

	if (first == RTE_BAD_IOVA || rte_mem_virt2iova(addr + len - 1) != first + len - 1)
		return RTE_BAD_IOVA;
	return first;
}

static void init_rx_mbuf(struct rte_mempool *pool, void *arg, void *object, unsigned int i)
{
	struct buffers *buffers = arg;
	struct rte_mbuf *mbuf = object;
	struct rte_mbuf_ext_shared_info *shared = (void *)(mbuf + 1);
	uint16_t room = rte_pktmbuf_data_room_size(pool);
	rte_iova_t iova = RTE_BAD_IOVA;

	rte_pktmbuf_init(pool, NULL, mbuf, i);
	while (iova == RTE_BAD_IOVA && buffers->end - buffers->next >= buffers->stride) {
		mbuf->buf_addr = buffers->next + RX_SKEW;
		iova = bus_address(mbuf->buf_addr, room);
		buffers->next += buffers->stride;
	}
	if (iova == RTE_BAD_IOVA)
		buffers->too_few = true;
	rte_mbuf_iova_set(mbuf, iova);
	mbuf->buf_len = room;
	mbuf->ol_flags = RTE_MBUF_F_EXTERNAL;
	shared->free_cb = never_freed;
	shared->fcb_opaque = mbuf;
	rte_mbuf_ext_refcnt_set(shared, 1);
	mbuf->shinfo = shared;
}

static uint32_t next_number(void)
{
	static atomic_uint number;

	return atomic_fetch_add(&number, 1);
}

/* Buffers are contiguous. With physical addresses, buffers that would cross into a page elsewhere
 * are left out: at most one per page. */
static const struct rte_memzone *reserve_buffers(const char *name, uint32_t n, uint32_t stride)
{
	size_t len = (size_t)n * stride;

	if (rte_eal_iova_mode() == RTE_IOVA_PA)
		len += (len / (HUGE_PAGE - stride) + 1) * stride;
	return rte_memzone_reserve_aligned(
		name, len, SOCKET_ID_ANY, RTE_MEMZONE_SIZE_HINT_ONLY, 4096);
}

/*
 * Like rte_pktmbuf_pool_create_extbuf(), which does not let the caller choose the free list. The
 * buffers' memory is a memzone with the same name.
 */
static struct rte_mempool *create_rx_pool(const char *name, uint32_t n, uint32_t frame_room)
{
	uint32_t room = RTE_PKTMBUF_HEADROOM + frame_room;
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = room,
		.flags = RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF,
	};
	struct buffers buffers = { .stride = RTE_ALIGN_CEIL(RX_SKEW + room, 64) };
	const struct rte_memzone *zone;
	struct rte_mempool *pool;
	int err;

	assert(room <= UINT16_MAX);
	zone = reserve_buffers(name, n, buffers.stride);
	if (!zone)
		return NULL;
	buffers.next = zone->addr;
	buffers.end = buffers.next + zone->len;
	/* No device reads the objects themselves. */
	pool = rte_mempool_create_empty(name, n,
		sizeof(struct rte_mbuf) + sizeof(struct rte_mbuf_ext_shared_info), 0,
		sizeof(private), SOCKET_ID_ANY, RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (!pool) {
		err = rte_errno;
		goto err_free_zone;
	}
	err = -rte_mempool_set_ops_byname(pool, STACK_OPS, NULL);
	if (err)
		goto err_free_pool;
	rte_pktmbuf_pool_init(pool, &private);
	err = -rte_mempool_populate_default(pool);
	if (err > 0)
		goto err_free_pool;
	rte_mempool_obj_iter(pool, init_rx_mbuf, &buffers);
	err = ENOMEM;
	if (buffers.too_few)
		goto err_free_pool;
	return pool;

err_free_pool:
	rte_mempool_free(pool);
err_free_zone:
	rte_memzone_free(zone);
	rte_errno = err;
	return NULL;
}

static void destroy_rx_pool(struct rte_mempool *pool)
{
	const struct rte_memzone *zone = rte_memzone_lookup(pool->name);

	rte_mempool_free(pool);
	if (zone)
		rte_memzone_free(zone);
}

/* DPDK creates each pool with its own free list before ours is set. */
static int check_ring_ops(void)
{
	int abi = RTE_VER_YEAR + (RTE_VER_MONTH == 11);

	for (uint32_t i = 0; i < rte_mempool_ops_table.num_ops; i++)
		if (strcmp(rte_mempool_ops_table.ops[i].name, "ring_mp_mc") == 0)
			return 0;
	return frl_fail(-ENODEV,
		"DPDK cannot create packet buffers: librte_mempool_ring.so is missing from its "
		"driver folder: install it (Debian: librte-mempool-ring%d)",
		abi);
}

static int create_failed(int err, uint32_t n_rx, uint32_t n_tx, uint32_t frame_room)
{
	return frl_fail(-ENOMEM,
		"no memory for %u receive buffers of %u bytes and %u send buffers (%s): %s", n_rx,
		frame_room, n_tx, frl_strerror(err),
		rte_eal_has_hugepages() ? "reserve more huge pages"
					: "raise DPDK's memory: FRL_EAL_ARGS=\"-m 1024\" (MiB)");
}

int pool_create(struct dpdk_port *port, uint32_t n_rx, uint32_t n_tx, uint32_t frame_room)
{
	uint32_t number = next_number();
	char name[RTE_MEMPOOL_NAMESIZE];
	int err = check_ring_ops();

	if (err)
		return err;
	snprintf(name, sizeof(name), "frl_rx%u", number);
	if (port->needs_objects)
		port->rx_pool = rte_pktmbuf_pool_create_by_ops(name, n_rx, 0, 0,
			RTE_PKTMBUF_HEADROOM + frame_room, SOCKET_ID_ANY, STACK_OPS);
	else
		port->rx_pool = create_rx_pool(name, n_rx, frame_room);
	if (!port->rx_pool)
		return create_failed(rte_errno, n_rx, n_tx, frame_room);
	snprintf(name, sizeof(name), "frl_tx%u", number);
	port->tx_pool = rte_pktmbuf_pool_create_by_ops(
		name, n_tx, 0, 0, TX_ROOM, SOCKET_ID_ANY, STACK_OPS);
	if (port->tx_pool)
		return 0;
	err = rte_errno;
	destroy_rx_pool(port->rx_pool);
	port->rx_pool = NULL;
	return create_failed(err, n_rx, n_tx, frame_room);
}

/* The requested piece of a pool's memory. */
struct piece {
	unsigned index;
	void *addr;
	size_t len;
};

static void find_piece(
	struct rte_mempool *pool, void *arg, struct rte_mempool_memhdr *memory, unsigned index)
{
	struct piece *piece = arg;

	if (index == piece->index) {
		piece->addr = memory->addr;
		piece->len = memory->len;
	}
}

bool pool_memory(struct port *base, unsigned index, void **ret_addr, size_t *ret_len)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	const struct rte_memzone *zone = rte_memzone_lookup(port->rx_pool->name);
	struct piece piece = { .index = index };

	if (!zone)
		rte_mempool_mem_iter(port->rx_pool, find_piece, &piece);
	else if (index == 0)
		piece = (struct piece){ .addr = zone->addr, .len = zone->len };
	if (!piece.addr)
		return false;
	*ret_addr = piece.addr;
	*ret_len = piece.len;
	return true;
}

bool pool_take(struct port *base, struct port_frame *ret_frame)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	struct rte_mbuf *mbuf = rte_pktmbuf_alloc(port->rx_pool);

	if (!mbuf)
		return false;
	*ret_frame = (struct port_frame){
		.data = rte_pktmbuf_mtod(mbuf, uint8_t *),
		.handle = mbuf,
	};
	return true;
}

void pool_destroy(struct dpdk_port *port)
{
	rte_mempool_free(port->tx_pool);
	if (port->rx_pool)
		destroy_rx_pool(port->rx_pool);
}
