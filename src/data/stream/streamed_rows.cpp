#include "data/stream/streamed_rows.h"

namespace millrace::data {
namespace {

constexpr std::chrono::microseconds kPoll{100};  // for steps to end, where a window waits for them
constexpr std::chrono::microseconds kIdle{100'000};

}  // namespace

StreamedRows::StreamedRows(WindowPlan plan, std::size_t row_bytes, int threads, bool training, ReadBlock read)
    : options_{.plan = plan, .row_bytes = row_bytes, .threads = threads, .read = std::move(read)}, training_(training) {
    if (!training) options_.end = plan.windows();
}

void StreamedRows::declare(tape::Store& store, std::string name) {
    table_ = store.add_data(std::move(name), tensor::DType::u8, static_cast<std::int32_t>(2 * plan().window_rows()),
                            static_cast<std::int32_t>(options_.row_bytes));
}

base::Status StreamedRows::start(tape::Store& store) {
    MILLRACE_SET(feed_, WindowFeed::create(store.backend(), store.address(table_.buffer), options_));
    return base::ok();
}

base::Status StreamedRows::await(const RowsAhead& rows, const StepsDone& done) {
    const std::uint64_t pass = training_ ? std::uint64_t{rows.epoch} * plan().windows() : 0;
    const std::uint64_t first = pass + static_cast<std::uint64_t>(rows.first) / plan().window_rows();
    const std::uint64_t last = pass + static_cast<std::uint64_t>(rows.first + rows.count - 1) / plan().window_rows();
    // Both windows of a short pass stay where they are.
    const bool stays = !training_ && begun_ && plan().windows() <= 2;
    if (!stays && (!begun_ || first < first_ || first > last_ + 1)) {
        releases_.clear();
        feed_->begin(first);
        begun_ = true;
    } else if (first > first_) {
        releases_.push_back({rows.step, first});
    }
    first_ = first;
    last_ = last;
    for (std::uint64_t window = first; window <= last;) {
        MILLRACE_TRY(release(done));
        if (rows.prefetch) break;
        MILLRACE_LET(there, feed_->wait_for(window, releases_.empty() ? kIdle : kPoll));
        if (there) window += 1;
    }
    return base::ok();
}

base::Status StreamedRows::release(const StepsDone& done) {
    if (releases_.empty()) return base::ok();
    MILLRACE_LET(finished, done());
    for (; !releases_.empty() && releases_.front().step <= finished; releases_.pop_front())
        feed_->release_below(releases_.front().window);
    return base::ok();
}

}  // namespace millrace::data
