/* SPDX-License-Identifier: Apache-2.0
 * What messages take on a link beside what they carry, said a second time. */
#ifndef FRAMED_H
#define FRAMED_H
#include "echi_message.h"

enum { FRAME = 56, CHUNK = 65536 };
/* Bytes of long messages over those of what they carry. */
#define FRAMED (1 + FRAME / (double)CHUNK)
/* Of one message. */
static inline double on_wire(int kind, double payload) {
    return payload + echi_kind_meta_usual(kind) + FRAME * (double)((long)((payload + CHUNK - 1) / CHUNK));
}
#endif
