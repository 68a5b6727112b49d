/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/fuzz/replay.h"

int main(void)
{
	return replay_corpus("frame");
}
