/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface over a network port without any peer: addresses, and waiting. */
#include "lib/device/soft.h"

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/wait_limits.h"
#include "tests/fixtures/program.h"

enum {
	QKEY = 5,
	LENGTH = 100,
	VLAN_GID = 3,
};

static void open_port(void)
{
	struct frl_device_config config;

	a = b = (struct end){ 0 };
	frl_device_config_init(&config);
	config.port = "net_null0,no-rx=1";
	config.ip = "10.1.1.1/24,fd00::1/64,10.1.7.1/24@7";
	config.gateway = "10.1.1.254";
	ok(frl_device_open(&config, &a.device));
	ok(frl_pd_create(a.device, &a.pd));
	ok(frl_cq_create(a.device, 4 * DEPTH, &a.cq));
	a.memory = calloc(1, MEMORY);
	ck_assert_ptr_nonnull(a.memory);
	ok(frl_reg_mr(a.pd, a.memory, MEMORY, ALL_ACCESS, &a.mr));
	a.qp = add_qp(&a);
	ok(frl_qp_endpoint(a.qp, &a.mine));
}

START_TEST(addresses)
{
	static const struct frl_gid want[] = {
		[1] = { { { [10] = 0xff, 0xff, 10, 1, 1, 1 } }, 24, 0 },
		[2] = { { { 0xfd, [15] = 1 } }, 64, 0 },
		[VLAN_GID] = { { { [10] = 0xff, 0xff, 10, 1, 7, 1 } }, 24, 7 },
	};
	struct frl_device_attr attr;
	struct frl_gid gid;

	open_port();
	frl_device_query(a.device, &attr);
	ck_assert_uint_eq(attr.n_gids, 4);
	ck_assert_int_eq(attr.port_state, FRL_PORT_ACTIVE);
	ck_assert(!attr.local_fabric && !attr.lossless);
	ck_assert_int_eq(memcmp(&attr.ip, &want[1].ip, sizeof(attr.ip)), 0);
	for (unsigned i = 1; i < attr.n_gids; i++) {
		ok(frl_query_gid(a.device, i, &gid));
		ck_assert_int_eq(memcmp(&gid.ip, &want[i].ip, sizeof(gid.ip)), 0);
		ck_assert_uint_eq(gid.prefix_len, want[i].prefix_len);
		ck_assert_uint_eq(gid.vlan, want[i].vlan);
	}
	ok(frl_query_gid(a.device, 0, &gid));
	ck_assert(gid.ip.bytes[0] == 0xfe && gid.ip.bytes[15] == attr.mac[5]);
	close_end(&a);
}
END_TEST

/* The peer's endpoint with another address and MAC: see lib/api/connect/endpoint.c. */
static struct frl_endpoint peer(uint8_t third, uint8_t fourth, bool has_mac)
{
	struct frl_endpoint endpoint = a.mine;

	memset(endpoint.bytes + 16, has_mac ? 2 : 0, 6);
	endpoint.bytes[24 + 14] = third;
	endpoint.bytes[24 + 15] = fourth;
	endpoint.bytes[44] ^= 1; /* another device */
	endpoint.bytes[61] = 1;  /* with one address */
	return endpoint;
}

static int give_up(void *arg)
{
	++*(int *)arg;
	return -ECANCELED;
}

/* A peer in the subnet sends its MAC; an address that ARP must find is waited for. */
START_TEST(connecting)
{
	struct frl_connect_config config;
	struct frl_endpoint remote;
	struct frl_qp_attr attr;
	int asked = 0;

	open_port();
	frl_connect_config_init(a.device, &config);
	config.timeout_ms = SHORT_MS;
	remote = peer(2, 2, true);
	refused(frl_qp_connect(a.qp, &remote, &config), -EHOSTUNREACH, "10.1.1.254");
	remote = peer(1, 2, false);
	/* It is in INIT by now. */
	refused(frl_qp_endpoint(a.qp, &a.mine), -EINVAL, "INIT");
	frl_qp_destroy(a.qp);
	a.qp = add_qp(&a);
	ok(frl_qp_endpoint(a.qp, &a.mine));
	refused(frl_qp_connect(a.qp, &remote, &config), -EHOSTUNREACH, "10.1.1.2 does not answer");
	frl_qp_destroy(a.qp);
	a.qp = add_qp(&a);
	ok(frl_qp_endpoint(a.qp, &a.mine));
	config.timeout_ms = HANG_MS;
	config.interrupt = give_up;
	config.interrupt_arg = &asked;
	ck_assert_int_eq(frl_qp_connect(a.qp, &remote, &config), -ECANCELED);
	ck_assert_int_eq(asked, 1);
	frl_qp_destroy(a.qp);
	a.qp = add_qp(&a);
	ok(frl_qp_endpoint(a.qp, &a.mine));
	remote = peer(1, 2, true);
	ok(frl_qp_connect(a.qp, &remote, &config));
	frl_qp_query(a.qp, &attr);
	ck_assert_uint_eq(attr.ah.sgid_index, 1);
	ck_assert_uint_eq(attr.ah.dmac[0], 2);
	close_end(&a);
}
END_TEST

/* On its VLAN the peer is reached from the address on that VLAN. */
START_TEST(connecting_on_a_vlan)
{
	struct frl_endpoint remote;
	struct frl_qp_attr attr;

	open_port();
	remote = peer(7, 9, true);
	ok(frl_qp_connect(a.qp, &remote, NULL));
	frl_qp_query(a.qp, &attr);
	ck_assert_uint_eq(attr.ah.sgid_index, VLAN_GID);
	close_end(&a);
}
END_TEST

static void *modify_silently(void *arg)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1 };

	ok(frl_qp_modify(
		a.qp, &attr, FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	attr.state = FRL_QPS_RTR;
	attr.path_mtu = 1024;
	attr.dest_qpn = 5;
	attr.ah.sgid_index = 2;
	attr.ah.dgid = (struct frl_ip){ { 0xfd, [15] = 9 } };
	a.rc = frl_qp_modify(a.qp, &attr,
		FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN | FRL_QP_RQ_PSN |
			FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER);
	refused(a.rc, -EHOSTUNREACH, "fd00::9 does not answer neighbour discovery");
	frl_qp_query(a.qp, &attr);
	ck_assert_int_eq(attr.state, FRL_QPS_INIT);
	return NULL;
}

/* Both wait at the same time. */
START_TEST(silence)
{
	struct frl_ah_attr attr = { .sgid_index = 1 };
	struct frl_ah *ah = NULL;
	pthread_t thread;

	open_port();
	limits_expire(RESOLVE_MS);
	ck_assert_int_eq(pthread_create(&thread, NULL, modify_silently, NULL), 0);
	attr.dgid = (struct frl_ip){ { [10] = 0xff, 0xff, 10, 9, 9, 9 } };
	refused(frl_ah_create(a.pd, &attr, &ah), -EHOSTUNREACH, "10.1.1.254 does not answer ARP");
	attr.sgid_index = 2;
	attr.dgid = (struct frl_ip){ { 0xfd, 1, [15] = 9 } };
	refused(frl_ah_create(a.pd, &attr, &ah), -EHOSTUNREACH, "gateway");
	ck_assert_ptr_null(ah);
	pthread_join(thread, NULL);
	limits_expire(0);
	close_end(&a);
}
END_TEST

static void *fail_while_it_asks(void *arg)
{
	const struct frl_qp_attr attr = { .state = FRL_QPS_ERR };
	uint64_t limit_ns = hang_limit_ns();
	bool is_asking = false;

	while (!is_asking && may_wait(limit_ns)) {
		device_enter(a.device);
		is_asking = soft_qp(a.qp)->engine.pending_neighbor >= 0;
		device_leave(a.device);
		sched_yield();
	}
	ok(frl_qp_modify(a.qp, &attr, FRL_QP_STATE));
	return NULL;
}

/* A caller that waits for an answer and is overtaken by another change stops asking. */
START_TEST(overtaken)
{
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1 };
	pthread_t thread;

	open_port();
	ok(frl_qp_modify(
		a.qp, &attr, FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	ck_assert_int_eq(pthread_create(&thread, NULL, fail_while_it_asks, NULL), 0);
	attr.state = FRL_QPS_RTR;
	attr.path_mtu = 1024;
	attr.dest_qpn = 5;
	attr.ah.sgid_index = 1;
	attr.ah.dgid = (struct frl_ip){ { [10] = 0xff, 0xff, 10, 1, 1, 77 } };
	refused(frl_qp_modify(a.qp, &attr,
			FRL_QP_STATE | FRL_QP_AV | FRL_QP_PATH_MTU | FRL_QP_DEST_QPN |
				FRL_QP_RQ_PSN | FRL_QP_MAX_DEST_RD_ATOMIC | FRL_QP_MIN_RNR_TIMER),
		-EINVAL, "ERR to RTR");
	pthread_join(thread, NULL);
	ck_assert_int_eq(soft_qp(a.qp)->engine.pending_neighbor, -1);
	close_end(&a);
}
END_TEST

/* A datagram to the device itself, on a VLAN: the receive has the VLAN, and the answer goes
 * there. */
START_TEST(datagram_on_a_vlan)
{
	struct frl_ah_attr attr = { .sgid_index = VLAN_GID, .sl = 5 }, back;
	struct frl_sge sge, into;
	struct frl_recv_wr recv = { .wr_id = 2, .sge = &into, .n_sge = 1 };
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_SEND, .sge = &sge, .n_sge = 1 };
	struct frl_gid gid;
	struct frl_qp *qp;
	struct frl_ah *ah;
	struct frl_wc wc;

	open_port();
	qp = add_datagram_qp(&a, FRL_QPT_UD, QKEY);
	sge = (struct frl_sge){ a.memory, LENGTH, frl_mr_lkey(a.mr) };
	into = (struct frl_sge){ a.memory + 1000, FRL_GRH_SIZE + LENGTH, frl_mr_lkey(a.mr) };
	ok(frl_query_gid(a.device, VLAN_GID, &gid));
	attr.dgid = gid.ip;
	ok(frl_ah_create(a.pd, &attr, &ah));
	ck_assert_int_eq(frl_post_recv(qp, &recv, 1, NULL), 1);
	wr.ah = ah;
	wr.remote_qpn = frl_qp_num(qp);
	wr.remote_qkey = QKEY;
	post_on(qp, &wr);
	wc = next_wc(&a, 2, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.vlan, 7);
	ck_assert_uint_eq(wc.sl, 5);
	ok(frl_ah_attr_from_wc(a.device, &wc, a.memory + 1000, &back));
	ck_assert_uint_eq(back.sgid_index, VLAN_GID);
	ck_assert_uint_eq(back.sl, 5);
	frl_ah_destroy(ah);
	frl_qp_destroy(qp);
	close_end(&a);
}
END_TEST

TEST_MAIN(api_ethernet)
{
	return run_suite_unforked(all_tests(NULL, NULL));
}
