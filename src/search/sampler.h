#pragma once
// Samplers choose the configurations of new trials. They are pure functions of the study's seed, the trials so far and the
// position of the trial asked for.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "search/trial.h"

namespace millrace::search {

struct SamplerOptions {
    std::string name = "tpe";  ///< random, sobol, grid, tpe, cmaes
    uint64_t seed = 0;
    int64_t grid_points = 5;       ///< of each continuous range of a grid; at least 2
    int64_t startup = 10;          ///< tpe: trials drawn at random before the model is asked
    int64_t candidates = 24;       ///< tpe: drawn from the good ones, the best by expected improvement is taken
    int64_t cmaes_population = 0;  ///< trials of a generation; 0: 4 + 3 ln(parameters)
};

class Sampler {
public:
    virtual ~Sampler() = default;
    /// Configurations of the trials at the positions `first` .. `first + count - 1`, in this order. `trials` are those of the
    /// search so far in the order of their numbers, running ones included. Fewer than `count` when the sampler has no more (a
    /// grid at its end).
    [[nodiscard]] virtual std::vector<Configuration> ask(std::span<const Trial> trials, int64_t first, int64_t count) const = 0;
};

/// Refuses unknown names, options out of range, and spaces that the sampler cannot search.
base::Result<std::unique_ptr<Sampler>> make_sampler(const Space& space, const SamplerOptions& options);

/// One configuration, uniform in the unit cube, as the random sampler gives it to trial `number`.
Configuration random_configuration(const Space& space, uint64_t seed, int64_t number);

}  // namespace millrace::search
