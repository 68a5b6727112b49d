/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software device: an engine over a port, behind the ops table of drivers/device.h. Everything
 * below a device is protected by its guard.
 *
 *	device.c      opened over a port, closed, described
 *	progress.c    who drives the engine
 *	sleep.c       who waits until there is something to drive it for
 *	queue.c       completion queues and channels, receive queues
 *	queue_pair.c  queue pairs
 *	memory.c      regions, windows, address handles
 *	fragments.c   shares of the port's packet buffers
 *	fabric.c      links of the local fabric
 *	address.c     the addresses of a network port
 *	describe.c    queue pairs, for the control daemon
 */
#ifndef FERRULE_SOFT_SOFT_H
#define FERRULE_SOFT_SOFT_H

#include <semaphore.h>
#include <stdatomic.h>

#include <ferrule/connect.h>

#include "drivers/device.h"
#include "lib/engine/engine.h"
#include "lib/engine/fragments.h"

enum {
	QP_REASON = 256,
	SOFT_SLEEPERS = 4, /* at a time; more look now and then */
};

/* A link of the local fabric to one other device. */
struct fabric_link {
	uint8_t peer_nonce[NONCE_SIZE];
	struct frl_ip peer_ip;
	uint8_t peer_mac[6];
	uint16_t link;
	unsigned holders; /* connections over it that are being made */
};

/* Somebody who sleeps: sleep.c. */
struct soft_sleeper {
	int fd; /* an eventfd by which others wake it; -1: not made yet */
	bool is_used;
	bool is_roused;      /* `fd` is readable */
	const struct cq *cq; /* a completion in it ends the sleep; or NULL */
	uint64_t until_ns;
	uint64_t moved; /* as the device's, when it fell asleep */
};

struct soft_device {
	struct frl_device base;
	struct engine engine;
	struct port *port;
	unsigned windows; /* memory windows */

	/* Local fabric: the socket that holds the address, and what is known of others. */
	int claim_fd;
	struct fabric_link links[PORT_MAX_LINKS];
	unsigned n_links;

	uint64_t moved; /* all that rounds have done, whoever drove them */
	/* Rounds that found nothing to do since the clock was read, and the kernel's tick then. */
	unsigned quiet;
	uint64_t tick_ns;
	/* Polls in a row that left the engine alone, and the kernel's tick when one last did not
	 * although there were completions. */
	unsigned undriven;
	uint64_t driven_tick_ns;

	/* Progress thread. */
	bool has_thread;
	pthread_t thread;
	sem_t wake; /* ends its pause */
	atomic_bool stop;
	atomic_bool pausing;
	atomic_uint polls;    /* rounds that the application drove */
	bool has_told;        /* somebody of an event, since the thread has looked */
	atomic_uint asked_at; /* what that was when somebody asked for an event last */

	/* Those that sleep until something comes. */
	struct soft_sleeper sleepers[SOFT_SLEEPERS];
	unsigned n_asleep;
	atomic_int wake_fd; /* of the port, when somebody has slept; -1: nobody yet, or it tells at
			     * any time, and not just of what ends a sleep */
	atomic_uint watchers; /* that are woken by it, too, and sleep in wait for an event */
};

struct soft_mr {
	struct frl_mr base;
	struct region region;
};

struct soft_mw {
	struct frl_mw base;
	struct region region;
};

struct soft_fragments {
	struct frl_fragments base;
	struct fragments core;
};

struct soft_ah {
	struct frl_ah base;
	struct engine_ah engine;
};

struct soft_channel {
	struct frl_comp_channel base;
	struct bell bell;
	struct list pending; /* struct cq.notify: queues whose event was not fetched yet */
};

struct soft_cq {
	struct frl_cq base;
	struct cq core;
};

struct soft_srq {
	struct frl_srq base;
	struct srq core;
	void *storage;
};

struct soft_qp {
	struct frl_qp base;
	struct engine_qp engine;
	void *storage;
	char error[QP_REASON]; /* the sentence of soft_qp_fail() */
};

/* The common part comes first in each of them. */
#define SOFT_OBJECTS(X) X(device) X(mr) X(mw) X(fragments) X(ah) X(cq) X(srq) X(qp)
#define SOFT_CAST(name)                                                              \
	static inline struct soft_##name *soft_##name(const struct frl_##name *base) \
	{                                                                            \
		return container_of(base, struct soft_##name, base);                 \
	}
SOFT_OBJECTS(SOFT_CAST)
#undef SOFT_CAST
#undef SOFT_OBJECTS

static inline struct soft_channel *soft_channel(const struct frl_comp_channel *base)
{
	return container_of(base, struct soft_channel, base);
}

/* What a device is opened with: the configuration, checked, and what a lease says besides. */
struct soft_open {
	const struct frl_device_config *config;
	uint8_t mac[6]; /* zero: the port's own */
	uint32_t qpn_first, qpn_count;
};

/* Errors as frl_device_open(). */
int soft_device_open(const struct soft_open *wanted, struct frl_device **ret_device);

/* progress.c */

uint32_t soft_poll(struct frl_device *device);
void soft_leaving(struct frl_device *device);
int soft_start_thread(struct frl_device *device);
/* Ends it, if there is one. Without the guard. */
void soft_stop_thread(struct soft_device *device);
void soft_expect_sleep(struct frl_device *device);
void soft_note_poll(struct frl_device *device);

/* sleep.c */

void sleep_init(struct soft_device *device);
void sleep_fini(struct soft_device *device);
int soft_sleep(struct frl_device *device, struct awaited *awaited);
int soft_watch(struct frl_device *device);
void soft_unwatch(struct frl_device *device);
/* Wakes those who have something to do now. Guard held; it is about to be released. */
void sleep_rouse(struct soft_device *device);
/* Wakes all. Guard held. */
void sleep_rouse_all(struct soft_device *device);

/* memory.c */

int soft_mr_reg(struct frl_mr *mr);
int soft_mr_rereg(struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted);
int soft_mr_dereg(struct frl_mr *mr);
int soft_mr_map_far(struct frl_mr *mr, int fd, uint64_t offset);
/* Attached one at a time; the offload maps and unmaps memory without the guard. */
int soft_offload_attach(struct frl_device *device, struct offload *offload);
void soft_offload_detach(struct frl_device *device, struct offload *offload);
int soft_mw_alloc(struct frl_mw *mw);
void soft_mw_dealloc(struct frl_mw *mw);
uint32_t soft_mw_rkey(struct frl_mw *mw);
int soft_ah_create(struct frl_ah *ah);
void soft_ah_destroy(struct frl_ah *ah);
/* A sentence about a next hop, or the other end of a link, that has not answered. With the guard
 * held. */
enum { SILENCE = 200 };
void soft_describe_silence(
	const struct soft_device *device, const struct frl_ah_attr *attr, char *out, size_t size);

/* fragments.c */

int soft_fragments_create(struct frl_fragments *fragments, uint32_t frames);
void soft_fragments_destroy(struct frl_fragments *fragments);
int soft_fragments_memory(
	struct frl_device *device, unsigned index, void **ret_addr, size_t *ret_length);
int soft_fragments_arm(struct frl_fragments *fragments, const struct frl_mr *mr,
	const struct fragments_range *range, uint32_t *ret_token);
int soft_fragments_count(
	struct frl_fragments *fragments, uint32_t token, uint32_t *ret_n, size_t *ret_bytes);
int soft_fragments_release(struct frl_fragments *fragments, uint32_t token);

/* queue.c */

int soft_channel_create(struct frl_comp_channel *channel);
void soft_channel_destroy(struct frl_comp_channel *channel);
struct frl_cq *soft_channel_take(struct frl_comp_channel *channel);
int soft_cq_create(struct frl_cq *cq, uint32_t depth);
void soft_cq_destroy(struct frl_cq *cq);
int soft_req_notify(struct frl_cq *cq, bool solicited_only);
int soft_poll_cq(struct frl_cq *cq, int max, struct frl_wc wc[], bool *ret_moved);
int soft_srq_create(struct frl_srq *srq);
void soft_srq_destroy(struct frl_srq *srq);
int soft_srq_set_limit(struct frl_srq *srq, uint32_t limit);
uint32_t soft_srq_limit(struct frl_srq *srq);
int soft_srq_post(struct frl_srq *srq, const struct frl_recv_wr wr[], int n, int *ret_posted);

/* queue_pair.c */

int soft_qp_create(struct frl_qp *qp, const struct frl_qp_config *config);
void soft_qp_destroy(struct frl_qp *qp);
int soft_qp_modify(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
int soft_qp_unanswered(struct frl_qp *qp, const struct frl_qp_attr *attr, uint32_t mask);
void soft_qp_forget_path(struct frl_qp *qp);
enum frl_qp_state soft_qp_state(const struct frl_qp *qp);
void soft_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr);
void soft_qp_fail(struct frl_qp *qp, const char *reason);
void soft_qp_describe_error(const struct frl_qp *qp, char *text, size_t size);
int soft_attach_mcast(struct frl_qp *qp, const struct frl_ip *group);
int soft_detach_mcast(struct frl_qp *qp, const struct frl_ip *group);
int soft_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
int soft_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);
struct frl_qp *soft_find_qp(struct frl_device *device, uint32_t num);
/* The addresses of a network port are another's: fails all queue pairs and raises
 * FRL_EVENT_DEVICE_FATAL; the device is of no more use. */
void soft_revoke(struct frl_device *device, const char *reason);

/* describe.c */

void soft_describe_qps(struct frl_device *device, struct qp_batch *batch);

/* fabric.c */

/* On Ethernet, in one subnet, the peer has told its MAC address already. */
int soft_find_way(struct frl_device *device, struct frl_ah_attr *attr, const uint8_t mac[6]);
/* Makes sure that a link to the peer exists, on the local fabric, and holds it for a connection.
 * -EADDRINUSE: an earlier one is not gone yet, try again; -ENOSPC: there are as many as can be. */
int soft_link_open(struct frl_device *device, const struct frl_ip *peer_ip,
	const uint8_t peer_mac[6], const uint8_t peer_nonce[NONCE_SIZE]);
int soft_link_state(struct frl_device *device, uint16_t link);
/* A connection over the link is made, or has failed: then closes it if there is no other one, nor
 * anybody who makes one. */
void soft_link_release(struct frl_device *device, uint16_t link, bool failed);
/* Fills in link and MAC where the MAC is missing, from the link to the device that has the GID.
 * -EHOSTUNREACH. Guard held. */
int fabric_find_way(const struct soft_device *device, struct frl_ah_attr *attr);
/* Claims an address of 169.254.0.0/16 for a device: a socket whose name the kernel keeps unique and
 * gives back when the process ends. Returns the socket. -EADDRINUSE, or another errno. */
int fabric_claim_address(struct frl_ip *ret_ip, uint8_t ret_mac[6]);

/* address.c */

/* As in struct frl_device_config: `ip` becomes GIDs 1 and up. -EINVAL. */
int parse_addresses(const char *text, struct gid_table *ret_gids);
/* The gateways, which must be in subnets of the addresses. -EINVAL. */
int parse_gateways(const char *text, const struct gid_table *gids, struct neighbors_config *ret);
/* Puts the link-local address of the MAC into slot 0. -EINVAL: it is in another one too. */
int add_link_local(struct gid_table *gids, const uint8_t mac[6]);

#endif
