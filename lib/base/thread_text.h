/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Buffers of the calling thread, for texts that functions return. The first call of a thread
 * allocates them. They are freed when the thread ends. Any thread.
 *
 * They are not thread-local variables: the loader must place those of this library at a fixed
 * offset (memory/fault.c). When a running program such as Python opens the library, all libraries
 * share a few hundred bytes for that.
 */
#ifndef FERRULE_BASE_THREAD_TEXT_H
#define FERRULE_BASE_THREAD_TEXT_H

enum thread_text {
	THREAD_TEXT_ERROR,    /* of frl_last_error() */
	THREAD_TEXT_STRERROR, /* of frl_strerror() */
	THREAD_TEXT_IP,       /* of format_ip() */
	THREAD_TEXT_FRAME,    /* why frame_unpack() refuses a message */
	THREAD_TEXT_KERNELS,  /* why image_why_not() refuses a GPU */
	THREAD_TEXTS,
};

enum { THREAD_TEXT_SIZE = 512 };

/* Returns the thread's buffer of THREAD_TEXT_SIZE bytes, all 0 at first. NULL: no memory. Does not
 * call malloc(), which may be the caller. */
char *thread_text(enum thread_text which);

/* Returns the same buffer, or "" if the thread has none yet. */
const char *thread_text_peek(enum thread_text which);

#endif
