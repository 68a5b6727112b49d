/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Stands in for drivers/verbs, which needs the system's libibverbs. This library has its name: the
 * driver would find the devices of this library.
 */
#include "drivers/verbs/verbs.h"

#include <errno.h>
#include <string.h>

#include "lib/base/error.h"

static const char prefix[] = "verbs";

/* Such ports are recognized: the error then comes from verbs_device_open(). */
bool verbs_is_port(const char *port)
{
	size_t len = sizeof(prefix) - 1;

	return port && strncmp(port, prefix, len) == 0 && (!port[len] || port[len] == ':');
}

int verbs_device_open(const struct verbs_open *wanted, struct frl_device **ret_device)
{
	return frl_fail(-ENOTSUP,
		"'%s': Ferrule's libibverbs.so.1 does not open RDMA hardware; use another port, or "
		"the system's libibverbs.so.1",
		wanted->port);
}

int verbs_list(struct frl_device_info **ret_infos, size_t *ret_n)
{
	return frl_fail(-ENOTSUP,
		"Ferrule's libibverbs.so.1 does not list RDMA hardware; use libferrule.so for it");
}
