/* SPDX-License-Identifier: BSD-3-Clause */
/* What the daemon, which is the test, is told of devices, and what it can do with them. */
#include "lib/api/objects.h"
#include "lib/api/publish.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/unit/api_fixture.h"
#include "tests/unit/fake_daemon.h"

enum { MANY_QPS = 100, QPN_FIRST = 0x12345, QPN_COUNT = 3 };

static struct fake_daemon fake;

/* A port as the daemon knows it. */
struct known {
	uint32_t number;
	uint64_t open_seq;
	char fabric[64];
	bool has_lease;
	uint64_t lease_id;
	const struct page *page;
	uint32_t slots;
	size_t size;
	char device[64];
	char address[64];
	uint32_t path_mtu;
};

static void answer_open(uint64_t seq, const Ctl__Lease *lease)
{
	Ctl__PortOpened opened = CTL__PORT_OPENED__INIT;
	Ctl__Lease none = CTL__LEASE__INIT;
	Ctl__Envelope envelope;

	if (lease)
		none = *lease;
	envelope_init(&envelope);
	envelope.seq = seq;
	opened.port = 1;
	opened.lease = &none;
	envelope.body_case = CTL__ENVELOPE__BODY_PORT_OPENED;
	envelope.port_opened = &opened;
	fake_write(&fake, &envelope);
}

static void read_open(struct known *known)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_OPEN_PORT);
	const Ctl__OpenPort *open = envelope->open_port;

	*known = (struct known){ .number = open->port, .open_seq = envelope->seq };
	snprintf(known->fabric, sizeof(known->fabric), "%s", open->fabric);
	known->has_lease = open->lease != NULL;
	known->lease_id = open->lease ? open->lease->id : 0;
	ck_assert_uint_ne(known->number, 0);
	ck_assert_uint_ne(known->open_seq, 0);
	ctl__envelope__free_unpacked(envelope, NULL);
}

static void read_description(struct known *known)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_DESCRIBE_PORT);
	const Ctl__DescribePort *port = envelope->describe_port;
	const char *why;

	ck_assert_uint_eq(port->port, known->number);
	snprintf(known->device, sizeof(known->device), "%s", port->device);
	ck_assert_uint_ge(port->n_addresses, 1);
	snprintf(known->address, sizeof(known->address), "%s", port->addresses[0]);
	known->path_mtu = port->path_mtu;
	ck_assert_uint_eq(port->mac.len, 6);
	ctl__envelope__free_unpacked(envelope, NULL);
	ck_assert_int_ge(fake.passed_fd, 0);
	known->page = page_map(fake.passed_fd, &known->slots, &known->size, &why);
	ck_assert_msg(known->page != NULL, "%s", why);
	ck_assert_uint_eq(known->slots, PAGE_SLOTS);
	close(fake.passed_fd);
	fake.passed_fd = -1;
}

static void forget(struct known *known)
{
	if (known->page)
		page_unmap(known->page, known->size);
	known->page = NULL;
}

static void read_port(struct known *known)
{
	read_open(known);
	answer_open(known->open_seq, NULL);
	read_description(known);
}

static void read_close(struct known *known)
{
	Ctl__Envelope *envelope = fake_expect(&fake, CTL__ENVELOPE__BODY_CLOSE_PORT);

	ck_assert_uint_eq(envelope->close_port->port, known->number);
	ctl__envelope__free_unpacked(envelope, NULL);
	forget(known);
}

/* Has the pages brought up to date. */
static void publish_now(void)
{
	Ctl__Publish publish = CTL__PUBLISH__INIT;
	Ctl__Envelope envelope, *answer;

	envelope_init(&envelope);
	envelope.seq = 4711;
	envelope.body_case = CTL__ENVELOPE__BODY_PUBLISH;
	envelope.publish = &publish;
	fake_write(&fake, &envelope);
	answer = fake_expect(&fake, CTL__ENVELOPE__BODY_DONE);
	ck_assert_uint_eq(answer->seq, 4711);
	ctl__envelope__free_unpacked(answer, NULL);
}

static bool find_qp(const struct known *known, uint32_t qpn, struct page_qp *ret)
{
	uint32_t used = atomic_load(&known->page->used_slots);

	ck_assert_uint_le(used, known->slots);
	for (uint32_t i = 0; i < used; i++)
		if (page_read_qp(known->page, i, ret) && ret->qpn == qpn)
			return true;
	return false;
}

static unsigned count_qps(const struct known *known)
{
	uint32_t used = atomic_load(&known->page->used_slots);
	struct page_qp qp;
	unsigned n = 0;

	for (uint32_t i = 0; i < used; i++)
		n += page_read_qp(known->page, i, &qp);
	return n;
}

static uint64_t counter(const struct known *known, const char *name)
{
	for (uint32_t i = 0; i < known->page->counters; i++)
		if (strcmp(known->page->counter[i].name, name) == 0)
			return known->page->counter[i].value;
	ck_abort_msg("no counter %s", name);
	return 0;
}

START_TEST(nobody_to_tell)
{
	fake_stop_listening(&fake);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	ck_assert_ptr_null(a.device->publication);
	close_end(&a);
}
END_TEST

START_TEST(told)
{
	struct known port;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	fake_greet(&fake);
	read_port(&port);
	ck_assert_str_eq(port.fabric, "");
	ck_assert(!port.has_lease);
	ck_assert_str_eq(port.device, "memif");
	ck_assert_ptr_nonnull(strstr(port.address, "169.254."));
	ck_assert_ptr_nonnull(strstr(port.address, "/16"));
	ck_assert_uint_eq(port.path_mtu, 4096);
	close_end(&a);
	read_close(&port);
	fake_expect_end(&fake);
}
END_TEST

static void expect_wait(const struct known *port, struct frl_qp *qp, enum page_wait wait)
{
	struct page_qp seen;

	publish_now();
	ck_assert(find_qp(port, frl_qp_num(qp), &seen));
	ck_assert_int_eq(seen.wait, wait);
}

static void send_message(uint64_t wr_id)
{
	struct frl_sge sge = sge_of(&a, 0, MESSAGE);
	struct frl_send_wr wr = send_wr(wr_id, FRL_WR_SEND, &sge);

	post_send(&wr);
}

START_TEST(page)
{
	struct known ports[2];
	struct page_qp qp;
	struct frl_qp *extra;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	fake_greet(&fake);
	read_port(&ports[0]);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	read_port(&ports[1]);
	ck_assert_uint_ne(ports[0].number, ports[1].number);
	expect_wait(&ports[0], a.qp, PAGE_WAIT_NOT_CONNECTED);
	connect_both();
	post_recv(1, 0, MESSAGE, false);
	send_message(2);
	expect(&b, 1, FRL_WC_SUCCESS);
	expect(&a, 2, FRL_WC_SUCCESS);
	publish_now();
	ck_assert(find_qp(&ports[0], frl_qp_num(a.qp), &qp));
	ck_assert_int_eq(qp.type, FRL_QPT_RC);
	ck_assert_int_eq(qp.state, FRL_QPS_RTS);
	ck_assert_int_eq(qp.wait, PAGE_WAIT_NOTHING);
	ck_assert_uint_eq(qp.dest_qpn, frl_qp_num(b.qp));
	ck_assert_int_eq(memcmp(qp.remote_ip, &b.device->attr.ip, 16), 0);
	ck_assert_uint_eq(qp.tx_bytes, MESSAGE);
	ck_assert_uint_ge(qp.rx_packets, 1);
	ck_assert_uint_ne(qp.last_rx_ns, 0);
	ck_assert_uint_ne(qp.rtt_ns, 0);
	ck_assert_uint_eq(qp.send_psn, qp.acked_psn);
	ck_assert_uint_eq(qp.error[0], 0);
	ck_assert_uint_ge(counter(&ports[0], "tx_packets"), 1);
	ck_assert_uint_eq(counter(&ports[1], "bytes_placed"), MESSAGE);
	ck_assert_uint_ne(atomic_load(&ports[0].page->published_ns), 0);
	extra = add_qp(&a);
	publish_now();
	ck_assert_uint_eq(count_qps(&ports[0]), 2);
	frl_qp_destroy(extra);
	publish_now();
	ck_assert_uint_eq(count_qps(&ports[0]), 1);
	/* Its peer does not drive its device, and posts nothing. */
	send_message(3);
	expect_wait(&ports[0], a.qp, PAGE_WAIT_PROGRESS);
	frl_progress(a.device);
	expect_wait(&ports[0], a.qp, PAGE_WAIT_ACK);
	close_end(&a);
	read_close(&ports[0]);
	close_end(&b);
	read_close(&ports[1]);
}
END_TEST

START_TEST(many)
{
	struct frl_qp *qps[MANY_QPS];
	struct known port;
	struct page_qp qp;

	open_end(&a, false, FRL_PROGRESS_THREAD);
	fake_greet(&fake);
	read_port(&port);
	for (unsigned i = 0; i < MANY_QPS; i++)
		qps[i] = add_qp(&a);
	publish_now();
	ck_assert_uint_eq(count_qps(&port), MANY_QPS + 1);
	for (unsigned i = 0; i < MANY_QPS; i++) {
		ck_assert(find_qp(&port, frl_qp_num(qps[i]), &qp));
		frl_qp_destroy(qps[i]);
	}
	publish_now();
	ck_assert_uint_eq(count_qps(&port), 1);
	close_end(&a);
	read_close(&port);
}
END_TEST

static void write_fail_qp(uint32_t port, uint32_t qpn)
{
	Ctl__FailQp message = CTL__FAIL_QP__INIT;
	Ctl__Envelope envelope;
	char reason[] = "an operator said so";

	envelope_init(&envelope);
	message.port = port;
	message.qpn = qpn;
	message.error = ECANCELED;
	message.reason = reason;
	envelope.body_case = CTL__ENVELOPE__BODY_FAIL_QP;
	envelope.fail_qp = &message;
	fake_write(&fake, &envelope);
}

START_TEST(killed)
{
	struct frl_async_event event;
	struct known ports[2];
	struct page_qp qp;
	struct frl_wc wc;
	char text[80];

	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	connect_both();
	fake_greet(&fake);
	read_port(&ports[0]);
	read_port(&ports[1]);
	post_recv(9, 0, MESSAGE, false);
	ck_assert_str_eq(frl_qp_error(b.qp, text, sizeof(text)), "");
	/* No such port, no such queue pair. */
	write_fail_qp(99, frl_qp_num(b.qp));
	write_fail_qp(ports[1].number, frl_qp_num(b.qp) ^ 0x40000);
	write_fail_qp(ports[1].number, frl_qp_num(b.qp));
	ok(frl_get_async_event(b.device, FAKE_MS, &event));
	ck_assert_int_eq(event.type, FRL_EVENT_QP_FATAL);
	ck_assert_ptr_eq(event.qp, b.qp);
	ck_assert_int_eq(frl_poll_cq(b.cq, 1, &wc), 1);
	ck_assert_int_eq(wc.status, FRL_WC_WR_FLUSH_ERR);
	ck_assert_str_eq(frl_qp_error(b.qp, text, sizeof(text)), "an operator said so");
	publish_now();
	ck_assert(find_qp(&ports[1], frl_qp_num(b.qp), &qp));
	ck_assert_int_eq(qp.state, FRL_QPS_ERR);
	ck_assert_int_eq(qp.wait, PAGE_WAIT_ERROR);
	ck_assert_str_eq(qp.error, "an operator said so");
	ck_assert_uint_ne(qp.error_ns, 0);
	close_end(&a);
	read_close(&ports[0]);
	close_end(&b);
	read_close(&ports[1]);
}
END_TEST

START_TEST(told_again)
{
	struct known port, again;

	open_end(&a, false, FRL_PROGRESS_INLINE);
	fake_greet(&fake);
	read_port(&port);
	forget(&port);
	fake_greet(&fake); /* the connection before it ends */
	read_port(&again);
	ck_assert_uint_eq(again.number, port.number);
	ck_assert(!again.has_lease);
	publish_now();
	ck_assert_uint_eq(count_qps(&again), 1);
	close_end(&a);
	read_close(&again);
}
END_TEST

START_TEST(required)
{
	uint32_t number, same;
	struct known port;

	fake_close(&fake);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	ck_assert_ptr_null(a.device->publication);
	fake_listen(&fake);
	ok(publish_require(a.device, &number));
	ok(publish_require(a.device, &same));
	ck_assert_uint_eq(number, same);
	fake_greet(&fake);
	read_port(&port);
	ck_assert_uint_eq(port.number, number);
	ok(publish_require(a.device, &same));
	ck_assert_uint_eq(number, same);
	close_end(&a);
	read_close(&port);
}
END_TEST

static struct frl_device_config leased_config(void)
{
	struct frl_device_config config;

	frl_device_config_init(&config);
	config.fabric = "eth-test";
	config.progress = FRL_PROGRESS_INLINE;
	return config;
}

struct opener {
	pthread_t thread;
	struct frl_device *device;
	int rc;
	char why[300];
};

static void *open_leased(void *arg)
{
	struct frl_device_config config = leased_config();
	struct opener *opener = arg;

	opener->rc = frl_device_open(&config, &opener->device);
	snprintf(opener->why, sizeof(opener->why), "%s", frl_last_error());
	return NULL;
}

/* Up to the daemon's answer. */
static void start_opening(struct opener *opener, struct known *port)
{
	*opener = (struct opener){ .rc = 1 };
	ck_assert_int_eq(pthread_create(&opener->thread, NULL, open_leased, opener), 0);
	fake_greet(&fake);
	read_open(port);
	ck_assert_str_eq(port->fabric, "eth-test");
	ck_assert(!port->has_lease);
}

static void end_opening(struct opener *opener, int rc)
{
	pthread_join(opener->thread, NULL);
	ck_assert_msg(opener->rc == rc, "%d instead of %d: %s", opener->rc, rc, opener->why);
}

static char devargs[] = "net_null0,no-rx=1", ip[] = "10.1.1.5/24", fabric[] = "eth-test";
static uint8_t mac[] = { 2, 0, 0, 1, 2, 3 };

static Ctl__Lease good_lease(void)
{
	Ctl__Lease lease = CTL__LEASE__INIT;

	lease.fabric = fabric;
	lease.devargs = devargs;
	lease.ip = ip;
	lease.mac = (ProtobufCBinaryData){ sizeof(mac), mac };
	lease.path_mtu = 1024;
	lease.qpn_first = QPN_FIRST;
	lease.qpn_count = QPN_COUNT;
	lease.id = 4242;
	return lease;
}

static void check_leased_device(struct frl_device *device)
{
	struct frl_qp_config config = { .max_send_wr = 1, .max_recv_wr = 1 };
	struct frl_device_attr attr;
	struct frl_qp *qps[QPN_COUNT + 1];
	struct frl_pd *pd;
	struct frl_cq *cq;

	frl_device_query(device, &attr);
	ck_assert_str_eq(attr.fabric, "eth-test");
	ck_assert_str_eq(attr.port, devargs);
	ck_assert_uint_eq(attr.path_mtu, 1024);
	ck_assert_int_eq(memcmp(attr.mac, mac, sizeof(mac)), 0);
	ck_assert_int_eq(attr.ip.bytes[15], 5);
	ok(frl_pd_create(device, &pd));
	ok(frl_cq_create(device, 8, &cq));
	config.send_cq = config.recv_cq = cq;
	for (unsigned i = 0; i < QPN_COUNT; i++) {
		ok(frl_qp_create(pd, &config, &qps[i]));
		ck_assert_uint_eq(frl_qp_num(qps[i]), QPN_FIRST + i);
	}
	refused(frl_qp_create(pd, &config, &qps[QPN_COUNT]), -ENOSPC, "number");
	/* The one that is free again. */
	frl_qp_destroy(qps[1]);
	ok(frl_qp_create(pd, &config, &qps[1]));
	ck_assert_uint_eq(frl_qp_num(qps[1]), QPN_FIRST + 1);
	for (unsigned i = 0; i < QPN_COUNT; i++)
		frl_qp_destroy(qps[i]);
	ok(frl_cq_destroy(cq));
	ok(frl_pd_destroy(pd));
}

START_TEST(leased)
{
	Ctl__Lease lease = good_lease();
	struct opener opener;
	struct known port, again;

	start_opening(&opener, &port);
	answer_open(port.open_seq, &lease);
	end_opening(&opener, 0);
	read_description(&port);
	ck_assert_str_eq(port.device, devargs);
	ck_assert_str_eq(port.address, "10.1.1.5/24");
	check_leased_device(opener.device);
	/* The daemon dies; the lease goes on with the next one. */
	forget(&port);
	fake_greet(&fake);
	read_open(&again);
	ck_assert_uint_eq(again.number, port.number);
	ck_assert(again.has_lease);
	ck_assert_uint_eq(again.lease_id, 4242);
	answer_open(again.open_seq, &lease);
	read_description(&again);
	ok(frl_device_close(opener.device));
	read_close(&again);
	fake_expect_end(&fake);
}
END_TEST

/* Something that fails with the device. */
static struct frl_qp *make_qp(
	struct frl_device *device, struct frl_pd **ret_pd, struct frl_cq **ret_cq)
{
	struct frl_qp_config config = { .max_send_wr = 1, .max_recv_wr = 1 };
	struct frl_qp_attr attr = { .state = FRL_QPS_INIT, .port_num = 1 };
	struct frl_qp *qp;

	ok(frl_pd_create(device, ret_pd));
	ok(frl_cq_create(device, 8, ret_cq));
	config.send_cq = config.recv_cq = *ret_cq;
	ok(frl_qp_create(*ret_pd, &config, &qp));
	ok(frl_qp_modify(
		qp, &attr, FRL_QP_STATE | FRL_QP_PKEY_INDEX | FRL_QP_PORT | FRL_QP_ACCESS_FLAGS));
	return qp;
}

static void check_revoked(struct frl_device *device, struct frl_qp *qp, const char *why)
{
	struct frl_async_event event;
	struct frl_device_attr attr;
	char text[200];
	uint32_t number;

	ok(frl_get_async_event(device, FAKE_MS, &event));
	if (event.type == FRL_EVENT_QP_FATAL)
		ok(frl_get_async_event(device, FAKE_MS, &event));
	ck_assert_int_eq(event.type, FRL_EVENT_DEVICE_FATAL);
	frl_device_query(device, &attr);
	ck_assert_int_eq(attr.port_state, FRL_PORT_DOWN);
	ck_assert_int_eq(qp->engine.core.state, FRL_QPS_ERR);
	ck_assert_ptr_nonnull(strstr(frl_qp_error(qp, text, sizeof(text)), why));
	refused(publish_require(device, &number), -ENETDOWN, "eth-test");
}

/* The daemon dies; the next one does not go on with the lease, or gives another one. */
START_TEST(lease_ended)
{
	Ctl__Lease lease = good_lease();
	char another[] = "10.1.1.6/24";
	struct opener opener;
	struct known port, again;
	struct frl_qp *qp;
	struct frl_pd *pd;
	struct frl_cq *cq;

	start_opening(&opener, &port);
	answer_open(port.open_seq, &lease);
	end_opening(&opener, 0);
	read_description(&port);
	qp = make_qp(opener.device, &pd, &cq);
	forget(&port);
	fake_greet(&fake);
	read_open(&again);
	read_description(&again);
	lease.ip = another;
	if (_i == 0)
		fake_failure(&fake, again.open_seq, EBUSY, "10.1.1.5 is process 7's");
	else
		answer_open(again.open_seq, &lease);
	check_revoked(opener.device, qp, _i == 0 ? "process 7" : another);
	if (_i == 1)
		read_close(&again);
	forget(&again);
	frl_qp_destroy(qp);
	ok(frl_cq_destroy(cq));
	ok(frl_pd_destroy(pd));
	/* It is nothing that a third one should hear of. */
	fake_greet(&fake);
	publish_now();
	ok(frl_device_close(opener.device));
	fake_expect_end(&fake);
}
END_TEST

START_TEST(no_lease)
{
	struct opener opener;
	struct known port;

	start_opening(&opener, &port);
	fake_failure(&fake, port.open_seq, EBUSY, "all 4 ports of eth-test are leased");
	end_opening(&opener, -EBUSY);
	ck_assert_ptr_nonnull(strstr(opener.why, "all 4 ports"));
	fake_expect_end(&fake);
}
END_TEST

/* The port cannot be opened: it is given back. */
START_TEST(bad_port)
{
	Ctl__Lease lease = good_lease();
	struct opener opener;
	char nonsense[] = "net_nonsense0";
	struct known port;

	lease.devargs = nonsense;
	start_opening(&opener, &port);
	answer_open(port.open_seq, &lease);
	end_opening(&opener, -ENODEV);
	ck_assert_ptr_nonnull(strstr(opener.why, nonsense));
	read_close(&port);
	fake_expect_end(&fake);
}
END_TEST

START_TEST(empty_lease)
{
	struct opener opener;
	struct known port;

	start_opening(&opener, &port);
	answer_open(port.open_seq, NULL);
	end_opening(&opener, -EPROTO);
	read_close(&port);
}
END_TEST

START_TEST(daemon_dies_meanwhile)
{
	struct opener opener;
	struct known port;

	start_opening(&opener, &port);
	fake_close(&fake);
	end_opening(&opener, -ENOTCONN);
	fake_listen(&fake);
}
END_TEST

START_TEST(contradictions)
{
	struct frl_device_config config = leased_config();
	struct frl_device *device;

	config.port = devargs;
	refused(frl_device_open(&config, &device), -EINVAL, "FRL_FABRIC");
	config.port = NULL;
	config.ip = ip;
	refused(frl_device_open(&config, &device), -EINVAL, "FRL_FABRIC");
	config.fabric = "local";
	config.ip = NULL;
	fake_stop_listening(&fake);
	ok(frl_device_open(&config, &device));
	ok(frl_device_close(device));
}
END_TEST

/* The protocol's reasons, and those from elsewhere. */
START_TEST(reasons)
{
	char text[200];

	fake_stop_listening(&fake);
	open_end(&a, false, FRL_PROGRESS_INLINE);
	open_end(&b, false, FRL_PROGRESS_INLINE);
	qp_fail_with(a.qp, ECONNRESET, "not connected yet");
	ck_assert_int_eq(a.qp->engine.core.state, FRL_QPS_RESET);
	ck_assert_str_eq(frl_qp_error(a.qp, text, sizeof(text)), "");
	connect_both();
	qp_fail_with(a.qp, ECONNRESET, NULL);
	ck_assert_int_eq(a.qp->engine.core.state, FRL_QPS_ERR);
	ck_assert_str_eq(frl_qp_error(a.qp, text, sizeof(text)), strerror(ECONNRESET));
	/* The first one stays; cut where there is no room. */
	qp_fail_with(a.qp, ECANCELED, "another");
	ck_assert_str_eq(frl_qp_error(a.qp, text, 5), "Conn");
	/* What the link tells is less than what the daemon knows. */
	close_end(&a);
	for (unsigned i = 0; i < PATIENCE && b.qp->engine.core.state != FRL_QPS_ERR; i++)
		frl_progress(b.device);
	ck_assert_ptr_nonnull(strstr(frl_qp_error(b.qp, text, sizeof(text)), "link"));
	qp_fail_with(b.qp, ECONNRESET, "process 123 (x) on host y has ended");
	ck_assert_ptr_nonnull(strstr(frl_qp_error(b.qp, text, sizeof(text)), "process 123"));
	ok(frl_qp_modify(b.qp, &(struct frl_qp_attr){ .state = FRL_QPS_RESET }, FRL_QP_STATE));
	ck_assert_str_eq(frl_qp_error(b.qp, text, sizeof(text)), "");
	close_end(&b);
}
END_TEST

static void setup(void)
{
	fake_listen(&fake);
}

static void teardown(void)
{
	fake_close(&fake);
}

int main(void)
{
	Suite *suite = suite_create("publish");
	TCase *tcase = tcase_create("publish");
	SRunner *runner;
	int failed;

	fake_folder();
	runner = srunner_create(suite);
	suite_add_tcase(suite, tcase);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, nobody_to_tell);
	tcase_add_test(tcase, told);
	tcase_add_test(tcase, page);
	tcase_add_test(tcase, many);
	tcase_add_test(tcase, killed);
	tcase_add_test(tcase, told_again);
	tcase_add_test(tcase, required);
	tcase_add_test(tcase, leased);
	tcase_add_loop_test(tcase, lease_ended, 0, 2);
	tcase_add_test(tcase, no_lease);
	tcase_add_test(tcase, bad_port);
	tcase_add_test(tcase, empty_lease);
	tcase_add_test(tcase, daemon_dies_meanwhile);
	tcase_add_test(tcase, contradictions);
	tcase_add_test(tcase, reasons);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	fake_remove_folder();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
