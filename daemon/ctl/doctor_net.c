/* SPDX-License-Identifier: BSD-3-Clause */
/* The fabrics' NICs, where they are in the machine, and the gateways behind them. */
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/ctl/doctor.h"
#include "lib/base/clock.h"

enum {
	/* IPv6, UDP, BTH, RETH, ImmDt and ICRC around a payload of the path MTU. */
	PACKET_EXTRA = 40 + 8 + 12 + 16 + 4 + 4,
	PATH_MTU_MIN = 256,
	PATH_MTU_MAX = 4096,
	DISCARD_PORT = 9,
	NODES = 64,
	PROBE_MS = 1000,
	PROBE_STEP_MS = 50,
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
			"ip link set mtu on it and on all of the path, or a smaller path_mtu in "
			"the "
			"configuration",
			"%s: MTU %lld carries a path MTU of %u, fabric %s wants %u",
			port->interface, mtu, fits, port->fabric, port->path_mtu);
	else if (fits < PATH_MTU_MAX && !port->path_mtu)
		doctor_say(doctor, DOCTOR_WARN, "mtu",
			"where the switches allow it: ip link set mtu 4200 and more",
			"%s: MTU %lld carries a path MTU of %u; %u is faster", port->interface, mtu,
			fits, (unsigned)PATH_MTU_MAX);
	else
		doctor_say(doctor, DOCTOR_OK, "mtu", NULL, "%s: MTU %lld carries a path MTU of %u",
			port->interface, mtu, fits);
}

/* The kernel sees what a packet socket takes, as well. */
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
			"have it drop them: a blackhole route, or nft's ingress hook "
			"(docs/packet.md)",
			"%s: the kernel forwards %s, the packets for the fabric's addresses "
			"included",
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
		doctor_say(doctor, DOCTOR_FAIL, "nic", "ip link set up; look at cable and switch",
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
			"no fabric is configured: there is the local fabric alone, which needs "
			"none");
	for (i = 0; i < doctor->n_ports; i++) {
		const struct doctor_port *port = &doctor->ports[i];

		if (port->pci[0])
			doctor_pci(doctor, port);
		else if (port->interface[0])
			check_interface(doctor, port);
		else
			doctor_say(doctor, DOCTOR_SKIP, "nic", NULL,
				"%.200s (fabric %s): not a device that is known here",
				port->devargs, port->fabric);
	}
}

/* ---- NUMA */

/* The node of the port's device; -1: it has none. */
static long long node_of(const struct doctor *doctor, const struct doctor_port *port)
{
	long long node = -1;

	if (port->pci[0])
		root_number(doctor, &node, "/sys/bus/pci/devices/%s/numa_node", port->pci);
	else if (port->interface[0])
		root_number(doctor, &node, "/sys/class/net/%s/device/numa_node", port->interface);
	return node;
}

static void check_placement(
	struct doctor *doctor, const struct doctor_port *port, const struct cpu_set_text *allowed)
{
	const char *name = port->pci[0] ? port->pci : port->interface;
	long long node = node_of(doctor, port);
	struct cpu_set_text cpus;
	char text[1024];

	if (node < 0 ||
		!root_text(doctor, text, sizeof(text), "/sys/devices/system/node/node%lld/cpulist",
			node) ||
		!cpus_parse(text, &cpus))
		return;
	if (cpus_meet(&cpus, allowed))
		doctor_say(doctor, DOCTOR_OK, "numa", NULL,
			"%s is at node %lld, whose processors this user may use", name, node);
	else
		doctor_say(doctor, DOCTOR_WARN, "numa",
			"start programs with numactl --cpunodebind and --membind of that node",
			"%s is at node %lld; none of its processors (%.100s) may be used here",
			name, node, text);
}

void doctor_numa(struct doctor *doctor)
{
	static char nodes[NODES][DOCTOR_NAME];
	size_t count = root_list(doctor, "/sys/devices/system/node", "node", nodes, NODES), i;
	struct cpu_set_text allowed;
	char status[8192], list[1024];
	const char *line;

	if (count <= 1) {
		doctor_say(doctor, DOCTOR_OK, "numa", NULL, "all memory is at one node");
		return;
	}
	line = root_text(doctor, status, sizeof(status), "/proc/self/status")
		? strstr(status, "Cpus_allowed_list:")
		: NULL;
	if (!line || sscanf(line, "Cpus_allowed_list: %1023s", list) != 1 ||
		!cpus_parse(list, &allowed)) {
		doctor_say(doctor, DOCTOR_SKIP, "numa", NULL,
			"%zu nodes; /proc/self/status does not say which processors are allowed",
			count);
		return;
	}
	if (!doctor->n_ports)
		doctor_say(doctor, DOCTOR_OK, "numa", NULL,
			"%zu nodes; no fabric has a NIC to be close to", count);
	for (i = 0; i < doctor->n_ports; i++)
		check_placement(doctor, &doctor->ports[i], &allowed);
}

/* ---- gateways */

/* Of /proc/net/arp: 1: it has answered, 0: it was asked and has not, -1: nobody asked. */
static int neighbour_state(const struct doctor *doctor, const char *address)
{
	char table[16384], entry[64];
	unsigned flags;
	const char *line;

	if (!root_text(doctor, table, sizeof(table), "/proc/net/arp"))
		return -1;
	for (line = strchr(table, '\n'); line; line = strchr(line, '\n')) {
		line++;
		if (sscanf(line, "%63s 0x%*x 0x%x", entry, &flags) == 2 &&
			strcmp(entry, address) == 0)
			return flags & 2 ? 1 : 0;
	}
	return -1;
}

/* A datagram, so that the kernel asks for the neighbour. False: it has no way there. */
static bool provoke(const char *address)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(DISCARD_PORT) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool sent;

	if (fd < 0 || inet_pton(AF_INET, address, &to.sin_addr) != 1) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	sent = connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0 && send(fd, "", 1, 0) == 1;
	close(fd);
	return sent;
}

static int ask_neighbour(const struct doctor *doctor, const char *address)
{
	int state = neighbour_state(doctor, address);
	uint64_t until_ns;

	if (state == 1 || doctor->root[0])
		return state;
	if (!provoke(address))
		return -1;
	until_ns = clock_now_ns() + PROBE_MS * UINT64_C(1000000);
	while (state != 1 && clock_now_ns() < until_ns) {
		poll(NULL, 0, PROBE_STEP_MS);
		state = neighbour_state(doctor, address);
	}
	return state;
}

/* Does the kernel have an address in the gateway's network? Else it is no neighbour of its. */
static bool is_on_link(const struct doctor *doctor, const char *address)
{
	char table[16384], name[64];
	unsigned destination, gateway, mask;
	struct in_addr wanted;
	const char *line;

	if (inet_pton(AF_INET, address, &wanted) != 1 ||
		!root_text(doctor, table, sizeof(table), "/proc/net/route"))
		return false;
	for (line = strchr(table, '\n'); line; line = strchr(line, '\n')) {
		line++;
		if (sscanf(line, "%63s %x %x %*x %*d %*d %*d %x", name, &destination, &gateway,
			    &mask) == 4 &&
			gateway == 0 && mask != 0 && (wanted.s_addr & mask) == destination)
			return true;
	}
	return false;
}

static void check_gateway(struct doctor *doctor, const char *address, const char *whose)
{
	if (strchr(address, ':')) {
		doctor_say(doctor, DOCTOR_SKIP, "gateway", NULL,
			"%s (%s) could not be checked: that is done for IPv4 alone", address,
			whose);
		return;
	}
	if (!is_on_link(doctor, address)) {
		doctor_say(doctor, DOCTOR_SKIP, "gateway", NULL,
			"%s (%s) could not be checked: the kernel has no address in its network, "
			"only "
			"the fabric's ports have",
			address, whose);
		return;
	}
	switch (ask_neighbour(doctor, address)) {
	case 1:
		doctor_say(
			doctor, DOCTOR_OK, "gateway", NULL, "%s (%s) answers ARP", address, whose);
		break;
	case 0:
		doctor_say(doctor, DOCTOR_FAIL, "gateway",
			"look at its address, the VLAN and the cable: ip neigh, arping",
			"%s (%s) does not answer ARP", address, whose);
		break;
	default:
		doctor_say(doctor, DOCTOR_SKIP, "gateway", NULL,
			"%s (%s) could not be checked: the kernel has no entry for it", address,
			whose);
	}
}

/* Of the kernel's own default route. */
static bool default_gateway(const struct doctor *doctor, char address[INET_ADDRSTRLEN])
{
	char table[16384], name[64];
	unsigned destination, gateway, mask;
	const char *line;

	if (!root_text(doctor, table, sizeof(table), "/proc/net/route"))
		return false;
	for (line = strchr(table, '\n'); line; line = strchr(line, '\n')) {
		struct in_addr found;

		line++;
		if (sscanf(line, "%63s %x %x %*x %*d %*d %*d %x", name, &destination, &gateway,
			    &mask) != 4 ||
			destination || mask || !gateway)
			continue;
		found.s_addr = gateway; /* written as the number that its bytes are here */
		return inet_ntop(AF_INET, &found, address, INET_ADDRSTRLEN) != NULL;
	}
	return false;
}

/* "10.1.0.1,fd00:1::1": one of each family. */
static void check_gateways_of(struct doctor *doctor, const struct doctor_port *port)
{
	char addresses[sizeof(port->gateway)];
	char *rest = addresses, *address;

	snprintf(addresses, sizeof(addresses), "%s", port->gateway);
	while ((address = strsep(&rest, ", ")))
		if (*address)
			check_gateway(doctor, address, port->fabric);
}

void doctor_gateways(struct doctor *doctor)
{
	char address[INET_ADDRSTRLEN];
	size_t i, j;

	for (i = 0; i < doctor->n_ports; i++) {
		const struct doctor_port *port = &doctor->ports[i];
		bool again = false;

		for (j = 0; j < i; j++)
			again |= strcmp(doctor->ports[j].gateway, port->gateway) == 0;
		if (!again)
			check_gateways_of(doctor, port);
	}
	if (default_gateway(doctor, address))
		check_gateway(doctor, address, "the kernel's default route, to other daemons");
	else
		doctor_say(doctor, DOCTOR_SKIP, "gateway", NULL,
			"the kernel has no default route: daemons reach their own networks alone");
}
