#pragma once
// One step of a gated recurrent unit: r = sigma(W_ir x + b_ir + W_hr h + b_hr), z likewise, n = tanh(W_in x + b_in + r (W_hn h +
// b_hn)), h' = (1 - z) n + z h. Used inside a tape::Scan, whose state is h.

#include <cstdint>
#include <string>

#include "tape/scan.h"

namespace millrace::nn {

/// Which rows of a batch take part; the others keep their state and give no gradient. Absent: all.
struct GruMask {
    tensor::View rows;    ///< stat [K,1,B,1]: 0 keeps the row
    tensor::View member;  ///< i32 [K,1,1,1]: 0 keeps all rows of the member
};

class GruCell {
public:
    GruCell() = default;
    /// Declares `<name>.weight_ih` [3H,in], `.weight_hh` [3H,H], `.bias_ih` and `.bias_hh` [3H], rows r, z, n. A new cell has its
    /// update gate open: a slow state.
    GruCell(tape::Store& store, std::string name, std::int32_t in, std::int32_t hidden);

    /// x [K,1,B,C], C >= in: further columns hold finite numbers that do not matter. Writes state.after(t) from state.before(t)
    /// and registers the backward rule. `scratch`: of scratch() below, may be shared by cells and steps.
    tape::Value forward(tape::Builder& builder, const tape::Value& x, const tape::Scan::State& state, std::int32_t t,
                        const tensor::View& scratch, const GruMask& mask = {}) const;
    /// Memory for the products of one forward call with so many rows, stat [K,1,rows,6H].
    [[nodiscard]] tensor::View scratch(tape::Builder& builder, std::int32_t rows) const;

private:
    struct Call;
    void backward(tape::Builder& builder, const Call& call) const;

    std::string name_;
    std::int32_t hidden_ = 0;
    tape::ParameterId w_ih_ = tape::kNoParameter, w_hh_ = tape::kNoParameter;
    tape::ParameterId b_ih_ = tape::kNoParameter, b_hh_ = tape::kNoParameter;
};

}  // namespace millrace::nn
