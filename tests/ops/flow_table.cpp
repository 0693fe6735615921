#include "flow_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/philox.h"
#include "models/energy_flow/ops/flow.h"

namespace millrace::ops::cases {
namespace {

std::size_t row_of(const FlowSpec& spec, int member, int row) {
    return static_cast<std::size_t>(member) * static_cast<std::size_t>(spec.rows()) + static_cast<std::size_t>(row);
}

bool is_active(const FlowSpec& spec, int member, int row) {
    return row < spec.used() && number(101, row_of(spec, member, row), 0, 1) < spec.alive;
}

/// A place inside a cell, never near its border.
double place(int cells_across, std::uint32_t stream, std::size_t element) {
    const double cell = std::min(cells_across - 2.0, std::floor(number(stream, element, 0, cells_across - 1)));
    return static_cast<float>(-1 + 2 * (cell + number(stream + 1, element, 0.01, 0.99)) / (cells_across - 1));
}

}  // namespace

std::string FlowSpec::text() const {
    return fmt::format("K{}_B{}_W{}_H{}_N{}{}{}", k, samples, width, height, rows(),
                       taken > 0 ? fmt::format("_taken{}", taken) : "", stopped >= 0 ? "_stopped" : "");
}

double number(std::uint32_t stream, std::size_t element, double low, double high) {
    const double u = base::uniform01(base::random_bits(4242, stream, 0, 0, element));
    return static_cast<float>(low + u * (high - low));
}

bool is_alive(const FlowSpec& spec, int member, int row) { return member != spec.stopped && is_active(spec, member, row); }

std::vector<double> flow_values(const FlowSpec& spec, std::uint32_t stream) {
    std::vector<double> values;
    stream *= 16;
    for (int m = 0; m < spec.k; ++m)
        for (int row = 0; row < spec.rows(); ++row) {
            const std::size_t i = row_of(spec, m, row);
            const double energy = number(stream + 4, i, -1, 1),
                         owner = row < spec.first() ? row / spec.cells() : row % spec.samples;
            const double sign = number(102, i, -1, 1) < 0 ? -1 : 1;
            if (row < spec.used())
                values.insert(values.end(),
                              {place(std::max(2, spec.width), stream, i), place(std::max(2, spec.height), stream + 2, i),
                               number(stream + 5, i, -0.95, 0.95), energy, sign, is_active(spec, m, row) ? 1.0 : 0.0, owner, -1});
            else
                values.insert(values.end(), {0, 0, 0, 0, 1, 0, 0, -1});
        }
    return values;
}

std::vector<double> counter_values(const FlowSpec& spec) {
    std::vector<double> values;
    for (int m = 0; m < spec.k; ++m) {
        std::vector<double> one(kFlowCounters, 0.0);
        one[flow_counter::used] = spec.used();
        one[flow_counter::spawned] = spec.taken;
        one[flow_counter::refused] = m;
        one[flow_counter::reflected] = 3 + m;
        one[flow_counter::flow_steps] = 1000 + m;
        one[flow_counter::stopped] = m == spec.stopped ? 1 : 0;
        one[flow_counter::alive] = m != spec.stopped && spec.used() > 0 ? 1 : 0;
        values.insert(values.end(), one.begin(), one.end());
    }
    return values;
}

std::vector<double> moved_values(const FlowSpec& spec, std::uint32_t stream, int max_spawn) {
    std::vector<double> values;
    stream *= 16;
    for (int m = 0; m < spec.k; ++m)
        for (int row = 0; row < spec.rows(); ++row) {
            const std::size_t i = row_of(spec, m, row);
            std::vector<double> one(kMovedColumns, 0.0);
            if (is_alive(spec, m, row)) {
                for (std::uint32_t c = moved::gain; c <= moved::move_z; ++c) one[c] = number(stream + c, i, -0.49, 0.49);
                one[moved::bits] = std::int32_t{kAlive} + std::floor(number(stream + 8, i, 0, 8));
                one[moved::wanted] = std::max(0.0, std::floor(number(stream + 9, i, -max_spawn - 1, max_spawn + 1)));
            }
            values.insert(values.end(), one.begin(), one.end());
        }
    return values;
}

void admit(const FlowSpec& spec, std::vector<double>& moved, std::vector<double>& flow) {
    for (int m = 0; m < spec.k; ++m) {
        int begin = spec.used();
        for (int row = 0; row < spec.used(); ++row) {
            double* at = moved.data() + row_of(spec, m, row) * kMovedColumns;
            const int wanted = static_cast<int>(at[moved::wanted]), admitted = std::min(wanted, std::max(0, spec.rows() - begin));
            if (wanted == 0) continue;
            at[moved::admitted] = admitted;
            at[moved::first_child] = begin;
            for (int child = begin; child < begin + admitted; ++child)
                flow[row_of(spec, m, child) * kFlowColumns + flow::parent] = row;
            begin += wanted;
        }
    }
}

std::vector<double> flow_gradient(const FlowSpec& spec, std::uint32_t stream) {
    std::vector<double> values;
    for (int i = 0; i < spec.k * spec.rows(); ++i)
        for (std::uint32_t c = 0; c < kFlowColumns; ++c)
            values.push_back(c < flow::heading ? number(stream * 16 + c, static_cast<std::size_t>(i), -1, 1) : 0);
    return values;
}

}  // namespace millrace::ops::cases
