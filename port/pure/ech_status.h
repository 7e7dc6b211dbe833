/* SPDX-License-Identifier: Apache-2.0
 * Status and error words: every call of Echelon that can fail returns an ech_status and, where it takes a
 * `struct ech_error *`, fills it with a sentence that says what went wrong and what to do about it. */
#ifndef ECH_STATUS_H
#define ECH_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, number, text, retry, remake)
 * retry:  1 when the very same call may succeed later, 0 when something must change first.
 * remake: what is lost and must be made anew: NOTHING, CALL (its outputs), PEER (the connection), RUN (the whole run). */
#define ECH_STATUS_LIST(X)                                                                                              \
    X(ECH_OK, 0, "done", 0, NOTHING)                                                                                    \
    X(ECH_E_ARGUMENT, 1, "an argument or option is wrong", 0, NOTHING)                                                  \
    X(ECH_E_MEMORY, 2, "out of memory", 1, CALL)                                                                        \
    X(ECH_E_IO, 3, "reading or writing failed", 1, CALL)                                                                \
    X(ECH_E_FORMAT, 4, "a file or message is malformed", 0, CALL)                                                       \
    X(ECH_E_SHAPE, 5, "shapes do not fit together", 0, CALL)                                                            \
    X(ECH_E_UNSUPPORTED, 6, "not supported here", 0, NOTHING)                                                           \
    X(ECH_E_TIMEOUT, 7, "a deadline passed", 1, CALL)                                                                   \
    X(ECH_E_PEER_LOST, 8, "the connection to a node was lost", 0, RUN)                                                  \
    X(ECH_E_MISMATCH, 9, "two nodes do not agree on what to train", 0, RUN)                                             \
    X(ECH_E_BUSY, 10, "an address or resource is in use", 1, NOTHING)                                                   \
    X(ECH_E_DIVERGED, 11, "the loss is not a number any more", 0, RUN)                                                  \
    X(ECH_E_ABORTED, 12, "the run was stopped", 0, RUN)                                                                 \
    X(ECH_E_AGAIN, 13, "nothing yet", 1, NOTHING)                                                                       \
    X(ECH_E_END, 14, "there is no more", 0, NOTHING)                                                                    \
    X(ECH_E_INTERNAL, 15, "a bug in Echelon", 0, RUN)                                                                   \
    X(ECH_E_NOT_REACHED, 16, "the target accuracy was not reached", 0, NOTHING)                                         \
    X(ECH_E_DEVICE_LOST, 17, "a device was lost", 0, RUN)                                                               \
    X(ECH_E_UNRECORDED, 18, "the run ended well, but its recording is cut short", 0, NOTHING)

typedef enum ech_status {
#define ECH_STATUS_ENUM(name, number, text, retry, remake) name = number,
    ECH_STATUS_LIST(ECH_STATUS_ENUM)
#undef ECH_STATUS_ENUM
} ech_status;

/* Held by the caller; any `struct ech_error *` parameter may be NULL. Filled only when a call fails. */
struct ech_error {
    ech_status code;
    int peer;            /* rank of the node concerned, -1 when none is */
    char operation[32];  /* what was being done, for example "data.open" */
    char layer[32];      /* layer concerned, "" when none is */
    char text[400];      /* one sentence: what, where, what to do */
};

/* Name ("ECH_E_IO") and general text of a status. Never NULL, also for numbers that are no status. Any thread. */
const char *ech_status_name(ech_status status);
const char *ech_status_text(ech_status status);
/* 1 when the same call may succeed later without anything being changed. */
int ech_status_may_retry(ech_status status);

#ifdef __cplusplus
}
#endif
#endif
