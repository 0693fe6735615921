#include "train/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace::train {
namespace {

/// Scores become probabilities.
void soft_max(std::span<double> scores) {
    const double top = *std::ranges::max_element(scores);
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - top);
    for (double& score : scores) score /= sum;
}

}  // namespace

Spread spread_of(std::span<const double> values) {
    const auto count = static_cast<double>(values.size());
    const double mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
    double squares = 0;
    for (const double value : values) squares += (value - mean) * (value - mean);
    return {mean, std::sqrt(squares / count)};
}

std::vector<std::string> Answers::columns() const {
    std::vector<std::string> names{prepared_.target ? prepared_.target->name : "class"};
    if (!prepared_.target && values() > kMostColumns) names.emplace_back("probability");
    if (!prepared_.target && values() <= kMostColumns)
        for (std::size_t i = 0; i < values(); ++i)
            names.push_back("p_" + (prepared_.class_names.empty() ? std::to_string(i) : prepared_.class_names[i]));
    if (members_ > 1) names.emplace_back("spread");
    return names;
}

Answer Answers::of(std::span<const double> outputs, std::size_t row) const {
    const std::size_t width = values(), all = outputs.size() / members_;
    std::vector<double> scores;
    for (std::size_t member = 0; member < members_; ++member) {
        const auto own = outputs.subspan(member * all + row * width, width);
        scores.insert(scores.end(), own.begin(), own.end());
    }
    if (!std::ranges::all_of(scores, [](double score) { return std::isfinite(score); })) return {};
    if (prepared_.target) {
        const auto [value, spread] = spread_of(scores);
        const double mean = prepared_.target->mean, deviation = prepared_.target->deviation;
        Answer answer{{mean + deviation * value}, {static_cast<float>(mean + deviation * value)}};
        if (members_ > 1) answer.cells.emplace_back(deviation * spread);
        return answer;
    }
    std::vector<double> mean(width);
    for (std::size_t member = 0; member < members_; ++member) {
        const auto own = std::span(scores).subspan(member * width, width);
        soft_max(own);
        for (std::size_t i = 0; i < width; ++i) mean[i] += own[i] / static_cast<double>(members_);
    }
    const auto chosen = static_cast<std::size_t>(std::ranges::max_element(mean) - mean.begin());
    Answer answer{{}, {mean.begin(), mean.end()}};
    const auto& names = prepared_.class_names;
    answer.cells.push_back(names.empty() ? io::Cell(static_cast<std::int64_t>(chosen)) : io::Cell(names[chosen]));
    const auto listed = width > kMostColumns ? std::span(&mean[chosen], 1) : std::span(mean);
    answer.cells.insert(answer.cells.end(), listed.begin(), listed.end());
    if (members_ == 1) return answer;
    std::vector<double> each;
    for (std::size_t member = 0; member < members_; ++member) each.push_back(scores[member * width + chosen]);
    answer.cells.emplace_back(spread_of(each).deviation);
    return answer;
}

}  // namespace millrace::train
