/* SPDX-License-Identifier: Apache-2.0
 * exp, log and tanh of float where a compiler comes without a library for its device; plain C, so that the host can hold them against its
 * own. Within 1.5 units in the last place where the result is no denormal number. Method and coefficients: Moshier, "Methods and Programs
 * for Mathematical Functions", 1989, and its library Cephes, single precision. BARE_FUNCTION goes before each. */
BARE_FUNCTION int bare_bits(float x) {
    int bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    return bits;
}
BARE_FUNCTION float bare_float(int bits) {
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
}
/* 2^n, n from -126 to 127. */
BARE_FUNCTION float bare_power(int n) { return bare_float((n + 127) << 23); }

BARE_FUNCTION float sqrtf(float x) { return __builtin_sqrtf(x); }

/* e^x = 2^n e^r, |r| <= log(2) / 2. The power is put on in two halves, as 2^n alone may be too large or too small for a float. */
BARE_FUNCTION float expf(float x) {
    if (x != x) return x;
    if (x > 88.8f) return __builtin_inff();
    if (x < -104.0f) return 0;
    const int n = (int)(x * 1.44269504f + (x < 0 ? -0.5f : 0.5f));
    const float r = (x - (float)n * 0.693359375f) - (float)n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return (p * (r * r) + r + 1) * bare_power(n / 2) * bare_power(n - n / 2);
}

/* log(2^e m) = e log(2) + log(m), sqrt(1/2) <= m < sqrt(2). */
BARE_FUNCTION float logf(float x) {
    if (x != x || x == __builtin_inff()) return x;
    if (x <= 0) return x < 0 ? __builtin_nanf("") : -__builtin_inff();
    int e = 0;
    if (x < 1.17549435e-38f) x *= 8388608, e = -23;   /* a denormal number */
    e += ((bare_bits(x) >> 23) & 255) - 126;
    float m = bare_float((bare_bits(x) & 0x7fffff) | 0x3f000000);
    if (m < 0.707106781f) m *= 2, e--;
    const float r = m - 1, z = r * r;
    float p = 7.0376836292e-2f;
    p = p * r - 1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r - 1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r - 1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r - 2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    return r + (p * r * z + (float)e * -2.12194440e-4f - z / 2) + (float)e * 0.693359375f;
}

BARE_FUNCTION float tanhf(float x) {
    const float size = x < 0 ? -x : x;
    if (size > 9.1f) return x < 0 ? -1 : 1;
    if (!(size < 0.625f)) {   /* a NaN, too */
        const float t = 1 - 2 / (expf(2 * size) + 1);
        return x < 0 ? -t : t;
    }
    const float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    return p * z * x + x;
}
