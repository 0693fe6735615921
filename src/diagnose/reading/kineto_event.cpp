#include "diagnose/reading/kineto_event.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

namespace millrace::diagnose {
namespace {

struct CategoryNames {
    EventCategory category;
    std::array<std::string_view, 3> names;
};

/// The names of today and those of Kineto before 2022.
constexpr std::array kCategories = {
    CategoryNames{EventCategory::kOperator, {"cpu_op", "Operator"}},
    CategoryNames{EventCategory::kPythonFunction, {"python_function", "Python", "python function"}},
    CategoryNames{EventCategory::kKernel, {"kernel", "Kernel"}},
    CategoryNames{EventCategory::kCall, {"cuda_runtime", "cuda_driver", "Runtime"}},
    CategoryNames{EventCategory::kCopy, {"gpu_memcpy", "Memcpy"}},
    CategoryNames{EventCategory::kSet, {"gpu_memset", "Memset"}},
    CategoryNames{EventCategory::kSync, {"cuda_sync"}},
    CategoryNames{EventCategory::kAnnotation, {"user_annotation"}},
    CategoryNames{EventCategory::kInstant, {"cpu_instant_event"}},
    CategoryNames{EventCategory::kOverhead, {"overhead"}},
    CategoryNames{EventCategory::kSample, {"sample"}},
    CategoryNames{EventCategory::kCollection, {"garbage_collection"}},
};

EventCategory category_of(std::string_view name) {
    for (const CategoryNames& category : kCategories)
        if (!name.empty() && std::ranges::find(category.names, name) != category.names.end()) return category.category;
    return EventCategory::kOther;
}

std::uint32_t hash_in(std::uint32_t hash, std::uint64_t value) {
    for (int i = 0; i < 8; ++i, value >>= 8) hash = (hash ^ static_cast<std::uint32_t>(value & 0xff)) * 16777619u;
    return hash;
}

/// Three numbers of a grid or block; `product` gets what they come to.
template <class Count>
void scan_shape(JsonScanner& scanner, KinetoEvent& event, Count& product) {
    if (!scanner.enter_array()) return;
    product = 1;
    std::uint32_t hash = event.shape != 0 ? event.shape : 2166136261u;
    for (int i = 0; scanner.next_element(); ++i) {
        const auto value = integer_of(scanner.number());
        if (i >= 3) continue;
        hash = hash_in(hash, static_cast<std::uint64_t>(value.value_or(0)));
        product *= static_cast<Count>(std::clamp<std::int64_t>(value.value_or(0), 0, 0x7fffffff));
    }
    event.shape = hash != 0 ? hash : 1;
}

std::optional<std::uint32_t> small_of(std::string_view number) {
    const auto value = integer_of(number);
    if (!value || *value < 0 || *value > std::numeric_limits<std::uint32_t>::max()) return std::nullopt;
    return static_cast<std::uint32_t>(*value);
}

/// 24572, "24572", "stream 7"; nothing for -1, "Spans".
std::optional<std::uint32_t> row_of(std::string_view number) {
    if (number.starts_with("stream ")) number.remove_prefix(7);
    return small_of(number);
}

bool take_true(JsonScanner& scanner) {
    const bool is = scanner.peek() == JsonScanner::Kind::kTrue;
    scanner.skip();
    return is;
}

void scan_pointers(JsonScanner& scanner, KinetoEvent& event) {
    if (!scanner.enter_array()) return;
    while (scanner.next_element()) {
        const auto value = unsigned_of(scanner.number());
        if (event.pointers.size() < record::kMaxArguments) event.pointers.push_back(value.value_or(0));
    }
}

/// Arguments that our own exports have beyond Kineto's. False: none of them, nothing was taken.
bool scan_own_argument(JsonScanner& scanner, std::string_view key, KinetoEvent& event) {
    if (key == "shape")
        event.shape = small_of(scanner.number()).value_or(0);
    else if (key == "launch")
        event.launch = unsigned_of(scanner.number()).value_or(0);
    else if (key == "pointers")
        scan_pointers(scanner, event);
    else if (key == "other parameters")
        event.rest = unsigned_of(scanner.number()).value_or(0);
    else if (key == "content")
        event.content = unsigned_of(scanner.number()).value_or(0);
    else if (key == "copy")
        event.ends.assign(scanner.text());
    else if (key == "call kind")
        event.call_kind = small_of(scanner.number());
    else if (key == "profiler notes")
        event.notes = small_of(scanner.number()).value_or(0);
    else if (key == "failed")
        event.failed = take_true(scanner);
    else if (key == "no communication")
        event.no_communication = take_true(scanner);
    else if (key == "inferred")
        event.invented = take_true(scanner);
    else if (key == "state")
        event.state.assign(scanner.text());
    else if (key == "process")
        event.process = small_of(scanner.number());
    else if (key == "wait")
        event.wait.assign(scanner.text());
    else
        return false;
    return true;
}

void scan_argument(JsonScanner& scanner, std::string_view key, KinetoEvent& event) {
    if (key == "correlation" || key == "Correlation ID")
        event.correlation = small_of(scanner.number()).value_or(0);
    else if (key == "stream")
        event.stream = row_of(scanner.number());
    else if (key == "device" || key == "inDevice")
        event.device = small_of(scanner.number());
    else if (key == "bytes" || key == "Bytes") {
        const std::string_view number = scanner.number();
        const auto most = unsigned_of(number);
        event.bytes = most ? *most : static_cast<std::uint64_t>(std::max<std::int64_t>(0, integer_of(number).value_or(0)));
    } else if (key == "grid")
        scan_shape(scanner, event, event.size.blocks);
    else if (key == "block")
        scan_shape(scanner, event, event.size.threads);
    else if (key == "registers per thread")
        event.size.registers = small_of(scanner.number()).value_or(0);
    else if (key == "shared memory")
        event.size.shared_bytes = small_of(scanner.number()).value_or(0);
    else if (key == "graph node id")
        event.graph_node = unsigned_of(scanner.number()).value_or(0);
    else if (key == "Call stack")
        event.call_stack.assign(scanner.text());
    else if (key == "Collective name") {
        event.collective = true;
        scanner.skip();
    } else if (key == "wait_on_cuda_event_id" || key == "event")
        event.waits_for = unsigned_of(scanner.number()).value_or(0);
    else if (key == "wait_on_cuda_event_record_corr_id")
        event.recorded_by = small_of(scanner.number()).value_or(0);
    else if (key == "Total Reserved")
        event.reserved = double_of(scanner.number());
    else if (key == "Device Type")
        event.on_device = small_of(scanner.number()).value_or(0) != 0;
    else if (key == "name" || key == "labels")
        event.label.assign(scanner.text());
    else if (!scan_own_argument(scanner, key, event))
        scanner.skip();
}

void scan_arguments(JsonScanner& scanner, KinetoEvent& event) {
    constexpr std::size_t kMostCounters = 16;
    if (!scanner.enter_object()) return;
    std::string_view key;
    while (scanner.next_key(key)) {
        if (event.phase != 'C') {
            scan_argument(scanner, key, event);
            continue;
        }
        std::string counter(key);
        const auto value = double_of(scanner.number());
        if (value && event.counters.size() < kMostCounters) event.counters.emplace_back(std::move(counter), *value);
    }
}

}  // namespace

std::optional<double> double_of(std::string_view number) {
    double value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (number.empty() || error != std::errc() || end != number.data() + number.size() || !std::isfinite(value))
        return std::nullopt;
    return value;
}

std::optional<std::int64_t> integer_of(std::string_view number) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (!number.empty() && error == std::errc() && end == number.data() + number.size()) return value;
    const auto real = double_of(number);
    if (!real || std::abs(*real) > 9e18) return std::nullopt;
    return static_cast<std::int64_t>(*real);
}

std::optional<std::uint64_t> unsigned_of(std::string_view number) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    if (!number.empty() && error == std::errc() && end == number.data() + number.size()) return value;
    return std::nullopt;
}

std::optional<Time> nanoseconds_of(std::string_view microseconds, Time most) {
    const bool negative = microseconds.starts_with('-');
    const std::string_view digits = microseconds.substr(negative ? 1 : 0);
    Time value = 0;
    std::size_t at = 0;
    int decimals = -1;  // before the point
    for (; at < digits.size(); ++at) {
        if (digits[at] == '.' && decimals < 0) {
            decimals = 0;
            continue;
        }
        if (digits[at] < '0' || digits[at] > '9') break;
        if (decimals >= 3) continue;
        if (value > most / 10) return std::nullopt;
        value = value * 10 + (digits[at] - '0');
        if (decimals >= 0) ++decimals;
    }
    if (at < digits.size() || digits.empty()) {  // an exponent, or no number
        const auto real = double_of(microseconds);
        if (!real || std::abs(*real) * 1000 > static_cast<double>(most)) return std::nullopt;
        return static_cast<Time>(std::llround(*real * 1000));
    }
    for (int i = std::max(decimals, 0); i < 3; ++i) {
        if (value > most / 10) return std::nullopt;
        value *= 10;
    }
    if (value > most) return std::nullopt;
    return negative ? -value : value;
}

void KinetoEvent::clear() {
    // Texts and lists keep their memory: there are millions of events.
    KinetoEvent fresh;
    for (auto member : {&KinetoEvent::name, &KinetoEvent::call_stack, &KinetoEvent::ends, &KinetoEvent::state, &KinetoEvent::wait,
                        &KinetoEvent::label}) {
        (this->*member).clear();
        (fresh.*member).swap(this->*member);
    }
    pointers.clear();
    counters.clear();
    fresh.pointers.swap(pointers);
    fresh.counters.swap(counters);
    *this = std::move(fresh);
}

bool scan_event(JsonScanner& scanner, KinetoEvent& event) {
    event.clear();
    if (!scanner.enter_object()) return false;
    std::string_view key;
    while (scanner.next_key(key)) {
        if (key == "ph") {
            const std::string_view phase = scanner.text();
            event.phase = phase.size() == 1 ? phase[0] : '?';
        } else if (key == "cat") {
            event.category = category_of(scanner.text());
        } else if (key == "name") {
            event.name.assign(scanner.text());
        } else if (key == "ts") {
            event.begin = nanoseconds_of(scanner.number(), kLatest);
            event.absurd_time |= !event.begin;
        } else if (key == "dur") {
            event.duration = nanoseconds_of(scanner.number(), kLongest);
            event.absurd_time |= !event.duration;
        } else if (key == "pid") {
            event.pid = row_of(scanner.number());
        } else if (key == "tid") {
            event.tid = row_of(scanner.number());
        } else if (key == "args" && event.phase != 's' && event.phase != 'f') {
            scan_arguments(scanner, event);
        } else {
            scanner.skip();
        }
    }
    return !scanner.failed();
}

}  // namespace millrace::diagnose
