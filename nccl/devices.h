/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The devices that NCCL sees: one for each port, and fused devices of several ports. A port is
 * opened at its first use, and then shared by all connections of the process: one Ferrule device,
 * one protection domain, one registration cache.
 *
 * Only one thread at a time can be in a Ferrule device, and additional devices of the local fabric
 * are cheap. So a local port has up to NET_SHARDS Ferrule devices, of which NCCL sees one. Each
 * communicator uses one shard.
 */
#ifndef FERRULE_NCCL_DEVICES_H
#define FERRULE_NCCL_DEVICES_H

#include <pthread.h>
#include <stdatomic.h>

#include <ferrule/device.h>
#include <ferrule/memory.h>

#include "nccl/net.h"
#include "nccl/ports.h"

enum {
	NET_MAX_DEVICES = 64,
	NET_SHARDS = 4,
};

struct net_port {
	struct port_info info;
	pthread_mutex_t lock; /* held to open and close; the next fields then stay */
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_mr_cache *cache;
	/* Used by gpu_resources.c. The flag: net_gpu_resources_add_current() has failed. */
	struct net_gpu_resources *gpu_resources;
	atomic_bool has_no_gpu_resources;
	struct frl_device_attr attr;
	atomic_int speed_mbps;   /* 0: unknown until the port is open */
	unsigned users;          /* connections and listeners */
	atomic_uint held_frames; /* frames in use by unpack.c */
};

struct net_device {
	char name[200];
	int n_rails;
	int rails[NET_MAX_RAILS]; /* indices of ports */
};

/*
 * For the first init: discards the devices. NCCL may have unloaded and reloaded the plugin, and
 * then does not know earlier fused devices. Ports that were unusable may have become usable. Does
 * nothing if a device is in use.
 */
void net_devices_reset(void);
/* Finds the ports. Fails with -ENODEV or -EINVAL, and a sentence in `why`. Further calls do
 * nothing. */
int net_devices_find(char *why, size_t size);
/* Shows NCCL a single device instead, whose use fails with the reason `why`. */
void net_devices_refuse(const char *why);
bool net_devices_are_refused(void);

/* Return NULL if the index is invalid. The result stays valid while any device is in use. */
struct net_device *net_device_at(int dev);
struct net_port *net_port_at(const struct net_device *device, int rail);
/* Returns the device's shard of this number, or the device itself if it has no shards. The result
 * stays valid while any device is in use. */
struct net_device *net_device_shard(struct net_device *device, unsigned shard);

/* Returns whether no NIC writes received data into GPU memory, because no port is a NIC or the
 * settings forbid it. A NIC that lacks the capability does not count, because NICs of other ranks
 * may have it. */
bool net_devices_receive_on_host(void);
/* Returns the largest additional latency of a port, compared to a NIC that NCCL knows. */
float net_devices_step_us(void);

/* Returns the subset of NCCL_PTR_CUDA and NCCL_PTR_DMABUF that all of the device's ports
 * support. */
int net_device_pointers(const struct net_device *device);
/* Returns whether received data may stay in packet buffers on all of the device's ports. */
bool net_device_unpacks(const struct net_device *device);

/* Opens the device's ports if necessary, and adds a user to each. On failure the log has the
 * reason. */
int net_device_acquire(struct net_device *device);
/* Same, but only if all ports are open already, so that it does not block; otherwise returns
 * false. */
bool net_device_acquire_open(struct net_device *device);
void net_device_release(struct net_device *device);
/* Closes the ports that have no users. */
void net_devices_close(void);

#endif
