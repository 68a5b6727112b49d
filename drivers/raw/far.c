/* SPDX-License-Identifier: BSD-3-Clause */
/* Slots for received payload in the memory of a GPU. Only the NIC writes them. */
#include "drivers/raw/internal.h"

#include <stdio.h>
#include <unistd.h>

#include "gpudirect/alloc.h"
#include "gpudirect/gpu.h"
#include "gpudirect/memory.h"
#include "gpudirect/probe.h"
#include "lib/base/error.h"

/* The page size of the GPU driver's exports. A smaller allocation may share a page with others. */
enum { GPU_PAGE = 2 << 20 };

struct ibv_mr *raw_far_region(
	struct raw_port *port, void *addr, size_t len, int fd, uint64_t offset, int access)
{
	errno = 0;
	if (fd < 0)
		return (ibv_reg_mr)(port->pd, addr, len, access);
	return ibv_reg_dmabuf_mr(port->pd, offset, len, (uintptr_t)addr, fd, access);
}

static int by_dmabuf(struct raw_port *port, const struct gpu_memory *memory, size_t len)
{
	struct raw_far *far = &port->far;
	uint64_t offset;
	int fd, err, rc = gpu_memory_export(far->gpu, memory, far->memory, len, &fd, &offset);

	if (rc)
		return rc;
	far->mr = raw_far_region(port, far->memory, len, fd, offset, IBV_ACCESS_LOCAL_WRITE);
	err = verbs_null_errno();
	close(fd);
	if (far->mr)
		return 0;
	if (err == EOPNOTSUPP || err == ENOSYS || err == EPROTONOSUPPORT)
		return frl_fail(-ENOTSUP,
			"no dma-bufs: they need a NIC and driver that take them (mlx5), and Linux "
			"5.12");
	return raw_fail(port, err, "cannot register the dma-buf");
}

static int by_peermem(struct raw_port *port, size_t len)
{
	struct raw_far *far = &port->far;

	if (!probe_has_peermem())
		return frl_fail(-ENOTSUP,
			"no peermem: the kernel module nvidia_peermem is not loaded (modprobe "
			"nvidia-peermem)");
	far->mr = raw_far_region(port, far->memory, len, -1, 0, IBV_ACCESS_LOCAL_WRITE);
	return far->mr ? 0 : raw_fail(port, verbs_null_errno(), "cannot register it by peermem");
}

static int give(struct raw_port *port, size_t len)
{
	char why_dmabuf[ERROR_TEXT_MAX], why_peermem[ERROR_TEXT_MAX];
	struct gpu_memory memory;
	int rc = gpu_memory_of(port->far.memory, len, &memory);

	if (rc)
		return rc;
	rc = by_dmabuf(port, &memory, len);
	if (rc) {
		error_save(why_dmabuf);
		if (by_peermem(port, len) == 0)
			rc = 0;
	}
	if (!rc) {
		gpu_memory_sync(port->far.gpu, &memory, port->far.memory);
		return 0;
	}
	error_save(why_peermem);
	return frl_fail(rc == -ENOMEM ? rc : -ENOTSUP,
		"%s: the NIC cannot access memory of GPU %d, which gpu=%d requires: %.170s; "
		"%.120s; without gpu=, payload goes through host memory",
		port->name, port->wanted.gpu, port->wanted.gpu, why_dmabuf, why_peermem);
}

int raw_far_open(struct raw_port *port)
{
	struct raw_far *far = &port->far;
	size_t len = (size_t)port->n_slots * far->room;
	int rc = gpu_hold(NULL, port->wanted.gpu, &far->gpu);

	len = (len + GPU_PAGE - 1) / GPU_PAGE * GPU_PAGE;
	if (!rc)
		rc = gpu_alloc(far->gpu, len, &far->memory);
	return rc ? rc : give(port, len);
}

void raw_far_close(struct raw_port *port)
{
	struct raw_far *far = &port->far;

	if (far->mr)
		raw_destroyed(port, ibv_dereg_mr(far->mr), "cannot deregister GPU memory");
	if (far->gpu)
		gpu_free(far->gpu, far->memory);
	gpu_release(far->gpu);
	*far = (struct raw_far){ 0 };
}
