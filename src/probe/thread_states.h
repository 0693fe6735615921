#pragma once

#include <cstdint>

namespace millrace::probe {

/// Whether a thread of this process sleeps, or has ended, and is not inside of a device's driver as far as the system tells: one
/// that runs may be anywhere. False where nothing can be known. True of threads that began before `since` (of thread_clock()).
bool is_asleep(std::uint32_t thread, std::uint64_t since = 0);
/// The time by which the system says when threads began; it is coarse.
std::uint64_t thread_clock();
/// Whether something holds for all threads of the process; false, too, where they cannot be known or are very many.
bool do_all(bool (*holds)(std::uint32_t thread, void* data), void* data);

}  // namespace millrace::probe
