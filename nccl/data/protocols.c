/* SPDX-License-Identifier: BSD-3-Clause */
#include "nccl/data/protocols.h"

#include <string.h>
#include <strings.h>

/* The values in NCCL's own list. */
enum choice { OFF, ON, NCCLS_OWN };

static const char *const names[NCCL_PROTOCOLS] = { "LL", "LL128", "Simple" };
static const char *const functions[] = { "Broadcast", "Reduce", "AllGather", "ReduceScatter",
	"AllReduce" };

enum { FUNCTIONS = sizeof(functions) / sizeof(functions[0]) };

static bool is_word(const char *text, size_t length, const char *word)
{
	return length == strlen(word) && strncasecmp(text, word, length) == 0;
}

static void read_elements(const char *text, size_t length, enum choice ret[NCCL_PROTOCOLS])
{
	bool excludes = length && *text == '^';
	const char *end = text + length;

	text += excludes;
	for (int p = 0; p < NCCL_PROTOCOLS; p++)
		ret[p] = excludes ? ON : OFF;
	while (text < end) {
		const char *comma = memchr(text, ',', (size_t)(end - text));
		size_t n = (size_t)((comma ? comma : end) - text);

		for (int p = 0; p < NCCL_PROTOCOLS; p++)
			if (is_word(text, n, names[p]))
				ret[p] = excludes ? OFF : ON;
		text += n + 1;
	}
}

/* Parses "ELEMENTS" or "FUNCTION:ELEMENTS". */
static void read_entry(
	const char *text, size_t length, enum choice choices[FUNCTIONS][NCCL_PROTOCOLS])
{
	const char *colon = memchr(text, ':', length);
	size_t prefix = colon ? (size_t)(colon - text) : 0;
	const char *elements = colon ? colon + 1 : text;

	for (int f = 0; f < FUNCTIONS; f++)
		if (!colon || is_word(text, prefix, functions[f]))
			read_elements(elements, (size_t)(text + length - elements), choices[f]);
}

void net_protocols_read(const char *text, struct net_protocols *ret_protocols)
{
	enum choice choices[FUNCTIONS][NCCL_PROTOCOLS];

	for (int f = 0; f < FUNCTIONS; f++) {
		choices[f][NCCL_PROTOCOL_LL] = ON;
		choices[f][NCCL_PROTOCOL_LL128] = NCCLS_OWN;
		choices[f][NCCL_PROTOCOL_SIMPLE] = ON;
	}
	while (text && *text) {
		size_t length = strcspn(text, ";");

		if (length)
			read_entry(text, length, choices);
		text += length + (text[length] == ';');
	}
	*ret_protocols = (struct net_protocols){ .forces_ll128 = false };
	for (int f = 0; f < FUNCTIONS; f++) {
		for (int p = 0; p < NCCL_PROTOCOLS; p++)
			ret_protocols->may_use[p] |= choices[f][p] != OFF;
		ret_protocols->forces_ll128 |= choices[f][NCCL_PROTOCOL_LL128] == ON;
		ret_protocols->excludes_simple |= choices[f][NCCL_PROTOCOL_SIMPLE] == OFF;
	}
}
