#pragma once
// The energy flow model: a mapper puts a sentence vector on the middle plane as energy, the cube carries it to the surface, and
// the surface is compared with the answer's vector, mapped there by a frozen isometry.

#include <memory>
#include <vector>

#include "models/capabilities.h"
#include "models/energy_flow/config.h"
#include "models/energy_flow/cube.h"
#include "models/energy_flow/flow_trace.h"
#include "models/energy_flow/text_bridge.h"
#include "models/model.h"
#include "nn/dense.h"
#include "nn/layer_norm.h"

namespace millrace::models {

class Mapper {
public:
    Mapper() = default;
    /// compact: declares `mapper.*`, one linear layer and tanh. deep: `mapper.0` to `mapper.8`, three linear layers E -> 2S -> 2S
    /// -> S (at least 384 in between), GELU, LayerNorm and dropout behind the first two, tanh behind the last. Both start with
    /// energies of about 0.02: the carrier must not learn to cancel large ones before the mapper learns to aim.
    Mapper(tape::Store& store, const EnergyFlowConfig& config);

    /// vectors real [K,1,B,E] -> energies real [K,1,B,S].
    tape::Value forward(tape::Builder& builder, const tape::Value& vectors) const;
    [[nodiscard]] std::int64_t parameters() const { return parameters_; }

private:
    struct Stage {
        nn::Dense linear;
        nn::LayerNorm norm;
        float dropout = 0;
    };
    std::vector<Stage> stages_;  ///< before the last layer; none when compact
    nn::Dense last_;
    std::int64_t parameters_ = 0;
};

/// The largest cosine a surface can reach: sqrt(min(S, E) / E) of a vector in general position.
double cosine_ceiling(const EnergyFlowConfig& config);

class EnergyFlow final : public Model {
public:
    /// `config` must be valid. With the text bridge on, `texts` has a tokenizer.
    explicit EnergyFlow(const EnergyFlowConfig& config, TextShape texts = {}) : config_(config), texts_(std::move(texts)) {}

    /// Beside what is trained: `target_map` [S, E], frozen and saved with the weights, an isometry (an orthogonal projection when
    /// S < E) times surface_scale * sqrt(S).
    base::Status declare(tape::Store& store) override;
    /// vector and goal, both of width E; with the text bridge the tokens of both sides.
    [[nodiscard]] data::Fields wants() const override;
    /// Kept of a training program: the counters of its flows.
    Outputs build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    void append_loss_totals(tape::Builder& builder, data::BatchSource& source, std::int32_t rows) const override;
    /// Text to text, in an evaluation program: inputs -> the bridge's energies -> cube -> answers. Keeps ids i32 [K,1,B,T] and
    /// lengths i32 [K,1,B,1] of the answers and the vectors read back from the surfaces, stat [K,1,B,E]. Only with the text
    /// bridge.
    Outputs build_answer(tape::Builder& builder, const nn::Sequences& inputs);
    [[nodiscard]] bool single_member_only() const override { return true; }
    [[nodiscard]] bool classifies() const override { return false; }
    [[nodiscard]] std::unique_ptr<Scoring> scoring(data::Part part, int member) const override;
    [[nodiscard]] std::string description() const override;
    [[nodiscard]] base::Status check_rows(std::int32_t rows) const override { return check_capacity(config_, rows); }

    /// As build() of one sample, every step done and kept: behind what SurfaceScoring takes the T + 1 flow tables and the T
    /// moves.
    Outputs build_trace(tape::Builder& builder, data::BatchSource& source, data::Part part);
    /// What a run of such a program kept.
    [[nodiscard]] FlowTrace trace_of(const std::vector<std::vector<double>>& kept) const;

    [[nodiscard]] std::vector<std::string> memory_levels() const override;
    [[nodiscard]] std::optional<StepWork> step_work(const std::vector<std::vector<double>>& kept,
                                                    std::int32_t rows) const override;
    [[nodiscard]] std::vector<Attachment> attachments() const override;
    [[nodiscard]] std::vector<Component> components() const override;

    [[nodiscard]] const EnergyFlowConfig& config() const { return config_; }
    [[nodiscard]] const Cube& cube() const { return cube_; }
    /// Of the last build: what the mapper put on the middle plane, [K,1,rows,S].
    [[nodiscard]] const tape::Value& energies() const { return energies_; }
    [[nodiscard]] tape::ParameterId target_map() const { return target_map_; }

private:
    /// What SurfaceScoring takes.
    [[nodiscard]] std::vector<tensor::View> keep_surface(tape::Builder& builder, const tensor::View& surface,
                                                         const tensor::View& targets, const tensor::View& goals) const;
    /// What a surface says in the teacher's space, stat [K,1,B,E]: the transpose of the map leads back.
    [[nodiscard]] tensor::View read_back(tape::Builder& builder, const tensor::View& surface, const char* name) const;

    EnergyFlowConfig config_;
    TextShape texts_;
    Mapper mapper_;
    Cube cube_;
    TextBridge bridge_;
    tape::ParameterId target_map_ = tape::kNoParameter;
    tape::Value energies_;
};

/// Of a sample: its surface, and the paths of its flows. `model` is an EnergyFlow and outlives the pictures.
std::unique_ptr<Pictures> flow_pictures(Model& model);

// Text in, text out: the text bridge and the cube of trained weights.
/// The tokenizer and the widths of the token fields, by which a run that goes on, or is scored, numbers its texts; nothing where
/// the model has no text bridge.
base::Result<data::StoredData> stored_texts(const io::LoadedCheckpoint& checkpoint);

/// Refuses a model without a text bridge, and texts that are empty, wholly unknown or longer than any sentence the bridge has
/// seen. Needs nothing but the checkpoint, unless the nearest target is asked for; data that cannot be loaded then leaves it out,
/// with a warning.
base::Result<TextReport> answer_texts(const TextRequest& request);

}  // namespace millrace::models
