#include "record/pulse_blocks.h"

#include <algorithm>
#include <cmath>

namespace millrace::record {
namespace {

constexpr std::uint64_t kLeastTime = 500'000'000;
constexpr double kLeastRestSteps = 10;
/// Leaving a window holds the program up for a moment, and it catches up after that.
constexpr std::uint32_t kSettlingSteps = 2;
constexpr double kFollowingSteps = 2;
/// A pause of so many steps that is also this long is no part of training: evaluation, a checkpoint.
constexpr double kLongPauseSteps = 20;
constexpr std::uint64_t kLongPause = 1'000'000'000;
constexpr double kQueue = 1024;  ///< launches that a GPU takes ahead: the host may wait for so many at once, as part of training
constexpr std::size_t kPaces = 512;
constexpr double kMostStride = 1 << 20;

}  // namespace

double counting_cost_ns(CallKind call) { return call == CallKind::kGraphLaunch ? 5000 : 0; }

std::uint32_t pulse_stride(double calls_per_step) {
    return static_cast<std::uint32_t>(std::lround(std::clamp(calls_per_step, 1.0, kMostStride)));
}

double weighted_median(std::vector<std::pair<double, double>> values) {
    std::ranges::sort(values);
    double all = 0, passed = 0;
    for (const auto& [value, weight] : values) all += weight;
    for (const auto& [value, weight] : values)
        if ((passed += weight) >= all / 2) return value;
    return 0;
}

bool PulseBlocks::is_long_pause(std::uint64_t nanoseconds) const {
    return nanoseconds > kLongPause && newest_step_ns_ > 0 &&
           static_cast<double>(nanoseconds) > std::max(kLongPauseSteps, run_ahead_steps_) * newest_step_ns_;
}

void PulseBlocks::begin(std::uint64_t time, std::uint64_t number) {
    open_ = true;
    first_time_ = last_time_ = time;
    first_number_ = last_number_ = number;
}

std::optional<TraceBlock> PulseBlocks::add(std::uint64_t time, std::uint64_t number) {
    const std::uint64_t stride = pulse_stride(calls_per_step_);
    if (calls_per_step_ <= 0 || number % stride != 0) return std::nullopt;
    std::optional<TraceBlock> ready;
    // Numbers go on inside of windows, where no pulse is written.
    const bool out_of_order = open_ && (time < newest_ || number != newest_number_ + stride);
    if (out_of_order || (open_ && is_long_pause(time - newest_))) ready = close();
    newest_ = time;
    newest_number_ = number;
    if (!open_) unsettled_ = kSettlingSteps + 1;  // with this one
    if (unsettled_ > 0) {
        --unsettled_;
        begin(time, number);
        return ready;
    }
    last_time_ = time;
    last_number_ = number;
    if (full_ && static_cast<double>(number - first_number_) >= kFollowingSteps * calls_per_step_)
        ready = give(std::exchange(full_, {}));
    if (time - first_time_ < kLeastTime) return ready;
    if (full_) ready = give(std::exchange(full_, {}));  // steps that fill a block each follow, too
    full_ = block_here();
    begin(time, number);  // the pulse that ends a block begins the next
    return ready;
}

std::optional<TraceBlock> PulseBlocks::block_here() const {
    const double steps = static_cast<double>(last_number_ - first_number_) / calls_per_step_;
    if (last_time_ <= first_time_ || steps < 1) return std::nullopt;
    const auto calls = static_cast<std::uint16_t>(placed_ ? 0 : std::min(calls_per_step_, 65535.0));
    return TraceBlock{first_time_, last_time_, steps, pid_, calls, call_};
}

std::optional<TraceBlock> PulseBlocks::give(std::optional<TraceBlock> block) {
    if (!block) return block;
    const auto length = static_cast<double>(block->end - block->begin);
    newest_step_ns_ = length / block->steps;
    paces_.emplace_back(newest_step_ns_, block->steps);
    if (paces_.size() > kPaces) paces_.pop_front();
    seconds_ += length * 1e-9;
    steps_ += block->steps;
    if (seconds_ >= kLeastUnrecordedSeconds && steps_ >= kLeastUnrecordedSteps)
        step_ns_ = weighted_median({paces_.begin(), paces_.end()});
    return block;
}

std::optional<TraceBlock> PulseBlocks::close() {
    if (!open_) return std::nullopt;
    open_ = false;
    if (full_) return give(std::exchange(full_, {}));
    const double steps = static_cast<double>(last_number_ - first_number_) / calls_per_step_;
    return steps >= kLeastRestSteps ? give(block_here()) : std::nullopt;
}

std::optional<TraceBlock> PulseBlocks::set_call(CallKind call, double calls_per_step, std::uint64_t launches_per_step,
                                                bool placed) {
    if (launches_per_step > 0) run_ahead_steps_ = kQueue / static_cast<double>(launches_per_step);
    if (calls_per_step == calls_per_step_ && call == call_ && placed == placed_) return std::nullopt;
    std::optional<TraceBlock> block = close();
    call_ = call;
    calls_per_step_ = calls_per_step;
    placed_ = placed;
    return block;
}

}  // namespace millrace::record
