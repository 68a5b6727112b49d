/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The socket's filter, as a classic BPF program. It accepts ARP and ICMP for the port's addresses,
 * IGMP and their IPv6 counterparts, and RoCE to the port's addresses and to groups. All other
 * frames belong to the kernel, or to other processes on this interface. The kernel strips the outer
 * VLAN tag from received frames. Frames sent by other sockets through the interface keep their
 * tags.
 */
#include "drivers/packet/internal.h"

#include <errno.h>
#include <linux/filter.h>

#include "lib/base/net/addr.h"
#include "lib/base/bytes.h"

enum {
	ROCE_PORT = 4791,
	TYPE_ARP = 0x0806,
	TYPE_IPV4 = 0x0800,
	TYPE_IPV6 = 0x86dd,
	TYPE_VLAN = 0x8100,
	ETHERTYPE_AT = 12,
	VLAN_ID = 0x0fff,
	/* Size of one block: each address is compared in ARP, in ICMP, and in RoCE. */
	BLOCK_MAX = 96 + 18 * (FRL_MAX_GIDS + 1),
	MAX_PROGRAM = 2 * BLOCK_MAX + 16,
	ALL = 0x40000,
};

struct program {
	const struct packet_scope *scope;
	uint32_t l3; /* offset of the headers after Ethernet's, and its tag */
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

/* Continues if the value matches, else skips `skip` instructions. */
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

/* Continues if the value matches, else refuses the frame. */
static void refuse_unless(struct program *p, uint32_t value)
{
	add(p, BPF_JMP | BPF_JEQ | BPF_K, value, 1, 0);
	refuse(p);
}

/* Skips the instructions added until end_skip(), unless the value matches. */
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

/* ---- a block: tests the headers after Ethernet's, from `l3` on */

static void take_if_own_ipv4(struct program *p)
{
	const struct gid_table *gids = p->scope->gids;

	for (unsigned i = 1; i < gids->n; i++)
		if (ip_is_v4(&gids->gids[i].ip))
			take_if(p, get_be32(gids->gids[i].ip.bytes + 12));
}

/* Accepts requests and replies for the port's addresses, and announcements of other hosts. */
static void take_arp(struct program *p)
{
	load(p, BPF_W, p->l3 + 14);
	add(p, BPF_MISC | BPF_TAX, 0, 0, 0);
	load(p, BPF_W, p->l3 + 24);
	add(p, BPF_JMP | BPF_JEQ | BPF_X, 0, 0, 1);
	take(p);
	take_if_own_ipv4(p);
	refuse(p);
}

static void take_ipv4(struct program *p)
{
	unsigned jump;

	load(p, BPF_B, p->l3 + 9);
	take_if(p, 2);            /* IGMP */
	jump = skip_unless(p, 1); /* ICMP */
	load(p, BPF_W, p->l3 + 16);
	take_if_own_ipv4(p);
	refuse(p);
	end_skip(p, jump);
	refuse_unless(p, 17);
	load(p, BPF_H, p->l3 + 6);
	add(p, BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 0, 1);
	refuse(p);
	add(p, BPF_LDX | BPF_B | BPF_MSH, p->l3, 0, 0);
	add(p, BPF_LD | BPF_H | BPF_IND, p->l3 + 2, 0, 0);
	refuse_unless(p, ROCE_PORT);
	load(p, BPF_W, p->l3 + 16);
	take_if_own_ipv4(p);
	add(p, BPF_ALU | BPF_AND | BPF_K, UINT32_C(0xf0000000), 0, 0);
	take_if(p, UINT32_C(0xe0000000));
	refuse(p);
}

static void take_ipv6_address(struct program *p, const struct frl_ip *ip)
{
	for (unsigned i = 0; i < 4; i++) {
		load(p, BPF_W, p->l3 + 24 + 4 * i);
		need(p, get_be32(ip->bytes + 4 * i), 2 * (3 - i) + 1);
	}
	take(p);
}

/* Accepts groups and the port's addresses. The link-local address counts only if no other port has
 * it. */
static void take_if_own_ipv6(struct program *p)
{
	const struct gid_table *gids = p->scope->gids;

	load(p, BPF_B, p->l3 + 24);
	take_if(p, 0xff);
	if (p->scope->mac) {
		const struct frl_ip link_local = gid_link_local(p->scope->mac);

		take_ipv6_address(p, &link_local);
	}
	for (unsigned i = 1; i < gids->n; i++)
		if (!ip_is_v4(&gids->gids[i].ip))
			take_ipv6_address(p, &gids->gids[i].ip);
	refuse(p);
}

static void take_ipv6(struct program *p)
{
	unsigned jump;

	load(p, BPF_B, p->l3 + 6);
	jump = skip_unless(p, 17);
	load(p, BPF_H, p->l3 + 40 + 2);
	refuse_unless(p, ROCE_PORT);
	take_if_own_ipv6(p);
	end_skip(p, jump);
	jump = skip_unless(p, 58); /* ICMPv6 */
	take_if_own_ipv6(p);
	end_skip(p, jump);
	refuse_unless(p, 0); /* hop-by-hop options: listener discovery */
	load(p, BPF_B, p->l3 + 24);
	take_if(p, 0xff);
	refuse(p);
}

static void block(struct program *p, uint32_t l3)
{
	unsigned jump;

	p->l3 = l3;
	load(p, BPF_H, l3 - 2);
	jump = skip_unless(p, TYPE_ARP);
	take_arp(p);
	end_skip(p, jump);
	jump = skip_unless(p, TYPE_IPV4);
	take_ipv4(p);
	end_skip(p, jump);
	jump = skip_unless(p, TYPE_IPV6);
	take_ipv6(p);
	end_skip(p, jump);
	refuse(p);
}

/* ---- the program */

static void refuse_unless_vlan(struct program *p)
{
	add(p, BPF_ALU | BPF_AND | BPF_K, VLAN_ID, 0, 0);
	refuse_unless(p, p->scope->vlan);
}

/* Accepts frames that contain a tag, as other sockets send them. */
static void take_tagged(struct program *p)
{
	unsigned jump;

	load(p, BPF_H, ETHERTYPE_AT);
	jump = skip_unless(p, TYPE_VLAN);
	load(p, BPF_H, ETH_HEADER);
	refuse_unless_vlan(p);
	block(p, ETH_HEADER + VLAN_TAG);
	end_skip(p, jump);
}

/* Accepts only frames on the port's VLAN. */
static void check_vlan(struct program *p)
{
	unsigned jump, over;

	load(p, BPF_W, (uint32_t)SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT);
	jump = skip_unless(p, 1);
	load(p, BPF_W, (uint32_t)SKF_AD_OFF + SKF_AD_VLAN_TAG);
	refuse_unless_vlan(p);
	add(p, BPF_JMP | BPF_JA, 0, 0, 0);
	over = p->n - 1;
	end_skip(p, jump);
	take_tagged(p);
	if (p->scope->vlan)
		refuse(p);
	end_skip(p, over);
}

int packet_filter(int fd, const struct packet_scope *scope)
{
	struct program p = { .scope = scope };
	struct sock_fprog program;

	if (scope->is_lease)
		check_vlan(&p);
	block(&p, ETH_HEADER);
	program = (struct sock_fprog){ .len = (unsigned short)p.n, .filter = p.code };
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) ? -errno : 0;
}
