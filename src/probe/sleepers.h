#pragma once

#include <cstdint>

namespace millrace::probe {

/// Whether a thread of this process sleeps, or has ended, and is not inside of a device's driver as far as the system tells: one
/// that runs may be anywhere. False where nothing can be known.
bool does_sleep(std::uint32_t thread);

}  // namespace millrace::probe
