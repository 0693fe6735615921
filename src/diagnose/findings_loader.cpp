// Why batches are late, from samples of those who make them.

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

#include "diagnose/findings.h"

namespace millrace::diagnose {
namespace {

enum class Chore { kIdle, kTransform, kRead, kCollate, kPickle };

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

struct Tally {
    std::map<Chore, std::size_t> tasks;
    std::map<std::uint32_t, std::size_t> transform_places, read_places;
    std::set<std::uint32_t> workers;
    std::size_t total = 0;
};

std::uint32_t most_of(const std::map<std::uint32_t, std::size_t>& places) {
    std::uint32_t best = kNoPlace;
    std::size_t most = 0;
    for (const auto& [place, count] : places)
        if (place != kNoPlace && count > most) most = count, best = place;
    return best;
}

/// Children without a GPU; where the program has none, its other threads that are not the framework's own.
Tally tally_of(const Study& study) {
    const Timeline& timeline = study.timeline;
    std::set<std::uint32_t> children;
    for (const Process& process : timeline.processes)
        if (process.parent == study.launcher.process && !process.has_gpu) children.insert(process.pid);
    Tally tally;
    for (const bool threads : {false, true}) {
        for (const Sample& sample : timeline.samples) {
            const bool worker = threads
                                    ? sample.process == study.launcher.process && sample.thread != study.launcher.main_thread &&
                                          study.places.of_stack(sample.stack) != kNoPlace
                                    : children.contains(sample.process) && sample.thread == sample.process;
            const bool seen = std::any_of(study.lanes.begin(), study.lanes.end(),
                                          [&](const Lane& lane) { return sample.time >= lane.begin && sample.time < lane.end; });
            if (!worker || !seen) continue;
            const Chore task = task_of(timeline, sample);
            ++tally.tasks[task];
            ++tally.total;
            tally.workers.insert(threads ? sample.thread : sample.process);
            if (task == Chore::kTransform) ++tally.transform_places[study.places.of_stack(sample.stack)];
            if (task == Chore::kRead) ++tally.read_places[study.places.of_stack(sample.stack)];
        }
        if (tally.total > 0) break;
    }
    return tally;
}

std::string place_note(const Study& study, const std::map<std::uint32_t, std::size_t>& places) {
    const std::uint32_t place = most_of(places);
    return place == kNoPlace ? "" : fmt::format(" ({})", name_of_place(study, place));
}

}  // namespace

LoaderReason loader_reason(const Study& study, bool waiting) {
    LoaderReason reason;
    const std::uint32_t processors = study.timeline.processors;
    const std::string machine = processors > 0 ? fmt::format(" of {} processors", processors) : "";
    if (!waiting) {
        reason.evidence = "The loader has no workers, so nothing is prepared beside the GPU's work: too few workers.";
        reason.fix = "Give the loader workers: `DataLoader(..., num_workers=8, persistent_workers=True, pin_memory=True)`.";
        return reason;
    }
    const Tally tally = tally_of(study);
    reason.workers = tally.workers.size();
    reason.samples = tally.total;
    if (tally.total < 5) {
        reason.evidence = "Why the batch was late cannot be told: its makers were not sampled.";
        reason.fix = "Raise `num_workers` and `prefetch_factor` of the DataLoader, or make samples cheaper.";
        return reason;
    }
    const auto share = [&](Chore task) {
        const auto found = tally.tasks.find(task);
        return found == tally.tasks.end() ? 0.0 : static_cast<double>(found->second) / static_cast<double>(tally.total);
    };
    const double transform = share(Chore::kTransform), read = share(Chore::kRead);
    const double packing = share(Chore::kCollate) + share(Chore::kPickle), busy = transform + read + packing;
    reason.evidence = fmt::format(
        "{} worker{}{} {} busy {:.0f} % of the time: {:.0f} % transforming{}, {:.0f} % reading{}, {:.0f} % collating and "
        "pickling",
        reason.workers, reason.workers == 1 ? "" : "s", machine, reason.workers == 1 ? "is" : "are", 100 * busy, 100 * transform,
        place_note(study, tally.transform_places), 100 * read, place_note(study, tally.read_places), 100 * packing);
    const bool room = processors == 0 || reason.workers + 1 < processors;
    if (busy < study.policy.worker_busy) {
        reason.evidence += ": they wait, too, so the batch is late after them.";
        reason.fix =
            "Raise `prefetch_factor`, keep workers alive (`persistent_workers=True`), and make `collate_fn` and pinning cheaper.";
    } else if (read >= transform && read >= packing) {
        reason.evidence += ": slow reads.";
        reason.fix =
            "Read larger pieces from fewer files, keep the data on a local disk or in memory, or hide the latency with more "
            "workers.";
    } else if (packing > transform) {
        reason.evidence += ": packing batches is what takes long.";
        reason.fix =
            "Return tensors of one shape, not lists of Python objects, and collate once (`collate_fn` with `torch.stack`, or "
            "batches "
            "made in the Dataset).";
    } else if (room) {
        reason.evidence += ": too few workers for what a sample costs the CPU.";
        reason.fix = fmt::format(
            "Raise `num_workers` (now {}) or make the transform cheaper: precompute it, do it per batch, or on the GPU.",
            reason.workers);
    } else {
        reason.evidence += ": the CPU has no more to give.";
        reason.fix = "Make the transform cheaper: precompute it, do it for a batch at once, or move it to the GPU.";
    }
    return reason;
}

}  // namespace millrace::diagnose
