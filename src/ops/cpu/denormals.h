#pragma once
// Flush-to-zero for the running thread. Numbers too small to matter cost a hundred cycles each on most processors, and every
// thread must agree on them: a result may not depend on which thread computed it.

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace millrace::ops::cpu {

/// Sets flush-to-zero while it lives and restores what was there before.
class FlushDenormals {
public:
    FlushDenormals() : before_(read()) {
        if ((before_ & kBits) != kBits) write(before_ | kBits);
    }
    ~FlushDenormals() {
        if ((before_ & kBits) != kBits) write(before_);
    }
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

private:
#if defined(__aarch64__)
    static constexpr std::uint64_t kBits = std::uint64_t{1} << 24;  // FPCR.FZ
    static std::uint64_t read() {
        std::uint64_t value;
        __asm__ volatile("mrs %0, fpcr" : "=r"(value));
        return value;
    }
    static void write(std::uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
#elif defined(__x86_64__)
    static constexpr std::uint64_t kBits = 0x8040;  // MXCSR: flush to zero, denormals are zero
    static std::uint64_t read() { return _mm_getcsr(); }
    static void write(std::uint64_t value) { _mm_setcsr(static_cast<unsigned>(value)); }
#else
    static constexpr std::uint64_t kBits = 0;
    static std::uint64_t read() { return 0; }
    static void write(std::uint64_t) {}
#endif
    std::uint64_t before_;
};

}  // namespace millrace::ops::cpu
