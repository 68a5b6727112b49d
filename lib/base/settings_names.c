/* SPDX-License-Identifier: BSD-3-Clause */
/* Environment variables that look like settings but are not. */
#include "lib/base/settings.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/error.h"

enum {
	NAME_MAX_LEN = 40,
	/* a name is misspelt with up to one error per three letters */
	LETTERS_PER_ERROR = 3,
	PART_MIN_LEN = 3,
};

static const char *const names[] = {
#define NUMBER_NAME(member, name, value, min, max, help) name,
	SETTINGS_NUMBERS(NUMBER_NAME)
#undef NUMBER_NAME
#define WORD_NAME(member, name, value, choices, help) name,
		SETTINGS_WORDS(WORD_NAME)
#undef WORD_NAME
#define PLUGIN_NAME(name) name,
			SETTINGS_PLUGIN(PLUGIN_NAME)
#undef PLUGIN_NAME
};

enum { N_NAMES = sizeof(names) / sizeof(names[0]) };

/* Returns the part of the name after FRL_ or FERRULE_, or NULL. */
static const char *behind_prefix(const char *name)
{
	static const char *const prefixes[] = { "FRL_", "FERRULE_" };

	for (size_t i = 0; i < 2; i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return name + strlen(prefixes[i]);
	return NULL;
}

static unsigned least(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* Returns the edit distance: letters added, removed, replaced or swapped with the next one. */
static unsigned distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
	unsigned rows[3][NAME_MAX_LEN + 1];

	for (unsigned j = 0; j <= b_len; j++)
		rows[0][j] = j;
	for (unsigned i = 1; i <= a_len; i++) {
		unsigned *row = rows[i % 3];
		const unsigned *above = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];

		row[0] = i;
		for (unsigned j = 1; j <= b_len; j++) {
			row[j] = above[j - 1] + (a[i - 1] != b[j - 1]);
			row[j] = least(row[j], least(above[j], row[j - 1]) + 1);
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], second[j - 2] + 1);
		}
	}
	return rows[a_len % 3][b_len];
}

/* Returns true if `part` is a section of `whole` between underscores. */
static bool is_part(const char *part, size_t len, const char *whole)
{
	for (const char *at = whole; (at = strchr(at, part[0])); at++) {
		bool begins = at == whole || at[-1] == '_';

		if (begins && strncmp(at, part, len) == 0 && (!at[len] || at[len] == '_'))
			return true;
	}
	return false;
}

const char *settings_nearest(const char *name, size_t len)
{
	const char *own = behind_prefix(name), *nearest = NULL;
	size_t own_len = own ? len - (size_t)(own - name) : 0;
	unsigned best = (unsigned)own_len / LETTERS_PER_ERROR + 1;

	if (!own || own_len < 2 || own_len > NAME_MAX_LEN)
		return NULL;
	for (size_t i = 0; i < N_NAMES; i++) {
		const char *other = behind_prefix(names[i]);
		unsigned errors = distance(own, own_len, other, strlen(other));

		if (strlen(names[i]) == len && strncmp(name, names[i], len) == 0)
			return NULL;
		if (errors < best) {
			best = errors;
			nearest = names[i];
		}
	}
	for (size_t i = 0; i < N_NAMES && !nearest && own_len >= PART_MIN_LEN; i++)
		if (is_part(own, own_len, behind_prefix(names[i])))
			nearest = names[i];
	return nearest;
}

bool settings_misspelt(char *const *environment, char *text, size_t size)
{
	size_t used = 0;

	for (; environment && *environment; environment++) {
		size_t len = strcspn(*environment, "=");
		const char *nearest = settings_nearest(*environment, len);

		if (nearest && used < size)
			used += (size_t)snprintf(text + used, size - used, "%s%.*s (nearest: %s)",
				used ? ", " : "not a setting, so ignored: ", (int)len, *environment,
				nearest);
	}
	return used > 0;
}
