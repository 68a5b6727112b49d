/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports of the local fabric: links made on demand between processes of one machine, through shared
 * memory. Nothing of it needs DPDK, a NIC or a privilege.
 */
#ifndef FERRULE_DRIVERS_LOCAL_LOCAL_H
#define FERRULE_DRIVERS_LOCAL_LOCAL_H

#include "drivers/port.h"

enum {
	/* RoCE payload of a packet; on a network none is longer than 4096 bytes. */
	LOCAL_MAX_PAYLOAD = 16384,
};

struct local_port_config {
	uint8_t mac[6]; /* frames of its links go to and from it */
	/* The longest RoCE payload, bytes, a power of two. Buffers are sized for it, see
	 * caps.max_frame. */
	uint32_t max_payload;
	/* caps.max_kept: the port gets so many packet buffers more. */
	uint32_t max_kept;
	struct port_guard guard;
};

/*
 * Opens a port. -EINVAL (a payload that is no packet's), -ENOMEM, with frl_last_error(). Any
 * thread.
 */
int local_port_open(const struct local_port_config *config, struct port **ret_port);

#endif
