#pragma once
// What a data set is to those who do not read it: its kind and its identity.

#include <cstdint>
#include <string>

namespace millrace::data {

/// What a set consists of. Samples have an input each, such as an image or a row of a table, and an answer to it.
enum class DataKind : std::uint8_t { samples, pairs, recordings, text };

/// Whether a set may stay in files or host memory while it is trained on (data/stream).
constexpr bool can_stream(DataKind kind) { return kind == DataKind::samples || kind == DataKind::recordings; }

/// What its samples are called.
constexpr const char* unit_of(DataKind kind) {
    constexpr const char* kUnits[] = {"samples", "pairs", "segments", "windows"};
    return kUnits[static_cast<int>(kind)];
}

/// Identifies the data a run was trained on, wherever it lies.
struct DataIdentity {
    std::string name;
    std::int64_t train = 0, validation = 0, test = 0;
    std::uint64_t checksum = 0;
    bool streamed = false;  ///< its samples come in another order than those of a resident set
    bool operator==(const DataIdentity&) const = default;
};

}  // namespace millrace::data
