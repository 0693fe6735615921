#include "data/recordings/feature_file.h"

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "ops/cpu/thread_pool.h"
#include "tensor/dtype.h"

namespace millrace::data {
namespace {

constexpr std::uint64_t kReadAtOnce = 4 << 20;

}  // namespace

FeatureFile::FeatureFile(std::shared_ptr<const io::Hdf5Dataset> set, Path path, std::uint64_t values)
    : set_(std::move(set)), path_(std::move(path)), values_(values) {}

std::uint64_t FeatureFile::together() const {
    const std::vector<std::uint64_t>& chunk = set_->description().chunk;
    return chunk.empty() ? 1 : std::clamp<std::uint64_t>(chunk[0], 1, std::max<std::uint64_t>(1, count()));
}

Status FeatureFile::read(std::uint64_t first, std::uint64_t count, std::span<std::uint16_t> out) const {
    if (*set_->description().type == io::ElementType::kF16) {
        MILLRACE_TRY(set_->read_rows(first, count, std::as_writable_bytes(out)));
    } else {
        thread_local std::vector<float> wide;  // a reading thread needs it for every block
        wide.resize(out.size());
        MILLRACE_TRY(set_->read_rows(first, count, std::as_writable_bytes(std::span(wide))));
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
                                 set_->description().text(), needed),
                     path_.string()};
    std::vector<std::uint16_t> features(count() * values_);
    const std::uint64_t block = std::max<std::uint64_t>(1, kReadAtOnce / std::max<std::uint64_t>(set_->row_bytes(), 1));
    std::mutex mutex;
    Status status = base::ok();
    ops::cpu::ThreadPool pool(set_->direct() ? 0 : 1);
    pool.for_each(static_cast<int>((count() + block - 1) / block), [&](int task, int) {
        const std::uint64_t first = static_cast<std::uint64_t>(task) * block, rows = std::min(block, count() - first);
        Status done = read(first, rows, std::span(features).subspan(first * values_, rows * values_));
        const std::lock_guard lock(mutex);
        if (status.ok()) status = std::move(done);
    });
    MILLRACE_TRY(status);
    return features;
}

}  // namespace millrace::data
