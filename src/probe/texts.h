#pragma once
// Texts get numbers, once per process; the first who needs one writes it into its lane.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "probe/lanes.h"

namespace millrace::probe {

/// Takes memory for the tables; false when there is none.
bool prepare_texts();

/// The number of a text (cut to kMaxTextBytes); 0 when it has none yet and there is no room to write it, or the table is full.
std::uint32_t text_number(ThreadState& thread, const char* text, std::size_t size);
std::uint32_t text_number(ThreadState& thread, const char* text);

/// Set of 64-bit keys that threads fill together; an entry never goes away. Memory is zero pages until used.
class KeyTable {
public:
    bool prepare(std::uint32_t entries);  ///< a power of two
    /// Number of the key's entry, counted from 1; 0: the key is not there.
    [[nodiscard]] std::uint32_t find(std::uint64_t table_key) const;
    /// As find, but enters a new key; `added` says whether it was this call that did. 0: no place left.
    std::uint32_t enter(std::uint64_t table_key, bool& added);

private:
    static constexpr std::uint32_t kMostProbes = 64;
    std::atomic<std::uint64_t>* keys_ = nullptr;
    std::uint32_t mask_ = 0;
};

}  // namespace millrace::probe
