#include "sense/proc_memory.h"

#include <algorithm>
#include <limits>

namespace millrace::sense {

ProcMemory::ProcMemory(const std::string& proc, const std::string& sys) : meminfo_(proc + "/meminfo") {
    if (const auto membership = ProcFile(proc + "/self/cgroup", false).read(buffer_))
        group_ = CgroupMemory(find_cgroup(std::string(*membership), sys, "memory"));
}

void ProcMemory::read(MemoryReading& reading) {
    reading = MemoryReading{};
    if (const auto text = meminfo_.read(buffer_)) {
        const auto bytes = [&](std::string_view key) -> std::optional<double> {
            const auto kibibytes = find_count(*text, key);
            return kibibytes ? std::optional(static_cast<double>(*kibibytes) * 1024.0) : std::nullopt;
        };
        reading.total_bytes = bytes("MemTotal");
        reading.available_bytes = bytes("MemAvailable");
        const auto free = bytes("MemFree"), buffers = bytes("Buffers"), cached = bytes("Cached"), shared = bytes("Shmem");
        // Shared memory is counted among the cached pages, but storage does not stand behind it.
        if (cached) reading.page_cache_bytes = std::max(0.0, *cached + buffers.value_or(0) - shared.value_or(0));
        if (!reading.available_bytes && free && reading.page_cache_bytes)  // kernels before 3.14
            reading.available_bytes = *free + *reading.page_cache_bytes;
        const auto swap_total = bytes("SwapTotal"), swap_free = bytes("SwapFree");
        reading.swap_total_bytes = swap_total;
        if (swap_total && swap_free) reading.swap_used_bytes = std::max(0.0, *swap_total - *swap_free);
    }
    const auto machine_total = reading.total_bytes.value_or(std::numeric_limits<double>::max());
    const CgroupMemory::Reading group = group_.read(std::min(machine_total, 0x1p62), buffer_);
    if (group.limit_bytes) {
        reading.limit_bytes = group.limit_bytes;
        reading.total_bytes = group.limit_bytes;
        if (group.available_bytes)
            reading.available_bytes = std::min(reading.available_bytes.value_or(*group.available_bytes), *group.available_bytes);
        else
            reading.available_bytes.reset();
        reading.page_cache_bytes = group.file_bytes;
    }
    if (reading.total_bytes && reading.available_bytes) {
        reading.available_bytes = std::min(*reading.available_bytes, *reading.total_bytes);
        reading.used_bytes = *reading.total_bytes - *reading.available_bytes;
    }
}

}  // namespace millrace::sense
