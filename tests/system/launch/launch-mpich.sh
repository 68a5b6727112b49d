#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Runs launch-mpirun.sh with mpiexec of MPICH.
export launcher=hydra
# shellcheck source=tests/system/launch/launch-mpirun.sh
. "$(dirname "$0")/launch-mpirun.sh"
