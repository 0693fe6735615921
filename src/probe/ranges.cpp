#include "probe/ranges.h"

#include <sys/mman.h>

#include <atomic>

namespace millrace::probe {
namespace {

struct Range {
    std::atomic<std::uint64_t> begin, end;
};

constexpr std::uint32_t kMostRanges = 1u << 15;
constexpr auto kRelaxed = std::memory_order_relaxed;

Range* ranges = nullptr;  // ordered by address
std::atomic<std::uint32_t> count{0};
std::atomic<std::uint32_t> changes{0};  // odd while a thread changes the table

/// Makes the table this thread's to change. Those who hold it do nothing but move entries, so the wait is short; it is bounded
/// all the same, because a thread may be stopped at any place.
bool begin_change() {
    for (int tries = 0; tries < 100'000; ++tries) {
        std::uint32_t even = changes.load(kRelaxed) & ~1u;
        if (changes.compare_exchange_weak(even, even + 1, std::memory_order_acq_rel)) {
            std::atomic_thread_fence(std::memory_order_release);
            return true;
        }
    }
    return false;
}

void end_change() { changes.fetch_add(1, std::memory_order_release); }

/// Number of ranges that begin at or before `address`.
std::uint32_t place_of(std::uint64_t address) {
    std::uint32_t low = 0, high = count.load(kRelaxed);
    while (low < high) {
        const std::uint32_t middle = (low + high) / 2;
        if (ranges[middle].begin.load(kRelaxed) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void copy(Range& to, const Range& from) {
    to.begin.store(from.begin.load(kRelaxed), kRelaxed);
    to.end.store(from.end.load(kRelaxed), kRelaxed);
}

}  // namespace

bool prepare_ranges() {
    void* memory =
        ::mmap(nullptr, kMostRanges * sizeof(Range), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    ranges = static_cast<Range*>(memory);
    return true;
}

void add_range(std::uint64_t address, std::uint64_t bytes) {
    if (bytes == 0 || !begin_change()) return;
    const std::uint32_t held = count.load(kRelaxed), at = place_of(address);
    if (at > 0 && ranges[at - 1].begin.load(kRelaxed) == address) {
        ranges[at - 1].end.store(address + bytes, kRelaxed);
    } else if (held < kMostRanges) {
        for (std::uint32_t i = held; i > at; --i) copy(ranges[i], ranges[i - 1]);
        ranges[at].begin.store(address, kRelaxed);
        ranges[at].end.store(address + bytes, kRelaxed);
        count.store(held + 1, kRelaxed);
    }
    end_change();
}

std::uint64_t remove_range(std::uint64_t address) {
    if (!begin_change()) return 0;
    const std::uint32_t held = count.load(kRelaxed), at = place_of(address);
    std::uint64_t bytes = 0;
    if (at > 0 && ranges[at - 1].begin.load(kRelaxed) == address) {
        bytes = ranges[at - 1].end.load(kRelaxed) - address;
        for (std::uint32_t i = at; i < held; ++i) copy(ranges[i - 1], ranges[i]);
        count.store(held - 1, kRelaxed);
    }
    end_change();
    return bytes;
}

bool in_range(std::uint64_t address) {
    for (int tries = 0; tries < 4; ++tries) {
        const std::uint32_t before = changes.load(std::memory_order_acquire);
        if ((before & 1) != 0) continue;
        const std::uint32_t at = place_of(address);
        const bool inside = at > 0 && address < ranges[at - 1].end.load(kRelaxed);
        std::atomic_thread_fence(std::memory_order_acquire);
        if (changes.load(kRelaxed) == before) return inside;
    }
    return false;
}

}  // namespace millrace::probe
