/* SPDX-License-Identifier: BSD-3-Clause */
/* Includes all public headers. */
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
#include <ferrule/version.h>
#include <ferrule/work.h>

#endif
