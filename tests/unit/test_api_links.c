/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: a process can have few links of the local fabric, and those that nothing
 * uses make room for others. Here both ends of each are in one process: there is room for 15. */
#include "lib/base/clock.h"
#include "lib/soft/soft.h"
#include "tests/unit/api_fixture.h"
#include "tests/unit/program.h"
#include "tests/unit/stopped_clock.h"
#include "tests/unit/wait_limits.h"

enum {
	PEERS = 17,
	ROUNDS = 3,
};

/* Of `a`, the middle of a star; they have threads, as processes of their own would. */
static struct end peers[PEERS];

/* One for the 31st link, whose other end would find no room: to nobody. */
static void open_odd_link(void)
{
	const struct frl_ip nobody = { { [10] = 0xff, 0xff, 169, 254, 0, 1 } };
	const uint8_t mac[6] = { 2, 0, 169, 254, 0, 1 }, nonce[NONCE_SIZE] = { 1 };

	device_enter(a.device);
	ck_assert_int_ge(soft_link_open(a.device, &nobody, mac, nonce), 0);
	device_leave(a.device);
}

static void open_star_with(enum frl_progress progress)
{
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_odd_link();
	for (int i = 0; i < PEERS; i++)
		open_end(&peers[i], false, progress);
}

static void open_star(void)
{
	open_star_with(FRL_PROGRESS_THREAD);
}

static void close_star(void)
{
	for (int i = 0; i < PEERS; i++)
		close_end(&peers[i]);
	close_end(&a);
}

static void renew(struct end *end)
{
	frl_qp_destroy(end->qp);
	end->qp = add_qp(end);
	ok(frl_qp_endpoint(end->qp, &end->mine));
}

static void start_connecting(struct end *peer, int timeout_ms)
{
	struct frl_connect_config config;

	frl_connect_config_init(a.device, &config);
	config.timeout_ms = timeout_ms;
	ok(frl_qp_connect_start(a.qp, &peer->mine, &config));
	ok(frl_qp_connect_start(peer->qp, &a.mine, &config));
	a.rc = peer->rc = -EAGAIN;
}

/* Asks both ends. -EAGAIN: not yet. */
static int test_connecting(struct end *peer)
{
	if (a.rc == -EAGAIN)
		a.rc = frl_qp_connect_test(a.qp);
	if (peer->rc == -EAGAIN)
		peer->rc = frl_qp_connect_test(peer->qp);
	if (a.rc && a.rc != -EAGAIN)
		return a.rc;
	return peer->rc ? peer->rc : a.rc;
}

static int end_connecting(struct end *peer)
{
	int rc;

	do
		rc = test_connecting(peer);
	while (rc == -EAGAIN);
	return rc;
}

static int connect_to(struct end *peer, int timeout_ms)
{
	start_connecting(peer, timeout_ms);
	return end_connecting(peer);
}

static void write_to(struct end *peer)
{
	struct frl_sge sge = sge_of(&a, 0, 100);
	struct frl_send_wr wr = {
		.wr_id = 1,
		.opcode = FRL_WR_RDMA_WRITE,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.remote_addr = (uintptr_t)peer->memory,
		.rkey = frl_mr_rkey(peer->mr),
	};
	struct frl_wc wc = { .wr_id = 0 };

	post_on(a.qp, &wr);
	ck_assert_int_eq(frl_cq_wait(a.cq, 1, &wc, HANG_MS), 1);
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
}

static void exchange(struct end *peer)
{
	renew(&a);
	renew(peer);
	ok(connect_to(peer, HANG_MS));
	write_to(peer);
}

static enum frl_qp_state state_of(struct end *end)
{
	struct frl_qp_attr attr;

	frl_qp_query(end->qp, &attr);
	return attr.state;
}

static unsigned links_used(struct end *end)
{
	struct frl_device_attr attr;

	frl_device_query(end->device, &attr);
	return attr.links_used;
}

/* One after the other, more than there can be at once; and again those that have gone. */
START_TEST(one_after_the_other)
{
	open_star();
	for (int i = 0; i < ROUNDS * PEERS; i++) {
		exchange(&peers[i % PEERS]);
		ck_assert_uint_eq(links_used(&a), 2);
		/* Its end may be the last to use it. */
		if (i % 2)
			renew(&peers[i % PEERS]);
	}
	close_star();
}
END_TEST

/* A peer that has a queue pair over it keeps the link, also when this end has none. */
START_TEST(peer_keeps_it)
{
	open_star();
	exchange(&peers[0]);
	for (int i = 1; i < PEERS; i++) {
		exchange(&peers[i]);
		renew(&peers[i]);
		ck_assert_uint_eq(links_used(&a), 2);
		ck_assert_int_eq(state_of(&peers[0]), FRL_QPS_RTS);
	}
	ck_assert_uint_eq(links_used(&peers[0]), 1);
	ck_assert_uint_eq(links_used(&peers[1]), 0);
	exchange(&peers[0]);
	close_star();
}
END_TEST

/* ---- while the other end is asked whether a link can go */

static struct fabric_link *link_to(const struct end *peer)
{
	struct soft_device *device = soft_device(a.device);
	struct frl_device_attr attr;

	frl_device_query(peer->device, &attr);
	for (unsigned i = 0; i < device->n_links; i++)
		if (memcmp(&device->links[i].peer_ip, &attr.ip, sizeof(attr.ip)) == 0)
			return &device->links[i];
	return NULL;
}

/* As when room is needed. */
static void ask_to_part(struct end *peer)
{
	struct fabric_link *link;

	device_enter(a.device);
	link = link_to(peer);
	ck_assert_ptr_nonnull(link);
	ck_assert(fabric_ask_to_part(soft_device(a.device), link, clock_now_ns()));
	device_leave(a.device);
}

static int make_handle(struct end *peer, const struct frl_ah_attr *attr, struct frl_ah **ret_ah)
{
	int rc;

	ask_to_part(peer);
	rc = frl_ah_create(a.pd, attr, ret_ah);
	/* Nobody uses it before the answer. */
	ck_assert(rc || !link_to(peer)->parting);
	return rc;
}

/* The way without a word of connecting. */
static int move_to_rtr(struct end *peer, const struct frl_ah_attr *way)
{
	const uint32_t init = FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS;
	const uint32_t rtr = FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
		FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER;
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1 };
	int rc;

	renew(&a);
	ok(frl_qp_modify(a.qp, &attr, init));
	attr.state = FRL_QPS_RTR;
	attr.dest_qpn = frl_qp_num(peer->qp);
	attr.path_mtu = 1024;
	attr.ah = *way;
	ask_to_part(peer);
	rc = frl_qp_modify(a.qp, &attr, rtr);
	ck_assert(rc || !link_to(peer)->parting);
	return rc;
}

/* By the GID, or by the link's number and the MAC. */
static struct frl_ah_attr way_to(struct end *peer, bool is_explicit)
{
	struct frl_ah_attr way = { .sgid_index = 1 }, found; /* its IPv4 address */
	struct frl_device_attr attr;
	struct frl_ah *ah;

	frl_device_query(peer->device, &attr);
	way.dgid = attr.ip;
	ok(frl_ah_create(a.pd, &way, &ah));
	frl_ah_query(ah, &found);
	frl_ah_destroy(ah);
	return is_explicit ? found : way;
}

/* The peer needs it: then it can be used. */
START_LOOP_TEST(kept_link, 2)
{
	struct frl_ah_attr way;
	struct frl_ah *ah;

	open_star();
	exchange(&peers[0]);
	way = way_to(&peers[0], _i);
	renew(&a);
	ok(make_handle(&peers[0], &way, &ah));
	frl_ah_destroy(ah);
	ok(move_to_rtr(&peers[0], &way));
	close_star();
}
END_TEST

/* Neither end needs it: it is gone, and nothing was made that would use it. */
START_LOOP_TEST(parted_link, 2)
{
	struct frl_ah_attr way;
	struct frl_ah *ah;

	open_star();
	for (int i = 0; i < 2; i++) {
		exchange(&peers[i]);
		way = way_to(&peers[i], _i);
		renew(&a);
		renew(&peers[i]);
		refused(i ? move_to_rtr(&peers[i], &way) : make_handle(&peers[i], &way, &ah),
			-EHOSTUNREACH, "no link to");
		/* Another one can be made. */
		exchange(&peers[i]);
	}
	close_star();
}
END_TEST

/* Nobody says anything: this end does not wait for ever. */
START_TEST(silent_link)
{
	struct frl_ah_attr way;
	struct frl_ah *ah;
	struct end *peer = &peers[0];

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(peer, false, FRL_PROGRESS_INLINE);
	ok(connect_to(peer, HANG_MS));
	way = way_to(peer, false);
	renew(&a);
	limits_expire(RESOLVE_MS);
	refused(make_handle(peer, &way, &ah), -EHOSTUNREACH, "does not say");
	limits_expire(0);
	close_end(peer);
	close_end(&a);
}
END_TEST

TEST_MAIN(api_links)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
