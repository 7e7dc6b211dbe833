/* SPDX-License-Identifier: Apache-2.0
 * The hello: who a node is and what it believes the run to be; and why one is refused. Pure. */
#ifndef ECHI_HELLO_H
#define ECHI_HELLO_H
#include "echi_frame.h"

#define ECHI_HELLO_PRINTS 9 /* the hash of the table of kinds, then at most 8 of the caller's */
#define ECHI_HELLO_NONCE 32
#define ECHI_NET_ADDRESS 64 /* "[address%scope]:port" with its end */

enum echi_authenticator { ECHI_AUTHENTICATOR_NONE, ECHI_AUTHENTICATOR_POLY1305 };

struct echi_hello {
    int authenticator;               /* enum echi_authenticator: none without a key, Poly1305 with one */
    uint8_t nonce[ECHI_HELLO_NONCE]; /* the sender's of this connection; 0 without a key */
    int rank, world;
    char address[ECHI_NET_ADDRESS]; /* where the node listens, "" when nobody has to know */
    int n_prints;
    struct echi_net_fingerprint prints[ECHI_HELLO_PRINTS];
};

/* Fills the hello of a node; its first fingerprint is the hash of the table of kinds. */
void echi_hello_make(struct echi_hello *hello, const struct echi_net_config *config);
/* Returns the length of the body; it always fits. */
size_t echi_hello_store(const struct echi_hello *hello, uint8_t out[ECHI_FRAME_BODY_CAP]);
/* ECH_E_FORMAT for a body that is no hello. Texts come out printable and terminated, whatever the bytes were. */
ech_status echi_hello_load(const uint8_t *body, size_t len, struct echi_hello *out, struct ech_error *err);
/* ECH_OK when both believe in the same run; else ECH_E_MISMATCH and a sentence with both values. */
ech_status echi_hello_compare(const struct echi_hello *mine, const struct echi_hello *theirs, struct ech_error *err);
/* Copies foreign text as printable ASCII, at most cap - 1 characters, terminated. */
void echi_text_clean(char *out, size_t cap, const uint8_t *text, size_t len);
/* snprintf for sentences: what does not fit is cut, on purpose. */
void echi_text_print(char *out, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#endif
