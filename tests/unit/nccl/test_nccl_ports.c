/* SPDX-License-Identifier: BSD-3-Clause */
/* The meaning of FERRULE_DEVICES to the NCCL plugin. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nccl/ports.h"

#include "tests/fixtures/program.h"

enum { WHY = 300 };

static const struct row {
	const char *wanted;
	const char *names; /* separated by blanks; NULL: refused */
	const char *what;  /* of the refusal's sentence, or the first port's devargs */
	int speed;         /* of the first one; 0: known when it is open */
} rows[] = {
	{ "local", "local", "", 100000 },
	{ " local ;", "local", "", 100000 },
	{ "local speed=40000", "local", "", 40000 },
	{ "local;local;local", "local local.1 local.2", "", 100000 },
	{ "fabric:roce", "roce", "", 0 },
	{ "fabric:local", "local", "", 100000 },
	{ "fabric:roce speed=25000;local", "roce local", "", 25000 },
	{ "net_af_packet0,iface=none9 ip=10.1.1.1/24", "none9", "net_af_packet0,iface=none9", 0 },
	{ "packet:none9,gso=off ip=10.1.1.1/24", "none9", "packet:none9,gso=off", 0 },
	{ "net_pcap0,iface=x9 ip=10.1.1.1/24 gateway=10.1.1.254;net_pcap1,iface=x9 ip=10.1.1.2/24",
		"x9 x9.1", "net_pcap0,iface=x9", 0 },
	{ "0000:3b:00.0 ip=fd00::1/64 speed=100000", "0000:3b:00.0", "0000:3b:00.0", 100000 },
	{ ";", NULL, "names no port", 0 },
	{ " \t", NULL, "names no port", 0 },
	{ "net_af_packet0,iface=e0", NULL, "needs an address of its own", 0 },
	{ "local speed=0", NULL, "speed=MBIT", 0 },
	{ "local speed=1x", NULL, "speed=MBIT", 0 },
	{ "local speed=99999999999", NULL, "speed=MBIT", 0 },
	{ "local mtu=1500", NULL, "\"mtu=1500\"", 0 },
	{ "verbs:none9", NULL, "no RDMA device verbs:none9", 0 },
};

START_LOOP_TEST(devices, ROWS(rows))
{
	const struct row *row = &rows[_i];
	static struct port_info ports[NET_MAX_PORTS];
	char why[WHY] = "", names[WHY] = "";
	int n = 0, err = net_ports_find(row->wanted, false, ports, &n, why, sizeof(why));

	if (!row->names) {
		ck_assert_int_lt(err, 0);
		ck_assert_msg(strstr(why, row->what), "'%s' is refused with: %s", row->wanted, why);
		return;
	}
	ck_assert_msg(!err, "'%s' is refused: %s", row->wanted, why);
	for (int i = 0; i < n; i++) {
		strncat(names, i ? " " : "", sizeof(names) - strlen(names) - 1);
		strncat(names, ports[i].name, sizeof(names) - strlen(names) - 1);
		ck_assert(ports[i].step_us > 0);
		ck_assert(!ports[i].is_hardware);
	}
	ck_assert_str_eq(names, row->names);
	ck_assert_str_eq(ports[0].port, row->what);
	ck_assert_int_eq(ports[0].speed_mbps, row->speed);
}
END_TEST

START_TEST(too_many)
{
	static struct port_info ports[NET_MAX_PORTS];
	char wanted[(NET_MAX_PORTS + 1) * 6 + 1] = "", why[WHY];
	int n = 0;

	for (int i = 0; i < NET_MAX_PORTS; i++)
		strcat(wanted, "local;");
	ck_assert_int_eq(net_ports_find(wanted, true, ports, &n, why, sizeof(why)), 0);
	ck_assert_int_eq(n, NET_MAX_PORTS);
	strcat(wanted, "local;");
	ck_assert_int_eq(net_ports_find(wanted, true, ports, &n, why, sizeof(why)), -EINVAL);
	ck_assert_ptr_nonnull(strstr(why, "more than"));
}
END_TEST

/* The local fabric connects no two hosts: a user that has not asked for the plugin does not get
 * it. */
START_TEST(any)
{
	static struct port_info ports[NET_MAX_PORTS];
	char why[WHY];
	int n = 0;

	if (net_ports_find("", false, ports, &n, why, sizeof(why)))
		ck_assert_ptr_nonnull(strstr(why, "for the local fabric set"));
	else
		ck_assert(ports[0].is_hardware);
	ck_assert_int_eq(net_ports_find("", true, ports, &n, why, sizeof(why)), 0);
	ck_assert_int_ge(n, 1);
}
END_TEST

TEST_FILE(nccl_ports)
