#pragma once
// What is decided about a program's records and buffers before they are bound: rewrites of the backend put fused records in the
// place of others, lifetimes follow from what is left, and buffers whose lifetimes overlap never share a byte of the arena.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ops/backend.h"
#include "tape/buffer.h"

namespace millrace::tape {

struct MemoryPlan {
    std::int64_t bytes = 0;                               ///< size of the arena
    std::int64_t without_reuse = 0;                       ///< sum of all buffers
    std::array<std::int64_t, kRoleCount> peak_by_role{};  ///< bytes alive, per role, at the record where most bytes are alive
    int peak_record = -1;

    [[nodiscard]] std::string text()
        const;  ///< "activations 1.2 MiB of 3.4 MiB without reuse (activation 0.7, saved 0.5 at record 17)"
};

/// Sets `offset` of every buffer with a lifetime: buffers that live at the same time do not share memory.
MemoryPlan plan_memory(std::span<Buffer> buffers, std::int64_t alignment = 256);

/// Replaces what the backend's rewrites take (ops/rewrite.h), at each record the first that fits; none crosses the border of a
/// section or of a region. `buffers` are the program's own.
void rewrite_records(const ops::Backend& backend, const std::vector<Buffer>& buffers, std::vector<ops::Record>& records,
                     std::vector<ops::Section>& sections);

/// Sets the first and last record of every buffer that the records name.
void set_lifetimes(const std::vector<ops::Record>& records, const std::vector<ops::Section>& sections,
                   std::vector<Buffer>& buffers);

}  // namespace millrace::tape
