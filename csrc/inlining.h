// Functions that kernels share with the rest are always inlined: otherwise the linker might keep the copy that was
// compiled for AVX-512 and call it on a processor without.
#pragma once

#define FREEHOLD_INLINE inline __attribute__((always_inline))
#define FREEHOLD_INLINE_LAMBDA __attribute__((always_inline))
// Parts of a large kernel that have the registers to themselves: inlined, they would share them with the rest.
#define FREEHOLD_APART __attribute__((noinline))
