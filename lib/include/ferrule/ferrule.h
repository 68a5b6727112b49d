/* SPDX-License-Identifier: BSD-3-Clause */
/* Includes all public headers, and tells the version. */
#ifndef FERRULE_FERRULE_H
#define FERRULE_FERRULE_H

#include <ferrule/address.h>
#include <ferrule/cm.h>
#include <ferrule/collective.h>
#include <ferrule/connect.h>
#include <ferrule/device.h>
#include <ferrule/error.h>
#include <ferrule/event.h>
#include <ferrule/fragments.h>
#include <ferrule/gpu.h>
#include <ferrule/launch.h>
#include <ferrule/memory.h>
#include <ferrule/queue.h>
#include <ferrule/reduce.h>
#include <ferrule/stats.h>
#include <ferrule/work.h>

/* The version of these headers. */
#define FRL_VERSION_MAJOR 0
#define FRL_VERSION_MINOR 1
#define FRL_VERSION_PATCH 0
#define FRL_VERSION (FRL_VERSION_MAJOR * 10000 + FRL_VERSION_MINOR * 100 + FRL_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* Returns the FRL_VERSION of the library that the program runs with. Any thread. */
FRL_API int frl_version(void);

#ifdef __cplusplus
}
#endif
#endif
