/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Publication of this process's devices to the control daemon. Each device is a port with a number.
 * Messages describe it, and a page of shared memory has its statistics; the process updates the
 * page on request. A restarted daemon is sent everything again.
 *
 * Lock order: the publisher's mutex, then a device's guard. Do not call these functions with a
 * guard held.
 */
#ifndef FERRULE_API_PUBLISH_PUBLISH_H
#define FERRULE_API_PUBLISH_PUBLISH_H

#include <stdint.h>

#include "lib/control/control.pb-c.h"
#include "lib/control/page.h"

struct frl_device;
struct publication;

/*
 * Leases a port of a fabric for a device that will be opened. Waits up to 5 s for the daemon, and
 * up to 60 s for addresses that rest after another lease. publication_lease() returns the result;
 * the publication owns its texts. Returns -ENOENT, -EACCES, -EBUSY, -EDQUOT, -ENOTCONN, -ETIMEDOUT,
 * -EPROTO or -ENOMEM.
 */
int publish_lease(const char *fabric, struct publication **ret_publication);
const Ctl__Lease *publication_lease(const struct publication *publication);
/* Returns the packet socket that the daemon opened for the lease; -1: none, or closed. */
int publication_socket(const struct publication *publication);
/* Closes it: the device has its own descriptor. */
void publication_close_socket(struct publication *publication);
/* Ends a publication and its lease. NULL is fine. */
void publish_drop(struct publication *publication);

/*
 * Publishes an open device, if there is a daemon. `publication` is that of its lease, or NULL.
 * Returns -EINVAL (FRL_CONTROL is wrong) or -ENOMEM.
 */
int publish_device(struct frl_device *device, struct publication *publication);
/*
 * Ends the publication of a device that is about to be closed. Call publish_drop() once the port is
 * closed.
 */
void publish_close(struct frl_device *device);

/* page.c: updates a page; takes the guard for a few queue pairs at a time. */
void publish_page(struct frl_device *device, struct page *page);

#endif
