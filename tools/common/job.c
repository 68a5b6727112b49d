/* SPDX-License-Identifier: BSD-3-Clause */
#include "tools/common/job.h"

#include <errno.h>
#include <string.h>

int option_number(
	const char *name, const char *value, uint64_t min, uint64_t max, uint64_t *ret_number)
{
	if (parse_number(value, min, max, ret_number))
		return 0;
	return usage_error("%s '%s': not a whole number from %ju to %ju", name, value,
		(uintmax_t)min, (uintmax_t)max);
}

int option_path(const char *name, const char *value, const char **ret_path)
{
	*ret_path = value;
	return *value ? 0 : usage_error("%s: the file name is empty", name);
}

int job_option(int code, const char *value, struct job_options *options)
{
	uint64_t number = 0;
	int rc;

	switch (code) {
	case 'n':
		rc = option_number("-n", value, 1, MAX_RANKS, &number);
		options->ranks = (int)number;
		return rc;
	case OPT_RANK:
		rc = option_number("--rank", value, 0, MAX_RANKS - 1, &number);
		options->rank = (int)number;
		return rc;
	case OPT_JOB: options->job = value; return 0;
	}
	return device_option(code, value, &options->device);
}

/* Gets rank and number of ranks from the launcher if no option gives them. */
static int find_launch(struct job_options *options)
{
	int rc = frl_launch_detect(&options->launch);

	if (rc == -ENOENT && options->may_be_none)
		return 0;
	if (rc == -ENOENT)
		return usage_error(
			"-n is missing, which starts ranks here, and %s", frl_last_error());
	if (rc) {
		say_failure(rc, "cannot find out which rank this is");
		return EXIT_USAGE;
	}
	options->is_launched = true;
	options->rank = options->launch.rank;
	options->ranks = options->launch.ranks;
	return 0;
}

/* Sets the peer's host. The ranks usually meet on a host of the job. */
static void note_peer(struct job_options *options)
{
	const char *at = options->job ? strrchr(options->job, '@') : NULL;

	if (options->is_launched)
		device_peer(&options->device, options->launch.host);
	else if (at)
		device_peer(&options->device, at + 1);
}

int job_options_finish(struct job_options *options)
{
	if (!options->ranks && options->rank < 0 && !options->job) {
		int rc = find_launch(options);

		if (rc || !options->is_launched)
			return rc;
	}
	if (!options->ranks)
		return usage_error("-n is missing: give the number of ranks");
	if (options->ranks > MAX_RANKS)
		return usage_error(
			"%d ranks: this program has at most %d", options->ranks, MAX_RANKS);
	if (!options->is_launched && (options->rank >= 0) != (options->job != NULL))
		return usage_error("--rank and --job go together");
	if (options->rank >= options->ranks)
		return usage_error(
			"--rank %d: ranks are 0 to %d", options->rank, options->ranks - 1);
	if (options->rank < 0 && options->ranks > 1 && device_is_shared(&options->device))
		return usage_error("local ranks cannot share a --port: put %%r into its name, or "
				   "start each with --rank and --job");
	note_peer(options);
	return device_options_check(&options->device, MAX_RAILS);
}
