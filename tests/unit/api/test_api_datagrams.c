/* SPDX-License-Identifier: BSD-3-Clause */
/* The public interface: address handles, datagrams, QP1 and multicast groups. */
#include <unistd.h>

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

enum {
	QKEY = 0x11223344,
	OWN_QKEY = 1u << 31,
	LENGTH = 1000,
	ROOM = FRL_GRH_SIZE + LENGTH,
	MULTICAST_QPN = 0xffffff,
};

/* Other programs on this machine may run the same test. */
static struct frl_ip own_group(bool is_v6)
{
	uint8_t low = (uint8_t)getpid(), high = (uint8_t)(getpid() >> 8);

	if (is_v6)
		return (struct frl_ip){ { 0xff, 0x12, [13] = 0x77, high, low } };
	return (struct frl_ip){ { [10] = 0xff, 0xff, 239, 1, high, low } };
}

static void post_recv_on(struct end *end, struct frl_qp *qp, uint64_t wr_id, uint32_t offset)
{
	struct frl_sge sge = { end->memory + offset, ROOM, frl_mr_lkey(end->mr) };
	struct frl_recv_wr wr = { .wr_id = wr_id, .sge = &sge, .n_sge = 1 };

	ck_assert_msg(frl_post_recv(qp, &wr, 1, NULL) == 1, "%s", frl_last_error());
}

static struct frl_send_wr datagram(const struct frl_sge *sge, struct frl_ah *ah, uint32_t qpn)
{
	return (struct frl_send_wr){
		.wr_id = 1,
		.opcode = FRL_WR_SEND_WITH_IMM,
		.flags = FRL_SEND_SIGNALED,
		.sge = sge,
		.n_sge = 1,
		.imm_data = 0x5a5a,
		.ah = ah,
		.remote_qpn = qpn,
		.remote_qkey = QKEY,
	};
}

static struct frl_ah_attr way_to(const struct end *end, unsigned gid_index)
{
	struct frl_ah_attr attr = { .sgid_index = (uint8_t)gid_index };
	struct frl_gid gid;

	ok(frl_query_gid(end->device, gid_index, &gid));
	attr.dgid = gid.ip;
	return attr;
}

/* The flag of datagrams from the end. */
static uint32_t family_of(const struct frl_ah_attr *to)
{
	bool is_v4 = to->dgid.bytes[10] == 0xff && to->dgid.bytes[11] == 0xff;

	return is_v4 && !test_port() ? FRL_WC_IPV4 : 0;
}

/* From a to b, and back by the address in the receive; over IPv4 and IPv6. Then within one
 * device. */
static void there_and_back(struct end *to, unsigned gid_index)
{
	struct frl_qp *from_qp = add_datagram_qp(&a, FRL_QPT_UD, QKEY);
	struct frl_qp *to_qp = add_datagram_qp(to, FRL_QPT_UD, QKEY);
	struct frl_sge sge = { a.memory, LENGTH, frl_mr_lkey(a.mr) };
	struct frl_ah_attr attr = way_to(to, gid_index), back;
	struct frl_send_wr wr;
	struct frl_ah *ah;
	struct frl_wc wc;

	attr.traffic_class = 0x6b;
	ok(frl_ah_create(a.pd, &attr, &ah));
	frl_ah_query(ah, &back);
	ck_assert_uint_eq(back.hop_limit, 64);
	ck_assert_int_eq(memcmp(&back.dgid, &attr.dgid, sizeof(attr.dgid)), 0);
	post_recv_on(to, to_qp, 9, 20000);
	wr = datagram(&sge, ah, frl_qp_num(to_qp));
	post_on(from_qp, &wr);
	/* Software does not need it for the request any more, hardware may. */
	if (!test_port())
		frl_ah_destroy(ah);
	wc = next_wc(&a, 1, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_SEND);
	if (test_port())
		frl_ah_destroy(ah);
	wc = next_wc(to, 9, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.byte_len, ROOM);
	ck_assert_uint_eq(wc.flags, FRL_WC_GRH | FRL_WC_WITH_IMM | family_of(&attr));
	ck_assert_uint_eq(wc.imm_data, 0x5a5a);
	ck_assert_uint_eq(wc.src_qp, frl_qp_num(from_qp));
	ck_assert_uint_eq(wc.qp_num, frl_qp_num(to_qp));
	ck_assert_int_eq(memcmp(to->memory + 20000 + FRL_GRH_SIZE, a.memory, LENGTH), 0);

	ok(frl_ah_attr_from_wc(to->device, &wc, to->memory + 20000, &back));
	ck_assert_uint_eq(back.sgid_index, gid_index);
	ck_assert_uint_eq(back.traffic_class, 0x68); /* its ECN is of that packet alone */
	ok(frl_ah_create(to->pd, &back, &ah));
	post_recv_on(&a, from_qp, 8, 30000);
	sge = (struct frl_sge){ to->memory + 20000 + FRL_GRH_SIZE, LENGTH, frl_mr_lkey(to->mr) };
	wr = datagram(&sge, ah, wc.src_qp);
	wr.opcode = FRL_WR_SEND;
	post_on(to_qp, &wr);
	next_wc(to, 1, FRL_WC_SUCCESS);
	wc = next_wc(&a, 8, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.flags, FRL_WC_GRH | family_of(&attr));
	ck_assert_int_eq(memcmp(a.memory + 30000 + FRL_GRH_SIZE, a.memory, LENGTH), 0);
	refused(frl_pd_destroy(to->pd), -EBUSY, "objects");
	frl_ah_destroy(ah);
	frl_qp_destroy(from_qp);
	frl_qp_destroy(to_qp);
}

START_LOOP_TEST(over_a_link, 2)
{
	start(false, FRL_PROGRESS_INLINE);
	there_and_back(&b, (unsigned)_i);
}
END_TEST

START_LOOP_TEST(within_one_device, 2)
{
	open_end(&a, false, FRL_PROGRESS_INLINE);
	b = (struct end){ 0 };
	there_and_back(&a, (unsigned)_i);
}
END_TEST

START_TEST(bad_handles)
{
	struct frl_ah_attr attr, good;
	struct frl_ah *ah = NULL;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	good = way_to(&a, 1);
	refused(frl_ah_create(NULL, &good, &ah), -EINVAL, "pd");
	attr = good;
	attr.sgid_index = 2;
	refused(frl_ah_create(a.pd, &attr, &ah), -EINVAL, "sgid_index");
	attr.sgid_index = 0;
	refused(frl_ah_create(a.pd, &attr, &ah), -EINVAL, "family");
	attr = good;
	attr.sl = 8;
	refused(frl_ah_create(a.pd, &attr, &ah), -EINVAL, "sl");
	attr = good;
	attr.flow_label = 1 << 20;
	refused(frl_ah_create(a.pd, &attr, &ah), -EINVAL, "flow_label");
	ck_assert_ptr_null(ah);
	frl_ah_destroy(NULL);
}
END_TEST

START_TEST(bad_posts)
{
	struct frl_ah_attr attr;
	struct frl_device_attr device;
	struct frl_endpoint endpoint;
	struct frl_send_wr wr;
	struct frl_ah *ah, *foreign;
	struct frl_pd *other;
	struct frl_sge sge;
	struct frl_qp *qp;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	b = (struct end){ 0 };
	frl_device_query(a.device, &device);
	qp = add_datagram_qp(&a, FRL_QPT_UD, QKEY);
	attr = way_to(&a, 1);
	ok(frl_pd_create(a.device, &other));
	ok(frl_ah_create(a.pd, &attr, &ah));
	ok(frl_ah_create(other, &attr, &foreign));
	refused(frl_qp_endpoint(qp, &endpoint), -EINVAL, "Q_Key");
	sge = (struct frl_sge){ a.memory, LENGTH, frl_mr_lkey(a.mr) };
	wr = datagram(&sge, NULL, 5);
	refused(frl_post_send(qp, &wr, 1, NULL), -EINVAL, "address handle");
	wr = datagram(&sge, foreign, 5);
	refused(frl_post_send(qp, &wr, 1, NULL), -EINVAL, "protection domain");
	wr = datagram(&sge, ah, 0);
	refused(frl_post_send(qp, &wr, 1, NULL), -EINVAL, "remote_qpn");
	wr = datagram(&sge, ah, 5);
	wr.opcode = FRL_WR_RDMA_WRITE;
	refused(frl_post_send(qp, &wr, 1, NULL), -EINVAL, "opcode");
	wr.opcode = FRL_WR_SEND;
	sge.length = device.path_mtu + 1;
	refused(frl_post_send(qp, &wr, 1, NULL), -EINVAL, "MTU");
	frl_ah_destroy(foreign);
	frl_ah_destroy(ah);
	ok(frl_pd_destroy(other));
	frl_qp_destroy(qp);
}
END_TEST

/* Bit 31 of a request's Q_Key stands for the queue pair's own Q_Key. The second time with
 * counters. */
START_LOOP_TEST(qkeys, 2)
{
	struct frl_ah_attr attr;
	struct frl_qp *from, *to;
	struct frl_stats stats;
	struct frl_send_wr wr;
	struct frl_sge sge;
	struct frl_ah *ah;
	struct frl_wc wc;

	SOFTWARE_ONLY_IF(_i, "what hardware drops it does not count by reason");
	open_end(&a, false, FRL_PROGRESS_INLINE);
	b = (struct end){ 0 };
	from = add_datagram_qp(&a, FRL_QPT_UD, QKEY + 1);
	to = add_datagram_qp(&a, FRL_QPT_UD, QKEY);
	attr = way_to(&a, 1);
	ok(frl_ah_create(a.pd, &attr, &ah));
	post_recv_on(&a, to, 2, 20000);
	sge = (struct frl_sge){ a.memory, LENGTH, frl_mr_lkey(a.mr) };
	wr = datagram(&sge, ah, frl_qp_num(to));
	wr.remote_qkey = OWN_QKEY;
	post_on(from, &wr);
	next_wc(&a, 1, FRL_WC_SUCCESS);
	for (int i = 0; i < 10; i++)
		frl_progress(a.device);
	ck_assert_int_eq(frl_poll_cq(a.cq, 1, &wc), 0);
	if (_i) {
		frl_device_stats(a.device, &stats);
		ck_assert_uint_eq(stats.drop_bad_qkey, 1);
	}
	wr.remote_qkey = QKEY;
	post_on(from, &wr);
	next_wc(&a, 1, FRL_WC_SUCCESS);
	next_wc(&a, 2, FRL_WC_SUCCESS);
	frl_ah_destroy(ah);
	frl_qp_destroy(from);
	frl_qp_destroy(to);
}
END_TEST

START_TEST(management)
{
	struct frl_qp_config config = { .type = FRL_QPT_GSI, .max_send_wr = 1 };
	struct frl_qp *mine, *theirs, *third = NULL;
	struct frl_ah_attr attr;
	struct frl_send_wr wr;
	struct frl_sge sge;
	struct frl_ah *ah;
	struct frl_wc wc;

	SOFTWARE_ONLY("the GSI queue pair of hardware is the kernel's");
	start(false, FRL_PROGRESS_INLINE);
	mine = add_datagram_qp(&a, FRL_QPT_GSI, 0);
	theirs = add_datagram_qp(&b, FRL_QPT_GSI, 0);
	ck_assert_uint_eq(frl_qp_num(mine), 1);
	config.send_cq = config.recv_cq = a.cq;
	refused(frl_qp_create(a.pd, &config, &third), -EBUSY, "GSI");
	ck_assert_ptr_null(third);
	attr = way_to(&b, 1);
	ok(frl_ah_create(a.pd, &attr, &ah));
	post_recv_on(&b, theirs, 2, 0);
	sge = (struct frl_sge){ a.memory, 256, frl_mr_lkey(a.mr) };
	wr = datagram(&sge, ah, 1);
	wr.opcode = FRL_WR_SEND;
	wr.remote_qkey = 0x80010000;
	post_on(mine, &wr);
	next_wc(&a, 1, FRL_WC_SUCCESS);
	wc = next_wc(&b, 2, FRL_WC_SUCCESS);
	ck_assert_uint_eq(wc.src_qp, 1);
	ck_assert_uint_eq(wc.byte_len, FRL_GRH_SIZE + 256);
	ck_assert_int_eq(memcmp(b.memory + FRL_GRH_SIZE, a.memory, 256), 0);
	frl_ah_destroy(ah);
	frl_qp_destroy(mine);
	ok(frl_qp_create(a.pd, &config, &third));
	frl_qp_destroy(third);
	frl_qp_destroy(theirs);
}
END_TEST

/* Every member receives it: two of b, and one of the sender's device. */
START_LOOP_TEST(multicast, 2)
{
	const struct frl_ip own = own_group(_i), *group = &own;
	struct frl_qp *from, *first, *second, *near;
	struct frl_ah_attr attr, back;
	struct frl_send_wr wr;
	struct frl_sge sge;
	struct frl_ah *ah;
	struct frl_wc wc;

	start(false, FRL_PROGRESS_INLINE);
	from = add_datagram_qp(&a, FRL_QPT_UD, QKEY);
	near = add_datagram_qp(&a, FRL_QPT_UD, QKEY);
	first = add_datagram_qp(&b, FRL_QPT_UD, QKEY);
	second = add_datagram_qp(&b, FRL_QPT_UD, QKEY);
	attr = way_to(&b, 1);
	refused(frl_attach_mcast(a.qp, group), -EINVAL, "group");
	refused(frl_attach_mcast(first, &attr.dgid), -EINVAL, "group");
	refused(frl_detach_mcast(first, group), -EINVAL, "attached");
	ok(frl_attach_mcast(first, group));
	ok(frl_attach_mcast(second, group));
	ok(frl_attach_mcast(near, group));
	attr = (struct frl_ah_attr){ .dgid = *group, .sgid_index = !_i };
	ok(frl_ah_create(a.pd, &attr, &ah));
	post_recv_on(&b, first, 2, 0);
	post_recv_on(&b, second, 3, 10000);
	post_recv_on(&a, near, 4, 10000);
	sge = (struct frl_sge){ a.memory, LENGTH, frl_mr_lkey(a.mr) };
	wr = datagram(&sge, ah, MULTICAST_QPN);
	wr.flags = 0;
	post_on(from, &wr);
	next_wc(&a, 4, FRL_WC_SUCCESS);
	wc = next_wc(&b, 2, FRL_WC_SUCCESS);
	next_wc(&b, 3, FRL_WC_SUCCESS);
	ck_assert_int_eq(memcmp(a.memory, b.memory + FRL_GRH_SIZE, LENGTH), 0);
	ck_assert_int_eq(memcmp(a.memory, b.memory + 10000 + FRL_GRH_SIZE, LENGTH), 0);
	refused(frl_ah_attr_from_wc(b.device, &wc, b.memory, &back), -EINVAL, "multicast");
	ok(frl_detach_mcast(first, group));
	post_recv_on(&b, first, 5, 0);
	post_recv_on(&b, second, 6, 10000);
	post_on(from, &wr);
	next_wc(&b, 6, FRL_WC_SUCCESS);
	ck_assert_int_eq(frl_poll_cq(b.cq, 1, &wc), 0);
	frl_ah_destroy(ah);
	frl_qp_destroy(from);
	frl_qp_destroy(near);
	frl_qp_destroy(first);
	frl_qp_destroy(second);
}
END_TEST

/* The header before a datagram comes from the network, or from nowhere. */
START_TEST(bad_headers)
{
	struct frl_wc wc = { .flags = FRL_WC_GRH };
	struct frl_ah_attr attr = { .sl = 99 };
	uint8_t grh[FRL_GRH_SIZE] = { 0 };
	struct frl_gid own;
	uint32_t sum = 0;
	uint8_t *ip = grh + 20;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	refused(frl_ah_attr_from_wc(a.device, &wc, grh, &attr), -EINVAL, "IP header");
	ok(frl_query_gid(a.device, 1, &own));
	memcpy(ip, (uint8_t[]){ 0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 2, 3 }, 16);
	memcpy(ip + 16, own.ip.bytes + 12, 4);
	/* A wrong checksum, and a missing one, as rxe sends to itself. */
	ip[11] = 1;
	refused(frl_ah_attr_from_wc(a.device, &wc, grh, &attr), -EINVAL, "IP header");
	ip[11] = 0;
	ok(frl_ah_attr_from_wc(a.device, &wc, grh, &attr));
	attr.sl = 99;
	for (int i = 0; i < 20; i += 2)
		sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	ip[10] = (uint8_t)(~sum >> 8);
	ip[11] = (uint8_t)~sum;
	wc.flags = 0;
	refused(frl_ah_attr_from_wc(a.device, &wc, grh, &attr), -EINVAL, "FRL_WC_GRH");
	wc.flags = FRL_WC_GRH;
	wc.vlan = 5;
	/* Hardware may not report it, so it is no reason there. */
	if (test_port()) {
		ok(frl_ah_attr_from_wc(a.device, &wc, grh, &attr));
	} else {
		refused(frl_ah_attr_from_wc(a.device, &wc, grh, &attr), -EINVAL, "no address");
		ck_assert_uint_eq(attr.sl, 99);
	}
	wc.vlan = 0;
	wc.sl = 3;
	ok(frl_ah_attr_from_wc(a.device, &wc, grh, &attr));
	ck_assert(attr.sl == 3 && attr.sgid_index == 1 && attr.dgid.bytes[12] == 10 &&
		attr.dgid.bytes[10] == 0xff);

	/* With hardware nobody writes the bytes before it. */
	memset(grh, 0x65, 20);
	ok(frl_ah_attr_from_wc(a.device, &wc, grh, &attr));
	ck_assert(attr.sgid_index == 1 && attr.dgid.bytes[12] == 10);

	ok(frl_query_gid(a.device, 0, &own));
	memset(grh, 0, sizeof(grh));
	memcpy(grh, (uint8_t[]){ 0x66, 0xb1, 0x23, 0x45 }, 4);
	grh[8] = 0xfe;
	grh[9] = 0x80;
	memcpy(grh + 24, own.ip.bytes, sizeof(own.ip.bytes));
	ok(frl_ah_attr_from_wc(a.device, &wc, grh, &attr));
	ck_assert_uint_eq(attr.sgid_index, 0);
	ck_assert_uint_eq(attr.traffic_class, 0x68);
	ck_assert_uint_eq(attr.flow_label, 0x12345);
	ck_assert_uint_eq(attr.dgid.bytes[1], 0x80);
	grh[39] ^= 1;
	refused(frl_ah_attr_from_wc(a.device, &wc, grh, &attr), -EINVAL, "no address");
}
END_TEST

TEST_MAIN(api_datagrams)
{
	return run_rows(all_tests(NULL, close_ends));
}
