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
    /// One parameter of one kernel. `cell`: the observed choice, or 0 alternative, 1 range; negative for the prior.
    struct Kernel {
        double mean = 0.5;
        double width = 1;
        double inside = 0;  ///< log of the normal's mass within [0, 1]
        double cell = -1;
    };
    [[nodiscard]] double log_kernel(const Parameter& parameter, const Kernel& kernel, double value) const;
    [[nodiscard]] double log_cell(const Kernel& kernel, double cell, double cells) const;
    [[nodiscard]] double sample_cell(const Kernel& kernel, double cells, Stream& stream) const;

    const Space& space_;
    std::vector<double> log_weights_;           ///< of kernels, the prior last
    std::vector<std::vector<Kernel>> kernels_;  ///< [kernel][parameter]
};

}  // namespace millrace::search
