/* SPDX-License-Identifier: BSD-3-Clause */
/* Ports over one network interface: the link, the frame length, and the end of an open. */
#include "drivers/nic.h"

#include <errno.h>

#include "drivers/interface.h"
#include "lib/base/error.h"

int nic_link_open(struct port *port, const struct port_link_request *request)
{
	return frl_fail(-ENOTSUP, "%s has one link and opens no others", port->caps.kind);
}

void nic_link_close(struct port *port, uint16_t link)
{
}

int nic_fit_payload(
	const char *interface, uint32_t mtu, uint32_t min_payload, uint32_t *max_payload)
{
	while (*max_payload > min_payload && *max_payload + MTU_OVERHEAD > mtu)
		*max_payload /= 2;
	return interface_check_mtu(interface, mtu, *max_payload);
}

uint32_t nic_max_frame(uint32_t mtu, uint32_t max_payload)
{
	uint32_t most = max_payload + MTU_OVERHEAD;

	return (mtu < most ? mtu : most) + ETH_HEADER;
}

int nic_opened(struct port *port, int rc, struct port **ret_port)
{
	char why[ERROR_TEXT_MAX];

	if (!rc) {
		*ret_port = port;
		return 0;
	}
	error_save(why);
	port->ops->close(port);
	error_restore(why);
	return rc;
}
