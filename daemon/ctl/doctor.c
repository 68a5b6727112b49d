/* SPDX-License-Identifier: BSD-3-Clause */
#include "daemon/ctl/doctor.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/net/devargs.h"

void doctor_say(struct doctor *doctor, enum doctor_status status, const char *name,
	const char *advice, const char *format, ...)
{
	struct finding *finding;
	va_list args;

	if (doctor->n_findings == DOCTOR_FINDINGS)
		return;
	finding = &doctor->findings[doctor->n_findings++];
	finding->status = status;
	snprintf(finding->name, sizeof(finding->name), "%s", name);
	snprintf(finding->advice, sizeof(finding->advice), "%s", advice ? advice : "");
	va_start(args, format);
	vsnprintf(finding->text, sizeof(finding->text), format, args);
	va_end(args);
}

/* Parses "0000:17:00.0" or "17:00.0" at the start of the text. */
static bool take_pci(const char *text, char pci[16])
{
	unsigned domain = 0, bus, slot, function;
	int length = 0;

	if (sscanf(text, "%4x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &length) != 4 &&
		(domain = 0, sscanf(text, "%2x:%2x.%1x%n", &bus, &slot, &function, &length)) != 3)
		return false;
	if (domain > 0xffff || bus > 0xff || slot > 0x1f || function > 7 ||
		(text[length] && text[length] != ','))
		return false;
	snprintf(pci, 16, "%04x:%02x:%02x.%x", domain, bus, slot, function);
	return true;
}

/* Extracts driver and kernel interface from "net_af_packet0,iface=eth0" or "packet:eth0". */
static void take_virtual(const char *devargs, struct doctor_port *port)
{
	size_t length = strcspn(devargs, ",");
	char interface[IF_NAMESIZE];

	devargs_interface(devargs, interface);
	snprintf(port->interface, sizeof(port->interface), "%s", interface);
	if (strncmp(devargs, "packet:", 7) == 0)
		strcpy(port->driver, "packet");
	if (strncmp(devargs, "net_", 4) != 0)
		return;
	while (length > 4 && isdigit((unsigned char)devargs[length - 1]))
		length--;
	snprintf(port->driver, sizeof(port->driver), "%.*s", (int)(length - 4), devargs + 4);
}

struct doctor_port *doctor_add_port(struct doctor *doctor, const char *fabric, const char *devargs)
{
	struct doctor_port *port;

	if (doctor->n_ports == DOCTOR_PORTS)
		return NULL;
	port = &doctor->ports[doctor->n_ports++];
	*port = (struct doctor_port){ .path_mtu = 0 };
	snprintf(port->fabric, sizeof(port->fabric), "%s", fabric);
	snprintf(port->devargs, sizeof(port->devargs), "%s", devargs);
	if (strncmp(devargs, "pci:", 4) == 0)
		devargs += 4;
	if (take_pci(devargs, port->pci))
		strcpy(port->driver, "pci");
	else
		take_virtual(devargs, port);
	return port;
}

void doctor_add_fabric(struct doctor *doctor, const char *line)
{
	char fabric[DOCTOR_NAME], devargs[256];
	int used = 0;

	if (sscanf(line, "%63s%n", fabric, &used) != 1)
		return;
	line += used;
	while (sscanf(line, "%255s%n", devargs, &used) == 1) {
		doctor_add_port(doctor, fabric, devargs);
		line += used;
	}
}
