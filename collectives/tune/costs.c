/* SPDX-License-Identifier: BSD-3-Clause */
/* Costs as steps and as text, with a decimal point in any locale. */
#include "collectives/tune/tuner.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/error.h"

enum { WORD = 64 };

static const char *const names[TUNER_COSTS] = {
	[TUNER_LATENCY] = "latency",
	[TUNER_BYTE] = "byte",
	[TUNER_LARGE] = "large",
	[TUNER_FAR_LATENCY] = "far-latency",
	[TUNER_FAR_BYTE] = "far-byte",
	[TUNER_FAR_LARGE] = "far-large",
	[TUNER_MESSAGE] = "message",
	[TUNER_REDUCE] = "reduce",
};

static const double root_of_two = 1.41421356237309504880;
static const double fourth_root_of_two = 1.18920711500272106672;

/* Uses only products and powers of two, so all machines get the same result. */
double tuner_step_ns(uint8_t step)
{
	int halves = step - TUNER_STEP_ONE;
	int whole = halves >> 1;

	if (step == 0)
		return 0;
	return ldexp(halves & 1 ? root_of_two : 1, whole);
}

uint8_t tuner_step(double ns)
{
	uint8_t step = TUNER_STEP_LEAST;

	if (!(ns > 0))
		return 0;
	while (step < TUNER_STEP_MOST && tuner_step_ns(step) * fourth_root_of_two < ns)
		step++;
	return step;
}

bool tuner_costs_are_plausible(const struct tuner_costs *costs)
{
	for (int i = 0; i < TUNER_COSTS; i++) {
		uint8_t step = costs->step[i];

		if (step != 0 && (step < TUNER_STEP_LEAST || step > TUNER_STEP_MOST))
			return false;
	}
	return true;
}

static int read_word(const char *word, struct tuner_costs *costs)
{
	size_t length = strcspn(word, "=");
	double ns;
	char *end;

	for (int i = 0; i < TUNER_COSTS; i++) {
		if (strlen(names[i]) != length || memcmp(names[i], word, length) != 0)
			continue;
		ns = word[length] == '=' ? strtod(word + length + 1, &end) : 0;
		if (!(ns > 0) || !isfinite(ns) || *end != '\0')
			return frl_fail(-EINVAL,
				"FRL_TUNER_COSTS: '%s' has no positive number of nanoseconds",
				word);
		costs->step[i] = tuner_step(ns);
		return 0;
	}
	return frl_fail(-EINVAL,
		"FRL_TUNER_COSTS: '%s' is not a cost; there are latency, byte, large, far-latency, "
		"far-byte, far-large, message and reduce: write, for example, latency=2896",
		word);
}

static int read_words(const char *text, struct tuner_costs *costs)
{
	while (*text != '\0') {
		size_t length = strcspn(text, ",");
		char word[WORD];
		int err;

		if (length >= sizeof(word))
			return frl_fail(-EINVAL, "FRL_TUNER_COSTS: '%.64s...' is too long", text);
		memcpy(word, text, length);
		word[length] = '\0';
		err = read_word(word, costs);
		if (err)
			return err;
		text += length + (text[length] == ',');
	}
	return 0;
}

int tuner_read_costs(const char *text, struct tuner_costs *ret_costs)
{
	struct tuner_costs costs = { .step = { 0 } };
	int err = 0;

	if (strcmp(text, "default") != 0) {
		locale_t locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
		locale_t before = uselocale(locale);

		err = read_words(text, &costs);
		uselocale(before);
		freelocale(locale);
	}
	if (!err)
		*ret_costs = costs;
	return err;
}

void tuner_write_costs(const struct tuner_costs *costs, char text[TUNER_TEXT])
{
	locale_t locale = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
	locale_t before = uselocale(locale);
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < TUNER_COSTS && used < TUNER_TEXT; i++) {
		if (costs->step[i] == 0)
			continue;
		used += (size_t)snprintf(text + used, TUNER_TEXT - used, "%s%s=%.4g",
			used > 0 ? "," : "", names[i], tuner_step_ns(costs->step[i]));
	}
	uselocale(before);
	freelocale(locale);
}
