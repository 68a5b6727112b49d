/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over a raw-packet queue pair of a NIC, by libibverbs: "raw:mlx5_0". The NIC's transport is
 * not used; it hands over the frames for Ferrule's own addresses, by flow rules, and sends what it
 * is given. With a GPU the payload of long frames goes on into that GPU's memory: PORT_SPLIT bytes
 * of each frame, in which all headers lie, come to host memory, the rest does not.
 *
 * Not yet run on a NIC: what is known of NICs here is from documents and from the kernel's source.
 */
#ifndef FERRULE_DRIVERS_RAW_RAW_H
#define FERRULE_DRIVERS_RAW_RAW_H

#include <stdbool.h>

#include "drivers/nic.h"

/* Whether the text of a port, which may be NULL, names one of these. */
bool raw_is_port(const char *port);

/*
 * Opens a port, "raw:NAME[/PORT][,gpu=N][,slots=N]": a device of libibverbs, its port (1); the GPU,
 * as CUDA counts, into whose memory payload goes, and then no frames are kept; frames that can wait
 * to be taken. Errors are negative errno with frl_last_error() naming the cause and the remedy:
 * -EINVAL (text), -ENODEV (no such device, port, interface or GPU), -EPERM (CAP_NET_RAW), -EBUSY
 * (RoCE is on: the NIC would keep the packets), -EEXIST (open in this process), -EMSGSIZE (MTU),
 * -ENOMEM (locked memory), -ENOTSUP (another MAC, several interfaces, no raw packets or flow rules,
 * GPU memory that the NIC cannot be given). Any thread.
 */
int raw_port_open(const struct nic_config *config, struct port **ret_port);

#endif
