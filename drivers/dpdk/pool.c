/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packet buffers. A port's pools are used by one thread at a time (the engine's owner, under the
 * guard), so their free lists are plain stacks: the buffer freed last, still in the cache, is the
 * next one handed out, and nothing is atomic.
 */
#include "drivers/dpdk/internal.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_mempool.h>
#include <rte_memzone.h>

#include "lib/base/error.h"

#define STACK_OPS "ferrule_stack"

enum {
	HEADER_TO_PAYLOAD = 54, /* Ethernet, IPv4, UDP, BTH */
	/* Added to a 64-byte aligned address, makes the payload behind those headers aligned too.
	 */
	RX_SKEW = (64 - (RTE_PKTMBUF_HEADROOM + HEADER_TO_PAYLOAD) % 64) % 64,
	TX_ROOM = RTE_ALIGN_CEIL(PORT_HEADER_ROOM + PORT_TRAILER_ROOM, 64),
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

struct buffers {
	uint8_t *start;
	rte_iova_t iova;
	uint32_t stride;
};

/* Our payload buffers are pinned: the mbuf never lets go of its own. */
static void never_freed(void *addr, void *opaque)
{
	assert(!"the base reference of a pinned buffer is never dropped");
}

static void init_rx_mbuf(struct rte_mempool *pool, void *arg, void *object, unsigned int i)
{
	struct buffers *buffers = arg;
	struct rte_mbuf *mbuf = object;
	struct rte_mbuf_ext_shared_info *shared = (void *)(mbuf + 1);
	size_t offset = (size_t)i * buffers->stride + RX_SKEW;

	rte_pktmbuf_init(pool, NULL, mbuf, i);
	mbuf->buf_addr = buffers->start + offset;
	rte_mbuf_iova_set(mbuf, buffers->iova + offset);
	mbuf->buf_len = rte_pktmbuf_data_room_size(pool);
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

static const struct rte_memzone *reserve_buffers(const char *name, size_t len)
{
	unsigned int flags = RTE_MEMZONE_SIZE_HINT_ONLY;

	if (rte_eal_iova_mode() == RTE_IOVA_PA)
		flags |= RTE_MEMZONE_IOVA_CONTIG;
	return rte_memzone_reserve_aligned(name, len, SOCKET_ID_ANY, flags, 4096);
}

/*
 * Like rte_pktmbuf_pool_create_extbuf, which does not let the caller choose the free list. The
 * buffers' memory is a memzone of the same name.
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
	zone = reserve_buffers(name, (size_t)n * buffers.stride);
	if (!zone)
		return NULL;
	buffers.start = zone->addr;
	buffers.iova = zone->iova;
	pool = rte_mempool_create_empty(name, n,
		sizeof(struct rte_mbuf) + sizeof(struct rte_mbuf_ext_shared_info), 0,
		sizeof(private), SOCKET_ID_ANY, 0);
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
	rte_memzone_free(zone);
}

int pool_create(struct dpdk_port *port, uint32_t n_rx, uint32_t n_tx, uint32_t frame_room)
{
	uint32_t number = next_number();
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "frl_rx%u", number);
	port->rx_pool = create_rx_pool(name, n_rx, frame_room);
	if (!port->rx_pool)
		goto err_fail;
	snprintf(name, sizeof(name), "frl_tx%u", number);
	port->tx_pool = rte_pktmbuf_pool_create_by_ops(
		name, n_tx, 0, 0, TX_ROOM, SOCKET_ID_ANY, STACK_OPS);
	if (!port->tx_pool)
		goto err_destroy_rx;
	return 0;

err_destroy_rx:
	destroy_rx_pool(port->rx_pool);
	port->rx_pool = NULL;
err_fail:
	return frl_fail(-ENOMEM,
		"no memory for %u receive buffers of %u bytes and %u send buffers (%s); raise "
		"eal_mem_mb",
		n_rx, frame_room, n_tx, frl_strerror(rte_errno));
}

bool pool_memory(struct port *base, unsigned index, void **ret_addr, size_t *ret_len)
{
	struct dpdk_port *port = (struct dpdk_port *)base;
	const struct rte_memzone *zone = index ? NULL : rte_memzone_lookup(port->rx_pool->name);

	if (!zone)
		return false;
	*ret_addr = zone->addr;
	*ret_len = zone->len;
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
