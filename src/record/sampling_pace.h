#pragma once
// How often threads are looked at. Main threads of programs with a GPU come in every round, all others in some; either kind gets
// rarer by itself where a look takes long, so that ten busy loader workers do not hide what the training thread waits for.

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace millrace::record {

class SamplingPace {
public:
    using nanoseconds = std::chrono::nanoseconds;
    static constexpr nanoseconds kSlowestRound = std::chrono::milliseconds{160};  ///< from look to look, at most

    /// Whether the next look is at all threads.
    [[nodiscard]] bool is_for_all() const { return since_ >= every_; }
    /// The next look is over and took so long.
    void looked(nanoseconds took) {
        const bool all = is_for_all();
        (all ? all_ : main_).add(took);
        since_ = all ? 1 : since_ + 1;
        round_ = std::clamp(times(main_.shorter(), kMainShare), kRound, kSlowestRound);
        const auto wanted = times(all_.shorter(), kAllShare) / round_ + 1;
        every_ = static_cast<std::uint64_t>(std::clamp<std::int64_t>(wanted, kAllEvery, std::max(kAllEvery, kSeldom / round_)));
    }
    [[nodiscard]] nanoseconds round() const { return round_; }     ///< from look to look
    [[nodiscard]] std::uint64_t rounds() const { return every_; }  ///< from one look at all to the next

private:
    static constexpr nanoseconds kRound = std::chrono::milliseconds{10};
    static constexpr std::int64_t kAllEvery = 5;  ///< 20 Hz
    static constexpr nanoseconds kSeldom = std::chrono::milliseconds{800};
    static constexpr double kMainShare = 0.2, kAllShare = 0.06;  ///< of the time, at most: no core's that the program needs

    /// The shorter of the last two: a look that was interrupted says nothing.
    struct Looks {
        nanoseconds last{}, before{};
        void add(nanoseconds took) { before = last, last = took; }
        [[nodiscard]] nanoseconds shorter() const { return std::min(last, before); }
    };
    static nanoseconds times(nanoseconds took, double share) {
        return nanoseconds{static_cast<std::int64_t>(static_cast<double>(took.count()) / share)};
    }

    Looks main_, all_;
    nanoseconds round_ = kRound;
    std::uint64_t every_ = kAllEvery;
    std::uint64_t since_ = kAllEvery;  ///< rounds since the last look at all; the first is one
};

}  // namespace millrace::record
