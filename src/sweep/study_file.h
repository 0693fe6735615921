#pragma once
// A study as its file describes it (docs/sweep.md): the recipe that all trials share, what is searched, and how.

#include <cstdint>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "search/sampler.h"
#include "search/scheduler.h"
#include "storage/study.h"

namespace millrace::sweep {

using base::Error;
using base::Result;
using base::Status;

/// A metric that must not leave its bound; trials that do are never finalists.
struct Constraint {
    std::string metric;
    bool is_upper = true;  ///< at_most, else at_least
    double bound = 0;

    /// Above 0 by so much as the bound is violated.
    [[nodiscard]] double violation(double value) const { return is_upper ? value - bound : bound - value; }
    /// "parameters at most 600000"
    [[nodiscard]] std::string text() const;
};

struct StudyFile {
    std::string path;
    std::string name;
    /// Of all trials, with [set] and --set: one member, train.epochs is the length of a full trial.
    base::Recipe recipe;
    base::Schema searched;  ///< the space's keys and "seed"
    search::Space space;
    std::vector<storage::Objective> objectives;
    std::vector<Constraint> constraints;
    search::SamplerOptions sampler;
    search::SchedulerOptions scheduler;
    std::int64_t trials = 100;
    std::int64_t replicates = 3;  ///< seeds that a finalist is trained with anew; 0: none
    std::int64_t finalists = 5;

    [[nodiscard]] storage::StudyDescription description() const { return {name, space, objectives}; }
};

/// Reads the file and the recipe that it names, relative to itself. `flags` are the arguments of --set. Refuses, with file and
/// line: unknown keys, wrong types, empty ranges, ranges that their key does not allow, keys that no trial can choose.
base::Result<StudyFile> load_study(const std::string& path, const std::vector<std::string>& flags);

/// The recipe of a trial. Only settings that the file's checks have passed; keys that contradict each other show when it is
/// built.
base::Recipe recipe_of(const StudyFile& study, const search::Configuration& configuration, std::uint64_t seed);

/// The parameters that are not among `fusible`, by position: a change of theirs needs another program.
std::vector<std::size_t> structural_parameters(const search::Space& space, const std::vector<std::string>& fusible);

}  // namespace millrace::sweep
