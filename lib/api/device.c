/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices: opened over a port, driven by whoever polls and, if wanted, by a thread. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "drivers/dpdk/dpdk.h"
#include "lib/api/objects.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/random.h"
#include "lib/base/settings.h"

void frl_device_config_init(struct frl_device_config *config)
{
	const struct settings *settings = settings_get();

	*config = (struct frl_device_config){ .path_mtu = (uint32_t)settings->path_mtu };
	if (strcmp(settings->progress, "inline") == 0)
		config->progress = FRL_PROGRESS_INLINE;
	else if (strcmp(settings->progress, "thread") == 0)
		config->progress = FRL_PROGRESS_THREAD;
	if (strcmp(settings->icrc, "always") == 0)
		config->icrc = FRL_ICRC_ALWAYS;
}

static void guard_lock(void *arg)
{
	guard_enter_first(arg);
}

static void guard_unlock(void *arg)
{
	guard_leave(arg);
}

static int check_config(const struct frl_device_config *config)
{
	uint32_t mtu = config->path_mtu;

	if (settings_error())
		return frl_fail(-EINVAL, "%s", settings_error());
	if (mtu && (mtu < 256 || mtu > WIRE_MAX_MTU || (mtu & (mtu - 1))))
		return frl_fail(-EINVAL,
			"path MTU %u (path_mtu, FRL_PATH_MTU): it must be 256, 512, 1024, 2048 or "
			"4096",
			mtu);
	if ((unsigned)config->progress > FRL_PROGRESS_THREAD ||
		(unsigned)config->icrc > FRL_ICRC_ALWAYS)
		return frl_fail(-EINVAL, "unknown value of progress (%d) or icrc (%d)",
			(int)config->progress, (int)config->icrc);
	if (config->port && !config->ip)
		return frl_fail(-EINVAL,
			"port '%s' needs an IP address of its own, like 10.1.1.1/24", config->port);
	if (!config->port && (config->ip || config->gateway))
		return frl_fail(-EINVAL,
			"an IP address or gateway needs a port; the local fabric gives "
			"out its own addresses");
	return 0;
}

/* Neither unspecified, loopback nor multicast. */
static bool is_host_address(const struct frl_ip *ip)
{
	static const struct frl_ip unspecified, loopback = { { [15] = 1 } };
	uint8_t first = ip->bytes[12];

	if (ip_is_v4(ip))
		return first != 0 && first != 127 && first < 224;
	return !ip_equal(ip, &unspecified) && !ip_equal(ip, &loopback) && ip->bytes[0] != 0xff;
}

/* Addresses: given for a network port, claimed on the local fabric. */
static int take_addresses(struct frl_device *device, const struct frl_device_config *config,
	struct neighbors_config *neighbors)
{
	int rc;

	device->claim_fd = -1;
	if (!config->port) {
		rc = fabric_claim_address(&neighbors->ip, neighbors->mac);
		if (rc < 0)
			return rc;
		device->claim_fd = rc;
		neighbors->prefix_len = 16;
		return 0;
	}
	rc = parse_ip(config->ip, &neighbors->ip, &neighbors->prefix_len);
	if (!rc && !is_host_address(&neighbors->ip))
		return frl_fail(-EINVAL, "%s is no address that a host can have", config->ip);
	if (!rc && config->gateway) {
		rc = parse_ip(config->gateway, &neighbors->gateway, NULL);
		neighbors->has_gateway = true;
	}
	if (!rc && config->gateway && ip_is_v4(&neighbors->gateway) != ip_is_v4(&neighbors->ip))
		return frl_fail(-EINVAL, "gateway %s and address %s are not of one family",
			config->gateway, config->ip);
	return rc;
}

static int open_port(
	struct frl_device *device, const struct frl_device_config *config, const uint8_t mac[6])
{
	const struct settings *settings = settings_get();
	struct dpdk_port_config port = {
		.devargs = config->port,
		.max_payload = config->path_mtu ? config->path_mtu : WIRE_MAX_MTU,
		.min_payload = config->path_mtu ? config->path_mtu : 256,
		.eal_mem_mb = (uint32_t)settings->eal_mem_mb,
		.eal_args = settings->eal_args,
		.guard = { guard_lock, guard_unlock, &device->guard },
	};

	memcpy(port.mac, mac, sizeof(port.mac));
	return dpdk_port_open(&port, &device->port);
}

static void describe(struct frl_device *device, const struct frl_device_config *config,
	const struct neighbors_config *neighbors)
{
	const struct port_caps *caps = &device->port->caps;
	struct frl_device_attr *attr = &device->attr;
	uint32_t mtu = wire_largest_mtu(caps->max_frame);

	attr->ip = neighbors->ip;
	memcpy(attr->mac, caps->mac, sizeof(attr->mac));
	attr->path_mtu = config->path_mtu && config->path_mtu < mtu ? config->path_mtu : mtu;
	attr->lossless = caps->lossless;
	attr->local_fabric = caps->on_demand;
	snprintf(attr->port, sizeof(attr->port), "%s", config->port ? config->port : caps->kind);
	if (caps->on_demand && config->icrc == FRL_ICRC_AUTO)
		device->capabilities |= FRL_CAP_NO_ICRC;
}

uint32_t device_poll(struct frl_device *device)
{
	return engine_poll(&device->engine, clock_now_ns());
}

static void *progress_main(void *arg)
{
	struct frl_device *device = arg;
	struct frl_backoff backoff;
	unsigned seen = 0;

	frl_backoff_reset(&backoff);
	while (!atomic_load_explicit(&device->stop, memory_order_relaxed)) {
		unsigned polls = atomic_load_explicit(&device->polls, memory_order_relaxed);
		uint32_t moved = 0;

		/* While the application polls it does the work; a second poller would only be in
		 * its way. */
		if (polls == seen) {
			guard_enter(&device->guard);
			moved = device_poll(device);
			guard_leave(&device->guard);
		}
		if (polls != seen) {
			const struct timespec pause = { .tv_nsec = 1000000 };

			seen = polls;
			nanosleep(&pause, NULL);
		} else if (moved) {
			frl_backoff_reset(&backoff);
		} else {
			frl_backoff_idle(&backoff);
		}
	}
	return NULL;
}

static int start_thread(struct frl_device *device, enum frl_progress progress)
{
	sigset_t all, saved;
	int err;

	if (progress == FRL_PROGRESS_AUTO)
		progress = device->attr.local_fabric ? FRL_PROGRESS_INLINE : FRL_PROGRESS_THREAD;
	if (progress == FRL_PROGRESS_INLINE)
		return 0;
	/* Signals are for the host's threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &saved);
	err = pthread_create(&device->thread, NULL, progress_main, device);
	pthread_sigmask(SIG_SETMASK, &saved, NULL);
	if (err)
		return frl_fail(err, "cannot start the progress thread: %s", frl_strerror(err));
	device->has_thread = true;
	return 0;
}

static void close_device(struct frl_device *device)
{
	if (device->has_thread) {
		atomic_store(&device->stop, true);
		pthread_join(device->thread, NULL);
	}
	engine_fini(&device->engine);
	device->port->ops->close(device->port);
	if (device->claim_fd >= 0)
		close(device->claim_fd);
	guard_fini(&device->guard);
	free(device);
}

int frl_device_open(const struct frl_device_config *config, struct frl_device **ret_device)
{
	struct engine_config engine = { .seed = random_entropy() };
	struct frl_device_config defaults;
	struct frl_device *device;
	int rc;

	if (!config) {
		frl_device_config_init(&defaults);
		config = &defaults;
	}
	if (!ret_device)
		return frl_fail(-EINVAL, "frl_device_open: ret_device is required");
	rc = check_config(config);
	if (rc)
		return rc;
	device = calloc(1, sizeof(*device));
	if (!device)
		return frl_fail(-ENOMEM, "no memory for a device");
	guard_init(&device->guard);
	for (size_t i = 0; i < NONCE_SIZE; i += sizeof(uint64_t)) {
		uint64_t bits = random_entropy();

		memcpy(device->nonce + i, &bits, sizeof(bits));
	}
	rc = take_addresses(device, config, &engine.neighbors);
	if (rc)
		goto err_release_address;
	rc = open_port(device, config, engine.neighbors.mac);
	if (rc)
		goto err_release_address;
	memcpy(engine.neighbors.mac, device->port->caps.mac, sizeof(engine.neighbors.mac));
	engine.port = device->port;
	rc = engine_init(&device->engine, &engine);
	if (rc) {
		frl_fail(rc, "no memory for a device");
		goto err_close_port;
	}
	describe(device, config, &engine.neighbors);
	rc = start_thread(device, config->progress);
	if (rc) {
		close_device(device);
		return rc;
	}
	frl_log(FRL_LOG_INFO, "device %s, address %s, path MTU %u, %s", device->attr.port,
		format_ip(&device->attr.ip), device->attr.path_mtu,
		device->has_thread ? "progress thread" : "inline progress");
	*ret_device = device;
	return 0;

err_close_port:
	device->port->ops->close(device->port);
err_release_address:
	if (device->claim_fd >= 0)
		close(device->claim_fd);
	guard_fini(&device->guard);
	free(device);
	return rc;
}

int frl_device_close(struct frl_device *device)
{
	unsigned objects;

	if (!device)
		return 0;
	guard_enter(&device->guard);
	objects = device->objects;
	guard_leave(&device->guard);
	if (objects)
		return frl_fail(-EBUSY,
			"the device still has %u protection domains and completion queues",
			objects);
	close_device(device);
	return 0;
}

void frl_device_query(struct frl_device *device, struct frl_device_attr *ret_attr)
{
	*ret_attr = device->attr;
}

void frl_device_stats(struct frl_device *device, struct frl_stats *ret_stats)
{
	struct port_stats port = { 0 };

	guard_enter(&device->guard);
	*ret_stats = device->engine.stats;
	device->port->ops->stats(device->port, &port);
	guard_leave(&device->guard);
	ret_stats->drop_port = port.rx_dropped + port.tx_dropped;
}

int frl_progress(struct frl_device *device)
{
	uint32_t moved;

	/* Before the guard: a progress thread that holds it is to stand back. */
	atomic_fetch_add_explicit(&device->polls, 1, memory_order_relaxed);
	guard_enter(&device->guard);
	moved = device_poll(device);
	guard_leave(&device->guard);
	return (int)moved;
}
