/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection whose large packets are lost, on a network that carries small ones. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "lib/wire/icmp.h"
#include "tests/unit/engine/engine_host.h"

enum { PATH_MTU = 4096, EVERYTHING = 9000, NOTHING = 0 };

static unsigned n_echoes;

/* Answers the sent echo requests, in IP packets of up to `limit` bytes, as `stranger` may;
 * everything else is lost. */
static void answer(uint32_t limit, bool is_stranger)
{
	uint8_t frame[FAKE_MAX_FRAME], reply[FAKE_MAX_FRAME];
	struct icmp_echo echo;

	for (uint32_t k = 0; k < host->port.n_sent; k++) {
		size_t len = fake_port_flatten(&host->port.sent[k].packet, frame);

		if (!icmp_echo_decode(&echo, frame, len))
			continue;
		n_echoes++;
		echo.dst_ip.bytes[15] ^= is_stranger;
		ck_assert_uint_eq(icmp_echo_reply(reply, sizeof(reply), &echo), len);
		if (len - ETH_LEN <= limit)
			fake_port_receive(&host->port, 0, reply, (uint32_t)len);
	}
	host->port.n_sent = 0;
}

/* Until the connection has failed. Returns the error's text, "" for the usual one. */
static const char *give_up(uint32_t limit, bool is_stranger)
{
	const struct qp *core = &host->qps[0].qp.core;

	n_echoes = 0;
	host_poll(host);
	host->port.n_sent = 0;
	while (core->state == FRL_QPS_RTS) {
		host->now_ns = engine_next_deadline(&host->engine);
		host_poll(host);
		answer(limit, is_stranger);
		host_poll(host);
	}
	ck_assert_int_eq(core->error_status, FRL_WC_RETRY_EXC_ERR);
	return core->error ? core->error : "";
}

static void post(enum frl_wr_opcode opcode, uint32_t length)
{
	host_post(host, 0, (struct frl_send_wr){ .wr_id = 1, .opcode = opcode }, 0, length, NULL);
}

#define V4_TEXT(bytes, mtu)                                                                    \
	"IP packets of " #bytes " bytes are lost, of " mtu " on both hosts, or raise the MTU " \
	"between 10.9.0.2 and 10.9.0.1"

static const struct {
	enum frl_wr_opcode opcode;
	uint32_t length, limit;
	const char *text; /* "": the usual one */
} rows[] = {
	{ FRL_WR_RDMA_WRITE, 8192, 1500, V4_TEXT(4140, "1068 not: set FRL_PATH_MTU=1024") },
	{ FRL_WR_RDMA_WRITE, 2000, 1500, V4_TEXT(2044, "1068 not: set FRL_PATH_MTU=1024") },
	{ FRL_WR_RDMA_READ, 8192, 1500, V4_TEXT(4140, "1068 not: set FRL_PATH_MTU=1024") },
	{ FRL_WR_SEND, 4096, 4000, V4_TEXT(4140, "2092 not: set FRL_PATH_MTU=2048") },
	{ FRL_WR_RDMA_WRITE, 4096, 576, V4_TEXT(4140, "556 not: set FRL_PATH_MTU=512") },
	{ FRL_WR_RDMA_WRITE, 4096, 100, V4_TEXT(4140, "64 not: set a smaller FRL_PATH_MTU") },
	/* The peer's connection is gone, or the peer. */
	{ FRL_WR_RDMA_WRITE, 8192, EVERYTHING, "" },
	{ FRL_WR_RDMA_WRITE, 1200, 1500, "" },
	{ FRL_WR_RDMA_WRITE, 8192, NOTHING, "" },
	{ FRL_WR_RDMA_WRITE, 256, 100, "" },
	{ FRL_WR_ATOMIC_FETCH_AND_ADD, 8, 100, "" },
};

START_LOOP_TEST(large_packets, ROWS(rows))
{
	host_add(host, 0, &(struct host_qp_config){ .path_mtu = PATH_MTU });
	post(rows[_i].opcode, rows[_i].length);
	ck_assert_str_eq(give_up(rows[_i].limit, false), rows[_i].text);
	ck_assert_int_eq(n_echoes > 0, rows[_i].length > 256);
}
END_TEST

START_TEST(over_ipv6)
{
	host_add(host, 0,
		&(struct host_qp_config){ .path_mtu = PATH_MTU, .sgid_index = HOST_GID_V6 });
	post(FRL_WR_RDMA_WRITE, 8192);
	ck_assert_str_eq(give_up(1500, false),
		"IP packets of 4160 bytes are lost, of 1088 not: set FRL_PATH_MTU=1024 on both "
		"hosts, or raise the MTU between fd09::2 and fd09::1");
}
END_TEST

/* Replies of another host do not count. */
START_TEST(answers_of_others)
{
	host_add(host, 0, &(struct host_qp_config){ .path_mtu = PATH_MTU });
	post(FRL_WR_RDMA_WRITE, 8192);
	ck_assert_str_eq(give_up(1500, true), "");
	ck_assert_uint_gt(n_echoes, 0);
}
END_TEST

/* A reply of the peer to a request of that path MTU, in units of 256, that was never sent. */
static void forge(const struct icmp_echo *sent, uint8_t which)
{
	uint8_t message[FAKE_MAX_FRAME] = { 0 }, reply[FAKE_MAX_FRAME];
	struct icmp_echo echo = *sent;
	size_t len;

	memcpy(message, sent->message, 8);
	message[7] = which;
	echo.message = message;
	/* BTH and ICRC, as the UDP header is as long as that of ICMP. */
	echo.message_len = UDP_LEN + BTH_LEN + which * 256u + ICRC_LEN;
	len = icmp_echo_reply(reply, sizeof(reply), &echo);
	ck_assert_uint_gt(len, 0);
	fake_port_receive(&host->port, 0, reply, (uint32_t)len);
}

static const struct {
	uint8_t which;
	const char *text;
} forged_rows[] = {
	/* Was sent, and not answered by the network: the row shows that the reply is a good one. */
	{ 4, V4_TEXT(2044, "1068 not: set FRL_PATH_MTU=1024") },
	/* No path MTU. */
	{ 3, V4_TEXT(2044, "556 not: set FRL_PATH_MTU=512") },
	{ 6, V4_TEXT(2044, "556 not: set FRL_PATH_MTU=512") },
	/* As long as the packet itself, or longer. */
	{ 8, V4_TEXT(2044, "556 not: set FRL_PATH_MTU=512") },
	{ 16, V4_TEXT(2044, "556 not: set FRL_PATH_MTU=512") },
};

/* Replies to what was never sent do not count. */
START_LOOP_TEST(forged_answers, ROWS(forged_rows))
{
	const struct qp *core = &host->qps[0].qp.core;
	uint8_t frame[FAKE_MAX_FRAME];
	struct icmp_echo echo;

	host_add(host, 0, &(struct host_qp_config){ .path_mtu = PATH_MTU });
	post(FRL_WR_RDMA_WRITE, 2000);
	host_poll(host);
	host->port.n_sent = 0;
	host->now_ns = engine_next_deadline(&host->engine);
	host_poll(host);
	for (uint32_t k = 0; k < host->port.n_sent; k++)
		if (icmp_echo_decode(
			    &echo, frame, fake_port_flatten(&host->port.sent[k].packet, frame)))
			break;
	forge(&echo, forged_rows[_i].which);
	host_poll(host);
	ck_assert_int_eq(core->state, FRL_QPS_RTS);
	ck_assert_str_eq(give_up(600, false), forged_rows[_i].text);
}
END_TEST

/* Replies from before an acknowledgement do not count: the peer may be gone since. */
START_TEST(progress_between)
{
	host_add(host, 0, &(struct host_qp_config){ .path_mtu = PATH_MTU });
	post(FRL_WR_RDMA_WRITE, 2 * PATH_MTU);
	host_poll(host);
	host->port.n_sent = 0;
	for (unsigned k = 0; k < 4; k++) {
		host->now_ns = engine_next_deadline(&host->engine);
		host_poll(host);
		answer(1500, false);
		host_poll(host);
	}
	host_acknowledge(host, 0, 0, true);
	host_poll(host);
	host->port.n_sent = 0;
	ck_assert_str_eq(give_up(NOTHING, false), "");
}
END_TEST

HOST_TEST_FILE(path_probe)
