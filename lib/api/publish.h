/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the control daemon knows of this process's devices: each is a port with a number, described
 * by messages and by a page of shared memory that is brought up to date when the daemon asks. A
 * daemon that comes again after it went away is told everything again.
 *
 * Lock order: the publisher's mutex, then a device's guard. So none of these is called with a guard
 * held.
 */
#ifndef FERRULE_API_PUBLISH_H
#define FERRULE_API_PUBLISH_H

#include <stdint.h>

#include "lib/control/control.pb-c.h"
#include "lib/control/page.h"

struct frl_device;
struct publication;

/*
 * Leases a port of a fabric, for a device that is yet to be opened: waits for the daemon up to 5 s,
 * and for addresses that rest after another lease up to 60 s. What came of it is in
 * publication_lease(); the texts are the publication's. -ENOENT, -EACCES, -EBUSY, -EDQUOT,
 * -ENOTCONN, -ETIMEDOUT, -EPROTO, -ENOMEM.
 */
int publish_lease(const char *fabric, struct publication **ret_publication);
const Ctl__Lease *publication_lease(const struct publication *publication);
/* The packet socket that the daemon has opened for the lease; -1: none, or closed. */
int publication_socket(const struct publication *publication);
/* The device has its own descriptor of it. */
void publication_close_socket(struct publication *publication);
/* Gives the port back; NULL is fine. */
void publish_drop(struct publication *publication);

/* The device is open: tells the daemon, if there is one. `publication`: of its lease, or NULL.
 * -EINVAL: FRL_CONTROL is wrong; -ENOMEM. */
int publish_device(struct frl_device *device, struct publication *publication);
/* It is about to be closed; its publication is to be dropped when the port is free again. */
void publish_close(struct frl_device *device);

/* publish_page.c: brings a page up to date, a few queue pairs for each time that the guard is held.
 */
void publish_page(struct frl_device *device, struct page *page);

#endif
