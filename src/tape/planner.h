#pragma once
// Places the buffers of a program in one arena so that buffers whose lifetimes overlap never share a byte.

#include <array>
#include <cstdint>
#include <span>
#include <string>

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

}  // namespace millrace::tape
