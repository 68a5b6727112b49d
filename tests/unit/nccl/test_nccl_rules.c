/* SPDX-License-Identifier: BSD-3-Clause */
/* The protocols that NCCL_PROTO allows NCCL, and whether its kernels may unpack then. */
#include <check.h>
#include <string.h>

#include "nccl/data/unpack_rule.h"
#include "tests/fixtures/program.h"

/* ---- NCCL_PROTO: parseList() and ncclTopoTuneModel() of src/graph/tuning.cc, v2.30.7 */

static const struct protocol_row {
	const char *text;
	const char *may_use; /* one of the collectives may: l, L (LL128), s */
	bool forces_ll128, excludes_simple;
} protocol_rows[] = {
	{ NULL, "lLs", false, false },
	{ "", "lLs", false, false },
	{ "Simple", "s", false, false },
	{ "simple", "s", false, false },
	{ "LL", "l", false, true },
	{ "LL128", "L", true, true },
	{ "LL,Simple", "ls", false, false },
	{ "Simple,LL128", "Ls", true, false },
	/* All but those that are named, and these are ON, not what NCCL would choose. */
	{ "^LL128", "ls", false, false },
	{ "^LL", "Ls", true, false },
	{ "^Simple", "lL", true, true },
	{ "^LL,Simple", "L", true, true },
	{ "^LL,LL128", "s", false, false },
	{ "^", "lLs", true, false },
	/* By function (2.24 on). */
	{ "LL,Simple;allreduce:^LL", "lLs", true, false },
	{ "^LL128;allreduce:LL128", "lLs", true, true },
	{ "allreduce:Simple", "lLs", false, false },
	{ "Simple;AllGather:LL", "ls", false, true },
	{ "Simple;;", "s", false, false },
	/* NCCL ends with an error on what it does not know. */
	{ "Simple;sendrecv:LL", "s", false, false },
	{ "Simple,LL256", "s", false, false },
	{ "LL12", "", false, true },
};

START_LOOP_TEST(protocols, ROWS(protocol_rows))
{
	static const char letters[NCCL_PROTOCOLS] = { 'l', 'L', 's' };
	const struct protocol_row *row = &protocol_rows[_i];
	struct net_protocols is;

	net_protocols_read(row->text, &is);
	for (int p = 0; p < NCCL_PROTOCOLS; p++)
		ck_assert_msg(is.may_use[p] == !!strchr(row->may_use, letters[p]),
			"%s: protocol %d", row->text, p);
	ck_assert_msg(is.forces_ll128 == row->forces_ll128, "%s", row->text);
	ck_assert_msg(is.excludes_simple == row->excludes_simple, "%s", row->text);
}
END_TEST

/* ---- UNPACK: where receive buffers lie, src/transport/net.cc, v2.19.1 to v2.30.7 */

enum { OWN_BUFFERS = 1, LL_ON_HOST = 2, NO_HINT = 4, PAT = 8 };

static const struct rule_row {
	const char *protocols;
	int settings;
	enum net_unpack_rule rule;
	const char *why;
} rule_rows[] = {
	/* The user has set FERRULE_UNPACK and nothing else. */
	{ NULL, 0, NET_UNPACK_WITH_TUNER, "tuner" },
	{ "^LL128", 0, NET_UNPACK_WITH_TUNER, "tuner" },
	{ "LL,Simple", 0, NET_UNPACK_WITH_TUNER, "tuner" },
	/* Only a tuner keeps LL128 away. */
	{ NULL, LL_ON_HOST, NET_UNPACK_WITH_TUNER, "tuner" },
	{ "Simple", 0, NET_UNPACK_ALWAYS, "" },
	{ "^LL,LL128", 0, NET_UNPACK_ALWAYS, "" },
	{ "^LL128", LL_ON_HOST, NET_UNPACK_ALWAYS, "" },
	{ "Simple", NO_HINT, NET_UNPACK_ALWAYS, "" },
	{ "^LL128", LL_ON_HOST | NO_HINT, NET_UNPACK_ALWAYS, "" },
	{ NULL, NO_HINT, NET_UNPACK_NEVER, "NCCL_NET_OPTIONAL_RECV_COMPLETION=0" },
	{ "LL", 0, NET_UNPACK_NEVER, "excludes Simple" },
	{ "Simple;allreduce:LL", 0, NET_UNPACK_NEVER, "excludes Simple" },
	{ "Simple,LL128", 0, NET_UNPACK_NEVER, "forces LL128" },
	{ "^LL", LL_ON_HOST, NET_UNPACK_NEVER, "forces LL128" },
	/* Sends and receives go by neither. */
	{ "Simple", OWN_BUFFERS, NET_UNPACK_NEVER, "NCCL_NET_SHARED_BUFFERS=0" },
	{ NULL, OWN_BUFFERS, NET_UNPACK_NEVER, "NCCL_NET_SHARED_BUFFERS=0" },
	{ "Simple", OWN_BUFFERS | LL_ON_HOST, NET_UNPACK_ALWAYS, "" },
	{ "Simple", PAT, NET_UNPACK_NEVER, "PAT" },
};

START_LOOP_TEST(rules, ROWS(rule_rows))
{
	const struct rule_row *row = &rule_rows[_i];
	struct net_unpack_settings settings = {
		.shares_buffers = !(row->settings & OWN_BUFFERS),
		.has_ll_on_host = row->settings & LL_ON_HOST,
		.reports_optional = !(row->settings & NO_HINT),
		.forces_pat = row->settings & PAT,
	};
	const char *why = "";

	net_protocols_read(row->protocols, &settings.protocols);
	ck_assert_int_eq(net_unpack_rule(&settings, &why), row->rule);
	ck_assert_msg(strstr(why, row->why), "%s", why);
	ck_assert(net_unpack_forbids(&settings, NCCL_PROTOCOL_LL128));
	ck_assert(!net_unpack_forbids(&settings, NCCL_PROTOCOL_SIMPLE));
	ck_assert_int_eq(
		net_unpack_forbids(&settings, NCCL_PROTOCOL_LL), !(row->settings & LL_ON_HOST));
}
END_TEST

TEST_FILE(nccl_rules)
