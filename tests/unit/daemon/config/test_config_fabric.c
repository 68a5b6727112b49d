/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fabrics in ferruled.conf: the result of each setting, refusals, and values that two fabrics must
 * not share.
 */
#include "tests/unit/daemon/config/config_fixture.h"
#include "tests/fixtures/program.h"

#include <stdlib.h>
#include <string.h>

#include <check.h>

#define LONG_NAME "a234567890123456789012345678901234567890123456789012345678901234567890"

#define TWO(ports, addresses, more, ports2, addresses2, more2)                                   \
	"fabrics = ( { name = \"a\";\n ports = (" ports ");\n addresses = [ \"" addresses        \
	"\" ];" more " }, {\n name = \"b\"; ports = (" ports2 ");\n addresses = [ \"" addresses2 \
	"\" ];" more2 " } );"

static const struct config_wrong_row wrong[] = {
	/* fabrics */
	{ "fabrics = 5;", "1: fabrics: ", "must be a list" },
	{ "fabrics = (\n 5 );", "2: fabrics[0]: ", "must be a group" },
	{ "fabrics = (\n {\n } );", "2: fabrics[0]: ", "no name" },
	{ "fabrics = (\n { name = \"x\"; } );", "2: fabrics[0]: ", "no ports" },
	{ "fabrics = (\n { name = \"x\"; ports = [\"a\"]; } );",
		"2: fabrics[0]: ", "no addresses" },
	{ "fabrics = (\n { name = \"local\"; } );",
		"2: fabrics[0].name: ", "name of the local fabric" },
	{ "fabrics = (\n { name = \"a b\"; } );", "2: fabrics[0].name: ", "1 to 63" },
	{ "fabrics = (\n { name = \"" LONG_NAME "\"; } );", "2: fabrics[0].name: ", "1 to 63" },
	{ FABRIC("vlans = 5;"), "4: fabrics[0].vlans: ", "is vlan meant?" },
	{ FABRIC("vlan = 4095;"), "4: fabrics[0].vlan: ", "0 to 4094" },
	{ FABRIC("vlan = -1;"), "4: fabrics[0].vlan: ", "0 to 4094" },
	{ FABRIC("vlan = \"5\";"), "4: fabrics[0].vlan: ", "whole number" },
	{ FABRIC("qpns = 1048577;"), "4: fabrics[0].qpns: ", "0 to 1048576" },
	{ FABRIC("path_mtu = 1500;"), "4: fabrics[0].path_mtu: ", "256, 512" },
	{ FABRIC("path_mtu = \"1024\";"), "4: fabrics[0].path_mtu: ", "256, 512" },
	{ FABRIC("path_mtu = 8192;"), "4: fabrics[0].path_mtu: ", "256, 512" },
	{ FABRIC("any_user = 1;"), "4: fabrics[0].any_user: ", "true or false" },
	{ FABRIC("users = [ \"no such user\" ];"), "4: fabrics[0].users[0]: ", "does not exist" },
	{ FABRIC("users = [ 5, -3 ];"), "4: fabrics[0].users[1]: ", "0 to 4294967294" },
	{ FABRIC("groups = [ \"no such group\" ];"),
		"4: fabrics[0].groups[0]: ", "does not exist" },
	{ FABRIC("gateway = \"router\";"), "4: fabrics[0].gateway: ", "like \"10.1.0.1\"" },
	{ FABRIC("gateway = \"10.2.0.1\";"), "4: fabrics[0].gateway: ", "no subnet" },
	{ FABRIC("gateway = \"fd00::1\";"), "4: fabrics[0].gateway: ", "no subnet" },
	{ FABRIC("gateway = \"10.1.0.2\";"), "4: fabrics[0].gateway: ", "that fabric eth0 leases" },
	{ FABRIC("gateway = \"10.1.0.1,10.1.0.3\";"), "4: fabrics[0].gateway: ", "one family" },
	{ FABRIC("mac_pool = \"02:00:00:00:00:01\";"), "4: fabrics[0].mac_pool: ", "must be like" },
	{ FABRIC("mac_pool = \"03:00:00:00:00:01-03:00:00:00:00:02\";"),
		"4: fabrics[0].mac_pool: ", "even first byte" },
	{ FABRIC("mac_pool = \"02:00:00:00:00:02-02:00:00:00:00:01\";"),
		"4: fabrics[0].mac_pool: ", "ends before it starts" },
	{ FABRIC("mac_pool = \"02:00:00:00:00:00-02:00:00:01:00:00\";"),
		"4: fabrics[0].mac_pool: ", "at most 65536" },
	/* addresses */
	{ ADDRESSES(), "4: fabrics[0].addresses: ", "has 0 entries" },
	{ ADDRESSES("\"10.1.0.2/24\",\"10.2.0.2/24\",\"10.3.0.2/24\",\"10.4.0.2/24\",\"10.5.0.2/"
		    "24\""),
		"4: fabrics[0].addresses: ", "has 5 entries" },
	{ ADDRESSES("5"), "4: fabrics[0].addresses[0]: ", "in quotes" },
	{ ADDRESSES("\"10.1.0.2\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"10.1.0.2/0\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"10.1.0.2/33\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"10.1.0.2/24x\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"10.1.0.2/-1\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"fd00::1/129\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"10.1.0.256/24\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"10.1.0.2-/24\""), "4: fabrics[0].addresses[0]: ", "must be like" },
	{ ADDRESSES("\"10.1.0.2-10.1.1.5/24\""),
		"4: fabrics[0].addresses[0]: ", "in several subnets" },
	{ ADDRESSES("\"10.1.0.2-fd00::1/24\""),
		"4: fabrics[0].addresses[0]: ", "in several subnets" },
	{ ADDRESSES("\"10.1.0.9-10.1.0.2/24\""), "4: fabrics[0].addresses[0]: ", "ends before" },
	{ ADDRESSES("\"10.1.0.0/24\""), "4: fabrics[0].addresses[0]: ", "first or last" },
	{ ADDRESSES("\"10.1.0.0-10.1.0.9/24\""), "4: fabrics[0].addresses[0]: ", "first or last" },
	{ ADDRESSES("\"10.1.0.9-10.1.0.255/24\""),
		"4: fabrics[0].addresses[0]: ", "first or last" },
	{ ADDRESSES("\"127.0.0.2/8\""), "4: fabrics[0].addresses[0]: ", "unicast" },
	{ ADDRESSES("\"224.0.0.2/8\""), "4: fabrics[0].addresses[0]: ", "unicast" },
	{ ADDRESSES("\"169.254.3.4/16\""), "4: fabrics[0].addresses[0]: ", "local fabric" },
	{ ADDRESSES("\"fe80::5/64\""), "4: fabrics[0].addresses[0]: ", "link-local" },
	{ ADDRESSES("\"ff02::5/64\""), "4: fabrics[0].addresses[0]: ", "unicast" },
	{ ADDRESSES("\"::1/64\""), "4: fabrics[0].addresses[0]: ", "unicast" },
	{ ADDRESSES("\"10.1.0.2-10.1.0.9/24\",\n\"10.1.0.9/24\""),
		"5: fabrics[0].addresses[1]: ", "overlaps with fabrics[0].addresses[0] (line 4)" },
	/* ports */
	{ PORTS(), "4: fabrics[0].ports: ", "has 0 entries" },
	{ PORTS("5"), "4: fabrics[0].ports[0]: ", "must be devargs" },
	{ PORTS("\"\""), "4: fabrics[0].ports[0]: ", "1 to " },
	{ PORTS("\"a\\tb\""), "4: fabrics[0].ports[0]: ", "printable" },
	{ PORTS("{ mac = \"02:00:00:00:00:01\"; }"), "4: fabrics[0].ports[0]: ", "no devargs" },
	{ PORTS("{ devargs = \"a\"; max = \"02:00:00:00:00:01\"; }"),
		"4: fabrics[0].ports[0].max: ", "no such setting" },
	{ PORTS("{ devargs = \"a\"; mac = \"02:00:00:00:00\"; }"),
		"4: fabrics[0].ports[0].mac: ", "six bytes" },
	{ PORTS("{ devargs = \"a\"; mac = \"02:00:00:00:00:0g\"; }"),
		"4: fabrics[0].ports[0].mac: ", "six bytes" },
	{ PORTS("{ devargs = \"a\"; mac = \"02:00:00:00:00:01:02\"; }"),
		"4: fabrics[0].ports[0].mac: ", "six bytes" },
	{ PORTS("{ devargs = \"a\"; mac = \"01:00:5e:00:00:01\"; }"),
		"4: fabrics[0].ports[0].mac: ", "unicast" },
	{ PORTS("{ devargs = \"a\"; mac = \"00:00:00:00:00:00\"; }"),
		"4: fabrics[0].ports[0].mac: ", "unicast" },
	{ PORTS("\"a\", \"b\",\n\"a\""),
		"5: fabrics[0].ports[2]: ", "overlaps with fabrics[0].ports[0]" },
	{ PORTS("\"0000:3b:00.0\",\n{ devargs = \"3b:00.0,x=1\"; }"),
		"5: fabrics[0].ports[1].devargs: ", "overlaps with fabrics[0].ports[0] (line 4)" },
	{ PORTS("{ devargs = \"a\"; mac = \"02:00:00:00:00:01\"; },\n"
		"{ devargs = \"b\"; mac = \"02:00:00:00:00:01\"; }"),
		"5: fabrics[0].ports[1].mac: ", "overlaps with fabrics[0].ports[0].mac" },
	/* two fabrics */
	{ "fabrics = ( { name = \"a\"; ports = [ \"x\" ]; addresses = [ \"10.1.0.2/24\" ]; },\n"
	  "{ name = \"a\"; ports = [ \"y\" ]; addresses = [ \"10.2.0.2/24\" ]; } );",
		"2: fabrics[1].name: ", "another fabric" },
	{ TWO("\"x\"", "10.1.0.2-10.1.0.9/24", "", "\"x\"", "10.2.0.2/24", ""),
		"4: fabrics[1].ports[0]: ", "overlaps with fabrics[0].ports[0] (line 2)" },
	{ TWO("\"x\"", "10.1.0.2-10.1.0.9/24", "", "\"y\"", "10.1.0.9-10.1.0.12/24", ""),
		"5: fabrics[1].addresses[0]: ", "overlaps with fabrics[0].addresses[0] (line 3)" },
	{ TWO("\"x\"", "10.1.0.9-10.1.0.12/24", "", "\"y\"", "10.1.0.2-10.1.0.9/24", ""),
		"5: fabrics[1].addresses[0]: ", "overlaps with fabrics[0].addresses[0] (line 3)" },
	{ TWO("\"x\"", "fd00::2-fd00::9/64", "", "\"y\"", "fd00::5/64", ""),
		"5: fabrics[1].addresses[0]: ", "overlaps with fabrics[0].addresses[0] (line 3)" },
	{ TWO("\"x\"", "10.1.0.9/24", "mac_pool = \"02:00:00:00:00:01-02:00:00:00:00:05\";",
		  "\"y\"", "10.1.0.2/24", "mac_pool = \"02:00:00:00:00:05-02:00:00:00:00:06\";"),
		"5: fabrics[1].mac_pool: ", "overlaps with fabrics[0].mac_pool (line 3)" },
	{ TWO("\"x\"", "10.1.0.9/24", "mac_pool = \"02:00:00:00:00:01-02:00:00:00:00:05\";",
		  "{ devargs = \"y\"; mac = \"02:00:00:00:00:04\"; }", "10.1.0.2/24", ""),
		"4: fabrics[1].ports[0].mac: ", "overlaps with fabrics[0].mac_pool (line 3)" },
	{ TWO("\"x\"", "10.1.0.9/24", "", "\"y\"", "10.1.0.2/24", "gateway = \"10.1.0.9\";"),
		"5: fabrics[1].gateway: ", "that fabric a leases" },
};

START_LOOP_TEST(refused, ROWS(wrong))
{
	config_wrong(wrong[_i].text, wrong[_i].place, wrong[_i].words);
}
END_TEST

static const char *const right[] = {
	FABRIC("vlan = 4094; qpns = 1048576; path_mtu = 4096; any_user = true;"),
	FABRIC("users = [ \"root\", \"0\", \"12345\" ]; groups = ( 7, \"root\", 4294967294L );"),
	FABRIC("gateway = \"10.1.0.1\";"),
	FABRIC("gateway = \"\"; mac_pool = \"\";"),
	ADDRESSES("\"10.1.0.2-10.1.0.9/24\", \"fd00::2-fd00::9/64\", \"10.1.0.10/32\""),
	ADDRESSES("\"10.1.0.0-10.1.0.1/31\""),
	PORTS("\"0000:3b:00.0\", \"0001:3b:00.0\", \"3b:00.1\", \"3b:00.0x\""),
	PORTS("\"a \\\" 4000000000\", \"// \", \"/*\""),
	PORTS("\"net_af_packet0,iface=a\", \"net_af_packet0,iface=b\""),
	PORTS("{ devargs = \"a\"; mac = \"\"; }, { devargs = \"b\"; }"),
	TWO("\"x\"", "10.1.0.2-10.1.0.9/24", "gateway = \"10.1.0.1\";", "\"y\"",
		"10.1.0.10-10.1.0.12/24", "gateway = \"10.1.0.1\";"),
};

START_LOOP_TEST(taken, ROWS(right))
{
	config_free(config_right(right[_i]));
}
END_TEST

/* ---- all of a fabric */

START_TEST(fabrics)
{
	static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 0x99 };
	struct config *config = config_right(
		"hold_ms = 5; operators = [ \"root\", \"4711\" ]; metrics_port = 9000;\n"
		"fabrics = ( {\n"
		"  name = \"eth0-roce\";\n"
		"  ports = ( \"net_af_packet0,iface=a\",\n"
		"    { devargs = \"0000:3b:00.0\"; mac = \"02:00:00:00:00:99\"; } );\n"
		"  addresses = [ \"10.1.0.10-10.1.0.50/24\", \"fd00::1/64\" ];\n"
		"  vlan = 7; gateway = \"10.1.0.1,fd00::ff\"; path_mtu = 2048; qpns = 100;\n"
		"  mac_pool = \"02:00:00:00:01:FE-02:00:00:00:02:01\";\n"
		"  users = ( \"root\", 1000, \"1001\" ); groups = [ 12 ]; any_user = true;\n"
		"}, { name = \"b\"; ports = [ \"y\" ]; addresses = [ \"10.9.0.1/24\" ]; } );\n");
	const struct config_fabric *fabric = &config->fabrics[0];
	static const uint8_t first[16] = { [10] = 255, 255, 10, 1, 0, 10 };

	ck_assert_str_eq(config->path, config_path);
	ck_assert_str_eq(config->metrics_address, "127.0.0.1");
	ck_assert_uint_eq(config->n_operators, 2);
	ck_assert_uint_eq(config->operators[0], 0);
	ck_assert_uint_eq(config->operators[1], 4711);
	ck_assert_uint_eq(config->n_fabrics, 2);
	ck_assert_str_eq(fabric->name, "eth0-roce");
	ck_assert_uint_eq(fabric->n_ports, 2);
	ck_assert_str_eq(fabric->ports[0].devargs, "net_af_packet0,iface=a");
	ck_assert(!fabric->ports[0].has_mac);
	ck_assert_str_eq(fabric->ports[1].devargs, "0000:3b:00.0");
	ck_assert(fabric->ports[1].has_mac);
	ck_assert_mem_eq(fabric->ports[1].mac, mac, 6);
	ck_assert_uint_eq(fabric->n_addresses, 2);
	ck_assert_mem_eq(fabric->addresses[0].first.bytes, first, 16);
	ck_assert_uint_eq(fabric->addresses[0].last.bytes[15], 50);
	ck_assert_uint_eq(fabric->addresses[0].prefix_len, 24);
	ck_assert_uint_eq(fabric->addresses[1].prefix_len, 64);
	ck_assert_mem_eq(&fabric->addresses[1].first, &fabric->addresses[1].last, 16);
	ck_assert_uint_eq(fabric->vlan, 7);
	ck_assert_str_eq(fabric->gateway, "10.1.0.1,fd00::ff");
	ck_assert_uint_eq(fabric->path_mtu, 2048);
	ck_assert_uint_eq(fabric->qpns, 100);
	ck_assert(fabric->has_macs);
	ck_assert_uint_eq(fabric->n_macs, 4);
	ck_assert_uint_eq(fabric->mac_first[5], 0xfe);
	ck_assert_uint_eq(fabric->n_users, 3);
	ck_assert_uint_eq(fabric->users[2], 1001);
	ck_assert_uint_eq(fabric->n_groups, 1);
	ck_assert_uint_eq(fabric->groups[0], 12);
	ck_assert(fabric->any_user);
	fabric = &config->fabrics[1];
	ck_assert(!fabric->any_user && !fabric->has_macs && !fabric->gateway && !fabric->vlan);
	config_free(config);
}
END_TEST

TEST_MAIN(config_fabric)
{
	return run_suite(all_tests(config_setup, config_teardown));
}
