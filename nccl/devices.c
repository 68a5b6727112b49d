/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/devices.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "nccl/data/bounce.h"
#include "nccl/gpu.h"
#include "nccl/gpu_resources.h"
#include "nccl/log.h"
#include "nccl/settings.h"
#include "nccl/connect/setup.h"

enum {
	MAX_QPS = 32768,     /* of a software device, which supports more */
	BUSY_NS = 100000000, /* how long a NIC may still hold memory in its queue */
	/* The default for FRL_HELD_FRAMES, for ports with UNPACK: enough packet buffers for about
	 * forty connections with a path MTU of 4096. */
	UNPACK_FRAMES = 16384,
	/* The speed reported to NCCL if the speed is unknown. NCCL assumes the same. */
	UNKNOWN_MBPS = 10000,
};

static struct {
	pthread_mutex_t lock; /* protects the counts, and changes of what they count */
	int n_ports, n_devices;
	struct port_info found[NET_MAX_PORTS];
	/* Shard s of port p is at index s * NET_MAX_PORTS + p. For the device that consists of port
	 * p alone, it is at shards[s - 1][p]. */
	struct net_port ports[NET_SHARDS * NET_MAX_PORTS];
	struct net_device devices[NET_MAX_DEVICES];
	struct net_device shards[NET_SHARDS - 1][NET_MAX_PORTS];
	char refusal[512];
} all = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void fill(struct net_device *device, int index, const struct port_info *info)
{
	struct net_port *port = &all.ports[index];

	port->info = *info;
	atomic_store(&port->speed_mbps, info->speed_mbps);
	pthread_mutex_init(&port->lock, NULL);
	snprintf(device->name, sizeof(device->name), "%s", info->name);
	device->n_rails = 1;
	device->rails[0] = index;
}

static void add_port(const struct port_info *info)
{
	int number = all.n_ports++;

	fill(&all.devices[all.n_devices++], number, info);
	for (int s = 1; s < NET_SHARDS; s++)
		fill(&all.shards[s - 1][number], s * NET_MAX_PORTS + number, info);
}

/* Returns entry `i` of the ports and their shards, or NULL after the last one. */
static struct net_port *any_port(int i)
{
	if (i >= NET_SHARDS * all.n_ports)
		return NULL;
	return &all.ports[i / all.n_ports * NET_MAX_PORTS + i % all.n_ports];
}

/* With the lock held. A thread that opens or closes a port holds the port's lock, and counts as a
 * user. */
static bool is_idle(void)
{
	struct net_port *port;
	bool idle = true;

	for (int i = 0; idle && (port = any_port(i)); i++) {
		idle = pthread_mutex_trylock(&port->lock) == 0;
		if (!idle)
			break;
		idle = !port->users;
		pthread_mutex_unlock(&port->lock);
	}
	return idle;
}

void net_devices_reset(void)
{
	pthread_mutex_lock(&all.lock);
	if (is_idle())
		all.n_devices = *all.refusal ? 0 : all.n_ports;
	if (!all.n_devices)
		all.n_ports = 0;
	if (!all.n_devices)
		all.refusal[0] = '\0';
	pthread_mutex_unlock(&all.lock);
}

/* Queries CUDA once, and only if a port may use GPUs. */
static void find_gpus(struct port_info *ports, int n)
{
	struct net_gpus gpus;
	bool has_looked = false;

	for (int i = 0; i < n; i++) {
		if (!net_port_may_use_gpus(&ports[i])) {
			net_port_explain_setting(&ports[i]);
			continue;
		}
		if (!has_looked)
			net_gpus_query(&gpus);
		has_looked = true;
		net_port_set_gpus(&ports[i], &gpus);
	}
	net_ports_choose_unpack(ports, n);
}

int net_devices_find(char *why, size_t size)
{
	int err = 0, n = 0;

	pthread_mutex_lock(&all.lock);
	if (!all.n_devices) {
		err = net_ports_find(net_settings()->devices, net_settings()->is_named, all.found,
			&n, why, size);
		find_gpus(all.found, n);
		for (int i = 0; i < n; i++)
			add_port(&all.found[i]);
	}
	pthread_mutex_unlock(&all.lock);
	return err;
}

void net_devices_refuse(const char *why)
{
	const struct port_info none = { .name = "unusable", .port_number = 1, .speed_mbps = 1 };

	pthread_mutex_lock(&all.lock);
	snprintf(all.refusal, sizeof(all.refusal), "%s", why);
	if (!all.n_devices)
		add_port(&none);
	pthread_mutex_unlock(&all.lock);
}

bool net_devices_are_refused(void)
{
	bool is_refused;

	pthread_mutex_lock(&all.lock);
	is_refused = *all.refusal;
	pthread_mutex_unlock(&all.lock);
	return is_refused;
}

struct net_device *net_device_at(int dev)
{
	bool is_there;

	pthread_mutex_lock(&all.lock);
	is_there = dev >= 0 && dev < all.n_devices;
	pthread_mutex_unlock(&all.lock);
	return is_there ? &all.devices[dev] : NULL;
}

struct net_port *net_port_at(const struct net_device *device, int rail)
{
	return &all.ports[device->rails[rail]];
}

/* Devices with GPU memory have no shards: GPU resources exist only once. */
static bool has_shards(const struct net_device *device)
{
	const struct port_info *info = &net_port_at(device, 0)->info;

	return device->n_rails == 1 && strcmp(info->fabric, "local") == 0 && !*info->port &&
		!info->pointers;
}

struct net_device *net_device_shard(struct net_device *device, unsigned shard)
{
	return shard && has_shards(device) ? &all.shards[shard - 1][device->rails[0]] : device;
}

bool net_devices_receive_on_host(void)
{
	bool do_receive = net_settings()->gpu == NET_GPU_NEVER ||
		strcmp(net_settings()->gpu_tier, "off") == 0;

	pthread_mutex_lock(&all.lock);
	for (int i = 0; i < all.n_ports; i++)
		do_receive |= !all.ports[i].info.is_hardware;
	pthread_mutex_unlock(&all.lock);
	return do_receive;
}

float net_devices_step_us(void)
{
	float most = 0;

	pthread_mutex_lock(&all.lock);
	for (int i = 0; i < all.n_ports; i++)
		if (all.ports[i].info.step_us > most)
			most = all.ports[i].info.step_us;
	pthread_mutex_unlock(&all.lock);
	return most;
}

int net_device_pointers(const struct net_device *device)
{
	int pointers = NCCL_PTR_CUDA | NCCL_PTR_DMABUF;

	for (int i = 0; i < device->n_rails; i++)
		pointers &= net_port_at(device, i)->info.pointers;
	return pointers;
}

bool net_device_unpacks(const struct net_device *device)
{
	bool unpacks = true;

	for (int i = 0; i < device->n_rails; i++)
		unpacks &= net_port_at(device, i)->info.unpacks;
	return unpacks;
}

int net_devices(int *ret_n)
{
	pthread_mutex_lock(&all.lock);
	*ret_n = all.n_devices;
	pthread_mutex_unlock(&all.lock);
	return NCCL_SUCCESS;
}

/*
 * The speed of a leased port, or of a DPDK port with a PCI address, is known only when the port is
 * open. NCCL chooses its number of channels by the speed. A single port will be used, so open it.
 * Do not open one of several ports: NCCL uses only some of them, and an open port is not available
 * to other processes.
 */
static void find_speed(struct net_device *device)
{
	struct net_port *port = net_port_at(device, 0);

	if (all.n_ports != 1 || atomic_load(&port->speed_mbps) || net_devices_are_refused())
		return;
	if (net_device_acquire(device))
		atomic_store(&port->speed_mbps, UNKNOWN_MBPS); /* do not try again */
	else
		net_device_release(device);
}

int net_properties(int dev, struct net_properties *ret_properties)
{
	struct net_device *device = net_device_at(dev);
	struct port_info *first;

	if (!device) {
		net_log_warning("there is no device %d", dev);
		return NCCL_INVALID_ARGUMENT;
	}
	find_speed(device);
	first = &net_port_at(device, 0)->info;
	*ret_properties = (struct net_properties){
		.name = (char *)device->name,
		.pci_path = *first->pci_path ? first->pci_path : NULL,
		.guid = first->guid,
		.port = first->port_number,
		.max_comms = MAX_QPS / net_settings()->qps,
		.n_rails = device->n_rails,
		.pointers = NCCL_PTR_HOST | net_device_pointers(device),
		.unpacks = net_device_unpacks(device),
	};
	for (int i = 0; i < device->n_rails; i++) {
		struct net_port *port = net_port_at(device, i);
		const struct port_info *info = &port->info;
		int speed_mbps = atomic_load(&port->speed_mbps);

		/* The first devices are the ports, in the same order. */
		ret_properties->rails[i] = device->rails[i];
		ret_properties->speed_mbps += speed_mbps ? speed_mbps : UNKNOWN_MBPS;
		ret_properties->needs_flush |= info->needs_flush;
	}
	return NCCL_SUCCESS;
}

static int check_rails(const int *devices, int n)
{
	if (n < 1 || n > NET_MAX_RAILS || all.n_devices == NET_MAX_DEVICES) {
		net_log_warning(
			"cannot fuse %d devices: 1 to %d can be fused, and %d devices can exist", n,
			NET_MAX_RAILS, NET_MAX_DEVICES);
		return NCCL_INVALID_USAGE;
	}
	for (int i = 0; i < n; i++) {
		if (devices[i] < 0 || devices[i] >= all.n_ports) {
			net_log_warning(
				"cannot fuse device %d: it does not exist, or is fused already",
				devices[i]);
			return NCCL_INVALID_USAGE;
		}
		for (int k = 0; k < i; k++) {
			if (devices[k] == devices[i]) {
				net_log_warning("cannot fuse device %d with itself", devices[i]);
				return NCCL_INVALID_USAGE;
			}
		}
	}
	return NCCL_SUCCESS;
}

/* Returns an existing device that is made of these ports, which may be a single port. */
static int find_fused(const int *devices, int n)
{
	if (n == 1)
		return devices[0];
	for (int i = all.n_ports; i < all.n_devices; i++)
		if (all.devices[i].n_rails == n &&
			memcmp(all.devices[i].rails, devices, (size_t)n * sizeof(*devices)) == 0)
			return i;
	return -1;
}

static void fuse(struct net_device *device, const int *devices, int n)
{
	char name[sizeof(device->name)] = "";

	device->n_rails = n;
	for (int i = 0; i < n; i++) {
		size_t length = strlen(name);

		device->rails[i] = devices[i];
		snprintf(name + length, sizeof(name) - length, "%s%s", i ? "+" : "",
			all.ports[devices[i]].info.name);
	}
	memcpy(device->name, name, sizeof(name));
}

int net_make_vdevice(int *ret_dev, const int *devices, int n)
{
	int rc;

	pthread_mutex_lock(&all.lock);
	rc = check_rails(devices, n);
	if (!rc)
		*ret_dev = find_fused(devices, n);
	if (!rc && *ret_dev < 0) {
		fuse(&all.devices[all.n_devices], devices, n);
		*ret_dev = all.n_devices++;
		net_log_info("device %d is %s", *ret_dev, all.devices[*ret_dev].name);
	}
	pthread_mutex_unlock(&all.lock);
	return rc;
}

/* ---- opening and closing */

/* Closes the port, unless something still uses it. Then it stays open, perhaps without its cache or
 * protection domain, which open_port() creates again. */
static void close_port(struct net_port *port)
{
	int err = frl_mr_cache_destroy(port->cache);
	uint64_t until_ns = net_now_ns() + BUSY_NS;
	struct frl_backoff backoff;
	const char *why = NULL;

	/* -EBUSY: a NIC still has memory of the port in its queue, or NCCL has not deregistered all
	 * memory. */
	frl_backoff_reset(&backoff);
	while (err == -EBUSY && port->device && net_now_ns() < until_ns) {
		if (frl_progress(port->device) <= 0)
			frl_backoff_idle(&backoff);
		err = frl_mr_cache_destroy(port->cache);
	}
	if (err)
		return;
	port->cache = NULL;
	if (!net_bounce_release_port(port))
		why = "a connection whose receives NCCL's kernels unpack still uses it";
	else if (!net_gpu_resources_free(port) || frl_pd_destroy(port->pd))
		why = frl_last_error();
	if (why) {
		net_log_warning("%s stays open with its memory: %s", port->info.name, why);
		return;
	}
	port->pd = NULL;
	if (frl_device_close(port->device) == 0)
		port->device = NULL;
}

/* Opens the device. If the default number of buffers for UNPACK is too large, opens it without
 * them. */
static int open_device(
	const struct port_info *info, struct frl_device_config *config, struct frl_device **ret)
{
	bool is_default = info->unpacks && !config->held_frames;
	int err;

	if (is_default)
		config->held_frames = UNPACK_FRAMES;
	err = frl_device_open(config, ret);
	if (!is_default || (err != -ENOMEM && err != -ENOTSUP))
		return err;
	net_log_warning("%s has no room for %d packet buffers and works without UNPACK; set a "
			"smaller FRL_HELD_FRAMES: %s",
		info->name, UNPACK_FRAMES, frl_last_error());
	config->held_frames = 0;
	return frl_device_open(config, ret);
}

static void take_speed(struct net_port *port)
{
	if (!port->attr.speed_mbps)
		net_log_info("the speed of %s is unknown: NCCL gets %d Mbit/s; set speed=MBIT in "
			     "FERRULE_DEVICES",
			port->info.name, UNKNOWN_MBPS);
	atomic_store(&port->speed_mbps,
		port->attr.speed_mbps ? (int)port->attr.speed_mbps : UNKNOWN_MBPS);
}

static int open_port(struct net_port *port)
{
	const struct port_info *info = &port->info;
	struct frl_device_config config;
	int err = 0;

	frl_device_config_init(&config);
	config.fabric = *info->fabric ? info->fabric : NULL;
	config.port = *info->port ? info->port : NULL;
	config.ip = *info->ip ? info->ip : NULL;
	config.gateway = *info->gateway ? info->gateway : NULL;
	if (!port->device)
		err = open_device(info, &config, &port->device);
	if (!err)
		frl_device_query(port->device, &port->attr);
	if (!err && !port->info.speed_mbps)
		take_speed(port);
	if (!err && !port->pd)
		err = frl_pd_create(port->device, &port->pd);
	if (!err && !port->cache)
		err = frl_mr_cache_create(port->pd, NULL, &port->cache);
	if (err) {
		net_log_warning("cannot open device %s: %s", info->name, frl_last_error());
		close_port(port);
	}
	return err;
}

static int acquire_port(struct net_port *port)
{
	int err = 0;

	pthread_mutex_lock(&port->lock);
	if (!port->cache)
		err = open_port(port);
	if (!err)
		port->users++;
	pthread_mutex_unlock(&port->lock);
	return err;
}

static void release_port(struct net_port *port)
{
	pthread_mutex_lock(&port->lock);
	port->users--;
	pthread_mutex_unlock(&port->lock);
}

int net_device_acquire(struct net_device *device)
{
	int err = 0, i;

	if (net_devices_are_refused()) {
		net_log_warning("%s", all.refusal);
		return -ENODEV;
	}
	for (i = 0; i < device->n_rails; i++) {
		err = acquire_port(net_port_at(device, i));
		if (err)
			break;
	}
	while (err && i-- > 0)
		release_port(net_port_at(device, i));
	return err;
}

static bool acquire_open_port(struct net_port *port)
{
	bool is_open;

	/* Another thread that opens the port holds the lock. */
	if (pthread_mutex_trylock(&port->lock))
		return false;
	is_open = port->cache != NULL;
	port->users += is_open;
	pthread_mutex_unlock(&port->lock);
	return is_open;
}

bool net_device_acquire_open(struct net_device *device)
{
	for (int i = 0; i < device->n_rails; i++) {
		if (acquire_open_port(net_port_at(device, i)))
			continue;
		while (i-- > 0)
			release_port(net_port_at(device, i));
		return false;
	}
	return true;
}

void net_device_release(struct net_device *device)
{
	for (int i = 0; i < device->n_rails; i++)
		release_port(net_port_at(device, i));
}

void net_devices_close(void)
{
	struct net_port *port;

	for (int i = 0; (port = any_port(i)); i++) {
		pthread_mutex_lock(&port->lock);
		if (!port->users)
			close_port(port);
		pthread_mutex_unlock(&port->lock);
	}
}
