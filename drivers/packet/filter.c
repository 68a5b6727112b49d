/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the socket lets in, as a program of classic BPF: ARP; ICMP, IGMP and their like of IPv6; and
 * RoCE to the port's addresses and to groups. All else is the kernel's, or of another process on
 * this interface. An outer VLAN tag was taken off before.
 */
#include "drivers/packet/internal.h"

#include <errno.h>
#include <linux/filter.h>

#include "lib/base/addr.h"
#include "lib/base/bytes.h"

enum {
	ROCE_PORT = 4791,
	IP4 = ETH_HEADER,
	IP6 = ETH_HEADER,
	MAX_PROGRAM = 64 + 9 * (FRL_MAX_GIDS + 1),
	ALL = 0x40000,
};

struct program {
	unsigned n;
	struct sock_filter code[MAX_PROGRAM];
};

static void add(struct program *p, uint16_t code, uint32_t k, unsigned jt, unsigned jf)
{
	p->code[p->n++] = (struct sock_filter){ code, (uint8_t)jt, (uint8_t)jf, k };
}

static void load(struct program *p, uint16_t size, uint32_t at)
{
	add(p, BPF_LD | size | BPF_ABS, at, 0, 0);
}

/* Goes on, or else skips so many. */
static void need(struct program *p, uint32_t value, unsigned skip)
{
	add(p, BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip);
}

static void take(struct program *p)
{
	add(p, BPF_RET | BPF_K, ALL, 0, 0);
}

static void take_if(struct program *p, uint32_t value)
{
	need(p, value, 1);
	take(p);
}

static void refuse(struct program *p)
{
	add(p, BPF_RET | BPF_K, 0, 0, 0);
}

static void refuse_unless(struct program *p, uint32_t value)
{
	add(p, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
	refuse(p);
}

/* A jump over what is added until end_skip(). */
static unsigned skip_unless(struct program *p, uint32_t value)
{
	add(p, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
	add(p, BPF_JMP | BPF_JA, 0, 0, 0);
	return p->n - 1;
}

static void end_skip(struct program *p, unsigned jump)
{
	p->code[jump].k = p->n - jump - 1;
}

static void take_ipv4(struct program *p, const struct gid_table *gids)
{
	load(p, BPF_B, IP4 + 9);
	take_if(p, 1); /* ICMP */
	take_if(p, 2); /* IGMP */
	refuse_unless(p, 17);
	load(p, BPF_H, IP4 + 6);
	add(p, BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 0, 1);
	refuse(p);
	add(p, BPF_LDX | BPF_B | BPF_MSH, IP4, 0, 0);
	add(p, BPF_LD | BPF_H | BPF_IND, IP4 + 2, 0, 0);
	refuse_unless(p, ROCE_PORT);
	load(p, BPF_W, IP4 + 16);
	for (unsigned i = 1; i < gids->n; i++)
		if (ip_is_v4(&gids->gids[i].ip))
			take_if(p, get_be32(gids->gids[i].ip.bytes + 12));
	add(p, BPF_ALU | BPF_AND | BPF_K, UINT32_C(0xf0000000), 0, 0);
	take_if(p, UINT32_C(0xe0000000));
	refuse(p);
}

static void take_ipv6_address(struct program *p, const struct frl_ip *ip)
{
	for (unsigned i = 0; i < 4; i++) {
		load(p, BPF_W, IP6 + 24 + 4 * i);
		need(p, get_be32(ip->bytes + 4 * i), 2 * (3 - i) + 1);
	}
	take(p);
}

static void take_ipv6(
	struct program *p, const struct gid_table *gids, const struct frl_ip *link_local)
{
	load(p, BPF_B, IP6 + 6);
	take_if(p, 58); /* ICMPv6 */
	take_if(p, 0);  /* with hop-by-hop options: listener discovery */
	refuse_unless(p, 17);
	load(p, BPF_H, IP6 + 40 + 2);
	refuse_unless(p, ROCE_PORT);
	load(p, BPF_B, IP6 + 24);
	take_if(p, 0xff);
	take_ipv6_address(p, link_local);
	for (unsigned i = 1; i < gids->n; i++)
		if (!ip_is_v4(&gids->gids[i].ip))
			take_ipv6_address(p, &gids->gids[i].ip);
	refuse(p);
}

int packet_filter(int fd, const struct gid_table *gids, const uint8_t mac[6])
{
	const struct frl_ip link_local = gid_link_local(mac);
	struct program p = { 0 };
	struct sock_fprog program;
	unsigned jump;

	load(&p, BPF_H, 12);
	take_if(&p, 0x0806); /* ARP */
	jump = skip_unless(&p, 0x0800);
	take_ipv4(&p, gids);
	end_skip(&p, jump);
	jump = skip_unless(&p, 0x86dd);
	take_ipv6(&p, gids, &link_local);
	end_skip(&p, jump);
	refuse(&p);
	program = (struct sock_fprog){ .len = (unsigned short)p.n, .filter = p.code };
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}
