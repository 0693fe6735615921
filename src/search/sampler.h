#pragma once
// Samplers choose the configurations of new trials. They are pure functions of the study's seed, the trials so far and the
// position of the trial asked for.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "search/space.h"
#include "search/stream.h"
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

/// Trial n gets point n, whatever the others are; from point `end` on there are none.
class PointSampler final : public Sampler {
public:
    using Point = std::function<Configuration(int64_t number)>;
    explicit PointSampler(Point point, int64_t end = std::numeric_limits<int64_t>::max()) : point_(std::move(point)), end_(end) {}
    [[nodiscard]] std::vector<Configuration> ask(std::span<const Trial> /*trials*/, int64_t first, int64_t count) const override {
        std::vector<Configuration> out;
        for (int64_t number = first; number < first + count && number < end_; ++number) out.push_back(point_(number));
        return out;
    }

private:
    Point point_;
    int64_t end_;
};

/// Refuses unknown names, options out of range, and spaces that the sampler cannot search.
base::Result<std::unique_ptr<Sampler>> make_sampler(const Space& space, const SamplerOptions& options);

/// The tree-structured Parzen estimator, multivariate as in Optuna 5: one density of the good trials, one of the others, and the
/// configuration among some drawn from the good ones where their ratio is largest. The best tenth (at most 25, by best_first:
/// constraints first, several objectives by front) is good; running trials count as bad ones, so that trials asked for at the
/// same time keep apart. Refuses fewer than one startup trial or candidate.
base::Result<std::unique_ptr<Sampler>> make_tpe_sampler(const Space& space, const SamplerOptions& options);

/// Covariance matrix adaptation (Hansen, "The CMA Evolution Strategy: a tutorial") in the unit cube: weighted recombination,
/// rank-one and rank-mu updates, cumulative step size adaptation. Coordinates outside of the cube are reflected at its faces.
/// Trials g * population .. (g + 1) * population - 1 are generation g. The distribution that a trial is drawn from is computed
/// from the earlier generations' trials, in their order by best_first; a generation of which less than half is known is left out.
/// Refuses choices and parameters with an alternative: they have no direction to go.
base::Result<std::unique_ptr<Sampler>> make_cmaes_sampler(const Space& space, const SamplerOptions& options);

/// One configuration, uniform in the unit cube, as the random sampler gives it to trial `number`.
Configuration random_configuration(const Space& space, uint64_t seed, int64_t number);

inline constexpr size_t kSobolDimensions = 32;

/// Sobol's sequence with the direction numbers of Joe and Kuo ("new-joe-kuo-6"): the coordinates of point `index` as fractions of
/// 2^32.
std::vector<uint32_t> sobol_point(uint32_t index, size_t dimensions);

/// Trial n gets point n, scrambled by a digital shift. At most kSobolDimensions parameters.
base::Result<std::unique_ptr<Sampler>> make_sobol_sampler(const Space& space, uint64_t seed);

/// Of a small symmetric matrix.
struct SymmetricEigen {
    std::vector<double> values;   ///< [n], in no order
    std::vector<double> vectors;  ///< [n, n] row-major; column i belongs to values[i]; orthonormal
};

/// By Jacobi's rotations. `matrix` is [n, n] row-major and symmetric.
SymmetricEigen symmetric_eigen(std::vector<double> matrix, size_t n);

/// A Parzen estimator over a space: a mixture with one kernel for each observed configuration and a wide one for the prior. A
/// kernel is a product over parameters (so the mixture knows how they go together): normals in the unit interval, cut off at its
/// ends, for ranges; smoothed indicators for choices and for "alternative or range".
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
