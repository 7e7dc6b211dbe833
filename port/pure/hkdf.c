/* SPDX-License-Identifier: Apache-2.0
 * HKDF, after RFC 5869 sections 2.2 and 2.3. */
#include "echi_hkdf.h"
#include "echi_hmac.h"
#include "echi_secret.h"

#include <string.h>

void echi_hkdf_extract(const void *salt, size_t salt_len, const void *secret, size_t secret_len, uint8_t out_key[ECHI_HKDF_KEY]) {
    struct echi_hmac h;
    echi_hmac_begin(&h, salt, salt_len);
    echi_hmac_add(&h, secret, secret_len);
    echi_hmac_end(&h, out_key);
}

/* T(n) = HMAC(key, T(n - 1) | info | n), T(0) empty; the output is T(1) | T(2) | ... cut to its length. */
bool echi_hkdf_expand(const uint8_t key[ECHI_HKDF_KEY], const void *info, size_t info_len, void *out, size_t len) {
    if (len > ECHI_HKDF_MOST) return false;
    uint8_t *at = out, t[ECHI_HMAC_TAG];
    for (uint8_t number = 1; len; number++) {
        struct echi_hmac h;
        echi_hmac_begin(&h, key, ECHI_HKDF_KEY);
        if (number > 1) echi_hmac_add(&h, t, sizeof t);
        echi_hmac_add(&h, info, info_len);
        echi_hmac_add(&h, &number, 1);
        echi_hmac_end(&h, t);
        const size_t n = len < sizeof t ? len : sizeof t;
        memcpy(at, t, n);
        at += n;
        len -= n;
    }
    echi_secret_wipe(t, sizeof t);
    return true;
}
