/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of a port: "packet:eth0,gso=off". */
#include "drivers/packet/internal.h"

#include <errno.h>
#include <string.h>

#include "lib/base/error.h"

static const char prefix[] = "packet:";

bool packet_is_port(const char *port)
{
	return port && strncmp(port, prefix, sizeof(prefix) - 1) == 0;
}

static int refuse(const char *text, const char *why)
{
	return frl_fail(-EINVAL,
		"'%s': %s; write packet:INTERFACE (`ip link` lists them), or "
		"packet:INTERFACE,gso=off to send each packet in its own frame",
		text, why);
}

int packet_parse(const char *text, struct packet_wanted *ret_wanted)
{
	const char *at = text + sizeof(prefix) - 1;
	size_t len = strcspn(at, ",");

	*ret_wanted = (struct packet_wanted){ .no_gso = false };
	if (len == 0 || len >= sizeof(ret_wanted->interface))
		return refuse(text, "it names no interface");
	memcpy(ret_wanted->interface, at, len);
	ret_wanted->interface[len] = '\0';
	at += len;
	if (strcmp(at, ",gso=off") == 0)
		ret_wanted->no_gso = true;
	else if (*at && strcmp(at, ",gso=on") != 0)
		return refuse(text, "the option after the comma is unknown");
	return 0;
}
