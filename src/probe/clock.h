#pragma once
#include <time.h>

#include <cstdint>

namespace millrace::probe {

/// CLOCK_MONOTONIC in nanoseconds: the time of all records.
inline std::uint64_t now() {
    timespec at;
    ::clock_gettime(CLOCK_MONOTONIC, &at);
    return static_cast<std::uint64_t>(at.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(at.tv_nsec);
}

}  // namespace millrace::probe
