/* SPDX-License-Identifier: BSD-3-Clause */
/* Start and end of the plugin, and the entry points that only forward a call. */
#include "nccl/net.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "nccl/comm.h"
#include "nccl/connect/daemon_address.h"
#include "nccl/gpu_resources.h"
#include "nccl/log.h"
#include "nccl/settings.h"
#include "nccl/connect/setup.h"
#include "nccl/api/tuner.h"

enum { WHY = 400 };

struct net_context {
	int traffic_class;
	uint64_t comm_id;
	nccl_profiler_fn profiler;
	unsigned shard; /* for devices with shards */
};

/* Serializes the creation and end of contexts: the last one ends what all contexts share. */
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned contexts;
static unsigned contexts_of[NET_SHARDS];
static _Atomic(nccl_profiler_fn) profiler_of_all; /* before v11 */

static const char *progress_of(const struct port_info *info)
{
	return info->is_hardware ? "the NIC's" : "NCCL's threads or the library's (FRL_PROGRESS)";
}

static const char *memory_of(const struct port_info *info)
{
	if (info->unpacks)
		return "the host and GPUs (NCCL's kernels unpack it)";
	if (!info->pointers)
		return "the host";
	return info->is_hardware ? "the host and GPUs (the NIC accesses it)"
				 : "the host and GPUs (kernels move it)";
}

static const char *speed_of(const struct port_info *info, char *text, size_t size)
{
	if (!info->speed_mbps)
		return "speed known when open";
	snprintf(text, size, "%d Mbit/s", info->speed_mbps);
	return text;
}

static void warn_of_order(void)
{
	if (net_settings()->nccl.protocols.forces_ll128 && net_devices_receive_on_host())
		net_log_warning("NCCL_PROTO forces LL128 (so does ^LL), which may read incomplete "
				"data where no NIC writes into GPU memory. Exclude LL128");
	if (net_settings()->is_relaxed)
		net_log_warning(
			"FRL_RELAXED_ORDERING=on lets a NIC reorder writes: LL and LL128 may read "
			"incomplete data. Leave it at auto, or set NCCL_PROTO=Simple");
}

/* Logs the devices and settings, once. */
static void log_devices(void)
{
	static atomic_flag is_done = ATOMIC_FLAG_INIT;
	const struct net_settings *settings = net_settings();
	char speed[32];
	int n;

	if (atomic_flag_test_and_set(&is_done))
		return;
	net_devices(&n);
	net_log_info("version " FERRULE_VERSION ", net plugin tables v6 to v12, %d device%s", n,
		n == 1 ? "" : "s");
	for (int i = 0; i < n; i++) {
		const struct port_info *info = &net_port_at(net_device_at(i), 0)->info;

		net_log_info("device %d: %s, %s, PCI %s, memory of %s, progress: %s", i, info->name,
			speed_of(info, speed, sizeof(speed)),
			*info->pci_path ? info->pci_path : "none", memory_of(info),
			progress_of(info));
	}
	net_log_info("settings: FERRULE_DEVICES=\"%s\" FERRULE_QPS=%d FERRULE_TIMEOUT_S=%d "
		     "FERRULE_REQUIRE=%d FERRULE_GPU=%s FERRULE_UNPACK=%d FERRULE_LOG=%s",
		settings->devices, settings->qps, settings->timeout_s, settings->is_required,
		net_gpu_setting(), settings->unpack, settings->log);
	warn_of_order();
}

static int find_devices(void)
{
	char why[WHY], text[WHY + 100];
	int err = 0;

	if (net_settings_error()) {
		err = -EINVAL;
		snprintf(why, sizeof(why), "%s", net_settings_error());
	} else {
		err = net_devices_find(why, sizeof(why));
	}
	if (!err)
		return 0;
	net_log_warning("%s", why);
	if (!net_settings()->is_required)
		return err;
	/* Otherwise NCCL would use another transport, and the job would be slow for no visible
	 * reason. */
	snprintf(text, sizeof(text), "FERRULE_REQUIRE is set and Ferrule cannot be used: %s", why);
	net_devices_refuse(text);
	return 0;
}

/* Returns the shard that the fewest contexts use. Requires `contexts_lock`. */
static unsigned take_shard(void)
{
	unsigned least = 0;

	for (unsigned s = 1; s < NET_SHARDS; s++)
		if (contexts_of[s] < contexts_of[least])
			least = s;
	contexts_of[least]++;
	return least;
}

/* Requires `contexts_lock`. */
static int start(void)
{
	int err;

	if (!contexts) {
		/* Before v11, NCCL does not report the end of a communicator. */
		net_cleanup_wait();
		net_devices_reset();
	}
	err = find_devices();
	if (err)
		return err;
	log_devices();
	if (!net_devices_are_refused())
		net_daemon_address_query();
	return 0;
}

int net_init(const struct net_config *config, nccl_log_fn log, nccl_profiler_fn profiler,
	struct net_context **ret_context)
{
	struct net_context *context = ret_context ? malloc(sizeof(*context)) : NULL;
	int err;

	net_log_to(log);
	if (ret_context && !context) {
		net_log_warning("no memory for a communicator");
		return NCCL_SYSTEM_ERROR;
	}
	pthread_mutex_lock(&contexts_lock);
	err = start();
	if (!err && context) {
		contexts++;
		context->shard = take_shard();
	}
	pthread_mutex_unlock(&contexts_lock);
	if (err) {
		free(context);
		return net_result_of(err);
	}
	net_gpu_resources_add_current(true);
	if (!context) {
		atomic_store(&profiler_of_all, profiler);
		return NCCL_SUCCESS;
	}
	context->traffic_class = config ? config->traffic_class : NCCL_TRAFFIC_CLASS_UNDEFINED;
	context->comm_id = config ? config->comm_id : 0;
	context->profiler = profiler;
	*ret_context = context;
	return NCCL_SUCCESS;
}

int net_finalize(struct net_context *context)
{
	if (!context)
		return NCCL_SUCCESS;
	pthread_mutex_lock(&contexts_lock);
	net_connects_end(context);
	net_tuner_context_ended(&context->comm_id);
	contexts_of[context->shard]--;
	free(context);
	if (--contexts == 0) {
		net_tuner_context_ended(NULL);
		net_connects_end(NULL);
		net_cleanup_wait();
		net_daemon_address_wait();
		net_devices_close();
	}
	pthread_mutex_unlock(&contexts_lock);
	return NCCL_SUCCESS;
}

void net_warn_of_name(const struct nccl_net_v11 *table)
{
	static atomic_flag has_warned = ATOMIC_FLAG_INIT;
	void *library = dlopen("libnccl-net.so", RTLD_LAZY | RTLD_NOLOAD);
	bool is_here = library && dlsym(library, "ncclNetPlugin_v11") == table;

	if (library)
		dlclose(library);
	if (!is_here && !net_settings()->keeps_plugin && !atomic_flag_test_and_set(&has_warned))
		net_log_warning("NCCL drops NCCL_NET_PLUGIN with its last communicator, and %s: "
				"set NCCL_NET_PLUGIN_REF_COUNT=1 if more communicators follow",
			library ? "another libnccl-net.so is loaded" : "finds no libnccl-net.so");
}

static struct net_device *find_device(const struct net_context *context, int dev)
{
	struct net_device *device = net_device_at(dev);

	if (!device)
		net_log_warning("there is no device %d", dev);
	return device && context ? net_device_shard(device, context->shard) : device;
}

static int choose_class(const struct net_context *context, const struct net_config *config)
{
	if (config)
		return config->traffic_class;
	return context ? context->traffic_class : NCCL_TRAFFIC_CLASS_UNDEFINED;
}

int net_listen(struct net_context *context, int dev, void *handle, struct listener **ret_listener)
{
	struct net_device *device = find_device(context, dev);

	if (!device)
		return NCCL_INVALID_ARGUMENT;
	return net_result_of(net_listener_open(device, dev, choose_class(context, NULL),
		context ? &context->comm_id : NULL, handle, ret_listener));
}

int net_connect(struct net_context *context, const struct net_config *config, int dev, void *handle,
	struct comm **ret_comm)
{
	struct net_device *device = find_device(context, dev);

	if (!device)
		return NCCL_INVALID_ARGUMENT;
	return net_result_of(net_connect_step(context, device, dev, choose_class(context, config),
		context ? context->profiler : atomic_load(&profiler_of_all), handle, ret_comm));
}
