/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/settings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

enum { WORD_MAX = 4096 };

struct number_setting {
	const char *name;
	uint64_t value;
	uint64_t min;
	uint64_t max;
	size_t offset; /* offset in struct settings */
};

struct word_setting {
	const char *name;
	const char *value;
	const char *choices;
	size_t offset;
};

static const struct number_setting number_table[] = {
#define NUMBER_ROW(member, name, value, min, max, help) \
	{ name, value, min, max, offsetof(struct settings, member) },
	SETTINGS_NUMBERS(NUMBER_ROW)
#undef NUMBER_ROW
};

static const struct word_setting word_table[] = {
#define WORD_ROW(member, name, value, choices, help) \
	{ name, value, choices, offsetof(struct settings, member) },
	SETTINGS_WORDS(WORD_ROW)
#undef WORD_ROW
};

enum {
	N_NUMBERS = sizeof(number_table) / sizeof(number_table[0]),
	N_WORDS = sizeof(word_table) / sizeof(word_table[0]),
};

/* Receives the text of the first error. */
struct first_error {
	char *text;
	size_t size;
	int result;
};

static void record_error(struct first_error *first, int result, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void record_error(struct first_error *first, int result, const char *format, ...)
{
	va_list args;

	if (first->result < 0)
		return;
	first->result = result;
	va_start(args, format);
	vsnprintf(first->text, first->size, format, args);
	va_end(args);
}

/* Accepts digits only: strtoull() alone would also accept blanks and signs. */
static bool parse_number(const char *text, uint64_t *ret_value)
{
	unsigned long long value;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return false;
	errno = 0;
	value = strtoull(text, &end, 10);
	if (errno || *end)
		return false;
	*ret_value = value;
	return true;
}

static uint64_t read_number(
	const struct number_setting *setting, const char *text, struct first_error *first)
{
	uint64_t value;

	if (!text)
		return setting->value;
	if (!parse_number(text, &value) || value < setting->min || value > setting->max) {
		record_error(first, -EINVAL,
			"%s is \"%.64s\"; it must be a number from %" PRIu64 " to %" PRIu64,
			setting->name, text, setting->min, setting->max);
		return setting->value;
	}
	return value;
}

static bool is_choice(const char *choices, const char *text)
{
	if (!*choices)
		return true;
	for (const char *p = choices;; p++) {
		size_t len = strcspn(p, "|");

		if (len == strlen(text) && memcmp(p, text, len) == 0)
			return true;
		p += len;
		if (!*p)
			return false;
	}
}

static const char *read_word(
	const struct word_setting *setting, const char *text, struct first_error *first)
{
	const char *word;

	if (!text)
		return setting->value;
	if (!is_choice(setting->choices, text)) {
		record_error(first, -EINVAL, "%s is \"%.64s\"; it must be one of %s", setting->name,
			text, setting->choices);
		return setting->value;
	}
	if (strlen(text) > WORD_MAX) {
		record_error(
			first, -EINVAL, "%s is longer than %d characters", setting->name, WORD_MAX);
		return setting->value;
	}
	word = strdup(text);
	if (!word) {
		record_error(first, -ENOMEM, "no memory for the value of %s", setting->name);
		return setting->value;
	}
	return word;
}

int settings_read(struct settings *settings, settings_lookup_fn lookup, char *error, size_t size)
{
	struct first_error first = { error, size, 0 };
	char *base = (char *)settings;

	memset(settings, 0, sizeof(*settings));
	for (size_t i = 0; i < N_NUMBERS; i++) {
		const struct number_setting *setting = &number_table[i];
		uint64_t value = read_number(setting, lookup(setting->name), &first);

		memcpy(base + setting->offset, &value, sizeof(value));
	}
	for (size_t i = 0; i < N_WORDS; i++) {
		const struct word_setting *setting = &word_table[i];
		const char *value = read_word(setting, lookup(setting->name), &first);

		memcpy(base + setting->offset, &value, sizeof(value));
	}
	return first.result;
}

void settings_free(struct settings *settings)
{
	char *base = (char *)settings;

	for (size_t i = 0; i < N_WORDS; i++) {
		char *value;

		memcpy(&value, base + word_table[i].offset, sizeof(value));
		if (value && value != word_table[i].value)
			free(value);
	}
	memset(settings, 0, sizeof(*settings));
}

static struct settings effective;
static char effective_error[256];
static int effective_result;
static char misspelt[400];
static char *runtime_dir;
static char *cache_dir;

/* ---- programs with elevated privileges */

/*
 * Settings that give a user no additional privileges. A fabric is leased from the system's daemon,
 * which identifies the user; the others are numbers, or choices of a list. Excluded are settings
 * that name files, programs, libraries, sockets or hosts, that consume memory, or that change when
 * memory is written.
 */
static const char *const harmless[] = {
	"FRL_ACK_TIMEOUT",
	"FRL_ALGO",
	"FRL_COLL_TIMEOUT_S",
	"FRL_CONTROL_LOST_S",
	"FRL_FABRIC",
	"FRL_ICRC",
	"FRL_IN_PLACE",
	"FRL_JOB",
	"FRL_LAUNCHER",
	"FRL_PATH_MTU",
	"FRL_PROGRESS",
	"FRL_RANK",
	"FRL_RANKS",
	"FRL_SEGMENT_KB",
	"FRL_SHM",
	"FRL_SHM_WRITE",
	"FRL_TRAFFIC_CLASS",
	"FRL_TUNER_COSTS",
	"FRL_WINDOW",
};

static char ignored[256]; /* for example "FRL_DAEMON, FRL_EAL_ARGS" */

static bool is_harmless(const char *name)
{
	for (size_t i = 0; i < sizeof(harmless) / sizeof(harmless[0]); i++)
		if (strcmp(harmless[i], name) == 0)
			return true;
	return false;
}

bool settings_are_guarded(void)
{
	return getauxval(AT_SECURE);
}

static const char *from_environment(const char *name)
{
	const char *value = getenv(name);
	size_t used = strlen(ignored);

	if (!value || !settings_are_guarded() || is_harmless(name))
		return value;
	snprintf(ignored + used, sizeof(ignored) - used, "%s%s", used ? ", " : "", name);
	return NULL;
}

/* The XDG Base Directory Specification requires that relative paths are ignored. */
static void find_cache_dir(void)
{
	const char *base = secure_getenv("XDG_CACHE_HOME"), *below = "/ferrule";
	size_t size;

	if (!base || base[0] != '/') {
		base = secure_getenv("HOME");
		below = "/.cache/ferrule";
	}
	if (!base || base[0] != '/')
		return;
	size = strlen(base) + strlen(below) + 1;
	cache_dir = malloc(size);
	if (cache_dir)
		snprintf(cache_dir, size, "%s%s", base, below);
}

static void read_environment(void)
{
	effective_result = settings_read(
		&effective, from_environment, effective_error, sizeof(effective_error));
	settings_misspelt(environ, misspelt, sizeof(misspelt));
	if (secure_getenv("XDG_RUNTIME_DIR"))
		runtime_dir = strdup(secure_getenv("XDG_RUNTIME_DIR"));
	find_cache_dir();
}

static void read_environment_once(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, read_environment);
}

const struct settings *settings_get(void)
{
	read_environment_once();
	return &effective;
}

const char *settings_error(void)
{
	read_environment_once();
	return effective_result < 0 ? effective_error : NULL;
}

const char *settings_ignored(void)
{
	read_environment_once();
	return *ignored ? ignored : NULL;
}

const char *settings_misspelling(void)
{
	read_environment_once();
	return *misspelt ? misspelt : NULL;
}

const char *settings_foreign(const char *name)
{
	return getenv(name);
}

bool settings_has_foreign(const char *prefix)
{
	for (char *const *at = environ; at && *at; at++)
		if (strncmp(*at, prefix, strlen(prefix)) == 0)
			return true;
	return false;
}

const char *settings_runtime_dir(void)
{
	read_environment_once();
	return runtime_dir;
}

const char *settings_cache_dir(void)
{
	read_environment_once();
	return cache_dir;
}
