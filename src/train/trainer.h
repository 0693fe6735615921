#pragma once
// Trains a recipe in a run directory, from the start or from its last checkpoint.

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/recipe.h"
#include "comm/group.h"
#include "data/batch_source.h"
#include "io/file.h"
#include "sense/machine.h"
#include "train/listener.h"

namespace millrace::train {

struct TrainRequest {
    io::Path out;                                       ///< the run directory
    bool number_if_taken = false;                       ///< a new run: `out`-2, `out`-3 and so on where `out` exists already
    bool resume = false;                                ///< continue the run in `out`
    io::Path init;                                      ///< a new run: start from these weights (initial_weights.h)
    std::vector<std::string> command;                   ///< argv, for the manifest
    comm::Group* group = nullptr;                       ///< all of its ranks call train() with an equal recipe; borrowed
    const std::atomic<int>* stop = nullptr;             ///< not 0: finish the step, save and return; borrowed
    const std::atomic<std::uint32_t>* saves = nullptr;  ///< when it grows: finish the step, save and go on; borrowed
    /// Stands between the data set and the engine, when set: a source of the caller's own around ours.
    std::function<std::unique_ptr<data::BatchSource>(std::unique_ptr<data::BatchSource>)> adapt_source;
    /// What is watched while training; the machine itself unless set.
    std::function<std::unique_ptr<sense::Source>()> machine;
};

/// Epoch by epoch: training, validation, checkpoint; at the end the best weights meet the test set, once. A stop at any moment
/// leaves the run `interrupted` with a checkpoint of where it stands, before the first step, too. Resuming gives the
/// weights, to the bit, of a run that was never interrupted; it refuses a run of another model, other data or another recipe and
/// names the key.
///
/// With a group rank 0 alone writes, and every rank reads what is in the run directory. An error that all ranks have was printed
/// by rank 0 and comes back without a text.
///
/// `listeners` (borrowed) hear the events of the run after its own parts: what they see of an epoch is scored, written and saved.
base::Result<RunResult> train(const base::Recipe& recipe, const TrainRequest& request, const std::vector<Listener*>& listeners,
                              const base::Clock& clock = base::SteadyClock::shared());

/// `runs/<stem of the recipe>`: where a run goes that was given no folder.
io::Path default_run_directory(const std::string& recipe_path);
/// Makes the first of `base`, `base`-2, `base`-3 and so on that does not exist. Making it is what claims it, so two processes
/// that start together get two.
base::Result<io::Path> claim_run_directory(const io::Path& base);
/// The newest of `base`, `base`-2, `base`-3 and so on that exist.
base::Result<io::Path> newest_run_directory(const io::Path& base);

}  // namespace millrace::train
