#pragma once
// A Parzen estimator over a space: a mixture with one kernel for each observed configuration and a wide one for the prior. A
// kernel is a product over parameters (so the mixture knows how they go together): normals in the unit interval, cut off at its
// ends, for ranges; smoothed indicators for choices and for "alternative or range".

#include <span>
#include <vector>

#include "search/space.h"
#include "search/stream.h"

namespace millrace::search {

class ParzenEstimator {
public:
    /// `observed` from the oldest to the newest: beyond 25 the older ones weigh less. Holds `space` by reference.
    ParzenEstimator(const Space& space, std::span<const Configuration> observed);

    [[nodiscard]] Configuration sample(Stream& stream) const;
    /// Of a configuration of the space; up to a constant that all estimators of the space share.
    [[nodiscard]] double log_density(const Configuration& configuration) const;

private:
    /// One parameter of all kernels.
    struct Column {
        std::vector<double> cells;            ///< the observed choice, or 0 alternative, 1 range; -1 for the prior
        std::vector<double> means;            ///< of the normal in [0, 1]
        std::vector<bool> is_narrow;          ///< its width is width_, else 1
        std::vector<double> log_insides;      ///< log of its mass within [0, 1]
        std::vector<double> log_cell_masses;  ///< of integers: its mass in a cell, by the distance from the kernel's cell
    };
    [[nodiscard]] Column column_of(const Parameter& parameter, std::span<const Configuration> observed, size_t index) const;
    void add_cells(const Column& column, double cell, double cells, std::vector<double>& terms) const;
    void add_normals(const Parameter& parameter, const Column& column, double value, std::vector<double>& terms) const;
    [[nodiscard]] double sample_cell(double kernel_cell, double cells, Stream& stream) const;

    const Space& space_;
    double width_;                     ///< of the kernels of observations, in unit intervals
    std::vector<double> log_weights_;  ///< of kernels, the prior last
    std::vector<Column> columns_;      ///< one for each parameter
};

}  // namespace millrace::search
