/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Redirects text that EAL and getopt() print while EAL starts from the terminal to the log.
 * Meanwhile the C library's two streams are replaced. They pass on the text of other threads.
 */
#include "drivers/dpdk/internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

struct captured {
	FILE **stream; /* stream of the C library */
	FILE *usual, *ours;
	bool is_error;
};

static struct captured out, err = { .is_error = true };
static _Thread_local bool captures; /* redirect this thread's text */

static ssize_t take(void *cookie, const char *text, size_t len)
{
	const struct captured *captured = cookie;

	if (!captures)
		return fwrite(text, 1, len, captured->usual) == len ? (ssize_t)len : 0;
	log_take(text, len, captured->is_error);
	return (ssize_t)len;
}

static int capture(struct captured *captured, FILE **stream)
{
	static const cookie_io_functions_t functions = { .write = take };

	captured->stream = stream;
	captured->usual = *stream;
	captured->ours = fopencookie(captured, "w", functions);
	/* Unbuffered, so that each thread writes its own text. */
	if (!captured->ours || setvbuf(captured->ours, NULL, _IONBF, 0))
		return -ENOMEM;
	*stream = captured->ours;
	return 0;
}

/* Never closed, because another thread may be using it. EAL is started once. */
static void release(struct captured *captured)
{
	if (captured->ours && *captured->stream == captured->ours)
		*captured->stream = captured->usual;
}

int capture_begin(void)
{
	captures = true;
	if (capture(&out, &stdout) == 0 && capture(&err, &stderr) == 0)
		return 0;
	capture_end();
	return -ENOMEM;
}

void capture_end(void)
{
	release(&out);
	release(&err);
	captures = false;
}
