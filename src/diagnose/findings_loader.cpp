// Why batches are late, from samples of those who make them.

#include <fmt/core.h>

#include <map>

#include "diagnose/findings.h"
#include "diagnose/loader_workers.h"

namespace millrace::diagnose {
namespace {

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

LoaderReason loader_reason(const Study& study, bool waiting) {
    LoaderReason reason;
    const std::uint32_t processors = study.timeline.processors;
    const std::string machine = processors > 0 ? fmt::format(" of {} processors", processors) : "";
    if (!waiting) {
        reason.evidence = "The loader has no workers, so nothing is prepared beside the GPU's work: too few workers.";
        reason.fix = "Give the loader workers: `DataLoader(..., num_workers=8, persistent_workers=True, pin_memory=True)`.";
        return reason;
    }
    const WorkerTally tally = tally_workers(study);
    reason.workers = tally.workers.size();
    reason.samples = tally.total;
    if (tally.total < 5) {
        reason.evidence = "Why the batch was late cannot be told: its makers were not sampled.";
        reason.fix = "Raise `num_workers` and `prefetch_factor` of the DataLoader, or make samples cheaper.";
        return reason;
    }
    const double transform = tally.share(Chore::kTransform), read = tally.share(Chore::kRead);
    const double packing = tally.share(Chore::kCollate) + tally.share(Chore::kPickle), busy = transform + read + packing;
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
