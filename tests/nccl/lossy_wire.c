/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A bad cable, for kernels without netem: joins two interfaces of a network namespace through
 * packet sockets. It loses frames, doubles some and delivers some a place later. Or it loses
 * acknowledgements alone, never two of a direction in a row. It prints when it has begun. At
 * SIGTERM it prints its counts, and how many packets of RoCE it saw of each traffic class.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	FRAME = 65536,
	PER_MILLE = 1000,
	ROCE_PORT = 4791,
	RC_ACK = 0x11, /* opcode */
	CLASSES = 256,
	ECN = 3, /* bits of a traffic class that are not the sender's */
};

struct end {
	int fd;
	bool has_lost; /* the last acknowledgement */
	/* A frame that is delivered a place later. */
	uint8_t held[FRAME];
	ssize_t held_size;
};

static volatile sig_atomic_t is_over;
static unsigned long n_passed, n_lost, n_doubled, n_late, n_of_class[CLASSES];
static uint64_t random_state = 0x9e3779b97f4a7c15;

static void end(int signal)
{
	is_over = 1;
}

static bool one_of(unsigned int per_mille)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state % PER_MILLE < per_mille;
}

static int open_end(const char *interface)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET,
		.sll_protocol = htons(ETH_P_ALL),
		.sll_ifindex = (int)if_nametoindex(interface) };
	struct packet_mreq all = { .mr_ifindex = address.sll_ifindex,
		.mr_type = PACKET_MR_PROMISC };
	int size = 8 << 20;
	int one = 1;
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || !address.sll_ifindex)
		return -1;
	/* The socket's own frames do not count as received. */
	if (setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &one, sizeof(one)) ||
		setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) ||
		bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size));
	setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
	return fd;
}

static void give(struct end *to, const uint8_t *frame, ssize_t size)
{
	/* A full queue loses the frame, too. */
	if (send(to->fd, frame, (size_t)size, 0) == size)
		n_passed++;
	else
		n_lost++;
}

/* Counts a packet of RoCE over IPv4 without options and returns its opcode, or -1. */
static int look_at(const uint8_t *frame, ssize_t size)
{
	const uint8_t *ip = frame + ETH_HLEN, *udp = ip + 20, *bth = udp + 8;

	if (size < bth + 12 - frame || frame[12] != 0x08 || frame[13] != 0x00 || ip[0] != 0x45 ||
		ip[9] != IPPROTO_UDP || udp[2] << 8 != (ROCE_PORT & 0xff00) ||
		udp[3] != (ROCE_PORT & 0xff))
		return -1;
	n_of_class[ip[1] & ~ECN]++;
	return bth[0];
}

static bool loses_ack(struct end *from, int opcode)
{
	if (opcode != RC_ACK)
		return false;
	from->has_lost = !from->has_lost && one_of(PER_MILLE / 2);
	return from->has_lost;
}

static void forward(struct end *from, struct end *to, unsigned int bad, bool loses_acks)
{
	static uint8_t frame[FRAME];
	ssize_t size = recv(from->fd, frame, sizeof(frame), MSG_TRUNC);
	int opcode;

	if (size <= 0 || size > FRAME)
		return;
	opcode = look_at(frame, size);
	if (one_of(bad) || (loses_acks && loses_ack(from, opcode))) {
		n_lost++;
	} else if (one_of(bad) && !to->held_size) {
		memcpy(to->held, frame, (size_t)size);
		to->held_size = size;
		n_late++;
		return;
	} else {
		give(to, frame, size);
		if (one_of(bad)) {
			give(to, frame, size);
			n_doubled++;
		}
	}
	if (to->held_size)
		give(to, to->held, to->held_size);
	to->held_size = 0;
}

static void report(void)
{
	printf("%lu frames passed, %lu lost, %lu twice, %lu late; RoCE by traffic class:", n_passed,
		n_lost, n_doubled, n_late);
	for (unsigned int i = 0; i < CLASSES; i++)
		if (n_of_class[i])
			printf(" %u: %lu", i, n_of_class[i]);
	putchar('\n');
}

int main(int argc, char **argv)
{
	static struct end ends[2];
	struct sigaction action = { .sa_handler = end };
	bool loses_acks;
	unsigned int bad;

	if (argc != 4) {
		fputs("nccl-lossy-wire INTERFACE INTERFACE PER-MILLE|acks\n", stderr);
		return 2;
	}
	loses_acks = strcmp(argv[3], "acks") == 0;
	bad = (unsigned int)atoi(argv[3]);
	for (unsigned int i = 0; i < 2; i++) {
		ends[i].fd = open_end(argv[1 + i]);
		if (ends[i].fd < 0) {
			fprintf(stderr, "%s: %s\n", argv[1 + i], strerror(errno));
			return 1;
		}
	}
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	puts("ready");
	fflush(stdout);
	while (!is_over) {
		struct pollfd news[2] = { { .fd = ends[0].fd, .events = POLLIN },
			{ .fd = ends[1].fd, .events = POLLIN } };

		if (poll(news, 2, 1000) <= 0)
			continue;
		for (unsigned int i = 0; i < 2; i++)
			if (news[i].revents)
				forward(&ends[i], &ends[1 - i], bad, loses_acks);
	}
	report();
	return 0;
}
