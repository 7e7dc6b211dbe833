#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Training steps on several threads over the same on one, in turn in one process: the median of the ratios, and the load before and after.
# What else runs on the machine takes a processor from the threads: ratios mean something when the load is near 0.
#   THREADS   2 by default
#   B         build folder (default build)
set -eu
echo "load before: $(cut -d' ' -f1-3 /proc/loadavg)"
"${B:-build}/test/bench/bench_threads" "${THREADS:-2}"
echo "load after:  $(cut -d' ' -f1-3 /proc/loadavg) (this bench itself is one to ${THREADS:-2} of it)"
