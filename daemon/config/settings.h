/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Every setting of ferruled.conf, in one place: reader, default, range and description. The table
 * for reading, the defaults and the documentation are all made from it.
 *
 *	NUMBER(member, default, least, most, description)
 *	VALUE(name, member, reader, default as text, range as text, description)
 */
#ifndef FERRULE_DAEMON_CONFIG_SETTINGS_H
#define FERRULE_DAEMON_CONFIG_SETTINGS_H

#define CONFIG_DEFAULT_SOCKET "/run/ferrule/ferruled.sock"
#define CONFIG_LOOPBACK       "127.0.0.1"

#define CONFIG_SETTINGS(NUMBER, VALUE)                                                             \
	VALUE(host, host, host, "the host's own name", "1 to 255 of A-Z a-z 0-9 . _ -",            \
		"name of this host for other daemons and their users")                             \
	VALUE(socket, socket, socket, "\"" CONFIG_DEFAULT_SOCKET "\"",                             \
		"an absolute path of at most 107 characters",                                      \
		"Unix socket for processes and ferrulectl; cannot change while the daemon runs")   \
	VALUE(listen_address, listen_address, address, "\"\" (no other hosts)",                    \
		"an IPv4 or IPv6 address, or \"\"",                                                \
		"address for connections of daemons of other hosts; \"0.0.0.0\", \"::\": all")     \
	NUMBER(listen_port, 7476, 1, 65535,                                                        \
		"its TCP port; listen_address and listen_port cannot change while the daemon "     \
		"runs")                                                                            \
	VALUE(insecure, insecure, boolean, "false", "true or false",                               \
		"daemons connect without TLS: anybody who can reach the port can act as any user") \
	VALUE(tls_certificate, tls_certificate, path, "\"\" (no TLS)",                             \
		"an absolute path, or \"\"",                                                       \
		"PEM file: this host's certificate and the intermediate ones")                     \
	VALUE(tls_key, tls_key, path, "\"\"", "an absolute path, or \"\"",                         \
		"PEM file: the certificate's private key; only the daemon should be able to read " \
		"it")                                                                              \
	VALUE(tls_ca, tls_ca, path, "\"\"", "an absolute path, or \"\"",                           \
		"PEM file: the CAs whose certificates other hosts must have")                      \
	VALUE(metrics_address, metrics_address, address,                                           \
		"\"127.0.0.1\"; of a private daemon none", "an IPv4 or IPv6 address, or \"\"",     \
		"address of /metrics for Prometheus, over HTTP; \"\": none")                       \
	NUMBER(metrics_port, 9476, 1, 65535,                                                       \
		"its TCP port; metrics_address and metrics_port cannot change while it runs")      \
	VALUE(user, user, user, "\"\" (stays as started)", "a user of this host, or \"\"",         \
		"user that the daemon changes to after start; cannot change while it runs")        \
	VALUE(operators, operators, operators, "[] (root only)",                                   \
		"up to 64 groups, by name or number",                                              \
		"their members may see and control everything, like root")                         \
	NUMBER(hold_ms, 10000, 0, 3600000,                                                         \
		"milliseconds for which addresses stay reserved after their lease")                \
	NUMBER(keepalive_ms, 3000, 100, 600000,                                                    \
		"milliseconds that another host may be out of reach; after 1.5 times as long it "  \
		"is gone")                                                                         \
	NUMBER(relearn_ms, 2000, 0, 60000,                                                         \
		"milliseconds for processes to reconnect to a daemon started after a crash")       \
	NUMBER(idle_exit_ms, 10000, 0, 86400000,                                                   \
		"milliseconds without clients after which a private daemon ends; 0: never")        \
	NUMBER(max_sessions, 4096, 8, 65536, "processes and operators at a time")                  \
	NUMBER(max_sessions_per_user, 1024, 1, 65536, "processes and operators of one user")       \
	NUMBER(max_ports_per_user, 1024, 1, 65536, "open ports of one user")                       \
	NUMBER(max_listeners_per_user, 1024, 1, 65536, "services that one user offers")            \
	NUMBER(max_connections_per_user, 65536, 1, 1048576, "connections of one user")             \
	NUMBER(max_qps_per_user, 65536, 1, 16777216,                                               \
		"queue pairs of one user that are reported; those of root are not limited")        \
	NUMBER(max_groups_per_user, 256, 1, 65536, "jobs of one user that this daemon keeps")      \
	NUMBER(max_peers, 1024, 1, 65536, "daemons of other hosts at a time")                      \
	NUMBER(hello_ms, 5000, 100, 60000,                                                         \
		"milliseconds for a new session to send its Hello, and for a message to arrive")   \
	VALUE(fabrics, fabrics, fabrics, "() (the local fabric only)", "a list of groups",         \
		"networks on which this daemon leases ports; the local fabric needs no entry")

#define CONFIG_FABRIC_SETTINGS(NUMBER, VALUE)                                                      \
	VALUE(name, name, fabric_name, "required", "1 to 63 of A-Z a-z 0-9 . _ -, not \"local\"",  \
		"name of the fabric for programs: struct frl_device_config.fabric, FRL_FABRIC")    \
	VALUE(ports, ports, ports, "required",                                                     \
		"1 to 1024 strings, or groups with devargs and mac",                               \
		"DPDK devices, each for one process at a time: devargs or PCI addresses")          \
	VALUE(addresses, addresses, addresses, "required",                                         \
		"1 to 4 of \"FIRST-LAST/PREFIX\" or \"ADDRESS/PREFIX\"",                           \
		"a lease gets one address of each range")                                          \
	NUMBER(vlan, 0, 0, 4094, "VLAN of the addresses; 0: untagged")                             \
	VALUE(gateway, gateway, gateway, "\"\" (none)",                                            \
		"an address inside the subnets, one a family",                                     \
		"next hop to other subnets; two are separated by a comma")                         \
	VALUE(mac_pool, mac_first, mac_pool, "\"\" (the devices' own)", "\"FIRST-LAST\", unicast", \
		"MAC addresses that leases get, at most 65536")                                    \
	VALUE(path_mtu, path_mtu, path_mtu, "0", "0, 256, 512, 1024, 2048 or 4096",                \
		"largest path MTU in bytes; 0: the limit of the device")                           \
	NUMBER(qpns, 0, 0, 1048576, "queue pair numbers that a lease gets; 0: any")                \
	VALUE(users, users, users, "[]", "up to 256 users, by name or number",                     \
		"users who may lease, besides root and the daemon's own user")                     \
	VALUE(groups, groups, groups, "[]", "up to 256 groups, by name or number",                 \
		"groups whose members may lease")                                                  \
	VALUE(any_user, any_user, boolean, "false", "true or false", "all users may lease")

#define CONFIG_PORT_SETTINGS(NUMBER, VALUE)                                                      \
	VALUE(devargs, devargs, devargs, "required", "1 to 255 printable characters",            \
		"\"packet:roce0\" or \"0000:3b:00.0\"")                                          \
	VALUE(mac, mac, mac, "\"\" (of the pool, or its own)", "\"02:00:00:00:00:01\", unicast", \
		"MAC address of this port")

#endif
