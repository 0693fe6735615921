#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "diagnose/replay/cures.h"
#include "diagnose/replay/study.h"
#include "diagnose/timeline/sample_memo.h"
#include "record/cpu_sampler.h"

namespace millrace::diagnose {
namespace {

constexpr std::size_t kFewWorkerSamples = 50;  ///< fewer say too little about a share

/// `functions`: parts of names, separated by spaces; empty: any.
bool has(const Stack& stack, std::string_view file, std::string_view functions) {
    return std::ranges::any_of(stack, [&](const Frame& frame) {
        return frame.file.find(file) != std::string::npos && (functions.empty() || contains_any(frame.function, functions));
    });
}

Chore task_of(const Timeline& timeline, const Sample& sample) {
    const Stack& stack = timeline.stacks[sample.stack];
    const bool reads = reads_files(timeline.names[sample.wait]);
    const bool pickles = has(stack, "multiprocessing/reduction", "") || has(stack, "multiprocessing/", "send") ||
                         has(stack, "multiprocessing/queues", "_feed") || has(stack, "pickle", "dump");
    const bool asks = has(stack, "multiprocessing/", "get recv wait poll") || has(stack, "queue.py", "get") ||
                      has(stack, "/selectors", "select");
    if (sample.state == 'D') return Chore::kRead;
    if (sample.state != 'R') {
        if (pickles && !asks) return Chore::kPickle;  // a pipe that is full
        return reads && !asks ? Chore::kRead : Chore::kIdle;
    }
    if (pickles) return Chore::kPickle;
    if (has(stack, "", "collate")) return Chore::kCollate;
    return reads ? Chore::kRead : Chore::kTransform;
}

/// Samples in windows with steps, or in the blocks between windows; `late`: wherever the main thread waits for a batch, as far as
/// there are enough of those.
WorkerTally tally_in(const Study& study, bool windows, bool outside, bool late) {
    const Timeline& timeline = study.timeline;
    auto block = study.blocks.begin();  // those of several processes may lie over one another, and over windows
    const auto is_in_window = [&](Time time) {
        for (std::size_t i = 0; i < study.lanes.size(); ++i)
            if (!study.steps[i].steps.empty() && time >= study.lanes[i].begin && time < study.lanes[i].end) return true;
        return false;
    };
    const auto is_seen = [&](Time time) {
        if (is_in_window(time)) return windows;
        while (block != study.blocks.end() && block->end <= time) ++block;
        return outside && block != study.blocks.end() && time >= block->begin;
    };
    struct WorkerLook {
        Chore chore = Chore::kIdle;
        bool in_loader = false, awaits = false;
    };
    SampleMemo<WorkerLook> memo;
    const auto look = [&](const Sample& sample) -> WorkerLook {
        return {task_of(timeline, sample), std::ranges::any_of(timeline.stacks[sample.stack], is_loader),
                doing_of(timeline, sample) == Doing::kLoading && is_waiting(timeline, sample)};
    };
    std::set<std::uint32_t> children;
    for (const Process& process : timeline.processes)
        if (process.parent == study.launcher.process && !process.has_gpu) children.insert(process.pid);
    struct Sighting {
        std::uint32_t worker = 0, stack = kNoStack;
        WorkerLook look;
        bool late = false;
    };
    std::vector<Sighting> seen;
    std::set<std::uint32_t> loaders, awaited;
    for (const bool threads : {false, true}) {
        block = study.blocks.begin();
        bool awaits = false, is_late = false;
        Time told = 0;  // when the main thread was seen
        for (const Sample& sample : timeline.samples) {
            const bool own = sample.process == study.launcher.process;
            if (study.is_main(sample)) {
                is_late = memo.of(sample, look).awaits;
                awaits = is_late && study.trains_at(sample.time);
                is_late = awaits || (late && is_late && !is_in_window(sample.time));
                told = sample.time;
            }
            const bool worker =
                threads ? own && sample.thread != study.launcher.main_thread && study.places.of_stack(sample.stack) != kNoPlace
                        : children.contains(sample.process) && sample.thread == sample.process;
            const bool meanwhile = is_late && sample.time - told <= record::SamplingPace::kSlowestRound.count();
            if (!worker || (!meanwhile && !is_seen(sample.time))) continue;
            seen.push_back({threads ? sample.thread : sample.process, sample.stack, memo.of(sample, look), meanwhile});
            if (!threads && seen.back().look.in_loader) loaders.insert(sample.process);
            if (awaits && seen.back().look.chore != Chore::kIdle) awaited.insert(seen.back().worker);
        }
        if (!seen.empty()) break;
    }
    WorkerTally tally;
    const auto late_ones = std::ranges::count_if(seen, &Sighting::late);
    const bool all = !late || late_ones < static_cast<std::ptrdiff_t>(kFewWorkerSamples);
    for (const Sighting& each : seen) {
        if (!all && !each.late) continue;
        // Another loader's, such as an evaluation's, has nothing to do while training waits for its own.
        if (!awaited.empty() && !awaited.contains(each.worker)) continue;
        ++tally.chores[each.look.chore];
        ++tally.total;
        tally.in_loader += loaders.contains(each.worker) ? 1 : 0;
        tally.workers.insert(each.worker);
        ++tally.places[each.look.chore][study.places.of_stack(each.stack)];
    }
    return tally;
}

constexpr double kSure = 2;          ///< standard errors
constexpr double kMostHidden = 0.5;  ///< of a recorded step, that may go into loading while the GPU works

struct Look {
    std::uint32_t place = kNoPlace;
    bool loading = false, waiting = false;
    bool elsewhere = false;  ///< not in the loop that a step is a turn of: in an evaluation
};

/// The main thread's samples on one side.
struct SideTally {
    struct Line {
        std::size_t loading = 0, waiting = 0;
    };
    double step_ms = 0;
    std::map<std::uint32_t, Line> lines;
    std::size_t samples = 0, loading = 0;

    void add(const Look& look) {
        ++samples;
        if (!look.loading) return;
        Line& line = lines[look.place];
        ++loading, ++line.loading;
        line.waiting += look.waiting ? 1 : 0;
    }
    /// Of a step, what so many samples stand for.
    [[nodiscard]] double ms(std::size_t count) const {
        return samples > 0 ? static_cast<double>(count) / static_cast<double>(samples) * step_ms : 0;
    }
    /// The square of its standard error; with one sample more of either kind, since few that agree are not sure.
    [[nodiscard]] double variance() const {
        const double all = static_cast<double>(samples + 2), share = static_cast<double>(loading + 1) / all;
        return step_ms * step_ms * share * (1 - share) / all;
    }
};

struct Sides {
    SideTally inside, outside;
};

Sides tally(const Study& study) {
    Sides sides;
    const BlockSpeed speed = speed_of(study.blocks);
    sides.inside.step_ms = study.recorded_ms;
    sides.outside.step_ms = speed.steps > 0 ? speed.ms / speed.steps : 0;
    auto block = study.blocks.begin();
    std::uint64_t loop = 0;
    for (const WindowSteps& window : study.steps) loop = window.loop != 0 ? window.loop : loop;
    SampleMemo<Look> memo;
    const auto look = [&](const Sample& sample) -> Look {
        const auto place = loop != 0 && sample.stack != kNoStack ? place_of(study.timeline, sample.stack) : std::nullopt;
        return {study.places.of_stack(sample.stack), doing_of(study.timeline, sample) == Doing::kLoading,
                is_waiting(study.timeline, sample),
                place && std::ranges::find(place->turns, loop, &record::Turn::loop) == place->turns.end()};
    };
    std::size_t elsewhere = 0;
    for (const Sample& sample : study.timeline.samples) {
        if (!study.is_main(sample)) continue;
        while (block != study.blocks.end() && block->end <= sample.time) ++block;
        if (study.trains_at(sample.time))
            sides.inside.add(memo.of(sample, look));
        else if (block == study.blocks.end() || block->begin > sample.time)
            continue;
        else if (const Look& seen = memo.of(sample, look); seen.elsewhere)
            ++elsewhere;
        else
            sides.outside.add(seen);
    }
    const auto in_steps = static_cast<double>(sides.outside.samples);
    if (elsewhere > 0) sides.outside.step_ms *= in_steps / (in_steps + static_cast<double>(elsewhere));
    return sides;
}

}  // namespace

WorkerTally tally_workers(const Study& study, bool late) {
    // While batches that were fetched ahead last, workers have nothing to do.
    const bool unseen = study.unseen_loading_ms() > 0;
    WorkerTally tally = tally_in(study, !unseen, unseen, late);
    return tally.total < kFewWorkerSamples ? tally_in(study, true, true, late) : tally;
}

std::optional<double> busy_share_of_loader(const Study& study) {
    const WorkerTally tally = tally_workers(study, false);
    // Children that are something else would make this another share.
    if (tally.in_loader < kFewWorkerSamples || 10 * tally.in_loader < 9 * tally.total) return std::nullopt;
    return 1 - tally.share(Chore::kIdle);
}

std::optional<UnseenLoading> unseen_loading(const Study& study) {
    // Blocks with evaluations in them say nothing of a step, nor do others where the pace is not known.
    if (!study.undisturbed_ms || study.pace_has_evaluation) return std::nullopt;
    const Sides sides = tally(study);
    const SideTally &inside = sides.inside, &outside = sides.outside;
    const double grown = outside.ms(outside.loading) - inside.ms(inside.loading), slower = outside.step_ms - inside.step_ms;
    const double error = std::sqrt(outside.variance() + inside.variance());
    UnseenLoading unseen;
    unseen.ms = std::min(grown, slower);
    if (inside.samples == 0 || unseen.ms <= kPolicy.closes * study.recorded_ms || grown < kSure * error) return std::nullopt;
    const double hidden = inside.ms(inside.loading) - study.gain_of(without_host_work(study, Doing::kLoading));
    if (hidden > kMostHidden * study.recorded_ms) return std::nullopt;
    double most = 0;
    for (const auto& [place, line] : outside.lines) {
        const auto found = inside.lines.find(place);
        const std::size_t before = found == inside.lines.end() ? 0 : found->second.loading;
        const double more = outside.ms(line.loading) - inside.ms(before);
        if (place == kNoPlace || more <= most) continue;
        most = more;
        unseen.place = place;
        unseen.samples = line.loading;
        unseen.waits = 2 * line.waiting > line.loading;
    }
    return unseen.place == kNoPlace ? std::nullopt : std::optional(unseen);
}

std::string remark_of(const UnseenLoading& unseen, const Study& study) {
    return fmt::format(
        "outside of the windows a step {} data {:.1f} ms more than inside, at {}: the cost of `loader-wait` has it",
        unseen.waits ? "waits for" : "loads", unseen.ms, study.places.name(unseen.place));
}

}  // namespace millrace::diagnose
