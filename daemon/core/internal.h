/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The structs of the core, and the interface between its files. All of them can be reached from
 * struct core. The objects of a session are removed with it.
 *
 *	core.c, sessions.c  messages, deadlines; sessions, and the usage of each user, for limits
 *	conns/              listeners and connections
 *	groups/             jobs whose ranks meet: here, or at another daemon; mail
 *	leases/             ports of processes, leases of addresses and numbers, packet sockets
 *	peers/              other daemons, and whether data flows while they do not answer
 *	query/              requests of operators, and reports
 *	metrics/            Prometheus text, and sums in it that outlive processes
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
	LEASE_ADDRESSES = 4, /* the most ranges of a fabric */
	LEASE_TEXT = 256,    /* bytes of its addresses as text */
	PORT_ADDRESSES = 4,  /* addresses that are sent to peers */
};

struct peer;

struct who {
	char host[CORE_HOST]; /* "": this host */
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
		uint32_t slots; /* page slots that are read */
	} usage;                /* of all its sessions, for limits */
	bool lacks_slots;       /* and a warning was logged */
	uint64_t turn_ns;       /* when a request of this user was last continued */
};

struct session {
	uint64_t id;
	UT_hash_handle hh; /* core.sessions */
	enum core_session_kind kind;
	Ctl__Role role; /* ROLE_NONE: no Hello yet */
	uint64_t opened_ns;
	uint64_t hello_by_ns;
	/* CORE_LOCAL */
	struct user *user;
	uid_t uid;
	gid_t gids[64];
	size_t n_gids;
	struct who who; /* from the socket; a process names its own program */
	uint64_t instance;
	bool is_operator; /* root, the user of a private daemon, or in config.operators */
	bool lost;        /* removed; only its memory remains, until the core's function returns */
	struct session *next_lost;
	struct page_view page; /* the latest, for the next DescribePort */
	struct list ports;     /* struct port.of_session */
	struct list listeners; /* struct listener.of_session */
	struct list conns;     /* struct conn.of_session */
	struct conn *conns_by_qp;
	struct list members;  /* struct member.of_session */
	struct list requests; /* struct request.of_session: not answered yet */
	/* The Publish that has not been answered yet, and its deadline. */
	uint64_t publish_seq;
	uint64_t publish_by_ns;
	/* traffic.c: when data last arrived over a network, when the pages were last read for that,
	 * and when new pages were last requested. */
	uint64_t received_ns, read_at_ns, refreshed_ns;
	/* CORE_PEER, CORE_PEER_DIALLED */
	struct peer *peer; /* after its Hello */
	uint64_t piece;    /* the last piece sent to it, by the count of core.pieces */
	char address[64];
	bool tls;
	bool (*certified)(void *ctx, uint64_t session, const char *name);
};

/* ---- ports */

struct lease;

struct port {
	struct session *session;
	struct list of_session;
	uint32_t number;     /* chosen by the process */
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
	struct page_view page; /* NULL: none */
	uint32_t slots;        /* its slots in the user's usage */
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
	uint32_t waiting; /* requests without an answer */
	bool any_user;
};

enum conn_state {
	CONN_REQUESTED, /* active: forwarded or held; passive: the process was notified */
	CONN_REPLIED,
	CONN_ESTABLISHED,
};

/* One end of a connection. A connection within this host has two. */
struct conn {
	struct {
		uint8_t uuid[UUID_SIZE];
		uint8_t passive; /* 0 or 1; keys have no padding */
	} key;
	UT_hash_handle hh; /* core.conns, ordered by `number` */
	uint64_t number;
	enum conn_state state;
	struct session *session; /* of the process; NULL: it may still come back */
	struct list of_session;
	struct port *port;
	struct {
		uint32_t port, qpn;
	} qp_key;
	UT_hash_handle hh_qp;      /* session.conns_by_qp, once the queue pair is known */
	struct listener *listener; /* passive, until answered */
	struct peer *peer;         /* has the other end; NULL: this host */
	struct list of_peer;
	char service[CORE_NAME + 1];
	struct who other;
	uint32_t qpn, peer_qpn;
	uint64_t since_ns;
	uint64_t received_ns; /* traffic.c: when its queue pair last received a packet */
	uint64_t deadline_ns; /* of the setup */
	/* A message that the peer needs, and gets again after a disconnection: the request until it
	 * is answered, the reply until the connection is established. Also a deferred request. */
	Ctl__Envelope *held;
	bool deferred;   /* passive: waits for its service after a restart; no session */
	uint64_t synced; /* the peer's sync_round that last contained this connection */
};

enum peer_state {
	PEER_DIALLING,
	PEER_CONNECTED,
	PEER_LOST, /* dialled again at retry_ns */
};

/* Another daemon, by the "host" and port that are dialled. */
struct peer {
	UT_hash_handle hh; /* core.peers, by `key` */
	char key[CORE_HOST + 8];
	char host[CORE_HOST]; /* as dialled, or the address that it connected from */
	uint16_t port;        /* 0: it cannot be dialled */
	bool is_wanted;       /* created for a process of this host, of this user */
	uid_t uid;
	enum peer_state state;
	uint64_t session; /* in use; 0: none */
	bool is_dialled;  /* this daemon dialled that session */
	uint64_t dial;    /* a dial without a Hello yet; 0: none */
	/* Both daemons have dialled: the other session, read until then. 0: none. */
	uint64_t old_session, old_until_ns;
	struct peer *same_as; /* an alias of that peer: no session, empty lists */
	char address[64];     /* numeric, of its latest session */
	char dialled_at[64];  /* numeric, of the latest session dialled here; or "" */
	char name[CORE_HOST]; /* from its Hello */
	char release[32];
	uint64_t instance;
	bool is_self;      /* this daemon under another name */
	struct list conns; /* struct conn.of_peer */
	/* struct member.of_peer: members on that host in groups here, and the reverse */
	struct list members;
	uint64_t last_rx_ns;       /* when it last sent anything */
	uint64_t declared_gone_ns; /* when it was last declared gone; 0: never */
	uint64_t pinged_ns;        /* when the ping without a pong yet was sent; 0: none */
	uint64_t ping_ns;          /* when the next ping is due */
	uint64_t up_ns;            /* since when it is connected; 0: never was */
	uint64_t lost_ns;          /* since when it is not */
	uint64_t dialled_ns;       /* when it was last dialled; 0: never */
	uint64_t retry_ns;
	uint32_t backoff_ms;
	int refusal;         /* errno of a Failure before its Hello; 0: none */
	bool owes_sync;      /* send a Sync once this daemon has relearned */
	uint64_t sync_round; /* counts its Syncs, which come in parts */
	uint64_t rtt_ns;
	uint32_t keepalive_ms; /* the shorter one of both daemons */
	char last_error[CORE_REASON];
	uint64_t idle_ns; /* since when it has no connection and no member */
};

/* ---- groups */

struct group;

/* A rank. A group keeps members that have gone, for late joiners; they are in no list. */
struct member {
	uint8_t id[UUID_SIZE];
	UT_hash_handle hh;   /* core.members, until it has gone */
	struct group *group; /* NULL: `peer` keeps the group */
	uint32_t rank;
	struct session *session; /* of the process; NULL: on the host of `peer` */
	struct list of_session;
	struct peer *peer;
	struct list of_peer;
	uint64_t peer_session; /* of the peer, used by the join; 0: the join is held */
	bool joined, left, aborted, dead;
	bool away; /* out of reach until away_until_ns at most */
	uint64_t away_until_ns;
	uint64_t lost_until_ns;  /* the limit if its daemon is not connected either */
	uint32_t lost_s;         /* how long it works without daemons */
	uint64_t seq;            /* of its GroupJoin, until answered */
	char job[CORE_NAME + 1]; /* of a group kept by `peer`, with its id */
	uint64_t group_id;
	uint32_t rounds;    /* allgathers that it has given its piece for */
	uint32_t to_resend; /* requested pieces that it still has to give again */
	char *about;        /* description; once dead, what happened to it; NULL: no memory */
	uint8_t *piece;     /* of the latest round, while ranks are still to join; or NULL */
	size_t piece_size;
	Ctl__Envelope *held; /* its GroupJoin, until the peer has answered */
};

struct group {
	UT_hash_handle hh;        /* core.groups, by `key` */
	char key[CORE_NAME + 16]; /* user and job: "1000/train" */
	uint32_t uid;
	uint32_t ranks;
	uint64_t id;              /* distinguishes groups of the same name */
	uint32_t n_joined;        /* members that have joined, or will never join */
	uint32_t n_present;       /* members that have not gone; the group ends with the last one */
	uint32_t away;            /* present members that are away */
	uint64_t rejoin_until_ns; /* created again: all must come back until then; 0: no */
	bool all_joined;          /* all have joined and know it: a joiner must be coming back */
	struct member **members;  /* by rank; NULL: has not joined */
	size_t kept;              /* bytes of pieces for late ranks */
	/* Ranks have come back, and ranks may lack pieces of this round and later ones. Once all
	 * are there, one rank after the other gives its pieces again. */
	bool resending;
	uint32_t resend_from;
	uint32_t resend_next;     /* the next rank to be asked */
	uint32_t resends_pending; /* sum of the members' `to_resend` */
	size_t resend_size;       /* largest piece that was given again, plus 1; 0: none */
};

/* ---- operators */

enum request_kind {
	REQUEST_REPORT, /* Query */
	REQUEST_WHY,    /* a Query of that kind */
	REQUEST_KILL,   /* KillQp */
	REQUEST_VIEW,   /* ViewRequest, of another daemon */
};

/* A request that waits, for processes to publish or for the view of a peer. */
struct request {
	struct session *session;
	struct list of_session;
	struct list node; /* core.requests */
	uint64_t seq;
	enum request_kind kind;
	Ctl__Query query;         /* a copy without pointers; of KillQp: the queue pair */
	char reason[CORE_REASON]; /* of KillQp */
	uint8_t uuid[UUID_SIZE];  /* of the connection that ViewRequest names */
	bool of_passive;
	uint64_t started_ns;
	uint64_t deadline_ns;
	uint64_t publish_seq;    /* ignores processes that were asked to publish later */
	uint32_t awaited;        /* processes that have not published yet */
	struct session *process; /* the only process concerned; NULL: all visible ones */
	/* A long report: how far it has been sent. */
	bool is_long;
	bool in_row; /* nothing is awaited: it waits for its user's turn */
	struct report_at {
		uint64_t session;    /* with the next two: the next port and slot */
		uint32_t port, slot; /* both count from 0 */
		uint64_t lease, conn;
	} at;
	uint64_t pause_ns;     /* until the next check for room for a part */
	bool finds_peer;       /* why: has found the queue pair, waits for the other end */
	uint64_t peer_session; /* of the daemon that must answer `peer_seq`; 0: none */
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
	struct list open_waits; /* ports.c: OpenPorts that wait until this daemon has relearned */
	struct pool *pools;     /* leases.c */
	uint64_t instance;
	uint64_t next_session; /* of dial() */
	uint64_t next_lease;
	uint64_t next_conn;
	uint64_t turn_ns; /* like user.turn_ns, for other daemons */
	uint64_t pieces;  /* pieces that were given in groups here */
	uint64_t next_seq;
	uint64_t started_ns;
	uint64_t relearn_until_ns;    /* leases and ends of connections wait until then; 0: no */
	uint64_t idle_since_ns;       /* 0: a process or operator is connected */
	uint64_t now_ns;              /* of the current call */
	const struct session *sender; /* the sender of the current message; NULL: none */
	uint64_t refused_ns;          /* when a refused session was last logged; 0: never */
	uint64_t due_ns;
	struct session *lost;                       /* freed when the current call returns */
	uint32_t n_local, n_remote, n_unidentified; /* sessions; strangers (no Hello) count twice */
	char draining[CORE_REASON];                 /* or empty */
	uint64_t conns_due_ns;                      /* no connection times out before */
	uint64_t groups_due_ns;                     /* no rank is given up before */
	uint32_t deferred;     /* requests deferred until their service is back */
	bool warned_no_socket; /* of a lease whose socket could not be opened */
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
/* Returns a deep copy of a message, to be freed by ctl__envelope__free_unpacked(); NULL without
 * memory. */
Ctl__Envelope *envelope_copy(const Ctl__Envelope *envelope);
/* Copies text from a message, cut to fit. */
void copy_text(char *to, size_t size, const char *from);

/* ---- sessions.c */

void session_hello(struct core *core, struct session *session, const Ctl__Envelope *envelope);
void session_drop_page(struct session *session);
bool session_in_group(const struct session *session, gid_t gid);
/* Determines again which sessions are operators. */
void sessions_configure(struct core *core);
uint64_t sessions_tick(struct core *core); /* sessions without Hello; returns the next deadline */
void sessions_reap(struct core *core);
/* Removes a session that has ended, with all its objects. `end` and `why` are for peers. */
void session_remove(struct core *core, struct session *session, enum core_end end, const char *why);

struct session *session_find(struct core *core, uint64_t id);
void session_send(struct core *core, const struct session *session, Ctl__Envelope *envelope);
/* Sends a Failure as the answer to request `seq`; nothing if that is 0. */
void session_fail(struct core *core, const struct session *session, uint64_t seq, int error,
	const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same for a request that may succeed after this time. */
void session_fail_for(struct core *core, const struct session *session, uint64_t seq, int error,
	uint32_t retry_ms, const char *text);
void session_done(struct core *core, const struct session *session, uint64_t seq);
/* Sends a Failure and closes a session that violates the protocol. Its objects are removed. */
void session_reject(struct core *core, struct session *session, int error, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Closes a session that is no longer needed. Its objects are removed. */
void session_close(struct core *core, struct session *session, uint64_t now_ns);
struct usage core_usage(const struct core *core, uid_t uid);

/* ---- leases/ports.c */

void ports_open(struct core *core, struct session *session, uint64_t seq,
	const Ctl__OpenPort *message, uint64_t now_ns);
void ports_describe(struct core *core, struct session *session, uint64_t seq,
	const Ctl__DescribePort *message, uint64_t now_ns);
void ports_close(struct core *core, struct session *session, uint32_t number, uint64_t now_ns);
void ports_session_lost(struct core *core, struct session *session, uint64_t now_ns);
struct port *port_find(const struct session *session, uint32_t number);
/* Returns true if the endpoint, the bytes of struct frl_endpoint, names this port and one of its
 * QPNs, which is stored in *ret_qpn. So a process cannot pretend to be another one. */
bool port_owns_endpoint(const struct port *port, const uint8_t *endpoint, uint32_t *ret_qpn);
uint64_t ports_tick(struct core *core, uint64_t now_ns); /* as below */
void ports_destroy(struct core *core);

/* ---- conns/ */

void conns_listen(struct core *core, struct session *session, uint64_t seq,
	const Ctl__Listen *message, uint64_t now_ns);
void conns_unlisten(struct core *core, struct session *session, uint32_t number, uint64_t now_ns);
/* Handles ConnRequest, ConnReply, ConnReady, ConnEnd and ConnResume of a process or another
 * daemon. */
void conns_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void conns_session_lost(struct core *core, struct session *session, uint64_t now_ns);
void conns_port_lost(struct core *core, struct port *port, uint64_t now_ns);
/* The peer is connected: held messages are sent. */
void conns_peer_up(struct core *core, struct peer *peer, uint64_t now_ns);
/* The peer's host is gone, or it refuses. Its connections that are not established end. With `all`
 * the others end too, unless they still receive data. */
void conns_peer_gone(struct core *core, struct peer *peer, bool all, int error, const char *why,
	uint64_t now_ns);
/* Handles the list of the peer's connections: an end that is missing in it has ended. */
void conns_sync(struct core *core, struct peer *peer, const Ctl__Sync *sync, uint64_t now_ns);
void conns_send_sync(struct core *core, struct peer *peer);
/* Schedules a Sync: soon, together with later changes, or once this daemon has relearned. */
void conns_owe_sync(struct core *core, struct peer *peer, uint64_t now_ns);
struct conn *conns_find(const struct core *core, const uint8_t *uuid, bool passive);
/* Returns the connection of a queue pair, or NULL. */
struct conn *conn_of_qp(const struct session *session, const struct port *port, uint32_t qpn);
uint64_t conns_tick(struct core *core, uint64_t now_ns);
/* The peer turned out to be this daemon: its connections and requests continue here. */
void conns_peer_self(struct core *core, struct peer *peer, uint64_t now_ns);
/* The peer is an alias of `same_as`, which takes over its connections. */
void conns_peer_same(struct core *core, struct peer *peer, struct peer *same_as, uint64_t now_ns);
/* Call it before the sessions, ports and peers of the connections are destroyed. */
void conns_destroy(struct core *core);

/* ---- peers/ */

/* Returns the peer of "host", "host:port" or "[::1]:port", and dials it if necessary. Returns NULL
 * with *ret_self set for this host, else with `why`. The peer counts for core.sender: users share
 * the number of peers. */
struct peer *peer_get(struct core *core, const char *host, bool *ret_self, int *ret_error,
	const char **ret_why, uint64_t now_ns);
/* Sends if the peer is connected. Returns false if not. */
bool peer_send(struct core *core, const struct peer *peer, Ctl__Envelope *envelope);
void peers_hello(
	struct core *core, struct session *session, const Ctl__Hello *hello, uint64_t now_ns);
/* Handles Ping, Pong, Sync, ViewRequest and View; also Failure, even before a Hello. */
void peers_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void peers_session_lost(struct core *core, struct session *session, enum core_end end,
	const char *why, uint64_t now_ns);
/* A dial failed before there was a session. */
void peers_dial_failed(
	struct core *core, uint64_t session, enum core_end end, const char *why, uint64_t now_ns);
uint64_t peers_tick(struct core *core, uint64_t now_ns);
/* Returns the time since when received data shows that the peer's host lives. */
uint64_t peer_since_ns(const struct peer *peer, uint64_t now_ns);
void send_hello(struct core *core, const struct session *session);
void peers_destroy(struct core *core);
/* Returns the peer with this instance, or NULL. */
struct peer *peer_of_instance(const struct core *core, uint64_t instance);

/* ---- groups/ */

void groups_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void groups_session_lost(struct core *core, struct session *session, uint64_t now_ns);
void groups_peer_up(struct core *core, struct peer *peer, uint64_t now_ns);
/* Sends the joins that were lost with another session of the peer over the one that it has now. */
void groups_send_joins(struct core *core, struct peer *peer, uint64_t now_ns);
/* Like conns_peer_gone(): joins without an answer end; with `all` every rank that needs the peer,
 * unless its job still receives data. Call it with `all` before the session is closed. */
void groups_peer_gone(
	struct core *core, struct peer *peer, bool all, const char *why, uint64_t now_ns);
/* Gives up ranks that have not come back. Returns the next deadline. */
uint64_t groups_tick(struct core *core, uint64_t now_ns);
void groups_destroy(struct core *core);

/* ---- query/ */

void query_message(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
/* Handles the Done of a Publish, View, and ViewRequest. */
void query_answer(
	struct core *core, struct session *session, const Ctl__Envelope *envelope, uint64_t now_ns);
void query_session_lost(struct core *core, struct session *session, uint64_t now_ns);
uint64_t query_tick(struct core *core, uint64_t now_ns);
/* Requests a new page from the process if one is older than `age_ns`. */
void session_request_page(
	struct core *core, struct session *session, uint64_t age_ns, uint64_t now_ns);
/* Returns true if the session may see and control objects of this user. */
static inline bool may_see(const struct session *session, uid_t uid)
{
	return session->is_operator || session->uid == uid;
}

/* ---- peers/traffic.c */

/* Returns true if the connection's queue pair here has received a packet since then, according to
 * the last page. Returns false unless it is established with a peer that has been reached. */
bool conn_receives(const struct core *core, const struct conn *conn, uint64_t since_ns);
/* The same for the job of the member: any rank here, any queue pair over a network. */
bool job_receives(const struct core *core, const struct member *member, uint64_t since_ns);
/* Requests new pages from the processes concerned if theirs are older than that. */
void traffic_refresh(struct core *core, const struct peer *peer, uint64_t age_ns, uint64_t now_ns);

/* ---- metrics/totals.c */

/* Keeps what the port has counted, so that no sum of the metrics decreases. Call it for each
 * described port before its page or its lease is released: when it is closed, or its session is
 * lost. */
void metrics_port_lost(struct core *core, struct port *port);
/* core_destroy() calls it after it has removed the sessions. */
void metrics_destroy(struct core *core);

#endif
