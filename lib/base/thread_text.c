/* SPDX-License-Identifier: BSD-3-Clause */
#include "lib/base/thread_text.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>

typedef char texts[THREAD_TEXTS][THREAD_TEXT_SIZE];

static _Thread_local texts *own;

/* Frees the buffers of threads that end. */
static pthread_key_t key;
static bool has_key;

/* The destructor of another key may need the buffers once more: they are allocated again. */
static void release(void *ended)
{
	own = NULL;
	munmap(ended, sizeof(texts));
}

static void create_key(void)
{
	has_key = !pthread_key_create(&key, release);
}

static bool allocate(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	void *memory;

	pthread_once(&once, create_key);
	if (!has_key)
		return false;
	memory = mmap(
		NULL, sizeof(texts), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return false;
	if (pthread_setspecific(key, memory)) {
		munmap(memory, sizeof(texts));
		return false;
	}
	own = memory;
	return true;
}

char *thread_text(enum thread_text which)
{
	return own || allocate() ? (*own)[which] : NULL;
}

const char *thread_text_peek(enum thread_text which)
{
	return own ? (*own)[which] : "";
}
