/* SPDX-License-Identifier: Apache-2.0
 * The version that was compiled into the archive, for programs that want to compare it with their header's. */
#include "echelon.h"

const char *ech_version(void) { return ECH_VERSION; }
