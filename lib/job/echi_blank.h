/* SPDX-License-Identifier: Apache-2.0
 * Samples for a model whose data nobody named: where a run is looked at, and not begun. */
#ifndef ECHI_BLANK_H
#define ECHI_BLANK_H
#include "echelon.h"

#define ECHI_BLANK_DATA "blank"   /* its name */
/* 65,536 black samples to train with, and one to test with, of the model's shape and classes. `pixels` is the caller's, and stays as long
 * as the data does; ech_data_destroy ends it. Finishes the model. */
ech_status echi_blank_data(const ech_model *model, size_t *pixels, ech_data **out, struct ech_error *err);
#endif
