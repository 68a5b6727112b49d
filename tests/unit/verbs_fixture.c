/* SPDX-License-Identifier: BSD-3-Clause */
/* Two hardware devices in memory. */
#include "tests/unit/verbs_fixture.h"

#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LINES = 64 };

struct verbs_end ends[2], *const one = &ends[0], *const two = &ends[1];
const struct verbs_wants defaults;

static struct {
	pthread_mutex_t mutex;
	char lines[MAX_LINES][512];
	unsigned n;
	char found[512];
} journal = { .mutex = PTHREAD_MUTEX_INITIALIZER };

void verbs_ok(int rc)
{
	ck_assert_msg(rc == 0, "%d: %s", rc, frl_last_error());
}

void verbs_refused(int rc, int want, const char *word)
{
	ck_assert_msg(rc == want, "%d instead of %d (%s): %s", rc, want, word, frl_last_error());
	ck_assert_msg(
		strstr(frl_last_error(), word), "'%s' does not name '%s'", frl_last_error(), word);
}

static void keep_line(enum frl_log_level level, const char *line, void *arg)
{
	(void)level;
	(void)arg;
	pthread_mutex_lock(&journal.mutex);
	strncpy(journal.lines[journal.n++ % MAX_LINES], line, sizeof(journal.lines[0]) - 1);
	pthread_mutex_unlock(&journal.mutex);
}

const char *verbs_logged(const char *word)
{
	journal.found[0] = '\0';
	pthread_mutex_lock(&journal.mutex);
	for (unsigned i = 0; i < journal.n && i < MAX_LINES; i++)
		if (strstr(journal.lines[i], word))
			memcpy(journal.found, journal.lines[i], sizeof(journal.found));
	memset(journal.lines, 0, sizeof(journal.lines));
	journal.n = 0;
	pthread_mutex_unlock(&journal.mutex);
	return journal.found;
}

void verbs_plug(const struct verbs_wants *wants)
{
	static const char *const names[] = { "one", "two" };
	static const char *const ips[] = { "10.0.0.1", "10.0.0.2" };

	frl_set_log(keep_line, FRL_LOG_DEBUG, NULL);
	verbs_logged("");
	fake_verbs_reset();
	for (int i = 0; i < 2; i++) {
		struct fake_verbs_device device;

		fake_verbs_device_init(&device, names[i], ips[i]);
		if (wants->is_plain)
			device.has_cq_ex = device.has_qp_ex = false;
		if (wants->is_rxe)
			device.attr.vendor_id = 0xffffff;
		if (i && wants->two_rd_atomic)
			device.attr.max_qp_rd_atom = device.attr.max_qp_init_rd_atom =
				wants->two_rd_atomic;
		device.wc_sl = wants->wc_sl;
		device.wc_tci = wants->wc_tci;
		if (wants->change)
			wants->change(&device);
		fake_verbs_add(&device);
	}
}

int verbs_open(const char *port, struct frl_device **ret_device)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.port = port;
	return frl_device_open(&config, ret_device);
}

static int make_queues(struct verbs_end *end, const struct verbs_wants *wants)
{
	const struct frl_srq_config srq = { .max_wr = VERBS_DEPTH };
	uint32_t depth = wants->depth ? wants->depth : 4 * VERBS_DEPTH;
	struct frl_qp_config config = {
		.type = wants->type,
		.max_send_wr = wants->max_send_wr ? wants->max_send_wr : VERBS_DEPTH,
		.max_recv_wr = VERBS_DEPTH,
	};
	int rc = frl_comp_channel_create(end->device, &end->channel);

	if (!rc)
		rc = frl_cq_create_on_channel(end->device, depth, end->channel, end, &end->cq);
	if (!rc && wants->has_srq)
		rc = frl_srq_create(end->pd, &srq, &end->srq);
	config.send_cq = config.recv_cq = end->cq;
	config.srq = end->srq;
	return rc ? rc : frl_qp_create(end->pd, &config, &end->qp);
}

int verbs_make_end(struct verbs_end *end, const struct verbs_wants *wants)
{
	char port[32] = "verbs:";
	int rc;

	strncat(port, end->name, sizeof(port) - strlen(port) - 1);
	rc = verbs_open(port, &end->device);
	if (!rc)
		rc = frl_pd_create(end->device, &end->pd);
	if (rc)
		return rc;
	end->memory = aligned_alloc(4096, VERBS_MEMORY);
	memset(end->memory, 0, VERBS_MEMORY);
	rc = frl_reg_mr(end->pd, end->memory, VERBS_MEMORY, VERBS_ACCESS, &end->mr);
	return rc ? rc : make_queues(end, wants);
}

static bool is_connected(const struct verbs_wants *wants)
{
	return wants->type != FRL_QPT_UD;
}

static int to_rtr(
	struct verbs_end *end, const struct verbs_end *peer, const struct verbs_wants *wants)
{
	struct frl_qp_attr attr = {
		.state = FRL_QPS_RTR,
		.path_mtu = 1024,
		.dest_qpn = frl_qp_num(peer->qp),
		.rq_psn = 100,
		.max_dest_rd_atomic = 4,
		.min_rnr_timer = 1,
		.ah = { .sgid_index = 1 },
	};
	struct frl_gid gid;
	uint32_t mask = FRL_QP_STATE;
	int rc = frl_query_gid(peer->device, 1, &gid);

	attr.ah.dgid = gid.ip;
	if (is_connected(wants))
		mask |= FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN;
	if (!wants->type || wants->type == FRL_QPT_RC)
		mask |= FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
	return rc ? rc : frl_qp_modify(end->qp, &attr, mask);
}

int verbs_connect(
	struct verbs_end *end, const struct verbs_end *peer, const struct verbs_wants *wants)
{
	struct frl_qp_attr attr = {
		.state = FRL_QPS_INIT,
		.port_num = 1,
		.qkey = VERBS_QKEY,
		.access_flags = VERBS_ACCESS & ~wants->not_access,
		.sq_psn = 100,
		.timeout = wants->timeout ? wants->timeout : 1,
		.retry_cnt = wants->retry_cnt ? wants->retry_cnt : 1,
		.max_rd_atomic = 4,
	};
	uint32_t mask = FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT;
	int rc = frl_qp_modify(
		end->qp, &attr, mask | (is_connected(wants) ? FRL_QP_ACCESS_FLAGS : FRL_QP_QKEY));

	if (!rc)
		rc = to_rtr(end, peer, wants);
	if (rc)
		return rc;
	attr.state = FRL_QPS_RTS;
	mask = FRL_QP_STATE | FRL_QP_SQ_PSN;
	if (!wants->type || wants->type == FRL_QPT_RC)
		mask |= FRL_QP_TIMEOUT | FRL_QP_RETRY_CNT | FRL_QP_RNR_RETRY |
			FRL_QP_MAX_QP_RD_ATOMIC;
	return frl_qp_modify(end->qp, &attr, mask);
}

void verbs_plug_ends(const struct verbs_wants *wants)
{
	verbs_plug(wants);
	memset(ends, 0, sizeof(ends));
	ends[0].name = "one";
	ends[1].name = "two";
}

void verbs_setup(const struct verbs_wants *wants)
{
	verbs_plug_ends(wants);
	for (int i = 0; i < 2; i++)
		verbs_ok(verbs_make_end(&ends[i], wants));
	for (int i = 0; i < 2; i++)
		verbs_ok(verbs_connect(&ends[i], &ends[1 - i], wants));
}

void verbs_drop_end(struct verbs_end *end)
{
	frl_qp_destroy(end->qp);
	verbs_ok(frl_srq_destroy(end->srq));
	verbs_ok(frl_cq_destroy(end->cq));
	verbs_ok(frl_comp_channel_destroy(end->channel));
	verbs_ok(frl_dereg_mr(end->mr));
	verbs_ok(frl_pd_destroy(end->pd));
	verbs_ok(frl_device_close(end->device));
	free(end->memory);
	*end = (struct verbs_end){ .name = end->name };
}

void verbs_teardown(void)
{
	for (int i = 0; i < 2; i++)
		verbs_drop_end(&ends[i]);
	ck_assert_str_eq(fake_verbs_leaks(), "");
	fake_verbs_reset();
	frl_set_log(NULL, FRL_LOG_ERROR, NULL);
}

struct frl_sge verbs_sge(const struct verbs_end *end, uint32_t offset, uint32_t length)
{
	return (struct frl_sge){ end->memory + offset, length, frl_mr_lkey(end->mr) };
}

int verbs_send(struct verbs_end *end, enum frl_wr_opcode opcode, const struct frl_sge *sge,
	uint64_t remote_addr, uint32_t rkey)
{
	const struct frl_send_wr wr = {
		.wr_id = 7,
		.opcode = opcode,
		.flags = FRL_SEND_SIGNALED,
		.sge = sge,
		.n_sge = 1,
		.imm_data = 0x01020304,
		.remote_addr = remote_addr,
		.rkey = rkey,
		.compare_add = 3,
		.swap = 9,
	};

	return frl_post_send(end->qp, &wr, 1, NULL);
}

void verbs_recv(struct verbs_end *end, uint64_t wr_id, uint32_t offset, uint32_t length)
{
	const struct frl_sge sge = verbs_sge(end, offset, length);
	const struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };
	int n = end->srq ? frl_post_srq_recv(end->srq, &wr, 1, NULL)
			 : frl_post_recv(end->qp, &wr, 1, NULL);

	ck_assert_msg(n == 1, "%d: %s", n, frl_last_error());
}

struct frl_wc verbs_expect(struct verbs_end *end, enum frl_wc_status status)
{
	struct frl_wc wc;
	int n = frl_cq_wait(end->cq, 1, &wc, HANG_MS);

	ck_assert_msg(n == 1, "%d: %s", n, n < 0 ? frl_last_error() : "no completion came");
	ck_assert_msg(wc.status == status, "%s instead of %s", frl_wc_status_str(wc.status),
		frl_wc_status_str(status));
	ck_assert_uint_eq(wc.qp_num, frl_qp_num(end->qp));
	return wc;
}

struct frl_async_event verbs_event(struct verbs_end *end, enum frl_event_type type)
{
	struct frl_async_event event;
	int rc = frl_get_async_event(end->device, HANG_MS, &event);

	ck_assert_msg(rc == 0, "%d: no %s came", rc, frl_event_type_str(type));
	ck_assert_msg(event.type == type, "%s instead of %s", frl_event_type_str(event.type),
		frl_event_type_str(type));
	return event;
}
