/* SPDX-License-Identifier: BSD-3-Clause */
/* The drop-in libibverbs: the list of devices, contexts, attributes, ports and GIDs. */
#include "tests/unit/dropin/ibverbs_fixture.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ibv_context *context;
static bool is_closed;

static void open_one(void)
{
	context = open_context();
}

static void close_one(void)
{
	ok(ibv_close_device(context));
}

/* A thread that is to be cancelled closes the last context: no lock stays locked. */
static void *close_while_cancelled(void *arg)
{
	struct ibv_context *mine = arg;
	int rc;

	pthread_cancel(pthread_self());
	rc = ibv_close_device(mine);
	is_closed = rc == 0;
	pthread_testcancel();
	return NULL;
}

START_TEST_IF(close_is_cancelled, CAN_CANCEL)
{
	pthread_t thread;
	void *result;

	open_one();
	ok(pthread_create(&thread, NULL, close_while_cancelled, context));
	ok(pthread_join(thread, &result));
	ck_assert_ptr_eq(result, PTHREAD_CANCELED);
	ck_assert(is_closed);
	open_one();
	close_one();
}
END_TEST

/* ---- the list */

START_TEST(device_list)
{
	int n = -1, again = -1;
	struct ibv_device **list = ibv_get_device_list(&n), **other = ibv_get_device_list(&again);

	made(list);
	made(other);
	ck_assert_int_eq(n, 1);
	ck_assert_int_eq(again, 1);
	ck_assert_ptr_ne(list, other);
	ck_assert_ptr_eq(list[0], other[0]);
	ck_assert_ptr_null(list[1]);
	ck_assert_str_eq(ibv_get_device_name(list[0]), "frl0");
	ck_assert_str_eq(list[0]->dev_name, "uverbs_frl0");
	ck_assert_int_eq(list[0]->node_type, IBV_NODE_CA);
	ck_assert_int_eq(list[0]->transport_type, IBV_TRANSPORT_IB);
	ck_assert_int_eq(ibv_get_device_index(list[0]), 0);
	ck_assert_uint_ne(ibv_get_device_guid(list[0]), 0);
	ck_assert_uint_eq(ibv_get_device_guid(list[0]), ibv_get_device_guid(other[0]));
	ibv_free_device_list(list);
	ibv_free_device_list(other);
}
END_TEST

static void check_list(const char *wanted, int n)
{
	struct ibv_device **list;
	int found = -1;

	setenv("FRL_VERBS_DEVICES", wanted, 1);
	errno = 0;
	list = ibv_get_device_list(&found);
	if (n < 0) {
		ck_assert_ptr_null(list);
		ck_assert_int_eq(errno, -n);
		ck_assert_int_eq(found, 0);
		return;
	}
	made(list);
	ck_assert_int_eq(found, n);
	for (int i = 0; i < n; i++) {
		char name[16];

		snprintf(name, sizeof(name), "frl%d", i);
		ck_assert_str_eq(ibv_get_device_name(list[i]), name);
		ck_assert_int_eq(ibv_get_device_index(list[i]), i);
		for (int k = 0; k < i; k++)
			ck_assert_uint_ne(
				ibv_get_device_guid(list[i]), ibv_get_device_guid(list[k]));
	}
	ck_assert_ptr_null(list[n]);
	ibv_free_device_list(list);
}

static const struct {
	const char *wanted;
	int n; /* devices; negative: an errno */
} settings[] = {
	{ "local;packet:eth7=10.1.1.1/24;fabric:roce;local", 4 },
	{ "local;", 1 },
	{ ";", 0 },
	{ "nothing", -EINVAL },
	{ "packet:eth7", -EINVAL },
	{ "packet:=10.1.1.1/24", -EINVAL },
	{ "packet:eth7,mode=shared=10.1.1.1/24", 1 },
	{ "fabric:", -EINVAL },
	{ "local;local;local;local;local;local;local;local;local;local;local;local;local;local;"
	  "local;local;local",
		-EINVAL },
};

/* The list is read once: each row has a process of its own. */
START_LOOP_TEST(setting, ROWS(settings))
{
	check_list(settings[_i].wanted, settings[_i].n);
}
END_TEST

/* ---- contexts */

START_TEST(context_members)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	open_one();
	ck_assert_ptr_eq(context->device, list[0]);
	ck_assert_int_eq(context->num_comp_vectors, 1);
	ck_assert_int_ge(fcntl(context->cmd_fd, F_GETFD), 0);
	ck_assert_int_ge(fcntl(context->async_fd, F_GETFD), 0);
	ck_assert(fcntl(context->async_fd, F_GETFD) & FD_CLOEXEC);
	close_one();
	ibv_free_device_list(list);
}
END_TEST

/* Contexts come and go; those of one device have one address. */
START_TEST(several_contexts)
{
	struct ibv_context *other = open_context();
	union ibv_gid one, two;

	open_one();
	ck_assert_ptr_ne(context, other);
	ok(ibv_query_gid(context, 1, 1, &one));
	ok(ibv_query_gid(other, 1, 1, &two));
	ck_assert_mem_eq(one.raw, two.raw, 16);
	close_one();
	ok(ibv_query_gid(other, 1, 1, &two));
	ck_assert_mem_eq(one.raw, two.raw, 16);
	ok(ibv_close_device(other));
	for (int i = 0; i < 20; i++) {
		open_one();
		close_one();
	}
}
END_TEST

/* The queue pair of a closed context fails: the event goes nowhere. Later contexts work. */
START_TEST(closed_with_objects)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	start(&(struct wants){ 0 });
	sge = sge_of(&a, 0, 8);
	wr = request(1, IBV_WR_RDMA_WRITE, &sge);
	aim(&wr, &b, 0);
	wr.wr.rdma.rkey ^= 0x100;
	ok(ibv_close_device(b.context));
	post(&a, &wr);
	expect(&a, 1, IBV_WC_REM_ACCESS_ERR);
	b.context = open_context();
	expect_no_event(a.context);
	expect_no_event(b.context);
	ok(ibv_close_device(b.context));
}
END_TEST

/* ---- attributes */

static void check_limits(const struct ibv_device_attr *attr)
{
	ck_assert_uint_eq(attr->node_guid, ibv_get_device_guid(context->device));
	ck_assert_uint_eq(attr->sys_image_guid, attr->node_guid);
	ck_assert_uint_eq(attr->phys_port_cnt, 1);
	ck_assert_int_ge(attr->max_qp, 1000);
	ck_assert_int_ge(attr->max_qp_wr, 1024);
	ck_assert_int_ge(attr->max_sge, 5);
	ck_assert_int_ge(attr->max_cqe, 1024);
	ck_assert_int_ge(attr->max_qp_rd_atom, 16);
	ck_assert_int_ge(attr->max_srq_wr, 1024);
	ck_assert_uint_eq(attr->max_pkeys, 1);
	ck_assert_int_eq(attr->atomic_cap, IBV_ATOMIC_HCA);
	ck_assert_uint_ge(strlen(attr->fw_ver), 1);
	ck_assert(attr->device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B);
	ck_assert(!(attr->device_cap_flags &
		(IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MANAGED_FLOW_STEERING |
			IBV_DEVICE_SRQ_RESIZE | IBV_DEVICE_AUTO_PATH_MIG)));
}

START_TEST(device_attributes)
{
	struct ibv_device_attr attr;

	open_one();
	memset(&attr, 0xee, sizeof(attr));
	ok(ibv_query_device(context, &attr));
	check_limits(&attr);
	close_one();
}
END_TEST

/* Programs of other versions know fewer members, or more. */
START_TEST(extended_attributes)
{
	struct ibv_query_device_ex_input input = { 0 };
	struct {
		struct ibv_device_attr_ex attr;
		uint8_t more[64];
		uint8_t after[8];
	} all;
	struct verbs_context *verbs;

	open_one();
	verbs = verbs_get_ctx(context);
	made(verbs);
	memset(&all, 0xee, sizeof(all));
	ok(ibv_query_device_ex(context, &input, &all.attr));
	check_limits(&all.attr.orig_attr);
	ck_assert_uint_eq(all.attr.phys_port_cnt_ex, 1);
	ck_assert_uint_eq(all.attr.odp_caps.general_caps, 0);
	ck_assert_uint_eq(all.attr.max_dm_size, 0);
	ck_assert_uint_eq(all.more[0], 0xee);
	memset(&all, 0xee, sizeof(all));
	ok(verbs->query_device_ex(context, NULL, &all.attr, sizeof(all.attr) + 64));
	ck_assert_uint_eq(all.more[63], 0);
	ck_assert_uint_eq(all.after[0], 0xee);
	memset(&all, 0xee, sizeof(all));
	ok(verbs->query_device_ex(context, &input, &all.attr, sizeof(struct ibv_device_attr)));
	check_limits(&all.attr.orig_attr);
	ck_assert_uint_eq(all.attr.comp_mask, 0xeeeeeeee);
	refused(EINVAL, verbs->query_device_ex(context, &input, &all.attr, 8));
	input.comp_mask = 1;
	refused(EINVAL, verbs->query_device_ex(context, &input, &all.attr, sizeof(all.attr)));
	close_one();
}
END_TEST

static void check_port(const struct ibv_port_attr *attr)
{
	ck_assert_int_eq(attr->state, IBV_PORT_ACTIVE);
	ck_assert_int_eq(attr->max_mtu, IBV_MTU_4096);
	ck_assert_int_eq(attr->active_mtu, IBV_MTU_4096);
	ck_assert_int_ge(attr->gid_tbl_len, 2);
	ck_assert_uint_eq(attr->pkey_tbl_len, 1);
	ck_assert_uint_ge(attr->max_msg_sz, 1u << 30);
	ck_assert_uint_eq(attr->lid, 0);
	ck_assert_uint_eq(attr->phys_state, 5);
	ck_assert_uint_eq(attr->link_layer, IBV_LINK_LAYER_ETHERNET);
	ck_assert_uint_eq(attr->active_width, 2);
	ck_assert_uint_eq(attr->active_speed, 32);
	ck_assert(attr->flags & IBV_QPF_GRH_REQUIRED);
}

typedef int query_port_fn(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr);

/* The inline function goes by the context. The symbol knows fewer members. */
START_TEST(ports)
{
	struct {
		struct ibv_port_attr attr;
		uint8_t after[8];
	} all;
	query_port_fn *symbol;

	open_one();
	*(void **)&symbol = dlsym(RTLD_DEFAULT, "ibv_query_port");
	made(symbol);
	memset(&all, 0xee, sizeof(all));
	ok(ibv_query_port(context, 1, &all.attr));
	check_port(&all.attr);
	ck_assert_uint_eq(all.attr.port_cap_flags2, 0);
	ck_assert_uint_eq(all.after[0], 0xee);
	memset(&all, 0xee, sizeof(all));
	ok(symbol(context, 1, &all.attr));
	check_port(&all.attr);
	ck_assert_uint_eq(all.attr.port_cap_flags2, 0xeeee);
	refused(EINVAL, ibv_query_port(context, 0, &all.attr));
	refused(EINVAL, ibv_query_port(context, 2, &all.attr));
	refused(EINVAL, symbol(context, 2, &all.attr));
	close_one();
}
END_TEST

START_TEST(partition_keys)
{
	__be16 pkey = 0;

	open_one();
	ok(ibv_query_pkey(context, 1, 0, &pkey));
	ck_assert_uint_eq(pkey, 0xffff);
	ck_assert_int_eq(ibv_get_pkey_index(context, 1, htobe16(0xffff)), 0);
	refused_minus1(EINVAL, ibv_query_pkey(context, 1, 1, &pkey));
	refused_minus1(EINVAL, ibv_query_pkey(context, 2, 0, &pkey));
	refused_minus1(EINVAL, ibv_get_pkey_index(context, 1, htobe16(0x1234)));
	close_one();
}
END_TEST

/* ---- GIDs */

/* Programs that look for IPv4 find the link-local GID first, and the IPv4 one behind it. */
START_TEST(gids)
{
	struct ibv_gid_entry entry;
	struct ibv_port_attr port;
	union ibv_gid gid;

	open_one();
	ok(ibv_query_port(context, 1, &port));
	ok(ibv_query_gid(context, 1, 0, &gid));
	ck_assert_uint_eq(gid.raw[0], 0xfe);
	ck_assert_uint_eq(gid.raw[1], 0x80);
	ok(ibv_query_gid(context, 1, 1, &gid));
	ck_assert_uint_eq(gid.global.subnet_prefix, 0);
	ck_assert_uint_eq(gid.raw[10] & gid.raw[11], 0xff);
	ck_assert_uint_eq(gid.raw[12], 169);
	for (uint32_t i = 0; i < (uint32_t)port.gid_tbl_len; i++) {
		memset(&entry, 0xee, sizeof(entry));
		ok(ibv_query_gid_ex(context, 1, i, &entry, 0));
		ok(ibv_query_gid(context, 1, (int)i, &gid));
		ck_assert_mem_eq(entry.gid.raw, gid.raw, 16);
		ck_assert_uint_eq(entry.gid_index, i);
		ck_assert_uint_eq(entry.port_num, 1);
		ck_assert_uint_eq(entry.gid_type, IBV_GID_TYPE_ROCE_V2);
		ck_assert_uint_eq(entry.ndev_ifindex, if_nametoindex("lo"));
	}
	refused_minus1(EINVAL, ibv_query_gid(context, 1, -1, &gid));
	refused_minus1(EINVAL, ibv_query_gid(context, 2, 0, &gid));
	ck_assert_int_eq(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), -1);
	refused(EINVAL, ibv_query_gid_ex(context, 2, 0, &entry, 0));
	refused(EINVAL, ibv_query_gid_ex(context, 1, 0, &entry, 1));
	ck_assert_int_gt(ibv_query_gid_ex(context, 1, (uint32_t)port.gid_tbl_len, &entry, 0), 0);
	close_one();
}
END_TEST

START_TEST(gid_table)
{
	struct ibv_gid_entry entries[16], one;
	ssize_t n;

	open_one();
	memset(entries, 0xee, sizeof(entries));
	n = ibv_query_gid_table(context, entries, ROWS(entries), 0);
	ck_assert_int_ge(n, 2);
	for (uint32_t i = 0; i < n; i++) {
		ok(ibv_query_gid_ex(context, 1, i, &one, 0));
		ck_assert_mem_eq(&entries[i], &one, sizeof(one));
	}
	ck_assert_uint_eq(entries[n].gid_index, 0xeeeeeeee);
	ck_assert_int_eq(ibv_query_gid_table(context, entries, (size_t)n - 1, 0), -EINVAL);
	ck_assert_int_eq(ibv_query_gid_table(context, entries, ROWS(entries), 1), -EINVAL);
	close_one();
}
END_TEST

typedef int query_type_fn(struct ibv_context *ctx, uint8_t port, unsigned index, int *ret_type);

/* ibv_devinfo uses a function that no header declares. */
START_TEST(gid_type)
{
	enum { SYSFS_ROCE_V2 = 1 };
	query_type_fn *query;
	int type = -1;

	open_one();
	*(void **)&query = dlvsym(RTLD_DEFAULT, "ibv_query_gid_type", "IBVERBS_PRIVATE_34");
	made(query);
	ok(query(context, 1, 0, &type));
	ck_assert_int_eq(type, SYSFS_ROCE_V2);
	refused_minus1(EINVAL, query(context, 2, 0, &type));
	close_one();
}
END_TEST

/* The list of devices is read once a process. */
TEST_MAIN(ibverbs_devices)
{
	return run_suite_forked(all_tests(NULL, NULL));
}
