/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA devices of tests/fakes/verbs/fake_verbs.h for the NCCL plugin. */
#ifndef FERRULE_TESTS_UNIT_NCCL_NCCL_VERBS_FIXTURE_H
#define FERRULE_TESTS_UNIT_NCCL_NCCL_VERBS_FIXTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "tests/fakes/verbs/fake_verbs.h"

/* A device with one more port, which has these addresses. */
void plug_add_port(struct fake_verbs_device *device, const char *link_local, const char *address);

/*
 * nic0 (10.0.0.1, 100 Gbit/s) and nic1 (10.0.1.1, 400 Gbit/s), which take so many bytes inline and
 * may be late with what they flush; "two" has two ports whose speed is not known, 10.0.2.1 and
 * 10.0.3.1; the one of "down" is not up. Retries are soon exhausted. fake_verbs_reset() afterwards.
 */
void plug_in(uint32_t max_inline, bool flushes_late);

#endif
