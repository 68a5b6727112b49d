/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * daemon/core/metrics/metrics.c, totals.c and core_refresh() of query.c: the metrics for
 * Prometheus, that sums do not go down when processes end, and that no process can spoil them for
 * others.
 */
#include <check.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ferrule/queue.h>

#include "daemon/core/metrics/totals.h"
#include "tests/unit/daemon/core/fixtures/core_world.h"
#include "tests/fixtures/program.h"

enum { UID = 1000, OTHER_UID = 2000, SLOTS = 8 };

static struct world *world;
static struct config *config;
static char *text;

static void setup(void)
{
	struct config_fabric *fabric = calloc(1, sizeof(*fabric));

	config = config_new();
	config->fabrics = fabric;
	config->n_fabrics = 1;
	config->hold_ms = 1000;
	fabric->name = strdup("eth");
	fabric->n_ports = 3;
	fabric->ports = calloc(3, sizeof(*fabric->ports));
	fabric->ports[0].devargs = strdup("net_a,x=\"1\\2\"");
	fabric->ports[1].devargs = strdup("net_b");
	fabric->ports[2].devargs = strdup("net_c");
	fabric->addresses = calloc(1, sizeof(*fabric->addresses));
	fabric->n_addresses = 1;
	fabric->addresses[0] = (struct config_range){
		.first = { { [10] = 255, 255, 10, 1, 0, 10 } },
		.last = { { [10] = 255, 255, 10, 1, 0, 20 } },
		.prefix_len = 24,
	};
	fabric->any_user = true;
	world = world_create(1);
	world_add_host(world, "a", config);
}

static void teardown(void)
{
	world_destroy(world);
	config_free(config);
	free(text);
	text = NULL;
}

/* ---- pages */

static struct page *new_page(void)
{
	return world_page(world, SLOTS);
}

static void set_counter(struct page *page, const char *name, uint64_t value)
{
	uint32_t i = 0;

	while (i < page->counters && strcmp(page->counter[i].name, name) != 0)
		i++;
	if (i == page->counters)
		snprintf(page->counter[page->counters++].name, PAGE_COUNTER_NAME, "%s", name);
	page->counter[i].value = value;
}

static void add_qp(struct page *page, enum frl_qp_type type, unsigned state, enum page_wait wait)
{
	uint32_t slot = atomic_load(&page->used_slots);

	page->qp[slot].qpn = 100 + slot;
	page->qp[slot].type = (uint8_t)type;
	page->qp[slot].state = (uint8_t)state;
	page->qp[slot].wait = (uint8_t)wait;
	atomic_store(&page->used_slots, slot + 1);
}

/* Opens port 1, and describes it together with its page. Returns the lease's devargs, to be
 * freed. */
static char *open_port(struct process *process, const char *fabric, const struct page *page)
{
	Ctl__OpenPort open = CTL__OPEN_PORT__INIT;
	Ctl__DescribePort describe = CTL__DESCRIBE_PORT__INIT;
	uint8_t mac[6] = { 2 }, nonce[16] = { 1 };
	char *address = (char *)"10.1.0.10/24", *devargs;
	Ctl__Envelope *answer;

	open.port = 1;
	open.fabric = (char *)fabric;
	answer = process_ask(process, CTL__ENVELOPE__BODY_OPEN_PORT, &open);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_PORT_OPENED);
	devargs = strdup(answer->port_opened->lease ? answer->port_opened->lease->devargs : "");
	ctl__envelope__free_unpacked(answer, NULL);
	process_page(process, page);
	memcpy(nonce, &process->pid, sizeof(process->pid));
	describe.port = 1;
	describe.device = (char *)"made up";
	describe.mac = (ProtobufCBinaryData){ sizeof(mac), mac };
	describe.nonce = (ProtobufCBinaryData){ sizeof(nonce), nonce };
	describe.addresses = &address;
	describe.n_addresses = 1;
	describe.path_mtu = 1024;
	answer = process_ask(process, CTL__ENVELOPE__BODY_DESCRIBE_PORT, &describe);
	ck_assert_int_eq(answer->body_case, CTL__ENVELOPE__BODY_DONE);
	ctl__envelope__free_unpacked(answer, NULL);
	return devargs;
}

static struct process *process_with(uint32_t uid, uint32_t pid, const struct page *page)
{
	struct process *process = world_process(world, 0, uid, pid);

	free(open_port(process, "", page));
	return process;
}

/* ---- the text */

static void scrape(void)
{
	size_t length;
	FILE *out;

	free(text);
	text = NULL;
	out = open_memstream(&text, &length);
	core_write_metrics(world_core(world, 0), out, world_now(world));
	fclose(out);
}

static bool has_line(const char *line)
{
	size_t length = strlen(line);
	const char *p = text;

	while ((p = strstr(p, line))) {
		if ((p == text || p[-1] == '\n') && p[length] == '\n')
			return true;
		p++;
	}
	return false;
}

/* The lines of that metric, for a failure's text. */
static const char *like(const char *line)
{
	static char found[2000];
	size_t length = strcspn(line, "{ ");
	size_t used = 0;

	found[0] = '\0';
	for (const char *p = text; p && *p; p = strchr(p, '\n')) {
		p += *p == '\n';
		if (strncmp(p, line, length) == 0 && used < sizeof(found))
			used += (size_t)snprintf(found + used, sizeof(found) - used, "%.*s\n",
				(int)strcspn(p, "\n"), p);
	}
	return found;
}

#define EXPECT(line) ck_assert_msg(has_line(line), "no \"%s\"; but %s", line, like(line))
#define FORBID(part) ck_assert_msg(!strstr(text, part), "there is \"%s\"", part)

/* Returns the metric of the sample: a histogram's has a suffix. */
static bool is_of(const char *sample, const char *family)
{
	static const char *const suffixes[] = { "", "_bucket", "_sum", "_count" };
	size_t length = strlen(family);

	if (strncmp(sample, family, length) != 0)
		return false;
	for (size_t i = 0; i < 4; i++) {
		size_t suffix = strlen(suffixes[i]);

		if (strncmp(sample + length, suffixes[i], suffix) == 0 &&
			strchr("{ ", sample[length + suffix]))
			return true;
	}
	return false;
}

/* HELP, TYPE, samples; each metric in one place; counters, and only they, end in _total. */
static void check_family(const char *help, const char *type, char *const *seen, unsigned n_seen,
	char *name, size_t size)
{
	char type_name[100], kind[20];
	size_t length;

	ck_assert_int_eq(sscanf(help, "# HELP %99s", name), 1);
	ck_assert_int_eq(sscanf(type, "# TYPE %99s %19s", type_name, kind), 2);
	ck_assert_str_eq(name, type_name);
	ck_assert_uint_lt(strlen(name), size);
	ck_assert_msg(strncmp(name, "ferrule_", 8) == 0, "%s", name);
	length = strlen(name);
	ck_assert_msg((strcmp(name + length - 6, "_total") == 0) == (strcmp(kind, "counter") == 0),
		"%s", name);
	for (unsigned i = 0; i < n_seen; i++)
		ck_assert_str_ne(seen[i], name);
	for (const char *p = name; *p; p++)
		ck_assert_msg(islower((unsigned char)*p) || *p == '_', "%s", name);
}

static unsigned check_text(void)
{
	char *copy = strdup(text), *rest = NULL, *line, *help = NULL;
	char *seen[200], name[100] = "none";
	unsigned n_seen = 0, samples = 0;

	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	for (line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (strncmp(line, "# HELP ", 7) == 0) {
			help = line;
		} else if (line[0] == '#') {
			ck_assert_ptr_nonnull(help);
			check_family(help, line, seen, n_seen, name, sizeof(name));
			ck_assert_uint_lt(n_seen, 200);
			seen[n_seen++] = strdup(name);
			help = NULL;
		} else {
			ck_assert_ptr_null(help);
			ck_assert_msg(is_of(line, name), "%s among %s", line, name);
			samples++;
		}
	}
	while (n_seen)
		free(seen[--n_seen]);
	free(copy);
	return samples;
}

/* ---- tests */

START_TEST(empty)
{
	scrape();
	ck_assert_uint_gt(check_text(), 50);
	ck_assert_ptr_nonnull(strstr(text, "\nferrule_build_info{version=\""));
	EXPECT("ferrule_sessions{role=\"process\"} 0");
	EXPECT("ferrule_ports{fabric=\"local\"} 0");
	EXPECT("ferrule_ports{fabric=\"eth\"} 0");
	EXPECT("ferrule_leases{fabric=\"eth\",state=\"free\"} 3");
	FORBID("ferrule_leases{fabric=\"local\"");
	EXPECT("ferrule_draining 0");
	EXPECT("ferrule_connect_duration_seconds_bucket{le=\"+Inf\"} 0");
}
END_TEST

/* Counters of one user are added up, and stay when processes end. */
START_TEST(sums)
{
	struct page *one = new_page(), *two = new_page(), *other = new_page();
	struct process *first;

	set_counter(one, "tx_bytes", 1000);
	set_counter(one, "drop_bad_icrc", 3);
	set_counter(one, "out_of_sequence", 4);
	set_counter(one, "naks_sent_rnr", 5);
	set_counter(one, "bytes_placed", 6);
	set_counter(one, "no such counter", 7);
	set_counter(two, "bytes_placed", 60);
	set_counter(two, "tx_bytes", 200);
	set_counter(other, "tx_bytes", 9);
	first = process_with(UID, 11, one);
	process_with(UID, 12, two);
	process_with(OTHER_UID, 13, other);
	scrape();
	check_text();
#define MINE   "{fabric=\"local\",device=\"\",uid=\"1000\""
#define OTHERS "{fabric=\"local\",device=\"\",uid=\"2000\""
	EXPECT("ferrule_port_tx_bytes_total" MINE "} 1200");
	EXPECT("ferrule_port_tx_bytes_total" OTHERS "} 9");
	EXPECT("ferrule_port_drops_total" MINE ",reason=\"bad_icrc\"} 3");
	EXPECT("ferrule_port_drops_total" MINE ",reason=\"out_of_sequence\"} 4");
	EXPECT("ferrule_port_naks_sent_total" MINE ",kind=\"rnr\"} 5");
	EXPECT("ferrule_port_placed_bytes_total" MINE "} 66");
	EXPECT("ferrule_ports{fabric=\"local\"} 3");
	EXPECT("ferrule_sessions{role=\"process\"} 3");
	FORBID("no such counter");
	set_counter(one, "tx_bytes", 1500);
	process_die(first);
	world_settle(world);
	scrape();
	EXPECT("ferrule_port_tx_bytes_total" MINE "} 1700");
	EXPECT("ferrule_ports{fabric=\"local\"} 2");
	scrape();
	EXPECT("ferrule_port_tx_bytes_total" MINE "} 1700");
}
END_TEST

/* All of the library's counters are there. */
START_TEST(all_counters)
{
	struct page *page = new_page();
	uint64_t value = 1000000;

#define SET(name, what) set_counter(page, #name, ++value);
	FRL_COUNTERS(SET)
#undef SET
	process_with(UID, 11, page);
	scrape();
	check_text();
	for (value = 1000001; value <= 1000000 + TOTAL_COUNTERS; value++) {
		char number[20];

		snprintf(number, sizeof(number), "} %llu\n", (unsigned long long)value);
		ck_assert_msg(strstr(text, number), "no %s", number);
	}
}
END_TEST

START_TEST(queue_pairs)
{
	struct page *one = new_page(), *two = new_page();

	add_qp(one, FRL_QPT_RC, FRL_QPS_RTS, PAGE_WAIT_NOTHING);
	add_qp(one, FRL_QPT_RC, FRL_QPS_RTS, PAGE_WAIT_RNR);
	add_qp(one, FRL_QPT_UD, FRL_QPS_ERR, PAGE_WAIT_ERROR);
	add_qp(two, FRL_QPT_RC, FRL_QPS_RTS, PAGE_WAIT_RNR);
	process_with(UID, 11, one);
	process_with(OTHER_UID, 12, two);
	scrape();
	check_text();
	EXPECT("ferrule_queue_pairs{fabric=\"local\",type=\"RC\",state=\"RTS\"} 3");
	EXPECT("ferrule_queue_pairs{fabric=\"local\",type=\"UD\",state=\"ERR\"} 1");
	EXPECT("ferrule_queue_pairs{fabric=\"local\",type=\"UC\",state=\"RTS\"} 0");
	EXPECT("ferrule_queue_pairs{fabric=\"eth\",type=\"RC\",state=\"RTS\"} 0");
	EXPECT("ferrule_queue_pairs_waiting{fabric=\"local\",for=\"receiver not ready\"} 2");
	EXPECT("ferrule_queue_pairs_waiting{fabric=\"local\",for=\"nothing\"} 1");
	one->qp[0].qpn = 0;
	scrape();
	EXPECT("ferrule_queue_pairs{fabric=\"local\",type=\"RC\",state=\"RTS\"} 2");
}
END_TEST

/* A page with garbage in it spoils its own counts alone. */
START_TEST(rubbish)
{
	struct page *good = new_page(), *bad = new_page();

	set_counter(good, "tx_bytes", 5);
	add_qp(good, FRL_QPT_RC, FRL_QPS_RTS, PAGE_WAIT_NOTHING);
	memset((char *)bad->counter, 'x', sizeof(bad->counter));
	snprintf(bad->counter[3].name, PAGE_COUNTER_NAME, "tx_bytes");
	bad->counter[3].value = UINT64_MAX;
	bad->counters = UINT32_MAX;
	add_qp(bad, FRL_QPT_RC, 250, PAGE_WAIT_NOTHING);
	add_qp(bad, 200, FRL_QPS_RTS, PAGE_WAIT_NOTHING);
	add_qp(bad, FRL_QPT_RC, FRL_QPS_RTS, 200);
	atomic_store(&bad->used_slots, UINT32_MAX);
	process_with(UID, 11, good);
	process_with(OTHER_UID, 12, bad);
	scrape();
	check_text();
	EXPECT("ferrule_port_tx_bytes_total" MINE "} 5");
	EXPECT("ferrule_port_tx_bytes_total" OTHERS "} 18446744073709551615");
	EXPECT("ferrule_queue_pairs{fabric=\"local\",type=\"RC\",state=\"RTS\"} 1");
}
END_TEST

/* Labels come from the configuration, and cannot break the text. */
START_TEST(leases)
{
	struct process *process = world_process(world, 0, UID, 11);
	Ctl__ClosePort closing = CTL__CLOSE_PORT__INIT;
	struct page *page = new_page();
	char *devargs;

	set_counter(page, "tx_packets", 8);
	devargs = open_port(process, "eth", page);
	ck_assert_str_eq(devargs, config->fabrics[0].ports[0].devargs);
	free(devargs);
	scrape();
	check_text();
	FORBID("made up");
#define LEASED "{fabric=\"eth\",device=\"net_a,x=\\\"1\\\\2\\\"\",uid=\"1000\"}"
	EXPECT("ferrule_port_tx_packets_total" LEASED " 8");
	EXPECT("ferrule_leases{fabric=\"eth\",state=\"in_use\"} 1");
	EXPECT("ferrule_leases{fabric=\"eth\",state=\"free\"} 2");
	EXPECT("ferrule_leases_granted_total 1");
	closing.port = 1;
	process_say(process, CTL__ENVELOPE__BODY_CLOSE_PORT, &closing);
	world_settle(world);
	scrape();
	EXPECT("ferrule_port_tx_packets_total" LEASED " 8");
	EXPECT("ferrule_leases{fabric=\"eth\",state=\"in_use\"} 0");
	EXPECT("ferrule_leases{fabric=\"eth\",state=\"resting\"} 1");
	EXPECT("ferrule_leases{fabric=\"eth\",state=\"free\"} 3");
	world_run(world, 2 * WORLD_S);
	scrape();
	EXPECT("ferrule_leases{fabric=\"eth\",state=\"resting\"} 0");
}
END_TEST

/* However many users there are, the metrics have a bounded size. */
START_TEST(many_users)
{
	struct page *page = new_page();
	uint32_t uid;

	set_counter(page, "tx_bytes", 1);
	for (uid = 1; uid <= TOTALS_MAX + 10; uid++)
		process_with(uid, uid, page);
	scrape();
	check_text();
	EXPECT("ferrule_port_tx_bytes_total{fabric=\"local\",device=\"\",uid=\"other\"} 10");
	EXPECT("ferrule_port_tx_bytes_total{fabric=\"local\",device=\"\",uid=\"512\"} 1");
}
END_TEST

START_TEST(numbers_of_the_daemon)
{
	struct core *core = world_core(world, 0);
	unsigned i;

	core->counters.connects = 10;
	core->counters.connects_established = 7;
	core->counters.connects_refused = 2;
	core->counters.connects_timed_out = 1;
	core->counters.ends_died = 3;
	for (i = 0; i <= LATENCY_BUCKETS; i++)
		core->counters.latency_count[i] = 1;
	core->counters.latency_sum_s = 1.25;
	snprintf(core->draining, sizeof(core->draining), "maintenance");
	world_run(world, 1500 * WORLD_MS);
	scrape();
	check_text();
	EXPECT("ferrule_connects_started_total 10");
	EXPECT("ferrule_connects_total{result=\"established\"} 7");
	EXPECT("ferrule_connects_total{result=\"refused\"} 2");
	EXPECT("ferrule_connects_total{result=\"timed_out\"} 1");
	EXPECT("ferrule_connection_ends_total{cause=\"died\"} 3");
	EXPECT("ferrule_connect_duration_seconds_bucket{le=\"0.0001\"} 1");
	EXPECT("ferrule_connect_duration_seconds_bucket{le=\"0.00025\"} 2");
	EXPECT("ferrule_connect_duration_seconds_bucket{le=\"+Inf\"} 15");
	EXPECT("ferrule_connect_duration_seconds_count 15");
	EXPECT("ferrule_connect_duration_seconds_sum 1.25");
	EXPECT("ferrule_draining 1");
	EXPECT("ferrule_uptime_seconds 1.500");
}
END_TEST

/* ---- refresh */

/* Returns how many Publish the process has got; they are answered. */
static unsigned answer_publish(struct process *process)
{
	Ctl__Done done = CTL__DONE__INIT;
	Ctl__Envelope envelope, *asked;
	unsigned count = 0;

	world_settle(world);
	while ((asked = process_take(process, CTL__ENVELOPE__BODY_PUBLISH))) {
		envelope = envelope_of(CTL__ENVELOPE__BODY_DONE, &done);
		envelope.seq = asked->seq;
		ck_assert_uint_ne(asked->seq, 0);
		process_send(process, &envelope);
		ctl__envelope__free_unpacked(asked, NULL);
		count++;
	}
	world_settle(world);
	return count;
}

static void refresh(void)
{
	core_refresh(world_core(world, 0), world_now(world));
}

START_TEST(refreshes)
{
	struct page *page = new_page();
	struct process *process = process_with(UID, 11, page);
	struct process *without = world_process(world, 0, UID, 12);

	world_run(world, 500 * WORLD_MS);
	refresh();
	ck_assert_uint_eq(answer_publish(process), 0);
	world_run(world, 600 * WORLD_MS);
	refresh();
	refresh();
	ck_assert_uint_eq(answer_publish(process), 1);
	ck_assert_uint_eq(answer_publish(without), 0);
	/* It has answered, but not published: it is asked again. */
	refresh();
	ck_assert_uint_eq(answer_publish(process), 1);
	atomic_store(&page->published_ns, world_now(world));
	refresh();
	ck_assert_uint_eq(answer_publish(process), 0);
	/* Times in the future do not prevent requests. */
	atomic_store(&page->published_ns, UINT64_MAX);
	refresh();
	ck_assert_uint_eq(answer_publish(process), 1);
}
END_TEST

TEST_MAIN(core_metrics)
{
	return run_suite(all_tests(setup, teardown));
}
