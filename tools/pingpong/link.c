/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/pingpong/pingpong.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	CHECK_INTERVAL_NS = 5000000,
	SLOT_ALIGNMENT = 64,
	AREA_SIZE = 32 << 20, /* more if two messages need it */
	IDLE_ROUNDS = 64,     /* rounds between two readings of the clock */
	PROGRESS_ROUNDS = 8,
	REASON_MS = 200,
	DAEMON_MS = 10000,
};

static const uint64_t plan_magic = 0x4665725070003101; /* also detects another byte order */

int link_join(struct link *link, const struct device_options *options, bool announce)
{
	/*
	 * Open the device before waiting for the peer: a port that cannot be opened is reported at
	 * once.
	 */
	int rc = device_options_open(options, 0, -1, &link->device);

	if (rc)
		return rc;
	frl_device_query(link->device, &link->attr);
	rc = frl_pd_create(link->device, &link->pd);
	if (rc) {
		say_failure(rc, "cannot create a protection domain");
		return rc;
	}
	return side_connect(link, announce);
}

static bool plan_is_sane(const struct plan *plan)
{
	if (plan->magic != plan_magic || !plan->ops || plan->ops >> PP_OPS || !plan->tests ||
		plan->tests >> PP_TESTS || plan->verify > 1 || !plan->n_sizes ||
		plan->n_sizes > MAX_SIZES || plan->iters > UINT32_MAX || plan->places > MAX_SLOTS)
		return false;
	for (uint32_t i = 0; i < plan->n_sizes; i++)
		if (!plan->sizes[i] || plan->sizes[i] > MAX_SIZE)
			return false;
	return true;
}

int link_share_plan(struct link *link, struct plan *plan)
{
	struct plan theirs;
	int rc;

	plan->magic = plan_magic;
	rc = side_exchange(link, plan, sizeof(*plan), &theirs);
	if (rc || link->rank == CLIENT)
		return rc;
	if (!plan_is_sane(&theirs)) {
		say("the client has another version of this program");
		return -EPROTO;
	}
	*plan = theirs;
	return 0;
}

static size_t slot_stride(size_t size)
{
	return (size + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
}

static int make_memory(struct link *link, size_t max_size)
{
	size_t two = 2 * slot_stride(max_size);

	link->area_size = two > AREA_SIZE ? two : AREA_SIZE;
	if (link->mem.is_gpu) {
		int gpu, rc = gpu_of(&link->mem, link->rank, &gpu);

		if (!rc)
			rc = gpu_alloc(gpu, 2 * link->area_size, &link->gpu);
		if (rc)
			return rc;
		link->memory = link->gpu.data;
		link->shown = link->gpu.host;
	} else {
		link->memory = link->use_malloc ? calloc(2, link->area_size)
						: frl_mem_alloc(2 * link->area_size);
		link->shown = link->memory;
	}
	if (!link->memory) {
		say_failure(-ENOMEM, "no memory for %zu bytes", 2 * link->area_size);
		return -ENOMEM;
	}
	return 0;
}

static int register_memory(struct link *link)
{
	return frl_reg_mr(link->pd, link->memory, 2 * link->area_size,
		FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &link->mr);
}

static int make_queue_pair(struct link *link, size_t max_size)
{
	struct frl_qp_config config = {
		.max_send_wr = MAX_SENDS,
		.max_recv_wr = MAX_RECEIVES,
	};
	int rc = make_memory(link, max_size);

	if (rc)
		return rc; /* the reason has been printed */
	rc = register_memory(link);
	if (!rc)
		rc = frl_cq_create(link->device, MAX_SENDS + MAX_RECEIVES, &link->cq);
	if (!rc) {
		config.send_cq = link->cq;
		config.recv_cq = link->cq;
		rc = frl_qp_create(link->pd, &config, &link->qp);
	}
	if (rc)
		say_failure(rc, "cannot create a queue pair");
	return rc;
}

int link_connect(struct link *link, size_t max_size)
{
	struct greeting greeting = { 0 };
	int rc = make_queue_pair(link, max_size);

	if (rc)
		return rc;
	greeting.addr = (uintptr_t)(link->memory + link->area_size);
	greeting.rkey = frl_mr_rkey(link->mr);
	if (link->rank == SERVER)
		rc = link_answer(link, link->qp, &greeting, &link->conn);
	else
		rc = link_ask(link, link->qp, &greeting, &link->conn);
	link->remote_addr = greeting.addr;
	link->rkey = (uint32_t)greeting.rkey;
	return rc;
}

void link_close(struct link *link)
{
	frl_conn_close(link->conn);
	side_close(link);
	frl_qp_destroy(link->qp);
	frl_cq_destroy(link->cq);
	frl_dereg_mr(link->mr);
	frl_pd_destroy(link->pd);
	if (link->device)
		frl_device_close(link->device);
	if (link->mem.is_gpu)
		gpu_free(&link->gpu);
	else if (link->use_malloc)
		free(link->memory);
	else if (link->memory)
		frl_mem_free(link->memory, 2 * link->area_size);
	memset(link, 0, sizeof(*link));
}

unsigned link_slots(const struct link *link, size_t size)
{
	size_t slots = link->area_size / slot_stride(size);

	return slots > MAX_SLOTS ? MAX_SLOTS : (unsigned)slots;
}

static size_t slot_offset(const struct link *link, size_t size, uint64_t message)
{
	uint64_t slots = link_slots(link, size);

	if (link->places && link->places < slots)
		slots = link->places;
	return message % slots * slot_stride(size);
}

uint8_t *link_send_slot(const struct link *link, size_t size, uint64_t message)
{
	return link->memory + slot_offset(link, size, message);
}

uint8_t *link_receive_slot(const struct link *link, size_t size, uint64_t message)
{
	return link->memory + link->area_size + slot_offset(link, size, message);
}

uint8_t *link_host_slot(const struct link *link, const uint8_t *slot)
{
	return link->shown + (slot - link->memory);
}

int link_give(const struct link *link, const uint8_t *slot, size_t size)
{
	return link->mem.is_gpu ? gpu_give(&link->gpu, (size_t)(slot - link->memory), size) : 0;
}

int link_take(const struct link *link, const uint8_t *slot, size_t size)
{
	return link->mem.is_gpu ? gpu_take(&link->gpu, (size_t)(slot - link->memory), size) : 0;
}

int link_post_receive(struct link *link, size_t size, uint64_t message)
{
	struct frl_sge sge = {
		.addr = size ? link_receive_slot(link, size, message) : NULL,
		.length = (uint32_t)size,
		.lkey = frl_mr_lkey(link->mr),
	};
	struct frl_recv_wr wr = { .wr_id = message, .sge = &sge, .n_sge = size ? 1 : 0 };
	int rc = frl_post_recv(link->qp, &wr, 1, NULL);

	if (rc < 0)
		say_failure(rc, "cannot post a receive");
	return rc < 0 ? rc : 0;
}

/*
 * A signaled request also reports the requests before it: its wr_id is the number of requests so
 * far.
 */
static int post_sends(struct link *link, struct frl_send_wr wr[], unsigned n)
{
	int rc = 0;

	while (!rc && link->posted - link->sent + n > MAX_SENDS)
		rc = link_poll(link);
	if (rc)
		return rc;
	for (unsigned i = 0; i < n; i++)
		wr[i].wr_id = link->posted + i + 1;
	rc = frl_post_send(link->qp, wr, (int)n, NULL);
	if (rc < 0) {
		say_failure(rc, "cannot post a send");
		return rc;
	}
	link->posted += n;
	return 0;
}

int link_post(struct link *link, const struct run *run)
{
	struct frl_sge sge[MAX_RUN];
	struct frl_send_wr wr[MAX_RUN];

	for (unsigned i = 0; i < run->n; i++) {
		uint64_t message = run->first + i;
		bool last = i + 1 == run->n;

		sge[i] = (struct frl_sge){
			.addr = link_send_slot(link, run->size, message),
			.length = (uint32_t)run->size,
			.lkey = frl_mr_lkey(link->mr),
		};
		wr[i] = (struct frl_send_wr){
			.opcode = FRL_WR_SEND,
			.flags = last ? FRL_SEND_SIGNALED : 0,
			.sge = &sge[i],
			.n_sge = 1,
		};
		if (run->op != PP_WRITE)
			continue;
		wr[i].opcode = run->notify || (last && run->notify_last)
			? FRL_WR_RDMA_WRITE_WITH_IMM
			: FRL_WR_RDMA_WRITE;
		wr[i].imm_data = (uint32_t)message;
		/* Areas and slots have the same size at both ends. */
		wr[i].remote_addr = link->remote_addr + slot_offset(link, run->size, message);
		wr[i].rkey = link->rkey;
	}
	return post_sends(link, wr, run->n);
}

int link_post_credit(struct link *link, uint32_t imm)
{
	struct frl_send_wr wr = {
		.opcode = FRL_WR_SEND_WITH_IMM,
		.flags = FRL_SEND_SIGNALED,
		.imm_data = imm,
	};

	return post_sends(link, &wr, 1);
}

int link_check_peer(struct link *link)
{
	int rc = link->conn ? frl_conn_test(link->conn) : 0;

	if (!rc || rc == -EAGAIN)
		rc = frl_conn_test(link->side.conn);
	if (rc == -ECANCELED)
		say_failure(rc, "the connection was ended");
	else if (rc)
		say_failure(
			rc, "the peer (%s) is gone", link->rank == SERVER ? "client" : "server");
	return rc;
}

/*
 * Returns whether the link may have ended with the peer's process. Its end fails the oldest send,
 * and flushes the receives: a queue pair without sends reports only flushed requests, and `why`
 * then tells the end of the link. Any other reason is the cause of the flush.
 */
static bool may_be_link_end(enum frl_wc_status status, const char *why)
{
	if (status == FRL_WC_WR_FLUSH_ERR)
		return !*why || strcmp(why, frl_wc_status_str(FRL_WC_REM_ABORT_ERR)) == 0;
	return status == FRL_WC_REM_ABORT_ERR;
}

/*
 * If the connection has ended, its reason explains all failures, and is known soon after. If the
 * peer's process has ended, the daemon reports it, maybe long after the end of the link; the time
 * limit is for a daemon that hangs.
 */
int link_fail(struct link *link, struct frl_conn *conn, struct frl_qp *qp, const struct frl_wc *wc)
{
	char why[256];

	frl_qp_error(qp, why, sizeof(why));
	frl_conn_wait_end(conn, may_be_link_end(wc->status, why) ? DAEMON_MS : REASON_MS);
	if (link_check_peer(link) == 0)
		say("a request failed: %s",
			*frl_qp_error(qp, why, sizeof(why)) ? why : frl_wc_status_str(wc->status));
	return -EIO;
}

static int take_completion(struct link *link, const struct frl_wc *wc)
{
	struct arrival *arrival;

	if (wc->status != FRL_WC_SUCCESS)
		return link_fail(link, link->conn, link->qp, wc);
	if (wc->opcode == FRL_WC_SEND || wc->opcode == FRL_WC_RDMA_WRITE) {
		link->sent = wc->wr_id;
		return 0;
	}
	if (link->inbox_count == MAX_RECEIVES) {
		say("more messages arrived than receives were posted");
		return -EPROTO;
	}
	arrival = &link->inbox[(link->inbox_first + link->inbox_count++) % MAX_RECEIVES];
	arrival->length = wc->byte_len;
	arrival->imm = wc->imm_data;
	arrival->with_imm = wc->flags & FRL_WC_WITH_IMM;
	return 0;
}

static int idle(struct link *link)
{
	/*
	 * WRITEs arrive without completions, so an empty completion queue does not mean that
	 * nothing arrived. Asking in every round would halve the speed of the loop.
	 */
	if (link->idle_rounds++ % PROGRESS_ROUNDS == 0 && frl_progress(link->device) > 0) {
		frl_backoff_reset(&link->backoff);
		return 0;
	}
	frl_backoff_idle(&link->backoff);
	if (link->idle_rounds % IDLE_ROUNDS == 0 || link->backoff.sleep_us) {
		uint64_t now = now_ns();

		if (now >= link->next_check_ns) {
			link->next_check_ns = now + CHECK_INTERVAL_NS;
			return link_check_peer(link);
		}
	}
	return 0;
}

int link_poll(struct link *link)
{
	struct frl_wc wc[16];
	int n = frl_poll_cq(link->cq, 16, wc), rc = 0;

	if (n < 0) {
		say_failure(n, "cannot poll for completions");
		return n;
	}
	if (n == 0)
		return idle(link);
	frl_backoff_reset(&link->backoff);
	for (int i = 0; i < n && !rc; i++)
		rc = take_completion(link, &wc[i]);
	return rc;
}

int link_receive(struct link *link, struct arrival *ret_arrival)
{
	while (!link->inbox_count) {
		int rc = link_poll(link);

		if (rc)
			return rc;
	}
	*ret_arrival = link->inbox[link->inbox_first];
	link->inbox_first = (link->inbox_first + 1) % MAX_RECEIVES;
	link->inbox_count--;
	return 0;
}

int link_sync(struct link *link)
{
	uint8_t mine = 0, theirs;

	return side_exchange(link, &mine, sizeof(mine), &theirs);
}
