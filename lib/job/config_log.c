/* SPDX-License-Identifier: Apache-2.0
 * Lines of the log: the one place that formats them. */
#include "echi_config_log.h"

#include <stdarg.h>
#include <stdio.h>

void echi_config_log(const struct ech_config *config, enum ech_log_level level, const char *fmt, ...) {
    if (!config->on_log) return;
    char line[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    config->on_log(config->user, level, line);
}
