/* SPDX-License-Identifier: BSD-3-Clause */
/*
 *	lease-client SOCKET FABRIC
 *
 * A hostile process of leased-ports.sh: leases a port of ferruled's, tries what its packet socket
 * should not allow, and reads what comes. Prints "leased ADDRESSES", and a line for each command on
 * its standard input:
 *
 *	count    "own N foreign M": RoCE packets for the lease's address, and frames that the filter
 *	         should have dropped
 *	wait     the same, once there is one of its own
 *	send IP  frames that the filter of the lease with that address drops, and one RoCE packet
 *	         for it: "sent"
 *	close    ends the lease, and keeps the socket: "closed"
 *	drop     closes the socket: "dropped"
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/bytes.h"
#include "lib/control/frame.h"
#include "lib/control/socket.h"
#include "lib/control/spawn.h"

static struct control_socket control;
static int lease_fd = -1;
static uint32_t own_ip;
static unsigned long own, foreign;

static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(EXIT_FAILURE);
}

static void say(uint64_t seq, Ctl__Envelope__BodyCase body, void *message)
{
	Ctl__Envelope envelope;
	struct outgoing *out;
	struct list queue;
	size_t bytes = 0;

	envelope_init(&envelope);
	envelope.seq = seq;
	envelope.body_case = body;
	envelope.hello = message; /* whichever of the union it is */
	list_init(&queue);
	out = outgoing_new(&envelope, -1);
	if (!out)
		give_up("no memory");
	list_add_tail(&queue, &out->node);
	while (control_socket_send(&control, &queue, &bytes) == -EAGAIN)
		poll(&(struct pollfd){ control.fd, POLLOUT, 0 }, 1, -1);
}

static Ctl__Envelope *hear(void)
{
	const char *why = NULL;
	Ctl__Envelope *envelope;

	while (!(envelope = control_socket_next(&control, &why)) && !why) {
		int rc;

		poll(&(struct pollfd){ control.fd, POLLIN, 0 }, 1, -1);
		rc = control_socket_receive(&control);
		errno = -rc;
		if (rc && rc != -EAGAIN)
			give_up("the daemon");
	}
	if (envelope && envelope->body_case != CTL__ENVELOPE__BODY_FAILURE)
		return envelope;
	fprintf(stderr, "%s\n", envelope ? envelope->failure->text : why);
	exit(EXIT_FAILURE);
}

static void lease(const char *path, const char *fabric)
{
	Ctl__Hello hello = CTL__HELLO__INIT;
	Ctl__OpenPort open = CTL__OPEN_PORT__INIT;
	struct daemon_place place = { .is_private = false };
	Ctl__Envelope *opened;
	char why[256];

	control_socket_init(&control);
	snprintf(place.path, sizeof(place.path), "%s", path);
	control.fd = daemon_connect(&place, why, sizeof(why));
	if (control.fd < 0)
		give_up(why);
	hello.role = CTL__ROLE__ROLE_PROCESS;
	hello.name = (char *)"lease-client";
	hello.instance = 1;
	hello.pid = (uint32_t)getpid();
	hello.release = (char *)"0";
	say(0, CTL__ENVELOPE__BODY_HELLO, &hello);
	ctl__envelope__free_unpacked(hear(), NULL);
	open.port = 1;
	open.fabric = (char *)(uintptr_t)fabric;
	say(7, CTL__ENVELOPE__BODY_OPEN_PORT, &open);
	opened = hear();
	lease_fd = control_socket_take_fd(&control);
	errno = EBADF;
	if (lease_fd < 0 || !opened->port_opened->has_socket)
		give_up("no socket came with the lease");
	printf("leased %s\n", opened->port_opened->lease->ip);
	own_ip = ntohl(inet_addr(strtok(opened->port_opened->lease->ip, "/")));
	ctl__envelope__free_unpacked(opened, NULL);
}

static void must_fail(int result, const char *what)
{
	if (result == 0) {
		fprintf(stderr, "%s is allowed\n", what);
		exit(EXIT_FAILURE);
	}
}

/* The interface then passes everything; the filter of the socket does not. */
static void try_all(void)
{
	struct sock_filter take_all = { BPF_RET | BPF_K, 0, 0, 0xffffffff };
	struct sock_fprog program = { 1, &take_all };
	struct packet_mreq promiscuous = { .mr_type = PACKET_MR_PROMISC };
	struct sockaddr_ll bound;
	socklen_t length = sizeof(bound);
	int off = 0;

	must_fail(socket(AF_PACKET, SOCK_RAW, 0) < 0, "another packet socket");
	must_fail(setsockopt(lease_fd, SOL_SOCKET, SO_DETACH_FILTER, &off, sizeof(off)),
		"to take the filter off");
	must_fail(setsockopt(lease_fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)),
		"another filter");
	must_fail(setsockopt(lease_fd, SOL_SOCKET, SO_LOCK_FILTER, &off, sizeof(off)),
		"to unlock the filter");
	if (getsockname(lease_fd, (struct sockaddr *)&bound, &length))
		give_up("getsockname");
	promiscuous.mr_ifindex = bound.sll_ifindex;
	if (setsockopt(
		    lease_fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &promiscuous, sizeof(promiscuous)))
		give_up("PACKET_MR_PROMISC");
}

enum {
	L3 = 14, /* behind the header of Ethernet */
	L4 = L3 + 20,
	ROCE_PORT = 4791,
	FRAME_MIN = 60,
};

static bool is_group(const uint8_t *ipv4)
{
	return ipv4[0] >> 4 == 0xe;
}

static bool may_be_ipv4(const uint8_t *frame)
{
	uint32_t to = get_be32(frame + L3 + 16);

	switch (frame[L3 + 9]) {
	case IPPROTO_IGMP: return true;
	case IPPROTO_ICMP: return to == own_ip;
	case IPPROTO_UDP:
		return get_be16(frame + L4 + 2) == ROCE_PORT &&
			(to == own_ip || is_group(frame + L3 + 16));
	default: return false;
	}
}

/* The lease has no IPv6 address: send to groups only. */
static bool may_be_ipv6(const uint8_t *frame)
{
	if (frame[L3 + 24] != 0xff)
		return false;
	switch (frame[L3 + 6]) {
	case IPPROTO_UDP: return get_be16(frame + L3 + 40 + 2) == ROCE_PORT;
	case IPPROTO_ICMPV6:
	case IPPROTO_HOPOPTS: return true;
	default: return false;
	}
}

/* The frames that a lease's socket accepts by decision 63. */
static bool may_come(const uint8_t *frame, size_t size)
{
	if (size < L4 + 8)
		return false;
	switch (get_be16(frame + L3 - 2)) {
	case ETH_P_ARP:
		return get_be32(frame + L3 + 24) == own_ip ||
			get_be32(frame + L3 + 24) == get_be32(frame + L3 + 14);
	case ETH_P_IP: return may_be_ipv4(frame);
	case ETH_P_IPV6: return may_be_ipv6(frame);
	default: return false;
	}
}

static void read_frames(void)
{
	static uint8_t frame[65536];
	ssize_t n;

	while ((n = recv(lease_fd, frame, sizeof(frame), MSG_DONTWAIT)) >= 0) {
		if (!may_come(frame, (size_t)n))
			foreign++;
		else if (get_be16(frame + L3 - 2) == ETH_P_IP && frame[L3 + 9] == IPPROTO_UDP)
			own += get_be32(frame + L3 + 16) == own_ip;
	}
}

static void wait_for_own(void)
{
	while (!own) {
		poll(&(struct pollfd){ lease_fd, POLLIN, 0 }, 1, -1);
		read_frames();
	}
}

/* To every host of the link. */
static void send_frame(uint16_t type, const uint8_t *body, size_t size)
{
	uint8_t frame[FRAME_MIN] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0x99, 1 };

	put_be16(frame + L3 - 2, type);
	memcpy(frame + L3, body, size);
	if (send(lease_fd, frame, sizeof(frame), 0) != sizeof(frame))
		give_up("send");
}

static void send_ipv4(uint8_t protocol, uint32_t to, uint16_t port)
{
	uint8_t packet[40] = { 0x45, 0, 0, sizeof(packet), 0, 0, 0, 0, 64, protocol };

	put_be32(packet + 12, own_ip);
	put_be32(packet + 16, to);
	put_be16(packet + 22, port);
	send_frame(ETH_P_IP, packet, sizeof(packet));
}

static void send_all(uint32_t to)
{
	uint8_t arp[28] = { 0, 1, 8, 0, 6, 4, 0, 1 };
	uint8_t ipv6[44] = { 0x60, 0, 0, 0, 0, 4, IPPROTO_TCP, 1, [24] = 0xff, 2, [39] = 1 };

	put_be32(arp + 14, own_ip);
	put_be32(arp + 24, to + 1);
	send_frame(ETH_P_ARP, arp, sizeof(arp));
	send_frame(ETH_P_IPV6, ipv6, sizeof(ipv6));
	ipv6[6] = IPPROTO_ICMPV6;
	ipv6[24] = 0xfd;
	send_frame(ETH_P_IPV6, ipv6, sizeof(ipv6));
	send_frame(ETH_P_LOOPBACK, arp, sizeof(arp));
	send_ipv4(IPPROTO_TCP, to, ROCE_PORT);
	send_ipv4(IPPROTO_UDP, to, ROCE_PORT + 1);
	send_ipv4(IPPROTO_ICMP, to + 1, 0);
	send_ipv4(IPPROTO_UDP, to + 1, ROCE_PORT);
	send_ipv4(IPPROTO_UDP, to, ROCE_PORT);
}

static bool carry_out(char *command)
{
	Ctl__ClosePort close_port = CTL__CLOSE_PORT__INIT;

	if (strcmp(command, "count\n") == 0) {
		printf("own %lu foreign %lu\n", own, foreign);
	} else if (strcmp(command, "wait\n") == 0) {
		wait_for_own();
		printf("own %lu foreign %lu\n", own, foreign);
	} else if (strncmp(command, "send ", 5) == 0) {
		send_all(ntohl(inet_addr(strtok(command + 5, "\n"))));
		printf("sent\n");
	} else if (strcmp(command, "close\n") == 0) {
		close_port.port = 1;
		say(0, CTL__ENVELOPE__BODY_CLOSE_PORT, &close_port);
		printf("closed\n");
	} else if (strcmp(command, "drop\n") == 0) {
		close(lease_fd);
		lease_fd = -1;
		printf("dropped\n");
	} else {
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	char command[32];

	if (argc != 3) {
		fprintf(stderr, "see the head of tests/system/daemon/lease_client.c\n");
		return EXIT_FAILURE;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	setvbuf(stdin, NULL, _IONBF, 0);
	lease(argv[1], argv[2]);
	try_all();
	printf("tried\n");
	for (;;) {
		struct pollfd fds[] = { { STDIN_FILENO, POLLIN, 0 }, { lease_fd, POLLIN, 0 } };

		poll(fds, 2, -1);
		if (lease_fd >= 0)
			read_frames();
		if (!fds[0].revents)
			continue;
		if (!fgets(command, sizeof(command), stdin) || !carry_out(command))
			return EXIT_SUCCESS;
	}
}
