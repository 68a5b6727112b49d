/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public interface: devices of the local fabric that know of each other no more than a GID and
 * a queue pair number. The peer's application makes no call, except where a case says so.
 */
#include <dirent.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

#include "drivers/local/introduction.h"
#include "lib/base/net/ip.h"
#include "lib/base/process/closer.h"
#include "lib/base/random.h"
#include "lib/device/soft.h"
#include "tests/fixtures/program.h"
#include "tests/unit/api/connect/gid_fixture.h"

enum {
	QKEY = 77,
};

/* Addresses are searched from a random one on. A case may choose it, and so use one again; all
 * numbers of a device still differ. */
static atomic_uint chosen_start, numbers;

uint64_t __real_random_entropy(void);
uint64_t __wrap_random_entropy(void);
uint64_t __wrap_random_entropy(void)
{
	enum { ADDRESSES = 254 * 256 };
	uint64_t start = atomic_load(&chosen_start);

	if (!start)
		return __real_random_entropy();
	return start + ADDRESSES * (uint64_t)(1 + atomic_fetch_add(&numbers, 1));
}

static void one_link_each(void)
{
	ck_assert_uint_eq(links_of(&a), 1);
	ck_assert_uint_eq(links_of(&b), 1);
}

static const struct {
	enum frl_qp_type type;
	unsigned gid;
} ways[] = {
	{ FRL_QPT_RC, 1 },
	{ FRL_QPT_RC, 0 },
	{ FRL_QPT_UC, 1 },
	{ FRL_QPT_UC, 0 },
};

START_LOOP_TEST(one_after_the_other, ROWS(ways))
{
	open_both(ways[_i].type, false);
	ok(to_rtr(&a, gid_of(&b, ways[_i].gid), frl_qp_num(b.qp), MTU));
	one_link_each();
	to_rts(&a, 16);
	ok(to_rtr(&b, gid_of(&a, ways[_i].gid), frl_qp_num(a.qp), MTU));
	to_rts(&b, 16);
	one_link_each();
	send_one();
}
END_TEST

/* There is one link, in any order of events. */
START_LOOP_TEST(both_at_once, 30)
{
	pthread_t thread;

	open_both(FRL_QPT_RC, false);
	ck_assert_int_eq(pthread_create(&thread, NULL, connect_by_gid, &b), 0);
	connect_by_gid(&a);
	pthread_join(thread, NULL);
	ok(a.rc);
	ok(b.rc);
	one_link_each();
	send_one();
}
END_TEST

START_LOOP_TEST(datagrams, 2)
{
	struct frl_ah_attr attr = { .sgid_index = (uint8_t)_i };
	struct frl_qp *from, *to;
	struct frl_recv_wr recv = { .wr_id = 9, .n_sge = 1 };
	struct frl_sge sge, into;
	struct frl_send_wr wr;
	struct frl_ah *ah;

	open_both(FRL_QPT_RC, false);
	from = add_datagram_qp(&a, FRL_QPT_UD, QKEY);
	to = add_datagram_qp(&b, FRL_QPT_UD, QKEY);
	attr.dgid = gid_of(&b, (unsigned)_i);
	ok(frl_ah_create(a.pd, &attr, &ah));
	one_link_each();
	into = sge_of(&b, 0, FRL_GRH_SIZE + 100);
	recv.sge = &into;
	ck_assert_int_eq(frl_post_recv(to, &recv, 1, NULL), 1);
	sge = sge_of(&a, 0, 100);
	wr = send_wr(7, FRL_WR_SEND, &sge);
	wr.ah = ah;
	wr.remote_qpn = frl_qp_num(to);
	wr.remote_qkey = QKEY;
	post_on(from, &wr);
	next_wc(&a, 7, FRL_WC_SUCCESS);
	next_wc(&b, 9, FRL_WC_SUCCESS);
	frl_ah_destroy(ah);
	frl_qp_destroy(from);
	frl_qp_destroy(to);
}
END_TEST

/* ---- what the ends agree on */

static const struct {
	enum frl_icrc_mode a, b;
	uint32_t both;
} icrcs[] = {
	{ FRL_ICRC_AUTO, FRL_ICRC_AUTO, FRL_CAP_NO_ICRC },
	{ FRL_ICRC_ALWAYS, FRL_ICRC_AUTO, 0 },
	{ FRL_ICRC_AUTO, FRL_ICRC_ALWAYS, 0 },
};

static void open_with_icrc(struct end *end, enum frl_icrc_mode icrc)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.path_mtu = 4096;
	config.icrc = icrc;
	make_end(end, false, &config);
}

static uint32_t capabilities_of(const struct end *end)
{
	struct frl_qp_attr attr;

	frl_qp_query(end->qp, &attr);
	return attr.capabilities;
}

/* By GID, also over a link that frl_qp_connect() has made. */
START_LOOP_TEST(capabilities, 2 * ROWS(icrcs))
{
	struct frl_qp *first[2] = { NULL };
	const uint32_t both = icrcs[_i / 2].both;

	open_with_icrc(&a, icrcs[_i / 2].a);
	open_with_icrc(&b, icrcs[_i / 2].b);
	if (_i % 2) {
		connect_both();
		ck_assert_uint_eq(capabilities_of(&a), both);
		first[0] = a.qp;
		first[1] = b.qp;
		a.qp = b.qp = NULL;
	}
	renew(&a, FRL_QPT_RC, false);
	renew(&b, FRL_QPT_RC, false);
	connect_by_gid(&a);
	connect_by_gid(&b);
	ok(a.rc);
	ok(b.rc);
	ck_assert_uint_eq(capabilities_of(&a), both);
	ck_assert_uint_eq(capabilities_of(&b), both);
	one_link_each();
	send_one();
	frl_qp_destroy(first[0]);
	frl_qp_destroy(first[1]);
}
END_TEST

/* Within a device there is no link. */
START_LOOP_TEST(capabilities_in_a_device, 2)
{
	open_with_icrc(&a, _i ? FRL_ICRC_AUTO : FRL_ICRC_ALWAYS);
	renew(&a, FRL_QPT_RC, false);
	ok(to_rtr(&a, gid_of(&a, 1), frl_qp_num(a.qp), MTU));
	ck_assert_uint_eq(capabilities_of(&a), _i ? FRL_CAP_NO_ICRC : 0);
	ck_assert_uint_eq(links_of(&a), 0);
}
END_TEST

START_TEST(path_mtu_of_the_other_end)
{
	open_end_with(&a, false, FRL_PROGRESS_INLINE, 4096, 0);
	open_end_with(&b, false, FRL_PROGRESS_INLINE, MTU, 0);
	renew(&a, FRL_QPT_RC, false);
	refused(to_rtr(&a, gid_of(&b, 1), 5, 2 * MTU), -EINVAL, "other end");
	ok(to_rtr(&a, gid_of(&b, 1), 5, MTU));
}
END_TEST

/* ---- devices that are not there */

START_TEST(nobody_has_the_address)
{
	struct frl_ah_attr attr = { .sgid_index = 1 };
	struct frl_ah *ah;

	open_both(FRL_QPT_RC, false);
	attr.dgid = gid_of(&b, 1);
	close_end(&b);
	refused(to_rtr(&a, attr.dgid, 5, MTU), -EHOSTUNREACH, "no device has the address");
	refused(frl_ah_create(a.pd, &attr, &ah), -EHOSTUNREACH, "no device has the address");
	attr.dgid = (struct frl_ip){ { [10] = 0xff, 0xff, 10, 1, 1, 1 } };
	refused(to_rtr(&a, attr.dgid, 5, MTU), -EHOSTUNREACH, "not an address of the local");
	refused(frl_ah_create(a.pd, &attr, &ah), -EHOSTUNREACH, "not an address of the local");
	ck_assert_uint_eq(links_of(&a), 0);
}
END_TEST

/* Another device at the same address. a has noticed the end of the first one, or the new one comes
 * before that. */
START_LOOP_TEST(peer_comes_again, 2)
{
	struct frl_ip address, again;

	atomic_store(&chosen_start, 1 + (unsigned)getpid() % 60000);
	open_both(FRL_QPT_RC, false);
	connect_by_gid(&a);
	ok(a.rc);
	address = gid_of(&b, 1);
	close_end(&b);
	if (_i == 0)
		wait_until_failed(&a);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	atomic_store(&chosen_start, 0);
	/* Another process may have taken the address of b in the meantime. */
	again = gid_of(&b, 1);
	if (!ip_equal(&again, &address))
		return;
	renew(&a, FRL_QPT_RC, false);
	renew(&b, FRL_QPT_RC, false);
	if (_i) {
		connect_by_gid(&b);
		ok(b.rc);
	}
	connect_by_gid(&a);
	ok(a.rc);
	if (!_i) {
		connect_by_gid(&b);
		ok(b.rc);
	}
	send_one();
}
END_TEST

static bool is_replaced(const struct end *end, const struct end *peer)
{
	const struct soft_device *device = soft_device(end->device);
	bool replaced = false, found = false;

	device_enter(end->device);
	for (unsigned i = 0; i < device->n_links; i++) {
		if (memcmp(device->links[i].peer_nonce, peer->device->nonce, NONCE_SIZE) != 0)
			continue;
		found = true;
		replaced = device->links[i].is_replaced;
	}
	device_leave(end->device);
	ck_assert(found);
	return replaced;
}

/* Asks a in the name of b, with another nonce. */
static void ask_as_b(void)
{
	struct introduction_message message = {
		.magic = INTRODUCTION_MAGIC,
		.version = INTRODUCTION_VERSION,
		.from = gid_of(&b, 1),
		.to = gid_of(&a, 1),
	};
	struct pollfd state = { .events = POLLIN };
	char name[64];

	local_mac(&message.from, message.mac);
	snprintf(name, sizeof(name), "ferrule-intro/%s", format_ip(&message.to));
	state.fd = handshake_connect(name, false);
	ck_assert_int_ge(state.fd, 0);
	ck_assert_int_eq(handshake_send(state.fd, &message, sizeof(message)), 0);
	ck_assert_int_eq(poll(&state, 1, HANG_MS), 1);
	ck_assert_int_eq(handshake_receive(state.fd, &message, sizeof(message)), 0);
	ck_assert_int_eq(message.status, 0);
	close(state.fd);
}

/* Only the newest device at an address counts; a path to it asks the device that is there. */
START_TEST(two_devices_at_an_address)
{
	open_both(FRL_QPT_RC, false);
	connect_by_gid(&a);
	ok(a.rc);
	ck_assert(!is_replaced(&a, &b));
	ask_as_b();
	ck_assert(is_replaced(&a, &b));
	renew(&a, FRL_QPT_RC, false);
	connect_by_gid(&a);
	ok(a.rc);
	ck_assert(!is_replaced(&a, &b));
	connect_by_gid(&b);
	ok(b.rc);
	send_one();
}
END_TEST

/* As frl_qp_connect() to the device of ask_as_b(). Guard held. */
static uint16_t adopt_link(void)
{
	const uint8_t nonce[NONCE_SIZE] = { 0 };
	const struct frl_ip ip = gid_of(&b, 1);
	uint8_t mac[6];
	int link;

	local_mac(&ip, mac);
	link = soft_link_open(a.device, &ip, mac, nonce);
	ck_assert_int_ge(link, 0);
	soft_link_release(a.device, (uint16_t)link, false);
	return (uint16_t)link;
}

/* frl_qp_connect() waits for its peer as long as its caller wants, also on a link that an
 * introduction has made. */
START_TEST(limit_of_an_adopted_link)
{
	struct local_port *port;
	uint16_t link;

	open_both(FRL_QPT_RC, false);
	ask_as_b();
	port = (struct local_port *)soft_device(a.device)->port;
	device_enter(a.device);
	ck_assert_uint_eq(links_of(&a), 1);
	ck_assert_uint_ne(port->made[soft_device(a.device)->links[0].link]->give_up_ns, 0);
	link = adopt_link();
	ck_assert_uint_eq(links_of(&a), 1);
	ck_assert_uint_eq(port->made[link]->give_up_ns, 0);
	device_leave(a.device);
}
END_TEST

/* The transition to RTR with a MAC address and a link does not wait for the link. */
START_TEST(named_link_that_is_not_up)
{
	struct frl_qp_attr attr = {
		.state = FRL_QPS_RTR, .path_mtu = MTU, .dest_qpn = 5, .ah.sgid_index = 1
	};

	open_both(FRL_QPT_UC, false);
	ask_as_b();
	device_enter(a.device);
	attr.ah.link = adopt_link();
	device_leave(a.device);
	attr.ah.dgid = gid_of(&b, 1);
	local_mac(&attr.ah.dgid, attr.ah.dmac);
	ok(frl_qp_modify(a.qp, &attr, UC_RTR));
	ck_assert_uint_eq(capabilities_of(&a), 0);
}
END_TEST

/* Until the only link is down. */
static void wait_until_down(const struct end *end)
{
	struct frl_device *device = end->device;
	uint16_t link = soft_device(device)->links[0].link;
	uint64_t limit_ns = hang_limit_ns();
	int rc;

	do {
		device_enter(device);
		rc = soft_link_state(device, link);
		device_leave(device);
	} while (!rc && may_wait(limit_ns));
	ck_assert_int_eq(rc, -ECONNRESET);
}

/* Sockets may be closed by another thread. */
static int count_files(void)
{
	uint64_t limit_ns = hang_limit_ns();
	DIR *folder;
	int n = 0;

	while (closer_pending() && may_wait(limit_ns))
		sched_yield();
	folder = opendir("/proc/self/fd");
	ck_assert_ptr_nonnull(folder);
	while (readdir(folder))
		n++;
	closedir(folder);
	return n;
}

/* The thread of the links keeps two descriptors. */
START_TEST(no_descriptor_is_left)
{
	struct frl_ip gone;
	int before = 0;

	for (int i = 0; i < 3; i++) {
		open_both(FRL_QPT_RC, false);
		connect_by_gid(&a);
		ok(a.rc);
		connect_by_gid(&b);
		ok(b.rc);
		gone = gid_of(&a, 1);
		close_end(&a);
		renew(&b, FRL_QPT_RC, false);
		wait_until_down(&b);
		refused(to_rtr(&b, gone, 5, MTU), -EHOSTUNREACH, "no device has");
		close_end(&b);
		if (i == 0)
			before = count_files();
	}
	ck_assert_int_eq(count_files(), before);
}
END_TEST

TEST_MAIN(api_introduce)
{
	if (test_port()) {
		say_skipped("all_fn", 0, "only the local fabric has introductions");
		return 0;
	}
	return run_suite_forked(all_tests(NULL, close_ends));
}
