#pragma once
// Flow tables for the cases: values that a step could have left, away from the places where rounding decides.

#include <cstdint>
#include <string>
#include <vector>

#include "models/energy_flow/ops/flow.h"
#include "op_case.h"

namespace millrace::ops::cases {

struct FlowSpec {
    int k = 1, samples = 1, width = 2, height = 2;
    int spare = 0, taken = 0;  ///< rows behind those of the surface, and how many of them earlier steps have filled
    double alive = 0.7;        ///< share of the filled rows that are active
    int stopped = -1;          ///< this member has stopped

    [[nodiscard]] int cells() const { return width * height; }
    [[nodiscard]] int first() const { return samples * cells(); }
    [[nodiscard]] int used() const { return first() + taken; }
    [[nodiscard]] int rows() const { return first() + spare; }
    [[nodiscard]] std::string text() const;
};

/// Uniform in [low, high), a function of `stream` and `element` alone, rounded to f32.
double number(std::uint32_t stream, std::size_t element, double low, double high);
/// Active, and its member has not stopped.
bool is_alive(const FlowSpec& spec, int member, int row);

/// [K, N, kFlowColumns]; every stream has other positions and energies, the same rows are active. No position lies within 1 % of
/// a cell from the border of one.
std::vector<double> flow_values(const FlowSpec& spec, std::uint32_t stream);
/// [K, kFlowCounters]
std::vector<double> counter_values(const FlowSpec& spec);
/// [K, N, kMovedColumns] as flow_move leaves it, with up to `max_spawn` children wanted by some of the alive rows.
std::vector<double> moved_values(const FlowSpec& spec, std::uint32_t stream, int max_spawn);
/// Admits the wanted children as flow_spawn does; in `flow` they get their parent alone.
void admit(const FlowSpec& spec, std::vector<double>& moved, std::vector<double>& flow);
/// [K, N, kFlowColumns]: the gradient of a table.
std::vector<double> flow_gradient(const FlowSpec& spec, std::uint32_t stream);

}  // namespace millrace::ops::cases
