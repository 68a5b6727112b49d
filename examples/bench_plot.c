/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ferrule-bench: the rows as a picture, two diagrams one above the other, drawn by gnuplot. Its
 * script, with the numbers in it, goes in by a file without a name, the picture comes back through
 * a pipe: so the file is written like all others, wholly or not at all.
 */
#include "examples/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "examples/outfile.h"

extern char **environ;

enum {
	MAX_SERIES = 200,
	MAX_KEYS = 20, /* lines that have a name next to the diagram */
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

/* Does it have a place on logarithmic axes? */
static bool is_drawn(const struct bench_row *row)
{
	return row->size > 0 && block_of(row)->iters > 0;
}

static bool is_one_series(const struct bench_case *a, const struct bench_case *b)
{
	return a->op == b->op && a->dtype == b->dtype && a->redop == b->redop &&
		a->wire == b->wire && a->algo == b->algo && a->root == b->root;
}

/* The first row of each; how many. */
static size_t find_series(const struct bench_row rows[], size_t n, size_t firsts[MAX_SERIES])
{
	size_t found = 0, k;

	for (size_t i = 0; i < n && found < MAX_SERIES; i++) {
		for (k = 0; k < found && !is_one_series(&rows[firsts[k]].c, &rows[i].c); k++)
			continue;
		if (k == found && is_drawn(&rows[i]))
			firsts[found++] = i;
	}
	return found;
}

static void write_plot(FILE *out, const struct bench_row rows[], const size_t firsts[],
	size_t n_series, int column)
{
	fprintf(out, "plot ");
	for (size_t k = 0; k < n_series; k++) {
		const struct bench_case *c = &rows[firsts[k]].c;
		char text[160];

		fprintf(out, "%s$series%zu using 1:%d with linespoints ", k ? ", " : "", k, column);
		if (k >= MAX_KEYS) {
			fprintf(out, "notitle");
			continue;
		}
		bench_describe(c, text, sizeof(text));
		fprintf(out, "title \"%s", text);
		if (c->root > 0)
			fprintf(out, ", root %d", c->root);
		fprintf(out, "\"");
	}
	fprintf(out, "\n");
}

/* gnuplot knows no binary units without a gap in front of the plain one. */
static void write_tics(FILE *out)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };

	fprintf(out, "set xtics (");
	for (int i = 0; i <= 40; i += 2)
		fprintf(out, "%s\"%d %s\" %llu", i ? ", " : "", 1 << i % 10, units[i / 10],
			1ULL << i);
	fprintf(out, ")\n");
}

/* To be freed. NULL: nothing to draw, or no memory. */
static char *make_script(const struct bench_row rows[], size_t n, const char *title)
{
	size_t firsts[MAX_SERIES], n_series = find_series(rows, n, firsts), size;
	char *script = NULL;
	FILE *out = open_memstream(&script, &size);

	if (!out)
		return NULL;
	for (size_t k = 0; k < n_series; k++) {
		fprintf(out, "$series%zu << END\n", k);
		for (size_t i = firsts[k]; i < n; i++)
			if (is_drawn(&rows[i]) && is_one_series(&rows[firsts[k]].c, &rows[i].c))
				fprintf(out, "%zu %.9g %.9g\n", rows[i].size,
					block_of(&rows[i])->busbw, block_of(&rows[i])->us);
		fprintf(out, "END\n");
	}
	fprintf(out,
		"set terminal pngcairo noenhanced size 1200,900 font \"sans,11\"\n"
		"set multiplot layout 2,1 title \"%s\"\n"
		"set logscale x 2\n"
		"set grid\n"
		"set lmargin 10\n"
		"set key outside right top Left reverse samplen 2\n"
		"set xlabel \"size\"\n"
		"set ylabel \"bus bandwidth (GB/s)\"\n"
		"set yrange [0:*]\n",
		title);
	write_tics(out);
	write_plot(out, rows, firsts, n_series, 2);
	fprintf(out,
		"set ylabel \"time (us)\"\n"
		"set yrange [*:*]\n"
		"set logscale y\n");
	write_plot(out, rows, firsts, n_series, 3);
	fprintf(out, "unset multiplot\n");
	if (fclose(out) || n_series == 0) {
		free(script);
		return NULL;
	}
	return script;
}

/* Everything up to the end, to be freed. */
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

/* The picture that gnuplot makes of the script; it says itself what it does not like. */
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

int bench_plot(const struct bench *b)
{
	const struct session *s = b->session;
	char title[200], *script;
	int rc;

	snprintf(title, sizeof(title), "%d ranks, %.150s", b->options->job.ranks,
		s->attr.local_fabric ? "local fabric" : "DPDK port");
	script = make_script(b->rows, b->n_rows, title);
	if (!script) {
		say("there is nothing to plot: no operation with a size was measured");
		return -ENODATA;
	}
	rc = draw_script(script, b->options->plot);
	if (rc)
		say("gnuplot cannot draw %s: %s", b->options->plot, strerror(-rc));
	free(script);
	return rc;
}
