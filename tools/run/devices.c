/* SPDX-License-Identifier: BSD-3-Clause */
/* FRL_VERBS_DEVICES, as libibverbs.so.1 reads it: devices that are separated by ";". */
#include <stdlib.h>
#include <string.h>

#include "tools/run/run.h"

/* Returns false for a name that no interface can have, and that must not become part of a path. */
static bool is_interface(const char *name, size_t length)
{
	return length > 0 && length < IFNAMSIZ && !memchr(name, '/', length) && name[0] != '.';
}

static void add_device(struct device_list *list, const char *text, size_t length)
{
	static const char prefix[] = "packet:";
	const size_t n = sizeof(prefix) - 1;
	char *interface = list->interface[list->n++];

	if (length == 5 && strncmp(text, "local", length) == 0) {
		strcpy(interface, "lo");
	} else if (length > n && strncmp(text, prefix, n) == 0) {
		/* packet:eth1=10.1.1.1/24 and packet:eth1,gso=off=10.1.1.1/24 */
		size_t end = strcspn(text + n, ",=;");

		if (is_interface(text + n, end))
			memcpy(interface, text + n, end);
	}
}

void read_devices(struct device_list *ret_list)
{
	const char *text = getenv("FRL_VERBS_DEVICES"), *fabric = getenv("FRL_FABRIC");

	*ret_list = (struct device_list){ 0 };
	if (!text || !*text)
		text = fabric && *fabric && strcmp(fabric, "local") != 0 ? "fabric:" : "local";
	while (*text && ret_list->n < MAX_DEVICES) {
		size_t length = strcspn(text, ";");

		if (length > 0)
			add_device(ret_list, text, length);
		text += length + (text[length] ? 1 : 0);
	}
}
