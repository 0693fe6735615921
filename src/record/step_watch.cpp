#include "record/step_watch.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "record/periodicity.h"

namespace millrace::record {
namespace {

constexpr std::size_t kCallsPerLaunch = 4;
constexpr std::size_t kMostWatchedThreads = 4096;
constexpr double kConstantShare = 0.9;  ///< of the steps that have a kind of call equally often
constexpr std::size_t kJudgedSteps = 64;
constexpr std::size_t kUnknownPart = 4;
constexpr std::uint64_t kLookPause = 200'000'000;        ///< ns ...
constexpr std::uint64_t kLaunchesPerLookPause = 10'000;  ///< ... for each so many launches: a look takes as long as they are many
constexpr std::size_t kKinds = static_cast<std::size_t>(CallKind::kAttribute) + 1;

/// From the best to count to the worst among those that come equally often. Calls that poll, set up or ask are not listed: how
/// often they come says nothing.
constexpr std::array kPulseOrder{
    CallKind::kGraphLaunch, CallKind::kEventRecord, CallKind::kSetAsync,     CallKind::kSet,       CallKind::kCopyAsync,
    CallKind::kCopy,        CallKind::kStreamWait,  CallKind::kStreamSync,   CallKind::kEventSync, CallKind::kDeviceSync,
    CallKind::kAllocAsync,  CallKind::kFreeAsync,   CallKind::kHostFunction, CallKind::kLaunch,
};

bool is_launch(CallKind kind) { return kind == CallKind::kLaunch || kind == CallKind::kGraphLaunch; }

template <class T>
void keep_newest(std::vector<T>& entries, std::size_t count) {
    if (entries.size() >= 2 * count) entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(count));
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

using CallCounts = std::vector<std::array<std::uint32_t, kKinds>>;  ///< step by step

/// How often a kind of call comes in most steps, and in how many.
std::pair<std::uint32_t, std::size_t> usual_count(const CallCounts& counts, CallKind kind) {
    std::map<std::uint32_t, std::size_t> times;
    for (const auto& step : counts) ++times[step[static_cast<std::size_t>(kind)]];
    return *std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
}

/// The rarest kind of call that comes equally often in nearly every step, and how often.
std::pair<CallKind, std::uint32_t> rarest_steady(const CallCounts& counts) {
    std::pair<CallKind, std::uint32_t> best{CallKind::kOther, 0};
    for (const CallKind kind : kPulseOrder) {
        const auto [count, steps] = usual_count(counts, kind);
        if (count == 0 || static_cast<double>(steps) < kConstantShare * static_cast<double>(counts.size())) continue;
        if (best.second == 0 || count < best.second) best = {kind, count};
    }
    return best;
}

}  // namespace

void StepWatch::add(const Record& record) {
    if (record.kind == RecordKind::kCall) {
        const auto kind = static_cast<CallKind>(record.what);
        if (record.what >= kKinds) return;
        calls_.push_back({record.begin, kind, (record.flags & kLedCall) != 0});
        newest_call_ = std::max(newest_call_, record.begin);
        keep_newest(calls_, kCallsPerLaunch * capacity_);
        if (!is_launch(kind)) return;
        if (begins_.size() >= 2 * capacity_) begins_.clear();  // a kernel whose record comes late has no time then
        begins_[record.correlation] = record.begin;
        if (kind == CallKind::kLaunch) launches_kernels_ = true;
        // Graphs by their calls: where their nodes are shown there is no record of the whole.
        if (kind == CallKind::kGraphLaunch) add_launch(record.correlation, ~std::uint64_t{record.grid}, true);
        if (threads_.size() < kMostWatchedThreads || threads_.contains(record.thread)) ++threads_[record.thread];
        return;
    }
    const bool is_kernel = record.kind == RecordKind::kWork && static_cast<WorkKind>(record.what) == WorkKind::kKernel;
    if (!is_kernel || (record.flags & kInGraph) != 0) return;
    newest_work_ = std::max(newest_work_, record.correlation);
    add_launch(record.correlation, std::uint64_t{record.id} << 32 | record.grid, false);
}

void StepWatch::add_launch(std::uint32_t correlation, std::uint64_t element, bool graph) {
    launches_.push_back({correlation, element, graph});
    ++launches_seen_;
    keep_newest(launches_, capacity_);
}

void StepWatch::clear() {
    launches_.clear();
    calls_.clear();
    begins_.clear();
    launches_seen_ = looked_at_ = 0;
    newest_call_ = looked_until_ = 0;
    newest_work_ = 0;
    launches_kernels_ = false;
    facts_.reset();
}

const std::optional<StepFacts>& StepWatch::facts() {
    const std::uint64_t grown = launches_seen_ - looked_at_, remembered = std::min<std::uint64_t>(looked_at_, capacity_);
    const bool later = newest_call_ - looked_until_ >= kLookPause * (1 + remembered / kLaunchesPerLookPause);
    if (grown == 0 || (grown * 8 < remembered && !later)) return facts_;
    looked_at_ = launches_seen_;
    looked_until_ = newest_call_;
    facts_ = look();
    return facts_;
}

std::uint32_t StepWatch::main_thread() const {
    const auto most = std::ranges::max_element(threads_, {}, [](const auto& entry) { return entry.second; });
    return most == threads_.end() ? 0 : most->first;
}

std::optional<StepFacts> StepWatch::look() const {
    // Correlations are given in the order of the calls, in which steps repeat; streams finish in an order of their own.
    std::vector<Launch> order(launches_.end() - static_cast<std::ptrdiff_t>(std::min(launches_.size(), capacity_)),
                              launches_.end());
    const std::uint64_t forgotten = launches_seen_ - order.size();
    std::ranges::stable_sort(order, {}, &Launch::correlation);
    // Kernels are known some time after their calls, graphs at once: behind the newest kernel the order has holes.
    if (launches_kernels_) std::erase_if(order, [this](const Launch& launch) { return launch.correlation > newest_work_; });
    std::vector<std::uint64_t> sequence(order.size());
    std::vector<char> graphs(order.size());
    std::ranges::transform(order, sequence.begin(), &Launch::element);
    std::ranges::transform(order, graphs.begin(), [](const Launch& launch) { return launch.graph ? 1 : 0; });
    const auto rehearsed = static_cast<std::ptrdiff_t>(rehearsal_end(sequence, graphs));
    order.erase(order.begin(), order.begin() + rehearsed);
    sequence.erase(sequence.begin(), sequence.begin() + rehearsed);
    const auto period = find_period(sequence);
    if (!period) return std::nullopt;
    const std::vector<std::size_t> starts = find_starts(sequence, *period, {});
    const std::vector<Stretch> stretches = steady_stretches(sequence, period->length);
    if (starts.size() < 2 || stretches.empty()) return std::nullopt;

    StepFacts facts;
    facts.launches_per_step = period->length;
    facts.steps = starts.size() - 1;
    facts.graphs = std::ranges::any_of(order, &Launch::graph);
    const Stretch& last = stretches.back();
    // The newest kernels are not all known yet.
    if (sequence.size() - last.end <= std::max(period->length, (last.end - last.begin) / kUnknownPart))
        facts.steady_steps = (last.end - last.begin) / period->length;
    // Where no step starts, something else returns that fits into its length: graphs behind a loop over layers.
    const auto starts_in_last = [&](std::size_t start) { return start >= last.begin && start < last.end; };
    if (std::ranges::count_if(starts, starts_in_last) < 2) facts.steady_steps = 0;
    // What was steady as far back as is remembered was so before: long periods (training and its evaluation) are few in memory.
    if (facts.steady_steps > 0 && rehearsed == 0 && last.begin <= period->length)
        facts.steady_steps += forgotten / period->length;
    std::vector<std::uint64_t> times;
    for (const std::size_t start : starts) {
        const auto begin = begins_.find(order[start].correlation);
        if (starts_in_last(start) && begin != begins_.end()) times.push_back(begin->second);
    }
    std::ranges::sort(times);
    if (times.size() < 2) return facts;
    std::vector<double> durations;
    for (std::size_t at = 1; at < times.size(); ++at) durations.push_back(static_cast<double>(times[at] - times[at - 1]));
    facts.step_ns = median(std::move(durations));
    facts.mean_step_ns = static_cast<double>(times.back() - times.front()) / static_cast<double>(times.size() - 1);
    choose_pulse(times, facts);
    return facts;
}

void StepWatch::choose_pulse(const std::vector<std::uint64_t>& starts, StepFacts& facts) const {
    const std::size_t steps = std::min(kJudgedSteps, starts.size() - 1), from = starts.size() - 1 - steps;
    CallCounts counts(steps), led(steps);
    for (const Call& call : calls_) {
        const auto after = std::upper_bound(starts.begin(), starts.end(), call.begin);
        if (after == starts.begin() || after == starts.end()) continue;
        const auto step = static_cast<std::size_t>(after - starts.begin() - 1);
        if (step < from) continue;
        ++counts[step - from][static_cast<std::size_t>(call.kind)];
        if (call.led) ++led[step - from][static_cast<std::size_t>(call.kind)];
    }
    std::tie(facts.pulse_call, facts.calls_per_step) = rarest_steady(counts);
    std::tie(facts.led_call, facts.led_per_step) = rarest_steady(led);
    if (facts.led_per_step > 0) facts.led_among = usual_count(counts, facts.led_call).first;
}

}  // namespace millrace::record
