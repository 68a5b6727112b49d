/* SPDX-License-Identifier: BSD-3-Clause */
/* The interface in a port's text, if its driver uses one. */
#include <check.h>
#include <errno.h>

#include "lib/base/net/devargs.h"
#include "tests/fixtures/program.h"

static const struct {
	const char *devargs, *interface;
	int rc;
} rows[] = {
	{ "net_af_packet0,iface=eth0", "eth0", 0 },
	{ "eth_af_packet0,iface=eth0", "eth0", 0 },
	{ "net_af_packet12,blocksz=4096,iface=eth0.7,qpairs=1", "eth0.7", 0 },
	{ "net_af_packet0,iface=eth0 ip=10.1.1.1/24", "eth0", 0 },
	{ "net_af_packet0 ip=10.1.1.1/24,iface=eth0", "", 0 },
	{ "net_af_packet0,myiface=eth0", "", 0 },
	{ "net_af_packet0,ifacex=eth1,iface=eth0", "eth0", 0 },
	{ "net_af_packet0,iface", "", 0 },
	{ "net_af_packet0,iface=", "", -ENODEV },
	{ "net_af_packet0,iface=,qpairs=1", "", -ENODEV },
	{ "net_af_packet0,iface=fifteen-letters", "fifteen-letters", 0 },
	{ "net_af_packet0,iface=sixteen--letters", "", -ENODEV },
	{ "net_af_xdp0,iface=eth0", "eth0", 0 },
	{ "net_pcap0,iface=eth0", "eth0", 0 },
	{ "net_pcap0,rx_iface=eth0,tx_iface=eth1", "eth1", 0 },
	{ "net_pcap0,rx_pcap=a,tx_pcap=b", "", 0 },
	{ "net_tap0,iface=tap7", "", 0 },
	{ "net_tap0,iface=tap7,remote=eth0", "eth0", 0 },
	{ "net_vhost0,iface=/run/a-long-folder/vhost.sock", "", 0 },
	{ "net_virtio_user0,path=/run/vhost.sock,iface=tap0", "", 0 },
	{ "net_other0,iface=eth0", "", 0 },
	{ "0000:3b:00.0,iface=eth0", "", 0 },
	{ "packet:eth0", "eth0", 0 },
	{ "packet:eth0,gso=off", "eth0", 0 },
	{ "packet:", "", -ENODEV },
	{ "local", "", 0 },
	{ "", "", 0 },
};

START_LOOP_TEST(interfaces, ROWS(rows))
{
	char name[IF_NAMESIZE] = "before";

	ck_assert_int_eq(devargs_interface(rows[_i].devargs, name), rows[_i].rc);
	ck_assert_str_eq(name, rows[_i].interface);
}
END_TEST

TEST_FILE(devargs)
