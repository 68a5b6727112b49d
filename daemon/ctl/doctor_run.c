/* SPDX-License-Identifier: BSD-3-Clause */
/* The command: reads the configuration, runs all checks, and prints the findings as text or
 * JSON. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <ferrule/gpu.h>

#include "daemon/config/config.h"
#include "daemon/ctl/ctl.h"
#include "daemon/ctl/doctor.h"
#include "daemon/config/tls_check.h"

#define CONFIG_PATH "/etc/ferrule/ferruled.conf"

static const char *const status_names[] = { "OK", "WARN", "FAIL", "SKIP" };

static void add_config(struct doctor *doctor, const struct config *config)
{
	size_t i, j;

	for (i = 0; i < config->n_fabrics; i++) {
		const struct config_fabric *fabric = &config->fabrics[i];

		for (j = 0; j < fabric->n_ports; j++) {
			struct doctor_port *port = doctor_add_port(
				doctor, fabric->name, fabric->ports[j].devargs);

			if (!port)
				return;
			port->path_mtu = fabric->path_mtu;
		}
	}
}

static void say_tls(void *arg, enum tls_level level, const char *text)
{
	struct doctor *doctor = arg;
	enum doctor_status status = level == TLS_WARNING ? DOCTOR_WARN
		: level == TLS_HIDDEN                    ? DOCTOR_SKIP
							 : DOCTOR_FAIL;

	doctor_say(doctor, status, "tls", level == TLS_HIDDEN ? "run the doctor as root" : NULL,
		"%.600s", text);
}

static void check_tls(struct doctor *doctor, const struct config *config)
{
	const struct tls_check check = {
		.say = say_tls, .arg = doctor, .now = time(NULL), .as_user = true
	};
	size_t before = doctor->n_findings;
	int64_t expires;
	char date[24];

	if (!config->tls_certificate || doctor->root[0])
		return;
	expires = tls_check(config, &check);
	tls_date(date, expires);
	if (doctor->n_findings == before)
		doctor_say(doctor, DOCTOR_OK, "tls", NULL, "%.300s is valid until %s",
			config->tls_certificate, date);
}

/* Reads the fabrics from the configuration, if this user may. Returns true if it has read them. */
static bool read_config(struct doctor *doctor, const char *path, bool wanted)
{
	struct config *config;
	char error[512];

	if (!wanted && access(path, R_OK) != 0) {
		doctor_say(doctor, DOCTOR_SKIP, "configuration", NULL, "%.200s: %s", path,
			errno == ENOENT ? "there is none, so all settings are the defaults"
					: strerror(errno));
		return false;
	}
	config = config_load(path, error, sizeof(error));
	if (!config) {
		doctor_say(doctor, DOCTOR_FAIL, "configuration",
			"correct it (man ferruled.conf); ferruled does not start with it", "%.300s",
			error);
		return false;
	}
	doctor_say(doctor, DOCTOR_OK, "configuration", NULL, "%.200s: %zu fabric%s besides local",
		path, config->n_fabrics, config->n_fabrics == 1 ? "" : "s");
	add_config(doctor, config);
	check_tls(doctor, config);
	config_free(config);
	return true;
}

/* Checks the daemon, and reads its fabrics if they are not known yet. */
static void ask_daemon(const struct ctl_options *options, struct doctor *doctor, bool known)
{
	const Ctl__DaemonInfo *daemon;
	struct answer answer = { .parts = NULL };
	struct link link;
	size_t i;
	int err = link_open(&link, options->socket);

	if (!err)
		err = show_ask(show_find("stats"), &link, 0, 0, &answer);
	daemon = err ? NULL : answer.report.daemon;
	if (!daemon && err == -ENOTCONN && !options->socket)
		doctor_say(doctor, DOCTOR_WARN, "daemon",
			"systemctl enable --now ferruled; otherwise each user gets a private one, "
			"without connections to other hosts",
			"no ferruled runs");
	else if (!daemon)
		doctor_say(doctor, DOCTOR_FAIL, "daemon", NULL, "%.300s", link.error);
	else if (daemon->draining[0])
		doctor_say(doctor, DOCTOR_WARN, "daemon", "ferrulectl drain --undo",
			"%.100s is draining: %.150s", link.path, daemon->draining);
	else
		doctor_say(doctor, DOCTOR_OK, "daemon", NULL, "%s at %.108s answers",
			daemon->release, link.path);
	doctor->daemon_pid = daemon ? daemon->pid : 0;
	for (i = 0; daemon && !known && i < daemon->n_fabrics; i++)
		doctor_add_fabric(doctor, daemon->fabrics[i]);
	answer_free(&answer);
	link_close(&link);
}

/* Loads and initializes CUDA if it is installed. */
static void ask_driver(struct doctor *doctor)
{
	struct frl_gpu_info *infos;
	size_t n;

	if (frl_gpu_list(&infos, &n)) {
		doctor_say(doctor, DOCTOR_FAIL, "gpu", NULL, "%.300s", frl_last_error());
		return;
	}
	doctor_gpus(doctor, infos, n);
	frl_gpu_list_free(infos);
}

static void print_findings(const struct doctor *doctor)
{
	bool colours = isatty(STDOUT_FILENO) && !getenv("NO_COLOR");
	static const char *const colour[] = { "\033[32m", "\033[33m", "\033[31m", "\033[2m" };
	size_t i;

	for (i = 0; i < doctor->n_findings; i++) {
		const struct finding *finding = &doctor->findings[i];

		printf("%s%-4s%s  %-15s %s\n", colours ? colour[finding->status] : "",
			status_names[finding->status], colours ? "\033[0m" : "", finding->name,
			finding->text);
		if (finding->advice[0])
			printf("      %-15s -> %s\n", "", finding->advice);
	}
}

static void print_findings_json(const struct doctor *doctor, int failed)
{
	json_t *list = json_array();
	size_t i;

	for (i = 0; i < doctor->n_findings; i++) {
		const struct finding *finding = &doctor->findings[i];

		json_array_append_new(list,
			json_pack("{s:s,s:s,s:s,s:s}", "name", finding->name, "status",
				status_names[finding->status], "text", finding->text, "advice",
				finding->advice));
	}
	print_json(stdout, json_pack("{s:o,s:i}", "checks", list, "failed", failed), false);
}

int command_doctor(const struct ctl_options *options)
{
	static struct doctor doctor;
	char path[DOCTOR_PATH];
	bool known;
	int failed = 0;
	size_t i;

	doctor.root = options->root;
	snprintf(path, sizeof(path), "%s%s", options->config ? "" : options->root,
		options->config ? options->config : CONFIG_PATH);
	known = read_config(&doctor, path, options->config != NULL);
	if (!options->root[0])
		ask_daemon(options, &doctor, known);
	doctor_runtime_dir(&doctor, getenv("XDG_RUNTIME_DIR"), (uint32_t)geteuid());
	doctor_nics(&doctor);
	doctor_rights(&doctor);
	doctor_iommu(&doctor);
	doctor_hugepages(&doctor);
	doctor_limits(&doctor);
	doctor_infiniband(&doctor);
	if (!options->root[0])
		ask_driver(&doctor);
	for (i = 0; i < doctor.n_findings; i++)
		failed += doctor.findings[i].status == DOCTOR_FAIL;
	if (options->json)
		print_findings_json(&doctor, failed);
	else
		print_findings(&doctor);
	return failed ? EXIT_FAILED : EXIT_OK;
}
