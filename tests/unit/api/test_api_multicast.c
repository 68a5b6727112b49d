/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The public interface: multicast between devices of the local fabric, of one process and of
 * several. They run in a network namespace of their own if the kernel permits that, since each
 * device makes links to all that use multicast.
 */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/net/ip.h"
#include "lib/device/soft.h"
#include "tests/fixtures/api_fixture.h"
#include "tests/fixtures/program.h"
#include "tests/fixtures/wait_limits.h"

enum {
	NOBODY = 65534,
	QKEY = 0x11223344,
	MULTICAST_QPN = 0xffffff,
	STATIONS = 3,
	GROUPS = 2,
	LENGTH = 64,
	ROOM = FRL_GRH_SIZE + LENGTH,
	RECEIVES = 8,
	OUTGOING = RECEIVES * ROOM, /* in the memory */
	SENT = 100,                 /* request that is no receive */
};

/* A device with one queue pair, and handles for groups. */
struct station {
	struct end end;
	struct frl_qp *qp;
	struct frl_ah *ahs[GROUPS];
	uint8_t inbox[RECEIVES]; /* values that were received, the oldest first */
	int n_inbox, n_sent;
};

static struct station stations[STATIONS];
static bool is_v6;

/* Other programs on this machine may run the same test. The processes of a case are in one process
 * group. */
static struct frl_ip group_of(int group)
{
	uint8_t low = (uint8_t)getpgrp(), high = (uint8_t)(getpgrp() >> 8);

	if (is_v6)
		return (struct frl_ip){ { 0xff, 0x12, [13] = (uint8_t)group, high, low } };
	return (struct frl_ip){ { [10] = 0xff, 0xff, 239, (uint8_t)(77 + group), high, low } };
}

static struct frl_ip address_of(const struct station *s)
{
	struct frl_gid gid;

	ok(frl_query_gid(s->end.device, 1, &gid));
	return gid.ip;
}

static void post_receive(struct station *s, uint32_t i)
{
	struct frl_sge sge = sge_of(&s->end, i * ROOM, ROOM);
	struct frl_recv_wr wr = { .wr_id = i, .sge = &sge, .n_sge = 1 };

	ck_assert_int_eq(frl_post_recv(s->qp, &wr, 1, NULL), 1);
}

static void open_station(struct station *s)
{
	*s = (struct station){ 0 };
	open_end(&s->end, false, FRL_PROGRESS_INLINE);
	s->qp = add_datagram_qp(&s->end, FRL_QPT_UD, QKEY);
	for (uint32_t i = 0; i < RECEIVES; i++)
		post_receive(s, i);
}

static void close_station(struct station *s)
{
	if (!s->end.device)
		return;
	for (int i = 0; i < GROUPS; i++)
		frl_ah_destroy(s->ahs[i]);
	frl_qp_destroy(s->qp);
	close_end(&s->end);
}

static void close_stations(void)
{
	for (int i = 0; i < STATIONS; i++)
		close_station(&stations[i]);
}

static int join(struct station *s, int group)
{
	struct frl_ip ip = group_of(group);

	return frl_attach_mcast(s->qp, &ip);
}

static void leave(struct station *s, int group)
{
	struct frl_ip ip = group_of(group);

	ok(frl_detach_mcast(s->qp, &ip));
}

/* Makes a handle for the group, or makes it again. */
static int find_way(struct station *s, int group)
{
	struct frl_ah_attr attr = { .dgid = group_of(group), .sgid_index = !is_v6 };

	frl_ah_destroy(s->ahs[group]);
	s->ahs[group] = NULL;
	return frl_ah_create(s->end.pd, &attr, &s->ahs[group]);
}

static void poll_station(struct station *s)
{
	struct frl_wc wc;

	if (!s->end.device || frl_poll_cq(s->end.cq, 1, &wc) == 0)
		return;
	ck_assert_int_eq(wc.status, FRL_WC_SUCCESS);
	if (wc.wr_id == SENT) {
		s->n_sent++;
		return;
	}
	ck_assert_uint_eq(wc.byte_len, ROOM);
	ck_assert_int_lt(s->n_inbox, RECEIVES);
	s->inbox[s->n_inbox++] = s->end.memory[wc.wr_id * ROOM + FRL_GRH_SIZE];
	post_receive(s, (uint32_t)wc.wr_id);
}

static void poll_all(void)
{
	for (int i = 0; i < STATIONS; i++)
		poll_station(&stations[i]);
}

static void send_by(struct station *s, struct frl_ah *ah, uint8_t value)
{
	struct frl_sge sge = sge_of(&s->end, OUTGOING, LENGTH);
	const struct frl_send_wr wr = {
		.wr_id = SENT,
		.opcode = FRL_WR_SEND,
		.flags = FRL_SEND_SIGNALED,
		.sge = &sge,
		.n_sge = 1,
		.ah = ah,
		.remote_qpn = MULTICAST_QPN,
		.remote_qkey = QKEY,
	};
	uint64_t limit_ns = hang_limit_ns();
	int n_sent = s->n_sent;

	memset(s->end.memory + OUTGOING, value, LENGTH);
	post_on(s->qp, &wr);
	while (s->n_sent == n_sent && may_wait(limit_ns))
		poll_all();
	ck_assert_int_eq(s->n_sent, n_sent + 1);
}

static void send_to(struct station *s, int group, uint8_t value)
{
	send_by(s, s->ahs[group], value);
}

/* The next datagram, or -1. */
static int next_value(struct station *s)
{
	uint64_t limit_ns = hang_limit_ns();
	int value;

	while (!s->n_inbox && may_wait(limit_ns))
		poll_all();
	if (!s->n_inbox)
		return -1;
	value = s->inbox[0];
	memmove(s->inbox, s->inbox + 1, (size_t)--s->n_inbox);
	return value;
}

static bool has_link(const struct station *s, struct frl_ip peer)
{
	const struct soft_device *device = soft_device(s->end.device);
	bool found = false;

	device_enter(s->end.device);
	for (unsigned i = 0; i < device->n_links; i++)
		found = found || ip_equal(&device->links[i].peer_ip, &peer);
	device_leave(s->end.device);
	return found;
}

/* ---- one process */

/* A member from before, a sender, and a member from later: all hear each other and themselves. */
START_LOOP_TEST(devices, 2)
{
	struct station *early = &stations[0], *sender = &stations[1], *late = &stations[2];

	is_v6 = _i;
	open_station(early);
	ok(join(early, 0));
	open_station(sender);
	ok(find_way(sender, 0));
	send_to(sender, 0, 1);
	ck_assert_int_eq(next_value(early), 1);
	open_station(late);
	ok(join(late, 0));
	send_to(sender, 0, 2);
	ck_assert_int_eq(next_value(early), 2);
	ck_assert_int_eq(next_value(late), 2);
	ok(join(sender, 0));
	ok(find_way(late, 0));
	send_to(late, 0, 3);
	for (int i = 0; i < STATIONS; i++)
		ck_assert_int_eq(next_value(&stations[i]), 3);
}
END_TEST

/* Each member gets the messages of its groups, and none after it has left. */
START_LOOP_TEST(groups, 2)
{
	struct station *one = &stations[0], *sender = &stations[1], *both = &stations[2];

	is_v6 = _i;
	for (int i = 0; i < STATIONS; i++)
		open_station(&stations[i]);
	ok(join(one, 0));
	ok(join(both, 0));
	ok(join(both, 1));
	for (int i = 0; i < GROUPS; i++)
		ok(find_way(sender, i));
	send_to(sender, 1, 1);
	send_to(sender, 0, 2);
	ck_assert_int_eq(next_value(one), 2);
	ck_assert_int_eq(next_value(both), 1);
	ck_assert_int_eq(next_value(both), 2);
	leave(both, 0);
	send_to(sender, 0, 3);
	send_to(sender, 1, 4);
	ck_assert_int_eq(next_value(one), 3);
	ck_assert_int_eq(next_value(both), 4);
}
END_TEST

/* Over the link that the sender has chosen, only its device gets them. */
START_TEST(chosen_link)
{
	struct station *near = &stations[0], *sender = &stations[1], *far = &stations[2];
	struct frl_ah_attr attr = { .sgid_index = 1 };
	struct frl_ah *ah;

	for (int i = 0; i < STATIONS; i++)
		open_station(&stations[i]);
	ok(join(near, 0));
	ok(join(far, 0));
	ok(find_way(sender, 0));
	attr.dgid = address_of(near);
	ok(frl_ah_create(sender->end.pd, &attr, &ah));
	frl_ah_query(ah, &attr);
	frl_ah_destroy(ah);
	attr.dgid = group_of(0);
	ok(frl_ah_create(sender->end.pd, &attr, &ah));
	send_by(sender, ah, 1);
	send_to(sender, 0, 2);
	frl_ah_destroy(ah);
	ck_assert_int_eq(next_value(near), 1);
	ck_assert_int_eq(next_value(near), 2);
	ck_assert_int_eq(next_value(far), 2);
}
END_TEST

/* A device that uses no multicast gets no link. */
START_TEST(others_are_left_alone)
{
	struct station *member = &stations[0], *sender = &stations[1], *other = &stations[2];

	for (int i = 0; i < STATIONS; i++)
		open_station(&stations[i]);
	ok(join(member, 0));
	ok(find_way(sender, 0));
	ck_assert(has_link(sender, address_of(member)));
	ck_assert(!has_link(sender, address_of(other)));
	ck_assert(!has_link(other, address_of(member)));
}
END_TEST

/* ---- several processes */

enum command { JOIN, FIND_WAY, SEND, NEXT, ONLY_BIND_AND_STOP, END };

struct order {
	enum command command;
	int group;
	uint8_t value;
};

/* A process with one station, which does what it is told. */
struct process {
	pid_t pid;
	int to, from;
	struct frl_ip ip;
};

static int do_order(struct station *s, const struct order *order)
{
	char name[64];

	switch (order->command) {
	case JOIN: return join(s, order->group);
	case FIND_WAY: return find_way(s, order->group);
	case SEND: send_to(s, order->group, order->value); return 0;
	case NEXT: return next_value(s);
	case END:
	case ONLY_BIND_AND_STOP: break;
	}
	/* As if it was stopped within frl_attach_mcast(). */
	snprintf(name, sizeof(name), "ferrule-groups/%s", format_ip(&s->end.device->attr.ip));
	soft_device(s->end.device)->groups_fd = fabric_claim_name(name);
	raise(SIGSTOP);
	return 0;
}

static _Noreturn void obey(int in, int out, bool as_other_user)
{
	struct station *s = &stations[0];
	struct order order;
	struct frl_ip ip;
	int rc;

	if (as_other_user && setresuid(NOBODY, NOBODY, NOBODY))
		_exit(2);
	/* The parent may have opened some. */
	memset(stations, 0, sizeof(stations));
	open_station(s);
	ip = address_of(s);
	ck_assert_int_eq(write(out, &ip, sizeof(ip)), sizeof(ip));
	/* Later processes inherit the pipe, so its end is no sign. */
	while (read(in, &order, sizeof(order)) == sizeof(order) && order.command != END) {
		rc = do_order(s, &order);
		ck_assert_int_eq(write(out, &rc, sizeof(rc)), sizeof(rc));
	}
	close_station(s);
	_exit(0);
}

static struct process start_process(bool as_other_user)
{
	struct process p;
	int to[2], from[2];

	ck_assert(!pipe(to) && !pipe(from));
	fflush(NULL);
	p.pid = fork();
	ck_assert_int_ge(p.pid, 0);
	if (p.pid == 0) {
		close(to[1]);
		close(from[0]);
		obey(to[0], from[1], as_other_user);
	}
	close(to[0]);
	close(from[1]);
	p.to = to[1];
	p.from = from[0];
	ck_assert_int_eq(read(p.from, &p.ip, sizeof(p.ip)), sizeof(p.ip));
	return p;
}

static void give(const struct process *p, enum command command, int group, uint8_t value)
{
	const struct order order = { command, group, value };

	ck_assert_int_eq(write(p->to, &order, sizeof(order)), sizeof(order));
}

static int result_of(const struct process *p)
{
	int rc;

	ck_assert_int_eq(read(p->from, &rc, sizeof(rc)), sizeof(rc));
	return rc;
}

static int tell(const struct process *p, enum command command, int group, uint8_t value)
{
	give(p, command, group, value);
	return result_of(p);
}

static void end_process(const struct process *p)
{
	int status;

	give(p, END, 0, 0);
	close(p->to);
	close(p->from);
	ck_assert_int_eq(waitpid(p->pid, &status, 0), p->pid);
	ck_assert_msg(status == 0, "the process ended with status %#x", (unsigned)status);
}

/* A process from before the sender, and one that starts later. */
START_TEST(processes)
{
	struct process early = start_process(false), late;
	struct station *own = &stations[0];

	ok(tell(&early, JOIN, 0, 0));
	open_station(own);
	ok(find_way(own, 0));
	send_to(own, 0, 1);
	ck_assert_int_eq(tell(&early, NEXT, 0, 0), 1);
	late = start_process(false);
	ok(tell(&late, JOIN, 0, 0));
	ok(join(own, 0));
	send_to(own, 0, 2);
	ck_assert_int_eq(tell(&early, NEXT, 0, 0), 2);
	ck_assert_int_eq(tell(&late, NEXT, 0, 0), 2);
	ck_assert_int_eq(next_value(own), 2);
	ok(tell(&early, FIND_WAY, 0, 0));
	ok(tell(&early, SEND, 0, 3));
	ck_assert_int_eq(tell(&early, NEXT, 0, 0), 3);
	ck_assert_int_eq(tell(&late, NEXT, 0, 0), 3);
	ck_assert_int_eq(next_value(own), 3);
	end_process(&early);
	end_process(&late);
}
END_TEST

/* The others go on at once, and with a new handle. */
START_TEST(killed)
{
	struct process victim = start_process(false), member = start_process(false);
	struct station *own = &stations[0];

	ok(tell(&victim, JOIN, 0, 0));
	ok(tell(&member, JOIN, 0, 0));
	open_station(own);
	ok(find_way(own, 0));
	send_to(own, 0, 1);
	ck_assert_int_eq(tell(&victim, NEXT, 0, 0), 1);
	ck_assert_int_eq(tell(&member, NEXT, 0, 0), 1);
	kill(victim.pid, SIGKILL);
	waitpid(victim.pid, NULL, 0);
	send_to(own, 0, 2);
	ok(find_way(own, 0));
	send_to(own, 0, 3);
	ck_assert_int_eq(tell(&member, NEXT, 0, 0), 2);
	ck_assert_int_eq(tell(&member, NEXT, 0, 0), 3);
	close(victim.to);
	close(victim.from);
	end_process(&member);
}
END_TEST

static void wait_until_stopped(const struct process *p)
{
	int status;

	ck_assert_int_eq(waitpid(p->pid, &status, WUNTRACED), p->pid);
	ck_assert(WIFSTOPPED(status));
}

/* A process that is stopped before it has links is waited for once, and has its links when it
 * continues, without a call of either application. No limit expires except where the case says so.
 */
START_TEST(stopped_before)
{
	struct process stopped = start_process(false), member = start_process(false);
	struct station *own = &stations[0];
	uint64_t limit_ns;

	open_station(own);
	ok(find_way(own, 0));
	ok(tell(&member, JOIN, 0, 0));
	give(&stopped, ONLY_BIND_AND_STOP, 0, 0);
	wait_until_stopped(&stopped);
	limits_expire(FABRIC_MEET_MS);
	ok(find_way(own, 0));
	limits_expire(0);
	ok(find_way(own, 0));
	ok(join(own, 1));
	send_to(own, 0, 1);
	ck_assert_int_eq(tell(&member, NEXT, 0, 0), 1);
	ck_assert(!has_link(own, stopped.ip));
	kill(stopped.pid, SIGCONT);
	ok(result_of(&stopped));
	limit_ns = hang_limit_ns();
	while (!has_link(own, stopped.ip) && may_wait(limit_ns))
		sched_yield();
	ok(tell(&stopped, JOIN, 0, 0));
	send_to(own, 0, 2);
	ck_assert_int_eq(tell(&stopped, NEXT, 0, 0), 2);
	ck_assert_int_eq(tell(&member, NEXT, 0, 0), 2);
	end_process(&stopped);
	end_process(&member);
}
END_TEST

/* A member that is stopped, until its link is full: the others get all. */
START_TEST(stopped_member)
{
	struct process stopped = start_process(false), member = start_process(false);
	struct station *own = &stations[0];
	struct frl_stats stats;
	uint8_t value = 0;

	ok(tell(&stopped, JOIN, 0, 0));
	ok(tell(&member, JOIN, 0, 0));
	open_station(own);
	ok(find_way(own, 0));
	kill(stopped.pid, SIGSTOP);
	wait_until_stopped(&stopped);
	do {
		send_to(own, 0, ++value);
		ck_assert_int_eq(tell(&member, NEXT, 0, 0), value);
		frl_device_stats(own->end.device, &stats);
	} while (!stats.drop_datagram);
	send_to(own, 0, ++value);
	ck_assert_int_eq(tell(&member, NEXT, 0, 0), value);
	kill(stopped.pid, SIGCONT);
	ck_assert_int_eq(tell(&stopped, NEXT, 0, 0), 1);
	end_process(&stopped);
	end_process(&member);
}
END_TEST

/* Nothing goes to a process of another user, and nothing fails because of it. */
START_TEST_IF(other_user, geteuid() == 0)
{
	struct process other = start_process(true), member = start_process(false);
	struct station *own = &stations[0];

	ok(tell(&other, JOIN, 0, 0));
	ok(tell(&member, JOIN, 0, 0));
	open_station(own);
	ok(find_way(own, 0));
	ok(join(own, 0));
	send_to(own, 0, 1);
	ck_assert_int_eq(next_value(own), 1);
	ck_assert_int_eq(tell(&member, NEXT, 0, 0), 1);
	ok(tell(&other, FIND_WAY, 0, 0));
	ok(tell(&other, SEND, 0, 2));
	ck_assert_int_eq(tell(&other, NEXT, 0, 0), 2);
	ck_assert(!has_link(own, other.ip));
	ck_assert(has_link(own, member.ip));
	end_process(&other);
	end_process(&member);
}
END_TEST

TEST_MAIN(api_multicast)
{
	if (test_port()) {
		say_skipped("all_fn", 0, "only the local fabric has no switch");
		return 0;
	}
	(void)!unshare(CLONE_NEWNET);
	return run_suite_forked(all_tests(NULL, close_stations));
}
