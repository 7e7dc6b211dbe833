/* SPDX-License-Identifier: Apache-2.0
 * Addresses as text, numbers only: what is taken is written in a form that is taken again and means the same. */
#include "fuzz.h"

#include "echi_address.h"
#include "echi_hello.h"

#include <stdlib.h>
#include <string.h>

static bool one(const uint8_t *bytes, size_t len) {
    char text[300], written[ECHI_NET_ADDRESS], again[ECHI_NET_ADDRESS];
    struct echi_addresses found, back;
    struct ech_error err = {0};
    if (len >= sizeof text || memchr(bytes, 0, len)) return false;
    memcpy(text, bytes, len);
    text[len] = 0;
    const ech_status status = echi_address_parse(text, "--bind", false, len % 2, &found, &err);
    if (status != ECH_OK) {
        fuzz_sentence(&err, status);
        return false;
    }
    /* The port, if there is one, read once more. */
    const char *colon = strrchr(text, ':');
    if (colon && (text[0] == '[' ? colon[-1] == ']' : strchr(text, ':') == colon))
        FUZZ_CHECK(strtoul(colon + 1, NULL, 10) == echi_address_port(&found.list[0]));
    FUZZ_CHECK(found.count >= 1 && found.count <= ECHI_ADDRESSES_MAX);
    echi_address_format(&found.list[0], written, sizeof written);
    FUZZ_CHECK(echi_address_parse(written, "--bind", false, false, &back, &err) == ECH_OK);
    echi_address_format(&back.list[0], again, sizeof again);
    FUZZ_CHECK(strcmp(written, again) == 0 && echi_address_port(&found.list[0]) == echi_address_port(&back.list[0]));
    FUZZ_CHECK(echi_address_is_any(&found.list[0]) == echi_address_is_any(&back.list[0]));
    return true;
}

static size_t seed(int i, uint8_t *out, size_t cap, bool *good) {
    static const char *const text[] = {"127.0.0.1:80", "[::1]:65535", "[fe80::1]:1", "10.0.0.1:0", "0.0.0.0:7", "[::ffff:1.2.3.4]:5", NULL};
    (void)good; /* all are */
    return fuzz_seed_text(text, i, out, cap);
}

/* clang-format off: as words on a line */
static const char *const words[] = {
    "[", "]", ":", "::", ".", "%lo", "%1", "65535", "65536", "-1", "+1", " 1", "0x7f", "ffff", "255.255.255.255", "localhost", "*",
    "fe80::1%lo", "\x1b[", "]:", NULL,
};
/* clang-format on */

const struct fuzz_driver fuzz_address = {.name = "address", .one = one, .seed = seed, .words = words, .most = 300};
