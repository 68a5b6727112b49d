/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Configuration files for tests: written to a file of the test's own, and read.
 */
#ifndef FERRULE_TESTS_UNIT_DAEMON_CONFIG_CONFIG_FIXTURE_H
#define FERRULE_TESTS_UNIT_DAEMON_CONFIG_CONFIG_FIXTURE_H

#include "daemon/config/config.h"

extern char config_path[];
extern char config_error[512];

/* Checked fixture: the file. */
void config_setup(void);
void config_teardown(void);

struct config *config_from_bytes(const char *text, size_t length);
/* Fails the test unless it is accepted. To be freed. */
struct config *config_right(const char *text);
/* Fails the test unless it is refused with "FILE:", `place` and these words. */
void config_wrong(const char *text, const char *place, const char *words);

/* For rows of texts that are refused. */
struct config_wrong_row {
	const char *text, *place, *words;
};

/* One fabric, with the tested setting in line 4. */
#define FABRIC(...)                                                                            \
	"fabrics = ( {\n name = \"eth0\"; ports = [ \"a\" ];\n addresses = [ \"10.1.0.2/24\" " \
	"];\n" __VA_ARGS__ "\n } );\n"
#define ADDRESSES(...)                                                                      \
	"fabrics = ( {\n name = \"eth0\"; ports = [ \"a\" ];\n\n addresses = [" __VA_ARGS__ \
	"];\n } );\n"
#define PORTS(...)                                                                       \
	"fabrics = ( {\n name = \"eth0\"; addresses = [ \"10.1.0.2/24\" ];\n\n ports = " \
	"(" __VA_ARGS__ ");\n } );\n"

#endif
