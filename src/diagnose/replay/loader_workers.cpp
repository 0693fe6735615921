#include "diagnose/replay/loader_workers.h"

#include <algorithm>
#include <string_view>

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
    const bool reads = reads_files(system_call_of(timeline, sample));
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
        return outside && block != study.blocks.end() && time >= block->begin && time < block->end;
    };
    struct Look {
        Chore chore = Chore::kIdle;
        bool in_loader = false, awaits = false;
    };
    SampleMemo<Look> memo;
    const auto look = [&](const Sample& sample) -> Look {
        return {task_of(timeline, sample), std::ranges::any_of(timeline.stacks[sample.stack], is_loader),
                doing_of(timeline, sample) == Doing::kLoading && is_waiting(timeline, sample)};
    };
    std::set<std::uint32_t> children;
    for (const Process& process : timeline.processes)
        if (process.parent == study.launcher.process && !process.has_gpu) children.insert(process.pid);
    struct Sighting {
        std::uint32_t worker = 0, stack = kNoStack;
        Look look;
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

}  // namespace millrace::diagnose
