/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The frames that the filter of a packet socket accepts, as the kernel runs it: on a local socket,
 * which takes such filters as well. VLAN tags are in the frames here, as other sockets of an
 * interface send them. Tags that the kernel has removed are for the system test.
 */
#include <check.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "drivers/packet/internal.h"
#include "drivers/packet/socket.h"
#include "lib/base/bytes.h"
#include "lib/base/net/ip.h"
#include "tests/fixtures/program.h"

enum kind { ROCE, OTHER_PORT, FRAGMENT, ICMP, TCP, IGMP, HOP_BY_HOP, ARP, ARP_TOLD, LLDP };

#define MINE    "10.1.1.5"
#define OTHERS  "10.1.1.6"
#define GROUP   "239.1.2.3"
#define MINE6   "fd00::5"
#define OTHERS6 "fd00::6"
#define GROUP6  "ff02::1:ff00:5"
#define LOCAL6  "fe80::ff:fe00:9" /* of 02:00:00:00:00:09 */

static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 9 };

static const struct {
	enum kind kind;
	const char *to;
	int vlan;      /* of the frame; 0: no tag */
	bool of_own;   /* by the filter of a socket that is a process's own */
	bool of_lease; /* by a lease's, with a MAC of its own, on no VLAN */
	bool of_vlan;  /* and on VLAN 7 */
} rows[] = {
	{ ROCE, MINE, 0, true, true, false },
	{ ROCE, OTHERS, 0, false, false, false },
	{ ROCE, "10.1.1.9", 0, true, true, false },
	{ ROCE, GROUP, 0, true, true, false },
	{ ROCE, "255.255.255.255", 0, false, false, false },
	{ OTHER_PORT, MINE, 0, false, false, false },
	{ FRAGMENT, MINE, 0, false, false, false },
	{ TCP, MINE, 0, false, false, false },
	{ ICMP, MINE, 0, true, true, false },
	{ ICMP, OTHERS, 0, false, false, false },
	{ IGMP, GROUP, 0, true, true, false },
	{ ARP, MINE, 0, true, true, false },
	{ ARP, OTHERS, 0, false, false, false },
	{ ARP_TOLD, OTHERS, 0, true, true, false },
	{ LLDP, NULL, 0, false, false, false },
	{ ROCE, MINE6, 0, true, true, false },
	{ ROCE, OTHERS6, 0, false, false, false },
	{ ROCE, GROUP6, 0, true, true, false },
	{ ROCE, LOCAL6, 0, true, true, false },
	{ ROCE, "fe80::ff:fe00:8", 0, false, false, false },
	{ OTHER_PORT, MINE6, 0, false, false, false },
	{ TCP, MINE6, 0, false, false, false },
	{ ICMP, MINE6, 0, true, true, false },
	{ ICMP, OTHERS6, 0, false, false, false },
	{ ICMP, GROUP6, 0, true, true, false },
	{ HOP_BY_HOP, GROUP6, 0, true, true, false },
	{ HOP_BY_HOP, MINE6, 0, false, false, false },
	{ ROCE, MINE, 7, false, false, true },
	{ ROCE, MINE6, 7, false, false, true },
	{ ROCE, OTHERS, 7, false, false, false },
	{ ROCE, GROUP, 7, false, false, true },
	{ ROCE, GROUP, 8, false, false, false },
	{ ROCE, MINE, 8, false, false, false },
	{ ROCE, MINE, 0x1007, false, false, true }, /* with a priority */
	{ ARP, MINE, 7, false, false, true },
	{ ARP, MINE, 8, false, false, false },
	{ ICMP, MINE6, 7, false, false, true },
};

static struct frl_ip ip_of(const char *text)
{
	uint8_t prefix_len;
	struct frl_ip ip;

	ck_assert_int_eq(parse_ip(text, &ip, &prefix_len), 0);
	return ip;
}

static struct gid_table own_gids(uint16_t vlan)
{
	struct gid_table gids = { .n = 4 };

	gids.gids[1] = (struct frl_gid){ .ip = ip_of(MINE), .vlan = vlan };
	gids.gids[2] = (struct frl_gid){ .ip = ip_of(MINE6), .vlan = vlan };
	gids.gids[3] = (struct frl_gid){ .ip = ip_of("10.1.1.9"), .vlan = vlan };
	return gids;
}

static void put_arp(uint8_t *at, bool told, const struct frl_ip *to)
{
	memcpy(at + 14, told ? to->bytes + 12 : (const uint8_t[]){ 10, 1, 1, 77 }, 4);
	memcpy(at + 24, to->bytes + 12, 4);
}

static void put_ip(uint8_t *at, enum kind kind, const struct frl_ip *to)
{
	static const uint8_t v4[] = {
		[ROCE] = 17, [OTHER_PORT] = 17, [FRAGMENT] = 17, [ICMP] = 1, [TCP] = 6, [IGMP] = 2
	};
	static const uint8_t v6[] = {
		[ROCE] = 17, [OTHER_PORT] = 17, [ICMP] = 58, [TCP] = 6, [HOP_BY_HOP] = 0
	};
	uint8_t *udp = at + (ip_is_v4(to) ? 20 : 40);

	if (ip_is_v4(to)) {
		at[0] = 0x45;
		at[9] = v4[kind];
		put_be16(at + 6, kind == FRAGMENT ? 0x2001 : 0x4000);
		memcpy(at + 16, to->bytes + 12, 4);
	} else {
		at[0] = 0x60;
		at[6] = v6[kind];
		memcpy(at + 24, to->bytes, 16);
	}
	put_be16(udp + 2, kind == OTHER_PORT ? 4792 : 4791);
}

static size_t make_frame(uint8_t frame[100], int row)
{
	const struct frl_ip to = rows[row].to ? ip_of(rows[row].to) : (struct frl_ip){ { 0 } };
	enum kind kind = rows[row].kind;
	size_t at = 14;

	memset(frame, 0, 100);
	if (rows[row].vlan) {
		put_be16(frame + 12, 0x8100);
		put_be16(frame + 14, (uint16_t)rows[row].vlan);
		at = 18;
	}
	put_be16(frame + at - 2,
		kind == LLDP                              ? 0x88cc
			: kind == ARP || kind == ARP_TOLD ? 0x0806
			: ip_is_v4(&to)                   ? 0x0800
							  : 0x86dd);
	if (kind == ARP || kind == ARP_TOLD)
		put_arp(frame + at, kind == ARP_TOLD, &to);
	else if (kind != LLDP)
		put_ip(frame + at, kind, &to);
	return 100;
}

static bool comes_in(const struct packet_scope *scope, int row)
{
	uint8_t frame[100], got[100];
	size_t len = make_frame(frame, row);
	int fds[2];
	bool came;

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, fds), 0);
	ck_assert_int_eq(packet_filter(fds[0], scope), 0);
	/* A refused frame is no error to the sender. */
	(void)!send(fds[1], frame, len, 0);
	came = recv(fds[0], got, sizeof(got), 0) == (ssize_t)len;
	close(fds[0]);
	close(fds[1]);
	return came;
}

START_LOOP_TEST(lets_in, ROWS(rows))
{
	const struct gid_table gids = own_gids(0), tagged = own_gids(7);
	const struct packet_scope own = { .gids = &gids, .mac = mac };
	const struct packet_scope lease = { .gids = &gids, .mac = mac, .is_lease = true };
	const struct packet_scope vlan = {
		.gids = &tagged, .mac = mac, .is_lease = true, .vlan = 7
	};

	ck_assert_msg(comes_in(&own, _i) == rows[_i].of_own, "own");
	ck_assert_msg(comes_in(&lease, _i) == rows[_i].of_lease, "lease");
	ck_assert_msg(comes_in(&vlan, _i) == rows[_i].of_vlan, "VLAN");
}
END_TEST

/* All leases share the link-local address of the interface's MAC. */
START_TEST(no_link_local_address_of_others)
{
	const struct gid_table gids = own_gids(0);
	const struct packet_scope scope = { .gids = &gids, .is_lease = true };

	for (int i = 0; i < (int)(sizeof(rows) / sizeof(rows[0])); i++)
		if (rows[i].to && strcmp(rows[i].to, LOCAL6) == 0)
			ck_assert(!comes_in(&scope, i));
}
END_TEST

/* The maximum of addresses of a port, of either family. */
START_LOOP_TEST(has_room, 2)
{
	struct gid_table gids = { .n = FRL_MAX_GIDS };
	const struct packet_scope scope = {
		.gids = &gids, .mac = mac, .is_lease = true, .vlan = 7
	};
	int fds[2];

	for (unsigned i = 1; i < FRL_MAX_GIDS; i++)
		gids.gids[i].ip = ip_of(_i ? MINE6 : MINE);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, fds), 0);
	ck_assert_int_eq(packet_filter(fds[0], &scope), 0);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

/* ---- a lease's socket; without the right to open one there is no more to see than that */

static int lease_of(const char *port, const char *ip, char *why, size_t size)
{
	struct gid_table gids = { .n = 2 };
	const struct packet_lease lease = { .port = port, .gids = &gids };
	uint64_t id = 0;
	int fd;

	gids.gids[1].ip = ip_of(ip);
	fd = packet_lease_socket(&lease, &id, why, size);
	ck_assert(fd < 0 || id);
	return fd;
}

START_TEST(not_the_kernels_address)
{
	char why[200];

	ck_assert_int_eq(lease_of("packet:lo", "127.0.0.1", why, sizeof(why)), -EADDRINUSE);
	ck_assert_ptr_nonnull(strstr(why, "127.0.0.1"));
}
END_TEST

START_TEST(is_locked)
{
	char why[200];
	int off = 0, fd = lease_of("packet:lo", "192.0.2.77", why, sizeof(why));
	const struct gid_table gids = own_gids(0);
	const struct packet_scope scope = { .gids = &gids };

	if (fd == -EPERM)
		return;
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(packet_filter(fd, &scope), -EPERM);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &off, sizeof(off)), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &off, sizeof(off)), -1);
	close(fd);
	ck_assert_int_eq(lease_of("packet:none77", "192.0.2.77", why, sizeof(why)), -ENODEV);
	ck_assert_int_eq(lease_of("packet:", "192.0.2.77", why, sizeof(why)), -EINVAL);
}
END_TEST

TEST_FILE(packet_filter)
