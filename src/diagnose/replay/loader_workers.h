#pragma once
// Those who make batches beside the training thread, as samples show them.

#include <cstdint>
#include <map>
#include <optional>
#include <set>

namespace millrace::diagnose {

struct Study;

enum class Chore : std::uint8_t { kIdle, kTransform, kRead, kCollate, kPickle };

struct WorkerTally {
    std::map<Chore, std::size_t> chores;  ///< samples
    std::map<Chore, std::map<std::uint32_t, std::size_t>> places;
    std::set<std::uint32_t> workers;
    std::size_t total = 0;
    std::size_t in_loader = 0;  ///< samples of processes with a loader's frames

    double share(Chore chore) const {
        const auto found = chores.find(chore);
        return found == chores.end() ? 0.0 : static_cast<double>(found->second) / static_cast<double>(total);
    }
};

/// Children without a GPU that work while the training loop waits for a batch; where none are seen to, all of them. Where the
/// program has none, its other threads that are not the framework's own. `late`: what they do meanwhile, not all the time: who is
/// too slow works then, and who waits then is waited for in vain.
WorkerTally tally_workers(const Study& study, bool late);

/// The share of their time in which the workers of a loader make batches: in steps shorter than that they would be too slow.
/// Absent where none were seen, or not often enough.
std::optional<double> busy_share_of_loader(const Study& study);

}  // namespace millrace::diagnose
