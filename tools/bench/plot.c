/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: draws the rows as two diagrams, one above the other, with gnuplot. The script and
 * its numbers are in a file without a name. The picture comes back through a pipe, so that the
 * output file is written completely or not at all.
 */
#include "tools/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/common/outfile.h"

extern char **environ;

enum {
	MAX_SERIES = 200,
	N_COLORS = 10,
	NAME_SIZE = 700,
	/* Pixels: the diagrams, and the names of the lines beside them. */
	DIAGRAM_WIDTH = 850,
	KEY_LEFT = 870,
	LETTER_WIDTH = 9, /* more than the average width */
	SAMPLE_WIDTH = 60,
	LINE_HEIGHT = 24,
	TITLE_HEIGHT = 63,
	MIN_WIDTH = 1200,
	MIN_HEIGHT = 900,
};

bool bench_plot_is_possible(void)
{
	const char *path = getenv("PATH");

	while (path && *path) {
		size_t length = strcspn(path, ":");
		char name[4096];

		if ((size_t)snprintf(name, sizeof(name), "%.*s/gnuplot", (int)length, path) <
				sizeof(name) &&
			access(name, X_OK) == 0)
			return true;
		path += length + (path[length] == ':');
	}
	return false;
}

static const struct bench_block *block_of(const struct bench_row *row)
{
	return &row->blocks[row->blocks[0].iters ? 0 : 1];
}

/* Returns whether a row can be drawn on logarithmic axes. */
static bool is_drawn(const struct bench_row *row)
{
	const struct bench_block *block = block_of(row);

	return row->size > 0 && block->iters > 0 && block->us > 0 && block->busbw > 0;
}

static bool is_one_series(const struct bench_case *a, const struct bench_case *b)
{
	return a->op == b->op && a->dtype == b->dtype && a->redop == b->redop &&
		a->wire == b->wire && a->algo == b->algo && a->root == b->root;
}

/* ---- lines and their names */

/* A line: rows of one set that differ only in size. */
struct series {
	const struct bench_results *set;
	unsigned dash;             /* by set */
	size_t number;             /* number within the set; selects the colour */
	const struct bench_row *c; /* its first row */
};

struct picture {
	struct series series[MAX_SERIES];
	size_t n_series;
};

static void find_series(struct picture *p, const struct bench_results *set, unsigned dash)
{
	size_t before = p->n_series, k;

	for (size_t i = 0; i < set->n_rows && p->n_series < MAX_SERIES; i++) {
		const struct bench_row *row = &set->rows[i];

		for (k = before; k < p->n_series; k++)
			if (is_one_series(&p->series[k].c->c, &row->c))
				break;
		if (k == p->n_series && is_drawn(row))
			p->series[p->n_series++] = (struct series){
				.set = set, .dash = dash, .number = k - before, .c = row
			};
	}
}

/* Parts of a line's name. Parts that all lines have in common are in the title. */
enum field { OF_FILE, OF_OP, OF_DTYPE, OF_REDOP, OF_WIRE, OF_ALGO, OF_ROOT, OF_RANKS, FIELDS };

static void name_field(const struct series *s, enum field field, char text[static 80])
{
	const struct bench_case *c = &s->c->c;

	*text = '\0';
	switch (field) {
	case OF_FILE: snprintf(text, 80, "%s", s->set->name); break;
	case OF_OP: snprintf(text, 80, "%s", bench_op_name(c->op)); break;
	case OF_DTYPE: snprintf(text, 80, "%s", bench_dtype_name(c)); break;
	case OF_REDOP:
		if (c->redop != FRL_OPS)
			snprintf(text, 80, "%s", frl_op_name(c->redop));
		break;
	case OF_WIRE:
		if (c->wire != FRL_WIRE_SAME)
			snprintf(text, 80, "wire %s", frl_wire_name(c->wire));
		break;
	case OF_ALGO: snprintf(text, 80, "algorithm %s", frl_algo_name(c->algo)); break;
	case OF_ROOT:
		if (c->root > 0)
			snprintf(text, 80, "root %d", c->root);
		break;
	case OF_RANKS: snprintf(text, 80, "%d ranks", s->set->ranks); break;
	case FIELDS: break;
	}
	/*
	 * Replace characters with a meaning for gnuplot: it would run a program between backquotes.
	 */
	for (char *at = text; *at; at++)
		if (*at == '"' || *at == '`' || *at == '\\' || (unsigned char)*at < ' ')
			*at = '?';
}

static bool is_common(const struct picture *p, enum field field)
{
	char first[80], other[80];

	name_field(&p->series[0], field, first);
	for (size_t k = 1; k < p->n_series; k++) {
		name_field(&p->series[k], field, other);
		if (strcmp(first, other) != 0)
			return false;
	}
	return true;
}

/*
 * Writes the fields that all lines have in common, or those that differ. Returns the name's length.
 */
static int name_series(
	char name[static NAME_SIZE], const struct picture *p, const struct series *s, bool common)
{
	int length = 0;

	*name = '\0';
	for (int field = 0; field < FIELDS; field++) {
		char text[80];

		name_field(s, (enum field)field, text);
		if (!*text || is_common(p, (enum field)field) != common)
			continue;
		length += snprintf(name + length, (size_t)(NAME_SIZE - length), "%s%s",
			length ? ", " : "", text);
	}
	return length;
}

/* ---- gnuplot's script */

static void write_plot(FILE *out, const struct picture *p, int column)
{
	char name[NAME_SIZE];

	fprintf(out, "plot ");
	for (size_t k = 0; k < p->n_series; k++) {
		fprintf(out, "%s$series%zu using 1:%d with linespoints linetype %zu dashtype %u ",
			k ? ", " : "", k, column, p->series[k].number + 1, p->series[k].dash);
		name_series(name, p, &p->series[k], false);
		if (p->n_series == 1)
			fprintf(out, "notitle");
		else
			fprintf(out, "title \"%s\"", name);
	}
	fprintf(out, "\n");
}

/* Writes labels with binary units. gnuplot's own ones have a gap before the plain unit. */
static void write_tics(FILE *out)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };

	fprintf(out, "set xtics (");
	for (int i = 0; i <= 40; i += 2)
		fprintf(out, "%s\"%d %s\" %llu", i ? ", " : "", 1 << i % 10, units[i / 10],
			1ULL << i);
	fprintf(out, ")\n");
}

/*
 * Sets colours that are dark enough on white and distinct for colour-blind readers; the points
 * differ too. Lines with the same colour have different points.
 */
static void write_style(FILE *out)
{
	static const char *const colors[N_COLORS] = { "0072b2", "d55e00", "009e73", "cc79a7",
		"e69f00", "56b4e9", "000000", "8c564b", "7f3fbf", "708238" };
	static const int points[N_COLORS] = { 7, 5, 9, 11, 13, 6, 4, 8, 10, 12 };

	for (int i = 0; i < MAX_SERIES; i++)
		fprintf(out,
			"set linetype %d linecolor rgb \"#%s\" pointtype %d pointsize 0.9 "
			"linewidth 1.7\n",
			i + 1, colors[i % N_COLORS], points[(i + i / N_COLORS) % N_COLORS]);
	fprintf(out,
		"set linetype cycle 0\n" /* by default the ninth equals the first */
		"set logscale x 2\n"
		"set logscale y 10\n"
		"set format y \"%%g\"\n"
		"set mytics 10\n"
		"set grid xtics ytics mytics linetype 1 linecolor rgb \"#d0d0d0\" linewidth 0.5, "
		"linetype 1 linecolor rgb \"#ececec\" linewidth 0.5\n"
		"set border 3\n"
		"set tics nomirror\n"
		"set offsets graph 0.02, graph 0.02, 0, 0\n");
	write_tics(out);
}

static void write_data(FILE *out, const struct picture *p)
{
	for (size_t k = 0; k < p->n_series; k++) {
		const struct series *s = &p->series[k];
		const struct bench_row *end = s->set->rows + s->set->n_rows;

		fprintf(out, "$series%zu << END\n", k);
		for (const struct bench_row *row = s->c; row < end; row++)
			if (is_drawn(row) && is_one_series(&s->c->c, &row->c))
				fprintf(out, "%zu %.9g %.9g\n", row->size, block_of(row)->busbw,
					block_of(row)->us);
		fprintf(out, "END\n");
	}
}

/* Sets a size that has room for all names. */
static void write_size(FILE *out, const struct picture *p)
{
	int width = MIN_WIDTH, height = TITLE_HEIGHT + LINE_HEIGHT * (int)p->n_series;
	char name[NAME_SIZE];

	for (size_t k = 0; k < p->n_series; k++) {
		int length = name_series(name, p, &p->series[k], false);
		int needed = KEY_LEFT + SAMPLE_WIDTH + LETTER_WIDTH * length;

		width = needed > width ? needed : width;
	}
	if (height < MIN_HEIGHT)
		height = MIN_HEIGHT;
	fprintf(out,
		"set terminal pngcairo noenhanced size %d,%d font \"sans,11\" background "
		"\"white\"\n"
		"set lmargin at screen %g\n"
		"set rmargin at screen %g\n"
		"set key at screen %g, screen %g left top Left reverse samplen 3 spacing 1.2 "
		"maxrows %zu\n",
		width, height, 100.0 / width,
		p->n_series > 1 ? (double)DIAGRAM_WIDTH / width : 0.97, (double)KEY_LEFT / width,
		1 - (double)TITLE_HEIGHT / height, p->n_series);
}

/*
 * Returns the script, which the caller frees. Returns NULL if there is nothing to draw or no
 * memory.
 */
static char *make_script(const struct picture *p, const char *where)
{
	char *script = NULL, title[NAME_SIZE];
	size_t size;
	FILE *out = p->n_series > 0 ? open_memstream(&script, &size) : NULL;

	if (!out)
		return NULL;
	write_data(out, p);
	write_size(out, p);
	name_series(title, p, &p->series[0], true);
	fprintf(out, "set multiplot layout 2,1 title \"%s%s\" font \"sans,13\"\n", title, where);
	write_style(out);
	/* List the names once, for both diagrams. */
	fprintf(out,
		"set xlabel \"size\"\n"
		"set ylabel \"bus bandwidth (GB/s)\"\n");
	write_plot(out, p, 2);
	fprintf(out,
		"unset key\n"
		"set ylabel \"time of one operation (us)\"\n");
	write_plot(out, p, 3);
	fprintf(out, "unset multiplot\n");
	if (fclose(out)) {
		free(script);
		return NULL;
	}
	return script;
}

/* Reads up to the end of the file. The caller frees *ret_bytes. */
static int read_all(int fd, char **ret_bytes, size_t *ret_size)
{
	char buffer[4096];
	size_t size;
	FILE *out = open_memstream(ret_bytes, &size);
	ssize_t n;

	if (!out)
		return -ENOMEM;
	while ((n = read(fd, buffer, sizeof(buffer))) != 0) {
		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			fwrite(buffer, 1, (size_t)n, out);
	}
	if (fclose(out))
		return -ENOMEM;
	*ret_size = size;
	return n < 0 ? -EIO : 0;
}

static int start_gnuplot(int script, int output, pid_t *ret_pid)
{
	char name[] = "gnuplot", *arguments[] = { name, NULL };
	posix_spawn_file_actions_t actions;
	int rc = posix_spawn_file_actions_init(&actions);

	if (rc)
		return -rc;
	rc = posix_spawn_file_actions_adddup2(&actions, script, STDIN_FILENO);
	if (!rc)
		rc = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	if (!rc)
		rc = posix_spawnp(ret_pid, name, &actions, NULL, arguments, environ);
	posix_spawn_file_actions_destroy(&actions);
	return -rc;
}

/* Runs gnuplot with the script and reads the picture. gnuplot prints its own errors. */
static int draw(int script, char **ret_picture, size_t *ret_size)
{
	int pipe_fds[2], status = 0, rc;
	pid_t pid;

	if (pipe2(pipe_fds, O_CLOEXEC))
		return -errno;
	rc = start_gnuplot(script, pipe_fds[1], &pid);
	close(pipe_fds[1]);
	if (!rc) {
		rc = read_all(pipe_fds[0], ret_picture, ret_size);
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			continue;
		if (!rc && (status != 0 || *ret_size == 0))
			rc = -EIO;
	}
	close(pipe_fds[0]);
	return rc;
}

static int draw_script(const char *script, const char *path)
{
	size_t length = strlen(script), size = 0;
	int fd = memfd_create("gnuplot", MFD_CLOEXEC), rc;
	char *picture = NULL;

	if (fd < 0)
		return -errno;
	rc = pwrite(fd, script, length, 0) == (ssize_t)length ? 0 : -EIO;
	if (!rc)
		rc = draw(fd, &picture, &size);
	if (!rc)
		rc = outfile_write(path, (const struct outfile_part[]){ { picture, size } }, 1);
	free(picture);
	close(fd);
	return rc;
}

int bench_plot(const struct bench_results sets[], int n, const char *where, const char *path)
{
	struct picture *picture = calloc(1, sizeof(*picture));
	char *script;
	int rc;

	if (!picture) {
		say("no memory for %s", path);
		return -ENOMEM;
	}
	for (int i = 0; i < n; i++)
		find_series(picture, &sets[i], (unsigned)i + 1);
	script = make_script(picture, where);
	free(picture);
	if (!script) {
		say("there is nothing to plot: no operation with a size was measured");
		return -ENODATA;
	}
	rc = draw_script(script, path);
	if (rc)
		say("gnuplot cannot draw %s: %s", path, strerror(-rc));
	free(script);
	return rc;
}
