#include "search/sampler.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "search/stream.h"

namespace millrace::search {
namespace {

constexpr double kWidth = 0.2;            // of a kernel around the only observation, in unit intervals
constexpr int64_t kMostTabulated = 4096;  // cells of an integer
constexpr size_t kFullWeights = 25;       // newest observations that count in full

/// The standard normal's mass between a and b.
double normal_mass(double a, double b) {
    constexpr double kRootHalf = 0.7071067811865476;
    // On the side of the tail where differences do not cancel.
    if (a > 0) return 0.5 * (std::erfc(a * kRootHalf) - std::erfc(b * kRootHalf));
    return 0.5 * (std::erfc(-b * kRootHalf) - std::erfc(-a * kRootHalf));
}

double safe_log(double mass) { return std::log(std::max(mass, std::numeric_limits<double>::min())); }

constexpr size_t kMostGood = 25;

class TpeSampler final : public Sampler {
public:
    TpeSampler(Space space, const SamplerOptions& options) : space_(std::move(space)), options_(options) {}

    [[nodiscard]] std::vector<Configuration> ask(std::span<const Trial> trials, int64_t first, int64_t count) const override {
        const std::vector<size_t> order = best_first(trials);
        const bool is_startup = order.size() < static_cast<size_t>(options_.startup);
        std::vector<Configuration> out;
        if (is_startup) {
            for (int64_t i = 0; i < count; ++i) out.push_back(random_configuration(space_, options_.seed, first + i));
            return out;
        }
        std::vector<bool> is_good(trials.size(), false);
        const size_t good_count = std::min((order.size() + 9) / 10, kMostGood);
        for (size_t i = 0; i < good_count; ++i) is_good[order[i]] = true;
        std::vector<Configuration> good, bad;
        for (size_t i = 0; i < trials.size(); ++i) (is_good[i] ? good : bad).push_back(trials[i].configuration);
        const ParzenEstimator of_good(space_, good);
        for (int64_t i = 0; i < count; ++i) {
            out.push_back(improve(of_good, ParzenEstimator(space_, bad), first + i));
            bad.push_back(out.back());
        }
        return out;
    }

private:
    [[nodiscard]] Configuration improve(const ParzenEstimator& good, const ParzenEstimator& bad, int64_t number) const {
        Stream stream(options_.seed, number, Purpose::tpe);
        Configuration best;
        double best_score = -std::numeric_limits<double>::infinity();
        for (int64_t i = 0; i < options_.candidates; ++i) {
            Configuration candidate = good.sample(stream);
            const double score = good.log_density(candidate) - bad.log_density(candidate);
            if (!best.empty() && score <= best_score) continue;
            best = std::move(candidate);
            best_score = score;
        }
        return best;
    }

    Space space_;
    SamplerOptions options_;
};

}  // namespace

ParzenEstimator::ParzenEstimator(const Space& space, std::span<const Configuration> observed) : space_(space) {
    const auto count = static_cast<double>(observed.size());
    const double narrowest = 1 / std::min(100.0, 2 + count);
    const double exponent = -1 / (static_cast<double>(space.size()) + 4);
    width_ = std::clamp(kWidth * std::pow(std::max(count, 1.0), exponent), narrowest, 1.0);
    double sum = 1;  // the prior's weight
    std::vector<double> weights;
    const double older = count - static_cast<double>(kFullWeights);
    for (size_t i = 0; i < observed.size(); ++i) {
        const auto age = static_cast<double>(i);
        const double ramp = older > 1 ? age / (older - 1) : 1;
        weights.push_back(age < older ? 1 / count + (1 - 1 / count) * ramp : 1);
        sum += weights.back();
    }
    weights.push_back(1);
    for (const double weight : weights) log_weights_.push_back(std::log(weight / sum));
    for (size_t p = 0; p < space.size(); ++p) columns_.push_back(column_of(space.parameters[p], observed, p));
}

ParzenEstimator::Column ParzenEstimator::column_of(const Parameter& parameter, std::span<const Configuration> observed,
                                                   size_t index) const {
    Column out;
    const bool is_choice = parameter.kind == ParameterKind::choice;
    for (const Configuration& configuration : observed) {
        const double value = configuration[index];
        const bool is_narrow = !is_choice && !parameter.is_alternative(value);
        out.cells.push_back(is_choice ? value : (is_narrow ? 1 : 0));
        out.means.push_back(is_narrow ? parameter.range_to_unit(value) : 0.5);
        out.is_narrow.push_back(is_narrow);
    }
    out.cells.push_back(-1);
    out.means.push_back(0.5);
    out.is_narrow.push_back(false);
    if (is_choice) return out;
    for (size_t k = 0; k < out.means.size(); ++k) {
        const double width = out.is_narrow[k] ? width_ : 1;
        out.log_insides.push_back(safe_log(normal_mass(-out.means[k] / width, (1 - out.means[k]) / width)));
    }
    const int64_t cells = parameter.cells();
    // Beyond that many cells the mass within one is as good as the density times its width.
    if (cells > kMostTabulated) return out;
    const double half = cells > 0 ? 0.5 / static_cast<double>(cells) : 0;
    for (int64_t distance = 0; distance < cells; ++distance) {
        const double at = static_cast<double>(distance) / static_cast<double>(cells);
        out.log_cell_masses.push_back(safe_log(normal_mass((at - half) / width_, (at + half) / width_)));
    }
    return out;
}

/// The density of a choice: one observation for the kernel's own, and one shared by all of the kernels for each cell.
void ParzenEstimator::add_cells(const Column& column, double cell, double cells, std::vector<double>& terms) const {
    const double smooth = 1 / static_cast<double>(terms.size());
    const double same = std::log((smooth + 1) / (smooth * cells + 1)), other = std::log(smooth / (smooth * cells + 1));
    const double prior = -std::log(cells);
    for (size_t k = 0; k + 1 < terms.size(); ++k) terms[k] += column.cells[k] == cell ? same : other;
    terms.back() += prior;
}

void ParzenEstimator::add_normals(const Parameter& parameter, const Column& column, double value,
                                  std::vector<double>& terms) const {
    const double unit = parameter.range_to_unit(value);
    if (!column.log_cell_masses.empty()) {
        const auto cells = static_cast<double>(parameter.cells());
        const double wide = safe_log(normal_mass(unit - 0.5 / cells - 0.5, unit + 0.5 / cells - 0.5));
        for (size_t k = 0; k < terms.size(); ++k) {
            const auto distance = static_cast<size_t>(std::abs(unit - column.means[k]) * cells + 0.5);
            terms[k] += (column.is_narrow[k] ? column.log_cell_masses[distance] : wide) - column.log_insides[k];
        }
        return;
    }
    const double log_width = std::log(width_), inverse = 1 / width_;
    for (size_t k = 0; k < terms.size(); ++k) {
        const bool is_narrow = column.is_narrow[k];
        const double distance = (unit - column.means[k]) * (is_narrow ? inverse : 1);
        terms[k] -= 0.5 * distance * distance + (is_narrow ? log_width : 0) + column.log_insides[k];
    }
}

double ParzenEstimator::log_density(const Configuration& configuration) const {
    std::vector<double> terms = log_weights_;
    for (size_t p = 0; p < space_.size(); ++p) {
        const Parameter& parameter = space_.parameters[p];
        const double value = configuration[p];
        if (parameter.kind == ParameterKind::choice) {
            add_cells(columns_[p], value, static_cast<double>(parameter.cells()), terms);
            continue;
        }
        const bool is_alternative = parameter.is_alternative(value);
        if (parameter.alternative) add_cells(columns_[p], is_alternative ? 0 : 1, 2, terms);
        if (!is_alternative) add_normals(parameter, columns_[p], value, terms);
    }
    const double largest = *std::max_element(terms.begin(), terms.end());
    double sum = 0;
    for (const double term : terms) sum += std::exp(term - largest);
    return largest + std::log(sum);
}

double ParzenEstimator::sample_cell(double kernel_cell, double cells, Stream& stream) const {
    const double smooth = 1 / static_cast<double>(log_weights_.size());
    const double stay = kernel_cell < 0 ? 0 : 1 / (smooth * cells + 1);
    const double draw = stream.uniform(), other = stream.uniform();
    return draw < stay ? kernel_cell : std::floor(other * cells);
}

Configuration ParzenEstimator::sample(Stream& stream) const {
    double draw = stream.uniform();
    size_t chosen = 0;
    for (; chosen + 1 < log_weights_.size(); ++chosen) {
        draw -= std::exp(log_weights_[chosen]);
        if (draw < 0) break;
    }
    Configuration out;
    for (size_t p = 0; p < space_.size(); ++p) {
        const Parameter& parameter = space_.parameters[p];
        const Column& column = columns_[p];
        if (parameter.kind == ParameterKind::choice) {
            out.push_back(sample_cell(column.cells[chosen], static_cast<double>(parameter.cells()), stream));
            continue;
        }
        if (parameter.alternative && sample_cell(column.cells[chosen], 2, stream) == 0) {
            out.push_back(*parameter.alternative);
            continue;
        }
        // At least a third of the mass of every kernel lies within [0, 1], so few draws are thrown away.
        double unit = -1;
        while (unit < 0 || unit > 1) unit = column.means[chosen] + (column.is_narrow[chosen] ? width_ : 1) * stream.normal();
        out.push_back(parameter.range_from_unit(unit));
    }
    return out;
}

base::Result<std::unique_ptr<Sampler>> make_tpe_sampler(const Space& space, const SamplerOptions& options) {
    if (options.startup < 1 || options.candidates < 1)
        return base::Error{fmt::format("the tpe sampler needs at least one startup trial and one candidate, not {} and {}",
                                       options.startup, options.candidates)};
    return std::unique_ptr<Sampler>{std::make_unique<TpeSampler>(space, options)};
}

}  // namespace millrace::search
