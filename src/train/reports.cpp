#include "train/reports.h"

#include <cmath>

namespace millrace::train {

std::size_t best_member(const std::vector<Score>& scores, bool by_loss) {
    std::size_t best = 0;
    const auto value = [&](std::size_t k) { return by_loss ? -scores[k].loss : scores[k].accuracy; };
    for (std::size_t k = 1; k < scores.size(); ++k)
        if (value(k) > value(best) || (std::isnan(value(best)) && !std::isnan(value(k)))) best = k;
    return best;
}

std::size_t best_member(const RunResult& result) {
    std::vector<Score> scores;
    for (const MemberResult& member : result.members)
        scores.push_back(std::isnan(member.validation_accuracy) ? Score{member.test_loss, member.test_accuracy}
                                                                : Score{member.validation_loss, member.validation_accuracy});
    return best_member(scores, result.best_by_loss);
}

}  // namespace millrace::train
