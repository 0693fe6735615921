#pragma once
// The cube: from energies on the middle plane to energies on the surface, with its way back through time.
//
// N rows of flows (EnergyFlowConfig::rows), T steps, H hidden. What the weight gradients need of many steps lies in one buffer of
// windows of N rows per kind, so that each matrix has one product over all flow-steps, or over as many as the budget holds.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "models/energy_flow/config.h"
#include "models/energy_flow/ops/flow.h"
#include "tape/builder.h"

namespace millrace::models {

class Cube {
public:
    Cube() = default;
    /// Declares `neuron.*` and `carrier.*`. A new cube carries energy straight to the surface: the heads' last layers start at
    /// zero.
    Cube(tape::Store& store, const EnergyFlowConfig& config);

    /// e real [K,1,B,S] -> surface stat [K,1,B,S]. In training programs the way back is registered with the builder.
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
        tape::ParameterId in_weight, in_bias, out_weight, out_bias;
        std::int32_t width = 0, outputs = 0, first = 0;  ///< hidden width; columns of u it writes
    };
    struct Cell {
        tape::ParameterId w_ih, w_hh, b_ih, b_hh;
        std::int32_t in = 0;
    };
    struct Pass;
    [[nodiscard]] Head declare_head(tape::Store& store, const std::string& name, std::int32_t width, std::int32_t outputs,
                                    std::int32_t first) const;
    void register_backward(tape::Builder& builder, const std::shared_ptr<Pass>& pass) const;
    void step_forward(tape::Builder& builder, Pass& pass, std::int32_t t) const;
    void append_neuron(tape::Builder& builder, const Pass& pass, std::int32_t t, const tensor::View& out) const;
    /// `gates` absent: not kept.
    void append_cell(tape::Builder& builder, const Pass& pass, std::size_t layer, std::int32_t t, const tensor::View& x,
                     const tensor::View& gates, const tensor::View& out) const;
    /// The first layer of a head, from the state after step t; `saved` absent: not kept.
    void append_head(tape::Builder& builder, const Pass& pass, std::size_t index, std::int32_t t, const tensor::View& saved,
                     const tensor::View& y) const;
    void move_and_spawn(tape::Builder& builder, Pass& pass, std::int32_t t, const tensor::View& u) const;
    void begin_chunk(tape::Builder& builder, Pass& pass, std::int32_t first, std::int32_t count) const;
    [[nodiscard]] std::int32_t chunk_steps(const tape::Builder& builder, const Pass& pass) const;
    [[nodiscard]] ops::FlowCountParams count_params(std::int32_t t) const;
    /// First step and the one behind the last, of at most `length` steps each.
    [[nodiscard]] std::vector<std::pair<std::int32_t, std::int32_t>> chunks_of_steps(std::int32_t length) const;
    /// What a step leaves when it was left out, and the way back of a chunk of them.
    void append_rest(tape::Builder& builder, const Pass& pass, std::int32_t t) const;
    /// dtables: gradients of the tables after the chunk's last step, after the one before it, and so on; earlier: the counters by
    /// which the chunk before is left out, absent when it never is.
    void append_rest_backward(tape::Builder& builder, Pass& pass, const std::vector<tensor::View>& dtables,
                              const tensor::View& earlier) const;
    /// Gradients that steps add to and none may write first: any of them can be left out.
    void begin_sums(tape::Builder& builder, const Pass& pass) const;
    void step_backward(tape::Builder& builder, Pass& pass, std::int32_t t) const;
    void heads_backward(tape::Builder& builder, Pass& pass, std::int32_t t) const;
    void cell_backward(tape::Builder& builder, Pass& pass, std::size_t layer, std::int32_t t) const;
    void weight_gradients(tape::Builder& builder, Pass& pass) const;

    EnergyFlowConfig config_;
    tape::ParameterId neuron_first_ = tape::kNoParameter, neuron_last_ = tape::kNoParameter;
    ops::NeuronParams neuron_;
    std::vector<Cell> cells_;
    std::array<Head, 2> heads_{};
    tensor::View counters_;
    std::vector<tensor::View> tables_, moves_;
    bool every_step_ = false;
};

}  // namespace millrace::models
