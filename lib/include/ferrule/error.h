/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors and log lines.
 *
 * Every function of Ferrule that can fail returns 0 or a count on success and a negative errno on
 * failure; outputs named ret_* are then untouched. The library never prints, exits or aborts its
 * host. Any thread may call these functions.
 */
#ifndef FERRULE_ERROR_H
#define FERRULE_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FRL_API __attribute__((visibility("default")))
#else
#define FRL_API
#endif

/*
 * Text of a result code (negative errno, sign ignored). Never NULL; static storage or storage of
 * the calling thread, valid until the thread's next call.
 */
FRL_API const char *frl_strerror(int err);

/*
 * What went wrong in the calling thread's latest failed call, in a sentence that names the cause
 * and, where there is something to do about it, what. Empty when nothing failed yet. The text
 * belongs to the library and is valid until the thread's next failing call.
 */
FRL_API const char *frl_last_error(void);

enum frl_log_level {
	FRL_LOG_ERROR,
	FRL_LOG_WARNING,
	FRL_LOG_INFO,
	FRL_LOG_DEBUG,
};

/*
 * Receives one line without a newline. May be called from any thread, never from the data path, and
 * with locks of the library held: it must not call functions of Ferrule, but for those of this
 * header, and should not wait for a thread that does.
 */
typedef void (*frl_log_fn)(enum frl_log_level level, const char *line, void *arg);

/*
 * Sends log lines of `level` and more severe ones to `fn`; NULL turns logging off, which is the
 * default. Call it before the first device is opened, or while no other thread is in the library.
 */
FRL_API void frl_set_log(frl_log_fn fn, enum frl_log_level level, void *arg);

#ifdef __cplusplus
}
#endif
#endif
