#include "search/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "search/stream.h"

namespace millrace::search {
namespace {

constexpr int kMostSweeps = 50;  // five to ten are usual

/// Makes element (p, q) zero by rotating rows and columns p and q, and turns the columns of `vectors` along.
void rotate(std::vector<double>& a, std::vector<double>& vectors, size_t n, size_t p, size_t q) {
    const double theta = (a[q * n + q] - a[p * n + p]) / (2 * a[p * n + q]);
    const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
    const double c = 1 / std::sqrt(t * t + 1), s = t * c;
    for (size_t k = 0; k < n; ++k) {
        const double kp = a[k * n + p], kq = a[k * n + q];
        a[k * n + p] = c * kp - s * kq;
        a[k * n + q] = s * kp + c * kq;
    }
    for (size_t k = 0; k < n; ++k) {
        const double pk = a[p * n + k], qk = a[q * n + k];
        a[p * n + k] = c * pk - s * qk;
        a[q * n + k] = s * pk + c * qk;
        const double vp = vectors[k * n + p], vq = vectors[k * n + q];
        vectors[k * n + p] = c * vp - s * vq;
        vectors[k * n + q] = s * vp + c * vq;
    }
}

constexpr double kFirstStep = 0.3;       // the standard deviation of the first generation
constexpr double kSmallestStep = 1e-12;  // below it all samples are the same double
constexpr int64_t kLargestPopulation = 100000;

/// Reflects a coordinate at 0 and 1 until it lies between them.
double reflected(double x) {
    const double wrapped = std::fmod(std::abs(x), 2.0);
    return wrapped > 1 ? 2 - wrapped : wrapped;
}

/// Mean, covariance and step size, with the constants of the tutorial's table 1. n parameters.
class Distribution {
public:
    Distribution(size_t n, int64_t population) : n_(n), mean_(n, 0.5), path_sigma_(n, 0), path_c_(n, 0), covariance_(n * n, 0) {
        for (size_t i = 0; i < n; ++i) covariance_[i * n + i] = 1;
        const auto parents = static_cast<size_t>(population / 2);
        double sum = 0, squares = 0;
        for (size_t i = 0; i < parents; ++i) {
            weights_.push_back(std::log((static_cast<double>(population) + 1) / 2) - std::log(static_cast<double>(i) + 1));
            sum += weights_.back();
        }
        for (double& weight : weights_) {
            weight /= sum;
            squares += weight * weight;
        }
        const auto d = static_cast<double>(n);
        mu_eff_ = 1 / squares;
        c_sigma_ = (mu_eff_ + 2) / (d + mu_eff_ + 5);
        d_sigma_ = 1 + 2 * std::max(0.0, std::sqrt((mu_eff_ - 1) / (d + 1)) - 1) + c_sigma_;
        c_c_ = (4 + mu_eff_ / d) / (d + 4 + 2 * mu_eff_ / d);
        c_1_ = 2 / ((d + 1.3) * (d + 1.3) + mu_eff_);
        c_mu_ = std::min(1 - c_1_, 2 * (mu_eff_ - 2 + 1 / mu_eff_) / ((d + 2) * (d + 2) + mu_eff_));
        expected_length_ = std::sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d));
        longest_ = std::sqrt(d) + 2 * d / (d + 2);
        decompose();
    }

    [[nodiscard]] size_t parents() const { return weights_.size(); }

    [[nodiscard]] std::vector<double> sample(Stream& stream) const {
        std::vector<double> z(n_), x = mean_;
        for (size_t i = 0; i < n_; ++i) z[i] = stream.normal() * scales_[i];
        for (size_t i = 0; i < n_; ++i)
            for (size_t k = 0; k < n_; ++k) x[i] += sigma_ * eigen_.vectors[i * n_ + k] * z[k];
        for (double& coordinate : x) coordinate = reflected(coordinate);
        return x;
    }

    /// Moves to the `best` points (as many as parents(), best first).
    void update(const std::vector<std::vector<double>>& best) {
        std::vector<std::vector<double>> steps;
        std::vector<double> mean_step(n_, 0);
        for (size_t i = 0; i < best.size(); ++i) {
            std::vector<double>& y = steps.emplace_back(n_);
            for (size_t k = 0; k < n_; ++k) y[k] = (best[i][k] - mean_[k]) / sigma_;
            // A trial that was drawn from an older distribution may be far out; a tutorial's rule for foreign points.
            const double length = norm(whitened(y));
            const double factor = length > longest_ ? longest_ / length : 1;
            for (size_t k = 0; k < n_; ++k) {
                y[k] *= factor;
                mean_step[k] += weights_[i] * y[k];
            }
        }
        ++generation_;
        const std::vector<double> white = whitened(mean_step);
        for (size_t k = 0; k < n_; ++k) {
            mean_[k] = std::clamp(mean_[k] + sigma_ * mean_step[k], 0.0, 1.0);
            path_sigma_[k] = (1 - c_sigma_) * path_sigma_[k] + std::sqrt(c_sigma_ * (2 - c_sigma_) * mu_eff_) * white[k];
        }
        const double length = norm(path_sigma_);
        const double settled = std::sqrt(1 - std::pow(1 - c_sigma_, 2 * generation_));
        const bool is_steady = length / settled < (1.4 + 2 / (static_cast<double>(n_) + 1)) * expected_length_;
        for (size_t k = 0; k < n_; ++k)
            path_c_[k] = (1 - c_c_) * path_c_[k] + (is_steady ? std::sqrt(c_c_ * (2 - c_c_) * mu_eff_) * mean_step[k] : 0);
        const double kept = 1 - c_1_ - c_mu_ + (is_steady ? 0 : c_1_ * c_c_ * (2 - c_c_));
        for (size_t i = 0; i < n_; ++i)
            for (size_t k = 0; k < n_; ++k) {
                double rank_mu = 0;
                for (size_t s = 0; s < steps.size(); ++s) rank_mu += weights_[s] * steps[s][i] * steps[s][k];
                covariance_[i * n_ + k] = kept * covariance_[i * n_ + k] + c_1_ * path_c_[i] * path_c_[k] + c_mu_ * rank_mu;
            }
        sigma_ *= std::exp(std::min(1.0, c_sigma_ / d_sigma_ * (length / expected_length_ - 1)));
        sigma_ = std::clamp(sigma_, kSmallestStep, 1.0);
        decompose();
    }

private:
    void decompose() {
        eigen_ = symmetric_eigen(covariance_, n_);
        scales_.clear();
        for (const double value : eigen_.values) scales_.push_back(std::sqrt(std::max(value, 1e-20)));
    }

    /// C^(-1/2) y.
    [[nodiscard]] std::vector<double> whitened(const std::vector<double>& y) const {
        std::vector<double> out(n_, 0);
        for (size_t k = 0; k < n_; ++k) {
            double along = 0;
            for (size_t i = 0; i < n_; ++i) along += eigen_.vectors[i * n_ + k] * y[i];
            for (size_t i = 0; i < n_; ++i) out[i] += eigen_.vectors[i * n_ + k] * along / scales_[k];
        }
        return out;
    }

    static double norm(const std::vector<double>& v) {
        double sum = 0;
        for (const double x : v) sum += x * x;
        return std::sqrt(sum);
    }

    size_t n_;
    double sigma_ = kFirstStep;
    int generation_ = 0;
    std::vector<double> mean_, path_sigma_, path_c_, covariance_;  // [n], the covariance [n, n]
    std::vector<double> weights_;                                  // of the parents, best first
    double mu_eff_, c_sigma_, d_sigma_, c_c_, c_1_, c_mu_, expected_length_, longest_;
    SymmetricEigen eigen_;
    std::vector<double> scales_;  // roots of the covariance's eigenvalues
};

class CmaesSampler final : public Sampler {
public:
    CmaesSampler(Space space, uint64_t seed, int64_t population)
        : space_(std::move(space)), seed_(seed), population_(population) {}

    [[nodiscard]] std::vector<Configuration> ask(std::span<const Trial> trials, int64_t first, int64_t count) const override {
        std::map<int64_t, std::vector<Trial>> generations;
        for (size_t i = 0; i < trials.size(); ++i) generations[static_cast<int64_t>(i) / population_].push_back(trials[i]);
        std::vector<Configuration> out;
        Distribution distribution(space_.size(), population_);
        auto next = generations.begin();
        for (int64_t number = first; number < first + count; ++number) {
            for (; next != generations.end() && next->first < number / population_; ++next) learn(distribution, next->second);
            Stream stream(seed_, number, Purpose::cmaes);
            out.push_back(space_.from_unit(distribution.sample(stream)));
        }
        return out;
    }

private:
    void learn(Distribution& distribution, const std::vector<Trial>& generation) const {
        const std::vector<size_t> order = best_first(generation);
        if (order.size() < distribution.parents()) return;
        std::vector<std::vector<double>> best;
        for (size_t i = 0; i < distribution.parents(); ++i) best.push_back(space_.to_unit(generation[order[i]].configuration));
        distribution.update(best);
    }

    Space space_;
    uint64_t seed_;
    int64_t population_;
};

}  // namespace

SymmetricEigen symmetric_eigen(std::vector<double> matrix, size_t n) {
    SymmetricEigen out{std::vector<double>(n), std::vector<double>(n * n, 0)};
    for (size_t i = 0; i < n; ++i) out.vectors[i * n + i] = 1;
    double norm = 0;
    for (const double element : matrix) norm += element * element;
    for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
        double off = 0;
        for (size_t p = 0; p < n; ++p)
            for (size_t q = p + 1; q < n; ++q) off += matrix[p * n + q] * matrix[p * n + q];
        if (off <= 1e-30 * norm) break;
        for (size_t p = 0; p < n; ++p)
            for (size_t q = p + 1; q < n; ++q)
                if (matrix[p * n + q] != 0) rotate(matrix, out.vectors, n, p, q);
    }
    for (size_t i = 0; i < n; ++i) out.values[i] = matrix[i * n + i];
    return out;
}

base::Result<std::unique_ptr<Sampler>> make_cmaes_sampler(const Space& space, const SamplerOptions& options) {
    for (const Parameter& parameter : space.parameters)
        if (parameter.kind == ParameterKind::choice || parameter.alternative)
            return base::Error{
                fmt::format("the cmaes sampler searches ranges alone, but {} is {}; take tpe, or write it as a range",
                            parameter.name, parameter.alternative ? "a range with \"or\"" : "a choice"),
                parameter.place};
    int64_t population = options.cmaes_population;
    if (population == 0) population = 4 + static_cast<int64_t>(3 * std::log(static_cast<double>(space.size())));
    if (population < 4 || population > kLargestPopulation)
        return base::Error{
            fmt::format("a generation of cmaes needs from 4 to {} trials, not {}", kLargestPopulation, population)};
    return std::unique_ptr<Sampler>{std::make_unique<CmaesSampler>(space, options.seed, population)};
}

}  // namespace millrace::search
