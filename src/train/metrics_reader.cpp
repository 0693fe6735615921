#include "train/metrics_reader.h"

namespace millrace::train {

bool MetricsReader::arrived(std::uint64_t sequence) const {
    for (const ops::MetricsRow& row : rows_of(sequence)) {
        auto& written = const_cast<std::uint64_t&>(row.sequence);  // atomic_ref of C++20 takes no const object
        if (std::atomic_ref<std::uint64_t>(written).load(std::memory_order_acquire) < sequence) return false;
    }
    return true;
}

std::uint64_t MetricsReader::drain(const std::function<void(RingRows)>& sink) {
    const std::uint64_t before = consumed_.load(std::memory_order_relaxed);
    std::uint64_t next = before + 1;
    for (; arrived(next); ++next) {
        sink(rows_of(next));
        consumed_.store(next, std::memory_order_release);
    }
    return next - 1 - before;
}

}  // namespace millrace::train
