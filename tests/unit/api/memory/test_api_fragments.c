/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public interface: receives whose payload stays in packet buffers. Over the local fabric; or
 * over Ethernet, where FRL_TEST_ENDS names two ports that are connected with each other:
 * "net_af_packet0,iface=e0 net_af_packet1,iface=e1".
 */
#include "lib/device/soft.h"

#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"

enum {
	FRAMES = 64,
	ROOM = 10 * MESSAGE, /* bytes of the region */
	ROUNDS = 200,
	AT_ONCE = 8,
};

#define NO_BUFFERS "its packets are in no buffers of this process"

static struct frl_fragments *share;
static struct frl_mr *region;
static struct frl_fragment list[AT_ONCE][FRAMES];

/* Memory that a peer may write to, and nobody can. */
static uint8_t *const name = (uint8_t *)(uintptr_t)0x7000000000000040;

static const char *ends(void)
{
	const char *text = getenv("FRL_TEST_ENDS");

	return text && *text ? text : NULL;
}

static void fill(struct end *end)
{
	for (uint32_t i = 0; i < MEMORY; i++)
		end->memory[i] = (uint8_t)(i * 7 + i / 251);
}

/* Number `i` of a and b. */
static void open_on(struct end *end, unsigned i, bool shared)
{
	static char ports[2][128];
	static const char *const ips[] = { "10.1.1.1/24", "10.1.1.2/24" };
	struct frl_device_config config;

	*end = (struct end){ .shared = shared };
	frl_device_config_init(&config);
	config.progress = FRL_PROGRESS_INLINE;
	config.held_frames = FRAMES;
	if (ends()) {
		ck_assert_int_eq(sscanf(ends(), "%127s %127s", ports[0], ports[1]), 2);
		config.port = ports[i];
		config.ip = ips[i];
	}
	ok(frl_device_open(&config, &end->device));
	ok(frl_pd_create(end->device, &end->pd));
	ok(frl_cq_create(end->device, 4 * DEPTH, &end->cq));
	end->memory = shared ? frl_mem_alloc(MEMORY) : calloc(1, MEMORY);
	ck_assert_ptr_nonnull(end->memory);
	fill(end);
	ok(frl_reg_mr(end->pd, end->memory, MEMORY, ALL_ACCESS, &end->mr));
	end->qp = add_qp(end);
	ok(frl_qp_endpoint(end->qp, &end->mine));
}

static void begin(bool shared, uint32_t frames)
{
	open_on(&a, 0, shared);
	open_on(&b, 1, shared);
	connect_both();
	ok(frl_fragments_create(b.pd, frames, &share));
	ok(frl_reg_fragments(
		share, name, ROOM, FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE, &region));
}

static void end(void)
{
	ok(frl_dereg_mr(region));
	ok(frl_fragments_destroy(share));
	finish();
}

/* As many buffers as the message takes. */
static uint32_t frames_of(uint32_t length)
{
	struct frl_qp_attr attr;

	frl_qp_query(a.qp, &attr);
	return (length + attr.path_mtu - 1) / attr.path_mtu;
}

static void expect_write(uint64_t wr_id)
{
	struct frl_recv_wr wr = { .wr_id = wr_id };

	ck_assert_msg(frl_post_recv(b.qp, &wr, 1, NULL) == 1, "%s", frl_last_error());
}

static void post_write(uint64_t wr_id, uint64_t to, uint32_t from, uint32_t length)
{
	struct frl_sge sge = sge_of(&a, from, length);
	struct frl_send_wr wr = send_wr(wr_id, FRL_WR_RDMA_WRITE_WITH_IMM, &sge);

	wr.remote_addr = (uintptr_t)name + to;
	wr.rkey = frl_mr_rkey(region);
	post_send(&wr);
}

static bool is_in_buffers(const struct frl_fragment *fragment)
{
	const uint8_t *start = fragment->addr;
	size_t length;
	void *addr;

	for (unsigned i = 0; frl_fragments_memory(b.pd, i, &addr, &length) == 0; i++)
		if (start >= (uint8_t *)addr &&
			start + fragment->length <= (uint8_t *)addr + length)
			return true;
	return false;
}

/* They are the bytes that a sent from `from`. */
static void check_list(
	const struct frl_fragment from_list[], uint32_t token, uint32_t from, uint32_t length)
{
	size_t bytes = 0, at = 0;
	uint32_t n = 0;

	ok(frl_fragments_count(share, token, &n, &bytes));
	ck_assert_uint_eq(bytes, length);
	ck_assert_uint_eq(n, frames_of(length));
	for (uint32_t i = 0; i < n; i++) {
		const struct frl_fragment *fragment = &from_list[i];

		ck_assert(is_in_buffers(fragment));
		ck_assert_uint_eq(fragment->offset, at);
		ck_assert_int_eq(memcmp(fragment->addr, a.memory + from + at, fragment->length), 0);
		at += fragment->length;
	}
	ck_assert_uint_eq(at, length);
}

START_LOOP_TEST(message, 2)
{
	struct frl_mr_attr attr;
	struct frl_wc wc;
	uint32_t token;

	SOFTWARE_ONLY(NO_BUFFERS);
	begin(_i, FRAMES);
	expect_write(5);
	ok(frl_fragments_arm(
		share, region, name + 100, MESSAGE, list[0], frames_of(MESSAGE), &token));
	post_write(1, 100, 3, MESSAGE);
	wc = expect(&b, 5, FRL_WC_SUCCESS);
	ck_assert_int_eq(wc.opcode, FRL_WC_RECV_RDMA_WITH_IMM);
	ck_assert_uint_eq(wc.byte_len, MESSAGE);
	expect(&a, 1, FRL_WC_SUCCESS);
	check_list(list[0], token, 3, MESSAGE);
	frl_mr_query(region, &attr);
	ck_assert_int_eq(attr.gpu, -1);
	refused(frl_dereg_mr(region), -EBUSY, "armed");
	refused(frl_fragments_destroy(share), -EBUSY, "registered");
	refused(frl_pd_destroy(b.pd), -EBUSY, "objects");
	ok(frl_fragments_release(share, token));
	refused(frl_fragments_release(share, token), -EINVAL, "token");
	end();
}
END_TEST

/* Several at once, of all buffers, given back in another order. */
START_LOOP_TEST(pipeline, 2)
{
	static const unsigned order[AT_ONCE] = { 3, 0, 1, 7, 2, 6, 4, 5 };
	uint32_t tokens[AT_ONCE], length = MESSAGE, each;

	SOFTWARE_ONLY(NO_BUFFERS);
	begin(_i, FRAMES);
	while (AT_ONCE * frames_of(length) > FRAMES)
		length /= 2;
	each = frames_of(length);
	for (unsigned round = 0; round < ROUNDS / AT_ONCE; round++) {
		uint32_t none;

		for (unsigned i = 0; i < AT_ONCE; i++) {
			expect_write(i);
			ok(frl_fragments_arm(share, region, name + i * MESSAGE, length, list[i],
				each, &tokens[i]));
			post_write(i, i * MESSAGE, (round * AT_ONCE + i) * 10, length);
		}
		ck_assert_int_eq(frl_fragments_arm(share, region, name + 9 * MESSAGE, 8, list[0],
					 FRAMES - AT_ONCE * each + 1, &none),
			-EAGAIN);
		for (unsigned i = 0; i < AT_ONCE; i++) {
			expect(&b, i, FRL_WC_SUCCESS);
			check_list(list[i], tokens[i], (round * AT_ONCE + i) * 10, length);
		}
		for (unsigned i = 0; i < AT_ONCE; i++)
			expect(&a, i, FRL_WC_SUCCESS);
		for (unsigned i = 0; i < AT_ONCE; i++)
			ok(frl_fragments_release(share, tokens[order[i]]));
	}
	end();
}
END_TEST

/* Memory that the sender shares is read in place as soon as this end has mapped it. From then on
 * the payload of a first packet lies as copies do, and not behind its headers. */
START_TEST_IF(in_place, !ends())
{
	uint64_t limit_ns = hang_limit_ns();
	bool is_copy = false;
	uint32_t token;

	SOFTWARE_ONLY(NO_BUFFERS);
	begin(true, FRAMES);
	while (!is_copy && may_wait(limit_ns)) {
		expect_write(5);
		ok(frl_fragments_arm(
			share, region, name, MESSAGE, list[0], frames_of(MESSAGE), &token));
		post_write(1, 0, 0, MESSAGE);
		expect(&b, 5, FRL_WC_SUCCESS);
		expect(&a, 1, FRL_WC_SUCCESS);
		is_copy = (uintptr_t)list[0][0].addr % 64 == 0;
		/* They are the sender's again. */
		memset(a.memory, 0xee, MESSAGE);
		for (uint32_t k = 0; k < 1000; k++)
			ck_assert_uint_eq(
				((const uint8_t *)list[0][0].addr)[k], (uint8_t)(k * 7 + k / 251));
		fill(&a);
		check_list(list[0], token, 0, MESSAGE);
		ok(frl_fragments_release(share, token));
	}
	ck_assert(is_copy);
	end();
}
END_TEST

/* A setting that was not agreed on: the queue pair reports the error. */
START_LOOP_TEST(refused_write, 2)
{
	char text[256] = "";
	uint32_t token;

	SOFTWARE_ONLY(NO_BUFFERS);
	begin(false, FRAMES);
	expect_write(5);
	if (_i)
		ok(frl_fragments_arm(share, region, name, 8, list[0], 1, &token));
	post_write(1, _i ? 1 : 0, 0, 8);
	expect(&b, 5, FRL_WC_LOC_PROT_ERR);
	frl_qp_error(b.qp, text, sizeof(text));
	ck_assert_msg(strstr(text, "frl_fragments_arm"), "%s", text);
	if (_i)
		ok(frl_fragments_release(share, token));
	end();
}
END_TEST

START_TEST_IF(arguments, !ends())
{
	const uint32_t access = FRL_ACCESS_LOCAL_WRITE | FRL_ACCESS_REMOTE_WRITE;
	struct frl_fragments *second = NULL;
	struct frl_device_attr attr;
	struct frl_device_config config;
	struct frl_device *device;
	struct frl_mr *mr = NULL;
	uint32_t token, n;
	size_t length;
	void *addr;

	SOFTWARE_ONLY(NO_BUFFERS);
	begin(false, FRAMES / 2);
	frl_device_query(b.device, &attr);
	ck_assert_uint_eq(attr.held_frames, FRAMES);
	refused(frl_fragments_create(b.pd, FRAMES / 2 + 1, &second), -ENOSPC, "held_frames");
	refused(frl_fragments_create(b.pd, 0, &second), -EINVAL, "number");
	ok(frl_fragments_create(b.pd, FRAMES / 2, &second));
	refused(frl_reg_fragments(second, name, 8, access | FRL_ACCESS_REMOTE_READ, &mr), -EINVAL,
		"access");
	refused(frl_reg_fragments(second, name, 8, FRL_ACCESS_LOCAL_WRITE, &mr), -EINVAL, "access");
	refused(frl_reg_fragments(second, name, SIZE_MAX, access, &mr), -EINVAL, "wraps");
	refused(frl_reg_fragments(second, name, 0, access, &mr), -EINVAL, "length");
	refused(frl_fragments_arm(second, region, name, 8, list[0], 1, &token), -EINVAL, "share");
	refused(frl_fragments_arm(share, b.mr, b.memory, 8, list[0], 1, &token), -EINVAL, "share");
	refused(frl_fragments_arm(share, region, name - 1, 8, list[0], 1, &token), -EINVAL,
		"inside");
	refused(frl_fragments_arm(share, region, name + 8, ROOM - 7, list[0], 1, &token), -EINVAL,
		"inside");
	refused(frl_fragments_arm(share, region, name, SIZE_MAX, list[0], 1, &token), -EINVAL,
		"inside");
	refused(frl_fragments_arm(share, region, name, 8, NULL, 1, &token), -EINVAL, "list");
	refused(frl_fragments_arm(share, region, name, 8, list[0], FRAMES / 2 + 1, &token), -EINVAL,
		"only 32");
	ok(frl_fragments_arm(share, region, name, 8, list[0], 1, &token));
	refused(frl_fragments_arm(share, region, name, 8, list[0], 1, &token), -EBUSY, "armed");
	refused(frl_fragments_count(share, token + 1, &n, &length), -EINVAL, "token");
	refused(frl_rereg_mr(region, FRL_REREG_ACCESS, NULL, NULL, 0, access), -EINVAL,
		"frl_reg_fragments");
	ok(frl_fragments_memory(b.pd, 0, &addr, &length));
	ck_assert_uint_ge(length, (size_t)FRAMES * attr.path_mtu);
	ck_assert_int_eq(frl_fragments_memory(b.pd, 1000, &addr, &length), -ENOENT);
	ok(frl_fragments_destroy(second));
	ok(frl_fragments_destroy(NULL));
	ok(frl_fragments_release(share, token));
	end();
	frl_device_config_init(&config);
	config.held_frames = FRL_MAX_HELD_FRAMES + 1;
	refused(frl_device_open(&config, &device), -EINVAL, "held_frames");
}
END_TEST

/* A device without packet buffers for the application. */
START_TEST_IF(none, !ends())
{
	struct frl_fragments *wanted;
	struct frl_device *device;
	struct frl_pd *pd;
	size_t length;
	void *addr;

	SOFTWARE_ONLY(NO_BUFFERS);
	ok(frl_device_open(NULL, &device));
	ok(frl_pd_create(device, &pd));
	refused(frl_fragments_create(pd, 1, &wanted), -ENOSPC, "FRL_HELD_FRAMES");
	ck_assert_int_eq(frl_fragments_memory(pd, 0, &addr, &length), -ENOENT);
	ok(frl_pd_destroy(pd));
	ok(frl_device_close(device));
}
END_TEST

TEST_MAIN(api_fragments)
{
	return run_rows(all_tests(NULL, close_ends));
}
