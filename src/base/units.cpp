#include "base/units.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <span>

namespace millrace::base {
namespace {

using std::chrono::nanoseconds;

struct Unit64 {
    std::string_view name;
    uint64_t size;
};

// The last one is the unit of the stored number.
constexpr Unit64 kTimeUnits[] = {
    {"d", 86'400'000'000'000}, {"h", 3'600'000'000'000}, {"m", 60'000'000'000}, {"min", 60'000'000'000},
    {"s", 1'000'000'000},      {"ms", 1'000'000},        {"us", 1'000},         {"ns", 1}};
constexpr Unit64 kByteUnits[] = {
    {"TiB", 1ull << 40},   {"GiB", 1ull << 30}, {"MiB", 1ull << 20}, {"KiB", 1ull << 10}, {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000}, {"MB", 1'000'000},   {"kB", 1000},        {"KB", 1000},        {"B", 1}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

void skip_spaces(std::string_view& text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
}

/// Takes a plain decimal number off the front: digits with at most one point, no sign, no exponent. False when there is none.
bool take_number(std::string_view& text, double& number) {
    if (text.empty() || !is_digit(text.front())) return false;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
    if (code != std::errc{} || !std::isfinite(number)) return false;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return true;
}

std::string_view take_word(std::string_view& text) {
    size_t length = 0;
    while (length < text.size() && is_letter(text[length])) ++length;
    const std::string_view word = text.substr(0, length);
    text.remove_prefix(length);
    return word;
}

const Unit64* find_unit(std::span<const Unit64> units, std::string_view name) {
    for (const Unit64& unit : units)
        if (unit.name == name) return &unit;
    return nullptr;
}

constexpr double kLargest = 9.2e18;  // below 2^63, where the integer types end

Error bad_duration(std::string_view text, std::string_view why) {
    return Error{fmt::format("'{}' is not a duration: {}; write for example 250ms, 5s, 2m or 1h 30m", text, why)};
}

Error bad_bytes(std::string_view text, std::string_view why) {
    return Error{fmt::format("'{}' is not a size: {}; write for example 512, 64MiB or 1GB", text, why)};
}

/// The value in the largest unit that divides it, without digits after the point.
std::string exact(uint64_t value, std::span<const Unit64> units) {
    const Unit64* best = &units.back();
    for (const Unit64& unit : units)
        if (value % unit.size == 0 && unit.size > best->size) best = &unit;
    return fmt::format("{}{}", value / best->size, best->name);
}

/// With commas between thousands of what stands before the point.
std::string parted(std::string number) {
    const std::size_t first = number.front() == '-' ? 1 : 0;
    for (std::size_t at = std::min(number.find('.'), number.size()); at > first + 3; at -= 3) number.insert(at - 3, ",");
    return number;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
    const size_t first = text.find_first_not_of(" \t");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

Result<nanoseconds> parse_duration(std::string_view text) {
    std::string_view rest = trimmed(text);
    if (rest.empty()) return bad_duration(text, "it is empty");
    double total = 0;
    while (!rest.empty()) {
        double number = 0;
        if (!take_number(rest, number)) return bad_duration(text, "a number was expected");
        skip_spaces(rest);
        const std::string_view name = take_word(rest);
        if (name.empty()) return bad_duration(text, "the unit is missing");
        const Unit64* unit = find_unit(kTimeUnits, name);
        if (unit == nullptr) return bad_duration(text, fmt::format("'{}' is no unit of time", name));
        total += number * static_cast<double>(unit->size);
        if (total > kLargest) return bad_duration(text, "it is longer than 290 years");
        skip_spaces(rest);
    }
    return nanoseconds{std::llround(total)};
}

Result<uint64_t> parse_bytes(std::string_view text) {
    std::string_view rest = trimmed(text);
    if (rest.empty()) return bad_bytes(text, "it is empty");
    uint64_t whole = 0;
    const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), whole);
    if (code == std::errc{} && end == rest.data() + rest.size()) return whole;  // plain counts stay exact to the last byte
    double number = 0;
    if (!take_number(rest, number)) return bad_bytes(text, "a number was expected");
    const bool is_fraction = number != std::floor(number);
    skip_spaces(rest);
    const std::string_view name = take_word(rest);
    if (!rest.empty()) return bad_bytes(text, fmt::format("'{}' is left over", rest));
    const Unit64* unit = name.empty() ? &kByteUnits[std::size(kByteUnits) - 1] : find_unit(kByteUnits, name);
    if (unit == nullptr) return bad_bytes(text, fmt::format("'{}' is no unit of size", name));
    if (is_fraction && unit->size == 1) return bad_bytes(text, "bytes do not divide");
    const double total = number * static_cast<double>(unit->size);
    if (total > kLargest) return bad_bytes(text, "it is larger than 8 EiB");
    if (code == std::errc{} && !is_fraction) return whole * unit->size;
    return static_cast<uint64_t>(std::llround(total));
}

Result<double> parse_percent(std::string_view text) {
    std::string_view rest = trimmed(text);
    double number = 0;
    if (!take_number(rest, number))
        return Error{fmt::format("'{}' is not a percentage: a number was expected; write for example 5%", text)};
    skip_spaces(rest);
    if (rest != "%") return Error{fmt::format("'{}' is not a percentage: it must end in %; write for example 5%", text)};
    return number / 100;
}

std::string print_duration(nanoseconds duration) {
    const int64_t count = duration.count();
    if (count < 0) return "-" + print_duration(nanoseconds{count == INT64_MIN ? INT64_MAX : -count});
    const auto value = static_cast<double>(count);
    // The bounds lie half a printed digit below the unit, so that 59.96 s is "1m 0s" and not "60.0s".
    if (count == 0) return "0.0s";
    if (count < 1000) return fmt::format("{}ns", count);
    if (value < 999'950) return fmt::format("{:.1f}us", value / 1e3);
    if (value < 999'950'000) return fmt::format("{:.1f}ms", value / 1e6);
    if (value < 59'950'000'000) return fmt::format("{:.1f}s", value / 1e9);
    const int64_t seconds = count / 1'000'000'000 + (count % 1'000'000'000 >= 500'000'000 ? 1 : 0);
    if (seconds < 3600) return fmt::format("{}m {}s", seconds / 60, seconds % 60);
    if (seconds < 86400) return fmt::format("{}h {}m {}s", seconds / 3600, seconds / 60 % 60, seconds % 60);
    return fmt::format("{}d {}h {}m", seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
}

std::string print_bytes(uint64_t bytes) {
    if (bytes < 1024) return fmt::format("{} B", bytes);
    double value = static_cast<double>(bytes) / 1024;
    const char* const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t at = 0;
    while (value >= 1023.95 && at + 1 < std::size(names)) {
        value /= 1024;
        ++at;
    }
    return fmt::format("{:.1f} {}", value, names[at]);
}

std::string print_count(uint64_t count) { return parted(std::to_string(count)); }

std::string print_figures(double value, int figures) {
    std::string text = fmt::format("{:.{}g}", value, figures);
    if (!std::isfinite(value) || std::abs(value) >= 1e18) return text;
    if (text.find("e+") != std::string::npos) {
        const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - figures + 1);
        text = fmt::format("{:.0f}", std::round(value / unit) * unit);
    }
    return std::abs(value) < 1 ? text : parted(std::move(text));  // less may have a negative exponent
}

std::string print_percent(double fraction) { return fmt::format("{:.1f}%", fraction * 100); }

std::string exact_duration(nanoseconds duration) {
    MILLRACE_ASSERT(duration.count() >= 0, "a duration to store is not negative");
    if (duration.count() == 0) return "0s";
    return exact(static_cast<uint64_t>(duration.count()), kTimeUnits);
}

std::string exact_bytes(uint64_t bytes) { return bytes == 0 ? "0B" : exact(bytes, kByteUnits); }

}  // namespace millrace::base
