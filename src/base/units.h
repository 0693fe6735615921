#pragma once
// Durations, byte sizes and percentages as people write them. Parsing refuses what it does not understand; nothing is guessed.

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace::base {

/// Without the blanks and tabs at both ends.
std::string_view trimmed(std::string_view text);

/// "5s", "250ms", "2m", "1.5h", "1h 30m"; units ns, us, ms, s, m (or min), h, d. A unit is required; the sum is not negative.
Result<std::chrono::nanoseconds> parse_duration(std::string_view text);

/// "512", "512B", "64MiB", "1GB", "1.5 GiB"; kB, MB, GB, TB are powers of 1000 and KiB, MiB, GiB, TiB powers of 1024.
Result<uint64_t> parse_bytes(std::string_view text);

/// "5%" is 0.05. The sign is required, so that 5 and 0.05 cannot be confused.
Result<double> parse_percent(std::string_view text);

constexpr double kMiB = 1024.0 * 1024, kGiB = 1024 * kMiB;  ///< bytes

/// For people: "850ns", "12.3us", "250.0ms", "45.0s", "2m 5s", "1h 1m 1s", "3d 4h 5m".
std::string print_duration(std::chrono::nanoseconds duration);

/// For people: "512 B", "12.3 MiB".
std::string print_bytes(uint64_t bytes);

/// For people: 0.0512 is "5.1%".
std::string print_percent(double fraction);

/// For people: "1,500".
std::string print_count(uint64_t count);

/// For people: rounded to so many figures, thousands parted, no exponent for what is large: 1298.7 with three is "1,300".
std::string print_figures(double value, int figures);

/// Exact and short: the largest unit that divides, "90s", "250ms". parse_duration gives the same value back.
std::string exact_duration(std::chrono::nanoseconds duration);

/// Exact and short: "64MiB", "1000B". parse_bytes gives the same value back.
std::string exact_bytes(uint64_t bytes);

}  // namespace millrace::base
