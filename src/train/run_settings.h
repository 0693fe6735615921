#pragma once
// A checked recipe as plain numbers, with everything that depends on several keys worked out.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/recipe.h"
#include "data/batch_source.h"
#include "ops/backend.h"
#include "optim/settings.h"
#include "tape/buffer.h"
#include "train/step_program.h"

namespace millrace::train {

struct CheckpointSettings {
    std::uint32_t every_epochs = 1;
    std::chrono::nanoseconds every_time{};  ///< between two checkpoints, within an epoch too; 0: none by time
    std::uint32_t keep = 3;
    std::uint64_t keep_bytes = 0;  ///< 0: no limit
    bool compress = false;
    std::string best_metric = "validation_accuracy";
    [[nodiscard]] bool by_macro_f1() const { return best_metric == "macro_f1"; }
};

/// Where measurements go beside the run directory, and how often the machine is sampled.
struct TelemetrySettings {
    std::chrono::nanoseconds interval{};  ///< between two samples of the machine; 0: none
    bool csv = false, monitor_csv = false, tensorboard = false;
    std::string prometheus_file;  ///< empty: none
    int prometheus_port = 0;      ///< 0: none
    bool components = false;      ///< time the parts of a step now and then
    bool operators = false;       ///< and every operator, once per epoch
    std::uint32_t components_every = 1000;
};

struct RunSettings {
    std::string model, preset;
    std::uint32_t epochs = 1;
    std::uint64_t step_limit = 0;  ///< 0: none
    std::uint32_t patience = 0;    ///< evaluations without an improvement that end the run; 0: none do
    std::int32_t batch = 32, eval_batch = 500;
    std::int32_t micro_batch = 0;   ///< divides `batch`; 0: the largest divisor that fits the memory
    std::int64_t memory_limit = 0;  ///< bytes the plan may take; 0: what the device has
    bool capture = true, debug_nonfinite = false;
    std::chrono::nanoseconds log_interval{};
    int members = 1;
    std::vector<std::uint64_t> seeds;   ///< one per member
    StepRanks ranks;                    ///< that share the rows of a step
    std::vector<data::Domain> domains;  ///< learned one after the other, for `epochs` / their number each; empty: one whole
    optim::OptimizerSettings optimizer;
    optim::PerMember<double> dropout_scale = 1;
    CheckpointSettings checkpoint;
    TelemetrySettings telemetry;

    /// Rows that a rank has of a batch.
    [[nodiscard]] std::int32_t rank_rows() const { return batch / static_cast<std::int32_t>(ranks.world); }
};

/// Writes the hyper-parameters into every member's state; identity and progress stay.
void apply_settings(const RunSettings& settings, std::vector<ops::MemberState>& states);

/// One for each of the recipe's members.
std::vector<std::uint64_t> read_seeds(const base::Recipe& recipe);

/// Refuses values that contradict each other or the data (a batch larger than the training set, lists of the wrong length).
base::Result<RunSettings> read_settings(const base::Recipe& recipe, std::int32_t training_samples);

/// Refuses a train.batch that gives some micro-batch of an epoch, on some rank, fewer than `minimum` rows; names the nearest that
/// does not.
base::Status check_batch_rows(const base::Recipe& recipe, const RunSettings& settings, std::int32_t training_samples,
                              std::int32_t minimum);

/// The device a recipe or flag asks for: auto is cuda when there is one, else cpu. cuda without a GPU is an error that says why.
base::Result<ops::DeviceKind> choose_device(const std::string& requested);
/// auto is f32 on the CPU, on cuda bf16 or, where the GPU lacks it, f16. What the device does not take is an error.
base::Result<tape::Precision> choose_precision(const std::string& requested, ops::DeviceKind device);
/// The same where it is known whether the GPU lacks bf16.
base::Result<tape::Precision> choose_precision(const std::string& requested, ops::DeviceKind device, bool lacks_bf16);

}  // namespace millrace::train
