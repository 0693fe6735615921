#include "data/recordings/feature_file.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <thread>

#include "tensor/dtype.h"

namespace millrace::data {
namespace {

constexpr std::uint64_t kReadAtOnce = 4 << 20;

/// Calls `read` for all rows, block by block, on as many threads as the machine has.
Status read_on_threads(std::uint64_t rows, std::uint64_t row_bytes, bool parallel,
                       const std::function<Status(std::uint64_t first, std::uint64_t count)>& read) {
    const std::uint64_t block = std::max<std::uint64_t>(1, kReadAtOnce / std::max<std::uint64_t>(row_bytes, 1));
    std::atomic<std::uint64_t> next{0};
    std::mutex mutex;
    Status status = base::ok();
    const auto work = [&] {
        for (std::uint64_t first = next.fetch_add(block); first < rows; first = next.fetch_add(block)) {
            Status done = read(first, std::min(block, rows - first));
            if (done.ok()) continue;
            const std::lock_guard lock(mutex);
            status = std::move(done);
            next = rows;
        }
    };
    const unsigned threads = parallel ? std::max(1u, std::thread::hardware_concurrency()) : 1;
    std::vector<std::jthread> others;
    for (unsigned i = 1; i < threads; ++i) others.emplace_back(work);
    work();
    others.clear();
    return status;
}

}  // namespace

FeatureFile::FeatureFile(io::Hdf5Dataset set, Path path, std::uint64_t values)
    : set_(std::move(set)), path_(std::move(path)), values_(values) {}

std::uint64_t FeatureFile::together() const {
    const std::vector<std::uint64_t>& chunk = set_.description().chunk;
    return chunk.empty() ? 1 : std::clamp<std::uint64_t>(chunk[0], 1, std::max<std::uint64_t>(1, count()));
}

Status FeatureFile::read(std::uint64_t first, std::uint64_t count, std::span<std::uint16_t> out) const {
    if (*set_.description().type == io::ElementType::kF16) {
        MILLRACE_TRY(set_.read_rows(first, count, std::as_writable_bytes(out)));
    } else {
        thread_local std::vector<float> wide;  // a reading thread needs it for every block
        wide.resize(out.size());
        MILLRACE_TRY(set_.read_rows(first, count, std::as_writable_bytes(std::span(wide))));
        std::ranges::transform(wide, out.begin(), tensor::to_f16);
    }
    const auto infinite = std::ranges::find_if(out, [](std::uint16_t bits) { return (bits & 0x7c00u) == 0x7c00u; });
    if (infinite != out.end())
        return Error{fmt::format("segments_mel: a feature of recording {} is not finite, or too large for a half",
                                 first + static_cast<std::uint64_t>(infinite - out.begin()) / values_),
                     path_.string()};
    return base::ok();
}

Result<std::vector<std::uint16_t>> FeatureFile::read_all() const {
    const std::uint64_t needed = count() * values_ * sizeof(std::uint16_t);
    if (const auto pages = sysconf(_SC_PHYS_PAGES); pages > 0 && needed > static_cast<std::uint64_t>(pages) * 4096)
        return Error{fmt::format("{} needs {} bytes, more than this machine's memory; data.mode = \"stream\" needs less",
                                 set_.description().text(), needed),
                     path_.string()};
    std::vector<std::uint16_t> features(count() * values_);
    MILLRACE_TRY(read_on_threads(count(), set_.row_bytes(), set_.direct(), [&](std::uint64_t first, std::uint64_t rows) {
        return read(first, rows, std::span(features).subspan(first * values_, rows * values_));
    }));
    return features;
}

}  // namespace millrace::data
