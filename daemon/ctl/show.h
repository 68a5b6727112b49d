/* SPDX-License-Identifier: BSD-3-Clause */
/* Reports of the daemon, as tables and as JSON. */
#ifndef FERRULE_DAEMON_CTL_SHOW_H
#define FERRULE_DAEMON_CTL_SHOW_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "daemon/ctl/link.h"

struct show_options {
	bool json;
	bool wide;
	unsigned width; /* of the terminal; 0: not a terminal */
	unsigned lines; /* 0: all */
};

/* A table of `ferrulectl NAME`. show_find() returns NULL for an unknown name. */
struct show;
const struct show *show_find(const char *name);
const char *show_name(const struct show *show);

int show_ask(const struct show *show, struct link *link, uint32_t qpn, uint32_t pid,
	struct answer *answer);

/* `before`: an answer from `seconds` ago, to compute rates; or NULL. */
void show_print(FILE *out, const struct show *show, const struct show_options *options,
	const struct answer *answer, const struct answer *before, double seconds);

json_t *show_json(const struct show *show, const struct answer *answer);

/* Prints a JSON text on one line, or indented, and releases it. */
void print_json(FILE *out, json_t *json, bool one_line);

#endif
