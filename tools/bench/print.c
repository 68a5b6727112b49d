/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/bench/bench.h"

#include <inttypes.h>
#include <stdio.h>

const char *bench_dtype_name(const struct bench_case *c)
{
	return c->op == FRL_BARRIER ? "none" : frl_dtype_name(c->dtype);
}

void bench_describe(const struct bench_case *c, char *text, size_t size)
{
	int used = snprintf(text, size, "%s", bench_op_name(c->op));
	const struct {
		bool shown;
		const char *before, *name;
	} parts[] = {
		{ c->op != FRL_BARRIER, " ", frl_dtype_name(c->dtype) },
		{ c->redop != FRL_OPS, " ", c->redop == FRL_OPS ? "" : frl_op_name(c->redop) },
		{ c->wire != FRL_WIRE_SAME, ", wire ", frl_wire_name(c->wire) },
		{ c->algo != FRL_ALGO_AUTO, ", algorithm ", frl_algo_name(c->algo) },
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (parts[i].shown && used >= 0 && (size_t)used < size)
			used += snprintf(text + used, size - (size_t)used, "%s%s", parts[i].before,
				parts[i].name);
}

void bench_print_heading(const struct bench *b)
{
	const struct session *s = b->session;

	printf("# %d rank%s, %s, path MTU %" PRIu32, b->options->job.ranks,
		b->options->job.ranks == 1 ? "" : "s",
		s->attr.local_fabric ? "local fabric" : s->attr.port, s->attr.path_mtu);
	if (s->n_devices > 1)
		printf(", %d rails", s->n_devices);
	if (b->options->in_flight > 1)
		printf(", %" PRIu64 " requests in flight", b->options->in_flight);
	printf("\n# time: mean over ranks of the mean iteration, back to back; algbw = size / "
	       "time; "
	       "busbw = algbw * factor;\n# #wrong: elements, all ranks\n");
	if (b->options->quiet)
		return;
	printf("#\n# %54s   %33s   %33s\n", "", "out-of-place            ",
		"in-place             ");
	printf("# %10s %12s %11s %10s %6s   %9s %7s %7s %7s   %9s %7s %7s %7s\n", "size", "count",
		"type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
		"busbw", "#wrong");
	printf("# %10s %12s %11s %10s %6s   %9s %7s %7s %7s   %9s %7s %7s %7s\n", "(B)",
		"(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)",
		"(GB/s)", "");
	fflush(stdout);
}

void bench_print_group(const struct bench_case *c)
{
	printf("#\n# %s, algorithm %s", bench_op_name(c->op), frl_algo_name(c->algo));
	if (c->wire != FRL_WIRE_SAME)
		printf(", wire %s", frl_wire_name(c->wire));
	printf("\n");
}

static void print_block(const struct bench_block *block)
{
	if (!block->measured)
		printf("   %9s %7s %7s %7s", "-", "-", "-", "-");
	else if (!block->iters)
		printf("   %9s %7s %7s %7" PRIu64, "-", "-", "-", block->wrong);
	else
		printf("   %9.2f %7.3f %7.3f %7" PRIu64, block->us, block->algbw, block->busbw,
			block->wrong);
}

void bench_print_row(const struct bench_row *row)
{
	const struct bench_case *c = &row->c;

	printf("  %10zu %12zu %11s %10s %6d", row->size, c->count, bench_dtype_name(c),
		c->redop == FRL_OPS ? "none" : frl_op_name(c->redop), c->root);
	print_block(&row->blocks[0]);
	print_block(&row->blocks[1]);
	printf("\n");
	fflush(stdout);
}

void bench_print_rails(const struct bench *b)
{
	const struct session *s = b->session;

	for (int i = 0; i < s->n_devices && s->n_devices > 1; i++) {
		struct frl_device_attr attr;
		struct frl_stats stats;
		char sent[16], received[16];

		frl_device_query(s->devices[i], &attr);
		frl_device_stats(s->devices[i], &stats);
		printf("# rail %d of rank 0: %s, %s sent, %s received%s\n", i, attr.port,
			format_bytes(stats.tx_bytes, sent), format_bytes(stats.rx_bytes, received),
			attr.port_state == FRL_PORT_DOWN ? ", down" : "");
	}
}

static bool is_one(uint32_t set)
{
	return (set & (set - 1)) == 0;
}

void bench_say_nothing(const struct bench *b)
{
	const struct bench_options *o = b->options;

	if (b->unable && o->job.ranks == 1)
		say("nothing was measured: one rank needs no algorithm, so there is only --algo "
		    "auto");
	else if (b->unable && is_one(o->ops) && is_one(o->algos))
		say("nothing was measured: with %d ranks here algorithm %s cannot do %s",
			o->job.ranks, frl_algo_name(b->c.algo), bench_op_name(b->c.op));
	else if (b->unable)
		say("nothing was measured: none of the algorithms of --algo can do what was asked "
		    "for");
	else if (b->unsampled)
		say("nothing was measured: --sample %" PRIu64 " has left out all %" PRIu64
		    " cases; a smaller one, or another --seed, leaves some",
			o->sample, b->unsampled);
	else
		say("nothing was measured: Ferrule does none of it");
}

void bench_print_verdict(const struct bench *b)
{
	if (b->unable)
		printf("# %" PRIu64 " left out: their algorithm cannot do them\n", b->unable);
	if (b->refused)
		printf("# %" PRIu64 " left out: Ferrule does not do them\n", b->refused);
	if (b->wrong || b->different)
		printf("# FAILED: %s\n", b->wrong ? "wrong elements" : "results differ");
	else if (!b->measured)
		printf("# FAILED: nothing was measured\n");
	else if (!b->options->check)
		printf("# not checked\n");
	else
		printf("# OK: every result was right (%" PRIu64 ")\n", b->checked);
}
