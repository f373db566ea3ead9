// exp of float lanes with plain arithmetic, so that nothing depends on the system's libm. Included inside no namespace;
// needs an ISA's vec.h before it. Maximum error about 1 ulp.
#pragma once

namespace freehold::FREEHOLD_ISA {
namespace {

constexpr float kExpLowest = -86.0f;  // below, the result is 0
constexpr float kExpHighest = 88.0f;

FREEHOLD_INLINE F f_exp(F x) {
    const F round = f_set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer in the low bits
    const F clamped = f_min(f_set(kExpHighest), f_max(f_set(kExpLowest), x));
    const F shifted = f_fma(clamped, f_set(1.44269504f), round);
    const F n = f_sub(shifted, round);
    F r = f_fma(n, f_set(-0.693359375f), clamped);
    r = f_fma(n, f_set(2.12194440e-4f), r);
    F p = f_set(1.9875691500e-4f);
    p = f_fma(p, r, f_set(1.3981999507e-3f));
    p = f_fma(p, r, f_set(8.3334519073e-3f));
    p = f_fma(p, r, f_set(4.1665795894e-2f));
    p = f_fma(p, r, f_set(1.6666665459e-1f));
    p = f_fma(p, r, f_set(5.0000001201e-1f));
    p = f_fma(p, f_mul(r, r), r);
    p = f_add(p, f_set(1.0f));
    const F scaled = f_from_bits(i_add(f_bits(p), i_shift_left<23>(f_bits(shifted))));
    const F flushed = f_select(f_less(x, f_set(kExpLowest)), f_zero(), scaled);
    return f_select(f_is_nan(x), x, flushed);
}

}  // namespace
}  // namespace freehold::FREEHOLD_ISA
