/* SPDX-License-Identifier: BSD-3-Clause */
/* Hardware devices found, listed and opened: the port, its address, and reasons for a failure. */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "drivers/verbs/internal.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/verbs_fixture.h"

static void plug(struct fake_verbs_device *device)
{
	fake_verbs_reset();
	fake_verbs_add(device);
}

/* The only port of the list. */
static struct frl_device_info only(void)
{
	struct frl_device_info *infos, info;
	size_t n;

	verbs_ok(frl_device_list(&infos, &n));
	ck_assert_uint_eq(n, 1);
	info = infos[0];
	frl_device_list_free(infos);
	ck_assert_str_eq(fake_verbs_leaks(), "");
	return info;
}

static void unusable(const char *word)
{
	struct frl_device_info info = only();
	struct frl_device *device;

	ck_assert(!info.usable);
	ck_assert_msg(strstr(info.reason, word), "'%s' does not name '%s'", info.reason, word);
	ck_assert_int_lt(verbs_open("verbs:one", &device), 0);
	ck_assert_str_eq(frl_last_error(), info.reason);
	ck_assert_int_lt(verbs_open("verbs", &device), 0);
	ck_assert_msg(strstr(frl_last_error(), word), "'%s'", frl_last_error());
	ck_assert_str_eq(fake_verbs_leaks(), "");
}

START_TEST(list_usable)
{
	struct fake_verbs_device device;
	struct frl_device_info info;

	fake_verbs_device_init(&device, "one", "10.0.0.1");
	device.ports[0].active_width = 2;
	device.ports[0].active_speed = 32;
	plug(&device);
	info = only();
	ck_assert_msg(info.usable, "%s", info.reason);
	ck_assert_str_eq(info.name, "verbs:one");
	ck_assert_str_eq(info.kind, "verbs");
	ck_assert_str_eq(info.reason, "");
	ck_assert_uint_eq(info.path_mtu, 4096);
	ck_assert_uint_eq(info.speed_mbps, 100000);
	ck_assert_int_eq(info.port_state, FRL_PORT_ACTIVE);
	ck_assert_uint_eq(info.ip.bytes[15], 1);
	frl_device_list_free(NULL);
}
END_TEST

/* No device is there, and the list gives the reason. */
static void nothing(const char *word)
{
	struct frl_device_info info = only();

	ck_assert_str_eq(info.name, "verbs");
	ck_assert(!info.usable);
	ck_assert_msg(strstr(info.reason, word), "'%s' does not name '%s'", info.reason, word);
}

/* As the kernel reports; also if it cannot be asked. */
START_LOOP_TEST(dma_bufs, 3)
{
	struct fake_verbs_device fake;
	struct frl_device_attr attr;
	struct frl_device *device;

	fake_verbs_device_init(&fake, "one", "10.0.0.1");
	fake.has_dmabuf = _i != 0;
	plug(&fake);
	ck_assert_int_eq(only().takes_dmabuf, _i != 0);
	if (_i == 2)
		fake_verbs_fail("ibv_alloc_pd", 1, ENOMEM);
	verbs_ok(verbs_open("verbs:one", &device));
	frl_device_query(device, &attr);
	ck_assert_int_eq(attr.takes_dmabuf, _i == 1);
	verbs_ok(frl_device_close(device));
}
END_TEST

START_TEST(list_none)
{
	struct frl_device_info *infos = NULL;
	struct frl_device *device;
	size_t n;

	fake_verbs_reset();
	nothing("rdma link add");
	verbs_refused(verbs_open("verbs", &device), -ENODEV, "rdma link add");
	fake_verbs_fail("ibv_get_device_list", 1, ENOSYS);
	nothing("modprobe ib_uverbs");
	fake_verbs_fail("ibv_get_device_list", 1, ENOSYS);
	verbs_refused(verbs_open("verbs", &device), -ENODEV, "modprobe ib_uverbs");
	fake_verbs_fail("ibv_get_device_list", 1, ELIBACC);
	snprintf(verbs_load_reason, sizeof(verbs_load_reason), "wrong ELF class");
	nothing("cannot be opened (wrong ELF class): install rdma-core");
	fake_verbs_fail("ibv_get_device_list", 1, ELIBBAD);
	snprintf(verbs_load_reason, sizeof(verbs_load_reason), "it has no f()");
	nothing("too old for Ferrule (it has no f()): install rdma-core 35");
	fake_verbs_fail("ibv_get_device_list", 1, ENOMEM);
	ck_assert_int_eq(frl_device_list(&infos, &n), -ENOMEM);
	ck_assert_str_eq(fake_verbs_leaks(), "");
}
END_TEST

START_TEST(list_infiniband)
{
	struct fake_verbs_device device;

	fake_verbs_device_init(&device, "one", "10.0.0.1");
	fake_verbs_port_infiniband(&device.ports[0], 3);
	plug(&device);
	unusable("InfiniBand");
}
END_TEST

START_TEST(list_down)
{
	struct fake_verbs_device device;

	fake_verbs_device_init(&device, "one", "10.0.0.1");
	device.ports[0].state = IBV_PORT_DOWN;
	plug(&device);
	ck_assert_int_eq(only().port_state, FRL_PORT_DOWN);
	unusable("ip link set");
}
END_TEST

START_TEST(list_without_v2)
{
	struct fake_verbs_device device;
	struct frl_device *opened;

	fake_verbs_device_init(&device, "one", "10.0.0.1");
	for (int i = 0; i < FAKE_VERBS_GIDS; i++)
		if (device.ports[0].gids[i].type == IBV_GID_TYPE_ROCE_V2)
			device.ports[0].gids[i].type = -1;
	plug(&device);
	/* The entries of this port: the other's do not count. */
	device.attr.phys_port_cnt = 2;
	device.ports[1].state = IBV_PORT_DOWN;
	device.ports[0].gids[2].type = -1;
	plug(&device);
	verbs_refused(verbs_open("verbs:one/1", &opened), -ENODEV, "none of 1 GIDs");
}
END_TEST

/* Its packets are of another kind. */
START_TEST(list_iwarp)
{
	struct fake_verbs_device device;

	fake_verbs_device_init(&device, "one", "10.0.0.1");
	device.transport_type = IBV_TRANSPORT_IWARP;
	device.node_type = IBV_NODE_RNIC;
	plug(&device);
	unusable("enable_roce");
	device.transport_type = IBV_TRANSPORT_UNSPECIFIED;
	plug(&device);
	unusable("does not support RoCE");
}
END_TEST

/* As many as eight bits count. */
START_TEST(list_many_ports)
{
	struct fake_verbs_device device;
	struct frl_device_info *infos;
	struct frl_device *opened;
	size_t n;

	fake_verbs_device_init(&device, "one", "10.0.0.1");
	device.attr.phys_port_cnt = 255;
	device.ports[0].state = device.ports[1].state = IBV_PORT_DOWN;
	plug(&device);
	verbs_ok(frl_device_list(&infos, &n));
	ck_assert_uint_eq(n, 255);
	ck_assert_str_eq(infos[254].name, "verbs:one/255");
	frl_device_list_free(infos);
	ck_assert_uint_eq(fake_verbs_calls("ibv_open_device"), 1);
	ck_assert_uint_le(fake_verbs_calls("ibv_query_port"), 2 * 255);
	verbs_refused(verbs_open("verbs", &opened), -ENODEV, "not active");
	verbs_refused(verbs_open("verbs:one/255", &opened), -ENETDOWN, "not active");
}
END_TEST

static const struct refusal {
	const char *function;
	int err;
	int rc;
	const char *word;
} refusals[] = {
	{ "ibv_open_device", ENOENT, -ENODEV, "--device=/dev/infiniband" },
	{ "ibv_open_device", EACCES, -EPERM, "group" },
	{ "ibv_open_device", EPERM, -EPERM, "group" },
	{ "ibv_open_device", ENOSYS, -ENODEV, "ABI" },
	{ "ibv_open_device", ENOMEM, -ENOMEM, "cannot open it" },
	{ "ibv_query_device_ex", EIO, -EIO, "its capabilities" },
	{ "ibv_query_port", EIO, -EIO, "state" },
	{ "ibv_query_gid_table", ENOMEM, -ENOMEM, "addresses" },
};

START_LOOP_TEST(refused_by, ROWS(refusals))
{
	const struct refusal *row = &refusals[_i];
	struct frl_device *device;

	verbs_plug(&defaults);
	fake_verbs_fail(row->function, 1, row->err);
	verbs_refused(verbs_open("verbs:one", &device), row->rc, row->word);
}
END_TEST

static const struct {
	const char *port;
	int rc;
	const char *word;
} names[] = {
	{ "verbs:", -EINVAL, "named like" },
	{ "verbs:/1", -EINVAL, "named like" },
	{ "verbs:one/", -EINVAL, "named like" },
	{ "verbs:one/0", -EINVAL, "named like" },
	{ "verbs:one/256", -EINVAL, "named like" },
	{ "verbs:one/x", -EINVAL, "named like" },
	{ "verbs:three", -ENODEV, "one, two" },
	{ "verbs:one/2", -ENODEV, "no port 2" },
};

START_LOOP_TEST(bad_names, ROWS(names))
{
	struct frl_device *device;

	verbs_plug(&defaults);
	verbs_refused(verbs_open(names[_i].port, &device), names[_i].rc, names[_i].word);
}
END_TEST

START_TEST(attributes)
{
	struct frl_device_attr attr;
	struct frl_device *device;
	struct frl_gid gid;

	verbs_plug(&defaults);
	verbs_ok(verbs_open("verbs:one", &device));
	frl_device_query(device, &attr);
	ck_assert_str_eq(attr.port, "verbs:one");
	ck_assert_uint_eq(attr.path_mtu, 4096);
	ck_assert(!attr.reduces_on_receive && attr.has_atomics && !attr.local_fabric);
	ck_assert_int_eq(attr.port_state, FRL_PORT_ACTIVE);
	ck_assert_uint_eq(attr.n_gids, 2);
	ck_assert_uint_le(attr.max_qp_wr, 16384);
	ck_assert_uint_le(attr.max_sge, FRL_MAX_SGE);
	ck_assert_uint_le(attr.max_rd_atomic, FRL_MAX_RD_ATOMIC);
	ck_assert(attr.max_msg_size > 0 && attr.max_msg_size <= 0x80000000u);
	/* [0] is the link-local one, then the main one; RoCE v1 entries are left out. */
	verbs_ok(frl_query_gid(device, 0, &gid));
	ck_assert_uint_eq(gid.ip.bytes[0], 0xfe);
	/* The MAC is that of the EUI-64. */
	ck_assert_uint_eq(attr.mac[0] ^ 0x02, gid.ip.bytes[8]);
	ck_assert_uint_eq(attr.mac[5], gid.ip.bytes[15]);
	verbs_ok(frl_query_gid(device, 1, &gid));
	ck_assert_uint_eq(gid.ip.bytes[12], 10);
	ck_assert_mem_eq(&gid.ip, &attr.ip, sizeof(gid.ip));
	ck_assert_int_eq(frl_query_gid(device, 2, &gid), -ENOENT);
	ck_assert_str_ne(verbs_logged("first IPv4 address"), "");
	verbs_ok(frl_device_close(device));
}
END_TEST

static int open_with(const char *port, const char *ip, const char *peer, uint32_t mtu,
	struct frl_device **ret_device)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.port = port;
	config.ip = ip;
	config.peer = peer;
	config.path_mtu = mtu;
	return frl_device_open(&config, ret_device);
}

/* A device with two IPv4 addresses and an IPv6 one. */
static void plug_many(void)
{
	struct fake_verbs_device device;
	struct fake_verbs_gid *gids = device.ports[0].gids;

	frl_set_log(NULL, FRL_LOG_ERROR, NULL);
	verbs_plug(&defaults);
	fake_verbs_reset();
	fake_verbs_device_init(&device, "one", "10.0.0.1");
	fake_verbs_gid_set(&gids[4], "10.0.0.9", IBV_GID_TYPE_ROCE_V2);
	fake_verbs_gid_set(&gids[5], "fd00::5", IBV_GID_TYPE_ROCE_V2);
	/* The loopback interface, for routes. */
	fake_verbs_gid_set(&gids[6], "127.0.0.1", IBV_GID_TYPE_ROCE_V2);
	gids[6].ndev_ifindex = 1;
	fake_verbs_add(&device);
}

static void expect_address(struct frl_device *device, uint8_t last, const char *why)
{
	struct frl_device_attr attr;
	struct frl_gid gid;

	frl_device_query(device, &attr);
	ck_assert_uint_eq(attr.ip.bytes[15], last);
	verbs_ok(frl_query_gid(device, 1, &gid));
	ck_assert_uint_eq(gid.ip.bytes[15], last);
	ck_assert_uint_eq(attr.n_gids, 5);
	ck_assert_str_ne(verbs_logged(why), "");
	verbs_ok(frl_device_close(device));
}

START_TEST(choice)
{
	struct frl_device *device;

	plug_many();
	verbs_ok(open_with("verbs:one", NULL, NULL, 0, &device));
	expect_address(device, 1, "first IPv4");
	verbs_ok(open_with("verbs:one", "10.0.0.9", NULL, 0, &device));
	expect_address(device, 9, "requested");
	verbs_ok(open_with("verbs", "fd00::5", NULL, 0, &device));
	expect_address(device, 5, "requested");
	verbs_refused(open_with("verbs:one", "10.0.0.7", NULL, 0, &device), -EINVAL,
		"10.0.0.1, 10.0.0.9, fd00::5");
	verbs_refused(open_with("verbs:one", "ten", NULL, 0, &device), -EINVAL, "no IP address");
}
END_TEST

START_TEST(choice_by_peer)
{
	struct frl_device *device;
	struct frl_device_attr attr;

	plug_many();
	verbs_ok(open_with("verbs", NULL, "127.0.0.1", 0, &device));
	expect_address(device, 1, "the kernel reaches 127.0.0.1 from it");
	/* A caller that names the device gets it, and an address of the peer's family. */
	verbs_ok(open_with("verbs:one", NULL, "::1", 0, &device));
	expect_address(device, 5, "IPv6");
	verbs_refused(open_with("verbs", NULL, "no such host", 0, &device), -EINVAL, "peer");
	/* Two devices: the one of the interface that leads there. */
	verbs_plug(&defaults);
	verbs_refused(open_with("verbs", NULL, "127.0.0.1", 0, &device), -ENODEV, "for the peer");
	/* A caller that names the device gets it. */
	verbs_ok(open_with("verbs:two", NULL, "127.0.0.1", 0, &device));
	frl_device_query(device, &attr);
	ck_assert_uint_eq(attr.ip.bytes[15], 2);
	verbs_ok(frl_device_close(device));
}
END_TEST

START_TEST(path_mtu)
{
	struct fake_verbs_device fake;
	struct frl_device *device;
	struct frl_device_attr attr;

	fake_verbs_device_init(&fake, "one", "10.0.0.1");
	fake.ports[0].active_mtu = IBV_MTU_1024;
	plug(&fake);
	verbs_refused(open_with("verbs:one", NULL, NULL, 4096, &device), -EMSGSIZE, "ip link set");
	verbs_ok(open_with("verbs:one", NULL, NULL, 512, &device));
	frl_device_query(device, &attr);
	ck_assert_uint_eq(attr.path_mtu, 512);
	verbs_ok(frl_device_close(device));
	verbs_ok(open_with("verbs:one", NULL, NULL, 0, &device));
	frl_device_query(device, &attr);
	ck_assert_uint_eq(attr.path_mtu, 1024);
	verbs_ok(frl_device_close(device));
}
END_TEST

START_TEST(two_ports)
{
	struct fake_verbs_device fake;
	struct frl_device_info *infos;
	struct frl_device *device;
	struct frl_device_attr attr;
	size_t n;

	fake_verbs_device_init(&fake, "one", "10.0.0.1");
	fake.attr.phys_port_cnt = 2;
	fake.ports[0].state = IBV_PORT_DOWN;
	fake_verbs_gid_set(&fake.ports[1].gids[2], "10.0.0.7", IBV_GID_TYPE_ROCE_V2);
	plug(&fake);
	verbs_ok(frl_device_list(&infos, &n));
	ck_assert_uint_eq(n, 2);
	ck_assert_str_eq(infos[0].name, "verbs:one/1");
	ck_assert_str_eq(infos[1].name, "verbs:one/2");
	ck_assert_msg(!infos[0].usable && infos[1].usable, "%s", infos[1].reason);
	frl_device_list_free(infos);
	verbs_refused(verbs_open("verbs:one/1", &device), -ENETDOWN, "not active");
	for (int i = 0; i < 2; i++) {
		verbs_ok(verbs_open(i ? "verbs" : "verbs:one", &device));
		frl_device_query(device, &attr);
		ck_assert_str_eq(attr.port, "verbs:one/2");
		ck_assert_uint_eq(attr.ip.bytes[15], 7);
		verbs_ok(frl_device_close(device));
	}
}
END_TEST

START_TEST(only_link_local)
{
	struct fake_verbs_device fake;
	struct frl_device *device;
	struct frl_gid gids[2];

	verbs_plug(&defaults);
	fake_verbs_device_init(&fake, "near", NULL);
	plug(&fake);
	verbs_ok(verbs_open("verbs:near", &device));
	verbs_ok(frl_query_gid(device, 0, &gids[0]));
	verbs_ok(frl_query_gid(device, 1, &gids[1]));
	ck_assert_mem_eq(&gids[0], &gids[1], sizeof(gids[0]));
	ck_assert_str_ne(verbs_logged("only link-local"), "");
	verbs_ok(frl_device_close(device));
}
END_TEST

TEST_MAIN(verbs_open)
{
	return run_suite_unforked(all_tests(NULL, verbs_teardown));
}
