/* SPDX-License-Identifier: BSD-3-Clause */
/* Stands in for drivers/raw, which needs the system's libibverbs, as drivers/verbs does. */
#include "drivers/raw/raw.h"

#include <errno.h>
#include <string.h>

#include "lib/base/error.h"

static const char prefix[] = "raw:";

/* Such ports are recognized: the error then comes from raw_port_open(). */
bool raw_is_port(const char *port)
{
	return port && strncmp(port, prefix, sizeof(prefix) - 1) == 0;
}

int raw_port_open(const struct nic_config *config, struct port **ret_port)
{
	return frl_fail(-ENOTSUP,
		"'%s': Ferrule's libibverbs.so.1 has no raw: ports; use a packet: port",
		config->text);
}
