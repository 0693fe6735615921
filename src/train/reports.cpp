#include "train/reports.h"

#include <cmath>
#include <limits>

namespace millrace::train {

double merit(const Score& score, const std::string& metric) {
    if (metric == "validation_loss") return -score.loss;
    if (metric == "validation_accuracy") return score.accuracy;
    const models::Figure* figure = score.more.find(metric);
    return figure != nullptr ? figure->value : std::numeric_limits<double>::quiet_NaN();
}

std::size_t best_member(const std::vector<Score>& scores, const std::string& metric) {
    std::size_t best = 0;
    const auto value = [&](std::size_t k) { return merit(scores[k], metric); };
    for (std::size_t k = 1; k < scores.size(); ++k)
        if (value(k) > value(best) || (std::isnan(value(best)) && !std::isnan(value(k)))) best = k;
    return best;
}

std::size_t best_member(const RunResult& result) {
    if (result.chosen) return *result.chosen;
    std::vector<Score> scores;
    for (const MemberResult& member : result.members)
        scores.push_back(std::isnan(member.validation_accuracy)
                             ? Score{member.test_loss, member.test_accuracy, member.more}
                             : Score{member.validation_loss, member.validation_accuracy, member.more});
    return best_member(scores, result.best_metric);
}

}  // namespace millrace::train
