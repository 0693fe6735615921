#pragma once
// Changes of a model's structure while it trains, each a transaction: a changed engine is built beside the one that trains, takes
// over what was learned, and replaces it only when validation says so. A change that is turned down leaves no trace in what
// trains.

#include <memory>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "models/registry.h"
#include "record/metrics.h"
#include "train/loop.h"

namespace millrace::train {

struct StructureSettings {
    std::vector<std::string> operations;  ///< to try in turn; empty: none
    std::uint64_t interval = 0;           ///< steps between two tries
    std::uint64_t tries = 0;              ///< in a run
    std::uint64_t trial_steps = 0;        ///< that both structures train further before they are compared
    double tolerance = 0;                 ///< by which the validation loss may grow
};
/// Refuses operations that the family does not offer, and several members.
base::Result<StructureSettings> read_structure(const base::Recipe& recipe, const models::Family& family);

/// Puts the structure of `before` into a recipe of the same family, where its own may have changed while it trained.
base::Status take_structure(base::Recipe& recipe, const base::Recipe& before);

class StructureChanges final : public Listener {
public:
    struct Parts {
        Loop& loop;
        base::Recipe& recipe;  ///< what checkpoints store: has the structure of the engine that trains
        const models::Family& family;
        StructureSettings settings;
        SourceAdapter adapt;  ///< as the engine was set up with, like what follows
        data::StoredData stored;
        record::EventWriter* events;  ///< null where another rank writes
    };
    /// All references are borrowed.
    explicit StructureChanges(Parts parts) : parts_(std::move(parts)) {}

    /// Tries one change where one is due. That is between two steps and behind the checkpoint of the first, so a run that is
    /// resumed there tries it again.
    base::Status on_step_begin(std::uint64_t done) override;

    /// An engine, for evaluation, with the structure that a checkpoint of this run has: the one that trains where it fits.
    base::Result<Engine*> engine_of(const io::LoadedCheckpoint& checkpoint);

private:
    struct Outcome {
        bool kept = false;
        double before = 0, after = 0;  ///< loss on what was set aside
    };
    base::Result<Outcome> attempt(const models::StructureChange& change, std::uint64_t done);
    /// An engine of that recipe and the run's data.
    base::Result<std::unique_ptr<Engine>> build(const base::Recipe& recipe, bool training);
    /// Loss on what was set aside after the trial's steps from where the engine stands.
    base::Result<double> trial_loss(Engine& engine, std::uint64_t done);

    Parts parts_;
    std::unique_ptr<Engine> other_;  ///< engine_of() made it
};

}  // namespace millrace::train
