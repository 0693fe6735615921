#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace millrace::io {

/// One entry of a safetensors header as written, not yet checked against the data section.
struct HeaderEntry {
    std::string name;
    std::string type;
    std::vector<std::int64_t> shape;  ///< each >= 0
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

struct Header {
    std::vector<HeaderEntry> entries;
    Metadata metadata;
};

/// Parses the JSON header: exactly the known keys, each once, no duplicate names. `place` names the file in errors.
Result<Header> parse_header(std::string_view json, const Path& place);

}  // namespace millrace::io
