#pragma once
// The energy flow model: a mapper lays a sentence vector on the middle plane as energy, the cube carries it to the surface, and
// the surface is compared with the answer's vector, mapped there by a frozen isometry.

#include "models/energy_flow/cube.h"
#include "models/energy_flow/mapper.h"
#include "models/energy_flow/text_bridge.h"
#include "models/model.h"

namespace millrace::models {

/// The largest cosine a surface can reach: sqrt(min(S, E) / E) of a vector in general position.
double cosine_ceiling(const EnergyFlowConfig& config);

class EnergyFlow final : public Model {
public:
    /// `config` must be valid. With the text bridge on, `sentences` has a tokenizer.
    explicit EnergyFlow(const EnergyFlowConfig& config, data::SentenceShape sentences = {})
        : config_(config), sentences_(std::move(sentences)) {}

    /// Beside what is trained: `target_map` [S, E], frozen and saved with the weights, an isometry (an orthogonal projection when
    /// S < E) times surface_scale * sqrt(S).
    base::Status declare(tape::Store& store) override;
    /// The source gives vectors [rows, E] and, as what they are compared with, the answers' vectors stat [K,1,rows,E]. watched()
    /// of a training program: the counters of its flows.
    void build(tape::Builder& builder, data::BatchSource& source, data::Part part, std::int32_t rows) override;
    /// Text to text, in an evaluation program: inputs -> the bridge's energies -> cube -> answers. watched() are then ids i32
    /// [K,1,B,T] and lengths i32 [K,1,B,1] of the answers and the vectors read back from the surfaces, stat [K,1,B,E]. Only with
    /// the text bridge.
    void build_answer(tape::Builder& builder, const nn::Sentences& inputs);
    [[nodiscard]] bool single_member_only() const override { return true; }
    [[nodiscard]] bool classifies() const override { return false; }
    [[nodiscard]] std::unique_ptr<Scoring> scoring() const override;
    [[nodiscard]] std::string description() const override;
    [[nodiscard]] base::Status check_rows(std::int32_t rows) const override { return check_capacity(config_, rows); }

    bool build_trace(tape::Builder& builder, data::BatchSource& source, data::Part part) override;
    [[nodiscard]] record::FlowTrace trace_of(const std::vector<std::vector<double>>& tensors) const override;

    std::string spare_memory() override;
    [[nodiscard]] std::vector<Attachment> attachments() const override;
    [[nodiscard]] std::vector<Component> components() const override;

    [[nodiscard]] const EnergyFlowConfig& config() const { return config_; }
    [[nodiscard]] const Cube& cube() const { return cube_; }
    /// Of the last build: what the mapper laid on the middle plane, [K,1,rows,S].
    [[nodiscard]] const tape::Value& energies() const { return energies_; }
    [[nodiscard]] tape::ParameterId target_map() const { return target_map_; }

private:
    void watch(tape::Builder& builder, const tensor::View& targets, const tensor::View& goals);
    void watch_bridge(tape::Builder& builder, data::BatchSource& source, data::Part part);
    /// What a surface says in the teacher's space, stat [K,1,B,E]: the transpose of the map leads back.
    [[nodiscard]] tensor::View read_back(tape::Builder& builder, const tensor::View& surface, const char* name) const;

    EnergyFlowConfig config_;
    data::SentenceShape sentences_;
    Mapper mapper_;
    Cube cube_;
    TextBridge bridge_;
    tape::ParameterId target_map_ = tape::kNoParameter;
    tape::Value energies_;
};

}  // namespace millrace::models
