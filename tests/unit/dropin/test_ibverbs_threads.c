/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: threads that use one device, one context, or one queue pair. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, ROUNDS = 100, EACH = 512 };

static void join_all(pthread_t threads[THREADS])
{
	for (int i = 0; i < THREADS; i++)
		ok(pthread_join(threads[i], NULL));
}

/* ---- each thread has objects of its own in a common context */

struct own {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t memory[2 * EACH];
};

static void open_own(struct own *own)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };

	own->pd = ibv_alloc_pd(own->context);
	made(own->pd);
	own->channel = ibv_create_comp_channel(own->context);
	made(own->channel);
	own->cq = ibv_create_cq(own->context, 16, own, own->channel, 0);
	made(own->cq);
	attr.cap = (struct ibv_qp_cap){ 4, 4, 1, 1, 0 };
	attr.send_cq = attr.recv_cq = own->cq;
	own->qp = ibv_create_qp(own->pd, &attr);
	made(own->qp);
	own->mr = ibv_reg_mr(own->pd, own->memory, sizeof(own->memory), RIGHTS);
	made(own->mr);
	connect_qps(own->qp, own->qp);
}

static void close_own(struct own *own)
{
	ok(ibv_destroy_qp(own->qp));
	ok(ibv_destroy_cq(own->cq));
	ok(ibv_destroy_comp_channel(own->channel));
	ok(ibv_dereg_mr(own->mr));
	ok(ibv_dealloc_pd(own->pd));
}

/* One WRITE, whose completion is waited for on the channel. */
static void write_own(struct own *own, uint8_t seed)
{
	struct ibv_sge sge = { (uintptr_t)own->memory, EACH, own->mr->lkey };
	struct ibv_send_wr wr = request(seed, IBV_WR_RDMA_WRITE, &sge), *bad;
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	wr.wr.rdma.remote_addr = (uintptr_t)own->memory + EACH;
	wr.wr.rdma.rkey = own->mr->rkey;
	memset(own->memory, seed, EACH);
	ok(ibv_req_notify_cq(own->cq, 0));
	ok(ibv_post_send(own->qp, &wr, &bad));
	ok(ibv_get_cq_event(own->channel, &cq, &context));
	ck_assert_ptr_eq(cq, own->cq);
	ck_assert_ptr_eq(context, own);
	ibv_ack_cq_events(cq, 1);
	ck_assert_int_eq(ibv_poll_cq(own->cq, 1, &wc), 1);
	ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
	ck_assert_uint_eq(wc.wr_id, seed);
	ck_assert_mem_eq(own->memory, own->memory + EACH, EACH);
}

static void *work_on_own(void *arg)
{
	struct own *own = calloc(1, sizeof(*own));

	own->context = arg ? arg : open_context();
	open_own(own);
	for (uint8_t i = 0; i < ROUNDS; i++)
		write_own(own, i);
	close_own(own);
	if (!arg)
		ok(ibv_close_device(own->context));
	free(own);
	return NULL;
}

/* In one context, or in contexts that are opened and closed meanwhile. */
START_LOOP_TEST(objects_of_threads, 2)
{
	struct ibv_context *context = _i ? NULL : open_context();
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		ok(pthread_create(&threads[i], NULL, work_on_own, context));
	join_all(threads);
	if (context)
		ok(ibv_close_device(context));
}
END_TEST

/* ---- all threads post to one queue pair */

static void *post_by_calls(void *arg)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(a.qp);

	for (uint64_t i = 0; i < ROUNDS;) {
		uint8_t data[8];

		memset(data, (int)i, sizeof(data));
		ibv_wr_start(ex);
		ex->wr_id = i;
		ex->wr_flags = IBV_SEND_SIGNALED;
		ibv_wr_rdma_write(ex, b.mr->rkey, (uintptr_t)b.memory + 8 * *(int *)arg);
		ibv_wr_set_inline_data(ex, data, sizeof(data));
		i += ibv_wr_complete(ex) == 0;
	}
	return NULL;
}

static void *post_by_lists(void *arg)
{
	for (uint64_t i = 0; i < ROUNDS;) {
		uint8_t data[8];
		struct ibv_sge sge = { (uintptr_t)data, sizeof(data), 0 };
		struct ibv_send_wr wr = request(i, IBV_WR_RDMA_WRITE, &sge), *bad;
		int rc;

		memset(data, (int)i, sizeof(data));
		wr.send_flags |= IBV_SEND_INLINE;
		aim(&wr, &b, (uint32_t)(8 * *(int *)arg));
		rc = ibv_post_send(a.qp, &wr, &bad);
		ck_assert(rc == 0 || rc == ENOMEM);
		i += rc == 0;
	}
	return NULL;
}

START_TEST(one_queue_pair)
{
	/* A request leaves the send queue when it completes, also if nobody polls. */
	const struct wants wants = {
		.ops = IBV_QP_EX_WITH_RDMA_WRITE,
		.max_send_wr = 16,
		.cqe = THREADS * ROUNDS,
	};
	pthread_t threads[THREADS];
	int places[THREADS];

	start(&wants);
	for (int i = 0; i < THREADS; i++) {
		places[i] = i;
		ok(pthread_create(
			&threads[i], NULL, i % 2 ? post_by_calls : post_by_lists, &places[i]));
	}
	for (int i = 0; i < THREADS * ROUNDS; i++)
		ck_assert_int_eq(next_wc(&a).status, IBV_WC_SUCCESS);
	join_all(threads);
	expect_none(&a);
	for (int i = 0; i < 8 * THREADS; i++)
		ck_assert_uint_eq(b.memory[i], ROUNDS - 1);
	finish();
}
END_TEST

/* ---- one thread polls while others wait for events of the same queue */

static atomic_int received;

static void *receive_by_events(void *arg)
{
	struct ibv_cq *cq;
	struct ibv_wc wc;
	void *context;

	while (atomic_load(&received) < ROUNDS) {
		ok(ibv_get_cq_event(b.channel, &cq, &context));
		ok(ibv_req_notify_cq(cq, 0));
		while (ibv_poll_cq(cq, 1, &wc) == 1) {
			ck_assert_int_eq(wc.status, IBV_WC_SUCCESS);
			atomic_fetch_add(&received, 1);
		}
		ibv_ack_cq_events(cq, 1);
	}
	return NULL;
}

START_TEST(receiver_sleeps)
{
	struct ibv_send_wr wr = request(1, IBV_WR_SEND, NULL);
	pthread_t thread;

	start(&(struct wants){ .has_channel = true });
	atomic_store(&received, 0);
	ok(ibv_req_notify_cq(b.cq, 0));
	ok(pthread_create(&thread, NULL, receive_by_events, NULL));
	for (int i = 0; i < ROUNDS; i++) {
		post_recv(&b, 2, 0, 0);
		post(&a, &wr);
		expect(&a, 1, IBV_WC_SUCCESS);
	}
	ok(pthread_join(thread, NULL));
	ck_assert_int_eq(atomic_load(&received), ROUNDS);
	finish();
}
END_TEST

TEST_FILE(ibverbs_threads)
