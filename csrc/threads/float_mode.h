// One floating-point mode on every thread that computes: round to nearest even, subnormals kept, no traps. A host
// process may have set flush-to-zero, and a row's bits must not depend on which thread computed it.
#pragma once

#include <cstdint>

namespace freehold {

class FloatMode {
  public:
#if defined(__x86_64__)
    FloatMode() : saved_(__builtin_ia32_stmxcsr()) { __builtin_ia32_ldmxcsr(0x1f80); }
    ~FloatMode() { __builtin_ia32_ldmxcsr(saved_); }
#elif defined(__aarch64__)
    FloatMode() {
        asm volatile("mrs %0, fpcr" : "=r"(saved_));
        asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{0}));
    }
    ~FloatMode() { asm volatile("msr fpcr, %0" ::"r"(saved_)); }
#else
    FloatMode() : saved_(0) {}
    ~FloatMode() { (void)saved_; }
#endif
    FloatMode(const FloatMode&) = delete;
    FloatMode& operator=(const FloatMode&) = delete;

  private:
#if defined(__aarch64__)
    std::uint64_t saved_;
#else
    unsigned saved_;
#endif
};

}  // namespace freehold
