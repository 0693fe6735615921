#pragma once
// What a checkpoint knows beside its tensors, as the text of state.json. Floats survive to the bit.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/fields.h"
#include "models/forgetting.h"
#include "ops/member_state.h"
#include "tape/store.h"
#include "train/step_sums.h"

namespace millrace::train {

/// The weights of one member that are the best so far.
struct MemberBest {
    double value = std::numeric_limits<double>::quiet_NaN();  ///< more is better; NaN: none could be a candidate, these neither
    std::uint32_t epoch = 0;                                  ///< counted from 1
    std::uint64_t step = 0;
    double loss = 0, accuracy = 0;  ///< validation
};

/// The best weights so far, of each member by itself.
struct BestSoFar {
    bool any = false;
    double value = 0;  ///< the metric of the best member
    std::uint32_t member = 0;
    std::uint32_t epoch = 0;  ///< of that member, counted from 1
    std::uint64_t step = 0;
    std::vector<MemberBest> members;  ///< empty without validation data
};

/// How long validation has not improved, by checkpoint.best_metric.
struct Staleness {
    std::vector<double> best;       ///< of each member so far, more is better; NaN: none was finite; empty before the first
    std::uint32_t evaluations = 0;  ///< since any member improved on its own best
};

/// For readers and later comparisons. A resumed run reads the model, the preset and the precision (empty: not stored).
struct RunFigures {
    std::string model, preset, device, precision;
    std::int64_t parameters = 0;
    double seconds = 0, samples_per_second = 0, steps_per_second = 0;  ///< training alone, since this start
    double wall_seconds = 0;                                           ///< since this start, start-up and evaluation included
    double cpu_share = 0;                                              ///< CPU seconds over wall seconds and threads
    std::optional<double> gpu_utilization_percent, sm_active_percent;  ///< means over the newest epoch that had enough samples
};

struct RunState {
    std::uint64_t step = 0;  ///< optimizer steps done
    std::uint64_t steps_per_epoch = 0;
    std::int32_t micro_batch = 0;    ///< rows that went through the model at once; 0: not known
    std::vector<std::string> forms;  ///< of kernels, ops::Backend::forms(); of a run without a choice none
    std::vector<ops::MemberState> members;
    std::vector<std::string> group_names;
    std::vector<ops::GroupState> groups;  ///< [members, group_names]; empty: none were stored, all groups as declared
    StepSums epoch_sums{1};               ///< of the epoch that is open
    std::string recipe;                   ///< every key, TOML
    std::string recipe_json;              ///< the same for readers of JSON; written, not read back
    BestSoFar best;
    Staleness staleness;
    std::vector<models::DomainLosses> domains;  ///< of the epochs so far; empty where the data is one whole
    data::DataIdentity data;
    std::uint64_t metrics_offset = 0;  ///< bytes of metrics.jsonl that belong to this state
    bool complete = false;             ///< nothing was left to train
    RunFigures figures;
};

std::string encode_state(const RunState& state);
/// `place` names the file in errors.
base::Result<RunState> decode_state(const std::string& json, const std::string& place);

/// Puts the store's group table into a state that has none. Waits for the device.
void read_groups(tape::Store& store, RunState& state);
/// Writes it back. Refuses names that are not those of the store's groups. A state that stored none (of before groups had a count
/// of their own) leaves all groups as declared, with the member's count of steps.
base::Status write_groups(tape::Store& store, const RunState& state);

}  // namespace millrace::train
