/* SPDX-License-Identifier: Apache-2.0
 * What the files of the options share: config.c has the table and single options, config_env.c the environment, config_check.c what
 * options must be to each other. */
#ifndef ECHI_CONFIG_IMPL_H
#define ECHI_CONFIG_IMPL_H
#include "echelon.h"
#include "echi_error.h"

/* ECH_E_ARGUMENT, with a sentence: a format and what it takes. */
#define echi_refuse(err, ...) echi_fail(err, ECH_E_ARGUMENT, "config", __VA_ARGS__)
/* What the caller of `config` knows of `whole`; the bytes behind that, if he knows more, stay. */
void echi_config_give_back(struct ech_config *config, const struct ech_config *whole);
/* Is the field of option i of ech_options, however it was set, one that may be? */
ech_status echi_config_field_fits(const struct ech_config *config, int i, struct ech_error *err);
/* The list of shares: returns how many entries it has (0: it is none), and their sum. */
int echi_share_list(const char *text, long *out_sum);
#endif
