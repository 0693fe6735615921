#pragma once
#include <cstdint>

namespace millrace::tape {

/// Programs that this process has captured: what must stay as it is while trials come and go.
std::uint64_t captures_so_far();

}  // namespace millrace::tape
