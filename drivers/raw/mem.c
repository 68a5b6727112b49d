/* SPDX-License-Identifier: BSD-3-Clause */
/* Payload by reference: memory regions from which the NIC sends. */
#include "drivers/raw/internal.h"

#include <assert.h>
#include <stdlib.h>

#include "lib/base/error.h"

/*
 * Returns a region that contains the memory. Sharing it saves a system call, and a key, of which
 * the NIC caches few. A region whose own memory was unmapped does not qualify: other pages may be
 * at its addresses by now.
 */
static struct raw_region *find_cover(const struct raw_port *port, const uint8_t *addr, size_t len)
{
	for (struct list *at = port->regions.next; at != &port->regions; at = at->next) {
		struct raw_region *region = container_of(at, struct raw_region, node);

		if (region->addr <= addr && len <= region->len &&
			(size_t)(addr - region->addr) <= region->len - len)
			return region;
	}
	return NULL;
}

/* Creates memory that shares a region. NULL: with a new region of its own. */
static struct port_mem *new_mem(struct raw_region *region)
{
	struct port_mem *mem = calloc(1, sizeof(*mem));

	if (mem) {
		mem->is_first = !region;
		mem->region = region ? region : calloc(1, sizeof(*region));
	}
	if (!mem || !mem->region) {
		free(mem);
		frl_fail(-ENOMEM, "no memory for a memory registration");
		return NULL;
	}
	if (mem->is_first)
		list_init(&mem->region->node);
	return mem;
}

static void add(struct raw_port *port, struct port_mem *mem)
{
	mem->mr = mem->region->mr;
	mem->region->n_mems++;
	list_add_tail(&port->mems, &mem->node);
}

/* Handles the result of registering `mem`. */
static int end(struct raw_port *port, struct port_mem *mem, struct ibv_mr *mr, const char *what,
	struct port_mem **ret_mem)
{
	int err = verbs_null_errno();

	mem->region->mr = mr;
	if (mr) {
		add(port, mem);
		if (mem->region->len)
			list_add_tail(&port->regions, &mem->region->node);
		*ret_mem = mem;
		return 0;
	}
	free(mem->region);
	free(mem);
	return raw_fail(port, err, what);
}

int raw_mem_map(struct port *base, void *addr, size_t len, struct port_mem **ret_mem)
{
	struct raw_port *port = (struct raw_port *)base;
	struct port_mem *mem = new_mem(find_cover(port, addr, len));

	if (!mem)
		return -ENOMEM;
	if (!mem->is_first) {
		add(port, mem);
		*ret_mem = mem;
		return 0;
	}
	mem->region->addr = addr;
	mem->region->len = len;
	errno = 0;
	/* The NIC only reads. */
	return end(port, mem, (ibv_reg_mr)(port->pd, addr, len, 0),
		"cannot register memory to send from", ret_mem);
}

int raw_mem_map_far(struct port *base, void *addr, size_t len, int fd, uint64_t offset,
	struct port_mem **ret_mem)
{
	struct raw_port *port = (struct raw_port *)base;
	struct port_mem *mem;

	/* The processor cannot copy pieces that do not fit into one request. */
	if (port->max_sge < RAW_MAX_SGE)
		return frl_fail(-ENOTSUP,
			"%s sends packets of %u pieces at most, but packets from GPU memory have "
			"up to %d",
			port->name, port->max_sge, RAW_MAX_SGE);
	mem = new_mem(NULL);
	if (!mem)
		return -ENOMEM;
	return end(port, mem, raw_far_region(port, addr, len, fd, offset, 0),
		fd < 0 ? "cannot register GPU memory by its address (nvidia_peermem)"
		       : "cannot register GPU memory by its dma-buf",
		ret_mem);
}

bool raw_mem_idle(struct port *base, const struct port_mem *mem)
{
	/* Poll here: maybe nothing more is sent, and no burst polls. */
	if (mem->users)
		raw_reap((struct raw_port *)base);
	return mem->users == 0;
}

static void unmap(struct raw_port *port, struct port_mem *mem)
{
	struct raw_region *region = mem->region;

	list_remove(&mem->node);
	if (mem->is_first)
		list_remove(&region->node);
	free(mem);
	if (--region->n_mems)
		return;
	raw_destroyed(
		port, ibv_dereg_mr(region->mr), "cannot deregister memory that was sent from");
	free(region);
}

void raw_mem_unmap(struct port *base, struct port_mem *mem)
{
	assert(mem->users == 0);
	unmap((struct raw_port *)base, mem);
}

void raw_mem_forget(struct raw_port *port)
{
	while (!list_empty(&port->mems))
		unmap(port, container_of(port->mems.next, struct port_mem, node));
}
