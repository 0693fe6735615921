#include "record/pulse_blocks.h"

#include <algorithm>

namespace millrace::record {
namespace {

constexpr std::uint64_t kLeastTime = 500'000'000, kLeastRestSteps = 10;
/// A pause of so many steps that is also this long is no part of training: evaluation, a checkpoint.
constexpr double kLongPauseSteps = 20;
constexpr std::uint64_t kLongPause = 1'000'000'000;

}  // namespace

std::optional<TraceBlock> PulseBlocks::add(std::uint64_t time, std::uint64_t number) {
    if (calls_per_step_ <= 0) return std::nullopt;
    std::optional<TraceBlock> before;
    // Numbers go on inside of windows, where no pulse is written.
    const bool out_of_order = open_ && (time < newest_ || number != newest_number_ + 1);
    const bool long_pause = open_ && time > newest_ && time - newest_ > kLongPause && step_ns_ > 0 &&
                            static_cast<double>(time - newest_) > kLongPauseSteps * step_ns_;
    if (out_of_order || long_pause) before = close();
    newest_ = time;
    newest_number_ = number;
    if (!open_) {
        open_ = true;
        first_time_ = last_time_ = time;
        first_number_ = last_number_ = number;
        return before;
    }
    const auto calls = static_cast<std::uint64_t>(calls_per_step_);
    if ((number - first_number_) % std::max<std::uint64_t>(1, calls) != 0) return before;
    last_time_ = time;
    last_number_ = number;
    if (time - first_time_ < kLeastTime) return before;
    std::optional<TraceBlock> block = finish();
    open_ = true;  // the pulse that ends a block begins the next
    first_time_ = time;
    first_number_ = number;
    return block;
}

std::optional<TraceBlock> PulseBlocks::finish() {
    open_ = false;
    const double steps = static_cast<double>(last_number_ - first_number_) / calls_per_step_;
    if (last_time_ <= first_time_ || steps < 1) return std::nullopt;
    step_ns_ = static_cast<double>(last_time_ - first_time_) / steps;
    return TraceBlock{first_time_, last_time_, steps, pid_};
}

std::optional<TraceBlock> PulseBlocks::close() {
    if (!open_) return std::nullopt;
    const double steps = static_cast<double>(last_number_ - first_number_) / calls_per_step_;
    if (steps >= kLeastRestSteps) return finish();
    open_ = false;
    return std::nullopt;
}

std::optional<TraceBlock> PulseBlocks::set_calls_per_step(double calls) {
    if (calls == calls_per_step_) return std::nullopt;
    std::optional<TraceBlock> block = close();
    calls_per_step_ = calls;
    return block;
}

}  // namespace millrace::record
