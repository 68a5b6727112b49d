/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer program's commands about work requests, completions and events. */
#include "tests/interop/peer/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* "OFFSET:LENGTH:REGION", several of them separated by commas, or "-" for none. */
static int sges_from(const char *text, struct nic_sge sge[NIC_MAX_SGE])
{
	int n = 0;

	while (text && *text && *text != '-') {
		char *end;
		uint64_t off = strtoull(text, &end, 0);
		unsigned number;
		void *mr;

		if (n == NIC_MAX_SGE || *end != ':')
			return -EINVAL;
		sge[n].length = (uint32_t)strtoul(end + 1, &end, 0);
		if (*end != ':')
			return -EINVAL;
		number = (unsigned)strtoul(end + 1, &end, 0);
		mr = region(number, off, &sge[n].addr);
		if (!mr)
			return -EINVAL;
		sge[n++].lkey = nic_mr_lkey(mr);
		text = *end == ',' ? end + 1 : end;
	}
	return n;
}

static int post_send(const struct line *line)
{
	struct nic_send_wr wr = {
		.wr_id = arg_number(line, "id", 0),
		.opcode = (int)arg_number(line, "op", 2),
		.flags = (unsigned)arg_number(line, "flags", 2),
		.imm_data = (uint32_t)arg_number(line, "imm", 0),
		.invalidate_rkey = (uint32_t)arg_number(line, "inv", 0),
		.remote_addr = arg_number(line, "raddr", 0),
		.rkey = (uint32_t)arg_number(line, "rkey", 0),
		.compare_add = arg_number(line, "compare_add", 0),
		.swap = arg_number(line, "swap", 0),
		.ah = object_from(line, "ah", KIND_AH),
		.remote_qpn = (uint32_t)arg_number(line, "rqpn", 0),
		.remote_qkey = (uint32_t)arg_number(line, "rqkey", 0),
		.bind_mw = object_from(line, "mw", KIND_MW),
		.bind_length = arg_number(line, "bind_len", 0),
		.bind_rkey = (uint32_t)arg_number(line, "bind_rkey", 0),
		.bind_access = (uint32_t)arg_number(line, "bind_access", 0),
	};
	void *qp = object_from(line, "qp", KIND_QP);

	wr.n_sge = sges_from(arg_text(line, "sge"), wr.sge);
	if (!qp || wr.n_sge < 0)
		return -EINVAL;
	if (wr.bind_mw)
		wr.bind_mr = region((unsigned)arg_number(line, "mr", 0),
			arg_number(line, "bind_off", 0), &wr.bind_addr);
	/* A deliberately invalid key. */
	if (arg_text(line, "lkey") && wr.n_sge > 0)
		wr.sge[0].lkey = (uint32_t)arg_number(line, "lkey", 0);
	return nic_post_send(qp, &wr);
}

static int post_recv(const struct line *line)
{
	struct nic_recv_wr wr = { .wr_id = arg_number(line, "id", 0) };
	void *qp = object_from(line, "qp", KIND_QP), *srq = object_from(line, "srq", KIND_SRQ);

	wr.n_sge = sges_from(arg_text(line, "sge"), wr.sge);
	if ((!qp && !srq) || wr.n_sge < 0)
		return -EINVAL;
	return srq ? nic_post_srq_recv(srq, &wr) : nic_post_recv(qp, &wr);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Waits for `n` completions. Answers with the ones that came in time. */
static int poll_cq(const struct line *line)
{
	void *cq = object_from(line, "cq", KIND_CQ);
	uint64_t n = arg_number(line, "n", 1), deadline = now_ms() + arg_number(line, "ms", 5000);
	uint64_t got = 0;
	struct nic_wc wc;

	if (!cq)
		return -EINVAL;
	while (got < n) {
		int rc = nic_cq_poll(cq, &wc);

		if (rc < 0)
			return rc;
		if (rc) {
			answer(" wc=%llu:%d:%d:%u:%u:%u:%u:%u", (unsigned long long)wc.wr_id,
				wc.status, wc.opcode, wc.byte_len, wc.flags, wc.imm_data, wc.src_qp,
				wc.qp_num);
			got++;
		} else if (now_ms() >= deadline) {
			break;
		} else {
			usleep(100);
		}
	}
	return 0;
}

static int wait_event(const struct line *line)
{
	void *cq = object_from(line, "cq", KIND_CQ);
	int rc = cq ? nic_cq_event(cq, (int)arg_number(line, "ms", 1000)) : -EINVAL;

	if (rc < 0)
		return rc;
	answer(" events=%d", rc);
	return 0;
}

static int async_event(const struct line *line)
{
	int rc = nic_async_event((int)arg_number(line, "ms", 1000));

	if (rc < 0 && rc != -EAGAIN)
		return rc;
	answer(" type=%d", rc < 0 ? -1 : rc);
	return 0;
}

int work_command(const struct line *line)
{
	if (!strcmp(line->command, "post_send"))
		return post_send(line);
	if (!strcmp(line->command, "post_recv"))
		return post_recv(line);
	if (!strcmp(line->command, "poll"))
		return poll_cq(line);
	if (!strcmp(line->command, "arm")) {
		void *cq = object_from(line, "cq", KIND_CQ);

		return cq ? nic_cq_arm(cq, arg_number(line, "solicited", 0) != 0) : -EINVAL;
	}
	if (!strcmp(line->command, "wait"))
		return wait_event(line);
	if (!strcmp(line->command, "async"))
		return async_event(line);
	return UNKNOWN_COMMAND;
}
