/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The hardware driver: opens a port of a libibverbs device as a Ferrule device. This is its
 * interface to lib/api; the rest is behind device_ops. Any thread.
 */
#ifndef FERRULE_DRIVERS_VERBS_VERBS_H
#define FERRULE_DRIVERS_VERBS_VERBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct frl_device;
struct frl_device_info;

/* As in struct frl_device_config. */
struct verbs_open {
	const char *port; /* "verbs", "verbs:NAME", "verbs:NAME/PORT" */
	const char *ip;   /* or NULL */
	const char *peer; /* or NULL */
	uint32_t path_mtu;
};

/* Returns true if a frl_device_config.port, which may be NULL, names hardware. */
bool verbs_is_port(const char *port);

/*
 * Opens a device. Returns -EINVAL (name, address, peer), -ENODEV (no such device, or no usable
 * one), -EPERM, -ENOMEM, -EMSGSIZE, -ENETDOWN (port down), -EHOSTUNREACH (no route to the peer), or
 * an errno of the kernel. frl_last_error() names the remedy.
 */
int verbs_device_open(const struct verbs_open *wanted, struct frl_device **ret_device);

/* Implements frl_device_list(). Release the array with free(). */
int verbs_list(struct frl_device_info **ret_infos, size_t *ret_n);

#endif
