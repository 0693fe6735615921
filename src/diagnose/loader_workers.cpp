#include "diagnose/loader_workers.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

#include "diagnose/findings.h"
#include "diagnose/sample_memo.h"

namespace millrace::diagnose {
namespace {

enum class Chore : std::uint8_t { kIdle, kTransform, kRead, kCollate, kPickle };

struct WorkerTally {
    std::map<Chore, std::size_t> chores;  ///< samples
    std::map<std::uint32_t, std::size_t> transform_places, read_places;
    std::set<std::uint32_t> workers;
    std::size_t total = 0;
    std::size_t in_loader = 0;  ///< samples of processes with a loader's frames

    double share(Chore chore) const;
};

constexpr std::size_t kFewWorkerSamples = 50;  ///< fewer say too little about a share

std::string_view wait_name(const Timeline& timeline, const Sample& sample) {
    return sample.wait < timeline.names.size() ? std::string_view(timeline.names[sample.wait]) : std::string_view();
}

bool has(const Stack& stack, std::string_view file, std::string_view function) {
    return std::any_of(stack.begin(), stack.end(), [&](const Frame& frame) {
        return frame.file.find(file) != std::string::npos && frame.function.find(function) != std::string::npos;
    });
}

Chore task_of(const Timeline& timeline, const Sample& sample) {
    static const Stack kEmpty;
    const Stack& stack = sample.stack < timeline.stacks.size() ? timeline.stacks[sample.stack] : kEmpty;
    const std::string_view wait = wait_name(timeline, sample);
    const bool reads = wait == "read" || wait == "pread64" || wait == "readv" || wait == "preadv" || wait == "openat" ||
                       wait == "statx" || wait == "getdents64";
    const bool pickles = has(stack, "multiprocessing/reduction", "") || has(stack, "multiprocessing/", "send") ||
                         has(stack, "multiprocessing/queues", "_feed") || has(stack, "pickle", "dump");
    const bool asks = has(stack, "multiprocessing/", "get") || has(stack, "multiprocessing/", "recv") ||
                      has(stack, "multiprocessing/", "wait") || has(stack, "multiprocessing/", "poll") ||
                      has(stack, "queue.py", "get") || has(stack, "/selectors", "select");
    if (sample.state == 'D') return Chore::kRead;
    if (sample.state != 'R') {
        if (pickles && !asks) return Chore::kPickle;  // a pipe that is full
        return reads && !asks ? Chore::kRead : Chore::kIdle;
    }
    if (pickles) return Chore::kPickle;
    if (has(stack, "", "collate")) return Chore::kCollate;
    return reads ? Chore::kRead : Chore::kTransform;
}

double WorkerTally::share(Chore chore) const {
    const auto found = chores.find(chore);
    return found == chores.end() ? 0.0 : static_cast<double>(found->second) / static_cast<double>(total);
}

/// Samples in windows with steps, or in the blocks between windows.
WorkerTally tally_in(const Study& study, bool windows, bool outside) {
    const Timeline& timeline = study.timeline;
    auto block = study.blocks.begin();  // those of several processes may lie over one another, and over windows
    const auto is_seen = [&](Time time) {
        const auto holds = [&](const auto& stretch) { return time >= stretch.begin && time < stretch.end; };
        for (std::size_t i = 0; i < study.lanes.size(); ++i)
            if (!study.steps[i].steps.empty() && holds(study.lanes[i])) return windows;
        while (block != study.blocks.end() && block->end <= time) ++block;
        return outside && block != study.blocks.end() && holds(*block);
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
    };
    std::vector<Sighting> seen;
    std::set<std::uint32_t> loaders, awaited;
    for (const bool threads : {false, true}) {
        block = study.blocks.begin();
        bool awaits = false;
        for (const Sample& sample : timeline.samples) {
            const bool own = sample.process == study.launcher.process;
            if (own && sample.thread == study.launcher.main_thread)
                awaits = memo.of(sample, look).awaits && study.trains_at(sample.time);
            const bool worker =
                threads ? own && sample.thread != study.launcher.main_thread && study.places.of_stack(sample.stack) != kNoPlace
                        : children.contains(sample.process) && sample.thread == sample.process;
            if (!worker || !is_seen(sample.time)) continue;
            seen.push_back({threads ? sample.thread : sample.process, sample.stack, memo.of(sample, look)});
            if (!threads && seen.back().look.in_loader) loaders.insert(sample.process);
            if (awaits && seen.back().look.chore != Chore::kIdle) awaited.insert(seen.back().worker);
        }
        if (!seen.empty()) break;
    }
    WorkerTally tally;
    for (const Sighting& each : seen) {
        // Another loader's, such as an evaluation's, has nothing to do while training waits for its own.
        if (!awaited.empty() && !awaited.contains(each.worker)) continue;
        ++tally.chores[each.look.chore];
        ++tally.total;
        tally.in_loader += loaders.contains(each.worker) ? 1 : 0;
        tally.workers.insert(each.worker);
        if (each.look.chore == Chore::kTransform) ++tally.transform_places[study.places.of_stack(each.stack)];
        if (each.look.chore == Chore::kRead) ++tally.read_places[study.places.of_stack(each.stack)];
    }
    return tally;
}

/// Children without a GPU that work while the training loop waits for a batch; where none are seen to, all of them. Where the
/// program has none, its other threads that are not the framework's own.
WorkerTally tally_workers(const Study& study) {
    // While batches that were fetched ahead last, workers have nothing to do.
    const bool unseen = study.unseen_loading_ms() > 0;
    WorkerTally tally = tally_in(study, !unseen, unseen);
    return tally.total < kFewWorkerSamples ? tally_in(study, true, true) : tally;
}

std::uint32_t most_of(const std::map<std::uint32_t, std::size_t>& places) {
    std::uint32_t best = kNoPlace;
    std::size_t most = 0;
    for (const auto& [place, count] : places)
        if (place != kNoPlace && count > most) most = count, best = place;
    return best;
}

std::string place_note(const Study& study, const std::map<std::uint32_t, std::size_t>& places) {
    const std::uint32_t place = most_of(places);
    return place == kNoPlace ? "" : fmt::format(" ({})", name_of_place(study, place));
}

}  // namespace

std::optional<double> busy_share_of_loader(const Study& study) {
    const WorkerTally tally = tally_workers(study);
    // Children that are something else would make this another share.
    if (tally.in_loader < kFewWorkerSamples || 10 * tally.in_loader < 9 * tally.total) return std::nullopt;
    return 1 - tally.share(Chore::kIdle);
}

LoaderReason loader_reason(const Chart& chart, bool waiting) {
    const Study& study = chart.study;
    if (!waiting)
        return {"The loader has no workers, so nothing is prepared beside the GPU's work: too few workers.",
                chart.advice(Topic::kNoWorkers)};
    const WorkerTally tally = tally_workers(study);
    if (tally.total < 5)
        return {"Why the batch was late cannot be told: its makers were not sampled.", chart.advice(Topic::kFewWorkers)};
    const std::size_t workers = tally.workers.size();
    const std::uint32_t processors = study.timeline.processors;
    const double transform = tally.share(Chore::kTransform), read = tally.share(Chore::kRead);
    const double packing = tally.share(Chore::kCollate) + tally.share(Chore::kPickle), busy = transform + read + packing;
    const auto because = [&](const char* why, const char* fix) -> LoaderReason {
        return {fmt::format("{} worker{}{} {} busy {:.0f} % of the time: {:.0f} % transforming{}, {:.0f} % reading{}, {:.0f} % "
                            "collating and pickling: {}.",
                            workers, workers == 1 ? "" : "s", processors > 0 ? fmt::format(" of {} processors", processors) : "",
                            workers == 1 ? "is" : "are", 100 * busy, 100 * transform, place_note(study, tally.transform_places),
                            100 * read, place_note(study, tally.read_places), 100 * packing, why),
                fix};
    };
    if (busy < study.policy.worker_busy)
        return because("they wait, too, so the batch is late after them", chart.advice(Topic::kIdleWorkers));
    if (read >= transform && read >= packing)
        return because("slow reads", "Read larger pieces from fewer files, keep the data on a local disk, or add workers.");
    if (packing > transform) return because("packing batches is what takes long", chart.advice(Topic::kPacking));
    if (processors == 0 || workers + 1 < processors)
        return because("too few workers for what a sample costs the CPU", chart.advice(Topic::kFewWorkers));
    return because("the CPU has no more to give",
                   "Make the transform cheaper: precompute it, do it for a batch at once, or move it to the GPU.");
}

}  // namespace millrace::diagnose
