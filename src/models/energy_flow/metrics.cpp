#include "models/energy_flow/offers.h"

namespace millrace::models {
namespace {

constexpr auto kGauge = record::MetricKind::kGauge;
constexpr auto kTrain = record::MetricScope::kTrain;

constexpr record::MetricInfo kMetrics[] = {
    {"component/energy_ms", "milliseconds", kGauge, kTrain, "Mapper and cube in an instrumented step, there and back."},
    {"component/text_bridge_ms", "milliseconds", kGauge, kTrain, "Text bridge in an instrumented step, there and back."},
    {"validation_cosine", "", kGauge, kTrain,
     "Mean cosine between what the surface says and the answer's vector, on the validation data."},
    {"cosine_ceiling", "", kGauge, kTrain, "Largest cosine that a surface of this many cells can be expected to reach."},
    {"retrieval_at_1", "ratio", kGauge, kTrain,
     "Share of the validation data whose own answer is the nearest of all validation answers."},
    {"mapper_loss", "", kGauge, kTrain, "Loss of the mapper alone: its energies laid on the surface without flows."},
    {"mapper_cosine", "", kGauge, kTrain, "Cosine of the mapper alone."},
    {"mapper_retrieval_at_1", "ratio", kGauge, kTrain, "Retrieval of the mapper alone."},
    {"flow_steps_used", "steps", kGauge, kTrain, "Steps a pass through the cube took, mean over the validation data."},
    {"cell_coverage", "ratio", kGauge, kTrain, "Share of the surface's cells that some flow laid energy on."},
    {"flows_created", "", kGauge, kTrain, "Flows of the validation pass, spawned ones included."},
    {"flows_spawned", "", kGauge, kTrain, "Flows that a long stride left behind."},
    {"flows_refused", "", kGauge, kTrain, "Flows that found no spare row."},
    {"flows_arrived_up", "", kGauge, kTrain, "Flows that ended on the upper plane."},
    {"flows_arrived_down", "", kGauge, kTrain, "Flows that ended on the lower plane."},
    {"flows_projected", "", kGauge, kTrain, "Flows that were still under way after the last step."},
    {"flows_reflected", "", kGauge, kTrain, "Coordinates that a wall mirrored."},
    {"bridge_encode_loss", "", kGauge, kTrain,
     "Text bridge: squared distance of its energies from the mapper's, on the validation data."},
    {"bridge_token_loss", "", kGauge, kTrain, "Text bridge: cross-entropy of a token of the target, the ones before it given."},
    {"bridge_token_accuracy", "ratio", kGauge, kTrain, "Text bridge: share of those tokens that were the likeliest."},
    {"bridge_word_overlap", "ratio", kGauge, kTrain, "Text bridge: words that its answers share with the targets."},
    {"bridge_exact", "ratio", kGauge, kTrain, "Text bridge: share of the answers that are the target to the letter."},
};

}  // namespace

std::span<const record::MetricInfo> flow_metrics() { return kMetrics; }

}  // namespace millrace::models
