#pragma once
// What the fuzzer does with one input, and what an ordinary test does with each input of the corpus: the input is an array or an
// archive of arrays. Whatever its bytes are, elements that can be read or an error come out.

#include <string_view>

#include "io/array_file.h"

namespace millrace::fuzz {

inline constexpr std::uint64_t kFuzzedBytes = 1 << 20;  ///< few bytes may stand for many

inline void check_array(io::Bytes bytes) {
    const auto array = io::parse_npy(bytes, "array");
    if (!array.ok()) {
        MILLRACE_ASSERT(!array.error().message.empty() && array.error().place == "array", "an error without reason or place");
        return;
    }
    std::uint64_t count = 1;
    for (const std::uint64_t extent : array->shape) count *= extent;
    MILLRACE_ASSERT(count == array->count(), "another number of elements than the shape says");
    double sum = 0;
    for (std::uint64_t i = 0; i < count; ++i) sum += array->at(i);
    MILLRACE_ASSERT(sum == sum || sum != sum, "every element can be read");
}

inline void read_array_bytes(std::string_view bytes) {
    check_array(io::bytes_of(bytes));
    const auto members = io::parse_npz(io::bytes_of(bytes), "archive", kFuzzedBytes);
    if (!members.ok()) return;
    std::uint64_t all = 0;
    for (const auto& [name, member] : *members) {
        all += member.size();
        check_array(member);
    }
    MILLRACE_ASSERT(all <= kFuzzedBytes, "more was unpacked than is allowed");
}

}  // namespace millrace::fuzz
