#pragma once
// Which bytes of a launch's parameters decide what the kernel computes. The framework hands tables over by value of which only
// the first entries are set, and functors with an address of the host's at their end; what else lies there is left over from
// earlier calls. Taken as it is, it would make every launch look like a new one, and stale pointers look like inputs.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "diagnose/timeline/timeline.h"
#include "record/probe_records.h"

namespace millrace::diagnose {

struct GivenParameters {
    std::vector<std::uint64_t> pointers;  ///< into device memory; of elementwise kernels what is written comes first
    std::uint64_t rest = 0;               ///< hash of all other bytes that count
    bool operator==(const GivenParameters&) const = default;
};

/// `kernel` may be mangled. Where its family or its layout is not known, everything counts as it was recorded.
GivenParameters given_parameters(std::string_view kernel, std::span<const record::Argument> arguments);

/// Null: not taken.
const Arguments* arguments_of(const Timeline& timeline, std::uint32_t process, std::uint32_t correlation);

}  // namespace millrace::diagnose
