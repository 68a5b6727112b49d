/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Devices as NCCL sees them: a port each, and those that it fuses from several. A port is opened
 * when something is first wanted of it, and then shared by all connections of the process: one
 * Ferrule device, one protection domain, one cache of registrations.
 *
 * A device of the local fabric costs next to nothing to have several times, and one thread at a
 * time is in a device. There are NET_SHARDS of it, of which NCCL sees one: each communicator has
 * one.
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
	pthread_mutex_t lock; /* protects opening and closing; what follows stays meanwhile */
	struct frl_device *device;
	struct frl_pd *pd;
	struct frl_mr_cache *cache;
	struct net_hold *holds;      /* hold.c's */
	atomic_bool is_hold_refused; /* hold.c's: net_hold_current_gpu() has failed */
	struct frl_device_attr attr;
	atomic_int speed_mbps;   /* 0: not known before it is open */
	unsigned users;          /* connections and listeners */
	atomic_uint held_frames; /* unpack.c's, of those that the device has */
};

struct net_device {
	char name[200];
	int n_rails;
	int rails[NET_MAX_RAILS]; /* ports */
};

/*
 * For the first init: NCCL may have unloaded the plugin since the last one, and does not know what
 * it has fused before; and what could not be used may be there by now. Nothing, if a device is in
 * use.
 */
void net_devices_forget(void);
/* Finds the ports. -ENODEV, -EINVAL; `why` is a sentence then. A second call does nothing. */
int net_devices_find(char *why, size_t size);
/* Instead: NCCL is shown one device, which says `why` it cannot be used as soon as it is. */
void net_devices_refuse(const char *why);
bool net_devices_are_refused(void);

/* NULL: there is none of this number. Both stay as long as something uses a device. */
struct net_device *net_device_at(int dev);
struct net_port *net_port_at(const struct net_device *device, int rail);
/* The one of its shards that has the number, or itself where there are none. Stays as well. */
struct net_device *net_device_shard(struct net_device *device, unsigned shard);

/* No NIC writes what a port receives into memory of GPUs: the port is no NIC, or the settings say
 * so. (A NIC that cannot is not counted: other ranks' may.) */
bool net_devices_receive_on_host(void);
/* The most that a message takes longer over one of the ports than over a NIC that NCCL knows. */
float net_devices_step_us(void);

/* NCCL_PTR_CUDA and NCCL_PTR_DMABUF, as far as all its ports take them. */
int net_device_pointers(const struct net_device *device);
/* What has come may stay in the packets of all its ports. */
bool net_device_unpacks(const struct net_device *device);

/* Opens the device's ports if need be and counts a user of them. What went wrong is in the log. */
int net_device_acquire(struct net_device *device);
/* The same if that is done at once, as all ports are open; false: it is not. */
bool net_device_acquire_open(struct net_device *device);
void net_device_release(struct net_device *device);
/* Closes ports that have no user. */
void net_devices_close(void);

#endif
