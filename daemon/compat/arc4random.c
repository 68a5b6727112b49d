/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * arc4random(3) for libevent, in wheels: glibc has it since 2.36. With these the daemon runs with
 * glibc 2.34. Any thread.
 */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

/* Older headers do not declare them. */
uint32_t arc4random(void);
void arc4random_buf(void *buffer, size_t size);

void arc4random_buf(void *buffer, size_t size)
{
	uint8_t *at = buffer;

	while (size > 0) {
		ssize_t n = getrandom(at, size, 0);

		if (n > 0) {
			at += n;
			size -= (size_t)n;
		} else if (n < 0 && errno != EINTR) {
			abort(); /* the callers have no error to report, and need random numbers */
		}
	}
}

uint32_t arc4random(void)
{
	uint32_t number;

	arc4random_buf(&number, sizeof(number));
	return number;
}
