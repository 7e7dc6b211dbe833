/* SPDX-License-Identifier: Apache-2.0
 * Fixed-width little-endian fields through explicit loads and stores, and a bounded reader and writer over them.
 * Nothing that crosses a wire or a file is ever cast to a struct. */
#ifndef ECHI_BYTES_H
#define ECHI_BYTES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Where the processor's own order is that of the fields, a copy, which is one instruction also between a sanitizer's checks. Elsewhere
 * written out and not as loops: compilers make one instruction of each of these, gcc 12 at -O2 of the loops none. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
static inline uint16_t echi_load16(const uint8_t *p) { uint16_t v; memcpy(&v, p, sizeof v); return v; }
static inline uint32_t echi_load32(const uint8_t *p) { uint32_t v; memcpy(&v, p, sizeof v); return v; }
static inline uint64_t echi_load64(const uint8_t *p) { uint64_t v; memcpy(&v, p, sizeof v); return v; }
static inline void echi_store16(uint8_t *p, uint16_t v) { memcpy(p, &v, sizeof v); }
static inline void echi_store32(uint8_t *p, uint32_t v) { memcpy(p, &v, sizeof v); }
static inline void echi_store64(uint8_t *p, uint64_t v) { memcpy(p, &v, sizeof v); }
#else
static inline uint16_t echi_load16(const uint8_t *p) { return (uint16_t)(p[0] | p[1] << 8); }
static inline uint32_t echi_load32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline uint64_t echi_load64(const uint8_t *p) { return echi_load32(p) | (uint64_t)echi_load32(p + 4) << 32; }
static inline void echi_store16(uint8_t *p, uint16_t v) { p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8); }
static inline void echi_store32(uint8_t *p, uint32_t v) { echi_store16(p, (uint16_t)v), echi_store16(p + 2, (uint16_t)(v >> 16)); }
static inline void echi_store64(uint8_t *p, uint64_t v) { echi_store32(p, (uint32_t)v), echi_store32(p + 4, (uint32_t)(v >> 32)); }
#endif
static inline uint32_t echi_load32be(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A cursor over bytes. Once anything did not fit, `ok` is false, reads give zeros and writes are dropped:
 * check `ok` once, at the end. */
struct echi_writer { uint8_t *at, *end; bool ok; };
struct echi_reader { const uint8_t *at, *end; bool ok; };

static inline struct echi_writer echi_writer_over(void *p, size_t n) { return (struct echi_writer){p, (uint8_t *)p + n, true}; }
static inline struct echi_reader echi_reader_over(const void *p, size_t n) { return (struct echi_reader){p, (const uint8_t *)p + n, true}; }

static inline uint8_t *echi_writer_take(struct echi_writer *w, size_t n) {
    if (!w->ok || n > (size_t)(w->end - w->at)) { w->ok = false; return NULL; }
    uint8_t *p = w->at; w->at += n; return p;
}
static inline const uint8_t *echi_reader_take(struct echi_reader *r, size_t n) {
    if (!r->ok || n > (size_t)(r->end - r->at)) { r->ok = false; return NULL; }
    const uint8_t *p = r->at; r->at += n; return p;
}
static inline void echi_put8(struct echi_writer *w, uint8_t v) { uint8_t *p = echi_writer_take(w, 1); if (p) *p = v; }
static inline void echi_put16(struct echi_writer *w, uint16_t v) { uint8_t *p = echi_writer_take(w, 2); if (p) echi_store16(p, v); }
static inline void echi_put32(struct echi_writer *w, uint32_t v) { uint8_t *p = echi_writer_take(w, 4); if (p) echi_store32(p, v); }
static inline void echi_put64(struct echi_writer *w, uint64_t v) { uint8_t *p = echi_writer_take(w, 8); if (p) echi_store64(p, v); }
static inline void echi_put_f64(struct echi_writer *w, double v) { uint64_t b; memcpy(&b, &v, 8); echi_put64(w, b); }
static inline void echi_put_bytes(struct echi_writer *w, const void *v, size_t n) {
    uint8_t *p = echi_writer_take(w, n);
    if (p && n) memcpy(p, v, n);
}
static inline uint8_t echi_get8(struct echi_reader *r) { const uint8_t *p = echi_reader_take(r, 1); return p ? *p : 0; }
static inline uint16_t echi_get16(struct echi_reader *r) { const uint8_t *p = echi_reader_take(r, 2); return p ? echi_load16(p) : 0; }
static inline uint32_t echi_get32(struct echi_reader *r) { const uint8_t *p = echi_reader_take(r, 4); return p ? echi_load32(p) : 0; }
static inline uint64_t echi_get64(struct echi_reader *r) { const uint8_t *p = echi_reader_take(r, 8); return p ? echi_load64(p) : 0; }
static inline double echi_get_f64(struct echi_reader *r) { uint64_t b = echi_get64(r); double v; memcpy(&v, &b, 8); return v; }
static inline void echi_get_bytes(struct echi_reader *r, void *v, size_t n) {
    const uint8_t *p = echi_reader_take(r, n);
    if (p && n) memcpy(v, p, n); else if (n) memset(v, 0, n);
}
#endif
