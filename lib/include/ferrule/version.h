/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The version of Ferrule. A program that loads the library compares both.
 *
 * Threads: any thread may call frl_version().
 */
#ifndef FERRULE_VERSION_H
#define FERRULE_VERSION_H

#include <ferrule/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of these headers. */
#define FRL_VERSION_MAJOR 0
#define FRL_VERSION_MINOR 1
#define FRL_VERSION_PATCH 0
#define FRL_VERSION       (FRL_VERSION_MAJOR * 10000 + FRL_VERSION_MINOR * 100 + FRL_VERSION_PATCH)

/* Returns the FRL_VERSION of the library that the program runs with. */
FRL_API int frl_version(void);

#ifdef __cplusplus
}
#endif
#endif
