/* SPDX-License-Identifier: BSD-3-Clause */
/* The text of a port: "raw:mlx5_0/1,gpu=0,slots=4096". */
#include "drivers/raw/internal.h"

#include <string.h>

#include "lib/base/error.h"
#include "lib/base/net/ip.h"

static const char prefix[] = "raw:";

bool raw_is_port(const char *port)
{
	return port && strncmp(port, prefix, sizeof(prefix) - 1) == 0;
}

static int refuse(const char *text, const char *why)
{
	return frl_fail(-EINVAL,
		"'%s': %s; write raw:DEVICE or raw:DEVICE/PORT, with ,gpu=N for payload into GPU "
		"memory, and ,slots=N (%d to %d) for the frames that can wait",
		text, why, RAW_MIN_SLOTS, RAW_MAX_SLOTS);
}

/* Parses the digits up to a comma or the end. */
static bool parse_number(const char *text, size_t len, unsigned long max, unsigned long *ret_number)
{
	char digits[16];

	if (len == 0 || len >= sizeof(digits))
		return false;
	memcpy(digits, text, len);
	digits[len] = '\0';
	return parse_digits(digits, max, ret_number);
}

static bool parse_option(const char *word, size_t len, struct raw_wanted *wanted)
{
	unsigned long number;

	if (strncmp(word, "gpu=", 4) == 0 && parse_number(word + 4, len - 4, 1023, &number)) {
		wanted->gpu = (int)number;
		return true;
	}
	if (strncmp(word, "slots=", 6) == 0 &&
		parse_number(word + 6, len - 6, RAW_MAX_SLOTS, &number) &&
		number >= RAW_MIN_SLOTS) {
		wanted->slots = (uint32_t)number;
		return true;
	}
	return false;
}

static bool parse_device(const char *word, size_t len, struct raw_wanted *wanted)
{
	const char *slash = memchr(word, '/', len);
	size_t name_len = slash ? (size_t)(slash - word) : len;
	unsigned long number = 1;

	if (name_len == 0 || name_len >= sizeof(wanted->device))
		return false;
	if (slash && (!parse_number(slash + 1, len - name_len - 1, 255, &number) || number == 0))
		return false;
	memcpy(wanted->device, word, name_len);
	wanted->device[name_len] = '\0';
	wanted->num = (uint8_t)number;
	return true;
}

int raw_parse(const char *text, struct raw_wanted *ret_wanted)
{
	const char *at = text + sizeof(prefix) - 1;
	size_t len = strcspn(at, ",");

	*ret_wanted = (struct raw_wanted){ .gpu = -1 };
	if (!parse_device(at, len, ret_wanted))
		return refuse(text, "it names no device");
	while (at[len]) {
		at += len + 1;
		len = strcspn(at, ",");
		if (!parse_option(at, len, ret_wanted))
			return refuse(text, "the option after the comma is unknown");
	}
	return 0;
}
