/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/cuda_driver.h"

struct driver cu;
