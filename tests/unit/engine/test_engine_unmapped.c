/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is unmapped while packets wait in the queue of a link: the request or READ that they
 * belong to fails, once, and the queue goes on. */
#include <string.h>

#include <sys/mman.h>

#include "lib/base/memory/fault.h"
#include "tests/unit/engine/engine_host.h"

enum { SIZE = 16384, LONG = 3 * HOST_MTU };

static struct region region;
static uint8_t *memory;

/* A second region of the host. */
static void add_region(struct host *to)
{
	fault_start();
	memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	region = to->region;
	region.addr = memory;
	region.iova = (uintptr_t)memory;
	region.length = SIZE;
	region.port_mem = (void *)memory;
	region.access |= FRL_ACCESS_MAY_UNMAP;
	ck_assert_int_eq(engine_add_region(&to->engine, &region), 0);
}

static void unmap_region(void)
{
	ck_assert_int_eq(munmap(memory, SIZE), 0);
}

static void post_from_region(unsigned i, uint64_t wr_id, uint32_t length)
{
	struct frl_sge sge = { memory, length, region.key };
	struct frl_send_wr wr = { .wr_id = wr_id,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1 };
	const char *why = "";

	ck_assert_msg(
		qp_post_send(&host->qps[i].qp.core, &wr, &(struct wr_objects){ 0 }, &why) == 0,
		"%s", why);
	engine_update(&host->engine, &host->qps[i].qp);
}

static bool is_gone(void)
{
	return atomic_load(&region.is_gone);
}

static const struct host_qp_config kinds[] = {
	{ .type = FRL_QPT_RC },
	{ .type = FRL_QPT_RC, .capabilities = FRL_CAP_NO_ICRC },
	{ .type = FRL_QPT_UC },
};

/* Requests before and behind the one that fails, and of another queue pair. */
START_LOOP_TEST(requests, ROWS(kinds))
{
	bool rc = kinds[_i].type == FRL_QPT_RC;
	bool has_icrc = !kinds[_i].capabilities;

	host_restart(&(struct host_config){ .on_demand = !has_icrc });
	host_add(host, 0, &kinds[_i]);
	host_add(host, 1, &kinds[!has_icrc]);
	add_region(host);
	host->port.room[0] = 0;
	host_post_send(host, 0, 1, LONG, 0);
	post_from_region(0, 2, LONG);
	host_post_send(host, 0, 3, LONG, 0);
	host_poll(host);
	host_post_send(host, 1, 4, LONG, 0);
	host_poll(host);
	unmap_region();
	host->port.room[0] = FAKE_UNLIMITED;
	for (int i = 0; i < 4; i++)
		host_poll(host);
	ck_assert(is_gone());
	if (rc)
		host_acknowledge(host, 0, 2, has_icrc);
	host_acknowledge(host, 1, 2, has_icrc);
	for (int i = 0; i < 4; i++)
		host_poll(host);
	host_expect_wc(&host->cqs[0], 1, FRL_WC_SUCCESS);
	host_expect_wc(&host->cqs[0], 2, FRL_WC_LOC_PROT_ERR);
	host_expect_wc(&host->cqs[0], 3, FRL_WC_WR_FLUSH_ERR);
	host_expect_no_wc(&host->cqs[0]);
	host_expect_wc(&host->cqs[1], 4, FRL_WC_SUCCESS);
	ck_assert(!engine_region_queued(&host->engine, &region));
}
END_TEST

/* Unmapped in the moment before the packet is built: its ICRC cannot be computed. */
START_LOOP_TEST(while_built, 2)
{
	host_restart(&(struct host_config){ .on_demand = _i });
	host_add(host, 0, &kinds[_i]);
	add_region(host);
	post_from_region(0, 2, _i ? 8 : LONG);
	unmap_region();
	for (int i = 0; i < 4; i++)
		host_poll(host);
	ck_assert_uint_eq(host->port.n_sent, 0);
	host_expect_wc(&host->cqs[0], 2, FRL_WC_LOC_PROT_ERR);
}
END_TEST

/* Mapped again before it is found out: nothing fails. */
START_TEST(mapped_again)
{
	host_restart(&(struct host_config){ .on_demand = true });
	host_add(host, 0, &kinds[1]);
	add_region(host);
	post_from_region(0, 2, LONG);
	host->port.room[0] = 0;
	host_poll(host);
	unmap_region();
	/* A driver would have found it out in between. */
	host->port.base.is_unreadable = true;
	ck_assert_ptr_eq(
		mmap(memory, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
		memory);
	host_poll(host);
	ck_assert(!host->port.base.is_unreadable);
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	host_acknowledge(host, 0, 2, false);
	host_poll(host);
	host_expect_wc(&host->cqs[0], 2, FRL_WC_SUCCESS);
	ck_assert(!is_gone());
	unmap_region();
}
END_TEST

/* READs of a peer whose responses wait: short ones, which are copied, and longer ones. */
START_LOOP_TEST(responses, 4)
{
	static const uint32_t lengths[] = { 8, 300, 3000, 100 };
	static const struct host_qp_config config = { .path_mtu = 1024 };
	bool is_late = _i < 3; /* otherwise unmapped before the response is built */
	struct host *peer = host_new(&(struct host_config){ .second = true });
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_READ };

	host_pair(host, 0, peer, 0, &config);
	add_region(host);
	wr.flags = FRL_SEND_SIGNALED;
	wr.remote_addr = (uintptr_t)memory;
	wr.rkey = region.key;
	host_post(peer, 0, wr, 0, lengths[_i], NULL);
	host_poll(peer);
	host_carry(peer, host);
	if (is_late) {
		host->port.room[0] = 0;
		host_poll(host);
	}
	unmap_region();
	host->port.room[0] = FAKE_UNLIMITED;
	host_poll(host);
	host_settle(host, peer);
	/* The payload of a short response was copied before. */
	host_expect_wc(&peer->cqs[0], 1,
		is_late && lengths[_i] <= FRL_MAX_INLINE ? FRL_WC_SUCCESS : FRL_WC_REM_ACCESS_ERR);
	host_free(peer);
}
END_TEST

/* Two queue pairs of one engine. */
START_LOOP_TEST(loopback, 3)
{
	struct frl_send_wr wr = { .wr_id = 1, .opcode = FRL_WR_RDMA_WRITE };
	struct frl_sge sge = { NULL, LONG, 0 };
	const char *why = "";

	host_pair(host, 0, host, 1, NULL);
	add_region(host);
	wr.flags = FRL_SEND_SIGNALED;
	wr.sge = &sge;
	wr.n_sge = 1;
	sge.addr = _i == 0 ? memory : host->memory;
	sge.lkey = _i == 0 ? region.key : host->region.key;
	wr.remote_addr = (uintptr_t)(_i == 0 ? host->memory : memory);
	wr.rkey = _i == 0 ? host->region.key : region.key;
	if (_i == 2)
		wr.opcode = FRL_WR_RDMA_READ;
	ck_assert_int_eq(
		qp_post_send(&host->qps[0].qp.core, &wr, &(struct wr_objects){ 0 }, &why), 0);
	engine_update(&host->engine, &host->qps[0].qp);
	unmap_region();
	for (int i = 0; i < 10; i++)
		host_poll(host);
	host_expect_wc(&host->cqs[0], 1, _i == 0 ? FRL_WC_LOC_PROT_ERR : FRL_WC_REM_ACCESS_ERR);
	host_expect_no_wc(&host->cqs[0]);
}
END_TEST

HOST_TEST_FILE(engine_unmapped)
