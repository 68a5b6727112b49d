/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Errors and log lines.
 *
 * Every function of Ferrule that can fail returns 0 or a count on success and a negative errno on
 * failure. A failed call leaves outputs named ret_* untouched. The library never prints, exits or
 * aborts the process.
 *
 * Threads: any thread may call these functions.
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
 * Returns the text of a result code (negative errno, sign ignored). Never NULL. The storage is
 * static, or belongs to the calling thread and is valid until that thread's next call.
 */
FRL_API const char *frl_strerror(int err);

/*
 * Returns one sentence about the calling thread's latest failed call: what failed, why, and what to
 * do if something can be done. The text is empty if no call has failed yet. The library owns the
 * text; it is valid until the thread's next failed call.
 */
FRL_API const char *frl_last_error(void);

enum frl_log_level {
	FRL_LOG_ERROR,
	FRL_LOG_WARNING,
	FRL_LOG_INFO,
	FRL_LOG_DEBUG,
};

/*
 * Receives one log line without a newline. Any thread may call the function, with locks of the
 * library held; the data path never calls it. The function must not call functions of Ferrule
 * except those of this header. It should not wait for a thread that calls them.
 */
typedef void (*frl_log_fn)(enum frl_log_level level, const char *line, void *arg);

/*
 * Sends log lines of `level` and more severe ones to `fn`. NULL turns logging off, which is the
 * default. Call it before the first device is opened, or while no other thread is in the library.
 */
FRL_API void frl_set_log(frl_log_fn fn, enum frl_log_level level, void *arg);

#ifdef __cplusplus
}
#endif
#endif
