/* SPDX-License-Identifier: BSD-3-Clause */
#include <ferrule/version.h>

int frl_version(void)
{
	return FRL_VERSION;
}
