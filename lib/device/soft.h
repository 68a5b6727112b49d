/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The software device: an engine over a port, behind the ops table of device.h. The guard of the
 * device protects everything below it.
 *
 *	soft_device.c  opening over a port, closing, description
 *	progress.c     the threads that drive the engine
 *	sleep.c        waiting for work
 *	queue.c        completion queues and channels, receive queues
 *	queue_pair.c   queue pairs
 *	memory.c       regions, windows, address handles
 *	fragments.c    shares of the port's packet buffers
 *	fabric.c       links of the local fabric
 *	introduce.c    links to devices of which only the address is known
 *	multicast.c    links to all devices that use multicast
 *	address.c      addresses of a network port
 *	describe.c     queue pairs, for the control daemon
 */
#ifndef FERRULE_DEVICE_SOFT_H
#define FERRULE_DEVICE_SOFT_H

#include <semaphore.h>
#include <stdatomic.h>

#include <ferrule/connect.h>

#include "lib/base/memory/unmap_mark.h"
#include "lib/device/device.h"
#include "lib/engine/engine.h"
#include "lib/engine/fragments.h"

enum {
	SOFT_WAITERS = 4, /* at a time; further ones poll periodically */
};

/* A link of the local fabric to another device. */
struct soft_link {
	uint8_t peer_nonce[NONCE_SIZE];
	struct frl_ip peer_ip;
	uint8_t peer_mac[6];
	uint16_t link;
	bool is_replaced; /* another device has the peer's address by now */
	unsigned holders; /* connections being made over it */
};

/* A waiter, see sleep.c. */
struct soft_waiter {
	int fd; /* eventfd that wakes it; -1: not created yet */
	bool is_used;
	bool is_woken;       /* `fd` is readable */
	const struct cq *cq; /* a completion in it ends the sleep; or NULL */
	uint64_t until_ns;
	uint64_t moved; /* of the device when it fell asleep */
};

struct soft_device {
	struct frl_device base;
	struct engine engine;
	struct port *port;
	unsigned windows;        /* memory windows */
	struct unmap_user marks; /* of regions whose memory may be unmapped */

	/* Local fabric: the socket that holds the address, the one that the port will listen on,
	 * the one that tells of multicast (or -1), the links to other devices, and addresses to
	 * which links are being made (introduce.c). */
	int claim_fd, listen_fd, groups_fd;
	struct soft_link links[PORT_MAX_LINKS];
	unsigned n_links;
	struct list searches;

	_Atomic uint64_t moved; /* total of all rounds, of any thread; written with the guard */
	/* Idle rounds since the clock was read, and the kernel's tick then. */
	unsigned idle_rounds;
	uint64_t tick_ns;
	/* Consecutive polls that did not drive the engine, and the kernel's tick of the last one
	 * that did although there were completions. */
	unsigned undriven;
	uint64_t driven_tick_ns;

	/* Progress thread. */
	bool has_thread;
	pthread_t thread;
	sem_t wake; /* ends its pause */
	atomic_bool stop;
	atomic_bool pausing;
	atomic_uint polls;       /* rounds that the application drove */
	bool has_reported;       /* an event was reported since the thread last checked */
	atomic_uint sleep_polls; /* value of `polls` at the last request for an event */

	/* Waiters. */
	struct soft_waiter waiters[SOFT_WAITERS];
	unsigned n_asleep;
	atomic_int wake_fd;   /* Port's descriptor after the first sleep; -1 before, and if the port
			     * signals at any time, not only at the end of a sleep. */
	atomic_uint watchers; /* threads woken by it that wait for an event */
};

struct soft_mr {
	struct frl_mr base;
	struct region region;
	struct unmap_mark mark; /* its memory may be unmapped */
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
	struct event_fd event_fd;
	struct list pending; /* struct cq.notify: queues whose event was not read yet */
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
};

/* The common struct is the first member of each of them. */
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

/* Arguments for opening a device: the checked configuration, and the data of a lease. */
struct soft_open {
	const struct frl_device_config *config;
	uint8_t mac[6]; /* zero: the port's own */
	uint32_t qpn_first, qpn_count;
	int socket; /* socket of a leased packet: port, owned by the caller; or -1 */
};

/* Errors as for frl_device_open(). */
int soft_device_open(const struct soft_open *wanted, struct frl_device **ret_device);

/* progress.c */

uint32_t soft_poll(struct frl_device *device);
void soft_leaving(struct frl_device *device);
int soft_start_thread(struct frl_device *device);
/* Stops the thread, if any. Called without the guard. */
void soft_stop_thread(struct soft_device *device);
void soft_expect_sleep(struct frl_device *device);
void soft_note_poll(struct frl_device *device);

/* sleep.c */

void sleep_init(struct soft_device *device);
void sleep_fini(struct soft_device *device);
int soft_sleep(struct frl_device *device, struct awaited *awaited);
int soft_watch(struct frl_device *device);
void soft_unwatch(struct frl_device *device);
/* Wakes waiters that have work now. Called before the guard is released. */
void wake_waiters(struct soft_device *device);
/* Wakes all waiters. Guard held. */
void wake_all_waiters(struct soft_device *device);

/* memory.c */

int soft_mr_reg(struct frl_mr *mr);
int soft_mr_rereg(struct frl_mr *mr, uint32_t flags, const struct frl_mr *wanted);
int soft_mr_dereg(struct frl_mr *mr);
int soft_mr_map_far(struct frl_mr *mr, int fd, uint64_t offset);
/* One offload is attached at a time. The offload maps and unmaps memory without the guard. */
int soft_offload_attach(struct frl_device *device, struct offload *offload);
void soft_offload_detach(struct frl_device *device, struct offload *offload);
int soft_mw_alloc(struct frl_mw *mw);
void soft_mw_dealloc(struct frl_mw *mw);
uint32_t soft_mw_rkey(struct frl_mw *mw);
int soft_ah_create(struct frl_ah *ah);
void soft_ah_destroy(struct frl_ah *ah);
/* Writes a text about a next hop that has not answered. Guard held. */
enum { NO_ANSWER_SIZE = 200 };
void soft_describe_no_answer(
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
void soft_channel_divert(struct frl_comp_channel *channel);
int soft_cq_create(struct frl_cq *cq, uint32_t depth);
void soft_cq_destroy(struct frl_cq *cq);
int soft_cq_resize(struct frl_cq *cq, uint32_t depth);
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
void soft_qp_clear_path(struct frl_qp *qp);
enum frl_qp_state soft_qp_state(const struct frl_qp *qp);
void soft_qp_query(struct frl_qp *qp, struct frl_qp_attr *ret_attr);
void soft_qp_fail(struct frl_qp *qp, const char *reason);
void soft_qp_describe_error(const struct frl_qp *qp, char *text, size_t size);
int soft_attach_mcast(struct frl_qp *qp, const struct frl_ip *group);
int soft_detach_mcast(struct frl_qp *qp, const struct frl_ip *group);
int soft_post_send(struct frl_qp *qp, const struct frl_send_wr wr[], int n, int *ret_posted);
int soft_post_send_all(struct frl_qp *qp, const struct frl_send_wr wr[], int n);
int soft_post_recv(struct frl_qp *qp, const struct frl_recv_wr wr[], int n, int *ret_posted);
struct frl_qp *soft_find_qp(struct frl_device *device, uint32_t num);
/* The addresses of the network port are lost: fails all queue pairs and raises
 * FRL_EVENT_DEVICE_FATAL. The device cannot be used any more. */
void soft_revoke(struct frl_device *device, const char *reason);

/* describe.c */

void soft_describe_qps(struct frl_device *device, struct qp_batch *batch);

/* fabric.c */

/* On Ethernet, in one subnet, the peer has reported its MAC address. */
int soft_find_route(struct frl_device *device, struct frl_ah_attr *attr, const uint8_t mac[6]);
/* On the local fabric: opens a link to the peer unless there is one, and holds it for a
 * connection. -EADDRINUSE: an earlier link is not gone yet, try again; -ENOSPC: too many links. */
int soft_link_open(struct frl_device *device, const struct frl_ip *peer_ip,
	const uint8_t peer_mac[6], const uint8_t peer_nonce[NONCE_SIZE]);
int soft_link_state(struct frl_device *device, uint16_t link);
/* Ends the hold of a connection. If it has failed and the link has no other user, closes the link.
 */
void soft_link_release(struct frl_device *device, uint16_t link, bool failed);
/* Returns true if the caller has chosen the link of the path, by a MAC address. */
bool fabric_names_link(const struct frl_ah_attr *attr);
/* Finds the link to the device with the address that is up. Errors as for fabric_introduce(): the
 * link is being made. Guard held. */
int fabric_find_device(
	struct soft_device *device, const struct frl_ip *ip, const struct soft_link **ret_link);
/* Sets link and MAC address, if the latter is missing, from the link to the device with the GID.
 * Errors as for fabric_introduce(): the link is being made. Guard held. */
int fabric_find_route(struct soft_device *device, struct frl_ah_attr *attr);
/* Returns the capabilities (enum frl_capability) of both ends of a path that has a link. -EAGAIN:
 * the link is not up yet. Guard held. */
int fabric_find_capabilities(
	const struct soft_device *device, const struct frl_ah_attr *attr, uint32_t *ret);
/* Opens a link unless there is one, for `limit_ns` as in struct port_link_request. Errors as for
 * soft_link_open(). Guard held. */
int fabric_open_link(struct soft_device *device, const struct port_identity *peer,
	uint64_t limit_ns, struct soft_link **ret_link);
/* Claims an address of 169.254.0.0/16: binds sockets to names that the kernel keeps unique and
 * releases when the process ends. -EADDRINUSE, or another errno. */
int fabric_claim_address(struct soft_device *device, struct frl_ip *ret_ip, uint8_t ret_mac[6]);
/* Binds a socket to an abstract name. Returns the socket, -EADDRINUSE or another errno. */
int fabric_claim_name(const char *name);

/* introduce.c */

/*
 * Makes a link to the device with the address, of which nothing else is known. Returns -EAGAIN
 * while the link is being made: call again while polling. Returns -EHOSTUNREACH (no device has the
 * address, or it is of another release), -EACCES (it belongs to another user), -ENOSPC (too many
 * links) or another errno, with the reason. Guard held.
 */
int fabric_introduce(struct soft_device *device, const struct frl_ip *ip);
/* Marks a device that was asked and has not answered: it may be stopped. The mark is removed when
 * it answers. Guard held. */
void fabric_set_silent(struct soft_device *device, const struct frl_ip *ip);
bool fabric_is_silent(struct soft_device *device, const struct frl_ip *ip);
/* Take part in introductions, once the engine exists, and before it ends. Called without the
 * guard. Sets the reason of a failure. */
int fabric_start(struct soft_device *device);
void fabric_stop(struct soft_device *device);

/* multicast.c */

/* Makes links to all devices that use multicast, and lets later ones find this one. Waits until the
 * links are up, but no longer than FABRIC_MEET_MS, and not for devices that were silent before.
 * Failures are logged. Called without the guard. */
enum { FABRIC_MEET_MS = 1000 };
void fabric_meet(struct soft_device *device);

/* address.c */

/* Parses `ip` of struct frl_device_config to GIDs 1 and up. -EINVAL. */
int parse_addresses(const char *text, struct gid_table *ret_gids);
/* Parses the gateways, which must be in subnets of the addresses. -EINVAL. */
int parse_gateways(const char *text, const struct gid_table *gids, struct neighbors_config *ret);
/* Sets GID 0 to the link-local address of the MAC address. -EINVAL: another GID has it, too. */
int add_link_local(struct gid_table *gids, const uint8_t mac[6]);

#endif
