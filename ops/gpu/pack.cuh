/* SPDX-License-Identifier: Apache-2.0
 * Matrices into words of tensor cores (echi_gpu_packed.h). Who includes this text says which: PACK, the kernel's name; PARTS, numbers in a
 * word; WORD(x), the word of float x[PARTS].
 *
 * A block packs 32 rows of 32 words: read along whichever lie side by side in memory, turned in shared memory, written along the words. */
KERNEL(256) PACK(GLOBAL const float *from, GLOBAL unsigned *to, struct echi_pack p) {
    LOCAL unsigned turned[32][33];
    const int stride = p.stride > 0 ? p.stride : (p.words + ECHI_PACKED_WORDS - 1) / ECHI_PACKED_WORDS * ECHI_PACKED_WORDS;
    const int across = (stride + 31) / 32, band = divided(GROUP(0), p.by_across), row0 = band * 32, word0 = (GROUP(0) - band * across) * 32;
    const bool along_rows = p.row_step == 1;
    UNROLL for (int of_all = 0; of_all < 32 * 32; of_all += 256) {
        const int e = of_all + ITEM, i = along_rows ? e % 32 : e / 32, j = along_rows ? e / 32 : e % 32;
        const int r = row0 + i, w = word0 + j;
        float x[PARTS];
        for (int part = 0; part < PARTS; part++) x[part] = 0;
        if (r < p.rows && w < p.words) {
            const int r1 = divided(r, p.by_row_inner), w1 = divided(w, p.by_word_inner), w0 = w - w1 * p.word_inner;
            const int first = (p.along == ECHI_PACK_ROW_OUTER ? r1 : p.along == ECHI_PACK_WORD_OUTER ? w1 : w0) * PARTS;
            GLOBAL const float *at = from + r1 * p.row_outer + (r - r1 * p.row_inner) * p.row_step + w1 * p.word_outer + w0 * p.word_step;
            for (int part = 0; part < PARTS; part++)
                if (first + part < p.bound) x[part] = at[part * p.part_step];
        }
        turned[i][j] = WORD(x);
    }
    WAIT;
    UNROLL for (int of_all = 0; of_all < 32 * 32; of_all += 256) {
        const int e = of_all + ITEM, i = e / 32, j = e % 32, r = row0 + i, w = word0 + j;
        if (p.stride == 0) to[packed_at(r, w, across)] = turned[i][j];
        else if (r < p.rows && w < stride) to[r * stride + w] = turned[i][j];
    }
}
#undef PACK
#undef PARTS
#undef WORD
