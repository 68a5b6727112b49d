/* SPDX-License-Identifier: BSD-3-Clause */
/* Devices whose port the daemon, which is the test, leases to them. */
#include "lib/api/objects.h"
#include "lib/api/publish/publish.h"
#include "lib/device/soft.h"

#include <stdio.h>
#include <unistd.h>

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/unit/api/publish/publish_fixture.h"

enum { QPN_FIRST = 0x12345, QPN_COUNT = 3 };

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

/* Runs up to the daemon's answer. */
static void start_opening(struct opener *opener, struct known *port)
{
	*opener = (struct opener){ .rc = 1 };
	ck_assert_int_eq(pthread_create(&opener->thread, NULL, open_leased, opener), 0);
	fake_greet(&daemon_fake);
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
	/* The port that is free again. */
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
	fake_greet(&daemon_fake);
	read_open(&again);
	ck_assert_uint_eq(again.number, port.number);
	ck_assert(again.has_lease);
	ck_assert_uint_eq(again.lease_id, 4242);
	answer_open(again.open_seq, &lease);
	read_description(&again);
	ok(frl_device_close(opener.device));
	read_close(&again);
	fake_expect_end(&daemon_fake);
}
END_TEST

/* An error that ends with the device. */
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

	ok(frl_get_async_event(device, HANG_MS, &event));
	if (event.type == FRL_EVENT_QP_FATAL)
		ok(frl_get_async_event(device, HANG_MS, &event));
	ck_assert_int_eq(event.type, FRL_EVENT_DEVICE_FATAL);
	frl_device_query(device, &attr);
	ck_assert_int_eq(attr.port_state, FRL_PORT_DOWN);
	ck_assert_int_eq(soft_qp_state(qp), FRL_QPS_ERR);
	ck_assert_ptr_nonnull(strstr(frl_qp_error(qp, text, sizeof(text)), why));
	refused(publish_require(device, &number), -ENETDOWN, "eth-test");
}

/* The daemon dies; the next one does not continue the lease, or gives another one. */
START_LOOP_TEST(lease_ended, 2)
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
	fake_greet(&daemon_fake);
	read_open(&again);
	read_description(&again);
	lease.ip = another;
	if (_i == 0)
		fake_failure(&daemon_fake, again.open_seq, EBUSY, "10.1.1.5 is process 7's");
	else
		answer_open(again.open_seq, &lease);
	check_revoked(opener.device, qp, _i == 0 ? "process 7" : another);
	if (_i == 1)
		read_close(&again);
	forget(&again);
	frl_qp_destroy(qp);
	ok(frl_cq_destroy(cq));
	ok(frl_pd_destroy(pd));
	/* A third daemon gets no report of it. */
	fake_greet(&daemon_fake);
	publish_now();
	ok(frl_device_close(opener.device));
	fake_expect_end(&daemon_fake);
}
END_TEST

START_TEST(no_lease)
{
	struct opener opener;
	struct known port;

	start_opening(&opener, &port);
	fake_failure(&daemon_fake, port.open_seq, EBUSY, "all 4 ports of eth-test are leased");
	end_opening(&opener, -EBUSY);
	ck_assert_ptr_nonnull(strstr(opener.why, "all 4 ports"));
	fake_expect_end(&daemon_fake);
}
END_TEST

static unsigned n_waits;

static void count_waits(enum frl_log_level level, const char *line, void *arg)
{
	n_waits += level == FRL_LOG_WARNING &&
		strstr(line, "waiting for a port of fabric eth-test: its addresses rest") != NULL;
}

/* Addresses are in quarantine: the device waits, logs so once, and asks again; not for hours. */
START_LOOP_TEST(addresses_rest, 2)
{
	Ctl__Failure failure = CTL__FAILURE__INIT;
	Ctl__Lease lease = good_lease();
	struct opener opener;
	struct known port;
	Ctl__Envelope envelope;

	n_waits = 0;
	frl_set_log(count_waits, FRL_LOG_WARNING, NULL);
	start_opening(&opener, &port);
	failure.error = EBUSY;
	failure.text = (char *)"its addresses rest";
	for (int i = 0; i < 3; i++) {
		failure.retry_ms = i == 2 && _i == 1 ? 3600000 : 1;
		envelope_init(&envelope);
		envelope.seq = port.open_seq;
		envelope.body_case = CTL__ENVELOPE__BODY_FAILURE;
		envelope.failure = &failure;
		fake_write(&daemon_fake, &envelope);
		if (i < 2)
			read_open(&port);
	}
	if (_i == 0) {
		read_open(&port);
		answer_open(port.open_seq, &lease);
		end_opening(&opener, 0);
		read_description(&port);
		ok(frl_device_close(opener.device));
		read_close(&port);
		forget(&port);
	} else {
		end_opening(&opener, -EBUSY);
	}
	frl_set_log(NULL, FRL_LOG_WARNING, NULL);
	ck_assert_uint_eq(n_waits, 1);
	fake_expect_end(&daemon_fake);
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
	fake_expect_end(&daemon_fake);
}
END_TEST

/* The device opens no second socket with the same addresses. */
START_TEST(socket_does_not_arrive)
{
	Ctl__Lease lease = good_lease();
	struct opener opener;
	struct known port;

	start_opening(&opener, &port);
	answer_without_its_socket(port.open_seq, &lease);
	end_opening(&opener, -EPROTO);
	ck_assert_ptr_nonnull(strstr(opener.why, "packet socket"));
	read_close(&port);
	fake_expect_end(&daemon_fake);
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
	fake_close(&daemon_fake);
	end_opening(&opener, -ENOTCONN);
	fake_listen(&daemon_fake);
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
	fake_stop_listening(&daemon_fake);
	ok(frl_device_open(&config, &device));
	ok(frl_device_close(device));
}
END_TEST

TEST_MAIN(publish_lease)
{
	fake_folder();
	return run_suite(all_tests(publish_setup, publish_teardown));
}
