/* SPDX-License-Identifier: BSD-3-Clause */
/* ferrule-bench: writes the rows as JSON and as CSV. docs/guide/bench.md describes both formats. */
#include "tools/bench/bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "tools/common/outfile.h"

static const char *redop_of(const struct bench_case *c)
{
	return c->redop == FRL_OPS ? NULL : frl_op_name(c->redop);
}

static json_t *json_block(const struct bench_block *block)
{
	json_t *object;

	if (!block->measured)
		return json_null();
	object = json_pack(
		"{s:I, s:I}", "wrong", (json_int_t)block->wrong, "iters", (json_int_t)block->iters);
	if (!object || !block->iters)
		return object;
	if (json_object_set_new(object, "time_us", json_real(block->us)) ||
		json_object_set_new(object, "algbw_gbps", json_real(block->algbw)) ||
		json_object_set_new(object, "busbw_gbps", json_real(block->busbw))) {
		json_decref(object);
		return NULL;
	}
	return object;
}

static json_t *json_row(const struct bench_row *row)
{
	const struct bench_case *c = &row->c;

	return json_pack("{s:s, s:s, s:s?, s:s, s:s, s:o, s:I, s:I, s:o, s:o}", "op",
		bench_op_name(c->op), "dtype", bench_dtype_name(c), "redop", redop_of(c), "wire",
		frl_wire_name(c->wire), "algo", frl_algo_name(c->algo), "root",
		c->root < 0 ? json_null() : json_integer(c->root), "size", (json_int_t)row->size,
		"count", (json_int_t)c->count, "out_of_place", json_block(&row->blocks[0]),
		"in_place", json_block(&row->blocks[1]));
}

static json_t *json_rails(const struct session *s)
{
	json_t *rails = json_array();

	for (int i = 0; i < s->n_devices && rails; i++) {
		struct frl_device_attr attr;
		struct frl_stats stats;

		frl_device_query(s->devices[i], &attr);
		frl_device_stats(s->devices[i], &stats);
		if (json_array_append_new(rails,
			    json_pack("{s:s, s:b, s:I, s:I, s:I}", "port", attr.port, "up",
				    attr.port_state == FRL_PORT_ACTIVE, "tx_bytes",
				    (json_int_t)stats.tx_bytes, "rx_bytes",
				    (json_int_t)stats.rx_bytes, "retransmits",
				    (json_int_t)stats.retransmits)) == 0)
			continue;
		json_decref(rails);
		rails = NULL;
	}
	return rails;
}

/* Returns the text, which the caller frees, or NULL without memory. */
static char *make_json(const struct bench *b)
{
	const struct session *s = b->session;
	json_t *rows = json_array(), *root;
	char *text = NULL;

	for (size_t i = 0; i < b->n_rows && rows; i++) {
		if (json_array_append_new(rows, json_row(&b->rows[i])) == 0)
			continue;
		json_decref(rows);
		rows = NULL;
	}
	root = json_pack("{s:i, s:s, s:i, s:s, s:i, s:o, s:i, s:b, s:I, s:b, s:o}", "schema",
		BENCH_SCHEMA, "version", FERRULE_VERSION, "ranks", b->options->job.ranks, "port",
		s->attr.port, "path_mtu", (int)s->attr.path_mtu, "rails", json_rails(s),
		"in_flight", (int)b->options->in_flight, "checked", b->options->check, "left_out",
		(json_int_t)(b->refused + b->unable), "alike", b->different == 0, "results", rows);
	if (root)
		text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
	json_decref(root);
	return text;
}

static void write_csv_row(FILE *out, int ranks, const struct bench_row *row, int place)
{
	const struct bench_block *block = &row->blocks[place];
	const struct bench_case *c = &row->c;
	const char *redop = redop_of(c);

	if (!block->measured)
		return;
	fprintf(out, "%s,%s,%s,%s,%s,", bench_op_name(c->op), bench_dtype_name(c),
		redop ? redop : "", frl_wire_name(c->wire), frl_algo_name(c->algo));
	if (c->root >= 0)
		fprintf(out, "%d", c->root);
	fprintf(out, ",%d,%zu,%zu,%s,%" PRIu64 ",", ranks, row->size, c->count,
		place ? "in" : "out", block->iters);
	if (block->iters)
		fprintf(out, "%.9g,%.9g,%.9g", block->us, block->algbw, block->busbw);
	else
		fprintf(out, ",,");
	fprintf(out, ",%" PRIu64 "\n", block->wrong);
}

static char *make_csv(const struct bench *b)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs("op,dtype,redop,wire,algo,root,ranks,size,count,place,iters,time_us,algbw_gbps,"
	      "busbw_gbps,wrong\n",
		out);
	for (size_t i = 0; i < b->n_rows; i++)
		for (int place = 0; place < 2; place++)
			write_csv_row(out, b->options->job.ranks, &b->rows[i], place);
	if (fclose(out)) {
		free(text);
		return NULL;
	}
	return text;
}

static int save(const char *path, char *text)
{
	int rc = 0;

	if (!text) {
		say("no memory for %s", path);
		return -ENOMEM;
	}
	if (strcmp(path, "-") == 0) {
		printf("%s%s", text, *text == '{' ? "\n" : "");
	} else {
		rc = outfile_write(path,
			(const struct outfile_part[]){
				{ text, strlen(text) }, { "\n", *text == '{' ? 1 : 0 } },
			2);
		if (rc)
			say("cannot write %s: %s", path, strerror(-rc));
	}
	free(text);
	return rc;
}

int bench_save(const struct bench *b)
{
	const struct bench_options *o = b->options;
	int json_rc = o->json ? save(o->json, make_json(b)) : 0;
	int csv_rc = o->csv ? save(o->csv, make_csv(b)) : 0;

	return json_rc ? json_rc : csv_rc;
}

static int check_path(const char *path)
{
	int rc;

	if (!path || strcmp(path, "-") == 0)
		return 0;
	rc = outfile_check(path);
	if (rc == -ENOENT)
		say("cannot write %s: its folder does not exist; make it first", path);
	else if (rc)
		say("cannot write %s: %s", path, strerror(-rc));
	return rc;
}

int bench_save_check(const struct bench_options *o)
{
	int rc = check_path(o->json);

	if (!rc)
		rc = check_path(o->csv);
	if (!rc)
		rc = check_path(o->plot);
	if (!rc && o->plot && !bench_plot_is_possible()) {
		say("--plot needs gnuplot, and there is none in PATH: install it (Debian: apt "
		    "install gnuplot-nox), or plot the numbers of --csv with something else");
		rc = -ENOENT;
	}
	return rc;
}
