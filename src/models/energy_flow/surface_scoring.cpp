#include "models/energy_flow/surface_scoring.h"

#include <fmt/format.h>

#include <cmath>

#include "models/energy_flow/energy_flow.h"

namespace millrace::models {
namespace {

namespace counter = ops::flow_counter;

void append(std::vector<float>& all, const std::vector<double>& values) {
    for (const double value : values) all.push_back(static_cast<float>(value));
}

double dot(const float* a, const float* b, std::size_t width) {
    double sum = 0;
    for (std::size_t d = 0; d < width; ++d) sum += double{a[d]} * double{b[d]};
    return sum;
}

}  // namespace

double mean_cosine(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width) {
    const std::size_t n = targets.size() / width;
    double sum = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const float *a = found.data() + i * width, *b = targets.data() + i * width;
        const double length = std::sqrt(dot(a, a, width) * dot(b, b, width));
        sum += length > 0 ? dot(a, b, width) / length : length;
    }
    return sum / static_cast<double>(n);
}

double retrieval_at_1(const std::vector<float>& found, const std::vector<float>& targets, std::size_t width) {
    const std::size_t n = targets.size() / width;
    std::vector<float> columns(targets.size());  // [width, n]: the sums over `width` below then run side by side
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t d = 0; d < width; ++d) columns[d * n + i] = targets[i * width + d];
    std::vector<float> scores(n);
    std::size_t hits = 0;
    for (std::size_t i = 0; i < n; ++i) {
        std::fill(scores.begin(), scores.end(), 0.0f);
        double length = 0;
        for (std::size_t d = 0; d < width; ++d) {
            const float value = found[i * width + d];
            length += double{value} * double{value};
            for (std::size_t j = 0; j < n; ++j) scores[j] += value * columns[d * n + j];
        }
        if (!(length > 0) || !std::isfinite(length)) continue;
        bool first = true;
        for (std::size_t j = 0; j < n && first; ++j) first = scores[j] <= scores[i];
        hits += first ? 1 : 0;
    }
    return static_cast<double>(hits) / static_cast<double>(n);
}

void SurfaceScoring::add(const std::vector<std::vector<double>>& batch) {
    append(found_, batch[found]);
    append(mapper_found_, batch[mapper_found]);
    append(targets_, batch[targets]);
    const auto cells = static_cast<std::size_t>(config_.cells());
    const std::size_t rows = batch[surface].size() / cells;
    double squares = 0;
    for (std::size_t i = 0; i < batch[surface].size(); ++i) {
        const double error = batch[energies][i] - batch[goals][i];
        squares += error * error;
        covered_ += batch[surface][i] != 0 ? 1 : 0;
    }
    cells_ += static_cast<std::int64_t>(batch[surface].size());
    mapper_loss_ += squares / static_cast<double>(cells);
    for (std::size_t i = 0; i < counters_.size(); ++i) counters_[i] += static_cast<std::int64_t>(batch[counters][i]);
    steps_ += batch[counters][counter::steps] * static_cast<double>(rows);
}

Scored SurfaceScoring::finish() const {
    const auto width = static_cast<std::size_t>(config_.embedding);
    const double rows = static_cast<double>(targets_.size()) / static_cast<double>(width), ceiling = cosine_ceiling(config_);
    const double cosine = mean_cosine(found_, targets_, width), retrieval = retrieval_at_1(found_, targets_, width);
    const double mapper_loss = mapper_loss_ / rows, mapper_cosine = mean_cosine(mapper_found_, targets_, width);
    const double mapper_retrieval = retrieval_at_1(mapper_found_, targets_, width), steps = steps_ / rows;
    const double coverage = static_cast<double>(covered_) / static_cast<double>(cells_);
    const std::int64_t created = counters_[counter::used], up = counters_[counter::arrived_up],
                       down = counters_[counter::arrived_down];
    Scored scored;
    scored.figures = {{"validation_cosine", cosine},    {"cosine_ceiling", ceiling},
                      {"retrieval_at_1", retrieval},    {"mapper_loss", mapper_loss},
                      {"mapper_cosine", mapper_cosine}, {"mapper_retrieval_at_1", mapper_retrieval},
                      {"flow_steps_used", steps},       {"cell_coverage", coverage}};
    const auto count = [&](const char* name, std::int64_t value) {
        scored.figures.push_back({name, static_cast<double>(value)});
    };
    count("flows_created", created);
    count("flows_spawned", counters_[counter::spawned]);
    count("flows_refused", counters_[counter::refused]);
    count("flows_arrived_up", up);
    count("flows_arrived_down", down);
    count("flows_projected", created - up - down);
    count("flows_reflected", counters_[counter::reflected]);
    scored.summary = fmt::format("cosine {:.3f} (ceiling {:.3f}) retrieval@1 {:.3f} of {}", cosine, ceiling, retrieval, rows);
    scored.notes.push_back(
        fmt::format("mapper alone: loss {:.4f} cosine {:.3f} retrieval@1 {:.3f}", mapper_loss, mapper_cosine, mapper_retrieval));
    scored.notes.push_back(fmt::format(
        "flows: {} created ({} spawned, {} refused), {} arrived above, {} below, {} projected, {} reflected; {:.1f} of {} "
        "steps; {:.1f} % of the cells covered",
        created, counters_[counter::spawned], counters_[counter::refused], up, down, created - up - down,
        counters_[counter::reflected], steps, config_.step_count(), 100 * coverage));
    return scored;
}

}  // namespace millrace::models
