#include "record/step_watch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "record/step_finder.h"

namespace millrace::record {
namespace {

constexpr std::size_t kCallsPerLaunch = 4;
constexpr std::size_t kMostWatchedThreads = 4096, kMostNames = 1u << 17;
constexpr double kConstantShare = 0.9;  ///< of the steps that have a kind of call equally often
constexpr std::size_t kUnknownPart = 4;
constexpr std::uint64_t kLoopsPatience = 3'000'000'000;  ///< ns of launching in which samples see what runs
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

/// It takes about a microsecond to look where a call is made: so many of a step are looked at, and more as long as that takes no
/// more than half a per cent of it.
constexpr std::uint32_t kFewLooks = 16;
constexpr double kLookNs = 1'000, kLookShare = 0.005;

bool waits(CallKind kind) {
    return kind == CallKind::kStreamSync || kind == CallKind::kEventSync || kind == CallKind::kDeviceSync;
}

template <class T>
void keep_newest(std::vector<T>& entries, std::size_t count) {
    if (entries.size() >= 2 * count) entries.erase(entries.begin(), entries.end() - static_cast<std::ptrdiff_t>(count));
}

/// Which of the steps that begin then a moment is in.
std::optional<std::size_t> step_at(const std::vector<std::uint64_t>& starts, std::uint64_t time) {
    const auto after = std::ranges::upper_bound(starts, time);
    if (after == starts.begin() || after == starts.end()) return std::nullopt;
    return static_cast<std::size_t>(after - starts.begin() - 1);
}

}  // namespace

void StepWatch::add(const Record& record, std::span<const Record> parts) {
    const auto* const bytes = reinterpret_cast<const char*>(parts.data());
    switch (record.kind) {
        case RecordKind::kText:
            if (texts_.size() < kMostNames && record.bytes <= parts.size_bytes())
                texts_[record.id].assign(bytes, static_cast<std::size_t>(record.bytes));
            return;
        case RecordKind::kSite:
            if (sites_.size() >= kMostNames || record.count * sizeof(SiteFrame) > parts.size_bytes()) return;
            sites_[record.id].resize(record.count);
            std::memcpy(sites_[record.id].data(), bytes, record.count * sizeof(SiteFrame));
            return;
        case RecordKind::kRange: ranges_.push_back(record); return keep_newest(ranges_, capacity_);
        case RecordKind::kCall: return add_call(record);
        default: break;
    }
    const bool is_kernel = record.kind == RecordKind::kWork && static_cast<WorkKind>(record.what) == WorkKind::kKernel;
    if (is_kernel) newest_work_ = std::max(newest_work_, record.correlation);
    if (!is_kernel || (record.flags & kInGraph) != 0) return;
    add_launch(record.correlation, std::uint64_t{record.id} << 32 | record.grid, false);
}

void StepWatch::add_call(const Record& record) {
    const auto kind = static_cast<CallKind>(record.what);
    if (record.what >= kKinds) return;
    calls_.push_back({record.begin, record.thread, record.correlation, record.site, kind, (record.flags & kLedCall) != 0});
    newest_call_ = std::max(newest_call_, record.begin);
    keep_newest(calls_, kCallsPerLaunch * capacity_);
    if (!is_launch(kind)) return;
    if (kind == CallKind::kLaunch) launches_kernels_ = true;
    // Graphs by their calls: where their nodes are shown there is no record of the whole.
    if (kind == CallKind::kGraphLaunch) add_launch(record.correlation, ~std::uint64_t{record.grid}, true);
    if (threads_.size() < kMostWatchedThreads || threads_.contains(record.thread)) ++threads_[record.thread];
}

void StepWatch::add_launch(std::uint32_t correlation, std::uint64_t element, bool graph) {
    launches_.push_back({correlation, element, graph});
    ++launches_seen_;
    keep_newest(launches_, capacity_);
}

void StepWatch::clear() {
    launches_.clear();
    calls_.clear();
    ranges_.clear();
    launches_seen_ = looked_at_ = 0;
    newest_call_ = looked_until_ = 0;
    newest_work_ = 0;
    launches_kernels_ = false;
    facts_.reset();
}

const std::optional<StepFacts>& StepWatch::facts(const LoopTable* loops) {
    const std::uint64_t grown = launches_seen_ - looked_at_, remembered = std::min<std::uint64_t>(looked_at_, capacity_);
    const bool later = newest_call_ - looked_until_ >= kLookPause * (1 + remembered / kLaunchesPerLookPause);
    const std::size_t known = loops != nullptr ? loops->size() : 0;
    if (grown == 0 || (grown * 8 < remembered && !later && known == loops_seen_)) return facts_;
    looked_at_ = launches_seen_;
    looked_until_ = newest_call_;
    loops_seen_ = known;
    facts_ = look(loops);
    return facts_;
}

std::uint32_t StepWatch::main_thread() const {
    const auto most = std::ranges::max_element(threads_, {}, [](const auto& entry) { return entry.second; });
    return most == threads_.end() ? 0 : most->first;
}

std::optional<StepPlace> StepWatch::place_of_site(std::uint32_t site, const LoopTable& loops) const {
    const auto found = sites_.find(site);
    if (found == sites_.end()) return std::nullopt;
    std::vector<StackFrame> frames;
    for (const SiteFrame& frame : found->second) {
        const auto file = texts_.find(frame.file), function = texts_.find(frame.function);
        if (file == texts_.end() || function == texts_.end()) return std::nullopt;
        frames.push_back({file->second, function->second, frame.line, frame.native != 0});
    }
    return place_of(frames, loops);
}

StepInput StepWatch::input(const LoopTable& loops) const {
    StepInput input;
    std::unordered_map<std::uint32_t, const Launch*> launched;
    for (std::size_t i = launches_.size() - std::min(launches_.size(), capacity_); i < launches_.size(); ++i)
        launched[launches_[i].correlation] = &launches_[i];
    std::unordered_map<std::uint32_t, std::uint32_t> places;  // by site
    std::map<std::uint32_t, std::size_t> placed;              // calls with a place, by thread
    input.places.emplace_back();
    std::vector<const Call*> order;
    for (const Call& call : calls_) {
        // Kernels are known some time after their calls, graphs at once: behind the newest kernel the order has holes.
        if (launches_kernels_ && is_launch(call.kind) && call.correlation > newest_work_) continue;
        order.push_back(&call);
        const auto [place, fresh] = places.try_emplace(call.site, 0);
        if (fresh)
            if (auto known = place_of_site(call.site, loops)) {
                place->second = static_cast<std::uint32_t>(input.places.size());
                input.places.push_back(std::move(*known));
            }
        placed[call.thread] += place->second != 0 ? 1 : 0;
    }
    std::ranges::stable_sort(order, {}, &Call::begin);
    const auto main = std::ranges::max_element(placed, {}, [](const auto& entry) { return entry.second; });
    for (const Call* const call : order) {
        Act act{call->begin, 0, 0, call->thread == main->first ? places[call->site] : 0, false, false};
        if (const auto launch = launched.find(call->correlation); is_launch(call->kind) && launch != launched.end()) {
            act.launched = launch->second->element | 1;
            act.kind = act.launched >> 32;
            act.graph = launch->second->graph;
        }
        const bool aside = main->second > 0 && call->thread != main->first;
        act.trains = act.launched != 0 && (aside || input.places[act.place].outside != StepPlace::kNoUpdate);
        if (act.launched != 0 || act.place != 0) input.acts.push_back(act);
    }
    for (const Record& range : ranges_)
        if (const auto name = texts_.find(range.id); name != texts_.end())
            input.ranges.push_back({range.begin, range.end, name->second});
    std::ranges::sort(input.ranges, {}, &MarkedRange::begin);
    return input;
}

/// A function that all of it is called from has not been sampled yet: it may have the loop.
bool StepWatch::may_see_loops(const StepInput& input) const {
    if (calls_.empty() || newest_call_ - calls_.front().begin > kLoopsPatience) return false;
    std::map<std::uint64_t, std::size_t> launches;
    std::size_t all = 0;
    for (const Act& act : input.acts) {
        if (act.launched == 0 || act.place == 0) continue;
        ++all;
        for (const Turn& turn : input.places[act.place].turns)
            if (turn.assumed) ++launches[turn.loop];
    }
    return std::ranges::any_of(launches, [all](const auto& each) { return 10 * each.second > 9 * all; });
}

std::optional<StepFacts> StepWatch::look(const LoopTable* loops) {
    StepInput seen = input(loops != nullptr ? *loops : LoopTable());
    const bool early = loops != nullptr && may_see_loops(seen);
    std::vector<std::uint64_t> times;
    std::vector<std::size_t> training{0};  // launches before each that train
    std::size_t placed = 0, aside = 0;     // behind the last launch with a place, and of a thread beside the main one
    bool graphs = false;
    for (const Act& act : seen.acts)
        if (act.launched != 0) {
            times.push_back(act.begin);
            training.push_back(training.back() + (act.trains ? 1 : 0));
            graphs = graphs || act.graph;
            if (act.trains && act.place == 0) aside = times.size();
            if (act.place != 0) placed = times.size();
        }
    trained_ = trained_ || training.back() > 0;
    const FoundSteps found = find_steps(std::move(seen));
    if (found.ends.empty() || (early && found.source == StepSource::kPeriod)) return std::nullopt;
    StepFacts facts;
    facts.source = found.source;
    facts.launches_per_step = found.length;
    facts.steps = found.ends.size();
    // Where no thread beside the main one launches, a step without places may have an update or not. Where one does, it may have
    // launched behind what is known of it, too: CUPTI hands over each thread's kernels by themselves.
    for (std::size_t i = 0; i < facts.steps; ++i)
        if (found.ends[i] <= (aside > 0 ? aside : placed))
            ++(training[found.ends[i]] > training[found.starts[i]] ? facts.training : facts.idle);
    facts.trains = facts.training + facts.idle == 0
                       ? found.source <= StepSource::kUpdates
                       : static_cast<double>(facts.training) >= kConstantShare * static_cast<double>(facts.training + facts.idle);
    facts.graphs = graphs;
    // The newest kernels are not all known yet, nor whether the newest step is one.
    std::size_t first = facts.steps;
    while (first > 0 && found.ends[first - 1] == found.starts[first]) --first;
    const std::size_t open = times.size() - found.starts.back(), stretch = found.starts.back() - found.starts[first];
    const bool reaches = open <= found.length + std::max<std::size_t>(found.length, stretch / kUnknownPart);
    if (reaches) facts.steady_steps = facts.steps - first;
    // What was steady as far back as is remembered was so before: long periods (training and its evaluation) are few in memory.
    const std::uint64_t forgotten = launches_seen_ - times.size();
    if (facts.steady_steps > 0 && found.starts[first] < 2 * found.length) facts.steady_steps += forgotten / found.length;
    // What a loop or marks tell may differ in length, and something else may come in between.
    const std::size_t from = found.source < StepSource::kPeriod ? 0 : first;
    if (from + 1 > facts.steps) return facts;
    std::vector<std::uint64_t> starts;
    for (std::size_t i = from; i < found.starts.size(); ++i) starts.push_back(times[found.starts[i]]);
    facts.step_ns = static_cast<double>(median_distance(starts));
    for (const bool led : {true, false}) choose_pulse(starts, led, facts);
    if (facts.pulse.site != 0) facts.pulse_depth = depth_of(facts.pulse.site, found.loop, loops);
    const std::uint64_t begin = times[found.starts.front()], end = times[found.starts.back()];
    for (const Call& call : calls_)
        if (call.kind == facts.pulse.call && call.site == facts.pulse.site && call.begin >= begin && call.begin < end)
            ++facts.calls_at_site;
    return facts;
}

/// Of calls at a line of Python, as far as all of their kind have a place, else of those of a kind, the rarest that come equally
/// often in nearly every step.
void StepWatch::choose_pulse(const std::vector<std::uint64_t>& starts, bool led, StepFacts& facts) const {
    using Place = std::pair<CallKind, std::uint32_t>;              // site 0: all of the kind
    std::map<Place, std::map<std::size_t, std::uint32_t>> counts;  // by step
    std::map<CallKind, std::set<std::size_t>> unknown;             // steps
    const std::size_t steps = starts.size() - 1;
    for (const Call& call : calls_) {
        const auto step = step_at(starts, call.begin);
        if (!step || (led && !call.led) || std::ranges::find(kPulseOrder, call.kind) == kPulseOrder.end()) continue;
        ++counts[{call.kind, 0}][*step];
        const auto site = sites_.find(call.site);
        if (site == sites_.end() || site->second.empty()) unknown[call.kind].insert(*step);
        if (site != sites_.end() && !site->second.empty() && site->second.front().native == 0)
            ++counts[{call.kind, call.site}][*step];
    }
    for (auto& [what, by_step] : counts)
        for (const std::size_t step : unknown[what.first])
            if (what.second != 0) by_step.erase(step);
    // Whether it has no line; whether it is another site, and another kind, than those that are counted; whether it may be an
    // evaluation's alone, which reads what it makes; calls of its kind in a step; which is better to count.
    std::tuple<bool, bool, bool, bool, std::uint32_t, std::ptrdiff_t> best{true, true, true, true, ~0u, 0};
    const auto most = std::max<double>(kFewLooks, kLookShare * facts.step_ns / kLookNs);
    const std::map<std::size_t, std::uint32_t>* chosen = nullptr;
    CountedCall& pulse = led ? facts.led : facts.pulse;
    for (const auto& [what, by_step] : counts) {
        std::size_t all = 0;
        for (const auto& [step, count] : counts[{what.first, 0}]) all += count;
        const auto among = static_cast<std::uint32_t>((all + steps / 2) / steps);
        const bool placed = what.second != 0;
        const std::size_t judged = placed ? steps - unknown[what.first].size() : steps;
        if (by_step.empty() || (placed && (judged < kLeastTurns || among > most))) continue;
        std::map<std::uint32_t, std::size_t> times;
        for (const auto& [step, count] : by_step) ++times[count];
        const auto [usual, same] = *std::ranges::max_element(times, {}, [](const auto& entry) { return entry.second; });
        const std::tuple rank{!placed,
                              placed && !preferred_.contains(what),
                              placed && what.first != preferred_kind_,
                              placed && !facts.trains && waits(what.first),
                              among,
                              std::ranges::find(kPulseOrder, what.first) - kPulseOrder.begin()};
        if (rank >= best || static_cast<double>(same) < kConstantShare * static_cast<double>(judged)) continue;
        best = rank;
        chosen = &by_step;
        pulse = {what.first, usual, what.second};
    }
    for (const auto& [what, by_step] : counts)
        if (!led && pulse.site != 0 && what.second != 0 && what.first == pulse.call &&
            std::ranges::any_of(by_step, [&](const auto& step) { return !chosen->contains(step.first); }))
            facts.pulse_apart.push_back(what.second);
}

std::size_t StepWatch::depth_of(std::uint32_t site, std::uint64_t loop, const LoopTable* loops) const {
    const auto place = loops != nullptr && loop != 0 ? place_of_site(site, *loops) : std::nullopt;
    if (!place) return 0;
    const auto turn = std::ranges::find(place->turns, loop, &Turn::loop);
    return turn == place->turns.end() ? 0 : turn->frame + 1;
}

bool StepWatch::is_like(std::uint32_t one, std::uint32_t other, std::size_t depth) const {
    const auto a = sites_.find(one), b = sites_.find(other);
    if (a == sites_.end() || b == sites_.end()) return one == other;
    const std::size_t frames = std::max<std::size_t>(depth, 1);
    const auto same = [](const SiteFrame& x, const SiteFrame& y) {
        return x.file == y.file && x.function == y.function && x.line == y.line && x.native == y.native;
    };
    return a->second.size() >= frames && b->second.size() >= frames &&
           std::equal(a->second.begin(), a->second.begin() + static_cast<std::ptrdiff_t>(frames), b->second.begin(), same);
}

}  // namespace millrace::record
