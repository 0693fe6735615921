#include "diagnose/host_work.h"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "record/trace_file.h"

namespace millrace::diagnose {
namespace {

std::string_view wait_of(const Timeline& timeline, const Sample& sample) {
    return sample.wait < timeline.names.size() ? std::string_view(timeline.names[sample.wait]) : std::string_view();
}

bool writes(std::string_view wait) {
    constexpr std::array<std::string_view, 10> kCalls{"write",     "pwrite64",        "writev", "pwritev",   "fsync",
                                                      "fdatasync", "sync_file_range", "rename", "ftruncate", "msync"};
    return std::find(kCalls.begin(), kCalls.end(), wait) != kCalls.end();
}

bool reads(std::string_view wait) {
    return wait == "read" || wait == "pread64" || wait == "readv" || wait == "preadv" || wait == "openat" || wait == "getdents64";
}

/// Samples of one thread, by time.
std::vector<Sample> samples_of(const Timeline& timeline, std::uint32_t process, std::uint32_t thread) {
    std::vector<Sample> own;
    for (const Sample& sample : timeline.samples)
        if (sample.process == process && sample.thread == thread) own.push_back(sample);
    return own;
}

/// Whether a marked range of a loader covers the moment.
class LoaderRanges {
public:
    LoaderRanges(const Timeline& timeline, std::uint32_t process) {
        for (const Range& range : timeline.ranges)
            if (range.process == process && range.name < timeline.names.size() &&
                timeline.names[range.name].find("DataLoader") != std::string::npos)
                ranges_.push_back(range);
    }
    double share(Time begin, Time end) const {
        Time covered = 0, until = begin;
        auto range = std::partition_point(ranges_.begin(), ranges_.end(), [&](const Range& r) { return r.begin < begin; });
        if (range != ranges_.begin()) --range;
        for (; range != ranges_.end() && range->begin < end; ++range) {
            const Time from = std::max(until, range->begin), to = std::min(end, range->end);
            if (to > from) covered += to - from, until = to;
        }
        return end > begin ? static_cast<double>(covered) / static_cast<double>(end - begin) : 0;
    }

private:
    std::vector<Range> ranges_;
};

struct Seen {
    std::map<std::uint32_t, std::size_t> lines, waits;
};

struct Tally {
    std::map<std::tuple<Doing, bool, std::uint32_t>, Seen> counts;  ///< by doing, waiting, function
    std::size_t total = 0;
    double loader = 0;  ///< nanoseconds under a loader's range
    double length = 0;  ///< nanoseconds of all stretches
    std::size_t stretches = 0;

    std::vector<Portion> portions(bool sampled, const Policy& policy) const {
        std::vector<Portion> result;
        const double under = length > 0 ? loader / length : 0;
        if (total == 0) {
            if (under > 0.5) return {{Doing::kLoading, true, kNoPlace, 1, 0}};
            const bool brief =
                length / static_cast<double>(std::max<std::size_t>(1, stretches)) < static_cast<double>(policy.scan_gap);
            return {{sampled && brief ? Doing::kEnqueuing : Doing::kUnknown, false, kNoPlace, 1, 0}};
        }
        for (const auto& [key, seen] : counts) {
            Portion portion{std::get<0>(key), std::get<1>(key), kNoPlace, 0, 0};
            std::size_t most = 0;
            for (const auto& [place, count] : seen.lines) {
                portion.samples += count;
                if (count > most) most = count, portion.place = place;
            }
            most = 0;
            for (const auto& [wait, count] : seen.waits)
                if (portion.waiting && count > most) most = count, portion.wait = wait;
            portion.share = static_cast<double>(portion.samples) / static_cast<double>(total);
            result.push_back(portion);
        }
        return result;
    }
};

using StretchKey = std::array<std::uint32_t, 5>;

struct WorkStretch {
    std::uint32_t tally = 0;
    std::span<const Sample> samples;
};

/// Stacks in which the thread is inside of a call that writes often enough for the rest to be such calls as well: while one
/// copies into the system's memory the thread runs, and nothing tells that from the program's own work.
std::unordered_set<std::uint32_t> writing_stacks(const Timeline& timeline, const std::vector<WorkStretch>& stretches,
                                                 const Policy& policy) {
    struct Count {
        std::size_t inside = 0, all = 0;
    };
    std::map<std::uint32_t, Count> counts;
    for (const WorkStretch& stretch : stretches)
        for (const Sample& sample : stretch.samples) {
            if (sample.stack == kNoStack || is_waiting(timeline, sample)) continue;
            Count& count = counts[sample.stack];
            ++count.all;
            count.inside += writes(wait_of(timeline, sample)) ? 1 : 0;
        }
    std::unordered_set<std::uint32_t> stacks;
    for (const auto& [stack, count] : counts)
        if (count.inside > 0 && static_cast<double>(count.inside) >= policy.inside_writes * static_cast<double>(count.all))
            stacks.insert(stack);
    return stacks;
}

/// What a call is in every step alike. Lines of launches are taken in some steps only, names of kernels in all; lines of other
/// calls always.
std::pair<std::uint32_t, std::uint32_t> identity_of(const Timeline& timeline, const Places& places, const Lane& lane,
                                                    std::uint32_t act) {
    const Call& call = timeline.calls[lane.calls[act]];
    const bool launch = call.kind == CallKind::kLaunch || call.kind == CallKind::kGraphLaunch;
    if (launch && lane.jobs_of_call[act] < lane.jobs_of_call[act + 1])
        return {static_cast<std::uint32_t>(call.kind),
                timeline.work[lane.jobs[lane.own_jobs[lane.jobs_of_call[act]]].first_work].name};
    return {static_cast<std::uint32_t>(call.kind), launch ? call.name : places.of_stack(call.stack)};
}

/// A pipe from another process of the program, as multiprocessing's queues have it: who reads there waits for the other's work.
bool reads_from_process(const Timeline& timeline, const Sample& sample) {
    if (sample.stack >= timeline.stacks.size()) return false;
    const Stack& stack = timeline.stacks[sample.stack];
    const auto innermost = std::ranges::find(stack, false, &Frame::native);
    return innermost != stack.end() && innermost->file.find("multiprocessing/connection") != std::string::npos;
}

}  // namespace

Time without_notes(Time stretch, const Call& call, const Policy& policy) {
    const Time most = static_cast<Time>(policy.noted_share * static_cast<double>(stretch));
    return stretch - std::min(Time{call.notes} * policy.profiler_note, most);
}

bool is_waiting(const Timeline& timeline, const Sample& sample) {
    if (sample.state == 'R') return false;
    const std::string_view wait = wait_of(timeline, sample);
    if (sample.state == 'D' || writes(wait)) return false;
    return !reads(wait) || reads_from_process(timeline, sample);
}

Doing doing_of(const Timeline& timeline, const Sample& sample) {
    static const Stack kEmpty;
    static const Frame kCollects{std::string(record::kInterpreterFile), 0, std::string(record::kCollectingFunction), true};
    const Stack& stack = sample.stack < timeline.stacks.size() ? timeline.stacks[sample.stack] : kEmpty;
    const std::string_view wait = wait_of(timeline, sample);
    const bool waiting = is_waiting(timeline, sample);
    if (!stack.empty() && stack.front() == kCollects) return Doing::kCollecting;
    bool loader = false, output = false;
    const Frame* innermost = nullptr;
    for (const Frame& frame : stack) {
        if (frame.native) continue;
        if (!innermost) innermost = &frame;
        // Queues, pools and futures concern a loader only while one waits for them.
        loader = loader || (is_loader(frame) && (waiting || frame.file.find("data") != std::string::npos));
        output = output || is_output(frame);
    }
    if (loader) return Doing::kLoading;
    if (output || writes(wait)) return Doing::kWriting;
    if (reads(wait)) return Doing::kLoading;
    if (innermost && is_framework(innermost->file)) return waiting && is_read(*innermost) ? Doing::kReading : Doing::kEnqueuing;
    if (!innermost && sample.state != 'R') return Doing::kUnknown;
    return Doing::kComputing;
}

HostWork::HostWork(const Timeline& timeline, const Launcher& launcher, const Places& places, const std::vector<Lane>& lanes,
                   const Policy& policy) {
    const auto samples = samples_of(timeline, launcher.process, launcher.main_thread);
    const LoaderRanges loader_ranges(timeline, launcher.process);
    const auto first_sample = [&](Time time) {
        return std::partition_point(samples.begin(), samples.end(), [&](const Sample& sample) { return sample.time < time; });
    };
    find_places(timeline, launcher, places, lanes, samples);
    std::map<StretchKey, std::uint32_t> keys;
    std::vector<Tally> tallies(1);
    std::vector<WorkStretch> stretches;
    for (const Lane& lane : lanes) {
        find_collections(timeline, launcher, lane);
        auto& class_of = class_of_.emplace_back(lane.calls.size(), 0);
        for (std::uint32_t i = 1; i < lane.calls.size(); ++i) {
            const Call &before = timeline.calls[lane.calls[i - 1]], &call = timeline.calls[lane.calls[i]];
            const Time begin = before.end, end = call.begin;
            if (without_notes(end - begin, call, policy) <= policy.launch_gap) continue;
            // Size tells stretches apart, too, roughly: what happens in every hundredth step only is another thing.
            const auto size = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(end - begin)) / 2);
            const auto [from, from_what] = identity_of(timeline, places, lane, i - 1);
            const auto [to, to_what] = identity_of(timeline, places, lane, i);
            const StretchKey key{from, from_what, to, to_what, size};
            auto [found, fresh] = keys.try_emplace(key, static_cast<std::uint32_t>(tallies.size()));
            if (fresh) tallies.emplace_back();
            class_of[i] = found->second;
            Tally& tally = tallies[found->second];
            const auto length = static_cast<double>(end - begin);
            tally.length += length;
            tally.loader += loader_ranges.share(begin, end) * length;
            ++tally.stretches;
            const auto first = first_sample(begin), last = first_sample(end);
            stretches.push_back({found->second, {first, last}});
        }
    }
    const auto writing = writing_stacks(timeline, stretches, policy);
    for (const WorkStretch& stretch : stretches)
        for (const Sample& sample : stretch.samples) {
            const std::uint32_t place = places.of_stack(sample.stack);
            Doing doing = doing_of(timeline, sample);
            const bool waiting = is_waiting(timeline, sample);
            if (doing == Doing::kComputing && !waiting && writing.contains(sample.stack)) doing = Doing::kWriting;
            Tally& tally = tallies[stretch.tally];
            Seen& seen = tally.counts[{doing, waiting, places.function(place)}];
            ++seen.lines[place];
            ++seen.waits[sample.wait];
            ++tally.total;
            ++samples_;
        }
    classes_.push_back({{Doing::kEnqueuing, false, kNoPlace, 1, 0}});
    for (std::size_t i = 1; i < tallies.size(); ++i) classes_.push_back(tallies[i].portions(!samples.empty(), policy));
}

void HostWork::find_places(const Timeline& timeline, const Launcher& launcher, const Places& places,
                           const std::vector<Lane>& lanes, const std::vector<Sample>& samples) {
    // Calls of the framework's threads between two of the main thread: where that one waits, by samples of all steps.
    using Turn = std::array<std::uint32_t, 4>;
    std::map<Turn, std::map<std::uint32_t, std::size_t>> seen;
    const auto turn_of = [&](const Lane& lane, std::uint32_t before, std::uint32_t after) {
        const auto [from, from_what] = identity_of(timeline, places, lane, before);
        const auto [to, to_what] = identity_of(timeline, places, lane, after);
        return Turn{from, from_what, to, to_what};
    };
    const auto for_each_turn = [&](const Lane& lane, auto use) {
        std::uint32_t before = kNoIndex;
        for (std::uint32_t i = 0; i < lane.calls.size(); ++i) {
            if (timeline.calls[lane.calls[i]].thread != launcher.main_thread) continue;
            if (before != kNoIndex && i > before + 1) use(before, i);
            before = i;
        }
    };
    for (const Lane& lane : lanes)
        for_each_turn(lane, [&](std::uint32_t before, std::uint32_t after) {
            const Time begin = timeline.calls[lane.calls[before]].end, end = timeline.calls[lane.calls[after]].begin;
            auto sample =
                std::partition_point(samples.begin(), samples.end(), [&](const Sample& each) { return each.time < begin; });
            for (; sample != samples.end() && sample->time < end; ++sample)
                if (const std::uint32_t place = places.of_stack(sample->stack); place != kNoPlace)
                    ++seen[turn_of(lane, before, after)][place];
        });
    for (const Lane& lane : lanes) {
        auto& place_of = place_of_.emplace_back(lane.calls.size(), kNoPlace);
        std::uint32_t last = kNoPlace;
        for (std::uint32_t i = 0; i < lane.calls.size(); ++i) {
            const Call& call = timeline.calls[lane.calls[i]];
            place_of[i] = places.of_stack(call.stack);
            if (place_of[i] == kNoPlace) place_of[i] = last;
            if (call.thread == launcher.main_thread) last = place_of[i];
        }
        for_each_turn(lane, [&](std::uint32_t before, std::uint32_t after) {
            const auto found = seen.find(turn_of(lane, before, after));
            if (found == seen.end()) return;
            const auto most = std::max_element(found->second.begin(), found->second.end(),
                                               [](const auto& a, const auto& b) { return a.second < b.second; });
            for (std::uint32_t i = before + 1; i < after; ++i)
                if (places.of_stack(timeline.calls[lane.calls[i]].stack) == kNoPlace) place_of[i] = most->first;
        });
    }
}

void HostWork::find_collections(const Timeline& timeline, const Launcher& launcher, const Lane& lane) {
    auto& collecting = collecting_.emplace_back(lane.calls.size(), 0);
    auto collection = timeline.collections.begin();
    for (std::uint32_t i = 1; i < lane.calls.size(); ++i) {
        const Time begin = timeline.calls[lane.calls[i - 1]].end, end = timeline.calls[lane.calls[i]].begin;
        while (collection != timeline.collections.end() && collection->end <= begin) ++collection;
        for (auto range = collection; range != timeline.collections.end() && range->begin < end; ++range)
            if (range->process == launcher.process)
                collecting[i] += std::max<Time>(0, std::min(end, range->end) - std::max(begin, range->begin));
    }
}

}  // namespace millrace::diagnose
