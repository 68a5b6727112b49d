/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrulectl why: both ends' PSNs compared, and the conclusions. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/ctl/why.h"

#include "tests/fixtures/program.h"

/* ---- PSNs of one direction */

static const struct compare_row {
	uint32_t send_psn, acked_psn, recv_psn;
	bool disagree;
	uint32_t missing, unacked;
} compare_rows[] = {
	{ 0x16, 0x12, 0x13, false, 3, 1 },
	{ 0x16, 0x12, 0x12, false, 4, 0 },
	{ 0x16, 0x12, 0x16, false, 0, 4 },
	{ 0x12, 0x12, 0x12, false, 0, 0 },
	/* across the end of the numbers */
	{ 0x000003, 0xfffffe, 0xffffff, false, 4, 1 },
	{ 0x000003, 0xfffffe, 0x000001, false, 2, 3 },
	/* views of different moments: the receiver is ahead, or behind */
	{ 0x16, 0x12, 0x18, false, 0, 4 },
	{ 0x16, 0x12, 0x10, false, 4, 0 },
	{ 0x000003, 0x000002, 0xfffff0, false, 1, 0 },
	/* nothing to do with each other */
	{ 0x16, 0x12, 0x700000, true, 0, 0 },
	{ 0x16, 0x12, 0xf00000, true, 0, 0 },
};

START_LOOP_TEST(ends_are_compared, ROWS(compare_rows))
{
	const struct compare_row *row = &compare_rows[_i];
	struct why_direction way = why_compare(row->send_psn, row->acked_psn, row->recv_psn);

	ck_assert_int_eq(way.disagree, row->disagree);
	ck_assert_uint_eq(way.missing, row->missing);
	ck_assert_uint_eq(way.unacked, row->unacked);
}
END_TEST

/* ---- sentences */

/* An end that has sent 0x10 to 0x15 and waits for the acknowledgement of 0x12. */
static Ctl__QpInfo end(void)
{
	Ctl__QpInfo qp = CTL__QP_INFO__INIT;

	qp.pid = 100;
	qp.program = (char *)"left";
	qp.port = 1;
	qp.qpn = 17;
	qp.type = (char *)"RC";
	qp.state = (char *)"RTS";
	qp.peer_ip = (char *)"10.0.0.2";
	qp.peer_qpn = 33;
	qp.send_psn = 0x16;
	qp.acked_psn = 0x12;
	qp.recv_psn = 0x500;
	qp.outstanding_packets = 4;
	qp.send_queue = 1;
	qp.waits_for = (char *)"acknowledgement";
	qp.waiting_s = 2;
	qp.deadline_ms = 67;
	qp.retries_left = 3;
	qp.rnr_retries_left = 7;
	qp.timeout_ms_total = 535;
	qp.rtt_us = 10;
	qp.idle_rx_s = 2;
	qp.idle_tx_s = 0.5;
	return qp;
}

static Ctl__QpInfo other_end(void)
{
	Ctl__QpInfo qp = end();

	qp.pid = 200;
	qp.program = (char *)"right";
	qp.qpn = 33;
	qp.peer_qpn = 17;
	qp.send_psn = 0x500;
	qp.acked_psn = 0x500;
	qp.recv_psn = 0x13;
	qp.outstanding_packets = 0;
	qp.send_queue = 0;
	qp.recv_queue = 5;
	qp.waits_for = (char *)"nothing";
	qp.waiting_s = 0;
	qp.deadline_ms = -1;
	return qp;
}

static bool says(const struct why *why, const char *text)
{
	unsigned i;

	for (i = 0; i < why->n_lines; i++) {
		if (strstr(why->lines[i], text))
			return true;
	}
	return false;
}

static void check_says(const struct why *why, const char *text)
{
	ck_assert_msg(says(why, text), "no line says \"%s\"; the last one: %s", text,
		why->lines[why->n_lines - 1]);
}

static Ctl__Counter counter(const char *name, uint64_t value)
{
	Ctl__Counter counter = CTL__COUNTER__INIT;

	counter.name = (char *)(uintptr_t)name;
	counter.value = value;
	return counter;
}

START_TEST(tells_what_it_knows)
{
	Ctl__QpInfo qp = end(), peer = other_end();
	Ctl__ConnInfo conn = CTL__CONN_INFO__INIT;
	struct why why;

	conn.service = (char *)"store";
	conn.peer_host = (char *)"host-b";
	conn.peer_program = (char *)"right";
	conn.peer_pid = 200;
	conn.peer_qpn = 33;
	conn.state = (char *)"established";
	qp.last_error = (char *)"it stumbled";
	qp.retransmits = 12;
	why_explain(&why, &qp, &conn, &peer, NULL);
	check_says(&why, "Queue pair 17 (RC, RTS) of process 100 (left)");
	check_says(&why, "active end of service store to queue pair 33 of host-b");
	check_says(&why, "waits for acknowledgement, for 2.0s: packets are on their way");
	check_says(&why, "sent up to PSN 0x000015. All before 0x000012 is acknowledged: 4 packets");
	check_says(&why, "timer fires in 67ms. 3 tries are left (of RNR: without limit)");
	check_says(&why, "gives up about 535ms");
	check_says(&why, "it has retransmitted 12 packets");
	check_says(&why, "it stumbled");
	check_says(&why,
		"The peer expects PSN 0x000013, this end has sent up to 0x000015: 3 packets "
		"are lost or on their way");
	check_says(
		&why, "The peer has accepted 1 packet for which this end has no acknowledgement");
	check_says(&why, "All that the peer has sent has arrived");
}
END_TEST

START_TEST(tells_of_the_job)
{
	Ctl__QpInfo qp = end();
	struct why why;

	qp.job = (char *)"sum";
	qp.rank = (char *)"0";
	qp.peer_rank = (char *)"1";
	qp.peer_host = (char *)"node-2";
	why_explain(&why, &qp, NULL, NULL, "no view");
	check_says(&why, "The process is rank 0 of job sum.");
	check_says(&why, "of rank 1 on node-2");
}
END_TEST

START_TEST(tells_what_the_ports_have_dropped)
{
	Ctl__QpInfo qp = end(), peer = other_end();
	Ctl__Counter of_qp[] = { counter("drop_port", 12), counter("drop_bad_icrc", 0),
		counter("drop_not_for_us", 7), counter("drop_later", 1) };
	Ctl__Counter *list[] = { &of_qp[0], &of_qp[1], &of_qp[2], &of_qp[3] };
	struct why why;

	qp.port_drops = list;
	qp.n_port_drops = 4;
	why_explain(&why, &qp, NULL, &peer, NULL);
	check_says(&why,
		"Its port has dropped, since it was opened: 12 drop_port (frames that the port "
		"driver lost or refused), 1 drop_later (this ferrulectl does not know the "
		"reason).");
	ck_assert(!says(&why, "The peer's port"));
	peer.port_drops = list;
	peer.n_port_drops = 1;
	qp.n_port_drops = 0;
	why_explain(&why, &qp, NULL, &peer, NULL);
	check_says(&why, "The peer's port has dropped, since it was opened: 12 drop_port (frames");
	ck_assert(!says(&why, "Its port"));
}
END_TEST

/* Every text ends. */
START_TEST(many_reasons_are_cut)
{
	enum { MANY = 200 };
	Ctl__QpInfo qp = end();
	Ctl__Counter drops = counter("drop_port", UINT64_MAX), *list[MANY];
	struct why why;

	for (int i = 0; i < MANY; i++)
		list[i] = &drops;
	qp.port_drops = list;
	qp.n_port_drops = MANY;
	why_explain(&why, &qp, NULL, NULL, "x");
	check_says(&why, "Its port has dropped");
}
END_TEST

START_TEST(says_why_there_is_no_view)
{
	Ctl__QpInfo qp = end();
	struct why why;

	why_explain(&why, &qp, NULL, NULL, "the daemon of host-b cannot be reached: no route");
	check_says(&why, "Its peer is queue pair 33 of 10.0.0.2");
	check_says(&why, "unknown: the daemon of host-b cannot be reached: no route.");
	qp.peer_ip = (char *)"";
	why_explain(&why, &qp, NULL, NULL, "");
	check_says(&why, "It has no peer");
	check_says(&why, "nobody could be asked");
}
END_TEST

START_TEST(a_lossless_link_never_gives_up)
{
	Ctl__QpInfo qp = end();
	struct why why;

	qp.lossless = true;
	why_explain(&why, &qp, NULL, NULL, "x");
	check_says(&why, "never gives up on time alone: its link loses nothing");
	qp.deadline_ms = -1;
	why_explain(&why, &qp, NULL, NULL, "x");
	ck_assert(!says(&why, "timer fires in"));
}
END_TEST

/* ---- the diagnosis */

enum { OF_QP = 1, OF_PEER = 2, NO_PEER = 4 };

static const struct diagnosis_row {
	const char *waits_for;
	const char *diagnosis;
	const char *state, *error; /* of the ends in `whose`, NULL: as they are */
	double published_s;
	const char *peer_waits_for;
	uint32_t peer_recv_psn; /* 0: as it is */
	uint32_t peer_recv_queue;
	int whose;
	int without_peer;
} diagnosis_rows[] = {
	{ "nothing", "Nothing is wrong", .peer_recv_queue = 1 },
	{ "nothing", "process 100 (left) must post one", .peer_waits_for = "receiver not ready" },
	{ "receiver not ready", "has posted no receive", .peer_recv_queue = 0 },
	{ "receiver not ready", "process 200 (right) must", .peer_recv_queue = 0 },
	{ "receiver not ready", "now it has 5", .peer_recv_queue = 5 },
	{ "receiver not ready", "has posted no receive", .without_peer = 1 },
	{ "acknowledgement", "the path drops packets", .whose = 0 },
	{ "acknowledgement", "No outstanding packet has reached", .peer_recv_psn = 0x12 },
	{ "acknowledgement", "check the path back", .peer_recv_psn = 0x16 },
	{ "acknowledgement of packets sent again", "do not agree about PSNs",
		.peer_recv_psn = 0x700000 },
	{ "acknowledgement of packets sent again", "No packet of the peer has arrived for 2.0s",
		.without_peer = 1 },
	{ "READ or atomic response", "process 200 (right) has not answered", .whose = 0 },
	{ "being connected", "nobody has connected it", .whose = 0 },
	{ "leave SQD", "moved it to SQD", .whose = 0 },
	{ "MAC address of the next hop", "Nobody answers ARP or ND for the next hop to 10.0.0.2",
		.whose = 0 },
	{ "its port", "The port takes no frames", .whose = 0 },
	{ "READs and atomics before a fence, or room for one more", "max_rd_atomic", .whose = 0 },
	{ "its owner to drive the device", "FRL_PROGRESS=thread", .whose = 0 },
	{ "the moon", "does not know that reason", .whose = 0 },
	/* what is worse than any of these */
	{ "nothing: it is in ERR", "It is in ERR since retries exceeded", "ERR", "retries exceeded",
		.whose = OF_QP },
	{ "acknowledgement", "The peer's queue pair is in ERR: bad key", "ERR", "bad key",
		.whose = OF_PEER },
	{ "acknowledgement", "Process 100 (left) has not answered its daemon for 5.0s",
		.published_s = 5, .whose = OF_QP },
	{ "acknowledgement", "The peer's process 200 (right) has not answered its daemon for 5.0s",
		.published_s = 5, .whose = OF_PEER },
};

START_LOOP_TEST(concludes, ROWS(diagnosis_rows))
{
	const struct diagnosis_row *row = &diagnosis_rows[_i];
	Ctl__QpInfo ends[2] = { end(), other_end() };
	struct why why;
	int i;

	ends[0].waits_for = (char *)row->waits_for;
	if (row->peer_waits_for) {
		ends[0].recv_queue = 0;
		ends[1].waits_for = (char *)row->peer_waits_for;
	}
	ends[1].recv_queue = row->peer_recv_queue;
	if (row->peer_recv_psn)
		ends[1].recv_psn = row->peer_recv_psn;
	for (i = 0; i < 2; i++) {
		if (!(row->whose & (i ? OF_PEER : OF_QP)))
			continue;
		ends[i].published_age_s = row->published_s;
		if (row->state)
			ends[i].state = (char *)row->state;
		if (row->error)
			ends[i].last_error = (char *)row->error;
	}
	why_explain(&why, &ends[0], NULL, row->without_peer ? NULL : &ends[1], "unknown");
	ck_assert_msg(strstr(why.diagnosis, row->diagnosis), "%s: \"%s\" is not in: %s",
		row->waits_for, row->diagnosis, why.diagnosis);
}
END_TEST

/* The page of a stopped process is not compared with the other end's present page. */
START_TEST(old_views_are_not_compared)
{
	Ctl__QpInfo qp = end(), peer = other_end();
	struct why why;
	size_t i;

	peer.published_age_s = 5;
	why_explain(&why, &qp, NULL, &peer, NULL);
	for (i = 0; i < why.n_lines && !strstr(why.lines[i], "too old"); i++)
		ck_assert_msg(!strstr(why.lines[i], "expects PSN"), "%s", why.lines[i]);
	ck_assert_msg(i < why.n_lines, "no line says that the view is old");
}
END_TEST

START_TEST(a_short_wait_is_no_trouble)
{
	Ctl__QpInfo qp = end(), peer = other_end();
	struct why why;

	qp.waiting_s = 0.0001;
	why_explain(&why, &qp, NULL, &peer, NULL);
	ck_assert_msg(strstr(why.diagnosis, "Nothing is wrong"), "%s", why.diagnosis);
	peer.peer_qpn = 18;
	why_explain(&why, &qp, NULL, &peer, NULL);
	ck_assert_msg(strstr(why.diagnosis, "connected to queue pair 18, not to this one"), "%s",
		why.diagnosis);
}
END_TEST

/* Between two tries it waits for an acknowledgement, and that is not the cause. */
START_TEST(an_rnr_that_comes_and_goes)
{
	Ctl__QpInfo qp = end(), peer = other_end();
	struct why why;

	qp.rnr_received = 100;
	qp.idle_rx_s = 0.001;
	peer.recv_queue = 0;
	peer.recv_psn = qp.acked_psn;
	why_explain(&why, &qp, NULL, &peer, NULL);
	ck_assert_msg(strstr(why.diagnosis, "has posted no receive"), "%s", why.diagnosis);
	qp.waiting_s = 0.09; /* the page is a little old */
	qp.idle_rx_s = 0.08;
	qp.published_age_s = 0.0799;
	why_explain(&why, &qp, NULL, &peer, NULL);
	ck_assert_msg(strstr(why.diagnosis, "has posted no receive"), "%s", why.diagnosis);
	qp = end();
	qp.rnr_received = 100;
	qp.idle_rx_s = 2; /* since then nothing has come */
	why_explain(&why, &qp, NULL, &peer, NULL);
	ck_assert_msg(strstr(why.diagnosis, "No outstanding packet"), "%s", why.diagnosis);
	qp.idle_rx_s = 0.001;
	peer.recv_queue = 1;
	why_explain(&why, &qp, NULL, &peer, NULL);
	ck_assert_msg(strstr(why.diagnosis, "No outstanding packet"), "%s", why.diagnosis);
}
END_TEST

TEST_FILE(why)
