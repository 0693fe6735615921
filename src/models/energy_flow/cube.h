#pragma once
// The cube: from energies on the middle plane to energies on the surface.
//
// N rows of flows (EnergyFlowConfig::rows), T steps, H hidden. A step is the body of a tape::Scan: the neuron looks at each flow,
// GRU layers carry a state, two heads say how much energy is gained and where the flow moves. Operators in ops/flow_op.h.

#include <array>
#include <memory>
#include <vector>

#include "models/energy_flow/config.h"
#include "models/energy_flow/ops/flow.h"
#include "nn/dense.h"
#include "nn/gru.h"

namespace millrace::models {

class Cube {
public:
    Cube() = default;
    /// Declares `neuron.*` and `carrier.*`. A new cube carries energy straight to the surface: the heads' last layers start at
    /// zero.
    Cube(tape::Store& store, const EnergyFlowConfig& config);

    /// e real [K,1,B,S] -> surface stat [K,1,B,S]. In training programs its backward rule is registered with the builder.
    tape::Value forward(tape::Builder& builder, const tape::Value& e);

    /// Of the forward calls to come.
    void set_recompute(Recompute recompute) { config_.recompute = recompute; }

    /// Evaluation programs built from here on do every step, also those without flows: their moves are then defined.
    void do_every_step(bool every) { every_step_ = every; }

    /// Of the last forward call: i32 [K,1,1,ops::kFlowCounters].
    [[nodiscard]] const tensor::View& counters() const { return counters_; }
    /// Of the last forward call: the flow tables before each step and after the last, stat [K,1,N,8]; in evaluation programs the
    /// last alone keeps its content.
    [[nodiscard]] const std::vector<tensor::View>& tables() const { return tables_; }
    /// Of the last forward call: what each step did, stat [K,1,N,8] (ops::moved); in evaluation programs none keeps its content.
    [[nodiscard]] const std::vector<tensor::View>& moves() const { return moves_; }

private:
    struct Head {
        nn::Dense in, out;
        std::int32_t first = 0, outputs = 0;  ///< columns of u it writes
    };
    struct Pass;
    [[nodiscard]] std::shared_ptr<tape::Scan> make_scan(tape::Builder& builder, const std::shared_ptr<Pass>& pass) const;
    void step(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::int32_t t) const;
    tape::Value neuron(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::size_t t) const;
    void move(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::size_t t, const tape::Value& u) const;
    void spawn(tape::Builder& builder, const std::shared_ptr<Pass>& pass, std::int32_t t) const;
    [[nodiscard]] ops::FlowGridParams grid() const { return {config_.width, config_.height}; }
    [[nodiscard]] ops::FlowCountParams count_params(std::int32_t t) const {
        return {t, config_.least_steps(), config_.patience, config_.stop_at, config_.early_stop};
    }

    EnergyFlowConfig config_;
    tape::ParameterId neuron_first_ = tape::kNoParameter, neuron_last_ = tape::kNoParameter, last_ = tape::kNoParameter;
    ops::NeuronParams neuron_;
    std::vector<nn::GruCell> cells_;
    std::array<Head, 2> heads_;
    tensor::View counters_;
    std::vector<tensor::View> tables_, moves_;
    bool every_step_ = false;
};

}  // namespace millrace::models
