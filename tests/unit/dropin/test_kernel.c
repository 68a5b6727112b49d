/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies of the kernel's structures, and files of sysfs. */
#include <check.h>
#include <errno.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>
#include <stdio.h>
#include <string.h>

#include "dropin/ibverbs/newer.h"

#include "tests/fixtures/program.h"

static void fill(uint8_t *bytes, size_t n, uint8_t first)
{
	for (size_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)(first + i);
}

/* All values differ, so that a field that was mistaken for another is found. */
static struct ib_uverbs_ah_attr some_ah(uint8_t first)
{
	struct ib_uverbs_ah_attr ah = {
		.grh = {
			.flow_label = 0xf0000u + first,
			.sgid_index = (uint8_t)(first + 16),
			.hop_limit = (uint8_t)(first + 17),
			.traffic_class = (uint8_t)(first + 18),
		},
		.dlid = (uint16_t)(0x100 + first),
		.sl = (uint8_t)(first + 19),
		.src_path_bits = (uint8_t)(first + 20),
		.static_rate = (uint8_t)(first + 21),
		.is_global = 1,
		.port_num = (uint8_t)(first + 22),
	};

	fill(ah.grh.dgid, sizeof(ah.grh.dgid), first);
	return ah;
}

static void check_ah(const struct ibv_ah_attr *ah, const struct ib_uverbs_ah_attr *wanted)
{
	ck_assert_mem_eq(ah->grh.dgid.raw, wanted->grh.dgid, sizeof(wanted->grh.dgid));
	ck_assert_uint_eq(ah->grh.flow_label, wanted->grh.flow_label);
	ck_assert_uint_eq(ah->grh.sgid_index, wanted->grh.sgid_index);
	ck_assert_uint_eq(ah->grh.hop_limit, wanted->grh.hop_limit);
	ck_assert_uint_eq(ah->grh.traffic_class, wanted->grh.traffic_class);
	ck_assert_uint_eq(ah->dlid, wanted->dlid);
	ck_assert_uint_eq(ah->sl, wanted->sl);
	ck_assert_uint_eq(ah->src_path_bits, wanted->src_path_bits);
	ck_assert_uint_eq(ah->static_rate, wanted->static_rate);
	ck_assert_uint_eq(ah->is_global, wanted->is_global);
	ck_assert_uint_eq(ah->port_num, wanted->port_num);
}

START_TEST(address_handles)
{
	struct ib_uverbs_ah_attr from = some_ah(1);
	struct ibv_ah_attr to;

	ibv_copy_ah_attr_from_kern(&to, &from);
	check_ah(&to, &from);
}
END_TEST

START_TEST(queue_pairs)
{
	struct ib_uverbs_qp_attr from = {
		.qp_state = IBV_QPS_ERR,
		.cur_qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.path_mig_state = IBV_MIG_ARMED,
		.qkey = 101,
		.rq_psn = 102,
		.sq_psn = 103,
		.dest_qp_num = 104,
		.qp_access_flags = 105,
		.ah_attr = some_ah(1),
		.alt_ah_attr = some_ah(60),
		.max_send_wr = 106,
		.max_recv_wr = 107,
		.max_send_sge = 108,
		.max_recv_sge = 109,
		.max_inline_data = 110,
		.pkey_index = 111,
		.alt_pkey_index = 112,
		.en_sqd_async_notify = 113,
		.sq_draining = 114,
		.max_rd_atomic = 115,
		.max_dest_rd_atomic = 116,
		.min_rnr_timer = 117,
		.port_num = 118,
		.timeout = 119,
		.retry_cnt = 120,
		.rnr_retry = 121,
		.alt_port_num = 122,
		.alt_timeout = 123,
	};
	struct ibv_qp_attr to = { .qp_state = IBV_QPS_INIT, .rate_limit = 77 };

	ibv_copy_qp_attr_from_kern(&to, &from);
	ck_assert_int_eq(to.qp_state, IBV_QPS_INIT);
	ck_assert_int_eq(to.cur_qp_state, IBV_QPS_RTR);
	ck_assert_int_eq(to.path_mtu, IBV_MTU_4096);
	ck_assert_int_eq(to.path_mig_state, IBV_MIG_ARMED);
	check_ah(&to.ah_attr, &from.ah_attr);
	check_ah(&to.alt_ah_attr, &from.alt_ah_attr);
	ck_assert_uint_eq(to.qkey, 101);
	ck_assert_uint_eq(to.rq_psn, 102);
	ck_assert_uint_eq(to.sq_psn, 103);
	ck_assert_uint_eq(to.dest_qp_num, 104);
	ck_assert_uint_eq(to.qp_access_flags, 105);
	ck_assert_uint_eq(to.cap.max_send_wr, 106);
	ck_assert_uint_eq(to.cap.max_recv_wr, 107);
	ck_assert_uint_eq(to.cap.max_send_sge, 108);
	ck_assert_uint_eq(to.cap.max_recv_sge, 109);
	ck_assert_uint_eq(to.cap.max_inline_data, 110);
	ck_assert_uint_eq(to.pkey_index, 111);
	ck_assert_uint_eq(to.alt_pkey_index, 112);
	ck_assert_uint_eq(to.en_sqd_async_notify, 113);
	ck_assert_uint_eq(to.sq_draining, 114);
	ck_assert_uint_eq(to.max_rd_atomic, 115);
	ck_assert_uint_eq(to.max_dest_rd_atomic, 116);
	ck_assert_uint_eq(to.min_rnr_timer, 117);
	ck_assert_uint_eq(to.port_num, 118);
	ck_assert_uint_eq(to.timeout, 119);
	ck_assert_uint_eq(to.retry_cnt, 120);
	ck_assert_uint_eq(to.rnr_retry, 121);
	ck_assert_uint_eq(to.alt_port_num, 122);
	ck_assert_uint_eq(to.alt_timeout, 123);
	ck_assert_uint_eq(to.rate_limit, 77);
}
END_TEST

START_TEST(path_records)
{
	struct ib_user_path_rec from = {
		.dlid = 301,
		.slid = 302,
		.raw_traffic = 1,
		.flow_label = 0x12345,
		.reversible = 2,
		.mtu = 3,
		.pkey = 304,
		.hop_limit = 5,
		.traffic_class = 6,
		.numb_path = 7,
		.sl = 8,
		.mtu_selector = 9,
		.rate_selector = 10,
		.rate = 11,
		.packet_life_time_selector = 12,
		.packet_life_time = 13,
		.preference = 14,
	};
	struct ib_user_path_rec back;
	struct ibv_sa_path_rec to;

	fill(from.dgid, sizeof(from.dgid), 20);
	fill(from.sgid, sizeof(from.sgid), 40);
	ibv_copy_path_rec_from_kern(&to, &from);
	ck_assert_mem_eq(to.dgid.raw, from.dgid, sizeof(from.dgid));
	ck_assert_mem_eq(to.sgid.raw, from.sgid, sizeof(from.sgid));
	ck_assert_uint_eq(to.dlid, 301);
	ck_assert_uint_eq(to.slid, 302);
	ck_assert_int_eq(to.raw_traffic, 1);
	ck_assert_uint_eq(to.flow_label, 0x12345);
	ck_assert_int_eq(to.reversible, 2);
	ck_assert_uint_eq(to.mtu, 3);
	ck_assert_uint_eq(to.pkey, 304);
	ck_assert_uint_eq(to.hop_limit, 5);
	ck_assert_uint_eq(to.traffic_class, 6);
	ck_assert_uint_eq(to.numb_path, 7);
	ck_assert_uint_eq(to.sl, 8);
	ck_assert_uint_eq(to.mtu_selector, 9);
	ck_assert_uint_eq(to.rate_selector, 10);
	ck_assert_uint_eq(to.rate, 11);
	ck_assert_uint_eq(to.packet_life_time_selector, 12);
	ck_assert_uint_eq(to.packet_life_time, 13);
	ck_assert_uint_eq(to.preference, 14);

	memset(&back, 0xff, sizeof(back));
	ibv_copy_path_rec_to_kern(&back, &to);
	ck_assert_mem_eq(&back, &from, sizeof(from));
}
END_TEST

/* `size` is the size of the buffer. */
static const struct file_row {
	const char *text;
	size_t size;
	int result;
	int err;
	const char *read;
} file_rows[] = {
	{ "mlx5_0\n", 20, 6, 0, "mlx5_0" },
	{ "mlx5_0", 20, 6, 0, "mlx5_0" },
	{ "mlx5_0\n", 7, 6, 0, "mlx5_0" },
	{ "mlx5_0", 7, 6, 0, "mlx5_0" },
	{ "mlx5_0\n", 6, -1, EOVERFLOW, NULL },
	{ "mlx5_0", 6, -1, EOVERFLOW, NULL },
	{ "mlx5_0", 0, -1, EOVERFLOW, NULL },
	{ "\n", 8, 0, 0, "" },
	{ "", 8, 0, 0, "" },
	{ NULL, 8, -1, ENOENT, NULL },
};

START_LOOP_TEST(files, ROWS(file_rows))
{
	const struct file_row *row = &file_rows[_i];
	char path[256], name[32], buffer[32];
	FILE *file;

	memset(buffer, '.', sizeof(buffer));
	snprintf(name, sizeof(name), "file%d", _i);
	snprintf(path, sizeof(path), "%s/%s", test_folder(), name);
	if (row->text) {
		file = fopen(path, "w");
		ck_assert_ptr_nonnull(file);
		ck_assert_int_ge(fputs(row->text, file), 0);
		fclose(file);
	}
	errno = 0;
	ck_assert_int_eq(ibv_read_sysfs_file(test_folder(), name, buffer, row->size), row->result);
	ck_assert_int_eq(errno, row->err);
	if (row->read)
		ck_assert_str_eq(buffer, row->read);
	ck_assert_int_eq(buffer[row->size], '.');
}
END_TEST

START_TEST(path_is_too_long)
{
	char name[8192], buffer[8];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	errno = 0;
	ck_assert_int_eq(ibv_read_sysfs_file("/sys", name, buffer, sizeof(buffer)), -1);
	ck_assert_int_eq(errno, ENAMETOOLONG);
	ck_assert_str_eq(ibv_get_sysfs_path(), "/sys");
}
END_TEST

START_TEST(children)
{
	char bytes[16];

	ck_assert_int_eq(ibv_fork_init(), 0);
	ck_assert_int_eq(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
	ck_assert_int_eq(ibv_dontfork_range(bytes, sizeof(bytes)), 0);
	ck_assert_int_eq(ibv_dofork_range(bytes, sizeof(bytes)), 0);
}
END_TEST

TEST_FILE(kernel)
