/* SPDX-License-Identifier: Apache-2.0
 * Lines of the log, which the caller's on_log receives. */
#ifndef ECHI_CONFIG_LOG_H
#define ECHI_CONFIG_LOG_H
#include "echelon.h"

/* Formats one line, without a newline, and gives it to config->on_log. Does nothing where the caller has none. A line longer than 1,023
 * bytes is cut there. Any thread; on_log is called on the calling one. */
void echi_config_log(const struct ech_config *config, enum ech_log_level level, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
