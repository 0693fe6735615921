#include "data/stream/window_feed.h"

#include <algorithm>
#include <cmath>

#include "base/philox.h"

namespace millrace::data {
namespace {

// The order of blocks must not be keyed as a member's order inside a window is.
constexpr std::uint64_t kBlockKey = 0x626c6f636b73;

}  // namespace

std::uint32_t WindowPlan::windows() const { return (blocks() + window_blocks - 1) / window_blocks; }

std::uint32_t WindowPlan::rows_of_block(std::uint32_t block) const { return std::min(block_rows, rows - block * block_rows); }

std::vector<std::uint32_t> WindowPlan::blocks_of(std::uint32_t epoch, std::uint32_t window) const {
    const std::uint32_t whole = rows / block_rows, first = window * window_blocks,
                        end = std::min(blocks(), first + window_blocks);
    const base::Shuffle order = base::make_shuffle(seed ^ kBlockKey, epoch, whole);
    std::vector<std::uint32_t> found;
    for (std::uint32_t i = first; i < end; ++i) found.push_back(shuffle && i < whole ? base::shuffled_index(order, i) : i);
    return found;
}

void WindowPlan::divide(std::uint32_t most) {
    window_blocks = std::max(1u, most);
    const std::uint32_t count = std::max(1u, windows());
    window_blocks = std::max(1u, (blocks() + count - 1) / count);
}

WindowMix mix_of(const WindowPlan& plan, std::uint32_t epoch, std::span<const std::uint32_t> counts, std::size_t classes) {
    std::vector<double> all(classes), here(classes);
    for (std::size_t i = 0; i < counts.size(); ++i) all[i % classes] += counts[i];
    const bool several = std::ranges::count_if(all, [](double rows) { return rows > 0; }) > 1;
    WindowMix mix;
    for (std::uint32_t window = 0; window < plan.windows(); ++window) {
        std::ranges::fill(here, 0.0);
        double rows = 0;
        for (const std::uint32_t block : plan.blocks_of(epoch, window)) {
            for (std::size_t c = 0; c < classes; ++c) here[c] += counts[block * classes + c];
            rows += plan.rows_of_block(block);
        }
        for (std::size_t c = 0; c < classes; ++c) {
            mix.deviation = std::max(mix.deviation, std::abs(here[c] / rows - all[c] / plan.rows));
            if (several && here[c] == rows) mix.of_one_class += 1;
        }
    }
    return mix;
}

base::Result<std::unique_ptr<WindowFeed>> WindowFeed::create(ops::Backend& backend, std::byte* table, FeedOptions options) {
    std::unique_ptr<WindowFeed> made(new WindowFeed(table, std::move(options)));
    const FeedOptions& o = made->options_;
    for (int i = 0; i < std::max(1, o.threads); ++i) {
        MILLRACE_LET(uploader, backend.make_uploader());
        MILLRACE_LET(staging, backend.allocate_shared(o.plan.block_rows * o.row_bytes));
        made->uploaders_.push_back(std::move(uploader));
        made->staging_.push_back(std::move(staging));
    }
    for (std::size_t i = 0; i < made->uploaders_.size(); ++i)
        made->threads_.emplace_back([feed = made.get(), i] { feed->work(*feed->uploaders_[i], *feed->staging_[i]); });
    return made;
}

WindowFeed::~WindowFeed() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    tasks_.notify_all();
}

void WindowFeed::begin(std::uint64_t number) {
    std::unique_lock lock(mutex_);
    waiting_.clear();
    windows_.wait(lock, [&] { return busy_ == 0; });  // a block that is being copied must not land in the new window
    status_ = base::ok();
    planned_ = released_ = number;
    plan_ahead();
}

void WindowFeed::plan_ahead() {
    const std::uint64_t each = options_.plan.windows();
    for (; planned_ < std::min(released_ + 2, options_.end); ++planned_) {
        const auto blocks =
            options_.plan.blocks_of(static_cast<std::uint32_t>(planned_ / each), static_cast<std::uint32_t>(planned_ % each));
        missing_[planned_ % 2] = static_cast<std::uint32_t>(blocks.size());
        for (std::uint32_t i = 0; i < blocks.size(); ++i) waiting_.push_back({planned_, blocks[i], i});
    }
    tasks_.notify_all();
}

base::Result<bool> WindowFeed::wait_for(std::uint64_t number, std::chrono::microseconds patience) {
    std::unique_lock lock(mutex_);
    const auto there = [&] { return number < planned_ && missing_[number % 2] == 0; };
    windows_.wait_for(lock, patience, [&] { return !status_.ok() || there(); });
    if (!status_.ok()) return status_.error();
    return there();
}

void WindowFeed::release_below(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    if (number <= released_ || !status_.ok()) return;
    released_ = number;
    plan_ahead();
}

std::uint64_t WindowFeed::bytes() const {
    const std::lock_guard lock(mutex_);
    return bytes_;
}

std::size_t WindowFeed::bytes_of(const Task& task) const { return options_.plan.rows_of_block(task.block) * options_.row_bytes; }

base::Status WindowFeed::move_block(const Task& task, ops::Uploader& uploader, ops::Memory& staging) const {
    MILLRACE_TRY(options_.read(task.block, std::span(staging.data(), bytes_of(task))));
    const std::size_t row =
        (task.number % 2) * std::size_t{options_.plan.window_rows()} + std::size_t{task.position} * options_.plan.block_rows;
    return uploader.copy(table_ + row * options_.row_bytes, staging.data(), bytes_of(task));
}

void WindowFeed::work(ops::Uploader& uploader, ops::Memory& staging) {
    std::unique_lock lock(mutex_);
    while (true) {
        tasks_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
        if (ending_) return;
        const Task task = waiting_.front();
        waiting_.pop_front();
        ++busy_;
        lock.unlock();
        base::Status done = move_block(task, uploader, staging);
        lock.lock();
        --busy_;
        if (done.ok()) {
            --missing_[task.number % 2];
            bytes_ += bytes_of(task);
        } else if (status_.ok()) {
            status_ = std::move(done);
            waiting_.clear();
        }
        windows_.notify_all();
    }
}

}  // namespace millrace::data
