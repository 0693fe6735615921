#pragma once
// Scores the best weights of a run.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/batch_source.h"
#include "io/file.h"
#include "models/registry.h"
#include "train/listener.h"
#include "train/run_state.h"

namespace millrace::train {

struct EvaluateReport {
    std::string run, model, preset, device, data;
    std::string unit;  ///< what a sample is: "images"
    data::Part part = data::Part::test;
    bool classifies = true;
    std::uint64_t step = 0;  ///< the weights are those after this step
    std::int64_t samples = 0, parameters = 0;
    std::vector<Score> members;
    std::vector<std::string> class_names;  ///< empty: the data has none
    std::vector<std::string> domains;      ///< names of those in Score::domains
    std::size_t best = 0;                  ///< the member that training chose
    double seconds = 0;                    ///< of the evaluation itself
    std::vector<models::Picture> pictures;
    std::string about;  ///< what the family has to say about these weights; empty: nothing
};

/// The best weights of a run with the recipe stored in them.
struct BestWeights {
    io::LoadedCheckpoint checkpoint;
    RunState state;
    base::Recipe recipe;
    const models::Family* family;
};
/// `device` and `data_path` replace what the recipe says unless empty; so do `sets`, each "key=value".
base::Result<BestWeights> load_best(const io::Path& run, const std::string& device, const std::string& data_path,
                                    std::vector<std::string> sets = {});
/// Which member did best on what was set aside to select by; 0 where nothing was.
std::size_t best_member(const BestWeights& best);

/// Which sample of the part is drawn, from 0, and how.
struct PictureRequest {
    std::int64_t sample = 0;
    std::vector<models::EvalOption> options;
};

/// One file of text at `data_path` that is not the run's own is the test part as a whole, and all of its windows are scored.
/// Scores `run`/checkpoints/best. `part` absent: test, or validation where the data has no test part. `device` and `data_path` as
/// above. `pictures`: also draws that sample; refused, before anything is scored, for families that draw none and samples that
/// are not there.
base::Result<EvaluateReport> evaluate_run(const io::Path& run, std::optional<data::Part> part, const std::string& device = {},
                                          const std::string& data_path = {}, const std::optional<PictureRequest>& pictures = {});

}  // namespace millrace::train
