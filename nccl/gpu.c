/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/gpu.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <ferrule/gpu.h>

#include "gpudirect/gpu.h"
#include "nccl/api/abi.h"
#include "nccl/log.h"
#include "nccl/settings.h"

static void note_reason(struct net_gpus *gpus, const char *text)
{
	if (!*gpus->why_not && *text)
		snprintf(gpus->why_not, sizeof(gpus->why_not), "%s", text);
}

void net_gpus_query(struct net_gpus *ret_gpus)
{
	struct net_gpus gpus = { .exports_dmabuf = true, .has_peermem = true, .has_kernels = true };
	struct frl_gpu_info *infos;
	size_t n = 0, usable = 0;

	if (frl_gpu_list(&infos, &n)) {
		note_reason(&gpus, frl_last_error());
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
		gpus.is_lazy |= info->loads_lazily;
		note_reason(&gpus, info->reason);
	}
	frl_gpu_list_free(infos);
	if (!usable) {
		gpus.exports_dmabuf = gpus.has_peermem = gpus.has_kernels = false;
		note_reason(&gpus, "no GPU is usable");
	}
	*ret_gpus = gpus;
}

static bool is_tier(const char *name)
{
	const char *tier = net_settings()->gpu_tier;

	return strcmp(tier, "auto") == 0 || strcmp(tier, name) == 0;
}

bool net_port_may_use_gpus(const struct port_info *port)
{
	if (net_settings()->gpu == NET_GPU_NEVER)
		return false;
	if (port->is_hardware)
		return is_tier("dma-buf") || is_tier("peermem");
	return net_settings()->gpu == NET_GPU_ALWAYS && (is_tier("mapped") || is_tier("nic-queue"));
}

void net_port_explain_setting(const struct port_info *port)
{
	if (net_settings()->gpu == NET_GPU_ALWAYS)
		net_log_warning("%s does not accept GPU memory, though FERRULE_GPU=%s: "
				"FRL_GPU_TIER=%s excludes all ways to access it",
			port->name, net_gpu_setting(), net_settings()->gpu_tier);
}

/* nvidia-peermem serves drivers that use its interface. The only supported driver that does is
 * mlx5. */
static bool driver_uses_peermem(const struct port_info *port)
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
	return gpus->has_peermem && is_tier("peermem") && driver_uses_peermem(port) ? NCCL_PTR_CUDA
										    : 0;
}

/* Returns why the port does not accept GPU memory. A GPU's reason may be about kernels, which a NIC
 * does not need. */
static const char *reason_of(const struct port_info *port, const struct net_gpus *gpus)
{
	if (!port->is_hardware && gpus->has_kernels)
		return "CUDA loads modules lazily, which can deadlock with NCCL's kernels: set "
		       "CUDA_MODULE_LOADING=EAGER before the process starts, or FERRULE_GPU=force "
		       "to accept the risk";
	if (*gpus->why_not && !(port->is_hardware && gpus->exports_dmabuf))
		return gpus->why_not;
	return "its driver does not accept dma-bufs, and nvidia-peermem does not serve it";
}

/* Warns once in a process: net_flush() calls the driver. */
static void warn_of_flushes(const struct port_info *port)
{
	static atomic_flag has_warned = ATOMIC_FLAG_INIT;

	if (!atomic_flag_test_and_set(&has_warned))
		net_log_warning("%s: flushes of GPU memory call CUDA, which loads modules lazily "
				"and may then wait for NCCL's kernels: set "
				"CUDA_MODULE_LOADING=EAGER before the process starts",
			port->name);
}

void net_port_set_gpus(struct port_info *port, const struct net_gpus *gpus)
{
	if (port->is_hardware)
		port->pointers |= pointers_of_nic(port, gpus);
	else if (gpus->has_kernels && (!gpus->is_lazy || net_settings()->forces_gpu))
		port->pointers |= NCCL_PTR_CUDA;
	if (!(port->pointers & NCCL_PTR_CUDA)) {
		if (net_settings()->gpu == NET_GPU_ALWAYS)
			net_log_warning("%s does not accept GPU memory, though FERRULE_GPU=%s: %s",
				port->name, net_gpu_setting(), reason_of(port, gpus));
		return;
	}
	port->needs_flush = port->is_hardware && gpus->needs_flush;
	if (port->needs_flush && gpus->is_lazy)
		warn_of_flushes(port);
	if (!port->is_hardware && gpus->is_lazy)
		net_log_info("%s accepts GPU memory because of FERRULE_GPU=force, though CUDA "
			     "loads modules lazily: the job may hang",
			port->name);
	/*
	 * With LL128 NCCL polls flags inside the data, but kernels do not write the data in order.
	 * If NCCL does not use the tuner (before 2.22), it selects LL128 when NIC and GPU are close
	 * to each other. So software ports that accept GPU memory have no PCI path.
	 */
	if (!port->is_hardware)
		port->pci_path[0] = '\0';
}

/* ---- receives that NCCL's kernels unpack */

static bool reaches_host(int ordinal)
{
	const struct cuda_api *cuda;
	struct gpu_caps caps;
	cu_device device;

	if (cuda_get(&cuda) || cuda->cuDeviceGet(&device, ordinal) != CUDA_SUCCESS)
		return false;
	gpu_read_caps(cuda, device, &caps);
	return caps.host_register;
}

/* NCCL may use any of the GPUs. None of Ferrule's kernels is needed. */
static bool all_gpus_reach_host(char *why, size_t size)
{
	struct frl_gpu_info *infos = NULL;
	size_t n = 0;
	bool reach;

	reach = frl_gpu_list(&infos, &n) == 0 && n && infos[0].ordinal >= 0;
	if (!reach)
		snprintf(why, size, "%s",
			n ? infos[0].reason : "no GPU is present, or no memory to list them");
	for (size_t i = 0; i < n && reach; i++) {
		reach = reaches_host(infos[i].ordinal);
		if (!reach)
			snprintf(why, size, "GPU %d cannot access host memory", infos[i].ordinal);
	}
	frl_gpu_list_free(infos);
	return reach;
}

static bool can_unpack(const struct port_info *ports, int n, char *why, size_t size)
{
	for (int i = 0; i < n; i++) {
		if (!ports[i].is_hardware)
			continue;
		snprintf(why, size, "%s is an RDMA NIC, which does not expose packets",
			ports[i].name);
		return false;
	}
	if (net_settings()->unpack_rule == NET_UNPACK_NEVER) {
		snprintf(why, size, "%s", net_settings()->unpack_why);
		return false;
	}
	if (net_settings()->gpu == NET_GPU_NEVER || strcmp(net_settings()->gpu_tier, "off") == 0) {
		snprintf(why, size, "FERRULE_GPU=0, or FRL_GPU_TIER=off");
		return false;
	}
	return all_gpus_reach_host(why, size);
}

void net_ports_choose_unpack(struct port_info *ports, int n)
{
	char why[512];

	if (!net_settings()->unpack)
		return;
	if (!can_unpack(ports, n, why, sizeof(why))) {
		net_log_warning("UNPACK is off, though FERRULE_UNPACK=1: %s", why);
		return;
	}
	net_log_info("UNPACK is on: NCCL's kernels fetch payload out of packets, as %s. It needs "
		     "NCCL_NET_GDR_LEVEL=SYS and, unless FERRULE_GPU=1, NCCL_NET_GDR_READ=0",
		net_settings()->unpack_why);
	for (int i = 0; i < n; i++) {
		ports[i].unpacks = true;
		/* Close to no GPU, as for ports whose payload Ferrule's kernels move. */
		ports[i].pci_path[0] = '\0';
	}
}
