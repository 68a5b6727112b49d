/* SPDX-License-Identifier: BSD-3-Clause */
/* The peer program's commands that make, change and destroy objects. They are numbered by kind. */
#include "tests/interop/peer/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OBJECTS = 64 };

static const char *const kind_names[KINDS] = {
	[KIND_QP] = "qp",
	[KIND_AH] = "ah",
	[KIND_SRQ] = "srq",
	[KIND_MW] = "mw",
	[KIND_MR] = "mr",
	[KIND_CQ] = "cq",
};

static int (*const destroy_object[KINDS])(void *object) = {
	[KIND_QP] = nic_qp_destroy,
	[KIND_AH] = nic_ah_destroy,
	[KIND_SRQ] = nic_srq_destroy,
	[KIND_MW] = nic_mw_destroy,
	[KIND_MR] = nic_mr_destroy,
	[KIND_CQ] = nic_cq_destroy,
};

static void *objects[KINDS][MAX_OBJECTS];
static uint64_t mr_shift[MAX_OBJECTS]; /* address in the region's space, minus the offset */

/* Returns the index for the next object of a kind; MAX_OBJECTS: there is none. */
static unsigned free_number(enum kind kind)
{
	unsigned i = 0;

	while (i < MAX_OBJECTS && objects[kind][i])
		i++;
	return i;
}

void *object_from(const struct line *line, const char *name, enum kind kind)
{
	uint64_t number = arg_number(line, name, MAX_OBJECTS);

	return number < MAX_OBJECTS ? objects[kind][number] : NULL;
}

void *region(unsigned number, uint64_t offset, uint64_t *ret_addr)
{
	if (number >= MAX_OBJECTS || !objects[KIND_MR][number])
		return NULL;
	*ret_addr = mr_shift[number] + offset;
	return objects[KIND_MR][number];
}

static int make_mr(const struct line *line, void **ret_object)
{
	uint64_t off = arg_number(line, "off", 0), len = arg_number(line, "len", ARENA_SIZE);
	uint64_t iova = arg_number(line, "iova", 0);
	uint32_t access = (uint32_t)arg_number(line, "access", 0);
	int err;

	if (off > ARENA_SIZE || len > ARENA_SIZE - off)
		return -EFAULT;
	err = nic_mr_create(
		arena + off, len, arg_text(line, "iova") ? &iova : NULL, access, ret_object);
	if (err)
		return err;
	mr_shift[free_number(KIND_MR)] = arg_text(line, "iova") ? iova - off
								: (uint64_t)(uintptr_t)arena;
	answer(" lkey=%u rkey=%u", nic_mr_lkey(*ret_object), nic_mr_rkey(*ret_object));
	return 0;
}

static int make_mw(void **ret_object)
{
	int err = nic_mw_create(ret_object);

	if (!err)
		answer(" rkey=%u", nic_mw_rkey(*ret_object));
	return err;
}

static int make_qp(const struct line *line, void **ret_object)
{
	struct nic_qp_config config = {
		.type = (int)arg_number(line, "type", 2),
		.send_cq = object_from(line, "scq", KIND_CQ),
		.recv_cq = object_from(line, "rcq", KIND_CQ),
		.srq = object_from(line, "srq", KIND_SRQ),
		.max_send_wr = (uint32_t)arg_number(line, "send_wr", 64),
		.max_recv_wr = (uint32_t)arg_number(line, "recv_wr", 64),
		.max_sge = (uint32_t)arg_number(line, "sge", 4),
		.max_inline = (uint32_t)arg_number(line, "inline", 64),
	};
	int err;

	if (!config.send_cq || !config.recv_cq)
		return -EINVAL;
	err = nic_qp_create(&config, ret_object);
	if (!err)
		answer(" qpn=%u", nic_qp_num(*ret_object));
	return err;
}

static int ah_from(const struct line *line, struct nic_ah_attr *ret_attr)
{
	const char *gid = arg_text(line, "gid");

	memset(ret_attr, 0, sizeof(*ret_attr));
	ret_attr->sgid_index = (uint8_t)arg_number(line, "sgid", 0);
	ret_attr->hop_limit = (uint8_t)arg_number(line, "hop", 64);
	ret_attr->traffic_class = (uint8_t)arg_number(line, "tclass", 0);
	ret_attr->flow_label = (uint32_t)arg_number(line, "flow", 0);
	return !gid || inet_pton(AF_INET6, gid, ret_attr->dgid) == 1 ? 0 : -EINVAL;
}

static int make_ah(const struct line *line, void **ret_object)
{
	struct nic_ah_attr attr;
	int err = ah_from(line, &attr);

	return err ? err : nic_ah_create(&attr, ret_object);
}

static int make(const struct line *line, enum kind kind)
{
	unsigned number = free_number(kind);
	void *object = NULL;
	int err = -EINVAL;

	if (number == MAX_OBJECTS)
		return -ENOSPC;
	switch (kind) {
	case KIND_QP: err = make_qp(line, &object); break;
	case KIND_AH: err = make_ah(line, &object); break;
	case KIND_SRQ:
		err = nic_srq_create((uint32_t)arg_number(line, "wr", 64),
			(uint32_t)arg_number(line, "sge", 4),
			(uint32_t)arg_number(line, "limit", 0), &object);
		break;
	case KIND_MW: err = make_mw(&object); break;
	case KIND_MR: err = make_mr(line, &object); break;
	case KIND_CQ: err = nic_cq_create((uint32_t)arg_number(line, "depth", 256), &object); break;
	case KINDS: break;
	}
	if (err)
		return err;
	objects[kind][number] = object;
	answer(" id=%u", number);
	return 0;
}

static int destroy(const struct line *line)
{
	for (int kind = 0; kind < KINDS; kind++) {
		uint64_t number = arg_number(line, kind_names[kind], MAX_OBJECTS);
		int err;

		if (number >= MAX_OBJECTS || !objects[kind][number])
			continue;
		err = destroy_object[kind](objects[kind][number]);
		if (!err)
			objects[kind][number] = NULL;
		return err;
	}
	return -EINVAL;
}

/* Destroys all objects and clears the memory. */
static int reset(void)
{
	int result = 0;

	for (int kind = 0; kind < KINDS; kind++)
		for (int i = 0; i < MAX_OBJECTS; i++) {
			int err;

			if (!objects[kind][i])
				continue;
			err = destroy_object[kind](objects[kind][i]);
			objects[kind][i] = NULL;
			if (err && !result)
				result = err;
		}
	memset(arena, 0, ARENA_SIZE);
	while (nic_async_event(0) >= 0)
		;
	return result;
}

/* An argument of "modify", and its bit of the mask. */
static const struct {
	const char *name;
	unsigned bit;
} attributes[] = {
	{ "state", 1 << 0 },
	{ "sqd_notify", 1 << 2 },
	{ "access", 1 << 3 },
	{ "pkey", 1 << 4 },
	{ "port", 1 << 5 },
	{ "qkey", 1 << 6 },
	{ "gid", 1 << 7 },
	{ "mtu", 1 << 8 },
	{ "timeout", 1 << 9 },
	{ "retry", 1 << 10 },
	{ "rnr_retry", 1 << 11 },
	{ "rq_psn", 1 << 12 },
	{ "rd_atomic", 1 << 13 },
	{ "rnr_timer", 1 << 15 },
	{ "sq_psn", 1 << 16 },
	{ "dest_rd_atomic", 1 << 17 },
	{ "dest_qpn", 1 << 20 },
};

static int modify(const struct line *line)
{
	struct nic_qp_attr attr = {
		.state = (int)arg_number(line, "state", 0),
		.access_flags = (uint32_t)arg_number(line, "access", 0),
		.qkey = (uint32_t)arg_number(line, "qkey", 0),
		.path_mtu = (uint32_t)arg_number(line, "mtu", 0),
		.dest_qpn = (uint32_t)arg_number(line, "dest_qpn", 0),
		.rq_psn = (uint32_t)arg_number(line, "rq_psn", 0),
		.sq_psn = (uint32_t)arg_number(line, "sq_psn", 0),
		.max_rd_atomic = (uint8_t)arg_number(line, "rd_atomic", 0),
		.max_dest_rd_atomic = (uint8_t)arg_number(line, "dest_rd_atomic", 0),
		.min_rnr_timer = (uint8_t)arg_number(line, "rnr_timer", 0),
		.timeout = (uint8_t)arg_number(line, "timeout", 0),
		.retry_cnt = (uint8_t)arg_number(line, "retry", 0),
		.rnr_retry = (uint8_t)arg_number(line, "rnr_retry", 0),
		.en_sqd_async_notify = arg_number(line, "sqd_notify", 0) != 0,
	};
	void *qp = object_from(line, "qp", KIND_QP);
	unsigned mask = 0;

	if (!qp || ah_from(line, &attr.ah))
		return -EINVAL;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (arg_text(line, attributes[i].name))
			mask |= attributes[i].bit;
	return nic_qp_modify(qp, &attr, mask);
}

static int attach(const struct line *line)
{
	void *qp = object_from(line, "qp", KIND_QP);
	struct nic_ah_attr attr;

	return qp && !ah_from(line, &attr) ? nic_qp_attach(qp, attr.dgid) : -EINVAL;
}

static int state(const struct line *line)
{
	void *qp = object_from(line, "qp", KIND_QP);
	int rc = qp ? nic_qp_state(qp) : -EINVAL;

	if (rc < 0)
		return rc;
	answer(" state=%d", rc);
	return 0;
}

int object_command(const struct line *line)
{
	for (int kind = 0; kind < KINDS; kind++)
		if (!strcmp(line->command, kind_names[kind]))
			return make(line, (enum kind)kind);
	if (!strcmp(line->command, "destroy"))
		return destroy(line);
	if (!strcmp(line->command, "reset"))
		return reset();
	if (!strcmp(line->command, "modify"))
		return modify(line);
	if (!strcmp(line->command, "attach"))
		return attach(line);
	if (!strcmp(line->command, "state"))
		return state(line);
	if (!strcmp(line->command, "srq_limit")) {
		void *srq = object_from(line, "id", KIND_SRQ);

		return srq ? nic_srq_set_limit(srq, (uint32_t)arg_number(line, "limit", 0))
			   : -EINVAL;
	}
	return UNKNOWN_COMMAND;
}
