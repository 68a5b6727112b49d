/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs all cases, in the same order on all ranks: by algorithm (each has a communicator),
 * operation, type, reduction, wire type, root, and size.
 */
#include "tools/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/number.h"
#include "tools/common/random.h"

enum { EXPLANATION = 4000 };

/* Cases that differ only in their count. */
struct group {
	struct bench_case c; /* without its count */
	bool is_printed, is_refused;
};

typedef int (*visit_fn)(struct bench *b, struct group *group);

static bool has(uint32_t set, int value)
{
	return set >> value & 1;
}

static size_t count_of(const struct bench *b, const struct bench_case *c, size_t i, uint64_t size)
{
	const struct bench_options *o = b->options;

	if (o->n_counts)
		return o->counts[i];
	return bench_count(c->op, c->dtype, o->job.ranks, size);
}

/* Calls `visit` with every count of a group, once for sizes that round to the same count. */
static int for_each_count(struct bench *b, struct group *group, visit_fn visit)
{
	const struct bench_options *o = b->options;
	size_t last = SIZE_MAX, n = o->n_counts ? o->n_counts : SIZE_MAX;
	uint64_t size = o->min;
	int rc = 0;

	if (group->c.op == FRL_BARRIER) {
		group->c.count = 0;
		return visit(b, group);
	}
	for (size_t i = 0; i < n && size <= o->max && !rc; i++) {
		group->c.count = count_of(b, &group->c, i, size);
		if (o->n_counts || group->c.count != last)
			rc = visit(b, group);
		last = group->c.count;
		size *= o->n_counts ? 1 : o->factor;
	}
	return rc;
}

static int for_each_root(struct bench *b, struct group *group, visit_fn visit)
{
	int ranks = b->options->job.ranks, root = b->options->root, rc = 0;

	if (!bench_op_has_root(group->c.op)) {
		group->c.root = -1;
		return for_each_count(b, group, visit);
	}
	for (int r = 0; r < ranks && !rc; r++) {
		group->c.root = r;
		if (root == BENCH_ALL_ROOTS || root == r)
			rc = for_each_count(b, group, visit);
	}
	return rc;
}

static int for_each_wire(struct bench *b, struct group *group, visit_fn visit)
{
	const struct bench_options *o = b->options;
	int rc = 0;

	for (int wire = 0; wire < FRL_WIRES && !rc; wire++) {
		group->c.wire = (enum frl_wire)wire;
		group->is_printed = group->is_refused = false;
		if (!has(o->wires, wire) ||
			!bench_combines(group->c.op, group->c.dtype, group->c.redop, group->c.wire))
			continue;
		rc = for_each_root(b, group, visit);
		bench_values_free(&b->values); /* the values are for one group */
		b->has_values = false;
	}
	return rc;
}

static int for_each_redop(struct bench *b, struct group *group, visit_fn visit)
{
	int rc = 0;

	for (int redop = 0; redop <= FRL_OPS && !rc; redop++) {
		group->c.redop = (enum frl_op)redop;
		if (redop == FRL_OPS || has(b->options->redops, redop))
			rc = for_each_wire(b, group, visit);
	}
	return rc;
}

/* Visits all groups of an algorithm. A barrier has no type and is visited once. */
static int for_each_group(struct bench *b, enum frl_algo algo, visit_fn visit)
{
	const struct bench_options *o = b->options;
	int rc = 0;

	for (int op = 0; op < BENCH_OPS && !rc; op++) {
		for (int dtype = 0; has(o->ops, op) && dtype < FRL_DTYPES && !rc; dtype++) {
			struct group group = {
				.c = { .op = op, .dtype = (enum frl_dtype)dtype, .algo = algo }
			};

			if (!has(o->dtypes, dtype))
				continue;
			rc = for_each_redop(b, &group, visit);
			if (op == FRL_BARRIER)
				break;
		}
	}
	return rc;
}

/* ---- operations on a case */

static int find_longest(struct bench *b, struct group *group)
{
	size_t bytes = frl_dtype_size(group->c.dtype);

	for (int place = 0; place < 2; place++) {
		struct bench_layout l;
		size_t send, recv;

		if (place == 1 && !bench_op_has_in_place(group->c.op))
			break;
		bench_lay_out(&group->c, b->session->rank, b->options->job.ranks, place, &l);
		send = (l.send_at + l.send_count) * bytes;
		recv = (l.recv_at + l.recv_count) * bytes;
		if (place == 1)
			recv = send > recv ? send : recv;
		else if (send > b->longest_send)
			b->longest_send = send;
		if (recv > b->longest_recv)
			b->longest_recv = recv;
	}
	return 0;
}

static int keep_row(struct bench *b, const struct bench_row *row)
{
	if (b->n_rows == b->rows_room) {
		size_t room = b->rows_room * 2 + 64;
		struct bench_row *rows = realloc(b->rows, room * sizeof(*rows));

		if (!rows) {
			say("no memory");
			return -ENOMEM;
		}
		b->rows = rows;
		b->rows_room = room;
	}
	b->rows[b->n_rows++] = *row;
	return 0;
}

static void explain(const struct bench *b)
{
	struct frl_collective collective;
	char text[EXPLANATION], *next = text;

	bench_fill_collective(b, &b->slots[0], &collective);
	if (b->c.op == BENCH_SENDRECV ||
		frl_comm_explain(b->session->comm, &collective, text, sizeof(text)) < 0)
		return;
	printf("# %zu elements:\n", b->c.count);
	for (char *line; (line = strsep(&next, "\n")) && *line;)
		printf("#   %s\n", line);
}

/*
 * Returns whether the library uses the requested algorithm. It replaces an algorithm that does not
 * support a case, and the row would then have the wrong name. All ranks return the same.
 */
static bool is_possible(const struct bench *b)
{
	const char *name = frl_algo_name(b->c.algo);
	struct frl_collective collective;
	char text[EXPLANATION], *next = text;

	if (b->c.algo == FRL_ALGO_AUTO)
		return true;
	if (b->c.op == BENCH_SENDRECV || b->options->job.ranks == 1)
		return false;
	bench_fill_collective(b, &b->slots[0], &collective);
	if (frl_comm_explain(b->session->comm, &collective, text, sizeof(text)) < 0)
		return false;
	for (char *line; (line = strsep(&next, "\n"));)
		if (strstr(line, "<-"))
			return strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ' ';
	return false;
}

static int show_row(struct bench *b, struct group *group, const struct bench_row *row)
{
	const struct bench_options *o = b->options;
	bool wrong = row->blocks[0].wrong || row->blocks[1].wrong;

	if (bench_prints_table(o) && (!o->quiet || wrong)) {
		if (!group->is_printed)
			bench_print_group(&row->c);
		group->is_printed = true;
		if (o->explain)
			explain(b);
		bench_print_row(row);
	}
	return keep_row(b, row);
}

/* Selects one of `sample` cases. All ranks return the same. */
static bool is_sampled(const struct bench *b, const struct bench_case *c)
{
	const uint64_t key[] = { b->options->seed, (uint64_t)c->op, c->dtype, c->redop, c->wire,
		c->algo, (uint64_t)(c->root + 1), c->count };

	return train_digest(0, key, sizeof(key)) % b->options->sample == 0;
}

static int make_values(struct bench *b)
{
	int rc;

	if (b->has_values)
		return 0;
	b->values = (struct bench_values){
		.ranks = b->options->job.ranks,
		.dtype = b->c.dtype,
		.redop = b->c.redop,
		.wire = b->c.wire,
		.random = b->options->random,
		.seed = b->options->seed,
	};
	rc = bench_values_make(&b->values);
	if (rc)
		say("no memory");
	else
		number_store(b->scalar, b->values.elem_size, b->values.scalars[b->session->rank]);
	b->has_values = true;
	return rc;
}

/* Counts a refused case, and prints the library's reason once per group. */
static void count_refused(struct bench *b, struct group *group)
{
	char text[160];

	b->refused++;
	if (group->is_refused || b->session->rank != 0 || !bench_prints_table(b->options))
		return;
	group->is_refused = true;
	bench_describe(&b->c, text, sizeof(text));
	printf("#\n# left out: %s: %s\n", text, frl_last_error());
}

static int measure_places(struct bench *b, struct group *group, struct bench_row *row)
{
	int rc = 0;

	for (int place = 0; place < 2 && !rc; place++) {
		/* Operations without an in-place form are always measured in the first block. */
		if (bench_op_has_in_place(b->c.op) ? !b->options->places[place] : place == 1)
			continue;
		bench_lay_out(&b->c, b->session->rank, b->options->job.ranks, place, &b->layout);
		bench_check_place(b);
		if (!is_possible(b)) {
			b->unable++;
			continue;
		}
		rc = bench_measure(b, &row->blocks[place]);
		if (rc == -ENOTSUP) {
			count_refused(b, group);
			rc = 0;
		}
	}
	if (rc) {
		char text[160];

		bench_describe(&b->c, text, sizeof(text));
		say_failure(rc, "%s of %zu elements failed", text, b->c.count);
	}
	return rc;
}

static int measure_row(struct bench *b, struct group *group)
{
	struct bench_row row = { .c = group->c };
	int rc;

	if (!is_sampled(b, &group->c)) {
		b->unsampled++;
		return 0;
	}
	b->c = group->c;
	row.size = bench_size(&b->c, b->options->job.ranks);
	rc = make_values(b);
	if (!rc)
		rc = measure_places(b, group, &row);
	if (!rc && b->session->rank == 0 && (row.blocks[0].measured || row.blocks[1].measured))
		rc = show_row(b, group, &row);
	return rc;
}

static int connect_with(const struct bench *b, enum frl_algo algo)
{
	return session_connect_with(b->session, b->options->sets_algo ? frl_algo_name(algo) : NULL);
}

int bench_memory_check(const struct bench_options *o)
{
	uint64_t there = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	int first = o->job.rank < 0 ? 0 : o->job.rank;
	int end = o->job.rank < 0 ? o->job.ranks : first + 1;
	char needed_text[16], there_text[16];
	uint64_t needed = 0;

	for (int rank = first; rank < end; rank++) {
		struct session session = { .options = &o->job, .rank = rank };
		struct bench b = { .options = o, .session = &session };

		for_each_group(&b, FRL_ALGO_AUTO, find_longest);
		bench_check_size(&b);
		needed += b.slot_size * o->in_flight;
	}
	if (needed <= there)
		return 0;
	say("the buffers need %s and this machine has %s of memory: lower --min and --max, --count "
	    "or --inflight",
		format_bytes(needed, needed_text), format_bytes(there, there_text));
	return -ENOMEM;
}

int bench_sweep(struct bench *b)
{
	const struct bench_options *o = b->options;
	int rc;

	for_each_group(b, FRL_ALGO_AUTO, find_longest);
	rc = bench_check_allocate(b);
	if (!rc && b->session->rank == 0 && bench_prints_table(o))
		bench_print_heading(b);
	for (int algo = 0; algo < FRL_ALGOS && !rc; algo++) {
		if (!has(o->algos, algo))
			continue;
		rc = connect_with(b, (enum frl_algo)algo);
		for (uint64_t i = 0; i < o->repeat && !rc; i++)
			rc = for_each_group(b, (enum frl_algo)algo, measure_row);
		if (!rc) {
			frl_comm_destroy(b->session->comm);
			b->session->comm = NULL;
		}
	}
	return rc;
}
