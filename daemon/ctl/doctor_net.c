/* SPDX-License-Identifier: BSD-3-Clause */
/* The NICs of the fabrics. */
#include <net/if.h>
#include <stdio.h>
#include <string.h>

#include "daemon/ctl/doctor.h"

enum {
	/* IPv6, UDP, BTH, RETH, ImmDt and ICRC around a payload of the path MTU. */
	PACKET_EXTRA = 40 + 8 + 12 + 16 + 4 + 4,
	PATH_MTU_MIN = 256,
	PATH_MTU_MAX = 4096,
};

static unsigned largest_path_mtu(long long mtu)
{
	unsigned path = PATH_MTU_MAX;

	while (path >= PATH_MTU_MIN && path + PACKET_EXTRA > mtu)
		path /= 2;
	return path >= PATH_MTU_MIN ? path : 0;
}

static void check_mtu(struct doctor *doctor, const struct doctor_port *port)
{
	long long mtu = 0;
	unsigned fits;

	if (!root_number(doctor, &mtu, "/sys/class/net/%s/mtu", port->interface))
		return;
	fits = largest_path_mtu(mtu);
	if (fits < port->path_mtu)
		doctor_say(doctor, DOCTOR_FAIL, "mtu",
			"raise the MTU on the whole path (ip link set mtu), or lower path_mtu in "
			"the configuration",
			"%s: MTU %lld carries a path MTU of %u, fabric %s needs %u",
			port->interface, mtu, fits, port->fabric, port->path_mtu);
	else if (fits < PATH_MTU_MAX && !port->path_mtu)
		doctor_say(doctor, DOCTOR_WARN, "mtu",
			"if the switches allow it: ip link set mtu 4200 or more",
			"%s: MTU %lld carries a path MTU of %u; %u is faster", port->interface, mtu,
			fits, (unsigned)PATH_MTU_MAX);
	else
		doctor_say(doctor, DOCTOR_OK, "mtu", NULL, "%s: MTU %lld carries a path MTU of %u",
			port->interface, mtu, fits);
}

/* The kernel also receives the packets that a packet socket receives. */
static void check_forwarding(struct doctor *doctor, const struct doctor_port *port)
{
	static const char *const families[] = { "ipv4", "ipv6" };

	if (strcmp(port->driver, "packet") != 0)
		return;
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		long long on = 0;

		if (!root_number(doctor, &on, "/proc/sys/net/%s/conf/%s/forwarding", families[i],
			    port->interface) ||
			!on)
			continue;
		doctor_say(doctor, DOCTOR_WARN, "nic",
			"make it drop them: a blackhole route, or an nft ingress hook "
			"(docs/guide/packet.md)",
			"%s: the kernel forwards %s, including packets for the fabric's addresses",
			port->interface, families[i]);
	}
}

static void check_interface(struct doctor *doctor, const struct doctor_port *port)
{
	char state[32] = "unknown", driver[DOCTOR_NAME] = "no device driver";
	long long speed = 0, carrier = 1;
	char rate[32] = "";

	if (!root_exists(doctor, "/sys/class/net/%s", port->interface)) {
		if (!doctor->root[0] && if_nametoindex(port->interface)) {
			doctor_say(doctor, DOCTOR_SKIP, "nic", NULL,
				"%s: could not be checked: /sys is that of another network "
				"namespace",
				port->devargs);
			return;
		}
		doctor_say(doctor, DOCTOR_FAIL, "nic",
			"correct the devargs in the configuration (ip link shows the names)",
			"%s: interface %s of fabric %s is not there", port->devargs,
			port->interface, port->fabric);
		return;
	}
	root_text(doctor, state, sizeof(state), "/sys/class/net/%s/operstate", port->interface);
	root_number(doctor, &carrier, "/sys/class/net/%s/carrier", port->interface);
	root_link(
		doctor, driver, sizeof(driver), "/sys/class/net/%s/device/driver", port->interface);
	if (root_number(doctor, &speed, "/sys/class/net/%s/speed", port->interface) && speed > 0)
		snprintf(rate, sizeof(rate), ", %lld Mb/s", speed);
	if (strcmp(state, "down") == 0 || strcmp(state, "lowerlayerdown") == 0 || !carrier)
		doctor_say(doctor, DOCTOR_FAIL, "nic",
			"ip link set up; check the cable and the switch",
			"%s (%s): the link is down", port->interface, driver);
	else
		doctor_say(doctor, DOCTOR_OK, "nic", NULL, "%s (%s): link %s%s", port->interface,
			driver, state, rate);
	check_mtu(doctor, port);
	check_forwarding(doctor, port);
}

void doctor_nics(struct doctor *doctor)
{
	size_t i;

	if (!doctor->n_ports)
		doctor_say(doctor, DOCTOR_SKIP, "nic", NULL,
			"no fabric is configured: the local fabric needs no NIC");
	for (i = 0; i < doctor->n_ports; i++) {
		const struct doctor_port *port = &doctor->ports[i];

		if (port->pci[0])
			doctor_pci(doctor, port);
		else if (port->interface[0])
			check_interface(doctor, port);
		else
			doctor_say(doctor, DOCTOR_SKIP, "nic", NULL,
				"%.200s (fabric %s): unknown kind of device", port->devargs,
				port->fabric);
	}
}
