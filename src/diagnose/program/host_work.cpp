#include "diagnose/program/host_work.h"

#include <algorithm>
#include <bit>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <unordered_set>

#include "diagnose/reading/python_source.h"
#include "diagnose/reading/source_file.h"
#include "record/trace_file.h"

namespace millrace::diagnose {
namespace {

/// Of system calls.
bool writes_files(std::string_view call) {
    return is_one_of(call, "write pwrite64 writev pwritev fsync fdatasync sync_file_range rename ftruncate msync");
}

struct Tally {
    /// By doing, waiting, place: samples by the system call they were seen in.
    std::map<std::tuple<Doing, bool, std::uint32_t>, std::map<std::uint32_t, std::size_t>> counts;
    std::size_t total = 0;
    double loader = 0;  ///< nanoseconds under a loader's range
    double length = 0;  ///< nanoseconds of all stretches
    std::size_t stretches = 0;

    std::vector<Portion> portions(bool sampled) const {
        std::vector<Portion> result;
        const double under = length > 0 ? loader / length : 0;
        if (total == 0) {
            if (under > 0.5) return {{Doing::kLoading, true, kNoPlace, 1, 0}};
            const bool brief =
                length / static_cast<double>(std::max<std::size_t>(1, stretches)) < static_cast<double>(kPolicy.scan_gap);
            return {{sampled && brief ? Doing::kEnqueuing : Doing::kUnknown, false, kNoPlace, 1, 0}};
        }
        for (const auto& [key, seen] : counts) {
            Portion portion{std::get<0>(key), std::get<1>(key), std::get<2>(key), 0, 0};
            for (const auto& [call, count] : seen) portion.samples += count;
            if (portion.waiting) portion.wait = key_with_most(seen);
            portion.share = static_cast<double>(portion.samples) / static_cast<double>(total);
            result.push_back(portion);
        }
        return result;
    }
};

struct WorkStretch {
    std::uint32_t tally = 0;
    bool is_short = false;  ///< no longer than a framework's way to a launch may be
    std::span<const Sample> samples;
};

/// Stacks in which the thread is inside of a call that writes often enough for the rest to be such calls as well: while one
/// copies into the system's memory the thread runs, and nothing tells that from the program's own work.
std::unordered_set<std::uint32_t> writing_stacks(const Timeline& timeline, const std::vector<WorkStretch>& stretches) {
    std::map<std::uint32_t, std::size_t> inside, all;
    for (const WorkStretch& stretch : stretches)
        for (const Sample& sample : stretch.samples) {
            if (sample.stack == kNoStack || is_waiting(timeline, sample)) continue;
            ++all[sample.stack];
            if (writes_files(timeline.names[sample.wait])) ++inside[sample.stack];
        }
    std::unordered_set<std::uint32_t> stacks;
    for (const auto& [stack, count] : inside)
        if (static_cast<double>(count) >= kPolicy.inside_writes * static_cast<double>(all[stack])) stacks.insert(stack);
    return stacks;
}

/// Lines of the user's that write by functions of C, which have no frames: "out.write(text)"; in a function with such a line also
/// those that open a file, where `with` closes it.
std::unordered_set<std::uint32_t> writing_places(const Places& places, const std::vector<Sample>& samples) {
    std::map<std::uint32_t, bool> opens;  // by place
    std::unordered_set<std::uint32_t> writing, functions;
    std::map<std::string, std::multimap<int, std::string>> files;
    for (const Sample& sample : samples) {
        const std::uint32_t place = places.of_stack(sample.stack);
        if (place == kNoPlace || !opens.try_emplace(place, false).second) continue;
        const Frame& frame = places.frame(place);
        const auto [calls, fresh] = files.try_emplace(frame.file);
        if (fresh) calls->second = calls_by_line(read_source(frame.file).value_or(""));
        const auto [first, end] = calls->second.equal_range(frame.line);
        for (const auto& [line, name] : std::ranges::subrange(first, end)) {
            opens[place] = opens[place] || name == "open";
            if (is_one_of(name, "write writelines flush print tofile"))
                writing.insert(place), functions.insert(places.function(place));
        }
    }
    for (const auto& [place, does] : opens)
        if (does && functions.contains(places.function(place))) writing.insert(place);
    return writing;
}

using Identity = std::pair<std::uint32_t, std::uint32_t>;

/// What a call is in every step alike. Lines of launches are taken in some steps only, names of kernels in all; lines of other
/// calls always.
Identity identity_of(const Timeline& timeline, const Places& places, const Lane& lane, std::uint32_t act) {
    const Call& call = timeline.calls[lane.calls[act]];
    const auto kind = static_cast<std::uint32_t>(call.kind);
    if (!is_launch(call.kind)) return {kind, places.of_stack(call.stack)};
    const auto jobs = lane.jobs_of(act);
    return {kind, jobs.empty() ? call.name : timeline.work[lane.jobs[jobs.front()].first_work].name};
}

using Turn = std::pair<Identity, Identity>;
Turn turn_of(const Timeline& timeline, const Places& places, const Lane& lane, std::uint32_t before, std::uint32_t after) {
    return {identity_of(timeline, places, lane, before), identity_of(timeline, places, lane, after)};
}

/// Lines of the main thread that launch, or call the device otherwise.
std::unordered_set<std::uint32_t> calling_places(const Timeline& timeline, const Launcher& launcher, const Places& places,
                                                 const std::vector<Lane>& lanes) {
    std::unordered_set<std::uint32_t> calling;
    for (const Lane& lane : lanes)
        for (const std::uint32_t call : lane.calls)
            if (timeline.calls[call].thread == launcher.main_thread) calling.insert(places.of_stack(timeline.calls[call].stack));
    return calling;
}

/// A pipe from another process of the program, as multiprocessing's queues have it: who reads there waits for the other's work.
bool reads_from_process(const Timeline& timeline, const Sample& sample) {
    const Stack& stack = timeline.stacks[sample.stack];
    const auto innermost = std::ranges::find(stack, false, &Frame::native);
    return innermost != stack.end() && innermost->file.find("multiprocessing/connection") != std::string::npos;
}

}  // namespace

bool reads_files(std::string_view call) { return is_one_of(call, "read pread64 readv preadv openat statx getdents64"); }

std::vector<Time> covered_before(const Timeline& timeline, const Launcher& launcher, const Lane& lane,
                                 const std::vector<Range>& ranges) {
    std::vector<Time> covered(lane.calls.size(), 0);
    auto range = ranges.begin();
    for (std::uint32_t i = 1; i < lane.calls.size(); ++i) {
        const Time begin = timeline.calls[lane.calls[i - 1]].end, end = timeline.calls[lane.calls[i]].begin;
        while (range != ranges.end() && range->end <= begin) ++range;
        for (auto each = range; each != ranges.end() && each->begin < end; ++each)
            if (each->process == launcher.process || each->process == 0)
                covered[i] += std::max<Time>(0, std::min(end, each->end) - std::max(begin, each->begin));
    }
    return covered;
}

Time without_notes(Time stretch, const Call& call) {
    const Time most = static_cast<Time>(kPolicy.noted_share * static_cast<double>(stretch));
    return stretch - std::min(Time{call.notes} * kPolicy.profiler_note, most);
}

bool is_waiting(const Timeline& timeline, const Sample& sample) {
    if (sample.state == 'R') return false;
    const std::string_view wait = timeline.names[sample.wait];
    if (sample.state == 'D' || writes_files(wait)) return false;
    return !reads_files(wait) || reads_from_process(timeline, sample);
}

Doing doing_of(const Timeline& timeline, const Sample& sample) {
    static const Frame kCollects{std::string(record::kInterpreterFile), 0, std::string(record::kCollectingFunction), true};
    const Stack& stack = timeline.stacks[sample.stack];
    const std::string_view wait = timeline.names[sample.wait];
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
    if (output || writes_files(wait)) return Doing::kWriting;
    if (reads_files(wait)) return Doing::kLoading;
    if (innermost && is_framework(innermost->file)) return waiting && is_read(*innermost) ? Doing::kReading : Doing::kEnqueuing;
    if (!innermost && sample.state != 'R') return Doing::kUnknown;
    return Doing::kComputing;
}

HostWork::HostWork(const Timeline& timeline, const Launcher& launcher, const Places& places, const std::vector<Lane>& lanes,
                   Time least) {
    std::vector<Sample> samples;  // of the main thread
    std::ranges::copy_if(timeline.samples, std::back_inserter(samples), [&](const Sample& sample) {
        return sample.process == launcher.process && sample.thread == launcher.main_thread;
    });
    std::vector<Range> in_loader;  // as the program or its profiler marked it
    std::ranges::copy_if(timeline.ranges, std::back_inserter(in_loader),
                         [&](const Range& range) { return timeline.names[range.name].find("DataLoader") != std::string::npos; });
    find_places(timeline, launcher, places, lanes, samples);
    std::map<std::pair<Turn, std::uint32_t>, std::uint32_t> keys;
    std::vector<Tally> tallies(1);
    std::vector<WorkStretch> stretches;
    for (const Lane& lane : lanes) {
        collecting_.push_back(covered_before(timeline, launcher, lane, timeline.collections));
        const auto loading = covered_before(timeline, launcher, lane, in_loader);
        auto& class_of = class_of_.emplace_back(lane.calls.size(), 0);
        for (std::uint32_t i = 1; i < lane.calls.size(); ++i) {
            const Call &before = timeline.calls[lane.calls[i - 1]], &call = timeline.calls[lane.calls[i]];
            const Time begin = before.end, end = call.begin;
            const Time length = without_notes(end - begin, call);
            if (length <= (samples.empty() ? kPolicy.launch_gap : std::min(least, kPolicy.launch_gap))) continue;
            // Size tells stretches apart, too, roughly: what happens in every hundredth step only is another thing.
            const auto size = static_cast<std::uint32_t>(std::bit_width(static_cast<std::uint64_t>(end - begin)) / 2);
            auto [found, fresh] =
                keys.try_emplace({turn_of(timeline, places, lane, i - 1, i), size}, static_cast<std::uint32_t>(tallies.size()));
            if (fresh) tallies.emplace_back();
            class_of[i] = found->second;
            Tally& tally = tallies[found->second];
            tally.length += static_cast<double>(end - begin);
            tally.loader += static_cast<double>(std::min(loading[i], end - begin));
            ++tally.stretches;
            stretches.push_back({found->second, length <= kPolicy.launch_gap, within(samples, &Sample::time, begin, end)});
        }
    }
    const auto writing = writing_stacks(timeline, stretches);
    const auto calling = calling_places(timeline, launcher, places, lanes);
    const auto written = writing_places(places, samples);
    for (const WorkStretch& stretch : stretches)
        for (const Sample& sample : stretch.samples) {
            const std::uint32_t place = places.of_stack(sample.stack);
            Doing doing = doing_of(timeline, sample);
            const bool waiting = is_waiting(timeline, sample);
            const bool opens = doing == Doing::kLoading && timeline.names[sample.wait] == "openat";
            const bool itself = user_frame(timeline.stacks[sample.stack]) == 0;
            if (!waiting && doing == Doing::kComputing && writing.contains(sample.stack)) doing = Doing::kWriting;
            if (!waiting && (doing == Doing::kComputing || opens) && itself && written.contains(place)) doing = Doing::kWriting;
            if (doing == Doing::kComputing && stretch.is_short && calling.contains(place)) doing = Doing::kEnqueuing;
            Tally& tally = tallies[stretch.tally];
            ++tally.counts[{doing, waiting, place}][sample.wait];
            ++tally.total;
        }
    classes_.push_back({{Doing::kEnqueuing, false, kNoPlace, 1, 0}});
    for (std::size_t i = 1; i < tallies.size(); ++i) classes_.push_back(tallies[i].portions(!samples.empty()));
}

void HostWork::find_places(const Timeline& timeline, const Launcher& launcher, const Places& places,
                           const std::vector<Lane>& lanes, const std::vector<Sample>& samples) {
    // Calls of the framework's threads between two of the main thread: where that one waits, by samples of all steps.
    std::map<Turn, std::map<std::uint32_t, std::size_t>> seen;
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
            for (const Sample& sample : within(samples, &Sample::time, begin, end))
                if (const std::uint32_t place = places.of_stack(sample.stack); place != kNoPlace)
                    ++seen[turn_of(timeline, places, lane, before, after)][place];
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
            const auto found = seen.find(turn_of(timeline, places, lane, before, after));
            if (found == seen.end()) return;
            const std::uint32_t place = key_with_most(found->second);
            for (std::uint32_t i = before + 1; i < after; ++i)
                if (places.of_stack(timeline.calls[lane.calls[i]].stack) == kNoPlace) place_of[i] = place;
        });
    }
}

}  // namespace millrace::diagnose
