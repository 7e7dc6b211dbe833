/* SPDX-License-Identifier: Apache-2.0
 * A session with a head for a program that calls C by plain numbers and pointers, as Python's ctypes does: head.py. It becomes a shared
 * object with the archive in it. Errors are sentences that the program asks for. */
#include "echelon.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define ARRAYS 64

struct trainer {
    struct ech_config config;
    struct ech_error error;
    struct ech_param param[ARRAYS];
    char name[ARRAYS][16];
    int arrays;
    ech_model *model;
    ech_session *session;
    struct ech_step step;
    struct ech_head_answer answer;
};

EXPORT void trainer_destroy(struct trainer *t) {
    if (!t) return;
    ech_session_close(t->session, NULL, NULL);
    ech_model_destroy(t->model);
    free(t);
}

/* The head's model as text. NULL: no memory. */
EXPORT struct trainer *trainer_create(const char *text) {
    struct trainer *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    ech_config_init(&t->config);
    if (ech_model_parse(text, strlen(text), "head", &t->model, &t->error) == ECH_OK) return t;
    trainer_destroy(t);
    return NULL;
}

EXPORT const char *trainer_error(const struct trainer *t) { return t->error.text; }
EXPORT int trainer_set(struct trainer *t, const char *option, const char *value) {
    return (int)ech_config_set(&t->config, option, value, &t->error);
}
EXPORT size_t trainer_head_params(const struct trainer *t) { return ech_model_params(t->model); }

EXPORT int trainer_add(struct trainer *t, float *value, const float *grad, size_t count) {
    if (t->arrays == ARRAYS) return (int)ECH_E_ARGUMENT;
    snprintf(t->name[t->arrays], sizeof t->name[0], "array%d", t->arrays);
    t->param[t->arrays] = (struct ech_param){t->name[t->arrays], value, grad, count, NULL};
    t->arrays++;
    return 0;
}

EXPORT int trainer_open(struct trainer *t, const float *first, float *weights, uint32_t samples,
                        int (*measure)(void *user, const uint32_t *index, int n)) {
    const struct ech_head head = {t->model, first, weights};
    return (int)ech_session_open_with_head(t->param, t->arrays, &head, samples, &t->config, measure, NULL, &t->session, &t->error);
}

/* How many samples there are; 0: the run is over, below: it failed. */
EXPORT int trainer_begin(struct trainer *t, const uint32_t **out_index) {
    const ech_status status = ech_step_begin(t->session, &t->step, &t->error);
    *out_index = t->step.index;
    return status == ECH_OK ? t->step.n : status == ECH_E_END ? 0 : -(int)status;
}

EXPORT int trainer_exchange(struct trainer *t, const float *rows, size_t count, const uint16_t *labels, float *grads, double *out_loss) {
    const ech_status status = ech_head_exchange(t->session, rows, count, labels, grads, &t->answer, &t->error);
    *out_loss = t->answer.loss;
    return (int)status;
}

EXPORT int trainer_end(struct trainer *t) {
    for (int p = t->arrays - 1; p >= 0; p--) {
        const ech_status status = ech_gradient_ready(t->session, p, &t->error);
        if (status != ECH_OK) return (int)status;
    }
    return (int)ech_step_end(t->session, t->answer.loss, &t->error);
}

EXPORT int trainer_close(struct trainer *t) {
    ech_session *session = t->session;
    t->session = NULL;
    return (int)ech_session_close(session, NULL, &t->error);
}

EXPORT int trainer_forward(struct trainer *t, const float *weights, int n, const float *rows, float *out) {
    return (int)ech_model_forward(t->model, weights, n, rows, out, &t->error);
}
