/* SPDX-License-Identifier: BSD-3-Clause */
/* Membership in multicast groups, as reported to the network. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/wire/checksum.h"
#include "lib/wire/ether.h"
#include "lib/wire/group.h"
#include "tests/unit/engine/engine_host.h"
#include "tests/vectors/frame.h"

#define MS_TO_NS(ms) ((ms)*UINT64_C(1000000))

static const struct host_qp_config ud = { .type = FRL_QPT_UD };
static const struct frl_ip group_v4 = { { [10] = 0xff, 0xff, 239, 129, 2, 3 } };
static const struct frl_ip group_v6 = { { 0xff, 0x0e, [14] = 0x12, 0x34 } };

static void start(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		host_add(host, i, &ud);
}

/* Reports that were sent since the last time: on `first_vlan`, and then on HOST_VLAN. */
static void expect_on(const struct frl_ip *group, uint32_t n, uint16_t first_vlan, bool leave)
{
	bool v4 = ip_is_v4(group);

	ck_assert_uint_eq(host->port.n_sent, n);
	for (uint32_t k = 0; k < n; k++) {
		struct group_report want = {
			.leave = leave,
			.group = *group,
			.src_ip = host->engine.gids.gids[v4 ? HOST_GID_V4 : HOST_GID_LINK_LOCAL].ip,
			.vlan = k ? HOST_VLAN : first_vlan,
		};
		uint8_t frame[GROUP_MAX_FRAME];
		const struct port_packet *sent = &host->port.sent[k].packet;

		memcpy(want.src_mac, mac_b, 6);
		ck_assert_uint_eq(group_encode_report(frame, &want), sent->header_len);
		ck_assert_int_eq(memcmp(frame, sent->header, sent->header_len), 0);
	}
	host->port.n_sent = 0;
}

static void expect_reports(const struct frl_ip *group, bool reports, bool leave)
{
	expect_on(group, reports ? 2 : 0, 0, leave);
}

START_LOOP_TEST(reports, 2)
{
	const struct frl_ip *group = _i ? &group_v6 : &group_v4;
	uint64_t joined;

	start(2);
	host_attach(host, 0, group);
	ck_assert_uint_le(engine_next_deadline(&host->engine), host->now_ns);
	host_poll(host);
	joined = host->now_ns;
	expect_reports(group, true, false);
	host_attach(host, 1, group);
	host_poll(host);
	expect_reports(group, false, false);
	/* One may be lost: it comes again, and then no more. */
	ck_assert_uint_eq(engine_next_deadline(&host->engine), joined + MS_TO_NS(10000));
	host->now_ns = joined + MS_TO_NS(10000) - 2000;
	host_poll(host);
	expect_reports(group, false, false);
	host_poll(host);
	expect_reports(group, true, false);
	ck_assert_uint_eq(engine_next_deadline(&host->engine), UINT64_MAX);
	/* The last one closes the door. */
	ck_assert_int_eq(host_detach(host, 0, group), 0);
	host_poll(host);
	expect_reports(group, false, false);
	engine_remove_qp(&host->engine, &host->qps[1].qp);
	host_poll(host);
	expect_reports(group, true, true);
	host_poll(host);
	expect_reports(group, false, false);
	ck_assert_uint_eq(host->engine.groups.n_used, 0);
}
END_TEST

/* A general query of IGMPv2 or IGMPv3 (which may ask for an answer at once): the groups of all
 * members, within `tenths` of a second. */
static void query(unsigned version, uint8_t tenths, uint16_t vlan)
{
	static const uint8_t macs[] = { 0x01, 0x00, 0x5e, 0, 0, 1, 2, 0, 0, 0, 0, 9 };
	size_t igmp_len = version == 3 ? 12 : 8, tag = vlan ? VLAN_LEN : 0;
	uint8_t frame[ETH_LEN + VLAN_LEN + IPV4_LEN + 12] = { 0 }, *ip = frame + ETH_LEN + tag;

	memcpy(frame, macs, sizeof(macs));
	put_be16(frame + 12, ETHERTYPE_VLAN);
	put_be16(frame + 14, vlan);
	put_be16(frame + 12 + tag, ETHERTYPE_IPV4);
	ip[0] = 0x45;
	put_be16(ip + 2, (uint16_t)(IPV4_LEN + igmp_len));
	ip[8] = 1;
	ip[9] = 2;
	memcpy(ip + 12, (const uint8_t[]){ 10, 9, 0, 9, 224, 0, 0, 1 }, 8);
	checksum_store(ip + 10, checksum_add(0, ip, IPV4_LEN));
	ip[IPV4_LEN] = 0x11;
	ip[IPV4_LEN + 1] = tenths;
	checksum_store(ip + IPV4_LEN + 2, checksum_add(0, ip + IPV4_LEN, igmp_len));
	fake_port_receive(&host->port, 0, frame, (uint32_t)(ETH_LEN + tag + IPV4_LEN + igmp_len));
	host_poll(host);
}

START_TEST(query_answered)
{
	uint64_t asked, first = UINT64_MAX, last = 0;

	start(1);
	host_attach(host, 0, &group_v4);
	for (unsigned k = 0; k < 2; k++) {
		host_poll(host);
		host->now_ns += MS_TO_NS(10000);
	}
	for (unsigned k = 0; k < 50; k++) {
		uint64_t delay;

		host->port.n_sent = 0;
		query(2, 20, k % 2 ? HOST_VLAN : 0);
		asked = host->now_ns;
		delay = engine_next_deadline(&host->engine) - asked;
		ck_assert_uint_le(delay, MS_TO_NS(2000));
		first = delay < first ? delay : first;
		last = delay > last ? delay : last;
		expect_reports(&group_v4, false, false);
		host->now_ns = asked + delay;
		host_poll(host);
		/* A queue pair that is not attached gets nothing. */
		expect_on(&group_v4, 1, k % 2 ? HOST_VLAN : 0, false);
		ck_assert_uint_eq(engine_next_deadline(&host->engine), UINT64_MAX);
	}
	/* Not all members at once. */
	ck_assert_uint_lt(first, MS_TO_NS(500));
	ck_assert_uint_gt(last, MS_TO_NS(1500));
	ck_assert_uint_eq(host->engine.stats.drop_not_for_us, 0);
}
END_TEST

/* A report that is due anyway is the answer, and none is left out for it. */
START_TEST(query_while_joining)
{
	start(1);
	host_attach(host, 0, &group_v4);
	query(2, 255, 0);
	expect_reports(&group_v4, true, false);
	ck_assert_uint_eq(engine_next_deadline(&host->engine), host->now_ns + MS_TO_NS(10000));
}
END_TEST

/* Both VLANs ask before the answer is due. */
START_TEST(both_ask)
{
	start(1);
	host_attach(host, 0, &group_v4);
	for (unsigned k = 0; k < 2; k++) {
		host_poll(host);
		host->now_ns += MS_TO_NS(10000);
	}
	host->port.n_sent = 0;
	query(2, 20, 0);
	query(2, 20, HOST_VLAN);
	host->now_ns += MS_TO_NS(2000);
	host_poll(host);
	expect_reports(&group_v4, true, false);
}
END_TEST

/* However often somebody asks for answers at once: one in ten milliseconds. */
START_TEST(hasty_queries)
{
	uint32_t n;

	start(1);
	for (uint8_t k = 0; k < GROUPS_MAX; k++) {
		struct frl_ip group = group_v4;

		group.bytes[15] = k;
		host_attach(host, 0, &group);
	}
	for (unsigned k = 0; k < 8; k++) {
		host_poll(host);
		if (k % 4 == 3)
			host->now_ns += MS_TO_NS(10000);
	}
	for (unsigned k = 0; k < 4; k++)
		host_poll(host);
	host->port.n_sent = 0;
	for (unsigned k = 0; k < 100; k++) {
		query(3, 0, 0);
		host->now_ns += MS_TO_NS(1) / 5;
	}
	n = host->port.n_sent;
	ck_assert_uint_ge(n, GROUPS_MAX);
	ck_assert_uint_le(n, 2 * GROUPS_MAX);
}
END_TEST

HOST_TEST_FILE(engine_membership)
