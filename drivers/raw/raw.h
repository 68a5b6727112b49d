/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ports over a raw-packet queue pair of a NIC, by libibverbs: "raw:mlx5_0". The NIC's transport is
 * not used. Flow rules deliver the frames for Ferrule's addresses, and the NIC sends frames
 * unchanged. With a GPU, the first PORT_SPLIT bytes of each frame, which include all headers, go to
 * host memory. The rest of a long frame goes to that GPU's memory.
 *
 * Not yet run on a NIC: the properties of NICs are taken from documents and the kernel's source.
 */
#ifndef FERRULE_DRIVERS_RAW_RAW_H
#define FERRULE_DRIVERS_RAW_RAW_H

#include <stdbool.h>

#include "drivers/nic.h"

/* Returns true if the text of a port, which may be NULL, names a raw port. */
bool raw_is_port(const char *port);

/*
 * Opens a port, "raw:NAME[/PORT][,gpu=N][,slots=N]". NAME is a libibverbs device and PORT its port
 * (1). gpu is the CUDA ordinal of the GPU that receives payload; no frames are kept then. slots is
 * the number of frames that can wait. Returns a negative errno on failure, and frl_last_error()
 * names the cause and the remedy:
 *
 * - -EINVAL: text
 * - -ENODEV: no such device, port, interface or GPU
 * - -EPERM: CAP_NET_RAW
 * - -EBUSY: RoCE is on, so the NIC would keep the packets
 * - -EEXIST: open in this process
 * - -EMSGSIZE: MTU
 * - -ENOMEM: locked memory
 * - -ENOTSUP: another MAC, several interfaces, no raw packets or flow rules, or GPU memory that the
 *   NIC cannot access
 *
 * Any thread.
 */
int raw_port_open(const struct nic_config *config, struct port **ret_port);

#endif
