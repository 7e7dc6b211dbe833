/* SPDX-License-Identifier: Apache-2.0
 * test_crypto once more, with Poly1305 in 32-bit words, as processors without 64-bit products compute it: those words are
 * compiled into this program, which so has no use for the archive's. */
#define ECHI_POLY1305_WORD32
#include "poly1305.c"
#include "test_crypto.c"
