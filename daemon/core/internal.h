/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The core's own structs, and what its files do for each other. Everything hangs from struct core;
 * whatever belongs to a session goes when the session goes.
 *
 *	core.c     made and destroyed; messages to who they are for; deadlines
 *	sessions.c opened, Hello, refused, taken apart; what each user has, for limits
 *	ports.c    ports: opened, described, closed; whose an endpoint is
 *	leases.c   pools of what is leased, rights, hold times; lease_sockets.c: packet sockets of
 *	           leases, which may outlive them
 *	conns.c    listeners and connections
 *	peers.c    other daemons: dialled, kept alive, lost, synchronised
 *	traffic.c  whether data flows with hosts whose daemons do not answer
 *	groups.c   jobs whose ranks meet, mail; groups_kept.c: those that this daemon keeps, and
 *	           groups_proxied.c others; groups_back.c: ranks that come back after a restart,
 *	           lost pieces
 *	query.c    requests to publish, core_refresh(); kill-qp, drain; query_report.c,
 *	           query_why.c: reports
 *	metrics.c  Prometheus text; totals.c: the sums in it that outlive processes
 */
#ifndef FERRULE_DAEMON_CORE_INTERNAL_H
#define FERRULE_DAEMON_CORE_INTERNAL_H

#include <stdarg.h>

#include "daemon/core/core.h"
#include "lib/base/list.h"
#include "lib/base/table.h"
#include "lib/control/frame.h"

enum {
	CORE_NAME = 64,
	CORE_HOST = 256,
	CORE_REASON = 200,
	LATENCY_BUCKETS = 14,
	LEASE_ADDRESSES = 4, /* a fabric has no more ranges */
	LEASE_TEXT = 256,    /* its addresses as text */
	PORT_ADDRESSES = 4,  /* that are told to peers */
};

struct peer;

struct who {
	char host[CORE_HOST]; /* "": this one */
	char program[CORE_NAME];
	uint32_t pid;
	uint32_t uid;
};

/* ---- sessions */

/* A user with a session on this host. */
struct user {
	UT_hash_handle hh; /* core.users */
	uid_t uid;
	struct usage {
		uint32_t sessions, ports, listeners, conns;
		uint32_t slots; /* of pages, that are looked at */
	} usage;                /* over all its sessions: for limits */
	bool lacks_slots;       /* and that has been said */
	uint64_t turn_ns;       /* when a request of it that had waited was gone on with last */
};

struct session {
	uint64_t id;
	UT_hash_handle hh; /* core.sessions */
	enum core_session_kind kind;
	Ctl__Role role; /* ROLE_NONE: a stranger */
	uint64_t opened_ns;
	uint64_t hello_by_ns;
	/* CORE_LOCAL */
	struct user *user;
	uid_t uid;
	gid_t gids[64];
	size_t n_gids;
	struct who who; /* of a process: from the socket, the program as it says */
	uint64_t instance;
	bool is_operator; /* root, the daemon's user when it is private, or config.operators */
	bool lost; /* taken apart: only its memory is left, until the core's function returns */
	struct session *next_lost;
	struct page_view page; /* that came last, for the next DescribePort */
	struct list ports;     /* struct port.of_session */
	struct list listeners; /* struct listener.of_session */
	struct list conns;     /* struct conn.of_session */
	struct conn *conns_by_qp;
	struct list members;  /* struct member.of_session */
	struct list requests; /* struct request.of_session: operators' that wait for an answer */
	/* Publish: asked and not answered yet, and by whom it is awaited. */
	uint64_t publish_seq;
	uint64_t publish_by_ns;
	/* traffic.c: when data last came over a network, as its pages said when they were last
	 * read; and when they were last asked for. */
	uint64_t received_ns, read_at_ns, refreshed_ns;
	/* CORE_PEER, CORE_PEER_DIALLED */
	struct peer *peer; /* after its Hello */
	uint64_t piece;    /* of a group: the last one it has got, as core.pieces counts them */
	char address[64];
	bool tls;
	bool (*certified)(void *ctx, uint64_t session, const char *name);
};

/* ---- ports */

struct lease;

struct port {
	struct session *session;
	struct list of_session;
	uint32_t number;     /* the process's */
	struct lease *lease; /* NULL: local fabric */
	char fabric[CORE_NAME];
	bool described;
	char device[64];
	uint8_t mac[6];
	uint8_t nonce[16];
	char addresses[PORT_ADDRESSES][56]; /* with prefix lengths */
	struct frl_ip ips[PORT_ADDRESSES];
	uint32_t n_addresses;
	uint32_t path_mtu;
	uint64_t since_ns;
	struct page_view page; /* page NULL: none */
	uint32_t slots;        /* of it, that count in the user's usage */
};

/* ---- connections */

struct listener {
	struct session *session;
	struct list of_session;
	UT_hash_handle hh; /* core.listeners, by service */
	char service[CORE_NAME + 1];
	uint32_t number;
	struct port *port;
	uint32_t backlog;
	uint32_t waiting; /* requests not answered */
	bool any_user;
};

enum conn_state {
	CONN_REQUESTED, /* active: sent on, or waiting for a peer; passive: told to the process */
	CONN_REPLIED,
	CONN_ESTABLISHED,
};

/* One end of a connection: both, where both ends are of this host. */
struct conn {
	struct {
		uint8_t uuid[UUID_SIZE];
		uint8_t passive; /* 0 or 1: keys have no padding */
	} key;
	UT_hash_handle hh; /* core.conns, in the order of `number` */
	uint64_t number;
	enum conn_state state;
	struct session *session; /* of the process; NULL: to come back after a restart */
	struct list of_session;
	struct port *port;
	struct {
		uint32_t port, qpn;
	} qp_key;
	UT_hash_handle hh_qp;      /* session.conns_by_qp, as soon as the queue pair is known */
	struct listener *listener; /* passive, until answered */
	struct peer *peer;         /* who has the other end; NULL: this host */
	struct list of_peer;
	char service[CORE_NAME + 1];
	struct who other;
	uint32_t qpn, peer_qpn;
	uint64_t since_ns;
	uint64_t received_ns; /* traffic.c: when its queue pair last received a packet */
	uint64_t deadline_ns; /* of setting up */
	/* What the peer must get, and gets again when it was away: the request until it is
	 * answered, the reply until the connection is established. Also a request that waits for
	 * its service to come back. */
	Ctl__Envelope *held;
	bool parked;     /* passive: waits for its service after a restart; no session */
	uint64_t synced; /* the peer's sync_round in which it has named this connection */
};

enum peer_state {
	PEER_DIALLING,
	PEER_CONNECTED,
	PEER_LOST, /* to be dialled again at retry_ns */
};

/* Another daemon, by where it is dialled: "host" and port. */
struct peer {
	UT_hash_handle hh; /* core.peers, by `key` */
	char key[CORE_HOST + 8];
	char host[CORE_HOST]; /* as dialled, or the address that it came from */
	uint16_t port;        /* 0: it cannot be dialled */
	bool is_wanted;       /* it was made for a process here, of this user */
	uid_t uid;
	enum peer_state state;
	uint64_t session; /* over which it is spoken to; 0: none */
	bool is_dialled;  /* that was dialled here */
	uint64_t dial;    /* being dialled, or without a Hello yet; 0: none */
	/* Both have dialled at once: the other session, heard until then. 0: none. */
	uint64_t old_session, old_until_ns;
	struct peer *same_as; /* only another name for that one: no session, nothing in lists */
	char address[64];     /* numeric, of its latest session */
	char dialled_at[64];  /* the same, of the latest one that was dialled here; or "" */
	char name[CORE_HOST]; /* by its Hello */
	char release[32];
	uint64_t instance;
	bool is_self;      /* it turned out to be this daemon */
	struct list conns; /* struct conn.of_peer */
	/* struct member.of_peer: of its processes, in groups here; and of ours there */
	struct list members;
	uint64_t heard_ns;   /* when anything came */
	uint64_t judged_ns;  /* when it was last taken for gone; 0: never */
	uint64_t pinged_ns;  /* when the ping that waits for its pong was sent; 0: none waits */
	uint64_t ping_ns;    /* when the next one is due */
	uint64_t up_ns;      /* since when there is a session; 0: there has never been one */
	uint64_t lost_ns;    /* since when there is none */
	uint64_t dialled_ns; /* when it was last dialled; 0: never */
	uint64_t retry_ns;
	uint32_t backoff_ms;
	int refusal;         /* errno of the Failure that it sent before its Hello; 0: none */
	bool owes_sync;      /* it is to get a Sync as soon as this daemon has relearned */
	uint64_t sync_round; /* of its Syncs, which come in parts */
	uint64_t rtt_ns;
	uint32_t keepalive_ms; /* the shorter one of both */
	char last_error[CORE_REASON];
	uint64_t idle_ns; /* since when it has no connection and no member */
};

/* ---- groups */

struct group;

/* A rank. A group keeps those that have gone, for who joins late; they are in no list. */
struct member {
	uint8_t id[UUID_SIZE];
	UT_hash_handle hh;   /* core.members, until it has gone */
	struct group *group; /* NULL: the group is kept by `peer` */
	uint32_t rank;
	struct session *session; /* of the process; NULL: `peer` has it */
	struct list of_session;
	struct peer *peer;
	struct list of_peer;
	uint64_t peer_session; /* of the peer's, over which the join went; 0: none, it waits */
	bool joined, left, aborted, dead;
	bool away; /* it, or its daemon, is out of reach, and may come back until then */
	uint64_t away_until_ns;
	uint64_t lost_until_ns;  /* the same, should its daemon not be there either */
	uint32_t lost_s;         /* how long it does without daemons */
	uint64_t seq;            /* of its GroupJoin, until answered */
	char job[CORE_NAME + 1]; /* where the group is kept by `peer`, and its id */
	uint64_t group_id;
	uint32_t rounds; /* allgathers that it has given its piece for */
	uint32_t again;  /* pieces that it has been asked for, and is still to give, once more */
	char *about; /* who it is; once it is dead, what became of it; NULL: no memory for that */
	uint8_t *piece; /* of the latest round, while ranks are still to join; or NULL */
	size_t piece_size;
	Ctl__Envelope *held; /* its GroupJoin, until the peer has answered */
};

struct group {
	UT_hash_handle hh;        /* core.groups, by `key` */
	char key[CORE_NAME + 16]; /* user and job: "1000/train" */
	uint32_t uid;
	uint32_t ranks;
	uint64_t id;            /* tells it from others of that name */
	uint32_t met;           /* members that have joined, or will not come any more */
	uint32_t present;       /* of those, who has not gone; with the last one the group goes */
	uint32_t away;          /* and of those, who is away */
	uint64_t back_until_ns; /* made anew, until then all are to come back; 0: no */
	bool has_met;           /* all have joined once, and have heard so: who comes now was one */
	struct member **members; /* by rank; NULL: not there yet */
	size_t kept;             /* bytes of pieces for late ranks */
	/* Ranks have come back: of this round and later ones they, or others, may lack pieces. Once
	 * all are there, one rank after the other gives its pieces again. */
	bool returns;
	uint32_t again_from;
	uint32_t again_next; /* who is asked next */
	uint32_t asked;      /* sum of the members' `again` */
	size_t again_size; /* of the largest piece that has been given again, and 1; 0: none has */
};

/* ---- operators */

enum request_kind {
	REQUEST_REPORT, /* Query */
	REQUEST_WHY,    /* Query of that kind */
	REQUEST_KILL,   /* KillQp */
	REQUEST_VIEW,   /* ViewRequest, of another daemon */
};

/* Something that is asked, and waits: for processes to publish, or for a peer's view. */
struct request {
	struct session *session;
	struct list of_session;
	struct list node; /* core.requests */
	uint64_t seq;
	enum request_kind kind;
	Ctl__Query query;         /* a copy; it holds no pointers; of KillQp: which queue pair */
	char reason[CORE_REASON]; /* of KillQp */
	uint8_t uuid[UUID_SIZE];  /* of the connection that ViewRequest names */
	bool of_passive;
	uint64_t started_ns;
	uint64_t deadline_ns;
	uint64_t publish_seq; /* processes that were asked later do not matter to it */
	uint32_t awaited;     /* processes that have been told to publish and have not answered */
	struct session *process; /* the only one that matters, or NULL: all that may be seen */
	/* A long report: parts of it have been sent, up to here. */
	bool is_long;
	bool in_row; /* nothing is awaited: it goes on when it is its user's turn */
	struct report_at {
		uint64_t session;    /* with the next two: its port and its slot are next */
		uint32_t port, slot; /* both count from 0 */
		uint64_t lease, conn;
	} at;
	uint64_t pause_ns;     /* until it is looked whether there is room for the next part */
	bool finds_peer;       /* why: the queue pair is found, the other end's is waited for */
	uint64_t peer_session; /* which daemon is to answer `peer_seq`; 0: none */
	uint64_t peer_seq;
	Ctl__Envelope *view; /* its answer, or NULL */
	char peer_error[CORE_REASON + CORE_HOST + 64];
};

struct core_counters {
	uint64_t sessions, sessions_refused, bad_messages;
	uint64_t leases, leases_refused;
	uint64_t connects, connects_established, connects_refused, connects_timed_out;
	uint64_t ends_closed, ends_died, ends_host_gone, ends_killed;
	uint64_t groups, mail_dropped, peers_lost;
	uint64_t latency_count[LATENCY_BUCKETS + 1]; /* not cumulative; the last one: longer */
	double latency_sum_s;
};

extern const double latency_bounds_s[LATENCY_BUCKETS];

struct core {
	const struct config *config;
	struct core_ops ops;
	struct session *sessions;
	struct user *users;
	struct listener *listeners;
	struct conn *conns;
	struct peer *peers;
	struct member *members;
	struct group *groups;
	struct list leases;
	struct list requests;
	struct list open_waits; /* ports.c: OpenPorts until this daemon has relearned */
	struct pool *pools;     /* leases.c */
	uint64_t instance;
	uint64_t next_session; /* of dial() */
	uint64_t next_lease;
	uint64_t next_conn;
	uint64_t turn_ns; /* as that of a user, for other daemons */
	uint64_t pieces;  /* that have been given in groups here */
	uint64_t next_seq;
	uint64_t started_ns;
	uint64_t relearn_until_ns;  /* leases and ends of connections wait until then; 0: no */
	uint64_t idle_since_ns;     /* 0: a process or operator is there */
	uint64_t now_ns;            /* of the call that is being carried out */
	const struct session *asks; /* whose message that is; NULL: none */
	uint64_t refused_ns;        /* when a refused session was last logged; 0: never */
	uint64_t due_ns;
	struct session *lost;                    /* to be freed when that returns */
	uint32_t n_local, n_remote, n_strangers; /* sessions; strangers are in the others too */
	char draining[CORE_REASON];              /* or empty */
	uint64_t conns_due_ns;                   /* no connection times out before */
	uint64_t groups_due_ns;                  /* nor are ranks given up */
	uint32_t parked;                         /* connections that wait for their service */
	bool said_no_socket;                     /* of a lease, which could not be opened */
	/* Until then other ends on this host may come back; 0: all have. */
	uint64_t resumed_until_ns;
	struct core_facts facts; /* texts are in fact_texts */
	char *fact_texts[3];
	struct core_counters counters;
	struct total *totals; /* totals.c */
};

/* ---- core.c */

void core_say(struct core *core, enum core_log level, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* A deep copy of a message, to be freed by ctl__envelope__free_unpacked(). NULL: no memory. */
Ctl__Envelope *envelope_copy(const Ctl__Envelope *envelope);
/* Text from a message, cut to fit. */
void copy_text(char *to, size_t size, const char *from);

/* ---- sessions.c */

void session_hello(struct core *core, struct session *session, const Ctl__Envelope *envelope);
void session_drop_page(struct session *session);
bool session_in_group(const struct session *session, gid_t gid);
/* Who is an operator may have changed. */
void sessions_configure(struct core *core);
uint64_t sessions_tick(struct core *core); /* strangers that take too long; the next deadline */
void sessions_reap(struct core *core);
/* It has ended: everything that is its own goes. `end` and `why` are for peers. */
void session_take_apart(
	struct core *core, struct session *session, enum core_end end, const char *why);

struct session *session_find(struct core *core, uint64_t id);
void session_send(struct core *core, const struct session *session, Ctl__Envelope *envelope);
/* Failure to the request `seq`; nothing when that is 0. */
void session_fail(struct core *core, const struct session *session, uint64_t seq, int error,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same; the request may succeed after so long. */
void session_fail_for(struct core *core, const struct session *session, uint64_t seq, int error,
	uint32_t retry_ms, const char *text);
void session_done(struct core *core, const struct session *session, uint64_t seq);
/* What it sent is no use: Failure, and the end. Its things are taken apart. */
void session_throw_out(struct core *core, struct session *session, int error, const char *format,
	...) __attribute__((format(printf, 4, 5)));
/* Ends a session that is no use any more, without complaint. Its things are taken apart. */
void session_close(struct core *core, struct session *session, uint64_t now_ns);
struct usage core_usage(const struct core *core, uid_t uid);

/* ---- ports.c */

void ports_open(struct core *core, struct session *session, uint64_t seq,
	const Ctl__OpenPort *message, uint64_t now_ns);
void ports_describe(struct core *core, struct session *session, uint64_t seq,
	const Ctl__DescribePort *message, uint64_t now_ns);
void ports_close(struct core *core, struct session *session, uint32_t number, uint64_t now_ns);
void ports_session_lost(struct core *core, struct session *session, uint64_t now_ns);
struct port *port_find(const struct session *session, uint32_t number);
/* Does the endpoint, struct frl_endpoint's bytes, name this port and one of its QPNs? A process
 * cannot connect as another one. *ret_qpn. */
bool port_owns_endpoint(const struct port *port, const uint8_t *endpoint, uint32_t *ret_qpn);
uint64_t ports_tick(struct core *core, uint64_t now_ns); /* the next deadline, as below */
void ports_destroy(struct core *core);

/* ---- conns.c */

void conns_listen(struct core *core, struct session *session, uint64_t seq,
	const Ctl__Listen *message, uint64_t now_ns);
void conns_unlisten(struct core *core, struct session *session, uint32_t number, uint64_t now_ns);
/* ConnRequest, ConnReply, ConnReady, ConnEnd, ConnResume of a process or another daemon. */
void conns_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void conns_session_lost(struct core *core, struct session *session, uint64_t now_ns);
void conns_port_lost(struct core *core, struct port *port, uint64_t now_ns);
/* The peer is there: what was held is sent. */
void conns_peer_up(struct core *core, struct peer *peer, uint64_t now_ns);
/* The peer's host is gone, or it refuses: all its connections that have not been established end;
 * with `all` the others too, unless they still receive data. */
void conns_peer_gone(struct core *core, struct peer *peer, bool all, int error, const char *why,
	uint64_t now_ns);
/* What the peer has; what it has not has ended. */
void conns_sync(struct core *core, struct peer *peer, const Ctl__Sync *sync, uint64_t now_ns);
void conns_send_sync(struct core *core, struct peer *peer);
/* Soon, with what comes until then; after a restart when this daemon has relearned. */
void conns_owe_sync(struct core *core, struct peer *peer, uint64_t now_ns);
struct conn *conns_find(const struct core *core, const uint8_t *uuid, bool passive);
/* The connection of a queue pair, or NULL. */
struct conn *conn_of_qp(const struct session *session, const struct port *port, uint32_t qpn);
uint64_t conns_tick(struct core *core, uint64_t now_ns);
/* The peer is this daemon, under a name that nobody knew: what was for it goes on here. */
void conns_peer_self(struct core *core, struct peer *peer, uint64_t now_ns);
/* One peer is another one: what it has is that one's now. */
void conns_peer_same(struct core *core, struct peer *peer, struct peer *same_as, uint64_t now_ns);
/* Before the sessions, ports and peers that they have. */
void conns_destroy(struct core *core);

/* ---- peers.c */

/* "host", "host:port", "[::1]:port": the peer, dialled if it is not there. NULL with *ret_self set:
 * it is this host; otherwise `why`. For core.asks: users share what peers there may be. */
struct peer *peer_get(struct core *core, const char *host, bool *ret_self, int *ret_error,
	const char **ret_why, uint64_t now_ns);
/* Sends if connected. */
bool peer_send(struct core *core, const struct peer *peer, Ctl__Envelope *envelope);
void peers_hello(
	struct core *core, struct session *session, const Ctl__Hello *hello, uint64_t now_ns);
/* Ping, Pong, Sync, ViewRequest, View; Failure, also before a Hello. */
void peers_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void peers_session_lost(struct core *core, struct session *session, enum core_end end,
	const char *why, uint64_t now_ns);
/* A dial that failed before there was a session. */
void peers_dial_failed(
	struct core *core, uint64_t session, enum core_end end, const char *why, uint64_t now_ns);
uint64_t peers_tick(struct core *core, uint64_t now_ns);
/* Data that came since then shows that its host lives. */
uint64_t peer_since_ns(const struct peer *peer, uint64_t now_ns);
void send_hello(struct core *core, const struct session *session);
void peers_destroy(struct core *core);
/* By what it says; NULL: no peer has this instance. */
struct peer *peer_of_instance(const struct core *core, uint64_t instance);

/* ---- groups.c */

void groups_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void groups_session_lost(struct core *core, struct session *session, uint64_t now_ns);
void groups_peer_up(struct core *core, struct peer *peer, uint64_t now_ns);
/* As conns_peer_gone(): joins that were never answered end; with `all` every rank that needs it,
 * unless its job still receives data. The latter is to come before the session is closed. */
void groups_peer_gone(
	struct core *core, struct peer *peer, bool all, const char *why, uint64_t now_ns);
/* Ranks that have not come back; the next deadline. */
uint64_t groups_tick(struct core *core, uint64_t now_ns);
void groups_destroy(struct core *core);

/* ---- query.c */

void query_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
/* Done of a Publish, View, ViewRequest. */
void query_answer(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void query_session_lost(struct core *core, struct session *session, uint64_t now_ns);
uint64_t query_tick(struct core *core, uint64_t now_ns);
/* Has the process publish its pages if one is older than that. */
void session_request_page(
	struct core *core, struct session *session, uint64_t age_ns, uint64_t now_ns);
/* May the session see and steer what belongs to this user? */
static inline bool may_see(const struct session *session, uid_t uid)
{
	return session->is_operator || session->uid == uid;
}

/* ---- traffic.c */

/* Has the connection's queue pair here received a packet since then? As of the last page. False
 * unless it is established with a peer that was reached. */
bool conn_receives(const struct core *core, const struct conn *conn, uint64_t since_ns);
/* The same of the ranks here of the member's job, and any queue pair over a network. */
bool job_receives(const struct core *core, const struct member *member, uint64_t since_ns);
/* Has the processes concerned publish their pages, where these are older than that. */
void traffic_refresh(struct core *core, const struct peer *peer, uint64_t age_ns, uint64_t now_ns);

/* ---- totals.c */

/* What the port has counted is kept, so that no sum of the metrics goes down. To be called for each
 * described port before its page or its lease goes: it is closed, or its session is lost. */
void metrics_port_lost(struct core *core, struct port *port);
/* core_destroy() calls it, after the sessions have gone. */
void metrics_destroy(struct core *core);

#endif
