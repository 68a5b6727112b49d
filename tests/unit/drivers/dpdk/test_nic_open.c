/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening ports over NICs that DPDK drives: names, MTUs, packet buffers and signals. */
#include <check.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#include <ferrule/error.h>
#include <rte_alarm.h>

#include "tests/unit/drivers/dpdk/nic_fixture.h"
#include "tests/fixtures/program.h"

static uint32_t kernels_mtu;
static int pool_fails = -1; /* which of the functions that make pools, with pool_error; -1: none */
static int pool_error;

int __wrap_interface_mtu(const char *name, uint32_t *ret_mtu);
int __wrap_interface_mtu(const char *name, uint32_t *ret_mtu)
{
	*ret_mtu = kernels_mtu;
	return 0;
}

static void setup(void)
{
	nic = (struct nic_double){ 0 };
	nic_go_physical(false);
	nic_devargs = "nic_double0";
	pool_fails = -1;
}

static void close_port(void)
{
	nic_port->ops->close(nic_port);
}

/* ---- MTU */

/* Some drivers use the configuration, some the call. */
START_LOOP_TEST(mtu_is_set, 3)
{
	nic.has_no_set_mtu = _i == 1;
	nic.is_vdev = _i == 2;
	nic_must_open();
	ck_assert_uint_eq(nic.mtu, PAYLOAD + 84);
	ck_assert_uint_eq(nic.set_mtu, _i == 0 ? PAYLOAD + 84 : 0);
	close_port();
}
END_TEST

/* The NIC is the kernel's, too; loopback stands for its interface. */
static const struct {
	uint32_t kernels, max_frame;
} kernel_rows[] = { { 1500, 1514 }, { 4180, 4194 }, { 9000, 9014 } };

START_LOOP_TEST(mtu_of_the_kernel, ROWS(kernel_rows))
{
	nic.interface = if_nametoindex("lo");
	kernels_mtu = kernel_rows[_i].kernels;
	nic_must_open();
	ck_assert_uint_eq(nic.mtu, kernels_mtu);
	ck_assert_uint_eq(nic.set_mtu, 0);
	ck_assert_uint_eq(nic_port->caps.max_frame, kernel_rows[_i].max_frame);
	ck_assert_uint_ge(rte_pktmbuf_data_room_size(nic.pool) - RTE_PKTMBUF_HEADROOM,
		nic_port->caps.max_frame);
	close_port();
}
END_TEST

/* ---- names */

/* EAL knows a device by its full address only. There is none with this one. */
START_LOOP_TEST(short_addresses, 3)
{
	static const char *const rows[][2] = {
		{ "ff:1f.7", "0000:ff:1f.7" },
		{ "ff:1f.7,mac=02:00:00:00:00:01,a=b", "0000:ff:1f.7,mac=02:00:00:00:00:01,a=b" },
		{ "0000:FF:1f.7,a=b", "0000:ff:1f.7,a=b" },
	};

	nic_devargs = rows[_i][0];
	nic_must_open();
	ck_assert_str_eq(nic.devargs, rows[_i][1]);
	close_port();
}
END_TEST

/* ---- packet buffers */

struct rte_mempool *__real_rte_mempool_create_empty(const char *name, unsigned int n,
	unsigned int size, unsigned int cache, unsigned int private, int socket,
	unsigned int flags);
struct rte_mempool *__wrap_rte_mempool_create_empty(const char *name, unsigned int n,
	unsigned int size, unsigned int cache, unsigned int private, int socket,
	unsigned int flags);
struct rte_mempool *__wrap_rte_mempool_create_empty(const char *name, unsigned int n,
	unsigned int size, unsigned int cache, unsigned int private, int socket, unsigned int flags)
{
	rte_errno = pool_error;
	if (pool_fails == 0)
		return NULL;
	return __real_rte_mempool_create_empty(name, n, size, cache, private, socket, flags);
}

struct rte_mempool *__real_rte_pktmbuf_pool_create_by_ops(const char *name, unsigned int n,
	unsigned int cache, uint16_t private, uint16_t room, int socket, const char *ops);
struct rte_mempool *__wrap_rte_pktmbuf_pool_create_by_ops(const char *name, unsigned int n,
	unsigned int cache, uint16_t private, uint16_t room, int socket, const char *ops);
struct rte_mempool *__wrap_rte_pktmbuf_pool_create_by_ops(const char *name, unsigned int n,
	unsigned int cache, uint16_t private, uint16_t room, int socket, const char *ops)
{
	rte_errno = pool_error;
	if (pool_fails == 1)
		return NULL;
	return __real_rte_pktmbuf_pool_create_by_ops(name, n, cache, private, room, socket, ops);
}

int __real_rte_memzone_free(const struct rte_memzone *zone);
int __wrap_rte_memzone_free(const struct rte_memzone *zone);
int __wrap_rte_memzone_free(const struct rte_memzone *zone)
{
	rte_errno = EBUSY;
	return __real_rte_memzone_free(zone);
}

/* The receive buffers', or the send buffers' pool. */
START_LOOP_TEST(no_packet_buffers, 2)
{
	pool_fails = _i;
	pool_error = ENOMEM;
	ck_assert_int_eq(nic_open_port(), -ENOMEM);
	ck_assert_msg(strstr(frl_last_error(), "(Cannot allocate memory)"), "%s", frl_last_error());
	pool_fails = -1;
	nic_must_open();
	close_port();
}
END_TEST

/* The driver of the free list that DPDK makes for each pool is not installed. */
START_TEST(no_ring_driver)
{
	struct rte_mempool_ops *ops = rte_mempool_ops_table.ops;

	while (strcmp(ops->name, "ring_mp_mc") != 0)
		ck_assert(ops++ < rte_mempool_ops_table.ops + RTE_MEMPOOL_MAX_OPS_IDX - 1);
	ops->name[0] = 'x';
	ck_assert_int_eq(nic_open_port(), -ENODEV);
	ck_assert_msg(
		strstr(frl_last_error(), "(Debian: librte-mempool-ring"), "%s", frl_last_error());
	ops->name[0] = 'r';
	nic_must_open();
	close_port();
}
END_TEST

/* ---- signals */

static unsigned n_signals;

static void count_signal(int number)
{
	n_signals++;
}

/* net_virtio_user and net_vhost write to sockets that the other end may close. */
START_TEST(no_signal_while_opening)
{
	static const char *const calls[] = { "rte_dev_probe", "rte_eth_dev_configure",
		"rte_eth_dev_start" };
	void (*before)(int) = signal(SIGPIPE, count_signal);

	n_signals = 0;
	nic.is_vdev = true;
	for (size_t i = 0; i < RTE_DIM(calls); i++) {
		nic.raises = nic.fails = calls[i];
		ck_assert_int_lt(nic_open_port(), 0);
		ck_assert_msg(n_signals == 0, "%s", calls[i]);
	}
	/* A signal of another sender arrives. */
	raise(SIGPIPE);
	ck_assert_uint_eq(n_signals, 1);
	signal(SIGPIPE, before);
	nic.raises = nic.fails = NULL;
	nic_must_open();
	close_port();
}
END_TEST

/* ---- closing */

static void take_thread(void *thread)
{
	*(pthread_t *)thread = pthread_self();
}

/* net_memif frees what its interrupt handler may still use: the thread of handlers closes it. */
START_LOOP_TEST(closes_beside_no_handler, 2)
{
	static pthread_t closes;
	void (*before)(int) = signal(SIGPIPE, count_signal);

	closes = pthread_self();
	n_signals = 0;
	nic_must_open();
	if (_i) {
		nic.driver = "net_memif";
		ck_assert_int_eq(rte_eal_alarm_set(1, take_thread, &closes), 0);
	}
	nic.raises = "rte_eth_dev_close";
	close_port();
	nic.raises = NULL;
	ck_assert(pthread_equal(nic.closer, closes));
	ck_assert(!pthread_equal(closes, pthread_self()) == (_i == 1));
	ck_assert_uint_eq(n_signals, 0);
	signal(SIGPIPE, before);
}
END_TEST

TEST_MAIN(nic_open)
{
	return run_suite_unforked(all_tests(setup, NULL));
}
