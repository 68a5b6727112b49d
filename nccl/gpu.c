/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/gpu.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ferrule/gpu.h>

#include "nccl/abi.h"
#include "nccl/log.h"
#include "nccl/settings.h"

static void note(struct net_gpus *gpus, const char *text)
{
	if (!*gpus->why_not && *text)
		snprintf(gpus->why_not, sizeof(gpus->why_not), "%s", text);
}

void net_gpus_look(struct net_gpus *ret_gpus)
{
	struct net_gpus gpus = { .exports_dmabuf = true, .has_peermem = true, .has_kernels = true };
	struct frl_gpu_info *infos;
	size_t n = 0, usable = 0;

	if (frl_gpu_list(&infos, &n)) {
		note(&gpus, frl_last_error());
		infos = NULL;
		n = 0;
	}
	for (size_t i = 0; i < n; i++) {
		const struct frl_gpu_info *info = &infos[i];

		usable += info->usable;
		gpus.exports_dmabuf &= info->usable && info->exports_dmabuf;
		gpus.has_peermem &= info->usable && info->has_peermem;
		gpus.has_kernels &= info->usable && info->has_kernels;
		gpus.needs_flush |= info->needs_flush;
		note(&gpus, info->reason);
	}
	frl_gpu_list_free(infos);
	if (!usable) {
		gpus.exports_dmabuf = gpus.has_peermem = gpus.has_kernels = false;
		note(&gpus, "there is no GPU that can be used");
	}
	*ret_gpus = gpus;
}

static bool is_tier(const char *name)
{
	const char *tier = net_settings()->gpu_tier;

	return strcmp(tier, "auto") == 0 || strcmp(tier, name) == 0;
}

bool net_port_may_take_gpus(const struct port_info *port)
{
	if (net_settings()->gpu == NET_GPU_NEVER)
		return false;
	if (port->is_hardware)
		return is_tier("dma-buf") || is_tier("peermem");
	return net_settings()->gpu == NET_GPU_ALWAYS && is_tier("mapped");
}

void net_port_explain_setting(const struct port_info *port)
{
	if (net_settings()->gpu == NET_GPU_ALWAYS)
		net_log_warning("%s takes no memory of GPUs, though FERRULE_GPU=1: with "
				"FRL_GPU_TIER=%s there is no way for it",
			port->name, net_settings()->gpu_tier);
}

/* nvidia-peermem translates for drivers that ask it: of those in use that is mlx5. */
static bool asks_peermem(const struct port_info *port)
{
	char link[sizeof(port->pci_path) + 16], driver[PATH_MAX];
	const char *name;
	ssize_t n;

	if (!*port->pci_path)
		return false;
	snprintf(link, sizeof(link), "%s/driver", port->pci_path);
	n = readlink(link, driver, sizeof(driver) - 1);
	if (n <= 0)
		return false;
	driver[n] = '\0';
	name = strrchr(driver, '/');
	return strcmp(name ? name + 1 : driver, "mlx5_core") == 0;
}

static int pointers_of_nic(const struct port_info *port, const struct net_gpus *gpus)
{
	if (port->takes_dmabuf && gpus->exports_dmabuf && is_tier("dma-buf"))
		return NCCL_PTR_CUDA | NCCL_PTR_DMABUF;
	return gpus->has_peermem && is_tier("peermem") && asks_peermem(port) ? NCCL_PTR_CUDA : 0;
}

/* What is said of a GPU may be of what a NIC does not need: kernels. */
static const char *reason_of(const struct port_info *port, const struct net_gpus *gpus)
{
	if (*gpus->why_not && !(port->is_hardware && gpus->exports_dmabuf))
		return gpus->why_not;
	return "its driver takes no dma-buf here, and nvidia-peermem is not there for it";
}

void net_port_take_gpus(struct port_info *port, const struct net_gpus *gpus)
{
	if (port->is_hardware)
		port->pointers |= pointers_of_nic(port, gpus);
	else if (gpus->has_kernels)
		port->pointers |= NCCL_PTR_CUDA;
	if (!(port->pointers & NCCL_PTR_CUDA)) {
		if (net_settings()->gpu == NET_GPU_ALWAYS)
			net_log_warning("%s takes no memory of GPUs, though FERRULE_GPU=1: %s",
				port->name, reason_of(port, gpus));
		return;
	}
	port->needs_flush = port->is_hardware && gpus->needs_flush;
	/*
	 * NCCL polls flags inside the data with LL128, which kernels do not write in order. It does
	 * so where NIC and GPU are near each other; software ports that take memory of GPUs are
	 * near to none.
	 */
	if (!port->is_hardware)
		port->pci_path[0] = '\0';
}
